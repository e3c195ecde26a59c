//! Tests that succeed.

use std::time::Duration;

use netcore::{
    client::{ClientError, DataAddresses, Observer, Outcome, Session},
    daemon::{Config, Daemon, Limits},
    measure::clock::monotonic_ns,
    report::{Ending, Phase, Window},
    spec::{Direction, Side, Stop},
};

use crate::common::{Served, between, never_stopped, stream};

fn run(session: &mut Session, spec: &netcore::spec::TestSpec) -> Outcome {
    session.run(spec, &DataAddresses::default(), &mut (), &never_stopped()).unwrap()
}

fn received(outcome: &Outcome) -> (u64, u64) {
    let sum = |report: &netcore::report::SideReport, sent: bool| {
        let counts = report.totals.iter().map(|flow| flow.counts);
        counts.map(|counts| if sent { counts.bytes_sent } else { counts.bytes_received }).sum::<u64>()
    };
    (
        sum(&outcome.near, true) + sum(outcome.far.as_ref().unwrap(), true),
        sum(&outcome.near, false) + sum(outcome.far.as_ref().unwrap(), false),
    )
}

#[test]
fn a_stream_over_tcp_gives_both_ends_the_same_bytes() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let mut spec = stream(100);
    spec.phases.warmup_ns = 20_000_000;
    let outcome = run(&mut session, &spec);
    assert_eq!((outcome.near.side, outcome.far.as_ref().unwrap().side), (Side::Near, Side::Far));
    assert_eq!((&outcome.near.ending, &outcome.far.as_ref().unwrap().ending), (&Ending::Complete, &Ending::Complete));
    let (sent, arrived) = received(&outcome);
    assert!(sent > 1_000_000 && sent == arrived, "{sent} sent, {arrived} arrived");
    let measure = |report: &netcore::report::SideReport| report.phase(Phase::Measure).unwrap().elapsed_ns;
    // A late end of the warm-up shortens the measure phase, which ends on schedule.
    assert!(measure(&outcome.near) > 0 && measure(outcome.far.as_ref().unwrap()) > 0);
    // Both ends have the same clock here, so whatever the probes say lies within their bound.
    let clock = session.peer().clock;
    assert!(clock.offset_ns.unsigned_abs() <= clock.bound_ns, "{clock:?}");
    assert!(outcome.start_skew_ns.is_some() && outcome.clock_bound_ns > 0, "{outcome:?}");
    assert!(outcome.near_start_ns.unwrap() >= outcome.t0_ns + 20_000_000);
}

#[test]
fn a_session_runs_many_tests_and_facts_are_exchanged() {
    let embedded = Daemon::spawn_embedded(None).unwrap();
    let mut session = Session::connect(&embedded.target("embedded")).unwrap();
    let facts = session.peer();
    assert_eq!(facts.tool_version, env!("CARGO_PKG_VERSION"));
    assert!(facts.host.kernel_release.is_some());
    for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
        let mut spec = stream(20);
        spec.direction = direction;
        spec.streams = 2;
        // A busy machine may send nothing in a time.
        spec.phases.stop = Stop::AfterBytes(1 << 20);
        let (sent, arrived) = received(&run(&mut session, &spec));
        assert!(sent > 0 && sent == arrived, "{direction:?}: {sent} sent, {arrived} arrived");
    }
}

#[test]
fn a_test_that_stops_by_bytes_ends_by_itself() {
    let served = Served::new(Config::default());
    let mut spec = stream(0);
    spec.phases.stop = Stop::AfterBytes(3_000_000);
    let outcome = run(&mut served.connect(), &spec);
    assert_eq!(received(&outcome), (3_000_000, 3_000_000));
    assert_eq!((&outcome.near.ending, &outcome.far.as_ref().unwrap().ending), (&Ending::Complete, &Ending::Complete));
}

#[derive(Default)]
struct Heard(Vec<(Side, Window)>);

impl Observer for Heard {
    fn interval(&mut self, side: Side, window: &Window) {
        self.0.push((side, window.clone()));
    }
}

#[test]
fn intervals_travel_only_when_they_are_asked_for() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    for interim in [false, true] {
        let mut spec = stream(120);
        spec.phases.interval_ns = 30_000_000;
        spec.interim = interim;
        let mut heard = Heard::default();
        let outcome = session.run(&spec, &DataAddresses::default(), &mut heard, &never_stopped()).unwrap();
        let of = |side| heard.0.iter().filter(move |(from, _)| *from == side).map(|(_, window)| window.start_ns);
        let near: Vec<i64> = of(Side::Near).collect();
        assert_eq!(near, outcome.near.intervals.iter().map(|window| window.start_ns).collect::<Vec<_>>());
        let far: Vec<i64> = of(Side::Far).collect();
        let reported: Vec<i64> = outcome.far.as_ref().unwrap().intervals.iter().map(|window| window.start_ns).collect();
        assert!(reported.len() >= 2, "{reported:?}");
        assert_eq!(far, if interim { reported } else { Vec::new() });
    }
}

#[test]
fn a_stop_ends_both_ends_early_and_whole() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let stop = never_stopped();
    let prepared = session.prepare(&stream(60_000), &DataAddresses::default()).unwrap();
    let running = prepared.start(None).unwrap();
    let flag = stop.clone();
    let asker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        flag.request();
    });
    let outcome = running.wait(&mut (), &stop).unwrap();
    asker.join().unwrap();
    assert_eq!((&outcome.near.ending, &outcome.far.as_ref().unwrap().ending), (&Ending::Stopped, &Ending::Stopped));
    let (sent, arrived) = received(&outcome);
    assert!(sent > 0 && sent == arrived);
    let end = |report: &netcore::report::SideReport| {
        let measure = report.phase(Phase::Measure).unwrap();
        report.monotonic_start_ns + measure.elapsed_ns
    };
    let apart = end(&outcome.near).abs_diff(end(outcome.far.as_ref().unwrap()));
    assert!(apart < 5_000_000_000, "the ends stopped {apart} ns apart");
    // The session goes on.
    run(&mut session, &stream(10));
}

#[test]
fn a_second_stop_ends_everything_at_once() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let stop = never_stopped();
    stop.request();
    stop.request();
    let running = session.prepare(&stream(60_000), &DataAddresses::default()).unwrap().start(None).unwrap();
    assert!(matches!(running.wait(&mut (), &stop), Err(ClientError::Interrupted)));
    run(&mut session, &stream(10));
}

#[test]
fn several_tests_start_at_one_instant() {
    let served = Served::new(Config::default());
    let mut sessions: Vec<Session> = (0..4).map(|_| served.connect()).collect();
    let mut spec = stream(0);
    spec.phases.stop = Stop::AfterBytes(10_000_000);
    let prepared: Vec<_> =
        sessions.iter_mut().map(|session| session.prepare(&spec, &DataAddresses::default()).unwrap()).collect();
    let lead = prepared.iter().map(netcore::client::Prepared::lead).max().unwrap();
    let t0_ns = monotonic_ns() + u64::try_from((lead * 4).as_nanos()).unwrap();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = prepared
            .into_iter()
            .map(|prepared| scope.spawn(move || prepared.start(Some(t0_ns))?.wait(&mut (), &never_stopped())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    for outcome in &outcomes {
        assert_eq!(outcome.t0_ns, t0_ns);
        assert!(outcome.near_start_ns.unwrap() >= t0_ns);
        // The window begins on schedule. The sender starts a little later, which is reported; the receiver is there.
        assert!(outcome.near_loaded_ns.unwrap() > outcome.t0_ns);
        assert_eq!(outcome.far_loaded_ns, outcome.far_start_ns);
        let (sent, arrived) = received(outcome);
        assert!(sent > 0 && sent == arrived);
    }
}

#[test]
fn a_prepared_test_that_is_dropped_is_forgotten() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    drop(session.prepare(&stream(100), &DataAddresses::default()).unwrap());
    drop(session.prepare(&stream(60_000), &DataAddresses::default()).unwrap().start(None).unwrap());
    run(&mut session, &stream(10));
}

#[test]
fn a_client_runs_a_test_between_two_daemons() {
    let (one, other) = (Served::new(Config::default()), Served::new(Config::default()));
    let (mut near, mut far) = (one.connect(), other.connect());
    let mut spec = stream(1000);
    spec.phases.interval_ns = 20_000_000;
    spec.interim = true;
    let mut heard = Heard::default();
    let outcome = between(&mut near, &mut far, &spec, &DataAddresses::default())
        .unwrap()
        .start(None)
        .unwrap()
        .wait(&mut heard, &never_stopped())
        .unwrap();
    assert_eq!((outcome.near.side, outcome.far.as_ref().unwrap().side), (Side::Near, Side::Far));
    let (sent, arrived) = received(&outcome);
    assert!(sent > 0 && sent == arrived);
    assert!(heard.0.iter().any(|(side, _)| *side == Side::Near));
    assert!(heard.0.iter().any(|(side, _)| *side == Side::Far));
    assert!(outcome.start_skew_ns.is_some());
}

#[test]
fn a_near_daemon_connects_nowhere_else() {
    let (one, other) = (Served::new(Config::default()), Served::new(Config::default()));
    let mut near = one.connect();
    let mut target = other.target();
    // The far end waits for connections that will never come.
    target.timeouts.ready = Duration::from_millis(300);
    let mut far = Session::connect(&target).unwrap();
    let elsewhere = DataAddresses { far: Some("127.0.0.7".parse().unwrap()), ..DataAddresses::default() };
    let error = between(&mut near, &mut far, &stream(10), &elsewhere).err().unwrap().to_string();
    assert!(error.contains("--allow-connect 127.0.0.7"), "{error}");
    // With permission it does, and both sessions are usable as before.
    let allowed =
        Served::new(Config { allow_connect: vec!["127.0.0.0/8".parse().unwrap()].into(), ..Config::default() });
    let mut near = allowed.connect();
    let prepared = between(&mut near, &mut far, &stream(10), &elsewhere).unwrap();
    prepared.start(None).unwrap().wait(&mut (), &never_stopped()).unwrap();
}

#[test]
fn a_test_that_is_refused_leaves_the_session_usable() {
    let served = Served::new(Config { limits: Limits { flows: 2, ..Limits::default() }, ..Config::default() });
    let mut session = served.connect();
    assert_eq!(session.peer().limits.flows, 2);
    let mut spec = stream(10);
    spec.streams = 3;
    let error = session.prepare(&spec, &DataAddresses::default()).err().unwrap();
    let sentence = error.to_string();
    assert!(matches!(error, ClientError::Daemon { .. }), "{sentence}");
    assert!(sentence.starts_with("host `server` (127.0.0.1:") && sentence.contains("3 flows"), "{sentence}");
    spec.streams = 2;
    run(&mut session, &spec);
}

#[test]
fn the_data_may_go_another_way_than_the_conversation() {
    let served = Served::new(Config::default());
    let addresses = DataAddresses {
        near: Some("127.0.0.3".parse().unwrap()),
        far: Some("127.0.0.4".parse().unwrap()),
        near_netns: None,
    };
    let mut spec = stream(20);
    spec.phases.stop = Stop::AfterBytes(1 << 20);
    let outcome = served.connect().run(&spec, &addresses, &mut (), &never_stopped()).unwrap();
    let (sent, arrived) = received(&outcome);
    assert!(sent >= 1 << 20 && sent == arrived, "{sent} sent, {arrived} arrived");
}

#[test]
fn an_end_before_the_start_is_an_end() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let later = || monotonic_ns() + 30_000_000_000;
    let prepared = session.prepare(&stream(100), &DataAddresses::default()).unwrap();
    drop(prepared.start(Some(later())).unwrap());
    let stop = never_stopped();
    stop.request();
    let prepared = session.prepare(&stream(100), &DataAddresses::default()).unwrap();
    let outcome = prepared.start(Some(later())).unwrap().wait(&mut (), &stop).unwrap();
    let (sent, arrived) = received(&outcome);
    assert_eq!(sent, arrived);
    run(&mut session, &stream(10));
}
