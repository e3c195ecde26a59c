//! A plan's `baseline`, prepared for judging: which metrics of which cases must not get worse, and by which rule.

use analyze::judge::{
    baseline::{Promise, Terms},
    comparison::Rule,
};
use schemas::{
    metrics::{Family, Metric},
    units,
};

use crate::plan::{
    Plan,
    case::{Case, Member},
};

/// The headline of requests and responses.
const TRANSACTION_RATE: &str = "transaction_rate";

/// The terms of the plan's baseline, if it names one.
pub fn terms(plan: &Plan) -> Option<Terms> {
    let (baseline, spans) = plan.baseline.as_ref()?;
    let promises = baseline.compare.iter().zip(spans).map(|(comparison, span)| {
        let metric = comparison.metric.0;
        let place = plan.sources.place(*span);
        let has = |member: &Member, metric: &Metric| member.lacks(metric).is_none();
        // The bits of round trips are their number again.
        let is_listed = baseline.compare.iter().any(|other| other.metric.0.name == TRANSACTION_RATE);
        let repeats = |member: &Member| {
            let headline = Family::of(&member.workload).headline(|metric| has(member, metric));
            is_listed
                && metric.name == "throughput"
                && headline.is_some_and(|headline| headline.name == TRANSACTION_RATE)
        };
        let measured = |case: &&Case| case.members.iter().any(|m| has(m, metric) && !repeats(m));
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
    });
    Some(Terms {
        source: baseline.source.clone(),
        on_missing: baseline.on_missing.unwrap_or_default(),
        require_same: baseline.require_same.clone(),
        promises: promises.collect(),
    })
}
