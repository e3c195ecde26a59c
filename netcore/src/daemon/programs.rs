//! A program that runs for a client: for as long as the client stays, and no longer than it was granted.

use std::{io, os::fd::AsFd, thread, time::Duration};

use crate::control::{
    channel::{Channel, ChannelError},
    child::{self, Failure, Program, Ran},
    event::{Event, wait},
    message::{Execute, Executed, Request},
    stop::{StopFlag, Urgency},
};

/// Why a program was asked to end before its time.
pub(super) enum Cut {
    /// The client asked for it.
    Aborted,
    /// The daemon is being stopped at once.
    Stopping,
    /// The client said something else.
    Unexpected(Request),
    /// The client is gone, or not understood.
    Channel(ChannelError),
}

/// Runs it and listens to the client meanwhile. A daemon that is asked for an orderly end lets it finish, as it does tests.
pub(super) fn run(asked: &Execute, channel: &mut Channel, stop: &StopFlag) -> (Executed, Option<Cut>) {
    match watched(asked, channel, stop) {
        Ok((ran, cut)) => (told(ran), cut),
        Err(error) => {
            let message = format!("`{}` could not be started: {error}", child::shown(&asked.argv));
            (Executed::Failed { timed_out: false, message }, None)
        }
    }
}

fn watched(asked: &Execute, channel: &mut Channel, stop: &StopFlag) -> io::Result<(Result<Ran, Failure>, Option<Cut>)> {
    let (ends, over) = (StopFlag::new()?, Event::new()?);
    let environment: Vec<(&str, String)> = asked.environment.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let program = Program {
        argv: &asked.argv,
        environment: &environment,
        // This thread's, in which the daemon serves.
        netns: None,
        limit: Duration::from_nanos(asked.limit_ns),
        keep: Execute::OUTPUT_BOUND,
        whole: false,
        ends_all: false,
        heeds: Urgency::None,
    };
    thread::scope(|scope| {
        let child = thread::Builder::new().name("program".into()).spawn_scoped(scope, || {
            let ran = child::run(&program, &ends);
            over.set();
            ran
        })?;
        let cut = listen(channel, &over, stop, &ends);
        if !matches!(cut, None | Some(Cut::Aborted)) {
            // At once: nobody waits for what it may still have to say.
            ends.request();
            ends.request();
        }
        match child.join() {
            Ok(ran) => Ok((ran, cut)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Returns when the program is over, or is to be ended at once.
fn listen(channel: &mut Channel, over: &Event, stop: &StopFlag, ends: &StopFlag) -> Option<Cut> {
    let mut aborted = false;
    loop {
        match channel.try_recv() {
            Ok(Some(Request::Abort)) => {
                // The first asks it to end, a second one ends it.
                ends.request();
                aborted = true;
                continue;
            }
            // They crossed the report of the test before it on the way.
            Ok(Some(Request::Stop { .. } | Request::Measure { .. })) => continue,
            Ok(Some(request)) => return Some(Cut::Unexpected(request)),
            Ok(None) => {}
            Err(error) => return Some(Cut::Channel(error)),
        }
        let urgency = stop.urgency();
        if urgency == Urgency::Now {
            return Some(Cut::Stopping);
        }
        match wait([Some(over.as_fd()), Some(channel.as_fd()), stop.beyond(urgency)], None) {
            Ok([true, ..]) => return aborted.then_some(Cut::Aborted),
            Ok(_) => {}
            Err(source) => {
                return Some(Cut::Channel(ChannelError::Io {
                    what: "waiting for the end of a program failed",
                    source,
                }));
            }
        }
    }
}

fn told(ran: Result<Ran, Failure>) -> Executed {
    match ran {
        Ok(ran) => Executed::Done {
            stdout: String::from_utf8_lossy(&ran.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&ran.stderr).into_owned(),
            elapsed_ns: u64::try_from(ran.elapsed.as_nanos()).unwrap_or(u64::MAX),
        },
        Err(failure) => Executed::Failed { timed_out: failure.is_timeout(), message: failure.to_string() },
    }
}
