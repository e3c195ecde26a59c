//! Counters out of what kernels and programs print, and the differences between two readings.
//!
//! Every format is read into the same thing: a [`Snapshot`], whose counters know their key and the place of their number
//! in the text. Pairing ([`diff`]) and printing ([`render`]) then need no format of their own, and the differences can be
//! put into the AFTER text where the numbers stood.

pub mod collect;
pub mod diagnose;
pub mod diff;
pub mod losses;
pub mod render;
pub mod walk;

mod builder;
mod columns;
mod csv;
mod detect;
mod fold;
mod json;
mod lines;
mod openmetrics;
mod pairing;
mod part;
mod percpu;
mod prose;
mod value;
mod words;

#[cfg(test)]
mod tests;

pub use value::Value;

use crate::error::Error;
use builder::{Builder, Fault};
use part::Part;

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
struct Key {
    at: usize,
    /// Its length, and the highest bit. Two fields are handed over in registers; three are not, which was a third of the
    /// time that reading takes.
    len: u32,
}

impl Key {
    /// Set where the name is in the snapshot's own store, because the text does not have it in one piece.
    const STORED: u32 = 1 << 31;

    fn in_text(at: usize, len: usize) -> Self {
        Self { at, len: u32::try_from(len).unwrap_or(u32::MAX) & !Self::STORED }
    }

    fn stored(at: usize, len: usize) -> Self {
        Self { at, len: Self::in_text(at, len).len | Self::STORED }
    }

    fn is_stored(self) -> bool {
        self.len & Self::STORED != 0
    }

    fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + (self.len & !Self::STORED) as usize
    }
}

/// One number of a snapshot.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Which of the snapshot's sources: [`Snapshot::source_of`] has its name.
    source: u32,
    /// The CPU whose part of the counter it is.
    pub cpu: Option<u32>,
    /// Its name within the source.
    key: Key,
    /// Its value.
    pub value: Value,
    /// What it is.
    pub kind: Kind,
    /// Where it stands in the text: first byte, length.
    pub at: usize,
    /// Length of its digits in bytes.
    pub len: u32,
}

/// What is read from a text, without the text.
#[derive(Clone, Debug, Default)]
struct Store {
    /// Where counters come from: `snmp`, `dev:eth0`, `softirqs`, …; the same one may be there again after another.
    sources: Vec<Key>,
    /// The numbers, in the order of the text.
    counters: Vec<Counter>,
    /// Names that the text does not have in one piece, one after the other.
    names: String,
}

impl Store {
    fn name<'s>(&'s self, key: Key, text: &'s str) -> &'s str {
        let from = if key.is_stored() { &self.names } else { text };
        from.get(key.range()).unwrap_or_default()
    }

    /// Nothing, in memory that can be used again.
    fn emptied(mut self) -> Self {
        self.sources.clear();
        self.counters.clear();
        self.names.clear();
        self
    }
}

/// One reading, or a part of one.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The file it came from, for messages; `-` for standard input.
    pub file: &'a str,
    /// Its format.
    pub format: Format,
    /// The text itself, all of it.
    text: &'a str,
    /// What has been read of the text.
    part: Part,
    store: Store,
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

/// A text that is to be read.
#[derive(Clone, Copy)]
struct Text<'a, 'o> {
    file: &'a str,
    all: &'a str,
    format: Format,
    options: &'o Options,
}

impl<'a, 'o> Text<'a, 'o> {
    /// Finds its format out, where the options do not say it.
    fn new(file: &'a str, text: &'a str, options: &'o Options) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Fault::new(0, "the snapshot is empty").of(file));
        }
        Ok(Self { file, all: text, format: options.format.unwrap_or_else(|| detect::detect(text)), options })
    }

    /// Reads a part into memory that was used before.
    fn read(&self, part: Part, store: Store) -> Result<Snapshot<'a>, Error> {
        let Self { file, all: text, format, options } = *self;
        let mut b = Builder::new(text, part, options.source.as_deref().unwrap_or(format.name()), store.emptied());
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
        .map_err(|fault| fault.of(file))?;
        Ok(Snapshot { file, format, text, part, store: b.finish() })
    }
}

impl<'a> Snapshot<'a> {
    /// Reads a text. `file` is for messages.
    pub fn read(file: &'a str, text: &'a str, options: &Options) -> Result<Self, Error> {
        Text::new(file, text, options)?.read(Part::whole(text), Store::default())
    }

    /// The numbers, in the order of the text.
    #[must_use]
    pub fn counters(&self) -> &[Counter] {
        &self.store.counters
    }

    /// The line, from 1, of a byte of the text.
    #[must_use]
    pub fn line(&self, at: usize) -> u64 {
        line_at(self.text, at)
    }

    /// The name of a counter.
    #[must_use]
    pub fn key(&self, counter: &Counter) -> &str {
        self.store.name(counter.key, self.text)
    }

    /// The source of a counter.
    #[must_use]
    pub fn source_of(&self, counter: &Counter) -> &str {
        self.store.sources.get(counter.source as usize).map_or("", |name| self.store.name(*name, self.text))
    }
}

/// The line, from 1, of a byte of a text.
fn line_at(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count() as u64 + 1
}
