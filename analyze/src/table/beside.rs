//! Files that a run leaves beside its table: `results.run.json`, `results.verdicts.csv`, `results.counters.csv`.
//!
//! They carry the run's id, as the table's rows do. A file of another run (left there by an earlier one, or beside a table
//! that was copied) is ignored, and a sentence says so.

use super::{InputArgs, Table};
use crate::error::{self, Error, Place};
use schemas::run_record::RunRecord;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A table that stands for a run's own folder: the other files have no prefix there.
const OF_FOLDER: &str = "results.csv";

/// A file beside a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside<T> {
    Absent,
    /// Of the run that wrote the table; also where either names no run.
    Own(T),
    /// Of another run: a sentence that says so.
    Foreign(String),
}

impl<T> Beside<T> {
    /// The file of the table's own run. A note on standard error says that a file of another run is ignored.
    pub fn or_note(self) -> Option<T> {
        match self {
            Self::Own(file) => Some(file),
            Self::Absent => None,
            Self::Foreign(sentence) => {
                error::warn(&sentence);
                None
            }
        }
    }
}

/// Possible places of a file of this kind (`run.json`, `verdicts.csv`): `x.run.json` beside `x.csv`, and `run.json` in a
/// run's own folder. Standard input has no files beside it.
pub fn paths(results: &Path, kind: &str) -> Vec<PathBuf> {
    let Some(name) = results.file_name().filter(|name| *name != "-") else { return Vec::new() };
    let folder = (name == OF_FOLDER).then(|| results.with_file_name(kind));
    std::iter::once(results.with_extension(kind)).chain(folder).collect()
}

/// The run that wrote a table, from its first row that names one; `None`: it cannot be read, or names none.
pub fn run_id(table: &Path) -> Option<String> {
    let mut table = Table::open(&InputArgs { files: vec![table.to_owned()] }).ok()?;
    let column = table.header().find("run_id")?;
    while let Some(row) = table.next_row().ok()? {
        if !row.get(column).is_empty() {
            return Some(row.get(column).to_owned());
        }
    }
    None
}

/// The `run.json` beside a table.
pub fn run_record(results: &Path) -> Result<Beside<RunRecord>, Error> {
    find(results, "run.json", |path| {
        let record = read_record(path)?;
        Ok(record.map(|record| (Some(record.run_id.clone()).filter(|id| !id.is_empty()), record)))
    })
}

/// Another table of the run beside its results: `verdicts.csv` or `counters.csv`.
pub fn table(results: &Path, kind: &str) -> Result<Beside<PathBuf>, Error> {
    find(results, kind, |path| Ok(path.exists().then(|| (run_id(path), path.to_owned()))))
}

/// Reads a `run.json`; `None` where there is none.
pub fn read_record(path: &Path) -> Result<Option<RunRecord>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    serde_json::from_slice(text.as_bytes()).map(Some).map_err(|e| Error::Data {
        place: Place { file: path.display().to_string(), line: e.line() as u64, column: None },
        reason: format!("this is no run.json: {e}"),
    })
}

/// The first file of the table's own run. `read` returns the run that a file names, and its value.
fn find<T>(
    results: &Path,
    kind: &str,
    read: impl Fn(&Path) -> Result<Option<(Option<String>, T)>, Error>,
) -> Result<Beside<T>, Error> {
    let mut found = Beside::Absent;
    let mut of_table = None;
    for path in paths(results, kind) {
        let Some((of_file, value)) = read(&path)? else { continue };
        match (of_table.get_or_insert_with(|| run_id(results)), of_file) {
            (Some(of_table), Some(of_file)) if *of_table != of_file => {
                if matches!(found, Beside::Absent) {
                    found = Beside::Foreign(format!(
                        "{} is ignored: it is about run {of_file}, and {} is of run {of_table}",
                        path.display(),
                        results.display()
                    ));
                }
            }
            _ => return Ok(Beside::Own(value)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_run_is_ignored_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("r.csv", "run_id,case\na,bulk\n");
        assert_eq!(table(&path("r.csv"), "verdicts.csv").unwrap(), Beside::Absent);
        write("r.verdicts.csv", "verdict,run_id\nmissing,\npass,b\n");
        write("r.run.json", "{\"run_id\": \"b\"}");
        for said in [
            table(&path("r.csv"), "verdicts.csv")
                .map(|found| matches!(found, Beside::Foreign(why) if why.contains("run b"))),
            run_record(&path("r.csv")).map(|found| matches!(found, Beside::Foreign(why) if why.contains("of run a"))),
        ] {
            assert!(said.unwrap());
        }
        write("r.csv", "run_id,case\nb,bulk\n");
        assert_eq!(table(&path("r.csv"), "verdicts.csv").unwrap(), Beside::Own(path("r.verdicts.csv")));
        assert!(matches!(run_record(&path("r.csv")).unwrap(), Beside::Own(_)));
        // A table that names no run, of another program or after a filter, cannot differ.
        write("r.csv", "case\nbulk\n");
        assert!(matches!(run_record(&path("r.csv")).unwrap(), Beside::Own(_)));
    }

    #[test]
    fn a_runs_folder_has_files_without_a_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("results.csv"), "run_id\nfolder\n").unwrap();
        fs::write(path("results.run.json"), "{\"run_id\": \"other\"}").unwrap();
        fs::write(path("run.json"), "{\"run_id\": \"folder\"}").unwrap();
        let found = run_record(&path("results.csv")).unwrap();
        assert!(matches!(found, Beside::Own(run) if run.run_id == "folder"));
        fs::write(path("results.run.json"), "{").unwrap();
        assert!(run_record(&path("results.csv")).unwrap_err().to_string().contains("no run.json"));
        assert!(paths(&path("x.csv"), "run.json").len() == 1 && paths(Path::new("-"), "run.json").is_empty());
    }
}
