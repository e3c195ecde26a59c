//! The results of this end, as a client of iperf3 gets them.

use std::fmt::Write;

use nix::sys::resource::{UsageWho, getrusage};

use super::super::{
    parameters::Parameters,
    results::{Results, StreamResults},
    state::stream_id,
};
use crate::{
    report::{FlowWindow, Phase, SideReport},
    spec::{Direction, Role, Side, TestSpec, Transport},
};

/// CPU time of this process until now, seconds: user and system. Other tests of the daemon are part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime([f64; 2]);

impl CpuTime {
    pub fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Self::default() };
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Self([seconds(usage.user_time()), seconds(usage.system_time())])
    }

    /// Percent of one CPU in `seconds` since then: all, user, system.
    fn since(self, seconds: f64) -> Option<[f64; 3]> {
        let now = Self::now();
        let percent = |i: usize| 100.0 * (now.0[i] - self.0[i]).max(0.0) / seconds;
        (seconds > 0.0).then(|| [percent(0) + percent(1), percent(0), percent(1)])
    }
}

/// Times of a test here, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Begin of the measurement, after the omitted time.
    pub begin: u64,
    /// The client's word that the test is over.
    pub end: u64,
    /// The last arrival after that.
    pub arrived: u64,
}

/// The results of a test. `theirs`: the client's.
pub fn results(
    spec: &TestSpec,
    asked: &Parameters,
    report: &SideReport,
    theirs: &Results,
    times: Times,
    cpu: CpuTime,
) -> Results {
    let seconds = |until: u64| until.saturating_sub(times.begin) as f64 / 1e9;
    let udp = spec.transport == Transport::Udp;
    let early = report.phases.iter().find(|window| window.phase == Phase::Warmup);
    let stream = |flow: &FlowWindow| {
        let id = stream_id(flow.flow).into();
        let before = early.and_then(|window| window.flows.iter().find(|early| early.flow == flow.flow));
        let omitted = before.map(|early| early.counts).unwrap_or_default();
        let mut result = StreamResults { id, ..StreamResults::default() };
        if flow.role == Role::Sender {
            result.bytes = flow.counts.bytes_sent - omitted.bytes_sent.min(flow.counts.bytes_sent);
            result.packets = flow.counts.messages_sent;
            result.retransmits = flow.retransmits.filter(|_| !udp);
            result.omitted = udp.then_some((0, omitted.messages_sent));
            result.seconds = seconds(times.end);
            return result;
        }
        result.bytes = flow.counts.bytes_received - omitted.bytes_received.min(flow.counts.bytes_received);
        result.seconds = seconds(times.arrived);
        let client = theirs.streams.iter().find(|stream| stream.id == id);
        if let Some(client) = client.filter(|client| !udp && asked.omit_s == 0 && client.bytes < result.bytes) {
            // Since version 3.16 a client ends its threads in the middle of a call, and does not count what that call sent.
            result.bytes -= (result.bytes - client.bytes).min(spec.sizes.message_bytes);
        }
        if udp {
            // The client knows how many there were; the highest counter misses those that were lost at the end.
            result.packets = client.map_or(0, |client| client.packets).max(flow.counts.messages_received);
            result.errors = result.packets - flow.counts.messages_received;
            result.omitted = match client.and_then(|client| client.omitted) {
                Some((_, packets)) => Some((packets.saturating_sub(omitted.messages_received), packets)),
                None if asked.omit_s == 0 => Some((0, 0)),
                None => None,
            };
            result.jitter_s = flow.jitter_ns.unwrap_or(0) as f64 / 1e9;
        }
        result
    };
    let streams: Vec<_> = report.totals.iter().map(stream).collect();
    let granted = report.options.iter().find(|granted| granted.option == "congestion_control");
    Results {
        cpu: cpu.since(seconds(times.arrived.max(times.end))),
        has_retransmits: (spec.direction != Direction::Forward).then_some(!udp),
        congestion: granted.and_then(|granted| granted.at_end.clone().or_else(|| granted.at_start.clone())),
        output: asked.wants_output.then(|| output(spec, &streams)),
        streams,
    }
}

/// This server's results in words.
fn output(spec: &TestSpec, streams: &[StreamResults]) -> String {
    let mut text = format!("plumb {}\n", env!("CARGO_PKG_VERSION"));
    for (flow, stream) in (0..).zip(streams) {
        let verb = if spec.roles(Side::Far, flow).contains(&Role::Sender) { "sent" } else { "received" };
        // Writing to a string cannot fail.
        let _ = write!(text, "[{:3}] {verb} {} bytes in {:.3} s", stream.id, stream.bytes, stream.seconds);
        if spec.transport == Transport::Udp && verb == "received" {
            let _ = write!(text, ", lost {} of {} datagrams", stream.errors, stream.packets);
        }
        text.push('\n');
    }
    text
}
