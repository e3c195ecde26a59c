//! `plumb fit`: latency and asymptotic bandwidth from a sweep of sizes, and throughput over what a wire can carry.

#[cfg(test)]
mod one_link;
mod path;

use crate::{
    error::{Error, Verdict},
    stats::{hockney, moments::Moments},
    table::{Field, Format, Rows, Selection, Table, TableArgs, cells, formats, write_csv},
    wire::{Load, Packets, QUIC_DATAGRAM, TIMESTAMPS, in_records},
};
use indexmap::IndexMap;
use schemas::{
    columns::{AXIS_PREFIX, results::column},
    text::plain,
    units::{self, Rate, Unit},
    words::LatencyKind,
};
use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
};

const FORMATS: [(Format, &str); 2] = [(Format::Csv, "One row per fit"), (Format::Text, "One line per fit")];

/// Latency, asymptotic bandwidth, half-bandwidth and saturation size from a sweep over message sizes.
///
/// plumb run plans/message-size.yaml | plumb fit
///
/// Fits t = t0 + n/r (weighted by 1/t²) to the time per message, averaged over iterations. For streams, n is
/// message_bytes and t the size over the throughput. For round trips, n is the size of a message (the mean of request and
/// response) and t half a round trip. The half-bandwidth size is t0·r. Saturation is the smallest size from which on the throughput stays
/// within 5 % of the largest. With --wire, any table will do: wire_ratio is the largest throughput over what an Ethernet link
/// of that speed can carry with that MTU and those headers. With --wire and no table: what the link can carry. With
/// --operations, the price of the latency: the operations that a CPU of that speed could have done meanwhile.
///
/// With --to netem, the results of `plumb run path` become a folder with a laboratory of that path: the script `path` builds it
/// between two network namespaces (netem and a token bucket) and takes it down, and measures it with `plan.yaml` to compare.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// One fit per value of these columns [default: test, member, hosts, direction and each swept key but the size]
    #[arg(short, long, visible_alias = "by", value_name = "COLUMN,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Speed of the link, for example 10Gbit/s
    #[arg(long, alias = "link", value_name = "RATE", value_parser = parse_wire)]
    wire: Option<f64>,
    /// MTU of the link, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// Headers around each message [default: by the rows' transport, over IPv4]
    #[arg(long, value_name = "PROTOCOL")]
    headers: Option<Headers>,
    /// TCP without timestamps: 12 bytes less in each segment
    #[arg(long)]
    no_timestamps: bool,
    /// Frames with a VLAN tag; twice: with two (QinQ)
    #[arg(long, action = clap::ArgAction::Count)]
    vlan: u8,
    /// Sizes of datagrams, bytes, where there is no table
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', requires = "wire")]
    message_size: Vec<u32>,
    /// Operations per second of a CPU, for example 50M/s: shows how many one latency costs
    #[arg(long, value_name = "RATE", value_parser = parse_operations)]
    operations: Option<f64>,
    /// Make a laboratory of the measured path, in the folder that -o names
    #[arg(long, value_name = "KIND", requires = "output")]
    to: Option<Laboratory>,
    /// csv or text [default: text on a terminal, else csv]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(FORMATS))]
    format: Option<Format>,
    #[command(flatten)]
    tables: TableArgs,
}

/// The means by which a laboratory is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Laboratory {
    /// Two network namespaces, netem and a token bucket
    Netem,
}

fn parse_wire(text: &str) -> Result<f64, String> {
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

/// Times of the messages of one size.
#[derive(Default)]
struct Times {
    /// Seconds per message; where the size is unknown, per bit.
    seconds: Moments,
    /// Payload bits per second that the wire can carry in such messages.
    ceiling: Option<f64>,
}

/// By size in bits, to keep fractions of a byte (the mean of request and response); `None`: unknown.
type Sizes = BTreeMap<Option<u64>, Times>;

struct Fit {
    group: Vec<String>,
    sizes: usize,
    model: Option<hockney::Hockney>,
    saturation: Option<f64>,
    /// Largest mean throughput, bits per second.
    largest: Option<f64>,
    /// The wire's ceiling for the messages that come nearest to it, and how near they come.
    wire: Option<(f64, f64)>,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let wire = args.wire.map(|bits_per_s| Wire {
        bits_per_s,
        mtu: args.mtu.into(),
        headers: args.headers,
        timestamps: !args.no_timestamps,
        tags: args.vlan.into(),
    });
    let format = args.tables.output.format(args.format);
    if let Some(wire) = wire.as_ref().filter(|_| args.tables.input.is_absent()) {
        let loads = wire.loads(&args.message_size)?;
        args.tables.output.write(output, |w| wire.write(&loads, format == Format::Text, w))?;
        return Ok(Verdict::Ok);
    }
    if !args.message_size.is_empty() {
        return Err(Error::Usage("--message-size is for a wire without a table: rows have their own sizes".to_owned()));
    }
    let mut table = Table::open(&args.tables.input)?;
    if args.to == Some(Laboratory::Netem) {
        let (Some(folder), [results]) = (args.tables.output.file(), args.tables.input.files.as_slice()) else {
            return Err(Error::Usage("--to netem reads one file, and writes into the folder that -o names".to_owned()));
        };
        let as_text = args.format.map_or_else(|| std::io::stdout().is_terminal(), |format| format == Format::Text);
        path::run(&mut table, &args.tables.selection, results, folder, as_text, output)?;
        return Ok(Verdict::Ok);
    }
    let (mut titles, is_chosen) = match args.group.as_slice() {
        [] => (all_but_sizes(table.header().names()), false),
        names => (table.names_of(names)?, true),
    };
    let mut fits = fits(&mut table, &args.tables.selection, &titles, wire.as_ref())?;
    if !is_chosen {
        leave_out_what_is_alike(&mut titles, &mut fits);
    }
    for fit in fits.iter().filter(|f| f.model.is_none() && (f.wire.is_none() || f.sizes >= 3)) {
        crate::warn(&format!(
            "{}: {} sizes cannot be fitted; it takes three or more, and a time that grows with the size",
            fit.group.join(" "),
            fit.sizes
        ));
    }
    args.tables.output.write(output, |w| match format {
        Format::Csv => csv(&titles, &fits, args.operations, w),
        _ => text(&fits, args.operations, w),
    })?;
    Ok(Verdict::Ok)
}

/// Columns that name a fit by default, whatever is in them.
const NAMED: [&str; 3] = [column::test, column::member, column::direction];

/// The columns that tell measurements apart: a fit is over the sizes of one of them.
fn all_but_sizes(header: &[String]) -> Vec<String> {
    let is_size = |name: &str| name.ends_with("_size") || name.ends_with("_bytes");
    let tells = |name: &str| {
        NAMED.contains(&name)
            || [column::from, column::to].contains(&name)
            || (name.starts_with(AXIS_PREFIX) && !is_size(name))
    };
    header.iter().filter(|name| tells(name)).cloned().collect()
}

/// Drops the columns that have one value in all fits, but for the usual ones.
fn leave_out_what_is_alike(titles: &mut Vec<String>, fits: &mut [Fit]) {
    let differs = |at: usize| fits.iter().any(|fit| fit.group[at] != fits[0].group[at]);
    let keep: Vec<bool> =
        titles.iter().enumerate().map(|(at, title)| NAMED.contains(&title.as_str()) || differs(at)).collect();
    let kept =
        |values: &[String]| values.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(v, _)| v.clone()).collect();
    *titles = kept(titles);
    for fit in fits {
        fit.group = kept(&fit.group);
    }
}

/// Columns by which times are known.
const MEASURED: [Field; 7] = [
    Field::message_bytes,
    Field::throughput_bits_per_s,
    Field::request_bytes,
    Field::response_bytes,
    Field::transactions_per_s,
    Field::inflight,
    Field::latency_mean_us,
];

fn fits(table: &mut Table, selection: &Selection, group: &[String], wire: Option<&Wire>) -> Result<Vec<Fit>, Error> {
    let mut columns = group.iter().map(|n| table.require(n)).collect::<Result<Vec<_>, _>>()?;
    let first = columns.len();
    let measured = MEASURED.iter().filter_map(|field| table.header().place(*field));
    if measured.clone().next().is_none() {
        table.require(if wire.is_some() { column::throughput_bits_per_s } else { column::message_bytes })?;
    }
    columns.extend(
        measured.chain([Field::latency_kind, Field::transport].iter().filter_map(|f| table.header().place(*f))),
    );
    let rows = Rows::read(table, selection, &columns)?;
    rows.note.iter().for_each(|note| crate::warn(note));
    let mut groups: IndexMap<Vec<String>, Sizes> = IndexMap::new();
    for row in &rows.rows {
        let value = |i: usize| rows.value(row, MEASURED[i]);
        let [message, throughput, request, response, rate, inflight, latency] =
            [value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?, value(6)?];
        let kind = rows.text(row, Field::latency_kind);
        let size = request.zip(response).map(|(request, response)| request.midpoint(response)).or(message);
        // Several streams add up their rates, and a load is paced below the rate that it could have: the latency tells the
        // time of one transaction, where it is known. Several in flight overlap: neither does.
        let trip = latency
            .filter(|_| [LatencyKind::RoundTrip, LatencyKind::Response].iter().any(|k| kind == k.as_str()))
            .map(|us| us / 1e6)
            .or_else(|| rate.filter(|rate| *rate > 0.0).map(|rate| 1.0 / rate))
            .filter(|_| inflight.is_none_or(|n| n <= 1.0));
        let point = match (size, trip, throughput) {
            (Some(size), Some(trip), _) => Some((Some(size * 8.0), trip / 2.0)),
            (_, _, Some(throughput)) if throughput > 0.0 => match message {
                Some(message) => Some((Some(message * 8.0), message * 8.0 / throughput)),
                None if request.is_none() && wire.is_some() => Some((None, 1.0 / throughput)),
                None => None,
            },
            _ => None,
        };
        let Some((bits, seconds)) = point.filter(|(_, t)| *t > 0.0) else { continue };
        let sizes = groups.entry((0..first).map(|i| row.get(i).to_owned()).collect()).or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are below 2^60 bits")]
        let bits = bits.map(|bits| bits as u64);
        let times = sizes.entry(bits).or_default();
        times.seconds.push(seconds);
        if let Some(wire) = wire.filter(|_| times.ceiling.is_none()) {
            times.ceiling = Some(wire.carries(rows.text(row, Field::transport), bits.map(|bits| bits.div_ceil(8)))?);
        }
    }
    Ok(groups.into_iter().map(|(group, sizes)| fit(group, &sizes)).collect())
}

fn fit(group: Vec<String>, sizes: &Sizes) -> Fit {
    let points: Vec<(f64, f64)> =
        sizes.iter().filter_map(|(bits, times)| Some(((*bits)? as f64 / 8.0, times.seconds.mean()?))).collect();
    let curve: Vec<(f64, f64)> = points.iter().map(|(n, t)| (*n, n * 8.0 / t)).collect();
    let rates = sizes.iter().filter_map(|(bits, times)| {
        let rate = bits.map_or(1.0, |bits| bits as f64) / times.seconds.mean()?;
        Some((rate, times.ceiling))
    });
    let rates: Vec<(f64, Option<f64>)> = rates.collect();
    let ratios = rates.iter().filter_map(|(rate, ceiling)| Some(((*ceiling)?, rate / (*ceiling)?)));
    Fit {
        group,
        sizes: points.len(),
        model: hockney::fit(&points),
        saturation: hockney::saturation(&curve),
        largest: rates.iter().map(|(rate, _)| *rate).max_by(f64::total_cmp),
        wire: ratios.max_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

/// The latency; `None` for a negative start-up time, where the model does not fit.
fn latency_us(model: &hockney::Hockney) -> Option<f64> {
    (model.latency_s > 0.0).then_some(model.latency_s * 1e6)
}

fn csv(titles: &[String], fits: &[Fit], operations: Option<f64>, output: &mut dyn Write) -> Result<(), Error> {
    let columns = [
        "sizes",
        "latency_us",
        "asymptote_bits_per_s",
        "half_bandwidth_bytes",
        "saturation_bytes",
        "largest_bits_per_s",
        "wire_goodput_bits_per_s",
        "wire_ratio",
        "r2",
        "latency_operations",
    ];
    let rows = fits.iter().map(|fit| {
        let model = fit.model.as_ref();
        let values = cells![
            fit.sizes,
            model.and_then(latency_us),
            model.map(|m| m.bandwidth * 8.0),
            model.filter(|m| m.latency_s > 0.0).map(|m| m.half_bandwidth_bytes().round()),
            fit.saturation,
            fit.largest,
            fit.wire.map(|(ceiling, _)| ceiling),
            fit.wire.map(|(_, ratio)| ratio),
            model.map(|m| m.r2),
            model.and_then(latency_us).zip(operations).map(|(us, rate)| (us * rate / 1e6).round()),
        ];
        fit.group.iter().cloned().chain(values)
    });
    write_csv(output, titles.iter().map(String::as_str).chain(columns), rows)
}

/// The coefficient of determination below which the model is said not to fit.
const ON_A_LINE: f64 = 0.95;

/// The share of a wire from which on a rate is beyond it, and not its rounding.
const BEYOND_A_WIRE: f64 = 1.02;

fn text(fits: &[Fit], operations: Option<f64>, output: &mut dyn Write) -> Result<(), Error> {
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
            if model.r2 < ON_A_LINE {
                let largest = fit.largest.map(|rate| units::human(Unit::BitsPerSecond, rate)).unwrap_or_default();
                parts.push(format!(
                    "the sizes do not lie on one line (r² {:.2}); the largest rate is {largest}",
                    model.r2
                ));
            }
        }
        parts.extend(fit.saturation.map(|n| format!("saturation at {}", units::human(Unit::Bytes, n))));
        if let Some((ceiling, ratio)) = fit.wire {
            let wire = units::human(Unit::BitsPerSecond, ceiling);
            let beyond = if ratio > BEYOND_A_WIRE {
                ", more than it can carry: another link, or a shaper lets bursts through"
            } else {
                ""
            };
            parts.push(format!("{} of the wire's {wire}{beyond}", units::human(Unit::Ratio, ratio)));
        }
        let group: Vec<&str> = fit.group.iter().map(String::as_str).filter(|value| !value.is_empty()).collect();
        let name = if fits.len() > 1 { format!("{}: ", plain(&group.join(" "))) } else { String::new() };
        writeln!(output, "{name}{}", parts.join(" · "))?;
    }
    Ok(())
}

// The ceiling of a wire: of the messages of a row, or of messages that have not been sent.

/// Headers inside an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Headers {
    /// TCP over IPv4
    Tcp4,
    /// TCP over IPv6
    Tcp6,
    /// UDP over IPv4
    Udp4,
    /// UDP over IPv6
    Udp6,
}

impl Headers {
    /// Those of a row, by its transport; rows do not say the version of IP.
    fn of(transport: &str) -> Self {
        if matches!(transport, "udp" | "udplite" | "quic" | "quic_dgram") { Self::Udp4 } else { Self::Tcp4 }
    }
}

/// A link.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    pub bits_per_s: f64,
    pub mtu: u64,
    /// `None`: by the rows' transport.
    pub headers: Option<Headers>,
    /// Whether TCP has timestamps.
    pub timestamps: bool,
    pub tags: u64,
}

impl Wire {
    /// Messages of a size; TCP fills its segments, whatever their size.
    fn load(&self, headers: Headers, message_bytes: Option<u64>) -> Result<Load, Error> {
        let ipv6 = matches!(headers, Headers::Tcp6 | Headers::Udp6);
        let packets = Packets { ipv6, mtu: self.mtu, tags: self.tags };
        let load = match headers {
            Headers::Tcp4 | Headers::Tcp6 => packets.tcp(if self.timestamps { TIMESTAMPS } else { 0 }),
            Headers::Udp4 | Headers::Udp6 => {
                message_bytes.or_else(|| packets.largest_message()).and_then(|bytes| packets.udp(bytes))
            }
        };
        load.ok_or_else(|| self.no_room())
    }

    fn no_room(&self) -> Error {
        Error::Usage(format!("an MTU of {} bytes leaves no room beside the headers", self.mtu))
    }

    /// Payload bits per second of a full link, for messages of that transport and size.
    pub fn carries(&self, transport: &str, message_bytes: Option<u64>) -> Result<f64, Error> {
        let headers = self.headers.unwrap_or_else(|| Headers::of(transport));
        if matches!(transport, "quic" | "quic_dgram") {
            let packets = Packets { ipv6: matches!(headers, Headers::Udp6), mtu: self.mtu, tags: self.tags };
            let datagram = packets.largest_message().map(|most| most.min(QUIC_DATAGRAM));
            let load = datagram.and_then(|bytes| packets.quic(bytes)).ok_or_else(|| self.no_room())?;
            return Ok(load.at(self.bits_per_s));
        }
        let carried = self.load(headers, message_bytes)?.at(self.bits_per_s);
        Ok(if transport == "tls" { carried * in_records(message_bytes.unwrap_or(16_384)) } else { carried })
    }

    /// Messages of these sizes; of the largest that fit a packet, if none is named.
    pub fn loads(&self, sizes: &[u32]) -> Result<Vec<Load>, Error> {
        let headers = self.headers.unwrap_or(Headers::Tcp4);
        if sizes.is_empty() {
            return Ok(vec![self.load(headers, None)?]);
        }
        if matches!(headers, Headers::Tcp4 | Headers::Tcp6) {
            return Err(Error::Usage(
                "--message-size is for datagrams, and TCP fills its segments: name --headers udp4 or udp6".to_owned(),
            ));
        }
        sizes.iter().map(|bytes| self.load(headers, Some((*bytes).into()))).collect()
    }

    pub fn write(&self, loads: &[Load], as_text: bool, output: &mut dyn Write) -> Result<(), Error> {
        if as_text {
            for load in loads {
                writeln!(
                    output,
                    "{} of payload: {} of each {} bytes on the wire, {:.2} %",
                    units::human(Unit::BitsPerSecond, load.at(self.bits_per_s)),
                    load.payload,
                    load.wire,
                    load.at(100.0)
                )?;
            }
            return Ok(());
        }
        let row = |load: &Load| cells![load.payload, load.wire, load.at(self.bits_per_s)];
        write_csv(output, ["payload_bytes", "wire_bytes", "wire_goodput_bits_per_s"], loads.iter().map(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let fits = fits(&mut table, &Selection::default(), &["test".to_owned()], None).unwrap();
            let model = fits[0].model.unwrap();
            assert!((model.latency_s - 10e-6).abs() < 1e-12 && (model.bandwidth - 1e9).abs() < 1e3, "{model:?}");
        }
    }

    #[test]
    fn two_hosts_are_two_fits_and_a_bent_curve_is_told() {
        let mut rows = String::from("test,from,to,axis_message_size,message_bytes,throughput_bits_per_s\n");
        for (to, rate) in [("n2", 1e9), ("n4", 5e8)] {
            for i in 0..15 {
                let n = 2f64.powi(i);
                // Large messages get a twentieth of the rate, as behind a shaper.
                let t = 10e-6 + if i < 12 { n / rate } else { 20.0 * n / rate };
                rows += &format!("s,n1,{to},{n},{n},{}\n", n * 8.0 / t);
            }
        }
        let mut table = Table::from_text("t", rows).unwrap();
        let mut titles = all_but_sizes(table.header().names());
        assert_eq!(titles, ["test", "from", "to"]);
        let mut found = fits(&mut table, &Selection::default(), &titles, None).unwrap();
        leave_out_what_is_alike(&mut titles, &mut found);
        assert_eq!(
            (titles.as_slice(), &found[1].group),
            (&["test".to_owned(), "to".to_owned()][..], &vec!["s".to_owned(), "n4".to_owned()])
        );
        let mut told = Vec::new();
        text(&found, None, &mut told).unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with("s n2: ") && told.contains("the sizes do not lie on one line (r² 0."), "{told}");
    }
}
