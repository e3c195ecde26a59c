//! A link between the ends that is full: one cause, whatever fills it.

use schemas::{columns::Row, words::LimitedBy};

use super::*;

/// A stream through a token bucket of 100 Mbit/s in a router, as one was recorded: base delay 31 µs, queue of up to 50 ms.
fn bucket() -> Row {
    Row {
        throughput_bits_per_s: Some(95_630_270.0),
        sent_bits_per_s: Some(95_007_004.0),
        bytes_sent: Some(17_813_813),
        delivery_rate_bits_per_s: Some(95_671_368.0),
        pacing_rate_bits_per_s: Some(115_341_264.0),
        rtt_us: Some(46_279.0),
        min_rtt_us: Some(31.0),
        cwnd_bytes: Some(556_032),
        retransmits: Some(31),
        remote_thread_busy_ratio: Some(0.06),
        remote_thread_waiting_ratio: Some(0.14),
        ..stream()
    }
}

#[test]
fn one_full_link_is_one_cause_whatever_fills_it() {
    let all = [
        "full at 95.6 Mbit/s of payload",
        "a queue of 46.2 ms (540 KiB)",
        "smallest round trip is 31.0 µs in the kernel",
        "`wire`",
    ];
    expect(&bucket(), LimitedBy::Path, &all);
    let reno = Row {
        congestion_control: Some("reno".into()),
        throughput_bits_per_s: Some(95.9e6),
        delivery_rate_bits_per_s: Some(93.4e6),
        pacing_rate_bits_per_s: Some(123e6),
        rtt_us: Some(34_027.0),
        retransmits: Some(0),
        ..bucket()
    };
    expect(&reno, LimitedBy::Path, &["a queue of 34.0 ms"]);
    // As recorded: 24 times the same throughput within 0.1 %, and a last sample of two thirds of it.
    let burst = Row {
        throughput_bits_per_s: Some(47.81e6),
        delivery_rate_bits_per_s: Some(32.94e6),
        pacing_rate_bits_per_s: Some(83.5e6),
        rtt_us: Some(20_310.0),
        min_rtt_us: Some(10.0),
        cwnd_bytes: Some(176_700),
        retransmits: Some(0),
        ..bucket()
    };
    expect(&burst, LimitedBy::Path, &["full at 47.8 Mbit/s", "a queue of 20.3 ms"]);
    let four = Row { streams: Some(4), threads: Some(4), rtt_us: Some(47_993.0), retransmits: Some(41), ..bucket() };
    expect(&four, LimitedBy::Path, &["a queue of 48.0 ms"]);
    let bbr = |pacing, rtt, min| Row {
        congestion_control: Some("bbr".into()),
        pacing_rate_bits_per_s: Some(pacing),
        rtt_us: Some(rtt),
        min_rtt_us: Some(min),
        retransmits: Some(0),
        ..bucket()
    };
    expect(&bbr(71.9e6, 13_655.0, 16.0), LimitedBy::Path, &["a queue of 13.6 ms"]);
    expect(&bbr(105e6, 22_000.0, 20_000.0), LimitedBy::Path, &["BBR paces by what it delivers", "queue of 2.00 ms"]);
    expect(&bbr(97.9e6, 1500.0, 20.0), LimitedBy::Path, &["BBR paces by what it delivers"]);
    // As recorded: the last sample of the delivery rate is less than half of what BBR has paced at.
    let slow_end = |row: Row| Row { delivery_rate_bits_per_s: Some(39.2e6), ..row };
    expect(&slow_end(bbr(94.7e6, 4148.0, 20.0)), LimitedBy::Path, &["a queue of 4.13 ms"]);
    expect(&slow_end(bbr(94.7e6, 1500.0, 20.0)), LimitedBy::Bbr, &["its estimate"]);
    // Within microseconds a sender at work spoils its estimate.
    let at_work = Row { local_thread_busy_ratio: Some(0.6), ..bbr(105e6, 60.0, 20.0) };
    expect(&at_work, LimitedBy::Bbr, &["its estimate"]);
    let datagrams = Row {
        throughput_bits_per_s: Some(97.1e6),
        sent_bits_per_s: Some(119.9e6),
        offered_per_s: Some(120e6),
        rate_error_ratio: Some(-0.001),
        lost: Some(2860),
        loss_ratio: Some(0.191),
        local_thread_busy_ratio: Some(0.51),
        local_thread_waiting_ratio: Some(0.48),
        ..datagrams()
    };
    expect(&datagrams, LimitedBy::Path, &["97.1 Mbit/s arrived", "lost 19 %", "neither end counted a drop", "`rate`"]);
    let down = Row { loss_run_max: Some(1500), ..datagrams.clone() };
    expect(&down, LimitedBy::Unknown, &["most of them in one run of 1500: the path was down for a moment"]);
    expect(&Row { loss_run_max: Some(1400), ..datagrams.clone() }, LimitedBy::Path, &[]);
    // A receiver that tells nothing of its drops may have lost them.
    expect(&Row { remote_socket_drops: None, ..datagrams }, LimitedBy::Unknown, &["neither end says where"]);
}

#[test]
fn a_path_is_full_only_at_a_steady_rate_between_idle_ends() {
    let not = |row: Row, parts: &[&str]| {
        let limit = answer(&row);
        assert_ne!(limit.by, LimitedBy::Path, "{}", limit.because);
        for part in parts {
            assert!(limit.because.contains(part), "{}", limit.because);
        }
    };
    not(Row { delivery_rate_bits_per_s: Some(40e6), ..bucket() }, &["31 segments"]);
    not(Row { delivery_rate_bits_per_s: None, ..bucket() }, &["31 segments"]);
    // Faster at the end than in the mean, or slower without a queue: the rate was not the link's.
    not(Row { delivery_rate_bits_per_s: Some(130e6), ..bucket() }, &["31 segments"]);
    not(
        Row { delivery_rate_bits_per_s: Some(66e6), rtt_us: Some(10_100.0), min_rtt_us: Some(10_000.0), ..bucket() },
        &[],
    );
    not(Row { rtt_us: Some(10_100.0), min_rtt_us: Some(10_000.0), ..bucket() }, &[]);
    not(Row { local_thread_busy_ratio: Some(0.8), ..bucket() }, &[]);
    not(Row { remote_thread_waiting_ratio: Some(0.3), ..bucket() }, &["could not run 30 %"]);
    not(Row { remote_socket_drops: Some(31), ..bucket() }, &["receive buffer of b"]);
    // A shaper on the sender's own interface.
    expect(
        &Row { local_qdisc_drops: Some(30), ..bucket() },
        LimitedBy::Path,
        &["the queueing discipline of a dropped 30"],
    );
    // Large windows and buffers fill before a full link, too.
    let window = Row { rwnd_limited_ratio: Some(0.9), remote_receive_buffer_bytes: Some(1_000_000), ..bucket() };
    expect(&window, LimitedBy::Path, &["full at 95.6"]);
    expect(&Row { sndbuf_limited_ratio: Some(0.9), ..bucket() }, LimitedBy::Path, &["full at 95.6"]);
    let named = |speed, ratio| Row { wire_bits_per_s: Some(speed), wire_ratio: Some(ratio), ..bucket() };
    expect(&named(1e9, 0.1), LimitedBy::Path, &["it is slower than 1.00 Gbit/s"]);
    expect(&named(50e6, 2.0), LimitedBy::Path, &["faster than the 50.0 Mbit/s of `wire`"]);
    expect(&named(100e6, 1.02), LimitedBy::Wire, &["102 % of what a link of 100 Mbit/s"]);
}
