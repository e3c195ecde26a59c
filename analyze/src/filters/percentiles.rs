//! `plumb percentiles`: latency percentiles from merged histograms.

use std::io::Write;

use indexmap::IndexMap;

use crate::error::{Error, Verdict};
use crate::stats::histogram::{Latencies, asked_percentile, column_name, needed_observations};
use crate::table::output::CsvCell;
use crate::table::select::Preferred;
use crate::table::{Field, Picker, Table, TableArgs, cells, write_csv};

/// Latency percentiles per group, from the merged histograms of its rows.
///
/// plumb run plans/quick.yaml | plumb percentiles --p 50,99,99.9 | plumb table
///
/// Adds histograms bucket by bucket, so the percentiles are those of all observations. (Averaging the rows' own
/// percentiles would not give them.) A percentile with fewer than ten observations above it, or below it if it is less
/// than 50, is left empty unless --rare shows it; 0 is the smallest observation. Values are full round trips, as in the
/// results, unless --one-way halves them.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Group rows by these columns; `file` is the file they come from [default: case, and member and direction where they
    /// are used]
    #[arg(short, long, visible_alias = "by", value_name = "COLUMN,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Percentiles, each from 0 to below 100
    #[arg(
        long,
        value_name = "P,…",
        value_delimiter = ',',
        default_value = "50,90,95,99,99.9",
        allow_hyphen_values = true
    )]
    p: Vec<String>,
    /// Show percentiles with fewer than ten observations above them (below them, if less than 50)
    #[arg(long)]
    rare: bool,
    /// Halve round trips: the time of one way if both take the same
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Default)]
struct Groups {
    list: IndexMap<Vec<String>, Latencies>,
    kinds: Vec<String>,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let percentiles = args
        .p
        .iter()
        .map(|p| asked_percentile(p).map(|q| (column_name(q), q)).map_err(|e| Error::Usage(format!("--p: {e}"))))
        .collect::<Result<Vec<_>, Error>>()?;
    if let Some(i) = (1..percentiles.len()).find(|i| percentiles[..*i].contains(&percentiles[*i])) {
        return Err(Error::Usage(format!("--p names {} twice", args.p[i].trim())));
    }
    let mut table = Table::open(&args.tables.input)?;
    let group = table.group_by(&args.group)?;
    let header = table.header();
    let titles: Vec<String> = group.iter().map(|c| header.names()[*c].clone()).collect();
    let histogram = table.require("latency_histogram")?;
    let mut picker = Picker::new(&args.tables.selection, &table)?;
    let mut kept: Preferred<Groups> = Preferred::default();
    while let Some(row) = table.next_row()? {
        let Some(groups) = picker.pick(&row)?.and_then(|kind| kept.slot(kind)) else { continue };
        let cell = row.get(histogram);
        if cell.is_empty() {
            continue;
        }
        let latencies = Latencies::decode(cell).map_err(|reason| row.error(Some(histogram), reason))?;
        let key: Vec<String> = group.iter().map(|c| row.get(*c).to_owned()).collect();
        groups.list.entry(key).or_default().merge(&latencies).map_err(|reason| row.error(Some(histogram), reason))?;
        let kind = row.text(Field::latency_kind);
        if row.has(Field::latency_kind) && !groups.kinds.iter().any(|seen| seen == kind) {
            groups.kinds.push(kind.to_owned());
        }
    }
    picker.matched(&table)?;
    let groups = kept.into_kept().map(|(_, groups)| groups).unwrap_or_default();
    picker.note().iter().for_each(|note| crate::warn(note));
    if groups.kinds.len() > 1 {
        crate::warn(&format!(
            "rows differ in latency_kind ({}): they time different things; choose with --where latency_kind=…, or add it to -g",
            groups.kinds.join(", ")
        ));
    }
    args.tables.output.write(output, |w| write(args, &titles, &percentiles, &groups, w))?;
    Ok(Verdict::Ok)
}

fn write(
    args: &Args,
    group: &[String],
    percentiles: &[(String, f64)],
    groups: &Groups,
    output: &mut dyn Write,
) -> Result<(), Error> {
    // Default columns are shown if they tell groups apart.
    let pairs = groups.list.keys().zip(groups.list.keys().skip(1));
    let used: Vec<usize> = (0..group.len())
        .filter(|i| !args.group.is_empty() || *i == 0 || pairs.clone().any(|(a, b)| a[*i] != b[*i]))
        .collect();
    let mut titles: Vec<&str> = used.iter().map(|i| group[*i].as_str()).collect();
    titles.extend(["observations", "latency_min_us", "latency_mean_us"]);
    titles.extend(percentiles.iter().map(|(name, _)| name.as_str()));
    titles.push("latency_max_us");
    let scale = if args.one_way { 0.5 } else { 1.0 };
    let row = |(key, latencies): (&Vec<String>, &Latencies)| {
        let value = |v: Option<f64>| v.map(|v| v * scale);
        let quantiles = percentiles.iter().map(|(_, q)| {
            let enough = latencies.count() >= needed_observations(*q);
            value(latencies.quantile_us(*q).filter(|_| enough || args.rare)).cell()
        });
        let mut cells: Vec<String> = used.iter().map(|i| key[*i].clone()).collect();
        cells.extend(cells![latencies.count(), value(latencies.min_us()), value(latencies.mean_us())]);
        cells.extend(quantiles);
        cells.push(value(latencies.max_us()).cell());
        cells
    };
    write_csv(output, titles, groups.list.iter().map(row))
}
