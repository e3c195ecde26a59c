//! An end under load, as the thread that waits for its report sees it.

use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    lock::Lock,
    measure::{
        counters::FlowCell,
        watch::{News, Watch},
    },
    report::{Counts, Ending, SideReport},
    spec::Side,
};

/// An end under load. Dropping it aborts it.
pub struct Running {
    pub(super) side: Side,
    pub(super) watch: Arc<Watch>,
    /// Counters of the flows.
    pub(super) cells: Vec<Arc<FlowCell>>,
    /// The lock lets threads share a running end.
    pub(super) report: Lock<mpsc::Receiver<SideReport>>,
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

    /// Whether the phases have ended and this end has sent its last. What is under way may still arrive.
    pub fn is_load_over(&self) -> bool {
        self.watch.news().load_over
    }

    /// Gives up what is under way after the load: the connections are closed, and the report follows.
    pub fn release(&self) {
        self.watch.release();
    }

    /// Payload counts of each flow so far.
    pub fn counts(&self) -> Vec<Counts> {
        self.cells.iter().map(|cell| cell.read()).collect()
    }

    /// Ends everything at once: frees blocked threads and discards the measurement.
    pub fn abort(&self) {
        self.watch.abort();
    }

    /// Whether the load is over, every flow drained, and the report ready.
    pub fn is_finished(&self) -> bool {
        self.watch.news().reported
    }

    /// Whether this end has sent all that the stop rule asks of it and waits only for the peer, which sends too: datagrams do
    /// not show their end ([`crate::spec::support::ends_by_word`]).
    pub fn is_awaiting_end_of_data(&self) -> bool {
        self.watch.news().awaiting_end_of_data
    }

    /// Waits up to `at_most` for news that go beyond `known`.
    pub(crate) fn wait_for_news(&self, known: News, at_most: Duration) -> News {
        self.watch.wait_for_news(known, at_most)
    }

    /// Waits for the report; `false`: not within `at_most`.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.watch.wait_for_report(at_most)
    }

    /// Waits for the scheduled or requested end and returns the report, once. Draining is bounded.
    pub fn finish(&self) -> SideReport {
        let report = self.report.lock();
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
