//! The place of a run's files: one run at a time writes there, and earlier results are not lost unasked.
//!
//! - A lock file beside the table (`.results.csv.lock`) keeps a second run away. It goes when the run ends; one that a
//!   crash left does not block later runs.
//! - A table is replaced if the run that wrote it came to its end. Any other file of that name stays, without
//!   `--overwrite`.
//! - Nothing is replaced before the run has rows of its own. With them go the files of the earlier run.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use analyze::table::{
    InputArgs, Table,
    beside::{self, Beside},
    sync_folder,
};
use netcore::control::child::shown;
use schemas::run_record::RunRecord;

use super::files::Files;
use crate::{error::Error, plan::Plan};

/// The place while a run has it.
#[derive(Debug, Default)]
pub struct Claim {
    locks: Vec<Lock>,
    /// Folders made for the run, outermost first.
    made: Vec<PathBuf>,
    /// Files of an earlier run, which go when this one begins.
    stale: BTreeSet<PathBuf>,
    begun: bool,
}

#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Claim {
    /// Makes the folders and locks the place. Fails if another run has it, or if it cannot be written to.
    pub fn of(files: &Files) -> Result<Self, Error> {
        let mut claim = Self::default();
        let reports = [&files.junit, &files.markdown].into_iter().flatten().chain(files.plots.iter().map(|(_, f)| f));
        for folder in files.dir.iter().map(PathBuf::as_path).chain(reports.filter_map(|file| file.parent())) {
            claim.make(folder)?;
        }
        for table in &files.claimed {
            claim.lock(table)?;
        }
        Ok(claim)
    }

    fn make(&mut self, folder: &Path) -> Result<(), Error> {
        let missing = folder.ancestors().take_while(|f| !f.as_os_str().is_empty() && !f.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        for folder in missing {
            match fs::create_dir(&folder) {
                Ok(()) => {
                    self.made.push(folder.clone());
                    sync_folder(&folder).map_err(Error::output(folder.display()))?;
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::output(folder.display())(e)),
            }
        }
        Ok(())
    }

    fn lock(&mut self, table: &Path) -> Result<(), Error> {
        // Two names of one table are one place.
        let real = fs::canonicalize(table).unwrap_or_else(|_| table.to_owned());
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        let path = real.with_file_name(format!(".{name}.lock"));
        let fault = || Error::output(table.display());
        if real.is_dir() {
            return Err(fault()(io::ErrorKind::IsADirectory.into()));
        }
        loop {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = file.map_err(fault())?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    return Err(held(table, holder.trim()));
                }
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(()),
            }
            // The last holder removes the file: another process may have made and locked a new one since.
            let number = |m: fs::Metadata| (m.dev(), m.ino());
            let ours = file.metadata().map(number).map_err(fault())?;
            if fs::metadata(&path).map(number).is_ok_and(|there| there == ours) {
                let argv: Vec<String> = std::env::args().collect();
                let (id, now) = (std::process::id(), schemas::time::now().0);
                // Only for people: the run goes on if the disk is full.
                let _ = file.set_len(0);
                let _ = writeln!(file, "process {id} since {now}: {}", shown(&argv));
                self.locks.push(Lock { path, _file: file });
                return Ok(());
            }
        }
    }

    /// Refuses to replace results that may be the only ones. `plans`: for the message.
    pub fn spare(&self, files: &Files, plans: &[Plan]) -> Result<(), Error> {
        files.claimed.iter().try_for_each(|table| spare(table, files, plans))
    }

    /// Finds the files of an earlier run, while its `run.json` is there.
    pub fn find_stale(&mut self, files: &Files, plans: &[Plan]) {
        let replaced = files.results.iter().chain(&files.intervals).chain(&files.run_json).chain(&files.run_json_copy);
        let replaced: BTreeSet<&PathBuf> = replaced.chain(files.plans.iter().map(|(file, _)| file)).collect();
        let read = plans.iter().flat_map(|plan| {
            let baseline = plan.baseline.as_ref().map(|(baseline, _)| &*baseline.source);
            std::iter::once(Path::new(&plan.path)).chain(baseline)
        });
        let read: BTreeSet<PathBuf> = read.filter_map(|file| fs::canonicalize(file).ok()).collect();
        let earlier = files.run_json.as_ref().and_then(|path| beside::read_record(path).ok().flatten());
        let folder = files.run_json.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let of_earlier = earlier.iter().flat_map(|record| &record.files).map(Path::new);
        let of_earlier = of_earlier.filter(|file| file.components().all(|part| matches!(part, Component::Normal(_))));
        let all = of_earlier.map(|file| folder.join(file)).chain(files.all().cloned());
        self.stale = all
            .filter(|file| !replaced.contains(file))
            .filter(|file| fs::symlink_metadata(file).is_ok_and(|m| m.is_file()))
            .filter(|file| fs::canonicalize(file).is_ok_and(|real| !read.contains(&real)))
            .collect();
    }

    /// Whether the run has begun to write.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Removes the files of an earlier run: this one has rows.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.begun = true;
        for file in std::mem::take(&mut self.stale) {
            match fs::remove_file(&file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::output(file.display())(e)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for lock in &self.locks {
            let _ = fs::remove_file(&lock.path);
        }
        if !self.begun {
            for folder in self.made.iter().rev() {
                // One that is not empty stays.
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

fn held(table: &Path, holder: &str) -> Error {
    let holder = if holder.is_empty() { "another process" } else { holder };
    Error::Measurement(format!(
        "{} is being written by {holder}\n       wait for its end, or name another place with -o",
        table.display()
    ))
}

fn spare(table: &Path, files: &Files, plans: &[Plan]) -> Result<(), Error> {
    if !fs::metadata(table).is_ok_and(|m| m.is_file() && m.len() > 0) {
        return Ok(());
    }
    let name = table.display();
    let refused = |why: &str, remedy: &str| {
        Err(Error::Usage(format!("{name} {why}\n       {remedy}, or name another place with -o")))
    };
    let mut read = match Table::open(&InputArgs { files: vec![table.to_owned()] }) {
        Ok(read) if read.header().find("run_id").is_some() && read.header().find("case_id").is_some() => read,
        _ => return refused("is there, and is no table of plumb run", "--overwrite replaces it"),
    };
    if matches!(read.next_row(), Ok(None)) {
        return Ok(());
    }
    let record = beside::run_record(table);
    let own = match &record {
        Ok(Beside::Own(record)) if beside::run_id(table).as_ref() == Some(&record.run_id) => record,
        _ => {
            let beside = table.with_extension("run.json");
            let why = format!(
                "is there, and nothing tells whether its run came to its end ({} is missing, unreadable, or of another \
                 run)",
                beside.display()
            );
            return refused(&why, "--overwrite replaces it");
        }
    };
    if !own.is_cut_off() {
        return Ok(());
    }
    let place = files.dir.as_ref().filter(|dir| table.parent() == Some(dir.as_path()));
    let place = place.map_or_else(|| table.to_owned(), Clone::clone);
    let remedy = match plans {
        [plan] => format!("go on with it: {}; replace it: --overwrite", resume(&plan.path, &place, own)),
        _ => "replace it: --overwrite".to_owned(),
    };
    let how = own.interrupted.as_ref().map_or_else(|| "has not ended".to_owned(), |by| format!("was ended by {by}"));
    refused(&format!("is of a run that {how} (begun {})", own.began), &remedy)
}

/// The command that goes on with a run.
fn resume(plan: &str, place: &Path, run: &RunRecord) -> String {
    let overrides = run.plans.first().map(|plan| plan.overrides.as_slice()).unwrap_or_default();
    resume_command(plan, overrides, place)
}

/// `plumb run lab.yaml --set duration=1s --resume out`
pub fn resume_command(plan: &str, overrides: &[String], place: &Path) -> String {
    let mut words = vec!["plumb".to_owned(), "run".to_owned(), plan.to_owned()];
    for word in overrides {
        // `--set a=b` is two words.
        words.extend(
            word.split_once(' ')
                .map_or_else(|| vec![word.clone()], |(flag, value)| vec![flag.to_owned(), value.to_owned()]),
        );
    }
    words.extend(["--resume".to_owned(), place.display().to_string()]);
    shown(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(table: &Path) -> Files {
        Files {
            results: Some(table.to_owned()),
            verdicts: Some(table.with_extension("verdicts.csv")),
            run_json: Some(table.with_extension("run.json")),
            claimed: vec![table.to_owned()],
            ..Files::default()
        }
    }

    #[test]
    fn a_place_belongs_to_one_run_and_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("a/b/r.csv");
        let mut files = files(&table);
        files.dir = table.parent().map(Path::to_owned);
        let claim = Claim::of(&files).unwrap();
        let said = Claim::of(&files).unwrap_err().to_string();
        assert!(said.contains(&format!("being written by process {}", std::process::id())), "{said}");
        drop(claim);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        Claim::of(&files).unwrap().begin().unwrap();
        assert!(table.parent().is_some_and(Path::is_dir));
        // One that a crash left.
        fs::write(table.with_file_name(".r.csv.lock"), "process 1 since t: plumb").unwrap();
        Claim::of(&files).unwrap();
    }

    #[test]
    fn only_the_table_of_a_run_that_ended_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("r.csv");
        let files = files(&table);
        let claim = Claim::of(&files).unwrap();
        let refused = |rows: &str, facts: &str| {
            fs::write(&table, rows).unwrap();
            fs::write(table.with_extension("run.json"), facts).unwrap();
            claim.spare(&files, &[]).err().map(|e| e.to_string())
        };
        let (rows, ended) = ("run_id,case_id,case\na,c1,bulk\n", "{\"run_id\": \"a\", \"ended\": \"t\"}");
        assert_eq!(refused(rows, ended), None);
        assert_eq!(refused("", ""), None);
        assert_eq!(refused("run_id,case_id,case\n", ""), None);
        let timer = "{\"run_id\": \"a\", \"ended\": \"t\", \"interrupted\": \"SIGALRM\"}";
        assert_eq!(refused(rows, timer), None);
        for (rows, facts, why) in [
            (rows, "{\"run_id\": \"a\"}", "has not ended"),
            (rows, "{\"run_id\": \"a\", \"ended\": \"t\", \"interrupted\": \"SIGINT\"}", "was ended by SIGINT"),
            (rows, "{\"run_id\": \"b\", \"ended\": \"t\"}", "of another run"),
            (rows, "{", "unreadable"),
            ("run_id,case_id,case\n,,imported\n", ended, "nothing tells"),
            ("milk\nbread\n", ended, "is no table of plumb run"),
        ] {
            let said = refused(rows, facts).unwrap_or_else(|| panic!("{facts} {rows}"));
            assert!(said.contains(why) && said.contains("--overwrite"), "{said}");
        }
    }

    #[test]
    fn the_files_of_an_earlier_run_go_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let outside = path("outside");
        for name in ["r.csv", "r.verdicts.csv", "old.svg", "mine.svg", "outside"] {
            fs::write(path(name), "x").unwrap();
        }
        let listed = serde_json::json!({"run_id": "a", "files": ["r.csv", "old.svg", "../outside", outside, "gone"]});
        fs::write(path("r.run.json"), listed.to_string()).unwrap();
        let files = files(&path("r.csv"));
        let mut claim = Claim::of(&files).unwrap();
        claim.find_stale(&files, &[]);
        claim.begin().unwrap();
        drop(claim);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["mine.svg", "outside", "r.csv", "r.run.json"]);
    }
}
