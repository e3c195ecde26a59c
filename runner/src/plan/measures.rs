//! Which metrics a workload has: an assertion on one that it cannot have would be judged on nothing.

use netcore::spec::{Direction, Pattern, TestSpec};
use schemas::metrics::{self, Metric};

use super::{
    case::Job,
    output::{Group, OutputParser},
};

/// Why a job has no value for a metric, or `None` where it has one.
#[must_use]
pub fn lacks(job: &Job, metric: &Metric) -> Option<String> {
    let spec = match job {
        Job::Traffic(spec) => spec,
        // What is wrong with how it is read has been reported.
        Job::Command(command) => return OutputParser::of(command).ok()?.lacks(metric),
    };
    let name = metric.name;
    let family = name.split('.').next().unwrap_or(name);
    let answers = spec.pattern != Pattern::Stream;
    let datagrams = spec.transport.is_datagram();
    let missing = |what: &str| Some(what.to_owned());
    // What a service counts, nobody hears.
    let near_receives = spec.pattern == Pattern::Stream && spec.direction == Direction::Reverse;
    match family {
        "throughput" | "bytes_received" if spec.alone && !near_receives => {
            missing("with `control: none` nobody counts what arrives at the far end: use `sent`, or `transaction_rate`")
        }
        "sent" | "bytes_sent" if spec.alone && (near_receives || answers) => {
            missing("with `control: none` nobody counts what the far end sends")
        }
        "lost" | "loss_ratio" | "reordered" | "duplicated" | "jitter" | "messages_received"
            if spec.alone && spec.pattern != Pattern::Ping =>
        {
            missing("with `control: none` nobody counts what arrives at the far end")
        }
        _ if spec.alone && (name.starts_with("remote_") || name.ends_with(".remote") || name == "cpu.remote_peak") => {
            missing("with `control: none` the far end reports nothing")
        }
        "transaction_rate" | "transactions" if !answers => missing("a stream has no transactions"),
        "latency" if !answers && !spec.collect.latency => {
            missing("a stream times its calls only with `latency` in `collect`")
        }
        "receive_call" if answers => missing("only streams time their receive calls"),
        "receive_call" if !spec.collect.latency => missing("a stream times its calls only with `latency` in `collect`"),
        "throughput" | "sent" | "bytes_sent" | "bytes_received"
            if matches!(spec.pattern, Pattern::Connect | Pattern::Ping) =>
        {
            missing("it moves no payload to count")
        }
        "messages_sent" | "messages_received" | "lost" | "loss_ratio" if !datagrams => {
            missing("only datagrams can be lost")
        }
        "messages_sent" | "messages_received" | "lost" | "loss_ratio" if spec.pattern == Pattern::RequestResponse => {
            missing("requests are transactions, and one that is lost is an error: use `transactions` and `errors`")
        }
        "lost" | "loss_ratio" | "reordered" | "duplicated" if datagrams && !spec.numbers_messages() => {
            missing("a message of less than 8 bytes has no room for a number, so that nobody knows which were lost")
        }
        "jitter" if datagrams && !spec.times_messages() => {
            missing("a message of less than 16 bytes has no room for the time of its sending")
        }
        "reordered" | "duplicated" | "jitter" if !datagrams || answers => {
            missing("only a stream of datagrams has an order to lose")
        }
        "rate_error" | "gap" if spec.pace.is_none() => missing("without `rate` there is no schedule to compare with"),
        "retransmits" | "remote_retransmits" | "rtt" | "rtt_var" | "cwnd" | "delivery_rate"
            if !spec.transport.is_tcp() =>
        {
            missing("only TCP reports it")
        }
        "retransmits" | "remote_retransmits" | "rtt" | "rtt_var" | "cwnd" | "delivery_rate"
            if !spec.collect.tcp_info =>
        {
            missing("`tcp_info` is not in `collect`")
        }
        "cpu" | "service_demand" if !spec.collect.cpu => missing("`cpu` is not in `collect`"),
        "message_size" if answers => missing("it has a request and a response size"),
        "request_size" | "response_size" if !answers => missing("a stream has a message size"),
        _ => None,
    }
}

/// The metric that a test is about.
#[must_use]
pub fn headline(spec: &TestSpec) -> &'static Metric {
    let name = match spec.pattern {
        Pattern::Stream if spec.alone && spec.direction != Direction::Reverse => "sent",
        Pattern::Stream => "throughput",
        Pattern::RequestResponse | Pattern::Connect | Pattern::ConnectRequestResponse => "transaction_rate",
        Pattern::Ping => "latency.mean",
    };
    metrics::find(name).unwrap_or(&metrics::METRICS[0])
}

/// The same of any job; a program has none but the first that its expression finds.
#[must_use]
pub fn of_job(job: &Job) -> Option<&'static Metric> {
    match job {
        Job::Traffic(spec) => Some(headline(spec)),
        Job::Command(command) => OutputParser::of(command).ok()?.groups().iter().find_map(Group::metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netcore::spec::Transport;

    fn has(pattern: Pattern, transport: Transport, metric: &str) -> bool {
        let job = Job::Traffic(Box::new(TestSpec::new(pattern, transport)));
        lacks(&job, metrics::find(metric).unwrap()).is_none()
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
        assert_eq!(headline(&TestSpec::new(Pattern::Ping, Transport::Icmp)).name, "latency.mean");
    }
}
