//! Interval rows, sorted into groups and instances.

use super::Piece;
use crate::{
    error::Error,
    parallel::{self, Row},
    table::{Cells, Picker, Record, Selection, Table},
};
use indexmap::IndexMap;
use schemas::{columns::results::column, time, words::Way};
use std::{collections::HashMap, sync::Arc};

/// Clock by which intervals are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    /// start if a group's rows are of one run and case, else time
    Auto,
    /// `start_s`: 0 is the start of the measure phase
    Start,
    /// `time`: the wall clock
    Time,
}

/// The instances of one window.
#[derive(Debug)]
pub struct Group {
    pub key: Vec<String>,
    /// Their pieces in the order of time.
    pub instances: Vec<Vec<Piece>>,
}

/// Columns that tell instances apart. A total over them has an empty cell or `both` there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    file: String,
    /// run, case, iteration.
    measurement: [String; 3],
    member: String,
    direction: String,
    stream: String,
}

#[derive(Debug, Default)]
struct Raw {
    rate: f64,
    elapsed: f64,
    start: Option<f64>,
    /// By the wall clock, in seconds.
    end: Option<f64>,
}

/// Instances and their intervals, in the order of their first rows.
type Instances = Vec<(Identity, Vec<Raw>)>;

/// One instance as it is read.
#[derive(Debug)]
struct Instance {
    key: Vec<String>,
    identity: Identity,
    /// File and identifying cells in one piece.
    joined: Arc<str>,
    pieces: Vec<Raw>,
}

/// The instances of a part of the input, in the order of their first rows.
#[derive(Debug, Default)]
struct Part {
    instances: Vec<Instance>,
    index: HashMap<Arc<str>, usize>,
    /// The instance of the last row: the next row is mostly its too.
    last: usize,
    joined: String,
}

impl Part {
    fn add(&mut self, row: &Row<'_>, columns: &Columns) -> Result<(), Error> {
        let Some(raw) = columns.raw(row)? else { return Ok(()) };
        self.joined.clear();
        self.joined.push_str(row.file());
        for column in columns.told_apart_by() {
            // A unit separator does not occur in names.
            self.joined.push('\u{1f}');
            self.joined.push_str(row.get(column));
        }
        if self.instances.get(self.last).is_none_or(|i| *i.joined != *self.joined) {
            self.last = self.index.get(self.joined.as_str()).copied().unwrap_or(self.instances.len());
        }
        if self.last == self.instances.len() {
            let key = columns.keys.iter().map(|c| row.get(*c).to_owned()).collect();
            let joined = Arc::from(self.joined.as_str());
            self.push(Instance { key, identity: columns.identity(row), joined, pieces: Vec::new() });
        }
        self.instances[self.last].pieces.push(raw);
        Ok(())
    }

    fn push(&mut self, instance: Instance) {
        self.index.insert(instance.joined.clone(), self.instances.len());
        self.instances.push(instance);
    }

    /// Adds a later part.
    fn merge(&mut self, later: Self) {
        for instance in later.instances {
            match self.index.get(&instance.joined) {
                Some(i) => self.instances[*i].pieces.extend(instance.pieces),
                None => self.push(instance),
            }
        }
    }

    /// The groups, in the order of their first instances.
    fn groups(self) -> IndexMap<Vec<String>, Instances> {
        let mut groups = IndexMap::<_, Instances>::new();
        for instance in self.instances {
            groups.entry(instance.key).or_default().push((instance.identity, instance.pieces));
        }
        groups
    }
}

struct Columns {
    keys: Vec<usize>,
    measurement: [Option<usize>; 3],
    member: Option<usize>,
    direction: Option<usize>,
    stream: Option<usize>,
    start: Option<usize>,
    elapsed: usize,
    time: Option<usize>,
    metric: usize,
}

impl Columns {
    fn find(table: &Table, group: &[String], metric: usize) -> Result<Self, Error> {
        let find = |name: &str| table.header().find(name);
        Ok(Self {
            keys: group.iter().map(|n| table.require(n)).collect::<Result<_, _>>()?,
            measurement: [find(column::run_id), find(column::case_id), find(column::iteration)],
            member: find(column::member),
            direction: find(column::direction),
            stream: find(column::stream),
            start: find(column::start_s),
            elapsed: table.require(column::elapsed_s)?,
            time: find(column::time),
            metric,
        })
    }

    fn told_apart_by(&self) -> impl Iterator<Item = usize> {
        let identity = self.measurement.iter().chain([&self.member, &self.direction, &self.stream]).flatten();
        self.keys.iter().chain(identity).copied()
    }

    fn looked_at(&self) -> impl Iterator<Item = usize> {
        self.told_apart_by().chain([self.elapsed, self.metric]).chain(self.start).chain(self.time)
    }

    fn identity(&self, row: &Row<'_>) -> Identity {
        let text = |c: Option<usize>| c.map(|c| row.get(c).to_owned()).unwrap_or_default();
        Identity {
            file: row.file().to_owned(),
            measurement: self.measurement.map(text),
            member: text(self.member),
            direction: text(self.direction),
            stream: text(self.stream),
        }
    }

    fn raw(&self, row: &Row<'_>) -> Result<Option<Raw>, Error> {
        let (Some(rate), Some(elapsed)) = (row.number(self.metric)?, row.number(self.elapsed)?) else {
            return Ok(None);
        };
        let start = self.start.map_or(Ok(None), |c| row.number(c))?;
        let end = match self.time {
            Some(c) if !row.get(c).is_empty() => {
                let end = time::parse(row.get(c)).map(time::epoch_seconds);
                Some(end.ok_or_else(|| {
                    row.error(Some(c), "is not an RFC 3339 time in UTC, such as 2026-01-31T12:00:00.5Z".to_owned())
                })?)
            }
            _ => None,
        };
        Ok((elapsed > 0.0).then_some(Raw { rate, elapsed, start, end }))
    }
}

/// Reads the interval rows of a table.
pub fn read(
    table: &mut Table,
    group: &[String],
    metric: usize,
    phase: &str,
    clock: Clock,
) -> Result<Vec<Group>, Error> {
    let columns = Columns::find(table, group, metric)?;
    let selection =
        Selection { phase: phase.to_owned(), record: Some(Record::Interval.to_string()), ..Selection::default() };
    let new = Picker::new(&selection, table)?;
    let runs: Vec<_> = new.columns().chain(columns.looked_at()).map(|column| (column, column)).collect();
    let mut picker = new.clone();
    let mut all = Part::default();
    parallel::fold(
        table,
        &runs,
        || (new.clone(), Part::default()),
        |(picker, part), row| if picker.pick(row)?.is_some() { part.add(row, &columns) } else { Ok(()) },
        |(part_picker, part)| {
            picker.merge(&part_picker);
            all.merge(part);
            Ok(())
        },
    )?;
    let groups = all.groups();
    picker.note().iter().for_each(|note| crate::warn(note));
    if groups.is_empty() {
        crate::warn("there are no interval rows: run the plan with an interval (interval: 1s)");
    }
    groups.into_iter().map(|(key, instances)| align(key, instances, clock)).collect()
}

fn align(key: Vec<String>, mut instances: Instances, clock: Clock) -> Result<Group, Error> {
    keep_parts(&mut instances);
    let same_run = instances.windows(2).all(|w| w[0].0.measurement == w[1].0.measurement && w[0].0.file == w[1].0.file);
    let all = |has: fn(&Raw) -> bool| instances.iter().flat_map(|(_, pieces)| pieces).all(has);
    let (starts, times) = (all(|r| r.start.is_some()), all(|r| r.end.is_some()));
    let by_start = match clock {
        Clock::Start => true,
        Clock::Time => false,
        // A single run's own clock is more precise; without times it is the only one.
        Clock::Auto => starts && (same_run || !times),
    };
    if by_start && !starts || !by_start && !times {
        let column = if by_start { column::start_s } else { column::time };
        return Err(Error::Usage(format!(
            "the intervals of {} cannot be aligned: some have no {column}",
            if key.is_empty() { "the input".to_owned() } else { key.join(" ") }
        )));
    }
    let mut aligned: Vec<Vec<Piece>> = Vec::new();
    for (_, pieces) in instances {
        let mut pieces: Vec<Piece> = pieces
            .into_iter()
            .filter_map(|raw| {
                let start = if by_start { raw.start? } else { raw.end? - raw.elapsed };
                Some(Piece { start, end: start + raw.elapsed, rate: raw.rate })
            })
            .collect();
        pieces.sort_by(|a, b| a.start.total_cmp(&b.start));
        aligned.push(pieces);
    }
    Ok(Group { key, instances: aligned })
}

/// Drops rows that would count something twice: a group's total beside its members, both directions beside each, and
/// single streams beside all of them together.
fn keep_parts(instances: &mut Instances) {
    if instances.iter().any(|(i, _)| !i.member.is_empty()) {
        instances.retain(|(i, _)| !i.member.is_empty());
    }
    if instances.iter().any(|(i, _)| i.direction != Way::Both.as_str()) {
        instances.retain(|(i, _)| i.direction != Way::Both.as_str());
    }
    if instances.iter().any(|(i, _)| i.stream.is_empty()) {
        instances.retain(|(i, _)| i.stream.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> Vec<Group> {
        let mut table = Table::from_text("t", text).unwrap();
        let metric = table.require("throughput").unwrap();
        read(&mut table, &["case".to_owned()], metric, "measure", Clock::Auto).unwrap()
    }

    #[test]
    fn totals_and_warm_up_are_left_out() {
        let groups = groups(
            "case,record,phase,member,start_s,elapsed_s,throughput_bits_per_s\n\
             a,interval,warmup,up,-1,1,9\na,interval,measure,up,0,1,1\na,interval,measure,down,0,1,2\n\
             a,interval,measure,,0,1,3\na,iteration,measure,up,0,1,1\n",
        );
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].instances.len(), 2);
        assert_eq!(groups[0].instances[1], [Piece { start: 0.0, end: 1.0, rate: 2.0 }]);
    }

    #[test]
    fn other_runs_are_aligned_by_the_wall_clock() {
        let groups = groups(
            "case,run_id,record,start_s,elapsed_s,time,throughput_bits_per_s\n\
             a,r1,interval,0,1,2026-01-01T00:00:01Z,1\na,r2,interval,0,1,2026-01-01T00:00:03Z,2\n",
        );
        let starts: Vec<f64> = groups[0].instances.iter().map(|i| i[0].start).collect();
        assert!((starts[1] - starts[0] - 2.0).abs() < 1e-9, "{starts:?}");
    }
}
