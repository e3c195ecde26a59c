//! Selects the rows of a results table that count. A table holds the same traffic several times: as iterations, streams,
//! intervals, summaries, and in the phases around the measurement. Counting all of them would count traffic several
//! times. So every filter counts
//!
//! - only `phase=measure` (or rows without a phase), unless `--phase` says otherwise;
//! - only one kind of record: `--record`, or the first of these that the input has: `iteration`, `summary`, `stream`,
//!   `interval`, `probe`. Rows without a `record` (other programs' tables, and what filters write) count as iterations;
//! - only rows whose status is `ok` or empty. Rows with another status (`failed`, `discarded`, `cut` …) are left out, with
//!   a note;
//! - of those, the rows that match every `--where`;
//! - a row of the same iteration of the same run once, however often the input has it.

mod condition;

pub(crate) use condition::{means, quantity};

use schemas::{
    columns::results::column,
    words::{self, Phase, Record, Status},
};

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use self::condition::Condition;
use super::{Cells, Field, Row, Table};
use crate::error::Error;

/// The kind of a row, from the text of its `record` cell.
fn kind(text: &str) -> Option<Record> {
    if text.is_empty() { Some(Record::Iteration) } else { text.parse().ok() }
}

/// `--phase`, `--record`, `--where`, shared by the filters that count rows.
#[derive(Debug, Clone, clap::Args)]
pub struct Selection {
    /// Count the rows of this phase: warmup, measure, cooldown or all
    #[arg(long, value_name = "PHASE", default_value = "measure", help_heading = "Which rows count")]
    pub phase: String,
    /// Count this kind of row: iteration, summary, stream, interval or probe [default: the first of these that occurs]
    #[arg(long, value_name = "KIND", help_heading = "Which rows count")]
    pub record: Option<String>,
    /// Count only rows where this holds: COLUMN=VALUE, !=, <, <=, >, >= (quantities as in plans: 64KiB, 80us), or
    /// COLUMN~TEXT (contains). May be repeated; all must hold
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which rows count")]
    pub conditions: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { phase: Phase::Measure.to_string(), record: None, conditions: Vec::new() }
    }
}

/// A [`Selection`] resolved for one table.
#[derive(Debug, Clone)]
pub struct Picker {
    phase: Option<(usize, String)>,
    record: Option<usize>,
    wanted: Option<Record>,
    status: Option<usize>,
    /// The column of the reason of a status.
    error: Option<usize>,
    conditions: Vec<Condition>,
    /// Whether a row has met them all; and until then the values of rows that did not, for each condition.
    is_met: bool,
    unmet: Vec<Vec<String>>,
    /// Number of rows left out because of each status.
    left_out: LeftOut,
    repeats: Option<Arc<Repeats>>,
}

/// Columns that together name one observation of a run, where a table has them.
const OBSERVATION: [&str; 15] = [
    column::run_id,
    column::iteration,
    column::record,
    column::plan,
    column::case_id,
    column::case,
    column::member,
    column::direction,
    column::stream,
    column::phase,
    column::start_s,
    column::from,
    column::to,
    column::status,
    column::time,
];

/// Finds rows of a run that the table has already: counted twice, they would pass for further observations.
///
/// Of several inputs each may have any row once. Within one input only iterations and summaries are looked at, and only those
/// that say of which case they are and when they ended: streams and intervals are too many to remember each.
#[derive(Debug)]
struct Repeats {
    /// The columns of [`OBSERVATION`] that the table has, the run first.
    columns: Vec<usize>,
    /// The columns of the case and of the time at which a row ended, if the table has both.
    case_and_time: Option<[usize; 2]>,
    inputs: usize,
    /// The input in which an observation was first seen, by its hash; and the number of repeated rows.
    seen: Mutex<(HashMap<u64, usize>, u64)>,
}

impl Repeats {
    /// `None`: the rows do not say of which iteration of which run they are, or, of one input, when they ended.
    fn among(table: &Table) -> Option<Arc<Self>> {
        let place = |name: &str| table.header().names().iter().position(|column| column == name);
        let columns: Vec<usize> = OBSERVATION.iter().filter_map(|name| place(name)).collect();
        let is_named = OBSERVATION[..3].iter().all(|name| place(name).is_some());
        let case_and_time = place(column::case_id).zip(place(column::time)).map(<[usize; 2]>::from);
        let inputs = table.inputs();
        let is_known = is_named && (inputs > 1 || case_and_time.is_some());
        is_known.then(|| Arc::new(Self { columns, case_and_time, inputs, seen: Mutex::default() }))
    }

    fn has(&self, row: &impl Cells, kind: Record) -> bool {
        let is_whole = matches!(kind, Record::Iteration | Record::Summary)
            && self.case_and_time.is_some_and(|columns| columns.iter().all(|column| !row.get(*column).is_empty()));
        if row.get(self.columns[0]).is_empty() || !is_whole && self.inputs == 1 {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        self.columns.iter().for_each(|column| row.get(*column).hash(&mut hasher));
        let mut seen = self.seen.lock().expect("no thread panics while it holds the lock");
        // Inputs are read one after the other: which of two rows is the first does not depend on the threads.
        let is_repeat = match seen.0.entry(hasher.finish()) {
            Entry::Occupied(first) => is_whole || *first.get() != row.input(),
            Entry::Vacant(place) => {
                place.insert(row.input());
                false
            }
        };
        seen.1 += u64::from(is_repeat);
        is_repeat
    }
}

impl Drop for Repeats {
    /// Says it when the last reader is done.
    fn drop(&mut self) {
        let repeated = self.seen.get_mut().map_or(0, |seen| seen.1);
        if repeated > 0 {
            let (rows, are) = if repeated == 1 { ("row", "is") } else { ("rows", "are") };
            crate::warn(&format!(
                "{repeated} {rows} of a run that the input has already {are} left out: an iteration counts once"
            ));
        }
    }
}

impl Picker {
    /// Checks the selection and finds its columns.
    pub fn new(selection: &Selection, table: &Table) -> Result<Self, Error> {
        if selection.phase != "all" && selection.phase.parse::<Phase>().is_err() {
            let known = words::listed(Phase::WORDS);
            return Err(Error::Usage(format!("--phase `{}` does not exist: it is {known}, or `all`", selection.phase)));
        }
        let wanted = match selection.record.as_deref() {
            None => None,
            Some(word) => Some(word.parse().map_err(|_| {
                Error::Usage(format!("--record `{word}` does not exist: it is {}", words::listed(Record::WORDS)))
            })?),
        };
        let header = table.header();
        let phase =
            header.place(Field::phase).filter(|_| selection.phase != "all").map(|c| (c, selection.phase.clone()));
        let conditions: Vec<_> =
            selection.conditions.iter().map(|c| Condition::parse(c, table)).collect::<Result<_, _>>()?;
        Ok(Self {
            phase,
            is_met: conditions.is_empty(),
            unmet: vec![Vec::new(); conditions.len()],
            record: header.place(Field::record),
            wanted,
            status: header.place(Field::status),
            error: header.place(Field::error),
            conditions,
            left_out: LeftOut::default(),
            repeats: Repeats::among(table),
        })
    }

    /// A picker that accepts any status: for showing, and for judges, which decide about the status themselves.
    pub(crate) fn of_any_status(selection: &Selection, table: &Table) -> Result<Self, Error> {
        Ok(Self { status: None, ..Self::new(selection, table)? })
    }

    /// A picker of all rows that meet the conditions, for those who pass rows on. `--phase` counts if it is not the default.
    pub(crate) fn of_every_row(selection: &Selection, table: &Table) -> Result<Self, Error> {
        let all = Self::of_any_status(selection, table)?;
        let phase = all.phase.filter(|(_, phase)| phase != Phase::Measure.as_str());
        Ok(Self { phase, repeats: None, ..all })
    }

    /// The columns that it reads.
    pub(crate) fn columns(&self) -> impl Iterator<Item = usize> {
        let conditions = self.conditions.iter().map(|c| c.column);
        let repeats = self.repeats.iter().flat_map(|repeats| repeats.columns.iter().copied());
        self.phase
            .iter()
            .map(|(column, _)| *column)
            .chain(self.record)
            .chain(self.status)
            .chain(conditions)
            .chain(repeats)
    }

    /// The kind of a row that counts; `None` for other rows.
    pub fn pick(&mut self, row: &impl Cells) -> Result<Option<Record>, Error> {
        let kind = match self.record {
            None => Record::Iteration,
            Some(column) => {
                let word = row.get(column);
                kind(word).ok_or_else(|| {
                    let known = words::listed(Record::WORDS);
                    row.error(Some(column), format!("`{word}` is not a kind of record: {known}"))
                })?
            }
        };
        if self.wanted.is_some_and(|w| w != kind) {
            return Ok(None);
        }
        if let Some((column, wanted)) = &self.phase {
            let phase = row.get(*column);
            // A row without a phase belongs to the measurement (a summary, another program's table).
            if phase != wanted && !(phase.is_empty() && wanted == Phase::Measure.as_str()) {
                return Ok(None);
            }
        }
        for (condition, unmet) in self.conditions.iter().zip(&mut self.unmet) {
            if !condition.holds(row)? {
                if !self.is_met {
                    note_value(unmet, row.get(condition.column));
                }
                return Ok(None);
            }
        }
        self.is_met = true;
        if let Some(column) = self.status {
            let status = row.get(column);
            if !status.is_empty() && status != Status::Ok.as_str() {
                self.left_out.add(status, self.error.map_or("", |column| row.get(column)));
                return Ok(None);
            }
        }
        if self.repeats.as_ref().is_some_and(|repeats| repeats.has(row, kind)) {
            return Ok(None);
        }
        Ok(Some(kind))
    }

    /// Adds the counts of a picker for another part of the same input.
    pub fn merge(&mut self, other: &Self) {
        self.left_out.merge(&other.left_out);
        self.is_met |= other.is_met;
        for (unmet, more) in self.unmet.iter_mut().zip(&other.unmet) {
            for value in more {
                note_value(unmet, value);
            }
        }
    }

    /// After the last row: fails if no row met the conditions, and names the values that there are.
    pub fn matched(&self, table: &Table) -> Result<(), Error> {
        if self.is_met {
            return Ok(());
        }
        let there_is = |(condition, unmet): (&Condition, &Vec<String>)| {
            let shown: Vec<&str> = unmet.iter().take(VALUES).map(String::as_str).collect();
            let more = if unmet.len() > VALUES { ", …" } else { "" };
            let name = &table.header().names()[condition.column];
            (!shown.is_empty()).then(|| format!("; {name} is {}{more}", shown.join(", ")))
        };
        let values: String = self.conditions.iter().zip(&self.unmet).filter_map(there_is).collect();
        let asked: Vec<&str> = self.conditions.iter().map(|condition| condition.asked.as_str()).collect();
        Err(table.error(format!("no row that counts has {}{values}", asked.join(" and "))))
    }

    /// Number of rows left out because of their status.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.rows()
    }

    /// A sentence about rows left out because of their status, if there were any.
    pub fn note(&self) -> Option<String> {
        self.left_out.note()
    }
}

/// Most values of a column that are named where none of them was asked for.
const VALUES: usize = 8;

/// Keeps a value, once, and one more than are named.
fn note_value(values: &mut Vec<String>, value: &str) {
    if values.len() <= VALUES && !value.is_empty() && values.iter().all(|known| known != value) {
        values.push(value.to_owned());
    }
}

/// Rows that are left out because of their status, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    by_status: Vec<(String, u64)>,
    /// Reasons, with their figures left out, and an example of each.
    reasons: Vec<(String, String, u64)>,
}

/// Reasons that are told apart.
const MOST_REASONS: usize = 64;

impl LeftOut {
    /// Counts a row.
    pub fn add(&mut self, status: &str, reason: &str) {
        self.count(status, 1);
        if !reason.is_empty() {
            self.because(reason, 1);
        }
    }

    fn count(&mut self, status: &str, rows: u64) {
        match self.by_status.iter_mut().find(|(s, _)| s == status) {
            Some((_, n)) => *n += rows,
            None => self.by_status.push((status.to_owned(), rows)),
        }
    }

    fn because(&mut self, reason: &str, rows: u64) {
        // `others took a CPU … for 10 % of the time` is one reason, whatever the share.
        let kind: String = reason.chars().filter(|c| !c.is_ascii_digit()).collect();
        match self.reasons.iter().position(|(known, ..)| *known == kind) {
            Some(at) => self.reasons[at].2 += rows,
            None if self.reasons.len() < MOST_REASONS => self.reasons.push((kind, reason.to_owned(), rows)),
            None => {}
        }
    }

    pub fn merge(&mut self, other: &Self) {
        other.by_status.iter().for_each(|(status, rows)| self.count(status, *rows));
        other.reasons.iter().for_each(|(_, reason, rows)| self.because(reason, *rows));
    }

    pub fn rows(&self) -> u64 {
        self.by_status.iter().map(|(_, n)| n).sum()
    }

    /// A sentence about them, with the most frequent reason.
    pub fn note(&self) -> Option<String> {
        let total = self.rows();
        let list: Vec<String> = self.by_status.iter().map(|(status, n)| format!("{n} {status}")).collect();
        let (rows, are, its) = if total == 1 { ("row", "is", "its") } else { ("rows", "are", "their") };
        let why = match self.reasons.iter().rev().max_by_key(|(.., n)| *n) {
            Some((_, reason, n)) if *n == total && total == 1 => format!(": {reason}"),
            Some((_, reason, _)) => format!("; most often: {reason}"),
            None => String::new(),
        };
        (total > 0)
            .then(|| format!("{total} {rows} {are} not counted because of {its} status ({}){why}", list.join(", ")))
    }
}

/// Reasons for which a case was skipped although it should have run. Every other reason is on purpose.
const CUT_SHORT: [&str; 2] = ["interrupted", "run.fail_fast"];

/// Whether the row tells of a case that was skipped although it should have run.
pub fn is_cut_short(row: &Row<'_>) -> bool {
    let is_skipped = row.text(Field::status) == Status::Skipped.as_str();
    is_skipped && CUT_SHORT.iter().any(|word| row.text(Field::error).starts_with(word))
}

/// Collects something per kind of record and keeps only the preferred kind.
#[derive(Debug, Clone)]
pub struct Preferred<T> {
    kept: Option<(Record, T)>,
}

impl<T> Default for Preferred<T> {
    fn default() -> Self {
        Self { kept: None }
    }
}

impl<T: Default> Preferred<T> {
    /// The place for rows of this kind; `None` after a better kind has been seen. A better kind discards what was
    /// collected for a worse one.
    pub fn slot(&mut self, kind: Record) -> Option<&mut T> {
        if self.kept.as_ref().is_none_or(|(k, _)| kind < *k) {
            self.kept = Some((kind, T::default()));
        }
        self.kept.as_mut().filter(|(k, _)| *k == kind).map(|(_, t)| t)
    }

    /// The collection, unless its rows are parts of an observation. `advice` says what to do then.
    pub fn of_observations(self, advice: &str) -> Result<T, Error> {
        match self.kept {
            Some((kind @ (Record::Interval | Record::Stream), _)) => {
                Err(Error::Usage(format!("the rows are {kind}s, which are parts of an observation: {advice}")))
            }
            kept => Ok(kept.map(|(_, t)| t).unwrap_or_default()),
        }
    }

    /// The kept kind and what was collected for it.
    pub fn into_kept(self) -> Option<(Record, T)> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Rows, *};

    const TABLE: &str = "record,phase,status,streams,throughput_bits_per_s\n\
        interval,warmup,ok,1,1\ninterval,measure,ok,1,2\ninterval,measure,ok,1,3\nstream,measure,ok,1,5\n\
        iteration,measure,ok,1,5\niteration,measure,failed,4,\niteration,measure,discarded,4,9\nsummary,,ok,1,5\n";

    fn picked(selection: &Selection) -> (Record, Vec<String>, Option<String>) {
        let mut table = Table::from_text("t", TABLE).unwrap();
        let column = table.require("throughput").unwrap();
        let rows = Rows::read(&mut table, selection, &[column]).unwrap();
        (rows.kind, rows.rows.iter().map(|r| r.get(0).to_owned()).collect(), rows.note)
    }

    fn with(record: Option<&str>, phase: &str, conditions: &[&str]) -> Selection {
        Selection {
            phase: phase.into(),
            record: record.map(str::to_owned),
            conditions: conditions.iter().map(|s| (*s).to_owned()).collect(),
        }
    }

    #[test]
    fn nothing_is_counted_twice() {
        let (kind, rows, note) = picked(&Selection::default());
        assert_eq!((kind, rows), (Record::Iteration, vec!["5".to_owned()]));
        assert_eq!(note.unwrap(), "2 rows are not counted because of their status (1 failed, 1 discarded)");
        let mut left_out = LeftOut::default();
        for (status, reason) in
            [("failed", "no route"), ("discarded", "others took 10 %"), ("discarded", "others took 9 %")]
        {
            left_out.add(status, reason);
        }
        let said =
            "3 rows are not counted because of their status (1 failed, 2 discarded); most often: others took 10 %";
        assert_eq!(left_out.note().unwrap(), said);
    }

    #[test]
    fn a_run_that_is_given_twice_counts_once() {
        let run = "run_id,case_id,iteration,record,throughput_bits_per_s\nr,a,1,iteration,5\nr,a,2,iteration,6\nr,a,2,iteration,6\n";
        let other = "run_id,case_id,iteration,record,throughput_bits_per_s\ns,a,1,iteration,7\n,a,1,iteration,8\n";
        let read = |texts: &[&str]| {
            let inputs = texts.iter().map(|text| {
                let input: Box<dyn std::io::Read + Send> = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
                ("same".to_owned(), input)
            });
            let mut table = Table::from_readers(inputs.collect()).unwrap();
            let rows = Rows::read(&mut table, &Selection::default(), &[4]).unwrap();
            rows.rows.iter().map(|row| row.get(0).to_owned()).collect::<Vec<_>>().concat()
        };
        assert_eq!(read(&[run, run, other, run]), "56678");
        // A row without a run cannot be told from another program's.
        assert_eq!(read(&[other, other]), "788");
        // Within one file the same time tells a copy from a second member of what has no name.
        let timed = "run_id,case_id,iteration,record,throughput_bits_per_s,time,stream\n\
            r,a,1,iteration,5,t1,\nr,a,2,iteration,6,t2,\nr,a,1,iteration,5,t1,\nr,a,2,iteration,6,t2,\nr,a,2,iteration,7,t3,\n";
        assert_eq!(read(&[timed]), "567");
        assert_eq!(read(&[timed, timed]), "567");
        let untimed = timed.replace("t1", "").replace("t2", "");
        assert_eq!(read(&[&untimed]), "56567");
    }

    #[test]
    fn other_rows_count_when_asked_for() {
        assert_eq!(picked(&with(Some("interval"), "measure", &[])).1, ["2", "3"]);
        assert_eq!(picked(&with(Some("interval"), "all", &[])).1, ["1", "2", "3"]);
        assert_eq!(picked(&with(Some("summary"), "measure", &[])).1, ["5"]);
        assert_eq!(picked(&with(None, "warmup", &[])).1, ["1"]);
    }

    #[test]
    fn conditions() {
        let rows = |condition: &str| picked(&with(Some("interval"), "all", &[condition])).1;
        assert_eq!(rows("throughput>2bit/s"), ["3"]);
        assert_eq!(rows("throughput <= 2"), ["1", "2"]);
        assert_eq!(rows("phase!=warmup"), ["2", "3"]);
        assert_eq!(rows("throughput_bits_per_s=2.0"), ["2"]);
        assert_eq!(rows("phase~arm"), ["1"]);
    }

    #[test]
    fn conditions_take_any_name_and_quantities_as_plans_do() {
        const SWEPT: &str = "record,message_bytes,offered_per_s,latency_p99_us,metric,axis_duration,axis_socket_mss,axis_io\n\
            iteration,1024,1e8,79,latency_p99_us,500ms,1400,blocking\n\
            iteration,65536,2000,81,throughput_bits_per_s,2s,9000,io_uring\n";
        let rows = |condition: &str| {
            let mut table = Table::from_text("t", SWEPT).unwrap();
            let rows = Rows::read(&mut table, &with(None, "all", &[condition]), &[1]).unwrap();
            rows.rows.iter().map(|r| r.get(0).to_owned()).collect::<Vec<_>>().join(" ")
        };
        for (condition, sizes) in [
            ("message_size >= 64KiB", "65536"),
            ("message_size < 64 KiB", "1024"),
            ("axis_message_size = 1KiB", "1024"),
            ("latency.p99 < 80us", "1024"),
            ("latency.p99 < 0.08ms", "1024"),
            ("latency.p99 > 80", "65536"),
            ("rate = 100Mbit/s", "1024"),
            ("rate = 2k/s", "65536"),
            ("duration >= 1s", "65536"),
            ("duration < 1", "1024"),
            ("duration = 0.5s", "1024"),
            ("socket.mss < 2KiB", "1024"),
            ("io = io_uring", "65536"),
            ("axis_io != io_uring", "1024"),
            ("metric = latency.p99", "1024"),
            ("metric = throughput", "65536"),
        ] {
            assert_eq!(rows(condition), sizes, "{condition}");
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        let table = Table::from_text("t", TABLE).unwrap();
        let message = |s: &Selection| Picker::new(s, &table).unwrap_err().to_string();
        assert!(message(&with(None, "main", &[])).contains("--phase `main` does not exist"));
        assert!(message(&with(Some("row"), "all", &[])).contains("--record `row` does not exist"));
        assert!(message(&with(None, "all", &["streams"])).contains("a condition is COLUMN=VALUE"));
        assert!(message(&with(None, "all", &["throughput>fast"])).contains("`fast` is not a rate"));
        assert!(message(&with(None, "all", &["throughput>10us"])).contains("unknown unit `us`"));
        assert!(message(&with(None, "all", &["thruput>1"])).contains("did you mean `throughput`?"));
        assert!(message(&with(None, "all", &["stream>1"])).contains("did you mean `streams`?"));
    }
}
