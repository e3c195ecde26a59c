//! The load of a client's test: when it is over, as far as only this end can tell.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    asked::{Asked, Form, Length},
    classic::Test,
    control::Control,
};
use crate::{
    control::{
        event::wait,
        load::Load,
        part::RunningPart,
        stop::{StopFlag, Urgency},
    },
    end::End,
    error::EndError,
    measure::clock::monotonic_ns,
    report::{Ending, SideReport},
    spec::{Direction, Stop},
};

/// Some clients end without a word: those of connect tests, and of most classic ones. So does this end, when the client's time
/// and this more has passed …
const AFTER: Duration = Duration::from_secs(1);

/// … and nothing has come for this long.
const QUIET: Duration = Duration::from_millis(500);

/// After its own end a sender that is blocked, or a connection that stays open, is given up.
const LEAVE: Duration = Duration::from_millis(50);

/// Interval of looking at the counters, where they tell of the end.
const LOOK_UP: Duration = Duration::from_millis(50);

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As the client meant it to.
    Whole,
    /// The client left.
    Gone,
    /// The client sent a message.
    Unexpected,
    Stopping,
}

/// A load and what its end is told by.
pub struct Watched {
    load: Load,
    began: Instant,
    /// The client's own time, where it has one.
    length: Option<Duration>,
    /// Instant after which the flow is given up.
    latest: Option<Duration>,
    /// Operations after which it is over.
    count: Option<u64>,
    /// Whether it is over when nothing comes after the client's time, or its count.
    falls_silent: bool,
    /// Whether each operation has a connection of its own.
    connects: bool,
    /// The connection that this end only sends on: readable when the client wants no more.
    sending: Option<Arc<OwnedFd>>,
}

impl Watched {
    /// Starts the end. `data`: its socket.
    pub fn start(end: End, asked: &Asked, data: Arc<OwnedFd>) -> Result<Self, EndError> {
        let spec = &asked.spec;
        let connects = spec.pattern.is_connecting();
        let length = match asked.length {
            Length::Seconds(seconds) => Some(Duration::from_secs(seconds.into())),
            Length::Count(_) | Length::Open => None,
        };
        let latest = match spec.phases.stop {
            Stop::AfterNs(ns) => Some(Duration::from_nanos(ns) + LEAVE),
            _ => None,
        };
        // Streams end with their data. A classic client ends its datagrams with a shorter one, and its requests by asking for
        // the results.
        let streams = matches!(asked.form, Form::Omni | Form::Classic(Test::TcpStream | Test::TcpMaerts));
        let falls_silent = connects || !streams;
        let count = match asked.length {
            Length::Count(count) if falls_silent => Some(count.into()),
            _ => None,
        };
        let sending = (spec.direction == Direction::Reverse).then_some(data);
        let load = Load::start(end, monotonic_ns(), false)?;
        Ok(Self { load, began: Instant::now(), length, latest, count, falls_silent, connects, sending })
    }

    /// Waits for the end of the load. An end that is not the client's own ends it at once.
    pub fn watch(&mut self, control: &Control, stop: &StopFlag) -> io::Result<Ended> {
        let mut last = (0, Instant::now());
        let (mut released, mut stopped) = (false, false);
        loop {
            self.load.clear_news();
            if self.load.is_finished() {
                return Ok(Ended::Whole);
            }
            let now = Instant::now();
            if self.latest.is_some_and(|latest| now >= self.began + latest) && !released {
                released = true;
                self.load.release();
            }
            let done = self.done();
            if done != last.0 {
                last = (done, now);
            }
            let quiet = now >= last.1 + QUIET;
            let after = self.length.is_some_and(|length| now >= self.began + length + AFTER);
            let counted = self.count.is_some_and(|count| done >= count);
            // Nobody waits for the last connection: it is closed already. A last answer may be under way.
            if self.falls_silent && !stopped && ((after && quiet) || (counted && (quiet || self.connects))) {
                stopped = true;
                self.load.stop_at(monotonic_ns());
                released = !self.connects;
                if released {
                    self.load.release();
                }
            }
            let mut wake = (!released).then_some(self.latest).flatten().map(|latest| self.began + latest);
            if self.falls_silent {
                wake = Some(wake.unwrap_or(now + LOOK_UP).min(now + LOOK_UP));
            }
            let sending = self.sending.as_ref().filter(|_| !stopped).map(|data| data.as_fd());
            let urgent = stop.beyond(Urgency::Orderly);
            let ready = wait([Some(self.load.as_fd()), Some(control.as_fd()), urgent, sending], wake)?;
            if ready[3] {
                // A client that is interrupted reads no more, and waits for the results.
                (stopped, released) = (true, true);
                self.load.stop_at(monotonic_ns());
                self.load.release();
            }
            if ready[2] {
                return Ok(Ended::Stopping);
            }
            if ready[1] && !self.load.is_finished() {
                // The end of the data and that of the control connection may come together.
                std::thread::sleep(Duration::from_millis(1));
                return Ok(match is_open(control.stream()) {
                    _ if self.load.is_finished() => Ended::Whole,
                    true => Ended::Unexpected,
                    false => Ended::Gone,
                });
            }
        }
    }

    /// Connections, or datagrams, so far.
    fn done(&self) -> u64 {
        self.load.counts().iter().map(|counts| counts.transactions + counts.messages_received).sum()
    }

    /// The report of the load; one that has not ended is ended now.
    pub fn finish(self, ended: Ended) -> SideReport {
        if ended != Ended::Whole {
            self.load.abort();
        }
        let long_enough = self.length.is_none_or(|length| self.began.elapsed() >= length);
        let mut report = self.load.finish();
        // The client decides on the end, and may leave replies unread: that breaks the connection, and nothing else.
        let broke_at_the_end = long_enough && matches!(report.ending, Ending::Failed(_));
        if ended == Ended::Whole && (broke_at_the_end || report.ending == Ending::Stopped) {
            report.ending = Ending::Complete;
        }
        report
    }
}

/// Whether bytes wait on a connection, rather than its end.
fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.peek(&mut [0]), Ok(1..))
}
