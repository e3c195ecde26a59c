//! Leaving out old rows that their series do not need, and the samples of those that stay.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use schemas::columns::history::Field;

use super::lines::{Line, Lines};
use super::{files, left_out, lock, read_files};
use crate::{
    error::{Error, Place},
    history::{
        accepted,
        series::Key,
        thin::{self, Period},
    },
    table::output,
};

/// The compaction that is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// Time in UTC before which rows are thinned out, as in the column `time` or the start of it.
    pub before: String,
    /// Of each such period a series keeps one row.
    pub keep: Period,
    /// Leave out lines that are cut off and the like.
    pub repair: bool,
    /// Write nothing.
    pub is_dry: bool,
}

/// The outcome for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub file: PathBuf,
    /// Rows before and after.
    pub rows: (usize, usize),
    /// Runs with rows before and after.
    pub runs: (usize, usize),
    /// Bytes before and after.
    pub bytes: (usize, usize),
}

/// The runs whose rows go, by series.
type Gone<'a> = HashMap<Key, HashSet<&'a str>>;

/// Compacts a history, with notes. Each file is replaced when its successor is complete. All files are locked, so that no run
/// is appended to one that is replaced.
pub fn compact(folder: &Path, order: &Order) -> Result<(Vec<Compacted>, Vec<String>), Error> {
    if !folder.is_dir() {
        let reason = "rows are thinned out in all files of a history: name its folder";
        return Err(Error::Usage(format!("{}: {reason}", folder.display())));
    }
    let mut notes = Vec::new();
    let mut locked = Vec::new();
    let files = files(folder)?;
    if !order.is_dry {
        for path in &files {
            let (file, note) = lock::open(path, false).map_err(|source| Error::File { path: path.clone(), source })?;
            locked.push(file);
            notes.extend(note);
        }
    }
    let reading = read_files(&files, order.repair)?;
    notes.extend(reading.notes.iter().cloned());
    let known = accepted::read(folder)?;
    let known: Vec<&str> = known.iter().map(accepted::Accepted::run_id).collect();
    let mut gone: Gone = HashMap::new();
    for (series, stays) in thin::needed(&reading, &order.before, order.keep, &known) {
        let points = series.points.iter().zip(stays).filter(|(_, stays)| !stays);
        gone.insert(series.key, points.map(|(point, _)| &*reading.runs[point.run].run_id).collect());
    }
    let mut all = Vec::new();
    for file in &files {
        let bytes = fs::read(file).map_err(|source| Error::File { path: file.clone(), source })?;
        let (compacted, text) = without(file, &bytes, &gone, order)?;
        if !order.is_dry && text != bytes {
            replace(file, &text)?;
        }
        all.push(compacted);
    }
    drop(locked);
    Ok((all, notes))
}

/// The text of a file without some rows. Lines that stay are not written anew: only the samples of old ones are cut out.
fn without(file: &Path, bytes: &[u8], gone: &Gone<'_>, order: &Order) -> Result<(Compacted, Vec<u8>), Error> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut old: HashSet<Vec<u8>> = HashSet::new();
    let (mut rows, mut runs) = ((0, 0), (HashSet::new(), HashSet::new()));
    for numbered in Lines::of(bytes) {
        let mut line = numbered.bytes.to_vec();
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        match numbered.line {
            Ok(Line::Blank) => {}
            Ok(Line::Header { foreign: None }) => text.append(&mut line),
            Ok(Line::Header { foreign: Some(column) }) => {
                let place = Place { file: file.display().to_string(), line: numbered.number as u64, column: None };
                let reason = format!(
                    "the column `{column}` is of another version, which may need rows that this one would leave out: compact \
                     with that version of plumb"
                );
                return Err(Error::Data { place, reason });
            }
            Ok(Line::Row(row)) => {
                rows.0 += 1;
                let run = row.text(Field::run_id);
                let is_gone = gone.get(&row.key()).is_some_and(|runs| runs.contains(run));
                if !is_gone {
                    if row.text(Field::time) < order.before.as_str() {
                        line.drain(row.sample.clone());
                        // A merge brought back the line with its sample.
                        if !old.insert(line.clone()) {
                            continue;
                        }
                    }
                    rows.1 += 1;
                    text.append(&mut line);
                    note(&mut runs.1, run);
                }
                note(&mut runs.0, run);
            }
            Err(fault) => {
                left_out(file, numbered.number, fault, order.repair)?;
            }
        }
    }
    let runs = (runs.0.len(), runs.1.len());
    let compacted = Compacted { file: file.to_owned(), rows, runs, bytes: (bytes.len(), text.len()) };
    Ok((compacted, text))
}

/// Adds a run to those that were seen.
fn note(runs: &mut HashSet<String>, run: &str) {
    if !runs.contains(run) {
        runs.insert(run.to_owned());
    }
}

/// Replaces a file, or the one that a link leads to, by one with the same permissions.
fn replace(file: &Path, text: &[u8]) -> Result<(), Error> {
    let at = |source| Error::File { path: file.to_owned(), source };
    let target = fs::canonicalize(file).map_err(at)?;
    let permissions = fs::metadata(&target).map_err(at)?.permissions();
    output::replace(&target, text)?;
    fs::set_permissions(&target, permissions).map_err(at)
}
