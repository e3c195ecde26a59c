//! Hockney's model of a message's time: t = t₀ + n/r.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hockney {
    /// Start-up time, seconds. Negative if the model does not fit.
    pub latency_s: f64,
    /// Asymptotic bandwidth, bytes per second.
    pub bandwidth: f64,
    /// Share of the relative variation of t explained by the model, at most 1.
    pub r2: f64,
}

impl Hockney {
    /// The size that reaches half the asymptotic bandwidth: n½ = t₀ · r (Hockney, Parallel Computing 17, 1991).
    pub fn half_bandwidth_bytes(&self) -> f64 {
        self.latency_s * self.bandwidth
    }
}

/// Least squares of t = t₀ + n/r over (bytes, seconds). Each point is weighted by 1/t², because errors of measured
/// times are proportional to the times; unweighted, the largest messages would decide the latency. `None` for fewer
/// than three points, a time that is not positive, equal sizes, or a time that does not grow with the size.
pub fn fit(points: &[(f64, f64)]) -> Option<Hockney> {
    if points.len() < 3 || points.iter().any(|(_, t)| *t <= 0.0) {
        return None;
    }
    let weighted = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|(n, t)| f(*n, *t) / (t * t)).sum::<f64>();
    let (sw, sn, st) = (weighted(&|_, _| 1.0), weighted(&|n, _| n), weighted(&|_, t| t));
    let (mean_n, mean_t) = (sn / sw, st / sw);
    let snn = weighted(&|n, _| (n - mean_n).powi(2));
    let slope = weighted(&|n, t| (n - mean_n) * (t - mean_t)) / snn;
    let latency_s = mean_t - slope * mean_n;
    let left = weighted(&|n, t| (t - latency_s - slope * n).powi(2));
    let all = weighted(&|_, t| (t - mean_t).powi(2));
    (slope.is_finite() && slope > 0.0).then(|| Hockney {
        latency_s,
        bandwidth: 1.0 / slope,
        r2: if all > 0.0 { 1.0 - left / all } else { 1.0 },
    })
}

/// The saturation size: the smallest size from which on the throughput stays at 95 % of its largest value or above.
/// `curve` is (bytes, throughput) in rising order of bytes.
pub fn saturation(curve: &[(f64, f64)]) -> Option<f64> {
    let largest = curve.iter().map(|(_, r)| *r).max_by(f64::total_cmp)?;
    let below = curve.iter().rposition(|(_, r)| *r < 0.95 * largest);
    curve.get(below.map_or(0, |i| i + 1)).map(|(n, _)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_recovered() {
        let points: Vec<(f64, f64)> = (0..20).map(|i| 2f64.powi(i)).map(|n| (n, 5.4e-6 + n / 5e9)).collect();
        let fit = fit(&points).unwrap();
        assert!((fit.latency_s - 5.4e-6).abs() < 1e-15);
        assert!((fit.bandwidth - 5e9).abs() < 1.0);
        assert!((fit.half_bandwidth_bytes() - 27_000.0).abs() < 0.1);
        assert!((fit.r2 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_fitted() {
        assert!(fit(&[(1.0, 1.0), (2.0, 2.0)]).is_none());
        assert!(fit(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]).is_none());
        assert!(fit(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]).is_none());
    }

    #[test]
    fn saturation_is_where_it_stays() {
        let curve = [(1.0, 10.0), (2.0, 97.0), (4.0, 80.0), (8.0, 96.0), (16.0, 100.0)];
        assert_eq!(saturation(&curve), Some(8.0));
        assert_eq!(saturation(&[]), None);
    }
}
