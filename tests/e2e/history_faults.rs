//! Bad input to histories, several processes at once, and merges by git: nothing that was kept is lost.

use std::{
    fmt::Write as _,
    fs,
    process::{Command, Stdio},
};

use crate::{
    filters::shell,
    needs::{has_program, skip},
    program::{Folder, command, plumb},
};

const HEADER: &str =
    "run_id,time,commit,version,machine,plan,labels,case_id,case,member,direction,metric,n,centre,low,high,sample";

/// The day of a run: from 2025-01-01 on, in months of 28 days.
fn day(run: usize) -> String {
    format!("{}-{:02}-{:02}T03:00:00Z", 2025 + run / 336, run / 28 % 12 + 1, run % 28 + 1)
}

fn row(run: usize, machine: &str, metric: &str) -> String {
    let level = if run < 60 { 1e9 } else { 0.95e9 };
    let noise = [3, -12, 8, 11, -4, -9, 6][run * 5 % 7];
    let centre = level + f64::from(noise) * 1e6;
    format!("r{run},{},,0.1.0,{machine},nightly,,c1,bulk,,,{metric},3,{centre},,,1 2 3", day(run))
}

/// The file of a history with these lines below the header.
fn write(folder: &Folder, lines: &[String]) -> std::path::PathBuf {
    fs::create_dir_all(folder.path("history/nightly")).unwrap();
    let file = folder.path("history/nightly/m1.csv");
    let mut text = format!("{HEADER}\n");
    for line in lines {
        writeln!(text, "{line}").unwrap();
    }
    fs::write(&file, text).unwrap();
    file
}

fn runs(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|run| row(run, "m1", "throughput")).collect()
}

/// Each kind of bad input, with the place, the reason and the remedy that standard error has. `repair`: what is told then.
#[test]
fn bad_input_is_told_with_file_line_reason_and_remedy() {
    let mut two_machines = runs(0..30);
    two_machines[20] = row(20, "m2", "throughput");
    let mut clock = runs(0..30);
    clock.swap(7, 12);
    let mut conflict = runs(0..30);
    conflict.insert(5, "<<<<<<< HEAD".to_owned());
    let mut newer = runs(0..30);
    newer.insert(10, "run_id,time,value,machine,case_id,metric".to_owned());
    let mut vanished = runs(0..30);
    vanished.extend((0..25).map(|run| row(run, "m1", "retransmits")));
    let mut unknown = runs(50..70);
    for line in &mut unknown {
        *line = line.replacen(",,0.1.0", ",0123456789ab,0.1.0", 1);
    }
    let mut torn = runs(0..30);
    torn[9] = torn[9][..50].to_owned();
    for (lines, code, place, told) in [
        (two_machines, 0, "m1.csv:22: ", "the file has rows of another machine: each machine has series of its own"),
        (clock, 0, "m1.csv:10: ", "a clock that went back): runs are taken in the order of their times"),
        (conflict, 3, "m1.csv:7: ", "keep the rows of both sides and remove the marks (--repair leaves the line out)"),
        (newer, 3, "m1.csv:12: ", "the header has no column `centre`: a newer version of plumb reads it"),
        (runs(0..1), 0, "bulk throughput: ", "1 run: 19 more make the 20"),
        (vanished, 0, "bulk retransmits", "has no value since 2025-01-25; the plan ran last on 2025-02-02"),
        (torn, 3, "m1.csv:11: ", "the line was cut off: it has 9 fields of 17 (--repair leaves the line out)"),
        (vec![], 2, "history", "has no history: plumb history add RUN --to DIR adds a run"),
    ] {
        let folder = Folder::new();
        let file = write(&folder, &lines);
        let before = fs::read(&file).unwrap();
        let trend = plumb(&["trend", &folder.name("history"), "-f", "text"]);
        let all = trend.stdout + &trend.stderr;
        let unfolded = all.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(trend.code, Some(code), "{told}: {all}");
        assert!(unfolded.contains(place) && unfolded.contains(told), "{place}{told}: {all}");
        if told.contains("--repair") {
            let trend = plumb(&["trend", &folder.name("history"), "-f", "text", "--repair"]);
            assert!(trend.code == Some(0) && trend.stdout.contains("left out"), "{}{}", trend.stdout, trend.stderr);
        }
        assert_eq!(fs::read(&file).unwrap(), before, "{told}: reading changes nothing");
    }
    let folder = Folder::new();
    write(&folder, &unknown);
    let trend = plumb(&["trend", &folder.name("history"), "-f", "text", "--repository", &folder.name("")]);
    assert!(
        trend.stdout.contains("commits not known: commit 0123456789ab is not in the repository of"),
        "{}",
        trend.stdout
    );
}

#[test]
fn a_torn_record_or_an_unreadable_folder_adds_nothing() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 60ms}");
    let ran = plumb(&["run", &plan, "-o", &folder.name("a.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = fs::read_to_string(folder.path("a.run.json")).unwrap();
    fs::write(folder.path("a.run.json"), &record[..record.len() / 2]).unwrap();
    let add = plumb(&["history", "add", &folder.name("a.csv"), "--to", &folder.name("history")]);
    assert_eq!(add.code, Some(3), "{}", add.stderr);
    assert!(add.stderr.contains("a.run.json"), "{}", add.stderr);
    assert!(!folder.path("history").exists());
    write(&folder, &runs(0..30));
    // A user of its own user namespace is not allowed to read everything.
    if !Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|status| status.success()) {
        return skip("this kernel gives this user no user namespace");
    }
    let line =
        "chmod 0 history/nightly; unshare --user plumb trend history; code=$?; chmod 755 history/nightly; exit $code";
    let ran = shell(&folder.path(""), line);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("history/nightly: Permission denied"), "{}", ran.stderr);
}

#[test]
fn processes_that_add_at_once_lose_and_duplicate_nothing() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 60ms}");
    for table in ["a.csv", "b.csv", "c.csv"] {
        let ran = plumb(&["run", &plan, "-o", &folder.name(table), "--progress", "never"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let to = folder.name("history");
    let adding: Vec<_> = (0..9)
        .map(|i| {
            let table = folder.name(["a.csv", "b.csv", "c.csv"][i % 3]);
            let mut add = command(&["history", "add", &table, "--to", &to, "--commit", "0123abc"]);
            add.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut process in adding {
        assert!(process.wait().unwrap().success());
    }
    let files = shell(&folder.path(""), "cat history/*/*.csv").stdout;
    let mut lines: Vec<&str> = files.lines().collect();
    let (count, columns) = (lines.len(), lines[0].split(',').count());
    assert_eq!(lines.iter().filter(|line| line.starts_with("run_id,")).count(), 1, "{files}");
    assert!(lines.iter().all(|line| line.split(',').count() >= columns), "{files}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "{files}");
    let mut ids: Vec<&str> = lines.iter().filter_map(|line| line.split(',').next()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4, "a header and three runs: {files}");
}

#[test]
fn a_full_disk_leaves_a_history_that_is_compacted_as_it_was() {
    let folder = Folder::new();
    write(&folder, &runs(0..200));
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return skip("this user cannot mount a file system of its own");
    }
    // The file system takes the history, and not its successor beside it.
    let script = "mkdir small && mount -t tmpfs -o size=24k none small && cp -r history small && \
         plumb history compact small/history --older-than 2030-01-01; echo code $?; \
         cmp small/history/nightly/m1.csv history/nightly/m1.csv && ls -A small/history/nightly";
    let ran = shell(&folder.path(""), &format!("unshare --mount bash -c '{script}'"));
    assert!(ran.stdout.contains("code 3") && ran.stdout.ends_with("m1.csv\n"), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
}

/// A branch appends while another compacts. git's union merge keeps what was appended; compaction after it leaves what one
/// without a branch would have left.
#[test]
fn a_merge_with_a_branch_that_appended_keeps_its_runs_and_compacts_again() {
    let folder = Folder::new();
    if !has_program("git", "git") {
        return;
    }
    for (before, lines_come_back) in [("2025-06-01", false), ("2030-01-01", true)] {
        let _ = fs::remove_dir_all(folder.path("history"));
        let file = write(&folder, &runs(0..200));
        fs::write(folder.path("history/.gitattributes"), "*.csv merge=union\n").unwrap();
        let appended = runs(200..210).join("\n") + "\n";
        fs::write(folder.path("appended"), &appended).unwrap();
        let compact = format!("plumb history compact history --older-than {before}");
        let git = "git -C history -c user.name=n -c user.email=e@example.org -c init.defaultBranch=main";
        let line = format!(
            "set -e; {git} init -q; {git} add -A; {git} commit -qm runs; {git} checkout -qb other; \
             cat appended >> history/nightly/m1.csv; {git} commit -qam append; {git} checkout -q main; \
             {compact}; cp history/nightly/m1.csv once; {git} commit -qam compact; {git} merge -q -m merge other; \
             cp history/nightly/m1.csv merged; plumb trend history -f csv --repository history > trend.csv; {compact}; \
             plumb trend history -f csv --repository history > again.csv"
        );
        let ran = shell(&folder.path(""), &line);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap();
        let (once, merged, again) = (read("once"), read("merged"), fs::read_to_string(&file).unwrap());
        assert!(once.lines().count() < 150, "{once}");
        for line in appended.lines() {
            assert!(merged.lines().any(|other| other == line), "{before}: {line} was lost");
        }
        let came_back = merged.lines().count() > once.lines().count() + 10;
        assert_eq!(came_back, lines_come_back, "{before}: {merged}");
        // As if the runs had been appended before.
        fs::write(&file, format!("{HEADER}\n{}\n{appended}", runs(0..200).join("\n"))).unwrap();
        let ran = shell(&folder.path(""), &compact);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        if !lines_come_back {
            assert_eq!(sorted(&again), sorted(&fs::read_to_string(&file).unwrap()));
        }
        let added = appended.lines().count();
        assert!(again.lines().count() <= once.lines().count() + added, "what came back went again: {again}");
        for changes in [read("trend.csv"), read("again.csv")] {
            assert_eq!(changes.lines().filter(|line| line.starts_with("change,")).count(), 1, "{changes}");
            assert!(changes.contains(",r60,"), "{changes}");
        }
    }
}
