//! The metrics that a job can deliver. An assertion on another one would be judged on nothing.

use netcore::spec::{Dialect, Direction, Io, Pattern, TestSpec, Transport, ranks::Work};
use schemas::{
    columns,
    metrics::{self, Family, METRICS, Metric},
};

use super::{
    case::{Job, Member, RanksJob},
    output::{Group, OutputParser},
    requested,
};

/// Whether a job measures round trips of requests.
pub fn has_round_trips(job: &Job) -> bool {
    job.spec().is_some_and(|spec| matches!(spec.pattern, Pattern::RequestResponse | Pattern::Ping))
}

/// Why a member cannot deliver a metric; `None`: it can.
pub fn lacks(member: &Member, metric: &Metric) -> Option<String> {
    if metric.name.starts_with("added_latency.") && member.idle.is_some() {
        return None;
    }
    lacks_of_job(&member.job, metric)
}

/// Why a job cannot deliver a metric; `None`: it can.
fn lacks_of_job(job: &Job, metric: &Metric) -> Option<String> {
    if metrics::of_survey(metric.name).is_some() {
        return Some(
            "it is a figure of a survey, over all pairs of a test: `assert` in a test with `pairs`".to_owned(),
        );
    }
    let is_cause = metric.name == metrics::LIMITED_BY.name;
    match job {
        Job::Command(_) | Job::Ranks(_) if is_cause => Some("only a test between two ends has a cause".to_owned()),
        Job::Traffic(spec) => lacks_of(spec, metric),
        Job::Ranks(job) => lacks_of_ranks(job, metric),
        // Mistakes in how its output is read are already reported.
        Job::Command(command) => OutputParser::of(command).ok()?.lacks(metric),
    }
}

fn lacks_of(spec: &TestSpec, metric: &Metric) -> Option<String> {
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

fn lacks_of_ranks(job: &RanksJob, metric: &Metric) -> Option<String> {
    let group = columns::find(metric.column).map_or("", |column| column.group);
    let is_kernel = matches!(job.spec.work, Work::Nas { .. });
    let missing = match (group, metric.name) {
        ("ranks", "mops") if !is_kernel => "only kernels of the NAS benchmarks count these operations",
        ("ranks", "bus_bandwidth") => match job.spec.work {
            Work::Operation { operation, .. } if operation.facts().bus.is_some() => return None,
            _ => "no formula has a bus bandwidth for it",
        },
        ("ranks", "operation_time" | "operation_time_mean" | "operation_time_min" | "own_time" | "arrival_spread")
            if is_kernel =>
        {
            "a kernel is one operation: use `elapsed` or `mops`"
        }
        ("ranks", _) | (_, "elapsed" | "transactions" | "transaction_rate") => return None,
        ("latency", _) if !is_kernel => return None,
        (_, "messages_sent" | "messages_received" | "bytes_sent" | "bytes_received")
            if job.spec.transport == Transport::Tcp =>
        {
            return None;
        }
        (_, "messages_sent" | "messages_received" | "bytes_sent" | "bytes_received") => {
            "the library does not say what it sends"
        }
        _ => "it is between two ends, and these are ranks",
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

fn family_of_ranks(is_kernel: bool) -> Family {
    if is_kernel { Family::Nas } else { Family::Collective }
}

/// The main metric of a member: of a probe, its latency or what a load adds to it.
pub fn of_member(member: &Member) -> Option<&'static Metric> {
    let Some(spec) = member.job.spec() else { return of_job(&member.job) };
    let unit = requested::offered(spec).map_or("", |(_, unit)| unit.as_str());
    Family::of_row(&member.workload, &member.name, unit).headline(|metric| lacks(member, metric).is_none())
}

/// The main metric of a test.
pub fn headline(spec: &TestSpec) -> &'static Metric {
    family(spec.pattern).headline(|metric| lacks_of(spec, metric).is_none()).unwrap_or(&METRICS[0])
}

/// The main metric of a job: for a program, of those that its expression finds.
pub fn of_job(job: &Job) -> Option<&'static Metric> {
    match job {
        Job::Traffic(spec) => Some(headline(spec)),
        Job::Ranks(job) => {
            let family = family_of_ranks(matches!(job.spec.work, Work::Nas { .. }));
            family.headline(|metric| lacks_of_ranks(job, metric).is_none())
        }
        Job::Command(command) => {
            let parser = OutputParser::of(command).ok()?;
            let found: Vec<&'static Metric> = parser.groups().iter().filter_map(Group::metric).collect();
            let has = |metric: &Metric| found.iter().any(|m| m.name == metric.name);
            Family::Other.headline(has).or_else(|| found.first().copied())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::workload::{self, Kind, Workload};
    use netcore::spec::Transport;

    fn has(pattern: Pattern, transport: Transport, metric: &str) -> bool {
        let job = Job::Traffic(Box::new(TestSpec::new(pattern, transport)));
        lacks_of_job(&job, metrics::find(metric).unwrap()).is_none()
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
                    assert_eq!(Family::of(&name), family_of_ranks(kernel.is_some()), "{name}");
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
