//! Series that were asked for, with their trend, and what is known of its findings.

use super::{
    added::CPU_TAKEN,
    commits::{self, Commit},
    series::{self, Accepted, Key, Outage, Point, Reading, Run, Series},
    store,
    trend::{Finding, Trend, trend},
};
use crate::{error::Error, limits};
use rayon::prelude::*;
use schemas::{columns::CycleRow, text::short_names, units, vocabulary};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Words of a command line that choose series of a history.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// Only series of this plan
    #[arg(long, value_name = "NAME")]
    pub plan: Option<String>,
    /// Only series of this machine: its host names, or its identifier
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Only series whose case contains this text
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Only this metric
    #[arg(short, long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Smallest change that counts
    #[arg(long, value_name = "RATIO", default_value = "1%", value_parser = parse_least)]
    pub min_effect: f64,
    /// Repository of the commits
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repository: PathBuf,
    /// Leave out lines that were cut off and marks of a merge
    #[arg(long)]
    pub repair: bool,
    /// A cycle that the history's file does not have yet.
    #[arg(skip)]
    pub latest: Option<CycleRow>,
}

fn parse_least(text: &str) -> Result<f64, String> {
    let ratio = units::parse_margin(text).map_err(|e| e.to_string())?;
    if ratio < 1.0 { Ok(ratio) } else { Err(format!("`{text}` is all of it")) }
}

/// A series with its trend.
pub struct AnalysedSeries {
    pub series: Series,
    pub trend: Trend,
    /// Runs that are left out: others took a CPU meanwhile.
    pub disturbed: usize,
    /// Index in [`Reading::runs`] of the last run with a value, also of one that is left out.
    pub last: Option<usize>,
    /// Of each finding: the known change that covers it.
    pub accepted: Vec<Option<Accepted>>,
    /// Of each finding: the commits that lie between and how many more there are, or why they are not known.
    pub commits: Vec<Result<(Vec<Commit>, usize), String>>,
}

impl AnalysedSeries {
    /// The runs around a finding: the last of the old level and the first of the new; of a drift, its first and last.
    pub fn runs<'a>(&self, reading: &'a Reading, finding: &Finding) -> (&'a Run, &'a Run) {
        let (before, first) = self.places(finding);
        (&reading.runs[before], &reading.runs[first])
    }

    /// The same runs, as indices in [`Reading::runs`].
    pub fn places(&self, finding: &Finding) -> (usize, usize) {
        let run = |index: usize| self.series.points[index].run;
        if finding.is_drift { (run(finding.at), run(finding.end - 1)) } else { (run(finding.at - 1), run(finding.at)) }
    }

    /// The finding that gave the series its present level.
    pub fn latest(&self) -> Option<(usize, &Finding)> {
        self.trend.findings.iter().enumerate().max_by_key(|(_, finding)| finding.at)
    }

    /// The first run of a new level and its neighbours: a change may move by a run when later ones come.
    pub fn near<'a>(&self, reading: &'a Reading, finding: &Finding) -> Vec<&'a str> {
        let run = |index: usize| self.series.points.get(index).map(|point| reading.runs[point.run].run_id.as_str());
        (finding.at.saturating_sub(1)..=finding.at + 1).filter_map(run).collect()
    }

    /// Whether a change of level is found without the last runs, too, for each number of them below `looks`. Looking after each
    /// run finds one that only chance made, sooner or later; most of these are gone at the next look.
    pub fn is_lasting(&self, finding: &Finding, looks: usize) -> bool {
        let count = self.series.points.len();
        (1..looks).all(|fewer| {
            let points = self.series.points[..count.saturating_sub(fewer)].to_vec();
            let earlier = trend(&Series { points, ..self.series.clone() }, 0.0);
            earlier.findings.iter().any(|other| {
                !other.is_drift
                    && other.at.abs_diff(finding.at) <= 1
                    && other.ratio.signum().total_cmp(&finding.ratio.signum()).is_eq()
            })
        })
    }

    /// Runs since a change, its own counted; since the last run of a drift.
    pub fn since(&self, finding: &Finding) -> usize {
        self.series.points.len() - if finding.is_drift { finding.end } else { finding.at }
    }
}

/// Reads a history, and searches the series that are asked for on all cores. `history`: its folder, or one file of it.
/// A watch whose far end never answered has no series yet, but outages.
pub fn read(history: &Path, asked: &Asked) -> Result<(Reading, Vec<AnalysedSeries>), Error> {
    let (outages, notes) = outages(history, asked)?;
    let may_be_empty = !outages.is_empty() && asked.metric.is_none() && asked.case.is_none();
    let mut reading = match store::read(history, asked.repair) {
        Err(Error::Usage(_)) if may_be_empty => Reading::default(),
        read => read?,
    };
    reading.outages = outages;
    reading.notes.extend(notes);
    let accepted = if history.is_dir() { series::read_accepted(history)? } else { Vec::new() };
    let metric = match &asked.metric {
        Some(name) => Some(vocabulary::metric(name).map_err(Error::Usage)?.name),
        None => None,
    };
    let is_wanted = |series: &Series| {
        same(asked.plan.as_ref(), &series.key.plan)
            && (same(asked.machine.as_ref(), &series.key.machine)
                || same(asked.machine.as_ref(), reading.host(&series.key.machine)))
            && asked
                .case
                .as_ref()
                .is_none_or(|text| [&series.case, &short_names(&series.case)].iter().any(|n| n.contains(text)))
            && metric.is_none_or(|metric| metric == series.key.metric)
    };
    // A history has this metric for disturbed runs only: it explains the others, unless it is asked for.
    let (taken, mut all): (Vec<Series>, Vec<Series>) =
        reading.series().into_iter().partition(|series| series.key.metric == CPU_TAKEN && metric != Some(CPU_TAKEN));
    all.retain(is_wanted);
    if all.is_empty() && !may_be_empty {
        return Err(Error::Usage(format!("{} has no such series", history.display())));
    }
    let analysed = |mut series: Series| {
        let last = series.points.last().map(|point| point.run);
        let disturbed = leave_out_disturbed(&mut series, &taken);
        let trend = trend(&series, asked.min_effect);
        AnalysedSeries { series, trend, disturbed, last, accepted: Vec::new(), commits: Vec::new() }
    };
    let mut all: Vec<AnalysedSeries> = all.into_par_iter().map(analysed).collect();
    for analysed in &mut all {
        complete(analysed, &reading, &accepted, &asked.repository);
    }
    Ok((reading, all))
}

fn same(asked: Option<&String>, own: &str) -> bool {
    asked.is_none_or(|asked| asked == own)
}

/// The outages of the plans and machines that are asked for, and notes about lines that tell none.
fn outages(history: &Path, asked: &Asked) -> Result<(Vec<Outage>, Vec<String>), Error> {
    let (mut cycles, notes) = if history.is_dir() { store::read_cycles(history)? } else { Default::default() };
    cycles.extend(asked.latest.clone());
    let mut all = store::outages(&cycles);
    all.retain(|outage| same(asked.plan.as_ref(), &outage.plan) && same(asked.machine.as_ref(), &outage.host));
    Ok((all, notes))
}

/// Drops the runs of a series in which others took a CPU: its level then was not that of the network. The number of them.
fn leave_out_disturbed(series: &mut Series, taken: &[Series]) -> usize {
    let key = Key { metric: CPU_TAKEN.to_owned(), ..series.key.clone() };
    let Some(taken) = taken.iter().find(|taken| taken.key == key) else { return 0 };
    let of: HashMap<usize, f64> = taken.points.iter().map(|point| (point.run, point.centre)).collect();
    let share = |point: &Point| of.get(&point.run).copied().unwrap_or(0.0);
    let is_disturbed = limits::disturbed(series.points.iter().map(share).collect());
    let before = series.points.len();
    series.points.retain(|point| !is_disturbed(share(point)));
    before - series.points.len()
}

/// Adds what is known of each finding.
fn complete(analysed: &mut AnalysedSeries, reading: &Reading, accepted: &[Accepted], repository: &Path) {
    for finding in &analysed.trend.findings {
        let near = analysed.near(reading, finding);
        let known = accepted.iter().find(|known| known.covers(&analysed.series.key, &near, finding.ratio)).cloned();
        let (before, first) = analysed.runs(reading, finding);
        let commits = commits::between(repository, &before.commit, &first.commit);
        analysed.accepted.push(known);
        analysed.commits.push(commits);
    }
}

// Findings that begin at the same run, as one event.

/// Changes, or drifts, of several series of one plan and machine between the same two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub is_drift: bool,
    /// Indices in [`Reading::runs`]: the last run of the old levels and the first of the new; of a drift, its first and last.
    pub before: usize,
    pub first: usize,
    /// Its findings, as indices of the series and of the finding in it; in the order of the series.
    pub findings: Vec<(usize, usize)>,
}

/// The events of the series, in the order of plan, machine and time.
pub fn events(reading: &Reading, all: &[AnalysedSeries]) -> Vec<Event> {
    let mut found: Vec<Event> = Vec::new();
    let place = |event: &Event| {
        let key = &all[event.findings[0].0].series.key;
        (&key.plan, &key.machine)
    };
    for (series, analysed) in all.iter().enumerate() {
        for (i, finding) in analysed.trend.findings.iter().enumerate() {
            let (before, first) = analysed.places(finding);
            let event = Event { is_drift: finding.is_drift, before, first, findings: vec![(series, i)] };
            let same = |other: &&mut Event| {
                (other.is_drift, other.before, other.first) == (event.is_drift, before, first)
                    && place(other) == place(&event)
            };
            match found.iter_mut().find(same) {
                Some(other) => other.findings.push((series, i)),
                None => found.push(event),
            }
        }
    }
    // Runs of the same time stay in the order of the series.
    let time = |event: &Event| &reading.runs[if event.is_drift { event.before } else { event.first }].time;
    found.sort_by(|a, b| (place(a), time(a)).cmp(&(place(b), time(b))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{series::Key, trend::trend};

    /// Series of one case and metric each, whose values are 3 % lower from a run on.
    fn analysed(series: &[(&str, &str, usize)]) -> (Reading, Vec<AnalysedSeries>) {
        let mut reading = Reading::default();
        for (plan, metric, step) in series {
            for run in 0..40 {
                let noise = [3, -12, 8, 11, -4, -9, 6][run * 5 % 7];
                let value = if run < *step { 1000.0 } else { 970.0 } + f64::from(noise) / 10.0;
                let time = format!("2026-01-01T00:{run:02}:00Z");
                let index = reading.run(&format!("r{run}"), [&time, "", "", ""]);
                let key = Key { plan: (*plan).into(), metric: (*metric).into(), ..Key::default() };
                reading.add(key, "bulk", index, [Some(value), None, None]);
            }
        }
        let all = reading.series().into_iter().map(|series| AnalysedSeries {
            trend: trend(&series, 0.01),
            series,
            disturbed: 0,
            last: None,
            accepted: Vec::new(),
            commits: Vec::new(),
        });
        let all = all.collect();
        (reading, all)
    }

    #[test]
    fn findings_between_the_same_runs_of_a_plan_are_one_event() {
        let (reading, all) = analysed(&[
            ("b", "throughput", 33),
            ("b", "latency.p99", 25),
            ("b", "retransmits", 33),
            ("a", "throughput", 33),
        ]);
        let found = events(&reading, &all);
        let named = |event: &Event| {
            let names = event.findings.iter().map(|(series, _)| {
                let key = &all[*series].series.key;
                format!("{} {}", key.plan, key.metric)
            });
            (reading.runs[event.before].run_id.clone(), reading.runs[event.first].run_id.clone(), names.collect())
        };
        let found: Vec<(String, String, Vec<String>)> = found.iter().map(named).collect();
        assert_eq!(
            found,
            [
                ("r32".into(), "r33".into(), vec!["a throughput".into()]),
                ("r24".into(), "r25".into(), vec!["b latency.p99".into()]),
                ("r32".into(), "r33".into(), vec!["b retransmits".into(), "b throughput".into()]),
            ]
        );
    }
}
