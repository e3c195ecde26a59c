//! When cycles start: pure, from the clocks that its caller reads.

use std::time::Duration;

/// Both clocks at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970. It may jump.
    pub wall_ms: i64,
    /// Of a clock that only goes forward.
    pub steady: Duration,
}

/// The schedule of starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// At the multiples of this period since 1970.
    Every(Duration),
    /// At these minutes of each local day.
    At(Vec<u32>),
}

/// Local time: a number that grows from day to day, and the minute of the day.
pub type Zone = fn(i64) -> Option<(i64, u32)>;

/// A difference between the clocks that is a jump of the wall clock, and no adjustment or delay between two readings.
const JUMP_MS: i64 = 2000;

/// Longest repetition of local time that is looked for: clocks go back by an hour, in a few places by less or more.
const REPEATED_MINUTES: i64 = 180;

/// The answer to the question whether to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Not before this time.
    Wait(Duration),
    Start,
    /// The wall clock has jumped by so many milliseconds. The next start is that of the new time.
    Jumped(i64),
}

#[derive(Clone, Debug)]
pub struct Starts {
    when: When,
    /// Later than the schedule says, as others are by other amounts.
    offset_ms: i64,
    zone: Zone,
    due_ms: i64,
    last: Now,
    /// Starts that were skipped since [`Starts::take_missed`].
    missed: u64,
}

impl Starts {
    /// `spread`: starts are later by a part of it, which follows from the names.
    pub fn new(when: When, spread: Duration, names: [&str; 2], zone: Zone, now: Now) -> Self {
        let spread_ms = millis(spread);
        let offset_ms = if spread_ms == 0 { 0 } else { i64::from(hash(&names.join("\x1f"))) % spread_ms };
        let mut starts = Self { when, offset_ms, zone, due_ms: 0, last: now, missed: 0 };
        starts.due_ms = starts.after(now.wall_ms);
        starts
    }

    /// Whether a cycle is to start. A start that falls into a cycle is skipped and counted.
    pub fn tick(&mut self, now: Now, is_busy: bool) -> Tick {
        let steady = millis(now.steady.saturating_sub(self.last.steady));
        let jump = now.wall_ms - self.last.wall_ms - steady;
        self.last = now;
        if jump.abs() > JUMP_MS {
            self.due_ms = self.after(now.wall_ms);
            return Tick::Jumped(jump);
        }
        let mut passed = 0;
        while self.due_ms <= now.wall_ms {
            passed += 1;
            self.due_ms = self.after(self.due_ms);
        }
        let starts = passed > 0 && !is_busy;
        self.missed += passed - u64::from(starts);
        if starts { Tick::Start } else { Tick::Wait(Duration::from_millis((self.due_ms - now.wall_ms).unsigned_abs())) }
    }

    /// The next start, milliseconds since 1970.
    pub fn due_ms(&self) -> i64 {
        self.due_ms
    }

    /// The number of skipped starts, which begins anew.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// The first start after a moment.
    pub fn after(&self, wall_ms: i64) -> i64 {
        let before = wall_ms - self.offset_ms;
        let due = match &self.when {
            When::Every(period) => (before.div_euclid(millis(*period)) + 1) * millis(*period),
            When::At(minutes) => {
                let next = |minute: &u32| self.at(before, *minute);
                minutes.iter().filter_map(next).min().unwrap_or(i64::MAX / 2)
            }
        };
        due + self.offset_ms
    }

    /// The first moment after another one at which a local day reaches a minute. Where the clock goes forward over the minute,
    /// that is the first one behind the gap; a minute that comes twice counts once.
    fn at(&self, after_ms: i64, minute: u32) -> Option<i64> {
        let first = after_ms.div_euclid(60_000) + 1;
        let local = |number: i64| (self.zone)(number * 60);
        let is_reached = |number: i64| {
            let Some((day, _)) = local(number).filter(|(_, now)| *now >= minute) else { return false };
            !(1..=REPEATED_MINUTES).any(|back| local(number - back).is_some_and(|(d, m)| d == day && m >= minute))
        };
        // A day of 25 hours, and one on which the minute is missing at its end.
        (first..first + 51 * 60).find(|number| is_reached(*number)).map(|number| number * 60_000)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}

/// FNV-1a, 32 bits.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// `02:00` as a minute of the day.
pub fn minute(text: &str) -> Result<u32, String> {
    let parts = text.split_once(':').filter(|(hour, minute)| hour.len() <= 2 && minute.len() == 2);
    let parts = parts.and_then(|(hour, minute)| Some((hour.parse::<u32>().ok()?, minute.parse::<u32>().ok()?)));
    match parts {
        Some((hour, minute)) if hour < 24 && minute < 60 => Ok(hour * 60 + minute),
        _ => Err(format!("`{text}` is no time of the day: write 02:00")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Local time of central Europe in 2026: an hour ahead of UTC, two from 29 March 01:00 to 25 October 01:00 UTC.
    fn berlin(unix_s: i64) -> Option<(i64, u32)> {
        let summer = (1_774_746_000..1_792_890_000).contains(&unix_s);
        let local = unix_s + if summer { 7200 } else { 3600 };
        Some((local.div_euclid(86_400), u32::try_from(local.rem_euclid(86_400) / 60).ok()?))
    }

    fn now(wall_ms: i64, steady_ms: i64) -> Now {
        Now { wall_ms, steady: Duration::from_millis(steady_ms.unsigned_abs()) }
    }

    fn every(seconds: u64, spread: u64, host: &str) -> Starts {
        let when = When::Every(Duration::from_secs(seconds));
        Starts::new(when, Duration::from_secs(spread), ["p", host], berlin, now(0, 0))
    }

    fn daily(minute: u32, from_ms: i64) -> Starts {
        Starts::new(When::At(vec![minute]), Duration::ZERO, ["p", "a"], berlin, now(from_ms, 0))
    }

    /// The starts of so many days: UTC hours since `from_s`.
    fn hours(minute: u32, from_s: i64, count: usize) -> Vec<i64> {
        let starts = daily(minute, from_s * 1000);
        let all = std::iter::successors(Some(starts.due_ms()), |due| Some(starts.after(*due)));
        all.take(count).map(|due| (due - from_s * 1000) * 2 / HOUR).collect()
    }

    #[test]
    fn a_time_of_the_day_that_the_clock_skips_is_the_first_after_the_gap() {
        // 27 March 2026, 23:00 UTC, is local midnight. At 02:00 on the 29th the clock goes to 03:00. In half hours:
        let from = 1_774_652_400 - 86_400;
        assert_eq!(hours(150, from, 4), [5, 53, 100, 147], "02:30, 02:30, 03:00, 02:30 of a day an hour earlier");
        assert_eq!(hours(60, from, 4), [2, 50, 98, 144]);
    }

    #[test]
    fn a_time_of_the_day_that_comes_twice_starts_once() {
        // 23 October 2026, 22:00 UTC, is local midnight. At 03:00 on the 25th the clock goes back to 02:00.
        let from = 1_792_792_800;
        assert_eq!(hours(150, from, 4), [5, 53, 103, 151]);
        assert_eq!(hours(0, from - 1, 3), [0, 48, 98]);
    }

    #[test]
    fn hosts_with_one_unit_file_start_at_different_times() {
        let mut dues: Vec<i64> = (0..60).map(|host| every(600, 600, &format!("host{host}")).due_ms()).collect();
        assert_eq!(every(600, 600, "host7").due_ms(), every(600, 600, "host7").due_ms(), "a restart changes nothing");
        assert!(dues.iter().all(|due| (1..=600_000).contains(due)), "{dues:?}");
        dues.sort_unstable();
        dues.dedup();
        assert!(dues.len() == 60 && dues[59] - dues[0] > 500_000, "{dues:?}");
        assert_eq!(every(600, 0, "host7").due_ms(), 600_000);
    }

    #[test]
    fn a_start_within_a_cycle_is_skipped_and_counted() {
        let mut starts = every(10, 0, "a");
        assert_eq!(starts.tick(now(9_000, 9_000), false), Tick::Wait(Duration::from_secs(1)));
        assert_eq!(starts.tick(now(10_000, 10_000), false), Tick::Start);
        for second in 11..=34 {
            assert!(matches!(starts.tick(now(second * 1000, second * 1000), true), Tick::Wait(_)));
        }
        assert_eq!(starts.tick(now(35_000, 35_000), false), Tick::Wait(Duration::from_secs(5)), "nothing piled up");
        assert_eq!((starts.take_missed(), starts.take_missed()), (2, 0));
        // A process that stood still.
        assert_eq!(starts.tick(now(95_000, 95_000), false), Tick::Start);
        assert_eq!(starts.take_missed(), 5);
    }

    #[test]
    fn a_clock_that_jumps_delays_no_start_and_makes_none_up() {
        let mut starts = every(10, 0, "a");
        assert_eq!(starts.tick(now(10_000, 10_000), false), Tick::Start);
        assert_eq!(starts.tick(now(-HOUR + 11_000, 11_000), false), Tick::Jumped(-HOUR));
        assert_eq!(starts.tick(now(-HOUR + 12_000, 12_000), false), Tick::Wait(Duration::from_secs(8)));
        assert_eq!(starts.tick(now(-HOUR + 20_000, 20_000), false), Tick::Start);
        assert_eq!(starts.tick(now(100 * HOUR, 21_000), false), Tick::Jumped(101 * HOUR - 21_000));
        assert_eq!((starts.tick(now(100 * HOUR + 10_000, 31_000), false), starts.take_missed()), (Tick::Start, 0));
    }

    /// Thousands of compressed cycles with a clock that jumps every so often: each start is a cycle or is counted.
    #[test]
    fn every_start_of_thousands_is_a_cycle_or_is_counted() {
        let mut starts = every(10, 10, "a");
        let (mut shift, mut cycles, mut missed, mut jumps, mut busy_until) = (0, 0, 0, 0, 0);
        for second in 1..=100_000_i64 {
            if second % 7001 == 0 {
                shift += if second % 2 == 0 { -5 * HOUR } else { 3 * HOUR };
            }
            match starts.tick(now(second * 1000 + shift, second * 1000), second < busy_until) {
                Tick::Start => {
                    cycles += 1;
                    missed += starts.take_missed();
                    // Every fifth cycle is longer than the period.
                    busy_until = second + if cycles % 5 == 0 { 25 } else { 4 };
                }
                Tick::Jumped(_) => jumps += 1,
                Tick::Wait(left) => assert!(left <= Duration::from_secs(10)),
            }
        }
        assert_eq!(jumps, 14);
        let all = cycles + missed + starts.take_missed();
        assert!((10_000 - 2 * jumps..=10_000 + jumps).contains(&all), "{cycles} + {missed}");
    }

    #[test]
    fn times_of_the_day_are_written_with_a_colon() {
        assert_eq!((minute("02:00"), minute("2:05"), minute("23:59")), (Ok(120), Ok(125), Ok(1439)));
        for wrong in ["24:00", "2", "02:60", "2:5", "", "a:00", "-1:00"] {
            assert!(minute(wrong).unwrap_err().contains("write 02:00"), "{wrong}");
        }
    }
}
