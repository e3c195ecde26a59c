//! A warm-up that ends early: both ends begin to measure at the same instant and send nothing more until the end.

use netcore::{
    client::{DataAddresses, Observer, Outcome},
    control::message::{Reply, Request},
    daemon::Config,
    report::{Ending, Phase, SideReport, Window},
    spec::{Pattern, Side, Stop, TestSpec, Transport},
};

use crate::common::{Raw, Served, between, never_stopped, prepare, soon, stream};

/// Reports a settled warm-up after a few intervals of each end.
#[derive(Default)]
struct Settles {
    heard: Vec<(Side, Phase)>,
    never: bool,
}

impl Observer for Settles {
    fn interval(&mut self, side: Side, window: &Window) {
        self.heard.push((side, window.phase));
    }

    fn has_settled(&mut self) -> bool {
        let of = |side| self.heard.iter().filter(|(s, _)| *s == side).count();
        !self.never && of(Side::Near) > 3 && of(Side::Far) > 3
    }
}

/// A test whose warm-up would take a minute.
fn settling(mut spec: TestSpec) -> TestSpec {
    spec.phases.warmup_ns = 60_000_000_000;
    spec.phases.settle_ns = 5_000_000;
    spec.phases.stop = Stop::AfterNs(50_000_000);
    spec.phases.cooldown_ns = 10_000_000;
    spec
}

fn phase(report: &SideReport, phase: Phase) -> u64 {
    report.phase(phase).unwrap().elapsed_ns
}

fn settled_together(outcome: &Outcome, heard: &Settles) {
    let far = outcome.far.as_ref().unwrap();
    let (near, other) = (outcome.near_start_ns.unwrap(), outcome.far_start_ns.unwrap());
    for report in [&outcome.near, far] {
        // An end that a busy machine began late is stopped when the other one is done.
        let late = near.abs_diff(other) > 1_000_000;
        assert!(report.ending == Ending::Complete || late && report.ending == Ending::Stopped, "{:?}", report.ending);
        let warmup = phase(report, Phase::Warmup);
        assert!(warmup > 0 && warmup < 50_000_000_000, "{warmup}");
        assert!(phase(report, Phase::Measure) > 0 && phase(report, Phase::Cooldown) > 0);
        assert!(report.intervals.is_empty(), "the test keeps no intervals");
    }
    // One of the ends at the bound would be most of a minute.
    assert!(near.abs_diff(other) < 5_000_000_000, "{near} and {other}");
    assert!(heard.heard.iter().all(|(_, phase)| *phase == Phase::Warmup), "intervals of the measure phase stay untold");
}

#[test]
fn both_ends_begin_to_measure_when_the_warm_up_has_settled() {
    let served = Served::new(Config::default());
    let mut session = served.connect();
    let mut datagrams = TestSpec::new(Pattern::Stream, Transport::Udp);
    datagrams.sizes.message_bytes = 1000;
    for spec in [stream(0), TestSpec::new(Pattern::RequestResponse, Transport::Tcp), datagrams] {
        let mut heard = Settles::default();
        let outcome = session.run(&settling(spec), &DataAddresses::default(), &mut heard, &never_stopped()).unwrap();
        settled_together(&outcome, &heard);
    }
}

#[test]
fn a_test_between_two_daemons_settles_too() {
    let (one, other) = (Served::new(Config::default()), Served::new(Config::default()));
    let (mut near, mut far) = (one.connect(), other.connect());
    let mut heard = Settles::default();
    let outcome = between(&mut near, &mut far, &settling(stream(0)), &DataAddresses::default())
        .unwrap()
        .start(None)
        .unwrap()
        .wait(&mut heard, &never_stopped())
        .unwrap();
    settled_together(&outcome, &heard);
}

#[test]
fn what_never_settles_is_measured_after_the_bound() {
    let served = Served::new(Config::default());
    let mut spec = settling(stream(0));
    spec.phases.warmup_ns = 100_000_000;
    let mut heard = Settles { never: true, ..Settles::default() };
    let outcome = served.connect().run(&spec, &DataAddresses::default(), &mut heard, &never_stopped()).unwrap();
    assert!(phase(&outcome.near, Phase::Warmup) >= 90_000_000);
    assert!(phase(outcome.far.as_ref().unwrap(), Phase::Measure) > 0);
    assert_eq!(outcome.near.ending, Ending::Complete);
}

#[test]
fn a_late_measure_request_changes_nothing() {
    let served = Served::new(Config::default());
    let mut raw = Raw::greeted(served.address);
    // Between tests it crossed our report on its way; the session goes on.
    raw.0.send(&Request::Measure { at_ns: 1 }, netcore::control::frame::REQUEST_BOUND, soon()).unwrap();
    let reply = raw.ask(&prepare(stream(10), [7; 16]));
    assert!(matches!(reply, Reply::Prepared(_)), "{reply:?}");
}
