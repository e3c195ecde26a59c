//! Running again where results are: what is replaced, what stays, and who else is writing there.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Child,
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{Folder, Ran, command, despite_stalls, end, is_interim, of, parse, plumb, rows};

const SHORT: &str = "  bulk: {workload: tcp_stream, bytes: 10MB, assert: [throughput > 1kbit/s]}";
const LONG: &str = "  bulk: {workload: tcp_stream, duration: 50ms, iterations: 2000}";

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Starts a run and waits until it has an iteration.
fn under_way(args: &[&str]) -> Child {
    let mut child = command(&[&["run"], args].concat()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.contains("iteration 2 of")));
    // The pipe must be read to its end, or the child would block.
    thread::spawn(move || lines.for_each(drop));
    child
}

/// A run that is ended by a signal after its first iteration.
fn cut_off(by: Signal, args: &[&str]) {
    let child = under_way(args);
    signal(&child, by);
    end(child);
}

/// Names and contents of a folder, plans and locks aside.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            all.extend(contents(&entry).into_iter().map(|(inner, text)| (format!("{name}/{inner}"), text)));
            all.push((name, Vec::new()));
        } else if ![".yaml", ".lock"].iter().any(|end| name.ends_with(end)) {
            all.push((name, fs::read(&entry).unwrap()));
        }
    }
    all.sort();
    all
}

fn names(folder: &Path) -> Vec<String> {
    contents(folder).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_run_that_never_starts_leaves_everything_as_it_was() {
    let folder = Folder::new();
    let table = folder.name("r.csv");
    assert_eq!(plumb(&["run", &folder.plan("", SHORT), "-o", &table]).code, Some(0));
    let before = contents(&folder.path(""));
    assert!(before.iter().any(|(name, _)| name == "r.verdicts.csv"));
    // A host that refuses, a condition that does not hold, and a key that cannot be read.
    let host = "hosts: {b: {address: 127.0.0.1, control: \"127.0.0.1:1\"}}";
    let far = folder.plan(host, "  bulk: {workload: tcp_stream, to: b}");
    for args in [&["-o", &table][..], &["--set", &format!("output.dir={}", folder.name("deep/out"))]] {
        let ran = plumb(&[&["run", &far][..], args].concat());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert_eq!(contents(&folder.path("")), before);
    }
    let here = folder.plan("require: [{check: mtu, at_least: 100000000}]", SHORT);
    let ran = plumb(&["run", &here, "-o", &table]);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(contents(&folder.path("")), before);
    let ran = plumb(&["run", &folder.plan("", SHORT), "-o", &table, "--key-file", &folder.name("none.key")]);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(contents(&folder.path("")), before);
}

#[test]
fn the_results_of_a_run_that_ended_are_replaced_whole() {
    let folder = Folder::new();
    let table = folder.name("r.csv");
    assert_eq!(plumb(&["run", &folder.plan("", SHORT), "-o", &table]).code, Some(0));
    let first = rows(&folder.path("r.csv"))[0]["run_id"].clone();
    assert_eq!(rows(&folder.path("r.verdicts.csv"))[0]["run_id"], first);
    let other = folder.plan("", "  rr: {workload: tcp_rr, duration: 50ms}");
    let ran = plumb(&["run", &other, "-o", &table]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(rows(&folder.path("r.csv")).iter().all(|row| row["run_id"] != first));
    assert_eq!(names(&folder.path("")), ["r.csv", "r.run.json"], "the verdicts were those of the other plan");
    // Reports that have names of their own stay.
    let junit = |name: &str| plumb(&["run", &other, "-o", &table, "--junit", &folder.name(name)]);
    assert_eq!((junit("a.xml").code, junit("b.xml").code), (Some(0), Some(0)));
    assert_eq!(names(&folder.path("")), ["a.xml", "b.xml", "r.csv", "r.run.json"]);
}

#[test]
fn pictures_lie_beside_their_table() {
    let folder = Folder::new();
    let test = "  rr: {workload: tcp_rr, duration: 50ms}";
    let drawn = folder.plan("output: {plots: [{kind: box, x: case, y: transactions, file: box.svg}]}", test);
    for table in ["a.csv", "b.csv"] {
        let ran = plumb(&["run", &drawn, "-o", &folder.name(table)]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!(names(&folder.path("")), ["a.box.svg", "a.csv", "a.run.json", "b.box.svg", "b.csv", "b.run.json"]);
    // They go with it.
    assert_eq!(plumb(&["run", &folder.plan("", test), "-o", &folder.name("a.csv")]).code, Some(0));
    assert_eq!(names(&folder.path("")), ["a.csv", "a.run.json", "b.box.svg", "b.csv", "b.run.json"]);
}

#[test]
fn a_folder_holds_the_files_of_one_run() {
    let folder = Folder::new();
    let plan = |name: &str, output: &str| {
        let text = format!(
            "version: 1\nname: {name}\noutput: {{dir: {}, {output}}}\ntests:\n  bulk: {{workload: tcp_stream, duration: \
             50ms, iterations: 2}}\n",
            folder.name("out")
        );
        fs::write(folder.path(&format!("{name}.yaml")), text).unwrap();
        folder.name(&format!("{name}.yaml"))
    };
    let pictures = plan("a", "plots: [{kind: box, x: case, y: throughput, file: box.svg}], junit: j.xml");
    let ran = plumb(&["run", &pictures]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(names(&folder.path("out")), ["box.svg", "j.xml", "results.csv", "run.json"]);
    fs::write(folder.path("out/mine.txt"), "mine").unwrap();
    assert_eq!(plumb(&["run", &plan("b", "markdown: s.md")]).code, Some(0));
    assert_eq!(names(&folder.path("out")), ["mine.txt", "results.csv", "run.json", "s.md"]);
}

fn refused(ran: &Ran) {
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("--overwrite replaces it") || ran.stderr.contains("replace it: --overwrite"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_results_of_a_run_that_was_cut_off_are_kept() {
    for (by, said) in [(Signal::SIGKILL, "has not ended"), (Signal::SIGTERM, "was ended by SIGTERM")] {
        let folder = Folder::new();
        let (out, table) = (folder.name("out"), folder.name("r.csv"));
        let in_folder = folder.plan(&format!("output: {{dir: {out}}}"), LONG);
        cut_off(by, &[&in_folder]);
        let before = contents(&folder.path("out"));
        let ran = plumb(&["run", &in_folder]);
        refused(&ran);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("plumb run {in_folder} --resume {out}")), "{}", ran.stderr);
        assert_eq!(contents(&folder.path("out")), before);
        let quick = ["--set", "tests.bulk.iterations=1", "--progress", "never"];
        let ran = plumb(&[&["run", &in_folder, "--overwrite"][..], &quick].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(of(&rows(&folder.path("out/results.csv")), "iteration").len(), 1);

        let to_file = folder.plan("", LONG);
        cut_off(by, &[&to_file, "-o", &table]);
        let before = fs::read(&table).unwrap();
        let ran = plumb(&["run", &to_file, "-o", &table]);
        refused(&ran);
        assert!(ran.stderr.contains(&format!("plumb run {to_file} --resume {table}")), "{}", ran.stderr);
        assert_eq!(fs::read(&table).unwrap(), before);
    }
}

#[test]
fn a_table_is_resumed_as_a_folder_is() {
    // A machine that stands still for two seconds ends the iteration before it is cut.
    despite_stalls(resumes_a_table);
}

fn resumes_a_table() {
    let folder = Folder::new();
    let plan =
        folder.plan("", "  bulk: {workload: tcp_stream, rate: 200Mbit/s, duration: 2s, interval: 50ms, iterations: 3}");
    let table = folder.name("r.csv");
    let mut child = command(&["run", &plan, "-o", &table, "--interim"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.contains("iteration 2 of")) && lines.any(|l| is_interim(&l)));
    let rest = thread::spawn(move || lines.for_each(drop));
    signal(&child, Signal::SIGINT);
    end(child);
    rest.join().unwrap();
    let before = rows(&folder.path("r.csv"));
    let cut: Vec<_> = before.iter().filter(|r| r["status"] == "cut").collect();
    assert!(cut.iter().all(|r| r["iteration"] == "2") && cut.iter().any(|r| r["record"] == "iteration"));
    assert_eq!(of(&before, "summary")[0]["iterations"], "1");
    let ran = plumb(&["run", &plan, "--resume", &table]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let after = rows(&folder.path("r.csv"));
    let iterations = of(&after, "iteration");
    assert_eq!(iterations.len(), 3);
    assert!(iterations.iter().all(|r| r["status"] == "ok" && r["run_id"] == before[0]["run_id"]));
    assert_eq!(of(&after, "summary")[0]["iterations"], "3");
}

#[test]
fn a_file_that_no_run_wrote_is_kept() {
    let folder = Folder::new();
    let plan = folder.plan("", SHORT);
    let table = folder.path("r.csv");
    for text in ["milk\nbread\n", "run_id,case_id,case\n,,imported\n"] {
        fs::write(&table, text).unwrap();
        refused(&plumb(&["run", &plan, "-o", &folder.name("r.csv")]));
        assert_eq!(fs::read_to_string(&table).unwrap(), text);
    }
    // An empty one, as mktemp makes it, holds nothing to lose.
    fs::write(&table, "").unwrap();
    fs::set_permissions(&table, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(plumb(&["run", &plan, "-o", &folder.name("r.csv")]).code, Some(0));
    let ran = plumb(&["run", &plan, "-o", "/dev/null"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!Path::new("/dev/null.run.json").exists());
}

#[test]
fn a_place_belongs_to_one_run_at_a_time() {
    let folder = Folder::new();
    let plan = folder.plan("", LONG);
    let table = folder.name("r.csv");
    let first = under_way(&[&plan, "-o", &table]);
    let id = first.id();
    for args in [&["-o", &table][..], &["-o", &table, "--overwrite"], &["--resume", &table]] {
        let second = plumb(&[&["run", &plan][..], args].concat());
        assert_eq!(second.code, Some(3), "{}", second.stderr);
        assert!(second.stderr.contains(&format!("is being written by process {id}")), "{}", second.stderr);
    }
    signal(&first, Signal::SIGINT);
    assert_eq!(end(first).code, Some(130));
    assert!(!folder.path(".r.csv.lock").exists());
    let rows = rows(&folder.path("r.csv"));
    assert!(rows.iter().all(|row| row["run_id"] == rows[0]["run_id"]));
}

#[test]
fn a_run_that_is_interrupted_before_it_measured_leaves_earlier_results() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 50ms}");
    let table = folder.name("r.csv");
    assert_eq!(plumb(&["run", &plan, "-o", &table]).code, Some(0));
    let before = contents(&folder.path(""));
    let long = ["run", &plan, "-o", &table, "--set", "duration=60s", "--interim", "--set", "tests.bulk.interval=50ms"];
    let mut child = command(&long).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| is_interim(&l)), "no interval was measured");
    let rest = thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));
    signal(&child, Signal::SIGINT);
    let ran = end(child);
    assert_eq!(ran.code, Some(130), "{}", rest.join().unwrap());
    assert_eq!(contents(&folder.path("")), before);
    assert!(
        ran.stdout.contains("nothing was measured") && ran.stdout.contains("r.csv stays as it was"),
        "{}",
        ran.stdout
    );
}

#[test]
fn cases_of_two_plans_are_told_apart() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        let text = format!("version: 1\nname: {name}\ntests:\n  bulk: {{workload: tcp_rr, duration: 50ms}}\n");
        fs::write(folder.path(&format!("{name}.yaml")), text).unwrap();
    }
    let (a, b, table) = (folder.name("a.yaml"), folder.name("b.yaml"), folder.name("r.csv"));
    let ran = plumb(&["run", &a, &b, "-o", &table, "--junit", &folder.name("j.xml")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let summaries = of(&rows, "summary");
    let names: Vec<_> = summaries.iter().map(|r| (r["plan"].as_str(), r["case"].as_str())).collect();
    assert_eq!(names, [("a", "a/bulk"), ("b", "b/bulk")]);
    assert_ne!(summaries[0]["case_id"], summaries[1]["case_id"]);
    let junit = fs::read_to_string(folder.path("j.xml")).unwrap();
    for name in ["a/bulk", "b/bulk"] {
        assert!(ran.stdout.contains(name) && junit.contains(name), "{}{junit}", ran.stdout);
    }
    let means = plumb(&["aggregate", "-m", "transaction_rate", &table]);
    assert_eq!(parse(&means.stdout).len(), 2, "{}", means.stdout);
}

#[test]
fn a_run_that_cannot_begin_tells_ci_and_leaves_the_earlier_table() {
    let folder = Folder::new();
    let plan = |host: &str| folder.plan(host, "  rr: {workload: tcp_rr, transactions: 20, iterations: 1}\n");
    let (table, junit) = (folder.name("r.csv"), folder.name("j.xml"));
    let run = |plan: &str| plumb(&["run", plan, "-o", &table, "--junit", &junit, "--progress", "never"]);
    assert_eq!(run(&plan("")).code, Some(0));
    let earlier = fs::read(folder.path("r.csv")).unwrap();
    // Nobody listens at port 1.
    let ran = run(&plan("hosts: {server: {address: 127.0.0.1, control: \"127.0.0.1:1\"}}\ndefaults: {to: server}\n"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("r.csv stays as it was: it is of an earlier run"), "{}", ran.stderr);
    assert_eq!(fs::read(folder.path("r.csv")).unwrap(), earlier);
    let report = fs::read_to_string(folder.path("j.xml")).unwrap();
    assert!(report.contains("errors=\"1\"") && report.contains("127.0.0.1:1"), "{report}");
    // A plan that cannot be loaded is an error, too, and is no place for a report.
    let broken = plan("iteration: 3\n");
    let text = fs::read(&broken).unwrap();
    assert_eq!(run(&broken).code, Some(2));
    let report = fs::read_to_string(folder.path("j.xml")).unwrap();
    let said = "plan.yaml:3: unknown key `iteration`";
    assert!(report.contains("tests=\"1\"") && report.contains("errors=\"1\"") && report.contains(said), "{report}");
    assert_eq!(plumb(&["run", &broken, "--junit", &broken]).code, Some(2));
    assert_eq!(fs::read(&broken).unwrap(), text);
}
