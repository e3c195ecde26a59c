//! A finished run becomes the baseline that later runs are compared with.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use analyze::{
    judge::{
        baseline::said,
        environment::{self, Environment},
        samples::{self, Index, Key, Samples},
    },
    stats::quantiles,
    table::{InputArgs, Selection, Table},
};
use csv::StringRecord;
use schemas::{metrics, units};
use serde_json::{Value, json};

use crate::{
    error::Error,
    plan::{self, Format, LoadOptions},
    replace::replace,
    sinks::run_json::beside,
};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// A run's folder, or its results file.
    pub run: PathBuf,
    /// Where the baseline is kept; `None`: where the run's plan looks for it.
    pub to: Option<PathBuf>,
    /// Iterations that every case must have.
    pub min_iterations: u64,
    /// Whether verdicts that failed are no obstacle.
    pub accept_failures: bool,
    /// `--set PATH=VALUE`, after those of the run.
    pub sets: Vec<String>,
}

/// A run as its files have it.
struct Run {
    results: PathBuf,
    record: Value,
    header: StringRecord,
    /// The iterations that count.
    rows: Vec<StringRecord>,
    /// Per case: its name, and the numbers of its iterations that count.
    cases: BTreeMap<String, (String, BTreeSet<String>)>,
    /// Cases that the plan skips, with its reason.
    skipped: BTreeMap<String, String>,
    /// Why it is no baseline.
    faults: Vec<String>,
}

/// Writes the baseline and says what it is and what it replaced. A run that is not whole is refused with every reason.
pub fn promote(request: &Request) -> Result<String, Error> {
    let run = Run::read(&request.run)?;
    let to = match &request.to {
        Some(to) => to.clone(),
        None => source(&run.record, &request.sets)?,
    };
    if fs::canonicalize(&to).is_ok_and(|to| fs::canonicalize(&run.results).is_ok_and(|from| from == to)) {
        return Err(Error::Usage(format!("{} is that run itself: name another file with --to", to.display())));
    }
    let mut faults = run.faults.clone();
    for (name, iterations) in run.cases.values() {
        let n = iterations.len() as u64;
        if n < request.min_iterations {
            let plural = if n == 1 { "" } else { "s" };
            faults.push(format!(
                "case {name} has {n} iteration{plural}, and a baseline needs {} (--min-iterations says how many)",
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
            "{} is no baseline:\n       - {}",
            run.results.display(),
            faults.join("\n       - ")
        )));
    }
    let replaced = replaced(&run, &to)?;
    run.write(&to)?;
    Ok(run.said(&to, &replaced))
}

/// Where the run's plan looks for its baseline: the plan as the run loaded it, with `--set` of that run and then `sets`.
fn source(record: &Value, sets: &[String]) -> Result<PathBuf, Error> {
    let plan = &record["plans"][0];
    let overrides = plan["overrides"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let of_run = overrides.filter_map(|word| word.strip_prefix("--set ")).map(str::to_owned);
    let options = LoadOptions { sets: of_run.chain(sets.iter().cloned()).collect(), ..LoadOptions::default() };
    let loaded = plan::load_str(word(plan, "path"), plan["text"].as_str().unwrap_or_default(), &options)
        .map_err(|e| Error::Plan(e.render(Format::Human)))?;
    loaded.baseline.map(|(baseline, _)| PathBuf::from(baseline.source)).ok_or_else(|| {
        Error::Usage("the run's plan names no baseline.source: say with --to FILE where the baseline is kept".into())
    })
}

impl Run {
    fn read(path: &Path) -> Result<Self, Error> {
        let results = if path.is_dir() { path.join("results.csv") } else { path.to_owned() };
        let wrong = |what: String| Error::Usage(format!("{}: {what}", results.display()));
        let text = fs::read_to_string(&results).map_err(|e| wrong(format!("{e}; is this a run?")))?;
        let record = environment::read(&results)?.ok_or_else(|| {
            wrong(format!("{} is missing: what is not known to have ended is no baseline", beside(&results).display()))
        })?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let broken = |e: csv::Error| wrong(format!("this is no results table: {e}"));
        let header = reader.headers().map_err(broken)?.clone();
        let at = |name: &str| header.iter().position(|h| h == name);
        let (Some(id), Some(case), Some(kind), Some(iteration)) =
            (at("case_id"), at("case"), at("record"), at("iteration"))
        else {
            return Err(wrong("this is no results table".into()));
        };
        let (phase, status, error) = (at("phase"), at("status"), at("error"));
        let mut run = Self {
            faults: faults_of(&record),
            results: results.clone(),
            record,
            rows: Vec::new(),
            cases: BTreeMap::new(),
            skipped: BTreeMap::new(),
            header: header.clone(),
        };
        for row in reader.records() {
            let row = row.map_err(broken)?;
            let cell = |column: Option<usize>| column.and_then(|c| row.get(c)).unwrap_or_default().to_owned();
            let (id, name) = (cell(Some(id)), cell(Some(case)));
            match (cell(Some(kind)).as_str(), cell(phase).as_str(), cell(status).as_str()) {
                ("iteration", "measure", "ok") => {
                    let entry = run.cases.entry(id).or_insert_with(|| (name, BTreeSet::new()));
                    entry.1.insert(cell(Some(iteration)));
                    run.rows.push(row);
                }
                (_, _, "failed" | "timeout") => {
                    let fault = format!("case {name} failed: {}", cell(error));
                    if !run.faults.contains(&fault) {
                        run.faults.push(fault);
                    }
                }
                (_, _, "skipped") => {
                    run.skipped.insert(name, cell(error));
                }
                _ => {}
            }
        }
        Ok(run)
    }

    /// The table with nothing but what comparisons count, and what is known about the run beside it. That goes first: a
    /// crash in between leaves a pair that tells two runs, which whoever reads it notices.
    fn write(&self, to: &Path) -> Result<(), Error> {
        if let Some(folder) = to.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(Error::output(folder.display()))?;
        }
        let mut table = csv::Writer::from_writer(Vec::new());
        let fault = || Error::output(to.display());
        for row in std::iter::once(&self.header).chain(&self.rows) {
            table.write_record(row).map_err(|e| fault()(std::io::Error::other(e)))?;
        }
        let table = table.into_inner().map_err(|e| fault()(e.into_error()))?;
        let mut record = self.record.clone();
        record["promoted"] = json!({
            "at": schemas::time::now().0,
            "from": self.results.display().to_string(),
            "tool_version": env!("CARGO_PKG_VERSION"),
        });
        let mut text = serde_json::to_vec_pretty(&record).map_err(|e| fault()(e.into()))?;
        text.push(b'\n');
        let facts = beside(to);
        replace(&facts, &text)?;
        replace(to, &table)
    }

    fn said(&self, to: &Path, replaced: &[String]) -> String {
        let iterations: usize = self.cases.values().map(|(_, i)| i.len()).sum();
        let cases = self.cases.len();
        let mut lines = vec![format!(
            "{}: {cases} case{}, {iterations} iterations of run {}, begun {}",
            to.display(),
            if cases == 1 { "" } else { "s" },
            word(&self.record, "run_id"),
            word(&self.record, "began"),
        )];
        lines.extend_from_slice(replaced);
        lines
            .extend(self.skipped.iter().map(|(case, why)| format!("no baseline for {case}, which was skipped: {why}")));
        lines.push(format!("keep it: git add {} {}", to.display(), beside(to).display()));
        lines.join("\n") + "\n"
    }
}

fn word<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or("unknown")
}

/// What `run.json` says against the run.
fn faults_of(record: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if record["ended"].is_null() {
        faults.push("the run did not come to its end: go on with it by plumb run --resume".to_owned());
    }
    if let Some(signal) = record["interrupted"].as_str() {
        faults.push(format!("the run was interrupted by {signal}"));
    }
    let partial = |plan: &&Value| plan["partial"].as_bool() == Some(true);
    for plan in record["plans"].as_array().into_iter().flatten().filter(partial) {
        faults.push(format!("--only left cases of plan {} out", word(plan, "name")));
    }
    faults
}

/// The verdicts that failed, as sentences, from the table beside the results.
fn failed_verdicts(results: &Path) -> Result<Vec<String>, Error> {
    let folder =
        results.file_name().is_some_and(|n| n == "results.csv").then(|| results.with_file_name("verdicts.csv"));
    let Some(path) = [Some(results.with_extension("verdicts.csv")), folder].into_iter().flatten().find(|p| p.exists())
    else {
        return Ok(Vec::new());
    };
    let mut table = Table::open(&InputArgs { files: vec![path] })?;
    let columns = ["verdict", "severity", "case", "assertion"].map(|name| table.require(name));
    let [verdict, severity, case, assertion] = columns;
    let (verdict, severity, case, assertion) = (verdict?, severity?, case?, assertion?);
    let mut failed = Vec::new();
    while let Some(row) = table.next_row()? {
        if matches!(row.get(verdict), "fail" | "regression") && row.get(severity) == "error" {
            failed.push(format!("verdict {}: {}: {}", row.get(verdict), row.get(case), row.get(assertion)));
        }
    }
    Ok(failed)
}

/// What stood there before, and what is different now: lines for a person.
fn replaced(run: &Run, to: &Path) -> Result<Vec<String>, Error> {
    if !to.exists() {
        return Ok(vec!["it replaces nothing".to_owned()]);
    }
    let mut lines = Vec::new();
    let old = environment::read(to)?;
    match &old {
        Some(old) => {
            lines.push(format!("it replaces run {}, begun {}", word(old, "run_id"), word(old, "began")));
            let (was, is) = (Environment::of(old), Environment::of(&run.record));
            lines.extend(said(&was.differences(&is)).map(|what| format!("of another environment: {what}")));
        }
        None => lines.push("it replaces a table about whose run nothing is known".to_owned()),
    }
    let (was, is) = (medians(to)?, medians(&run.results)?);
    let (before, after) = (by_key(&was), by_key(&is));
    for now in &is {
        match before.get(&now.key) {
            Some(before) if before.column == now.column => lines.push(change(before, now)),
            Some(_) => {}
            None => lines.push(format!("  {}: new", now.name)),
        }
    }
    let gone = was.iter().filter(|before| !after.contains_key(&before.key));
    lines.extend(gone.map(|m| format!("  {}: gone", m.name)));
    Ok(lines)
}

fn by_key(medians: &[Median]) -> HashMap<&Key, &Median> {
    medians.iter().map(|m| (&m.key, m)).collect()
}

/// What a case came to in the column that it is about.
struct Median {
    key: Key,
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

/// The median of every case that has one.
fn medians(path: &Path) -> Result<Vec<Median>, Error> {
    let mut table = Table::open(&InputArgs { files: vec![path.to_owned()] })?;
    // What a case is about: its transactions where it has any.
    let mut columns = samples::headline(table.header());
    columns.sort_by_key(|c| table.header().names()[*c] != "transactions_per_s");
    let names: Vec<String> = columns.iter().map(|c| table.header().names()[*c].clone()).collect();
    let mut read = Samples::read(&mut table, &Selection::default(), &columns, Some("case_id"))?;
    read.keep_totals();
    let cases = Index::new(&read.cases);
    let median = |case: &samples::Case| {
        let m = case.values.iter().position(|v| !v.is_empty())?;
        let mut sorted = case.values[m].clone();
        sorted.sort_by(f64::total_cmp);
        Some(Median {
            key: case.key.clone(),
            name: cases.label(case),
            column: names[m].clone(),
            value: quantiles::median(&sorted)?,
        })
    };
    Ok(read.cases.iter().filter_map(median).collect())
}
