//! What a case is judged by: how often it is measured, when an axis is left, what is searched.

use std::sync::Arc;

use super::{
    case::{Find, Member, Policy, StopWhen},
    diagnostics::{Diagnostic, Diagnostics, suggest},
    measures,
    model::{self, FindBy, TestBody},
    source::Span,
};

/// The confidence level where a plan names none.
const LEVEL: f64 = 0.95;

pub(super) fn check_metric(
    members: &[&Member],
    metric: &'static schemas::metrics::Metric,
    span: Span,
    out: &mut Diagnostics,
) {
    let mut why = None;
    for member in members {
        match measures::lacks(&member.job, metric) {
            None => return,
            Some(reason) => why = Some((member, reason)),
        }
    }
    if let Some((member, reason)) = why {
        out.push(
            Diagnostic::error(span, format!("{} does not measure `{}`", member.workload, metric.name)).help(reason),
        );
    }
}

pub(super) fn iterations(
    typed: &TestBody,
    members: &[Member],
    place: &dyn Fn(&str) -> Span,
    out: &mut Diagnostics,
) -> Policy {
    let headline = || members.iter().find_map(|m| measures::of_job(&m.job));
    let count = |n: u32| {
        let metrics = members.first().and_then(|m| measures::of_job(&m.job)).into_iter().collect();
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
        out.push(Diagnostic::error(place("iterations"), "`max` iterations are fewer than `min`").help("exchange them"));
    }
    if !(0.5..1.0).contains(&confidence) {
        out.push(
            Diagnostic::error(place("iterations"), format!("a confidence of {} % is none", confidence * 100.0))
                .help("between 50 % and 100 %, for example 95%"),
        );
    }
    if margin <= 0.0 {
        out.push(
            Diagnostic::error(place("iterations"), "a margin of 0 is never reached").help("for example margin: 2.5%"),
        );
    }
    let all: Vec<&Member> = members.iter().collect();
    let metrics = match &detail.metrics {
        Some(list) => {
            for metric in list {
                check_metric(&all, metric.0, place("iterations"), out);
            }
            list.iter().map(|m| m.0).collect()
        }
        None => {
            if let Some(metric) = headline() {
                vec![metric]
            } else {
                out.push(
                    Diagnostic::error(place("iterations"), "a command has no metric of its own")
                        .help("name it: iterations: {metrics: [throughput]}"),
                );
                Vec::new()
            }
        }
    };
    Policy { min, max, level: confidence, margin: Some(margin), metrics }
}

pub(super) fn stop_when(
    typed: &TestBody,
    members: &[Member],
    paths: &[Arc<str>],
    place: &dyn Fn(&str) -> Span,
    out: &mut Diagnostics,
) -> Option<StopWhen> {
    let model::StopWhen(detail) = typed.stop_when.as_ref()?;
    let span = place("stop_when");
    let all: Vec<&Member> = members.iter().collect();
    check_metric(&all, detail.that.0.metric, span, out);
    let names: Vec<&str> = paths.iter().map(|p| &**p).collect();
    let axis = match (&detail.axis, paths) {
        (Some(axis), _) => {
            if let Some(path) = paths.iter().find(|p| ***p == **axis) {
                path.clone()
            } else {
                out.push(
                    Diagnostic::error(span, format!("`{axis}` is no axis of this test's matrix"))
                        .help(suggest(axis, &names)),
                );
                return None;
            }
        }
        (None, [only]) => only.clone(),
        (None, []) => {
            out.push(
                Diagnostic::error(span, "`stop_when` skips the rest of an axis, and there is none")
                    .help("add a matrix, or use assert"),
            );
            return None;
        }
        (None, _) => {
            out.push(
                Diagnostic::error(span, "`stop_when` must say which axis it skips the rest of")
                    .help(format!("stop_when: {{that: …, axis: {}}}", names[0])),
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
    let find = typed.find.as_ref()?;
    let span = place("find");
    let mut fail = |message: String, help: &str| out.push(Diagnostic::error(span, message).help(help));
    let [member] = members else {
        fail("a search needs a single workload".to_owned(), "remove `concurrent`, or `find`");
        return None;
    };
    let Some(load_spec) = member.job.spec() else {
        fail("a search needs a workload whose load it can vary".to_owned(), "not a command");
        return None;
    };
    if find.by == FindBy::Inflight && load_spec.pattern == netcore::spec::Pattern::Stream {
        fail("a stream has nothing in flight to vary".to_owned(), "by: rate");
        return None;
    }
    let limit = |word: &Option<model::Word>| {
        word.as_ref().map(|w| schemas::units::parse_for(find.metric.0.unit, &w.0)).transpose()
    };
    let (at_most, at_least) = match (limit(&find.at_most), limit(&find.at_least)) {
        (Ok(None), Ok(None)) => {
            fail("a search needs a bound".to_owned(), "add `at_most`, or `at_least`");
            return None;
        }
        (Ok(most), Ok(least)) => (most, least),
        (Err(e), _) | (_, Err(e)) => {
            fail(e.to_string(), "");
            return None;
        }
    };
    let load = |word: &Option<model::Word>| -> Result<Option<(f64, bool)>, String> {
        let Some(model::Word(text)) = word else { return Ok(None) };
        match find.by {
            FindBy::Inflight => text
                .parse::<u32>()
                .ok()
                .filter(|n| *n > 0)
                .map(|n| Some((f64::from(n), false)))
                .ok_or_else(|| format!("`{text}` is no number of transactions in flight: write 1 or more")),
            FindBy::Rate => match schemas::units::parse_rate(text) {
                Ok(schemas::units::Rate::Bits(v)) => Ok(Some((v, true))),
                Ok(schemas::units::Rate::Events(v)) => Ok(Some((v, false))),
                Err(e) => Err(e.to_string()),
            },
        }
    };
    let (from, to) = match (load(&find.from), load(&find.to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(e), _) | (_, Err(e)) => {
            fail(e, "");
            return None;
        }
    };
    if from.zip(to).is_some_and(|((_, a), (_, b))| a != b) {
        fail("the search begins in bits and ends in messages, or the other way round".to_owned(), "one unit for both");
        return None;
    }
    let bits = from.or(to).is_some_and(|(_, bits)| bits);
    let (from, to) = (from.map(|(load, _)| load), to.map(|(load, _)| load));
    let from = match (from, find.by) {
        (Some(from), _) => from,
        (None, FindBy::Inflight) => 1.0,
        (None, FindBy::Rate) => {
            fail("a search by rate needs a place to start".to_owned(), "from: 10Mbit/s");
            return None;
        }
    };
    if to.is_some_and(|to| to <= from) || from <= 0.0 {
        fail("the search ends before it starts".to_owned(), "`from` above 0 and below `to`");
        return None;
    }
    let within = find.within.map_or(0.01, |r| r.0);
    if !(1e-4..1.0).contains(&within) {
        fail(format!("`within` is {} %", within * 100.0), "between 0.01% and 100%");
        return None;
    }
    check_metric(&[member], find.metric.0, span, out);
    let find = Find {
        metric: find.metric.0,
        at_most,
        at_least,
        by: find.by,
        from,
        to,
        bits,
        within,
        max_probes: find.max_probes.unwrap_or(20).max(1),
    };
    if member.refused.is_none()
        && let Some(to) = find.to
        && let Err(unsupported) = netcore::spec::support::check(&find.at(load_spec, to))
    {
        out.push(
            Diagnostic::error(span, format!("at the highest load, {}", unsupported.reason)).help("search less far"),
        );
    }
    Some(find)
}
