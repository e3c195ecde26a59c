//! Commands for `rrdtool -`: a database per curve, an update per row.

use std::collections::BTreeMap;
use std::io::Write;

use crate::error::Error;
use crate::table::select::OwnedRow;
use crate::table::{Rows, Selection, Table};

/// Columns that make a curve, and the name of its database.
const CURVE: &[&str] = &["case", "member", "direction", "stream"];

/// Writes `create` and `update` commands for one metric over time. Rows without a time are an error: a database of another
/// time would be wrong.
pub fn write(table: &mut Table, selection: &Selection, metric: &str, output: &mut dyn Write) -> Result<(), Error> {
    let mut columns = vec![table.require("time")?, table.require(metric)?];
    columns.extend(CURVE.iter().filter_map(|c| table.header().find(c)));
    // Curves over time are made of intervals where there are any.
    let selection = Selection {
        record: selection.record.clone().or_else(|| table.header().find("record").map(|_| "interval".to_owned())),
        ..selection.clone()
    };
    let rows = Rows::read(table, &selection, &columns)?;
    let mut curves: BTreeMap<String, Vec<(i64, &OwnedRow)>> = BTreeMap::new();
    for row in &rows.rows {
        if rows.number(row, 1)?.is_none() {
            continue;
        }
        let Some(millis) = unix_millis(row.get(0)) else {
            return Err(rows.error(row, 0, format!("`{}` is no time such as 2026-01-31T12:00:00Z", row.get(0))));
        };
        let name: Vec<&str> = (2..rows.columns.len()).map(|i| row.get(i)).filter(|c| !c.is_empty()).collect();
        curves.entry(file_name(&name.join("-"))).or_default().push((millis, row));
    }
    if curves.is_empty() {
        return Err(Error::Usage(format!(
            "no interval that counts has a {metric}; choose another with -m or --record"
        )));
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
            // rrdtool refuses a second value for one moment.
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

/// A name that neither rrdtool's command line nor a file system takes apart.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    if name.is_empty() {
        "results".to_owned()
    } else {
        name.replace("_-", "-").trim_matches(['_', '.', '-']).to_owned()
    }
}

/// Milliseconds since 1970 of RFC 3339 in UTC, as the `time` column has it.
fn unix_millis(time: &str) -> Option<i64> {
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = time.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let bytes = time.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes.get(*at) != Some(mark)) || !time.ends_with('Z') {
        return None;
    }
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let fraction = time.get(19..time.len() - 1)?;
    let millis = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{digits:0<3}").get(..3)?.parse().ok()?
        }
        _ => return None,
    };
    // Days by the proleptic Gregorian calendar, counted in eras of 400 years from 1 March of year 0.
    let shifted_year = year - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(unix_millis("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(unix_millis("2011-06-23T00:42:45.848Z"), Some(1_308_789_765_848));
        assert_eq!(unix_millis("2000-02-29T00:00:00.5Z"), Some(951_782_400_500));
        for bad in ["", "now", "2000-02-29T00:00:00", "2000-13-01T00:00:00Z", "2000-02-29 00:00:00Z", "äöü"] {
            assert_eq!(unix_millis(bad), None, "{bad}");
        }
    }
}
