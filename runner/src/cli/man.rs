//! `plumb man`: manual pages, from the definitions of the command line.

use std::path::PathBuf;

use clap_mangen::Man;

use crate::error::{Error, Exit};

pub const EXAMPLES: &str = "\
Examples:
  plumb man | man -l -
  plumb man --dir ~/.local/share/man/man1";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write a page for each subcommand into this folder, besides that of `plumb`.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let command = super::command().disable_help_subcommand(true);
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .map_err(Error::output(dir.display()))?;
        return Ok(Exit::Success);
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(Error::output("standard output"))?;
    super::print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}
