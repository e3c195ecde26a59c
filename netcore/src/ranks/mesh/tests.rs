use std::{
    io::Write,
    net::{Ipv4Addr, TcpStream},
    sync::Barrier,
    time::Duration,
};

use super::{Listening, *};
use crate::{
    ranks::{
        Endpoints,
        collectives::{part, tests::each_way},
    },
    spec::{
        Transport,
        quantity::BitsPerSecond,
        ranks::{Operation, RanksSpec, Work},
    },
    sys::opt,
    transport::{Deadline, control_port::DataPorts},
};

const LONG: Duration = Duration::from_mins(1);

fn spec() -> RanksSpec {
    let work = Work::Operation { operation: Operation::Barrier, message_bytes: 0, compute_ns: 0 };
    RanksSpec::new(Transport::Tcp, work)
}

fn listening(size: usize, spec: &RanksSpec) -> (Vec<Listening>, Vec<(IpAddr, Endpoints)>) {
    let loopback = Ipv4Addr::LOCALHOST.into();
    let listening: Vec<_> =
        (0..size).map(|rank| Listening::new(spec, rank, (Some(loopback), &DataPorts::Any), [7; 16]).unwrap()).collect();
    let endpoints = listening.iter().map(|each| (loopback, each.endpoints())).collect();
    (listening, endpoints)
}

/// Runs `each` on a thread per rank, over connections within this machine.
pub fn run<T: Send>(size: usize, each: impl Fn(Mesh) -> T + Sync) -> Vec<T> {
    run_with(&spec(), size, each)
}

fn run_with<T: Send>(spec: &RanksSpec, size: usize, each: impl Fn(Mesh) -> T + Sync) -> Vec<T> {
    let (listening, endpoints) = listening(size, spec);
    let (each, endpoints) = (&each, &endpoints);
    thread::scope(|scope| {
        let start = |rank: Listening| {
            scope.spawn(move || each(rank.connect(endpoints, &Deadline::after(LONG, &|| false)).unwrap()))
        };
        let threads: Vec<_> = listening.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn operations_get_the_naive_result_over_connections() {
    for size in [2, 3, 4, 7, 8] {
        run(size, |mut mesh| {
            for message in [1, 61, 3000] {
                each_way(&mut mesh, message);
            }
            part(&mut mesh).unwrap();
        });
    }
}

/// Messages that no socket's buffer takes at once, in both directions.
#[test]
fn long_messages_pass_each_other() {
    run(3, |mut mesh| {
        let (next, last) = ((mesh.rank() + 1) % 3, (mesh.rank() + 2) % 3);
        let bytes = vec![u8::try_from(mesh.rank()).unwrap(); 20_000_000];
        let mut buffer = vec![9; bytes.len()];
        mesh.exchange(next, &bytes, last, &mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| usize::from(*byte) == last));
        // And between the same two.
        if mesh.rank() < 2 {
            let partner = 1 - mesh.rank();
            mesh.exchange(partner, &bytes, partner, &mut buffer).unwrap();
            assert!(buffer.iter().all(|byte| usize::from(*byte) == partner));
        }
        part(&mut mesh).unwrap();
    });
}

/// Rank 3 leaves. Rank 2 waits for it, rank 1 for rank 2, and rank 0 sends to rank 1 until its buffers are full.
#[test]
fn all_ranks_name_the_one_that_has_left() {
    let (all, know) = (Barrier::new(4), Barrier::new(3));
    let errors = run(4, |mut mesh| {
        let rank = mesh.rank();
        all.wait();
        let error = match rank {
            3 => return String::new(),
            0 => mesh.send(1, &vec![0; 50_000_000]),
            _ => mesh.receive(rank + 1, &mut [0; 8]),
        };
        // The connections stay until every rank knows the reason.
        know.wait();
        error.unwrap_err().to_string()
    });
    for error in &errors[..3] {
        assert_eq!(error, "rank 3 is gone: it has closed its connections");
    }
}

#[test]
fn an_abort_frees_a_rank_from_any_call() {
    for call in 0..4 {
        run(2, |mut mesh| {
            if mesh.rank() == 1 {
                // Not before the other one is free.
                let _ = mesh.receive(0, &mut vec![0; 50_000_001]);
                return;
            }
            let guard = mesh.guard().clone();
            let aborting = thread::spawn(move || {
                thread::sleep(Duration::from_millis(30));
                guard.abort();
            });
            let long = vec![0; 50_000_000];
            let freed = match call {
                0 => mesh.receive(1, &mut [0; 8]),
                1 => mesh.send(1, &long).and_then(|()| mesh.send(1, &long)).and_then(|()| mesh.receive(1, &mut [0])),
                2 => mesh.exchange(1, &long, 1, &mut [0; 8]).and_then(|()| mesh.receive(1, &mut [0])),
                _ => mesh.guard().sleep_until(u64::MAX),
            };
            assert!(matches!(freed, Err(RankError::Aborted)), "{call}: {freed:?}");
            aborting.join().unwrap();
        });
    }
}

#[test]
fn strangers_are_dropped_and_a_missing_rank_is_waited_for_in_vain() {
    let (mut ranks, endpoints) = listening(2, &spec());
    let port = endpoints[0].1.ports[0];
    let mut strangers: Vec<_> = (0..3).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()).collect();
    strangers[1].write_all(&[7; 28]).unwrap();
    let second = ranks.pop().unwrap();
    let first = ranks.pop().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| first.connect(&endpoints, &Deadline::after(LONG, &|| false)).unwrap());
        let mut second = second.connect(&endpoints, &Deadline::after(LONG, &|| false)).unwrap();
        let mut first = first.join().unwrap();
        first.send(1, b"hello").unwrap();
        let mut buffer = [0; 5];
        second.receive(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"hello");
    });
    let (mut ranks, endpoints) = listening(2, &spec());
    let alone = ranks.swap_remove(0);
    let cancelled = alone.connect(&endpoints, &Deadline::after(LONG, &|| true)).err().unwrap();
    assert!(matches!(cancelled, EndError::Cancelled), "{cancelled}");
    let (mut ranks, endpoints) = listening(2, &spec());
    let missed = ranks.swap_remove(0).connect(&endpoints, &Deadline::after(Duration::from_millis(60), &|| false));
    let missed = missed.err().unwrap().to_string();
    assert!(missed.contains("0 of 1 data connections were made within 0.06 s"), "{missed}");
}

/// Also at the end that accepts, which gets its options from the listening socket.
#[test]
fn both_ends_of_a_connection_have_the_options() {
    let mut spec = spec();
    spec.socket.pacing_rate = Some(BitsPerSecond(8_000_000_000));
    let granted = run_with(&spec, 2, |mut mesh| {
        let mut rate = [0; 8];
        opt::get(mesh.socket(1 - mesh.rank), opt::SO_MAX_PACING_RATE, &mut rate).unwrap();
        let no_delay = opt::get_int(mesh.socket(1 - mesh.rank), opt::TCP_NODELAY).unwrap();
        part(&mut mesh).unwrap();
        (u64::from_ne_bytes(rate), no_delay)
    });
    assert_eq!(granted, [(1_000_000_000, 1); 2]);
}
