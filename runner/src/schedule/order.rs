//! The order in which cases run.

use std::collections::BTreeMap;

use chacha20::ChaCha8Rng;
use rand::{SeedableRng, seq::SliceRandom};

use crate::plan::model::Order;

/// The cases of the next pass, in order. `done` has the finished iterations of each case; `None`: it needs no more. A pass
/// is the first unfinished iteration, so an interrupted run goes on in the middle of one. Cases with the same `round` are
/// measured together.
///
/// The shuffle depends only on the seed and the pass, so a resumed run continues the same order.
pub fn pass<R: Ord>(
    order: Order,
    seed: u64,
    done: &[Option<u32>],
    round: impl Fn(usize) -> Option<R>,
) -> Vec<Vec<usize>> {
    let open = || done.iter().enumerate().filter_map(|(i, d)| d.map(|d| (i, d)));
    match order {
        Order::Sequential => {
            let Some((first, _)) = open().next() else { return Vec::new() };
            let of = round(first);
            let with_it = |i: &usize| *i == first || of.is_some() && round(*i) == of;
            vec![open().map(|(i, _)| i).filter(with_it).collect()]
        }
        Order::Interleave | Order::Random => {
            let Some(pass) = open().map(|(_, d)| d).min() else { return Vec::new() };
            let mut cases: Vec<usize> = open().filter(|(_, d)| *d == pass).map(|(i, _)| i).collect();
            if order == Order::Random {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(pass.into());
                cases.shuffle(&mut rng);
            }
            together(cases, round)
        }
    }
}

/// The cases of each round, at the place of the first of them.
fn together<R: Ord>(cases: Vec<usize>, round: impl Fn(usize) -> Option<R>) -> Vec<Vec<usize>> {
    let mut places: BTreeMap<R, usize> = BTreeMap::new();
    let mut all: Vec<Vec<usize>> = Vec::new();
    for i in cases {
        match round(i).map(|round| *places.entry(round).or_insert(all.len())) {
            Some(place) if place < all.len() => all[place].push(i),
            _ => all.push(vec![i]),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(order: Order, seed: u64, done: &[Option<u32>]) -> Vec<usize> {
        pass(order, seed, done, |_| None::<u32>).concat()
    }

    #[test]
    fn interleaving_takes_the_same_iteration_of_every_case() {
        assert_eq!(round(Order::Interleave, 0, &[Some(1), Some(0), None, Some(0)]), [1, 3]);
        assert_eq!(round(Order::Interleave, 0, &[Some(1), Some(1), None]), [0, 1]);
        assert!(round(Order::Interleave, 0, &[None, None]).is_empty());
    }

    #[test]
    fn sequential_finishes_a_case_first() {
        assert_eq!(round(Order::Sequential, 0, &[None, Some(4), Some(0)]), [1]);
    }

    #[test]
    fn a_seed_always_gives_the_same_order_and_rounds_differ() {
        let all = |d| vec![Some(d); 20];
        let first = round(Order::Random, 7, &all(0));
        assert_eq!(first, round(Order::Random, 7, &all(0)));
        assert_ne!(first, round(Order::Random, 7, &all(1)));
        assert_ne!(first, round(Order::Random, 8, &all(0)));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_cases_of_a_round_are_measured_together() {
        // Cases 1 and 3 are a round, and so are 2 and 4.
        let of = |i: usize| (i > 0).then_some(i % 2);
        let all = [Some(0); 5];
        assert_eq!(pass(Order::Interleave, 0, &all, of), [vec![0], vec![1, 3], vec![2, 4]]);
        assert_eq!(pass(Order::Sequential, 0, &all, of), [[0]]);
        assert_eq!(pass(Order::Sequential, 0, &[None, Some(2), Some(0), Some(1), Some(0)], of), [[1, 3]]);
        assert_eq!(pass(Order::Interleave, 0, &[None, Some(1), Some(0), Some(0), Some(0)], of), [vec![2, 4], vec![3]]);
        let mut shuffled = pass(Order::Random, 3, &all, of).concat();
        shuffled.sort_unstable();
        assert_eq!(shuffled, [0, 1, 2, 3, 4]);
    }
}
