//! Assigns workers to flows and threads: a thread per flow, two where one connection carries both directions, or fewer
//! threads that carry several flows each.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use super::{
    Worker,
    exchange::REMEMBERED_BYTES,
    multiplex::{
        Multiplexer, Turns,
        ring::{RingMultiplexer, Submitted},
    },
    run, run_multiplexed, run_submitted,
};
use crate::{
    error::EndError,
    io::{buffers::Buffers, fill::FillFiles, pages::Conduit},
    measure::{
        counters::FlowCell,
        histogram::{self, HistogramSlot},
        one_way::{self, Trips, TripsSlot},
        outage::OutageWatch,
        sample::SampledFlow,
        watch::Watch,
    },
    spec::{Arrival, Direction, HANDSHAKES, Io, PaceMode, Pattern, Role, Side, Stop, TestSpec, memory, support},
    sys,
    transport::{Link, quic::Flow, tls::Secured},
};

/// A worker's task and its memory.
pub struct Assignment {
    pub flow: u32,
    pub role: Role,
    /// Whether another worker uses the connection the other way.
    pub duplex: bool,
    pub send_buffers: Buffers,
    pub receive_buffers: Buffers,
    /// Pipe to send through.
    pub conduit: Option<Conduit>,
    /// Slot for its latencies, and their kind.
    pub latency_slot: Option<(&'static str, Arc<HistogramSlot>)>,
    /// Slot for the gaps between its sends, if it is paced.
    pub gaps: Option<Arc<HistogramSlot>>,
    /// Slots for the durations of its handshakes, by kind ([`HANDSHAKES`]), if each of its connections has one.
    pub handshakes: Option<[Arc<HistogramSlot>; 3]>,
    /// Slot for its round trips or arrivals, if the directions are told apart, and the kinds of their figures.
    pub one_way: Option<(&'static [&'static str], Arc<TripsSlot>)>,
}

/// The assignments of one end. Buffers are allocated and touched.
pub fn assignments(spec: &TestSpec, side: Side, files: &FillFiles) -> Result<Vec<Assignment>, EndError> {
    let mut assignments = Vec::new();
    for flow in 0..spec.flows() {
        for &role in spec.roles(side, flow) {
            assignments.push(assignment(spec, side, flow, role, files)?);
        }
    }
    Ok(assignments)
}

/// Indices of receivers that need an end-of-data message.
pub fn awaiting_end_of_data<'a>(spec: &TestSpec, assignments: &'a [Assignment]) -> impl Iterator<Item = usize> + 'a {
    let by_word = support::ends_by_word(spec);
    assignments
        .iter()
        .enumerate()
        .filter(move |(_, assignment)| by_word && assignment.role == Role::Receiver)
        .map(|(index, _)| index)
}

fn assignment(spec: &TestSpec, side: Side, flow: u32, role: Role, files: &FillFiles) -> Result<Assignment, EndError> {
    let (send, receive) = memory::shapes(spec, side, role);
    let options = &spec.end(side).buffers;
    Ok(Assignment {
        flow,
        role,
        duplex: spec.pattern == Pattern::Stream && spec.direction == Direction::Duplex,
        send_buffers: Buffers::to_send(send, options, files.contents(spec, side))?,
        receive_buffers: Buffers::to_receive(receive, options)?,
        conduit: conduit(spec, role)?,
        latency_slot: latency_kind(spec, role).map(|kind| (kind, Arc::default())),
        gaps: times_gaps(spec, role).then(Arc::default),
        handshakes: times_handshakes(spec, role).then(Default::default),
        one_way: splits(spec, side, role).map(|kinds| {
            let watch = |(length_ns, gap_ns)| OutageWatch::new(length_ns, gap_ns, role == Role::Receiver);
            let outages = spec.outages().filter(|_| role != Role::Responder).map(watch);
            (kinds, Arc::new(TripsSlot::new(Trips::new(outages, spec.kernel_times))))
        }),
    })
}

/// Pipe of a sender whose io method sends through one.
fn conduit(spec: &TestSpec, role: Role) -> Result<Option<Conduit>, EndError> {
    if role != Role::Sender || !matches!(spec.resolved_io(), Io::Splice | Io::Vmsplice) {
        return Ok(None);
    }
    let io = spec.resolved_io().name();
    Conduit::new().map(Some).map_err(EndError::system(format!("cannot make the pipe that `io: {io}` sends through")))
}

/// The operation that a worker times.
fn latency_kind(spec: &TestSpec, role: Role) -> Option<&'static str> {
    match role {
        Role::Requester if spec.pattern == Pattern::Connect => Some("connect"),
        // Counted from the due time, so not a round trip.
        Role::Requester if spec.pace.is_some_and(|pace| pace.arrival != Arrival::Closed) => Some("response"),
        Role::Requester => Some("round_trip"),
        Role::Sender if spec.collect.latency => Some("send"),
        Role::Receiver if spec.collect.latency => Some("receive"),
        _ => None,
    }
}

/// Whether a worker keeps the gaps between its sends.
fn times_gaps(spec: &TestSpec, role: Role) -> bool {
    spec.pace.is_some_and(|pace| pace.mode == PaceMode::User) && matches!(role, Role::Sender | Role::Requester)
}

/// Whether a worker times handshakes.
fn times_handshakes(spec: &TestSpec, role: Role) -> bool {
    role == Role::Requester && spec.session().is_some()
}

/// Kinds of the figures of a worker that keeps its round trips, or the arrivals of a stream.
fn splits(spec: &TestSpec, side: Side, role: Role) -> Option<&'static [&'static str]> {
    match (role, side) {
        _ if !spec.one_way => None,
        (Role::Requester, _) if spec.kernel_times => Some(&one_way::REQUESTER_KINDS),
        (Role::Requester, _) => Some(&one_way::KINDS),
        (Role::Responder, _) if spec.kernel_times => Some(&one_way::RESPONDER_KINDS),
        (Role::Receiver, Side::Far) => Some(&one_way::KINDS[..1]),
        (Role::Receiver, Side::Near) => Some(&one_way::KINDS[1..]),
        _ => None,
    }
}

/// Whether an end records latencies.
pub fn has_latencies(spec: &TestSpec, side: Side) -> bool {
    // The flows of a direction are alike, and the last one is of the other direction where there are two.
    let flows = [0, spec.flows().saturating_sub(1)];
    flows.iter().any(|flow| spec.roles(side, *flow).iter().any(|role| latency_kind(spec, *role).is_some()))
}

/// Bytes of a histogram and its relatives: those of the recorder and its slot, and one for each phase.
const RECORDED_BYTES: u64 = 6 * histogram::BYTES;

/// Bound of the histograms of a flow, bytes: latencies and gaps of two roles, or of one with its round trips.
#[cfg(any(test, fuzzing))]
pub const MOST_HISTOGRAM_BYTES: u64 = 6 * RECORDED_BYTES + one_way::BYTES + REMEMBERED_BYTES;

/// Bytes of the histograms of an end.
pub fn histogram_bytes(spec: &TestSpec, side: Side) -> u64 {
    let of_role = |role: &Role| {
        let handshakes = if times_handshakes(spec, *role) { HANDSHAKES.len() as u64 } else { 0 };
        let timed = u64::from(latency_kind(spec, *role).is_some()) + u64::from(times_gaps(spec, *role)) + handshakes;
        let split = splits(spec, side, *role).map_or(0, |kinds| kinds.len() as u64 * RECORDED_BYTES + one_way::BYTES);
        let remembered = if split > 0 && spec.is_reflected() { REMEMBERED_BYTES } else { 0 };
        timed * RECORDED_BYTES + split + remembered
    };
    let of_flow = |flow: u32| spec.roles(side, flow).iter().map(of_role).sum::<u64>();
    // The flows of a direction are alike.
    let (forward, reverse) = (spec.streams, spec.flows().saturating_sub(spec.streams));
    let of_flows = |flow, count: u32| of_flow(flow).saturating_mul(count.into());
    of_flows(0, forward).saturating_add(of_flows(spec.streams, reverse))
}

impl Assignment {
    /// Slots of what it times, by kind.
    pub fn latency_slots(&self) -> impl Iterator<Item = (&'static str, Arc<HistogramSlot>)> {
        let handshakes = self.handshakes.iter().flat_map(|slots| HANDSHAKES.into_iter().zip(slots.clone()));
        self.latency_slot.clone().into_iter().chain(handshakes)
    }

    /// The flow as the sampler sees it.
    pub fn sampled(&self, spec: &TestSpec, link: &Link) -> SampledFlow {
        let role = if self.duplex { Role::Duplex } else { self.role };
        let lasting = spec.collect.tcp_info && !spec.pattern.is_connecting();
        let tcp = lasting && spec.transport.is_tcp();
        SampledFlow {
            flow: self.flow,
            role,
            cell: Arc::new(FlowCell::default()),
            latency_slots: self.latency_slots().collect(),
            gaps: self.gaps.clone(),
            one_way: self.one_way.clone(),
            share: share(spec, role, self.flow),
            tcp: tcp.then(|| link.send.clone()),
            quic: link.quic.get().filter(|_| lasting).map(Flow::figures),
            tls: link.secured.get().map(Secured::figures).unwrap_or_default(),
        }
    }
}

/// A flow's share of the stop rule's count, which is summed over the streams of a direction.
fn share(spec: &TestSpec, role: Role, flow: u32) -> Option<u64> {
    let count = match (spec.phases.stop, role) {
        (Stop::AfterBytes(bytes), Role::Sender | Role::Duplex) => bytes,
        (Stop::AfterTransactions(transactions), Role::Requester) => transactions,
        _ => return None,
    };
    let streams = u64::from(spec.streams);
    let index = u64::from(flow) % streams;
    Some(count / streams + u64::from(index < count % streams))
}

/// Groups workers by thread: each on its own, or, where the test asks for fewer threads, all workers of a flow on one
/// thread and the flows on the threads in turn.
pub fn onto_threads(spec: &TestSpec, workers: Vec<Worker>) -> Vec<Vec<Worker>> {
    if !spec.shares_threads() {
        return workers.into_iter().map(|worker| vec![worker]).collect();
    }
    let mut threads: Vec<Vec<Worker>> = (0..spec.threads.unwrap_or(1)).map(|_| Vec::new()).collect();
    let count = threads.len().max(1);
    for worker in workers {
        threads[worker.link.flow as usize % count].push(worker);
    }
    threads
}

/// A worker on its thread. Its buffers are freed before its exit is told, so that it leaves nothing behind.
struct Scheduled {
    worker: Worker,
    exit: ExitNotice,
}

/// Tells that a worker has left, with a sentence if something went wrong. Dropping it tells, so a loop that panics is heard of
/// too: otherwise the other workers' counts would pass for the whole.
struct ExitNotice {
    watch: Arc<Watch>,
    index: usize,
    failure: Option<String>,
}

impl Drop for ExitNotice {
    fn drop(&mut self) {
        let broke_down = || "a data thread broke down: this is a bug in plumb".to_owned();
        self.watch.done(self.index, self.failure.take().or_else(|| std::thread::panicking().then(broke_down)));
    }
}

impl Scheduled {
    fn new(worker: Worker) -> Self {
        let exit = ExitNotice { watch: worker.watch.clone(), index: worker.index, failure: None };
        Self { worker, exit }
    }

    /// Runs on a thread of its own.
    fn run(mut self, t0_ns: u64) {
        let worker = &mut self.worker;
        if waits_for_peer(worker) || worker.watch.wait_for_start(t0_ns) {
            self.exit.failure = run(worker).err().map(|error| error.to_string());
        }
    }

    /// Runs as one of several on a thread.
    fn run_multiplexed(mut self, turns: Turns<'_>) {
        self.exit.failure = run_multiplexed(&mut self.worker, turns).err().map(|error| error.to_string());
    }

    /// Runs over the ring of its thread. The ring holds the socket: the exit is told when it is gone.
    fn run_submitted(mut self, channel: Submitted<'_>) -> ExitNotice {
        if let Err(error) = run_submitted(&mut self.worker, channel) {
            self.worker.watch.failed(error.to_string());
        }
        self.exit
    }
}

/// Body of the `number`-th data thread of an end. A failure is recorded before the workers leave because of it.
pub fn thread(number: usize, workers: Vec<Worker>, t0_ns: u64) {
    let mut scheduled: Vec<Scheduled> = workers.into_iter().map(Scheduled::new).collect();
    let Some(first) = scheduled.first().map(|first| &first.worker) else { return };
    if let Err(failure) = affinity(first, number) {
        first.watch.failed(failure);
    } else if first.spec.resolved_io() == Io::Uring {
        let watch = first.watch.clone();
        by_ring(scheduled, &watch, t0_ns);
    } else if first.spec.shares_threads() {
        let watch = first.watch.clone();
        multiplex(scheduled, &watch, t0_ns);
    } else if let Some(only) = scheduled.pop() {
        only.run(t0_ns);
    }
}

/// Runs all of the workers on this thread.
fn multiplex(scheduled: Vec<Scheduled>, watch: &Watch, t0_ns: u64) {
    // All allocations happen before the load begins.
    let mut multiplexer = match Multiplexer::new() {
        Ok(multiplexer) => multiplexer,
        Err(error) => return watch.failed(format!("no epoll instance: {error}")),
    };
    let waiting = scheduled.iter().all(|each| waits_for_peer(&each.worker));
    for worker in scheduled {
        let socket = worker.worker.link.lasting().clone();
        if let Err(error) = multiplexer.add(&socket, move |turns| worker.run_multiplexed(turns)) {
            return watch.failed(format!("cannot add a flow to its thread: {error}"));
        }
    }
    if (waiting || watch.wait_for_start(t0_ns))
        && let Err(error) = multiplexer.run()
    {
        watch.failed(format!("a thread of several flows cannot wait for events: {error}"));
    }
}

/// Runs the workers of this thread over one submission ring.
fn by_ring(scheduled: Vec<Scheduled>, watch: &Watch, t0_ns: u64) {
    let exits: Rc<RefCell<Vec<ExitNotice>>> = Rc::default();
    let links: Vec<Arc<Link>> = scheduled.iter().map(|each| each.worker.link.clone()).collect();
    let receive_bytes = scheduled.iter().map(|each| each.worker.receive_buffers.size()).max().unwrap_or(0);
    // All allocations happen before the load begins.
    exits.borrow_mut().reserve(scheduled.len());
    let mut multiplexer = match RingMultiplexer::new(&links, receive_bytes) {
        Ok(multiplexer) => multiplexer,
        Err(error) => return watch.failed(format!("no submission ring: {error}")),
    };
    let waiting = scheduled.iter().all(|each| waits_for_peer(&each.worker));
    for (worker, link) in scheduled.into_iter().zip(links) {
        let exits = exits.clone();
        let body = move |channel: Submitted<'_>| {
            let exit = worker.run_submitted(channel);
            exits.borrow_mut().push(exit);
        };
        if let Err(error) = multiplexer.add(link, body) {
            return watch.failed(format!("cannot add a flow to its thread: {error}"));
        }
    }
    if waiting || watch.wait_for_start(t0_ns) {
        if let Err(error) = multiplexer.run() {
            watch.failed(format!("a thread cannot wait for its submission ring: {error}"));
        }
        let (completions, calls) = multiplexer.ring().counts();
        watch.submitted(completions, calls);
    }
    drop(multiplexer);
    drop(exits);
}

/// Whether the worker only waits until its peer begins to send. Its thread then need not be woken at the start: where
/// many ends share a machine, half of the wake-ups that keep them from starting together are saved. A thread that spins
/// or times its calls must not begin early, though.
fn waits_for_peer(worker: &Worker) -> bool {
    worker.role == Role::Receiver && worker.latency_slot.is_none() && worker.spec.io != Io::Spin
}

/// Pins the calling thread: thread i to the i-th CPU of the set, in turn.
fn affinity(worker: &Worker, number: usize) -> Result<(), String> {
    let Some(cpu) = worker.spec.end(worker.side).cpu_of(number) else { return Ok(()) };
    sys::pin(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Transport;

    #[test]
    fn shares_add_up_to_the_count() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        spec.streams = 3;
        spec.direction = Direction::Bidirectional;
        spec.phases.stop = Stop::AfterBytes(1000);
        let shares: Vec<_> = (0..6).map(|flow| share(&spec, Role::Sender, flow).unwrap()).collect();
        assert_eq!(shares, [334, 333, 333, 334, 333, 333]);
        assert_eq!(share(&spec, Role::Receiver, 0), None);
    }

    #[test]
    fn every_flow_has_a_sender_and_a_receiver() {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            (spec.direction, spec.streams) = (direction, 2);
            for flow in 0..spec.flows() {
                let mut both = [spec.roles(Side::Near, flow), spec.roles(Side::Far, flow)].concat();
                both.sort_by_key(|role| *role == Role::Receiver);
                both.dedup();
                assert_eq!(both, [Role::Sender, Role::Receiver], "{direction:?}");
            }
        }
    }

    #[test]
    fn a_loop_that_panics_fails_the_test_and_takes_the_others_of_its_thread_along() {
        use crate::io::wait::Wait;
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let watch = Arc::new(Watch::new(3));
        let exit = |index| ExitNotice { watch: watch.clone(), index, failure: None };
        let mut multiplexer = Multiplexer::new().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let link = Arc::new(Link::of_socket(0, ours.into()));
        let socket = link.receive.clone();
        let never_run = exit(2);
        for (index, breaks) in [(0, false), (1, true)] {
            let (exit, link) = (exit(index), link.clone());
            let body = move |turns: Turns<'_>| {
                let _exit = exit;
                assert!(!breaks, "on purpose");
                let _ = turns.for_input(&link, u64::MAX);
                unreachable!("nothing ever comes");
            };
            multiplexer.add(&socket, body).unwrap();
        }
        catch_unwind(AssertUnwindSafe(move || {
            let mut multiplexer = multiplexer;
            multiplexer.run()
        }))
        .unwrap_err();
        assert!(watch.failure().unwrap().contains("a data thread broke down"));
        assert!(!watch.wait_for_workers(0, false));
        drop(never_run);
        assert!(watch.wait_for_workers(0, false), "each has left");
    }
}
