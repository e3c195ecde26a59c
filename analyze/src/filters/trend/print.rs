//! Trends for people, and as a table.

use std::collections::BTreeMap;
use std::io::Write;

use schemas::columns::number;
use schemas::units::{Unit, human, margin, three_digits};

use super::{Told, commits};
use crate::error::Error;
use crate::history::{
    series::{Reading, Run},
    trend::{FEWEST, Finding},
};
use crate::style;
use crate::table::layout::{self, Column, Sheet};

const COLUMNS: [&str; 28] = [
    "finding",
    "plan",
    "machine",
    "case_id",
    "case",
    "member",
    "direction",
    "metric",
    "runs",
    "missing_runs",
    "run_id",
    "time",
    "commit",
    "run_before",
    "commit_before",
    "was",
    "is",
    "change_ratio",
    "ci_low_ratio",
    "ci_high_ratio",
    "p",
    "worse",
    "runs_since",
    "noise_ratio",
    "lag1",
    "accepted",
    "commits",
    "note",
];

/// A row for each series and one for each finding.
pub fn csv(reading: &Reading, all: &[Told], output: &mut dyn Write) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(COLUMNS)?;
    for told in all {
        let key = &told.series.key;
        let points = &told.series.points;
        let ratio = |value: Option<f64>| value.map(number).unwrap_or_default();
        let start = |finding: &str| -> Vec<String> {
            let of_series =
                [&key.plan, &key.machine, &key.case_id, &told.series.case, &key.member, &key.direction, &key.metric];
            let mut cells = vec![finding.to_owned()];
            cells.extend(of_series.map(String::clone));
            cells.extend([points.len().to_string(), told.trend.missing.to_string()]);
            cells
        };
        let last = points.last().map(|point| &reading.runs[point.run]);
        let mut cells = start("level");
        cells.extend(
            last.map_or_else(Default::default, |run| [run.run_id.clone(), run.time.clone(), run.commit.clone()]),
        );
        cells.extend([String::new(), String::new(), String::new(), ratio(told.trend.level)]);
        cells.extend(std::iter::repeat_n(String::new(), 6));
        cells.extend([ratio(told.trend.noise_ratio), ratio(told.trend.correlated), String::new(), String::new()]);
        cells.push(doubts(told).join("; "));
        writer.write_record(&cells)?;
        for (i, finding) in told.trend.findings.iter().enumerate() {
            let (before, first) = runs(reading, told, finding);
            let mut cells = start(if finding.is_drift { "drift" } else { "change" });
            cells
                .extend([&first.run_id, &first.time, &first.commit, &before.run_id, &before.commit].map(String::clone));
            cells.extend([number(finding.was), number(finding.is), number(finding.ratio)]);
            cells.extend([
                ratio(finding.interval.map(|i| i.0)),
                ratio(finding.interval.map(|i| i.1)),
                ratio(finding.p),
            ]);
            cells.push(finding.worse.map(|worse| worse.to_string()).unwrap_or_default());
            cells.extend([since(told, finding).to_string(), String::new(), String::new()]);
            cells.push(
                told.accepted[i].as_ref().map(|known| format!("{}: {}", known.date, known.reason)).unwrap_or_default(),
            );
            let (list, note) = match &told.commits[i] {
                Ok((list, _)) => (list.iter().map(|c| c.id.as_str()).collect::<Vec<_>>().join(" "), String::new()),
                Err(reason) => (String::new(), reason.clone()),
            };
            cells.extend([list, note]);
            writer.write_record(&cells)?;
        }
    }
    Ok(writer.flush()?)
}

/// The runs around a finding: the last of the old level and the first of the new; of a drift, its first and last.
fn runs<'a>(reading: &'a Reading, told: &Told, finding: &Finding) -> (&'a Run, &'a Run) {
    let run = |index: usize| &reading.runs[told.series.points[index].run];
    if finding.is_drift { (run(finding.at), run(finding.end - 1)) } else { (run(finding.at - 1), run(finding.at)) }
}

/// Runs since the finding, its own counted.
fn since(told: &Told, finding: &Finding) -> usize {
    told.series.points.len() - if finding.is_drift { finding.end } else { finding.at }
}

/// Why little or nothing can be said of a series.
fn doubts(told: &Told) -> Vec<String> {
    let mut doubts = Vec::new();
    if told.trend.missing > 0 {
        let (have, missing) = (told.series.points.len(), told.trend.missing);
        let s = if have == 1 { "" } else { "s" };
        doubts.push(format!("{have} run{s}: {missing} more make the {FEWEST} that changes are searched in"));
    }
    if told.trend.metric.is_none() {
        doubts
            .push(format!("`{}` is no metric of this version: better and worse are not known", told.series.key.metric));
    }
    if let Some(lag1) = told.trend.correlated {
        doubts.push(format!(
            "runs resemble the ones before them (lag-1 autocorrelation {lag1:.2}): changes may be false, see docs/statistics.md"
        ));
    }
    doubts
}

/// Sentences: what changed, then the levels of all series.
pub fn text(reading: &Reading, all: &[Told], sheet: &Sheet, output: &mut dyn Write) -> Result<(), Error> {
    for told in all {
        for i in 0..told.trend.findings.len() {
            let finding = &told.trend.findings[i];
            let style = match (finding.worse, &told.accepted[i]) {
                (_, Some(_)) | (None, _) => style::NOTE,
                (Some(true), None) => style::ERROR,
                (Some(false), None) => style::GOOD,
            };
            let head = sheet.painted(style, word(told, i));
            layout::paragraph(&format!("{head}: {}", sentence(reading, told, i)), sheet.indent, sheet.width, output)?;
            for line in below(told, i) {
                layout::paragraph(&line, sheet.indent + 4, sheet.width, output)?;
            }
        }
    }
    if all.iter().all(|told| told.trend.findings.is_empty()) {
        writeln!(output, "no change")?;
    }
    writeln!(output)?;
    layout::aligned(&levels(all), sheet, output)?;
    for note in notes(reading, all) {
        layout::paragraph(&format!("note: {note}"), sheet.indent, sheet.width, output)?;
    }
    Ok(())
}

/// The same in Markdown.
pub fn markdown(reading: &Reading, all: &[Told], output: &mut dyn Write) -> Result<(), Error> {
    writeln!(output, "## Trend\n")?;
    for told in all {
        for i in 0..told.trend.findings.len() {
            writeln!(
                output,
                "- **{}**: {}",
                word(told, i),
                crate::table::markdown::escaped(&sentence(reading, told, i))
            )?;
            for line in below(told, i) {
                writeln!(output, "  - {}", crate::table::markdown::escaped(&line))?;
            }
        }
    }
    if all.iter().all(|told| told.trend.findings.is_empty()) {
        writeln!(output, "No change.")?;
    }
    writeln!(output)?;
    layout::markdown(&levels(all), output)?;
    for note in notes(reading, all) {
        writeln!(output, "\nNote: {}", crate::table::markdown::escaped(&note))?;
    }
    Ok(())
}

fn word(told: &Told, i: usize) -> &'static str {
    let finding = &told.trend.findings[i];
    match (&told.accepted[i], finding.worse, finding.is_drift) {
        (Some(_), ..) => "accepted",
        (None, Some(true), false) => "regression",
        (None, Some(true), true) => "drift for the worse",
        (None, Some(false), false) => "improvement",
        (None, Some(false), true) => "drift for the better",
        (None, None, false) => "change",
        (None, None, true) => "drift",
    }
}

fn sentence(reading: &Reading, told: &Told, i: usize) -> String {
    let finding = &told.trend.findings[i];
    let (before, first) = runs(reading, told, finding);
    let unit = told.trend.metric.map_or(Unit::Count, |metric| metric.unit);
    let value = |value: f64| if told.trend.metric.is_some() { human(unit, value) } else { three_digits(value) };
    let way = if finding.ratio < 0.0 { "lower" } else { "higher" };
    let interval = finding.interval.map_or_else(String::new, |(low, high)| {
        let (near, far) = if finding.ratio < 0.0 { (-high, -low) } else { (low, high) };
        format!(" ({} … {})", signed(near), signed(far))
    });
    let name = name(told);
    let (was, is) = (value(finding.was), value(finding.is));
    if finding.is_drift {
        return format!(
            "{name} drifted from {was} to {is}, {} {way}, between run {} of {} and run {} of {}",
            margin(finding.ratio.abs()),
            before.run_id,
            day(before),
            first.run_id,
            day(first)
        );
    }
    format!(
        "{name} is {}{interval} {way} since run {} of {}: {was} before, {is} since ({} run{}); p {}",
        margin(finding.ratio.abs()),
        first.run_id,
        day(first),
        since(told, finding),
        if since(told, finding) == 1 { "" } else { "s" },
        finding.p.map(number).unwrap_or_default()
    )
}

/// A share that may be below 0.
fn signed(ratio: f64) -> String {
    if ratio < 0.0 { format!("−{}", margin(-ratio)) } else { margin(ratio) }
}

fn day(run: &Run) -> &str {
    run.time.get(..10).unwrap_or(&run.time)
}

/// Why a finding is accepted, and the commits that lie between.
fn below(told: &Told, i: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        told.accepted[i].iter().map(|known| format!("accepted {}: {}", known.date, known.reason)).collect();
    match &told.commits[i] {
        Ok((list, more)) => {
            lines.extend(list.iter().map(|commits::Commit { id, subject }| format!("{id} {subject}")));
            if *more > 0 {
                lines.push(format!("and {more} earlier commits"));
            }
        }
        Err(reason) => lines.push(format!("commits not known: {reason}")),
    }
    lines
}

/// `bulk throughput`, with member and direction where they tell it apart.
fn name(told: &Told) -> String {
    let key = &told.series.key;
    let mut name = told.series.case.clone();
    if !key.member.is_empty() {
        name = format!("{name} {}", key.member);
    }
    if !["", "forward"].contains(&key.direction.as_str()) {
        name = format!("{name} ({})", key.direction);
    }
    format!("{name} {}", key.metric)
}

/// The present level of each series.
fn levels(all: &[Told]) -> Vec<Column> {
    let several = |of: fn(&Told) -> &str| all.iter().any(|told| of(told) != of(&all[0]));
    let mut columns = Vec::new();
    if several(|told| &told.series.key.plan) {
        columns.push(Column::of("plan", false, all, |told| told.series.key.plan.clone()));
    }
    if several(|told| &told.series.key.machine) {
        columns.push(Column::of("machine", false, all, |told| told.series.key.machine.clone()));
    }
    columns.extend([
        Column::of("series", false, all, name),
        Column::of("runs", true, all, |told| told.series.points.len().to_string()),
        Column::of("level", true, all, |told| match (told.trend.level, told.trend.metric) {
            (Some(level), Some(metric)) => human(metric.unit, level),
            (Some(level), None) => three_digits(level),
            (None, _) => String::new(),
        }),
        Column::of("noise", true, all, |told| told.trend.noise_ratio.map(margin).unwrap_or_default()),
        Column::of("changes", true, all, |told| match told.trend.missing {
            0 => told.trend.findings.len().to_string(),
            _ => "too few runs".to_owned(),
        }),
    ]);
    columns
}

/// Facts about the history for its reader.
fn notes(reading: &Reading, all: &[Told]) -> Vec<String> {
    let mut notes = reading.notes.clone();
    for told in all {
        notes.extend(doubts(told).into_iter().map(|doubt| format!("{}: {doubt}", name(told))));
    }
    // The machines of each plan, with their first and last runs.
    let mut machines: BTreeMap<&str, BTreeMap<&str, (&str, &str)>> = BTreeMap::new();
    for told in all {
        let key = &told.series.key;
        let times = |point: &crate::history::series::Point| reading.runs[point.run].time.as_str();
        let (Some(first), Some(last)) = (told.series.points.first().map(times), told.series.points.last().map(times))
        else {
            continue;
        };
        let span = machines.entry(&key.plan).or_default().entry(&key.machine).or_insert((first, last));
        *span = (span.0.min(first), span.1.max(last));
    }
    for (plan, machines) in &machines {
        if machines.len() > 1 {
            let began = machines
                .iter()
                .map(|(machine, (first, _))| format!("{machine} since {}", first.get(..10).unwrap_or(first)));
            let began: Vec<String> = began.collect();
            notes.push(format!(
                "{plan} ran on {} machines, each with series of its own: {}",
                machines.len(),
                began.join(", ")
            ));
        }
    }
    for told in all {
        let key = &told.series.key;
        let last = told.series.points.last().map_or("", |point| reading.runs[point.run].time.as_str());
        if let Some((_, latest)) =
            machines.get(&*key.plan).and_then(|m| m.get(&*key.machine)).filter(|(_, t)| *t > last)
        {
            let day = |time: &str| time.get(..10).unwrap_or(time).to_owned();
            notes.push(format!(
                "{} has no value since {}; the plan ran last on {}",
                name(told),
                day(last),
                day(latest)
            ));
        }
    }
    notes
}
