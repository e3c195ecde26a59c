//! A plan's `baseline`, prepared for judging: which metrics of which cases must not get worse, and by which rule. And
//! `plumb baseline promote`: makes a finished run the baseline of later runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use analyze::{
    first_few,
    judge::{
        VerdictRow,
        baseline::{Baseline, Promise, Terms, said},
        comparison::Rule,
        environment::{self, Environment},
        samples::{self, Index, Key, Samples},
        setting,
        statement::Evidence,
        verdicts,
    },
    stats::quantiles,
    table::{InputArgs, Rows, Selection, Table, beside},
};
use schemas::{
    columns::results::column,
    metrics::{self, Metric},
    run_record::{Promotion, RunRecord},
    text::counted,
    units,
    words::{Phase, Record, Status, Verdict},
};

use crate::{
    error::{Error, replace},
    plan::{
        self, LoadOptions, Plan,
        case::{Case, Member},
        diagnostics::Span,
        model::Comparison,
    },
    schedule::history,
    sinks::run_json,
};

/// Most comparisons that a promoted baseline names as too weak.
const MOST_UNNOTICED: usize = 5;

/// The headline of requests and responses.
const TRANSACTION_RATE: &str = "transaction_rate";

/// The terms of the plan's baseline, if it names one.
pub fn terms(plan: &Plan) -> Option<Terms> {
    let (baseline, spans) = plan.baseline.as_ref()?;
    let rate = metrics::find(TRANSACTION_RATE);
    let is_listed = baseline.compare.iter().any(|other| other.metric.0.name == TRANSACTION_RATE);
    let promises = baseline.compare.iter().zip(spans).flat_map(|(comparison, span)| {
        let asked = comparison.metric.0;
        // The bits of round trips are their number again: throughput is judged there by the number, once.
        let by_number = rate.filter(|_| asked.name == "throughput" && !is_listed && comparison.min_effect.is_none());
        let of = move |metric| (comparison, span, asked, metric);
        std::iter::once(of(asked)).chain(by_number.map(of))
    });
    let promise = |(comparison, span, asked, metric): (&Comparison, &Span, &Metric, &'static Metric)| {
        let place = plan.sources.place(*span);
        let has = |member: &Member, metric: &Metric| member.lacks(metric).is_none();
        let is_of_trips = |member: &Member| member.headline().is_some_and(|headline| headline.name == TRANSACTION_RATE);
        let is_a_number = |member: &Member| {
            let is_judged_so = is_listed || comparison.min_effect.is_none();
            asked.name == "throughput" && is_judged_so && is_of_trips(member)
        };
        let is_meant = |member: &Member| has(member, metric) && is_a_number(member) == (metric.name != asked.name);
        let measured = |case: &&Case| case.members.iter().any(is_meant);
        Promise {
            metric,
            rule: Rule {
                test: comparison.test.unwrap_or(Rule::DEFAULT.test),
                alpha: comparison.alpha.map_or(Rule::DEFAULT.alpha, |a| a.0),
                min_ratio: comparison.max_regression.0,
                // Checked when the plan was loaded.
                min_difference: comparison
                    .min_effect
                    .as_ref()
                    .and_then(|text| units::parse_for(metric.unit, &text.0).ok())
                    .unwrap_or(Rule::DEFAULT.min_difference),
                ..Rule::of(metric)
            },
            case_ids: plan.cases.iter().filter(|c| c.skip.is_none()).filter(measured).map(|c| c.id.clone()).collect(),
            file: place.file,
            line: Some(place.line as u64),
            column: Some(place.column as u64),
        }
    };
    Some(Terms {
        source: found(&baseline.source, &plan.path),
        on_missing: baseline.on_missing.unwrap_or_default(),
        require_same: baseline.require_same.clone(),
        promises: promises
            .map(promise)
            .filter(|promise| !promise.case_ids.is_empty() || promise.metric.name != TRANSACTION_RATE)
            .collect(),
        planned: plan.cases.iter().flat_map(run_json::planned).collect(),
    })
}

/// The file of a `source`: in the working directory, or else beside the plan, or in a folder above it that is in the plan's git
/// checkout, if it is there. A file outside of the checkout belongs to somebody else.
pub fn found(source: &Path, plan: impl AsRef<Path>) -> PathBuf {
    let folders: Vec<&Path> = plan.as_ref().ancestors().skip(1).collect();
    let root = folders.iter().position(|folder| folder.join(".git").exists()).unwrap_or_default();
    let beside = folders.into_iter().take(root + 1).map(|folder| folder.join(source));
    std::iter::once(source.to_owned()).chain(beside).find(|path| path.exists()).unwrap_or_else(|| source.to_owned())
}

#[derive(Clone, Debug, clap::Args)]
pub struct Request {
    /// The run: its output.dir, or the FILE of -o.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// File of the baseline [default: baseline.source of the run's plan].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Fewest iterations per case; below five no rank test can be significant at alpha 0.01.
    #[arg(long, value_name = "N", default_value_t = 5)]
    min_iterations: u64,
    /// Promote although verdicts failed: these results are the new normal.
    #[arg(long)]
    accept_failures: bool,
    /// Set a value of the run's plan, as for `plumb run`, after the run's own --set; may be repeated.
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "to")]
    sets: Vec<String>,
}

/// A run as read from its files.
struct Run {
    results: PathBuf,
    record: RunRecord,
    /// Its iterations that count, no other rows.
    table: Rows,
    /// Per case: its name, and the numbers of its iterations that count.
    cases: BTreeMap<String, (String, BTreeSet<u64>)>,
    /// Cases that the plan skips, with the reason.
    skipped: BTreeMap<String, String>,
    /// Why it cannot be a baseline.
    faults: Vec<String>,
}

/// Writes the baseline. Returns a description for people, with what it replaced. An incomplete run is refused with every
/// reason.
pub fn promote(request: &Request) -> Result<String, Error> {
    let run = Run::read(&request.run)?;
    let plan = loaded(&run.record, &request.sets);
    let (to, terms) = match (&request.to, plan) {
        (Some(to), plan) => (to.clone(), plan.ok().and_then(|plan| terms(&plan))),
        (None, plan) => {
            let terms = terms(&plan?).ok_or_else(|| {
                Error::Usage(
                    "the run's plan names no baseline.source: say with --to FILE where the baseline is kept".into(),
                )
            })?;
            (terms.source.clone(), Some(terms))
        }
    };
    if fs::canonicalize(&to).is_ok_and(|to| fs::canonicalize(&run.results).is_ok_and(|from| from == to)) {
        return Err(Error::Usage(format!("{} is that run itself: name another file with --to", to.display())));
    }
    let mut faults = run.faults.clone();
    for (name, iterations) in run.cases.values() {
        let n = iterations.len() as u64;
        if n < request.min_iterations {
            faults.push(format!(
                "case {name} has {}, and a baseline needs {} (--min-iterations says how many)",
                counted(n, "iteration"),
                request.min_iterations
            ));
        }
    }
    if run.cases.is_empty() {
        faults.push("it has no iteration that counts".into());
    }
    if !request.accept_failures {
        let failed = failed_verdicts(&run.results)?;
        faults.extend(failed.into_iter().map(|v| format!("{v} (--accept-failures promotes it all the same)")));
    }
    if !faults.is_empty() {
        return Err(Error::Usage(format!(
            "{} cannot be a baseline:\n       - {}",
            run.results.display(),
            faults.join("\n       - ")
        )));
    }
    let replaced = replaced(&run, &to)?;
    run.write(&to)?;
    let terms = terms.map(|terms| Terms { source: to.clone(), ..terms });
    let unnoticed = terms.map(|terms| unnoticed(terms, &run.record)).transpose()?.unwrap_or_default();
    Ok(run.said(&to, &replaced, &unnoticed))
}

/// The comparisons with a baseline in which a regression of twice the limit would not be noticed, as `plumb gate --self-test` finds
/// them, as lines for people.
fn unnoticed(terms: Terms, record: &RunRecord) -> Result<Vec<String>, Error> {
    let mut table = Table::open(&InputArgs { files: vec![terms.source.clone()] })?;
    let limits = terms.promises.iter().map(|promise| promise.rule.min_ratio);
    let twice = (2.0 * limits.fold(0.0, f64::max)).min(0.99);
    let baseline = Baseline::read(terms)?;
    let evidence = Evidence::read(&mut table, &Selection::default(), &[], Some(&baseline))?;
    let rows = evidence.judge(&[], Some(&baseline), &Environment::of(record), Some(twice));
    let unnoticed = rows.iter().filter(|row| row.verdict == Verdict::Unnoticed);
    let line = |row: &VerdictRow| {
        let metric = metrics::find(&row.metric).map_or("", |metric| metric.name);
        format!("note: {} {metric}: {}", row.case, row.note)
    };
    Ok(first_few(unnoticed.map(line).collect::<Vec<_>>().into_iter(), MOST_UNNOTICED))
}

/// The run's plan, loaded as for that run and then with `sets`.
fn loaded(record: &RunRecord, sets: &[String]) -> Result<Plan, Error> {
    let plan = record.plans.first().cloned().unwrap_or_default();
    let options = LoadOptions { sets: sets.to_vec(), ..LoadOptions::default() }.after(&plan.overrides);
    Ok(plan::load_str(known(&plan.path), &plan.text, &options)?)
}

impl Run {
    fn read(path: &Path) -> Result<Self, Error> {
        let results = if path.is_dir() { path.join("results.csv") } else { path.to_owned() };
        let wrong = |what: String| Error::Usage(format!("{}: {what}", results.display()));
        let (name, text) = analyze::error::read_text(&results)?;
        let record = environment::read(&results)?.ok_or_else(|| {
            wrong(format!(
                "{} is missing: only a run that is known to have ended can be a baseline",
                run_json::beside(&results).display()
            ))
        })?;
        let broken = |e: analyze::Error| wrong(format!("this is not a results table: {e}"));
        let mut table = Table::from_text(&name, text).map_err(broken)?;
        for column in [column::case_id, column::case, column::record, column::iteration] {
            table.require(column).map_err(broken)?;
        }
        let mut table = Rows::read_all(&mut table).map_err(broken)?;
        let mut faults = faults_of(&record);
        let (mut cases, mut skipped) = (BTreeMap::new(), BTreeMap::new());
        for cells in std::mem::take(&mut table.rows) {
            let row = history::typed(&table, &cells);
            let (name, why) = (row.case.unwrap_or_default(), row.error.unwrap_or_default());
            match (row.record, row.phase, row.status) {
                (Some(Record::Iteration), Some(Phase::Measure), Some(Status::Ok)) => {
                    let case = cases.entry(row.case_id.unwrap_or_default());
                    case.or_insert_with(|| (name, BTreeSet::new())).1.extend(row.iteration);
                    table.rows.push(cells);
                }
                (_, _, Some(Status::Failed | Status::Timeout)) => {
                    let fault = format!("case {name} failed: {why}");
                    if !faults.contains(&fault) {
                        faults.push(fault);
                    }
                }
                (_, _, Some(Status::Skipped)) => {
                    skipped.insert(name, why);
                }
                _ => {}
            }
        }
        Ok(Self { results, record, table, cases, skipped, faults })
    }

    /// Writes the table of iterations that count, and `run.json` beside it. The latter goes first: a crash in between leaves
    /// a pair with two run ids, which readers notice.
    fn write(&self, to: &Path) -> Result<(), Error> {
        if let Some(folder) = to.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(Error::output(folder.display()))?;
        }
        let mut table = Vec::new();
        self.table.write(&self.table.rows, &mut table)?;
        let mut record = self.record.clone();
        record.promoted = Some(Promotion {
            at: schemas::time::now().0,
            from: self.results.display().to_string(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            rows: Some(self.table.rows.len() as u64),
        });
        let mut text = serde_json::to_vec_pretty(&record).map_err(|e| Error::output(to.display())(e.into()))?;
        text.push(b'\n');
        let facts = run_json::beside(to);
        replace(&facts, &text)?;
        replace(to, &table)
    }

    fn said(&self, to: &Path, replaced: &[String], unnoticed: &[String]) -> String {
        let iterations: usize = self.cases.values().map(|(_, i)| i.len()).sum();
        let mut lines = vec![format!(
            "{}: {}, {iterations} iterations of run {}, begun {}",
            to.display(),
            counted(self.cases.len(), "case"),
            known(&self.record.run_id),
            known(&self.record.began),
        )];
        lines.extend_from_slice(replaced);
        lines
            .extend(self.skipped.iter().map(|(case, why)| format!("no baseline for {case}, which was skipped: {why}")));
        lines.extend_from_slice(unnoticed);
        lines.push(format!("keep it: git add {} {}", to.display(), run_json::beside(to).display()));
        lines.join("\n") + "\n"
    }
}

fn known(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// Objections to the run from its `run.json`.
fn faults_of(record: &RunRecord) -> Vec<String> {
    let mut faults = Vec::new();
    if record.ended.is_none() {
        faults.push("the run did not come to its end: go on with it by plumb run --resume".to_owned());
    }
    if let Some(signal) = &record.interrupted {
        faults.push(format!("the run was interrupted by {signal}"));
    }
    for plan in record.plans.iter().filter(|plan| plan.partial) {
        faults.push(format!("--only left cases of plan {} out", known(&plan.name)));
    }
    faults
}

/// Failed verdicts as sentences, from the table beside the results.
fn failed_verdicts(results: &Path) -> Result<Vec<String>, Error> {
    let Some(path) = beside::table(results, "verdicts.csv")?.or_note() else { return Ok(Vec::new()) };
    let rows = verdicts::read(&mut Table::open(&InputArgs { files: vec![path] })?)?;
    let said = |row: &VerdictRow| format!("verdict {}: {}: {}", row.verdict, row.case, row.assertion);
    Ok(rows.iter().filter(|row| row.fails()).map(said).collect())
}

/// The baseline that is replaced and what changes, as lines for people.
fn replaced(run: &Run, to: &Path) -> Result<Vec<String>, Error> {
    if !to.exists() {
        return Ok(vec!["it replaces nothing".to_owned()]);
    }
    let mut lines = Vec::new();
    let old = environment::read(to)?;
    match &old {
        Some(old) => {
            lines.push(format!("it replaces run {}, begun {}", known(&old.run_id), known(&old.began)));
            let (was, is) = (Environment::of(old), Environment::of(&run.record));
            lines.extend(said(&was.differences(&is)).map(|what| format!("of another environment: {what}")));
        }
        None => lines.push("it replaces a table about whose run nothing is known".to_owned()),
    }
    let (was, is) = (medians(to)?, medians(&run.results)?);
    let [before, after] = [&was, &is].map(|all| all.iter().map(|m| (&m.key, m)).collect::<HashMap<_, _>>());
    let gone: Vec<&Median> = was.iter().filter(|before| !after.contains_key(&before.key)).collect();
    let mut paired = Vec::new();
    for now in &is {
        if let Some(before) = before.get(&now.key) {
            lines.extend((before.column == now.column).then(|| change(before, now)));
        } else if let Some(before) = gone.iter().find(|was| (&was.name, &was.column) == (&now.name, &now.column)) {
            paired.push(&before.key);
            let changes = old.as_ref().and_then(|old| setting::changes(&now.key.id, &run.record.cases, &old.cases));
            let changes = changes.map(|changes| format!(" ({changes})")).unwrap_or_default();
            lines.push(format!("{}, with other settings{changes}", change(before, now)));
        } else {
            lines.push(format!("  {}: new", now.name));
        }
    }
    let gone = gone.iter().filter(|before| !paired.contains(&&before.key));
    lines.extend(gone.map(|m| format!("  {}: gone", m.name)));
    Ok(lines)
}

/// Median of a case's headline column.
struct Median {
    key: Key,
    /// Of the case and its member.
    name: String,
    column: String,
    value: f64,
}

fn change(before: &Median, now: &Median) -> String {
    let unit = metrics::find(&now.column).map(|m| m.unit);
    let human = |v: f64| unit.map_or_else(|| units::three_digits(v), |unit| units::human(unit, v));
    let ratio = if before.value == 0.0 {
        String::new()
    } else {
        format!(" ({:+.1} %)", (now.value - before.value) / before.value.abs() * 100.0)
    };
    format!("  {}: {} → {}{ratio}", now.name, human(before.value), human(now.value))
}

/// The medians of all cases with values.
fn medians(path: &Path) -> Result<Vec<Median>, Error> {
    let mut table = Table::open(&InputArgs { files: vec![path.to_owned()] })?;
    let columns = samples::headlines(table.header());
    let names: Vec<String> = columns.iter().map(|c| table.header().names()[*c].clone()).collect();
    let mut read = Samples::read(&mut table, &Selection::default(), &columns, Some("case_id"))?;
    read.keep_totals();
    let cases = Index::new(&read.cases);
    let median = |case: &samples::Case| {
        let m = case.headline(&names)?;
        let value = quantiles::select_median(&mut case.values[m].clone())?;
        Some(Median { key: case.key.clone(), name: cases.label(case), column: names[m].clone(), value })
    };
    Ok(read.cases.iter().filter_map(median).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::load_str;

    #[test]
    fn round_trips_are_judged_by_their_number() {
        let judged = |compare: &str| {
            let text = format!(
                "version: 1\nname: t\nbaseline: {{source: b.csv, compare: [{compare}]}}\n\
                 tests: {{bulk: {{workload: tcp_stream}}, rr: {{workload: tcp_rr}}}}\n"
            );
            let plan = load_str("t", &text, &LoadOptions::default()).map_err(Error::from).unwrap();
            let name = |id: &String| plan.cases.iter().find(|case| case.id == *id).unwrap().name.clone();
            let terms = terms(&plan).unwrap();
            let of = |p: &Promise| {
                format!("{} of {}", p.metric.name, p.case_ids.iter().map(name).collect::<Vec<_>>().join("+"))
            };
            terms.promises.iter().map(of).collect::<Vec<_>>()
        };
        let throughput = "{metric: throughput, max_regression: 2%}";
        assert_eq!(judged(throughput), ["throughput of bulk", "transaction_rate of rr"]);
        let both = format!("{throughput}, {{metric: transaction_rate, max_regression: 5%}}");
        assert_eq!(judged(&both), ["throughput of bulk", "transaction_rate of rr"], "once");
        let bits = "{metric: throughput, max_regression: 2%, min_effect: 1Mbit/s}";
        assert_eq!(judged(bits), ["throughput of bulk+rr"]);
    }

    #[test]
    fn a_baseline_is_looked_for_within_the_plans_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let [above, root, plans] = ["", "checkout", "checkout/net/plans"].map(|name| folder.path().join(name));
        fs::create_dir_all(&plans).unwrap();
        let (plan, source) = (plans.join("p.yaml"), Path::new("of_this_test_only.csv"));
        let place = || found(source, &plan);
        fs::write(above.join(source), "").unwrap();
        fs::write(root.join(source), "").unwrap();
        assert_eq!(place(), source, "no checkout");
        fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(place(), root.join(source));
        fs::remove_file(root.join(source)).unwrap();
        assert_eq!(place(), source, "outside of the checkout");
        fs::write(plans.join(source), "").unwrap();
        assert_eq!(place(), plans.join(source));
    }
}
