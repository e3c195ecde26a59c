//! The `counters` table: what the kernels and interfaces of the ends counted, as far as tests collected it.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use netcore::report::{CounterWindow, SideReport, Span};
use schemas::{
    columns::{Column, CounterRow, names},
    words,
};

use super::{
    appended::Appended,
    csv::{LineWriter, header},
};
use crate::{
    error::Error,
    schedule::{bench::Measured, step::Step},
};

/// A table beside the results. It is created with its first row, so that a run without any leaves no empty file.
#[derive(Debug)]
pub struct SideTable {
    path: PathBuf,
    columns: &'static [Column],
    resume: bool,
    /// Rows from before the run had its first row in the results; `None` after that.
    waiting: Option<Vec<u8>>,
    file: Option<Appended>,
}

impl SideTable {
    /// Will write there; a resumed run adds to what is there.
    pub fn new(path: &Path, columns: &'static [Column], resume: bool) -> Self {
        Self { path: path.to_owned(), columns, resume, waiting: Some(Vec::new()), file: None }
    }

    /// Allows the file to be made.
    pub fn begin(&mut self) -> Result<(), Error> {
        let waiting = self.waiting.take().unwrap_or_default();
        self.write(&waiting)
    }

    /// Brings the rows to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync().map_err(Error::output(self.path.display())))
    }

    /// Writes the lines of an iteration.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.waiting {
            Some(waiting) => {
                waiting.extend(bytes);
                Ok(())
            }
            None => self.write(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let fault = || Error::output(self.path.display());
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // A resumed run goes on where the table ends.
                let new = !self.resume || !self.path.exists();
                let mut options = File::options();
                options.create(true).write(true).truncate(new).append(!new);
                let mut file = options.open(&self.path).and_then(Appended::at_end_of).map_err(fault())?;
                if new {
                    file.write_all(&header(names(self.columns))).map_err(fault())?;
                }
                none.insert(file)
            }
        };
        file.write_all(bytes).map_err(fault())
    }
}

/// The lines of the counters of an iteration.
pub fn lines(step: &Step, iteration: u32, measured: &Measured) -> Vec<u8> {
    let mut text = LineWriter::new();
    for ((member, row), reports) in step.members_with_identity().zip(&measured.members) {
        let far = reports.far.as_ref().map(|far| (member.to.name(), far));
        let ends: Vec<(&str, &SideReport)> = std::iter::once((member.from.name(), &reports.near)).chain(far).collect();
        for (host, window) in ends.iter().flat_map(|(host, r)| r.counters.iter().map(move |w| (host, w))) {
            for change in &window.values {
                let seconds = window.elapsed_ns as f64 / 1e9;
                // Counters only grow: one that fell is a gauge, or began again.
                let delta = change.after.checked_sub(change.before);
                let row = CounterRow {
                    run_id: row.run_id.clone(),
                    case_id: row.case_id.clone(),
                    case: row.case.clone(),
                    member: row.member.clone(),
                    iteration: Some(iteration.into()),
                    host: Some((*host).to_owned()),
                    span: Some(span(window)),
                    start_s: Some(window.start_ns as f64 / 1e9),
                    source: Some(change.source.clone()),
                    key: Some(change.key.clone()),
                    before: Some(change.before),
                    after: Some(change.after),
                    delta,
                    elapsed_s: Some(seconds),
                    rate_per_s: delta.map(|d| d as f64 / seconds),
                    note: delta.is_none().then(|| "smaller than before: a gauge, or a reset".into()),
                };
                row.for_each_cell(|cell| text.cell(cell));
                text.end();
            }
        }
    }
    text.finish()
}

fn span(window: &CounterWindow) -> words::Span {
    match window.span {
        Span::Before => words::Span::Before,
        Span::Interval => words::Span::Interval,
        Span::Measure => words::Span::Measure,
        Span::After => words::Span::After,
    }
}
