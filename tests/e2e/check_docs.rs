//! Pages that list parts of the code list all of them and nothing else; examples of the plan language are valid plans.

use std::{collections::BTreeSet, path::Path};

use crate::{plan_schema::plan_schema, program::plumb};
use netcore::spec::{
    Io, Pattern, Transport,
    ranks::{Bus, Operation},
    socket::SOCKET_OPTIONS,
};
use runner::plan::{Format, LoadOptions, load_str, workload::names_over};

/// The pages about the plan language.
fn page() -> String {
    ["reference/plan.md", "reference/transports.md", "reference/ranks.md", "guide/clusters.md"].map(page_of).concat()
}

fn page_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(path).expect("a page of the project")
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
    // Metrics have a page of their own.
    let metric = |word: &str| schemas::metrics::METRICS.iter().any(|m| m.name == word || m.column == word);
    let mentioned: BTreeSet<&str> =
        page.split(|c: char| !(c.is_ascii_alphanumeric() || "_-+.".contains(c))).filter(|w| !w.is_empty()).collect();
    let missing: Vec<&String> =
        found.iter().filter(|word| !metric(word) && !mentioned.contains(word.as_str())).collect();
    assert!(found.len() > 100, "the schema was read");
    assert!(missing.is_empty(), "docs/reference/plan.md does not mention {missing:?}");
}

/// The other way round: the page must not have a key that the plan language lacks.
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
            assert!(key == "x-…" || found.contains(key), "docs/reference/plan.md has `{key}`, which is no key: {line}");
        }
    }
    assert!(named > 90, "the tables of keys were read: {named}");
}

/// The lines of the table that follows a heading.
fn table(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect("the heading");
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    lines.skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

#[test]
fn the_table_of_workloads_is_that_of_the_engines() {
    let quoted = |words: Vec<&str>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ");
    let methods =
        |transport: Transport, pattern| quoted(transport.methods(pattern).iter().map(|io| io.name()).collect());
    let mut lines = BTreeSet::new();
    for transport in Transport::ALL.into_iter().filter(|transport| *transport != Transport::Icmp) {
        let names = names_over(transport);
        let patterns = names.iter().filter_map(|name| name.strip_prefix(transport.name())?.strip_prefix('_'));
        lines.insert(format!(
            "| `{}` | {} | {} | {} | {} |",
            transport.name(),
            quoted(patterns.collect()),
            methods(transport, Pattern::Stream),
            methods(transport, Pattern::RequestResponse),
            methods(transport, Pattern::Connect),
        ));
    }
    // An empty list leaves one space in the page, also beside another one.
    let lines: BTreeSet<String> = lines.into_iter().map(|line| line.replace("  |", " |")).collect();
    let common = table(&page_of("reference/plan.md"), "### Workloads");
    let others = table(&page_of("reference/transports.md"), "## Workloads");
    assert_eq!(common.len() + others.len(), lines.len(), "no transport stands twice");
    assert_eq!(common.into_iter().chain(others).collect::<BTreeSet<_>>(), lines);
}

#[test]
fn the_table_of_operations_is_that_of_the_engines() {
    let page = page();
    let (_, section) = page.split_once("\n| operation | `message_size`").expect("the table");
    let lines: Vec<String> =
        section.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect();
    let row = |operation: &Operation| {
        let facts = operation.facts();
        let cell = |text: &str| if text.is_empty() { " |".to_owned() } else { format!(" {text} |") };
        let yes = if facts.adds { "yes" } else { "" };
        let bus = facts.bus.map_or("", Bus::as_str);
        format!("| `{operation}` | {} |{}{}", facts.message, cell(yes), cell(bus))
    };
    assert_eq!(lines, Operation::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_table_of_io_methods_is_that_of_the_engines() {
    let yes = |is_so: bool| if is_so { " yes |" } else { " |" };
    let expected: Vec<String> = Io::ALL
        .into_iter()
        .map(|io| {
            let facts = io.facts();
            let cells = [facts.shares_threads, facts.discards, facts.copies, facts.segments].map(yes).concat();
            format!("| `{}` |{cells}", facts.name)
        })
        .collect();
    // The description is the page's.
    let found = table(&page(), "### Io methods").into_iter().map(|line| {
        let cells: Vec<&str> = line.split('|').collect();
        [&cells[..2], &cells[3..]].concat().join("|")
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn the_table_of_socket_options_names_each_of_them() {
    let named: BTreeSet<String> = table(&page(), "### Socket options")
        .iter()
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let options = SOCKET_OPTIONS.iter().map(|row| row.name.to_owned());
    assert_eq!(named, options.chain(["ipv6".to_owned()]).collect());
}

#[test]
fn the_table_of_bounds_has_every_flag() {
    let page = page_of("reference/protocol.md");
    let help = plumb(&["serve", "--help"]).stdout;
    assert!(help.contains("[default: 10m]"), "{help}");
    assert!(page.contains("| wait for a turn, and time from a turn to the load | 10 min |"));
    // Each flag that bounds something is in the table, and each flag there exists.
    let flags = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        words.filter(|word| word.starts_with("--max-") || word.starts_with("--allow")).map(str::to_owned).collect()
    };
    assert_eq!(flags(&table(&page, "## Bounds").join("\n")), flags(&help));
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
        if let Err(out) = load_str("docs/reference/plan.md", plan, &LoadOptions::default()) {
            panic!("{plan}\n{}", out.render(Format::Human));
        }
    }
}

#[test]
fn the_architecture_names_every_module_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/internals/architecture.md")).expect("a page of the project");
    let (_, map) = page.split_once("## Where what is").expect("the list of modules");
    for name in ["netcore", "runner", "analyze", "schemas"] {
        let (_, about) = map.split_once(&format!("**`{name}`**")).expect("each crate has a paragraph");
        let paragraph = about.split("\n\n").next().unwrap_or_default();
        let quoted = paragraph.split('`').skip(1).step_by(2).map(str::to_owned);
        let outside = ["std", "nix", "plumb run"];
        let named: BTreeSet<String> = quoted.filter(|word| !outside.contains(&word.as_str())).collect();
        let files = std::fs::read_dir(root.join(name).join("src")).expect("each crate has a folder");
        let stems = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
        let modules: BTreeSet<String> = stems.filter(|stem| stem != "lib" && stem != "main").collect();
        assert_eq!(named, modules, "docs/internals/architecture.md, {name}");
    }
}

/// The anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|page| root.join(page)).to_vec();
    for shelf in ["", "start", "guide", "reference", "internals"] {
        let docs = std::fs::read_dir(root.join("docs").join(shelf)).expect("a folder of the project");
        pages.extend(
            docs.map(|page| page.expect("readable").path()).filter(|page| page.extension().is_some_and(|e| e == "md")),
        );
    }
    let mut links = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("readable");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, to) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            assert!(target.exists(), "{} names {link}, which does not exist", page.display());
            if !to.is_empty() {
                let there = std::fs::read_to_string(&target).expect("a page");
                let has = there.lines().any(|line| line.starts_with('#') && anchor(line) == to);
                assert!(has, "{}: there is no heading for {link}", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 50, "the links were read: {links}");
}
