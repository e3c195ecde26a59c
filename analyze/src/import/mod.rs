//! Other programs' outputs, read into rows of the results table.
//!
//! Each reader knows one program. It converts the program's numbers to the meaning of the table's columns; a conversion that
//! changes the size or meaning of a number leaves a note ([`ImportedRows::notes`]).

mod by_pattern;
mod by_table;
mod format;
mod hpcbench;
mod imported;
mod iperf2;
mod iperf3;
mod irtt;
mod netperf;
mod netpipe;
mod nuttcp;
mod ping;
#[cfg(test)]
mod recorded;

pub use imported::ImportedRows;

use crate::{
    error::{Error, ParseError},
    word,
};
use format::Format;
use schemas::columns::{AXIS_PREFIX, CellError, Row};

/// The programs whose output is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// netperf: tables, -o (CSV), -k (key=value), -O (columns), -D (interim results)
    Netperf,
    /// iperf3: text, -J, and its JSON stream
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
    /// nuttcp, also -fparse and -v
    Nuttcp,
    /// ping
    Ping,
    /// NAS Parallel Benchmarks
    Npb,
    /// OSU micro-benchmarks over MPI
    Osu,
    /// Intel MPI Benchmarks: MPI-1 and NBC
    Imb,
    /// nccl-tests, from 2.17 on
    Nccl,
    /// perftest (`ib_*_bw`, `ib_*_lat`): text and JSON
    Perftest,
    /// irtt's JSON
    Irtt,
    /// iperf 2: text and -y C
    Iperf2,
}

/// How the output of a program is read.
#[derive(Clone, Copy)]
enum Reader {
    Described(&'static Format),
    /// Whether the program wrote a text, and its rows.
    Own(fn(&str) -> bool, fn(&str, &mut ImportedRows) -> Result<(), ParseError>),
}

/// The readers. Detection takes the first that fits, so those with the most specific marks come first.
const READERS: [(Program, Reader); 16] = [
    (Program::Iperf2, Reader::Own(iperf2::looks_like, iperf2::read)),
    (Program::Irtt, Reader::Own(irtt::looks_like, irtt::read)),
    (Program::Iperf3, Reader::Own(iperf3::looks_like, iperf3::read)),
    (Program::Sockperf, Reader::Described(&by_pattern::SOCKPERF)),
    (Program::Hpcbench, Reader::Own(hpcbench::looks_like, hpcbench::read)),
    (Program::Ping, Reader::Own(ping::looks_like, ping::read)),
    (Program::Netperf, Reader::Own(netperf::looks_like, netperf::read)),
    (Program::Nuttcp, Reader::Own(nuttcp::looks_like, nuttcp::read)),
    (Program::Lmbench, Reader::Described(&by_pattern::LMBENCH)),
    (Program::Qperf, Reader::Described(&by_pattern::QPERF)),
    (Program::Netpipe, Reader::Own(netpipe::looks_like, netpipe::read)),
    (Program::Npb, Reader::Described(&by_pattern::NPB)),
    (Program::Osu, Reader::Described(&by_table::OSU)),
    (Program::Imb, Reader::Described(&by_table::IMB)),
    (Program::Nccl, Reader::Described(&by_table::NCCL)),
    (Program::Perftest, Reader::Own(by_table::looks_like_perftest, by_table::read_perftest)),
];

impl Reader {
    fn looks_like(self, text: &str) -> bool {
        match self {
            Self::Described(format) => format.looks_like(text),
            Self::Own(looks_like, _) => looks_like(text),
        }
    }

    fn read(self, text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
        match self {
            Self::Described(format) => format.read(text, imported),
            Self::Own(_, read) => read(text, imported),
        }
    }
}

/// The reader of a program, or without one of the program that wrote the text.
fn reader(program: Option<Program>, text: &str) -> Option<(Program, Reader)> {
    READERS.into_iter().find(|(of, reader)| program.map_or_else(|| reader.looks_like(text), |wanted| wanted == *of))
}

impl ImportedRows {
    /// A sheet of outputs that lack facts: the workload that ran (`tcp_rr`; netperf's names are known too), and netperf's
    /// unit (`10^6bits/s`).
    pub fn with(workload: Option<&str>, unit: Option<&str>) -> Result<Self, Error> {
        let snake =
            |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let workload = workload
            .map(|name| match netperf::workload_of(name) {
                Some(workload) => Ok(workload),
                None if snake(name) && name.contains('_') || name == "ping" => Ok(name.to_owned()),
                None => Err(Error::Usage(format!("--workload {name}: name it as in a plan, tcp_rr for example"))),
            })
            .transpose()?;
        if let Some(unit) = unit.filter(|unit| !netperf::is_unit(unit)) {
            return Err(Error::Usage(format!(
                "--unit {unit}: netperf's units are 10^3bits/s, 10^6bits/s, 10^9bits/s, Bytes/s, KBytes/s, MBytes/s, \
                 GBytes/s and Trans/s"
            )));
        }
        let mut imported = Self::default();
        imported.given = imported::Given { workload, unit: unit.map(str::to_owned) };
        Ok(imported)
    }

    /// Reads one output. Without a program, its content tells which one wrote it.
    pub fn read(&mut self, file: &str, text: &str, program: Option<Program>) -> Result<(), Error> {
        let fail = |reason: &str| Err(ParseError::new(0, reason).of(file));
        if text.trim().is_empty() {
            return fail("there is nothing in it");
        }
        let Some((program, reader)) = reader(program, text) else {
            return fail("no known program writes this; say whose output it is with --from, if it is one of theirs");
        };
        let name = word(&program);
        if self.given.unit.is_some() && program != Program::Netperf {
            return fail(&format!("{name} prints its units: leave --unit out"));
        }
        // The last figure of a line that does not end may lack digits. iperf3 ends with words of its own.
        if !text.ends_with('\n') && program != Program::Iperf3 {
            let reason = "the last line does not end: the output was cut off there (if it is whole, add a line end)";
            return Err(ParseError::new(text.lines().count(), reason).of(file));
        }
        let start = self.begin();
        reader.read(text, self).map_err(|error| error.of(file))?;
        if self.rows_from(start).len() == 0 {
            return fail(&format!("there is no result of {name} in it"));
        }
        if let Some(given) = self.given.workload.clone() {
            for row in self.rows_from(start) {
                match &row.workload {
                    None => imported::set_workload(row, &given),
                    Some(workload) if *workload == given => {}
                    Some(workload) => {
                        let reason = format!("this is a result of {workload}, not of --workload {given}");
                        return fail(&reason);
                    }
                }
            }
        }
        for row in self.rows_from(start) {
            row.plan = Some(name.clone());
            // A change of unit must not add digits. Only iperf3 prints all digits itself.
            if program != Program::Iperf3 {
                imported::without_noise(row);
            }
        }
        Ok(())
    }
}

/// Columns with results, which `--set` rejects.
const MEASURED: [&str; 16] = [
    "record",
    "status",
    "error",
    "settled",
    "control",
    "offered_unit",
    "latency_kind",
    "handshake_histogram",
    "latency_histogram",
    "receive_call_histogram",
    "forward_variation_histogram",
    "reverse_variation_histogram",
    "service_demand_unit",
    "confident",
    "search",
    "verified",
];

/// Sets a column by name, for `--set COLUMN=VALUE`. The caller collects axes (`axis_…`).
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

#[cfg(test)]
mod tests;
