//! `plumb plans`: the plans inside the program.

use std::fmt::Write as _;

use analyze::table::layout::{Sheet, wrapped};

use crate::{
    error::{Error, Exit},
    plan::{
        Format, LoadOptions,
        diagnostics::suggest,
        load::{self, PLANS},
        load_str,
    },
};

pub const EXAMPLES: &str = "\
Examples:
  plumb plans
  plumb plans show quick > my.yaml
  plumb run quick --to b.lab

A file of the same name in this folder is preferred: `plumb run quick` takes `quick` if there is one.";

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print a plan, to be read or to begin one's own with.
    #[command(after_help = "Examples:\n  plumb plans show quick > my.yaml")]
    Show {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    match &args.action {
        None => super::print(&list(&Sheet::stdout()))?,
        Some(Action::Show { name }) => {
            let Some(plan) = load::shipped(name) else {
                let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
                return Err(Error::Usage(format!("no plan `{name}` is inside: {}", suggest(name, &names))));
            };
            super::print(plan.text)?;
        }
    }
    Ok(Exit::Success)
}

/// Each name with the question that the plan answers.
fn list(sheet: &Sheet) -> String {
    let width = PLANS.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
    let room = sheet.width.map_or(usize::MAX, |columns| columns.saturating_sub(width + 4).max(20));
    let mut text = String::new();
    for shipped in PLANS {
        // Tests hold them to be without a mistake.
        let plan = load_str(shipped.name, shipped.text, &LoadOptions::default());
        let text_of = plan.map_or_else(|out| out.render(Format::Human), |plan| plan.description.unwrap_or_default());
        // What follows the question is for its reader.
        let question = text_of.split_inclusive('?').next().unwrap_or_default().trim();
        for (line, words) in wrapped(question, room).iter().enumerate() {
            let name = if line == 0 { shipped.name } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:width$}  {words}");
        }
    }
    text
}
