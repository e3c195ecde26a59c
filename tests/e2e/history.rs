//! `plumb history` and `plumb trend` over runs of the real program.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use crate::{
    filters::{examples, shell},
    needs::skip,
    program::{Folder, number, of, parse, plumb, rows},
};

/// A short run of two cases, with its table and `run.json`.
fn run(folder: &Folder, table: &str) {
    let tests = "  bulk: {workload: tcp_stream, duration: 60ms, iterations: 3}\n  \
                 trips: {workload: tcp_rr, duration: 60ms, iterations: 3}";
    let plan = folder.plan("", tests);
    let ran = plumb(&["run", &plan, "-o", &folder.name(table), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

fn add(folder: &Folder, table: &str, more: &[&str]) -> crate::program::Ran {
    let (table, to) = (folder.name(table), folder.name("history"));
    plumb(&[&["history", "add", &table, "--to", &to, "--commit", "0123abc"], more].concat())
}

/// The one file of the history.
fn file(folder: &Folder) -> std::path::PathBuf {
    let only = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let found: Vec<_> = entries.filter(|path| !path.ends_with(".gitattributes")).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    only(&only(&folder.path("history")))
}

#[test]
fn a_run_is_added_once_with_the_median_of_its_iterations() {
    let folder = Folder::new();
    run(&folder, "a.csv");
    let added = add(&folder, "a.csv", &["--label", "runner=lab2", "--metric", "retransmits"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(added.stdout.contains(" added (0123abc)"), "{}", added.stdout);
    let kept = rows(&file(&folder));
    let all = rows(&folder.path("a.csv"));
    for (metric, column, case) in [
        ("throughput", "throughput_bits_per_s", "bulk"),
        ("transaction_rate", "transactions_per_s", "trips"),
        ("retransmits", "retransmits", "bulk"),
    ] {
        let row = kept
            .iter()
            .find(|row| row["metric"] == metric && row["case"] == case)
            .unwrap_or_else(|| panic!("{metric}"));
        let iterations =
            of(&all, "iteration").into_iter().filter(|row| row["case"] == case && row["phase"] == "measure");
        let mut values: Vec<f64> = iterations.map(|row| number(row, column)).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!(values.len(), 3);
        assert!((number(row, "centre") - values[1]).abs() <= 1e-5 * values[1], "{metric}: {values:?} {row:?}");
        assert_eq!(
            (row["n"].as_str(), row["commit"].as_str(), row["labels"].as_str()),
            ("3", "0123abc", "runner=lab2")
        );
        assert_eq!(row["run_id"], all[0]["run_id"]);
    }
    assert!(kept.iter().any(|row| row["metric"] == "latency.p99"), "beside the headline");
    let before = fs::read(file(&folder)).unwrap();
    let again = add(&folder, "a.csv", &[]);
    assert!(
        again.code == Some(0) && again.stdout.contains("the run is there already"),
        "{}{}",
        again.stdout,
        again.stderr
    );
    assert_eq!(fs::read(file(&folder)).unwrap(), before);
    run(&folder, "b.csv");
    assert_eq!(add(&folder, "b.csv", &[]).code, Some(0));
    let grown = fs::read(file(&folder)).unwrap();
    assert!(grown.starts_with(&before) && grown.len() > before.len(), "it only grows");
    let trend = plumb(&["trend", &folder.name("history"), "-f", "csv"]);
    let series = parse(&trend.stdout);
    let bulk = series.iter().find(|row| row["case"] == "bulk" && row["metric"] == "throughput").expect("its series");
    // Others may take a CPU from a run meanwhile, and then it is left out.
    let left_out = ["", "1 run is left out", "2 runs are left out"].map(|words| bulk["note"].contains(words));
    match &*bulk["runs"] {
        "2" => assert!(!left_out[1] && !left_out[2], "{}", trend.stdout),
        "1" => assert!(left_out[1], "{}", trend.stdout),
        _ => assert!(bulk["runs"] == "0" && left_out[2], "{}", trend.stdout),
    }
}

#[test]
fn what_cannot_be_added_is_refused_with_the_reason() {
    let folder = Folder::new();
    run(&folder, "a.csv");
    let record = fs::read_to_string(folder.path("a.run.json")).unwrap();
    let at = record.find("  \"ended\"").unwrap();
    let end = at + record[at..].find('\n').unwrap() + 1;
    fs::write(folder.path("a.run.json"), format!("{}{}", &record[..at], &record[end..])).unwrap();
    let refused = add(&folder, "a.csv", &[]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("the run was cut off") && refused.stderr.contains("--resume"),
        "{}",
        refused.stderr
    );
    fs::remove_file(folder.path("a.run.json")).unwrap();
    let refused = add(&folder, "a.csv", &[]);
    assert!(refused.code == Some(2) && refused.stderr.contains("no run.json of its run"), "{}", refused.stderr);
    assert!(!folder.path("history").exists());
    for wrong in [["--commit", "main"], ["--label", "lab2"], ["--metric", "thruput"]] {
        let refused = plumb(&["history", "add", "x", "--to", "y", wrong[0], wrong[1]]);
        assert_eq!(refused.code, Some(2), "{wrong:?} {}", refused.stderr);
    }
    let none = plumb(&["trend", &folder.name("nowhere")]);
    assert_eq!(none.code, Some(3), "{}", none.stderr);
}

#[test]
fn a_site_is_asked_for_with_its_own_words() {
    let folder = Folder::new();
    let site = folder.name("site");
    for (words, reason) in [
        (vec!["report", "--history", "history"], "--output"),
        (vec!["report", "results.csv", "--plan", "nightly"], "--history"),
        (vec!["report", "results.csv", "--history", "history", "-o", &site], "leave out RESULTS"),
        (vec!["plot", "sweep", "results.csv", "--machine", "m1"], "--machine"),
    ] {
        let refused = plumb(&words);
        assert_eq!(refused.code, Some(2), "{words:?} {}", refused.stderr);
        assert!(refused.stderr.contains(reason), "{words:?} {}", refused.stderr);
    }
    assert!(!folder.path("site").exists());
}

#[test]
fn a_full_disk_leaves_the_history_as_it_was() {
    let folder = Folder::new();
    run(&folder, "a.csv");
    run(&folder, "b.csv");
    // A file system of two pages takes the first run, and of the second a part.
    let script = "mount -t tmpfs -o size=8k none history && plumb history add a.csv --to history && \
         cp history/*/*.csv before && long=$(printf %03000d 0) && \
         { plumb history add b.csv --to history --label long=$long; echo code $?; cat history/*/*.csv > after; }";
    fs::create_dir(folder.path("history")).unwrap();
    let line = format!("unshare --mount bash -c '{script}'");
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return skip("this user cannot mount a file system of its own");
    }
    let ran = shell(&folder.path(""), &line);
    assert!(ran.stdout.contains("code 3"), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    assert_eq!(fs::read(folder.path("before")).unwrap(), fs::read(folder.path("after")).unwrap());
}

/// Forty runs of a plan `nightly`, of which the last five are 5 % slower.
#[test]
fn the_lines_of_the_help_work_as_pasted() {
    let folder = Folder::new();
    let mut text = String::from("run_id,time,commit,machine,plan,case_id,case,metric,centre\n");
    for run in 0..40 {
        let level = if run < 35 { 1e9 } else { 0.95e9 };
        let noise = [3, -12, 8, 11, -4, -9, 6][run * 5 % 7];
        writeln!(
            text,
            "r{run},2026-01-01T00:{run:02}:00Z,,m1,nightly,c1,bulk,throughput,{}",
            level + f64::from(noise) * 1e6
        )
        .unwrap();
    }
    fs::create_dir_all(folder.path("history/nightly")).unwrap();
    fs::write(folder.path("history/nightly/m1.csv"), text).unwrap();
    let lines = examples("trend");
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        let line = line.replace("\"$GITHUB_STEP_SUMMARY\"", "summary.md");
        let ran = shell(&folder.path(""), &line);
        let fails = line.contains("--fail-on");
        assert_eq!(ran.code, Some(i32::from(fails)), "{line}\n{}{}", ran.stdout, ran.stderr);
    }
    let summary = fs::read_to_string(folder.path("summary.md")).unwrap();
    assert!(summary.contains("**regression**: bulk throughput is 5"), "{summary}");
    assert!(summary.contains("since run r35 of 2026-01-01"), "{summary}");
    run(&folder, "nightly.csv");
    for copy in ["results.csv", "branch.csv", "main.csv"] {
        fs::copy(folder.path("nightly.csv"), folder.path(copy)).unwrap();
    }
    let help = plumb(&["plot", "trend", "--help"]).stdout;
    let drawn = help.lines().filter(|line| line.starts_with("  plumb plot trend ")).map(|line| line.trim().to_owned());
    let lines: Vec<String> = examples("report").into_iter().chain(drawn).collect();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let ran = shell(&folder.path(""), &line);
        assert_eq!(ran.code, Some(0), "{line}\n{}{}", ran.stdout, ran.stderr);
    }
    let index = fs::read_to_string(folder.path("site/index.html")).unwrap();
    assert!(index.contains("1 of 1 series got worse") && index.contains("since run "), "{index}");
    assert!(fs::read_to_string(folder.path("trend.svg")).unwrap().contains("−5."));
    let help = plumb(&["history", "add", "--help"]).stdout;
    let lines: Vec<&str> =
        help.lines().filter_map(|line| line.strip_prefix("  plumb history add nightly.csv ")).collect();
    assert!(lines.len() >= 2, "{help}");
    let mut again = false;
    for line in lines {
        let ran = shell(&folder.path(""), &format!("plumb history add nightly.csv {line}"));
        assert_eq!(ran.code, Some(0), "{line}\n{}{}", ran.stdout, ran.stderr);
        // The rows of the metric that is asked for are new in the one that has `--metric`.
        assert_eq!(ran.stdout.contains(" added "), !again || line.contains("--metric"), "{}", ran.stdout);
        again = true;
    }
    let help = plumb(&["history", "compact", "--help"]).stdout;
    let lines: Vec<&str> =
        help.lines().map(str::trim).filter(|line| line.starts_with("plumb history compact history/ ")).collect();
    assert!(lines.len() >= 2, "{help}");
    for line in lines {
        let ran = shell(&folder.path(""), line);
        assert_eq!(ran.code, Some(0), "{line}\n{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(" of 40 runs, "), "{}", ran.stdout);
    }
}
