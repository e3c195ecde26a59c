//! The answer in a sentence: from verdicts, comparisons and results, worst news first.

use schemas::{
    columns::VerdictRow,
    metrics::{self, Family, Metric},
    text::short_names,
    units,
};

use crate::{
    cases::Case,
    export::page::{Block, Tone},
    judge::{self, incomplete},
    limits,
};

/// Cases that are named one by one; of more, the smallest and the largest result.
const NAMED: usize = 3;

/// Facts for the sentence, beside the cases.
#[derive(Default)]
pub struct Facts<'a> {
    pub verdicts: &'a [VerdictRow],
    /// Name of the other run, and the comparisons with it.
    pub against: Option<(&'a str, &'a [VerdictRow])>,
    /// Why the run ended early.
    pub cut_short: Option<String>,
}

pub fn of(cases: &[Case], facts: &Facts<'_>) -> Block {
    let mut sentences = Vec::new();
    let mut tones = Vec::new();
    if let Some(why) = &facts.cut_short {
        sentences.push(format!("{why}."));
        tones.push(Tone::Doubtful);
    }
    let with_reason = |case| (Case::name(case), case.left_out.last().map_or("", |(_, why)| &**why));
    let failed = cases.iter().filter(|case| case.failed()).map(with_reason);
    let failed = incomplete::failed_of(cases.iter().map(Case::name), failed);
    tones.extend(failed.as_ref().map(|_| Tone::Bad));
    sentences.extend(failed);
    let judged = judge::answer(facts.verdicts, "the baseline");
    // What a verdict says of the same two runs is not said again.
    let is_told = |row: &VerdictRow| {
        let about = |row: &VerdictRow| {
            (row.baseline_run_id.clone(), row.case_id.clone(), row.member.clone(), row.metric.clone())
        };
        let told = |known: &VerdictRow| about(known) == about(row) && known.verdict == row.verdict;
        !row.baseline_run_id.is_empty() && facts.verdicts.iter().any(told)
    };
    let new = facts.against.filter(|(_, rows)| !rows.iter().all(is_told));
    let compared = new.and_then(|(name, rows)| {
        // Beside verdicts by the limits of a plan.
        let limit = facts.verdicts.iter().any(VerdictRow::compares).then(|| rows.first()?.limit_ratio).flatten();
        let limit = limit.map(|limit| format!(" (a change of {} counts)", units::margin(limit)));
        judge::answer(rows, &format!("{name}{}", limit.unwrap_or_default()))
    });
    for (verdict, text) in [&judged, &compared].into_iter().flatten() {
        sentences.push(text.clone());
        tones.push(Tone::of(*verdict));
    }
    let latency = added(cases).or_else(|| loaded(cases));
    // Beside the price of a load stands what the load carried.
    let carried = results(cases, |case| latency.is_none() || case.family() == Family::Stream);
    let results = carried.into_iter().chain(latency).reduce(|carried, latency| format!("{carried} {latency}"));
    if cases.is_empty() {
        sentences.push("Nothing was measured.".to_owned());
        tones.push(Tone::Bad);
    }
    let has = |tone| tones.contains(&tone);
    let tone = [Tone::Bad, Tone::Doubtful, Tone::Good].into_iter().find(|t| has(*t)).unwrap_or_default();
    let nothing = (judged.is_none() && compared.is_none()).then(|| "Nothing was asserted.".to_owned());
    // Without verdicts the results are the answer.
    let (text, more) = match results {
        Some(results) if sentences.is_empty() => (results, nothing),
        results if sentences.is_empty() => ("Nothing was asserted; the results are below.".to_owned(), results),
        results => (sentences.join(" "), results.or(nothing)),
    };
    Block::Answer { tone, text: short_names(&text), more: short_names(&more.unwrap_or_default()) }
}

/// `download carried 41.8 Gbit/s ± 0.3 %; roundtrip made 19.7 k transactions/s ± 1 %, half of them within 49 µs.` Of more cases the
/// smallest and the largest result of each test, if there are few tests.
fn results(cases: &[Case], is_shown: impl Fn(&Case) -> bool) -> Option<String> {
    // A member's or direction's share is part of the total.
    let shown = cases.iter().filter(|case| case.count() > 0 && case.is_total(cases) && is_shown(case));
    let totals: Vec<(&Case, &'static Metric)> = shown.filter_map(|c| Some((c, c.headline()?))).collect();
    let mut tests: Vec<Vec<(&Case, &'static Metric)>> = Vec::new();
    for total in &totals {
        let of_test = tests.iter_mut().find(|test| test[0].0.test() == total.0.test());
        match of_test.filter(|_| totals.len() > NAMED) {
            Some(test) => test.push(*total),
            None => tests.push(vec![*total]),
        }
    }
    let has_one_metric = |test: &Vec<(&Case, &Metric)>| test.iter().all(|(_, m)| m.column == test[0].1.column);
    let said = tests.iter().filter(|_| tests.len() <= NAMED && tests.iter().all(has_one_metric));
    let said: Vec<String> = said.filter_map(|test| range(test)).collect();
    let sentence = format!("{}.", said.join("; "));
    // The name of a case stays as it is.
    let begins_with_name = tests.first()?.len() == 1;
    (!said.is_empty()).then(|| if begins_with_name { sentence } else { capital(&sentence) })
}

/// A test's result, or its smallest and its largest: `throughput was 1.2 Gbit/s (sizes[64 B]) to 41.8 Gbit/s (sizes[64 KiB])`.
fn range(test: &[(&Case, &'static Metric)]) -> Option<String> {
    let (first, metric) = *test.first()?;
    if test.len() == 1 {
        return Some(result(first, metric));
    }
    let value = |c: &Case| c.centre(metric).unwrap_or_default();
    let by = |a: &&Case, b: &&Case| value(a).total_cmp(&value(b));
    let (least, most) = (test.iter().map(|t| t.0).min_by(by)?, test.iter().map(|t| t.0).max_by(by)?);
    let human = |c: &Case| units::human(metric.unit, value(c));
    Some(format!("{} was {} ({}) to {} ({})", metric.label, human(least), least.label, human(most), most.label))
}

fn result(case: &Case, metric: &'static Metric) -> String {
    let centre = case.centre(metric).unwrap_or_default();
    let (low, high) = case.interval(metric).unwrap_or((centre, centre));
    let value = units::human_with_spread(metric.unit, centre, low, high);
    let result = match metric.name {
        "throughput" => {
            let silent = case.summary.as_ref().and_then(limits::silent);
            let silent = silent.map(|silent| format!(", although {silent}")).unwrap_or_default();
            let lost = metrics::find("loss_ratio").and_then(|m| case.centre(m)).filter(|ratio| *ratio > 0.0);
            let lost =
                lost.map(|ratio| format!(" and lost {} of its messages", units::human(units::Unit::Ratio, ratio)));
            format!("{} carried {value}{}{silent}", case.label, lost.unwrap_or_default())
        }
        "sent" => format!("{} sent {value}", case.label),
        "transaction_rate" => {
            let median = metrics::find("latency.p50").and_then(|m| case.of_all(m));
            let median = median.map(|v| format!(", median {}", units::human(units::Unit::Microseconds, v)));
            format!("{} made {value}{}", case.label, median.unwrap_or_default())
        }
        "elapsed" => format!("{} took {value}", case.label),
        _ => format!("{}: {} {value}", case.label, metric.label),
    };
    match case.limit() {
        Some(limit) => {
            let result = result.strip_prefix(&case.label).unwrap_or(&result).trim();
            format!("{} {limit}, and {result}", case.label)
        }
        None => result,
    }
}

/// `Load adds to the median round trip: load upload-udp 12.4 ms (11.9 … 13.0 ms); load upload-tcp 9.10 ms.`
fn added(cases: &[Case]) -> Option<String> {
    let metric = metrics::find(metrics::ADDED)?;
    let mut probes: Vec<(&Case, f64)> = cases.iter().filter_map(|c| Some((c, c.centre(metric)?))).collect();
    let most = 2 * NAMED;
    let which = if probes.len() > most { ", least and most" } else { "" };
    if probes.len() > most {
        probes.sort_by(|a, b| a.1.total_cmp(&b.1));
        probes = [probes.first().copied(), probes.last().copied()].into_iter().flatten().collect();
    }
    let said = probes.iter().map(|(case, centre)| {
        let (low, high) = case.interval(metric).unwrap_or((*centre, *centre));
        format!("{} {}", case.label, units::human_with_spread(metric.unit, *centre, low, high))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("Load adds to the median round trip{which}: {}.", said.join("; ")))
}

/// The price of load: the same probe in a case without streams beside it, and in one with them.
fn loaded(cases: &[Case]) -> Option<String> {
    let p50 = metrics::find("latency.p50")?;
    let p99 = metrics::find("latency.p99")?;
    let streams = |test: &str| cases.iter().any(|c| c.name() == test && !c.member().is_empty() && !c.is_timed());
    let mut said = Vec::new();
    for idle in cases.iter().filter(|c| c.is_timed() && !c.member().is_empty() && !streams(c.name())) {
        let probe = |c: &&Case| c.member() == idle.member() && c.workload() == idle.workload() && c.is_timed();
        for busy in cases.iter().filter(probe).filter(|c| streams(c.name())) {
            let human = |case: &Case, m: &Metric| Some(units::human(m.unit, case.of_all(m)?));
            let pair = |m| Some((human(idle, m)?, human(busy, m)?));
            let (Some(median), Some(tail)) = (pair(p50), pair(p99)) else { continue };
            let (member, idle, busy) = (idle.member(), idle.name(), busy.name());
            said.push(format!(
                "{member}: median {} in {idle}, {} in {busy} (p99 {} and {})",
                median.0, median.1, tail.0, tail.1
            ));
        }
    }
    (!said.is_empty()).then(|| format!("Round trips without and with load: {}.", said.join("; ")))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
