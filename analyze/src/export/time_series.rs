//! Values over time: InfluxDB's line protocol, and commands for `rrdtool -`.
//!
//! InfluxDB gets a line per row. Tags say what was measured, fields are the numbers.

use crate::{
    error::Error,
    table::{Record, Rows, Selection, Table, rows::OwnedRow},
};
use schemas::{
    columns::{self, AXIS_PREFIX, Column, ColumnType, results::column},
    time, vocabulary,
};
use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    io::Write,
};

/// The measurement of every line.
const MEASUREMENT: &str = "plumb";

/// Columns of a row that are neither tags nor fields. A database keeps an index of each value of a tag, and every run has another
/// `run_id`; `time` is the timestamp; rows that count have no error.
const LEFT_OUT: [&str; 4] = [column::run_id, column::time, column::status, column::error];

/// Tags beyond place and parameters: words that say what the numbers of a row mean.
const MEANINGS: [&str; 6] = [
    column::latency_kind,
    column::service_demand_unit,
    column::operation,
    column::algorithm,
    column::library,
    column::class,
];

/// What becomes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Tag,
    Field,
}

/// The name of a field, its type and its place in a row.
type Field = (String, ColumnType, usize);

/// `None`: it is left out.
fn role(name: &str) -> Option<Role> {
    if name.starts_with(AXIS_PREFIX) {
        return Some(Role::Tag);
    }
    // Columns of other programs have no type that holds for every row.
    let column = columns::find(name).filter(|_| !LEFT_OUT.contains(&name))?;
    let is_place = |c: &Column| c.group == "place and time" && c.ty == ColumnType::Text;
    match column.ty {
        _ if matches!(column.group, "identity" | "kind") || is_place(column) => Some(Role::Tag),
        _ if column.is_parameter() || MEANINGS.contains(&name) => Some(Role::Tag),
        ColumnType::Text | ColumnType::Time => None,
        ColumnType::Integer | ColumnType::Number | ColumnType::Boolean => Some(Role::Field),
    }
}

/// Writes the rows that count. With metrics, only these are fields.
pub fn write_influx(
    table: &mut Table,
    selection: &Selection,
    metrics: &[String],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let wanted: Vec<&str> = metrics
        .iter()
        .map(|name| vocabulary::metric(name).map(|m| m.column).map_err(|e| Error::Usage(format!("-m: {e}"))))
        .collect::<Result<_, _>>()?;
    let mut chosen = vec![table.require(column::time)?];
    let (mut tags, mut fields) = (Vec::new(), Vec::new());
    for name in &wanted {
        table.require(name)?;
    }
    for (index, name) in table.header().names().iter().enumerate() {
        // A parameter that is asked for as a metric is a field.
        let asked = wanted.contains(&name.as_str());
        match (role(name), columns::find(name).map(|c| c.ty)) {
            (_, Some(ty)) if asked => fields.push((name.clone(), ty, chosen.len())),
            (Some(Role::Tag), _) => tags.push((escaped(name).map_err(|e| table.error(e))?, chosen.len())),
            (Some(Role::Field), Some(ty)) if wanted.is_empty() => fields.push((name.clone(), ty, chosen.len())),
            _ => continue,
        }
        chosen.push(index);
    }
    // InfluxDB sorts the tags of a line that has them in another order.
    tags.sort();
    let rows = Rows::read(table, selection, &chosen)?;
    rows.note.iter().for_each(|note| crate::warn(note));
    let mut seen = HashSet::new();
    for row in &rows.rows {
        let values = values(&rows, row, &fields)?;
        if values.is_empty() {
            continue;
        }
        let mut point = MEASUREMENT.to_owned();
        for (name, index) in &tags {
            let cell = row.get(*index);
            if !cell.is_empty() {
                let value = escaped(cell).map_err(|reason| rows.error(row, *index, reason))?;
                let _ = write!(point, ",{name}={value}");
            }
        }
        let at = nanoseconds(row.get(0)).map_err(|reason| rows.error(row, 0, reason))?;
        if seen.contains(&(point.clone(), at)) {
            let reason = "a second row with the same tags at this time, which would replace the first; choose rows with \
                          --where";
            return Err(rows.error(row, 0, reason));
        }
        writeln!(output, "{point} {values} {at}")?;
        seen.insert((point, at));
    }
    if seen.is_empty() {
        crate::warn("no row that counts has a number: the output is empty");
    }
    Ok(())
}

/// `name=value` of each field that has a value. The cells of a table are finite numbers, so none is NaN.
fn values(rows: &Rows, row: &OwnedRow, fields: &[Field]) -> Result<String, Error> {
    let mut values: Vec<String> = Vec::new();
    for (name, ty, index) in fields {
        let cell = row.get(*index);
        if cell.is_empty() {
            continue;
        }
        let value = match ty {
            ColumnType::Boolean if matches!(cell, "true" | "false") => cell.to_owned(),
            ColumnType::Boolean => return Err(rows.error(row, *index, format!("`{cell}` is not true or false"))),
            ColumnType::Integer => {
                let whole = whole(rows.number(row, *index)?, cell);
                let reason = || format!("`{cell}` is not a whole number from 0 to 2^63-1");
                format!("{}i", whole.ok_or_else(|| rows.error(row, *index, reason()))?)
            }
            _ => rows.number(row, *index)?.unwrap_or_default().to_string(),
        };
        values.push(format!("{name}={value}"));
    }
    Ok(values.join(","))
}

/// The whole number of a cell, also where another program wrote it as `1e6`.
fn whole(number: Option<f64>, cell: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole and below 2^53")]
    let written = || number.filter(|v| v.fract() == 0.0 && v.abs() < 9e15).map(|v| v as i64);
    cell.parse().ok().or_else(written).filter(|v| *v >= 0)
}

/// Escapes what ends a key or a value of a tag, or says why that is impossible. A backslash stands for itself unless it stands
/// before one of these. Line breaks have no escape: they are written as `\n` and `\r`, as Telegraf does.
pub(super) fn escaped(text: &str) -> Result<String, String> {
    if text.ends_with('\\') {
        // It would escape the separator that follows it.
        return Err(format!("`{text}` ends with a backslash, and a tag of the line protocol cannot: rename it"));
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ',' | '=' | ' ' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Nanoseconds since 1970.
fn nanoseconds(cell: &str) -> Result<i64, String> {
    let moment = time::parse(cell).ok_or_else(|| format!("`{cell}` is not a time such as 2026-01-31T12:00:00Z"))?;
    moment.timestamp_nanos_opt().ok_or_else(|| format!("`{cell}` is not between the years 1678 and 2261"))
}

/// Columns that tell curves apart and name their databases.
const CURVE: &[&str] = &["case", "member", "direction", "stream"];

/// Writes commands for `rrdtool -` for one metric over time: `create` a database per curve, `update` per row. A row without a time is an error.
pub fn write_rrd(table: &mut Table, selection: &Selection, metric: &str, output: &mut dyn Write) -> Result<(), Error> {
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
        let reason = format!(
            "no interval that counts has a {metric}; choose another with -m or --record; plans with `interval: 1s` have intervals"
        );
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str, metrics: &[&str]) -> Result<String, String> {
        let mut table = Table::from_text("t", text).expect("a table");
        let metrics: Vec<String> = metrics.iter().map(|m| (*m).to_owned()).collect();
        let mut out = Vec::new();
        write_influx(&mut table, &Selection::default(), &metrics, &mut out).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn tags_are_parameters_and_fields_are_numbers() {
        let text = "run_id,case,record,iteration,phase,status,time,workload,message_bytes,settled,retransmits,\
            latency_kind,throughput_bits_per_s,local_send_buffer_bytes,limited_because,axis_socket_mss,else\n\
            r1,\"bulk[a=1,b=2]\",iteration,1,measure,ok,2026-01-31T12:00:02.5Z,tcp_stream,64,true,0,,1e3,1e6,why,536,5\n\
            r1,\"bulk[a=1,b=2]\",iteration,2,measure,ok,2026-01-31T12:00:03Z,tcp_stream,64,,,round trip,900.50,,,536,5\n\
            r1,\"bulk[a=1,b=2]\",iteration,3,measure,ok,2026-01-31T12:00:04Z,tcp_stream,64,,,,,,,536,5\n";
        let tags = |iteration: u32, kind: &str| {
            format!(
                "plumb,axis_socket_mss=536,case=bulk[a\\=1\\,b\\=2],iteration={iteration}{kind},message_bytes=64,\
                 phase=measure,record=iteration,workload=tcp_stream"
            )
        };
        let lines = [
            format!(
                "{} settled=true,retransmits=0i,throughput_bits_per_s=1000,local_send_buffer_bytes=1000000i \
                 1769860802500000000\n",
                tags(1, "")
            ),
            // A row without numbers has no line.
            format!("{} throughput_bits_per_s=900.5 1769860803000000000\n", tags(2, ",latency_kind=round\\ trip")),
        ];
        assert_eq!(written(text, &[]).unwrap(), lines.concat());
        let only = written(text, &["throughput", "message_size"]).unwrap();
        assert!(only.contains(" message_bytes=64i,throughput_bits_per_s=1000 "), "{only}");
        assert!(!only.contains(",message_bytes=") && !only.contains("retransmits"), "{only}");
    }

    #[test]
    fn rows_that_would_be_lost_are_refused() {
        let head = "case,time,throughput_bits_per_s,retransmits,settled\n";
        let of = |rows: &str| written(&format!("{head}{rows}"), &[]).unwrap_err();
        let twice = of("a,2026-01-31T12:00:02Z,1,,\na,2026-01-31T12:00:02Z,2,,\n");
        assert!(twice.starts_with("t:3, column `time`: a second row with the same tags at this time"), "{twice}");
        for (row, reason) in [
            ("a,yesterday,1,,\n", "t:2, column `time`: `yesterday` is not a time such as 2026-01-31T12:00:00Z"),
            ("a,1500-01-31T12:00:00Z,1,,\n", "between the years 1678 and 2261"),
            ("a\\,2026-01-31T12:00:02Z,1,,\n", "t:2, column `case`: `a\\` ends with a backslash"),
            ("a,2026-01-31T12:00:02Z,NaN,,\n", "`NaN` is not a finite number"),
            ("a,2026-01-31T12:00:02Z,inf,,\n", "`inf` is not a finite number"),
            ("a,2026-01-31T12:00:02Z,1,0.5,\n", "`0.5` is not a whole number"),
            ("a,2026-01-31T12:00:02Z,1,-1,\n", "`-1` is not a whole number"),
            ("a,2026-01-31T12:00:02Z,1,9223372036854775808,\n", "`9223372036854775808` is not a whole number"),
            ("a,2026-01-31T12:00:02Z,1,,maybe\n", "`maybe` is not true or false"),
        ] {
            let error = of(row);
            assert!(error.contains(reason), "{row}{error}");
        }
        assert!(written("case,throughput_bits_per_s\na,1\n", &[]).unwrap_err().contains("`time`"));
        assert!(written(&format!("{head}a,2026-01-31T12:00:02Z,1,,\n"), &["thruput"]).unwrap_err().starts_with("-m: "));
        assert_eq!(written(head, &[]).unwrap(), "");
    }

    type Pairs = Vec<(String, String)>;

    /// Tags, fields and timestamp of a line, by the rules of InfluxDB's reference: a separator counts where no backslash
    /// stands before it.
    fn read(line: &str) -> (Pairs, Pairs, i64) {
        let split = |text: &str, at: char| -> Vec<String> {
            let mut parts = vec![String::new()];
            let mut before = ' ';
            for c in text.chars() {
                match c {
                    c if c == at && before != '\\' => parts.push(String::new()),
                    c => parts.last_mut().expect("one").push(c),
                }
                before = c;
            }
            parts
        };
        let plain = |text: &str| text.replace("\\,", ",").replace("\\=", "=").replace("\\ ", " ");
        let pairs = |text: &str| -> Pairs {
            let pair = |part: &String| match split(part, '=').as_slice() {
                [key, value] => (plain(key), plain(value)),
                other => panic!("{other:?} in {line}"),
            };
            split(text, ',').iter().map(pair).collect()
        };
        let [point, fields, at] = &split(line, ' ')[..] else { panic!("{line}") };
        let tags = point.strip_prefix("plumb,").expect("the measurement");
        (pairs(tags), pairs(fields), at.parse().expect("a timestamp"))
    }

    proptest! {
        #[test]
        fn lines_read_back(
            case in "[ ,=\\\\\"'na-c\n\r\u{e9}]{0,12}",
            axis in "(\\PC|[ ,=\\\\]){0,8}",
            key in "[ ,=a-c]{1,6}",
            rate in 0.0..1e300f64,
            count in 0u64..=i64::MAX.unsigned_abs(),
            us in 0i64..4_000_000_000_000_000,
        ) {
            let time = time::from_unix_ns(us * 1000).0;
            let mut csv = csv::Writer::from_writer(Vec::new());
            let axis_name = format!("axis_{key}");
            csv.write_record(["time", "test", "case", &axis_name, "throughput_bits_per_s", "bytes_sent"]).unwrap();
            csv.write_record([&time, "t", &case, &axis, &rate.to_string(), &count.to_string()]).unwrap();
            let text = String::from_utf8(csv.into_inner().unwrap()).unwrap();
            let out = written(&text, &[]);
            if case.ends_with('\\') || axis.ends_with('\\') {
                prop_assert!(out.unwrap_err().contains("ends with a backslash"));
                return Ok(());
            }
            let out = out.unwrap();
            prop_assert_eq!(out.matches('\n').count(), 1, "{}", out);
            prop_assert!(!out.contains('\r'));
            let (tags, fields, at) = read(out.trim_end_matches('\n'));
            let mut wanted = vec![
                ("test".to_owned(), "t".to_owned()),
                ("case".to_owned(), case.replace('\n', "\\n").replace('\r', "\\r")),
                (axis_name, axis),
            ];
            wanted.retain(|(_, value)| !value.is_empty());
            wanted.sort();
            let mut tags_read = tags.clone();
            tags_read.sort();
            prop_assert_eq!(&tags_read, &wanted);
            prop_assert_eq!(fields[0].1.parse::<f64>().unwrap().to_bits(), rate.to_bits());
            prop_assert_eq!(&fields[1].1, &format!("{count}i"));
            prop_assert_eq!(at, us * 1000);
        }
    }
}
