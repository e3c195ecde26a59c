//! The rows of a concurrent group: its total over the window that all of its members share, and what a load adds to the latency
//! of a probe beside it.
//!
//! A sum over windows that only overlap would count seconds in which some member had not begun or had ended already, and
//! a member that starts late then looks fast. So each member's rate is taken inside the common window: from its intervals that
//! lie wholly in it, or from its whole measure phase where that is the common window to within a hundredth.
//!
//! A probe names the member that measures the same round trip on the idle path (`idle` in the plan). The load beside it is
//! every stream of the group that is measured in the probe's window, by plan.

use analyze::stats::responsiveness::{self, INTERVAL_S, MOVING};
use netcore::{
    client::Outcome,
    report::{Phase, Window},
    spec::{Direction, Pattern, TestSpec},
};
use schemas::{
    columns::Row,
    words::{Confidence, LimitedBy, Record, Status, Way},
};

use super::{one_way, pairs, path::Merged, window};
use crate::{plan::case::Member, schedule::step::Step};

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
pub fn total_row(identity: &Row, parts: &[Part<'_>], own: bool) -> Result<Row, NoTotal> {
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
    total.phase = Some(Phase::Measure);
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

/// Fills the cells of the probes under load, in the rows of an iteration and in the copies that statistics are made of.
pub fn join(step: &Step, written: &mut [Row], measured: &mut [(usize, Way, Row)]) {
    for (m, member) in step.members.iter().enumerate() {
        let Some(idle) = member.idle.as_ref().and_then(|name| step.members.iter().position(|one| one.name == *name))
        else {
            continue;
        };
        let of = |m: usize| measured.iter().find(|(at, ..)| *at == m).map(|(.., row)| row);
        let Some((probe, idle)) = of(m).zip(of(idle)) else { continue };
        let difference = |cell: fn(&Row) -> Option<f64>| Some(cell(probe)? - cell(idle)?);
        let p50 = difference(|row| row.latency_p50_us);
        let p95 = difference(|row| row.latency_p95_us);
        let split = one_way::added(probe, idle);
        let load = step.members.iter().filter(|one| is_load(one, member));
        let load = load.filter_map(|one| of_load(written, one, member)).min();
        let responsiveness = of_probe(written, member);
        let fill = |row: &mut Row| {
            (row.added_latency_p50_us, row.added_latency_p95_us) = (p50, p95);
            (row.load_confidence, row.responsiveness_confidence) = (load, responsiveness);
            if let Some([forward, reverse]) = split {
                (row.added_forward_p50_us, row.added_reverse_p50_us) = (Some(forward), Some(reverse));
                row.one_way_because = one_way::because(row);
            }
        };
        measured.iter_mut().filter(|(at, ..)| *at == m).for_each(|(.., row)| fill(row));
        let is_whole = |row: &&mut Row| {
            row.record == Some(Record::Iteration) && row.phase == Some(Phase::Measure) && is_of(row, member)
        };
        written.iter_mut().filter(is_whole).for_each(fill);
    }
    name_directions(step, &mut written.iter_mut().collect::<Vec<_>>());
}

/// Adds to each load that the path limits which direction it fills, by the probe beside it. `rows`: of an iteration, or the
/// summaries of a case.
pub fn name_directions(step: &Step, rows: &mut [&mut Row]) {
    for probe in step.members.iter().filter(|member| member.idle.is_some()) {
        let added = |row: &&mut Row| {
            let is_whole = row.record != Some(Record::Interval) && is_of(row, probe);
            is_whole.then(|| row.added_forward_p50_us.zip(row.added_reverse_p50_us)).flatten()
        };
        let Some((forward, reverse)) = rows.iter().find_map(added) else { continue };
        let beside = one_way::filled(forward, reverse);
        let is_load = |row: &Row| step.members.iter().any(|of| is_load(of, probe) && is_of(row, of));
        for row in rows.iter_mut().filter(|row| row.limited_by == Some(LimitedBy::Path) && is_load(row)) {
            row.limited_because = row.limited_because.take().map(|because| format!("{because}; {beside}"));
        }
    }
}

fn is_of(row: &Row, member: &Member) -> bool {
    row.member.as_deref() == Some(&member.name)
}

/// Whether a member is load beside a probe: a stream whose window shares a part of the probe's.
fn is_load(member: &Member, probe: &Member) -> bool {
    let is_stream = member.spec().is_some_and(|spec| spec.pattern == Pattern::Stream);
    let windows = member.measured_ns().zip(probe.measured_ns());
    is_stream && windows.is_some_and(|(load, probe)| load.0 < probe.1 && probe.0 < load.1)
}

fn of_load(rows: &[Row], load: &Member, probe: &Member) -> Option<Confidence> {
    let work = |bin: &[&Row]| {
        let seconds = |row: &Row| row.elapsed_s.unwrap_or(0.0);
        let bits: f64 = bin.iter().map(|row| row.throughput_bits_per_s.unwrap_or(0.0) * seconds(row)).sum();
        (bits, bin.iter().map(|row| seconds(row)).sum::<f64>())
    };
    let bins: Vec<(f64, f64)> = bins(rows, load, probe)?.iter().map(|bin| work(bin)).collect();
    let average = |bins: &[(f64, f64)]| {
        let (work, time) = bins.iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
        work / time
    };
    Some(responsiveness::confidence(&bins.windows(MOVING).map(average).collect::<Vec<_>>()))
}

fn of_probe(rows: &[Row], probe: &Member) -> Option<Confidence> {
    let merged = |bin: &Vec<&Row>| bin.iter().filter_map(|row| Merged::of_row(row)).reduce(Merged::with);
    let bins: Vec<Option<Merged>> = bins(rows, probe, probe)?.iter().map(merged).collect();
    // An interval without an answer adds no time; four of them have no rate.
    let average = |bins: &[Option<Merged>]| {
        let all = bins.iter().flatten().cloned().reduce(Merged::with);
        all.and_then(|all| all.round_trips_per_min()).unwrap_or(0.0)
    };
    Some(responsiveness::confidence(&bins.windows(MOVING).map(average).collect::<Vec<_>>()))
}

/// A member's intervals inside a probe's window, together in steps of the draft's interval, counted from the end of the window.
/// `None`: the plan has no intervals.
fn bins<'r>(rows: &'r [Row], member: &Member, probe: &Member) -> Option<Vec<Vec<&'r Row>>> {
    let nominal_s = member.spec()?.phases.interval_ns as f64 / 1e9;
    if nominal_s <= 0.0 {
        return None;
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let begin = seconds(member.measured_ns()?.0);
    let (low, high) = probe.measured_ns().map(|(low, high)| (seconds(low), seconds(high)))?;
    let way = *super::ways(member.spec()?.direction).last()?;
    let inside = |row: &&Row| {
        let (start, elapsed) = (begin + row.start_s.unwrap_or(0.0), row.elapsed_s.unwrap_or(0.0));
        // The last interval of a phase may be cut short, and edges are as late as the thread that wakes for them.
        start >= low - nominal_s / 2.0 && start + elapsed <= high + nominal_s / 2.0 && elapsed >= nominal_s / 2.0
    };
    let is_interval = |row: &&Row| {
        row.record == Some(Record::Interval)
            && row.phase == Some(Phase::Measure)
            && row.direction == Some(way)
            && is_of(row, member)
    };
    let all: Vec<&Row> = rows.iter().filter(is_interval).filter(inside).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 1")]
    let together = (INTERVAL_S / nominal_s).round().max(1.0) as usize;
    Some(all.rchunks_exact(together).rev().map(<[&Row]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Role, Side};

    use super::{super::of_iteration, *};
    use crate::schedule::fake::{flow, outcome, report, spec};

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
        total_row(&Row::default(), &parts, own)
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
