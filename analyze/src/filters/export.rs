//! `export`: results in other programs' formats.

use std::io::Write;

use crate::error::{Error, Verdict};
use crate::export::{benchfmt, gnuplot, iperf3, jsonl, junit, markdown, openmetrics, rrd};
use crate::table::{Table, TableArgs};

/// Write results in another program's format.
///
/// jsonl and md write every row as it is. openmetrics (for a textfile collector), benchfmt (for Go's benchstat),
/// gnuplot (script and data, as hpcbench's -P wrote them) and rrd (commands for `rrdtool -`) write the rows that count.
/// junit writes a test case per assertion of a `verdicts` table, or per iteration of a results table. iperf3 writes one
/// run of a stream in the shape of `iperf3 --json`, for scripts that read it.
///
/// jsonl streams; the other formats read the whole input first.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Examples:
  plumb run plans/quick.yaml | plumb export --to jsonl | head -n 1
  plumb export --to benchfmt old.csv > old.txt
  plumb export --to benchfmt new.csv > new.txt && benchstat old.txt new.txt
  plumb export --to gnuplot -o sweep.plot results.csv && gnuplot sweep.plot
  plumb export --to rrd -m throughput results.csv | rrdtool -
  plumb export --to iperf3 --where case=bulk --where iteration=1 nightly.csv
  plumb gate --assert 'throughput >= 1Gbit/s' -f csv lab.csv | plumb export --to junit -o junit.xml

Exit codes: 0; 2 the command line is wrong; 3 the table could not be read (which file, which line, why).")]
pub struct Args {
    /// Format of the output.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: To,
    /// Metrics to write (openmetrics, benchfmt, rrd) [default: those that have values; for rrd, throughput]
    #[arg(short, long = "metric", value_name = "METRIC", value_delimiter = ',')]
    metrics: Vec<String>,
    /// gnuplot: column of the horizontal axis [default: message_bytes, else iteration]
    #[arg(short, value_name = "COLUMN")]
    x: Option<String>,
    /// gnuplot: column of the vertical axis [default: throughput]
    #[arg(short, value_name = "COLUMN")]
    y: Option<String>,
    /// gnuplot: a curve for each value of this column [default: test]
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// JSON lines
    Jsonl,
    /// A Markdown table
    Md,
    /// OpenMetrics text
    Openmetrics,
    /// Go's benchmark format, for benchstat
    Benchfmt,
    /// A gnuplot script with its data
    Gnuplot,
    /// Commands for `rrdtool -`
    Rrd,
    /// JUnit XML
    Junit,
    /// The document of `iperf3 --json`, of one run
    Iperf3,
}

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    if args.to != To::Gnuplot && (args.x.is_some() || args.y.is_some() || args.by.is_some()) {
        return Err(Error::Usage("-x, -y and --by are for --to gnuplot".into()));
    }
    if !args.metrics.is_empty() && !matches!(args.to, To::Openmetrics | To::Benchfmt | To::Rrd) {
        return Err(Error::Usage("-m is for --to openmetrics, benchfmt and rrd".into()));
    }
    let mut table = Table::open(&args.tables.input)?;
    if args.to == To::Gnuplot {
        let picture = gnuplot::Picture { x: args.x.as_deref(), y: args.y.as_deref(), by: args.by.as_deref() };
        // Writes two files together, so it handles the output itself.
        gnuplot::write(&mut table, &args.tables.selection, &picture, args.tables.output.file(), output)?;
        return Ok(Verdict::Ok);
    }
    args.tables.output.write(output, |w| match args.to {
        To::Jsonl => jsonl::write(&mut table, w),
        To::Md => markdown::write(&mut table, w),
        To::Openmetrics => openmetrics::write(&mut table, &args.tables.selection, &args.metrics, w),
        To::Benchfmt => benchfmt::write(&mut table, &args.tables.selection, &args.metrics, w),
        To::Junit => junit::write(&mut table, w),
        To::Iperf3 => iperf3::write(&mut table, &args.tables.selection, w),
        To::Gnuplot | To::Rrd => match args.metrics.as_slice() {
            [] => rrd::write(&mut table, &args.tables.selection, "throughput", w),
            [metric] => rrd::write(&mut table, &args.tables.selection, metric, w),
            _ => Err(Error::Usage("--to rrd writes one metric: give one -m".into())),
        },
    })?;
    Ok(Verdict::Ok)
}
