//! `plumb why` over a path whose limit is made on purpose: what it says of the cause, and of a change that does nothing.

use std::{fs, process::Stdio};

use crate::{
    netns::Pair,
    program::{Folder, Row, parse},
};

/// The rows about a test over the data link.
fn asked(pair: &Pair, body: &str) -> Vec<Row> {
    let (_far, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = folder.name("why.yaml");
    let keys = "to: far, warmup: 500ms, duration: 800ms, iterations: 3";
    fs::write(&plan, format!("version: 1\nname: why\n{hosts}\ntests:\n  it: {{{keys}, {body}}}\n")).unwrap();
    let mut why = pair.near.command(env!("CARGO_BIN_EXE_plumb"));
    let ran = why.args(["why", &plan, "-f", "csv", "--progress", "never"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    eprintln!("{text}{}", String::from_utf8_lossy(&ran.stderr));
    parse(&text)
}

/// Cause, setting and verdict of each row.
fn said(rows: &[Row]) -> Vec<[&str; 3]> {
    rows.iter().map(|row| ["why_cause", "why_setting", "why_verdict"].map(|column| &*row[column])).collect()
}

#[test]
fn a_full_link_carries_no_more_with_more_streams() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "20ms") {
        return;
    }
    for cause in ["path", "wire"] {
        let wire = if cause == "wire" { "wire: 50Mbit/s, " } else { "" };
        let rows = asked(&pair, &format!("{wire}workload: tcp_stream, socket: {{congestion_control: cubic}}"));
        // The wire is told where all it carries arrives within the window.
        let is_it = |row: &[&str; 3]| [cause, "path"].contains(&row[0]) && row[1..] == ["streams", "confirmed"];
        assert!(rows.len() == 2 && said(&rows).iter().all(is_it), "{:?}", said(&rows));
    }
}

#[test]
fn twice_the_rate_is_twice_as_much_until_the_link_is_full() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "50ms") {
        return;
    }
    // Of twice the rate the link carries two thirds more.
    let rows = asked(&pair, "workload: tcp_stream, rate: 28Mbit/s, socket: {congestion_control: cubic}");
    assert_eq!(said(&rows)[0], ["pacing", "rate", "confirmed"]);
    let gain: f64 = rows[0]["why_change_ratio"].parse().unwrap();
    assert!((gain - (47.8 / 28.0 - 1.0)).abs() < 0.05, "{gain}");
    // The next limit is asked about, where it is known.
    let next = ["path", "streams", "confirmed"];
    assert!(said(&rows)[1..].iter().all(|row| *row == next), "{:?}", said(&rows));
}

#[test]
fn datagrams_below_what_arrives_are_not_lost() {
    let Some(pair) = Pair::new() else { return };
    // Shorter than the sender's socket buffer, which would hold it back.
    if !pair.limit("50mbit", "4ms") {
        return;
    }
    let rows = asked(&pair, "workload: udp_stream, rate: 60Mbit/s, message_size: 1400");
    assert_eq!(said(&rows)[0][1..], ["rate", "confirmed"], "{:?}", said(&rows));
    assert_eq!(rows[0]["why_metric"], "loss_ratio");
}
