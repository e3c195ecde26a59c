//! The names of columns: one vocabulary for plans, filters and pictures.
//!
//! A column of a results table can be named by itself (`message_bytes`), by its metric (`throughput`, `latency.p99`), by
//! the plan key that fills it (`message_size`, `rate`), and, where a swept key has an axis column, by the key's path
//! (`socket.mss`, `duration`), with or without `axis_`. In a table of `plumb aggregate`, `METRIC.STATISTIC` names the
//! column of a statistic (`throughput.mean`, `latency.p99.ci_low`). [`resolve`] is the only place that knows this.

use std::borrow::Cow;

use crate::columns::{self, AXIS_PREFIX, axis_column};
use crate::metrics::{self, METRICS, Metric};
use crate::units::Unit;

/// Plan keys with a column for the value asked for. Every other swept key gets an axis column, and so does one of these where the
/// column does not have the swept value in every row.
pub const KEY_COLUMNS: &[(&str, &str)] = &[
    ("workload", "workload"),
    ("from", "from"),
    ("to", "to"),
    ("direction", "direction"),
    ("streams", "streams"),
    ("message_size", "message_bytes"),
    ("receive_size", "receive_bytes"),
    ("request_size", "request_bytes"),
    ("response_size", "response_bytes"),
    ("inflight", "inflight"),
    ("receive", "receive"),
    ("operation", "operation"),
    ("class", "class"),
    ("coalesce", "coalesce"),
    ("rate", "offered_per_s"),
    ("cpu", "local_cpu"),
    ("remote_cpu", "remote_cpu"),
];

/// Plan keys and the columns of what the kernel granted: they stand for the key in tables where it was not swept.
const GRANTED: &[(&str, &str)] = &[
    ("socket.congestion_control", "congestion_control"),
    ("socket.no_delay", "no_delay"),
    ("socket.gso", "gso"),
    ("socket.gro", "gro"),
    ("socket.ecn", "ecn"),
    ("tags", "tag"),
    ("wire", "wire_bits_per_s"),
];

/// Words that people bring from other tools, and the plan keys that they mean: a key, its path, or a key with its value.
const WORDS_FOR_KEYS: &[(&str, &str)] = &[
    ("bandwidth", "rate"),
    ("bitrate", "rate"),
    ("cipher", "tls.cipher"),
    ("confidence", "iterations: {confidence: …}"),
    ("connections", "streams"),
    ("duration_s", "duration"),
    ("flows", "streams"),
    ("host", "to"),
    ("length", "message_size"),
    ("margin", "iterations: {margin: …}"),
    ("mss", "socket.mss"),
    ("nodelay", "socket.no_delay"),
    ("omit", "warmup"),
    ("parallel", "streams"),
    ("port", "remote_ports"),
    ("protocol", "workload"),
    ("repeat", "iterations"),
    ("repetitions", "iterations"),
    ("reverse", "direction: reverse"),
    ("runs", "iterations"),
    ("seconds", "duration"),
    ("server", "to"),
    ("size", "message_size"),
    ("time", "duration"),
    ("tos", "socket.dscp"),
    ("type", "workload"),
    ("window", "socket.send_buffer"),
    // Keys of a test at the top of a plan.
    ("duration", "defaults: {duration: …}"),
    ("iterations", "defaults: {iterations: …}"),
    ("to", "defaults: {to: …}"),
    ("workload", "tests: {NAME: {workload: …}}"),
    // Words of a direction.
    ("bidir", "bidirectional"),
    ("both", "bidirectional"),
    ("down", "reverse"),
    ("download", "reverse"),
    ("up", "forward"),
    ("upload", "forward"),
];

/// Words for metrics in the manner of [`WORDS_FOR_KEYS`].
const WORDS_FOR_METRICS: &[(&str, &str)] = &[
    ("bandwidth", "throughput"),
    ("bitrate", "throughput"),
    ("delay", "latency.p50"),
    ("goodput", "throughput"),
    ("latency", "latency.p99"),
    ("loss", "loss_ratio"),
    ("ping", "latency.p50"),
    ("retries", "retransmits"),
    ("speed", "throughput"),
    ("tps", "transaction_rate"),
];

fn meant(words: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let plain = word.to_ascii_lowercase().replace('-', "_");
    words.iter().find(|(known, _)| *known == plain).map(|(_, means)| *means)
}

/// The key of a plan that a word of another tool, a column or a metric means, if it is among the keys that fit here.
#[must_use]
pub fn key_meant(word: &str, keys: &[&str]) -> Option<&'static str> {
    let granted = GRANTED.iter().find(|(_, column)| *column == word).map(|(key, _)| *key);
    let fits = |path: &&str| keys.contains(&path.split(['.', ':']).next().unwrap_or(path));
    [meant(WORDS_FOR_KEYS, word), key_of(word), granted].into_iter().flatten().find(fits)
}

/// The column of the value that a plan key asks for; `None` for a key that has only an axis column.
#[must_use]
pub fn column_of_key(key: &str) -> Option<&'static str> {
    KEY_COLUMNS.iter().find(|(name, _)| *name == key).map(|(_, column)| *column)
}

/// The axis column of the key that fills a column, where a plan that sweeps the key has one beside it.
#[must_use]
pub fn axis_of(column: &str) -> Option<String> {
    KEY_COLUMNS.iter().find(|(_, of)| *of == column).map(|(key, _)| axis_column(key))
}

/// The plan key for a column's or a metric's name, where their names differ: `message_bytes` → `message_size`.
#[must_use]
pub fn key_of(name: &str) -> Option<&'static str> {
    let column = metrics::find(name).map_or(name, |metric| metric.column);
    KEY_COLUMNS.iter().find(|(key, of)| *of == column && *key != name).map(|(key, _)| *key)
}

/// Why a name does not lead to one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No column has that name.
    Missing,
    /// It names several columns: these.
    Ambiguous(Vec<String>),
}

/// The index of the column that a name means among these. A column's own name wins over every other meaning.
pub fn resolve(name: &str, columns: &[String]) -> Result<usize, Unresolved> {
    let exact = |name: &str| columns.iter().position(|column| column == name);
    if let Some(index) = exact(name) {
        return Ok(index);
    }
    let path = name.strip_prefix(AXIS_PREFIX).unwrap_or(name);
    let metric = metrics::find(name).map(|metric| metric.column.to_owned());
    let key = column_of_key(path).map(str::to_owned);
    let readings = [metric, key, Some(axis_column(path)), statistic(name)];
    let mut found: Vec<usize> = Vec::new();
    for index in readings.iter().flatten().filter_map(|column| exact(column)) {
        if !found.contains(&index) {
            found.push(index);
        }
    }
    match found[..] {
        [] => {
            let granted = GRANTED.iter().find(|(key, _)| *key == path).and_then(|(_, column)| exact(column));
            granted.ok_or(Unresolved::Missing)
        }
        [index] => Ok(index),
        _ => Err(Unresolved::Ambiguous(found.into_iter().map(|i| columns[i].clone()).collect())),
    }
}

/// The column of `plumb aggregate` for `METRIC.STATISTIC`.
fn statistic(name: &str) -> Option<String> {
    let (metric, statistic) = name.rsplit_once('.')?;
    Some(format!("{}_{statistic}", metrics::find(metric)?.column))
}

/// The name of the column that a name means when the table is not at hand. Unknown names stay as they are.
#[must_use]
pub fn canonical(name: &str) -> Cow<'_, str> {
    if columns::find(name).is_some() {
        return name.into();
    }
    let path = name.strip_prefix(AXIS_PREFIX).unwrap_or(name);
    if let Some(column) = metrics::find(name).map(|metric| metric.column).or_else(|| column_of_key(path)) {
        return column.into();
    }
    if path.contains('.') { statistic(name).unwrap_or_else(|| axis_column(path)).into() } else { name.into() }
}

/// All names for these columns, for suggestions.
#[must_use]
pub fn spellings(columns: &[String]) -> Vec<String> {
    let has = |name: &str| columns.iter().any(|column| column == name);
    let mut names = columns.to_vec();
    names.extend(METRICS.iter().filter(|m| has(m.column)).map(|m| m.name.to_owned()));
    names.extend(KEY_COLUMNS.iter().filter(|(_, column)| has(column)).map(|(key, _)| (*key).to_owned()));
    names.extend(columns.iter().filter_map(|column| column.strip_prefix(AXIS_PREFIX)).map(str::to_owned));
    names.extend(columns.iter().filter_map(|column| {
        let Meaning { metric: Some(metric), statistic: Some(statistic), .. } = Meaning::of(column) else { return None };
        Some(format!("{}.{statistic}", metric.name))
    }));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The metric of a name, or a sentence why there is none.
pub fn metric(name: &str) -> Result<&'static Metric, String> {
    let column = canonical(name);
    if let Some(metric) = metrics::find(&column) {
        return Ok(metric);
    }
    let names: Vec<&str> = METRICS.iter().flat_map(|m| [m.name, m.column]).collect();
    let help = match meant(WORDS_FOR_METRICS, name).or_else(|| nearest(name, &names)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "for example throughput, transaction_rate, latency.p99, loss_ratio, retransmits".to_owned(),
    };
    Err(match columns::find(&column) {
        Some(_) => format!("`{name}` is a column, not a metric: {help}"),
        None => format!("unknown metric `{name}`: {help}"),
    })
}

/// The candidate most like a name; `None` where none is alike. Dots, hyphens and case do not count.
pub fn nearest<'a, S: AsRef<str>>(name: &str, candidates: &'a [S]) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['.', '-'], "_");
    let name = plain(name);
    let likeness = |candidate: &str| {
        let candidate = plain(candidate);
        let edits = strsim::damerau_levenshtein(&candidate, &name);
        let few = edits <= 1 + name.len().min(candidate.len()) / 4;
        let score = strsim::jaro_winkler(&candidate, &name);
        (few || score > 0.84).then_some(score + if few { 1.0 } else { 0.0 })
    };
    candidates
        .iter()
        .filter_map(|candidate| Some((likeness(candidate.as_ref())?, candidate.as_ref())))
        // Of equally good ones the first.
        .reduce(|best, other| if other.0 > best.0 { other } else { best })
        .map(|(_, candidate)| candidate)
}

/// The contents of a column, from its name.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// Its metric, or the one that it holds a statistic of.
    pub metric: Option<&'static Metric>,
    /// The statistic after the metric's column: `mean` in `throughput_bits_per_s_mean`.
    pub statistic: Option<String>,
    /// The unit of its numbers.
    pub unit: Option<Unit>,
}

impl Meaning {
    /// Of a results column, a column of `plumb aggregate`, or any column whose name ends in a unit.
    #[must_use]
    pub fn of(column: &str) -> Self {
        if let Some(metric) = METRICS.iter().find(|m| m.column == column) {
            return Self { metric: Some(metric), statistic: None, unit: Some(metric.unit) };
        }
        let longest = METRICS
            .iter()
            .filter(|m| column.strip_prefix(m.column).is_some_and(|rest| rest.starts_with('_')))
            .max_by_key(|m| m.column.len());
        if let Some(metric) = longest.filter(|_| columns::find(column).is_none()) {
            let statistic = column[metric.column.len() + 1..].to_owned();
            let unit = match statistic.as_str() {
                s if s.ends_with("_ratio") => Some(Unit::Ratio),
                "count" => None,
                _ => Some(metric.unit),
            };
            return Self { metric: Some(metric), statistic: Some(statistic), unit };
        }
        let number = columns::find(column).is_none_or(|c| c.ty.is_number());
        let unit = Unit::of_column(column).filter(|_| number).map(|(_, unit)| unit);
        Self { metric: None, statistic: None, unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, columns: &[&str]) -> Result<String, Unresolved> {
        let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
        resolve(name, &columns).map(|i| columns[i].clone())
    }

    const TABLE: &[&str] = &[
        "case",
        "io",
        "streams",
        "message_bytes",
        "offered_per_s",
        "congestion_control",
        "local_cpu",
        "throughput_bits_per_s",
        "latency_p99_us",
        "axis_io",
        "axis_duration",
        "axis_socket_mss",
    ];

    #[test]
    fn keys_metrics_paths_and_columns_are_one_vocabulary() {
        for (name, column) in [
            ("throughput", "throughput_bits_per_s"),
            ("throughput.mean", "throughput_bits_per_s"),
            ("latency.p99", "latency_p99_us"),
            ("latency_p99_us", "latency_p99_us"),
            ("message_size", "message_bytes"),
            ("axis_message_size", "message_bytes"),
            ("rate", "offered_per_s"),
            ("cpu", "local_cpu"),
            ("streams", "streams"),
            ("axis_streams", "streams"),
            ("socket.mss", "axis_socket_mss"),
            ("socket_mss", "axis_socket_mss"),
            ("axis_socket.mss", "axis_socket_mss"),
            ("duration", "axis_duration"),
            ("socket.congestion_control", "congestion_control"),
            // The column's own name wins; the swept key has its prefix.
            ("io", "io"),
            ("axis_io", "axis_io"),
        ] {
            assert_eq!(found(name, TABLE).as_deref(), Ok(column), "{name}");
        }
        let swept = ["congestion_control", "axis_socket_congestion_control"];
        assert_eq!(found("socket.congestion_control", &swept).as_deref(), Ok("axis_socket_congestion_control"));
        assert_eq!(found("mss", TABLE), Err(Unresolved::Missing));
    }

    #[test]
    fn statistics_are_named_after_their_metric() {
        let table = ["throughput_bits_per_s_mean", "latency_p99_us_ci_low", "throughput_bits_per_s_count"];
        assert_eq!(found("throughput.mean", &table).as_deref(), Ok(table[0]));
        assert_eq!(found("latency.p99.ci_low", &table).as_deref(), Ok(table[1]));
        assert_eq!(found("throughput", &table), Err(Unresolved::Missing));
        assert_eq!(Meaning::of(table[0]).unit, Some(Unit::BitsPerSecond));
        assert_eq!(Meaning::of(table[2]).unit, None);
        assert!(spellings(&table.map(str::to_owned)).contains(&"latency.p99.ci_low".to_owned()));
    }

    #[test]
    fn a_name_of_two_columns_is_ambiguous() {
        let own = ["message_bytes", "axis_message_size"];
        let Err(Unresolved::Ambiguous(names)) = found("message_size", &own) else { panic!() };
        assert_eq!(names, own);
    }

    #[test]
    fn names_without_a_table_become_the_column_of_a_run() {
        for (name, column) in [
            ("throughput", "throughput_bits_per_s"),
            ("rate", "offered_per_s"),
            ("socket.mss", "axis_socket_mss"),
            ("io", "io"),
            ("own", "own"),
            ("throughput.median", "throughput_bits_per_s_median"),
        ] {
            assert_eq!(canonical(name), column);
        }
        assert_eq!((key_of("message_bytes"), key_of("streams"), key_of("sends")), (Some("message_size"), None, None));
    }

    #[test]
    fn words_of_other_tools_mean_keys_and_metrics() {
        let keys = ["duration", "direction", "streams", "socket", "message_size", "wire"];
        assert_eq!(key_meant("time", &keys), Some("duration"));
        assert_eq!(key_meant("reverse", &keys), Some("direction: reverse"));
        assert_eq!(key_meant("congestion_control", &keys), Some("socket.congestion_control"));
        assert_eq!(key_meant("message_bytes", &keys), Some("message_size"));
        assert_eq!(key_meant("bandwidth", &keys), None, "`rate` does not fit here");
        assert_eq!(key_meant("workload", &["version", "tests"]), Some("tests: {NAME: {workload: …}}"));
        assert_eq!(key_meant("upload", &["forward", "reverse"]), Some("forward"));
        assert!(metric("bandwidth").unwrap_err().contains("did you mean `throughput`?"));
        assert!(metric("latency").unwrap_err().contains("did you mean `latency.p99`?"), "and not the smallest one");
        for (word, metric) in WORDS_FOR_METRICS {
            assert!(metrics::find(word).is_none() && metrics::find(metric).is_some(), "{word}");
        }
    }

    #[test]
    fn unknown_metrics_get_a_suggestion() {
        assert_eq!(metric("message_size").map(|m| m.column), Ok("message_bytes"));
        assert_eq!(metric("throughput_bits_per_s").map(|m| m.name), Ok("throughput"));
        assert_eq!(metric("thruput").unwrap_err(), "unknown metric `thruput`: did you mean `throughput`?");
        assert_eq!(metric("latency_p98").unwrap_err(), "unknown metric `latency_p98`: did you mean `latency.p90`?");
        assert!(metric("rate").unwrap_err().starts_with("`rate` is a column, not a metric"));
        assert!(metric("colour").unwrap_err().contains("for example throughput"));
    }

    #[test]
    fn columns_of_keys_are_columns() {
        for (_, column) in KEY_COLUMNS.iter().chain(GRANTED) {
            assert!(columns::find(column).is_some(), "{column}");
        }
    }
}
