//! The metrics of a daemon.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use netcore::daemon::{Daemon, Snapshot};

use super::{families as f, page::Page, server::Source};

/// A daemon as its scrapes see it.
#[derive(Debug)]
pub struct Served {
    daemon: Arc<Daemon>,
    start_s: f64,
}

impl Served {
    pub fn new(daemon: Arc<Daemon>) -> Self {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { daemon, start_s: start.as_secs_f64() }
    }
}

/// The families that both commands have.
pub(super) fn build(page: &mut Page, start_s: f64) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("build", env!("PLUMB_BUILD"))];
    page.put(&f::BUILD, &labels, 1.0);
    page.put(&f::START, &[], start_s);
}

impl Source for Served {
    fn write(&self, page: &mut Page) -> bool {
        let Snapshot { limits, counts, sessions, greeting, running, flows, memory_bytes, waiting } =
            self.daemon.snapshot();
        build(page, self.start_s);
        page.put(&f::SESSIONS, &[], sessions.into());
        page.put(&f::MOST_SESSIONS, &[], limits.sessions.into());
        page.put(&f::MOST_OF_CLIENT, &[], limits.sessions_per_client.into());
        for (program, count) in counts.opened {
            page.put(&f::OPENED, &[("program", program)], count as f64);
        }
        page.put(&f::GREETING, &[], greeting as f64);
        for (cause, count) in counts.refused {
            page.put(&f::REFUSED, &[("reason", cause.name())], count as f64);
        }
        page.put(&f::WAITING, &[], waiting as f64);
        page.put(&f::RUNNING, &[], running as f64);
        for (ending, count) in counts.tests {
            page.put(&f::TESTS, &[("ending", ending)], count as f64);
        }
        page.put(&f::PROGRAMS, &[], counts.programs as f64);
        page.put(&f::FLOWS, &[], flows as f64);
        page.put(&f::MOST_FLOWS, &[], limits.flows.into());
        page.put(&f::MEMORY, &[], memory_bytes as f64);
        page.put(&f::MOST_MEMORY, &[], limits.memory_bytes as f64);
        page.put(&f::LONGEST, &[], Duration::from_nanos(limits.duration_ns).as_secs_f64());
        page.put(&f::SENT, &[], counts.bytes_sent as f64);
        page.put(&f::RECEIVED, &[], counts.bytes_received as f64);
        false
    }

    fn told(&self) {}
}
