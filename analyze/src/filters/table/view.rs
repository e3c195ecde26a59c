//! The columns to show to a person, with titles and units.

use schemas::columns;
use schemas::metrics::{self, Kind};
use schemas::units::{self, Unit};
use schemas::vocabulary::Meaning;

use crate::error::Error;
use crate::table::layout::Column;
use crate::table::{Record, Rows, Selection, Table, parse_number};

/// The columns shown of a raw results file.
const FIRST_SIGHT: &[&str] = &[
    "case",
    "member",
    "tag",
    "record",
    "iteration",
    "phase",
    "stream",
    "start_s",
    "direction",
    "throughput_bits_per_s",
    "transactions_per_s",
    "latency_p50_us",
    "latency_p99_us",
    "latency_max_us",
    "loss_ratio",
    "local_cpu_ratio",
    "remote_cpu_ratio",
    "retransmits",
    "status",
    "error",
];

/// Columns shown even if they say the same in every row.
const ALWAYS: &[&str] = &["case", "throughput_bits_per_s", "transactions_per_s"];

pub struct View {
    names: Vec<String>,
    /// Row by row.
    cells: Vec<Vec<String>>,
    /// A sentence for the user.
    pub note: Option<String>,
    /// Whether columns keep their names and are never left out as uninformative.
    verbatim: bool,
    /// Whether the user named the columns: then empty columns are shown too.
    chosen: bool,
}

impl View {
    pub fn read(table: &mut Table, chosen: &[String], all: bool) -> Result<Self, Error> {
        let header = table.header();
        let is_results = header.find("record").is_some() && header.find("run_id").is_some();
        if is_results && !all {
            return Self::read_results(table, chosen);
        }
        let wanted = match chosen {
            [] => (0..header.names().len()).collect(),
            names => names.iter().map(|n| table.require(n)).collect::<Result<Vec<_>, _>>()?,
        };
        let names = wanted.iter().map(|c| table.header().names()[*c].clone()).collect();
        let mut cells = Vec::new();
        while let Some(row) = table.next_row()? {
            cells.push(wanted.iter().map(|c| row.get(*c).to_owned()).collect());
        }
        Ok(Self { names, cells, note: None, verbatim: all || !chosen.is_empty(), chosen: !chosen.is_empty() })
    }

    /// Reads the iterations of a raw results file (or the next best kind of row), failed ones too.
    fn read_results(table: &mut Table, chosen: &[String]) -> Result<Self, Error> {
        let header = table.header();
        let axes = |name: &String| name.starts_with(columns::AXIS_PREFIX);
        let wanted: Vec<usize> = match chosen {
            [] => FIRST_SIGHT.iter().filter_map(|n| header.find(n)).collect(),
            names => names.iter().map(|n| table.require(n)).collect::<Result<_, _>>()?,
        };
        let axis: Vec<usize> = (0..header.names().len()).filter(|i| axes(&header.names()[*i])).collect();
        let wanted = if chosen.is_empty() { [&wanted[..1], &axis, &wanted[1..]].concat() } else { wanted };
        let rows = Rows::read_any_status(table, &Selection::default(), &wanted)?;
        let hidden = rows.passed_over;
        let note = (hidden > 0 && chosen.is_empty()).then(|| {
            let kind = match rows.kind {
                Record::Iteration => "iterations",
                Record::Summary => "summaries",
                Record::Stream => "streams",
                Record::Interval => "intervals",
                Record::Probe => "probes",
            };
            format!("shown are the {kind}; {hidden} other rows (--all shows them)")
        });
        let mut view = Self {
            names: rows.columns.clone(),
            cells: rows.rows.iter().map(|r| (0..wanted.len()).map(|i| r.get(i).to_owned()).collect()).collect(),
            note,
            verbatim: !chosen.is_empty(),
            chosen: !chosen.is_empty(),
        };
        if chosen.is_empty() {
            view.drop_constant_words();
        }
        Ok(view)
    }

    fn drop_constant_words(&mut self) {
        let constant = |i: usize| self.cells.len() > 1 && self.cells.iter().all(|r| r[i] == self.cells[0][i]);
        let keep: Vec<bool> = (0..self.names.len())
            .map(|i| {
                let name = self.names[i].as_str();
                let measured = metrics::find(name).is_some() && name != "start_s";
                let fine = name == "status" && self.cells.iter().all(|r| r[i] == "ok");
                !fine && name != "record" && (ALWAYS.contains(&name) || measured || !constant(i))
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
        let level = self.level();
        let hidden = self.hidden();
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
                let title =
                    if raw || self.verbatim { name.clone() } else { title(&about, name, level.as_deref(), self) };
                let unit = about.unit.filter(|_| !raw && numeric);
                let text = |cell: &str| match (unit, parse_number(cell)) {
                    (Some(_), Ok(Some(value))) if name.ends_with("_margin_ratio") => units::margin(value),
                    (Some(unit), Ok(Some(value))) => units::human(unit, value),
                    (None, Ok(Some(value))) if !raw && numeric && is_long(cell, value) => format!("{value:.4}"),
                    _ => cell.replace(['\n', '\r', '\t'], " "),
                };
                Column { title, right: numeric, cells: cells().map(text).collect() }
            })
            .collect()
    }

    /// The confidence level for a title, if it is the same everywhere.
    fn level(&self) -> Option<String> {
        let i = self.names.iter().position(|n| n == "confidence_level")?;
        let first = &self.cells.first()?[i];
        let level = parse_number(first).ok().flatten()?;
        // 99.9 stays 99.9, 95 is 95.
        self.cells.iter().all(|r| &r[i] == first).then(|| format!("{} %", (level * 1e6).round() / 1e4))
    }

    /// Columns whose content another column says better.
    fn hidden(&self) -> Vec<bool> {
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
                // Around a mean of 0 there is no margin, and the ends say more.
                Some(margin) => self.cells.iter().all(|r| r[i].is_empty() || !r[margin].is_empty()),
                None if name == "confidence_level" => level,
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

/// The title of a column for people.
fn title(about: &Meaning, name: &str, level: Option<&str>, view: &View) -> String {
    let Some(metric) = about.metric else { return name.to_owned() };
    // `latency p99 mean` reads better than `latency, 99th percentile mean`.
    let label = match metric.kind {
        Kind::Distribution => metric.name.replace('.', " "),
        _ => metric.label.to_owned(),
    };
    let Some(statistic) = &about.statistic else {
        return if about.unit == Some(Unit::Bytes) { name.to_owned() } else { label };
    };
    // With a single metric, interval and count need not repeat its name.
    let stems = |n: &String| Meaning::of(n).metric.filter(|_| Meaning::of(n).statistic.is_some()).map(|m| m.column);
    let alone = view.names.iter().filter_map(stems).all(|column| column == metric.column);
    match statistic.as_str() {
        "count" => format!("{label} n"),
        "margin_ratio" => {
            let title = level.map_or("±".to_owned(), |l| format!("± {l}"));
            if alone { title } else { format!("{title} {label}") }
        }
        "cv_ratio" => format!("{label} cv"),
        other => format!("{label} {}", other.replace('_', " ")),
    }
}
