//! The reports of a test's ranks: a row for all of them and one for each, why it failed, and which of them waited for a CPU.

use std::collections::BTreeMap;

use analyze::limits;
use netcore::{
    client::RanksOutcome,
    ranks::RankError,
    report::{Ending, RankReport, RankTraffic, ThreadUse},
    spec::ranks::{Operation, Work},
};
use schemas::{
    columns::Row,
    run_record::CaseRecord,
    text::counted,
    time,
    units::{Unit, human, margin},
    words::{LatencyKind, Phase, Record, Status},
};

use super::{super::step::Step, path::Merged};
use crate::plan::{case::Endpoint, job::RanksJob};

/// The test of ranks that a step is.
pub fn job(step: &Step) -> Option<&RanksJob> {
    step.members.first()?.job.ranks()
}

/// Why it failed: the words of the rank that knows most. One that lost another rank only saw the consequence.
pub fn failure(job: &RanksJob, outcome: &RanksOutcome) -> Option<String> {
    let failed = outcome.reports.iter().zip(&job.ends).filter_map(|(report, end)| match &report.ending {
        Ending::Failed(message) => Some((RankError::is_consequence(message), report.rank, end.name(), message)),
        _ => None,
    });
    let (_, rank, host, message) = failed.min_by_key(|(consequence, rank, ..)| (*consequence, *rank))?;
    Some(format!("rank {rank} on `{host}`: {message}"))
}

/// When a signal ended it, and whether it has numbers nevertheless; `None`: it came to its end.
pub fn cut(outcome: &RanksOutcome) -> Option<(String, bool)> {
    let elapsed = outcome.reports.iter().map(|report| report.elapsed_ns).max().filter(|ns| *ns > 0);
    let when = elapsed
        .map_or("before it measured".to_owned(), |ns| format!("after {}", human(Unit::Seconds, ns as f64 / 1e9)));
    let stopped = outcome.reports.iter().any(|report| report.ending == Ending::Stopped);
    stopped.then(|| (when, elapsed.is_some()))
}

/// Writes its spec, and what each rank said about itself.
pub fn describe(step: &Step, outcome: &RanksOutcome, record: &mut CaseRecord) {
    let Some(job) = job(step) else { return };
    let rank = |(report, end): (&RankReport, &Endpoint)| {
        let RankReport { rank, algorithm, library, thread, elapsed_ns, nic, notes, .. } = report;
        serde_json::json!({
            "rank": rank, "host": end.name(), "algorithm": algorithm, "library": library, "thread": thread,
            "elapsed_ns": elapsed_ns, "nic": nic, "notes": notes,
        })
    };
    record.spec = serde_json::to_value(&job.spec).ok();
    record.ranks = Some(outcome.reports.iter().zip(&job.ends).map(rank).collect());
}

/// Cases of which a rank waited for a CPU: iterations, the largest share of the time, and that rank.
#[derive(Debug, Default)]
pub struct Waits(BTreeMap<String, (u32, f64, u32)>);

impl Waits {
    pub fn keep(&mut self, case: &str, outcome: &RanksOutcome) {
        let waited = outcome.reports.iter().filter_map(|report| Some((report.thread?.waiting?, report.rank)));
        if let Some((share, rank)) = waited.max_by(|a, b| a.0.total_cmp(&b.0))
            && limits::disturbed(Vec::new())(share)
        {
            let (times, most, of) = self.0.entry(case.to_owned()).or_default();
            *times += 1;
            if share > *most {
                (*most, *of) = (share, rank);
            }
        }
    }

    /// The case of which a rank waited longest.
    pub fn sentence(&self) -> Option<String> {
        let (case, (times, most, rank)) = self.0.iter().max_by(|(_, (_, a, _)), (_, (_, b, _))| a.total_cmp(b))?;
        let others = match self.0.len() - 1 {
            0 => String::new(),
            n => format!("; so did ranks in {}, for less", counted(n, "other case")),
        };
        Some(format!(
            "{case}: rank {rank} waited for a CPU for up to {} of a measurement, {}: other ranks or programs had it, \
             and all ranks wait for the slowest{others}",
            margin(*most),
            counted(times, "time")
        ))
    }
}

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
            if let Some(latencies) = merged.reduce(Merged::with) {
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
        row.bus_formula = Some(bus.as_str().into());
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
