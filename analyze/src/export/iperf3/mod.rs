//! The document of `iperf3 --json`: one run of a stream, for scripts that read iperf3.
//!
//! `run` chooses the run, `document` and `intervals` make the object, `print` writes it as iperf3 lays it out. What the table does
//! not hold is left out of the object, where iperf3 often writes 0.

mod document;
mod intervals;
mod print;
mod run;
#[cfg(test)]
mod tests;

use std::io::Write;

use crate::error::Error;
use crate::table::{Selection, Table};

/// Writes the document of the run that the selection leaves.
pub fn write(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    let found = run::Found::read(table, selection)?;
    let document = document::of(&found.choose()?)?;
    print::write(&document, output)
}
