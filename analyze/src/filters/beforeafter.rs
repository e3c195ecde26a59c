//! `beforeafter`: what counters counted between two readings.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::counters::collect::{self, Source};
use crate::counters::diff::{self, Change, Differences, Missing, Note, Settings};
use crate::counters::render::{self, Wanted};
use crate::counters::{Bits, Format, Options, Snapshot, diagnose};
use crate::error::{Error, Place, Verdict};
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
/// Both snapshots are held in memory, with some 90 bytes for each number in them, twice that for CSV; more where a name is
/// a path of headings, as in text. It reads 70 to 240 MB of both a second.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  netstat -s > before; sleep 1; netstat -s > after
  plumb beforeafter before after | grep segments
  plumb beforeafter --collect snmp,dev,softnet -f csv -o - -- sleep 1 | plumb table
  plumb beforeafter --collect snmp,tcpext,softnet,dev --diagnose -- plumb run plans/quick.yaml

Exit codes: 0; 2 the command line is wrong; 3 a snapshot cannot be read, or --strict found something; with --collect, the
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
    /// Columns that identify a row of a CSV snapshot. Default: those that are not numeric.
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
    /// The `host` column. Default: empty, and this machine's name with --collect.
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

    let mut page: Vec<u8> = Vec::new();
    let to_stdout = args.output.as_deref().map_or(args.collect.is_empty(), |path| path == Path::new("-"));
    let mut unusable = None;
    {
        let snapshots = pairs.iter().map(|pair| read(args, pair)).collect::<Result<Vec<_>, _>>()?;
        let mut sink = Sink {
            args,
            wanted: &wanted,
            many: pairs.len() > 1,
            first: true,
            objects: Vec::new(),
            changes: Vec::new(),
        };
        for (pair, (before, after)) in pairs.iter().zip(&snapshots) {
            let settings = Settings {
                elapsed: pair.elapsed.or(args.elapsed),
                max_rate: args.max_rate,
                bits: args.counter_bits.as_deref().map(|b| if b == "32" { Bits::ThirtyTwo } else { Bits::SixtyFour }),
                missing: args.missing,
                gauges: gauges.clone(),
            };
            let differences = Differences::new(before, after, &settings)?;
            let losses = sink.pair(&mut page, after, &differences, settings.elapsed)?;
            losses.warn();
            if unusable.is_none() {
                unusable = losses.first.map(|c| complaint(after, &c));
            }
        }
        sink.finish(&mut page)?;
    }
    match &args.output {
        _ if to_stdout => output.write_all(&page)?,
        Some(path) => write_whole(path, |file| Ok(file.write_all(&page)?))?,
        None => std::io::stderr().lock().write_all(&page)?,
    }
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
    Ok(Pair { source: None, before: read_text(before)?, after: read_text(after)?, elapsed: None })
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

fn read<'p>(args: &Args, pair: &'p Pair) -> Result<(Snapshot<'p>, Snapshot<'p>), Error> {
    let options = Options { format: args.format, key_columns: args.key.clone(), source: pair.source.clone() };
    let (before, after) = rayon::join(
        || Snapshot::read(&pair.before.0, &pair.before.1, &options),
        || Snapshot::read(&pair.after.0, &pair.after.1, &options),
    );
    let (before, after) = (before?, after?);
    if before.format != after.format {
        return Err(Error::Usage(format!(
            "{} looks like {}, {} like {}: say which it is with --format",
            before.file,
            before.format.name(),
            after.file,
            after.format.name()
        )));
    }
    Ok((before, after))
}

fn is_unusable(change: &Change<'_>) -> bool {
    match change.note {
        Note::Reset | Note::Gone => true,
        Note::New => change.delta.is_none(),
        _ => false,
    }
}

fn complaint(after: &Snapshot<'_>, change: &Change<'_>) -> Error {
    let what = match change.note {
        Note::Gone => "is no longer there",
        Note::New => "was not there before",
        _ => "was set back between the snapshots",
    };
    Error::Data {
        place: Place { file: after.file.clone(), line: change.at.map_or(0, |(at, _)| after.line(at)), column: None },
        reason: format!("`{}` of {} {what} (--strict)", change.key, change.source),
    }
}

/// What has no difference: to be told once per source and kind.
#[derive(Default)]
struct Losses<'s> {
    /// Source, kind, an example's key, how many, in the order in which they were met.
    kinds: Vec<(&'s str, Note, String, usize)>,
    /// Where each is in `kinds`: a file can have very many interfaces.
    places: HashMap<(&'s str, Note), usize>,
    /// The first, for `--strict`.
    first: Option<Change<'s>>,
}

impl<'s> Losses<'s> {
    fn look(&mut self, change: &Change<'s>) {
        if !is_unusable(change) {
            return;
        }
        let at = *self.places.entry((change.source, change.note)).or_insert_with(|| {
            self.kinds.push((change.source, change.note, change.key.to_string(), 0));
            self.kinds.len() - 1
        });
        self.kinds[at].3 += 1;
        self.first.get_or_insert_with(|| change.clone());
    }

    fn warn(&self) {
        for (source, note, example, count) in &self.kinds {
            let (what, help) = match note {
                Note::Gone => ("no longer there", ""),
                Note::New => ("not there before, so without a difference", "; --missing zero counts them from zero"),
                _ => ("set back, so without a difference", ""),
            };
            let counters = if *count == 1 {
                format!("`{example}` is")
            } else {
                format!("{count} counters (`{example}`, …) are")
            };
            crate::warn(&format!("{source}: {counters} {what}{help}"));
        }
    }
}

/// Where the differences of one or more pairs come together.
struct Sink<'s> {
    args: &'s Args,
    wanted: &'s Wanted,
    many: bool,
    first: bool,
    objects: Vec<serde_json::Value>,
    /// For the diagnosis, which looks at all sources together.
    changes: Vec<Change<'s>>,
}

impl<'s> Sink<'s> {
    fn host(&self) -> String {
        match &self.args.host {
            Some(host) => host.clone(),
            None if self.args.collect.is_empty() => String::new(),
            None => collect::host(),
        }
    }

    fn pair(
        &mut self,
        page: &mut Vec<u8>,
        after: &Snapshot<'_>,
        differences: &Differences<'s>,
        elapsed: Option<f64>,
    ) -> Result<Losses<'s>, Error> {
        let first = std::mem::take(&mut self.first);
        let mut losses = Losses::default();
        let changes = differences.iter().inspect(|change| losses.look(change));
        if self.args.out == Out::Text && !self.args.diagnose {
            if self.many {
                let gap = if first { "" } else { "\n" };
                let source = after.file.trim_end_matches(" after");
                writeln!(page, "{gap}# {source}, {:.3} s", elapsed.unwrap_or_default())?;
            }
            let per_s = elapsed.filter(|_| self.args.rate);
            render::text(page, after, changes, self.wanted, per_s);
            return Ok(losses);
        }
        let changes: Vec<Change<'s>> = changes.collect();
        match self.args.out {
            Out::Text => {}
            Out::Csv => {
                if first {
                    writeln!(page, "{}", render::HEADER.join(","))?;
                }
                render::csv(page, after.format, &self.host(), &self.folded(&changes), self.wanted, elapsed)?;
            }
            Out::Json => {
                let rows = render::objects(after.format, &self.host(), &self.folded(&changes), self.wanted, elapsed);
                self.objects.extend(rows);
            }
        }
        if self.args.diagnose {
            self.changes.extend(changes);
        }
        Ok(losses)
    }

    fn folded<'c>(&self, changes: &'c [Change<'s>]) -> std::borrow::Cow<'c, [Change<'s>]> {
        diff::folded(changes, self.args.per_cpu, self.args.sum_queues)
    }

    fn finish(&self, page: &mut Vec<u8>) -> Result<(), Error> {
        if self.args.out == Out::Json {
            writeln!(page, "[")?;
            for (index, object) in self.objects.iter().enumerate() {
                let comma = if index + 1 < self.objects.len() { "," } else { "" };
                writeln!(page, "{object}{comma}")?;
            }
            writeln!(page, "]")?;
        }
        if self.args.diagnose {
            let words = diagnose::sentences(&self.changes).join("\n");
            match self.args.out {
                Out::Text => writeln!(page, "{words}")?,
                Out::Csv | Out::Json => anstream::eprintln!("{words}"),
            }
        }
        Ok(())
    }
}
