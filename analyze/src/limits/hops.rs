//! At which link of a path the queue stands, from round trips to its hops before a load and under it.
//!
//! A packet to a hop waits in the queue of each link before it, one way or the other. So the round trips to all hops behind a
//! full link grow, and those to the hops before it stay. All hops were asked in rounds, at the same time, so that those behind the
//! link met the same queue: in each round they add what the last hop adds, however much that changes from round to round. A
//! router may answer slowly by itself; then it adds something else, and is left out, and never blamed.

use schemas::{
    text::counted,
    units::{Unit, human},
};

use crate::stats::{
    compare::shift,
    confidence::Interval,
    quantiles::{self, median},
};

/// Round trips of a hop.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    /// `None`: it did not answer.
    pub address: Option<String>,
    /// Before the load, microseconds.
    pub idle_us: Vec<f64>,
    /// Under it, by round.
    pub loaded_us: Vec<Option<f64>>,
}

/// A hop, judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Added round trip, microseconds, with its 95 % confidence interval; `None`: too few answers.
    pub added: Option<Interval>,
    /// Its place to the queue; `None`: no queue is there, or too few answers are.
    side: Option<Side>,
}

/// The place of a hop to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
    /// Neither: it answers slowly by itself.
    Odd,
}

/// The place of the queue: at a link between two hops.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The last hop before it, by its number; 0: the near end.
    pub behind: usize,
    /// The first hop behind it.
    pub before: usize,
    /// Address of the hop `behind`.
    pub address: Option<String>,
    /// Round trip that it adds at the end of the path, microseconds.
    pub added_us: f64,
}

/// The answer about a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// `None`: there is none, or it is unknown.
    pub place: Option<Place>,
    /// The place, or why there is none, in a sentence without its full stop.
    pub because: String,
}

/// Of the interval of what a hop adds. It has bounds from three answers before the load and five under it on, or two and eight.
const LEVEL: f64 = 0.95;

/// Rounds of probes under load that suffice.
const ENOUGH_ROUNDS: usize = 5;

/// Advice where the load ended before that.
pub const LONGER: &str = "give the test a `duration` of 5 s or more";

/// Least round trip that a queue adds, microseconds: the scheduling of two hosts under load takes as much.
const LEAST_US: f64 = 2000.0;

/// The same in median absolute deviations of the idle path.
const LEAST_DEVIATIONS: f64 = 5.0;

/// Fewest rounds with a queue in which a hop must have answered beside the last one.
const FEWEST_ROUNDS: usize = 3;

/// Share of a round's queue that a hop before it may add.
const NOTHING: f64 = 0.35;

/// Share of a round's queue by which a hop behind it may add more or less than the last one: its probe met the same queue, and on a busy machine
/// most differ by less than 0.01. A router that answers late by chance comes as near in one round of ten; within 0.35 it came so often that one
/// path of twenty was judged wrong.
const ALIKE: f64 = 0.1;

/// Share of the rounds that must agree on the side of a hop.
const AGREEMENT: f64 = 2.0 / 3.0;

impl Judged {
    /// Whether it answers slowly by itself.
    #[must_use]
    pub fn is_odd(&self) -> bool {
        self.side == Some(Side::Odd)
    }
}

/// Judges the hops of a path in their order. `reached`: the last one is the far end.
#[must_use]
pub fn judge(path: &[Trips], reached: bool) -> (Vec<Judged>, Verdict) {
    let mut judged: Vec<Judged> = path.iter().map(|hop| Judged { added: added(hop), side: None }).collect();
    let unknown = |because: &str| Verdict { place: None, because: format!("unknown where a queue stands: {because}") };
    let Some((last, total)) = judged.iter().enumerate().rev().find_map(|(at, hop)| Some((at, hop.added?))) else {
        let any = path.iter().any(|hop| hop.address.is_some());
        let rounds = path.iter().map(|hop| hop.loaded_us.len()).max().unwrap_or(0);
        let because = match any {
            false => "no hop answered the probes".to_owned(),
            true if rounds < ENOUGH_ROUNDS => {
                format!("there was time for {} of probes under load: {LONGER}", counted(rounds, "round"))
            }
            true => "the hops answered too few probes".to_owned(),
        };
        return (judged, unknown(&because));
    };
    if total.centre < LEAST_US.max(LEAST_DEVIATIONS * deviation(&path[last].idle_us)) {
        let grew = format!("the round trip to hop {} changed by {} under load", last + 1, signed(total.centre));
        let verdict = if reached && last + 1 == path.len() {
            Verdict { place: None, because: format!("no queue on the path: {grew}") }
        } else {
            unknown(&format!("{grew}, and nothing behind it answers"))
        };
        return (judged, verdict);
    }
    if total.low <= 0.0 {
        let [low, high] = [total.low, total.high].map(signed);
        let grew = format!("the round trip to hop {} grew by {} under load", last + 1, signed(total.centre));
        return (judged, unknown(&format!("{grew} ({low} … {high}), which may be nothing")));
    }
    for at in 0..last {
        judged[at].side = side(&path[at], &path[last]);
    }
    judged[last].side = Some(Side::Behind);
    // No hop adds less than the queues before it. So one that adds nothing is before the queue, whatever others add nearer by.
    let last_before = (0..last).rev().find(|at| judged[*at].side == Some(Side::Before));
    for hop in judged.iter_mut().take(last_before.unwrap_or(0)).filter(|hop| hop.side == Some(Side::Behind)) {
        hop.side = Some(Side::Odd);
    }
    let behind = last_before.map_or(0, |at| at + 1);
    let first_behind = (behind..last).find(|at| judged[*at].side == Some(Side::Behind)).unwrap_or(last);
    let place = Place {
        behind,
        before: first_behind + 1,
        address: last_before.and_then(|at| path[at].address.clone()),
        added_us: total.centre,
    };
    let because = sentence(&place, path, &judged, &total);
    (judged, Verdict { place: Some(place), because })
}

/// `the queue stands at the link behind hop 3 (10.0.3.1): +38 ms (36 ms … 40 ms) from there on`
fn sentence(place: &Place, path: &[Trips], judged: &[Judged], total: &Interval) -> String {
    let named = |number: usize| match &path[number - 1].address {
        Some(address) => format!("hop {number} ({address})"),
        None => format!("hop {number}"),
    };
    let [low, high] = [total.low, total.high].map(|us| human(Unit::Microseconds, us));
    let added = format!("{} ({low} … {high}) from there on", signed(total.centre));
    if place.behind + 1 == place.before {
        let link = match place.behind {
            0 => format!("first link, before {}", named(1)),
            number => format!("link behind {}", named(number)),
        };
        return format!("the queue stands at the {link}: {added}");
    }
    let from = if place.behind == 0 { "the near end".to_owned() } else { named(place.behind) };
    let between = (place.behind + 1..place.before).map(|number| match &path[number - 1].address {
        None => format!("hop {number} does not answer"),
        Some(_) if judged[number - 1].is_odd() => format!("hop {number} answers slowly by itself"),
        Some(_) => format!("hop {number} answers too seldom"),
    });
    let why = between.collect::<Vec<_>>().join(", ");
    format!("the queue stands between {from} and {}: {added}; {why}", named(place.before))
}

fn signed(us: f64) -> String {
    let sign = if us < 0.0 { '−' } else { '+' };
    format!("{sign}{}", human(Unit::Microseconds, us.abs()))
}

fn added(hop: &Trips) -> Option<Interval> {
    let loaded: Vec<f64> = hop.loaded_us.iter().flatten().copied().collect();
    shift(&hop.idle_us, &loaded, LEVEL)
}

/// The side on which most rounds see a hop.
fn side(hop: &Trips, last: &Trips) -> Option<Side> {
    let [own, whole] = [hop, last].map(|trips| middle(&trips.idle_us));
    // Added round trips as shares of the queue. A round without a queue says nothing.
    let rounds = hop.loaded_us.iter().zip(&last.loaded_us).filter_map(|(here, there)| {
        let (here, queue) = ((*here)? - own?, (*there)? - whole?);
        (queue >= LEAST_US).then(|| here / queue)
    });
    let rounds: Vec<f64> = rounds.collect();
    let most = |is: &dyn Fn(f64) -> bool| {
        rounds.iter().filter(|share| is(**share)).count() as f64 >= AGREEMENT * rounds.len() as f64
    };
    let side = if most(&|share| share.abs() <= NOTHING) {
        Side::Before
    } else if most(&|share| (share - 1.0).abs() <= ALIKE) {
        Side::Behind
    } else {
        Side::Odd
    };
    (rounds.len() >= FEWEST_ROUNDS).then_some(side)
}

fn middle(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    quantiles::sort(&mut sorted);
    median(&sorted)
}

/// Median absolute deviation.
fn deviation(values: &[f64]) -> f64 {
    let centre = middle(values).unwrap_or(0.0);
    let off: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    middle(&off).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers between 0 and 1. The generator is Knuth's (MMIX).
    fn uniform(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// A path of hops 200 µs apart, with a queue at the link behind hop `link` (0: the first), whose length changes from
    /// round to round between a tenth of this and all of it.
    fn path(hops: usize, link: Option<usize>, queue_us: f64, seed: u64) -> Vec<Trips> {
        let mut next = uniform(seed);
        let queue: Vec<f64> = (0..7).map(|_| queue_us * (0.1 + 0.9 * next())).collect();
        let hop = |at: usize| {
            let base = 200.0 * (at + 1) as f64;
            let is_behind = link.is_some_and(|link| at >= link);
            let loaded =
                |queue: &f64| Some(base + 100.0 * next() + if is_behind { queue * (0.95 + 0.1 * next()) } else { 0.0 });
            let loaded_us = queue.iter().map(loaded).collect();
            let idle_us = (0..5).map(|_| base + 100.0 * next()).collect();
            Trips { address: Some(format!("10.0.{at}.1")), idle_us, loaded_us }
        };
        (0..hops).map(hop).collect()
    }

    fn place(path: &[Trips]) -> Option<(usize, usize)> {
        judge(path, true).1.place.map(|place| (place.behind, place.before))
    }

    proptest! {
        #[test]
        fn the_link_of_a_queue_is_found(hops in 1usize..12, link in 0usize..12, queue_us in 2e4..4e5f64, seed in 0u64..1_000_000) {
            let link = link % hops;
            prop_assert_eq!(place(&path(hops, Some(link), queue_us, seed)), Some((link, link + 1)));
        }

        #[test]
        fn a_path_without_a_queue_has_none(hops in 1usize..12, seed in 0u64..1_000_000) {
            let (_, verdict) = judge(&path(hops, None, 0.0, seed), true);
            prop_assert!(verdict.place.is_none() && verdict.because.starts_with("no queue on the path"), "{}", verdict.because);
        }

        /// Later by the same time, or by times between nothing and twice that.
        #[test]
        fn a_hop_that_answers_slowly_by_itself_hides_nothing_but_its_own_links(
            hops in 3usize..9, link in 0usize..9, slow in 0usize..9, late in 2e3..1e6f64, scatters: bool, seed in 0u64..1_000_000
        ) {
            let (link, slow) = (link % hops, slow % (hops - 1));
            let mut with = path(hops, Some(link), 40_000.0, seed);
            let mut next = uniform(seed + 1);
            for us in with[slow].loaded_us.iter_mut().flatten() {
                *us += late * if scatters { 2.0 * next() } else { 1.0 };
            }
            let found = judge(&with, true).1.place.unwrap();
            prop_assert!(found.behind <= link && link < found.before, "{found:?}");
            let hidden = found.before - found.behind - 1;
            prop_assert!(hidden <= 1 && (hidden == 0 || slow == link || slow + 1 == link), "{found:?}");
        }

        #[test]
        fn any_readings_have_an_answer(
            hops in prop::collection::vec(
                (prop::collection::vec(0.0..1e6f64, 0..9), prop::collection::vec(prop::option::of(0.0..1e6f64), 0..9)),
                0..6
            ),
            reached: bool
        ) {
            let hops: Vec<Trips> = hops
                .into_iter()
                .map(|(idle_us, loaded_us)| Trips { address: None, idle_us, loaded_us })
                .collect();
            let (judged, verdict) = judge(&hops, reached);
            prop_assert_eq!(judged.len(), hops.len());
            if let Some(place) = verdict.place {
                prop_assert!(place.behind < place.before && place.before <= hops.len());
            }
        }
    }

    #[test]
    fn the_sentence_names_the_hop_and_what_it_adds() {
        let (_, verdict) = judge(&path(4, Some(3), 80_000.0, 7), true);
        let (head, rest) = verdict.because.split_once(": ").unwrap();
        assert_eq!(head, "the queue stands at the link behind hop 3 (10.0.2.1)");
        assert!(rest.starts_with('+') && rest.ends_with(") from there on") && rest.contains(" … "), "{rest}");
        let first = judge(&path(4, Some(0), 80_000.0, 7), true).1.because;
        assert!(first.starts_with("the queue stands at the first link, before hop 1 (10.0.0.1): +"), "{first}");
    }

    #[test]
    fn a_silent_hop_makes_the_place_a_range_only_beside_the_queue() {
        let mut silent = path(4, Some(2), 80_000.0, 3);
        silent[1] = Trips::default();
        assert_eq!(place(&silent), Some((1, 3)));
        let because = judge(&silent, true).1.because;
        assert!(because.contains("between hop 1 (10.0.0.1) and hop 3 (10.0.2.1)"), "{because}");
        assert!(because.ends_with("hop 2 does not answer"), "{because}");
        let mut elsewhere = path(4, Some(3), 80_000.0, 3);
        elsewhere[1] = Trips::default();
        assert_eq!(place(&elsewhere), Some((3, 4)));
    }

    #[test]
    fn a_hop_between_two_queues_is_on_neither_side() {
        let mut two = path(4, Some(3), 80_000.0, 5);
        let queue: Vec<Option<f64>> = two[3].loaded_us.clone();
        two[1].loaded_us = queue.iter().map(|us| us.map(|us| us / 2.0)).collect();
        two[2].loaded_us = two[1].loaded_us.clone();
        let because = judge(&two, true).1.because;
        assert!(because.contains("between hop 1 (10.0.0.1) and hop 4 (10.0.3.1)"), "{because}");
    }

    #[test]
    fn an_added_delay_that_may_be_nothing_is_no_queue() {
        let mut noisy = path(3, None, 0.0, 5);
        for (round, late) in [0.0, 20_000.0, 0.0, 30_000.0, 25_000.0, 0.0, 22_000.0].into_iter().enumerate() {
            for hop in &mut noisy[1..] {
                hop.loaded_us[round] = hop.loaded_us[round].map(|us| us + late);
            }
        }
        let (judged, verdict) = judge(&noisy, true);
        let added = judged[2].added.unwrap();
        assert!(added.centre > LEAST_US && added.low <= 0.0, "{added:?}");
        assert_eq!(verdict.place, None);
        assert!(verdict.because.starts_with("unknown where a queue stands: ") && verdict.because.ends_with("nothing"));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let because = |path: &[Trips], reached| {
            let (_, verdict) = judge(path, reached);
            assert!(verdict.place.is_none(), "{verdict:?}");
            verdict.because
        };
        assert!(because(&[], false).ends_with("no hop answered the probes"));
        let mut few = path(2, Some(1), 80_000.0, 5);
        for hop in &mut few {
            hop.idle_us.truncate(1);
        }
        assert!(because(&few, true).ends_with("the hops answered too few probes"));
        let mut short = path(2, Some(1), 80_000.0, 5);
        for (hop, rounds) in short.iter_mut().zip([0, 1]) {
            hop.loaded_us.truncate(rounds);
        }
        let time = because(&short, true);
        assert!(time.contains("time for 1 round of probes under load: ") && time.ends_with(LONGER), "{time}");
        // The far end drops the probes: what is behind the last router cannot be seen.
        let cut = because(&path(3, None, 0.0, 5), false);
        assert!(cut.contains("to hop 3 changed by") && cut.ends_with("nothing behind it answers"), "{cut}");
        // A queue before it can.
        assert!(judge(&path(3, Some(1), 80_000.0, 5), false).1.place.is_some());
    }
}
