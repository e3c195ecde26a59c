//! Rates, losses and limits of a shaped link against what its queue and the kernel say.

use std::{thread, time::Duration};

use crate::{
    needs::{has_program, skip},
    netns::{Namespace, Pair},
    program::{Folder, Ran, Row, count, end, number, of, parse},
};

const MIB: u64 = 1 << 20;

#[test]
fn tcp_fills_a_limited_link_to_what_its_frames_allow() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "20ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let plan = format!(
        "{{version: 1, name: witness, {hosts}, tests: {{it: {{workload: tcp_stream, to: far, bytes: 8MB, \
         socket: {{congestion_control: reno}}, remote_socket: {{receive_buffer: 64KiB}}}}}}}}"
    );
    // A full frame of 1514 bytes (the queue counts the Ethernet header and not the checksum) carries 1448 of payload:
    // 20 bytes are IP's, 32 are TCP's with its timestamps.
    let expected = 50e6 * 1448.0 / 1514.0;
    // A receiver that is late finds what waits for it: the queue's 20 ms and burst of 16 kB, and its buffer, which the
    // kernel doubles. Nothing else makes a link faster, so no try may exceed that. A busy machine leaves the link idle:
    // the test repeats until three runs were left alone. Their bound is narrower than a wrongly counted header of 20 bytes.
    let waiting = 50e6 / 8.0 * 0.02 + 16e3 + 2.0 * 65_536.0;
    let most = expected / (1.0 - waiting / (8e6 * 1514.0 / 1448.0));
    let mut tries = Vec::new();
    let mut exact = 0;
    while tries.len() < 16 && exact < 3 {
        let row = pair.near.measure(&plan).remove(0);
        assert_eq!(count(&row, "bytes_received"), 8_000_000);
        let reached = number(&row, "throughput_bits_per_s");
        assert!(reached < most, "{reached} bit/s, where the link allows {expected}");
        exact += usize::from((reached / expected - 1.0).abs() < 0.01);
        tries.push(reached);
    }
    assert_eq!(exact, 3, "{tries:?} bit/s, where the link allows {expected}");
}

#[test]
fn a_search_finds_the_rate_of_the_link() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "15ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let plan = format!(
        "{{version: 1, name: witness, {hosts}, tests: {{it: {{workload: udp_stream, to: far, message_size: 1400, warmup: 200ms, \
         duration: 500ms, socket: {{send_buffer: 1MiB}}, assert: [throughput > 40Mbit/s], \
         find: {{metric: loss_ratio, at_most: 1%, by: rate, from: 10Mbit/s, to: 200Mbit/s, within: 8%}}}}}}}}"
    );
    // A frame of 1442 bytes carries 1400 of payload, and one message in a hundred may be lost. The queue's contents and
    // bursts of a busy machine shift the border by a few per cent.
    let limit = 50e6 * 1400.0 / 1442.0 / 0.99 / (1400.0 * 8.0);
    // Every answer is judged. Those without a limit are given again: a machine that is too busy to offer the load, or to
    // carry it, ends a search early. One that stands still loses messages which the link would have carried, so one answer
    // may be too low.
    let (mut seen, mut low) = (Vec::new(), 0);
    while seen.len() < 8 {
        let Ran { code, stdout, stderr } = pair.near.run(&Folder::new().text(&plan));
        let rows = parse(&stdout);
        let summary = of(&rows, "summary")[0];
        let load = |column: &str| if summary[column].is_empty() { None } else { Some(number(summary, column)) };
        let (held, above) = (load("offered_per_s"), load("search_above"));
        let said = format!("{code:?} {} {held:?} … {above:?}, the link takes {limit}: {stderr}", summary["search"]);
        assert!(held.is_none_or(|held| held < limit * 1.05), "too much is said to hold: {said}");
        low += usize::from(above.is_some_and(|above| above < limit * 0.9));
        assert!(low < 2, "too little is said to be too much: {said}, and before {seen:#?}");
        let discarded = rows.iter().any(|r| r["status"] == "discarded");
        assert!(summary["search"] != "at_least" || discarded, "the link has a limit: {said}");
        if (code, summary["search"].as_str()) == (Some(0), "found") && above.is_some_and(|above| above >= limit * 0.9) {
            let probes = of(&rows, "probe");
            let exceeded = probes.iter().filter(|r| r["search"] == "exceeded").count();
            assert!(probes.len() >= 6 && exceeded >= 2, "{} probes, {exceeded} beyond the limit", probes.len());
            assert!(pair.dropped() > 0, "the queue lost nothing: nothing was searched");
            return;
        }
        seen.push(said);
    }
    panic!("no search found the border: {seen:#?}");
}

#[test]
fn a_search_claims_nothing_that_only_a_queue_took_in() {
    let Some(pair) = Pair::new() else { return };
    // The shaper is on the sender's own interface and its queue longer than the socket's buffer: nothing is ever lost.
    if !pair.limit("100mbit", "400ms") {
        return;
    }
    let (_daemon, hosts) = pair.serve();
    let plan = format!(
        "{{version: 1, name: witness, {hosts}, tests: {{it: {{workload: udp_stream, to: far, message_size: 1400, warmup: 100ms, \
         duration: 400ms, find: {{metric: loss_ratio, at_most: 0.01%, by: rate, from: 20Mbit/s, to: 200Mbit/s, \
         within: 5%}}}}}}}}"
    );
    let Ran { stdout, stderr: errors, .. } = pair.near.run(&Folder::new().text(&plan));
    let rows = parse(&stdout);
    let summary = of(&rows, "summary")[0];
    assert_ne!(summary["search"], "nothing", "{errors}");
    let limit = 100e6 * 1400.0 / 1442.0 / (1400.0 * 8.0);
    if summary["offered_per_s"].is_empty() {
        return skip(&format!("this machine was too busy to offer the lowest load: {errors}"));
    }
    // A machine that is busy finds less, which claims nothing wrong.
    let held = number(summary, "offered_per_s");
    assert!(held < limit * 1.05, "{held} messages per second are said to hold, the link takes {limit}: {errors}");
}

#[test]
fn a_slow_receiver_shows_at_the_sender() {
    let Some(alone) = Namespace::new() else { return };
    // Small buffers, so that their contents are small against the bytes sent.
    let body = |stop: &str, receive: &str| {
        format!(
            "{{version: 1, name: witness, tests: {{it: {{workload: tcp_stream, {stop}, receive_size: {receive}, \
             socket: {{send_buffer: 64KiB, congestion_control: reno}}, remote_socket: {{receive_buffer: 64KiB}}}}}}}}"
        )
    };
    let fast = &alone.measure(&body("bytes: 50MB", "128KiB"))[0];
    let slow = &alone.measure(&body("duration: 1s", "1"))[0];
    let (fast_sent, slow_sent) = (number(fast, "sent_bits_per_s"), number(slow, "sent_bits_per_s"));
    assert!(slow_sent < fast_sent / 4.0, "a receiver that reads byte by byte took {slow_sent} of {fast_sent} bit/s");
    let (sent, received) = (count(slow, "bytes_sent"), count(slow, "bytes_received"));
    assert!(sent.abs_diff(received) <= MIB, "{sent} sent and {received} received: that much fits no buffer");
}

/// Runs a plan against the far namespace. Returns its measured row and what `ss` last showed of the data connection.
fn watched(pair: &Pair, test: &str) -> (Row, String) {
    let (_daemon, hosts) = pair.serve();
    let (_folder, mut run) = pair.start(&hosts, test);
    let mut last = String::new();
    while run.try_wait().unwrap().is_none() {
        let sockets = pair.near.read("ss", &["-Htin", "dst", Pair::FAR]);
        if sockets.contains("busy:") && sockets.contains("ESTAB") {
            last = sockets;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let ran = end(run);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (of(&parse(&ran.stdout), "iteration")[0].clone(), last)
}

/// A field of `ss -ti`: `busy:1996ms`, `rwnd_limited:1948ms(97.6%)`, `minrtt:0.021`.
fn shown(text: &str, key: &str) -> f64 {
    let word = text.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
    word.map_or(0.0, |w| w.split(['m', '(']).next().unwrap().parse().unwrap())
}

#[test]
fn what_limits_a_sender_is_what_ss_shows() {
    let Some(pair) = Pair::new() else { return };
    if !pair.limit("50mbit", "4ms") {
        return;
    }
    if !has_program("ss", "iproute2") {
        return;
    }
    // The cool-down keeps the connection for ss, which may be late on a busy machine.
    let by_receiver = "{workload: tcp_stream, to: far, duration: 2s, cooldown: 6s, receive_size: 1, \
                       remote_socket: {receive_buffer: 8KiB}}";
    let by_buffer = "{workload: tcp_stream, to: far, duration: 2s, cooldown: 6s, socket: {send_buffer: 4KiB}}";
    for test in [by_receiver, by_buffer] {
        let (row, last) = watched(&pair, test);
        let ratio = |key: &str| number(&row, &format!("{key}_ratio"));
        // Without a warm-up, the growth in the window is at most what the connection had when ss last saw it.
        let busy_s = ratio("busy") * number(&row, "elapsed_s");
        assert!(busy_s <= shown(&last, "busy") / 1e3 + 0.001, "busy for {busy_s} s: {last}");
        for key in ["rwnd_limited", "sndbuf_limited"] {
            let (of_row, of_ss) = (ratio(key) / ratio("busy"), shown(&last, key) / shown(&last, "busy"));
            assert!((of_row - of_ss).abs() < 0.15, "{key}: {of_row} of the busy time, ss had {of_ss}: {last}");
        }
        assert!(ratio("busy") > 0.8, "{test}: {row:?}");
        // The time that the kernel puts down to a small send buffer depends on its congestion control and queues.
        if test == by_receiver {
            assert!(ratio("rwnd_limited") > 0.5 && ratio("sndbuf_limited") < 0.3, "{test}: {row:?}");
        }
        // The smallest of all only falls, and ss looked last, in the cool-down.
        let (smallest, of_ss) = (number(&row, "min_rtt_us"), shown(&last, "minrtt") * 1e3);
        assert!(of_ss > 0.0 && of_ss <= smallest + 1.0, "{smallest} reported, ss had {of_ss}");
        assert!(smallest <= number(&row, "rtt_us"));
    }
}

const RATE: f64 = 10e6;

/// Bits that a token bucket allows beyond its rate.
const BURST: f64 = 16.0 * 1024.0 * 8.0;

/// The token bucket counts frames without preamble, check sequence and gap, so its link is faster by that.
#[test]
fn rows_of_a_shaped_link_are_near_its_ceiling_and_never_above() {
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
        let ran = pair.near.run(&plan);
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
