//! The cells that a test between two ends decides.

use netcore::spec::{Dialect, Direction, Pattern, TestSpec};
use schemas::{
    columns::Row,
    words::{Control, OfferedUnit, Way},
};

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
