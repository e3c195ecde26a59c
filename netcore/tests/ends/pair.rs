//! Runs both ends of a test as a session does.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use netcore::{
    end::{End, Endpoints, Running},
    error::EndError,
    measure::clock::monotonic_ns,
    report::{Counts, Ending, FlowWindow, Phase, SideReport, Window},
    spec::{Io, Pattern, Side, Stop, TestSpec, Transport},
};

use crate::needs::skip;

/// A token of a test's own: tests run at the same time, and frames of two processes share the loopback interface.
pub fn token() -> [u8; 16] {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let mut token = *b"0123456789abcdef";
    token[..4].copy_from_slice(&std::process::id().to_be_bytes());
    token[4..8].copy_from_slice(&TESTS.fetch_add(1, Relaxed).to_be_bytes());
    token
}
pub const MS: u64 = 1_000_000;
pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bound on a test that hangs; it is not a statement about speed.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Repeats `attempt` until it has succeeded twice. For statements about time: they hold on a machine that runs both ends when
/// they are due, and a busy one does so now and then. An `Err` says what was seen.
pub fn undisturbed(attempt: impl FnMut() -> Result<(), String>) {
    repeated(2, attempt);
}

/// Repeats `attempt` until it has succeeded so many times, at most ten times more. Three failures on a machine that was not busy
/// are the program's.
fn repeated<T>(wanted: u32, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let (mut succeeded, mut alone) = (0, 0);
    for tried in 1..=wanted + 10 {
        let before = waited_us();
        match attempt() {
            Ok(value) => {
                succeeded += 1;
                if succeeded == wanted {
                    return value;
                }
            }
            Err(sentence) => {
                let waited_us = waited_us().zip(before).map(|(after, before)| after - before);
                println!("attempt {tried}, threads had to wait for a CPU for {waited_us:?} us: {sentence}");
                alone += u32::from(waited_us.is_some_and(|us| us < 1000));
                assert!(alone < 3, "three attempts failed on a machine that was not busy");
            }
        }
    }
    panic!("of {} attempts {succeeded} succeeded", wanted + 10);
}

/// Time for which some thread of the machine waited for a CPU, or the machine for its hypervisor, microseconds; `None`: the
/// kernel does not say.
fn waited_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let waited: u64 = some.rsplit_once("total=")?.1.trim().parse().ok()?;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // In hundredths of a second.
    let stolen: u64 = stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(waited + stolen * 10_000)
}

/// The io methods among these that this machine allows; the others are skipped. podman forbids `vmsplice`.
pub fn allowed(methods: &[Io]) -> Vec<Io> {
    let (_reader, writer) = nix::unistd::pipe().unwrap();
    let byte = [std::io::IoSlice::new(b"x")];
    let refused =
        nix::fcntl::vmsplice(&writer, &byte, nix::fcntl::SpliceFFlags::empty()) == Err(nix::errno::Errno::EPERM);
    if refused {
        skip("`vmsplice` is not permitted here");
    }
    methods.iter().copied().filter(|io| *io != Io::Vmsplice || !refused).collect()
}

/// Held by a test that sends without a copy: the kernel bounds the memory that one user has locked for it, and a send fails where
/// others have all of it.
pub fn locked_memory() -> MutexGuard<'static, ()> {
    static LOCKED: Mutex<()> = Mutex::new(());
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test that lasts `ms` milliseconds.
pub fn lasting(pattern: Pattern, transport: Transport, ms: u64) -> TestSpec {
    let mut spec = TestSpec::new(pattern, transport);
    spec.phases.stop = Stop::AfterNs(ms * MS);
    spec
}

/// Both ends, connected.
pub fn connect(spec: &TestSpec, ip: IpAddr) -> Result<(End, End), EndError> {
    meet(spec, spec, ip)
}

/// Both ends, connected, with a test for each.
pub fn meet(near: &TestSpec, far: &TestSpec, ip: IpAddr) -> Result<(End, End), EndError> {
    let (near, far, endpoints) = prepare(near, far, None, ip)?;
    join((near, far), &endpoints, ip)
}

/// Both ends, prepared, and the far end's endpoints. `from`: the near end's address.
pub fn prepare(
    near: &TestSpec,
    far: &TestSpec,
    from: Option<IpAddr>,
    to: IpAddr,
) -> Result<(End, End, Endpoints), EndError> {
    let token = token();
    let far = End::prepare(far, Side::Far, Some(to), token)?;
    let near = End::prepare(near, Side::Near, from, token)?;
    let endpoints = far.endpoints();
    Ok((near, far, endpoints))
}

/// Connects prepared ends.
pub fn join((mut near, mut far): (End, End), endpoints: &Endpoints, ip: IpAddr) -> Result<(End, End), EndError> {
    // The far end need not wait for a near end that cannot reach it.
    let failed = AtomicBool::new(false);
    let (near_result, far_result) = thread::scope(|scope| {
        let far = scope.spawn(|| far.connect_unless(None, PATIENCE, &|| failed.load(Relaxed)));
        let near = near.connect(Some((ip, endpoints)), PATIENCE);
        failed.store(near.is_err(), Relaxed);
        (near, far.join().unwrap())
    });
    near_result?;
    far_result?;
    Ok((near, far))
}

/// Waits for an effect of another thread.
pub fn eventually(mut happened: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !happened() {
        assert!(std::time::Instant::now() < deadline, "it never happened");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Starts both at the same instant.
pub fn start((near, far): (End, End)) -> (Running, Running) {
    let t0 = monotonic_ns() + 20 * MS;
    (near.start(t0, None).unwrap(), far.start(t0, None).unwrap())
}

/// Waits for both, telling each when the other has finished, as the client does.
pub fn finish((near, far): (Running, Running)) -> (SideReport, SideReport) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !near.wait(Duration::from_millis(5)) && !far.is_finished() {
        assert!(std::time::Instant::now() < deadline, "neither end finishes");
    }
    let other = if near.is_finished() { &far } else { &near };
    other.stop_at(monotonic_ns());
    assert!(near.wait(PATIENCE) && far.wait(PATIENCE), "one end never finishes");
    (near.finish(), far.finish())
}

/// Both reports of a test that runs to its end. A busy machine may stop an end for the whole of a short window: the test is then run
/// again, each time with a window of twice the length, until each flow has moved something in it.
pub fn run(spec: &TestSpec, ip: IpAddr) -> (SideReport, SideReport) {
    let mut spec = spec.clone();
    repeated(1, || {
        let (near, far) = finish(start(connect(&spec, ip).unwrap()));
        if let Stop::AfterNs(ns) = &mut spec.phases.stop {
            *ns = (*ns * 2).min((2000 * MS).max(*ns));
        }
        moved(near, far).ok_or_else(|| "a flow moved nothing".to_owned())
    })
}

/// The reports, unless a flow moved nothing in the window.
pub fn moved(near: SideReport, far: SideReport) -> Option<(SideReport, SideReport)> {
    assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete));
    assert_eq!((near.side, far.side), (Side::Near, Side::Far));
    let counts = |report: &SideReport| -> Vec<u64> {
        let moved = |counts: &Counts| counts.sends + counts.receives + counts.transactions + counts.connections;
        phase(report, Phase::Measure).flows.iter().map(|flow| moved(&flow.counts)).collect()
    };
    let moved = counts(&near).iter().zip(counts(&far)).all(|(a, b)| a + b > 0);
    moved.then_some((near, far))
}

pub fn sum(flows: &[FlowWindow]) -> Counts {
    flows.iter().fold(Counts::default(), |sum, flow| Counts {
        bytes_sent: sum.bytes_sent + flow.counts.bytes_sent,
        bytes_received: sum.bytes_received + flow.counts.bytes_received,
        sends: sum.sends + flow.counts.sends,
        receives: sum.receives + flow.counts.receives,
        transactions: sum.transactions + flow.counts.transactions,
        connections: sum.connections + flow.counts.connections,
        errors: sum.errors + flow.counts.errors,
        messages_sent: sum.messages_sent + flow.counts.messages_sent,
        messages_received: sum.messages_received + flow.counts.messages_received,
        reordered: sum.reordered + flow.counts.reordered,
        duplicated: sum.duplicated + flow.counts.duplicated,
        completions: sum.completions + flow.counts.completions,
        copied: sum.copied + flow.counts.copied,
        not_ect: sum.not_ect + flow.counts.not_ect,
        ect0: sum.ect0 + flow.counts.ect0,
        ect1: sum.ect1 + flow.counts.ect1,
        marked: sum.marked + flow.counts.marked,
    })
}

pub fn phase(report: &SideReport, phase: Phase) -> &Window {
    report.phase(phase).unwrap()
}

/// Counters of the measure phase, summed over the flows.
pub fn measured(report: &SideReport) -> Counts {
    sum(&phase(report, Phase::Measure).flows)
}
