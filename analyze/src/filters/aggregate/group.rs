//! Groups of rows, what is kept of each, and its statistics.

use crate::{
    error::{Error, Place},
    parallel::Row,
    stats::{
        bootstrap,
        confidence::{self, Interval},
        histogram::{self, Latencies},
        moments::{self, Moments},
        quantiles::{self, Sketch},
    },
    table::{Cells, Header},
};
use schemas::metrics::{Better, Family, Metric, Range};
use std::{collections::HashMap, sync::Arc};

/// One metric in one group.
#[derive(Clone, Debug, Default)]
pub struct Values {
    pub moments: Moments,
    pub sketch: Sketch,
    /// Merged histograms, for `-a pooled`.
    pub latencies: Option<Latencies>,
}

#[derive(Debug)]
pub struct Group {
    pub key: Vec<Box<str>>,
    /// The key in one piece, as in the index.
    joined: Arc<str>,
    /// Per metric.
    pub values: Vec<Values>,
    rows: u64,
    /// The group that followed when this one was last looked up.
    next: usize,
    /// The watched parameters of its first row.
    pub parameters: Vec<Box<str>>,
    /// The kind of work of its first row.
    pub family: Family,
    /// The case of its first row.
    case: Box<str>,
    /// Key and parameters by runs of neighbouring columns, as they stand in a line.
    runs: Vec<Box<str>>,
}

impl Group {
    /// Whether a row has the group's key and watched parameters, as far as one comparison per run tells.
    fn is_like(&self, row: &Row<'_>, columns: &Columns) -> bool {
        let mut runs = columns.runs.iter().zip(&self.runs);
        runs.all(|((first, last), ours)| row.run(*first, *last).is_some_and(|theirs| same(ours, theirs)))
    }
}

/// The columns to read in each row.
#[derive(Debug, Clone)]
pub struct Columns {
    pub group: Vec<usize>,
    pub metrics: Vec<usize>,
    /// The column of histograms, and the metrics that want them.
    pub histogram: Option<(usize, Vec<bool>)>,
    /// Parameters that should not differ within a group.
    pub watched: Vec<usize>,
    /// Of the watched columns, by their place among these: those in which a value stands for the total of the others, and that value.
    pub totals: Vec<(usize, &'static str)>,
    /// See [`Family::CELLS`].
    pub family: [Option<usize>; 3],
    /// The column of cases: a row without a member is the total of its own case's members only.
    pub case: Option<usize>,
    /// Group columns and watched columns as runs of neighbours, first and last. One comparison per run tells whether a
    /// row belongs to a group and is like its first row.
    pub runs: Vec<(usize, usize)>,
}

impl Columns {
    /// All of them, as runs.
    pub fn looked_at(&self) -> impl Iterator<Item = (usize, usize)> {
        let histogram = self.histogram.iter().map(|(column, _)| *column);
        let single = self.metrics.iter().copied().chain(histogram).map(|column| (column, column));
        self.runs.iter().copied().chain(single)
    }
}

/// Runs of consecutive numbers, first and last.
pub fn runs(columns: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut columns: Vec<usize> = columns.collect();
    columns.sort_unstable();
    columns.dedup();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for column in columns {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == column => *last = column,
            _ => runs.push((column, column)),
        }
    }
    runs
}

/// The watched column in which one of two rows is the total of what the other is a part of.
fn mixture<'a>(columns: &Columns, ours: &[Box<str>], theirs: impl Fn(usize) -> &'a str) -> Option<usize> {
    let differs = |(k, total): &&(usize, &str)| (&*ours[*k] == *total) != (theirs(*k) == *total);
    columns.totals.iter().find(differs).map(|(k, _)| *k)
}

/// Whether two texts are equal. Most are empty or short: comparing them here costs less than calling memcmp, and
/// glibc's memcmp on AVX-512 machines is very slow on the address of an empty box.
#[inline]
fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(x), Some(y)) if a.len() <= 64 => {
            let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
            let words = a.as_chunks().0.iter().zip(b.as_chunks().0);
            word(x) == word(y) && words.map(|(x, y)| word(x) ^ word(y)).fold(0, |all, differ| all | differ) == 0
        }
        (Some(_), Some(_)) => a == b,
        _ => a.iter().eq(b),
    }
}

/// All groups, in the order of first appearance.
#[derive(Debug, Default)]
pub struct Groups {
    index: HashMap<Arc<str>, usize>,
    pub list: Vec<Group>,
    /// For each watched parameter, the first group in which it differs.
    differs: Vec<Option<usize>>,
    /// The first group that holds a total beside its parts, and the place among the watched columns.
    mixed: Option<(usize, usize)>,
    key: String,
    /// The group of the last row.
    last: usize,
}

impl Groups {
    pub fn add(&mut self, row: &Row<'_>, columns: &Columns) -> Result<(), Error> {
        let (i, alike) = self.find(row, columns);
        let group = &mut self.list[i];
        group.rows += 1;
        if !alike {
            for ((column, differs), ours) in columns.watched.iter().zip(&mut self.differs).zip(&group.parameters) {
                if differs.is_none() && !same(ours, row.get(*column)) {
                    *differs = Some(i);
                }
            }
            if same(&group.case, columns.case.map_or("", |case| row.get(case))) {
                let cells = |k: usize| row.get(columns.watched[k]);
                self.mixed = self.mixed.or(mixture(columns, &group.parameters, cells).map(|k| (i, k)));
            }
        }
        for (values, column) in group.values.iter_mut().zip(&columns.metrics) {
            if let Some(value) = row.number(*column)? {
                values.moments.push(value);
                values.sketch.push(value);
            }
        }
        if let Some((column, wanted)) = &columns.histogram
            && !row.get(*column).is_empty()
        {
            let error = |reason| row.error(Some(*column), reason);
            let latencies = Latencies::decode(row.get(*column)).map_err(error)?;
            for (values, _) in group.values.iter_mut().zip(wanted).filter(|(_, wanted)| **wanted) {
                values.latencies.get_or_insert_default().merge(&latencies).map_err(error)?;
            }
        }
        Ok(())
    }

    /// The group of a row, and whether the row is like the group's first one in all watched parameters. Guesses the
    /// group that followed last time: cases mostly repeat their order, or stay the same.
    fn find(&mut self, row: &Row<'_>, columns: &Columns) -> (usize, bool) {
        let guess = self.list.get(self.last).map_or(0, |group| group.next);
        if let Some(group) = self.list.get(guess) {
            let alike = group.is_like(row, columns);
            if alike || columns.group.iter().zip(&group.key).all(|(column, cell)| same(cell, row.get(*column))) {
                self.last = guess;
                return (guess, alike);
            }
        }
        self.key.clear();
        for column in &columns.group {
            self.key.push_str(row.get(*column));
            // A unit separator does not occur in names.
            self.key.push('\u{1f}');
        }
        let i = match self.index.get(self.key.as_str()) {
            Some(i) => *i,
            None => self.new_group(row, columns),
        };
        if let Some(before) = self.list.get_mut(self.last) {
            before.next = i;
        }
        self.last = i;
        (i, self.list[i].is_like(row, columns))
    }

    fn new_group(&mut self, row: &Row<'_>, columns: &Columns) -> usize {
        self.differs.resize(columns.watched.len(), None);
        let i = self.list.len();
        let joined: Arc<str> = self.key.as_str().into();
        self.index.insert(joined.clone(), i);
        let cells = |list: &[usize]| list.iter().map(|c| row.get(*c).into()).collect::<Vec<Box<str>>>();
        self.list.push(Group {
            key: cells(&columns.group),
            joined,
            values: columns.metrics.iter().map(|_| Values::default()).collect(),
            rows: 0,
            next: i,
            parameters: cells(&columns.watched),
            family: Family::of_row(columns.family.map(|column| column.map_or("", |column| row.get(column)))),
            case: columns.case.map_or("", |case| row.get(case)).into(),
            runs: columns.runs.iter().map(|(first, last)| row.run(*first, *last).unwrap_or_default().into()).collect(),
        });
        i
    }

    /// Adds the groups of a later part of the input.
    pub fn merge(&mut self, later: Self, columns: &Columns) -> Result<(), Error> {
        self.differs.resize(self.differs.len().max(later.differs.len()), None);
        let mut places = Vec::with_capacity(later.list.len());
        for theirs in later.list {
            let Some(&i) = self.index.get(&theirs.joined) else {
                places.push(self.list.len());
                self.index.insert(theirs.joined.clone(), self.list.len());
                self.list.push(theirs);
                continue;
            };
            places.push(i);
            let ours = &mut self.list[i];
            ours.rows += theirs.rows;
            if ours.case == theirs.case {
                let cells = |k: usize| &*theirs.parameters[k];
                self.mixed = self.mixed.or(mixture(columns, &ours.parameters, cells).map(|k| (i, k)));
            }
            for (differs, (a, b)) in self.differs.iter_mut().zip(ours.parameters.iter().zip(&theirs.parameters)) {
                if !same(a, b) {
                    differs.get_or_insert(i);
                }
            }
            for (ours, theirs) in ours.values.iter_mut().zip(theirs.values) {
                ours.moments.merge(&theirs.moments);
                ours.sketch.merge(&theirs.sketch);
                if let Some(latencies) = theirs.latencies {
                    ours.latencies.get_or_insert_default().merge(&latencies).map_err(|reason| {
                        let place = Place { file: "merged rows".to_owned(), line: 0, column: None };
                        Error::Data { place, reason }
                    })?;
                }
            }
        }
        for (ours, theirs) in self.differs.iter_mut().zip(later.differs) {
            *ours = ours.or(theirs.map(|i| places[i]));
        }
        self.mixed = self.mixed.or(later.mixed.map(|(i, k)| (places[i], k)));
        Ok(())
    }

    /// Refuses groups that hold a total and its parts: their mean is nobody's, and their sum counts the same traffic twice.
    pub fn check_totals(&self, header: &Header, columns: &Columns) -> Result<(), Error> {
        let Some((group, k)) = self.mixed else { return Ok(()) };
        let name = &header.names()[columns.watched[k]];
        let total = columns.totals.iter().find(|(place, _)| *place == k).map_or("", |(_, total)| total);
        let (total, choice) = match total {
            "" => ("rows without one", format!("'{name}='")),
            value => (value, format!("{name}={value}")),
        };
        let key: Vec<&str> = self.list[group].key.iter().map(AsRef::as_ref).collect();
        Err(Error::Usage(format!(
            "group {} holds a total and its parts, which differ in `{name}` ({total}: all together): add {name} to -g, or choose one \
             with --where {choice}",
            key.join(" "),
        )))
    }

    /// Warnings about parameters that differ within a group, and metrics that some rows lack, or all if they were chosen.
    pub fn warnings(&self, header: &Header, columns: &Columns, is_chosen: bool) -> Vec<String> {
        let names = header.names();
        let mut warnings = Vec::new();
        let differing: Vec<(&str, usize)> =
            columns.watched.iter().zip(&self.differs).filter_map(|(c, d)| d.map(|g| (names[*c].as_str(), g))).collect();
        if let Some((_, group)) = differing.first() {
            let list: Vec<&str> = differing.iter().map(|(name, _)| *name).collect();
            let key: Vec<&str> = self.list[*group].key.iter().map(AsRef::as_ref).collect();
            warnings.push(format!(
                "rows within a group differ in {0} (first in group {1}): add it to -g, choose with --where, or accept it with --ignore {2}",
                list.join(", "),
                key.join(" "),
                list.join(","),
            ));
        }
        if self.list.is_empty() {
            warnings.push("no row counts: see --where, --record and --phase".to_owned());
        }
        for (m, column) in columns.metrics.iter().enumerate() {
            let rows: u64 = self.list.iter().map(|g| g.rows).sum();
            let lacking: u64 = self.list.iter().map(|g| g.rows - g.values[m].moments.count()).filter(|n| *n > 0).sum();
            let partly = self.list.iter().any(|g| (1..g.rows).contains(&g.values[m].moments.count()));
            if partly {
                warnings.push(format!("{lacking} of {rows} rows have no {}", names[*column]));
            } else if is_chosen && rows > 0 && lacking == rows {
                warnings.push(format!("no row that counts has a value of {}", names[*column]));
            }
        }
        warnings
    }
}

// Statistics for `-a`: their names, and the columns of each.

/// Method of `ci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Student's t, for the mean
    T,
    /// Order statistics, for the median; no assumption about the distribution
    Order,
    /// BCa bootstrap, for the first of mean, median and trimmed in -a (mean if there is none); no assumption about the
    /// distribution. 10 000 resamples of at least 8 and at most 4096 values: fewer give empty cells, more are an error
    Bootstrap,
}

/// The centre of a bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    Mean,
    Median,
    Trimmed,
}

#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub method: Method,
    /// Confidence level, 0 … 1.
    pub level: f64,
    /// For the bootstrap.
    pub centre: Centre,
    pub seed: u64,
}

impl Intervals {
    /// The interval of sorted values; `None` if there is none, or if more values were seen than are kept.
    fn of(self, values: &Values) -> Option<Interval> {
        match self.method {
            Method::T => confidence::t_interval_of(&values.moments, self.level),
            Method::Order => confidence::median_interval(values.sketch.exact()?, self.level),
            Method::Bootstrap => {
                let sorted = values.sketch.exact().filter(|sorted| sorted.len() >= bootstrap::FEWEST)?;
                bootstrap::bca(sorted, self.level, self.seed, |sample| self.centre.of(sample))
            }
        }
    }
}

impl Centre {
    /// The first centre among the statistics, else the mean.
    pub fn among(statistics: &[(String, Statistic)]) -> Self {
        let centre = |(name, statistic): &(String, Statistic)| match statistic {
            Statistic::Mean => Some(Self::Mean),
            Statistic::Median => Some(Self::Median),
            Statistic::Quantile(_) if name == "p50" => Some(Self::Median),
            Statistic::Trimmed => Some(Self::Trimmed),
            _ => None,
        };
        statistics.iter().find_map(centre).unwrap_or(Self::Mean)
    }

    /// The centre of unsorted values.
    fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean => moments::mean(values),
            Self::Median => quantiles::select_median(&mut values.to_vec()),
            Self::Trimmed => {
                let mut sorted = values.to_vec();
                quantiles::sort(&mut sorted);
                quantiles::trimmed_mean(&sorted, TRIM)
            }
        }
    }
}

/// The share that `trimmed` leaves out at each end.
const TRIM: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Count,
    Sum,
    Mean,
    Median,
    Stddev,
    Variation,
    Min,
    Max,
    Best,
    Trimmed,
    /// A quantile, 0 … 1.
    Quantile(f64),
    Interval,
    Pooled,
    Fairness,
}

/// For messages.
const NAMES: &str =
    "count, sum, mean, median, stddev, cv, min, max, best, trimmed, ci, pooled, fairness and percentiles such as p99";

impl Statistic {
    pub(super) fn parse(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "count" | "n" => Self::Count,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "median" => Self::Median,
            "stddev" => Self::Stddev,
            "cv" => Self::Variation,
            "min" => Self::Min,
            "max" => Self::Max,
            "best" => Self::Best,
            "trimmed" => Self::Trimmed,
            "ci" => Self::Interval,
            "pooled" => Self::Pooled,
            "fairness" => Self::Fairness,
            _ if name.starts_with('p') && name[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                Self::Quantile(histogram::asked_percentile(name).map_err(|e| Error::Usage(format!("-a: {e}")))?)
            }
            _ => return Err(Error::Usage(format!("unknown statistic `{name}`: there are {NAMES}"))),
        })
    }

    pub(super) fn suffixes(self, name: &str) -> Vec<String> {
        match self {
            Self::Interval => ["ci_low", "ci_high", "margin_ratio"].map(str::to_owned).to_vec(),
            Self::Variation => vec!["cv_ratio".to_owned()],
            Self::Count => vec!["count".to_owned()],
            Self::Fairness => vec!["fairness_ratio".to_owned()],
            Self::Quantile(q) => vec![histogram::quantile_name(q)],
            _ => vec![name.to_owned()],
        }
    }

    /// The values of its columns.
    pub(super) fn values(
        self,
        of: &Values,
        column: &str,
        metric: Option<&Metric>,
        intervals: Intervals,
    ) -> Vec<Option<f64>> {
        let m = &of.moments;
        let one = match self {
            Self::Count => Some(m.count() as f64),
            Self::Sum => m.sum(),
            Self::Mean => m.mean(),
            Self::Median => of.sketch.quantile(0.5),
            Self::Stddev => m.stddev(),
            Self::Variation => m.variation(),
            Self::Min => m.min(),
            Self::Best if metric.is_some_and(|m| m.better == Better::Lower) => m.min(),
            Self::Best | Self::Max => m.max(),
            Self::Trimmed => of.sketch.exact().and_then(|sorted| quantiles::trimmed_mean(sorted, TRIM)),
            Self::Quantile(q) => of.sketch.quantile(q),
            Self::Fairness => m.fairness(),
            Self::Pooled => of.latencies.as_ref().and_then(|l| l.column(column)),
            Self::Interval => {
                let interval = intervals.of(of);
                // The part within the range would seem more precise than the mean is.
                let margin = interval.and_then(|i| i.margin_ratio());
                let interval = interval.map(|i| i.within(metric.map_or(Range::ANY, Metric::range)));
                return vec![interval.map(|i| i.low), interval.map(|i| i.high), margin];
            }
        };
        vec![one]
    }
}
