//! `import`: other programs' outputs as results.

use crate::{
    error::{Error, Verdict, read_text},
    import::{ImportedRows, Program, set},
    table::OutputArgs,
};
use clap::ValueEnum as _;
use schemas::columns::{self, AXIS_PREFIX};
use std::{io::Write, path::PathBuf};

/// Read other programs' outputs as results.
///
/// Knows netperf (tables, -o, -k, -O, -D), iperf3 (text, -J, --json-stream), hpcbench (console, files, system logs),
/// NetPIPE (console, np.out), lmbench, sockperf, qperf, nuttcp (also -fparse, -v), ping, the NAS Parallel Benchmarks,
/// the OSU micro-benchmarks, the Intel MPI Benchmarks, nccl-tests, perftest (text, --out_json), irtt (JSON) and iperf 2
/// (text, -y C).
/// The program is detected from the output. A file may hold the output of several runs; runs of the same case become its iterations.
///
/// Numbers are converted to the meaning of the table's columns: half round trips are doubled, NetPIPE's 2^20 bit/s
/// become bit/s. Each such conversion leaves a note on standard
/// error. Columns that a program does not report stay empty.
///
/// An output that does not say which test ran, or in which unit, is refused: --workload and --unit name them. So are
/// outputs that were cut off, and error messages.
///
/// The whole output is read before the first row is written.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Examples:
  iperf3 -c HOST -J | plumb import | plumb table
  iperf3 -c HOST | plumb import -o today.csv
  netperf -H HOST -P 0 -t TCP_RR | plumb import --from netperf --workload TCP_RR --unit Trans/s
  plumb import np.out --workload tcp_pingpong | plumb plot sweep -x message_size -o np.png
  plumb import monday/*.json --set tag=monday > monday.csv
  ping -c 20 -i 0.2 127.0.0.1 | plumb import | plumb table
  plumb import osu_bw.txt --set from=node1 --set to=node2 | plumb table

Exit codes: 0; 2 the command line is wrong; 3 an output could not be read (which file, which line, why).")]
pub struct Args {
    /// Outputs to read; `-` or none: standard input.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Program that wrote the output, where detection fails.
    #[arg(long, value_enum, value_name = "PROGRAM")]
    from: Option<Program>,
    /// Test that ran, where the output does not say it: netperf -P 0 and OMNI, np.out, hpcbench's console, an iperf3
    /// server. As in a plan (tcp_rr), or netperf's name (TCP_RR).
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Unit of netperf's throughput, where the output does not say it: 10^6bits/s, Trans/s, KBytes/s …
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Set a column in every row: `--set tag=monday --set axis_nic=cx5`. Columns called axis_… are your own.
    #[arg(long, value_name = "COLUMN=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let settings: Vec<(&str, &str)> = args.set.iter().map(|s| setting(s)).collect::<Result<_, _>>()?;
    let standard_input = PathBuf::from("-");
    let files = if args.files.is_empty() { std::slice::from_ref(&standard_input) } else { &args.files };
    let mut imported = ImportedRows::with(args.workload.as_deref(), args.unit.as_deref())?;
    if let [first, rest @ ..] = files
        && let Some(program) = first.to_str().filter(|name| Program::from_str(name, true).is_ok() && !first.exists())
    {
        let rest: Vec<String> = rest.iter().map(|file| file.display().to_string()).collect();
        let rest = if rest.is_empty() { "FILE".to_owned() } else { rest.join(" ") };
        return Err(Error::Usage(format!(
            "{program} is a program and no file here: plumb import --from {program} {rest}"
        )));
    }
    for path in files {
        let (name, text) = read_text(path)?;
        imported.read(&name, &text, args.from)?;
    }
    for note in imported.notes() {
        crate::warn(note);
    }
    let axes: Vec<(&str, &str)> = settings.iter().copied().filter(|(c, _)| c.starts_with(AXIS_PREFIX)).collect();
    args.output.write(output, |w| {
        let mut writer = csv::Writer::from_writer(w);
        let mut record: Vec<String> = columns::header(&[]);
        record.extend(axes.iter().map(|(name, _)| (*name).to_owned()));
        writer.write_record(&record)?;
        for mut row in imported.finish() {
            for (column, value) in &settings {
                set(&mut row, column, value)
                    .map_err(|reason| Error::Usage(format!("--set {column}={value}: {reason}")))?;
            }
            row.axes = axes.iter().map(|(_, value)| (*value).to_owned()).collect();
            record.clear();
            row.for_each_cell(|cell| record.push(cell.to_owned()));
            writer.write_record(&record)?;
        }
        Ok(writer.flush()?)
    })?;
    Ok(Verdict::Ok)
}

fn setting(text: &str) -> Result<(&str, &str), Error> {
    let usage = || Error::Usage(format!("--set {text}: write COLUMN=VALUE"));
    let (column, value) = text.split_once('=').ok_or_else(usage)?;
    let column = column.trim();
    let snake = column.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if column.is_empty() || !snake {
        return Err(Error::Usage(format!("--set {text}: a column is named in lower_case")));
    }
    Ok((column, value.trim()))
}
