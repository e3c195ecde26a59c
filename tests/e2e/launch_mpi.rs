//! Far ends that real MPI launchers start: one per rank.

use crate::{
    fleet::{Fleet, MPICH, OPEN_MPI},
    launch::{launch_of, run},
    program::{Folder, Ran, count, of, rows},
};

fn with_mpi() -> Option<(Fleet, Folder)> {
    Some((Fleet::new(2)?.with_mpi()?, Folder::new()))
}

/// Runs a test from rank 0 to rank 1.
fn from_rank_to_rank(fleet: &Fleet, folder: &Folder, launcher: &str, more: &str) -> Ran {
    let words: Vec<_> = launcher.split(' ').chain(["-np", "2"]).map(|word| format!("\"{word}\"")).collect();
    let hosts = format!("{{h: {{launch: {{mpi: {{run: [{}], {more}}}}}}}}}", words.join(", "));
    run(fleet, folder, &hosts, "  bulk: {workload: tcp_stream, from: h1, to: h2, bytes: 5MB}")
}

/// In each way to have the program there, the data cross the link, and nothing is left.
fn ranks_are_ends(launcher: &str, ways: &[&str]) {
    let Some((fleet, folder)) = with_mpi() else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    for way in ways {
        let sent = fleet.sent_bytes("h1");
        let ran = from_rank_to_rank(&fleet, &folder, launcher, way);
        assert_eq!(ran.code, Some(0), "{way}: {}", ran.stderr);
        let rows = rows(&folder.path("r.csv"));
        let arrived = count(of(&rows, "iteration")[0], "bytes_received");
        assert!(arrived > 0 && fleet.sent_bytes("h1") - sent > arrived, "{way}: {rows:?}");
        for (host, address) in [("h1", "10.77.0.1"), ("h2", "10.77.0.2")] {
            let launch = launch_of(&folder, host);
            assert_eq!((&launch["engine"], &launch["data_address"]), (&"mpi".into(), &address.into()), "{launch}");
        }
        fleet.await_clean(way, &hosts, &before, &[]);
    }
}

#[test]
fn ranks_of_open_mpi_are_ends() {
    ranks_are_ends(OPEN_MPI, &["program: /run/fleet/bin/plumb", "copy: true"]);
}

/// It gives its standard input to one rank only: the daemons make keys of their own.
#[test]
fn ranks_of_mpich_are_ends() {
    ranks_are_ends(MPICH, &["program: /run/fleet/bin/plumb"]);
}

#[test]
fn a_launcher_that_fails_is_quoted() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let ran = from_rank_to_rank(&fleet, &folder, OPEN_MPI, "program: /nonexistent/plumb");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in ["hosts h[1-2]", "mpirun.openmpi ended", "/nonexistent/plumb"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}
