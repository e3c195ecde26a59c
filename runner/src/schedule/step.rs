//! What the schedule knows of a case: its members, how often it runs, and what it is called in the results.

use std::time::Duration;

use netcore::spec::{Stop, TestSpec};
use schemas::{assertion::Assertion, columns::Row};

use super::confidence::Policy;
use crate::plan::{
    case::{Endpoint, Find, Job},
    model::Hooks,
};

/// One case, ready to be run again and again.
#[derive(Clone, Debug)]
pub struct Step {
    /// The case's name: `bulk[streams=4]`.
    pub name: String,
    /// The tests that run at the same time; one without a name where the case is no group.
    pub members: Vec<Member>,
    /// How often it runs.
    pub policy: Policy,
    /// Idle time before each iteration.
    pub pause: Duration,
    /// Longest time of an iteration beyond its planned length.
    pub grace: Duration,
    /// Why it is not run at all, where the plan says so.
    pub skip: Option<String>,
    /// How the members belong together, where there are several.
    pub group: Option<Group>,
    /// What it searches: its iterations are probes then, and its own rows are those of the answer.
    pub search: Option<Find>,
    /// When the rest of its line is skipped.
    pub stop: Option<StopLine>,
    /// Programs around its iterations.
    pub hooks: Hooks,
}

/// The place of a case on an axis that is left once something holds.
#[derive(Clone, Debug)]
pub struct StopLine {
    /// What ends the line.
    pub that: Assertion,
    /// The first step of the line: the cases that differ from it on that axis alone, in the order of the plan. They are
    /// run one after the other, since whether one is to run is known when the one before it has ended.
    pub first: usize,
}

/// How the members of a group belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// The largest start skew that counts.
    pub max_skew: Duration,
    /// Whether each member counts over its own window instead of the common one.
    pub own_windows: bool,
}

/// One test of a step.
#[derive(Clone, Debug)]
pub struct Member {
    /// The cells that every row of it shares: identity, place, what was asked for.
    pub identity: Row,
    /// What it does.
    pub job: Job,
    /// Where the connections are opened.
    pub from: Endpoint,
    /// Where they are accepted.
    pub to: Endpoint,
    /// Whether the plan asked for intervals; the display may take some of its own.
    pub intervals: bool,
}

impl Member {
    /// The test, where it is traffic.
    #[must_use]
    pub fn spec(&self) -> Option<&TestSpec> {
        self.job.spec()
    }
}

impl Step {
    /// How long one iteration takes by plan, without the pause; a count of bytes or transactions is taken for a second.
    #[must_use]
    pub fn planned(&self) -> Duration {
        self.members.iter().filter_map(Member::spec).map(planned).max().unwrap_or_default()
    }

    /// What one iteration costs in all, by estimate: what the plan says and about 50 ms for getting ready.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.pause + self.planned() + Duration::from_millis(50)
    }
}

/// The length of a test's three phases by plan.
#[must_use]
pub fn planned(spec: &TestSpec) -> Duration {
    let measure = measure_length(spec).unwrap_or(Duration::from_secs(1));
    Duration::from_nanos(spec.phases.warmup_ns) + measure + Duration::from_nanos(spec.phases.cooldown_ns)
}

/// The length of the measure phase where it is a length.
#[must_use]
pub fn measure_length(spec: &TestSpec) -> Option<Duration> {
    match spec.phases.stop {
        Stop::AfterNs(ns) => Some(Duration::from_nanos(ns)),
        Stop::AfterBytes(_) | Stop::AfterTransactions(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Pattern, Transport};

    use super::*;

    #[test]
    fn an_iteration_is_as_long_as_its_phases() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        spec.phases.warmup_ns = 1_000_000_000;
        spec.phases.cooldown_ns = 500_000_000;
        assert_eq!(planned(&spec), Duration::from_millis(11_500));
    }
}
