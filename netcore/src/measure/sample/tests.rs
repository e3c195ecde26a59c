use std::{net::UdpSocket, time::Duration};

use nix::sched::{CloneFlags, unshare};

use super::{
    super::{cpu::CpuReader, namespace::run},
    *,
};

/// The evidence of a short time, in which a thread of the end and a socket were there.
fn short_time() -> Evidence {
    let socket = Arc::new(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()));
    let mut reader = EvidenceReader::open(Transport::Udp, Some("lo"), vec![socket]);
    let _entered = reader.tasks().enter();
    let mut cpus = CpuReader::open().ok();
    let mut snapshot = || cpus.as_mut().and_then(|cpus| cpus.read().ok());
    let (cpus_before, before) = (snapshot(), reader.read());
    std::thread::sleep(Duration::from_millis(100));
    let (cpus_after, after) = (snapshot(), reader.read());
    reader.between(&before, &after, cpus_before.as_ref().zip(cpus_after.as_ref()))
}

#[test]
fn a_host_that_shows_all_lacks_nothing() {
    let evidence = short_time();
    assert_eq!(evidence.missing, [""; 0], "{evidence:?}");
    let thread = evidence.thread.unwrap();
    assert!(thread.busy < 0.5 && thread.waiting.is_some() && thread.threads == 1, "{thread:?}");
    let peak = evidence.softirq_peak.unwrap();
    assert!((0.0..=1.0).contains(&peak.ratio) && thread.cpu_softirq.unwrap() <= peak.ratio, "{evidence:?}");
    let drops = evidence.drops;
    assert!(drops.qdisc.is_some() && drops.interface.is_some() && drops.softnet.is_some(), "{drops:?}");
    assert_eq!((drops.socket, evidence.ce_packets.is_some()), (Some(0), true));
}

#[test]
fn what_a_container_hides_is_named_and_is_never_zero() {
    let seen = std::thread::scope(|scope| {
        let hidden = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            run("mount --make-rprivate /");
            run("mount --bind /dev/null /proc/stat");
            nix::Result::Ok(short_time())
        });
        hidden.join().unwrap()
    });
    let evidence = match seen {
        Ok(evidence) => evidence,
        Err(error) => return crate::needs::skip(&format!("no mounts can be made here: {error}")),
    };
    assert_eq!(evidence.missing, ["soft interrupts (/proc/stat names no CPU)"]);
    assert_eq!(evidence.softirq_peak, None);
    let thread = evidence.thread.unwrap();
    assert_eq!((thread.cpu_busy, thread.cpu_softirq), (None, None));
    assert!(evidence.drops.softnet.is_some() && evidence.drops.socket.is_some(), "{evidence:?}");
}

#[test]
fn the_thread_that_wanted_its_cpu_for_longest_is_reported() {
    let time = |busy_ms: u64, waiting_ms: Option<u64>, cpu| {
        let ns = |ms: u64| ms * 1_000_000;
        Some(TaskTime { busy_ns: ns(busy_ms), waiting_ns: waiting_ms.map(ns), cpu })
    };
    let sample = |at_ms: u64, tasks: Vec<Option<TaskTime>>| EvidenceSample {
        at_ns: at_ms * 1_000_000,
        started: tasks.len(),
        tasks,
        drops: DropSample::default(),
        ce_packets: None,
    };
    let cpus = [Shares { cpu: 3, busy: 0.9, softirq: 0.3 }];
    let before = sample(0, vec![time(500, Some(0), 1), time(0, Some(50), 2), None]);
    // The fourth began after the first sample.
    let after = sample(1000, vec![time(1100, Some(0), 1), time(300, Some(550), 3), None, time(700, Some(0), 4)]);
    let thread = busiest(&before, &after, &cpus).unwrap();
    let expected =
        ThreadUse { threads: 4, busy: 0.3, waiting: Some(0.5), cpu: 3, cpu_busy: Some(0.9), cpu_softirq: Some(0.3) };
    assert_eq!(thread, expected);
    let after = sample(1000, vec![time(2000, None, 1), None, None]);
    let thread = busiest(&before, &after, &cpus).unwrap();
    assert_eq!((thread.busy, thread.waiting, thread.cpu_busy), (1.0, None, None), "no more than the whole");
    assert!(unknown_threads(&after, Some(&thread)).unwrap().contains("schedstat"));
    assert_eq!(busiest(&sample(0, vec![None]), &sample(1, vec![None]), &cpus), None);
    assert!(unknown_threads(&sample(1, vec![None]), None).unwrap().contains("/proc/thread-self/stat"));
    assert_eq!(unknown_threads(&sample(1, Vec::new()), None), None, "an end may have no data threads");
    let many = EvidenceSample { started: tasks::MOST + 5, ..after };
    assert!(unknown_threads(&many, Some(&thread)).unwrap().starts_with("the times of 5 data threads"));
}

#[test]
fn a_transport_without_an_interface_lacks_none() {
    let mut reader = EvidenceReader::open(Transport::UnixStream, None, Vec::new());
    let (before, after) = (reader.read(), reader.read());
    let evidence = reader.between(&before, &after, None);
    assert_eq!((evidence.drops, evidence.ce_packets, evidence.thread), (Drops::default(), None, None));
    assert_eq!(evidence.missing, ["soft interrupts (/proc/stat names no CPU)"]);
    let missing = |transport| {
        let mut reader = EvidenceReader::open(transport, None, Vec::new());
        let (before, after) = (reader.read(), reader.read());
        reader.between(&before, &after, None).missing
    };
    let no_route = "drops of the interface (no interface with a route to the other end was found)";
    assert_eq!(missing(Transport::Tcp)[1..], [no_route]);
    assert_eq!(missing(Transport::Icmp)[1..], [""; 0], "a ping's far end has no socket");
}
