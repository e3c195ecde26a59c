//! netperf: tables for people, `-o`, `-k`, `-O`, and interim results (`-D`).
//!
//! A figure means nothing without its test and its unit. The banner and the selectors `PROTOCOL`, `DIRECTION` and
//! `COMMAND_LINE` say which test ran, headings and `THROUGHPUT_UNITS` say the unit. Where none does, the command line
//! must (`--workload`, `--unit`).

mod classic;
mod omni;
mod unit;

use super::imported::{ImportedRows, host, whole};
use crate::{error::ParseError, table};
use classic::{Heading, Kind};
use omni::Collected;
use schemas::columns::Row;
use unit::{Interim, Unit};

/// Whether netperf wrote it.
pub fn looks_like(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().take(200).collect();
    let line = |l: &&str| {
        let words: Vec<&str> = l.split_whitespace().take(4).collect();
        l.starts_with("Interim result:")
            || l.starts_with("NETPERF_")
            || failure(l)
            || omni::key_value(l).is_some()
            || omni::csv_header(l)
            || omni::csv_interim(l).is_some()
            || banner(l).is_some_and(|title| Kind::of_title(title) != Kind::default())
            || (l.contains(" TEST from ") && l.contains(" port "))
            || matches!(words.as_slice(), ["Recv", "Send", "Send" | "Recv", ..] | ["Local", "/Remote"])
    };
    lines.iter().any(line) || (0..lines.len()).any(|at| block_at(&lines, at).is_some())
}

/// Whether a unit is one of netperf's.
pub fn is_unit(text: &str) -> bool {
    Unit::of_rate(text).is_some()
}

/// The workload of a name of netperf's (`TCP_RR`) or of a plan (`tcp_rr`).
pub fn workload_of(name: &str) -> Option<String> {
    let (transport, pattern) = Kind::of_name(name, "--workload")?.known(0).ok()?;
    Some(classic::workload(&transport, pattern))
}

fn block_at<'t>(lines: &[&'t str], at: usize) -> Option<Vec<(&'static str, &'t str)>> {
    omni::block(lines.get(at..at + 5)?.try_into().ok()?)
}

/// netperf says so where no netserver answers; it prints no banner then.
fn failure(line: &str) -> bool {
    line.starts_with("establish control: ") || line.starts_with("establish_control could not ")
}

/// The title of a banner.
fn banner(line: &str) -> Option<&str> {
    let (title, _) = line.split_once(" from ").or_else(|| line.trim_end().ends_with(" TEST").then_some((line, "")))?;
    let title = title.trim();
    (title.ends_with("TEST") && !title.contains(':')).then_some(title)
}

fn hosts(line: &str) -> (Option<String>, Option<String>) {
    let name = |text: &str| text.split([' ', '(']).find(|w| !w.is_empty()).and_then(host);
    let ends = line.split_once(" from ").and_then(|(_, rest)| rest.split_once(" to "));
    ends.map_or((None, None), |(from, to)| (name(from), name(to)))
}

/// The test whose lines are being read.
#[derive(Default)]
struct Test<'t> {
    /// Line of the banner; 0 without one.
    line: usize,
    kind: Kind,
    hosts: (Option<String>, Option<String>),
    /// Transactions in flight, which a banner with `first burst N` names: N beyond the first.
    inflight: Option<u64>,
    heading: Heading,
    interims: Vec<Interim>,
    /// Values of `-k` and `-O`, until a selector repeats or the test ends.
    collected: Collected<'t>,
    results: usize,
}

impl<'t> Test<'t> {
    fn begin(line: usize, title: &str, text: &str, given: &Kind) -> Result<Self, ParseError> {
        let kind = Kind::of_title(title);
        if kind == Kind::default() && !title.starts_with("OMNI") {
            return Err(ParseError::new(line, format!("netperf's `{title}` measures nothing that has a column")));
        }
        let burst = text.split_once(": first burst ").and_then(|(_, rest)| whole(rest.split_whitespace().next()?));
        let inflight = burst.filter(|burst: &u64| *burst > 0).map(|burst| burst.saturating_add(1));
        Ok(Self { line, kind: kind.and(given, line)?, hosts: hosts(text), inflight, ..Self::default() })
    }

    /// Adds the row of a result, and the interim results before it.
    fn add(&mut self, mut row: Row, imported: &mut ImportedRows) -> Result<(), ParseError> {
        (row.from, row.to) = (row.from.or(self.hosts.0.clone()), row.to.or(self.hosts.1.clone()));
        row.inflight = row.inflight.or(self.inflight.filter(|_| row.transactions_per_s.is_some()));
        for interim in std::mem::take(&mut self.interims) {
            let mut interim = interim.of(&row, imported)?;
            (interim.from, interim.to) = (row.from.clone(), row.to.clone());
            imported.add(interim);
        }
        imported.add_last(row);
        self.results += 1;
        Ok(())
    }

    /// Takes a selector's value. A repeated selector begins the next result.
    fn take(
        &mut self,
        selector: &'static str,
        value: &'t str,
        line: usize,
        imported: &mut ImportedRows,
    ) -> Result<(), ParseError> {
        if self.collected.values.iter().any(|(s, _)| *s == selector) {
            self.flush(imported)?;
        }
        self.collected.values.push((selector, value));
        self.collected.line = line;
        Ok(())
    }

    fn flush(&mut self, imported: &mut ImportedRows) -> Result<(), ParseError> {
        let collected = std::mem::take(&mut self.collected);
        if collected.values.is_empty() {
            return Ok(());
        }
        let row = collected.row(&self.kind, imported)?;
        self.add(row, imported)
    }

    /// Ends the test; a test that began has a result.
    fn end(&mut self, imported: &mut ImportedRows) -> Result<(), ParseError> {
        self.flush(imported)?;
        let began = if self.results == 0 { self.line } else { 0 };
        match self.interims.first().map_or(began, |i| i.line) {
            0 => Ok(()),
            line => Err(ParseError::new(line, "the test that begins here has no result: it failed or was cut off")),
        }
    }
}

/// Reads all forms, also one after the other. Other lines are ignored, because shells and scripts print between results.
#[expect(clippy::similar_names, reason = "`test` is the test of `text`")]
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let lines: Vec<&str> = text.lines().collect();
    let given =
        imported.given.workload.as_deref().and_then(|name| Kind::of_name(name, "--workload")).unwrap_or_default();
    let from_options = Heading::given(&given, imported.given.unit.as_deref().and_then(Unit::of_rate));
    let mut test = Test { kind: given.clone(), heading: from_options, ..Test::default() };
    let mut header: Option<Vec<&str>> = None;
    let mut keyed: [Option<&str>; 3] = [None; 3];
    let mut bare = None;
    let mut at = 0;
    while let Some(line) = lines.get(at).copied() {
        // Lines are counted from 1; `at` is already the next one.
        at += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(title) = banner(line) {
            test.end(imported)?;
            test = Test::begin(at, title, line, &given)?;
            header = None;
        } else if failure(line) {
            return Err(ParseError::new(at, format!("netperf failed: {}", line.trim())));
        } else if line.starts_with("Interim result:") {
            test.flush(imported)?;
            test.interims.push(Interim::parse(line, at, imported)?);
        } else if let Some([rate, units, seconds, ending]) =
            omni::csv_interim(line).filter(|_| header.as_ref().is_none_or(|names| names.len() != 4))
        {
            let line = format!("{rate} {units} over {seconds} seconds ending at {ending}");
            test.interims.push(Interim::parse(&line, at, imported)?);
        } else if let Some((key, value)) = line.strip_prefix("NETPERF_").and_then(|l| l.split_once('=')) {
            test.flush(imported)?;
            let slot = match key.split('[').next() {
                Some("INTERIM_RESULT") => 0,
                Some("UNITS") => 1,
                Some("INTERVAL") => 2,
                Some("ENDING") => {
                    let [Some(rate), Some(units), Some(seconds)] = std::mem::take(&mut keyed) else {
                        return Err(ParseError::new(at, "the interim result lacks its value, units or interval"));
                    };
                    let line = format!("{rate} {units} over {seconds} seconds ending at {value}");
                    test.interims.push(Interim::parse(&line, at, imported)?);
                    continue;
                }
                _ => continue,
            };
            keyed[slot] = Some(value);
        } else if let Some((selector, value)) = omni::key_value(line) {
            test.take(selector, value, at, imported)?;
        } else if omni::csv_header(line)
            || (test.line > 0 && omni::of_title(line).is_some() && block_at(&lines, at - 1).is_none())
        {
            let names: Vec<&str> = line.split(',').collect();
            let values = lines.get(at).copied().unwrap_or_default();
            at += 1;
            let row = csv_row(&names, values, at, &test.kind, imported)?;
            test.add(row, imported)?;
            header = Some(names);
        } else if let Some(names) = header.as_ref().filter(|_| is_csv_result(line)) {
            let row = csv_row(names, line, at, &test.kind, imported)?;
            test.add(row, imported)?;
        } else if let Some(block) = block_at(&lines, at - 1) {
            at += 4;
            for (selector, value) in block {
                test.take(selector, value, at, imported)?;
            }
        } else if line.starts_with("!!! WARNING") {
            imported.note("netperf warned that it did not reach the confidence asked for");
        } else if test.heading.take(&words) {
        } else if let Some(wanted) = test.heading.fits(&words) {
            let second: Vec<&str> = lines.get(at).map(|l| l.split_whitespace().collect()).unwrap_or_default();
            let row = classic::result(&words, &second, wanted, &test.heading, &test.kind, at, imported)?;
            test.add(row, imported)?;
            if test.heading.has_second_line() {
                at += 1;
            }
            // A second result under the same headings (-P 0 in a script) has the same shape; a table of -v 2 has
            // another.
            if lines.get(at).is_some_and(|l| l.trim().is_empty() || l.starts_with("Alignment")) {
                test.heading.forget();
            }
        } else if !words.is_empty() && words.iter().all(|w| w.split(',').all(|f| super::imported::number(f).is_some()))
        {
            bare = bare.or(Some(at));
        }
    }
    test.end(imported)?;
    match bare {
        Some(line) if imported.is_empty() => Err(ParseError::new(
            line,
            "figures without netperf's headings (-P 0, -v 0) do not say which test ran, nor their unit: run it without \
             these options, or name both for a table (--workload tcp_stream --unit 10^6bits/s)",
        )),
        _ => Ok(()),
    }
}

/// Whether a line under the headings of `-o` is a result, and not what a script prints.
fn is_csv_result(line: &str) -> bool {
    let first = line.split(',').next().unwrap_or_default().trim();
    line.contains(',') && (super::imported::number(first).is_some() || line.starts_with(['T', 'U', 'S', 'D']))
}

fn csv_row(names: &[&str], line: &str, at: usize, kind: &Kind, imported: &mut ImportedRows) -> Result<Row, ParseError> {
    // netperf quotes its tag and its command line only.
    let values: Vec<&str> = table::fields(line).0.into_iter().map(|field| &line[field]).collect();
    if values.len() != names.len() {
        let reason = format!("the line has {} values under {} headings", values.len(), names.len());
        return Err(ParseError::new(at, reason));
    }
    let pairs = names.iter().zip(values);
    let values = pairs.filter_map(|(name, value)| Some((omni::of_title(name)?, value))).collect();
    Collected { values, line: at }.row(kind, imported)
}
