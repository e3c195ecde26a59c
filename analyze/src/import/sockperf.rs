//! sockperf: ping-pong, under-load and throughput.

use schemas::words::LatencyKind;

use super::format::{Format, Line, Place::Inside};
use super::sheet::set_workload;

pub(super) const SOCKPERF: Format = Format {
    name: "sockperf",
    failures: &["sockperf: ERROR: ", "No messages were received"],
    wanted: "a result of sockperf's",
    lines: &[
        Line(Inside, "[ {}] IP = {to} PORT = {} # {transport}", ""),
        Line(Inside, "[{}] IP = {to} PORT = {} # {transport}", ""),
        Line(
            Inside,
            "sockperf: [Valid Duration] RunTime={elapsed_s} sec; SentMessages={messages_sent}; ReceivedMessages={messages_received}",
            "",
        ),
        Line(
            Inside,
            "sockperf: # dropped messages = {lost}; # duplicated messages = {duplicated}; # out-of-order messages = {reordered}",
            "",
        ),
        // One way until the row is finished: the other latencies are as this line says.
        Line(Inside, "sockperf: ====> avg-latency={latency_mean_us} (std-dev={latency_stddev_us})", ""),
        Line(
            Inside,
            "sockperf: ====> avg-rtt={latency_mean_us} (std-dev={latency_stddev_us})",
            "latency_kind=round_trip",
        ),
        Line(Inside, "sockperf: ---> <MIN> observation = {latency_min_us}", ""),
        Line(Inside, "sockperf: ---> <MAX> observation = {latency_max_us}", ""),
        Line(Inside, "sockperf: ---> percentile 99.900 = {latency_p999_us}", ""),
        Line(Inside, "sockperf: ---> percentile 99.000 = {latency_p99_us}", ""),
        Line(Inside, "sockperf: ---> percentile 95.000 = {latency_p95_us}", ""),
        Line(Inside, "sockperf: ---> percentile 90.000 = {latency_p90_us}", ""),
        Line(Inside, "sockperf: ---> percentile 50.000 = {latency_p50_us}", ""),
        // A mark of the throughput test.
        Line(Inside, "sockperf: Summary: Message Rate is {transactions_per_s} [msg/sec]", ""),
        Line(Inside, "sockperf: Summary: BandWidth is {sent_bits_per_s*8388608} MBps…", ""),
        Line(Inside, "sockperf: Total of {messages_sent} messages sent in …", ""),
        Line(Inside, "sockperf: NOTE: test was performed, using msg-size={message_bytes}.…", ""),
        Line(Inside, "sockperf: NOTE: test was performed, using msg-size={message_bytes},…", ""),
        Line(Inside, "NOTE: test was performed, using msg-size={message_bytes}.…", ""),
        Line(Inside, "NOTE: test was performed, using msg-size={message_bytes},…", ""),
    ],
    check: |row, line| {
        if line.contains("No valid observations found") {
            return Err("sockperf found no valid observations: nothing was measured".to_owned());
        }
        if line.contains("Warmup stage") && row.latency_mean_us.or(row.transactions_per_s).is_some() {
            return Err("a second run begins here: import each as a file of its own".to_owned());
        }
        Ok(())
    },
    finish: |mut row, _, sheet| {
        if row.latency_mean_us.or(row.transactions_per_s).is_none() {
            return Err("sockperf was cut off before its summary".to_owned());
        }
        let Some(transport) = row.transport.take().map(|t| t.to_ascii_lowercase()) else {
            return Err("the line with sockperf's address and protocol is missing (`IP = … # TCP`)".to_owned());
        };
        if row.latency_mean_us.is_none() {
            set_workload(&mut row, &format!("{transport}_stream"));
            row.transactions_per_s = None;
            sheet
                .note("sockperf's throughput test counts at the sender only, in MB of 2^20 bytes: see sent_bits_per_s");
            return Ok(Some(row));
        }
        set_workload(&mut row, &format!("{transport}_rr"));
        if row.latency_kind.is_none() {
            sheet.note("sockperf's latencies are half a round trip: doubled");
            for slot in [
                &mut row.latency_min_us,
                &mut row.latency_mean_us,
                &mut row.latency_p50_us,
                &mut row.latency_p90_us,
                &mut row.latency_p95_us,
                &mut row.latency_p99_us,
                &mut row.latency_p999_us,
                &mut row.latency_max_us,
                &mut row.latency_stddev_us,
            ] {
                *slot = slot.map(|v| v * 2.0);
            }
        }
        row.latency_kind = Some(LatencyKind::RoundTrip);
        row.transactions = row.messages_received;
        row.transactions_per_s =
            row.messages_received.zip(row.elapsed_s).filter(|(_, s)| *s > 0.0).map(|(n, s)| n as f64 / s);
        Ok(Some(row))
    },
};
