//! Settings in which two cases differ, from what their runs recorded of them.

use std::collections::{BTreeMap, BTreeSet};

use schemas::run_record::CaseRecord;
use serde_json::Value;

use crate::{distinct, first_few};

/// A setting in which two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    /// The baseline's value and the new side's; empty: not set.
    pub values: [String; 2],
    /// Settings that change together with it.
    pub with: Vec<String>,
}

impl Setting {
    /// `cubic → bbr`
    pub fn change(&self) -> String {
        let [base, new] = self.values.each_ref().map(|v| if v.is_empty() { "(not set)" } else { v });
        format!("{base} → {new}")
    }
}

impl std::fmt::Display for Setting {
    /// `socket.congestion_control: cubic → bbr`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.change())?;
        if self.with.is_empty() { Ok(()) } else { write!(f, " (and with it {})", self.with.join(", ")) }
    }
}

/// The first few settings in which a planned case differs from the measured one of the same name and member, as a list: the measured
/// values first. Both tables have the keys of a `run.json`. `None`: they do not differ, or none was measured.
pub fn changes(
    id: &str,
    planned: &BTreeMap<String, CaseRecord>,
    measured: &BTreeMap<String, CaseRecord>,
) -> Option<String> {
    const MOST: usize = 5;
    let member = |key: &str| key.split_once('/').map(|(_, member)| member.to_owned());
    let of_case = planned.iter().filter(|(key, _)| is_of(key, id));
    let of_member = |(key, wanted): (&String, &CaseRecord)| {
        let is_same = |(other, was): &(&String, &CaseRecord)| was.case == wanted.case && member(other) == member(key);
        measured.iter().find(is_same).map(|(_, was)| differences(was, wanted)).unwrap_or_default()
    };
    let found = distinct(of_case.flat_map(of_member));
    (!found.is_empty()).then(|| first_few(found.iter().map(ToString::to_string), MOST).join(", "))
}

/// Whether a key of a `run.json` is that of a case, or of a member of it.
pub fn is_of(key: &str, case_id: &str) -> bool {
    key.split('/').next() == Some(case_id)
}

/// The settings in which two recorded cases differ: those of their plans, or, where these are alike or one is unknown, those
/// that the ends got.
pub fn differences(base: &CaseRecord, new: &CaseRecord) -> Vec<Setting> {
    if !base.settings.is_empty() && !new.settings.is_empty() && base.settings != new.settings {
        return differing([&base.settings, &new.settings]);
    }
    let sides = [base, new].map(|case| {
        let mut flat = BTreeMap::new();
        if let Some(settings) = case.spec.as_ref().or(case.command.as_ref()) {
            flatten("", settings, &mut flat);
        }
        flat
    });
    differing(sides.each_ref())
}

fn differing(sides: [&BTreeMap<String, String>; 2]) -> Vec<Setting> {
    let keys: BTreeSet<&String> = sides.iter().flat_map(|side| side.keys()).collect();
    let mut found: Vec<Setting> = Vec::new();
    for key in keys {
        let values = sides.map(|side| side.get(key).cloned().unwrap_or_default());
        // A setting of both ends is one setting.
        let name = key.strip_prefix("near.").or_else(|| key.strip_prefix("far.")).unwrap_or(key);
        let setting = Setting { name: name.to_owned(), values, with: Vec::new() };
        if setting.values[0] != setting.values[1] && !found.contains(&setting) {
            found.push(setting);
        }
    }
    found
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            into.insert(path.to_owned(), text.clone());
        }
        other => {
            into.insert(path.to_owned(), other.to_string());
        }
    }
}
