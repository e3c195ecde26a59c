//! `plumb completions`, completion of command lines in shells, and `plumb man`, both from the definitions of the command line.
//!
//! The shell's script runs `plumb` with [`VARIABLE`] set, and `plumb` answers with candidates. One table says what completes
//! a value, by the value's name in the help.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    path::PathBuf,
};

use clap::{Command, ValueEnum, ValueHint};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::{Bash, EnvCompleter, Fish},
};
use clap_mangen::Man;

use crate::{
    error::{Error, Exit},
    plan::{self, LoadOptions, Plan, keys},
};

pub const EXAMPLES: &str = "\
Examples:
  source <(plumb completions bash)                 # in ~/.bashrc
  source <(plumb completions zsh)                  # in ~/.zshrc, after compinit
  plumb completions fish | source                  # in ~/.config/fish/config.fish

The script asks `plumb` for candidates: tests, cases, keys and hosts from the plan on the line, columns from the table on it.";

/// The environment variable by which a shell's script asks for candidates.
const VARIABLE: &str = "PLUMB_COMPLETE";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell that reads the script.
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Fish => &Fish,
        Shell::Zsh => {
            super::print(&ZSH.replace("VARIABLE", VARIABLE))?;
            return Ok(Exit::Success);
        }
    };
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "plumb", "plumb", "plumb", &mut script)
        .map_err(Error::output("standard output"))?;
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// The script for zsh. That of clap completes nothing the first time where zsh itself loads it from its folder of functions, and puts a
/// space after `duration=`.
const ZSH: &str = r#"#compdef plumb

_plumb() {
    local candidate
    local -a whole=() open=()
    for candidate in "${(@f)$(
        _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) VARIABLE=zsh plumb -- "${words[@]}" 2>/dev/null
    )}"; do
        # What follows a colon is a description. Folders and names of settings go on without a space.
        case ${candidate%%:*} in
            ('') ;;
            (*[/=]) open+=("$candidate") ;;
            (*) whole+=("$candidate") ;;
        esac
    done
    (( $#open )) && _describe -V values open -S ''
    (( $#whole )) && _describe -V values whole
}

# zsh runs this file as the function `_plumb` at the first completion.
if [[ ${funcstack[1]} = _plumb ]]; then
    _plumb "$@"
else
    compdef _plumb plumb
fi
"#;

/// Answers a shell that asks for candidates, on standard output; `false`: this is an ordinary start.
pub fn answer(args: &[OsString], command: fn() -> Command) -> clap::error::Result<bool> {
    let factory = || completed(command(), args);
    CompleteEnv::with_factory(factory)
        .var(VARIABLE)
        .try_complete(args.iter().cloned(), std::env::current_dir().ok().as_deref())
}

/// Gives all candidates for a value.
type Candidates = fn(&Line) -> Vec<String>;

/// The values that complete, by their name in the help. A name with a comma is a list.
const COMPLETED: &[(&str, Candidates)] = &[
    ("COLUMN", Line::columns),
    ("COLUMN,…", Line::columns),
    ("COLUMN=VALUE", Line::columns),
    ("CONDITION", Line::columns),
    ("GLOB", Line::cases),
    ("METRIC", Line::columns),
    ("METRIC,…", Line::columns),
    ("NAME=ADDR", Line::hosts),
    ("PATH=VALUE", Line::keys),
];

/// The values that are files, by their name in the help.
const FILES: &[&str] = &["FILE", "OTHER", "PLAN", "RESULTS"];

/// The command with a completer at each value that [`COMPLETED`] names.
fn completed(command: Command, args: &[OsString]) -> Command {
    let line = Line::new(args);
    let command = command.mut_args(|arg| {
        let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        let Some((name, candidates)) = COMPLETED.iter().find(|(of, _)| name.as_deref() == Some(*of)) else {
            return if name.is_some_and(|name| FILES.contains(&&*name)) {
                arg.value_hint(ValueHint::FilePath)
            } else {
                arg
            };
        };
        let (line, is_list) = (line.clone(), name.contains(','));
        arg.add(ArgValueCompleter::new(move |current: &OsStr| beginning_with(current, is_list, &candidates(&line))))
    });
    command.mut_subcommands(|sub| completed(sub, args))
}

/// The candidates that begin with the current word or, in a list, with its last part.
fn beginning_with(current: &OsStr, is_list: bool, candidates: &[String]) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let (before, part) = match current.rfind(',').filter(|_| is_list) {
        Some(comma) => current.split_at(comma + 1),
        None => ("", &*current),
    };
    let fitting = candidates.iter().filter(|candidate| candidate.starts_with(part));
    fitting.map(|candidate| CompletionCandidate::new(format!("{before}{candidate}"))).collect()
}

/// The words of the line that is being completed.
#[derive(Clone)]
struct Line(Vec<PathBuf>);

impl Line {
    /// Of the arguments that a shell's script gives: the words follow `--`.
    fn new(args: &[OsString]) -> Self {
        Self(args.iter().skip_while(|arg| *arg != "--").skip(1).map(PathBuf::from).collect())
    }

    fn files(&self, is_one: fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let with_extension = move |path: &&PathBuf| path.extension().is_some_and(|end| is_one(&end.to_string_lossy()));
        self.0.iter().filter(with_extension).filter(|path| path.is_file()).filter_map(|path| path.to_str())
    }

    /// The plans on the line that can be read.
    fn plans(&self) -> Vec<Plan> {
        let read = |path| plan::load(path, &LoadOptions::default()).ok();
        self.files(|end| end == "yaml" || end == "yml").filter_map(read).collect()
    }

    /// Names of tests, cases and tags.
    fn cases(&self) -> Vec<String> {
        let names = |plan: Plan| {
            plan.cases.into_iter().flat_map(|case| [case.test.to_string(), case.name].into_iter().chain(case.tags))
        };
        self.plans().into_iter().flat_map(names).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn hosts(&self) -> Vec<String> {
        let names = |plan: &Plan| plan.hosts.keys().map(|name| format!("{name}=")).collect::<Vec<_>>();
        self.plans().iter().flat_map(names).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Keys for every test, and for each test of a plan once its name is there.
    fn keys(&self) -> Vec<String> {
        let keys: Vec<String> =
            keys::KEYS.iter().filter(|key| key.sweeps).map(|key| format!("{}=", key.name)).collect();
        let tests: BTreeSet<String> =
            self.plans().into_iter().flat_map(|plan| plan.cases).map(|case| case.test.to_string()).collect();
        let of_tests = tests.iter().flat_map(|test| keys.iter().map(move |key| format!("tests.{test}.{key}")));
        keys.iter().cloned().chain(of_tests).collect()
    }

    /// Columns of the tables on the line; without a table those that every table has.
    fn columns(&self) -> Vec<String> {
        let header = |path: &str| -> Option<Vec<String>> {
            let mut reader = csv::Reader::from_reader(File::open(path).ok()?);
            Some(reader.headers().ok()?.iter().map(str::to_owned).collect())
        };
        let own: Vec<String> = self.files(|end| end == "csv").filter_map(header).flatten().collect();
        schemas::vocabulary::spellings(&if own.is_empty() { schemas::columns::header(&[]) } else { own })
    }
}

pub const MAN_EXAMPLES: &str = "\
Examples:
  plumb man | man -l -
  plumb man --dir ~/.local/share/man/man1";

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write a page for each subcommand into this folder, besides that of `plumb`.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn man(args: &ManArgs) -> Result<Exit, Error> {
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
