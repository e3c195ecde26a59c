//! The folder of a history: a file per plan and machine, whose lines stand in the order of their arrival.
//!
//! A file only grows, until it is compacted. A line that was cut off (a full disk, a crash) is told, and left out on request;
//! the others are read, since every row is one line. `git` keeps the lines of both sides when it merges (`merge=union`).
//!
//! - `lines`: the lines of a file, and their faults
//! - `cycles`: the cycles of a plan that `plumb watch` measures again and again
//! - `append`: appending a run, and leaving out old ones; one process at a time

mod append;
mod cycles;
mod lines;

pub use append::{Appended, Compacted, Order, append, compact, parse_before};
pub use cycles::{CYCLES_FILE, append_cycles, outages, read_cycles};

use self::lines::{Line, Lines};
use super::series::{Key, Reading};
use crate::error::{Error, Place};
use schemas::columns::history::Field;
use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The CSV files of a history, or the one file that is named, in the order of their names.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    search(path, &mut HashSet::new(), &mut found)?;
    found.sort();
    Ok(found)
}

/// Adds the files below a path. `seen`: folders that were searched, since links may lead back to them.
fn search(path: &Path, seen: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if !fs::metadata(path).map_err(Error::file(path))?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if !seen.insert(fs::canonicalize(path).map_err(Error::file(path))?) {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(Error::file(path))? {
        let inner = entry.map_err(Error::file(path))?.path();
        let name = inner.file_name().unwrap_or_default();
        // Hidden ones are git's and the watch's.
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let is_other = name == super::series::ACCEPTED_FILE || name == CYCLES_FILE;
        if inner.is_dir() || (inner.extension().is_some_and(|end| end == "csv") && !is_other) {
            search(&inner, seen, found)?;
        }
    }
    Ok(())
}

/// Reads the files of a history. With `repair`, lines that are cut off, marks of a merge and the like are left out and noted;
/// without, the first one is an error.
pub fn read(path: &Path, repair: bool) -> Result<Reading, Error> {
    let reading = read_files(&files(path)?, repair)?;
    if reading.runs.is_empty() {
        let hint = "plumb history add RUN --to DIR adds a run";
        return Err(Error::Usage(format!("{} has no history: {hint}", path.display())));
    }
    Ok(reading)
}

fn read_files(files: &[PathBuf], repair: bool) -> Result<Reading, Error> {
    let mut reading = Reading::default();
    for file in files {
        let bytes = fs::read(file).map_err(Error::file(file))?;
        read_file(file, &bytes, repair, &mut reading)?;
    }
    Ok(reading)
}

/// Whether a line is left out: with `repair`, a fault that is of this line only. The note about it, or the error.
fn left_out(file: &Path, number: usize, fault: lines::Fault, repair: bool) -> Result<String, Error> {
    let file = file.display().to_string();
    if repair && fault.is_of_line {
        return Ok(format!("{file}:{number}: {}: left out", fault.reason));
    }
    let remedy = if fault.is_of_line { " (--repair leaves the line out)" } else { "" };
    let place = Place { file, line: number as u64, column: None };
    Err(Error::Data { place, reason: fault.reason + remedy })
}

/// Reads one file. Its place in a message is `file:line`.
fn read_file(file: &Path, bytes: &[u8], repair: bool, reading: &mut Reading) -> Result<(), Error> {
    let mut machines: HashSet<String> = HashSet::new();
    let mut latest = String::new();
    let mut said_back = false;
    for numbered in Lines::of(bytes) {
        let number = numbered.number;
        let row = match numbered.line {
            Ok(Line::Row(row)) => row,
            Ok(Line::Blank | Line::Header { .. }) => continue,
            Err(fault) => {
                let note = left_out(file, number, fault, repair)?;
                reading.notes.push(note);
                continue;
            }
        };
        let time = row.text(Field::time);
        if time < latest.as_str() && !std::mem::replace(&mut said_back, true) {
            reading.notes.push(format!(
                "{}:{number}: this run began before the one above it (a merge, or a clock that went back): runs are taken in \
                 the order of their times",
                file.display()
            ));
        }
        if latest != time {
            time.clone_into(&mut latest);
        }
        let machine = row.text(Field::machine);
        if !machines.contains(machine) && machines.insert(machine.to_owned()) && machines.len() == 2 {
            let file = file.display();
            reading.notes.push(format!(
                "{file}:{number}: the file has rows of another machine: each machine has series of its own"
            ));
        }
        reading.name(machine, row.text(Field::hosts));
        let facts = [Field::time, Field::commit, Field::version, Field::labels].map(|field| row.text(field));
        let run = reading.run(row.text(Field::run_id), facts);
        if !reading.add(row.key(), row.text(Field::case), run, [Some(row.centre), row.low, row.high]) {
            let (file, run) = (file.display(), row.text(Field::run_id));
            reading
                .notes
                .push(format!("{file}:{number}: run {run} has another value for this series: the first counts"));
        }
    }
    Ok(())
}

// Files of a history, one process at a time.

/// Opens a file to append to it and waits until no other process has it. The lock ends with the file. The note: this file
/// system has no locks.
fn open(path: &Path, create: bool) -> io::Result<(File, Option<String>)> {
    loop {
        let file = OpenOptions::new().read(true).append(true).create(create).open(path)?;
        let note = file.lock().err().map(|error| {
            format!("{}: cannot lock it ({error}): let no other plumb history write there now", path.display())
        });
        // Compaction puts another file in its place.
        let own = file.metadata()?;
        match fs::metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (own.dev(), own.ino()) => return Ok((file, note)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

// The lines of a history that hold the rows of a run, for annotations.

/// The file and line (from 1) of a run's row in a series; `None`: it is not there any more.
pub fn place(history: &Path, key: &Key, run_id: &str) -> Result<Option<(PathBuf, usize)>, Error> {
    for file in files(history)? {
        let text = fs::read(&file).map_err(Error::file(&file))?;
        if memchr::memmem::find(&text, run_id.as_bytes()).is_none() {
            continue;
        }
        let text = String::from_utf8_lossy(&text);
        let names = [run_id, &key.machine, &key.case_id, &key.member, &key.direction, &key.metric];
        let is_row = |line: &str| {
            // Names without a comma are written as they are.
            names.iter().all(|name| name.is_empty() || line.split(',').any(|cell| cell.trim_matches('"') == *name))
        };
        if let Some(index) = text.lines().position(is_row) {
            return Ok(Some((file, index + 1)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
