//! A picture as a list of shapes in logical pixels. Figures draw on it; PNG, SVG and the terminal are painted from it.
//!
//! It is independent of files and backends, so that tests can check where texts stand and whether one leaves the
//! picture.

use super::font::Metrics;
use schemas::text::plain;

/// An opaque colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    pub const INK: Self = Self(0x22, 0x22, 0x22);
    /// For notes and footers: dark enough for print.
    pub const MUTED: Self = Self(0x5f, 0x5f, 0x5f);
    pub const AXIS: Self = Self(0x44, 0x44, 0x44);
    pub const GRID: Self = Self(0xe3, 0xe3, 0xe3);
    pub const PAPER: Self = Self(0xff, 0xff, 0xff);

    /// Mixes the colour with white: 1 is the colour itself, 0 is white. Unlike transparency, overlapping tints make no
    /// third colour that the legend lacks.
    #[must_use]
    pub fn tint(self, share: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 255 by construction"
        )]
        let mix = |c: u8| (255.0 - (255.0 - f64::from(c)) * share.clamp(0.0, 1.0)).round() as u8;
        Self(mix(self.0), mix(self.1), mix(self.2))
    }
}

/// A position in logical pixels from the upper left corner.
pub type Point = (f64, f64);

/// The point of a text that its position gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A text on one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// On the base line.
    pub at: Point,
    pub anchor: Anchor,
    /// Font size: pixels per em.
    pub em: f64,
    pub bold: bool,
    pub colour: Colour,
    pub text: String,
}

/// The sign of a data point. Shapes differ even without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Circle,
    Square,
    /// A filled triangle, point up.
    Up,
    Diamond,
    /// A filled triangle, point down.
    Down,
    Cross,
    Plus,
    Ring,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line {
        points: Vec<Point>,
        /// In pixels.
        width: f64,
        colour: Colour,
    },
    Area {
        /// The corners.
        points: Vec<Point>,
        colour: Colour,
    },
    Mark {
        /// The centre.
        at: Point,
        /// Half its extent in pixels.
        radius: f64,
        sign: Sign,
        colour: Colour,
    },
    Text(Text),
}

/// A picture: shapes in the order of painting.
#[derive(Clone, Debug)]
pub struct Canvas {
    /// In logical pixels.
    pub width: f64,
    /// In logical pixels.
    pub height: f64,
    pub metrics: Metrics,
    pub shapes: Vec<Shape>,
}

impl Canvas {
    pub fn new(width: f64, height: f64, metrics: Metrics) -> Self {
        Self { width, height, metrics, shapes: Vec::new() }
    }

    /// Draws a line; fewer than two points draw nothing.
    pub fn line(&mut self, points: Vec<Point>, width: f64, colour: Colour) {
        if points.len() > 1 {
            self.shapes.push(Shape::Line { points, width, colour });
        }
    }

    /// Draws a dashed line: `on` pixels drawn, `off` pixels left out.
    pub fn dashed(&mut self, points: &[Point], width: f64, colour: Colour, (on, off): (f64, f64)) {
        let mut left = on;
        let mut drawing = true;
        let mut dash: Vec<Point> = points.first().copied().into_iter().collect();
        for pair in points.windows(2) {
            let (mut from, to) = (pair[0], pair[1]);
            loop {
                let length = (to.0 - from.0).hypot(to.1 - from.1);
                if length <= left {
                    left -= length;
                    dash.push(to);
                    break;
                }
                let share = left / length;
                from = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
                dash.push(from);
                if drawing {
                    self.line(std::mem::take(&mut dash), width, colour);
                }
                dash = vec![from];
                drawing = !drawing;
                left = if drawing { on } else { off };
            }
        }
        if drawing {
            self.line(dash, width, colour);
        }
    }

    pub fn rectangle(&mut self, (x0, y0): Point, (x1, y1): Point, colour: Colour) {
        self.area(vec![(x0, y0), (x1, y0), (x1, y1), (x0, y1)], colour);
    }

    pub fn area(&mut self, points: Vec<Point>, colour: Colour) {
        if points.len() > 2 {
            self.shapes.push(Shape::Area { points, colour });
        }
    }

    pub fn mark(&mut self, at: Point, radius: f64, sign: Sign, colour: Colour) {
        self.shapes.push(Shape::Mark { at, radius, sign, colour });
    }

    pub fn text(&mut self, at: Point, anchor: Anchor, em: f64, colour: Colour, text: impl Into<String>) {
        // Names come from tables, and no document may hold control characters.
        let text = plain(&text.into());
        self.shapes.push(Shape::Text(Text { at, anchor, em, bold: false, colour, text }));
    }

    /// Measures how crowded a box (left, top, right, bottom) is: lines count by their length in it, data points and
    /// texts by their width. The grid does not count, since text may cover it.
    pub fn crowd(&self, within: [f64; 4]) -> f64 {
        let [left, top, right, bottom] = within;
        let drawn = self.shapes.iter().map(|shape| match shape {
            Shape::Line { colour, .. } if *colour == Colour::GRID => 0.0,
            Shape::Line { points, .. } => points.windows(2).map(|pair| length_within(pair[0], pair[1], within)).sum(),
            Shape::Mark { at: (x, y), radius, .. } => {
                let inside = *x + radius > left && *x - radius < right && *y + radius > top && *y - radius < bottom;
                if inside { 2.0 * radius } else { 0.0 }
            }
            Shape::Area { .. } | Shape::Text(_) => 0.0,
        });
        let written = self
            .text_boxes()
            .into_iter()
            .map(|(_, [l, t, r, b])| if t < bottom && b > top { (r.min(right) - l.max(left)).max(0.0) } else { 0.0 });
        drawn.chain(written).sum()
    }

    /// Every text with its box (left, top, right, bottom). Texts must stay inside the picture and must not overlap.
    pub fn text_boxes(&self) -> Vec<(&str, [f64; 4])> {
        let texts = self.shapes.iter().filter_map(|shape| match shape {
            Shape::Text(text) => Some(text),
            _ => None,
        });
        texts
            .map(|t| {
                let width = self.metrics.width(&t.text, t.em);
                let left = match t.anchor {
                    Anchor::Start => t.at.0,
                    Anchor::Middle => t.at.0 - width / 2.0,
                    Anchor::End => t.at.0 - width,
                };
                (t.text.as_str(), [left, t.at.1 - t.em * 0.76, left + width, t.at.1 + t.em * 0.2])
            })
            .collect()
    }
}

/// The length of the part of a line that lies in a box (Liang and Barsky's clipping).
fn length_within((x, y): Point, (to_x, to_y): Point, [left, top, right, bottom]: [f64; 4]) -> f64 {
    let (dx, dy) = (to_x - x, to_y - y);
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (along, room) in [(-dx, x - left), (dx, right - x), (-dy, y - top), (dy, bottom - y)] {
        if along < 0.0 {
            from = from.max(room / along);
        } else if along > 0.0 {
            to = to.min(room / along);
        } else if room < 0.0 {
            return 0.0;
        }
    }
    (to - from).max(0.0) * dx.hypot(dy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_what_lies_within() {
        let mut canvas = Canvas::new(100.0, 100.0, Metrics::font(12.0));
        let within = [10.0, 10.0, 20.0, 20.0];
        canvas.line(vec![(0.0, 15.0), (100.0, 15.0)], 1.0, Colour::GRID);
        canvas.line(vec![(0.0, 5.0), (100.0, 5.0)], 1.0, Colour::INK);
        assert!(canvas.crowd(within).abs() < 1e-9);
        canvas.line(vec![(0.0, 15.0), (15.0, 15.0), (15.0, 100.0)], 1.0, Colour::INK);
        assert!((canvas.crowd(within) - 10.0).abs() < 1e-9);
        canvas.mark((9.0, 9.0), 2.0, Sign::Circle, Colour::INK);
        assert!((canvas.crowd(within) - 14.0).abs() < 1e-9);
        canvas.text((18.0, 18.0), Anchor::Start, 12.0, Colour::INK, "mm");
        assert!((canvas.crowd(within) - 16.0).abs() < 1e-9);
    }

    #[test]
    fn dashes_cover_on_over_on_plus_off_of_the_line() {
        let mut canvas = Canvas::new(100.0, 100.0, Metrics::font(12.0));
        canvas.dashed(&[(0.0, 0.0), (45.0, 0.0), (90.0, 0.0)], 1.0, Colour::INK, (6.0, 3.0));
        let drawn: f64 = canvas
            .shapes
            .iter()
            .map(|s| match s {
                Shape::Line { points, .. } => points.windows(2).map(|p| p[1].0 - p[0].0).sum(),
                _ => 0.0,
            })
            .sum();
        assert!((drawn - 60.0).abs() < 1e-6, "{drawn}");
    }

    #[test]
    fn a_tint_is_opaque_and_lighter() {
        assert_eq!(Colour(0, 0, 0).tint(1.0), Colour(0, 0, 0));
        assert_eq!(Colour(0, 0, 0).tint(0.0), Colour::PAPER);
        assert_eq!(Colour(0, 100, 200).tint(0.5), Colour(128, 178, 228));
    }
}
