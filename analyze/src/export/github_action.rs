//! The JSON of github-action-benchmark's tools `customBiggerIsBetter` and `customSmallerIsBetter`.

use std::io::Write;

use schemas::metrics::{Better, Metric};
use schemas::units;
use serde_json::{Value, json};

use super::benchmarks::{self, Benchmark, LEVEL};
use crate::error::Error;
use crate::table::{Selection, Table};

/// Writes a list of the metrics that improve in one direction: that of `better`, or the only one that there is.
pub fn write(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    better: Option<Better>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    // What describes a run and gets neither better nor worse is in neither list.
    let wanted = |m: &Metric| better.map_or(m.better != Better::Neither, |better| m.better == better);
    let all = benchmarks::read(table, selection, metrics, wanted)?;
    let first = |better| all.iter().find(|b| b.metric.better == better).map(|b| b.metric.name);
    if let (Some(higher), Some(lower)) = (first(Better::Higher), first(Better::Lower)) {
        return Err(Error::Usage(format!(
            "the action takes a list for each direction: {higher} should rise and {lower} should fall; write one with \
             --better higher (customBiggerIsBetter) and one with --better lower (customSmallerIsBetter)"
        )));
    }
    let list: Vec<Value> = all.iter().map(entry).collect();
    serde_json::to_writer_pretty(&mut *output, &list).map_err(|e| Error::Output(e.into()))?;
    output.write_all(b"\n")?;
    Ok(())
}

fn entry(benchmark: &Benchmark) -> Value {
    let Benchmark { name, metric, mean, interval, iterations, from, to } = benchmark;
    let mut extra = match iterations {
        1 => "1 iteration".to_owned(),
        n => format!("mean of {n} iterations, interval at {}", units::level(LEVEL)),
    };
    if !from.is_empty() && !to.is_empty() {
        extra = format!("{extra}\nfrom {from} to {to}");
    }
    let mut entry = json!({
        "name": format!("{name}: {}", metric.name),
        "unit": metric.unit.name(),
        "value": mean,
        "extra": extra,
    });
    if let Some(interval) = interval {
        // The action finds a number behind ± and shows other texts as they are. Its pattern wants two characters.
        entry["range"] = format!("± {:?}", interval.half_width()).into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "case,workload,from,to,throughput_bits_per_s,transactions_per_s,latency_p50_us,latency_p99_us,cwnd_bytes\n\
        up,tcp_stream,a,b,1,,,,9\nup,tcp_stream,a,b,3,,,,9\nask,tcp_rr,a,b,,50,2.5,4,9\n";

    fn written(metrics: &[&str], better: Option<Better>) -> Result<Value, String> {
        let mut table = Table::from_text("t", RESULTS).expect("a table");
        let metrics: Vec<String> = metrics.iter().map(|m| (*m).to_owned()).collect();
        let mut out = Vec::new();
        write(&mut table, &Selection::default(), &metrics, better, &mut out).map_err(|e| e.to_string())?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    #[test]
    fn a_list_has_one_direction() {
        let ask = |metric: &str, unit: &str, value: f64| json!({ "name": format!("ask: {metric}"), "unit": unit, "value": value, "extra": "1 iteration\nfrom a to b" });
        let higher = written(&[], Some(Better::Higher)).unwrap();
        let range = higher[0]["range"].as_str().unwrap().to_owned();
        let half: f64 = range.strip_prefix("± ").unwrap().parse().unwrap();
        assert!((half - 12.7062).abs() < 1e-4, "{range}");
        let up = json!({ "name": "up: throughput", "unit": "bit/s", "value": 2.0, "range": range,
            "extra": "mean of 2 iterations, interval at 95 %\nfrom a to b" });
        assert_eq!(higher, json!([up, ask("transaction_rate", "1/s", 50.0)]));
        let lower = json!([ask("latency.p50", "us", 2.5), ask("latency.p99", "us", 4.0)]);
        assert_eq!(written(&[], Some(Better::Lower)).unwrap(), lower);
        // Where all metrics agree, the direction is theirs.
        assert_eq!(written(&["latency.p50", "latency.p99"], None).unwrap(), lower);
        let error = written(&[], None).unwrap_err();
        assert!(error.contains("throughput should rise and latency.p50 should fall"), "{error}");
        assert!(error.contains("--better higher (customBiggerIsBetter)"), "{error}");
    }

    #[test]
    fn an_empty_list_is_an_error() {
        // The action refuses it. A congestion window is neither good nor bad.
        for (metric, better) in [("throughput", Some(Better::Lower)), ("cwnd", None)] {
            let error = written(&[metric], better).unwrap_err();
            assert!(error.contains("no row that counts has a value to export"), "{error}");
        }
    }
}
