//! A sample: every counter of an end at one instant. Beside those of its flows, evidence on what held the end back: its threads,
//! soft interrupts, drops and congestion marks. Files and sockets stay open between two edges.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use super::{
    clock::{self, monotonic_ns, wall_ns},
    counters::{FlowCell, Published},
    cpu::{CpuReader, CpuSnapshot, Shares},
    drops::{DropReader, DropSample},
    histogram::HistogramSlot,
    host::{CpuSharesOf, HostFacts, cpu_shares_of},
    kernel::{self, CeReader},
    one_way::TripsSlot,
    tasks::{self, TaskTime, Tasks},
    tcp_info,
};
use crate::{
    report::{ClockReading, Counts, CpuShare, Drops, Evidence, QuicInfo, TcpInfo, ThreadUse, TlsInfo},
    spec::{Role, Transport},
    sys,
};

/// A flow as the sampler sees it.
pub struct SampledFlow {
    pub flow: u32,
    pub role: Role,
    pub cell: Arc<FlowCell>,
    /// Slots of its threads, by kind.
    pub latency_slots: Vec<(&'static str, Arc<HistogramSlot>)>,
    /// Slot for the gaps between a paced thread's sends.
    pub gaps: Option<Arc<HistogramSlot>>,
    /// Slot for its round trips, if the directions are told apart.
    pub one_way: Option<(&'static [&'static str], Arc<TripsSlot>)>,
    /// Share of the stop rule's count; `None`: the flow does not stop by a count.
    pub share: Option<u64>,
    /// Socket whose TCP_INFO is read, if the test asks for it.
    pub tcp: Option<Arc<OwnedFd>>,
    /// The figures of its connection of QUIC.
    pub quic: Option<Arc<Published<QuicInfo>>>,
    /// The figures of its connection of TLS, of each half.
    pub tls: Vec<Arc<Published<TlsInfo>>>,
}

impl SampledFlow {
    /// Names of the kinds of its histograms.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let split = self.one_way.iter().flat_map(|(kinds, _)| kinds.iter().copied());
        self.latency_slots.iter().map(|(name, _)| *name).chain(split)
    }

    /// The count that the limit applies to.
    pub fn count(&self, counts: &Counts) -> u64 {
        if self.role == Role::Requester { counts.transactions } else { counts.bytes_sent }
    }
}

/// Counts up to an instant. Lists have an entry for each flow.
#[derive(Clone)]
pub struct Sample {
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// Wall clock, nanoseconds since 1970.
    pub wall_ns: i64,
    pub counts: Vec<Counts>,
    /// Due times that paced senders dropped.
    pub dropped: Vec<u64>,
    pub tcp: Vec<Option<TcpInfo>>,
    pub quic: Vec<Option<QuicInfo>>,
    pub tls: Vec<Option<TlsInfo>>,
    /// All clocks, read after the counters.
    pub clocks: ClockReading,
    /// CPU time, if the test asks for it.
    pub cpu: Option<CpuSnapshot>,
    /// Evidence on what limits the load: at the edges of phases, if the test asks for it.
    pub evidence: Option<EvidenceSample>,
}

/// Sources beside the flows' counters; `None`: not asked for.
#[derive(Default)]
pub struct Readers {
    pub cpu: Option<CpuReader>,
    pub evidence: Option<EvidenceReader>,
}

/// The kind of edge at which a sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Phase,
    Interval,
}

impl Sample {
    /// Reads everything, the counters first. `then` runs between these and the slower reads.
    pub fn take(flows: &[SampledFlow], readers: &mut Readers, edge: Edge, then: impl FnOnce(&[Counts])) -> Self {
        let (at_ns, wall_ns) = (monotonic_ns(), wall_ns());
        let counts: Vec<_> = flows.iter().map(|flow| flow.cell.read()).collect();
        let dropped = flows.iter().map(|flow| flow.cell.dropped()).collect();
        then(&counts);
        let limits = readers.evidence.is_some() && edge != Edge::Interval;
        let tcp = flows.iter().map(|flow| tcp_info::read(flow.tcp.as_ref()?.as_fd(), limits)).collect();
        let quic = flows.iter().map(|flow| flow.quic.as_ref()?.read()).collect();
        let of_halves =
            |flow: &SampledFlow| flow.tls.iter().filter_map(|half| half.read()).reduce(|a, b| [a, b].into_iter().sum());
        let tls = flows.iter().map(of_halves).collect();
        let cpu = readers.cpu.as_mut().and_then(|reader| reader.read().ok());
        let clocks = if edge == Edge::Phase { with_wall_error() } else { clock::reading() };
        let evidence = readers.evidence.as_mut().filter(|_| edge == Edge::Phase).map(EvidenceReader::read);
        Self { at_ns, wall_ns, counts, dropped, tcp, quic, tls, clocks, cpu, evidence }
    }

    /// Moves a sample that was taken before the data threads started to the load's start: until then no count changes. The CPU time
    /// and the clocks are those of now.
    pub fn begin_at(&mut self, at_ns: u64, readers: &mut Readers) {
        self.wall_ns += at_ns.cast_signed() - self.at_ns.cast_signed();
        self.at_ns = at_ns;
        if let Some(evidence) = &mut self.evidence {
            evidence.at_ns = at_ns;
        }
        self.cpu = readers.cpu.as_mut().and_then(|reader| reader.read().ok());
        self.clocks = with_wall_error();
    }
}

/// All clocks, and what the kernel says of the error of the wall clock if that is kept to a time.
fn with_wall_error() -> ClockReading {
    let wall = Some(sys::wall_clock()).filter(|wall| wall.synchronised);
    ClockReading { wall_error_ns: wall.map(|wall| wall.max_error_ns), ..clock::reading() }
}

/// Readings at an instant.
#[derive(Clone, Debug)]
pub struct EvidenceSample {
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// By thread, in the order of their starts.
    tasks: Vec<Option<TaskTime>>,
    /// Threads that have started, also those beyond the limit of [`tasks`](super::tasks).
    started: usize,
    drops: DropSample,
    ce_packets: Option<u64>,
}

/// Reads the evidence of an end. It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct EvidenceReader {
    tasks: Arc<Tasks>,
    transport: Transport,
    machine: Option<u64>,
    has_link: bool,
    /// The CPUs that `/proc/stat` shows here.
    stat_of: CpuSharesOf,
    drops: DropReader,
    ce: Option<CeReader>,
    buffer: Vec<u8>,
}

impl EvidenceReader {
    /// `interface`: the name of the one that the route uses; `sockets`: those of the flows.
    pub fn open(transport: Transport, interface: Option<&str>, sockets: Vec<Arc<OwnedFd>>) -> Self {
        let interface = interface.filter(|_| transport.has_interface());
        Self {
            tasks: Arc::default(),
            transport,
            machine: HostFacts::boot_number(),
            has_link: interface.is_some(),
            stat_of: stat_of(),
            drops: DropReader::open(interface, transport.has_interface(), sockets),
            ce: if transport.uses_ip() { CeReader::open().ok() } else { None },
            buffer: Vec::new(),
        }
    }

    /// The data threads of the end, which register themselves there.
    pub fn tasks(&self) -> Arc<Tasks> {
        self.tasks.clone()
    }

    pub fn read(&mut self) -> EvidenceSample {
        let (at_ns, tasks, started) = (monotonic_ns(), self.tasks.read(), self.tasks.started());
        let ce_packets = self.ce.as_ref().and_then(|ce| ce.read(&mut self.buffer));
        EvidenceSample { at_ns, tasks, started, drops: self.drops.read(), ce_packets }
    }

    /// The evidence of a phase. `cpus`: the CPUs at its two edges, if they could be read.
    pub fn between(
        &self,
        before: &EvidenceSample,
        after: &EvidenceSample,
        cpus: Option<(&CpuSnapshot, &CpuSnapshot)>,
    ) -> Evidence {
        let mut missing = Vec::new();
        let cpus = self.shares(cpus).map_err(|why| missing.push(format!("soft interrupts ({why})")));
        let cpus = cpus.unwrap_or_default();
        let thread = busiest(before, after, &cpus);
        missing.extend(unknown_threads(after, thread.as_ref()));
        let peak = cpus.iter().copied().reduce(|peak, cpu| if cpu.softirq > peak.softirq { cpu } else { peak });
        let drops = after.drops.since(&before.drops);
        missing.extend(self.unknown_drops(&drops));
        let ce_packets = after.ce_packets.zip(before.ce_packets).map(|(after, before)| after.saturating_sub(before));
        if ce_packets.is_none() && self.transport.uses_ip() {
            missing.push("congestion marks (/proc/net/netstat does not show them)".to_owned());
        }
        let softirq_peak = peak.map(|peak| CpuShare { cpu: peak.cpu, ratio: peak.softirq });
        Evidence { machine: self.machine, thread, softirq_peak, drops, ce_packets, missing }
    }

    /// Shares of the CPUs, or why they are not known.
    fn shares(&self, cpus: Option<(&CpuSnapshot, &CpuSnapshot)>) -> Result<Vec<Shares>, &'static str> {
        let (before, after) = cpus.ok_or("/proc/stat names no CPU")?;
        if self.stat_of == CpuSharesOf::Container {
            // lxcfs numbers a container's CPUs anew, and leaves out soft interrupts.
            return Err("/proc/stat is the container's own");
        }
        let shares = after.shares_since(before);
        if shares.is_empty() { Err("/proc/stat counted no time") } else { Ok(shares) }
    }

    /// Drops that the transport can have and this host does not show.
    fn unknown_drops(&self, drops: &Drops) -> impl Iterator<Item = String> {
        let has_interface = self.transport.has_interface();
        let has_sockets = self.drops.has_sockets();
        // Of a ping's far end the kernel alone takes part, and nobody tells the end where the near one is.
        let is_kernels = self.transport == Transport::Icmp && !has_sockets;
        let no_route = has_interface && !self.has_link && !is_kernels;
        [
            (no_route, "drops of the interface (no interface with a route to the other end was found)"),
            (
                self.has_link && drops.qdisc.is_none(),
                "drops of queueing disciplines (the kernel does not list them by RTM_GETQDISC)",
            ),
            (
                self.has_link && drops.interface.is_none(),
                "drops of the interface (the kernel does not list them as IFLA_STATS64)",
            ),
            (has_interface && drops.softnet.is_none(), "drops of softnet (/proc/net/softnet_stat cannot be read)"),
            (
                has_sockets && drops.socket.is_none(),
                "drops of the sockets (the kernel lacks SO_MEMINFO, which came with Linux 4.12)",
            ),
        ]
        .into_iter()
        .filter(|(is_missing, _)| *is_missing)
        .map(|(_, sentence)| sentence.to_owned())
    }
}

/// The CPUs that `/proc/stat` shows to this process.
fn stat_of() -> CpuSharesOf {
    static OF: OnceLock<CpuSharesOf> = OnceLock::new();
    *OF.get_or_init(|| cpu_shares_of(&kernel::text("/proc/self/mountinfo")))
}

/// The thread that was on a CPU or waited for one for the longest time.
fn busiest(before: &EvidenceSample, after: &EvidenceSample, cpus: &[Shares]) -> Option<ThreadUse> {
    let elapsed_ns = after.at_ns.saturating_sub(before.at_ns);
    let threads = after.tasks.iter().enumerate().filter_map(|(place, time)| {
        // A thread that was not there had used no time.
        let start = before.tasks.get(place).map_or(Some(TaskTime::default()), |start| *start)?;
        Some((*time)?.since(start))
    });
    let time = threads.max_by_key(|time| time.busy_ns + time.waiting_ns.unwrap_or(0))?;
    let of_cpu = cpus.iter().find(|one| one.cpu == time.cpu);
    Some(ThreadUse {
        threads: u32::try_from(after.started).unwrap_or(u32::MAX),
        cpu_busy: of_cpu.map(|one| one.busy),
        cpu_softirq: of_cpu.map(|one| one.softirq),
        ..time.within(elapsed_ns)
    })
}

/// Times of threads that this host does not show.
fn unknown_threads(after: &EvidenceSample, thread: Option<&ThreadUse>) -> Option<String> {
    if after.started > tasks::MOST {
        let (started, most) = (after.started, tasks::MOST);
        return Some(format!("the times of {} data threads (plumb watches {most})", started - most));
    }
    match thread {
        None if after.started > 0 => {
            Some("the times of the data threads (/proc/thread-self/stat cannot be read)".to_owned())
        }
        Some(ThreadUse { waiting: None, .. }) => {
            Some("the time that threads wait for a CPU (/proc/thread-self/schedstat does not show it)".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
