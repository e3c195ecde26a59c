//! Rows that a picture leaves out, and the notes that say so.

use super::{Record, Records};
use schemas::{columns::results::column, text::short_names};
use std::collections::HashSet;

/// The start of a note on rows that are not drawn.
const LEFT_OUT: &str = "left out:";

impl Records {
    /// The case and member of a row, for messages.
    pub(in crate::plot) fn case_of(&self, record: &Record) -> String {
        let case = [column::case, column::test, column::plan]
            .into_iter()
            .map(|name| self.text(record, name))
            .find(|name| !name.is_empty());
        let member = self.text(record, column::member);
        let case = case.unwrap_or("");
        if member.is_empty() { case.to_owned() } else { format!("{case} {member}") }
    }

    /// Keeps the rows that have something, and notes the others. `what` says what they lack.
    pub fn keep_those_with(&mut self, what: &str, has: impl Fn(&Self, &Record) -> bool) {
        self.keep(what, has);
        let notes = self.left_out();
        self.notes.retain(|note| !note.starts_with(LEFT_OUT));
        self.notes.extend(notes);
    }

    /// Keeps the rows that have something. `what` says what the others lack.
    pub(in crate::plot) fn keep(&mut self, what: &str, has: impl Fn(&Self, &Record) -> bool) {
        let list = std::mem::take(&mut self.list);
        let (kept, lost): (Vec<_>, Vec<_>) = list.into_iter().partition(|record| has(self, record));
        for record in &lost {
            let case = self.case_of(record);
            *self.lacking.entry((what.to_owned(), case)).or_default() += 1;
        }
        self.list = kept;
    }

    /// A sentence about rows that were left out, for each thing that they lack.
    pub(super) fn left_out(&self) -> Vec<String> {
        const NAMED: usize = 3;
        let mut columns: Vec<&str> = Vec::new();
        for (column, _) in self.lacking.keys() {
            if !columns.contains(&column.as_str()) {
                columns.push(column);
            }
        }
        let sentence = |column: &str| {
            let mine: Vec<(&String, u64)> =
                self.lacking.iter().filter(|e| e.0.0 == column).map(|e| (&e.0.1, *e.1)).collect();
            let rows: u64 = mine.iter().map(|m| m.1).sum();
            let s = if rows == 1 { "" } else { "s" };
            let mut cases: Vec<String> = mine.iter().map(|m| short_names(m.0)).collect();
            if cases.len() > NAMED {
                // Of many cases the tests are named.
                cases = mine.iter().map(|m| m.0.split('[').next().unwrap_or_default().to_owned()).collect();
            }
            cases.retain(|case| !case.is_empty());
            let mut seen = HashSet::new();
            cases.retain(|case| seen.insert(case.clone()));
            if cases.len() > NAMED {
                let more = cases.len() - NAMED;
                cases.truncate(NAMED);
                cases.push(format!("{more} more"));
            }
            let cases = if cases.is_empty() { String::new() } else { format!(" ({})", cases.join(", ")) };
            format!("{LEFT_OUT} {rows} row{s} without {column}{cases}")
        };
        columns.into_iter().map(sentence).collect()
    }
}
