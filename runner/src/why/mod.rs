//! Proof of what limited a test: the one setting that its cause names is changed, in turns with the test as it was, and the
//! result must change as the cause promises. A cause that is confirmed is followed by the next one.
//!
//! - `changes`: the settings that a cause names, and what to expect of them
//! - `trial`: measures until each change is decided
//! - `finding`: the answer in rows and lines

pub mod changes;
pub mod finding;
pub mod trial;

use std::{collections::HashSet, sync::Arc, time::Duration};

use netcore::{
    control::key::Key,
    measure::clock::nanoseconds,
    spec::{Pattern, Stop, Transport},
};
use schemas::{
    columns::Row,
    metrics,
    run_record::RunRecord,
    words::{LimitedBy, Record},
};

use self::{
    changes::{Change, Expected},
    finding::{Answer, Cause, Finding},
    trial::{ChangeOutcome, FEWEST, MOST, Trial},
};
use crate::{
    campaign::{self, Options},
    error::Error,
    measure::plan::SETTLING,
    plan::{self, LoadOptions, Plan, case::Case, job::Job, model::Order},
    programs::{self, Allowed},
    progress::Progress,
    signals::Interrupts,
};

/// Most causes that are followed one after the other.
const MOST_CAUSES: usize = 3;

/// Longest measurement of a round, where the path is short.
const SHORT: Duration = Duration::from_secs(1);

/// Round trips that a measurement has room for: a window doubles with each of them.
const ROUND_TRIPS: f64 = 20.0;

/// Round trip under load, microseconds, from which on a stream may have lost in its slow start: a queue stood on the path.
const QUEUED_US: f64 = 2000.0;

/// The plan that is asked about.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, for messages.
    pub name: String,
    pub text: String,
    pub options: LoadOptions,
}

impl Source {
    /// The plan of a run, with the run's own overrides and then `options`. `Err`: the run is of several plans.
    pub fn of_run(record: &RunRecord, options: LoadOptions) -> Result<Self, String> {
        let [plan] = &record.plans[..] else { return Err(format!("the run is of {} plans", record.plans.len())) };
        Ok(Self { name: plan.path.clone(), text: plan.text.clone(), options: options.after(&plan.overrides) })
    }

    /// The plan, which may run no programs.
    pub fn load(&self) -> Result<Plan, Error> {
        let plan = self.read(&self.options)?;
        programs::permit(&plan, Allowed::default(), "why runs no programs: leave these tests out with --only\n")?;
        Ok(plan)
    }

    fn read(&self, options: &LoadOptions) -> Result<Plan, Error> {
        Ok(plan::load_str(&self.name, &self.text, options)?)
    }

    /// The plan with further values set, and the case that this one is in it; `None`: it has no such case.
    fn with(&self, case: &Case, sets: &[String]) -> Result<(Plan, Option<Case>), Error> {
        let LoadOptions { sets: own, hosts, .. } = self.options.clone();
        // With another value it has another name.
        let plan = self.read(&LoadOptions { sets: [&own, sets].concat(), only: Vec::new(), hosts })?;
        let is_it = |other: &&Case| other.test == case.test && other.axes == case.axes && same_pair(other, case);
        let found = plan.cases.iter().find(is_it).cloned();
        Ok((plan, found))
    }
}

/// Whether two cases of a test are between the same ends.
fn same_pair(a: &Case, b: &Case) -> bool {
    a.round.is_none() || a.members.first().map(|m| m.places()) == b.members.first().map(|m| m.places())
}

/// How changes are measured.
pub struct Means<'a> {
    pub key: Option<Key>,
    pub interrupts: &'a Interrupts,
    pub progress: Progress,
}

/// The rows of a run by which tests are asked about: the summaries that have a limit, one for each member. The length of a path is
/// the result of a probe, and limits nothing. The total of a group has no settings of its own.
pub fn limited(rows: impl IntoIterator<Item = Row>) -> Vec<Row> {
    let is_shown =
        |row: &Row| row.record == Some(Record::Summary) && row.limited_by.is_some() && !metrics::is_beside_load(row);
    let shown: Vec<Row> = rows.into_iter().filter(is_shown).collect();
    let of = |row: &Row| (row.case_id.clone(), row.member.clone());
    let members: HashSet<_> = shown.iter().filter(|row| row.member.is_some()).map(|row| row.case_id.clone()).collect();
    let mut seen = HashSet::new();
    let is_asked = |row: &Row| (row.member.is_some() || !members.contains(&row.case_id)) && seen.insert(of(row));
    shown.into_iter().filter(is_asked).collect()
}

/// Name of the test that a row of a case is about.
pub fn name(case: &Case, row: &Row) -> String {
    row.member.as_ref().map_or_else(|| case.name.clone(), |member| format!("{}/{member}", case.name))
}

/// The answer about one test, by the row that names its limit.
pub fn ask(source: &Source, case: &Case, row: &Row, means: &mut Means<'_>) -> Result<Answer, Error> {
    let member = case.members.iter().position(|m| Some(&m.name) == row.member.as_ref()).unwrap_or(0);
    let mut answer = Answer::new(name(case, row));
    let mut row = row.clone();
    for _ in 0..MOST_CAUSES {
        let mut step = Cause::of(&row);
        let known = match &case.members[member].job {
            _ if case.find.is_some() => Err("it is a search, whose loads differ"),
            Job::Traffic(spec) => changes::of(&row, spec),
            _ => Err("only tests between two ends have settings to change"),
        };
        let mut next = None;
        match known {
            Err(why) => step.nothing = Some(why.to_owned()),
            Ok(settings) => {
                let asked = Asked { source, case, member, sets: &answer.sets, row: &row };
                for setting in settings {
                    let (findings, best) = asked.tried(&setting, means)?;
                    step.findings.extend(findings);
                    next = next.or(best);
                }
            }
        }
        answer.causes.push(step);
        let Some((set, then)) = next else { break };
        answer.sets.push(set);
        // The same cause again is answered, and an unknown one names no setting.
        let is_new = |by: LimitedBy| by != LimitedBy::Unknown && answer.causes.iter().all(|known| known.by != by);
        if means.interrupts.requested() || !then.limited_by.is_some_and(is_new) {
            break;
        }
        row = then;
    }
    Ok(answer)
}

/// A test, and the row that names its limit.
struct Asked<'a> {
    source: &'a Source,
    case: &'a Case,
    member: usize,
    /// The changes that were confirmed before.
    sets: &'a [String],
    row: &'a Row,
}

/// A value of a setting, measured or not.
struct Trying {
    finding: Finding,
    /// As an override of the plan.
    set: String,
    case: Case,
}

/// A value that helped, as an override of the plan, and the row of the test with it.
type Best = (String, Row);

impl Asked<'_> {
    /// Measures the test in turns with each value of a setting. Returns what was found, and the best value of those that were confirmed
    /// and helped, as an override of the plan, with its row.
    fn tried(&self, setting: &Change, means: &mut Means<'_>) -> Result<(Vec<Finding>, Option<Best>), Error> {
        let (mut plan, was) = self.source.with(self.case, self.sets)?;
        let mut was = was.ok_or_else(|| Error::Usage(format!("the plan has no case {} any more", self.case.name)))?;
        shorten(&mut was, self.row);
        // What limits requests at a rate limits their number.
        let Some(metric) = setting.metric.or(was.members[self.member].job.headline()) else {
            return Ok((Vec::new(), None));
        };
        let (mut trying, mut findings) = (Vec::new(), Vec::new());
        for one in &setting.tries {
            let mut finding = Finding::of(setting, &one.value, metric, one.expected);
            let set = format!("{}{}={}", self.place(), setting.key, one.value);
            match self.source.with(self.case, &[self.sets, std::slice::from_ref(&set)].concat()) {
                Ok((_, Some(mut case))) if case.id != was.id => {
                    shorten(&mut case, self.row);
                    case.name = format!("{} with {}={}", was.name, setting.key, one.value);
                    trying.push(Trying { finding, set, case });
                }
                other => {
                    let key = setting.key;
                    finding.note = Some(match other {
                        Ok((_, Some(_))) => "it has this value already".to_owned(),
                        Ok((_, None)) => format!(
                            "the plan sweeps this key itself: plumb compare --by {key} RESULTS shows its effect"
                        ),
                        Err(error) => error.sentence(),
                    });
                    findings.push(finding);
                }
            }
        }
        if trying.is_empty() {
            return Ok((findings, None));
        }
        let expected: Vec<_> = trying.iter().map(|one| (one.case.id.clone(), one.finding.expected)).collect();
        let trial = Arc::new(Trial::new(metric, self.member, &was.id, &expected));
        plan.cases = std::iter::once(&was).chain(trying.iter().map(|one| &one.case)).cloned().collect();
        prepare(&mut plan);
        if means.progress.is_brief() {
            let values: Vec<&str> = trying.iter().map(|one| one.finding.to.as_str()).collect();
            let rounds = format!("{FEWEST} to {MOST} rounds, at most {}", plan.estimate());
            let change = format!("{} {} → {}", setting.key, setting.from, values.join(", "));
            means.progress.print(&format!("{}: trying {change}: {rounds}", was.name));
        }
        let options = Options { key: means.key.clone(), until: Some(Arc::clone(&trial) as _), ..Options::default() };
        let report = campaign::run(std::slice::from_ref(&plan), &options, None, means.interrupts, &mut means.progress)?;
        let failed =
            |case: &Case| report.failures().find(|(name, _)| **name == case.name).map(|(_, why)| why.to_owned());
        if let Some(why) = failed(&was) {
            return Err(Error::Measurement(format!("{}: {why}", was.name)));
        }
        let rows = limited(report.summaries.iter().cloned());
        let mut best: Option<(f64, String, Row)> = None;
        for (Trying { mut finding, set, case }, (comparison, said)) in trying.into_iter().zip(trial.judged()) {
            let is_it = |of: &&Row| {
                of.case_id.as_ref() == Some(&case.id)
                    && of.member.as_deref().unwrap_or("") == case.members[self.member].name
                    && of.direction == self.row.direction
            };
            let then = rows.iter().find(is_it);
            finding.note = failed(&case);
            finding.measured(&comparison, said, then);
            finding.is_cut = said == ChangeOutcome::Undecided && means.interrupts.requested();
            let gain = comparison.change.map_or(0.0, f64::abs);
            let helps = said == ChangeOutcome::Confirmed && !matches!(finding.expected, Expected::Same(_));
            if helps && best.as_ref().is_none_or(|(most, ..)| gain > *most) {
                best = Some((gain, set, then.cloned().unwrap_or_default()));
            }
            findings.push(finding);
        }
        Ok((findings, best.map(|(_, set, then)| (set, then))))
    }

    /// Path of its keys in the plan, with the last point.
    fn place(&self) -> String {
        match &*self.case.members[self.member].name {
            "" => format!("tests.{}.", self.case.test),
            member => format!("tests.{}.concurrent.members.{member}.", self.case.test),
        }
    }
}

/// Makes the measurements of a case as short as its path allows: twelve rounds of the plan's own length take minutes. Streams whose
/// slow start may last have a warm-up that suffices ([`SETTLING`]), though the plan's is shorter.
fn shorten(case: &mut Case, row: &Row) {
    if case.group.is_some() {
        return;
    }
    let trips = Duration::from_secs_f64((row.rtt_us.unwrap_or(0.0) * ROUND_TRIPS / 1e6).clamp(0.0, 60.0));
    let most = nanoseconds(SHORT.max(trips));
    for member in &mut case.members {
        if let Job::Traffic(spec) = &mut member.job
            && let Stop::AfterNs(length_ns) = &mut spec.phases.stop
        {
            let is_stream = spec.pattern == Pattern::Stream && spec.transport == Transport::Tcp;
            let lasts = spec.streams > 1 || row.rtt_us.is_some_and(|us| us >= QUEUED_US);
            let least = if is_stream && lasts { SETTLING } else { Duration::ZERO };
            *length_ns = (*length_ns).min(most);
            spec.phases.warmup_ns = spec.phases.warmup_ns.min(most).max(nanoseconds(least));
            spec.phases.settle_ns = spec.phases.settle_ns.min(most);
            spec.phases.cooldown_ns = 0;
        }
    }
}

/// A plan of cases that are compared with each other: in turns, and nothing is judged or written.
fn prepare(plan: &mut Plan) {
    plan.output = <_>::default();
    plan.gate = <_>::default();
    plan.baseline = None;
    plan.surveys.clear();
    plan.run.order = Some(Order::Interleave);
    for case in &mut plan.cases {
        case.asserts.clear();
        (case.stop_when, case.round, case.skip) = (None, None, None);
        (case.policy.min, case.policy.max, case.policy.margin) = (MOST, MOST, None);
    }
}

#[cfg(test)]
mod tests {
    use schemas::words::OfferedUnit;

    use super::*;

    #[test]
    fn requests_at_a_rate_are_asked_about_unless_they_are_a_probe_beside_a_load() {
        let of = |member: Option<&str>| Row {
            record: Some(Record::Summary),
            case_id: Some("c1".into()),
            workload: Some("tcp_rr".into()),
            offered_unit: Some(OfferedUnit::Transactions),
            limited_by: Some(LimitedBy::Pacing),
            member: member.map(str::to_owned),
            ..Row::default()
        };
        assert_eq!((limited([of(None)]).len(), limited([of(Some("probe"))]).len()), (1, 0));
    }
}
