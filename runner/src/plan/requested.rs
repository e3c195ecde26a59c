//! The cells that a plan decides: what ran and where, the same in every row of a case.

use std::collections::HashMap;

use netcore::spec::{Dialect, Direction, Pattern, TestSpec};
use schemas::{
    columns::Row,
    vocabulary,
    words::{Control, OfferedUnit, Way},
};

use super::{
    case::{Case, Member},
    keys::key,
    model::FindBy,
};

/// Whether the column of a swept key has its value in every row of a test's cases. A member of a group may have a value of its
/// own, a workload may have no such value, and a test in both directions has rows of each: such a key takes an axis column.
pub fn is_told(path: &str, cases: &[Case]) -> bool {
    let Some(column) = vocabulary::column_of_key(path) else { return false };
    let mut value_of = HashMap::new();
    cases.iter().all(|case| {
        let Some((_, value)) = case.axes.iter().find(|(key, _)| **key == *path) else { return true };
        let others: Vec<_> = case.axes.iter().filter(|(key, _)| **key != *path).collect();
        case.members.iter().all(|member| {
            let mut row = Row::default();
            of_member(&mut row, case, member);
            // The total of a group is about both directions.
            let has_both = member.spec().is_some_and(|spec| ways(spec.direction).len() > 1) || case.group.is_some();
            let cell = (member.name.as_str(), others.clone(), row.text(column));
            !(path == key::direction && has_both) && *value_of.entry(cell).or_insert(value) == value
        })
    })
}

/// The cells of a member's rows.
pub fn of_member(row: &mut Row, case: &Case, member: &Member) {
    row.member = (!member.name.is_empty()).then(|| member.name.clone());
    row.workload = Some(member.workload.clone());
    row.from = Some(member.from.name().to_owned());
    row.wire_bits_per_s = member.wire.map(|speed| speed as f64);
    member.job.fill(row, case, member);
}

/// The cells of traffic.
pub(super) fn of_traffic(row: &mut Row, case: &Case, member: &Member, spec: &TestSpec) {
    row.to = Some(member.to.name().to_owned());
    of_spec(row, spec);
    // A ping-pong has one size, that of the key which sets it.
    row.message_bytes = row.message_bytes.or(row.request_bytes.filter(|_| member.workload.ends_with("pingpong")));
    // The load of a search is that of its answer; before that it has none.
    match case.find.as_ref().map(|find| find.by) {
        Some(FindBy::Rate) => row.offered_per_s = None,
        Some(FindBy::Inflight) => row.inflight = None,
        None => {}
    }
}

/// The ways that a test's rows are about: one, or each direction and both together.
pub fn ways(direction: Direction) -> &'static [Way] {
    match direction {
        Direction::Forward => &[Way::Forward],
        Direction::Reverse => &[Way::Reverse],
        Direction::Bidirectional | Direction::Duplex => &[Way::Forward, Way::Reverse, Way::Both],
    }
}

/// The way of a test as a whole: both together if it has two.
pub fn way(direction: Direction) -> Way {
    ways(direction).last().copied().unwrap_or(Way::Forward)
}

/// The cells that a test's spec decides.
pub fn of_spec(row: &mut Row, spec: &TestSpec) {
    row.control = Some(match spec.dialect {
        Dialect::Plumb => Control::Session,
        Dialect::Service => Control::None,
        Dialect::Netperf => Control::Netperf,
        Dialect::Iperf3 { .. } => Control::Iperf3,
    });
    row.transport = Some(spec.transport.name().into());
    row.direction = Some(way(spec.direction));
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
