//! One value per iteration, case by case: what `gate` and `compare` judge.

mod index;

use std::collections::{HashMap, HashSet};

use super::Origin;
use crate::error::Error;
use crate::table::select::left_out_note;
pub use index::Index;

use crate::table::{Header, Parts, RecordKind, Rows, Selection, Table};

/// What tells cases apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// `case_id`, or what the user chose to match by.
    pub id: String,
    /// Member of a concurrent group; empty for the group's total.
    pub member: String,
    /// `forward`, `reverse`, `both`.
    pub direction: String,
    /// Number of the stream, where it is about one.
    pub stream: String,
}

/// A case's samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// Which case.
    pub key: Key,
    /// Its readable name.
    pub name: String,
    /// Per asked metric, the values in the order of the rows; rows without one are left out.
    pub values: Vec<Vec<f64>>,
    /// Transactions over all its rows, where they are counted.
    pub transactions: Option<u64>,
    /// Times of its rows, as text that sorts.
    pub times: Vec<String>,
    /// Where it was measured, and when its last row.
    pub origin: Origin,
}

/// All cases of a table.
#[derive(Clone, Debug)]
pub struct Samples {
    /// In the order of their first rows.
    pub cases: Vec<Case>,
    /// The cases that were left out on purpose (`skip`, `stop_when`), by what they are matched by: they promised nothing.
    pub skipped: HashSet<String>,
    /// A sentence about rows that were left out.
    pub note: Option<String>,
}

/// The columns by which cases are told apart, those of them that a table has.
const CASE: [&str; 3] = ["case_id", "case", "test"];

impl Samples {
    /// Reads the values of some columns. Cases are matched `by` that column, or by the first of `case_id`, `case` and
    /// `test` that there is.
    pub fn read(table: &mut Table, selection: &Selection, metrics: &[usize], by: Option<&str>) -> Result<Self, Error> {
        let columns = Columns::of(table, metrics, by)?;
        let parts = Parts::read(table, selection, &columns.all, false)?;
        whole(&parts.whole)?;
        columns.samples(&parts.whole, &parts.skipped)
    }

    /// The same, and the values of each stream beside them, in as many cases as there are streams.
    pub fn read_with_streams(
        table: &mut Table,
        selection: &Selection,
        metrics: &[usize],
    ) -> Result<(Self, Self), Error> {
        let columns = Columns::of(table, metrics, None)?;
        let parts = Parts::read(table, selection, &columns.all, true)?;
        whole(&parts.whole)?;
        Ok((columns.samples(&parts.whole, &parts.skipped)?, columns.samples(&parts.streams, &parts.skipped)?))
    }

    /// Leaves out what a total already contains: the directions where there is a row for both together.
    pub fn keep_totals(&mut self) {
        let whole = |k: &Key| k.direction == "both";
        let of = |k: &Key| (k.id.clone(), k.member.clone());
        let both: HashSet<_> = self.cases.iter().map(|c| &c.key).filter(|k| whole(k)).map(of).collect();
        self.cases.retain(|c| whole(&c.key) || !both.contains(&of(&c.key)));
    }
}

/// Refuses rows that are parts of an observation.
fn whole(rows: &Rows) -> Result<(), Error> {
    if matches!(rows.kind, RecordKind::Interval | RecordKind::Stream) && !rows.rows.is_empty() {
        return Err(Error::Usage(format!(
            "the rows are {}s, which are parts of an observation: iterations are what can be judged and compared",
            rows.kind.name()
        )));
    }
    Ok(())
}

/// The columns that tell cases apart, beside those of the metrics.
const OPTIONAL: [&str; 12] = [
    "case",
    "member",
    "direction",
    "transactions",
    "time",
    "status",
    "record",
    "stream",
    "error",
    "run_id",
    "from",
    "to",
];

/// Why a case did not run that should have; whatever else was skipped was skipped on purpose.
const CUT_SHORT: [&str; 2] = ["interrupted", "run.fail_fast"];

/// Which columns are read, and where they are among them.
struct Columns {
    /// What cases are matched by, the metrics, and what there is of [`OPTIONAL`].
    all: Vec<usize>,
    metrics: usize,
    at: [Option<usize>; OPTIONAL.len()],
}

impl Columns {
    fn of(table: &Table, metrics: &[usize], by: Option<&str>) -> Result<Self, Error> {
        let header = table.header();
        let id = match by {
            Some(name) => table.require(name)?,
            None => CASE.iter().find_map(|n| header.find(n)).map_or_else(|| table.require("case"), Ok)?,
        };
        let mut all = vec![id];
        all.extend(metrics);
        let at = OPTIONAL.map(|name| {
            header.find(name).map(|column| {
                all.push(column);
                all.len() - 1
            })
        });
        Ok(Self { all, metrics: metrics.len(), at })
    }

    fn samples(&self, rows: &Rows, skipped: &Rows) -> Result<Samples, Error> {
        let [name, member, direction, transactions, time, status, record, stream, error, run_id, from, to] = self.at;
        let mut without: Vec<(String, u64)> = Vec::new();
        let skipped = skipped.rows.iter().filter(|row| {
            let reason = error.map_or("", |e| row.get(e));
            !CUT_SHORT.iter().any(|word| reason.starts_with(word))
        });
        let skipped = skipped.map(|row| row.get(0).to_owned()).collect();
        // A case of which every iteration failed is a case without samples, not a case that is not there.
        let mut index: HashMap<Key, usize> = HashMap::new();
        let mut cases: Vec<Case> = Vec::new();
        for row in &rows.rows {
            let text = |at: Option<usize>| at.map(|i| row.get(i).to_owned()).unwrap_or_default();
            let status = text(status);
            let stream = if text(record) == RecordKind::Stream.name() { text(stream) } else { String::new() };
            let key = Key { id: text(Some(0)), member: text(member), direction: text(direction), stream };
            let i = *index.entry(key.clone()).or_insert_with(|| {
                let name = name.map_or_else(|| key.id.clone(), |i| row.get(i).to_owned());
                let origin = Origin { run_id: text(run_id), from: text(from), to: text(to), time: String::new() };
                cases.push(Case { key, name, values: vec![Vec::new(); self.metrics], origin, ..Case::default() });
                cases.len() - 1
            });
            if !matches!(status.as_str(), "" | "ok") {
                match without.iter_mut().find(|(s, _)| *s == status) {
                    Some((_, n)) => *n += 1,
                    None => without.push((status, 1)),
                }
                continue;
            }
            cases[i].origin.time = text(time);
            for m in 0..self.metrics {
                cases[i].values[m].extend(rows.number(row, m + 1)?);
            }
            if let Some(column) = transactions
                && let Some(n) = rows.number(row, column)?
            {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count below 2^53")]
                let n = n.max(0.0) as u64;
                *cases[i].transactions.get_or_insert(0) += n;
            }
            cases[i].times.extend(time.map(|t| row.get(t).to_owned()).filter(|t| !t.is_empty()));
        }
        Ok(Samples { cases, skipped, note: left_out_note(&without) })
    }
}

/// The column in which a case's result is usually read: what it has values of, of these the first.
const HEADLINE: [&str; 3] = ["throughput_bits_per_s", "transactions_per_s", "latency_p50_us"];

/// The indices of the headline columns that a table has.
#[must_use]
pub fn headline(header: &Header) -> Vec<usize> {
    HEADLINE.iter().filter_map(|n| header.find(n)).collect()
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
        assert_eq!((a.values[0].as_slice(), a.transactions, a.times.len()), ([3.0, 4.0].as_slice(), Some(23), 2));
        assert_eq!((b.values[0].len(), b.transactions, Index::new(&samples.cases).label(b).as_str()), (0, None, "b"));
    }
}
