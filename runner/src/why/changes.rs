//! The settings that a cause names, and the effect of each if the cause holds.

use netcore::spec::{Direction, TestSpec};
use schemas::{
    columns::{Row, results::column},
    metrics::{self, Metric},
    words::{LimitedBy, Way},
};

/// A setting, with the values to try.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its path below the test or member: `remote_socket.receive_buffer`.
    pub key: &'static str,
    /// Its value in the test, as it is shown.
    pub from: String,
    pub tries: Vec<Try>,
    /// `None`: the headline of the workload.
    pub metric: Option<&'static Metric>,
}

/// A value to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    /// As a plan writes it.
    pub value: String,
    pub expected: Expected,
}

/// The effect of a value on the result, if the cause holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// It is better by this share of what it was: 1 is twice as much.
    Gain(f64),
    /// It is better, by how much the cause does not say.
    Better,
    /// It is no better. If the cause were another one, it would be better by this share.
    Same(f64),
}

/// Share of the time, 0 … 1, from which on a thread waited for its CPU: another one would gain as much.
const WAITED: f64 = 0.2;

/// Most streams and requests under way that are tried.
const MOST: f64 = 64.0;

/// The changes that a cause names for a test of two ends whose row this is. `Err`: why there are none.
pub fn of(row: &Row, spec: &TestSpec) -> Result<Vec<Change>, &'static str> {
    let cause = row.limited_by.unwrap_or(LimitedBy::Unknown);
    if row.direction == Some(Way::Both) || matches!(spec.direction, Direction::Bidirectional | Direction::Duplex) {
        return Err("it is measured both ways at once: ask about one of them, --set direction=forward");
    }
    let is_forward = row.direction != Some(Way::Reverse);
    let streams = |expected: &dyn Fn(f64) -> Expected| multiples(row, column::streams, "streams", expected);
    let gains = |factor: f64| Expected::Gain(factor - 1.0);
    let now = row.congestion_control.as_deref().unwrap_or_default();
    let quic = spec.quic_options();
    let control = |other: &str| Change {
        key: match quic {
            Some(_) => "quic.congestion_control",
            None if is_forward => "socket.congestion_control",
            None => "remote_socket.congestion_control",
        },
        from: now.to_owned(),
        tries: vec![Try::of(&other, Expected::Better)],
        metric: None,
    };
    let changes = match cause {
        LimitedBy::ReceiverWindow if let Some(quic) = quic => {
            vec![Some(twice("quic.window", quic.window_bytes() as f64))]
        }
        LimitedBy::ReceiverWindow => {
            vec![if is_forward {
                buffer(row, "remote_socket.receive_buffer", column::remote_receive_buffer_bytes)
            } else {
                buffer(row, "socket.receive_buffer", column::local_receive_buffer_bytes)
            }]
        }
        LimitedBy::SendBuffer => {
            vec![if is_forward {
                buffer(row, "socket.send_buffer", column::local_send_buffer_bytes)
            } else {
                buffer(row, "remote_socket.send_buffer", column::remote_send_buffer_bytes)
            }]
        }
        LimitedBy::CongestionWindow => vec![streams(&gains)],
        // BBR goes on beside losses, and no other one does so better.
        LimitedBy::Loss => vec![(now != "bbr").then(|| control("bbr"))],
        LimitedBy::Pacing if spec.pace.is_some() => vec![rate(row, 2.0, None, Expected::Gain(1.0))],
        LimitedBy::Pacing => vec![socket_rate(spec, is_forward)],
        LimitedBy::Bbr => vec![Some(control("cubic"))],
        LimitedBy::SenderCpu | LimitedBy::ReceiverCpu => {
            vec![Some(cpu(row, (cause == LimitedBy::SenderCpu) == is_forward)?)]
        }
        // A full link or queue loses the rest of a load, and nothing of one that it carries.
        LimitedBy::Path | LimitedBy::Wire | LimitedBy::Queue if spec.transport.is_datagram() => {
            vec![rate(row, 0.9 * arrived(row), metrics::find(column::loss_ratio), Expected::Gain(1.0))]
        }
        // A link that is full carries no more; a window would let twice as much pass.
        LimitedBy::Path | LimitedBy::Wire | LimitedBy::Queue => vec![streams(&|factor| Expected::Same(factor - 1.0))],
        LimitedBy::RoundTrip => vec![multiples(row, column::inflight, "inflight", &gains)],
        LimitedBy::Application => {
            return Err("the sending program had too little to send, and no key of a plan changes that");
        }
        LimitedBy::Unknown => return Err("its limit is unknown, so that no cause names a setting"),
    };
    let changes: Vec<Change> = changes.into_iter().flatten().filter(|change| !change.tries.is_empty()).collect();
    if changes.is_empty() { Err("no setting of this test has another value to try") } else { Ok(changes) }
}

impl Try {
    fn of(value: &impl ToString, expected: Expected) -> Self {
        Self { value: value.to_string(), expected }
    }
}

/// Twice and four times a count.
fn multiples(row: &Row, column: &str, key: &'static str, expected: &dyn Fn(f64) -> Expected) -> Option<Change> {
    let now = row.number(column)?;
    let tries = [2.0, 4.0].into_iter().filter(|factor| now * factor <= MOST);
    let tries = tries.map(|factor| Try::of(&(now * factor), expected(factor))).collect();
    Some(Change { key, from: now.to_string(), tries, metric: None })
}

/// Twice and four times a socket buffer. The kernel reports twice what it is asked for, and counts its own data in it.
fn buffer(row: &Row, key: &'static str, column: &str) -> Option<Change> {
    row.number(column).filter(|bytes| *bytes >= 2.0).map(|bytes| twice(key, bytes / 2.0))
}

/// Twice and four times a window of so many bytes.
fn twice(key: &'static str, now: f64) -> Change {
    let written = |bytes: f64| scaled(bytes, 1024.0, &["", "KiB", "MiB", "GiB"]);
    let tries = [2.0, 4.0].map(|factor| Try::of(&written(now * factor), Expected::Gain(factor - 1.0)));
    Change { key, from: written(now), tries: tries.into(), metric: None }
}

/// The offered load times a factor. Without one the datagrams are as fast as the sender, and what was sent takes its place.
fn rate(row: &Row, factor: f64, metric: Option<&'static Metric>, expected: Expected) -> Option<Change> {
    let (now, unit) = match (row.offered_per_s, row.offered_unit.as_deref()) {
        (Some(load), Some(unit)) => (load, unit),
        _ => (row.throughput_bits_per_s? / arrived(row), "bits"),
    };
    let written = |load: f64| if unit == "bits" { bits(load) } else { format!("{load:.0}/s") };
    let from = row.offered_per_s.map_or_else(|| "unpaced".to_owned(), written);
    Some(Change { key: "rate", from, tries: vec![Try::of(&written(now * factor), expected)], metric })
}

/// Twice the rate of the sender's socket.
fn socket_rate(spec: &TestSpec, is_forward: bool) -> Option<Change> {
    let (key, end) =
        if is_forward { ("socket.pacing_rate", &spec.near) } else { ("remote_socket.pacing_rate", &spec.far) };
    let now = end.socket.pacing_rate.as_ref()?.0 as f64;
    let tries = vec![Try::of(&bits(now * 2.0), Expected::Gain(1.0))];
    Some(Change { key, from: bits(now), tries, metric: None })
}

/// `50Mbit/s`, in three digits.
fn bits(rate: f64) -> String {
    let digit = 10f64.powf(rate.max(1.0).log10().floor() - 2.0).max(1.0);
    scaled((rate / digit).round() * digit, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

/// A quantity as a plan writes it, in the largest unit in which it has at most three decimals.
fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let value = value.round();
    let in_unit = |at: usize| value / base.powi(i32::try_from(at).unwrap_or(0));
    let is_short = |at: &usize| in_unit(*at) >= 1.0 && (in_unit(*at) * 1000.0).fract() == 0.0;
    let at = (0..units.len()).rev().find(is_short).unwrap_or(0);
    format!("{}{}", in_unit(at), units[at])
}

/// Share of the offered load that arrived, 0 … 1.
fn arrived(row: &Row) -> f64 {
    1.0 - row.loss_ratio.unwrap_or(0.0).clamp(0.0, 0.99)
}

/// Another CPU for a data thread that waited for its own. `Err`: why no other one gains anything.
fn cpu(row: &Row, is_near: bool) -> Result<Change, &'static str> {
    let (key, pinned, last, waiting, throttled) = if is_near {
        let throttled = row.local_throttled_ratio;
        ("cpu", &row.local_cpu, row.local_thread_cpu_id, row.local_thread_waiting_ratio, throttled)
    } else {
        let throttled = row.remote_throttled_ratio;
        ("remote_cpu", &row.remote_cpu, row.remote_thread_cpu_id, row.remote_thread_waiting_ratio, throttled)
    };
    if throttled.is_some_and(|share| share >= WAITED) {
        return Err("a CPU quota held its thread back, and no key of a plan raises it");
    }
    if waiting.is_none_or(|share| share < WAITED) {
        return Err(
            "its thread always ran, and no key of a plan makes a CPU faster; more streams would use more of them, and would \
                    help against a window as well",
        );
    }
    let pinned = pinned.as_ref().and_then(|text| text.parse().ok());
    let now = pinned.or(last).ok_or("its thread waited on more than one CPU, so that the kernel has tried others")?;
    let next = if now == 0 { 1 } else { now - 1 };
    Ok(Change { key, from: now.to_string(), tries: vec![Try::of(&next, Expected::Better)], metric: None })
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Pattern, Transport};
    use schemas::words::OfferedUnit;

    use super::*;

    fn row(by: LimitedBy) -> Row {
        Row {
            limited_by: Some(by),
            direction: Some(Way::Forward),
            streams: Some(1),
            inflight: Some(1),
            congestion_control: Some("cubic".into()),
            local_send_buffer_bytes: Some(131_072),
            remote_receive_buffer_bytes: Some(425_984),
            throughput_bits_per_s: Some(80e6),
            offered_per_s: Some(100e6),
            offered_unit: Some(OfferedUnit::Bits),
            loss_ratio: Some(0.2),
            ..Row::default()
        }
    }

    fn tried(row: &Row, spec: &TestSpec) -> Vec<String> {
        let changes = of(row, spec).unwrap_or_default();
        let line = |change: Change| {
            let values: Vec<String> = change.tries.into_iter().map(|one| one.value).collect();
            format!("{} {} > {}", change.key, change.from, values.join(", "))
        };
        changes.into_iter().map(line).collect()
    }

    #[test]
    fn each_cause_names_its_setting() {
        let spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let of = |by| tried(&row(by), &spec);
        assert_eq!(of(LimitedBy::ReceiverWindow), ["remote_socket.receive_buffer 208KiB > 416KiB, 832KiB"]);
        assert_eq!(of(LimitedBy::SendBuffer), ["socket.send_buffer 64KiB > 128KiB, 256KiB"]);
        assert_eq!(of(LimitedBy::CongestionWindow), ["streams 1 > 2, 4"]);
        assert_eq!(of(LimitedBy::Loss), ["socket.congestion_control cubic > bbr"]);
        assert_eq!(of(LimitedBy::Path), ["streams 1 > 2, 4"]);
        assert_eq!(of(LimitedBy::RoundTrip), ["inflight 1 > 2, 4"]);
        for by in LimitedBy::ALL {
            // Changes for a CPU need a thread that waited, and changes for pacing a rate of the socket.
            let depends = matches!(by, LimitedBy::SenderCpu | LimitedBy::ReceiverCpu | LimitedBy::Pacing);
            let has_none = depends || matches!(by, LimitedBy::Application | LimitedBy::Unknown);
            assert_eq!(of(*by).is_empty(), has_none, "{by}");
        }
        let bbr = |by| tried(&Row { congestion_control: Some("bbr".into()), ..row(by) }, &spec);
        assert_eq!(bbr(LimitedBy::Bbr), ["socket.congestion_control bbr > cubic"]);
        assert_eq!(bbr(LimitedBy::Loss), [""; 0], "cubic is slower beside losses, and would refute what is so");
    }

    #[test]
    fn the_setting_is_that_of_the_end_that_the_cause_is_at() {
        let mut reverse = row(LimitedBy::ReceiverWindow);
        (reverse.direction, reverse.local_receive_buffer_bytes) = (Some(Way::Reverse), Some(65_536));
        assert_eq!(
            tried(&reverse, &TestSpec::new(Pattern::Stream, Transport::Tcp)),
            ["socket.receive_buffer 32KiB > 64KiB, 128KiB"]
        );
        let mut waited = row(LimitedBy::ReceiverCpu);
        (waited.local_cpu, waited.remote_cpu) = (Some("0".into()), Some("1".into()));
        (waited.local_thread_waiting_ratio, waited.remote_thread_waiting_ratio) = (Some(0.7), Some(0.7));
        assert_eq!(tried(&waited, &TestSpec::new(Pattern::Stream, Transport::Tcp)), ["remote_cpu 1 > 0"]);
        waited.limited_by = Some(LimitedBy::SenderCpu);
        assert_eq!(tried(&waited, &TestSpec::new(Pattern::Stream, Transport::Tcp)), ["cpu 0 > 1"]);
        waited.local_thread_waiting_ratio = Some(0.01);
        let why = of(&waited, &TestSpec::new(Pattern::Stream, Transport::Tcp)).unwrap_err();
        assert!(why.contains("always ran"), "another CPU changes nothing, and would refute what is so: {why}");
        let held = Row { local_thread_waiting_ratio: Some(0.9), local_throttled_ratio: Some(0.9), ..waited.clone() };
        assert!(of(&held, &TestSpec::new(Pattern::Stream, Transport::Tcp)).unwrap_err().contains("quota"));
        let moved = Row { local_cpu: None, local_thread_waiting_ratio: Some(0.9), ..waited };
        assert!(of(&moved, &TestSpec::new(Pattern::Stream, Transport::Tcp)).unwrap_err().contains("more than one CPU"));
    }

    #[test]
    fn datagrams_that_were_lost_get_a_load_below_what_arrived() {
        let spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        assert_eq!(tried(&row(LimitedBy::Queue), &spec), ["rate 100Mbit/s > 72Mbit/s"]);
        let unpaced = Row { offered_per_s: None, offered_unit: None, ..row(LimitedBy::Path) };
        assert_eq!(tried(&unpaced, &spec), ["rate unpaced > 72Mbit/s"]);
    }

    #[test]
    fn both_ways_at_once_and_thin_evidence_name_none() {
        let both = Row { direction: Some(Way::Both), ..row(LimitedBy::Path) };
        assert!(of(&both, &TestSpec::new(Pattern::Stream, Transport::Tcp)).unwrap_err().contains("direction=forward"));
        assert!(
            of(&row(LimitedBy::Unknown), &TestSpec::new(Pattern::Stream, Transport::Tcp))
                .unwrap_err()
                .contains("unknown")
        );
    }
}
