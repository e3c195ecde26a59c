//! `hops`: round trips to the routers of a path, and the link at which the queue stands.

use std::fs;

use crate::{
    netns::Chain,
    program::{Folder, Row, of, parse, plumb},
};

/// Most runs until a queue is found: a machine that holds the programs back long enough leaves too few answers.
const TRIES: u32 = 4;

/// Runs a load to the far end; returns the row of its iteration, and those of the hops.
fn probed(chain: &Chain, hosts: &str) -> (Row, Vec<Row>) {
    let folder = Folder::new();
    let plan = folder
        .plan(hosts, "  up: {workload: tcp_stream, to: far, hops: true, warmup: 300ms, duration: 4s, iterations: 1}");
    let table = folder.name("rows.csv");
    let mut run = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
    let ran = run.args(["run", &plan, "-o", &table, "--progress", "never"]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let rows = parse(&fs::read_to_string(&table).unwrap());
    let row = of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure").unwrap().clone();
    assert!(said.contains(&row["queue_hop_because"]), "{said}");
    draws_them(&folder);
    (row, parse(&fs::read_to_string(folder.name("rows.hops.csv")).unwrap()))
}

/// The picture has each hop that answered, idle and under load, at the table's round trips.
fn draws_them(folder: &Folder) {
    let (points, picture) = (folder.name("points.csv"), folder.name("hops.svg"));
    let ran = plumb(&["plot", "hops", "-o", &picture, "--data", &points, &folder.name("rows.hops.csv")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let drawn = parse(&fs::read_to_string(&points).unwrap());
    for hop in parse(&fs::read_to_string(folder.name("rows.hops.csv")).unwrap()) {
        for (series, column) in [("idle", "idle_us"), ("upload", "loaded_us")] {
            let point = drawn.iter().find(|point| point["series"] == series && point["hop"] == hop["hop"]);
            let at = point.map_or("", |point| &*point["round_trip_us"]);
            assert_eq!(at, hop[column], "{series}: {drawn:?}");
        }
    }
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.contains("Round trip to each hop"), "{svg}");
}

#[test]
fn a_queue_stands_at_the_link_with_the_bucket_over_both_versions_of_ip() {
    let Some(chain) = Chain::new(4) else { return };
    if !chain.limit(1, true, "10mbit") {
        return;
    }
    for v6 in [false, true] {
        let (_daemon, hosts) = chain.serve(v6);
        let mut found = None;
        for _ in 0..TRIES {
            let (row, hops) = probed(&chain, &hosts);
            let addresses: Vec<&str> = hops.iter().map(|hop| &*hop["address"]).collect();
            let expected = if v6 { ["fd71::2", "fd72::2", "fd73::2"] } else { ["10.71.0.2", "10.72.0.2", "10.73.0.2"] };
            assert_eq!(addresses, expected);
            if !row["queue_hop"].is_empty() {
                found = Some(row);
                break;
            }
            eprintln!("{}", row["queue_hop_because"]);
        }
        let row = found.expect("a queue is found");
        assert_eq!((&*row["queue_hop"], &*row["queue_hop_last"]), ("1", "1"), "{}", row["queue_hop_because"]);
        assert_eq!(row["queue_hop_address"], if v6 { "fd71::2" } else { "10.71.0.2" });
    }
}

#[test]
fn a_router_that_never_answers_keeps_its_place() {
    let Some(chain) = Chain::new(4) else { return };
    chain.silence(1);
    let (_daemon, hosts) = chain.serve(false);
    let (_, hops) = probed(&chain, &hosts);
    let answers: Vec<bool> = hops.iter().map(|hop| hop["address"].is_empty()).collect();
    assert_eq!(answers, [true, false, false], "{hops:?}");
    assert_eq!((&*hops[0]["idle_answers"], &*hops[0]["added_us"]), ("0", ""));
}

#[test]
fn hops_are_refused_where_there_are_none() {
    for (test, says) in [
        ("{workload: unix_stream, hops: true, duration: 1s}", "unix has no hops, only IP has"),
        ("{workload: responsiveness, hops: true, duration: 1s}", "`hops` of responsiveness needs one direction"),
    ] {
        let folder = Folder::new();
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {test}"))]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{test}: {:?} {}", ran.code, ran.stderr);
    }
    let ran = plumb(&["measure", "--hops"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--hops goes with a host"), "{}", ran.stderr);
    let ran = plumb(&["measure", "-6", "-t", "2"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("-6 goes with a host"), "{}", ran.stderr);
}
