//! Results as trackers of benchmarks take them: one value per case and metric, with the interval of its mean.

use super::Measurements;
use crate::{
    distinct,
    error::Error,
    judge::samples::{Case, Index, Samples},
    stats::{confidence, moments},
    table::{Selection, Table, rows::OwnedRow},
};
use schemas::{
    metrics::{self, Better, Metric},
    units, vocabulary,
};
use serde_json::{Map, Value, json};
use std::{collections::HashSet, fmt::Write as _, io::Write};

/// The level of the intervals. Trackers draw them and compare their ends, so it is the same in every file.
pub const LEVEL: f64 = 0.95;

/// A metric of a case.
#[derive(Debug)]
pub struct Benchmark {
    /// The case, with its member, and with its direction where it has several.
    pub name: String,
    pub metric: &'static Metric,
    /// Mean of the iterations.
    pub mean: f64,
    /// Student's interval of the mean; `None` for a single iteration.
    pub interval: Option<confidence::Interval>,
    pub iterations: usize,
    pub from: String,
    pub to: String,
}

impl Benchmark {
    /// The ends of the interval, within the values that the metric can have.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        let interval = self.interval?.within(self.metric.range());
        Some((interval.low, interval.high))
    }
}

/// Reads the named metrics of each case, or its headline and what belongs beside it. `wanted` chooses among them.
///
/// An output without benchmarks is an error: trackers refuse it, and a case that vanished would look as if it was never there.
pub fn read(
    table: &mut Table,
    selection: &Selection,
    names: &[String],
    wanted: impl Fn(&Metric) -> bool,
) -> Result<Vec<Benchmark>, Error> {
    let known: Vec<(&'static Metric, usize)> = if names.is_empty() {
        metrics::METRICS.iter().filter_map(|m| Some((m, table.header().find(m.column)?))).collect()
    } else {
        let metric = |name: &String| vocabulary::metric(name).map_err(|e| Error::Usage(format!("-m: {e}")));
        let found = |name| metric(name).and_then(|m| Ok((m, table.require(m.column)?)));
        names.iter().map(found).collect::<Result<_, _>>()?
    };
    let columns: Vec<usize> = known.iter().map(|(_, column)| *column).collect();
    let samples = Samples::read(table, selection, &columns, None)?;
    samples.note.iter().for_each(|note| crate::warn(note));
    let index = Index::new(&samples.cases);
    let (mut all, mut seen, mut without) = (Vec::new(), HashSet::new(), Vec::new());
    for case in &samples.cases {
        let name = index.label(case);
        if !seen.insert(name.clone()) {
            return Err(table.error(format!(
                "two different cases are called {name}, and a tracker knows a benchmark by its name: choose one with \
                 --where, for example --where plan=NAME"
            )));
        }
        let measured = of_case(case, &known, names.is_empty());
        if measured.is_empty() {
            without.push(name.clone());
        }
        for i in measured.into_iter().filter(|i| wanted(known[*i].0)) {
            all.push(Benchmark {
                name: name.clone(),
                metric: known[i].0,
                mean: moments::mean(&case.values[i]).unwrap_or_default(),
                interval: confidence::t_interval(&case.values[i], LEVEL),
                iterations: case.values[i].len(),
                from: case.origin.from.clone(),
                to: case.origin.to.clone(),
            });
        }
    }
    if let [first, ..] = without.as_slice() {
        let more = if without.len() > 1 { format!(" and {} more", without.len() - 1) } else { String::new() };
        crate::warn(&format!("left out, without a value of an exported metric: {first}{more}"));
    }
    if all.is_empty() {
        return Err(table.error("no row that counts has a value to export; -m and --where choose others"));
    }
    Ok(all)
}

/// The metrics of a case that have values, as indices: all known ones, or its usual ones, the headline first.
fn of_case(case: &Case, known: &[(&'static Metric, usize)], usual: bool) -> Vec<usize> {
    let has = |i: usize| !case.values[i].is_empty();
    if !usual {
        return (0..known.len()).filter(|i| has(*i)).collect();
    }
    let place = |name: &str| known.iter().position(|(m, _)| m.name == name).filter(|i| has(*i));
    let headline = case.family.headlines().iter().find_map(|name| place(name));
    let beside = case.family.beside().iter().filter_map(|name| place(name));
    distinct(headline.into_iter().chain(beside))
}

// Bencher Metric Format: `{benchmark: {measure: {value, lower_value, upper_value}}}`.

/// Bytes that Bencher takes of a benchmark's name.
const LONGEST_NAME: usize = 1024;

/// Writes a benchmark per case, member and direction.
pub fn write_bencher(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut all: Map<String, Value> = Map::new();
    for benchmark in read(table, selection, metrics, |_| true)? {
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

// The JSON of github-action-benchmark's tools `customBiggerIsBetter` and `customSmallerIsBetter`.

/// Writes a list of the metrics that improve in one direction: that of `better`, or the only one that there is.
pub fn write_github_action(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    better: Option<Better>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    // What describes a run and gets neither better nor worse is in neither list.
    let wanted = |m: &Metric| better.map_or(m.better != Better::Neither, |better| m.better == better);
    let all = read(table, selection, metrics, wanted)?;
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
        "unit": metric.unit.as_str(),
        "value": mean,
        "extra": extra,
    });
    if let Some(interval) = interval {
        // The action finds a number behind ± and shows other texts as they are. Its pattern wants two characters.
        entry["range"] = format!("± {:?}", interval.half_width()).into();
    }
    entry
}

// Go's benchmark format, which `benchstat` reads: a line per row, a unit per metric.

/// Default metrics.
const USUAL: &[&str] =
    &["throughput", "transaction_rate", "latency.mean", "latency.p50", "latency.p99", "cpu.local", "cpu.remote"];

/// Writes the rows that count.
pub fn write_benchfmt(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let usual: Vec<String> = USUAL
        .iter()
        .filter(|m| metrics::find(m).is_some_and(|m| table.header().find(m.column).is_some()))
        .map(|m| (*m).to_owned())
        .collect();
    let names = if metrics.is_empty() && !usual.is_empty() { &usual } else { metrics };
    let found = Measurements::read(table, selection, names)?;
    let unit = |metric: &Metric| format!("{}-{}", metric.name, metric.unit);
    for (metric, _) in &found.metrics {
        // benchstat's default is that less is better.
        if metric.better != Better::Neither {
            writeln!(output, "Unit {} better={}", unit(metric), metric.better.as_str())?;
        }
    }
    for row in &found.rows.rows {
        let mut values = String::new();
        for (metric, index) in &found.metrics {
            if found.rows.number(row, *index)?.is_some() {
                let _ = write!(values, " {} {}", row.get(*index), unit(metric));
            }
        }
        if !values.is_empty() {
            writeln!(output, "{} 1{values}", name(&found, row))?;
        }
    }
    Ok(())
}

/// `bulk[message_size=64,streams=2]` from a to b becomes `BenchmarkBulk/message_size=64/streams=2/direction=forward`.
/// The iteration is left out: lines of one name are benchstat's samples.
fn name(found: &Measurements, row: &OwnedRow) -> String {
    let cell = |column: &str| {
        found.labels.iter().find(|l| found.column(**l) == column).map(|l| row.get(*l)).filter(|c| !c.is_empty())
    };
    let case = cell("case").or(cell("test")).unwrap_or("row");
    let (test, axes) = match case.strip_suffix(']').and_then(|c| c.split_once('[')) {
        Some((test, axes)) => (test, axes),
        None => (case, ""),
    };
    let mut name = String::from("Benchmark");
    for word in test.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        let mut letters = word.chars();
        name.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        name.push_str(letters.as_str());
    }
    for axis in axes.split(',').filter(|a| !a.is_empty()) {
        name.push('/');
        name.push_str(&plain(axis));
    }
    for label in ["member", "from", "to", "direction", "stream"] {
        if let Some(value) = cell(label) {
            let _ = write!(name, "/{label}={}", plain(value));
        }
    }
    name
}

/// Replaces blanks and slashes, which end a name or begin another part of it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c == '/' { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::metrics::METRICS;

    fn written_for_bencher(text: &str, metrics: &[&str]) -> Result<Value, String> {
        let mut table = Table::from_text("t", text).expect("a table");
        let metrics: Vec<String> = metrics.iter().map(|m| (*m).to_owned()).collect();
        let mut out = Vec::new();
        write_bencher(&mut table, &Selection::default(), &metrics, &mut out).map_err(|e| e.to_string())?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    const BENCHER_HEAD: &str = "case_id,case,member,direction,record,status,workload,throughput_bits_per_s,transactions_per_s,\
        latency_p50_us,latency_p99_us,cpu_local\n";

    #[test]
    fn a_benchmark_per_case_member_and_direction() {
        let rows = "c1,up,,forward,iteration,ok,tcp_stream,1,,,,\nc1,up,,forward,iteration,ok,tcp_stream,3,,,,\n\
            c1,up,,forward,iteration,failed,tcp_stream,,,,,\nc2,mixed,bulk,forward,iteration,ok,tcp_stream,7,,,,\n\
            c2,mixed,bulk,reverse,iteration,ok,tcp_stream,8,,,,\nc2,mixed,ask,forward,iteration,ok,tcp_rr,99,50,2.5,4,\n";
        let value = written_for_bencher(&format!("{BENCHER_HEAD}{rows}"), &[]).unwrap();
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
        let named = written_for_bencher(&format!("{BENCHER_HEAD}{rows}"), &["latency.p99"]).unwrap();
        assert_eq!(named, json!({ "mixed ask": { "latency-p99-us": { "value": 4.0 } } }));
    }

    #[test]
    fn what_bencher_would_refuse_or_confuse() {
        let row = |id: &str, case: &str| format!("{id},{case},,forward,iteration,ok,tcp_stream,1,,,,\n");
        let error =
            written_for_bencher(&format!("{BENCHER_HEAD}{}{}", row("c1", "a"), row("c2", "a")), &[]).unwrap_err();
        assert!(error.contains("two different cases are called a"), "{error}");
        let error = written_for_bencher(&format!("{BENCHER_HEAD}{}", row("c1", &"x".repeat(1025))), &[]).unwrap_err();
        assert!(error.contains("a name of 1025 bytes, and Bencher takes 1 to 1024"), "{error}");
        let failed = "c1,a,,forward,iteration,failed,tcp_stream,,,,,\n";
        let error = written_for_bencher(&format!("{BENCHER_HEAD}{failed}"), &[]).unwrap_err();
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

    const RESULTS: &str = "case,workload,from,to,throughput_bits_per_s,transactions_per_s,latency_p50_us,latency_p99_us,cwnd_bytes\n\
        up,tcp_stream,a,b,1,,,,9\nup,tcp_stream,a,b,3,,,,9\nask,tcp_rr,a,b,,50,2.5,4,9\n";

    fn written(metrics: &[&str], better: Option<Better>) -> Result<Value, String> {
        let mut table = Table::from_text("t", RESULTS).expect("a table");
        let metrics: Vec<String> = metrics.iter().map(|m| (*m).to_owned()).collect();
        let mut out = Vec::new();
        write_github_action(&mut table, &Selection::default(), &metrics, better, &mut out)
            .map_err(|e| e.to_string())?;
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
