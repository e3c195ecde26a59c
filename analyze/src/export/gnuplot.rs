//! A gnuplot script and its data, like those of hpcbench's `-P`, with the spread of repeated points.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use schemas::{columns::results::column, metrics, units::Unit};

use crate::{
    error::Error,
    plot::{
        Options,
        options::Spread,
        quantity::Quantity,
        records::{Columns, Records, TELLING, Wanted},
        series::{self, Centre, Condense, Series},
    },
    table::{Selection, Table, replace},
};

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Picture {
    /// gnuplot: column of the horizontal axis [default: message_bytes, else iteration]
    #[arg(short, value_name = "COLUMN")]
    pub x: Option<String>,
    /// gnuplot: column of the vertical axis [default: throughput]
    #[arg(short, value_name = "COLUMN")]
    pub y: Option<String>,
    /// gnuplot: a curve for each value of these columns [default: what the rows differ in]. They must tell apart all that
    /// differs, as in `plumb plot`
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub by: Vec<String>,
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
    let default_x =
        if table.header().find(column::message_bytes).is_some() { column::message_bytes } else { column::iteration };
    let x = picture.x.as_deref().unwrap_or(default_x);
    let y = picture.y.as_deref().unwrap_or("throughput");
    let columns = Columns {
        metric: Wanted::Column(y),
        axes: &[Wanted::Column(x)],
        numeric_axes: true,
        texts: TELLING,
        lines: true,
        ..Columns::default()
    };
    let options = Options { by: picture.by.clone(), ..Options::default() };
    let records = Records::of_table(table, &options, selection, &columns)?;
    records.uncounted.iter().chain(&records.warnings).for_each(|note| crate::warn(note));
    let (x, y) = (records.axes[0].as_str(), records.metric.as_str());
    let how = Condense {
        centre: Centre::Median,
        spread: Spread::Range,
        is_range_of_few: false,
        level: options.confidence,
        range: metrics::range_of(y),
    };
    let curves = series::gather(&records, &how, |r| records.number(r, x), |r| records.number(r, y));
    if curves.is_empty() {
        return Err(table.error(format!("no row that counts has both a {x} and a {y}")));
    }
    let data = data(&curves);
    let quantities = [x, y].map(|column| records.quantity(column));
    let labels = quantities.each_ref().map(axis);
    let has_sizes = quantities[0].unit == Some(Unit::Bytes);
    let logarithmic = has_sizes && curves.iter().flat_map(|curve| &curve.points).all(|point| point.x > 0.0);
    let subject = records.subject();
    let script = |source: &str, finish: &str| {
        let mut script = format!(
            "# gnuplot script; run it with: gnuplot -persist FILE\n{source}set key left top\nset xlabel {}\nset ylabel \
             {}\nset grid\n",
            quoted(&labels[0]),
            quoted(&labels[1]),
        );
        if logarithmic {
            script.push_str("set logscale x 2\n");
        }
        script.push_str("plot ");
        for (index, curve) in curves.iter().enumerate() {
            let more = if index + 1 < curves.len() { ", \\\n     " } else { "\n" };
            let _ = write!(
                script,
                "DATA index {index} using 1:2:3:4 with yerrorlines title {}{more}",
                quoted(if curve.name.is_empty() { subject.as_ref().unwrap_or(&labels[1]) } else { &curve.name })
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

/// Data blocks (gnuplot's indices) with lines of `x median smallest largest n`.
fn data(curves: &[Series]) -> String {
    let mut out = String::new();
    for curve in curves {
        let _ = writeln!(out, "# {}\n# x median smallest largest n", curve.name.replace('\n', " "));
        for point in &curve.points {
            let (smallest, largest) = point.extent();
            let _ = writeln!(out, "{} {} {smallest} {largest} {}", point.x, point.y, point.n);
        }
        out.push_str("\n\n");
    }
    out
}

/// The label of an axis: quantity and unit.
fn axis(quantity: &Quantity) -> String {
    match quantity.unit {
        Some(unit) => format!("{} ({unit})", quantity.label),
        None => quantity.label.clone(),
    }
}

fn quoted(text: &str) -> String {
    // Within single quotes gnuplot interprets doubled quotes only.
    format!("'{}'", text.replace('\'', "''").replace('\n', " "))
}
