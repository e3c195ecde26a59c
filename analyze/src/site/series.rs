//! The page of a series: picture, findings, facts and values.

use super::{Site, anchor, commit, links, value, word};
use crate::{
    error::Error,
    export::page::{Block, Item, Line, Page, Piece, Row, Tone},
    history::{added, analysed::AnalysedSeries, sentences},
    plot::{self, Paper, options::Size},
};
use schemas::{
    metrics::Better,
    units::{level, margin},
};

/// Most runs whose values are listed.
const LISTED: usize = 1000;

/// For screens, and for phones.
const WIDE: Size = Size { width: 1000, height: 420 };
const NARROW: Size = Size { width: 480, height: 380 };

const UP: &str = "../";

pub fn page(site: &Site<'_>, at: usize) -> Result<Page, Error> {
    let analysed = &site.all[at];
    let key = &analysed.series.key;
    let mut blocks = vec![Block::Line(links(UP)), answer(analysed), picture(site, analysed)?];
    if !analysed.trend.findings.is_empty() {
        blocks.push(Block::Heading("Changes, the latest first".to_owned()));
        blocks
            .push(Block::Items((0..analysed.trend.findings.len()).rev().map(|i| finding(site, analysed, i)).collect()));
    }
    let doubts = sentences::doubts(analysed);
    if !doubts.is_empty() {
        blocks.push(Block::Heading("What to doubt".to_owned()));
        blocks.push(Block::List(doubts));
    }
    blocks.push(Block::Heading("Series".to_owned()));
    blocks.push(facts(analysed));
    values(site, analysed, &mut blocks);
    let runs: Vec<usize> = analysed.series.points.iter().map(|point| point.run).collect();
    let origin =
        format!("{} on {}: {}", key.plan, site.reading.host(&key.machine), sentences::span(site.reading, &runs));
    Ok(Page { title: sentences::name(analysed), origin, blocks })
}

/// The present level, and how far single runs are from it.
fn answer(analysed: &AnalysedSeries) -> Block {
    let level = analysed.trend.level.map(|level| value(analysed, level)).unwrap_or_default();
    let noise = analysed.trend.noise_ratio.map(|noise| format!(", with a standard deviation of {}", margin(noise)));
    let worse = analysed.trend.findings.iter().zip(&analysed.accepted).max_by_key(|(finding, _)| finding.at);
    let tone = match worse {
        Some((finding, None)) if finding.worse == Some(true) => Tone::Bad,
        Some((finding, _)) if finding.worse == Some(false) => Tone::Good,
        _ => Tone::Plain,
    };
    Block::Answer { tone, text: format!("The level is {level}{}.", noise.unwrap_or_default()), more: String::new() }
}

fn picture(site: &Site<'_>, analysed: &AnalysedSeries) -> Result<Block, Error> {
    let mut figure = plot::trend::figure(site.reading, &[analysed]);
    // The page says it around the picture.
    figure.title.clear();
    figure.footer.clear();
    figure.notes.clear();
    let svg = |size: Size| plot::to_svg(&figure, &Paper { size: Some(size), ..Paper::default() });
    let about =
        format!("the values of {} with levels and changes, which the page has as text too", sentences::name(analysed));
    Ok(Block::Picture { about, svg: svg(WIDE)?, narrow: Some(svg(NARROW)?) })
}

fn finding(site: &Site<'_>, analysed: &AnalysedSeries, i: usize) -> Item {
    let (_, first) = analysed.places(&analysed.trend.findings[i]);
    let mut line = vec![word(analysed, i), Piece::text(": ")];
    line.extend(site.with_run(&sentences::sentence(site.reading, analysed, i), first, UP));
    let below = sentences::below(analysed, i).into_iter();
    let below = below.map(|text| Item { line: vec![Piece::Text(text)], ..Item::default() }).collect();
    Item { id: anchor(site.reading, analysed, i), line, below }
}

fn facts(analysed: &AnalysedSeries) -> Block {
    let key = &analysed.series.key;
    let metric = analysed.trend.metric.map_or_else(
        || key.metric.clone(),
        |metric| {
            let better = match metric.better {
                Better::Higher => ", higher is better",
                Better::Lower => ", lower is better",
                Better::Neither => "",
            };
            let label = if metric.label == key.metric { String::new() } else { format!(": {}", metric.label) };
            format!("{}{label}{better}", key.metric)
        },
    );
    let rows = [
        ("plan", &key.plan),
        ("machine", &key.machine),
        ("case", &analysed.series.case),
        ("case_id", &key.case_id),
        ("member", &key.member),
        ("direction", &key.direction),
        ("metric", &metric),
    ];
    let rows = rows.into_iter().filter(|(_, text)| !text.is_empty());
    let rows = rows.map(|(name, text)| Row {
        id: String::new(),
        cells: vec![vec![Piece::text(name)], vec![Piece::text(text.as_str())]],
    });
    let columns = vec![("fact", false), ("value", false)];
    Block::Grid { about: "what the series is".to_owned(), columns, rows: rows.collect(), searched: false }
}

/// The values of the latest runs.
fn values(site: &Site<'_>, analysed: &AnalysedSeries, blocks: &mut Vec<Block>) {
    let points = &analysed.series.points;
    blocks.push(Block::Heading("Values, the latest first".to_owned()));
    if points.len() > LISTED {
        blocks.push(Block::Paragraph(format!(
            "The latest {LISTED} of {} runs. The history's CSV files have all, and plumb plot trend --data - writes them.",
            points.len()
        )));
    }
    let mut found = vec![Line::new(); points.len()];
    for (i, finding) in analysed.trend.findings.iter().enumerate() {
        if !found[finding.at].is_empty() {
            found[finding.at].push(Piece::text(", "));
        }
        found[finding.at].push(word(analysed, i));
    }
    let row = |(point, found): (&crate::history::series::Point, Line)| {
        let run = &site.reading.runs[point.run];
        let minute = run.time.get(..16).unwrap_or(&run.time).replace('T', " ");
        let interval = point.low.zip(point.high);
        let interval = interval.map(|(low, high)| format!("{} … {}", value(analysed, low), value(analysed, high)));
        Row {
            id: String::new(),
            cells: vec![
                vec![site.run(point.run, UP)],
                vec![Piece::Text(minute)],
                vec![Piece::Text(commit(run))],
                vec![Piece::Text(value(analysed, point.centre))],
                vec![Piece::Text(interval.unwrap_or_default())],
                found,
            ],
        }
    };
    let rows = points.iter().zip(found).rev().take(LISTED).map(row).collect();
    blocks.push(Block::Paragraph(format!(
        "A value is the median of a run's iterations; the interval is that of the typical iteration at {}.",
        level(added::LEVEL)
    )));
    let columns = vec![
        ("run", false),
        ("time (UTC)", false),
        ("commit", false),
        ("value", true),
        ("interval", true),
        ("finding", false),
    ];
    blocks.push(Block::Grid { about: "values".to_owned(), columns, rows, searched: false });
}
