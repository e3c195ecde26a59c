//! The outages of a path.

use netcore::{
    client::Outcome,
    report::Outages,
    spec::{Pattern, TestSpec},
};
use schemas::{
    columns::Row,
    units::{Unit, human},
    words::{Phase, Record, Way},
};

use super::IterationRows;
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
    use netcore::report::Outage;

    use super::*;
    use crate::schedule::rows::summary::Summary;

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
}
