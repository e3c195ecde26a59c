//! The pictures of a report: those that the plan asks for, else those that suit what was measured.

use super::doubts::Doubts;
use crate::{
    cases::{Case, Cases, overview},
    error::Error,
    export::page::Block,
    plot::{self, AXES, Kind, Options, Plot, options::Size},
    table::Record,
};
use indexmap::IndexSet;
use schemas::{run_record::RunRecord, vocabulary};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The fewest values of a swept parameter. A line through two points says no more than two bars.
const SWEPT: usize = 3;

/// The most curves of one picture. Where members have more together, each has a picture of its own.
const CURVES: usize = 8;

/// For a phone, or for half a column.
const NARROW: Size = Size { width: 480, height: 400 };
const WIDE: Size = Size { width: 900, height: 480 };

/// A picture, and a condition on its rows.
struct Wanted {
    plot: Plot,
    condition: Option<String>,
}

/// Draws every picture. One that cannot be drawn becomes a doubt.
pub fn of(results: &Path, cases: &Cases, facts: Option<&RunRecord>, doubts: &mut Doubts) -> Vec<Block> {
    let mut wanted = Vec::new();
    for value in facts.iter().flat_map(|f| &f.plans).flat_map(|p| &p.plots) {
        match serde_json::from_value::<Plot>(value.clone()) {
            Ok(plot) => wanted.push(Wanted { plot, condition: None }),
            Err(e) => doubts.add(format!("a picture of the plan is of a newer version and was left out: {e}")),
        }
    }
    if wanted.is_empty() {
        wanted = fitting(cases);
    }
    let intervals = intervals_beside(results);
    let mut blocks = Vec::new();
    for Wanted { plot, condition } in wanted {
        let apart = intervals.as_deref().filter(|_| plot.kind == Kind::Timeseries);
        let mut options = plot.options(apart.unwrap_or(results));
        options.paper.no_annotation = true;
        options.selection.conditions.extend(condition);
        match draw(plot.kind, options) {
            Ok((block, warnings)) => {
                blocks.push(block);
                for warning in warnings {
                    doubts.add(warning);
                }
            }
            Err(e) => doubts.add(format!("a picture ({}) could not be drawn: {e}", plot.file.display())),
        }
    }
    blocks
}

/// The intervals' own table in a run's folder.
fn intervals_beside(results: &Path) -> Option<PathBuf> {
    let beside = results.with_file_name("intervals.csv");
    (results.file_name()? == "results.csv" && beside.is_file()).then_some(beside)
}

fn draw(kind: Kind, mut options: Options) -> Result<(Block, Vec<String>), Error> {
    let drawing = plot::drawing(kind, &options)?;
    let figure = &drawing.figure;
    // Rows of names need their height.
    let natural = figure.natural_size();
    let tall = |size: Size| match natural.height {
        700 => size,
        height => Size { height, ..size },
    };
    options.paper.size = Some(tall(WIDE));
    let svg = plot::to_svg(figure, &options.paper)?;
    options.paper.size = Some(tall(NARROW));
    let narrow = Some(plot::to_svg(figure, &options.paper)?);
    Ok((Block::Picture { about: figure.title.clone(), svg, narrow }, drawing.warnings))
}

fn picture(kind: Kind, tests: &[&str], x: Option<&str>, y: Option<&str>) -> Wanted {
    let owned = |name: &str| name.to_owned();
    let plot = Plot {
        kind,
        tests: Some(tests.iter().copied().map(owned).collect()),
        record: None,
        x: x.map(owned),
        y: y.map(owned),
        value: None,
        beside: None,
        by: None,
        log: None,
        title: None,
        file: tests.join("-").into(),
    };
    Wanted { plot, condition: None }
}

/// Pictures that suit the tests: a search's probes, throughput above latency for latency under load, a metric along a
/// swept parameter, else bars, percentiles and intervals over time.
fn fitting(cases: &Cases) -> Vec<Wanted> {
    let mut tests: Vec<(&str, Vec<&Case>)> = Vec::new();
    for case in cases.list.iter().filter(|c| c.count() > 0) {
        match tests.iter_mut().find(|(name, _)| *name == case.test()) {
            Some((_, all)) => all.push(case),
            None => tests.push((case.test(), vec![case])),
        }
    }
    let mut wanted = Vec::new();
    let mut plain: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut timed = Vec::new();
    for (test, all) in &tests {
        let Some(metric) = overview::metric(all) else { continue };
        let over_time = cases.intervals.contains(*test);
        let probes = |c: &&Case| c.is_timed() && !c.member().is_empty();
        if all.iter().any(|c| c.searched().is_some()) {
            let timed = all.iter().any(|c| c.is_timed());
            let (x, y) = if timed { ("inflight", "latency_p99_us") } else { ("sent_bits_per_s", "loss_ratio") };
            let mut search = picture(Kind::Sweep, &[test], Some(x), Some(y));
            search.plot.record = Some(Record::Probe);
            wanted.push(search);
        } else if let Some((axis, steps)) = swept(all) {
            // The axis column has the swept value in every row; the key's own column may not.
            let own = vocabulary::axis_of(axis).filter(|own| cases.axes.contains(own));
            let axis = own.as_deref().unwrap_or(axis);
            let drawn = || all.iter().filter(|c| c.headline().is_some_and(|m| m.column == metric.column));
            let members: IndexSet<&str> = drawn().map(|c| c.member()).collect();
            let sweep = || picture(Kind::Sweep, &[test], Some(axis), Some(metric.column));
            if drawn().count() > CURVES * steps && members.len() > 1 {
                wanted.extend(
                    members.iter().map(|member| Wanted { condition: Some(format!("member={member}")), ..sweep() }),
                );
            } else {
                wanted.push(sweep());
            }
        } else if over_time && all.iter().any(probes) && all.iter().any(|c| !c.is_timed()) {
            let mut above = picture(Kind::Timeseries, &[test], None, Some("throughput_bits_per_s"));
            // A probe's bytes are not the load.
            above.condition = Some("transactions_per_s=".to_owned());
            wanted.push(above);
            wanted.push(picture(Kind::Timeseries, &[test], None, Some("latency_p50_us")));
            timed.push(*test);
        } else {
            plain.entry(metric.column).or_default().push(test);
            if all.iter().any(|c| c.has_histogram()) {
                timed.push(*test);
            }
            if over_time {
                wanted.push(picture(Kind::Timeseries, &[test], None, Some(metric.column)));
            }
        }
    }
    // One bar says less than its row of the table.
    let bars = |tests: &Vec<&str>| cases.list.iter().filter(|c| tests.contains(&c.test())).count() > 1;
    let plain = plain.iter().filter(|(_, tests)| bars(tests));
    wanted.extend(plain.map(|(metric, tests)| picture(Kind::Bars, tests, None, Some(metric))));
    if !timed.is_empty() {
        wanted.push(picture(Kind::Percentiles, &timed, None, None));
    }
    wanted
}

/// The parameter that a test sweeps, and the number of its values.
fn swept(cases: &[&Case]) -> Option<(&'static str, usize)> {
    let steps = |axis: &str| {
        let values = cases.iter().flat_map(|c| &c.iterations).filter_map(|row| row.number(axis));
        values.map(f64::to_bits).collect::<BTreeSet<u64>>().len()
    };
    AXES.into_iter().map(|axis| (axis, steps(axis))).find(|(_, steps)| *steps >= SWEPT)
}
