//! A picture in the terminal: the same figure, laid out in cells. Lines are dots of braille characters, texts are text.

use super::{
    canvas::{Anchor, Canvas, Colour, Point, Shape, Sign},
    figure::Figure,
    font::Metrics,
    layer::Layer,
};
use crate::{
    distinct,
    table::layout::{Sheet, size_or},
};
use std::fmt::Write as _;
use unicode_width::UnicodeWidthChar;

/// Columns and rows without a terminal.
const SIZE: (usize, usize) = (100, 32);

/// Draws for standard output: with the size and colours of a terminal, else plain.
pub fn draw(figure: &Figure) -> String {
    let sheet = Sheet::stdout();
    let (columns, rows) = size_or(SIZE);
    // Two lines for the command and the prompt after it.
    characters(figure, columns.clamp(40, 300), rows.saturating_sub(2).clamp(12, 100), sheet.colours)
}

pub fn characters(figure: &Figure, columns: usize, rows: usize, coloured: bool) -> String {
    let canvas = figure.draw(columns as f64 * 2.0, rows as f64 * 4.0, Metrics::terminal());
    let mut screen = Screen { columns, rows, cells: vec![Cell::default(); columns * rows] };
    screen.paint(&canvas);
    screen.text(coloured)
}

#[derive(Clone, Copy, Default)]
struct Cell {
    /// Braille dots, in Unicode's order.
    dots: u8,
    /// Covers the dots.
    letter: Option<char>,
    /// The pattern of a filled area; used without colours.
    filled: Option<char>,
    /// The right half of a wide letter.
    taken: bool,
    colour: Option<Colour>,
}

struct Screen {
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

impl Screen {
    fn cell(&mut self, column: f64, row: f64) -> Option<&mut Cell> {
        if column < 0.0 || row < 0.0 || column >= self.columns as f64 || row >= self.rows as f64 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside the screen")]
        self.cells.get_mut(row as usize * self.columns + column as usize)
    }

    fn dot(&mut self, x: f64, y: f64, colour: Colour) {
        // Unicode numbers braille dots down the left column, down the right one, then the lowest two.
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        let (x, y) = (x.floor(), y.floor());
        if let Some(cell) = self.cell((x / 2.0).floor(), (y / 4.0).floor()) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 … 1 and 0 … 3")]
            let bit = BITS[x.rem_euclid(2.0) as usize][y.rem_euclid(4.0) as usize];
            cell.dots |= bit;
            // Data comes after the axes and keeps its colour.
            cell.colour = Some(colour);
        }
    }

    fn line(&mut self, from: Point, to: Point, colour: Colour) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().clamp(1.0, 4000.0);
        let mut step = 0.0;
        while step <= steps {
            let share = step / steps;
            self.dot(from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share, colour);
            step += 1.0;
        }
    }

    fn write(&mut self, x: f64, y: f64, text: &str, colour: Colour) {
        let row = (y / 4.0).floor();
        let mut column = (x / 2.0).round();
        for letter in text.chars() {
            let width = letter.width().unwrap_or(0);
            if let Some(cell) = self.cell(column, row)
                && width > 0
            {
                *cell = Cell { letter: Some(letter), colour: Some(colour), ..Cell::default() };
            }
            if width == 2
                && let Some(cell) = self.cell(column + 1.0, row)
            {
                *cell = Cell { taken: true, ..Cell::default() };
            }
            column += width as f64;
        }
    }

    /// Fills the cells whose middle is inside the polygon.
    fn fill(&mut self, points: &[Point], colour: Colour, pattern: char) {
        for row in 0..self.rows {
            for column in 0..self.columns {
                let (x, y) = (column as f64 * 2.0 + 1.0, row as f64 * 4.0 + 2.0);
                let mut inside = false;
                for (i, a) in points.iter().enumerate() {
                    let b = points[(i + 1) % points.len()];
                    if (a.1 > y) != (b.1 > y) && x < (b.0 - a.0) * (y - a.1) / (b.1 - a.1) + a.0 {
                        inside = !inside;
                    }
                }
                if inside {
                    let cell = &mut self.cells[row * self.columns + column];
                    cell.filled = Some(pattern);
                    cell.colour = Some(colour);
                }
            }
        }
    }

    fn paint(&mut self, canvas: &Canvas) {
        // A cell holds one character: letters cover signs, signs lines, lines areas, in any order of painting.
        let areas = || {
            canvas.shapes.iter().filter_map(|shape| match shape {
                Shape::Area { points, colour } if *colour != Layer::SHADE => Some((points, *colour)),
                _ => None,
            })
        };
        let colours = distinct(areas().map(|(_, colour)| colour));
        for (points, colour) in areas() {
            self.fill(points, colour, pattern(&colours, colour));
        }
        for shape in &canvas.shapes {
            if let Shape::Line { points, colour, .. } = shape {
                for pair in points.windows(2) {
                    self.line(pair[0], pair[1], *colour);
                }
            }
        }
        for shape in &canvas.shapes {
            if let Shape::Mark { at, sign, colour, .. } = shape {
                let letter = letter(*sign);
                if let Some(cell) = self.cell((at.0 / 2.0).floor(), (at.1 / 4.0).floor()) {
                    *cell = Cell { letter: Some(letter), colour: Some(*colour), ..Cell::default() };
                }
            }
        }
        for shape in &canvas.shapes {
            if let Shape::Text(text) = shape {
                let width = canvas.metrics.width(&text.text, text.em);
                let x = match text.anchor {
                    Anchor::Start => text.at.0,
                    Anchor::Middle => text.at.0 - width / 2.0,
                    Anchor::End => text.at.0 - width,
                };
                self.write(x, text.at.1, &text.text, text.colour);
            }
        }
    }

    fn text(&self, coloured: bool) -> String {
        let mut out = String::new();
        for row in self.cells.chunks(self.columns) {
            let last = row.iter().rposition(|c| c.letter.is_some_and(|l| l != ' ') || c.dots > 0 || c.filled.is_some());
            let mut current: Option<Colour> = None;
            for cell in &row[..last.map_or(0, |l| l + 1)] {
                if cell.taken {
                    continue;
                }
                let letter = match cell {
                    Cell { letter: Some(letter), .. } => *letter,
                    Cell { filled: Some(pattern), .. } => {
                        if coloured {
                            '█'
                        } else {
                            *pattern
                        }
                    }
                    Cell { dots: 0, .. } => ' ',
                    Cell { dots, .. } => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' '),
                };
                // Text and axes keep the terminal's colour, which may be dark.
                let wanted =
                    cell.colour.filter(|c| coloured && ![Colour::INK, Colour::MUTED, Colour::AXIS].contains(c));
                if wanted != current {
                    match wanted {
                        Some(Colour(r, g, b)) => _ = write!(out, "\x1b[38;2;{r};{g};{b}m"),
                        None => out.push_str("\x1b[39m"),
                    }
                    current = wanted;
                }
                out.push(letter);
            }
            if current.is_some() {
                out.push_str("\x1b[39m");
            }
            out.push('\n');
        }
        out
    }
}

/// The character of a filled area without colours: each its own for a few colours, by darkness for many.
fn pattern(colours: &[Colour], colour: Colour) -> char {
    const OWN: [char; 6] = ['█', '▒', '░', '▓', '▚', '▤'];
    const DARKNESS: [char; 4] = ['█', '▓', '▒', '░'];
    let index = colours.iter().position(|c| *c == colour).unwrap_or(0);
    if colours.len() <= OWN.len() {
        return OWN[index];
    }
    let light = (usize::from(colour.0) * 3 + usize::from(colour.1) * 6 + usize::from(colour.2)) / 10;
    DARKNESS[(light / 60).min(3)]
}

fn letter(sign: Sign) -> char {
    match sign {
        Sign::Circle => '●',
        Sign::Square => '■',
        Sign::Up => '▲',
        Sign::Diamond => '◆',
        Sign::Down => '▼',
        Sign::Cross => '×',
        Sign::Plus => '+',
        Sign::Ring => '○',
    }
}
