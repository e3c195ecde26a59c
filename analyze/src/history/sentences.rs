//! Sentences about series and their findings, for terminals, Markdown, annotations and pages.

use super::{
    analysed::{AnalysedSeries, Event},
    commits::{Commit, short},
    series::{Outage, Reading, Run},
    trend::{FEWEST, Finding},
};
use crate::first_few;
use schemas::{
    columns::number,
    text::{counted, short_id, short_names},
    units::{Unit, human, margin, three_digits},
    words::Verdict,
};
use std::collections::BTreeMap;

/// Series with the same doubt or outcome that are named; of more, their number.
const NAMED: usize = 3;

/// Series from which on false changes are told to be likely.
const MANY: usize = 20;

/// Share of series of a hundred runs without a change in which one is found: docs/reference/statistics.md.
const FALSE: f64 = 0.005;

/// What may have become of a series, worst first.
const OUTCOMES: [&str; 4] = ["got worse", "changed", "got better", "changed as accepted"];

/// What a history comes to, in sentences: an outage that lasts, then the series by their latest findings. And the worst of it.
pub fn answer(reading: &Reading, all: &[AnalysedSeries]) -> (Verdict, String) {
    let (over, lasting): (Vec<&Outage>, Vec<&Outage>) = reading.outages.iter().partition(|one| one.end.is_some());
    let (searched, few): (Vec<_>, Vec<_>) = all.iter().partition(|analysed| analysed.trend.missing == 0);
    let lasts = first_few(lasting.iter().map(|one| outage(one)), 1).join(", ");
    let mut said: Vec<String> = (!lasts.is_empty()).then(|| format!("{lasts}.")).into_iter().collect();
    let mut changed = 0;
    let mut worst = if lasting.is_empty() { Verdict::Same } else { Verdict::Regression };
    for of in OUTCOMES {
        let named: Vec<String> = searched.iter().filter_map(|analysed| latest(reading, analysed, of)).collect();
        if named.is_empty() {
            continue;
        }
        let among = if changed == 0 { format!(" of {} series", searched.len()) } else { String::new() };
        changed += named.len();
        worst = if of == OUTCOMES[0] { Verdict::Regression } else { worst };
        said.push(format!("{}{among} {of}: {}.", named.len(), first_few(named.into_iter(), NAMED).join("; ")));
    }
    let earlier = searched.iter().map(|analysed| analysed.trend.findings.len()).sum::<usize>() - changed;
    match searched.len() - changed {
        _ if searched.is_empty() => {
            worst = if lasting.is_empty() { Verdict::Inconclusive } else { worst };
            said.push(format!("Too few runs to tell a change: no series has {FEWEST}."));
        }
        same if changed == 0 => said.push(format!("No change in {same} series.")),
        0 => {}
        same => said.push(format!("{same} did not change.")),
    }
    let counts = [
        ("Earlier changes", earlier),
        ("Series with too few runs", if searched.is_empty() { 0 } else { few.len() }),
        ("Outages that ended", over.len()),
    ];
    said.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{what}: {count}.")));
    (worst, said.join(" "))
}

/// The latest finding of a series, if this became of it: `bulk throughput, 10 % lower since run r36 of 2026-01-01 (commit 0000024)`.
fn latest(reading: &Reading, analysed: &AnalysedSeries, outcome: &str) -> Option<String> {
    let (i, finding) = analysed.latest()?;
    let own = match (&analysed.accepted[i], finding.worse) {
        (None, Some(true)) => 0,
        (None, None) => 1,
        (None, Some(false)) => 2,
        (Some(_), _) => 3,
    };
    let (before, first) = analysed.runs(reading, finding);
    let (name, size) = (name(analysed), Words::of(analysed, finding).size);
    let commit = Some(short(&first.commit)).filter(|commit| !commit.is_empty() && !finding.is_drift);
    let commit = commit.map_or_else(String::new, |commit| format!(" (commit {commit})"));
    let when = if finding.is_drift { drift(before, first) } else { since(first) };
    (OUTCOMES[own] == outcome).then(|| format!("{name}, {size} {when}{commit}"))
}

/// `bulk throughput`, with member and direction where they tell it apart.
pub fn name(analysed: &AnalysedSeries) -> String {
    let key = &analysed.series.key;
    let mut name = short_names(&analysed.series.case);
    if !key.member.is_empty() {
        name = format!("{name} {}", key.member);
    }
    if !["", "forward"].contains(&key.direction.as_str()) {
        name = format!("{name} ({})", key.direction);
    }
    format!("{name} {}", key.metric)
}

/// The kind of a finding: regression, improvement, drift …, or that it is accepted.
pub fn word(analysed: &AnalysedSeries, i: usize) -> &'static str {
    let finding = &analysed.trend.findings[i];
    match (&analysed.accepted[i], finding.worse, finding.is_drift) {
        (Some(_), ..) => "accepted",
        (None, Some(true), false) => "regression",
        (None, Some(true), true) => "drift for the worse",
        (None, Some(false), false) => "improvement",
        (None, Some(false), true) => "drift for the better",
        (None, None, false) => "change",
        (None, None, true) => "drift",
    }
}

/// A finding: by how much, since which run, from which level to which.
pub fn sentence(reading: &Reading, analysed: &AnalysedSeries, i: usize) -> String {
    let finding = &analysed.trend.findings[i];
    let (before, first) = analysed.runs(reading, finding);
    let (name, words) = (name(analysed), Words::of(analysed, finding));
    if finding.is_drift {
        return format!("{name} drifted {}, {}", words.levels, drift(before, first));
    }
    format!(
        "{name} is {} {}: {} ({}); {}",
        words.change,
        since(first),
        words.levels,
        counted(analysed.since(finding), "run"),
        words.p
    )
}

/// A finding below the heading of its event: the sentence without the run.
pub fn line(analysed: &AnalysedSeries, i: usize) -> String {
    let finding = &analysed.trend.findings[i];
    let (name, words) = (name(analysed), Words::of(analysed, finding));
    if finding.is_drift {
        return format!("{name} drifted {}", words.levels);
    }
    format!("{name} is {}: {}; {}", words.change, words.levels, words.p)
}

/// The heading of an event: the plan and machine, the run and the day.
pub fn heading(reading: &Reading, all: &[AnalysedSeries], event: &Event) -> String {
    let (series, finding) = event.findings[0];
    let analysed = &all[series];
    let (key, finding) = (&analysed.series.key, &analysed.trend.findings[finding]);
    let (before, first) = (&reading.runs[event.before], &reading.runs[event.first]);
    let place = format!("{} on {}", key.plan, reading.host(&key.machine));
    if event.is_drift {
        return format!("{place}, {}", drift(before, first));
    }
    format!("{place}, {} ({})", since(first), counted(analysed.since(finding), "run"))
}

/// Parts of sentences about a finding.
struct Words {
    /// `10 % lower`
    size: String,
    /// `10 % (9.1 % … 11 %) lower`
    change: String,
    /// `9.4 Gbit/s before, 8.5 Gbit/s since`; of a drift, `from 9.4 Gbit/s to 8.5 Gbit/s, 10 % lower`
    levels: String,
    /// `p 0.001`
    p: String,
}

impl Words {
    fn of(analysed: &AnalysedSeries, finding: &Finding) -> Self {
        let unit = analysed.trend.metric.map_or(Unit::Count, |metric| metric.unit);
        let value = |value: f64| if analysed.trend.metric.is_some() { human(unit, value) } else { three_digits(value) };
        let way = if finding.ratio < 0.0 { "lower" } else { "higher" };
        let interval = finding.interval.map_or_else(String::new, |(low, high)| {
            let (near, far) = if finding.ratio < 0.0 { (-high, -low) } else { (low, high) };
            format!(" ({} … {})", margin(near), margin(far))
        });
        let (was, is) = (value(finding.was), value(finding.is));
        // To a level of 0 there is no ratio.
        let ratio = Some(margin(finding.ratio.abs())).filter(|ratio| !ratio.is_empty());
        let by = |interval: &str| ratio.as_ref().map_or_else(String::new, |by| format!("{by}{interval} ")) + way;
        let size = by("");
        Self {
            levels: if finding.is_drift {
                format!("from {was} to {is}, {size}")
            } else {
                format!("{was} before, {is} since")
            },
            size,
            change: by(&interval),
            p: format!("p {}", finding.p.map(number).unwrap_or_default()),
        }
    }
}

/// `2026-01-01 to 2026-07-31`; one day alone.
fn days(first: &Run, last: &Run) -> String {
    let (from, to) = (day(first), day(last));
    if from == to { from.to_owned() } else { format!("{from} to {to}") }
}

/// Runs in the order of time: how many, from when to when, through which.
pub fn span(reading: &Reading, order: &[usize]) -> String {
    let (Some(first), Some(last)) = (order.first(), order.last()) else { return "no runs".to_owned() };
    let [first, last] = [first, last].map(|run| &reading.runs[*run]);
    format!("{}, {}, through run {}", counted(order.len(), "run"), days(first, last), short_id(&last.run_id))
}

/// The first run of a new level: `since run r36 of 2026-01-01`.
fn since(first: &Run) -> String {
    format!("since run {} of {}", short_id(&first.run_id), day(first))
}

/// The runs of a drift.
fn drift(first: &Run, last: &Run) -> String {
    let [from, to] = [first, last].map(|run| format!("run {} of {}", short_id(&run.run_id), day(run)));
    format!("between {from} and {to}")
}

/// The day on which a run began, in UTC.
pub fn day(run: &Run) -> &str {
    run.time.get(..10).unwrap_or(&run.time)
}

/// Why a finding is accepted, and the commits that lie between.
pub fn below(analysed: &AnalysedSeries, i: usize) -> Vec<String> {
    acceptance(analysed, i).into_iter().chain(commits(analysed, i)).collect()
}

/// Why a finding is accepted.
pub fn acceptance(analysed: &AnalysedSeries, i: usize) -> Option<String> {
    analysed.accepted[i].as_ref().map(|known| format!("accepted {}: {}", known.date, known.reason))
}

/// The commits that lie between, a line each; or why they are not known.
pub fn commits(analysed: &AnalysedSeries, i: usize) -> Vec<String> {
    match &analysed.commits[i] {
        Ok((list, more)) => {
            let lines = list.iter().map(|Commit { id, subject }| format!("{id} {subject}"));
            lines.chain((*more > 0).then(|| format!("and {more} earlier commits"))).collect()
        }
        Err(reason) => vec![format!("commits not known: {reason}")],
    }
}

/// Why little or nothing can be said of a series.
pub fn doubts(analysed: &AnalysedSeries) -> Vec<String> {
    let mut doubts = Vec::new();
    if analysed.trend.missing > 0 {
        let (have, missing) = (counted(analysed.series.points.len(), "run"), analysed.trend.missing);
        doubts.push(format!("{have}: {missing} more make the {FEWEST} that changes are searched in"));
    }
    if analysed.disturbed > 0 {
        let s = if analysed.disturbed == 1 { " is" } else { "s are" };
        let count = analysed.disturbed;
        doubts.push(format!("{count} run{s} left out: others took a CPU meanwhile (metric cpu.taken tells how much)"));
    }
    if analysed.trend.metric.is_none() {
        doubts.push(format!(
            "`{}` is no metric of this version: better and worse are not known",
            analysed.series.key.metric
        ));
    }
    if let Some(lag1) = analysed.trend.correlated {
        doubts.push(format!(
            "runs resemble the ones before them (lag-1 autocorrelation {lag1:.2}): changes may be false, see docs/reference/statistics.md"
        ));
    }
    doubts
}

/// `outage: nightly on a from 2026-01-01T00:10:00Z to 2026-01-01T00:30:00Z (2 cycles): b is gone`
pub fn outage(outage: &Outage) -> String {
    let Outage { plan, host, begin, end, cycles, reason } = outage;
    let end = end.as_ref().map_or_else(|| "on, and it lasts".to_owned(), |end| format!("to {end}"));
    let cycles = counted(cycles, "cycle");
    format!("outage: {plan} on {host} from {begin} {end} ({cycles}): {reason}")
}

/// Facts about the history for its reader.
pub fn notes(reading: &Reading, all: &[AnalysedSeries]) -> Vec<String> {
    let mut notes = reading.notes.clone();
    let mut doubted: Vec<(String, Vec<String>)> = Vec::new();
    for analysed in all {
        for doubt in doubts(analysed) {
            match doubted.iter_mut().find(|(known, _)| *known == doubt) {
                Some((_, names)) => names.push(name(analysed)),
                None => doubted.push((doubt, vec![name(analysed)])),
            }
        }
    }
    notes.extend(doubted.into_iter().map(|(doubt, names)| match names.len() {
        n if n > NAMED => format!("{n} series, first {}: {doubt}", names[0]),
        _ => format!("{}: {doubt}", names.join(", ")),
    }));
    let searched = all.iter().filter(|analysed| analysed.trend.missing == 0).count();
    if searched >= MANY {
        notes.push(format!(
            "{searched} series were searched: by chance alone, about {} of them would show a change in a hundred runs (docs/reference/statistics.md)",
            three_digits(searched as f64 * FALSE)
        ));
    }
    // The machines of each plan, with their first and last runs.
    let mut machines: BTreeMap<&str, BTreeMap<&str, (&str, &str)>> = BTreeMap::new();
    for analysed in all {
        let key = &analysed.series.key;
        let times = |point: &super::series::Point| reading.runs[point.run].time.as_str();
        let (Some(first), Some(last)) =
            (analysed.series.points.first().map(times), analysed.series.points.last().map(times))
        else {
            continue;
        };
        let span = machines.entry(&key.plan).or_default().entry(&key.machine).or_insert((first, last));
        *span = (span.0.min(first), span.1.max(last));
    }
    for (plan, machines) in &machines {
        if machines.len() > 1 {
            let began = machines.iter().map(|(machine, (first, _))| {
                format!("{} since {}", reading.host(machine), first.get(..10).unwrap_or(first))
            });
            let began: Vec<String> = began.collect();
            notes.push(format!(
                "{plan} ran on {} machines, each with series of its own: {}",
                machines.len(),
                began.join(", ")
            ));
        }
    }
    for analysed in all {
        let key = &analysed.series.key;
        let last = analysed.last.map_or("", |run| reading.runs[run].time.as_str());
        if let Some((_, latest)) =
            machines.get(&*key.plan).and_then(|m| m.get(&*key.machine)).filter(|(_, t)| *t > last)
        {
            let day = |time: &str| time.get(..10).unwrap_or(time).to_owned();
            notes.push(format!(
                "{} has no value since {}; the plan ran last on {}",
                name(analysed),
                day(last),
                day(latest)
            ));
        }
    }
    notes
}
