//! `plot`: a picture of a results table.

use crate::{
    error::{Error, Verdict},
    plot::{self, Kind, Options},
};
use std::io::Write;

/// Draw a picture of results: PNG, SVG, or in the terminal
///
/// Reads everything before it draws. Axes say their quantity and unit; intervals say what they are; the same input gives
/// the same bytes.
///
///     plumb run plans/message-size.yaml -o sizes.csv
///     plumb plot sweep -x message_bytes -y throughput_bits_per_s -o sizes.png sizes.csv
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
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
