//! Every shipped plan runs over loopback, shortened here, and every case measures something.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use runner::plan::{LoadOptions, load};

fn plans() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
    let mut plans: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("plans/ is part of the project")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    plans.sort();
    plans
}

fn path_with_program() -> std::ffi::OsString {
    let program = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().expect("a folder").to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(program).chain(std::env::split_paths(&others))).expect("a path")
}

#[test]
fn every_plan_measures_all_of_its_cases() {
    let mut wrong = String::new();
    for path in plans() {
        let dir = tempfile::tempdir().expect("a directory");
        let rows = dir.path().join("rows.csv");
        let sets = ["warmup=0s", "cooldown=0s", "iterations=1", "interval=10ms", "duration=20ms"];
        let mut options = LoadOptions { sets: sets.map(str::to_owned).to_vec(), ..LoadOptions::default() };
        let name = path.to_str().expect("UTF-8");
        let plan = load(name, &options).unwrap_or_else(|e| panic!("{}", e.render(runner::plan::Format::Human)));
        // The start skew of members depends on the load of other tests.
        let groups: BTreeSet<&str> = plan.cases.iter().filter(|c| c.group.is_some()).map(|c| &*c.test).collect();
        options.sets.extend(groups.iter().map(|g| format!("tests.{g}.concurrent.start.max_skew=10s")));
        let output = Command::new(env!("CARGO_BIN_EXE_plumb"))
            .current_dir(dir.path())
            // Plans may start daemons by the program's name.
            .env("PATH", path_with_program())
            .args(["run", "--progress", "never", "-o"])
            .arg(&rows)
            .args(options.sets.iter().flat_map(|s| ["--set", s]))
            .arg(&path)
            .output()
            .expect("plumb starts");
        let says = String::from_utf8_lossy(&output.stderr);
        let mut good = BTreeSet::new();
        let mut bad = BTreeMap::new();
        for row in csv::Reader::from_path(&rows).expect("a results file").deserialize::<BTreeMap<String, String>>() {
            let row = row.expect("a row");
            if row["error"].starts_with("stop_when: ") {
                // Losses on a busy machine may end an axis early.
                good.insert(row["case_id"].clone());
            } else if ["iteration", "probe"].contains(&row["record"].as_str()) && row["phase"] == "measure" {
                if row["status"] == "ok" {
                    good.insert(row["case_id"].clone());
                } else if row["status"] != "discarded" {
                    bad.insert(row["case"].clone(), row["error"].clone());
                }
            }
        }
        // So short a run may leave a picture nothing to draw. What it must not do is to ask for a picture of things that
        // differ.
        if says.contains("would be ") || says.contains("nothing varies") || says.contains("there is no column") {
            wrong = format!("{wrong}\n--- {name}: a picture cannot be drawn\n{says}");
        }
        let all: BTreeSet<String> = plan.cases.iter().map(|c| c.id.clone()).collect();
        // Other tests may make an assertion fail: that is a verdict, not an error.
        if !matches!(output.status.code(), Some(0 | 1)) || good != all || !bad.is_empty() {
            let missing: Vec<&str> =
                plan.cases.iter().filter(|c| !good.contains(&c.id)).map(|c| c.name.as_str()).collect();
            wrong = format!(
                "{wrong}\n--- {name}: exit {:?}, not measured: {missing:?}, failed: {bad:?}\n{says}",
                output.status.code()
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
