//! `plumb why`: what it changes and how it answers, the commands of its page, and what bad input gets. Whether a limit that was made
//! on purpose is confirmed is a decision about a real path: `tests/lab/why.rs` has it.

use std::fs;

use serde_json::Value;

use crate::program::{Folder, Ran, command, parse, plumb};

const PAGE: &str = include_str!("../../docs/guide/why.md");

/// The first block of the page in this language.
fn block(language: &str) -> &'static str {
    let mut blocks = PAGE.split("```").skip(1).step_by(2);
    blocks.find_map(|text| text.strip_prefix(language)).expect("the page has it").trim_start()
}

/// Writes a cause into the summary of a run, as a quiet machine names it.
fn name_cause(folder: &Folder, results: &str, cause: &str) {
    let text = fs::read_to_string(folder.path(results)).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (record, limited) = (place("record"), place("limited_by"));
    let mut writer = csv::Writer::from_path(folder.path(results)).unwrap();
    writer.write_record(&header).unwrap();
    for row in reader.records().map(Result::unwrap) {
        let is_it = |at: usize| at == limited && &row[record] == "summary";
        writer.write_record(row.iter().enumerate().map(|(at, cell)| if is_it(at) { cause } else { cell })).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn the_commands_of_its_page_answer_in_each_format() {
    let folder = Folder::new();
    fs::write(folder.path("slow.yaml"), block("yaml")).unwrap();
    let run = |line: &str| {
        let (words, place) = line.split_once(" >").unwrap_or((line, ""));
        let mut plumb = command(&words.split(' ').skip(1).collect::<Vec<_>>());
        let ran = Ran::from(plumb.current_dir(folder.path("")).output().unwrap());
        (ran, place.to_owned())
    };
    let lines: Vec<&str> = block("sh").lines().collect();
    let [first, text, table] = lines[..] else { panic!("{lines:?}") };
    assert_eq!(run(first).0.code, Some(0));
    name_cause(&folder, "slow.csv", "pacing");
    let is_confirmed = |ran: &Ran| ran.code == Some(0);
    let (ran, _) = run(text);
    assert!(ran.stdout.contains("paced: limited by pacing: "), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("rate 8Mbit/s → 16Mbit/s"), "{}", ran.stdout);
    assert_eq!(ran.stdout.contains("--set tests.paced.rate=16Mbit/s"), is_confirmed(&ran), "{}", ran.stdout);
    let (ran, place) = run(table);
    assert_eq!(place, "why.csv");
    let rows = parse(&ran.stdout);
    assert_eq!((&*rows[0]["why_setting"], &*rows[0]["why_from"], &*rows[0]["why_to"]), ("rate", "8Mbit/s", "16Mbit/s"));
    assert_eq!(rows[0]["why_verdict"] == "confirmed", is_confirmed(&ran), "{}", ran.stdout);
    let rounds: u32 = rows[0]["why_rounds"].parse().unwrap();
    assert!((6..=12).contains(&rounds), "{rounds}");
    let (ran, _) = run("plumb why slow.csv -f json");
    let told: Value = serde_json::from_str(&ran.stdout).expect("one document");
    let columns = |row: &Value| row.as_object().map(serde_json::Map::len);
    assert_eq!((told[0]["why_metric"].as_str(), columns(&told[0])), (Some("throughput"), Some(rows[0].len())));
    assert_eq!(told[0]["why_verdict"] == "confirmed", is_confirmed(&ran), "{told}");
}

/// The error of a command line, with its exit code.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let ran = plumb(words);
    (ran.code, ran.stderr)
}

#[test]
fn what_cannot_be_asked_about_gets_a_sentence() {
    let folder = Folder::new();
    let says = |words: &[&str], code: i32, part: &str| {
        let (got, said) = refused(words);
        assert!(got == Some(code) && said.contains(part), "{words:?}: {got:?}: {said}");
    };
    says(&["why", &folder.name("none.csv")], 3, "no such file; `plumb run PLAN -o");
    says(&["why", "nosuchplan"], 2, "plumb plans");
    let table = folder.name("bare.csv");
    fs::write(&table, "case_id,case\nc1,a\n").unwrap();
    says(&["why", &table], 2, "name the plan in its place");
    let runs = folder.plan("", "  it: {workload: command, command: {run: [\"true\"], regex: '(?<throughput>1)'}}");
    says(&["why", &runs], 2, "why runs no programs");
    // Windows of 0.2 s and less are not judged, so that nothing names a setting.
    let short = folder.plan("", "  it: {workload: tcp_rr, duration: 50ms, warmup: 0s, iterations: 1}");
    let ran = plumb(&["why", &short]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("nothing was changed: its limit is unknown"), "{}", ran.stdout);
}

#[test]
fn a_key_that_the_plan_sweeps_is_told() {
    let folder = Folder::new();
    let swept = "  it: {workload: tcp_rr, duration: 300ms, warmup: 0s, iterations: 2, matrix: {inflight: [1, 2]}}";
    let plan = folder.plan("", swept);
    assert_eq!(plumb(&["run", &plan, "--only", "it*1*", "-o", &folder.name("swept.csv")]).code, Some(0));
    name_cause(&folder, "swept.csv", "round trip");
    let ran = plumb(&["why", &folder.name("swept.csv")]);
    let said = "not measured: the plan sweeps this key itself: plumb compare --by inflight RESULTS shows its effect";
    assert!(ran.stdout.contains(said), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.code, Some(3), "{}", ran.stdout);
}
