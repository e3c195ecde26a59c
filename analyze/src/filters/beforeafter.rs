//! `beforeafter`: the differences between two snapshots of counters.

use crate::{
    counters::{
        Bits, Format, Options, Snapshot,
        collect::{self, Source},
        diagnose::{self, Losses},
        diff::{self, Missing, Settings},
        render::{self, Wanted},
    },
    error::{Error, Verdict, even_unread, read_text},
    table::write_whole,
};
use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, atomic::AtomicBool},
};

/// Subtract the counters of one snapshot from another's.
///
/// Reads `netstat -s`, /proc/net/{snmp,netstat,snmp6,dev,softnet_stat}, nstat (text, JSON), ethtool -S (text, JSON), ip
/// -s -j, /proc/interrupts, /proc/softirqs, /proc/vmstat, JSON, OpenMetrics, CSV and any other text. The format is
/// detected from the content. Counters are paired by name, never by position: programs leave out zeros, interfaces come
/// and go, kernels add columns.
///
/// The default output is AFTER's text with differences in place of its numbers, so that it can be searched like the
/// original. A word (`new`, `reset`) stands for an unknown difference; levels and settings keep their value. `-f csv`
/// writes the `counters` table, with before, after, delta, rate and note.
///
/// With --collect, plumb takes the snapshots itself, around a command. The command keeps its input and outputs; the
/// differences go to standard error, or to -o (`-o -`: standard output, after the command's own). The exit code is the
/// command's.
///
/// Both snapshots and the output are held in memory: about 600 bytes for each counter.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  netstat -s > before; sleep 1; netstat -s > after
  plumb beforeafter before after | grep segments
  plumb beforeafter --collect snmp,dev,softnet -f csv -o - -- sleep 1 | plumb table
  plumb beforeafter --collect snmp,tcpext,softnet,dev --diagnose -- plumb run plans/quick.yaml

Exit codes: 0; 2 the command line is wrong; 3 a snapshot cannot be read, or --strict found something; with --collect, the \
command's own (128 plus the signal's number where a signal ended it).")]
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
    /// Form of the output.
    #[arg(short = 'f', long = "out", value_enum, default_value_t = Out::Text)]
    out: Out,
    /// Write the output to FILE; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the snapshots, where detection fails.
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
    /// In CSV and JSON, keep what did not change.
    #[arg(long)]
    zeros: bool,
    /// Only counters whose key or source matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    keys: Option<String>,
    /// Without counters whose key or source matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    ignore: Option<String>,
    /// Treat these keys as levels: shown, not subtracted.
    #[arg(long, value_name = "REGEX")]
    gauge: Option<String>,
    /// In CSV and JSON, keep the parts of each CPU instead of their sum.
    #[arg(long)]
    per_cpu: bool,
    /// In CSV and JSON, add up the queues of a device (rx_queue_0_bytes and rx_queue_1_bytes become rx_queue_*_bytes).
    #[arg(long)]
    sum_queues: bool,
    /// Treatment of a counter that only AFTER has. Formats that leave out zeros are known: theirs start at zero.
    #[arg(long, value_enum, default_value_t = Missing::Skip)]
    missing: Missing,
    /// Width of counters whose format does not tell it (ethtool, JSON, text, …): 32 or 64 bits.
    #[arg(long, value_name = "BITS", value_parser = ["32", "64"])]
    counter_bits: Option<String>,
    /// Largest growth of a counter per second: tells a wrapped 32-bit counter from a reset one.
    #[arg(long, value_name = "PER_SECOND")]
    max_rate: Option<f64>,
    /// The `host` column [default: this machine's name with --collect, else empty]
    #[arg(long)]
    host: Option<String>,
    /// Explain the differences in sentences: retransmissions, overflows, drops, checksum errors, time squeeze. They
    /// replace the text output; beside CSV and JSON they go to standard error.
    #[arg(long)]
    diagnose: bool,
    /// Resets, vanished and new counters are an error (exit code 3).
    #[arg(long)]
    strict: bool,
    /// The command to run between the snapshots.
    #[arg(last = true, value_name = "COMMAND", requires = "collect")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Out {
    /// AFTER's text, with differences for numbers
    Text,
    /// The `counters` table
    Csv,
    /// The same as an array of objects
    Json,
}

/// Two texts of one source, each with its name.
struct Pair {
    /// Item of `--collect`.
    source: Option<String>,
    before: (String, String),
    after: (String, String),
    elapsed: Option<f64>,
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
            return Err(Error::Usage(format!("{flag} must be greater than 0")));
        }
    }
    if args.rate && args.elapsed.is_none() && args.collect.is_empty() {
        return Err(Error::Usage("--rate needs --elapsed SECONDS: files do not tell the time between them".into()));
    }
    let (pairs, status) = if args.collect.is_empty() { (vec![files(args)?], None) } else { collected(args)? };

    let (page, unusable) = page(args, &wanted, gauges.as_ref(), &pairs)?;
    let to_stdout = args.output.as_deref().map_or(args.collect.is_empty(), |path| path == Path::new("-"));
    let write = |out: &mut dyn Write| out.write_all(&page);
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
        .map(|p| {
            regex::Regex::new(p).map_err(|e| Error::Usage(format!("{flag}: `{p}` is not a regular expression: {e}")))
        })
        .transpose()
}

fn files(args: &Args) -> Result<Pair, Error> {
    let (Some(before), Some(after)) = (&args.before, &args.after) else {
        return Err(Error::Usage("give two snapshots: beforeafter BEFORE AFTER".into()));
    };
    let dash = Path::new("-");
    if before == dash && after == dash {
        return Err(Error::Usage("only one of the snapshots can be standard input".into()));
    }
    Ok(Pair { source: None, before: read_text(before)?, after: read_text(after)?, elapsed: args.elapsed })
}

/// Takes snapshots around the command. An interrupt from the terminal ends the command only; the differences still
/// follow.
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

/// The output, and the error of the first counter without a difference.
fn page(
    args: &Args,
    wanted: &Wanted,
    gauges: Option<&regex::Regex>,
    pairs: &[Pair],
) -> Result<(Vec<u8>, Option<Error>), Error> {
    let mut snapshots = Vec::with_capacity(pairs.len());
    for Pair { source, before, after, .. } in pairs {
        let options = Options { format: args.format, key_columns: args.key.clone(), source: source.clone() };
        snapshots.push(Snapshot::read_pair((&before.0, &before.1), (&after.0, &after.1), &options)?);
    }
    let host = match &args.host {
        Some(host) => host.clone(),
        None if args.collect.is_empty() => String::new(),
        None => collect::host(),
    };
    let (mut page, mut objects, mut all, mut unusable) = (Vec::new(), Vec::new(), Vec::new(), None);
    if args.out == Out::Csv {
        writeln!(page, "{}", render::HEADER.join(","))?;
    }
    for (index, (pair, (before, after))) in pairs.iter().zip(&snapshots).enumerate() {
        let settings = Settings {
            elapsed: pair.elapsed,
            max_rate: args.max_rate,
            bits: args.counter_bits.as_deref().map(|b| if b == "32" { Bits::ThirtyTwo } else { Bits::SixtyFour }),
            missing: args.missing,
            gauges: gauges.cloned(),
        };
        let changes = diff::differences(before, after, &settings)?;
        let losses = Losses::of(&changes);
        losses.warn();
        unusable = unusable.or_else(|| losses.error((after.file, after.text)));
        let folded = || diff::folded(&changes, args.per_cpu, args.sum_queues);
        match args.out {
            Out::Text if args.diagnose => {}
            Out::Text => {
                if let (Some(source), 2..) = (&pair.source, pairs.len()) {
                    let gap = if index == 0 { "" } else { "\n" };
                    writeln!(page, "{gap}# {source}, {:.3} s", pair.elapsed.unwrap_or_default())?;
                }
                let per_s = pair.elapsed.filter(|_| args.rate);
                page.extend(render::text(after, &changes, wanted, per_s).into_bytes());
            }
            Out::Csv => render::csv(&mut page, after.format, &host, &folded(), wanted, pair.elapsed)?,
            Out::Json => objects.extend(render::objects(after.format, &host, &folded(), wanted, pair.elapsed)),
        }
        if args.diagnose {
            all.extend(changes);
        }
    }
    if args.out == Out::Json {
        writeln!(page, "[")?;
        for (index, object) in objects.iter().enumerate() {
            let comma = if index + 1 < objects.len() { "," } else { "" };
            writeln!(page, "{object}{comma}")?;
        }
        writeln!(page, "]")?;
    }
    if args.diagnose {
        let words = diagnose::sentences(&all).join("\n");
        match args.out {
            Out::Text => writeln!(page, "{words}")?,
            // A closed standard error must not fail the filter.
            Out::Csv | Out::Json => drop(writeln!(anstream::stderr(), "{words}")),
        }
    }
    Ok((page, unusable))
}
