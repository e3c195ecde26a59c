//! `plumb plot trend`: series of histories of all lengths, with gaps, equal, zero and negative values.

use analyze::{
    Filter,
    plot::{self, figure::Figure, layer::Layer},
};
use clap::Parser;
use std::{fmt::Write as _, path::Path};

#[derive(clap::Parser)]
struct Plumb {
    #[command(subcommand)]
    filter: Filter,
}

fn noise(run: usize) -> f64 {
    [3.0, -12.0, 8.0, 11.0, -4.0, -9.0, 6.0][run * 5 % 7] / 4000.0
}

/// Lines of a series; `None`: the run has no value of it.
pub fn rows(text: &mut String, case: &str, metric: &str, runs: usize, value: impl Fn(usize) -> Option<f64>) {
    if text.is_empty() {
        text.push_str("run_id,time,commit,machine,plan,case_id,case,metric,centre,low,high\n");
    }
    for run in 0..runs {
        let Some(value) = value(run) else { continue };
        let day = day_of(run);
        let (low, high) = (value - value.abs() * 0.002, value + value.abs() * 0.002);
        writeln!(
            text,
            "r{run:04},{day}T02:00:00Z,{run:08x}ffff,m1,nightly,{case},{case},{metric},{value},{low},{high}"
        )
        .unwrap();
    }
}

/// A day for each run; months have 28.
fn day_of(run: usize) -> String {
    format!("{}-{:02}-{:02}", 2016 + run / 336, run / 28 % 12 + 1, run % 28 + 1)
}

fn history(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m1.csv"), text).unwrap();
    folder
}

fn draw(folder: &Path, more: &[&str]) -> Result<plot::figure::Drawing, String> {
    let words = ["plumb", "plot", "trend", folder.to_str().unwrap(), "--term"];
    let parsed = Plumb::try_parse_from(words.iter().chain(more)).map_err(|e| e.to_string())?;
    let Filter::Plot(args) = parsed.filter else { panic!("another filter") };
    let Some(analyze::filters::plot::OfHistory::Trend(args)) = &args.of_history else { panic!("another kind") };
    plot::trend::draw(args).map_err(|e| e.to_string())
}

pub fn figure(text: &str) -> Figure {
    draw(history(text).path(), &[]).unwrap().figure
}

fn step(run: usize, at: usize) -> f64 {
    (if run < at { 9.4e9 } else { 9.12e9 }) * (1.0 + noise(run))
}

/// A series of so many runs, of which the last three eighths are 3 % slower.
pub fn stepped(runs: usize) -> String {
    let mut text = String::new();
    rows(&mut text, "bulk", "throughput", runs, |run| Some(step(run, runs * 5 / 8)));
    text
}

fn labels(figure: &Figure) -> Vec<&str> {
    let layers = figure.panels.iter().flat_map(|panel| &panel.layers);
    layers.filter_map(|l| if let Layer::Rule { label, .. } = l { Some(label.as_str()) } else { None }).collect()
}

#[test]
fn histories_of_every_length_are_drawn() {
    for runs in [1, 2, 5, 19, 20, 40, 61, 400, 401, 3650] {
        let figure = figure(&stepped(runs));
        crate::check(&format!("trend-{runs}"), &figure);
        if runs >= 40 {
            assert_eq!(labels(&figure), [format!("−3.0 % {:08x}", runs * 5 / 8)], "{runs}");
        }
        let missing = figure.notes.iter().any(|note| note.contains("more make the 20"));
        assert_eq!(missing, runs < 20, "{runs}: {:?}", figure.notes);
    }
}

#[test]
fn gaps_zeros_negative_and_equal_values_have_a_place() {
    let mut gaps = String::new();
    rows(&mut gaps, "bulk", "throughput", 120, |run| (!(30..60).contains(&run)).then(|| step(run, 90)));
    rows(&mut gaps, "trips", "latency.p99", 120, |run| (run % 7 != 0).then(|| 84.0 * (1.0 + noise(run))));
    let drawn = figure(&gaps);
    crate::check("trend-gaps", &Figure { panels: drawn.panels[..1].to_vec(), ..drawn.clone() });
    assert_eq!(drawn.panels.len(), 2);
    assert_eq!(drawn.x.names.len(), 116, "the runs of both");
    let areas = drawn.panels[0].layers.iter().filter(|l| matches!(l, Layer::Area { .. }));
    assert_eq!(areas.count(), 3, "a gap and a new level end the band");
    let one = |metric: &str, value: fn(usize) -> f64| {
        let mut text = String::new();
        rows(&mut text, "bulk", metric, 40, |run| Some(value(run)));
        figure(&text)
    };
    crate::check("trend-zeros", &one("retransmits", |_| 0.0));
    crate::check("trend-equal", &one("throughput", |_| 9.4e9));
    let negative = one("odd.metric", |run| noise(run) * 4.0 - if run < 25 { 0.1 } else { 0.0 });
    assert!(negative.panels[0].y.min < 0.0 && negative.notes[0].contains("no metric of this version"));
    crate::check("trend-negative", &negative);
    crate::check("trend-drift", &one("throughput", |run| 9.4e9 * (1.0 + noise(run) - run as f64 / 400.0)));
}

#[test]
fn many_changes_have_labels_that_do_not_cover_each_other() {
    let mut text = String::new();
    rows(&mut text, "bulk", "throughput", 400, |run| Some(9.4e9 * (1.0 + noise(run) + 0.06 * ((run / 25) % 2) as f64)));
    let figure = figure(&text);
    assert!(labels(&figure).len() >= 12, "{:?}", labels(&figure));
    crate::check("trend-many", &figure);
}

#[test]
fn more_series_than_fit_are_refused_with_the_words_that_choose() {
    let mut text = String::new();
    for case in 0..13 {
        rows(&mut text, &format!("c{case}"), "throughput", 3, |run| Some(step(run, 9)));
    }
    let folder = history(&text);
    let error = draw(folder.path(), &[]).unwrap_err();
    assert!(error.contains("13 such series") && error.contains("--case") && error.contains("--history"), "{error}");
    let drawing = draw(folder.path(), &["--case", "c1"]).unwrap();
    assert_eq!(drawing.figure.panels.len(), 4);
    assert_eq!(drawing.points.rows.len(), 12);
    assert!(drawing.figure.notes.iter().filter(|note| note.contains("3 runs: 17 more")).count() == 1);
    crate::check("trend-four", &Figure { panels: drawing.figure.panels[..1].to_vec(), ..drawing.figure });
}

#[test]
fn an_accepted_change_is_grey_and_the_points_name_their_findings() {
    let folder = history(&stepped(40));
    let drawing = draw(folder.path(), &[]).unwrap();
    let named = |drawing: &plot::figure::Drawing| {
        let rows = drawing.points.rows.iter().filter(|row| !row[14].is_empty());
        rows.map(|row| format!("{} {}", row[7], row[14])).collect::<Vec<_>>()
    };
    assert_eq!(named(&drawing), ["r0025 regression"]);
    assert!(drawing.figure.legend.iter().any(|entry| entry.label == "for the worse"));
    let known = "case_id,member,direction,metric,run_id,change_ratio,reason,date\n\
                 bulk,,,throughput,r0025,-0.03,a smaller buffer,2016-02-01\n";
    std::fs::write(folder.path().join("accepted.csv"), known).unwrap();
    let drawing = draw(folder.path(), &[]).unwrap();
    assert_eq!(named(&drawing), ["r0025 accepted"]);
    assert!(drawing.figure.legend.iter().all(|entry| entry.label != "for the worse"));
}

#[test]
fn a_results_table_may_be_called_trend_and_a_kind_is_required() {
    let parse = |words: &[&str]| Plumb::try_parse_from([&["plumb", "plot"], words].concat());
    let Filter::Plot(args) = parse(&["sweep", "trend", "-o", "a.png"]).unwrap().filter else { panic!() };
    assert!(args.of_history.is_none() && args.options.input.files == [Path::new("trend")]);
    let error = parse(&[]).err().expect("a kind is required").to_string();
    assert!(error.contains("<KIND>"), "{error}");
    assert!(parse(&["trend", "history", "-x", "time"]).is_err(), "an option of the other kinds");
}
