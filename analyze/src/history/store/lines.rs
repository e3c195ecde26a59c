//! The lines of a file of a history: headers, rows, and lines that are neither.

use crate::{
    history::series::{Key, is_mark_of_merge},
    table::{fields, unquoted},
};
use schemas::{
    columns::{
        history::{Field, HISTORY_COLUMNS},
        names,
    },
    time,
};
use std::{borrow::Cow, ops::Range};

/// Columns without which a line says nothing.
const REQUIRED: [Field; 6] = [Field::run_id, Field::time, Field::machine, Field::case_id, Field::metric, Field::centre];

/// Characters of a faulty cell that a message shows.
const SHOWN: usize = 40;

/// Header of the files that this version writes.
pub(super) fn own_header() -> String {
    names(HISTORY_COLUMNS).collect::<Vec<_>>().join(",")
}

/// A line that can be used.
pub(super) enum Line<'a> {
    Blank,
    /// `foreign`: a column that this version does not know.
    Header {
        foreign: Option<String>,
    },
    Row(Box<Row<'a>>),
}

/// A row.
pub(super) struct Row<'a> {
    /// Its cells but the sample, in the order of the columns that this version writes.
    cells: [Cow<'a, str>; HISTORY_COLUMNS.len()],
    pub centre: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Place of the sample's cell in the line; empty where there is none.
    pub sample: Range<usize>,
}

impl Row<'_> {
    /// The text of a cell; empty where the file has no such column.
    pub(super) fn text(&self, field: Field) -> &str {
        &self.cells[field as usize]
    }

    /// The series of the row.
    pub(super) fn key(&self) -> Key {
        let text = |field| self.text(field).to_owned();
        Key {
            plan: text(Field::plan),
            machine: text(Field::machine),
            case_id: text(Field::case_id),
            member: text(Field::member),
            direction: text(Field::direction),
            metric: text(Field::metric),
        }
    }
}

/// A line that cannot be used.
pub(super) struct Fault {
    pub reason: String,
    /// Only this line is affected, so that the others can be read without it.
    pub is_of_line: bool,
}

impl Fault {
    fn of_line(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_of_line: true }
    }

    fn of_file(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_of_line: false }
    }
}

/// Places of the columns, by the last header.
struct Columns {
    count: usize,
    at: [Option<usize>; HISTORY_COLUMNS.len()],
}

/// Goes through the lines of a file.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
    columns: Option<Columns>,
    /// The last header was cut off: rows below it cannot be read.
    is_header_torn: bool,
    /// A time that has been checked.
    time: String,
}

/// A line with its number from 1, and its bytes with the line end.
pub(super) struct Numbered<'a> {
    pub number: usize,
    pub bytes: &'a [u8],
    pub line: Result<Line<'a>, Fault>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let rest = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        Self { rest, number: 0, columns: None, is_header_torn: false, time: String::new() }
    }

    fn line(&mut self, bytes: &'a [u8]) -> Result<Line<'a>, Fault> {
        let has_end = bytes.ends_with(b"\n");
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if memchr::memchr(0, bytes).is_some() {
            return Err(Fault::of_line("the line has a zero byte: a crash, or a full disk, left it"));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Fault::of_line(format!("byte {} of the line is not UTF-8", e.valid_up_to() + 1)))?;
        if text.trim().is_empty() {
            return Ok(Line::Blank);
        }
        if is_mark_of_merge(bytes) {
            return Err(Fault::of_line(
                "a merge conflict was left here: keep the rows of both sides and remove the marks",
            ));
        }
        let (fields, is_whole) = fields(text);
        let first = fields.first().map(|field| unquoted(&text[field.clone()])).unwrap_or_default();
        if first == Field::run_id.name() {
            return self.header(text, &fields);
        }
        let row = self.row(text, &fields, is_whole)?;
        if !has_end {
            return Err(Fault::of_line("the line was cut off: it has no end"));
        }
        Ok(Line::Row(Box::new(row)))
    }

    fn header(&mut self, text: &'a str, fields: &[Range<usize>]) -> Result<Line<'a>, Fault> {
        let cells: Vec<Cow<str>> = fields.iter().map(|field| unquoted(&text[field.clone()])).collect();
        let place = |name: &str| cells.iter().position(|cell| cell == name);
        if let Some(missing) = REQUIRED.iter().find(|field| place(field.name()).is_none()) {
            if own_header().starts_with(text) {
                self.columns = None;
                self.is_header_torn = true;
                return Err(Fault::of_line("the header was cut off"));
            }
            return Err(Fault::of_file(format!(
                "the header has no column `{}`: a newer version of plumb reads it, or it is no history and belongs \
                 elsewhere",
                missing.name()
            )));
        }
        let at = std::array::from_fn(|i| place(HISTORY_COLUMNS[i].name));
        self.columns = Some(Columns { count: cells.len(), at });
        self.is_header_torn = false;
        let foreign = cells.iter().find(|cell| !names(HISTORY_COLUMNS).any(|name| name == **cell));
        Ok(Line::Header { foreign: foreign.map(|cell| cell.clone().into_owned()) })
    }

    fn row(&mut self, text: &'a str, fields: &[Range<usize>], is_whole: bool) -> Result<Row<'a>, Fault> {
        let Some(columns) = &self.columns else {
            return Err(if self.is_header_torn {
                Fault::of_line("the header above was cut off")
            } else {
                Fault::of_file(format!(
                    "the header is missing: put it above this line ({}), or move the file away if it is no history",
                    own_header()
                ))
            });
        };
        if !is_whole || fields.len() != columns.count {
            let (have, of) = (fields.len(), columns.count);
            return Err(Fault::of_line(if have > of {
                format!("the line has {have} fields of {of}: another one was pasted into it")
            } else {
                format!("the line was cut off: it has {have} fields of {of}")
            }));
        }
        let place = |field: Field| columns.at[field as usize].map_or(0..0, |at| fields[at].clone());
        let sample = place(Field::sample);
        let cell = |at: Option<usize>| at.map(|at| fields[at].clone()).filter(|place| *place != sample);
        let cells = columns.at.map(|at| cell(at).map_or(Cow::Borrowed(""), |place| unquoted(&text[place])));
        let number = |field: Field| {
            let cell = &*cells[field as usize];
            if cell.is_empty() {
                return Ok(None);
            }
            let value = cell.parse::<f64>().ok().filter(|value| value.is_finite());
            value
                .map(Some)
                .ok_or_else(|| Fault::of_line(format!("column `{}`: `{}` is not a number", field.name(), shown(cell))))
        };
        let (centre, low, high) = (number(Field::centre)?, number(Field::low)?, number(Field::high)?);
        let Some(centre) = centre else { return Err(Fault::of_line("the line has no centre")) };
        if cells[Field::run_id as usize].is_empty() {
            return Err(Fault::of_line("the line has no run_id"));
        }
        let time = &cells[Field::time as usize];
        if *time != *self.time {
            if !time.ends_with('Z') || time::parse(time).is_none() {
                let cell = shown(time);
                return Err(Fault::of_line(format!("column `time`: `{cell}` is no time as 2026-11-23T04:05:06Z")));
            }
            self.time = time.to_string();
        }
        Ok(Row { cells, centre, low, high, sample })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Numbered<'a>;

    fn next(&mut self) -> Option<Numbered<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
        let (bytes, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.number += 1;
        Some(Numbered { number: self.number, bytes, line: self.line(bytes) })
    }
}

/// The start of a cell, for a message.
fn shown(cell: &str) -> String {
    cell.chars().take(SHOWN).collect()
}

/// Appends a line. `each` hands its cells over, as a row's `for_each_cell` does.
pub(super) fn push_line(text: &mut String, each: impl FnOnce(&mut dyn FnMut(&str))) {
    let mut first = true;
    each(&mut |cell| {
        if !std::mem::take(&mut first) {
            text.push(',');
        }
        push_cell(text, cell);
    });
    text.push('\n');
}

/// Appends a cell to a line: a character that would end the line becomes a space.
pub(super) fn push_cell(text: &mut String, cell: &str) {
    let cell = cell.replace(['\n', '\r', '\0'], " ");
    if cell.contains([',', '"']) {
        text.push('"');
        text.push_str(&cell.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(&cell);
    }
}
