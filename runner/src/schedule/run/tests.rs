use std::time::Duration;

use netcore::{
    report::{Counts, Ending, Evidence, FlowWindow, Phase, TcpInfo, ThreadUse},
    spec::{Direction, Pattern, Role, Side, TestSpec},
};
use schemas::words::Status;

use super::*;
use crate::{
    plan::{
        case::{Group, Member, StopWhen},
        job::Job,
        model::Window,
    },
    progress::Mode,
    schedule::{
        Measured,
        fake::{FakeBench, Rows, flow, outcome, pair, report, spec, step, stream, window},
        history::Done,
    },
};

const PLAIN: Settings = Settings { order: Order::Interleave, seed: 0, fail_fast: false, retries: 0 };

fn go(steps: &[Step], settings: Settings, bench: &mut FakeBench) -> (Vec<Finished>, Rows) {
    let mut rows = Rows::default();
    let mut progress = Progress::new(Mode::Silent);
    let finished =
        run(steps, settings, &History::new(), bench, &mut rows, &mut progress, &Interrupts::uncaught().unwrap())
            .unwrap();
    (finished, rows)
}

fn fault(message: &str) -> Result<Measured, MeasureError> {
    Err(MeasureError::failed(message))
}

#[test]
fn iterations_are_interleaved_unless_the_plan_says_otherwise() {
    let steps = [step("a", 2, 2, None), step("b", 2, 2, None)];
    let mut bench = FakeBench::default();
    go(&steps, PLAIN, &mut bench);
    assert_eq!(bench.asked, ["a", "b", "a", "b"]);
    let mut bench = FakeBench::default();
    go(&steps, Settings { order: Order::Sequential, ..PLAIN }, &mut bench);
    assert_eq!(bench.asked, ["a", "a", "b", "b"]);
}

#[test]
fn a_case_runs_until_it_is_confident() {
    let mut bench = FakeBench::default();
    bench.results.extend([1000, 2000, 1500, 1500, 1500, 1500].map(|b| Ok(stream(b))));
    let (finished, rows) = go(&[step("a", 2, 30, Some(0.2))], PLAIN, &mut bench);
    let summary = rows.0.last().unwrap();
    assert_eq!(summary.record.as_deref(), Some("summary"));
    assert_eq!(summary.confident, Some(true));
    assert!(summary.margin_ratio.unwrap() <= 0.2);
    assert!(finished[0].done > 3 && finished[0].done < 30, "{}", finished[0].done);
    assert_eq!(summary.iterations, Some(finished[0].done.into()));
}

/// One whose plan asks for a margin has a warning of its own.
#[test]
fn a_wide_interval_has_a_reason_where_others_had_the_cpus() {
    let measured = |bytes: u64, waiting: f64| {
        let mut measured = stream(bytes);
        let thread = ThreadUse { threads: 1, busy: 0.4, waiting: Some(waiting), ..ThreadUse::default() };
        measured.members[0].near.phases[0].evidence = Some(Evidence { thread: Some(thread), ..Evidence::default() });
        Ok(measured)
    };
    let why = |values: [u64; 3], waiting: f64, margin: Option<f64>| {
        let mut bench = FakeBench::default();
        bench.results.extend(values.map(|bytes| measured(bytes, waiting)));
        let mut step = step("a", 3, 3, margin);
        step.identities[0].workload = Some("tcp_stream".into());
        let (finished, _) = go(&[step], PLAIN, &mut bench);
        finished[0].unsteady.clone()
    };
    let said = why([1000, 2000, 3000], 0.5, None).unwrap();
    assert!(said.ends_with("waited 50 % of the time for a CPU"), "{said}");
    assert_eq!(why([1000, 1001, 1002], 0.5, None), None, "the interval is narrow");
    assert_eq!(why([1000, 2000, 3000], 0.0, None), None, "nobody had its CPU");
    assert_eq!(why([1000, 2000, 3000], 0.5, Some(0.05)), None, "it has a warning");
}

/// TCP's timeout is no queue.
#[test]
fn round_trips_under_load_that_were_sent_again_are_told() {
    let second = 1_000_000_000;
    let said = |again: u64| {
        let end = |side, role| {
            let counts = Counts { transactions: 500, ..Counts::default() };
            let flow = FlowWindow { counts, retransmits: Some(again), ..flow(0, role, 0, 0) };
            report(side, vec![window(Phase::Measure, second, vec![flow])])
        };
        let one = || outcome(end(Side::Near, Role::Requester), end(Side::Far, Role::Responder), second);
        let mut bench = FakeBench::default();
        bench.results.push_back(Ok(Measured { members: vec![one(), one()], ..Measured::default() }));
        let mut step = step("a", 1, 1, None);
        let spec = TestSpec { pattern: Pattern::RequestResponse, ..spec(Direction::Forward) };
        let job = Job::Traffic(Box::new(spec));
        let idle = Member { name: "idle".into(), job, ..step.case.members[0].clone() };
        step.case.members = vec![idle.clone(), Member { name: "probe".into(), idle: Some("idle".into()), ..idle }];
        step.identities = vec![step.identities[0].clone(); 2];
        go(&[step], PLAIN, &mut bench).1.1
    };
    let again = "case a: of 500 round trips under load over TCP, 6 segments were sent again: what was lost waited for TCP's timeout";
    let told = said(3);
    assert!(told.len() == 1 && told[0].starts_with(again), "of both ends, and not of the idle path: {told:?}");
    assert!(said(0).is_empty());
}

#[test]
fn a_failed_case_is_a_row_and_the_run_goes_on() {
    let mut bench = FakeBench::default();
    bench.results.extend([Ok(stream(1)), fault("no route"), Ok(stream(1))]);
    let (finished, rows) = go(&[step("a", 2, 2, None), step("b", 2, 2, None)], PLAIN, &mut bench);
    assert_eq!(rows.of("a"), ["iteration ok 1", "iteration ok 2", "summary ok"]);
    assert_eq!(rows.of("b"), ["iteration failed 1", "summary failed"]);
    assert_eq!(finished[1].failed.as_ref().unwrap().message, "no route");
    assert!(rows.0.iter().filter(|r| r.status == Some(Status::Failed)).all(|r| r.error.is_some()));
}

#[test]
fn a_host_that_is_gone_is_told_once() {
    let mut bench = FakeBench::default();
    bench.results.extend([fault("host `b`: no daemon"), fault("host `c`: no daemon"), fault("host `b`: no daemon")]);
    let steps = ["a", "b", "c"].map(|name| step(name, 1, 1, None));
    let mut rows = Rows::default();
    let mut progress = Progress::new(Mode::Silent);
    let stop = Interrupts::uncaught().unwrap();
    run(&steps, PLAIN, &History::new(), &mut bench, &mut rows, &mut progress, &stop).unwrap();
    let first = "case a, iteration 1: host `b`: no daemon";
    assert_eq!(
        rows.1,
        [&format!("{first} (and 1 more case in the same words)"), "case b, iteration 1: host `c`: no daemon"]
    );
    assert!(
        progress.has_said(first) && progress.has_said(&rows.1[0]) && progress.has_said(&rows.1[1]),
        "also with its number"
    );
    assert!(!progress.has_said("case c, iteration 1: host `b`: no daemon"));
}

#[test]
fn iterations_before_a_fault_are_still_summed_up() {
    let mut bench = FakeBench::default();
    bench.results.extend([Ok(stream(1000)), fault("pulled cable")]);
    let (_, rows) = go(&[step("a", 5, 5, None)], PLAIN, &mut bench);
    assert_eq!(rows.of("a"), ["iteration ok 1", "iteration failed 2", "summary failed"]);
    assert_eq!(rows.0.last().unwrap().throughput_bits_per_s, Some(8000.0));
}

#[test]
fn fail_fast_skips_the_rest_visibly() {
    let mut bench = FakeBench::default();
    bench.results.push_back(fault("x"));
    let settings = Settings { fail_fast: true, ..PLAIN };
    let (finished, rows) = go(&[step("a", 1, 1, None), step("b", 1, 1, None)], settings, &mut bench);
    assert_eq!(rows.of("b"), ["summary skipped"]);
    assert!(finished[1].skipped.as_ref().unwrap().contains("a failed"));
}

#[test]
fn retries_stay_in_the_data_as_discarded_rows() {
    let mut bench = FakeBench::default();
    bench.results.extend([fault("once"), Ok(stream(1))]);
    let (finished, rows) = go(&[step("a", 1, 1, None)], Settings { retries: 1, ..PLAIN }, &mut bench);
    assert_eq!(rows.of("a"), ["iteration discarded 1", "iteration ok 1", "summary ok"]);
    assert!(finished[0].failed.is_none());
}

#[test]
fn an_end_that_failed_gives_no_result_even_if_it_counted() {
    let mut spoiled = stream(1000);
    spoiled.members[0].far.as_mut().unwrap().ending = Ending::Failed("the payload differs at byte 7".into());
    let mut bench = FakeBench::default();
    bench.results.push_back(Ok(spoiled));
    let (_, rows) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
    assert_eq!(rows.of("a"), ["iteration failed 1", "summary failed"]);
}

#[test]
fn where_both_ends_failed_both_say_why() {
    let mut spoiled = stream(1000);
    spoiled.members[0].near.ending = Ending::Failed("the peer closed".into());
    spoiled.members[0].far.as_mut().unwrap().ending = Ending::Failed("the payload differs at byte 7".into());
    let mut bench = FakeBench::default();
    bench.results.push_back(Ok(spoiled));
    let (finished, _) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
    let said = &finished[0].failed.as_ref().unwrap().message;
    assert_eq!(said, "the peer closed; the far end: the payload differs at byte 7");
}

#[test]
fn a_start_that_was_not_together_is_measured_again() {
    let mut late = stream(1);
    late.start_skew = Some(Duration::from_millis(9));
    let mut together = stream(1);
    together.start_skew = Some(Duration::from_millis(1));
    let mut bench = FakeBench::default();
    bench.results.extend([Ok(late), Ok(together)]);
    let mut group = step("a", 1, 1, None);
    group.case.group =
        Some(Group { max_skew: Duration::from_millis(5), window: Window::Intersection, has_total: true });
    let (_, rows) = go(&[group], PLAIN, &mut bench);
    let total = "iteration ok 1";
    assert_eq!(rows.of("a"), ["iteration discarded 1", "iteration ok 1", total, "summary ok", "summary ok"]);
    assert_eq!((rows.0[0].start_skew_us, rows.0[1].start_skew_us), (Some(9000.0), Some(1000.0)));
}

/// A stream of whose hosts others took so much of a CPU.
fn stolen(share: f64) -> Measured {
    let mut measured = stream(1000);
    measured.members[0].near.phases[0].cpu.as_mut().unwrap().steal = share;
    measured
}

#[test]
fn a_pair_from_which_others_took_a_cpu_is_measured_again() {
    let rows_of = |step: Step, results: [f64; 4]| {
        let mut bench = FakeBench::default();
        bench.results.extend(results.map(|share| Ok(stolen(share))));
        let (finished, rows) = go(&[step], PLAIN, &mut bench);
        assert!(finished[0].failed.is_none());
        (rows.of("a"), rows.1.clone())
    };
    let (rows, notes) = rows_of(pair("a", 1, 1), [0.4, 0.02, 0.0, 0.0]);
    assert_eq!(rows, ["iteration discarded 1", "iteration ok 1", "summary ok"]);
    assert!(notes[0].contains("others took a CPU of its hosts for 40 % of the time"), "{notes:?}");
    let (rows, _) = rows_of(pair("a", 1, 1), [0.4, 0.7, 0.0, 0.0]);
    assert_eq!(rows, ["iteration discarded 1", "iteration ok 1", "summary ok"], "0.7 is usual beside 0.4");
    // The last start counts, so that a host that is never idle has rows, too.
    let (rows, _) = rows_of(pair("a", 1, 1), [0.1, 0.3, 0.9, 0.0]);
    assert_eq!(rows, ["iteration discarded 1", "iteration discarded 1", "iteration ok 1", "summary ok"]);
    // A share that is usual in a survey disturbs none of its pairs.
    let (rows, _) = rows_of(pair("a", 1, 3), [0.4, 0.4, 0.4, 0.4]);
    assert_eq!(rows, ["iteration discarded 1", "iteration ok 1", "iteration ok 2", "iteration ok 3", "summary ok"]);
    // Only surveys accuse somebody.
    assert_eq!(rows_of(step("a", 1, 1, None), [0.4, 0.0, 0.0, 0.0]).0, ["iteration ok 1", "summary ok"]);
}

#[test]
fn a_window_in_which_was_read_what_had_arrived_before_is_measured_again() {
    // Of 100 bytes read in a second so many were acknowledged in it, and the congestion window grew to so many.
    let read = |acknowledged: u64, window: u32| {
        let mut measured = stream(100);
        let sender = &mut measured.members[0].near.phases[0].flows[0];
        let info = |bytes_acked, cwnd_segments| {
            let bytes_acked = Some(bytes_acked);
            Some(TcpInfo { bytes_acked, cwnd_segments, mss_bytes: 1, ..TcpInfo::default() })
        };
        (sender.tcp_at_start, sender.tcp_info) = (info(1000, 10), info(1000 + acknowledged, window));
        measured
    };
    for (acknowledged, window, again) in
        [(100, 10, false), (96, 10, false), (94, 10, true), (94, 12, false), (40, 30, true), (94, 5, true)]
    {
        let mut bench = FakeBench::default();
        bench.results.extend([Ok(read(acknowledged, window)), Ok(stream(1))]);
        let (_, rows) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
        let first = if again { "iteration discarded 1" } else { "iteration ok 1" };
        assert_eq!(rows.of("a")[0], first, "{acknowledged} {window}");
    }
    // The third start counts, and its reader hears of it.
    let mut bench = FakeBench::default();
    bench.results.extend((0..3).map(|_| Ok(read(40, 10))));
    let (_, rows) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
    assert_eq!(rows.of("a")[1..3], ["iteration discarded 1", "iteration ok 1"]);
    assert!(rows.1[2].contains("60 % of what was read while it measured had arrived before"), "{:?}", rows.1);
    // Data behind a lost segment were acknowledged together with it, and had arrived before.
    let out_of_order = |bytes: u64| {
        let mut measured = read(100, 10);
        let sender = &mut measured.members[0].near.phases[0].flows[0];
        sender.tcp_at_start.as_mut().unwrap().delivered_bytes = Some(1000);
        sender.tcp_info.as_mut().unwrap().delivered_bytes = Some(1000 + bytes);
        Ok(measured)
    };
    let before = "4.0 % of what was read while it measured had arrived before, and waited for lost segments";
    let after = "4.0 % more arrived while it measured, waited for lost segments at its end, and is not counted";
    for (bytes, said) in [([94, 98], before), ([92, 108], ""), ([99, 100], ""), ([102, 106], after)] {
        let mut bench = FakeBench::default();
        bench.results.extend(bytes.map(out_of_order));
        let (_, rows) = go(&[step("a", 1, 2, None)], PLAIN, &mut bench);
        assert_eq!(rows.of("a")[..2], ["iteration ok 1", "iteration ok 2"]);
        let about = rows.1.iter().filter(|doubt| doubt.contains("lost segments"));
        let (wanted, all): (usize, Vec<&String>) = (usize::from(!said.is_empty()), about.collect());
        assert!(all.len() == wanted && all.iter().all(|doubt| doubt.contains(said)), "{bytes:?} {all:?}");
    }
}

const MS: u64 = 1_000_000;

/// A second of the near end from 1 s on, and these of the far one.
fn far(start_ms: u64, length_ms: u64) -> Measured {
    let mut measured = stream(1);
    let reports = &mut measured.members[0];
    reports.far_start_ns = Some(start_ms * MS);
    reports.far.as_mut().unwrap().phases[0].elapsed_ns = length_ms * MS;
    measured
}

#[test]
fn a_window_shorter_than_half_of_what_was_asked_for_is_measured_again() {
    for (start, length, words) in [
        (2000, 1, Some("beginning 1.00 s apart, never at the same time of the 1.00 s asked for")),
        (500, 499, Some("never at the same time")),
        (1900, 100, Some("for 100 ms at the same time of the 1.00 s asked for")),
        (1000, 1, Some("`local` measured for 1.00 s and `embedded` for 1.00 ms, beginning 0 s apart")),
        (1400, 1000, None),
        (1000, 500, None),
    ] {
        let mut bench = FakeBench::default();
        bench.results.extend([Ok(far(start, length)), Ok(stream(1))]);
        let (finished, rows) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
        assert!(finished[0].failed.is_none());
        let Some(words) = words else {
            assert_eq!((rows.of("a")[0].as_str(), rows.1.len()), ("iteration ok 1", 0), "{start} {length}");
            continue;
        };
        assert_eq!(rows.of("a"), ["iteration discarded 1", "iteration ok 1", "summary ok"], "{start} {length}");
        // The reader of the results hears why, in the row and below the results.
        assert!(rows.0[0].error.as_ref().unwrap().contains(words), "{:?}", rows.0[0].error);
        let [note] = rows.1.as_slice() else { panic!("{:?}", rows.1) };
        assert!(note.contains("iteration 1 was discarded: `") && note.ends_with("(start 2 of 3)"), "{note}");
    }
    // Both ends saw next to nothing, or the one that tells its instants did.
    let mut nothing = far(1000, 1);
    nothing.members[0].near.phases[0].elapsed_ns = MS;
    let mut alone = stream(1);
    alone.members[0].far_start_ns = None;
    alone.members[0].near.phases[0].elapsed_ns = 499 * MS;
    for spoiled in [nothing, alone] {
        let mut bench = FakeBench::default();
        bench.results.extend([Ok(spoiled), Ok(stream(1))]);
        assert_eq!(go(&[step("a", 1, 1, None)], PLAIN, &mut bench).1.of("a")[0], "iteration discarded 1");
    }
    // An end that measured for much longer than asked for leaves a doubt.
    let mut bench = FakeBench::default();
    bench.results.push_back(Ok(far(1000, 3000)));
    let (_, rows) = go(&[step("a", 1, 1, None)], PLAIN, &mut bench);
    assert_eq!(rows.of("a")[0], "iteration ok 1");
    assert!(rows.1[0].contains("`embedded` for 3.00 s"), "{:?}", rows.1);
    // Tests that stop by a count have no time that both ends share.
    let mut counted = step("a", 1, 1, None);
    if let Some(spec) = counted.case.members[0].job.spec_mut() {
        spec.phases.stop = netcore::spec::Stop::AfterBytes(1);
    }
    let mut bench = FakeBench::default();
    bench.results.push_back(Ok(far(2000, 1)));
    assert_eq!(go(&[counted], PLAIN, &mut bench).1.of("a")[0], "iteration ok 1");
}

#[test]
fn a_case_whose_windows_never_happen_fails_and_says_so() {
    for (asked_ms, starts) in [(1000, 3), (100, 10), (10, 20)] {
        let mut short = step("a", 1, 1, None);
        if let Some(spec) = short.case.members[0].job.spec_mut() {
            spec.phases.stop = netcore::spec::Stop::AfterNs(asked_ms * MS);
        }
        let mut bench = FakeBench::default();
        bench.results.extend((0..99).map(|_| Ok(far(1000, asked_ms / 2 - 1))));
        let (finished, rows) = go(&[short], PLAIN, &mut bench);
        assert_eq!(bench.asked.len(), starts);
        let tries = vec!["iteration discarded 1"; starts - 1];
        assert_eq!(rows.of("a"), [&tries[..], &["iteration failed 1", "summary failed"]].concat());
        assert!(finished[0].failed.as_ref().unwrap().message.contains("asked for: a host was paused"));
    }
}

#[test]
fn members_that_never_start_together_are_a_failure_after_three_starts_and_the_retries() {
    let late = || Measured { start_skew: Some(Duration::from_millis(9)), ..stream(1) };
    let mut group = step("a", 1, 1, None);
    group.case.group =
        Some(Group { max_skew: Duration::from_millis(5), window: Window::Intersection, has_total: true });
    for (retries, discarded) in [(0, 2), (1, 3)] {
        let mut bench = FakeBench::default();
        bench.results.extend((0..9).map(|_| Ok(late())));
        let (finished, rows) = go(std::slice::from_ref(&group), Settings { retries, ..PLAIN }, &mut bench);
        let tries = vec!["iteration discarded 1"; discarded];
        assert_eq!(rows.of("a"), [&tries[..], &["iteration failed 1", "summary failed"]].concat());
        assert!(finished[0].failed.as_ref().unwrap().message.contains("9.00 ms apart"));
    }
}

#[test]
fn iterations_that_depend_on_each_other_are_said() {
    let of = |bytes: &[u64]| {
        let mut bench = FakeBench::default();
        bench.results.extend(bytes.iter().map(|b| Ok(stream(*b))));
        let n = u32::try_from(bytes.len()).unwrap();
        go(&[step("a", n, n, None)], PLAIN, &mut bench).1.1
    };
    assert!(of(&[1000, 1010, 990, 1005, 1000, 995, 1010, 990]).is_empty());
    let climbing = of(&[1000, 1100, 1200, 1300, 1400, 1500, 1600, 1700]);
    assert!(climbing[0].contains("resemble each other") && climbing[1].contains("drifts: +52 %"), "{climbing:?}");
}

#[test]
fn what_the_plan_skips_is_a_row() {
    let mut skipped = step("a", 1, 1, None);
    skipped.case.skip = Some("needs IPv6".into());
    let (finished, rows) = go(&[skipped, step("b", 1, 1, None)], PLAIN, &mut FakeBench::default());
    assert_eq!(rows.of("a"), ["summary skipped"]);
    assert_eq!((rows.0[0].error.as_deref(), finished[0].done), (Some("needs IPv6"), 0));
}

#[test]
fn a_stop_leaves_summaries_of_what_was_done_and_rows_for_the_rest() {
    let stop = Interrupts::uncaught().unwrap();
    stop.flag().request();
    let mut rows = Rows::default();
    let mut bench = FakeBench::default();
    let steps = [step("a", 1, 1, None)];
    run(&steps, PLAIN, &History::new(), &mut bench, &mut rows, &mut Progress::new(Mode::Silent), &stop).unwrap();
    assert!(bench.asked.is_empty());
    assert_eq!(rows.of("a"), ["summary skipped"]);
}

/// Cases of one line.
fn line(names: &[&str], iterations: u32, that: &str) -> Vec<Step> {
    let step = |name: &&str| {
        let mut step = step(name, iterations, iterations, None);
        step.case.stop_when = Some(StopWhen { that: schemas::assertion::parse(that).unwrap(), axis: "streams".into() });
        Step { line: Some(0), ..step }
    };
    names.iter().map(step).collect()
}

#[test]
fn the_rest_of_an_axis_is_left_out_once_the_mean_says_so_and_other_cases_go_on() {
    let mut steps = line(&["a", "b", "c", "d"], 2, "throughput < 10kbit/s");
    steps.push(step("other", 3, 3, None));
    let mut bench = FakeBench::default();
    // One slow iteration of `a` does not end the line; the mean of `b` does.
    let bytes = [1000, 9000, 9000, 9000, 1200, 1200, 9000];
    bench.results.extend(bytes.map(|b| Ok(stream(b))));
    let (finished, rows) = go(&steps, PLAIN, &mut bench);
    assert_eq!(bench.asked, ["a", "other", "a", "other", "b", "b", "other"]);
    for (case, index) in [("c", 2), ("d", 3)] {
        assert_eq!(rows.of(case), ["summary skipped"]);
        assert!(finished[index].left_out);
        let reason = finished[index].skipped.as_deref().unwrap();
        assert!(reason.starts_with("stop_when: throughput < 10kbit/s at b ("), "{reason}");
    }
    assert_eq!(finished[4].done, 3);
}

#[test]
fn a_line_is_run_in_its_order_whatever_the_order_of_the_rest() {
    for order in [Order::Interleave, Order::Sequential, Order::Random] {
        let mut bench = FakeBench::default();
        let steps = line(&["a", "b", "c"], 2, "throughput > 1Tbit/s");
        go(&steps, Settings { order, seed: 3, ..PLAIN }, &mut bench);
        assert_eq!(bench.asked, ["a", "a", "b", "b", "c", "c"]);
    }
}

#[test]
fn a_case_of_a_line_that_failed_ends_nothing_but_itself() {
    let mut bench = FakeBench::default();
    bench.results.push_back(fault("no route"));
    let (finished, rows) = go(&line(&["a", "b"], 1, "throughput < 1kbit/s"), PLAIN, &mut bench);
    assert_eq!(rows.of("b"), ["iteration ok 1", "summary ok"]);
    assert!(!finished[1].left_out);
}

#[test]
fn the_pairs_of_a_round_are_measured_at_the_same_time() {
    let steps = [pair("a", 1, 2), pair("b", 1, 2), pair("c", 2, 2), pair("d", 2, 2), step("e", 1, 1, None)];
    let mut bench = FakeBench::default();
    let (finished, rows) = go(&steps, PLAIN, &mut bench);
    assert_eq!(bench.rounds, ["a+b", "c+d", "a+b", "c+d"]);
    assert!(finished.iter().all(|case| case.failed.is_none()));
    assert_eq!(rows.of("d"), ["iteration ok 1", "iteration ok 2", "summary ok"]);
    let mut bench = FakeBench::default();
    go(&steps, Settings { order: Order::Sequential, ..PLAIN }, &mut bench);
    assert_eq!(bench.rounds, ["a+b", "a+b", "c+d", "c+d"]);
}

#[test]
fn a_pair_that_fails_leaves_the_others_of_its_round_as_they_are() {
    let steps = [pair("a", 1, 2), pair("b", 1, 2), pair("c", 1, 2)];
    let mut bench = FakeBench::default();
    bench.results.extend([Ok(stream(1)), fault("host `h` is gone"), Ok(stream(1))]);
    let (finished, rows) = go(&steps, PLAIN, &mut bench);
    assert_eq!(bench.rounds, ["a+b+c", "a+c"]);
    assert_eq!(rows.of("a"), ["iteration ok 1", "iteration ok 2", "summary ok"]);
    assert_eq!(rows.of("b"), ["iteration failed 1", "summary failed"]);
    assert_eq!(finished[1].failed.as_ref().unwrap().message, "host `h` is gone");
    // Only those that failed are tried again, and they together.
    let mut bench = FakeBench::default();
    bench.results.extend([Ok(stream(1)), fault("x"), fault("x"), Ok(stream(1)), fault("x"), fault("x")]);
    let (finished, rows) = go(&steps, Settings { retries: 2, ..PLAIN }, &mut bench);
    assert_eq!(bench.rounds, ["a+b+c", "b+c", "a+b"]);
    assert_eq!(rows.of("b"), ["iteration discarded 1", "iteration ok 1", "iteration ok 2", "summary ok"]);
    assert!(rows.of("c").ends_with(&["summary failed".to_owned()]) && finished[2].failed.is_some());
}

#[test]
fn a_survey_that_was_interrupted_measures_the_pairs_that_it_lacks() {
    let steps = [pair("a", 1, 1), pair("b", 1, 1), pair("c", 2, 1)];
    let (_, first) = go(&steps, PLAIN, &mut FakeBench::default());
    let is_of = |name: &str| first.0.iter().find(|row| row.case.as_deref() == Some(name)).unwrap().clone();
    let done = |name: &str| vec![Done { measured: vec![(0, Way::Forward, is_of(name))], streams: Vec::new() }];
    let history: History = vec![done("a"), Vec::new(), done("c")];
    let mut bench = FakeBench::default();
    let mut rows = Rows::default();
    let mut progress = Progress::new(Mode::Silent);
    let stop = Interrupts::uncaught().unwrap();
    let finished = run(&steps, PLAIN, &history, &mut bench, &mut rows, &mut progress, &stop).unwrap();
    assert_eq!(bench.asked, ["b"]);
    assert!(finished.iter().all(|case| case.done == 1));
    assert_eq!(rows.of("a"), ["summary ok"]);
}
