//! Changes that are known: `accepted.csv` in the history's folder, with a reason and a date.

use std::path::Path;

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

/// The known changes of a history; none without the file.
pub fn read(folder: &Path) -> Result<Vec<Accepted>, Error> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut table = Table::open(&InputArgs { files: vec![path.clone()] })?;
    let at: Vec<usize> = COLUMNS.iter().map(|name| table.require(name)).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    let mut line = 1;
    while let Some(row) = table.next_row()? {
        line += 1;
        let text = |index: usize| row.get(at[index]).to_owned();
        let fault = |reason: &str| Error::Data {
            place: Place { file: path.display().to_string(), line, column: None },
            reason: reason.to_owned(),
        };
        let change_ratio = row.number(at[5])?.ok_or_else(|| fault("a known change needs its `change_ratio`"))?;
        if text(6).trim().is_empty() || text(7).trim().is_empty() {
            return Err(fault("a known change needs a `reason` and a `date`"));
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
