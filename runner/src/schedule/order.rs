//! The order in which cases run.

use chacha20::ChaCha8Rng;
use rand::{SeedableRng, seq::SliceRandom};

use crate::plan::model::Order;

/// The cases of the next round, in order. `done` has the finished iterations of each case; `None`: it needs no more. A round
/// is the first unfinished iteration, so an interrupted run goes on in the middle of one.
///
/// The shuffle depends only on the seed and the round, so a resumed run continues the same order.
pub fn round(order: Order, seed: u64, done: &[Option<u32>]) -> Vec<usize> {
    let open = || done.iter().enumerate().filter_map(|(i, d)| d.map(|d| (i, d)));
    match order {
        Order::Sequential => open().map(|(i, _)| i).take(1).collect(),
        Order::Interleave | Order::Random => {
            let Some(round) = open().map(|(_, d)| d).min() else { return Vec::new() };
            let mut cases: Vec<usize> = open().filter(|(_, d)| *d == round).map(|(i, _)| i).collect();
            if order == Order::Random {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(round.into());
                cases.shuffle(&mut rng);
            }
            cases
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
