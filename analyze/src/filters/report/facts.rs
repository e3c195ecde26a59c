//! Facts from `results.run.json`, for a report. Unknown keys are ignored and missing ones left out: the file grows with
//! the program, and reports are made of old files too.

use super::document::Block;
use crate::table::layout::Column;
use schemas::run_record::{PlanRecord, RunRecord};
use serde_json::Value;

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

/// Run, command line, times.
pub fn run(facts: &RunRecord) -> Vec<String> {
    let (argv, none) = (facts.argv.join(" "), String::new());
    let items = [
        ("run", &facts.run_id),
        ("plumb", &facts.tool_version),
        ("command", &argv),
        ("began", &facts.began),
        ("ended", facts.ended.as_ref().unwrap_or(&none)),
        ("interrupted by", facts.interrupted.as_ref().unwrap_or(&none)),
    ];
    items.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}: {value}")).collect()
}

/// A table with a row per fact and a column per host; `None` without hosts.
pub fn hosts(facts: &RunRecord) -> Option<Block> {
    let hosts = Some(&facts.hosts).filter(|h| !h.is_empty())?;
    let known: Vec<(&str, &str)> =
        HOST.into_iter().filter(|(key, _)| hosts.values().any(|h| text(&h.facts[key]).is_some())).collect();
    let mut columns = vec![Column::of("host", false, &known, |(_, name)| (*name).to_owned())];
    for (name, host) in hosts {
        columns.push(Column::of(name, false, &known, |(key, _)| text(&host.facts[key]).unwrap_or_default()));
    }
    Some(Block::Table(columns))
}

/// The plans, verbatim.
pub fn plans(facts: &RunRecord) -> Vec<Block> {
    let block = |plan: &PlanRecord| {
        let name = [&plan.path, &plan.name].into_iter().find(|n| !n.is_empty())?;
        Some(Block::Verbatim { about: format!("plan {name}"), text: plan.text.clone() })
    };
    facts.plans.iter().filter(|plan| !plan.text.is_empty()).filter_map(block).collect()
}

/// Notes about cases, each once with the cases it is about.
pub fn notes(facts: &RunRecord) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (id, case) in &facts.cases {
        let name = if case.case.is_empty() { id.clone() } else { case.case.clone() };
        for note in case.notes.iter().flatten() {
            match found.iter_mut().find(|f| f.0 == *note) {
                Some(known) if known.1.contains(&name) => {}
                Some(known) => known.1.push(name.clone()),
                None => found.push((note.clone(), vec![name.clone()])),
            }
        }
    }
    let total = facts.cases.len();
    found
        .into_iter()
        .map(|(note, cases)| match cases.len() {
            n if n == total && n > 1 => format!("{note} (all cases)"),
            1..=3 => format!("{note} ({})", cases.join(", ")),
            n => format!("{note} ({n} cases, first {})", cases[0]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: Value) -> RunRecord {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn notes_are_said_once() {
        let facts = record(serde_json::json!({"cases": {
            "c1": {"case": "a", "notes": ["slow clock", "x"]},
            "c2": {"case": "b", "notes": ["slow clock"]},
        }}));
        assert_eq!(notes(&facts), ["slow clock (all cases)", "x (a)"]);
        assert_eq!(notes(&RunRecord::default()), Vec::<String>::new());
    }

    #[test]
    fn hosts_stand_beside_each_other() {
        let facts = record(serde_json::json!({"hosts": {
            "a": {"facts": {"kernel_release": "6.12.0", "cpus": 2}}, "b": {"facts": {"kernel_release": "6.1.0"}},
        }}));
        let Some(Block::Table(columns)) = hosts(&facts) else { panic!("no table") };
        assert_eq!(columns.len(), 3);
        assert_eq!(columns[0].cells, ["CPUs", "kernel"]);
        assert_eq!(columns[2].cells, ["", "6.1.0"]);
        assert!(hosts(&RunRecord::default()).is_none());
    }
}
