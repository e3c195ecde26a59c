//! The tests that a netserver can be the far end of. The others are refused with the plan's key and what to write instead.

use crate::spec::{
    BufferOptions, Close, Direction, Pattern, Payload, Stop, TestSpec, Transport,
    socket::{SOCKET_OPTIONS, Setter, SocketOption, SocketOptions},
    support::Unsupported,
};

/// Largest number that a request can hold.
pub(super) const MOST: u64 = i32::MAX as u64;

/// Whether the near end counts the headline: then the far end need not know the edges of the phases.
pub(super) fn near_counts(spec: &TestSpec) -> bool {
    spec.pattern != Pattern::Stream || spec.direction == Direction::Reverse
}

/// Checks a test that the engines can run ([`crate::spec::support::check`]).
pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let rules = [workload, phases, stop, sizes, far_end];
    match rules.iter().find_map(|rule| rule(spec)) {
        Some((key, reason)) => Err(Unsupported { key, reason }),
        None => Ok(()),
    }
}

/// A key and the reason, or `None`.
type Refusal = Option<(&'static str, String)>;

/// The first condition that holds.
fn first<const N: usize>(rules: [(bool, &'static str, &str); N]) -> Refusal {
    rules.into_iter().find(|(holds, ..)| *holds).map(|(_, key, reason)| (key, reason.to_owned()))
}

fn workload(spec: &TestSpec) -> Refusal {
    let known = match spec.pattern {
        Pattern::Stream | Pattern::RequestResponse => {
            matches!(spec.transport, Transport::Tcp | Transport::Udp | Transport::Sctp)
        }
        Pattern::Connect | Pattern::ConnectRequestResponse => spec.transport == Transport::Tcp,
        Pattern::Ping => false,
    };
    let reverse = spec.direction == Direction::Reverse;
    first([
        (
            !known,
            "workload",
            "netperf lacks this workload: use tcp_stream, tcp_rr, tcp_crr, tcp_cc, udp_stream, udp_rr, sctp_stream or sctp_rr",
        ),
        (
            spec.direction == Direction::Duplex,
            "workload",
            "netperf sends one way on a connection: use two `concurrent` members, one of them with `direction: reverse`",
        ),
        (
            spec.direction == Direction::Bidirectional,
            "direction",
            "a netperf test goes one way: use two `concurrent` members, one of them with `direction: reverse`",
        ),
        (
            reverse && spec.transport == Transport::Udp,
            "direction",
            "netperf's UDP streams go to the netserver: leave `direction` out",
        ),
        (spec.streams > 1, "streams", "a netperf test has one connection: use a `concurrent` member for each stream"),
        (
            spec.integrity,
            "integrity",
            "netperf neither checks nor repeats the bytes that arrive: leave `integrity` out",
        ),
        (
            spec.pace.is_some() && reverse,
            "rate",
            "netperf sends without a rate: leave `rate` out, or exchange `from` and `to`",
        ),
        (
            spec.close == Close::NearFirst,
            "close",
            "netperf's server closes each connection first: use `far_first` or `reset`",
        ),
    ])
}

fn phases(spec: &TestSpec) -> Refusal {
    let phases = &spec.phases;
    let far = !near_counts(spec);
    first([
        (
            phases.settle_ns > 0,
            "warmup",
            "netperf tells nothing while a test runs, so the end of a warm-up cannot be found: give it as a time",
        ),
        (
            far && phases.warmup_ns > 0,
            "warmup",
            "netperf counts what arrives from the first byte on: leave `warmup` out, or measure `direction: reverse`",
        ),
        (
            far && phases.cooldown_ns > 0,
            "cooldown",
            "netperf counts what arrives to the last byte: leave `cooldown` out, or measure `direction: reverse`",
        ),
    ])
}

fn stop(spec: &TestSpec) -> Refusal {
    const SECOND_NS: u64 = 1_000_000_000;
    let warm = spec.phases.warmup_ns > 0;
    let reverse = spec.direction == Direction::Reverse;
    match spec.phases.stop {
        Stop::AfterNs(_) => {
            let length_ns = spec.phases.length_ns().unwrap_or(u64::MAX);
            first([
                (length_ns.div_ceil(SECOND_NS) > MOST, "duration", "netperf runs at most 2147483647 seconds"),
                (
                    reverse && !length_ns.is_multiple_of(SECOND_NS),
                    "duration",
                    "the sending netserver counts whole seconds: choose `duration`, with `warmup` and `cooldown`, so that they \
                     make whole seconds",
                ),
            ])
        }
        Stop::AfterBytes(bytes) => first([
            (reverse && bytes > MOST, "bytes", "a netserver sends at most 2147483647 bytes: use `duration`"),
            (warm, "warmup", "netperf counts bytes from the first one on: leave `warmup` out, or use `duration`"),
        ]),
        Stop::AfterTransactions(transactions) => first([
            (transactions > MOST, "transactions", "netperf counts at most 2147483647 transactions: use `duration`"),
            (
                warm,
                "warmup",
                "netperf counts transactions from the first one on: leave `warmup` out, or use `duration`",
            ),
        ]),
    }
}

fn sizes(spec: &TestSpec) -> Refusal {
    let sizes = &spec.sizes;
    let keys = match spec.pattern {
        Pattern::Stream => [("message_size", sizes.message_bytes), ("receive_size", sizes.receive_bytes)],
        _ => [("request_size", sizes.request_bytes), ("response_size", sizes.response_bytes)],
    };
    keys.into_iter()
        .find_map(|(key, bytes)| (bytes > MOST).then(|| (key, format!("{key}: netperf has at most {MOST} bytes"))))
}

/// Options of the netserver's end.
fn far_end(spec: &TestSpec) -> Refusal {
    let far = &spec.far;
    let BufferOptions { ring, alignment, offset, dirty, clean, fill_file } = &far.buffers;
    let sends = spec.pattern != Pattern::Stream || spec.direction == Direction::Reverse;
    let too_large = u64::from(*ring) > MOST || alignment.unwrap_or(0) > MOST || *offset > MOST;
    unavailable(&spec.near.socket, &far.socket).or_else(|| {
        first([
            (
                far.socket.congestion_control.as_ref().is_some_and(|name| name.len() > 15),
                "remote_socket.congestion_control",
                "a request to netperf has room for 15 characters",
            ),
            (too_large, "remote_buffers", "numbers in a request to netperf are at most 2147483647"),
            (
                *dirty > 0 || *clean > 0,
                "remote_buffers",
                "most netservers cannot dirty their buffers: write remote_buffers: {dirty: 0, clean: 0}",
            ),
            (
                sends && (fill_file.is_some() || matches!(spec.payload, Payload::File(_))),
                "payload",
                "a netserver sends bytes of its own: leave the file out",
            ),
            (
                far.cpus.as_ref().is_some_and(|cpus| cpus.0.len() != 1),
                "remote_cpu",
                "a netserver runs on one CPU: name one",
            ),
            (far.bind.len() > 1, "remote_ports", "a netserver has one data address: name one in hosts.NAME.bind"),
        ])
    })
}

/// Options that a request can ask for.
const ASKABLE: [&str; 9] = [
    "send_buffer",
    "receive_buffer",
    "no_delay",
    "congestion_control",
    "dscp",
    "priority",
    "keepalive",
    "fastopen",
    "no_checksum",
];

/// An option that a netserver does not set on request. The far end has the near end's options unless the plan says otherwise:
/// those are set at the near end only, and the report says so ([`near_only`]).
fn unavailable(near: &SocketOptions, far: &SocketOptions) -> Refusal {
    let differs = |row: &&SocketOption| {
        let asked = (row.asked)(far);
        asked.is_some() && asked != (row.asked)(near) && !ASKABLE.contains(&row.name)
    };
    let row = SOCKET_OPTIONS.iter().find(differs)?;
    let reason = format!("netperf cannot set {} at its end: leave it out of `remote_socket`", row.name);
    Some((row.remote_key, reason))
}

/// Options that the near end has and a netserver cannot set. `dont_route` is asked for in another way.
pub(super) fn near_only(spec: &TestSpec) -> impl Iterator<Item = &'static str> {
    let far = &spec.far.socket;
    let set = |row: &&SocketOption| {
        (row.asked)(far).is_some()
            && !ASKABLE.contains(&row.name)
            && row.name != "dont_route"
            && (row.setter)(spec.transport, false) != Setter::Meaningless
    };
    SOCKET_OPTIONS.iter().filter(set).map(|row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Arrival, Bytes, Cpus, Pace, PaceMode};

    fn tcp(pattern: Pattern) -> TestSpec {
        TestSpec::new(pattern, Transport::Tcp)
    }

    #[test]
    fn every_test_of_netperf_passes() {
        for pattern in [Pattern::Stream, Pattern::RequestResponse, Pattern::Connect, Pattern::ConnectRequestResponse] {
            check(&tcp(pattern)).unwrap();
        }
        for transport in [Transport::Udp, Transport::Sctp] {
            check(&TestSpec::new(Pattern::Stream, transport)).unwrap();
            check(&TestSpec::new(Pattern::RequestResponse, transport)).unwrap();
        }
        let mut spec = tcp(Pattern::RequestResponse);
        (spec.inflight, spec.phases.warmup_ns, spec.phases.cooldown_ns) = (16, 1, 1);
        check(&spec).unwrap();
        let mut spec = tcp(Pattern::Stream);
        (spec.direction, spec.phases.warmup_ns) = (Direction::Reverse, 2_000_000_000);
        spec.far.socket.send_buffer = Some(Bytes(1));
        spec.far.cpus = Some("3".parse().unwrap());
        check(&spec).unwrap();
        spec.direction = Direction::Forward;
        (spec.phases.warmup_ns, spec.phases.stop) = (0, Stop::AfterBytes(u64::MAX));
        check(&spec).unwrap();
    }

    #[test]
    fn the_others_name_the_key_and_what_to_do() {
        type Change = fn(&mut TestSpec);
        let cases: [(&str, Pattern, Change); 24] = [
            ("workload", Pattern::Stream, |s| s.transport = Transport::Mptcp),
            ("workload", Pattern::Ping, |_| ()),
            ("workload", Pattern::ConnectRequestResponse, |s| s.transport = Transport::Sctp),
            ("workload", Pattern::Stream, |s| s.direction = Direction::Duplex),
            ("direction", Pattern::Stream, |s| s.direction = Direction::Bidirectional),
            ("direction", Pattern::Stream, |s| (s.direction, s.transport) = (Direction::Reverse, Transport::Udp)),
            ("streams", Pattern::Stream, |s| s.streams = 2),
            ("integrity", Pattern::Stream, |s| s.integrity = true),
            ("rate", Pattern::Stream, |s| {
                s.direction = Direction::Reverse;
                s.pace = Some(Pace {
                    events_per_s: 1.0,
                    mode: PaceMode::User,
                    arrival: Arrival::Closed,
                    burst: 1,
                    catch_up: 0,
                });
            }),
            ("close", Pattern::ConnectRequestResponse, |s| s.close = Close::NearFirst),
            ("warmup", Pattern::RequestResponse, |s| s.phases.settle_ns = 1),
            ("warmup", Pattern::Stream, |s| s.phases.warmup_ns = 1),
            ("cooldown", Pattern::Stream, |s| s.phases.cooldown_ns = 1),
            ("duration", Pattern::Stream, |s| {
                (s.direction, s.phases.stop) = (Direction::Reverse, Stop::AfterNs(1_500_000_000));
            }),
            ("duration", Pattern::Stream, |s| s.phases.stop = Stop::AfterNs(u64::MAX)),
            ("bytes", Pattern::Stream, |s| {
                (s.direction, s.phases.stop) = (Direction::Reverse, Stop::AfterBytes(MOST + 1));
            }),
            ("transactions", Pattern::RequestResponse, |s| s.phases.stop = Stop::AfterTransactions(MOST + 1)),
            ("warmup", Pattern::RequestResponse, |s| {
                (s.phases.warmup_ns, s.phases.stop) = (1, Stop::AfterTransactions(1));
            }),
            ("message_size", Pattern::Stream, |s| s.sizes.message_bytes = MOST + 1),
            ("response_size", Pattern::RequestResponse, |s| s.sizes.response_bytes = MOST + 1),
            ("remote_socket.linger", Pattern::Stream, |s| {
                s.far.socket.linger = Some(crate::spec::quantity::Linger(1));
            }),
            ("remote_buffers", Pattern::Stream, |s| s.far.buffers.dirty = 1),
            ("remote_cpu", Pattern::Stream, |s| s.far.cpus = Some(Cpus(vec![0, 1]))),
            ("payload", Pattern::RequestResponse, |s| s.payload = Payload::File("x".into())),
        ];
        for (key, pattern, change) in cases {
            let mut spec = tcp(pattern);
            change(&mut spec);
            let error = check(&spec).unwrap_err();
            assert_eq!(error.key, key, "{error}");
        }
    }

    #[test]
    fn options_that_can_be_asked_for_are_rows_of_the_table() {
        assert!(ASKABLE.iter().all(|name| SOCKET_OPTIONS.iter().any(|row| row.name == *name)));
    }
}
