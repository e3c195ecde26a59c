//! `results.run.json`: everything that can change a number and is not in the table. And `hooks.log`: the output of programs
//! around the measurement.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    rc::Rc,
};

use analyze::distinct;
use netcore::{control::clock::ClockOffset, measure::host::HostFacts};
use schemas::run_record::{self, CaseRecord, HookRecord, PlanRecord};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::csv::Appended;
use crate::{
    error::{Error, replace},
    plan::{
        case::{Case, Member, Plan},
        model::Hook,
    },
    schedule::{Measured, rows, step::Step},
};

/// With the engine's own types for what it knows of hosts.
pub type RunRecord = run_record::RunRecord<HostFacts, ClockOffset>;
pub type HostRecord = run_record::HostRecord<HostFacts, ClockOffset>;

/// A plan once it is loaded.
pub fn plan_record(plan: &Plan, overrides: Vec<String>, seed: u64) -> PlanRecord {
    PlanRecord {
        path: plan.path.clone(),
        name: plan.name.clone(),
        description: plan.description.clone().unwrap_or_default(),
        labels: plan.labels.clone(),
        text: plan.sources.get(0).map(|s| s.text.clone()).unwrap_or_default(),
        resolved: plan.resolved.clone(),
        overrides,
        seed: Some(seed),
        partial: plan.partial,
        warnings: plan.warnings.sentences(),
        plots: plan.output.plots.iter().flatten().filter_map(json).collect(),
    }
}

/// The file, written with the first rows and again when the run ends.
///
/// News in between stands in a journal beside it, a line per case that is new or has changed, and is there
/// before the rows of its iteration are: so a crash loses nothing of a finished iteration, and an iteration costs a line
/// and not the file. The journal goes when the file is whole.
#[derive(Debug)]
pub struct RunJson {
    pub facts: RunRecord,
    path: Option<PathBuf>,
    /// A second one, beside a table that is elsewhere.
    copy: Option<PathBuf>,
    /// Whether the file exists. Until the run has rows, it may be that of an earlier run.
    begun: bool,
    journal: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: String,
    case: CaseRecord,
}

impl RunJson {
    /// Nothing written yet; without a path nothing ever is.
    pub fn new(facts: RunRecord, path: Option<PathBuf>, copy: Option<PathBuf>) -> Self {
        Self { facts, path, copy, begun: false, journal: None }
    }

    /// Writes the file for the first time.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.begun = true;
        self.write()?;
        // Open from now on: a folder that is removed is noticed by the results table, which tells it.
        if let Some(path) = self.path.as_deref().map(journal) {
            self.journal = Some(File::create(&path).map_err(Error::output(path.display()))?);
        }
        Ok(())
    }

    /// Keeps what the ends of an iteration said about themselves.
    pub fn keep(&mut self, step: &Step, measured: &Measured) -> Result<(), Error> {
        for (member, reports) in step.members.iter().zip(&measured.members) {
            let key = key(step, member);
            let notes = distinct(reports.ends().flat_map(|end| end.notes.clone()));
            let Some(spec) = member.spec() else { continue };
            let record = CaseRecord {
                case: step.name.clone(),
                settings: member.settings.clone(),
                spec: json(spec),
                hooks: hooks(step),
                near_options: json(&reports.near.options),
                far_options: json(reports.far.as_ref().map_or(&[][..], |far| &far.options)),
                near_nic: reports.near.nic.as_ref().and_then(json),
                far_nic: reports.far.as_ref().and_then(|far| far.nic.as_ref()).and_then(json),
                clocks: rows::one_way::record(&reports.near, reports.far.as_ref()),
                notes: Some(notes),
                ..CaseRecord::default()
            };
            self.insert(key, record)?;
        }
        if let Some(whole) = &measured.whole {
            let settings = step.members.first().map(|member| member.settings.clone()).unwrap_or_default();
            let mut record =
                CaseRecord { case: step.name.clone(), settings, hooks: hooks(step), ..CaseRecord::default() };
            whole.describe(step, &mut record);
            self.insert(step.id.clone(), record)?;
        }
        Ok(())
    }

    fn insert(&mut self, key: String, case: CaseRecord) -> Result<(), Error> {
        if self.facts.cases.get(&key) == Some(&case) {
            return Ok(());
        }
        self.facts.cases.insert(key.clone(), case.clone());
        if !self.begun {
            return Ok(());
        }
        let Some(path) = self.path.as_deref().map(journal) else { return Ok(()) };
        let fault = || Error::output(path.display());
        let file = match &mut self.journal {
            Some(file) => file,
            // Emptied: what an earlier crash left in it has been read, and written to the file when this run began.
            none => none.insert(File::create(&path).map_err(fault())?),
        };
        let mut line = serde_json::to_vec(&Line { key, case }).map_err(|e| fault()(e.into()))?;
        line.push(b'\n');
        file.write_all(&line).map_err(fault())
    }

    /// Brings the journal to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        let (Some(file), Some(path)) = (&self.journal, &self.path) else { return Ok(()) };
        file.sync_data().map_err(Error::output(journal(path).display()))
    }

    /// Replaces the file as a whole, if it is begun: a reader sees the old one or the new one.
    pub fn write(&mut self) -> Result<(), Error> {
        let Some(path) = self.path.as_ref().filter(|_| self.begun) else { return Ok(()) };
        let fault = || Error::output(path.display());
        let mut text = serde_json::to_vec_pretty(&self.facts).map_err(|e| fault()(e.into()))?;
        text.push(b'\n');
        replace(path, &text)?;
        if let Some(copy) = &self.copy {
            replace(copy, &text)?;
        }
        self.journal = None;
        match fs::remove_file(journal(path)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::output(journal(path).display())(e)),
            _ => Ok(()),
        }
    }
}

/// The key of a member's record.
fn key(case: &Case, member: &Member) -> String {
    match member.name.as_str() {
        "" => case.id.clone(),
        name => format!("{}/{name}", case.id),
    }
}

/// The records of a case of a plan that was not measured: its name and settings, by their keys.
pub fn planned(case: &Case) -> impl Iterator<Item = (String, CaseRecord)> {
    let record = |member: &Member| CaseRecord {
        case: case.name.clone(),
        settings: member.settings.clone(),
        spec: member.spec().and_then(json),
        ..CaseRecord::default()
    };
    case.members.iter().map(move |member| (key(case, member), record(member)))
}

/// `run.json` → `run.cases.jsonl`.
fn journal(path: &Path) -> PathBuf {
    path.with_extension("cases.jsonl")
}

/// News that a crashed run had written about its cases, by their keys in `run.json`. A torn last line is left out: its
/// iteration has no rows.
pub fn journalled(run_json: &Path) -> Result<BTreeMap<String, CaseRecord>, Error> {
    let path = journal(run_json);
    let bytes = match fs::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => bytes.map_err(|e| Error::Usage(format!("--resume: cannot read {}: {e}", path.display())))?,
    };
    let lines = bytes.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice::<Line>(line).ok());
    Ok(lines.map(|line| (line.key, line.case)).collect())
}

/// As JSON. Cannot fail: plain data, with maps by text only.
fn json(data: &(impl Serialize + ?Sized)) -> Option<Value> {
    serde_json::to_value(data).ok()
}

fn hooks(step: &Step) -> BTreeMap<String, HookRecord> {
    let record = |hook: &Hook| HookRecord { run: hook.run.clone(), on: hook.on.clone() };
    step.hooks.all().map(|(name, hook)| (name.to_owned(), record(hook))).collect()
}

/// `results.csv` → `results.run.json`.
pub fn beside(results: &Path) -> PathBuf {
    results.with_extension("run.json")
}

/// A log that is made with its first entry. Where the log of an earlier run is there, entries wait until this run has rows.
/// Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct HookLog(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    path: Option<PathBuf>,
    run_id: String,
    waiting: Option<Vec<u8>>,
    file: Option<Appended>,
}

impl HookLog {
    /// Without a path, entries are dropped.
    pub fn new(path: Option<&Path>, run_id: &str, resumed: bool) -> Self {
        let waits = !resumed && path.is_some_and(Path::exists);
        let inner = Inner {
            path: path.map(Path::to_owned),
            run_id: run_id.to_owned(),
            waiting: waits.then(Vec::new),
            file: None,
        };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// Adds an entry.
    pub fn add(&self, entry: &str) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        match &mut inner.waiting {
            Some(waiting) => {
                waiting.extend(entry.as_bytes());
                Ok(())
            }
            None => inner.write(entry.as_bytes()),
        }
    }

    /// Allows the file to be made: the earlier one is gone.
    pub fn begin(&self) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        let waiting = inner.waiting.take().unwrap_or_default();
        inner.write(&waiting)
    }
}

impl Inner {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| !text.is_empty()) else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let is_new = !path.exists();
                let file = File::options().create(true).append(true).open(path)?;
                let mut file = Appended::at_end_of(file)?;
                if is_new {
                    file.write_all(format!("{} run {}\n", schemas::time::now().0, self.run_id).as_bytes())?;
                }
                none.insert(file)
            }
        };
        file.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_beside_the_table() {
        assert_eq!(beside(Path::new("a/lab.csv")), Path::new("a/lab.run.json"));
        assert_eq!(beside(Path::new("lab")), Path::new("lab.run.json"));
    }

    #[test]
    fn a_crash_leaves_what_was_known_of_finished_iterations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let mut record = RunJson::new(RunRecord::default(), Some(path.clone()), None);
        record.begin().unwrap();
        for (key, case) in [("c1", "first"), ("c2", "one"), ("c1", "second"), ("c1", "second")] {
            record.insert(key.into(), CaseRecord { case: case.into(), ..CaseRecord::default() }).unwrap();
        }
        let journal = journal(&path);
        assert_eq!(fs::read_to_string(&journal).unwrap().lines().count(), 3);
        File::options().append(true).open(&journal).unwrap().write_all(b"{\"key\": \"c3\", \"case\": \"\xc3").unwrap();
        let found = journalled(&path).unwrap();
        let names: Vec<_> = found.iter().map(|(key, case)| (key.as_str(), case.case.as_str())).collect();
        assert_eq!(names, [("c1", "second"), ("c2", "one")]);
        record.write().unwrap();
        assert!(!journal.exists());
        assert!(journalled(&path).unwrap().is_empty());
    }
}
