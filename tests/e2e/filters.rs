//! The filters in the real program: the examples of their help as pasted, and bad input.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::program::{Folder, Ran, command, despite_stalls, plumb};

/// Runs a line in a shell where `plumb` is the program under test.
pub fn shell(folder: &Path, line: &str) -> Ran {
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

/// The example line in a filter's help.
fn example(filter: &str) -> String {
    let help = plumb(&[filter, "--help"]).stdout;
    // Long lines are folded: an example is a paragraph.
    let paragraph = help.split("\n\n").find(|p| p.trim_start().starts_with("plumb ")).expect("an example");
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn examples_work_as_pasted() {
    // Their runs last some milliseconds, and measure nothing where the machine stands still for as long.
    despite_stalls(runs_the_examples);
}

fn runs_the_examples() {
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
        // The rows of the run above are reused: a run per filter would take seconds each.
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

/// The lines below `Examples:` of a filter's long help.
pub fn examples(filter: &str) -> Vec<String> {
    let help = plumb(&[filter, "--help"]).stdout;
    let (_, block) = help.split_once("Examples:\n").expect("examples");
    let lines = block.lines().take_while(|line| line.starts_with("  "));
    // Folding at the terminal's width moves the end of a line to the margin of the next.
    lines
        .inspect(|line| assert!(line.len() < 100, "{filter}: folded: {line}"))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// Output and input of other programs is in files with the names in the lines; programs that are not installed are
/// left out of the line.
#[test]
fn every_line_of_the_longer_helps_works_as_pasted() {
    // Their runs last some milliseconds, and measure nothing where the machine stands still for as long.
    despite_stalls(runs_the_lines);
}

fn runs_the_lines() {
    let folder = Folder::new();
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/fixtures").join(name);
    let put = |from: &str, to: &str| {
        std::fs::create_dir_all(folder.path(to).parent().expect("a folder")).expect("made");
        std::fs::copy(fixture(from), folder.path(to)).expect("copied");
    };
    put("counters/netstat-s.before.txt", "before");
    put("counters/netstat-s.after.txt", "after");
    put("import/netpipe.out", "np.out");
    put("import/recorded/osu/bw-7.4.txt", "osu_bw.txt");
    put("import/iperf3-tcp.json", "monday/one.json");
    put("import/iperf3-tcp-reverse-p2.json", "monday/two.json");
    let mut rows = String::from("case,test,record,phase,time,elapsed_s,message_bytes,throughput_bits_per_s\n");
    for (i, record) in (1..=9).flat_map(|i| [(i, "interval"), (i, "iteration")]) {
        writeln!(rows, "bulk,bulk,{record},measure,2026-01-01T00:00:0{i}Z,1,{},{i}000000000", 1 << i).expect("written");
    }
    for name in ["results.csv", "old.csv", "new.csv", "quick.csv", "lab.csv"] {
        std::fs::write(folder.path(name), &rows).expect("written");
    }
    let two = "case,record,iteration,workload,elapsed_s,bytes_received,throughput_bits_per_s\n\
        bulk,iteration,1,tcp_stream,1,1000000,8e6\nbulk,iteration,2,tcp_stream,1,1000001,8e6\n";
    std::fs::write(folder.path("nightly.csv"), two).expect("written");
    let iperf3 = format!("cat {}", fixture("import/iperf3-tcp.json").display());
    let iperf3_text = format!("cat {} |", fixture("import/recorded/iperf3/tcp.txt").display());
    let netperf = format!("cat {}", fixture("import/recorded/netperf/p0-rr.txt").display());
    let ping = format!("cat {}", fixture("import/ping-iputils.txt").display());
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/quick.yaml");
    let run =
        format!("plumb run --progress never --set duration=50ms --set warmup=0s --set iterations=1 {}", plan.display());
    let mut pasted = 0;
    for filter in ["beforeafter", "import", "export"] {
        for line in examples(filter) {
            let line = line
                .replace("iperf3 -c HOST -J", &iperf3)
                .replace("iperf3 -c HOST |", &iperf3_text)
                .replace("netperf -H HOST -P 0 -t TCP_RR", &netperf)
                .replace("ping -c 20 -i 0.2 127.0.0.1", &ping)
                .replace("netstat -s > before; sleep 1; netstat -s > after", "cat before after")
                .replace("-- plumb run plans/quick.yaml", &format!("-- {run}"))
                .replace("plumb run plans/quick.yaml |", "cat quick.csv |")
                .replace("&& benchstat old.txt new.txt", "&& cat old.txt new.txt")
                .replace(" && gnuplot sweep.plot", " && cat sweep.plot")
                .replace("| rrdtool -", "| cat")
                .replace("| curl --data-binary @- 'http://HOST:8086/write?db=net'", "| cat");
            let ran = shell(&folder.path(""), &line);
            // head closes the pipe after its line: that is success too.
            assert_eq!(ran.code, Some(0), "{line}\n{}{}", ran.stdout, ran.stderr);
            let into_a_file = [
                " -o np.png",
                " -o junit.xml",
                "> monday.csv",
                "> old.txt",
                "> bmf.json",
                "-o bigger.json results.csv",
            ]
            .iter()
            .any(|end| line.ends_with(end));
            assert!(into_a_file || !ran.stdout.is_empty() || !ran.stderr.is_empty(), "{line} says nothing");
            pasted += 1;
        }
    }
    assert!(pasted >= 12, "{pasted}");
    for made in ["np.png", "monday.csv", "old.txt", "new.txt", "sweep.plot", "junit.xml", "bmf.json", "bigger.json"] {
        assert!(std::fs::metadata(folder.path(made)).is_ok_and(|m| m.len() > 0), "{made}");
    }
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let folder = Folder::new();
    let mut rows = String::from("case,record,phase,time,start_s,elapsed_s,stream,throughput_bits_per_s\n");
    let mut x: u64 = 1;
    // More than one block of four megabytes, so that several threads read.
    for i in 0..60_000u32 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (stream, at, rate) = (i % 3, f64::from(i / 3), x >> 34);
        writeln!(rows, "bulk,interval,measure,,{at},1,{stream},{rate}.5").expect("a string takes it");
        writeln!(rows, "a long name of a case that fills the table {stream},iteration,measure,,,9,,{rate}.25")
            .expect("written");
    }
    assert!(rows.len() > 5 << 20, "{}", rows.len());
    std::fs::write(folder.path("r.csv"), rows).expect("written");
    for line in [
        "aggregate -g case -m throughput -a count,mean,stddev,median,p99,ci",
        "window -g case",
        "window --cells -g case",
    ] {
        let on = |threads: u32| shell(&folder.path(""), &format!("RAYON_NUM_THREADS={threads} plumb {line} r.csv"));
        let one = on(1);
        assert_eq!(one.code, Some(0), "{line}: {}", one.stderr);
        assert!(one.stdout.lines().count() >= 2, "{line}: {}", one.stdout);
        for threads in 2..=4 {
            let more = on(threads);
            assert!(one.stdout == more.stdout && one.stderr == more.stderr, "{line} on {threads} threads");
        }
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
        "case      n  throughput mean  95 % interval\n\
         download  3      41.8 Gbit/s        ± 3.3 %\n\
         upload    1      42.0 Gbit/s\n"
    );
    assert_eq!(ran.stderr, "note: 1 row is not counted because of its status (1 failed)\n");

    std::fs::write(folder.path("r.csv"), "case,tag,r2\na,,0.998765432\nb,,0.00012345\nc,,12.5\n").expect("written");
    let numbers = "case          r2\na         0.9988\nb     0.00012345\nc           12.5\n";
    assert_eq!(shell(&folder.path(""), "plumb table r.csv").stdout, numbers);
    let all = shell(&folder.path(""), "plumb table --all r.csv");
    assert!(!all.stdout.contains("tag"), "a column without a value is left out: {}", all.stdout);
    let chosen = shell(&folder.path(""), "plumb table --columns case,tag r.csv");
    assert!(chosen.stdout.contains("tag"), "unless it was asked for: {}", chosen.stdout);
}

#[test]
fn bad_input_is_named_and_ends_with_3() {
    let folder = Folder::new();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let cases: [(&str, &[u8], &str); 11] = [
        ("ragged", b"case,throughput_bits_per_s\na,1\nb\n", ":3: the row has 1 cell, the header 2"),
        ("word", b"case,throughput_bits_per_s\na,fast\n", ":2, column `throughput_bits_per_s`: `fast` is not a number"),
        ("twice", b"case,throughput_bits_per_s\na,1\ncase,throughput_bits_per_s\na,2\n", ":3: a second header"),
        ("older", b"case,bytes_sent\na,1\n", ":1: there is no column `throughput_bits_per_s`"),
        ("empty", b"", ": is empty: there is not even a header"),
        ("double", b"case,throughput_bits_per_s,case\n", ":1, column `case`: the header names this column twice"),
        ("latin", b"case,throughput_bits_per_s\na\xe9,1\n", ":2: byte 0xe9 is not UTF-8"),
        ("gzipped", b"\x1f\x8b\x08\x00\n,\"", ": is compressed: unpack it into a pipe (gzip -dc FILE | plumb …)"),
        ("zstd", b"\x28\xb5\x2f\xfd\x04", ": is compressed"),
        ("quote", b"case,throughput_bits_per_s\n\"a,1\n", ":2: a quoted cell starts here and never ends"),
        ("kind", b"case,record,throughput_bits_per_s\na,row,1\n", ":2, column `record`: `row` is not a kind of record"),
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
    assert!(ran.stderr.contains(":2, column `latency_histogram`: the histogram is not base64"), "{}", ran.stderr);
    for filter in [&["table"][..], &["compare", &histogram], &["gate", "--assert", "throughput > 1bit/s"]] {
        let ran = plumb(&[filter, &["/"]].concat());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("/: is a directory: name the table in it"), "{}", ran.stderr);
    }
    let ran = plumb(&["check", &file("t.csv", b"run_id,case_id,case\n1,2,3\n")]);
    assert!(ran.code == Some(2) && ran.stderr.contains("is a table of results, and no plan"), "{}", ran.stderr);
    file("plan.yaml", b"version: 1\n");
    let ran = plumb(&["check", &folder.name("plan.yml")]);
    assert!(ran.stderr.contains("plan.yaml`?"), "{}", ran.stderr);
    let ran = plumb(&["table", &file("u.csv", b"a,b\n1,2\n"), "-o", "/nonexistent/x.csv"]);
    assert!(ran.stderr.contains("there is no folder /nonexistent: make it"), "{}", ran.stderr);
    let ran = plumb(&["import", "iperf3", &folder.name("u.csv")]);
    assert!(ran.code == Some(2) && ran.stderr.contains("plumb import --from iperf3 /"), "{}", ran.stderr);
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
    let side_of = |name: &str, id: &str, case: &str, factor: f64| {
        let mut text = String::from("case_id,case,record,phase,throughput_bits_per_s\n");
        for i in 0..10 {
            let throughput = factor * (1e10 + f64::from(i % 5) * 1e7 + f64::from(i));
            writeln!(text, "{id},{case},iteration,measure,{throughput}").expect("a string takes it");
        }
        let path = folder.path(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let side = |name: &str, id: &str, factor: f64| side_of(name, id, "bulk", factor);
    let (base, worse) = (side("base.csv", "c1", 1.0), side("worse.csv", "c1", 0.9));
    let code = |args: &[&str]| plumb(args).code;
    assert_eq!(code(&["compare", &base, &worse]), Some(0));
    assert_eq!(code(&["compare", "--fail-on", "regression", &base, &worse]), Some(1));
    assert_eq!(code(&["compare", "--fail-on", "regression", &worse, &base]), Some(0));
    // Settings that its name does not show make another id: the name finds the partner.
    assert_eq!(code(&["compare", "--fail-on", "regression", &base, &side("o.csv", "c2", 1.0)]), Some(0));
    assert_eq!(code(&["compare", "--fail-on", "regression", &base, &side("o.csv", "c2", 0.9)]), Some(1));
    let other = side_of("other.csv", "c2", "other[streams=4]", 1.0);
    assert_eq!(code(&["compare", &base, &other]), Some(3), "nothing was compared");
    assert_eq!(code(&["compare", "--by", "case", &base, &worse]), Some(2), "one case only");
    assert_eq!(code(&["compare", "--by", "case_id", "--fail-on", "regression", &base, &other]), Some(0));
    assert_eq!(code(&["compare", "--self-test", "10%", &base]), Some(0));
    assert_eq!(code(&["compare", "--self-test", "1%", &base]), Some(1));
    assert_eq!(code(&["compare", &base]), Some(2));
    // A metric without a better direction changes for neither better nor worse, and its self-test finds that.
    let neither = |name: &str, factor: f64| {
        let rows =
            (0..10).map(|i| format!("c1,bulk,iteration,measure,{}\n", factor * (100.0 + f64::from(i % 5) * 0.1)));
        std::fs::write(folder.path(name), format!("case_id,case,record,phase,elapsed_s\n{}", rows.collect::<String>()))
            .expect("written");
        folder.path(name).to_str().expect("UTF-8").to_owned()
    };
    let (short, long) = (neither("short.csv", 1.0), neither("long.csv", 1.2));
    let elapsed = |fail_on: &str, new: &str| code(&["compare", "-m", "elapsed", "--fail-on", fail_on, &short, new]);
    assert_eq!(
        (elapsed("regression", &long), elapsed("change", &long), elapsed("change", &short)),
        (Some(0), Some(1), Some(0))
    );
    assert_eq!(code(&["compare", "-m", "elapsed", "--self-test", "10%", &short]), Some(0));
    assert_eq!(code(&["compare", "-m", "elapsed", "--self-test", "1%", &short]), Some(1));
    assert_eq!(code(&["gate", "--assert", "throughput >= 9.5Gbit/s", &base]), Some(0));
    assert_eq!(code(&["gate", "--assert", "throughput >= 9.5Gbit/s", &worse]), Some(1));
    let close = "throughput >= 10.02Gbit/s";
    assert_eq!(code(&["gate", "--assert", close, &base]), Some(0));
    assert_eq!(code(&["gate", "--assert", close, "--inconclusive", "fail", &base]), Some(4));
}

#[test]
fn a_plan_is_judged_over_its_results() {
    let folder = Folder::new();
    // Two iterations that agree decide; the interval of three may reach below any floor on a busy machine.
    let tests = "  a:\n    workload: tcp_rr\n    transactions: 200\n    iterations: 2\n    assert:\n      - transaction_rate >= 1/s\n      - transaction_rate >= 1000M/s";
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

#[test]
fn values_of_a_swept_key_are_compared_with_each_other() {
    let folder = Folder::new();
    let keys = "workload: tcp_rr, transactions: 200, iterations: 2, matrix: {socket.no_delay: [true, false], request_size: [1, 64]}";
    let plan = folder.plan("", &format!("  rtt: {{{keys}}}"));
    let (table, text) = (folder.name("r.csv"), ["-f", "text"]);
    assert_eq!(plumb(&["run", &plan, "-o", &table]).code, Some(0));
    for (by, change, cases) in [
        ("socket.no_delay", "true → false", ["rtt[request 1 B]", "rtt[request 64 B]"]),
        ("request_size", "1 → 64", ["rtt[no_delay false]", "rtt[no_delay true]"]),
    ] {
        let ran = plumb(&[&["compare", "--by", by, &table][..], &text].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains(&format!("{by}: {change}")), "{}", ran.stdout);
        for case in cases {
            let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with(case)).collect();
            // Requests are judged by their transactions alone.
            assert!(lines.len() == 1 && lines[0].contains("/s") && !lines[0].contains("bit/s"), "{}", ran.stdout);
        }
        // Two rounds decide nothing, and say how many would.
        assert!(ran.stdout.contains("need 6 iterations per side"), "{}", ran.stdout);
    }
    let ran = plumb(&["compare", "--by", "request_size", "--base-value", "64B", "-f", "text", &table]);
    assert!(ran.stdout.contains("request_size: 64 → 1"), "{}{}", ran.stdout, ran.stderr);
    // Every filter says which values there are.
    for filter in
        [&["aggregate"][..], &["table"], &["table", "--all"], &["compare", &table], &["percentiles"], &["fit"]]
    {
        let ran = plumb(&[filter, &[&table, "--where", "request_size=32", "--where", "test=rtt"]].concat());
        assert_eq!(ran.code, Some(3), "{filter:?} {}", ran.stdout);
        assert!(
            ran.stderr.contains("no row that counts has request_size=32 and test=rtt; request_bytes is 1, 64"),
            "{}",
            ran.stderr
        );
    }
    for filter in [&["aggregate", "-m"][..], &["compare", &table, "-m"], &["table", "-c"], &["table", "--where"]] {
        let ran = plumb(
            &[filter, &[if filter.contains(&"--where") { "throughputt=1" } else { "throughputt" }, &table]].concat(),
        );
        assert!(ran.code == Some(2) && ran.stderr.contains("throughput"), "{filter:?} {}", ran.stderr);
    }
}
