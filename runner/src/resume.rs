//! Identity of a run, and `--resume`: an interrupted run goes on with the same plan, in its folder.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::Path,
};

use analyze::table::{InputArgs, Table};
use schemas::{
    columns::{self, counters::COUNTER_COLUMNS, hops::HOP_COLUMNS},
    run_record::{CaseRecord, RunRecord},
};

use crate::{
    error::Error,
    plan::Plan,
    schedule::{
        history::{self, Taken},
        step,
    },
    sinks::{files::Files, run_json},
};

/// Identity of a run, which an interrupted one keeps.
pub struct Start {
    /// UUIDv7.
    pub run_id: String,
    /// Seed of the order of plans without one.
    pub seed: u64,
    /// RFC 3339 in UTC.
    pub began: String,
    /// When it was resumed.
    pub resumed: Vec<String>,
    /// Facts about its cases in `run.json`.
    pub cases: BTreeMap<String, CaseRecord>,
    /// Another version of the program that the run was begun with.
    pub begun_with: Option<String>,
}

impl Start {
    /// A new run.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        let id = uuid::Uuid::now_v7();
        Self {
            run_id: id.to_string(),
            seed: id.as_u64_pair().1,
            began: now(),
            resumed: Vec::new(),
            cases: BTreeMap::new(),
            begun_with: None,
        }
    }

    /// Reads `run.json` of an interrupted run, and refuses a plan that has changed since. `place`: as on the command line.
    pub fn of_interrupted(place: &Path, path: &Path, plans: &[Plan]) -> Result<Self, Error> {
        let wrong = |what: String| Error::Usage(format!("--resume: {}: {what}", path.display()));
        let [plan] = plans else { return Err(Error::Usage("--resume goes on with one plan: name that one".into())) };
        let text =
            fs::read_to_string(path).map_err(|e| wrong(format!("{e}; is this the folder or table of a run?")))?;
        let facts: RunRecord = serde_json::from_slice(text.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let stored = facts.plans.into_iter().next().unwrap_or_default();
        let filled =
            |text: String, key| if text.is_empty() { Err(wrong(format!("`{key}` is missing"))) } else { Ok(text) };
        if let Some(lines) = difference(&filled(stored.resolved, "resolved")?, &plan.resolved) {
            return Err(Error::Usage(format!(
                "--resume: the plan is not the one that {} was begun with:\n{lines}\n       start a new run, or take the \
                 changes back ({})",
                place.display(),
                path.display()
            )));
        }
        let mut cases = facts.cases;
        cases.extend(run_json::journalled(path)?);
        Ok(Self {
            cases,
            run_id: filled(facts.run_id, "run_id")?,
            seed: stored.seed.ok_or_else(|| wrong("`seed` is missing".into()))?,
            began: filled(facts.began, "began")?,
            resumed: facts.resumed.into_iter().chain([now()]).collect(),
            begun_with: Some(facts.tool_version).filter(|version| version != env!("CARGO_PKG_VERSION")),
        })
    }
}

/// Reads the tables of an interrupted run back. They go on without their unfinished iterations.
pub fn take_up(
    results: &Path,
    files: &Files,
    plan: &Plan,
    run_id: &str,
    axis_paths: &[String],
) -> Result<Taken, Error> {
    let header = columns::header(axis_paths);
    same_header(results, &header)?;
    let mut taken = history::take_up(results, &step::steps(plan, run_id, axis_paths), run_id)?;
    let [of_counters, of_hops] =
        [COUNTER_COLUMNS, HOP_COLUMNS].map(|table| columns::names(table).map(str::to_owned).collect());
    for (table, header) in [(&files.intervals, header), (&files.counters, of_counters), (&files.hops, of_hops)] {
        if let Some(table) = table {
            same_header(table, &header)?;
            taken.trimmed.extend(history::trim(table, &taken.finished, run_id)?);
        }
    }
    Ok(taken)
}

/// Refuses a table of another version of the program, whose rows would have other columns than the ones to come.
fn same_header(path: &Path, expected: &[String]) -> Result<(), Error> {
    // A table that cannot be read is refused where it is read; a torn header counts as none.
    let whole = fs::read(path).is_ok_and(|bytes| bytes.contains(&b'\n'));
    let Some(table) = whole.then(|| Table::open(&InputArgs { files: vec![path.to_owned()] }).ok()).flatten() else {
        return Ok(());
    };
    let found = table.header().names();
    if found == expected {
        return Ok(());
    }
    let lacks = |of: &[String], there: &[String]| {
        let names: Vec<&str> = of.iter().filter(|name| !there.contains(name)).map(String::as_str).collect();
        names.join(", ")
    };
    let (gone, new) = (lacks(found, expected), lacks(expected, found));
    let what = match (gone.is_empty(), new.is_empty()) {
        (true, true) => "the same columns in another order".to_owned(),
        (false, true) => format!("columns that this version does not write: {gone}"),
        (true, false) => format!("not the columns that this version writes: {new}"),
        (false, false) => {
            format!("columns that this version does not write ({gone}), and not those that it does ({new})")
        }
    };
    Err(Error::Usage(format!(
        "--resume: {} has {what}; go on with the version that began the run, or start a new run",
        path.display()
    )))
}

/// The current time as `run.json` has it: RFC 3339 in UTC.
pub fn now() -> String {
    schemas::time::now().0
}

/// The lines that differ between two texts, for people; `None`: the texts are equal.
fn difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let old_lines: HashSet<&str> = old.lines().collect();
    let new_lines: HashSet<&str> = new.lines().collect();
    let gone = old.lines().filter(|l| !new_lines.contains(l)).map(|l| format!("  - {l}"));
    let come = new.lines().filter(|l| !old_lines.contains(l)).map(|l| format!("  + {l}"));
    let lines: Vec<String> = gone.chain(come).take(20).collect();
    Some(if lines.is_empty() { "  (the same lines in another order)".to_owned() } else { lines.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_other_columns_is_refused_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let said = |header: &str| {
            fs::write(&path, header).unwrap();
            same_header(&path, &["a".to_owned(), "b".to_owned()]).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!((said("a,b\n"), said("a,")), (String::new(), String::new()));
        assert!(said("a,c\n").contains("does not write (c), and not those that it does (b)"));
        assert!(said("a,b,c\n").contains("does not write: c"));
        assert!(said("a\n").contains("that this version writes: b"));
        assert!(said("b,a\n").contains("in another order"));
    }

    #[test]
    fn a_changed_plan_is_shown_by_its_lines() {
        assert_eq!(difference("a: 1\nb: 2\n", "a: 1\nb: 2\n"), None);
        assert_eq!(difference("a: 1\nb: 2\n", "a: 1\nb: 3\n").unwrap(), "  - b: 2\n  + b: 3");
    }
}
