//! The identity of rows: rows of different identity never share a line. Names of series and cases say only what
//! differs.

use super::{
    options::Options,
    quantity::Quantity,
    records::{Columns, Labels, Record, Records},
};
use crate::{error::Error, table::Record as RecordKind};
use schemas::{
    columns::{AXIS_PREFIX, COLUMNS, axis_column, results::column, verdicts::column as verdict},
    text::{case_parts, short_id, short_names, shown_way, values_in_words},
    vocabulary,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Columns that name what ran, and where. A line joins only rows that are equal in all of them.
pub const NAMES: [&str; 10] = [
    "file",
    column::plan,
    column::run_id,
    column::case,
    column::test,
    column::member,
    column::direction,
    column::from,
    column::to,
    column::phase,
];

/// The origin of rows, for footers and answers.
pub const FACTS: [&str; 7] = [
    column::run_id,
    verdict::baseline_run_id,
    column::time,
    column::iteration,
    column::record,
    column::workload,
    column::search,
];

/// The parameters of the contract; `axis_` columns are parameters, too.
pub fn parameters<'a>() -> impl Iterator<Item = &'a str> {
    COLUMNS.iter().filter(|c| c.is_parameter()).map(|c| c.name)
}

impl Records {
    /// Finds the columns of the keys that were swept. The cases' names say which keys these are.
    pub(super) fn find_swept(&mut self) {
        let mut found: Vec<String> = Vec::new();
        for case in self.distinct(column::case) {
            for (key, _) in case_parts(case).1 {
                let columns = [Some(axis_column(key)), vocabulary::column_of_key(key).map(str::to_owned)];
                let column = columns.into_iter().flatten().find(|name| self.columns.contains_key(name));
                found.extend(column.filter(|column| !found.contains(column)));
            }
        }
        self.swept = found;
    }

    /// Decides which columns tell series apart, and names the series.
    pub(super) fn tell_apart(&mut self, options: &Options, columns: &Columns<'_>) -> Result<(), Error> {
        self.name_cases();
        let by: Vec<String> = options.by.iter().map(|name| self.swept_name(name)).collect();
        let by = &by[..];
        let (found, along) = self.distinguishing(by, columns);
        if by.is_empty() {
            self.by = found;
        } else if found.is_empty() {
            self.by = by.to_vec();
        } else {
            let names: Vec<String> = found.iter().map(|name| format!("`{name}`")).collect();
            let joined = if columns.lines { "joined in one line" } else { "drawn as one" };
            return Err(Error::Usage(format!(
                "rows that differ in {} would be {joined}: --by {} tells them apart, as leaving out --by does; --where {}=… keeps one kind",
                names.join(" and "),
                by.iter().chain(&found).cloned().collect::<Vec<_>>().join(","),
                found[0],
            )));
        }
        self.names = self.series_names();
        if self.by.iter().any(|column| column == column::case) {
            self.notes.extend(self.implied.take());
        }
        if let [x] = &self.axes[..] {
            // Another column may have the same values.
            let same = |key: &String| self.list.iter().all(|r| self.text(r, key) == self.text(r, x));
            let others: Vec<String> =
                along.iter().filter(|key| !same(key)).map(|key| self.quantity(key).label).collect();
            if !others.is_empty() {
                self.notes.push(goes_along(&others, &self.quantity(x).label));
            }
        }
        Ok(())
    }

    fn key(&self, record: &Record) -> Vec<Box<str>> {
        self.by.iter().map(|column| self.text(record, column).into()).collect()
    }

    /// The name of the series a row belongs to.
    pub fn series(&self, record: &Record) -> String {
        self.names.get(&self.key(record)).cloned().unwrap_or_default()
    }

    /// A name for each combination of values in `by`. A value is part of the name where rows with equal values before
    /// it differ in it: `stream`, `duplex · forward`, `duplex · reverse`.
    fn series_names(&self) -> HashMap<Vec<Box<str>>, String> {
        let keys: HashSet<Vec<Box<str>>> = self.list.iter().map(|record| self.key(record)).collect();
        let mut following: HashMap<&[Box<str>], HashSet<&str>> = HashMap::new();
        for key in &keys {
            for at in 0..key.len() {
                following.entry(&key[..at]).or_default().insert(&key[at]);
            }
        }
        let name = |key: &Vec<Box<str>>, all: bool| {
            let parts = self.by.iter().enumerate().filter_map(|(at, column)| {
                let differs = following.get(&key[..at]).is_some_and(|values| values.len() > 1);
                (all || differs || self.by.len() == 1).then(|| self.part(column, &key[at])).flatten()
            });
            parts.collect::<Vec<_>>().join(" · ")
        };
        let mut names: HashMap<Vec<Box<str>>, String> =
            keys.iter().map(|key| (key.clone(), name(key, false))).collect();
        if names.values().collect::<HashSet<_>>().len() < names.len() {
            // An empty value has no part: another series may have the same rest.
            names = keys.iter().map(|key| (key.clone(), name(key, true))).collect();
        }
        names
    }

    /// A value as part of a series' name.
    fn part(&self, column: &str, value: &str) -> Option<String> {
        match column {
            column::member if value.is_empty() => Some("total".to_owned()),
            _ if value.is_empty() => None,
            "file" => Some(stem(value).to_owned()),
            column::case => Some(self.labels.get(value).to_owned()),
            column::run_id => Some(format!("run {}", short_id(value))),
            column::direction => Some(shown_way(value).to_owned()),
            column::from | column::to => Some(format!("{column} {value}")),
            column::plan
            | column::test
            | column::member
            | column::tag
            | column::workload
            | column::congestion_control
            | column::transport
            | column::io => Some(value.to_owned()),
            _ => {
                let quantity = self.quantity(column);
                let key = column.strip_prefix(AXIS_PREFIX).unwrap_or(column);
                Some(match quantity.unit {
                    Some(_) => format!("{} {}", quantity.label, quantity.name(value)),
                    None if key == column::inflight => values_in_words(&[(key, value)]).concat(),
                    None => values_in_words(&[(&quantity.label, value)]).concat(),
                })
            }
        }
    }

    /// The fewest columns, in addition to those given, that keep rows of different identity apart.
    /// Also returns the swept keys that go along with x.
    fn distinguishing(&self, given: &[String], columns: &Columns<'_>) -> (Vec<String>, Vec<String>) {
        // A search varies its load from probe to probe: the load is what the line goes along.
        let searched: &[&str] =
            if self.kind == Some(RecordKind::Probe) { &[column::offered_per_s, column::inflight] } else { &[] };
        let along: Vec<&str> =
            columns.along.iter().chain(searched).copied().chain(self.axes.iter().map(String::as_str)).collect();
        let mut swept: Vec<&str> =
            self.columns.keys().map(String::as_str).filter(|name| name.starts_with(AXIS_PREFIX)).collect();
        swept.sort_unstable();
        swept.splice(..0, self.swept.iter().map(String::as_str).filter(|name| !name.starts_with(AXIS_PREFIX)));
        let names = NAMES.into_iter().filter(|name| columns.by_case || *name != column::case);
        let candidates = names.chain(swept.iter().copied()).chain(parameters()).chain([column::latency_kind]);
        let (mut found, mut along_with_x): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for name in candidates.filter(|name| self.columns.contains_key(*name)) {
            if along.contains(&name) || given.iter().chain(&found).any(|known| known == name) {
                continue;
            }
            // Equal places matter for parameters: they may follow from the one along the axis.
            let origin = NAMES.contains(&name) || name == column::workload;
            let places: &[&str] = if columns.lines && origin { &[] } else { &along };
            let keys: Vec<&str> =
                places.iter().copied().chain(given.iter().chain(&found).map(String::as_str)).collect();
            let mut first: HashMap<Vec<&str>, &str> = HashMap::new();
            // A row in which nothing was timed is of no other kind.
            let says = |record: &&Record| name != column::latency_kind || !self.text(record, name).is_empty();
            let differs = self.list.iter().filter(says).any(|record| {
                let key = keys.iter().map(|k| self.text(record, k)).collect();
                *first.entry(key).or_insert_with(|| self.text(record, name)) != self.text(record, name)
            });
            if differs {
                found.push(name.to_owned());
            }
        }
        if columns.lines
            && let [x] = &self.axes[..]
            && searched.is_empty()
        {
            for name in swept {
                let known = along.contains(&name) || given.iter().chain(&found).any(|known| known == name);
                if known {
                    continue;
                }
                match self.beside(name, x, given, &found) {
                    Beside::Apart => found.push(name.to_owned()),
                    Beside::Along => along_with_x.push(name.to_owned()),
                    Beside::Fixed => {}
                }
            }
        }
        (found, along_with_x)
    }

    /// The variation of a swept key beside x within a series. One that holds a value for several places along x, then
    /// another, does not go along with x, as the size of a reply goes along with that of its request: its values are
    /// separate curves.
    fn beside(&self, name: &str, x: &str, given: &[String], found: &[String]) -> Beside {
        type Places<'a> = BTreeMap<&'a str, HashSet<&'a str>>;
        let mut groups: HashMap<Vec<&str>, Places<'_>> = HashMap::new();
        for record in &self.list {
            let group = given.iter().chain(found).map(|column| self.text(record, column)).collect();
            let places = groups.entry(group).or_default();
            places.entry(self.text(record, name)).or_default().insert(self.text(record, x));
        }
        let varying = || groups.values().filter(|values| values.len() > 1);
        if varying().any(|values| values.values().any(|places| places.len() > 1)) {
            Beside::Apart
        } else if varying().next().is_some() {
            Beside::Along
        } else {
            Beside::Fixed
        }
    }

    /// Labels the cases by what differs between them, and notes what they share.
    fn name_cases(&mut self) {
        let cases: Vec<String> = self.distinct(column::case).into_iter().map(str::to_owned).collect();
        let all: Vec<(&str, Vec<(&str, &str)>)> = cases.iter().map(|case| case_parts(case)).collect();
        let Some((first, pairs)) = all.first() else { return };
        let one_test = all.iter().all(|(test, _)| test == first);
        let shared: Vec<(&str, &str)> =
            pairs.iter().filter(|pair| all.iter().all(|(_, others)| others.contains(pair))).copied().collect();
        // The keys that tell cases apart: one that follows from those before it says nothing new.
        let (mut keys, mut implied): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for (key, _) in all.iter().flat_map(|(_, pairs)| pairs).filter(|pair| !shared.contains(pair)) {
            if keys.contains(key) || implied.contains(key) {
                continue;
            }
            let value = |pairs: &[(&'_ str, &'_ str)], key: &str| -> String {
                pairs.iter().find(|pair| pair.0 == key).map_or_else(String::new, |pair| pair.1.to_owned())
            };
            let mut first: HashMap<(&str, Vec<String>), String> = HashMap::new();
            let follows = all.iter().all(|(test, pairs)| {
                let known = keys.iter().map(|key| value(pairs, key)).collect();
                let own = value(pairs, key);
                *first.entry((test, known)).or_insert_with(|| own.clone()) == own
            });
            if follows { implied.push(key) } else { keys.push(key) }
        }
        let own = |pairs: &[(&str, &str)]| -> Vec<usize> {
            (0..pairs.len()).filter(|at| keys.contains(&pairs[*at].0)).collect()
        };
        let alone = one_test && keys.len() == 1 && all.iter().all(|(_, pairs)| own(pairs).len() == 1);
        let label = |(test, pairs): &(&str, Vec<(&str, &str)>)| {
            let own: Vec<(&str, &str)> = own(pairs).into_iter().map(|at| pairs[at]).collect();
            if alone {
                return Quantity::of_column(own[0].0).name(own[0].1);
            }
            let test = (!one_test || own.is_empty()).then(|| short_names(test));
            test.into_iter().chain(values_in_words(&own)).collect::<Vec<_>>().join(" · ")
        };
        let of = cases.iter().cloned().zip(all.iter().map(label)).collect();
        let title = alone.then(|| Quantity::of_column(keys[0]).label);
        if !shared.is_empty() {
            self.notes.push(format!("all with {}", values_in_words(&shared).join(", ")));
        }
        if !implied.is_empty() {
            let labels = |keys: &[&str]| keys.iter().map(|key| Quantity::of_column(key).label).collect::<Vec<_>>();
            let what = if keys.is_empty() { "the test".to_owned() } else { labels(&keys).join(" and ") };
            self.implied = Some(goes_along(&labels(&implied), &what));
        }
        self.labels = Labels { of, title };
    }
}

/// A sentence about parameters that follow from another.
fn goes_along(parameters: &[String], with: &str) -> String {
    let verb = if parameters.len() == 1 { "goes" } else { "go" };
    format!("{} {verb} along with {with}", parameters.join(" and "))
}

/// The variation of a parameter along a line.
enum Beside {
    Fixed,
    /// Another value at each place.
    Along,
    /// It tells curves apart.
    Apart,
}

/// `results/main.csv` → `main`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_series_too() {
        assert_eq!(stem("results/main.csv"), "main");
        assert_eq!(stem(".csv"), ".csv");
    }
}
