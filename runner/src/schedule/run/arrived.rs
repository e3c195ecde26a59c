//! Whether the bytes that a receiver counted in the measure phase also arrived in it.
//!
//! A receiver that could not run in the warm-up leaves the buffers of its sockets full. What it reads from them in the
//! measure phase has come before: the rate then exceeds that of the path. The kernels know better. The sender's counts what
//! the receiver's has acknowledged (`tcpi_bytes_acked`), whether a program has read it or not.

use netcore::{
    client::Outcome,
    report::{Phase, SideReport, TcpInfo, Window},
    spec::Pattern,
};
use schemas::units::margin;

use crate::{
    plan::case::Member,
    schedule::{bench::Measured, step::Step},
};

/// Share of the bytes that were read in the measure phase and acknowledged before it, from which on the rate is wrong. The
/// content of the buffers goes up and down in every test, by less.
const MOST: f64 = 0.05;

/// Says it of an iteration in which a receiver read more than had arrived meanwhile.
pub(super) fn earlier(step: &Step, measured: &Measured) -> Option<String> {
    // The answers of round trips are too few to fill a buffer, and their windows may lie apart by most of them.
    let is_stream = |member: &Member| member.spec().is_some_and(|spec| spec.pattern == Pattern::Stream);
    let streams = step.members.iter().zip(&measured.members).filter(|(member, _)| is_stream(member));
    let share = streams.filter_map(|(_, reports)| share(reports)).reduce(f64::max).filter(|share| *share > MOST)?;
    Some(format!(
        "{} of what was read while it measured had arrived before: the receiver could not run in the warm-up, or a host was \
         paused",
        margin(share)
    ))
}

/// The larger share of the two ends' reading. `None`: no kernel tells, or an end received nothing.
fn share(reports: &Outcome) -> Option<f64> {
    let (near, far) = (measured(&reports.near)?, measured(reports.far.as_ref()?)?);
    let apart_ns = reports.near_start_ns?.abs_diff(reports.far_start_ns?);
    [(near, far), (far, near)]
        .into_iter()
        .filter_map(|(sender, reader)| of_reader(sender, reader, apart_ns))
        .reduce(f64::max)
}

fn measured(report: &SideReport) -> Option<&Window> {
    report.phases.iter().find(|window| window.phase == Phase::Measure)
}

fn of_reader(sender: &Window, reader: &Window, apart_ns: u64) -> Option<f64> {
    let (mut read, mut arrived, mut grown) = (0.0, 0.0, 0.0);
    for flow in reader.flows.iter().filter(|flow| flow.counts.bytes_received > 0) {
        let from = sender.flows.iter().find(|other| other.flow == flow.flow)?;
        let [start, end] = [from.tcp_at_start?, from.tcp_info?];
        read += flow.counts.bytes_received as f64;
        arrived += end.bytes_acked?.saturating_sub(start.bytes_acked?) as f64;
        let window = |info: TcpInfo| f64::from(info.cwnd_segments) * f64::from(info.mss_bytes);
        grown += (window(end) - window(start)).max(0.0);
    }
    // Bytes under way at the end, more than at the begin, are acknowledged later; and the ends' windows lie a little apart.
    let unsure_ns = apart_ns.saturating_add(sender.elapsed_ns.abs_diff(reader.elapsed_ns));
    let unsure = grown + read * unsure_ns as f64 / reader.elapsed_ns.max(1) as f64;
    (read > 0.0).then(|| ((read - arrived - unsure) / read).max(0.0))
}
