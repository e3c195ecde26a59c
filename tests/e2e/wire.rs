//! The payload that a wire can carry: `plumb fit --wire` for any table and for none, and the rows of a path with a known speed.

use std::process::Stdio;

use crate::{
    netns::Pair,
    program::{Folder, Ran, Row, command, count, despite_stalls, number, of, parse, plumb},
};

/// A filter without a table: standard input is no pipe.
fn ceiling(arguments: &str) -> Vec<Row> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let ran: Ran = command(&arguments).stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(ran.code, Some(0), "{arguments:?}\n{}{}", ran.stdout, ran.stderr);
    parse(&ran.stdout)
}

#[test]
fn a_wire_has_a_ceiling_without_any_table() {
    for (arguments, payload, wire) in [
        ("", 1448, 1538),
        (" --no-timestamps", 1460, 1538),
        (" --headers tcp6", 1428, 1538),
        (" --vlan", 1448, 1542),
        (" --vlan --vlan", 1448, 1546),
        (" --headers udp4", 1472, 1538),
        (" --headers udp6 --mtu 9000", 8952, 9038),
    ] {
        let rows = ceiling(&format!("fit --wire 100Mbit/s{arguments}"));
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((count(row, "payload_bytes"), count(row, "wire_bytes")), (payload, wire), "{arguments}");
        let rate = 1e8 * payload as f64 / wire as f64;
        assert!((number(row, "wire_goodput_bits_per_s") - rate).abs() < 1.0, "{arguments}: {row:?}");
    }
    let rows = ceiling("fit --wire 1Gbit/s --headers udp4 --message-size 18,1472,1473");
    let wire: Vec<u64> = rows.iter().map(|row| count(row, "wire_bytes")).collect();
    assert_eq!(wire, [84, 1538, 1538 + 84], "the last one leaves in two fragments");
    let text: Ran =
        command(&["fit", "--wire", "100Mbit/s", "-f", "text"]).stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(text.stdout, "94.1 Mbit/s of payload: 1448 of each 1538 bytes on the wire, 94.15 %\n");
    for (arguments, says) in [
        ("--mtu 40", "an MTU of 40 bytes leaves no room beside the headers"),
        ("--message-size 100", "TCP fills its segments: name --headers udp4 or udp6"),
    ] {
        let arguments: Vec<&str> = ["fit", "--wire", "1Gbit/s"].into_iter().chain(arguments.split(' ')).collect();
        let ran: Ran = command(&arguments).stdin(Stdio::null()).output().unwrap().into();
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{arguments:?}: {:?} {}", ran.code, ran.stderr);
    }
}

/// The example of the source documents: 93.4 of at most 94.1 Mbit/s on Fast Ethernet. No size is swept, nor even known.
#[test]
fn fast_ethernet_of_the_source_documents() {
    let folder = Folder::new();
    let table = folder.name("bulk.csv");
    std::fs::write(&table, "test,throughput_bits_per_s\nbulk,93400000\n").unwrap();
    for option in ["--wire", "--link"] {
        let ran = plumb(&["fit", option, "100Mbit/s", &table]);
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{}", ran.stderr);
        let rows = parse(&ran.stdout);
        assert!((number(&rows[0], "wire_goodput_bits_per_s") - 94_148_244.0).abs() < 1.0, "{rows:?}");
        assert!((number(&rows[0], "wire_ratio") - 0.99205).abs() < 0.00001, "{rows:?}");
    }
    let text = plumb(&["fit", "--wire", "100Mbit/s", "-f", "text", &table]);
    assert_eq!(text.stdout, "99.2 % of the wire's 94.1 Mbit/s\n");
    // The headers follow the rows: a datagram of 18 bytes takes 84 on the wire.
    std::fs::write(
        &table,
        "test,transport,message_bytes,throughput_bits_per_s\na,udp,18,10000000\na,tcp,18,10000000\n",
    )
    .unwrap();
    let rows = parse(&plumb(&["fit", "--wire", "100Mbit/s", "-g", "transport", &table]).stdout);
    let ratios: Vec<f64> = rows.iter().map(|row| number(row, "wire_ratio")).collect();
    assert!((ratios[0] - 84.0 / 180.0).abs() < 1e-6 && (ratios[1] - 0.106_215).abs() < 1e-6, "{ratios:?}");
}

const RATE: f64 = 10e6;

/// Bits that a token bucket allows beyond its rate.
const BURST: f64 = 16.0 * 1024.0 * 8.0;

#[test]
fn rows_of_a_shaped_link_are_near_its_ceiling_and_never_above() {
    despite_stalls(compares_with_a_shaper);
}

/// The token bucket counts frames without preamble, check sequence and gap, so its link is faster by that.
fn compares_with_a_shaper() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("10mbit", "100ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    for (test, packets) in [
        ("workload: tcp_stream, bytes: 2500kB, socket: {congestion_control: cubic}", None),
        ("workload: udp_stream, message_size: 1472, rate: 12Mbit/s, duration: 2s", Some((1472, vec![1500]))),
        ("workload: udp_stream, message_size: 200, rate: 12Mbit/s, duration: 2s", Some((200, vec![228]))),
        (
            "workload: udp_stream, message_size: 4000, rate: 12Mbit/s, duration: 2s",
            Some((4000, vec![1500, 1500, 1068])),
        ),
    ] {
        let folder = Folder::new();
        let body = format!("  it: {{{test}, to: far, wire: 10Mbit/s}}");
        let plan = folder.plan(&hosts, &body);
        let before = pair.far.interface("data").received_bytes;
        let ran: Ran = pair
            .near
            .command(env!("CARGO_BIN_EXE_plumb"))
            .args(["run", "--progress", "never", &plan])
            .output()
            .unwrap()
            .into();
        assert_eq!(ran.code, Some(0), "{body}\n{}{}", ran.stdout, ran.stderr);
        let arrived = pair.far.interface("data").received_bytes - before;
        let rows = parse(&ran.stdout);
        let row = of(&rows, "iteration")[0];
        let (payload, packets) = packets.unwrap_or_else(|| {
            let mss = count(row, "mss_bytes");
            // Of a link with an MTU of 1500: timestamps or none.
            assert!([1448, 1460].contains(&mss), "{row:?}");
            (mss, vec![1500])
        });
        let shaped: u64 = packets.iter().map(|packet| packet + 14).sum();
        let wire: u64 = packets.iter().map(|packet| packet + 38).sum();
        let beyond = 1.0 + BURST / (RATE * number(row, "elapsed_s"));
        let ratio = number(row, "wire_ratio");
        let shaped_ratio = ratio * shaped as f64 / wire as f64;
        assert!((0.95..=beyond).contains(&shaped_ratio), "{test}: {shaped_ratio} of what the bucket lets pass");
        let expected = number(row, "throughput_bits_per_s") / (RATE * payload as f64 / wire as f64);
        assert!((ratio - expected).abs() < 1e-9 && (number(row, "wire_bits_per_s") - RATE).abs() < 1.0, "{row:?}");
        // The interface counts what the bucket counts. It also sees the first and last packets, and what was lost or
        // came after the window.
        let counted = arrived as f64 * 8.0 / (number(row, "bytes_received") * 8.0 * shaped as f64 / payload as f64);
        assert!((0.99..1.1).contains(&counted), "{test}: the interface counted {counted} times as much");
        let summary = of(&rows, "summary")[0];
        assert_eq!(
            [&row["wire_ratio"], &row["wire_bits_per_s"]],
            [&summary["wire_ratio"], &summary["wire_bits_per_s"]]
        );
    }
}

/// A link of two namespaces says 10 Gbit/s, and loopback nothing; neither is a wire.
#[test]
fn a_virtual_link_is_no_wire() {
    let Some(pair) = Pair::new() else { return };
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = folder.plan(
        &hosts,
        "  link: {workload: tcp_stream, to: far, bytes: 1MB}\n  loop: {workload: tcp_stream, bytes: 1MB}",
    );
    let ran: Ran = pair
        .near
        .command(env!("CARGO_BIN_EXE_plumb"))
        .args(["run", "--progress", "never", &plan])
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for row in of(&parse(&ran.stdout), "iteration") {
        assert_eq!([&row["wire_bits_per_s"], &row["wire_ratio"]], ["", ""], "{row:?}");
    }
}
