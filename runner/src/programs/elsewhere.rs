//! A hook on another host: its daemon runs it, if it was started with `--allow-hooks`.

use std::time::Duration;

use netcore::{
    client::{ClientError, Session, Target},
    control::{
        child::shown,
        message::{Execute, Executed},
        stop::{StopFlag, Urgency},
    },
};

use super::hooks::Output;
use crate::schedule::bench::MeasureError;

/// Runs a hook to its end, in a session of its own: cleanup must work whatever happens to the test's sessions.
pub(super) fn run(
    target: &Target,
    argv: &[String],
    environment: Vec<(&'static str, String)>,
    limit: Duration,
    stop: &StopFlag,
    heeds: Urgency,
) -> Result<Output, MeasureError> {
    let asked = Execute {
        argv: argv.to_vec(),
        // The run's folder is on this host.
        environment: environment
            .into_iter()
            .filter(|(name, _)| *name != "PLUMB_RUN_DIR")
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
    };
    let mut session = Session::connect(target).map_err(|e| fault(&e, argv))?;
    let executed = session.execute(asked, stop, heeds).map_err(|e| fault(&e, argv))?;
    match executed {
        Executed::Done { stdout, stderr, elapsed_ns } => {
            Ok(Output { stdout, stderr, elapsed: Duration::from_nanos(elapsed_ns) })
        }
        Executed::Failed { timed_out, message } => {
            Err(MeasureError { timeout: timed_out, message: format!("{}: {message}", session.host()) })
        }
    }
}

fn fault(error: &ClientError, argv: &[String]) -> MeasureError {
    let message = match error {
        ClientError::Interrupted => format!("`{}` was ended with the run", shown(argv)),
        error => error.to_string(),
    };
    MeasureError::failed(message)
}
