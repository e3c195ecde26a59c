//! Surveys for people, and as a table.

use std::io::Write;

use schemas::columns::number;
use schemas::text::plain;
use schemas::units::{human, three_digits};

use super::Judged;
use crate::error::Error;
use crate::style;
use crate::survey::{Cell, Kind, Limit, Pairs, Role, pairs, percent};
use crate::table::layout::{self, Column, Sheet};

/// Failed and missing pairs that are named in a sentence.
const NAMED: usize = 5;

/// Cells of the matrix without a number.
const SELF: &str = "·";
const MISSING: &str = "-";
const FAILED: &str = "failed";
const DISTURBED: &str = "disturbed";

/// A row of the table of findings. Its columns are those of [`COLUMNS`].
#[derive(Default)]
struct Row {
    finding: &'static str,
    host: String,
    role: &'static str,
    pair: Option<(usize, usize)>,
    effect: Option<[f64; 3]>,
    shown: Option<usize>,
    pairs: Option<usize>,
    overall: Option<f64>,
    spread: Option<f64>,
    noise: Option<f64>,
    suspects: Option<usize>,
    note: String,
}

const COLUMNS: [&str; 16] = [
    "metric",
    "finding",
    "host",
    "role",
    "from",
    "to",
    "worse_ratio",
    "ci_low_ratio",
    "ci_high_ratio",
    "shown",
    "pairs",
    "overall",
    "spread_ratio",
    "noise_ratio",
    "suspects",
    "note",
];

impl Row {
    fn cells(self, metric: &str, hosts: &[String]) -> [String; COLUMNS.len()] {
        let value = |value: Option<f64>| value.map(number).unwrap_or_default();
        let count = |count: Option<usize>| count.map(|n| n.to_string()).unwrap_or_default();
        let name = |host: Option<usize>| host.map(|h| hosts[h].clone()).unwrap_or_default();
        let [worse, low, high] = [0, 1, 2].map(|i| value(self.effect.map(|e| e[i])));
        [
            metric.to_owned(),
            self.finding.to_owned(),
            self.host,
            self.role.to_owned(),
            name(self.pair.map(|p| p.0)),
            name(self.pair.map(|p| p.1)),
            worse,
            low,
            high,
            count(self.shown),
            count(self.pairs),
            value(self.overall),
            value(self.spread),
            value(self.noise),
            count(self.suspects),
            self.note,
        ]
    }
}

/// Findings as rows, with a row for each survey as a whole before its own.
pub fn csv(surveys: &[Judged], output: &mut dyn Write) -> Result<(), Error> {
    let mut keys: Vec<&str> = Vec::new();
    for (name, _) in surveys.iter().flat_map(|s| &s.pairs.key) {
        if !keys.contains(&name.as_str()) {
            keys.push(name);
        }
    }
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(keys.iter().chain(&COLUMNS))?;
    for survey in surveys {
        let key = |key: &&str| {
            let own = survey.pairs.key.iter().find(|(name, _)| name == key);
            own.map_or_else(String::new, |(_, text)| text.clone())
        };
        for row in rows(survey) {
            let cells = row.cells(survey.pairs.metric.name, survey.pairs.matrix.hosts());
            writer.write_record(keys.iter().map(key).chain(cells))?;
        }
    }
    Ok(writer.flush()?)
}

fn rows(survey: &Judged) -> Vec<Row> {
    let found = &survey.found;
    let hosts = survey.pairs.matrix.hosts();
    let notes: Vec<String> = found.limits.iter().map(Limit::sentence).collect();
    let mut rows = vec![Row {
        finding: "survey",
        pairs: Some(found.measured),
        overall: found.overall,
        spread: found.spread,
        noise: found.noise,
        suspects: found.suspect_count(),
        note: notes.join("; "),
        ..Row::default()
    }];
    for (suspect, note) in found.suspects.iter().zip(sentences(survey)) {
        let (finding, host, role) = match suspect.kind {
            Kind::Host { host, role: Role::Sender } => ("host", hosts[host].clone(), "from"),
            Kind::Host { host, role: Role::Receiver } => ("host", hosts[host].clone(), "to"),
            Kind::Host { host, role: Role::Both } => ("host", hosts[host].clone(), "both"),
            Kind::Link { .. } => ("link", String::new(), ""),
        };
        rows.push(Row {
            finding,
            host,
            role,
            pair: Some(suspect.example),
            effect: Some([suspect.worse, suspect.low, suspect.high]),
            shown: Some(suspect.shown),
            pairs: Some(suspect.pairs),
            note,
            ..Row::default()
        });
    }
    for (finding, list) in [(FAILED, &found.failed), (DISTURBED, &found.disturbed), ("missing", &found.missing)] {
        rows.extend(list.iter().map(|pair| Row { finding, pair: Some(*pair), ..Row::default() }));
    }
    rows
}

fn sentences(survey: &Judged) -> Vec<String> {
    survey.found.sentences(survey.pairs.matrix.hosts(), survey.pairs.metric.better, survey.pairs.ends)
}

/// A table of pairs where there is room, else one of hosts; then the verdict in sentences.
pub fn people(surveys: &[Judged], markdown: bool, sheet: &Sheet, output: &mut dyn Write) -> Result<(), Error> {
    for (i, survey) in surveys.iter().enumerate() {
        if i > 0 {
            writeln!(output)?;
        }
        let title =
            format!("{}: {}, {} hosts", survey.pairs.name(), survey.pairs.metric.name, survey.pairs.matrix.len());
        let title = plain(&title);
        writeln!(output, "{}\n", if markdown { format!("## {title}") } else { sheet.painted(style::HEAD, &title) })?;
        let matrix = matrix(&survey.pairs);
        let columns = if layout::needed(&matrix) <= sheet.width.unwrap_or(usize::MAX) { matrix } else { hosts(survey) };
        if markdown {
            layout::markdown(&columns, output)?;
        } else {
            layout::aligned(&columns, sheet, output)?;
        }
        writeln!(output)?;
        let bullet = if markdown { "- " } else { "" };
        for line in facts(survey) {
            writeln!(output, "{bullet}{}", plain(&line))?;
        }
    }
    Ok(())
}

/// The values, from × to, in the unit of the median.
fn matrix(pairs: &Pairs) -> Vec<Column> {
    let matrix = &pairs.matrix;
    let median = crate::stats::quantiles::median(&matrix.values()).unwrap_or(1.0);
    let shown = human(pairs.metric.unit, median);
    // `9.41 Gbit/s`: the number and the unit of all cells.
    let (digits, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
    let scale = digits.parse::<f64>().ok().filter(|d| *d > 0.0).map_or(1.0, |d| power(median / d));
    let all: Vec<usize> = (0..matrix.len()).collect();
    let corner = if unit.is_empty() { "from \\ to".to_owned() } else { format!("{unit}, from \\ to") };
    let mut columns = vec![Column::of(&corner, false, &all, |from| matrix.hosts()[*from].clone())];
    for to in &all {
        columns.push(Column::of(&matrix.hosts()[*to], true, &all, |from| match matrix.cell(*from, *to) {
            _ if from == to => SELF.to_owned(),
            Cell::Missing => MISSING.to_owned(),
            Cell::Failed => FAILED.to_owned(),
            Cell::Disturbed(_) => DISTURBED.to_owned(),
            Cell::Value(value) => three_digits(value / scale),
        }));
    }
    columns
}

/// The power of ten or of 1024 that is nearest to a ratio.
fn power(ratio: f64) -> f64 {
    let powers = (-9..=15).map(|p| 10_f64.powi(p)).chain((1..=4).map(|p| 1024_f64.powi(p)));
    powers.min_by(|a, b| (a / ratio).ln().abs().total_cmp(&(b / ratio).ln().abs())).unwrap_or(1.0)
}

/// Each host's medians and effects.
fn hosts(survey: &Judged) -> Vec<Column> {
    let (pairs, found) = (&survey.pairs, &survey.found);
    let matrix = &pairs.matrix;
    let all: Vec<usize> = (0..matrix.len()).collect();
    let median = |of: &dyn Fn(usize, usize) -> bool| {
        let value = |(from, to, cell)| match cell {
            Cell::Value(v) if of(from, to) => Some(v),
            _ => None,
        };
        let mut values: Vec<f64> = matrix.pairs().filter_map(value).collect();
        crate::stats::quantiles::select_median(&mut values).map(|v| human(pairs.metric.unit, v)).unwrap_or_default()
    };
    let effect = |host: usize, side: usize| {
        found.effects[host][side].map(|e| format!("{:.1} %", (e * 1000.0).round() / 10.0 + 0.0))
    };
    let without = |host: usize| {
        let of = |list: &[(usize, usize)]| list.iter().filter(|p| p.0 == host || p.1 == host).count();
        match of(&found.failed) + of(&found.disturbed) + of(&found.missing) {
            0 => String::new(),
            n => n.to_string(),
        }
    };
    vec![
        Column::of("host", false, &all, |host| matrix.hosts()[*host].clone()),
        Column::of("from it", true, &all, |host| median(&|from, _| from == *host)),
        Column::of("worse from it", true, &all, |host| effect(*host, 0).unwrap_or_default()),
        Column::of("to it", true, &all, |host| median(&|_, to| to == *host)),
        Column::of("worse to it", true, &all, |host| effect(*host, 1).unwrap_or_default()),
        Column::of("unmeasured", true, &all, |host| without(*host)),
    ]
}

/// Overall figures, suspects, pairs without a value and limits, a sentence each.
fn facts(survey: &Judged) -> Vec<String> {
    let (pairs_, found) = (&survey.pairs, &survey.found);
    let hosts = pairs_.matrix.hosts();
    let mut lines = Vec::new();
    if let Some(overall) = found.overall {
        let mut parts = vec![format!("median {}", human(pairs_.metric.unit, overall))];
        parts.extend(found.spread.map(|s| format!("spread {}", percent(s))));
        parts.extend(found.noise.map(|n| format!("noise of a pair {}", percent(n))));
        parts.push(format!("{} pairs", found.measured));
        lines.push(parts.join(" · "));
    }
    match found.suspect_count() {
        None => {}
        Some(0) => lines.push("No suspects.".to_owned()),
        Some(1) => lines.push("1 suspect:".to_owned()),
        Some(n) => lines.push(format!("{n} suspects:")),
    }
    lines.extend(sentences(survey));
    let disturbed = "measured only while others took a CPU of their hosts (disturbed)";
    for (list, what) in [(&found.failed, "failed"), (&found.disturbed, disturbed), (&found.missing, "not measured")] {
        let s = if list.len() == 1 { "pair" } else { "pairs" };
        if !list.is_empty() {
            lines.push(format!("{} {s} {what}: {}", list.len(), pairs(hosts, list, NAMED)));
        }
    }
    lines.extend(found.sensitivity.map(|s| s.sentence()));
    lines.extend(found.limits.iter().map(|limit| format!("note: {}", limit.sentence())));
    lines
}
