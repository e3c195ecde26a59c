//! netperf's selected output: key=value (`-k`), CSV (`-o`) and columns for people (`-O`).

use super::{
    classic::{Kind, Pattern, workload},
    unit::{Unit, set_transactions},
};
use crate::{
    error::ParseError,
    import::imported::{ImportedRows, count, host, measured, number},
};
use schemas::{
    columns::{Row, results::Field},
    words::{DemandUnit, LatencyKind, Way},
};

/// A line of `-k` as selector and value.
pub fn key_value(line: &str) -> Option<(&'static str, &str)> {
    let (key, value) = line.trim().split_once('=')?;
    Some((of_key(key)?, value))
}

/// The headings of `-o`. One heading alone is a word that anything could print.
pub fn csv_header(line: &str) -> bool {
    line.split(',').filter(|name| of_title(name).is_some()).count() >= 2
}

/// An interim result of `-o`: value, unit, seconds, time.
pub fn csv_interim(line: &str) -> Option<[&str; 4]> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [rate, units, seconds, ending] = fields.as_slice() else { return None };
    Unit::parse(units.strip_suffix("/s")?)?;
    (number(rate).is_some() && number(seconds).is_some() && number(ending).is_some())
        .then_some([*rate, *units, *seconds, *ending])
}

/// A block of `-O`: four lines of headings, then the values, left-aligned in columns. `None` where no heading is known.
pub fn block<'t>(lines: &[&'t str; 5]) -> Option<Vec<(&'static str, &'t str)>> {
    let [headings @ .., values] = lines;
    if !lines.iter().all(|l| l.is_ascii()) || headings[0].trim().is_empty() {
        return None;
    }
    let width = lines.iter().map(|l| l.len()).max().unwrap_or_default();
    let blank = |line: &str, at: usize| line.as_bytes().get(at).is_none_or(|b| *b == b' ');
    // Columns can begin behind a blank in all lines; those with a value begin where the value begins.
    let may_begin = |at: usize| at == 0 || lines.iter().all(|l| blank(l, at - 1));
    let title = |from: usize, to: usize| {
        let parts: Vec<&str> = headings
            .iter()
            .filter_map(|l| l.get(from..to.min(l.len())))
            .map(str::trim)
            .filter(|p| !p.is_empty())
            .collect();
        of_title(&parts.join(" "))
    };
    let mut quoted = false;
    let starts: Vec<usize> = (0..width)
        .filter(|at| {
            let begins = !quoted && !blank(values, *at) && may_begin(*at);
            quoted ^= values.as_bytes().get(*at) == Some(&b'"');
            begins
        })
        .collect();
    let mut found = Vec::new();
    for (index, from) in starts.iter().copied().enumerate() {
        let next = starts.get(index + 1).copied().unwrap_or(width);
        // A column without a value is hidden behind the one before it.
        let selector =
            title(from, next).or_else(|| (from + 1..next).filter(|at| may_begin(*at)).find_map(|to| title(from, to)));
        if let Some(selector) = selector {
            found.push((selector, values.get(from..next.min(values.len()))?.trim()));
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The selectors and values of a result.
#[derive(Default)]
pub struct Collected<'t> {
    pub values: Vec<(&'static str, &'t str)>,
    pub line: usize,
}

impl<'t> Collected<'t> {
    pub fn get(&self, selector: &str) -> Option<&'t str> {
        self.values.iter().find(|(s, _)| *s == selector).map(|(_, v)| v.trim()).filter(|v| !v.is_empty())
    }

    fn number(&self, selector: &str) -> Option<f64> {
        self.get(selector).and_then(number).filter(|v| *v >= 0.0)
    }

    /// The test's kind, from the selectors.
    fn kind(&self) -> Result<Kind, ParseError> {
        let mut kind = Kind::default();
        if let Some(protocol) = self.get("PROTOCOL") {
            kind = kind.and(&Kind::protocol(protocol), self.line)?;
        }
        if let Some(direction) = self.get("DIRECTION") {
            kind = kind.and(&Kind::direction(direction), self.line)?;
        }
        if let Some(test) = self.get("COMMAND_LINE").and_then(tested) {
            kind = kind.and(&test, self.line)?;
        }
        Ok(kind)
    }

    /// The row of a test of which the banner or the command line says `kind`.
    pub fn row(&self, kind: &Kind, imported: &mut ImportedRows) -> Result<Row, ParseError> {
        let (transport, pattern) = kind.clone().and(&self.kind()?, self.line)?.known(self.line)?;
        let mut row = measured(&workload(&transport, pattern));
        let (transactions, reverse) = (pattern.has_transactions(), pattern == Pattern::Maerts);
        if reverse {
            row.direction = Some(Way::Reverse);
        }
        for column in COLUMNS {
            let Some(text) = self.get(column.selector) else { continue };
            if column.is_size() && number(text).is_some_and(|size| size.fract() != 0.0) {
                // The headings were cut off before the values.
                return Err(ParseError::expected(self.line, &format!("whole bytes for {}", column.selector), text));
            }
            let Some(target) = column.target else { continue };
            let Some(value) = number(text) else {
                // Some builds print nan for shares that were not measured.
                if matches!(text.trim_start_matches('-'), "nan" | "inf") {
                    continue;
                }
                return Err(ParseError::expected(self.line, &format!("a number for {}", column.selector), text));
            };
            // −1 and −2 mean "not measured"; streams have a rate of 1.
            let undefined = value < 0.0 || (column.selector == "TRANSACTION_RATE" && !transactions);
            if !undefined {
                row.set_number(target.name(), Some(value * column.factor));
            }
        }
        if transactions {
            row.inflight = self.number("BURST_SIZE").and_then(|burst| count(burst + 1.0));
            row.retransmits = row.local_retransmits.zip(row.remote_retransmits).map(|(a, b)| a.saturating_add(b));
        } else {
            (row.request_bytes, row.response_bytes) = (None, None);
            self.volume(&mut row, reverse);
            row.retransmits = if reverse { row.remote_retransmits } else { row.local_retransmits };
        }
        self.headline(&mut row, transactions, reverse, imported)?;
        if row.confidence_level == Some(0.0) {
            (row.confidence_level, row.iterations) = (None, None);
        }
        if row.local_service_demand.is_some() || row.remote_service_demand.is_some() {
            row.service_demand_unit = match self.get("SD_UNITS") {
                Some(units) if units.contains("KB") => Some(DemandUnit::PerKib),
                Some(_) => Some(DemandUnit::PerTransaction),
                None => {
                    imported
                        .note("SD_UNITS was not selected: netperf's service demands have no unit and were left out");
                    (row.local_service_demand, row.remote_service_demand) = (None, None);
                    None
                }
            };
        }
        row.tag = self.get("RESULT_BRAND").map(|t| t.trim_matches('"').to_owned());
        row.from = self.get("SOURCE_ADDR").and_then(host);
        row.to = self.get("DEST_ADDR").and_then(host);
        row.congestion_control =
            self.get("LOCAL_CONG_CONTROL").filter(|c| *c != "TCP Only" && c.parse::<i64>().is_err()).map(str::to_owned);
        row.no_delay = self.number("LOCAL_NODELAY").map(|v| v > 0.0);
        if transactions {
            row.latency_mean_us = row.latency_mean_us.or_else(|| self.number("RT_LATENCY"));
        }
        let latencies =
            [row.latency_min_us, row.latency_mean_us, row.latency_p50_us, row.latency_p99_us, row.latency_max_us];
        if latencies.iter().any(Option::is_some) {
            row.latency_kind = Some(match pattern {
                _ if transactions => LatencyKind::RoundTrip,
                Pattern::Maerts => LatencyKind::Receive,
                _ => LatencyKind::Send,
            });
        }
        Ok(row)
    }

    /// Sizes and volumes of a stream, as its sender and its receiver counted them.
    fn volume(&self, row: &mut Row, reverse: bool) {
        let (sender, receiver) = if reverse { ("REMOTE", "LOCAL") } else { ("LOCAL", "REMOTE") };
        let of = |end: &str, what: &str| self.number(&format!("{end}_{what}")).and_then(count);
        row.message_bytes = of(sender, "SEND_SIZE").filter(|s| *s > 0);
        row.receive_bytes = of(receiver, "RECV_SIZE").filter(|s| *s > 0);
        (row.sends, row.receives) = (of(sender, "SEND_CALLS"), of(receiver, "RECV_CALLS"));
        (row.bytes_sent, row.bytes_received) = (of(sender, "BYTES_SENT"), of(receiver, "BYTES_RECVD"));
    }

    /// The throughput, in the unit that stands beside it or that the command line names.
    fn headline(
        &self,
        row: &mut Row,
        transactions: bool,
        reverse: bool,
        imported: &mut ImportedRows,
    ) -> Result<(), ParseError> {
        let Some(text) = self.get("THROUGHPUT") else { return Ok(()) };
        // netperf prints two decimals: with fewer the line was cut.
        let Some(value) = number(text).filter(|_| text.rsplit_once('.').is_some_and(|(_, d)| d.len() == 2)) else {
            return Err(ParseError::expected(self.line, "a number with two decimals for THROUGHPUT", text));
        };
        let unit = match self.get("THROUGHPUT_UNITS") {
            Some(units) => {
                let unit = Unit::of_rate(units)
                    .ok_or_else(|| ParseError::expected(self.line, "a unit of netperf's", units))?;
                agreed(unit, imported.given.unit.as_deref(), self.line)?
            }
            None => match imported.given.unit.as_deref().and_then(Unit::of_rate) {
                Some(unit) => unit,
                // The rate is the same figure, with its unit.
                None if row.transactions_per_s.is_some() => return Ok(()),
                None => {
                    return Err(ParseError::new(
                        self.line,
                        "THROUGHPUT has no unit: add THROUGHPUT_UNITS to netperf's selectors, or name it (--unit \
                         10^6bits/s, --unit Trans/s)",
                    ));
                }
            },
        };
        if unit == Unit::Transactions && !transactions {
            let reason = "THROUGHPUT in transactions belongs to no stream: these are parts of different tests";
            return Err(ParseError::new(self.line, reason));
        }
        if !transactions {
            row.throughput_bits_per_s = unit.bits(value, imported);
            let sent = if reverse { "REMOTE_SEND_THROUGHPUT" } else { "LOCAL_SEND_THROUGHPUT" };
            row.sent_bits_per_s = self.number(sent).and_then(|sent| unit.bits(sent, imported));
        } else if unit == Unit::Transactions || row.transactions_per_s.is_none() {
            set_transactions(row, text, unit, imported);
        }
        if unit == Unit::Microseconds && row.transactions_per_s.is_none() {
            let reason = "netperf 2.7.1 divides -f u by bytes instead of transactions: run it without -f u";
            return Err(ParseError::new(self.line, reason));
        }
        Ok(())
    }
}

/// The unit that the output prints, where the command line (`--unit`) does not contradict it.
pub fn agreed(printed: Unit, given: Option<&str>, line: usize) -> Result<Unit, ParseError> {
    match given {
        Some(given) if Unit::of_rate(given) != Some(printed) => {
            Err(ParseError::new(line, format!("the output prints another unit than --unit {given}: leave --unit out")))
        }
        _ => Ok(printed),
    }
}

/// The test that a command line asks for; `None` for omni tests, of which the options decide.
fn tested(command: &str) -> Option<Kind> {
    let words: Vec<&str> = command.trim_matches('"').split_whitespace().take_while(|w| *w != "--").collect();
    let name = words.iter().rposition(|w| *w == "-t").map_or(Some("TCP_STREAM"), |at| words.get(at + 1).copied())?;
    Kind::of_name(name, "COMMAND_LINE")
}

// netperf's output selectors: their names, headings and columns.

/// The selector of a key of `-k`.
pub fn of_key(key: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|c| c.selector == key).map(|c| c.selector)
}

/// The selector of a heading of `-o`. The heading of `-O` is the same, on four lines.
pub fn of_title(title: &str) -> Option<&'static str> {
    let title = title.trim();
    COLUMNS.iter().find(|c| c.title == title).map(|c| c.selector)
}

/// A selector with its CSV heading, its numeric column and the factor of its value.
pub struct Column {
    pub selector: &'static str,
    pub title: &'static str,
    /// `None`: handled by name.
    pub target: Option<Field>,
    pub factor: f64,
}

impl Column {
    /// Whether netperf prints it without decimals, as it does all sizes of messages and buffers.
    fn is_size(&self) -> bool {
        self.selector.contains("SIZE")
    }
}

const fn c(selector: &'static str, title: &'static str, target: Option<Field>, factor: f64) -> Column {
    Column { selector, title, target, factor }
}

/// Selectors that have a column, or say what ran.
pub const COLUMNS: &[Column] = &[
    c("PROTOCOL", "Protocol", None, 1.0),
    c("DIRECTION", "Direction", None, 1.0),
    c("THROUGHPUT", "Throughput", None, 1.0),
    c("THROUGHPUT_UNITS", "Throughput Units", None, 1.0),
    c("SD_UNITS", "Service Demand Units", None, 1.0),
    c("CONFIDENCE_LEVEL", "Confidence Level Percent", Some(Field::confidence_level), 0.01),
    c("CONFIDENCE_ITERATION", "Confidence Iterations Run", Some(Field::iterations), 1.0),
    // netperf reports full widths; the table's margin is half a width.
    c("CONFIDENCE_INTERVAL", "Confidence Width Target", Some(Field::margin_goal_ratio), 0.005),
    c("THROUGHPUT_CONFID", "Throughput Confidence Width (%)", Some(Field::margin_ratio), 0.005),
    c("RESULT_BRAND", "Result Tag", None, 1.0),
    c("LOCAL_CONG_CONTROL", "Local Congestion Control Algorithm", None, 1.0),
    c("LOCAL_NODELAY", "Local NODELAY", None, 1.0),
    c("SOURCE_ADDR", "Source Address", None, 1.0),
    c("DEST_ADDR", "Destination Address", None, 1.0),
    c("BURST_SIZE", "Initial Burst Requests", None, 1.0),
    c("LOCAL_SEND_SIZE", "Local Send Size", None, 1.0),
    c("REMOTE_SEND_SIZE", "Remote Send Size", None, 1.0),
    c("ELAPSED_TIME", "Elapsed Time (sec)", Some(Field::elapsed_s), 1.0),
    c("LSS_SIZE_END", "Local Send Socket Size Final", Some(Field::local_send_buffer_bytes), 1.0),
    c("LSR_SIZE_END", "Local Recv Socket Size Final", Some(Field::local_receive_buffer_bytes), 1.0),
    c("RSS_SIZE_END", "Remote Send Socket Size Final", Some(Field::remote_send_buffer_bytes), 1.0),
    c("RSR_SIZE_END", "Remote Recv Socket Size Final", Some(Field::remote_receive_buffer_bytes), 1.0),
    c("REMOTE_RECV_SIZE", "Remote Recv Size", None, 1.0),
    c("REQUEST_SIZE", "Request Size Bytes", Some(Field::request_bytes), 1.0),
    c("RESPONSE_SIZE", "Response Size Bytes", Some(Field::response_bytes), 1.0),
    c("LOCAL_CPU_UTIL", "Local CPU Util %", Some(Field::local_cpu_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_USER", "Local CPU User %", Some(Field::local_cpu_user_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_SYSTEM", "Local CPU System %", Some(Field::local_cpu_system_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_IOWAIT", "Local CPU I/O %", Some(Field::local_cpu_iowait_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_IRQ", "Local CPU IRQ %", Some(Field::local_cpu_irq_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_SWINTR", "Local CPU swintr %", Some(Field::local_cpu_softirq_ratio), 0.01),
    c("LOCAL_CPU_PEAK_UTIL", "Local Peak Per CPU Util %", Some(Field::local_cpu_peak_ratio), 0.01),
    c("LOCAL_CPU_PEAK_ID", "Local Peak Per CPU ID", Some(Field::local_cpu_peak_id), 1.0),
    c("LOCAL_SD", "Local Service Demand", Some(Field::local_service_demand), 1.0),
    c("REMOTE_CPU_UTIL", "Remote CPU Util %", Some(Field::remote_cpu_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_USER", "Remote CPU User %", Some(Field::remote_cpu_user_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_SYSTEM", "Remote CPU System %", Some(Field::remote_cpu_system_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_IOWAIT", "Remote CPU I/O %", Some(Field::remote_cpu_iowait_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_IRQ", "Remote CPU IRQ %", Some(Field::remote_cpu_irq_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_SWINTR", "Remote CPU swintr %", Some(Field::remote_cpu_softirq_ratio), 0.01),
    c("REMOTE_CPU_PEAK_UTIL", "Remote Peak Per CPU Util %", Some(Field::remote_cpu_peak_ratio), 0.01),
    c("REMOTE_CPU_PEAK_ID", "Remote Peak Per CPU ID", Some(Field::remote_cpu_peak_id), 1.0),
    c("REMOTE_SD", "Remote Service Demand", Some(Field::remote_service_demand), 1.0),
    c("TRANSACTION_RATE", "Transaction Rate Tran/s", Some(Field::transactions_per_s), 1.0),
    c("RT_LATENCY", "Round Trip Latency usec/tran", None, 1.0),
    c("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions", Some(Field::local_retransmits), 1.0),
    c("REMOTE_TRANSPORT_RETRANS", "Remote Transport Retransmissions", Some(Field::remote_retransmits), 1.0),
    c("TRANSPORT_MSS", "Transport MSS bytes", Some(Field::mss_bytes), 1.0),
    c("LOCAL_SEND_CALLS", "Local Send Calls", None, 1.0),
    c("REMOTE_RECV_CALLS", "Remote Recv Calls", None, 1.0),
    c("LOCAL_BYTES_SENT", "Local Bytes Sent", None, 1.0),
    c("REMOTE_BYTES_RECVD", "Remote Bytes Received", None, 1.0),
    c("LOCAL_RECV_SIZE", "Local Recv Size", None, 1.0),
    c("LOCAL_RECV_CALLS", "Local Recv Calls", None, 1.0),
    c("REMOTE_SEND_CALLS", "Remote Send Calls", None, 1.0),
    c("LOCAL_BYTES_RECVD", "Local Bytes Received", None, 1.0),
    c("REMOTE_BYTES_SENT", "Remote Bytes Sent", None, 1.0),
    c("LOCAL_SEND_THROUGHPUT", "Local Send Throughput", None, 1.0),
    c("REMOTE_SEND_THROUGHPUT", "Remote Send Throughput", None, 1.0),
    c("COMMAND_LINE", "Command Line", None, 1.0),
    c("MIN_LATENCY", "Minimum Latency Microseconds", Some(Field::latency_min_us), 1.0),
    c("MAX_LATENCY", "Maximum Latency Microseconds", Some(Field::latency_max_us), 1.0),
    c("P50_LATENCY", "50th Percentile Latency Microseconds", Some(Field::latency_p50_us), 1.0),
    c("P90_LATENCY", "90th Percentile Latency Microseconds", Some(Field::latency_p90_us), 1.0),
    c("P99_LATENCY", "99th Percentile Latency Microseconds", Some(Field::latency_p99_us), 1.0),
    c("MEAN_LATENCY", "Mean Latency Microseconds", Some(Field::latency_mean_us), 1.0),
    c("STDDEV_LATENCY", "Stddev Latency Microseconds", Some(Field::latency_stddev_us), 1.0),
];
