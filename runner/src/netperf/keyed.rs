//! Output of selectors: `-k`, `-o` and `-O`.

use std::fmt::Write;

use super::{facts::Facts, selection::Selection, selectors::Selector, specifics::Form};

/// Prints a selection. `headers`: with titles, except in lines of `NAME=value`.
pub fn render(form: Form, selection: &Selection, facts: &Facts<'_>, headers: bool) -> String {
    match form {
        Form::KeyValue => key_values(selection, facts),
        Form::Csv => csv(selection, facts, headers),
        Form::Columns => {
            let blocks: Vec<String> = selection.iter().map(|block| columns(block, facts, headers)).collect();
            blocks.join("\n")
        }
    }
}

/// A line for each selector that has a value.
fn key_values(selection: &Selection, facts: &Facts<'_>) -> String {
    let line = |selector: &&Selector| Some(format!("{}={}\n", selector.name, (selector.value)(facts).shown()?));
    selection.iter().flatten().filter_map(line).collect()
}

/// A line of titles, and one of values. A selector without a value has an empty cell.
fn csv(selection: &Selection, facts: &Facts<'_>, headers: bool) -> String {
    let all = || selection.iter().flatten();
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    let titles = if headers { line(all().map(|selector| selector.title()).collect()) } else { String::new() };
    titles + &line(all().map(|selector| (selector.value)(facts).shown().unwrap_or_default()).collect())
}

/// Lines of a title in `-O`.
const TITLE_LINES: usize = 4;

/// Values below their titles, each column as wide as its longest line, or as its value and a blank.
fn columns(block: &[&'static Selector], facts: &Facts<'_>, headers: bool) -> String {
    let mut lines = vec![String::new(); TITLE_LINES + 1];
    for selector in block {
        let value = (selector.value)(facts).shown();
        let title = selector.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let width = title.max(value.as_ref().map_or(0, |value| value.chars().count() + 1));
        let value = value.unwrap_or_default();
        let cells = (0..TITLE_LINES).map(|at| selector.lines().nth(at).unwrap_or_default()).chain([value.as_str()]);
        for (line, cell) in lines.iter_mut().zip(cells) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:<width$} ");
        }
    }
    let skipped = if headers { 0 } else { TITLE_LINES };
    lines[skipped..].join("\n") + "\n"
}

/// The names of all selectors, for `?`.
pub fn names(one_per_line: bool) -> String {
    let names: Vec<&str> = super::selectors::SELECTORS.iter().map(|selector| selector.name).collect();
    format!("{}\n", names.join(if one_per_line { "\n" } else { "," }))
}
