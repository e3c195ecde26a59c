//! Expectations → verdicts → exit code: assertions, comparisons with a baseline, and confirmation of failures.
//! A bisection measures [`until`] its comparisons are decided.

pub mod baseline;
pub mod confirm;
pub mod promote;
pub mod survey;
pub mod until;

use std::{collections::HashMap, io::Write, path::Path};

use analyze::judge::{
    self, Judgement, Origin, Scope, VerdictRow,
    baseline::Baseline,
    environment::Environment,
    offered,
    verdicts::{self, Format},
};
use analyze::table::layout::Sheet;
use netcore::spec::Direction;
use schemas::{
    metrics,
    words::{Severity, Verdict, Way},
};

use crate::{
    error::{Error, Exit, replace},
    plan::{Plan, case, model::OnUncertain},
    schedule::{
        rows,
        run::{Finished, Values, value_of},
        step::Step,
    },
};

/// All verdicts of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    rows: Vec<VerdictRow>,
    inconclusive_fails: bool,
}

/// The assertions and comparisons of a plan.
pub struct Expectations<'a> {
    plan: &'a Plan,
    baseline: Option<Baseline>,
}

impl<'a> Expectations<'a> {
    /// Reads the plan's baseline, if any: an unreadable one is reported before anything is measured.
    pub fn of(plan: &'a Plan) -> Result<Self, Error> {
        let baseline = baseline::terms(plan).map(Baseline::read).transpose()?;
        Ok(Self { plan, baseline })
    }

    /// Fails if the baseline must not be compared with results of these hosts, as far as that is known beforehand.
    pub fn check(&self, here: &Environment) -> Result<(), Error> {
        let Some(baseline) = &self.baseline else { return Ok(()) };
        baseline.refuses(here, true).map_err(|why| {
            let places = self.plan.baseline.as_ref().and_then(|(_, spans)| spans.first());
            let file = places.map_or_else(String::new, |span| format!("{}: ", self.plan.sources.place(*span).file));
            Error::Measurement(format!(
                "{file}{why}\n       measure where it was measured, promote a baseline of this environment, or take the fact \
                 out of baseline.require_same"
            ))
        })
    }

    /// Judges cases of the plan. One list of verdicts per case: its assertions, then its comparisons.
    pub fn judge(&self, cases: &[(&Step, &Finished)], here: &Environment) -> Vec<Vec<VerdictRow>> {
        // Assertions of cases that were skipped on purpose do not count.
        let ran = || cases.iter().filter(|(_, finished)| !finished.left_out);
        let compared = self.baseline.as_ref().map(|baseline| {
            let samples: Vec<_> = ran().flat_map(|(s, f)| baseline::samples(s, f, baseline.promises())).collect();
            baseline.judge(&samples, here)
        });
        let mut compared_of: HashMap<String, Vec<VerdictRow>> = HashMap::new();
        for row in compared.into_iter().flatten() {
            compared_of.entry(row.case_id.clone()).or_default().push(row);
        }
        cases
            .iter()
            .map(|(step, finished)| {
                let mut rows = Vec::new();
                if !finished.left_out {
                    rows.extend(step.asserts.iter().flat_map(|a| of_assertion(step, finished, a)));
                    rows.extend(compared_of.get(&step.id).into_iter().flatten().cloned());
                }
                rows
            })
            .collect()
    }
}

fn of_assertion(step: &Step, finished: &Finished, assertion: &case::Assertion) -> Vec<VerdictRow> {
    let members = step.judged(&assertion.detail);
    members.into_iter().flat_map(|member| of_member(step, finished, assertion, member)).collect()
}

/// The verdicts about a member, or about the total of a group, which follows its last member.
fn of_member(step: &Step, finished: &Finished, assertion: &case::Assertion, member: usize) -> Vec<VerdictRow> {
    let detail = &assertion.detail;
    let statement = &detail.that.0;
    let one = step.members.get(member);
    let direction =
        one.map_or(Direction::Bidirectional, |m| m.spec().map_or(Direction::Forward, |spec| spec.direction));
    let no_values = Vec::new();
    let of_way = |way: Way| finished.values.get(&(member, way)).unwrap_or(&no_values);
    let all = rows::ways(direction);
    let total = step.headline_way(member);
    let lines: Vec<_> = finished.values.iter().filter(|((_, way), _)| *way == total).collect();
    let subjects: Vec<(String, Way, &Vec<Values>)> = match detail.scope.unwrap_or_default() {
        // A program may print a table: an assertion about its results is judged for each line.
        _ if one.is_some_and(|m| m.spec().is_none()) && lines.len() > 1 => {
            lines.into_iter().map(|((line, _), values)| (format!(" (line {})", line + 1), total, values)).collect()
        }
        Scope::Total => vec![(String::new(), total, of_way(total))],
        Scope::Direction => all
            .iter()
            .filter(|w| all.len() == 1 || one.is_none() || **w != Way::Both)
            .map(|w| (format!(" ({w})"), *w, of_way(*w)))
            .collect(),
        Scope::Stream => {
            let streams = finished.streams.iter().filter(|((m, _), _)| *m == member);
            let streams: Vec<_> = streams.map(|((_, s), v)| (format!(" (stream {s})"), total, v)).collect();
            if streams.is_empty() { vec![(String::new(), total, of_way(total))] } else { streams }
        }
    };
    let transactions = |member: usize, total: Way| {
        let summary = finished.summaries.iter().find(|(m, way, _)| *m == member && *way == total);
        summary.and_then(|(_, _, row)| row.transactions)
    };
    let mut observations = transactions(member, total);
    let subtracted = statement.difference.as_ref().and_then(|difference| {
        let minus = step.members.iter().position(|m| m.name == difference.minus)?;
        let way = step.headline_way(minus);
        observations = observations.zip(transactions(minus, way)).map(|(a, b)| a.min(b));
        Some((difference.subtracted()?, finished.values.get(&(minus, way))?))
    });
    subjects
        .into_iter()
        .map(|(what, way, values)| {
            let values_of = |metric, values: &[Values]| values.iter().map(|v| value_of(metric, v)).collect::<Vec<_>>();
            let mut samples: Vec<f64> = values_of(statement.metric, values).into_iter().flatten().collect();
            if statement.difference.is_some() {
                // A difference is of one iteration.
                let pairs = subtracted.filter(|(_, minus)| minus.len() == values.len()).map(|(metric, minus)| {
                    let pairs = values_of(statement.metric, values).into_iter().zip(values_of(metric, minus));
                    pairs.filter_map(|(a, b)| Some(a? - b?)).collect()
                });
                samples = pairs.unwrap_or_default();
            }
            let mut judgement =
                judge::judge(statement, &samples, observations, step.policy.level, detail.judge.unwrap_or_default())
                    .at_offered(statement, values.iter().filter_map(offered_share));
            if let Some(fault) = finished.failed.as_ref().filter(|_| samples.is_empty()) {
                judgement.reason = Some(format!("the case failed: {}", fault.message));
            }
            if samples.is_empty() && finished.failed.is_none() {
                judgement.reason = finished.answer.clone().or(judgement.reason);
            }
            let origin = origin(step, finished, (member, way));
            let mut row = verdict(step, member, &what, assertion, &judgement);
            origin.mark(&mut row);
            row
        })
        .collect()
}

/// The share of its load that an iteration offered.
fn offered_share(values: &Values) -> Option<f64> {
    let [error, quantum] = offered::COLUMNS.map(|column| value_of(metrics::find(column)?, values));
    Some(offered::share(error?, quantum?))
}

/// Place and time of a member's measurement, or of the group's.
fn origin(step: &Step, finished: &Finished, of: (usize, Way)) -> Origin {
    let summary = finished.summaries.iter().find(|(member, way, _)| (*member, *way) == of).map(|(.., row)| row);
    summary.map_or_else(|| Origin::from(&step.identity(of.0)), Origin::from)
}

fn verdict(step: &Step, member: usize, what: &str, assertion: &case::Assertion, judgement: &Judgement) -> VerdictRow {
    let place = &assertion.place;
    let of = step.members.get(member).map(|m| m.name.clone()).unwrap_or_default();
    VerdictRow {
        case_id: step.id.clone(),
        case: format!("{}{what}", judge::subject(&step.name, &of)),
        member: of,
        file: place.file.clone(),
        line: Some(place.line as u64),
        column: Some(place.column as u64),
        ..judge::of_assertion(&assertion.detail.that.0, judgement, assertion.severity)
    }
}

impl Verdicts {
    /// Adds the verdicts of a case.
    pub fn add(&mut self, plan: &Plan, rows: &[VerdictRow]) {
        self.rows.extend_from_slice(rows);
        self.inconclusive_fails |= plan.gate.on_inconclusive == Some(OnUncertain::Fail);
    }

    /// In the order of the cases.
    pub fn rows(&self) -> &[VerdictRow] {
        &self.rows
    }

    fn has(&self, verdict: Verdict) -> bool {
        self.rows.iter().any(|r| r.verdict == verdict && r.severity == Severity::Error)
    }

    pub fn exit(&self) -> Exit {
        if self.rows.iter().any(VerdictRow::fails) {
            Exit::Failed
        } else if self.rows.iter().any(VerdictRow::refuses) {
            Exit::Measurement
        } else if self.inconclusive_fails && self.has(Verdict::Inconclusive) {
            Exit::Inconclusive
        } else {
            Exit::Success
        }
    }

    /// Writes the table for people and a line with counts; nothing if nothing was judged.
    pub fn write_table(&self, sheet: &Sheet, out: &mut dyn Write) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        Ok(verdicts::write(&self.rows, Format::Text, sheet, out)?)
    }

    /// Writes the `verdicts` table.
    pub fn write_csv(&self, path: &Path) -> Result<(), Error> {
        let mut bytes = Vec::new();
        verdicts::csv(&self.rows, &mut bytes)?;
        replace(path, &bytes)
    }
}
