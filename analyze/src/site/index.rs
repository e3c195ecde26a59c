//! The first page: changes, the latest first, and all series.

use schemas::units::margin;

use super::{Site, links, sparkline, value, word};
use crate::{
    export::page::{Block, Item, Line, Page, Piece, Row, Tone},
    history::{
        events::Event,
        sentences,
        told::Told,
        trend::{FEWEST, Finding},
    },
};

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

/// The finding that gave a series its present level.
fn last(told: &Told) -> Option<(usize, &Finding)> {
    told.trend.findings.iter().enumerate().max_by_key(|(_, finding)| finding.at)
}

fn answer(site: &Site<'_>) -> Block {
    let count = site.all.len();
    let worse = site
        .all
        .iter()
        .filter(|told| last(told).is_some_and(|(i, f)| f.worse == Some(true) && told.accepted[i].is_none()))
        .count();
    let (tone, text) = match worse {
        _ if site.all.iter().all(|told| told.trend.missing > 0) => {
            (Tone::Doubtful, format!("No series has the {FEWEST} runs that changes are searched in."))
        }
        0 if site.events.is_empty() => (Tone::Good, format!("No change in {count} series.")),
        0 => (Tone::Good, format!("None of {count} series got worse at its latest change.")),
        worse => (Tone::Bad, format!("{worse} of {count} series got worse at the latest change.")),
    };
    Block::Answer { tone, text, more: String::new() }
}

/// An event: its heading, its findings, and the commits between the runs.
fn item(site: &Site<'_>, event: &Event) -> Item {
    let line = site.with_run(&sentences::heading(site.reading, site.all, event), event.first, "");
    let mut below: Vec<Item> = event
        .findings
        .iter()
        .map(|(series, i)| {
            let told = &site.all[*series];
            let line = vec![
                word(told, *i),
                Piece::text(": "),
                Piece::link(sentences::line(told, *i), site.place(*series, *i)),
            ];
            let known = sentences::acceptance(told, *i).into_iter();
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
        let told = &site.all[*at];
        let text = |text: String| -> Line { vec![Piece::Text(text)] };
        let last_run = told.series.points.last().map(|point| &site.reading.runs[point.run]);
        let drawing = sparkline::svg(told, |i| match word(told, i) {
            Piece::Word(Tone::Bad, _) => "bad",
            Piece::Word(Tone::Good, _) => "good",
            Piece::Word(Tone::Doubtful, _) => "doubtful",
            _ => "plain",
        });
        let cells = vec![
            vec![Piece::link(sentences::name(told), site.pages[*at].clone())],
            vec![Piece::Drawing(drawing)],
            text(told.trend.level.map(|level| value(told, level)).unwrap_or_default()),
            text(told.trend.noise_ratio.map(margin).unwrap_or_default()),
            text(told.series.points.len().to_string()),
            text(last_run.map(|run| sentences::day(run).to_owned()).unwrap_or_default()),
            change(site, told),
        ];
        Row { id: String::new(), cells }
    };
    Block::Grid { about, columns, rows: series.iter().map(row).collect(), searched: true }
}

/// `regression −3.0 % on 2026-05-03`
fn change(site: &Site<'_>, told: &Told) -> Line {
    let Some((i, finding)) = last(told) else {
        let text = if told.trend.missing > 0 { "too few runs" } else { "none" };
        return vec![Piece::text(text)];
    };
    let sign = if finding.ratio < 0.0 { "−" } else { "+" };
    let (_, first) = told.runs(site.reading, finding);
    let how = format!(" {sign}{} on {}", margin(finding.ratio.abs()), sentences::day(first));
    vec![word(told, i), Piece::Text(how)]
}
