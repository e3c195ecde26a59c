//! Iterations of a case, its assertions, the end of an axis, and searches.

use std::sync::Arc;

use analyze::judge::Scope;
use netcore::spec::{Pattern, TestSpec};
use schemas::{
    metrics,
    units::{self, Rate},
};

use super::{
    axis::Condition,
    case::{Assertion, Find, Member, Policy, StopWhen},
    diagnostics::{Diagnostics, Span, suggest},
    keys::{self, key},
    model::{self, FindBy, TestBody},
    tree::Node,
};

/// The default confidence level.
const LEVEL: f64 = 0.95;

fn check_metric(members: &[&Member], metric: &'static metrics::Metric, span: Span, out: &mut Diagnostics) {
    let mut why = None;
    for member in members {
        match member.lacks(metric) {
            None => return,
            Some(reason) => why = Some((member, reason)),
        }
    }
    if let Some((member, reason)) = why {
        out.error(span, format!("{} does not measure `{}`", member.workload, metric.name), reason);
    }
}

pub(super) fn iterations(
    typed: &TestBody,
    members: &[Member],
    place: &dyn Fn(&str) -> Span,
    out: &mut Diagnostics,
) -> Policy {
    // A group with a probe of the idle path has no total: its last member decides.
    let probe = members.last().filter(|last| last.idle.is_some()).and_then(Member::headline);
    // A group's total has what the workloads of its members have.
    let of = |member: &Member| if members.len() == 1 { member.headline() } else { member.job.headline() };
    let headline = || probe.or_else(|| members.iter().find_map(of));
    let count = |n: u32| {
        let first = || members.first().and_then(of);
        let metrics = probe.or_else(first).into_iter().collect();
        Policy { min: n, max: n, level: LEVEL, margin: None, metrics }
    };
    let detail = match &typed.iterations {
        None => return count(1),
        Some(model::Iterations::Count(n)) => return count(*n),
        Some(model::Iterations::Until(detail)) => detail,
    };
    let min = detail.min.unwrap_or(3).max(2);
    let max = detail.max.unwrap_or_else(|| min.max(30));
    let confidence = detail.confidence.map_or(LEVEL, |r| r.0);
    let margin = detail.margin.map_or(0.025, |r| r.0);
    if max < min {
        out.error(place(key::iterations), "`max` iterations are fewer than `min`", "exchange them");
    }
    if !(0.5..1.0).contains(&confidence) {
        out.error(
            place(key::iterations),
            format!("the confidence is {} %", confidence * 100.0),
            "between 50 % and 100 % (exclusive), for example 95%",
        );
    }
    if margin <= 0.0 {
        out.error(place(key::iterations), "a margin of 0 is never reached", "for example margin: 2.5%");
    }
    let all: Vec<&Member> = members.iter().collect();
    let metrics = match &detail.metrics {
        Some(list) => {
            for metric in list {
                check_metric(&all, metric.0, place(key::iterations), out);
            }
            list.iter().map(|m| m.0).collect()
        }
        None => {
            if let Some(metric) = headline() {
                vec![metric]
            } else {
                out.error(
                    place(key::iterations),
                    "a command has no metric of its own",
                    "name it: iterations: {metrics: [throughput]}",
                );
                Vec::new()
            }
        }
    };
    Policy { min, max, level: confidence, margin: Some(margin), metrics }
}

/// The assertions about a case. Those about a whole survey are left to [`survey_asserts`].
pub(super) fn asserts(
    tree: &Node,
    typed: &TestBody,
    members: &[Member],
    in_survey: bool,
    out: &mut Diagnostics,
) -> Vec<Assertion> {
    let items = tree.get(key::assert).and_then(Node::items).unwrap_or_default();
    let mut asserts = Vec::new();
    for (node, model::Assert(detail)) in items.iter().zip(typed.assert.iter().flatten()) {
        let span = node.get("that").map_or(node.span, |n| n.span);
        if in_survey && metrics::of_survey(detail.that.0.metric.name).is_some() {
            continue;
        }
        if let Some(difference) = &detail.that.0.difference {
            let sides = [(&difference.member, detail.that.0.metric)];
            let subtracted = difference.subtracted().map(|metric| (&difference.minus, metric));
            if !of_difference(sides.into_iter().chain(subtracted), members, span, out) {
                continue;
            }
            let others = ["member", "scope"].into_iter().find_map(|key| node.key_span(key));
            if let Some(span) = others {
                out.error(span, "a difference names its members, and is about their totals", "leave this key out");
                continue;
            }
        } else if let Some(member) = &detail.member
            && !members.iter().any(|m| m.name == *member)
        {
            unknown_member(member, members, node.get("member").map_or(node.span, |n| n.span), out);
            continue;
        }
        if detail.that.0.cause.is_some()
            && (detail.scope == Some(Scope::Stream) || (members.len() > 1 && detail.member.is_none()))
        {
            out.error(span, "`limited_by` is the cause of a whole test", "name the `member` of a group, and no stream");
            continue;
        }
        let judged: Vec<&Member> =
            members.iter().filter(|m| detail.member.as_ref().is_none_or(|name| m.name == *name)).collect();
        if detail.that.0.difference.is_none() {
            check_metric(&judged, detail.that.0.metric, span, out);
        }
        asserts.extend(assertion(node, detail, tree, out));
    }
    asserts
}

/// An assertion that is meant for this case.
fn assertion(node: &Node, detail: &model::AssertDetail, tree: &Node, out: &mut Diagnostics) -> Option<Assertion> {
    when(node, tree, out).then(|| Assertion {
        severity: detail.severity.unwrap_or_default(),
        place: out.sources.place(node.span),
        detail: detail.clone(),
    })
}

/// Checks the members of a difference and what they measure.
fn of_difference<'a>(
    mut sides: impl Iterator<Item = (&'a String, &'static metrics::Metric)>,
    members: &[Member],
    span: Span,
    out: &mut Diagnostics,
) -> bool {
    sides.all(|(name, metric)| {
        let Some(member) = members.iter().find(|m| m.name == *name) else {
            unknown_member(name, members, span, out);
            return false;
        };
        check_metric(&[member], metric, span, out);
        true
    })
}

fn unknown_member(name: &str, members: &[Member], span: Span, out: &mut Diagnostics) {
    let known: Vec<&str> = members.iter().map(|m| m.name.as_str()).filter(|n| !n.is_empty()).collect();
    let alone = known.is_empty().then(|| "this test is not a concurrent group".to_owned());
    out.error(span, format!("unknown member `{name}`"), alone.unwrap_or_else(|| suggest(name, &known)));
}

/// The assertions about all pairs of a survey together. `tree`: the test without the ends of its pairs.
pub(super) fn survey_asserts(tree: &Node, typed: &TestBody, out: &mut Diagnostics) -> Vec<Assertion> {
    let items = tree.get(key::assert).and_then(Node::items).unwrap_or_default();
    let mut asserts = Vec::new();
    for (node, model::Assert(detail)) in items.iter().zip(typed.assert.iter().flatten()) {
        let figure = detail.that.0.metric;
        if metrics::of_survey(figure.name).is_none() {
            continue;
        }
        let of_pair = node.get("when").and_then(Node::entries).unwrap_or_default().iter();
        let of_pair = of_pair.filter(|entry| matches!(&*entry.key, key::from | key::to)).map(|entry| entry.key_span);
        let others = ["member", "scope", "judge"].into_iter().filter_map(|key| node.key_span(key));
        if let Some(span) = of_pair.chain(others).next() {
            let what = format!("`{}` is a figure of all pairs together, and has no part to choose", figure.name);
            out.error(span, what, "leave this key out, or assert a metric of each pair");
        } else {
            asserts.extend(assertion(node, detail, tree, out));
        }
    }
    asserts
}

fn when(assertion: &Node, tree: &Node, out: &mut Diagnostics) -> bool {
    let mut holds = true;
    for entry in assertion.get("when").and_then(Node::entries).unwrap_or_default() {
        let mistakes = keys::mistakes(&entry.key, Node::null(entry.key_span), entry.key_span);
        if let Some(mistake) = mistakes.into_iter().next() {
            out.push(mistake);
            continue;
        }
        match Condition::read(&entry.key, &entry.value) {
            Ok(condition) => holds &= tree.at(&entry.key).is_some_and(|value| condition.holds(value)),
            Err(diagnostic) => out.push(*diagnostic),
        }
    }
    holds
}

pub(super) fn stop_when(
    typed: &TestBody,
    members: &[Member],
    paths: &[Arc<str>],
    place: &dyn Fn(&str) -> Span,
    out: &mut Diagnostics,
) -> Option<StopWhen> {
    let model::StopWhen(detail) = typed.stop_when.as_ref()?;
    let span = place(key::stop_when);
    if detail.that.0.difference.is_some() {
        out.error(
            span,
            "`stop_when` judges one metric, not a difference of members",
            "for example added_latency.p95 > 1s",
        );
        return None;
    }
    if detail.that.0.cause.is_some() {
        out.error(span, "`stop_when` judges a number, and a cause is none", "for example throughput < 1Gbit/s");
        return None;
    }
    let all: Vec<&Member> = members.iter().collect();
    check_metric(&all, detail.that.0.metric, span, out);
    let names: Vec<&str> = paths.iter().map(|p| &**p).collect();
    let axis = match (&detail.axis, paths) {
        (Some(axis), _) => {
            if let Some(path) = paths.iter().find(|p| ***p == **axis) {
                path.clone()
            } else {
                out.error(span, format!("`{axis}` is not an axis of this test's matrix"), suggest(axis, &names));
                return None;
            }
        }
        (None, [only]) => only.clone(),
        (None, []) => {
            out.error(
                span,
                "`stop_when` skips the rest of an axis, and the test has none",
                "add a matrix, or use assert",
            );
            return None;
        }
        (None, _) => {
            out.error(
                span,
                "`stop_when` must say which axis it skips the rest of",
                format!("stop_when: {{that: …, axis: {}}}", names[0]),
            );
            return None;
        }
    };
    Some(StopWhen { that: detail.that.0.clone(), axis })
}

pub(super) fn find(
    typed: &TestBody,
    members: &[Member],
    place: &dyn Fn(&str) -> Span,
    out: &mut Diagnostics,
) -> Option<Find> {
    let span = place(key::find);
    let (find, member, base) = match search(typed.find.as_ref()?, members) {
        Ok(found) => found,
        Err((message, help)) => {
            out.error(span, message, help);
            return None;
        }
    };
    check_metric(&[member], find.metric, span, out);
    if member.refused.is_none()
        && let Some(to) = find.to
        && let Err(unsupported) = netcore::spec::support::check(&find.at(base, to))
    {
        out.error(span, format!("at the highest load, {}", unsupported.reason), "search less far");
    }
    Some(find)
}

/// A mistake in a search: the sentence, and what to do.
type Wrong = (String, &'static str);

/// The search, with the member whose load it varies and that member's test.
fn search<'a>(find: &model::Find, members: &'a [Member]) -> Result<(Find, &'a Member, &'a TestSpec), Wrong> {
    let wrong = |message: &str, help| Err((message.to_owned(), help));
    let [member] = members else {
        return wrong("a search needs a single workload", "remove `concurrent`, or `find`");
    };
    let Some(base) = member.spec() else {
        return wrong("a search needs a workload whose load it can vary", "not a command");
    };
    if find.by == FindBy::Inflight && base.pattern == Pattern::Stream {
        return wrong("a stream has nothing in flight to vary", "by: rate");
    }
    let limit = |word: &Option<model::Word>| {
        word.as_ref().map(|w| units::parse_for(find.metric.0.unit, &w.0)).transpose().map_err(|e| (e.to_string(), ""))
    };
    let (at_most, at_least) = (limit(&find.at_most)?, limit(&find.at_least)?);
    if at_most.or(at_least).is_none() {
        return wrong("a search needs a bound", "add `at_most`, or `at_least`");
    }
    let load = |word: &Option<model::Word>| word.as_ref().map(|w| load(find.by, &w.0)).transpose().map_err(|e| (e, ""));
    let (from, to) = (load(&find.from)?, load(&find.to)?);
    if from.zip(to).is_some_and(|((_, a), (_, b))| a != b) {
        return wrong("the search begins in bits and ends in messages, or the other way round", "one unit for both");
    }
    let bits = from.or(to).is_some_and(|(_, bits)| bits);
    let (from, to) = (from.map(|(load, _)| load), to.map(|(load, _)| load));
    let from = match (from, find.by) {
        (Some(from), _) => from,
        (None, FindBy::Inflight) => 1.0,
        (None, FindBy::Rate) => return wrong("a search by rate needs a place to start", "from: 10Mbit/s"),
    };
    if to.is_some_and(|to| to <= from) || from <= 0.0 {
        return wrong("the search ends before it starts", "`from` above 0 and below `to`");
    }
    let within = find.within.map_or(0.01, |r| r.0);
    if !(1e-3..1.0).contains(&within) {
        return Err((format!("`within` is {} %", within * 100.0), "between 0.1% and 100%"));
    }
    let max_probes = find.max_probes.unwrap_or(40).max(1);
    let metric = find.metric.0;
    Ok((Find { metric, at_most, at_least, by: find.by, from, to, bits, within, max_probes }, member, base))
}

/// A load, and whether it counts bits.
fn load(by: FindBy, text: &str) -> Result<(f64, bool), String> {
    match by {
        FindBy::Inflight => match text.parse::<u32>() {
            Ok(n) if n > 0 => Ok((f64::from(n), false)),
            _ => Err(format!("`{text}` is not a number of transactions in flight: write 1 or more")),
        },
        FindBy::Rate => match units::parse_rate(text).map_err(|e| e.to_string())? {
            Rate::Bits(bits) => Ok((bits, true)),
            Rate::Events(events) => Ok((events, false)),
        },
    }
}
