//! `plumb fit`: latency and asymptotic bandwidth from a sweep of sizes.

use std::collections::BTreeMap;
use std::io::Write;

use indexmap::IndexMap;
use schemas::columns::number;
use schemas::units::{self, Rate, Unit};

use crate::error::{Error, Verdict};
use crate::stats::{hockney, moments::Moments};
use crate::table::{Rows, Selection, Table, TableArgs};

/// Latency, asymptotic bandwidth, half-bandwidth and saturation size from a sweep over message sizes.
///
/// plumb run plans/message-size.yaml | plumb fit
///
/// Fits t = t0 + n/r (weighted by 1/t²) to the time per message, averaged over iterations. For streams, n is
/// message_bytes and t the size over the throughput. For round trips, n is the mean of request and response and t half
/// a round trip. The half-bandwidth size is t0·r. Saturation is the smallest size from which on the throughput stays
/// within 5 % of the largest. With --link, the efficiency is the largest throughput over what the wire can carry at
/// that MTU with those headers. With --operations, the price of the latency: the operations that a CPU of that speed could
/// have done meanwhile.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// One fit per value of these columns [default: test, member and direction]
    #[arg(short, long, value_name = "COLUMN,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Speed of the link, for example 10Gbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_link)]
    link: Option<f64>,
    /// MTU of the link, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// Headers around each message
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp4")]
    headers: Headers,
    /// Operations per second of a CPU, for example 50M/s: shows how many one latency costs
    #[arg(long, value_name = "RATE", value_parser = parse_operations)]
    operations: Option<f64>,
    /// csv or text [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One row per fit
    Csv,
    /// One line per fit
    Text,
}

/// Headers inside an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Headers {
    /// IPv4 and TCP with timestamps: 52 bytes
    Tcp4,
    /// IPv6 and TCP with timestamps: 72 bytes
    Tcp6,
    /// IPv4 and UDP: 28 bytes
    Udp4,
    /// IPv6 and UDP: 48 bytes
    Udp6,
}

impl Headers {
    fn bytes(self) -> u32 {
        match self {
            Self::Tcp4 => 20 + 20 + 12,
            Self::Tcp6 => 40 + 20 + 12,
            Self::Udp4 => 20 + 8,
            Self::Udp6 => 40 + 8,
        }
    }
}

/// Preamble, Ethernet header, frame check sequence and the gap between frames.
const FRAME_BYTES: u32 = 8 + 14 + 4 + 12;

fn parse_link(text: &str) -> Result<f64, String> {
    match units::parse_rate(text).map_err(|e| e.to_string())? {
        Rate::Bits(v) if v > 0.0 => Ok(v),
        _ => Err("a link's speed is in bits per second: 10Gbit/s".to_owned()),
    }
}

fn parse_operations(text: &str) -> Result<f64, String> {
    match units::parse_rate(text).map_err(|e| e.to_string())? {
        Rate::Events(v) if v > 0.0 => Ok(v),
        _ => Err("the speed of a CPU is in operations per second: 50M/s".to_owned()),
    }
}

/// The payload rate of a full link: link · (MTU − headers) ÷ (MTU + framing).
fn wire_goodput(link: f64, mtu: u32, headers: Headers) -> Option<f64> {
    let payload = mtu.checked_sub(headers.bytes()).filter(|p| *p > 0)?;
    Some(link * f64::from(payload) / f64::from(mtu + FRAME_BYTES))
}

/// Seconds per message, by size in bits to keep fractions of a byte (the mean of request and response).
type Times = BTreeMap<u64, Moments>;

struct Fit {
    group: Vec<String>,
    sizes: usize,
    model: Option<hockney::Hockney>,
    saturation: Option<f64>,
    /// Largest mean throughput, bits per second.
    largest: Option<f64>,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let wire = match args.link {
        Some(link) => Some(wire_goodput(link, args.mtu, args.headers).ok_or_else(|| {
            Error::Usage(format!("an MTU of {} leaves no room for {} bytes of headers", args.mtu, args.headers.bytes()))
        })?),
        None => None,
    };
    let mut table = Table::open(&args.tables.input)?;
    let titles: Vec<String> = match args.group.as_slice() {
        [] => table.header().having(&["test", "member", "direction"]),
        names => table.names_of(names)?,
    };
    let fits = fits(&mut table, &args.tables.selection, &titles)?;
    let format = args.format.unwrap_or(if args.tables.output.is_for_people() { Format::Text } else { Format::Csv });
    for fit in fits.iter().filter(|f| f.model.is_none()) {
        crate::warn(&format!(
            "{}: {} sizes cannot be fitted; it takes three or more, and a time that grows with the size",
            fit.group.join(" "),
            fit.sizes
        ));
    }
    args.tables.output.write(output, |w| match format {
        Format::Csv => write_csv(&titles, &fits, wire, args.operations, w),
        Format::Text => write_text(&fits, wire, args.operations, w),
    })?;
    Ok(Verdict::Ok)
}

fn fits(table: &mut Table, selection: &Selection, group: &[String]) -> Result<Vec<Fit>, Error> {
    let mut columns = group.iter().map(|n| table.require(n)).collect::<Result<Vec<_>, _>>()?;
    let first = columns.len();
    let names =
        ["message_bytes", "throughput_bits_per_s", "request_bytes", "response_bytes", "transactions_per_s", "inflight"];
    let mut at = [None; 6];
    for (at, name) in at.iter_mut().zip(names) {
        if let Some(column) = table.header().find(name) {
            *at = Some(columns.len());
            columns.push(column);
        }
    }
    if columns.len() == first {
        table.require("message_bytes")?;
    }
    let rows = Rows::read(table, selection, &columns)?;
    if let Some(note) = &rows.note {
        crate::warn(note);
    }
    let mut groups: IndexMap<Vec<String>, Times> = IndexMap::new();
    for row in &rows.rows {
        let value = |i: usize| at[i].map_or(Ok(None), |c: usize| rows.number(row, c));
        let [message, throughput, request, response, rate, inflight] =
            [value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?];
        let point = match (request.zip(response), rate, message.zip(throughput)) {
            // Several in flight overlap: their rate does not give the time of one.
            (Some((request, response)), Some(rate), _) if rate > 0.0 && inflight.is_none_or(|n| n <= 1.0) => {
                Some((request.midpoint(response) * 8.0, 0.5 / rate))
            }
            (_, _, Some((message, throughput))) if throughput > 0.0 => {
                Some((message * 8.0, message * 8.0 / throughput))
            }
            _ => None,
        };
        let Some((bits, seconds)) = point.filter(|(_, t)| *t > 0.0) else { continue };
        let times = groups.entry((0..first).map(|i| row.get(i).to_owned()).collect()).or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are below 2^60 bits")]
        times.entry(bits as u64).or_default().push(seconds);
    }
    Ok(groups.into_iter().map(|(group, times)| fit(group, &times)).collect())
}

fn fit(group: Vec<String>, times: &Times) -> Fit {
    let points: Vec<(f64, f64)> = times.iter().filter_map(|(bits, t)| Some((*bits as f64 / 8.0, t.mean()?))).collect();
    let curve: Vec<(f64, f64)> = points.iter().map(|(n, t)| (*n, n * 8.0 / t)).collect();
    Fit {
        group,
        sizes: points.len(),
        model: hockney::fit(&points),
        saturation: hockney::saturation(&curve),
        largest: curve.iter().map(|(_, r)| *r).max_by(f64::total_cmp),
    }
}

/// The latency; `None` for a negative start-up time, where the model does not fit.
fn latency_us(model: &hockney::Hockney) -> Option<f64> {
    (model.latency_s > 0.0).then_some(model.latency_s * 1e6)
}

fn write_csv(
    titles: &[String],
    fits: &[Fit],
    wire: Option<f64>,
    operations: Option<f64>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(output);
    let columns = [
        "sizes",
        "latency_us",
        "asymptote_bits_per_s",
        "half_bandwidth_bytes",
        "saturation_bytes",
        "largest_bits_per_s",
        "wire_goodput_bits_per_s",
        "efficiency_ratio",
        "r2",
        "latency_operations",
    ];
    writer.write_record(titles.iter().map(String::as_str).chain(columns))?;
    for fit in fits {
        let model = fit.model.as_ref();
        let values = [
            model.and_then(latency_us),
            model.map(|m| m.bandwidth * 8.0),
            model.filter(|m| m.latency_s > 0.0).map(|m| m.half_bandwidth_bytes().round()),
            fit.saturation,
            fit.largest,
            wire,
            fit.largest.zip(wire).map(|(r, w)| r / w),
            model.map(|m| m.r2),
            model.and_then(latency_us).zip(operations).map(|(us, rate)| (us * rate / 1e6).round()),
        ];
        let cells = values.map(|v| v.map(number).unwrap_or_default());
        writer.write_record(fit.group.iter().cloned().chain([fit.sizes.to_string()]).chain(cells))?;
    }
    Ok(writer.flush()?)
}

fn write_text(fits: &[Fit], wire: Option<f64>, operations: Option<f64>, output: &mut dyn Write) -> Result<(), Error> {
    for fit in fits {
        let mut parts = Vec::new();
        if let Some(model) = &fit.model {
            parts.extend(latency_us(model).map(|us| format!("latency {}", units::human(Unit::Microseconds, us))));
            parts.push(format!("asymptote {}", units::human(Unit::BitsPerSecond, model.bandwidth * 8.0)));
            if model.latency_s > 0.0 {
                let cost = latency_us(model).zip(operations).map(|(us, rate)| us * rate / 1e6);
                parts.extend(cost.map(|n| format!("which is {} operations", units::human(Unit::Count, n.round()))));
                parts.push(format!("n½ {}", units::human(Unit::Bytes, model.half_bandwidth_bytes())));
            }
        }
        parts.extend(fit.saturation.map(|n| format!("saturation at {}", units::human(Unit::Bytes, n))));
        if let Some((largest, wire)) = fit.largest.zip(wire) {
            parts.push(format!(
                "{} of the wire's {}",
                units::margin(largest / wire),
                units::human(Unit::BitsPerSecond, wire)
            ));
        }
        let name = if fits.len() > 1 { format!("{}: ", fit.group.join(" ").trim_end()) } else { String::new() };
        writeln!(output, "{name}{}", parts.join(" · "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_carries_941_megabits_of_tcp() {
        let goodput = wire_goodput(1e9, 1500, Headers::Tcp4).unwrap();
        assert!((goodput / 1e6 - 941.48).abs() < 0.01, "{goodput}");
        assert_eq!(wire_goodput(1e9, 40, Headers::Tcp4), None);
    }

    #[test]
    fn streams_and_round_trips_give_the_same_model() {
        let mut stream = String::from("test,message_bytes,throughput_bits_per_s\n");
        let mut trips = String::from("test,request_bytes,response_bytes,transactions_per_s,inflight\n");
        for i in 0..15 {
            let n = 2f64.powi(i);
            let t = 10e-6 + n / 1e9;
            stream += &format!("s,{n},{}\n", n * 8.0 / t);
            trips += &format!("r,{n},{n},{},1\n", 0.5 / t);
        }
        for text in [stream, trips] {
            let mut table = Table::from_text("t", text).unwrap();
            let fits = fits(&mut table, &Selection::default(), &["test".to_owned()]).unwrap();
            let model = fits[0].model.unwrap();
            assert!((model.latency_s - 10e-6).abs() < 1e-12 && (model.bandwidth - 1e9).abs() < 1e3, "{model:?}");
        }
    }
}
