//! A sample: every counter of an end at one instant.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    clock::{self, monotonic_ns, wall_ns},
    counters::FlowCell,
    cpu::{CpuReader, CpuSnapshot},
    evidence::{EvidenceReader, EvidenceSample},
    histogram::HistogramSlot,
    tcp_info,
};
use crate::{
    report::{ClockReading, Counts, TcpInfo},
    spec::Role,
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
    /// Share of the stop rule's count; `None`: the flow does not stop by a count.
    pub share: Option<u64>,
    /// Socket whose TCP_INFO is read, if the test asks for it.
    pub tcp: Option<Arc<OwnedFd>>,
}

impl SampledFlow {
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
    /// The load's start, before which the evidence was read.
    Start,
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
        let cpu = readers.cpu.as_mut().and_then(|reader| reader.read().ok());
        let clocks = clock::reading();
        let evidence = readers.evidence.as_mut().filter(|_| edge == Edge::Phase).map(EvidenceReader::read);
        Self { at_ns, wall_ns, counts, dropped, tcp, clocks, cpu, evidence }
    }

    /// Dates the sample back to the load's start, when all counts were 0: the instant is known even if the sampling
    /// thread woke late. `evidence`: as it was read before that.
    pub fn begin_at(&mut self, at_ns: u64, evidence: Option<EvidenceSample>) {
        self.wall_ns += at_ns.cast_signed() - self.at_ns.cast_signed();
        self.at_ns = at_ns;
        self.evidence = evidence;
        if let Some(evidence) = &mut self.evidence {
            evidence.at_ns = at_ns;
        }
        self.counts.fill(Counts::default());
    }
}
