//! The rows of a history as series: one case, metric and machine each, in the order of time.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

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

/// The rows that have been read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub runs: Vec<Run>,
    /// Facts for people.
    pub notes: Vec<String>,
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
