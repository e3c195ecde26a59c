//! Facts from `results.run.json`, for a report. Unknown keys are ignored and missing ones left out: the file grows with
//! the program, and reports are made of old files too.

use super::document::Block;
use crate::{
    error::{Error, Place},
    table::layout::Column,
};
use serde_json::Value;
use std::path::Path;

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

/// The file's content; `None` where there is none.
pub fn read(path: &Path) -> Result<Option<Value>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    serde_json::from_str(&text).map(Some).map_err(|e| Error::Data {
        place: Place { file: path.display().to_string(), line: e.line() as u64, column: None },
        reason: e.to_string(),
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "yes" } else { "no" }.to_owned()),
        _ => None,
    }
}

/// Run, command line, times.
pub fn run(facts: &Value) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            items.push(format!("{name}: {value}"));
        }
    };
    item("run", text(&facts["run_id"]));
    item("plumb", text(&facts["tool_version"]));
    let argv = facts["argv"].as_array().map(|a| a.iter().filter_map(text).collect::<Vec<_>>().join(" "));
    item("command", argv.filter(|a| !a.is_empty()));
    item("began", text(&facts["began"]));
    item("ended", text(&facts["ended"]));
    item("interrupted by", text(&facts["interrupted"]));
    items
}

/// A table with a row per fact and a column per host; `None` without hosts.
pub fn hosts(facts: &Value) -> Option<Block> {
    let hosts = facts["hosts"].as_object().filter(|h| !h.is_empty())?;
    let known: Vec<(&str, &str)> =
        HOST.into_iter().filter(|(key, _)| hosts.values().any(|h| text(&h["facts"][key]).is_some())).collect();
    let mut columns = vec![Column {
        title: "host".to_owned(),
        right: false,
        cells: known.iter().map(|(_, name)| (*name).to_owned()).collect(),
    }];
    for (name, host) in hosts {
        let cells = known.iter().map(|(key, _)| text(&host["facts"][key]).unwrap_or_default()).collect();
        columns.push(Column { title: name.clone(), right: false, cells });
    }
    Some(Block::Table(columns))
}

/// The plans, verbatim.
pub fn plans(facts: &Value) -> Vec<Block> {
    let plans = facts["plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    plans
        .iter()
        .filter_map(|plan| {
            Some(Block::Verbatim {
                about: format!("plan {}", text(&plan["path"]).or_else(|| text(&plan["name"]))?),
                text: plan["text"].as_str()?.to_owned(),
            })
        })
        .collect()
}

/// Notes about cases, each once with the cases it is about.
pub fn notes(facts: &Value) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let cases = facts["cases"].as_object().into_iter().flatten();
    for (id, case) in cases {
        let name = text(&case["case"]).unwrap_or_else(|| id.clone());
        for note in case["notes"].as_array().into_iter().flatten().filter_map(text) {
            match found.iter_mut().find(|f| f.0 == note) {
                Some(known) if known.1.contains(&name) => {}
                Some(known) => known.1.push(name.clone()),
                None => found.push((note, vec![name.clone()])),
            }
        }
    }
    let total = facts["cases"].as_object().map_or(0, serde_json::Map::len);
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

    #[test]
    fn notes_are_said_once() {
        let facts = serde_json::json!({"cases": {
            "c1": {"case": "a", "notes": ["slow clock", "x"]},
            "c2": {"case": "b", "notes": ["slow clock"]},
        }});
        assert_eq!(notes(&facts), ["slow clock (all cases)", "x (a)"]);
        assert_eq!(notes(&serde_json::json!({})), Vec::<String>::new());
    }

    #[test]
    fn hosts_stand_beside_each_other() {
        let facts = serde_json::json!({"hosts": {
            "a": {"facts": {"kernel_release": "6.12.0", "cpus": 2}}, "b": {"facts": {"kernel_release": "6.1.0"}},
        }});
        let Some(Block::Table(columns)) = hosts(&facts) else { panic!("no table") };
        assert_eq!(columns.len(), 3);
        assert_eq!(columns[0].cells, ["CPUs", "kernel"]);
        assert_eq!(columns[2].cells, ["", "6.1.0"]);
        assert!(hosts(&serde_json::json!({})).is_none());
    }
}
