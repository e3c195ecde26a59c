//! Who does what at one end: a thread per flow, two where one connection carries both directions.

use std::sync::Arc;

use super::{Fault, Worker, run};
use crate::{
    end::{EndError, end_spec},
    io::buffers::Buffers,
    measure::{counters::FlowCell, histogram::Tray, reading::SampledFlow},
    report::{Role, Side},
    spec::{Arrival, Direction, Io, PaceMode, Pattern, Stop, TestSpec, Transport},
    transport::{Link, icmp, link},
};

/// A thread's place: what it will do and the memory for it.
pub struct Place {
    /// Number of its flow.
    pub flow: u32,
    /// What it does.
    pub role: Role,
    /// Whether another thread uses the connection the other way.
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

/// The body of a data thread.
pub fn thread(mut worker: Worker, t0_ns: u64) {
    let failure = match affinity(&worker) {
        Err(sentence) => Some(sentence),
        Ok(()) if !waits_for_peer(&worker) && !worker.watch.wait_for_start(t0_ns) => None,
        Ok(()) => run(&mut worker).err().map(|fault: Fault| fault.to_string()),
    };
    let (watch, index) = (worker.watch.clone(), worker.index);
    // The buffers go before the word that this thread is done, so that it leaves nothing behind.
    drop(worker);
    watch.done(index, failure);
}

/// Whether the thread only waits until its peer begins to send. It then need not be woken at the start, when every other
/// thread is: where many ends share a machine, that is half of what keeps them from starting together. A thread that spins
/// or times its calls must not begin early, though.
fn waits_for_peer(worker: &Worker) -> bool {
    worker.role == Role::Receiver && worker.tray.is_none() && worker.spec.io != Io::Spin
}

/// Pins the calling thread: thread i to the i-th CPU of the set, in turn.
fn affinity(worker: &Worker) -> Result<(), String> {
    let Some(cpus) = &end_spec(&worker.spec, worker.side).cpus else { return Ok(()) };
    let Some(&cpu) = cpus.0.get(worker.index % cpus.0.len().max(1)) else { return Ok(()) };
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
