//! A measuring client beside hostile clients of every kind, against one daemon.
//!
//! Rounds with and without the hostile clients alternate, so that the machine's own noise is in both. The test takes about 20
//! seconds and asserts nothing about times: `SOAK_SECONDS=1800 cargo test --release -p runner --test e2e soak -- --nocapture`
//! takes half an hour and prints the figures of docs/internals/performance.md.

mod hostile;
mod process;

use std::{
    fs::File,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use analyze::stats::confidence::median_interval;
use hostile::{KINDS, Pack, Target};
use netcore::control::key::Key;
use process::{Sample, cpu_seconds};

use crate::program::{Folder, Row, Serve, command, end, of, parse};

/// The measured figures: test, column, and their names in the table.
const FIGURES: [(&str, &str, &str); 5] = [
    ("bulk", "throughput_bits_per_s", "TCP stream, throughput"),
    ("rr", "transactions_per_s", "1-byte round trips, rate"),
    ("rr", "latency_p50_us", "1-byte round trips, median latency"),
    ("rr", "latency_p99_us", "1-byte round trips, 99th percentile"),
    ("paced", "throughput_bits_per_s", "UDP at 20 Mbit/s, throughput"),
];

/// Budget of memory for all tests of the daemon: greedy clients use all of it.
const BUDGET: u64 = 24 << 20;

/// Allowance for what an allocator keeps, bytes.
const SLACK: u64 = 64 << 20;

/// Allowance for the growth of the memory at rest between the first pair of rounds and the last, bytes.
const LEAK: u64 = 8 << 20;

/// Limit for whatever takes no time on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// One round: a whole run of the measuring client.
struct Round {
    hostile: bool,
    figures: Vec<f64>,
    /// The daemon after it, at rest.
    rest: Sample,
    /// The most that the daemon took while it ran.
    peak: Sample,
    seconds: f64,
    daemon_cpu: f64,
    /// CPU time of the process of the hostile clients.
    hostile_cpu: f64,
}

struct Soak {
    daemon: Serve,
    folder: Folder,
    plan: String,
    key: String,
    pack: Pack,
    began: Instant,
}

impl Soak {
    fn new(milliseconds: u64) -> Self {
        let folder = Folder::new();
        let key = Key::generate().unwrap();
        key.save(&folder.path("key")).unwrap();
        let log = File::create(folder.path("log")).unwrap();
        let budget = BUDGET.to_string();
        let flags = ["--key-file", &folder.name("key"), "--max-sessions-per-client", "4", "--max-memory", &budget];
        let daemon = Serve::whole("127.0.0.1", &flags, log.into());
        let bodies =
            ["bulk: {workload: tcp_stream", "rr: {workload: tcp_rr", "paced: {workload: udp_stream, rate: 20Mbit/s"];
        let tests: Vec<String> =
            bodies.iter().map(|body| format!("  {body}, to: b, duration: {milliseconds}ms}}")).collect();
        let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", daemon.address);
        let plan = folder.plan(&top, &tests.join("\n"));
        let target = Target { control: daemon.address.parse().unwrap(), pid: daemon.pid(), key };
        let key = folder.name("key");
        Self { daemon, folder, plan, key, pack: Pack::new(target), began: Instant::now() }
    }

    /// Waits until the daemon has no more files and threads than at its start.
    fn settle(&self, first: Option<Sample>) -> Sample {
        let since = Instant::now();
        loop {
            let sample = Sample::of(self.daemon.pid());
            match first {
                Some(first) if sample.files > first.files || sample.threads > first.threads => {}
                _ => return sample,
            }
            assert!(since.elapsed() < PATIENCE, "the daemon still has {sample:?}, and began with {first:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn round(&self, hostile: bool, first: Sample) -> Round {
        let pid = self.daemon.pid();
        let cpu = || (cpu_seconds(&pid.to_string()), cpu_seconds("self"));
        let (since, before) = (Instant::now(), cpu());
        self.pack.loose(hostile);
        // The same pause in both, so that the hostile ones are at work when the measurement begins.
        thread::sleep(Duration::from_millis(500));
        let args = ["run", &self.plan, "--key-file", &self.key, "--progress", "never", "-o", "-"];
        let mut client = command(&args).stdout(Stdio::piped()).spawn().expect("plumb starts");
        let mut peak = Sample::default();
        while client.try_wait().expect("our own child").is_none() {
            peak = peak.max(Sample::of(pid));
            thread::sleep(Duration::from_millis(100));
        }
        let ran = end(client);
        self.pack.loose(false);
        let (after, seconds) = (cpu(), since.elapsed().as_secs_f64());
        assert_eq!(ran.code, Some(0), "hostile: {hostile}\n{}\n{}", ran.stderr, ran.stdout);
        let rows = parse(&ran.stdout);
        let iterations = of(&rows, "iteration");
        assert!(iterations.len() == 3 && iterations.iter().all(|row| row["status"] == "ok"), "{}", ran.stdout);
        let figure = |(test, column, _): &(&str, &str, &str)| {
            let row: &&Row = iterations.iter().find(|row| row["test"] == *test).expect("each test has a row");
            row[*column].parse().unwrap_or(f64::NAN)
        };
        Round {
            hostile,
            figures: FIGURES.iter().map(figure).collect(),
            rest: self.settle(Some(first)),
            peak,
            seconds,
            daemon_cpu: after.0 - before.0,
            hostile_cpu: after.1 - before.1,
        }
    }
}

/// Bytes and lines of the log so far.
fn logged(soak: &Soak) -> (usize, usize) {
    let log = std::fs::read_to_string(soak.folder.path("log")).expect("the daemon's log");
    (log.len(), log.lines().count())
}

#[test]
fn soak_beside_hostile_clients() {
    let long = std::env::var("SOAK_SECONDS").ok().map(|text| Duration::from_secs(text.parse().expect("whole seconds")));
    let soak = Soak::new(if long.is_some() { 1000 } else { 200 });
    let first = soak.settle(None);
    let mut rounds = Vec::new();
    thread::scope(|scope| {
        soak.pack.start(scope);
        // Ends the threads also where an assertion fails.
        let _end = Ends(&soak.pack);
        let mut pair = 0;
        while pair < 3 || soak.began.elapsed() < long.unwrap_or(Duration::from_secs(15)) {
            // The order changes with each pair, so that a drift of the machine falls on both.
            for hostile in [pair % 2 == 0, pair % 2 == 1] {
                rounds.push(soak.round(hostile, first));
            }
            pair += 1;
            // A machine that is too busy for the usual number of rounds has shown enough.
            if long.is_none() && soak.began.elapsed() > Duration::from_mins(1) {
                break;
            }
        }
    });
    let seconds = soak.began.elapsed().as_secs_f64();
    let (bytes, lines) = logged(&soak);
    print(&rounds, first, seconds, (bytes, lines), &soak.pack.acts());
    let acts = soak.pack.acts();
    assert!(acts.iter().all(|acts| *acts > 0), "each kind was at work: {acts:?}");
    let memory = rounds.iter().map(|round| round.peak.memory).max().unwrap_or_default();
    assert!(memory < first.memory + BUDGET + SLACK, "{} MiB at the most", memory >> 20);
    let bound = soak_log_bound(soak.began.elapsed());
    assert!(bytes as u64 <= bound, "{bytes} bytes of log in {lines} lines, more than {bound}");
    // The first pair fills the allocator's caches; afterwards a rest costs no more than the one before.
    let at_rest: Vec<u64> = rounds.iter().map(|round| round.rest.memory >> 10).collect();
    println!("memory at rest, KiB: {at_rest:?}");
    let (early, last) = (at_rest[1], at_rest[at_rest.len() - 1]);
    assert!(last < early + (LEAK >> 10), "{at_rest:?} KiB at rest");
}

/// The most bytes that the log may have: for each second a line and a count of each of the three kinds of strangers, and
/// ten lines of each of the three kinds about sessions, with 2 KiB for each. A span that has just begun adds to it.
fn soak_log_bound(elapsed: Duration) -> u64 {
    2048 * (3 * 2 + 3 * 10) * (elapsed.as_secs() + 10)
}

/// Ends the hostile clients when it is dropped.
struct Ends<'p>(&'p Pack);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The figures, as docs/internals/performance.md has them.
fn print(rounds: &[Round], first: Sample, seconds: f64, (bytes, lines): (usize, usize), acts: &[u64]) {
    let of = |hostile: bool| -> Vec<&Round> { rounds.iter().filter(|round| round.hostile == hostile).collect() };
    let (with, without) = (of(true), of(false));
    println!("{} pairs of rounds in {seconds:.0} s", with.len().min(without.len()));
    println!("\n| | without | with | with ÷ without (95 % interval) |\n| --- | --- | --- | --- |");
    for (i, (_, _, name)) in FIGURES.iter().enumerate() {
        let ratios = with.iter().zip(&without).map(|(with, without)| with.figures[i] / without.figures[i]);
        let median = |rounds: &[&Round]| middle(rounds.iter().map(|round| round.figures[i]).collect());
        println!("| {name} | {:.4e} | {:.4e} | {} |", median(&without), median(&with), interval(ratios.collect()));
    }
    let sum = |rounds: &[&Round], of: fn(&Round) -> f64| rounds.iter().map(|round| of(round)).sum::<f64>();
    let share = |rounds: &[&Round], of: fn(&Round) -> f64| 100.0 * sum(rounds, of) / sum(rounds, |round| round.seconds);
    println!("\n| CPU time, % of one CPU | without | with |\n| --- | --- | --- |");
    for (name, of) in
        [("daemon", (|round| round.daemon_cpu) as fn(&Round) -> f64), ("hostile clients", |round| round.hostile_cpu)]
    {
        println!("| {name} | {:.1} | {:.1} |", share(&without, of), share(&with, of));
    }
    let peak = rounds.iter().fold(Sample::default(), |peak, round| peak.max(round.peak));
    let last = rounds.last().map_or(first, |round| round.rest);
    println!("\n| daemon | at the start | at most | at the end |\n| --- | --- | --- | --- |");
    for (name, of) in [
        ("files", (|sample| sample.files) as fn(Sample) -> u64),
        ("threads", |sample| sample.threads),
        ("resident memory, KiB", |sample| sample.memory >> 10),
    ] {
        println!("| {name} | {} | {} | {} |", of(first), of(peak), of(last));
    }
    let quarter = rounds.len() / 4;
    let memory = |rounds: &[Round]| middle(rounds.iter().map(|round| round.rest.memory as f64 / 1024.0).collect());
    if quarter > 0 {
        let (early, late) = (memory(&rounds[..quarter]), memory(&rounds[rounds.len() - quarter..]));
        println!("\nmemory at rest, median: first quarter {early:.0} KiB, last quarter {late:.0} KiB");
    }
    println!("log: {lines} lines, {bytes} bytes, {:.1} lines a second", lines as f64 / seconds);
    let loose = sum(&with, |round| round.seconds);
    for (kind, acts) in KINDS.iter().zip(acts) {
        println!("{}: {acts} acts, {:.1} a second", kind.name, *acts as f64 / loose);
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn interval(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    match median_interval(&ratios, 0.95) {
        Some(interval) => format!("{:.3} ({:.3} to {:.3})", interval.centre, interval.low, interval.high),
        None => format!("{:.3}", middle(ratios)),
    }
}
