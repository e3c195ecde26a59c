//! The words of the wire: a change of any message needs a new protocol number.

use std::{collections::BTreeMap, path::PathBuf};

use netcore::{
    control::{
        channel::PROTOCOLS,
        message::{
            Connect, ErrorCode, Execute, Executed, Greeting, Hello, Limits, Look, Part, Peer, Prepare, Reply,
            ReplyError, Request, Seen,
        },
    },
    end::Endpoints,
    measure::host::{CpuSharesOf, HostFacts, WallClock},
    mpi::{Family as Library, Place, RankFacts},
    report::{
        ClockReading, CounterChange, CounterWindow, CpuShare, CpuUse, DatagramPhase, Ending, Evidence, FlowWindow,
        Granted, Latencies, LossRuns, NasResult, NicFacts, Pacing, Phase, QuicInfo, RankReport, RankTraffic, Report,
        SideReport, Span, Spinning, TcpInfo, TcpLimits, ThreadUse, TimeWait, TlsInfo, Window, WireFacts,
    },
    spec::{
        Arrival, Close, Cpus, Direction, Family, Io, Pace, PaceMode, Pattern, Payload, Receive, Role, Side, Stop,
        TestSpec, Transport,
        ranks::{Class, Kernel, Operation, RanksSpec, Work},
    },
};
use serde_json::{Value, json};

fn window() -> Window {
    let flow = FlowWindow {
        flow: 0,
        role: Role::Sender,
        counts: netcore::report::Counts { completions: 1, copied: 1, ..netcore::report::Counts::default() },
        latencies: vec![Latencies { kind: "round_trip".into(), histogram: String::new() }],
        tcp_at_start: Some(TcpInfo { timestamps: Some(true), ..TcpInfo::default() }),
        tcp_info: Some(TcpInfo { limits: Some(TcpLimits::default()), ..TcpInfo::default() }),
        retransmits: Some(0),
        quic: Some(QuicInfo::default()),
        tls: Some(TlsInfo::default()),
        datagrams: Some(DatagramPhase { before: 1, runs: Some(LossRuns::default()), ..DatagramPhase::default() }),
        jitter_ns: Some(0),
        pacing: Some(Pacing::default()),
    };
    let cpu = CpuUse {
        per_cpu: vec![(0, 0.0)],
        process_cpus: Some(0.0),
        throttled: Some(0.0),
        quota_cpus: Some(0.5),
        ..CpuUse::default()
    };
    let evidence = Evidence {
        machine: Some(0),
        thread: Some(ThreadUse {
            waiting: Some(0.0),
            cpu_busy: Some(0.0),
            cpu_softirq: Some(0.0),
            ..ThreadUse::default()
        }),
        softirq_peak: Some(CpuShare::default()),
        missing: vec![String::new()],
        ..Evidence::default()
    };
    Window {
        phase: Phase::Measure,
        start_ns: 0,
        elapsed_ns: 1,
        wall_end_ns: 0,
        flows: vec![flow],
        cpu: Some(cpu),
        evidence: Some(evidence),
    }
}

fn report() -> SideReport {
    let change = CounterChange { source: "snmp".into(), key: "Tcp.InSegs".into(), before: 0, after: 1 };
    SideReport {
        library: Some("MPI".into()),
        phases: vec![window()],
        intervals: vec![window()],
        totals: window().flows,
        options: vec![Granted { flow: 0, option: "send_buffer".into(), requested: None, at_start: None, at_end: None }],
        nic: Some(NicFacts {
            offloads: BTreeMap::from([("tso".into(), true)]),
            wire: Some(WireFacts::default()),
            ..NicFacts::default()
        }),
        ipv6: Some(false),
        counters: vec![CounterWindow {
            span: Span::Measure,
            start_ns: 0,
            elapsed_ns: 1,
            wall_end_ns: 0,
            values: vec![change],
        }],
        clocks: Some((ClockReading::default(), ClockReading::default())),
        time_wait: Some(TimeWait::default()),
        spinning: Some(Spinning { cpu: Some(0), ..Spinning::default() }),
        ..SideReport::empty(Side::Near, Ending::Complete)
    }
}

fn rank_report() -> RankReport {
    RankReport {
        library: Some("MPI".into()),
        instants: vec![(0, 1)],
        traffic: Some(RankTraffic::default()),
        nas: Some(NasResult { mops_per_s: 0.5, timed_ns: 1, checks: 1, passed: 1 }),
        nic: Some(NicFacts::default()),
        ..RankReport::empty(0, Ending::Complete)
    }
}

fn spec() -> TestSpec {
    let pace = Pace { events_per_s: 1.0, mode: PaceMode::User, arrival: Arrival::Uniform, burst: 1, catch_up: 1 };
    TestSpec { pace: Some(pace), ..TestSpec::new(Pattern::Stream, Transport::Tcp) }
}

fn rank() -> RankFacts {
    RankFacts {
        world: 1,
        rank: 0,
        size: 2,
        family: Library::OpenMpi,
        library: String::new(),
        file: String::new(),
        threads: String::new(),
        processor: String::new(),
        settings: BTreeMap::from([("UCX_TLS".to_owned(), String::new())]),
    }
}

/// Every message with every field, and every word of the enumerations in them.
fn words() -> Value {
    let wall_clock = WallClock {
        synchronised: true,
        max_error_ns: 1,
        estimated_error_ns: 1,
        frequency_ppb: 1,
        tai_offset_s: Some(37),
    };
    let hello = || {
        Box::new(Hello {
            tool_version: "0".into(),
            process: 1,
            limits: Some(Limits { queue_ns: Some(1), ..Limits::default() }),
            host: HostFacts { wall_clock: Some(wall_clock), ..HostFacts::default() },
            mpi: Some(rank()),
        })
    };
    let address = "192.0.2.1".parse().unwrap();
    let mpi = Some(Place { world: 1, rank: 1, tag: 2 });
    let endpoints = Endpoints {
        address: Some(address),
        ports: vec![1],
        at_control: true,
        cid: Some(1),
        mac: Some([0; 6]),
        certificate: Some([0; 32]),
        mpi,
    };
    let operation = Work::Operation { operation: Operation::Bcast, message_bytes: 1, compute_ns: 1 };
    let prepare = |part| Request::Prepare(Box::new(Prepare { part, token: [0; 16], data_address: Some(address) }));
    let rank = |rank, spec| Part::Rank { spec: Box::new(spec), rank, ranks: 2 };
    let requests = [
        Request::Probe,
        Request::Look(Look { towards: Some(address), free_cpus: true, transports: vec![Transport::Tcp] }),
        Request::Execute(Box::new(Execute { argv: vec![], environment: BTreeMap::new(), limit_ns: 1 })),
        Request::Turn,
        prepare(Part::End { spec: Box::new(spec()), side: Side::Far }),
        prepare(rank(0, RanksSpec { cpus: Some(Cpus(vec![0])), ..RanksSpec::new(Transport::Tcp, operation) })),
        prepare(rank(1, RanksSpec::new(Transport::Tcp, Work::Nas { kernel: Kernel::Ep, class: Class::S }))),
        Request::Connect(Connect { peers: vec![Peer { address, endpoints: endpoints.clone() }], within_ns: 1 }),
        Request::Start { t0_ns: 1 },
        Request::Measure { at_ns: 1 },
        Request::Stop { at_ns: 1 },
        Request::Abort,
    ];
    let replies = [
        Reply::Probed { arrived_ns: 1, answered: ClockReading::default() },
        Reply::Seen(Box::new(Seen { nic: None, free_cpus: Some(1), transports: vec![] })),
        Reply::Executed(Box::new(Executed::Done { stdout: String::new(), stderr: String::new(), elapsed_ns: 1 })),
        Reply::Executed(Box::new(Executed::Failed { timed_out: false, message: String::new() })),
        Reply::Waiting { place: 1 },
        Reply::Granted,
        Reply::Prepared(endpoints),
        Reply::Ready,
        Reply::Interim(Box::new(window())),
        Reply::Sent,
        Reply::Report { text: String::new(), last: true },
        Reply::Idle,
        Reply::Error(ReplyError::new(ErrorCode::Busy, "")),
    ];
    let codes = [
        ErrorCode::Busy,
        ErrorCode::Refused,
        ErrorCode::Unsupported,
        ErrorCode::Failed,
        ErrorCode::Protocol,
        ErrorCode::TimedOut,
        ErrorCode::Stopping,
    ];
    json!({
        "greetings": [Greeting::Hello(hello()), Greeting::Error(ReplyError::new(ErrorCode::Busy, ""))],
        "requests": requests,
        "replies": replies,
        "reports": [Report::End(Box::new(report())), Report::Rank(Box::new(rank_report()))],
        "codes": codes,
        "operations": Operation::ALL,
        "kernels": Kernel::ALL,
        "classes": [Class::S, Class::W, Class::A, Class::B],
        "transports": Transport::ALL,
        "patterns": [
            Pattern::Stream, Pattern::RequestResponse, Pattern::Connect, Pattern::ConnectRequestResponse, Pattern::Ping,
        ],
        "io": Io::ALL,
        "receive": [Receive::Copy, Receive::Discard],
        "directions": [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex],
        "families": [Family::Any, Family::V4, Family::V6],
        "stops": [Stop::AfterNs(1), Stop::AfterBytes(1), Stop::AfterTransactions(1)],
        "paces": [PaceMode::User, PaceMode::Kernel, PaceMode::Txtime],
        "arrivals": [Arrival::Closed, Arrival::Uniform, Arrival::Poisson],
        "closes": [Close::FarFirst, Close::NearFirst, Close::Reset],
        "payloads": [Payload::Zero, Payload::Random, Payload::File("./x".into())],
        "phases": [Phase::Warmup, Phase::Measure, Phase::Cooldown],
        "roles": [Role::Sender, Role::Receiver, Role::Duplex, Role::Requester, Role::Responder],
        "spans": [Span::Before, Span::Interval, Span::Measure, Span::After],
        "cpu_shares": [CpuSharesOf::Machine, CpuSharesOf::Container],
        "endings": [Ending::Complete, Ending::Stopped, Ending::Failed(String::new())],
    })
}

/// The newest protocol's file must not change once a version of the program with it is released.
#[test]
fn a_change_of_a_message_has_a_new_number() {
    let name = format!("tests/session/wire/protocol-{}.json", PROTOCOLS.end());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&name);
    let now = serde_json::to_string_pretty(&words()).unwrap() + "\n";
    if std::env::var_os("PLUMB_WRITE_WIRE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &now).unwrap();
    }
    let then = std::fs::read_to_string(&path).unwrap_or_default();
    let changed = then.lines().zip(now.lines()).find(|(then, now)| then != now);
    assert!(
        then == now,
        "the wire is not that of netcore/{name} any more, first at {changed:?}: raise the end of PROTOCOLS in \
         netcore/src/control/channel.rs, and write the new file with PLUMB_WRITE_WIRE=1 cargo test -p netcore --test session wire"
    );
}

/// Places of all values in a tree: the steps to each from its parent.
fn places(value: &Value, pointer: &str, found: &mut Vec<String>) {
    found.push(pointer.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{pointer}/{i}"), found));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

/// Two programs that speak one protocol mean the same by each message. A field that one of them ignored would be no error where
/// it must be one.
#[test]
fn an_unknown_field_is_an_error_in_every_message() {
    let words = words();
    let reads = |kind: &str, message: Value| match kind {
        "greetings" => serde_json::from_value::<Greeting>(message).is_ok(),
        "requests" => serde_json::from_value::<Request>(message).is_ok(),
        "replies" => serde_json::from_value::<Reply>(message).is_ok(),
        _ => serde_json::from_value::<Report>(message).is_ok(),
    };
    for kind in ["greetings", "requests", "replies", "reports"] {
        for message in words[kind].as_array().unwrap() {
            assert!(reads(kind, message.clone()), "{message}");
            let mut found = Vec::new();
            places(message, "", &mut found);
            for place in found {
                let mut changed = message.clone();
                let Some(Value::Object(fields)) = changed.pointer_mut(&place) else { continue };
                fields.insert("unknown".into(), Value::Array(Vec::new()));
                assert!(!reads(kind, changed), "{kind} {place}: an unknown field is ignored");
            }
        }
    }
}
