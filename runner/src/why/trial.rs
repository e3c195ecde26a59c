//! Measures a test in turns with its changes until each of them is decided.

use std::collections::BTreeMap;

use analyze::judge::{
    baseline::Promise,
    comparison::{self, Comparison, Rule},
};
use netcore::lock::Lock;
use schemas::metrics::{Better, Metric};

use super::changes::Expected;
use crate::{
    gate,
    schedule::{
        run::Finished,
        step::{Enough, Step},
    },
};

/// Rounds before the first look: the fewest in which one of two changes can be significant.
pub const FEWEST: u32 = 6;

/// Rounds after which an open question stays open.
pub const MOST: u32 = 12;

/// Largest p of a change that is there.
const ALPHA: f64 = 0.01;

/// Share of the expected gain from which on a change is the one that the cause promised.
const PART: f64 = 1.0 / 3.0;

/// Smallest gain that counts where the cause does not say how large it is.
const LEAST: f64 = 0.05;

/// Largest gain that is none, where the cause says that there is none.
const NONE: f64 = 0.1;

schemas::words! {
    /// Whether a change did what the cause promised.
    ChangeOutcome {
        Confirmed = "confirmed",
        Refuted = "refuted",
        Undecided = "undecided",
    }
}

/// A test and its changes while they are measured.
#[derive(Debug)]
pub struct Trial {
    metric: &'static Metric,
    /// Number of the member that is looked at.
    member: usize,
    /// Id of the case as it was, then those of its changes.
    ids: Vec<String>,
    expected: Vec<Expected>,
    values: Lock<BTreeMap<String, Vec<f64>>>,
}

impl Trial {
    /// `changed`: the ids of the changed cases, with what is expected of each.
    pub fn new(metric: &'static Metric, member: usize, was: &str, changed: &[(String, Expected)]) -> Self {
        let ids = std::iter::once(was.to_owned()).chain(changed.iter().map(|(id, _)| id.clone())).collect();
        Self { metric, member, ids, expected: changed.iter().map(|(_, e)| *e).collect(), values: Lock::default() }
    }

    /// Each change compared with the test as it was, and what that says.
    pub fn judged(&self) -> Vec<(Comparison, ChangeOutcome)> {
        let values = self.values.lock();
        let of = |id: &String| values.get(id).map_or(&[][..], Vec::as_slice);
        let rule = Rule { alpha: ALPHA, min_ratio: LEAST, ..Rule::of(self.metric) };
        let was = of(&self.ids[0]);
        let compared = self.ids[1..].iter().map(|id| {
            let rounds: Vec<(f64, f64)> = was.iter().copied().zip(of(id).iter().copied()).collect();
            Comparison::in_turns(&rounds, rule, self.expected.len())
        });
        let mut compared: Vec<Comparison> = compared.collect();
        comparison::decide(&mut compared, true);
        let said = |comparison: Comparison, expected: &Expected| {
            let said = said(&comparison, *expected);
            (comparison, said)
        };
        compared.into_iter().zip(&self.expected).map(|(comparison, expected)| said(comparison, expected)).collect()
    }
}

/// The answer of a comparison about the cause.
fn said(comparison: &Comparison, expected: Expected) -> ChangeOutcome {
    let (Some(p), Some((low, high))) = (comparison.p, comparison.interval) else { return ChangeOutcome::Undecided };
    // For a metric of which less is better a gain is a decrease.
    let (low, high) = if comparison.rule.better == Better::Lower { (-high, -low) } else { (low, high) };
    let (bound, least) = match expected {
        Expected::Gain(gain) => (gain * PART, gain * PART),
        Expected::Better => (LEAST, LEAST),
        Expected::Same(gain) => (gain * PART, NONE),
    };
    let (above, below) = match expected {
        Expected::Same(_) => (ChangeOutcome::Refuted, ChangeOutcome::Confirmed),
        _ => (ChangeOutcome::Confirmed, ChangeOutcome::Refuted),
    };
    if p <= ALPHA && low >= bound {
        above
    } else if high < least {
        below
    } else {
        ChangeOutcome::Undecided
    }
}

impl Enough for Trial {
    fn enough(&self, step: &Step, so_far: &Finished) -> bool {
        let (metric, rule) = (self.metric, Rule::DEFAULT);
        let promise = Promise { metric, rule, case_ids: Vec::new(), file: String::new(), line: None, column: None };
        let mut measured = gate::promised(step, so_far, &[promise]);
        let values =
            if self.member < measured.len() { measured.swap_remove(self.member).values.remove(0) } else { Vec::new() };
        self.values.lock().insert(step.id.clone(), values);
        let is_open = || self.judged().iter().any(|(_, said)| *said == ChangeOutcome::Undecided);
        so_far.done >= MOST || so_far.done >= FEWEST && !is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::metrics;

    /// A trial of one change with these values.
    fn trial(name: &str, was: &[f64], changed: &[f64], expected: Expected) -> ChangeOutcome {
        let trial = Trial::new(metrics::find(name).unwrap(), 0, "a", &[("b".into(), expected)]);
        trial.values.lock().extend([("a".into(), was.to_vec()), ("b".into(), changed.to_vec())]);
        trial.judged()[0].1
    }

    /// Values around a centre.
    fn around(centre: f64) -> Vec<f64> {
        [0.99, 1.01, 1.0, 0.985, 1.02, 1.005].map(|part| part * centre).into()
    }

    #[test]
    fn a_change_is_confirmed_by_the_gain_that_its_cause_promised() {
        let throughput = |changed, expected| trial("throughput", &around(100.0), &around(changed), expected);
        assert_eq!(throughput(198.0, Expected::Gain(1.0)), ChangeOutcome::Confirmed);
        assert_eq!(throughput(140.0, Expected::Gain(1.0)), ChangeOutcome::Confirmed, "the next limit caps it");
        assert_eq!(
            throughput(110.0, Expected::Gain(1.0)),
            ChangeOutcome::Refuted,
            "a gain of a tenth of the promised one"
        );
        assert_eq!(throughput(100.0, Expected::Gain(1.0)), ChangeOutcome::Refuted);
        assert_eq!(throughput(130.0, Expected::Better), ChangeOutcome::Confirmed);
        assert_eq!(throughput(70.0, Expected::Better), ChangeOutcome::Refuted);
        assert_eq!(throughput(101.0, Expected::Same(1.0)), ChangeOutcome::Confirmed, "a full link stays full");
        assert_eq!(throughput(190.0, Expected::Same(1.0)), ChangeOutcome::Refuted, "a window was the limit");
        assert_eq!(
            throughput(150.0, Expected::Same(3.0)),
            ChangeOutcome::Undecided,
            "half as much again is not nothing"
        );
    }

    /// How many of `trials` of this gain come to each answer, in rounds that scatter by `noise`.
    fn counted(gain: f64, noise: f64, expected: Expected) -> [u32; 3] {
        // 300 gave the figures in docs/guide/why.md.
        const TRIALS: u32 = 20;
        let mut state = 1u64;
        let mut scatter = || {
            // Twelve uniform numbers are nearly normal. The generator is Knuth's (MMIX).
            let uniform = (0..12).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1u64 << 53) as f64
            });
            (noise * (uniform.sum::<f64>() - 6.0)).exp()
        };
        let mut counts = [0; 3];
        for _ in 0..TRIALS {
            let (mut was, mut changed) = (Vec::new(), Vec::new());
            let said = loop {
                was.push(100.0 * scatter());
                changed.push(100.0 * (1.0 + gain) * scatter());
                let said = if was.len() < FEWEST as usize {
                    ChangeOutcome::Undecided
                } else {
                    trial("throughput", &was, &changed, expected)
                };
                if said != ChangeOutcome::Undecided || was.len() == MOST as usize {
                    break said;
                }
            };
            counts[said as usize] += 1;
        }
        counts
    }

    #[test]
    fn what_is_true_is_confirmed_and_what_is_false_is_not() {
        for (noise, most_open) in [(0.1, 1), (0.3, 18)] {
            let [confirmed, refuted, open] = counted(0.0, noise, Expected::Gain(1.0));
            assert!(confirmed <= 1 && open <= most_open, "no effect, noise {noise}: {confirmed} {refuted} {open}");
            let [confirmed, refuted, open] = counted(1.0, noise, Expected::Gain(1.0));
            assert!(refuted <= 1 && open <= most_open, "twice as much, noise {noise}: {confirmed} {refuted} {open}");
            let [confirmed, ..] = counted(0.0, noise, Expected::Better);
            assert!(confirmed <= 1, "no effect taken for a better one, noise {noise}: {confirmed}");
            let [_, refuted, _] = counted(0.0, noise, Expected::Same(1.0));
            assert!(refuted <= 1, "a full link taken for a window, noise {noise}: {refuted}");
        }
    }

    #[test]
    fn less_loss_is_a_gain() {
        let loss = |changed, expected| trial("loss_ratio", &around(0.2), &around(changed), expected);
        assert_eq!(loss(0.0001, Expected::Gain(1.0)), ChangeOutcome::Confirmed);
        assert_eq!(loss(0.2, Expected::Gain(1.0)), ChangeOutcome::Refuted);
        assert_eq!(loss(0.4, Expected::Gain(1.0)), ChangeOutcome::Refuted);
    }

    #[test]
    fn too_few_rounds_decide_nothing() {
        let two = |centre: f64| around(centre)[..2].to_vec();
        assert_eq!(trial("throughput", &two(100.0), &two(200.0), Expected::Gain(1.0)), ChangeOutcome::Undecided);
        assert_eq!(trial("throughput", &[], &[], Expected::Better), ChangeOutcome::Undecided);
        let wide = [100.0, 20.0, 300.0, 50.0, 180.0, 90.0];
        assert_eq!(
            trial("throughput", &wide, &[90.0, 210.0, 40.0, 310.0, 60.0, 150.0], Expected::Gain(1.0)),
            ChangeOutcome::Undecided
        );
    }
}
