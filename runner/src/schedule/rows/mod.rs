//! From what two ends report to rows of the results table.
//!
//! - [`window`]: the cells of one phase or interval, and the windows of both ends that they are made from
//! - [`path`]: latency, lost messages, congestion marks, the share of the wire
//! - [`limits`]: what held the test back
//! - [`group`]: what the members of a group did together
//! - [`one_way`]: the delays of the two directions
//! - [`outage`]: when the path was down
//! - [`hops`]: at which link of the path the queue stands
//! - [`ranks`]: what several ranks did
//! - [`printed`]: what a program printed
//! - [`summary`]: what the iterations of a case say together

pub mod group;
pub mod hops;
pub mod limits;
pub mod one_way;
pub mod outage;
pub mod path;
pub mod printed;
pub mod ranks;
pub mod summary;
pub mod window;

use netcore::{
    report::{Granted, Phase, SideReport, TimeWait, Window},
    spec::{Ecn, Pattern, Role, TestSpec, socket::OptionValue},
};
use schemas::{
    columns::Row,
    words::{Record, Way},
};

use self::window::Pair;

pub use crate::plan::answers::ways;

/// The rows of one iteration, in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct IterationRows {
    /// Intervals in order of time, then streams, then the phases.
    pub rows: Vec<Row>,
    /// Copies of the measure phase's `iteration` rows, one per way: what statistics are made of.
    pub measured: Vec<(Way, Row)>,
}

/// Makes the rows of an iteration from what its two ends reported, or the near one alone where the far one is a service.
/// `identity` carries the cells that every row shares.
pub fn of_iteration(identity: &Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) -> IterationRows {
    let granted = |way: Way| {
        let mut identity = identity.clone();
        granted(&mut identity, way, near, far);
        identity
    };
    let identities = [Way::Forward, Way::Reverse, Way::Both].map(granted);
    let mut made = IterationRows::default();

    for pair in pairs(&near.intervals, intervals(far), spec.phases.interval_ns) {
        for way in ways(spec.direction) {
            let mut row = window::row(&identities[*way as usize], spec, pair, *way, None);
            row.record = Some(Record::Interval);
            made.rows.push(row);
        }
    }
    let measure = Pair { near: near.phase(Phase::Measure), far: far.and_then(|far| far.phase(Phase::Measure)) };
    if spec.flows() > 1 {
        for stream in 0..spec.flows() {
            if let Some(way) = window::way_of(spec.direction, measure, stream) {
                let mut row = window::row(&identities[way as usize], spec, measure, way, Some(stream));
                row.record = Some(Record::Stream);
                made.rows.push(row);
            }
        }
    }
    for which in [Phase::Warmup, Phase::Measure, Phase::Cooldown] {
        let pair = Pair { near: near.phase(which), far: far.and_then(|far| far.phase(which)) };
        if pair.near.is_none() && pair.far.is_none() {
            continue;
        }
        let mut rows: Vec<(Way, Row)> = Vec::new();
        for way in ways(spec.direction) {
            let mut row = window::row(&identities[*way as usize], spec, pair, *way, None);
            row.record = Some(Record::Iteration);
            path::wire_share(&mut row, spec, near, far);
            if which == Phase::Measure {
                time_wait(&mut row, near, far);
                hops::fill(&mut row, near);
                let known = near.one_way.as_ref().and_then(|found| one_way::by_kernels(found, near, far?));
                one_way::fill(&mut row, near.one_way.as_ref(), known, near.reflector.as_ref());
                // The receivers of a stream tell; of both directions together the one that was down longer.
                let far_tells = spec.pattern == Pattern::Stream && *way != Way::Reverse;
                let tellers = [far.filter(|_| far_tells), Some(near).filter(|_| !far_tells || *way == Way::Both)];
                let told = tellers.into_iter().flatten().filter_map(|end| end.outages.as_ref());
                outage::fill(&mut row, told.max_by_key(|outages| outages.total_ns), spec.pattern);
                outage::silence(&mut row, spec, near, far);
            }
            rows.push((*way, row));
        }
        if which == Phase::Measure {
            for (_, row) in &mut rows {
                row.cpu_taken_ratio = analyze::limits::taken(row);
            }
            limits::limited_by(&mut rows, spec, pair);
            made.measured.extend(rows.iter().cloned());
        }
        made.rows.extend(rows.into_iter().map(|(_, row)| row));
    }
    made
}

/// Taken before the load and after all of it, so that they belong to the iteration and to none of its intervals.
fn time_wait(row: &mut Row, near: &SideReport, far: Option<&SideReport>) {
    let cells = |counts: Option<TimeWait>| (counts.map(|t| t.before), counts.map(|t| t.after));
    (row.local_time_wait_before, row.local_time_wait_after) = cells(near.time_wait);
    (row.remote_time_wait_before, row.remote_time_wait_after) = cells(far.and_then(|far| far.time_wait));
}

/// The intervals of an end that may be none.
fn intervals(report: Option<&SideReport>) -> &[Window] {
    report.map_or(&[], |report| &report.intervals)
}

/// The intervals of the two ends, in order of time, joined where both were cut at the same edges: to within half of their
/// nominal length, since each end reads when its thread wakes. One that was woken so late that it missed an edge has a longer
/// interval; that and those of the other end in its time stand alone.
fn pairs<'a>(near: &'a [Window], far: &'a [Window], nominal_ns: u64) -> Vec<Pair<'a>> {
    let tolerance = nominal_ns / 2;
    let end = |w: &Window| w.start_ns.saturating_add_unsigned(w.elapsed_ns);
    let same =
        |a: &Window, b: &Window| a.start_ns.abs_diff(b.start_ns) <= tolerance && end(a).abs_diff(end(b)) <= tolerance;
    let mut all = Vec::new();
    for which in [Phase::Warmup, Phase::Measure, Phase::Cooldown] {
        let mut near = near.iter().filter(|w| w.phase == which).peekable();
        let mut far = far.iter().filter(|w| w.phase == which).peekable();
        loop {
            let pair = match (near.peek(), far.peek()) {
                (None, None) => break,
                (Some(a), Some(b)) if same(a, b) => Pair { near: near.next(), far: far.next() },
                (Some(a), Some(b)) if end(a) > end(b) => Pair { near: None, far: far.next() },
                (None, Some(_)) => Pair { near: None, far: far.next() },
                (Some(_), _) => Pair { near: near.next(), far: None },
            };
            all.push(pair);
        }
    }
    all
}

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
    row.tls_cipher = of_sender("tls.cipher");
    row.tls_records = of_sender("tls.records");
    row.gso = of_sender("gso").and_then(|v| v.parse().ok());
    row.gro = of_role("gro", Role::Receiver).and_then(|v| v.parse().ok());
    row.ecn = of_sender("ecn").map(|granted| granted != Ecn::Off.shown());
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
    of_role.or_else(|| report.options.iter().find(known)).and_then(Granted::last).map(str::to_owned)
}

fn number(report: &SideReport, option: &str, role: Role) -> Option<u64> {
    text(report, option, role)?.parse().ok()
}

#[cfg(test)]
mod tests;
