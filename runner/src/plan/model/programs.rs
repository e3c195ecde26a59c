//! Programs that a plan starts, and skipped tests.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::common::{Word, either_schema};
use crate::plan::{quantity::Time, ranges};

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

impl<'de> Deserialize<'de> for Hook {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both;
        impl<'de> Visitor<'de> for Both {
            type Value = Hook;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a program with its arguments as a list, or {run, on, timeout}")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Hook, A::Error> {
                let mut run = Vec::new();
                while let Some(Word(item)) = items.next_element()? {
                    run.push(item);
                }
                Ok(Hook { run, on: None, timeout: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Hook, A::Error> {
                let detail = HookDetail::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Hook { run: detail.run.into_iter().map(|w| w.0).collect(), on: detail.on, timeout: detail.timeout })
            }
        }
        deserializer.deserialize_any(Both)
    }
}

impl JsonSchema for Hook {
    fn schema_name() -> Cow<'static, str> {
        "Hook".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let detail = generator.subschema_for::<HookDetail>();
        either_schema(
            "a program with its arguments, or {run, on, timeout}",
            &json_schema!({"type": "array", "items": {"type": ["string", "number", "boolean"]}}),
            &detail,
        )
    }
}

/// Whether a test is skipped, or why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Skip {
    /// Without a reason.
    Plain(bool),
    /// For this reason.
    Because(String),
}

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.as_str() {
            "true" => Self::Plain(true),
            "false" => Self::Plain(false),
            _ => Self::Because(text),
        })
    }
}

impl JsonSchema for Skip {
    fn schema_name() -> Cow<'static, str> {
        "Skip".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "true, or the reason", "type": ["boolean", "string"]})
    }
}
