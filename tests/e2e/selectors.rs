//! `docs/internals/selectors.md` accounts for every output selector of netperf, and names only what exists.

use std::collections::BTreeMap;

use netcore::{
    measure::host::HostFacts,
    report::NicFacts,
    spec::{Pattern, TestSpec, Transport},
};

/// The names that netperf 2.7.1 prints, in its order.
const NAMES: &str = include_str!("fixtures/netperf-selectors.txt");
const TABLE: &str = include_str!("../../docs/internals/selectors.md");

/// Each selector with its cell in the table.
fn table() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let mut rows = BTreeMap::new();
    for line in TABLE.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(|c| c.trim().trim_end_matches(" |")).collect();
        let name = cells[0].trim_matches('`');
        let row = (cells[1], cells.get(2).copied().unwrap_or_default());
        assert!(rows.insert(name, row).is_none(), "{name} stands in the table twice");
    }
    rows
}

/// Texts between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_selector_has_a_line() {
    let names: Vec<&str> = NAMES.lines().collect();
    assert_eq!(names.len(), 175);
    let table = table();
    for name in &names {
        let (here, note) =
            table.get(name).unwrap_or_else(|| panic!("{name} is missing from docs/internals/selectors.md"));
        assert!(!here.is_empty(), "{name} has no place");
        assert!(*here != "none" || note.len() > 10, "{name} has no place, and no reason why");
    }
    assert_eq!(table.len(), names.len(), "the table has a line that is no selector");
}

#[test]
fn every_place_exists() {
    let facts = serde_json::to_value(HostFacts::default()).unwrap();
    let nic = serde_json::to_value(NicFacts::default()).unwrap();
    let spec = serde_json::to_value(TestSpec::new(Pattern::Stream, Transport::Tcp)).unwrap();
    let mut columns = 0;
    for (name, (here, _)) in table() {
        for part in here.split(", ") {
            let Some(place) = quoted(part).next() else {
                assert_eq!(part, "none", "{name}: `{part}` names nothing");
                continue;
            };
            if part.starts_with('`') {
                assert!(schemas::columns::find(place).is_some(), "{name}: there is no column `{place}`");
                columns += 1;
            } else if let Some((_, fact)) = place.split_once(".facts.") {
                assert!(facts.get(fact).is_some(), "{name}: HostFacts has no `{fact}`");
            } else if let Some((_, fact)) = place.split_once("_nic.") {
                assert!(nic.get(fact).is_some(), "{name}: NicFacts has no `{fact}`");
            } else if let Some((_, path)) = place.split_once("<case_id>.spec.") {
                let found = spec.pointer(&format!("/{}", path.replace('.', "/")));
                assert!(found.is_some(), "{name}: a test's spec has no `{path}`");
            } else {
                let known =
                    ["plans[].resolved", "argv", "cases.<case_id>.near_options[].", "cases.<case_id>.far_options[]."];
                assert!(known.iter().any(|k| place.starts_with(k)), "{name}: run.json has no `{place}`");
            }
        }
    }
    assert!(columns > 80, "only {columns} columns were recognised in the table");
}
