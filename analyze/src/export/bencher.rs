//! Bencher Metric Format: `{benchmark: {measure: {value, lower_value, upper_value}}}`.

use std::io::Write;

use schemas::metrics::Metric;
use serde_json::{Map, Value, json};

use super::benchmarks;
use crate::error::Error;
use crate::table::{Selection, Table};

/// Bytes that Bencher takes of a benchmark's name.
const LONGEST_NAME: usize = 1024;

/// Writes a benchmark per case, member and direction.
pub fn write(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut all: Map<String, Value> = Map::new();
    for benchmark in benchmarks::read(table, selection, metrics, |_| true)? {
        if benchmark.name.is_empty() || benchmark.name.len() > LONGEST_NAME {
            let reason = format!(
                "the case `{}` has a name of {} bytes, and Bencher takes 1 to {LONGEST_NAME}: rename its test",
                benchmark.name.chars().take(40).collect::<String>(),
                benchmark.name.len()
            );
            return Err(table.error(reason));
        }
        let mut metric = json!({ "value": benchmark.mean });
        if let Some((low, high)) = benchmark.bounds() {
            metric["lower_value"] = low.into();
            metric["upper_value"] = high.into();
        }
        all.entry(benchmark.name).or_insert_with(|| json!({}))[measure(benchmark.metric)] = metric;
    }
    serde_json::to_writer_pretty(&mut *output, &all).map_err(|e| Error::Output(e.into()))?;
    output.write_all(b"\n")?;
    Ok(())
}

/// The measure of a metric: its column as a slug, with the unit. Bencher's own measures `throughput` and `latency` count
/// operations per second and nanoseconds, so a bare name would get a wrong unit.
pub(super) fn measure(metric: &Metric) -> String {
    metric.column.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use schemas::metrics::METRICS;

    use super::*;

    fn written(text: &str, metrics: &[&str]) -> Result<Value, String> {
        let mut table = Table::from_text("t", text).expect("a table");
        let metrics: Vec<String> = metrics.iter().map(|m| (*m).to_owned()).collect();
        let mut out = Vec::new();
        write(&mut table, &Selection::default(), &metrics, &mut out).map_err(|e| e.to_string())?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    const HEAD: &str = "case_id,case,member,direction,record,status,workload,throughput_bits_per_s,transactions_per_s,\
        latency_p50_us,latency_p99_us,cpu_local\n";

    #[test]
    fn a_benchmark_per_case_member_and_direction() {
        let rows = "c1,up,,forward,iteration,ok,tcp_stream,1,,,,\nc1,up,,forward,iteration,ok,tcp_stream,3,,,,\n\
            c1,up,,forward,iteration,failed,tcp_stream,,,,,\nc2,mixed,bulk,forward,iteration,ok,tcp_stream,7,,,,\n\
            c2,mixed,bulk,reverse,iteration,ok,tcp_stream,8,,,,\nc2,mixed,ask,forward,iteration,ok,tcp_rr,99,50,2.5,4,\n";
        let value = written(&format!("{HEAD}{rows}"), &[]).unwrap();
        // Student's t for one degree of freedom is 12.706, and the standard error is 1. Throughput is never negative.
        let low_and_high = (
            &value["up"]["throughput-bits-per-s"]["lower_value"],
            &value["up"]["throughput-bits-per-s"]["upper_value"],
        );
        assert_eq!(low_and_high.0, &json!(0.0));
        assert!((low_and_high.1.as_f64().unwrap() - 14.7062).abs() < 1e-4, "{value}");
        let expected = json!({
            "up": { "throughput-bits-per-s": {
                "value": 2.0, "lower_value": low_and_high.0, "upper_value": low_and_high.1,
            } },
            "mixed bulk (forward)": { "throughput-bits-per-s": { "value": 7.0 } },
            "mixed bulk (reverse)": { "throughput-bits-per-s": { "value": 8.0 } },
            "mixed ask": {
                "transactions-per-s": { "value": 50.0 },
                "latency-p50-us": { "value": 2.5 },
                "latency-p99-us": { "value": 4.0 },
            },
        });
        assert_eq!(value, expected);
        let named = written(&format!("{HEAD}{rows}"), &["latency.p99"]).unwrap();
        assert_eq!(named, json!({ "mixed ask": { "latency-p99-us": { "value": 4.0 } } }));
    }

    #[test]
    fn what_bencher_would_refuse_or_confuse() {
        let row = |id: &str, case: &str| format!("{id},{case},,forward,iteration,ok,tcp_stream,1,,,,\n");
        let error = written(&format!("{HEAD}{}{}", row("c1", "a"), row("c2", "a")), &[]).unwrap_err();
        assert!(error.contains("two different cases are called a"), "{error}");
        let error = written(&format!("{HEAD}{}", row("c1", &"x".repeat(1025))), &[]).unwrap_err();
        assert!(error.contains("a name of 1025 bytes, and Bencher takes 1 to 1024"), "{error}");
        let failed = "c1,a,,forward,iteration,failed,tcp_stream,,,,,\n";
        let error = written(&format!("{HEAD}{failed}"), &[]).unwrap_err();
        assert!(error.contains("no row that counts has a value"), "{error}");
    }

    /// Slugs of at most 64 lower-case letters, digits and single dashes. Another text would be taken for a name.
    #[test]
    fn measures_are_slugs() {
        for metric in METRICS {
            let slug = measure(metric);
            let words = slug
                .split('-')
                .all(|w| !w.is_empty() && w.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
            assert!(words && slug.len() <= 64, "{slug}");
            assert!(
                !["latency", "throughput", "build-time", "file-size"].contains(&slug.as_str()),
                "{slug} is Bencher's own"
            );
        }
    }
}
