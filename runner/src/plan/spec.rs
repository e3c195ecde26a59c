//! Translates a resolved test body into the [`TestSpec`] that both ends run from.

use std::net::IpAddr;

use netcore::{
    peers::{self, Program},
    spec::{
        Arrival, BufferOptions, Dialect, Direction, EndSpec, Family, Io, Pace, PaceMode, Pattern, Payload, Stop,
        TestSpec, Transport, key as engine, memory, support,
    },
};
use schemas::units::Rate;

use super::{
    keys::{SpecError, error, key},
    model::{Control, Host, Ports, TestBody, Warmup},
    quantity::{Size, Time},
    workload::{Kind, Workload},
};

/// Limit of a message, request or response, bytes: each flow allocates a buffer of that size.
const MESSAGE_MAX: u64 = 1 << 30;
/// Default size of requests and answers that carry their times, bytes.
const ONE_WAY_BYTES: u64 = 64;
/// Most requests of a test that looks for outages which are waited for at the same time, by default.
const MOST_WAITED_FOR: u32 = 10_000;
/// Default bound of a warm-up that ends by itself, nanoseconds.
const WARMUP_AUTO_NS: u64 = 10_000_000_000;
/// Shortest such bound, nanoseconds: fewer than a hundred samples of a millisecond prove nothing.
const WARMUP_AUTO_LEAST_NS: u64 = 100_000_000;
/// Samples of a warm-up that lasts to its bound; a tenth of them is the least that can be judged.
const WARMUP_READINGS: u64 = 500;

/// Due times per second of a paced byte stream whose plan says no size of messages: one is a thousandth of a second's load.
const PACED_PER_S: f64 = 1000.0;
/// Least size of such messages, bytes.
const PACED_LEAST_BYTES: u64 = 64;

/// Translates a body; mistakes go to `errors`. `None` for a command.
pub fn translate(
    body: &TestBody,
    workload: &Workload,
    from: Option<&Host>,
    to: Option<&Host>,
    errors: &mut Vec<SpecError>,
) -> Option<TestSpec> {
    let Kind::Traffic { pattern, transport, direction, io, pingpong } = workload.kind else { return None };
    let mut out = TestSpec::new(pattern, transport);
    let written = body.io.filter(|io| *io != Io::Auto);
    out.io = one_of(key::io, "io method", written, io, workload, errors);
    out.direction = one_of(key::direction, "direction", body.direction, direction, workload, errors);
    if body.direction == Some(Direction::Duplex) {
        errors.push(error(key::direction, "unknown value `duplex`", "it is a workload, for example tcp_duplex"));
    }
    out.near.socket = body.socket.clone().unwrap_or_default();
    out.far.socket = body.remote_socket.clone().unwrap_or_default();
    out.family = match out.near.socket.ipv6.take() {
        Some(true) => Family::V6,
        Some(false) => Family::V4,
        None => Family::Any,
    };
    if out.far.socket.ipv6.take().is_some() {
        errors.push(error("remote_socket.ipv6", "both ends use one IP version", "write it in `socket`"));
    }
    out.streams = positive(key::streams, body.streams, errors).unwrap_or(1);
    out.threads = positive(key::threads, body.threads, errors);
    out.inflight = positive(key::inflight, body.inflight, errors).unwrap_or(1);
    out.receive = body.receive.unwrap_or_default();
    out.coalesce = body.coalesce.unwrap_or(false);
    out.outage_ns = body.outage.map_or(0, Time::nanoseconds);
    out.kernel_times = body.timestamps.is_some();
    let reflector = to.filter(|host| host.speaks == Some(Program::Stamp));
    out.one_way = body.one_way.unwrap_or(out.outage_ns > 0 || out.kernel_times || reflector.is_some());
    if out.one_way && pattern == Pattern::RequestResponse {
        (out.sizes.request_bytes, out.sizes.response_bytes) = (ONE_WAY_BYTES, ONE_WAY_BYTES);
    }
    let authenticated = reflector.is_some_and(|host| host.key_file.is_some());
    if reflector.is_some() {
        let default = memory::reflected_bytes(authenticated) as u64;
        (out.sizes.request_bytes, out.sizes.response_bytes) = (default, default);
    }
    sizes(body, transport, pingpong, &mut out, errors);
    if reflector.is_some() && body.response_size.is_none() {
        out.sizes.response_bytes = out.sizes.request_bytes;
    }
    phases(body, &mut out, errors);
    if let Some(bytes) = paced_message_bytes(body, &out) {
        out.sizes.message_bytes = bytes;
    }
    out.pace = pace(body, &out, errors);
    (out.near.buffers, out.far.buffers) = buffers(body, errors);
    out.near.cpus = body.cpu.as_ref().or_else(|| from?.cpus.as_ref()).cloned();
    out.far.cpus = body.remote_cpu.as_ref().or_else(|| to?.cpus.as_ref()).cloned();
    bind(&mut out.near, from);
    bind(&mut out.far, to);
    (out.near.port, out.near.port_count) = ports(body.ports);
    (out.far.port, out.far.port_count) = ports(body.remote_ports);
    out.payload = match &out.near.buffers.fill_file {
        Some(file) => Payload::File(file.clone()),
        None => body.payload.clone().unwrap_or_default(),
    };
    if body.control == Some(Control::None) {
        out.dialect = Dialect::Service;
    }
    if let Some(program) = to.and_then(|host| host.speaks) {
        if out.is_alone() {
            let help = "leave `control` out, or name a host without `speaks`";
            errors.push(error(
                key::control,
                "`control: none` is for services, and this host `speaks` a protocol",
                help,
            ));
        }
        out.dialect = program.dialect();
    }
    if let Some(host) = reflector {
        out.dialect = Dialect::Stamp { authenticated };
        out.near.socket.ttl.get_or_insert(Dialect::STAMP_TTL);
        let port = || host.control.as_ref()?.rsplit_once(':')?.1.parse().ok();
        out.far.port = out.far.port.or_else(port).or(Some(Program::Stamp.port()));
    }
    if out.is_alone() && to.is_none() {
        errors.push(error(
            key::control,
            "`control: none` needs a host in `to`: where the service is",
            "add hosts.NAME.address to the plan and `to: NAME` to the test",
        ));
    }
    out.connected = body.connected.unwrap_or(true);
    out.integrity = body.integrity.unwrap_or(false);
    out.close = body.close.unwrap_or_default();
    if let Some(timeout) = body.reply_timeout {
        out.reply_timeout_ns = timeout.nanoseconds();
    }
    if let (1, Some((_, gap_ns)), Pattern::RequestResponse) = (out.inflight, out.outages(), out.pattern) {
        // Requests go on while a lost one is waited for.
        let most = out.reply_timeout_ns.checked_div(gap_ns).unwrap_or(0).saturating_add(1);
        out.inflight = u32::try_from(most).unwrap_or(u32::MAX).min(MOST_WAITED_FOR);
    }
    if let Some(collect) = &body.collect {
        out.collect = collect.iter().copied().collect();
    }
    out.tls.clone_from(&body.tls);
    out.quic = body.quic;
    out.hops = body.hops.unwrap_or(false);
    out.interim = out.phases.interval_ns > 0;
    Some(out)
}

/// The refusal of a test by the engines or by the program at its far end, at the plan's key.
pub fn beyond_the_engines(spec: &TestSpec, workload: &Workload) -> Option<SpecError> {
    let unsupported = support::check(spec).and_then(|()| peers::check(spec)).err()?;
    // A plan has one key for some pairs of engine keys.
    let key = match unsupported.key {
        engine::port | engine::port_count => key::ports,
        key::request_size | key::response_size if matches!(workload.kind, Kind::Traffic { pingpong: true, .. }) => {
            key::message_size
        }
        other => other,
    };
    Some(error(key, unsupported.reason, ""))
}

/// The value that the test writes, or else that of its workload's name. The two must agree.
fn one_of<T: Copy + Default + PartialEq>(
    key: &str,
    what: &str,
    written: Option<T>,
    named: Option<T>,
    workload: &Workload,
    errors: &mut Vec<SpecError>,
) -> T {
    if written.is_some() && named.is_some() && named != written {
        errors.push(error(key, format!("`{}` says another {what}", workload.name), "leave one of them out"));
    }
    written.or(named).unwrap_or_default()
}

fn positive(key: &str, value: Option<u32>, errors: &mut Vec<SpecError>) -> Option<u32> {
    if value == Some(0) {
        errors.push(error(key, format!("`{key}` is 0"), "1 or more"));
        return None;
    }
    value
}

fn sizes(body: &TestBody, transport: Transport, pingpong: bool, out: &mut TestSpec, errors: &mut Vec<SpecError>) {
    let mut size = |key: &str, value: Option<Size>, slot: &mut u64| {
        let Some(Size(bytes)) = value else { return };
        // Only a ping may carry nothing.
        if bytes == 0 && transport != Transport::Icmp {
            errors.push(error(key, format!("`{key}` is 0"), "1 byte or more"));
        } else if bytes > MESSAGE_MAX {
            errors.push(error(key, format!("`{key}` is {bytes} bytes"), format!("the limit is {MESSAGE_MAX} bytes")));
        }
        *slot = bytes;
    };
    if pingpong {
        // The same size both ways, by default that of any request and response.
        let mut both = out.sizes.request_bytes;
        size(key::message_size, body.message_size, &mut both);
        (out.sizes.request_bytes, out.sizes.response_bytes) = (both, both);
        return;
    }
    size(key::message_size, body.message_size, &mut out.sizes.message_bytes);
    if transport.is_datagram() || transport == Transport::UnixSeqpacket {
        // A shorter read would truncate messages.
        out.sizes.receive_bytes = out.sizes.receive_bytes.max(out.sizes.message_bytes);
    }
    size(key::receive_size, body.receive_size, &mut out.sizes.receive_bytes);
    size(key::request_size, body.request_size, &mut out.sizes.request_bytes);
    size(key::response_size, body.response_size, &mut out.sizes.response_bytes);
}

fn phases(body: &TestBody, out: &mut TestSpec, errors: &mut Vec<SpecError>) {
    (out.phases.warmup_ns, out.phases.settle_ns) = match &body.warmup {
        Some(Warmup::For(time)) => (time.nanoseconds(), 0),
        Some(Warmup::Auto(auto)) => {
            let longest_ns = auto.max.map_or(WARMUP_AUTO_NS, Time::nanoseconds);
            if longest_ns < WARMUP_AUTO_LEAST_NS {
                errors.push(error("warmup.max", "nothing settles in less than 100 ms", "max: 10s is the default"));
            }
            (longest_ns, (longest_ns / WARMUP_READINGS).max(1_000_000))
        }
        None => (0, 0),
    };
    out.phases.cooldown_ns = body.cooldown.map_or(0, Time::nanoseconds);
    out.phases.interval_ns = body.interval.map_or(0, Time::nanoseconds);
    let rules: Vec<(&str, Stop, bool)> = [
        body.duration.map(|t| (key::duration, Stop::AfterNs(t.nanoseconds()), t.0.is_zero())),
        body.bytes.map(|b| (key::bytes, Stop::AfterBytes(b.0), b.0 == 0)),
        body.transactions.map(|n| (key::transactions, Stop::AfterTransactions(n), n == 0)),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let [first, second, ..] = rules.as_slice() {
        errors.push(error(
            second.0,
            format!("`{}` and `{}` both say when to stop", first.0, second.0),
            "keep one of duration, bytes, transactions",
        ));
    }
    if let Some((key, stop, zero)) = rules.first() {
        if *zero {
            errors.push(error(key, format!("`{key}` is 0"), "it must be greater than 0"));
        }
        out.phases.stop = *stop;
    }
    if let Stop::AfterNs(ns) = out.phases.stop
        && out.phases.interval_ns > ns
    {
        errors.push(error(key::interval, "`interval` is longer than `duration`", "shorten it, or leave it out"));
    }
    // Intervals under a millisecond measure the sampler.
    if (1..1_000_000).contains(&out.phases.interval_ns) {
        errors.push(error(key::interval, "`interval` is shorter than a millisecond", "1ms or more, or 0 for none"));
    }
}

/// Size of the messages of a paced byte stream whose plan says none, bytes: a power of two, with [`PACED_PER_S`] due times per
/// second. What the window's edges cut is one message. A search keeps one size over all its loads.
fn paced_message_bytes(body: &TestBody, out: &TestSpec) -> Option<u64> {
    let pacing = body.pacing.clone().unwrap_or_default();
    let chooses = body.message_size.is_none() && body.find.is_none() && out.pattern == Pattern::Stream;
    let by_thread = matches!(out.io, Io::Auto | Io::Batch | Io::Blocking | Io::Nonblocking | Io::Spin | Io::Uring)
        && pacing.mode.unwrap_or_default() == PaceMode::User;
    let bytes = out.transport.is_tcp() || matches!(out.transport, Transport::Quic | Transport::UnixStream);
    let Some(Rate::Bits(bits)) = body.rate.map(|r| r.0).filter(|_| chooses && by_thread && bytes) else { return None };
    let each = bits / 8.0 / f64::from(out.streams) / f64::from(pacing.burst.unwrap_or(1).max(1)) / PACED_PER_S;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; saturates")]
    let each = each as u64;
    Some((1 << each.max(1).ilog2()).clamp(PACED_LEAST_BYTES, out.sizes.message_bytes))
}

fn pace(body: &TestBody, out: &TestSpec, errors: &mut Vec<SpecError>) -> Option<Pace> {
    let pacing = body.pacing.clone().unwrap_or_default();
    let burst = positive("pacing.burst", pacing.burst, errors).unwrap_or(1);
    let streams = f64::from(out.streams);
    let stream = out.pattern == Pattern::Stream;
    let events_per_s = match (body.rate.map(|r| r.0), pacing.every) {
        (Some(_), Some(_)) => {
            errors.push(error("pacing.every", "`rate` and `pacing.every` both say how fast", "keep one of them"));
            return None;
        }
        (Some(Rate::Bits(bits)), None) if stream => bits / 8.0 / out.sizes.message_bytes as f64 / streams,
        (Some(Rate::Bits(_)), None) => {
            errors.push(error(key::rate, "transactions have no bit rate", "write it per second: 20k/s"));
            return None;
        }
        (Some(Rate::Events(events)), None) => events / streams,
        (None, Some(every)) if every.0.is_zero() => {
            errors.push(error("pacing.every", "`every` is 0", "leave it out to send without pauses"));
            return None;
        }
        (None, Some(every)) => f64::from(burst) / every.0.as_secs_f64(),
        (None, None) => {
            if body.pacing.is_some() {
                errors.push(error(
                    key::pacing,
                    "`pacing` without a rate paces nothing",
                    "add `rate`, or `pacing.every`",
                ));
            } else if matches!(body.arrival, Some(Arrival::Uniform | Arrival::Poisson)) {
                errors.push(error(key::arrival, "`arrival` needs a rate", "add `rate`, for example 20k/s"));
            }
            return None;
        }
    };
    if events_per_s <= 0.0 || !events_per_s.is_finite() {
        errors.push(error(key::rate, "the rate is 0", "leave it out to send as fast as it goes"));
        return None;
    }
    Some(Pace {
        events_per_s,
        mode: pacing.mode.unwrap_or_default(),
        arrival: body.arrival.unwrap_or_default(),
        burst,
        catch_up: pacing.catch_up.unwrap_or_else(|| Pace::default_catch_up(events_per_s, burst)),
    })
}

/// The buffers of the near and the far end. A mistake that the far end inherits is reported once, at the near end.
pub(super) fn buffers(body: &TestBody, errors: &mut Vec<SpecError>) -> (BufferOptions, BufferOptions) {
    let default = BufferOptions::default();
    let (near, far) = (body.buffers.clone().unwrap_or_default(), body.remote_buffers.clone().unwrap_or_default());
    for (section, end, known) in [(key::buffers, &near, &default), (key::remote_buffers, &far, &near)] {
        if end.ring == 0 && known.ring != 0 {
            errors.push(error(&format!("{section}.ring"), "`ring` is 0", "1 buffer or more"));
        }
        let alignment = end.alignment.filter(|bytes| !bytes.is_power_of_two() && known.alignment != Some(*bytes));
        if let Some(bytes) = alignment {
            errors.push(error(
                &format!("{section}.alignment"),
                format!("an alignment of {bytes} is not a power of two"),
                bytes.checked_next_power_of_two().map_or(String::new(), |n| format!("for example {n}")),
            ));
        }
    }
    (near, far)
}

/// Splits `10.0.0.2%eth1` into an address and its interface.
pub fn bind_parts(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let (address, device) = text.split_once('%').map_or((text, None), |(a, d)| (a, Some(d)));
    match address.parse() {
        Ok(address) => Ok((address, device)),
        Err(_) => Err(format!("`{text}` is not an address to bind to: write 10.0.0.2 or 10.0.0.2%eth1")),
    }
}

pub(super) fn bind(end: &mut EndSpec, host: Option<&Host>) {
    let Some(list) = host.and_then(|h| h.bind.as_ref()) else { return };
    for (address, device) in list.0.iter().filter_map(|text| bind_parts(text).ok()) {
        end.bind.push(address);
        if let Some(device) = device {
            end.socket.device.get_or_insert_with(|| device.to_owned());
        }
    }
}

pub(super) fn ports(ports: Option<Ports>) -> (Option<u16>, Option<u16>) {
    ports.map_or((None, None), |p| (Some(p.first), (p.count > 1).then_some(p.count)))
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Bytes, Dscp, quantity::Microseconds};

    use super::{
        super::{diagnostics::Sources, resolve, tree::parse},
        *,
    };
    use crate::plan::{decode::decode, diagnostics::Diagnostics};

    fn run(text: &str) -> (TestSpec, Vec<String>) {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        let mut out = Diagnostics::new(sources);
        let node = parse(source, &mut out).unwrap();
        let body: TestBody = decode(&resolve::with_far_end(&node), &mut out).unwrap();
        assert!(!out.has_errors(), "{}", out.render(crate::plan::diagnostics::Format::Human));
        let mut errors = Vec::new();
        let workload = body.workload.clone().unwrap();
        let spec = translate(&body, &workload, None, None, &mut errors).unwrap();
        errors.extend(beyond_the_engines(&spec, &workload));
        (spec, errors.into_iter().map(|f| format!("{}: {}", f.key, f.message)).collect())
    }

    #[test]
    fn messages_of_a_paced_byte_stream_are_small_against_a_second() {
        let bytes = |keys: &str| run(&format!("{{workload: tcp_stream, {keys}}}")).0.sizes.message_bytes;
        assert_eq!(bytes("rate: 5Mbit/s"), 512);
        assert_eq!(bytes("rate: 40Mbit/s, streams: 4"), 1024);
        assert_eq!(bytes("rate: 40Mbit/s, pacing: {burst: 4}"), 1024);
        assert_eq!((bytes("rate: 1kbit/s"), bytes("rate: 20Gbit/s")), (64, 128 << 10));
        // A size that the plan gives stays, and so does the default where no thread paces.
        assert_eq!(bytes("rate: 5Mbit/s, message_size: 64KiB"), 64 << 10);
        assert_eq!(bytes("rate: 5Mbit/s, pacing: {mode: kernel}"), 128 << 10);
        assert_eq!((bytes("rate: 40/s"), bytes("streams: 2")), (128 << 10, 128 << 10));
        let (spec, _) = run("{workload: tcp_stream, rate: 5Mbit/s}");
        assert!((spec.pace.unwrap().events_per_s * 512.0 * 8.0 - 5e6).abs() < 1e-3);
        assert_eq!(run("{workload: udp_stream, rate: 5Mbit/s}").0.sizes.message_bytes, 1472);
    }

    #[test]
    fn quantities_arrive_in_base_units() {
        let (spec, _) = run(
            "{workload: tcp_stream, message_size: 1MiB, streams: 2, rate: 1Gbit/s, warmup: 500ms, duration: 2s, \
              socket: {send_buffer: 1MB, busy_poll: 50us, dscp: ef}, remote_socket: {send_buffer: 2MB}, ports: 40000-40009}",
        );
        assert_eq!(spec.sizes.message_bytes, 1 << 20);
        assert_eq!(spec.phases.stop, Stop::AfterNs(2_000_000_000));
        assert_eq!(spec.phases.warmup_ns, 500_000_000);
        let pace = spec.pace.unwrap();
        assert!((pace.events_per_s - 1e9 / 8.0 / f64::from(1 << 20) / 2.0).abs() < 1e-9);
        assert_eq!(
            (spec.near.socket.send_buffer, spec.far.socket.send_buffer),
            (Some(Bytes(1_000_000)), Some(Bytes(2_000_000)))
        );
        assert_eq!((spec.near.socket.busy_poll, spec.far.socket.dscp), (Some(Microseconds(50)), Some(Dscp(46))));
        assert_eq!((spec.near.port, spec.near.port_count), (Some(40000), Some(10)));
    }

    #[test]
    fn requests_of_a_test_that_looks_for_outages_carry_times_and_go_on_when_one_is_lost() {
        let of = |keys: &str| run(&format!("{{workload: udp_rr, outage: 20ms, rate: 500/s{keys}}}"));
        let (spec, errors) = of("");
        assert_eq!((spec.inflight, spec.sizes.request_bytes, spec.one_way, errors), (501, 64, true, Vec::new()));
        assert_eq!((of(", inflight: 1").0.inflight, of(", inflight: 20").0.inflight), (501, 20));
        assert_eq!(of(", reply_timeout: 100ms").0.inflight, 51);
        assert_eq!(run("{workload: udp_rr, rate: 500/s, one_way: true}").0.inflight, 1);
        let (spec, errors) =
            run("{workload: udp_stream, outage: 20ms, rate: 500/s, pacing: {burst: 2}, message_size: 64}");
        assert_eq!(
            (spec.inflight, spec.one_way, spec.outages(), errors),
            (1, true, Some((20_000_000, 4_000_000)), Vec::new())
        );
    }

    #[test]
    fn pingpong_is_a_request_and_a_response_of_one_size() {
        let (spec, _) = run("{workload: tcp_pingpong, message_size: 4KiB, duration: 1s}");
        assert_eq!((spec.sizes.request_bytes, spec.sizes.response_bytes), (4096, 4096));
    }

    #[test]
    fn small_messages_do_not_make_small_reads() {
        let (spec, _) = run("{workload: tcp_stream, message_size: 1}");
        assert_eq!(spec.sizes.receive_bytes, 128 * 1024);
    }

    #[test]
    fn packets_are_received_whole_unless_the_plan_says_otherwise() {
        let (spec, errors) = run("{workload: unix_seqpacket_stream, message_size: 400000}");
        assert_eq!((spec.sizes.receive_bytes, errors.len()), (400_000, 0));
        assert_eq!(run("{workload: unix_seqpacket_stream, message_size: 2000, receive_size: 1000}").1.len(), 1);
    }

    #[test]
    fn a_mistake_about_the_far_end_is_said_at_its_key() {
        let errors = run("{workload: tcp_rr, remote_buffers: {alignment: 3, ring: 0}, remote_socket: {ipv6: true}}").1;
        for key in ["remote_buffers.alignment: ", "remote_buffers.ring: ", "remote_socket.ipv6: "] {
            assert!(errors.iter().any(|fault| fault.starts_with(key)), "{key} not in {errors:?}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let errors =
            run("{workload: tcp_maerts, direction: forward, duration: 1s, bytes: 5, streams: 0, message_size: 0, \
              interval: 2s, buffers: {alignment: 100}, pacing: {burst: 2}}")
            .1
            .join("\n");
        for sentence in [
            "direction: `tcp_maerts` says another direction",
            "both say when to stop",
            "streams: `streams` is 0",
            "message_size: `message_size` is 0",
            "interval: `interval` is longer",
            "not a power of two",
            "pacing: `pacing` without a rate",
        ] {
            assert!(errors.contains(sentence), "{sentence} not in:\n{errors}");
        }
        assert!(run("{workload: udp_stream, message_size: 64KiB}").1.iter().any(|f| f.contains("65536")));
        assert!(run("{workload: tcp_rr, rate: 1Gbit/s}").1.iter().any(|f| f.contains("no bit rate")));
        assert!(run("{workload: tcp_rr, arrival: poisson}").1.iter().any(|f| f.contains("needs a rate")));
    }
}
