//! `plumb aggregate`: groups rows and condenses columns.

mod group;

pub use group::Method;

use crate::{
    error::{Error, Verdict},
    parallel, share,
    stats::{bootstrap, quantiles},
    table::{Header, Picker, Record, Table, TableArgs, no_repeats, output::CsvCell, select::Preferred, write_csv},
};
use group::{Centre, Columns, Group, Groups, Intervals, Statistic, Values};
use rayon::prelude::*;
use schemas::{
    columns::{self, AXIS_PREFIX, Column, results::column},
    metrics::{self, Family, Kind},
    words::Way,
};
use std::io::Write;

/// Statistics per group of rows: mean and confidence interval over the iterations of each case, and others.
///
/// plumb run plans/quick.yaml | plumb aggregate -g case | plumb table
///
/// Each metric M becomes columns M_count, M_mean and so on. -a ci becomes M_ci_low, M_ci_high and M_margin_ratio (half
/// the interval over its centre). Groups are in the order of their first rows.
///
/// Memory depends on the number of groups. Up to 4096 values of a group are kept, and medians and percentiles are exact
/// (interpolated between neighbours, as R and NumPy do). Beyond that values are counted in buckets, and a percentile is
/// within 0.05 % of the true one. -a pooled gives latency percentiles from the rows' merged histograms: the true
/// percentiles of all observations. -a mean is the mean of the rows' own percentiles, -a ci its interval.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Group rows by these columns; `file` is the file they come from [default: case, and member and direction where they
    /// are used]
    #[arg(short, long, visible_alias = "by", value_name = "COLUMN,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Columns or metrics to condense, for example throughput,latency.p99 [default: those that have values of
    /// throughput, transaction_rate, added_latency.p50, latency.p50 and latency.p99, and say something of their workload]
    #[arg(short, long = "metric", value_name = "METRIC,…", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Statistics: count, sum, mean, median, stddev, cv (stddev over mean), min, max, best (the metric's better end),
    /// trimmed (mean without a tenth at each end), percentiles such as p99, ci, pooled (from merged histograms),
    /// fairness (Jain's index, of --record stream with -g case,iteration: 1 if all streams get the same)
    #[arg(short = 'a', long, value_name = "STATISTIC,…", value_delimiter = ',', default_value = "count,mean,ci")]
    statistics: Vec<String>,
    /// Confidence level of ci
    #[arg(long, value_name = "LEVEL", default_value = "95%", value_parser = parse_level)]
    level: f64,
    /// Method of ci
    #[arg(long, value_name = "METHOD", default_value = "t")]
    ci: Method,
    /// Seed of the bootstrap
    #[arg(long, value_name = "N", default_value_t = bootstrap::SEED)]
    seed: u64,
    /// Do not warn when these columns differ within a group
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    ignore: Vec<String>,
    #[command(flatten)]
    tables: TableArgs,
}

/// A confidence level as people write it: `95%` or `0.95`.
pub(crate) fn parse_level(text: &str) -> Result<f64, String> {
    share(text, || "it lies between 0 and 100 %".to_owned())
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut table = Table::open(&args.tables.input)?;
    let plan = Plan::new(args, &mut table)?;
    let (kind, groups) = read(args, &mut table, &plan)?;
    plan.check_kind(kind, table.header())?;
    if plan.resamples() {
        plan.check_resampling(table.header(), &groups)?;
    }
    groups.check_totals(table.header(), &plan.columns)?;
    for warning in groups.warnings(table.header(), &plan.columns, plan.chosen_metrics) {
        crate::warn(&warning);
    }
    args.tables.output.write(output, |w| plan.write(table.header(), groups, w))?;
    Ok(Verdict::Ok)
}

fn read(args: &Args, table: &mut Table, plan: &Plan) -> Result<(Record, Groups), Error> {
    let new = Picker::new(&args.tables.selection, table)?;
    let runs: Vec<_> = new.columns().map(|column| (column, column)).chain(plan.columns.looked_at()).collect();
    let mut picker = new.clone();
    let mut kept: Preferred<Groups> = Preferred::default();
    parallel::fold(
        table,
        &runs,
        || (new.clone(), Preferred::<Groups>::default()),
        |(picker, kept), row| match picker.pick(row)?.and_then(|kind| kept.slot(kind)) {
            Some(groups) => groups.add(row, &plan.columns),
            None => Ok(()),
        },
        |(part, groups)| {
            picker.merge(&part);
            match groups.into_kept() {
                Some((kind, groups)) => kept.slot(kind).map_or(Ok(()), |whole| whole.merge(groups, &plan.columns)),
                None => Ok(()),
            }
        },
    )?;
    picker.matched(table)?;
    picker.note().iter().for_each(|note| crate::warn(note));
    Ok(kept.into_kept().unwrap_or((Record::Iteration, Groups::default())))
}

/// The arguments, resolved for a table.
struct Plan {
    columns: Columns,
    statistics: Vec<(String, Statistic)>,
    intervals: Intervals,
    /// Whether the user named the columns. Empty columns are left out only if not.
    chosen_group: bool,
    chosen_metrics: bool,
}

impl Plan {
    fn new(args: &Args, table: &mut Table) -> Result<Self, Error> {
        let group = table.group_by(&args.group)?;
        let header = table.header();
        let require = |names: &[String]| names.iter().map(|n| table.asked(n)).collect::<Result<Vec<_>, _>>();
        let present = |names: &[&str]| names.iter().filter_map(|n| header.find(n)).collect::<Vec<_>>();
        let metrics = match args.metrics.as_slice() {
            [] => {
                let headline =
                    present(&["throughput", "transaction_rate", metrics::ADDED, "latency.p50", "latency.p99"]);
                if headline.is_empty() {
                    return Err(Error::Usage("say which columns to condense: -m COLUMN,…".to_owned()));
                }
                headline
            }
            names => require(names)?,
        };
        let statistics: Vec<_> =
            args.statistics.iter().map(|n| Ok((n.clone(), Statistic::parse(n)?))).collect::<Result<_, Error>>()?;
        let names_at = |columns: &[usize]| columns.iter().map(|c| header.names()[*c].clone()).collect::<Vec<_>>();
        let suffixes: Vec<String> = statistics.iter().flat_map(|(name, s)| s.suffixes(name)).collect();
        no_repeats("-m", &names_at(&metrics))?;
        no_repeats("-a", &suffixes)?;
        let pooled = statistics.iter().any(|(_, s)| *s == Statistic::Pooled);
        let histogram = if pooled {
            let wanted = metrics
                .iter()
                .map(|c| {
                    header.names()[*c].starts_with("latency_") || header.names()[*c] == column::round_trips_per_min
                })
                .collect();
            Some((table.require(column::latency_histogram)?, wanted))
        } else {
            None
        };
        let ignored: Vec<usize> = args.ignore.iter().map(|n| table.asked(n)).collect::<Result<_, _>>()?;
        let watched = watched(header, &metrics)
            .filter(|c| !group.contains(c) && !metrics.contains(c) && !ignored.contains(c))
            .collect::<Vec<_>>();
        let runs = group::runs(group.iter().chain(&watched).copied());
        let centre = Centre::among(&statistics);
        Ok(Self {
            intervals: Intervals { method: args.ci, level: args.level, centre, seed: args.seed },
            columns: Columns {
                totals: totals(header, &watched),
                family: Family::CELLS.map(|name| header.find(name)),
                case: header.find(column::case),
                group,
                metrics,
                histogram,
                watched,
                runs,
            },
            statistics,
            chosen_group: !args.group.is_empty(),
            chosen_metrics: !args.metrics.is_empty(),
        })
    }

    fn uses(&self, wanted: Statistic) -> bool {
        self.statistics.iter().any(|(_, s)| *s == wanted)
    }

    fn resamples(&self) -> bool {
        self.intervals.method == Method::Bootstrap && self.uses(Statistic::Interval)
    }

    /// The bootstrap needs single values, which are kept up to a limit, and enough of them.
    fn check_resampling(&self, header: &Header, groups: &Groups) -> Result<(), Error> {
        for (m, column) in self.columns.metrics.iter().enumerate() {
            let name = &header.names()[*column];
            if let Some(group) = groups.list.iter().find(|g| g.values[m].sketch.exact().is_none()) {
                return Err(Error::Usage(format!(
                    "--ci bootstrap resamples at most {} values a group, the number that is kept, and group {} has {} of {name}: \
                     take --ci t, which for the mean of so many says the same, or make groups smaller (-g, --where)",
                    quantiles::EXACT_LIMIT,
                    group.key.join(" "),
                    group.values[m].moments.count(),
                )));
            }
            let few = |g: &&Group| (1..bootstrap::FEWEST).contains(&g.values[m].sketch.exact().map_or(0, <[f64]>::len));
            let lacking = groups.list.iter().filter(few).count();
            if lacking > 0 {
                crate::warn(&format!(
                    "{lacking} of {} groups have fewer than {} values of {name}, which --ci bootstrap needs: their intervals are empty",
                    groups.list.len(),
                    bootstrap::FEWEST,
                ));
            }
        }
        Ok(())
    }

    /// Rejects statistics that treat intervals and streams, which are parts of an observation, as observations.
    fn check_kind(&self, kind: Record, header: &Header) -> Result<(), Error> {
        if !matches!(kind, Record::Interval | Record::Stream) {
            return Ok(());
        }
        let uses = |wanted| self.uses(wanted);
        if uses(Statistic::Interval) {
            return Err(Error::Usage(format!(
                "the rows are {kind}s, which are not independent observations: -a ci would be too narrow. Count iterations \
                 (--record iteration), or leave ci out: -a count,median,min,max"
            )));
        }
        let averaged = self
            .columns
            .metrics
            .iter()
            .map(|c| header.names()[*c].as_str())
            .find(|name| metrics::find(name).is_some_and(|m| matches!(m.kind, Kind::Rate | Kind::Distribution)));
        match averaged {
            Some(name) if uses(Statistic::Mean) => Err(Error::Usage(format!(
                "{name} of {kind}s is not averaged: the mean of parts is not the whole's. Count iterations (--record iteration), \
                 pipe intervals through plumb window first, or leave mean out: -a count,median,min,max"
            ))),
            _ => Ok(()),
        }
    }

    /// Drops the values that follow from what was asked for, as the payload of requests does.
    fn drop_incidental(&self, header: &Header, group: &mut Group) {
        for (values, column) in group.values.iter_mut().zip(&self.columns.metrics) {
            let metric = metrics::find(&header.names()[*column]);
            if metric.is_some_and(|metric| group.family.is_incidental(metric.name)) {
                *values = Values::default();
            }
        }
    }

    fn write(&self, header: &Header, groups: Groups, output: &mut dyn Write) -> Result<(), Error> {
        let names = header.names();
        let mut groups = groups.list;
        if !self.chosen_metrics {
            for group in &mut groups {
                self.drop_incidental(header, group);
            }
        }
        for values in groups.iter_mut().flat_map(|g| &mut g.values) {
            values.sketch.sort();
        }
        let used_keys: Vec<usize> = (0..self.columns.group.len())
            .filter(|k| self.chosen_group || *k == 0 || groups.iter().any(|g| g.key[*k] != groups[0].key[*k]))
            .collect();
        let used_metrics: Vec<usize> = (0..self.columns.metrics.len())
            .filter(|m| self.chosen_metrics || groups.iter().any(|g| g.values[*m].moments.count() > 0))
            .collect();
        let with_level = self.uses(Statistic::Interval);

        let mut titles: Vec<String> = used_keys.iter().map(|k| names[self.columns.group[*k]].clone()).collect();
        for m in &used_metrics {
            let column = &names[self.columns.metrics[*m]];
            for (name, statistic) in &self.statistics {
                titles.extend(statistic.suffixes(name).into_iter().map(|suffix| format!("{column}_{suffix}")));
            }
        }
        if with_level {
            titles.push("confidence_level".to_owned());
        }
        let row = |group: &Group| {
            let mut cells: Vec<String> = used_keys.iter().map(|k| group.key[*k].to_string()).collect();
            for m in &used_metrics {
                let column = &names[self.columns.metrics[*m]];
                let metric = metrics::find(column);
                for (_, statistic) in &self.statistics {
                    let values = statistic.values(&group.values[*m], column, metric, self.intervals);
                    cells.extend(values.into_iter().map(CsvCell::cell));
                }
            }
            cells.extend(with_level.then(|| self.intervals.level.cell()));
            cells
        };
        if self.resamples() {
            // A third of a second for 4096 values: the only statistic that is worth a thread.
            write_csv(output, titles, groups.par_iter().map(row).collect::<Vec<_>>())
        } else {
            write_csv(output, titles, groups.iter().map(row))
        }
    }
}

/// The parameters: rows that differ in one of them measure different things. The kind of a latency and the unit of a
/// demand matter only if one of these is condensed.
fn watched<'a>(header: &'a Header, metrics: &[usize]) -> impl Iterator<Item = usize> + 'a {
    let condensed = |part: &str| metrics.iter().any(|c| header.names()[*c].contains(part));
    let (latency, demand) = (condensed("latency"), condensed("_demand"));
    let watched = move |name: &str| match name {
        column::member | column::from | column::to | column::direction => true,
        column::latency_kind => latency,
        column::service_demand_unit => demand,
        _ if name.starts_with(AXIS_PREFIX) => true,
        _ => columns::find(name).is_some_and(Column::is_parameter),
    };
    header.names().iter().enumerate().filter(move |(_, name)| watched(name)).map(|(i, _)| i)
}

/// The places among the watched columns in which a value stands for all others together, with that value.
fn totals(header: &Header, watched: &[usize]) -> Vec<(usize, &'static str)> {
    let total = |(place, column): (usize, &usize)| match header.names()[*column].as_str() {
        column::direction => Some((place, Way::Both.as_str())),
        column::member => Some((place, "")),
        _ => None,
    };
    watched.iter().enumerate().filter_map(total).collect()
}

#[cfg(test)]
mod tests;
