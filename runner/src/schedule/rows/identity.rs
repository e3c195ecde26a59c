//! The cells that the kernels decided: what was granted. Those that the plan decides are in [`crate::plan::measures`].

use netcore::{
    report::{Granted, SideReport},
    spec::Role,
};
use schemas::{columns::Row, words::Way};

/// The cells of what was granted, as it was at the end.
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
