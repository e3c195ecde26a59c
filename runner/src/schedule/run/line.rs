//! `stop_when`: the cases of a line run one after the other, and the rest of them not at all once something holds.

use schemas::{metrics::METRICS, units::human};

use super::Run;
use crate::error::Error;

impl Run<'_> {
    /// Whether a case of its line that comes before it has not ended.
    pub(super) fn waits(&self, i: usize) -> bool {
        let Some(line) = &self.steps[i].stop else { return false };
        (line.first..i).any(|j| self.is_on(j, line.first) && self.states[j].open)
    }

    fn is_on(&self, i: usize, first: usize) -> bool {
        self.steps[i].stop.as_ref().is_some_and(|line| line.first == first)
    }

    /// Leaves the rest of a case's line out if the case says so, by the mean over its iterations.
    pub(super) fn leave_line(&mut self, i: usize) -> Result<(), Error> {
        let steps = self.steps;
        let Some(line) = &steps[i].stop else { return Ok(()) };
        let metric = METRICS.iter().position(|m| m.name == line.that.metric.name);
        // The total of a group, or both directions together where there are two.
        let Some((values, at)) = self.states[i].values.values().next_back().zip(metric) else { return Ok(()) };
        let values: Vec<f64> = values.iter().filter_map(|v| v[at]).collect();
        let Some(mean) = analyze::stats::moments::mean(&values) else { return Ok(()) };
        if !line.that.operator.holds(mean, line.that.limit) {
            return Ok(());
        }
        let reason =
            format!("stop_when: {} at {} ({})", line.that.text, steps[i].name, human(line.that.metric.unit, mean));
        for j in i + 1..steps.len() {
            if self.is_on(j, line.first) && self.states[j].open {
                self.leave_out(j, &reason)?;
            }
        }
        Ok(())
    }
}
