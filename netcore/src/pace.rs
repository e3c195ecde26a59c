//! Due times of sends.
//!
//! Due times are absolute, so a late send does not delay the following ones and the mean rate is exact. A thread sleeps
//! until shortly before a due time and spins the rest. This lead follows the recent lateness of the machine's wake-ups.
//! A thread of several flows sleeps until the due time and does not spin, since other flows may be ready. After a stall
//! at most `catch_up` due times are made up for, back to back; the others are dropped and counted.

use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::{
    io::wait::Sleep,
    measure::clock::monotonic_ns,
    spec::{Arrival, Pace},
};

/// Minimum lead of a sleep's end before a due time, nanoseconds.
const SHORTEST_LEAD_NS: u64 = 20_000;

/// Maximum lead: later wake-ups are stalls of the machine and not its usual lateness.
const LONGEST_LEAD_NS: u64 = 1_000_000;

/// Longest sleep at a time, so that the end of the test is noticed, nanoseconds.
const NAP_NS: u64 = 50_000_000;

/// Decides when a thread may send.
pub trait Pacer {
    /// Waits for the next due time and returns it (nanoseconds of the monotonic clock); `None` if the test ends before.
    fn wait(&mut self, wait: &impl Sleep, is_over: impl Fn() -> bool) -> Option<u64>;

    /// Due times dropped so far.
    fn dropped(&self) -> u64;

    /// Due times of the next messages, oldest first, if they are handed to the kernel in advance.
    #[inline]
    fn ahead(&self) -> Option<&[u64]> {
        None
    }
}

/// Time in advance at which a message is given to a kernel that holds it until it is due, nanoseconds: longer than a
/// thread is late, and short enough for a short queue.
const AHEAD_NS: u64 = 3_000_000;

/// Due times that the kernel keeps: messages are handed over in advance, several at a time.
pub struct Ahead {
    schedule: Schedule,
    next: Vec<u64>,
    most: usize,
}

impl Ahead {
    /// Hands over at most `most` messages at a time.
    pub fn new(pace: &Pace, most: usize) -> Self {
        Self { schedule: Schedule::new(pace), next: Vec::with_capacity(most), most }
    }
}

impl Pacer for Ahead {
    fn wait(&mut self, wait: &impl Sleep, is_over: impl Fn() -> bool) -> Option<u64> {
        self.schedule.drop_missed(monotonic_ns());
        let first = self.schedule.next_due();
        if !self.schedule.wait_until(first.saturating_sub(AHEAD_NS), wait, is_over) {
            return None;
        }
        self.next.clear();
        let until = monotonic_ns() + AHEAD_NS;
        while self.next.is_empty() || (self.next.len() < self.most && self.schedule.next_due() <= until) {
            self.next.push(self.schedule.next_due());
            self.schedule.advance();
        }
        Some(first)
    }

    fn dropped(&self) -> u64 {
        self.schedule.dropped()
    }

    fn ahead(&self) -> Option<&[u64]> {
        Some(&self.next)
    }
}

/// No pacing.
pub struct Unpaced;

impl Pacer for Unpaced {
    #[inline]
    fn wait(&mut self, _wait: &impl Sleep, _is_over: impl Fn() -> bool) -> Option<u64> {
        Some(0)
    }

    #[inline]
    fn dropped(&self) -> u64 {
        0
    }
}

/// Absolute due times.
pub struct Schedule {
    /// Origin of the schedule; moved when due times are dropped.
    origin_ns: f64,
    /// Mean gap between due times.
    gap_ns: f64,
    /// Next due time, relative to the origin.
    next_ns: f64,
    /// Uniform arrivals: number of due times since the origin, so that rounding errors do not add up.
    count: u64,
    random: Option<ChaCha8Rng>,
    catch_up: u32,
    dropped: u64,
    lead_ns: u64,
}

impl Schedule {
    pub fn new(pace: &Pace) -> Self {
        // Each flow of each iteration draws its own arrivals: flows that had the same ones would send at the same instants, and
        // iterations would repeat the error of one draw.
        let seed = || getrandom::u64().unwrap_or_else(|_| monotonic_ns());
        let random = (pace.arrival == Arrival::Poisson).then(|| ChaCha8Rng::seed_from_u64(seed()));
        Self {
            origin_ns: monotonic_ns() as f64,
            gap_ns: 1e9 * f64::from(pace.burst.max(1)) / pace.events_per_s,
            next_ns: 0.0,
            count: 0,
            random,
            catch_up: pace.catch_up,
            dropped: 0,
            lead_ns: 60_000,
        }
    }

    /// The next due time, without waiting for it.
    pub fn next_due(&self) -> u64 {
        // Positive, and below 2^63 for the next 290 years.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let due = (self.origin_ns + self.next_ns) as u64;
        due
    }

    /// Advances to the next due time.
    pub fn advance(&mut self) {
        if let Some(random) = &mut self.random {
            // The gaps of a Poisson process are exponentially distributed; 1 − u is never 0.
            let uniform: f64 = random.random();
            self.next_ns -= (1.0 - uniform).ln() * self.gap_ns;
        } else {
            self.count += 1;
            self.next_ns = self.count as f64 * self.gap_ns;
        }
    }

    /// Drops due times that are too old to be made up for.
    pub fn drop_missed(&mut self, now_ns: u64) {
        self.drop_whole(self.gaps_behind(now_ns) - f64::from(self.catch_up));
    }

    /// Drops all due times before an instant.
    pub fn skip_to(&mut self, now_ns: u64) {
        self.drop_whole(self.gaps_behind(now_ns).ceil());
    }

    fn gaps_behind(&self, now_ns: u64) -> f64 {
        (now_ns as f64 - (self.origin_ns + self.next_ns)) / self.gap_ns
    }

    /// Drops as many due times as there are whole gaps.
    fn drop_whole(&mut self, gaps: f64) {
        if gaps >= 1.0 {
            // A stall long enough to overflow would outlast any test.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let whole = gaps as u64;
            self.dropped += whole;
            self.origin_ns += whole as f64 * self.gap_ns;
        }
    }

    /// Waits for an instant; `false`: the test has ended.
    pub fn wait_until<W: Sleep>(&mut self, due_ns: u64, wait: &W, is_over: impl Fn() -> bool) -> bool {
        loop {
            let now = monotonic_ns();
            if now >= due_ns {
                return true;
            }
            let left = due_ns - now;
            let lead_ns = if W::LEADS { self.lead_ns } else { 0 };
            if left > lead_ns {
                let wake = now + (left - lead_ns).min(NAP_NS);
                wait.sleep_until(wake);
                if is_over() {
                    return false;
                }
                self.learn(monotonic_ns().saturating_sub(wake));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Adapts the lead to a wake-up's lateness: up at once, down slowly, so that it settles near the worst of the last
    /// few hundred.
    fn learn(&mut self, late_ns: u64) {
        let wanted = (late_ns + late_ns / 4).clamp(SHORTEST_LEAD_NS, LONGEST_LEAD_NS);
        if wanted > self.lead_ns {
            self.lead_ns = wanted;
        } else {
            self.lead_ns -= (self.lead_ns - wanted) / 256;
        }
    }
}

impl Pacer for Schedule {
    #[inline]
    fn wait(&mut self, wait: &impl Sleep, is_over: impl Fn() -> bool) -> Option<u64> {
        self.drop_missed(monotonic_ns());
        let due = self.next_due();
        if !self.wait_until(due, wait, is_over) {
            return None;
        }
        self.advance();
        Some(due)
    }

    #[inline]
    fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{io::wait::Block, spec::PaceMode};

    fn pace(events_per_s: f64, arrival: Arrival, burst: u32, catch_up: u32) -> Pace {
        Pace { events_per_s, mode: PaceMode::User, arrival, burst, catch_up }
    }

    #[test]
    fn due_times_are_absolute_and_even() {
        let mut schedule = Schedule::new(&pace(3.0, Arrival::Uniform, 1, 0));
        let first = schedule.next_due();
        for _ in 0..3_000_000 {
            schedule.advance();
        }
        // A million seconds later, to the microsecond: no rounding has added up.
        assert!((schedule.next_due() - first).abs_diff(1_000_000_000_000_000) < 1000);
    }

    #[test]
    fn a_burst_has_one_due_time() {
        let mut schedule = Schedule::new(&pace(1000.0, Arrival::Closed, 10, 0));
        let first = schedule.next_due();
        schedule.advance();
        assert_eq!(schedule.next_due() - first, 10_000_000);
    }

    #[test]
    fn what_is_missed_is_dropped_but_for_the_catch_up() {
        let mut schedule = Schedule::new(&pace(1000.0, Arrival::Uniform, 1, 3));
        let first = schedule.next_due();
        schedule.drop_missed(first + 3_900_000);
        assert_eq!(schedule.dropped(), 0);
        schedule.drop_missed(first + 10_500_000);
        assert_eq!(schedule.dropped(), 7);
        // Still on the grid that it was on.
        assert_eq!(schedule.next_due() - first, 7_000_000);
        schedule.skip_to(first + 9_200_000);
        assert_eq!((schedule.dropped(), schedule.next_due() - first), (10, 10_000_000));
        schedule.skip_to(first + 9_900_000);
        assert_eq!(schedule.dropped(), 10, "none is due yet");
    }

    #[test]
    fn random_gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut schedule = Schedule::new(&pace(1000.0, Arrival::Poisson, 1, 0));
        let mut other = Schedule::new(&pace(1000.0, Arrival::Poisson, 1, 0));
        other.advance();
        let mut before = schedule.next_ns;
        let gaps: Vec<f64> = (0..20_000)
            .map(|_| {
                schedule.advance();
                let gap = schedule.next_ns - before;
                before = schedule.next_ns;
                gap
            })
            .collect();
        assert!((gaps[0] - other.next_ns).abs() > 0.0, "each flow has its own");
        let mean = gaps.iter().sum::<f64>() / 20_000.0;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 20_000.0;
        // Seven standard errors of the mean and of the standard deviation, which is the mean of an exponential distribution.
        assert!((mean / 1e6 - 1.0).abs() < 0.05, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn what_is_handed_over_ahead_keeps_its_due_times() {
        let mut ahead = Ahead::new(&pace(10_000.0, Arrival::Uniform, 1, 0), 4);
        let mut dues = Vec::new();
        for _ in 0..3 {
            let first = ahead.wait(&Block, || false).unwrap();
            let next = ahead.ahead().unwrap();
            assert!((1..=4).contains(&next.len()) && next[0] == first);
            dues.extend_from_slice(next);
        }
        assert_eq!(ahead.dropped(), 0);
        assert!(dues.windows(2).all(|two| (99_000..=101_000).contains(&(two[1] - two[0]))), "{dues:?}");
    }

    #[test]
    fn the_end_of_the_test_ends_the_wait() {
        let mut schedule = Schedule::new(&pace(0.001, Arrival::Uniform, 1, 0));
        assert!(schedule.wait(&Block, || true).is_some(), "the first is due at once");
        assert_eq!(schedule.wait(&Block, || true), None);
    }

    #[test]
    fn the_lead_follows_the_lateness() {
        let mut schedule = Schedule::new(&pace(1.0, Arrival::Uniform, 1, 0));
        schedule.learn(400_000);
        assert_eq!(schedule.lead_ns, 500_000);
        (0..5000).for_each(|_| schedule.learn(10_000));
        assert!(schedule.lead_ns < 25_000, "{}", schedule.lead_ns);
        schedule.learn(1_000_000_000);
        assert_eq!(schedule.lead_ns, LONGEST_LEAD_NS);
    }
}
