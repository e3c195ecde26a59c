//! Estimated lengths.

use std::{fmt, time::Duration};

use analyze::stats::series;
use netcore::spec::{Stop, TestSpec};

/// An estimated length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// If every case is confident at once.
    pub least: Duration,
    /// If every case goes to its maximum.
    pub most: Duration,
    /// Whether part of it is assumed: a count of bytes or transactions has no length.
    pub open: bool,
}

/// `about 18 s`, or `18 s to 3 min` where confidence decides.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "about {}", span(self.least))?;
        } else {
            write!(f, "{} to {}", span(self.least), span(self.most))?;
        }
        if self.open { f.write_str(" (with an assumed length for what stops by a count)") } else { Ok(()) }
    }
}

/// Assumed length of a program and of a test that stops by a count.
pub(super) const ASSUMED: Duration = Duration::from_secs(1);

/// The shortest and the longest length of a test's three phases.
pub(super) fn planned(spec: &TestSpec) -> Estimate {
    let phases = &spec.phases;
    let length = measure_length(spec);
    let counted = length.unwrap_or(ASSUMED).saturating_add(Duration::from_nanos(phases.cooldown_ns));
    let counted = counted.saturating_add(spec.idle());
    let longest = Duration::from_nanos(phases.warmup_ns);
    // A warm-up that ends by itself needs that many readings to be judged.
    let shortest = match phases.settle_ns {
        0 => longest,
        settle_ns => longest.min(Duration::from_nanos(settle_ns.saturating_mul(series::SETTLED_FROM as u64))),
    };
    let (least, most) = (shortest.saturating_add(counted), longest.saturating_add(counted));
    Estimate { least, most, open: length.is_none() }
}

/// The length of the measure phase; `None`: it stops by a count.
pub fn measure_length(spec: &TestSpec) -> Option<Duration> {
    match spec.phases.stop {
        Stop::AfterNs(ns) => Some(Duration::from_nanos(ns)),
        Stop::AfterBytes(_) | Stop::AfterTransactions(_) => None,
    }
}

/// A duration for people: `7 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(time: Duration) -> String {
    let s = u64::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX);
    match s {
        0..=119 => format!("{s} s"),
        120..=3599 if s.is_multiple_of(60) => format!("{} min", s / 60),
        120..=3599 => format!("{} min {} s", s / 60, s % 60),
        _ if s.is_multiple_of(3600) => format!("{} h", s / 3600),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use netcore::spec::{
        Pattern, Transport,
        ranks::{Class, Kernel, RanksSpec, Work},
    };

    use super::*;
    use crate::plan::{case::Endpoint, job::RanksJob};

    #[test]
    fn an_iteration_is_as_long_as_its_phases() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        spec.phases.warmup_ns = 1_000_000_000;
        spec.phases.cooldown_ns = 500_000_000;
        assert_eq!(planned(&spec).most, Duration::from_millis(11_500));
    }

    #[test]
    fn a_kernel_is_as_long_as_its_operations() {
        let spec = RanksSpec::new(Transport::Tcp, Work::Nas { kernel: Kernel::Ep, class: Class::B });
        let job = RanksJob { spec, ends: vec![Endpoint::Embedded; 2] };
        // 2^31 random numbers by two ranks.
        assert_eq!(job.length().most.as_secs(), (1 << 31) / 2 / 25_000_000);
    }

    #[test]
    fn spans_are_rounded_up() {
        assert_eq!(span(Duration::from_millis(6100)), "7 s");
        assert_eq!(span(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(span(Duration::from_mins(10)), "10 min");
        assert_eq!(span(Duration::from_mins(125)), "2 h 5 min");
        assert_eq!(span(Duration::from_hours(1)), "1 h");
    }
}
