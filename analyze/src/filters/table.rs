//! `plumb table`: tables for people.

pub(crate) mod view;

use std::io::Write;

use crate::error::{Error, Verdict};
use crate::table::{InputArgs, OutputArgs, Table, layout};

/// A table for people: aligned columns, readable units, or Markdown.
///
/// plumb run plans/quick.yaml | plumb aggregate -g case -m throughput_bits_per_s | plumb table
///
/// Leaves out columns without any value, and gives numbers the units of their columns' names (41.8 Gbit/s, 49 µs, 64
/// KiB). Of a raw results file it shows the most important rows and columns: --all shows everything, --columns chooses.
/// Reads the whole table before it prints, because widths depend on all rows.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Show these columns, in this order
    #[arg(short, long, value_name = "COLUMN,…", value_delimiter = ',', conflicts_with = "all")]
    columns: Vec<String>,
    /// Show every row and every column that has a value
    #[arg(long)]
    all: bool,
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
    let view = view::View::read(&mut table, &args.columns, args.all)?;
    if let Some(note) = &view.note {
        crate::warn(note);
    }
    let columns = view.columns(args.raw);
    args.output.write(output, |w| {
        if args.md {
            layout::markdown(&columns, w)?;
        } else {
            layout::aligned(&columns, w)?;
        }
        Ok(())
    })?;
    Ok(Verdict::Ok)
}
