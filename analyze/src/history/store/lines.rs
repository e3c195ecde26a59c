//! The lines of a file of a history: headers, rows, and lines that are neither.

use std::{borrow::Cow, ops::Range};

use schemas::{
    columns::{history::HISTORY_COLUMNS, names},
    time,
};

use crate::{
    history::{accepted::is_mark_of_merge, series::Key},
    table::{fields, unquoted},
};

/// Columns that are read, in the order of [`Row`]'s fields.
const NAMES: [&str; 16] = [
    "run_id",
    "time",
    "commit",
    "version",
    "machine",
    "plan",
    "labels",
    "case_id",
    "case",
    "member",
    "direction",
    "metric",
    "centre",
    "low",
    "high",
    "sample",
];
const SAMPLE: usize = 15;

/// Columns without which a line says nothing.
const REQUIRED: [&str; 6] = ["run_id", "time", "machine", "case_id", "metric", "centre"];

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

/// A row, without the columns that nothing reads.
pub(super) struct Row<'a> {
    pub run_id: Cow<'a, str>,
    pub time: Cow<'a, str>,
    pub commit: Cow<'a, str>,
    pub version: Cow<'a, str>,
    pub machine: Cow<'a, str>,
    pub plan: Cow<'a, str>,
    pub labels: Cow<'a, str>,
    pub case_id: Cow<'a, str>,
    pub case: Cow<'a, str>,
    pub member: Cow<'a, str>,
    pub direction: Cow<'a, str>,
    pub metric: Cow<'a, str>,
    pub centre: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Place of the sample's cell in the line; empty where there is none.
    pub sample: Range<usize>,
}

impl Row<'_> {
    /// The series of the row.
    pub(super) fn key(&self) -> Key {
        Key {
            plan: self.plan.to_string(),
            machine: self.machine.to_string(),
            case_id: self.case_id.to_string(),
            member: self.member.to_string(),
            direction: self.direction.to_string(),
            metric: self.metric.to_string(),
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
    at: [Option<usize>; 16],
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
        if first == "run_id" {
            return self.header(text, &fields);
        }
        self.row(text, &fields, is_whole).map(|row| Line::Row(Box::new(row)))
    }

    fn header(&mut self, text: &'a str, fields: &[Range<usize>]) -> Result<Line<'a>, Fault> {
        let cells: Vec<Cow<str>> = fields.iter().map(|field| unquoted(&text[field.clone()])).collect();
        if let Some(missing) = REQUIRED.iter().find(|name| !cells.iter().any(|cell| cell == *name)) {
            if own_header().starts_with(text) {
                self.columns = None;
                self.is_header_torn = true;
                return Err(Fault::of_line("the header was cut off"));
            }
            return Err(Fault::of_file(format!(
                "the header has no column `{missing}`: a newer version of plumb reads it, or it is no history and belongs \
                 elsewhere"
            )));
        }
        let place = |name: &str| cells.iter().position(|cell| cell == name);
        self.columns = Some(Columns { count: cells.len(), at: NAMES.map(place) });
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
        let mut cells = columns.at.map(|at| at.map_or(Cow::Borrowed(""), |at| unquoted(&text[fields[at].clone()])));
        let number = |index: usize| {
            let cell = &*cells[index];
            if cell.is_empty() {
                return Ok(None);
            }
            let value = cell.parse::<f64>().ok().filter(|value| value.is_finite());
            value
                .map(Some)
                .ok_or_else(|| Fault::of_line(format!("column `{}`: `{}` is not a number", NAMES[index], shown(cell))))
        };
        let (centre, low, high) = (number(12)?, number(13)?, number(14)?);
        let Some(centre) = centre else { return Err(Fault::of_line("the line has no centre")) };
        if cells[0].is_empty() {
            return Err(Fault::of_line("the line has no run_id"));
        }
        if cells[1] != *self.time {
            if !cells[1].ends_with('Z') || time::parse(&cells[1]).is_none() {
                let cell = shown(&cells[1]);
                return Err(Fault::of_line(format!("column `time`: `{cell}` is no time as 2026-11-23T04:05:06Z")));
            }
            self.time = cells[1].to_string();
        }
        let sample = columns.at[SAMPLE].map_or(0..0, |at| fields[at].clone());
        let mut cell = |index: usize| std::mem::take(&mut cells[index]);
        Ok(Row {
            run_id: cell(0),
            time: cell(1),
            commit: cell(2),
            version: cell(3),
            machine: cell(4),
            plan: cell(5),
            labels: cell(6),
            case_id: cell(7),
            case: cell(8),
            member: cell(9),
            direction: cell(10),
            metric: cell(11),
            centre,
            low,
            high,
            sample,
        })
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

/// Appends a cell to a line: what would end the line becomes a space.
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
