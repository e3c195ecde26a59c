//! A test between two ends before it runs: the cells that its spec decides, the metrics that it can deliver, and how long it
//! takes. An assertion on another metric would be judged on nothing.

use std::{fmt, time::Duration};

use analyze::stats::series;
use netcore::{
    peers::Program,
    spec::{Direction, Io, Mark, Pattern, Stop, TestSpec},
};
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
    row.control = match Program::of(spec) {
        Some(program) => program.as_str().parse().ok(),
        None if spec.is_reflected() => Some(Control::Stamp),
        None if spec.is_alone() => Some(Control::None),
        None => Some(Control::Session),
    };
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
    let unmarked = spec.dialect.mark() == Mark::None;
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
        // Both ends count the messages of the whole test.
        (_, "lost" | "loss_ratio") if datagrams && unmarked => return None,
        (_, "reordered" | "duplicated" | "jitter") if datagrams && unmarked => {
            let program = Program::of(spec)?.as_str();
            return Some(format!("{program}'s messages have no numbers and no times"));
        }
        (_, "lost" | "loss_ratio" | "reordered" | "duplicated") if datagrams && !spec.numbers_messages() => {
            "a message needs 8 bytes for the number by which losses are counted"
        }
        (_, "jitter") if datagrams && !spec.times_messages() => "a message needs 16 bytes for the time of its sending",
        (_, "reordered" | "duplicated" | "jitter") if !datagrams || answers => "only streams of datagrams measure it",
        ("outages", _) if spec.outage_ns == 0 => "only a test with `outage` looks for them",
        (_, "forward_lost" | "reverse_lost") if !spec.is_reflected() => {
            "only a STAMP reflector tells which way packets got lost"
        }
        ("one way", _) if !spec.one_way => "only a test with `one_way` tells the directions apart",
        ("one way", _) if spec.pattern == Pattern::Stream && !family.ends_with("_variation") => {
            "nobody answers the messages of a stream, so only the variation of their delay is known: use udp_rr"
        }
        ("one way", _) if family.ends_with("_host") && !spec.kernel_times => {
            "only a test with `timestamps: kernel` tells the times in the hosts"
        }
        ("pacing", _) if spec.pace.is_none() => "without `rate` there is no schedule to compare with",
        (_, "limited_by") if !spec.collect.limits => "`limits` is not in `collect`",
        ("tcp", "rtt" | "min_rtt" | "cwnd")
            if spec.transport.is_quic() && spec.collect.tcp_info && !spec.pattern.is_connecting() =>
        {
            return None;
        }
        ("quic", _) if !spec.transport.is_quic() => "only QUIC reports it",
        ("quic", _) if spec.pattern.is_connecting() => {
            "each connection has figures of its own, which are not added up: use quic_stream or quic_rr"
        }
        ("tcp", _) if !spec.transport.is_tcp() => "only TCP reports it",
        ("tcp" | "quic", _) if !spec.collect.tcp_info => "`tcp_info` is not in `collect`",
        ("cpu", _) if !spec.collect.cpu => "`cpu` is not in `collect`",
        (_, "zerocopy_copied_ratio") if spec.io != Io::Zerocopy => "only `io: zerocopy` has completions",
        (_, "message_size") if answers => "it has a request and a response size",
        (_, "request_size" | "response_size") if !answers => "a stream has a message size",
        _ => return None,
    };
    Some(if spec.is_reflected() { missing.replace("`control: none`", "a reflector") } else { missing.to_owned() })
}

fn family(pattern: Pattern) -> Family {
    match pattern {
        Pattern::Stream => Family::Stream,
        Pattern::RequestResponse | Pattern::Connect | Pattern::ConnectRequestResponse => Family::Transactions,
        Pattern::Ping => Family::Ping,
    }
}

/// The main metric of a workload: at a rate it is another one, see `Member::headline`.
pub fn headline(spec: &TestSpec) -> &'static Metric {
    family(spec.pattern).headline(|metric| lacks_of(spec, metric).is_none()).unwrap_or(&METRICS[0])
}

/// An estimated length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// If every case is confident at once.
    pub least: Duration,
    /// If every case goes to its maximum.
    pub most: Duration,
    /// Whether part of it is assumed: a count of bytes or transactions has no length.
    pub open: bool,
}

/// `about 18 s`, or `18 s to 3 min` where confidence decides.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, most] = [self.least, self.most].map(span);
        if least == most {
            write!(f, "about {least}")?;
        } else {
            write!(f, "{least} to {most}")?;
        }
        if self.open { f.write_str(" (with an assumed length for what stops by a count)") } else { Ok(()) }
    }
}

/// Assumed length of a program and of a test that stops by a count.
pub(super) const ASSUMED: Duration = Duration::from_secs(1);

/// The shortest and the longest length of a test's three phases.
pub(super) fn planned(spec: &TestSpec) -> Estimate {
    let phases = &spec.phases;
    let length = measure_length(spec);
    let counted = length.unwrap_or(ASSUMED).saturating_add(Duration::from_nanos(phases.cooldown_ns));
    let counted = counted.saturating_add(spec.idle());
    let longest = Duration::from_nanos(phases.warmup_ns);
    // A warm-up that ends by itself needs that many readings to be judged.
    let shortest = match phases.settle_ns {
        0 => longest,
        settle_ns => longest.min(Duration::from_nanos(settle_ns.saturating_mul(series::SETTLED_FROM as u64))),
    };
    let (least, most) = (shortest.saturating_add(counted), longest.saturating_add(counted));
    Estimate { least, most, open: length.is_none() }
}

/// The length of the measure phase; `None`: it stops by a count.
pub fn measure_length(spec: &TestSpec) -> Option<Duration> {
    match spec.phases.stop {
        Stop::AfterNs(ns) => Some(Duration::from_nanos(ns)),
        Stop::AfterBytes(_) | Stop::AfterTransactions(_) => None,
    }
}

/// A duration for people: `7 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(time: Duration) -> String {
    let s = u64::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX);
    match s {
        0..=119 => format!("{s} s"),
        120..=3599 if s.is_multiple_of(60) => format!("{} min", s / 60),
        120..=3599 => format!("{} min {} s", s / 60, s % 60),
        _ if s.is_multiple_of(3600) => format!("{} h", s / 3600),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Dialect, Transport};
    use schemas::metrics;

    use super::{
        super::workload::{self, Kind, Workload},
        *,
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
            let kind = name.parse::<Workload>().unwrap().kind;
            let Kind::Traffic { pattern, transport, direction, .. } = kind else {
                // A test of `super::super::ranks` looks at those of ranks.
                let is_other = matches!(kind, Kind::Responsiveness | Kind::Command);
                assert!(!is_other || Family::of(&name) == Family::Other, "{name}");
                continue;
            };
            assert_eq!(Family::of(&name), family(pattern), "{name}");
            let spec = TestSpec { direction: direction.unwrap_or_default(), ..TestSpec::new(pattern, transport) };
            let of_name = Family::of(&name).headline(|metric| metric.name != metrics::ADDED);
            assert_eq!(Some(headline(&spec).name), of_name.map(|m| m.name), "{name}");
        }
        let alone = TestSpec { dialect: Dialect::Service, ..TestSpec::new(Pattern::Stream, Transport::Tcp) };
        assert_eq!(headline(&alone).name, "sent");
    }

    #[test]
    fn an_iteration_is_as_long_as_its_phases() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        spec.phases.warmup_ns = 1_000_000_000;
        spec.phases.cooldown_ns = 500_000_000;
        assert_eq!(planned(&spec).most, Duration::from_millis(11_500));
    }

    #[test]
    fn spans_are_rounded_up() {
        assert_eq!(span(Duration::from_millis(6100)), "7 s");
        assert_eq!(span(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(span(Duration::from_mins(10)), "10 min");
        assert_eq!(span(Duration::from_mins(125)), "2 h 5 min");
        assert_eq!(span(Duration::from_hours(1)), "1 h");
        let range =
            |ms: u64| Estimate { least: Duration::from_millis(2100), most: Duration::from_millis(ms), open: false };
        assert_eq!([2900, 3100].map(|ms| range(ms).to_string()), ["about 3 s", "3 s to 4 s"]);
    }
}
