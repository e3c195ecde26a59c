//! Other programs' outputs, read into rows of the results table.
//!
//! Each reader knows one program. What a program means by its numbers is converted to what the table means by its columns,
//! and every conversion that changes a number's size or meaning is told in [`Sheet::notes`].

mod hpcbench;
mod iperf3;
mod lmbench;
mod netperf;
mod netperf_classic;
mod netpipe;
mod nuttcp;
mod ping;
mod qperf;
mod sockperf;

#[cfg(test)]
mod tests;

use schemas::columns::{AXIS_PREFIX, CellError, ColumnType as T, Row};
use schemas::words::{Phase, Record, Status, Way};

use crate::error::{Error, Place};

/// The programs whose output is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// netperf: tables, -o (CSV), -k (key=value), -D (interim results)
    Netperf,
    /// iperf3 -J, and its JSON stream
    Iperf3,
    /// hpcbench: console, result files, exponential and latency tests, system logs
    Hpcbench,
    /// NetPIPE: console (versions 2 and 3) and np.out
    Netpipe,
    /// lmbench: `bw_*` and `lat_*`
    Lmbench,
    /// sockperf ping-pong, under-load, throughput
    Sockperf,
    /// qperf
    Qperf,
    /// nuttcp, also -fparse
    Nuttcp,
    /// ping
    Ping,
}

impl Program {
    /// The name, as `--from` takes it and as the `plan` column shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Netperf => "netperf",
            Self::Iperf3 => "iperf3",
            Self::Hpcbench => "hpcbench",
            Self::Netpipe => "netpipe",
            Self::Lmbench => "lmbench",
            Self::Sockperf => "sockperf",
            Self::Qperf => "qperf",
            Self::Nuttcp => "nuttcp",
            Self::Ping => "ping",
        }
    }

    /// The program that wrote a text, where its content shows it. The more telling marks are looked for first.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        type LooksLike = fn(&str) -> bool;
        const TESTS: &[(Program, LooksLike)] = &[
            (Program::Iperf3, iperf3::looks_like),
            (Program::Sockperf, sockperf::looks_like),
            (Program::Hpcbench, hpcbench::looks_like),
            (Program::Ping, ping::looks_like),
            (Program::Netperf, netperf::looks_like),
            (Program::Nuttcp, nuttcp::looks_like),
            (Program::Lmbench, lmbench::looks_like),
            (Program::Qperf, qperf::looks_like),
            (Program::Netpipe, netpipe::looks_like),
        ];
        TESTS.iter().find(|(_, test)| test(text)).map(|(program, _)| *program)
    }

    fn read(self, text: &str, sheet: &mut Sheet) -> Result<(), Fault> {
        match self {
            Self::Netperf => netperf::read(text, sheet),
            Self::Iperf3 => iperf3::read(text, sheet),
            Self::Hpcbench => hpcbench::read(text, sheet),
            Self::Netpipe => netpipe::read(text, sheet),
            Self::Lmbench => lmbench::read(text, sheet),
            Self::Sockperf => sockperf::read(text, sheet),
            Self::Qperf => qperf::read(text, sheet),
            Self::Nuttcp => nuttcp::read(text, sheet),
            Self::Ping => ping::read(text, sheet),
        }
    }
}

/// What is wrong with an output, before its file's name is known.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    line: u64,
    reason: String,
}

impl Fault {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line: line as u64, reason: reason.into() }
    }

    /// A line that its program would not have written.
    fn line(line: usize, wanted: &str, found: &str) -> Self {
        let found: String = found.trim().chars().take(60).collect();
        Self::new(line, format!("expected {wanted}, found `{found}`"))
    }
}

/// Rows from one or more outputs.
#[derive(Debug, Default)]
pub struct Sheet {
    rows: Vec<(u64, Row)>,
    run: u64,
    notes: Vec<String>,
    /// The run that intervals were last read of, and the Unix time at which its first one started.
    first_interval: Option<(u64, f64)>,
}

impl Sheet {
    /// What was converted, each said once.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Reads one output.
    pub fn read(&mut self, file: &str, text: &str, program: Option<Program>) -> Result<(), Error> {
        let fail = |fault: Fault| Error::Data {
            place: Place { file: file.to_owned(), line: fault.line, column: None },
            reason: fault.reason,
        };
        if text.trim().is_empty() {
            return Err(fail(Fault::new(0, "there is nothing in it")));
        }
        let Some(program) = program.or_else(|| Program::detect(text)) else {
            let reason = "no known program writes this; say whose output it is with --from, if it is one of theirs";
            return Err(fail(Fault::new(0, reason)));
        };
        let before = self.rows.len();
        program.read(text, self).map_err(fail)?;
        if self.rows.len() == before {
            let reason = format!("there is no result of {} in it", program.name());
            return Err(fail(Fault::new(0, reason)));
        }
        for (_, row) in &mut self.rows[before..] {
            row.plan = Some(program.name().to_owned());
            // Only iperf3 prints more digits than a person would; the others' must not grow by a change of unit.
            if program != Program::Iperf3 {
                without_noise(row);
            }
        }
        self.run += 1;
        Ok(())
    }

    /// The next rows belong to another run.
    fn next_run(&mut self) {
        self.run += 1;
    }

    fn add(&mut self, row: Row) {
        self.rows.push((self.run, row));
    }

    /// Seconds from the start of the run's first interval to one that starts at this Unix time.
    fn since_first(&mut self, start: f64) -> f64 {
        match self.first_interval {
            Some((run, first)) if run == self.run => ((start - first) * 1e3).round() / 1e3,
            _ => {
                self.first_interval = Some((self.run, start));
                0.0
            }
        }
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|n| n == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// The rows with their cases named and their iterations numbered: runs of one case are its iterations.
    #[must_use]
    pub fn finish(mut self) -> Vec<Row> {
        self.name_intervals();
        let mut runs: std::collections::HashMap<String, Vec<u64>> = std::collections::HashMap::new();
        let mut rows = Vec::with_capacity(self.rows.len());
        for (run, mut row) in self.rows {
            let case = case_of(&row);
            let case_id = format!("c{:016x}", fnv1a(&format!("{case} {:?}", (&row.plan, &row.transport, row.streams))));
            let seen = runs.entry(case_id.clone()).or_default();
            let iteration = seen.iter().position(|r| *r == run).unwrap_or_else(|| {
                seen.push(run);
                seen.len() - 1
            });
            row.test = row.test.or_else(|| row.workload.clone());
            row.case = Some(case);
            row.case_id = Some(case_id);
            row.iteration = row.iteration.or(Some(iteration as u64 + 1));
            rows.push(row);
        }
        rows
    }
}

impl Sheet {
    /// Intervals are printed before the result that says what ran: they take it over from the only result of their run.
    fn name_intervals(&mut self) {
        let is = |row: &Row, record| row.record == Some(record);
        let mut results: std::collections::HashMap<u64, Vec<Row>> = std::collections::HashMap::new();
        for (run, row) in self.rows.iter().filter(|(_, row)| is(row, Record::Iteration)) {
            results.entry(*run).or_default().push(row.clone());
        }
        for (run, row) in self.rows.iter_mut().filter(|(_, row)| is(row, Record::Interval)) {
            let Some([result]) = results.get(run).map(Vec::as_slice) else { continue };
            row.workload.clone_from(&result.workload);
            row.transport.clone_from(&result.transport);
            if row.stream.is_none() {
                row.direction = result.direction;
            }
            (row.message_bytes, row.streams) = (result.message_bytes, result.streams);
            (row.request_bytes, row.response_bytes) = (result.request_bytes, result.response_bytes);
            (row.from, row.to) = (row.from.take().or(result.from.clone()), row.to.take().or(result.to.clone()));
            row.tag.clone_from(&result.tag);
        }
    }
}

/// Twelve digits of every number: 516.5383 Mbit/s are 516538300 bit/s and not 516538300.00000006.
fn without_noise(row: &mut Row) {
    for column in schemas::columns::COLUMNS.iter().filter(|c| c.ty == T::Number) {
        if let Some(value) = row.number(column.name) {
            row.set_number(column.name, format!("{value:.11e}").parse().ok());
        }
    }
}

/// A readable name for what was run, in the manner of plans: the workload and the sizes.
fn case_of(row: &Row) -> String {
    let name = row.test.as_deref().or(row.workload.as_deref()).unwrap_or("import");
    let sizes: Vec<String> = [
        ("message_size", row.message_bytes),
        ("request_size", row.request_bytes),
        ("response_size", row.response_bytes),
        ("streams", row.streams.filter(|s| *s > 1)),
    ]
    .into_iter()
    .filter_map(|(key, size)| size.map(|size| format!("{key}={size}")))
    .collect();
    if sizes.is_empty() { name.to_owned() } else { format!("{name}[{}]", sizes.join(",")) }
}

/// FNV-1a, 64 bits: case identifiers must be the same on every machine and for ever.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A row of a finished measurement of a workload.
fn measured(workload: &str) -> Row {
    let transport = workload.split('_').next().unwrap_or(workload);
    Row {
        record: Some(Record::Iteration),
        phase: Some(Phase::Measure),
        status: Some(Status::Ok),
        direction: Some(Way::Forward),
        workload: Some(workload.to_owned()),
        transport: Some(if transport == "ping" { "icmp" } else { transport }.to_owned()),
        ..Row::default()
    }
}

/// A decimal number; units and commas behind it are not accepted.
fn number(text: &str) -> Option<f64> {
    let ok = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    if ok { text.parse().ok().filter(|v: &f64| v.is_finite()) } else { None }
}

fn whole(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A count that came as a double.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as a count may")]
fn count(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0).then(|| value.round() as u64)
}

/// Columns that say what was measured, or how it went.
const MEASURED: [&str; 12] = [
    "record",
    "status",
    "error",
    "settled",
    "control",
    "offered_unit",
    "latency_kind",
    "latency_histogram",
    "receive_call_histogram",
    "service_demand_unit",
    "confident",
    "search",
];

/// Sets a column by its name, as `--set column=value` does. Axes (`axis_…`) are collected by the caller.
pub fn set(row: &mut Row, column: &str, value: &str) -> Result<(), String> {
    if column.starts_with(AXIS_PREFIX) {
        return Ok(());
    }
    if MEASURED.contains(&column) {
        return Err(format!("the column `{column}` says what was measured and cannot be set"));
    }
    row.set(column, value).map_err(|e| match e {
        CellError::NoColumn(_) => format!("{e}; a column of your own is called {AXIS_PREFIX}NAME"),
        CellError::Value(_) => e.to_string(),
    })
}
