//! `results.run.json`: everything that can change a number and is not in the table.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use netcore::{
    control::clock::ClockOffset,
    measure::host::HostFacts,
    report::{Granted, NicFacts, SideReport},
    spec::TestSpec,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    plan::{case::Plan, model::Hook},
    replace::replace,
    schedule::{
        bench::{Measured, ProgramFacts},
        step::Step,
    },
};

/// What the file says. Field names are the file's keys.
#[derive(Debug, Serialize)]
pub struct RunFacts {
    /// The version of the results contract.
    pub results_version: u64,
    /// UUIDv7 of the run.
    pub run_id: String,
    /// The program's version.
    pub tool_version: &'static str,
    /// The command line.
    pub argv: Vec<String>,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// When it was taken up again after an interruption.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// When it ended; absent while it runs, and after a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The signal that ended it early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<&'static str>,
    /// The plans, in the order in which they ran.
    pub plans: Vec<PlanFacts>,
    /// The machines, by name.
    pub hosts: BTreeMap<String, HostRecord>,
    /// What every case asked for and was granted, by `case_id` (`case_id/member` in groups).
    pub cases: BTreeMap<String, serde_json::Value>,
    /// What whoever relies on the numbers should know, as the summary says it; empty while it runs.
    pub notes: Vec<String>,
}

/// A plan in `run.json`.
#[derive(Debug, Serialize)]
pub struct PlanFacts {
    /// Its path as given.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its text, verbatim.
    pub text: String,
    /// The same with defaults, profiles and the command line merged into every test.
    pub resolved: String,
    /// The command line's changes.
    pub overrides: Vec<String>,
    /// Seed of the random order.
    pub seed: u64,
    /// Whether cases were left out by `--only`.
    pub partial: bool,
}

impl PlanFacts {
    /// What is known of a plan once it is loaded.
    #[must_use]
    pub fn of(plan: &Plan, overrides: Vec<String>, seed: u64) -> Self {
        Self {
            path: plan.path.clone(),
            name: plan.name.clone(),
            labels: plan.labels.clone(),
            text: plan.sources.get(0).map(|s| s.text.clone()).unwrap_or_default(),
            resolved: plan.resolved.clone(),
            overrides,
            seed,
            partial: plan.partial,
        }
    }
}

/// A machine in `run.json`.
#[derive(Debug, Serialize)]
pub struct HostRecord {
    /// Where its daemon listens; absent for this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Version of the program there.
    pub tool_version: String,
    /// What kind of machine it is.
    pub facts: HostFacts,
    /// How far its clocks are from ours, with the bound of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

/// A case in `run.json`, as its last iteration had it.
#[derive(Debug, Serialize)]
pub struct CaseRecord {
    /// Its readable name.
    pub case: String,
    /// The test as both ends got it.
    pub spec: TestSpec,
    /// Programs around its iterations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<&'static str, HookRecord>,
    /// Socket options of the near end, asked for and granted, per flow.
    pub near_options: Vec<Granted>,
    /// Socket options of the far end.
    pub far_options: Vec<Granted>,
    /// The interface that the near end's packets used; absent for transports that use none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_nic: Option<NicFacts>,
    /// The far end's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_nic: Option<NicFacts>,
    /// What the ends want known.
    pub notes: Vec<String>,
}

/// A program around the measurement, in `run.json`; what it printed is in `hooks.log`.
#[derive(Debug, Serialize)]
pub struct HookRecord {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The host of the plan; absent: this process's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// A case whose workload is a program, as its last iteration had it.
#[derive(Debug, Serialize)]
pub struct CommandRecord {
    /// Its readable name.
    pub case: String,
    /// What ran, and what it cost.
    pub command: ProgramFacts,
    /// Programs around its iterations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<&'static str, HookRecord>,
}

/// The file, written when the run begins and again when it ends.
///
/// What becomes known in between stands in a journal beside it, a line per case that is new or has changed, and is there
/// before the rows of its iteration are: so a crash loses nothing of a finished iteration, and an iteration costs a line
/// and not the file. The journal goes when the file is whole.
#[derive(Debug)]
pub struct RunJson {
    /// What it will say.
    pub facts: RunFacts,
    path: Option<PathBuf>,
    journal: Option<File>,
}

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: String,
    case: serde_json::Value,
}

impl RunJson {
    /// Nothing written yet; without a path nothing ever is.
    #[must_use]
    pub fn new(facts: RunFacts, path: Option<PathBuf>) -> Self {
        Self { facts, path, journal: None }
    }

    /// Keeps what the ends of an iteration said about themselves.
    pub fn keep(&mut self, step: &Step, measured: &Measured) -> Result<(), Error> {
        for (member, reports) in step.members.iter().zip(&measured.members) {
            let key = match member.name.as_str() {
                "" => step.id.clone(),
                name => format!("{}/{name}", step.id),
            };
            let mut notes: Vec<String> = Vec::new();
            for note in std::iter::once(&reports.near).chain(&reports.far).flat_map(|r: &SideReport| &r.notes) {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            }
            let Some(spec) = member.spec() else { continue };
            let record = CaseRecord {
                case: step.name.clone(),
                spec: spec.clone(),
                hooks: hooks(step),
                near_options: reports.near.options.clone(),
                far_options: reports.far.as_ref().map_or_else(Vec::new, |far| far.options.clone()),
                near_nic: reports.near.nic.clone(),
                far_nic: reports.far.as_ref().and_then(|far| far.nic.clone()),
                notes,
            };
            self.insert(key, &record)?;
        }
        if let Some(printed) = &measured.printed {
            let record = CommandRecord { case: step.name.clone(), command: printed.facts.clone(), hooks: hooks(step) };
            self.insert(step.id.clone(), &record)?;
        }
        Ok(())
    }

    fn insert(&mut self, key: String, record: &impl Serialize) -> Result<(), Error> {
        // Of plain data; the only failure there is would be a map with keys that are no text.
        let case = serde_json::to_value(record).unwrap_or_default();
        if self.facts.cases.get(&key) == Some(&case) {
            return Ok(());
        }
        self.facts.cases.insert(key.clone(), case.clone());
        let Some(path) = self.path.as_deref().map(journal) else { return Ok(()) };
        let fault = || Error::output(path.display());
        if self.journal.is_none() {
            // Emptied: what an earlier crash left in it has been read, and written to the file when this run began.
            self.journal = Some(File::create(&path).map_err(fault())?);
        }
        let mut line = serde_json::to_vec(&Line { key, case }).map_err(|e| fault()(e.into()))?;
        line.push(b'\n');
        match &mut self.journal {
            Some(file) => file.write_all(&line).map_err(fault()),
            None => Ok(()),
        }
    }

    /// Replaces the file as a whole: a reader sees the old one or the new one.
    pub fn write(&mut self) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let fault = || Error::output(path.display());
        let mut text = serde_json::to_vec_pretty(&self.facts).map_err(|e| fault()(e.into()))?;
        text.push(b'\n');
        replace(path, &text)?;
        self.journal = None;
        match fs::remove_file(journal(path)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::output(journal(path).display())(e)),
            _ => Ok(()),
        }
    }
}

/// `run.json` → `run.cases.jsonl`.
fn journal(path: &Path) -> PathBuf {
    path.with_extension("cases.jsonl")
}

/// What a run that crashed had learned of its cases, by their keys in `run.json`. A torn last line is no loss: its
/// iteration has no rows.
pub fn journalled(run_json: &Path) -> Result<BTreeMap<String, serde_json::Value>, Error> {
    let path = journal(run_json);
    let bytes = match fs::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => bytes.map_err(|e| Error::Usage(format!("--resume: cannot read {}: {e}", path.display())))?,
    };
    let lines = bytes.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice::<Line>(line).ok());
    Ok(lines.map(|line| (line.key, line.case)).collect())
}

fn hooks(step: &Step) -> BTreeMap<&'static str, HookRecord> {
    let record = |hook: &Hook| HookRecord { run: hook.run.clone(), on: hook.on.clone() };
    step.hooks.all().map(|(name, hook)| (name, record(hook))).collect()
}

/// `results.csv` → `results.run.json`.
#[must_use]
pub fn beside(results: &Path) -> PathBuf {
    results.with_extension("run.json")
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
        let facts = RunFacts {
            results_version: 1,
            run_id: "r".into(),
            tool_version: "0",
            argv: Vec::new(),
            began: String::new(),
            resumed: Vec::new(),
            ended: None,
            interrupted: None,
            plans: Vec::new(),
            hosts: BTreeMap::new(),
            cases: BTreeMap::new(),
            notes: Vec::new(),
        };
        let mut record = RunJson::new(facts, Some(path.clone()));
        record.write().unwrap();
        for (key, case) in [("c1", "first"), ("c2", "one"), ("c1", "second"), ("c1", "second")] {
            record.insert(key.into(), &case).unwrap();
        }
        let journal = journal(&path);
        assert_eq!(fs::read_to_string(&journal).unwrap().lines().count(), 3);
        File::options().append(true).open(&journal).unwrap().write_all(b"{\"key\": \"c3\", \"case\": \"\xc3").unwrap();
        let found = journalled(&path).unwrap();
        assert_eq!(found, BTreeMap::from([("c1".into(), "second".into()), ("c2".into(), "one".into())]));
        record.write().unwrap();
        assert!(!journal.exists());
        assert!(journalled(&path).unwrap().is_empty());
    }
}
