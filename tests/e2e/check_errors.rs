//! A wrong plan gets a sentence with its place and exit code 2 from `plumb check`, never a panic or a hang.
//!
//! Complaints of other tools' users, and the tests that prevent them here:
//!
//! | complaint | here |
//! | --- | --- |
//! | a typo only warns | `unknown key`, `unknown value`, … in [`TESTS`] and [`PLANS`] |
//! | a threshold that is not a statement passes (`avg=123`), or one in a foreign unit | the assertions in [`TESTS`] |
//! | a metric without a sample passes | `does not measure` in [`TESTS`] before the run; `gate.rs`, and `analyze`'s `nothing_measured_fails`, after it |
//! | a gate that can never fail | a comparison of nothing, or of what no test measures, in [`PLANS`]; `gate.rs` (self-test) |
//! | a gate that is blind in one direction | `cwnd` in [`PLANS`]; `baseline.rs` (regression and improvement) |
//! | a gate that cries wolf | `alpha` in [`PLANS`]; `confirm.rs`; `analyze/tests/rates.rs` |
//! | every cell without a baseline, and green | `baseline.rs` (`on_missing`) |
//! | a partial run became the baseline | `baseline.rs` (what is refused) |
//! | a baseline of another machine | `baseline.rs`; an unknown fact in [`PLANS`] |
//! | a baseline that is not a results table | below |
//! | exit codes that mean two things | `outputs.rs`, `baseline.rs`, `filters.rs` |
//! | a host that silently is this machine, or is missing | `unknown host` in [`TESTS`] and [`PLANS`], `--host` below; `faults.rs` |
//! | bits or bytes | `10Mbps` in [`TESTS`] |
//! | hundreds of cases by accident | `more than 256 cases`, `defaults cannot sweep` |
//! | a file that is huge, endless or a bomb | below |
//! | a parameter that is not in the results, NaN, nominal lengths, human units | no plan can cause them: `run.rs` |

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn plumb(args: &[&str], plan: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(args)
        .env_remove("PLUMB_TEST_UNSET")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("plumb starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A plan that is too large is not read to its end.
    let _ = stdin.write_all(plan);
    drop(stdin);
    child.wait_with_output().expect("plumb ends")
}

fn refused(plan: &str) -> String {
    let output = plumb(&["check", "-"], plan.as_bytes());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{plan}\n{text}");
    assert!(output.stdout.is_empty(), "nothing but the complaint");
    text
}

/// A plan with these lines in its only test, `a`, from line 5 on, indented by four.
fn test_with(body: &str) -> String {
    format!("version: 1\nname: t\ntests:\n  a:\n    {}\n", body.replace('\n', "\n    "))
}

/// Lines of a test, the place that the error points at, and its text.
const TESTS: &[(&str, &str, &[&str])] = &[
    // Typos.
    ("workload: tcp_rr\nmesage_size: 64KiB", "6:5", &["unknown key `mesage_size`", "did you mean `message_size`?"]),
    ("workload: tcp_steam", "5:15", &["unknown workload `tcp_steam`", "did you mean `tcp_stream`?"]),
    ("workload: tcp_rr\nsocket: {nodelay: true}", "6:14", &["unknown key `nodelay`", "did you mean `no_delay`?"]),
    ("workload: tcp_rr\ndirection: reversed", "6:16", &["unknown value `reversed`", "did you mean `reverse`?"]),
    ("workload: tcp_rr\nsocket: {no_delay: yes}", "6:24", &["`yes`", "write true"]),
    ("workload: tcp_rr\niterations: {margn: 2%}", "6:18", &["unknown key `margn`", "did you mean `margin`?"]),
    ("workload: tcp_rr\ncollect: [disk]", "6:15", &["unknown value `disk`"]),
    ("workload: tcp_rr\nextends: fast", "6:14", &["unknown profile `fast`", "there are no profiles"]),
    ("workload: tcp_rr\nto: sever", "6:9", &["unknown host `sever`", "add `hosts:"]),
    // Words of other tools.
    ("workload: tcp_rr\ntime: 5s", "6:5", &["unknown key `time`", "did you mean `duration`?"]),
    ("workload: tcp_rr\nrepetitions: 5", "6:5", &["did you mean `iterations`?"]),
    ("workload: tcp_rr\nparallel: 5", "6:5", &["did you mean `streams`?"]),
    ("workload: tcp_stream\nbandwidth: 1Mbit/s", "6:5", &["did you mean `rate`?"]),
    ("workload: tcp_stream\nreverse: true", "6:5", &["did you mean `direction: reverse`?"]),
    ("workload: tcp_stream\ndirection: upload", "6:16", &["unknown value `upload`", "did you mean `forward`?"]),
    (
        "workload: tcp_stream\nmatrix: {congestion_control: [cubic]}",
        "6:14",
        &["did you mean `socket.congestion_control`?"],
    ),
    ("workload: tcp_rr\nassert: [bandwidth > 1Mbit/s]", "6:14", &["did you mean `throughput`?"]),
    ("workload: tcp_rr\nxyzzy: 1", "6:5", &["known here: workload, ", ", … and "]),
    // Units.
    (
        "workload: tcp_stream\nrate: 10Mbps",
        "6:11",
        &["`10Mbps` does not say bits or bytes", "write 10Mbit/s or 10MB/s"],
    ),
    ("workload: tcp_stream\nrate: 10Gb/s", "6:11", &["did you mean 10Gbit/s?"]),
    ("workload: tcp_stream\nrate: 10", "6:11", &["a rate needs a unit"]),
    ("workload: tcp_stream\nmessage_size: 64kib", "6:19", &["write KiB"]),
    ("workload: tcp_stream\nmessage_size: 99999999999GiB", "6:19", &["is too large", "8 EiB"]),
    ("workload: tcp_stream\nmessage_size: 99999999999999999999", "6:19", &["is too large"]),
    ("workload: tcp_stream\nmessage_size: 2GiB", "6:19", &["`message_size` is 2147483648 bytes", "the limit is"]),
    ("workload: tcp_stream\nstreams: 0x10", "6:14", &["write it in plain decimal digits"]),
    ("workload: tcp_stream\nstreams: \"2\"", "6:14", &["without quotes"]),
    ("workload: tcp_stream\nintegrity: \"true\"", "6:16", &["expected a boolean", "write it without quotes"]),
    ("workload: tcp_stream\nbuffers: {ring: 100000}", "6:14", &["would take 12.2 GiB, more than the 1 GiB"]),
    ("workload: tcp_rr\ninflight: 4000000000", "6:15", &["more than the 1 GiB"]),
    ("workload: tcp_stream\nstreams: 100000", "6:14", &["more than the 1 GiB"]),
    ("workload: tcp_stream\nmessage_size: -1", "6:19", &["`-1` is not a size"]),
    ("workload: tcp_stream\nmessage_size: 0", "6:19", &["`message_size` is 0"]),
    ("workload: tcp_stream\nduration: 2 fortnights", "6:15", &["unknown unit `fortnights`"]),
    ("workload: tcp_stream\nduration: 0s", "6:15", &["`duration` is 0"]),
    ("workload: tcp_stream\nstreams: 010", "6:14", &["found `010`"]),
    ("workload: tcp_stream\nstreams: 1.5", "6:14", &["found `1.5`"]),
    ("workload: tcp_stream\ncpu: 5-2", "6:10", &["`5-2` is not a CPU list"]),
    ("workload: tcp_stream\nsocket: {dscp: 64}", "6:20", &["`64` is not a DSCP"]),
    ("workload: tcp_stream\nbuffers: {alignment: 3000}", "6:26", &["not a power of two", "for example 4096"]),
    // Contradictions.
    ("workload: tcp_stream\nduration: 1s\nbytes: 1GB", "7:12", &["both say when to stop"]),
    ("workload: tcp_stream\ntransactions: 5", "6:19", &["a stream has no transactions"]),
    ("workload: tcp_maerts\ndirection: forward", "6:16", &["`tcp_maerts` says another direction"]),
    ("workload: tcp_rr\nrate: 1Gbit/s", "6:11", &["no bit rate", "20k/s"]),
    ("workload: tcp_rr\narrival: poisson", "6:14", &["needs a rate"]),
    ("workload: tcp_rr\npacing: {burst: 4}", "6:13", &["without a rate paces nothing"]),
    ("workload: tcp_stream\nduration: 1s\ninterval: 2s", "7:15", &["`interval` is longer than `duration`"]),
    ("duration: 1s", "4:3", &["no `workload`", "workload: tcp_stream"]),
    ("workload: command", "5:5", &["no `command`"]),
    ("workload: tcp_rr\ncommand: {run: [ls]}", "6:5", &["`command` means nothing to tcp_rr"]),
    ("workload: LOC_CPU", "5:15", &["`LOC_CPU` is not a workload here", "no calibration"]),
    // Iterations.
    ("workload: tcp_rr\niterations: 0", "6:17", &["`0` is not a count"]),
    ("workload: tcp_rr\niterations: {min: 9, max: 3}", "6:5", &["fewer than `min`"]),
    ("workload: tcp_rr\niterations: {confidence: 100%}", "6:5", &["the confidence is 100 %"]),
    ("workload: tcp_rr\niterations: {metrics: [lost]}", "6:5", &["tcp_rr does not measure `lost`"]),
    // Assertions that some other tool passes silently.
    ("workload: tcp_rr\nassert: [avg=123]", "6:14", &["`avg=123` is no assertion", "throughput >= 9Gbit/s"]),
    (
        "workload: tcp_rr\nassert: [latency.p98 < 80us]",
        "6:14",
        &["unknown metric `latency.p98`", "did you mean `latency.p9"],
    ),
    ("workload: tcp_rr\nassert: [latency.p99 < 80Mbit/s]", "6:14", &["unknown unit `Mbit/s`"]),
    ("workload: tcp_rr\nassert: [latency.p99 < 80]", "6:14", &["80"]),
    (
        "workload: tcp_stream\nassert: [latency.p99 < 80us]",
        "6:14",
        &["tcp_stream does not measure `latency.p99`", "collect"],
    ),
    ("workload: tcp_stream\nassert: [loss_ratio == 0]", "6:14", &["only datagrams can be lost"]),
    (
        "workload: tcp_stream\nassert: [{that: throughput > 1bit/s, when: {stream: 1}}]",
        "6:49",
        &["unknown key `stream`"],
    ),
    (
        "workload: tcp_stream\nassert: [{that: throughput > 1bit/s, member: up}]",
        "6:50",
        &["unknown member `up`", "not a concurrent group"],
    ),
    ("workload: tcp_stream\ncollect: [tcp_info]\nassert: [cpu.local < 50%]", "7:14", &["`cpu` is not in `collect`"]),
    // The matrix.
    ("workload: tcp_rr\nmatrix: {mesage_size: [1]}", "6:14", &["unknown key `mesage_size`", "did you mean"]),
    ("workload: tcp_rr\nmatrix: {streams: [1], exclude: [{streams: 7}]}", "6:38", &["matches no combination"]),
    ("workload: tcp_rr\nmatrix: {streams: 4}", "6:23", &["needs a list of values"]),
    (
        "workload: tcp_rr\nmatrix: {inflight: {from: 1, to: 9000, step: 1}}",
        "4:3",
        &["more than 256 cases", "run.max_cases"],
    ),
    ("workload: tcp_rr\nstop_when: latency.p99 > 1s", "6:5", &["the test has none", "add a matrix"]),
    // Groups.
    ("concurrent: {members: {}}", "5:5", &["a group without members"]),
    (
        "concurrent:\n  members:\n    up: {workload: tcp_stream, iterations: 3}",
        "7:36",
        &["`iterations` belongs to the whole group"],
    ),
    ("concurrent:\n  members:\n    up: {}", "7:9", &["no `workload`"]),
    (
        "concurrent:\n  members:\n    up: {workload: tcp_stream, warmup: auto}",
        "7:44",
        &["a warm-up of a group cannot end by itself"],
    ),
    ("workload: tcp_rr\nwarmup: {max: 10ms}", "6:", &["nothing settles in less than 100 ms"]),
    // Searches.
    ("workload: udp_stream\nfind: {metric: loss_ratio, at_most: 0, by: rate}", "6:5", &["a place to start"]),
    ("workload: udp_stream\nfind: {metric: loss_ratio, by: rate, from: 1Mbit/s}", "6:5", &["needs a bound"]),
    (
        "workload: udp_stream\nfind: {metric: loss_ratio, at_most: 0, by: rate, from: 1Mbit/s, within: 0.05%}",
        "6:5",
        &["`within` is 0.05 %", "between 0.1% and 100%"],
    ),
    (
        "workload: tcp_stream\nfind: {metric: throughput, at_least: 1Gbit/s, by: inflight}",
        "6:5",
        &["nothing in flight"],
    ),
    (
        "workload: udp_stream\nrate: 1Mbit/s\nfind: {metric: loss_ratio, at_most: 0, by: rate, from: 1Mbit/s}",
        "6:5",
        &["`rate` is what `find` searches"],
    ),
    (
        "workload: udp_stream\nfind: {metric: loss_ratio, at_most: 0, by: rate, from: 1k/s, to: 1Gbit/s}",
        "6:5",
        &["begins in bits and ends in messages", "one unit for both"],
    ),
    (
        "workload: ping\nfind: {metric: latency.p99, at_most: 1s, by: inflight, to: 70000}",
        "6:5",
        &["at the highest load", "at most 65536"],
    ),
    // Hooks.
    ("workload: tcp_rr\nhooks: {setup: {run: [ls], on: mars}}", "6:36", &["unknown host `mars`"]),
    ("workload: tcp_rr\nhooks: {setup: ls -l}", "6:20", &["a program with its arguments as a list"]),
    // A column's name in place of the key that fills it.
    (
        "workload: tcp_stream\nmessage_bytes: 64KiB",
        "6:5",
        &["unknown key `message_bytes`", "did you mean `message_size`?"],
    ),
    ("workload: tcp_rr\nassert: [inflight > 4]", "6:14", &["`inflight` is a column, not a metric"]),
];

#[test]
fn every_mistake_in_a_test_is_said_at_its_place() {
    let mut wrong = String::new();
    for (body, place, sentences) in TESTS {
        let text = refused(&test_with(body));
        let place = format!("<stdin>:{place}");
        if !text.contains(&place) || !sentences.iter().all(|s| text.contains(s)) {
            wrong = format!("{wrong}\n--- {body}\nexpected {place} {sentences:?} in\n{text}");
        }
        assert!(!text.contains("panicked"), "{text}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whole plans: the top level, and YAML itself.
const PLANS: &[(&str, &str, &[&str])] = &[
    ("version: 2\nname: t\ntsets: {}\n", "1:10", &["unsupported version 2", "the newest supported one is 1"]),
    ("name: t\ntests: {a: {workload: tcp_rr}}\n", "1:1", &["`version` is missing"]),
    ("version: 1\ntests: {a: {workload: tcp_rr}}\n", "1:1", &["`name` is missing"]),
    ("version: 1\nname: My Plan\ntests: {a: {workload: tcp_rr}}\n", "2:7", &["cannot be a plan's name"]),
    ("version: 1\nname: t\n", "1:1", &["`tests` is missing"]),
    ("version: 1\nname: t\ntests: {}\n", "3:1", &["a plan without tests"]),
    ("version: 1\nname: t\ntest: {a: {workload: tcp_rr}}\n", "3:1", &["unknown key `test`", "did you mean `tests`?"]),
    ("version: 1\nname: t\ntests:\n\ta: {workload: tcp_rr}\n", "4:1", &["a tab cannot indent YAML", "use spaces"]),
    ("version: 1\nname: t\nname: u\ntests: {a: {workload: tcp_rr}}\n", "3:1", &["`name` twice", "first here"]),
    ("version: 1\nname: t\ntests: {a: {workload: tcp_rr}\n", "", &["this is not YAML"]),
    (
        "version: 1\nname: t\ntests:\n  a:\n    workload: tcp_rr\n   duration: 1s\n",
        "",
        &["this is not YAML", "keys of one map begin in the same column"],
    ),
    ("version: 1\nname: t\ntests:\n  a:\n  workload: tcp_rr\n", "", &["below its name, further to the right"]),
    ("{\"start\": {}, \"end\": {}}", "", &["is JSON without `tests`", "plumb import --from iperf3"]),
    ("- a\n- b\n", "1:1", &["a plan is a map"]),
    (
        "version: 1\nname: t\ntests: {a: tcp_stream}\n",
        "3:12",
        &["expected a test, such as {workload: tcp_stream}, found `tcp_stream`"],
    ),
    ("version: 1\nname: t\ntests:\n- workload: tcp_rr\n", "4:3", &["expected a map (`name: …` lines), found a list"]),
    ("", "", &["is empty"]),
    (
        "version: 1\nname: t\ntests: {a: {workload: tcp_rr, socket: [8KiB, 16KiB]}}\n",
        "3:39",
        &["expected a map, found a list", "write `key: value`, without `-`"],
    ),
    (
        "version: 1\nname: t\ntests: {a: {workload: tcp_rr, skip: no}}\n",
        "3:37",
        &["`no` is no reason to skip a test", "write true, false, or the reason"],
    ),
    (
        "version: 1\nname: t\ntests: {a: {workload: tcp_rr, timeout: 0s}}\n",
        "3:31",
        &["leaves the ends no time to report", "at least 100ms"],
    ),
    (
        "version: 1\nname: t\nprofiles: {p: {extends: q}, q: {extends: [p]}}\ntests: {a: {workload: tcp_rr, extends: p}}\n",
        "3:43",
        &["in a circle: p → q → p", "remove one `extends`"],
    ),
    (
        "version: 1\nname: t\nhosts: {server: {address: 10.0.0.2}}\ntests: {a: {workload: tcp_rr, to: sever}}\n",
        "4:35",
        &["unknown host `sever`", "did you mean `server`?"],
    ),
    (
        "version: 1\nname: t\nhosts: {s: {control: \"x:1\"}}\ntests: {a: {workload: tcp_rr, to: s}}\n",
        "3:9",
        &["host `s` has no address"],
    ),
    (
        "version: 1\nname: t\nhosts: {\"n[1-4\": {address: x}}\ntests: {a: {workload: tcp_rr}}\n",
        "3:9",
        &["`n[1-4` has an open bracket", "close it with ]"],
    ),
    (
        "version: 1\nname: t\nhosts: {\"n[1-4]\": {address: x}}\ntests: {a: {workload: tcp_rr, to: \"n[2-4]\"}}\n",
        "4:35",
        &["`n[2-4]` is 3 hosts", "sweep it: matrix: {to: \"n[2-4]\"}"],
    ),
    (
        "version: 1\nname: t\nhosts: {s: {address: x, bind: eth0}}\ntests: {a: {workload: tcp_rr, to: s}}\n",
        "3:31",
        &["`eth0` is not an address to bind to"],
    ),
    (
        "version: 1\nname: t\nvars: {n: {env: PLUMB_TEST_UNSET}}\ntests: {a: {workload: tcp_rr, streams: \"${vars.n}\"}}\n",
        "4:40",
        &["`vars.n` is not set", "declared here"],
    ),
    ("version: 1\nname: t\ntests: {a: {workload: tcp_rr, to: \"${vars.x}\"}}\n", "3:35", &["`vars.x` is not declared"]),
    (
        "version: 1\nname: t\nrun: {order: backward}\ntests: {a: {workload: tcp_rr}}\n",
        "3:14",
        &["unknown value `backward`"],
    ),
    (
        "version: 1\nname: t\nrequire: [{check: cpu_govenor, equals: performance}]\ntests: {a: {workload: tcp_rr}}\n",
        "3:19",
        &["unknown check", "did you mean `cpu_governor`?"],
    ),
    (
        "version: 1\nname: t\nrequire: [{check: nic_speed, at_least: 25Gbps}]\ntests: {a: {workload: tcp_rr}}\n",
        "3:40",
        &["does not say bits or bytes"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: mss, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:46",
        &["unknown metric `mss`"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: cwnd, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:46",
        &["has no better or worse"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv}\ntests: {a: {workload: tcp_rr}}\n",
        "3:1",
        &["a baseline without comparisons"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: lost, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:46",
        &["no test of the plan measures `lost`", "only datagrams can be lost"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: throughput}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:37",
        &["`max_regression` is missing"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: throughput, max_regression: -3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:74",
        &["`-3%` is not a ratio", "negative"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: throughput, max_regression: 3%, min_effect: 5us}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:90",
        &["unknown unit `us`"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, compare: [{metric: throughput, max_regression: 3%, alpha: 60%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:85",
        &["alpha is a small probability"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, require_same: [host.kernal], compare: [{metric: throughput, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:42",
        &["`host.kernal` is not a known fact", "did you mean `host.kernel`?"],
    ),
    (
        "version: 1\nname: t\nbaseline: {source: b.csv, on_missing: shrug, compare: [{metric: throughput, max_regression: 3%}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:39",
        &["unknown value `shrug`", "known here: warn, fail, pass"],
    ),
    (
        "version: 1\nname: t\ngate: {confirm: -1}\ntests: {a: {workload: tcp_rr}}\n",
        "3:17",
        &["expected a whole number, 0 or more, found `-1`"],
    ),
    (
        "version: 1\nname: t\ngate: {on_inconclusive: shrug}\ntests: {a: {workload: tcp_rr}}\n",
        "3:25",
        &["unknown value `shrug`", "warn"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, x: mesage_bytes, y: throughput, file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:35",
        &["unknown column or metric", "did you mean `message_bytes`?"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, x: socket.mss, y: throughput, file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:35",
        &["no test sweeps `socket.mss`", "sweep it in a `matrix`"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, x: rate, y: thruput, file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:44",
        &["unknown column or metric `thruput`", "did you mean `throughput`?"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: heatmap, x: rate, y: streams, by: test, file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:55",
        &["`heatmap` does not use `by`", "choose another kind"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, by: [], file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:36",
        &["the list is empty", "leave the key out"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, by: true, file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:36",
        &["expected a word or a list of words"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, by: [test, strems], file: a.png}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:43",
        &["unknown column or metric `strems`", "did you mean `streams`?"],
    ),
    (
        "version: 1\nname: t\noutput: {plots: [{kind: sweep, tests: [b], file: a.jpg}]}\ntests: {a: {workload: tcp_rr}}\n",
        "3:40",
        &["unknown test `b`", "end it in .png or .svg"],
    ),
    (
        "version: 1\nname: t\ndefaults: {matrix: {streams: [1, 2]}}\ntests: {a: {workload: tcp_rr}}\n",
        "3:12",
        &["`defaults` cannot sweep"],
    ),
    ("version: 1\nname: t\ntests: {a.b: {workload: tcp_rr}}\n", "3:9", &["`a.b` cannot be a name"]),
    ("version: 1\nname: t\ntests: {7: {workload: tcp_rr}}\n", "3:9", &["`7` cannot be a name"]),
    (
        "version: 1\nname: t\nx-a: &a {n: 1}\ntests: {a: {workload: tcp_rr, <<: *a}}\n",
        "4:31",
        &["use profiles and `extends`"],
    ),
];

#[test]
fn every_mistake_in_a_plan_is_said_at_its_place() {
    let mut wrong = String::new();
    for (plan, place, sentences) in PLANS {
        let text = refused(plan);
        if !(place.is_empty() || text.contains(&format!("<stdin>:{place}")))
            || !sentences.iter().all(|s| text.contains(s))
        {
            wrong = format!("{wrong}\n--- {plan}\nexpected {place} {sentences:?} in\n{text}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn all_mistakes_are_reported_at_once_in_order() {
    let text = refused(
        "version: 1\nname: t\ndefaults: {rate: 10Mbps}\ntests:\n  a: {workload: tcp_stream, to: mars, mesage_size: 1}\n  b: {workload: tcp_rr, assert: [lost == 0]}\n",
    );
    let at = |sentence: &str| text.find(sentence).unwrap_or_else(|| panic!("{sentence} not in:\n{text}"));
    assert!(at("10Mbps") < at("unknown host `mars`"));
    assert!(at("unknown host `mars`") < at("mesage_size"));
    assert!(at("mesage_size") < at("does not measure `lost`"));
    assert!(text.ends_with("4 errors\n"), "{text}");
    // Two tests inherit the default: one error.
    assert_eq!(text.matches("does not say bits or bytes").count(), 1);
}

#[test]
fn programs_and_github_get_their_forms() {
    let plan = test_with("workload: tcp_rr\nmesage_size: 1");
    let json = plumb(&["check", "--error-format", "json", "-"], plan.as_bytes());
    assert_eq!(json.status.code(), Some(2));
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((value[0]["line"].as_u64(), value[0]["column"].as_u64()), (Some(6), Some(5)));
    assert_eq!(value[0]["help"], "did you mean `message_size`?");
    let github = plumb(&["check", "--error-format", "github", "-"], plan.as_bytes());
    let text = String::from_utf8_lossy(&github.stdout);
    assert!(text.starts_with("::error file=<stdin>,line=6,col=5::unknown key `mesage_size`"), "{text}");
}

#[test]
fn a_missing_plan_a_directory_and_a_plan_that_is_no_text() {
    for (path, sentence) in [("/nonexistent/lab.yaml", "no such file"), ("/", "is a directory")] {
        let output = plumb(&["check", path], b"");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(text.contains(&format!("cannot read the plan {path}")) && text.contains(sentence), "{text}");
    }
    let output = plumb(&["check", "-"], &[b'a', 0xff, 0xfe]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not UTF-8"));
}

#[test]
fn a_plan_of_a_hundred_megabytes_and_a_bomb_are_refused_without_being_read_whole() {
    let huge = vec![b'#'; 100 << 20];
    let output = plumb(&["check", "-"], &huge);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("larger than 4 MiB"));

    let mut bomb = String::from("version: 1\nname: t\nx-0: &x0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*x{}", level - 1); 10].join(", ");
        bomb = format!("{bomb}x-{level}: &x{level} [{aliases}]\n");
    }
    let text = refused(&format!("{bomb}tests: {{a: {{workload: tcp_rr}}}}\n"));
    assert!(text.contains("aliases of aliases multiply"), "{text}");

    let deep = format!("version: 1\nname: t\nx-d: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    assert!(refused(&deep).contains("error"));
    let long = format!("version: 1\nname: t\ntests: {{{}: {{workload: tcp_rr, a: 1}}}}\n", "k".repeat(1 << 20));
    assert!(refused(&long).contains("unknown key `a`"));
}

#[test]
fn the_command_line_is_checked_like_the_plan() {
    let plan = test_with("workload: tcp_rr");
    for (args, sentence) in [
        (&["check", "-", "--set", "duration=10Mbps"][..], "--set:1:10"),
        (&["check", "-", "--set", "duration"], "write --set PATH=VALUE"),
        (&["check", "-", "--set", "tests.b.streams=1"], "unknown test `b`"),
        (&["check", "-", "--set", "streem=1"], "did you mean `streams`?"),
        (&["check", "-", "--set", "vars.x=1"], "`vars.x` is not declared"),
        (&["check", "-", "--set", "version=2"], "cannot be set from outside"),
        (&["check", "-", "--only", "nothing"], "matches no test, case or tag"),
        (&["check", "-", "--only", "nothing"], "known here: a"),
        (&["run", "-", "--duration", "5s"], "a plan has it as a key: --set duration=5s"),
        (&["run", "-", "--message-size=64KiB"], "a plan has it as a key: --set message_size=64KiB"),
        (&["check", "-", "--mss", "1400"], "a plan has it as a key: --set socket.mss=1400"),
        (&["run", "-", "--durration", "5s"], "a plan has a similar key: --set duration=5s"),
        (&["run", "-", "--time", "3"], "--set duration=3\n"),
        (&["run", "-", "--repetitions=3"], "--set iterations=3\n"),
        (&["run", "-", "--parallel", "4"], "--set streams=4\n"),
        (&["run", "-", "--reverse"], "--set direction=reverse\n"),
        (&["run", "-", "--bandwidth", "1Mbit/s"], "--set rate=1Mbit/s\n"),
        (&["run"], "`plumb plans` lists them"),
        (&["run", "quik"], "did you mean `quick`?"),
        (&["plot", "runs.csv"], "the kind of picture comes first: plumb plot bars runs.csv"),
        (&["history", "show", "runs"], "plumb trend DIR shows what changed"),
        (&["history", "add", "runs", "run.csv"], "plumb history add RUN.csv --to DIR"),
        (&["help", "speeds"], "help about exit-codes, units, keys, "),
        (&["check", "-", "--host", "lab=10.0.0.2"], "no test of the plan goes to a host `lab`"),
        (&["check", "-", "--host", "nowhere"], "--host server=10.0.0.2"),
        (&["check", "-", "--explain", "tests.a.streem"], "did you mean `streams`?"),
    ] {
        let output = plumb(args, plan.as_bytes());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}\n{text}");
        assert!(text.contains(sentence), "{args:?}: {sentence} not in:\n{text}");
    }
    // Every filter opens its tables in one place.
    for filter in ["table", "compare", "report", "aggregate"] {
        let words = [filter, "/nowhere/nope.csv", "/nowhere/nope.csv"];
        let output = plumb(if filter == "report" { &words[..2] } else { &words }, b"");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{filter}: {text}");
        assert!(text.contains("nope.csv: no such file: its folder does not exist"), "{filter}: {text}");
    }
    let output = plumb(&["check", "-", "--explain", "tests.a.streams", "--set", "streams=4"], plan.as_bytes());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("tests.a.streams: 4\n"), "{text}");
    assert!(text.contains("built-in:1:10  1") && text.contains("--set:1:9"), "{text}");
}

#[test]
fn a_baseline_that_is_no_results_table_is_known_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plan = format!(
        "version: 1\nname: t\nbaseline: {{source: {}, compare: [{{metric: throughput, max_regression: 3%}}]}}\n\
         tests: {{a: {{workload: tcp_stream}}}}\n",
        path("base.csv")
    );
    std::fs::write(path("plan.yaml"), plan).expect("written");
    let cases: [(&[u8], &str); 5] = [
        (b"hello\n", "there is no column `throughput_bits_per_s`"),
        (b"", "there is not even a header"),
        (b"case_id,throughput_bits_per_s\nc1,fast\n", "column `throughput_bits_per_s`: `fast` is not a number"),
        (b"throughput_bits_per_s\n1\n", "there is no column `case_id`"),
        (b"case_id,throughput_bits_per_s\nc1,1,2\n", "base.csv:2"),
    ];
    for (text, sentence) in cases {
        std::fs::write(path("base.csv"), text).expect("written");
        let output = plumb(&["run", &path("plan.yaml"), "-o", &path("r.csv")], b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("base.csv") && said.contains(sentence), "{sentence} not in:\n{said}");
        let rows = std::fs::read_to_string(path("r.csv")).unwrap_or_default();
        assert!(rows.lines().count() <= 1, "nothing was measured");
    }
}
