//! The rows of a history as series: one case, metric and machine each, in the order of time.

use crate::{
    error::{Error, Place},
    table::{InputArgs, Table, replace},
};
use indexmap::IndexMap;
use schemas::columns::number;
use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// The facts that all points of a series have in common. Series never mix machines, plans or cases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub plan: String,
    pub machine: String,
    pub case_id: String,
    pub member: String,
    pub direction: String,
    pub metric: String,
}

/// A run of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub run_id: String,
    /// When it began, RFC 3339 in UTC.
    pub time: String,
    /// Empty: not known.
    pub commit: String,
    /// Version of plumb.
    pub version: String,
    pub labels: String,
}

/// One run's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Index of the run in [`Reading::runs`].
    pub run: usize,
    pub centre: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub key: Key,
    /// The case's name in its latest run.
    pub case: String,
    /// In the order of time.
    pub points: Vec<Point>,
}

/// Consecutive cycles without all of their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub plan: String,
    /// The machine that watches.
    pub host: String,
    /// When its first cycle began.
    pub begin: String,
    /// When the first cycle after it began; `None`: it lasts.
    pub end: Option<String>,
    pub cycles: usize,
    /// Of its first cycle.
    pub reason: String,
}

/// The rows that have been read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub runs: Vec<Run>,
    /// Facts for people.
    pub notes: Vec<String>,
    /// Times in which a watch measured nothing, of the plans and machines that were asked for.
    pub outages: Vec<Outage>,
    by_id: HashMap<String, usize>,
    series: IndexMap<Key, (String, Vec<Point>)>,
    known: HashSet<(usize, usize)>,
    /// The host names of each machine, as its latest row has them.
    hosts: HashMap<String, String>,
}

impl Reading {
    /// The run with that id. `facts`: its time, commit, version and labels.
    pub(super) fn run(&mut self, run_id: &str, facts: [&str; 4]) -> usize {
        if let Some(index) = self.by_id.get(run_id) {
            return *index;
        }
        let [time, commit, version, labels] = facts.map(str::to_owned);
        self.runs.push(Run { run_id: run_id.to_owned(), time, commit, version, labels });
        self.by_id.insert(run_id.to_owned(), self.runs.len() - 1);
        self.runs.len() - 1
    }

    /// Learns a machine's host names.
    pub(super) fn name(&mut self, machine: &str, hosts: &str) {
        if !hosts.is_empty() && self.hosts.get(machine).is_none_or(|known| known != hosts) {
            self.hosts.insert(machine.to_owned(), hosts.to_owned());
        }
    }

    /// A machine for people: its host names; where another machine has the same ones, or none are known, its identifier.
    pub fn host<'a>(&'a self, machine: &'a str) -> &'a str {
        let Some(hosts) = self.hosts.get(machine) else { return machine };
        if self.hosts.values().filter(|others| *others == hosts).count() > 1 { machine } else { hosts }
    }

    /// Adds a value. `values`: centre, low and high. A line that is there twice (both sides of a merge had it) counts once; `false`: the first
    /// one has another value.
    pub(super) fn add(&mut self, key: Key, case: &str, run: usize, values: [Option<f64>; 3]) -> bool {
        let [Some(centre), low, high] = values else { return true };
        let entry = self.series.entry(key);
        let index = entry.index();
        let (name, points) = entry.or_default();
        if self.known.insert((index, run)) {
            case.clone_into(name);
            points.push(Point { run, centre, low, high });
            return true;
        }
        points
            .iter()
            .rev()
            .find(|point| point.run == run)
            .is_none_or(|point| point.centre.to_bits() == centre.to_bits())
    }

    /// All series, in the order of plan, case and metric.
    pub fn series(&self) -> Vec<Series> {
        let mut all: Vec<Series> = self
            .series
            .iter()
            .map(|(key, (case, points))| {
                let mut points = points.clone();
                // Runs of the same time stay in the order of their arrival.
                points.sort_by(|a, b| self.runs[a.run].time.cmp(&self.runs[b.run].time));
                Series { key: key.clone(), case: case.clone(), points }
            })
            .collect();
        let order = |series: &Series| (series.key.plan.clone(), series.case.clone(), series.key.clone());
        all.sort_by_cached_key(order);
        all
    }
}

// Changes that are known: `accepted.csv` in the history's folder, with a reason and a date.

/// Its name in the folder of a history.
pub const ACCEPTED_FILE: &str = "accepted.csv";

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
pub fn read_accepted(folder: &Path) -> Result<Vec<Accepted>, Error> {
    read_known(folder.join(ACCEPTED_FILE))
}

/// The changes in a file of that form; none without the file.
pub fn read_known(path: PathBuf) -> Result<Vec<Accepted>, Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = fs::read(&path).map_err(Error::file(&path))?;
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

/// Writes a file of changes that are known.
pub fn write_known(path: &Path, all: &[Accepted]) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for known in all {
        let ratio = number(known.change_ratio);
        let Accepted { case_id, member, direction, metric, run_id, reason, date, .. } = known;
        writer.write_record([case_id, member, direction, metric, run_id, &ratio, reason, date])?;
    }
    replace(path, writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
}

impl Accepted {
    /// A change that is known from now on.
    pub fn new(key: &Key, run_id: &str, change_ratio: f64, reason: &str, date: &str) -> Self {
        Self {
            case_id: key.case_id.clone(),
            member: key.member.clone(),
            direction: key.direction.clone(),
            metric: key.metric.clone(),
            run_id: run_id.to_owned(),
            change_ratio,
            reason: reason.to_owned(),
            date: date.to_owned(),
        }
    }

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
            fs::write(dir.path().join(ACCEPTED_FILE), &text).unwrap();
            let error = read_accepted(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("accepted.csv{place}: ")) && error.contains(reason), "{text}\n{error}");
        }
    }
}
