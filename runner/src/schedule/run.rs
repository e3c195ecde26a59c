//! The loop: next case, next iteration, rows out, enough?
//!
//! The loop knows no socket: whoever measures is behind [`Bench`], so that every rule here is tested without a network.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use netcore::{
    control::stop::{StopFlag, Urgency},
    report::{Ending, SideReport},
};
use schemas::{columns::Row, metrics::METRICS};

use super::{
    confidence::{Policy, Samples},
    history::{Done, History},
    order,
    rows::{
        self,
        summary::Summary,
        total::{self, NoTotal, Part},
        window::Way,
    },
    step::{Member, Step},
};
use crate::{
    error::Error,
    plan::{measures, model::Order},
    sinks::progress::{Position, Progress},
};

/// How the cases are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The order of iterations.
    pub order: Order,
    /// Seed of the random order.
    pub seed: u64,
    /// Stop at the first case that fails.
    pub fail_fast: bool,
    /// How often a failed iteration is tried again.
    pub retries: u32,
}

/// Whoever can run one iteration.
pub trait Bench {
    /// Runs all members of a step once, at the same time.
    fn measure(&mut self, step: &Step, progress: &mut Progress) -> Result<Measured, Fault>;
}

/// What came out of one iteration.
#[derive(Debug)]
pub struct Measured {
    /// The reports, member by member.
    pub members: Vec<Reports>,
    /// The largest difference between the instants at which ends started to measure.
    pub start_skew: Option<Duration>,
}

/// What the two ends of a member reported.
#[derive(Debug)]
pub struct Reports {
    /// The end that opened the connections.
    pub near: SideReport,
    /// The end that accepted them.
    pub far: SideReport,
    /// When the near end's measure phase began, nanoseconds on the conductor's monotonic clock.
    pub near_start_ns: Option<u64>,
    /// The same of the far end.
    pub far_start_ns: Option<u64>,
}

/// Why an iteration has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whether it took too long, as opposed to having failed.
    pub timeout: bool,
    /// The sentence.
    pub message: String,
}

/// Where rows go.
pub trait RowSink {
    /// Takes rows as soon as they are known: those of an iteration together, so that a crash leaves all of them or none.
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error>;
    /// Takes what the ends said about themselves in an iteration.
    fn reports(&mut self, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error>;
    /// Whether nobody reads any more, so that going on is of no use.
    fn is_closed(&self) -> bool;
}

/// The values of every metric in one iteration's row, in the registry's order.
pub type Values = Vec<Option<f64>>;

/// A case after the run.
#[derive(Debug)]
pub struct Finished {
    /// Iterations with a result.
    pub done: u32,
    /// Why it failed.
    pub failed: Option<Fault>,
    /// Why it did not run, or not to its end.
    pub skipped: Option<String>,
    /// Summary rows, member by member and way by way; the total of a group stands behind its last member.
    pub summaries: Vec<(usize, Way, Row)>,
    /// Values by member and way, iteration by iteration: what is judged.
    pub values: BTreeMap<(usize, Way), Vec<Values>>,
    /// The same by member and stream.
    pub streams: BTreeMap<(usize, u64), Vec<Values>>,
}

struct State {
    samples: Samples,
    /// The headline of each member and way by itself, for its own summary row.
    own: BTreeMap<(usize, Way), Samples>,
    done: u32,
    open: bool,
    failed: Option<Fault>,
    skipped: Option<String>,
    summaries: BTreeMap<(usize, Way), Summary>,
    values: BTreeMap<(usize, Way), Vec<Values>>,
    streams: BTreeMap<(usize, u64), Vec<Values>>,
    written: Vec<(usize, Way, Row)>,
}

/// Runs the steps to their ends, from where `history` (empty: the beginning) left them, and says what became of each. Only output that cannot be written ends it early.
pub fn run(
    steps: &[Step],
    settings: Settings,
    history: &History,
    bench: &mut dyn Bench,
    sink: &mut dyn RowSink,
    progress: &mut Progress,
    stop: &StopFlag,
) -> Result<Vec<Finished>, Error> {
    let mut run =
        Run { steps, settings, sink, progress, stop, states: steps.iter().map(State::new).collect(), give_up: None };
    for (i, step) in steps.iter().enumerate() {
        if let Some(reason) = &step.skip {
            run.skip(i, reason)?;
        }
    }
    for (i, done) in history.iter().enumerate().filter(|(_, done)| !done.is_empty()) {
        for iteration in done {
            run.absorb(i, iteration);
        }
        let state = &run.states[i];
        if state.open && state.samples.enough(state.done) {
            run.conclude(i)?;
        }
    }
    loop {
        let done: Vec<Option<u32>> = run.states.iter().map(|s| s.open.then_some(s.done)).collect();
        let round = order::round(settings.order, settings.seed, &done);
        if round.is_empty() || run.over() {
            break;
        }
        for i in round {
            if !run.over() {
                run.iterate(i, bench)?;
            }
        }
    }
    run.close()?;
    Ok(run.states.into_iter().map(State::finish).collect())
}

struct Run<'a> {
    steps: &'a [Step],
    settings: Settings,
    sink: &'a mut dyn RowSink,
    progress: &'a mut Progress,
    stop: &'a StopFlag,
    states: Vec<State>,
    /// Why nothing more is run.
    give_up: Option<String>,
}

impl State {
    fn new(step: &Step) -> Self {
        Self {
            samples: Samples::new(step.policy.clone()),
            own: BTreeMap::new(),
            done: 0,
            open: true,
            failed: None,
            skipped: None,
            summaries: BTreeMap::new(),
            values: BTreeMap::new(),
            streams: BTreeMap::new(),
            written: Vec::new(),
        }
    }

    fn finish(self) -> Finished {
        Finished {
            done: self.done,
            failed: self.failed,
            skipped: self.skipped,
            summaries: self.written,
            values: self.values,
            streams: self.streams,
        }
    }
}

impl Run<'_> {
    fn over(&self) -> bool {
        self.give_up.is_some() || self.sink.is_closed() || self.stop.urgency() != Urgency::None
    }

    /// One iteration of one case, with its retries.
    fn iterate(&mut self, i: usize, bench: &mut dyn Bench) -> Result<(), Error> {
        let step = &self.steps[i];
        let iteration = self.states[i].done + 1;
        for attempt in 0..=self.settings.retries {
            if !self.idle(step.pause) {
                return Ok(());
            }
            self.progress.iteration(self.position(i));
            match bench.measure(step, self.progress).and_then(|m| usable(step, m)) {
                Ok(measured) => {
                    self.take(i, iteration, &measured)?;
                    let state = &self.states[i];
                    if state.samples.enough(state.done) {
                        self.conclude(i)?;
                    }
                    return Ok(());
                }
                // A signal that ended it before there was anything to count is no fault of the case.
                Err(_) if self.stop.urgency() != Urgency::None => return Ok(()),
                Err(fault) if attempt < self.settings.retries => {
                    self.progress.warn(&format!(
                        "case {}, iteration {iteration}: {}; trying again ({} of {})",
                        step.name,
                        fault.message,
                        attempt + 1,
                        self.settings.retries
                    ));
                    self.fault_row(i, iteration, "discarded", &fault)?;
                }
                Err(fault) => {
                    self.fault_row(i, iteration, if fault.timeout { "timeout" } else { "failed" }, &fault)?;
                    return self.fail(i, iteration, fault);
                }
            }
        }
        Ok(())
    }

    /// Waits, unless the run is to end; says whether it goes on.
    fn idle(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while !self.over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        false
    }

    fn take(&mut self, i: usize, iteration: u32, measured: &Measured) -> Result<(), Error> {
        let step = &self.steps[i];
        let mut done = Done::default();
        let mut written: Vec<Row> = Vec::new();
        for (m, (member, reports)) in step.members.iter().zip(&measured.members).enumerate() {
            let mut identity = member.identity.clone();
            identity.iteration = Some(iteration.into());
            identity.start_skew_us = measured.start_skew.map(|s| s.as_secs_f64() * 1e6);
            let made = rows::of_iteration(&identity, &member.spec, &reports.near, &reports.far);
            for row in made.rows {
                if let Some(stream) = row.stream {
                    done.streams.push((m, stream, row.clone()));
                }
                if member.intervals || row.record.as_deref() != Some("interval") {
                    written.push(row);
                }
            }
            done.measured.extend(made.measured.into_iter().map(|(way, row)| (m, way, row)));
        }
        if let Some(row) = self.total(step, iteration, measured, &done.measured) {
            written.push(row.clone());
            done.measured.push((step.members.len(), Way::Both, row));
        }
        // The rows come last: with them the iteration is finished, whatever happens then.
        self.sink.reports(step, iteration, measured)?;
        self.sink.rows(&written)?;
        self.absorb(i, &done);
        Ok(())
    }

    /// Lets an iteration count, measured just now or before an interruption.
    fn absorb(&mut self, i: usize, done: &Done) {
        let step = &self.steps[i];
        let state = &mut self.states[i];
        // The headline: the total of a group, or both directions together where there are two.
        if let Some((_, _, row)) = done.measured.iter().max_by_key(|(m, way, _)| (*m, *way)) {
            state.samples.push(row);
        }
        for (m, way, row) in &done.measured {
            let own = || Samples::new(own_policy(step, *m));
            state.own.entry((*m, *way)).or_insert_with(own).push(row);
            state.values.entry((*m, *way)).or_default().push(values(row));
            state.summaries.entry((*m, *way)).or_default().push(row);
        }
        for (m, stream, row) in &done.streams {
            state.streams.entry((*m, *stream)).or_default().push(values(row));
        }
        state.done += 1;
    }

    /// The row of a group as a whole.
    fn total(&self, step: &Step, iteration: u32, measured: &Measured, rows: &[(usize, Way, Row)]) -> Option<Row> {
        let group = step.group.as_ref()?;
        let of = |m: usize| rows.iter().filter(move |(n, _, _)| *n == m).max_by_key(|(_, way, _)| *way).map(|r| &r.2);
        let parts: Vec<Part<'_>> = step
            .members
            .iter()
            .zip(&measured.members)
            .enumerate()
            .filter_map(|(m, (member, reports))| Some(Part { spec: &member.spec, reports, row: of(m)? }))
            .collect();
        let identity = Row { iteration: Some(iteration.into()), ..group_identity(step, measured) };
        match total::row(&identity, &parts, group.own_windows) {
            Ok(row) => Some(row),
            Err(NoTotal::Apart) => {
                self.progress.warn(&format!("case {}: its members never ran at the same time: no total", step.name));
                None
            }
            Err(NoTotal::Uncut) => {
                self.progress.warn(&format!(
                    "case {}: its members share only a part of their windows, which cannot be cut out without \
                     intervals: no total; set `interval`",
                    step.name
                ));
                None
            }
        }
    }

    fn fault_row(&mut self, i: usize, iteration: u32, status: &str, fault: &Fault) -> Result<(), Error> {
        let mut faults = Vec::new();
        for member in &self.steps[i].members {
            let mut row = blank(member, "iteration", status, &fault.message);
            row.iteration = Some(iteration.into());
            row.phase = Some("measure".into());
            faults.push(row);
        }
        self.sink.rows(&faults)
    }

    fn fail(&mut self, i: usize, iteration: u32, fault: Fault) -> Result<(), Error> {
        let name = &self.steps[i].name;
        let next = if self.settings.fail_fast {
            "the case is marked failed; nothing more is run (run.fail_fast is on)"
        } else if self.states.iter().enumerate().any(|(other, s)| other != i && s.open) {
            "the case is marked failed; going on with the next (run.fail_fast is off)"
        } else {
            "the case is marked failed"
        };
        self.progress.fault(&format!("case {name}, iteration {iteration}: {}\n       {next}", fault.message));
        if self.settings.fail_fast {
            self.give_up = Some(format!("run.fail_fast: {name} failed"));
        }
        self.states[i].failed = Some(fault);
        self.conclude(i)
    }

    /// Writes what the iterations of a case say together.
    fn conclude(&mut self, i: usize) -> Result<(), Error> {
        let step = &self.steps[i];
        self.states[i].open = false;
        let state = &self.states[i];
        let mut rows = Vec::new();
        for ((m, way), summary) in &state.summaries {
            let Some(mut row) = summary.row() else { continue };
            confidence_cells(&mut row, state.own.get(&(*m, *way)).unwrap_or(&state.samples));
            if let Some(fault) = &state.failed {
                row.status = Some(if fault.timeout { "timeout" } else { "failed" }.into());
                row.error = Some(fault.message.clone());
            }
            rows.push((*m, *way, row));
        }
        if let Some(fault) = state.failed.as_ref().filter(|_| rows.is_empty()) {
            let status = if fault.timeout { "timeout" } else { "failed" };
            for (m, member) in step.members.iter().enumerate() {
                let mut row = blank(member, "summary", status, &fault.message);
                row.iterations = Some(0);
                rows.push((m, *rows::ways(member.spec.direction).last().unwrap_or(&Way::Forward), row));
            }
        }
        let written: Vec<Row> = rows.iter().map(|(_, _, row)| row.clone()).collect();
        self.sink.rows(&written)?;
        self.doubts(i);
        self.states[i].written = rows;
        Ok(())
    }

    /// Says loudly what a person should know before relying on the numbers.
    fn doubts(&self, i: usize) {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let policy = state.samples.policy();
        if let (Some(goal), Some(false)) = (policy.margin, state.samples.confident()) {
            for (metric, reached) in policy.metrics.iter().zip(state.samples.reached()) {
                if reached.margin.is_some_and(|m| m <= goal) {
                    continue;
                }
                let what = reached.margin.map_or_else(
                    || "has no margin (too few values, or a mean of zero)".to_owned(),
                    |m| format!("reached ±{:.1} % of its mean", m * 100.0),
                );
                let needed = reached
                    .needed
                    .map_or_else(|| "no number of iterations is in sight".into(), |n| format!("about {n} iterations"));
                self.progress.warn(&format!(
                    "case {}: {} {what} after {} iterations, not the ±{:.1} % asked for; its variation would need {needed}",
                    step.name,
                    metric.name,
                    state.done,
                    goal * 100.0,
                ));
            }
        }
        if let Some(r) = state.samples.serial_correlation().filter(|r| *r > 0.4) {
            self.progress.warn(&format!(
                "case {}: successive iterations resemble each other (lag-1 correlation {r:.2}): its interval is too narrow",
                step.name
            ));
        }
    }

    fn skip(&mut self, i: usize, reason: &str) -> Result<(), Error> {
        let rows: Vec<Row> = self.steps[i].members.iter().map(|m| blank(m, "summary", "skipped", reason)).collect();
        self.sink.rows(&rows)?;
        self.states[i].open = false;
        self.states[i].skipped = Some(reason.to_owned());
        Ok(())
    }

    /// What was open when the run ended: its summary as far as it got, or a row that says why there is none.
    fn close(&mut self) -> Result<(), Error> {
        let reason = self.give_up.clone().unwrap_or_else(|| "interrupted before it ran".to_owned());
        for i in 0..self.steps.len() {
            if !self.states[i].open {
                continue;
            }
            if self.states[i].done > 0 {
                self.conclude(i)?;
                self.states[i].skipped = Some(reason.clone());
            } else {
                self.skip(i, &reason)?;
            }
        }
        Ok(())
    }

    fn position(&self, i: usize) -> Position {
        let (step, state) = (&self.steps[i], &self.states[i]);
        let left = self.steps.iter().zip(&self.states).filter(|(_, s)| s.open);
        Position {
            case: i + 1,
            cases: self.steps.len(),
            name: step.name.clone(),
            iteration: state.done + 1,
            min: step.policy.min,
            max: step.policy.max,
            margin: state.samples.worst_margin(),
            goal: step.policy.margin,
            left: left.map(|(step, s)| step.cost() * step.policy.min.saturating_sub(s.done).max(1)).sum(),
        }
    }
}

fn values(row: &Row) -> Values {
    METRICS.iter().map(|m| row.number(m.column)).collect()
}

/// What all members have in common.
fn group_identity(step: &Step, measured: &Measured) -> Row {
    let mut row = step.members[0].identity.clone();
    row.member = None;
    row.direction = Some(Way::Both.name().into());
    row.start_skew_us = measured.start_skew.map(|s| s.as_secs_f64() * 1e6);
    let same = |cell: fn(&Row) -> &Option<String>| step.members.iter().all(|m| cell(&m.identity) == cell(&row));
    let (from, to, workload, transport) =
        (same(|r| &r.from), same(|r| &r.to), same(|r| &r.workload), same(|r| &r.transport));
    let sizes = step.members.iter().all(|m| m.identity.message_bytes == row.message_bytes);
    row.from = row.from.filter(|_| from);
    row.to = row.to.filter(|_| to);
    row.workload = row.workload.filter(|_| workload);
    row.transport = row.transport.filter(|_| transport);
    row.message_bytes = row.message_bytes.filter(|_| sizes);
    row.receive_bytes = row.receive_bytes.filter(|_| sizes);
    row
}

/// Takes out of a result what spoils it: an end that failed, a start that was not together.
fn usable(step: &Step, measured: Measured) -> Result<Measured, Fault> {
    for reports in &measured.members {
        for report in [&reports.near, &reports.far] {
            if let Ending::Failed(message) = &report.ending {
                return Err(Fault { timeout: false, message: message.clone() });
            }
        }
    }
    if let (Some(most), Some(skew)) = (step.group.as_ref().map(|g| g.max_skew), measured.start_skew)
        && skew > most
    {
        let us = |d: Duration| d.as_micros();
        let message = format!("the members started {} µs apart, more than the {} µs allowed", us(skew), us(most));
        return Err(Fault { timeout: false, message });
    }
    Ok(measured)
}

/// A row that says that there is none.
fn blank(member: &Member, record: &str, status: &str, error: &str) -> Row {
    let mut row = member.identity.clone();
    row.record = Some(record.into());
    row.status = Some(status.into());
    row.error = Some(error.into());
    row.time = rows::window::timestamp(jiff::Timestamp::now().as_nanosecond().try_into().unwrap_or(i64::MAX));
    row
}

/// What a member's own summary row is about: the case's metrics, or in a group its own headline, which promised nothing.
fn own_policy(step: &Step, member: usize) -> Policy {
    match step.members.get(member) {
        Some(one) if step.group.is_some() => {
            Policy { margin: None, metrics: vec![measures::headline(&one.spec)], ..step.policy.clone() }
        }
        _ => step.policy.clone(),
    }
}

fn confidence_cells(row: &mut Row, samples: &Samples) {
    let policy = samples.policy();
    row.confidence_level = Some(policy.level);
    row.margin_ratio = samples.worst_margin();
    row.margin_goal_ratio = policy.margin;
    row.confident = samples.confident();
    row.stddev = samples.stddev();
    row.drift_ratio = samples.drift_ratio();
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
