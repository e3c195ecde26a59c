//! Identity of a run, and `--resume`: an interrupted run goes on with the same plan, in its folder.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::Path,
};

use schemas::run_record::{CaseRecord, RunRecord};

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
        }
    }

    /// Reads `run.json` of an interrupted run, and refuses a plan that has changed since.
    pub fn of_interrupted(dir: &Path, plans: &[Plan]) -> Result<Self, Error> {
        let path = dir.join("run.json");
        let wrong = |what: String| Error::Usage(format!("--resume: {}: {what}", path.display()));
        let [plan] = plans else { return Err(Error::Usage("--resume goes on with one plan: name that one".into())) };
        let text = fs::read_to_string(&path).map_err(|e| wrong(format!("{e}; is this the folder of a run?")))?;
        let facts: RunRecord = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let stored = facts.plans.into_iter().next().unwrap_or_default();
        let filled =
            |text: String, key| if text.is_empty() { Err(wrong(format!("`{key}` is missing"))) } else { Ok(text) };
        if let Some(lines) = difference(&filled(stored.resolved, "resolved")?, &plan.resolved) {
            return Err(Error::Usage(format!(
                "--resume: the plan is not the one that {} was begun with:\n{lines}\n       start a new run, or take the \
                 changes back ({})",
                dir.display(),
                dir.join("plan.yaml").display()
            )));
        }
        let mut cases = facts.cases;
        cases.extend(run_json::journalled(&path)?);
        Ok(Self {
            cases,
            run_id: filled(facts.run_id, "run_id")?,
            seed: stored.seed.ok_or_else(|| wrong("`seed` is missing".into()))?,
            began: filled(facts.began, "began")?,
            resumed: facts.resumed.into_iter().chain([now()]).collect(),
        })
    }
}

/// Reads the tables of an interrupted run back and removes unfinished iterations.
pub fn take_up(
    results: &Path,
    files: &Files,
    plan: &Plan,
    run_id: &str,
    axis_paths: &[String],
) -> Result<Taken, Error> {
    let taken = history::take_up(results, &step::steps(plan, run_id, axis_paths))?;
    for table in [&files.intervals, &files.counters].into_iter().flatten() {
        history::cut(table, &taken.finished)?;
    }
    Ok(taken)
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
    fn a_changed_plan_is_shown_by_its_lines() {
        assert_eq!(difference("a: 1\nb: 2\n", "a: 1\nb: 2\n"), None);
        assert_eq!(difference("a: 1\nb: 2\n", "a: 1\nb: 3\n").unwrap(), "  - b: 2\n  + b: 3");
    }
}
