//! `plumb fit --to netem` over a path whose rate and queue are made on purpose.

use std::{fs, process::Stdio};

use crate::{
    netns::Pair,
    program::{Folder, parse},
};

#[test]
fn a_bucket_gets_its_rate_and_its_queue_back() {
    let Some(pair) = Pair::new() else { return };
    // tbf's queue holds what 20 ms carry, and its burst: 50 kB and 16 KiB.
    if !pair.limit("20mbit", "20ms") || !pair.far.limit("20mbit", "20ms") {
        return;
    }
    let (_far, hosts) = pair.serve();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../plans/path.yaml");
    let text = fs::read_to_string(shipped).unwrap().replacen("\nvars:\n", &format!("\n{hosts}\nvars:\n"), 1);
    let folder = Folder::new();
    let [plan, results, lab] = ["path.yaml", "path.csv", "lab"].map(|name| folder.name(name));
    fs::write(&plan, text).unwrap();
    let set = ["--set", "to=far", "--set", "vars.flood=26Mbit/s", "--set", "iterations=3", "--progress", "never"];
    let mut run = pair.near.command(env!("CARGO_BIN_EXE_plumb"));
    let ran = run.args(["run", &plan, "-o", &results]).args(set).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let mut fit = pair.near.command(env!("CARGO_BIN_EXE_plumb"));
    let fitted = fit.args(["fit", "--to", "netem", &results, "-o", &lab, "-f", "csv"]).output().unwrap();
    let table = String::from_utf8_lossy(&fitted.stdout).into_owned();
    eprintln!("{table}{}", String::from_utf8_lossy(&fitted.stderr));
    let rows = parse(&table);
    for (direction, quantity, truth, within) in [
        ("upload", "rate_bits_per_s", 20e6, 0.02),
        ("download", "rate_bits_per_s", 20e6, 0.02),
        ("upload", "queue_bytes", 66_384.0, 0.15),
        ("download", "queue_bytes", 66_384.0, 0.15),
    ] {
        let row = rows.iter().find(|row| row["direction"] == direction && row["quantity"] == quantity);
        let value: f64 = row.expect(quantity)["value"].parse().unwrap();
        assert!((value / truth - 1.0).abs() < within, "{direction} {quantity}: {value}, not {truth}");
    }
}
