//! An end under load, as the thread that waits for its report sees it.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    measure::watch::Watch,
    report::{Ending, SideReport},
    spec::Side,
};

/// An end under load. Dropping it aborts it.
pub struct Running {
    pub(super) side: Side,
    pub(super) watch: Arc<Watch>,
    /// The lock lets threads share a running end.
    pub(super) report: Mutex<mpsc::Receiver<SideReport>>,
    /// Never joined: it ends after its report, and the workers end before it.
    pub(super) _sampler: JoinHandle<()>,
}

impl Running {
    /// Ends the measure phase at this instant of the monotonic clock, early but whole; there is no cool-down then. Without
    /// effect on an end that has finished by then.
    pub fn stop_at(&self, monotonic_ns: u64) {
        self.watch.stop_at(monotonic_ns);
    }

    /// Begins the measure phase at this instant of the monotonic clock, if the warm-up may end early and is still going on.
    /// The later phases keep their lengths.
    pub fn begin_at(&self, monotonic_ns: u64) {
        self.watch.begin_at(monotonic_ns);
    }

    /// Ends everything at once: frees blocked threads and discards the measurement.
    pub fn abort(&self) {
        self.watch.abort();
    }

    /// Whether the load is over, every flow drained, and the report ready.
    pub fn is_finished(&self) -> bool {
        self.watch.is_reported()
    }

    /// Whether this end has sent all that the stop rule asks of it and waits only for the peer, which sends too: datagrams do
    /// not show their end ([`crate::spec::support::ends_by_word`]).
    pub fn is_awaiting_end_of_data(&self) -> bool {
        self.watch.is_awaiting_end_of_data()
    }

    /// Waits for that, or for the report; `false`: not within `at_most`.
    pub fn wait_until_awaiting_end_of_data(&self, at_most: Duration) -> bool {
        self.watch.wait_until_awaiting_end_of_data(at_most)
    }

    /// Waits for the report; `false`: not within `at_most`.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.watch.wait_for_report(at_most)
    }

    /// Waits for the scheduled or requested end and returns the report. Draining is bounded.
    pub fn finish(self) -> SideReport {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.recv().unwrap_or_else(|_| {
            let sentence = "the sampler's thread broke down: this is a bug in plumb";
            SideReport::empty(self.side, Ending::Failed(sentence.to_owned()))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has no effect after the report.
        self.watch.abort();
    }
}

/// Wakes the threads that wait for the report even if the sampler's thread breaks down: [`Running::finish`] then reports that.
pub(super) struct Reported(pub(super) Arc<Watch>);

impl Drop for Reported {
    fn drop(&mut self) {
        self.0.reported();
    }
}
