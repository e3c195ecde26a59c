//! `gate.confirm`: failing cases are measured again, and the table shows it.

use std::fs;

use crate::program::{Folder, Ran, Row, of, plumb, rows};

fn plan(folder: &Folder, iterations: u32) -> String {
    folder.plan(
        &format!("output: {{dir: {}}}\ngate: {{confirm: 2}}", folder.name("out")),
        &format!(
            "  bad: {{workload: tcp_rr, duration: 20ms, warmup: 5ms, iterations: {iterations}, assert: [transaction_rate > 900G/s]}}\n  \
             good: {{workload: tcp_rr, duration: 20ms, iterations: {iterations}, request_size: 2, assert: [transaction_rate >= 0/s]}}"
        ),
    )
}

/// `iteration status` of the measured iterations of a case, in the order of the table.
fn measured(table: &[Row], test: &str) -> Vec<String> {
    let of_it = of(table, "iteration").into_iter().filter(|r| r["test"] == test);
    of_it.map(|r| format!("{} {}", r["iteration"], r["status"])).collect()
}

const BAD: [&str; 6] = ["1 ok", "2 ok", "3 confirm", "4 confirm", "5 confirm", "6 confirm"];

fn check(folder: &Folder, ran: &Ran) {
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let table = rows(&folder.path("out/results.csv"));
    assert_eq!(measured(&table, "bad"), BAD);
    assert_eq!(measured(&table, "good"), ["1 ok", "2 ok"], "only what failed is measured again");
    let verdicts = rows(&folder.path("out/verdicts.csv"));
    assert_eq!((verdicts[0]["verdict"].as_str(), verdicts[1]["verdict"].as_str()), ("fail", "pass"));
    assert!(verdicts[0]["note"].contains("confirmed by confirmation 2"), "{}", verdicts[0]["note"]);
    assert_eq!(verdicts[0]["n"], "2", "each attempt is judged by itself");
}

#[test]
fn a_failing_case_is_measured_again_and_seen_to_be() {
    let folder = Folder::new();
    let plan = plan(&folder, 2);
    let ran = plumb(&["run", &plan]);
    check(&folder, &ran);
    assert!(ran.stderr.contains("measuring again what failed, 2 of 2: bad"), "{}", ran.stderr);
    let table = rows(&folder.path("out/results.csv"));
    let confirmations: Vec<&Row> = table.iter().filter(|r| r["status"] == "confirm").collect();
    assert!(confirmations.iter().all(|r| r["error"].starts_with("confirmation ")), "{}", confirmations[0]["error"]);
    assert_eq!(confirmations[0]["error"], "confirmation 1 of 2: transaction_rate > 900G/s did not hold");
    assert!(confirmations.iter().any(|r| r["phase"] == "warmup"), "no phase of it passes for the case's own");
    let summaries: Vec<&Row> = table.iter().filter(|r| r["record"] == "summary").collect();
    assert!(summaries.len() == 2 && summaries.iter().all(|r| r["iterations"] == "2"), "one summary, of what counts");

    // Filters leave confirmations out by default.
    let ran =
        plumb(&["aggregate", "-g", "test", "-m", "transaction_rate", "-a", "count", &folder.name("out/results.csv")]);
    assert!(ran.stdout.lines().any(|l| l == "bad,2"), "{}", ran.stdout);
    assert!(ran.stderr.contains("confirm"), "{}", ran.stderr);
}

#[test]
fn an_interrupted_confirmation_goes_on_where_it_stopped() {
    let folder = Folder::new();
    let plan = plan(&folder, 2);
    check(&folder, &plumb(&["run", &plan, "--progress", "never"]));
    let path = folder.path("out/results.csv");
    let whole = fs::read_to_string(&path).unwrap();
    // As after a kill in the middle of the row of iteration 5.
    let at = whole.lines().position(|l| l.contains("confirmation 2 of 2")).unwrap();
    let kept: Vec<&str> = whole.lines().take(at).collect();
    let torn = &whole.lines().nth(at).unwrap()[..40];
    fs::write(&path, format!("{}\n{torn}", kept.join("\n"))).unwrap();
    check(&folder, &plumb(&["run", &plan, "--progress", "never", "--resume", &folder.name("out")]));
    let resumed = fs::read_to_string(&path).unwrap();
    let first = |text: &str| -> Vec<String> {
        text.lines().filter(|l| l.contains("confirmation 1 of 2")).map(str::to_owned).collect()
    };
    assert_eq!(first(&whole), first(&resumed), "what was finished stays as it stood");

    // A finished run measures nothing again.
    check(&folder, &plumb(&["run", &plan, "--progress", "never", "--resume", &folder.name("out")]));
    let again = fs::read_to_string(&path).unwrap();
    let measured = |text: &str| -> Vec<String> {
        let mut lines: Vec<_> = text.lines().filter(|l| l.contains(",iteration,")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(measured(&resumed), measured(&again));
}
