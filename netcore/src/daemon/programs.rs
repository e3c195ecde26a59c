//! A program that runs for a client: while the client stays, and within the granted time.

use std::{
    io,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use crate::control::{
    channel::{Channel, ChannelError},
    child::{self, Failure, Program, Ran},
    message::{Execute, Executed, Request},
    stop::{Event, StopFlag, Urgency, wait},
};

/// The reason for ending a program early.
pub(super) enum Cut {
    Aborted,
    /// The daemon stops at once.
    Stopping,
    /// The client sent another request than `abort`.
    Unexpected(Request),
    /// The client is gone, or its message was not understood.
    Channel(ChannelError),
}

/// Runs it and handles requests of the client meanwhile. On an orderly end of the daemon it may finish, as tests may.
pub(super) fn run(asked: &Execute, channel: &mut Channel, stop: &StopFlag) -> (Executed, Option<Cut>) {
    match watched(asked, channel, stop) {
        Ok((ran, cut)) => (executed(ran), cut),
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
        // This thread's is the daemon's.
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
            // At once: its output is not needed.
            ends.request();
            ends.request();
        }
        match child.join() {
            Ok(ran) => Ok((ran, cut)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Returns when the program is over or must end at once.
fn listen(channel: &mut Channel, over: &Event, stop: &StopFlag, ends: &StopFlag) -> Option<Cut> {
    let mut aborted = false;
    loop {
        // One message a turn: the stop flag and the program's end are looked at after each.
        let more = match channel.try_recv() {
            Ok(Some(Request::Abort)) => {
                // The first one asks it to end, a second one kills it.
                ends.request();
                aborted = true;
                true
            }
            // They crossed the report of the previous test on their way.
            Ok(Some(Request::Stop { .. } | Request::Measure { .. })) => true,
            Ok(Some(request)) => return Some(Cut::Unexpected(request)),
            Ok(None) => false,
            Err(error) => return Some(Cut::Channel(error)),
        };
        let urgency = stop.urgency();
        if urgency == Urgency::Now {
            return Some(Cut::Stopping);
        }
        let until = more.then(Instant::now);
        match wait([Some(over.as_fd()), Some(channel.as_fd()), stop.beyond(urgency)], until) {
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

fn executed(ran: Result<Ran, Failure>) -> Executed {
    match ran {
        Ok(ran) => Executed::Done {
            stdout: String::from_utf8_lossy(&ran.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&ran.stderr).into_owned(),
            elapsed_ns: u64::try_from(ran.elapsed.as_nanos()).unwrap_or(u64::MAX),
        },
        Err(failure) => Executed::Failed { timed_out: failure.is_timeout(), message: failure.to_string() },
    }
}
