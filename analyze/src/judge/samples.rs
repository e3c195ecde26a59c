//! Samples for `gate` and `compare`: one value per iteration, case by case.

use super::Origin;
use crate::{
    error::Error,
    limits,
    stats::quantiles,
    table::{
        Field, Header, Row, Selection, Table,
        select::{LeftOut, Picker, Preferred, is_cut_short},
    },
};
use indexmap::IndexMap;
use schemas::{
    columns::VerdictRow,
    metrics::{self, Family},
    units,
    words::{LimitedBy, Record, Status, Way},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Identifies a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// `case_id`, or what the user chose to match by.
    pub id: String,
    /// Member of a concurrent group; empty for the group's total.
    pub member: String,
    /// `forward`, `reverse`, `both`.
    pub direction: String,
    /// Number of the stream, for the samples of one stream.
    pub stream: String,
    /// Value of the column by which the rows were split; else empty.
    pub part: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    pub key: Key,
    pub name: String,
    /// The kind of its workload, which decides its headline.
    pub family: Family,
    /// The values of each metric in the order of the rows; rows without a value are left out.
    pub values: Vec<Vec<f64>>,
    /// Transactions over all its rows, if they are counted.
    pub transactions: Option<u64>,
    /// The row of each value of [`Self::values`], as an index into `rows`.
    pub row_of: Vec<Vec<usize>>,
    /// Its rows, in the order of the table.
    pub rows: Vec<Observation>,
    /// Place and time of the measurement; the time is that of its last row.
    pub origin: Origin,
    /// Why an iteration failed, if one did.
    pub failed: Option<String>,
}

/// When a row was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub run_id: String,
    /// Number of the iteration in the run, from 1; `None`: unknown.
    pub iteration: Option<u64>,
    /// End of the measurement, as text that sorts; empty if unknown.
    pub time: String,
    /// Share of the time in which others took a CPU from it, 0 … 1 (`cpu_taken_ratio`); `None`: unknown.
    pub cpu_taken: Option<f64>,
}

/// All cases of a table.
#[derive(Clone, Debug)]
pub struct Samples {
    /// In the order of their first rows.
    pub cases: Vec<Case>,
    /// Cases that were skipped, by what they are matched by, and whether an early end of the run did so. Nothing is expected
    /// of those without a value.
    pub skipped: HashMap<String, bool>,
    /// A sentence about rows that were left out.
    pub note: Option<String>,
}

/// Columns that tell cases apart, by preference.
const CASE: [Field; 3] = [Field::case_id, Field::case, Field::test];

impl Samples {
    /// Reads the values of some columns. Cases are matched by the column `by`, or by the first of `case_id`, `case` and
    /// `test` that the table has.
    pub fn read(table: &mut Table, selection: &Selection, metrics: &[usize], by: Option<&str>) -> Result<Self, Error> {
        Self::read_parts(table, selection, metrics, [by, None], false).map(|(whole, _)| whole)
    }

    /// Like [`Self::read`], with the rows of a case split by the values of a column.
    pub fn read_split(table: &mut Table, selection: &Selection, metrics: &[usize], split: &str) -> Result<Self, Error> {
        Self::read_parts(table, selection, metrics, [None, Some(split)], false).map(|(whole, _)| whole)
    }

    /// Like [`Self::read`], and each stream as a case of its own where these are wanted.
    pub fn read_with_streams(
        table: &mut Table,
        selection: &Selection,
        metrics: &[usize],
        are_wanted: bool,
    ) -> Result<(Self, Self), Error> {
        Self::read_parts(table, selection, metrics, [None, None], are_wanted)
    }

    fn read_parts(
        table: &mut Table,
        selection: &Selection,
        metrics: &[usize],
        by_and_split: [Option<&str>; 2],
        with_streams: bool,
    ) -> Result<(Self, Self), Error> {
        let columns = Columns::of(table, metrics, by_and_split)?;
        let mut picker = Picker::of_any_status(selection, table)?;
        let (mut whole, mut streams) = (Preferred::<Reading>::default(), Reading::default());
        let mut skipped = HashMap::new();
        while let Some(row) = table.next_row()? {
            let Some(kind) = picker.pick(&row)? else { continue };
            if row.text(Field::status) == Status::Skipped.as_str() {
                skipped.insert(row.get(columns.id).to_owned(), is_cut_short(&row));
                continue;
            }
            let part = match kind {
                Record::Stream if with_streams => Some(&mut streams),
                kind => whole.slot(kind),
            };
            if let Some(part) = part {
                part.add(&row, kind, &columns)?;
            }
        }
        picker.matched(table)?;
        let whole = whole.of_observations("iterations can be judged and compared")?;
        Ok((whole.samples(skipped.clone()), streams.samples(skipped)))
    }

    /// The cases of a run, of which none was skipped.
    pub fn of(cases: Vec<Case>) -> Self {
        Self { cases, skipped: HashMap::new(), note: None }
    }

    /// Drops the directions of a case that has a row for both together.
    pub fn keep_totals(&mut self) {
        let is_total: Vec<bool> = self.are_totals().collect();
        let mut is_total = is_total.into_iter();
        self.cases.retain(|_| is_total.next().unwrap_or_default());
    }

    /// The cases without the directions of one that has a row for both together.
    pub fn totals(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().zip(self.are_totals()).filter_map(|(case, is_total)| is_total.then_some(case))
    }

    /// By case: whether it is no direction of one that has a row for both together.
    fn are_totals(&self) -> impl Iterator<Item = bool> {
        fn of(case: &Case) -> (&str, &str) {
            (&case.key.id, &case.key.member)
        }
        let is_whole = |case: &&Case| case.key.direction == Way::Both.as_str();
        let both: HashSet<_> = self.cases.iter().filter(is_whole).map(of).collect();
        self.cases.iter().map(move |case| is_whole(&case) || !both.contains(&of(case)))
    }
}

/// The columns to read, beside those that every table of results has.
struct Columns {
    /// The column that cases are matched by.
    id: usize,
    /// The column that splits the rows of a case.
    split: Option<usize>,
    metrics: Vec<usize>,
    /// The column of causes, whose values are indices.
    causes: Option<usize>,
}

impl Columns {
    fn of(table: &Table, columns: &[usize], [by, split]: [Option<&str>; 2]) -> Result<Self, Error> {
        let split = split.map(|name| table.require(name)).transpose()?;
        let header = table.header();
        let id = match by {
            Some(name) => table.asked(name)?,
            None => CASE.iter().find_map(|field| header.place(*field)).map_or_else(|| table.require("case"), Ok)?,
        };
        Ok(Self { id, split, metrics: columns.to_vec(), causes: header.place(Field::limited_by) })
    }
}

/// Samples while they are read.
#[derive(Default)]
struct Reading {
    cases: IndexMap<Key, Case>,
    /// Rows without a sample.
    left_out: LeftOut,
}

impl Reading {
    fn add(&mut self, row: &Row<'_>, kind: Record, columns: &Columns) -> Result<(), Error> {
        let text = |field| row.text(field).to_owned();
        let key = Key {
            id: row.get(columns.id).to_owned(),
            member: text(Field::member),
            direction: text(Field::direction),
            stream: if kind == Record::Stream { text(Field::stream) } else { String::new() },
            part: columns.split.map_or("", |c| row.get(c)).to_owned(),
        };
        // A case whose iterations all failed is a case without samples: it must not be missing.
        let case = self.cases.entry(key).or_insert_with_key(|key| {
            let name = if row.has(Field::case) { text(Field::case) } else { key.id.clone() };
            let (run_id, from, to) = (text(Field::run_id), text(Field::from), text(Field::to));
            let round = row.text(Field::round).parse().ok();
            let origin = Origin { run_id, from, to, round, ..Origin::default() };
            let case = Case::of(key.clone(), name, row.family(), columns.metrics.len());
            Case { origin, ..case }
        });
        let status = row.text(Field::status);
        if !status.is_empty() && status != Status::Ok.as_str() {
            if matches!(status.parse(), Ok(Status::Failed | Status::Timeout)) {
                case.failed.get_or_insert_with(|| text(Field::error));
            }
            self.left_out.add(status, row.text(Field::error));
            return Ok(());
        }
        row.text(Field::time).clone_into(&mut case.origin.time);
        for (metric, column) in columns.metrics.iter().enumerate() {
            let value = if Some(*column) == columns.causes {
                row.get(*column).parse().ok().map(LimitedBy::index)
            } else {
                row.number(*column)?
            };
            case.put(metric, value);
        }
        if let Some(n) = row.value(Field::transactions)? {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count below 2^53")]
            let n = n.max(0.0) as u64;
            let all = case.transactions.get_or_insert(0);
            *all = all.saturating_add(n);
        }
        if let Some(seconds) = row.value(Field::elapsed_s)? {
            *case.origin.elapsed_s.get_or_insert(0.0) += seconds;
        }
        let iteration = row.text(Field::iteration).parse().ok();
        let (run_id, time) = (text(Field::run_id), case.origin.time.clone());
        case.rows.push(Observation { run_id, iteration, time, cpu_taken: row.value(Field::cpu_taken_ratio)? });
        Ok(())
    }

    fn samples(self, skipped: HashMap<String, bool>) -> Samples {
        Samples { cases: self.cases.into_values().collect(), skipped, note: self.left_out.note() }
    }
}

impl Case {
    /// A case without values of so many metrics.
    pub fn of(key: Key, name: String, family: Family, metrics: usize) -> Self {
        let (values, row_of) = (vec![Vec::new(); metrics], vec![Vec::new(); metrics]);
        Self { key, name, family, values, row_of, ..Self::default() }
    }

    /// A case that left no row.
    pub fn absent(id: &str) -> Self {
        Self { key: Key { id: id.to_owned(), ..Key::default() }, name: id.to_owned(), ..Self::default() }
    }

    /// Adds the value of a metric in the row that [`Self::rows`] has next.
    pub fn put(&mut self, metric: usize, value: Option<f64>) {
        if let Some(value) = value {
            self.values[metric].push(value);
            self.row_of[metric].push(self.rows.len());
        }
    }

    /// The direction in which it was measured.
    pub fn way(&self) -> Way {
        self.key.direction.parse().unwrap_or(Way::Forward)
    }

    /// The values of a metric, each with when it was measured.
    pub fn observed(&self, metric: usize) -> impl Iterator<Item = (f64, &Observation)> {
        let rows = self.row_of.get(metric).into_iter().flatten();
        let values = self.values.get(metric).into_iter().flatten().zip(rows);
        values.filter_map(|(value, row)| Some((*value, self.rows.get(*row)?)))
    }

    /// The typical share of the time in which others took a CPU from it; `None`: unknown.
    fn cpu_taken(&self) -> Option<f64> {
        quantiles::select_median(&mut self.rows.iter().filter_map(|row| row.cpu_taken).collect::<Vec<_>>())
    }

    /// The headline of its workload, as an index into its values, whose columns have these names. `None`: it has no
    /// values of any metric that could be.
    pub fn headline(&self, columns: &[String]) -> Option<usize> {
        let index = |column: &str| columns.iter().position(|c| c == column);
        let metric = self.family.headline(|m| index(m.column).is_some_and(|i| !self.values[i].is_empty()))?;
        index(metric.column)
    }
}

/// Why the values of each of two cases are doubtful beside the other's: others took a CPU from it, and much more than from the
/// other. What takes it from both alike leaves their comparison as it is.
pub fn disturbed(base: &Case, new: &Case) -> [Option<String>; 2] {
    let [base, new] = [base, new].map(Case::cpu_taken);
    let told = |side: &str, own: Option<f64>, other: Option<f64>| {
        let own = own.filter(|own| limits::disturbed(other.into_iter().collect())(*own)).map(units::margin)?;
        let beside = other.map_or("an unknown share".to_owned(), units::margin);
        Some(format!("{side} was disturbed: others took a CPU for {own} of its time, {beside} of the other's"))
    };
    [told("the baseline", base, new), told("the new side", new, base)]
}

/// The rounds in which two cases were measured in turns, as values of a metric: the same run, the same numbers of
/// iterations, and every round over before the next began. `None` if they were not, or if more than a fifth of the
/// iterations of a side have no partner: those would be lost.
pub fn rounds(base: &Case, new: &Case, metric: usize) -> Option<Vec<(f64, f64)>> {
    let (a, b) = (by_iteration(base, metric)?, by_iteration(new, metric)?);
    let run = &a.values().next()?.1.run_id;
    if a.values().chain(b.values()).any(|(_, row)| row.run_id != *run) {
        return None;
    }
    let both: Vec<_> = a.iter().filter_map(|(i, a)| Some((a, b.get(i)?))).collect();
    if both.len() * 5 < a.len().max(b.len()) * 4 {
        return None;
    }
    let ends = |pair: &(&(f64, &'_ Observation), &(f64, &'_ Observation))| -> (String, String) {
        let (a, b) = (&pair.0.1.time, &pair.1.1.time);
        (a.min(b).clone(), a.max(b).clone())
    };
    let apart = both.windows(2).all(|w| ends(&w[0]).1 < ends(&w[1]).0);
    apart.then(|| both.iter().map(|(a, b)| (a.0, b.0)).collect())
}

/// The values of two cases from the same iterations of a run, each as a metric of its own.
pub fn pairs((a, metric): (&Case, usize), (b, other): (&Case, usize)) -> Vec<(f64, f64)> {
    let numbered = |case: &Case, metric: usize| -> BTreeMap<(String, u64), f64> {
        case.observed(metric).filter_map(|(value, row)| Some(((row.run_id.clone(), row.iteration?), value))).collect()
    };
    let others = numbered(b, other);
    numbered(a, metric).into_iter().filter_map(|(key, value)| Some((value, *others.get(&key)?))).collect()
}

/// The values of a metric by iteration; `None` where that does not tell them apart.
fn by_iteration(case: &Case, metric: usize) -> Option<BTreeMap<u64, (f64, &Observation)>> {
    let mut found = BTreeMap::new();
    for (value, row) in case.observed(metric) {
        let known = !row.run_id.is_empty() && !row.time.is_empty();
        if found.insert(row.iteration.filter(|_| known)?, (value, row)).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Indices of the columns of a table that can be the headline of a case.
pub fn headlines(header: &Header) -> Vec<usize> {
    metrics::headlines().iter().filter_map(|m| header.find(m.column)).collect()
}

// Looks cases up and names them.

/// Finds cases by hash: a table may have a hundred thousand.
pub struct Index<'a> {
    all: Vec<&'a Case>,
    by_key: HashMap<&'a Key, &'a Case>,
    by_id: HashMap<&'a str, Vec<&'a Case>>,
    /// The direction in which a case's member was measured; `None`: several.
    direction: HashMap<(&'a str, &'a str), Option<&'a str>>,
}

impl<'a> Index<'a> {
    /// Of two cases with the same key, the first is found.
    pub fn new(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let all = cases.into_iter().collect();
        let mut index = Self { all, by_key: HashMap::new(), by_id: HashMap::new(), direction: HashMap::new() };
        for case in index.all.iter().copied() {
            let key = &case.key;
            index.by_key.entry(key).or_insert(case);
            index.by_id.entry(&key.id).or_default().push(case);
            let only = index.direction.entry((&key.id, &key.member)).or_insert(Some(&key.direction));
            *only = only.filter(|d| *d == key.direction);
        }
        index
    }

    /// With labels that always say the direction of a case.
    pub(in crate::judge) fn with_directions(mut self) -> Self {
        self.direction.values_mut().for_each(|only| *only = None);
        self
    }

    /// All cases, in the order of the table.
    pub fn all(&self) -> &[&'a Case] {
        &self.all
    }

    /// The case with this key. A table may leave the direction `forward` out, as rows of other programs do.
    pub fn find(&self, key: &Key) -> Option<&'a Case> {
        let forward = Way::Forward.as_str();
        let other = || match key.direction.as_str() {
            "" => Some(Key { direction: forward.to_owned(), ..key.clone() }),
            direction if direction == forward => Some(Key { direction: String::new(), ..key.clone() }),
            _ => None,
        };
        self.by_key.get(key).or_else(|| self.by_key.get(&other()?)).copied()
    }

    /// Every case with this `case_id` (or other matching column), in the order of the table.
    pub fn of(&self, id: &str) -> &[&'a Case] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// Writes a case into a row: its label among these cases, and where it was measured.
    pub fn mark(&self, case: &Case, row: &mut VerdictRow) {
        row.case_id.clone_from(&case.key.id);
        row.case = self.label(case);
        row.member.clone_from(&case.key.member);
        case.origin.mark(row);
    }

    /// A case's name with what tells it apart from the others: `mixed up (reverse)`.
    pub fn label(&self, case: &Case) -> String {
        let Key { id, member, direction, stream, part: _ } = &case.key;
        let mut label = case.name.clone();
        if !member.is_empty() {
            label = format!("{label} {member}");
        }
        let others = self.direction.get(&(id.as_str(), member.as_str())).is_some_and(|d| *d != Some(direction));
        if others && !direction.is_empty() {
            label = format!("{label} ({direction})");
        }
        if !stream.is_empty() {
            label = format!("{label} (stream {stream})");
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_stand_for_their_directions() {
        let text = "case_id,case,direction,throughput_bits_per_s,transactions,time\n\
            c1,a,forward,1,5,t1\nc1,a,reverse,2,6,t1\nc1,a,both,3,11,t1\nc1,a,both,4,12,t2\nc2,b,forward,,,\n";
        let mut table = Table::from_text("t", text).unwrap();
        let column = table.require("throughput").unwrap();
        let mut samples = Samples::read(&mut table, &Selection::default(), &[column], None).unwrap();
        assert_eq!(samples.cases.len(), 4);
        assert_eq!(Index::new(&samples.cases).label(&samples.cases[1]), "a (reverse)");
        samples.keep_totals();
        let [a, b] = samples.cases.as_slice() else { panic!("{samples:?}") };
        assert_eq!((a.values[0].as_slice(), a.transactions, a.rows.len()), ([3.0, 4.0].as_slice(), Some(23), 2));
        assert_eq!((b.values[0].len(), b.transactions, Index::new(&samples.cases).label(b).as_str()), (0, None, "b"));
    }

    fn case(id: &str, member: &str, direction: &str, stream: &str) -> Case {
        let (id, member) = (id.to_owned(), member.to_owned());
        let key = Key { id, member, direction: direction.into(), stream: stream.into(), ..Key::default() };
        Case { name: format!("name of {}", key.id), key, ..Case::default() }
    }

    #[test]
    fn cases_are_found_and_named_by_what_tells_them_apart() {
        let cases = [
            case("a", "", "forward", ""),
            case("b", "up", "forward", ""),
            case("a", "", "reverse", "3"),
            case("b", "", "both", ""),
        ];
        let index = Index::new(&cases);
        let labels: Vec<String> = cases.iter().map(|c| index.label(c)).collect();
        assert_eq!(labels, ["name of a (forward)", "name of b up", "name of a (reverse) (stream 3)", "name of b"]);
        assert_eq!(index.find(&cases[2].key), Some(&cases[2]));
        assert_eq!(index.find(&Key::default()), None);
        assert_eq!(index.find(&case("b", "up", "", "").key), Some(&cases[1]));
        assert_eq!(index.find(&case("b", "up", "reverse", "").key), None);
        let without = [case("a", "", "", "")];
        assert_eq!(Index::new(&without).find(&cases[0].key), Some(&without[0]));
        assert_eq!(index.of("b"), [&cases[1], &cases[3]]);
        assert_eq!(index.of("c").len(), 0);
        // A case that is none of them, in another direction than theirs.
        assert_eq!(index.label(&case("b", "up", "reverse", "")), "name of b up (reverse)");
        assert_eq!(Index::new(&[]).label(&cases[0]), "name of a");
    }
}
