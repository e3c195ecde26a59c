//! `intervals`: what `from` counted, as iperf3's client does.

use schemas::words::Phase;
use serde_json::Value;

use super::document::{Object, RECEIVED, SENT, datagrams, put, socket, traffic};
use super::run::{Line, Run, protocol};
use crate::error::Error;
use crate::table::Field;

/// The intervals of a run whose warm-up had this length.
pub fn of(run: &Run<'_>, omit: f64) -> Result<Vec<Value>, Error> {
    let alone = run.totals[0].text(Field::streams) == "1";
    let mut found: Vec<Interval> = Vec::new();
    for line in &run.intervals {
        let (bytes, _) = near(line);
        if line.number(bytes)?.is_none() {
            // What the other end counted, in a time of its own.
            continue;
        }
        let warmup = line.text(Field::phase) == Phase::Warmup.as_str();
        let start = line.number(Field::start_s)?.unwrap_or(0.0);
        let slot = (line.is_reverse(), line.text(Field::stream).to_owned());
        if found.last().is_none_or(|i| i.slots.contains(&slot) || start >= i.middle) {
            let middle = start + line.number(Field::elapsed_s)?.unwrap_or(0.0) / 2.0;
            found.push(Interval { middle, warmup, ..Interval::default() });
        }
        let object = interval(line, if warmup { start + omit } else { start })?;
        let Some(current) = found.last_mut() else { continue };
        let of_stream = socket(line).is_some();
        if of_stream || alone {
            let mut stream = Object::new();
            let number = socket(line).unwrap_or(current.streams.len() as f64 + 1.0);
            put(&mut stream, "socket", Some(number));
            stream.append(&mut object.clone());
            if !line.is_reverse() {
                put(&mut stream, "snd_cwnd", line.number(Field::cwnd_bytes)?);
                put(&mut stream, "rtt", line.number(Field::rtt_us)?);
                put(&mut stream, "rttvar", line.number(Field::rtt_var_us)?);
            }
            current.streams.push(flagged(stream, warmup, !line.is_reverse()).into());
        }
        let sum = &mut current.sums[usize::from(line.is_reverse())];
        match sum {
            Some(sum) if of_stream => add(sum, &object),
            _ => *sum = Some(object),
        }
        current.slots.push(slot);
    }
    let both = run.totals.len() > 1;
    Ok(found.into_iter().map(|i| i.object(both).into()).collect())
}

/// The rows of one interval.
#[derive(Default)]
struct Interval {
    middle: f64,
    warmup: bool,
    slots: Vec<(bool, String)>,
    streams: Vec<Value>,
    /// Forward, reverse.
    sums: [Option<Object>; 2],
}

impl Interval {
    fn object(self, both: bool) -> Object {
        let mut object = Object::new();
        if !self.streams.is_empty() {
            object.insert("streams".into(), self.streams.into());
        }
        let [forward, reverse] = self.sums;
        let names = if both { ["sum", "sum_bidir_reverse"] } else { ["sum", "sum"] };
        for (name, sum, sender) in [(names[0], forward, true), (names[1], reverse, false)] {
            if let Some(sum) = sum {
                object.insert(name.into(), flagged(sum, self.warmup, sender).into());
            }
        }
        object
    }
}

fn flagged(mut object: Object, omitted: bool, sender: bool) -> Object {
    object.insert("omitted".into(), omitted.into());
    object.insert("sender".into(), sender.into());
    object
}

/// Adds another stream to the sum of an interval, whose time is that of the first one.
fn add(sum: &mut Object, stream: &Object) {
    let number = |object: &Object, key: &str| object.get(key).and_then(Value::as_f64);
    let mut set = |key: &str, of: &dyn Fn(&Object) -> Option<f64>| match of(sum) {
        Some(value) => put(sum, key, Some(value)),
        None => drop(sum.shift_remove(key)),
    };
    for key in ["bytes", "retransmits", "packets", "lost_packets"] {
        set(key, &|sum| Some(number(sum, key)? + number(stream, key)?));
    }
    set("bits_per_second", &|sum| Some(number(sum, "bytes")? * 8.0 / number(sum, "seconds").filter(|s| *s > 0.0)?));
    set("lost_percent", &|sum| {
        Some(number(sum, "lost_packets")? / number(sum, "packets").filter(|p| *p > 0.0)? * 100.0)
    });
    // Each stream has its own.
    set("jitter_ms", &|_| None);
}

/// The columns of `from`'s bytes and rate.
fn near(line: &Line<'_>) -> (Field, Field) {
    if line.is_reverse() { RECEIVED } else { SENT }
}

/// Counts of `from` in an interval.
fn interval(line: &Line<'_>, start: f64) -> Result<Object, Error> {
    let mut object = traffic(line, near(line), start)?;
    if protocol(line) == Some("UDP") {
        if line.is_reverse() {
            datagrams(&mut object, line)?;
        } else {
            put(&mut object, "packets", line.number(Field::messages_sent)?);
        }
    } else if !line.is_reverse() {
        put(&mut object, "retransmits", line.number(Field::retransmits)?);
    }
    Ok(object)
}
