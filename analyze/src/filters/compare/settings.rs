//! The settings that tell cases apart, and pairs of cases that differ in one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemas::{columns::axis_column, metrics, run_record::RunRecord, text::case_parts, words::Way};

use crate::{
    distinct,
    error::Error,
    judge::{
        samples::{Case, Index, Key, Samples},
        setting::{Setting, differences},
    },
    table::select,
};

/// The key of the test's name among the settings.
const TEST: &str = "test";
const MEMBER: &str = "member";
const DIRECTION: &str = "direction";

/// The settings that tell a case apart: its test, its swept keys, member and direction.
type Settings = BTreeMap<String, String>;

/// The settings of a case: `bulk[message_size=65536,streams=4]` has a test and two swept keys.
fn settings(case: &Case) -> Settings {
    let (test, swept) = case_parts(&case.name);
    let own = [(TEST, test), (MEMBER, &case.key.member), (DIRECTION, &case.key.direction)];
    let own = own.into_iter().filter(|(name, value)| *name == TEST || !value.is_empty());
    swept.into_iter().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The readable name of what is left: `bulk[streams=4]`.
fn name(settings: &Settings) -> String {
    let swept: Vec<String> = settings
        .iter()
        .filter(|(key, _)| ![TEST, MEMBER, DIRECTION].contains(&key.as_str()))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    match (settings.get(TEST), swept.is_empty()) {
        (Some(test), true) => test.clone(),
        (test, false) => format!("{}[{}]", test.map_or("", String::as_str), swept.join(",")),
        (None, true) => "all".to_owned(),
    }
}

/// Two sides of a table: the cases of each that belong together have equal keys.
#[derive(Clone, Debug)]
pub struct Contrast {
    pub base: Samples,
    pub new: Samples,
    pub setting: Option<Setting>,
}

/// Splits samples that were read with the values of `column` apart: the first value (or `base_value`) against each other
/// one. A test without it is compared with its own first value. Cases are paired by everything else. A setting that has one value for
/// each value of the column, and another for each other, changes together with it and does not keep cases apart. Returns the names of
/// the tests with one value, too, which have no part in it.
pub fn split(
    samples: &Samples,
    asked: &str,
    column: &str,
    base_value: Option<&str>,
) -> Result<(Vec<Contrast>, Vec<String>), Error> {
    let of_both = |case: &Case| column == DIRECTION && case.key.part == Way::Both.as_str();
    let cases: Vec<(&Case, Settings)> =
        samples.cases.iter().filter(|c| !c.key.part.is_empty() && !of_both(c)).map(|c| (c, settings(c))).collect();
    let parts = distinct(cases.iter().map(|(case, _)| case.key.part.as_str()));
    let base = match base_value {
        None => parts.first().copied(),
        Some(value) => parts.iter().find(|part| select::means(column, part, value)).copied(),
    };
    let Some(base) = base else {
        return Err(Error::Usage(match base_value {
            Some(value) => format!("--base-value {value}: {asked} is {} in these rows", listed(&parts)),
            None => format!("--by {asked}: no row has a value of it"),
        }));
    };
    if parts.len() < 2 {
        return Err(Error::Usage(format!("--by {asked}: every row has {base}, so that there is nothing to compare")));
    }
    let keys: BTreeSet<&String> = cases.iter().flat_map(|(_, settings)| settings.keys()).collect();
    let own = |key: &str| is_own(key, column);
    let dropped: Vec<&String> = keys.into_iter().filter(|key| own(key) || changes_with(key, &cases)).collect();
    // What another test has values for is not missing here.
    let test_of = |settings: &Settings| {
        settings.get(TEST).filter(|_| dropped.iter().all(|key| *key != TEST)).cloned().unwrap_or_default()
    };
    let mut of_tests: Vec<(String, Vec<&str>)> = Vec::new();
    for (case, settings) in &cases {
        let (test, part) = (test_of(settings), case.key.part.as_str());
        match of_tests.iter_mut().find(|(known, _)| *known == test) {
            Some((_, parts)) if parts.contains(&part) => {}
            Some((_, parts)) => parts.push(part),
            None => of_tests.push((test, vec![part])),
        }
    }
    let pairs_of = |parts: &[&'_ str]| -> Vec<[String; 2]> {
        let base = if parts.contains(&base) { base } else { parts[0] };
        parts.iter().filter(|part| **part != base).map(|part| [base, part].map(str::to_owned)).collect()
    };
    let side = |part: &str, pair: &[String; 2]| {
        let mut found = Samples { cases: Vec::new(), ..samples.clone() };
        let mut at: HashMap<Key, usize> = HashMap::new();
        let with_pair: Vec<&String> =
            of_tests.iter().filter(|(_, parts)| pairs_of(parts).contains(pair)).map(|(test, _)| test).collect();
        let of_side =
            |(case, settings): &&(&Case, Settings)| case.key.part == part && with_pair.contains(&&test_of(settings));
        for (case, settings) in cases.iter().filter(of_side) {
            let mut left = settings.clone();
            left.retain(|key, _| !dropped.contains(&key));
            let kept = |key: &str| left.get(key).cloned().unwrap_or_default();
            let key = Key {
                id: name(&left),
                member: kept(MEMBER),
                direction: kept(DIRECTION),
                stream: case.key.stream.clone(),
                part: String::new(),
            };
            let mut case = Case { key: key.clone(), name: name(&left), ..Case::clone(case) };
            if let Some(i) = at.get(&key) {
                // The same case of another run, as where files have one case in common.
                merge(&mut found.cases[*i], &mut case);
            } else {
                at.insert(key, found.cases.len());
                found.cases.push(case);
            }
        }
        found
    };
    let with: Vec<String> = dropped.iter().filter(|key| !own(key)).map(|key| (*key).clone()).collect();
    let pairs = distinct(of_tests.iter().flat_map(|(_, parts)| pairs_of(parts)));
    if pairs.is_empty() {
        return Err(Error::Usage(format!("--by {asked}: no test has two values of it ({})", listed(&parts))));
    }
    let contrasts = pairs.into_iter().map(|pair| Contrast {
        base: side(&pair[0], &pair),
        new: side(&pair[1], &pair),
        setting: Some(Setting { name: asked.to_owned(), values: pair, with: with.clone() }),
    });
    let alone = of_tests.iter().filter(|(_, parts)| parts.len() == 1).map(|(test, _)| test.clone());
    Ok((contrasts.collect(), alone.collect()))
}

fn listed(parts: &[&str]) -> String {
    if parts.is_empty() { "empty".to_owned() } else { parts.join(", ") }
}

/// Whether a setting is the one that a column holds.
fn is_own(key: &str, column: &str) -> bool {
    let whole_case = ["case", "case_id"].contains(&column) && ![MEMBER, DIRECTION].contains(&key);
    whole_case
        || key == column
        || axis_column(key) == column
        || metrics::find(key).is_some_and(|m| m.column == column)
        || key.rsplit('.').next() == Some(column)
}

/// Whether a setting has one value in each part, and no value in two of them.
fn changes_with(key: &str, cases: &[(&Case, Settings)]) -> bool {
    let mut of_part: HashMap<&str, &str> = HashMap::new();
    let mut part_of: HashMap<&str, &str> = HashMap::new();
    cases.iter().all(|(case, settings)| {
        let (part, value) = (case.key.part.as_str(), settings.get(key).map_or("", String::as_str));
        *of_part.entry(part).or_insert(value) == value && *part_of.entry(value).or_insert(part) == part
    })
}

fn merge(into: &mut Case, case: &mut Case) {
    let rows = into.rows.len();
    into.rows.append(&mut case.rows);
    for (values, more) in into.values.iter_mut().zip(&mut case.values) {
        values.append(more);
    }
    for (row_of, more) in into.row_of.iter_mut().zip(&case.row_of) {
        row_of.extend(more.iter().map(|row| row + rows));
    }
    if let Some(seconds) = case.origin.elapsed_s {
        *into.origin.elapsed_s.get_or_insert(0.0) += seconds;
    }
    if let Some(n) = case.transactions {
        *into.transactions.get_or_insert(0) += n;
    }
}

/// Pairs cases of two files that have no partner: by name, then by everything but one setting. Gives the new side's cases
/// the keys of their partners. Returns what differs.
pub fn settle(base: &mut Samples, new: &mut Samples, records: [&[RunRecord]; 2]) -> Vec<Setting> {
    let unpaired = |samples: &Samples, other: &Samples| -> Vec<usize> {
        let other = Index::new(&other.cases);
        (0..samples.cases.len()).filter(|i| other.find(&samples.cases[*i].key).is_none()).collect()
    };
    let (mut olds, mut news) = (unpaired(base, new), unpaired(new, base));
    let mut found = Vec::new();
    // The name stays where only the settings outside of the sweep differ.
    let named = |case: &Case| {
        let Key { member, direction, stream, .. } = &case.key;
        [&case.name, member, direction, stream].map(String::clone)
    };
    let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
    for i in &olds {
        by_name.entry(named(&base.cases[*i])).or_default().push(*i);
    }
    let mut paired: HashMap<usize, usize> = HashMap::new();
    for j in &news {
        if let Some([i]) = by_name.get(&named(&new.cases[*j])).map(Vec::as_slice)
            && base.cases[*i].family == new.cases[*j].family
        {
            paired.insert(*j, *i);
        }
    }
    let ids = |(j, i): (&usize, &usize)| [&base.cases[*i].key.id, &new.cases[*j].key.id];
    let mut differences = distinct(paired.iter().flat_map(|pair| of_records(ids(pair), records)));
    differences.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.values.cmp(&b.values)));
    if !paired.is_empty() && differences.is_empty() {
        let [was, is] = ["another case_id", "matched by the case's name"].map(str::to_owned);
        differences.push(Setting { name: "settings".to_owned(), values: [was, is], with: Vec::new() });
    }
    found.append(&mut differences);
    for (j, i) in &paired {
        new.cases[*j].key = base.cases[*i].key.clone();
    }
    news.retain(|j| !paired.contains_key(j));
    olds.retain(|i| !paired.values().any(|used| used == i));
    found.extend(but_one(base, new, &olds, &news));
    found
}

/// A setting and its two values.
type Change = (String, [String; 2]);

/// Pairs cases that differ in the same setting, with the same two values.
fn but_one(base: &mut Samples, new: &mut Samples, olds: &[usize], news: &[usize]) -> Option<Setting> {
    let of = |samples: &Samples, of: &[usize]| -> Vec<(usize, Settings)> {
        of.iter().map(|i| (*i, settings(&samples.cases[*i]))).collect()
    };
    let (olds, news) = (of(base, olds), of(new, news));
    let keys: BTreeSet<String> = olds.iter().chain(&news).flat_map(|(_, s)| s.keys().cloned()).collect();
    let without = |settings: &Settings, key: &str| {
        let mut rest = settings.clone();
        (rest.remove(key).unwrap_or_default(), rest)
    };
    let mut candidates: BTreeMap<Change, Vec<(usize, usize)>> = BTreeMap::new();
    for key in &keys {
        let mut rests: HashMap<Settings, Vec<(String, usize)>> = HashMap::new();
        for (i, settings) in &olds {
            let (value, rest) = without(settings, key);
            rests.entry(rest).or_default().push((value, *i));
        }
        for (j, settings) in &news {
            let (value, rest) = without(settings, key);
            // Streams are no counterpart of requests, whatever their tests are called.
            let like = |i: usize| base.cases[i].family == new.cases[*j].family;
            for (was, i) in rests.get(&rest).into_iter().flatten().filter(|(was, i)| *was != value && like(*i)) {
                candidates.entry((key.clone(), [was.clone(), value.clone()])).or_default().push((*i, *j));
            }
        }
    }
    let most = candidates.values().map(Vec::len).max()?;
    let mut best = candidates.into_iter().filter(|(_, pairs)| pairs.len() == most);
    // Two ways to pair them are one too many: --by says which is meant.
    let ((name, values), pairs) = best.next().filter(|_| best.next().is_none())?;
    for (i, j) in pairs {
        new.cases[j].key = base.cases[i].key.clone();
        let (_, rest) = without(&settings(&base.cases[i]), &name);
        base.cases[i].name = self::name(&rest);
    }
    Some(Setting { name, values, with: Vec::new() })
}

/// The settings in which two cases differ, from what their runs recorded of them.
fn of_records(ids: [&String; 2], records: [&[RunRecord]; 2]) -> Vec<Setting> {
    let of = |side: usize| records[side].iter().find_map(|record| record.cases.get(ids[side]));
    of(0).zip(of(1)).map(|(base, new)| differences(base, new)).unwrap_or_default()
}
