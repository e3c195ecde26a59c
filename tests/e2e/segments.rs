//! Datagrams of several messages (`socket.gso`, `socket.gro`): counts against the kernel's, what it refuses, and the calls
//! that are made.
//!
//! The kernel counts what it is handed and what it hands over: OutDatagrams has one for a datagram of several messages, and
//! InDatagrams one for each message, or one for a datagram that is received whole (seen on 6.18).

use crate::{
    needs::{has_program, is_installed},
    netns::{Namespace, Pair},
    program::{Folder, Ran, Row, count, despite_stalls, number, of, parse, plumb},
    strace,
};

/// Datagrams besides a test's messages: proofs of the flows, and ends.
const OTHERS: u64 = 100;

/// The measured row of a run of one iteration.
fn row_of(ran: &Ran, what: &str) -> Row {
    assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0].clone();
    assert_eq!(row["status"], "ok", "{what}: {}", row["error"]);
    row
}

/// Asserts that a count is `least`, or up to `more` above it.
#[track_caller]
fn about(counted: u64, least: u64, more: u64, what: &str) {
    assert!(
        (least..=least + more).contains(&counted),
        "{what}: {counted} counted, expected {least} to {}",
        least + more
    );
}

#[test]
fn messages_and_bytes_are_those_that_the_kernel_counted() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    // Few enough for the receive buffer: none is lost, however late the receiver is.
    let (messages, bytes, each) = (2000, 1000, 20);
    for (gso, gro) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("gso {gso}, gro {gro}");
        let sends = if gso { format!("gso: {each}, ") } else { String::new() };
        let test = format!(
            "{{workload: udp_stream, message_size: {bytes}, bytes: {}, socket: {{{sends}receive_buffer: 4MiB}}, \
             remote_socket: {{gro: {gro}, receive_buffer: 4MiB}}}}",
            messages * bytes
        );
        let plan = folder.plan("", &format!("  it: {test}"));
        let (ran, [(before, carried), (after, carried_then)]) = alone.around(&plan, |inside| {
            let udp = ["OutDatagrams", "InDatagrams"].map(|key| inside.snmp("Udp", key));
            (udp, inside.interface("lo").received_bytes)
        });
        let row = row_of(&ran, &test);
        assert_eq!(["messages_sent", "messages_received"].map(|it| count(&row, it)), [messages; 2], "{what}: {row:?}");
        assert_eq!(["bytes_sent", "bytes_received"].map(|it| count(&row, it)), [messages * bytes; 2], "{what}");
        assert_eq!(["lost", "reordered", "duplicated"].map(|it| count(&row, it)), [0; 3], "{what}");
        let handed_over = if gso { messages / each } else { messages };
        about(after[0] - before[0], handed_over, OTHERS, &format!("{what}: OutDatagrams"));
        let received = if gro { handed_over } else { messages };
        about(after[1] - before[1], received, OTHERS, &format!("{what}: InDatagrams"));
        // A datagram on loopback has one IP and UDP header, whatever its messages; the control connection is there too.
        about(carried_then - carried, messages * bytes + 28 * handed_over, 1 << 19, &format!("{what}: bytes of lo"));
        assert_eq!(row["gso"], if gso { each.to_string() } else { String::new() }, "{what}");
        assert_eq!(row["gro"], if gro { "true" } else { "" }, "{what}");
        // A call carries two datagrams of 20, or 32 of one; the last call may have fewer.
        let per_send = number(&row, "messages_per_send");
        assert!((per_send - if gso { 40.0 } else { 32.0 }).abs() < 1.0, "{what}: {per_send} messages per send call");
        let per_receive = messages as f64 / count(&row, "receives") as f64;
        assert!((number(&row, "messages_per_receive") - per_receive).abs() < 1e-9, "{what}: {row:?}");
        assert!(per_receive >= if gso && gro { 20.0 } else { 1.0 }, "{what}: {per_receive} messages per receive call");
    }
}

#[test]
fn every_kind_of_stream_keeps_each_message() {
    let folder = Folder::new();
    let both = "integrity: true, message_size: 300, bytes: 90kB, iterations: 1";
    let cases = [
        ("plain", ""),
        ("unconnected", ", connected: false"),
        ("flows", ", streams: 3"),
        ("turns", ", streams: 4, threads: 1, direction: bidirectional"),
        ("back", ", direction: reverse"),
        ("both", ", direction: bidirectional, streams: 2"),
        ("single", ", io: blocking"),
        ("spin", ", io: spin"),
        ("ring", ", buffers: {ring: 50, alignment: 64, offset: 3}, remote_buffers: {ring: 1}"),
        ("paced", ", rate: 20k/s, pacing: {burst: 14}"),
    ];
    let tests: Vec<String> = cases
        .iter()
        .flat_map(|(name, more)| {
            // At each end by itself, and at both.
            [("sends", "gso: 7, gro: false"), ("receives", "gro: true"), ("does", "gso: 7, gro: true")].map(
                |(end, keys)| format!("  {name}-{end}: {{workload: udp_stream, {both}, socket: {{{keys}}}{more}}}"),
            )
        })
        .collect();
    let plan = folder.plan("", &tests.join("\n"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let rows: Vec<&Row> =
        of(&rows, "iteration").into_iter().filter(|row| row["direction"] != "both" || row["test"].is_empty()).collect();
    assert!(rows.len() >= tests.len(), "{} rows", rows.len());
    for row in rows {
        let what = format!("{} {}", row["test"], row["direction"]);
        assert_eq!(row["status"], "ok", "{what}: {}", row["error"]);
        // 90 kB are 300 messages, or for several streams as many as make up their whole shares.
        let streams = count(row, "streams");
        about(count(row, "messages_sent"), 300, streams, &what);
        assert_eq!(row["messages_sent"], row["messages_received"], "{what}");
        assert_eq!(["lost", "reordered", "duplicated"].map(|it| count(row, it)), [0; 3], "{what}");
        assert_eq!(row["gso"] == "7", !row["test"].ends_with("receives"), "{what}: {:?}", row["gso"]);
        assert_eq!(row["gro"] == "true", !row["test"].ends_with("sends"), "{what}: {:?}", row["gro"]);
    }
}

#[test]
fn loss_in_segments_is_what_a_queue_dropped() {
    despite_stalls(compares_loss);
}

/// Behind a token bucket that cuts datagrams (20 are longer than its burst), or passes them whole (10).
fn compares_loss() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "5ms") {
        return;
    }
    if is_installed("ethtool") {
        // Otherwise such a link carries the datagrams whole.
        pair.near.read("ethtool", &["-K", "data", "tx-udp-segmentation", "off"]);
    }
    let (_daemon, hosts) = pair.serve();
    // A datagram that the queue dropped at once counts in the other.
    let handed_over = || pair.near.snmp("Udp", "OutDatagrams") + pair.near.snmp("Udp", "SndbufErrors");
    for (each, gro) in [(10, false), (20, true)] {
        let folder = Folder::new();
        let body = format!(
            "  it: {{workload: udp_stream, to: far, duration: 1s, message_size: 1400, rate: 80Mbit/s, integrity: true, \
             pacing: {{burst: {each}}}, socket: {{gso: {each}}}, remote_socket: {{gro: {gro}}}}}"
        );
        let plan = folder.plan(&hosts, &body);
        let (out, arrived) = (handed_over(), pair.far.snmp("Udp", "InDatagrams"));
        let frames = pair.far.interface("data").received_packets;
        let row = row_of(&pair.near.run(&plan), &body);
        let [sent, received, lost] = ["messages_sent", "messages_received", "lost"].map(|it| count(&row, it));
        assert!(lost > 500, "{lost} of {sent} were lost: this link did not lose what the test needs it to lose");
        assert_eq!(sent, received + lost);
        // Messages sent in the last instant arrive after the counters' window, and count.
        about(handed_over() - out, sent.div_ceil(each), OTHERS, "OutDatagrams and SndbufErrors");
        if is_installed("ethtool") {
            let frames = pair.far.interface("data").received_packets - frames;
            about(frames, received, OTHERS + received / 100, "frames");
        }
        if !gro {
            about(pair.far.snmp("Udp", "InDatagrams") - arrived, received, OTHERS, "InDatagrams");
        }
        assert_eq!(["reordered", "duplicated"].map(|it| count(&row, it)), [0; 2]);
    }
}

/// Messages that the receiver's interface merges, of a sender that sends each by itself.
#[test]
fn an_interface_merges_what_was_sent_singly() {
    let Some(pair) = Pair::new() else { return };
    if !has_program("ethtool", "ethtool") {
        return;
    }
    pair.far.read("ethtool", &["-K", "data", "gro", "on"]);
    // Messages stay for a moment where they may be merged: a link of two namespaces has no interrupts that gather them.
    pair.far.read("sh", &["-c", "echo 2000000 > /sys/class/net/data/gro_flush_timeout"]);
    let (_daemon, hosts) = pair.serve();
    let folder = Folder::new();
    let body = "  it: {workload: udp_stream, to: far, bytes: 1MB, message_size: 500, integrity: true, remote_socket: {gro: true}}";
    let plan = folder.plan(&hosts, body);
    let row = row_of(&pair.near.run(&plan), body);
    assert_eq!(
        ["messages_sent", "messages_received", "duplicated"].map(|it| count(&row, it)),
        [2000, 2000, 0],
        "{row:?}"
    );
    let delivered = pair.far.snmp("Udp", "InDatagrams");
    assert!(delivered < 2000, "the interface merged nothing: {delivered} datagrams were delivered");
}

#[test]
fn a_path_with_a_small_mtu_gets_a_sentence() {
    let Some(pair) = Pair::new() else { return };
    let (_daemon, hosts) = pair.serve();
    let run = |bytes: u32, more: &str| -> Ran {
        let folder = Folder::new();
        let body = format!(
            "  it: {{workload: udp_stream, to: far, bytes: 100kB, message_size: {bytes}, socket: {{gso: 4}}{more}}}"
        );
        let plan = folder.plan(&hosts, &body);
        pair.near.run(&plan)
    };
    row_of(&run(1472, ""), "as long as a frame allows");
    for (more, expected) in [
        ("", "the path's MTU of 1500 bytes has room for a message_size of 1472 and not of 1473"),
        (", connected: false", "a message_size of 1473 with 28 bytes of headers exceeds the path's MTU"),
    ] {
        let ran = run(1473, more);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        let error = &of(&parse(&ran.stdout), "iteration")[0]["error"].clone();
        assert!(error.contains(expected) && error.contains("leave socket.gso out"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let folder = Folder::new();
    for (body, expected) in [
        (
            "workload: udp_stream, message_size: 64, socket: {gso: 129}",
            "at most 128 messages, not 129: write 128 or fewer",
        ),
        ("workload: udp_stream, message_size: 1400, socket: {gso: 47}", "write 46 or fewer"),
        ("workload: udp_stream, socket: {gso: 1}", "write 2 to 128"),
        ("workload: udp_stream, socket: {gso: 4, no_checksum: true}", "without checksums"),
        ("workload: udp_stream, message_size: 100, socket: {gso: 4}, rate: 1000/s", "pacing: {burst: 4}"),
        ("workload: udplite_stream, message_size: 100, socket: {gso: 4}", "UDP-Lite"),
        ("workload: tcp_stream, socket: {gso: 4}", "use udp_stream"),
        ("workload: udp_rr, remote_socket: {gro: true}", "one at a time"),
        (
            "workload: udp_stream, remote_socket: {gro: true}, remote_buffers: {clean: 9}",
            "leave out ring, dirty and clean",
        ),
    ] {
        let ran = plumb(&["check", &folder.plan("", &format!("  it: {{{body}}}"))]);
        let said = ran.stdout + &ran.stderr;
        assert!(ran.code == Some(2) && said.contains(expected), "{body}: {said}");
    }
}

fn traced_test(sockets: &str) -> String {
    format!("  it: {{workload: udp_stream, message_size: 500, bytes: 200kB, io: blocking, {sockets}}}")
}

#[test]
fn the_calls_are_those_that_were_asked_for() {
    let folder = Folder::new();
    let test = traced_test("socket: {gso: 25}, remote_socket: {gro: true}");
    let plan = folder.plan("", &test);
    let Some(traced) = strace::run_here("setsockopt,sendmmsg,recvmmsg", &[], &plan) else { return };
    let (row, calls) = (row_of(&traced.ran, &test), &traced.calls);
    assert_eq!(traced.count(&["setsockopt", "UDP_SEGMENT, [500]"]), 1, "{calls:?}");
    assert_eq!(traced.count(&["setsockopt", "UDP_GRO, [1]"]), 1, "{calls:?}");
    // 400 messages in 16 datagrams of 25, one in a call: neighbours in memory, so one vector.
    let sends = traced.count(&["sendmmsg", "iov_len=12500", "msg_iovlen=1", "= 1"]);
    assert_eq!((sends, count(&row, "sends")), (16, 16), "{calls:?}");
    assert_eq!((number(&row, "messages_per_send"), count(&row, "messages_sent")), (25.0, 400));
    assert!(traced.count(&["recvmmsg", "cmsg_level=SOL_UDP", "msg_len=12500"]) > 0, "{calls:?}");
    assert!(number(&row, "messages_per_receive") >= 25.0);
}

#[test]
fn a_kernel_without_the_option_is_told() {
    let folder = Folder::new();
    for (option, sockets, since) in
        [("UDP_SEGMENT", "socket: {gso: 25}", "4.18"), ("UDP_GRO", "remote_socket: {gro: true}", "5.0")]
    {
        let test = traced_test(sockets);
        let plan = folder.plan("", &test);
        let Some(traced) = strace::run_here("setsockopt", &[], &plan) else { return };
        row_of(&traced.ran, &test);
        let [fault] = &traced.faults(option, "ENOPROTOOPT")[..] else { panic!("{option} is set once") };
        let faulty = strace::run_here("setsockopt", &["-e", fault], &plan).unwrap();
        assert_eq!(faulty.count(&[option, "INJECTED"]), 1, "{:?}", faulty.calls);
        assert_eq!(faulty.ran.code, Some(3), "{}", faulty.ran.stderr);
        let said = format!("{}{}", faulty.ran.stdout, faulty.ran.stderr);
        assert!(said.contains(&format!("this kernel has no {option} (Linux has it from {since} on)")), "{said}");
    }
}
