//! Who does what at one end: a thread per flow, two where one connection carries both directions; or fewer threads, each of
//! which carries several flows.

use std::sync::Arc;

use super::{
    Worker,
    carry::{Carrier, Turns},
    run, run_carried,
};
use crate::{
    error::EndError,
    io::buffers::Buffers,
    measure::{counters::FlowCell, histogram::Tray, reading::SampledFlow, watch::Watch},
    spec::{Arrival, Direction, Io, PaceMode, Pattern, Role, Side, Stop, TestSpec, memory, support},
    transport::Link,
};

/// A worker's place: what it will do and the memory for it.
pub struct Place {
    /// Number of its flow.
    pub flow: u32,
    /// What it does.
    pub role: Role,
    /// Whether another worker uses the connection the other way.
    pub duplex: bool,
    /// What it sends from.
    pub send_buffers: Buffers,
    /// What it receives into.
    pub receive_buffers: Buffers,
    /// Where its latencies go, and of what kind they are.
    pub tray: Option<(&'static str, Arc<Tray>)>,
    /// Where the gaps between its sends go, if it is paced.
    pub gaps: Option<Arc<Tray>>,
}

/// The places of one end, with their buffers allocated and touched.
pub fn crew(spec: &TestSpec, side: Side) -> Result<Vec<Place>, EndError> {
    let mut places = Vec::new();
    for flow in 0..spec.flows() {
        for &role in spec.roles(side, flow) {
            places.push(place(spec, side, flow, role)?);
        }
    }
    Ok(places)
}

/// Those of the crew, by their places in it, who must be told that no more will come.
pub fn listeners<'a>(spec: &TestSpec, crew: &'a [Place]) -> impl Iterator<Item = usize> + 'a {
    let by_word = support::ends_by_word(spec);
    crew.iter().enumerate().filter(move |(_, place)| by_word && place.role == Role::Receiver).map(|(index, _)| index)
}

fn place(spec: &TestSpec, side: Side, flow: u32, role: Role) -> Result<Place, EndError> {
    let (send, receive) = memory::shapes(spec, role);
    let paced = spec.pace.is_some_and(|pace| pace.mode == PaceMode::User);
    let options = &spec.end(side).buffers;
    let kind = match role {
        Role::Requester if spec.pattern == Pattern::Connect => Some("connect"),
        // From the due time on: another thing than a round trip.
        Role::Requester if spec.pace.is_some_and(|pace| pace.arrival != Arrival::Closed) => Some("response"),
        Role::Requester => Some("round_trip"),
        Role::Sender if spec.collect.latency => Some("send"),
        Role::Receiver if spec.collect.latency => Some("receive"),
        _ => None,
    };
    Ok(Place {
        flow,
        role,
        duplex: spec.pattern == Pattern::Stream && spec.direction == Direction::Duplex,
        send_buffers: Buffers::to_send(send, options, &spec.payload)?,
        receive_buffers: Buffers::to_receive(receive, options)?,
        tray: kind.map(|kind| (kind, Arc::default())),
        gaps: (paced && matches!(role, Role::Sender | Role::Requester)).then(Arc::default),
    })
}

impl Place {
    /// The flow as the sampler sees it.
    #[must_use]
    pub fn sampled(&self, spec: &TestSpec, link: &Link) -> SampledFlow {
        let role = if self.duplex { Role::Duplex } else { self.role };
        let tcp = spec.collect.tcp_info && spec.transport.is_tcp() && !spec.pattern.is_connecting();
        SampledFlow {
            flow: self.flow,
            role,
            cell: Arc::new(FlowCell::default()),
            trays: self.tray.clone().into_iter().collect(),
            gaps: self.gaps.clone(),
            share: share(spec, role, self.flow),
            tcp: tcp.then(|| link.send.clone()),
        }
    }
}

/// What falls to a flow of the stop rule's count, which is summed over the streams of a direction.
fn share(spec: &TestSpec, role: Role, flow: u32) -> Option<u64> {
    let count = match (spec.phases.stop, role) {
        (Stop::AfterBytes(bytes), Role::Sender | Role::Duplex) => bytes,
        (Stop::AfterTransactions(transactions), Role::Requester) => transactions,
        _ => return None,
    };
    let streams = u64::from(spec.streams);
    let place = u64::from(flow) % streams;
    Some(count / streams + u64::from(place < count % streams))
}

/// Who runs on which thread: each on one of its own, or, where the test asks for fewer, all of a flow on one, and the flows on
/// the threads in turn.
#[must_use]
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

/// A worker on its thread. Its buffers go before its word that it leaves, so that it leaves nothing behind.
struct Aboard {
    worker: Worker,
    leave: Leave,
}

/// A worker's word that it leaves, with a sentence if something went wrong. It is given however that comes about: nobody
/// would hear of a loop that panics otherwise, and what the others did would pass for the whole.
struct Leave {
    watch: Arc<Watch>,
    index: usize,
    failure: Option<String>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let broke_down = || "a data thread broke down: this is a fault of the program".to_owned();
        self.watch.done(self.index, self.failure.take().or_else(|| std::thread::panicking().then(broke_down)));
    }
}

impl Aboard {
    fn new(worker: Worker) -> Self {
        let leave = Leave { watch: worker.watch.clone(), index: worker.index, failure: None };
        Self { worker, leave }
    }

    /// Runs on a thread of its own.
    fn run(mut self, t0_ns: u64) {
        let worker = &mut self.worker;
        if waits_for_peer(worker) || worker.watch.wait_for_start(t0_ns) {
            self.leave.failure = run(worker).err().map(|fault| fault.to_string());
        }
    }

    /// Runs as one of several on a thread.
    fn run_carried(mut self, turns: Turns<'_>) {
        self.leave.failure = run_carried(&mut self.worker, turns).err().map(|fault| fault.to_string());
    }
}

/// The body of the `number`-th data thread of an end. What goes wrong is told before the workers leave for it.
pub fn thread(number: usize, workers: Vec<Worker>, t0_ns: u64) {
    let mut crew: Vec<Aboard> = workers.into_iter().map(Aboard::new).collect();
    let Some(first) = crew.first().map(|aboard| &aboard.worker) else { return };
    if let Err(failure) = affinity(first, number) {
        first.watch.failed(failure);
    } else if first.spec.shares_threads() {
        let watch = first.watch.clone();
        carried(crew, &watch, t0_ns);
    } else if let Some(aboard) = crew.pop() {
        aboard.run(t0_ns);
    }
}

/// Runs all of the workers on this thread.
fn carried(crew: Vec<Aboard>, watch: &Watch, t0_ns: u64) {
    // Everything is made before the load begins.
    let mut carrier = match Carrier::new() {
        Ok(carrier) => carrier,
        Err(error) => return watch.failed(format!("no epoll instance: {error}")),
    };
    let waiting = crew.iter().all(|aboard| waits_for_peer(&aboard.worker));
    for aboard in crew {
        let socket = aboard.worker.link.lasting().clone();
        if let Err(error) = carrier.add(&socket, move |turns| aboard.run_carried(turns)) {
            return watch.failed(format!("no place for a flow on its thread: {error}"));
        }
    }
    if (waiting || watch.wait_for_start(t0_ns))
        && let Err(error) = carrier.run()
    {
        watch.failed(format!("a thread of several flows cannot wait for events: {error}"));
    }
}

/// Whether the worker only waits until its peer begins to send. Its thread then need not be woken at the start, when every
/// other is: where many ends share a machine, that is half of what keeps them from starting together. A thread that spins
/// or times its calls must not begin early, though.
fn waits_for_peer(worker: &Worker) -> bool {
    worker.role == Role::Receiver && worker.tray.is_none() && worker.spec.io != Io::Spin
}

/// Pins the calling thread: thread i to the i-th CPU of the set, in turn.
fn affinity(worker: &Worker, number: usize) -> Result<(), String> {
    let Some(cpus) = &worker.spec.end(worker.side).cpus else { return Ok(()) };
    let Some(&cpu) = cpus.0.get(number % cpus.0.len().max(1)) else { return Ok(()) };
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu as usize)
        .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set))
        .map_err(|error| format!("cannot run on CPU {cpu}: {error} (is it online, and allowed for this process?)"))
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
        let leave = |index| Leave { watch: watch.clone(), index, failure: None };
        let mut carrier = Carrier::new().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let link = Arc::new(Link::of_socket(0, ours.into()));
        let socket = link.receive.clone();
        let never_run = leave(2);
        for (index, breaks) in [(0, false), (1, true)] {
            let (leave, link) = (leave(index), link.clone());
            let body = move |turns: Turns<'_>| {
                let _leave = leave;
                assert!(!breaks, "on purpose");
                let _ = turns.for_input(&link, u64::MAX);
                unreachable!("nothing ever comes");
            };
            carrier.add(&socket, body).unwrap();
        }
        catch_unwind(AssertUnwindSafe(move || {
            let mut carrier = carrier;
            carrier.run()
        }))
        .unwrap_err();
        assert!(watch.failure().unwrap().contains("a data thread broke down"));
        assert!(!watch.wait_for_workers(0, false));
        drop(never_run);
        assert!(watch.wait_for_workers(0, false), "each has left");
    }
}
