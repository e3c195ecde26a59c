//! The rows that readers fill, and helpers to fill them.

use indexmap::IndexSet;
use schemas::columns::{COLUMNS, ColumnType, Row};
use schemas::text::fnv1a;
use schemas::words::{LatencyKind, Phase, Record, Status, Way};
use std::collections::HashMap;

/// Facts that an output lacks, from the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// Workload of every result, as in a plan.
    pub workload: Option<String>,
    /// Unit of netperf's results, with `/s`.
    pub unit: Option<String>,
}

/// Rows from one or more outputs.
#[derive(Debug, Default)]
pub struct ImportedRows {
    pub(super) given: Given,
    rows: Vec<(u64, Row)>,
    run: u64,
    notes: Vec<String>,
    /// The run of the last interval, and the Unix time at which its first interval started.
    first_interval: Option<(u64, f64)>,
}

impl ImportedRows {
    /// The conversions, each once.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Starts another output and returns the index of its first row.
    pub(super) fn begin(&mut self) -> usize {
        self.run += 1;
        self.rows.len()
    }

    /// The rows from an index on.
    pub(super) fn rows_from(&mut self, start: usize) -> impl ExactSizeIterator<Item = &mut Row> {
        self.rows[start..].iter_mut().map(|(_, row)| row)
    }

    /// The next rows belong to another run.
    pub(super) fn next_run(&mut self) {
        self.run += 1;
    }

    pub(super) fn add(&mut self, row: Row) {
        self.rows.push((self.run, row));
    }

    /// Adds the last row of a run.
    pub(super) fn add_last(&mut self, row: Row) {
        self.add(row);
        self.next_run();
    }

    /// Seconds from the start of the run's first interval to the Unix time `start`.
    pub(super) fn since_first(&mut self, start: f64) -> f64 {
        match self.first_interval {
            Some((run, first)) if run == self.run => ((start - first) * 1e3).round() / 1e3,
            _ => {
                self.first_interval = Some((self.run, start));
                0.0
            }
        }
    }

    pub(super) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|n| n == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// Names the cases and numbers the iterations: runs of one case are its iterations.
    pub fn finish(mut self) -> Vec<Row> {
        self.name_intervals();
        let mut runs: HashMap<String, IndexSet<u64>> = HashMap::new();
        let mut rows = Vec::with_capacity(self.rows.len());
        for (run, mut row) in self.rows {
            let case = case_of(&row);
            name_sizes(&mut row);
            let case_id = format!("c{:016x}", fnv1a(&format!("{case} {:?}", (&row.plan, &row.transport, row.streams))));
            let (iteration, _) = runs.entry(case_id.clone()).or_default().insert_full(run);
            row.test = row.test.or_else(|| row.workload.clone());
            row.case = Some(case);
            row.case_id = Some(case_id);
            row.iteration = row.iteration.or(Some(iteration as u64 + 1));
            rows.push(row);
        }
        rows
    }

    /// Copies the names of a run to its intervals, which are printed before its result. Only a single result is
    /// unambiguous.
    fn name_intervals(&mut self) {
        let is = |row: &Row, record| row.record == Some(record);
        let mut results: HashMap<u64, Vec<Row>> = HashMap::new();
        for (run, row) in self.rows.iter().filter(|(_, row)| is(row, Record::Iteration)) {
            results.entry(*run).or_default().push(row.clone());
        }
        for (run, row) in self.rows.iter_mut().filter(|(_, row)| is(row, Record::Interval)) {
            let Some([result]) = results.get(run).map(Vec::as_slice) else { continue };
            row.workload.clone_from(&result.workload);
            row.transport.clone_from(&result.transport);
            if row.stream.is_none() {
                row.direction = result.direction;
            }
            (row.message_bytes, row.streams) = (result.message_bytes, result.streams);
            (row.request_bytes, row.response_bytes) = (result.request_bytes, result.response_bytes);
            (row.from, row.to) = (row.from.take().or(result.from.clone()), row.to.take().or(result.to.clone()));
            row.tag.clone_from(&result.tag);
        }
    }
}

/// Rounds every number to twelve digits: 516.5383 Mbit/s become 516538300 bit/s instead of 516538300.00000006.
pub(super) fn without_noise(row: &mut Row) {
    for column in COLUMNS.iter().filter(|c| c.ty == ColumnType::Number) {
        if let Some(value) = row.number(column.name) {
            row.set_number(column.name, format!("{value:.11e}").parse().ok());
        }
    }
}

/// Gives round trips the sizes that they have in a run's rows. A ping-pong is as long there as back.
fn name_sizes(row: &mut Row) {
    let kind = row.workload.as_deref().and_then(|workload| workload.rsplit('_').next());
    if matches!(kind, Some("pingpong" | "rr")) && row.request_bytes.is_none() {
        (row.request_bytes, row.response_bytes) = (row.message_bytes, row.message_bytes);
        row.message_bytes = row.message_bytes.filter(|_| kind == Some("pingpong"));
    }
}

/// The name of the case, like those of plans: workload and sizes.
fn case_of(row: &Row) -> String {
    let name = row.test.as_deref().or(row.workload.as_deref()).or(row.plan.as_deref()).unwrap_or("import");
    let sizes = [
        ("message_size", row.message_bytes),
        ("request_size", row.request_bytes),
        ("response_size", row.response_bytes),
        ("streams", row.streams.filter(|s| *s > 1)),
        ("ranks", row.ranks),
    ];
    let class = row.class.as_ref().map(|class| format!("class={class}"));
    let sizes = sizes.into_iter().filter_map(|(key, size)| size.map(|size| format!("{key}={size}")));
    let sizes: Vec<String> = class.into_iter().chain(sizes).collect();
    if sizes.is_empty() { name.to_owned() } else { format!("{name}[{}]", sizes.join(",")) }
}

/// A row of a finished measurement of a workload.
pub(super) fn measured(workload: &str) -> Row {
    let mut row = unknown();
    set_workload(&mut row, workload);
    row
}

/// A row of a finished measurement, of which the output does not say the workload.
pub(super) fn unknown() -> Row {
    Row { record: Some(Record::Iteration), phase: Some(Phase::Measure), status: Some(Status::Ok), ..Row::default() }
}

/// Sets the workload, and the transport and direction that its name implies.
pub(super) fn set_workload(row: &mut Row, workload: &str) {
    let transport = workload.split('_').next().unwrap_or(workload);
    row.workload = Some(workload.to_owned());
    row.transport = Some(if transport == "ping" { "icmp" } else { transport }.to_owned());
    row.direction = row.direction.or(Some(match workload.rsplit('_').next() {
        Some("maerts") => Way::Reverse,
        Some("duplex") => Way::Both,
        _ => Way::Forward,
    }));
}

/// The name of a host; `None` for the addresses that mean any host.
pub(super) fn host(text: &str) -> Option<String> {
    let any = matches!(text, "" | "0.0.0.0" | "::" | "::0" | "0" | "*");
    (!any).then(|| text.to_owned())
}

/// A decimal number without unit or comma.
pub(super) fn number(text: &str) -> Option<f64> {
    let ok = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    if ok { text.parse().ok().filter(|v: &f64| v.is_finite()) } else { None }
}

pub(super) fn whole(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A count from a double.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as a count may")]
pub(super) fn count(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0).then(|| value.round() as u64)
}

/// A count that is printed among decimal numbers; `None` for one with a fraction.
pub(super) fn exact(value: f64) -> Option<u64> {
    count(value).filter(|_| value.fract() == 0.0)
}

/// Sets sent, received and lost messages. `None` of `received` or `lost` follows from the other.
pub(super) fn set_messages(row: &mut Row, sent: Option<u64>, received: Option<u64>, lost: Option<u64>) {
    let rest = |part: Option<u64>| sent.zip(part).map(|(sent, part)| sent.saturating_sub(part));
    row.messages_sent = sent;
    row.messages_received = received.or_else(|| rest(lost));
    row.lost = lost.or_else(|| rest(received));
    row.loss_ratio = sent.zip(row.lost).filter(|(sent, _)| *sent > 0).map(|(sent, lost)| lost as f64 / sent as f64);
}

/// Makes round trips of latencies that are half of one.
pub(super) fn double_latencies(row: &mut Row) {
    for slot in [
        &mut row.latency_min_us,
        &mut row.latency_mean_us,
        &mut row.latency_p50_us,
        &mut row.latency_p90_us,
        &mut row.latency_p95_us,
        &mut row.latency_p99_us,
        &mut row.latency_p999_us,
        &mut row.latency_max_us,
        &mut row.latency_stddev_us,
    ] {
        *slot = slot.map(|v| v * 2.0);
    }
}

/// Sets a mean latency and the rate of transactions that follow each other.
pub(super) fn set_latency(row: &mut Row, kind: LatencyKind, microseconds: f64) {
    row.latency_mean_us = Some(microseconds);
    row.latency_kind = Some(kind);
    row.transactions_per_s = (microseconds > 0.0).then(|| 1e6 / microseconds);
}
