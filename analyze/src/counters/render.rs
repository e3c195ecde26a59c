//! Differences as text, CSV and JSON.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use schemas::{columns::number, units::three_digits};
use serde_json::{Value as Json, json};

use super::diff::{Change, Delta, Differences, Note};
use super::{Counter, Format, Snapshot, Value};
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

/// Adds AFTER's text to `out`, with the differences where the numbers stood; with `per_s`, rates over that many seconds. The
/// changes that are more than a growth, and what is gone, are shown to `look`.
pub fn text(
    out: &mut Vec<u8>,
    differences: &Differences<'_>,
    wanted: &Wanted,
    per_s: Option<f64>,
    mut look: impl FnMut(&Change<'_>),
) {
    let after = differences.after();
    let (start, end) = (after.part.from, after.part.to);
    out.reserve(end - start);
    let filters = wanted.filters();
    let line = out.len();
    let mut page = Page {
        text: out,
        after,
        from: start,
        filters,
        line,
        names: false,
        numbers: 0,
        kept: 0,
        was: String::new(),
        shown: Vec::new(),
    };
    let plain = !filters && per_s.is_none() && after.format != Format::Softnet;
    for (counter, old) in differences.numbers() {
        match differences.grown(counter, old) {
            Some(grown) if plain => page.grown(counter, grown),
            _ => {
                let change = differences.change(counter, old);
                look(&change);
                page.number(counter, &change, wanted.wants(&change), per_s);
            }
        }
    }
    differences.gone().for_each(|change| look(&change));
    page.gap(end);
    page.finish();
    if page.text.last().is_some_and(|end| *end != b'\n') {
        page.text.push(b'\n');
    }
}

/// The page that is being written, a line of which can still be withdrawn.
struct Page<'p> {
    text: &'p mut Vec<u8>,
    after: &'p Snapshot<'p>,
    /// How much of AFTER's text has been dealt with.
    from: usize,
    filters: bool,
    /// Where the current line starts, and with it a line of names that waits for its values.
    line: usize,
    /// Whether there is such a line of names.
    names: bool,
    numbers: usize,
    kept: usize,
    was: String,
    /// The number that is being written, kept for its memory.
    shown: Vec<u8>,
}

impl Page<'_> {
    /// Copies the text up to a place.
    fn gap(&mut self, to: usize) {
        let gap = &self.after.text.as_bytes()[self.from..to];
        self.from = to;
        if !self.filters && self.was.is_empty() {
            self.text.extend_from_slice(gap);
            return;
        }
        let mut rest = gap;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.text.extend_from_slice(&rest[..end]);
            // The names above the values of `/proc/net/snmp` share the fate of their values.
            if self.after.format == Format::Snmp && !self.is_blank() {
                self.names = !self.names;
            }
            if self.finish() {
                self.text.push(b'\n');
            }
            if !self.names {
                self.line = self.text.len();
            }
            (self.numbers, self.kept) = (0, 0);
            rest = &rest[end + 1..];
        }
        self.text.extend_from_slice(rest);
    }

    /// Whether the current line, of which all has been copied, is blank.
    fn is_blank(&self) -> bool {
        let line = self.text[self.line..].rsplit(|b| *b == b'\n').next().unwrap_or_default();
        std::str::from_utf8(line).is_ok_and(|line| line.trim().is_empty())
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

    /// Writes by how much a number grew, which is never wider than the number.
    #[inline]
    fn grown(&mut self, counter: &Counter, grown: u64) {
        let len = counter.len as usize;
        let mut store = [b' '; DIGITS];
        let digits = decimal(&mut store, grown);
        // What was zero is copied with what comes after it, unless it has leading zeros.
        if counter.value == Value::Whole(grown) && digits == len {
            return;
        }
        self.gap(counter.at);
        self.from = counter.at + len;
        let wide = if digits < len && self.in_column() { len } else { digits };
        self.text.resize(self.text.len() + wide.saturating_sub(DIGITS), b' ');
        self.text.extend_from_slice(&store[DIGITS.saturating_sub(wide)..]);
    }

    fn number(&mut self, counter: &Counter, change: &Change<'_>, wanted: bool, per_s: Option<f64>) {
        let end = counter.at + counter.len as usize;
        self.gap(counter.at);
        self.from = end;
        let (digits, rest) = (&self.after.text[counter.at..end], &self.after.text[end..]);
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
                    let mut store = [0; DIGITS];
                    let digits = decimal(&mut store, v);
                    shown.write_all(&store[DIGITS - digits..])
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
        if self.in_column() {
            // A sign or a word may be wider: it takes the blanks before it, but never the last one.
            let take = shown.saturating_sub(instead).min(self.blanks().saturating_sub(1));
            self.text.resize(self.text.len() + instead.saturating_sub(shown) - take, b' ');
        }
    }

    /// Whether the number that comes next stands in a column.
    fn in_column(&self) -> bool {
        let blanks = || (self.blanks(), self.text.len());
        self.after.format.is_table()
            || matches!(blanks(), (blanks, len) if blanks >= 2 && blanks < len && self.text[len - blanks - 1] != b'\n')
    }

    /// How many blanks the page ends with.
    fn blanks(&self) -> usize {
        self.text.iter().rev().take_while(|b| **b == b' ').count()
    }
}

/// The most digits that 64 bits have.
const DIGITS: usize = 20;

/// Writes a number to the end of a store, several times as fast as `write!`, and returns how many digits it has.
fn decimal(store: &mut [u8; DIGITS], mut value: u64) -> usize {
    let mut digits = 0;
    loop {
        digits += 1;
        store[DIGITS - digits] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 || digits == DIGITS {
            return digits;
        }
    }
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
