//! Outputs of the real programs, in `tests/fixtures/import/recorded/PROGRAM`.
//!
//! `PROGRAM.expected` has the command line of each output and the rows that it must become, derived from the command line
//! and the printed figures without these readers: `[FILE] COMMAND`, then `with OPTIONS` of `plumb import`, then a line
//! per row with all of its cells, or `refused LINE WORDS`.
//!
//! The outputs of `osu` are of its versions 5.3 (Open MPI) and 7.4 (MPICH), those of `imb` of 2018.1 (Open MPI) and 2021.11
//! (MPICH), those of `irtt` of 0.9.0 to 0.9.2, those of `iperf2` of 2.0.14a and 2.1.8, those of `perftest` of 4.5 and
//! 25.10 over soft RoCE (rdma_rxe) in a virtual machine. Those of `nccl` were written after the formats of versions 2.13,
//! 2.17 and 2.19 (src/common.cu, src/util.cu), with times of our own.
//! Those of `npb` were written after the format of the suite's versions 3.3 and 3.4, with published sizes and checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use chacha20::ChaCha8Rng;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use schemas::columns::{self, Row};
use schemas::words::Record;

use super::{ImportedRows, Program};
use clap::ValueEnum as _;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/import/recorded")
}

/// One output with its expectation.
struct Recorded {
    /// `PROGRAM/FILE`.
    name: String,
    text: String,
    workload: Option<String>,
    unit: Option<String>,
    from: Option<Program>,
    wanted: Vec<String>,
}

fn recorded() -> Vec<Recorded> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder()).expect("the folder of recorded outputs").flatten() {
        let path = entry.path();
        let Some(program) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".expected")) else {
            continue;
        };
        let table = std::fs::read_to_string(&path).expect("a table");
        let mut used = BTreeSet::new();
        for section in table.split("\n\n").map(str::trim).filter(|s| !s.is_empty()) {
            let mut lines = section.lines();
            let file = lines.next().and_then(|l| l.strip_prefix('[')?.split_once(']')).expect("[FILE] COMMAND").0;
            let file = if file.contains('.') { file.to_owned() } else { format!("{file}.txt") };
            let text = std::fs::read_to_string(folder().join(program).join(&file)).expect(&file);
            let mut wanted: Vec<String> = lines.map(str::to_owned).collect();
            let options = wanted.first().filter(|l| l.starts_with("with ")).cloned();
            if options.is_some() {
                wanted.remove(0);
            }
            let option = |name: &str| {
                let words: Vec<&str> = options.as_deref()?.split(' ').collect();
                words.iter().position(|w| *w == name).and_then(|at| words.get(at + 1)).map(|w| (*w).to_owned())
            };
            let from = option("--from").and_then(|name| Program::from_str(&name, false).ok());
            let name = format!("{program}/{file}");
            used.insert(file);
            all.push(Recorded { name, text, workload: option("--workload"), unit: option("--unit"), from, wanted });
        }
        let files: BTreeSet<String> = std::fs::read_dir(folder().join(program))
            .expect("a folder")
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        assert_eq!(files, used, "each output of {program} has its expectation");
    }
    // The folder lists its files in any order.
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl Recorded {
    fn import(&self, text: &str) -> Result<Vec<Row>, crate::error::Error> {
        let mut imported = ImportedRows::with(self.workload.as_deref(), self.unit.as_deref())?;
        imported.read("FILE", text, self.from)?;
        Ok(imported.finish())
    }
}

/// Columns that name a row, or follow from another column.
const NAMES: [&str; 7] = ["plan", "record", "test", "case", "case_id", "iteration", "transport"];

/// A row's cells, without those that every row has.
fn cells(row: &Row) -> BTreeMap<String, String> {
    let header = columns::header(&[]);
    let mut names = header.iter();
    let mut cells = BTreeMap::new();
    row.for_each_cell(|cell| {
        let name = names.next().expect("a column per cell");
        let usual = matches!((name.as_str(), cell), ("phase", "measure") | ("status", "ok"));
        if !cell.is_empty() && !usual && !NAMES.contains(&name.as_str()) {
            cells.insert(name.clone(), cell.to_owned());
        }
    });
    cells
}

fn same(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

/// `interval a=1 b=2` as a record and its cells. A value may have blanks.
fn wanted_cells(line: &str) -> (String, BTreeMap<String, String>) {
    let (record, mut rest) = line.split_once(' ').expect("a record and its cells");
    let mut cells = BTreeMap::new();
    while let Some((name, value)) = rest.split_once('=') {
        let (value, next) = match value.split_once('=') {
            Some((both, _)) => {
                let (value, _) = both.rsplit_once(' ').expect("a blank before the next name");
                (value, &rest[name.len() + 1 + value.len() + 1..])
            }
            None => (value, ""),
        };
        cells.insert(name.to_owned(), value.to_owned());
        rest = next;
    }
    (record.to_owned(), cells)
}

#[test]
fn every_figure_of_the_real_programs_arrives() {
    let recorded = recorded();
    let mut wrong = String::new();
    for output in &recorded {
        let mut say = |what: String| wrong.extend([&output.name, ": ", &what, "\n"]);
        let rows = output.import(&output.text);
        if let Some(refused) = output.wanted.first().and_then(|l| l.strip_prefix("refused ")) {
            let (line, words) = refused.split_once(' ').expect("refused LINE WORDS");
            let place = if line == "0" { "FILE: ".to_owned() } else { format!("FILE:{line}: ") };
            match rows {
                Err(e) if e.to_string().starts_with(&place) && e.to_string().contains(words) => {}
                Err(e) => say(format!("`{e}` is not `{place}… {words}`")),
                Ok(_) => say("is not refused".to_owned()),
            }
            continue;
        }
        let rows = match rows {
            Ok(rows) => rows,
            Err(e) => {
                say(e.to_string());
                continue;
            }
        };
        if rows.len() != output.wanted.len() {
            say(format!("{} rows instead of {}", rows.len(), output.wanted.len()));
        }
        for (at, (row, line)) in rows.iter().zip(&output.wanted).enumerate() {
            let (record, wanted) = wanted_cells(line);
            let found = cells(row);
            if row.record.map(Record::as_str) != Some(record.as_str()) {
                say(format!("row {at} is of another record than {record}"));
            }
            let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
            for name in names {
                match (found.get(name), wanted.get(name)) {
                    (Some(a), Some(b)) if same(a, b) => {}
                    (found, wanted) => say(format!("row {at}: {name} is {found:?}, the output says {wanted:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let programs: BTreeSet<&str> = recorded.iter().filter_map(|r| r.name.split('/').next()).collect();
    for program in Program::value_variants().iter().filter_map(clap::ValueEnum::to_possible_value) {
        assert!(programs.contains(program.get_name()), "no output of {}", program.get_name());
        let read = recorded.iter().filter(|r| r.name.starts_with(&format!("{}/", program.get_name())));
        assert!(read.count() >= 10, "ten command lines of {}", program.get_name());
    }
}

/// Whether an output that was cut off somewhere is refused, or gives only figures that the whole output has.
fn cut_is_honest(output: &Recorded, whole: &[BTreeMap<String, String>], at: usize) -> Result<(), String> {
    let cut = &output.text[..at];
    let Ok(rows) = output.import(cut) else { return Ok(()) };
    let known = |row: &BTreeMap<String, String>| {
        // netperf's RT_LATENCY stands for MEAN_LATENCY, which a later block has.
        let stands_in = |name: &str| name == "latency_mean_us" && output.name == "netperf/all-human.txt";
        let same = |w: &BTreeMap<String, String>, name: &str, cell: &str| w.get(name).is_some_and(|c| c == cell);
        whole.iter().any(|w| row.iter().all(|(name, cell)| same(w, name, cell) || stands_in(name)))
    };
    match rows.iter().map(cells).find(|row| !known(row)) {
        None => Ok(()),
        Some(row) => {
            let end: Vec<char> = cut.chars().rev().take(40).collect();
            let end: String = end.into_iter().rev().collect();
            let best = whole.iter().map(|w| row.iter().filter(|(n, c)| w.get(*n) != Some(c)).collect::<Vec<_>>());
            let wrong = best.min_by_key(Vec::len).unwrap_or_default();
            Err(format!("{}: cut after {end:?} it has {wrong:?}", output.name))
        }
    }
}

fn whole(output: &Recorded) -> Vec<BTreeMap<String, String>> {
    output.import(&output.text).map(|rows| rows.iter().map(cells).collect()).unwrap_or_default()
}

/// Places between the characters of an output at which it is cut: a few, which only its name and text decide, and the last;
/// with FULL all of them.
fn cuts(output: &Recorded) -> Vec<usize> {
    const DRAWN: usize = 8;
    let mut places: Vec<usize> = output.text.char_indices().map(|(at, _)| at).collect();
    if std::env::var_os("FULL").is_some() {
        return places;
    }
    let last = places.split_off(places.len().saturating_sub(2));
    let mut rng =
        ChaCha8Rng::seed_from_u64(output.name.bytes().fold(0, |seed, b| seed * 31 % (1 << 32) + u64::from(b)));
    let drawn = (0..DRAWN).filter_map(|_| places.get(rng.random_range(0..places.len().max(1))).copied());
    drawn.chain(last).collect()
}

/// `FULL=1 cargo test --release -p analyze --lib cut_anywhere` tries every place, which takes minutes.
#[test]
fn an_output_cut_anywhere_gives_no_other_figure() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for output in &recorded() {
        let whole = whole(output);
        if !whole.is_empty() {
            let cuts = cuts(output);
            tried += cuts.len();
            wrong.extend(cuts.into_iter().filter_map(|at| cut_is_honest(output, &whole, at).err()));
        }
    }
    assert!(tried > 1000, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried} places:\n{}", wrong.len(), wrong.join("\n"));
}

/// Numbers of a text, however they are separated, and those with an exponent that are a word.
fn numbers(text: &str) -> Vec<f64> {
    let pieces = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    pieces.flat_map(|n| [n, n.trim_matches('.')]).chain(words).filter_map(|n| n.parse().ok()).collect()
}

/// Columns whose values follow from several figures: differences, sums, shares, rates of latencies, ranks.
const DERIVED: [&str; 19] = [
    "time",
    "start_s",
    "elapsed_s",
    "stream",
    "streams",
    "lost",
    "loss_ratio",
    "inflight",
    "iteration",
    "ranks",
    "transactions",
    "transactions_per_s",
    "messages_sent",
    "messages_received",
    "duplicated",
    "latency_mean_us",
    "local_cpu_peak_id",
    "bytes_sent",
    "bytes_received",
];

/// Factors between a figure of the text and its cell in the table.
const FACTORS: [f64; 31] = [
    1.0,
    2.0,
    0.5,
    0.25,
    0.125,
    0.0625,
    16e6,
    0.01,
    0.005,
    8.0,
    8e3,
    8e6,
    8e9,
    1e3,
    1e6,
    1e9,
    1e12,
    5e5,
    1024.0,
    8192.0,
    1_048_576.0,
    8_388_608.0,
    1_073_741_824.0,
    8_589_934_592.0,
    1_099_511_627_776.0,
    8_796_093_022_208.0,
    0.001,
    2000.0,
    2e6,
    0.002,
    1e-6,
];

static ALL: std::sync::OnceLock<Vec<Recorded>> = std::sync::OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A changed output is read or refused; it never makes a reader panic, nor invents a figure.
    #[test]
    fn no_figure_is_invented(
        which in any::<prop::sample::Index>(), at in 0.0f64..1.0, cut in 0usize..80, to_end in any::<bool>(),
        other in any::<prop::sample::Index>(), paste in "[0-9a-zA-Z:{},\" .=\n|/-]{0,8}",
    ) {
        let all = ALL.get_or_init(recorded);
        let (output, other) = (which.get(all), other.get(all));
        let text = &output.text;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short text")]
        let mut from = (text.len() as f64 * at) as usize;
        let mut to = if to_end { text.len() } else { (from + cut).min(text.len()) };
        while !text.is_char_boundary(from) { from -= 1; }
        while !text.is_char_boundary(to) { to += 1; }
        // A piece is cut out and replaced, or the end is cut off, and another output may follow.
        let end = if to_end && cut > 40 { &other.text } else { &text[to..] };
        let changed = format!("{}{paste}{end}", &text[..from]);
        if let Ok(rows) = output.import(&changed) {
            let printed = numbers(&changed);
            for (name, cell) in rows.iter().flat_map(cells) {
                let Ok(value) = cell.parse::<f64>() else { continue };
                if DERIVED.contains(&name.as_str()) || value == 0.0 {
                    continue;
                }
                let is_printed = printed.iter().any(|n| FACTORS.iter().any(|f| (n * f - value).abs() <= value.abs() * 1e-6));
                // The sum of both directions of a bidirectional run.
                let is_sum = || rows.iter().any(|r| r.direction == Some(schemas::words::Way::Both));
                prop_assert!(is_printed || is_sum(), "{}: {name}={cell} stands nowhere in\n{changed}", output.name);
            }
        }
    }
}
