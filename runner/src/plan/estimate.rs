//! How long a plan takes.

use std::{fmt, time::Duration};

use analyze::stats::series;
use netcore::spec::Stop;

use super::case::{Case, Job, Plan};

/// How long a plan takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// If every case is confident at once.
    pub least: Duration,
    /// If every case goes to its maximum.
    pub most: Duration,
    /// Whether some case stops by a count, so that nobody can know: a second is assumed.
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
        if self.open { f.write_str(" (a second is assumed for what stops by a count)") } else { Ok(()) }
    }
}

/// What an iteration costs beyond its phases: setting up and collecting results.
const OVERHEAD: Duration = Duration::from_millis(100);

impl Case {
    /// How long it takes.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let (mut once, mut settled, mut open) = (Duration::ZERO, Duration::ZERO, false);
        for member in &self.members {
            let length = match &member.job {
                Job::Traffic(spec) => {
                    let p = &spec.phases;
                    let measured = match p.stop {
                        Stop::AfterNs(ns) => Duration::from_nanos(ns),
                        Stop::AfterBytes(_) | Stop::AfterTransactions(_) => {
                            open = true;
                            Duration::from_secs(1)
                        }
                    };
                    let counted = measured + Duration::from_nanos(p.cooldown_ns);
                    let longest = Duration::from_nanos(p.warmup_ns);
                    // A warm-up that ends by itself lasts as long as it takes to see that it may.
                    let shortest = match p.settle_ns {
                        0 => longest,
                        settle_ns => longest.min(Duration::from_nanos(settle_ns * series::SETTLED_FROM as u64)),
                    };
                    (shortest + counted, longest + counted)
                }
                Job::Command(_) => {
                    open = true;
                    (Duration::from_secs(1), Duration::from_secs(1))
                }
            };
            settled = settled.max(length.0);
            once = once.max(length.1);
        }
        if self.skip.is_some() {
            return Estimate::default();
        }
        let around = self.pause + OVERHEAD;
        let (min, max) = match &self.find {
            Some(find) => (1, find.max_probes),
            None => self.iterations.bounds(),
        };
        Estimate { least: (settled + around).saturating_mul(min), most: (once + around).saturating_mul(max), open }
    }
}

impl Plan {
    /// How long it takes.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.cases.iter().map(Case::estimate).fold(Estimate::default(), |a, b| Estimate {
            least: a.least + b.least,
            most: a.most + b.most,
            open: a.open || b.open,
        })
    }
}

/// A length of time in the words of a clock: `7 s`, `3 min 20 s`, `2 h 5 min`.
#[must_use]
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
    use super::*;

    #[test]
    fn spans_are_rounded_up() {
        assert_eq!(span(Duration::from_millis(6100)), "7 s");
        assert_eq!(span(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(span(Duration::from_mins(10)), "10 min");
        assert_eq!(span(Duration::from_mins(125)), "2 h 5 min");
        assert_eq!(span(Duration::from_hours(1)), "1 h");
    }
}
