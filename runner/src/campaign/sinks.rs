//! All sinks of a run as one: rows go to the tables, reports to `run.json`, counters and notes.
//!
//! Files are made with the first measured iteration. Until then an earlier run's stay, and rows of what was skipped or cut
//! off wait. Then, in this order: each table with its first rows beside the one that it replaces; `run.json`; the tables
//! in their places; the earlier run's other files go. A crash in between leaves files of two runs, which readers notice by
//! their run ids.

use std::sync::Arc;

use netcore::spec::Stop;
use schemas::{
    columns::{Row, counters::COUNTER_COLUMNS, hops::HOP_COLUMNS},
    words::{Record, Status},
};

use super::Options;
use crate::{
    error::Error,
    metrics::LiveState,
    plan::case::Member,
    resume::Start,
    schedule::{Measured, RowSink, history::Trimmed, step::Step},
    sinks::{
        csv::{self, CsvSink, Fresh, SideTable},
        files::{Files, OutputLock},
        hops,
        notes::Notes,
        run_json::{HookLog, RunJson, RunRecord},
    },
};

pub(super) struct Sinks<'a> {
    files: &'a Files,
    axis_paths: &'a [String],
    lock: OutputLock,
    /// Standard output, or a table that is a device or a pipe.
    stream: Option<CsvSink>,
    csv: Option<CsvSink>,
    /// Interval rows, if they have a table of their own.
    intervals: Option<CsvSink>,
    counters: Option<SideTable>,
    hops: Option<SideTable>,
    pub(super) hook_log: HookLog,
    /// Rows from before the first measured iteration; `None` once the files are begun.
    waiting: Option<Vec<Row>>,
    /// Tables that a resumed run goes on with.
    trimmed: Vec<Trimmed>,
    resumed: bool,
    live_state: Option<Arc<LiveState>>,
    pub(super) record: RunJson,
    pub(super) notes: Notes,
}

impl<'a> Sinks<'a> {
    /// The tables of a run, none of which is opened yet unless it is a stream.
    pub(super) fn new(
        files: &'a Files,
        lock: OutputLock,
        start: &Start,
        options: &Options,
        axis_paths: &'a [String],
        trimmed: Vec<Trimmed>,
    ) -> Result<Self, Error> {
        let resumed = options.resume.is_some();
        let stream = match &files.results {
            Some(path) if files.is_special => Some(CsvSink::special(path, axis_paths)?),
            None if options.stdout_rows => Some(CsvSink::stdout(axis_paths)?),
            _ => None,
        };
        let facts = RunRecord {
            results_version: schemas::publish::RESULTS_VERSION,
            run_id: start.run_id.clone(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            tool_build: env!("PLUMB_BUILD").into(),
            argv: std::env::args().collect(),
            began: start.began.clone(),
            resumed: start.resumed.clone(),
            cases: start.cases.clone(),
            files: files.owned(),
            ..RunRecord::default()
        };
        Ok(Self {
            files,
            axis_paths,
            lock,
            stream,
            csv: None,
            intervals: None,
            counters: files.counters.as_deref().map(|path| SideTable::new(path, COUNTER_COLUMNS, resumed)),
            hops: files.hops.as_deref().map(|path| SideTable::new(path, HOP_COLUMNS, resumed)),
            hook_log: HookLog::new(files.hooks.as_deref(), &start.run_id, resumed),
            waiting: Some(Vec::new()),
            trimmed,
            resumed,
            live_state: options.live_state.clone(),
            record: RunJson::new(facts, files.run_json.clone(), files.run_json_copy.clone()),
            notes: Notes::default(),
        })
    }

    /// Whether the run has files.
    pub(super) fn is_begun(&self) -> bool {
        self.lock.is_begun()
    }

    /// Ends the tables. A run that was interrupted before it measured anything leaves an earlier one as it was.
    pub(super) fn end(&mut self, interrupted: bool) -> Result<(), Error> {
        if self.waiting.is_some() && !(interrupted && self.files.earlier().is_some()) { self.begin() } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), Error> {
        let waiting = self.waiting.take().unwrap_or_default();
        let (intervals, rest) = self.split(&waiting);
        let results = self.files.results.as_ref().filter(|_| !self.files.is_special);
        if self.resumed {
            self.trimmed.iter().try_for_each(Trimmed::write)?;
        }
        let fresh = |path, rows: &[Row]| Fresh::with(path, self.axis_paths, rows);
        let goes_on = |path: &&std::path::PathBuf| self.resumed && path.exists();
        let append = |path: &std::path::PathBuf, rows: &[Row]| {
            let mut table = CsvSink::append(path, self.axis_paths)?;
            table.rows(rows)?;
            Ok::<_, Error>(table)
        };
        let new_results = results.filter(|path| !goes_on(path)).map(|path| fresh(path, &rest)).transpose()?;
        let new_intervals = self.files.intervals.as_ref().filter(|path| !goes_on(path));
        let new_intervals = new_intervals.map(|path| fresh(path, &intervals)).transpose()?;
        self.record.begin()?;
        self.files.keep_plans()?;
        self.csv = match new_results {
            Some(table) => Some(table.publish()?),
            None => results.map(|path| append(path, &rest)).transpose()?,
        };
        self.intervals = match new_intervals {
            Some(table) => Some(table.publish()?),
            None => self.files.intervals.as_ref().map(|path| append(path, &intervals)).transpose()?,
        };
        self.lock.begin()?;
        self.counters.iter_mut().chain(&mut self.hops).try_for_each(SideTable::begin)?;
        self.hook_log.begin().map_err(Error::output("hooks.log"))
    }

    /// Interval rows, if they have a table of their own, and the rest.
    fn split(&self, rows: &[Row]) -> (Vec<Row>, Vec<Row>) {
        let apart = self.files.intervals.is_some();
        rows.iter().cloned().partition(|r| apart && r.record == Some(Record::Interval))
    }
}

impl RowSink for Sinks<'_> {
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        if let Some(live_state) = &self.live_state {
            live_state.rows(rows);
        }
        if let Some(stream) = &mut self.stream {
            let apart = self.files.intervals.is_some();
            let rest = rows.iter().filter(|r| !apart || r.record != Some(Record::Interval)).cloned();
            stream.rows(&rest.collect::<Vec<_>>())?;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.extend_from_slice(rows);
            // An iteration that was cut off does not count as a result.
            let is = |status| rows.iter().any(|row| row.status == Some(status));
            let measured = !is(Status::Cut) && rows.iter().any(|row| row.status != Some(Status::Skipped));
            return if measured || self.resumed { self.begin() } else { Ok(()) };
        }
        let (intervals, rest) = self.split(rows);
        if let Some(table) = &mut self.intervals {
            table.rows(&intervals)?;
        }
        if let Some(table) = &mut self.csv {
            table.rows(&rest)?;
        }
        // The results last: with them the iteration is finished, also after a power cut.
        self.record.sync()?;
        self.counters.iter().chain(&self.hops).try_for_each(SideTable::sync)?;
        self.intervals.as_ref().map_or(Ok(()), CsvSink::sync)?;
        self.csv.as_ref().map_or(Ok(()), CsvSink::sync)
    }

    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        self.record.keep(step, measured)?;
        let is_timed = |member: &Member| {
            member.spec().is_some_and(|spec| spec.pace.is_none() && matches!(spec.phases.stop, Stop::AfterNs(_)))
        };
        self.notes.keep(&step.name, measured, step.members.iter().map(is_timed));
        let counters = self.counters.iter_mut().map(|table| (table, csv::counter_lines(step, iteration, measured)));
        let hops = self.hops.iter_mut().map(|table| (table, hops::lines(step, iteration, measured)));
        counters.chain(hops).try_for_each(|(table, lines)| table.keep(&lines))
    }

    fn note(&mut self, sentence: String) {
        self.notes.add(sentence);
    }

    fn is_closed(&self) -> bool {
        self.stream.as_ref().is_some_and(CsvSink::is_closed)
    }
}
