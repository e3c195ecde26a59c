//! lmbench: the one-line results of `bw_*` and `lat_*`.

use schemas::words::LatencyKind;

use super::format::{Format, Line, Place::Begins};

pub(super) const LMBENCH: Format = Format {
    name: "lmbench",
    failures: &["socket connection: "],
    wanted: "`what: VALUE UNIT`",
    lines: &[
        Line(Begins, "TCP latency using {to}: {latency_mean_us} microseconds", "workload=tcp_rr"),
        Line(Begins, "UDP latency using {to}: {latency_mean_us} microseconds", "workload=udp_rr"),
        Line(Begins, "RPC/tcp latency using {to}: {latency_mean_us} microseconds", "workload=tcp_rr"),
        Line(Begins, "RPC/udp latency using {to}: {latency_mean_us} microseconds", "workload=udp_rr"),
        Line(Begins, "AF_UNIX sock stream latency: {latency_mean_us} microseconds", "workload=unix_rr"),
        Line(Begins, "Pipe latency: {latency_mean_us} microseconds", "workload=pipe_rr"),
        Line(Begins, "Fifo latency: {latency_mean_us} microseconds", "workload=pipe_rr"),
        Line(Begins, "TCP/IP connection cost to {to}: {latency_mean_us} microseconds", "workload=tcp_cc"),
        Line(Begins, "UNIX connection cost: {latency_mean_us} microseconds", "workload=unix_cc"),
        Line(Begins, "AF_UNIX sock stream bandwidth: {throughput_bits_per_s*8e6} MB/sec", "workload=unix_stream"),
        Line(Begins, "Pipe bandwidth: {throughput_bits_per_s*8e6} MB/sec", "workload=pipe_stream"),
        Line(Begins, "socket UDP bandwidth using {to}: {throughput_bits_per_s*8e6} MB/sec", "workload=udp_stream"),
        // bw_tcp's server writes, and its client reads. The size is in 10^6 bytes.
        Line(Begins, "{message_bytes*1e6} {throughput_bits_per_s*8e6} MB/sec", "workload=tcp_stream direction=reverse"),
    ],
    check: |_, _| Ok(()),
    finish: |mut row, _, sheet| {
        // Latencies have no rate: with -P several processes ran, and the output does not say so.
        if row.latency_mean_us.is_some() {
            let is_connect = row.workload.as_deref().is_some_and(|w| w.ends_with("_cc"));
            row.latency_kind = Some(if is_connect { LatencyKind::Connect } else { LatencyKind::RoundTrip });
            sheet.note("lmbench's latencies are round trips, the median of its repetitions of their mean");
        } else {
            sheet.note("lmbench's MB are 10^6 bytes; it reports the median of its repetitions");
        }
        Ok(Some(row))
    },
};
