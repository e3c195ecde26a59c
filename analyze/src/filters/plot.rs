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
/// Axes say their quantity and unit, intervals say what they are, and the same input gives the same bytes. The input is read
/// whole; nothing is written unless everything could be drawn. docs/gallery.md shows every kind.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What kind of picture
    #[arg(value_enum)]
    pub kind: Kind,
    /// The rest.
    #[command(flatten)]
    pub options: Options,
}

/// Draws. Sentences for the user go to standard error.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    for warning in plot::draw(args.kind, &args.options, output)? {
        crate::warn(&warning);
    }
    Ok(Verdict::Ok)
}
