//! Differences as text, CSV and JSON.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::io::Write;

use schemas::{columns::number, units::three_digits};
use serde_json::{Value as Json, json};

use super::diff::{Change, Delta, Note};
use super::{Format, Snapshot};
use crate::error::Error;

/// The header of the `counters` table.
pub const HEADER: [&str; 9] = ["host", "source", "key", "before", "after", "delta", "elapsed_s", "rate_per_s", "note"];

/// Which differences are wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Leave out what did not change.
    pub nonzero: bool,
    /// Only these keys.
    pub keys: Option<regex::Regex>,
    /// Not these keys.
    pub ignore: Option<regex::Regex>,
}

impl Wanted {
    fn filters(&self) -> bool {
        self.nonzero || self.keys.is_some() || self.ignore.is_some()
    }

    /// Whether a difference is wanted.
    #[must_use]
    pub fn wants(&self, change: &Change<'_>) -> bool {
        let matches = |r: &regex::Regex| r.is_match(&change.key) || r.is_match(change.source);
        self.keys.as_ref().is_none_or(matches)
            && !self.ignore.as_ref().is_some_and(matches)
            && !(self.nonzero && is_quiet(change))
    }
}

/// Whether a change tells nothing: no difference, or a level that stayed.
fn is_quiet(change: &Change<'_>) -> bool {
    match (change.delta, change.note) {
        (Some(delta), _) => delta.is_zero(),
        (None, Note::Gauge) => change.before == change.after,
        (None, _) => false,
    }
}

/// Adds AFTER's text to `out`, with the differences where the numbers stood; with `per_s`, rates over that many seconds.
pub fn text<'c>(
    out: &mut Vec<u8>,
    after: &Snapshot<'_>,
    changes: impl IntoIterator<Item = impl Borrow<Change<'c>>>,
    wanted: &Wanted,
    per_s: Option<f64>,
) {
    out.reserve(after.text.len());
    let line = out.len();
    let mut page = Page {
        text: out,
        after,
        filters: wanted.filters(),
        line,
        numbers: 0,
        kept: 0,
        was: String::new(),
        shown: Vec::new(),
    };
    let mut from = 0;
    for change in changes {
        let change = change.borrow();
        let Some((at, len)) = change.at else { continue };
        page.gap(&after.text[from..at]);
        page.number(change, &after.text[at..at + len], &after.text[at + len..], wanted.wants(change), per_s);
        from = at + len;
    }
    page.gap(&after.text[from..]);
    page.finish();
    if page.text.last().is_some_and(|end| *end != b'\n') {
        page.text.push(b'\n');
    }
}

/// The page that is being written, a line of which can still be withdrawn.
struct Page<'p> {
    text: &'p mut Vec<u8>,
    after: &'p Snapshot<'p>,
    filters: bool,
    /// Where the current line starts, and with it a line of names that waits for its values.
    line: usize,
    numbers: usize,
    kept: usize,
    was: String,
    /// The number that is being written, kept for its memory.
    shown: Vec<u8>,
}

impl Page<'_> {
    fn gap(&mut self, gap: &str) {
        if !self.filters && self.was.is_empty() {
            self.text.extend_from_slice(gap.as_bytes());
            return;
        }
        let mut rest = gap;
        while let Some(end) = memchr::memchr(b'\n', rest.as_bytes()) {
            self.text.extend_from_slice(&rest.as_bytes()[..end]);
            // The names above the values of `/proc/net/snmp` share the fate of their values.
            let names = self.after.format == Format::Snmp && self.numbers == 0;
            if self.finish() {
                self.text.push(b'\n');
            }
            if !names {
                self.line = self.text.len();
            }
            (self.numbers, self.kept) = (0, 0);
            rest = &rest[end + 1..];
        }
        self.text.extend_from_slice(rest.as_bytes());
    }

    /// Ends the current line. `false` where it goes, because all its numbers are unwanted.
    fn finish(&mut self) -> bool {
        self.text.extend_from_slice(std::mem::take(&mut self.was).as_bytes());
        let stays = !self.filters || self.numbers == 0 || self.kept > 0;
        if !stays {
            self.text.truncate(self.line);
        }
        stays
    }

    fn number(&mut self, change: &Change<'_>, digits: &str, rest: &str, wanted: bool, per_s: Option<f64>) {
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
            self.text.extend_from_slice(digits.as_bytes());
            return;
        }
        let mut shown = std::mem::take(&mut self.shown);
        shown.clear();
        // Writing to memory cannot fail.
        let _ = match (change.delta, per_s) {
            (None, _) => shown.write_all(placeholder(format, change.note).as_bytes()),
            (Some(delta), Some(seconds)) => shown.write_all(three_digits(delta.real() / seconds).as_bytes()),
            (Some(Delta::Whole(v)), None) if format == Format::Softnet && v >= 0 => {
                write!(shown, "{v:0w$x}", w = digits.len())
            }
            // Nearly every difference fits, and 64 bits are written several times as fast as 128.
            (Some(Delta::Whole(v)), None) => match u64::try_from(v) {
                Ok(v) => {
                    push_decimal(&mut shown, v);
                    Ok(())
                }
                Err(_) => write!(shown, "{v}"),
            },
            (Some(delta), None) => write!(shown, "{delta}"),
        };
        if shown.len() != digits.len() {
            self.align(shown.len(), digits.len());
        }
        self.text.extend_from_slice(&shown);
        self.shown = shown;
    }

    /// Makes what is `shown` wide end where the digits ended that were `instead` wide, if they stood in a column.
    fn align(&mut self, shown: usize, instead: usize) {
        let blanks = self.text.iter().rev().take_while(|b| **b == b' ').count();
        let line_start = self.text.len() == blanks || self.text[self.text.len() - blanks - 1] == b'\n';
        if !self.after.format.is_table() && (blanks < 2 || line_start) {
            return;
        }
        // A sign or a word may be wider: it takes the blanks before it, but never the last one.
        let take = shown.saturating_sub(instead).min(blanks.saturating_sub(1));
        self.text.resize(self.text.len() + instead.saturating_sub(shown) - take, b' ');
    }
}

/// Writes a number several times as fast as `write!`, which is most of the time that a large snapshot takes.
fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

/// What stands where there is no difference: never a number, and nothing that breaks the format.
fn placeholder(format: Format, note: Note) -> &'static str {
    match format {
        Format::Json | Format::IpJson | Format::EthtoolJson | Format::NstatJson => "null",
        Format::Openmetrics => "NaN",
        Format::Csv => "",
        _ => note.word(),
    }
}

fn cell(value: Option<Delta>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// Names rows: each key once.
struct Keys {
    /// How often each was there; only sentences repeat.
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

/// Writes rows of the `counters` table, without its header.
pub fn csv(
    out: &mut dyn Write,
    format: Format,
    host: &str,
    changes: &[Change<'_>],
    wanted: &Wanted,
    elapsed: Option<f64>,
) -> Result<(), Error> {
    let mut writer = csv::WriterBuilder::new().from_writer(out);
    let mut keys = Keys::of(format);
    let seconds = elapsed.map(number).unwrap_or_default();
    for change in changes {
        let key = keys.name(change);
        if !wanted.wants(change) {
            continue;
        }
        let rate = rate(change, elapsed).map(number).unwrap_or_default();
        let (before, after, delta) = (cell(change.before), cell(change.after), cell(change.delta));
        writer.write_record([
            host,
            change.source,
            &key,
            &before,
            &after,
            &delta,
            &seconds,
            &rate,
            change.note.word(),
        ])?;
    }
    writer.flush()?;
    Ok(())
}

fn rate(change: &Change<'_>, elapsed: Option<f64>) -> Option<f64> {
    let seconds = elapsed.filter(|s| *s > 0.0)?;
    (change.note != Note::Ambiguous).then_some(())?;
    change.delta.map(|d| d.real() / seconds)
}

/// The rows of the `counters` table as JSON objects.
#[must_use]
pub fn objects(format: Format, host: &str, changes: &[Change<'_>], wanted: &Wanted, elapsed: Option<f64>) -> Vec<Json> {
    let mut keys = Keys::of(format);
    let exact = |value: Option<Delta>| match value {
        None => Json::Null,
        Some(Delta::Whole(v)) => match (u64::try_from(v), i64::try_from(v)) {
            (Ok(v), _) => json!(v),
            (_, Ok(v)) => json!(v),
            _ => json!(v as f64),
        },
        Some(delta @ Delta::Real(..)) => json!(delta.to_string().parse::<f64>().unwrap_or(delta.real())),
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
                "note": change.note.word(),
            })
        })
        .collect()
}
