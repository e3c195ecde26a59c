//! A series as a small drawing in a row of a table.

use crate::{history::told::Told, plot::trend::condensed};
use std::fmt::Write as _;

/// Most points of the line.
const POINTS: usize = 60;

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;

/// The line of the values, with a stroke at each finding in the tone of its word. `class` gives the tone.
pub fn svg(told: &Told, class: impl Fn(usize) -> &'static str) -> String {
    let points = &told.series.points;
    let places: Vec<usize> = (0..points.len()).collect();
    let dots = condensed(points, &places, &[0], POINTS);
    let values = || dots.iter().map(|dot| dot.centre);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let x = |place: f64| place / (points.len().max(2) - 1) as f64 * WIDTH;
    let y = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        HEIGHT - 1.0 - share * (HEIGHT - 2.0)
    };
    let mut out = format!(
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    );
    for (i, finding) in told.trend.findings.iter().enumerate() {
        let at = x((finding.at as f64 - 0.5).max(0.0));
        _ = write!(out, "<path class=\"{}\" d=\"M{at:.1} 0V{HEIGHT}\"/>", class(i));
    }
    out.push_str("<path d=\"");
    for (i, dot) in dots.iter().enumerate() {
        _ = write!(out, "{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, x(dot.x), y(dot.centre));
    }
    if let [one] = &dots[..] {
        // A single run is a short line.
        _ = write!(out, "M{:.1} {:.1}h4", x(one.x), y(one.centre));
    }
    out.push_str("\"/></svg>");
    out
}
