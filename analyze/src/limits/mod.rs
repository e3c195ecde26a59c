//! Why a test was not faster: one cause and its evidence, from the columns of one row.
//!
//! A cause is named if its evidence is strong and no other evidence contradicts it. Otherwise the answer is `unknown`, with
//! the numbers: a wrong answer is worse than none.
//!
//! - `evidence`: the cells of a row, by sender and receiver; every threshold, with its reason
//! - `ends`: rules that hold for every test: CPU, offered load, wire, a link between the ends that is full
//! - `tcp`: the rules of streams of TCP and QUIC, and of datagrams; that of transactions stands here
//! - `tally`: the cause on which the iterations of a case agree, and the lines below a table
//! - [`hops`]: at which link of the path the queue stands
//! - `taken`: whether others took a CPU from the test, and why the iterations of a case differ

mod ends;
mod evidence;
pub mod hops;
mod taken;
mod tally;
mod tcp;

pub use taken::{disturbed, taken, unsteady};
pub use tally::{Tally, advised_once, agreed, both_ways, intro, lines};
pub use tcp::{late, lost_at_once};

use ends::Support;
use evidence::{CLOSED_LOOP, End, Evidence, NAMED_WAIT, SILENT};
use schemas::{
    columns::{COLUMNS, Row},
    metrics::Family,
    units::{Unit, human, margin},
    words::{LatencyKind, LimitedBy, Status},
};

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
    let window = human(Unit::Seconds, window_s);
    let silent = silent(&row);
    let found = if window_s < evidence::SHORTEST_S {
        Err(format!("the kernel's counters are too coarse for a window of {window}"))
    } else if let Some(silent) = silent.as_ref().filter(|_| row.silence_us >= Some(SILENT * window_s * 1e6)) {
        Err(format!(
            "{silent} of {window}: the path was down, or an end stood still; a `udp_rr` test with `outage` tells when"
        ))
    } else {
        rule(&evidence).map(|mut limit| {
            if let Some(silent) = silent {
                limit.because = format!("{silent}; for the rest, {}", limit.because);
            }
            limit
        })
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

/// `nothing arrived for 2.00 s`
#[must_use]
pub fn silent(row: &Row) -> Option<String> {
    row.silence_us.map(|us| format!("nothing arrived for {}", human(Unit::Seconds, us / 1e6)))
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
    let program = row.control?.silent_program()?;
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
        Family::Stream if evidence.row.quic_lost.is_some() => tcp::quic_rule(evidence),
        Family::Stream => tcp::datagram_rule(evidence),
        _ => round_trips(evidence),
    }
}

/// `71 % of the time`
fn of_the_time(ratio: f64) -> String {
    format!("{} of the time", margin(ratio))
}

/// The rule of transactions: requests, connects and echoes. An end that asks has so many of them under way and no more, so it
/// waits for a round trip unless a CPU is full.
fn round_trips(evidence: &Evidence<'_>) -> Result<Limit, String> {
    let row = evidence.row;
    if let Some(found) = ends::cpu(evidence, Support::Neither) {
        return found;
    }
    let rate = row.transactions_per_s.filter(|rate| *rate > 0.0).ok_or("no transaction was completed")?;
    let under_way = row.streams.unwrap_or(1).max(1) as f64 * row.inflight.unwrap_or(1).max(1) as f64;
    let latency_us = row.latency_mean_us.filter(|_| row.latency_kind == Some(LatencyKind::RoundTrip));
    let used = latency_us.map(|us| rate * us / 1e6 / under_way);
    if let Some(used) = used
        && !(CLOSED_LOOP.0..=CLOSED_LOOP.1).contains(&used)
    {
        let transactions = if under_way > 1.0 { "transactions" } else { "transaction" };
        return Err(format!(
            "{under_way} {transactions} may be under way at once, and on average {:.1} were",
            used * under_way
        ));
    }
    let each = human(Unit::Microseconds, latency_us.unwrap_or(under_way / rate * 1e6));
    let worked = |end: &End<'_>| {
        let thread = end.thread.filter(|_| row.threads.is_none_or(|n| n <= 1) && !end.spins)?;
        let each = |share: f64| human(Unit::Microseconds, share / rate * 1e6);
        let waits = thread.waiting >= NAMED_WAIT;
        let waited = if waits { format!(" and waited {} for a CPU", each(thread.waiting)) } else { String::new() };
        let share = thread.busy + if waits { thread.waiting } else { 0.0 };
        Some((share, format!("{} worked {}{waited}", end.host, each(thread.busy))))
    };
    let (shares, parts): (Vec<f64>, Vec<String>) =
        [&evidence.sender, &evidence.receiver].into_iter().filter_map(worked).unzip();
    // One end wakes while the other is still at work behind its send.
    let overlap = latency_us.is_some_and(|us| shares.iter().sum::<f64>() / rate * 1e6 > us);
    let overlap = if overlap { ", partly at the same time" } else { "" };
    let of_these = if parts.is_empty() { String::new() } else { format!(" ({}{overlap})", parts.join(", ")) };
    let more = if row.inflight.is_some() { "`inflight` or `streams` have" } else { "`streams` has" };
    let waited = match under_way {
        n if n > 1.0 => format!("{n} transactions at a time, each waited"),
        _ => "one transaction at a time waited".to_owned(),
    };
    let because = format!("{waited} {each} for its answer{of_these}; {more} more under way at once");
    Ok(Limit::named(LimitedBy::RoundTrip, used.unwrap_or(1.0), because))
}

#[cfg(test)]
mod tests;
