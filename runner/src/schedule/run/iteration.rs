//! One iteration of a case: measured, retried, and its rows written.

use std::{
    borrow::Cow,
    thread,
    time::{Duration, Instant},
};

use analyze::limits;
use netcore::{
    client::Outcome,
    report::{Ending, SideReport},
};
use schemas::{
    columns::Row,
    metrics::METRICS,
    run_record::Discarded,
    units::{Unit, human, margin},
    words::{LimitedBy, Phase, Record, Status, Way},
};

use super::{
    Failure, Run, Values,
    checked::{self, Apart},
    ending::{self, Cut, blank},
};
use crate::{
    error::Error,
    plan::{case::Policy, model::Window},
    schedule::{
        Bench, MeasureError, Measured,
        confidence::Samples,
        history::Done,
        rows::{
            self,
            group::{self, NoTotal, Part},
        },
        search::Next,
        step::Step,
    },
    signals::Interrupts,
};

/// Starts of an iteration that something disturbs: others take a CPU from a pair of a survey, or a receiver read what had
/// arrived earlier.
const DISTURBED_STARTS: u64 = 3;

/// Why an iteration has no usable result.
struct Spoiled {
    fault: MeasureError,
    /// The start skew, if its ends were not together.
    skew: Option<Duration>,
    /// Starts that it gets in all for that reason.
    starts: u64,
}

impl From<MeasureError> for Spoiled {
    fn from(fault: MeasureError) -> Self {
        Self { fault, skew: None, starts: 0 }
    }
}

/// Tries of an iteration.
struct Tries {
    /// Of those that failed.
    retries: u32,
    /// Of those whose ends were not together, or that others disturbed.
    starts: u64,
}

impl Default for Tries {
    fn default() -> Self {
        Self { retries: 0, starts: 1 }
    }
}

/// The outcome of a try.
enum Tried {
    Good(Measured),
    /// It failed, and another one follows.
    Again,
    /// It failed, or a signal ended it, and none follows.
    Ended,
}

impl Run<'_> {
    /// One iteration of a case, or of each case of a round at the same time. That of a search is its next probe.
    pub(super) fn iterate(&mut self, cases: &[usize], bench: &mut dyn Bench) -> Result<(), Error> {
        let steps = self.steps;
        let mut open = Vec::with_capacity(cases.len());
        for &i in cases {
            let step = match self.states[i].search.as_ref().map(|search| (search, search.next())) {
                Some((_, Next::Done(answer))) => {
                    self.answer(i, answer)?;
                    continue;
                }
                Some((search, Next::Probe(load))) => Cow::Owned(search.step(&steps[i], load)),
                None => Cow::Borrowed(&steps[i]),
            };
            open.push((i, step, Tries::default()));
        }
        while let Some((first, ..)) = open.first() {
            let first = *first;
            let pause = open.iter().map(|(_, step, _)| step.pause).max().unwrap_or_default();
            if !self.idle(pause) {
                return Ok(());
            }
            self.progress.iteration(self.position(first));
            let asked: Vec<_> = open.iter().map(|(i, step, _)| (&**step, self.states[*i].result.done + 1)).collect();
            let measured = bench.measure_round(&asked, self.progress);
            let mut again = Vec::new();
            for ((i, step, mut tries), measured) in open.into_iter().zip(measured) {
                let iteration = self.states[i].result.done + 1;
                match self.tried(i, &step, iteration, measured, &mut tries)? {
                    Tried::Good(measured) if self.states[i].search.is_some() => {
                        self.take_probe(i, &step, iteration, &measured)?;
                    }
                    Tried::Good(measured) => self.count(i, &step, iteration, &measured)?,
                    Tried::Again => again.push((i, step, tries)),
                    Tried::Ended => {}
                }
            }
            open = again;
        }
        Ok(())
    }

    /// Writes a good iteration, and ends its case if that is enough.
    fn count(&mut self, i: usize, step: &Step, iteration: u32, measured: &Measured) -> Result<(), Error> {
        let (rows, done) = self.rows_of(step, iteration, measured);
        if let Some(cut) = ending::of(step, measured, self.stop) {
            let sole = cut.has_numbers && self.states[i].result.done == 0;
            if self.stop.wants_cut() && sole {
                // The measurement until then is wanted, and is as the plan says.
                self.doubt(format!("case {}: its only iteration was {}", step.name, cut.sentence));
            } else {
                return self.cut_off(i, step, measured, rows, cut, iteration);
            }
        }
        // Rows last: with them the iteration is finished, even if the program crashes then.
        self.sink.reports(step, iteration, measured)?;
        self.sink.rows(&rows)?;
        self.absorb(i, &done);
        if self.has_enough(i) { self.conclude(i) } else { Ok(()) }
    }

    /// Keeps the rows of an iteration that does not count.
    pub(super) fn cut_off(
        &mut self,
        i: usize,
        step: &Step,
        measured: &Measured,
        mut rows: Vec<Row>,
        cut: Cut,
        iteration: u32,
    ) -> Result<(), Error> {
        ending::mark(&mut rows, &cut.sentence);
        self.sink.reports(step, iteration, measured)?;
        self.sink.rows(&rows)?;
        self.states[i].cut = Some(cut.sentence);
        Ok(())
    }

    /// Judges a try, and reports one that failed.
    fn tried(
        &mut self,
        i: usize,
        step: &Step,
        iteration: u32,
        measured: Result<Measured, MeasureError>,
        tries: &mut Tries,
    ) -> Result<Tried, Error> {
        let usable = measured.map_err(Spoiled::from).and_then(|m| usable(step, m, self.stop));
        let spoiled =
            match usable.and_then(|m| self.arrived(step, m, tries)).and_then(|m| self.undisturbed(step, m, tries)) {
                Ok(measured) => {
                    if measured.settled == Some(false) {
                        self.unsettled(step, iteration);
                    }
                    for doubt in checked::doubt(step, &measured).into_iter().chain(checked::earlier(step, &measured)) {
                        self.doubt(format!("case {}, iteration {iteration}: {doubt}", step.name));
                    }
                    self.states[i].out_of_order.extend(checked::out_of_order(step, &measured));
                    return Ok(Tried::Good(measured));
                }
                Err(spoiled) => spoiled,
            };
        // A signal that ends an iteration early does not fail its case.
        if self.stop.requested() {
            self.states[i].cut = Some(format!("{} in iteration {iteration}", ending::by(self.stop)));
            return Ok(Tried::Ended);
        }
        // A start whose ends were not together says nothing about the case: it has retries of its own.
        let which = if tries.starts < spoiled.starts {
            tries.starts += 1;
            format!("start {} of {}", tries.starts, spoiled.starts)
        } else if tries.retries < self.settings.retries {
            tries.retries += 1;
            format!("{} of {}", tries.retries, self.settings.retries)
        } else {
            let fault = spoiled.fault.clone();
            self.fault_row(step, iteration, fault.status(), &spoiled)?;
            self.fail(i, iteration, fault)?;
            return Ok(Tried::Ended);
        };
        let what = &spoiled.fault.message;
        self.doubt(Discarded { case: &step.name, iteration, reason: what, next: &which }.to_string());
        self.fault_row(step, iteration, Status::Discarded, &spoiled)?;
        Ok(Tried::Again)
    }

    /// Refuses an iteration whose rate is partly that of its warm-up, while it has starts left. The last one counts, with a
    /// doubt.
    fn arrived(&self, step: &Step, measured: Measured, tries: &Tries) -> Result<Measured, Spoiled> {
        let may_start = tries.starts < DISTURBED_STARTS && ending::of(step, &measured, self.stop).is_none();
        match checked::earlier(step, &measured).filter(|_| may_start) {
            None => Ok(measured),
            Some(message) => {
                Err(Spoiled { fault: MeasureError::failed(message), skew: None, starts: DISTURBED_STARTS })
            }
        }
    }

    /// Refuses a pair of a survey from which others took a CPU, while it has starts left: its slowness would be taken for
    /// that of its link. The last one counts, and its row tells what it lost.
    fn undisturbed(&mut self, step: &Step, measured: Measured, tries: &Tries) -> Result<Measured, Spoiled> {
        let Some(round) = &step.round else { return Ok(measured) };
        let (Some(member), Some(reports)) = (step.members.first(), measured.members.first()) else {
            return Ok(measured);
        };
        let Some(spec) = member.spec() else { return Ok(measured) };
        let rows = rows::of_iteration(&Row::default(), spec, &reports.near, reports.far.as_ref()).measured;
        let Some(taken) = rows.iter().filter_map(|(_, row)| row.cpu_taken_ratio).reduce(f64::max) else {
            return Ok(measured);
        };
        let known = self.cpu_taken.entry(round.survey.to_string()).or_default();
        let is_disturbed = limits::disturbed(known.clone())(taken);
        known.push(taken);
        if !is_disturbed || tries.starts >= DISTURBED_STARTS {
            return Ok(measured);
        }
        let message = format!("others took a CPU of its hosts for {} of the time", margin(taken));
        Err(Spoiled { fault: MeasureError::failed(message), skew: None, starts: DISTURBED_STARTS })
    }

    /// Warns that a warm-up ended at its bound.
    fn unsettled(&mut self, step: &Step, iteration: u32) {
        let longest = step.members.iter().filter_map(|m| m.spec()).map(|spec| spec.phases.warmup_ns).max().unwrap_or(0);
        let sentence = format!(
            "case {}, iteration {iteration}: the load was not flat when the warm-up came to its bound of {}: warmup: {{max: \
             …}} gives it longer",
            step.name,
            human(Unit::Seconds, longest as f64 / 1e9)
        );
        self.doubt(sentence);
    }

    /// Warns readers of the numbers, at once and below the results.
    pub(super) fn doubt(&mut self, sentence: String) {
        if !self.progress.is_brief() {
            self.progress.warn(&sentence);
        }
        self.sink.note(sentence);
    }

    /// Waits. `false`: the run is to end.
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

    /// The rows of an iteration to write, and those of them that count.
    pub(super) fn rows_of(&mut self, step: &Step, iteration: u32, measured: &Measured) -> (Vec<Row>, Done) {
        let mut done = Done::default();
        let mut written: Vec<Row> = Vec::new();
        for (m, ((member, identity), reports)) in step.members_with_identity().zip(&measured.members).enumerate() {
            let mut identity = identity.clone();
            identity.iteration = Some(iteration.into());
            identity.start_skew_us = measured.start_skew.map(|s| s.as_secs_f64() * 1e6);
            identity.settled = measured.settled;
            let Some(spec) = member.spec() else { continue };
            // The display may take intervals that the plan did not ask for.
            let intervals = spec.phases.interval_ns > 0;
            let mut made = rows::of_iteration(&identity, spec, &reports.near, reports.far.as_ref());
            if let Some(hook) = &measured.hook {
                rows::outage::with_hook(&mut made, hook, spec, reports);
            }
            for row in made.rows {
                if let Some(stream) = row.stream {
                    done.streams.push((m, stream, row.clone()));
                }
                if intervals || row.record != Some(Record::Interval) {
                    written.push(row);
                }
            }
            done.measured.extend(made.measured.into_iter().map(|(way, row)| (m, way, row)));
        }
        group::join(step, &mut written, &mut done.measured);
        if let Some(whole) = &measured.whole {
            let identity = Row { iteration: Some(iteration.into()), ..step.identity(0) };
            whole.add(&identity, step, &mut written, &mut done);
        }
        if let Some(row) = self.total(step, iteration, measured, &done.measured) {
            written.push(row.clone());
            done.measured.push((step.members.len(), Way::Both, row));
        }
        (written, done)
    }

    /// Counts an iteration, measured now or before an interruption.
    pub(super) fn absorb(&mut self, i: usize, done: &Done) {
        let step = &self.steps[i];
        let state = &mut self.states[i];
        // The headline: the total of a group, or of both directions.
        if let Some((_, _, row)) = done.measured.iter().max_by_key(|(m, way, _)| (*m, *way)) {
            state.samples.push(row);
        }
        for (m, way, row) in &done.measured {
            let own = || Samples::new(own_policy(step, *m));
            state.own.entry((*m, *way)).or_insert_with(own).push(row);
            state.result.values.entry((*m, *way)).or_default().push(values(row));
            state.summaries.entry((*m, *way)).or_default().push(row);
        }
        for (m, stream, row) in &done.streams {
            state.result.streams.entry((*m, *stream)).or_default().push(values(row));
        }
        state.result.done += 1;
    }

    /// The row of a group as a whole.
    fn total(&mut self, step: &Step, iteration: u32, measured: &Measured, rows: &[(usize, Way, Row)]) -> Option<Row> {
        let group = step.group.as_ref().filter(|group| group.has_total)?;
        let of = |m: usize| rows.iter().filter(move |(n, _, _)| *n == m).max_by_key(|(_, way, _)| *way).map(|r| &r.2);
        let parts: Vec<Part<'_>> = step
            .members
            .iter()
            .zip(&measured.members)
            .enumerate()
            .filter_map(|(m, (member, reports))| Some(Part { spec: member.spec()?, reports, row: of(m)? }))
            .collect();
        let identity = Row { iteration: Some(iteration.into()), ..group_identity(step, measured) };
        let why = match group::total_row(&identity, &parts, group.window == Window::Own) {
            Ok(row) => return Some(row),
            Err(NoTotal::Apart) => "the members never ran at the same time",
            Err(NoTotal::Uncut) if parts.iter().all(|part| part.spec.phases.interval_ns > 0) => {
                "the members share only a part of their windows, in which no interval of all of them lies; a longer \
                 `duration` or a shorter `interval` leaves one"
            }
            Err(NoTotal::Uncut) => {
                "the members share only a part of their windows, which cannot be cut out without intervals; set `interval`"
            }
        };
        let sentence = format!("case {}, iteration {iteration} has no total: {why}", step.name);
        self.doubt(sentence);
        None
    }

    fn fault_row(&mut self, step: &Step, iteration: u32, status: Status, spoiled: &Spoiled) -> Result<(), Error> {
        let faults = step.identities.iter().map(|identity| Row {
            start_skew_us: spoiled.skew.map(|s| s.as_secs_f64() * 1e6),
            iteration: Some(iteration.into()),
            phase: Some(Phase::Measure),
            ..blank(identity, step.measured_record(), status, &spoiled.fault.message)
        });
        self.sink.rows(&faults.collect::<Vec<_>>())
    }

    fn fail(&mut self, i: usize, iteration: u32, fault: MeasureError) -> Result<(), Error> {
        let name = &self.steps[i].name;
        let next = if self.settings.fail_fast {
            "the case is marked failed; nothing more is run (run.fail_fast is on)"
        } else if self.states.iter().enumerate().any(|(other, s)| other != i && s.open) {
            "the case is marked failed; going on with the next (run.fail_fast is off)"
        } else {
            "the case is marked failed"
        };
        // A host that is gone fails all its cases with the same words: they are told once, with their number at the end.
        if let Some(earlier) = self.failures.iter_mut().find(|earlier| earlier.message == fault.message) {
            earlier.more += 1;
        } else {
            let sentence = format!("case {name}, iteration {iteration}: {}", fault.message);
            self.progress.fault(&sentence, next);
            self.failures.push(Failure { message: fault.message.clone(), sentence, more: 0 });
        }
        if self.settings.fail_fast {
            self.give_up = Some(format!("run.fail_fast: {name} failed"));
        }
        self.states[i].result.failed = Some(fault);
        self.conclude(i)
    }
}

fn values(row: &Row) -> Values {
    METRICS.iter().map(|m| row.number(m.column)).chain([row.limited_by.map(LimitedBy::index)]).collect()
}

/// The cells that are equal in all members.
fn group_identity(step: &Step, measured: &Measured) -> Row {
    let mut row = step.identity(0);
    row.member = None;
    row.direction = Some(Way::Both);
    row.start_skew_us = measured.start_skew.map(|s| s.as_secs_f64() * 1e6);
    let same = |cell: fn(&Row) -> &Option<String>| step.identities.iter().all(|other| cell(other) == cell(&row));
    let (from, to, workload, transport) =
        (same(|r| &r.from), same(|r| &r.to), same(|r| &r.workload), same(|r| &r.transport));
    let size = |cell: fn(&Row) -> Option<u64>| step.identities.iter().all(|other| cell(other) == cell(&row));
    let (sent, received) = (size(|r| r.message_bytes), size(|r| r.receive_bytes));
    row.from = row.from.filter(|_| from);
    row.to = row.to.filter(|_| to);
    row.workload = row.workload.filter(|_| workload);
    row.transport = row.transport.filter(|_| transport);
    row.message_bytes = row.message_bytes.filter(|_| sent);
    row.receive_bytes = row.receive_bytes.filter(|_| received);
    row
}

/// Why a member failed. Both ends' reasons, if both failed: the one that lost its peer does not know why.
fn failure(reports: &Outcome) -> Option<String> {
    let said = |report: &SideReport| match &report.ending {
        Ending::Failed(message) => Some(message.clone()),
        _ => None,
    };
    match (said(&reports.near), reports.far.as_ref().and_then(said)) {
        (Some(near), Some(far)) if near != far => Some(format!("{near}; the far end: {far}")),
        (near, far) => near.or(far),
    }
}

/// Refuses a result if an end failed, or if its ends were not together. One that a signal cut off is judged by that.
fn usable(step: &Step, measured: Measured, interrupts: &Interrupts) -> Result<Measured, Spoiled> {
    let of_whole = || measured.whole.as_ref()?.failure(step);
    if let Some(message) = measured.members.iter().find_map(failure).or_else(of_whole) {
        return Err(MeasureError::failed(message).into());
    }
    match checked::apart(step, &measured).filter(|_| ending::of(step, &measured, interrupts).is_none()) {
        None => Ok(measured),
        Some(Apart { sentence: message, skew, starts }) => {
            Err(Spoiled { fault: MeasureError::failed(message), skew, starts })
        }
    }
}

/// The policy of a member's own summary row: the case's metrics, or in a group its own headline without a margin.
fn own_policy(step: &Step, member: usize) -> Policy {
    match step.members.get(member) {
        Some(one) if step.group.is_some() => {
            Policy { margin: None, metrics: one.headline().into_iter().collect(), ..step.policy.clone() }
        }
        _ => step.policy.clone(),
    }
}
