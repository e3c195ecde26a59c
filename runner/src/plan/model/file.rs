//! The top level of a plan, without the bodies of the tests.

use std::{collections::BTreeMap, path::PathBuf};

use analyze::{
    export::annotations::Annotations,
    judge::{baseline::OnMissing, comparison::Test},
    plot::Plot,
};
use netcore::{peers::Program, spec::Cpus};
use schemars::JsonSchema;
use schemas::words::Severity;
use serde::{Deserialize, Serialize};

use super::{Launch, Name, OneOrMany, TestBody, Word};
use crate::plan::quantity::{MetricName, Ratio, Time};

/// A Plumbline plan.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// The version of the plan language: 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// The plan's name; it becomes part of paths.
    pub name: Name,
    /// The question the plan answers.
    pub description: Option<String>,
    /// Words that travel into the results.
    pub labels: Option<BTreeMap<String, Word>>,
    /// Declared parameters, used as `${vars.x}` inside strings.
    pub vars: Option<BTreeMap<String, Var>>,
    /// The inventory. Without it everything runs over loopback.
    pub hosts: Option<BTreeMap<String, Host>>,
    /// Preconditions, checked on the hosts before anything runs.
    pub require: Option<Vec<Precondition>>,
    /// A test body merged under every test.
    pub defaults: Option<TestBody>,
    /// Named test bodies for `extends`; never run themselves.
    pub profiles: Option<BTreeMap<String, TestBody>>,
    /// Order and repetition of the cases.
    pub run: Option<Run>,
    /// The tests by name, in order.
    pub tests: BTreeMap<String, TestBody>,
    /// An earlier run to compare with.
    pub baseline: Option<Baseline>,
    /// Rules that turn verdicts into an exit code.
    pub gate: Option<Gate>,
    /// Places of the results.
    pub output: Option<Output>,
}

/// A declared parameter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Var {
    /// Its value where nothing else sets it.
    pub default: Option<Word>,
    /// An environment variable that sets it.
    pub env: Option<String>,
    /// Its purpose.
    pub help: Option<String>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Destination of the traffic: a name or an address; `local` is this process.
    pub address: Option<String>,
    /// Its daemon, `host:port`; by default the address, port 12864. Of a host with `launch`: an address without a port,
    /// `launcher` for the launcher's own connection (the default of pods), or `address` for the address of the traffic.
    pub control: Option<String>,
    /// Another program that serves there in place of a daemon.
    pub speaks: Option<Program>,
    /// The engine that starts its daemon for the run; without it the daemon runs already.
    pub launch: Option<Launch>,
    /// Interface of a launched host whose address carries the traffic.
    pub interface: Option<String>,
    /// Network of a launched host's address that carries the traffic: `10.1.0.0/16`.
    pub network: Option<String>,
    /// Addresses the data sockets are bound to, each with an interface if need be: `10.0.0.2%eth1`.
    pub bind: Option<OneOrMany>,
    /// Network namespace of this machine: plumb runs the host's daemon in it by itself. Needs root.
    pub netns: Option<String>,
    /// CPUs for the data threads of every test that sets none.
    pub cpus: Option<Cpus>,
    /// The key that its daemon requires.
    pub key_file: Option<PathBuf>,
    /// Its place among the ends that one `launch` brings; `None`: the only one.
    #[serde(skip)]
    pub group: Option<LaunchGroup>,
}

impl Host {
    /// The service that must be there before a run; `None`: it is this process. `has_daemon`: a daemon of ours takes part.
    pub fn need(&self, has_daemon: bool) -> Option<String> {
        let address = self.control.as_ref().or(self.address.as_ref());
        let at = || address.map_or_else(|| "an address (--host)".to_owned(), |address| format!("at {address}"));
        let engine = self.launch.as_ref().and_then(Launch::engine);
        Some(match (engine, self.speaks, &self.netns) {
            (Some(engine), ..) => format!("{engine}, which starts it"),
            (None, Some(program), _) => format!("{} {}", program.server(), at()),
            (None, None, Some(netns)) => format!("the network namespace {netns}, and root here"),
            _ if self.address.as_deref() == Some("local") => return None,
            _ if has_daemon => format!("plumb serve {}", at()),
            _ => format!("a service {}", at()),
        })
    }
}

/// A place among the ends of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchGroup {
    /// The host's name in the inventory.
    pub name: String,
    /// Index of the end, from 0.
    pub index: u32,
    /// Number of its ends.
    pub of: u32,
}

/// A precondition, checked before anything runs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// The host; all by default.
    pub host: Option<String>,
    /// `cpu_governor`, `nic_speed`, `mtu`, `kernel`, `sysctl.<name>`, `clock_offset` or `free_cpus`.
    pub check: String,
    /// The value it must have.
    pub equals: Option<Word>,
    /// The least it may be.
    pub at_least: Option<Word>,
    /// The most it may be.
    pub at_most: Option<Word>,
    /// error stops the run; warn continues.
    pub severity: Option<Severity>,
}

/// Order and repetition of the cases.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// The order of iterations.
    pub order: Option<Order>,
    /// Seed of the random order.
    pub seed: Option<u64>,
    /// Stop at the first case that fails.
    pub fail_fast: Option<bool>,
    /// The longest an iteration may take beyond what it should.
    pub timeout: Option<Time>,
    /// Number of times that a failed iteration is tried again; the failed ones stay in the data.
    pub retries: Option<u32>,
    /// Idle time before each iteration.
    pub pause: Option<Time>,
    /// The most cases the plan may expand to; 256 by default.
    pub max_cases: Option<u32>,
}

/// The order of iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The first iteration of every case, then the second of every case, …: drift does not fake a difference.
    #[default]
    Interleave,
    /// All iterations of a case before the next.
    Sequential,
    /// Shuffled by `seed`.
    Random,
}

/// An earlier run to compare with.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// A results file.
    pub source: PathBuf,
    /// The verdict if the file, or a case in it, is missing.
    pub on_missing: Option<OnMissing>,
    /// Facts that must be the same: `host.kernel`, `host.cpu_model`, `host.nic_driver`, ….
    pub require_same: Option<Vec<String>>,
    /// The comparisons.
    #[serde(default)]
    #[schemars(extend("default" = []))]
    pub compare: Vec<Comparison>,
}

/// One metric that must not get worse.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The metric; the direction in which it is worse is known.
    pub metric: MetricName,
    /// The largest relative worsening that passes.
    pub max_regression: Ratio,
    /// The smallest absolute change that matters, in the metric's unit.
    pub min_effect: Option<Word>,
    /// The test of significance.
    pub test: Option<Test>,
    /// The significance level; 0.01 by default.
    pub alpha: Option<Ratio>,
}

/// The effect of an inconclusive verdict on the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUncertain {
    /// A warning; exit code 0.
    #[default]
    Warn,
    /// Exit code 4 where nothing failed outright.
    Fail,
    /// Nothing.
    Pass,
}

/// Rules that turn verdicts into an exit code.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// The effect of an inconclusive verdict.
    pub on_inconclusive: Option<OnUncertain>,
    /// Number of repetitions of a case with a failing verdict. It fails only if every attempt fails.
    pub confirm: Option<u32>,
}

/// Places of the results.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Output {
    /// A directory for everything; `${run.id}` in it is the run's id.
    pub dir: Option<String>,
    /// The tables that are written there.
    pub tables: Option<Vec<Table>>,
    /// `JUnit` XML, relative to `dir`.
    pub junit: Option<PathBuf>,
    /// A summary for people, relative to `dir`.
    pub markdown: Option<PathBuf>,
    /// GitHub annotations on the plan's own lines: `auto` is on within GitHub Actions.
    pub annotations: Option<Annotations>,
    /// Pictures, drawn when the run ends.
    pub plots: Option<Vec<Plot>>,
}

/// A table of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// The wide table: iterations and summaries.
    Results,
    /// Interim intervals, in a table of their own.
    Intervals,
    /// Kernel and NIC counters.
    Counters,
    /// Round trips to the hops of paths.
    Hops,
    /// Assertions and comparisons.
    Verdicts,
}
