//! Expectations → verdicts → exit code: assertions, comparisons with a baseline, and confirmation of failures.
//! A bisection measures [until](confirm::Until) its comparisons are decided. [`power`] says how many iterations a change takes.
//!
//! The statements of a plan are about its cases and its surveys (all pairs of a test together); the values of a run decide them.

pub mod baseline;
pub mod confirm;
pub mod power;

use std::collections::HashMap;

use analyze::judge::{
    Origin, VerdictRow,
    baseline::{Baseline, Promise},
    environment::Environment,
    samples::{Case as Measured, Key, Observation},
    statement::{self, Evidence, Statement},
    survey::Surveyed,
};
use netcore::spec::Direction;
use schemas::{columns::results::column, words::Way};

use crate::{
    error::Error,
    plan::{
        Plan,
        case::{Assertion, Case, Member, Survey},
    },
    schedule::{
        rows::ways,
        run::{Finished, Values, place_of},
        step::Step,
    },
};

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

    /// A note about cases that the baseline has, and the plan no longer has.
    pub fn gone(&self) -> Option<String> {
        self.baseline.as_ref().filter(|_| !self.plan.partial)?.gone()
    }

    /// Judges cases of the plan. One list of verdicts per case: its assertions, then its comparisons.
    pub fn judge(&self, cases: &[(&Step, &Finished)], here: &Environment) -> Vec<Vec<VerdictRow>> {
        // Assertions of cases that were skipped on purpose do not count.
        let ran = || cases.iter().filter(|(_, finished)| !finished.left_out);
        let compared = self.baseline.as_ref().map(|baseline| {
            let samples: Vec<_> = ran().flat_map(|(s, f)| promised(s, f, baseline.promises())).collect();
            baseline.judge(&samples, here)
        });
        let mut compared_of: HashMap<String, Vec<VerdictRow>> = HashMap::new();
        for row in compared.into_iter().flatten() {
            compared_of.entry(row.case_id.clone()).or_default().push(row);
        }
        let stated: Vec<Vec<Statement>> = cases.iter().map(|(step, _)| statements(step)).collect();
        let columns = statement::columns(&stated.concat(), None);
        let evidence = of_run(&ran().copied().collect::<Vec<_>>(), columns);
        let index = evidence.index();
        let judged = |((step, finished), statements): (&(&Step, &Finished), &Vec<Statement>)| {
            let mut rows = Vec::new();
            if !finished.left_out {
                let of_statement = |statement| evidence.of_statement(&index, statement, None);
                rows.extend(statements.iter().flat_map(of_statement).map(|row| explained(row, finished)));
                rows.extend(compared_of.get(&step.id).into_iter().flatten().cloned());
                // A case that was not measured has neither held nor failed, and the run says that it was not.
                rows.retain(|row| row.n > 0 || finished.skipped.is_none());
            }
            rows
        };
        cases.iter().zip(&stated).map(judged).collect()
    }
}

/// Says of a case without a value why it has none.
fn explained(mut row: VerdictRow, finished: &Finished) -> VerdictRow {
    if row.n == 0 {
        match (&finished.failed, &finished.answer) {
            (Some(fault), _) => row.note = format!("the case failed: {}", fault.message),
            (None, Some(answer)) => row.note.clone_from(answer),
            (None, None) => {}
        }
    }
    row
}

/// The statements about a case.
pub fn statements(case: &Case) -> Vec<Statement> {
    let of = |assertion: &Assertion, member: usize| Statement {
        case_id: Some(case.id.clone()),
        member: case.members.get(member).map(|m| m.name.clone()).filter(|name| !name.is_empty()),
        scope: assertion.detail.scope.unwrap_or_default(),
        judge: assertion.detail.judge.unwrap_or_default(),
        level: case.policy.level,
        ..stated(assertion)
    };
    let judged = case.asserts.iter().flat_map(|assertion| {
        let members = case.judged(&assertion.detail);
        members.into_iter().map(move |member| (assertion, member))
    });
    judged.map(|(assertion, member)| of(assertion, member)).collect()
}

/// The pairs of a survey, and the statements about them together. `None`: nothing of it is measured.
pub fn of_survey(plan: &Plan, survey: &Survey) -> Option<(statement::Survey, Vec<Statement>)> {
    let pairs: Vec<_> = survey.cases(plan).filter(|case| case.skip.is_none()).collect();
    let pairs = statement::Survey {
        name: survey.name.to_string(),
        case_ids: pairs.iter().map(|case| case.id.clone()).collect(),
        metric: pairs.iter().find_map(|case| case.members.first()?.headline())?,
    };
    let of = |assertion| Statement { survey: Some(pairs.clone()), ..stated(assertion) };
    let statements = survey.asserts.iter().map(of).collect();
    Some((pairs, statements))
}

fn stated(assertion: &Assertion) -> Statement {
    Statement {
        severity: assertion.severity,
        file: assertion.place.file.clone(),
        line: Some(assertion.place.line as u64),
        column: Some(assertion.place.column as u64),
        ..Statement::of(assertion.detail.that.0.clone())
    }
}

/// The values of these cases in some columns.
pub fn of_run(cases: &[(&Step, &Finished)], columns: Vec<&'static str>) -> Evidence {
    let (places, cpu_taken) = places(&columns);
    let (mut all, mut streams) = (Vec::new(), Vec::new());
    for (step, finished) in cases {
        let of = Of { step, finished, places: &places, cpu_taken };
        for member in 0..step.members.len() + usize::from(step.group.is_some()) {
            all.extend(of.member(member));
        }
        // Judged with the transactions of the whole, as a stream's direction is.
        streams.extend(finished.streams.iter().map(|((member, stream), values)| {
            let case = of.case(*member, step.headline_way(*member), values);
            let key = Key { direction: String::new(), stream: stream.to_string(), ..case.key };
            Measured { key, ..case }
        }));
    }
    Evidence::of_run(columns, all, streams)
}

/// The values of each member of a case, and of a group's total, in the order of a baseline's promises.
pub fn promised(step: &Step, finished: &Finished, promises: &[Promise]) -> Vec<Measured> {
    let columns: Vec<&str> = promises.iter().map(|promise| promise.metric.column).collect();
    let (places, cpu_taken) = places(&columns);
    let of = Of { step, finished, places: &places, cpu_taken };
    let all = 0..step.members.len() + usize::from(step.group.is_some());
    all.map(|member| of.way(member, step.headline_way(member))).collect()
}

/// The places of columns among a run's values, and that of the share of the time in which others took a CPU.
fn places(columns: &[&str]) -> (Vec<Option<usize>>, Option<usize>) {
    (columns.iter().map(|column| place_of(column)).collect(), place_of(column::cpu_taken_ratio))
}

/// A case, its values, and the places of those that are wanted.
struct Of<'a> {
    step: &'a Step,
    finished: &'a Finished,
    places: &'a [Option<usize>],
    cpu_taken: Option<usize>,
}

impl Of<'_> {
    /// A member in each of its ways. One that left no row is there without values: it must not pass by silence.
    fn member(&self, member: usize) -> Vec<Measured> {
        let one = self.step.members.get(member);
        let spec = one.map(|m| m.spec());
        let total = self.step.headline_way(member);
        if matches!(spec, Some(None)) {
            // A program may print a table: each of its lines is judged.
            let lines: Vec<_> = self.finished.values.iter().filter(|((_, way), _)| *way == total).collect();
            if lines.len() > 1 {
                let of_line = |((line, _), values): (&(usize, Way), &Vec<Values>)| {
                    let case = self.case(member, total, values);
                    let key = Key { direction: String::new(), ..case.key };
                    Measured { key, name: format!("{} (line {})", self.step.name, line + 1), ..case }
                };
                return lines.into_iter().map(of_line).collect();
            }
        }
        let direction = spec.map_or(Direction::Bidirectional, |s| s.map_or(Direction::Forward, |s| s.direction));
        let all = ways(direction).iter().copied();
        let ranks = (!ways(direction).contains(&total)).then_some(total);
        all.chain(ranks).map(|way| self.way(member, way)).collect()
    }

    fn way(&self, member: usize, way: Way) -> Measured {
        self.case(member, way, self.finished.values.get(&(member, way)).map_or(&[], Vec::as_slice))
    }

    fn case(&self, member: usize, way: Way, iterations: &[Values]) -> Measured {
        let (step, finished) = (self.step, self.finished);
        let one = step.members.get(member);
        let key = Key {
            id: step.id.clone(),
            member: one.map(|m| m.name.clone()).unwrap_or_default(),
            direction: way.to_string(),
            ..Key::default()
        };
        let family = one.map(Member::family).unwrap_or_default();
        let mut case = Measured::of(key, step.name.clone(), family, self.places.len());
        for (number, values) in (1..).zip(iterations) {
            for (metric, place) in self.places.iter().enumerate() {
                case.put(metric, place.and_then(|place| values[place]));
            }
            let cpu_taken = self.cpu_taken.and_then(|place| values[place]);
            case.rows.push(Observation { iteration: Some(number), cpu_taken, ..Observation::default() });
        }
        let summary = |way: Way| {
            let of = finished.summaries.iter().find(|(m, w, _)| (*m, *w) == (member, way));
            of.map(|(.., row)| row)
        };
        case.failed = finished.failed.as_ref().map(|fault| fault.message.clone());
        case.transactions = summary(step.headline_way(member)).and_then(|row| row.transactions);
        case.origin = summary(way).map_or_else(|| Origin::from(&step.identity(member)), Origin::from);
        case
    }
}

/// A survey after the run.
pub struct MeasuredSurvey {
    pub test: String,
    pub name: String,
    pub surveyed: Surveyed,
    pub verdicts: Vec<VerdictRow>,
}

/// The surveys of a plan whose cases these are. Pairs that the plan left out do not count.
pub fn surveys(plan: &Plan, cases: &[(&Step, &Finished)]) -> Vec<MeasuredSurvey> {
    plan.surveys.iter().filter_map(|survey| result(plan, survey, cases)).collect()
}

fn result(plan: &Plan, survey: &Survey, cases: &[(&Step, &Finished)]) -> Option<MeasuredSurvey> {
    let is_of = |step: &Step| step.round.as_ref().is_some_and(|round| round.survey == survey.name);
    let ran = cases.iter().copied().filter(|(step, finished)| is_of(step) && !finished.left_out);
    let ran: Vec<(&Step, &Finished)> = ran.collect();
    if ran.is_empty() {
        return None;
    }
    let (pairs, statements) = of_survey(plan, survey)?;
    let surveyed = of_run(&ran, vec![pairs.metric.column]).surveyed(&pairs);
    Some(MeasuredSurvey {
        test: survey.test.to_string(),
        name: survey.name.to_string(),
        verdicts: statements.iter().map(|of| statement::of_survey(of, &pairs.name, &surveyed)).collect(),
        surveyed: surveyed.0,
    })
}
