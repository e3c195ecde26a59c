//! An interrupted run, taken up from its folder: the same run goes on, with the same plan.

use std::{collections::BTreeMap, fs, io, path::Path};

use crate::{
    error::Error,
    plan::Plan,
    schedule::{
        history::{self, Taken},
        step,
    },
    sinks::{files::Files, run_json},
};

/// What an interrupted run left in its folder.
pub struct Earlier {
    /// UUIDv7 of the run: it stays the same run.
    pub run_id: String,
    /// Seed of the order of plans that name none.
    pub seed: u64,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// When it was taken up before.
    pub resumed: Vec<String>,
    /// What `run.json` says of its cases.
    pub cases: BTreeMap<String, serde_json::Value>,
}

impl Earlier {
    /// Reads `run.json`, and refuses a plan that is not the one that was interrupted.
    pub fn read(dir: &Path, plans: &[Plan]) -> Result<Self, Error> {
        let path = dir.join("run.json");
        let wrong = |what: String| Error::Usage(format!("--resume: {}: {what}", path.display()));
        let [plan] = plans else { return Err(Error::Usage("--resume goes on with one plan: name that one".into())) };
        let text = fs::read_to_string(&path).map_err(|e| wrong(format!("{e}; is this the folder of a run?")))?;
        let facts: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let stored = &facts["plans"][0];
        let word = |value: &serde_json::Value, key: &str| {
            value[key].as_str().map(str::to_owned).ok_or_else(|| wrong(format!("`{key}` is missing")))
        };
        if let Some(lines) = history::difference(&word(stored, "resolved")?, &plan.resolved) {
            return Err(Error::Usage(format!(
                "--resume: the plan is not the one that {} was begun with:\n{lines}\n       start a new run, or take the \
                 changes back ({})",
                dir.display(),
                dir.join("plan.yaml").display()
            )));
        }
        let resumed = facts["resumed"].as_array().into_iter().flatten().filter_map(|t| t.as_str().map(str::to_owned));
        let mut cases: BTreeMap<String, serde_json::Value> =
            serde_json::from_value(facts["cases"].clone()).map_err(|e| wrong(e.to_string()))?;
        cases.extend(run_json::journalled(&path)?);
        Ok(Self {
            cases,
            run_id: word(&facts, "run_id")?,
            seed: stored["seed"].as_u64().ok_or_else(|| wrong("`seed` is missing".into()))?,
            began: word(&facts, "began")?,
            resumed: resumed.collect(),
        })
    }
}

/// Reads the tables of an interrupted run back and cuts off what was not finished.
pub fn take_up(
    results: &Path,
    files: &Files,
    plan: &Plan,
    run_id: &str,
    axis_paths: &[String],
) -> Result<Taken, Error> {
    let unusable = |e: io::Error| Error::Usage(format!("--resume: cannot read {}: {e}", results.display()));
    match fs::read(results) {
        Ok(bytes) if bytes.contains(&b'\n') => {}
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(unusable(e)),
        // It may have ended before it had written so much as the header.
        _ => {
            let _ = fs::remove_file(results);
            return Ok(Taken::default());
        }
    }
    let taken = history::take_up(results, &step::steps(plan, run_id, axis_paths))?;
    for table in [&files.intervals, &files.counters].into_iter().flatten() {
        history::cut(table, &taken.finished)?;
    }
    Ok(taken)
}
