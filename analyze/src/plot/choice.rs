//! The choice of metric and axes where none are given: the headline of the workload, and the parameters that vary.

use super::{
    identity,
    quantity::Quantity,
    records::{Columns, Record, Records, Wanted},
};
use crate::{error::Error, table::parse_number};
use schemas::{
    columns::{AXIS_PREFIX, results::column},
    metrics::{self, Family},
    vocabulary,
};

/// Parameters that are axes by default, the first that varies.
pub const AXES: [&str; 7] = [
    column::message_bytes,
    column::request_bytes,
    column::response_bytes,
    column::streams,
    column::inflight,
    column::offered_per_s,
    column::threads,
];

/// The column in which requests and replies carry payload that is not what they ask. A ping-pong of messages measures it.
const THROUGHPUT: &str = column::throughput_bits_per_s;

impl Records {
    /// The column of the row's headline.
    pub(super) fn headline_of(&self, record: &Record) -> Option<&'static str> {
        let family = Family::of_row(Family::CELLS.map(|name| self.text(record, name)));
        family.headline(|m| self.number(record, m.column).is_some()).map(|m| m.column)
    }

    /// Sets the metric: the headline that most rows have. Leaves out rows with another one, which would lie flat on the
    /// axis: the few bytes of a probe beside a stream's.
    pub(super) fn choose_metric(&mut self, columns: &Columns<'_>) {
        if columns.metric == Wanted::Nothing {
            return;
        }
        let label = |column: &str| Quantity::of_column(column).label;
        if columns.metric == Wanted::Default {
            let mut votes: Vec<(&'static str, usize)> = Vec::new();
            for column in self.list.iter().filter_map(|record| self.headline_of(record)) {
                match votes.iter_mut().find(|vote| vote.0 == column) {
                    Some(vote) => vote.1 += 1,
                    None => votes.push((column, 1)),
                }
            }
            // The first of equal ones: `max_by_key` takes the last.
            let Some((winner, _)) = votes.iter().rev().max_by_key(|vote| vote.1) else { return };
            self.metric = (*winner).to_owned();
            for (other, _) in votes.iter().filter(|vote| vote.0 != *winner) {
                let name = metrics::find(other).map_or(*other, |metric| metric.name);
                let what = format!("{} as their headline ({} is; -y {name})", label(winner), label(other));
                self.keep(&what, |records, record| records.headline_of(record) != Some(other));
            }
            return;
        }
        if self.metric != THROUGHPUT {
            return;
        }
        let workload = |records: &Self, record: &Record| records.text(record, column::workload).to_owned();
        let streams = self.list.iter().any(|record| Family::of(&workload(self, record)) == Family::Stream);
        let incidental = |workload: &str| {
            matches!(Family::of(workload), Family::Transactions | Family::Ping) && !workload.ends_with("pingpong")
        };
        if streams {
            self.keep("throughput as their headline", |records, record| !incidental(&workload(records, record)));
        }
    }

    /// Sets the axes: those that were given, else parameters that vary.
    pub(super) fn choose_axes(&mut self, columns: &Columns<'_>) -> Result<(), Error> {
        for (index, wanted) in columns.axes.iter().enumerate() {
            let column = match wanted {
                Wanted::Nothing => continue,
                Wanted::Column(name) => self.swept_name(name),
                Wanted::Default => match self.varying_beside(columns, index) {
                    Some(column) => column,
                    None if self.list.is_empty() => String::new(),
                    None => {
                        return Err(Error::Usage(format!(
                            "nothing varies that could be {}: no{} parameter has more than one value. Name a column with -{}, or compare cases with `bars` or `box`",
                            ["the horizontal axis", "the vertical axis"][index.min(1)],
                            if index == 0 { "" } else { " second" },
                            ["x", "y"][index.min(1)],
                        )));
                    }
                },
            };
            if *wanted == Wanted::Default {
                let label = Quantity::of_column(&column).label;
                let wanted = column.clone();
                self.keep(&label, |records, record| !records.text(record, &wanted).is_empty());
            }
            self.axes.push(column);
        }
        Ok(())
    }

    /// The table's name of a column, or the axis column of the swept key that fills it.
    pub(super) fn swept_name(&self, name: &str) -> String {
        let own = self.own_name(name);
        vocabulary::axis_of(&own).filter(|axis| self.columns.contains_key(axis)).unwrap_or(own)
    }

    /// The first parameter that varies and that no other axis has. Where an axis is still to be chosen, another parameter
    /// must vary beside it.
    fn varying_beside(&self, columns: &Columns<'_>, index: usize) -> Option<String> {
        let given = columns.axes.iter().filter_map(|wanted| wanted.given()).map(|name| self.swept_name(name));
        let taken: Vec<String> = given.chain(self.axes.iter().cloned()).collect();
        let free = |found: Vec<String>| found.into_iter().filter(|name| !taken.contains(name)).collect::<Vec<_>>();
        let found = free(self.varying(columns.numeric_axes, None));
        if !columns.axes[index + 1..].contains(&Wanted::Default) {
            return found.into_iter().next();
        }
        let pairs =
            |name: &String| free(self.varying(columns.numeric_axes, Some(name))).iter().any(|other| other != name);
        found.iter().find(|name| pairs(name)).or(found.first()).cloned()
    }

    /// Parameters with several values within a test, the swept ones and the usual axes first. `with` leaves out rows
    /// without that column.
    fn varying(&self, is_numeric: bool, with: Option<&str>) -> Vec<String> {
        let usual = AXES.iter().map(|name| self.swept_name(name)).filter(|name| self.swept.contains(name));
        let swept = usual.chain(self.swept.iter().cloned());
        let names = swept.chain(AXES.into_iter().chain(identity::parameters()).map(str::to_owned));
        let axes = self.columns.keys().filter(|name| name.starts_with(AXIS_PREFIX)).cloned();
        let mut axes: Vec<String> = axes.collect();
        axes.sort_unstable();
        let mut found: Vec<String> = Vec::new();
        for name in names.chain(axes) {
            // The axis column of a swept key has its value in every row; the key's own may not.
            let axis = vocabulary::axis_of(&name);
            let name = axis.filter(|axis| self.columns.contains_key(axis)).unwrap_or(name);
            if !self.columns.contains_key(&name) || found.contains(&name) {
                continue;
            }
            let mut first: std::collections::HashMap<&str, &str> = std::collections::HashMap::new();
            let mut numeric = true;
            let mut several = false;
            for record in &self.list {
                let value = self.text(record, &name);
                if value.is_empty() || with.is_some_and(|with| self.text(record, with).is_empty()) {
                    continue;
                }
                numeric &= parse_number(value).is_ok_and(|v| v.is_some());
                several |= *first.entry(self.text(record, column::test)).or_insert(value) != value;
            }
            if (numeric || !is_numeric) && several {
                found.push(name);
            }
        }
        found
    }
}
