//! Streams and requests over TLS: bytes that both ends agree on, records that the interface counted, and what is refused.

use crate::{
    netns::{Namespace, Pair},
    program::{Folder, count, of, parse, plumb},
};

const CIPHERS: [&str; 3] = ["aes_128_gcm", "aes_256_gcm", "chacha20_poly1305"];

#[test]
fn both_ends_agree_on_every_byte_of_every_pattern() {
    let folder = Folder::new();
    let stream = "workload: tls_stream, integrity: true, bytes: 3MB";
    let tests = [
        format!("ciphers: {{{stream}, matrix: {{tls.cipher: [{}]}}}}", CIPHERS.join(", ")),
        format!("io: {{{stream}, matrix: {{io: [blocking, nonblocking, spin]}}}}"),
        format!("sizes: {{{stream}, matrix: {{message_size: [1000, 16383, 16384, 16385, 1MiB]}}}}"),
        format!("reverse: {{{stream}, direction: reverse}}"),
        format!("both: {{{stream}, direction: bidirectional, streams: 2}}"),
        format!("shared: {{{stream}, streams: 6, threads: 2}}"),
        "duplex: {workload: tls_duplex, integrity: true, bytes: 3MB}".to_owned(),
        "one: {workload: tls_rr, integrity: true, transactions: 500}".to_owned(),
        "many: {workload: tls_rr, integrity: true, inflight: 8, request_size: 20000, response_size: 70000, transactions: 500}".to_owned(),
        "joined: {workload: tls_rr, integrity: true, inflight: 8, coalesce: true, transactions: 500}".to_owned(),
        "paced: {workload: tls_rr, rate: 2k/s, transactions: 200}".to_owned(),
    ];
    let plan = folder.plan("", &tests.map(|test| format!("  {test}")).join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    for row in &iterations {
        assert_eq!((&*row["status"], &*row["error"]), ("ok", ""), "{row:?}");
        assert_eq!((&*row["transport"], row["library"].starts_with("rustls 0.")), ("tls", true), "{row:?}");
        assert!(CIPHERS.contains(&&*row["tls_cipher"]), "{row:?}");
        if row["test"] != "paced" {
            assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
        }
    }
    let ciphers: Vec<&str> =
        iterations.iter().filter(|row| row["test"] == "ciphers").map(|row| &*row["tls_cipher"]).collect();
    assert_eq!(ciphers, CIPHERS);
    let kept = |test: &str| iterations.iter().filter(|row| row["test"] == test).count();
    assert_eq!((kept("io"), kept("sizes"), kept("both"), kept("duplex")), (3, 5, 3, 3));
}

/// A record has 22 bytes beside its data. Messages of 100 bytes are a record each.
#[test]
fn the_interface_carries_records() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let bytes = 4_000_000;
    let carried = |workload: &str| {
        let plan = folder.plan("", &format!("  it: {{workload: {workload}, message_size: 100, bytes: {bytes}}}"));
        let (rows, [before, after]) = alone.carried(&plan);
        assert_eq!(count(of(&rows, "iteration")[0], "bytes_received"), bytes);
        // The headers of IPv4, and of TCP with timestamps: loopback counts none of Ethernet.
        let packets = after.received_packets - before.received_packets;
        after.received_bytes - before.received_bytes - packets * (20 + 32)
    };
    let (clear, sealed) = (carried("tcp_stream"), carried("tls_stream"));
    let records = bytes / 100 * 122;
    assert!((bytes..bytes + 400_000).contains(&clear), "{clear}");
    assert!((records..records + 400_000).contains(&sealed), "{sealed}, and the records have {records}");
}

#[test]
fn two_hosts_use_the_far_ends_certificate() {
    let Some(pair) = Pair::new() else { return };
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let plan = folder.plan(
        &hosts,
        "  it: {workload: tls_stream, bytes: 2MB, integrity: true, direction: bidirectional, streams: 3, to: far}",
    );
    let ran = pair.near.run(&plan);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in of(&rows, "iteration") {
        assert_eq!(count(row, "bytes_sent"), count(row, "bytes_received"), "{row:?}");
    }
}

#[test]
fn what_tls_does_not_have_is_refused_with_the_reason() {
    let folder = Folder::new();
    for (test, words) in [
        ("workload: tcp_stream, tls: {cipher: aes_128_gcm}", "this test runs over tcp: leave it out"),
        ("workload: tls_stream, tls: {cipher: rc4}", "unknown value `rc4`"),
        ("workload: tls_crr", "tls"),
        ("workload: tls_stream, io: sendfile", "sendfile"),
        ("workload: tls_stream, receive: discard", "discard"),
        ("workload: tls_stream, control: none, remote_ports: 443, to: b", "control"),
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
