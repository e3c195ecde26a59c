//! Appending a run, and leaving out old ones.

use super::{
    cycles::thin_cycles,
    files, left_out,
    lines::{Line, Lines, own_header, push_cell, push_line},
    open, read_files,
};
use crate::{
    error::{Error, Place},
    history::{
        series::{self, Key},
        thin::{self, Period},
    },
    table::output::{self, sync_folder},
};
use memchr::memmem::Finder;
use schemas::{
    columns::{HistoryRow, history::Field},
    time, units,
};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Tells git to keep the lines of both sides.
pub(super) const ATTRIBUTES: &str = "*.csv merge=union\n";

/// Bytes of a file that are searched at once.
const BLOCK: usize = 256 << 10;

/// The outcome of adding a run to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub file: PathBuf,
    /// Rows that the file lacked; 0: it has the run already.
    pub rows: usize,
}

/// The file of a plan and a machine.
pub(super) fn file_of(folder: &Path, row: &HistoryRow) -> PathBuf {
    let plain = |text: &Option<String>| {
        let text = text.as_deref().filter(|text| !text.is_empty()).unwrap_or("unknown");
        // A name that is no name of a folder gets one.
        text.replace(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)), "_").trim_start_matches('.').to_owned()
    };
    folder.join(plain(&row.plan)).join(plain(&row.machine) + ".csv")
}

/// A file that gets rows.
struct Grown<'a> {
    path: PathBuf,
    file: File,
    rows: Vec<&'a HistoryRow>,
    /// Its length before.
    before: u64,
}

/// Appends the rows of one run that the history lacks, with notes. If a file cannot take them, all are left as they were.
pub fn append(folder: &Path, rows: &[HistoryRow]) -> Result<(Vec<Appended>, Vec<String>), Error> {
    let Some(run) = rows.iter().find_map(|row| row.run_id.as_deref()).filter(|run| !run.is_empty()) else {
        return Err(Error::Usage("the run has no run_id, by which a history tells runs apart".to_owned()));
    };
    let mut paths: Vec<PathBuf> = rows.iter().map(|row| file_of(folder, row)).collect();
    // All that lock several files do it in this order, so that none waits for another forever.
    paths.sort();
    paths.dedup();
    let mut notes = Vec::new();
    let mut all = Vec::new();
    attribute(folder)?;
    for path in paths {
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
        let (file, note) = open(&path, true).map_err(Error::file(&path))?;
        notes.extend(note);
        let rows = rows.iter().filter(|row| file_of(folder, row) == path).collect();
        let before = file.metadata().map_err(Error::file(&path))?.len();
        all.push(Grown { path, file, rows, before });
    }
    for i in 0..all.len() {
        let grown = &mut all[i];
        match append_to(grown, run) {
            Ok(note) => notes.extend(note),
            Err(source) => {
                let path = grown.path.clone();
                let left: Vec<String> = all.iter().filter_map(Grown::take_back).collect();
                if left.is_empty() {
                    return Err(Error::File { path, source });
                }
                let reason =
                    format!("{source}; part of the run stays, since taking it back failed: {}", left.join("; "));
                return Err(Error::File { path, source: io::Error::other(reason) });
            }
        }
    }
    Ok((all.into_iter().map(|grown| Appended { file: grown.path, rows: grown.rows.len() }).collect(), notes))
}

/// Writes the attributes whole or not at all, before any row: what fails later leaves no run behind. An empty file is one
/// that a full disk left.
fn attribute(folder: &Path) -> Result<(), Error> {
    let path = folder.join(".gitattributes");
    if fs::metadata(&path).is_ok_and(|known| known.len() > 0) {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    fs::write(&path, ATTRIBUTES).map_err(|source| {
        let _ = fs::remove_file(&path);
        Error::File { path, source }
    })
}

impl Grown<'_> {
    /// Leaves the file as it was: a part of a run would look like a run of fewer cases. `Some`: why it could not.
    fn take_back(&self) -> Option<String> {
        let taken = if self.before == 0 { fs::remove_file(&self.path) } else { self.file.set_len(self.before) };
        // A file that is gone has no part of the run either.
        let failed = taken.err().filter(|error| error.kind() != io::ErrorKind::NotFound);
        failed.map(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Appends the rows that the file lacks. They begin with a header where the file has none, or that of another version.
fn append_to(grown: &mut Grown, run: &str) -> io::Result<Option<String>> {
    let end = End::of(&mut grown.file, run)?;
    if end.holds {
        let known = known(&mut grown.file, run)?;
        grown.rows.retain(|row| !known.contains(&SERIES.map(|field| row.text(field.name()))));
    }
    if grown.rows.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    if end.is_torn {
        text.push('\n');
    }
    let header = own_header();
    if end.header.as_ref() != Some(&header) {
        text.push_str(&header);
        text.push('\n');
    }
    for row in &grown.rows {
        push_line(&mut text, |push| row.for_each_cell(push));
    }
    grown.file.write_all(text.as_bytes())?;
    grown.file.sync_data()?;
    if grown.before == 0 {
        sync_folder(&grown.path)?;
    }
    Ok(end.is_torn.then(|| {
        format!(
            "{}: its last line was cut off; the new ones follow behind it (plumb trend names the line)",
            grown.path.display()
        )
    }))
}

/// The columns that tell a row from others of its run in a file.
const SERIES: [Field; 4] = [Field::case_id, Field::member, Field::direction, Field::metric];

/// The rows of a run that a file has whole.
fn known(file: &mut File, run: &str) -> io::Result<HashSet<[String; 4]>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let mut found = HashSet::new();
    for numbered in Lines::of(&bytes) {
        if let Ok(Line::Row(row)) = numbered.line
            && row.text(Field::run_id) == run
        {
            found.insert(SERIES.map(|field| row.text(field).to_owned()));
        }
    }
    Ok(found)
}

/// Facts about a file that decide what is appended.
struct End {
    /// Its last line has no end.
    is_torn: bool,
    /// Its last header.
    header: Option<String>,
    /// A line begins with the run.
    holds: bool,
}

impl End {
    /// Reads the file once, block by block: one of ten years has 50 MB.
    fn of(file: &mut File, run: &str) -> io::Result<Self> {
        let mut start = String::from("\n");
        push_cell(&mut start, run);
        start.push(',');
        let (of_run, of_header) = (Finder::new(&start), Finder::new("\nrun_id,"));
        let overlap = start.len().max(of_header.needle().len());
        let mut block = vec![0; BLOCK + overlap];
        // The first line begins like the others.
        block[0] = b'\n';
        let (mut filled, mut offset) = (1, 0_u64);
        let (mut holds, mut header, mut is_torn) = (false, None, false);
        file.seek(SeekFrom::Start(0))?;
        loop {
            let read = file.read(&mut block[filled..])?;
            if read == 0 {
                break;
            }
            filled += read;
            let bytes = &block[..filled];
            holds |= of_run.find(bytes).is_some();
            // In the file, the byte behind the line end has the place that the line end has in this text.
            header = of_header.find_iter(bytes).last().map(|at| offset + at as u64).or(header);
            is_torn = bytes[filled - 1] != b'\n';
            let kept = overlap.min(filled);
            block.copy_within(filled - kept..filled, 0);
            offset += (filled - kept) as u64;
            filled = kept;
        }
        let header = header.map(|at| line_at(file, at)).transpose()?;
        Ok(Self { is_torn, header, holds })
    }
}

/// The line at an offset, at most as long as a header of this version with its end.
fn line_at(file: &mut File, offset: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(own_header().len() as u64 + 2).read_to_end(&mut bytes)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).trim_end().to_owned())
}

// Leaving out old rows that their series do not need, and the samples of those that stay.

/// The compaction that is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Order {
    /// Age from which on lines are thinned out (365d), or the day or time before which
    // In UTC, as in the column `time` or the start of it.
    #[arg(long = "older-than", value_name = "AGE|DATE", value_parser = parse_before)]
    pub before: String,
    /// Keep one line of each such period in each series
    #[arg(long, value_name = "PERIOD", default_value = "week")]
    pub keep: Period,
    /// Only print what would go
    #[arg(long = "dry-run")]
    pub is_dry: bool,
    /// Remove lines that were cut off and marks of a merge
    #[arg(long)]
    pub repair: bool,
}

/// A time in UTC as the column `time` has it, or the day at its start.
pub fn parse_before(text: &str) -> Result<String, String> {
    const WANTED: &str = "write an age as 365d, a day as 2026-01-31, or a time as 2026-01-31T12:00:00Z";
    if text.ends_with('Z') && time::parse(text).is_some() || time::parse(&format!("{text}T00:00:00Z")).is_some() {
        return Ok(text.to_owned());
    }
    let age = units::parse_duration(text).map_err(|_| format!("`{text}` is no age and no date: {WANTED}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = now.as_secs_f64() - age.as_secs_f64();
    time::from_unix_seconds(seconds).map(|time| time.to_string()).ok_or_else(|| WANTED.to_owned())
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
            let (file, note) = open(path, false).map_err(Error::file(path))?;
            locked.push(file);
            notes.extend(note);
        }
    }
    let reading = read_files(&files, order.repair)?;
    notes.extend(reading.notes.iter().cloned());
    let known = series::read_accepted(folder)?;
    let known: Vec<&str> = known.iter().map(series::Accepted::run_id).collect();
    let mut gone: Gone = HashMap::new();
    for (series, stays) in thin::needed(&reading, &order.before, order.keep, &known) {
        let points = series.points.iter().zip(stays).filter(|(_, stays)| !stays);
        gone.insert(series.key, points.map(|(point, _)| &*reading.runs[point.run].run_id).collect());
    }
    let mut all = Vec::new();
    for file in &files {
        let bytes = fs::read(file).map_err(Error::file(file))?;
        let (compacted, text) = without(file, &bytes, &gone, order)?;
        if !order.is_dry && text != bytes {
            replace(file, &text)?;
        }
        all.push(compacted);
    }
    drop(locked);
    thin_cycles(folder, &order.before, order.is_dry)?;
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
    let target = fs::canonicalize(file).map_err(Error::file(file))?;
    let permissions = fs::metadata(&target).map_err(Error::file(file))?.permissions();
    output::replace(&target, text)?;
    fs::set_permissions(&target, permissions).map_err(Error::file(file))
}
