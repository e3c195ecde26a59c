//! Surveys as a table.

use std::io::Write;

use schemas::columns::number;

use super::Judged;
use crate::error::Error;
use crate::survey::{DISTURBED, FAILED, Kind, Limit, Role};

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
