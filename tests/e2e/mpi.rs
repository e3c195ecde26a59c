//! Tests over MPI: real launchers of both families start the ranks on hosts of their own, and the hosts' links witness what
//! crossed them.

use std::{fs, thread};

use serde_json::Value;

use crate::{
    fleet::{Fleet, HUB, MPICH, OPEN_MPI},
    launch::run,
    program::{Folder, Ran, count, of, rows, until},
};

fn with_mpi() -> Option<(Fleet, Folder)> {
    Some((Fleet::new(2)?.with_mpi()?, Folder::new()))
}

/// MPICH on these hosts with its messages on the network: without this it finds shared memory across namespaces.
fn mpich_over_tcp() -> String {
    format!("{MPICH} -genv UCX_TLS tcp,self")
}

/// The ranks h1 and h2 of a launcher.
fn ranks(launcher: &str, more: &str) -> String {
    let words: Vec<_> = launcher.split(' ').chain(["-n", "2"]).map(|word| format!("\"{word}\"")).collect();
    format!("{{h: {{launch: {{mpi: {{run: [{}], program: /run/fleet/bin/plumb{more}}}}}}}}}", words.join(", "))
}

/// Runs tests between rank 0 (h1) and rank 1 (h2).
fn between(fleet: &Fleet, folder: &Folder, launcher: &str, tests: &[(&str, &str)]) -> Ran {
    let lines: Vec<_> = tests.iter().map(|(name, test)| format!("  {name}: {{from: h1, to: h2, {test}}}")).collect();
    run(fleet, folder, &ranks(launcher, ""), &lines.join("\n"))
}

fn rank_of(folder: &Folder, host: &str) -> Value {
    let record: Value = serde_json::from_slice(&fs::read(folder.path("r.run.json")).unwrap()).unwrap();
    record["hosts"][host]["mpi"].clone()
}

/// Both directions, both io methods, windows, several flows on one thread, latencies: all bytes are checked, and all of them
/// cross the link.
fn patterns_run(launcher: &str, family: &str) {
    let Some((fleet, folder)) = with_mpi() else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    let sent = fleet.sent_bytes("h1");
    let tests = [
        ("stream", "workload: mpi_stream, bytes: 20MB, integrity: true, interval: 50ms"),
        ("window", "workload: mpi_stream, bytes: 5MB, message_size: 8KiB, inflight: 16, integrity: true"),
        ("back", "workload: mpi_maerts, bytes: 5MB, integrity: true, buffers: {ring: 3}, remote_buffers: {ring: 3}"),
        ("exchange", "workload: mpi_duplex, bytes: 5MB, integrity: true"),
        ("several", "workload: mpi_stream, bytes: 1MB, streams: 3, direction: bidirectional, integrity: true"),
        ("paced", "workload: mpi_stream, bytes: 40KiB, message_size: 1KiB, rate: 200/s, integrity: true"),
        ("rr", "workload: mpi_rr, transactions: 50, warmup: 50ms, integrity: true"),
        ("offered", "workload: mpi_rr, transactions: 20, rate: 100/s, arrival: poisson, integrity: true"),
        ("deep", "workload: mpi_rr, transactions: 500, inflight: 8, integrity: true"),
        ("pingpong", "workload: mpi_pingpong, message_size: 64KiB, transactions: 20, integrity: true"),
        ("probing", "workload: mpi_pingpong, message_size: 64KiB, transactions: 20, io: nonblocking"),
    ];
    let ran = between(&fleet, &folder, launcher, &tests);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let measured = of(&rows, "iteration");
    for (test, _) in tests {
        let row = measured.iter().find(|row| row["test"] == test).unwrap_or_else(|| panic!("{test}: {rows:?}"));
        assert_eq!(row["status"], "ok", "{test}: {row:?}");
        assert!(count(row, "bytes_received") > 0, "{test}: {row:?}");
        let library = rank_of(&folder, "h1")["library"].clone();
        assert_eq!(library, row["library"], "{test}");
    }
    let arrived =
        |test: &str| count(measured.iter().find(|row| row["test"] == test).expect("its row"), "bytes_received");
    assert_eq!([arrived("stream"), arrived("window")], [20_000_000, 5_000_000]);
    assert_eq!(measured.iter().find(|row| row["test"] == "window").unwrap()["io"], "nonblocking");
    assert!(fleet.sent_bytes("h1") - sent > 25_000_000, "the link carried all of it");
    for (host, number) in [("h1", 0), ("h2", 1)] {
        let rank = rank_of(&folder, host);
        assert_eq!(
            (&rank["family"], &rank["rank"], &rank["size"]),
            (&family.into(), &number.into(), &2.into()),
            "{rank}"
        );
        assert!(rank["library"].as_str().unwrap().contains("MPI"), "{rank}");
        assert!(!rank["settings"].as_object().unwrap().is_empty(), "{rank}");
    }
    fleet.await_clean("after a run", &hosts, &before, &[]);
}

#[test]
fn patterns_run_over_open_mpi() {
    patterns_run(OPEN_MPI, "open_mpi");
}

#[test]
fn patterns_run_over_mpich() {
    patterns_run(&mpich_over_tcp(), "mpich");
}

/// The counters of the link tell when the library has chosen another way.
#[test]
fn shared_memory_leaves_the_link_alone() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let sent = fleet.sent_bytes("h1");
    let ran = between(&fleet, &folder, MPICH, &[("bulk", "workload: mpi_stream, bytes: 50MB, integrity: true")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let crossed = fleet.sent_bytes("h1") - sent;
    assert!(crossed < 25_000_000, "{crossed} bytes crossed the link");
}

/// Operations of all ranks by the library, with every number checked, a group in another order than the world, and a kernel.
fn ranks_talk_by_the_library(launcher: &str) {
    let Some((fleet, folder)) = with_mpi() else { return };
    let sent = fleet.sent_bytes("h1");
    let all = "barrier, bcast, reduce, allreduce, gather, scatter, allgather, alltoall, alltoallv, reduce_scatter, ring, halo3d, \
               butterfly, wavefront";
    let tests = format!(
        "  each: {{workload: mpi_collective, ranks: \"h[1-2]\", transactions: 10, integrity: true, message_size: 800, matrix: \
         {{operation: [{all}]}}}}\n  \
         turned: {{workload: mpi_collective, ranks: [h2, h1], transactions: 10, integrity: true, operation: bcast}}\n  \
         kernel: {{workload: mpi_nas_is, ranks: \"h[1-2]\", class: S}}"
    );
    let ran = run(&fleet, &folder, &ranks(launcher, ""), &tests);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let measured = of(&rows, "iteration");
    assert!(measured.iter().all(|row| row["status"] == "ok"), "{rows:?}");
    assert!(measured.iter().all(|row| row["library"].contains("MPI")), "{rows:?}");
    let by_library = measured.iter().filter(|row| row["algorithm"] == "library").count();
    assert_eq!((measured.len(), by_library), (16, 11), "all but the patterns and the kernel: {rows:?}");
    assert!(fleet.sent_bytes("h1") > sent + 500_000, "half of the kernel's keys crossed the link, ten times");
}

#[test]
fn ranks_talk_by_open_mpi() {
    ranks_talk_by_the_library(OPEN_MPI);
}

#[test]
fn ranks_talk_by_mpich() {
    ranks_talk_by_the_library(&mpich_over_tcp());
}

/// Under Slurm its own launcher starts the ranks.
#[test]
fn srun_starts_ranks_of_mpich() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let Some(fleet) = fleet.with_slurm() else { return };
    let sent = fleet.sent_bytes("h1");
    let launcher = "env UCX_TLS=tcp,self srun --mpi=pmi2 --ntasks-per-node=1";
    let ran = between(&fleet, &folder, launcher, &[("bulk", "workload: mpi_stream, bytes: 5MB, integrity: true")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fleet.sent_bytes("h1") - sent > 5_000_000);
}

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
}

#[test]
fn a_library_that_is_not_the_launchers_is_named() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    let test = "  t: {workload: mpi_rr, from: h1, to: h2, transactions: 5}";
    let with =
        |launcher: &str, library: &str| run(&fleet, &folder, &ranks(launcher, &format!(", library: {library}")), test);
    // Each rank would believe to be rank 0 of 1.
    let ran = with(MPICH, "libmpi.so.40");
    refused(
        &ran,
        &["rank 0 on h1", "libmpi.so.40 (Open MPI v", "knows of 1 ranks", "has started 2", "launch.mpi.library"],
    );
    let ran = with(OPEN_MPI, "libmpich.so.12");
    refused(&ran, &["rank 1 on h2", "libmpich.so.12 (MPICH Version: ", "knows of 1 ranks", "has started 2"]);
    let ran = with(OPEN_MPI, "/nonexistent/libmpi.so");
    refused(&ran, &["rank ", "/nonexistent/libmpi.so", "launch.mpi.library"]);
    let ran = with(OPEN_MPI, "libc.so.6");
    refused(&ran, &["libc.so.6 has no MPI_Init_thread: it is no MPI library"]);
    // After such an end of the ranks, Open MPI's own daemons leave an empty folder.
    until("its daemons have ended", || fleet.run(HUB, &["pgrep", "orted"]).code != Some(0));
    for host in ["h1", "h2"] {
        fleet.read(host, &["sh", "-c", "rm -rf /tmp/ompi.*"]);
    }
    fleet.await_clean("after refusals", &hosts, &before, &[]);
}

#[test]
fn launchers_that_refuse_are_quoted_with_the_remedy() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let test = "  t: {workload: mpi_rr, from: h1, to: h2, transactions: 5}";
    let too_many = ranks(OPEN_MPI, "").replace("\"-n\", \"2\"", "\"-n\", \"5\"");
    let ran = run(&fleet, &folder, &too_many, test);
    refused(&ran, &["not enough slots", "--oversubscribe"]);
    let ran = run(&fleet, &folder, &ranks(&OPEN_MPI.replace(" --allow-run-as-root", ""), ""), test);
    refused(&ran, &["run as root", "add --allow-run-as-root", "OMPI_ALLOW_RUN_AS_ROOT=1"]);
}

#[test]
fn ends_that_are_no_ranks_are_refused() {
    let Some((fleet, folder)) = with_mpi() else { return };
    let ran = run(&fleet, &folder, &ranks(OPEN_MPI, ""), "  t: {workload: mpi_rr, to: h2, transactions: 5}");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("a test over MPI is between ranks, and `local` in `from` is none"), "{}", ran.stderr);
    let both = "  both: {duration: 300ms, concurrent: {members: {a: {workload: mpi_rr, from: h1, to: h2}, \
                b: {workload: mpi_rr, from: h2, to: h1}}}}\n  after: {workload: mpi_rr, from: h1, to: h2, transactions: 5}";
    let ran = run(&fleet, &folder, &ranks(OPEN_MPI, ""), both);
    refused(&ran, &["busy with another test over MPI"]);
    let rows = rows(&folder.path("r.csv"));
    let after = of(&rows, "iteration").into_iter().find(|row| row["test"] == "after").expect("its row");
    assert_eq!(after["status"], "ok", "the ranks are free again: {rows:?}");
}

/// The rows before it are kept, the error names the host, and no process is left.
fn a_rank_dies(launcher: &str) {
    let Some((fleet, folder)) = with_mpi() else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    let (plan, sent) = (
        folder.plan(
            &format!("hosts: {}", ranks(launcher, "")),
            "  first: {workload: mpi_rr, from: h1, to: h2, transactions: 5}\n  \
             second: {workload: mpi_stream, from: h1, to: h2, duration: 60s}",
        ),
        fleet.sent_bytes("h1"),
    );
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            until("the load runs", || fleet.sent_bytes("h1") > sent + 30_000_000);
            let record: Value = serde_json::from_slice(&fs::read(folder.path("r.run.json")).unwrap()).unwrap();
            let pid = record["hosts"]["h2"]["launch"]["pid"].as_i64().expect("its process");
            // Its number is that of the fleet's own processes.
            fleet.read(HUB, &["kill", "-KILL", &pid.to_string()]);
        });
        fleet.plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"])
    });
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("h2") || ran.stderr.contains("h1"), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let status = |test: &str| {
        of(&rows, "iteration").into_iter().find(|row| row["test"] == test).map(|row| row["status"].clone())
    };
    assert_eq!(status("first").as_deref(), Some("ok"), "{rows:?}");
    assert_ne!(status("second").as_deref(), Some("ok"), "{rows:?}");
    fleet.await_clean("after a death", &hosts, &before, &[]);
}

#[test]
fn a_rank_of_open_mpi_that_dies_ends_the_test_and_leaves_nothing() {
    a_rank_dies(OPEN_MPI);
}

#[test]
fn a_rank_of_mpich_that_dies_ends_the_test_and_leaves_nothing() {
    a_rank_dies(&mpich_over_tcp());
}
