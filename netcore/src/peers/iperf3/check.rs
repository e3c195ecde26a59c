//! Tests that iperf3 cannot run, with the plan's key to blame and the remedy.

use super::parameters::{
    MOST_BLOCK_BYTES, MOST_BURST, MOST_OMIT_SECONDS, MOST_SECONDS, MOST_STREAMS, MOST_WINDOW_BYTES, UDP_BLOCK_BYTES,
};
use crate::spec::{
    Arrival, Direction, Io, PaceMode, Pattern, Payload, Role, Side, Stop, TestSpec, Transport, key,
    socket::{MtuDiscover, SOCKET_OPTIONS, Setter, SocketOption},
    support::{Unsupported, refuse_if},
};

const NS: u64 = 1_000_000_000;

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
    pace(spec)?;
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

fn pace(spec: &TestSpec) -> Result<(), Unsupported> {
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
    use super::*;
    use crate::spec::{
        BufferOptions, Bytes, Cpus, Pace,
        quantity::{Bytes32, Microseconds},
    };

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
