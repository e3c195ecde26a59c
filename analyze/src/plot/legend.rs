//! Legends: the names of series, their colours and signs.

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

// Colours and signs of series. They stay different for people with colour blindness and on a black and white printer.

/// The palette of Okabe and Ito (2008) without yellow, which is hard to see on white. Black comes last.
const COLOURS: [Colour; 7] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0x00, 0x00, 0x00),
];

/// Eight signs for seven colours: pairs repeat after 56 series.
const SIGNS: [Sign; 8] =
    [Sign::Circle, Sign::Square, Sign::Up, Sign::Diamond, Sign::Down, Sign::Cross, Sign::Plus, Sign::Ring];

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub colour: Colour,
    pub sign: Sign,
    /// Solid for the first seven series, then other dashes, since colours repeat.
    pub dash: Option<(f64, f64)>,
}

impl Look {
    /// The look in the legend.
    pub fn key(self) -> Key {
        Key::Series { colour: self.colour, sign: Some(self.sign), dash: self.dash }
    }
}

/// The look of a series by its index.
pub fn look(index: usize) -> Look {
    let dash = match (index / COLOURS.len()) % 4 {
        0 => None,
        1 => Some((6.0, 3.0)),
        2 => Some((2.0, 2.0)),
        _ => Some((10.0, 3.0)),
    };
    Look { colour: COLOURS[index % COLOURS.len()], sign: SIGNS[index % SIGNS.len()], dash }
}

/// Fill colour of a series by its index, with a `share` of its own colour. Fills get paler each time that colours
/// repeat, since filled shapes have neither sign nor dash.
pub fn fill(index: usize, share: f64) -> Colour {
    let again = i32::try_from(index / COLOURS.len()).unwrap_or(i32::MAX);
    look(index).colour.tint(share * 0.5_f64.powi(again))
}

/// A colour for a share from 0 to 1, from dark blue to yellow. Lightness grows evenly, and the scale reads the same
/// with any colour vision (the stops are close to those of "cividis", Nuñez, Anderton and Renslow 2018).
pub fn scale(share: f64) -> Colour {
    const STOPS: [(u8, u8, u8); 9] = [
        (0, 32, 77),
        (0, 52, 110),
        (58, 71, 107),
        (87, 92, 109),
        (112, 113, 115),
        (138, 134, 120),
        (166, 157, 117),
        (201, 186, 103),
        (255, 234, 70),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
    let low = (at as usize).min(STOPS.len() - 2);
    let rest = at - low as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two bytes")]
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * rest).round() as u8;
    let (a, b) = (STOPS[low], STOPS[low + 1]);
    Colour(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Ink or paper, whichever is readable on the colour.
pub fn readable_on(colour: Colour) -> Colour {
    let luminance = 0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2);
    if luminance > 130.0 { Colour::INK } else { Colour::PAPER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_six_series_look_different() {
        for a in 0..56 {
            for b in 0..a {
                assert_ne!(look(a), look(b), "{a} and {b}");
            }
        }
    }

    #[test]
    fn fills_differ_where_colours_repeat() {
        for a in 0..21 {
            for b in 0..a {
                assert_ne!(fill(a, 0.85), fill(b, 0.85), "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_scale_gets_lighter_all_the_way() {
        let light = |c: Colour| 0.299 * f64::from(c.0) + 0.587 * f64::from(c.1) + 0.114 * f64::from(c.2);
        for step in 0..100 {
            assert!(light(scale(f64::from(step + 1) / 100.0)) >= light(scale(f64::from(step) / 100.0)) - 0.6);
        }
    }
}
