//! The kinds of tests, and what each answers. The other rooms ask a [`Job`] and do not tell the kinds apart.
//!
//! The answers about traffic between two ends are in [`answers`] and [`super::spec`], those about
//! ranks in `ranks`.

use std::time::Duration;

use netcore::spec::{Pace, Pattern, TestSpec, Transport, ranks::RanksSpec};
use schemas::{
    columns::Row,
    metrics::{self, Family, Metric},
    words::Way,
};
use serde_json::Value as Json;

use super::{
    answers::{self, ASSUMED, Estimate},
    inventory::Endpoint,
    keys::{self, Scope, key},
    model::Command,
    output::{Group, OutputParser},
};

pub use super::ranks::RanksJob;

/// Default time over the planned length of an iteration, for connecting, draining and reporting.
pub const GRACE: Duration = Duration::from_secs(10);

/// Default time that a program may run: its length is unknown.
pub const PROGRAM_LIMIT: Duration = Duration::from_mins(10);

/// The work of a member of a test.
#[derive(Clone, Debug)]
pub enum Job {
    /// Traffic between the two ends.
    Traffic(Box<TestSpec>),
    /// A test of several ranks.
    Ranks(Box<RanksJob>),
    /// A program at `from`.
    Command(Command),
}

impl Job {
    /// The test between two ends; `None` for ranks and for a program.
    pub fn spec(&self) -> Option<&TestSpec> {
        if let Self::Traffic(spec) = self { Some(spec) } else { None }
    }

    /// The test between two ends, to be changed.
    pub fn spec_mut(&mut self) -> Option<&mut TestSpec> {
        if let Self::Traffic(spec) = self { Some(spec) } else { None }
    }

    /// The test of several ranks.
    pub fn ranks(&self) -> Option<&RanksJob> {
        if let Self::Ranks(job) = self { Some(job) } else { None }
    }

    /// The program.
    pub fn command(&self) -> Option<&Command> {
        if let Self::Command(command) = self { Some(command) } else { None }
    }

    /// Its transport; `None` for a program.
    pub fn transport(&self) -> Option<Transport> {
        self.spec().map(|spec| spec.transport).or_else(|| self.ranks().map(|job| job.spec.transport))
    }

    /// The ends that the plan names, also those of a program.
    pub fn places<'a>(&'a self, from: &'a Endpoint, to: &'a Endpoint) -> Vec<&'a Endpoint> {
        self.ranks().map_or_else(|| vec![from, to], |job| job.ends.iter().collect())
    }

    /// The ends that take part, and whether each has a daemon of ours. A program needs none.
    pub fn ends<'a>(&'a self, from: &'a Endpoint, to: &'a Endpoint) -> Vec<(&'a Endpoint, bool)> {
        match self {
            Self::Traffic(spec) => vec![(from, true), (to, spec.has_daemon())],
            Self::Ranks(job) => job.ends.iter().map(|end| (end, true)).collect(),
            Self::Command(_) => Vec::new(),
        }
    }

    /// The way of its headline: both together if it has two.
    pub fn headline_way(&self) -> Way {
        match self {
            Self::Traffic(spec) => answers::way(spec.direction),
            Self::Ranks(_) => Way::Both,
            Self::Command(_) => Way::Forward,
        }
    }

    /// Whether it measures round trips of requests.
    pub fn has_round_trips(&self) -> bool {
        self.spec().is_some_and(|spec| matches!(spec.pattern, Pattern::RequestResponse | Pattern::Ping))
    }

    /// Why a key (or a path in it) that the test itself writes means nothing to it, and what to do; `None`: it has a meaning.
    pub fn refuses(&self, path: &str) -> Option<(String, &'static str)> {
        let key = keys::of_path(path)?;
        let (whom, help) = match (self, key.scope) {
            (Self::Ranks(_), _) if [key::from, key::to].contains(&key.name) => ("ranks", "`ranks` names their hosts"),
            (Self::Ranks(_), Scope::Traffic) => ("ranks", "leave it out"),
            (Self::Command(_), Scope::Traffic | Scope::Ranks | Scope::Both) => {
                ("a command", "say it in the program's own arguments")
            }
            (Self::Traffic(_), Scope::Ranks) => {
                let message = format!("`{path}` is for workloads of several ranks");
                return Some((message, "for example tcp_collective, nas_is"));
            }
            _ => return None,
        };
        Some((format!("`{path}` means nothing to {whom}"), help))
    }

    /// Why it cannot deliver a metric; `None`: it can.
    pub fn lacks(&self, metric: &Metric) -> Option<String> {
        let is_cause = metric.name == metrics::LIMITED_BY.name;
        match self {
            Self::Traffic(spec) => answers::lacks_of(spec, metric),
            Self::Ranks(_) | Self::Command(_) if is_cause => {
                Some("only a test between two ends has a cause".to_owned())
            }
            Self::Ranks(job) => job.lacks(metric),
            // Mistakes in how its output is read are already reported.
            Self::Command(command) => OutputParser::of(command).ok()?.lacks(metric),
        }
    }

    /// Its main metric: for a program, of those that its expression finds.
    pub fn headline(&self) -> Option<&'static Metric> {
        match self {
            Self::Traffic(spec) => Some(answers::headline(spec)),
            Self::Ranks(job) => job.headline(),
            Self::Command(command) => {
                let parser = OutputParser::of(command).ok()?;
                let found: Vec<&'static Metric> = parser.groups().iter().filter_map(Group::metric).collect();
                let has = |metric: &Metric| found.iter().any(|m| m.name == metric.name);
                Family::Other.headline(has).or_else(|| found.first().copied())
            }
        }
    }

    /// The length of its phases.
    pub fn length(&self) -> Estimate {
        match self {
            Self::Traffic(spec) => answers::planned(spec),
            Self::Ranks(job) => job.length(),
            Self::Command(_) => Estimate { least: ASSUMED, most: ASSUMED, open: true },
        }
    }

    /// The longest that an iteration may run over its length, where the plan does not say.
    pub fn grace(&self) -> Duration {
        if self.command().is_some() { PROGRAM_LIMIT } else { GRACE }
    }

    /// Writes the cells that it decides. `to`: its far end.
    pub fn fill(&self, row: &mut Row, to: &Endpoint) {
        // Only the plan can say which host a program talks to.
        row.to = Some(to.name().to_owned()).filter(|_| self.spec().is_some() || *to != Endpoint::Embedded);
        match self {
            Self::Traffic(spec) => answers::of_spec(row, spec),
            Self::Ranks(job) => job.fill(row),
            Self::Command(_) => {}
        }
    }

    /// Everything that affects the workload, without defaults.
    pub fn settings(&self) -> Json {
        match self {
            Self::Traffic(spec) => settings_of(spec),
            Self::Ranks(job) => settings_of_ranks(job),
            Self::Command(command) => json(command),
        }
    }
}

fn settings_of(spec: &TestSpec) -> Json {
    let mut spec = spec.clone();
    let plain = TestSpec::new(spec.pattern, spec.transport);
    // Addresses, interim reports and evidence that is read at the edges do not affect the workload.
    spec.near.bind.clear();
    spec.far.bind.clear();
    spec.interim = false;
    spec.collect.limits = plain.collect.limits;
    let mut value = differences(&spec, &plain);
    let has_default = |pace: &Pace| pace.catch_up == Pace::default_catch_up(pace.events_per_s, pace.burst);
    if spec.pace.as_ref().is_some_and(has_default) {
        value["pace"].as_object_mut().map(|keys| keys.remove("catch_up"));
    }
    if spec.is_alone() && !spec.is_reflected() {
        // The word of the first version, so that its ids stay.
        value["alone"] = true.into();
        value.as_object_mut().map(|keys| keys.remove("dialect"));
    }
    value["pattern"] = json(&spec.pattern);
    value["transport"] = json(&spec.transport);
    value
}

fn settings_of_ranks(job: &RanksJob) -> Json {
    let mut value = differences(&job.spec, &RanksSpec::new(job.spec.transport, job.spec.work));
    value["ranks"] = job.ends.len().into();
    value["transport"] = json(&job.spec.transport);
    value["work"] = json(&job.spec.work);
    value
}

/// A value as JSON.
fn json(value: &impl serde::Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

/// A value as JSON, without what is as in the default.
fn differences<T: serde::Serialize>(value: &T, default: &T) -> Json {
    let mut value = json(value);
    without_defaults(&mut value, &json(default));
    value
}

fn without_defaults(value: &mut Json, default: &Json) {
    if let (Json::Object(map), Json::Object(default)) = (value, default) {
        map.retain(|key, value| default.get(key) != Some(value));
        for (key, value) in map {
            if let Some(default) = default.get(key) {
                without_defaults(value, default);
            }
        }
    }
}
