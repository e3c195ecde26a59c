//! A comparison that is tested again and again while iterations are added, until it is decided.
//!
//! A test that is repeated until it says something says something false more often than once. The level of the intervals
//! therefore grows with the number of tests (Bonferroni: α over the tests of all comparisons): with 1 − α all of them hold
//! the true change, at every look. A statement needs the whole interval on one side of the smallest change that counts, so
//! a decision is false with at most α, however the looks depend on each other.

use schemas::{
    columns::VerdictRow,
    metrics::{Better, Metric},
};

use super::comparison::is_no_worse;

/// Numbers of iterations at which a comparison is tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks(Vec<u32>);

impl Looks {
    /// From the first number on, each twice the one before, and the last.
    pub fn new(first: u32, last: u32) -> Self {
        let doubled = std::iter::successors(Some(first.max(1)), |n| n.checked_mul(2));
        Self(doubled.take_while(|n| *n < last).chain([last]).collect())
    }

    pub fn has(&self, n: u32) -> bool {
        self.0.contains(&n)
    }

    pub fn first(&self) -> u32 {
        self.0[0]
    }

    pub fn last(&self) -> u32 {
        self.0[self.0.len() - 1]
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The statement of an interval about the smallest change that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Every value of the interval is a change for the worse that counts.
    Worse,
    /// None is.
    NoWorse,
    Undecided,
}

/// The statement of a comparison's row. A metric that is neither better nor worse gets worse by a change in either direction.
pub fn said(metric: &Metric, row: &VerdictRow) -> Said {
    let (Some(low), Some(high), Some(least)) = (row.ci_low, row.ci_high, row.limit) else { return Said::Undecided };
    let is_beyond = match metric.better {
        Better::Higher => high <= -least,
        Better::Lower => low >= least,
        Better::Neither => high <= -least || low >= least,
    };
    match () {
        () if is_beyond => Said::Worse,
        () if is_no_worse(metric.better, (low, high), least) => Said::NoWorse,
        () => Said::Undecided,
    }
}

#[cfg(test)]
mod tests;
