//! Admission of clients, tests and programs. Every number in a test is bounded before anything is allocated or opened for it.

use std::{net::IpAddr, path::Path};

use super::Config;
use crate::{
    control::message::{ErrorCode, Execute, Limits, Peer, Prepare, READING_TEXT_BYTES, ReplyError},
    measure::KEPT_BYTES,
    pattern,
    report::FlowWindow,
    spec::{Direction, Pattern, Payload, Phases, Side, Stop, TestSpec, memory, support},
};

/// The lowest data port that a client may choose.
pub(super) const LOWEST_PORT: u16 = 1024;

/// The shortest interval, nanoseconds.
pub(super) const SHORTEST_INTERVAL_NS: u64 = 1_000_000;

/// A reading as a value and in the text of a report, without its histograms, bytes.
const READING_BYTES: u64 = size_of::<FlowWindow>() as u64 + READING_TEXT_BYTES as u64;

/// A full histogram of a reading, or the counters of a large machine in an interval, bytes.
const LARGEST_KEPT_BYTES: u64 = 128 << 10;

/// Limit of the addresses that an end uses in turn: it proves itself from each of them, by a connection each.
pub(super) const MOST_ADDRESSES: usize = 256;

/// Addresses of the control connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// Whether clients may come from an address.
pub(super) fn allows(config: &Config, address: IpAddr) -> bool {
    config.allow.is_empty() || config.allow.iter().any(|network| network.contains(address))
}

/// Admits a program, only for clients that have proven a key: it runs with all rights of the daemon. This holds on
/// loopback, too, since every user of the machine can connect to it.
pub(crate) fn program(config: &Config, asked: &Execute) -> Result<(), ReplyError> {
    if !config.allow_hooks || config.key.is_none() {
        return refuse(
            "this daemon runs no programs for its clients, and the plan has a hook on it: check the program of the hook, and \
             start its `plumb serve` with --allow-hooks and --key-file",
        );
    }
    if asked.argv.is_empty() {
        return refuse("a hook without a program");
    }
    let is_ours = |name: &String| {
        name.starts_with("PLUMB_") && name.chars().all(|c| c == '_' || c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    if let Some(name) = asked.environment.keys().find(|name| !is_ours(name)) {
        return refuse(format!(
            "the variable {name:?} cannot be set for a hook: the names of its variables begin with PLUMB_"
        ));
    }
    if asked.limit_ns > config.limits.duration_ns {
        return refuse(format!(
            "the hook may take {} s, more than the {} s that this daemon grants (--max-duration)",
            seconds(asked.limit_ns),
            seconds(config.limits.duration_ns)
        ));
    }
    Ok(())
}

/// Admits one end of a test. Returns the memory that it takes, bytes.
pub(crate) fn test(config: &Config, prepare: &Prepare) -> Result<u64, ReplyError> {
    let Prepare { spec, side, .. } = prepare;
    let limits = &config.limits;
    let flows = spec.flows();
    if flows > limits.flows {
        return refused(format!(
            "{flows} flows are more than the {} that this daemon grants (--max-flows)",
            limits.flows
        ));
    }
    support::check(spec).map_err(|unsupported| ReplyError::new(ErrorCode::Unsupported, unsupported.to_string()))?;
    // A test that stops by a count has no cool-down.
    let length_ns = spec.phases.length_ns().unwrap_or(spec.phases.warmup_ns);
    if length_ns > limits.duration_ns {
        return refused(format!(
            "the test takes {} s with warm-up and cool-down, more than the {} s that this daemon grants (--max-duration)",
            seconds(length_ns),
            seconds(limits.duration_ns)
        ));
    }
    let intervals = check_intervals(config, spec, length_ns)?;
    let buffer_bytes = check_buffers(config, spec, *side)?;
    check_files(config, spec, *side)?;
    if spec.near.bind.len().max(spec.far.bind.len()) > MOST_ADDRESSES {
        return refused(format!("an end of a test uses at most {MOST_ADDRESSES} addresses of its own"));
    }
    if spec.end(*side).port.is_some_and(|port| port < LOWEST_PORT) {
        return refused(format!("data ports below {LOWEST_PORT} are not given to clients"));
    }
    if spec.pace.is_some_and(|pace| !(pace.events_per_s.is_finite() && pace.events_per_s > 0.0) || pace.burst == 0) {
        return refused("a rate must be a positive number, and its bursts at least one message long");
    }
    let readings = intervals.saturating_mul(u64::from(flows));
    let histogram_bytes = pattern::histogram_bytes(spec, *side);
    let counters = if spec.collect.system || spec.collect.cpu_per_core { intervals } else { 0 };
    let kept_bytes =
        kept_bytes(if pattern::has_latencies(spec, *side) { readings } else { 0 }).saturating_add(kept_bytes(counters));
    let of_readings = readings.saturating_mul(READING_BYTES);
    Ok([of_readings, kept_bytes, histogram_bytes].into_iter().fold(buffer_bytes, u64::saturating_add))
}

/// Memory of so many histograms of readings, or counters of intervals, bytes: all as values and again as the report's text.
fn kept_bytes(count: u64) -> u64 {
    2 * count.saturating_mul(LARGEST_KEPT_BYTES).min(KEPT_BYTES as u64)
}

/// Bound of the memory of every test that the limits grant, bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn most_bytes(limits: &Limits) -> u64 {
    let of_readings = limits.interval_readings * READING_BYTES + 2 * kept_bytes(u64::MAX);
    limits.buffer_bytes + of_readings + u64::from(limits.flows) * pattern::MOST_HISTOGRAM_BYTES
}

/// The longest time for a test that stops by a count, nanoseconds: the time that the daemon grants, and the time for which it
/// keeps readings of all intervals.
pub(crate) fn longest_counted(limits: &Limits, spec: &TestSpec) -> u64 {
    let granted = limits.interval_readings / u64::from(spec.flows()).max(1);
    // The last interval may be shorter.
    let intervals = granted.saturating_sub(settling_intervals(&spec.phases)).saturating_sub(1);
    let kept_ns = intervals.checked_mul(spec.phases.interval_ns).filter(|_| spec.phases.interval_ns > 0);
    limits.duration_ns.min(kept_ns.unwrap_or(u64::MAX))
}

/// Intervals of a time, with a shorter one at its end.
fn intervals(length_ns: u64, interval_ns: u64) -> u64 {
    length_ns.checked_div(interval_ns).map_or(0, |n| n.saturating_add(1))
}

/// Intervals of a warm-up that may end early.
fn settling_intervals(phases: &Phases) -> u64 {
    intervals(phases.warmup_ns, phases.settle_ns)
}

/// Bounds the intervals of a test, and returns their number.
fn check_intervals(config: &Config, spec: &TestSpec, length_ns: u64) -> Result<u64, ReplyError> {
    let Phases { interval_ns, settle_ns, .. } = spec.phases;
    let length_ns = match spec.phases.stop {
        Stop::AfterNs(_) => length_ns,
        // It ends in time.
        _ => longest_counted(&config.limits, spec),
    };
    let intervals = intervals(length_ns, interval_ns).saturating_add(settling_intervals(&spec.phases));
    let readings = intervals.saturating_mul(u64::from(spec.flows()));
    let granted = config.limits.interval_readings;
    let shortest_ns = [interval_ns, settle_ns].into_iter().filter(|ns| *ns > 0).min().unwrap_or(u64::MAX);
    if shortest_ns < SHORTEST_INTERVAL_NS || readings > granted {
        return refused(format!(
            "intervals of {} s would make up to {readings} readings of {} flows; this daemon keeps {granted}, of intervals of \
             at least a millisecond: lengthen `interval`, or shorten the test",
            seconds(shortest_ns),
            spec.flows()
        ));
    }
    Ok(intervals)
}

/// Bounds the memory that the engines allocate.
fn check_buffers(config: &Config, spec: &TestSpec, side: Side) -> Result<u64, ReplyError> {
    let buffers = &spec.end(side).buffers;
    let alignment = buffers.alignment.unwrap_or(1);
    if !alignment.is_power_of_two() || alignment > 1 << 30 || buffers.offset > 1 << 30 {
        return refused("buffer alignment must be a power of two, and alignment and offset at most 1 GiB");
    }
    if buffers.ring == 0 {
        return refused("a ring must have at least one buffer");
    }
    let bytes = memory::buffer_bytes(spec, side);
    if bytes > config.limits.buffer_bytes {
        return refused(format!(
            "the buffers of this test take {bytes} bytes; this daemon grants {}: use smaller messages, a smaller ring, \
             or fewer streams",
            config.limits.buffer_bytes
        ));
    }
    Ok(bytes)
}

/// Files need --allow-files, unlike with netserver, which sends any file that a client names.
fn check_files(config: &Config, spec: &TestSpec, side: Side) -> Result<(), ReplyError> {
    // An end that only receives reads no file, unless it checks the arriving data.
    let receives = match spec.direction {
        Direction::Forward => side == Side::Far,
        Direction::Reverse => side == Side::Near,
        Direction::Bidirectional | Direction::Duplex => false,
    };
    if spec.pattern == Pattern::Stream && receives && !spec.integrity {
        return Ok(());
    }
    let payload = if let Payload::File(path) = &spec.payload { Some(path) } else { None };
    let named = payload.or(spec.near.buffers.fill_file.as_ref()).or(spec.far.buffers.fill_file.as_ref());
    let Some(path) = named.filter(|path| !may_read(config, path)) else { return Ok(()) };
    refuse(format!(
        "this daemon does not read {} for its clients: use payload `random`, or start it with --allow-files and the folder \
         of that file",
        path.display()
    ))
}

/// Whether a file is in an allowed folder. The answer does not tell whether a file elsewhere exists.
fn may_read(config: &Config, path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    config.allow_files.iter().filter_map(|folder| folder.canonicalize().ok()).any(|folder| path.starts_with(folder))
}

/// Admits a peer that a near end here is to connect to.
pub(crate) fn connect(config: &Config, addresses: Addresses, peer: &Peer) -> Result<(), ReplyError> {
    for address in [Some(peer.address), peer.endpoints.address].into_iter().flatten() {
        if !reaches(config, addresses, address) {
            return refuse(format!(
                "this daemon connects only to its client {} and to itself, not to {address}: start it with \
                 --allow-connect {address} to make it the near end of tests with that host",
                addresses.peer
            ));
        }
    }
    let local = peer.endpoints.cid.is_some() || peer.endpoints.mac.is_some();
    if local && !addresses.peer.is_loopback() && config.allow_connect.is_empty() {
        return refuse(
            "this daemon opens sockets other than IP sockets only for clients on its own machine: start it with \
             --allow-connect to make it the near end of such tests",
        );
    }
    Ok(())
}

/// Admits the peers that a far end here sends datagrams to. A connection proves that its other end wants it; the source of a
/// datagram proves nothing, and a client that forges it could direct the load at another host.
pub(super) fn datagrams(config: &Config, addresses: Addresses, peers: &[IpAddr]) -> Result<(), ReplyError> {
    let Some(address) = peers.iter().find(|address| !reaches(config, addresses, **address)) else { return Ok(()) };
    refuse(format!(
        "this daemon sends datagrams only to its client {} and to itself, and the near end's come from {address}: start \
         it with --allow-connect {address} to allow that",
        addresses.peer
    ))
}

fn reaches(config: &Config, addresses: Addresses, address: IpAddr) -> bool {
    let address = address.to_canonical();
    address == addresses.peer
        || address == addresses.local
        || config.allow_connect.iter().any(|network| network.contains(address))
}

fn refuse(message: impl Into<String>) -> Result<(), ReplyError> {
    refused(message)
}

fn refused<T>(message: impl Into<String>) -> Result<T, ReplyError> {
    Err(ReplyError::new(ErrorCode::Refused, message))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::embedded, *};
    use crate::{
        control::key::Key,
        control::message::ReportBuilder,
        end::Endpoints,
        report::{Counts, CpuUse, Phase, TcpInfo, Window},
        spec::{Direction, Pattern, Role, Transport},
    };

    fn judge(change: impl FnOnce(&mut TestSpec)) -> Result<u64, ReplyError> {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        change(&mut spec);
        test(&Config::default(), &Prepare { spec, side: Side::Far, token: [0; 16], data_address: None })
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut TestSpec), word: &str) {
        let error = judge(change).unwrap_err();
        assert_eq!(error.code, ErrorCode::Refused, "{error}");
        assert!(error.message.contains(word), "{error}");
    }

    #[test]
    fn an_ordinary_test_is_admitted() {
        judge(|_| ()).unwrap();
        judge(|spec| spec.phases.interval_ns = 100_000_000).unwrap();
        judge(|spec| spec.phases.stop = Stop::AfterBytes(1 << 40)).unwrap();
    }

    #[test]
    fn a_daemon_may_grant_less_memory_than_the_engines_take() {
        let limits = Limits { buffer_bytes: 1 << 20, ..Default::default() };
        let config = Config { limits, ..Config::default() };
        for (ring, granted) in [(8, true), (9, false)] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            (spec.sizes.receive_bytes, spec.far.buffers.ring) = (1 << 17, ring);
            let prepare = Prepare { spec, side: Side::Far, token: [0; 16], data_address: None };
            match test(&config, &prepare) {
                Ok(_) => assert!(granted),
                Err(error) => assert!(!granted && error.message.contains("smaller ring"), "{error}"),
            }
        }
    }

    #[test]
    fn a_count_with_intervals_is_granted_the_time_for_which_they_can_be_kept() {
        let counted = |interval_ns: u64, streams: u32| {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            spec.phases.stop = Stop::AfterBytes(1);
            (spec.phases.interval_ns, spec.streams) = (interval_ns, streams);
            longest_counted(&Limits::default(), &spec)
        };
        assert_eq!(counted(0, 64), 3600 * 1_000_000_000);
        assert_eq!(counted(1_000_000_000, 8), 3600 * 1_000_000_000);
        assert_eq!(counted(100_000_000, 10), 2_499_900_000_000, "with a last interval that is shorter");
        judge(|spec| {
            spec.phases.stop = Stop::AfterBytes(1);
            (spec.phases.interval_ns, spec.streams) = (2_000_000, 64);
        })
        .unwrap();
    }

    /// Many small tests fit into a daemon with default limits, also with intervals.
    #[test]
    fn a_test_is_charged_for_what_it_may_collect_only() {
        let mebibytes = |change: fn(&mut TestSpec)| {
            let bytes = judge(change).unwrap();
            assert!(bytes <= most_bytes(&Limits::default()), "{bytes}");
            bytes >> 20
        };
        let counted = mebibytes(|spec| {
            *spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
            (spec.phases.stop, spec.phases.interval_ns) = (Stop::AfterTransactions(20_000), 500_000_000);
        });
        // An hour of intervals at most, with histograms where the requester is.
        assert!(counted < 128, "{counted}");
        let intervals = |spec: &mut TestSpec| spec.phases.interval_ns = 1_000_000;
        let plain = mebibytes(|spec| spec.phases.interval_ns = 1_000_000);
        assert!(plain < 40, "{plain}");
        let timed = judge(|spec| {
            intervals(spec);
            spec.collect.latency = true;
        });
        let logged = judge(|spec| {
            intervals(spec);
            spec.collect.cpu_per_core = true;
        });
        for with in [timed, logged] {
            let with = with.unwrap() >> 20;
            assert!((plain + 64..plain + 72).contains(&with), "{with}");
        }
    }

    #[test]
    fn each_limit_has_its_sentence() {
        refused(|spec| spec.streams = 65, "65 flows");
        refused(
            |spec| {
                spec.streams = u32::MAX;
                spec.direction = Direction::Bidirectional;
            },
            "--max-flows",
        );
        refused(|spec| spec.phases.stop = Stop::AfterNs(u64::MAX), "--max-duration");
        refused(|spec| spec.phases.warmup_ns = 3_600_000_000_001, "--max-duration");
        refused(|spec| spec.phases.interval_ns = 1, "millisecond");
        refused(|spec| spec.phases.settle_ns = 1, "millisecond");
        refused(
            |spec| {
                spec.phases.stop = Stop::AfterNs(3600 * 1_000_000_000);
                spec.phases.interval_ns = 2_000_000;
            },
            "interval",
        );
        refused(|spec| spec.far.buffers.ring = 0, "at least one");
        refused(|spec| spec.far.buffers.alignment = Some(3), "power of two");
        refused(|spec| spec.far.buffers.alignment = Some(0), "power of two");
        let shadow = |spec: &mut TestSpec| spec.payload = Payload::File("/etc/shadow".into());
        judge(shadow).unwrap();
        for change in [
            (|spec| spec.direction = Direction::Reverse) as fn(&mut TestSpec),
            |spec| spec.direction = Direction::Bidirectional,
            |spec| spec.direction = Direction::Duplex,
            |spec| spec.pattern = Pattern::RequestResponse,
            |spec| spec.integrity = true,
        ] {
            refused(
                |spec| {
                    shadow(spec);
                    change(spec);
                },
                "/etc/shadow",
            );
            refused(
                |spec| {
                    spec.near.buffers.fill_file = Some("/etc/shadow".into());
                    change(spec);
                },
                "--allow-files",
            );
        }
        refused(|spec| spec.far.port = Some(22), "1024");
        refused(|spec| spec.near.bind = vec!["10.0.0.1".parse().unwrap(); MOST_ADDRESSES + 1], "256 addresses");
    }

    #[test]
    fn files_are_read_in_allowed_folders_only() {
        let (allowed, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&allowed, &elsewhere] {
            std::fs::write(folder.path().join("file"), "x").unwrap();
        }
        let (link, inside) = (allowed.path().join("link"), allowed.path().join("file"));
        let outside = elsewhere.path().join("file");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        let config = Config { allow_files: vec![allowed.path().to_owned()], ..Config::default() };
        let up = allowed.path().join("..").join(outside.strip_prefix(allowed.path().parent().unwrap()).unwrap());
        let read = |path: &Path| {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            (spec.direction, spec.payload) = (Direction::Reverse, Payload::File(path.to_owned()));
            test(&config, &Prepare { spec, side: Side::Far, token: [0; 16], data_address: None })
        };
        read(&inside).unwrap();
        let none = elsewhere.path().join("none");
        for path in [&outside, &link, &up, &none] {
            let error = read(path).unwrap_err();
            assert!(error.message.contains("does not read"), "{error}");
        }
    }

    /// A test that was granted must not fail because its report is too long.
    #[test]
    fn the_longest_report_of_a_granted_test_is_accepted() {
        let full = TcpInfo {
            retransmits: u64::MAX,
            rtt_us: u32::MAX,
            rtt_var_us: u32::MAX,
            min_rtt_us: Some(u32::MAX),
            cwnd_segments: u32::MAX,
            mss_bytes: u32::MAX,
            pmtu_bytes: u32::MAX,
            bytes_acked: Some(u64::MAX),
            delivery_rate_bytes_per_s: Some(u64::MAX),
            busy_us: Some(u64::MAX),
            rwnd_limited_us: Some(u64::MAX),
            sndbuf_limited_us: Some(u64::MAX),
        };
        let counts = Counts {
            bytes_sent: u64::MAX,
            bytes_received: u64::MAX,
            sends: u64::MAX,
            receives: u64::MAX,
            transactions: u64::MAX,
            connections: u64::MAX,
            errors: u64::MAX,
            messages_sent: u64::MAX,
            messages_received: u64::MAX,
            reordered: u64::MAX,
            duplicated: u64::MAX,
        };
        let flow = FlowWindow {
            flow: u32::MAX,
            role: Role::Requester,
            counts,
            latencies: Vec::new(),
            tcp_at_start: Some(full),
            tcp_info: Some(full),
            retransmits: Some(u64::MAX),
            datagrams: None,
            jitter_ns: Some(u64::MAX),
            pacing: None,
        };
        let third = 1.0 / 3.0;
        let cpu = CpuUse {
            cpus: u32::MAX,
            busy: third,
            user: third,
            system: third,
            iowait: third,
            irq: third,
            softirq: third,
            steal: third,
            peak: third,
            peak_id: u32::MAX,
            per_cpu: Vec::new(),
            process_cpus: Some(third),
            throttled: Some(third),
            quota_cpus: Some(third),
        };
        let window = Window {
            phase: Phase::Measure,
            start_ns: i64::MIN,
            elapsed_ns: u64::MAX,
            wall_end_ns: i64::MIN,
            flows: vec![flow],
            cpu: Some(cpu),
        };
        let bytes = serde_json::to_string(&window).unwrap().len();
        assert!(bytes <= READING_TEXT_BYTES, "{bytes}");
        for limits in [Limits::default(), embedded::limits()] {
            let readings = usize::try_from(limits.interval_readings).unwrap();
            assert!(readings * READING_TEXT_BYTES + 2 * KEPT_BYTES + (8 << 20) <= ReportBuilder::BOUND, "{readings}");
        }
    }

    #[test]
    fn a_range_of_ports_ends_before_the_last_one() {
        let of = |transport, first| {
            let mut spec = TestSpec::new(Pattern::Stream, transport);
            (spec.far.port, spec.streams) = (Some(first), 55);
            test(&Config::default(), &Prepare { spec, side: Side::Far, token: [0; 16], data_address: None })
        };
        // One listener serves all connections.
        of(Transport::Tcp, 65535).unwrap();
        of(Transport::Udp, 65481).unwrap();
        for first in [65482, 65535] {
            let error = of(Transport::Udp, first).unwrap_err();
            assert!(error.message.contains("begin at 65481 or below"), "{error}");
        }
    }

    #[test]
    fn programs_need_a_key_and_permission() {
        let asked = Execute { argv: vec!["true".into()], environment: BTreeMap::default(), limit_ns: 1 };
        let key = Some(Key::generate().unwrap());
        let open = Config { allow_hooks: true, key: key.clone(), ..Config::default() };
        program(&open, &asked).unwrap();
        for closed in [
            Config::default(),
            Config { key, ..Config::default() },
            // On loopback, as it listens, that would be every user of the machine.
            Config { allow_hooks: true, ..Config::default() },
        ] {
            let error = program(&closed, &asked).unwrap_err();
            assert!(error.code == ErrorCode::Refused && error.message.contains("--allow-hooks"), "{error}");
        }
        for (asked, words) in [
            (Execute { argv: Vec::new(), ..asked.clone() }, "without a program"),
            (Execute { limit_ns: 3_600_000_000_001, ..asked.clone() }, "--max-duration"),
            (
                Execute { environment: BTreeMap::from([("LD_PRELOAD".into(), "x".into())]), ..asked.clone() },
                "\"LD_PRELOAD\"",
            ),
            (Execute { environment: BTreeMap::from([("PLUMB_A=B".into(), "x".into())]), ..asked }, "PLUMB_A=B"),
        ] {
            let error = program(&open, &asked).unwrap_err();
            assert!(error.message.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn unsupported_tests_have_their_own_code() {
        let error = judge(|spec| {
            spec.pattern = Pattern::Stream;
            spec.phases.stop = Stop::AfterTransactions(5);
        })
        .unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
    }

    #[test]
    fn near_ends_connect_only_where_they_may() {
        let addresses = Addresses { peer: "10.0.0.1".parse().unwrap(), local: "10.0.0.2".parse().unwrap() };
        let judge = |config: &Config, address: &str, endpoints: Endpoints| {
            connect(config, addresses, &Peer { address: address.parse().unwrap(), endpoints })
        };
        let strict = Config::default();
        let open = Config { allow_connect: vec!["192.0.2.0/24".parse().unwrap()], ..Config::default() };
        judge(&strict, "10.0.0.1", Endpoints::default()).unwrap();
        judge(&strict, "::ffff:10.0.0.2", Endpoints::default()).unwrap();
        let error = judge(&strict, "192.0.2.9", Endpoints::default()).unwrap_err();
        assert!(error.message.contains("--allow-connect 192.0.2.9"), "{error}");
        judge(&open, "192.0.2.9", Endpoints::default()).unwrap();
        assert!(judge(&open, "198.51.100.1", Endpoints::default()).is_err());
        // The address may hide in the endpoints, or not be an address at all.
        let elsewhere = Endpoints { address: Some("198.51.100.1".parse().unwrap()), ..Endpoints::default() };
        assert!(judge(&open, "10.0.0.1", elsewhere).is_err());
        let vsock = Endpoints { cid: Some(2), ..Endpoints::default() };
        assert!(judge(&strict, "10.0.0.1", vsock).is_err());
        assert!(judge(&strict, "127.0.0.1", Endpoints::default()).is_err());
    }

    #[test]
    fn clients_come_from_allowed_networks() {
        let config = Config { allow: vec!["10.0.0.0/8".parse().unwrap()], ..Config::default() };
        assert!(allows(&config, "10.1.1.1".parse().unwrap()));
        assert!(allows(&Config::default(), "192.0.2.1".parse().unwrap()));
        assert!(!allows(&config, "192.0.2.1".parse().unwrap()));
    }
}
