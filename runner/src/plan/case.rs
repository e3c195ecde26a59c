//! A checked plan, as the schedule runs it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use netcore::{
    measure::clock::nanoseconds,
    spec::{Pace, Stop, TestSpec},
};
use schemas::{
    columns::Row,
    metrics::{self, Family, Metric},
    text::hex,
    vocabulary,
    words::Severity,
};
use sha2::{Digest, Sha256};

pub use super::inventory::Endpoint;
use super::{
    answers::{self, Estimate},
    diagnostics::{Diagnostic, Diagnostics, SourcePlace, Sources, Span},
    job::Job,
    keys::key,
    model::{AssertDetail, Baseline, FindBy, Gate, Hooks, Host, Output, Precondition, Run, Window},
};

/// Time of an iteration beyond its phases: setting up and collecting results.
const OVERHEAD: Duration = Duration::from_millis(100);

/// A checked plan.
#[derive(Debug)]
pub struct Plan {
    /// The path as given, or `<stdin>`.
    pub path: String,
    pub name: String,
    pub description: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The inventory, with `--host` applied.
    pub hosts: BTreeMap<String, Host>,
    /// Preconditions, each with its place.
    pub require: Vec<(Precondition, Span)>,
    pub run: Run,
    /// In the order of the plan.
    pub cases: Vec<Case>,
    /// The tests with `pairs` whose pairs are cases, one for each combination of their swept values.
    pub surveys: Vec<Survey>,
    /// Whether `--only` left cases out: such a run cannot become a baseline.
    pub partial: bool,
    /// Swept keys whose values the other columns do not tell, in the order of their axis columns.
    pub axis_paths: Vec<String>,
    /// An earlier run to compare with, and the place of each comparison.
    pub baseline: Option<(Baseline, Vec<Span>)>,
    pub gate: Gate,
    pub output: Output,
    /// The first is the plan as written.
    pub sources: Sources,
    /// The plan as YAML, with defaults, profiles and `--set` merged into every test.
    pub resolved: String,
    pub warnings: Diagnostics,
}

/// One combination of a test's swept values.
#[derive(Clone, Debug)]
pub struct Case {
    pub test: Arc<str>,
    /// See [`case_id`].
    pub id: String,
    /// `bulk[message_size=65536]`.
    pub name: String,
    /// Swept keys and values as shown (sizes in bytes).
    pub axes: Vec<(Arc<str>, String)>,
    /// One without a name, or the members of a concurrent group.
    pub members: Vec<Member>,
    /// Set where the test is a concurrent group.
    pub group: Option<Group>,
    /// Set where the case is a pair of its test.
    pub round: Option<Round>,
    pub policy: Policy,
    /// The assertions whose `when` holds for this case.
    pub asserts: Vec<Assertion>,
    pub stop_when: Option<StopWhen>,
    pub find: Option<Find>,
    pub hooks: Hooks,
    pub tags: Vec<String>,
    /// The reason to skip it; empty: none given.
    pub skip: Option<String>,
    /// Idle time before each iteration.
    pub pause: Duration,
    /// The longest an iteration may run over its planned length.
    pub grace: Duration,
    /// Place of its `command` in the plan, or of the test.
    pub command_span: Span,
    /// Place of its `hooks` in the plan, or of the test.
    pub hooks_span: Span,
}

/// The pairs of a test, each a case, as one measurement.
#[derive(Clone, Debug)]
pub struct Survey {
    pub test: Arc<str>,
    /// As the names of its cases without their ends.
    pub name: Arc<str>,
    /// The assertions about all pairs together.
    pub asserts: Vec<Assertion>,
}

impl Case {
    /// The members that an assertion is judged for, by number: the named one, or the whole, which in a group has the number after
    /// the last member. A group without a total has each member that measures the metric.
    pub fn judged(&self, detail: &AssertDetail) -> Vec<usize> {
        let of_difference = detail.that.0.difference.as_ref().map(|difference| &difference.member);
        match of_difference.or(detail.member.as_ref()) {
            Some(name) => self.members.iter().position(|m| m.name == *name).into_iter().collect(),
            None => self.measuring(detail.that.0.metric),
        }
    }

    /// The members by number whose metric is that of the case: the whole, else each that measures it.
    pub fn measuring(&self, metric: &Metric) -> Vec<usize> {
        match &self.group {
            None => vec![0],
            Some(group) if group.has_total => vec![self.members.len()],
            Some(_) => {
                let measures = |m: &Member| m.lacks(metric).is_none();
                (0..self.members.len()).filter(|m| measures(&self.members[*m])).collect()
            }
        }
    }

    /// Writes the cells that the plan decides: what a member runs and where, the same in every row.
    pub fn fill(&self, row: &mut Row, member: &Member) {
        row.member = (!member.name.is_empty()).then(|| member.name.clone());
        row.workload = Some(member.workload.clone());
        row.from = Some(member.from.name().to_owned());
        row.wire_bits_per_s = member.wire.map(|speed| speed as f64);
        member.job.fill(row, &member.to);
        // A ping-pong has one size, that of the key which sets it.
        row.message_bytes = row.message_bytes.or(row.request_bytes.filter(|_| member.workload.ends_with("pingpong")));
        // The load of a search is that of its answer; before that it has none.
        match self.find.as_ref().map(|find| find.by) {
            Some(FindBy::Rate) => row.offered_per_s = None,
            Some(FindBy::Inflight) => row.inflight = None,
            None => {}
        }
    }

    pub fn estimate(&self) -> Estimate {
        if self.skip.is_some() {
            return Estimate::default();
        }
        let (min, max) = match &self.find {
            Some(find) => (find.max_probes.min(3), find.max_probes),
            None => (self.policy.min, self.policy.max),
        };
        let once = self.estimate_iteration();
        Estimate { least: once.least.saturating_mul(min), most: once.most.saturating_mul(max), ..once }
    }

    pub fn estimate_iteration(&self) -> Estimate {
        let mut once = Estimate::default();
        for member in &self.members {
            let length = member.job.length();
            once.least = once.least.max(member.after.saturating_add(length.least));
            once.most = once.most.max(member.after.saturating_add(length.most));
            once.open |= length.open;
        }
        let around = self.pause.saturating_add(OVERHEAD);
        Estimate { least: once.least.saturating_add(around), most: once.most.saturating_add(around), ..once }
    }
}

/// The measurements, one after the other: cases without a round, and rounds, whose cases `join` makes one.
pub fn one_after_the_other<'a, T: Copy>(
    cases: impl Iterator<Item = (&'a Case, T)>,
    join: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut alone = Vec::new();
    let mut rounds: BTreeMap<(&str, u32), T> = BTreeMap::new();
    for (case, value) in cases {
        match &case.round {
            None => alone.push(value),
            Some(round) => {
                let joined = rounds.entry((&*round.survey, round.number)).or_insert(value);
                *joined = join(*joined, value);
            }
        }
    }
    alone.extend(rounds.into_values());
    alone
}

/// Whether the column of a swept key has its value in every row of a test's cases. A member of a group may have a value of its
/// own, a workload may have no such value, and a test in both directions has rows of each: such a key takes an axis column.
pub fn is_told(path: &str, cases: &[Case]) -> bool {
    let Some(column) = vocabulary::column_of_key(path) else { return false };
    let mut value_of = HashMap::new();
    cases.iter().all(|case| {
        let Some((_, value)) = case.axes.iter().find(|(key, _)| **key == *path) else { return true };
        let others: Vec<_> = case.axes.iter().filter(|(key, _)| **key != *path).collect();
        case.members.iter().all(|member| {
            let mut row = Row::default();
            case.fill(&mut row, member);
            // The total of a group is about both directions.
            let has_both =
                member.spec().is_some_and(|spec| answers::ways(spec.direction).len() > 1) || case.group.is_some();
            let cell = (member.name.as_str(), others.clone(), row.text(column));
            !(path == key::direction && has_both) && *value_of.entry(cell).or_insert(value) == value
        })
    })
}

impl Survey {
    /// The cases of its pairs.
    pub fn cases<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a Case> {
        plan.cases.iter().filter(|case| case.round.as_ref().is_some_and(|round| round.survey == self.name))
    }
}

/// The round of a survey that a case is measured in. The cases of a round have no host in common, and run at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Round {
    /// Name of the survey.
    pub survey: Arc<str>,
    /// From 1.
    pub number: u32,
    pub of: u32,
}

/// A test of a case; several run at the same time.
#[derive(Clone, Debug)]
pub struct Member {
    /// Empty where the case is not a group.
    pub name: String,
    pub workload: String,
    /// The near end, which opens the connections.
    pub from: Endpoint,
    /// The far end, which accepts them.
    pub to: Endpoint,
    /// Time from the group's start until its load begins.
    pub after: Duration,
    /// Name of the member that measures the same round trip on the idle path.
    pub idle: Option<String>,
    /// Whether a search finds its load: then the plan does not say it.
    pub is_searched: bool,
    pub job: Job,
    /// Its settings as the plan has them.
    pub settings: BTreeMap<String, String>,
    /// Speed of the path, bits per second, if the plan says it.
    pub wire: Option<u64>,
    /// Why the engines cannot run it: an error only if `--only` keeps the case.
    pub refused: Option<Diagnostic>,
}

impl Member {
    /// The test between two ends; `None` for ranks and for a program.
    pub fn spec(&self) -> Option<&TestSpec> {
        self.job.spec()
    }

    /// Planned begin and end of its measure phase after the group's start, nanoseconds; `None`: it stops by a count.
    pub fn measured_ns(&self) -> Option<(u64, u64)> {
        let phases = &self.spec()?.phases;
        let Stop::AfterNs(length) = phases.stop else { return None };
        let begin = nanoseconds(self.after).saturating_add(phases.warmup_ns);
        Some((begin, begin.saturating_add(length)))
    }

    /// Why it cannot deliver a metric; `None`: it can.
    pub fn lacks(&self, metric: &Metric) -> Option<String> {
        if metric.name.starts_with("added_latency.") && self.idle.is_some() {
            return None;
        }
        if metrics::of_survey(metric.name).is_some() {
            let what = "it is a figure of a survey, over all pairs of a test: `assert` in a test with `pairs`";
            return Some(what.to_owned());
        }
        self.job.lacks(metric)
    }

    /// Its main metric: of a probe, its latency or what a load adds to it.
    pub fn headline(&self) -> Option<&'static Metric> {
        if self.spec().is_none() {
            return self.job.headline();
        }
        self.family().headline(|metric| self.lacks(metric).is_none())
    }

    /// The family of its rows.
    pub fn family(&self) -> Family {
        let offered = self.spec().filter(|_| !self.is_searched).and_then(answers::offered);
        Family::of_row([&self.workload, offered.map_or("", |(_, unit)| unit.as_str()), ""])
    }

    /// The ends that the plan names, also those of a program.
    pub fn places(&self) -> Vec<&Endpoint> {
        self.job.places(&self.from, &self.to)
    }

    /// The ends that take part, and whether each has a daemon of ours.
    pub fn ends(&self) -> Vec<(&Endpoint, bool)> {
        self.job.ends(&self.from, &self.to)
    }
}

/// Whether programs for that host run on this machine: in this process's namespace or another one here.
pub fn is_here(host: Option<&Host>) -> bool {
    host.is_none_or(|host| host.netns.is_some() || host.address.as_deref() == Some("local"))
}

/// A concurrent group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The largest start skew that counts.
    pub max_skew: Duration,
    pub window: Window,
    /// Whether all members run at the same time by plan, so that there is a window to sum them over.
    pub has_total: bool,
}

/// Whether tests that start together measure at the same time for a while, by plan.
pub fn overlap(members: &[Member]) -> bool {
    let begin = members.iter().filter_map(Member::measured_ns).map(|(begin, _)| begin).max();
    let end = members.iter().filter_map(Member::measured_ns).map(|(_, end)| end).min();
    begin.zip(end).is_none_or(|(begin, end)| begin < end)
}

/// Iterations of a case: a count, or until confident.
#[derive(Clone, Debug)]
pub struct Policy {
    /// At least this many iterations.
    pub min: u32,
    /// At most this many; equal to `min` for a plain count.
    pub max: u32,
    /// Confidence level, 0 … 1.
    pub level: f64,
    /// The half-width over the mean to be reached; `None`: a plain count.
    pub margin: Option<f64>,
    /// The metrics that must reach it; the first is the headline.
    pub metrics: Vec<&'static Metric>,
}

/// An assertion with its place.
#[derive(Clone, Debug)]
pub struct Assertion {
    pub detail: AssertDetail,
    pub severity: Severity,
    pub place: SourcePlace,
}

/// Skips the rest of an axis once a statement holds.
#[derive(Clone, Debug)]
pub struct StopWhen {
    pub that: schemas::assertion::Assertion,
    pub axis: Arc<str>,
}

/// A search for the highest offered load at which a bound holds.
#[derive(Clone, Debug)]
pub struct Find {
    /// The bounded metric.
    pub metric: &'static Metric,
    /// Upper bound, in the unit of the metric's column.
    pub at_most: Option<f64>,
    /// Lower bound, in the same unit.
    pub at_least: Option<f64>,
    pub by: FindBy,
    /// The lowest load: bits or events per second, or transactions in flight.
    pub from: f64,
    /// The highest load; `None`: the lowest is doubled until the bound fails.
    pub to: Option<f64>,
    /// Whether a rate counts bits, not events.
    pub bits: bool,
    /// Precision of the answer, relative to it.
    pub within: f64,
    pub max_probes: u32,
}

impl Find {
    /// A test with this load. `base` is the plan's test, which has the lowest load.
    pub fn at(&self, base: &TestSpec, load: f64) -> TestSpec {
        let mut spec = base.clone();
        match (self.by, &mut spec.pace) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be a count when read"
            )]
            (FindBy::Inflight, _) => spec.inflight = load as u32,
            (FindBy::Rate, Some(pace)) => {
                let catch_up = |pace: &Pace| Pace::default_catch_up(pace.events_per_s, pace.burst);
                let unsaid = pace.catch_up == catch_up(pace);
                pace.events_per_s *= load / self.from;
                if unsaid {
                    pace.catch_up = catch_up(pace);
                }
            }
            (FindBy::Rate, None) => {}
        }
        spec
    }

    /// The bound as a plan would say it: `loss_ratio <= 0 %`.
    pub fn bound(&self) -> String {
        let side = |operator: &str, limit: Option<f64>| {
            limit.map(|limit| {
                format!("{} {operator} {}", self.metric.name, schemas::units::human(self.metric.unit, limit))
            })
        };
        let both: Vec<String> = side("<=", self.at_most).into_iter().chain(side(">=", self.at_least)).collect();
        both.join(" and ")
    }
}

impl Plan {
    /// The host of that end, if the inventory has it.
    pub fn host(&self, end: &Endpoint) -> Option<&Host> {
        match end {
            Endpoint::Host(name) => self.hosts.get(name),
            _ => None,
        }
    }

    pub fn estimate(&self) -> Estimate {
        let of_cases = self.cases.iter().map(|case| (case, case.estimate()));
        one_after_the_other(of_cases, |a, b| Estimate {
            least: a.least.max(b.least),
            most: a.most.max(b.most),
            open: a.open || b.open,
        })
        .into_iter()
        .fold(Estimate::default(), |a, b| Estimate {
            least: a.least.saturating_add(b.least),
            most: a.most.saturating_add(b.most),
            open: a.open || b.open,
        })
    }
}

/// `c` and a hash of everything that affects the workload. Defaults do not enter: a later version with more keys, or a plan
/// that spells a default out, gives the same id. Names, hosts and output do not enter either.
pub fn case_id(members: &[Member], salt: &str) -> String {
    let mut hash = Sha256::new();
    for member in members {
        let mut value = member.job.settings();
        if !member.after.is_zero() {
            value["after"] = nanoseconds(member.after).into();
        }
        hash.update(member.name.as_bytes());
        hash.update([0]);
        value.sort_all_objects();
        hash.update(value.to_string().as_bytes());
        hash.update([0]);
    }
    hash.update(salt.as_bytes());
    format!("c{}", hex(&hash.finalize()[..6]))
}
