use super::*;

/// Noise between −1 and 1 %, different in every cell: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn noise(from: usize, to: usize) -> f64 {
    let mut mixed = (from * 64 + to + 1) as u64;
    mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed >> 11) as f64 / (1_u64 << 53) as f64 - 0.5) * 0.02
}

/// Hosts n1 … at 100 with noise, times the speed of each pair.
fn fabric(hosts: usize, speed: impl Fn(usize, usize) -> f64) -> Matrix {
    let mut matrix = Matrix::new((1..=hosts).map(|i| format!("n{i}")).collect());
    for from in 0..hosts {
        for to in (0..hosts).filter(|to| *to != from) {
            matrix.set(from, to, Cell::Value(100.0 * speed(from, to) * (1.0 + noise(from, to))));
        }
    }
    matrix
}

fn judge(matrix: &Matrix) -> Survey {
    survey(matrix, &Rule::new(Better::Higher))
}

fn kinds(survey: &Survey) -> Vec<Kind> {
    survey.suspects.iter().map(|s| s.kind).collect()
}

#[test]
fn a_healthy_fabric_names_nothing() {
    for hosts in [4, 8, 16] {
        let found = judge(&fabric(hosts, |_, _| 1.0));
        assert_eq!((found.suspect_count(), found.limits.as_slice()), (Some(0), &[][..]), "{hosts}");
        assert!((found.overall.unwrap() - 100.0).abs() < 1.0);
        assert!((0.003..0.01).contains(&found.noise.unwrap()), "{:?}", found.noise);
    }
}

#[test]
fn hosts_and_links_are_told_apart() {
    let slow = |from: usize, to: usize| match (from, to) {
        (5, _) | (_, 5) => 0.95,
        (2, 7) => 0.9,
        _ => 1.0,
    };
    let found = judge(&fabric(12, slow));
    assert_eq!(kinds(&found), [Kind::Host { host: 5, role: Role::Both }, Kind::Link { from: 2, to: 7 }]);
    let [host, link] = [found.suspects[0], found.suspects[1]];
    assert!(host.low < 0.05 && 0.05 < host.high && host.high - host.low < 0.01, "{host:?}");
    assert!(link.low < 0.1 && 0.1 < link.high, "{link:?}");
    assert_eq!((host.shown, host.pairs), (22, 22));
    assert!(host.example.0 == 5 || host.example.1 == 5);
    assert_eq!(link.example, (2, 7));
}

#[test]
fn each_direction_of_a_host_has_its_own_effect() {
    let sender = judge(&fabric(10, |from, _| if from == 3 { 0.93 } else { 1.0 }));
    assert_eq!(kinds(&sender), [Kind::Host { host: 3, role: Role::Sender }]);
    let receiver = judge(&fabric(10, |_, to| if to == 3 { 0.93 } else { 1.0 }));
    assert_eq!(kinds(&receiver), [Kind::Host { host: 3, role: Role::Receiver }]);
    assert_eq!(receiver.suspects[0].pairs, 9);
    let [as_sender, as_receiver] = receiver.effects[3].map(Option::unwrap);
    assert!(as_sender.abs() < 0.01 && (as_receiver - 0.07).abs() < 0.01);
}

#[test]
fn latencies_are_worse_when_higher() {
    let matrix = fabric(8, |from, to| if from == 1 || to == 1 { 1.2 } else { 1.0 });
    let found = survey(&matrix, &Rule::new(Better::Lower));
    assert_eq!(kinds(&found), [Kind::Host { host: 1, role: Role::Both }]);
    assert!((found.suspects[0].worse - 0.2).abs() < 0.02, "{found:?}");
    // A host that is faster than the others is no suspect.
    assert_eq!(judge(&matrix).suspects, []);
}

#[test]
fn several_faults_do_not_hide_each_other() {
    let slow = |from: usize, to: usize| match (from, to) {
        (0, _) | (_, 0) => 0.8,
        (1, _) => 0.9,
        (2, 3) | (3, 2) => 0.7,
        (4, 9) => 0.85,
        _ => 1.0,
    };
    let found = judge(&fabric(12, slow));
    let mut names = kinds(&found);
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(names.contains(&Kind::Host { host: 0, role: Role::Both }));
    assert!(names.contains(&Kind::Host { host: 1, role: Role::Sender }));
    names.retain(|k| matches!(k, Kind::Link { .. }));
    assert_eq!(names[2], Kind::Link { from: 4, to: 9 }, "the least slow one last");
}

#[test]
fn an_effect_must_matter() {
    let matrix = fabric(16, |from, to| if from == 4 || to == 4 { 0.98 } else { 1.0 });
    assert_eq!(judge(&matrix).suspects, [], "2 % is below the least effect");
    let found = survey(&matrix, &Rule { least_effect: 0.01, ..Rule::new(Better::Higher) });
    assert_eq!(kinds(&found), [Kind::Host { host: 4, role: Role::Both }]);
}

#[test]
fn values_without_noise_have_no_infinite_significance() {
    let mut matrix = fabric(6, |_, _| 1.0);
    for (from, to, _) in matrix.clone().pairs() {
        matrix.set(from, to, Cell::Value(100.0));
    }
    let found = judge(&matrix);
    assert_eq!((found.suspects.len(), found.spread), (0, Some(0.0)));
    matrix.set(0, 1, Cell::Value(98.0));
    assert_eq!(judge(&matrix).suspects, []);
    matrix.set(0, 1, Cell::Value(90.0));
    let found = judge(&matrix);
    assert_eq!(kinds(&found), [Kind::Link { from: 0, to: 1 }]);
    assert!((found.suspects[0].worse - 0.1).abs() < 1e-6);
}

#[test]
fn missing_and_failed_pairs_are_listed_and_not_slow() {
    let mut matrix = fabric(10, |from, to| if from == 6 || to == 6 { 0.9 } else { 1.0 });
    for to in [0, 1, 2, 3] {
        matrix.set(9, to, Cell::Failed);
    }
    matrix.set(6, 2, Cell::Missing);
    matrix.set(2, 6, Cell::Missing);
    let found = judge(&matrix);
    assert_eq!(kinds(&found), [Kind::Host { host: 6, role: Role::Both }]);
    assert_eq!(found.suspects[0].pairs, 16);
    assert_eq!(found.failed, [(9, 0), (9, 1), (9, 2), (9, 3)]);
    assert_eq!(found.missing, [(2, 6), (6, 2)]);
    // A host without any pair left is the first suspect.
    for other in 0..9 {
        matrix.set(9, other, Cell::Failed);
        matrix.set(other, 9, Cell::Failed);
    }
    let found = judge(&matrix);
    assert_eq!(kinds(&found), [9, 6].map(|host| Kind::Host { host, role: Role::Both }));
    assert_eq!((found.suspects[0].shown, found.suspects[0].pairs), (18, 18));
    assert_eq!((found.failed.len(), found.effects[9]), (18, [None; 2]));
}

#[test]
fn a_pair_that_was_asked_for_and_not_measured_has_not_failed() {
    let pairs = (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let cell = |(from, to)| if from + to > 6 { Cell::Missing } else { Cell::Value(100.0 + noise(from, to)) };
    let matrix = Matrix::of(pairs.map(|(from, to)| (format!("n{from}"), format!("n{to}"), cell((from, to)))));
    let found = judge(&matrix);
    assert_eq!((found.failed.len(), found.missing.len(), found.measured), (0, 8, 22));
    assert_eq!(found.none_named(), Some("no suspects among the pairs with a value"));
}

#[test]
fn nothing_that_comes_through_is_worse_than_slow() {
    let measured = |dead: fn(usize, usize) -> bool| {
        let pairs = (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to);
        let rate = |from, to| if dead(from, to) { 0.0 } else { 100.0 * (1.0 + noise(from, to)) };
        judge(&Matrix::of(pairs.map(|(from, to)| (format!("n{from}"), format!("n{to}"), Cell::Value(rate(from, to))))))
    };
    let link = measured(|from, to| (from, to) == (1, 4));
    assert_eq!((kinds(&link), link.suspects[0].is_silent()), (vec![Kind::Link { from: 1, to: 4 }], true));
    let receiver = measured(|_, to| to == 5);
    assert_eq!(kinds(&receiver), [Kind::Host { host: 5, role: Role::Receiver }]);
    let half = measured(|from, to| from < 3 || to < 3);
    assert_eq!(half.suspects.iter().filter(|s| matches!(s.kind, Kind::Host { role: Role::Both, .. })).count(), 3);
    // Four hosts are too few to tell a slow one, and enough to tell a dead one.
    let of_four = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let cell = |(from, to)| if from == 3 || to == 3 { Cell::Failed } else { Cell::Value(100.0) };
    let four = judge(&Matrix::of(of_four.map(|pair| (format!("n{}", pair.0), format!("n{}", pair.1), cell(pair)))));
    assert_eq!((kinds(&four), four.suspect_count()), (vec![Kind::Host { host: 3, role: Role::Both }], Some(1)));
    // Neighbours in a line: the host at its end has lost all of its pairs, too.
    let neighbours = (0..6).flat_map(|i| [(i, i + 1), (i + 1, i)]);
    let cell = |(from, to)| if from == 1 || to == 1 { Cell::Failed } else { Cell::Value(100.0) };
    let line = judge(&Matrix::of(neighbours.map(|pair| (format!("n{}", pair.0), format!("n{}", pair.1), cell(pair)))));
    assert_eq!(kinds(&line), [Kind::Host { host: 1, role: Role::Both }]);
    let two = judge(&Matrix::of([("a", "b", Cell::Failed), ("b", "a", Cell::Failed)]));
    assert_eq!((two.suspect_count(), two.blind()), (None, Some(&Limit::MostFailed { pairs: 2 })));
    // As behind daemons that only serve their client: nobody's fault.
    let most = measured(|_, to| to != 0);
    assert_eq!((most.suspect_count(), most.blind()), (None, Some(&Limit::MostFailed { pairs: 25 })));
}

#[test]
fn what_most_hosts_share_is_told_by_the_others() {
    let found = judge(&fabric(6, |from, to| if from % 2 == 0 && to % 2 == 0 { 1.0 } else { 0.75 }));
    assert_eq!((found.suspect_count(), found.fast.len()), (Some(0), 6), "{found:?}");
    assert_eq!(judge(&fabric(6, |_, _| 1.0)).fast, []);
}

#[test]
fn noise_that_hides_half_of_the_speed_is_no_answer() {
    let wild = |from: usize, to: usize| 1.0 + 30.0 * noise(to, from);
    let found = judge(&fabric(6, wild));
    assert!(matches!(found.blind(), Some(Limit::Noise { .. })) && found.sensitivity.is_none(), "{found:?}");
}

#[test]
fn half_a_matrix_is_enough() {
    let mut matrix = fabric(16, |from, to| match (from, to) {
        (8, _) | (_, 8) => 0.94,
        (2, 11) => 0.88,
        _ => 1.0,
    });
    for from in 0..16 {
        (0..from).for_each(|to| matrix.set(from, to, Cell::Missing));
    }
    matrix.set(3, 4, Cell::Missing);
    let found = judge(&matrix);
    assert_eq!(kinds(&found), [Kind::Host { host: 8, role: Role::Both }, Kind::Link { from: 2, to: 11 }]);
    assert_eq!(found.missing, [(3, 4)], "the other direction was not asked for");
    // The first hosts only send, the last only receive.
    assert_eq!(found.limits, [Limit::SomeOnlyLinks { hosts: 6 }]);
}

#[test]
fn few_hosts_cannot_be_told_from_their_links() {
    let found = judge(&fabric(2, |from, _| if from == 1 { 0.5 } else { 1.0 }));
    assert_eq!((found.suspect_count(), found.limits.as_slice()), (None, &[Limit::TooFewPairs { pairs: 2 }][..]));
    let found = judge(&fabric(3, |from, to| if (from, to) == (1, 2) { 0.5 } else { 1.0 }));
    assert_eq!(kinds(&found), [Kind::Link { from: 1, to: 2 }]);
    assert_eq!(found.limits, [Limit::OnlyLinks]);
    assert_eq!(judge(&Matrix::new(Vec::new())).suspect_count(), None);
    assert_eq!(judge(&Matrix::new(vec!["a".into()])).suspect_count(), None);
}

#[test]
fn other_shapes_are_judged_by_their_links() {
    // A ring: each host sends to the next one.
    let mut ring = Matrix::new((0..12).map(|i| format!("n{i}")).collect());
    for from in 0..12 {
        let speed = if from == 5 { 0.8 } else { 1.0 };
        ring.set(from, (from + 1) % 12, Cell::Value(100.0 * speed * (1.0 + noise(from, from))));
    }
    let found = judge(&ring);
    assert_eq!(kinds(&found), [Kind::Link { from: 5, to: 6 }]);
    assert_eq!(found.limits, [Limit::OnlyLinks]);
    // All send to one, which has no peer to be compared with.
    let mut incast = Matrix::new((0..12).map(|i| format!("n{i}")).collect());
    for from in 1..12 {
        let speed = if from == 5 { 0.8 } else { 1.0 };
        incast.set(from, 0, Cell::Value(100.0 * speed * (1.0 + noise(from, 0))));
    }
    assert_eq!(kinds(&judge(&incast)), [Kind::Link { from: 5, to: 0 }]);
    assert_eq!(judge(&incast).missing, [], "nobody asked for the other pairs");
}

#[test]
fn groups_without_a_pair_between_them_are_judged_apart() {
    // Two racks, the second at half the speed, measured within each only.
    let mut matrix = fabric(12, |from, to| match (from / 6, to / 6) {
        (0, 0) => 1.0,
        _ if from == 8 || to == 8 => 0.45,
        _ => 0.5,
    });
    for (from, to, _) in matrix.clone().pairs().filter(|(from, to, _)| from / 6 != to / 6) {
        matrix.set(from, to, Cell::Missing);
    }
    let found = judge(&matrix);
    assert_eq!(found.limits, [Limit::Groups { groups: 2 }]);
    assert_eq!(kinds(&found), [Kind::Host { host: 8, role: Role::Both }]);
}

#[test]
fn the_spread_is_that_between_percentiles() {
    let values: Vec<f64> = (0..=100).map(|i| 100.0 + f64::from(i)).collect();
    assert!((spread(&values).unwrap() - 90.0 / 150.0).abs() < 1e-12);
    assert_eq!((spread(&[]), spread(&[5.0])), (None, Some(0.0)));
}

#[test]
fn what_slows_a_whole_round_is_no_slow_link() {
    // Each host sends to one and receives from one in a round.
    let round = |from: usize, to: usize| (from + to) as u64 % 8;
    let slow_link = (1, 4);
    let speed = |from: usize, to: usize| match (from, to) {
        pair if pair == slow_link => 0.8,
        (2, _) => 0.85,
        _ if round(from, to) == 5 => 0.95,
        _ => 1.0,
    };
    let matrix = fabric(8, speed);
    let names = matrix.hosts().to_vec();
    let pairs: Vec<(usize, usize)> = matrix.tried().collect();
    let rounds = pairs.iter().map(|(from, to)| (&*names[*from], &*names[*to], round(*from, *to)));
    let link = |(from, to): (usize, usize)| Kind::Link { from, to };
    let without = judge(&matrix);
    assert!(without.suspects.len() > 4 && without.doubtful.is_empty(), "each is a link: {without:?}");
    let found = judge(&matrix.clone().in_rounds(rounds));
    assert_eq!(kinds(&found), [Kind::Host { host: 2, role: Role::Sender }, link(slow_link)], "{found:?}");
    let slowed = |pair: &(usize, usize)| round(pair.0, pair.1) == 5 && *pair != slow_link;
    assert!(found.doubtful.of_round.len() > 2 && found.doubtful.of_round.iter().all(slowed), "{found:?}");
}

/// The best of few iterations vary: they may neither show a slow host nor refute it.
#[test]
fn a_slow_host_that_the_noise_of_the_best_hides_is_told() {
    let noise = |n: usize| [0.0, 0.002, 0.004, 0.001][n % 4];
    // Single iterations that are faster than the rest, at other pairs each.
    let burst = |from: usize, to: usize| [1.0, 1.3, 1.0, 1.5, 1.1][(from * 3 + to * 2) % 5];
    let matrix = |slow: f64, slow_best: f64| {
        let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to);
        Matrix::of(pairs.flat_map(|(from, to)| {
            let (usual, best) = if from == 3 { (slow, slow_best) } else { (100.0, 100.0) };
            let values = [usual * (1.0 + noise(from + 2 * to)), usual, best * burst(from, to)];
            values.map(|value| (format!("n{from}"), format!("n{to}"), Cell::Value(value)))
        }))
    };
    let hidden = judge(&matrix(72.0, 72.0));
    assert!(hidden.suspects.is_empty(), "{hidden:?}");
    assert_eq!(hidden.doubtful.at_best, [(3, 0), (3, 1), (3, 2)]);
    // At full speed once, it is refuted.
    let refuted = judge(&matrix(72.0, 100.0));
    assert!(refuted.suspects.is_empty() && refuted.doubtful.is_empty(), "{refuted:?}");
}
