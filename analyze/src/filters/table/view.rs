//! The columns to show to a person, with titles and units.

use super::Args;
use crate::{
    error::Error,
    judge::verdicts,
    table::{
        Record, Rows, Selection, Table,
        layout::Column,
        parse_number,
        select::{Picker, quantity},
    },
};
use schemas::{
    columns::{
        self, CellError, VerdictRow, counters::column as counters, results::column, verdicts::column as verdict,
    },
    metrics::{self, Family, Kind},
    text::short_names,
    units::{self, Unit},
    vocabulary::Meaning,
    words::{DemandUnit, Phase, Status},
};

/// Margin from which on the ends of an interval say more: it reaches to zero.
const WIDE: f64 = 1.0;

/// The columns shown of a raw results file.
const FIRST_SIGHT: &[&str] = &[
    column::case,
    column::member,
    column::tag,
    column::record,
    column::iteration,
    column::phase,
    column::stream,
    column::start_s,
    column::direction,
    column::throughput_bits_per_s,
    column::transactions_per_s,
    column::operation_time_us,
    column::own_time_us,
    column::arrival_spread_us,
    column::bus_bits_per_s,
    column::mops_per_s,
    column::verified,
    column::added_latency_p50_us,
    column::latency_p50_us,
    column::latency_p99_us,
    column::latency_max_us,
    column::load_confidence,
    column::loss_ratio,
    column::local_cpu_ratio,
    column::remote_cpu_ratio,
    column::retransmits,
    column::limited_by,
    column::status,
    column::error,
];

/// The columns shown of a table of counters.
const COUNTERS: &[&str] = &[
    counters::case,
    counters::member,
    counters::iteration,
    counters::host,
    counters::span,
    counters::source,
    counters::key,
    counters::before,
    counters::after,
    counters::delta,
    counters::rate_per_s,
    counters::note,
];

/// Columns shown even if they say the same in every row.
const ALWAYS: &[&str] = &[
    column::case,
    column::throughput_bits_per_s,
    column::transactions_per_s,
    counters::key,
    counters::before,
    counters::after,
    counters::delta,
];

/// The kind of a table, from its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Results,
    Verdicts,
    Counters,
    /// Other programs' tables, and what filters write.
    Other,
}

impl Contents {
    fn of(table: &Table) -> Self {
        let has = |names: &[&str]| names.iter().all(|name| table.header().names().iter().any(|n| n == name));
        match () {
            () if has(&[column::record, column::run_id]) => Self::Results,
            () if has(&[verdict::verdict, verdict::assertion, verdict::severity]) => Self::Verdicts,
            () if has(&[counters::source, counters::key, counters::delta]) => Self::Counters,
            () => Self::Other,
        }
    }

    /// The most important columns; `None`: all of them.
    fn first_sight(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Results => Some(FIRST_SIGHT),
            Self::Counters => Some(COUNTERS),
            Self::Verdicts | Self::Other => None,
        }
    }
}

pub struct View {
    names: Vec<String>,
    /// Row by row.
    cells: Vec<Vec<String>>,
    /// The work that a service demand is for, row by row; `None`: unknown.
    demands: Vec<Option<DemandUnit>>,
    /// A sentence for the user.
    pub note: Option<String>,
    /// Whether columns keep their names and are never left out as uninformative.
    verbatim: bool,
    /// Whether the user named the columns: then empty columns are shown too.
    chosen: bool,
    /// Verdicts are shown as `plumb gate` shows them.
    verdicts: Option<Vec<VerdictRow>>,
}

/// The rows of a verdicts table; `None` where a newer version wrote words that this one does not know.
fn as_verdicts(names: &[String], rows: &[Vec<String>]) -> Option<Vec<VerdictRow>> {
    let row = |cells: &Vec<String>| {
        let mut row = VerdictRow::default();
        for (name, cell) in names.iter().zip(cells) {
            match row.set(name, cell) {
                // Somebody's own column.
                Ok(()) | Err(CellError::NoColumn(_)) => {}
                Err(CellError::Value(_)) => return None,
            }
        }
        Some(row)
    };
    rows.iter().map(row).collect()
}

/// The places of the sort keys among the wanted columns, and whether the largest comes first. Adds missing columns.
fn sort_keys(table: &Table, names: &[String], wanted: &mut Vec<usize>) -> Result<Vec<(usize, bool)>, Error> {
    let mut keys = Vec::new();
    for name in names {
        let (name, falling) = name.strip_prefix('-').map_or((name.as_str(), false), |name| (name, true));
        let column = table.asked(name)?;
        let place = wanted.iter().position(|c| *c == column).unwrap_or_else(|| {
            wanted.push(column);
            wanted.len() - 1
        });
        keys.push((place, falling));
    }
    Ok(keys)
}

/// Sorts by numbers (quantities too) before words; empty cells come last.
fn sort_rows(rows: &mut [Vec<String>], keys: &[(usize, bool)]) {
    use std::cmp::Ordering;
    rows.sort_by(|a, b| {
        let one = |(place, falling): &(usize, bool)| {
            let (a, b) = (a[*place].as_str(), b[*place].as_str());
            let order = match (a.is_empty(), b.is_empty()) {
                (false, false) => match (quantity(a), quantity(b)) {
                    (Some(a), Some(b)) => a.total_cmp(&b),
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (None, None) => a.cmp(b),
                },
                (a, b) => return a.cmp(&b),
            };
            if *falling { order.reverse() } else { order }
        };
        keys.iter().map(one).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
}

/// Writes the values of verdicts with the unit of their metric, which stands in the cell `at`.
fn with_units(names: &[String], at: usize, rows: &mut [Vec<String>]) {
    for row in rows {
        let Some(unit) = Meaning::of(&row[at]).unit else { continue };
        for (i, name) in names.iter().enumerate() {
            let has_unit = matches!(
                name.as_str(),
                verdict::observed | verdict::baseline | verdict::ci_low | verdict::ci_high | verdict::limit
            );
            if let Ok(Some(value)) = parse_number(&row[i])
                && has_unit
            {
                row[i] = units::human(unit, value);
            }
        }
    }
}

/// Empties the cells of metrics that say nothing of a row's work: the payload of requests, the rate of a probe. `telling`: the
/// places of the cells that tell its kind.
fn without_incidental(names: &[String], telling: [Option<usize>; 3], rows: &mut [Vec<String>]) {
    let metrics: Vec<Option<&str>> = names.iter().map(|name| metrics::find(name).map(|metric| metric.name)).collect();
    for row in rows {
        let family = Family::of_row(telling.map(|at| at.map_or("", |at| &*row[at])));
        for (cell, metric) in row.iter_mut().zip(&metrics) {
            if metric.is_some_and(|metric| family.is_incidental(metric)) {
                cell.clear();
            }
        }
    }
}

/// The cells of the chosen rows, and a note about the others.
type Chosen = (Vec<Vec<String>>, Option<String>);

/// The iterations of a results file (or the next best kind of row), failed ones too.
fn preferred(table: &mut Table, selection: &Selection, wanted: &[usize]) -> Result<Chosen, Error> {
    let rows = Rows::read_any_status(table, selection, wanted)?;
    let note = (rows.passed_over > 0).then(|| {
        let kind = match rows.kind {
            Record::Iteration => "iterations",
            Record::Summary => "summaries",
            Record::Stream => "streams",
            Record::Interval => "intervals",
            Record::Probe => "probes",
        };
        format!("shown are the {kind}; {} other rows (--all shows them)", rows.passed_over)
    });
    Ok((rows.rows.iter().map(|r| r.cells().map(str::to_owned).collect()).collect(), note))
}

/// The rows of every kind.
fn every(table: &mut Table, selection: &Selection, wanted: &[usize]) -> Result<Chosen, Error> {
    let mut picker = Picker::of_any_status(selection, table)?;
    let mut cells = Vec::new();
    while let Some(row) = table.next_row()? {
        if picker.pick(&row)?.is_some() {
            cells.push(wanted.iter().map(|c| row.get(*c).to_owned()).collect());
        }
    }
    picker.matched(table)?;
    Ok((cells, None))
}

impl View {
    pub fn choose(table: &mut Table, choice: &Args) -> Result<Self, Error> {
        let contents = Contents::of(table);
        let header = table.header();
        let chosen = !choice.columns.is_empty();
        let mut wanted: Vec<usize> = match (choice.columns.as_slice(), contents.first_sight()) {
            ([], Some(first)) if !choice.all => {
                let axes = (0..header.names().len()).filter(|i| header.names()[*i].starts_with(columns::AXIS_PREFIX));
                let mut first = first.iter().filter_map(|n| header.find(n));
                first.next().into_iter().chain(axes).chain(first).collect()
            }
            ([], _) => (0..header.names().len()).collect(),
            (names, _) => names.iter().map(|n| table.asked(n)).collect::<Result<_, _>>()?,
        };
        let shown = wanted.len();
        let sort = sort_keys(table, &choice.sort, &mut wanted)?;
        let beyond = wanted.len();
        if contents == Contents::Verdicts {
            wanted.push(table.require(verdict::metric)?);
        }
        // At first sight a figure that follows from what was asked for is left out.
        let is_selective = contents == Contents::Results && !chosen && !choice.all;
        let telling = Family::CELLS.map(|name| {
            wanted.push(table.header().find(name).filter(|_| is_selective)?);
            Some(wanted.len() - 1)
        });
        let demand = table.header().find(column::service_demand_unit).map(|column| {
            wanted.push(column);
            wanted.len() - 1
        });
        if choice.record.is_some() {
            table.require(column::record)?;
        }
        // All kinds of rows of a results file would show the same traffic several times.
        let one_kind = contents == Contents::Results && !choice.all;
        let default = if one_kind { Phase::Measure.as_str() } else { "all" };
        let selection = Selection {
            phase: choice.phase.clone().unwrap_or_else(|| default.to_owned()),
            record: choice.record.clone(),
            conditions: choice.conditions.clone(),
        };
        let names: Vec<String> = wanted[..shown].iter().map(|c| header.names()[*c].clone()).collect();
        let (mut cells, note) =
            if one_kind { preferred(table, &selection, &wanted)? } else { every(table, &selection, &wanted)? };
        sort_rows(&mut cells, &sort);
        if chosen && !choice.raw && contents == Contents::Verdicts {
            with_units(&names, beyond, &mut cells);
        }
        if is_selective {
            without_incidental(&names, telling, &mut cells);
        }
        let demands = cells.iter().map(|row| row[demand?].parse().ok()).collect();
        for row in &mut cells {
            row.truncate(shown);
        }
        let note = note.filter(|_| !chosen && choice.conditions.is_empty() && choice.record.is_none());
        let selected = !choice.conditions.is_empty() || choice.record.is_some() || choice.phase.is_some();
        let none =
            (cells.is_empty() && selected).then(|| "no row of the table is chosen by these conditions".to_owned());
        let plain = chosen || choice.all || contents != Contents::Verdicts;
        let verdicts = if plain { None } else { as_verdicts(&names, &cells) };
        let note = none.or(note);
        let mut view = Self { names, cells, demands, note, verbatim: choice.all || chosen, chosen, verdicts };
        if !chosen && !choice.all && contents.first_sight().is_some() {
            view.drop_constant_words();
        }
        Ok(view)
    }

    fn drop_constant_words(&mut self) {
        let constant = |i: usize| self.cells.len() > 1 && self.cells.iter().all(|r| r[i] == self.cells[0][i]);
        let keep: Vec<bool> = (0..self.names.len())
            .map(|i| {
                let name = self.names[i].as_str();
                let measured = metrics::find(name).is_some() && name != column::start_s;
                let fine = name == column::status && self.cells.iter().all(|r| r[i] == Status::Ok.as_str());
                !fine && name != column::record && (ALWAYS.contains(&name) || measured || !constant(i))
            })
            .collect();
        let mut kept = keep.iter();
        self.names.retain(|_| *kept.next().unwrap_or(&true));
        for row in &mut self.cells {
            let mut kept = keep.iter();
            row.retain(|_| *kept.next().unwrap_or(&true));
        }
    }

    /// The printed columns: those with a value, with titles and units for people unless `raw`.
    pub fn columns(&self, raw: bool) -> Vec<Column> {
        match &self.verdicts {
            Some(rows) if !raw => verdicts::columns(rows),
            _ => self.measured(raw),
        }
    }

    fn measured(&self, raw: bool) -> Vec<Column> {
        let level = self.level();
        let hidden = self.hidden(raw);
        let single_count = self.single_count().filter(|_| !self.verbatim && !raw);
        let used = |i: usize| self.chosen || self.cells.is_empty() || self.cells.iter().any(|r| !r[i].is_empty());
        (0..self.names.len())
            .filter(|i| used(*i) && !hidden[*i])
            .map(|i| {
                let name = &self.names[i];
                let cells = || self.cells.iter().map(move |r| r[i].as_str());
                let numeric = cells().all(|c| parse_number(c).is_ok()) && cells().any(|c| !c.is_empty());
                let about = Meaning::of(name);
                if Some(i) == single_count {
                    let cells = self.cells.iter().map(|r| self.count(r)).collect();
                    return Column { title: "n".to_owned(), right: true, cells };
                }
                let title = if raw { name.clone() } else { title(&about, name, level.as_deref(), self) };
                let unit = about.unit.filter(|_| !raw && numeric);
                let text = |cell: &str, demand: Option<DemandUnit>| match (unit, parse_number(cell)) {
                    (Some(_), Ok(Some(value))) if name.ends_with(column::margin_ratio) => {
                        format!("± {}", units::margin(value))
                    }
                    (Some(unit @ Unit::ServiceDemand), Ok(Some(value))) => {
                        let per = demand.map_or_else(String::new, |of| format!("/{}", of.per()));
                        units::human(unit, value) + &per
                    }
                    (Some(unit), Ok(Some(value))) => units::human(unit, value),
                    (None, Ok(Some(value))) if !raw && numeric && is_long(cell, value) => format!("{value:.4}"),
                    _ if !raw && name == column::case => short_names(cell),
                    _ if !raw && name == column::workload => metrics::shown_workload(cell, None),
                    _ => cell.replace(['\n', '\r', '\t'], " "),
                };
                let of_row = |(row, demand): (&Vec<String>, &Option<DemandUnit>)| {
                    self.wide(row, i).filter(|_| !raw).unwrap_or_else(|| text(&row[i], *demand))
                };
                Column { title, right: numeric, cells: self.cells.iter().zip(&self.demands).map(of_row).collect() }
            })
            .collect()
    }

    /// The confidence level for a title, if it is the same everywhere.
    fn level(&self) -> Option<String> {
        let i = self.names.iter().position(|n| n == column::confidence_level)?;
        let first = &self.cells.first()?[i];
        let level = parse_number(first).ok().flatten()?;
        // 99.9 stays 99.9, 95 is 95.
        self.cells.iter().all(|r| &r[i] == first).then(|| units::level(level))
    }

    /// The ends of a wide interval, or of one around a mean of 0, in the place of its margin in column `i`.
    fn wide(&self, row: &[String], i: usize) -> Option<String> {
        let stem = self.names[i].strip_suffix("_margin_ratio").filter(|_| !self.verbatim)?;
        let end = |end: &str| {
            let place = self.names.iter().position(|name| *name == format!("{stem}_ci_{end}"))?;
            parse_number(&row[place]).ok().flatten()
        };
        let (low, high) = (end("low")?, end("high")?);
        let unit = Meaning::of(&format!("{stem}_ci_low")).unit?;
        let is_small = parse_number(&row[i]).ok().flatten().is_some_and(|margin| margin < WIDE);
        units::spread(unit, f64::midpoint(low, high), low, high).filter(|_| !is_small)
    }

    /// Columns whose content another column says better.
    fn hidden(&self, raw: bool) -> Vec<bool> {
        let mut hidden = vec![false; self.names.len()];
        if self.verbatim {
            return hidden;
        }
        let find = |name: &str| self.names.iter().position(|n| n == name);
        let level = self.level().is_some();
        let count = self.single_count();
        for (i, name) in self.names.iter().enumerate() {
            let stem = ["_ci_low", "_ci_high"].iter().find_map(|e| name.strip_suffix(e));
            let margin = stem.and_then(|stem| find(&format!("{stem}_margin_ratio")));
            hidden[i] = match margin {
                Some(_) if !raw && Meaning::of(name).unit.is_some() => true,
                // Around a mean of 0 a margin is undefined, and of a wide interval the ends say more.
                Some(margin) => self.cells.iter().all(|r| {
                    let small = parse_number(&r[margin]).ok().flatten().is_some_and(|m| m < WIDE);
                    r[i].is_empty() || small
                }),
                None if name == column::confidence_level => level,
                None if name.ends_with("_count") => count.is_some_and(|c| c != i),
                None => false,
            };
        }
        hidden
    }

    /// The one count column that can stand for all: if every row has the same count of each of its metrics.
    fn single_count(&self) -> Option<usize> {
        let counts: Vec<usize> = (0..self.names.len())
            .filter(|i| Meaning::of(&self.names[*i]).statistic.as_deref() == Some("count"))
            .collect();
        let agree = self.cells.iter().all(|row| {
            let mut filled = counts.iter().map(|c| row[*c].as_str()).filter(|c| *c != "0");
            filled.next().is_none_or(|first| filled.all(|c| c == first))
        });
        counts.first().copied().filter(|_| agree)
    }

    /// A row's count: of another metric if it has none of its own.
    fn count(&self, row: &[String]) -> String {
        let counts = self.names.iter().zip(row).filter(|(n, _)| Meaning::of(n).statistic.as_deref() == Some("count"));
        counts.map(|(_, c)| c).find(|c| *c != "0").cloned().unwrap_or_else(|| "0".to_owned())
    }
}

/// Whether a number without a unit (such as a fit's `r2`) has too many digits for people. Four after the point are
/// enough, unless little is left of it.
fn is_long(cell: &str, value: f64) -> bool {
    value.abs() >= 0.01
        && !cell.contains(['e', 'E'])
        && cell.split_once('.').is_some_and(|(_, digits)| digits.len() > 4)
}

/// The name of a column without the unit that its cells show.
fn without_unit<'n>(about: &Meaning, name: &'n str) -> &'n str {
    const UNITS: [&str; 6] = ["_bits_per_s", "_per_s", "_bytes", "_ratio", "_us", "_s"];
    let stem = UNITS.iter().find_map(|unit| name.strip_suffix(unit));
    stem.filter(|_| about.unit.is_some()).unwrap_or(name)
}

/// The title of a column for people.
fn title(about: &Meaning, name: &str, level: Option<&str>, view: &View) -> String {
    let Some(metric) = about.metric else { return without_unit(about, name).to_owned() };
    // `latency p99 mean` reads better than `latency, 99th percentile mean`.
    let label = match metric.kind {
        Kind::Distribution => metric.name.replace('.', " "),
        _ if metric.label.contains(',') => metric.name.replace(['.', '_'], " "),
        _ => metric.label.to_owned(),
    };
    let Some(statistic) = &about.statistic else {
        // Both ends have a column with this label.
        let is_shared = |other: &String| other != name && metrics::find(other).is_some_and(|m| m.label == metric.label);
        return if view.names.iter().any(is_shared) { metric.name.replace('.', " ") } else { label };
    };
    // With a single metric, interval and count need not repeat its name.
    let stems = |n: &String| Meaning::of(n).metric.filter(|_| Meaning::of(n).statistic.is_some()).map(|m| m.column);
    let alone = view.names.iter().filter_map(stems).all(|column| column == metric.column);
    match statistic.as_str() {
        "count" => format!("{label} n"),
        "margin_ratio" => {
            let title = level.map_or("interval".to_owned(), |l| format!("{l} interval"));
            if alone { title } else { format!("{label} {title}") }
        }
        "cv_ratio" => format!("{label} cv"),
        other => format!("{label} {}", other.replace('_', " ")),
    }
}
