//! The files of a run: their paths, and their place. One run at a time writes there, and earlier results are not lost unasked.
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
    InputArgs,
    beside::{self, Beside},
    sync_folder,
};
use netcore::control::child::shown;

use super::run_json;
use crate::{
    error::{Error, replace},
    plan::{Plan, model::Table, pictures::Picture, shipped},
};

/// The files of a run; what is `None` is not written.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `output.dir`, with the run's id in it.
    pub dir: Option<PathBuf>,
    /// The results table.
    pub results: Option<PathBuf>,
    /// Interval rows, where they have a table of their own.
    pub intervals: Option<PathBuf>,
    /// Kernel and interface counters, written where any were collected.
    pub counters: Option<PathBuf>,
    /// Hops of paths, written where any were probed.
    pub hops: Option<PathBuf>,
    /// Verdicts, written where anything was judged.
    pub verdicts: Option<PathBuf>,
    /// Output of hooks, written if any ran.
    pub hooks: Option<PathBuf>,
    /// Facts about the run.
    pub run_json: Option<PathBuf>,
    /// JUnit XML.
    pub junit: Option<PathBuf>,
    /// Whether the command line names it.
    pub junit_is_named: bool,
    /// The summary in Markdown.
    pub markdown: Option<PathBuf>,
    pub pictures: Vec<Picture>,
    /// Whether GitHub is told of verdicts at the plan's own lines.
    pub annotations: bool,
    /// A copy of `run.json` beside a table outside of the run's folder.
    pub run_json_copy: Option<PathBuf>,
    /// Copies of the plans in the run's folder, with their texts.
    pub plans: Vec<(PathBuf, String)>,
    /// Tables whose place, with the files beside them, belongs to one run at a time.
    pub locked: Vec<PathBuf>,
    /// Whether the rows go to a device or a pipe that is named as a file.
    pub is_special: bool,
}

/// Options of the command line for files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output<'a> {
    /// `-o`.
    pub table: Option<&'a Path>,
    /// Whether rows go to standard output: a plan's folder then has everything but the table.
    pub rows_elsewhere: bool,
    /// `--junit`.
    pub junit: Option<&'a Path>,
    /// `--resume`: a run's folder or its table.
    pub resume: Option<&'a Path>,
}

impl Files {
    /// From the command line (`-o` or `--resume`, `--junit`) and the plans' `output`. Touches nothing.
    pub fn of(plans: &[Plan], output: &Output<'_>, run_id: &str) -> Result<Self, Error> {
        let mut dirs: Vec<&str> = plans.iter().filter_map(|p| p.output.dir.as_deref()).collect();
        dirs.dedup();
        if dirs.len() > 1 {
            return Err(Error::Usage(format!(
                "these plans write to different places ({}): run them one by one, or set output.dir with --set",
                dirs.join(", ")
            )));
        }
        let (dir, table) = match (output.resume, dirs.first()) {
            (Some(table), _) if !table.is_dir() => (None, Some(table)),
            (Some(dir), _) => (Some(dir.to_owned()), None),
            (None, Some(dir)) => (Some(PathBuf::from(dir.replace("${run.id}", run_id))), output.table),
            (None, None) => (None, output.table),
        };
        let mut files = Self { dir: dir.clone(), ..Self::default() };
        if let Some(dir) = &dir {
            let tables: Vec<Table> = plans.iter().filter_map(|p| p.output.tables.as_ref()).flatten().copied().collect();
            let wanted = |table| tables.is_empty() || tables.contains(&table);
            files.results = (!output.rows_elsewhere).then(|| dir.join("results.csv"));
            files.intervals = tables.contains(&Table::Intervals).then(|| dir.join("intervals.csv"));
            files.counters = wanted(Table::Counters).then(|| dir.join("counters.csv"));
            files.hops = wanted(Table::Hops).then(|| dir.join("hops.csv"));
            files.verdicts = wanted(Table::Verdicts).then(|| dir.join("verdicts.csv"));
            files.hooks = Some(dir.join("hooks.log"));
            files.run_json = Some(dir.join("run.json"));
            files.locked.push(dir.join("results.csv"));
        }
        if let Some(table) = table {
            files.results = Some(table.to_owned());
            // A device or a pipe has nothing beside it.
            files.is_special = fs::metadata(table).is_ok_and(|m| !m.is_file() && !m.is_dir());
            if !files.is_special {
                files.locked.push(table.to_owned());
                if dir.is_some() {
                    files.run_json_copy = Some(run_json::beside(table));
                } else {
                    files.counters = Some(table.with_extension("counters.csv"));
                    files.hops = Some(table.with_extension("hops.csv"));
                    files.verdicts = Some(table.with_extension("verdicts.csv"));
                    files.hooks = Some(table.with_extension("hooks.log"));
                    files.run_json = Some(run_json::beside(table));
                }
            }
        }
        let base = dir.as_deref().or_else(|| table.and_then(Path::parent)).unwrap_or(Path::new("")).to_owned();
        let first = |of: fn(&Plan) -> Option<&PathBuf>| plans.iter().find_map(of).map(|p| base.join(p));
        files.junit_is_named = output.junit.is_some();
        files.junit = output.junit.map(Path::to_owned).or_else(|| first(|p| p.output.junit.as_ref()));
        files.markdown = first(|p| p.output.markdown.as_ref());
        files.annotations = plans.iter().any(|p| p.output.annotations.unwrap_or_default().are_wanted());
        let owner = table.filter(|_| dir.is_none() && !files.is_special);
        files.pictures = Picture::of(plans, &base, owner);
        files.plans = plan_copies(dir.as_deref(), plans);
        files.spare(plans)?;
        Ok(files)
    }

    /// All files that the run may write, but the table of somebody's pipe.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let results = self.results.iter().filter(|_| !self.is_special);
        let tables = results.chain(&self.intervals).chain(&self.counters).chain(&self.hops).chain(&self.verdicts);
        let others = [&self.hooks, &self.run_json, &self.run_json_copy, &self.junit, &self.markdown];
        let pictures = self.pictures.iter().map(|p| &p.file);
        tables.chain(others.into_iter().flatten()).chain(pictures).chain(self.plans.iter().map(|(file, _)| file))
    }

    /// The files that go with the table when a later run replaces it, relative to the folder of `run.json`: all in a run's
    /// own folder; beside a table, those that are named after it. Reports have names of their own there, and so has the
    /// JUnit file of the command line.
    pub fn owned(&self) -> Vec<String> {
        let Some(folder) = self.run_json.as_deref().and_then(Path::parent) else { return Vec::new() };
        let beside = [&self.results, &self.counters, &self.hops, &self.verdicts, &self.hooks, &self.run_json];
        let belonging: Vec<&PathBuf> = match self.dir {
            Some(_) => self.all().filter(|file| !self.junit_is_named || Some(*file) != self.junit.as_ref()).collect(),
            None => beside.into_iter().flatten().chain(self.pictures.iter().map(|p| &p.file)).collect(),
        };
        let inside = belonging.into_iter().filter_map(|file| file.strip_prefix(folder).ok()?.to_str());
        let mut names: Vec<String> = inside.filter(|name| Path::new(name).is_relative()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Refuses to write over what the run reads.
    fn spare(&self, plans: &[Plan]) -> Result<(), Error> {
        // A file that does not exist yet cannot be written over.
        let made: Vec<(PathBuf, &PathBuf)> =
            self.all().filter_map(|file| fs::canonicalize(file).ok().map(|real| (real, file))).collect();
        for plan in plans {
            let baseline = plan.baseline.as_ref().map(|(baseline, _)| (&*baseline.source, "the baseline"));
            for (read, what) in [Some((Path::new(&plan.path), "the plan")), baseline].into_iter().flatten() {
                let Ok(read) = fs::canonicalize(read) else { continue };
                if let Some((_, file)) = made.iter().find(|(real, _)| *real == read) {
                    return Err(Error::Usage(format!(
                        "{} is {what}, which results would be written over: name another file",
                        file.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// A file with content in the place of a table of this run.
    pub fn earlier(&self) -> Option<&Path> {
        let has_content = |table: &&PathBuf| table.metadata().is_ok_and(|m| m.len() > 0);
        self.locked.iter().find(has_content).map(PathBuf::as_path)
    }

    /// Keeps the plans beside the results, as written and as resolved.
    pub fn keep_plans(&self) -> Result<(), Error> {
        self.plans.iter().try_for_each(|(path, text)| replace(path, text.as_bytes()))
    }
}

/// The plans as written and as resolved, with the files in a run's folder that they are kept in.
fn plan_copies(dir: Option<&Path>, plans: &[Plan]) -> Vec<(PathBuf, String)> {
    let mut copies = Vec::new();
    for (dir, plan) in plans.iter().filter_map(|plan| Some((dir?, plan))) {
        // Several plans in one folder are told apart by their names.
        let name = if plans.len() == 1 { "plan".to_owned() } else { format!("plan-{}", plan.name.replace('/', "-")) };
        let text = plan.sources.get(0).map(|s| s.text.clone()).unwrap_or_default();
        copies.push((dir.join(format!("{name}.yaml")), text));
        copies.push((dir.join(format!("{name}.resolved.yaml")), plan.resolved.clone()));
    }
    copies
}

/// The place while a run has it.
#[derive(Debug, Default)]
pub struct OutputLock {
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

impl OutputLock {
    /// Makes the folders and locks the place. Fails if another run has it, or if it cannot be written to.
    pub fn of(files: &Files) -> Result<Self, Error> {
        let mut lock = Self::default();
        let reports =
            [&files.junit, &files.markdown].into_iter().flatten().chain(files.pictures.iter().map(|p| &p.file));
        for folder in files.dir.iter().map(PathBuf::as_path).chain(reports.filter_map(|file| file.parent())) {
            lock.make(folder)?;
        }
        for table in &files.locked {
            lock.take(table)?;
        }
        Ok(lock)
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

    fn take(&mut self, table: &Path) -> Result<(), Error> {
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
        files.locked.iter().try_for_each(|table| spare(table, files, plans))
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

impl Drop for OutputLock {
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
    let mut read = match analyze::table::Table::open(&InputArgs { files: vec![table.to_owned()] }) {
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
    let overrides = own.plans.first().map(|plan| plan.overrides.as_slice()).unwrap_or_default();
    let remedy = match plans {
        [plan] => resume_command(&plan.path, overrides, &place),
        _ => None,
    };
    let remedy =
        remedy.map(|command| format!("go on with it: {command}; ")).unwrap_or_default() + "replace it: --overwrite";
    let how = own.interrupted.as_ref().map_or_else(|| "has not ended".to_owned(), |by| format!("was ended by {by}"));
    refused(&format!("is of a run that {how} (begun {})", own.began), &remedy)
}

/// `plumb run lab.yaml --set duration=1s --resume out`. `None`: the plan has no name, as that of `plumb measure`.
pub fn resume_command(plan: &str, overrides: &[String], place: &Path) -> Option<String> {
    if !Path::new(plan).exists() && shipped(plan).is_none() {
        return None;
    }
    let mut words = vec!["plumb".to_owned(), "run".to_owned(), plan.to_owned()];
    for word in overrides {
        // `--set a=b` is two words.
        words.extend(
            word.split_once(' ')
                .map_or_else(|| vec![word.clone()], |(flag, value)| vec![flag.to_owned(), value.to_owned()]),
        );
    }
    words.extend(["--resume".to_owned(), place.display().to_string()]);
    Some(shown(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(table: &Path) -> Files {
        Files {
            results: Some(table.to_owned()),
            verdicts: Some(table.with_extension("verdicts.csv")),
            run_json: Some(table.with_extension("run.json")),
            locked: vec![table.to_owned()],
            ..Files::default()
        }
    }

    #[test]
    fn a_place_belongs_to_one_run_and_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("a/b/r.csv");
        let mut files = files(&table);
        files.dir = table.parent().map(Path::to_owned);
        let lock = OutputLock::of(&files).unwrap();
        let said = OutputLock::of(&files).unwrap_err().to_string();
        assert!(said.contains(&format!("being written by process {}", std::process::id())), "{said}");
        drop(lock);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        OutputLock::of(&files).unwrap().begin().unwrap();
        assert!(table.parent().is_some_and(Path::is_dir));
        // One that a crash left.
        fs::write(table.with_file_name(".r.csv.lock"), "process 1 since t: plumb").unwrap();
        OutputLock::of(&files).unwrap();
    }

    #[test]
    fn only_the_table_of_a_run_that_ended_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("r.csv");
        let files = files(&table);
        let lock = OutputLock::of(&files).unwrap();
        let refused = |rows: &str, facts: &str| {
            fs::write(&table, rows).unwrap();
            fs::write(table.with_extension("run.json"), facts).unwrap();
            lock.spare(&files, &[]).err().map(|e| e.to_string())
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
        let mut lock = OutputLock::of(&files).unwrap();
        lock.find_stale(&files, &[]);
        lock.begin().unwrap();
        drop(lock);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["mine.svg", "outside", "r.csv", "r.run.json"]);
    }
}
