//! netperf's omni output: key=value (`-k`) and CSV (`-o`), with their interim results.

use schemas::columns::Row;
use schemas::words::{DemandUnit, LatencyKind, Way};

use super::unit::{Unit, interim};
use crate::import::sheet::{Sheet, count, measured, number};
use crate::input::ParseError;

pub fn is_key_value(line: &str) -> bool {
    line.split_once('=').is_some_and(|(key, _)| COLUMNS.iter().any(|c| c.selector == key))
}

pub fn is_csv_header(line: &str) -> bool {
    line.split(',').filter(|name| selector_of_title(name).is_some()).count() >= 2
}

fn selector_of_title(title: &str) -> Option<&'static str> {
    let title = title.trim();
    COLUMNS.iter().find(|c| c.title == title).map(|c| c.selector)
}

/// A selector with its CSV heading, its numeric column and the factor of its value.
struct Column {
    selector: &'static str,
    title: &'static str,
    /// Empty: handled by name.
    target: &'static str,
    factor: f64,
}

const fn c(selector: &'static str, title: &'static str, target: &'static str, factor: f64) -> Column {
    Column { selector, title, target, factor }
}

/// Selectors that have a column. [`Collected::row`] handles those with an empty column by name.
const COLUMNS: &[Column] = &[
    c("PROTOCOL", "Protocol", "", 1.0),
    c("DIRECTION", "Direction", "", 1.0),
    c("THROUGHPUT", "Throughput", "", 1.0),
    c("THROUGHPUT_UNITS", "Throughput Units", "", 1.0),
    c("SD_UNITS", "Service Demand Units", "", 1.0),
    c("CONFIDENCE_LEVEL", "Confidence Level Percent", "confidence_level", 0.01),
    c("CONFIDENCE_ITERATION", "Confidence Iterations Run", "iterations", 1.0),
    // netperf reports full widths; the table's margin is half a width.
    c("CONFIDENCE_INTERVAL", "Confidence Width Target", "margin_goal_ratio", 0.005),
    c("THROUGHPUT_CONFID", "Throughput Confidence Width (%)", "margin_ratio", 0.005),
    c("RESULT_BRAND", "Result Tag", "", 1.0),
    c("LOCAL_CONG_CONTROL", "Local Congestion Control Algorithm", "", 1.0),
    c("LOCAL_NODELAY", "Local NODELAY", "", 1.0),
    c("SOURCE_ADDR", "Source Address", "", 1.0),
    c("DEST_ADDR", "Destination Address", "", 1.0),
    c("BURST_SIZE", "Initial Burst Requests", "", 1.0),
    c("LOCAL_SEND_SIZE", "Local Send Size", "", 1.0),
    c("REMOTE_SEND_SIZE", "Remote Send Size", "", 1.0),
    c("ELAPSED_TIME", "Elapsed Time (sec)", "elapsed_s", 1.0),
    c("LSS_SIZE_END", "Local Send Socket Size Final", "local_send_buffer_bytes", 1.0),
    c("LSR_SIZE_END", "Local Recv Socket Size Final", "local_receive_buffer_bytes", 1.0),
    c("RSS_SIZE_END", "Remote Send Socket Size Final", "remote_send_buffer_bytes", 1.0),
    c("RSR_SIZE_END", "Remote Recv Socket Size Final", "remote_receive_buffer_bytes", 1.0),
    c("REMOTE_RECV_SIZE", "Remote Recv Size", "receive_bytes", 1.0),
    c("REQUEST_SIZE", "Request Size Bytes", "request_bytes", 1.0),
    c("RESPONSE_SIZE", "Response Size Bytes", "response_bytes", 1.0),
    c("LOCAL_CPU_UTIL", "Local CPU Util %", "local_cpu_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_USER", "Local CPU User %", "local_cpu_user_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_SYSTEM", "Local CPU System %", "local_cpu_system_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_IOWAIT", "Local CPU I/O %", "local_cpu_iowait_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_IRQ", "Local CPU IRQ %", "local_cpu_irq_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_SWINTR", "Local CPU swintr %", "local_cpu_softirq_ratio", 0.01),
    c("LOCAL_CPU_PEAK_UTIL", "Local Peak Per CPU Util %", "local_cpu_peak_ratio", 0.01),
    c("LOCAL_CPU_PEAK_ID", "Local Peak Per CPU ID", "local_cpu_peak_id", 1.0),
    c("LOCAL_SD", "Local Service Demand", "local_service_demand", 1.0),
    c("REMOTE_CPU_UTIL", "Remote CPU Util %", "remote_cpu_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_USER", "Remote CPU User %", "remote_cpu_user_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_SYSTEM", "Remote CPU System %", "remote_cpu_system_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_IOWAIT", "Remote CPU I/O %", "remote_cpu_iowait_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_IRQ", "Remote CPU IRQ %", "remote_cpu_irq_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_SWINTR", "Remote CPU swintr %", "remote_cpu_softirq_ratio", 0.01),
    c("REMOTE_CPU_PEAK_UTIL", "Remote Peak Per CPU Util %", "remote_cpu_peak_ratio", 0.01),
    c("REMOTE_CPU_PEAK_ID", "Remote Peak Per CPU ID", "remote_cpu_peak_id", 1.0),
    c("REMOTE_SD", "Remote Service Demand", "remote_service_demand", 1.0),
    c("TRANSACTION_RATE", "Transaction Rate Tran/s", "transactions_per_s", 1.0),
    c("RT_LATENCY", "Round Trip Latency usec/tran", "", 1.0),
    c("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions", "retransmits", 1.0),
    c("REMOTE_TRANSPORT_RETRANS", "Remote Transport Retransmissions", "remote_retransmits", 1.0),
    c("TRANSPORT_MSS", "Transport MSS bytes", "mss_bytes", 1.0),
    c("LOCAL_SEND_CALLS", "Local Send Calls", "sends", 1.0),
    c("REMOTE_RECV_CALLS", "Remote Recv Calls", "receives", 1.0),
    c("LOCAL_BYTES_SENT", "Local Bytes Sent", "bytes_sent", 1.0),
    c("REMOTE_BYTES_RECVD", "Remote Bytes Received", "bytes_received", 1.0),
    c("MIN_LATENCY", "Minimum Latency Microseconds", "latency_min_us", 1.0),
    c("MAX_LATENCY", "Maximum Latency Microseconds", "latency_max_us", 1.0),
    c("P50_LATENCY", "50th Percentile Latency Microseconds", "latency_p50_us", 1.0),
    c("P90_LATENCY", "90th Percentile Latency Microseconds", "latency_p90_us", 1.0),
    c("P99_LATENCY", "99th Percentile Latency Microseconds", "latency_p99_us", 1.0),
    c("MEAN_LATENCY", "Mean Latency Microseconds", "latency_mean_us", 1.0),
    c("STDDEV_LATENCY", "Stddev Latency Microseconds", "latency_stddev_us", 1.0),
];

/// One result's selectors and their values.
struct Collected<'t> {
    values: Vec<(&'static str, &'t str)>,
    line: usize,
}

impl<'t> Collected<'t> {
    fn get(&self, selector: &str) -> Option<&'t str> {
        self.values.iter().find(|(s, _)| *s == selector).map(|(_, v)| v.trim()).filter(|v| !v.is_empty())
    }

    fn row(&self, sheet: &mut Sheet) -> Result<Row, ParseError> {
        let mut row = measured(&self.workload(sheet));
        let direction = self.get("DIRECTION").unwrap_or("Send");
        let is_rr = self.is_request_response();
        if direction == "Receive" {
            row.direction = Some(Way::Reverse);
        }
        for column in COLUMNS.iter().filter(|c| !c.target.is_empty()) {
            let Some(text) = self.get(column.selector) else { continue };
            let Some(value) = number(text) else {
                // Some builds print nan for shares that were not measured.
                if matches!(text.trim_start_matches('-'), "nan" | "inf") {
                    continue;
                }
                return Err(ParseError::expected(self.line, &format!("a number for {}", column.selector), text));
            };
            // −1 and −2 mean "not measured"; streams have a rate of 1.
            let undefined = value < 0.0 || (column.selector == "TRANSACTION_RATE" && !is_rr);
            if !undefined {
                row.set_number(column.target, Some(value * column.factor));
            }
        }
        self.headline(&mut row, sheet)?;
        if row.confidence_level == Some(0.0) {
            (row.confidence_level, row.iterations) = (None, None);
        }
        if row.local_service_demand.is_some() || row.remote_service_demand.is_some() {
            let per_kib = self.get("SD_UNITS").is_none_or(|u| u.contains("KB"));
            row.service_demand_unit = Some(if per_kib { DemandUnit::PerKib } else { DemandUnit::PerTransaction });
        }
        row.tag = self.get("RESULT_BRAND").map(|t| t.trim_matches('"').to_owned());
        row.from = self.get("SOURCE_ADDR").map(str::to_owned);
        row.to = self.get("DEST_ADDR").map(str::to_owned);
        row.congestion_control =
            self.get("LOCAL_CONG_CONTROL").filter(|c| *c != "TCP Only" && c.parse::<i64>().is_err()).map(str::to_owned);
        row.no_delay = self.get("LOCAL_NODELAY").and_then(number).filter(|v| *v >= 0.0).map(|v| v > 0.0);
        let sent = if direction == "Receive" { "REMOTE_SEND_SIZE" } else { "LOCAL_SEND_SIZE" };
        if !is_rr {
            row.message_bytes = self.get(sent).and_then(|v| v.parse().ok()).filter(|v| *v > 0);
        } else if let Some(burst) = self.get("BURST_SIZE").and_then(number).filter(|b| *b >= 0.0) {
            row.inflight = count(burst + 1.0);
        }
        if is_rr {
            if row.latency_mean_us.is_none() {
                row.latency_mean_us = self.get("RT_LATENCY").and_then(number).filter(|v| *v >= 0.0);
            }
            row.latency_kind = row.latency_mean_us.map(|_| LatencyKind::RoundTrip);
        } else if row.latency_mean_us.is_some() {
            row.latency_kind = Some(if direction == "Receive" { LatencyKind::Receive } else { LatencyKind::Send });
        }
        Ok(row)
    }

    fn headline(&self, row: &mut Row, sheet: &mut Sheet) -> Result<(), ParseError> {
        let Some(text) = self.get("THROUGHPUT") else { return Ok(()) };
        let Some(value) = number(text) else {
            return Err(ParseError::expected(self.line, "a number for THROUGHPUT", text));
        };
        let default = if self.is_request_response() { "Trans/s" } else { "10^6bits/s" };
        let units = self.get("THROUGHPUT_UNITS").unwrap_or_else(|| {
            sheet.note("THROUGHPUT_UNITS is missing: netperf's default units are assumed");
            default
        });
        let Some(unit) = Unit::parse(units.trim_end_matches("/s")) else {
            return Err(ParseError::expected(self.line, "a unit of netperf's", units));
        };
        match unit {
            Unit::Transactions => row.transactions_per_s = Some(value),
            // -f u of 2.7.1 divides by bytes instead of transactions, which cannot be undone.
            Unit::Microseconds => sheet.note("netperf's -f u is wrong in 2.7.1 and was left out"),
            unit => row.throughput_bits_per_s = unit.bits(value, sheet),
        }
        Ok(())
    }

    fn is_request_response(&self) -> bool {
        let size = |s| self.get(s).and_then(number).is_some_and(|v| v >= 0.0);
        match self.get("DIRECTION") {
            Some(direction) => direction.contains('|') || direction == "Connection",
            None => {
                (size("REQUEST_SIZE") && size("RESPONSE_SIZE"))
                    || self.get("THROUGHPUT_UNITS").is_some_and(|u| u.starts_with("Trans"))
            }
        }
    }

    fn workload(&self, sheet: &mut Sheet) -> String {
        let transport = self.get("PROTOCOL").map_or_else(
            || {
                sheet.note("PROTOCOL was not selected: TCP is assumed");
                "tcp".to_owned()
            },
            str::to_ascii_lowercase,
        );
        let kind = match self.get("DIRECTION") {
            Some("Receive") => "maerts",
            Some("Connect|Send|Recv") => "crr",
            Some("Connection") => "cc",
            _ if self.is_request_response() => "rr",
            _ => "stream",
        };
        format!("{transport}_{kind}")
    }
}

/// `-k`: NAME=value. A repeated name begins the next result.
pub fn key_value(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut result = Collected { values: Vec::new(), line: 1 };
    let mut interim_parts: [Option<&str>; 3] = [None; 3];
    for (at, line) in (1..).zip(text.lines()) {
        let Some((key, value)) = line.trim().split_once('=') else { continue };
        if let Some(part) = key.strip_prefix("NETPERF_") {
            let slot = match part.split('[').next() {
                Some("INTERIM_RESULT") => 0,
                Some("UNITS") => 1,
                Some("INTERVAL") => 2,
                Some("ENDING") => {
                    let [Some(rate), Some(units), Some(seconds)] = std::mem::take(&mut interim_parts) else {
                        return Err(ParseError::new(at, "the interim result lacks its value, units or interval"));
                    };
                    let line = format!("{rate} {units} over {seconds} seconds ending at {value}");
                    interim(&line, at, "tcp_stream", None, sheet)?;
                    continue;
                }
                _ => continue,
            };
            interim_parts[slot] = Some(value);
            continue;
        }
        let Some(column) = COLUMNS.iter().find(|c| c.selector == key) else { continue };
        if result.get(column.selector).is_some() {
            let row = result.row(sheet)?;
            sheet.add_last(row);
            result = Collected { values: Vec::new(), line: at };
        }
        result.values.push((column.selector, value));
        result.line = at;
    }
    if !result.values.is_empty() {
        let row = result.row(sheet)?;
        sheet.add(row);
    }
    Ok(())
}

/// `-o`: a line of headings, then a line of values. A line of four fields may be an interim result.
pub fn csv(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut header: Option<Vec<&str>> = None;
    for (at, line) in (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty()) {
        if let Some([rate, units, seconds, ending]) = csv_interim(line) {
            let line = format!("{rate} {units} over {seconds} seconds ending at {ending}");
            interim(&line, at, "tcp_stream", None, sheet)?;
        } else if is_csv_header(line) {
            header = Some(line.split(',').collect());
        } else if let Some(names) = &header
            && number(line.split(',').next().unwrap_or_default().trim()).is_some()
                | line.starts_with(['T', 'U', 'S', 'D'])
            && line.contains(',')
        {
            let values = split_quoted(line);
            if values.len() != names.len() {
                let reason = format!("the line has {} values under {} headings", values.len(), names.len());
                return Err(ParseError::new(at, reason));
            }
            let values = names
                .iter()
                .zip(values)
                .filter_map(|(name, value)| selector_of_title(name).map(|selector| (selector, value)))
                .collect();
            let row = Collected { values, line: at }.row(sheet)?;
            sheet.add_last(row);
        }
    }
    Ok(())
}

/// Fields between commas. netperf quotes its tag and its command line only.
fn split_quoted(line: &str) -> Vec<&str> {
    let (mut fields, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                fields.push(&line[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    fields.push(&line[start..]);
    fields
}

pub fn csv_interim(line: &str) -> Option<[&str; 4]> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [rate, units, seconds, ending] = fields.as_slice() else { return None };
    Unit::parse(units.strip_suffix("/s")?)?;
    (number(rate).is_some() && number(seconds).is_some() && number(ending).is_some())
        .then_some([*rate, *units, *seconds, *ending])
}
