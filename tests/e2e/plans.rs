//! Every shipped plan runs over loopback, shortened here, and every case measures something.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use runner::plan::{LoadOptions, load};

use crate::{
    fleet::{Fleet, MPICH, OPEN_MPI},
    needs::skip,
    program::{Folder, of, privileged, rows},
};

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

/// A test for each plan that measures over loopback, with the name of its file.
macro_rules! measured {
    ($($plan:ident)*) => {
        $(#[test] fn $plan() { measures_all_of_its_cases(stringify!($plan)); })*

        #[test]
        fn every_plan_has_a_test() {
            // Its launcher takes the user's word to run as root: it has a test of its own.
            let mut tested = vec!["mpi.yaml".to_owned()];
            tested.extend([$(stringify!($plan)),*].map(|plan| format!("{}.yaml", plan.replace('_', "-"))));
            tested.sort();
            let all: Vec<_> = plans().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
            assert_eq!(tested, all);
        }
    };
}

measured! {
    aggregate burst cpu_cost encrypted fabric fast_paths find_rate hpcbench_tcp hpcbench_udp lmbench message_size nas
    netperf_classics netpipe path quick responsiveness soak udp_loss
}

fn measures_all_of_its_cases(plan: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../plans/{}.yaml", plan.replace('_', "-")));
    let dir = tempfile::tempdir().expect("a directory");
    let rows = dir.path().join("rows.csv");
    let sets = ["warmup=0s", "cooldown=0s", "iterations=1", "interval=10ms", "duration=20ms"];
    let mut options = LoadOptions { sets: sets.map(str::to_owned).to_vec(), ..LoadOptions::default() };
    let plan = load(path.to_str().expect("UTF-8"), &options)
        .unwrap_or_else(|e| panic!("{}", e.render(runner::plan::Format::Human)));
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
    if let Some(why) = privileged(&says) {
        return skip(why);
    }
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
    // So short a run may leave a picture nothing to draw. What it must not do is to ask for a picture of things that differ.
    for fault in ["would be ", "nothing varies", "there is no column"] {
        assert!(!says.contains(fault), "a picture cannot be drawn\n{says}");
    }
    let all: BTreeSet<String> = plan.cases.iter().map(|c| c.id.clone()).collect();
    // Other tests may make an assertion fail: that is a verdict, not an error.
    assert!(matches!(output.status.code(), Some(0 | 1)), "exit {:?}, failed: {bad:?}\n{says}", output.status.code());
    let missing: Vec<&str> = plan.cases.iter().filter(|c| !good.contains(&c.id)).map(|c| c.name.as_str()).collect();
    assert!(good == all && bad.is_empty(), "not measured: {missing:?}, failed: {bad:?}\n{says}");
}

/// The plan for MPI by both libraries, and what the documentation does with the two tables.
#[test]
fn the_plan_for_mpi_compares_two_libraries_with_tcp() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_mpi) else { return };
    let folder = Folder::new();
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../plans/mpi.yaml");
    let mpich = format!("{MPICH} -genv UCX_TLS tcp,self");
    for (name, launcher) in [("open-mpi", OPEN_MPI), ("mpich", &*mpich)] {
        let words: Vec<_> = launcher.split(' ').chain(["-n", "2"]).map(|word| format!("\"{word}\"")).collect();
        let launcher = format!("hosts.rank.launch.mpi.run=[{}]", words.join(", "));
        let file = folder.name(&format!("{name}.csv"));
        // By counts: while other tests have the CPUs, two ranks that poll may do nothing for as long as a measurement lasts.
        let sets = [
            "hosts.rank.launch.mpi.program=/run/fleet/bin/plumb",
            "tests.pingpong.matrix.message_size=[1, 64KiB]",
            "tests.pingpong.duration=~",
            "tests.pingpong.transactions=10",
            "tests.sleeping.matrix.message_size=[1, 64KiB]",
            "tests.sleeping.duration=~",
            "tests.sleeping.transactions=10",
            "tests.stream.matrix.message_size=[8KiB, 1MiB]",
            "tests.stream.duration=~",
            "tests.stream.bytes=4MiB",
            "iterations=2",
            "warmup=0s",
            &launcher,
        ];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let ran = fleet.plumb(&[&["run", plan, "-o", &file, "--progress", "never"], &sets[..]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(!ran.stderr.contains("warning: the picture"), "{}", ran.stderr);
        let rows = rows(&folder.path(&format!("{name}.csv")));
        let measured = of(&rows, "iteration");
        assert_eq!(measured.len(), 20, "{rows:?}");
        for row in measured {
            assert_eq!(row["status"], "ok", "{row:?}");
            let library =
                if row["transport"] == "mpi" { ["Open MPI", "MPICH"][usize::from(name == "mpich")] } else { "" };
            assert!(row["library"].starts_with(library) && row["library"].is_empty() == library.is_empty(), "{row:?}");
        }
        for picture in ["latency", "throughput", "stream"] {
            let drawn = std::fs::read_to_string(folder.path(&format!("{name}.mpi-{picture}.svg"))).expect("a picture");
            assert!(drawn.contains("tcp_") && drawn.contains("mpi_"), "{picture}: both curves");
        }
    }
    let page = include_str!("../../docs/guide/clusters.md");
    let commands = page.lines().filter(|line| line.starts_with("plumb ") && line.contains("open-mpi.csv mpich.csv"));
    let commands: Vec<_> = commands.collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        let line = format!("cd {} && {command}", folder.name(""));
        let output =
            Command::new("sh").args(["-c", &line]).env("PATH", path_with_program()).output().expect("sh starts");
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !says.contains("error"), "{command}: {says}");
    }
}
