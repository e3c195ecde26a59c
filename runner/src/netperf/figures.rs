//! Figures of one iteration: plain numbers from the reports of both ends, from which all output is made.

use netcore::{
    client::Outcome,
    measure::histogram,
    report::{Counts, CpuUse, FlowWindow, Phase, SideReport, TcpInfo, Window},
};

use super::{
    kind::{Calls, Shape, Unit},
    mapping::DefaultSizes,
    request::Request,
};

/// A socket buffer, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    pub initial: Option<u64>,
    pub last: Option<u64>,
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
    pub cpu: Option<CpuUse>,
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
    pub fn service_demand(&self, cpu: &CpuUse, unit: Unit) -> Option<f64> {
        let work = if unit.is_transactions() { self.transactions as f64 } else { self.local.bytes() as f64 / 1024.0 };
        let busy_us = busy(cpu) / 100.0 * f64::from(cpu.cpus) * self.elapsed_s * 1e6;
        (work > 0.0).then_some(busy_us / work)
    }
}

/// Makes the figures. `defaults`: buffers of a socket of this end before it was connected. `None`: the measurement never began.
pub fn figures(outcome: &Outcome, request: &Request, defaults: DefaultSizes) -> Option<Figures> {
    let shape = request.shape;
    let near = outcome.near.phase(Phase::Measure)?;
    let far = outcome.far.as_ref();
    // The far end counts a stream to its last byte, so this end does, too, and the time goes on until it has arrived.
    let sends = shape.calls == Calls::SEND && !shape.has_transactions();
    let streams = sends && !shape.transport.is_datagram();
    let far_window = far.and_then(|far| far.phase(Phase::Measure));
    let elapsed_ns = match far_window {
        Some(window) if streams => window.elapsed_ns,
        _ => near.elapsed_ns,
    };
    let flows = if sends { &outcome.near.totals } else { &near.flows };
    let counts = sum(flows);
    let remote = far.map(|far| {
        let cpu = far_window.and_then(|window| window.cpu.as_ref());
        end(far, &sum(&far.totals), &far.totals, cpu.filter(|_| request.globals.remote_cpu))
    });
    let mut local = end(&outcome.near, &counts, &near.flows, near.cpu.as_ref().filter(|_| request.globals.local_cpu));
    // The reports have them as they were after the connection was made.
    local.send_buffer.initial = Some(defaults.send_buffer);
    local.receive_buffer.initial = Some(defaults.receive_buffer);
    local.service = local.service.filter(|_| request.globals.service.local.is_some());
    local.priority = local.priority.filter(|_| request.globals.priority.local.is_some());
    let remote = remote.map(|mut remote| {
        let asked = &request.globals;
        remote.service = remote.service.or(asked.service.remote).filter(|_| asked.service.remote.is_some());
        remote.priority = remote.priority.or(asked.priority.remote).filter(|_| asked.priority.remote.is_some());
        remote
    });
    Some(Figures {
        elapsed_s: elapsed_ns as f64 / 1e9,
        transactions: sum(&near.flows).transactions,
        failed_sends: counts.errors,
        local,
        remote,
        mss: number(&outcome.near, "mss").last.or(number(&outcome.near, "mss").initial),
        latency: latency(near),
        tcp: near.flows.first().and_then(|flow| flow.tcp_info),
    })
}

fn sum(flows: &[FlowWindow]) -> Counts {
    flows.iter().map(|flow| flow.counts).sum()
}

fn end(report: &SideReport, counts: &Counts, flows: &[FlowWindow], cpu: Option<&CpuUse>) -> EndFigures {
    let retransmits: Vec<u64> =
        flows.iter().filter_map(|flow| flow.retransmits.or(flow.tcp_info.map(|info| info.retransmits))).collect();
    EndFigures {
        bytes_sent: counts.bytes_sent,
        bytes_received: counts.bytes_received,
        // netperf sends and receives a datagram per call; a call of ours may have many.
        sends: counts.sends.max(counts.messages_sent),
        receives: counts.receives.max(counts.messages_received),
        send_buffer: number(report, "send_buffer"),
        receive_buffer: number(report, "receive_buffer"),
        cpu: cpu.cloned(),
        retransmits: (!retransmits.is_empty()).then(|| retransmits.iter().sum()),
        congestion_control: report.last_value("congestion_control").map(str::to_owned),
        service: report.last_value("dscp").and_then(|text| text.parse::<u8>().ok()).map(|code_point| code_point << 2),
        priority: report.last_value("priority").and_then(|text| text.parse().ok()),
    }
}

/// Values of a numeric option at the start and at the end.
fn number(report: &SideReport, option: &str) -> Buffer {
    let granted = report.options.iter().find(|granted| granted.option == option);
    let of = |text: Option<&str>| text.and_then(|text| text.parse().ok());
    Buffer { initial: granted.and_then(|granted| of(granted.at_start.as_deref())), last: of(report.last_value(option)) }
}

/// Per cent of all CPUs that were busy. netperf counts time that waits for input and output as busy.
pub fn busy(cpu: &CpuUse) -> f64 {
    100.0 * (cpu.busy + cpu.iowait)
}

/// Latencies of the timed operation, of all flows.
fn latency(window: &Window) -> Option<Latency> {
    let mut histogram = histogram::empty();
    for latencies in window.flows.iter().flat_map(|flow| &flow.latencies) {
        // Both have the same form.
        histogram.add(histogram::decode(&latencies.histogram)?).ok()?;
    }
    if histogram.is_empty() {
        return None;
    }
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let at = |quantile| us(histogram.value_at_quantile(quantile));
    Some(Latency {
        min: us(histogram.min()),
        max: us(histogram.max()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        mean: histogram.mean() / 1e3,
        stddev: histogram.stdev() / 1e3,
    })
}
