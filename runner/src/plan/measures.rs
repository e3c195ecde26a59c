//! A test between two ends in the results: the cells that its spec decides, and the metrics that it can deliver. An assertion
//! on another metric would be judged on nothing.

use netcore::spec::{Dialect, Direction, Io, Pattern, TestSpec};
use schemas::{
    columns::{self, Row},
    metrics::{Family, METRICS, Metric},
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

/// Why a test between two ends cannot deliver a metric; `None`: it can.
pub(super) fn lacks_of(spec: &TestSpec, metric: &Metric) -> Option<String> {
    let name = metric.name;
    let family = name.split('.').next().unwrap_or(name);
    let group = columns::find(metric.column).map_or("", |column| column.group);
    let answers = spec.pattern != Pattern::Stream;
    let datagrams = spec.transport.is_datagram();
    // With `control: none` the service at the far end reports nothing.
    let near_receives = spec.pattern == Pattern::Stream && spec.direction == Direction::Reverse;
    let of_far_end = name.starts_with("remote_") || name.contains(".remote");
    // By group of the metric's column and by name; the first match counts.
    let missing = match (group, family) {
        (_, "throughput" | "bytes_received") if spec.is_alone() && !near_receives => {
            "with `control: none` what arrives at the far end is not counted: use `sent`, or `transaction_rate`"
        }
        (_, "sent" | "bytes_sent") if spec.is_alone() && (near_receives || answers) => {
            "with `control: none` what the far end sends is not counted"
        }
        ("datagrams", _) if spec.is_alone() && spec.pattern != Pattern::Ping && family != "messages_sent" => {
            "with `control: none` what arrives at the far end is not counted"
        }
        (_, "retransmits") if spec.is_alone() && (near_receives || answers) => {
            "with `control: none` what the far end sends again is not counted"
        }
        _ if spec.is_alone() && of_far_end => "with `control: none` the far end does not report",
        (_, "added_latency") => "only a member of a group has it that names in `idle` the one on the idle path",
        (_, "transaction_rate" | "transactions") if !answers => "a stream has no transactions",
        (_, "round_trips_per_min") if !matches!(spec.pattern, Pattern::RequestResponse | Pattern::Ping) => {
            "only requests and responses are round trips"
        }
        (_, "receive_call") if answers => "only streams time their receive calls",
        ("latency", _) if !answers && !spec.collect.latency => {
            "a stream times its calls only with `latency` in `collect`"
        }
        (_, "throughput" | "sent" | "bytes_sent" | "bytes_received")
            if matches!(spec.pattern, Pattern::Connect | Pattern::Ping) =>
        {
            "it moves no payload"
        }
        (_, "messages_sent" | "messages_received" | "lost" | "loss_ratio") if !datagrams => {
            "only datagrams can be lost"
        }
        (_, "messages_sent" | "messages_received" | "lost" | "loss_ratio")
            if spec.pattern == Pattern::RequestResponse =>
        {
            "requests are transactions, and one that is lost is an error: use `transactions` and `errors`"
        }
        // netserver counts the messages of the whole test.
        (_, "lost" | "loss_ratio") if datagrams && spec.dialect == Dialect::Netperf => return None,
        (_, "reordered" | "duplicated" | "jitter") if datagrams && spec.dialect == Dialect::Netperf => {
            "netperf's messages have no numbers and no times"
        }
        (_, "lost" | "loss_ratio" | "reordered" | "duplicated") if datagrams && !spec.numbers_messages() => {
            "a message needs 8 bytes for the number by which losses are counted"
        }
        (_, "jitter") if datagrams && !spec.times_messages() => "a message needs 16 bytes for the time of its sending",
        (_, "reordered" | "duplicated" | "jitter") if !datagrams || answers => "only streams of datagrams measure it",
        ("pacing", _) if spec.pace.is_none() => "without `rate` there is no schedule to compare with",
        (_, "limited_by") if !spec.collect.limits => "`limits` is not in `collect`",
        ("tcp", _) if !spec.transport.is_tcp() => "only TCP reports it",
        ("tcp", _) if !spec.collect.tcp_info => "`tcp_info` is not in `collect`",
        ("cpu", _) if !spec.collect.cpu => "`cpu` is not in `collect`",
        (_, "zerocopy_copied_ratio") if spec.io != Io::Zerocopy => "only `io: zerocopy` has completions",
        (_, "message_size") if answers => "it has a request and a response size",
        (_, "request_size" | "response_size") if !answers => "a stream has a message size",
        _ => return None,
    };
    Some(missing.to_owned())
}

fn family(pattern: Pattern) -> Family {
    match pattern {
        Pattern::Stream => Family::Stream,
        Pattern::RequestResponse | Pattern::Connect | Pattern::ConnectRequestResponse => Family::Transactions,
        Pattern::Ping => Family::Ping,
    }
}

/// The main metric of a test.
pub fn headline(spec: &TestSpec) -> &'static Metric {
    family(spec.pattern).headline(|metric| lacks_of(spec, metric).is_none()).unwrap_or(&METRICS[0])
}

#[cfg(test)]
mod tests {
    use netcore::spec::Transport;
    use schemas::metrics;

    use super::*;
    use crate::plan::{
        ranks,
        workload::{self, Kind, Workload},
    };

    fn has(pattern: Pattern, transport: Transport, metric: &str) -> bool {
        lacks_of(&TestSpec::new(pattern, transport), metrics::find(metric).unwrap()).is_none()
    }

    #[test]
    fn a_workload_has_what_it_measures() {
        assert!(has(Pattern::Stream, Transport::Tcp, "throughput"));
        assert!(has(Pattern::Stream, Transport::Tcp, "retransmits"));
        assert!(!has(Pattern::Stream, Transport::Tcp, "latency.p99"));
        assert!(!has(Pattern::Stream, Transport::Tcp, "loss_ratio"));
        assert!(!has(Pattern::RequestResponse, Transport::Tcp, "receive_call.p99"));
        assert!(has(Pattern::Stream, Transport::Udp, "jitter"));
        assert!(!has(Pattern::Stream, Transport::Udp, "rtt"));
        assert!(has(Pattern::RequestResponse, Transport::UnixStream, "latency.p50"));
        assert!(!has(Pattern::RequestResponse, Transport::Tcp, "gap.p99"));
        assert!(has(Pattern::Ping, Transport::Icmp, "loss_ratio"));
    }

    #[test]
    fn plans_and_tables_agree_on_the_headline() {
        for name in workload::names() {
            let (pattern, transport, direction) = match name.parse::<Workload>().unwrap().kind {
                Kind::Traffic { pattern, transport, direction, .. } => (pattern, transport, direction),
                Kind::Ranks { kernel, .. } => {
                    assert_eq!(Family::of(&name), ranks::family(kernel.is_some()), "{name}");
                    continue;
                }
                Kind::Responsiveness | Kind::Command => {
                    assert_eq!(Family::of(&name), Family::Other);
                    continue;
                }
            };
            assert_eq!(Family::of(&name), family(pattern), "{name}");
            let spec = TestSpec { direction: direction.unwrap_or_default(), ..TestSpec::new(pattern, transport) };
            let of_name = Family::of(&name).headline(|metric| metric.name != metrics::ADDED);
            assert_eq!(Some(headline(&spec).name), of_name.map(|m| m.name), "{name}");
        }
        let alone = TestSpec { dialect: Dialect::Service, ..TestSpec::new(Pattern::Stream, Transport::Tcp) };
        assert_eq!(headline(&alone).name, "sent");
    }
}
