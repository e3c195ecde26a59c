//! A run against an earlier one: judges the promises of a plan's `baseline` over samples of both.

use super::{
    Severity, VerdictRow, compared,
    comparison::{self, Comparison, Rule},
    environment::{Difference, Environment},
    samples::{self, Case, Index, Samples},
    setting::{self, is_of},
    worsening::{self, Worse},
};
use crate::{
    error::{Error, Place},
    first_few,
    table::{
        InputArgs, Selection, Table,
        beside::{self, Beside},
    },
};
use indexmap::IndexSet;
use schemars::JsonSchema;
use schemas::{
    columns,
    metrics::{Better, Metric},
    run_record::{CaseRecord, RunRecord},
    text::{counted, short_names},
    words::Verdict,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

/// The verdict on a missing baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMissing {
    /// Inconclusive, with a warning.
    #[default]
    Warn,
    /// A failure.
    Fail,
    /// `missing`, with a warning.
    Pass,
}

/// One metric that must not get worse, in some cases.
#[derive(Clone, Debug)]
pub struct Promise {
    pub metric: &'static Metric,
    pub rule: Rule,
    /// The `case_id`s that measure it.
    pub case_ids: Vec<String>,
    /// The plan's file.
    pub file: String,
    /// Line of the comparison in the plan, from 1.
    pub line: Option<u64>,
    /// Column in the plan, from 1.
    pub column: Option<u64>,
}

/// A plan's terms for its baseline.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The results table of the earlier run.
    pub source: PathBuf,
    /// Verdict if the table, or a case in it, is missing.
    pub on_missing: OnMissing,
    /// Facts that must be the same. `None`: no verdict for another machine. Empty: a verdict wherever it was measured.
    pub require_same: Option<Vec<String>>,
    pub promises: Vec<Promise>,
    /// All cases of the plan, by their keys in a `run.json`.
    pub planned: BTreeMap<String, CaseRecord>,
}

/// An earlier run.
#[derive(Clone, Debug)]
pub struct Baseline {
    terms: Terms,
    /// Values by case, with one list per promise. `None`: the file does not exist.
    samples: Option<Samples>,
    /// The machine it was measured on, or why that is unknown.
    environment: Result<Environment, String>,
    /// What its run recorded of its cases.
    measured: BTreeMap<String, CaseRecord>,
    /// Number of the plans of its run.
    plans: usize,
}

/// Effect of the machine of the measurement on the verdict.
enum Comparability {
    /// A verdict, with this note.
    Judged(Option<String>),
    /// Shown without a verdict.
    Doubtful(String),
    /// Not compared.
    Refused(String),
}

impl Baseline {
    /// Reads the table and the facts about its machine. A missing file is handled by `on_missing`; one that lost rows since it was
    /// promoted is an error.
    pub fn read(terms: Terms) -> Result<Self, Error> {
        if !terms.source.exists() {
            let environment = Err(format!("there is no {}", terms.source.display()));
            return Ok(Self { terms, samples: None, environment, measured: BTreeMap::new(), plans: 0 });
        }
        let mut table = Table::open(&InputArgs { files: vec![terms.source.clone()] })?;
        let columns = terms.promises.iter().map(|p| table.require(p.metric.column)).collect::<Result<Vec<_>, _>>()?;
        let mut samples = Samples::read(&mut table, &Selection::default(), &columns, Some("case_id"))?;
        let record = known(&terms.source)?;
        let promoted = record.as_ref().ok().and_then(|record| record.promoted.as_ref()?.rows);
        let rows = rows(&terms.source)?;
        if let Some(promoted) = promoted.filter(|promoted| *promoted != rows) {
            return Err(Error::Data {
                place: Place { file: terms.source.display().to_string(), line: 0, column: None },
                reason: format!(
                    "{} can be read, and {promoted} were promoted: restore the file, or promote a run again",
                    counted(rows, "row")
                ),
            });
        }
        samples.keep_totals();
        let environment = record.as_ref().map(Environment::of).map_err(Clone::clone);
        let record = record.unwrap_or_default();
        let (measured, plans) = (record.cases, record.plans.len());
        Ok(Self { terms, samples: Some(samples), environment, measured, plans })
    }

    /// The promises; each case has its values in this order.
    pub fn promises(&self) -> &[Promise] {
        &self.terms.promises
    }

    /// Each promise about a case, and the number of values that the baseline has for it.
    pub fn counts(&self) -> Vec<(&Promise, &str, usize)> {
        let index = self.index();
        let values = |m: usize, id: &str| index.of(id).iter().map(|case| case.values[m].len()).max().unwrap_or(0);
        let mut counts = Vec::new();
        for (m, promise) in self.terms.promises.iter().enumerate() {
            counts.extend(promise.case_ids.iter().map(|id| (promise, &**id, values(m, id))));
        }
        counts
    }

    /// The difference of the baseline's machine from another, in one sentence; or why it is unknown. `None`: it is the same.
    pub fn machine_differs(&self, here: &Environment) -> Result<Option<String>, &str> {
        let was = self.environment.as_ref().map_err(String::as_str)?;
        let mut differences = was.differences(here);
        differences.retain(|d| d.machine);
        Ok(said(&differences))
    }

    /// A note about cases that the baseline has, and the plan no longer has. A baseline of several plans has those of the others, too.
    pub fn gone(&self) -> Option<String> {
        const MOST: usize = 5;
        if self.plans > 1 {
            return None;
        }
        let planned: HashSet<&str> = self.terms.planned.values().map(|planned| &*planned.case).collect();
        let has_id = |id: &str| self.terms.planned.range(id.to_owned()..).next().is_some_and(|(key, _)| is_of(key, id));
        let is_gone = |case: &&Case| !planned.contains(&*case.name) && !has_id(&case.key.id);
        let cases = self.samples.iter().flat_map(|samples| &samples.cases);
        let gone: IndexSet<&str> = cases.filter(is_gone).map(|case| &*case.name).collect();
        let names = first_few(gone.iter().map(|name| short_names(name)), MOST).join(", ");
        (!gone.is_empty()).then(|| format!("{} has what the plan no longer has: {names}", self.source().display()))
    }

    /// The baseline's file.
    pub fn source(&self) -> &Path {
        &self.terms.source
    }

    /// An error says that a comparison is refused, and names the required facts that differ. With `beforehand`,
    /// considers only facts that are known before the measurement.
    pub fn refuses(&self, here: &Environment, beforehand: bool) -> Result<(), String> {
        let required = self.terms.require_same.as_deref().unwrap_or_default();
        let required: Vec<&String> =
            required.iter().filter(|f| !beforehand || Environment::is_known_beforehand(f)).collect();
        if required.is_empty() || self.samples.is_none() {
            return Ok(());
        }
        let source = self.terms.source.display();
        let was = self
            .environment
            .as_ref()
            .map_err(|why| format!("{why}, and the plan requires the same {}", list(&required)))?;
        let mut wrong: Vec<String> = required
            .iter()
            .filter_map(|fact| match (was.knows(fact), here.knows(fact)) {
                (true, true) => None,
                (true, false) => Some(format!("{fact} cannot be told here")),
                (false, _) => Some(format!("{fact} is not known of it")),
            })
            .collect();
        let differs = was.differences(here).into_iter().filter(|d| required.contains(&&d.fact));
        wrong.extend(differs.map(|d| d.text));
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!("the baseline {source} is of another environment: {}", wrong.join("; ")))
    }

    fn place(&self, here: &Environment) -> Comparability {
        if let Err(reason) = self.refuses(here, false) {
            return Comparability::Refused(reason);
        }
        let anywhere = self.terms.require_same.as_ref().is_some_and(Vec::is_empty);
        if !here.is_known() && !anywhere {
            return Comparability::Doubtful(
                "nobody knows on which machine this was measured: its run.json is missing".to_owned(),
            );
        }
        let was = match &self.environment {
            Ok(was) => was,
            Err(why) if anywhere => return Comparability::Judged(Some(why.clone())),
            Err(why) => return Comparability::Doubtful(why.clone()),
        };
        let differences = was.differences(here);
        let machine = differences.iter().any(|d| d.machine);
        match said(&differences) {
            None => Comparability::Judged(None),
            Some(what) if machine && !anywhere => {
                Comparability::Doubtful(format!("the baseline is of another machine: {what}"))
            }
            Some(what) => Comparability::Judged(Some(what)),
        }
    }

    /// Judges the cases of a run, which have one list of values per promise. Returns a row per promise and case, in
    /// that order.
    pub fn judge(&self, new: &[Case], here: &Environment) -> Vec<VerdictRow> {
        let place = self.place(here);
        let (base, new) = (self.index(), Index::new(new));
        let one = |(m, promise, case)| self.one(promise, m, case, [&base, &new], &place);
        let mut judged: Vec<_> = self.subjects(&new).into_iter().map(one).collect();
        comparison::decide(judged.iter_mut().filter_map(|(_, c)| c.as_mut()), true);
        judged.into_iter().map(|(row, comparison)| concluded(row, comparison, &place)).collect()
    }

    /// Whether the cases of a run, made worse by `by`, would be called a regression, and from which change on.
    pub fn self_test(&self, new: &[Case], here: &Environment, by: f64) -> Vec<VerdictRow> {
        let place = self.place(here);
        let (base, new) = (self.index(), Index::new(new));
        let subjects = self.subjects(&new);
        let row = |(m, promise, case): &(usize, &Promise, &Case)| {
            let worse = Worse::of(promise.rule.better);
            worsening::row(worse, by, |by| {
                let mut worsened = Case::clone(case);
                for value in &mut worsened.values[*m] {
                    *value = worse.make(*value, Some(promise.metric), by);
                }
                let (row, mut comparison) = self.one(promise, *m, &worsened, [&base, &new], &place);
                if let Some(comparison) = &mut comparison {
                    comparison.decide_among(subjects.len());
                }
                concluded(row, comparison, &place)
            })
        };
        subjects.iter().map(row).collect()
    }

    /// The cases of each promise, with the promise's index.
    fn subjects<'a>(&'a self, new: &Index<'a>) -> Vec<(usize, &'a Promise, &'a Case)> {
        let of = |(m, promise): (usize, &'a Promise)| {
            let cases = promise.case_ids.iter().flat_map(move |id| subjects(new, id, m));
            cases.map(move |case| (m, promise, case)).collect::<Vec<_>>()
        };
        self.terms.promises.iter().enumerate().flat_map(of).collect()
    }

    /// A sentence about a baseline that does not exist, and where it was looked for.
    fn no_source(&self) -> String {
        let source = self.terms.source.display();
        let remedy = "measure one and keep it with plumb baseline promote";
        if self.terms.source.is_absolute() {
            return format!("there is no {source}: {remedy}");
        }
        let here = std::env::current_dir().unwrap_or_default();
        format!("there is no {source} in plumb's working directory, {}, nor beside the plan: {remedy}", here.display())
    }

    /// A sentence about a case that the baseline does not have.
    fn lacks(&self, case: &Case) -> String {
        let source = self.terms.source.display();
        match setting::changes(&case.key.id, &self.terms.planned, &self.measured) {
            Some(changes) => {
                format!("{source} has this case with other settings ({changes}): promote a run that has these")
            }
            None => format!("{source} does not have this case: promote a run that has it"),
        }
    }

    /// The baseline's cases.
    fn index(&self) -> Index<'_> {
        Index::new(self.samples.iter().flat_map(|samples| &samples.cases))
    }

    fn one(
        &self,
        promise: &Promise,
        m: usize,
        case: &Case,
        [base, among]: [&Index<'_>; 2],
        place: &Comparability,
    ) -> (VerdictRow, Option<Comparison>) {
        let worse = if promise.rule.better == Better::Lower { "above" } else { "below" };
        let source = self.terms.source.display();
        let mut row = VerdictRow {
            assertion: format!("{} at most {} {worse} {source}", promise.metric.name, percent(promise.rule.min_ratio)),
            metric: promise.metric.column.to_owned(),
            limit_ratio: Some(promise.rule.min_ratio),
            file: promise.file.clone(),
            line: promise.line,
            column: promise.column,
            ..VerdictRow::default()
        };
        among.mark(case, &mut row);
        let values = &case.values[m];
        row.n = values.len() as u64;
        if values.is_empty() {
            row.verdict = Verdict::Fail;
            row.note = format!("there is no sample of {}", promise.metric.name);
            return (row, None);
        }
        let Some(base) = base.find(&case.key).filter(|c| !c.values[m].is_empty()) else {
            let why = if self.samples.is_none() { self.no_source() } else { self.lacks(case) };
            row.note = why;
            (row.verdict, row.severity) = match self.terms.on_missing {
                OnMissing::Warn => (Verdict::Inconclusive, Severity::Warn),
                OnMissing::Fail => (Verdict::Fail, Severity::Error),
                OnMissing::Pass => (Verdict::Missing, Severity::Warn),
            };
            return (row, None);
        };
        row.baseline_run_id.clone_from(&base.origin.run_id);
        if let Comparability::Refused(why) = place {
            row.verdict = Verdict::Error;
            row.note.clone_from(why);
            return (row, None);
        }
        let mut comparison = Comparison::of(&base.values[m], values, promise.rule);
        comparison.disturbed = samples::disturbed(base, case);
        (row, Some(comparison))
    }
}

/// The row of a decided comparison, with the effect of the machine on its verdict.
fn concluded(mut row: VerdictRow, comparison: Option<Comparison>, place: &Comparability) -> VerdictRow {
    let Some(comparison) = comparison else { return row };
    compared(&mut row, &comparison);
    match place {
        Comparability::Doubtful(why) => {
            row.verdict = Verdict::Inconclusive;
            row.needed_iterations = None;
            row.say_first(why);
        }
        Comparability::Judged(Some(what)) => row.say(what),
        Comparability::Judged(None) | Comparability::Refused(_) => {}
    }
    row
}

/// The cases that a promise is about: the case itself, a group's total if it has the metric, else the members that have
/// it. If none has it, the first stands for the case, so that it does not pass by silence.
pub fn subjects<'a>(cases: &Index<'a>, id: &str, m: usize) -> Vec<&'a Case> {
    let of = cases.of(id);
    let with: Vec<&Case> = of.iter().copied().filter(|c| !c.values[m].is_empty()).collect();
    let total: Vec<&Case> = with.iter().copied().filter(|c| c.key.member.is_empty()).collect();
    match (total.is_empty(), with.is_empty()) {
        (false, _) => total,
        (true, false) => with,
        (true, true) => of.iter().take(1).copied().collect(),
    }
}

/// The number of rows of a table.
fn rows(source: &Path) -> Result<u64, Error> {
    let mut table = Table::open(&InputArgs { files: vec![source.to_owned()] })?;
    let mut rows = 0;
    while table.next_row()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

/// The record of the run of a table, or a sentence that says why it is unknown.
fn known(source: &Path) -> Result<Result<RunRecord, String>, Error> {
    Ok(match beside::run_record(source)? {
        Beside::Own(run) => Ok(run),
        Beside::Foreign(_) => {
            Err(format!("what stands beside {} is about another run: promote it again", source.display()))
        }
        Beside::Absent => Err(format!(
            "{} is missing, so nobody knows on which machine the baseline was measured",
            source.with_extension("run.json").display()
        )),
    })
}

/// The differences in one sentence, machines first; `None` if there are none.
pub fn said(differences: &[Difference]) -> Option<String> {
    const MOST: usize = 5;
    let mut sorted: Vec<&Difference> = differences.iter().collect();
    sorted.sort_by_key(|d| !d.machine);
    let texts = first_few(sorted.iter().map(|d| d.text.clone()), MOST);
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// `3 %`, rounded to hide what binary fractions add.
fn percent(ratio: f64) -> String {
    format!("{} %", columns::number((ratio * 1e6).round() / 1e4))
}

fn list(facts: &[&String]) -> String {
    facts.iter().map(|f| f.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
