//! `run.json`: everything that can change a number and is not in the table. Fields are the file's keys.
//!
//! The program writes this type and reads it back; a file of an older version lacks what is newer. Facts about hosts,
//! tests and interfaces belong to the engine, which these types leave open: a reader that does not know them takes them
//! as JSON.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "Facts: Deserialize<'de> + Default, Clock: Deserialize<'de> + Default"))]
pub struct RunRecord<Facts = Value, Clock = Value> {
    /// The version of the results contract.
    pub results_version: u64,
    /// UUIDv7.
    pub run_id: String,
    pub tool_version: String,
    /// Commit, profile and target of the program, as `plumb --version` has them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_build: String,
    /// The command line.
    pub argv: Vec<String>,
    /// RFC 3339 in UTC.
    pub began: String,
    /// When it was resumed after interruptions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Absent while it runs, and after a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The signal that ended it early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Cases that were not measured to their end, though the plan wanted it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Unfinished>,
    /// Files that go with the table when a later run replaces it, relative to the folder of this one. Those that the run had
    /// no use for do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// In the order in which they ran.
    pub plans: Vec<PlanRecord>,
    /// By name.
    pub hosts: BTreeMap<String, HostRecord<Facts, Clock>>,
    /// By `case_id`, or `case_id/member` in groups.
    pub cases: BTreeMap<String, CaseRecord>,
    /// The summary's notes about the numbers; empty while it runs.
    pub notes: Vec<String>,
    /// Origin of a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promoted: Option<Promotion>,
}

impl<Facts, Clock> RunRecord<Facts, Clock> {
    /// Whether it was cut off: by a crash, or by a signal other than a timer's (SIGALRM).
    pub fn is_cut_off(&self) -> bool {
        self.ended.is_none() || self.interrupted.as_ref().is_some_and(|signal| signal != "SIGALRM")
    }
}

/// The note on a discarded try, which readers recognize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded<'a> {
    /// The case's readable name.
    pub case: &'a str,
    /// From 1.
    pub iteration: u32,
    pub reason: &'a str,
    /// The next try: `1 of 3`.
    pub next: &'a str,
}

impl Discarded<'_> {
    const CASE: &'static str = "case ";
    const ITERATION: &'static str = ", iteration ";
    const REASON: &'static str = " was discarded: ";
    const NEXT: &'static str = "; it is tried again (";
}

impl fmt::Display for Discarded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, iteration, reason, next } = self;
        let (before, between, why, again) = (Self::CASE, Self::ITERATION, Self::REASON, Self::NEXT);
        write!(f, "{before}{case}{between}{iteration}{why}{reason}{again}{next})")
    }
}

impl<'a> Discarded<'a> {
    /// Reads a note; `None` if it is about something else.
    pub fn read(note: &'a str) -> Option<Self> {
        let (about, why) = note.strip_prefix(Self::CASE)?.split_once(Self::REASON)?;
        let (case, iteration) = about.rsplit_once(Self::ITERATION)?;
        let (reason, next) = why.strip_suffix(')')?.rsplit_once(Self::NEXT)?;
        Some(Self { case, iteration: iteration.parse().ok()?, reason, next })
    }
}

/// A case that was not measured to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unfinished {
    pub plan: String,
    /// Its readable name.
    pub case: String,
    /// Iterations that were measured, or probes of a search.
    pub iterations: u32,
    /// Fewest iterations that the plan asks for; 0: a search.
    pub of: u32,
    pub reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanRecord {
    /// As given.
    pub path: String,
    pub name: String,
    /// The question that it answers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub labels: BTreeMap<String, String>,
    /// Verbatim.
    pub text: String,
    /// The text with defaults, profiles and the command line merged into every test.
    pub resolved: String,
    /// Changes by the command line.
    pub overrides: Vec<String>,
    /// Of the random order.
    pub seed: Option<u64>,
    /// Whether `--only` left cases out.
    pub partial: bool,
    /// Warnings of loading it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The pictures that it asks for, as in `output.plots`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "Facts: Deserialize<'de> + Default, Clock: Deserialize<'de> + Default"))]
pub struct HostRecord<Facts = Value, Clock = Value> {
    /// How its daemon was started; absent where it ran already.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub launch: Option<LaunchRecord>,
    /// Address of its daemon; absent for this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Version of the program there.
    pub tool_version: String,
    pub facts: Facts,
    /// Offsets of its clocks from ours, with the bound of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Its daemon as a rank of MPI: library, version, settings of the transport.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mpi: Option<Value>,
}

/// A daemon that the run started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// `ssh`, `command`, `slurm`, `mpi` or `kubernetes`.
    pub engine: String,
    /// The way of the control connection: `address`, or `launcher` for the launcher's own connection.
    pub control: String,
    /// Whether the program was sent along.
    pub copied: bool,
    /// The address that carries the traffic.
    pub data_address: IpAddr,
    /// Its interface, if it is an address of the host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data_interface: Option<String>,
    /// All its addresses, each behind its interface: `ib0 10.1.0.2`.
    pub addresses: Vec<String>,
    /// Its node's name for Slurm or Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// Number of the daemon's process there.
    pub pid: u32,
    /// From the start of the launcher to its last daemon, seconds.
    pub start_s: f64,
}

/// A case, as its last iteration had it: a test between two ends (`spec`), or a program (`command`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseRecord {
    /// Its readable name.
    pub case: String,
    /// The paths and values of its settings as its plan has them, without the hosts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The test as both ends got it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Value>,
    /// A program that ran, and its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Value>,
    /// Programs around its iterations, by the hook's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, HookRecord>,
    /// Socket options of the near end, asked for and granted, per flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_options: Option<Value>,
    /// Socket options of the far end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_options: Option<Value>,
    /// The interface that the near end's packets used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_nic: Option<Value>,
    /// The interface of the far end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_nic: Option<Value>,
    /// The two hosts' clocks in a test with `one_way`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clocks: Option<ClocksRecord>,
    /// Ranks of a test of several: algorithm, library, interface and CPU time of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Value>,
    /// Notes of the ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<Vec<String>>,
}

/// The relation of two hosts' clocks while a test measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClocksRecord {
    /// The clock by which the delays are told, as in the column `one_way_clock`.
    pub source: String,
    /// Bound of the error of the clocks' offset by that clock, microseconds.
    pub bound_us: f64,
    /// The same by the round trips, whatever the source is.
    pub round_trips_bound_us: f64,
    /// Bound of the error of the near host's wall clock by its kernel (adjtimex), microseconds; absent: it is not synchronised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_wall_error_us: Option<f64>,
    /// The far host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_wall_error_us: Option<f64>,
    /// Drift of the far host's clock against the near one's, parts per million.
    pub drift_ppm: f64,
}

/// A program around the measurement; its output is in `hooks.log`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookRecord {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The host of the plan; absent: this process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Promotion {
    /// RFC 3339 in UTC.
    pub at: String,
    /// The results file.
    pub from: String,
    pub tool_version: String,
    /// Rows of the baseline: one per iteration, member and direction. A file with another number of them lost some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rows: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_files_are_read_and_keys_are_written_as_they_were() {
        let old = r#"{"run_id": "r", "hosts": {"local": {"facts": {"cpus": 2}}}, "cases": {"c1": {"case": "a", "near_nic": null}}}"#;
        let record: RunRecord = serde_json::from_str(old).unwrap();
        assert_eq!((record.run_id.as_str(), record.ended.as_deref()), ("r", None));
        assert_eq!(record.hosts["local"].facts["cpus"], 2);
        let written = serde_json::to_value(&record).unwrap();
        let keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            ["results_version", "run_id", "tool_version", "argv", "began", "plans", "hosts", "cases", "notes"]
        );
        assert_eq!(written["cases"]["c1"], serde_json::json!({"case": "a"}));
    }

    #[test]
    fn a_discarded_try_is_read_back() {
        let note = Discarded { case: "a, b", iteration: 3, reason: "late; it was", next: "1 of 2" };
        let text = note.to_string();
        assert_eq!(text, "case a, b, iteration 3 was discarded: late; it was; it is tried again (1 of 2)");
        assert_eq!(Discarded::read(&text), Some(note));
        assert_eq!(Discarded::read("case a, iteration 3: slow"), None);
    }
}
