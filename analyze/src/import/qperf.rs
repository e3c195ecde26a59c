//! qperf: a test's name, then its figures with units.

use schemas::words::LatencyKind;

use super::format::{Format, Line, Place};
use super::sheet::set_latency;
use Place::{Begins, Inside};

pub(super) const QPERF: Format = Format {
    name: "qperf",
    failures: &[": failed to connect", ": unable to "],
    wanted: "a unit of qperf's",
    lines: &[
        Line(Begins, "tcp_bw:", "workload=tcp_stream"),
        Line(Begins, "tcp_lat:", "workload=tcp_rr"),
        Line(Begins, "udp_bw:", "workload=udp_stream"),
        Line(Begins, "udp_lat:", "workload=udp_rr"),
        Line(Begins, "sctp_bw:", "workload=sctp_stream"),
        Line(Begins, "sctp_lat:", "workload=sctp_rr"),
        // RDMA and others; `conf` and `quit` measure nothing.
        Line(Begins, "{test}:", ""),
        Line(Inside, "bw = {throughput_bits_per_s:unit}", ""),
        Line(Inside, "recv_bw = {throughput_bits_per_s:unit}", ""),
        Line(Inside, "send_bw = {sent_bits_per_s:unit}", ""),
        // Half a round trip.
        Line(Inside, "latency = {latency_mean_us:unit*2}", ""),
        Line(Inside, "msg_size = {message_bytes:unit}…", ""),
        Line(Inside, "time = {elapsed_s:unit}", ""),
        // msg_rate repeats bw; the CPU figures are shares of one CPU.
    ],
    check: |row, _| match &row.test {
        Some(test) if row.throughput_bits_per_s.or(row.sent_bits_per_s).or(row.latency_mean_us).is_some() => {
            Err(format!("qperf's test `{test}` has no workload here"))
        }
        _ => Ok(()),
    },
    finish: |mut row, _, sheet| {
        if row.test.is_some() {
            return Ok(None);
        }
        if row.throughput_bits_per_s.or(row.latency_mean_us).is_none() {
            return Err("the test that begins here has no result: it failed, or was cut off".to_owned());
        }
        if let Some(microseconds) = row.latency_mean_us {
            sheet.note("qperf's latency is half a round trip: doubled");
            set_latency(&mut row, LatencyKind::RoundTrip, microseconds);
        }
        Ok(Some(row))
    },
};
