//! The keys of a test, one row each, and the published JSON Schema of a plan.
//!
//! The kind of a key (bytes, a time, a count) follows from the type of its field, by the published schema. So a new key
//! takes a field of [`TestBody`] and a row here, and a new socket option no row at all.
//!
//! The schema is made from the types that read a plan. The program has the published text, not the code that makes it: the
//! code of all types' schemas is large.

use std::sync::LazyLock;

use miniz_oxide::inflate::decompress_to_vec_zlib;
use schemas::units::{self, Rate};
use serde_json::{Map, Value as Json};

use super::{
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, Span},
    model::TestBody,
    tree::{Node, Value},
};

/// The kind of quantity that a key of a test holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Bytes.
    Size,
    Time,
    /// An offered load.
    Rate,
    Count,
    Word,
}

impl KeyKind {
    /// Whether a generator can count through its values.
    pub fn is_number(self) -> bool {
        self != Self::Word
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Self::Size | Self::Count)
    }

    /// The value in its base unit: bytes, seconds, bits (or events) per second, a count.
    pub fn number(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Size => units::parse_size(text).map(|v| v as f64).map_err(|e| e.to_string()),
            Self::Time => units::parse_duration(text).map(|v| v.as_secs_f64()).map_err(|e| e.to_string()),
            Self::Rate => units::parse_rate(text).map_err(|e| e.to_string()).map(|r| match r {
                Rate::Bits(v) | Rate::Events(v) => v,
            }),
            Self::Count => text
                .parse::<f64>()
                .ok()
                .filter(|v| *v >= 0.0 && v.is_finite())
                .ok_or_else(|| format!("`{text}` is not a count: write a whole number")),
            Self::Word => Err(format!("`{text}` is not compared by size")),
        }
    }

    /// A number of the base unit as a plan would write it.
    pub fn text(self, number: f64) -> String {
        match self {
            Self::Rate => {
                let steps = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
                // The largest prefix that leaves at most three decimals.
                let (step, unit) = steps
                    .into_iter()
                    .find(|(step, _)| number >= *step && (number / step * 1e3).fract() == 0.0)
                    .unwrap_or((1.0, "bit/s"));
                format!("{}{unit}", number / step)
            }
            Self::Time => format!("{number}s"),
            Self::Size | Self::Count | Self::Word => number.to_string(),
        }
    }
}

/// A mistake in a key of a resolved test body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Dotted.
    pub key: String,
    pub message: String,
    pub help: String,
}

pub(super) fn error(key: &str, message: impl Into<String>, help: impl Into<String>) -> SpecError {
    SpecError { key: key.to_owned(), message: message.into(), help: help.into() }
}

/// The part of a plan that a key applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole test. Members of a group do not inherit it.
    Test,
    /// A member, whatever it runs.
    Member,
    /// Traffic between two ends.
    Traffic,
    /// Traffic between several ranks.
    Ranks,
    /// Traffic of both kinds.
    Both,
}

/// A key of a test.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub scope: Scope,
    /// Whether a matrix may sweep it. Keys that cannot be swept decide what a test is; the others parametrise it.
    pub sweeps: bool,
}

macro_rules! keys {
    (@sweeps swept) => { true };
    (@sweeps fixed) => { false };
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $text:literal) => { $text };
    ($($scope:ident $sweeps:ident: $($name:ident $(= $text:literal)?)*;)*) => {
        /// The name of each key: one that is misspelt in code does not compile.
        pub mod key {
            $($(
                #[expect(non_upper_case_globals, reason = "spelt like the key")]
                pub const $name: &str = keys!(@name $name $($text)?);
            )*)*
        }

        /// Every key, in the order of the fields of [`TestBody`].
        pub const KEYS: &[Key] = &[$($(
            Key { name: key::$name, scope: Scope::$scope, sweeps: keys!(@sweeps $sweeps) },
        )*)*];
    };
}

keys! {
    Member swept: workload from to;
    Ranks swept: ranks ranks_per_host operation class compute;
    Traffic swept: control connected direction streams threads;
    Both swept: message_size;
    Traffic swept: receive_size request_size response_size inflight coalesce rate;
    Traffic fixed: wire;
    Traffic swept: pacing arrival io receive;
    Both swept: socket;
    Traffic swept: remote_socket buffers remote_buffers payload;
    Both swept: integrity cpu;
    Traffic swept: remote_cpu ports remote_ports close reply_timeout after idle;
    Both swept: warmup;
    Traffic swept: cooldown;
    Both swept: duration;
    Traffic swept: bytes;
    Both swept: transactions;
    Traffic swept: interval;
    Test swept: iterations;
    Test fixed: matrix pairs concurrent;
    Traffic swept: collect tls quic hops one_way timestamps outage;
    Test fixed: assert assert_more = "assert+" stop_when;
    Test swept: find;
    Member swept: command;
    Test fixed: hooks tags;
    Test swept: skip;
    Test fixed: extends;
    Test swept: pause timeout;
}

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The key that a dotted path is in.
pub fn of_path(path: &str) -> Option<&'static Key> {
    find(path.split('.').next().unwrap_or(path))
}

/// Whether the values of the key at a dotted path are hosts.
pub fn names_hosts(path: &str) -> bool {
    let of_member = path.strip_prefix("concurrent.members.").and_then(|rest| rest.split_once('.'));
    matches!(of_member.map_or(path, |(_, key)| key), "from" | "to")
}

/// The names of keys that apply to the whole test.
pub fn of_whole_test() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(|key| key.scope == Scope::Test).map(|key| key.name)
}

/// The mistakes in a value of the key at a dotted path, read as a test with nothing else.
pub fn mistakes(path: &str, value: Node, key_span: Span) -> Vec<Diagnostic> {
    let mut body = Node::empty_map(key_span);
    body.set(path, value);
    point_keys_at(&mut body, key_span, path.split('.').count());
    let mut out = Diagnostics::default();
    decode::<TestBody>(&body, &mut out);
    out.sorted().into_iter().cloned().collect()
}

fn point_keys_at(node: &mut Node, span: Span, depth: usize) {
    if let (Value::Map(entries), 1..) = (&mut node.value, depth) {
        for entry in entries {
            entry.key_span = span;
            point_keys_at(&mut entry.value, span, depth - 1);
        }
    }
}

/// The path of a key as somebody may write it as an option of the command line: `message-size`, `mss` (`socket.mss`).
pub fn path_of_option(name: &str) -> Option<String> {
    let name = name.replace('-', "_");
    let key = |path: &str| of_path(path).map(|key| key.name);
    let is_path = !name.contains('.') || kind(&name) != KeyKind::Word;
    if is_path && key(&name).is_some() {
        return Some(name);
    }
    let inner = |key: &&Key| properties(key.name).is_some_and(|inner| inner.contains_key(&name));
    KEYS.iter().find(inner).map(|key| format!("{}.{name}", key.name))
}

/// Whether it is a key of the plan itself, and not of its tests.
pub fn is_of_plan(key: &str) -> bool {
    !plan_schema_once()["properties"][key].is_null()
}

/// A sentence about a key of a test, from the published schema.
pub fn about(key: &str) -> Option<&'static str> {
    inner_keys(&plan_schema_once()["properties"]["defaults"])?[key]["description"].as_str()
}

/// The keys inside of a key, by the published schema.
fn properties(key: &str) -> Option<&'static Map<String, Json>> {
    inner_keys(&inner_keys(&plan_schema_once()["properties"]["defaults"])?[key])
}

/// The keys of a map, also behind references and among several forms.
fn inner_keys(schema: &'static Json) -> Option<&'static Map<String, Json>> {
    if let Some(keys) = schema["properties"].as_object() {
        return Some(keys);
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return inner_keys(&plan_schema_once()["$defs"][name]);
    }
    ["anyOf", "oneOf"].iter().filter_map(|form| schema[*form].as_array()).flatten().find_map(inner_keys)
}

fn plan_schema_once() -> &'static Json {
    static SCHEMA: LazyLock<Json> = LazyLock::new(|| serde_json::from_slice(PUBLISHED.as_bytes()).unwrap_or_default());
    &SCHEMA
}

/// The kind of the key at a dotted path, by the type of its field in the published schema.
pub fn kind(path: &str) -> KeyKind {
    let schema = plan_schema_once();
    let named = |schema: &'static Json| schema["$ref"].as_str()?.strip_prefix("#/$defs/");
    // The schema of an optional field is its type or null.
    let present = |schema: &'static Json| {
        schema["anyOf"].as_array().and_then(|either| either.iter().find(|s| s["type"] != "null")).unwrap_or(schema)
    };
    let mut at: &'static Json = &schema["properties"]["defaults"];
    for part in path.split('.') {
        let of = present(at);
        let map = named(of).map_or(of, |name| &schema["$defs"][name]);
        at = map["properties"].get(part).unwrap_or(&map["additionalProperties"]);
    }
    at = present(at);
    match named(at) {
        Some("Size") => KeyKind::Size,
        Some("Time" | "Warmup") => KeyKind::Time,
        Some("Rate") => KeyKind::Rate,
        Some("Cpus" | "Dscp" | "Iterations") => KeyKind::Count,
        _ if at["type"] == "integer" || at["type"][0] == "integer" => KeyKind::Count,
        _ => KeyKind::Word,
    }
}

/// `schemas/plan.schema.json`, as build.rs compressed it: to a seventh. The example `plan_schema` writes it.
pub static PUBLISHED: LazyLock<String> = LazyLock::new(|| {
    // The text is compiled in: a failure means a broken build, which every test shows.
    let bytes = decompress_to_vec_zlib(include_bytes!(concat!(env!("OUT_DIR"), "/plan.schema.json.zlib")));
    String::from_utf8(bytes.expect("the built-in schema is compressed")).expect("the built-in schema is a text")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_test_has_its_row() {
        let fields = plan_schema_once()["$defs"]["TestBody"]["properties"].as_object().unwrap();
        let fields: Vec<&str> = fields.keys().map(String::as_str).collect();
        let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names, fields);
    }

    #[test]
    fn keys_that_the_engines_name_are_keys() {
        // `bind` is a key of a host; a plan has one key for two of the engines' (`beyond_the_engines`).
        let others = ["bind", "port", "port_count"];
        for key in netcore::spec::key::ALL {
            assert!(find(key).is_some() || others.contains(key), "{key}");
        }
    }

    #[test]
    fn keys_with_a_column_are_keys() {
        for (key, _) in schemas::vocabulary::KEY_COLUMNS {
            assert!(find(key).is_some(), "{key}");
        }
    }

    #[test]
    fn options_of_other_programs_are_found_among_the_keys() {
        for (option, path) in [
            ("duration", Some("duration")),
            ("message-size", Some("message_size")),
            ("mss", Some("socket.mss")),
            ("congestion-control", Some("socket.congestion_control")),
            ("margin", Some("iterations.margin")),
            ("socket.mss", Some("socket.mss")),
            ("no-such-key", None),
        ] {
            assert_eq!(path_of_option(option).as_deref(), path, "{option}");
        }
    }

    #[test]
    fn kinds_follow_from_the_types_of_fields() {
        for (of, paths) in [
            (KeyKind::Size, "message_size receive_size request_size response_size bytes"),
            (KeyKind::Size, "socket.send_buffer remote_socket.receive_buffer socket.mss socket.notsent_lowat"),
            (
                KeyKind::Size,
                "socket.checksum_coverage buffers.alignment buffers.offset buffers.dirty remote_buffers.clean",
            ),
            (KeyKind::Time, "after warmup cooldown duration interval pause timeout reply_timeout pacing.every"),
            (KeyKind::Time, "socket.busy_poll socket.defer_accept socket.linger"),
            (KeyKind::Rate, "rate concurrent.members.up.rate"),
            (KeyKind::Count, "streams threads inflight transactions iterations cpu remote_cpu"),
            (KeyKind::Count, "socket.priority socket.ttl socket.dscp pacing.burst pacing.catch_up buffers.ring"),
            (
                KeyKind::Word,
                "workload from to ports io payload socket.no_delay socket.mtu_discover skip collect no.such.key",
            ),
        ] {
            for path in paths.split(' ') {
                assert_eq!(kind(path), of, "{path}");
            }
        }
    }
}
