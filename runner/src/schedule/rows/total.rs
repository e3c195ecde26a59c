//! The total of a concurrent group, over the window that all of its members share.
//!
//! A sum over windows that only overlap would count seconds in which some member had not begun or had ended already, and
//! a member that starts late then looks fast. So each member's rate is taken inside the common window: from its intervals that
//! lie wholly in it, or from its whole measure phase where that is the common window to within a hundredth.

use netcore::{
    client::Outcome,
    report::{Phase, Window},
    spec::{Direction, Pattern, TestSpec},
};
use schemas::{
    columns::Row,
    words::{self, Record, Status},
};

use super::{pairs, window};

/// Share by which a member's own window may be longer than the common one, for its whole phase to stand for it.
const SLACK: f64 = 0.01;

/// A member with what it reported.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its test.
    pub spec: &'a TestSpec,
    /// The reports of its ends.
    pub reports: &'a Outcome,
    /// The row of its measure phase, both ways together.
    pub row: &'a Row,
}

/// The reason why a group has no total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTotal {
    /// The members never ran at the same time.
    Apart,
    /// They did for a part of their time, and there are no intervals to cut that part out.
    Uncut,
}

/// The group's row. With `own`, every member counts over its own window, and the common one is only reported.
pub fn row(identity: &Row, parts: &[Part<'_>], own: bool) -> Result<Row, NoTotal> {
    let spans: Vec<(f64, f64)> = parts.iter().filter_map(span).collect();
    if spans.len() < parts.len() {
        return Err(NoTotal::Apart);
    }
    let low = spans.iter().map(|s| s.0).fold(f64::MIN, f64::max);
    let high = spans.iter().map(|s| s.1).fold(f64::MAX, f64::min);
    if high <= low {
        return Err(NoTotal::Apart);
    }
    let mut total = identity.clone();
    total.record = Some(Record::Iteration);
    total.phase = Some(words::Phase::Measure);
    total.status = Some(Status::Ok);
    total.elapsed_s = Some(high - low);
    total.time = parts.iter().filter_map(|p| p.row.time.clone()).min();
    let mut of_members = Vec::new();
    for (part, span) in parts.iter().zip(&spans) {
        let whole = own || span.1 - span.0 <= (high - low) * (1.0 + SLACK);
        of_members.push(if whole { rates(part.row) } else { inside(part, span.0, low, high).ok_or(NoTotal::Uncut)? });
    }
    [total.throughput_bits_per_s, total.sent_bits_per_s, total.transactions_per_s] =
        [0, 1, 2].map(|rate| sum(of_members.iter().map(|rates| rates[rate])));
    for column in ["retransmits", "local_retransmits", "remote_retransmits", "errors", "lost", "streams"] {
        total.set_number(column, sum(parts.iter().map(|part| part.row.number(column))));
    }
    Ok(total)
}

/// The rates that are added up.
fn rates(row: &Row) -> [Option<f64>; 3] {
    [row.throughput_bits_per_s, row.sent_bits_per_s, row.transactions_per_s]
}

/// The sum of the values that are there.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|a, b| a + b)
}

/// The end whose clock and windows the member's row has.
fn head_is_far(spec: &TestSpec) -> bool {
    !spec.is_alone() && spec.pattern == Pattern::Stream && spec.direction == Direction::Forward
}

/// Begin and end of the member's measure phase, seconds on the client's clock.
fn span(part: &Part<'_>) -> Option<(f64, f64)> {
    let r = part.reports;
    let start_ns = if head_is_far(part.spec) { r.far_start_ns } else { r.near_start_ns }?;
    let start = start_ns as f64 / 1e9;
    Some((start, start + part.row.elapsed_s?))
}

/// The member's rates over its intervals that lie within the common window.
fn inside(part: &Part<'_>, start: f64, low: f64, high: f64) -> Option<[Option<f64>; 3]> {
    let fits = |w: &Window| {
        let begin = start + w.start_ns as f64 / 1e9;
        w.phase == Phase::Measure && begin >= low && begin + w.elapsed_ns as f64 / 1e9 <= high
    };
    let (near, far) = (&part.reports.near, part.reports.far.as_ref());
    let way = *super::ways(part.spec.direction).last()?;
    let mut seconds = 0.0;
    let mut work = [0.0; 3];
    for pair in pairs(&near.intervals, super::intervals(far), part.spec.phases.interval_ns) {
        if !pair.near.is_some_and(fits) || (far.is_some() && !pair.far.is_some_and(fits)) {
            continue;
        }
        let row = window::row(&Row::default(), part.spec, pair, way, None);
        let elapsed = row.elapsed_s?;
        seconds += elapsed;
        for (sum, rate) in work.iter_mut().zip(rates(&row)) {
            *sum += rate.unwrap_or(0.0) * elapsed;
        }
    }
    let whole = rates(part.row);
    (seconds > 0.0).then(|| [0, 1, 2].map(|rate| whole[rate].map(|_| work[rate] / seconds)))
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Role, Side};
    use schemas::words::Way;

    use super::*;
    use crate::schedule::fake::{flow, outcome, report, spec};
    use crate::schedule::rows::of_iteration;

    const SECOND: u64 = 1_000_000_000;

    /// A forward stream from `start` that moved `bytes[i]` in its i-th second.
    fn member(start_s: u64, bytes: &[u64], intervals: bool) -> (Outcome, Row) {
        let end = |side, role: Role| {
            let sends = role == Role::Sender;
            let of = |b: u64| flow(0, role, if sends { b } else { 0 }, if sends { 0 } else { b });
            let window = |start_ns: i64, elapsed_ns, b| Window {
                start_ns,
                ..crate::schedule::fake::window(Phase::Measure, elapsed_ns, vec![of(b)])
            };
            let mut r = report(side, vec![window(0, SECOND * bytes.len() as u64, bytes.iter().sum())]);
            if intervals {
                let each = bytes.iter().enumerate();
                r.intervals = each.map(|(i, b)| window(i.cast_signed() as i64 * 1_000_000_000, SECOND, *b)).collect();
            }
            r
        };
        let reports = outcome(end(Side::Near, Role::Sender), end(Side::Far, Role::Receiver), start_s * SECOND);
        let made = of_iteration(&Row::default(), &spec(Direction::Forward), &reports.near, reports.far.as_ref());
        let row = made.measured.into_iter().find(|(w, _)| *w == Way::Forward).unwrap().1;
        (reports, row)
    }

    fn total(members: &[(Outcome, Row)], own: bool) -> Result<Row, NoTotal> {
        let spec = spec(Direction::Forward);
        let parts: Vec<Part<'_>> = members.iter().map(|(reports, row)| Part { spec: &spec, reports, row }).collect();
        row(&Row::default(), &parts, own)
    }

    #[test]
    fn the_same_window_is_summed_as_it_is() {
        let both = [member(10, &[100, 100], false), member(10, &[50, 150], false)];
        let row = total(&both, false).unwrap();
        assert_eq!((row.throughput_bits_per_s, row.elapsed_s), (Some(1600.0), Some(2.0)));
    }

    #[test]
    fn of_a_shifted_member_only_the_common_seconds_count() {
        // Alone each had the link for itself; together they share it.
        let both = [member(10, &[200, 100, 100], true), member(11, &[100, 100, 200], true)];
        let row = total(&both, false).unwrap();
        assert_eq!((row.throughput_bits_per_s, row.elapsed_s), (Some(1600.0), Some(2.0)));
        let naive = total(&both, true).unwrap().throughput_bits_per_s.unwrap();
        assert!(naive > 2100.0, "what a sum over own windows would claim: {naive}");
    }

    #[test]
    fn without_intervals_a_part_cannot_be_cut_out() {
        let both = [member(10, &[200, 100], false), member(11, &[100, 200], false)];
        assert_eq!(total(&both, false).unwrap_err(), NoTotal::Uncut);
        let apart = [member(10, &[1], true), member(20, &[1], true)];
        assert_eq!(total(&apart, false).unwrap_err(), NoTotal::Apart);
    }
}
