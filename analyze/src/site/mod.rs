//! A history as a site: static pages that can be published as they are.
//!
//! - `index`: the changes and all series; the runs, and what changed at each
//! - `series`: a page per series
//! - `folder`: the pages on disk; file names and anchors, which stay as they are when the history grows
//!
//! The same history gives the same bytes: no page has the time at which it was made.

mod folder;
mod index;
mod series;

use crate::{
    error::Error,
    export::page::{Line, Piece, Tone},
    history::{
        analysed::{self, AnalysedSeries, Asked, Event, events},
        sentences,
        series::{Reading, Run},
    },
};
use rayon::prelude::*;
use schemas::{
    text::short_id,
    units::{human, three_digits},
};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// The page of all series.
const INDEX: &str = "index.html";
/// The page of all runs.
const RUNS: &str = "runs.html";
/// The folder of the pages of series.
const SERIES: &str = "series";

/// The facts that the pages are made from.
struct Site<'a> {
    title: String,
    reading: &'a Reading,
    all: &'a [AnalysedSeries],
    events: Vec<Event>,
    /// The page of each series.
    pages: Vec<String>,
    /// Indices of the runs that have a value, in the order of time.
    order: Vec<usize>,
    /// Indices of the runs that the page of runs lists.
    listed: HashMap<usize, String>,
}

/// Writes the site. Returns the number of its pages, and facts about the history.
pub fn write(history: &Path, asked: &Asked, title: Option<&str>, to: &Path) -> Result<(usize, Vec<String>), Error> {
    let (reading, all) = analysed::read(history, asked)?;
    let site = Site::new(&reading, &all, title);
    let names = [INDEX, RUNS].into_iter().map(str::to_owned).chain(site.pages.iter().cloned());
    let folder = folder::Folder::open(to, names.collect())?;
    // Those that link come last: an interrupted build links to nothing that is missing.
    (0..all.len())
        .into_par_iter()
        .try_for_each(|at| folder.write(&site.pages[at], &series::page(&site, at)?.html()))?;
    folder.write(RUNS, &index::runs_page(&site).html())?;
    folder.write(INDEX, &index::page(&site).html())?;
    let pages = folder.close()?;
    Ok((pages, reading.notes.clone()))
}

impl<'a> Site<'a> {
    fn new(reading: &'a Reading, all: &'a [AnalysedSeries], title: Option<&str>) -> Self {
        let mut order: Vec<usize> =
            all.iter().flat_map(|analysed| analysed.series.points.iter().map(|point| point.run)).collect();
        order.sort_unstable();
        order.dedup();
        order.sort_by(|a, b| reading.runs[*a].time.cmp(&reading.runs[*b].time));
        let listed = order.iter().rev().take(index::LISTED);
        let listed = listed.map(|run| (*run, folder::anchor("run", &reading.runs[*run].run_id))).collect();
        let mut plans: Vec<&str> = all.iter().map(|analysed| analysed.series.key.plan.as_str()).collect();
        plans.dedup();
        let title = match (title, &plans[..]) {
            (Some(title), _) => title.to_owned(),
            (None, [plan]) => format!("History of {plan}"),
            (None, _) => "History".to_owned(),
        };
        let pages = all.iter().map(|analysed| format!("{SERIES}/{}", folder::page(analysed))).collect();
        Self { title, reading, all, events: events(reading, all), pages, order, listed }
    }

    /// The series by plan and machine.
    fn groups(&self) -> BTreeMap<(&str, &str), Vec<usize>> {
        let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (at, analysed) in self.all.iter().enumerate() {
            groups.entry((&analysed.series.key.plan, &analysed.series.key.machine)).or_default().push(at);
        }
        groups
    }

    /// The run as a link to its row, where it has one. `up`: the way from the page to the index.
    fn run(&self, run: usize, up: &str) -> Piece {
        let text = short_id(&self.reading.runs[run].run_id);
        match self.listed.get(&run) {
            Some(anchor) => Piece::link(text, format!("{up}{RUNS}#{anchor}")),
            None => Piece::Text(text),
        }
    }

    /// A sentence in which the run's id is a link to its row. `up`: the way from the page to the index.
    fn with_run(&self, sentence: &str, run: usize, up: &str) -> Line {
        let id = short_id(&self.reading.runs[run].run_id);
        match sentence.split_once(&format!("run {id} of")) {
            Some((before, after)) => {
                vec![Piece::Text(format!("{before}run ")), self.run(run, up), Piece::Text(format!(" of{after}"))]
            }
            None => vec![Piece::text(sentence)],
        }
    }

    /// The place of a finding on the page of its series, seen from the index.
    fn place(&self, series: usize, finding: usize) -> String {
        format!("{}#{}", self.pages[series], anchor(self.reading, &self.all[series], finding))
    }

    /// `214 runs, 2026-01-01 to 2026-07-31, through run 0198c2…`
    fn span(&self) -> String {
        sentences::span(self.reading, &self.order)
    }
}

/// The anchor of a finding on the page of its series.
fn anchor(reading: &Reading, analysed: &AnalysedSeries, finding: usize) -> String {
    let finding = &analysed.trend.findings[finding];
    let (before, first) = analysed.runs(reading, finding);
    if finding.is_drift { folder::anchor("drift", &before.run_id) } else { folder::anchor("change", &first.run_id) }
}

/// The word of a finding, in its tone.
fn word(analysed: &AnalysedSeries, i: usize) -> Piece {
    let tone = match (&analysed.accepted[i], analysed.trend.findings[i].worse) {
        (Some(_), _) => Tone::Plain,
        (None, Some(true)) => Tone::Bad,
        (None, Some(false)) => Tone::Good,
        (None, None) => Tone::Doubtful,
    };
    Piece::Word(tone, sentences::word(analysed, i).to_owned())
}

/// A value of a series, with its unit.
fn value(analysed: &AnalysedSeries, value: f64) -> String {
    analysed.trend.metric.map_or_else(|| three_digits(value), |metric| human(metric.unit, value))
}

fn commit(run: &Run) -> String {
    crate::history::commits::short(&run.commit).to_owned()
}

/// Links to the pages that are about everything.
fn links(up: &str) -> Line {
    vec![
        Piece::link("Changes and series", format!("{up}{INDEX}")),
        Piece::text(" · "),
        Piece::link("Runs", format!("{up}{RUNS}")),
    ]
}

#[cfg(test)]
mod tests;
