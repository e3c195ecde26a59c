//! Statements about the cases of a run, judged alike when the run ends and from its table.

use super::{
    Judge, Scope,
    baseline::Baseline,
    environment::Environment,
    of_assertion, offered,
    samples::{self, Case, Index, Samples},
    survey::Surveyed,
    worsening::{self, Worse},
};
use crate::{
    distinct,
    error::Error,
    table::{Selection, Table},
};
use schemas::{
    assertion::{Assertion, Operator},
    columns::VerdictRow,
    metrics::Metric,
    run_record::{CaseRecord, Unfinished},
    words::{self, Severity, Way},
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A statement about some cases, and its place.
#[derive(Debug, Clone)]
pub struct Statement {
    pub assertion: Assertion,
    /// The case; `None`: all.
    pub case_id: Option<String>,
    /// The survey whose figure it is about.
    pub survey: Option<Survey>,
    /// The member of a concurrent group; `None`: the group's total, or each member of a group without a total.
    pub member: Option<String>,
    pub scope: Scope,
    pub severity: Severity,
    pub judge: Judge,
    /// Confidence level of the interval, 0 … 1.
    pub level: f64,
    /// Empty for the command line.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// From 1.
    pub column: Option<u64>,
}

impl Statement {
    /// The default confidence level.
    pub const LEVEL: f64 = 0.95;

    /// About every case as a whole, from the command line.
    pub fn of(assertion: Assertion) -> Self {
        Self {
            member: assertion.difference.as_ref().map(|difference| difference.member.clone()),
            assertion,
            case_id: None,
            survey: None,
            scope: Scope::Total,
            severity: Severity::Error,
            judge: Judge::default(),
            level: Self::LEVEL,
            file: String::new(),
            line: None,
            column: None,
        }
    }
}

/// The pairs of a test.
#[derive(Debug, Clone)]
pub struct Survey {
    pub name: String,
    /// Cases of its pairs.
    pub case_ids: Vec<String>,
    /// The metric by which they are compared.
    pub metric: &'static Metric,
}

/// The values by which statements are judged.
pub struct Evidence {
    /// Cases with their directions apart.
    samples: Samples,
    /// Their streams.
    streams: Samples,
    /// Names of the columns, in the order of every case's values.
    columns: Vec<&'static str>,
    /// Whether a case of a single direction is named with it, too, where directions are judged.
    names_all_directions: bool,
}

/// The columns that statements and the promises of a baseline are about.
pub fn columns(statements: &[Statement], baseline: Option<&Baseline>) -> Vec<&'static str> {
    let promised = baseline.map(Baseline::promises).unwrap_or_default().iter().map(|p| p.metric.column);
    let surveyed = statements.iter().filter_map(|s| Some(s.survey.as_ref()?.metric.column));
    let subtracted = statements.iter().filter_map(|s| s.assertion.difference.as_ref()?.subtracted());
    let asserted = statements.iter().map(|s| s.assertion.metric).chain(subtracted).map(|metric| metric.column);
    distinct(asserted.chain(surveyed).chain(promised).chain(offered::COLUMNS))
}

impl Evidence {
    /// The values of a table.
    pub fn read(
        table: &mut Table,
        selection: &Selection,
        statements: &[Statement],
        baseline: Option<&Baseline>,
    ) -> Result<Self, Error> {
        // A missing column is a metric without a sample, and fails.
        let found = |name| Some((name, table.header().find(name)?));
        let (columns, indices): (Vec<_>, Vec<_>) = columns(statements, baseline).into_iter().filter_map(found).unzip();
        let with_streams = statements.iter().any(|s| s.scope == Scope::Stream);
        let (samples, streams) = Samples::read_with_streams(table, selection, &indices, with_streams)?;
        samples.note.iter().for_each(|note| crate::warn(note));
        Ok(Self { samples, streams, columns, names_all_directions: false })
    }

    /// The values of a run: cases with their directions apart, and their streams.
    pub fn of_run(columns: Vec<&'static str>, cases: Vec<Case>, streams: Vec<Case>) -> Self {
        let [samples, streams] = [cases, streams].map(Samples::of);
        Self { samples, streams, columns, names_all_directions: true }
    }

    fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|c| *c == column)
    }

    fn values<'a>(&self, case: &'a Case, column: &str) -> &'a [f64] {
        self.place(column).and_then(|m| case.values.get(m)).map_or(&[][..], Vec::as_slice)
    }

    /// The shares of its load that the iterations of a case offered.
    fn offered(&self, case: &Case) -> Vec<f64> {
        let [errors, quanta] = offered::COLUMNS.map(|column| self.values(case, column));
        errors.iter().zip(quanta).map(|(error, quantum)| offered::share(*error, *quantum)).collect()
    }

    /// Finds cases while statements are judged.
    pub fn index(&self) -> Indices<'_> {
        let [samples, streams] = [&self.samples, &self.streams].map(|s| Index::new(&s.cases));
        let totals = Index::new(self.samples.totals());
        let samples = if self.names_all_directions { samples.with_directions() } else { samples };
        Indices { samples, totals, streams }
    }

    /// Expects values also of cases that an early end of the run kept from being measured.
    pub fn expect_cut_short(&mut self) {
        self.samples.skipped.retain(|_, is_cut_short| !*is_cut_short);
    }

    /// Expects nothing of the cases of a plan that left no row, and returns them. For a run that crashed before it could name
    /// them; `planned` has them by their keys in a `run.json`.
    pub fn leave_out_absent(&mut self, planned: &BTreeMap<String, CaseRecord>) -> Vec<Unfinished> {
        let index = Index::new(&self.samples.cases);
        let mut absent: BTreeMap<&str, &str> =
            planned.iter().map(|(key, case)| (key.split('/').next().unwrap_or(key), &*case.case)).collect();
        absent.retain(|id, _| index.of(id).is_empty() && !self.samples.skipped.contains_key(*id));
        self.samples.skipped.extend(absent.keys().map(|id| ((*id).to_owned(), true)));
        absent.into_values().map(|case| Unfinished { case: case.to_owned(), ..Unfinished::default() }).collect()
    }

    /// The cases, with their directions apart.
    pub fn cases(&self) -> &[Case] {
        &self.samples.cases
    }

    /// The samples of every case, in the order of a baseline's promises, and promised cases without a row: they must not pass by
    /// silence.
    fn promised(&self, baseline: &Baseline) -> Vec<Case> {
        let values =
            |case: &Case| baseline.promises().iter().map(|p| self.values(case, p.metric.column).to_vec()).collect();
        let there: HashSet<&String> = self.samples.cases.iter().map(|case| &case.key.id).collect();
        let promised: BTreeSet<&String> = baseline.promises().iter().flat_map(|p| &p.case_ids).collect();
        let absent = promised.into_iter().filter(|id| !there.contains(id)).map(|id| Case::absent(id));
        let all = self.samples.totals().cloned().chain(absent);
        all.map(|case| Case { values: values(&case), ..case }).collect()
    }

    /// A row per statement and case, in the order of the statements; then a row per promise and case. With `worse_by`,
    /// the rows say whether values worse by that much, each by itself, would be noticed.
    pub fn judge(
        &self,
        statements: &[Statement],
        baseline: Option<&Baseline>,
        here: &Environment,
        worse_by: Option<f64>,
    ) -> Vec<VerdictRow> {
        let index = self.index();
        let mut rows: Vec<VerdictRow> =
            statements.iter().flat_map(|statement| self.of_statement(&index, statement, worse_by)).collect();
        if let Some(baseline) = baseline {
            let cases = self.promised(baseline);
            rows.extend(match worse_by {
                None => baseline.judge(&cases, here),
                Some(by) => baseline.self_test(&cases, here, by),
            });
        }
        rows.retain(|row| row.n > 0 || !self.samples.skipped.contains_key(&row.case_id));
        rows
    }

    /// A row per case that a statement is about.
    pub fn of_statement(&self, index: &Indices<'_>, statement: &Statement, worse_by: Option<f64>) -> Vec<VerdictRow> {
        // A cause is not made worse by a ratio.
        if worse_by.is_some() && statement.assertion.cause.is_some() {
            return Vec::new();
        }
        if let Some(survey) = &statement.survey {
            // One value that is worse is one of many pairs, and no measure of the gate.
            let judged = || of_survey(statement, &survey.name, &self.surveyed(survey));
            return worse_by.is_none().then(judged).into_iter().collect();
        }
        let (cases, among) = index.subjects(statement);
        let metric = statement.assertion.metric;
        let worse = worse(statement);
        // Values, and what is subtracted from each.
        let judged = |case: &Case, values: &[(f64, f64)]| {
            let offered = self.offered(case);
            let row = |by: f64| {
                let value = |v: f64| if by > 0.0 { worse.make(v, Some(metric), by) } else { v };
                let values: Vec<f64> = values.iter().map(|(v, minus)| value(*v) - minus).collect();
                row(statement, case, among, &values, &offered)
            };
            worse_by.map_or_else(|| row(0.0), |by| worsening::row(worse, by, row))
        };
        let mut rows: Vec<VerdictRow> =
            cases.iter().map(|case| judged(case, &self.subtracted(statement, case, among))).collect();
        // A case that left no row must not pass by silence.
        if cases.is_empty() {
            rows.push(judged(&Case::absent(statement.case_id.as_deref().unwrap_or_default()), &[]));
        }
        rows
    }

    /// The values of a case, each with what is subtracted from it: the other member's value of the same iteration, or 0.
    fn subtracted(&self, statement: &Statement, case: &Case, among: &Index<'_>) -> Vec<(f64, f64)> {
        let column = statement.assertion.metric.column;
        let Some(difference) = &statement.assertion.difference else {
            return self.values(case, column).iter().map(|v| (*v, 0.0)).collect();
        };
        let other = among.of(&case.key.id).iter().find(|one| one.key.member == difference.minus);
        let metrics = self.place(column).zip(difference.subtracted().and_then(|metric| self.place(metric.column)));
        let pairs = other.zip(metrics).map(|(other, (a, b))| samples::pairs((case, a), (other, b)));
        pairs.unwrap_or_default()
    }

    /// All pairs of a survey together, and the run that measured them.
    pub fn surveyed(&self, survey: &Survey) -> (Surveyed, String) {
        let of: HashSet<&str> = survey.case_ids.iter().map(String::as_str).collect();
        let mut cases: Vec<&Case> =
            self.samples.cases.iter().filter(|case| of.contains(case.key.id.as_str())).collect();
        let has_parts: HashSet<&str> =
            cases.iter().filter(|case| case.way() != Way::Both).map(|case| case.key.id.as_str()).collect();
        cases.retain(|case| case.way() != Way::Both || !has_parts.contains(case.key.id.as_str()));
        let run_id = cases.first().map(|case| case.origin.run_id.clone()).unwrap_or_default();
        (Surveyed::of(&cases, survey.metric, self.place(survey.metric.column)), run_id)
    }
}

/// The verdict about all pairs of a survey together.
pub fn of_survey(statement: &Statement, name: &str, (surveyed, run_id): &(Surveyed, String)) -> VerdictRow {
    VerdictRow {
        case: name.to_owned(),
        run_id: run_id.clone(),
        file: statement.file.clone(),
        line: statement.line,
        column: statement.column,
        ..of_assertion(&statement.assertion, &surveyed.judge(&statement.assertion), statement.severity)
    }
}

/// The bad direction of a statement.
fn worse(statement: &Statement) -> Worse {
    match statement.assertion.operator {
        Operator::Less | Operator::LessOrEqual => Worse::Up,
        Operator::Greater | Operator::GreaterOrEqual => Worse::Down,
        Operator::Equal | Operator::NotEqual => Worse::of(statement.assertion.metric.better),
    }
}

/// Looks up the cases of [`Evidence`].
pub struct Indices<'a> {
    samples: Index<'a>,
    totals: Index<'a>,
    streams: Index<'a>,
}

impl<'a> Indices<'a> {
    /// The cases that a statement is about, and the cases they are named among.
    fn subjects(&self, statement: &Statement) -> (Vec<&'a Case>, &Index<'a>) {
        let of = |index: &Index<'a>| -> Vec<&'a Case> {
            let concerned = |case: &&Case| concerns(statement, case, index);
            match &statement.case_id {
                Some(id) => index.of(id).iter().copied().filter(concerned).collect(),
                None => index.all().iter().copied().filter(concerned).collect(),
            }
        };
        let chosen = match statement.scope {
            Scope::Total => &self.totals,
            Scope::Direction => &self.samples,
            // A case without rows of streams is judged as a whole.
            Scope::Stream if of(&self.streams).is_empty() => &self.totals,
            Scope::Stream => &self.streams,
        };
        (of(chosen), chosen)
    }
}

/// Whether a statement applies to a case with its id.
fn concerns(statement: &Statement, case: &Case, all: &Index<'_>) -> bool {
    let key = &case.key;
    if statement.scope == Scope::Direction && key.direction == Way::Both.as_str() {
        return false;
    }
    match &statement.member {
        Some(member) => *member == key.member,
        None => key.member.is_empty() || !all.of(&key.id).iter().any(|c| c.key.member.is_empty()),
    }
}

fn row(statement: &Statement, case: &Case, among: &Index<'_>, values: &[f64], offered: &[f64]) -> VerdictRow {
    let difference = statement.assertion.difference.as_ref();
    let other = difference.and_then(|d| among.of(&case.key.id).iter().find(|one| one.key.member == d.minus));
    let observations = match other {
        Some(other) => case.transactions.zip(other.transactions).map(|(a, b)| a.min(b)),
        None => case.transactions,
    };
    let mut judgement = super::judge(&statement.assertion, values, observations, statement.level, statement.judge)
        .at_offered(&statement.assertion, offered.iter().copied());
    if let (Some(difference), true) = (difference, values.is_empty()) {
        let (a, b) = (&difference.member, &difference.minus);
        judgement.reason = Some(format!("no iteration has a value of both members, {a} and {b}"));
    }
    debug_assert!(judgement.verdict != words::Verdict::Pass || judgement.n > 0);
    let mut row = of_assertion(&statement.assertion, &judgement, statement.severity);
    among.mark(case, &mut row);
    row.file.clone_from(&statement.file);
    (row.line, row.column) = (statement.line, statement.column);
    row
}
