//! The command line: every subcommand and its arguments.

mod baseline;
mod bisect;
pub(crate) mod check;
mod completions;
mod gate;
mod hosts;
mod key;
mod man;
mod netperf;
mod run;
mod schema;
mod serve;
mod serve_log;

pub use serve_log::bounds as log_bounds;

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    error::{Error, Exit},
    plan::{LoadOptions, diagnostics::nearest, keys},
};

const EXIT_CODES: &str = "\
Exit codes:
  0    all well
  1    an assertion failed or a comparison found a regression
  2    the command line or the plan is wrong
  3    a measurement could not be made (unreachable, timed out, no data), or output not written
  4    inconclusive only, and the gate says that this fails
  129  hung up (SIGHUP), with everything that was measured written
  130  interrupted (SIGINT), likewise
  143  terminated (SIGTERM), likewise

Examples:
  plumb run plans/quick.yaml
  plumb run plans/quick.yaml | plumb aggregate -g case -m throughput_bits_per_s | plumb table
  plumb check --list plans/message-size.yaml
  plumb serve --key-file lab.key";

/// Version, commit, profile and target of this program.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PLUMB_BUILD"), ")");

/// Measure networks from plans that are checked into git.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, long_version = LONG_VERSION, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run plans and write their results.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::Args>),
    /// Check plans, list their cases, or explain a value.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Args),
    /// Start and reach the hosts of a plan, show them, and stop: the check before a campaign.
    #[command(after_help = hosts::EXAMPLES)]
    Hosts(hosts::Args),
    /// Keep a run as the baseline of later runs.
    #[command(after_help = baseline::EXAMPLES)]
    Baseline(baseline::Args),
    /// Tell git bisect whether this commit is slower than a baseline.
    #[command(after_help = bisect::EXAMPLES)]
    Bisect(Box<bisect::Args>),
    /// Be the far end: serve tests to other hosts.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Args),
    /// Make a key that both ends of a session share.
    #[command(after_help = key::EXAMPLES)]
    Key(key::Args),
    /// Print the published schema of plans or of results.
    #[command(after_help = schema::EXAMPLES)]
    Schema(schema::Args),
    /// Run a test with netperf's command line and output.
    #[command(after_help = netperf::EXAMPLES)]
    Netperf(netperf::Args),
    /// Print the script that completes command lines in a shell.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Args),
    /// Print or write the manual pages.
    #[command(after_help = man::EXAMPLES)]
    Man(man::Args),
    /// The filters.
    #[command(flatten)]
    Filter(analyze::Filter),
}

/// Runs the program with these arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match completions::answer(&args, command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(e) => e.exit(),
    }
    if let Some(words) = netperf::words(&args) {
        return ExitCode::from(crate::netperf::main(words));
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(mut e) => {
            suggest_key(&mut e, &args);
            // Also help and version; a closed pipe does not make them an error.
            let _ = e.print();
            let code = u8::try_from(e.exit_code()).unwrap_or(2);
            // git bisect would take 2 for a slower commit.
            let stops = code != 0 && args.get(1).is_some_and(|name| name == "bisect");
            return ExitCode::from(if stops { bisect::stop(code) } else { code });
        }
    };
    let exit = match cli.command.run() {
        Ok(exit) => exit,
        Err(e) => {
            e.print();
            e.exit()
        }
    };
    ExitCode::from(exit.code())
}

/// Tells how to set the key of a plan that was written as an option: `--duration 5s` is `--set duration=5s`.
fn suggest_key(error: &mut clap::Error, args: &[OsString]) {
    let takes_keys = |name: &OsString| {
        let command = command();
        let sub = name.to_str().and_then(|name| command.find_subcommand(name));
        sub.is_some_and(|sub| sub.get_arguments().any(|arg| arg.get_long() == Some("set")))
    };
    if error.kind() != ErrorKind::UnknownArgument || !args.get(1).is_some_and(takes_keys) {
        return;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(name) = option.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name)) else { return };
    let known = || keys::KEYS.iter().filter(|key| key.sweeps).map(|key| key.name);
    let (path, words) = match keys::path_of_option(name) {
        Some(path) => (path, "a plan has it as a key"),
        // A similar option is nearer than a similar key.
        None if error.get(ContextKind::SuggestedArg).is_some() => return,
        None => match nearest(name, known()) {
            Some(key) => (key.to_owned(), "a plan has a similar key"),
            None => return,
        },
    };
    let written = args.iter().position(|arg| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(option)));
    let value = written.and_then(|at| match args[at].to_str()?.split_once('=') {
        Some((_, value)) => Some(value),
        None => args.get(at + 1)?.to_str().filter(|next| !next.starts_with('-')),
    });
    let tip = format!("{words}: --set {path}={}", value.unwrap_or("VALUE"));
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

impl Command {
    fn run(self) -> Result<Exit, Error> {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Hosts(args) => hosts::run(&args),
            Self::Baseline(args) => baseline::run(&args),
            Self::Bisect(args) => Ok(bisect::run(&args)),
            Self::Serve(args) => serve::run(&args),
            Self::Key(args) => key::run(&args),
            Self::Schema(args) => schema::run(&args),
            Self::Netperf(args) => Ok(netperf::run(&args)),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
            Self::Filter(mut filter) => {
                if let analyze::Filter::Gate(args) = &mut filter {
                    gate::prepare(args)?;
                }
                let verdict = filter.run(&mut std::io::stdout().lock())?;
                Ok(match verdict {
                    analyze::Verdict::Ok => Exit::Success,
                    analyze::Verdict::Failed => Exit::Failed,
                    analyze::Verdict::Inconclusive => Exit::Inconclusive,
                    analyze::Verdict::Exit(code) => Exit::Command(code),
                })
            }
        }
    }
}

/// The command line as clap knows it, for tests and generated documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The cases of a plan to run, and values to change in it.
#[derive(Clone, Debug, clap::Args)]
struct Selection {
    /// Set a value, as `tests.bulk.duration=1s`, `vars.x=…`, or `duration=1s` for every test; may be repeated.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Keep only cases whose test, name or tag matches; `*` is any text. May be repeated.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Address of a host of the plan, as `server=b.lab` or `server=b.lab:12864`; may be repeated.
    #[arg(long = "host", value_name = "NAME=ADDR")]
    hosts: Vec<String>,
}

impl Selection {
    fn options(&self) -> LoadOptions {
        LoadOptions { sets: self.sets.clone(), only: self.only.clone(), hosts: self.hosts.clone() }
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output("standard output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// Prose is wrapped by the terminal: a hand-broken paragraph would break twice. Examples must fit, for pasting.
    #[test]
    fn what_follows_the_options_fits_any_terminal() {
        let top = command();
        let nested = top.get_subcommands().flat_map(clap::Command::get_subcommands);
        for one in [&top].into_iter().chain(top.get_subcommands()).chain(nested) {
            let Some(text) = one.get_after_long_help().or_else(|| one.get_after_help()) else { continue };
            let text = text.to_string();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
                assert!(!(prose(pair[0]) && prose(pair[1])), "{}: a paragraph is one line: {pair:?}", one.get_name());
            }
            for example in lines.iter().filter(|line| line.starts_with(' ')) {
                assert!(example.chars().count() <= 100, "{}: {example}", one.get_name());
            }
        }
    }

    #[test]
    fn every_help_has_examples() {
        for sub in command().get_subcommands() {
            if sub.get_name() == "help" {
                continue;
            }
            // Rendered by itself, a subcommand's usage line does not begin with the program's name: examples do.
            let help = sub.clone().render_long_help().to_string();
            assert!(help.contains(&format!("plumb {}", sub.get_name())), "no example in:\n{help}");
        }
    }
}
