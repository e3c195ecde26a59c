//! A test as iperf3's parameters, and back.

use super::{
    check::{check, window},
    fault::{Code, Fault},
    parameters::{Parameters, Protocol, Way},
};
use crate::spec::{
    Arrival, Bytes, Dialect, Direction, Dscp, Family, Io, Pace, PaceMode, Pattern, Payload, Receive, Role, Side, Stop,
    TestSpec, Transport, quantity::Bytes32, socket::MtuDiscover, support::Unsupported,
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
        way: match spec.direction {
            Direction::Forward | Direction::Duplex => Way::Forward,
            Direction::Reverse => Way::Reverse,
            Direction::Bidirectional => Way::Bidirectional,
        },
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
    spec.direction = match parameters.way {
        Way::Forward => Direction::Forward,
        Way::Reverse => Direction::Reverse,
        Way::Bidirectional => Direction::Bidirectional,
    };
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
    if parameters.way == Way::Forward {
        return None;
    }
    let events_per_s = bits_per_s as f64 / 8.0 / parameters.len as f64;
    let burst = if mode == PaceMode::User { parameters.burst.max(1) } else { 1 };
    let catch_up = Pace::default_catch_up(events_per_s, burst);
    Some(Pace { events_per_s, mode, arrival: Arrival::Closed, burst, catch_up })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::support;
    use proptest::prelude::*;

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
            way: Way::Reverse,
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
        asked.way = Way::Reverse;
        assert_eq!(test(&asked, HOUR).unwrap().receive, Receive::Copy);
    }

    #[test]
    fn only_a_server_that_sends_is_paced() {
        let mut asked = Parameters { parallel: 1, len: 1250, bandwidth: 1_000_000, burst: 10, ..Parameters::default() };
        assert_eq!(test(&asked, HOUR).unwrap().pace, None);
        asked.way = Way::Reverse;
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
            way in prop_oneof![Just(Way::Forward), Just(Way::Reverse), Just(Way::Bidirectional)],
            (parallel, len, omit_s, time_s) in (1..=4u32, 16..=65_507u64, 0..=600u64, 0..=2000u64),
            (bandwidth, fq_rate, burst, mss, tos) in (0..1u64 << 50, 0..1u64 << 50, 0..=1000u32, 0..=9216u64, any::<u8>()),
        ) {
            let asked = Parameters {
                protocol: if flags[0] { Protocol::Udp } else { Protocol::Tcp },
                mptcp: flags[1],
                way, omit_s, time_s, parallel, len, mss, tos,
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
}
