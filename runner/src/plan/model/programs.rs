//! Programs that a plan starts, and skipped tests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Word, argv_or_map};
use crate::plan::{
    quantity::{Time, word},
    ranges,
};

/// A program that prints numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments; no shell. It runs on this machine, at `from`.
    pub run: Vec<Word>,
    /// The named importer that reads its output (`iperf3`, `netperf`, …).
    #[serde(default)]
    pub import: Option<String>,
    /// A regular expression whose named groups are metrics (`throughput`, `latency.p99`), or numeric results columns; each
    /// of its matches is a line of results.
    #[serde(default)]
    pub regex: Option<String>,
    /// The unit of a group whose number is printed without one: `{transaction_rate: M/s}`.
    #[serde(default)]
    pub units: Option<BTreeMap<String, String>>,
}

/// Programs around the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Once before the first iteration of a case.
    pub setup: Option<Hook>,
    /// Before each iteration.
    pub prepare: Option<Hook>,
    /// After each iteration.
    pub conclude: Option<Hook>,
    /// Once after the last iteration of a case, whatever happened.
    pub cleanup: Option<Hook>,
}

impl Hooks {
    /// The hooks by name, in the order in which they run.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        [("setup", &self.setup), ("prepare", &self.prepare), ("conclude", &self.conclude), ("cleanup", &self.cleanup)]
            .into_iter()
            .filter_map(|(name, hook)| Some((name, hook.as_ref()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

/// A program on a host: its argv, or a map with details.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hook {
    /// The program and its arguments; no shell.
    pub run: Vec<String>,
    /// The host it runs on, or a range of hosts; left out: this machine.
    pub on: Option<String>,
    /// The longest it may take; 30 s by default.
    pub timeout: Option<Time>,
}

impl Hook {
    /// The hosts it runs on; `None`: this machine. Ranges were checked when the plan was read.
    pub fn places(&self) -> Option<Vec<String>> {
        Some(ranges::names(self.on.as_deref()?).unwrap_or_default())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HookDetail {
    /// The program and its arguments; no shell.
    run: Vec<Word>,
    /// The host it runs on, with a daemon that allows it, or a network namespace here; a range: each of them; left out: this
    /// machine.
    #[serde(default)]
    on: Option<String>,
    /// The longest it may take; 30 s by default.
    #[serde(default)]
    timeout: Option<Time>,
}

argv_or_map!(
    Hook,
    HookDetail,
    "a program with its arguments",
    "{run, on, timeout}",
    |run| Hook { run, on: None, timeout: None },
    |it| Hook { run: it.run.into_iter().map(|word| word.0).collect(), on: it.on, timeout: it.timeout }
);

/// Whether a test is skipped, or why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Skip {
    /// Without a reason.
    Plain(bool),
    /// For this reason.
    Because(String),
}

word!(
    Skip as "Skip",
    |text| match text {
        "true" => Ok::<_, String>(Skip::Plain(true)),
        "false" => Ok(Skip::Plain(false)),
        _ => Ok(Skip::Because(text.to_owned())),
    },
    {"description": "true, or the reason", "type": ["boolean", "string"]}
);
