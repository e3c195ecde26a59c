//! The document of `iperf3 --json`: one run of a stream, for scripts that read iperf3.
//!
//! `run` chooses the run and makes the intervals. What the table does not hold is left out of the object, where iperf3 often
//! writes 0.

mod run;

use crate::{
    error::Error,
    table::{Field, Selection, Table},
};
use run::{Found, Line, Run, protocol};
use schemas::{time, words::Phase};
use serde::Serialize;
use serde_json::{Map, Serializer, Value, json, ser::Formatter};
use std::io::{self, Write};

/// Writes the document of the run that the selection leaves.
pub fn write(table: &mut Table, selection: &Selection, output: &mut dyn Write) -> Result<(), Error> {
    let found = Found::read(table, selection)?;
    print(&document(&found.choose()?)?, output)
}

// The object: `start`, `intervals`, `end`.
//
// iperf3's own definitions hold. Rates of `sum_sent` are the sender's, those of `sum_received` the receiver's; an interval
// has what `from` counted; `cpu_utilization_percent` is the CPU time of the process, where 100 is one CPU; a bit rate is
// that of one stream.

type Object = Map<String, Value>;

/// The document of a run. A failed one has an `error` and an empty `end`, as iperf3 writes it.
fn document(run: &Run<'_>) -> Result<Value, Error> {
    let first = run.totals[0];
    let mut document = Object::new();
    document.insert("start".into(), start(run)?.into());
    if first.is_ok() {
        document.insert("intervals".into(), run::of(run, omitted(run)?.unwrap_or(0.0))?.into());
        document.insert("end".into(), end(run)?.into());
    } else {
        document.insert("intervals".into(), json!([]));
        document.insert("end".into(), json!({}));
    }
    put_text(&mut document, "title", first.text(Field::case));
    if !first.is_ok() {
        let why = [first.text(Field::error), first.text(Field::status)]
            .into_iter()
            .find(|t| !t.is_empty())
            .unwrap_or_default();
        put_text(&mut document, "error", &format!("error - {why}"));
    }
    Ok(document.into())
}

fn start(run: &Run<'_>) -> Result<Object, Error> {
    let first = run.totals[0];
    let streams = first.number(Field::streams)?;
    let mut start = Object::new();
    let mut ends = Object::new();
    put_text(&mut ends, "local_host", first.text(Field::from));
    put_text(&mut ends, "remote_host", first.text(Field::to));
    if first.is_ok() && !ends.is_empty() {
        let connections = sockets(run).into_iter().map(|socket| {
            let mut connection = Object::new();
            put(&mut connection, "socket", Some(socket));
            connection.append(&mut ends.clone());
            Value::from(connection)
        });
        start.insert("connected".into(), connections.collect::<Vec<_>>().into());
    }
    put_text(&mut start, "version", concat!("plumb ", env!("CARGO_PKG_VERSION")));
    let omit = omitted(run)?;
    if let Some(stamp) = timestamp(&first, omit.unwrap_or(0.0))? {
        start.insert("timestamp".into(), stamp.into());
    }
    let mut peer = Object::new();
    put_text(&mut peer, "host", first.text(Field::to));
    if !peer.is_empty() {
        start.insert("connecting_to".into(), peer.into());
    }
    put(&mut start, "tcp_mss_default", first.number(Field::mss_bytes)?);
    let target = target(&first, streams)?;
    put(&mut start, "target_bitrate", target);
    put(&mut start, "sndbuf_actual", first.number(Field::local_send_buffer_bytes)?);
    put(&mut start, "rcvbuf_actual", first.number(Field::local_receive_buffer_bytes)?);
    let both = run.totals.len() > 1;
    let mut test = Object::new();
    put_text(&mut test, "protocol", protocol(&first).unwrap_or_default());
    put(&mut test, "num_streams", streams);
    put(&mut test, "blksize", first.number(Field::message_bytes)?);
    put(&mut test, "omit", omit.map(whole));
    put(&mut test, "duration", first.number(Field::elapsed_s)?.map(whole));
    put(&mut test, "reverse", Some(f64::from(u8::from(!both && first.is_reverse()))));
    put(&mut test, "target_bitrate", target);
    put(&mut test, "bidir", Some(f64::from(u8::from(both))));
    start.insert("test_start".into(), test.into());
    Ok(start)
}

/// Numbers that tell streams apart: 1, 2 … where iperf3 has file descriptors.
fn sockets(run: &Run<'_>) -> Vec<f64> {
    streams(run).iter().map(|(socket, _)| *socket).collect()
}

/// The rows of streams, with their numbers. The total is the row of a stream that is alone in its direction.
fn streams<'t>(run: &Run<'t>) -> Vec<(f64, Line<'t>)> {
    let alone = run.totals[0].text(Field::streams) == "1";
    let rows = if run.streams.is_empty() && alone { &run.totals } else { &run.streams };
    rows.iter().enumerate().map(|(i, line)| (socket(line).unwrap_or(i as f64 + 1.0), *line)).collect()
}

fn socket(line: &Line<'_>) -> Option<f64> {
    line.text(Field::stream).parse::<f64>().ok().map(|number| number + 1.0)
}

/// Length of the warm-up; `None`: a summary has none of its own.
fn omitted(run: &Run<'_>) -> Result<Option<f64>, Error> {
    let mut omitted: Option<f64> = None;
    let intervals = run.intervals.iter().filter(|l| l.text(Field::phase) == Phase::Warmup.as_str());
    for line in run.warmups.iter().chain(intervals) {
        omitted = [omitted, line.number(Field::start_s)?.map(|start| -start)].into_iter().flatten().reduce(f64::max);
    }
    let summary = !run.totals[0].text(Field::iterations).is_empty();
    Ok(omitted.or(if summary { None } else { Some(0.0) }))
}

/// When the load began: `time` is when what the row counts had ended.
fn timestamp(line: &Line<'_>, omit: f64) -> Result<Option<Object>, Error> {
    let (Some(end), Some(elapsed)) = (time::parse(line.text(Field::time)), line.number(Field::elapsed_s)?) else {
        return Ok(None);
    };
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, beyond any calendar")]
    let millis = ((time::epoch_seconds(end) - elapsed - omit) * 1e3) as i64;
    let mut stamp = Object::new();
    put_text(&mut stamp, "time", &time::rfc1123(millis).unwrap_or_default());
    stamp.insert("timesecs".into(), millis.div_euclid(1000).into());
    stamp.insert("timemillisecs".into(), millis.into());
    Ok(Some(stamp))
}

/// The offered bit rate of one stream.
fn target(line: &Line<'_>, streams: Option<f64>) -> Result<Option<f64>, Error> {
    let bits = match line.text(Field::offered_unit) {
        "bits" => Some(1.0),
        "messages" => line.number(Field::message_bytes)?.map(|bytes| bytes * 8.0),
        _ => None,
    };
    let parts = line.number(Field::offered_per_s)?.zip(bits).zip(streams.filter(|s| *s >= 1.0));
    Ok(parts.map(|((offered, bits), streams)| (offered * bits / streams).round()))
}

/// The columns of bytes and their rate.
const SENT: (Field, Field) = (Field::bytes_sent, Field::sent_bits_per_s);
const RECEIVED: (Field, Field) = (Field::bytes_received, Field::throughput_bits_per_s);

/// Bytes, their rate, and the time to which the rate refers; empty without both.
fn traffic(line: &Line<'_>, (bytes, rate): (Field, Field), start: f64) -> Result<Object, Error> {
    let (bytes, rate) = (line.number(bytes)?, line.number(rate)?);
    let mut object = Object::new();
    if bytes.is_none() && rate.is_none() {
        return Ok(object);
    }
    // `elapsed_s` is the receiver's; the sender's own follows from its rate.
    let own = bytes.zip(rate).filter(|(_, rate)| *rate > 0.0).map(|(bytes, rate)| bytes * 8.0 / rate);
    let seconds = own.filter(|s| *s > 0.0).or(line.number(Field::elapsed_s)?).map(nanoseconds);
    put(&mut object, "start", Some(nanoseconds(start)));
    put(&mut object, "end", seconds.map(|s| nanoseconds(start + s)));
    put(&mut object, "seconds", seconds);
    put(&mut object, "bytes", bytes);
    put(&mut object, "bits_per_second", rate);
    Ok(object)
}

/// Jitter and loss at the receiver.
fn datagrams(object: &mut Object, line: &Line<'_>) -> Result<(), Error> {
    let (sent, lost) = (line.number(Field::messages_sent)?, line.number(Field::lost)?);
    put(object, "jitter_ms", line.number(Field::jitter_us)?.map(|us| us / 1e3));
    put(object, "lost_packets", lost);
    let counted = line.number(Field::messages_received)?.zip(lost).map(|(received, lost)| received + lost);
    put(object, "packets", sent.or(counted));
    let ratio = lost.zip(sent).filter(|(_, sent)| *sent > 0.0).map(|(lost, sent)| lost / sent);
    put(object, "lost_percent", line.number(Field::loss_ratio)?.or(ratio).map(|ratio| ratio * 100.0));
    Ok(())
}

fn end(run: &Run<'_>) -> Result<Object, Error> {
    let first = run.totals[0];
    let udp = protocol(&first) == Some("UDP");
    let mut end = Object::new();
    let mut list = Vec::new();
    for (socket, line) in streams(run) {
        list.push(if udp { udp_stream(socket, &line)? } else { tcp_stream(run, socket, &line)? });
    }
    if !list.is_empty() {
        end.insert("streams".into(), list.into());
    }
    for line in &run.totals {
        let twin = if run.totals.len() > 1 && line.is_reverse() { "_bidir_reverse" } else { "" };
        if udp {
            let mut sum = traffic(line, SENT, 0.0)?;
            datagrams(&mut sum, line)?;
            closed(&mut end, &format!("sum{twin}"), sum, !line.is_reverse());
        }
        let (mut sent, mut received) = (traffic(line, SENT, 0.0)?, traffic(line, RECEIVED, 0.0)?);
        if udp && !sent.is_empty() {
            put(&mut sent, "packets", line.number(Field::messages_sent)?);
        }
        if udp && !received.is_empty() {
            datagrams(&mut received, line)?;
        }
        if !udp && !sent.is_empty() {
            put(&mut sent, "retransmits", line.number(Field::retransmits)?);
        }
        // A UDP sum says which end counted it; a TCP sum, whether `from` sent.
        let forward = !line.is_reverse();
        closed(&mut end, &format!("sum_sent{twin}"), sent, udp || forward);
        closed(&mut end, &format!("sum_received{twin}"), received, !udp && forward);
    }
    let mut cpu = Object::new();
    for (key, field) in [("host_total", Field::local_process_cpus), ("remote_total", Field::remote_process_cpus)] {
        put(&mut cpu, key, first.number(field)?.map(|cpus| cpus * 100.0));
    }
    if !cpu.is_empty() {
        end.insert("cpu_utilization_percent".into(), cpu.into());
    }
    put_text(&mut end, "sender_tcp_congestion", first.text(Field::congestion_control));
    Ok(end)
}

/// Adds an object with `sender` as its last key, unless it is empty.
fn closed(end: &mut Object, key: &str, mut object: Object, sender: bool) {
    if !object.is_empty() {
        object.insert("sender".into(), sender.into());
        end.insert(key.into(), object.into());
    }
}

fn udp_stream(socket: f64, line: &Line<'_>) -> Result<Value, Error> {
    let mut udp = Object::new();
    put(&mut udp, "socket", Some(socket));
    udp.append(&mut traffic(line, SENT, 0.0)?);
    datagrams(&mut udp, line)?;
    put(&mut udp, "out_of_order", line.number(Field::reordered)?);
    udp.insert("sender".into(), (!line.is_reverse()).into());
    Ok(json!({ "udp": udp }))
}

fn tcp_stream(run: &Run<'_>, socket: f64, line: &Line<'_>) -> Result<Value, Error> {
    let mut both = Object::new();
    for (side, columns) in [("sender", SENT), ("receiver", RECEIVED)] {
        let mut counted = traffic(line, columns, 0.0)?;
        if counted.is_empty() {
            continue;
        }
        let mut object = Object::new();
        put(&mut object, "socket", Some(socket));
        object.append(&mut counted);
        if side == "sender" {
            put(&mut object, "retransmits", line.number(Field::retransmits)?);
            kernel(&mut object, run, line)?;
        }
        object.insert("sender".into(), (!line.is_reverse()).into());
        both.insert(side.into(), object.into());
    }
    Ok(both.into())
}

/// Greatest window and round-trip times of the sender's kernel, over the samples at hand: those of its intervals, else
/// the one at the end.
fn kernel(object: &mut Object, run: &Run<'_>, line: &Line<'_>) -> Result<(), Error> {
    let alone = run.totals[0].text(Field::streams) == "1";
    let measured = |l: &&Line<'_>| {
        l.text(Field::phase) == Phase::Measure.as_str()
            && l.is_reverse() == line.is_reverse()
            && (alone || l.text(Field::stream) == line.text(Field::stream))
    };
    let mut samples: Vec<Line<'_>> = run.intervals.iter().filter(measured).copied().collect();
    if samples.is_empty() {
        samples.push(*line);
    }
    let values = |field: Field| -> Result<Vec<f64>, Error> {
        samples.iter().filter_map(|l| l.number(field).transpose()).collect()
    };
    let (cwnd, rtt) = (values(Field::cwnd_bytes)?, values(Field::rtt_us)?);
    put(object, "max_snd_cwnd", cwnd.into_iter().reduce(f64::max));
    put(object, "max_rtt", rtt.iter().copied().reduce(f64::max));
    put(object, "min_rtt", rtt.iter().copied().reduce(f64::min));
    let mean = rtt.iter().sum::<f64>() / rtt.len() as f64;
    put(object, "mean_rtt", Some(mean.floor()).filter(|_| !rtt.is_empty()));
    Ok(())
}

/// Seconds as a script asked for them: iperf3 has whole ones, of which a measurement misses a little.
fn whole(seconds: f64) -> f64 {
    let round = seconds.round();
    if round >= 1.0 && (seconds - round).abs() <= 0.02 * round { round } else { (seconds * 1e3).round() / 1e3 }
}

fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

fn put_text(object: &mut Object, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key.into(), text.into());
    }
}

/// Adds a number, if it is known. Whole numbers have no decimal point.
fn put(object: &mut Object, key: &str, number: Option<f64>) {
    /// Above it, not every whole number is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Some(number) = number else { return };
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and below 2^53")]
    let value = if number.fract() == 0.0 && number.abs() < EXACT { json!(number as i64) } else { json!(number) };
    object.insert(key.into(), value);
}

// The layout of iperf3's JSON: tabs, and objects on the line of their array's bracket.

/// Writes one document and a line feed.
pub fn print(document: &Value, output: &mut dyn Write) -> Result<(), Error> {
    document
        .serialize(&mut Serializer::with_formatter(&mut *output, Layout::default()))
        .map_err(|e| Error::Output(e.into()))?;
    output.write_all(b"\n")?;
    Ok(())
}

#[derive(Default)]
struct Layout {
    /// Objects and arrays that are open.
    depth: usize,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"\t"))
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.line(writer)?;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.line(writer)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b":\t")
    }
}

#[cfg(test)]
mod tests;
