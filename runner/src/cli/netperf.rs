//! `plumb netperf`: netperf's command line and output.

use std::ffi::OsString;

use crate::{error::Exit, netperf};

pub const EXAMPLES: &str = "\
Examples:
  plumb netperf -H 10.0.0.9
  plumb netperf -H 10.0.0.9 -t TCP_RR -l 5 -- -r 100,200 -k THROUGHPUT,P99_LATENCY
  plumb netperf -H 10.0.0.9 -D -0.2 -P 0 -v 0 -t UDP_RR -- -e 1
  ln -s $(command -v plumb) ~/.local/bin/netperf

The far end is a netserver, or `plumb serve --also netperf`. The options are netperf's: `plumb netperf -h` prints them, and `-h` \
after `--` those of a test. A link to the program with the name `netperf` is the same command.";

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Print this help.
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// netperf's options; after `--` those of its test.
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs a command line that clap has read. [`words`] takes most of them before.
pub fn run(args: &Args) -> Exit {
    Exit::Command(netperf::main(&args.options))
}

/// The words of netperf's own grammar, which clap must not read: behind the name of a link, or behind the subcommand unless
/// its help is asked for.
pub fn words(args: &[OsString]) -> Option<&[OsString]> {
    match args {
        [program, words @ ..] if netperf::is_name(program) => Some(words),
        [_, name, words @ ..] if name == netperf::NAME && words.first().is_none_or(|word| word != "--help") => {
            Some(words)
        }
        _ => None,
    }
}
