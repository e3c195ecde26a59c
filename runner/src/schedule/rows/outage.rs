//! The outages of a path.

use netcore::{
    client::Outcome,
    report::{FlowWindow, Outages, SideReport, Window, grown},
    spec::{Pattern, Role, TestSpec},
};
use schemas::{
    columns::Row,
    units::{Unit, human},
    words::{Phase, Record, Way},
};

use super::{
    IterationRows,
    window::{End, end},
};
use crate::schedule::HookRun;

/// Fills the cells of the measure phase, if its test looked for outages.
pub fn fill(row: &mut Row, found: Option<&Outages>, pattern: Pattern) {
    let Some(found) = found else { return };
    let us = |ns: u64| ns as f64 / 1000.0;
    row.outages = Some(found.count);
    row.outage_total_us = Some(us(found.total_ns));
    row.outage_max_us = Some(found.longest.map_or(0.0, |outage| us(outage.length_ns)));
    row.outage_begin_s = found.longest.map(|outage| outage.begin_ns as f64 / 1e9);
    row.outage_bound_us = Some(us(found.gap_ns));
    row.outage_because = Some(found.longest.map_or_else(
        || "no outage".to_owned(),
        |longest| {
            let count = if found.count == 1 { "one outage".to_owned() } else { format!("{} outages", found.count) };
            let lost = match (pattern, longest.forward) {
                (Pattern::Stream, Some(_)) => "messages got lost or late",
                (Pattern::Stream, None) => "it lasts to the end of the test, at least so long",
                (_, Some(true)) => "the requests (upload) got lost or late",
                (_, Some(false)) => "the answers (download) got lost or late",
                (_, None) => "it lasts to the end of the test, at least so long; the direction cannot be told",
            };
            let [length, bound] = [longest.length_ns, found.gap_ns].map(|ns| human(Unit::Microseconds, us(ns)));
            let begin = longest.begin_ns as f64 / 1e9;
            format!("{count}, the longest {length} ± {bound}, {begin:.3} s after the begin: {lost}")
        },
    ));
}

/// Shortest time without data that is told: longer than TCP's least retransmission timeout of 200 ms, which is no outage.
const SHORTEST_SILENCE_US: f64 = 500_000.0;

/// Factor by which it exceeds the usual time between two messages.
const BEYOND_USUAL: f64 = 10.0;

/// Fills the cell of the longest time in which nothing of a stream arrived, by whatever both ends report of the measure phase.
pub fn silence(row: &mut Row, spec: &TestSpec, near: &SideReport, far: Option<&SideReport>) {
    let Some(way) = row.direction.filter(|way| spec.pattern == Pattern::Stream && *way != Way::Both) else { return };
    // Each end with the role of its flows that carry payload in reverse.
    let sides = [(Some(near), Role::Receiver), (far, Role::Sender)];
    let [(sender, of_sender), (receiver, of_receiver)] = if way == Way::Forward { sides } else { [sides[1], sides[0]] };
    let intervals = receiver.into_iter().flat_map(|of| &of.intervals).filter(|window| window.phase == Phase::Measure);
    let intervals: Vec<&Window> = intervals.collect();
    let has_data = |window: &&Window| end(window, way, None, of_receiver).sum(|flow| flow.counts.bytes_received) > 0;
    let silences = intervals.split(has_data);
    let by_intervals = silences.map(|windows| windows.iter().map(|w| w.elapsed_ns as f64 / 1e3).sum()).reduce(f64::max);
    let elapsed_us = row.elapsed_s.unwrap_or(0.0) * 1e6;
    let by_loss = row.loss_run_max.zip(row.messages_sent).filter(|(_, sent)| spec.flows() == 1 && *sent > 0);
    let by_loss = by_loss.map(|(run, sent)| run as f64 / sent as f64 * elapsed_us);
    let sender = sender.and_then(|of| of.phase(Phase::Measure)).map(|window| end(window, way, None, of_sender));
    let longest = by_intervals.into_iter().chain(by_loss).chain(sender.as_ref().and_then(by_timeouts)).reduce(f64::max);
    let usual = row.receives.map_or(0.0, |calls| elapsed_us / calls.max(1) as f64).max(row.gap_p50_us.unwrap_or(0.0));
    row.silence_us = longest.filter(|us| *us >= SHORTEST_SILENCE_US.max(BEYOND_USUAL * usual));
}

/// Mean time of a connection's waits after a retransmission timeout, of the connection that waited least: then all of them did.
fn by_timeouts(sender: &End<'_>) -> Option<f64> {
    let of_flow = |flow: &FlowWindow| {
        let (after, before) = (flow.tcp_info?.limits?, flow.tcp_at_start?.limits?);
        let count = grown(after.timeouts?, before.timeouts?).max(1);
        Some(grown(after.timeouts_ms?, before.timeouts_ms?) as f64 * 1e3 / count as f64)
    };
    sender.senders().map(of_flow).reduce(|a, b| Some(a?.min(b?))).flatten()
}

/// Fills the cells of the measure phases of an iteration during which a hook ran.
pub fn with_hook(made: &mut IterationRows, hook: &HookRun, spec: &TestSpec, reports: &Outcome) {
    let measured =
        made.rows.iter_mut().filter(|row| row.record == Some(Record::Iteration) && row.phase == Some(Phase::Measure));
    for row in measured.chain(made.measured.iter_mut().map(|(_, row)| row)) {
        let is_far = spec.pattern == Pattern::Stream && row.direction == Some(Way::Forward);
        if let Some(start_ns) = if is_far { reports.far_start_ns } else { reports.near_start_ns } {
            converged(row, hook, start_ns);
        }
    }
}

/// Fills the cells of the measure phase in whose iteration a hook ran `during` it. `start_ns`: of that phase, on the same clock.
fn converged(row: &mut Row, hook: &HookRun, start_ns: u64) {
    let hook_s = (hook.begin_ns.cast_signed() - start_ns.cast_signed()) as f64 / 1e9;
    row.hook_s = Some(hook_s);
    row.hook_bound_us = Some(hook.end_ns.saturating_sub(hook.begin_ns) as f64 / 1e3);
    let end_s = row.outage_begin_s.zip(row.outage_max_us).map(|(begin_s, max_us)| begin_s + max_us / 1e6);
    let end_s = end_s.filter(|end_s| *end_s > hook_s);
    row.convergence_us = end_s.map(|end_s| ((end_s - hook_s) * 1e9).round() / 1e3);
    if let (Some(because), Some(us)) = (&row.outage_because, row.convergence_us) {
        let after = format!("; over {} after the hook at {hook_s:.3} s", human(Unit::Microseconds, us));
        row.outage_because = Some(because.clone() + &after);
    }
}

/// The sentence of a summary, whose iterations had outages of their own.
pub fn of_all(row: &Row) -> Option<String> {
    let (count, longest) = (row.outages?, row.outage_max_us?);
    let of = row.iterations.unwrap_or(1);
    if of == 1 {
        return row.outage_because.clone();
    }
    Some(match count {
        0 => format!("no outage in {of} iterations"),
        count => format!("outages in {of} iterations: {count}, the longest {}", human(Unit::Microseconds, longest)),
    })
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Outage, TcpInfo, TcpLimits},
        spec::{Direction, Side},
    };

    use schemas::words::LimitedBy;

    use super::*;
    use crate::schedule::{
        fake::{flow, report, spec, window},
        rows::{of_iteration, summary::Summary},
    };

    #[test]
    fn the_longest_outage_stands_in_the_row_and_in_the_summary() {
        let of = |lengths: &[u64]| {
            let longest = lengths.iter().max();
            let longest = longest.map(|ns| Outage { begin_ns: 1_500_000_000, length_ns: *ns, forward: Some(false) });
            let total_ns = lengths.iter().sum();
            let found = Outages { count: lengths.len() as u64, total_ns, longest, gap_ns: 1_000_000 };
            let mut row = Row::default();
            fill(&mut row, Some(&found), Pattern::RequestResponse);
            row
        };
        let one = of(&[137_000_000]);
        let sentence = "one outage, the longest 137 ms ± 1.00 ms, 1.500 s after the begin: the answers (download) got lost or late";
        assert_eq!(one.outage_because.as_deref(), Some(sentence));
        assert_eq!((one.outage_max_us, one.outage_begin_s), (Some(137_000.0), Some(1.5)));
        assert_eq!((of(&[]).outage_max_us, of(&[]).outage_because.as_deref()), (Some(0.0), Some("no outage")));
        let hook = |begin_ns| {
            let mut row = one.clone();
            converged(&mut row, &HookRun { begin_ns, end_ns: begin_ns + 3_000_000 }, 7_000_000_000);
            row
        };
        let row = hook(8_495_000_000);
        assert_eq!((row.hook_s, row.hook_bound_us, row.convergence_us), (Some(1.495), Some(3000.0), Some(142_000.0)));
        assert!(row.outage_because.unwrap().ends_with("late; over 142 ms after the hook at 1.495 s"));
        assert_eq!(hook(8_638_000_000).convergence_us, None, "it was over before");
        let mut summary = Summary::default();
        for row in [of(&[]), of(&[30_000_000, 400_000_000]), one] {
            summary.push(&row);
        }
        let row = summary.row().unwrap();
        assert_eq!((row.outages, row.outage_max_us, row.outage_begin_s), (Some(3), Some(400_000.0), None));
        assert_eq!(row.outage_because.as_deref(), Some("outages in 3 iterations: 3, the longest 400 ms"));
    }

    /// The row of a stream of eight seconds whose receiver got so much in each of its intervals, and whose sender waited after timeouts.
    fn of_stream(intervals: &[u64], timeouts: [(u64, u64); 2], messages: [u64; 2]) -> Row {
        let [second, total] = [1_000_000_000, intervals.iter().sum()];
        let info = |(count, ms)| {
            let limits = TcpLimits { timeouts: Some(count), timeouts_ms: Some(ms), ..TcpLimits::default() };
            Some(TcpInfo { limits: Some(limits), ..TcpInfo::default() })
        };
        let [tcp_at_start, tcp_info] = timeouts.map(info);
        let sender = FlowWindow { tcp_at_start, tcp_info, ..flow(0, Role::Sender, total, 0) };
        let mut receiver = flow(0, Role::Receiver, 0, total);
        receiver.counts.receives = total * 10;
        if intervals.is_empty() {
            receiver.counts.receives = 1000;
        }
        let near = report(Side::Near, vec![window(Phase::Measure, 8 * second, vec![sender])]);
        let mut far = report(Side::Far, vec![window(Phase::Measure, 8 * second, vec![receiver])]);
        let interval = |bytes: &u64| window(Phase::Measure, second, vec![flow(0, Role::Receiver, 0, *bytes)]);
        far.intervals = intervals.iter().map(interval).collect();
        let mut row = of_iteration(&Row::default(), &spec(Direction::Forward), &near, Some(&far)).measured[0].1.clone();
        [row.loss_run_max, row.messages_sent] = messages.map(|count| Some(count).filter(|count| *count > 0));
        silence(&mut row, &spec(Direction::Forward), &near, Some(&far));
        row
    }

    #[test]
    fn a_stream_of_which_nothing_arrived_for_a_time_says_so() {
        let none = [(0, 0); 2];
        // Ten receive calls for each unit.
        let of = |intervals: &[u64], timeouts, messages| of_stream(intervals, timeouts, messages).silence_us;
        assert_eq!(of(&[9, 9, 0, 0, 9, 0, 9, 9], none, [0, 0]), Some(2e6));
        assert_eq!(of(&[9, 9, 9], none, [0, 0]), None);
        assert_eq!(of(&[], [(3, 700), (4, 3500)], [0, 0]), Some(2.8e6), "without intervals, by the sender's kernel");
        assert_eq!(of(&[], [(0, 0), (10, 2500)], [0, 0]), None, "ten short ones");
        assert_eq!(of(&[], none, [2000, 8000]), Some(2e6), "datagrams that were lost in one piece");
        assert_eq!(of(&[9, 0, 9], none, [0, 0]), Some(1e6));
        assert_eq!(of(&[1, 0, 1], none, [0, 0]), None, "a stream of few messages always has pauses");
    }

    #[test]
    fn a_summary_tells_of_the_iteration_in_which_nothing_arrived() {
        let mut summary = Summary::default();
        for intervals in [&[9_u64; 8][..], &[9; 8], &[9; 8], &[9, 9, 9, 0, 0, 9, 9, 9]] {
            let mut row = of_stream(intervals, [(0, 0); 2], [0, 0]);
            row.limited_by = Some(if row.silence_us.is_some() { LimitedBy::Unknown } else { LimitedBy::Path });
            row.limited_because = Some("a link is full".to_owned());
            summary.push(&row);
        }
        let row = summary.row().unwrap();
        assert_eq!((row.silence_us, row.limited_by), (Some(2e6), Some(LimitedBy::Path)));
        let because = row.limited_because.unwrap();
        assert!(because.starts_with("in one iteration, nothing arrived for 2.00 s; "), "{because}");
    }
}
