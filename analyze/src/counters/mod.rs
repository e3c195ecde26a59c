//! Counters that kernels and programs print, and the differences between two snapshots.
//!
//! Every format is read into a [`Snapshot`]: a list of counters, each with its key and the place of its number in the text.
//! [`diff`] pairs counters by key and subtracts them; [`render`] writes the differences. Both work for all formats, and the
//! text output puts each difference where the number stood.

mod builder;
pub mod collect;
mod csv;
pub mod diagnose;
pub mod diff;
mod json;
mod lines;
mod openmetrics;
mod prose;
pub mod render;

pub use builder::Value;

use crate::{
    error::{Error, ParseError},
    word,
};
use builder::Builder;
use std::rc::Rc;

/// The formats of snapshots.
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
    /// Whether programs leave out zeros in this format, so that a new counter started at zero.
    fn hides_zeros(self) -> bool {
        matches!(self, Self::NetstatS | Self::Nstat | Self::NstatJson | Self::Snmp)
    }

    /// Whether keys are sentences: plurals change with the number, and lines may repeat.
    fn is_prose(self) -> bool {
        matches!(self, Self::NetstatS | Self::Text)
    }

    /// Whether the numbers stand in columns that stay aligned.
    fn is_table(self) -> bool {
        matches!(self, Self::Dev | Self::Softnet | Self::Interrupts | Self::Softirqs | Self::Nstat)
    }
}

/// Width at which a counter wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    ThirtyTwo,
    /// A wrap at 2^64 does not happen: a counter that fell was reset.
    SixtyFour,
    /// The format does not tell.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter(Bits),
    /// A number of a format that does not tell counters from levels. The difference may be negative.
    Number,
    /// A state or a setting: shown, not subtracted.
    Gauge,
}

/// One number of a snapshot.
#[derive(Clone, Debug)]
pub struct Counter {
    /// `snmp`, `dev:eth0`, `softirqs`, …
    pub source: Rc<str>,
    /// The CPU, where this is its part of the counter.
    pub cpu: Option<u32>,
    /// Name within the source.
    pub key: String,
    pub value: Value,
    pub kind: Kind,
    /// First byte of its digits in the text.
    pub at: usize,
    pub len: usize,
}

/// The counters of one text.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// For messages; `-` is standard input.
    pub file: &'a str,
    pub format: Format,
    pub text: &'a str,
    /// In the order of the text.
    pub counters: Vec<Counter>,
}

/// Options of the readers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--format`.
    pub format: Option<Format>,
    /// `--key`: columns that identify a CSV row; empty: those that are not numeric.
    pub key_columns: Vec<String>,
    /// Name of the source where the text does not tell it (`ethtool:eth0`) [default: the format's name].
    pub source: Option<String>,
}

impl<'a> Snapshot<'a> {
    /// Parses a text. `file` is for messages.
    pub fn read(file: &'a str, text: &'a str, options: &Options) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(ParseError::new(0, "the snapshot is empty").of(file));
        }
        let format = options.format.unwrap_or_else(|| detect(text));
        let mut b = Builder::new(text, &options.source.clone().unwrap_or_else(|| word(&format)));
        match format {
            Format::NetstatS | Format::Text => {
                prose::read(&mut b, format == Format::NetstatS);
                Ok(())
            }
            Format::Snmp => lines::snmp(&mut b),
            Format::Dev => lines::dev(&mut b),
            Format::Softnet => lines::softnet(&mut b),
            Format::Interrupts | Format::Softirqs => lines::interrupts(&mut b),
            Format::Snmp6 | Format::KeyValue | Format::Nstat => lines::key_value(&mut b, format),
            Format::Ethtool => lines::ethtool(&mut b),
            Format::NstatJson | Format::EthtoolJson | Format::IpJson | Format::Json => json::read(&mut b, format),
            Format::Openmetrics => openmetrics::read(&mut b),
            Format::Csv => csv::read(&mut b, &options.key_columns),
        }
        .map_err(|error| error.of(file))?;
        Ok(Self { file, format, text, counters: b.counters })
    }

    /// Parses BEFORE and AFTER, each a file's name and its text. Both must have the same format.
    pub fn read_pair(
        before: (&'a str, &'a str),
        after: (&'a str, &'a str),
        options: &Options,
    ) -> Result<(Self, Self), Error> {
        let (before, after) = (Self::read(before.0, before.1, options)?, Self::read(after.0, after.1, options)?);
        if before.format != after.format {
            return Err(Error::Usage(format!(
                "{} looks like {}, {} like {}: say which it is with --format",
                before.file,
                word(&before.format),
                after.file,
                word(&after.format)
            )));
        }
        Ok((before, after))
    }
}

/// The line, from 1, of a byte of a text.
fn line_at(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count() + 1
}

// Detects the format of a text from its first lines.

/// Number of lines that decide.
const LOOK: usize = 64;

/// The format of a text; [`Format::Text`] where no other fits.
fn detect(text: &str) -> Format {
    let start = text.trim_start();
    if start.starts_with(['{', '[']) {
        return json(text);
    }
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).take(LOOK).collect();
    let Some(first) = lines.first() else { return Format::Text };
    let words = || first.split_whitespace();
    if first.starts_with("Inter-|") {
        Format::Dev
    } else if first.trim_start().starts_with("NIC statistics:") || first.starts_with("Standard stats for ") {
        Format::Ethtool
    } else if words().count() >= 9 && words().all(|w| w.len() == 8 && w.bytes().all(|b| b.is_ascii_hexdigit())) {
        Format::Softnet
    } else if words().all(|w| w.strip_prefix("CPU").is_some_and(|n| n.parse::<u32>().is_ok())) {
        let softirqs = lines.iter().any(|l| l.trim_start().starts_with("NET_RX:"));
        if softirqs { Format::Softirqs } else { Format::Interrupts }
    } else if words().next() == Some("#kernel") {
        Format::Nstat
    } else if is_two_line(&lines) {
        Format::Snmp
    } else if is_netstat_s(&lines) {
        Format::NetstatS
    } else if openmetrics::looks_like(&lines) {
        Format::Openmetrics
    } else if is_key_value(&lines) {
        if lines.iter().all(|l| l.starts_with("Ip6") || l.starts_with("Icmp6") || l.starts_with("Udp")) {
            Format::Snmp6
        } else {
            Format::KeyValue
        }
    } else if is_csv(&lines) {
        Format::Csv
    } else {
        Format::Text
    }
}

fn is_two_line(lines: &[&str]) -> bool {
    let [names, values, ..] = lines else { return false };
    let (Some((a, names)), Some((b, values))) = (names.split_once(": "), values.split_once(": ")) else {
        return false;
    };
    a == b
        && !a.contains(char::is_whitespace)
        && names.split_whitespace().all(|w| w.starts_with(|c: char| c.is_ascii_alphabetic()))
        && values.split_whitespace().all(|w| Value::parse(w).is_some())
}

fn is_netstat_s(lines: &[&str]) -> bool {
    const SECTIONS: &[&str] = &["ip", "icmp", "tcp", "udp", "tcpext", "ipext", "ip6", "udplite", "sctp", "mptcpext"];
    lines.iter().any(|l| l.strip_suffix(':').is_some_and(|s| SECTIONS.contains(&s.to_ascii_lowercase().as_str())))
        && lines.iter().any(|l| l.starts_with([' ', '\t']))
}

fn is_key_value(lines: &[&str]) -> bool {
    lines.iter().all(|l| {
        let mut words = l.split_whitespace();
        let (key, value) = (words.next(), words.next());
        key.is_some_and(|k| Value::parse(k).is_none() && !k.contains(','))
            && value.is_some_and(|v| Value::parse(v).is_some())
            && words.next().is_none()
    })
}

fn is_csv(lines: &[&str]) -> bool {
    let [header, row, ..] = lines else { return false };
    // Commas outside quotes: every second piece between quotes is inside.
    let commas = |l: &str| l.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
    commas(header) > 0
        && !header.contains(": ")
        && header.split(',').all(|name| !name.is_empty() && Value::parse(name).is_none())
        && commas(header) == commas(row)
}

fn json(text: &str) -> Format {
    // The first keys decide. They are compared as text, so that a document that is broken further on counts as JSON,
    // too, and its reader names the place.
    let end = text.char_indices().nth(4096).map_or(text.len(), |(at, _)| at);
    let head: String = text[..end].chars().filter(|c| !c.is_whitespace()).collect();
    if head.starts_with("{\"kernel\":{") {
        Format::NstatJson
    } else if head.starts_with("[{\"ifindex\":") || head.contains("\"stats64\":") {
        Format::IpJson
    } else if head.starts_with("[{\"ifname\":") {
        Format::EthtoolJson
    } else {
        Format::Json
    }
}

#[cfg(test)]
mod tests;
