//! `heatmap`: a metric over two parameters as colours, or latencies over time; of a survey, a metric
//! from each host to each other one.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    distribution::{HISTOGRAM, is_latency},
    figure::{Drawing, Figure, Panel, Points},
    layer::Layer,
    legend::{self, Entry, Key},
    options::{Options, Spread},
    quantity::{Quantity, Spacing},
    records::{Columns, Records, TELLING, Wanted},
    series::{self, Condense, Point},
    timeseries,
};
use crate::{
    error::Error,
    first_few,
    stats::histogram::Latencies,
    survey::{self, Cell as PairCell, Pairs, Rule},
    table::{InputArgs, Table, cells},
};
use schemas::{metrics::Range, text::counted, units::Unit};
use std::{
    cell::Cell as Once,
    collections::{BTreeMap, HashMap},
};

/// Ratio of largest to smallest value from which on colours are logarithmic by default: on an even scale all small values
/// would have one colour.
const DECADE: f64 = 10.0;

/// Latency buckets per factor of ten in a heat map over time.
const PER_DECADE: f64 = 12.0;

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    if options.y.as_deref().is_some_and(is_latency) {
        return over_time(options);
    }
    let mut table = Table::open(&options.input)?;
    if are_asked_for(options, &table) { between_hosts(options, &mut table) } else { over_parameters(options, table) }
}

/// One cell: column, row, value.
type Cell = (usize, usize, f64);

fn over_parameters(options: &Options, table: Table) -> Result<Drawing, Error> {
    // Standard input can be opened once.
    let opened = Once::new(Some(table));
    let (records, others) = options.with_same_scale(|input, own: Option<&Records>| {
        let chosen = |axis: usize| own.and_then(|own| own.axes.get(axis)).map(String::as_str);
        let columns = Columns {
            metric: Wanted::of(options.value.as_deref().or(own.map(|own| own.metric.as_str()))),
            axes: &[Wanted::of(options.x.as_deref().or(chosen(0))), Wanted::of(options.y.as_deref().or(chosen(1)))],
            texts: TELLING,
            ..Columns::default()
        };
        match opened.take() {
            Some(mut table) => Records::of_table(&mut table, options, &options.selection, &columns),
            None => Records::new(options, input, &options.selection, &columns),
        }
    })?;
    let asked = [
        (&options.x, "two parameters that vary"),
        (&options.y, "a parameter that varies"),
        (&options.value, "a headline metric"),
    ]
    .map(|(option, default)| option.as_deref().unwrap_or(default));
    records.nothing_to_draw(records.list.is_empty() || records.axes.len() < 2, options, &asked)?;
    let (x, y, value) = (records.axes[0].as_str(), records.axes[1].as_str(), records.metric.as_str());
    records.one_case(&format!("a heat map of `{x}` and `{y}` has one value per cell"))?;
    let (columns, rows) = (in_order(records.distinct(x)), in_order(records.distinct(y)));
    let place = |texts: &[&str]| -> HashMap<String, usize> {
        texts.iter().enumerate().map(|(i, text)| ((*text).to_owned(), i)).collect()
    };
    let (column_of, row_of) = (place(&columns), place(&rows));
    let mut values: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for record in &records.list {
        if let Some(value) = records.number(record, value) {
            let cell = (column_of[records.text(record, x)], row_of[records.text(record, y)]);
            values.entry(cell).or_default().push(value);
        }
    }
    let how = Condense { spread: Spread::None, is_range_of_few: false, ..Condense::of(options, value) };
    let points: Vec<Point> = values.values().filter_map(|v| Point::of(0.0, v, &how)).collect();
    let cells: Vec<Cell> = values.keys().zip(&points).map(|((column, row), point)| (*column, *row, point.y)).collect();
    let table = Points::new(&[x, y, value], cells.iter().map(|(c, r, v)| cells![columns[*c], rows[*r], *v]));
    let mut scale: Vec<f64> = cells.iter().map(|c| c.2).collect();
    if let Some(others) = &others {
        scale.extend(others.list.iter().filter_map(|r| others.number(r, value)));
    }
    let wide = series::is_wide(options, scale.iter().copied(), DECADE);
    let spacing = if wide || options.log_y() || options.log_x() { Spacing::Log10 } else { Spacing::Linear };
    let (low, high) = series::extent(scale.iter().copied().filter(|v| spacing.shows(*v)));
    let colours = Axis::new(records.quantity(value), spacing, low, high, options.zoom);
    let (mut layers, mut numbers) = (Vec::new(), Vec::new());
    for (column, row, mean) in &cells {
        let (column, row) = (*column as f64, *row as f64);
        let Some(share) = colours.position(*mean) else {
            layers.push(Layer::Marks {
                points: vec![(column, row)],
                sign: Sign::Cross,
                colour: Colour::MUTED,
                weight: 1.0,
            });
            continue;
        };
        let colour = legend::scale(share);
        layers.push(Layer::Box {
            from: (column - 0.49, row - 0.48),
            to: (column + 0.49, row + 0.48),
            colour,
            outline: None,
        });
        numbers.push(((column, row), legend::readable_on(colour), colours.number(*mean)));
    }
    layers.push(Layer::Numbers(numbers));
    let (x_quantity, y_quantity) = (records.quantity(x), records.quantity(y));
    let words =
        |quantity: &Quantity, texts: &[&str]| -> Vec<String> { texts.iter().map(|t| quantity.name(t)).collect() };
    let title = format!("{} over {} and {}", colours.quantity.label, x_quantity.label, y_quantity.label);
    let x_axis = Axis::of_names(x_quantity.label.clone(), words(&x_quantity, &columns));
    let y_axis = Axis::of_names(y_quantity.label.clone(), words(&y_quantity, &rows));
    let mut notes = vec![series::explain(&points.iter(), &how, &records)];
    if cells.len() < columns.len() * rows.len() {
        notes.push("empty: not measured".to_owned());
    }
    if spacing == Spacing::Log10 {
        notes.push("the colours are logarithmic".to_owned());
    }
    let lost = cells.iter().filter(|cell| !spacing.shows(cell.2)).count();
    if lost > 0 {
        notes.push(format!("crossed out: {lost} at or below zero, which a logarithmic scale has no colour for"));
    }
    let figure =
        Figure { notes, colours: Some(colours), ..Figure::new(options, &records, &title, x_axis, y_axis, layers) };
    Ok(Drawing::new(figure, table, &records))
}

/// Sorts numbers; names keep their order.
fn in_order(mut texts: Vec<&str>) -> Vec<&str> {
    if texts.iter().all(|t| t.parse::<f64>().is_ok()) {
        texts.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse().unwrap_or(0.0)));
    }
    texts
}

/// A share of an interval's latencies: start and end in seconds, bucket, share.
type Stretch = (f64, f64, i32, f64);

/// Lower edge of a latency bucket, microseconds.
fn edge(bucket: i32) -> f64 {
    10_f64.powf(f64::from(bucket) / PER_DECADE)
}

fn over_time(options: &Options) -> Result<Drawing, Error> {
    let columns = Columns {
        numbers: &["start_s", "elapsed_s"],
        required_texts: &[HISTOGRAM],
        texts: &["phase"],
        along: &["stream", "phase"],
        ..Columns::default()
    };
    let selection = options.intervals();
    let ((records, own), others) = options.with_same_scale(|input, _| {
        let mut records = Records::new(options, input, &selection, &columns)?;
        records.nothing_to_draw(records.list.is_empty(), options, &["start_s", HISTOGRAM])?;
        records.one_case("latencies over time are drawn for one case")?;
        records.keep_first("stream");
        records.keep_first("iteration");
        let stretches = stretches(&records)?;
        Ok((records, stretches))
    })?;
    let scale: Vec<Stretch> = own.iter().copied().chain(others.into_iter().flat_map(|(_, found)| found)).collect();
    let (low, high) = series::extent(scale.iter().flat_map(|b| [edge(b.2), edge(b.2 + 1)]));
    let y = Axis::new(Quantity::new("latency", Some(Unit::Microseconds)), Spacing::Log10, low, high, true);
    let (from, to) = series::extent(scale.iter().flat_map(|b| [b.0, b.1]));
    let x =
        Axis::exact(Quantity::new("time since the measurement began", Some(Unit::Seconds)), Spacing::Linear, from, to);
    let (least, most) = series::extent(scale.iter().map(|b| b.3));
    let colours =
        Axis::new(Quantity::new("share", Some(Unit::Ratio)).within(Range::SHARE), Spacing::Log10, least, most, true);
    let mut layers = timeseries::shades(&records, "start_s");
    let mut notes = vec!["colour: share of an interval's latencies in each range".to_owned()];
    notes.extend(timeseries::note(&layers));
    // The colours would cover the names.
    timeseries::without_names(&mut layers);
    for (from, to, bucket, share) in &own {
        let colour = legend::scale(colours.position(*share).unwrap_or(0.0));
        layers.push(Layer::Box { from: (*from, edge(*bucket)), to: (*to, edge(bucket + 1)), colour, outline: None });
    }
    let rows = own.iter().map(|(from, to, bucket, share)| cells![*from, *to, edge(*bucket), edge(bucket + 1), *share]);
    let table = Points::new(&["start_s", "end_s", "latency_low_us", "latency_high_us", "share"], rows);
    let figure = Figure::new(options, &records, "latency over time", x, y, layers);
    let figure = Figure { notes, colours: Some(colours), ..figure };
    Ok(Drawing::new(figure, table, &records))
}

/// The latencies of each interval by bucket, as shares, so that slow intervals (with fewer transactions) compare with
/// fast ones.
fn stretches(records: &Records) -> Result<Vec<Stretch>, Error> {
    let mut found = Vec::new();
    for record in &records.list {
        let (Some(start), Some(length)) = (records.number(record, "start_s"), records.number(record, "elapsed_s"))
        else {
            continue;
        };
        let latencies =
            Latencies::decode(records.text(record, HISTOGRAM)).map_err(|r| records.error(record, HISTOGRAM, r))?;
        let total = latencies.count() as f64;
        let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
        for (value, count) in latencies.buckets_us().filter(|b| b.0 > 0.0) {
            #[expect(clippy::cast_possible_truncation, reason = "logarithms of latencies are small")]
            let bucket = (value.log10() * PER_DECADE).floor() as i32;
            *counts.entry(bucket).or_default() += count;
        }
        found.extend(counts.iter().map(|(bucket, count)| (start, start + length, *bucket, *count as f64 / total)));
    }
    Ok(found)
}

// `heatmap` of a survey: a metric from each host to each other one.

/// Suspects that the note names.
const NAMED: usize = 3;

const ITSELF: Colour = Colour::GRID;
const MISSING: Colour = Colour(0xf4, 0xf4, 0xf4);
const FAILED: Colour = Colour(0xd5, 0x5e, 0x00);
const DISTURBED_PAIR: Colour = Colour(0xb0, 0xb0, 0xb0);

/// Whether the axes are the hosts of pairs: asked for, or by default in a table whose pairs were swept.
fn are_asked_for(options: &Options, table: &Table) -> bool {
    let own = |name: &str| name.strip_prefix(schemas::columns::AXIS_PREFIX).unwrap_or(name).to_owned();
    match (options.x.as_deref().map(own), options.y.as_deref().map(own)) {
        (Some(x), Some(y)) => matches!((x.as_str(), y.as_str()), ("from", "to") | ("to", "from")),
        (None, None) => ["axis_from", "axis_to"].iter().all(|name| table.header().names().iter().any(|n| n == name)),
        _ => false,
    }
}

fn between_hosts(options: &Options, table: &mut Table) -> Result<Drawing, Error> {
    let pairs = one_survey(options, table)?;
    let mut values = pairs.matrix.values();
    if !options.same_scale.is_empty() {
        let mut others = Table::open(&InputArgs { files: options.same_scale.clone() })?;
        values.extend(one_survey(options, &mut others)?.matrix.values());
    }
    let log = options.log_x() || options.log_y() || series::is_wide(options, values.iter().copied(), DECADE);
    let (spacing, how) = if log { (Spacing::Log10, "the colours are logarithmic") } else { (Spacing::Linear, "") };
    let (low, high) = series::extent(values.iter().copied());
    // Pairs differ by a few percent: from zero on they would have one colour.
    let colours = Axis::new(Quantity::of_column(pairs.metric.column), spacing, low, high, true);
    let hosts = pairs.matrix.hosts().to_vec();
    let title = options.paper.title.clone().unwrap_or_else(|| {
        let name = pairs.name();
        let plan = &pairs.origin.plan;
        let subject = if plan.is_empty() || name.starts_with(plan.as_str()) { name } else { format!("{plan}, {name}") };
        format!("{subject}: {} between hosts", colours.quantity.label)
    });
    let turned = options.x.as_deref().is_some_and(|x| x.ends_with("from"));
    let (across, down) = if turned { ("from", "to") } else { ("to", "from") };
    let layers = layers(&pairs, &colours, turned);
    let mut notes = facts(&pairs);
    notes.extend((!how.is_empty()).then(|| how.to_owned()));
    let figure = Figure {
        title,
        notes,
        x: Axis::of_names(across, hosts.clone()),
        panels: vec![Panel { y: Axis::of_names(down, hosts), layers, rows_per_name: 1, remark: "" }],
        beside: Vec::new(),
        legend: legend(&pairs),
        colours: Some(colours),
        footer: if options.paper.no_annotation { Vec::new() } else { footer(&pairs) },
    };
    Ok(Drawing { figure, points: points(&pairs), warnings: Vec::new(), notes: Vec::new() })
}

/// The only survey of a table among those asked for.
fn one_survey(options: &Options, table: &mut Table) -> Result<Pairs, Error> {
    let asked = |pairs: &Pairs| {
        let test = pairs.key.iter().find(|(name, _)| name == "test").map_or("", |(_, test)| test.as_str());
        options.tests.is_empty() || options.tests.iter().any(|name| name == test)
    };
    let all = survey::read(table, &options.selection, options.value.as_deref())?;
    let mut found: Vec<Pairs> = all.into_iter().filter(asked).collect();
    match (found.pop(), found.first()) {
        (Some(only), None) => Ok(only),
        (Some(last), Some(first)) => Err(Error::Usage(format!(
            "a heat map shows one survey, and there are {}, for example {} and {}: choose with --test or --where",
            found.len() + 1,
            first.name(),
            last.name()
        ))),
        (None, _) => Err(table.error(format!("nothing to draw: there are no pairs of {}", options.tests.join(", ")))),
    }
}

fn layers(pairs: &Pairs, colours: &Axis, turned: bool) -> Vec<Layer> {
    let cell = |(x, y): (f64, f64), colour| Layer::Box {
        from: (x - 0.49, y - 0.48),
        to: (x + 0.49, y + 0.48),
        colour,
        outline: None,
    };
    let (mut layers, mut numbers, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for host in 0..pairs.matrix.len() {
        layers.push(cell((host as f64, host as f64), ITSELF));
    }
    for (from, to, value) in pairs.matrix.pairs() {
        let at = if turned { (from as f64, to as f64) } else { (to as f64, from as f64) };
        match value {
            PairCell::Value(value) => {
                let colour = legend::scale(colours.position(value).unwrap_or(0.0));
                layers.push(cell(at, colour));
                numbers.push((at, legend::readable_on(colour), colours.number(value)));
            }
            PairCell::Failed => {
                failed.push(at);
            }
            PairCell::Disturbed(_) => layers.push(cell(at, DISTURBED_PAIR)),
            PairCell::Missing => {
                layers.push(cell(at, MISSING));
                layers.push(Layer::Line {
                    points: vec![(at.0 - 0.49, at.1 + 0.48), (at.0 + 0.49, at.1 - 0.48)],
                    colour: Colour::MUTED,
                    weight: 0.5,
                    dash: None,
                });
            }
        }
    }
    layers.push(Layer::Marks { points: failed, sign: Sign::Cross, colour: FAILED, weight: 1.0 });
    layers.push(Layer::Numbers(numbers));
    layers
}

fn legend(pairs: &Pairs) -> Vec<Entry> {
    let has = |wanted: fn(PairCell) -> bool| pairs.matrix.pairs().any(|(_, _, cell)| wanted(cell));
    let entry = |label: &str, key| Entry { label: label.to_owned(), key };
    let mut entries = vec![entry("a host with itself", Key::Patch(ITSELF))];
    if has(|cell| cell == PairCell::Failed) {
        entries.push(entry("failed", Key::Mark(Sign::Cross, FAILED)));
    }
    if has(|cell| matches!(cell, PairCell::Disturbed(_))) {
        entries.push(entry("disturbed", Key::Patch(DISTURBED_PAIR)));
    }
    if has(|cell| cell == PairCell::Missing) {
        entries.push(entry("not measured", Key::Struck { patch: MISSING, stroke: Colour::MUTED }));
    }
    entries
}

/// The verdict of `plumb survey` with its defaults.
fn facts(pairs: &Pairs) -> Vec<String> {
    let found = survey::survey(&pairs.matrix, &Rule::new(pairs.metric.better));
    let mut facts = Vec::new();
    facts.extend(found.overall.map(|v| format!("median {}", schemas::units::human(pairs.metric.unit, v))));
    facts.extend(found.spread.map(|s| format!("spread {}", survey::percent(s))));
    facts.push(found.none_named().map_or_else(
        || {
            let names = found.suspects.iter().map(|suspect| suspect.name(pairs.matrix.hosts(), pairs.ends));
            let s = if found.suspects.len() == 1 { "suspect" } else { "suspects" };
            format!("{s}: {}", first_few(names, NAMED).join(", "))
        },
        str::to_owned,
    ));
    if !found.failed.is_empty() {
        facts.push(format!("{} failed", counted(found.failed.len(), "pair")));
    }
    facts
}

fn footer(pairs: &Pairs) -> Vec<String> {
    let origin = &pairs.origin;
    let mut parts = Vec::new();
    match &origin.runs[..] {
        [] => {}
        [run] => parts.push(format!("run {run}")),
        runs => parts.push(format!("{} runs", runs.len())),
    }
    parts.push(format!("{} hosts", pairs.matrix.len()));
    parts.extend(
        origin
            .days
            .as_ref()
            .map(|(first, last)| if first == last { first.clone() } else { format!("{first} … {last}") }),
    );
    parts.push(match origin.iterations {
        1 => "1 iteration of a pair".to_owned(),
        n => format!("median of up to {n} iterations"),
    });
    parts
}

fn points(pairs: &Pairs) -> Points {
    let hosts = pairs.matrix.hosts();
    let row = |(from, to, cell): (usize, usize, PairCell)| {
        let (value, status) = match cell {
            PairCell::Value(value) => (Some(value), "ok"),
            PairCell::Failed => (None, "failed"),
            PairCell::Disturbed(_) => (None, "disturbed"),
            PairCell::Missing => (None, "missing"),
        };
        cells![&hosts[from], &hosts[to], value, status]
    };
    Points::new(&["from", "to", pairs.metric.column, "status"], pairs.matrix.pairs().map(row))
}
