//! A metric: what a column with one says about it.

use crate::units::{Range, Unit};

crate::words! {
    /// The direction in which a metric improves.
    Better {
        /// More is better.
        Higher = "higher",
        /// Less is better.
        Lower = "lower",
        /// Neither: it describes the run.
        Neither = "neither",
    }

    /// The way in which values of a metric combine when rows are condensed.
    Kind {
        /// Work per time: condensed as Σwork ÷ Σtime within an iteration, as the mean over iterations.
        Rate = "rate",
        /// A count: sums within an iteration.
        Count = "count",
        /// A statistic of a distribution: never averaged within an iteration, only recomputed from histograms.
        Distribution = "distribution",
        /// A state or share at a moment or over a window.
        Gauge = "gauge",
    }
}

/// A quantity that people compare, assert on and plot.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in plans and on command lines: `throughput`, `latency.p99`.
    pub name: &'static str,
    /// The column that holds it.
    pub column: &'static str,
    /// The unit of that column.
    pub unit: Unit,
    /// The direction in which it improves.
    pub better: Better,
    /// The way in which its values combine.
    pub kind: Kind,
    /// Its name for people, on an axis or in a table.
    pub label: &'static str,
    /// The values that it can have, where the unit does not say it.
    pub(crate) own_range: Option<Range>,
}

impl Metric {
    /// The values that it can have, in the unit of its column. No interval, axis or limit reaches beyond them.
    pub fn range(&self) -> Range {
        self.own_range.unwrap_or(self.unit.range())
    }
}
