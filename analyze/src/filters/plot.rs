//! `plot`: a picture of a results table.

use crate::{
    error::{Error, Verdict},
    plot::{self, Kind, Options},
};
use std::io::Write;

/// A picture of results: PNG, SVG, or in the terminal.
///
/// plumb run plans/message-size.yaml -o sizes.csv; plumb plot sweep --log xy -o sizes.png sizes.csv
///
/// Axes name their quantity and unit, a note explains the intervals, and the same input gives the same bytes. The whole
/// input is read first; an error leaves no file. docs/gallery.md shows every kind.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The kind of picture
    #[arg(value_enum)]
    pub kind: Kind,
    #[command(flatten)]
    pub options: Options,
}

/// Draws the picture and writes warnings to standard error.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    for warning in plot::draw(args.kind, &args.options, output)? {
        crate::warn(&warning);
    }
    Ok(Verdict::Ok)
}
