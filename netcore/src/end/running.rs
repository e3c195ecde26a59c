//! An end under load, seen by whoever waits for its report.

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
    /// Behind a lock only so that a running end may be shared between threads.
    pub(super) report: Mutex<mpsc::Receiver<SideReport>>,
    /// Never joined: it leaves after its report, and its workers before it.
    pub(super) _sampler: JoinHandle<()>,
}

impl Running {
    /// Ends the measure phase at this instant of the monotonic clock, early but whole; there is no cool-down then. Without
    /// effect on an end that has finished by then.
    pub fn stop_at(&self, monotonic_ns: u64) {
        self.watch.stop_at(monotonic_ns);
    }

    /// Begins the measure phase at this instant of the monotonic clock, if the warm-up is one that may end early and has not
    /// ended by then. What follows is as long as it was to be.
    pub fn begin_at(&self, monotonic_ns: u64) {
        self.watch.begin_at(monotonic_ns);
    }

    /// Ends everything at once: blocked threads are freed, what was measured does not count.
    pub fn abort(&self) {
        self.watch.abort();
    }

    /// Whether the load is over, every flow drained, and the report ready.
    pub fn is_finished(&self) -> bool {
        self.watch.is_reported()
    }

    /// Whether all is sent that the stop rule asks of this end, and it goes on only because the peer, who sends too, may not
    /// be so far: nobody sees from datagrams that no more will come ([`crate::spec::support::ends_by_word`]).
    pub fn is_awaiting_end_of_data(&self) -> bool {
        self.watch.is_awaiting_end_of_data()
    }

    /// Waits at most so long for that, or for the report; says whether it is so.
    pub fn wait_until_awaiting_end_of_data(&self, at_most: Duration) -> bool {
        self.watch.wait_until_awaiting_end_of_data(at_most)
    }

    /// Waits for the report at most so long; says whether it is there.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.watch.wait_for_report(at_most)
    }

    /// Waits for the end (the schedule's own, or the one that was asked for; draining is bounded) and gives the report.
    pub fn finish(self) -> SideReport {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.recv().unwrap_or_else(|_| {
            let sentence = "the sampler's thread broke down: this is a fault of the program";
            SideReport::empty(self.side, Ending::Failed(sentence.to_owned()))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After the report there is nothing left to end.
        self.watch.abort();
    }
}

/// Whoever waits for the report is woken even if the sampler's thread breaks down: [`Running::finish`] then says so.
pub(super) struct Reported(pub(super) Arc<Watch>);

impl Drop for Reported {
    fn drop(&mut self) {
        self.0.reported();
    }
}
