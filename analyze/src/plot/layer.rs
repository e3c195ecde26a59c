//! The contents of a panel in the unit of the data, and how they are painted.

use super::{
    axis::Axis,
    canvas::{Anchor, Canvas, Colour, Point, Sign},
};

/// One element of a panel. Layers are painted in order.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A line; a point without a place on the axes interrupts it.
    Line {
        points: Vec<Point>,
        colour: Colour,
        /// Share of the normal width.
        weight: f64,
        /// Drawn and left out, in line widths.
        dash: Option<(f64, f64)>,
    },
    Marks {
        points: Vec<Point>,
        sign: Sign,
        colour: Colour,
        /// Share of the normal size.
        weight: f64,
    },
    /// Intervals with caps: along y at an x, or along x at a y.
    Intervals {
        /// Position, low, high.
        ranges: Vec<(f64, f64, f64)>,
        /// Whether the interval lies along x.
        sideways: bool,
        colour: Colour,
    },
    Box {
        /// A corner.
        from: Point,
        /// The opposite corner.
        to: Point,
        colour: Colour,
        outline: Option<Colour>,
    },
    /// The area between two curves.
    Area {
        /// x, low, high.
        points: Vec<(f64, f64, f64)>,
        colour: Colour,
    },
    /// A range of x over the whole height, with its name at the top.
    Shade {
        from: f64,
        to: f64,
        /// Empty where the name stands elsewhere.
        label: String,
    },
    /// A line across the panel, at an x (`upright`) or a y, with its name.
    Rule { at: f64, upright: bool, label: String, colour: Colour },
    /// A number in the middle of each cell of two axes of names, with its colour. Where one does not fit into its cell,
    /// all are left out, since a part of them would mislead.
    Numbers(Vec<(Point, Colour, String)>),
}

impl Layer {
    /// The colour of a shaded range.
    pub const SHADE: Colour = Colour(0xf0, 0xf0, 0xf0);
}

/// The place of a panel on a canvas: edges in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub x: &'a Axis,
    pub y: &'a Axis,
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Frame<'_> {
    /// Pixel of an x; `None` where the axis has no place for it.
    pub fn at_x(&self, x: f64) -> Option<f64> {
        self.x.position(x).map(|share| self.left + (self.right - self.left) * share)
    }

    /// Pixel of a y. Names run from the top down.
    pub fn at_y(&self, y: f64) -> Option<f64> {
        let share = self.y.position(y)?;
        let height = self.bottom - self.top;
        Some(if self.y.names.is_empty() { self.bottom - height * share } else { self.top + height * share })
    }

    fn at(&self, (x, y): Point) -> Option<Point> {
        let point = (self.at_x(x)?, self.at_y(y)?);
        // Half a pixel allows for rounding.
        let inside = point.0 >= self.left - 0.5
            && point.0 <= self.right + 0.5
            && point.1 >= self.top - 0.5
            && point.1 <= self.bottom + 0.5;
        inside.then_some(point)
    }

    /// Pixel of an end, and whether it is inside. An end beyond the axis (an interval below zero on a logarithmic axis)
    /// is moved to the edge.
    fn edge_y(&self, y: f64) -> (f64, bool) {
        let at = self.at_y(y).unwrap_or(self.bottom);
        (at.clamp(self.top, self.bottom), self.at_y(y).is_some() && at >= self.top - 0.5 && at <= self.bottom + 0.5)
    }

    fn edge_x(&self, x: f64) -> (f64, bool) {
        let at = self.at_x(x).unwrap_or(self.left);
        (at.clamp(self.left, self.right), self.at_x(x).is_some() && at >= self.left - 0.5 && at <= self.right + 0.5)
    }

    /// Paints the part under the grid.
    pub fn paint_background(&self, canvas: &mut Canvas, layer: &Layer) {
        if let Layer::Shade { from, to, .. } = layer {
            let (from, to) = (self.edge_x(*from).0, self.edge_x(*to).0);
            canvas.rectangle((from, self.top), (to, self.bottom), Layer::SHADE);
        }
    }

    /// Paints the part over the grid.
    pub fn paint(&self, canvas: &mut Canvas, layer: &Layer) {
        let metrics = canvas.metrics;
        let thin = if metrics.cells { 1.0 } else { (metrics.em * 0.075).max(1.0) };
        let small = metrics.size(0.8);
        match layer {
            Layer::Line { points, colour, weight, dash } => {
                let width = thin * 1.8 * weight;
                for piece in self.pieces(points) {
                    match dash {
                        Some((on, off)) => canvas.dashed(&piece, width, *colour, (on * thin * 1.5, off * thin * 1.5)),
                        None => canvas.line(piece, width, *colour),
                    }
                }
            }
            Layer::Marks { points, sign, colour, weight } => {
                let radius = metrics.em * 0.27 * weight;
                for at in points.iter().filter_map(|p| self.at(*p)) {
                    canvas.mark(at, radius, *sign, *colour);
                }
            }
            Layer::Intervals { ranges, sideways, colour } => {
                let cap = metrics.em * 0.26;
                for (at, low, high) in ranges {
                    let Some(place) = (if *sideways { self.at_y(*at) } else { self.at_x(*at) }) else { continue };
                    let ends = [*low, *high].map(|end| if *sideways { self.edge_x(end) } else { self.edge_y(end) });
                    let turned = |(across, along): Point| if *sideways { (along, across) } else { (across, along) };
                    canvas.line(ends.map(|(end, _)| turned((place, end))).to_vec(), thin * 1.2, *colour);
                    // Only ends inside the axis get a cap.
                    for (end, _) in ends.into_iter().filter(|(_, inside)| *inside) {
                        let bar = [(place - cap, end), (place + cap, end)].map(turned);
                        canvas.line(bar.to_vec(), thin * 1.2, *colour);
                    }
                }
            }
            Layer::Box { from, to, colour, outline } => {
                let corners = [(from.0, from.1), (to.0, from.1), (to.0, to.1), (from.0, to.1)]
                    .map(|(x, y)| (self.edge_x(x).0, self.edge_y(y).0));
                canvas.area(corners.to_vec(), *colour);
                if let Some(outline) = outline {
                    let mut around = corners.to_vec();
                    around.push(corners[0]);
                    canvas.line(around, thin, *outline);
                }
            }
            Layer::Area { points, colour } => {
                let upper = points.iter().filter_map(|(x, _, high)| Some((self.at_x(*x)?, self.edge_y(*high).0)));
                let lower = points.iter().rev().filter_map(|(x, low, _)| Some((self.at_x(*x)?, self.edge_y(*low).0)));
                canvas.area(upper.chain(lower).collect(), *colour);
            }
            Layer::Shade { from, to, label } => {
                let (from, to) = (self.edge_x(*from).0, self.edge_x(*to).0);
                if metrics.width(label, small) < to - from {
                    let at = (f64::midpoint(from, to), self.top + metrics.line(small) * 0.85);
                    canvas.text(at, Anchor::Middle, small, Colour::MUTED, label.clone());
                }
            }
            Layer::Rule { at, upright, label, colour } => {
                self.rule(canvas, (*at, *upright, *colour), label, thin, small);
            }
            Layer::Numbers(cells) => {
                let side = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(0.0, |(a, b)| (b - a).abs());
                let (width, height) =
                    (side(self.at_x(0.0), self.at_x(1.0)) * 0.96, side(self.at_y(0.0), self.at_y(1.0)) * 0.96);
                let widest = cells.iter().map(|(_, _, text)| metrics.width(text, small)).fold(0.0, f64::max);
                // Numbers that touch read as one.
                if widest + metrics.gap() > width || small > height {
                    return;
                }
                for (at, colour, text) in cells {
                    if let Some((x, y)) = self.at(*at) {
                        let base = y + if metrics.cells { 0.0 } else { small * 0.35 };
                        canvas.text((x, base), Anchor::Middle, small, *colour, text.clone());
                    }
                }
            }
        }
    }

    fn rule(
        &self,
        canvas: &mut Canvas,
        (at, upright, colour): (f64, bool, Colour),
        label: &str,
        thin: f64,
        small: f64,
    ) {
        let metrics = canvas.metrics;
        let (from, to) = if upright {
            let Some(x) = self.at_x(at).filter(|x| (self.left..=self.right).contains(x)) else { return };
            ((x, self.top), (x, self.bottom))
        } else {
            let Some(y) = self.at_y(at).filter(|y| (self.top..=self.bottom).contains(y)) else { return };
            ((self.left, y), (self.right, y))
        };
        canvas.dashed(&[from, to], thin, colour, (thin * 4.0, thin * 3.0));
        // The label goes beside the line at either end, where it covers the least; so rules come after other layers.
        let (gap, line, width) = (metrics.gap() * 0.7, metrics.line(small), metrics.width(label, small));
        let places = if upright {
            let (x, top, bottom) = (from.0, self.top + line * 0.85, self.bottom - gap);
            [(x + gap, top), (x - gap - width, top), (x + gap, bottom), (x - gap - width, bottom)]
        } else {
            let (y, left, right) = (from.1, self.left + gap * 1.4, self.right - gap * 1.4 - width);
            [(left, y - gap), (left, y + line * 0.85), (right, y - gap), (right, y + line * 0.85)]
        };
        let covered = |(x, y): Point| [x, y - small * 0.76, x + width, y + small * 0.2];
        let inside = |[left, top, right, bottom]: [f64; 4]| {
            left >= self.left && right <= self.right && top >= self.top && bottom <= self.bottom
        };
        // Two labels over each other cannot be read: the one that was there stays.
        let written: Vec<[f64; 4]> = canvas.text_boxes().into_iter().map(|(_, text)| text).collect();
        let free = |[left, top, right, bottom]: [f64; 4]| {
            written.iter().all(|[l, t, r, b]| right <= *l || *r <= left || bottom <= *t || *b <= top)
        };
        let place = places
            .into_iter()
            .filter(|at| inside(covered(*at)) && free(covered(*at)))
            .min_by(|a, b| canvas.crowd(covered(*a)).total_cmp(&canvas.crowd(covered(*b))));
        if let Some(at) = place {
            canvas.text(at, Anchor::Start, small, Colour::MUTED, label);
        }
    }

    /// The pieces of a line that have a place on the axes.
    fn pieces(&self, points: &[Point]) -> Vec<Vec<Point>> {
        points
            .split(|p| self.at(*p).is_none())
            .map(|piece| sparse(piece.iter().filter_map(|p| self.at(*p))))
            .filter(|piece| piece.len() > 1)
            .collect()
    }
}

/// Drops points closer than the eye can tell: histograms have thousands.
fn sparse(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    let mut last = None;
    for point in points {
        if kept.last().is_none_or(|k| (k.0 - point.0).abs().max((k.1 - point.1).abs()) > 0.4) {
            kept.push(point);
        }
        last = Some(point);
    }
    // The last point stays.
    if let Some(last) = last.filter(|l| kept.last() != Some(l)) {
        kept.push(last);
    }
    kept
}
