//! Why a test was not faster: one cause and its evidence, from the columns of one row.
//!
//! A cause is named if its evidence is strong and no other evidence contradicts it. Otherwise the answer is `unknown`, with
//! the numbers: a wrong answer is worse than none.
//!
//! - `evidence`: the cells of a row, by sender and receiver
//! - `thresholds`: every threshold, with its reason
//! - `ends`: rules that hold for every test: CPU, offered load, wire
//! - `tcp`, `datagrams`, `trips`: the rules of each kind of test
//! - `path`: the rules of a link between the ends that is full
//! - `tally`: the cause on which the iterations of a case agree
//! - `lines`: the lines below a table
//! - [`hops`]: at which link of the path the queue stands
//! - `taken`: whether others took a CPU from the test
//! - `unsteady`: why the iterations of a case differ

mod datagrams;
mod ends;
mod evidence;
pub mod hops;
mod lines;
mod path;
mod taken;
mod tally;
mod tcp;
mod thresholds;
mod trips;
mod unsteady;

use schemas::{
    columns::{COLUMNS, Row},
    metrics::Family,
    units::{Unit, human, margin},
    words::{Control, LimitedBy, Status},
};

use evidence::Evidence;
pub use lines::{intro, lines};
pub use taken::{disturbed, taken};
pub use tally::{Tally, agreed, both_ways};
pub use unsteady::unsteady;

/// Stands between a sentence and what could not be looked at for it.
const UNSEEN: &str = "; this could not be seen: ";

/// The answer to why a test was not faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub by: LimitedBy,
    /// Share of the time, or of what was possible, for which the cause held, 0 … 1.
    pub ratio: Option<f64>,
    /// The evidence, in a sentence without its full stop.
    pub because: String,
}

impl Limit {
    fn named(by: LimitedBy, ratio: f64, because: String) -> Self {
        Self { by, ratio: ratio.is_finite().then(|| ratio.clamp(0.0, 1.0)), because }
    }

    fn unknown(because: String) -> Self {
        Self { by: LimitedBy::Unknown, ratio: None, because }
    }

    /// Writes it into the cells of a row.
    pub fn fill(self, row: &mut Row) {
        row.limited_by = Some(self.by);
        row.limited_ratio = self.ratio;
        row.limited_because = Some(self.because);
    }
}

/// The limit of a row's test. `missing` has a sentence for each kind of evidence that a host does not show. `None`: the
/// row is of no test between two ends, or has no result.
#[must_use]
pub fn of(row: &Row, missing: &[String]) -> Option<Limit> {
    let silent = silent_far_end(row);
    let unseen: Vec<&str> = silent.iter().chain(missing).map(String::as_str).collect();
    judged(row, &unseen.join("; "))
}

/// The same, with a text about everything that could not be looked at.
fn judged(row: &Row, unseen: &str) -> Option<Limit> {
    if row.status.is_some_and(|status| !Status::is_good(status)) {
        return None;
    }
    let row = finite(row);
    let evidence = Evidence::of(&row)?;
    let window_s = row.elapsed_s.unwrap_or(0.0);
    let found = if window_s < thresholds::SHORTEST_S {
        let window = human(Unit::Seconds, window_s);
        Err(format!("the kernel's counters are too coarse for a window of {window}"))
    } else {
        rule(&evidence)
    };
    let mut limit = found.unwrap_or_else(|why| {
        let numbers = ends::numbers(&evidence);
        Limit::unknown(if numbers.is_empty() { why } else { format!("{why} ({})", numbers.join(", ")) })
    });
    if !unseen.is_empty() {
        limit.because.push_str(UNSEEN);
        limit.because.push_str(unseen);
    }
    Some(limit)
}

/// The row as it is written: numbers that are not finite are empty cells.
fn finite(row: &Row) -> Row {
    let mut row = row.clone();
    for column in COLUMNS.iter().filter(|column| column.ty.is_number()) {
        if row.number(column.name).is_none() {
            row.set_number(column.name, None);
        }
    }
    row
}

/// A far end that is a program which reports less than a daemon.
fn silent_far_end(row: &Row) -> Option<String> {
    let program = match row.control? {
        Control::Session => return None,
        Control::None => "a service of its own",
        Control::Netperf => "netserver",
        Control::Iperf3 => "iperf3",
    };
    let host = row.to.as_deref().unwrap_or("the far end");
    Some(format!("threads and drops of {host}, which is {program}"))
}

/// `Err`: why no cause can be named.
fn rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let known = ends::wire(evidence).or_else(|| ends::offered(evidence)).or_else(|| taken::starved(evidence));
    if let Some(limit) = known {
        return Ok(limit);
    }
    match evidence.family {
        Family::Stream if evidence.is_tcp() => tcp::rule(evidence),
        Family::Stream => datagrams::rule(evidence),
        _ => trips::rule(evidence),
    }
}

/// `71 % of the time`
fn of_the_time(ratio: f64) -> String {
    format!("{} of the time", margin(ratio))
}

#[cfg(test)]
mod tests;
