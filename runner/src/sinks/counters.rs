//! The `counters` table: what the kernels and interfaces of the ends counted, as far as tests collected it.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use netcore::report::{CounterWindow, SideReport, Span};
use schemas::columns::number;

use super::appended::Appended;
use crate::{
    error::Error,
    schedule::{bench::Measured, step::Step},
};

const HEADER: [&str; 16] = [
    "run_id",
    "case_id",
    "case",
    "member",
    "iteration",
    "host",
    "span",
    "start_s",
    "source",
    "key",
    "before",
    "after",
    "delta",
    "elapsed_s",
    "rate_per_s",
    "note",
];

/// Created with the first counter, so that a run without any leaves no empty file.
#[derive(Debug)]
pub struct CounterSink {
    path: PathBuf,
    resume: bool,
    file: Option<Appended>,
}

impl CounterSink {
    /// Will write there; a resumed run adds to what is there.
    #[must_use]
    pub fn new(path: &Path, resume: bool) -> Self {
        Self { path: path.to_owned(), resume, file: None }
    }

    /// Writes the counters of an iteration.
    pub fn keep(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        let mut text = csv::Writer::from_writer(Vec::new());
        let fault = || Error::output(self.path.display());
        let mut any = false;
        for ((member, row), reports) in step.members_with_identity().zip(&measured.members) {
            let far = reports.far.as_ref().map(|far| (member.to.name(), far));
            let ends: Vec<(&str, &SideReport)> =
                std::iter::once((member.from.name(), &reports.near)).chain(far).collect();
            for (host, window) in ends.iter().flat_map(|(host, r)| r.counters.iter().map(move |w| (host, w))) {
                for change in &window.values {
                    any = true;
                    let cell = |c: &Option<String>| c.clone().unwrap_or_default();
                    let seconds = window.elapsed_ns as f64 / 1e9;
                    // Counters only grow: one that fell is a gauge, or began again.
                    let delta = change.after.checked_sub(change.before);
                    let record = [
                        cell(&row.run_id),
                        cell(&row.case_id),
                        cell(&row.case),
                        cell(&row.member),
                        iteration.to_string(),
                        (*host).to_owned(),
                        span(window).to_owned(),
                        number(window.start_ns as f64 / 1e9),
                        change.source.clone(),
                        change.key.clone(),
                        change.before.to_string(),
                        change.after.to_string(),
                        delta.map(|d| d.to_string()).unwrap_or_default(),
                        number(seconds),
                        delta.map(|d| number(d as f64 / seconds)).unwrap_or_default(),
                        if delta.is_none() { "smaller than before: a gauge, or a reset".into() } else { String::new() },
                    ];
                    text.write_record(&record).map_err(|e| fault()(e.into()))?;
                }
            }
        }
        if !any {
            return Ok(());
        }
        let bytes = text.into_inner().map_err(|e| fault()(e.into_error()))?;
        if self.file.is_none() {
            // A resumed run goes on where the table ends.
            let new = !self.resume || !self.path.exists();
            let mut options = File::options();
            options.create(true).write(true).truncate(new).append(!new);
            let mut file = options.open(&self.path).and_then(Appended::at_end_of).map_err(fault())?;
            if new {
                file.write_all(format!("{}\n", HEADER.join(",")).as_bytes()).map_err(fault())?;
            }
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(&bytes).map_err(Error::output(self.path.display())),
            None => Ok(()),
        }
    }
}

fn span(window: &CounterWindow) -> &'static str {
    match window.span {
        Span::Before => "before",
        Span::Interval => "interval",
        Span::Measure => "measure",
        Span::After => "after",
    }
}
