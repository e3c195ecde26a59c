//! Chooses and draws the pictures for a results file.

use super::document::Block;
use crate::{
    error::Error,
    plot::{self, Kind, Options},
    table::{InputArgs, Record, Selection, Table, select::Picker},
};
use std::{collections::BTreeSet, path::Path};

/// Parameters along which a sweep is drawn, in the order of preference.
const AXES: [&str; 6] = ["message_bytes", "request_bytes", "streams", "inflight", "offered_per_s", "threads"];

/// Headline metrics: each test has one.
const METRICS: [&str; 2] = ["throughput_bits_per_s", "transactions_per_s"];

/// The fewest values of a swept parameter. A line through two points says no more than two bars.
const SWEPT: usize = 3;

/// The contents of a results file that matter for pictures.
#[derive(Default)]
struct Contents {
    tests: Vec<Test>,
    intervals: bool,
}

#[derive(Default)]
struct Test {
    name: String,
    metrics: BTreeSet<usize>,
    /// Distinct values by index into [`AXES`].
    axes: [BTreeSet<String>; AXES.len()],
    histograms: bool,
}

impl Test {
    fn is_swept(&self) -> bool {
        self.axes.iter().any(|values| values.len() >= SWEPT)
    }
}

/// Every picture that suits the file.
pub fn of(results: &Path) -> Result<Vec<Block>, Error> {
    let contents = contents(results)?;
    let mut wanted: Vec<(Kind, Options)> = Vec::new();
    let base =
        || Options { input: InputArgs { files: vec![results.to_owned()] }, no_annotation: true, ..Options::default() };
    for (index, metric) in METRICS.iter().enumerate() {
        let tests: Vec<&Test> = contents.tests.iter().filter(|t| t.metrics.contains(&index)).collect();
        let mut plain = Vec::new();
        for test in tests {
            match AXES.iter().zip(&test.axes).find(|(_, values)| values.len() >= SWEPT) {
                Some((axis, _)) => wanted.push((
                    Kind::Sweep,
                    Options {
                        x: Some((*axis).to_owned()),
                        y: Some((*metric).to_owned()),
                        tests: vec![test.name.clone()],
                        ..base()
                    },
                )),
                None => plain.push(test.name.clone()),
            }
        }
        if !plain.is_empty() {
            wanted.push((Kind::Bars, Options { y: Some((*metric).to_owned()), tests: plain, ..base() }));
        }
    }
    // A curve for each value of a sweep would be unreadable.
    let timed: Vec<String> =
        contents.tests.iter().filter(|t| t.histograms && !t.is_swept()).map(|t| t.name.clone()).collect();
    if !timed.is_empty() {
        wanted.push((Kind::Percentiles, Options { tests: timed, ..base() }));
    }
    if contents.intervals {
        wanted.push((Kind::Timeseries, base()));
    }
    let mut blocks = Vec::new();
    for (kind, options) in wanted {
        let drawing = plot::drawing(kind, &options)?;
        blocks.push(Block::Picture {
            about: drawing.figure.title.clone(),
            svg: plot::to_svg(&drawing.figure, &options)?,
        });
    }
    Ok(blocks)
}

fn contents(results: &Path) -> Result<Contents, Error> {
    let mut table = Table::open(&InputArgs { files: vec![results.to_owned()] })?;
    let column = |name: &str| table.header().find(name);
    let (test, metrics) = (column("test"), METRICS.map(column));
    let (axes, histogram) = (AXES.map(column), column("latency_histogram"));
    let mut picker = Picker::new(&Selection::default(), &table)?;
    let mut contents = Contents::default();
    while let Some(row) = table.next_row()? {
        let Some(kind) = picker.pick(&row)? else { continue };
        let filled = |column: Option<usize>| column.is_some_and(|c| !row.get(c).is_empty());
        contents.intervals |= kind == Record::Interval && filled(metrics[0]);
        if kind != Record::Iteration {
            continue;
        }
        let name = test.map_or("", |c| row.get(c));
        let at = contents.tests.iter().position(|t| t.name == name).unwrap_or_else(|| {
            contents.tests.push(Test { name: name.to_owned(), ..Test::default() });
            contents.tests.len() - 1
        });
        let known = &mut contents.tests[at];
        known.histograms |= filled(histogram);
        known.metrics.extend((0..METRICS.len()).filter(|i| filled(metrics[*i])));
        for (values, column) in known.axes.iter_mut().zip(axes) {
            if let Some(column) = column.filter(|c| !row.get(*c).is_empty()) {
                values.insert(row.get(column).to_owned());
            }
        }
    }
    Ok(contents)
}
