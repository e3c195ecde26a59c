//! The cells that say what ran and where: the same in every row of a case.

use netcore::{
    report::{Granted, SideReport},
    spec::{Direction, Pattern, TestSpec},
};
use schemas::columns::Row;

/// The cells that a test's spec decides. What the plan knows (names, ids, hosts) is the caller's.
pub fn requested(row: &mut Row, spec: &TestSpec) {
    row.control = Some(if spec.alone { "none" } else { "session" }.into());
    row.transport = Some(spec.transport.name().into());
    row.direction = Some(spec.direction.name().into());
    row.streams = Some(spec.streams.into());
    match spec.pattern {
        Pattern::Stream => {
            row.message_bytes = Some(spec.sizes.message_bytes);
            row.receive_bytes = Some(spec.sizes.receive_bytes);
        }
        Pattern::RequestResponse | Pattern::ConnectRequestResponse => {
            row.request_bytes = Some(spec.sizes.request_bytes);
            row.response_bytes = Some(spec.sizes.response_bytes);
            row.inflight = Some(spec.inflight.into());
            row.coalesce = Some(spec.coalesce);
        }
        Pattern::Ping => {
            row.message_bytes = Some(spec.sizes.message_bytes);
            row.inflight = Some(spec.inflight.into());
        }
        Pattern::Connect => {}
    }
    if let Some((offered, unit)) = offered(spec) {
        row.offered_per_s = Some(offered);
        row.offered_unit = Some(unit.into());
    }
    row.local_cpu = spec.near.cpus.as_ref().map(ToString::to_string);
    row.remote_cpu = spec.far.cpus.as_ref().map(ToString::to_string);
}

/// The load that all streams of one direction offer together, and its unit.
#[must_use]
pub fn offered(spec: &TestSpec) -> Option<(f64, &'static str)> {
    let events = spec.pace.as_ref()?.events_per_s * f64::from(spec.streams);
    Some(match spec.pattern {
        Pattern::Stream if spec.transport.is_datagram() => (events, "messages"),
        Pattern::Stream => (events * spec.sizes.message_bytes as f64 * 8.0, "bits"),
        _ => (events, "transactions"),
    })
}

/// The cells that the kernels decided: what was granted, as it was at the end.
pub fn granted(row: &mut Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) {
    row.io = Some(near.io.clone());
    row.threads = Some(near.threads.into());
    let sender = if spec.direction == Direction::Reverse { far } else { Some(near) };
    if let Some(sender) = sender {
        row.congestion_control = text(sender, "congestion_control");
        row.no_delay = text(sender, "no_delay").and_then(|v| v.parse().ok());
        row.mss_bytes = number(sender, "mss");
    }
    row.local_send_buffer_bytes = number(near, "send_buffer");
    row.local_receive_buffer_bytes = number(near, "receive_buffer");
    row.remote_send_buffer_bytes = far.and_then(|far| number(far, "send_buffer"));
    row.remote_receive_buffer_bytes = far.and_then(|far| number(far, "receive_buffer"));
}

/// What the kernel said of the first flow's option; the others are in `run.json`.
fn text(report: &SideReport, option: &str) -> Option<String> {
    let known = |g: &&Granted| g.option == option;
    report.options.iter().find(known).and_then(|g| g.at_end.clone().or_else(|| g.at_start.clone()))
}

fn number(report: &SideReport, option: &str) -> Option<u64> {
    text(report, option)?.parse().ok()
}
