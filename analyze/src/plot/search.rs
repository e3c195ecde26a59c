//! Probes of a search in a sweep: which held, and the answer.

use super::{
    axis::Axis,
    canvas::{Colour, Sign},
    layer::Layer,
    legend::{Entry, Key},
    palette,
    records::{Record, Records},
    series::Series,
};
use crate::table::Record as RecordKind;
use schemas::words::Search;

/// Marks the probes by what they showed, and the answer of each search with a rule. Nothing where no probes are drawn.
pub fn draw(
    records: &Records,
    (x, y): (&str, &str),
    x_axis: &Axis,
    series: &[Series],
    layers: &mut Vec<Layer>,
    legend: &mut Vec<Entry>,
    notes: &mut Vec<String>,
) {
    if records.kind != Some(RecordKind::Probe) {
        return;
    }
    if let [_] = series {
        outcomes(records, (x, y), layers, legend);
    }
    for answer in &records.answers {
        let (words, found) = words(records, answer);
        let name = if records.answers.len() > 1 { format!("{}: ", records.case_of(answer)) } else { String::new() };
        match records.number(answer, x).filter(|_| found) {
            Some(at) => {
                let label = format!("{name}{words} {}", x_axis.words(at));
                layers.push(Layer::Rule { at, upright: true, label: label.clone(), colour: Colour::MUTED });
                notes.push(label);
            }
            None => notes.push(format!("{name}{words}")),
        }
    }
}

/// The end of a search in words, and whether there is a load that held.
fn words(records: &Records, answer: &Record) -> (&'static str, bool) {
    match records.text(answer, "search").parse() {
        Ok(Search::Found) => (Search::HOLDS, true),
        Ok(Search::AtLeast) => ("holds at least up to", true),
        Ok(Search::Unreached) => ("holds as far as could be offered, up to", true),
        Ok(Search::Nothing) => ("nothing held", false),
        Ok(Search::Open | Search::Held | Search::Exceeded) | Err(_) => ("ended early; held so far up to", true),
    }
}

/// Signs for what the probes of one series showed, in place of the series' own.
fn outcomes(records: &Records, (x, y): (&str, &str), layers: &mut Vec<Layer>, legend: &mut Vec<Entry>) {
    const OUTCOMES: [(Search, &str, Sign, Colour); 3] = [
        (Search::Held, "held", Sign::Circle, Colour(0x00, 0x72, 0xb2)),
        (Search::Exceeded, "did not hold", Sign::Cross, Colour(0xd5, 0x5e, 0x00)),
        (Search::Unreached, "could not be offered", Sign::Ring, Colour(0x6b, 0x6b, 0x6b)),
    ];
    let outcome = |record: &Record| records.text(record, "search").parse::<Search>().ok();
    if !records.list.iter().any(|record| outcome(record).is_some()) {
        return;
    }
    layers.retain(|layer| !matches!(layer, Layer::Marks { .. }));
    for layer in layers.iter_mut() {
        if let Layer::Line { colour, .. } = layer {
            *colour = palette::look(0).colour.tint(0.4);
        }
    }
    legend.clear();
    for (search, label, sign, colour) in OUTCOMES {
        let mine = records.list.iter().filter(|record| outcome(record) == Some(search));
        let points: Vec<_> = mine.filter_map(|r| records.number(r, x).zip(records.number(r, y))).collect();
        if points.is_empty() {
            continue;
        }
        legend.push(Entry {
            label: format!("{label} ({})", points.len()),
            key: Key::Series { colour, sign: Some(sign), dash: None },
        });
        layers.push(Layer::Marks { points, sign, colour, weight: 1.2 });
    }
}
