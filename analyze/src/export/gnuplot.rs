//! A gnuplot script and its data, like those of hpcbench's `-P`, with the spread of repeated points.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use indexmap::IndexMap;
use schemas::metrics;

use crate::error::Error;
use crate::table::{Rows, Selection, Table, replace};

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Picture {
    /// gnuplot: column of the horizontal axis [default: message_bytes, else iteration]
    #[arg(short, value_name = "COLUMN")]
    pub x: Option<String>,
    /// gnuplot: column of the vertical axis [default: throughput]
    #[arg(short, value_name = "COLUMN")]
    pub y: Option<String>,
    /// gnuplot: a curve for each value of this column [default: test]
    #[arg(long, value_name = "COLUMN")]
    pub by: Option<String>,
}

/// The values at one x of a curve.
#[derive(Debug, PartialEq)]
struct Point {
    x: f64,
    ys: Vec<f64>,
}

/// Writes the script. With a file, the data goes beside it (`x.plot`, `x.dat`), and the script draws `x.ps` and
/// `x.eps`. Without a file, the data is part of the script.
pub fn write(
    table: &mut Table,
    selection: &Selection,
    picture: &Picture,
    file: Option<&Path>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let default_x = if table.header().find("message_bytes").is_some() { "message_bytes" } else { "iteration" };
    let x = picture.x.as_deref().unwrap_or(default_x);
    let y = picture.y.as_deref().unwrap_or("throughput");
    let by = picture.by.as_deref().unwrap_or("test");
    let mut columns = vec![table.require(x)?, table.require(y)?];
    if let Some(by) = table.header().find(by).or(picture.by.as_deref().map(|by| table.require(by)).transpose()?) {
        columns.push(by);
    }
    let rows = Rows::read(table, selection, &columns)?;
    rows.note.iter().for_each(|note| crate::warn(note));
    let curves = curves(&rows)?;
    if curves.is_empty() {
        return Err(table.error(format!("no row that counts has both a {x} and a {y}")));
    }
    let data = data(&curves);
    let labels = (axis(&rows.columns[0]), axis(&rows.columns[1]));
    let logarithmic = rows.columns[0].ends_with("_bytes") && curves.values().flatten().all(|p| p.x > 0.0);
    let script = |source: &str, finish: &str| {
        let mut script = format!(
            "# gnuplot script; run it with: gnuplot -persist FILE\n{source}set key left top\nset xlabel {}\nset ylabel \
             {}\nset grid\n",
            quoted(&labels.0),
            quoted(&labels.1),
        );
        if logarithmic {
            script.push_str("set logscale x 2\n");
        }
        script.push_str("plot ");
        for (index, name) in curves.keys().enumerate() {
            let more = if index + 1 < curves.len() { ", \\\n     " } else { "\n" };
            let _ = write!(
                script,
                "DATA index {index} using 1:2:3:4 with yerrorlines title {}{more}",
                quoted(if name.is_empty() { &labels.1 } else { name })
            );
        }
        script + finish
    };
    match file {
        None => {
            let inline = format!("$data << EOD\n{data}EOD\n");
            output.write_all(script(&inline, "").replace("DATA index", "$data index").as_bytes())?;
        }
        Some(path) => {
            let beside = path.with_extension("dat");
            if beside == path {
                return Err(Error::Usage("the script cannot be called .dat: its data is".into()));
            }
            let name = |ending: &str| quoted(&path.with_extension(ending).display().to_string());
            let finish = format!(
                "pause -1 \"press return\"\nset terminal postscript color\nset output {}\nreplot\nset terminal postscript eps \
                 color\nset output {}\nreplot\n",
                name("ps"),
                name("eps"),
            );
            replace(&beside, data)?;
            let text = script("", &finish).replace("DATA index", &format!("{} index", name("dat")));
            replace(path, text)?;
        }
    }
    Ok(())
}

/// Points of each curve by rising x. Rows that lack a value are left out.
fn curves(rows: &Rows) -> Result<IndexMap<String, Vec<Point>>, Error> {
    let mut curves = IndexMap::<String, Vec<Point>>::new();
    for row in &rows.rows {
        let (Some(x), Some(y)) = (rows.number(row, 0)?, rows.number(row, 1)?) else { continue };
        let name = if rows.columns.len() > 2 { row.get(2) } else { "" };
        let points = curves.entry(name.to_owned()).or_default();
        match points.binary_search_by(|p| p.x.total_cmp(&x)) {
            Ok(found) => points[found].ys.push(y),
            Err(place) => points.insert(place, Point { x, ys: vec![y] }),
        }
    }
    Ok(curves)
}

/// Data blocks (gnuplot's indices) with lines of `x median smallest largest n`.
fn data(curves: &IndexMap<String, Vec<Point>>) -> String {
    let mut out = String::new();
    for (name, points) in curves {
        let _ = writeln!(out, "# {}\n# x median smallest largest n", name.replace('\n', " "));
        for point in points {
            let mut ys = point.ys.clone();
            ys.sort_by(f64::total_cmp);
            let n = ys.len();
            let median = if n % 2 == 1 { ys[n / 2] } else { f64::midpoint(ys[n / 2 - 1], ys[n / 2]) };
            let _ = writeln!(out, "{} {median} {} {} {n}", point.x, ys[0], ys[n - 1]);
        }
        out.push_str("\n\n");
    }
    out
}

/// The label of an axis: quantity and unit.
fn axis(column: &str) -> String {
    match metrics::find(column) {
        Some(metric) => format!("{} ({})", metric.label, metric.unit),
        None => column.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    // Within single quotes gnuplot interprets doubled quotes only.
    format!("'{}'", text.replace('\'', "''").replace('\n', " "))
}
