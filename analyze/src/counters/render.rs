//! Differences as text, CSV and JSON.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use schemas::units::three_digits;
use serde_json::{Value as Json, json};

use super::{Format, Snapshot};
use super::{
    Value,
    diff::{Change, Note},
};
use crate::error::Error;
use crate::table::{cells, output::CsvCell};

/// The header of the `counters` table.
pub const HEADER: [&str; 9] = ["host", "source", "key", "before", "after", "delta", "elapsed_s", "rate_per_s", "note"];

/// A filter of differences.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Without what did not change.
    pub nonzero: bool,
    pub keys: Option<regex::Regex>,
    pub ignore: Option<regex::Regex>,
}

impl Wanted {
    fn filters(&self) -> bool {
        self.nonzero || self.keys.is_some() || self.ignore.is_some()
    }

    pub fn wants(&self, change: &Change<'_>) -> bool {
        let matches = |r: &regex::Regex| r.is_match(&change.key) || r.is_match(change.source);
        self.keys.as_ref().is_none_or(matches)
            && !self.ignore.as_ref().is_some_and(matches)
            && !(self.nonzero && is_quiet(change))
    }
}

/// Whether nothing changed: a difference of zero, or a level that stayed.
fn is_quiet(change: &Change<'_>) -> bool {
    match (change.delta, change.note) {
        (Some(delta), _) => delta.is_zero(),
        (None, Note::Gauge) => change.before == change.after,
        (None, _) => false,
    }
}

/// AFTER's text with the differences in place of its numbers; with `per_s`, rates over that many seconds.
pub fn text(after: &Snapshot<'_>, changes: &[Change<'_>], wanted: &Wanted, per_s: Option<f64>) -> String {
    let mut page = Page {
        text: String::with_capacity(after.text.len()),
        after,
        from: 0,
        filters: wanted.filters(),
        line: 0,
        names: false,
        numbers: 0,
        kept: 0,
        was: String::new(),
    };
    for change in changes {
        if let Some((at, len)) = change.at {
            page.copy_to(at);
            page.number(at..at + len, change, wanted.wants(change), per_s);
        }
    }
    page.copy_to(after.text.len());
    page.end_line();
    if !page.text.is_empty() && !page.text.ends_with('\n') {
        page.text.push('\n');
    }
    page.text
}

/// The page that is being written. Its last line can still be withdrawn.
struct Page<'p> {
    text: String,
    after: &'p Snapshot<'p>,
    /// Bytes of AFTER's text that are done.
    from: usize,
    filters: bool,
    /// Start of the current line, or of the line of names above it that waits for its values.
    line: usize,
    /// Whether a line of names waits.
    names: bool,
    numbers: usize,
    kept: usize,
    /// Note at the end of the line: what a level was before.
    was: String,
}

impl Page<'_> {
    /// Copies AFTER's text up to a place.
    fn copy_to(&mut self, to: usize) {
        let mut rest = &self.after.text[self.from..to];
        self.from = to;
        while let Some((line, after)) = rest.split_once('\n') {
            self.text += line;
            // The names above the values of `/proc/net/snmp` stay or go with their values.
            if self.after.format == Format::Snmp && !self.is_blank() {
                self.names = !self.names;
            }
            if self.end_line() {
                self.text.push('\n');
            }
            if !self.names {
                self.line = self.text.len();
            }
            (self.numbers, self.kept) = (0, 0);
            rest = after;
        }
        self.text += rest;
    }

    /// Whether the current line is blank.
    fn is_blank(&self) -> bool {
        self.text[self.line..].rsplit('\n').next().is_none_or(|line| line.trim().is_empty())
    }

    /// Ends the current line. Returns `false` where it is withdrawn because all its numbers are unwanted.
    fn end_line(&mut self) -> bool {
        self.text += &std::mem::take(&mut self.was);
        let stays = !self.filters || self.numbers == 0 || self.kept > 0;
        if !stays {
            self.text.truncate(self.line);
        }
        stays
    }

    fn number(&mut self, at: Range<usize>, change: &Change<'_>, wanted: bool, per_s: Option<f64>) {
        self.from = at.end;
        let (digits, rest) = (&self.after.text[at.clone()], &self.after.text[at.end..]);
        self.numbers += 1;
        self.kept += usize::from(wanted);
        let format = self.after.format;
        if change.note == Note::Gauge {
            let last = || !rest.bytes().take_while(|b| *b != b'\n').any(|b| b.is_ascii_digit());
            let one_a_line = format.is_prose() || matches!(format, Format::KeyValue | Format::Ethtool);
            if let (Some(before), Some(after)) = (change.before, change.after)
                && before != after
                && one_a_line
                && last()
            {
                self.was = format!(" (was {before})");
            }
            self.text += digits;
            return;
        }
        let shown = match (change.delta, per_s) {
            (None, _) => placeholder(format, change.note).to_owned(),
            (Some(delta), Some(seconds)) => three_digits(delta.real() / seconds),
            (Some(Value::Whole(v)), None) if format == Format::Softnet && v >= 0 => {
                format!("{v:0w$x}", w = digits.len())
            }
            (Some(delta), None) => delta.to_string(),
        };
        if shown.len() != digits.len() {
            self.align(shown.len(), digits.len());
        }
        self.text += &shown;
    }

    /// Pads so that a number `shown` bytes wide ends in the column where one of `instead` bytes ended.
    fn align(&mut self, shown: usize, instead: usize) {
        let blanks = self.text.len() - self.text.trim_end_matches(' ').len();
        let head = &self.text[..self.text.len() - blanks];
        let in_column = self.after.format.is_table() || (blanks >= 2 && !head.is_empty() && !head.ends_with('\n'));
        if in_column {
            // A sign or a word may be wider: it takes the blanks before it, except the last one.
            let take = shown.saturating_sub(instead).min(blanks.saturating_sub(1));
            self.text.truncate(self.text.len() - take);
            self.text.extend(std::iter::repeat_n(' ', instead.saturating_sub(shown)));
        }
    }
}

/// The placeholder of an unknown difference: not a number, and valid in the format.
fn placeholder(format: Format, note: Note) -> &'static str {
    match format {
        Format::Json | Format::IpJson | Format::EthtoolJson | Format::NstatJson => "null",
        Format::Openmetrics => "NaN",
        Format::Csv => "",
        _ => note.as_str(),
    }
}

impl CsvCell for Value {
    fn cell(self) -> String {
        self.to_string()
    }
}

/// Gives each row a key of its own.
struct Keys {
    /// Times that each key occurred; only sentences repeat.
    seen: Option<HashMap<String, u32>>,
}

impl Keys {
    fn of(format: Format) -> Self {
        Self { seen: format.is_prose().then(HashMap::new) }
    }

    fn name<'c>(&mut self, change: &'c Change<'_>) -> Cow<'c, str> {
        let key = match change.cpu {
            Some(cpu) => Cow::Owned(format!("{}[cpu{cpu}]", change.key)),
            None => Cow::Borrowed(change.key.as_ref()),
        };
        let Some(seen) = &mut self.seen else { return key };
        let times = seen.entry(format!("{}\n{key}", change.source)).or_default();
        *times += 1;
        if *times > 1 { Cow::Owned(format!("{key} ({times})")) } else { key }
    }
}

/// Writes rows of the `counters` table, without header.
pub fn csv(
    out: &mut dyn Write,
    format: Format,
    host: &str,
    changes: &[Change<'_>],
    wanted: &Wanted,
    elapsed: Option<f64>,
) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(out);
    let mut keys = Keys::of(format);
    for change in changes {
        let key = keys.name(change);
        if !wanted.wants(change) {
            continue;
        }
        let Change { before, after, delta, source, note, .. } = change;
        let rate = rate(change, elapsed);
        writer.write_record(cells![host, *source, &*key, *before, *after, *delta, elapsed, rate, note.as_str()])?;
    }
    Ok(writer.flush()?)
}

fn rate(change: &Change<'_>, elapsed: Option<f64>) -> Option<f64> {
    let seconds = elapsed.filter(|s| *s > 0.0)?;
    (change.note != Note::Ambiguous).then_some(())?;
    change.delta.map(|d| d.real() / seconds)
}

/// The rows of the `counters` table as JSON objects.
pub fn objects(format: Format, host: &str, changes: &[Change<'_>], wanted: &Wanted, elapsed: Option<f64>) -> Vec<Json> {
    let mut keys = Keys::of(format);
    let exact = |value: Option<Value>| match value {
        None => Json::Null,
        Some(Value::Whole(v)) => match (u64::try_from(v), i64::try_from(v)) {
            (Ok(v), _) => json!(v),
            (_, Ok(v)) => json!(v),
            _ => json!(v as f64),
        },
        Some(delta @ Value::Real(..)) => json!(delta.to_string().parse::<f64>().unwrap_or(delta.real())),
    };
    changes
        .iter()
        .map(|change| (keys.name(change), change))
        .filter(|(_, change)| wanted.wants(change))
        .map(|(key, change)| {
            json!({
                "host": host,
                "source": change.source,
                "key": key,
                "before": exact(change.before),
                "after": exact(change.after),
                "delta": exact(change.delta),
                "elapsed_s": elapsed,
                "rate_per_s": rate(change, elapsed),
                "note": change.note.as_str(),
            })
        })
        .collect()
}
