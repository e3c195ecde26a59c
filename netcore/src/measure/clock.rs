//! The two clocks: monotonic for everything that is measured, wall for what is shown. Two more tell what happens to these.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::report::ClockReading;

/// Nanoseconds of `CLOCK_MONOTONIC`. Only differences have a meaning, on one host.
pub fn monotonic_ns() -> u64 {
    now(ClockId::CLOCK_MONOTONIC).cast_unsigned()
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
    let raw_ns = now(ClockId::CLOCK_MONOTONIC_RAW).cast_unsigned();
    let boot_ns = now(ClockId::CLOCK_BOOTTIME).cast_unsigned();
    let wall_ns = wall_ns();
    ClockReading {
        monotonic_ns,
        raw_ns,
        boot_ns,
        wall_ns,
        within_ns: self::monotonic_ns().saturating_sub(monotonic_ns),
    }
}

/// A duration in nanoseconds; the longest that fits where it is longer.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn now(clock: ClockId) -> i64 {
    // These clocks exist on every Linux, so the call cannot fail.
    let time = clock_gettime(clock).expect("the system clock can be read");
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

    #[test]
    fn time_goes_on() {
        let (monotonic, wall) = (monotonic_ns(), wall_ns());
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() - monotonic >= 2_000_000);
        assert!(wall_ns() > wall);
    }
}
