//! The payload that a wire can carry: `plumb fit --wire` for any table and for none, and the rows of a path with a known speed.

use std::process::Stdio;

use crate::{
    netns::Pair,
    program::{Folder, Ran, Row, command, count, number, of, parse, plumb},
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
    let ran = pair.near.run(&plan);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for row in of(&parse(&ran.stdout), "iteration") {
        assert_eq!([&row["wire_bits_per_s"], &row["wire_ratio"]], ["", ""], "{row:?}");
    }
}
