//! Commands for `rrdtool -`: a database per curve, an update per row.

use std::collections::BTreeMap;
use std::io::Write;

use crate::error::Error;
use crate::table::rows::OwnedRow;
use crate::table::{Record, Rows, Selection, Table};
use schemas::time;

/// Columns that tell curves apart and name their databases.
const CURVE: &[&str] = &["case", "member", "direction", "stream"];

/// Writes `create` and `update` commands for one metric over time. A row without a time is an error.
pub fn write(table: &mut Table, selection: &Selection, metric: &str, output: &mut dyn Write) -> Result<(), Error> {
    let mut columns = vec![table.require("time")?, table.require(metric)?];
    columns.extend(CURVE.iter().filter_map(|c| table.header().find(c)));
    // Curves over time are made of interval rows.
    let selection = Selection {
        record: selection
            .record
            .clone()
            .or_else(|| table.header().find("record").map(|_| Record::Interval.to_string())),
        ..selection.clone()
    };
    let rows = Rows::read(table, &selection, &columns)?;
    let mut curves: BTreeMap<String, Vec<(i64, &OwnedRow)>> = BTreeMap::new();
    for row in &rows.rows {
        if rows.number(row, 1)?.is_none() {
            continue;
        }
        let Some(millis) = time::parse(row.get(0)).map(|moment| moment.timestamp_millis()) else {
            return Err(rows.error(row, 0, format!("`{}` is not a time such as 2026-01-31T12:00:00Z", row.get(0))));
        };
        let name: Vec<&str> = (2..rows.columns.len()).map(|i| row.get(i)).filter(|c| !c.is_empty()).collect();
        curves.entry(file_name(&name.join("-"))).or_default().push((millis, row));
    }
    if curves.is_empty() {
        let reason = format!("no interval that counts has a {metric}; choose another with -m or --record");
        return Err(table.error(reason));
    }
    for (name, mut points) in curves {
        points.sort_by_key(|(millis, _)| *millis);
        let seconds = |millis: i64| format!("{}.{:03}", millis.div_euclid(1000), millis.rem_euclid(1000));
        let (first, last) = (points[0].0, points[points.len() - 1].0);
        let length = (last - first) / 1000 + 2;
        writeln!(
            output,
            "create {name}.rrd --start {} --step 1 DS:value:GAUGE:10:U:U RRA:AVERAGE:0.5:1:{length} RRA:MIN:0.5:1:{length} \
             RRA:MAX:0.5:1:{length}",
            first.div_euclid(1000) - 1,
        )?;
        let mut previous = None;
        for (millis, row) in points {
            // rrdtool rejects a second value for one time.
            if previous == Some(millis) {
                return Err(rows.error(
                    row,
                    0,
                    format!("a second row of {name} at this time; choose rows with --where"),
                ));
            }
            previous = Some(millis);
            writeln!(output, "update {name}.rrd {}:{}", seconds(millis), row.get(1))?;
        }
    }
    Ok(())
}

/// A name without characters that are special to rrdtool's command line or a file system.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    if name.is_empty() {
        "results".to_owned()
    } else {
        name.replace("_-", "-").trim_matches(['_', '.', '-']).to_owned()
    }
}
