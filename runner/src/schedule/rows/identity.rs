//! The cells that say what ran and where: the same in every row of a case.

use netcore::{
    report::{Granted, SideReport},
    spec::{Dialect, Pattern, Role, TestSpec},
};
use schemas::{
    columns::Row,
    words::{Control, OfferedUnit, Way},
};

/// The cells that a test's spec decides. What the plan knows (names, ids, hosts) is the caller's.
pub fn requested(row: &mut Row, spec: &TestSpec) {
    row.control = Some(match spec.dialect {
        Dialect::Plumb => Control::Session,
        Dialect::Service => Control::None,
        Dialect::Netperf => Control::Netperf,
        Dialect::Iperf3 { .. } => Control::Iperf3,
    });
    row.transport = Some(spec.transport.name().into());
    row.direction = super::ways(spec.direction).last().copied();
    row.streams = Some(spec.streams.into());
    match spec.pattern {
        Pattern::Stream => {
            row.message_bytes = Some(spec.sizes.message_bytes);
            row.receive_bytes = Some(spec.sizes.receive_bytes);
            row.receive = Some(spec.receive.name().into());
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
        row.offered_unit = Some(unit);
    }
    row.local_cpu = spec.near.cpus.as_ref().map(ToString::to_string);
    row.remote_cpu = spec.far.cpus.as_ref().map(ToString::to_string);
}

/// The load that all streams of one direction offer together, and its unit.
pub fn offered(spec: &TestSpec) -> Option<(f64, OfferedUnit)> {
    let events = spec.pace.as_ref()?.events_per_s * f64::from(spec.streams);
    Some(match spec.pattern {
        Pattern::Stream if spec.transport.is_datagram() => (events, OfferedUnit::Messages),
        Pattern::Stream => (events * spec.sizes.message_bytes as f64 * 8.0, OfferedUnit::Bits),
        _ => (events, OfferedUnit::Transactions),
    })
}

/// The cells that the kernels decided: what was granted, as it was at the end.
pub fn granted(row: &mut Row, way: Way, near: &SideReport, far: Option<&SideReport>) {
    row.io = Some(near.io.clone());
    row.threads = Some(near.threads.into());
    row.library = match (way, far) {
        (Way::Reverse, Some(far)) => far.library.clone(),
        (Way::Both, Some(far)) if far.library != near.library => None,
        _ => near.library.clone(),
    };
    row.local_spin_ratio = near.spinning.and_then(|waits| waits.spun_ratio());
    row.remote_spin_ratio = far.and_then(|far| far.spinning?.spun_ratio());
    // Of two ends that differ, none is the row's.
    let of_role = |option, role| {
        let [near, far] = [Some(near), far].map(|end| end.and_then(|end| text(end, option, role)));
        match (way, role) {
            (Way::Forward, Role::Receiver) | (Way::Reverse, Role::Sender) => far,
            (Way::Forward | Way::Reverse, _) => near,
            (Way::Both, _) => near.filter(|near| far.is_none_or(|far| far == *near)),
        }
    };
    let of_sender = |option| of_role(option, Role::Sender);
    row.congestion_control = of_sender("congestion_control");
    row.no_delay = of_sender("no_delay").and_then(|v| v.parse().ok());
    row.gso = of_sender("gso").and_then(|v| v.parse().ok());
    row.gro = of_role("gro", Role::Receiver).and_then(|v| v.parse().ok());
    row.ecn = of_sender("ecn").and_then(|v| v.parse().ok());
    row.mss_bytes = of_sender("mss").and_then(|v| v.parse().ok());
    row.local_send_buffer_bytes = number(near, "send_buffer", Role::Sender);
    row.local_receive_buffer_bytes = number(near, "receive_buffer", Role::Receiver);
    row.remote_send_buffer_bytes = far.and_then(|far| number(far, "send_buffer", Role::Sender));
    row.remote_receive_buffer_bytes = far.and_then(|far| number(far, "receive_buffer", Role::Receiver));
}

/// The kernel's word on an option of the first flow with this role at the end, or of the first flow if none has it. A
/// receiver's options say nothing about how data are sent. The other flows' are in `run.json`.
fn text(report: &SideReport, option: &str, role: Role) -> Option<String> {
    let flow = report.phases.first().and_then(|w| w.flows.iter().find(|f| f.role == role)).map(|f| f.flow);
    let known = |g: &&Granted| g.option == option;
    let of_role = report.options.iter().filter(known).find(|g| Some(g.flow) == flow);
    of_role.or_else(|| report.options.iter().find(known)).and_then(|g| g.at_end.clone().or_else(|| g.at_start.clone()))
}

fn number(report: &SideReport, option: &str, role: Role) -> Option<u64> {
    text(report, option, role)?.parse().ok()
}
