//! The hot loops as they are, both ends in this process and over real sockets: one iteration is one message or one
//! transaction. Threads are pinned as `CPUS` says (`0,0`: both ends on one CPU), since placement is worth more than
//! anything else.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use netcore::{
    end::End,
    measure::clock::monotonic_ns,
    report::{Ending, Phase, Side},
    spec::{Cpus, Pattern, Stop, TestSpec, Transport},
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the test and gives the length of its measure phase, at the end whose number counts.
fn run(spec: &TestSpec) -> Duration {
    let token = [7; 16];
    let mut far = End::prepare(spec, Side::Far, Some(LOOPBACK), token).unwrap();
    let endpoints = far.endpoints();
    let (near, far) = thread::scope(|scope| {
        let far = scope.spawn(|| {
            far.connect(None, PATIENCE).unwrap();
            far
        });
        let mut near = End::prepare(spec, Side::Near, Some(LOOPBACK), token).unwrap();
        near.connect(Some((LOOPBACK, &endpoints)), PATIENCE).unwrap();
        (near, far.join().unwrap())
    });
    let start_ns = monotonic_ns() + 5_000_000;
    let (near, far) = (near.start(start_ns, None).unwrap(), far.start(start_ns, None).unwrap());
    while !near.wait(Duration::from_secs(1)) {}
    far.stop_at(monotonic_ns());
    let (near, far) = (near.finish(), far.finish());
    assert!(!matches!(near.ending, Ending::Failed(_)) && !matches!(far.ending, Ending::Failed(_)), "{near:?} {far:?}");
    let measured = near.phases.iter().find(|window| window.phase == Phase::Measure).unwrap();
    Duration::from_nanos(measured.elapsed_ns)
}

fn cpus() -> (Cpus, Cpus) {
    let text = std::env::var("CPUS").unwrap_or_else(|_| "0,1".to_owned());
    let (near, far) = text.split_once(',').expect("CPUS is two numbers: 0,1");
    (near.parse().unwrap(), far.parse().unwrap())
}

fn engines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    let (near, far) = cpus();
    let spec = |pattern, transport| {
        let mut spec = TestSpec::new(pattern, transport);
        (spec.near.cpus, spec.far.cpus) = (Some(near.clone()), Some(far.clone()));
        for end in [&mut spec.near, &mut spec.far] {
            if transport == Transport::Tcp {
                // The system's default may be one that paces loopback.
                end.socket.congestion_control = Some("cubic".to_owned());
                end.socket.no_delay = Some(true);
            }
        }
        spec
    };
    for (name, transport) in [("tcp_stream", Transport::Tcp), ("unix_stream", Transport::UnixStream)] {
        let mut spec = spec(Pattern::Stream, transport);
        group.throughput(Throughput::Bytes(spec.sizes.message_bytes));
        group.bench_function(name, |b| {
            b.iter_custom(|messages| {
                spec.phases.stop = Stop::AfterBytes(messages * spec.sizes.message_bytes);
                run(&spec)
            });
        });
    }
    for (name, transport, inflight, coalesce) in [
        ("tcp_rr", Transport::Tcp, 1, false),
        ("tcp_rr 16 in flight", Transport::Tcp, 16, false),
        ("tcp_rr 16 in flight, coalesced", Transport::Tcp, 16, true),
        ("udp_rr", Transport::Udp, 1, false),
        ("unix_rr", Transport::UnixStream, 1, false),
    ] {
        let mut spec = spec(Pattern::RequestResponse, transport);
        (spec.inflight, spec.coalesce) = (inflight, coalesce);
        group.throughput(Throughput::Elements(1));
        group.bench_function(name, |b| {
            b.iter_custom(|transactions| {
                spec.phases.stop = Stop::AfterTransactions(transactions);
                run(&spec)
            });
        });
    }
    for (name, pattern) in [("tcp_cc", Pattern::Connect), ("tcp_crr", Pattern::ConnectRequestResponse)] {
        let mut spec = spec(pattern, Transport::Tcp);
        group.bench_function(name, |b| {
            b.iter_custom(|transactions| {
                spec.phases.stop = Stop::AfterTransactions(transactions);
                run(&spec)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, engines);
criterion_main!(benches);
