//! The cost of measuring, per operation inside the loops and per reading at an edge.

use std::{
    hint::black_box,
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use criterion::{Criterion, criterion_group, criterion_main};
use netcore::{
    measure::{
        clock::monotonic_ns,
        cpu::CpuReader,
        histogram::{HistogramSlot, Recorder},
        sample::EvidenceReader,
        tcp_info,
    },
    spec::Transport,
};

fn per_operation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("per operation");
    group.bench_function("clock", |b| b.iter(|| black_box(monotonic_ns())));
    // A transaction's share: one look at the epoch, one clock read, one latency, and its counters stored.
    group.bench_function("timed transaction", |b| {
        let (slot, epoch, counters) =
            (Arc::<HistogramSlot>::default(), AtomicU64::new(0), [const { AtomicU64::new(0) }; 4]);
        let mut recorder = Recorder::new(slot, 0);
        let (mut last, mut count) = (monotonic_ns(), 0);
        b.iter(|| {
            let now = monotonic_ns();
            recorder.record(black_box(&epoch).load(Relaxed), now - last);
            last = now;
            count += 1;
            for counter in black_box(&counters) {
                counter.store(count, Relaxed);
            }
        });
    });
    // A stream's share: no clock.
    group.bench_function("counted message", |b| {
        let (limit, counters) = (AtomicU64::new(u64::MAX), [const { AtomicU64::new(0) }; 2]);
        let mut count = 0_u64;
        b.iter(|| {
            count += 1;
            for counter in black_box(&counters) {
                counter.store(count, Relaxed);
            }
            black_box(count < black_box(&limit).load(Relaxed))
        });
    });
    group.finish();
}

fn per_edge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("per edge");
    group.bench_function("cpu", |b| {
        let mut reader = CpuReader::open().unwrap();
        b.iter(|| reader.read().unwrap());
    });
    group.bench_function("tcp_info", |b| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        b.iter(|| tcp_info::read(near.as_fd(), true).unwrap());
    });
    // All readings of an edge of a phase that are about limits, with those that it had before.
    for flows in [1, 64] {
        group.bench_function(format!("evidence, {flows} flows"), |b| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near: Vec<Arc<OwnedFd>> = (0..flows)
                .map(|_| Arc::new(OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap())))
                .collect();
            let mut evidence = EvidenceReader::open(Transport::Tcp, Some("lo"), near.clone());
            let (mut cpu, over) = (CpuReader::open().unwrap(), Barrier::new(flows + 1));
            let ready = Barrier::new(flows + 1);
            thread::scope(|scope| {
                for _ in 0..flows {
                    let tasks = evidence.tasks();
                    let (ready, over) = (&ready, &over);
                    scope.spawn(move || {
                        let _entered = tasks.enter();
                        ready.wait();
                        over.wait();
                    });
                }
                ready.wait();
                b.iter(|| {
                    let known: Vec<_> = near.iter().map(|socket| tcp_info::read(socket.as_fd(), true)).collect();
                    (known, cpu.read().unwrap(), evidence.read())
                });
                over.wait();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, per_operation, per_edge);
criterion_main!(benches);
