//! The reference of the plan language names every key and no other, and its examples are plans.

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

/// The other way round: a key that the page has and the plan does not is found out only by whoever types it.
#[test]
fn the_reference_names_no_key_that_is_none() {
    let (schema, page) = (plan_schema(), page());
    let mut found = BTreeSet::new();
    words(&schema, &mut found);
    let mut named = 0;
    let mut in_table = false;
    for line in page.lines() {
        in_table = line.starts_with("| key |") || (in_table && line.starts_with('|'));
        let keys = line.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2);
        for key in keys.filter(|_| in_table) {
            named += 1;
            assert!(key == "x-…" || found.contains(key), "docs/plan.md has `{key}`, which is no key: {line}");
        }
    }
    assert!(named > 90, "the tables of keys were read: {named}");
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
