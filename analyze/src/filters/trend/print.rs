//! Trends for people, and as a table.

use std::io::Write;

use schemas::columns::number;
use schemas::text::plain;
use schemas::units::{human, margin, three_digits};

use crate::error::Error;
use crate::history::{
    events::{Event, events},
    sentences::{acceptance, commits, doubts, heading, line, name, notes, word},
    series::Reading,
    told::Told,
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
            let (before, first) = told.runs(reading, finding);
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
            cells.extend([told.since(finding).to_string(), String::new(), String::new()]);
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

/// Sentences: what changed, then the levels of all series.
pub fn text(reading: &Reading, all: &[Told], sheet: &Sheet, output: &mut dyn Write) -> Result<(), Error> {
    for event in events(reading, all) {
        layout::paragraph(&plain(&heading(reading, all, &event)), sheet.indent, sheet.width, output)?;
        for (told, i) in event.findings.iter().map(|(series, i)| (&all[*series], *i)) {
            let style = match (told.trend.findings[i].worse, &told.accepted[i]) {
                (_, Some(_)) | (None, _) => style::NOTE,
                (Some(true), None) => style::ERROR,
                (Some(false), None) => style::GOOD,
            };
            let head = sheet.painted(style, word(told, i));
            layout::paragraph(&format!("{head}: {}", plain(&line(told, i))), sheet.indent + 2, sheet.width, output)?;
            if let Some(line) = acceptance(told, i) {
                layout::paragraph(&plain(&line), sheet.indent + 4, sheet.width, output)?;
            }
        }
        for line in commits_of(all, &event) {
            layout::paragraph(&plain(&line), sheet.indent + 4, sheet.width, output)?;
        }
    }
    if all.iter().all(|told| told.trend.findings.is_empty()) {
        let searched = all.iter().any(|told| told.trend.missing == 0);
        writeln!(output, "{}", if searched { "no change" } else { "too few runs to tell a change" })?;
    }
    writeln!(output)?;
    layout::aligned(&levels(reading, all), sheet, output)?;
    for note in notes(reading, all) {
        layout::paragraph(&plain(&format!("note: {note}")), sheet.indent, sheet.width, output)?;
    }
    Ok(())
}

/// The same in Markdown.
pub fn markdown(reading: &Reading, all: &[Told], output: &mut dyn Write) -> Result<(), Error> {
    writeln!(output, "## Trend\n")?;
    let escaped = crate::table::markdown::escaped;
    for event in events(reading, all) {
        writeln!(output, "- {}", escaped(&heading(reading, all, &event)))?;
        for (told, i) in event.findings.iter().map(|(series, i)| (&all[*series], *i)) {
            writeln!(output, "  - **{}**: {}", word(told, i), escaped(&line(told, i)))?;
            if let Some(line) = acceptance(told, i) {
                writeln!(output, "    - {}", escaped(&line))?;
            }
        }
        for line in commits_of(all, &event) {
            writeln!(output, "  - {}", escaped(&line))?;
        }
    }
    if all.iter().all(|told| told.trend.findings.is_empty()) {
        writeln!(output, "No change.")?;
    }
    writeln!(output)?;
    layout::markdown(&levels(reading, all), output)?;
    for note in notes(reading, all) {
        writeln!(output, "\nNote: {}", escaped(&note))?;
    }
    Ok(())
}

/// The commits of an event: those of each of its findings, since all lie between the same runs.
fn commits_of(all: &[Told], event: &Event) -> Vec<String> {
    event.findings.first().map(|(series, i)| commits(&all[*series], *i)).unwrap_or_default()
}

/// The present level of each series.
fn levels(reading: &Reading, all: &[Told]) -> Vec<Column> {
    let several = |of: fn(&Told) -> &str| all.iter().any(|told| of(told) != of(&all[0]));
    let mut columns = Vec::new();
    if several(|told| &told.series.key.plan) {
        columns.push(Column::of("plan", false, all, |told| told.series.key.plan.clone()));
    }
    if several(|told| &told.series.key.machine) {
        columns.push(Column::of("machine", false, all, |told| reading.host(&told.series.key.machine).to_owned()));
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
