//! Who does what at one end: a thread per flow, two where one connection carries both directions; or fewer threads, each of
//! which carries several flows.

use std::sync::Arc;

use super::{
    Worker,
    carry::{Carrier, Turns},
    run, run_carried,
};
use crate::{
    end::{EndError, end_spec},
    io::buffers::Buffers,
    measure::{counters::FlowCell, histogram::Tray, reading::SampledFlow},
    report::{Role, Side},
    spec::{Arrival, Direction, Io, PaceMode, Pattern, Stop, TestSpec, Transport},
    transport::{Link, icmp, link},
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

/// Reads of requests and responses in flight take at most so many bytes at once, unless one alone is larger.
const PIPELINE_BYTES: u64 = 256 * 1024;

/// A service may answer with any datagram.
const LARGEST_ANSWER: u64 = 65_536;

/// The places of one end, with their buffers allocated and touched.
pub fn crew(spec: &TestSpec, side: Side) -> Result<Vec<Place>, EndError> {
    let mut places = Vec::new();
    if spec.transport == Transport::Icmp && side == Side::Far {
        // The kernel answers.
        return Ok(places);
    }
    for flow in 0..spec.flows() {
        for &role in roles(spec, side, flow) {
            places.push(place(spec, side, flow, role)?);
        }
    }
    Ok(places)
}

/// What the threads of a flow do at this end.
fn roles(spec: &TestSpec, side: Side, flow: u32) -> &'static [Role] {
    if spec.pattern != Pattern::Stream {
        return match side {
            Side::Near => &[Role::Requester],
            Side::Far => &[Role::Responder],
        };
    }
    let near_sends = match spec.direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        // The first half of the flows goes forward.
        Direction::Bidirectional => flow < spec.streams,
        Direction::Duplex => return &[Role::Sender, Role::Receiver],
    };
    if near_sends == (side == Side::Near) { &[Role::Sender] } else { &[Role::Receiver] }
}

fn place(spec: &TestSpec, side: Side, flow: u32, role: Role) -> Result<Place, EndError> {
    let sizes = spec.sizes;
    let several = |bytes: u64| {
        let all = bytes.saturating_mul(spec.inflight.into());
        match spec.inflight {
            1 => bytes,
            _ if spec.coalesce => all,
            _ => all.min(bytes.max(PIPELINE_BYTES)),
        }
    };
    let (send, receive) = match role {
        Role::Sender => (sizes.message_bytes, 0),
        // A datagram that does not fit the call would be cut off in silence.
        Role::Receiver | Role::Duplex if spec.transport.is_datagram() => {
            (0, sizes.receive_bytes.max(sizes.message_bytes))
        }
        Role::Receiver | Role::Duplex => (0, sizes.receive_bytes),
        Role::Requester if spec.transport == Transport::Icmp => {
            let message = sizes.message_bytes.saturating_add(icmp::HEADER_BYTES as u64);
            (message, message.saturating_add(icmp::IP_HEADER_BYTES as u64))
        }
        Role::Requester if spec.alone && spec.transport.is_datagram() => (sizes.request_bytes, LARGEST_ANSWER),
        Role::Requester => (sizes.request_bytes, several(sizes.response_bytes)),
        Role::Responder => (sizes.response_bytes, several(sizes.request_bytes)),
    };
    let paced = spec.pace.is_some_and(|pace| pace.mode == PaceMode::User);
    // Requests and responses are sent from where they lie, with the header of a frame before them.
    let head = if spec.transport == Transport::Link && spec.pattern != Pattern::Stream {
        link::HEADER_BYTES as u64
    } else {
        0
    };
    let (send, receive) = (send.saturating_add(head), receive.saturating_add(head));
    let options = &end_spec(spec, side).buffers;
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
    pub fn sampled(&self, spec: &TestSpec, link: Arc<Link>) -> SampledFlow {
        let role = if self.duplex { Role::Duplex } else { self.role };
        SampledFlow {
            flow: self.flow,
            role,
            cell: Arc::new(FlowCell::default()),
            trays: self.tray.clone().into_iter().collect(),
            gaps: self.gaps.clone(),
            share: share(spec, role, self.flow),
            tcp: spec.collect.tcp_info && spec.transport.is_tcp() && !spec.pattern.is_connecting(),
            link: Some(link),
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

/// The body of the `number`-th data thread of an end.
pub fn thread(number: usize, mut workers: Vec<Worker>, t0_ns: u64) {
    let Some(first) = workers.first() else { return };
    let failure = affinity(first, number).err();
    if first.spec.shares_threads() {
        carried(workers, failure, t0_ns);
    } else if let Some(mut worker) = workers.pop() {
        let failure = failure.or_else(|| {
            let begun = waits_for_peer(&worker) || worker.watch.wait_for_start(t0_ns);
            begun.then(|| run(&mut worker).err()).flatten().map(|fault| fault.to_string())
        });
        leave(worker, failure);
    }
}

/// Runs all of the workers on this thread.
fn carried(workers: Vec<Worker>, failure: Option<String>, t0_ns: u64) {
    let Some(watch) = workers.first().map(|worker| worker.watch.clone()) else { return };
    let indices: Vec<usize> = workers.iter().map(|worker| worker.index).collect();
    // Everything is made before the load begins.
    let carrier = failure.map_or_else(|| Carrier::new().map_err(|error| format!("no epoll instance: {error}")), Err);
    let outcome = carrier.and_then(|mut carrier| {
        let waiting = workers.iter().all(waits_for_peer);
        for mut worker in workers {
            let link = worker.link.clone();
            let body = move |turns: Turns<'_>| {
                let failure = run_carried(&mut worker, turns).err().map(|fault| fault.to_string());
                leave(worker, failure);
            };
            carrier.add(&link.receive, body).map_err(|error| format!("no place for a flow on its thread: {error}"))?;
        }
        let begun = waiting || watch.wait_for_start(t0_ns);
        if begun {
            carrier.run().map_err(|error| format!("a thread of several flows cannot wait for events: {error}"))?;
        }
        Ok(begun)
    });
    // Where all of them have run, each has said itself that it leaves.
    if outcome != Ok(true) {
        let failure = outcome.err();
        for index in indices {
            watch.done(index, failure.clone());
        }
    }
}

/// The worker leaves. Its buffers go before the word of that, so that it leaves nothing behind.
fn leave(worker: Worker, failure: Option<String>) {
    let (watch, index) = (worker.watch.clone(), worker.index);
    drop(worker);
    watch.done(index, failure);
}

/// Whether the worker only waits until its peer begins to send. Its thread then need not be woken at the start, when every
/// other is: where many ends share a machine, that is half of what keeps them from starting together. A thread that spins
/// or times its calls must not begin early, though.
fn waits_for_peer(worker: &Worker) -> bool {
    worker.role == Role::Receiver && worker.tray.is_none() && worker.spec.io != Io::Spin
}

/// Pins the calling thread: thread i to the i-th CPU of the set, in turn.
fn affinity(worker: &Worker, number: usize) -> Result<(), String> {
    let Some(cpus) = &end_spec(&worker.spec, worker.side).cpus else { return Ok(()) };
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
                let mut both = [roles(&spec, Side::Near, flow), roles(&spec, Side::Far, flow)].concat();
                both.sort_by_key(|role| *role == Role::Receiver);
                both.dedup();
                assert_eq!(both, [Role::Sender, Role::Receiver], "{direction:?}");
            }
        }
    }
}
