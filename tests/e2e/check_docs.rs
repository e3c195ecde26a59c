//! The reference of the plan language names every key, and its examples are plans.

use std::{collections::BTreeSet, path::Path};

use runner::plan::{Format, LoadOptions, load_str, schema::plan_schema};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plan.md");
    std::fs::read_to_string(path).expect("docs/plan.md is part of the project")
}

/// Every key and every word of a fixed choice in the schema.
fn words(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            if let Some(properties) = map.get("properties").and_then(|p| p.as_object()) {
                found.extend(properties.keys().cloned());
            }
            if let Some(word) = map.get("const").and_then(|c| c.as_str()) {
                found.insert(word.to_owned());
            }
            if let Some(choice) = map.get("enum").and_then(|c| c.as_array()) {
                found.extend(choice.iter().filter_map(|c| c.as_str()).map(str::to_owned));
            }
            map.values().for_each(|v| words(v, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|v| words(v, found)),
        _ => {}
    }
}

#[test]
fn the_reference_names_every_key_and_every_choice() {
    let (schema, page) = (plan_schema(), page());
    let mut found = BTreeSet::new();
    words(&schema, &mut found);
    // The metrics have a page of their own.
    let metric = |word: &str| schemas::metrics::METRICS.iter().any(|m| m.name == word || m.column == word);
    let mentioned: BTreeSet<&str> =
        page.split(|c: char| !(c.is_ascii_alphanumeric() || "_-+.".contains(c))).filter(|w| !w.is_empty()).collect();
    let missing: Vec<&String> =
        found.iter().filter(|word| !metric(word) && !mentioned.contains(word.as_str())).collect();
    assert!(found.len() > 100, "the schema was read");
    assert!(missing.is_empty(), "docs/plan.md does not mention {missing:?}");
}

#[test]
fn the_examples_of_the_reference_are_plans() {
    let page = page();
    let plans: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|text| text.starts_with("version:"))
        .collect();
    assert!(plans.len() >= 6);
    for plan in plans {
        if let Err(out) = load_str("docs/plan.md", plan, &LoadOptions::default()) {
            panic!("{plan}\n{}", out.render(Format::Human));
        }
    }
}
