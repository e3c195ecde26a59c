//! `compare`: the result of `plumb compare`, a line per case: the change with its interval, in the colour of its
//! verdict.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    figure::{Drawing, Figure, Points},
    layer::Layer,
    legend::{Entry, Key},
    options::Options,
    quantity::{Quantity, Spacing},
    records::{Columns, Records},
    series,
};
use crate::{error::Error, table::cells};
use schemas::{
    columns::verdicts::column as verdict,
    metrics::{self, Range},
    units::{self, Unit},
    words::Verdict,
};

/// Verdicts with their looks, in the order of the legend. Grey verdicts decide nothing.
const VERDICTS: [(Verdict, Colour, Sign); 7] = [
    (Verdict::Regression, Colour(0xd5, 0x5e, 0x00), Sign::Down),
    (Verdict::Improvement, Colour(0x00, 0x72, 0xb2), Sign::Up),
    (Verdict::Changed, Colour(0xe6, 0x9f, 0x00), Sign::Diamond),
    (Verdict::Same, Colour(0x6b, 0x6b, 0x6b), Sign::Circle),
    (Verdict::NoWorse, Colour(0x56, 0xb4, 0xe9), Sign::Square),
    (Verdict::Inconclusive, Colour(0x9a, 0x9a, 0x9a), Sign::Ring),
    (Verdict::Missing, Colour(0x9a, 0x9a, 0x9a), Sign::Cross),
];

/// One comparison.
struct Change {
    name: String,
    verdict: usize,
    ratio: f64,
    interval: Option<(f64, f64)>,
    p: Option<f64>,
    /// Iterations on the new side.
    n: Option<f64>,
}

pub fn draw(options: &Options) -> Result<Drawing, Error> {
    let columns = Columns {
        numbers: &[verdict::change_ratio],
        optional: &[
            verdict::ci_low_ratio,
            verdict::ci_high_ratio,
            verdict::p_value,
            verdict::confidence_level,
            verdict::limit_ratio,
            verdict::n,
        ],
        required_texts: &[verdict::case, verdict::verdict],
        texts: &[verdict::metric, verdict::case_id],
        // Each row is a comparison.
        along: &[verdict::case, verdict::case_id, verdict::metric, verdict::member, verdict::assertion],
        ..Columns::default()
    };
    let hint =
        "This picture shows what `plumb compare` found: plumb compare -f csv BASE NEW | plumb plot compare -o FILE";
    let ((records, changes), others) = options.with_same_scale(|input, _| {
        let records =
            Records::new(options, input, &options.selection, &columns).map_err(|error| error.with_hint(hint))?;
        let changes = changes(&records);
        Ok((records, changes))
    })?;
    records.nothing_to_draw(records.list.is_empty(), options, &[verdict::change_ratio])?;
    let others = others.map(|(_, changes)| changes).unwrap_or_default();
    let rows = changes.iter().map(|c| {
        let (low, high) = c.interval.unzip();
        cells![&c.name, VERDICTS[c.verdict].0.as_str(), c.ratio, low, high, c.p]
    });
    let header = [verdict::case, verdict::verdict, verdict::change_ratio, "low", "high", verdict::p_value];
    let table = Points::new(&header, rows);
    Ok(Drawing::new(figure(options, &records, &changes, &others), table, &records))
}

fn changes(records: &Records) -> Vec<Change> {
    let several = records.distinct(verdict::metric).len() > 1;
    let sides = records.distinct(verdict::assertion).len();
    records
        .list
        .iter()
        .filter_map(|record| {
            let mut name = records.labels.get(records.text(record, verdict::case)).to_owned();
            let member = records.text(record, verdict::member);
            if !member.is_empty() && !name.split(' ').any(|word| word == member) {
                name = format!("{name} · {member}");
            }
            let values = against(records.text(record, verdict::assertion));
            if sides > 1 && !values.is_empty() {
                name = format!("{name} · {values}");
            }
            if several {
                name = format!("{name} · {}", Quantity::of_column(records.text(record, verdict::metric)).label);
            }
            // Another verdict says of the change as little as this one.
            let verdict = records.text(record, verdict::verdict).parse().unwrap_or(Verdict::Inconclusive);
            let look = |verdict| VERDICTS.iter().position(|v| v.0 == verdict);
            let range = change_range(records.text(record, verdict::metric));
            let end = |column: &str| records.number(record, column).map(|end| range.clamp(end));
            Some(Change {
                name,
                verdict: look(verdict).or_else(|| look(Verdict::Inconclusive))?,
                ratio: records.number(record, verdict::change_ratio)?,
                interval: end(verdict::ci_low_ratio).zip(end(verdict::ci_high_ratio)),
                p: records.number(record, verdict::p_value),
                n: records.number(record, verdict::n),
            })
        })
        .collect()
}

/// The values that `compare --by` compared, `bbr against cubic`; else empty.
fn against(assertion: &str) -> &str {
    assertion
        .split_once(": ")
        .map(|(_, values)| values)
        .filter(|values| values.contains(" against "))
        .unwrap_or_default()
}

/// The changes that a metric can have: one that is never negative loses all of its value at most.
fn change_range(metric: &str) -> Range {
    if metrics::range_of(metric).low >= 0.0 { Range::at_least(-1.0) } else { Range::ANY }
}

fn figure(options: &Options, records: &Records, changes: &[Change], others: &[Change]) -> Figure {
    // The smallest change that counts, as the user set it. Smaller ones are noise.
    let smallest = records.list.iter().find_map(|r| records.number(r, verdict::limit_ratio));
    let ends = changes.iter().chain(others).flat_map(|c| {
        let (low, high) = c.interval.unwrap_or((c.ratio, c.ratio));
        [low, high, c.ratio]
    });
    // The axis has room for this range on both sides of zero, for comparison.
    let (low, high) = series::extent(ends.chain(smallest.into_iter().flat_map(|limit| [-limit, limit])));
    let metric = match records.distinct(verdict::metric)[..] {
        [metric] => format!("change of {}", Quantity::of_column(metric).label),
        _ => "change".to_owned(),
    };
    let range = records
        .distinct(verdict::metric)
        .into_iter()
        .map(change_range)
        .fold(Range::at_least(-1.0), |all, own| if own.low < all.low { own } else { all });
    let quantity = Quantity::new(metric.clone(), Some(Unit::Ratio)).within(range);
    let x = Axis::new(quantity, Spacing::Linear, low, high, false);
    let title = records.labels.title.clone().unwrap_or_else(|| "case".to_owned());
    let y = Axis::of_names(title, changes.iter().map(|c| c.name.clone()).collect());
    let mut layers = Vec::new();
    if let Some(limit) = smallest.filter(|l| *l > 0.0) {
        layers.push(Layer::Shade { from: -limit, to: limit, label: String::new() });
    }
    layers.push(Layer::Rule { at: 0.0, upright: true, label: String::new(), colour: Colour::MUTED });
    let mut legend = Vec::new();
    for (index, (word, colour, sign)) in VERDICTS.iter().enumerate() {
        let mine: Vec<(usize, &Change)> = changes.iter().enumerate().filter(|c| c.1.verdict == index).collect();
        if mine.is_empty() {
            continue;
        }
        let ranges = mine.iter().filter_map(|(row, c)| c.interval.map(|i| (*row as f64, i.0, i.1))).collect();
        layers.push(Layer::Intervals { ranges, sideways: true, colour: *colour });
        let points = mine.iter().map(|(row, c)| (c.ratio, *row as f64)).collect();
        layers.push(Layer::Marks { points, sign: *sign, colour: *colour, weight: 1.2 });
        let key = Key::Series { colour: *colour, sign: Some(*sign), dash: None };
        legend.push(Entry { label: format!("{word} ({})", mine.len()), key });
    }
    let mut notes = Vec::new();
    if let [one] = records.distinct(verdict::assertion)[..]
        && !against(one).is_empty()
    {
        notes.push(one.to_owned());
    }
    if let [one] = &legend[..] {
        // A legend with one entry is not drawn.
        notes.push(format!("all {}", one.label));
    }
    if changes.iter().all(|c| c.interval.is_none()) {
        notes.push("no intervals: too few iterations".to_owned());
    }
    if let Some(level) = records.list.iter().find_map(|r| records.number(r, verdict::confidence_level)) {
        notes.push(format!("change with {} interval", units::level(level)));
    }
    if changes.iter().any(|c| c.n.is_some()) {
        let n = series::numbers(changes.iter().filter_map(|c| c.n));
        notes.push(format!("{n} iterations of the new side"));
    }
    if let Some(limit) = smallest {
        notes.push(format!(
            "shaded: less than {} % counts as no change",
            schemas::columns::number((limit * 1e6).round() / 1e4)
        ));
    }
    Figure { notes, legend, ..Figure::new(options, records, &metric, x, y, layers) }
}
