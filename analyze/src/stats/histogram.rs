//! HdrHistograms as cells of the results table: V2, base64, nanoseconds. Merging adds buckets, so percentiles of many
//! rows are those of all their observations. Averaging the rows' percentiles would not give them.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hdrhistogram::Histogram;

use super::responsiveness;
use hdrhistogram::serialization::Deserializer;

/// Some writers pad and some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Observations of a latency, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let mut histogram = Histogram::new(3).expect("3 is a valid number of digits");
        histogram.auto(true);
        Self { histogram }
    }
}

impl Latencies {
    /// Decodes a cell of `latency_histogram`. The error is a reason without a place.
    pub fn decode(cell: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(cell).map_err(|e| format!("the histogram is not base64: {e}"))?;
        check_header(&bytes)?;
        let mut histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| format!("the histogram is corrupt, or not HdrHistogram V2: {e}"))?;
        histogram.auto(true);
        Ok(Self { histogram })
    }

    /// Adds all observations of another histogram. The error is a reason without a place.
    pub fn merge(&mut self, other: &Self) -> Result<(), String> {
        self.histogram.add(&other.histogram).map_err(|e| format!("the histogram cannot be merged: {e:?}"))
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The smallest value, in microseconds, that at least the share `q` (0 … 1) of the observations does not exceed.
    /// `None` without observations.
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram.value_at_quantile(q) as f64 / 1e3)
    }

    pub fn min_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram.min() as f64 / 1e3)
    }

    pub fn max_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram.max() as f64 / 1e3)
    }

    pub fn mean_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram.mean() / 1e3)
    }

    pub fn stddev_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram.stdev() / 1e3)
    }

    /// The value of a latency column of the results table for these observations; `None` for other columns.
    pub fn column(&self, name: &str) -> Option<f64> {
        match name {
            "latency_min_us" => self.min_us(),
            "latency_max_us" => self.max_us(),
            "latency_mean_us" => self.mean_us(),
            "latency_stddev_us" => self.stddev_us(),
            "round_trips_per_min" => responsiveness::round_trips_per_min(&self.histogram),
            _ => self.quantile_us(column_quantile(name)?),
        }
    }

    /// The recorded buckets in rising order: upper value in microseconds, and count.
    pub fn buckets_us(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.histogram.iter_recorded().map(|b| (b.value_iterated_to() as f64 / 1e3, b.count_since_last_iteration()))
    }
}

/// The most significant digits that are read. A histogram of four takes up to 7 MB, one of five up to 50 MB.
const MOST_DIGITS: u32 = 4;

/// Checks the header of HdrHistogram's V2 form. The decoder would reserve the memory for any size that stands there, and
/// a compressed histogram can grow a thousandfold.
fn check_header(bytes: &[u8]) -> Result<(), String> {
    const COOKIE: u32 = 0x1c84_9313;
    const COMPRESSED: u32 = 0x1c84_9314;
    // Cookie, length of the counts, offset, digits; each four bytes. Smallest and largest value, and a ratio: eight each.
    if bytes.starts_with(&COMPRESSED.to_be_bytes()) {
        return Err("the histogram is compressed: write HdrHistogram's V2 form without compression".into());
    }
    let (words, counts) = bytes
        .split_first_chunk::<40>()
        .map(|(header, counts)| (header.as_chunks::<4>().0, counts))
        .ok_or("the histogram is corrupt: it has no header")?;
    let word = |i: usize| u32::from_be_bytes(words[i]);
    if word(0) != COOKIE {
        return Err("the histogram is corrupt, or not HdrHistogram V2".to_owned());
    }
    if word(1) as usize != counts.len() {
        return Err(format!(
            "the histogram is corrupt: it has {} bytes of counts, and says that they are {}",
            counts.len(),
            word(1)
        ));
    }
    if word(3) > MOST_DIGITS {
        return Err(format!("the histogram has {} significant digits, the most are {MOST_DIGITS}", word(3)));
    }
    Ok(())
}

/// The quantile that a percentile column holds: `latency_p999_us` → 0.999.
pub fn column_quantile(name: &str) -> Option<f64> {
    percentile_name(name.strip_prefix("latency_")?.strip_suffix("_us")?)
}

/// The fewest observations for a meaningful quantile (0 … 1): ten lie on the side of it that has fewer. The smallest of all,
/// the quantile 0, takes one.
pub fn needed_observations(quantile: f64) -> u64 {
    const BEYOND: f64 = 10.0;
    if quantile <= 0.0 {
        return 1;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and the cast saturates")]
    let needed = (BEYOND / quantile.min(1.0 - quantile)).round() as u64;
    needed
}

/// A quantile as a part of a column's name: 0.999 → `p999`, 0.005 → `p005`.
pub fn quantile_name(quantile: f64) -> String {
    // Eight decimals are what [`percentile_name`] reads.
    let digits = format!("{quantile:.8}");
    let (whole, decimals) = digits[2..].split_at(2);
    format!("p{whole}{}", decimals.trim_end_matches('0'))
}

/// The column that holds a quantile of the latencies: 0.999 → `latency_p999_us`.
pub fn column_name(quantile: f64) -> String {
    format!("latency_{}_us", quantile_name(quantile))
}

/// The quantile named by `p50`, `p99`, `p999` or `p99.9`: digits after the second are decimals.
pub fn percentile_name(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?;
    let (whole, decimals) = match digits.split_once('.') {
        Some(parts) => parts,
        None => digits.split_at_checked(2).unwrap_or((digits, "")),
    };
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 2 || decimals.len() > 6 || !all_digits(whole) || !all_digits(decimals) {
        return None;
    }
    // Written as a fraction before it is parsed: 99.9 / 100 is not 0.999.
    format!("0.{whole:0>2}{decimals}").parse().ok()
}

/// A percentile as a person writes it: `99`, `99.9`, `p99`, and with its `p` also `p999`. Other numbers of three and more
/// digits are mistakes: `p101` is not the percentile 10.1.
pub fn asked_percentile(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let digits = text.strip_prefix('p').unwrap_or(text);
    let decimals_by_place = text.starts_with("p9") || text.starts_with("p0");
    let clear = digits.contains('.') || digits.len() <= 2 || decimals_by_place;
    let quantile = percentile_name(&format!("p{digits}")).filter(|_| clear);
    quantile.ok_or_else(|| {
        format!("`{text}` is not a percentile: write a number from 0 to below 100, with at most 6 decimals, such as 99 or 99.9")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    use proptest::prelude::*;

    #[test]
    fn percentiles_that_people_ask_for_are_below_100() {
        for (text, quantile) in
            [("50", 0.5), ("99.9", 0.999), ("p99", 0.99), ("p999", 0.999), ("p025", 0.025), ("0", 0.0), ("5", 0.05)]
        {
            assert_eq!(asked_percentile(text), Ok(quantile), "{text}");
        }
        for wrong in
            ["101", "100", "p101", "p100", "999", "-1", "-0.5", "nan", "inf", "", "p", "1e1", "99.9999999", "50%"]
        {
            assert!(asked_percentile(wrong).unwrap_err().contains("is not a percentile"), "{wrong}");
        }
    }

    fn encode(values: &[u64]) -> String {
        let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
        for v in values {
            histogram.record(*v).unwrap();
        }
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    #[test]
    fn merged_percentiles_are_those_of_all_observations() {
        let mut all = Latencies::decode(&encode(&[1000; 99])).unwrap();
        all.merge(&Latencies::decode(&encode(&[50_000; 1])).unwrap()).unwrap();
        assert_eq!(all.count(), 100);
        assert_eq!(all.column("latency_p50_us"), Some(1.0));
        assert_eq!(all.column("latency_p99_us"), Some(1.0));
        assert!((all.column("latency_max_us").unwrap() - 50.0).abs() < 0.05);
        assert_eq!(all.column("throughput_bits_per_s"), None);
    }

    #[test]
    fn percentiles_by_name() {
        assert_eq!(percentile_name("p50"), Some(0.5));
        assert_eq!(percentile_name("p999"), Some(0.999));
        assert_eq!(percentile_name("p99.9"), Some(0.999));
        assert_eq!(percentile_name("p5"), Some(0.05));
        for (name, column) in [
            ("p50", "latency_p50_us"),
            ("p99.90", "latency_p999_us"),
            ("p5", "latency_p05_us"),
            ("p5.5", "latency_p055_us"),
            ("p0.5", "latency_p005_us"),
            ("p99.999999", "latency_p99999999_us"),
        ] {
            let quantile = percentile_name(name).unwrap();
            assert_eq!(column_name(quantile), column);
            assert_eq!(column_quantile(column), Some(quantile), "{column} is read as it was written");
        }
        assert_eq!(percentile_name("p"), None);
        assert_eq!(percentile_name("px"), None);
        assert_eq!(percentile_name("p100.5"), None);
    }

    #[test]
    fn ten_observations_lie_on_the_side_with_fewer() {
        for (quantile, needed) in [(0.5, 20), (0.99, 1000), (0.999, 10_000), (0.01, 1000), (0.05, 200), (0.0, 1)] {
            assert_eq!(needed_observations(quantile), needed, "{quantile}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Latencies::decode("???").unwrap_err().contains("not base64"));
        assert!(Latencies::decode("AAAA").unwrap_err().contains("corrupt"));
    }

    #[test]
    fn sizes_are_checked_before_memory_is_reserved() {
        let good = base64::engine::general_purpose::STANDARD.decode(encode(&[1000, 2000])).unwrap();
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            Latencies::decode(&base64::engine::general_purpose::STANDARD.encode(changed)).map(|l| l.count())
        };
        assert_eq!(with(0, &[]), Ok(2));
        assert!(with(4, &[0xff; 4]).unwrap_err().contains("says that they are 4294967295"));
        assert!(with(12, &5u32.to_be_bytes()).unwrap_err().contains("5 significant digits"));
        let mut compressed = Vec::new();
        let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
        histogram.record(1).unwrap();
        hdrhistogram::serialization::V2DeflateSerializer::new().serialize(&histogram, &mut compressed).unwrap();
        let cell = base64::engine::general_purpose::STANDARD.encode(compressed);
        assert!(Latencies::decode(&cell).unwrap_err().contains("compressed"));
    }

    proptest! {
        #[test]
        fn corrupt_histograms_do_not_panic(values in prop::collection::vec(1u64..1_000_000, 1..20), at in 0usize..400, byte: u8) {
            let mut bytes = base64::engine::general_purpose::STANDARD.decode(encode(&values)).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let cell = base64::engine::general_purpose::STANDARD.encode(bytes);
            if let Ok(one) = Latencies::decode(&cell) {
                let mut sum = Latencies::default();
                let _ = sum.merge(&one);
                let _ = (sum.quantile_us(0.5), sum.max_us(), sum.stddev_us());
            }
        }
    }
}
