//! Types that several sections share.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::{assertion, one_or_many::OneOrMany};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A name that becomes part of paths: `[a-z0-9][a-z0-9-]*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Name(pub String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let good = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !good || name.is_empty() || name.starts_with('-') {
            return Err(D::Error::custom(format!(
                "`{name}` cannot be a plan's name: lower-case letters, digits and hyphens make one"
            )));
        }
        Ok(Self(name))
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[a-z0-9][a-z0-9-]*$"})
    }
}

/// A port, or a range of ports: `5000`, `"40000-40999"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// Number of values from `first` on.
    pub count: u16,
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (low, high) = text.split_once('-').unwrap_or((&text, &text));
        match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            (Ok(low), Ok(high)) if low > 0 && low <= high => {
                Ok(Self { first: low, count: (high - low).saturating_add(1) })
            }
            _ => Err(D::Error::custom(format!("`{text}` is not a port: write 5000, or a range such as 40000-40999"))),
        }
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", self.first, u32::from(self.first) + u32::from(self.count) - 1))
    }
}

impl JsonSchema for Ports {
    fn schema_name() -> Cow<'static, str> {
        "Ports".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a port, or a range such as 40000-40999",
            "type": ["integer", "string"],
            "pattern": r"^([0-9]+( *- *[0-9]+)?|.*\$\{vars\..*)$",
            "minimum": 1,
            "maximum": 65535
        })
    }
}

/// The hosts of ranks, or their number: its words, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Ranks(pub Vec<String>);

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Count(u32),
            Hosts(OneOrMany),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Count(count)) => Ok(Self(vec![count.to_string()])),
            Ok(Written::Hosts(hosts)) => Ok(Self(hosts.0)),
            Err(_) => Err(D::Error::custom("neither a number of ranks nor hosts: 4, node[1-4], or [a, b]")),
        }
    }
}

impl JsonSchema for Ranks {
    fn schema_name() -> Cow<'static, str> {
        "Ranks".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let hosts = generator.subschema_for::<OneOrMany>();
        let count = json_schema!({"type": "integer", "minimum": 2});
        json_schema!({"description": "hosts, or a number of ranks on this machine", "anyOf": [count, hosts]})
    }
}

/// Pattern of a statement in the published schema.
pub(super) const STATEMENT: &str = r"^ *([a-z0-9_.]+ *(<=|>=|==|!=|<|>) *.+|[A-Za-z][A-Za-z0-9_.-]* +- +[A-Za-z][A-Za-z0-9_.-]* *(<=|>=|==|!=|<|>) *.+|.*\$\{vars\..*)$";

/// `METRIC OP LIMIT`, its unit checked against the metric's.
#[derive(Clone, Debug)]
pub struct Statement(pub assertion::Assertion);

impl PartialEq for Statement {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Statement {
    /// Parses a statement; an unknown metric gets a suggestion.
    pub fn parse(text: &str) -> Result<Self, String> {
        assertion::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for Statement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Statement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

impl JsonSchema for Statement {
    fn schema_name() -> Cow<'static, str> {
        "Statement".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "METRIC OP LIMIT, for example: throughput >= 9Gbit/s; or of two members MEMBER.METRIC - MEMBER.METRIC OP LIMIT",
            "type": "string",
            "pattern": STATEMENT,
            "examples": ["throughput >= 9Gbit/s", "latency.p99 < 80us", "retransmits == 0"]
        })
    }
}

/// Any scalar, as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(pub String);

impl JsonSchema for Word {
    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"]})
    }
}

/// The schema of a word, or a map with details.
pub(super) fn either_schema(description: &str, word: &Schema, map: &Schema) -> Schema {
    json_schema!({"description": description, "anyOf": [word, map]})
}
