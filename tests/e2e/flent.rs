//! flent runs its own tests with our `netperf` first on PATH, against a real netserver and against `plumb serve`; and with the real
//! netperf, which is the reference. Series, metadata and plots must be the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, panic,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    needs::{has_program, skip_without},
    netns::Pair,
    program::{Folder, despite_stalls, until},
};

/// Seconds of load, seconds before and after it, and between points.
const LENGTH: f64 = 3.0;
const DELAY: f64 = 1.0;
const STEP: f64 = 0.2;

/// flent's tests that are run by hand: `cargo test -p runner --test e2e flent -- --ignored`. `rrul_cs8` has 24 connections.
const ALL: [&str; 8] =
    ["rrul", "rrul_be", "tcp_upload", "tcp_download", "tcp_bidirectional", "tcp_8down", "ping", "rrul_cs8"];

/// Who measures, and who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Netperf,
    Plumb,
}

/// The first is the reference.
const PAIRS: [(By, By); 4] =
    [(By::Netperf, By::Netperf), (By::Plumb, By::Netperf), (By::Plumb, By::Plumb), (By::Netperf, By::Plumb)];

/// What flent made of a test.
struct Data {
    /// Points of each series.
    points: BTreeMap<String, usize>,
    /// Names of the facts that flent keeps of each series.
    facts: BTreeMap<String, BTreeSet<String>>,
    /// Names of its other facts.
    metadata: BTreeSet<String>,
    /// Lines with a warning or an error, of the measurement and of the plot.
    warnings: BTreeSet<String>,
}

/// A server in the far namespace, which ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// `ip netns exec` becomes the program, so its process is the server's.
    fn start(by: By, pair: &Pair) -> Self {
        let mut command = match by {
            By::Netperf => pair.far.command("netserver"),
            By::Plumb => pair.far.command(env!("CARGO_BIN_EXE_plumb")),
        };
        match by {
            By::Netperf => command.args(["-D", "-4"]),
            By::Plumb => command.args(["serve", "--listen", Pair::FAR, "--also", "netperf", "--max-sessions", "64"]),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        until("the server listens", || pair.far.read("ss", &["-Hltn", "sport = :12865"]).contains("LISTEN"));
        Self(child)
    }
}

/// Runs a test of flent and plots it.
fn measure(test: &str, (client, server): (By, By)) -> Option<Data> {
    let pair = Pair::new()?;
    if !pair.limit("100mbit", "20ms") {
        return None;
    }
    let shape = ["qdisc", "add", "dev", "data", "root", "tbf", "rate", "100mbit", "burst", "16kb", "latency", "20ms"];
    pair.far.read("tc", &shape);
    let server = Server::start(server, &pair);
    let folder = Folder::new();
    let programs = folder.path("bin");
    fs::create_dir(&programs).expect("made");
    if client == By::Plumb {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plumb"), programs.join("netperf")).expect("linked");
    }
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", programs.display());
    let mut flent = pair.near.command("flent");
    let (length, delay, step) = (LENGTH.to_string(), DELAY.to_string(), STEP.to_string());
    flent.args([test, "-H", Pair::FAR, "-l", &length, "-d", &delay, "-s", &step, "-D"]).arg(folder.path(""));
    let ran = flent.env("PATH", &path).output().expect("flent starts");
    let mut warnings = warnings(&ran);
    assert!(ran.status.success(), "{test} {client:?}: {warnings:?}");
    drop(server);
    let file = data_file(&folder.path(""));
    let unpacked = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip starts");
    let data: Value = serde_json::from_slice(&unpacked.stdout).expect("flent writes JSON");
    let picture = folder.path("plot.png");
    let plotted = Command::new("flent")
        .args(["-f", "plot", "-i"])
        .arg(&file)
        .arg("-o")
        .arg(&picture)
        .output()
        .expect("flent starts");
    assert!(plotted.status.success(), "{test}: {plotted:?}");
    assert!(fs::read(&picture).is_ok_and(|p| p.starts_with(b"\x89PNG")), "{test}: {plotted:?}");
    warnings.extend(self::warnings(&plotted));
    let object = |at: &str| data.pointer(at).and_then(Value::as_object).expect("an object");
    let values = |v: &Value| v.as_array().map_or(0, |v| v.iter().filter(|p| !p.is_null()).count());
    Some(Data {
        points: object("/results").iter().map(|(name, v)| (name.clone(), values(v))).collect(),
        facts: object("/metadata/SERIES_META").iter().map(|(name, of)| (name.clone(), keys(of))).collect(),
        metadata: keys(&data["metadata"]),
        warnings,
    })
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().expect("an object").keys().cloned().collect()
}

/// Lines that report something, without the numbers and paths of this run.
fn warnings(ran: &Output) -> BTreeSet<String> {
    let text = [&ran.stdout, &ran.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    let bad = |line: &&str| ["WARN", "ERROR", "Traceback", "Missing", "non-zero"].iter().any(|w| line.contains(w));
    text.lines().filter(bad).map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
}

/// The data file that flent wrote.
fn data_file(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).expect("a folder").flatten().map(|f| f.path());
    files.into_iter().find(|f| f.to_string_lossy().ends_with(".flent.gz")).expect("a data file")
}

/// Runs a test with all four pairs at once, and compares the others with the reference.
fn compare(test: &str) {
    let found: Vec<(_, Option<Data>)> = thread::scope(|scope| {
        let started = PAIRS.map(|pair| (pair, scope.spawn(move || measure(test, pair))));
        started
            .into_iter()
            .map(|(pair, thread)| (pair, thread.join().unwrap_or_else(|e| panic::resume_unwind(e))))
            .collect()
    });
    let mut found = found.into_iter().filter_map(|(pair, data)| Some((pair, data?)));
    let Some((_, reference)) = found.next() else { return };
    let mut wrong = Vec::new();
    for (pair, data) in found {
        if data.points.keys().ne(reference.points.keys()) {
            wrong.push(format!("{pair:?}: series {:?}, not {:?}", data.points.keys(), reference.points.keys()));
        }
        for (series, facts) in &reference.facts {
            let missing: Vec<_> = facts.difference(&data.facts[series]).collect();
            let more: Vec<_> = data.facts[series].difference(facts).collect();
            if !missing.is_empty() || !more.is_empty() {
                wrong.push(format!("{pair:?}: {series}: without {missing:?}, with {more:?}"));
            }
        }
        if data.metadata != reference.metadata {
            wrong.push(format!("{pair:?}: metadata {:?}", data.metadata.symmetric_difference(&reference.metadata)));
        }
        for (series, points) in &data.points {
            let least = 0.9 * LENGTH / STEP;
            if (*points as f64) < least {
                wrong.push(format!("{pair:?}: {series} has {points} points of at least {least}"));
            }
        }
        for warning in data.warnings.difference(&reference.warnings) {
            wrong.push(format!("{pair:?}: {warning}"));
        }
    }
    assert!(wrong.is_empty(), "{test}:\n{}", wrong.join("\n"));
}

fn is_ready() -> bool {
    let packages = [("flent", "flent"), ("fping", "fping"), ("netserver", "netperf"), ("gzip", "gzip")];
    for (program, package) in packages {
        if !has_program(program, package) {
            return false;
        }
    }
    let plots = Command::new("/usr/bin/python3").args(["-c", "import matplotlib"]).output();
    if !plots.is_ok_and(|p| p.status.success()) {
        skip_without("python3-matplotlib", "flent cannot plot");
        return false;
    }
    true
}

#[test]
fn flent_measures_up_and_down() {
    if is_ready() {
        despite_stalls(|| compare("tcp_bidirectional"));
        despite_stalls(|| compare("rrul_be"));
    }
}

#[test]
#[ignore = "two minutes"]
fn flent_runs_all_of_its_tests() {
    if is_ready() {
        for test in ALL {
            println!("{test}");
            despite_stalls(|| compare(test));
        }
    }
}
