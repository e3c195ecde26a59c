//! Streams over every transport that has connections.

use std::{
    io::{Read, Write},
    net::{Ipv6Addr, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use netcore::{
    end::End,
    measure::clock::monotonic_ns,
    report::{Ending, Phase},
    spec::{Bytes, Direction, Io, Pattern, Role, Side, Stop, TestSpec, Transport},
};

use crate::pair::{
    MS, PATIENCE, V4, allowed, connect, finish, join, lasting, locked_memory, measured, meet, phase, prepare, run,
    start, sum, token,
};

fn stream(ms: u64) -> TestSpec {
    lasting(Pattern::Stream, Transport::Tcp, ms)
}

#[test]
fn totals_agree_to_the_byte_in_every_direction() {
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
        let mut spec = stream(100);
        (spec.direction, spec.streams) = (direction, 2);
        let (near, far) = run(&spec, V4);
        assert_eq!(near.totals.len(), spec.flows() as usize);
        for (a, b) in near.totals.iter().zip(&far.totals) {
            assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{direction:?}");
            assert_eq!(b.counts.bytes_sent, a.counts.bytes_received, "{direction:?}");
            let both_ways = direction == Direction::Duplex;
            assert_eq!(a.counts.bytes_sent > 0 && a.counts.bytes_received > 0, both_ways);
            assert_eq!(a.role == Role::Duplex, both_ways);
        }
        assert!(measured(&near).bytes_sent + measured(&far).bytes_sent > 0);
    }
}

#[test]
fn the_kernel_counts_the_same_bytes() {
    let (near, _) = run(&stream(100), V4);
    let total = &near.totals[0];
    // The kernel's count has the preamble of 28 bytes too, and the SYN and the FIN each as a byte.
    assert_eq!(total.tcp_info.unwrap().bytes_acked, Some(total.counts.bytes_sent + 28 + 2));
}

#[test]
fn phases_lie_one_after_the_other_on_one_connection() {
    // So long that a busy machine's sampler misses no edge.
    let mut spec = stream(660);
    (spec.phases.warmup_ns, spec.phases.cooldown_ns, spec.phases.interval_ns) = (300 * MS, 300 * MS, 180 * MS);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (near, far) = connect(&spec, V4).unwrap();
    let t0 = monotonic_ns() + 20 * MS;
    let sink = seen.clone();
    let on_interval = Box::new(move |window: &netcore::report::Window| sink.lock().unwrap().push(window.clone()));
    let running = (near.start(t0, Some(on_interval)).unwrap(), far.start(t0, None).unwrap());
    let (near, far) = finish(running);
    for report in [&near, &far] {
        assert_eq!(report.ending, Ending::Complete);
        let phases: Vec<_> = report.phases.iter().map(|window| window.phase).collect();
        assert_eq!(phases, [Phase::Warmup, Phase::Measure, Phase::Cooldown]);
        for pair in report.phases.windows(2) {
            assert_eq!(pair[0].start_ns + pair[0].elapsed_ns.cast_signed(), pair[1].start_ns);
        }
        assert_eq!(phase(report, Phase::Measure).start_ns, 0);
        // 300 ms are two intervals, 660 are four: the last of each phase is shorter.
        let of = |phase| report.intervals.iter().filter(|window| window.phase == phase).count();
        assert_eq!((of(Phase::Warmup), of(Phase::Measure), of(Phase::Cooldown)), (2, 4, 2));
        for window in &report.phases {
            let intervals = || report.intervals.iter().filter(|interval| interval.phase == window.phase);
            assert_eq!(intervals().map(|interval| interval.elapsed_ns).sum::<u64>(), window.elapsed_ns);
            let bytes: u64 =
                intervals().map(|i| sum(&i.flows)).map(|counts| counts.bytes_sent + counts.bytes_received).sum();
            assert_eq!(bytes, sum(&window.flows).bytes_sent + sum(&window.flows).bytes_received);
        }
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), near.intervals.len());
    for (seen, reported) in seen.iter().zip(&near.intervals) {
        assert_eq!((seen.elapsed_ns, &seen.flows), (reported.elapsed_ns, &reported.flows));
    }
}

#[test]
fn a_count_of_bytes_is_met_exactly() {
    let mut spec = stream(0);
    (spec.streams, spec.phases.stop) = (3, Stop::AfterBytes(10_000_001));
    let (near, far) = run(&spec, V4);
    assert_eq!(measured(&near).bytes_sent, 10_000_001);
    assert_eq!(measured(&far).bytes_received, 10_000_001);
    spec.phases.warmup_ns = 20 * MS;
    let (near, far) = run(&spec, V4);
    assert_eq!(measured(&near).bytes_sent, 10_000_001);
    assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
}

#[test]
fn every_io_method_moves_the_same_bytes_unchanged() {
    let _memory = locked_memory();
    let calls = [Io::Auto, Io::Blocking, Io::Nonblocking, Io::Spin];
    let pages = [Io::Sendfile, Io::Splice, Io::Vmsplice, Io::Zerocopy];
    for io in allowed(&[calls, pages].concat()) {
        let mut spec = stream(0);
        (spec.io, spec.integrity, spec.sizes.message_bytes) = (io, true, 100_001);
        (spec.near.buffers.ring, spec.phases.stop) = (3, Stop::AfterBytes(10_000_100));
        let (near, far) = run(&spec, V4);
        assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received, "{io:?}");
        assert_eq!(measured(&far).bytes_received, 10_000_100, "{io:?}");
        let name = if io == Io::Auto { "blocking" } else { io.name() };
        assert_eq!((near.io.as_str(), far.io.as_str()), (name, name));
    }
}

#[test]
fn wrong_bytes_are_noticed() {
    let mut spec = stream(1000);
    spec.integrity = true;
    let mut wrong = spec.clone();
    wrong.payload = netcore::spec::Payload::Zero;
    // The ends run from different specifications, as after an error in memory.
    let (_, far) = finish(start(meet(&wrong, &spec, V4).unwrap()));
    let Ending::Failed(sentence) = far.ending else { panic!("{:?}", far.ending) };
    assert!(sentence.contains("wrong data: byte 0 "), "{sentence}");
}

#[test]
fn calls_are_timed_on_request() {
    let mut spec = stream(50);
    spec.collect.latency = true;
    let (near, far) = run(&spec, V4);
    for (report, kind) in [(&near, "send"), (&far, "receive")] {
        let flow = &phase(report, Phase::Measure).flows[0];
        assert_eq!(flow.latencies.len(), 1);
        assert_eq!(flow.latencies[0].kind, kind);
    }
}

#[test]
fn ipv6_and_one_address_for_both_families() {
    let (near, far) = run(&stream(30), Ipv6Addr::LOCALHOST.into());
    assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
    let mut spec = stream(30);
    spec.family = netcore::spec::Family::V6;
    let error = connect(&spec, V4).err().unwrap().to_string();
    assert!(error.contains("IPv6"), "{error}");
}

#[test]
fn a_stranger_is_dropped_and_delays_no_flow() {
    let spec = stream(50);
    let (near, far, endpoints) = prepare(&spec, &spec, None, V4).unwrap();
    let address = (V4, endpoints.ports[0]);
    let mut silent = TcpStream::connect(address).unwrap();
    let mut liar = TcpStream::connect(address).unwrap();
    liar.write_all(&[b'x'; 28]).unwrap();
    let ends = join((near, far), &endpoints, V4).unwrap();
    // Both are closed by now: an end of the stream or a reset, but no byte.
    for stranger in [&mut silent, &mut liar] {
        stranger.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(!matches!(stranger.read(&mut [0]), Ok(1..)));
    }
    let (near, far) = finish(start(ends));
    assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
}

#[test]
fn missing_connections_are_counted_at_the_deadline() {
    let mut far = End::prepare(&stream(50), Side::Far, Some(V4), token()).unwrap();
    let error = far.connect(None, Duration::from_millis(50)).unwrap_err().to_string();
    assert!(error.contains("0 of 1 data connections"), "{error}");
}

#[test]
fn a_blocked_sender_and_a_waiting_receiver_can_be_freed() {
    let spec = stream(3_600_000);
    let (near, far) = connect(&spec, V4).unwrap();
    // The far end never reads: its threads are not started until an hour from now.
    let near = near.start(monotonic_ns(), None).unwrap();
    let far = far.start(monotonic_ns() + 3_600_000 * MS, None).unwrap();
    thread::sleep(Duration::from_millis(100));
    near.abort();
    far.abort();
    assert!(near.wait(PATIENCE) && far.wait(PATIENCE));
    let (near, far) = (near.finish(), far.finish());
    assert!(matches!(near.ending, Ending::Failed(_)) && matches!(far.ending, Ending::Failed(_)));
}

#[test]
fn an_early_stop_is_whole() {
    let mut spec = stream(60_000);
    spec.phases.cooldown_ns = 60_000 * MS;
    let (near, far) = start(connect(&spec, V4).unwrap());
    thread::sleep(Duration::from_millis(100));
    near.stop_at(monotonic_ns() + 10 * MS);
    let (near, far) = finish((near, far));
    assert_eq!(near.ending, Ending::Stopped);
    assert_eq!(far.ending, Ending::Stopped);
    assert_eq!(near.phases.len(), 1);
    assert!(phase(&near, Phase::Measure).elapsed_ns > 50 * MS);
    assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
}

#[test]
fn a_peer_that_resets_is_a_failure() {
    let spec = stream(60_000);
    let (near, far) = start(connect(&spec, V4).unwrap());
    thread::sleep(Duration::from_millis(50));
    drop(far);
    let near = near.finish();
    let Ending::Failed(sentence) = near.ending else { panic!("{:?}", near.ending) };
    assert!(sentence.starts_with("flow 0 cannot send: "), "{sentence}");
}

#[test]
fn a_missing_congestion_control_is_refused() {
    let mut spec = stream(50);
    spec.near.socket.congestion_control = Some("warp".into());
    let error = connect(&spec, V4).err().unwrap().to_string();
    assert!(error.contains("`warp` is not available"), "{error}");
}

#[test]
fn granted_options_are_in_the_report() {
    let mut spec = stream(50);
    spec.near.socket.send_buffer = Some(Bytes(100_000));
    spec.far.socket.congestion_control = Some("reno".into());
    let (near, far) = run(&spec, V4);
    let granted = |report: &netcore::report::SideReport, name: &str| {
        report.options.iter().find(|granted| granted.option == name).unwrap().clone()
    };
    assert_eq!(granted(&near, "send_buffer").requested.as_deref(), Some("100000"));
    assert_eq!(granted(&near, "send_buffer").at_end.as_deref(), Some("200000"));
    assert_eq!(granted(&far, "congestion_control").at_end.as_deref(), Some("reno"));
    assert!(granted(&far, "mss").at_end.unwrap().parse::<u32>().unwrap() > 1000);
}

#[test]
fn pinned_threads_run_where_they_are_told() {
    // By a count: a busy machine keeps a thread that must stay on one CPU waiting for longer than a short test.
    let mut spec = stream(30);
    spec.phases.stop = Stop::AfterBytes(1_000_000);
    spec.near.cpus = Some("0".parse().unwrap());
    let (near, far) = run(&spec, V4);
    assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
    let evidence = phase(&near, Phase::Measure).evidence.clone().unwrap();
    assert!(evidence.thread.is_none_or(|thread| thread.cpu == 0), "{evidence:?}");
    // The far end waits for its data, so the failure is what ends the test.
    spec.near.cpus = Some("1023".parse().unwrap());
    let (near, _) = finish(start(connect(&spec, V4).unwrap()));
    let Ending::Failed(sentence) = near.ending else { panic!("{:?}", near.ending) };
    assert!(sentence.contains("CPU 1023"), "{sentence}");
}

#[test]
fn cpu_use_is_in_every_phase() {
    let (near, _) = run(&stream(300), V4);
    let cpu = phase(&near, Phase::Measure).cpu.clone().unwrap();
    assert!(cpu.busy > 0.0 && cpu.busy <= 1.0, "{cpu:?}");
}
