//! Results of other benches: what `import` makes of them says the same as a run of our own, and the filters judge it.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use netcore::spec::ranks::Operation;

use crate::program::{Folder, number, parse, plumb};

fn imported(files: &[&str]) -> String {
    let ran = plumb(&[&["import"], files].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

/// An output of OSU with these latencies, half round trips.
fn osu(latency: f64) -> String {
    format!("\n# OSU MPI Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n8   {latency:20.2}\n")
}

/// Size, time and ranks of each row give the printed busbw by the formula of our own operation.
#[test]
fn the_bus_bandwidth_of_nccl_tests_is_ours() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/tests/fixtures/import/recorded/nccl");
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the recorded outputs").flatten() {
        let ran = plumb(&["import", &entry.path().display().to_string()]);
        if ran.code != Some(0) {
            continue;
        }
        for row in parse(&ran.stdout) {
            let operation = Operation::ALL.iter().find(|operation| operation.as_str() == row["operation"]);
            let operation = operation.unwrap_or_else(|| panic!("{} is no operation of ours", row["operation"]));
            let Some(bus) = operation.facts().bus else { continue };
            assert_eq!(row["bus_formula"], bus.as_str(), "{}", row["operation"]);
            let ranks: u32 = row["ranks"].parse().expect("a number of ranks");
            let time_s = number(&row, "operation_time_us") / 1e6;
            let ours = bus.messages(ranks) * number(&row, "message_bytes") * 8.0 / time_s;
            // busbw has two decimals of GB/s; the time has two or one.
            let theirs = number(&row, "bus_bits_per_s");
            assert!((ours - theirs).abs() <= 0.005 * 8e9 + ours * 0.002, "{}: {ours} {theirs}", row["case"]);
            seen.insert(operation.as_str());
        }
    }
    let known = Operation::ALL.iter().filter(|operation| operation.facts().bus.is_some()).map(|o| o.as_str());
    // nccl-tests' alltoallv has blocks of lengths that it does not print.
    assert_eq!(seen, known.filter(|name| *name != "alltoallv").collect());
}

#[test]
fn imported_rows_are_compared_and_judged() {
    let folder = Folder::new();
    for (name, latency) in [("before", 20.0), ("after", 25.0)] {
        let files: Vec<String> = (0..5).map(|i| folder.name(&format!("{name}{i}.txt"))).collect();
        for (file, i) in files.iter().zip(0..) {
            std::fs::write(file, osu(latency * (1.0 + f64::from(i) / 500.0))).expect("an output");
        }
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        std::fs::write(folder.path(&format!("{name}.csv")), imported(&files)).expect("a table");
    }
    let (before, after) = (folder.name("before.csv"), folder.name("after.csv"));
    let compared = plumb(&["compare", "-f", "text", "-m", "latency.mean", &before, &after]);
    assert!(compared.stdout.contains("regression") && compared.stdout.contains("+25 %"), "{}", compared.stdout);
    // Whole round trips are judged.
    for (limit, code) in [("45us", 1), ("55us", 0)] {
        let judged = plumb(&["gate", "--assert", &format!("latency.mean < {limit}"), &after]);
        assert_eq!(judged.code, Some(code), "{}", judged.stdout);
    }
}

/// A plan runs the bench, the history keeps its results, and `trend` finds the run at which they changed.
#[test]
fn a_history_of_another_bench_has_its_changes() {
    let folder = Folder::new();
    let (output, history) = (folder.name("out.txt"), folder.name("history"));
    let mut plan = String::new();
    write!(plan, "  latency: {{workload: command, iterations: 1, command: {{run: [cat, {output}], import: osu}}}}")
        .unwrap();
    let plan = folder.plan("", &plan);
    for run in 0..22 {
        let latency = if run < 12 { 20.0 } else { 25.0 };
        std::fs::write(&output, osu(latency * (1.0 + f64::from(run * 7 % 5) / 500.0))).expect("an output");
        let table = folder.name(&format!("{run}.csv"));
        let ran = plumb(&["run", &plan, "--allow-commands", "--progress", "never", "-o", &table]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let added = plumb(&["history", "add", &table, "--to", &history]);
        assert_eq!(added.code, Some(0), "{}", added.stderr);
    }
    let trend = plumb(&["trend", &history, "-f", "text", "--fail-on", "regression", "--within", "20"]);
    assert_eq!(trend.code, Some(1), "{}{}", trend.stdout, trend.stderr);
    assert!(trend.stdout.contains("latency transaction_rate is 20 % "), "{}", trend.stdout);
    assert!(trend.stdout.contains("(10 runs)"), "{}", trend.stdout);
}
