//! Counters out of what kernels and programs print, and the differences between two readings.
//!
//! Every format is read into the same thing: a [`Snapshot`], whose counters know their key and the place of their number
//! in the text. Pairing ([`diff`]) and printing ([`render`]) then need no format of their own, and the differences can be
//! put into the AFTER text where the numbers stood.

pub mod collect;
pub mod diagnose;
pub mod diff;
pub mod render;

mod columns;
mod csv;
mod detect;
mod fold;
mod json;
mod lines;
mod openmetrics;
mod pairing;
mod percpu;
mod prose;
mod value;
mod words;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

pub use value::Value;

use crate::error::{Error, Place};

/// The formats that are told apart, by content or by `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `netstat -s`
    NetstatS,
    /// `/proc/net/snmp`, `/proc/net/netstat`: a line of names, then a line of values
    Snmp,
    /// `/proc/net/snmp6`
    Snmp6,
    /// `/proc/net/dev`
    Dev,
    /// `/proc/net/softnet_stat`: hexadecimal, a line per CPU
    Softnet,
    /// `nstat -as`
    Nstat,
    /// `nstat -asj`
    NstatJson,
    /// `ethtool -S`
    Ethtool,
    /// `ethtool --json -S`
    EthtoolJson,
    /// `ip -s -j link`
    IpJson,
    /// `/proc/interrupts`: a column per CPU
    Interrupts,
    /// `/proc/softirqs`: a column per CPU
    Softirqs,
    /// `/proc/vmstat` and other files of `key value` lines
    KeyValue,
    /// Any JSON: numbers by their path
    Json,
    /// OpenMetrics or Prometheus text
    Openmetrics,
    /// CSV with a header: numeric columns, rows by their other columns
    Csv,
    /// Any text: lines by their words
    Text,
}

impl Format {
    /// The name, as `--format` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NetstatS => "netstat-s",
            Self::Snmp => "snmp",
            Self::Snmp6 => "snmp6",
            Self::Dev => "dev",
            Self::Softnet => "softnet",
            Self::Nstat => "nstat",
            Self::NstatJson => "nstat-json",
            Self::Ethtool => "ethtool",
            Self::EthtoolJson => "ethtool-json",
            Self::IpJson => "ip-json",
            Self::Interrupts => "interrupts",
            Self::Softirqs => "softirqs",
            Self::KeyValue => "key-value",
            Self::Json => "json",
            Self::Openmetrics => "openmetrics",
            Self::Csv => "csv",
            Self::Text => "text",
        }
    }

    /// Whether what prints this format leaves out counters that are zero, so that a new line started at zero.
    #[must_use]
    pub fn hides_zeros(self) -> bool {
        matches!(self, Self::NetstatS | Self::Nstat | Self::NstatJson | Self::Snmp)
    }

    /// Whether keys are made of sentences, in which the plural changes with the number and lines may repeat.
    fn is_prose(self) -> bool {
        matches!(self, Self::NetstatS | Self::Text)
    }

    /// Whether the numbers stand in columns that must stay aligned whatever they become.
    fn is_table(self) -> bool {
        matches!(self, Self::Dev | Self::Softnet | Self::Interrupts | Self::Softirqs | Self::Nstat)
    }
}

/// How a counter comes round to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// At 2^32.
    ThirtyTwo,
    /// At 2^64, which does not happen: if it fell, it was set back.
    SixtyFour,
    /// The format does not say.
    Unknown,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows: a difference means something.
    Counter(Bits),
    /// Any number of a format that does not say what it counts: the difference is plain arithmetic, and may be below zero.
    Number,
    /// A state or a setting: it is told, not subtracted.
    Gauge,
}

/// Where a counter's name stands: [`Snapshot::key`] has the name itself. A string of its own for each of millions would
/// cost more than reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    at: usize,
    len: u32,
    /// In the snapshot's own store, because the text does not have it in one piece.
    stored: bool,
}

/// One number of a snapshot.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Index into [`Snapshot::sources`].
    pub source: u32,
    /// The CPU whose part of the counter it is.
    pub cpu: Option<u32>,
    /// Its name within the source.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// What it is.
    pub kind: Kind,
    /// Where it stands in the text: first byte, length.
    pub at: usize,
    /// Length of its digits in bytes.
    pub len: u32,
}

/// One reading.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The file it came from, for messages; `-` for standard input.
    pub file: String,
    /// Its format.
    pub format: Format,
    /// The text itself.
    pub text: &'a str,
    /// Where counters come from: `snmp`, `dev:eth0`, `softirqs`, …
    pub sources: Vec<String>,
    /// The numbers, in the order of the text.
    pub counters: Vec<Counter>,
    /// Names that the text does not have in one piece, one after the other.
    stored: String,
}

/// What a format's reader needs besides the text.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--format`.
    pub format: Option<Format>,
    /// `--key`: the columns that identify a CSV row; empty: those that are not numeric.
    pub key_columns: Vec<String>,
    /// The source's name where the text does not say it (`ethtool:eth0`); the format's name otherwise.
    pub source: Option<String>,
}

/// What is wrong with a text, before its file's name is known.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    line: u64,
    column: Option<String>,
    reason: String,
}

impl Fault {
    fn new(line: u64, reason: impl Into<String>) -> Self {
        Self { line, column: None, reason: reason.into() }
    }
}

/// The snapshot while it is being read.
struct Builder<'a> {
    text: &'a str,
    default_source: String,
    sources: Vec<String>,
    /// Where each source is in `sources`: a file can have very many interfaces.
    places: HashMap<String, u32>,
    counters: Vec<Counter>,
    stored: String,
}

impl<'a> Builder<'a> {
    /// The index of a source, made where it is new. Sources come in runs, so the last is looked at first.
    fn source(&mut self, name: &str) -> u32 {
        let last = self.sources.len().saturating_sub(1);
        if self.sources.last().is_some_and(|s| s == name) {
            return u32::try_from(last).unwrap_or(u32::MAX);
        }
        if let Some(at) = self.places.get(name) {
            return *at;
        }
        let at = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        self.sources.push(name.to_owned());
        self.places.insert(name.to_owned(), at);
        at
    }

    fn default_source(&mut self) -> u32 {
        let name = std::mem::take(&mut self.default_source);
        let at = self.source(&name);
        self.default_source = name;
        at
    }

    /// The key that is a slice of the text.
    fn key_in_text(&self, slice: &'a str) -> Key {
        Key { at: self.offset(slice), len: u32::try_from(slice.len()).unwrap_or(u32::MAX), stored: false }
    }

    /// The key that is made of these parts, stored.
    fn key_of(&mut self, parts: &[&str]) -> Key {
        let at = self.stored.len();
        for part in parts {
            self.stored.push_str(part);
        }
        Key { at, len: u32::try_from(self.stored.len() - at).unwrap_or(u32::MAX), stored: true }
    }

    /// The key that is a slice of the text or had to be made.
    fn key(&mut self, key: Cow<'a, str>) -> Key {
        match key {
            Cow::Borrowed(slice) => self.key_in_text(slice),
            Cow::Owned(made) => self.key_of(&[&made]),
        }
    }

    fn name(&self, key: Key) -> &str {
        resolved(key, self.text, &self.stored)
    }

    /// Adds the number that `digits`, a slice of the text, spells in decimal.
    fn decimal(&mut self, source: u32, key: Key, digits: &'a str, kind: Kind) -> Result<(), Fault> {
        let Some(value) = Value::parse(digits) else {
            return Err(Fault::new(self.line_of(digits), not_a_number(self.name(key), digits)));
        };
        self.push(source, None, key, digits, value, kind);
        Ok(())
    }

    fn push(&mut self, source: u32, cpu: Option<u32>, key: Key, digits: &'a str, value: Value, kind: Kind) {
        let at = self.offset(digits);
        let len = u32::try_from(digits.len()).unwrap_or(u32::MAX);
        self.counters.push(Counter { source, cpu, key, value, kind, at, len });
    }

    /// Where a slice of the text starts in it.
    fn offset(&self, slice: &str) -> usize {
        (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// The line, from 1, in which a slice of the text starts.
    fn line_of(&self, slice: &str) -> u64 {
        line_at(self.text, self.offset(slice))
    }
}

fn resolved<'s>(key: Key, text: &'s str, stored: &'s str) -> &'s str {
    let store = if key.stored { stored } else { text };
    store.get(key.at..key.at + key.len as usize).unwrap_or_default()
}

fn not_a_number(key: &str, cell: &str) -> String {
    let cell = clip(cell);
    if cell.bytes().all(|b| b.is_ascii_digit()) && !cell.is_empty() {
        format!("the value `{cell}` of `{key}` does not fit 64 bits")
    } else {
        format!("the value `{cell}` of `{key}` is not a number")
    }
}

/// The start of a cell, short enough for a message.
fn clip(cell: &str) -> Cow<'_, str> {
    match cell.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &cell[..end]).into(),
        None => cell.into(),
    }
}

/// The line, from 1, of a byte of a text.
fn line_at(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count() as u64 + 1
}

impl<'a> Snapshot<'a> {
    /// Reads a text. `file` is for messages.
    pub fn read(file: &str, text: &'a str, options: &Options) -> Result<Self, Error> {
        let fail = |fault: Fault| Error::Data {
            place: Place { file: file.to_owned(), line: fault.line, column: fault.column },
            reason: fault.reason,
        };
        if text.trim().is_empty() {
            return Err(fail(Fault::new(0, "the snapshot is empty")));
        }
        let format = options.format.unwrap_or_else(|| detect::detect(text));
        let default_source = options.source.clone().unwrap_or_else(|| format.name().to_owned());
        let mut b = Builder {
            text,
            default_source,
            sources: Vec::new(),
            places: HashMap::new(),
            counters: Vec::new(),
            stored: String::new(),
        };
        match format {
            Format::NetstatS | Format::Text => {
                prose::read(&mut b, format == Format::NetstatS);
                Ok(())
            }
            Format::Snmp => columns::snmp(&mut b),
            Format::Dev => columns::dev(&mut b),
            Format::Softnet => percpu::softnet(&mut b),
            Format::Interrupts | Format::Softirqs => percpu::interrupts(&mut b),
            Format::Snmp6 | Format::KeyValue | Format::Nstat => lines::key_value(&mut b, format),
            Format::Ethtool => lines::ethtool(&mut b),
            Format::NstatJson | Format::EthtoolJson | Format::IpJson | Format::Json => json::read(&mut b, format),
            Format::Openmetrics => openmetrics::read(&mut b),
            Format::Csv => csv::read(&mut b, &options.key_columns),
        }
        .map_err(fail)?;
        Ok(Self { file: file.to_owned(), format, text, sources: b.sources, counters: b.counters, stored: b.stored })
    }

    /// The line, from 1, of a byte of the text.
    #[must_use]
    pub fn line(&self, at: usize) -> u64 {
        line_at(self.text, at)
    }

    /// The name of a counter.
    #[must_use]
    pub fn key(&self, counter: &Counter) -> &str {
        resolved(counter.key, self.text, &self.stored)
    }

    /// The source of a counter.
    #[must_use]
    pub fn source_of(&self, counter: &Counter) -> &str {
        self.sources.get(counter.source as usize).map_or("", String::as_str)
    }
}
