//! Every counter of an end at one instant.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    clock::{monotonic_ns, wall_ns},
    counters::FlowCell,
    cpu::{CpuReader, CpuSnapshot},
    histogram::HistogramSlot,
    tcp_info,
};
use crate::{
    report::{Counts, TcpInfo},
    spec::Role,
};

/// A flow as the sampler sees it.
pub struct SampledFlow {
    /// Its number.
    pub flow: u32,
    /// What it does at this end.
    pub role: Role,
    /// Its counters.
    pub cell: Arc<FlowCell>,
    /// Where its threads leave histograms, by kind.
    pub latency_slots: Vec<(&'static str, Arc<HistogramSlot>)>,
    /// Where a paced thread leaves the gaps between its sends.
    pub gaps: Option<Arc<HistogramSlot>>,
    /// How much of the stop rule's count falls to it; `None`: this end's flow does not stop by a count.
    pub share: Option<u64>,
    /// The socket whose TCP_INFO is read, where it can be had and is asked for.
    pub tcp: Option<Arc<OwnedFd>>,
}

impl SampledFlow {
    /// What the limit counts.
    pub fn count(&self, counts: &Counts) -> u64 {
        if self.role == Role::Requester { counts.transactions } else { counts.bytes_sent }
    }
}

/// What was counted up to an instant. Lists have an entry for each flow.
#[derive(Clone)]
pub struct Sample {
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// Wall clock, nanoseconds since 1970.
    pub wall_ns: i64,
    /// Operations and bytes.
    pub counts: Vec<Counts>,
    /// Due times of paced senders that were given up.
    pub dropped: Vec<u64>,
    /// TCP_INFO, where it can be had.
    pub tcp: Vec<Option<TcpInfo>>,
    /// CPU time, where it is asked for.
    pub cpu: Option<CpuSnapshot>,
}

impl Sample {
    /// Reads everything, the counters first; `then` is done between these and what takes longer to read.
    pub fn take(flows: &[SampledFlow], cpu: &mut Option<CpuReader>, then: impl FnOnce(&[Counts])) -> Self {
        let (at_ns, wall_ns) = (monotonic_ns(), wall_ns());
        let counts: Vec<_> = flows.iter().map(|flow| flow.cell.read()).collect();
        let dropped = flows.iter().map(|flow| flow.cell.dropped()).collect();
        then(&counts);
        let tcp = flows.iter().map(|flow| tcp_info::read(flow.tcp.as_ref()?.as_fd())).collect();
        let cpu = cpu.as_mut().and_then(|reader| reader.read().ok());
        Self { at_ns, wall_ns, counts, dropped, tcp, cpu }
    }

    /// The reading as of the load's start, when nothing had been counted: the instant is known even if the thread that
    /// reads was woken too late for it.
    pub fn begin_at(&mut self, at_ns: u64) {
        self.wall_ns += at_ns.cast_signed() - self.at_ns.cast_signed();
        self.at_ns = at_ns;
        self.counts.fill(Counts::default());
    }
}
