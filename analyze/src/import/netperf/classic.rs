//! netperf's tables for people.

use schemas::columns::Row;
use schemas::words::{DemandUnit, Way};

use super::unit::{Unit, interim};
use crate::import::sheet::{Sheet, count, measured, number, set_messages, whole};
use crate::input::ParseError;

/// The three shapes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Stream,
    RequestResponse,
    Datagrams,
}

/// Facts of the banner and the column headings about the next result.
#[derive(Clone, Debug, Default)]
struct Heading {
    workload: Option<String>,
    hosts: Option<(String, String)>,
    shape: Option<Shape>,
    cpu: bool,
    unit: Option<Unit>,
    maerts: bool,
}

/// Reads results: banner (optional), headings, numbers. Other lines are ignored, because shells and scripts print
/// between results.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut heading = Heading::default();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((at, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(title) = banner(line) {
            heading = Heading { workload: workload(title), hosts: hosts(line), ..Heading::default() };
            heading.maerts = title.contains("MAERTS");
            if heading.workload.is_none() {
                sheet.note(&format!("netperf's `{title}` is not known; its workload is left empty"));
            }
        } else if line.starts_with("Interim result:") {
            let workload = heading.workload.as_deref().unwrap_or("tcp_stream");
            interim(line, at, workload, heading.hosts.as_ref(), sheet)?;
        } else if line.starts_with("!!! WARNING") {
            sheet.note("netperf warned that it did not reach the confidence asked for");
        } else if heads(&words, &mut heading) {
        } else if heading.shape.is_some() && words.first().is_some_and(|w| number(w).is_some()) {
            let second: Vec<&str> = lines.peek().map(|(_, l)| l.split_whitespace().collect()).unwrap_or_default();
            if let Some(row) = result(&words, &second, &heading, at, sheet)? {
                sheet.add_last(row);
            }
            if heading.shape != Some(Shape::Stream) {
                lines.next();
            }
            // A second result under the same headings (-P 0 in a script) has the same shape; a table of -v 2 has
            // another.
            if line_ends_table(lines.peek().map(|(_, l)| *l)) {
                heading.shape = None;
            }
        }
    }
    Ok(())
}

fn line_ends_table(next: Option<&str>) -> bool {
    next.is_some_and(|l| l.trim().is_empty() || l.starts_with("Alignment"))
}

fn banner(line: &str) -> Option<&str> {
    let (title, _) = line.split_once(" from ").or_else(|| line.trim_end().ends_with(" TEST").then_some((line, "")))?;
    let title = title.trim();
    (title.ends_with("TEST") && !title.contains(':')).then_some(title)
}

fn hosts(line: &str) -> Option<(String, String)> {
    let host = |text: &str| text.split([' ', '(']).find(|w| !w.is_empty()).map(str::to_owned);
    let (_, rest) = line.split_once(" from ")?;
    let (from, to) = rest.split_once(" to ")?;
    Some((host(from)?, host(to)?))
}

/// The workload of a banner's title. Titles are those of 2.7 and older versions.
fn workload(title: &str) -> Option<String> {
    let title = title.trim_start_matches("MIGRATED ");
    let transport = ["TCP", "UDP", "SCTP", "DCCP"].into_iter().find(|t| title.starts_with(t));
    let name = match (transport, title) {
        (None, t) if t.starts_with("STREAM STREAM") => "unix_stream".to_owned(),
        (None, t) if t.starts_with("STREAM REQUEST") => "unix_rr".to_owned(),
        (None, t) if t.starts_with("DG UNIDIRECTIONAL") => "unix_dgram_stream".to_owned(),
        (None, t) if t.starts_with("DG REQUEST") => "unix_dgram_rr".to_owned(),
        (None, _) => return None,
        (Some(transport), t) => {
            let kind = [
                ("Connect/Request/Response", "crr"),
                ("Connect/Close", "cc"),
                ("REQUEST/RESPONSE", "rr"),
                ("SENDFILE", "sendfile"),
                ("MAERTS", "maerts"),
                ("STREAM", "stream"),
                ("UNIDIRECTIONAL SEND", "stream"),
            ]
            .into_iter()
            .find(|(words, _)| t.contains(words))?
            .1;
            format!("{}_{kind}", transport.to_ascii_lowercase())
        }
    };
    Some(name)
}

/// Whether a line is a column heading; its facts go into `heading`.
fn heads(words: &[&str], heading: &mut Heading) -> bool {
    match words {
        ["Recv", "Send", "Send" | "Recv", rest @ ..] => {
            heading.shape = Some(Shape::Stream);
            heading.cpu = rest.contains(&"Utilization");
        }
        ["Local", "/Remote", ..] => {
            heading.shape = Some(Shape::RequestResponse);
            heading.cpu = false;
        }
        ["Socket", "Size", "Request", "Resp.", "Elapsed", rest @ ..] => heading.cpu = rest.contains(&"CPU"),
        ["Socket", "Message", "Elapsed", "Messages", rest @ ..] => {
            heading.shape = Some(Shape::Datagrams);
            heading.cpu = rest.contains(&"CPU");
        }
        ["bytes" | "Bytes", "bytes" | "Bytes", ..] => {
            // `10^6bits/sec` under Throughput, `per sec` under a transaction rate.
            let unit = words.iter().rev().find_map(|w| {
                let unit = w.strip_suffix("/sec").or_else(|| w.strip_suffix("/s"))?;
                Unit::parse(unit)
            });
            heading.unit = if words.contains(&"per") { Some(Unit::Transactions) } else { unit };
        }
        ["Socket" | "Size", "Socket" | "Size" | "Recv", ..] | ["Send", "Recv", ..] => {}
        _ => return false,
    }
    true
}

/// A result; `None` for other lines of numbers.
fn result(
    words: &[&str],
    second: &[&str],
    heading: &Heading,
    line: usize,
    sheet: &mut Sheet,
) -> Result<Option<Row>, ParseError> {
    let shape = heading.shape.unwrap_or(Shape::Stream);
    let wanted = match (shape, heading.cpu) {
        (Shape::Stream, false) => 5,
        (Shape::Stream, true) => 9,
        (Shape::RequestResponse | Shape::Datagrams, false) => 6,
        (Shape::RequestResponse, true) => 10,
        (Shape::Datagrams, true) => 8,
    };
    // -B adds a tag of any words.
    if words.len() < wanted || words[..wanted].iter().any(|w| number(w).is_none()) {
        return Ok(None);
    }
    let cell = |index: usize| number(words[index]).unwrap_or_default();
    let size = |index: usize| whole(words[index]).filter(|s| *s > 0);
    let (assumed, default_unit) = match shape {
        Shape::Stream => ("tcp_stream", Unit::Bits(1e6)),
        Shape::RequestResponse => ("tcp_rr", Unit::Transactions),
        Shape::Datagrams => ("udp_stream", Unit::Bits(1e6)),
    };
    if heading.workload.is_none() {
        sheet.note(&format!("netperf's banner is missing: the result is taken for {assumed}"));
    }
    let mut row = measured(heading.workload.as_deref().unwrap_or(assumed));
    if let Some((from, to)) = &heading.hosts {
        (row.from, row.to) = (Some(from.clone()), Some(to.clone()));
    }
    let unit = heading.unit.unwrap_or(default_unit);
    let tag = words[wanted..].join(" ");
    row.tag = (!tag.is_empty()).then_some(tag);
    match shape {
        Shape::Stream => {
            row.elapsed_s = Some(cell(3));
            row.message_bytes = size(2);
            if heading.maerts {
                row.direction = Some(Way::Reverse);
                row.local_receive_buffer_bytes = size(0);
                row.remote_send_buffer_bytes = size(1);
            } else {
                row.remote_receive_buffer_bytes = size(0);
                row.local_send_buffer_bytes = size(1);
            }
            row.throughput_bits_per_s = unit.bits(cell(4), sheet);
            if heading.cpu {
                cpu(&mut row, (cell(5), cell(6)), (cell(7), cell(8)), DemandUnit::PerKib);
            }
        }
        Shape::RequestResponse => {
            (row.local_send_buffer_bytes, row.local_receive_buffer_bytes) = (size(0), size(1));
            (row.request_bytes, row.response_bytes) = (size(2), size(3));
            row.elapsed_s = Some(cell(4));
            if unit == Unit::Transactions {
                row.transactions_per_s = Some(cell(5));
            } else if let (Some(bits), Some(sizes)) =
                (unit.bits(cell(5), sheet), row.request_bytes.zip(row.response_bytes))
            {
                sheet.note(
                    "netperf's request/response throughput counts both directions: given as transactions per second",
                );
                row.transactions_per_s = Some(bits / 8.0 / (sizes.0 + sizes.1) as f64);
            }
            if heading.cpu {
                cpu(&mut row, (cell(6), cell(7)), (cell(8), cell(9)), DemandUnit::PerTransaction);
            }
            if let [send, receive] = second {
                (row.remote_send_buffer_bytes, row.remote_receive_buffer_bytes) = (whole(send), whole(receive));
            }
        }
        Shape::Datagrams => {
            row.local_send_buffer_bytes = size(0);
            row.message_bytes = size(1);
            row.elapsed_s = Some(cell(2));
            row.errors = count(cell(4));
            row.sent_bits_per_s = unit.bits(cell(5), sheet);
            let found: Option<Vec<f64>> = second.iter().map(|w| number(w)).collect();
            let Some(found) = found.filter(|f| f.len() >= 4) else {
                return Err(ParseError::expected(line + 1, "the receiver's line of a UDP result", &second.join(" ")));
            };
            row.remote_receive_buffer_bytes = count(found[0]);
            set_messages(&mut row, count(cell(3)), count(found[2]), None);
            row.throughput_bits_per_s = unit.bits(found[3], sheet);
            if heading.cpu && found.len() >= 6 {
                cpu(&mut row, (cell(6), found[4]), (cell(7), found[5]), DemandUnit::PerKib);
            }
        }
    }
    Ok(Some(row))
}

/// Utilisation in per cent (local, remote) and service demand; −1 means not measured.
fn cpu(row: &mut Row, busy: (f64, f64), demand: (f64, f64), unit: DemandUnit) {
    let known = |v: f64| (v >= 0.0).then_some(v);
    row.local_cpu_ratio = known(busy.0).map(|v| v / 100.0);
    row.remote_cpu_ratio = known(busy.1).map(|v| v / 100.0);
    row.local_service_demand = known(demand.0);
    row.remote_service_demand = known(demand.1);
    row.service_demand_unit = Some(unit);
}
