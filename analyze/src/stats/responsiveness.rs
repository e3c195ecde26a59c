//! Latency under load by the definitions of IETF draft-ietf-ippm-responsiveness (-06): the trimmed mean, round trips per
//! minute, and whether the end of a measurement was stable.
//!
//! The draft measures requests over HTTP/2 and TLS, in part on the connections that make the load. The figures here are of
//! round trips of a transport on connections of their own, by the same formulas.

use hdrhistogram::Histogram;
use schemas::words::Confidence;

/// Share of the values, smallest first, that the trimmed mean is taken over (the draft's TMP).
pub const TRIMMED: f64 = 0.95;
/// Intervals in a moving average, and moving averages that are compared (MAD).
pub const MOVING: usize = 4;
/// Standard deviation of the moving averages, over the latest of them, up to which they are stable (SDT).
pub const TOLERANCE: f64 = 0.05;
/// Length of the interval, seconds (the draft's ID in -06). In -09 it is 5 s, and the seven intervals of a stable end would take
/// 35 s of load instead of 7 s. A plan's longer `interval` counts as it is.
pub const INTERVAL_S: f64 = 1.0;

/// The mean of the smallest [`TRIMMED`] of the values; `None` without values. A value counts as the middle of its bucket.
pub fn trimmed_mean(histogram: &Histogram<u64>) -> Option<f64> {
    let buckets = histogram.iter_recorded().map(|bucket| {
        let value = histogram.median_equivalent(bucket.value_iterated_to());
        (value as f64, bucket.count_since_last_iteration())
    });
    trimmed_mean_of(buckets, histogram.len())
}

/// The same of values in rising order, each with its count; `all` is the sum of the counts.
fn trimmed_mean_of(rising: impl Iterator<Item = (f64, u64)>, all: u64) -> Option<f64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
    let kept = (all as f64 * TRIMMED).ceil() as u64;
    let (mut left, mut sum) = (kept, 0.0);
    for (value, count) in rising {
        let taken = count.min(left);
        sum += value * taken as f64;
        left -= taken;
        if left == 0 {
            break;
        }
    }
    (kept > 0).then(|| sum / (kept - left) as f64)
}

/// Round trips per minute of round-trip times in nanoseconds: 60 s over their trimmed mean. `None` without values.
pub fn round_trips_per_min(nanoseconds: &Histogram<u64>) -> Option<f64> {
    trimmed_mean(nanoseconds).filter(|mean| *mean > 0.0).map(|mean| 60e9 / mean)
}

/// The draft's confidence in a figure: `averages` are its moving averages over [`MOVING`] intervals each, one per interval from
/// the first that has as many before it.
pub fn confidence(averages: &[f64]) -> Confidence {
    let Some(latest) = averages.last() else { return Confidence::Low };
    let Some(last) = averages.last_chunk::<MOVING>() else { return Confidence::Medium };
    let spread = super::moments::stddev(last).unwrap_or(f64::INFINITY);
    if spread <= TOLERANCE * latest.abs() { Confidence::High } else { Confidence::Medium }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_slowest_twentieth_is_left_out() {
        let all: Vec<(f64, u64)> = (1..=20).map(|v| (f64::from(v), 1)).collect();
        // 1 … 19: the largest of twenty is left out.
        assert_eq!(trimmed_mean_of(all.into_iter(), 20), Some(10.0));
        assert_eq!(trimmed_mean_of([(2.0, 96), (1000.0, 4)].into_iter(), 100), Some(2.0));
        assert_eq!(trimmed_mean_of([(2.0, 90), (22.0, 10)].into_iter(), 100), Some((180.0 + 110.0) / 95.0));
        assert_eq!(trimmed_mean_of([(7.0, 1)].into_iter(), 1), Some(7.0));
        assert_eq!(trimmed_mean_of(std::iter::empty(), 0), None);
    }

    #[test]
    fn a_round_trip_of_50_ms_is_1200_a_minute() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        assert_eq!(round_trips_per_min(&histogram), None);
        histogram.record_n(50_000_000, 99).unwrap();
        histogram.record(5_000_000_000).unwrap();
        let rpm = round_trips_per_min(&histogram).unwrap();
        assert!((rpm - 1200.0).abs() < 1.2, "{rpm}");
    }

    #[test]
    fn confidence_follows_the_draft() {
        assert_eq!(confidence(&[]), Confidence::Low);
        assert_eq!(confidence(&[10.0; 3]), Confidence::Medium);
        assert_eq!(confidence(&[10.0; 4]), Confidence::High);
        // Only the last four count.
        assert_eq!(confidence(&[1.0, 100.0, 98.0, 99.0, 102.0]), Confidence::High);
        assert_eq!(confidence(&[70.0, 80.0, 90.0, 100.0]), Confidence::Medium);
    }

    proptest! {
        #[test]
        fn a_trimmed_mean_lies_between_the_least_and_the_plain_mean(values in prop::collection::vec(1u64..1_000_000_000, 1..200)) {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            histogram.auto(true);
            for v in &values {
                histogram.record(*v).unwrap();
            }
            let trimmed = trimmed_mean(&histogram).unwrap();
            let plain = values.iter().sum::<u64>() as f64 / values.len() as f64;
            let least = *values.iter().min().unwrap() as f64;
            prop_assert!(trimmed >= least * 0.998 && trimmed <= plain * 1.002, "{least} {trimmed} {plain}");
        }
    }
}
