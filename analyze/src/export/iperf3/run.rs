//! The one run that a document is about: its rows, and its intervals.

use super::{Object, RECEIVED, SENT, datagrams, put, socket, traffic};
use crate::{
    distinct,
    error::Error,
    table::{Field, Picker, Rows, Selection, Table, rows::OwnedRow},
};
use schemas::{
    columns::{COLUMNS, results::ends},
    words::{Phase, Record, Status, Way},
};
use serde_json::Value;

/// Columns that tell runs apart.
const KEY: [Field; 5] = [Field::run_id, Field::plan, Field::case, Field::member, Field::iteration];

/// Groups of columns that a document is made of.
const READ: [&str; 8] = ["identity", "kind", "place and time", "what ran", "volume", "datagrams", "tcp", "confidence"];

/// A table's rows, with those that the selection chose.
pub struct Found {
    rows: Rows,
    chosen: Vec<usize>,
    note: Option<String>,
}

/// A row, whose cells are read by the names of their columns. A column that the table lacks reads as empty.
#[derive(Clone, Copy)]
pub struct Line<'t> {
    rows: &'t Rows,
    row: &'t OwnedRow,
}

impl<'t> Line<'t> {
    pub fn text(&self, field: Field) -> &'t str {
        self.rows.text(self.row, field)
    }

    pub fn number(&self, field: Field) -> Result<Option<f64>, Error> {
        self.rows.value(self.row, field)
    }

    /// Whether `to` sends.
    pub fn is_reverse(&self) -> bool {
        self.text(Field::direction) == Way::Reverse.as_str()
    }

    pub fn is_ok(&self) -> bool {
        ["", Status::Ok.as_str()].contains(&self.text(Field::status))
    }

    fn is_both(&self) -> bool {
        self.text(Field::direction) == Way::Both.as_str()
    }

    fn is(&self, field: Field, word: &str) -> bool {
        self.text(field) == word
    }

    fn key(&self) -> [&'t str; KEY.len()] {
        KEY.map(|field| self.text(field))
    }
}

/// The rows of one run.
pub struct Run<'t> {
    /// Its totals: a row per direction, the forward one first.
    pub totals: Vec<Line<'t>>,
    /// A row per stream; none where the table has none.
    pub streams: Vec<Line<'t>>,
    /// Of the warm-up and the measurement, per direction, perhaps per stream.
    pub intervals: Vec<Line<'t>>,
    /// The warm-up's own rows.
    pub warmups: Vec<Line<'t>>,
}

impl Found {
    pub fn read(table: &mut Table, selection: &Selection) -> Result<Self, Error> {
        if selection.phase != Phase::Measure.as_str() {
            return Err(Error::Usage("--phase is not for -f iperf3: its totals are those of the measurement".into()));
        }
        if selection.record.as_deref().is_some_and(|r| r != Record::Iteration.as_str() && r != Record::Summary.as_str())
        {
            return Err(Error::Usage("-f iperf3 writes totals: --record is iteration or summary".into()));
        }
        let known = COLUMNS.iter().filter(|column| READ.contains(&column.group)).map(|column| column.name);
        let columns = known.chain(ends::process_cpus).filter_map(|name| table.header().find(name));
        let columns: Vec<usize> = columns.collect();
        let picker = Picker::of_any_status(selection, table)?;
        let (rows, kinds) = Rows::read_all_picked(table, picker, &columns)?;
        let of = |wanted: Record| -> Vec<usize> {
            kinds.iter().enumerate().filter(|(_, kind)| **kind == Some(wanted)).map(|(i, _)| i).collect()
        };
        let iterations = of(Record::Iteration);
        let chosen = if iterations.is_empty() { of(Record::Summary) } else { iterations };
        let mut found = Self { rows, chosen, note: None };
        // A failed iteration counts only where it is alone.
        let (good, bad): (Vec<usize>, Vec<usize>) = found.chosen.iter().partition(|i| found.line(**i).is_ok());
        if !good.is_empty() {
            if !bad.is_empty() {
                let rows = if bad.len() == 1 { "1 row is" } else { &format!("{} rows are", bad.len()) };
                found.note = Some(format!("{rows} left out, because the status is not ok"));
            }
            found.chosen = good;
        }
        Ok(found)
    }

    /// The only run that is left, or an error that says what to select by.
    pub fn choose(&self) -> Result<Run<'_>, Error> {
        self.note.iter().for_each(|note| crate::warn(note));
        // The row of a group of concurrent members has no direction of its own, as the sum of both directions.
        let totals: Vec<Line<'_>> =
            self.chosen.iter().map(|i| self.line(*i)).filter(|l| !l.is_both() || !l.is_ok()).collect();
        let Some(first) = totals.first() else {
            let what = if self.chosen.is_empty() { "no iteration and no summary" } else { "no direction by itself" };
            return Err(Error::Usage(format!("-f iperf3: the rows that are selected have {what}")));
        };
        for (i, field) in KEY.iter().enumerate() {
            let values: Vec<&str> = distinct(totals.iter().map(|line| line.key()[i]));
            if values.len() > 1 {
                return Err(ambiguous(field.name(), &values));
            }
        }
        stream_of_iperf3(first)?;
        let mut totals = totals.clone();
        totals.sort_by_key(Line::is_reverse);
        if let [.., a, b] = &totals[..]
            && a.is_reverse() == b.is_reverse()
        {
            let reason = "a second row about the same direction of the same run: choose rows with --where";
            return Err(self.rows.error(b.row, 0, reason));
        }
        let key = first.key();
        let all = (0..self.rows.rows.len()).map(|i| self.line(i)).filter(|l| l.key() == key && !l.is_both());
        let (mut streams, mut intervals, mut warmups) = (Vec::new(), Vec::new(), Vec::new());
        for line in all.filter(|l| !l.is(Field::phase, Phase::Cooldown.as_str())) {
            let warmup = line.is(Field::phase, Phase::Warmup.as_str());
            if line.is(Field::record, Record::Interval.as_str()) {
                intervals.push(line);
            } else if warmup {
                warmups.push(line);
            } else if line.is(Field::record, Record::Stream.as_str()) {
                streams.push(line);
            }
        }
        Ok(Run { totals, streams, intervals, warmups })
    }

    fn line(&self, at: usize) -> Line<'_> {
        Line { rows: &self.rows, row: &self.rows.rows[at] }
    }
}

/// Refuses what iperf3 cannot have measured.
fn stream_of_iperf3(line: &Line<'_>) -> Result<(), Error> {
    let workload = line.text(Field::workload);
    if !line.text(Field::transactions_per_s).is_empty() {
        return Err(Error::Usage(format!("-f iperf3: `{workload}` counts transactions, and iperf3 has streams only")));
    }
    if protocol(line).is_none() {
        let transport = line.text(Field::transport);
        let of = if transport.is_empty() { "an unknown transport" } else { transport };
        return Err(Error::Usage(format!("-f iperf3: a stream over {of}, and iperf3 has TCP, UDP and SCTP only")));
    }
    Ok(())
}

/// iperf3's name of the transport.
pub fn protocol(line: &Line<'_>) -> Option<&'static str> {
    let transport = line.text(Field::transport);
    let transport = if transport.is_empty() { line.text(Field::workload).split('_').next()? } else { transport };
    match transport.to_ascii_lowercase().as_str() {
        "tcp" | "mptcp" => Some("TCP"),
        "udp" => Some("UDP"),
        "sctp" => Some("SCTP"),
        _ => None,
    }
}

/// Says what to select by.
fn ambiguous(column: &str, values: &[&str]) -> Error {
    const SHOWN: usize = 8;
    let mut listed = values[..values.len().min(SHOWN)].join(", ");
    if values.len() > SHOWN {
        listed.push_str(" …");
    }
    let last = values.iter().rev().find(|v| !v.is_empty()).unwrap_or(&"");
    let or = if column == "iteration" { ", or --record summary" } else { "" };
    Error::Usage(format!(
        "-f iperf3 writes one run, and the rows have several values of `{column}` ({listed}): choose one, for \
         example with --where '{column}={last}'{or}"
    ))
}

// `intervals`: what `from` counted, as iperf3's client does.

/// The intervals of a run whose warm-up had this length.
pub fn of(run: &Run<'_>, omit: f64) -> Result<Vec<Value>, Error> {
    let alone = run.totals[0].text(Field::streams) == "1";
    let mut found: Vec<Interval> = Vec::new();
    for line in &run.intervals {
        let (bytes, _) = near(line);
        if line.number(bytes)?.is_none() {
            // What the other end counted, in a time of its own.
            continue;
        }
        let warmup = line.text(Field::phase) == Phase::Warmup.as_str();
        let start = line.number(Field::start_s)?.unwrap_or(0.0);
        let slot = (line.is_reverse(), line.text(Field::stream).to_owned());
        if found.last().is_none_or(|i| i.slots.contains(&slot) || start >= i.middle) {
            let middle = start + line.number(Field::elapsed_s)?.unwrap_or(0.0) / 2.0;
            found.push(Interval { middle, warmup, ..Interval::default() });
        }
        let object = interval(line, if warmup { start + omit } else { start })?;
        let Some(current) = found.last_mut() else { continue };
        let of_stream = socket(line).is_some();
        if of_stream || alone {
            let mut stream = Object::new();
            let number = socket(line).unwrap_or(current.streams.len() as f64 + 1.0);
            put(&mut stream, "socket", Some(number));
            stream.append(&mut object.clone());
            if !line.is_reverse() {
                put(&mut stream, "snd_cwnd", line.number(Field::cwnd_bytes)?);
                put(&mut stream, "rtt", line.number(Field::rtt_us)?);
                put(&mut stream, "rttvar", line.number(Field::rtt_var_us)?);
            }
            current.streams.push(flagged(stream, warmup, !line.is_reverse()).into());
        }
        let sum = &mut current.sums[usize::from(line.is_reverse())];
        match sum {
            Some(sum) if of_stream => add(sum, &object),
            _ => *sum = Some(object),
        }
        current.slots.push(slot);
    }
    let both = run.totals.len() > 1;
    Ok(found.into_iter().map(|i| i.object(both).into()).collect())
}

/// The rows of one interval.
#[derive(Default)]
struct Interval {
    middle: f64,
    warmup: bool,
    slots: Vec<(bool, String)>,
    streams: Vec<Value>,
    /// Forward, reverse.
    sums: [Option<Object>; 2],
}

impl Interval {
    fn object(self, both: bool) -> Object {
        let mut object = Object::new();
        if !self.streams.is_empty() {
            object.insert("streams".into(), self.streams.into());
        }
        let [forward, reverse] = self.sums;
        let names = if both { ["sum", "sum_bidir_reverse"] } else { ["sum", "sum"] };
        for (name, sum, sender) in [(names[0], forward, true), (names[1], reverse, false)] {
            if let Some(sum) = sum {
                object.insert(name.into(), flagged(sum, self.warmup, sender).into());
            }
        }
        object
    }
}

fn flagged(mut object: Object, omitted: bool, sender: bool) -> Object {
    object.insert("omitted".into(), omitted.into());
    object.insert("sender".into(), sender.into());
    object
}

/// Adds another stream to the sum of an interval, whose time is that of the first one.
fn add(sum: &mut Object, stream: &Object) {
    let number = |object: &Object, key: &str| object.get(key).and_then(Value::as_f64);
    let mut set = |key: &str, of: &dyn Fn(&Object) -> Option<f64>| match of(sum) {
        Some(value) => put(sum, key, Some(value)),
        None => drop(sum.shift_remove(key)),
    };
    for key in ["bytes", "retransmits", "packets", "lost_packets"] {
        set(key, &|sum| Some(number(sum, key)? + number(stream, key)?));
    }
    set("bits_per_second", &|sum| Some(number(sum, "bytes")? * 8.0 / number(sum, "seconds").filter(|s| *s > 0.0)?));
    set("lost_percent", &|sum| {
        Some(number(sum, "lost_packets")? / number(sum, "packets").filter(|p| *p > 0.0)? * 100.0)
    });
    // Each stream has its own.
    set("jitter_ms", &|_| None);
}

/// The columns of `from`'s bytes and rate.
fn near(line: &Line<'_>) -> (Field, Field) {
    if line.is_reverse() { RECEIVED } else { SENT }
}

/// Counts of `from` in an interval.
fn interval(line: &Line<'_>, start: f64) -> Result<Object, Error> {
    let mut object = traffic(line, near(line), start)?;
    if protocol(line) == Some("UDP") {
        if line.is_reverse() {
            datagrams(&mut object, line)?;
        } else {
            put(&mut object, "packets", line.number(Field::messages_sent)?);
        }
    } else if !line.is_reverse() {
        put(&mut object, "retransmits", line.number(Field::retransmits)?);
    }
    Ok(object)
}
