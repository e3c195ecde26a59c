//! Latency histograms as they travel in reports and results, merged and read.

use analyze::stats::responsiveness;
use netcore::{
    measure::histogram::{self, Histogram},
    report::Latencies,
};
use schemas::{columns::Row, words::LatencyKind};

/// Histograms of one kind, merged.
#[derive(Clone, Debug)]
pub struct Merged {
    kind: LatencyKind,
    histogram: Histogram<u64>,
}

/// These latencies, all of one kind: the first of [`LatencyKind::ALL`] that was timed. None where nothing was timed.
pub fn merged(timed: &[&Latencies]) -> Option<Merged> {
    LatencyKind::ALL.iter().find_map(|kind| of_kind(*kind, timed))
}

/// The receive calls where send calls were timed too: they are told beside them and not mixed with them.
pub fn receive_calls(timed: &[&Latencies]) -> Option<Merged> {
    merged(timed).filter(|first| first.kind != LatencyKind::Receive).and_then(|_| of_kind(LatencyKind::Receive, timed))
}

/// The latencies of that kind.
fn of_kind(kind: LatencyKind, timed: &[&Latencies]) -> Option<Merged> {
    let all = timed.iter().filter(|l| l.kind == kind.as_str());
    all.filter_map(|l| Merged::decode(kind, &l.histogram)).reduce(|a, b| a.with(&b))
}

impl Merged {
    /// Reads a histogram back. `None` for a text that is none.
    pub fn decode(kind: LatencyKind, text: &str) -> Option<Self> {
        let mut histogram = histogram::decode(text)?;
        // A histogram of a fixed range would refuse larger values of another when they are merged.
        histogram.auto(true);
        Some(Self { kind, histogram })
    }

    /// The histogram of a row.
    pub fn of_row(row: &Row) -> Option<Self> {
        Self::decode(row.latency_kind?, row.latency_histogram.as_deref()?)
    }

    /// The receive calls of a row that has them beside its latencies.
    pub fn receive_calls_of_row(row: &Row) -> Option<Self> {
        Self::decode(LatencyKind::Receive, row.receive_call_histogram.as_deref()?)
    }

    /// Both together.
    pub fn with(mut self, other: &Self) -> Self {
        // Cannot fail: `auto` lets it grow to any u64.
        let _ = self.histogram.add(&other.histogram);
        self
    }

    /// Fills the latency cells; does nothing where no value was recorded.
    pub fn fill(&self, row: &mut Row) {
        let h = &self.histogram;
        if h.is_empty() {
            return;
        }
        let quantile = |q: f64| Some(self.quantile_us(q));
        row.latency_kind = Some(self.kind);
        row.latency_min_us = Some(us(h.min()));
        row.latency_mean_us = Some(h.mean() / 1000.0);
        row.latency_p50_us = quantile(0.5);
        row.latency_p90_us = quantile(0.9);
        row.latency_p95_us = quantile(0.95);
        row.latency_p99_us = quantile(0.99);
        row.latency_p999_us = quantile(0.999);
        row.latency_max_us = Some(us(h.max()));
        row.latency_stddev_us = Some(h.stdev() / 1000.0);
        row.latency_histogram = Some(histogram::encode(h));
        row.round_trips_per_min = self.round_trips_per_min();
    }

    /// `None` for latencies that are no round trips.
    pub fn round_trips_per_min(&self) -> Option<f64> {
        let is_round_trip = matches!(self.kind, LatencyKind::RoundTrip | LatencyKind::Response);
        responsiveness::round_trips_per_min(&self.histogram).filter(|_| is_round_trip)
    }

    /// Fills the cells of receive calls; does nothing where no value was recorded.
    pub fn fill_receive_calls(&self, row: &mut Row) {
        let h = &self.histogram;
        if h.is_empty() {
            return;
        }
        row.receive_call_mean_us = Some(h.mean() / 1000.0);
        row.receive_call_p50_us = Some(self.quantile_us(0.5));
        row.receive_call_p90_us = Some(self.quantile_us(0.9));
        row.receive_call_p99_us = Some(self.quantile_us(0.99));
        row.receive_call_max_us = Some(us(h.max()));
        row.receive_call_histogram = Some(histogram::encode(h));
    }

    /// A quantile is given as the top of its bucket, which may lie above the largest value.
    fn quantile_us(&self, q: f64) -> f64 {
        us(self.histogram.value_at_quantile(q).min(self.histogram.max()))
    }
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
pub(in crate::schedule) fn encoded(values: &[u64]) -> String {
    let mut histogram = histogram::empty();
    for value in values {
        histogram.record(*value).unwrap();
    }
    histogram::encode(&histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_counts_every_value_once() {
        let all = Merged::decode(LatencyKind::RoundTrip, &encoded(&[1000, 2000]))
            .unwrap()
            .with(&Merged::decode(LatencyKind::RoundTrip, &encoded(&[3000, 9_000_000])).unwrap());
        let mut row = Row::default();
        all.fill(&mut row);
        assert_eq!(all.histogram.len(), 4);
        assert!((row.latency_min_us.unwrap() - 1.0).abs() < 0.01);
        assert!((row.latency_p50_us.unwrap() - 2.0).abs() < 0.01);
        assert!((row.latency_max_us.unwrap() - 9000.0).abs() < 9.0);
        assert_eq!(Merged::of_row(&row).unwrap().histogram.len(), 4);
    }

    #[test]
    fn receive_calls_stand_beside_send_calls_and_alone_in_their_place() {
        let of = |kind: &str, value| Latencies { kind: kind.into(), histogram: encoded(&[value]) };
        let (send, receive) = (of("send", 1000), of("receive", 7000));
        assert_eq!(merged(&[&receive, &send]).unwrap().kind, LatencyKind::Send);
        let mut row = Row::default();
        receive_calls(&[&send, &receive]).unwrap().fill_receive_calls(&mut row);
        assert!((row.receive_call_p99_us.unwrap() - 7.0).abs() < 0.01 && row.latency_p99_us.is_none());
        assert_eq!(Merged::receive_calls_of_row(&row).unwrap().histogram.len(), 1);
        assert_eq!(merged(&[&receive]).unwrap().kind, LatencyKind::Receive);
        assert!(receive_calls(&[&receive]).is_none());
    }

    #[test]
    fn what_is_no_histogram_is_none() {
        assert!(Merged::decode(LatencyKind::Send, "bm8gaGlzdG9ncmFt").is_none());
        assert!(Merged::decode(LatencyKind::Send, "%").is_none());
    }
}
