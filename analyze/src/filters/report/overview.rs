//! What was asked: a table for runs of many cases (swept values down, the values of a setting across), and the run's facts.

use super::cases::Case;
use crate::{export::page::Block, plot::quantity::Quantity, table::layout::Column};
use indexmap::{IndexMap, IndexSet};
use schemas::{
    metrics::{self, Metric},
    run_record::{PlanRecord, RunRecord},
    text::{case_parts, short_id},
    units,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Cases that a reader takes in as a list; of more, the table begins with this one.
const LONG: usize = 12;

/// The largest number of columns of a setting, and the largest one in which there is room for intervals.
const ACROSS: usize = 6;
const WITH_INTERVALS: usize = 4;

/// Something in which cases differ.
struct Factor {
    title: String,
    /// The distinct values, in the order of the cases.
    values: IndexSet<String>,
    /// The value of each case, as an index into `values`.
    of: Vec<usize>,
    /// Whether it is a swept key, and no member.
    is_swept: bool,
}

impl Factor {
    fn new(title: String, is_swept: bool, cells: impl Iterator<Item = String>) -> Self {
        let mut values = IndexSet::new();
        let of = cells.map(|cell| values.insert_full(cell).0).collect();
        Self { title, values, of, is_swept }
    }

    /// How well it stands across: settings with words first, then members, then numbers; few values before many.
    fn rank(&self) -> (bool, bool, usize) {
        let has_numbers = self.values.iter().all(|value| value.starts_with(|c: char| c.is_ascii_digit()));
        (has_numbers, !self.is_swept, self.values.len())
    }
}

/// The table of a test.
pub struct Overview {
    pub test: String,
    /// Its heading: `sizes: throughput by message size, io, with the 95 % interval.`
    pub said: String,
    about: String,
    pub columns: Vec<Column>,
}

/// [`tables`] as blocks.
pub fn of(cases: &[Case]) -> Vec<Block> {
    let blocks = |of: Overview| {
        let Overview { said, about, columns, .. } = of;
        [Block::Paragraph(said), Block::Table { about, columns }]
    };
    tables(cases).into_iter().flat_map(blocks).collect()
}

/// A table for each test that varies two things; none for a run of few cases.
pub fn tables(cases: &[Case]) -> Vec<Overview> {
    let mut tests = IndexMap::<&str, Vec<&Case>>::new();
    for case in cases.iter().filter(|case| case.count() > 0) {
        tests.entry(case.test()).or_default().push(case);
    }
    if cases.len() <= LONG {
        return Vec::new();
    }
    tests.iter().filter_map(|(test, cases)| table(test, cases)).collect()
}

/// The metric that the cases of a test are about: the added latency where a case has it, else the one of most cases.
pub fn metric(cases: &[&Case]) -> Option<&'static Metric> {
    let mut votes = IndexMap::<&str, (usize, &'static Metric)>::new();
    for metric in cases.iter().filter_map(|case| case.headline()) {
        votes.entry(metric.column).or_insert((0, metric)).0 += 1;
    }
    let added = votes.values().find(|(_, metric)| metric.name == metrics::ADDED);
    added.or_else(|| votes.values().rev().max_by_key(|(count, _)| *count)).map(|(_, metric)| *metric)
}

fn table(test: &str, all: &[&Case]) -> Option<Overview> {
    let metric = metric(all)?;
    let cases: Vec<&Case> =
        all.iter().copied().filter(|case| case.headline().is_some_and(|m| m.column == metric.column)).collect();
    let mut down = factors(&cases);
    let across = (0..down.len()).filter(|at| down[*at].values.len() <= ACROSS).min_by_key(|at| down[*at].rank())?;
    let across = down.remove(across);
    if down.is_empty() {
        return None;
    }
    let mut rows = BTreeMap::<Vec<usize>, Vec<Option<&Case>>>::new();
    for (at, case) in cases.iter().enumerate() {
        let row = rows.entry(down.iter().map(|factor| factor.of[at]).collect());
        row.or_insert_with(|| vec![None; across.values.len()])[across.of[at]] = Some(case);
    }
    let rows: Vec<_> = rows.into_iter().collect();
    let heads = down
        .iter()
        .enumerate()
        .map(|(at, factor)| Column::of(&factor.title, false, &rows, |(key, _)| factor.values[key[at]].clone()));
    let cells = across.values.iter().enumerate().map(|(at, value)| {
        let text = |case: &Case| {
            let centre = case.centre(metric)?;
            let ends = case.interval(metric).filter(|_| across.values.len() <= WITH_INTERVALS);
            let (low, high) = ends.unwrap_or((centre, centre));
            Some(units::human_with_spread(metric.unit, centre, low, high))
        };
        let number = value.starts_with(|c: char| c.is_ascii_digit());
        let title = if number { format!("{} {value}", across.title) } else { value.clone() };
        Column::of(&title, true, &rows, |(_, row)| row[at].and_then(text).unwrap_or_default())
    });
    let by = down.iter().chain([&across]).map(|factor| factor.title.as_str()).collect::<Vec<_>>();
    let about = format!("{test}: {} by {}", metric.label, by.join(", "));
    let intervals = match all.iter().map(|case| case.level()).fold(0.0, f64::max) {
        level if across.values.len() <= WITH_INTERVALS => format!(", with the {} interval", units::level(level)),
        _ => String::new(),
    };
    let said = format!("{about}{intervals}.");
    Some(Overview { test: test.to_owned(), said, about, columns: heads.chain(cells).collect() })
}

/// The members, then the swept keys, with several values each.
fn factors(cases: &[&Case]) -> Vec<Factor> {
    let member = |case: &&Case| case.label.strip_prefix(case.name()).unwrap_or_default().trim().to_owned();
    let mut found = vec![Factor::new("member".to_owned(), false, cases.iter().map(member))];
    let keys: IndexSet<&str> = cases.iter().flat_map(|case| case_parts(case.name()).1).map(|(key, _)| key).collect();
    for key in keys {
        let quantity = Quantity::of_column(key);
        let value = |case: &&Case| {
            let value = case_parts(case.name()).1.into_iter().find(|(known, _)| *known == key);
            value.map_or_else(String::new, |(_, value)| quantity.name(value))
        };
        found.push(Factor::new(quantity.label.clone(), true, cases.iter().map(value)));
    }
    found.retain(|factor| factor.values.len() > 1);
    // A key that goes along with one before it says nothing new.
    let mut at = 1;
    while at < found.len() {
        let follows = |other: &Factor| {
            let pairs: IndexSet<(usize, usize)> = other.of.iter().copied().zip(found[at].of.iter().copied()).collect();
            pairs.len() == other.values.len()
        };
        if found[..at].iter().any(follows) { drop(found.remove(at)) } else { at += 1 }
    }
    found
}

// The run, its machines and its plans, from `results.run.json`. Unknown keys are ignored and missing ones left out: the
// file grows with the program, and reports are made of old files too.

/// Facts of a host that a report shows, with their titles.
const HOST: [(&str, &str); 13] = [
    ("system_model", "machine"),
    ("hypervisor", "hypervisor"),
    ("cpu_model", "CPU"),
    ("cpus", "CPUs"),
    ("governor", "governor"),
    ("numa_nodes", "NUMA nodes"),
    ("os", "system"),
    ("kernel_release", "kernel"),
    ("arch", "architecture"),
    ("clocksource", "clock source"),
    ("congestion_control", "congestion control"),
    ("security_modules", "security modules"),
    ("hostname", "host name"),
];

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "yes" } else { "no" }.to_owned()),
        _ => None,
    }
}

/// `2026-11-22T11:32:49.57Z` → `2026-11-22 11:32 UTC`
fn minute(time: &str) -> String {
    match (time.get(..10), time.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute} UTC"),
        _ => time.to_owned(),
    }
}

/// `plan quick · 2026-11-22 11:32 UTC · local, server · plumb 0.1.0 · run 01a2…`
pub fn origin(facts: &RunRecord) -> String {
    let plans: Vec<&str> = facts.plans.iter().map(|p| p.name.as_str()).filter(|n| !n.is_empty()).collect();
    let hosts: Vec<&str> = facts.hosts.keys().map(String::as_str).filter(|h| *h != "embedded").collect();
    let named = |word: &str, text: String| (!text.is_empty()).then(|| format!("{word}{text}"));
    let parts = [
        named(if plans.len() == 1 { "plan " } else { "plans " }, plans.join(", ")),
        named("", minute(&facts.began)),
        named(if hosts.len() == 1 { "host " } else { "hosts " }, hosts.join(", ")),
        named("plumb ", facts.tool_version.clone()),
        named("run ", short_id(&facts.run_id)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Why the run ended early; `None` if it ended by itself.
pub fn cut_short(facts: &RunRecord) -> Option<String> {
    match (&facts.interrupted, &facts.ended) {
        (Some(signal), _) => Some(match facts.unfinished.len() {
            0 => format!("The run was interrupted ({signal})"),
            1 => format!("The run was interrupted ({signal}); 1 case was not measured to its end"),
            n => format!("The run was interrupted ({signal}); {n} cases were not measured to their end"),
        }),
        (None, None) if !facts.began.is_empty() => Some("The run has not ended, or it crashed".to_owned()),
        _ => None,
    }
}

/// Command line and times, and a table with a row per fact and a column per host.
pub fn environment(facts: &RunRecord) -> Block {
    let (argv, none) = (facts.argv.join(" "), String::new());
    let items = [
        ("run", &facts.run_id),
        ("plumb", &facts.tool_version),
        ("command", &argv),
        ("began", &facts.began),
        ("ended", facts.ended.as_ref().unwrap_or(&none)),
        ("interrupted by", facts.interrupted.as_ref().unwrap_or(&none)),
    ];
    let said = items.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}: {value}"));
    let mut blocks = vec![Block::List(said.collect())];
    blocks.extend(hosts(facts));
    Block::Fold { about: "Environment: the run and its machines".to_owned(), blocks }
}

fn hosts(facts: &RunRecord) -> Option<Block> {
    // The embedded daemon is this process.
    let hosts: Vec<_> = facts.hosts.iter().filter(|(name, _)| *name != "embedded").collect();
    if hosts.is_empty() {
        return None;
    }
    let known: Vec<(&str, &str)> =
        HOST.into_iter().filter(|(key, _)| hosts.iter().any(|(_, h)| text(&h.facts[key]).is_some())).collect();
    let mut columns = vec![Column::of("host", false, &known, |(_, name)| (*name).to_owned())];
    for (name, host) in hosts {
        columns.push(Column::of(name, false, &known, |(key, _)| text(&host.facts[key]).unwrap_or_default()));
    }
    Some(Block::Table { about: "The machines".to_owned(), columns })
}

/// The plans, verbatim, with what the command line changed.
pub fn plans(facts: &RunRecord) -> Vec<Block> {
    let block = |plan: &PlanRecord| {
        let name = [&plan.path, &plan.name].into_iter().find(|n| !n.is_empty())?;
        let mut blocks = vec![Block::Verbatim(plan.text.clone())];
        if !plan.overrides.is_empty() {
            blocks.insert(0, Block::Paragraph(format!("Changed by the command line: {}", plan.overrides.join(" "))));
        }
        Some(Block::Fold { about: format!("Plan: {name}"), blocks })
    };
    facts.plans.iter().filter(|plan| !plan.text.is_empty()).filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: Value) -> RunRecord {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn hosts_stand_beside_each_other() {
        let facts = record(serde_json::json!({"hosts": {
            "a": {"facts": {"kernel_release": "6.12.0", "cpus": 2}}, "b": {"facts": {"kernel_release": "6.1.0"}},
        }}));
        let Some(Block::Table { columns, .. }) = hosts(&facts) else { panic!("no table") };
        assert_eq!(columns.len(), 3);
        assert_eq!(columns[0].cells, ["CPUs", "kernel"]);
        assert_eq!(columns[2].cells, ["", "6.1.0"]);
        assert!(hosts(&RunRecord::default()).is_none());
    }

    #[test]
    fn the_origin_is_one_line() {
        let facts = record(serde_json::json!({
            "run_id": "r1", "began": "2026-11-22T11:32:49.579192Z", "hosts": {"local": {}, "embedded": {}},
            "plans": [{"name": "lab"}],
        }));
        assert_eq!(origin(&facts), "plan lab · 2026-11-22 11:32 UTC · host local · run r1");
        assert_eq!(origin(&RunRecord::default()), "");
        assert_eq!(cut_short(&facts).as_deref(), Some("The run has not ended, or it crashed"));
    }
}
