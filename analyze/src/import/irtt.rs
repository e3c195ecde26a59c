//! irtt: the JSON of `-o`.

use super::{
    format::fill,
    imported::{ImportedRows, host, measured, set_messages},
    ping,
};
use crate::error::ParseError;
use schemas::{
    columns::Row,
    words::{LatencyKind, Status},
};
use serde_json::Value;

/// The places of figures, and their columns as in a pattern. Times are nanoseconds.
const FIGURES: [(&str, &str); 11] = [
    ("/config/params/length", "message_bytes"),
    ("/stats/rtt/min", "latency_min_us*1e-3"),
    ("/stats/rtt/mean", "latency_mean_us*1e-3"),
    ("/stats/rtt/median", "latency_p50_us*1e-3"),
    ("/stats/rtt/max", "latency_max_us*1e-3"),
    ("/stats/rtt/stddev", "latency_stddev_us*1e-3"),
    ("/stats/duration", "elapsed_s*1e-9"),
    ("/stats/duplicates", "duplicated"),
    ("/stats/late_packets", "reordered"),
    ("/stats/bytes_sent", "bytes_sent"),
    ("/stats/bytes_received", "bytes_received"),
];

/// Whether irtt wrote it.
pub fn looks_like(text: &str) -> bool {
    text.contains("\"irtt\":") || text.lines().any(|l| l.starts_with("[Connecting] connecting to "))
}

/// Reads one document, or several. Without `-Q`, text stands between them.
pub fn read(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    let (mut rest, mut at) = (text, 1);
    loop {
        let begin = if rest.starts_with('{') { Some(0) } else { rest.find("\n{").map(|at| at + 1) };
        let (said, documents) = rest.split_at(begin.unwrap_or(rest.len()));
        for line in said.lines() {
            if line.starts_with("Error: ") {
                return Err(ParseError::new(at, format!("irtt failed: {line}")));
            }
            at += 1;
        }
        if said.len() == text.len() {
            return Err(ParseError::new(1, "irtt's text has three digits: import its JSON (irtt client -o -)"));
        }
        if documents.is_empty() {
            return Ok(());
        }
        let mut values = serde_json::Deserializer::from_str(documents).into_iter::<Value>();
        let document = values.next().unwrap_or(Ok(Value::Null));
        let document = document.map_err(|e| ParseError::new(at + e.line() - 1, format!("{e}")))?;
        imported.add_last(row(&document).map_err(|reason| ParseError::new(at, reason))?);
        let (read, after) = documents.split_at(values.byte_offset());
        at += read.matches('\n').count();
        rest = after;
    }
}

fn row(document: &Value) -> Result<Row, String> {
    let mut row = measured("udp_rr");
    let whole = |path: &str| document.pointer(path).and_then(Value::as_u64);
    let (sent, received) = (whole("/stats/packets_sent"), whole("/stats/packets_received"));
    if sent.is_none() || received.is_none() {
        return Err("irtt's document has no `stats` with `packets_sent` and `packets_received`".to_owned());
    }
    set_messages(&mut row, sent, received, None);
    let trips = document.get("round_trips").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let times = trips.iter().filter_map(|trip| trip.pointer("/delay/rtt").and_then(Value::as_f64));
    row = ping::finished(row, &mut times.filter(|ns| *ns >= 0.0).map(|ns| ns / 1e3).collect::<Vec<_>>());
    for (place, figure) in FIGURES {
        if let Some(value) = document.pointer(place) {
            fill(&mut row, figure, &value.to_string()).ok_or_else(|| format!("`{place}` is {value}"))?;
        }
    }
    let address = |path: &str| {
        let (address, _) = document.pointer(path).and_then(Value::as_str)?.rsplit_once(':')?;
        host(address.trim_start_matches('[').trim_end_matches(']'))
    };
    (row.from, row.to) = (address("/config/local_address"), address("/config/remote_address"));
    if received == Some(0) {
        (row.status, row.error) = (Some(Status::Failed), Some("no reply".to_owned()));
    } else {
        row.latency_kind = Some(LatencyKind::RoundTrip);
    }
    Ok(row)
}
