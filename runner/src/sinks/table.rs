//! The summary table: one line per case, for people.

use std::io::{self, Write};

use analyze::table::layout::{self, Column, Sheet};
use netcore::spec::Pattern;
use schemas::{
    columns::Row,
    units::{Unit, human, three_digits},
    words::{Control, Search, Status},
};

/// Prints columns two spaces in.
pub fn write(columns: &[Column], sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    layout::aligned(columns, &sheet.indented(2), out)
}

/// The summary of a run: a line per summary row.
pub fn summary(rows: &[(Option<Pattern>, Row)]) -> Vec<Column> {
    let level = rows.iter().find_map(|(_, r)| r.confidence_level).unwrap_or(0.95);
    let margin = format!("± {} %", three_digits(level * 100.0).trim_end_matches('0').trim_end_matches('.'));
    let column = |title, right, cell: &dyn Fn(&Row) -> String| Column::of(title, right, rows, |(_, row)| cell(row));
    vec![
        column("case", false, &|row| {
            let mut case = row.case.clone().unwrap_or_default();
            if let Some(member) = &row.member {
                case = format!("{case} {member}");
            }
            let other = |r: &Row| r.case == row.case && r.member == row.member && r.direction != row.direction;
            if let Some(direction) = row.direction.filter(|_| rows.iter().any(|(_, r)| other(r))) {
                case = format!("{case} ({direction})");
            }
            case
        }),
        column("workload", false, &|row| row.workload.clone().unwrap_or_default()),
        Column::of("result", false, rows, |(pattern, row)| result(*pattern, row)),
        column(&margin, true, &|row| row.margin_ratio.map(|m| human(Unit::Ratio, m)).unwrap_or_default()),
        column("n", true, &|row| row.iterations.map(|n| n.to_string()).unwrap_or_default()),
        column("cpu here/there", false, &cpu),
    ]
}

/// The headline of a row: `41.8 Gbit/s`, or `19.7 k/s  p50 49 µs  p99 71 µs`, or why there is none.
pub fn result(pattern: Option<Pattern>, row: &Row) -> String {
    if row.status.is_some_and(|s| s != Status::Ok) && row.iterations.unwrap_or(0) == 0 {
        return row.status.map_or_else(String::new, |s| s.to_string());
    }
    let mut parts = Vec::new();
    let metric = |value: Option<f64>, unit| value.map(|v| human(unit, v));
    match pattern {
        // A program prints what it prints.
        None => {
            parts.extend(metric(row.throughput_bits_per_s, Unit::BitsPerSecond));
            parts.extend(metric(row.transactions_per_s, Unit::PerSecond));
            parts.extend(metric(row.latency_mean_us, Unit::Microseconds).map(|v| format!("mean {v}")));
            if parts.is_empty() {
                let each = row.elapsed_s.zip(row.iterations).map(|(sum, n)| sum / n.max(1) as f64);
                parts.extend(metric(each, Unit::Seconds).map(|v| format!("took {v}")));
            }
        }
        Some(Pattern::Stream) => {
            parts.extend(metric(row.throughput_bits_per_s, Unit::BitsPerSecond));
            if row.control == Some(Control::None) && row.throughput_bits_per_s.is_none() {
                // What arrived, nobody has counted.
                parts.extend(metric(row.sent_bits_per_s, Unit::BitsPerSecond).map(|sent| format!("{sent} sent")));
            }
            if let Some(loss) = row.loss_ratio {
                parts.push(format!("loss {}", human(Unit::Ratio, loss)));
            }
        }
        Some(Pattern::Ping) => {}
        _ => parts.extend(metric(row.transactions_per_s, Unit::PerSecond)),
    }
    if pattern != Some(Pattern::Stream) {
        parts.extend(metric(row.latency_p50_us, Unit::Microseconds).map(|v| format!("p50 {v}")));
        parts.extend(metric(row.latency_p99_us, Unit::Microseconds).map(|v| format!("p99 {v}")));
    }
    if row.control == Some(Control::None) {
        parts.push("(near end alone)".into());
    }
    parts.extend(row.search.map(|outcome| searched(outcome, row)));
    if row.status.is_some_and(|s| s != Status::Ok) {
        parts.extend(row.status.map(|s| s.to_string()));
    }
    parts.join("  ")
}

/// How a search ended: `highest that held`, with the load where the other numbers do not say it.
fn searched(outcome: Search, row: &Row) -> String {
    let words = match outcome {
        Search::Found => "the highest that held",
        Search::AtLeast => "at least (the search ends here)",
        Search::Unreached => "at least (no more could be offered)",
        Search::Nothing => "nothing held",
        Search::Open | Search::Held | Search::Exceeded => "so far (ended early)",
    };
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
    use schemas::words::Way;

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
        let table =
            summary(&[(Some(Pattern::Stream), row("µ", 41.8e9, 3)), (Some(Pattern::Stream), row("upload", 9.5e6, 10))]);
        let mut out = Vec::new();
        write(&table, &Sheet::PLAIN, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("± 95 %"), "{text}");
        assert_eq!(lines[1], "  µ       tcp_stream  41.8 Gbit/s  1.90 %   3  48 % / 51 %");
        assert_eq!(lines[2], "  upload  tcp_stream  9.50 Mbit/s  1.90 %  10  48 % / 51 %");
    }

    #[test]
    fn a_failure_is_named_where_the_number_would_be() {
        let failed = Row { status: Some(Status::Failed), ..Row::default() };
        assert_eq!(result(Some(Pattern::Stream), &failed), "failed");
        let partly = Row {
            status: Some(Status::Failed),
            iterations: Some(2),
            throughput_bits_per_s: Some(1e9),
            ..Row::default()
        };
        assert_eq!(result(Some(Pattern::Stream), &partly), "1.00 Gbit/s  failed");
        let alone = Row { control: Some(Control::None), sent_bits_per_s: Some(1e9), ..Row::default() };
        assert_eq!(result(Some(Pattern::Stream), &alone), "1.00 Gbit/s sent  (near end alone)");
        let rr = Row { transactions_per_s: Some(19_700.0), latency_p50_us: Some(49.0), ..Row::default() };
        assert_eq!(result(Some(Pattern::RequestResponse), &rr), "19.7 k/s  p50 49.0 µs");
    }
}
