//! The page of a series: picture, findings, facts and values.

use super::{Site, anchor, commit, links, span, value, word};
use crate::{
    error::Error,
    export::page::{Block, Item, Line, Page, Piece, Row, Tone},
    history::{added, sentences, told::Told},
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
    let told = &site.all[at];
    let key = &told.series.key;
    let mut blocks = vec![Block::Line(links(UP)), answer(told), picture(site, told)?];
    if !told.trend.findings.is_empty() {
        blocks.push(Block::Heading("Changes, the latest first".to_owned()));
        blocks.push(Block::Items((0..told.trend.findings.len()).rev().map(|i| finding(site, told, i)).collect()));
    }
    let doubts = sentences::doubts(told);
    if !doubts.is_empty() {
        blocks.push(Block::Heading("What to doubt".to_owned()));
        blocks.push(Block::List(doubts));
    }
    blocks.push(Block::Heading("Series".to_owned()));
    blocks.push(facts(told));
    values(site, told, &mut blocks);
    let runs: Vec<usize> = told.series.points.iter().map(|point| point.run).collect();
    let origin = format!("{} on {}: {}", key.plan, site.reading.host(&key.machine), span(site.reading, &runs));
    Ok(Page { title: sentences::name(told), origin, blocks })
}

/// The present level, and how far single runs are from it.
fn answer(told: &Told) -> Block {
    let level = told.trend.level.map(|level| value(told, level)).unwrap_or_default();
    let noise = told.trend.noise_ratio.map(|noise| format!(", with a standard deviation of {}", margin(noise)));
    let worse = told.trend.findings.iter().zip(&told.accepted).max_by_key(|(finding, _)| finding.at);
    let tone = match worse {
        Some((finding, None)) if finding.worse == Some(true) => Tone::Bad,
        Some((finding, _)) if finding.worse == Some(false) => Tone::Good,
        _ => Tone::Plain,
    };
    Block::Answer { tone, text: format!("The level is {level}{}.", noise.unwrap_or_default()), more: String::new() }
}

fn picture(site: &Site<'_>, told: &Told) -> Result<Block, Error> {
    let mut figure = plot::trend::figure(site.reading, &[told]);
    // The page says it around the picture.
    figure.title.clear();
    figure.footer.clear();
    figure.notes.clear();
    let svg = |size: Size| plot::to_svg(&figure, &Paper { size: Some(size), ..Paper::default() });
    let about =
        format!("the values of {} with levels and changes, which the page has as text too", sentences::name(told));
    Ok(Block::Picture { about, svg: svg(WIDE)?, narrow: Some(svg(NARROW)?) })
}

fn finding(site: &Site<'_>, told: &Told, i: usize) -> Item {
    let (_, first) = told.places(&told.trend.findings[i]);
    let mut line = vec![word(told, i), Piece::text(": ")];
    line.extend(site.with_run(&sentences::sentence(site.reading, told, i), first, UP));
    let below = sentences::below(told, i).into_iter();
    let below = below.map(|text| Item { line: vec![Piece::Text(text)], ..Item::default() }).collect();
    Item { id: anchor(site.reading, told, i), line, below }
}

fn facts(told: &Told) -> Block {
    let key = &told.series.key;
    let metric = told.trend.metric.map_or_else(
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
        ("case", &told.series.case),
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
fn values(site: &Site<'_>, told: &Told, blocks: &mut Vec<Block>) {
    let points = &told.series.points;
    blocks.push(Block::Heading("Values, the latest first".to_owned()));
    if points.len() > LISTED {
        blocks.push(Block::Paragraph(format!(
            "The latest {LISTED} of {} runs. The history's CSV files have all, and plumb plot trend --data - writes them.",
            points.len()
        )));
    }
    let mut found = vec![Line::new(); points.len()];
    for (i, finding) in told.trend.findings.iter().enumerate() {
        if !found[finding.at].is_empty() {
            found[finding.at].push(Piece::text(", "));
        }
        found[finding.at].push(word(told, i));
    }
    let row = |(point, found): (&crate::history::series::Point, Line)| {
        let run = &site.reading.runs[point.run];
        let minute = run.time.get(..16).unwrap_or(&run.time).replace('T', " ");
        let interval = point.low.zip(point.high);
        let interval = interval.map(|(low, high)| format!("{} … {}", value(told, low), value(told, high)));
        Row {
            id: String::new(),
            cells: vec![
                vec![site.run(point.run, UP)],
                vec![Piece::Text(minute)],
                vec![Piece::Text(commit(run))],
                vec![Piece::Text(value(told, point.centre))],
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
