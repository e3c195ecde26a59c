//! The folder of a history: a file per plan and machine, whose lines stand in the order of their arrival.
//!
//! A file only grows. A line that was cut off (a full disk, a crash) is told, and left out on request; what follows it is
//! read, since every row is one line. `git` keeps the lines of both sides when it merges (`merge=union`).

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use schemas::columns::{HistoryRow, history::HISTORY_COLUMNS, names};

use super::series::{Key, Reading};
use crate::error::{Error, Place};

/// Tells git to keep the lines of both sides.
const ATTRIBUTES: &str = "*.csv merge=union\n";

/// Columns without which a line says nothing.
const REQUIRED: [&str; 6] = ["run_id", "time", "machine", "case_id", "metric", "centre"];

/// The outcome of adding a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Appended to these files.
    Rows(Vec<PathBuf>),
    /// The history has the run already: nothing was written.
    Known(PathBuf),
}

/// The file of a plan and a machine.
fn file_of(folder: &Path, row: &HistoryRow) -> PathBuf {
    let plain = |text: &Option<String>| {
        let text = text.as_deref().filter(|text| !text.is_empty()).unwrap_or("unknown");
        // A name that is no name of a folder gets one.
        text.replace(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)), "_").trim_start_matches('.').to_owned()
    };
    folder.join(plain(&row.plan)).join(plain(&row.machine) + ".csv")
}

/// Appends the rows of one run. A file that cannot take them is left as it was.
pub fn append(folder: &Path, rows: &[HistoryRow]) -> Result<(Appended, Vec<String>), Error> {
    let run = rows.iter().find_map(|row| row.run_id.as_deref()).unwrap_or_default();
    let mut by_file: Vec<(PathBuf, Vec<&HistoryRow>)> = Vec::new();
    for row in rows {
        let file = file_of(folder, row);
        match by_file.iter_mut().find(|(path, _)| *path == file) {
            Some((_, rows)) => rows.push(row),
            None => by_file.push((file, vec![row])),
        }
    }
    for (file, _) in &by_file {
        if !run.is_empty() && holds(file, run)? {
            return Ok((Appended::Known(file.clone()), Vec::new()));
        }
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let mut notes = Vec::new();
    for (file, rows) in &by_file {
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(at(parent))?;
        notes.extend(append_to(file, rows).map_err(at(file))?);
    }
    let attributes = folder.join(".gitattributes");
    if !attributes.exists() {
        fs::write(&attributes, ATTRIBUTES).map_err(at(&attributes))?;
    }
    Ok((Appended::Rows(by_file.into_iter().map(|(file, _)| file).collect()), notes))
}

/// Whether a file has a line of that run.
fn holds(file: &Path, run: &str) -> Result<bool, Error> {
    match fs::read(file) {
        Ok(bytes) => Ok(memchr::memmem::find(&bytes, run.as_bytes()).is_some()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::File { path: file.to_owned(), source }),
    }
}

/// Appends lines. They begin with a header where the file has none, or that of another version.
fn append_to(path: &Path, rows: &[&HistoryRow]) -> io::Result<Option<String>> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let before = file.metadata()?.len();
    let header = names(HISTORY_COLUMNS).collect::<Vec<_>>().join(",");
    let is_torn = before > 0 && last_byte(&mut file)? != b'\n';
    let mut text = String::new();
    if is_torn {
        text.push('\n');
    }
    if last_header(path)? != Some(header.clone()) {
        text.push_str(&header);
        text.push('\n');
    }
    for row in rows {
        let mut first = true;
        row.for_each_cell(|cell| {
            if !std::mem::take(&mut first) {
                text.push(',');
            }
            push_cell(&mut text, cell);
        });
        text.push('\n');
    }
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    if let Err(error) = written {
        // A part of a run would look like a run of fewer cases.
        file.set_len(before)?;
        return Err(error);
    }
    Ok(is_torn.then(|| {
        format!(
            "{}: its last line was cut off; the new ones follow behind it (plumb trend names the line)",
            path.display()
        )
    }))
}

fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0])
}

/// The last header of a file; `None`: it has none.
fn last_header(path: &Path) -> io::Result<Option<String>> {
    let bytes = fs::read(path)?;
    let start = memchr::memmem::rfind(&bytes, b"run_id,").filter(|at| *at == 0 || bytes[at - 1] == b'\n');
    Ok(start.map(|at| {
        let line = bytes[at..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).trim_end().to_owned()
    }))
}

/// A cell of one line: what would end the line becomes a space.
fn push_cell(text: &mut String, cell: &str) {
    let cell = cell.replace(['\n', '\r'], " ");
    if cell.contains([',', '"']) {
        text.push('"');
        text.push_str(&cell.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(&cell);
    }
}

/// The CSV files of a history, or the one file that is named, in the order of their names.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    if !fs::metadata(path).map_err(at(path))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(at(path))? {
        let inner = entry.map_err(at(path))?.path();
        if inner.is_dir() {
            found.extend(files(&inner)?);
        } else if inner.extension().is_some_and(|end| end == "csv")
            && inner.file_stem().is_some_and(|n| n != "accepted")
        {
            found.push(inner);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the files of a history. With `repair`, lines that are cut off and marks of a merge are left out and noted;
/// without, the first one is an error.
pub fn read(path: &Path, repair: bool) -> Result<Reading, Error> {
    let files = files(path)?;
    if files.is_empty() {
        let hint = "plumb history add RUN --to DIR adds a run";
        return Err(Error::Usage(format!("{} has no history: {hint}", path.display())));
    }
    let mut reading = Reading::default();
    for file in &files {
        let text = fs::read(file).map_err(|source| Error::File { path: file.clone(), source })?;
        read_file(file, &String::from_utf8_lossy(&text), repair, &mut reading)?;
    }
    Ok(reading)
}

/// The places of the columns that are read, by the last header.
struct Columns {
    count: usize,
    at: [Option<usize>; 16],
}

impl Columns {
    const NAMES: [&str; 16] = [
        "run_id",
        "time",
        "commit",
        "version",
        "machine",
        "plan",
        "labels",
        "case_id",
        "case",
        "member",
        "direction",
        "metric",
        "n",
        "centre",
        "low",
        "high",
    ];

    fn of(cells: &[String]) -> Self {
        let place = |name: &str| cells.iter().position(|cell| cell == name);
        Self { count: cells.len(), at: Self::NAMES.map(place) }
    }
}

/// Reads one file. Its place in a message is `file:line`.
fn read_file(file: &Path, text: &str, repair: bool, reading: &mut Reading) -> Result<(), Error> {
    let fault = |line: usize, reason: String| Error::Data {
        place: Place { file: file.display().to_string(), line: line as u64, column: None },
        reason,
    };
    let mut columns: Option<Columns> = None;
    let mut cells = Vec::new();
    let mut machines: HashSet<String> = HashSet::new();
    let mut latest = String::new();
    let mut said_back = false;
    for (number, line) in (1..).zip(text.lines()) {
        let mut leave_out = |reason: String| {
            if repair {
                reading.notes.push(format!("{}:{number}: {reason}: left out", file.display()));
                Ok(())
            } else {
                Err(fault(number, format!("{reason} (plumb trend --repair leaves the line out)")))
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        if ["<<<<<<<", "=======", ">>>>>>>", "|||||||"].iter().any(|mark| line.starts_with(mark)) {
            leave_out("a merge conflict was left here: keep the rows of both sides and remove the marks".to_owned())?;
            continue;
        }
        let whole = split(line, &mut cells);
        if cells.first().is_some_and(|cell| cell == "run_id") {
            let found = Columns::of(&cells);
            if let Some(missing) = REQUIRED.iter().find(|name| !cells.iter().any(|cell| cell == *name)) {
                let reason = format!("the header has no column `{missing}`: is this a history, of a newer version?");
                return Err(fault(number, reason));
            }
            columns = Some(found);
            continue;
        }
        let Some(columns) = &columns else {
            return Err(fault(number, "the header is missing, so it is no history".to_owned()));
        };
        if !whole || cells.len() != columns.count {
            leave_out(format!("the line was cut off: it has {} fields of {}", cells.len(), columns.count))?;
            continue;
        }
        let cell = |index: usize| columns.at[index].map_or("", |at| cells[at].as_str());
        let number_at =
            |index: usize| {
                let text = cell(index);
                if text.is_empty() {
                    return Ok(None);
                }
                text.parse::<f64>().ok().filter(|value| value.is_finite()).map(Some).ok_or_else(|| {
                    fault(number, format!("column `{}`: `{text}` is not a number", Columns::NAMES[index]))
                })
            };
        let Some(centre) = number_at(13)? else {
            leave_out("the line has no centre".to_owned())?;
            continue;
        };
        let (low, high) = (number_at(14)?, number_at(15)?);
        let (run_id, time) = (cell(0), cell(1));
        if time < latest.as_str() && !std::mem::replace(&mut said_back, true) {
            reading.notes.push(format!(
                "{}:{number}: this run began before the one above it (a merge, or a clock that went back): runs are taken in \
                 the order of their times",
                file.display()
            ));
        }
        time.clone_into(&mut latest);
        if machines.insert(cell(4).to_owned()) && machines.len() == 2 {
            let file = file.display();
            reading.notes.push(format!(
                "{file}:{number}: the file has rows of another machine: each machine has series of its own"
            ));
        }
        let run = reading.run(run_id, [time, cell(2), cell(3), cell(6)]);
        let key = Key {
            plan: cell(5).to_owned(),
            machine: cell(4).to_owned(),
            case_id: cell(7).to_owned(),
            member: cell(9).to_owned(),
            direction: cell(10).to_owned(),
            metric: cell(11).to_owned(),
        };
        reading.add(key, cell(8), run, [Some(centre), low, high]);
    }
    Ok(())
}

/// Splits a line; `false`: a quoted field has no end.
fn split(line: &str, cells: &mut Vec<String>) -> bool {
    cells.clear();
    let mut cell = String::new();
    let mut chars = line.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    !quoted
}

#[cfg(test)]
mod tests;
