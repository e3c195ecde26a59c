//! The published values, over threads and over connections.

use super::*;
use crate::ranks::{collectives::part, memory, mesh};

fn verified(ranks: &mut dyn Communicator, kernel: Kernel, class: Class) -> RankReport {
    let mut outcome = RankReport::default();
    Prepared::new(kernel, class, ranks).unwrap().run(ranks, &mut outcome).unwrap();
    part(ranks).unwrap();
    outcome
}

fn holds(outcomes: &[RankReport], checks: u32) {
    for outcome in outcomes {
        let result = outcome.nas.unwrap();
        assert_eq!((result.checks, result.passed), (checks, checks));
        assert_eq!(Some(result), outcomes[0].nas, "the same at every rank");
        assert!(result.mops_per_s > 0.0 && result.timed_ns >= outcome.elapsed_ns);
        assert!(outcome.communication_ns <= outcome.elapsed_ns);
    }
}

#[test]
fn ep_meets_the_published_sums() {
    holds(&memory::run(3, 4096, |ranks| verified(ranks, Kernel::Ep, Class::S)), 2);
    let outcomes = mesh::tests::run(2, |mut mesh| verified(&mut mesh, Kernel::Ep, Class::W));
    holds(&outcomes, 2);
    // Three sums: of 8 bytes, of 8 bytes, and of ten numbers.
    let traffic = outcomes[0].traffic.unwrap();
    assert_eq!((traffic.messages_sent, traffic.bytes_sent), (3, 96));
}

#[test]
fn is_meets_the_published_ranks_for_any_number_of_ranks() {
    for size in [1, 2, 3, 4, 8] {
        holds(
            &memory::run(size, 4096, |ranks| verified(ranks, Kernel::Is, Class::S)),
            50 + u32::try_from(size).unwrap(),
        );
    }
    holds(&memory::run(5, 65536, |ranks| verified(ranks, Kernel::Is, Class::W)), 55);
    let outcomes = mesh::tests::run(4, |mut mesh| verified(&mut mesh, Kernel::Is, Class::W));
    holds(&outcomes, 54);
    // Ten iterations send nearly all keys away: three quarters of 2^20 keys of 4 bytes.
    let sent: u64 = outcomes.iter().map(|outcome| outcome.traffic.unwrap().bytes_sent).sum();
    let keys = 10 * (3 << 20);
    assert!((keys..keys + keys / 20).contains(&sent), "{sent}");
}

#[test]
#[ignore = "minutes without optimisation"]
fn larger_classes_meet_the_published_values() {
    for class in [Class::A, Class::B] {
        holds(&memory::run(2, 1 << 20, |ranks| verified(ranks, Kernel::Ep, class)), 2);
        holds(&memory::run(4, 1 << 20, |ranks| verified(ranks, Kernel::Is, class)), 54);
    }
}

#[test]
fn a_value_that_is_not_met_is_an_error() {
    let errors = memory::run(2, 4096, |ranks| {
        let mut kernel = Prepared::new(Kernel::Is, Class::S, ranks).unwrap();
        if let Prepared::Is(kernel) = &mut kernel {
            kernel.spoil();
        }
        let mut outcome = RankReport::default();
        let error = kernel.run(ranks, &mut outcome).unwrap_err().to_string();
        part(ranks).unwrap();
        assert!(outcome.nas.unwrap().passed < 52);
        error
    });
    for error in errors {
        assert!(error.starts_with("the verification of nas_is, class S, has failed: "), "{error}");
        assert!(error.ends_with(" of 52 published values were met"), "{error}");
    }
}

#[test]
fn memory_is_told_before() {
    assert!(memory_bytes(Kernel::Ep, Class::B, 2) < 1 << 20);
    let (one, four) = (memory_bytes(Kernel::Is, Class::B, 1), memory_bytes(Kernel::Is, Class::B, 4));
    assert!(one > 4 * (1 << 25) * 4 && one < 2 * 4 * (1 << 25) * 4, "{one}");
    assert!(four < one / 3);
}

#[test]
fn a_sequence_goes_on_where_it_is_entered() {
    let mut random = Random::after(314_159_265, 0);
    let drawn: Vec<f64> = (0..1000).map(|_| random.draw()).collect();
    for place in [1, 2, 999] {
        assert_eq!(
            Random::after(314_159_265, place).draw().to_bits(),
            drawn[usize::try_from(place).unwrap()].to_bits()
        );
    }
    assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)));
}
