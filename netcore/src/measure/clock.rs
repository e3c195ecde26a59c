//! The two clocks: monotonic for everything that is measured, wall for what is shown.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`. Only differences have a meaning, on one host.
pub fn monotonic_ns() -> u64 {
    now(ClockId::CLOCK_MONOTONIC).cast_unsigned()
}

/// Nanoseconds since the Unix epoch.
pub fn wall_ns() -> i64 {
    now(ClockId::CLOCK_REALTIME)
}

/// A duration in nanoseconds; the longest that fits where it is longer.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn now(clock: ClockId) -> i64 {
    // Both clocks exist on every Linux, so the call cannot fail.
    let time = clock_gettime(clock).expect("the system clock can be read");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let (monotonic, wall) = (monotonic_ns(), wall_ns());
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() - monotonic >= 2_000_000);
        assert!(wall_ns() > wall);
    }
}
