//! Runs of consecutive messages that were lost, from the numbers that leave the window unseen.

use super::MEASURE;
use crate::report::LossRuns;

/// Runs of the measure phase. Numbers are lost in ascending order.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub struct Losses {
    /// The latest run: from the first of these numbers to before the second.
    run: (u64, u64),
    /// Runs that have ended, between two messages of the measure phase.
    ended: LossRuns,
    /// Phase of the message with the highest number; [`usize::MAX`]: none yet.
    present: usize,
    /// Lowest number of the measure phase that has arrived ([`u64::MAX`]: none yet), and the highest plus 1
    /// ([`u64::MAX`]: it still goes on).
    measure: (u64, u64),
}

impl Default for Losses {
    fn default() -> Self {
        Self { run: (0, 0), ended: LossRuns::default(), present: usize::MAX, measure: (u64::MAX, u64::MAX) }
    }
}

impl Losses {
    /// Whether a message with the highest number so far begins another phase.
    #[inline]
    pub fn is_turn(&self, phase: usize) -> bool {
        phase != self.present
    }

    /// Begins a phase with this number; `next`: the highest number before, plus 1.
    #[cold]
    pub fn turn(&mut self, phase: usize, number: u64, next: u64) {
        if self.present == MEASURE {
            self.measure.1 = next;
        }
        if phase == MEASURE {
            self.measure = (self.measure.0.min(number), u64::MAX);
        }
        self.present = phase;
    }

    /// Counts a message of the measure phase that came after one with a higher number.
    #[cold]
    pub fn come_late(&mut self, number: u64) {
        let (first, end) = self.measure;
        self.measure = if first == u64::MAX { (number, number + 1) } else { (first.min(number), end.max(number + 1)) };
    }

    #[cold]
    pub fn lose(&mut self, number: u64) {
        self.lose_all(number, number + 1);
    }

    /// Loses the numbers from `start` to before `end`.
    pub fn lose_all(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if start != self.run.1 {
            self.end_run();
            self.run.0 = start;
        }
        self.run.1 = end;
    }

    /// Counts the latest run if messages of the measure phase arrived on both sides of it.
    fn end_run(&mut self) {
        let (start, end) = self.run;
        if start < end && start > self.measure.0 && end < self.measure.1 {
            self.ended.add(end - start);
        }
    }

    /// The runs of the measure phase, once no number is missing any more; `next`: the highest number plus 1.
    pub fn finish(&mut self, next: u64) -> LossRuns {
        self.measure.1 = self.measure.1.min(next);
        self.end_run();
        self.run = (0, 0);
        let (first, end) = self.measure;
        if first == u64::MAX { LossRuns::default() } else { LossRuns { first, end, ..self.ended } }
    }
}
