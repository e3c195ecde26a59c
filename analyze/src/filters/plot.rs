//! `plot`: a picture of a results table.

use crate::{
    error::{Error, Verdict},
    plot::{self, Kind, Options, trend},
};
use std::io::Write;

/// A picture of results: PNG, SVG, or in the terminal.
///
/// plumb run plans/message-size.yaml -o sizes.csv; plumb plot sweep --log xy -o sizes.png sizes.csv
///
/// Axes name their quantity and unit, a note explains the intervals, and the same input gives the same bytes. The whole
/// input is read first; an error leaves no file. docs/gallery.md shows every kind.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    pub of_history: Option<OfHistory>,
    /// The kind of picture
    #[arg(value_enum, required = true)]
    pub kind: Option<Kind>,
    #[command(flatten)]
    pub options: Options,
}

/// Pictures of a history, which is no results table.
#[derive(Clone, Debug, clap::Subcommand)]
#[command(subcommand_help_heading = "Of a history")]
pub enum OfHistory {
    Trend(Box<trend::Args>),
}

/// Draws the picture and writes warnings to standard error.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let warnings = match (&args.of_history, args.kind) {
        (Some(OfHistory::Trend(args)), _) => plot::draw_trend(args, output)?,
        (None, Some(kind)) => plot::draw(kind, &args.options, output)?,
        (None, None) => return Err(Error::Usage("name the kind of picture".to_owned())),
    };
    for warning in warnings {
        crate::warn(&warning);
    }
    Ok(Verdict::Ok)
}
