//! Surveys in a results table: the pairs of each test.

use super::{Cell, Ends, Matrix};
use crate::{
    error::Error,
    limits,
    table::{
        Field, Picker, Row, Selection, Table,
        select::{Preferred, is_cut_short},
    },
};
use indexmap::IndexMap;
use schemas::{
    columns::{AXIS_PREFIX, results::column},
    metrics::{self, Better, Family, Metric},
    vocabulary,
    words::{Status, Way},
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Limit of the hosts of a survey: a pair of each two has a cell, and their names are those of the file.
const MOST_HOSTS: usize = 4096;

/// Names and values that tell a survey from the others.
type Key = Vec<(String, String)>;

/// The pairs of one test, or of one combination of its swept values.
pub struct Pairs {
    pub key: Key,
    pub metric: &'static Metric,
    pub ends: Ends,
    pub matrix: Matrix,
    pub origin: Origin,
}

/// Place and time of the pairs' measurements.
#[derive(Default)]
pub struct Origin {
    pub plan: String,
    /// Runs, in the order of the table.
    pub runs: Vec<String>,
    /// First and last day.
    pub days: Option<(String, String)>,
    /// Largest number of iterations of a pair.
    pub iterations: usize,
}

impl Origin {
    fn of(measurements: &[Measurement]) -> Self {
        let mut origin = Self::default();
        let mut iterations: HashMap<(&str, &str), HashSet<&str>> = HashMap::new();
        for m in measurements {
            origin.plan.clone_from(&m.plan);
            if !m.run.is_empty() && !origin.runs.contains(&m.run) {
                origin.runs.push(m.run.clone());
            }
            let day = m.time.split('T').next().unwrap_or_default().to_owned();
            if !day.is_empty() {
                let (first, last) = origin.days.get_or_insert_with(|| (day.clone(), day.clone()));
                if day < *first {
                    first.clone_from(&day);
                }
                if day > *last {
                    *last = day;
                }
            }
            iterations.entry((&m.from, &m.to)).or_default().insert(&m.iteration);
        }
        origin.iterations = iterations.values().map(HashSet::len).max().unwrap_or_default();
        origin
    }
}

impl Pairs {
    /// `links[message_size=65536]`
    pub fn name(&self) -> String {
        let mut texts = self.key.iter().filter(|(_, text)| !text.is_empty());
        let first = texts.next().map(|(_, text)| text.clone()).unwrap_or_default();
        let rest: Vec<String> =
            texts.map(|(name, text)| format!("{}={text}", name.trim_start_matches(AXIS_PREFIX))).collect();
        if rest.is_empty() { first } else { format!("{first}[{}]", rest.join(",")) }
    }
}

/// A row of a pair.
#[derive(Clone)]
struct Measurement {
    /// The cells of [`Columns::apart`].
    apart: Vec<String>,
    from: String,
    to: String,
    way: Option<Way>,
    family: Family,
    plan: String,
    run: String,
    time: String,
    iteration: String,
    round: Option<u64>,
    status: Taken,
    /// Share of the time in which others took a CPU.
    cpu_taken: Option<f64>,
    /// By metric, in the order of [`Columns::metrics`].
    values: Vec<Option<f64>>,
}

/// The meaning of a row's status for its pair.
#[derive(Clone, Copy, PartialEq)]
enum Taken {
    Measured,
    Failed,
    /// Not measured to the end, or measured again: it tells the hosts, and that the pair was asked for.
    Left,
}

impl Taken {
    fn of(status: &str) -> Self {
        match status.parse() {
            Ok(Status::Skipped | Status::Discarded | Status::Confirm | Status::Cut) => Self::Left,
            Ok(Status::Failed | Status::Timeout) => Self::Failed,
            Ok(Status::Ok) | Err(_) => Self::Measured,
        }
    }
}

struct Columns {
    /// Columns that tell surveys apart where a pair has several values: the member, and those of keys that a plan may sweep.
    apart: Vec<(&'static str, usize)>,
    /// Columns that tell surveys apart.
    key: Vec<usize>,
    metrics: Vec<(usize, &'static Metric)>,
}

impl Columns {
    fn of(table: &Table, metric: Option<&str>) -> Result<Self, Error> {
        table.require(column::from)?;
        table.require(column::to)?;
        let header = table.header();
        let swept =
            |name: &str| name.strip_prefix(AXIS_PREFIX).is_some_and(|path| path != column::from && path != column::to);
        let key = header
            .names()
            .iter()
            .enumerate()
            .filter(|(_, name)| *name == column::test || swept(name))
            .map(|(column, _)| column)
            .collect();
        let metrics = match metric {
            None => metrics::headlines().iter().filter_map(|m| Some((header.find(m.column)?, *m))).collect(),
            Some(name) => {
                let column = table.require(name)?;
                let known = metrics::find(&header.names()[column]);
                let Some(metric) = known.filter(|m| m.better != Better::Neither) else {
                    return Err(Error::Usage(format!(
                        "-m {name}: neither more nor less of it is better, so that nothing can be slow: choose a metric \
                         such as throughput or latency.p50"
                    )));
                };
                vec![(column, metric)]
            }
        };
        let swept = vocabulary::KEY_COLUMNS.iter().map(|(_, column)| *column);
        let swept = swept.filter(|column| ![column::from, column::to, column::direction].contains(column));
        let apart =
            std::iter::once(column::member).chain(swept).filter_map(|name| Some((name, header.find(name)?))).collect();
        Ok(Self { apart, key, metrics })
    }

    fn measurement(&self, row: &Row<'_>) -> Result<Measurement, Error> {
        let text = |field| row.text(field).to_owned();
        let values = self.metrics.iter().map(|(column, _)| row.number(*column)).collect::<Result<_, _>>()?;
        Ok(Measurement {
            apart: self.apart.iter().map(|(_, column)| row.get(*column).to_owned()).collect(),
            from: text(Field::from),
            to: text(Field::to),
            way: row.text(Field::direction).parse().ok(),
            family: row.family(),
            plan: text(Field::plan),
            run: text(Field::run_id),
            time: text(Field::time),
            iteration: text(Field::iteration),
            round: row.text(Field::round).parse().ok(),
            status: Taken::of(row.text(Field::status)),
            cpu_taken: row.value(Field::cpu_taken_ratio)?,
            values,
        })
    }
}

/// Reads the surveys of a table. `metric`: the name of a metric; without, the headline of each survey's workload.
pub fn read(table: &mut Table, selection: &Selection, metric: Option<&str>) -> Result<Vec<Pairs>, Error> {
    let columns = Columns::of(table, metric)?;
    let mut picker = Picker::of_any_status(selection, table)?;
    let mut kept: Preferred<IndexMap<Vec<String>, Vec<Measurement>>> = Preferred::default();
    let mut never_ran: HashMap<Vec<String>, Vec<Measurement>> = HashMap::new();
    while let Some(row) = table.next_row()? {
        let Some(kind) = picker.pick(&row)? else { continue };
        let (from, to) = (row.text(Field::from), row.text(Field::to));
        // Totals of a group, and traffic of a host with itself, are no pairs.
        if from.is_empty() || to.is_empty() || from == to {
            continue;
        }
        let key = || columns.key.iter().map(|c| row.get(*c).to_owned()).collect();
        if is_cut_short(&row) {
            never_ran.entry(key()).or_default().push(columns.measurement(&row)?);
        } else if let Some(groups) = kept.slot(kind) {
            groups.entry(key()).or_insert_with(Vec::new).push(columns.measurement(&row)?);
        }
    }
    picker.matched(table)?;
    let groups = kept.of_observations("--record iteration")?;
    let names: Vec<String> = columns.key.iter().map(|c| table.header().names()[*c].clone()).collect();
    let mut surveys = Vec::new();
    for (key, measurements) in groups {
        let never_ran = never_ran.remove(&key).unwrap_or_default();
        let key: Key = names.iter().cloned().zip(key).collect();
        let mut parts = vec![(key, measurements)];
        for (at, (name, _)) in columns.apart.iter().enumerate() {
            parts = parts.into_iter().flat_map(|(key, part)| told_apart(key, part, name, at)).collect();
        }
        for (key, mut part) in parts {
            part.extend(never_ran.iter().cloned());
            surveys.extend(pairs(key, &part, &columns.metrics)?);
        }
    }
    if surveys.iter().all(|s| s.matrix.pairs().filter(|p| p.2 != Cell::Missing).count() < 2) {
        return Err(table.error(
            "no test was measured between several pairs of hosts: a survey is a test with `pairs`, or with several values of \
             `from` and `to`",
        ));
    }
    Ok(surveys)
}

/// Splits a test by a column of which a pair has several values: those measure different things. Members with a pair each are
/// the pairs of one load.
fn told_apart(key: Key, measurements: Vec<Measurement>, name: &str, at: usize) -> Vec<(Key, Vec<Measurement>)> {
    let mut seen: HashMap<(&str, &str), &str> = HashMap::new();
    let split = measurements.iter().any(|m| *seen.entry((&m.from, &m.to)).or_insert(&m.apart[at]) != m.apart[at]);
    if !split {
        return vec![(key, measurements)];
    }
    let mut parts: IndexMap<String, Vec<Measurement>> = IndexMap::new();
    for measurement in measurements {
        parts.entry(measurement.apart[at].clone()).or_default().push(measurement);
    }
    let named = |value: String| key.iter().cloned().chain([(name.to_owned(), value)]).collect();
    parts.into_iter().map(|(value, part)| (named(value), part)).collect()
}

fn pairs(key: Key, measurements: &[Measurement], metrics: &[(usize, &'static Metric)]) -> Result<Option<Pairs>, Error> {
    let family = measurements.first().map(|m| m.family).unwrap_or_default();
    // A load may add nothing to a latency, and such values have no ratios: then the latency itself is surveyed.
    let has = |metric: &Metric| {
        let at = metrics.iter().position(|(_, m)| m.column == metric.column);
        let measured = measurements.iter().filter(|m| m.status == Taken::Measured);
        let values: Vec<f64> = at.map_or(Vec::new(), |at| measured.filter_map(|m| m.values[at]).collect());
        !values.is_empty() && (metric.better != Better::Lower || values.iter().all(|value| *value > 0.0))
    };
    let chosen = match metrics {
        [only] => Some(only.1),
        _ => family.headline(has),
    };
    // Every pair has failed: the survey says so.
    let fallback = || metrics.iter().map(|(_, m)| *m).find(|m| family.headlines().contains(&m.name));
    let Some(metric) = chosen.or_else(fallback) else { return Ok(None) };
    let at = metrics.iter().position(|(_, m)| m.column == metric.column).unwrap_or(0);
    let ends = if family == Family::Stream { Ends::Stream } else { Ends::Request };
    // Both directions of a stream fill two cells; their sum would be a third value of one of them.
    let apart = [Way::Forward, Way::Reverse].iter().all(|way| measurements.iter().any(|m| m.way == Some(*way)));
    let known = measurements.iter().filter(|m| m.status == Taken::Measured);
    let is_disturbed = limits::disturbed(known.filter_map(|m| m.cpu_taken).collect());
    let (mut list, mut rounds) = (Vec::new(), Vec::new());
    for m in measurements {
        if apart && m.way == Some(Way::Both) {
            continue;
        }
        let value = m.values[at].filter(|_| m.status == Taken::Measured);
        if value.is_some_and(|v| v <= 0.0) && metric.better == Better::Lower {
            return Err(Error::Usage(format!(
                "{} is {} from {} to {}: a survey compares ratios, and takes a metric that is above 0, such as latency.p50",
                metric.name,
                value.unwrap_or_default(),
                m.from,
                m.to
            )));
        }
        let swap = m.way == Some(Way::Reverse) && ends == Ends::Stream;
        let (from, to) = if swap { (&m.to, &m.from) } else { (&m.from, &m.to) };
        let cell = match value {
            None if m.status == Taken::Left => Cell::Missing,
            None => Cell::Failed,
            Some(value) if m.cpu_taken.is_some_and(&is_disturbed) => Cell::Disturbed(value),
            Some(value) => Cell::Value(value),
        };
        list.push((from.as_str(), to.as_str(), cell));
        rounds.extend(m.round.filter(|_| value.is_some()).map(|round| (from.as_str(), to.as_str(), round)));
    }
    let hosts: BTreeSet<&str> = measurements.iter().flat_map(|m| [m.from.as_str(), m.to.as_str()]).collect();
    if hosts.len() > MOST_HOSTS {
        let reason = format!(
            "the table has {} hosts, and a survey has at most {MOST_HOSTS}: choose some with --where",
            hosts.len()
        );
        return Err(Error::Usage(reason));
    }
    let matrix = Matrix::among(hosts, list).in_rounds(rounds);
    Ok(Some(Pairs { key, metric, ends, matrix, origin: Origin::of(measurements) }))
}
