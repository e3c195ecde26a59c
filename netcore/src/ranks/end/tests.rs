use std::net::Ipv4Addr;

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use super::*;
use crate::{
    measure::clock::monotonic_ns,
    ranks::check,
    spec::{
        Stop, Transport,
        ranks::{Class, Kernel, Operation},
    },
};

const LONG: Duration = Duration::from_mins(1);

fn spec(operation: Operation, message_bytes: u64) -> RanksSpec {
    let mut spec = RanksSpec::new(Transport::Tcp, Work::Operation { operation, message_bytes, compute_ns: 0 });
    spec.stop = Stop::AfterTransactions(50);
    spec.integrity = true;
    spec
}

/// Connected ranks within this process.
fn connected(spec: &RanksSpec, size: usize) -> Vec<RankEnd> {
    let loopback = Ipv4Addr::LOCALHOST.into();
    let mut ends: Vec<_> = (0..size)
        .map(|rank| RankEnd::prepare(spec, rank, (Some(loopback), &DataPorts::Any), [1; 16]).unwrap())
        .collect();
    let peers: Vec<_> = ends.iter().map(|end| (loopback, end.endpoints())).collect();
    thread::scope(|scope| {
        for end in &mut ends {
            scope.spawn(|| end.connect(&peers, LONG, &|| false).unwrap());
        }
    });
    ends
}

fn started(spec: &RanksSpec, size: usize) -> Vec<RankRunning> {
    let t0_ns = monotonic_ns() + 5_000_000;
    connected(spec, size).into_iter().map(|end| end.start(t0_ns).unwrap()).collect()
}

fn reports(spec: &RanksSpec, size: usize) -> Vec<RankReport> {
    started(spec, size).into_iter().map(RankRunning::finish).collect()
}

#[test]
fn every_operation_has_a_report_of_each_rank() {
    for &operation in Operation::ALL {
        for (rank, report) in reports(&spec(operation, 64), 4).into_iter().enumerate() {
            assert_eq!(report.ending, Ending::Complete, "{operation:?}");
            assert_eq!((report.rank as usize, report.operations, report.instants.len()), (rank, 50, 50));
            assert_eq!(histogram::decode(&report.histogram).unwrap().len(), 50);
            assert!(report.min_ns > 0 && report.sum_ns >= 50 * report.min_ns && report.elapsed_ns >= report.sum_ns);
            assert_eq!(report.communication_ns, report.sum_ns);
            assert_eq!(report.nic.unwrap().name, "lo");
        }
    }
}

#[test]
fn messages_and_bytes_are_those_of_the_operation() {
    let reports = reports(&spec(Operation::Scatter, 100_000), 3);
    let traffic: Vec<_> = reports.iter().map(|report| report.traffic.unwrap()).collect();
    assert_eq!((traffic[0].messages_sent, traffic[0].bytes_sent, traffic[0].bytes_received), (100, 10_000_000, 0));
    assert_eq!((traffic[2].messages_received, traffic[2].bytes_received), (50, 5_000_000));
    assert_eq!(reports[0].algorithm, "linear");
}

#[test]
fn busy_time_is_no_communication() {
    let mut spec = spec(Operation::Ring, 8);
    spec.work = Work::Operation { operation: Operation::Ring, message_bytes: 8, compute_ns: 2_000_000 };
    spec.stop = Stop::AfterTransactions(5);
    for report in reports(&spec, 2) {
        assert!(report.sum_ns >= report.communication_ns + 10_000_000, "{report:?}");
        let busy = report.thread.unwrap().busy;
        assert!(busy * report.elapsed_ns as f64 >= 9e6, "{report:?}");
    }
}

#[test]
fn ranks_that_share_a_cpu_wait_for_it() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap()).unwrap();
    // Threads begin where the thread that starts them may run.
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let mut spec = spec(Operation::Ring, 8);
    spec.work = Work::Operation { operation: Operation::Ring, message_bytes: 8, compute_ns: 40_000_000 };
    spec.stop = Stop::AfterTransactions(5);
    let threads: Vec<_> = reports(&spec, 2).into_iter().map(|report| report.thread.unwrap()).collect();
    sched_setaffinity(Pid::from_raw(0), &allowed).unwrap();
    if threads[0].waiting.is_none() {
        return; // This kernel does not count it.
    }
    // One of two has the CPU while the other waits for it.
    assert!(threads.iter().all(|thread| thread.waiting > Some(0.1)), "{threads:?}");
    assert!(threads.iter().map(|thread| thread.busy).sum::<f64>() < 1.1, "{threads:?}");
}

#[test]
fn a_busy_rank_is_given_up_at_once() {
    let mut spec = spec(Operation::Ring, 8);
    spec.work = Work::Operation { operation: Operation::Ring, message_bytes: 8, compute_ns: u64::MAX };
    let running = started(&spec, 2);
    assert!(check(&spec, 2, u64::MAX).unwrap_err().to_string().contains("is more than 10 s"));
    running.iter().for_each(RankRunning::abort);
    for rank in running {
        assert!(matches!(rank.finish().ending, Ending::Failed(_)));
    }
}

#[test]
fn a_kernel_is_one_operation() {
    let mut spec = spec(Operation::Barrier, 0);
    spec.work = Work::Nas { kernel: Kernel::Is, class: Class::S };
    assert!(super::super::memory_bytes(&spec, 2) > 1 << 18);
    for report in reports(&spec, 2) {
        assert_eq!((report.ending, report.operations, report.instants.len()), (Ending::Complete, 1, 1));
        let result = report.nas.unwrap();
        assert_eq!((result.checks, result.passed), (52, 52));
        assert!(report.communication_ns > 0 && report.communication_ns <= report.sum_ns);
        assert!(report.sum_ns <= result.timed_ns && report.traffic.unwrap().messages_sent > 0);
    }
}

#[test]
fn a_request_stops_all_ranks_and_the_descriptor_tells() {
    let mut spec = spec(Operation::Barrier, 0);
    spec.stop = Stop::AfterNs(3_600_000_000_000);
    let running = started(&spec, 3);
    assert!(!running[0].is_finished());
    running[0].stop_at(monotonic_ns() + 20_000_000);
    let mut fds = [PollFd::new(running[2].as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::try_from(LONG).unwrap()), Ok(1));
    assert!(running[2].is_finished());
    let endings: Vec<_> = running.into_iter().map(|rank| rank.finish().ending).collect();
    assert_eq!(endings, [Ending::Stopped, Ending::Stopped, Ending::Stopped]);
}

#[test]
fn a_rank_that_is_given_up_is_named_by_the_others() {
    let mut spec = spec(Operation::Alltoall, 1000);
    spec.stop = Stop::AfterNs(3_600_000_000_000);
    let mut running = started(&spec, 3);
    thread::sleep(Duration::from_millis(30));
    let given_up = running.remove(1);
    given_up.abort();
    assert_eq!(given_up.finish().ending, Ending::Failed("the test was given up".to_owned()));
    for rank in running {
        let ending = rank.finish().ending;
        assert_eq!(ending, Ending::Failed("rank 1 is gone: it has closed its connections".to_owned()));
    }
}

#[test]
fn what_is_impossible_is_refused_with_a_sentence() {
    let refused = |operation, bytes, ranks| check(&spec(operation, bytes), ranks, u64::MAX).unwrap_err().to_string();
    assert!(refused(Operation::Allreduce, 12, 4).contains("a multiple of 8"));
    assert!(refused(Operation::Butterfly, 8, 6).contains("a power of two"));
    assert!(refused(Operation::Barrier, 0, 1).contains("at least 2 ranks"));
    let end = RankEnd::prepare(&spec(Operation::Barrier, 0), 1, (None, &DataPorts::Any), [0; 16]).unwrap();
    assert!(end.start(0).err().unwrap().to_string().contains("rank 1 is not connected"));
}
