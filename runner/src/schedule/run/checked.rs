//! Checks of an iteration: whether its ends measured at the same time, and whether the bytes that a receiver counted in the
//! measure phase also arrived in it.
//!
//! Bytes of the warm-up wait in the receiver's kernel for two reasons. The measure phase counts them when they are read, so
//! that the rate exceeds that of the path. The sender's kernel knows when they arrived.
//!
//! - A receiver that could not run leaves the buffers of its sockets full. `tcpi_bytes_acked` counts what arrived in order,
//!   whether a program has read it or not. Another start may find the receiver running.
//! - Behind a lost segment the bytes wait for its retransmission. `tcpi_delivered` counts them, too. The slow start of several
//!   streams does it each time, so a longer warm-up helps, and another start does not.

use std::time::Duration;

use netcore::{
    client::Outcome,
    report::{Phase, SideReport, TcpInfo, Window},
    spec::{Pattern, Stop},
};
use schemas::units::{Unit, human, margin};

use crate::{
    plan::case::Member,
    schedule::{Measured, step::Step},
};

/// Bounds of the starts of an iteration until one whose ends are not together counts as a failure. Of short windows there
/// are as many as fit into a second: a busy machine misses many of them, and they cost little.
const STARTS: [u64; 2] = [3, 20];

/// An iteration whose ends or members did not measure together.
pub(super) struct Apart {
    pub(super) sentence: String,
    pub(super) skew: Option<Duration>,
    /// Starts that it gets in all.
    pub(super) starts: u64,
}

/// The measure phases of a member's two ends, times in nanoseconds.
struct Phases {
    asked: u64,
    near: u64,
    /// Of the far end, and how far apart the two began. `None`: a far end that does not tell its instants.
    far: Option<(u64, u64)>,
    /// Time during which both measured.
    shared: u64,
}

impl Phases {
    /// `None`: a test that stops by a count, whose ends need not be simultaneous.
    fn of(member: &Member, reports: &Outcome) -> Option<Self> {
        let Stop::AfterNs(asked) = member.spec()?.phases.stop else { return None };
        let length = |report: &SideReport| report.phase(Phase::Measure).map(|window| window.elapsed_ns);
        let near = length(&reports.near)?;
        let far = reports.near_start_ns.zip(reports.far_start_ns).zip(reports.far.as_ref().and_then(length));
        let Some(((near_start, far_start), far)) = far else {
            return Some(Self { asked, near, far: None, shared: near });
        };
        let end = near_start.saturating_add(near).min(far_start.saturating_add(far));
        let shared = end.saturating_sub(near_start.max(far_start));
        Some(Self { asked, near, far: Some((far, near_start.abs_diff(far_start))), shared })
    }

    fn sentence(&self, member: &Member) -> String {
        let seconds = |ns: u64| human(Unit::Seconds, ns as f64 / 1e9);
        let asked = format!("of the {} asked for: a host was paused or is overloaded", seconds(self.asked));
        let near = format!("`{}` measured for {}", member.from.name(), seconds(self.near));
        let Some((far, apart)) = self.far else { return format!("{near} {asked}") };
        let shared = match self.shared {
            0 => "never".to_owned(),
            ns => format!("for {}", seconds(ns)),
        };
        format!(
            "{near} and `{}` for {}, beginning {} apart, {shared} at the same time {asked}",
            member.to.name(),
            seconds(far),
            seconds(apart)
        )
    }
}

/// Why an iteration is useless: its ends measured together for less than half of the time that was asked for, or members of a
/// group started too far apart.
pub(super) fn apart(step: &Step, measured: &Measured) -> Option<Apart> {
    for (member, reports) in step.members.iter().zip(&measured.members) {
        if let Some(phases) = Phases::of(member, reports).filter(|phases| phases.shared < phases.asked / 2) {
            return Some(Apart {
                sentence: phases.sentence(member),
                skew: phases.far.map(|(_, apart)| Duration::from_nanos(apart)),
                starts: (1_000_000_000 / phases.asked).clamp(STARTS[0], STARTS[1]),
            });
        }
    }
    let (most, skew) = (step.group.as_ref()?.max_skew, measured.start_skew?);
    (skew > most).then(|| Apart {
        sentence: format!(
            "the members started {} apart, more than the {} that `concurrent: {{start: {{max_skew: …}}}}` allows",
            human(Unit::Seconds, skew.as_secs_f64()),
            human(Unit::Seconds, most.as_secs_f64())
        ),
        skew: Some(skew),
        starts: STARTS[0],
    })
}

/// A warning if an end measured for more than twice the time that both share.
pub(super) fn doubt(step: &Step, measured: &Measured) -> Option<String> {
    step.members.iter().zip(&measured.members).find_map(|(member, reports)| {
        let phases = Phases::of(member, reports)?;
        let longer = phases.far.map_or(phases.near, |(far, _)| phases.near.max(far));
        (phases.shared < longer / 2).then(|| phases.sentence(member))
    })
}

/// Share of the bytes that were read in the measure phase and acknowledged before it, from which on the rate is wrong. The
/// content of the buffers goes up and down in every test, by less.
const MOST: f64 = 0.05;

/// Mean share of the bytes that arrived out of order before the measure phase, or before its end, from which on readers of the
/// numbers hear of it. In a steady load as many wait at the begin as at the end.
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
        let (near, far) = (reports.near.phase(Phase::Measure)?, reports.far.as_ref()?.phase(Phase::Measure)?);
        let apart_ns = reports.near_start_ns?.abs_diff(reports.far_start_ns?);
        Some([(near, far), (far, near)].into_iter().filter_map(|(from, to)| of_reader(from, to, apart_ns)).collect())
    };
    both().unwrap_or_default()
}

fn of_reader(sender: &Window, reader: &Window, apart_ns: u64) -> Option<Read> {
    let (mut read, mut arrived, mut grew) = (0.0, 0.0, 0.0);
    let mut delivered = Some(0.0);
    for flow in reader.flows.iter().filter(|flow| flow.counts.bytes_received > 0) {
        let from = sender.flows.iter().find(|other| other.flow == flow.flow)?;
        let [start, end] = [from.tcp_at_start?, from.tcp_info?];
        read += flow.counts.bytes_received as f64;
        arrived += end.bytes_acked?.saturating_sub(start.bytes_acked?) as f64;
        let bytes = end.delivered_bytes.zip(start.delivered_bytes).and_then(|(end, start)| end.checked_sub(start));
        delivered = delivered.zip(bytes).map(|(sum, bytes)| sum + bytes as f64);
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
