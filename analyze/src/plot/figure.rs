//! A figure: title, axes, legend and footer around panels of layers. The layout keeps texts inside the picture and
//! apart.

use super::{
    axis::{Axis, Tick},
    canvas::{Anchor, Canvas, Colour, Shape, Text},
    font::Metrics,
    layer::{Frame, Layer},
    legend::{self, Entry},
    options::{Options, Size},
    quantity::Spacing,
    records::Records,
    series::Series,
};
use crate::{
    error::Error,
    table::{cells, write_csv},
};
use schemas::text::plain;
use std::io::Write;

/// A vertical axis and layers. Panels of one figure share the x axis.
#[derive(Clone, Debug)]
pub struct Panel {
    pub y: Axis,
    /// In the order of painting.
    pub layers: Vec<Layer>,
    /// Number of boxes or bars at each name of the vertical axis.
    pub rows_per_name: usize,
    /// Follows the title of the axis; may be empty.
    pub remark: &'static str,
}

/// Layers over a horizontal axis of their own, to the right of a figure's only panel and on its vertical axis.
#[derive(Clone, Debug)]
pub struct Column {
    pub x: Axis,
    /// In the order of painting.
    pub layers: Vec<Layer>,
}

#[derive(Clone, Debug)]
pub struct Figure {
    pub title: String,
    /// Facts for the reader: the meaning of intervals, what was left out.
    pub notes: Vec<String>,
    /// The horizontal axis of all panels.
    pub x: Axis,
    pub panels: Vec<Panel>,
    pub beside: Vec<Column>,
    /// Drawn from two entries on: one alone repeats the title.
    pub legend: Vec<Entry>,
    /// The colour scale of a heat map.
    pub colours: Option<Axis>,
    /// Run, hosts, date, iterations.
    pub footer: Vec<String>,
}

impl Figure {
    /// A figure of one panel, without notes and legend. `what` is drawn; it becomes the title unless the options have one.
    pub fn new(options: &Options, records: &Records, what: &str, x: Axis, y: Axis, layers: Vec<Layer>) -> Self {
        let default_title = || {
            if let Some(subject) = records.subject() {
                return format!("{subject}: {what}");
            }
            let mut letters = what.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        };
        Self {
            title: options.paper.title.clone().unwrap_or_else(default_title),
            notes: Vec::new(),
            x,
            panels: vec![Panel { y, layers, rows_per_name: 1, remark: "" }],
            beside: Vec::new(),
            legend: Vec::new(),
            colours: None,
            footer: if options.paper.no_annotation { Vec::new() } else { records.footer() },
        }
    }

    /// The default size. Each name along the vertical axis gets a row.
    pub fn natural_size(&self) -> Size {
        let rows = self.panels.iter().map(|p| p.y.names.len() * p.rows_per_name.max(1)).max().unwrap_or(0);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let height = match &self.colours {
            // Every second name of a heat map has room.
            Some(_) => rows.saturating_mul(14).min(3800).saturating_add(220).max(700),
            // Small panels below each other.
            None if rows == 0 && self.panels.len() > 2 => {
                u32::try_from(self.panels.len()).unwrap_or(u32::MAX).saturating_mul(200).min(3800) + 200
            }
            None if rows == 0 => 700,
            None => rows.saturating_mul(34).clamp(190, 3800) + 210,
        };
        Size { width: 1200, height }
    }

    /// Lays the figure out.
    pub fn draw(&self, width: f64, height: f64, metrics: Metrics) -> Canvas {
        let mut canvas = Canvas::new(width, height, metrics);
        let margin = if metrics.cells { 0.0 } else { metrics.em * 0.9 };
        let mut top = self.heading(&mut canvas, margin);
        let mut bottom = self.foot(&mut canvas, margin);
        let beside = self.legend.len() >= legend::BESIDE;
        if !beside {
            top = legend::above(&self.legend, &mut canvas, margin, top);
        }
        let tick = metrics.size(0.86);
        let tick_length = if metrics.cells { 0.0 } else { metrics.em * 0.35 };
        // In a terminal the axis is the lowest row of dots in the row above its labels.
        bottom -= 2.0 * metrics.line(tick) + tick_length + if metrics.cells { 1.0 } else { metrics.em * 0.45 };

        // The title of a panel stands above it.
        let above = metrics.line(metrics.size(0.92));
        let first = top + above + if metrics.cells { 0.0 } else { metrics.em * 0.25 };
        let mut right = width - margin;
        if beside {
            right -= legend::beside(&self.legend, &mut canvas, right, top, bottom);
        } else if let Some(colours) = &self.colours {
            right -= colour_bar(&mut canvas, colours, right, first, bottom);
        }

        let each = (bottom - top) / self.panels.len().max(1) as f64;
        let frames: Vec<(f64, f64)> = (0..self.panels.len())
            .map(|i| {
                let from = first + each * i as f64;
                let to = if i + 1 == self.panels.len() { bottom } else { top + each * (i + 1) as f64 - above * 0.35 };
                (from, to.max(from + 1.0))
            })
            .collect();
        let y_ticks: Vec<Vec<Tick>> = self
            .panels
            .iter()
            .zip(&frames)
            .map(|(panel, (from, to))| vertical_ticks(&panel.y, to - from, metrics.line(tick) * 1.15))
            .collect();
        let names_room = width * 0.36;
        let labels = y_ticks.iter().flatten().map(|t| metrics.width(&t.label, tick).min(names_room));
        let left = margin + labels.fold(0.0, f64::max) + tick_length + metrics.gap();

        let edge = if beside || self.colours.is_some() { right + metrics.gap() } else { width - margin * 0.5 };
        let columns = self.columns(left, right, edge, &metrics);
        for ((panel, (from, to)), ticks) in self.panels.iter().zip(&frames).zip(&y_ticks) {
            let is_last = (*to - bottom).abs() < 0.5;
            let style = TickStyle { em: tick, length: tick_length, names_room };
            for (number, column) in columns.iter().enumerate() {
                let Span { x, layers, left, right, ticks: x_ticks } = column;
                let frame = Frame { x, y: &panel.y, left: *left, top: *from, right: *right, bottom: *to };
                // The first column's names are those of all.
                let ticks = if number == 0 { ticks.as_slice() } else { &[] };
                let layers = layers.unwrap_or(&panel.layers);
                for layer in layers {
                    frame.paint_background(&mut canvas, layer);
                }
                grid(&mut canvas, &frame, x_ticks, ticks);
                for layer in layers {
                    frame.paint(&mut canvas, layer);
                }
                edges(&mut canvas, &frame, x_ticks, ticks, style, is_last);
            }
            let end = columns.first().map_or(right, |first| first.right);
            let title = metrics.shorten(&(panel.y.title() + panel.remark), metrics.size(0.92), end - margin);
            let at = (margin, from - if metrics.cells { 2.0 } else { metrics.em * 0.55 });
            canvas.text(at, Anchor::Start, metrics.size(0.92), Colour::INK, title);
        }
        let alone = columns.len() == 1;
        for Span { x, left, right, .. } in &columns {
            let room = if alone { width - margin * 2.0 } else { right - left };
            let title = metrics.shorten(&x.title(), metrics.size(0.92), room);
            let half = metrics.width(&title, metrics.size(0.92)) / 2.0;
            let middle = f64::midpoint(*left, *right).min(width - margin - half).max(margin + half);
            let down = tick_length + if metrics.cells { 7.0 } else { metrics.line(tick) * 1.92 };
            canvas.text((middle, bottom + down), Anchor::Middle, metrics.size(0.92), Colour::INK, title);
        }
        canvas
    }

    /// The columns between two edges, of equal width. The last label may reach as far as `edge`.
    fn columns(&self, left: f64, right: f64, edge: f64, metrics: &Metrics) -> Vec<Span<'_>> {
        let em = metrics.size(0.86);
        let gap = if metrics.cells { 8.0 } else { metrics.em * 2.5 };
        let count = 1.0 + self.beside.len() as f64;
        let of = |column: usize, right: f64, x, layers| {
            let width = (right - left - gap * (count - 1.0)) / count;
            let left = left + (width + gap) * column as f64;
            Span { x, layers, left, right: left + width, ticks: horizontal_ticks(x, width, metrics, em) }
        };
        let all = |right: f64| -> Vec<Span<'_>> {
            let others = (1..).zip(&self.beside);
            let others = others.map(|(number, column)| of(number, right, &column.x, Some(column.layers.as_slice())));
            std::iter::once(of(0, right, &self.x, None)).chain(others).collect()
        };
        let beyond = |columns: &[Span<'_>]| {
            let last = columns.last()?;
            let label = last.ticks.iter().filter(|t| !t.label.is_empty()).max_by(|a, b| a.value.total_cmp(&b.value))?;
            let half = metrics.width(&label.label, em) / 2.0;
            let share = last.x.position(label.value).unwrap_or(0.0);
            Some(last.left + (last.right - last.left) * share + half - edge).filter(|beyond| *beyond > 0.0)
        };
        // The last label may reach beyond the axis; then the axes get shorter. A shorter axis may have other labels.
        let (mut columns, mut right) = (all(right), right);
        for _ in 0..3 {
            let Some(beyond) = beyond(&columns) else { break };
            right -= beyond;
            columns = all(right);
        }
        columns
    }

    /// Title and notes; returns where they end.
    fn heading(&self, canvas: &mut Canvas, margin: f64) -> f64 {
        let metrics = canvas.metrics;
        let room = canvas.width - 2.0 * margin;
        let mut top = margin;
        let size = metrics.size(1.15);
        if !self.title.is_empty() {
            // Bold letters are about a tenth wider than the measured ones.
            let text = metrics.shorten(&plain(&self.title), size, room * if metrics.cells { 1.0 } else { 0.88 });
            top += metrics.line(size);
            let at = (margin, top - metrics.line(size) * 0.3);
            canvas.shapes.push(Shape::Text(Text {
                at,
                anchor: Anchor::Start,
                em: size,
                bold: true,
                colour: Colour::INK,
                text,
            }));
        }
        let size = metrics.size(0.84);
        let truncated = std::iter::once(&self.x)
            .chain(self.beside.iter().map(|column| &column.x))
            .chain(self.panels.iter().map(|p| &p.y))
            .filter(|axis| axis.truncated)
            .map(|axis| format!("the {} axis does not start at zero", axis.quantity.label));
        let mut truncated: Vec<String> = truncated.collect();
        if truncated.len() > 1 {
            truncated = vec![format!("{} axes do not start at zero", truncated.len())];
        }
        let notes: Vec<String> = self.notes.iter().cloned().chain(truncated).collect();
        if !notes.is_empty() {
            for line in metrics.wrap(&notes.join(" · "), size, room) {
                top += metrics.line(size);
                canvas.text((margin, top - metrics.line(size) * 0.25), Anchor::Start, size, Colour::MUTED, line);
            }
        }
        top + if metrics.cells { 0.0 } else { metrics.em * 0.45 }
    }

    /// The footer; returns where it begins.
    fn foot(&self, canvas: &mut Canvas, margin: f64) -> f64 {
        let metrics = canvas.metrics;
        let mut bottom = canvas.height - if metrics.cells { 0.0 } else { margin * 0.7 };
        if self.footer.is_empty() {
            return bottom;
        }
        let size = metrics.size(0.72).max(if metrics.cells { 0.0 } else { 9.0 });
        for line in metrics.wrap(&self.footer.join(" · "), size, canvas.width - 2.0 * margin).iter().rev() {
            canvas.text((margin, bottom - metrics.line(size) * 0.25), Anchor::Start, size, Colour::MUTED, line);
            bottom -= metrics.line(size);
        }
        bottom
    }
}

/// A column's place: its axis, its layers (`None`: those of each panel), its edges and its ticks.
struct Span<'a> {
    x: &'a Axis,
    layers: Option<&'a [Layer]>,
    left: f64,
    right: f64,
    ticks: Vec<Tick>,
}

fn vertical_ticks(axis: &Axis, length: f64, line: f64) -> Vec<Tick> {
    let place = |value: f64| axis.position(value).unwrap_or(0.0) * length;
    if axis.spacing == Spacing::Names {
        return thinned(axis, |ticks| {
            ticks.windows(2).all(|w| (place(w[1].value) - place(w[0].value)).abs() >= line * 0.85)
        });
    }
    axis.ticks(|ticks| ticks.windows(2).all(|w| (place(w[1].value) - place(w[0].value)).abs() >= line * 1.35))
}

fn horizontal_ticks(axis: &Axis, length: f64, metrics: &Metrics, em: f64) -> Vec<Tick> {
    let place = |tick: &Tick| axis.position(tick.value).unwrap_or(0.0) * length;
    let gap = metrics.gap() * 1.6;
    let fits = |ticks: &[Tick]| {
        ticks.windows(2).all(|w| {
            let halves = f64::midpoint(metrics.width(&w[0].label, em), metrics.width(&w[1].label, em));
            place(&w[1]) - place(&w[0]) >= halves + gap
        })
    };
    match axis.spacing {
        Spacing::Names => thinned(axis, fits),
        Spacing::Nines => {
            // The ticks are fixed: labels that would touch the previous one are left out.
            let mut kept: Vec<Tick> = Vec::new();
            for tick in axis.ticks(|_| true) {
                if kept.last().is_none_or(|last| fits(&[last.clone(), tick.clone()])) {
                    kept.push(tick);
                }
            }
            kept
        }
        _ => axis.ticks(fits),
    }
}

/// Every name, or every second, third …, until they fit.
fn thinned(axis: &Axis, fits: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
    let all = axis.ticks(|_| true);
    (1..=all.len().max(1))
        .map(|every| all.iter().step_by(every).cloned().collect::<Vec<_>>())
        .find(|ticks| fits(ticks))
        .unwrap_or_default()
}

fn grid(canvas: &mut Canvas, frame: &Frame<'_>, x_ticks: &[Tick], y_ticks: &[Tick]) {
    if canvas.metrics.cells {
        return;
    }
    let thin = (canvas.metrics.em * 0.055).max(0.75);
    for y in labelled(y_ticks).filter(|_| frame.y.names.is_empty()).filter_map(|t| frame.at_y(t.value)) {
        canvas.line(vec![(frame.left, y), (frame.right, y)], thin, Colour::GRID);
    }
    for x in labelled(x_ticks).filter(|_| frame.x.names.is_empty()).filter_map(|t| frame.at_x(t.value)) {
        canvas.line(vec![(x, frame.top), (x, frame.bottom)], thin, Colour::GRID);
    }
}

fn labelled(ticks: &[Tick]) -> impl Iterator<Item = &Tick> {
    ticks.iter().filter(|t| !t.label.is_empty())
}

#[derive(Clone, Copy)]
struct TickStyle {
    em: f64,
    length: f64,
    names_room: f64,
}

/// Draws the axes with ticks and labels.
fn edges(
    canvas: &mut Canvas,
    frame: &Frame<'_>,
    x_ticks: &[Tick],
    y_ticks: &[Tick],
    style: TickStyle,
    with_x_labels: bool,
) {
    let metrics = canvas.metrics;
    let thin = if metrics.cells { 1.0 } else { (metrics.em * 0.07).max(1.0) };
    canvas.line(
        vec![(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)],
        thin,
        Colour::AXIS,
    );
    let labels: Vec<&str> = y_ticks.iter().map(|t| t.label.as_str()).collect();
    for (tick, label) in y_ticks.iter().zip(metrics.shorten_all(&labels, style.em, style.names_room)) {
        let Some(y) = frame.at_y(tick.value) else { continue };
        let length = if tick.label.is_empty() { style.length * 0.5 } else { style.length };
        canvas.line(vec![(frame.left - length, y), (frame.left, y)], thin, Colour::AXIS);
        if !tick.label.is_empty() {
            let base = y + if metrics.cells { 0.0 } else { style.em * 0.36 };
            let at = (frame.left - style.length - metrics.gap() * 0.7, base);
            canvas.text(at, Anchor::End, style.em, Colour::INK, label);
        }
    }
    for tick in x_ticks {
        let Some(x) = frame.at_x(tick.value) else { continue };
        let length = if tick.label.is_empty() { style.length * 0.5 } else { style.length };
        canvas.line(vec![(x, frame.bottom), (x, frame.bottom + length)], thin, Colour::AXIS);
        if with_x_labels && !tick.label.is_empty() {
            let down = style.length + if metrics.cells { 3.0 } else { metrics.line(style.em) * 0.8 };
            canvas.text((x, frame.bottom + down), Anchor::Middle, style.em, Colour::INK, tick.label.clone());
        }
    }
    if frame.y.truncated {
        broken(canvas, (frame.left, frame.bottom - metrics.em * 0.75), false);
    }
    if frame.x.truncated {
        broken(canvas, (frame.left + metrics.em * 0.75, frame.bottom), true);
    }
}

/// Marks an axis that does not start at zero with two strokes.
fn broken(canvas: &mut Canvas, (x, y): (f64, f64), sideways: bool) {
    if canvas.metrics.cells {
        return;
    }
    let em = canvas.metrics.em;
    let thin = (em * 0.07).max(1.0);
    for step in [-0.14, 0.14] {
        let (x, y) = if sideways { (x + step * em, y) } else { (x, y + step * em) };
        let (dx, dy) = if sideways { (0.16 * em, -0.34 * em) } else { (0.34 * em, -0.16 * em) };
        canvas.line(vec![(x - dx, y - dy), (x + dx, y + dy)], thin, Colour::AXIS);
    }
}

/// Draws the colour scale at the right and returns its width.
fn colour_bar(canvas: &mut Canvas, axis: &Axis, right: f64, top: f64, bottom: f64) -> f64 {
    let metrics = canvas.metrics;
    let em = metrics.size(0.86);
    let bar = if metrics.cells { 4.0 } else { metrics.em };
    let height = bottom - top;
    let ticks = vertical_ticks(axis, height, metrics.line(em) * 1.15);
    let widest = labelled(&ticks).map(|t| metrics.width(&t.label, em)).fold(0.0, f64::max);
    let title = metrics.shorten(&axis.title(), em, canvas.width * 0.3);
    let left = right - (bar + metrics.gap() + widest).max(metrics.width(&title, em) * 0.5);
    let steps = 64;
    for step in 0..steps {
        let share = |s: i32| bottom - height * f64::from(s) / f64::from(steps);
        // A slight overlap avoids seams between the steps.
        let colour = legend::scale((f64::from(step) + 0.5) / f64::from(steps));
        canvas.rectangle((left, share(step) + 0.3), (left + bar, share(step + 1)), colour);
    }
    for tick in labelled(&ticks) {
        let Some(y) = axis.position(tick.value).map(|share| bottom - height * share) else { continue };
        let base = y + if metrics.cells { 0.0 } else { em * 0.36 };
        canvas.text((left + bar + metrics.gap(), base), Anchor::Start, em, Colour::INK, tick.label.clone());
    }
    let above = top - if metrics.cells { 2.0 } else { metrics.em * 0.55 };
    canvas.text((right, above), Anchor::End, em, Colour::INK, title);
    right - left + metrics.gap() * 3.0
}

/// The points of a figure, as `--data` writes them.
#[derive(Clone, Debug)]
pub struct Points {
    pub header: Vec<String>,
    /// A cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Points {
    pub fn new<R: Into<Vec<String>>>(header: &[&str], rows: impl IntoIterator<Item = R>) -> Self {
        Self { header: header.iter().map(|h| (*h).to_owned()).collect(), rows: rows.into_iter().map(R::into).collect() }
    }

    /// Writes CSV.
    pub fn write(&self, output: &mut dyn Write) -> Result<(), Error> {
        write_csv(output, &self.header, &self.rows)
    }

    pub fn of(series: &[Series], x: &str, y: &str) -> Self {
        let points = series.iter().flat_map(|one| one.points.iter().map(move |point| (one, point)));
        let rows = points.map(|(one, p)| cells![&one.name, p.x, p.y, p.low, p.high, p.n]);
        Self::new(&["series", x, y, "low", "high", "n"], rows)
    }
}

/// A figure and its points.
#[derive(Debug)]
pub struct Drawing {
    pub figure: Figure,
    pub points: Points,
    pub warnings: Vec<String>,
    /// Warnings that a page around the picture need not repeat: the figure has its notes, and the page counts the rows
    /// that do not count.
    pub notes: Vec<String>,
}

impl Drawing {
    pub fn new(mut figure: Figure, points: Points, records: &Records) -> Self {
        figure.notes.extend(records.notes.iter().cloned());
        let notes = records.uncounted.iter().chain(&records.notes).cloned().collect();
        Self { figure, points, warnings: records.warnings.clone(), notes }
    }
}
