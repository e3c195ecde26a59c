//! Every algorithm of every operation against its naive result, for all small numbers of ranks and odd sizes.

use proptest::prelude::*;

use super::{
    super::{Communicator, memory, prepared::Prepared},
    Algorithm, *,
};
use crate::spec::ranks::Operation;

/// Two rounds of an operation; the second would show bytes that the first left under way.
fn rounds(ranks: &mut dyn Communicator, operation: Operation, algorithm: Algorithm, message: usize) {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut prepared = Prepared::with(operation, algorithm, message, 0, rank, size).unwrap();
    for round in 1..3 {
        prepared.fill(round);
        let done = prepared.run(ranks).and_then(|()| prepared.check(round));
        done.unwrap_or_else(|error| panic!("{operation:?} {algorithm:?} of {message} bytes, {size} ranks: {error}"));
    }
}

/// All operations and algorithms that are possible between so many ranks with messages of so many bytes.
pub fn each_way(ranks: &mut dyn Communicator, message: usize) {
    for &operation in Operation::ALL {
        let message = if operation.facts().adds { message / 8 * 8 } else { message };
        if super::super::prepared::check(operation, message as u64, ranks.size()).is_ok() {
            for algorithm in Algorithm::all_of(operation) {
                rounds(ranks, operation, algorithm, message);
            }
        }
    }
}

#[test]
fn all_numbers_of_ranks_get_the_naive_result() {
    for size in 2..10 {
        for message in [0, 1, 8, 61, 200] {
            memory::run(size, 64, |ranks| each_way(ranks, message));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Rings of a few bytes: nothing may rely on a buffer between ranks.
    #[test]
    fn any_size_gets_the_naive_result(size in 2_usize..10, message in 0_usize..3000, ring in 1_usize..5000) {
        memory::run(size, ring, |ranks| each_way(ranks, message));
    }
}

#[test]
fn a_wrong_byte_and_a_wrong_sum_are_found() {
    let errors = memory::run(2, 64, |ranks| {
        let mut given = Prepared::with(Operation::Alltoall, Algorithm::Pairwise, 5, 0, ranks.rank(), 2).unwrap();
        given.run(ranks).unwrap();
        let mut sums = Prepared::with(Operation::Allreduce, Algorithm::Ring, 16, 0, ranks.rank(), 2).unwrap();
        sums.run(ranks).unwrap();
        assert!(given.check(0).is_ok() && sums.check(0).is_ok());
        [given.check(1), sums.check(1)].map(|checked| checked.unwrap_err().to_string())
    });
    assert_eq!(
        errors[1],
        [
            "rank 1 got a wrong result of alltoall at byte 0, which rank 0 sent",
            "rank 1 got a wrong result of allreduce at byte 0",
        ]
    );
}

#[test]
fn every_rank_but_the_root_is_the_child_of_its_parent() {
    for ranks in 1..40 {
        let mut parents = vec![0; ranks];
        for rank in 0..ranks {
            for distance in children(rank, ranks) {
                parents[rank + distance] += 1;
                assert_eq!(rank + distance - subtree(rank + distance, ranks), rank);
                assert_eq!(subtree(rank + distance, ranks), distance);
            }
        }
        assert_eq!(parents[0], 0);
        assert!(parents[1..].iter().all(|count| *count == 1), "{ranks}: {parents:?}");
    }
}
