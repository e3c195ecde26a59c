//! The rule of transactions: requests, connects and echoes. An end that asks has so many of them under way and no more, so it
//! waits for a round trip unless a CPU is full.

use schemas::{
    units::{Unit, human},
    words::{LatencyKind, LimitedBy},
};

use super::{
    Limit,
    ends::{self, Support},
    evidence::{End, Evidence},
    thresholds::{CLOSED_LOOP, NAMED_WAIT},
};

pub fn rule(evidence: &Evidence<'_>) -> Result<Limit, String> {
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
        Some(format!("{} worked {}{waited}", end.host, each(thread.busy)))
    };
    let parts: Vec<String> = [&evidence.sender, &evidence.receiver].into_iter().filter_map(worked).collect();
    let of_these = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let more = if row.inflight.is_some() { "`inflight` or `streams` have" } else { "`streams` has" };
    let waited = match under_way {
        n if n > 1.0 => format!("{n} transactions at a time, each waited"),
        _ => "one transaction at a time waited".to_owned(),
    };
    let because = format!("{waited} {each} for its answer{of_these}; {more} more under way at once");
    Ok(Limit::named(LimitedBy::RoundTrip, used.unwrap_or(1.0), because))
}
