//! What stands inside the axes, in the unit of the data, and how it gets onto a canvas.

use super::{
    axis::Axis,
    canvas::{Anchor, Canvas, Colour, Point, Sign},
};

/// One thing inside a panel. Layers are painted in their order.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A line through points; a point without a place on the axes interrupts it.
    Line {
        /// x and y.
        points: Vec<Point>,
        /// Colour.
        colour: Colour,
        /// Width, as a share of the normal one.
        weight: f64,
        /// Dash: drawn and left out, in line widths.
        dash: Option<(f64, f64)>,
    },
    /// Data points.
    Marks {
        /// x and y.
        points: Vec<Point>,
        /// Their sign.
        sign: Sign,
        /// Colour.
        colour: Colour,
        /// Size, as a share of the normal one.
        weight: f64,
    },
    /// Intervals with caps: along y at an x, or along x at a y.
    Intervals {
        /// Position, low end, high end.
        ranges: Vec<(f64, f64, f64)>,
        /// Whether the interval lies along x.
        sideways: bool,
        /// Colour.
        colour: Colour,
    },
    /// A rectangle between two corners; with `outline`, in that colour.
    Box {
        /// One corner.
        from: Point,
        /// The other.
        to: Point,
        /// Colour.
        colour: Colour,
        /// Colour of its outline.
        outline: Option<Colour>,
    },
    /// The area between two curves: x, low, high.
    Area {
        /// x, low and high.
        points: Vec<(f64, f64, f64)>,
        /// Colour.
        colour: Colour,
    },
    /// A stretch of x over the whole height, with its name at the top.
    Shade {
        /// From x.
        from: f64,
        /// To x.
        to: f64,
        /// What it is; empty where the name stands elsewhere already.
        label: String,
    },
    /// A line across the panel at one x (`upright`) or one y, with its name.
    Rule {
        /// Where.
        at: f64,
        /// Whether it stands at an x.
        upright: bool,
        /// What it is.
        label: String,
    },
    /// A number in the middle of each cell of two axes of names, with its colour: all of them, or where one does not fit
    /// into its cell none, since some without the others would mislead.
    Numbers(Vec<(Point, Colour, String)>),
}

impl Layer {
    /// The colour behind a shaded stretch.
    pub const SHADE: Colour = Colour(0xf0, 0xf0, 0xf0);
}

/// The inside of the axes on a canvas.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The horizontal axis.
    pub x: &'a Axis,
    /// The vertical axis.
    pub y: &'a Axis,
    /// Left edge, pixels.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Frame<'_> {
    /// Where an x is; `None` where the axis has no place for it.
    #[must_use]
    pub fn at_x(&self, x: f64) -> Option<f64> {
        self.x.position(x).map(|share| self.left + (self.right - self.left) * share)
    }

    /// Where a y is. Names run from the top down, as one reads them.
    #[must_use]
    pub fn at_y(&self, y: f64) -> Option<f64> {
        let share = self.y.position(y)?;
        let height = self.bottom - self.top;
        Some(if self.y.names.is_empty() { self.bottom - height * share } else { self.top + height * share })
    }

    fn at(&self, (x, y): Point) -> Option<Point> {
        let point = (self.at_x(x)?, self.at_y(y)?);
        // Half a pixel outside is rounding.
        let inside = point.0 >= self.left - 0.5
            && point.0 <= self.right + 0.5
            && point.1 >= self.top - 0.5
            && point.1 <= self.bottom + 0.5;
        inside.then_some(point)
    }

    /// Where an end is, and whether that is inside: what lies beyond the axis ends at its edge (an interval may reach below
    /// zero where the axis is logarithmic).
    fn edge_y(&self, y: f64) -> (f64, bool) {
        let at = self.at_y(y).unwrap_or(self.bottom);
        (at.clamp(self.top, self.bottom), self.at_y(y).is_some() && at >= self.top - 0.5 && at <= self.bottom + 0.5)
    }

    fn edge_x(&self, x: f64) -> (f64, bool) {
        let at = self.at_x(x).unwrap_or(self.left);
        (at.clamp(self.left, self.right), self.at_x(x).is_some() && at >= self.left - 0.5 && at <= self.right + 0.5)
    }

    /// Paints what lies under the grid.
    pub fn paint_background(&self, canvas: &mut Canvas, layer: &Layer) {
        if let Layer::Shade { from, to, .. } = layer {
            let (from, to) = (self.edge_x(*from).0, self.edge_x(*to).0);
            canvas.rectangle((from, self.top), (to, self.bottom), Layer::SHADE);
        }
    }

    /// Paints what lies over the grid.
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
                    // An interval that goes on beyond the axis has no end there to be marked.
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
            Layer::Rule { at, upright, label } => self.rule(canvas, *at, *upright, label, thin, small),
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

    fn rule(&self, canvas: &mut Canvas, at: f64, upright: bool, label: &str, thin: f64, small: f64) {
        let metrics = canvas.metrics;
        let (from, to) = if upright {
            let Some(x) = self.at_x(at).filter(|x| (self.left..=self.right).contains(x)) else { return };
            ((x, self.top), (x, self.bottom))
        } else {
            let Some(y) = self.at_y(at).filter(|y| (self.top..=self.bottom).contains(y)) else { return };
            ((self.left, y), (self.right, y))
        };
        canvas.dashed(&[from, to], thin, Colour::MUTED, (thin * 4.0, thin * 3.0));
        // Beside the line at either end, wherever it lies on the least of what is drawn; whatever else there is comes first.
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
        let place = places
            .into_iter()
            .filter(|at| inside(covered(*at)))
            .min_by(|a, b| canvas.crowd(covered(*a)).total_cmp(&canvas.crowd(covered(*b))));
        if let Some(at) = place {
            canvas.text(at, Anchor::Start, small, Colour::MUTED, label);
        }
    }

    /// The stretches of a line that have a place on the axes.
    fn pieces(&self, points: &[Point]) -> Vec<Vec<Point>> {
        points
            .split(|p| self.at(*p).is_none())
            .map(|piece| sparse(piece.iter().filter_map(|p| self.at(*p))))
            .filter(|piece| piece.len() > 1)
            .collect()
    }
}

/// Points that differ by less than the eye sees are one: histograms have thousands.
fn sparse(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    let mut last = None;
    for point in points {
        if kept.last().is_none_or(|k| (k.0 - point.0).abs().max((k.1 - point.1).abs()) > 0.4) {
            kept.push(point);
        }
        last = Some(point);
    }
    // The end stays where it is.
    if let Some(last) = last.filter(|l| kept.last() != Some(l)) {
        kept.push(last);
    }
    kept
}
