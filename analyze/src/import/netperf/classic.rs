//! netperf's tables for people.

use schemas::columns::Row;
use schemas::words::{DemandUnit, Way};

use super::kind::{Kind, Pattern, workload};
use super::omni::agreed;
use super::unit::{Unit, set_transactions};
use crate::import::sheet::{Sheet, count, measured, number, set_messages, whole};
use crate::input::ParseError;

/// The three shapes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Stream,
    RequestResponse,
    Datagrams,
}

/// Facts of the column headings about the next result.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    shape: Option<Shape>,
    /// Whether there are columns of CPU; `None`: the number of values tells.
    cpu: Option<bool>,
    unit: Option<Unit>,
    demand: Option<DemandUnit>,
}

impl Heading {
    /// The heading of results that are printed without one (`-P 0`): the command line names the test and the unit.
    pub fn given(kind: &Kind, unit: Option<Unit>) -> Self {
        let (Ok((transport, pattern)), Some(unit)) = (kind.known(0), unit) else { return Self::default() };
        let shape = match pattern {
            _ if pattern.has_transactions() => Shape::RequestResponse,
            Pattern::Stream if matches!(transport.as_str(), "udp" | "unix_dgram") => Shape::Datagrams,
            _ => Shape::Stream,
        };
        Self { shape: Some(shape), unit: Some(unit), ..Self::default() }
    }

    /// Takes a line of headings; `false` where it is none.
    pub fn take(&mut self, words: &[&str]) -> bool {
        let has = |word: &str| words.contains(&word);
        match words {
            ["Recv", "Send", "Send" | "Recv", ..] => {
                *self = Self { shape: Some(Shape::Stream), cpu: Some(has("Utilization")), ..Self::default() };
            }
            ["Local", "/Remote", ..] => {
                *self = Self { shape: Some(Shape::RequestResponse), cpu: Some(false), ..Self::default() };
            }
            ["Socket", "Size", "Request", "Resp.", "Elapsed", ..] => self.cpu = Some(has("CPU")),
            ["Socket", "Message", "Elapsed", "Messages", ..] => {
                *self = Self { shape: Some(Shape::Datagrams), cpu: Some(has("CPU")), ..Self::default() };
            }
            // `Rate` over `per sec`; with CPU, other units stand here, over the same `per sec`.
            ["Send", "Recv", "Size", "Size", "Time", rest @ ..] => {
                self.unit = match rest {
                    ["Rate", ..] => Some(Unit::Transactions),
                    [unit, ..] => Unit::parse(unit),
                    [] => None,
                };
            }
            ["bytes" | "Bytes", "bytes" | "Bytes", ..] => {
                // `10^6bits/sec`; with CPU the unit is padded: `KBytes  /s`.
                let padded = words.windows(2).find(|w| matches!(w[1], "/s" | "/sec")).and_then(|w| Unit::parse(w[0]));
                self.unit = padded.or_else(|| words.iter().find_map(|w| Unit::of_rate(w))).or(self.unit);
                self.demand = words.iter().find_map(|w| match *w {
                    "us/KB" => Some(DemandUnit::PerKib),
                    "us/Tr" => Some(DemandUnit::PerTransaction),
                    _ => None,
                });
            }
            ["Socket" | "Size", "Socket" | "Size" | "Recv", ..] => {}
            _ => return false,
        }
        true
    }

    /// The number of columns that the words fill, if they are a result under this heading.
    pub fn fits(&self, words: &[&str]) -> Option<usize> {
        let (without, with) = match self.shape? {
            Shape::Stream => (5, 9),
            Shape::RequestResponse => (6, 10),
            Shape::Datagrams => (6, 8),
        };
        // -B adds a tag of any words.
        let filled = |wanted: usize| words.len() >= wanted && words[..wanted].iter().all(|w| number(w).is_some());
        let wanted = match self.cpu {
            Some(cpu) => [without, with][usize::from(cpu)],
            None if filled(with) => with,
            None => without,
        };
        filled(wanted).then_some(wanted)
    }

    pub fn has_second_line(&self) -> bool {
        self.shape != Some(Shape::Stream)
    }

    /// The next table has other columns.
    pub fn forget(&mut self) {
        self.shape = None;
    }
}

/// A result of `wanted` columns, and its second line.
pub fn result(
    words: &[&str],
    second: &[&str],
    wanted: usize,
    heading: &Heading,
    kind: &Kind,
    line: usize,
    sheet: &mut Sheet,
) -> Result<Row, ParseError> {
    let shape = heading.shape.unwrap_or(Shape::Stream);
    let (transport, pattern) = kind.known(line)?;
    if (shape == Shape::RequestResponse) != pattern.has_transactions() {
        let name = workload(&transport, pattern);
        return Err(ParseError::new(line, format!("this is no table of {name}: these are parts of different tests")));
    }
    let unit = heading.unit.ok_or_else(|| ParseError::new(line, "the headings above name no unit of netperf's"))?;
    let unit = agreed(unit, sheet.given.unit.as_deref(), line)?;
    let cell = |index: usize| number(words[index]).unwrap_or_default();
    let size = |index: usize| whole(words[index]).filter(|s| *s > 0);
    let mut row = measured(&workload(&transport, pattern));
    let tag = words[wanted..].join(" ");
    row.tag = (!tag.is_empty()).then_some(tag);
    let missing = |what: &str| ParseError::expected(line + 1, what, &second.join(" "));
    match shape {
        Shape::Stream => {
            row.elapsed_s = Some(cell(3));
            row.message_bytes = size(2);
            let cpu = wanted > 5;
            if pattern == Pattern::Maerts {
                row.direction = Some(Way::Reverse);
                if cpu {
                    sheet.note("netperf prints the wrong buffer sizes for TCP_MAERTS with CPU: left out");
                } else {
                    row.local_receive_buffer_bytes = size(0);
                    row.remote_send_buffer_bytes = size(1);
                }
            } else {
                row.remote_receive_buffer_bytes = size(0);
                row.local_send_buffer_bytes = size(1);
            }
            row.throughput_bits_per_s = unit.bits(cell(4), sheet);
            if cpu {
                set_cpu(&mut row, (cell(5), cell(6)), (cell(7), cell(8)), heading.demand);
            }
        }
        Shape::RequestResponse => {
            (row.local_send_buffer_bytes, row.local_receive_buffer_bytes) = (size(0), size(1));
            (row.request_bytes, row.response_bytes) = (size(2), size(3));
            row.elapsed_s = Some(cell(4));
            set_transactions(&mut row, words[5], unit, sheet);
            if wanted > 6 {
                set_cpu(&mut row, (cell(6), cell(7)), (cell(8), cell(9)), heading.demand);
            }
            let sizes: Option<Vec<u64>> = second.iter().map(|w| whole(w)).collect();
            let Some(&[send, receive]) = sizes.as_deref() else {
                return Err(missing("the far end's line of a request/response result"));
            };
            (row.remote_send_buffer_bytes, row.remote_receive_buffer_bytes) = (Some(send), Some(receive));
        }
        Shape::Datagrams => {
            row.local_send_buffer_bytes = size(0);
            row.message_bytes = size(1);
            row.elapsed_s = Some(cell(2));
            row.errors = count(cell(4));
            row.sent_bits_per_s = unit.bits(cell(5), sheet);
            let cpu = wanted > 6;
            let found: Option<Vec<f64>> = second.iter().map(|w| number(w)).collect();
            let Some(found) = found.filter(|f| f.len() == if cpu { 6 } else { 4 }) else {
                return Err(missing("the receiver's line of a UDP result"));
            };
            row.remote_receive_buffer_bytes = count(found[0]);
            set_messages(&mut row, count(cell(3)), count(found[2]), None);
            row.throughput_bits_per_s = unit.bits(found[3], sheet);
            if cpu {
                set_cpu(&mut row, (cell(6), found[4]), (cell(7), found[5]), heading.demand);
            }
        }
    }
    Ok(row)
}

/// Utilisation in per cent (local, remote) and service demand; −1 means not measured.
fn set_cpu(row: &mut Row, busy: (f64, f64), demand: (f64, f64), unit: Option<DemandUnit>) {
    let known = |v: f64| (v >= 0.0).then_some(v);
    row.local_cpu_ratio = known(busy.0).map(|v| v / 100.0);
    row.remote_cpu_ratio = known(busy.1).map(|v| v / 100.0);
    if unit.is_some() {
        row.local_service_demand = known(demand.0);
        row.remote_service_demand = known(demand.1);
        row.service_demand_unit = unit;
    }
}
