//! `export`: results in other programs' formats.

use crate::{
    error::{Error, Verdict},
    export::{benchmarks, gnuplot, iperf3, junit, openmetrics, rows, time_series},
    table::{Table, TableArgs},
};
use schemas::metrics::Better;
use std::io::Write;

/// Write results in another program's format.
///
/// json, jsonl and md write every row as it is. openmetrics (for a textfile collector), benchfmt (for Go's benchstat),
/// gnuplot (script and data, as hpcbench's -P wrote them), rrd (commands for `rrdtool -`) and influx (InfluxDB's line
/// protocol) write the rows that count. bencher (Bencher Metric Format) and github-action-benchmark write the mean of
/// each case with its 95 % interval: the headline of the workload and the latencies beside it. The action takes a list
/// per direction, so --better chooses which (higher for its tool customBiggerIsBetter, lower for customSmallerIsBetter)
/// where the metrics of a table differ.
/// junit writes a test case per assertion of a `verdicts` table, or per iteration of a results table. iperf3 writes one
/// run of a stream in the shape of `iperf3 --json`, for scripts that read it.
///
/// json and jsonl stream; the other formats read the whole input first.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = "\
Examples:
  plumb run plans/quick.yaml | plumb export -f jsonl | head -n 1
  plumb export -f benchfmt old.csv > old.txt
  plumb export -f benchfmt new.csv > new.txt && benchstat old.txt new.txt
  plumb export -f gnuplot -o sweep.plot results.csv && gnuplot sweep.plot
  plumb export -f rrd -m throughput results.csv | rrdtool -
  plumb export -f iperf3 --where case=bulk --where iteration=1 nightly.csv
  plumb export -f bencher results.csv > bmf.json
  plumb export -f github-action-benchmark --better higher -o bigger.json results.csv
  plumb export -f influx results.csv | curl --data-binary @- 'http://HOST:8086/write?db=net'
  plumb gate --assert 'throughput >= 1Gbit/s' -f csv lab.csv | plumb export -f junit -o junit.xml

Exit codes: 0; 2 the command line is wrong; 3 the table could not be read (which file, which line, why).")]
pub struct Args {
    /// Format of the output.
    #[arg(short = 'f', long = "format", alias = "to", value_enum, value_name = "FORMAT")]
    to: To,
    /// Metrics to write [default: those that have values; for rrd, throughput; for bencher and
    /// github-action-benchmark, the headline and the latencies beside it]
    #[arg(short, long = "metric", value_name = "METRIC", value_delimiter = ',')]
    metrics: Vec<String>,
    /// github-action-benchmark: write the metrics that improve in this direction [default: the only one that they have]
    #[arg(long, value_enum, value_name = "DIRECTION")]
    better: Option<Direction>,
    #[command(flatten)]
    picture: gnuplot::Picture,
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// A JSON array of the rows
    Json,
    /// JSON lines: a row per line
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
    /// InfluxDB's line protocol
    Influx,
    /// Bencher Metric Format
    Bencher,
    /// JSON of github-action-benchmark's custom tools
    GithubActionBenchmark,
    /// JUnit XML
    Junit,
    /// The document of `iperf3 --json`, of one run
    Iperf3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Direction {
    /// Metrics that should rise, for customBiggerIsBetter
    Higher,
    /// Metrics that should fall, for customSmallerIsBetter
    Lower,
}

impl From<Direction> for Better {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Higher => Self::Higher,
            Direction::Lower => Self::Lower,
        }
    }
}

/// Formats without a choice of metrics.
const WHOLE: [To; 6] = [To::Json, To::Jsonl, To::Md, To::Junit, To::Iperf3, To::Gnuplot];

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let gnuplot::Picture { x, y, by } = &args.picture;
    if args.to != To::Gnuplot && (x.is_some() || y.is_some() || !by.is_empty()) {
        return Err(Error::Usage("-x, -y and --by are for -f gnuplot".into()));
    }
    if !args.metrics.is_empty() && WHOLE.contains(&args.to) {
        return Err(Error::Usage(
            "-m is for -f openmetrics, benchfmt, rrd, influx, bencher and github-action-benchmark".into(),
        ));
    }
    if args.better.is_some() && args.to != To::GithubActionBenchmark {
        return Err(Error::Usage("--better is for -f github-action-benchmark".into()));
    }
    let mut table = Table::open(&args.tables.input)?;
    if args.to == To::Gnuplot {
        // Writes two files together, so it handles the output itself.
        gnuplot::write(&mut table, &args.tables.selection, &args.picture, args.tables.output.file(), output)?;
        return Ok(Verdict::Ok);
    }
    args.tables.output.write(output, |w| match args.to {
        To::Json => rows::write_json_array(&mut table, &args.tables.selection, w),
        To::Jsonl => rows::write_json_lines(&mut table, &args.tables.selection, w),
        To::Md => rows::write_markdown(&mut table, &args.tables.selection, w),
        To::Openmetrics => openmetrics::write(&mut table, &args.tables.selection, &args.metrics, w),
        To::Benchfmt => benchmarks::write_benchfmt(&mut table, &args.tables.selection, &args.metrics, w),
        To::Influx => time_series::write_influx(&mut table, &args.tables.selection, &args.metrics, w),
        To::Bencher => benchmarks::write_bencher(&mut table, &args.tables.selection, &args.metrics, w),
        To::GithubActionBenchmark => {
            let better = args.better.map(Better::from);
            benchmarks::write_github_action(&mut table, &args.tables.selection, &args.metrics, better, w)
        }
        To::Junit => junit::write(&mut table, &args.tables.selection, w),
        To::Iperf3 => iperf3::write(&mut table, &args.tables.selection, w),
        To::Gnuplot | To::Rrd => match args.metrics.as_slice() {
            [] => time_series::write_rrd(&mut table, &args.tables.selection, "throughput", w),
            [metric] => time_series::write_rrd(&mut table, &args.tables.selection, metric, w),
            _ => Err(Error::Usage("-f rrd writes one metric: give one -m".into())),
        },
    })?;
    Ok(Verdict::Ok)
}
