//! Whether the bytes that a receiver counted in the measure phase also arrived in it.
//!
//! Bytes of the warm-up wait in the receiver's kernel for two reasons. The measure phase counts them when they are read, so
//! that the rate exceeds that of the path. The sender's kernel knows when they arrived.
//!
//! - A receiver that could not run leaves the buffers of its sockets full. `tcpi_bytes_acked` counts what arrived in order,
//!   whether a program has read it or not. Another start may find the receiver running.
//! - Behind a lost segment the bytes wait for its retransmission. `tcpi_delivered` counts them, too. The slow start of several
//!   streams does it each time, so a longer warm-up helps, and another start does not.

use netcore::{
    client::Outcome,
    report::{Phase, SideReport, TcpInfo, Window, grown},
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

/// Mean share of the bytes that arrived out of order before the measure phase, from which on readers of the numbers hear of
/// it. In a steady load as many wait at the begin as at the end.
pub(super) const OUT_OF_ORDER: f64 = 0.01;

/// Says it of an iteration in which a receiver read more than had arrived meanwhile.
pub(super) fn earlier(step: &Step, measured: &Measured) -> Option<String> {
    let share = largest(step, measured, |read| Some(read.unread)).filter(|share| *share > MOST)?;
    Some(format!(
        "{} of what was read while it measured had arrived before: the receiver could not run in the warm-up, or a host was \
         paused",
        margin(share)
    ))
}

/// The largest share of what a receiver read that had arrived before, and waited for a lost segment; below 0 where more
/// waited at the end. `None`: no kernel tells.
pub(super) fn out_of_order(step: &Step, measured: &Measured) -> Option<f64> {
    largest(step, measured, |read| read.out_of_order)
}

fn largest(step: &Step, measured: &Measured, share: fn(Read) -> Option<f64>) -> Option<f64> {
    // The answers of round trips are too few to fill a buffer, and their windows may lie apart by most of them.
    let is_stream = |member: &Member| member.spec().is_some_and(|spec| spec.pattern == Pattern::Stream);
    let streams = step.members.iter().zip(&measured.members).filter(|(member, _)| is_stream(member));
    streams.flat_map(|(_, reports)| readers(reports)).filter_map(share).reduce(f64::max)
}

/// Shares of the bytes that an end read in the measure phase, and that had arrived before.
struct Read {
    /// They waited for the program.
    unread: f64,
    /// They waited for a lost segment. `None`: this kernel does not tell.
    out_of_order: Option<f64>,
}

/// The ends that received something.
fn readers(reports: &Outcome) -> Vec<Read> {
    let both = || {
        let (near, far) = (measured(&reports.near)?, measured(reports.far.as_ref()?)?);
        let apart_ns = reports.near_start_ns?.abs_diff(reports.far_start_ns?);
        Some([(near, far), (far, near)].into_iter().filter_map(|(from, to)| of_reader(from, to, apart_ns)).collect())
    };
    both().unwrap_or_default()
}

fn measured(report: &SideReport) -> Option<&Window> {
    report.phases.iter().find(|window| window.phase == Phase::Measure)
}

fn of_reader(sender: &Window, reader: &Window, apart_ns: u64) -> Option<Read> {
    let (mut read, mut arrived, mut grew) = (0.0, 0.0, 0.0);
    let mut delivered = Some(0.0);
    for flow in reader.flows.iter().filter(|flow| flow.counts.bytes_received > 0) {
        let from = sender.flows.iter().find(|other| other.flow == flow.flow)?;
        let [start, end] = [from.tcp_at_start?, from.tcp_info?];
        read += flow.counts.bytes_received as f64;
        arrived += end.bytes_acked?.saturating_sub(start.bytes_acked?) as f64;
        // Segments may be shorter, so this is the most that can have arrived.
        let segments = end.delivered_segments.zip(start.delivered_segments).map(|(end, start)| grown(end, start));
        delivered = delivered.zip(segments).map(|(sum, segments)| sum + segments as f64 * f64::from(end.mss_bytes));
        let window = |info: TcpInfo| f64::from(info.cwnd_segments) * f64::from(info.mss_bytes);
        grew += (window(end) - window(start)).max(0.0);
    }
    // Bytes under way at the end, more than at the begin, are acknowledged later; and the ends' windows lie a little apart.
    let unsure_ns = apart_ns.saturating_add(sender.elapsed_ns.abs_diff(reader.elapsed_ns));
    let unsure = grew + read * unsure_ns as f64 / reader.elapsed_ns.max(1) as f64;
    (read > 0.0).then(|| Read {
        unread: ((read - arrived - unsure) / read).max(0.0),
        out_of_order: delivered.map(|delivered| (arrived - delivered) / read),
    })
}
