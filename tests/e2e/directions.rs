//! Both directions at once: each direction's row is about its own sender and receiver, and both end.

use crate::{
    needs::skip,
    program::{Folder, count, despite_stalls, number, of, parse, plumb},
};

#[test]
fn datagrams_both_ways_stop_by_bytes() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {direction: bidirectional, message_size: 100, bytes: 20kB, streams: 2}",
        "  udp: {workload: udp_stream, rate: 2k/s}\n  unix: {workload: unix_dgram_stream, warmup: 50ms}\n  \
           shared: {workload: udp_stream, threads: 1}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let measured = of(&rows, "iteration");
    assert_eq!(measured.len(), 9);
    for row in measured {
        let ways = if row["direction"] == "both" { 2 } else { 1 };
        assert_eq!((row["status"].as_str(), count(row, "bytes_sent")), ("ok", ways * 20_000), "{row:?}");
    }
}

#[test]
fn what_lies_before_a_receiver_when_all_is_sent_belongs_to_the_count() {
    // A receiver that stands still for a second after the last message leaves what lies before it.
    despite_stalls(reads_all);
}

fn reads_all() {
    let folder = Folder::new();
    // The receiver checks every byte and is slower than the sender.
    let plan = folder.plan(
        "defaults: {integrity: true, socket: {receive_buffer: 4MiB}}",
        "  udp: {workload: udp_stream, message_size: 60000, bytes: 6MB, direction: reverse, io: blocking}\n  \
           unix: {workload: unix_dgram_stream, message_size: 8000, bytes: 1600kB, streams: 2, io: spin}\n  \
           both: {workload: udp_stream, message_size: 60000, bytes: 3MB, direction: bidirectional}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for row in of(&rows, "iteration") {
        let arrived = count(row, "messages_received") * count(row, "message_bytes");
        assert_eq!(count(row, "bytes_received"), arrived, "{row:?}");
        assert!(number(row, "throughput_bits_per_s") > 0.0);
    }
}

#[test]
fn a_count_may_have_intervals_which_add_up_to_it() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {interval: 10ms, streams: 8}",
        "  bulk: {workload: tcp_stream, bytes: 2MB, message_size: 1kB, rate: 160Mbit/s}\n  \
           trips: {workload: unix_rr, transactions: 2000, rate: 20k/s}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    for (test, column, asked) in [("bulk", "bytes_sent", 2_000_000), ("trips", "transactions", 2000)] {
        let intervals: Vec<_> = of(&rows, "interval").into_iter().filter(|row| row["test"] == test).collect();
        assert!(intervals.len() > 1, "{test}");
        assert_eq!(intervals.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum::<u64>(), asked, "{test}");
    }
}

#[test]
fn a_direction_has_the_calls_and_the_kernels_word_of_its_own_ends() {
    let folder = Folder::new();
    // The ones that any user may choose.
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let allowed: Vec<&str> = allowed.split_whitespace().collect();
    let [near, far, ..] = allowed[..] else { return skip("this kernel allows one congestion control only") };
    let plan = folder.plan(
        &format!(
            "defaults: {{bytes: 20MB, message_size: 32KiB, collect: [tcp_info, latency], socket: {{congestion_control: {near}}}, \
             remote_socket: {{congestion_control: {far}}}}}"
        ),
        "  one: {workload: tcp_duplex}\n  two: {workload: tcp_stream, direction: bidirectional}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let iterations = of(&rows, "iteration");
    assert_eq!(iterations.len(), 6);
    for row in iterations {
        let timed = netcore::measure::histogram::decode(&row["latency_histogram"]).unwrap().len();
        // A call in progress at the edge is counted on one side of it and timed on the other.
        assert!((timed as f64 - number(row, "sends")).abs() <= 4.0, "{timed} of {} calls: {row:?}", row["sends"]);
        let expected = match row["direction"].as_str() {
            "forward" => near,
            "reverse" => far,
            _ => "",
        };
        assert_eq!(row["congestion_control"], expected, "{row:?}");
    }
}
