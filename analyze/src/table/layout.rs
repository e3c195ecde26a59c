//! Prints tables for people: aligned columns, or Markdown.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

pub struct Column {
    pub title: String,
    /// Numbers are aligned right, words left.
    pub right: bool,
    pub cells: Vec<String>,
}

fn width(text: &str) -> usize {
    text.width()
}

impl Column {
    /// A cell per row.
    pub fn of<T>(title: &str, right: bool, rows: &[T], cell: impl Fn(&T) -> String) -> Self {
        Self { title: title.to_owned(), right, cells: rows.iter().map(cell).collect() }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|c| width(c)).chain([width(&self.title)]).max().unwrap_or(0)
    }
}

fn padded(text: &str, to: usize, right: bool, last: bool) -> String {
    let space = " ".repeat(to.saturating_sub(width(text)));
    match (right, last) {
        (true, _) => format!("{space}{text}"),
        // No trailing blanks.
        (false, true) => text.to_owned(),
        (false, false) => format!("{text}{space}"),
    }
}

fn rows(columns: &[Column]) -> usize {
    columns.first().map_or(0, |c| c.cells.len())
}

/// Prints columns two blanks apart under their titles.
pub fn aligned(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let mut line = |cell: &dyn Fn(&Column) -> String| -> io::Result<()> {
        let mut text = String::new();
        for (i, column) in columns.iter().enumerate() {
            if i > 0 {
                text.push_str("  ");
            }
            text.push_str(&padded(&cell(column), widths[i], column.right, i + 1 == columns.len()));
        }
        writeln!(output, "{}", text.trim_end())
    };
    line(&|c| c.title.clone())?;
    for row in 0..rows(columns) {
        line(&|c| c.cells[row].clone())?;
    }
    Ok(())
}

/// Prints a Markdown table that is also readable as text.
pub fn markdown(columns: &[Column], output: &mut dyn Write) -> io::Result<()> {
    let escape = |text: &str| text.replace('|', "\\|");
    let widths: Vec<usize> = columns
        .iter()
        .map(|c| c.cells.iter().map(|t| width(&escape(t))).chain([width(&escape(&c.title)), 3]).max().unwrap_or(3))
        .collect();
    let mut line = |cell: &dyn Fn(usize, &Column) -> String| -> io::Result<()> {
        let cells: Vec<String> = columns.iter().enumerate().map(|(i, c)| cell(i, c)).collect();
        writeln!(output, "| {} |", cells.join(" | "))
    };
    line(&|i, c| padded(&escape(&c.title), widths[i], c.right, false))?;
    line(&|i, c| if c.right { format!("{}:", "-".repeat(widths[i] - 1)) } else { "-".repeat(widths[i]) })?;
    for row in 0..rows(columns) {
        line(&|i, c| padded(&escape(&c.cells[row]), widths[i], c.right, false))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column { title: "case".into(), right: false, cells: vec!["a|b".into(), "größe".into()] },
            Column { title: "rate".into(), right: true, cells: vec!["1 µs".into(), "10 µs".into()] },
            Column { title: "note".into(), right: false, cells: vec![String::new(), "x".into()] },
        ]
    }

    #[test]
    fn numbers_stand_right_and_no_line_ends_in_blanks() {
        let mut out = Vec::new();
        aligned(&columns(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "case    rate  note\na|b     1 µs\ngröße  10 µs  x\n");
    }

    #[test]
    fn markdown_escapes_bars() {
        let mut out = Vec::new();
        markdown(&columns(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "| case  |  rate | note |\n| ----- | ----: | ---- |\n| a\\|b  |  1 µs |      |\n| größe | 10 µs | x    |\n"
        );
    }
}
