//! The filters through the real program: the examples of their help as pasted, and bad input.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::program::{Folder, Ran, command, plumb};

/// Runs a line in a shell, in a folder where `plumb` means the program under test.
fn shell(folder: &Path, line: &str) -> Ran {
    let program = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .expect("bash starts");
    output.into()
}

/// The example line that a filter's help gives.
fn example(filter: &str) -> String {
    let help = plumb(&[filter, "--help"]).stdout;
    // Long lines are folded: an example is a paragraph of its own.
    let paragraph = help.split("\n\n").find(|p| p.trim_start().starts_with("plumb ")).expect("an example");
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn examples_work_as_pasted() {
    let folder = Folder::new();
    let here = folder.path("");
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/quick.yaml");
    let sets = ["duration=600ms", "warmup=0s", "interval=10ms", "iterations=3"];
    let mut run = command(&["run", "--progress", "never", "-o", "quick.csv"]);
    let output = run.current_dir(&here).args(sets.iter().flat_map(|s| ["--set", s])).arg(&plan).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::copy(folder.path("quick.csv"), folder.path("main.csv")).expect("copied");
    std::fs::copy(folder.path("quick.csv"), folder.path("branch.csv")).expect("copied");
    let mut sizes = String::from("test,message_bytes,throughput_bits_per_s\n");
    for n in (0..12).map(|i| 1u32 << i) {
        let throughput = f64::from(n) * 8.0 / (5e-6 + f64::from(n) / 5e9);
        writeln!(sizes, "sizes,{n},{throughput}").expect("a string takes it");
    }
    std::fs::write(folder.path("sizes.csv"), sizes).expect("written");

    for filter in ["aggregate", "table", "percentiles", "compare", "gate", "window", "steady", "fit"] {
        let line = example(filter);
        // The run itself would take its seconds once per filter; its rows are those of the run above.
        let pasted = match line.strip_prefix("plumb run ").and_then(|rest| rest.split_once(" | ")) {
            Some((_, rest)) => format!("cat {} | {rest}", if filter == "fit" { "sizes.csv" } else { "quick.csv" }),
            None => line.clone(),
        };
        let ran = shell(&here, &pasted);
        assert_eq!(ran.code, Some(0), "{pasted}\n{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.lines().count() >= 2, "{pasted}\n{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("NaN") && !ran.stdout.contains("inf,"), "{}", ran.stdout);
    }
}

#[test]
fn the_first_pipe_is_readable() {
    let folder = Folder::new();
    let rows = "case,record,phase,status,throughput_bits_per_s\n\
        download,iteration,measure,ok,41.2e9\ndownload,iteration,measure,ok,42.3e9\ndownload,iteration,measure,ok,41.9e9\n\
        upload,iteration,warmup,ok,1\nupload,iteration,measure,ok,42.0e9\nupload,iteration,measure,failed,\n";
    std::fs::write(folder.path("r.csv"), rows).expect("written");
    let ran = shell(&folder.path(""), "plumb aggregate -g case -m throughput r.csv | plumb table");
    assert_eq!(
        ran.stdout,
        "case      n  throughput mean  ± 95 %\n\
         download  3      41.8 Gbit/s   3.3 %\n\
         upload    1      42.0 Gbit/s\n"
    );
    assert_eq!(ran.stderr, "note: 1 row is not counted because of its status (1 failed)\n");
}

#[test]
fn bad_input_is_named_and_ends_with_3() {
    let folder = Folder::new();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let cases: [(&str, &[u8], &str); 9] = [
        ("ragged", b"case,throughput_bits_per_s\na,1\nb\n", ":3: the row has 1 cell, the header 2"),
        ("word", b"case,throughput_bits_per_s\na,fast\n", ":2, column `throughput_bits_per_s`: `fast` is not a number"),
        ("twice", b"case,throughput_bits_per_s\na,1\ncase,throughput_bits_per_s\na,2\n", ":3: a second header"),
        ("older", b"case,bytes_sent\na,1\n", ":1: there is no column `throughput_bits_per_s`"),
        ("empty", b"", ": is empty: there is not even a header"),
        ("double", b"case,throughput_bits_per_s,case\n", ":1, column `case`: the header names this column twice"),
        ("latin", b"case,throughput_bits_per_s\na\xe9,1\n", ":2: byte 0xe9 is not UTF-8"),
        ("quote", b"case,throughput_bits_per_s\n\"a,1\n", ":2: a quoted cell starts here and never ends"),
        ("kind", b"case,record,throughput_bits_per_s\na,row,1\n", ":2, column `record`: `row` is no kind of record"),
    ];
    for (name, text, expected) in cases {
        let path = file(name, text);
        let ran = plumb(&["aggregate", "-g", "case", "-m", "throughput_bits_per_s", &path]);
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("{name}{expected}")), "{name}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{name}");
    }
    let histogram = file("histogram", b"case,latency_histogram\na,????\n");
    let ran = plumb(&["percentiles", &histogram]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains(":2, column `latency_histogram`: the histogram is no base64"), "{}", ran.stderr);
    let ran = plumb(&["table", "/nonexistent.csv"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("/nonexistent.csv"), "{}", ran.stderr);
}

#[test]
fn an_endless_line_is_refused_in_bounded_memory() {
    let ran = shell(Path::new("/"), "head -c 1000000000 /dev/zero | tr '\\0' x | plumb aggregate -g case");
    assert!(ran.stderr.contains("longer than 16 MiB, the limit"), "{}", ran.stderr);
}

#[test]
fn a_reader_that_goes_away_is_success() {
    let folder = Folder::new();
    let mut text = String::from("case,throughput_bits_per_s\n");
    for i in 0..50_000 {
        writeln!(text, "case{i},{i}").expect("a string takes it");
    }
    std::fs::write(folder.path("r.csv"), text).expect("written");
    let line = "{ plumb aggregate -g case -m throughput r.csv; echo $? >code; } | head -1; cat code";
    let ran = shell(&folder.path(""), line);
    assert!(ran.stdout.ends_with("\n0\n"), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr, "");
}

#[test]
fn verdicts_decide_the_exit_code() {
    let folder = Folder::new();
    let side = |name: &str, factor: f64| {
        let mut text = String::from("case_id,case,record,phase,throughput_bits_per_s\n");
        for i in 0..10 {
            let throughput = factor * (1e10 + f64::from(i % 5) * 1e7 + f64::from(i));
            writeln!(text, "c1,bulk,iteration,measure,{throughput}").expect("a string takes it");
        }
        let path = folder.path(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (base, worse) = (side("base.csv", 1.0), side("worse.csv", 0.9));
    let code = |args: &[&str]| plumb(args).code;
    assert_eq!(code(&["compare", &base, &worse]), Some(0));
    assert_eq!(code(&["compare", "--fail-on", "regression", &base, &worse]), Some(1));
    assert_eq!(code(&["compare", "--fail-on", "regression", &worse, &base]), Some(0));
    assert_eq!(code(&["compare", "--self-test", "10%", &base]), Some(0));
    assert_eq!(code(&["compare", "--self-test", "1%", &base]), Some(1));
    assert_eq!(code(&["compare", &base]), Some(2));
    assert_eq!(code(&["gate", "--assert", "throughput >= 9.5Gbit/s", &base]), Some(0));
    assert_eq!(code(&["gate", "--assert", "throughput >= 9.5Gbit/s", &worse]), Some(1));
    let close = "throughput >= 10.02Gbit/s";
    assert_eq!(code(&["gate", "--assert", close, &base]), Some(0));
    assert_eq!(code(&["gate", "--assert", close, "--inconclusive", "fail", &base]), Some(4));
}

#[test]
fn a_plan_is_judged_over_its_results() {
    let folder = Folder::new();
    // Two iterations are judged by their mean: the interval of three on a busy machine may reach below any floor.
    let tests = "  a:\n    workload: tcp_rr\n    duration: 50ms\n    iterations: 2\n    assert:\n      - transaction_rate >= 1/s\n      - transaction_rate >= 1000M/s";
    let plan = folder.plan("", tests);
    let rows = folder.name("rows.csv");
    let ran = plumb(&["run", "--progress", "never", "-o", &rows, &plan]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let ran = plumb(&["gate", "--plan", &plan, "-f", "csv", &rows]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    let verdicts = crate::program::parse(&ran.stdout);
    let found: Vec<&str> = verdicts.iter().map(|v| v["verdict"].as_str()).collect();
    assert_eq!(found, ["pass", "fail"]);
    assert!(verdicts[1]["file"].ends_with("plan.yaml") && !verdicts[1]["line"].is_empty());
}
