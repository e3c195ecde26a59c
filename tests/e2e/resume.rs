//! An interrupted run has complete rows only, and `--resume` measures what is missing, nothing twice.

use std::{collections::BTreeMap, path::Path, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{Folder, command, end, of, parse, plumb, rows};

fn plan(folder: &Folder, iterations: u32) -> String {
    folder.plan(
        &format!("run: {{order: random, seed: 7}}\noutput: {{dir: {}}}", folder.name("out")),
        &format!(
            "  a: {{workload: tcp_rr, duration: 20ms, iterations: {iterations}}}\n  \
             b: {{workload: tcp_stream, duration: 20ms, iterations: {iterations}, matrix: {{streams: [1, 2]}}}}"
        ),
    )
}

/// Number of rows per iteration of each case.
fn iterations(table: &Path) -> BTreeMap<(String, String), usize> {
    let mut count = BTreeMap::new();
    for row in of(&rows(table), "iteration") {
        *count.entry((row["case"].clone(), row["iteration"].clone())).or_default() += 1;
    }
    count
}

#[test]
fn killed_again_and_again_it_still_comes_to_its_end() {
    let folder = Folder::new();
    let plan = plan(&folder, 30);
    let (out, table) = (folder.name("out"), folder.path("out/results.csv"));
    let mut most = 0;
    for round in 0..100_u64 {
        let resume = ["run", &plan, "--progress", "never", "--resume", &out];
        let begun = folder.path("out/run.json").exists();
        let args = if begun { &resume[..] } else { &resume[..4] };
        let mut child = command(args).spawn().unwrap();
        // A busy machine starts slowly.
        while !folder.path("out/run.json").exists() && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30 + round * 37 % 90));
        let killed = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).is_ok();
        let ran = end(child);
        assert!(killed && (ran.code.is_none() || ran.code == Some(0)), "round {round}: {}", ran.stderr);
        if let Ok(text) = std::fs::read_to_string(&table) {
            // At most the row in flight is lost: all rows up to the last newline are complete and unique.
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            let measured = parse(whole);
            let finished = of(&measured, "iteration").iter().filter(|r| r["status"] == "ok").count();
            assert!(finished >= most, "round {round}: {finished} iterations after {most}");
            most = finished;
        }
    }
    let ran = plumb(&["run", &plan, "--progress", "never", "--resume", &out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let all = iterations(&table);
    assert_eq!(all.len(), 90);
    assert!(all.values().all(|n| *n == 1), "{all:?}");
    let table = rows(&table);
    let summaries = of(&table, "summary");
    assert_eq!(summaries.len(), 3);
    assert!(summaries.iter().all(|r| r["iterations"] == "30"));
    assert!(table.iter().all(|r| r["run_id"] == table[0]["run_id"]), "it is one run");
    let facts = std::fs::read_to_string(folder.path("out/run.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    for summary in summaries {
        let options = &facts["cases"][&summary["case_id"]]["near_options"];
        assert!(options.as_array().is_some_and(|o| !o.is_empty()), "{}: {facts:#}", summary["case"]);
    }
    assert!(!folder.path("out/run.cases.jsonl").exists());
}

#[test]
fn a_finished_run_measures_nothing_again() {
    let folder = Folder::new();
    let plan = plan(&folder, 2);
    assert_eq!(plumb(&["run", &plan, "--progress", "never"]).code, Some(0));
    let before = rows(&folder.path("out/results.csv"));
    let ran = plumb(&["run", &plan, "--resume", &folder.name("out")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("iteration 1"), "{}", ran.stderr);
    let after = rows(&folder.path("out/results.csv"));
    assert_eq!(of(&before, "iteration"), of(&after, "iteration"));
    let rate = |rows: &[crate::program::Row]| -> Vec<String> {
        let mut all: Vec<_> = of(rows, "summary").iter().map(|r| r["throughput_bits_per_s"].clone()).collect();
        all.sort();
        all
    };
    assert_eq!(rate(&before), rate(&after), "the same numbers give the same summaries");
}

#[test]
fn results_that_cannot_be_read_are_not_taken_for_none() {
    let folder = Folder::new();
    let plan = plan(&folder, 2);
    assert_eq!(plumb(&["run", &plan, "--progress", "never"]).code, Some(0));
    let table = folder.path("out/results.csv");
    std::fs::remove_file(&table).unwrap();
    std::os::unix::fs::symlink("results.csv", &table).unwrap();
    let ran = plumb(&["run", &plan, "--resume", &folder.name("out")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("--resume: cannot read") && ran.stderr.contains("results.csv"), "{}", ran.stderr);
    assert!(table.is_symlink(), "and nothing is done to them");
}

#[test]
fn a_changed_plan_is_refused_with_the_difference() {
    let folder = Folder::new();
    let written = plan(&folder, 2);
    assert_eq!(plumb(&["run", &written, "--progress", "never"]).code, Some(0));
    plan(&folder, 3);
    let ran = plumb(&["run", &written, "--resume", &folder.name("out")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    for word in ["the plan is not the one", "-     iterations: 2", "+     iterations: 3"] {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    let ran = plumb(&["run", &written, "--resume", &folder.name("nowhere")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("is this the folder or table of a run?"), "{}", ran.stderr);
}

#[test]
fn a_search_goes_on_with_the_probe_that_it_was_at() {
    let folder = Folder::new();
    let (out, table) = (folder.name("out"), folder.path("out/results.csv"));
    let plan = folder.plan(
        &format!("output: {{dir: {out}}}"),
        "  a:\n    workload: tcp_rr\n    transactions: 600\n    \
         find: {metric: elapsed, at_most: 1h, by: inflight, from: 1, max_probes: 9}\n    assert: [transaction_rate > 1/s]",
    );
    assert_eq!(plumb(&["run", &plan, "--progress", "never"]).code, Some(0));
    let whole = std::fs::read_to_string(&table).unwrap();
    let probes = |text: &str| -> Vec<Vec<String>> {
        let rows = parse(text);
        let measured = of(&rows, "probe");
        measured
            .iter()
            .map(|r| [&r["iteration"], &r["inflight"], &r["transactions_per_s"]].map(String::clone).to_vec())
            .collect()
    };
    let all = probes(&whole);
    let loads: Vec<&str> = all.iter().map(|p| p[1].as_str()).collect();
    assert_eq!(loads, ["1", "2", "4", "8", "16", "32", "64", "128", "256"], "doubled until the probes are used up");
    // Cut in the middle of the fifth probe's line.
    let fifth = whole.match_indices('\n').nth(5).unwrap().0;
    std::fs::write(&table, &whole[..fifth - 10]).unwrap();
    let ran = plumb(&["run", &plan, "--resume", &out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("probe 4 ") && ran.stderr.contains("probe 5 "), "{}", ran.stderr);
    let text = std::fs::read_to_string(&table).unwrap();
    let resumed = probes(&text);
    assert_eq!((&resumed[..4], resumed.len()), (&all[..4], 9));
    let rows = parse(&text);
    let (summary, iterations) = (of(&rows, "summary"), of(&rows, "iteration"));
    assert_eq!((summary.len(), iterations.len()), (1, 1));
    // One probe that held may be luck: the answer is the load below, which the limit exceeds with 95 %.
    for row in [summary[0], iterations[0]] {
        assert_eq!((row["inflight"].as_str(), &row["transactions_per_s"]), ("128", &resumed[7][2]));
    }
    assert_eq!(summary[0]["search"], "open");
    assert!(ran.stderr.contains("ended before a limit was seen"), "{}", ran.stderr);
}
