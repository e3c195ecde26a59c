//! The page of runs: the latest first, and what changed at each.

use std::collections::HashMap;

use schemas::units::margin;

use super::{Site, commit, links, word};
use crate::{
    export::page::{Block, Line, Page, Piece, Row},
    history::{events::Event, sentences},
};

/// Most runs of the page.
pub const LISTED: usize = 5000;

/// Findings of a run that are named; the index has all.
const NAMED: usize = 4;

pub fn page(site: &Site<'_>) -> Page {
    let mut values: HashMap<usize, usize> = HashMap::new();
    for point in site.all.iter().flat_map(|told| &told.series.points) {
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
        let told = &site.all[*series];
        let finding = &told.trend.findings[*i];
        let sign = if finding.ratio < 0.0 { "−" } else { "+" };
        let text = format!("{} {sign}{}", sentences::name(told), margin(finding.ratio.abs()));
        if !line.is_empty() {
            line.push(Piece::text("; "));
        }
        line.extend([word(told, *i), Piece::text(" "), Piece::link(text, site.place(*series, *i))]);
    }
    if all.len() > NAMED {
        line.push(Piece::Text(format!("; {} more", all.len() - NAMED)));
    }
    line
}
