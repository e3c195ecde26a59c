//! `beforeafter`: what counters counted between two readings.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::counters::collect::{self, Source};
use crate::counters::diff::{self, Missing, Settings};
use crate::counters::losses::Losses;
use crate::counters::render::{self, Wanted};
use crate::counters::{Bits, Format, Options, diagnose, walk};
use crate::error::{Error, Verdict, even_unread};
use crate::input::read_text;
use crate::table::write_whole;

/// Subtract the counters of one snapshot from another's.
///
/// Reads `netstat -s`, /proc/net/{snmp,netstat,snmp6,dev,softnet_stat}, nstat (text, JSON), ethtool -S (text, JSON),
/// ip -s -j, /proc/interrupts, /proc/softirqs, /proc/vmstat, JSON, OpenMetrics, CSV and any other text. Which one it is
/// shows from the content. Counters are paired by their names, never by position: programs leave out zeros, interfaces come
/// and go, kernels add columns.
///
/// The default output is AFTER's text with the differences where the numbers stood, so that it can be searched like the
/// original. Where there is no difference stands a word (`new`, `reset`); levels and settings keep their value. `-f csv`
/// writes the `counters` table, with before, after, delta, rate and note.
///
/// With --collect, the snapshots are taken here, around a command. Its input and outputs are its own; the differences go to
/// standard error, or where -o says (`-o -`: to standard output, after the command's own). Its exit code is returned.
///
/// Both snapshots are held in memory, and the output until all of it is known to be right. Where they differ by more than
/// their numbers, and for CSV, JSON and --diagnose, some 90 bytes come for each number, twice that for CSV snapshots; more
/// where a name is a path of headings, as in text.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  netstat -s > before; sleep 1; netstat -s > after
  plumb beforeafter before after | grep segments
  plumb beforeafter --collect snmp,dev,softnet -f csv -o - -- sleep 1 | plumb table
  plumb beforeafter --collect snmp,tcpext,softnet,dev --diagnose -- plumb run plans/quick.yaml

Exit codes: 0; 2 the command line is wrong; 3 a snapshot cannot be read, or --strict found something; with --collect, the \
command's own (128 and the signal's number where one ended it).")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Args {
    /// The first snapshot; `-` is standard input.
    #[arg(required_unless_present = "collect", conflicts_with = "collect")]
    before: Option<PathBuf>,
    /// The second snapshot; `-` is standard input.
    #[arg(required_unless_present = "collect")]
    after: Option<PathBuf>,
    /// Take both snapshots here, before and after COMMAND: snmp, snmp6, netstat, tcpext (/proc/net/netstat), dev[:IF],
    /// softnet, nstat, ethtool:IF, ip[:IF], interrupts, softirqs, vmstat, file:PATH.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "command")]
    collect: Vec<String>,
    /// How to write the differences.
    #[arg(short = 'f', long = "out", value_enum, default_value_t = Out::Text)]
    out: Out,
    /// Where to write them; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The snapshots' format, where their content does not show it.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Columns that identify a row of a CSV snapshot [default: those that are not numeric]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    key: Vec<String>,
    /// In text, show changes per second instead of differences.
    #[arg(long)]
    rate: bool,
    /// Seconds between the snapshots. --collect measures them.
    #[arg(long, value_name = "SECONDS")]
    elapsed: Option<f64>,
    /// Leave out what did not change. CSV and JSON always do, unless --zeros.
    #[arg(long, conflicts_with = "zeros")]
    nonzero: bool,
    /// In CSV and JSON, write also what did not change.
    #[arg(long)]
    zeros: bool,
    /// Only counters whose key or source matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    keys: Option<String>,
    /// Not counters whose key or source matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    ignore: Option<String>,
    /// Treat these as levels: told, not subtracted.
    #[arg(long, value_name = "REGEX")]
    gauge: Option<String>,
    /// In CSV and JSON, keep the parts of each CPU instead of adding them up.
    #[arg(long)]
    per_cpu: bool,
    /// In CSV and JSON, add up the queues of a device (rx_queue_0_bytes and rx_queue_1_bytes become rx_queue_*_bytes).
    #[arg(long)]
    sum_queues: bool,
    /// What a counter that only AFTER has was before. Programs that leave out zeros are known.
    #[arg(long, value_enum, default_value_t = Missing::Skip)]
    missing: Missing,
    /// Width of counters whose format does not say it (ethtool, JSON, text, …): 32 or 64 bits.
    #[arg(long, value_name = "BITS", value_parser = ["32", "64"])]
    counter_bits: Option<String>,
    /// The most that a counter can grow in a second: tells a 32-bit counter that came round from one that was set back.
    #[arg(long, value_name = "PER_SECOND")]
    max_rate: Option<f64>,
    /// The `host` column [default: this machine's name with --collect, else empty]
    #[arg(long)]
    host: Option<String>,
    /// Say in words what the differences mean: retransmissions, overflows, drops, checksum errors, time squeeze. As text it
    /// replaces the differences; beside CSV and JSON it goes to standard error.
    #[arg(long)]
    diagnose: bool,
    /// Resets, vanished and new counters are an error (exit code 3).
    #[arg(long)]
    strict: bool,
    /// The command between the snapshots.
    #[arg(last = true, value_name = "COMMAND", requires = "collect")]
    command: Vec<OsString>,
}

/// The forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Out {
    /// AFTER's text, with differences for numbers.
    Text,
    /// The `counters` table.
    Csv,
    /// The same as an array of objects.
    Json,
}

/// Two texts of one source.
struct Pair {
    /// What was asked for, where it was collected.
    source: Option<String>,
    before: (String, String),
    after: (String, String),
    elapsed: Option<f64>,
}

impl Pair {
    fn before(&self) -> (&str, &str) {
        (&self.before.0, &self.before.1)
    }

    fn after(&self) -> (&str, &str) {
        (&self.after.0, &self.after.1)
    }
}

/// Runs the filter.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let wanted = Wanted {
        nonzero: args.nonzero || (args.out != Out::Text && !args.zeros),
        keys: regex("--keys", args.keys.as_deref())?,
        ignore: regex("--ignore", args.ignore.as_deref())?,
    };
    let gauges = regex("--gauge", args.gauge.as_deref())?;
    for (flag, value) in [("--elapsed", args.elapsed), ("--max-rate", args.max_rate)] {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            return Err(Error::Usage(format!("{flag} must be more than zero")));
        }
    }
    if args.rate && args.elapsed.is_none() && args.collect.is_empty() {
        return Err(Error::Usage("--rate needs --elapsed SECONDS: two files do not say how far apart they are".into()));
    }
    let (pairs, status) = if args.collect.is_empty() { (vec![files(args)?], None) } else { collected(args)? };

    let settings: Vec<Settings> = pairs
        .iter()
        .map(|pair| Settings {
            elapsed: pair.elapsed.or(args.elapsed),
            max_rate: args.max_rate,
            bits: args.counter_bits.as_deref().map(|b| if b == "32" { Bits::ThirtyTwo } else { Bits::SixtyFour }),
            missing: args.missing,
            gauges: gauges.clone(),
        })
        .collect();
    let work = Work { args, wanted, pairs: &pairs, settings: &settings };
    let (pages, unusable) = if args.out == Out::Text && !args.diagnose { work.texts()? } else { work.tables()? };
    let to_stdout = args.output.as_deref().map_or(args.collect.is_empty(), |path| path == Path::new("-"));
    let write = |out: &mut dyn Write| pages.iter().try_for_each(|page| out.write_all(page));
    let written = match &args.output {
        _ if to_stdout => write(output).map_err(Error::from),
        Some(path) => write_whole(path, |mut file| Ok(write(&mut file)?)),
        None => write(&mut std::io::stderr().lock()).map_err(Error::from),
    };
    even_unread(written)?;
    match (status, unusable) {
        (Some(status), _) if !status.success() => Ok(Verdict::Exit(exit_code(status))),
        (_, Some(error)) if args.strict => Err(error),
        _ => Ok(Verdict::Ok),
    }
}

fn regex(flag: &str, pattern: Option<&str>) -> Result<Option<regex::Regex>, Error> {
    pattern
        .map(|p| regex::Regex::new(p).map_err(|e| Error::Usage(format!("{flag}: `{p}` is no regular expression: {e}"))))
        .transpose()
}

fn files(args: &Args) -> Result<Pair, Error> {
    let (Some(before), Some(after)) = (&args.before, &args.after) else {
        return Err(Error::Usage("two snapshots are needed: beforeafter BEFORE AFTER".into()));
    };
    let dash = Path::new("-");
    if before == dash && after == dash {
        return Err(Error::Usage("only one of the snapshots can be standard input".into()));
    }
    // Starting threads takes longer than reading little.
    let large = std::fs::metadata(after).is_ok_and(|file| file.len() > 1 << 20);
    let (before, after) = if large {
        rayon::join(|| read_text(before), || read_text(after))
    } else {
        (read_text(before), read_text(after))
    };
    Ok(Pair { source: None, before: before?, after: after?, elapsed: None })
}

/// Takes snapshots around the command. An interrupt from the terminal is for the command: the differences still follow.
fn collected(args: &Args) -> Result<(Vec<Pair>, Option<ExitStatus>), Error> {
    let sources: Vec<Source> = args.collect.iter().map(|item| Source::parse(item)).collect::<Result<_, _>>()?;
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::Usage("--collect needs a command: --collect LIST -- COMMAND…".into()));
    };
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&heard)).map_err(Error::Output)?;
    }
    let before = sources.iter().map(Source::read).collect::<Result<Vec<_>, _>>()?;
    let status = std::process::Command::new(program)
        .args(arguments)
        .status()
        .map_err(|e| Error::Usage(format!("cannot run `{}`: {e}", program.to_string_lossy())))?;
    let after = sources.iter().map(Source::read).collect::<Result<Vec<_>, _>>()?;
    let pairs = sources
        .into_iter()
        .zip(before.into_iter().zip(after))
        .map(|(source, (before, after))| Pair {
            elapsed: Some(after.at.duration_since(before.at).as_secs_f64()),
            before: (format!("{} before", source.name), before.text),
            after: (format!("{} after", source.name), after.text),
            source: Some(source.name),
        })
        .collect();
    Ok((pairs, Some(status)))
}

fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

/// What there is to do, and for whom.
struct Work<'w> {
    args: &'w Args,
    wanted: Wanted,
    pairs: &'w [Pair],
    /// For each pair.
    settings: &'w [Settings],
}

/// The output in pieces, and the first loss.
type Pages = (Vec<Vec<u8>>, Option<Error>);

impl Work<'_> {
    fn options(&self) -> Vec<Options> {
        let args = self.args;
        let options =
            |pair: &Pair| Options { format: args.format, key_columns: args.key.clone(), source: pair.source.clone() };
        self.pairs.iter().map(options).collect()
    }

    /// The texts of AFTER with the differences in them.
    fn texts(&self) -> Result<Pages, Error> {
        let (mut pages, mut unusable) = (Vec::new(), None);
        for (index, ((pair, settings), options)) in
            self.pairs.iter().zip(self.settings).zip(&self.options()).enumerate()
        {
            let per_s = settings.elapsed.filter(|_| self.args.rate);
            let parts = walk::walk(pair.before(), pair.after(), options, settings, walk::PART, |differences| {
                let (mut page, mut losses) = (Vec::new(), Losses::default());
                render::text(&mut page, differences, &self.wanted, per_s, |change| losses.look(change));
                Ok((page, losses))
            })?;
            if self.pairs.len() > 1 {
                let gap = if index == 0 { "" } else { "\n" };
                let source = pair.after.0.trim_end_matches(" after");
                pages.push(format!("{gap}# {source}, {:.3} s\n", settings.elapsed.unwrap_or_default()).into_bytes());
            }
            let mut losses = Losses::default();
            for (page, lost) in parts {
                pages.push(page);
                losses.append(lost);
            }
            losses.warn();
            unusable = unusable.or_else(|| losses.error(pair.after()));
        }
        Ok((pages, unusable))
    }

    /// The tables, and the diagnosis. Sums and sentences are about all changes together, so they are all kept.
    fn tables(&self) -> Result<Pages, Error> {
        let options = self.options();
        let snapshots = (self.pairs.iter().zip(&options))
            .map(|(pair, options)| walk::read(pair.before(), pair.after(), options))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut page, mut objects, mut all, mut unusable) = (Vec::new(), Vec::new(), Vec::new(), None);
        if self.args.out == Out::Csv {
            writeln!(page, "{}", render::HEADER.join(","))?;
        }
        for ((pair, settings), (before, after)) in self.pairs.iter().zip(self.settings).zip(&snapshots) {
            let changes = diff::differences(before, after, settings)?;
            let mut losses = Losses::default();
            for change in &changes {
                losses.look(change);
            }
            let folded = diff::folded(&changes, self.args.per_cpu, self.args.sum_queues);
            let (format, wanted, elapsed) = (after.format, &self.wanted, settings.elapsed);
            match self.args.out {
                Out::Text => {}
                Out::Csv => render::csv(&mut page, format, &self.host(), &folded, wanted, elapsed)?,
                Out::Json => objects.extend(render::objects(format, &self.host(), &folded, wanted, elapsed)),
            }
            drop(folded);
            if self.args.diagnose {
                all.extend(changes);
            }
            losses.warn();
            unusable = unusable.or_else(|| losses.error(pair.after()));
        }
        if self.args.out == Out::Json {
            writeln!(page, "[")?;
            for (index, object) in objects.iter().enumerate() {
                let comma = if index + 1 < objects.len() { "," } else { "" };
                writeln!(page, "{object}{comma}")?;
            }
            writeln!(page, "]")?;
        }
        if self.args.diagnose {
            let words = diagnose::sentences(&all).join("\n");
            match self.args.out {
                Out::Text => writeln!(page, "{words}")?,
                // Nobody to read it is no reason to fail.
                Out::Csv | Out::Json => drop(writeln!(anstream::stderr(), "{words}")),
            }
        }
        Ok((vec![page], unusable))
    }

    fn host(&self) -> String {
        match &self.args.host {
            Some(host) => host.clone(),
            None if self.args.collect.is_empty() => String::new(),
            None => collect::host(),
        }
    }
}
