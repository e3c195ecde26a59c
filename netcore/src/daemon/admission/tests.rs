use std::{collections::BTreeMap, path::Path};

use super::*;
use crate::{
    control::key::Key,
    control::message::ReportBuilder,
    end::Endpoints,
    report::{Counts, CpuUse, Phase, TcpInfo, TcpInfoHere, TlsInfo, Window},
    spec::{
        Direction, Pattern, Payload, Role, Transport,
        ranks::{Operation, Work},
    },
};

fn far(spec: TestSpec) -> Part {
    Part::End { spec: Box::new(spec), side: Side::Far }
}

fn barrier(rank: u32, ranks: u32) -> Part {
    let work = Work::Operation { operation: Operation::Barrier, message_bytes: 0, compute_ns: 0 };
    Part::Rank { spec: Box::new(RanksSpec::new(Transport::Tcp, work)), rank, ranks }
}

fn judge(change: impl FnOnce(&mut TestSpec)) -> Result<Admitted, ReplyError> {
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
    change(&mut spec);
    part(&Config::default(), &far(spec))
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
        let part = far(spec);
        match super::part(&config, &part) {
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
        longest_counted(&Limits::default(), &far(spec))
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
        let bytes = judge(change).unwrap().bytes;
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
        let with = with.unwrap().bytes >> 20;
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
                spec.far.buffers.fill_file = Some("/etc/shadow".into());
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
        part(&config, &far(spec))
    };
    read(&inside).unwrap();
    let none = elsewhere.path().join("none");
    for path in [&outside, &link, &up, &none] {
        let error = read(path).unwrap_err();
        assert!(error.message.contains("does not read"), "{error}");
    }
}

/// The files that are admitted are those that are opened, whatever else the test names.
#[test]
fn a_second_path_does_not_hide_behind_an_allowed_one() {
    let allowed = tempfile::tempdir().unwrap();
    let inside = allowed.path().join("file");
    std::fs::write(&inside, "x").unwrap();
    let config = Config { allow_files: vec![allowed.path().to_owned()], ..Config::default() };
    let test = |side, change: &dyn Fn(&mut TestSpec)| {
        let mut spec = TestSpec::new(Pattern::RequestResponse, Transport::Tcp);
        change(&mut spec);
        part(&config, &Part::End { spec: Box::new(spec), side }).map(|_| ())
    };
    let shadow = || Some("/etc/shadow".into());
    for payload in [allowed.path(), &inside] {
        let hidden = |spec: &mut TestSpec| {
            (spec.payload, spec.far.buffers.fill_file) = (Payload::File(payload.to_owned()), shadow());
        };
        assert!(test(Side::Far, &hidden).unwrap_err().message.contains("/etc/shadow"));
        let hidden = |spec: &mut TestSpec| {
            spec.near.buffers.fill_file = Some(payload.to_owned());
            (spec.far.buffers.fill_file, spec.integrity) = (shadow(), true);
        };
        assert!(test(Side::Near, &hidden).is_err());
        assert!(test(Side::Far, &hidden).is_err());
    }
    let folder = |spec: &mut TestSpec| spec.payload = Payload::File(allowed.path().to_owned());
    let error = test(Side::Far, &folder).unwrap_err();
    assert!(error.message.contains("no regular file"), "{error}");
    // The other end opens it, with the other end's rights.
    test(Side::Far, &|spec| spec.near.buffers.fill_file = shadow()).unwrap();
}

/// A test that was granted must not fail because its report is too long.
#[test]
fn the_longest_report_of_a_granted_test_is_accepted() {
    let full = TcpInfo {
        timestamps: Some(true),
        retransmits: u64::MAX,
        rtt_us: u32::MAX,
        rtt_var_us: u32::MAX,
        min_rtt_us: Some(u32::MAX),
        cwnd_segments: u32::MAX,
        mss_bytes: u32::MAX,
        pmtu_bytes: u32::MAX,
        here: TcpInfoHere::default(),
        bytes_acked: Some(u64::MAX),
        delivered_bytes: Some(u64::MAX),
        delivery_rate_bytes_per_s: Some(u64::MAX),
        busy_us: Some(u64::MAX),
        rwnd_limited_us: Some(u64::MAX),
        sndbuf_limited_us: Some(u64::MAX),
        limits: None,
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
        completions: u64::MAX,
        copied: u64::MAX,
        not_ect: u64::MAX,
        ect0: u64::MAX,
        ect1: u64::MAX,
        marked: u64::MAX,
    };
    let flow = FlowWindow {
        flow: u32::MAX,
        role: Role::Requester,
        counts,
        latencies: Vec::new(),
        tcp_at_start: Some(full),
        tcp_info: Some(full),
        retransmits: Some(u64::MAX),
        quic: None,
        tls: Some(TlsInfo { records: u64::MAX, bytes: u64::MAX, encryption_ns: u64::MAX }),
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
        involuntary_switches: Some(u64::MAX),
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
        evidence: None,
    };
    let bytes = serde_json::to_string(&window).unwrap().len();
    assert!(bytes <= READING_TEXT_BYTES, "{bytes}");
    for limits in [Limits::default(), Limits::of_own_client()] {
        let readings = usize::try_from(limits.interval_readings).unwrap();
        assert!(readings * READING_TEXT_BYTES + 2 * KEPT_BYTES + (8 << 20) <= ReportBuilder::BOUND, "{readings}");
    }
}

#[test]
fn a_range_of_ports_ends_before_the_last_one() {
    let of = |transport, first| {
        let mut spec = TestSpec::new(Pattern::Stream, transport);
        (spec.far.port, spec.streams) = (Some(first), 55);
        part(&Config::default(), &far(spec))
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
fn near_ends_and_ranks_connect_only_where_they_may() {
    let addresses = Addresses { peer: "10.0.0.1".parse().unwrap(), local: "10.0.0.2".parse().unwrap() };
    let near = Part::End { spec: Box::new(TestSpec::new(Pattern::Stream, Transport::Tcp)), side: Side::Near };
    let rank = barrier(1, 2);
    let judge = |config: &Config, address: &str, endpoints: Endpoints| {
        let other = Peer { address: address.parse().unwrap(), endpoints };
        let own = Peer { address: "203.0.113.7".parse().unwrap(), endpoints: Endpoints::default() };
        let told = [other, own];
        let ends = connect(config, addresses, &near, &told[..1]);
        // A rank connects to those before it, and to no other, as its own place.
        assert_eq!(connect(config, addresses, &rank, &told), ends);
        assert_eq!(connect(config, addresses, &barrier(0, 2), &told), Ok(()));
        ends
    };
    let strict = Config::default();
    let open = Config { allow_connect: vec!["192.0.2.0/24".parse().unwrap()].into(), ..Config::default() };
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
    for (part, wrong) in
        [(&near, 0), (&near, 2), (&rank, 1), (&rank, 3), (&far(TestSpec::new(Pattern::Stream, Transport::Tcp)), 1)]
    {
        let peer = Peer { address: addresses.peer, endpoints: Endpoints::default() };
        let error = connect(&open, addresses, part, &vec![peer; wrong]).unwrap_err();
        assert!(error.message.contains(&format!("was told of {wrong}")), "{error}");
    }
}

#[test]
fn ranks_have_the_bounds_of_ends() {
    let limits = Limits { flows: 8, buffer_bytes: 1 << 20, duration_ns: 1_000_000_000, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let of = |message_bytes, stop, ranks| {
        let work = Work::Operation { operation: Operation::Alltoall, message_bytes, compute_ns: 0 };
        let spec = RanksSpec { stop, ..RanksSpec::new(Transport::Tcp, work) };
        part(&config, &Part::Rank { spec: Box::new(spec), rank: 0, ranks })
    };
    let (brief, counted) = (Stop::AfterNs(1_000_000_000), Stop::AfterTransactions(1));
    let admitted = of(1 << 10, brief, 9).unwrap();
    assert_eq!((admitted.flows, admitted.bytes), (8, (4 * 9) << 10));
    of(1 << 10, counted, 2).unwrap();
    for (refused, words) in [
        (of(1 << 10, brief, 10), "--max-flows"),
        (of(1 << 10, brief, u32::MAX), "cannot be"),
        (of(1 << 10, brief, 0), "cannot be"),
        (of(1 << 10, Stop::AfterNs(1_000_000_001), 2), "--max-duration"),
        (of(1 << 20, brief, 2), "a daemon grants 1048576"),
        (part(&config, &barrier(2, 2)), "cannot be"),
    ] {
        let error = refused.unwrap_err();
        assert!(error.code == ErrorCode::Refused && error.message.contains(words), "{words}: {error}");
    }
    assert_eq!(longest_counted(&config.limits, &barrier(0, 2)), 1_000_000_000);
}

#[test]
fn clients_come_from_allowed_networks() {
    let config = Config { allow: vec!["10.0.0.0/8".parse().unwrap()], ..Config::default() };
    assert!(allows(&config, "10.1.1.1".parse().unwrap()));
    assert!(allows(&Config::default(), "192.0.2.1".parse().unwrap()));
    assert!(!allows(&config, "192.0.2.1".parse().unwrap()));
}
