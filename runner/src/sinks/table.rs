//! The summary table: one line per case, for people.

use std::io::{self, Write};

use analyze::{
    judge::offered,
    limits,
    table::layout::{self, Column, Sheet, wrapped},
};
use schemas::{
    columns::{Row, results::column},
    metrics::{self, Family, Metric},
    text::{plain, short_names},
    units::{self, Unit, human},
    words::{Control, Search, Status},
};

/// Prints columns two spaces in.
pub fn write(columns: &[Column], sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    layout::aligned(columns, &sheet.indented(2), out)
}

/// The summary of a run: a line per summary row.
pub fn summary(rows: &[Row]) -> Vec<Column> {
    let levels = || rows.iter().filter(|row| row.margin_ratio.is_some()).filter_map(|row| row.confidence_level);
    let level = levels().next().or_else(|| rows.iter().find_map(|row| row.confidence_level));
    // One level stands in the heading, several in their rows.
    let is_common = levels().all(|other| Some(other) == level);
    let title = match level {
        Some(level) if is_common => format!("{} interval", units::level(level)),
        _ => "interval".to_owned(),
    };
    let column = |title, right, cell: &dyn Fn(&Row) -> String| Column::of(title, right, rows, cell);
    let mut columns = vec![
        column("case", false, &|row| {
            let other = |r: &Row| r.case == row.case && r.member == row.member && r.direction != row.direction;
            match row.direction.filter(|_| rows.iter().any(other)) {
                Some(direction) => short_names(&format!("{} ({direction})", name(row))),
                None => short_names(&name(row)),
            }
        }),
        column("workload", false, &|row| {
            metrics::shown_workload(row.workload.as_deref().unwrap_or_default(), row.direction)
        }),
        column(means(rows), false, &result),
        column(&title, true, &|row| {
            let Some(margin) = margin(row) else { return String::new() };
            match row.confidence_level.filter(|_| !is_common) {
                Some(level) => format!("{margin} ({})", units::level(level)),
                None => margin,
            }
        }),
        column("load confidence", false, &|row| {
            row.load_confidence.map_or_else(String::new, |confidence| confidence.to_string())
        }),
        column("n", true, &|row| row.iterations.map(|n| n.to_string()).unwrap_or_default()),
        column("cpu here/there", false, &cpu),
    ];
    let is_told = |column: &Column| column.cells.iter().any(|cell| !cell.is_empty());
    columns
        .retain(|column| is_told(column) || !column.title.ends_with("interval") && column.title != "load confidence");
    columns
}

/// The title of the results, which says of which statistic they are.
fn means(rows: &[Row]) -> &'static str {
    if rows.iter().all(|row| row.iterations.unwrap_or(0) <= 1) {
        "result"
    } else if rows.iter().any(|row| row.latency_p50_us.is_some() && Family::from(row) != Family::Stream) {
        "mean; percentiles of all"
    } else {
        "mean"
    }
}

/// Case and member.
fn name(row: &Row) -> String {
    let case = row.case.clone().unwrap_or_default();
    match &row.member {
        Some(member) => format!("{case} {member}"),
        None => case,
    }
}

/// The limit of each case, in sentences.
pub fn limits(rows: &[Row]) -> Vec<String> {
    limits::lines(rows.iter().map(|row| (name(row), row)))
}

/// Prints sentences two spaces in, each with its lines below each other.
pub fn write_sentences(sentences: &[String], sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    for sentence in sentences {
        let room = sheet.width.map_or(usize::MAX, |width| width.saturating_sub(4).max(20));
        writeln!(out, "  {}", wrapped(&plain(&short_names(sentence)), room).join("\n    "))?;
    }
    Ok(())
}

/// The headline of a row: `41.8 Gbit/s`, or `19.7 k/s  p50 49 µs  p99 71 µs`, or `mean p50 52 µs  p50 49 µs  p99 71 µs` (the
/// mean of the iterations, and percentiles of all), or why there is none.
pub fn result(row: &Row) -> String {
    if row.status.is_some_and(|s| s != Status::Ok) && row.iterations.unwrap_or(0) == 0 {
        return row.status.map_or_else(String::new, |s| s.to_string());
    }
    let workload = row.workload.as_deref().unwrap_or_default();
    let family = Family::from(row);
    let has = |metric: &Metric| row.number(metric.column).is_some();
    let headline = family.headline(has);
    let mut shown: Vec<&Metric> = headline.into_iter().collect();
    match family {
        // A program prints what it prints.
        Family::Other if !workload.is_empty() => {
            let others = family.headlines().iter().filter_map(|name| metrics::find(name));
            shown.extend(others.filter(|m| m.name != "elapsed" && Some(m.name) != headline.map(|h| h.name) && has(m)));
        }
        // The probe's own percentiles are in the table of rows.
        _ if headline.is_some_and(|metric| metric.name == metrics::ADDED) => {
            shown.extend(metrics::find("added_latency.p95").filter(|m| has(m)));
        }
        _ => shown.extend(family.beside().iter().filter_map(|name| metrics::find(name)).filter(|m| has(m))),
    }
    // A latency may be the headline and stand beside it.
    shown.dedup_by_key(|metric| metric.name);
    let mut parts: Vec<String> = shown.into_iter().filter_map(|metric| words(metric, row)).collect();
    // The interval is that of the mean of the iterations.
    let is_median = headline.is_some_and(|metric| metric.column == column::latency_p50_us);
    if let Some(mean) = row.mean.filter(|_| is_median && row.iterations > Some(1)) {
        parts.insert(0, format!("mean p50 {}", human(Unit::Microseconds, mean)));
    }
    if let Some(loss) = row.loss_ratio.filter(|_| matches!(family, Family::Stream | Family::Ping)) {
        parts.push(format!("loss {}", human(Unit::Ratio, loss)));
    }
    parts.extend(offered::unanswered(workload, |name| row.number(name)));
    parts.extend(offered::missed(row));
    if row.control == Some(Control::None) {
        parts.push("(near end alone)".into());
    }
    parts.extend(row.search.map(|outcome| searched(outcome, row)));
    if row.status.is_some_and(|s| s != Status::Ok) {
        parts.extend(row.status.map(|s| s.to_string()));
    }
    parts.join("  ")
}

/// A value with what distinguishes it from others in one cell: `p50 49 µs`, `9.5 Mbit/s sent`.
fn words(metric: &Metric, row: &Row) -> Option<String> {
    let value = row.number(metric.column)?;
    // The summary has the time of all iterations.
    let each = if metric.name == "elapsed" { value / row.iterations.unwrap_or(1).max(1) as f64 } else { value };
    let text = human(metric.unit, each);
    Some(match metric.name {
        "sent" => format!("{text} sent"),
        "elapsed" => format!("took {text}"),
        "own_time" => format!("own {text}"),
        "arrival_spread" => format!("arrivals {text} apart"),
        "communication" => format!("{text} communicating"),
        metrics::ADDED => format!("{} under load", added(each)),
        "added_latency.p95" => format!("p95 {}", added(each)),
        name => match name.strip_prefix("latency.") {
            Some(which) => format!("{which} {text}"),
            None => text,
        },
    })
}

/// A difference of latencies, microseconds: `+ 1.90 ms`, `− 3.00 µs`.
pub fn added(us: f64) -> String {
    format!("{} {}", if us < 0.0 { '−' } else { '+' }, human(Unit::Microseconds, us.abs()))
}

/// Half the interval of the row's headline: a share of its value, `± 1.9 %`, or of an added latency, which may be about
/// nothing, a time.
pub fn margin(row: &Row) -> Option<String> {
    let ratio = row.margin_ratio?;
    let half = match row.added_latency_p50_us {
        Some(added) => human(Unit::Microseconds, ratio * added.abs()),
        None => units::margin(ratio),
    };
    Some(format!("± {half}"))
}

/// Outcome of a search: `highest that held`, with the load where the other numbers do not say it.
fn searched(outcome: Search, row: &Row) -> String {
    let words = outcome.sentence();
    match row.inflight.filter(|_| row.offered_per_s.is_none()) {
        Some(n) => format!("{n} in flight: {words}"),
        None => words.to_owned(),
    }
}

fn cpu(row: &Row) -> String {
    let percent = |v: Option<f64>| v.map_or_else(|| "?".to_owned(), |v| format!("{:.0} %", v * 100.0));
    match (row.local_cpu_ratio, row.remote_cpu_ratio) {
        (None, None) => String::new(),
        (here, there) => format!("{} / {}", percent(here), percent(there)),
    }
}

#[cfg(test)]
mod tests {
    use schemas::words::{Confidence, OfferedUnit, Way};

    use super::*;

    #[test]
    fn columns_line_up_whatever_the_letters() {
        let row = |case: &str, bits: f64, n| Row {
            case: Some(case.into()),
            status: Some(Status::Ok),
            workload: Some("tcp_stream".into()),
            direction: Some(Way::Forward),
            throughput_bits_per_s: Some(bits),
            margin_ratio: Some(0.019),
            confidence_level: Some(0.95),
            iterations: Some(n),
            local_cpu_ratio: Some(0.48),
            remote_cpu_ratio: Some(0.51),
            ..Row::default()
        };
        let table = summary(&[row("µ", 41.8e9, 3), row("upload", 9.5e6, 10)]);
        let mut out = Vec::new();
        write(&table, &Sheet::PLAIN, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("95 % interval"), "{text}");
        assert_eq!(lines[1], "  µ       tcp_stream  41.8 Gbit/s        ± 1.9 %   3  48 % / 51 %");
        assert_eq!(lines[2], "  upload  tcp_stream  9.50 Mbit/s        ± 1.9 %  10  48 % / 51 %");
    }

    #[test]
    fn the_heading_has_the_level_of_the_rows() {
        let row = |level| Row { margin_ratio: Some(0.019), confidence_level: Some(level), ..Row::default() };
        // A case without a margin has no say.
        let none = Row { confidence_level: Some(0.95), ..Row::default() };
        let margins = |rows: &[Row]| {
            let columns = summary(rows);
            let column = columns.into_iter().find(|c| c.title.ends_with("interval")).unwrap();
            (column.title, column.cells)
        };
        assert_eq!(margins(&[none.clone(), row(0.99), row(0.99)]).0, "99 % interval");
        assert_eq!(margins(&[row(0.999)]).0, "99.9 % interval");
        let wide = Row { margin_ratio: Some(2.9), ..row(0.95) };
        assert_eq!(margins(&[wide]).1, ["± 290 %"]);
        let (title, cells) = margins(&[row(0.95), none, row(0.99)]);
        assert_eq!((title.as_str(), cells.join("|").as_str()), ("interval", "± 1.9 % (95 %)||± 1.9 % (99 %)"));
    }

    #[test]
    fn a_failure_is_named_where_the_number_would_be() {
        let failed = Row { status: Some(Status::Failed), ..Row::default() };
        assert_eq!(result(&failed), "failed");
        let of = |workload: &str| Row { workload: Some(workload.into()), ..Row::default() };
        let partly = Row {
            status: Some(Status::Failed),
            iterations: Some(2),
            throughput_bits_per_s: Some(1e9),
            ..of("tcp_stream")
        };
        assert_eq!(result(&partly), "1.00 Gbit/s  failed");
        let behind = Row {
            offered_per_s: Some(2e9),
            offered_unit: Some(OfferedUnit::Bits),
            rate_error_ratio: Some(-0.5),
            ..partly.clone()
        };
        assert_eq!(result(&behind), "1.00 Gbit/s  1.00 Gbit/s of 2.00 Gbit/s offered  failed");
        let alone = Row { control: Some(Control::None), sent_bits_per_s: Some(1e9), ..of("tcp_stream") };
        assert_eq!(result(&alone), "1.00 Gbit/s sent  (near end alone)");
        let rr = Row {
            transactions_per_s: Some(19_700.0),
            throughput_bits_per_s: Some(1e6),
            latency_p50_us: Some(49.0),
            ..of("tcp_rr")
        };
        assert_eq!(result(&rr), "19.7 k/s  p50 49.0 µs");
        let probe = Row { member: Some("up-tcp".into()), offered_unit: Some(OfferedUnit::Transactions), ..rr.clone() };
        assert_eq!(result(&probe), "p50 49.0 µs");
        let loaded = Row {
            added_latency_p50_us: Some(-1900.0),
            load_confidence: Some(Confidence::Low),
            margin_ratio: Some(3.0),
            ..probe.clone()
        };
        assert_eq!(result(&loaded), "− 1.90 ms under load");
        assert_eq!(margin(&loaded).as_deref(), Some("± 5.70 ms"));
        let ping = Row { latency_p50_us: Some(49.0), latency_p99_us: Some(71.0), ..of("ping") };
        assert_eq!(result(&ping), "p50 49.0 µs  p99 71.0 µs");
        let several = Row { mean: Some(21_900.0), iterations: Some(10), loss_ratio: Some(0.5), ..ping };
        assert_eq!(result(&several), "mean p50 21.9 ms  p50 49.0 µs  p99 71.0 µs  loss 50.0 %");
        let asked = Row { errors: Some(4), transactions: Some(16), ..of("udp_rr") };
        assert_eq!(result(&Row { latency_p50_us: Some(49.0), ..asked }), "p50 49.0 µs  20.0 % unanswered");
        let program = Row { elapsed_s: Some(6.0), iterations: Some(3), ..of("command") };
        assert_eq!(result(&program), "took 2.00 s");
    }
}
