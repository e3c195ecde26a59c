//! `plumb gate` gives the run's own verdicts from its table, and its self-test proves that a gate can fail.

use std::fs;

use nix::sys::signal::Signal;

use crate::{
    program::{Folder, end, number, parse, plumb},
    signals::{signal, under_way},
};

/// The sorted lines of a verdicts table: a run writes them case by case, `plumb gate` statement by
/// statement.
fn sorted(table: &str) -> Vec<String> {
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn it_judges_as_the_run_did() {
    let folder = Folder::new();
    let tests = "  streams:\n    workload: tcp_stream\n    streams: 2\n    duration: 30ms\n    \
         iterations: {min: 3, max: 3, confidence: 80%, margin: 50%}\n    assert:\n      \
         - {that: throughput > 1kbit/s, scope: stream}\n      - throughput > 900Tbit/s\n      - limited_by != sender_cpu\n  \
         both:\n    workload: tcp_stream\n    duration: 30ms\n    iterations: 5\n    direction: bidirectional\n    assert:\n      \
         - {that: throughput > 1bit/s, scope: direction}\n  gone: {workload: tcp_rr, skip: not today, assert: [errors == 0]}\n  \
         behind: {workload: udp_stream, rate: 1Tbit/s, duration: 30ms, iterations: 3, assert: [loss_ratio <= 100%]}";
    let top = format!(
        "baseline: {{source: {}, require_same: [], compare: [{{metric: throughput, max_regression: 90%}}]}}",
        folder.name("base.csv")
    );
    let plan = folder.plan(&top, tests);
    let (table, base) = (folder.name("r.csv"), folder.name("base.csv"));
    let ran = plumb(&["run", &plan, "-o", &table, "--progress", "never"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let kept = plumb(&["baseline", "promote", &table, "--to", &base, "--min-iterations", "3", "--accept-failures"]);
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    let ran = plumb(&["run", &plan, "-o", &table, "--progress", "never"]);
    let verdicts = fs::read_to_string(folder.path("r.verdicts.csv")).unwrap();
    let judged = plumb(&["gate", "--plan", &plan, "-f", "csv", &table]);
    assert_eq!((judged.code, ran.code), (Some(1), Some(1)), "{}", judged.stderr);
    assert_eq!(sorted(&judged.stdout), sorted(&verdicts));
    // Without a plan it is the run's own, beside the table.
    let own = plumb(&["gate", "-f", "csv", &table]);
    assert_eq!((own.code, own.stdout), (judged.code, judged.stdout), "{}", own.stderr);
    let rows = parse(&verdicts);
    assert_eq!(rows.iter().filter(|r| r["case"].contains("(stream ")).count(), 2);
    let behind = rows.iter().find(|r| r["case"] == "behind" && r["metric"] == "loss_ratio").unwrap();
    assert_eq!(behind["verdict"], "inconclusive");
    assert!(behind["note"].contains("of the plan's rate was offered") && ran.stdout.contains("of 1.00 Tbit/s offered"));
    // Windows of 30 ms show no cause.
    let cause = rows.iter().find(|r| r["metric"] == "limited_by").unwrap();
    assert_eq!([&cause["verdict"], &cause["note"]], ["inconclusive", "unknown in 3 of 3 iterations"]);
    assert_eq!([&cause["observed"], &cause["limit"]], ["", ""], "a cause is no number");
    let told = ran.stdout.matches("unknown in 3 of 3 iterations").count();
    assert_eq!(told, 2, "in the answer and in the table: {}", ran.stdout);
    let failed = rows.iter().find(|r| r["verdict"] == "fail" && r["assertion"].contains("900Tbit/s")).unwrap();
    assert!((number(failed, "confidence_level") - 0.8).abs() < 1e-9, "the plan's own confidence");
    let other = plumb(&["gate", "--plan", &plan, "--level", "99%", "-f", "csv", &table]);
    assert!(other.stdout.contains(",0.99,"), "{}", other.stdout);
}

/// Ten iterations around 100 Mbit/s.
fn table(folder: &Folder) -> String {
    let mut text = String::from("case_id,case,record,phase,status,throughput_bits_per_s,retransmits\n");
    for x in [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3, 0.8, -0.9] {
        text = format!("{text}c1,bulk,iteration,measure,ok,{},0\n", 100e6 + x * 1e6);
    }
    fs::write(folder.path("t.csv"), text).unwrap();
    folder.name("t.csv")
}

#[test]
fn people_read_the_answer_first_and_once() {
    let folder = Folder::new();
    let table = table(&folder);
    let both = ["gate", "--assert", "throughput >= 1Gbit/s", "--assert", "retransmits == 0", &table, "-f"];
    let first = "1 of 2 assertions fails: bulk throughput >= 1Gbit/s (";
    let ran = plumb(&[&both[..], &["text"]].concat());
    assert!(ran.code == Some(1) && ran.stdout.starts_with(first), "{}", ran.stdout);
    assert!(!ran.stdout.contains("1 failed"), "{}", ran.stdout);
    let ran = plumb(&[&both[..], &["md"]].concat());
    assert!(ran.stdout.starts_with(&format!("**{first}")), "{}", ran.stdout);
}

#[test]
fn a_gate_that_cannot_fail_is_found_out() {
    let folder = Folder::new();
    let table = table(&folder);
    let test = |assertion: &str| plumb(&["gate", "--assert", assertion, "--self-test", "10%", "-f", "text", &table]);
    let ran = test("throughput >= 95Mbit/s");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("noticed from 5.") && ran.stdout.ends_with("1 noticed\n"), "{}", ran.stdout);
    let ran = test("throughput >= 50Mbit/s");
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("noticed from 50 % on; made 10 % worse, it still passes"), "{}", ran.stdout);
    let ran = test("throughput >= 1Gbit/s");
    assert!(ran.code == Some(0) && ran.stdout.contains("fails as it is"), "{}", ran.stdout);
    // One more than zero is the smallest regression of a count.
    assert_eq!(test("retransmits == 0").code, Some(0));
    // A metric without values cannot be made worse.
    let ran = test("latency.p99 < 1ms");
    assert!(ran.code == Some(1) && ran.stdout.contains("there is no sample of latency.p99"), "{}", ran.stdout);
    assert_eq!(plumb(&["gate", "--assert", "throughput > 1bit/s", "--self-test", "ten", &table]).code, Some(2));
}

/// Replaces the rates of a table by those of a quiet machine: on this one they may vary too much
/// for any verdict.
fn calm(table: &str) {
    let mut reader = csv::Reader::from_path(table).unwrap();
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|h| h == name).unwrap();
    let (record, status, rate) = (at("record"), at("status"), at("transactions_per_s"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let mut writer = csv::Writer::from_path(table).unwrap();
    writer.write_record(&header).unwrap();
    let mut rates = ["1003", "998", "1001", "997", "1002", "999"].into_iter();
    for row in rows {
        let value = if &row[record] == "iteration" && &row[status] == "ok" { rates.next() } else { None };
        let cells = row.iter().enumerate().map(|(i, cell)| if i == rate { value.unwrap_or(cell) } else { cell });
        writer.write_record(cells).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn a_comparison_says_from_which_regression_on_it_would_be_noticed() {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!(
            "baseline: {{source: {}, compare: [{{metric: transaction_rate, max_regression: 10%}}]}}",
            folder.name("base.csv")
        ),
        "  rr: {workload: tcp_rr, transactions: 200, iterations: 6}",
    );
    let results = folder.name("r.csv");
    assert_eq!(plumb(&["run", &plan, "-o", &results, "--progress", "never"]).code, Some(0));
    calm(&results);
    // Without a baseline no regression can be noticed, and it says so.
    let blind = plumb(&["gate", "--plan", &plan, "--self-test", "95%", "-f", "text", &results]);
    assert_eq!(blind.code, Some(1), "{}", blind.stdout);
    assert_eq!(plumb(&["baseline", "promote", &results]).code, Some(0));
    let ran = plumb(&["gate", "--plan", &plan, "--self-test", "95%", "-f", "text", &results]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("noticed from ") && ran.stdout.contains("1 noticed"), "{}", ran.stdout);
    let none = plumb(&["gate", "--plan", &plan, "--self-test", "1%", &results]);
    assert_eq!(none.code, Some(1), "1 % is less than the 10 % that count: {}", none.stdout);
    // A case that the plan lacks is not judged.
    fs::remove_file(folder.path("r.run.json")).unwrap();
    let ran = plumb(&["gate", "--plan", &plan, "-f", "csv", &results]);
    assert!(ran.stdout.contains("nobody knows on which machine this was measured"), "{}", ran.stdout);
}

#[test]
fn a_case_of_other_settings_is_named_and_so_is_the_setting() {
    let folder = Folder::new();
    let base = folder.name("base.csv");
    let top = format!("baseline: {{source: {base}, compare: [{{metric: transaction_rate, max_regression: 10%}}]}}");
    let plan = folder.plan(&top, "  rr: {workload: tcp_rr, transactions: 200, iterations: 5, assert: [errors == 0]}");
    let results = folder.name("r.csv");
    assert_eq!(plumb(&["run", &plan, "-o", &results, "--progress", "never"]).code, Some(0));
    assert_eq!(plumb(&["baseline", "promote", &results]).code, Some(0));
    let ran = plumb(&["gate", "--plan", &plan, "--set", "request_size=64", "-f", "csv", &results]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let rows = parse(&ran.stdout);
    assert_eq!(rows.len(), 2, "{}", ran.stdout);
    for row in &rows {
        assert!(
            row["case"] == "rr"
                && row["note"].contains("other settings")
                && row["note"].contains("(request_size: (not set) → 64)"),
            "{row:?}"
        );
    }
    // A plan of another name may have other cases.
    let other = fs::read_to_string(&plan).unwrap().replace("  rr:", "  pings:");
    fs::write(folder.path("other.yaml"), other).unwrap();
    let ran = plumb(&["gate", "--plan", &folder.name("other.yaml"), "--set", "request_size=64", "-f", "csv", &results]);
    let rows = parse(&ran.stdout);
    let is_named =
        |row: &crate::program::Row| row["case"] == "pings" && row["note"].contains(&format!("are of {plan}"));
    assert!(!rows.is_empty() && rows.iter().all(is_named), "{}", ran.stdout);
}

#[test]
fn a_failed_case_is_an_error_of_every_reader() {
    let folder = Folder::new();
    let plan = folder.plan("", "  good: {workload: tcp_rr, transactions: 20, iterations: 3, assert: [errors == 0]}\n");
    let whole = folder.name("whole.csv");
    assert_eq!(plumb(&["run", &plan, "-o", &whole, "--progress", "never"]).code, Some(0));
    // As a run leaves it whose far end has died.
    let text = fs::read_to_string(&whole).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|h| h == name).unwrap();
    let mut out = csv::Writer::from_path(folder.path("cut.csv")).unwrap();
    out.write_record(&header).unwrap();
    for row in reader.records() {
        let mut cells: Vec<String> = row.unwrap().iter().map(str::to_owned).collect();
        if cells[place("iteration")] == "3" {
            (cells[place("status")], cells[place("error")]) = ("failed".to_owned(), "the far end is gone".to_owned());
        }
        out.write_record(cells).unwrap();
    }
    out.flush().unwrap();
    fs::copy(folder.path("whole.run.json"), folder.path("cut.run.json")).unwrap();
    let cut = folder.name("cut.csv");
    let said = "1 of 1 case failed: good (the far end is gone).";
    let gate = plumb(&["gate", "-f", "text", &cut]);
    assert!(gate.code == Some(3) && gate.stdout.starts_with(said), "{:?} {}", gate.code, gate.stdout);
    let rows = plumb(&["gate", &cut]);
    assert!(rows.code == Some(3) && rows.stderr.contains(said), "{:?} {}", rows.code, rows.stderr);
    let compared = plumb(&["compare", "--fail-on", "regression", "-f", "text", &whole, &cut]);
    assert!(compared.code == Some(3), "{:?} {}", compared.code, compared.stdout);
    assert!(compared.stdout.starts_with(&format!("{cut}: {said} Of 1 case")), "{}", compared.stdout);
    let report = plumb(&["report", &cut, "-o", &folder.name("cut.md")]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let page = fs::read_to_string(folder.path("cut.md")).unwrap();
    assert!(page.contains(&format!("**{said}")), "{page}");
    // A failure says more than that something was not measured.
    assert_eq!(plumb(&["gate", "--assert", "transactions > 1M", &cut]).code, Some(1));
    // A run that was cut off is told likewise.
    let record = fs::read_to_string(folder.path("whole.run.json")).unwrap();
    let record = record.replacen("\"ended\"", "\"interrupted\": \"SIGINT\", \"ended\"", 1);
    fs::write(folder.path("whole.run.json"), record).unwrap();
    let gate = plumb(&["gate", "-f", "text", &whole]);
    assert_eq!(gate.code, Some(3));
    assert!(gate.stdout.starts_with("The run was interrupted (SIGINT). The assertion holds: "), "{}", gate.stdout);
}

/// A case that an interruption or a crash kept from being measured has not failed: the answer names it.
#[test]
fn what_a_run_that_was_cut_off_did_not_measure_is_named_once() {
    let folder = Folder::new();
    let baseline = format!(
        "baseline: {{source: {}, compare: [{{metric: transaction_rate, max_regression: 50%}}]}}",
        folder.name("none.csv")
    );
    let test = |name: &str, more: &str| format!("  {name}: {{workload: tcp_rr, assert: [errors == 0], {more}}}\n");
    let tests = test("first", "transactions: 20") + &test("bulk", "duration: 60s") + &test("last", "transactions: 30");
    let plan = folder.plan(&baseline, &tests);
    let child = under_way(&folder, &plan);
    signal(&child, Signal::SIGINT);
    assert_eq!(end(child).code, Some(130));
    let table = folder.name("r.csv");
    let judged = || {
        let csv = plumb(&["gate", &table]);
        assert_eq!(csv.code, Some(3), "{}", csv.stderr);
        let cases: Vec<_> = parse(&csv.stdout).into_iter().map(|row| row["case"].clone()).collect();
        assert_eq!(cases, ["first", "first"], "{}", csv.stdout);
        plumb(&["gate", "-f", "text", &table]).stdout
    };
    // Nothing beside a lone table tells that its run was cut off.
    fs::copy(&table, folder.path("lone.csv")).unwrap();
    let lone = plumb(&["gate", "--plan", &plan, &folder.name("lone.csv")]);
    let failed: Vec<_> = parse(&lone.stdout).into_iter().filter(|row| row["verdict"] == "fail").collect();
    assert_eq!((lone.code, failed.len()), (Some(1), 4), "{}", lone.stdout);
    // A timer ends a run on purpose. What that left out is told all the same.
    let record = fs::read_to_string(folder.path("r.run.json")).unwrap();
    fs::write(folder.path("r.run.json"), record.replace("SIGINT", "SIGALRM")).unwrap();
    let timed = plumb(&["gate", &table]);
    let said = "The run was interrupted (SIGALRM); 2 cases were not measured to their end: bulk, last.";
    assert!(timed.code == Some(0) && timed.stderr.contains(said), "{} {}", timed.stdout, timed.stderr);
    fs::write(folder.path("r.run.json"), record).unwrap();
    let answer = judged();
    let said =
        "The run was interrupted (SIGINT); 2 cases were not measured to their end: bulk, last. Of 1 case compared";
    assert!(answer.starts_with(said), "{answer}");
    // A crash leaves neither rows of these cases nor their names.
    let rows = fs::read_to_string(folder.path("r.csv")).unwrap();
    let first: String =
        rows.split_inclusive('\n').filter(|row| !row.contains(",bulk,") && !row.contains(",last,")).collect();
    fs::write(folder.path("r.csv"), first).unwrap();
    let mut record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path("r.run.json")).unwrap()).unwrap();
    for key in ["ended", "interrupted", "unfinished"] {
        record.as_object_mut().unwrap().remove(key);
    }
    fs::write(folder.path("r.run.json"), record.to_string()).unwrap();
    let answer = judged();
    assert!(
        answer.starts_with("The run has not ended, or it crashed; 2 cases were not measured to their end: "),
        "{answer}"
    );
    assert_eq!((answer.matches("bulk").count(), answer.matches("last").count()), (1, 1), "{answer}");
}
