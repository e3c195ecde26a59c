//! Legends: the names of series and their looks.

use super::{
    canvas::{Anchor, Canvas, Colour, Sign},
    font::Metrics,
};

/// The look of a series in a legend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Key {
    /// A line with a sign on it.
    Series {
        colour: Colour,
        /// `None` where points have no sign.
        sign: Option<Sign>,
        dash: Option<(f64, f64)>,
    },
    Patch(Colour),
    /// A sign alone.
    Mark(Sign, Colour),
    /// A patch with a stroke from corner to corner.
    Struck {
        patch: Colour,
        stroke: Colour,
    },
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub label: String,
    pub key: Key,
}

/// Number of series from which on the legend stands beside the panels instead of above them.
pub(super) const BESIDE: usize = 6;

/// The names, shortened to the room.
fn labels(legend: &[Entry], metrics: &Metrics, size: f64, room: f64) -> Vec<String> {
    metrics.shorten_all(&legend.iter().map(|e| e.label.as_str()).collect::<Vec<_>>(), size, room)
}

/// Draws a legend in rows above the panels and returns where it ends.
pub(super) fn above(legend: &[Entry], canvas: &mut Canvas, margin: f64, top: f64) -> f64 {
    if legend.len() < 2 {
        return top;
    }
    let metrics = canvas.metrics;
    let size = metrics.size(0.9);
    let room = canvas.width - 2.0 * margin;
    let key = key_width(&metrics);
    let (mut x, mut y) = (margin, top + metrics.line(size));
    for (entry, label) in legend.iter().zip(labels(legend, &metrics, size, room - key)) {
        let width = key + metrics.width(&label, size) + metrics.gap() * 3.5;
        if x > margin && x + width - metrics.gap() * 3.5 > canvas.width - margin {
            x = margin;
            y += metrics.line(size);
        }
        let base = y - metrics.line(size) * 0.28;
        draw_entry(canvas, entry.key, label, (x, base), size);
        x += width;
    }
    y + if metrics.cells { 0.0 } else { metrics.em * 0.35 }
}

/// Draws a legend at the right and returns its width.
pub(super) fn beside(legend: &[Entry], canvas: &mut Canvas, right: f64, top: f64, bottom: f64) -> f64 {
    let metrics = canvas.metrics;
    let size = metrics.size(0.86);
    let key = key_width(&metrics);
    let room = canvas.width * 0.3;
    let labels = labels(legend, &metrics, size, room - key);
    let widest = labels.iter().map(|l| metrics.width(l, size)).fold(0.0, f64::max);
    let left = right - key - widest;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of lines")]
    let lines = (((bottom - top) / metrics.line(size)).floor().max(1.0)) as usize;
    let shown = if legend.len() > lines { lines.saturating_sub(1) } else { legend.len() };
    let mut y = top;
    for (entry, label) in legend.iter().zip(labels).take(shown) {
        y += metrics.line(size);
        draw_entry(canvas, entry.key, label, (left, y - metrics.line(size) * 0.28), size);
    }
    if shown < legend.len() {
        let rest = format!("… and {} more", legend.len() - shown);
        let at = (left, y + metrics.line(size) * 0.72);
        canvas.text(at, Anchor::Start, size, Colour::MUTED, metrics.shorten(&rest, size, key + widest));
    }
    key + widest + metrics.gap() * 2.0
}

fn key_width(metrics: &Metrics) -> f64 {
    if metrics.cells { 6.0 } else { metrics.em * 2.1 }
}

fn draw_entry(canvas: &mut Canvas, key: Key, label: String, (x, base): (f64, f64), size: f64) {
    let metrics = canvas.metrics;
    let width = key_width(&metrics) - metrics.gap();
    let middle = base - if metrics.cells { 0.0 } else { size * 0.3 };
    let thin = if metrics.cells { 1.0 } else { (metrics.em * 0.075).max(1.0) };
    match key {
        Key::Series { colour, sign, dash } => {
            let line = [(x, middle), (x + width, middle)];
            match dash {
                // Half as long as in the panels: the sign would cover the only gap of a short key.
                Some((on, off)) => canvas.dashed(&line, thin * 1.8, colour, (on * thin * 0.75, off * thin * 0.75)),
                None => canvas.line(line.to_vec(), thin * 1.8, colour),
            }
            if let Some(sign) = sign {
                canvas.mark((x + width / 2.0, middle), metrics.em * 0.27, sign, colour);
            }
        }
        Key::Patch(colour) => {
            let half = if metrics.cells { 1.5 } else { size * 0.36 };
            canvas.rectangle((x, middle - half), (x + width, middle + half), colour);
        }
        Key::Mark(sign, colour) => canvas.mark((x + width / 2.0, middle), metrics.em * 0.27, sign, colour),
        Key::Struck { patch, stroke } => {
            let half = if metrics.cells { 1.5 } else { size * 0.36 };
            canvas.rectangle((x, middle - half), (x + width, middle + half), patch);
            canvas.line(vec![(x, middle + half), (x + width, middle - half)], thin, stroke);
        }
    }
    canvas.text((x + key_width(&metrics), base), Anchor::Start, size, Colour::INK, label);
}
