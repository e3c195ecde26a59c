//! The rows of tests that are not between two ends: one for all ranks and one for each, and those of what a program printed.

use netcore::{
    client::RanksOutcome,
    report::{RankReport, RankTraffic, ThreadUse},
    spec::ranks::{Operation, Work},
};
use schemas::{
    columns::Row,
    time,
    words::{LatencyKind, Phase, Record, Status, Way},
};

use super::path::Merged;
use crate::plan::job::RanksJob;

/// The rows of an iteration: those of the ranks, and that of all.
pub fn of_iteration(identity: &Row, job: &RanksJob, outcome: &RanksOutcome) -> (Vec<Row>, Row) {
    let mut rows = Vec::with_capacity(outcome.reports.len());
    for (report, end) in outcome.reports.iter().zip(&job.ends) {
        let mut row = of_rank(identity, job, report);
        row.record = Some(Record::Stream);
        row.stream = Some(report.rank.into());
        row.from = Some(end.name().to_owned());
        rows.push(row);
    }
    (rows, of_all(identity, job, outcome))
}

fn measured(identity: &Row, report: &RankReport) -> Row {
    Row {
        phase: Some(Phase::Measure),
        status: Some(Status::Ok),
        time: Some(time::from_unix_ns(report.wall_start_ns.saturating_add_unsigned(report.elapsed_ns))),
        start_s: Some(0.0),
        elapsed_s: Some(seconds(report.elapsed_ns)),
        algorithm: Some(report.algorithm.clone()).filter(|name| !name.is_empty()),
        library: report.library.clone(),
        ..identity.clone()
    }
}

/// One rank by itself.
fn of_rank(identity: &Row, job: &RanksJob, report: &RankReport) -> Row {
    let mut row = measured(identity, report);
    row.transactions = Some(report.operations);
    row.transactions_per_s = rate(report.operations, report.elapsed_ns);
    row.communication_ratio = share(report.communication_ns, report.elapsed_ns);
    of_thread(&mut row, report.thread);
    if let Some(traffic) = report.traffic {
        row.messages_sent = Some(traffic.messages_sent);
        row.messages_received = Some(traffic.messages_received);
        row.bytes_sent = Some(traffic.bytes_sent);
        row.bytes_received = Some(traffic.bytes_received);
    }
    if let Work::Operation { .. } = job.spec.work {
        row.operation_time_us = mean_us(report);
        if let Some(latencies) = Merged::decode(LatencyKind::Operation, &report.histogram) {
            latencies.fill(&mut row);
        }
    }
    row
}

/// All ranks together.
fn of_all(identity: &Row, job: &RanksJob, outcome: &RanksOutcome) -> Row {
    let Some(first) = outcome.reports.first() else { return identity.clone() };
    let reports = || outcome.reports.iter();
    let mut row = measured(identity, first);
    row.record = Some(Record::Iteration);
    let longest_ns = reports().map(|report| report.elapsed_ns).max().unwrap_or(0);
    row.elapsed_s = Some(seconds(longest_ns));
    row.transactions = Some(first.operations);
    row.transactions_per_s = rate(first.operations, longest_ns);
    let shares: Vec<f64> = reports().filter_map(|r| share(r.communication_ns, r.elapsed_ns)).collect();
    row.communication_ratio = (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64);
    of_thread(&mut row, reports().filter_map(|r| r.thread).max_by(|a, b| wanted(a).total_cmp(&wanted(b))));
    let traffic: Option<Vec<_>> = reports().map(|report| report.traffic).collect();
    if let Some(traffic) = traffic {
        let sum = |count: fn(&RankTraffic) -> u64| Some(traffic.iter().map(count).fold(0, u64::saturating_add));
        row.messages_sent = sum(|t| t.messages_sent);
        row.messages_received = sum(|t| t.messages_received);
        row.bytes_sent = sum(|t| t.bytes_sent);
        row.bytes_received = sum(|t| t.bytes_received);
    }
    match job.spec.work {
        Work::Operation { operation, message_bytes, .. } => {
            let times: Vec<f64> = reports().filter_map(mean_us).collect();
            row.operation_time_us = outcome.arrivals.map(|arrivals| arrivals.slowest_ns / 1e3);
            row.operation_time_min_us = times.iter().copied().reduce(f64::min);
            row.operation_time_mean_us = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
            bus(&mut row, operation, message_bytes, outcome.reports.len());
            let merged = reports().filter_map(|r| Merged::decode(LatencyKind::Operation, &r.histogram));
            if let Some(latencies) = merged.reduce(|a, b| a.with(&b)) {
                latencies.fill(&mut row);
            }
            if let Some(arrivals) = outcome.arrivals {
                row.own_time_us = Some(arrivals.own_ns / 1e3);
                row.arrival_spread_us = Some(arrivals.spread_ns / 1e3);
                row.arrival_bound_us = Some(arrivals.bound_ns as f64 / 1e3);
            }
        }
        Work::Nas { .. } => {
            if let Some(nas) = first.nas {
                row.elapsed_s = Some(seconds(nas.timed_ns));
                row.mops_per_s = Some(nas.mops_per_s);
                row.verified = Some(nas.passed == nas.checks);
            }
        }
    }
    row
}

/// Share of the time in which a thread had something to do.
fn wanted(thread: &ThreadUse) -> f64 {
    thread.busy + thread.waiting.unwrap_or(0.0)
}

fn of_thread(row: &mut Row, thread: Option<ThreadUse>) {
    row.local_thread_busy_ratio = thread.map(|thread| thread.busy);
    row.local_thread_waiting_ratio = thread.and_then(|thread| thread.waiting);
    row.local_thread_cpu_id = thread.map(|thread| thread.cpu.into());
}

fn bus(row: &mut Row, operation: Operation, message_bytes: u64, ranks: usize) {
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    if let (Some(bus), Some(time_us)) = (operation.facts().bus, row.operation_time_us) {
        let bits = bus.messages(ranks) * message_bytes as f64 * 8.0;
        row.bus_bits_per_s = Some(bits / (time_us / 1e6)).filter(|rate| rate.is_finite());
        row.bus_formula = Some(bus.formula().into());
    }
}

fn mean_us(report: &RankReport) -> Option<f64> {
    (report.operations > 0).then(|| report.sum_ns as f64 / report.operations as f64 / 1e3)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn rate(count: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| count as f64 / seconds(ns))
}

fn share(part_ns: u64, whole_ns: u64) -> Option<f64> {
    (whole_ns > 0).then(|| (part_ns as f64 / whole_ns as f64).min(1.0))
}

/// The rows of one iteration.
#[derive(Clone, Debug, Default)]
pub struct PrintedRows {
    /// All of them, as printed.
    pub rows: Vec<Row>,
    /// Values for statistics, by line and way: the first result of each way is line 0. A program that prints a table
    /// has as many summaries as the table has lines.
    pub measured: Vec<(usize, Way, Row)>,
}

/// Makes the rows of an iteration from what was read in an output; `identity` carries the cells that the plan decides.
pub fn of_program(identity: &Row, lines: &[Row]) -> PrintedRows {
    let mut made = PrintedRows::default();
    for line in lines {
        let row = Row {
            run_id: identity.run_id.clone(),
            plan: identity.plan.clone(),
            test: identity.test.clone(),
            case_id: identity.case_id.clone(),
            case: identity.case.clone(),
            member: identity.member.clone(),
            tag: identity.tag.clone(),
            iteration: identity.iteration,
            from: identity.from.clone(),
            to: identity.to.clone().or_else(|| line.to.clone()),
            workload: identity.workload.clone(),
            axes: identity.axes.clone(),
            ..line.clone()
        };
        if is_measured(&row) {
            let way = way(&row);
            made.measured.push((line_of(&made.measured, way), way, row.clone()));
        }
        made.rows.push(row);
    }
    made
}

/// Whether a line of output is a result, not an interval or a stream of one.
pub fn is_measured(row: &Row) -> bool {
    (row.record, row.phase, row.status) == (Some(Record::Iteration), Some(Phase::Measure), Some(Status::Ok))
}

/// The way for which a line of output counts.
pub fn way(row: &Row) -> Way {
    row.direction.unwrap_or(Way::Forward)
}

/// The number of the next line of that way.
pub fn line_of(measured: &[(usize, Way, Row)], way: Way) -> usize {
    measured.iter().filter(|(_, w, _)| *w == way).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_result_and_the_plans_names() {
        let line = |record, direction, size| Row {
            record: Some(record),
            phase: Some(Phase::Measure),
            status: Some(Status::Ok),
            direction: Some(direction),
            message_bytes: Some(size),
            plan: Some("netpipe".into()),
            ..Row::default()
        };
        let identity = Row { plan: Some("p".into()), iteration: Some(3), axes: vec!["x".into()], ..Row::default() };
        let made = of_program(
            &identity,
            &[
                line(Record::Interval, Way::Forward, 1),
                line(Record::Iteration, Way::Forward, 1),
                line(Record::Iteration, Way::Reverse, 1),
                line(Record::Iteration, Way::Forward, 64),
            ],
        );
        let places: Vec<_> = made.measured.iter().map(|(n, way, row)| (*n, *way, row.message_bytes)).collect();
        assert_eq!(places, [(0, Way::Forward, Some(1)), (0, Way::Reverse, Some(1)), (1, Way::Forward, Some(64))]);
        assert_eq!(made.rows.len(), 4);
        assert!(made.rows.iter().all(|r| r.plan.as_deref() == Some("p") && r.iteration == Some(3) && r.axes == ["x"]));
    }
}
