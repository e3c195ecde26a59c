//! `stop_when`: the cases of a line run one after the other, and the rest is skipped once the condition holds.

use schemas::units::human;

use super::{Run, place_of};
use crate::error::Error;

impl Run<'_> {
    /// Whether an earlier case of its line has not ended.
    pub(super) fn waits(&self, i: usize) -> bool {
        let Some(first) = self.steps[i].line else { return false };
        (first..i).any(|j| self.steps[j].line == Some(first) && self.states[j].open)
    }

    /// Skips the rest of a case's line if the condition holds for the mean of its iterations.
    pub(super) fn leave_line(&mut self, i: usize) -> Result<(), Error> {
        let steps = self.steps;
        let Some((first, stop)) = steps[i].line.zip(steps[i].stop_when.as_ref()) else { return Ok(()) };
        // The total of a group, or of both directions.
        let Some(values) = self.states[i].result.values.values().next_back() else { return Ok(()) };
        let Some(place) = place_of(stop.that.metric.column) else { return Ok(()) };
        let values: Vec<f64> = values.iter().filter_map(|v| v[place]).collect();
        let Some(mean) = analyze::stats::moments::mean(&values) else { return Ok(()) };
        if !stop.that.operator.holds(mean, stop.that.limit) {
            return Ok(());
        }
        let reason =
            format!("stop_when: {} at {} ({})", stop.that.text, steps[i].name, human(stop.that.metric.unit, mean));
        for (j, step) in steps.iter().enumerate().skip(i + 1) {
            if step.line == Some(first) && self.states[j].open {
                self.leave_out(j, &reason)?;
            }
        }
        Ok(())
    }
}
