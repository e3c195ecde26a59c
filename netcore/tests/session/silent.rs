//! Daemons that hang, vanish or lie at each step: the client reports it by its deadline and never hangs itself.

use std::{
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use netcore::{
    client::{self, ClientError, DataAddresses, RankSession, Session, Target, Timeouts},
    control::{
        channel::{Channel, PROGRESS},
        frame::{GREETING_BOUND, REPLY_BOUND},
        message::{ErrorCode, Greeting, Hello, Limits, Part as TestPart, Reply, ReplyError, Request, report_pieces},
    },
    end::{End, Endpoints},
    measure::{
        clock::{monotonic_ns, reading},
        host::HostFacts,
    },
    report::{Ending, RankReport, Report},
    spec::{
        Side, Stop, Transport,
        ranks::{Operation, RanksSpec, Work},
    },
};

use crate::common::{never_stopped, soon, stream};

/// The last step that a daemon takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Nothing,
    Preamble,
    Hello,
    Probes,
    /// It is exclusive, and never grants a turn.
    Waiting,
    Prepared,
    Ready,
    Everything,
}

/// Its behaviour after that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Hangs,
    Vanishes,
    Floods,
    /// Tells of intervals without end.
    FloodsIntervals,
    /// Sends a report without end.
    FloodsReport,
    /// Sends a long report in small pieces, for longer than the client's patience with silence.
    ReportsSlowly,
    /// Says why it failed when it is asked to forget the test.
    Explains,
}

fn play(part: Part, then: Then, endpoints: Option<Endpoints>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let held = stream.try_clone().unwrap();
        let kept = act(stream, part, endpoints.as_ref());
        if then == Then::Hangs {
            // Longer than the test: the process does not wait for this thread.
            thread::sleep(Duration::from_hours(1));
        }
        match (then, kept) {
            (Then::Floods, Some((mut channel, _))) => while channel.send(&Reply::Sent, REPLY_BOUND, soon()).is_ok() {},
            (Then::FloodsIntervals, Some((mut channel, _))) => {
                let window = r#"{"phase":"measure","start_ns":0,"elapsed_ns":1,"wall_end_ns":0,"flows":[],"cpu":null}"#;
                let interim = Reply::Interim(serde_json::from_str(window).unwrap());
                while channel.send(&interim, REPLY_BOUND, soon()).is_ok() {}
            }
            (Then::FloodsReport, Some((mut channel, _))) => {
                let piece = Reply::Report { text: " ".repeat(PROGRESS), last: false };
                while channel.send(&piece, REPLY_BOUND, soon()).is_ok() {}
            }
            (Then::Explains, Some((mut channel, _))) => {
                assert!(matches!(channel.recv(soon()), Ok(Request::Abort)));
                let why = ReplyError::new(ErrorCode::Failed, "all files are open");
                channel.send(&Reply::Error(why), REPLY_BOUND, soon()).unwrap();
            }
            (Then::ReportsSlowly, Some((mut channel, _))) => {
                for piece in 0..16 {
                    thread::sleep(Duration::from_millis(250));
                    let text = if piece < 15 { " ".repeat(100_000) } else { "none".to_owned() };
                    let _ = channel.send(&Reply::Report { text, last: piece == 15 }, REPLY_BOUND, soon());
                }
                thread::sleep(Duration::from_secs(5));
            }
            _ => {}
        }
        drop(held);
    });
    address
}

/// Acts up to the last step; the caller keeps the returned values open.
fn act(stream: std::net::TcpStream, part: Part, lie: Option<&Endpoints>) -> Option<(Channel, Option<End>)> {
    if part == Part::Nothing {
        return None;
    }
    let mut channel = Channel::accept(stream, None, soon()).ok()?;
    let mut end = None;
    if part == Part::Preamble {
        return Some((channel, end));
    }
    let _: Hello = channel.recv(soon()).ok()?;
    let limits = Limits { queue_ns: (part == Part::Waiting).then_some(50_000_000), ..Limits::default() };
    let hello =
        Hello { tool_version: "0".into(), process: 0, limits: Some(limits), host: HostFacts::default(), mpi: None };
    channel.send(&Greeting::Hello(Box::new(hello)), GREETING_BOUND, soon()).ok()?;
    channel.set_bound(REPLY_BOUND);
    loop {
        let reply = match channel.recv::<Request>(soon()).ok()? {
            Request::Probe if part >= Part::Probes => Reply::Probed { arrived_ns: monotonic_ns(), answered: reading() },
            Request::Turn => Reply::Waiting { place: 1 },
            Request::Prepare(prepare) if part >= Part::Prepared => {
                let TestPart::End { spec, .. } = prepare.part else { return None };
                let far = End::prepare(&spec, Side::Far, Some("127.0.0.1".parse().unwrap()), prepare.token).ok()?;
                let endpoints = lie.cloned().unwrap_or_else(|| far.endpoints());
                end = Some(far);
                Reply::Prepared(endpoints)
            }
            Request::Connect(_) if part >= Part::Ready => {
                end.as_mut()?.connect(None, Duration::from_secs(10)).ok()?;
                Reply::Ready
            }
            Request::Start { .. } if part == Part::Everything => {
                Reply::Report { text: "{\"end\":{\"side\":\"far\"}}".into(), last: true }
            }
            _ => return Some((channel, end)),
        };
        channel.send(&reply, REPLY_BOUND, soon()).ok()?;
    }
}

/// A daemon that has a rank of a test, and makes this report of it.
fn rank(report: RankReport) -> SocketAddr {
    let pieces: Vec<Reply> = report_pieces(&Report::Rank(Box::new(report))).unwrap().collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || -> Option<()> {
        let mut channel = Channel::accept(listener.accept().unwrap().0, None, soon()).ok()?;
        let _: Hello = channel.recv(soon()).ok()?;
        let hello = Hello { tool_version: "0".into(), process: 0, limits: None, host: HostFacts::default(), mpi: None };
        channel.send(&Greeting::Hello(Box::new(hello)), GREETING_BOUND, soon()).ok()?;
        channel.set_bound(REPLY_BOUND);
        loop {
            let reply = match channel.recv::<Request>(soon()).ok()? {
                Request::Probe => Reply::Probed { arrived_ns: monotonic_ns(), answered: reading() },
                Request::Prepare(_) => Reply::Prepared(Endpoints::default()),
                Request::Connect(_) => Reply::Ready,
                Request::Start { .. } => {
                    pieces.iter().try_for_each(|piece| channel.send(piece, REPLY_BOUND, soon())).ok()?;
                    continue;
                }
                Request::Abort => Reply::Idle,
                _ => return None,
            };
            channel.send(&reply, REPLY_BOUND, soon()).ok()?;
        }
    });
    address
}

/// A test of two ranks, both at such daemons.
fn run_ranks(reports: [RankReport; 2]) -> Result<Vec<RankReport>, ClientError> {
    let mut sessions = reports.map(|report| Session::connect(&impatient(rank(report))).unwrap());
    let work = Work::Operation { operation: Operation::Barrier, message_bytes: 0, compute_ns: 0 };
    let spec = RanksSpec { stop: Stop::AfterNs(50_000_000), ..RanksSpec::new(Transport::Tcp, work) };
    let seats = sessions.iter_mut().map(|session| RankSession { session, address: None }).collect();
    let running = client::prepare_ranks(seats, &spec, impatient(([127, 0, 0, 1], 1).into()).timeouts)?.start(None)?;
    Ok(running.wait_ranks(&mut (), &never_stopped())?.reports)
}

fn impatient(address: SocketAddr) -> Target {
    // Short for a test that waits for it, and long enough for a busy machine to answer.
    let brief = Duration::from_secs(2);
    let timeouts = Timeouts { connect: brief, reply: brief, ready: brief, grace: brief, counted: brief, turn: brief };
    Target { timeouts, ..Target::new("server", address.to_string()) }
}

fn run(address: SocketAddr) -> ClientError {
    let error = Session::connect(&impatient(address)).and_then(|mut session| {
        session.run(&stream(50), &DataAddresses::default(), &mut (), &never_stopped()).map(|_| session)
    });
    error.err().unwrap()
}

#[test]
fn a_daemon_that_hangs_at_any_step_is_given_up() {
    let given_up = |part| {
        let error = run(play(part, Then::Hangs, None));
        let sentence = error.to_string();
        assert!(sentence.contains("server"), "{part:?}: {sentence}");
        let expected = if part == Part::Ready { "no data from" } else { "no answer came within" };
        assert!(sentence.contains(expected), "{part:?}: {sentence}");
    };
    thread::scope(|scope| {
        for part in [Part::Nothing, Part::Preamble, Part::Hello, Part::Probes, Part::Prepared, Part::Ready] {
            scope.spawn(move || given_up(part));
        }
    });
}

#[test]
fn a_daemon_that_floods_does_not_outlast_the_deadline() {
    let sentence = run(play(Part::Ready, Then::Floods, None)).to_string();
    assert!(sentence.contains("no data from"), "{sentence}");
}

#[test]
fn a_daemon_that_floods_does_not_keep_its_next_test() {
    let mut session = Session::connect(&impatient(play(Part::Ready, Then::Floods, None))).unwrap();
    let mut run = || session.run(&stream(50), &DataAddresses::default(), &mut (), &never_stopped()).unwrap_err();
    assert!(matches!(run(), ClientError::Silent { .. }));
    let sentence = run().to_string();
    assert!(sentence.contains("told to forget its test"), "{sentence}");
}

#[test]
fn floods_of_intervals_and_reports_end_at_what_the_test_has_room_for() {
    for (then, words) in [
        (Then::FloodsIntervals, "more intervals than its test has"),
        (Then::FloodsReport, "bytes that its test has room for"),
    ] {
        let sentence = run(play(Part::Ready, then, None)).to_string();
        assert!(sentence.contains(words), "{sentence}");
    }
}

#[test]
fn a_daemon_that_gives_no_turn_is_given_up() {
    let error = run(play(Part::Waiting, Then::Hangs, None)).to_string();
    assert!(error.contains("asked for a turn"), "{error}");
}

#[test]
fn a_long_report_has_time_while_it_arrives() {
    // The pieces take four seconds, twice the time for silence. Together they are not a report.
    let error = run(play(Part::Ready, Then::ReportsSlowly, None));
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
}

#[test]
fn a_daemon_that_vanishes_at_any_step_is_named() {
    for part in [Part::Nothing, Part::Preamble, Part::Hello, Part::Probes, Part::Prepared, Part::Ready] {
        let sentence = run(play(part, Then::Vanishes, None)).to_string();
        assert!(sentence.contains("host `server` (127.0.0.1:"), "{part:?}: {sentence}");
        assert!(sentence.contains("closed"), "{part:?}: {sentence}");
    }
}

#[test]
fn a_daemon_that_failed_first_is_asked_for_its_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoints = Endpoints { ports: vec![closed], ..Endpoints::default() };
    let sentence = run(play(Part::Prepared, Then::Explains, Some(endpoints))).to_string();
    assert!(sentence.contains("all files are open"), "{sentence}");
}

#[test]
fn an_invalid_report_is_an_error() {
    let error = run(play(Part::Everything, Then::Hangs, None));
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
}

#[test]
fn the_report_of_a_rank_is_bounded_while_it_is_read() {
    let failed = |rank, sentence: String| RankReport::empty(rank, Ending::Failed(sentence));
    let many = |notes: usize| RankReport { notes: vec!["note".into(); notes], ..failed(1, "no".into()) };
    let one = |report| run_ranks([failed(0, "no".into()), report]);
    for (report, words) in [
        (failed(1, "x".repeat(30 << 20)), "bytes that its test has room for"),
        (many(1_000_000), "bytes that its test has room for"),
        (many(100_000), "a list has more than 64 elements"),
        (RankReport { instants: vec![(0, 1); 100_000], ..many(1) }, "a list has more than 4096 elements"),
    ] {
        let sentence = one(report).unwrap_err().to_string();
        assert!(sentence.contains(words) && sentence.len() < 1000, "{sentence}");
    }
    // What fits is cut.
    let reports = one(failed(1, "x".repeat(1 << 20))).unwrap();
    let Ending::Failed(said) = &reports[1].ending else { panic!() };
    assert_eq!(said.chars().count(), 4097);
}

#[test]
fn a_rank_reports_for_itself() {
    let failed = |rank| RankReport::empty(rank, Ending::Failed("no".into()));
    let sentence = run_ranks([failed(1), failed(1)]).unwrap_err().to_string();
    assert!(sentence.contains("another rank"), "{sentence}");
}

#[test]
fn a_client_is_not_sent_elsewhere() {
    let elsewhere = Endpoints { address: Some("192.0.2.1".parse().unwrap()), ports: vec![80], ..Endpoints::default() };
    let error = run(play(Part::Everything, Then::Hangs, Some(elsewhere)));
    assert!(matches!(error, ClientError::Elsewhere { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[test]
fn another_version_and_another_program_are_named() {
    for (words, expected) in [(&b"plumb\0\x01\0"[..], "protocol 1,"), (b"SSH-2.0-OpenSSH\r\n", "no Plumbline")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, words).unwrap();
            stream
        });
        let sentence = Session::connect(&impatient(address)).unwrap_err().to_string();
        assert!(sentence.contains(expected) && sentence.contains("server"), "{sentence}");
        drop(server.join().unwrap());
    }
}

#[test]
fn an_unreachable_host_is_named() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sentence = Session::connect(&impatient(address)).unwrap_err().to_string();
    assert!(sentence.contains("cannot be reached") && sentence.contains("refused"), "{sentence}");
    let sentence = Session::connect(&Target::new("lab", "no-such-host.invalid")).unwrap_err().to_string();
    assert!(sentence.contains("host `lab` (no-such-host.invalid) was not found"), "{sentence}");
}
