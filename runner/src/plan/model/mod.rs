//! The serde types of a plan, from which the published JSON Schema is generated. A test's options for the engines have the
//! types of [`netcore::spec`]. Types that several sections share are in this file.
//!
//! Everything is optional here, because any layer (defaults, profile, test, matrix, member) may leave it out. What must
//! be there in the end is checked on the merged test.

mod body;
mod file;
mod programs;

use schemars::JsonSchema;
use schemas::assertion;
use serde::{Deserialize, Serialize};

use super::quantity::word;

pub use body::{
    Assert, AssertDetail, Concurrent, Find, Iterations, IterationsDetail, Matrix, MatrixValue, Pacing, Start, StopWhen,
    StopWhenDetail, TestBody, Warmup, WarmupAuto,
};
pub use file::{
    Baseline, Comparison, Gate, Host, LaunchGroup, OnUncertain, Order, Output, PlanFile, Precondition, Run, Table, Var,
};
pub use programs::{
    BY_ADDRESS, BY_LAUNCHER, Command, CommandLaunch, Hook, Hooks, Kubernetes, Launch, Mpi, Skip, Slurm, Ssh,
};
pub use schemas::words::OneOrMany;

/// A name that becomes part of paths: `[a-z0-9][a-z0-9-]*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

word!(
    Name as "Name",
    |name| {
        let good = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !good || name.is_empty() || name.starts_with('-') {
            return Err(format!("`{name}` cannot be a plan's name: lower-case letters, digits and hyphens make one"));
        }
        Ok(Name(name.to_owned()))
    },
    {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]*$"}
);

/// A port, or a range of ports: `5000`, `"40000-40999"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// Number of values from `first` on.
    pub count: u16,
}

word!(
    Ports as "Ports",
    |text| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
            (Ok(low), Ok(high)) if low > 0 && low <= high => {
                Ok(Ports { first: low, count: (high - low).saturating_add(1) })
            }
            _ => Err(format!("`{text}` is not a port: write 5000, or a range such as 40000-40999")),
        }
    },
    {
        "description": "a port, or a range such as 40000-40999",
        "type": ["integer", "string"],
        "pattern": r"^([0-9]+( *- *[0-9]+)?|.*\$\{vars\..*)$",
        "minimum": 1,
        "maximum": 65535
    }
);

/// Pattern of a statement in the published schema.
pub(super) const STATEMENT: &str = r"^ *([a-z0-9_.]+ *(<=|>=|==|!=|<|>) *.+|[A-Za-z][A-Za-z0-9_.-]* +- +[A-Za-z][A-Za-z0-9_.-]* *(<=|>=|==|!=|<|>) *.+|.*\$\{vars\..*)$";

/// `METRIC OP LIMIT`, its unit checked against the metric's.
#[derive(Clone, Debug)]
pub struct Statement(pub assertion::Assertion);

impl Statement {
    /// Parses a statement; an unknown metric gets a suggestion.
    pub fn parse(text: &str) -> Result<Self, String> {
        assertion::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

word!(Statement as "Statement", Statement::parse, {
    "description": "METRIC OP LIMIT, for example: throughput >= 9Gbit/s; or of two members MEMBER.METRIC - MEMBER.METRIC OP LIMIT",
    "type": "string",
    "pattern": STATEMENT,
    "examples": ["throughput >= 9Gbit/s", "latency.p99 < 80us", "retransmits == 0"]
});

/// Any scalar, as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(pub String);

schemas::published!(Word as "Word", {"type": ["string", "number", "boolean"]});

/// A short form, which the visitor's `$short` reads, or a map with details. The value's form decides which, so that an error keeps
/// its place.
macro_rules! either {
    ($name:ident, $detail:ident, $expecting:expr, $described:expr, $types:tt, $read:ident,
     { $($short:tt)* }, |$map:ident| $from_map:expr) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Both;
                impl<'de> ::serde::de::Visitor<'de> for Both {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($expecting)
                    }

                    $($short)*

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let map = ::serde::de::value::MapAccessDeserializer::new(map);
                        let $map = <$detail as ::serde::Deserialize>::deserialize(map)?;
                        Ok($from_map)
                    }
                }
                deserializer.$read(Both)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                let (short, map) = (::schemars::json_schema!($types), generator.subschema_for::<$detail>());
                ::schemars::json_schema!({"description": $described, "anyOf": [short, map]})
            }
        }
    };
}

/// A word, or a map with details.
macro_rules! word_or_map {
    ($name:ident, $detail:ident, $expecting:literal, $types:tt, |$text:ident| $from_word:expr, |$map:ident| $from_map:expr) => {
        super::either!(
            $name,
            $detail,
            $expecting,
            $expecting,
            $types,
            deserialize_str,
            {
                fn visit_str<E: ::serde::de::Error>(self, $text: &str) -> Result<$name, E> {
                    $from_word.map_err(E::custom)
                }
            },
            |$map| $from_map
        );
    };
}

/// A program and its arguments, or a map with details.
macro_rules! argv_or_map {
    ($name:ident, $detail:ident, $what:literal, $map_keys:literal, |$run:ident| $from_list:expr, |$map:ident| $from_map:expr) => {
        super::either!(
            $name,
            $detail,
            concat!($what, " as a list, or ", $map_keys),
            concat!($what, ", or ", $map_keys),
            {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
            deserialize_any,
            {
                fn visit_seq<A: ::serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<$name, A::Error> {
                    let mut $run = Vec::new();
                    while let Some(super::Word(item)) = items.next_element()? {
                        $run.push(item);
                    }
                    Ok($from_list)
                }
            },
            |$map| $from_map
        );
    };
}
use argv_or_map;
use either;
use word_or_map;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),* }
    };
}

words!(
    /// The far end's part in the test.
    Control {
        /// A daemon: both ends report.
        Session,
        /// A plain service (echo, discard, chargen): only the near end reports.
        None,
    }
);
words!(
    /// Times of messages besides those that the programs read.
    Timestamps {
        /// When some of the messages left, by the kernels of both hosts.
        Kernel,
    }
);

words!(
    /// The window over which a concurrent group is summed.
    Window {
        /// The window that all members share.
        Intersection,
        /// Each member's own.
        Own,
    }
);

words!(
    /// The key that a search varies.
    FindBy {
        /// The offered load.
        Rate,
        /// Outstanding transactions.
        Inflight,
    }
);

words!(
    /// The pairs among the hosts of `pairs`.
    Shape {
        /// Every ordered pair, in rounds of disjoint pairs.
        All,
        /// Each host and the next one in the order, in rounds of disjoint pairs.
        Neighbours,
        /// Each host to the next one and the last to the first, all at once.
        Ring,
        /// Each host of the first half to one of the second, all at once.
        Bisection,
        /// Every other host to `to`, all at once.
        Incast,
        /// `from` to every other host, all at once.
        Outcast,
    }
);

/// Pairs of hosts that the test measures, instead of `from` and `to`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pairs {
    /// The hosts in their order: names, ranges, or the name that numbered hosts share (`node` of `node1`, `node2`, …).
    pub of: Option<OneOrMany>,
    /// The pairs among them; `all` by default.
    pub shape: Option<Shape>,
    /// The receiver of an incast.
    pub to: Option<String>,
    /// The sender of an outcast.
    pub from: Option<String>,
    /// Whether each pair is also measured the other way; by default with `all` and `neighbours`.
    pub both_ways: Option<bool>,
    /// Whether to measure one pair at a time.
    pub alone: Option<bool>,
}
