//! `pairs` of a test: the pairs of hosts that it measures, and the rounds in which it does.
//!
//! Pairs that are measurements of their own become a case each, with `from` and `to` as if a matrix swept them; those of a round
//! are measured at the same time. Pairs that are one load become the members of a concurrent group.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    case::Survey,
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, Span},
    inventory,
    keys::key,
    matrix::{Combination, case_name},
    model::{Host, Pairs, Shape, TestBody},
    policy::survey_asserts,
    resolve,
    tree::{Entry, Node, Scalar, Value},
    workload::Workload,
};

/// Most pairs of a test.
const MOST_PAIRS: usize = 20_000;

/// Most pairs of one load.
const MOST_AT_ONCE: usize = 1000;

/// One case of a test for each combination of its swept values.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// `from` and `to`; empty where the test says them itself.
    pub(super) ends: Combination,
    /// Its round, from 1, and their number.
    pub(super) round: Option<(u32, u32)>,
}

/// The hosts of `pairs`, and the form of the pairs among them.
struct Arrangement {
    /// The host that is in every pair, if there is one, is the last.
    hosts: Vec<String>,
    form: &'static Form,
    both_ways: bool,
    alone: bool,
    span: Span,
}

/// Takes `pairs` out of a test's body, and returns its slots: one without ends for a test without pairs, and for pairs that are
/// one load, which become the members of the body's group. `None`: it is wrong, which has been reported. `paths`: the swept keys.
pub(super) fn take(
    body: &mut Node,
    paths: &[Arc<str>],
    hosts: &BTreeMap<String, Host>,
    out: &mut Diagnostics,
) -> Option<Vec<Slot>> {
    let Some(entry) = body.remove(key::pairs) else { return Some(vec![Slot::default()]) };
    let among = arrangement(&entry, hosts, out)?;
    if !compatible(body, &entry, paths, &among, out) {
        return None;
    }
    let rounds = among.form.rounds(among.others(), among.both_ways, among.alone);
    if among.is_group() {
        members(body, &among, rounds.iter().flatten(), out)?;
        return Some(vec![Slot::default()]);
    }
    let of = u32::try_from(rounds.len()).unwrap_or(u32::MAX);
    let slot = |(number, pair): (u32, &Pair)| Slot {
        ends: vec![(key::from.into(), among.node(pair.0)), (key::to.into(), among.node(pair.1))],
        round: Some((number, of)),
    };
    Some(
        (1..).zip(&rounds).flat_map(|(number, round)| round.iter().map(move |pair| (number, pair))).map(slot).collect(),
    )
}

/// The pairs of a test as a whole, for one combination of its swept values.
pub(super) fn survey(test: &Arc<str>, body: &Node, combination: &Combination, out: &mut Diagnostics) -> Option<Survey> {
    let tree = resolve::combined(body, combination);
    let typed: TestBody = decode(&tree, out)?;
    Some(Survey {
        test: test.clone(),
        name: case_name(test, combination).into(),
        asserts: survey_asserts(&tree, &typed, out),
    })
}

impl Arrangement {
    /// Whether the pairs are one load.
    fn is_group(&self) -> bool {
        self.form.is_load && !self.alone
    }

    /// Number of hosts but for the one that is in every pair.
    fn others(&self) -> usize {
        self.hosts.len() - usize::from(self.form.hub.is_some())
    }

    /// A host as a value of the plan.
    fn node(&self, number: usize) -> Node {
        let text = self.hosts[number].as_str().into();
        Node { value: Value::Scalar(Scalar { text, plain: false }), span: self.span }
    }
}

fn arrangement(entry: &Entry, hosts: &BTreeMap<String, Host>, out: &mut Diagnostics) -> Option<Arrangement> {
    let node = &entry.value;
    if node.entries().is_none() {
        let what = "`pairs` needs the hosts and the shape of the pairs";
        out.error(node.span, what, "pairs: {of: \"node[1-8]\", shape: all}");
        return None;
    }
    let pairs: Pairs = decode(node, out)?;
    let form = pairs.shape.map_or(&FORMS[0], Form::of);
    let Some(of) = node.get("of") else {
        out.error(entry.key_span, "`pairs` does not say among which hosts", "pairs: {of: \"node[1-8]\", shape: all}");
        return None;
    };
    let mut good = true;
    for key in ["to", "from"].into_iter().filter(|key| form.hub != Some(key)) {
        if let Some(wrong) = node.entry(key) {
            let help = FORMS.iter().find(|form| form.hub == Some(key)).map_or("", |form| form.name);
            let what = format!("`{}` has no host that is in every pair, and so no `{key}`", form.name);
            out.error(wrong.key_span, what, format!("leave `{key}` out, or shape: {help}"));
            good = false;
        }
    }
    let mut named = inventory::each_once(of, "of", hosts, out)?;
    if let Some(key) = form.hub {
        let hub = hub(node, key, form, entry.key_span, hosts, out)?;
        named.retain(|name| *name != hub);
        named.push(hub);
    }
    if named.len() < 2 {
        out.error(
            of.span,
            format!("`of` is one host, `{}`, and a pair takes two", named.concat()),
            "name more hosts, or measure `from` one `to` another without `pairs`",
        );
        return None;
    }
    let arrangement = Arrangement {
        form,
        both_ways: pairs.both_ways.unwrap_or(!form.is_load),
        alone: pairs.alone.unwrap_or(false),
        hosts: named,
        span: of.span,
    };
    let others = arrangement.others();
    let count = form.count(others).saturating_mul(1 + usize::from(arrangement.both_ways));
    let most = if arrangement.is_group() { MOST_AT_ONCE } else { MOST_PAIRS };
    if count > most {
        let help = if arrangement.is_group() { "or `alone: true`" } else { "`both_ways: false`, or shape: neighbours" };
        let what = format!("{} of {others} hosts is {count} pairs, more than {most}", form.name);
        out.error(of.span, what, format!("name fewer hosts, {help}"));
        good = false;
    }
    good.then_some(arrangement)
}

/// The host that is in every pair.
fn hub(
    node: &Node,
    key: &str,
    form: &Form,
    at: Span,
    hosts: &BTreeMap<String, Host>,
    out: &mut Diagnostics,
) -> Option<String> {
    let Some(value) = node.get(key) else {
        let what = format!("`{}` does not say which host is in every pair", form.name);
        out.error(node.key_span("shape").unwrap_or(at), what, format!("{key}: HOST"));
        return None;
    };
    let before = out.has_errors();
    let mut names = inventory::known(value, hosts, &[], out);
    match names.as_slice() {
        [_] if out.has_errors() && !before => None,
        [_] => names.pop(),
        [] => None,
        several => {
            let what = format!("`{key}` is {} hosts, and `{}` has one there", several.len(), form.name);
            out.error(value.span, what, "name one host");
            None
        }
    }
}

/// Reports what a test cannot have beside `pairs`.
fn compatible(body: &Node, pairs: &Entry, paths: &[Arc<str>], among: &Arrangement, out: &mut Diagnostics) -> bool {
    let mut good = true;
    let mut wrong = |span: Span, what: &str, help: &str| {
        out.push(Diagnostic::error(span, what).help(help).see(pairs.key_span, "`pairs` is here"));
        good = false;
    };
    for key in [key::from, key::to] {
        if let Some(entry) = body.entry(key) {
            wrong(
                entry.key_span,
                &format!("`{key}` and `pairs` exclude each other: each pair has its own ends"),
                &format!("leave `{key}` out, or write `{key}: ~` where `defaults` or a profile has it"),
            );
        }
        if paths.iter().any(|path| **path == *key) {
            let what = format!("a matrix over `{key}` and `pairs` exclude each other: `pairs` sweeps the hosts");
            wrong(pairs.key_span, &what, "leave one of them out");
        }
    }
    if let Some(entry) = body.entry(key::concurrent) {
        if entry.value.get("members").is_some() {
            let what = "`members` and `pairs` exclude each other: a group has the pairs as its members, or its own";
            wrong(entry.key_span, what, "make two tests of it");
        } else if !among.is_group() {
            let what = format!("the pairs of `{}` are measurements of their own, and no group", among.form.name);
            wrong(entry.key_span, &what, "leave `concurrent` out");
        }
    }
    for key in [key::find, key::stop_when].into_iter().filter(|_| !among.alone) {
        if let Some(entry) = body.entry(key) {
            let what = format!("`{key}` decides for one case, and pairs are measured several at a time");
            wrong(entry.key_span, &what, "add `alone: true` to `pairs`");
        }
    }
    // A mistake in the workload is reported with the case.
    let kind = |entry: &Entry| entry.value.text()?.parse::<Workload>().ok().map(|workload| workload.kind);
    let refused = |entry: &Entry| Some((entry.value.span, kind(entry)?.refuses_pairs(among.alone)?));
    if let Some((span, (what, help))) = body.entry(key::workload).and_then(refused) {
        wrong(span, what, help);
    }
    good
}

/// Makes the pairs the members of the body's group.
fn members<'a>(
    body: &mut Node,
    among: &Arrangement,
    pairs: impl Iterator<Item = &'a Pair>,
    out: &mut Diagnostics,
) -> Option<()> {
    let has_hyphen = among.hosts.iter().any(|name| name.contains('-'));
    let between = if has_hyphen { "-to-" } else { "-" };
    let mut seen = HashSet::new();
    let mut members = Vec::new();
    let entry = |key: &str, value: Node| Entry { key: key.into(), key_span: among.span, value };
    for (from, to) in pairs {
        let name = format!("{}{between}{}", among.hosts[*from], among.hosts[*to]);
        if !seen.insert(name.clone()) {
            out.error(among.span, format!("two pairs have the same name, `{name}`"), "rename a host");
            return None;
        }
        let ends = vec![entry(key::from, among.node(*from)), entry(key::to, among.node(*to))];
        members.push(entry(&name, Node { value: Value::Map(ends), span: among.span }));
    }
    body.set("concurrent.members", Node { value: Value::Map(members), span: among.span });
    Some(())
}

/// The numbers of the host that connects and of the one that accepts.
pub(super) type Pair = (usize, usize);

/// A shape of pairs.
pub(super) struct Form {
    pub(super) shape: Shape,
    /// Its name in plans.
    pub(super) name: &'static str,
    /// The key that names the host which is in every pair.
    hub: Option<&'static str>,
    /// Whether its pairs are one load: all run at once, and hosts may be in several.
    pub(super) is_load: bool,
    /// Its rounds among so many hosts, one way. The hub, where there is one, has the number behind the last host.
    rounds: fn(usize) -> Vec<Vec<Pair>>,
}

/// Every shape.
const FORMS: [Form; 6] = [
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

/// The last of an odd number of hosts rests.
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
mod tests;

#[cfg(test)]
mod tests_of_rounds {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::pairs::*;

    fn rounds(shape: Shape, hosts: usize, both_ways: bool) -> Vec<Vec<Pair>> {
        Form::of(shape).rounds(hosts, both_ways, false)
    }

    #[test]
    fn every_shape_has_its_row_and_its_name() {
        for form in &FORMS {
            assert!(Form::of(form.shape).name == form.name);
            assert_eq!(serde_json::from_value::<Shape>(form.name.into()).unwrap(), form.shape);
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
