//! Far ends that a real Slurm starts: one per node.

use crate::{
    fleet::{Fleet, HUB},
    launch::{launch_of, run},
    program::{Folder, Ran, of, rows, until},
};

const PROGRAM: &str = "program: /run/fleet/bin/plumb";

fn cluster(hosts: usize) -> Option<(Fleet, Folder)> {
    Some((Fleet::new(hosts)?.with_slurm()?, Folder::new()))
}

fn no_job_is_left(fleet: &Fleet) {
    until("no job is left", || fleet.read(HUB, &["squeue", "--noheader"]).is_empty());
}

/// Every node is the near end of one test and the far end of another.
fn ring(nodes: usize) -> String {
    let test =
        |i: usize| format!("  t{i}: {{workload: tcp_rr, from: \"h[{i}]\", to: h{}, transactions: 5}}", i % nodes + 1);
    (1..=nodes).map(test).collect::<Vec<_>>().join("\n")
}

fn all_were_measured(folder: &Folder, ran: &Ran, nodes: usize) {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = rows(&folder.path("r.csv"));
    let ok = of(&rows, "iteration").iter().filter(|r| r["status"] == "ok").count();
    assert_eq!(ok, nodes, "{rows:?}");
    for i in 1..=nodes {
        let launch = launch_of(folder, &format!("h{i}"));
        assert_eq!((&launch["engine"], &launch["node"]), (&"slurm".into(), &format!("h{i}").into()), "{launch}");
        assert_eq!(launch["data_address"], format!("10.77.0.{i}"), "{launch}");
    }
}

#[test]
fn four_nodes_are_four_ends_with_the_installed_program_and_with_a_copy() {
    let Some((fleet, folder)) = cluster(4) else { return };
    for way in [PROGRAM, "copy: true"] {
        let ran = run(&fleet, &folder, &format!("{{h: {{launch: {{slurm: {{nodes: 4, {way}}}}}}}}}"), &ring(4));
        all_were_measured(&folder, &ran, 4);
        no_job_is_left(&fleet);
    }
}

#[test]
fn sixteen_nodes_are_sixteen_ends() {
    let Some((fleet, folder)) = cluster(16) else { return };
    let ran = run(&fleet, &folder, &format!("{{h: {{launch: {{slurm: {{nodes: 16, {PROGRAM}}}}}}}}}"), &ring(16));
    all_were_measured(&folder, &ran, 16);
    no_job_is_left(&fleet);
}

#[test]
fn inside_an_allocation_its_nodes_are_the_hosts_and_nothing_is_allocated() {
    let Some((fleet, folder)) = cluster(3) else { return };
    // Without `nodes`, those of the allocation.
    let plan = folder.plan(&format!("hosts: {{h: {{launch: {{slurm: {{{PROGRAM}}}}}}}}}"), &ring(2));
    let run = ["/run/fleet/bin/plumb", "run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"];
    let script = "\"$@\"; code=$?; squeue --noheader --format %i | wc -l; exit $code";
    let ran = fleet.run(HUB, &[&["salloc", "--quiet", "-N2", "sh", "-c", script, "sh"], &run[..]].concat());
    all_were_measured(&folder, &ran, 2);
    assert!(ran.stdout.ends_with("1\n"), "only its own job is there: {}", ran.stdout);
    no_job_is_left(&fleet);
}

#[test]
fn an_allocation_that_is_cancelled_in_the_middle_is_the_runs_error() {
    let Some((fleet, folder)) = cluster(2) else { return };
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    let sent = fleet.sent_bytes("h1");
    std::thread::scope(|scope| {
        let cancel = || {
            until("the load runs", || fleet.sent_bytes("h1") > sent + 5_000_000);
            fleet.read(HUB, &["scancel", "--user=root"]);
        };
        scope.spawn(cancel);
        let test = "  bulk: {workload: tcp_stream, from: h1, to: h2, rate: 200Mbit/s, duration: 60s}";
        let ran = run(&fleet, &folder, &format!("{{h: {{launch: {{slurm: {{nodes: 2, {PROGRAM}}}}}}}}}"), test);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains("srun ended") && ran.stderr.contains("CANCELLED"), "{}", ran.stderr);
    });
    no_job_is_left(&fleet);
    fleet.await_clean("after scancel", &hosts, &before, &[]);
}

#[test]
fn an_allocation_that_cannot_be_or_does_not_come_is_given_up() {
    let Some((fleet, folder)) = cluster(2) else { return };
    let fails = |slurm: &str, words: &[&str]| {
        let ran = run(&fleet, &folder, &format!("{{h: {{launch: {{slurm: {{{slurm}, {PROGRAM}}}}}}}}}"), &ring(2));
        assert_eq!(ran.code, Some(3), "{slurm}: {}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "{slurm}: {word}: {}", ran.stderr);
        }
    };
    fails("nodes: 2, args: [-p, nosuch]", &["hosts h[1-2]", "Invalid partition name", "check `nodes` and `args`"]);
    // A cluster that is too small queues the job: it may grow. Only a plan that says how long waits for that.
    fails(
        "nodes: 3",
        &["hosts h[1-3]", "Requested partition configuration not available", "the partition lacks such nodes"],
    );
    no_job_is_left(&fleet);
    fails(
        "nodes: 3, wait: 2s",
        &["missing: h[1-3]", "queued and waiting for resources", "the partition lacks such nodes"],
    );
    no_job_is_left(&fleet);
    fails("nodes: 2, args: [--begin=now+1hour], wait: 2s", &["queued and waiting for resources", "raise `wait`"]);
    no_job_is_left(&fleet);
    // Inside an allocation that is smaller than the plan.
    let plan =
        folder.plan(&format!("hosts: {{h: {{launch: {{slurm: {{nodes: 2, wait: 5s, {PROGRAM}}}}}}}}}"), &ring(2));
    let ran =
        fleet.run(HUB, &["salloc", "--quiet", "-N1", "/run/fleet/bin/plumb", "run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("hosts h[1-2]"), "{}", ran.stderr);
    no_job_is_left(&fleet);
}
