//! The run, its machines and its plans, from `results.run.json`. Unknown keys are ignored and missing ones left out: the
//! file grows with the program, and reports are made of old files too.

use crate::{export::page::Block, table::layout::Column};
use schemas::{
    run_record::{PlanRecord, RunRecord},
    text::short_id,
};
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
    }
}
