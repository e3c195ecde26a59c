//! A checked plan: what the schedule runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use netcore::spec::TestSpec;
use schemas::metrics::Metric;
use sha2::{Digest, Sha256};

use super::{
    diagnostics::{Diagnostic, Diagnostics},
    model::{AssertDetail, Baseline, Command, FindBy, Gate, Hooks, Host, Level, Order, Output, Precondition, Window},
    source::{Place, Sources, Span},
    spec::catch_up,
};

/// A plan that can be run.
#[derive(Debug)]
pub struct Plan {
    /// The path it was read from, as given; `<stdin>`.
    pub path: String,
    /// Its name.
    pub name: String,
    /// The question it answers.
    pub description: Option<String>,
    /// Words that travel into the results.
    pub labels: BTreeMap<String, String>,
    /// The inventory, with `--host` applied.
    pub hosts: BTreeMap<String, Host>,
    /// Preconditions and where each is written.
    pub require: Vec<(Precondition, Span)>,
    /// How the cases are run.
    pub run: RunOptions,
    /// What is run, in the order of the plan.
    pub cases: Vec<Case>,
    /// Whether `--only` left cases out: such a run is no baseline.
    pub partial: bool,
    /// The swept paths that have no column of their own in the results, in the order of the header.
    pub axis_paths: Vec<String>,
    /// An earlier run to compare with, and where each comparison is written.
    pub baseline: Option<(Baseline, Vec<Span>)>,
    /// How verdicts become an exit code.
    pub gate: Gate,
    /// Where results go.
    pub output: Output,
    /// The texts; the first is the plan as written.
    pub sources: Sources,
    /// The plan as resolved: defaults, profiles and `--set` merged into every test.
    pub resolved: String,
    /// What is odd about it without being wrong.
    pub warnings: Diagnostics,
}

/// `run`, with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// The order of iterations.
    pub order: Order,
    /// Seed of the random order; `None`: one is drawn and reported.
    pub seed: Option<u64>,
    /// Stop at the first case that fails.
    pub fail_fast: bool,
    /// The longest an iteration may take beyond what it should; `None`: the schedule's own bound.
    pub timeout: Option<Duration>,
    /// How often a failed iteration is tried again.
    pub retries: u32,
    /// Idle time before each iteration.
    pub pause: Duration,
    /// The most cases the plan may expand to.
    pub max_cases: u32,
}

/// One combination of a test's swept values.
#[derive(Clone, Debug)]
pub struct Case {
    /// The test's name.
    pub test: Arc<str>,
    /// `c` and a hash of what affects the workload.
    pub id: String,
    /// `bulk[message_size=65536]`.
    pub name: String,
    /// The swept values: path and value as shown (sizes in bytes).
    pub axes: Vec<(Arc<str>, String)>,
    /// What runs: one member without a name, or the members of a concurrent group.
    pub members: Vec<Member>,
    /// How the members start and are summed, where the test is a concurrent group.
    pub group: Option<Group>,
    /// How often it is measured.
    pub policy: Policy,
    /// What must come out, for this case (`when` is decided).
    pub asserts: Vec<Assertion>,
    /// Skips the rest of an axis once it holds.
    pub stop_when: Option<StopWhen>,
    /// A search over the offered load.
    pub find: Option<Find>,
    /// Programs around the measurement.
    pub hooks: Hooks,
    /// Words to choose by.
    pub tags: Vec<String>,
    /// Why it is not run, where it is not (empty: no reason given).
    pub skip: Option<String>,
    /// Idle time before each iteration.
    pub pause: Duration,
    /// The longest an iteration may take beyond what it should.
    pub grace: Duration,
    /// Where its `command` is written, or else the test.
    pub command_span: Span,
    /// Where its `hooks` are written, or else the test.
    pub hooks_span: Span,
}

/// One of the things that run at the same time in a case.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in a concurrent group; empty where the case is one workload.
    pub name: String,
    /// The workload's name, as results show it.
    pub workload: String,
    /// The near end.
    pub from: Endpoint,
    /// The far end.
    pub to: Endpoint,
    /// What it does.
    pub job: Job,
    /// Why the engines cannot run it. It only matters where `--only` leaves the case in.
    pub refused: Option<Diagnostic>,
}

/// What a member does.
#[derive(Clone, Debug)]
pub enum Job {
    /// Traffic between the two ends.
    Traffic(Box<TestSpec>),
    /// A program at `from`.
    Command(Command),
}

impl Job {
    /// The test, where it is traffic.
    pub fn spec(&self) -> Option<&TestSpec> {
        match self {
            Self::Traffic(spec) => Some(spec),
            Self::Command(_) => None,
        }
    }
}

impl Member {
    /// The test, where it is traffic.
    pub fn spec(&self) -> Option<&TestSpec> {
        self.job.spec()
    }
}

/// How much longer than planned an iteration may take by default: connecting, draining and reporting included.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a program of a plan may run by default: nothing tells how long it should.
pub const PROGRAM_LIMIT: Duration = Duration::from_mins(10);

/// Where an end is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// This process.
    Local,
    /// The daemon inside this process.
    Embedded,
    /// A host of the inventory.
    Host(String),
}

impl Endpoint {
    /// Its name in results.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Embedded => "embedded",
            Self::Host(name) => name,
        }
    }
}

/// Whether programs for that host run on this machine: it is this process's own, or a network namespace here.
pub fn is_here(host: Option<&Host>) -> bool {
    host.is_none_or(|host| host.netns.is_some() || host.address.as_deref() == Some("local"))
}

/// A concurrent group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The largest start skew that counts.
    pub max_skew: Duration,
    /// Over which window the members are summed.
    pub window: Window,
}

/// How often a case is measured.
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

/// Something that must come out.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// As written.
    pub detail: AssertDetail,
    /// Whether it fails the run or only warns.
    pub severity: Level,
    /// Where it is written.
    pub place: Place,
}

/// When the rest of an axis is skipped.
#[derive(Clone, Debug)]
pub struct StopWhen {
    /// The statement.
    pub that: schemas::assertion::Assertion,
    /// The axis.
    pub axis: Arc<str>,
}

/// A search for the highest offered load at which a bound holds.
#[derive(Clone, Debug)]
pub struct Find {
    /// The metric that is bounded.
    pub metric: &'static Metric,
    /// The most it may be, in the unit of its column.
    pub at_most: Option<f64>,
    /// The least it may be, in the unit of its column.
    pub at_least: Option<f64>,
    /// What is varied.
    pub by: FindBy,
    /// The lowest load: bits or events per second, or transactions in flight.
    pub from: f64,
    /// The highest load; `None`: doubled from the lowest until it does not hold.
    pub to: Option<f64>,
    /// Whether a rate counts bits, not events.
    pub bits: bool,
    /// How closely the answer is wanted, relative to it.
    pub within: f64,
    /// The most probes.
    pub max_probes: u32,
}

impl Find {
    /// A test with this load. `base` is the test as the plan has it, which is that of the lowest one.
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
                let unsaid = pace.catch_up == catch_up(pace.events_per_s);
                pace.events_per_s *= load / self.from;
                if unsaid {
                    pace.catch_up = catch_up(pace.events_per_s);
                }
            }
            (FindBy::Rate, None) => {}
        }
        spec
    }

    /// What must hold, as a plan would say it: `loss_ratio <= 0 %`.
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
    /// The host of that end, where it is in the inventory.
    pub fn host(&self, end: &Endpoint) -> Option<&Host> {
        match end {
            Endpoint::Host(name) => self.hosts.get(name),
            _ => None,
        }
    }
}

/// `c` and a hash of what affects the workload. What is at its default does not enter, so that a later version with more
/// keys, or a plan that spells a default out, gives the same id. Names, hosts and output do not enter either.
pub fn case_id(members: &[Member], salt: &str) -> String {
    let mut hash = Sha256::new();
    for member in members {
        let value = match &member.job {
            Job::Traffic(spec) => {
                let mut spec = (**spec).clone();
                // Where it runs, and how its results travel, is not what it is.
                spec.near.bind.clear();
                spec.far.bind.clear();
                spec.interim = false;
                let plain = TestSpec::new(spec.pattern, spec.transport);
                let mut value = serde_json::to_value(&spec).unwrap_or_default();
                let default = serde_json::to_value(&plain).unwrap_or_default();
                without_defaults(&mut value, &default);
                value["pattern"] = serde_json::to_value(spec.pattern).unwrap_or_default();
                value["transport"] = serde_json::to_value(spec.transport).unwrap_or_default();
                value
            }
            Job::Command(command) => serde_json::to_value(command).unwrap_or_default(),
        };
        hash.update(member.name.as_bytes());
        hash.update([0]);
        hash.update(canonical(value).to_string().as_bytes());
        hash.update([0]);
    }
    hash.update(salt.as_bytes());
    let digest = hash.finalize();
    let mut id = String::from("c");
    for byte in &digest[..6] {
        use std::fmt::Write as _;
        let _ = write!(id, "{byte:02x}");
    }
    id
}

fn without_defaults(value: &mut serde_json::Value, default: &serde_json::Value) {
    if let (serde_json::Value::Object(map), serde_json::Value::Object(default)) = (value, default) {
        map.retain(|key, value| default.get(key) != Some(value));
        for (key, value) in map {
            if let Some(default) = default.get(key) {
                without_defaults(value, default);
            }
        }
    }
}

fn canonical(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => {
            let sorted: BTreeMap<String, serde_json::Value> = map.into_iter().map(|(k, v)| (k, canonical(v))).collect();
            serde_json::Value::Object(sorted.into_iter().collect())
        }
        serde_json::Value::Array(items) => items.into_iter().map(canonical).collect(),
        other => other,
    }
}
