//! Figures of an iteration, from the reports of both ends.

use netcore::{
    client::Outcome,
    measure::histogram,
    report::{Counts, CpuUse, FlowWindow, Phase, SideReport, Window},
};

use super::{
    figures::{Buffer, Cpu, EndFigures, Figures, Latency},
    kind::Calls,
    request::Request,
    sizes::DefaultSizes,
};

/// Makes the figures. `defaults`: buffers of a socket of this end before it was connected. `None`: the measurement never began.
pub fn figures(outcome: &Outcome, request: &Request, defaults: DefaultSizes) -> Option<Figures> {
    let shape = request.shape;
    let near = measured(&outcome.near)?;
    let far = outcome.far.as_ref();
    // The far end counts a stream to its last byte, so this end does, too, and the time goes on until it has arrived.
    let sends = shape.calls == Calls::SEND && !shape.has_transactions();
    let streams = sends && !shape.transport.is_datagram();
    let far_window = far.and_then(measured);
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

/// The window of the measurement.
fn measured(report: &SideReport) -> Option<&Window> {
    report.phases.iter().find(|window| window.phase == Phase::Measure)
}

fn sum(flows: &[FlowWindow]) -> Counts {
    flows.iter().fold(Counts::default(), |all, flow| Counts {
        bytes_sent: all.bytes_sent + flow.counts.bytes_sent,
        bytes_received: all.bytes_received + flow.counts.bytes_received,
        sends: all.sends + flow.counts.sends,
        receives: all.receives + flow.counts.receives,
        transactions: all.transactions + flow.counts.transactions,
        errors: all.errors + flow.counts.errors,
        messages_sent: all.messages_sent + flow.counts.messages_sent,
        messages_received: all.messages_received + flow.counts.messages_received,
        ..all
    })
}

fn end(report: &SideReport, counts: &Counts, flows: &[FlowWindow], cpu: Option<&CpuUse>) -> EndFigures {
    let retransmits: Vec<u64> =
        flows.iter().filter_map(|flow| flow.retransmits.or(flow.tcp_info.map(|info| info.retransmits))).collect();
    let last = |name| {
        let granted = report.options.iter().find(|granted| granted.option == name)?;
        granted.at_end.as_ref().or(granted.at_start.as_ref())
    };
    EndFigures {
        bytes_sent: counts.bytes_sent,
        bytes_received: counts.bytes_received,
        // netperf sends and receives a datagram per call; a call of ours may have many.
        sends: counts.sends.max(counts.messages_sent),
        receives: counts.receives.max(counts.messages_received),
        send_buffer: number(report, "send_buffer"),
        receive_buffer: number(report, "receive_buffer"),
        cpu: cpu.map(percent),
        retransmits: (!retransmits.is_empty()).then(|| retransmits.iter().sum()),
        congestion_control: last("congestion_control").cloned(),
        service: last("dscp").and_then(|text| text.parse::<u8>().ok()).map(|code_point| code_point << 2),
        priority: last("priority").and_then(|text| text.parse().ok()),
    }
}

/// Values of a numeric option at the start and at the end.
fn number(report: &SideReport, option: &str) -> Buffer {
    let granted = report.options.iter().find(|granted| granted.option == option);
    let of = |text: Option<&String>| text.and_then(|text| text.parse().ok());
    let initial = granted.and_then(|granted| of(granted.at_start.as_ref()));
    Buffer { initial, last: granted.and_then(|granted| of(granted.at_end.as_ref())).or(initial) }
}

/// netperf counts time that waits for input and output as busy.
fn percent(used: &CpuUse) -> Cpu {
    Cpu {
        count: used.cpus,
        busy: 100.0 * (used.busy + used.iowait),
        user: 100.0 * used.user,
        system: 100.0 * used.system,
        iowait: 100.0 * used.iowait,
        irq: 100.0 * used.irq,
        softirq: 100.0 * used.softirq,
        peak: 100.0 * used.peak,
        peak_id: used.peak_id,
    }
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
