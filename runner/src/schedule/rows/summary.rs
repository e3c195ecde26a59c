//! The summary row of a case, from its iterations.
//!
//! Rates and states are means over the iterations (each counts once, as in the statistics), counts and the elapsed time
//! are sums, and latencies are read from the merged histograms: percentiles are never averaged.

use analyze::limits::{Tally, silent};
use schemas::{
    columns::{COLUMNS, ColumnType, Row, results::column},
    metrics::Kind,
    words::{Confidence, Record},
};

use super::{
    hops::Places,
    one_way, outage,
    path::{self, Merged},
};

/// Groups of columns that a summary condenses.
const CONDENSED: [&str; 15] = [
    "place and time",
    "volume",
    "datagrams",
    "wire",
    "pacing",
    "latency",
    "responsiveness",
    "one way",
    "outages",
    "ranks",
    "cpu",
    "tcp",
    "quic",
    "limits",
    "ecn",
];

/// Numbers of the case, or of the state at its end: those of the last iteration stay.
const KEPT: [&str; 2] = [column::ranks, column::quic_mtu_bytes];

/// Numbers that add up, though they are no metric of that kind.
const ADDED: [&str; 2] = [column::elapsed_s, column::quic_udp_bytes];

/// Grows by one measured iteration at a time, so that its memory does not.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    last: Option<Row>,
    count: u64,
    /// Sums by column; a column that was empty once has no sum any more.
    sums: Vec<Option<f64>>,
    latencies: Option<Merged>,
    receive_calls: Option<Merged>,
    /// Messages in runs of loss, and the longest run.
    lost_in_runs: Option<f64>,
    longest_run: Option<u64>,
    longest_outage: Option<f64>,
    longest_silence: Option<f64>,
    /// Whether every warm-up that was to end by itself had settled.
    settled: Option<bool>,
    /// Why the iterations were not faster.
    limits: Tally,
    /// Where the queue of the path stood.
    places: Places,
    /// The least confidence in the load and in the probe's figure.
    confidence: [Option<Confidence>; 2],
}

impl Summary {
    /// Adds the measure phase of an iteration.
    pub fn push(&mut self, row: &Row) {
        let cells = COLUMNS.iter().map(|c| row.number(c.name));
        if self.count == 0 {
            self.sums = cells.collect();
        } else {
            let last = self.last.as_ref();
            for ((sum, cell), column) in self.sums.iter_mut().zip(cells).zip(COLUMNS) {
                // A mean of the numbers of two CPUs is the number of a third.
                let is_other = column.name.ends_with("_id") && last.and_then(|row| row.number(column.name)) != cell;
                *sum = sum.filter(|_| !is_other).and_then(|s| Some(s + cell?));
            }
        }
        self.settled =
            if self.count == 0 { row.settled } else { self.settled.and_then(|all| Some(all & row.settled?)) };
        let lost_in_runs = row.loss_runs.map(|runs| runs as f64 * row.loss_run_mean.unwrap_or(0.0));
        self.lost_in_runs =
            if self.count == 0 { lost_in_runs } else { self.lost_in_runs.and_then(|all| Some(all + lost_in_runs?)) };
        self.longest_run = self.longest_run.max(row.loss_run_max);
        self.longest_outage = self.longest_outage.into_iter().chain(row.outage_max_us).reduce(f64::max);
        self.longest_silence = self.longest_silence.into_iter().chain(row.silence_us).reduce(f64::max);
        let of_row = [row.load_confidence, row.responsiveness_confidence];
        for (least, one) in self.confidence.iter_mut().zip(of_row) {
            *least = if self.count == 0 { one } else { (*least).min(one) };
        }
        self.count += 1;
        self.limits.push(row);
        self.places.push(row);
        add(&mut self.latencies, Merged::of_row(row));
        add(&mut self.receive_calls, Merged::receive_calls_of_row(row));
        self.last = Some(row.clone().without_histograms());
    }

    /// Number of iterations added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The summary so far, without the confidence cells; `None` before the first iteration.
    pub fn row(&self) -> Option<Row> {
        let mut row = self.last.clone()?;
        row.record = Some(Record::Summary);
        row.iteration = None;
        row.start_s = None;
        row.iterations = Some(self.count);
        row.settled = self.settled;
        [row.load_confidence, row.responsiveness_confidence] = self.confidence;
        for (column, sum) in COLUMNS.iter().zip(&self.sums) {
            if !CONDENSED.contains(&column.group) || !column.ty.is_number() || KEPT.contains(&column.name) {
                continue;
            }
            let mean = sum.map(|s| s / self.count as f64);
            let value = match column.metric.map(|m| m.kind) {
                _ if ADDED.contains(&column.name) => *sum,
                Some(Kind::Count) => *sum,
                Some(Kind::Rate | Kind::Gauge) => mean,
                // Calls are counts too.
                None if column.group == "volume" => *sum,
                None if column.ty == ColumnType::Number => mean,
                // Another program's output has no histogram: one iteration stands as it is, several as the mean of
                // means.
                Some(Kind::Distribution) if self.latencies.is_none() && self.count == 1 => *sum,
                Some(Kind::Distribution) if self.latencies.is_none() && column.name == "latency_mean_us" => mean,
                // Percentiles are not averaged, and the busiest CPU's number is not something to add up.
                Some(Kind::Distribution) | None => None,
            };
            row.set_number(column.name, value);
        }
        // A mean over the runs of all iterations, and the longest of all.
        row.loss_run_mean =
            self.lost_in_runs.zip(row.loss_runs.filter(|runs| *runs > 0)).map(|(lost, runs)| lost / runs as f64);
        row.loss_run_max = self.longest_run.filter(|_| row.loss_runs.is_some());
        match &self.latencies {
            Some(latencies) => latencies.fill(&mut row),
            None => row.latency_kind = None,
        }
        (row.limited_by, row.limited_ratio, row.limited_because) = (None, None, None);
        if let Some(limit) = self.limits.limit(&self.mean()?) {
            limit.fill(&mut row);
        }
        row.silence_us = self.longest_silence;
        if let (Some(silent), Some(because)) = (silent(&row), &mut row.limited_because)
            && !because.contains("nothing arrived")
        {
            *because = format!("in one iteration, {silent}; {because}");
        }
        self.places.fill(&mut row);
        row.ecn_path = path::ecn_path(&row);
        row.one_way_because = one_way::because(&row);
        row.outage_max_us = self.longest_outage.filter(|_| row.outages.is_some());
        if self.count > 1 {
            row.outage_begin_s = None;
        }
        row.outage_because = outage::of_all(&row);
        if let Some(receive_calls) = &self.receive_calls {
            receive_calls.fill_receive_calls(&mut row);
        }
        Some(row)
    }

    /// A row with the mean of every number, counts too: the evidence on limits is judged by it.
    fn mean(&self) -> Option<Row> {
        let mut row = self.last.clone()?;
        for (column, sum) in COLUMNS.iter().zip(&self.sums).filter(|(column, _)| column.ty.is_number()) {
            row.set_number(column.name, sum.map(|sum| sum / self.count as f64));
        }
        row.iterations = Some(self.count);
        Some(row)
    }
}

/// Adds the histogram of one more iteration to those before.
fn add(all: &mut Option<Merged>, one: Option<Merged>) {
    *all = all.take().into_iter().chain(one).reduce(Merged::with);
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::words::LatencyKind;

    fn iteration(throughput: f64, bytes: u64, latencies: &[u64]) -> Row {
        Row {
            throughput_bits_per_s: Some(throughput),
            bytes_received: Some(bytes),
            receives: Some(3),
            elapsed_s: Some(1.0),
            local_cpu_user_ratio: Some(0.5),
            local_cpu_peak_id: Some(7),
            latency_kind: Some(LatencyKind::RoundTrip),
            latency_p99_us: Some(1e9),
            latency_histogram: Some(path::encoded(latencies)),
            receive_call_p50_us: Some(1e9),
            receive_call_histogram: Some(path::encoded(latencies)),
            iteration: Some(1),
            ..Row::default()
        }
    }

    #[test]
    fn rates_are_means_counts_are_sums_and_percentiles_come_from_histograms() {
        let mut summary = Summary::default();
        assert!(summary.row().is_none());
        summary.push(&iteration(10.0, 100, &[1000; 99]));
        summary.push(&iteration(20.0, 300, &[2000; 1]));
        let row = summary.row().unwrap();
        assert_eq!(row.throughput_bits_per_s, Some(15.0));
        assert_eq!((row.bytes_received, row.receives, row.elapsed_s), (Some(400), Some(6), Some(2.0)));
        assert_eq!((row.local_cpu_user_ratio, row.local_cpu_peak_id), (Some(0.5), None));
        assert!((row.latency_p99_us.unwrap() - 1.0).abs() < 0.01);
        assert!((row.receive_call_p50_us.unwrap() - 1.0).abs() < 0.01);
        assert_eq!((row.iterations, row.iteration), (Some(2), None));
    }

    #[test]
    fn times_of_ranks_are_means_too() {
        let mut summary = Summary::default();
        for time in [754.0, 871.0, 316.0] {
            let row = Row { operation_time_us: Some(time), own_time_us: Some(time), ranks: Some(4), ..Row::default() };
            summary.push(&row);
        }
        let row = summary.row().unwrap();
        assert_eq!((row.operation_time_us, row.own_time_us, row.ranks), (Some(647.0), Some(647.0), Some(4)));
    }

    #[test]
    fn counts_of_outages_and_of_quic_are_those_of_all_iterations() {
        let mut summary = Summary::default();
        for (lost, ratio, longest, all) in [(172, 0.04, 300.0, 350.0), (557, 0.12, 1300.0, 1300.0)] {
            summary.push(&Row {
                quic_packets_sent: Some(4000),
                quic_lost: Some(lost),
                quic_loss_ratio: Some(ratio),
                quic_udp_bytes: Some(10),
                quic_mtu_bytes: Some(1452),
                outages: Some(1),
                outage_max_us: Some(longest),
                outage_total_us: Some(all),
                ..iteration(1.0, 1, &[1000])
            });
        }
        let row = summary.row().unwrap();
        assert_eq!((row.quic_packets_sent, row.quic_lost, row.quic_loss_ratio), (Some(8000), Some(729), Some(0.08)));
        assert_eq!((row.quic_udp_bytes, row.quic_mtu_bytes), (Some(20), Some(1452)));
        assert_eq!((row.outages, row.outage_max_us, row.outage_total_us), (Some(2), Some(1300.0), Some(1650.0)));
    }

    #[test]
    fn the_evidence_names_a_cpu_that_all_iterations_used() {
        let mean = |cpus: [u64; 3]| {
            let mut summary = Summary::default();
            for cpu in cpus {
                summary.push(&Row { local_thread_cpu_id: Some(cpu), ..iteration(1.0, 1, &[1000]) });
            }
            summary.mean().unwrap().local_thread_cpu_id
        };
        assert_eq!((mean([3, 3, 3]), mean([2, 4, 3]), mean([2, 4, 4])), (Some(3), None, None));
    }

    #[test]
    fn a_summary_has_settled_where_all_of_its_iterations_have() {
        for (each, all) in [([Some(true); 2], Some(true)), ([Some(false), Some(true)], Some(false)), ([None; 2], None)]
        {
            let mut summary = Summary::default();
            for settled in each {
                summary.push(&Row { settled, ..iteration(1.0, 1, &[1000]) });
            }
            assert_eq!(summary.row().unwrap().settled, all);
        }
    }

    #[test]
    fn runs_of_loss_are_those_of_all_iterations() {
        let mut summary = Summary::default();
        for (runs, mean, longest) in [(3, Some(2.0), 4), (0, None, 0), (1, Some(10.0), 10)] {
            let row = iteration(1.0, 1, &[1000]);
            summary.push(&Row { loss_runs: Some(runs), loss_run_mean: mean, loss_run_max: Some(longest), ..row });
        }
        let row = summary.row().unwrap();
        assert_eq!((row.loss_runs, row.loss_run_mean, row.loss_run_max), (Some(4), Some(4.0), Some(10)));
    }

    #[test]
    fn what_one_iteration_lacks_the_summary_lacks() {
        let mut summary = Summary::default();
        summary.push(&iteration(10.0, 100, &[1000]));
        summary.push(&Row { throughput_bits_per_s: None, ..iteration(0.0, 1, &[1000]) });
        assert_eq!(summary.row().unwrap().throughput_bits_per_s, None);
    }
}
