//! A search: its iterations are probes, and its answer is the result of the case.

use std::time::Duration;

use schemas::{
    columns::Row,
    words::{Phase, Record, Search as Finding},
};

use super::{Run, cut};
use crate::{
    error::Error,
    schedule::{
        bench::{Bench, Measured},
        history::Done,
        search::{Answer, Next, Search},
        step::Step,
    },
};

impl Run<'_> {
    /// Runs the next probe of a search, or ends it if none is needed.
    pub(super) fn probe(&mut self, i: usize, bench: &mut dyn Bench) -> Result<(), Error> {
        let step = &self.steps[i];
        let Some(search) = &self.states[i].search else { return Ok(()) };
        let load = match search.next() {
            Next::Probe(load) => load,
            Next::Done(answer) => return self.answer(i, answer),
        };
        let at_load = search.step(step, load);
        let number = self.states[i].result.done + 1;
        let Some(measured) = self.attempt(i, &at_load, number, bench)? else { return Ok(()) };
        self.take_probe(i, &at_load, number, &measured)?;
        self.answer_if_known(i)
    }

    fn take_probe(&mut self, i: usize, at_load: &Step, number: u32, measured: &Measured) -> Result<(), Error> {
        let (mut rows, mut done) = self.rows_of(at_load, number, measured);
        let of_probe = |row: &&mut Row| row.record == Some(Record::Iteration);
        for row in rows.iter_mut().chain(done.measured.iter_mut().map(|(_, _, row)| row)).filter(of_probe) {
            row.record = Some(Record::Probe);
        }
        if let Some(cut) = cut::of(at_load, measured, self.stop) {
            return self.cut_off(i, at_load, measured, rows, cut, number);
        }
        // The bound of the clocks' error is half of the fastest round trip.
        let round_trip_ns = measured.members.iter().map(|ends| ends.clock_bound_ns.saturating_mul(2)).max();
        let showed = self.absorb_probe(i, done, Duration::from_nanos(round_trip_ns.unwrap_or(0)));
        for row in rows.iter_mut().filter(|r| r.phase == Some(Phase::Measure)) {
            row.search = showed;
        }
        self.sink.reports(at_load, number, measured)?;
        self.sink.rows(&rows)
    }

    /// Counts a probe, measured now or before an interruption. Returns its finding. `delay`: the longest that data may be on
    /// their way.
    pub(super) fn absorb_probe(&mut self, i: usize, done: Done, delay: Duration) -> Option<Finding> {
        let state = &mut self.states[i];
        state.result.done += 1;
        state.search.as_mut()?.take(done, delay)
    }

    /// Ends a search if it needs no more probes.
    pub(super) fn answer_if_known(&mut self, i: usize) -> Result<(), Error> {
        match self.states[i].search.as_ref().map(Search::next) {
            Some(Next::Done(answer)) => self.answer(i, answer),
            _ => Ok(()),
        }
    }

    /// Ends a search. The probes of the answer's load become the iterations of the case.
    pub(super) fn answer(&mut self, i: usize, answer: Answer) -> Result<(), Error> {
        let step = &self.steps[i];
        let Some(mut search) = self.states[i].search.take() else { return Ok(()) };
        let sentence = search.sentence(&step.name, &answer);
        let state = &mut self.states[i];
        (state.result.numbers, state.result.done) = (state.result.done, 0);
        let mut rows = Vec::new();
        for mut done in answer.held.map(|load| search.release(load)).unwrap_or_default() {
            let number = self.states[i].result.done + 1;
            for (_, _, row) in &mut done.measured {
                row.record = Some(Record::Iteration);
                row.iteration = Some(number.into());
                row.search = None;
                rows.push(row.clone());
            }
            for (_, _, row) in &mut done.streams {
                row.iteration = Some(number.into());
            }
            self.absorb(i, &done);
        }
        self.sink.rows(&rows)?;
        let above = answer.above.and_then(|load| search.in_rows(load));
        self.states[i].answer = Some((answer.outcome, above));
        self.states[i].result.answer = Some(sentence.clone());
        match answer.outcome {
            Finding::Found | Finding::AtLeast => self.progress.note(&sentence),
            _ => self.progress.warn(&sentence),
        }
        self.sink.note(sentence);
        self.conclude(i)
    }
}
