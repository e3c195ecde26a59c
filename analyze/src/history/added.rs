//! The rows that a run adds to its history.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use schemas::{
    columns::{HistoryRow, Timestamp},
    metrics::{self, Metric},
    run_record::RunRecord,
};

use crate::{
    error::Error,
    judge::{
        environment::{self, Environment},
        samples::{Case, Samples},
    },
    limits,
    stats::{confidence, quantiles},
    table::{InputArgs, Selection, Table},
};

/// Metric of the share of the time in which others took a CPU.
pub const CPU_TAKEN: &str = "cpu.taken";

/// Level of the interval that a row carries.
pub const LEVEL: f64 = 0.95;

/// Values that a row carries at most; of more, as many quantiles.
const SAMPLE: usize = 11;

/// The results table of a run: the file itself, or `results.csv` in the run's folder.
pub fn results_of(run: &Path) -> PathBuf {
    if run.is_dir() { run.join("results.csv") } else { run.to_owned() }
}

/// The rows of a run, for the headline of each case, what belongs beside it, and `more` metrics. A run that did not end is
/// refused. `labels`: beside those of the plan.
pub fn rows(run: &Path, commit: &str, labels: &[String], more: &[&'static Metric]) -> Result<Vec<HistoryRow>, Error> {
    let results = results_of(run);
    let record = environment::read(&results)?.ok_or_else(|| {
        Error::Usage(format!(
            "{}: no run.json of its run lies beside it, so neither its machine nor its time is known: name the run's \
             output.dir, or a table whose run.json was kept",
            results.display()
        ))
    })?;
    if record.is_cut_off() {
        let how = record.interrupted.as_deref().unwrap_or("it has no end: it crashed, or it still runs");
        let place = results.display();
        return Err(Error::Usage(format!("{place}: the run was cut off ({how}): finish it with plumb run --resume")));
    }
    let mut table = Table::open(&InputArgs { files: vec![results.clone()] })?;
    let kept = kept(more);
    let present: Vec<(&Metric, usize)> =
        kept.into_iter().filter_map(|metric| Some((metric, table.header().find(metric.column)?))).collect();
    let columns: Vec<usize> = present.iter().map(|(_, column)| *column).collect();
    let mut samples = Samples::read_split(&mut table, &Selection::default(), &columns, "plan")?;
    samples.keep_totals();
    let names: BTreeSet<&str> = record.hosts.values().filter_map(|host| host.facts["hostname"].as_str()).collect();
    let hosts = names.into_iter().collect::<Vec<_>>().join(" ");
    let of_run = OfRun { record: &record, commit, labels, machine: Environment::of(&record).machine(), hosts };
    let mut rows = Vec::new();
    for case in &samples.cases {
        for (index, (metric, _)) in present.iter().enumerate() {
            let wanted = is_of(case, metric, &present)
                || more.iter().any(|other| other.name == metric.name)
                || metric.name == CPU_TAKEN && is_disturbed(&case.values[index]);
            if wanted && let Some(row) = of_run.row(case, metric, &case.values[index]) {
                rows.push(row);
            }
        }
    }
    if rows.is_empty() {
        return Err(Error::Usage(format!("{}: no case has an iteration that counts", results.display())));
    }
    Ok(rows)
}

/// Whether others took a CPU from the typical iteration of a case. A history keeps the share of such runs only.
fn is_disturbed(values: &[f64]) -> bool {
    quantiles::select_median(&mut values.to_vec()).is_some_and(limits::disturbed(Vec::new()))
}

/// All metrics that a history may keep.
fn kept(more: &[&'static Metric]) -> Vec<&'static Metric> {
    let mut all = metrics::headlines();
    for metric in metrics::Family::ALL.iter().flat_map(|family| family.beside()).filter_map(|name| metrics::find(name))
    {
        all.push(metric);
    }
    all.extend(more);
    all.extend(metrics::find(CPU_TAKEN));
    let mut seen = Vec::new();
    all.retain(|metric| {
        let is_new = !seen.contains(&metric.name);
        seen.push(metric.name);
        is_new
    });
    all
}

/// Whether a metric is the headline of a case, or belongs beside it.
fn is_of(case: &Case, metric: &Metric, present: &[(&Metric, usize)]) -> bool {
    let has =
        |m: &Metric| present.iter().position(|(p, _)| p.name == m.name).is_some_and(|i| !case.values[i].is_empty());
    case.family.headline(has).is_some_and(|headline| headline.name == metric.name)
        || case.family.beside().contains(&metric.name)
}

/// The cells that all rows of a run share.
struct OfRun<'a> {
    record: &'a RunRecord,
    commit: &'a str,
    labels: &'a [String],
    machine: String,
    hosts: String,
}

impl OfRun<'_> {
    /// `None`: there is no value.
    fn row(&self, case: &Case, metric: &Metric, values: &[f64]) -> Option<HistoryRow> {
        let mut values = values.to_vec();
        quantiles::sort(&mut values);
        let interval = confidence::typical_interval(&values, LEVEL, metric.range());
        let plan = self.record.plans.iter().find(|plan| plan.name == case.key.part);
        let of_plan = plan.into_iter().flat_map(|plan| &plan.labels).map(|(name, value)| format!("{name}={value}"));
        let labels: Vec<String> = of_plan.chain(self.labels.iter().cloned()).collect();
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some(HistoryRow {
            run_id: text(&self.record.run_id),
            time: text(&self.record.began).map(Timestamp),
            commit: text(self.commit),
            version: text(&self.record.tool_version),
            machine: text(&self.machine),
            hosts: text(&self.hosts),
            plan: text(&case.key.part),
            labels: text(&labels.join(" ")),
            case_id: text(&case.key.id),
            case: text(&case.name),
            member: text(&case.key.member),
            direction: text(&case.key.direction),
            metric: text(metric.name),
            n: Some(values.len() as u64),
            centre: Some(rounded(quantiles::median(&values)?)),
            low: interval.map(|interval| rounded(interval.low)),
            high: interval.map(|interval| rounded(interval.high)),
            sample: text(&sample(&values)),
        })
    }
}

/// The values, or quantiles of many.
fn sample(sorted: &[f64]) -> String {
    let chosen: Vec<f64> = if sorted.len() <= SAMPLE {
        sorted.to_vec()
    } else {
        (0..SAMPLE).filter_map(|i| quantiles::quantile(sorted, i as f64 / (SAMPLE - 1) as f64)).collect()
    };
    let texts: Vec<String> = chosen.into_iter().map(|value| schemas::columns::number(rounded(value))).collect();
    texts.join(" ")
}

/// A value to six significant digits: ten years of runs should not be kept to the last bit.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
