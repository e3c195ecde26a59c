//! `plumb measure`: the plan that a few options stand for ([`mod@plan`], as text, which `--save` keeps), and its answer: a line per
//! test for people, what limited it and what else to know, or one JSON document.

pub mod plan;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use analyze::{
    judge::offered,
    limits,
    table::layout::{Column, Sheet, aligned},
};
use schemas::{
    columns::Row,
    metrics::Family,
    text::{counted, plain},
    units::{self, Unit, human},
};
use serde_json::{Value, json};

use self::plan::{Asked, IDLE, LOAD, PROBE};
use crate::{
    campaign::Report,
    plan::answers::span,
    sinks::{run_json::HostRecord, table},
    style,
};

/// Name of the far end in the plan.
pub const SERVER: &str = "server";

/// Share of the datagrams from which on a loss shows that the load was too much.
const LOST: f64 = 0.01;

/// The answer in lines for people.
pub fn write(asked: &Asked, report: &Report, took: Duration, sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", headline(asked, report, took))?;
    let rows = shown_rows(report);
    aligned(&columns(&rows, &report.summaries), &sheet.indented(2), out)?;
    // Round trips one after the other are limited by the path's length, which their own line says.
    let loads = rows.iter().filter(|row| row.case.as_deref() != Some(IDLE));
    let limits = in_options(limits::lines(loads.map(|row| (name(row), *row))));
    if !limits.is_empty() {
        writeln!(out)?;
        table::write_sentences(&limits, sheet, out)?;
    }
    let notes = notes(asked, report);
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "{}", style::remark(sheet, style::NOTE, "note", note)))
}

/// With the option in the place of a plan's key, for a plan that is not the user's.
fn in_options(limits: Vec<String>) -> Vec<String> {
    limits.into_iter().map(|limit| limit.replace(limits::hops::LONGER, "-t 20 has more")).collect()
}

/// The run's notes, and what to type next where the options were not right for the path.
fn notes(asked: &Asked, report: &Report) -> Vec<String> {
    let loads: Vec<&Row> = shown_rows(report).into_iter().filter(|row| row.case.as_deref() != Some(IDLE)).collect();
    let too_fast = loads.iter().filter(|_| asked.load.rate.is_some()).filter_map(|row| too_fast(row));
    let is_whole = report.cut_off.is_none() && report.failures().next().is_none();
    let single = is_whole && !asked.hops && loads.iter().any(|row| row.iterations == Some(1));
    let single = single.then(|| "a single iteration has no ±: with -t 20 there are at least three".to_owned());
    // The margin is the built-in plan's, and not the user's, and the plan has an option here.
    let own =
        report.notes.iter().map(|note| without_goal(note).replace("socket.congestion_control: cubic", "-C cubic"));
    own.chain(too_fast).chain(single).chain(of_bbr(asked, &loads)).collect()
}

/// Says that the queue under load is that of a sender with BBR, unless this was asked for. The path to this machine itself has none,
/// and neither requests nor a paced stream fill one.
fn of_bbr(asked: &Asked, loads: &[&Row]) -> Option<String> {
    let fills = |row: &Row| {
        row.workload.as_deref().map(Family::of) == Some(Family::Stream)
            && row.offered_per_s.is_none()
            && row.congestion_control.as_deref().is_some_and(|name| name.starts_with("bbr"))
    };
    let cases: Vec<String> = loads.iter().filter(|row| fills(row)).map(|row| name(row)).collect();
    (asked.host.is_some() && asked.load.congestion.is_none() && !cases.is_empty()).then(|| {
        let cases = cases.join(", ");
        format!("{cases}: the sender's system uses bbr; under cubic another queue may stand on the path: -C cubic")
    })
}

/// A note without `, not the ± 5.0 % asked for`.
fn without_goal(note: &str) -> String {
    match note.split_once(", not the ±") {
        Some((before, after)) => format!("{before}{}", after.split_once(" asked for").map_or(after, |(_, rest)| rest)),
        None => note.to_owned(),
    }
}

/// Says what arrived of a load that was more than the path or an end could carry, and a rate that they carry.
fn too_fast(row: &Row) -> Option<String> {
    let arrived = row.throughput_bits_per_s?;
    let is_lost = row.loss_ratio.is_some_and(|loss| loss > LOST);
    let late = limits::late(row);
    // While a path was down, it carried no lower rate either.
    let is_at_once = limits::lost_at_once(row).is_some();
    if is_at_once || !is_lost && late.is_none() && offered::missed(row).is_none() {
        return None;
    }
    let asked = offered::load(row, row.offered_per_s?);
    let less = arrived * 0.9;
    let rate = match less {
        _ if less >= 1e9 => format!("{:.1}G", less / 1e9),
        _ if less >= 1e6 => format!("{:.0}M", less / 1e6),
        _ => format!("{:.0}K", less / 1e3),
    };
    let late = late.map_or_else(String::new, |late| {
        format!(", and {} was still on its way at the end: more is lost once the queue is full", units::margin(late))
    });
    let arrived = human(Unit::BitsPerSecond, arrived);
    Some(format!("{}: {arrived} arrived of the {asked} that -b asks for{late}; try -b {rate}", name(row)))
}

/// `b.lab · 0.21 ms away · Linux 6.12.0, 16 CPUs · 20 s`
fn headline(asked: &Asked, report: &Report, took: Duration) -> String {
    let hosts: &BTreeMap<String, HostRecord> = &report.hosts;
    let place = asked.host.as_deref().unwrap_or("this machine, both ends");
    let there = hosts.get(SERVER).or_else(|| hosts.get("local").filter(|_| asked.host.is_none()));
    let mut parts = vec![plain(place)];
    let idle = report.summaries.iter().find(|row| row.case.as_deref() == Some(IDLE));
    let away = idle.and_then(round_trip_us).filter(|_| asked.host.is_some());
    parts.extend(away.map(|us| format!("{} away", human(Unit::Microseconds, us))));
    match (asked.speaks, there) {
        (Some(program), _) => parts.push(format!("speaks to {} on port {}", program.server(), program.port())),
        (None, Some(record)) => {
            let kernel = record.facts.kernel_release.as_ref().map(|kernel| format!("Linux {}", plain(kernel)));
            let cpus = record.facts.cpus.map(|n| counted(n, "CPU"));
            parts.extend(
                Some([kernel, cpus].into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|s| !s.is_empty()),
            );
        }
        (None, None) => {}
    }
    parts.push(span(took));
    parts.join(" · ")
}

/// The rows that have a line: of a group, the load.
fn shown_rows(report: &Report) -> Vec<&Row> {
    let is_told = |row: &&Row| row.member.as_deref().is_none_or(|member| member == LOAD);
    report.summaries.iter().filter(is_told).collect()
}

fn name(row: &Row) -> String {
    row.case.clone().unwrap_or_default()
}

/// Round trip of the idle path, microseconds: the mean of the medians, whose interval stands beside it.
fn round_trip_us(row: &Row) -> Option<f64> {
    row.mean.or(row.latency_p50_us)
}

fn columns(rows: &[&Row], all: &[Row]) -> Vec<Column> {
    let column = |right, cell: &dyn Fn(&Row) -> String| Column::of("", right, rows, |row| cell(row));
    let is_idle = |row: &Row| row.case.as_deref() == Some(IDLE);
    let us = |value: f64| human(Unit::Microseconds, value);
    vec![
        column(false, &name),
        column(true, &|row| match round_trip_us(row).filter(|_| is_idle(row)) {
            Some(round_trip) => us(round_trip),
            None if row.member.is_some() || !is_idle(row) => table::result(row),
            None => row.status.map_or_else(String::new, |status| status.to_string()),
        }),
        column(false, &|row| table::margin(row).unwrap_or_default()),
        column(false, &|row| {
            if is_idle(row) {
                let p99 = row.latency_p99_us.map_or_else(String::new, |p99| format!(", p99 {}", us(p99)));
                return format!("round trip{p99}");
            }
            let is_probe = |other: &&Row| other.case == row.case && other.member.as_deref() == Some(PROBE);
            let probe = all.iter().find(is_probe);
            let Some((probe, added)) = probe.and_then(|probe| Some((probe, probe.added_latency_p50_us?))) else {
                return String::new();
            };
            let parts = [Some(table::added(added)), table::margin(probe), Some("under load".to_owned())];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }),
        column(false, &|row| {
            row.retransmits.filter(|_| !is_idle(row)).map_or_else(String::new, |count| counted(count, "retransmit"))
        }),
        column(false, &|row| {
            row.congestion_control.as_deref().filter(|_| !is_idle(row)).map_or_else(String::new, plain)
        }),
    ]
}

/// The answer as one JSON document: the summary rows without histograms, and the sentences.
pub fn json(asked: &Asked, report: &Report, took: Duration) -> Value {
    let rows: Vec<Value> = report.summaries.iter().map(analyze::export::rows::object).collect();
    json!({
        "host": asked.host,
        "speaks": asked.speaks.map_or("plumb", |program| program.as_str()),
        "took_s": took.as_secs_f64(),
        "rows": rows,
        "limits": in_options(table::limits(&report.summaries)),
        "notes": notes(asked, report),
        "failed": report.failures().map(|(case, why)| json!({"case": case, "why": why})).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_of_a_margin_that_nobody_asked_for() {
        let note =
            "case a: rate reached ± 12 % of its mean after 3 iterations, not the ± 5.0 % asked for: a CPU was taken";
        let said = "case a: rate reached ± 12 % of its mean after 3 iterations: a CPU was taken";
        assert_eq!((without_goal(note).as_str(), without_goal("else").as_str()), (said, "else"));
    }
}
