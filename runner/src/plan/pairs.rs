//! `pairs` of a test: the pairs of hosts that it measures.
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
    diagnostics::{Diagnostic, Diagnostics},
    inventory,
    keys::key,
    matrix::{Combination, case_name},
    merge,
    model::{Host, Pairs, TestBody},
    policy::survey_asserts,
    rounds::{FORMS, Form, Pair},
    source::Span,
    tree::{Entry, Node, Scalar, Value},
    workload::{Kind, Workload},
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
    let tree = merge::combined(body, combination);
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
    if form.name == "bisection" && !others.is_multiple_of(2) {
        out.error(
            of.span,
            format!("{others} hosts have no two halves, between which `bisection` measures"),
            "leave one out, or add one",
        );
        good = false;
    }
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
    if let Some((entry, kind)) = body.entry(key::workload).and_then(|entry| Some((entry, kind(entry)?))) {
        let what = match kind {
            Kind::Traffic { .. } => return good,
            Kind::Responsiveness if among.alone => return good,
            Kind::Responsiveness => {
                let what = "responsiveness is a group for each pair, and groups are measured one at a time";
                wrong(entry.value.span, what, "add `alone: true` to `pairs`");
                return good;
            }
            Kind::Ranks { .. } => "a test of ranks is between all of its hosts at once, which `ranks` names",
            Kind::Command => "a command runs on this machine, and has no pairs of hosts",
        };
        wrong(entry.value.span, what, "leave `pairs` out");
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

#[cfg(test)]
mod tests;
