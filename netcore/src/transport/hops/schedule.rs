//! The order in which the hops of a path are asked, and the round trips that their answers show: pure, from the times that its caller reads.
//!
//! All hops are asked in rounds, at the same time: in a round their packets meet the same queue.
//!
//! Routers limit their ICMP messages: Linux sends 1 per second to an address, after a burst of 6. [`Budget`] keeps below that.

use std::{net::IpAddr, ops::Range};

use crate::{
    measure::clock::nanoseconds,
    report::{Hop, MOST_ADDRESSES, MOST_HOPS, MOST_TRIPS, ProbedPath, RoundTrips},
    spec::{IDLE, Phases},
};

/// The end of that time belongs to answers that are under way.
const LAST_ANSWERS_NS: u64 = 150_000_000;

/// Time between the first probes of two hops. Longer paths are found before the idle time is over.
const NEXT_HOP_NS: u64 = 20_000_000;

/// Least time between two rounds on the idle path, and under load.
const GAP_NS: [u64; 2] = [450_000_000, 250_000_000];

/// Least time from the begin of the load to the first probe that counts, for the queue to fill.
const FILLING_NS: u64 = 500_000_000;

/// Time after which the budget is looked at again.
const LOOK_AGAIN_NS: u64 = 50_000_000;

/// An answer that takes longer is lost.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The state of the path when a probe left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Idle = 0,
    Loaded = 1,
}

/// Instants on the monotonic clock, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    idle_until: u64,
    loaded_from: u64,
    loaded_until: u64,
    /// Between two rounds under load: those of a long test are spread over it.
    loaded_gap: u64,
}

impl Schedule {
    pub fn new(now_ns: u64, t0_ns: u64, phases: &Phases) -> Self {
        let settled_ns = if phases.settle_ns > 0 { FILLING_NS } else { phases.warmup_ns };
        let loaded_from = t0_ns.saturating_add(settled_ns.max(FILLING_NS));
        let load_ns = phases.length_ns().map(|length| length.saturating_sub(phases.cooldown_ns));
        let loaded_until = load_ns.map_or(u64::MAX, |length| t0_ns.saturating_add(length));
        let each = load_ns.map_or(PATIENCE_NS, |length| length / MOST_TRIPS as u64);
        let idle_until = t0_ns.min(now_ns.saturating_add(nanoseconds(IDLE))).saturating_sub(LAST_ANSWERS_NS);
        Self { idle_until, loaded_from, loaded_until, loaded_gap: each.max(GAP_NS[1]) }
    }

    fn state(&self, now_ns: u64) -> Option<State> {
        if now_ns < self.idle_until {
            Some(State::Idle)
        } else {
            (self.loaded_from..self.loaded_until).contains(&now_ns).then_some(State::Loaded)
        }
    }
}

/// Answers that a router still gives, by the rule of Linux: a bucket of 6, filled by one per second.
#[derive(Clone, Copy, Debug)]
struct Budget {
    answers: f64,
    at_ns: u64,
}

impl Budget {
    const MOST: f64 = 6.0;

    /// Left in the bucket for the next test: its idle path has few seconds.
    const RESERVE: f64 = 2.0;

    /// Takes an answer; `false`: there are too few.
    fn take(&mut self, now_ns: u64, reserve: f64) -> bool {
        let filled = self.answers + now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        *self = Self { answers: filled.min(Self::MOST), at_ns: now_ns };
        let enough = self.answers >= 1.0 + reserve;
        if enough {
            self.answers -= 1.0;
        }
        enough
    }
}

/// A probe whose answer is awaited.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u32,
    /// Index of the hop.
    hop: usize,
    state: State,
    round: usize,
    sent_ns: u64,
    sent_wall_ns: i64,
}

/// A hop and its round trips so far.
#[derive(Debug, Default)]
struct Asked {
    hop: Hop,
    /// Whether it is the far end.
    reached: bool,
}

/// An ICMP message about a probe.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// `None`: the router quotes too little of the datagram.
    pub number: Option<u32>,
    pub from: IpAddr,
    /// Whether the datagram came to its destination's address.
    pub reached: bool,
    pub wall_ns: i64,
}

/// The schedule of the probes, and the answers to them.
#[derive(Debug)]
pub struct Prober {
    schedule: Schedule,
    hops: Vec<Asked>,
    /// When the last of them was first asked.
    found_ns: u64,
    /// Index of the nearest hop that is the far end.
    end: Option<usize>,
    open: Vec<Probe>,
    next: u32,
    /// Rounds so far in each state.
    rounds: [usize; 2],
    /// When the next one is due.
    due_ns: u64,
    /// Of each router.
    budget: Budget,
}

impl Prober {
    pub fn new(now_ns: u64, schedule: Schedule) -> Self {
        Self {
            schedule,
            hops: Vec::new(),
            found_ns: 0,
            end: None,
            open: Vec::new(),
            next: 0,
            // In the first one each hop is asked as soon as there may be one.
            rounds: [1, 0],
            due_ns: now_ns + GAP_NS[0],
            budget: Budget { answers: Budget::MOST - 1.0, at_ns: now_ns },
        }
    }

    /// Hops that are asked.
    fn count(&self) -> usize {
        self.end.map_or(self.hops.len(), |end| end + 1)
    }

    /// Whether the far end may lie behind the hops so far.
    fn is_open(&self) -> bool {
        self.end.is_none() && self.hops.len() < MOST_HOPS
    }

    /// Time until the next look, nanoseconds.
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        let left_ns = self.due_ns.saturating_sub(now_ns);
        if self.is_open() { left_ns.min(NEXT_HOP_NS) } else { left_ns }
    }

    /// The hops to ask now.
    pub fn due(&mut self, now_ns: u64) -> Option<(Range<usize>, State)> {
        let state = self.schedule.state(now_ns)?;
        let count = self.hops.len();
        let is_next = self.hops.is_empty() || now_ns >= self.found_ns.saturating_add(NEXT_HOP_NS);
        if state == State::Idle && self.is_open() && is_next {
            self.hops.push(Asked::default());
            self.found_ns = now_ns;
            return Some((count..count + 1, state));
        }
        let done = &mut self.rounds[state as usize];
        if now_ns < self.due_ns || *done >= MOST_TRIPS {
            return None;
        }
        if !self.budget.take(now_ns, Budget::RESERVE) {
            self.due_ns = now_ns + LOOK_AGAIN_NS;
            return None;
        }
        *done += 1;
        self.due_ns = now_ns + if state == State::Idle { GAP_NS[0] } else { self.schedule.loaded_gap };
        Some((0..self.count(), state))
    }

    /// The number of a probe that leaves now.
    pub fn sent(&mut self, hop: usize, state: State, sent_ns: u64, sent_wall_ns: i64) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let round = self.rounds[state as usize].saturating_sub(1);
        self.open.push(Probe { number, hop, state, round, sent_ns, sent_wall_ns });
        number
    }

    pub fn answered(&mut self, answer: Answer, now_ns: u64) {
        let number = match (answer.number, &self.open[..]) {
            (Some(number), _) => number,
            // Only one probe is under way, so the answer is its own.
            (None, [only]) => only.number,
            (None, _) => return,
        };
        let Some(at) = self.open.iter().position(|probe| probe.number == number) else { return };
        let probe = self.open.swap_remove(at);
        let most_us = now_ns.saturating_sub(probe.sent_ns) / 1000;
        // A clock that was set between the two readings makes nonsense of their difference.
        let us = u64::try_from((answer.wall_ns - probe.sent_wall_ns) / 1000).unwrap_or(most_us).min(most_us);
        let asked = &mut self.hops[probe.hop];
        let trips = asked.trips(probe.state);
        trips.asked += 1;
        if trips.us.len() <= probe.round {
            trips.us.resize(probe.round + 1, None);
        }
        trips.us[probe.round] = Some(u32::try_from(us).unwrap_or(u32::MAX));
        let addresses = &mut asked.hop.addresses;
        if !addresses.contains(&answer.from) && addresses.len() < MOST_ADDRESSES {
            addresses.push(answer.from);
        }
        if answer.reached {
            asked.reached = true;
            self.end = Some(self.end.map_or(probe.hop, |end| end.min(probe.hop)));
        }
    }

    /// Gives up probes without an answer. Their routers had none left.
    pub fn expire(&mut self, now_ns: u64) {
        let Self { open, hops, budget, .. } = self;
        open.retain(|probe| {
            let is_awaited = now_ns < probe.sent_ns.saturating_add(PATIENCE_NS);
            if !is_awaited {
                let asked = &mut hops[probe.hop];
                asked.trips(probe.state).asked += 1;
                // One that never answers does not count.
                if !asked.hop.addresses.is_empty() {
                    budget.answers = budget.answers.min(Budget::RESERVE);
                }
            }
            is_awaited
        });
    }

    /// The path up to the far end, or else up to the last hop that answered.
    pub fn path(mut self) -> ProbedPath {
        let reached = self.end.is_some();
        // Probes that could have gone further had the far end's answers, too.
        let further = self.hops.split_off(self.count());
        if let Some(end) = self.hops.last_mut().filter(|_| reached) {
            let more = further.iter().filter(|asked| asked.reached).flat_map(|asked| asked.hop.idle.answers());
            let idle = &mut end.hop.idle;
            idle.us.extend(more.map(Some));
            idle.us.truncate(MOST_TRIPS);
            idle.asked = idle.asked.max(u32::try_from(idle.answers().count()).unwrap_or(u32::MAX));
        }
        let mut hops: Vec<Hop> = self.hops.into_iter().map(|asked| asked.hop).collect();
        let answered = hops.iter().rposition(|hop| !hop.addresses.is_empty()).map_or(0, |last| last + 1);
        hops.truncate(answered);
        ProbedPath { hops, reached }
    }
}

impl Asked {
    fn trips(&mut self, state: State) -> &mut RoundTrips {
        match state {
            State::Idle => &mut self.hop.idle,
            State::Loaded => &mut self.hop.loaded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Stop;

    const MS: u64 = 1_000_000;

    fn phases(warmup_ms: u64, measure_ms: u64) -> Phases {
        Phases {
            warmup_ns: warmup_ms * MS,
            settle_ns: 0,
            stop: Stop::AfterNs(measure_ms * MS),
            cooldown_ns: 0,
            interval_ns: 0,
        }
    }

    fn router(number: usize) -> IpAddr {
        IpAddr::from([10, 0, u8::try_from(number).unwrap(), 1])
    }

    /// Round trips of a hop under a state, microseconds; `None`: it does not answer.
    type Path<'p> = &'p dyn Fn(usize, State) -> Option<u64>;

    /// Runs a prober against hops that answer like this, in steps of a millisecond. Each answers by Linux's own limit.
    fn simulate(far_end: usize, path: Path<'_>, phases: &Phases) -> ProbedPath {
        let mut limits = [Budget { answers: Budget::MOST, at_ns: 0 }; MOST_HOPS + 6];
        simulate_from(0, &mut limits, far_end, path, phases)
    }

    /// The same from an instant on, with what earlier tests have left of the answers.
    fn simulate_from(
        begin_ns: u64,
        limits: &mut [Budget],
        far_end: usize,
        path: Path<'_>,
        phases: &Phases,
    ) -> ProbedPath {
        let t0_ns = begin_ns + nanoseconds(IDLE) + 200 * MS;
        let mut prober = Prober::new(begin_ns, Schedule::new(begin_ns, t0_ns, phases));
        let mut under_way: Vec<(u64, Answer)> = Vec::new();
        for now_ns in (begin_ns..t0_ns + phases.length_ns().unwrap() + 500 * MS).step_by(1_000_000) {
            prober.expire(now_ns);
            let due = prober.due(now_ns);
            for (hop, state) in due.into_iter().flat_map(|(hops, state)| hops.map(move |hop| (hop, state))) {
                let number = prober.sent(hop, state, now_ns, now_ns.cast_signed());
                let place = hop.min(far_end);
                let Some(us) = path(place, state).filter(|_| limits[place].take(now_ns, 0.0)) else {
                    continue;
                };
                let at_ns = now_ns + us * 1000;
                let reached = hop >= far_end;
                let number = Some(number);
                under_way.push((at_ns, Answer { number, from: router(place), reached, wall_ns: at_ns.cast_signed() }));
            }
            under_way.retain(|(at_ns, answer)| {
                let is_here = *at_ns <= now_ns;
                if is_here {
                    prober.answered(*answer, now_ns);
                }
                !is_here
            });
        }
        prober.path()
    }

    #[test]
    fn a_path_is_found_and_probed_in_both_states_within_the_limits_of_its_routers() {
        let path = |hop: usize, state| Some(200 * (hop as u64 + 1) + if state == State::Loaded { 40_000 } else { 0 });
        let found = simulate(3, &path, &phases(1000, 5000));
        assert_eq!((found.hops.len(), found.reached), (4, true), "{found:?}");
        for (number, hop) in (0u32..).zip(&found.hops) {
            assert_eq!(hop.addresses, [router(number as usize)]);
            assert!(hop.idle.answers().count() >= 6 && hop.loaded.answers().count() >= 5, "hop {number}: {hop:?}");
            let answered = hop.idle.answers().count() + hop.loaded.answers().count();
            let asked = hop.idle.asked + hop.loaded.asked;
            assert!(asked as usize <= answered + 1, "asked more than it may answer: {hop:?}");
            assert!(hop.idle.answers().all(|us| us == 200 * (number + 1)), "{hop:?}");
            assert!(hop.loaded.us.iter().all(|us| us.is_some_and(|us| us > 40_000)), "{hop:?}");
        }
    }

    /// As in `plumb measure --hops`: a download, and then an upload.
    #[test]
    fn a_second_test_has_answers_enough_too() {
        let mut limits = [Budget { answers: Budget::MOST, at_ns: 0 }; MOST_HOPS];
        let phases = phases(300, 5000);
        for (number, begin_ns) in [0, 9_200, 18_400, 27_600].map(|ms| ms * MS).into_iter().enumerate() {
            let found = simulate_from(begin_ns, &mut limits, 3, &|_, _| Some(500), &phases);
            for hop in &found.hops {
                assert!(hop.idle.answers().count() >= 4 && hop.loaded.answers().count() >= 4, "test {number}: {hop:?}");
            }
        }
    }

    #[test]
    fn the_far_end_of_a_long_path_has_the_answers_of_probes_that_would_have_gone_further() {
        let found = simulate(2, &|_, _| Some(150_000), &phases(1000, 5000));
        assert_eq!((found.hops.len(), found.reached), (3, true));
        let last = &found.hops[2];
        assert!(last.idle.answers().count() >= 5 && last.loaded.answers().count() >= 4, "{last:?}");
    }

    #[test]
    fn silent_hops_stay_in_their_places_and_a_silent_end_is_cut_off() {
        let silent = |hop, _| (hop != 1).then_some(300);
        let found = simulate(3, &silent, &phases(500, 4000));
        assert_eq!((found.hops.len(), found.reached), (4, true));
        assert!(found.hops[1].addresses.is_empty() && found.hops[1].idle.asked > 0, "{found:?}");
        let dark = simulate(20, &|hop, _| (hop < 3).then_some(300), &phases(500, 2000));
        assert_eq!((dark.hops.len(), dark.reached), (3, false));
        assert_eq!(simulate(3, &|_, _| None, &phases(500, 2000)), ProbedPath::default());
    }

    #[test]
    fn a_loop_of_routes_and_a_long_test_are_bounded() {
        let found = simulate(MOST_HOPS + 5, &|_, _| Some(100), &phases(0, 300_000));
        assert_eq!((found.hops.len(), found.reached), (MOST_HOPS, false));
        assert!(found.hops.iter().all(|hop| (100..=MOST_TRIPS).contains(&hop.loaded.us.len())), "{found:?}");
    }

    #[test]
    fn a_path_that_changes_has_the_addresses_of_both_and_one_that_quotes_nothing_is_matched_alone() {
        let schedule = Schedule::new(0, 2_000 * MS, &phases(0, 5000));
        let mut prober = Prober::new(0, schedule);
        for (from, at_ns) in [(router(1), 0), (router(2), 500 * MS)] {
            // One hop is all that there is.
            prober.found_ns = u64::MAX;
            let (hops, state) = prober.due(at_ns).unwrap();
            assert_eq!((hops, state), (0..1, State::Idle));
            prober.sent(0, state, at_ns, 7);
            let answer = Answer { number: None, from, reached: false, wall_ns: 1_000_007 };
            prober.answered(answer, at_ns + 3 * MS);
            // Its probe was never sent.
            prober.answered(Answer { number: Some(77), ..answer }, at_ns + 3 * MS);
        }
        // A clock that was set back: what the monotonic one says at most.
        prober.found_ns = u64::MAX;
        let (_, state) = prober.due(1_000 * MS).unwrap();
        prober.sent(0, state, 1_000 * MS, 5_000_000);
        prober.answered(Answer { number: None, from: router(1), reached: false, wall_ns: 0 }, 1_004 * MS);
        let path = prober.path();
        assert_eq!(path.hops[0].addresses, [router(1), router(2)]);
        assert_eq!(path.hops[0].idle.us, [Some(1000), Some(1000), Some(4000)]);
    }
}
