//! Baselines: `plumb baseline promote` keeps a run, `plumb run` compares with it.

use std::fs;

use crate::program::{Folder, Ran, Serve, command, end, number, plumb, rows};

/// A plan with the baseline `base.csv`; `terms` are further keys of the baseline, `more` of the test.
fn plan(folder: &Folder, terms: &str, more: &str) -> String {
    folder.plan(
        &format!(
            "baseline:\n  source: {}\n  compare: [{{metric: transaction_rate, max_regression: 60%}}]\n{terms}",
            folder.name("base.csv")
        ),
        // Stops by a count: on a busy machine some milliseconds may pass without a transaction.
        &format!("  rr: {{workload: tcp_rr, transactions: 200, iterations: 5{more}}}"),
    )
}

fn run(folder: &Folder, terms: &str, more: &str) -> Ran {
    plumb(&["run", &plan(folder, terms, more), "-o", &folder.name("r.csv"), "--progress", "never"])
}

fn promoted(folder: &Folder) {
    assert_eq!(run(folder, "", "").code, Some(0));
    let ran = plumb(&["baseline", "promote", &folder.name("r.csv")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("base.csv: 1 case, 5 iterations of run"), "{}", ran.stdout);
    assert!(ran.stdout.contains("it replaces nothing"), "{}", ran.stdout);
}

/// Multiplies the baseline's rate: by so much that no stall of a busy machine makes up for it. Neither side counts as disturbed
/// then, whatever this machine does: others had a CPU of a better baseline as well, and none of a worse one.
fn scale(folder: &Folder, by: f64) {
    let path = folder.path("base.csv");
    let text = fs::read_to_string(&path).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|h| h == name).unwrap();
    let (column, taken) = (place("transactions_per_s"), place("cpu_taken_ratio"));
    let mut out = csv::Writer::from_path(&path).unwrap();
    out.write_record(&header).unwrap();
    for row in reader.records() {
        let mut cells: Vec<String> = row.unwrap().iter().map(str::to_owned).collect();
        cells[column] = (cells[column].parse::<f64>().unwrap() * by).to_string();
        cells[taken] = if by > 1.0 { "1".to_owned() } else { "0".to_owned() };
        out.write_record(cells).unwrap();
    }
    out.flush().unwrap();
}

/// Changes the `run.json` of the baseline.
fn elsewhere(folder: &Folder, change: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.path("base.run.json");
    let mut facts: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut facts);
    fs::write(path, facts.to_string()).unwrap();
}

fn verdict(folder: &Folder) -> (String, String) {
    let row = rows(&folder.path("r.verdicts.csv")).remove(0);
    (row["verdict"].clone(), row["note"].clone())
}

#[test]
fn without_a_baseline_the_plan_says_what_that_is() {
    let folder = Folder::new();
    for (on_missing, code, word, said) in [
        ("warn", 0, "inconclusive", "1 is inconclusive (rr)"),
        ("fail", 1, "fail", "1 fails without a counterpart (rr)"),
        ("pass", 0, "missing", "without a counterpart"),
    ] {
        let ran = run(&folder, &format!("  on_missing: {on_missing}"), "");
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        let (verdict, note) = verdict(&folder);
        assert_eq!(verdict, word);
        assert!(note.contains("base.csv") && note.contains("plumb baseline promote"), "{note}");
        assert!(ran.stdout.contains("transaction_rate at most 60 % below"), "never in silence: {}", ran.stdout);
        let answer = format!("Of 1 case compared with the baseline: {said}.");
        assert!(ran.stdout.contains(&answer), "{answer}: {}", ran.stdout);
    }
    // A path is that of the working directory, or else beside the plan.
    let top = "baseline: {source: base.csv, compare: [{metric: transaction_rate, max_regression: 60%}]}";
    let plan = folder.plan(top, "  rr: {workload: tcp_rr, transactions: 100}");
    fs::write(folder.path("base.csv"), "").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let run = command(&["run", &plan, "--progress", "never", "-o", "r.csv"]).current_dir(&elsewhere).output().unwrap();
    let out = String::from_utf8_lossy(&run.stderr).into_owned() + &String::from_utf8_lossy(&run.stdout);
    assert!(out.contains("base.csv: is empty"), "{out}");
    fs::remove_file(folder.path("base.csv")).unwrap();
    let run = command(&["run", &plan, "--progress", "never", "-o", "r.csv"]).current_dir(&elsewhere).output().unwrap();
    let out = String::from_utf8_lossy(&run.stderr).into_owned() + &String::from_utf8_lossy(&run.stdout);
    assert!(out.contains("in plumb's working directory, ") && out.contains(", nor beside the plan: "), "{out}");
}

#[test]
fn a_regression_fails_the_run_at_the_plans_line_and_an_improvement_does_not() {
    let folder = Folder::new();
    promoted(&folder);
    scale(&folder, 1e5);
    let ran = command(&[
        "run",
        &plan(&folder, "", ""),
        "-o",
        &folder.name("r.csv"),
        "--junit",
        &folder.name("j.xml"),
        "--progress",
        "never",
    ])
    .env("GITHUB_ACTIONS", "true")
    .spawn()
    .unwrap();
    let ran = end(ran);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let row = rows(&folder.path("r.verdicts.csv")).remove(0);
    assert_eq!(row["verdict"], "regression");
    assert!(number(&row, "change_ratio") < -0.9 && number(&row, "p_value") <= 0.01);
    assert!(number(&row, "baseline") > 10.0 * number(&row, "observed"));
    let annotation = ran.stderr.lines().find(|l| l.starts_with("::error ")).expect("an annotation");
    assert!(annotation.contains("plan.yaml,line=5,col=13::rr: transaction_rate at most 60 %25 below"), "{annotation}");
    assert!(fs::read_to_string(folder.path("j.xml")).unwrap().contains("failures=\"1\""));

    scale(&folder, 1e-10);
    assert_eq!(run(&folder, "", "").code, Some(0));
    assert_eq!(verdict(&folder).0, "improvement");
}

#[test]
fn a_baseline_of_another_machine_is_not_judged_and_says_what_differs() {
    let folder = Folder::new();
    promoted(&folder);
    scale(&folder, 1e5);
    elsewhere(&folder, |facts| facts["hosts"]["local"]["facts"]["cpu_model"] = "Cray-1".into());
    let ran = run(&folder, "", "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (word, note) = verdict(&folder);
    assert_eq!(word, "inconclusive");
    assert!(note.contains("the baseline is of another machine: host.cpu_model was Cray-1, is "), "{note}");

    // `require_same: []` judges all the same, and the note names the difference.
    assert_eq!(run(&folder, "  require_same: []", "").code, Some(1));
    let (word, note) = verdict(&folder);
    assert!(word == "regression" && note.contains("Cray-1"), "{word} {note}");

    // A fact in `require_same` is checked before anything is measured.
    fs::remove_file(folder.path("r.csv")).unwrap();
    let ran = run(&folder, "  require_same: [host.cpu_model]", "");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("is of another environment: host.cpu_model was Cray-1, is "), "{}", ran.stderr);
    assert!(!folder.path("r.csv").exists(), "nothing was measured");

    fs::remove_file(folder.path("base.run.json")).unwrap();
    assert_eq!(run(&folder, "", "").code, Some(0));
    assert!(verdict(&folder).1.contains("nobody knows on which machine"), "{}", verdict(&folder).1);
}

#[test]
fn the_place_of_the_baseline_follows_variables_and_the_command_line() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "vars: {{branch: {{default: main}}}}\nbaseline: {{source: '{}', compare: [{{metric: transaction_rate, max_regression: 90%}}]}}",
            folder.name("${vars.branch}.csv")
        ),
        "  rr: {workload: tcp_rr, transactions: 200, iterations: 5}",
    );
    let promote = |set: &[&str], name: &str| {
        let ran = plumb(&[&["baseline", "promote", &folder.name("r.csv")], set].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(folder.path(name).exists(), "{}", ran.stdout);
    };
    let run = ["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"];
    assert_eq!(plumb(&run).code, Some(0));
    promote(&[], "main.csv");
    promote(&["--set", "vars.branch=next"], "next.csv");
    assert_eq!(plumb(&[&run[..], &["--set", "vars.branch=other"]].concat()).code, Some(0));
    promote(&[], "other.csv");
    promote(&["--set", &format!("baseline.source={}", folder.name("set.csv"))], "set.csv");
    // A host that only the command line names.
    let far = Serve::start(&[]);
    let to = ["--to", &far.address, "--set", "vars.branch=far"];
    assert_eq!(plumb(&[&run[..], &to].concat()).code, Some(0));
    promote(&[], "far.csv");
}

#[test]
fn what_is_no_whole_run_is_refused_with_every_reason() {
    let folder = Folder::new();
    let path = folder.plan(
        "",
        "  rr: {workload: tcp_rr, duration: 20ms, iterations: 2, assert: [transaction_rate > 1G/s]}\n  other: {workload: tcp_rr, duration: 20ms, request_size: 2}",
    );
    let out = folder.name("r.csv");
    assert_eq!(plumb(&["run", &path, "-o", &out, "--only", "rr", "--progress", "never"]).code, Some(1));
    let to = folder.name("base.csv");
    let ran = plumb(&["baseline", "promote", &out, "--to", &to]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    for reason in [
        "--only left cases of plan t out",
        "case rr has 2 iterations, and a baseline needs 5",
        "verdict fail: rr: transaction_rate > 1G/s",
    ] {
        assert!(ran.stderr.contains(reason), "{reason}: {}", ran.stderr);
    }
    assert!(!folder.path("base.csv").exists() && !folder.path("base.run.json").exists());
    let ran = plumb(&["baseline", "promote", &out]);
    assert!(ran.code == Some(2) && ran.stderr.contains("names no baseline.source"), "{}", ran.stderr);

    // An interrupted run, and one without `run.json`.
    elsewhere_of(&folder, "r.run.json", |facts| {
        facts["interrupted"] = "SIGINT".into();
        facts["ended"] = serde_json::Value::Null;
    });
    let ran = plumb(&["baseline", "promote", &out, "--to", &to]);
    assert!(ran.stderr.contains("interrupted by SIGINT") && ran.stderr.contains("--resume"), "{}", ran.stderr);
    fs::remove_file(folder.path("r.run.json")).unwrap();
    let ran = plumb(&["baseline", "promote", &out, "--to", &to]);
    assert!(ran.code == Some(2) && ran.stderr.contains("r.run.json is missing"), "{}", ran.stderr);
}

fn elsewhere_of(folder: &Folder, name: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.path(name);
    let mut facts: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut facts);
    fs::write(path, facts.to_string()).unwrap();
}

#[test]
fn a_new_baseline_says_what_it_replaces_and_failures_are_accepted_only_aloud() {
    let folder = Folder::new();
    promoted(&folder);
    let first = rows(&folder.path("base.csv"));
    assert!(first.iter().all(|r| r["record"] == "iteration" && r["phase"] == "measure"), "only what is compared");
    scale(&folder, 1e5);
    assert_eq!(run(&folder, "", "").code, Some(1));
    let before = fs::read(folder.path("base.csv")).unwrap();
    let refused = plumb(&["baseline", "promote", &folder.name("r.csv")]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("verdict regression: rr"), "{}", refused.stderr);
    assert_eq!(fs::read(folder.path("base.csv")).unwrap(), before, "nothing was touched");

    let ran = plumb(&["baseline", "promote", &folder.name("r.csv"), "--accept-failures"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let old = &first[0]["run_id"];
    assert!(ran.stdout.contains(&format!("it replaces run {old}")), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("rr: ") && ran.stdout.contains(" → ") && ran.stdout.contains("(-100.0 %)"),
        "{}",
        ran.stdout
    );
    let facts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path("base.run.json")).unwrap()).unwrap();
    assert_eq!(facts["run_id"], rows(&folder.path("base.csv"))[0]["run_id"].as_str());
    assert!(facts["promoted"]["at"].is_string());
    // Far enough for any run on a busy machine.
    scale(&folder, 1e-5);
    assert_eq!(run(&folder, "", "").code, Some(0));
}

#[test]
fn compare_says_whether_both_were_measured_on_one_machine() {
    let folder = Folder::new();
    promoted(&folder);
    let compare = || plumb(&["compare", "-f", "text", &folder.name("base.csv"), &folder.name("r.csv")]);
    let ran = compare();
    // The baseline is the same run.
    assert!(ran.stdout.contains("same machine: yes") && ran.stdout.contains("in turns"), "{}", ran.stdout);
    assert!(ran.stdout.contains("both sides are of the same run"), "{}", ran.stdout);
    elsewhere(&folder, |facts| facts["hosts"]["local"]["facts"]["kernel_release"] = "2.0.40".into());
    let ran = compare();
    assert!(ran.stdout.contains("same machine: yes, but host.kernel was 2.0.40, is "), "{}", ran.stdout);
    elsewhere(&folder, |facts| facts["hosts"]["local"]["facts"]["cpu_model"] = "Cray-1".into());
    let ran = compare();
    assert!(
        ran.stdout.contains("same machine: NO, and what changed may be the machine (host.cpu_model was Cray-1, is "),
        "{}",
        ran.stdout
    );
    fs::remove_file(folder.path("base.run.json")).unwrap();
    assert!(compare().stdout.contains("same machine: unknown"), "{}", compare().stdout);
    // Few iterations and --fail-on: nothing fails unless asked for, and an undecided comparison fails if asked for.
    scale(&folder, 1e5);
    let fail_on = |what: &str| {
        let of = ["-m", "transaction_rate", "--fail-on", what];
        plumb(&[&["compare", &folder.name("base.csv"), &folder.name("r.csv")][..], &of].concat()).code
    };
    assert_eq!((fail_on("nothing"), fail_on("regression"), fail_on("change")), (Some(0), Some(1), Some(1)));
}

#[test]
fn other_settings_a_missing_test_and_lost_rows_are_told() {
    let folder = Folder::new();
    let terms = format!(
        "baseline:\n  source: {}\n  compare: [{{metric: transaction_rate, max_regression: 60%}}]\n",
        folder.name("base.csv")
    );
    let test =
        |name: &str, more: &str| format!("  {name}: {{workload: tcp_rr, transactions: 20, iterations: 5{more}}}\n");
    let run = |tests: &str, table: &str| {
        plumb(&["run", &folder.plan(&terms, tests), "-o", &folder.name(table), "--progress", "never"])
    };
    let (kept, gone) = (test("kept", ""), test("gone", ", request_size: 9"));
    let changed = test("kept", ", request_size: 64");
    assert_eq!(run(&format!("{kept}{gone}"), "r.csv").code, Some(0));
    let promote = |table: &str| plumb(&["baseline", "promote", &folder.name(table)]);
    let ran = promote("r.csv");
    assert!(
        ran.stdout.contains("note: kept transaction_rate: no worsening is noticed; made 99 % worse, it is inconclusive; need 6 iterations per side"),
        "{}",
        ran.stdout
    );
    let ran = run(&changed, "new.csv");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let missing = format!("note: {} has what the plan no longer has: gone", folder.name("base.csv"));
    assert!(ran.stdout.contains(&missing), "{}", ran.stdout);
    let other = "has this case with other settings (request_size: (not set) → 64): promote a run that has these";
    assert!(ran.stdout.contains(other), "{}", ran.stdout);
    let gate = plumb(&["gate", "-f", "text", &folder.name("new.csv")]);
    assert!(gate.stdout.contains(other) && gate.stderr.contains(&missing), "{} {}", gate.stdout, gate.stderr);
    // Rows that were lost with their line ends leave a table that can be read.
    let base = folder.path("base.csv");
    let whole = fs::read_to_string(&base).unwrap();
    let cut: String = whole.split_inclusive('\n').take(4).collect();
    fs::write(&base, cut).unwrap();
    let lost = "base.csv: 3 rows can be read, and 10 were promoted";
    for ran in [run(&changed, "later.csv"), plumb(&["gate", &folder.name("new.csv")])] {
        assert!(ran.code == Some(3) && ran.stderr.contains(lost), "{:?} {}", ran.code, ran.stderr);
    }
    fs::write(&base, whole).unwrap();
    let ran = promote("new.csv");
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("  ")).collect();
    let [kept, gone] = lines[..] else { panic!("{}", ran.stdout) };
    assert!(kept.ends_with(", with other settings (request_size: (not set) → 64)"), "{kept}");
    assert_eq!(gone, "  gone: gone");
}

#[test]
fn a_baseline_of_a_table_with_several_lines_per_iteration_is_whole() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "baseline: {{source: {}, compare: [{{metric: latency.mean, max_regression: 90%}}]}}",
            folder.name("base.csv")
        ),
        "  sizes:\n    workload: command\n    iterations: 5\n    command: {run: [printf, '1 7\\n64 8\\n'], regex: \
         '(?m)^(?<message_size>[0-9]+) (?<latency.mean>[0-9]+)$'}\n",
    );
    let run = || plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never", "--allow-commands"]);
    let first = run();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(plumb(&["baseline", "promote", &folder.name("r.csv")]).code, Some(0));
    let ran = run();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}
