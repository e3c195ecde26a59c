//! `plumb steady`: the end of the warm-up.

use std::io::Write;

use indexmap::IndexMap;
use schemas::columns::results::column;
use schemas::words::Phase;

use crate::error::{Error, Verdict};
use crate::stats::moments;
use crate::stats::series::{self, WarmUp};
use crate::table::{Field, InputArgs, OutputArgs, Record, Table, cells, write_csv};

/// The end of the warm-up in a series of intervals, found from the intervals themselves.
///
/// plumb run plans/quick.yaml --set defaults.interval=10ms | plumb steady | plumb table
///
/// Uses MSER-5 with a guard: a cut counts only if the mean before it differs from the mean after it by more than three
/// standard errors, because MSER-5 alone cuts pure noise in four runs of ten. Takes 50 intervals of the measure phase
/// or more. Without options, writes one row per series with the result. --mark writes the table again with phase=warmup
/// on the warm-up's intervals, --trim without them; both read the whole input first. Iteration rows stay as they were
/// measured.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Rate to look at [default: throughput, or else transaction rate]
    #[arg(short, long, value_name = "METRIC")]
    metric: Option<String>,
    /// Write the table with the warm-up's intervals marked phase=warmup
    #[arg(long, conflicts_with = "trim")]
    mark: bool,
    /// Write the table without the warm-up's intervals
    #[arg(long)]
    trim: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// The columns that tell series apart, besides the file.
const SERIES: [&str; 7] = [
    column::run_id,
    column::case_id,
    column::case,
    column::iteration,
    column::member,
    column::direction,
    column::stream,
];

/// Intervals by what tells series apart: place in the table, end in seconds, value.
type Series = IndexMap<Vec<String>, Vec<(usize, Option<f64>, f64)>>;

fn values(intervals: &[(usize, Option<f64>, f64)]) -> Vec<f64> {
    intervals.iter().map(|i| i.2).collect()
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let mut table = Table::open(&args.input)?;
    let metric = table.require_rate(args.metric.as_deref())?;
    let names = table.header().names().to_vec();
    let keys: Vec<usize> = SERIES.iter().filter_map(|n| table.header().find(n)).collect();
    let [record, phase] = [table.require(column::record)?, table.require(column::phase)?];
    let keep = args.mark || args.trim;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut all = Series::new();
    let mut at = 0;
    while let Some(row) = table.next_row()? {
        let counts = row.get(record) == Record::Interval.as_str() && row.get(phase) == Phase::Measure.as_str();
        if counts && let Some(value) = row.number(metric)? {
            let key: Vec<String> =
                std::iter::once(row.file()).chain(keys.iter().map(|c| row.get(*c))).map(str::to_owned).collect();
            let end = row.value(Field::start_s)?.zip(row.value(Field::elapsed_s)?).map(|(s, e)| s + e);
            all.entry(key).or_default().push((at, end, value));
        }
        if keep {
            rows.push(row.cells().map(str::to_owned).collect());
        }
        at += 1;
    }
    if all.is_empty() {
        crate::warn("there are no intervals of the measure phase: run the plan with an interval (interval: 100ms)");
    }
    let found: Vec<WarmUp> = all.values().map(|s| series::warm_up(&values(s))).collect();
    let titles: Vec<&str> = std::iter::once("file").chain(keys.iter().map(|c| names[*c].as_str())).collect();
    args.output.write(output, |w| {
        if !keep {
            return report(&titles, &names[metric], &all, &found, w);
        }
        let mut warm = vec![false; rows.len()];
        for (series, found) in all.values().zip(&found) {
            if let WarmUp::Until(n) = found {
                series[..*n].iter().for_each(|i| warm[i.0] = true);
            }
        }
        let kept = rows.into_iter().zip(warm).filter(|(_, warm)| !(*warm && args.trim));
        let marked = kept.map(|(mut row, warm)| {
            if warm {
                Phase::Warmup.as_str().clone_into(&mut row[phase]);
            }
            row
        });
        write_csv(w, &names, marked)
    })?;
    for (key, found) in all.keys().zip(&found) {
        if *found == WarmUp::NotOver {
            let name = key[1..].join(" ");
            crate::warn(&format!("{}: half of the intervals are not enough to settle; measure longer", name.trim()));
        }
    }
    Ok(Verdict::Ok)
}

fn report(keys: &[&str], metric: &str, all: &Series, found: &[WarmUp], output: &mut dyn Write) -> Result<(), Error> {
    // Identifiers of runs and cases are for machines: they are shown if nothing else tells series apart.
    let shown: Vec<usize> = (0..keys.len())
        .filter(|k| {
            let varies = all.keys().zip(all.keys().skip(1)).any(|(a, b)| a[*k] != b[*k]);
            keys[*k] == column::case
                || varies && !matches!(keys[*k], column::run_id | column::case_id)
                || varies && keys[*k] != "file" && !keys.contains(&column::case)
        })
        .collect();
    let mut titles: Vec<String> = shown.iter().map(|k| keys[*k].to_owned()).collect();
    titles.extend(["intervals", "warm_up", "warm_up_intervals", "warm_up_end_s"].map(str::to_owned));
    titles.extend(["mean", "steady_mean"].map(|s| format!("{metric}_{s}")));
    titles.push("change_ratio".to_owned());
    let rows = all.iter().zip(found).map(|((key, series), found)| {
        let values = values(series);
        let (word, cut) = match found {
            WarmUp::TooShort => ("too_short", None),
            WarmUp::None => ("none", Some(0)),
            WarmUp::Until(n) => ("found", Some(*n)),
            WarmUp::NotOver => ("not_over", None),
        };
        let end = cut.filter(|n| *n > 0).and_then(|n| series[n - 1].1);
        let mean = moments::mean(&values);
        let steady = cut.and_then(|n| moments::mean(&values[n..]));
        let change = mean.zip(steady).map(|(m, s)| (s - m) / m.abs()).filter(|r| r.is_finite());
        let key: Vec<String> = shown.iter().map(|k| key[*k].clone()).collect();
        key.into_iter().chain(cells![values.len(), word, cut, end, mean, steady, change])
    });
    write_csv(output, titles, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    fn steady(options: &[&str]) -> Vec<String> {
        let mut text = String::from("case,record,phase,start_s,elapsed_s,throughput_bits_per_s,note\n");
        for i in 0..100 {
            let value = if i < 10 { 10 } else { 100 + i % 3 };
            text += &format!("a,interval,measure,{i},1,{value},\"x,{i}\"\n");
        }
        text += "a,iteration,measure,0,100,91.5,\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let args = parsed(["steady", path].iter().chain(options)).unwrap();
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn says_where_it_ends() {
        let report = steady(&[]);
        assert!(report[1].starts_with("a,100,found,10,10,91."), "{report:?}");
    }

    #[test]
    fn files_are_series_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (name, from) in [("a.csv", 10), ("b.csv", 30)] {
            let mut text = String::from("case,record,phase,throughput_bits_per_s\n");
            for i in 0..100 {
                text += &format!("a,interval,measure,{}\n", if i < from { 10 } else { 100 + i % 3 });
            }
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            files.push(path.to_str().unwrap().to_owned());
        }
        let args = parsed(["steady".to_owned()].into_iter().chain(files)).unwrap();
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let report = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines[0].starts_with("file,case,intervals") && lines.len() == 3, "{report}");
        assert!(lines[1].contains("a.csv,a,100,found,10,") && lines[2].contains("b.csv,a,100,found,30,"), "{report}");
    }

    #[test]
    fn marks_and_trims_and_leaves_the_rest_alone() {
        let marked = steady(&["--mark"]);
        assert_eq!(marked.len(), 102);
        assert_eq!(marked[1], "a,interval,warmup,0,1,10,\"x,0\"");
        assert_eq!(marked[11], "a,interval,measure,10,1,101,\"x,10\"");
        let trimmed = steady(&["--trim"]);
        assert_eq!(trimmed[1..], marked[11..]);
    }
}
