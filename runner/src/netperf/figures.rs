//! Figures of one iteration: plain numbers, from which all output is made.

use netcore::report::TcpInfo;

use super::{kind::Shape, unit::Unit};

/// A socket buffer, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    pub initial: Option<u64>,
    pub last: Option<u64>,
}

/// CPU use of an end, per cent of all CPUs. Waiting for input and output counts as busy, as in netperf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    pub count: u32,
    pub busy: f64,
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    pub irq: f64,
    pub softirq: f64,
    pub peak: f64,
    pub peak_id: u32,
}

/// Figures of one end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndFigures {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub sends: u64,
    pub receives: u64,
    pub send_buffer: Buffer,
    pub receive_buffer: Buffer,
    /// `None`: not measured.
    pub cpu: Option<Cpu>,
    pub retransmits: Option<u64>,
    pub congestion_control: Option<String>,
    pub service: Option<u8>,
    pub priority: Option<u32>,
}

impl EndFigures {
    pub fn bytes(&self) -> u64 {
        self.bytes_sent + self.bytes_received
    }
}

/// Latencies of the timed operation, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    pub min: f64,
    pub max: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub mean: f64,
    pub stddev: f64,
}

/// Figures of one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub elapsed_s: f64,
    pub transactions: u64,
    /// Sends that failed without ending the test.
    pub failed_sends: u64,
    pub local: EndFigures,
    /// `None`: the far end does not report.
    pub remote: Option<EndFigures>,
    pub mss: Option<u64>,
    pub latency: Option<Latency>,
    /// TCP_INFO of the first connection, for `DUMP_TCP_INFO`.
    pub tcp: Option<TcpInfo>,
}

impl Figures {
    fn counted(&self, shape: Shape) -> Option<f64> {
        shape.has_transactions().then_some(self.transactions as f64)
    }

    /// The bytes that count: those that the near end received, or those that the far end moved.
    fn bytes(&self, shape: Shape) -> u64 {
        match &self.remote {
            Some(remote) if shape.calls.send || shape.connects => remote.bytes(),
            _ => self.local.bytes(),
        }
    }

    /// The headline.
    pub fn throughput(&self, shape: Shape, unit: Unit) -> f64 {
        unit.rate(self.bytes(shape) as f64, self.counted(shape), self.elapsed_s)
    }

    /// A number of bytes as a rate.
    pub fn rate_of(&self, bytes: u64, unit: Unit) -> f64 {
        unit.as_volume().rate(bytes as f64, None, self.elapsed_s)
    }

    pub fn transaction_rate(&self) -> f64 {
        Unit::Transactions.rate(0.0, Some(self.transactions as f64), self.elapsed_s)
    }

    /// Service demand: microseconds of CPU per transaction where they are the unit, or per KiB that this end moved.
    pub fn service_demand(&self, cpu: Option<Cpu>, unit: Unit) -> Option<f64> {
        let cpu = cpu?;
        let work = if unit.is_transactions() { self.transactions as f64 } else { self.local.bytes() as f64 / 1024.0 };
        let busy_us = cpu.busy / 100.0 * f64::from(cpu.count) * self.elapsed_s * 1e6;
        (work > 0.0).then_some(busy_us / work)
    }
}
