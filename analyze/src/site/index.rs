//! The first page: changes, the latest first, and all series. The page of runs.

use super::{Site, commit, links, value, word};
use crate::{
    export::page::{Block, Item, Line, Page, Piece, Row, Tone},
    history::{
        analysed::{AnalysedSeries, Event},
        sentences,
    },
    judge::comparison::change_text,
    plot::trend::condensed,
};
use schemas::units::margin;
use std::{collections::HashMap, fmt::Write as _};

/// Events that stand open; others are folded.
const OPEN: usize = 12;

/// Most events of the page.
const EVENTS: usize = 200;

pub fn page(site: &Site<'_>) -> Page {
    let mut blocks = vec![Block::Line(links("")), answer(site)];
    let mut latest: Vec<&Event> = site.events.iter().collect();
    // Stable: events of one time stay in the order of plans and machines.
    latest.sort_by(|a, b| time(site, b).cmp(time(site, a)));
    if !latest.is_empty() {
        blocks.push(Block::Heading("Changes, the latest first".to_owned()));
        let items = |events: &[&Event]| events.iter().map(|event| item(site, event)).collect::<Vec<_>>();
        let shown = &latest[..latest.len().min(EVENTS)];
        let (open, folded) = shown.split_at(shown.len().min(OPEN));
        blocks.push(Block::Items(items(open)));
        if !folded.is_empty() {
            let about = format!("{} earlier changes", folded.len());
            blocks.push(Block::Fold { about, blocks: vec![Block::Items(items(folded))] });
        }
        if latest.len() > EVENTS {
            blocks.push(Block::Paragraph(format!(
                "{} more changes are older: the pages of their series have them.",
                latest.len() - EVENTS
            )));
        }
    }
    outages(site, &mut blocks);
    blocks.push(Block::Heading("Series".to_owned()));
    blocks.push(Block::Search);
    for ((plan, machine), series) in site.groups() {
        let about = format!("{plan} on {}", site.reading.host(machine));
        blocks.push(Block::Paragraph(format!("{about}: {} series", series.len())));
        blocks.push(grid(site, about, &series));
    }
    let notes = sentences::notes(site.reading, site.all);
    if !notes.is_empty() {
        let about = format!("Notes ({})", notes.len());
        blocks.push(Block::Fold { about, blocks: vec![Block::List(notes)] });
    }
    Page { title: site.title.clone(), origin: site.span(), blocks }
}

fn time<'a>(site: &'a Site<'_>, event: &Event) -> &'a str {
    &site.reading.runs[event.first].time
}

/// The latest outages of watches, and how many there were before.
fn outages(site: &Site<'_>, blocks: &mut Vec<Block>) {
    let all = &site.reading.outages;
    if all.is_empty() {
        return;
    }
    blocks.push(Block::Heading("Outages, the latest first".to_owned()));
    let shown = all.iter().rev().take(OPEN);
    blocks.push(Block::List(shown.map(sentences::outage).collect()));
    if all.len() > OPEN {
        let earlier = all.len() - OPEN;
        blocks.push(Block::Paragraph(format!("{earlier} earlier outages: plumb trend -f csv has all.")));
    }
}

fn answer(site: &Site<'_>) -> Block {
    let (verdict, text) = sentences::answer(site.reading, site.all);
    Block::Answer { tone: Tone::of(verdict), text, more: String::new() }
}

/// An event: its heading, its findings, and the commits between the runs.
fn item(site: &Site<'_>, event: &Event) -> Item {
    let line = site.with_run(&sentences::heading(site.reading, site.all, event), event.first, "");
    let mut below: Vec<Item> = event
        .findings
        .iter()
        .map(|(series, i)| {
            let analysed = &site.all[*series];
            let line = vec![
                word(analysed, *i),
                Piece::text(": "),
                Piece::link(sentences::line(analysed, *i), site.place(*series, *i)),
            ];
            let known = sentences::acceptance(analysed, *i).into_iter();
            let below = known.map(|text| Item { line: vec![Piece::Text(text)], ..Item::default() }).collect();
            Item { line, below, ..Item::default() }
        })
        .collect();
    if let Some((series, i)) = event.findings.first() {
        let commits = sentences::commits(&site.all[*series], *i).into_iter();
        below.extend(commits.map(|text| Item { line: vec![Piece::Text(text)], ..Item::default() }));
    }
    Item { line, below, ..Item::default() }
}

fn grid(site: &Site<'_>, about: String, series: &[usize]) -> Block {
    let columns = vec![
        ("series", false),
        ("values", false),
        ("level", true),
        ("noise", true),
        ("runs", true),
        ("latest run", false),
        ("latest change", false),
    ];
    let row = |at: &usize| {
        let analysed = &site.all[*at];
        let text = |text: String| -> Line { vec![Piece::Text(text)] };
        let last_run = analysed.series.points.last().map(|point| &site.reading.runs[point.run]);
        let drawing = svg(analysed, |i| match word(analysed, i) {
            Piece::Word(Tone::Bad, _) => "bad",
            Piece::Word(Tone::Good, _) => "good",
            Piece::Word(Tone::Doubtful, _) => "doubtful",
            _ => "plain",
        });
        let cells = vec![
            vec![Piece::link(sentences::name(analysed), site.pages[*at].clone())],
            vec![Piece::Drawing(drawing)],
            text(analysed.trend.level.map(|level| value(analysed, level)).unwrap_or_default()),
            text(analysed.trend.noise_ratio.map(margin).unwrap_or_default()),
            text(analysed.series.points.len().to_string()),
            text(last_run.map(|run| sentences::day(run).to_owned()).unwrap_or_default()),
            change(site, analysed),
        ];
        Row { id: String::new(), cells }
    };
    Block::Grid { about, columns, rows: series.iter().map(row).collect(), searched: true }
}

/// `regression −3.0 % on 2026-05-03`
fn change(site: &Site<'_>, analysed: &AnalysedSeries) -> Line {
    let Some((i, finding)) = analysed.latest() else {
        let text = if analysed.trend.missing > 0 { "too few runs" } else { "none" };
        return vec![Piece::text(text)];
    };
    let (_, first) = analysed.runs(site.reading, finding);
    let how = format!(" {} on {}", change_text(Some(finding.ratio), None), sentences::day(first));
    vec![word(analysed, i), Piece::Text(how)]
}

// A series as a small drawing in a row of a table.

/// Most points of the line.
const POINTS: usize = 60;

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;

/// The line of the values, with a stroke at each finding in the tone of its word. `class` gives the tone.
pub fn svg(analysed: &AnalysedSeries, class: impl Fn(usize) -> &'static str) -> String {
    let points = &analysed.series.points;
    let places: Vec<usize> = (0..points.len()).collect();
    let dots = condensed(points, &places, &[0], POINTS);
    let values = || dots.iter().map(|dot| dot.centre);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let x = |place: f64| place / (points.len().max(2) - 1) as f64 * WIDTH;
    let y = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        HEIGHT - 1.0 - share * (HEIGHT - 2.0)
    };
    let mut out = format!(
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    );
    for (i, finding) in analysed.trend.findings.iter().enumerate() {
        let at = x((finding.at as f64 - 0.5).max(0.0));
        _ = write!(out, "<path class=\"{}\" d=\"M{at:.1} 0V{HEIGHT}\"/>", class(i));
    }
    out.push_str("<path d=\"");
    for (i, dot) in dots.iter().enumerate() {
        _ = write!(out, "{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, x(dot.x), y(dot.centre));
    }
    if let [one] = &dots[..] {
        // A single run is a short line.
        _ = write!(out, "M{:.1} {:.1}h4", x(one.x), y(one.centre));
    }
    out.push_str("\"/></svg>");
    out
}

// The page of runs: the latest first, and what changed at each.

/// Most runs of the page.
pub const LISTED: usize = 5000;

/// Findings of a run that are named; the index has all.
const NAMED: usize = 4;

pub fn runs_page(site: &Site<'_>) -> Page {
    let mut values: HashMap<usize, usize> = HashMap::new();
    for point in site.all.iter().flat_map(|analysed| &analysed.series.points) {
        *values.entry(point.run).or_default() += 1;
    }
    let mut changes: HashMap<usize, Vec<&Event>> = HashMap::new();
    for event in &site.events {
        changes.entry(if event.is_drift { event.before } else { event.first }).or_default().push(event);
    }
    let mut rows = Vec::new();
    for at in site.order.iter().rev().take(LISTED) {
        let run = &site.reading.runs[*at];
        let text = |text: &str| -> Line { vec![Piece::text(text)] };
        let minute = run.time.get(..16).unwrap_or(&run.time).replace('T', " ");
        rows.push(Row {
            id: site.listed.get(at).cloned().unwrap_or_default(),
            cells: vec![
                text(&run.run_id),
                text(&minute),
                text(&commit(run)),
                text(&run.version),
                text(&run.labels),
                text(&values.get(at).copied().unwrap_or_default().to_string()),
                changed(site, changes.get(at).map_or(&[], Vec::as_slice)),
            ],
        });
    }
    let columns = vec![
        ("run", false),
        ("time (UTC)", false),
        ("commit", false),
        ("version", false),
        ("labels", false),
        ("values", true),
        ("what changed", false),
    ];
    let mut blocks = vec![Block::Line(links(""))];
    if site.order.len() > LISTED {
        blocks.push(Block::Paragraph(format!(
            "The latest {LISTED} of {} runs. The history's CSV files have all.",
            site.order.len()
        )));
    }
    blocks.push(Block::Search);
    blocks.push(Block::Grid { about: "runs".to_owned(), columns, rows, searched: true });
    Page { title: format!("{}: runs", site.title), origin: site.span(), blocks }
}

/// The findings that begin at a run.
fn changed(site: &Site<'_>, events: &[&Event]) -> Line {
    let mut line = Line::new();
    let all: Vec<&(usize, usize)> = events.iter().flat_map(|event| &event.findings).collect();
    for (series, i) in all.iter().take(NAMED) {
        let analysed = &site.all[*series];
        let finding = &analysed.trend.findings[*i];
        let text = format!("{} {}", sentences::name(analysed), change_text(Some(finding.ratio), None));
        if !line.is_empty() {
            line.push(Piece::text("; "));
        }
        line.extend([word(analysed, *i), Piece::text(" "), Piece::link(text, site.place(*series, *i))]);
    }
    if all.len() > NAMED {
        line.push(Piece::Text(format!("; {} more", all.len() - NAMED)));
    }
    line
}
