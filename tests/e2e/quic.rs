//! Streams, requests and connections over QUIC: bytes that both ends agree on, datagrams that the kernel counted, and what is refused.

use crate::{
    needs::has_program,
    netns::{Namespace, Pair},
    program::{Folder, count, of, parse, plumb},
};

#[test]
fn both_ends_agree_on_every_byte_of_every_pattern() {
    let folder = Folder::new();
    let stream = "workload: quic_stream, integrity: true, bytes: 3MB";
    let tests = [
        format!("ciphers: {{{stream}, matrix: {{tls.cipher: [aes_128_gcm, aes_256_gcm, chacha20_poly1305]}}}}"),
        format!("control: {{{stream}, matrix: {{quic.congestion_control: [cubic, new_reno, bbr]}}}}"),
        format!("sizes: {{{stream}, buffers: {{ring: 3}}, matrix: {{message_size: [1000, 1453, 100kB, 1MiB]}}}}"),
        format!("windows: {{{stream}, matrix: {{quic.window: [16KiB, 32MiB], quic.mtu: [1200, 9000]}}}}"),
        format!("reverse: {{{stream}, direction: reverse}}"),
        format!("both: {{{stream}, direction: bidirectional, streams: 2}}"),
        format!("many_flows: {{{stream}, streams: 40, quic: {{window: 256KiB}}}}"),
        "one: {workload: quic_rr, integrity: true, transactions: 500}".to_owned(),
        "many: {workload: quic_rr, integrity: true, inflight: 8, request_size: 20000, response_size: 70000, transactions: 500}".to_owned(),
        "paced: {workload: quic_rr, rate: 2k/s, transactions: 200}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 22);
    for row in &iterations {
        assert_eq!((&*row["status"], &*row["error"], &*row["io"]), ("ok", "", "batch"), "{row:?}");
        assert_eq!((&*row["transport"], row["library"].starts_with("quinn-proto 0.")), ("quic", true), "{row:?}");
        assert!(["cubic", "new_reno", "bbr"].contains(&&*row["congestion_control"]), "{row:?}");
        if row["test"] != "paced" {
            assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
        }
        let figures =
            ["quic_packets_sent", "quic_mtu_bytes", "rtt_us", "min_rtt_us", "cwnd_bytes", "messages_per_send"];
        assert!(figures.iter().all(|column| row[*column].parse::<f64>().unwrap() > 0.0), "{row:?}");
    }
    let ciphers: Vec<&str> =
        iterations.iter().filter(|row| row["test"] == "ciphers").map(|row| &*row["tls_cipher"]).collect();
    assert_eq!(ciphers, ["aes_128_gcm", "aes_256_gcm", "chacha20_poly1305"]);
}

/// The kernel's count of datagrams, and the interface's of their bytes, in a namespace in which nothing else runs.
#[test]
fn the_library_counts_the_datagrams_that_the_interface_carried() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: quic_stream, bytes: 8MB, quic: {window: 64KiB}, collect: [tcp_info]}");
    let (rows, [before, after]) = alone.carried(&plan);
    let row = of(&rows, "iteration")[0];
    assert_eq!((count(row, "bytes_received"), count(row, "quic_mtu_bytes")), (8_000_000, 1452), "{row:?}");
    let bytes = after.received_bytes - before.received_bytes;
    // The interface also carries acknowledgements, the handshake, and the control connection. The kernel splits datagrams after it,
    // so there are fewer headers than datagrams. What is under way at the end of the window is sent after it, and the figures are a
    // moment old.
    let (own, under_way) = (count(row, "quic_udp_bytes"), 4 * (64 << 10));
    assert!(
        (8_000_000 - under_way..bytes).contains(&own) && bytes < own + own / 20 + under_way,
        "{own} of {bytes} bytes"
    );
}

#[test]
fn two_hosts_use_the_far_ends_certificate_and_the_control_port() {
    let Some(pair) = Pair::new() else { return };
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = folder.plan(
        &hosts,
        "  it: {workload: quic_stream, bytes: 2MB, integrity: true, direction: bidirectional, streams: 3, to: far}\n  \
         hands: {workload: quic_crr, transactions: 30, streams: 2, tls: {session: resumed}, to: far}",
    );
    let ran = pair.near.run(&plan);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in of(&rows, "iteration") {
        assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
    }
}

#[test]
fn what_quic_does_not_have_is_refused_with_the_reason() {
    let folder = Folder::new();
    for (test, words) in [
        ("workload: tcp_stream, quic: {window: 1MiB}", "this test runs over tcp: leave it out"),
        ("workload: quic_stream, quic: {congestion_control: vegas}", "unknown value `vegas`"),
        ("workload: quic_stream, quic: {mtu: 1199}", "1200 to 65507 bytes, not 1199"),
        ("workload: quic_stream, quic: {window: 1KiB}", "16 KiB to 256 MiB"),
        ("workload: quic_dgram_stream, message_size: 1415", "at most 1414 bytes, not 1415"),
        ("workload: quic_dgram_stream, quic: {window: 1MiB}", "bounds streams"),
        ("workload: quic_dgram_rr", "quic_dgram runs quic_dgram_stream"),
        ("workload: quic_dgram_stream, pacing: {mode: kernel}, rate: 1Mbit/s", "use `mode: user`"),
        ("workload: quic_duplex", "quic_stream with `direction: bidirectional`"),
        ("workload: quic_stream, tls: {records: kernel}", "QUIC has packets in the place of records"),
        ("workload: quic_rr, tls: {session: resumed}", "use quic_crr or quic_cc"),
        ("workload: quic_cc, tls: {session: early}", "quic_cc has none: use quic_crr"),
        ("workload: quic_stream, io: blocking", "write batch"),
        ("workload: quic_stream, streams: 2, threads: 1", "leave `threads` out"),
        ("workload: quic_rr, inflight: 4, coalesce: true", "leave `coalesce` out"),
        ("workload: quic_stream, buffers: {dirty: 100}", "leave out dirty and clean"),
        ("workload: quic_stream, receive: discard", "discard"),
        ("workload: quic_stream, remote_socket: {dscp: 46}", "sets the class of each packet by itself"),
        ("workload: quic_stream, control: none, remote_ports: 443, to: b", "control"),
        ("workload: quic_stream, assert: [retransmits < 1]", "only TCP reports it"),
        ("workload: tcp_stream, assert: [quic_lost < 1]", "only QUIC reports it"),
        ("workload: quic_crr, assert: [quic_lost < 1]", "each connection has figures of its own"),
    ] {
        let plan = folder.plan("hosts: {b: {address: 127.0.0.1}}", &format!("  it: {{{test}}}"));
        let ran = plumb(&["check", &plan]);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(words),
            "{test}: {:?}\n{}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
    }
}

/// On loopback nothing is lost, and the columns are those of UDP.
#[test]
fn datagrams_are_counted_as_those_of_udp() {
    let folder = Folder::new();
    let rate = "rate: 20Mbit/s, bytes: 600kB, integrity: true";
    let tests = [
        format!("named: {{workload: quic_datagram, {rate}}}"),
        format!("both: {{workload: quic_dgram_stream, {rate}, direction: bidirectional, streams: 2}}"),
        format!("reverse: {{workload: quic_dgram_maerts, {rate}}}"),
        format!("short: {{workload: quic_dgram_stream, {rate}, message_size: 100, pacing: {{burst: 10}}}}"),
        format!("one_way: {{workload: quic_dgram_stream, {rate}, one_way: true}}"),
        "unpaced: {workload: quic_dgram_stream, bytes: 3MB, tls: {cipher: chacha20_poly1305}, quic: {congestion_control: bbr}}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 8);
    for row in iterations {
        assert_eq!((&*row["status"], &*row["error"], &*row["transport"]), ("ok", "", "quic_dgram"), "{row:?}");
        let size = if row["test"] == "short" { 100 } else { 1200 };
        let sent = count(row, "messages_sent");
        assert!(sent >= 500 && count(row, "bytes_sent") == sent * size, "{row:?}");
        assert_eq!((count(row, "bytes_received"), count(row, "lost")), (sent * size, 0), "{row:?}");
        assert_eq!((count(row, "reordered"), count(row, "duplicated")), (0, 0), "{row:?}");
        assert!(!row["jitter_us"].is_empty() && count(row, "quic_packets_sent") > 0, "{row:?}");
        assert_eq!(row["forward_variation_p50_us"].is_empty(), row["test"] != "one_way", "{row:?}");
    }
}

/// A packet filter drops every twentieth packet of a message's length and counts them. Each is a lost message, since QUIC does not send
/// it again. A few messages pass the filter by twos, as one packet of the kernel's offload. Then the path's packets are too short.
#[test]
fn datagrams_that_a_filter_drops_are_lost_and_those_too_long_for_the_path_are_refused() {
    let Some(pair) = Pair::new() else { return };
    if !has_program("iptables", "iptables") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = |size: u32| {
        let test = format!(
            "workload: quic_dgram_stream, message_size: {size}, rate: 1000/s, pacing: {{catch_up: 0}}, bytes: 800kB, to: far"
        );
        folder.plan(&hosts, &format!("  it: {{{test}}}"))
    };
    let drops =
        "-A INPUT -i data -p udp -m length --length 800:1000 -m statistic --mode nth --every 20 --packet 0 -j DROP";
    pair.far.read("iptables", &drops.split(' ').collect::<Vec<_>>());
    let ran = pair.near.run(&plan(800));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rules = pair.far.read("iptables", &["-L", "INPUT", "-v", "-n", "-x"]);
    let dropped: u64 = rules.lines().nth(2).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    let (sent, arrived, lost) = (count(row, "messages_sent"), count(row, "messages_received"), count(row, "lost"));
    assert_eq!((sent, arrived + lost, lost), (1000, 1000, dropped), "{row:?}");
    assert_eq!((count(row, "loss_runs"), count(row, "reordered")), (dropped, 0), "{row:?}");
    assert!(lost > 0, "{row:?}");
    for host in [&pair.near, &pair.far] {
        host.read("ip", &["link", "set", "dev", "data", "mtu", "1300"]);
    }
    let ran = pair.near.run(&plan(1300));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    // The search of the path's MTU may stop some bytes below it.
    let words = "a packet on this path carries a datagram of at most 12";
    assert!(ran.stderr.contains(words) && ran.stderr.contains("choose a smaller message_size"), "{}", ran.stderr);
}

/// The handshakes of a test are the far end's, whatever was asked: a flow's first one is full, and the others are as asked.
#[test]
fn each_connection_begins_as_asked() {
    let folder = Folder::new();
    let crr = "workload: quic_crr, integrity: true, transactions: 60";
    let sizes = "request_size: 3000, response_size: 100000";
    let tests = [
        format!("full: {{{crr}}}"),
        format!("resumed: {{{crr}, tls: {{session: resumed, cipher: aes_256_gcm}}}}"),
        format!("early: {{{crr}, {sizes}, streams: 3, tls: {{session: early}}}}"),
        "cc: {workload: quic_cc, transactions: 60, tls: {session: resumed}}".to_owned(),
        "cc_full: {workload: quic_cc, transactions: 60}".to_owned(),
        "paced: {workload: quic_crr, rate: 500/s, transactions: 60}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 6);
    for row in iterations {
        assert_eq!((&*row["status"], &*row["error"], count(row, "errors")), ("ok", "", 0), "{row:?}");
        let (streams, all) = (count(row, "streams"), count(row, "transactions"));
        assert_eq!((all, count(row, "remote_connections")), (60, 60), "{row:?}");
        let ratio = |column: &str| row[column].parse::<f64>().unwrap();
        let later = (all - streams) as f64 / all as f64;
        let (resumed, early) = match &*row["test"] {
            "full" | "cc_full" | "paced" => (0.0, 0.0),
            "early" => (later, later),
            _ => (later, 0.0),
        };
        assert!((ratio("resumed_ratio") - resumed).abs() < 1e-9, "{row:?}");
        assert!((ratio("early_ratio") - early).abs() < 1e-9, "{row:?}");
        assert!(ratio("handshake_p50_us") > 0.0, "{row:?}");
        if row["test"] == "early" {
            assert_eq!((count(row, "bytes_sent"), count(row, "bytes_received")), (60 * 103_000, 60 * 103_000));
        }
    }
}
