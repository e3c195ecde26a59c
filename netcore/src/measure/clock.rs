//! The two clocks: monotonic for everything that is measured, wall for what is shown. Two more tell what happens to these.

use std::time::Duration;

use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};

use crate::report::{ClockReading, SLEWED_AT_MOST};

/// Nanoseconds of `CLOCK_MONOTONIC`. Only differences have a meaning, on one host.
pub fn monotonic_ns() -> u64 {
    now(ClockId::CLOCK_MONOTONIC).cast_unsigned()
}

/// Nanoseconds of `CLOCK_MONOTONIC_RAW`, which no program slews.
pub fn raw_ns() -> u64 {
    now(ClockId::CLOCK_MONOTONIC_RAW).cast_unsigned()
}

/// CPU time of the calling thread, nanoseconds. A system call, unlike the other clocks.
pub fn thread_ns() -> u64 {
    now(ClockId::CLOCK_THREAD_CPUTIME_ID).cast_unsigned()
}

/// CPU time of this process so far, nanoseconds.
pub fn process_ns() -> u64 {
    now(ClockId::CLOCK_PROCESS_CPUTIME_ID).cast_unsigned()
}

/// Nanoseconds since the Unix epoch.
pub fn wall_ns() -> i64 {
    now(ClockId::CLOCK_REALTIME)
}

/// All clocks at one instant, from the closest of several tries: the thread may lose its CPU between two readings. Takes
/// less than a microsecond, unless that happens.
pub fn reading() -> ClockReading {
    /// A first try that finds the clocks' code out of the cache takes longer.
    const CLOSE_NS: u64 = 1_000;
    const TRIES: usize = 8;
    let mut closest = read_once();
    for _ in 1..TRIES {
        if closest.within_ns <= CLOSE_NS {
            break;
        }
        let again = read_once();
        if again.within_ns < closest.within_ns {
            closest = again;
        }
    }
    closest
}

fn read_once() -> ClockReading {
    let monotonic_ns = monotonic_ns();
    let raw_ns = raw_ns();
    let boot_ns = now(ClockId::CLOCK_BOOTTIME).cast_unsigned();
    let wall_ns = wall_ns();
    ClockReading {
        monotonic_ns,
        raw_ns,
        boot_ns,
        wall_ns,
        within_ns: self::monotonic_ns().saturating_sub(monotonic_ns),
        wall_error_ns: None,
    }
}

/// Puts the kernel's times of packets, which are those of the wall clock, on `CLOCK_MONOTONIC_RAW`.
///
/// The wall clock is ahead of `CLOCK_MONOTONIC` by a constant until somebody sets it. Each reading bounds that constant, and all
/// of them together know it to tens of nanoseconds; one that contradicts the others shows that the clock was set.
#[derive(Debug)]
pub struct ArrivalClock {
    /// Least and largest value of the constant.
    ahead: (i64, i64),
    /// The monotonic and the raw clock at the last reading.
    last: (u64, u64),
}

impl Default for ArrivalClock {
    fn default() -> Self {
        let mut clock = Self { ahead: (i64::MIN, i64::MAX), last: (monotonic_ns(), raw_ns()) };
        for _ in 0..100 {
            clock.arrival(None);
        }
        clock
    }
}

impl ArrivalClock {
    /// The latest instant at which a packet with this time, which has just been received, can have arrived. Without one, or if
    /// the clock has been set, that is now. Also whether the kernel's time was used.
    pub fn arrival(&mut self, stamp_ns: Option<i64>) -> (u64, bool) {
        let (before, wall, raw, after) = (monotonic_ns(), wall_ns(), raw_ns(), monotonic_ns());
        self.read(stamp_ns, (before, after), wall, raw)
    }

    fn read(&mut self, stamp_ns: Option<i64>, monotonic: (u64, u64), wall: i64, raw: u64) -> (u64, bool) {
        let (low, high) = (wall - monotonic.1.cast_signed(), wall - monotonic.0.cast_signed());
        let (most_low, least_high) = (self.ahead.0.max(low), self.ahead.1.min(high));
        let was_set = most_low > least_high;
        self.ahead = if was_set { (low, high) } else { (most_low, least_high) };
        let (last_ns, last_raw) = std::mem::replace(&mut self.last, (monotonic.0, raw));
        let arrived = stamp_ns.filter(|_| !was_set).map(|stamp| stamp.saturating_sub(self.ahead.0));
        let age = arrived.and_then(|arrived| u64::try_from(monotonic.0.cast_signed().saturating_sub(arrived)).ok());
        let Some(age) = age else { return (raw, false) };
        // The clock may be slewed meanwhile: by all of what it was since the last reading.
        let passed = monotonic.0.saturating_sub(last_ns);
        let slewed = if age <= passed { passed.abs_diff(raw.saturating_sub(last_raw)) } else { u64::MAX };
        (raw.saturating_sub(age - slewed.min(age.div_ceil(SLEWED_AT_MOST))), true)
    }
}

/// A duration in nanoseconds; the longest that fits where it is longer.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn now(clock: ClockId) -> i64 {
    // These clocks exist on every Linux, so the call cannot fail.
    in_ns(&clock_gettime(clock).expect("the system clock can be read"))
}

/// The kernel's form of a time, in nanoseconds.
pub fn in_ns(time: &TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_together() {
        let (before, after) = (reading(), reading());
        let change = after.since(&before);
        assert!(after.monotonic_ns >= before.monotonic_ns && after.raw_ns >= before.raw_ns);
        // A machine that is set, slewed or suspended in these microseconds would be a coincidence.
        assert!(change.slewed_ns.unsigned_abs() <= change.within_ns + 1_000_000, "{change:?}");
        assert!(change.suspended_ns.unsigned_abs() <= change.within_ns + 1_000_000, "{change:?}");
        assert!(change.stepped_ns.unsigned_abs() <= 2 * change.within_ns + 1_000_000, "{change:?}");
    }

    /// Packets that were stamped 20 µs before they are read, while the wall clock is set by a second, and while it is slewed.
    #[test]
    fn packets_arrive_before_they_are_read_and_never_too_early() {
        let mut clock = ArrivalClock { ahead: (i64::MIN, i64::MAX), last: (0, 0) };
        let (mut raw, mut monotonic, mut wall) = (1_000_000_000, 2_000_000_000, 9_000_000_000);
        for number in 0..2_000u64 {
            let slewed = if number > 1_000 { 500 } else { 0 };
            (raw, monotonic, wall) = (raw + 1_000_000, monotonic + 1_000_000 + slewed, wall + 1_000_000 + slewed);
            let was_set = number == 500;
            wall += u64::from(was_set) * 1_000_000_000;
            // A lost CPU between two readings.
            let late = if number % 7 == 1 { 300_000 } else { 40 };
            let stamp = i64::try_from(wall - 20_000).unwrap();
            let read = clock.read(Some(stamp), (monotonic - 20, monotonic + late), wall.cast_signed(), raw);
            let truth = raw - 20_000;
            assert_eq!(read.1, !was_set, "{number}");
            // Nothing is known of the rate before the first reading.
            let unknown = if number == 0 { 20_000_u64.div_ceil(9) } else { slewed };
            let latest = if was_set { raw } else { truth + 60 + unknown };
            assert!((truth..=latest).contains(&read.0), "{number}: {} {truth}", read.0);
        }
    }

    #[test]
    fn time_goes_on() {
        let (monotonic, wall) = (monotonic_ns(), wall_ns());
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() - monotonic >= 2_000_000);
        assert!(wall_ns() > wall);
    }
}
