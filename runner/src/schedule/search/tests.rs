use chacha20::ChaCha8Rng;
use netcore::spec::{Arrival, Pace, PaceMode, Pattern, TestSpec, Transport};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use schemas::{metrics, words::Record};

use super::{posterior::queued_share, *};
use crate::{
    plan::{job::Job, model::Order},
    progress::{Mode, Progress},
    schedule::{
        Bench, MeasureError,
        fake::{FakeLink, Noise, Rows, step},
        history::History,
        run::{Finished, Settings, run},
    },
    signals::Interrupts,
};

const SETTINGS: Settings = Settings { order: Order::Interleave, seed: 0, fail_fast: false, retries: 0 };

/// Messages of 1000 bytes, so that 8 kbit/s are one per second.
const MESSAGE_BITS: f64 = 8000.0;

fn by_rate(from: f64, to: Option<f64>, within: f64, max_probes: u32) -> Step {
    let mut step = step("search", 1, 1, None);
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
    spec.sizes.message_bytes = 1000;
    let events_per_s = from / MESSAGE_BITS;
    spec.pace =
        Some(Pace { events_per_s, mode: PaceMode::User, arrival: Arrival::Closed, burst: 1, catch_up: catch_up(from) });
    step.case.members[0].job = Job::Traffic(Box::new(spec));
    step.case.find = Some(Find {
        metric: metrics::find("loss_ratio").unwrap(),
        at_most: Some(0.0),
        at_least: None,
        by: FindBy::Rate,
        from,
        to,
        bits: true,
        within,
        max_probes,
    });
    step
}

fn catch_up(bits_per_s: f64) -> u32 {
    Pace::default_catch_up(bits_per_s / MESSAGE_BITS, 1)
}

fn by_inflight(to: Option<f64>) -> Step {
    let mut step = step("search", 1, 1, None);
    step.case.members[0].job = Job::Traffic(Box::new(TestSpec::new(Pattern::RequestResponse, Transport::Tcp)));
    step.case.policy.metrics = vec![metrics::find("transaction_rate").unwrap()];
    step.case.find = Some(Find {
        metric: metrics::find("transaction_rate").unwrap(),
        at_most: None,
        at_least: Some(500.0),
        by: FindBy::Inflight,
        from: 1.0,
        to,
        bits: false,
        within: 0.01,
        max_probes: 30,
    });
    step
}

fn go(step: &Step, history: &History, link: &mut FakeLink) -> (Finished, Rows) {
    let mut rows = Rows::default();
    let steps = std::slice::from_ref(step);
    let (mut silent, flag) = (Progress::new(Mode::Silent), Interrupts::uncaught().unwrap());
    let mut finished = run(steps, SETTINGS, history, link, &mut rows, &mut silent, &flag).unwrap();
    (finished.remove(0), rows)
}

/// A path with so many bits per second, searched from nothing.
fn found(step: &Step, capacity: f64, sender: f64) -> (Row, Rows, FakeLink) {
    let mut link = FakeLink::new(capacity / MESSAGE_BITS, sender / MESSAGE_BITS);
    let (_, rows) = go(step, &History::new(), &mut link);
    (rows.0.last().unwrap().clone(), rows, link)
}

const PLENTY: f64 = 1e15;

#[test]
fn the_limit_is_found_between_two_loads_that_are_close() {
    let (summary, rows, link) = found(&by_rate(1e6, Some(10e9), 0.01, 40), 500e6, PLENTY);
    assert_eq!((summary.record.as_deref(), summary.search.as_deref()), (Some("summary"), Some("found")));
    let (held, above) = (summary.offered_per_s.unwrap() * MESSAGE_BITS, summary.search_above.unwrap() * MESSAGE_BITS);
    assert!(held <= 500e6 && 500e6 < above && above <= held * 1.01, "{held} … {above}");
    assert!((summary.throughput_bits_per_s.unwrap() / held - 1.0).abs() < 1e-3);
    // Ten loads between the ends, some twice, and the border once more.
    assert!(link.asked.len() <= 22, "{:?}", link.asked);
    // The ends first, then about the geometric middle.
    assert_eq!(link.asked[..2], [125.0, 1_250_000.0]);
    assert!((6_000.0..25_000.0).contains(&link.asked[2]), "{:?}", link.asked);
    // Each probe is in the data with its number, its load and what it showed; the answer is an iteration.
    let probes: Vec<&Row> = rows.0.iter().filter(|r| r.record == Some(Record::Probe)).collect();
    assert_eq!(probes.len(), link.asked.len());
    for (probe, (i, asked)) in probes.iter().zip(link.asked.iter().enumerate()) {
        assert_eq!((probe.iteration, probe.offered_per_s), (Some(i as u64 + 1), Some(*asked)));
        let showed = if *asked * MESSAGE_BITS <= 500e6 { "held" } else { "exceeded" };
        assert_eq!(probe.search.as_deref(), Some(showed));
    }
    assert_eq!(rows.of("search")[probes.len()], "iteration ok 1");
    assert_eq!(rows.of("search").last().map(String::as_str), Some("summary ok"));
    assert!(rows.1[0].contains("loss_ratio <= 0 % holds up to ") && rows.1[0].contains("not at "), "{:?}", rows.1);
}

#[test]
fn a_highest_load_that_holds_is_at_least_the_answer() {
    let (summary, rows, link) = found(&by_rate(1e6, Some(64e6), 0.01, 20), PLENTY, PLENTY);
    assert_eq!(link.asked[..2], [125.0, 8000.0]);
    assert!(link.asked.len() <= 4 && link.asked[1..].iter().all(|load| same(*load, 8000.0)), "{:?}", link.asked);
    assert_eq!((summary.search.as_deref(), summary.search_above), (Some("at_least"), None));
    assert!((summary.throughput_bits_per_s.unwrap() - 64e6).abs() < 1e3);
    assert!(rows.1[0].contains("at least"), "{:?}", rows.1);
}

#[test]
fn where_not_even_the_lowest_holds_there_is_no_number() {
    let mut link = FakeLink::new(10.0, 1e12);
    let (finished, rows) = go(&by_rate(1e6, Some(64e6), 0.01, 20), &History::new(), &mut link);
    let said = rows.of("search");
    assert_eq!((said[0].as_str(), said.last().map(String::as_str)), ("probe ok 1", Some("summary ok")));
    assert!((3..=5).contains(&link.asked.len()) && link.asked.iter().all(|load| same(*load, 125.0)), "{said:?}");
    let summary = rows.0.last().unwrap();
    assert_eq!((summary.search.as_deref(), summary.iterations), (Some("nothing"), Some(0)));
    assert_eq!((summary.throughput_bits_per_s, summary.offered_per_s), (None, None));
    assert_eq!(summary.search_above, Some(125.0));
    assert!(finished.values.is_empty() && finished.failed.is_none());
    assert!(finished.answer.unwrap().contains("not hold even at 1.00 Mbit/s"));
}

#[test]
fn a_discarded_try_of_a_probe_is_a_probe() {
    let mut link = FakeLink::new(10.0, 1e12);
    link.instead.push_back(Some(Err(MeasureError::failed("once"))));
    let steps = [by_rate(1e6, Some(64e6), 0.01, 20)];
    let mut rows = Rows::default();
    let (mut silent, flag) = (Progress::new(Mode::Silent), Interrupts::uncaught().unwrap());
    let settings = Settings { retries: 1, ..SETTINGS };
    run(&steps, settings, &History::new(), &mut link, &mut rows, &mut silent, &flag).unwrap();
    assert_eq!(rows.of("search")[..2], ["probe discarded 1", "probe ok 1"]);
}

#[test]
fn what_the_sender_cannot_offer_proves_nothing_of_the_path() {
    let (summary, rows, _) = found(&by_rate(1e6, Some(10e9), 0.01, 40), PLENTY, 300e6);
    assert_eq!(summary.search.as_deref(), Some("unreached"));
    let held = summary.offered_per_s.unwrap() * MESSAGE_BITS;
    // Within a hundredth of what was asked for the load counts as offered.
    assert!(held <= 300e6 / 0.99 && held > 290e6, "{held}");
    assert!(rows.1[0].contains("; only 300 Mbit/s (9"), "the load and its share: {:?}", rows.1);
    assert!(rows.1[0].contains("was offered, so what ends there is the sender: the limit is at least"), "{:?}", rows.1);
    assert!(rows.0.iter().any(|r| r.search == Some(Finding::Unreached) && r.record == Some(Record::Probe)));
    let (summary, rows, _) = found(&by_rate(1e9, Some(10e9), 0.01, 40), PLENTY, 300e6);
    assert_eq!((summary.search.as_deref(), summary.throughput_bits_per_s), (Some("unreached"), None));
    assert!(
        rows.1[0].contains("only 300 Mbit/s (30.0 %) of 1.00 Gbit/s, the lowest load, was offered"),
        "{:?}",
        rows.1
    );
}

#[test]
fn a_single_stall_of_the_sender_is_no_limit() {
    let mut link = FakeLink::new(PLENTY, PLENTY);
    link.sender = 100.0;
    let step = by_rate(1e6, Some(64e6), 0.01, 20);
    let mut search = Search::new(&step).unwrap();
    let mut rows = Rows::default();
    let probe = |search: &mut Search, link: &mut FakeLink, rows: &mut Rows| {
        let Next::Probe(load) = search.next() else { panic!("it goes on") };
        let at_load = search.step(&step, load);
        let measured = Bench::measure(link, &at_load, 1, &mut Progress::new(Mode::Silent)).unwrap();
        let member = &at_load.members[0];
        let ends = &measured.members[0];
        let made = crate::schedule::rows::of_iteration(
            &at_load.identity(0),
            member.spec().unwrap(),
            &ends.near,
            ends.far.as_ref(),
        );
        let measured = made.measured.into_iter().map(|(way, row)| (0, way, row)).collect();
        rows.0.extend(made.rows);
        search.take(Done { measured, streams: Vec::new() }, Duration::ZERO)
    };
    assert_eq!(probe(&mut search, &mut link, &mut rows), Some(Finding::Unreached));
    link.sender = PLENTY;
    assert_eq!(search.next(), Next::Probe(1e6), "it is tried again");
    assert_eq!(probe(&mut search, &mut link, &mut rows), Some(Finding::Held));
    assert_eq!(search.next(), Next::Probe(1e6), "one against one decides nothing");
    assert_eq!(probe(&mut search, &mut link, &mut rows), Some(Finding::Held));
    assert_eq!(search.next(), Next::Probe(64e6));
}

#[test]
fn a_probe_that_fails_by_chance_is_no_limit() {
    let step = by_rate(1e6, Some(10e9), 0.05, 60);
    // The first probe, which once ended the search; later ones; and two of three at one load.
    for chance in [vec![0], vec![3], vec![0, 3, 8], vec![3, 5]] {
        let mut link = FakeLink::new(500e6 / MESSAGE_BITS, PLENTY);
        link.instead.extend((0..9).map(|i| chance.contains(&i).then_some(Ok(1.0))));
        let (_, rows) = go(&step, &History::new(), &mut link);
        let summary = rows.0.last().unwrap();
        assert_eq!(summary.search.as_deref(), Some("found"), "{chance:?}: {:?}", rows.1);
        let held = summary.offered_per_s.unwrap() * MESSAGE_BITS;
        assert!(held <= 500e6 && held * 1.05 >= 500e6 / 1.05, "{chance:?}: {held}");
    }
}

#[test]
fn a_failure_that_two_probes_agreed_on_is_overturned_at_the_border() {
    let step = by_rate(1e6, Some(1e9), 0.05, 60);
    let mut link = FakeLink::new(500e6 / MESSAGE_BITS, PLENTY);
    // From, to, to, then 31.6 Mbit/s: twice by chance.
    link.instead.extend([None, None, None, Some(Ok(1.0)), Some(Ok(1.0))]);
    let (_, rows) = go(&step, &History::new(), &mut link);
    let held = rows.0.last().unwrap().offered_per_s.unwrap() * MESSAGE_BITS;
    assert!(held > 500e6 / 1.05 / 1.05, "{held}: {:?}", link.asked);
}

#[test]
fn what_a_queue_takes_in_was_not_carried() {
    // Enough for three per cent too much, and no loss at all.
    let capacity = 97.1e6 / MESSAGE_BITS;
    for within in [0.05, 0.01] {
        let mut link = FakeLink::new(capacity, PLENTY);
        link.queue = capacity * 1000.0 * 0.06;
        let (_, rows) = go(&by_rate(1e6, Some(1e9), within, 60), &History::new(), &mut link);
        let summary = rows.0.last().unwrap();
        let held = summary.offered_per_s.unwrap();
        assert!(held <= capacity * (1.0 + within / 2.0) && held * (1.0 + within) >= capacity, "{held} of {capacity}");
        assert!(rows.1[0].contains("where a queue took in"), "{:?}", rows.1);
    }
}

#[test]
fn what_is_on_its_way_is_in_no_queue() {
    let row = |sent: f64, arrived: f64| Row {
        sent_bits_per_s: Some(sent),
        throughput_bits_per_s: Some(arrived),
        elapsed_s: Some(0.4),
        message_bytes: Some(1000),
        ..Row::default()
    };
    assert!((queued_share(&row(100e6, 94e6), Duration::ZERO) - 0.0596).abs() < 1e-9);
    assert!(queued_share(&row(100e6, 75e6), Duration::from_millis(100)) < 1e-9);
    assert!(queued_share(&row(100e6, 101e6), Duration::ZERO) < 1e-9);
    // Two messages at the edges of a slow stream.
    assert!(queued_share(&row(1e5, 0.7e5), Duration::ZERO) < 1e-9);
}

#[test]
fn windows_too_short_for_the_precision_are_named() {
    let mut link = FakeLink::new(PLENTY, PLENTY);
    let step = by_rate(1e6, Some(64e6), 0.01, 20);
    let mut search = Search::new(&step).unwrap();
    let Next::Probe(load) = search.next() else { panic!("it begins") };
    let measured = Bench::measure(&mut link, &search.step(&step, load), 1, &mut Progress::new(Mode::Silent)).unwrap();
    let ends = &measured.members[0];
    let at_load = search.step(&step, load);
    let made = crate::schedule::rows::of_iteration(
        &at_load.identity(0),
        at_load.members[0].spec().unwrap(),
        &ends.near,
        ends.far.as_ref(),
    );
    for (way, row) in made.measured {
        let row = Row { elapsed_s: Some(0.1), ..row };
        search.take(Done { measured: vec![(0, way, row)], streams: Vec::new() }, Duration::ZERO);
    }
    let said = search.sentence("search", &search.so_far());
    assert!(said.contains("a queue of 10.0 % only, not the 1.00 % asked for: `duration: 1.00 s` would"), "{said}");
}

/// Shares of searches over links with noise.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    /// An answer within the precision.
    right: f64,
    low: f64,
    high: f64,
    /// *Nothing held*.
    nothing: f64,
    /// An interval that has the limit, with two ends that are at most a decade apart.
    covers: f64,
    /// A wider one, or one with a single end.
    wide: f64,
    /// An interval that has not.
    misses: f64,
    /// Mean number of probes.
    probes: f64,
}

impl Shares {
    fn wrong(&self) -> f64 {
        self.low + self.high + self.nothing + self.misses
    }
}

fn simulate([stalls, luck, knee]: [f64; 3], searches: u64) -> Shares {
    const WITHIN: f64 = 0.05;
    let step = by_rate(1e6, Some(1e9), WITHIN, 40);
    let mut shares = Shares::default();
    let one = 1.0 / searches as f64;
    for seed in 0..searches {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let capacity = 10f64.powf(7.0 + rng.random::<f64>() * 1.5);
        let mut link = FakeLink::new(capacity / MESSAGE_BITS, PLENTY);
        link.noise = Some(Noise { rng, stalls, luck, knee });
        let (_, rows) = go(&step, &History::new(), &mut link);
        let summary = rows.0.last().unwrap();
        let held = summary.offered_per_s.map(|held| held * MESSAGE_BITS);
        let above = summary.search_above.map(|above| above * MESSAGE_BITS);
        let share = match (summary.search, held) {
            (Some(Finding::Open), held) => {
                let is_in = held.unwrap_or(0.0) <= capacity && above.is_none_or(|above| capacity < above);
                let is_narrow = held.zip(above).is_some_and(|(held, above)| above / held <= 10.0);
                match (is_in, is_narrow) {
                    (false, _) => &mut shares.misses,
                    (true, true) => &mut shares.covers,
                    (true, false) => &mut shares.wide,
                }
            }
            (_, None) => &mut shares.nothing,
            (_, Some(held)) if held * (1.0 + WITHIN) * (1.0 + 1e-6) < capacity => &mut shares.low,
            (_, Some(held)) if held > capacity * (1.0 + WITHIN) => &mut shares.high,
            _ => &mut shares.right,
        };
        *share += one;
        shares.probes += link.asked.len() as f64 * one;
    }
    shares
}

/// `FULL=1 cargo test -p runner --lib noise_seldom -- --nocapture` prints the table of docs/reference/methodology.md.
#[test]
fn noise_seldom_leads_a_search_astray() {
    let is_full = std::env::var_os("FULL").is_some();
    let steps =
        [[0.0, 0.0], [0.05, 0.0], [0.1, 0.02], [0.2, 0.05], [0.3, 0.1]].map(|[stalls, luck]| [stalls, luck, 0.0]);
    let knees = [[0.02, 0.02, 0.05], [0.2, 0.05, 0.1], [0.1, 0.0, 0.5]];
    let rows = if is_full { steps.into_iter().chain(knees).collect() } else { vec![steps[3]] };
    for noise in rows {
        let shares = simulate(noise, if is_full { 200 } else { 12 });
        let [stalls, luck, knee] = noise;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let wrong = [shares.low, shares.high, shares.nothing, shares.misses];
        let cells = [[shares.right, shares.covers, shares.wide].as_slice(), &wrong].concat().into_iter().map(percent);
        let cells: Vec<String> = cells.collect();
        println!("| {} | {} | {knee} | {} | {:.1} |", percent(stalls), percent(luck), cells.join(" | "), shares.probes);
        // One in twenty is promised; of 200, twice as many are within chance.
        assert!(shares.wrong() < 0.1, "{noise:?}: {shares:?}");
        // The seeds are fixed. A limit that spreads over many loads has only an interval.
        let useful = if knee > 0.0 { shares.covers } else { shares.right };
        assert!(useful > if stalls < 0.3 { 0.5 } else { 0.1 }, "{noise:?}: {shares:?}");
    }
    let quiet = simulate([0.0; 3], 6);
    assert!((quiet.right - 1.0).abs() < 1e-9 && quiet.probes < 20.0, "{quiet:?}");
}

#[test]
fn a_search_that_ends_early_says_what_is_known() {
    let (summary, rows, link) = found(&by_rate(1e6, Some(10e9), 0.01, 4), 500e6, PLENTY);
    assert_eq!((link.asked.len(), summary.search.as_deref()), (4, Some("open")));
    assert!(summary.offered_per_s.unwrap() * MESSAGE_BITS < 500e6);
    assert!(summary.search_above.unwrap() * MESSAGE_BITS > 500e6);
    assert!(rows.1[0].contains("before the limit was known closely") && rows.1[0].contains("(4 probes)"));
}

#[test]
fn without_a_highest_load_it_is_doubled_until_it_does_not_hold() {
    let (summary, _, link) = found(&by_rate(1e6, None, 0.05, 40), 100e6, PLENTY);
    assert_eq!(link.asked[..4], [125.0, 250.0, 500.0, 1000.0]);
    assert_eq!(summary.search.as_deref(), Some("found"));
    let held = summary.offered_per_s.unwrap() * MESSAGE_BITS;
    assert!(held <= 100e6 && held * 1.05 >= 100e6, "{held}");
}

#[test]
fn transactions_in_flight_are_whole_numbers() {
    for (capacity, outcome, held) in [(37.0, "found", 37), (1.0, "found", 1), (1000.0, "at_least", 64)] {
        let mut link = FakeLink::new(capacity, PLENTY);
        let (finished, rows) = go(&by_inflight(Some(64.0)), &History::new(), &mut link);
        let summary = rows.0.last().unwrap();
        assert_eq!((summary.search.as_deref(), summary.inflight), (Some(outcome), Some(held)), "{:?}", link.asked);
        assert!(link.asked.iter().all(|n| n.fract() == 0.0));
        assert!(finished.answer.unwrap().contains(&format!("{held} in flight")));
    }
}

#[test]
fn iterations_repeat_the_two_loads_at_the_border_and_the_majority_decides() {
    let mut step = by_rate(1e6, Some(10e9), 0.05, 60);
    (step.case.policy.min, step.case.policy.max) = (3, 3);
    let mut link = FakeLink::new(500e6 / MESSAGE_BITS, PLENTY);
    let (finished, rows) = go(&step, &History::new(), &mut link);
    let answer = rows.0.last().unwrap().offered_per_s.unwrap();
    let times = |load: f64| link.asked.iter().filter(|l| same(**l, load)).count();
    assert!(times(answer) >= 3 && times(rows.0.last().unwrap().search_above.unwrap()) >= 3, "{:?}", link.asked);
    assert_eq!(finished.done as usize, times(answer));
    let of_answer = rows.of("search").split_off(link.asked.len());
    assert_eq!((of_answer.len(), of_answer[0].as_str()), (times(answer) + 1, "iteration ok 1"));
    let lucky = link.asked.iter().position(|l| same(*l, answer)).unwrap();

    // The same once more, but what held there was luck: the search goes on below.
    let mut link = FakeLink::new(answer * 0.8, PLENTY);
    link.instead.extend((0..=lucky).map(|_| Some(Ok(500e6 / MESSAGE_BITS))));
    link.instead.extend((0..8).map(|_| None));
    let (_, rows) = go(&step, &History::new(), &mut link);
    let summary = rows.0.last().unwrap();
    assert_eq!(summary.search.as_deref(), Some("found"));
    assert!(summary.offered_per_s.unwrap() <= answer * 0.8 && summary.search_above.unwrap() > answer * 0.8);
}

#[test]
fn a_probe_that_cannot_be_measured_fails_the_case() {
    let mut link = FakeLink::new(PLENTY, PLENTY);
    link.instead.extend([None, Some(Err(MeasureError::failed("no route")))]);
    let (finished, rows) = go(&by_rate(1e6, Some(64e6), 0.01, 20), &History::new(), &mut link);
    assert_eq!(rows.of("search"), ["probe ok 1", "probe failed 2", "summary failed"]);
    assert_eq!(finished.failed.unwrap().message, "no route");
}

/// The probes of a run as `--resume` reads them back.
fn probes(rows: &Rows) -> Vec<Done> {
    let of = |row: &Row| Done { measured: vec![(0, Way::Forward, row.clone())], streams: Vec::new() };
    rows.0.iter().filter(|r| r.record == Some(Record::Probe)).map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_search_ends_with_a_bracket_of_the_truth_and_asks_nothing_often(
        from in 1e5..1e8f64, span in 1.5..1e5f64, limit in -0.2..1.2f64, within in 0.002..0.5f64, keep in 0..12usize,
    ) {
        let to = from * span;
        let capacity = from * span.powf(limit);
        let step = by_rate(from, Some(to), within, 200);
        let (summary, rows, link) = found(&step, capacity, PLENTY);
        let whole = |bits: f64| bits / MESSAGE_BITS;
        match summary.search.as_deref() {
            Some("found") => {
                let (held, above) = (summary.offered_per_s.unwrap(), summary.search_above.unwrap());
                // Whole messages: a load is held that differs from the capacity by less than one in the window.
                prop_assert!(held <= whole(capacity) + 0.01 && whole(capacity) <= above + 0.01);
                prop_assert!(above <= held * (1.0 + within) * (1.0 + 1e-9));
            }
            Some("at_least") => prop_assert!(capacity >= to * 0.999),
            Some("nothing") => prop_assert!(capacity <= from * 1.001),
            other => prop_assert!(false, "{other:?}"),
        }
        for load in &link.asked {
            prop_assert!(link.asked.iter().filter(|other| other.total_cmp(load).is_eq()).count() <= 5);
        }

        // Taken up after some of its probes it asks for the rest of them and says the same.
        let kept: Vec<Done> = probes(&rows).into_iter().take(keep).collect();
        let skipped = kept.len();
        let mut again = FakeLink::new(whole(capacity), PLENTY);
        let (_, resumed) = go(&step, &vec![kept], &mut again);
        prop_assert_eq!(&again.asked[..], &link.asked[skipped..]);
        let answer = |row: &Row| (row.search, row.offered_per_s, row.search_above);
        prop_assert_eq!(answer(resumed.0.last().unwrap()), answer(&summary));
    }
}
