//! A plan's `baseline`, prepared for judging: which metrics of which cases must not get worse, and by which rule.

use analyze::judge::{
    baseline::{Promise, Terms},
    comparison::Rule,
};
use schemas::{
    metrics::{self, Family, Metric},
    units,
};

use crate::plan::{
    Plan,
    case::{Case, Member},
    diagnostics::Span,
    model::Comparison,
};

/// The headline of requests and responses.
const TRANSACTION_RATE: &str = "transaction_rate";

/// The terms of the plan's baseline, if it names one.
pub fn terms(plan: &Plan) -> Option<Terms> {
    let (baseline, spans) = plan.baseline.as_ref()?;
    let rate = metrics::find(TRANSACTION_RATE);
    let is_listed = baseline.compare.iter().any(|other| other.metric.0.name == TRANSACTION_RATE);
    let promises = baseline.compare.iter().zip(spans).flat_map(|(comparison, span)| {
        let asked = comparison.metric.0;
        // The bits of round trips are their number again: throughput is judged there by the number, once.
        let by_number = rate.filter(|_| asked.name == "throughput" && !is_listed && comparison.min_effect.is_none());
        let of = move |metric| (comparison, span, asked, metric);
        std::iter::once(of(asked)).chain(by_number.map(of))
    });
    let promise = |(comparison, span, asked, metric): (&Comparison, &Span, &Metric, &'static Metric)| {
        let place = plan.sources.place(*span);
        let has = |member: &Member, metric: &Metric| member.lacks(metric).is_none();
        let is_of_trips = |member: &Member| {
            let headline = Family::of(&member.workload).headline(|metric| has(member, metric));
            headline.is_some_and(|headline| headline.name == TRANSACTION_RATE)
        };
        let is_a_number = |member: &Member| {
            let is_judged_so = is_listed || comparison.min_effect.is_none();
            asked.name == "throughput" && is_judged_so && is_of_trips(member)
        };
        let is_meant = |member: &Member| has(member, metric) && is_a_number(member) == (metric.name != asked.name);
        let measured = |case: &&Case| case.members.iter().any(is_meant);
        Promise {
            metric,
            rule: Rule {
                better: metric.better,
                test: comparison.test.unwrap_or(Rule::DEFAULT.test),
                alpha: comparison.alpha.map_or(Rule::DEFAULT.alpha, |a| a.0),
                min_ratio: comparison.max_regression.0,
                // Checked when the plan was loaded.
                min_difference: comparison
                    .min_effect
                    .as_ref()
                    .and_then(|text| units::parse_for(metric.unit, &text.0).ok())
                    .unwrap_or(Rule::DEFAULT.min_difference),
                range: metric.range(),
                ..Rule::DEFAULT
            },
            case_ids: plan.cases.iter().filter(|c| c.skip.is_none()).filter(measured).map(|c| c.id.clone()).collect(),
            file: place.file,
            line: Some(place.line as u64),
            column: Some(place.column as u64),
        }
    };
    Some(Terms {
        source: baseline.source.clone(),
        on_missing: baseline.on_missing.unwrap_or_default(),
        require_same: baseline.require_same.clone(),
        promises: promises
            .map(promise)
            .filter(|promise| !promise.case_ids.is_empty() || promise.metric.name != TRANSACTION_RATE)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Format, LoadOptions, load_str};

    #[test]
    fn round_trips_are_judged_by_their_number() {
        let judged = |compare: &str| {
            let text = format!(
                "version: 1\nname: t\nbaseline: {{source: b.csv, compare: [{compare}]}}\n\
                 tests: {{bulk: {{workload: tcp_stream}}, rr: {{workload: tcp_rr}}}}\n"
            );
            let plan = load_str("t", &text, &LoadOptions::default()).map_err(|e| e.render(Format::Human)).unwrap();
            let name = |id: &String| plan.cases.iter().find(|case| case.id == *id).unwrap().name.clone();
            let terms = terms(&plan).unwrap();
            let of = |p: &Promise| {
                format!("{} of {}", p.metric.name, p.case_ids.iter().map(name).collect::<Vec<_>>().join("+"))
            };
            terms.promises.iter().map(of).collect::<Vec<_>>()
        };
        let throughput = "{metric: throughput, max_regression: 2%}";
        assert_eq!(judged(throughput), ["throughput of bulk", "transaction_rate of rr"]);
        let both = format!("{throughput}, {{metric: transaction_rate, max_regression: 5%}}");
        assert_eq!(judged(&both), ["throughput of bulk", "transaction_rate of rr"], "once");
        let bits = "{metric: throughput, max_regression: 2%, min_effect: 1Mbit/s}";
        assert_eq!(judged(bits), ["throughput of bulk+rr"]);
    }
}
