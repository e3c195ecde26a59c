//! The command line: every subcommand and its arguments.

mod baseline;
pub(crate) mod check;
mod completions;
mod measure;
mod run;
mod serve;
mod serve_log;
mod topics;
mod watch;
mod why;

use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use analyze::table::layout::{Sheet, wrapped};
use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::{StyledStr, Styles},
    error::{ContextKind, ContextValue, ErrorKind},
};
use schemas::vocabulary;

use crate::{
    error::{Error, Exit},
    netperf,
    plan::{self, LoadOptions, diagnostics::nearest, keys},
    style,
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
  143  terminated (SIGTERM), likewise";

const EXAMPLES: &str = "\
Examples:
  plumb measure b.lab                 to a host where `plumb serve` runs
  plumb measure ssh://user@b.lab      to a host where ssh starts it
  plumb run quick                     one of the plans inside the program
  plumb run lab.yaml -o lab.csv       a plan of your own
  plumb report -o lab.html lab.csv";

/// The subcommands by what people come for: those of the first screen, and the others.
const GROUPS: [(&str, &[&str], &[&str]); 5] = [
    ("Measure", &["measure", "serve", "run", "plans", "check"], &["hosts"]),
    (
        "Look at results",
        &["table", "report", "plot", "compare", "why"],
        &["aggregate", "percentiles", "window", "steady", "fit", "survey", "beforeafter"],
    ),
    ("Keep and judge", &["gate", "baseline", "history", "trend", "watch", "bisect"], &[]),
    ("Exchange with other programs", &["import", "export", "netperf"], &[]),
    ("Set up", &["key", "completions"], &["man", "schema"]),
];

/// Columns of the first screen where its width is unknown.
const COLUMNS: usize = 80;

/// Version, commit, profile and target of this program.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PLUMB_BUILD"), ")");

/// Measure networks from plans that are checked into git.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, long_version = LONG_VERSION)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure to a host now, without a plan: both ways, and round trips under load.
    #[command(after_help = measure::EXAMPLES)]
    Measure(Box<measure::Args>),
    /// Run plans and write their results.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::Args>),
    /// Measure a plan again and again: its history, its site, and what changed.
    #[command(after_help = watch::EXAMPLES)]
    Watch(Box<watch::Args>),
    /// Check plans, list their cases, or explain a value.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Args),
    /// Start and reach the hosts of a plan, show them, and stop: the check before a campaign.
    #[command(after_help = check::HOSTS_EXAMPLES)]
    Hosts(check::HostsArgs),
    /// List the plans inside the program: the question that each answers.
    #[command(after_help = topics::PLANS_EXAMPLES)]
    Plans(topics::PlansArgs),
    /// Prove what limited a test: change the one setting that its cause names, and look again.
    #[command(after_help = why::EXAMPLES)]
    Why(Box<why::Args>),
    /// Keep a run as the baseline of later runs.
    #[command(after_help = baseline::PROMOTE_EXAMPLES)]
    Baseline(baseline::PromoteArgs),
    /// Tell git bisect whether this commit is slower than a baseline.
    #[command(after_help = baseline::BISECT_EXAMPLES)]
    Bisect(Box<baseline::BisectArgs>),
    /// Be the far end: serve tests to other hosts.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Args),
    /// Make a key that both ends of a session share.
    #[command(after_help = serve::KEY_EXAMPLES)]
    Key(serve::KeyArgs),
    /// Print the published schema of plans or of results.
    #[command(after_help = topics::SCHEMA_EXAMPLES)]
    Schema(topics::SchemaArgs),
    /// Run a test with netperf's command line and output.
    #[command(after_help = netperf::EXAMPLES)]
    Netperf(netperf::Args),
    /// Print the script that completes command lines in a shell.
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Args),
    /// Print or write the manual pages.
    #[command(after_help = completions::MAN_EXAMPLES)]
    Man(completions::ManArgs),
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
    if let Some(words) = netperf::own_words(&args) {
        return ExitCode::from(netperf::main(words));
    }
    if matches!(&args[..], [_, help, all] if all == "--all" && ["help", "--help", "-h"].iter().any(|word| help == word))
    {
        let _ = command().print_help();
        return ExitCode::SUCCESS;
    }
    if let [_, help, topic] = &args[..]
        && help == "help"
        && let Some(page) = topic.to_str().and_then(|topic| topics::page(topic, &Sheet::stdout()))
    {
        // A closed pipe is no error.
        let _ = print(&page);
        return ExitCode::SUCCESS;
    }
    let parsed = screen(true).try_get_matches_from(&args).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(mut e) => {
            suggest_key(&mut e, &args);
            suggest_measure(&mut e, &args);
            suggest_topics(&mut e, &args);
            suggest_plans(&mut e, &args);
            suggest_order(&mut e, &args);
            // Also help and version; a closed pipe does not make them an error.
            let _ = e.print();
            let code = u8::try_from(e.exit_code()).unwrap_or(2);
            // git bisect would take 2 for a slower commit.
            let stops = code != 0 && args.get(1).is_some_and(|name| name == "bisect");
            return ExitCode::from(if stops { baseline::stop(code) } else { code });
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

/// Options of iperf3 that `plumb measure` lacks, and what does the same.
const OF_IPERF3: [(&[&str], &str); 8] = [
    (&["-c", "--client"], "the host needs no option: plumb measure HOST"),
    (&["-p", "--port"], "the port stands behind the host: plumb measure HOST:PORT"),
    (&["-d", "--bidir"], "a plan has both ways at once (--save FILE writes one): direction: bidirectional"),
    (&["-n", "--bytes", "-k", "--blockcount"], "a plan stops at a count (--save FILE writes one): bytes: 1GiB"),
    (
        &["-w", "--window"],
        "a plan sets buffers (--save FILE writes one): socket: {send_buffer: 1MiB, receive_buffer: 1MiB}",
    ),
    (&["-O", "--omit"], "a warm-up is left out already; a plan sets its length (--save FILE writes one): warmup: 2s"),
    (&["-f", "--format"], "each number has the unit that suits it; -J has bits per second"),
    (&["-Z", "--zerocopy"], "sendfile is a workload: plumb measure HOST tcp_sendfile"),
];

/// Tells the command that somebody means who names a host, or types as other programs want it: `plumb 10.0.0.2`, `plumb -c
/// b.lab`, `plumb measure b.lab --bidir`.
fn suggest_measure(error: &mut clap::Error, args: &[OsString]) {
    let word = |at: usize| args.get(at).and_then(|arg| arg.to_str());
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option.as_str(),
        _ => "",
    };
    let tip = match (word(1), word(2)) {
        (Some("measure"), _) => match OF_IPERF3.iter().find(|(names, _)| names.contains(&unknown)) {
            Some((_, tip)) => (*tip).to_owned(),
            None => return,
        },
        (Some("serve"), _) if ["-p", "--port"].contains(&unknown) => {
            format!("the port stands behind an address: --listen 0.0.0.0:{}", value(unknown, args).unwrap_or("PORT"))
        }
        (Some("-s" | "--server"), _) => "to be the far end: plumb serve".to_owned(),
        (Some("-c" | "--client" | "-H"), Some(host)) => format!("to measure to that host: plumb measure {host}"),
        (Some("-c" | "--client" | "-H"), None) => "to measure to a host: plumb measure HOST".to_owned(),
        (Some(host), _) if plan::is_like_host(host) => format!("to measure to that host: plumb measure {host}"),
        _ => return,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The value that an option has in these arguments.
fn value<'a>(option: &str, args: &'a [OsString]) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(option)))?;
    match args[at].to_str()?.split_once('=') {
        Some((_, value)) => Some(value),
        None => args.get(at + 1)?.to_str().filter(|next| !next.starts_with('-')),
    }
}

/// Lists the topics to somebody who asks for help about something that is none.
fn suggest_topics(error: &mut clap::Error, args: &[OsString]) {
    let asks = args.get(1).is_some_and(|word| word == "help") && error.kind() == ErrorKind::InvalidSubcommand;
    if asks && error.get(ContextKind::SuggestedSubcommand).is_none() {
        let tip = format!("besides commands, there is help about {}", topics::names());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// Names the command to somebody who gives a table where the kind of a picture stands, or looks for the words of a history.
fn suggest_order(error: &mut clap::Error, args: &[OsString]) {
    let word = |at: usize| args.get(at).and_then(|arg| arg.to_str()).unwrap_or_default();
    let tip = match (word(1), word(2), error.kind()) {
        ("plot", file, ErrorKind::InvalidValue) if Path::new(file).extension().is_some() => {
            format!("the kind of picture comes first: plumb plot bars {file}")
        }
        ("history", "add", ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument) => {
            "the folder is an option: plumb history add RUN.csv --to DIR".to_owned()
        }
        ("history", _, ErrorKind::InvalidSubcommand) => {
            "plumb trend DIR shows what changed; plumb report --history DIR -o site/ writes pages".to_owned()
        }
        _ => return,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// Tells of the plans inside the program to somebody who names none.
fn suggest_plans(error: &mut clap::Error, args: &[OsString]) {
    let takes_plans = args.get(1).is_some_and(|word| word == "run" || word == "check");
    if takes_plans && error.kind() == ErrorKind::MissingRequiredArgument {
        let tip = "a file, or a plan inside the program, such as quick; `plumb plans` lists them";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
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
        None => match vocabulary::key_meant(name, &known().collect::<Vec<_>>()).or_else(|| nearest(name, known())) {
            Some(key) => (key.replace(": ", "="), "a plan has a similar key"),
            None => return,
        },
    };
    let whole = if path.contains('=') { path } else { format!("{path}={}", value(option, args).unwrap_or("VALUE")) };
    let tip = format!("{words}: --set {whole}");
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

impl Command {
    fn run(self) -> Result<Exit, Error> {
        match self {
            Self::Measure(args) => measure::run(&args),
            Self::Run(args) => run::run(&args),
            Self::Watch(args) => watch::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Hosts(args) => check::hosts(&args),
            Self::Plans(args) => topics::plans(&args),
            Self::Baseline(args) => baseline::promote(&args),
            Self::Why(args) => why::run(&args),
            Self::Bisect(args) => Ok(baseline::bisect(&args)),
            Self::Serve(args) => serve::run(&args),
            Self::Key(args) => serve::make_key(&args),
            Self::Schema(args) => topics::schema(&args),
            Self::Netperf(args) => Ok(netperf::run(&args)),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => completions::man(&args),
            Self::Filter(mut filter) => {
                if let analyze::Filter::Gate(args) = &mut filter {
                    baseline::prepare_gate(args)?;
                }
                let out = io::stdout();
                let verdict = if out.is_terminal() {
                    filter.run(&mut style::ColourFilter::new(out.lock()))?
                } else {
                    filter.run(&mut out.lock())?
                };
                Ok(verdict.into())
            }
        }
    }
}

/// The command line as clap knows it, with the subcommands of its help in groups.
pub fn command() -> clap::Command {
    screen(false)
}

/// The command line with the help of `plumb --help`, or with that of `plumb help --all`.
fn screen(is_first: bool) -> clap::Command {
    let command = Cli::command();
    let text = grouped(&command, is_first);
    let more = if is_first {
        format!(
            "More: `plumb help --all` has the other commands, `plumb COMMAND --help` its options and examples, `plumb help TOPIC` \
             a short page: {}.",
            topics::names()
        )
    } else {
        format!("{}\n\n{EXIT_CODES}", topics::list())
    };
    command
        .before_help(text)
        .after_help(format!("{EXAMPLES}\n\n{more}"))
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}")
}

/// A line for each subcommand, under the headings of [`GROUPS`].
fn grouped(command: &clap::Command, is_first: bool) -> StyledStr {
    let head = *Styles::styled().get_header();
    let all = || GROUPS.iter().flat_map(|(_, first, more)| first.iter().chain(*more));
    let width = all().map(|name| label(name).len()).max().unwrap_or(0);
    let columns = Sheet::stdout().width.unwrap_or(COLUMNS);
    let room = columns.saturating_sub(width + 4).max(20);
    let mut text = String::new();
    // Writing to a String cannot fail.
    for (title, first, more) in GROUPS {
        let _ = writeln!(text, "{head}{title}:{head:#}");
        for name in first.iter().chain(more.iter().filter(|_| !is_first)) {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_default();
            // The part behind a colon is detail: a line is enough to choose by.
            let about = if is_first { about.split(": ").next().unwrap_or_default() } else { about.as_str() };
            listed(&mut text, label(name), width, about, room);
        }
        text.push('\n');
    }
    StyledStr::from(text.trim_end().to_owned())
}

/// Adds a name and what it is, in lines of so much room beside the names.
fn listed(text: &mut String, name: &str, width: usize, about: &str, room: usize) {
    for (line, words) in wrapped(about, room).iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:width$}  {words}", if line == 0 { name } else { "" });
    }
}

/// A subcommand as the help lists it.
fn label(name: &str) -> &str {
    if name == "measure" { "measure HOST" } else { name }
}

/// The cases of a plan to run, values to change in it, and the key of its daemons.
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
    /// Send every test to this host: `b.lab`, `b.lab:12864`, or `ssh://user@b.lab`, where ssh starts the far end. It is the
    /// plan's host `server`.
    #[arg(long, value_name = "ADDR")]
    to: Option<String>,
    #[command(flatten)]
    key: serve::KeyFile,
}

impl Selection {
    /// The options for the record, with `--to` spelled out.
    fn written(&self) -> Vec<String> {
        let with = |flag: &str, values: &[String]| values.iter().map(|v| format!("{flag} {v}")).collect::<Vec<_>>();
        let LoadOptions { sets, only, hosts } = self.options();
        [with("--set", &sets), with("--only", &only), with("--host", &hosts)].concat()
    }

    fn options(&self) -> LoadOptions {
        let (mut sets, mut hosts) = (self.sets.clone(), self.hosts.clone());
        if let Some(address) = &self.to {
            hosts.push(format!("server={address}"));
            sets.push("to=server".to_owned());
        }
        LoadOptions { sets, only: self.only.clone(), hosts }
    }
}

/// The outcome of a finished run's last output. A closed pipe is ignored: the exit code still tells how the run went.
fn shown(written: io::Result<()>) -> Result<(), Error> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Error::output("standard output")),
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
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
    fn every_subcommand_is_in_one_group() {
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, first, more)| first.iter().chain(*more).copied()).collect();
        let known = command();
        let mut all: Vec<&str> = known.get_subcommands().map(clap::Command::get_name).collect();
        all.retain(|name| *name != "help");
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn the_first_screen_has_a_line_per_command() {
        let help = screen(true).render_help().to_string();
        assert!(help.find("  measure HOST  ").is_some_and(|at| at < 160), "{help}");
        for (_, first, more) in GROUPS {
            for name in first {
                let begins = |line: &&str| line.trim_start().starts_with(label(name)) && line.starts_with("  ");
                let line = help.lines().find(begins).unwrap_or_else(|| panic!("no line of {name}:\n{help}"));
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
            assert!(more.iter().all(|name| !help.contains(&format!("  {name} "))), "{help}");
        }
        assert!(!help.contains("\n              "), "a command has two lines:\n{help}");
        assert!(!help.contains("Exit codes") && help.contains("plumb help --all"), "{help}");
        let all = command().render_help().to_string();
        assert!(all.contains("Exit codes") && all.contains("  beforeafter "), "{all}");
    }

    #[test]
    fn what_hands_type_names_the_command_that_is_meant() {
        for (typed, meant) in [
            (&["plumb", "10.0.0.2"][..], "plumb measure 10.0.0.2"),
            (&["plumb", "b.lab"], "plumb measure b.lab"),
            (&["plumb", "b.lab:12864"], "plumb measure b.lab:12864"),
            (&["plumb", "-c", "b"], "plumb measure b"),
            (&["plumb", "-s"], "plumb serve"),
        ] {
            let args: Vec<OsString> = typed.iter().map(OsString::from).collect();
            let mut error = command().try_get_matches_from(&args).unwrap_err();
            suggest_measure(&mut error, &args);
            assert!(error.to_string().contains(meant), "{error}");
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
