//! The hot loops as they are, both ends in this process and over real sockets: one iteration is one message or one
//! transaction. Threads are pinned as `CPUS` says (`0,0`: both ends on one CPU), since placement is worth more than
//! anything else.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use criterion::{Criterion, Throughput, criterion_group};
use netcore::{
    end::End,
    measure::clock::monotonic_ns,
    report::{Ending, Phase},
    spec::{Cpus, Pattern, Side, Stop, TestSpec, Transport},
};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
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

/// The loops by name. The number of operations is set for each run.
fn loops() -> Vec<(&'static str, TestSpec)> {
    use Pattern::{Connect, ConnectRequestResponse, RequestResponse, Stream};
    let (near, far) = cpus();
    let spec = |pattern, transport, inflight, coalesce| {
        let mut spec = TestSpec::new(pattern, transport);
        (spec.near.cpus, spec.far.cpus) = (Some(near.clone()), Some(far.clone()));
        (spec.inflight, spec.coalesce) = (inflight, coalesce);
        for end in [&mut spec.near, &mut spec.far] {
            if transport == Transport::Tcp {
                // The system's default may be one that paces loopback.
                end.socket.congestion_control = Some("cubic".to_owned());
                end.socket.no_delay = Some(true);
            }
        }
        spec
    };
    vec![
        ("tcp_stream", spec(Stream, Transport::Tcp, 1, false)),
        ("unix_stream", spec(Stream, Transport::UnixStream, 1, false)),
        ("udp_stream", spec(Stream, Transport::Udp, 1, false)),
        ("tcp_rr", spec(RequestResponse, Transport::Tcp, 1, false)),
        ("tcp_rr 16 in flight", spec(RequestResponse, Transport::Tcp, 16, false)),
        ("tcp_rr 16 in flight, coalesced", spec(RequestResponse, Transport::Tcp, 16, true)),
        ("udp_rr", spec(RequestResponse, Transport::Udp, 1, false)),
        ("unix_rr", spec(RequestResponse, Transport::UnixStream, 1, false)),
        ("tcp_cc", spec(Connect, Transport::Tcp, 1, false)),
        ("tcp_crr", spec(ConnectRequestResponse, Transport::Tcp, 1, false)),
    ]
}

/// Stops the test after this number of messages or transactions.
fn after(spec: &TestSpec, operations: u64) -> Stop {
    match spec.pattern {
        Pattern::Stream => Stop::AfterBytes(operations * spec.sizes.message_bytes),
        _ => Stop::AfterTransactions(operations),
    }
}

fn engines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    for (name, mut spec) in loops() {
        group.throughput(match spec.pattern {
            Pattern::Stream => Throughput::Bytes(spec.sizes.message_bytes),
            _ => Throughput::Elements(1),
        });
        group.bench_function(name, |b| {
            b.iter_custom(|operations| {
                spec.phases.stop = after(&spec, operations);
                run(&spec)
            });
        });
    }
    group.finish();
}

/// `--once LOOP OPERATIONS`: that loop alone, without criterion. Prints the time and the processor time (user and system, of
/// everything that both ends did) of an operation, nanoseconds; tests/bench/counters counts its instructions too.
fn once(name: &str, operations: u32) {
    let (_, mut spec) = loops().into_iter().find(|(known, _)| *known == name).expect("the name of a loop");
    spec.phases.stop = after(&spec, operations.into());
    let cpu_us = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
    };
    let before_us = cpu_us();
    let elapsed = run(&spec);
    let cpu = Duration::from_micros((cpu_us() - before_us).try_into().unwrap());
    println!("{} {}", (elapsed / operations).as_nanos(), (cpu / operations).as_nanos());
}

criterion_group!(benches, engines);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, name, operations] = arguments.as_slice()
        && option == "--once"
    {
        return once(name, operations.parse().expect("a number of operations"));
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
