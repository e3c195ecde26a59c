//! State shared by an end's threads outside the hot path: which have finished, which failed, when to stop.

use std::{
    sync::{Condvar, MutexGuard, PoisonError},
    time::Duration,
};

use super::clock::{monotonic_ns, nanoseconds};
use crate::{lock::Lock, report::Spinning};

/// Limit of the workers' notes: those of many flows say the same.
const MOST_NOTES: usize = 8;

#[derive(Debug, Default)]
pub struct Watch {
    state: Lock<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent events")]
struct State {
    workers: Vec<Worker>,
    stop_at_ns: Option<u64>,
    /// Start of the last worker's load.
    began_ns: u64,
    /// Requested begin of the measurement, until the sampler has taken it.
    begin_at_ns: Option<u64>,
    aborted: bool,
    failure: Option<String>,
    reported: bool,
    /// Whether the phases have ended.
    phases_over: bool,
    /// Whether what is under way is given up.
    released: bool,
    /// Facts for the reader of the numbers.
    notes: Vec<String>,
    /// Completions that the threads took from their submission rings, and the system calls for them.
    submitted: (u64, u64),
    /// Waits of the workers that spin, and have left.
    spinning: Spinning,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    load_over_ns: Option<u64>,
    done: bool,
    /// Whether only the peer knows when this worker's load is over.
    awaits_end_of_data: bool,
    /// Whether it only receives or answers: its peer decides on the load.
    follows: bool,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The instant has come.
    Due,
    /// The measurement is to begin at this instant, which may have passed.
    Begin(u64),
    /// The instant of an early stop has come.
    Stop,
    /// Every worker's load is over; the last one's ended at this instant.
    LoadOver(u64),
    /// A worker has failed.
    Failed,
    /// An abort was asked for.
    Aborted,
}

/// The last steps of an end before its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// It has sent all and waits for its peer's end of data.
    pub awaiting_end_of_data: bool,
    /// Its phases have ended and it has sent its last.
    pub load_over: bool,
    pub reported: bool,
}

impl State {
    fn news(&self) -> News {
        News {
            awaiting_end_of_data: self.is_awaiting_end_of_data(),
            load_over: self.is_load_over(),
            reported: self.reported,
        }
    }

    /// Whether the phases have ended and every worker that sends on its own account has sent its last.
    fn is_load_over(&self) -> bool {
        self.phases_over && self.has_sent()
    }

    /// Whether every worker that sends on its own account has sent its last.
    fn has_sent(&self) -> bool {
        self.workers.iter().all(|worker| worker.follows || worker.load_over_ns.is_some())
    }

    /// Whether all other workers are done and only those that need an end-of-data message go on: time to tell the peer.
    fn is_awaiting_end_of_data(&self) -> bool {
        let over = |worker: &Worker| worker.awaits_end_of_data || worker.load_over_ns.is_some();
        let awaiting = self.workers.iter().filter(|worker| worker.awaits_end_of_data).count();
        awaiting > 0 && awaiting < self.workers.len() && self.workers.iter().all(over)
    }
}

impl Watch {
    pub fn new(workers: usize) -> Self {
        let state = State { workers: vec![Worker::default(); workers], ..State::default() };
        Self { state: Lock::new(state), ..Self::default() }
    }

    /// Changes the state and wakes all waiting threads.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits for a change, at most until an instant of the monotonic clock.
    fn wait_once<'a>(&self, state: MutexGuard<'a, State>, until_ns: u64) -> MutexGuard<'a, State> {
        let left = until_ns.saturating_sub(monotonic_ns()).min(3_600_000_000_000);
        self.changed.wait_timeout(state, Duration::from_nanos(left)).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Asks for an early stop at an instant. The earliest of several counts.
    pub fn stop_at(&self, at_ns: u64) {
        self.change(|state| state.stop_at_ns = Some(state.stop_at_ns.map_or(at_ns, |earlier| earlier.min(at_ns))));
    }

    /// Asks for the begin of the measurement at an instant. The last of several counts.
    pub fn begin_at(&self, at_ns: u64) {
        self.change(|state| state.begin_at_ns = Some(at_ns));
    }

    /// Asks all threads to end at once.
    pub fn abort(&self) {
        self.change(|state| state.aborted = true);
    }

    pub fn is_aborted(&self) -> bool {
        self.state.lock().aborted
    }

    /// Marks a worker that cannot see from the data that no more will come: it needs an end-of-data message.
    pub fn awaits_end_of_data(&self, worker: usize) {
        self.change(|state| state.workers[worker].awaits_end_of_data = true);
    }

    /// Marks a worker that only receives or answers.
    pub fn follows(&self, worker: usize) {
        self.change(|state| state.workers[worker].follows = true);
    }

    /// The phases have ended; only what is under way still arrives.
    pub fn phases_over(&self) {
        self.change(|state| state.phases_over = true);
    }

    /// For the sampler: waits until every worker that sends on its own account has sent its last, at most until an instant.
    pub fn wait_for_senders(&self, until_ns: u64) {
        self.wait_for(until_ns, |state| state.has_sent() || state.aborted || state.released || state.failure.is_some());
    }

    /// The last steps so far.
    pub fn news(&self) -> News {
        self.state.lock().news()
    }

    pub fn is_released(&self) -> bool {
        self.state.lock().released
    }

    /// Gives up what is under way: draining ends at once.
    pub fn release(&self) {
        self.change(|state| state.released = true);
    }

    /// End of the last load that this end knows of while it awaits the end of data; 0 otherwise.
    pub fn sent_ns(&self) -> u64 {
        let state = self.state.lock();
        let sent =
            state.workers.iter().filter(|worker| !worker.awaits_end_of_data).filter_map(|worker| worker.load_over_ns);
        if state.is_awaiting_end_of_data() { sent.max().unwrap_or(0) } else { 0 }
    }

    /// Waits up to `at_most` for news of the end that go beyond `known`.
    pub fn wait_for_news(&self, known: News, at_most: Duration) -> News {
        let mut news = known;
        self.wait_for(monotonic_ns().saturating_add(nanoseconds(at_most)), |state| {
            news = state.news();
            news != known
        });
        news
    }

    /// A worker's load is over.
    pub fn load_over(&self, worker: usize, at_ns: u64) {
        self.change(|state| {
            state.workers[worker].load_over_ns.get_or_insert(at_ns);
        });
    }

    /// Records a failure of a worker that has not left yet.
    pub fn failed(&self, failure: String) {
        self.change(|state| {
            state.failure.get_or_insert(failure);
        });
    }

    /// Adds a fact for the reader of the numbers.
    pub fn note(&self, note: String) {
        self.change(|state| {
            if state.notes.len() < MOST_NOTES {
                state.notes.push(note);
            }
        });
    }

    /// The facts that the workers told; taken once all have left.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notes)
    }

    /// A thread ends that took so many completions from its submission ring by so many calls.
    pub fn submitted(&self, completions: u64, calls: u64) {
        self.change(|state| state.submitted = (state.submitted.0 + completions, state.submitted.1 + calls));
    }

    /// Completions of all submission rings, and the calls for them.
    pub fn all_submitted(&self) -> (u64, u64) {
        self.state.lock().submitted
    }

    /// A worker leaves, with a sentence if it failed.
    pub fn done(&self, worker: usize, failure: Option<String>) {
        let now = monotonic_ns();
        self.change(|state| {
            let worker = &mut state.workers[worker];
            worker.load_over_ns.get_or_insert(now);
            worker.done = true;
            // The first failure is the cause; later ones are its consequences.
            state.failure = state.failure.take().or(failure);
        });
    }

    /// A worker that spins leaves.
    pub fn spun(&self, waits: Spinning) {
        let all = &mut self.state.lock().spinning;
        all.waits += waits.waits;
        all.spun += waits.spun;
        all.at_once += waits.at_once;
        all.cpu = waits.cpu.or(all.cpu);
    }

    /// Waits of the workers that have left.
    pub fn spinning(&self) -> Spinning {
        self.state.lock().spinning
    }

    pub fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub fn reported(&self) {
        self.change(|state| state.reported = true);
    }

    /// Waits up to `at_most` for the report; says whether it is ready.
    pub fn wait_for_report(&self, at_most: Duration) -> bool {
        self.wait_for(monotonic_ns().saturating_add(nanoseconds(at_most)), |state| state.reported)
    }

    /// Waits until something is so; `false`: it was not before the instant.
    fn wait_for(&self, until_ns: u64, mut condition: impl FnMut(&State) -> bool) -> bool {
        let mut state = self.state.lock();
        while !condition(&state) {
            if monotonic_ns() >= until_ns {
                return false;
            }
            state = self.wait_once(state, until_ns);
        }
        true
    }

    /// For workers: waits for the load's start, or for an early stop before it, after which the ends part as after any
    /// load. `false`: there is no load.
    pub fn wait_for_start(&self, t0_ns: u64) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.aborted {
                return false;
            }
            let due_ns = t0_ns.min(state.stop_at_ns.unwrap_or(u64::MAX));
            let now = monotonic_ns();
            if now >= due_ns {
                state.began_ns = state.began_ns.max(now);
                return true;
            }
            state = self.wait_once(state, due_ns);
        }
    }

    /// Start of the last worker that has begun its load, monotonic clock, nanoseconds; 0: none has.
    pub fn began_ns(&self) -> u64 {
        self.state.lock().began_ns
    }

    /// For the sampler: waits until an instant, or until something ends the load.
    pub fn wait(&self, until_ns: u64) -> Wake {
        let mut state = self.state.lock();
        loop {
            if state.aborted {
                return Wake::Aborted;
            }
            if state.failure.is_some() {
                return Wake::Failed;
            }
            if let Some(at_ns) = state.begin_at_ns.take() {
                return Wake::Begin(at_ns);
            }
            let now = monotonic_ns();
            let stop = state.stop_at_ns.unwrap_or(u64::MAX);
            let last = state.workers.iter().try_fold(0, |last: u64, worker| Some(last.max(worker.load_over_ns?)));
            // The earlier event counts, even when the thread woke too late to tell by the clock.
            if let Some(last) = last.filter(|last| !state.workers.is_empty() && *last <= until_ns.min(stop)) {
                return Wake::LoadOver(last);
            }
            if now >= until_ns && until_ns <= stop {
                return Wake::Due;
            }
            if now >= stop {
                return Wake::Stop;
            }
            state = self.wait_once(state, until_ns.min(stop));
        }
    }

    /// Waits until every worker has left, an abort or a release (if heeded), or the instant. `true`: all have left.
    pub fn wait_for_workers(&self, until_ns: u64, heed_abort: bool) -> bool {
        let mut have_left = false;
        self.wait_for(until_ns, |state| {
            have_left = state.workers.iter().all(|worker| worker.done);
            have_left || (heed_abort && (state.aborted || state.released))
        });
        have_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR_AWAY: u64 = u64::MAX;

    #[test]
    fn the_load_is_over_when_the_last_worker_says_so() {
        let watch = Watch::new(2);
        watch.load_over(1, 50);
        assert_eq!(watch.wait(60), Wake::Due);
        watch.load_over(0, 70);
        watch.load_over(0, 90);
        assert_eq!(watch.wait(60), Wake::Due, "the edge came first");
        watch.stop_at(monotonic_ns());
        assert_eq!(watch.wait(FAR_AWAY), Wake::LoadOver(70), "the load was over before the stop");
        assert!(!watch.wait_for_workers(monotonic_ns(), false));
        watch.done(0, None);
        watch.done(1, None);
        assert!(watch.wait_for_workers(FAR_AWAY, false));
    }

    #[test]
    fn an_end_only_listens_when_all_that_it_sends_is_sent() {
        let watch = Watch::new(3);
        watch.load_over(0, 50);
        watch.load_over(1, 60);
        assert!(!watch.news().awaiting_end_of_data, "nobody listens");
        watch.awaits_end_of_data(2);
        assert!(watch.news().awaiting_end_of_data);
        assert!(watch.wait_for_news(News::default(), Duration::ZERO).awaiting_end_of_data);
        assert_eq!(watch.sent_ns(), 60);
        let watch = Watch::new(2);
        watch.awaits_end_of_data(0);
        assert!(!watch.news().awaiting_end_of_data, "one still sends");
        watch.awaits_end_of_data(1);
        assert!(!watch.news().awaiting_end_of_data, "it never sent");
        watch.reported();
        assert!(watch.wait_for_news(News::default(), Duration::ZERO).reported);
    }

    #[test]
    fn the_load_is_over_after_the_phases_when_all_that_send_by_themselves_have_sent() {
        let watch = Watch::new(2);
        watch.follows(1);
        watch.load_over(0, 50);
        assert!(!watch.news().load_over, "the phases go on");
        watch.phases_over();
        assert!(watch.news().load_over && watch.wait_for_news(News::default(), Duration::ZERO).load_over);
        let watch = Watch::new(1);
        watch.phases_over();
        assert!(!watch.news().load_over, "it still sends");
        assert!(!watch.wait_for_workers(monotonic_ns(), true));
        watch.release();
        assert!(!watch.wait_for_workers(FAR_AWAY, true), "given up at once");
    }

    #[test]
    fn an_edge_before_the_stop_comes_first() {
        let watch = Watch::new(1);
        let now = monotonic_ns();
        watch.stop_at(now + 1);
        watch.stop_at(now + 2);
        assert_eq!(watch.wait(now), Wake::Due);
        assert_eq!(watch.wait(FAR_AWAY), Wake::Stop);
    }

    #[test]
    fn the_begin_is_told_once_and_whatever_the_time() {
        let watch = Watch::new(1);
        watch.begin_at(FAR_AWAY);
        watch.begin_at(5);
        assert_eq!(watch.wait(0), Wake::Begin(5));
        assert_eq!(watch.wait(0), Wake::Due);
    }

    #[test]
    fn the_first_failure_is_the_cause() {
        let watch = Watch::new(2);
        watch.done(0, Some("first".into()));
        watch.done(1, Some("second".into()));
        assert_eq!(watch.wait(FAR_AWAY), Wake::Failed);
        assert_eq!(watch.failure().as_deref(), Some("first"));
        watch.abort();
        assert_eq!(watch.wait(FAR_AWAY), Wake::Aborted);
        assert!(!watch.wait_for_start(0));
    }
}
