//! `plumb key`: makes a key file for both ends of a session.

use std::path::PathBuf;

use netcore::control::key::Key;

use crate::error::{Error, Exit};

pub const EXAMPLES: &str = "\
Examples:
  plumb key lab.key
  scp -p lab.key b.lab:
  plumb serve --key-file lab.key                       (there)
  plumb run lab.yaml --key-file lab.key                (here)

Anybody with the file may start sessions: copy it over a channel you trust. An existing file is never replaced.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The new file, readable by its owner only [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let key = Key::generate().map_err(Error::measurement)?;
    match &args.file {
        Some(path) => key.save(path).map_err(Error::measurement)?,
        None => super::print(&format!("{}\n", key.to_hex()))?,
    }
    Ok(Exit::Success)
}
