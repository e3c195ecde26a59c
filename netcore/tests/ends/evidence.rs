//! Evidence on what held an end back, as its report has it.

use netcore::{
    report::{Evidence, Phase, SideReport},
    spec::{Bytes, Pattern, Stop, Transport},
};

use crate::pair::{MS, V4, lasting, phase, run, sum, undisturbed};

fn evidence(report: &SideReport) -> &Evidence {
    phase(report, Phase::Measure).evidence.as_ref().unwrap()
}

/// Whether both edges of the window were read within one tick of the kernel's CPU times, as on a busy machine.
fn has_no_tick(evidence: &Evidence) -> bool {
    evidence.missing.iter().any(|what| what == "soft interrupts (/proc/stat counted no time)")
}

#[test]
fn each_end_watches_its_own_threads_only() {
    for (streams, threads) in [(3, None), (6, Some(2))] {
        let mut spec = lasting(Pattern::Stream, Transport::Tcp, 300);
        (spec.streams, spec.threads) = (streams, threads);
        let (near, far) = run(&spec, V4);
        for report in [&near, &far] {
            let evidence = evidence(report);
            let thread = evidence.thread.unwrap();
            assert_eq!(thread.threads, threads.unwrap_or(streams), "{thread:?}");
            let was_busy = thread.cpu_busy.map_or_else(|| has_no_tick(evidence), |busy| busy > 0.0);
            assert!(thread.busy > 0.0 && thread.busy <= 1.0 && was_busy, "{thread:?}");
            assert!((0.0..=1.0).contains(&thread.waiting.unwrap()), "{thread:?}");
            assert_eq!(evidence.missing.len(), usize::from(has_no_tick(evidence)), "{evidence:?}");
            let drops = evidence.drops;
            assert!(drops.qdisc.is_some() && drops.interface.is_some() && drops.softnet.is_some(), "{drops:?}");
            assert!(drops.socket.is_some() && evidence.ce_packets.is_some(), "{evidence:?}");
        }
        let known = near.phases[0].flows.iter().map(|flow| flow.tcp_info.unwrap().limits.unwrap());
        for limits in known {
            // A reader that a busy machine kept waiting has no window to offer.
            assert!(limits.app_limited.is_some() && limits.peer_window_bytes.is_some(), "{limits:?}");
        }
    }
}

#[test]
fn threads_that_have_left_are_known_too() {
    for pattern in [Pattern::Stream, Pattern::RequestResponse, Pattern::Connect] {
        let mut spec = lasting(pattern, Transport::Tcp, 0);
        let bytes = Stop::AfterBytes(200_000_000);
        spec.phases.stop = if pattern == Pattern::Stream { bytes } else { Stop::AfterTransactions(3000) };
        let (near, far) = run(&spec, V4);
        for report in [&near, &far] {
            let thread = evidence(report).thread.unwrap();
            // So much cannot be done in less CPU time, however long the thread waited for its CPU meanwhile.
            let busy_s = thread.busy * phase(report, Phase::Measure).elapsed_ns as f64 / 1e9;
            assert!(busy_s > 0.001, "{pattern:?}, {:?}: {busy_s} s, {thread:?}", report.side);
        }
    }
}

#[test]
fn intervals_have_no_evidence_and_neither_has_a_test_that_does_not_collect_it() {
    let mut spec = lasting(Pattern::Stream, Transport::Tcp, 200);
    (spec.phases.warmup_ns, spec.phases.interval_ns) = (100 * MS, 50 * MS);
    let (near, far) = run(&spec, V4);
    for report in [&near, &far] {
        assert!(report.phases.iter().all(|window| window.evidence.is_some()), "the warm-up is a phase");
        let of_intervals = || report.intervals.iter().chain(&report.intervals).flat_map(|window| &window.flows);
        assert!(report.intervals.len() > 2 && report.intervals.iter().all(|window| window.evidence.is_none()));
        for info in of_intervals().flat_map(|flow| flow.tcp_at_start.iter().chain(&flow.tcp_info)) {
            assert_eq!(info.limits, None);
        }
    }
    spec.collect.limits = false;
    let (near, far) = run(&spec, V4);
    for window in near.phases.iter().chain(&far.phases) {
        assert!(window.evidence.is_none());
        assert!(window.flows.iter().all(|flow| flow.tcp_info.unwrap().limits.is_none()));
    }
    assert!(near.phases.iter().chain(&far.phases).any(|window| window.cpu.is_some()), "its ticks are not evidence");
    // The evidence needs the CPUs' ticks, which the report then does not show.
    (spec.collect.limits, spec.collect.cpu) = (true, false);
    let (near, _) = run(&spec, V4);
    assert!(phase(&near, Phase::Measure).cpu.is_none());
    assert!(evidence(&near).softirq_peak.is_some() || has_no_tick(evidence(&near)));
}

#[test]
fn a_receivers_small_buffer_drops_what_is_lost() {
    let mut spec = lasting(Pattern::Stream, Transport::Udp, 0);
    spec.sizes.message_bytes = 1000;
    spec.phases.stop = Stop::AfterBytes(50_000_000);
    spec.far.socket.receive_buffer = Some(Bytes(4096));
    // A busy machine may read the counters at the edges of the window some drops late.
    undisturbed(|| {
        let (near, far) = run(&spec, V4);
        let lost = sum(&near.totals).messages_sent - sum(&far.totals).messages_received;
        assert!(lost > 0, "a buffer of a few datagrams must overflow");
        // The queue of a CPU may overflow before the socket's. Its drops are those of all programs.
        let drops = &evidence(&far).drops;
        let (socket, all) = (drops.socket.unwrap(), drops.socket.unwrap() + drops.softnet.unwrap());
        assert_eq!(evidence(&near).drops.socket, Some(0));
        let is_exact = socket > 0 && (socket..=all).contains(&lost);
        is_exact.then_some(()).ok_or_else(|| format!("{lost} lost, {drops:?}"))
    });
}

#[test]
fn what_has_no_socket_or_interface_has_no_drops_of_them() {
    let (near, far) = run(&lasting(Pattern::Stream, Transport::Pipe, 100), V4);
    for report in [&near, &far] {
        let evidence = evidence(report);
        let drops = evidence.drops;
        assert_eq!((drops.qdisc, drops.interface, drops.softnet, drops.socket), (None, None, None, None));
        assert_eq!((evidence.ce_packets, evidence.thread.unwrap().threads), (None, 1));
        assert_eq!(evidence.missing.len(), usize::from(has_no_tick(evidence)), "{evidence:?}");
    }
}
