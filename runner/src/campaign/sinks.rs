//! All sinks of a run as one: rows go to the tables, reports to `run.json`, counters and notes.

use std::path::PathBuf;

use schemas::{columns::Row, words::Record};

use super::Options;
use crate::{
    error::Error,
    resume::Start,
    schedule::{
        bench::{Measured, RowSink},
        step::Step,
    },
    sinks::{
        counters::CounterSink,
        csv::CsvSink,
        files::Files,
        notes::Notes,
        run_json::{RunJson, RunRecord},
    },
};

pub(super) struct Sinks {
    csv: Option<CsvSink>,
    /// Interval rows, if they have a table of their own.
    intervals: Option<CsvSink>,
    counters: Option<CounterSink>,
    pub(super) record: RunJson,
    pub(super) notes: Notes,
}

impl Sinks {
    /// Opens the tables of a run. A resumed run appends to its own.
    pub(super) fn open(files: &Files, start: &Start, options: &Options, axis_paths: &[String]) -> Result<Self, Error> {
        let resumed = options.resume.is_some();
        let table = |path: &PathBuf| {
            if resumed && path.exists() { CsvSink::append(path, axis_paths) } else { CsvSink::create(path, axis_paths) }
        };
        let csv = match &files.results {
            Some(path) => Some(table(path)?),
            None if options.stdout_rows => Some(CsvSink::stdout(axis_paths)?),
            None => None,
        };
        let facts = RunRecord {
            results_version: schemas::publish::RESULTS_VERSION,
            run_id: start.run_id.clone(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            argv: std::env::args().collect(),
            began: start.began.clone(),
            resumed: start.resumed.clone(),
            cases: start.cases.clone(),
            ..RunRecord::default()
        };
        Ok(Self {
            csv,
            intervals: files.intervals.as_ref().map(table).transpose()?,
            counters: files.counters.as_deref().map(|path| CounterSink::new(path, resumed)),
            record: RunJson::new(facts, files.run_json.clone()),
            notes: Notes::default(),
        })
    }
}

impl RowSink for Sinks {
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        let apart = self.intervals.is_some();
        let (intervals, rest): (Vec<Row>, Vec<Row>) =
            rows.iter().cloned().partition(|r| apart && r.record == Some(Record::Interval));
        if let Some(table) = &mut self.intervals {
            table.rows(&intervals)?;
        }
        match &mut self.csv {
            Some(csv) => csv.rows(&rest),
            None => Ok(()),
        }
    }

    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        self.record.keep(step, measured)?;
        self.notes.keep(&step.name, measured);
        match &mut self.counters {
            Some(counters) => counters.keep(step, iteration, measured),
            None => Ok(()),
        }
    }

    fn note(&mut self, sentence: String) {
        self.notes.add(sentence);
    }

    fn is_closed(&self) -> bool {
        self.csv.as_ref().is_some_and(CsvSink::is_closed)
    }
}
