//! Whether the ends of an iteration measured at the same time.

use std::time::Duration;

use netcore::{
    client::Outcome,
    report::{Phase, SideReport},
    spec::Stop,
};
use schemas::units::{Unit, human};

use crate::{
    plan::case::Member,
    schedule::{bench::Measured, step::Step},
};

/// Smallest skew that means that a host was paused. A busy machine is often late by some tens of milliseconds: an iteration
/// as short as that gets a warning only.
const PAUSE: Duration = Duration::from_millis(100);

/// An iteration whose ends or members did not measure together.
pub(super) struct Apart {
    pub(super) sentence: String,
    pub(super) skew: Duration,
}

/// The measure phases of a member's two ends.
struct Phases {
    /// Lengths of near and far, nanoseconds.
    lengths: [u64; 2],
    /// Time during which both measured, nanoseconds.
    shared: u64,
    skew: Duration,
}

impl Phases {
    /// `None`: one end alone, or a test that stops by a count, whose ends need not be simultaneous.
    fn of(member: &Member, reports: &Outcome) -> Option<Self> {
        let length =
            |report: &SideReport| report.phases.iter().find(|w| w.phase == Phase::Measure).map(|w| w.elapsed_ns);
        if !matches!(member.spec()?.phases.stop, Stop::AfterNs(_)) {
            return None;
        }
        let starts = [reports.near_start_ns?, reports.far_start_ns?];
        let lengths = [length(&reports.near)?, length(reports.far.as_ref()?)?];
        let ends = [starts[0].saturating_add(lengths[0]), starts[1].saturating_add(lengths[1])];
        Some(Self {
            lengths,
            shared: ends[0].min(ends[1]).saturating_sub(starts[0].max(starts[1])),
            skew: Duration::from_nanos(starts[0].abs_diff(starts[1])),
        })
    }

    fn sentence(&self, member: &Member, how: &str) -> String {
        let seconds = |ns: u64| human(Unit::Seconds, ns as f64 / 1e9);
        format!(
            "`{}` measured for {} and `{}` for {}, beginning {} apart, {how}: a host was paused or is overloaded",
            member.from.name(),
            seconds(self.lengths[0]),
            member.to.name(),
            seconds(self.lengths[1]),
            human(Unit::Seconds, self.skew.as_secs_f64())
        )
    }
}

/// Why an iteration is useless: its ends never measured at the same time, or members of a group started too far apart.
pub(super) fn apart(step: &Step, measured: &Measured) -> Option<Apart> {
    for (member, reports) in step.members.iter().zip(&measured.members) {
        if let Some(phases) = Phases::of(member, reports).filter(|phases| phases.shared == 0 && phases.skew >= PAUSE) {
            return Some(Apart { sentence: phases.sentence(member, "never at the same time"), skew: phases.skew });
        }
    }
    let (most, skew) = (step.group.as_ref()?.max_skew, measured.start_skew?);
    (skew > most).then(|| Apart {
        sentence: format!(
            "the members started {} apart, more than the {} allowed",
            human(Unit::Seconds, skew.as_secs_f64()),
            human(Unit::Seconds, most.as_secs_f64())
        ),
        skew,
    })
}

/// A warning if the ends measured together for less than half of the time.
pub(super) fn doubt(step: &Step, measured: &Measured) -> Option<String> {
    step.members.iter().zip(&measured.members).find_map(|(member, reports)| {
        let phases = Phases::of(member, reports)?;
        let longer = phases.lengths[0].max(phases.lengths[1]);
        (phases.shared < longer / 2).then(|| phases.sentence(member, "for less than half of it at the same time"))
    })
}
