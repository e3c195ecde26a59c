//! `plumb compare`: two runs against each other. The help text is [`Args`]'s.

mod effect;
mod print;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use schemas::metrics::{self, Better, Metric};
use schemas::units;

use super::aggregate::parse_level;
use super::samples::{self, Case, Samples};
use super::verdicts::{self, Format};
use crate::error::{Error, Verdict};
use crate::stats::{compare as tests, series};
use crate::table::{InputArgs, OutputArgs, Selection, Table};

use effect::Comparison;
use effect::Finding::{self, Improvement, Inconclusive, Missing, Regression};
pub use effect::Test;

/// What changed between two runs: effect, interval, p and a verdict per case.
///
/// plumb compare main.csv branch.csv --fail-on regression
///
/// The first file is the baseline, the others are what is compared with it. A regression is a change that is large enough
/// (--min-effect), significant (p ≤ --alpha after Holm's correction for the number of comparisons) and in the metric's own
/// bad direction; an improvement is the same in the good direction; `~` (same) is where neither can hide in the interval;
/// everything else is inconclusive. The change is that of the medians (Hodges–Lehmann's shift over the baseline's median),
/// with Welch's test that of the means. Its interval has the level 1 − alpha. The CSV is the `verdicts` table.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Baseline results; may be repeated [default: the first FILE]
    #[arg(long, value_name = "FILE")]
    base: Vec<PathBuf>,
    /// Metrics to compare [default: each case's headline: throughput, else transaction rate, else median latency]
    #[arg(short, long, value_name = "METRIC,…", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Match cases by this column [default: case_id]
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// How significance is found
    #[arg(long, value_name = "TEST", default_value = "mann-whitney")]
    test: Test,
    /// Largest p that counts as significant
    #[arg(long, value_name = "ALPHA", default_value = "0.01", value_parser = parse_level)]
    alpha: f64,
    /// Smallest change that counts
    #[arg(long, value_name = "RATIO", default_value = "3%", value_parser = parse_effect)]
    min_effect: f64,
    /// Do not correct p for the number of comparisons
    #[arg(long)]
    no_correction: bool,
    /// Exit with code 1 when there is one of these
    #[arg(long, value_name = "WHAT", default_value = "nothing")]
    fail_on: FailOn,
    /// Make the baseline worse by this much and compare it with itself: exits with 1 if a case would not be noticed
    #[arg(long, value_name = "RATIO", value_parser = parse_effect)]
    self_test: Option<f64>,
    /// csv, text or md [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Seed of the bootstrap
    #[arg(long, value_name = "N", default_value_t = crate::stats::bootstrap::SEED)]
    seed: u64,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// When `compare` exits with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Never
    Nothing,
    /// A regression
    Regression,
    /// A regression, or what could not be decided
    Inconclusive,
    /// Any change, for better or worse
    Change,
}

fn parse_effect(text: &str) -> Result<f64, String> {
    units::parse_ratio(text).map_err(|e| e.to_string())
}

/// What to compare with what, read and ready.
struct Sides {
    base: Samples,
    new: Samples,
    /// Columns compared, by name.
    columns: Vec<String>,
    /// Whether each case is compared in its headline only.
    headline: bool,
}

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let (base, new) = files(args)?;
    let mut sides = read(args, base, new)?;
    if let Some(worse) = args.self_test {
        sides.new = sides.base.clone();
        for case in &mut sides.new.cases {
            for (values, column) in case.values.iter_mut().zip(&sides.columns) {
                let factor = if better(column) == Better::Lower { 1.0 + worse } else { 1.0 - worse };
                for value in values {
                    *value *= factor;
                }
            }
        }
    }
    let comparisons = compare(args, &sides);
    let format = args.format.unwrap_or_else(|| {
        if args.output.output.is_none() && std::io::stdout().is_terminal() { Format::Text } else { Format::Csv }
    });
    let facts = print::facts(&sides.base, &sides.new, &comparisons);
    args.output.write(output, |w| match format {
        Format::Csv => {
            verdicts::csv(&comparisons.iter().map(|c| print::row(c, args.min_effect)).collect::<Vec<_>>(), w)
        }
        _ => print::people(&comparisons, &facts, format, w),
    })?;
    if format == Format::Csv {
        crate::warn(&facts);
    }
    Ok(verdict(args, &comparisons))
}

fn verdict(args: &Args, comparisons: &[Comparison]) -> Verdict {
    let any = |wanted: &[Finding]| comparisons.iter().any(|c| wanted.contains(&c.finding));
    let failed = if args.self_test.is_some() {
        comparisons.iter().any(|c| c.finding != Regression)
    } else {
        match args.fail_on {
            FailOn::Nothing => false,
            FailOn::Regression => any(&[Regression]),
            FailOn::Inconclusive => any(&[Regression, Inconclusive, Missing]),
            FailOn::Change => any(&[Regression, Improvement, Missing]),
        }
    };
    if failed { Verdict::Failed } else { Verdict::Ok }
}

fn files(args: &Args) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Error> {
    let files = &args.input.files;
    let (base, new) = match (args.base.as_slice(), files.as_slice()) {
        ([], [base, new @ ..]) => (vec![base.clone()], new.to_vec()),
        (base, new) => (base.to_vec(), new.to_vec()),
    };
    if base.is_empty() || new.is_empty() && args.self_test.is_none() {
        return Err(Error::Usage("compare takes two files: plumb compare BASE.csv NEW.csv".to_owned()));
    }
    Ok((base, new))
}

fn read(args: &Args, base: Vec<PathBuf>, new: Vec<PathBuf>) -> Result<Sides, Error> {
    let open = |files: Vec<PathBuf>| Table::open(&InputArgs { files });
    let mut base = open(base)?;
    // A self-test has no other side; the baseline stands in until it is made worse.
    let mut new = if new.is_empty() { None } else { Some(open(new)?) };
    let headline = args.metrics.is_empty();
    let columns: Vec<String> = if headline {
        let names = |t: &Table| samples::headline(t.header()).iter().map(|c| t.header().names()[*c].clone()).collect();
        let names: Vec<String> = names(&base);
        if names.is_empty() {
            return Err(Error::Usage("say which columns to compare: -m COLUMN,…".to_owned()));
        }
        names
    } else {
        args.metrics
            .iter()
            .map(|m| Ok(base.header().names()[base.require(m)?].clone()))
            .collect::<Result<_, Error>>()?
    };
    let side = |table: &mut Table| {
        let indices = columns.iter().map(|c| table.require(c)).collect::<Result<Vec<_>, _>>()?;
        let mut samples = Samples::read(table, &args.selection, &indices, args.by.as_deref())?;
        samples.keep_totals();
        Ok::<_, Error>(samples)
    };
    let base = side(&mut base)?;
    let new = match &mut new {
        Some(table) => side(table)?,
        None => base.clone(),
    };
    Ok(Sides { base, new, columns, headline })
}

fn better(column: &str) -> Better {
    metrics::find(column).map_or(Better::Neither, |m| m.better)
}

fn compare(args: &Args, sides: &Sides) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for base in &sides.base.cases {
        let new = sides.new.cases.iter().find(|c| c.key == base.key);
        for (m, column) in sides.columns.iter().enumerate() {
            let first = base.values.iter().position(|v| !v.is_empty());
            let nowhere = base.values[m].is_empty() && new.is_some_and(|n| n.values[m].is_empty());
            // A round-trip test has no throughput on either side, and nobody misses it.
            if sides.headline && m != first.unwrap_or(0) || !sides.headline && nowhere && first.is_some() {
                continue;
            }
            let label = base.label(&sides.base.cases);
            let metric = metrics::find(column);
            comparisons.push(match new {
                Some(new) => effect::compare(base, new, m, column, metric, label, args.test, args.alpha, args.seed),
                None => Comparison::missing(base, m, column, metric, label, "only in the baseline"),
            });
        }
    }
    for new in sides.new.cases.iter().filter(|c| sides.base.cases.iter().all(|b| b.key != c.key)) {
        let m = new.values.iter().position(|v| !v.is_empty()).unwrap_or(0);
        let column = &sides.columns[m];
        let label = new.label(&sides.new.cases);
        comparisons.push(Comparison::missing(new, m, column, metrics::find(column), label, "not in the baseline"));
    }
    let p: Vec<Option<f64>> = comparisons.iter().map(|c| c.p).collect();
    let tested = p.iter().flatten().count();
    let adjusted = if args.no_correction { p } else { tests::holm(&p) };
    for (comparison, p) in comparisons.iter_mut().zip(adjusted) {
        comparison.p = p;
        comparison.decide(args.alpha, args.min_effect, if args.no_correction { 1 } else { tested });
    }
    comparisons
}

/// Warnings about one side that make its comparison worth less.
fn doubts(case: &Case, metric: usize, side: &str) -> Vec<String> {
    let values = &case.values[metric];
    let mut doubts = Vec::new();
    if series::correlated(values) {
        doubts.push(format!("{side}: iterations are serially correlated, p is too small"));
    }
    if let Some(drift) = series::drifting(values) {
        doubts.push(format!("{side}: drifts by {}", units::margin(drift.ratio)));
    }
    let mut sorted = values.clone();
    crate::stats::quantiles::sort(&mut sorted);
    if let Some(fences) = crate::stats::quantiles::Fences::new(&sorted) {
        let severe = values.iter().filter(|v| fences.label(**v) == crate::stats::quantiles::Outlier::Severe).count();
        if severe > 0 {
            doubts.push(format!("{side}: {severe} severe outlier{}", if severe == 1 { "" } else { "s" }));
        }
    }
    doubts
}

/// The unit of a column, where it is a metric's.
fn unit(metric: Option<&'static Metric>) -> Option<units::Unit> {
    metric.map(|m| m.unit)
}
