//! Pairs of numbered hosts, in rounds. The hosts of `pairs` are numbered from 0.

use super::model::Shape;

/// The numbers of the host that connects and of the one that accepts.
pub(super) type Pair = (usize, usize);

/// A shape of pairs.
pub(super) struct Form {
    pub(super) shape: Shape,
    /// Its name in plans.
    pub(super) name: &'static str,
    /// The key that names the host which is in every pair.
    pub(super) hub: Option<&'static str>,
    /// Whether its pairs are one load: all run at once, and hosts may be in several.
    pub(super) is_load: bool,
    /// Its rounds among so many hosts, one way. The hub, where there is one, has the number behind the last host.
    rounds: fn(usize) -> Vec<Vec<Pair>>,
}

/// Every shape.
pub(super) const FORMS: [Form; 6] = [
    Form { shape: Shape::All, name: "all", hub: None, is_load: false, rounds: all },
    Form { shape: Shape::Neighbours, name: "neighbours", hub: None, is_load: false, rounds: neighbours },
    Form { shape: Shape::Ring, name: "ring", hub: None, is_load: true, rounds: ring },
    Form { shape: Shape::Bisection, name: "bisection", hub: None, is_load: true, rounds: bisection },
    Form { shape: Shape::Incast, name: "incast", hub: Some("to"), is_load: true, rounds: incast },
    Form { shape: Shape::Outcast, name: "outcast", hub: Some("from"), is_load: true, rounds: outcast },
];

impl Form {
    pub(super) fn of(shape: Shape) -> &'static Self {
        // Each shape has its row.
        FORMS.iter().find(|form| form.shape == shape).unwrap_or(&FORMS[0])
    }

    /// Number of pairs among so many hosts, one way. No pair is made for it.
    pub(super) fn count(&self, hosts: usize) -> usize {
        match self.shape {
            Shape::All => hosts.saturating_mul(hosts.saturating_sub(1)) / 2,
            Shape::Neighbours => hosts.saturating_sub(1),
            Shape::Bisection => hosts / 2,
            Shape::Ring | Shape::Incast | Shape::Outcast => hosts,
        }
    }

    /// The rounds: with `both_ways` each pair in both directions, with `alone` each pair in a round of its own.
    pub(super) fn rounds(&self, hosts: usize, both_ways: bool, alone: bool) -> Vec<Vec<Pair>> {
        let mut rounds = Vec::new();
        for mut round in (self.rounds)(hosts) {
            let back: Vec<Pair> = round.iter().map(|(from, to)| (*to, *from)).collect();
            if both_ways && self.is_load {
                // In a ring of two hosts the way back is a pair already.
                round.extend(back.iter().filter(|pair| !round.contains(pair)).copied().collect::<Vec<_>>());
            }
            rounds.push(round);
            rounds.extend((both_ways && !self.is_load).then_some(back));
        }
        if alone { rounds.into_iter().flatten().map(|pair| vec![pair]).collect() } else { rounds }
    }
}

/// Every two hosts once, by the circle method: one host stays, the others move by one place a round around it, and those who
/// face each other are a pair. With an odd number, the one without an opposite rests.
fn all(hosts: usize) -> Vec<Vec<Pair>> {
    let circle = hosts.next_multiple_of(2).saturating_sub(1);
    let round = |r: usize| {
        let facing = (1..=circle / 2).map(move |k| ((r + k) % circle, (r + circle - k) % circle));
        std::iter::once((r, circle)).chain(facing).filter(|(a, b)| (*a).max(*b) < hosts).map(balanced).collect()
    };
    (0..circle).map(round).collect()
}

/// One of the two directions, chosen so that every host sends about as often as it receives.
fn balanced((a, b): Pair) -> Pair {
    let (low, high) = (a.min(b), a.max(b));
    if (low + high).is_multiple_of(2) { (high, low) } else { (low, high) }
}

fn neighbours(hosts: usize) -> Vec<Vec<Pair>> {
    let from = |first: usize| (first..hosts.saturating_sub(1)).step_by(2).map(|i| (i, i + 1)).collect();
    (0..2).map(from).filter(|round: &Vec<Pair>| !round.is_empty()).collect()
}

fn ring(hosts: usize) -> Vec<Vec<Pair>> {
    vec![(0..hosts).map(|i| (i, (i + 1) % hosts)).collect()]
}

fn bisection(hosts: usize) -> Vec<Vec<Pair>> {
    vec![(0..hosts / 2).map(|i| (i, i + hosts / 2)).collect()]
}

fn incast(hosts: usize) -> Vec<Vec<Pair>> {
    vec![(0..hosts).map(|i| (i, hosts)).collect()]
}

fn outcast(hosts: usize) -> Vec<Vec<Pair>> {
    vec![(0..hosts).map(|i| (hosts, i)).collect()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn rounds(shape: Shape, hosts: usize, both_ways: bool) -> Vec<Vec<Pair>> {
        Form::of(shape).rounds(hosts, both_ways, false)
    }

    #[test]
    fn every_shape_has_its_row_and_its_name() {
        for form in &FORMS {
            assert!(Form::of(form.shape).name == form.name);
            assert_eq!(serde_json::to_value(form.shape).unwrap(), form.name);
        }
    }

    #[test]
    fn shapes_are_those_of_their_names() {
        assert_eq!(rounds(Shape::Ring, 3, false), [[(0, 1), (1, 2), (2, 0)]]);
        assert_eq!(rounds(Shape::Ring, 2, true), [[(0, 1), (1, 0)]]);
        assert_eq!(rounds(Shape::Bisection, 4, false), [[(0, 2), (1, 3)]]);
        assert_eq!(rounds(Shape::Bisection, 4, true), [[(0, 2), (1, 3), (2, 0), (3, 1)]]);
        assert_eq!(rounds(Shape::Incast, 2, false), [[(0, 2), (1, 2)]]);
        assert_eq!(rounds(Shape::Outcast, 2, false), [[(2, 0), (2, 1)]]);
        assert_eq!(rounds(Shape::Neighbours, 4, false), [vec![(0, 1), (2, 3)], vec![(1, 2)]]);
        assert_eq!(rounds(Shape::Neighbours, 2, true), [[(0, 1)], [(1, 0)]]);
        assert_eq!(Form::of(Shape::Ring).rounds(3, false, true), [[(0, 1)], [(1, 2)], [(2, 0)]]);
        assert_eq!(rounds(Shape::All, 64, true).len(), 126);
    }

    proptest! {
        #[test]
        fn all_measures_every_ordered_pair_once_in_disjoint_rounds(hosts in 2usize..40) {
            let rounds = rounds(Shape::All, hosts, true);
            let pairs: Vec<Pair> = rounds.iter().flatten().copied().collect();
            let distinct: BTreeSet<Pair> = pairs.iter().copied().collect();
            prop_assert_eq!((pairs.len(), distinct.len()), (hosts * (hosts - 1), hosts * (hosts - 1)));
            prop_assert!(distinct.iter().all(|(a, b)| a != b && *a < hosts && *b < hosts));
            // As few rounds as there can be: each has all hosts, but for one of an odd number.
            prop_assert_eq!(rounds.len(), 2 * (hosts.next_multiple_of(2) - 1));
        }

        #[test]
        fn one_way_has_each_two_hosts_once_and_no_host_only_sends(hosts in 2usize..40) {
            let pairs: Vec<Pair> = rounds(Shape::All, hosts, false).into_iter().flatten().collect();
            let distinct: BTreeSet<Pair> = pairs.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
            prop_assert_eq!((pairs.len(), distinct.len()), (hosts * (hosts - 1) / 2, hosts * (hosts - 1) / 2));
            for host in 0..hosts {
                let sends = pairs.iter().filter(|(from, _)| *from == host).count();
                prop_assert!(sends.abs_diff(hosts - 1 - sends) <= 1, "{} sends {} of {}", host, sends, hosts - 1);
            }
        }

        #[test]
        fn rounds_are_disjoint_and_counted(hosts in 2usize..40, both_ways: bool, alone: bool) {
            for form in &FORMS {
                let rounds = form.rounds(hosts, both_ways, alone);
                let pairs: Vec<Pair> = rounds.iter().flatten().copied().collect();
                let distinct: BTreeSet<Pair> = pairs.iter().copied().collect();
                prop_assert_eq!(distinct.len(), pairs.len(), "{}", form.name);
                if !both_ways {
                    prop_assert_eq!(pairs.len(), form.count(hosts), "{}", form.name);
                }
                for round in rounds.iter().filter(|_| !form.is_load || alone) {
                    let ends: BTreeSet<usize> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
                    prop_assert_eq!(ends.len(), 2 * round.len(), "{}", form.name);
                }
            }
        }
    }
}
