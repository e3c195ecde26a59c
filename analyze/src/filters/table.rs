//! `plumb table`: tables for people.

pub(crate) mod view;

use std::io::Write;

use crate::error::{Error, Verdict};
use crate::table::layout::{self, Sheet};
use crate::table::{InputArgs, OutputArgs, Table};

/// A table for people: aligned columns, readable units, or Markdown.
///
/// plumb run plans/quick.yaml | plumb aggregate -g case -m throughput_bits_per_s | plumb table
///
/// Leaves out columns without any value, and gives numbers the units of their columns' names (41.8 Gbit/s, 49 µs, 64
/// KiB). Of results, verdicts and counters it shows the most important rows and columns: --all shows everything,
/// --columns, --record and --where choose. On a terminal the table fits the width: names are shortened in the middle,
/// and a last line names columns without room; in files and pipes every cell is whole. Reads the whole table before it
/// prints, because widths depend on all rows.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Show these columns (or metrics, or plan keys), in this order
    #[arg(short, long, value_name = "COLUMN,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// Sort by these columns; a minus before a name sorts from the largest: --sort=-latency.p99,case
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', allow_hyphen_values = true)]
    sort: Vec<String>,
    /// Show every row, and every column that has a value (with --columns these)
    #[arg(long)]
    all: bool,
    /// Show the rows of this phase: warmup, measure, cooldown or all [default: measure; with --all all]
    #[arg(long, value_name = "PHASE", help_heading = "Which rows are shown")]
    phase: Option<String>,
    /// Show this kind of row: iteration, summary, stream, interval or probe [default: the first of these that occurs]
    #[arg(long, value_name = "KIND", help_heading = "Which rows are shown")]
    record: Option<String>,
    /// Show only rows where this holds: COLUMN=VALUE, !=, <, <=, >, >= (quantities as in plans: 64KiB, 80us), or
    /// COLUMN~TEXT (contains). May be repeated; all must hold
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which rows are shown")]
    conditions: Vec<String>,
    /// Write a Markdown table
    #[arg(long)]
    md: bool,
    /// Show numbers as they are in the file
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut table = Table::open(&args.input)?;
    let choice = view::Choice {
        columns: &args.columns,
        sort: &args.sort,
        all: args.all,
        phase: args.phase.as_deref(),
        record: args.record.as_deref(),
        conditions: &args.conditions,
    };
    let view = view::View::choose(&mut table, &choice)?;
    if let Some(note) = &view.note {
        crate::warn(note);
    }
    let columns = view.columns(args.raw);
    let sheet = Sheet { hint: "--columns names those to show", ..Sheet::of(&args.output) };
    args.output.write(output, |w| {
        if args.md {
            layout::markdown(&columns, w)?;
        } else {
            layout::aligned(&columns, &sheet, w)?;
        }
        Ok(())
    })?;
    Ok(Verdict::Ok)
}
