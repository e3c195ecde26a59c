mod cases;
mod path;

use proptest::prelude::*;
use schemas::{
    columns::{COLUMNS, Row},
    words::{Control, LatencyKind, LimitedBy, OfferedUnit, Status, Way},
};

use super::{Limit, of};

/// A TCP stream from `a` to `b` over a path of 10 ms, whose ends are idle for most of the time.
fn stream() -> Row {
    Row {
        workload: Some("tcp_stream".into()),
        case: Some("bulk".into()),
        direction: Some(Way::Forward),
        control: Some(Control::Session),
        status: Some(Status::Ok),
        from: Some("a".into()),
        to: Some("b".into()),
        elapsed_s: Some(1.0),
        streams: Some(1),
        threads: Some(1),
        throughput_bits_per_s: Some(100e6),
        sent_bits_per_s: Some(100e6),
        bytes_sent: Some(12_500_000),
        mss_bytes: Some(1448),
        congestion_control: Some("cubic".into()),
        rtt_us: Some(10_100.0),
        min_rtt_us: Some(10_000.0),
        cwnd_bytes: Some(400_000),
        retransmits: Some(0),
        busy_ratio: Some(1.0),
        rwnd_limited_ratio: Some(0.0),
        sndbuf_limited_ratio: Some(0.0),
        local_send_buffer_bytes: Some(4_194_304),
        remote_receive_buffer_bytes: Some(6_291_456),
        local_thread_busy_ratio: Some(0.1),
        local_thread_waiting_ratio: Some(0.01),
        remote_thread_busy_ratio: Some(0.1),
        remote_thread_waiting_ratio: Some(0.01),
        local_cpu_ratio: Some(0.1),
        remote_cpu_ratio: Some(0.2),
        local_qdisc_drops: Some(0),
        remote_socket_drops: Some(0),
        ..Row::default()
    }
}

fn datagrams() -> Row {
    Row {
        workload: Some("udp_stream".into()),
        busy_ratio: None,
        rwnd_limited_ratio: None,
        sndbuf_limited_ratio: None,
        rtt_us: None,
        min_rtt_us: None,
        cwnd_bytes: None,
        mss_bytes: None,
        retransmits: None,
        lost: Some(0),
        loss_ratio: Some(0.0),
        ..stream()
    }
}

fn quic() -> Row {
    Row {
        workload: Some("quic_stream".into()),
        lost: None,
        loss_ratio: None,
        rtt_us: Some(10_400.0),
        min_rtt_us: Some(10_000.0),
        quic_packets_sent: Some(100_000),
        quic_lost: Some(0),
        quic_loss_ratio: Some(0.0),
        quic_blocked: Some(0),
        ..datagrams()
    }
}

fn trips() -> Row {
    Row {
        workload: Some("tcp_rr".into()),
        transactions_per_s: Some(20_000.0),
        inflight: Some(1),
        latency_mean_us: Some(49.0),
        latency_kind: Some(LatencyKind::RoundTrip),
        local_thread_busy_ratio: Some(0.4),
        remote_thread_busy_ratio: Some(0.35),
        ..stream()
    }
}

fn answer(row: &Row) -> Limit {
    of(row, &[]).expect("a test between two ends")
}

/// Expects a cause, and these parts of its sentence.
fn expect(row: &Row, by: LimitedBy, parts: &[&str]) {
    let limit = answer(row);
    assert_eq!(limit.by, by, "{}", limit.because);
    for part in parts {
        assert!(limit.because.contains(part), "`{part}` in: {}", limit.because);
    }
    assert_eq!(limit.ratio.is_some(), by != LimitedBy::Unknown);
}

#[test]
fn a_small_receive_buffer_is_named_with_the_option_to_try() {
    let row = Row {
        rwnd_limited_ratio: Some(0.71),
        remote_receive_buffer_bytes: Some(212_992),
        receive_window_bytes: Some(106_496),
        ..stream()
    };
    expect(&row, LimitedBy::ReceiverWindow, &["71 % of the time", "208 KiB", "`remote_socket.receive_buffer: 512KiB`"]);
    let way_back = Row {
        direction: Some(Way::Reverse),
        local_receive_buffer_bytes: Some(212_992),
        remote_receive_buffer_bytes: None,
        ..row
    };
    expect(&way_back, LimitedBy::ReceiverWindow, &["a has a buffer of 208 KiB", "`socket.receive_buffer: 512KiB`"]);
}

#[test]
fn a_slow_reader_is_not_advised_to_take_a_larger_buffer() {
    let row =
        Row { rwnd_limited_ratio: Some(0.9), throughput_bits_per_s: Some(10e6), rtt_us: Some(10_000.0), ..stream() };
    let limit = answer(&row);
    assert_eq!(limit.by, LimitedBy::ReceiverWindow);
    assert!(limit.because.contains("its reader was slow") && !limit.because.contains("try"), "{}", limit.because);
}

#[test]
fn a_closed_window_shows_a_slow_reader_of_which_nothing_else_is_known() {
    let row = Row {
        rwnd_limited_ratio: Some(0.99),
        receive_window_bytes: Some(0),
        control: Some(Control::None),
        throughput_bits_per_s: None,
        rtt_us: Some(30_000.0),
        remote_thread_busy_ratio: None,
        remote_receive_buffer_bytes: None,
        ..stream()
    };
    expect(&row, LimitedBy::ReceiverWindow, &["was closed at the end", "which is a service of its own"]);
}

#[test]
fn a_sender_that_has_handed_over_all_says_nothing_about_the_rest() {
    let full =
        Row { local_thread_busy_ratio: Some(0.98), elapsed_s: Some(12.5), sent_bits_per_s: Some(6e9), ..stream() };
    expect(&full, LimitedBy::Unknown, &["handed all its data to the kernel in 0.13 % of the time"]);
    expect(&Row { elapsed_s: Some(1.0), sent_bits_per_s: Some(100e6), ..full }, LimitedBy::SenderCpu, &[]);
}

#[test]
fn a_buffer_of_two_segments_is_named_before_a_slow_reader() {
    let row = Row {
        rwnd_limited_ratio: Some(0.99),
        receive_window_bytes: Some(14_336),
        mss_bytes: Some(14_848),
        rtt_us: Some(70.0),
        min_rtt_us: Some(20.0),
        remote_receive_buffer_bytes: Some(32_768),
        ..stream()
    };
    let holds = ["a buffer of 32 KiB, room for two segments of 14.5 KiB", "`remote_socket.receive_buffer: 64KiB`"];
    expect(&row, LimitedBy::ReceiverWindow, &holds);
    let limit = answer(&Row { mss_bytes: Some(1448), receive_window_bytes: Some(0), ..row });
    assert!(limit.because.contains("its reader was slow"), "{}", limit.because);
}

#[test]
fn a_full_window_is_the_cpu_of_a_receiver_that_never_sleeps() {
    let busy = |busy, waiting| Row {
        rwnd_limited_ratio: Some(0.8),
        remote_thread_busy_ratio: Some(busy),
        remote_thread_waiting_ratio: Some(waiting),
        remote_thread_cpu_id: Some(3),
        ..stream()
    };
    expect(
        &busy(0.97, 0.01),
        LimitedBy::ReceiverCpu,
        &["the data thread of b ran 97 % of the time", "that of a was idle"],
    );
    expect(&busy(0.5, 0.48), LimitedBy::ReceiverCpu, &["waited 48 % for CPU 3", "`remote_cpu` pins"]);
    // With support, a little less is enough; between full and asleep there is no answer.
    expect(&busy(0.8, 0.05), LimitedBy::ReceiverCpu, &[]);
    expect(&busy(0.75, 0.0), LimitedBy::Unknown, &["neither full nor idle", "receiver's window 80 %"]);
    let quota = Row { remote_throttled_ratio: Some(0.5), ..busy(0.45, 0.1) };
    expect(&quota, LimitedBy::ReceiverCpu, &["held back up to 50 % by its CPU quota", "larger quota"]);
}

#[test]
fn a_sender_that_never_sleeps_is_the_limit_unless_tcp_contradicts() {
    let full = Row { local_thread_busy_ratio: Some(0.98), busy_ratio: Some(0.6), ..stream() };
    expect(&full, LimitedBy::SenderCpu, &["the data thread of a ran 98 % of the time; that of b was idle"]);
    let sealing = Row { local_encryption_cpus: Some(0.49), ..full.clone() };
    expect(&sealing, LimitedBy::SenderCpu, &["a ran 98 % of the time (50 % of it for encryption); that of b was idle"]);
    let contradicted = Row { rwnd_limited_ratio: Some(0.7), busy_ratio: Some(1.0), ..full.clone() };
    expect(&contradicted, LimitedBy::Unknown, &["yet the receiver's window"]);
    let buffer = Row { sndbuf_limited_ratio: Some(0.7), busy_ratio: Some(1.0), ..full.clone() };
    expect(&buffer, LimitedBy::Unknown, &["yet the send buffer"]);
    // Of two that never sleep TCP's times decide, or neither is it.
    let both = Row { remote_thread_busy_ratio: Some(0.95), ..full.clone() };
    expect(&both, LimitedBy::SenderCpu, &[]);
    expect(&Row { rwnd_limited_ratio: Some(0.4), busy_ratio: Some(1.0), ..both.clone() }, LimitedBy::ReceiverCpu, &[]);
    let both = Row { busy_ratio: Some(1.0), ..both };
    expect(&both, LimitedBy::Unknown, &["both ends always ran or waited", "thread of a 99 %", "thread of b 96 %"]);
    // A thread that spins is busy with nothing.
    let spins = Row { io: Some("spin".into()), ..full.clone() };
    expect(&spins, LimitedBy::Unknown, &["could not be looked at"]);
    // The busiest of several threads says little about the others.
    let several = Row { threads: Some(4), streams: Some(4), ..full.clone() };
    expect(&several, LimitedBy::Unknown, &["one of 4 threads is full"]);
    let all = Row { local_cpu_ratio: Some(0.99), ..several };
    expect(&all, LimitedBy::SenderCpu, &[]);
}

#[test]
fn a_cpu_full_with_soft_interrupts_counts_on_a_machine_of_its_own() {
    let row = Row {
        local_softirq_peak_id: Some(0),
        remote_softirq_peak_id: Some(7),
        remote_softirq_peak_ratio: Some(0.97),
        ..stream()
    };
    expect(&row, LimitedBy::ReceiverCpu, &["CPU 7 of b spent 97 % of the time in soft interrupts"]);
    let two = Row { same_machine: Some(false), ..row.clone() };
    expect(&two, LimitedBy::ReceiverCpu, &[]);
    for one in [Row { to: Some("embedded".into()), ..row.clone() }, Row { same_machine: Some(true), ..row.clone() }] {
        assert_ne!(answer(&one).by, LimitedBy::ReceiverCpu);
    }
    // Beside other work a thread and the soft interrupts of its CPU may fill it by chance.
    let beside = Row {
        local_thread_busy_ratio: Some(0.65),
        local_thread_softirq_ratio: Some(0.31),
        local_thread_cpu_busy_ratio: Some(1.0),
        remote_softirq_peak_ratio: None,
        ..row
    };
    assert_ne!(answer(&beside).by, LimitedBy::SenderCpu);
}

#[test]
fn a_small_send_buffer_is_named() {
    let row = Row { sndbuf_limited_ratio: Some(0.8), local_send_buffer_bytes: Some(16_384), ..stream() };
    expect(&row, LimitedBy::SendBuffer, &["80 % of the time", "16 KiB", "`socket.send_buffer: 32KiB`"]);
    let mixed = Row { rwnd_limited_ratio: Some(0.3), sndbuf_limited_ratio: Some(0.6), ..row.clone() };
    expect(&mixed, LimitedBy::Unknown, &["both held"]);
    // Its own time aside: 126 kB in flight are what the buffer holds, and the window is larger.
    let full = Row { sndbuf_limited_ratio: Some(0.0), local_send_buffer_bytes: Some(131_072), ..row.clone() };
    expect(&full, LimitedBy::SendBuffer, &["what a send buffer of 128 KiB holds"]);
    expect(&Row { cwnd_bytes: Some(140_000), ..full }, LimitedBy::Unknown, &["may have been full"]);
    let partly = Row { sndbuf_limited_ratio: Some(0.4), ..row.clone() };
    expect(&partly, LimitedBy::Unknown, &["no cause held for most"]);
    // A queue on the path would grow with a larger buffer.
    let queued = Row { rtt_us: Some(60_000.0), ..row };
    expect(&queued, LimitedBy::Unknown, &["a queue stands on the path"]);
}

#[test]
fn a_congestion_window_is_named_if_it_is_what_was_in_flight() {
    // 100 Mbit/s for 10.1 ms are 126 kB.
    let row = Row { cwnd_bytes: Some(127_000), ..stream() };
    expect(&row, LimitedBy::CongestionWindow, &["124 KiB", "10.1 ms"]);
    expect(&Row { cwnd_bytes: Some(1_000_000), ..row.clone() }, LimitedBy::Unknown, &["not what was in flight"]);
    expect(
        &Row { rtt_us: Some(40_000.0), cwnd_bytes: Some(500_000), ..row.clone() },
        LimitedBy::Unknown,
        &["a queue stands"],
    );
    expect(
        &Row { remote_thread_busy_ratio: Some(0.75), ..row.clone() },
        LimitedBy::Unknown,
        &["neither full nor idle"],
    );
    expect(&Row { local_thread_busy_ratio: None, ..row.clone() }, LimitedBy::Unknown, &[]);
    expect(&Row { cwnd_bytes: None, ..row }, LimitedBy::Unknown, &["is not known"]);
}

#[test]
fn loss_is_named_if_it_explains_the_throughput() {
    // By Mathis' formula a loss of 1 % at 10 ms allows some 14 Mbit/s.
    let row = Row {
        throughput_bits_per_s: Some(12e6),
        sent_bits_per_s: Some(12e6),
        bytes_sent: Some(1_500_000),
        retransmits: Some(12),
        ..stream()
    };
    expect(&row, LimitedBy::Loss, &["12 segments were sent again", "1.2 % of all"]);
    let seen = Row { local_qdisc_drops: Some(11), ..row.clone() };
    expect(&seen, LimitedBy::Queue, &["the queueing discipline of a dropped 11 packets"]);
    // A receiver that could not run is no queue that is too short.
    let starved = Row { remote_socket_drops: Some(12), remote_thread_waiting_ratio: Some(0.5), ..row.clone() };
    expect(&starved, LimitedBy::Unknown, &["the receive buffer of b dropped packets"]);
    // So few losses would allow much more.
    let few = Row { throughput_bits_per_s: Some(1e6), ..row.clone() };
    assert_ne!(answer(&few).by, LimitedBy::Loss);
    // Nor is the window the cause that a few losses have made small.
    let handful = Row { retransmits: Some(4), bytes_sent: Some(500_000), sent_bits_per_s: Some(4e6), ..row.clone() };
    let handful = Row { cwnd_bytes: Some(15_000), ..handful };
    expect(&handful, LimitedBy::Unknown, &["so few segments were lost"]);
    let bbr = Row { congestion_control: Some("bbr".into()), ..row.clone() };
    assert_ne!(answer(&bbr).by, LimitedBy::Loss);
    expect(&Row { retransmits: Some(40), ..bbr }, LimitedBy::Loss, &[]);
    let back = Row { direction: Some(Way::Reverse), remote_retransmits: Some(12), ..row };
    expect(&back, LimitedBy::Loss, &["12 segments were sent again"]);
}

#[test]
fn a_receiver_that_could_not_run_is_no_small_window_and_no_loss() {
    let window = |waiting, throttled| Row {
        rwnd_limited_ratio: Some(0.67),
        receive_window_bytes: Some(0),
        remote_thread_busy_ratio: Some(0.09),
        remote_thread_waiting_ratio: Some(waiting),
        remote_throttled_ratio: throttled,
        ..stream()
    };
    expect(&window(0.55, None), LimitedBy::ReceiverCpu, &["waited 55 % for a CPU"]);
    expect(&window(0.05, Some(0.55)), LimitedBy::ReceiverCpu, &["held back up to 55 % by its CPU quota"]);
    expect(&window(0.3, None), LimitedBy::Unknown, &["was ready and could not run 30 % of the time"]);
    expect(&window(0.1, None), LimitedBy::ReceiverWindow, &[]);
    let lossy = |waiting| Row {
        throughput_bits_per_s: Some(12e6),
        sent_bits_per_s: Some(12e6),
        bytes_sent: Some(1_500_000),
        retransmits: Some(12),
        remote_thread_waiting_ratio: Some(waiting),
        ..stream()
    };
    expect(&lossy(0.58), LimitedBy::Unknown, &["1.2 % of the segments were lost", "could not run 58 %"]);
    expect(&Row { local_qdisc_drops: Some(12), ..lossy(0.58) }, LimitedBy::Queue, &["queueing discipline of a"]);
    expect(&lossy(0.14), LimitedBy::Loss, &[]);
}

#[test]
fn pacing_is_named_by_the_plans_rate_and_by_the_kernels() {
    let offered = Row {
        offered_per_s: Some(100e6),
        offered_unit: Some(OfferedUnit::Bits),
        rate_error_ratio: Some(-0.001),
        ..stream()
    };
    expect(&offered, LimitedBy::Pacing, &["the plan offers 100 Mbit/s"]);
    assert_ne!(answer(&Row { rate_error_ratio: Some(-0.2), ..offered.clone() }).by, LimitedBy::Pacing);
    let kept = Row { throughput_bits_per_s: Some(80e6), ..offered };
    assert_ne!(answer(&kept).by, LimitedBy::Pacing, "a queue keeps a part of it");

    let kernel = Row { pacing_rate_bits_per_s: Some(105e6), ..stream() };
    expect(&kernel, LimitedBy::Pacing, &["spaced the segments at 105 Mbit/s", "`socket.pacing_rate`"]);
    // The kernel derives this rate from the window: 1.2 windows per round trip.
    let derived = Row { cwnd_bytes: Some(110_000), ..kernel.clone() };
    assert_ne!(answer(&derived).by, LimitedBy::Pacing);
    let bbr = Row { congestion_control: Some("bbr".into()), ..kernel };
    expect(&Row { pacing_rate_bits_per_s: Some(125e6), ..bbr.clone() }, LimitedBy::Bbr, &["it spaced the segments"]);
    let unbound = Row { pacing_rate_bits_per_s: Some(33e12), ..bbr };
    assert_ne!(answer(&unbound).by, LimitedBy::Bbr);
}

#[test]
fn an_idle_sender_is_the_application_if_its_thread_slept_without_data() {
    let row = Row { busy_ratio: Some(0.3), ..stream() };
    expect(
        &row,
        LimitedBy::Application,
        &["a had nothing to send 70 % of the time", "slept (89 % of the time in all)"],
    );
    // It may have slept while TCP had data.
    expect(&Row { busy_ratio: Some(0.7), ..row.clone() }, LimitedBy::Unknown, &["nothing to send 30 %"]);
    expect(&Row { local_thread_busy_ratio: None, ..row.clone() }, LimitedBy::Unknown, &["could not be looked at"]);
    let waits =
        |waiting| Row { local_thread_waiting_ratio: Some(waiting), local_thread_cpu_id: Some(0), ..row.clone() };
    expect(&waits(0.6), LimitedBy::SenderCpu, &["ran 10 % of the time and waited 60 % for CPU 0"]);
    expect(&waits(0.4), LimitedBy::Unknown, &["of it waiting 40 %"]);
    // A sender that the plan paces sleeps on purpose.
    let paced = Row { offered_per_s: Some(200e6), rate_error_ratio: Some(-0.5), ..row };
    expect(&paced, LimitedBy::Unknown, &["missed the plan's rate"]);
}

#[test]
fn a_stream_over_quic_is_limited_by_what_its_library_tells() {
    expect(&quic(), LimitedBy::Unknown, &["does not tell for what"]);
    let held = Row { quic_blocked: Some(200), ..quic() };
    expect(&held, LimitedBy::ReceiverWindow, &["200 times", "`quic.window`"]);
    let queued = Row { rtt_us: Some(45_000.0), ..held.clone() };
    expect(&queued, LimitedBy::Path, &["100 Mbit/s arrived", "a round trip took 45.0 ms, and 10.0 ms without a queue"]);
    let lossy = Row { quic_lost: Some(3000), quic_loss_ratio: Some(0.03), ..quic() };
    expect(&lossy, LimitedBy::Loss, &["3.0 % of all", "no queue stood"]);
    expect(&Row { rtt_us: Some(45_000.0), ..lossy.clone() }, LimitedBy::Path, &["stood in a queue"]);
    let dropped = Row { remote_socket_drops: Some(2900), ..lossy };
    expect(&dropped, LimitedBy::Queue, &["dropped 2.90 k datagrams", "remote_socket.receive_buffer"]);
    let full = Row { local_thread_busy_ratio: Some(0.99), ..held };
    expect(&full, LimitedBy::SenderCpu, &["99 %"]);
}

#[test]
fn datagrams_are_limited_by_who_drops_them() {
    let lossy = |drops: u64, busy| Row {
        lost: Some(1000),
        loss_ratio: Some(0.2),
        remote_socket_drops: Some(drops),
        remote_thread_busy_ratio: Some(busy),
        ..datagrams()
    };
    expect(&lossy(990, 0.97), LimitedBy::ReceiverCpu, &["thread of b was full", "receive buffer of b dropped 990"]);
    expect(&lossy(990, 0.3), LimitedBy::Queue, &["`remote_socket.receive_buffer`"]);
    expect(&lossy(990, 0.8), LimitedBy::Unknown, &["neither full nor idle"]);
    expect(&lossy(150, 0.3), LimitedBy::Unknown, &["20 % of the datagrams were lost, and neither end says where"]);
    expect(&lossy(990, 0.01), LimitedBy::Unknown, &["hardly ran"]);
    let starved = Row { remote_thread_waiting_ratio: Some(0.3), ..lossy(990, 0.1) };
    expect(&starved, LimitedBy::Unknown, &["waited 30 % of the time for a CPU"]);
    let shaped = Row { local_qdisc_drops: Some(2000), ..lossy(0, 0.3) };
    expect(&shaped, LimitedBy::Queue, &["the queueing discipline of a dropped 2.00 k"]);
    expect(&Row { remote_thread_busy_ratio: None, ..lossy(990, 0.3) }, LimitedBy::Unknown, &["could not be looked at"]);
    let sender = Row { local_thread_busy_ratio: Some(0.99), ..datagrams() };
    expect(&sender, LimitedBy::SenderCpu, &[]);
    // A sender that paces itself in a loop is full, and yet not the limit of what arrives.
    let late = Row { sent_bits_per_s: Some(110e6), throughput_bits_per_s: Some(97e6), ..sender };
    expect(
        &late,
        LimitedBy::Unknown,
        &["97.0 Mbit/s arrived of the 110 Mbit/s that were sent, none was lost, and 12 % was on its way", "in a queue"],
    );
    let reader = Row { remote_thread_busy_ratio: Some(0.99), ..late };
    expect(&reader, LimitedBy::Unknown, &["both ends always ran"]);
    expect(&datagrams(), LimitedBy::Unknown, &["does not tell for what"]);
}

#[test]
fn transactions_wait_for_a_round_trip_unless_a_cpu_is_full() {
    expect(
        &trips(),
        LimitedBy::RoundTrip,
        &["one transaction at a time waited", "49.0 µs", "a worked 20.0 µs", "b worked 17.5 µs)"],
    );
    // The far end answers before the near end is done with its send.
    let overlapping = Row {
        latency_mean_us: Some(35.0),
        transactions_per_s: Some(28_000.0),
        local_thread_busy_ratio: Some(0.55),
        remote_thread_busy_ratio: Some(0.5),
        ..trips()
    };
    expect(&overlapping, LimitedBy::RoundTrip, &["µs, partly at the same time); "]);
    let full =
        Row { remote_thread_busy_ratio: Some(0.97), inflight: Some(32), latency_mean_us: Some(1600.0), ..trips() };
    expect(&full, LimitedBy::ReceiverCpu, &["the data thread of b"]);
    let offered = Row {
        offered_per_s: Some(20_000.0),
        offered_unit: Some(OfferedUnit::Transactions),
        rate_error_ratio: Some(0.0),
        ..trips()
    };
    expect(&offered, LimitedBy::Pacing, &["20.0 k transactions/s"]);
    // Little's law: so few under way, and so many allowed.
    expect(&Row { inflight: Some(16), ..trips() }, LimitedBy::Unknown, &["16 transactions may be under way"]);
    expect(&Row { transactions_per_s: Some(0.0), ..trips() }, LimitedBy::Unknown, &["no transaction"]);
}

#[test]
fn a_full_wire_wins_over_everything_that_waits_for_it() {
    let mut row = Row { rwnd_limited_ratio: Some(0.9), local_thread_busy_ratio: Some(0.99), ..stream() };
    for (ratio, wire) in [(0.97, true), (1.02, true), (0.9, false), (1.4, false)] {
        row.set_number("wire_ratio", Some(ratio));
        let has_column = row.number("wire_ratio").is_some();
        assert_eq!(answer(&row).by == LimitedBy::Wire, wire && has_column, "{ratio}");
    }
}

#[test]
fn evidence_that_is_absent_is_named_and_its_cause_left_out() {
    let blind = Row { local_thread_busy_ratio: None, remote_thread_busy_ratio: None, ..stream() };
    let limit = of(&blind, &["soft interrupts (hidden) at b".to_owned()]).unwrap();
    assert_eq!(limit.by, LimitedBy::Unknown);
    assert!(limit.because.ends_with("; this could not be seen: soft interrupts (hidden) at b"), "{}", limit.because);
    let netserver = Row { control: Some(Control::Netperf), rwnd_limited_ratio: Some(0.9), ..blind };
    expect(
        &netserver,
        LimitedBy::ReceiverWindow,
        &["this could not be seen: threads and drops of b, which is netserver"],
    );
    let short = Row { elapsed_s: Some(0.02), ..stream() };
    expect(&short, LimitedBy::Unknown, &["too coarse for a window of 20.0 ms"]);
}

#[test]
fn a_quota_of_a_reader_that_could_not_be_looked_at_is_said() {
    let mut row = stream();
    for (column, value) in
        [("rwnd_limited_ratio", Some(0.97)), ("remote_throttled_ratio", Some(0.9)), ("remote_thread_busy_ratio", None)]
    {
        row.set_number(column, value);
    }
    expect(&row, LimitedBy::Unknown, &["the sender waited for room at b"]);
}

#[test]
fn rows_of_other_work_have_no_answer() {
    for workload in ["command", "tcp_collective", "nas_is", ""] {
        assert_eq!(of(&Row { workload: Some(workload.into()), ..stream() }, &[]), None, "{workload}");
    }
    assert_eq!(of(&Row { workload: None, ..stream() }, &[]), None);
    assert_eq!(of(&Row { status: Some(Status::Failed), ..stream() }, &[]), None);
    expect(
        &Row { workload: Some("unix_stream".into()), elapsed_s: Some(1.0), ..Row::default() },
        LimitedBy::Unknown,
        &[],
    );
}

#[test]
fn a_window_of_4_kib_is_named_before_the_reader_that_wakes_for_each_segment() {
    let row = Row {
        rwnd_limited_ratio: Some(0.86),
        remote_receive_buffer_bytes: Some(8192),
        receive_window_bytes: Some(1024),
        remote_thread_busy_ratio: Some(0.49),
        remote_thread_waiting_ratio: Some(0.44),
        ..stream()
    };
    expect(
        &row,
        LimitedBy::ReceiverWindow,
        &["86 % of the time; b has a buffer of 8 KiB only", "receive_buffer: 16KiB"],
    );
    let busy = Row { remote_thread_busy_ratio: Some(0.9), remote_thread_waiting_ratio: Some(0.09), ..row.clone() };
    expect(&busy, LimitedBy::ReceiverWindow, &[]);
    expect(&Row { remote_throttled_ratio: Some(0.5), ..row.clone() }, LimitedBy::ReceiverCpu, &["its CPU quota"]);
    expect(
        &Row { remote_receive_buffer_bytes: Some(131_072), ..row.clone() },
        LimitedBy::ReceiverCpu,
        &["waited 44 %"],
    );
    expect(&Row { rwnd_limited_ratio: Some(0.4), ..row }, LimitedBy::ReceiverCpu, &["waited 44 %"]);
}

#[test]
fn a_time_in_which_nothing_arrived_is_no_full_link() {
    let full = Row {
        elapsed_s: Some(8.0),
        bytes_sent: Some(100_000_000),
        delivery_rate_bits_per_s: Some(100e6),
        rtt_us: Some(60_000.0),
        ..stream()
    };
    expect(&full, LimitedBy::Path, &["a link between the ends is full"]);
    let silent = |us| Row { silence_us: Some(us), ..full.clone() };
    expect(&silent(2e6), LimitedBy::Unknown, &["nothing arrived for 2.00 s of 8.00 s: the path was down"]);
    expect(&silent(6e5), LimitedBy::Path, &["nothing arrived for 600 ms; for the rest, a link between the ends"]);
}

proptest! {
    /// Any numbers in any columns: an answer without a panic, with a ratio that is a share.
    #[test]
    fn any_row_has_an_answer_and_a_share(
        which in 0..3_usize,
        cells in prop::collection::vec((0..COLUMNS.len(), prop_oneof![
            Just(0.0), Just(1.0), Just(f64::NAN), Just(1e15), 0.0..1.0, 0.0..1e12, -10.0..10.0,
        ]), 0..40),
        empty in prop::collection::vec(0..COLUMNS.len(), 0..20),
    ) {
        let mut row = [stream, datagrams, trips][which]();
        for (column, value) in cells {
            row.set_number(COLUMNS[column].name, Some(value));
        }
        for column in empty {
            row.set_number(COLUMNS[column].name, None);
        }
        let limit = of(&row, &[]).unwrap();
        prop_assert!(limit.ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "{limit:?}");
        prop_assert!(!limit.because.is_empty() && !limit.because.contains("NaN") && !limit.because.contains(" inf"), "{limit:?}");
    }

    /// Nothing but the workload: no cause.
    #[test]
    fn a_row_without_evidence_names_no_cause(elapsed in 0.0..100.0, bits in 0.0..1e12) {
        for workload in ["tcp_stream", "udp_stream", "unix_stream"] {
            let row = Row {
                workload: Some(workload.into()),
                elapsed_s: Some(elapsed),
                throughput_bits_per_s: Some(bits),
                ..Row::default()
            };
            prop_assert_eq!(of(&row, &[]).unwrap().by, LimitedBy::Unknown);
        }
    }
}
