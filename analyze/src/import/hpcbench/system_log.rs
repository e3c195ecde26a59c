//! hpcbench's system log (`-c`).

use schemas::columns::Row;
use schemas::words::Phase;

use crate::import::sheet::{Sheet, count, measured, number, whole};
use crate::input::ParseError;

/// `-c`: CPU load of the trials, with an idle second before (warm-up here) and after (cool-down).
pub fn system_log(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut host = None;
    let mut records = 0;
    let mut cpu = None;
    let mut rows: Vec<Row> = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if let Some((name, _)) = line.strip_prefix("# ").and_then(|l| l.split_once(" syslog -- ")) {
            finish_log(&mut rows, sheet);
            host = Some(name.trim().to_owned());
        } else if let Some(n) = line.strip_prefix("# Watch times: ") {
            records = whole(n.trim()).ok_or_else(|| ParseError::expected(at, "`# Watch times: N`", line))?;
        } else if line.starts_with('#') {
            let named = line.split_whitespace().find_map(|w| w.strip_prefix("CPU").and_then(whole));
            if line.contains("workload (%)") {
                cpu = named;
            } else if line.starts_with("#####") {
                cpu = None;
            }
        } else if let Some(cpu) = cpu
            && line.starts_with(|c: char| c.is_ascii_digit())
        {
            let cells: Option<Vec<f64>> = line.split_whitespace().map(number).collect();
            let Some(&[record, load, _, _, _, all, user, system, _]) = cells.as_deref() else {
                return Err(ParseError::expected(at, "a record of 9 columns of CPU load", line));
            };
            let Some(record) = count(record).filter(|r| *r < records) else {
                return Err(ParseError::new(at, format!("record {record} of {records}")));
            };
            let at_record = rows.iter().position(|r| r.start_s == Some(record as f64)).unwrap_or_else(|| {
                let mut row = measured("system_log");
                row.transport = None;
                row.direction = None;
                row.from.clone_from(&host);
                let phase = match record {
                    0 => Phase::Warmup,
                    r if r + 1 == records => Phase::Cooldown,
                    _ => Phase::Measure,
                };
                row.phase = Some(phase);
                row.iteration = Some(record.max(1).min(records.saturating_sub(2).max(1)));
                // A mark to find the record again, removed at the end: the log has no times.
                row.start_s = Some(record as f64);
                row.local_cpu_ratio = Some(all / 100.0);
                row.local_cpu_user_ratio = Some(user / 100.0);
                row.local_cpu_system_ratio = Some(system / 100.0);
                rows.push(row);
                rows.len() - 1
            });
            let row = &mut rows[at_record];
            if row.local_cpu_peak_ratio.is_none_or(|peak| load / 100.0 > peak) {
                row.local_cpu_peak_ratio = Some(load / 100.0);
                row.local_cpu_peak_id = Some(cpu);
            }
        }
    }
    finish_log(&mut rows, sheet);
    sheet.note("hpcbench's system log: CPU load only; its interrupt and packet counts have no column here");
    Ok(())
}

fn finish_log(rows: &mut Vec<Row>, sheet: &mut Sheet) {
    for mut row in rows.drain(..) {
        row.start_s = None;
        sheet.add(row);
    }
    sheet.next_run();
}
