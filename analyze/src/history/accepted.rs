//! Changes that are known: `accepted.csv` in the history's folder, with a reason and a date.

use std::{fs, path::Path};

use super::series::Key;
use crate::{
    error::{Error, Place},
    table::{InputArgs, Table},
};

/// Its name in the folder of a history.
pub const FILE: &str = "accepted.csv";

/// A change counts as accepted while it is at most this much larger than it was when it was accepted.
const GROWTH: f64 = 1.25;

/// Columns of the file. Those that name the series and the run are as in the output of `plumb trend`.
const COLUMNS: [&str; 8] = ["case_id", "member", "direction", "metric", "run_id", "change_ratio", "reason", "date"];

/// A change that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    case_id: String,
    member: String,
    direction: String,
    metric: String,
    /// The first run of the new level.
    run_id: String,
    change_ratio: f64,
    pub reason: String,
    pub date: String,
}

/// Whether git began a line of a file that has conflicts with it.
pub(super) fn is_mark_of_merge(line: &[u8]) -> bool {
    [b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||"].iter().any(|mark| line.starts_with(*mark))
}

/// The known changes of a history; none without the file.
pub fn read(folder: &Path) -> Result<Vec<Accepted>, Error> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
    for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if is_mark_of_merge(text) {
            let place = Place { file: path.display().to_string(), line, column: None };
            let reason = "a merge conflict was left here: keep the rows of both sides and remove the marks".to_owned();
            return Err(Error::Data { place, reason });
        }
    }
    let mut table = Table::open(&InputArgs { files: vec![path] })?;
    let at: Vec<usize> = COLUMNS.iter().map(|name| table.require(name)).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    while let Some(row) = table.next_row()? {
        let text = |index: usize| row.get(at[index]).to_owned();
        let change_ratio =
            row.number(at[5])?.ok_or_else(|| row.error(None, "a known change needs its `change_ratio`"))?;
        if text(6).trim().is_empty() || text(7).trim().is_empty() {
            return Err(row.error(None, "a known change needs a `reason` and a `date`"));
        }
        found.push(Accepted {
            case_id: text(0),
            member: text(1),
            direction: text(2),
            metric: text(3),
            run_id: text(4),
            change_ratio,
            reason: text(6),
            date: text(7),
        });
    }
    Ok(found)
}

impl Accepted {
    /// The first run of the new level.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Whether it is about a change of a series. `runs`: the first run of the new level and its neighbours, since a change
    /// may move by a run when later ones come.
    pub fn covers(&self, key: &Key, runs: &[&str], change_ratio: f64) -> bool {
        let same = [(&self.case_id, &key.case_id), (&self.member, &key.member), (&self.direction, &key.direction)];
        same.iter().all(|(own, other)| own == other)
            && self.metric == key.metric
            && runs.contains(&self.run_id.as_str())
            && self.change_ratio.signum() == change_ratio.signum()
            && change_ratio.abs() <= self.change_ratio.abs() * GROWTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_told_with_its_line() {
        let header = COLUMNS.join(",");
        let row = "c,,,throughput,r,0.1,why,2026-01-01";
        for (text, place, reason) in [
            (format!("{header}\n{row}\n<<<<<<< HEAD\n"), ":3", "a merge conflict was left here"),
            (format!("{header}\nc,,,throughput\n"), ":2", "the row has 4 cells, the header 8"),
            (format!("{header}\n\n{}\n", row.replace("why", " ")), ":3", "needs a `reason` and a `date`"),
            (format!("{header}\n{}\n", row.replace("0.1", "")), ":2", "needs its `change_ratio`"),
            (
                format!("{header}\n{}\n", row.replace("0.1", "nan")),
                ":2, column `change_ratio`",
                "`nan` is not a finite number",
            ),
            (header.replace("direction,", ""), ":1", "there is no column `direction`"),
            (String::new(), "", "is empty"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), &text).unwrap();
            let error = read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("accepted.csv{place}: ")) && error.contains(reason), "{text}\n{error}");
        }
    }
}
