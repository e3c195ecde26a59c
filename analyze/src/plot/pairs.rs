//! `heatmap` of a survey: a metric from each host to each other one.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    drawing::{Drawing, Points},
    figure::{Figure, Panel},
    heatmap::DECADE,
    layer::Layer,
    legend::{Entry, Key},
    options::Options,
    palette,
    quantity::Quantity,
    series,
    spacing::Spacing,
};
use crate::{
    error::Error,
    survey::{self, Cell, Pairs, Rule},
    table::{InputArgs, Table},
};
use schemas::columns::number;

/// Suspects that the note names.
const NAMED: usize = 3;

const ITSELF: Colour = Colour::GRID;
const MISSING: Colour = Colour(0xf4, 0xf4, 0xf4);
const FAILED: Colour = Colour(0xd5, 0x5e, 0x00);
const DISTURBED: Colour = Colour(0xb0, 0xb0, 0xb0);

/// Whether the axes are the hosts of pairs: asked for, or by default in a table whose pairs were swept.
pub fn are_asked_for(options: &Options, table: &Table) -> bool {
    let own = |name: &str| name.strip_prefix(schemas::columns::AXIS_PREFIX).unwrap_or(name).to_owned();
    match (options.x.as_deref().map(own), options.y.as_deref().map(own)) {
        (Some(x), Some(y)) => matches!((x.as_str(), y.as_str()), ("from", "to") | ("to", "from")),
        (None, None) => ["axis_from", "axis_to"].iter().all(|name| table.header().names().iter().any(|n| n == name)),
        _ => false,
    }
}

pub fn draw(options: &Options, table: &mut Table) -> Result<Drawing, Error> {
    let pairs = one(options, table)?;
    let mut values = pairs.matrix.values();
    if !options.same_scale.is_empty() {
        let mut others = Table::open(&InputArgs { files: options.same_scale.clone() })?;
        values.extend(one(options, &mut others)?.matrix.values());
    }
    let log = options.log_x() || options.log_y() || options.wide(values.iter().copied(), DECADE);
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
    Ok(Drawing { figure, points: points(&pairs), warnings: Vec::new(), told: Vec::new() })
}

/// The only survey of a table among those asked for.
fn one(options: &Options, table: &mut Table) -> Result<Pairs, Error> {
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
            Cell::Value(value) => {
                let colour = palette::scale(colours.position(value).unwrap_or(0.0));
                layers.push(cell(at, colour));
                numbers.push((at, palette::readable_on(colour), colours.number(value)));
            }
            Cell::Failed => {
                failed.push(at);
            }
            Cell::Disturbed(_) => layers.push(cell(at, DISTURBED)),
            Cell::Missing => {
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
    let has = |wanted: fn(Cell) -> bool| pairs.matrix.pairs().any(|(_, _, cell)| wanted(cell));
    let entry = |label: &str, key| Entry { label: label.to_owned(), key };
    let mut entries = vec![entry("a host with itself", Key::Patch(ITSELF))];
    if has(|cell| cell == Cell::Failed) {
        entries.push(entry("failed", Key::Mark(Sign::Cross, FAILED)));
    }
    if has(|cell| matches!(cell, Cell::Disturbed(_))) {
        entries.push(entry("disturbed", Key::Patch(DISTURBED)));
    }
    if has(|cell| cell == Cell::Missing) {
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
    match found.suspect_count() {
        None if found.noise.is_some() => facts.push("too much noise to tell a slow one".to_owned()),
        None => facts.push("too few pairs to tell a slow one".to_owned()),
        Some(0) => facts.push("no suspects".to_owned()),
        Some(count) => {
            let hosts = pairs.matrix.hosts();
            let names: Vec<String> = found.suspects.iter().take(NAMED).map(|s| s.name(hosts, pairs.ends)).collect();
            let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
            let s = if count == 1 { "suspect" } else { "suspects" };
            facts.push(format!("{s}: {}{more}", names.join(", ")));
        }
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
    let mut table = Points::new(&["from", "to", pairs.metric.column, "status"]);
    let hosts = pairs.matrix.hosts();
    let row = |(from, to, cell): (usize, usize, Cell)| {
        let (value, status) = match cell {
            Cell::Value(value) => (number(value), "ok"),
            Cell::Failed => (String::new(), "failed"),
            Cell::Disturbed(_) => (String::new(), "disturbed"),
            Cell::Missing => (String::new(), "missing"),
        };
        vec![hosts[from].clone(), hosts[to].clone(), value, status.to_owned()]
    };
    table.rows = pairs.matrix.pairs().map(row).collect();
    table
}
