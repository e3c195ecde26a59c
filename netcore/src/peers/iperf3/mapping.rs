//! A test as iperf3's parameters, and back; and the tests that iperf3 cannot run, with the plan's key to blame and the remedy.

use super::{
    parameters::{
        MOST_BLOCK_BYTES, MOST_BURST, MOST_OMIT_SECONDS, MOST_SECONDS, MOST_STREAMS, MOST_WINDOW_BYTES, Parameters,
        Protocol, UDP_BLOCK_BYTES,
    },
    wire::{Code, Fault},
};
use crate::spec::{
    Arrival, Bytes, Dialect, Direction, Dscp, Family, Io, Pace, PaceMode, Pattern, Payload, Receive, Role, Side, Stop,
    TestSpec, Transport, key,
    quantity::Bytes32,
    socket::{MtuDiscover, SOCKET_OPTIONS, Setter, SocketOption},
    support::{Unsupported, refuse_if},
};

const NS: u64 = 1_000_000_000;

/// Time after a test's own at which the server gives it up, seconds.
const GRACE_S: u64 = 40;

/// A server's buffers as iperf3's client asks for them: the least that the kernel takes.
const LEAST_MSS: u64 = 88;

/// The parameters by which a test is asked for.
pub fn parameters(spec: &TestSpec) -> Result<Parameters, Unsupported> {
    check(spec)?;
    let far = &spec.far;
    let (time_s, num) = match spec.phases.stop {
        // The server gives up 40 s later.
        Stop::AfterNs(ns) => (ns.div_ceil(NS), 0),
        Stop::AfterBytes(bytes) => (0, bytes),
        Stop::AfterTransactions(_) => (0, 0),
    };
    let bits_per_s = |pace: &Pace| {
        let bits = pace.events_per_s * spec.sizes.message_bytes as f64 * 8.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
        let bits = bits.round().max(1.0) as u64;
        bits
    };
    let far_sends = spec.direction != Direction::Forward;
    let by_kernel = spec.pace.is_some_and(|pace| pace.mode == PaceMode::Kernel) && far_sends;
    let rate = spec.pace.as_ref().map_or(0, bits_per_s);
    Ok(Parameters {
        protocol: if spec.transport == Transport::Udp { Protocol::Udp } else { Protocol::Tcp },
        mptcp: spec.transport == Transport::Mptcp,
        direction: if spec.direction == Direction::Duplex { Direction::Forward } else { spec.direction },
        omit_s: spec.phases.warmup_ns / NS,
        time_s,
        num,
        blocks: 0,
        parallel: spec.streams,
        len: spec.sizes.message_bytes,
        bandwidth: if by_kernel { 0 } else { rate },
        fq_rate: if by_kernel { rate } else { 0 },
        burst: spec.pace.map_or(0, |pace| if pace.burst > 1 && far_sends { pace.burst } else { 0 }),
        nodelay: far.socket.no_delay == Some(true),
        mss: far.socket.mss.map_or(0, u64::from),
        window: window(spec),
        tos: far.socket.dscp.map_or(0, |dscp| dscp.0 << 2),
        congestion: far.socket.congestion_control.clone(),
        affinity: far.cpus.as_ref().and_then(|cpus| cpus.0.first().copied()),
        wide_counter: spec.transport == Transport::Udp && has_wide_counter(spec),
        zerocopy: far_sends && spec.io == Io::Sendfile,
        skip_rx_copy: false,
        dont_fragment: far.socket.mtu_discover == Some(MtuDiscover::Do),
        repeating_payload: false,
        wants_output: false,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn has_wide_counter(spec: &TestSpec) -> bool {
    spec.dialect == Dialect::Iperf3 { wide_counter: true }
}

/// The test that a client asks for. It goes on until the client ends it, for `longest_ns` at most.
pub fn test(parameters: &Parameters, longest_ns: u64) -> Result<TestSpec, Fault> {
    let transport = match parameters.protocol {
        Protocol::Udp => Transport::Udp,
        Protocol::Tcp if parameters.mptcp => Transport::Mptcp,
        Protocol::Tcp => Transport::Tcp,
    };
    let mut spec = TestSpec::new(Pattern::Stream, transport);
    spec.dialect = Dialect::Iperf3 { wide_counter: parameters.wide_counter };
    spec.family = Family::Any;
    spec.direction = parameters.direction;
    spec.streams = parameters.parallel;
    (spec.sizes.message_bytes, spec.sizes.receive_bytes) = (parameters.len, parameters.len);
    let omit_ns = parameters.omit_s * NS;
    let asked_ns = omit_ns.saturating_add(parameters.time_s * NS);
    if asked_ns > longest_ns {
        let seconds = longest_ns / NS;
        return Err(Fault::new(
            Code::MaxDuration,
            format!("longer than the {seconds} s that are granted (--max-duration)"),
        ));
    }
    let given_up_ns = match parameters.time_s {
        0 => longest_ns,
        _ => asked_ns.saturating_add(GRACE_S * NS).min(longest_ns),
    };
    spec.phases.warmup_ns = omit_ns;
    spec.phases.stop = Stop::AfterNs((given_up_ns - omit_ns).max(1));
    spec.pace = pace(parameters);
    spec.payload = if parameters.repeating_payload { Payload::Zero } else { Payload::Random };
    spec.io = if parameters.zerocopy && sends_bytes(&spec) { Io::Sendfile } else { Io::Auto };
    if parameters.skip_rx_copy && spec.has_role(Side::Far, Role::Receiver) {
        spec.receive = Receive::Discard;
    }
    spec.collect.latency = false;
    let socket = &mut spec.far.socket;
    socket.no_delay = parameters.nodelay.then_some(true);
    if parameters.window > 0 {
        (socket.send_buffer, socket.receive_buffer) = (Some(Bytes(parameters.window)), Some(Bytes(parameters.window)));
    }
    if parameters.mss > 0 {
        socket.mss = u32::try_from(parameters.mss.max(LEAST_MSS)).ok().map(Bytes32);
    }
    socket.dscp = (parameters.tos > 0).then_some(Dscp(parameters.tos >> 2));
    socket.congestion_control.clone_from(&parameters.congestion);
    socket.mtu_discover = (parameters.dont_fragment && transport == Transport::Udp).then_some(MtuDiscover::Do);
    Ok(spec)
}

fn sends_bytes(spec: &TestSpec) -> bool {
    spec.direction == Direction::Reverse && spec.transport == Transport::Tcp
}

/// The pace of a server that sends. A client paces itself.
fn pace(parameters: &Parameters) -> Option<Pace> {
    let (bits_per_s, mode) = match (parameters.bandwidth, parameters.fq_rate) {
        // fq's rate needs a queueing discipline for datagrams.
        (0, rate) if rate > 0 && parameters.protocol == Protocol::Tcp => (rate, PaceMode::Kernel),
        (0, _) => return None,
        (rate, _) => (rate, PaceMode::User),
    };
    if parameters.direction == Direction::Forward {
        return None;
    }
    let events_per_s = bits_per_s as f64 / 8.0 / parameters.len as f64;
    let burst = if mode == PaceMode::User { parameters.burst.max(1) } else { 1 };
    let catch_up = Pace::default_catch_up(events_per_s, burst);
    Some(Pace { events_per_s, mode, arrival: Arrival::Closed, burst, catch_up })
}

/// The far end's options that iperf3's client can ask of its server.
const ASKED_OF_SERVERS: [&str; 7] =
    ["send_buffer", "receive_buffer", "no_delay", "congestion_control", "mss", "dscp", "mtu_discover"];

/// Refuses a test whose far end cannot be `iperf3 -s`.
pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let transport = spec.transport.name();
    refuse_if! {
        spec.pattern != Pattern::Stream =>
            key::workload, "iperf3 has no requests, connection tests or pings: use tcp_stream, udp_stream or mptcp_stream, or a \
             host that speaks netperf";
        !matches!(spec.transport, Transport::Tcp | Transport::Mptcp | Transport::Udp) =>
            key::workload, "iperf3 is spoken over tcp, mptcp and udp, not over {transport}";
        spec.direction == Direction::Duplex =>
            key::workload, "iperf3 has one direction per connection: use `direction: bidirectional`";
        spec.streams > MOST_STREAMS =>
            key::streams, "iperf3 serves at most {MOST_STREAMS} streams each way";
        spec.integrity =>
            key::integrity, "iperf3 neither checks bytes nor tells which it sends: leave `integrity` out";
        spec.collect.latency =>
            key::collect, "iperf3 measures no latency at its end: leave `latency` out of `collect`";
    }
    sizes(spec)?;
    phases(spec)?;
    paced(spec)?;
    far_end(spec)
}

fn far_sends(spec: &TestSpec) -> bool {
    spec.direction != Direction::Forward
}

fn sizes(spec: &TestSpec) -> Result<(), Unsupported> {
    let bytes = spec.sizes.message_bytes;
    let udp = spec.transport == Transport::Udp;
    refuse_if! {
        udp && !UDP_BLOCK_BYTES.contains(&bytes) =>
            key::message_size, "iperf3's datagrams have {} to {} bytes", UDP_BLOCK_BYTES.start(), UDP_BLOCK_BYTES.end();
        !udp && bytes > MOST_BLOCK_BYTES =>
            key::message_size, "iperf3's messages have at most {MOST_BLOCK_BYTES} bytes";
    }
    Ok(())
}

fn phases(spec: &TestSpec) -> Result<(), Unsupported> {
    let phases = &spec.phases;
    let longest_ns = MOST_SECONDS * NS;
    refuse_if! {
        phases.settle_ns > 0 =>
            key::warmup, "iperf3 cannot begin its count on request: give the warm-up a length in whole seconds";
        !phases.warmup_ns.is_multiple_of(NS) || phases.warmup_ns > MOST_OMIT_SECONDS * NS =>
            key::warmup, "iperf3's warm-up (omit) has whole seconds, at most {MOST_OMIT_SECONDS}";
        phases.cooldown_ns > 0 =>
            key::cooldown, "iperf3 counts until the end of the load: leave the cool-down out";
        matches!(phases.stop, Stop::AfterNs(ns) if ns > longest_ns) =>
            key::duration, "iperf3 runs at most {MOST_SECONDS} s";
        matches!(phases.stop, Stop::AfterBytes(_)) && far_sends(spec) =>
            key::bytes, "iperf3 -s sends until its client ends the test: use `duration`, or `direction: forward`";
        matches!(phases.stop, Stop::AfterBytes(_)) && phases.warmup_ns > 0 =>
            key::warmup, "iperf3 counts bytes from the beginning: leave the warm-up out, or use `duration`";
    }
    Ok(())
}

fn paced(spec: &TestSpec) -> Result<(), Unsupported> {
    let Some(pace) = spec.pace.filter(|_| far_sends(spec)) else { return Ok(()) };
    refuse_if! {
        pace.arrival == Arrival::Poisson =>
            key::arrival, "iperf3 sends evenly: leave `arrival` out";
        pace.mode == PaceMode::Txtime =>
            key::pacing, "iperf3 -s has no SO_TXTIME: use `mode: user`, or `kernel`";
        pace.burst > MOST_BURST =>
            key::pacing, "iperf3's bursts have at most {MOST_BURST} messages";
        pace.events_per_s * spec.sizes.message_bytes as f64 * 8.0 < 1.0 =>
            key::rate, "iperf3's least rate is 1 bit/s";
    }
    Ok(())
}

fn far_end(spec: &TestSpec) -> Result<(), Unsupported> {
    let far = &spec.far;
    let foreign = SOCKET_OPTIONS.iter().find(|row| {
        (row.asked)(&far.socket).is_some()
            && !ASKED_OF_SERVERS.contains(&row.name)
            && (row.setter)(spec.transport, false) != Setter::Meaningless
            && near_only(spec).all(|name| name != row.name)
    });
    let name = foreign.map_or("", |row| row.name);
    let (sent, received) = (far.socket.send_buffer, far.socket.receive_buffer);
    let has_role = |role| spec.has_role(Side::Far, role);
    let differ = has_role(Role::Sender) && has_role(Role::Receiver) && sent != received;
    let window = window(spec);
    refuse_if! {
        foreign.is_some() =>
            key::remote_socket, "iperf3 -s does not set {name}: take it from that end by `remote_socket: {{{name}: ~}}`";
        differ =>
            key::remote_socket, "iperf3 -s gives both of its buffers one size: ask for equal ones, send_buffer and receive_buffer";
        window > MOST_WINDOW_BYTES =>
            key::remote_socket, "iperf3's socket buffers have at most {MOST_WINDOW_BYTES} bytes";
        far.socket.mss.is_some_and(|mss| mss.0 > 9216) =>
            key::remote_socket, "iperf3's maximum segment size is at most 9216 bytes";
        far.socket.mtu_discover.is_some_and(|mode| !matches!(mode, MtuDiscover::Do | MtuDiscover::Want)) =>
            key::remote_socket, "iperf3 -s knows `mtu_discover: do` only: take it from that end by `remote_socket: {{mtu_discover: ~}}`";
        far.port.is_some() =>
            key::remote_ports, "iperf3's data goes to the port of its control connection: leave `remote_ports` out";
        !far.bind.is_empty() =>
            key::bind, "iperf3 -s accepts the data at the address of its control connection: leave `bind` out at that host";
        far.cpus.as_ref().is_some_and(|cpus| cpus.0.len() != 1) =>
            key::remote_cpu, "iperf3 -s runs on one CPU or on any: name one";
        far.buffers != crate::spec::BufferOptions::default() =>
            key::remote_buffers, "iperf3 -s has one buffer of its own: leave `remote_buffers` out";
        far_sends(spec) && matches!(spec.payload, Payload::File(_) | Payload::Zero) =>
            key::payload, "iperf3 -s sends random bytes: leave `payload` out";
        far_sends(spec) && spec.io == Io::Sendfile && spec.transport == Transport::Udp =>
            key::io, "iperf3 -s has sendfile only over tcp";
    }
    Ok(())
}

/// Options that each end has for its own flows, and that the far end only has because the near end has them: our end keeps
/// them, and the report says so.
pub fn near_only(spec: &TestSpec) -> impl Iterator<Item = &'static str> {
    let kept = |row: &&SocketOption| {
        let asked = (row.asked)(&spec.far.socket);
        (row.setter)(spec.transport, false) == Setter::Flows
            && asked.is_some()
            && asked == (row.asked)(&spec.near.socket)
    };
    SOCKET_OPTIONS.iter().filter(kept).map(|row| row.name)
}

/// The size of both of a server's buffers: that of the ones which its streams use. 0: the system's.
pub fn window(spec: &TestSpec) -> u64 {
    let far = &spec.far.socket;
    let size = match spec.direction {
        Direction::Forward => far.receive_buffer,
        _ => far.send_buffer,
    };
    size.map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::{
        BufferOptions, Bytes, Cpus, Pace,
        quantity::{Bytes32, Microseconds},
        support,
    };

    const HOUR: u64 = 3600 * NS;

    #[test]
    fn a_plan_becomes_parameters() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.dialect = Dialect::Iperf3 { wide_counter: true };
        (spec.direction, spec.streams, spec.sizes.message_bytes) = (Direction::Reverse, 4, 1250);
        spec.pace =
            Some(Pace { events_per_s: 1000.0, mode: PaceMode::User, arrival: Arrival::Closed, burst: 2, catch_up: 1 });
        (spec.phases.warmup_ns, spec.phases.stop) = (2 * NS, Stop::AfterNs(1_500_000_000));
        spec.far.socket.dscp = Some(Dscp(46));
        let expected = Parameters {
            protocol: Protocol::Udp,
            direction: Direction::Reverse,
            omit_s: 2,
            time_s: 2,
            parallel: 4,
            len: 1250,
            bandwidth: 10_000_000,
            burst: 2,
            tos: 0xB8,
            wide_counter: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Parameters::default()
        };
        assert_eq!(parameters(&spec), Ok(expected));
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Mptcp);
        spec.phases.stop = Stop::AfterBytes(5);
        (spec.far.socket.receive_buffer, spec.far.socket.mss) = (Some(Bytes(4096)), Some(Bytes32(1000)));
        let asked = parameters(&spec).unwrap();
        assert_eq!((asked.mptcp, asked.num, asked.time_s, asked.window, asked.mss), (true, 5, 0, 4096, 1000));
        spec.streams = 129;
        assert_eq!(parameters(&spec).unwrap_err().key, "streams");
    }

    #[test]
    fn a_test_lasts_until_the_client_ends_it_but_not_for_ever() {
        let mut asked = Parameters { parallel: 1, len: 1000, time_s: 5, omit_s: 1, ..Parameters::default() };
        let spec = test(&asked, HOUR).unwrap();
        assert_eq!((spec.phases.warmup_ns, spec.phases.stop), (NS, Stop::AfterNs(45 * NS)));
        assert_eq!(test(&asked, 10 * NS).unwrap().phases.stop, Stop::AfterNs(9 * NS));
        assert_eq!(test(&asked, 5 * NS).unwrap_err().code, Code::MaxDuration);
        (asked.time_s, asked.num) = (0, 1);
        assert_eq!(test(&asked, HOUR).unwrap().phases.stop, Stop::AfterNs(HOUR - NS));
    }

    #[test]
    fn a_server_that_receives_discards_on_request() {
        let mut asked = Parameters { parallel: 1, len: 1000, skip_rx_copy: true, ..Parameters::default() };
        assert_eq!(test(&asked, HOUR).unwrap().receive, Receive::Discard);
        asked.direction = Direction::Reverse;
        assert_eq!(test(&asked, HOUR).unwrap().receive, Receive::Copy);
    }

    #[test]
    fn only_a_server_that_sends_is_paced() {
        let mut asked = Parameters { parallel: 1, len: 1250, bandwidth: 1_000_000, burst: 10, ..Parameters::default() };
        assert_eq!(test(&asked, HOUR).unwrap().pace, None);
        asked.direction = Direction::Reverse;
        let pace = test(&asked, HOUR).unwrap().pace.unwrap();
        assert!((pace.events_per_s - 100.0).abs() < 1e-9 && pace.burst == 10 && pace.catch_up == 10, "{pace:?}");
        (asked.bandwidth, asked.fq_rate) = (0, 8_000_000);
        assert_eq!(test(&asked, HOUR).unwrap().pace.unwrap().mode, PaceMode::Kernel);
    }

    proptest! {
        /// Whatever a client asks for within its protocol's bounds, the engines can run.
        #[test]
        fn the_engines_run_every_test(
            flags: [bool; 9],
            direction in prop_oneof![Just(Direction::Forward), Just(Direction::Reverse), Just(Direction::Bidirectional)],
            (parallel, len, omit_s, time_s) in (1..=4u32, 16..=65_507u64, 0..=600u64, 0..=2000u64),
            (bandwidth, fq_rate, burst, mss, tos) in (0..1u64 << 50, 0..1u64 << 50, 0..=1000u32, 0..=9216u64, any::<u8>()),
        ) {
            let asked = Parameters {
                protocol: if flags[0] { Protocol::Udp } else { Protocol::Tcp },
                mptcp: flags[1],
                direction, omit_s, time_s, parallel, len, mss, tos,
                bandwidth: if flags[2] { bandwidth } else { 0 },
                fq_rate,
                burst,
                nodelay: flags[3],
                wide_counter: flags[4],
                zerocopy: flags[5],
                skip_rx_copy: flags[8],
                dont_fragment: flags[6],
                repeating_payload: flags[7],
                ..Parameters::default()
            };
            let spec = test(&asked, HOUR).unwrap();
            prop_assert_eq!(support::check(&spec), Ok(()));
        }
    }

    type Change<'c> = (&'c str, &'c dyn Fn(&mut TestSpec));

    #[test]
    fn what_iperf3_lacks_is_refused_at_its_key() {
        let good = TestSpec::new(Pattern::Stream, Transport::Tcp);
        check(&good).unwrap();
        let pace = Pace { events_per_s: 10.0, mode: PaceMode::User, arrival: Arrival::Closed, burst: 1, catch_up: 1 };
        let reverse = |spec: &mut TestSpec| spec.direction = Direction::Reverse;
        let changes: [Change<'_>; 28] = [
            ("workload", &|s| s.pattern = Pattern::RequestResponse),
            ("workload", &|s| s.transport = Transport::Sctp),
            ("workload", &|s| s.direction = Direction::Duplex),
            ("streams", &|s| s.streams = 129),
            ("integrity", &|s| s.integrity = true),
            ("collect", &|s| s.collect.latency = true),
            ("message_size", &|s| s.sizes.message_bytes = (1 << 20) + 1),
            ("message_size", &|s| (s.transport, s.sizes.message_bytes) = (Transport::Udp, 15)),
            ("message_size", &|s| (s.transport, s.sizes.message_bytes) = (Transport::Udp, 65_508)),
            ("warmup", &|s| s.phases.settle_ns = 1),
            ("warmup", &|s| s.phases.warmup_ns = NS / 2),
            ("warmup", &|s| s.phases.warmup_ns = 601 * NS),
            ("warmup", &|s| (s.phases.warmup_ns, s.phases.stop) = (NS, Stop::AfterBytes(1))),
            ("cooldown", &|s| s.phases.cooldown_ns = 1),
            ("duration", &|s| s.phases.stop = Stop::AfterNs(86_401 * NS)),
            ("bytes", &|s| (s.direction, s.phases.stop) = (Direction::Reverse, Stop::AfterBytes(1))),
            ("arrival", &|s| (reverse(s), s.pace = Some(Pace { arrival: Arrival::Poisson, ..pace })).1),
            ("pacing", &|s| (reverse(s), s.pace = Some(Pace { mode: PaceMode::Txtime, ..pace })).1),
            ("pacing", &|s| (reverse(s), s.pace = Some(Pace { burst: 1001, ..pace })).1),
            ("remote_socket", &|s| {
                (s.transport, s.sizes.message_bytes, s.far.socket.gro) = (Transport::Udp, 1000, Some(true));
            }),
            ("remote_socket", &|s| s.far.socket.busy_poll = Some(Microseconds(50))),
            ("remote_socket", &|s| {
                (s.direction, s.far.socket.send_buffer) = (Direction::Bidirectional, Some(Bytes(1)));
            }),
            ("remote_socket", &|s| s.far.socket.mss = Some(Bytes32(9217))),
            ("remote_ports", &|s| s.far.port = Some(5202)),
            ("bind", &|s| s.far.bind = vec!["127.0.0.1".parse().unwrap()]),
            ("remote_cpu", &|s| s.far.cpus = Some(Cpus(vec![1, 2]))),
            ("remote_buffers", &|s| s.far.buffers = BufferOptions { ring: 2, ..BufferOptions::default() }),
            ("payload", &|s| (reverse(s), s.payload = Payload::Zero).1),
        ];
        for (key, change) in changes {
            let mut spec = good.clone();
            change(&mut spec);
            let error = check(&spec).unwrap_err();
            assert_eq!(error.key, key, "{error}");
        }
        // The near end is ours, with the options of its own flows.
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        (spec.sizes.message_bytes, spec.near.socket.gso, spec.far.socket.gso) = (1000, Some(4), Some(4));
        check(&spec).unwrap();
        assert!(near_only(&spec).eq(["gso"]));
        let mut spec = good;
        spec.near.socket.busy_poll = Some(Microseconds(50));
        (spec.near.port, spec.payload, spec.pace) =
            (Some(6000), Payload::Zero, Some(Pace { arrival: Arrival::Poisson, ..pace }));
        check(&spec).unwrap();
    }
}
