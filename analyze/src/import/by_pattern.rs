//! Programs that a table of patterns describes: lmbench, the NAS Parallel Benchmarks, qperf, sockperf.

use super::{
    format::{
        Format, Line,
        Place::{Begins, Ends, Inside},
    },
    imported::{double_latencies, set_latency, set_workload},
};
use schemas::words::LatencyKind;

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
    table: None,
    check: |_, _| Ok(()),
    finish: |mut row, _, imported| {
        // Latencies have no rate: with -P several processes ran, and the output does not say so.
        if row.latency_mean_us.is_some() {
            let is_connect = row.workload.as_deref().is_some_and(|w| w.ends_with("_cc"));
            row.latency_kind = Some(if is_connect { LatencyKind::Connect } else { LatencyKind::RoundTrip });
            imported.note("lmbench's latencies are round trips, the median of its repetitions of their mean");
        } else {
            imported.note("lmbench's MB are 10^6 bytes; it reports the median of its repetitions");
        }
        Ok(Some(row))
    },
};

/// The NAS Parallel Benchmarks (3.x, of MPI, OpenMP and one process): the block of results that every kernel prints.
pub(super) const NPB: Format = Format {
    name: "npb",
    failures: &[],
    wanted: "",
    lines: &[
        // The programs in C print no full stop.
        Line(Begins, "BT Benchmark Completed…", "workload=nas_bt"),
        Line(Begins, "CG Benchmark Completed…", "workload=nas_cg"),
        Line(Begins, "DC Benchmark Completed…", "workload=nas_dc"),
        Line(Begins, "DT Benchmark Completed…", "workload=nas_dt"),
        Line(Begins, "EP Benchmark Completed…", "workload=nas_ep"),
        Line(Begins, "FT Benchmark Completed…", "workload=nas_ft"),
        Line(Begins, "IS Benchmark Completed…", "workload=nas_is"),
        Line(Begins, "LU Benchmark Completed…", "workload=nas_lu"),
        Line(Begins, "MG Benchmark Completed…", "workload=nas_mg"),
        Line(Begins, "SP Benchmark Completed…", "workload=nas_sp"),
        Line(Begins, "UA Benchmark Completed…", "workload=nas_ua"),
        Line(Inside, "Class = {class}", ""),
        Line(Inside, "Time in seconds = {elapsed_s}", ""),
        Line(Inside, "Total processes = {ranks}", ""),
        Line(Inside, "Total threads = {threads}", ""),
        // Size and iterations follow from the class, Mop/s/process from the total.
        Line(Inside, "Mop/s total = {mops_per_s}", ""),
        // Compile options follow, with signs of equality of their own.
        Line(Ends, "Verification = …", ""),
    ],
    table: None,
    check: |row, line| match line.strip_prefix("Verification = ") {
        Some("UNSUCCESSFUL") => Err(format!(
            "the result of {} of class {} is wrong (verification UNSUCCESSFUL), so that its speed says nothing: look for a \
             faulty machine, library or compiler option",
            kernel(row),
            row.class.as_deref().unwrap_or("?")
        )),
        Some("SUCCESSFUL") => {
            row.verified = Some(true);
            Ok(())
        }
        Some("NOT PERFORMED") | None => Ok(()),
        Some(_) => Err(format!("expected SUCCESSFUL or UNSUCCESSFUL, found `{line}`")),
    },
    finish: |mut row, is_whole, imported| {
        if !is_whole || row.mops_per_s.is_none() {
            let kernel = kernel(&row);
            return Err(format!(
                "the results of {kernel} that begin here have no Mop/s total and verification: cut off there"
            ));
        }
        if row.verified.is_none() {
            imported.note("a kernel did not verify its result: `verified` is empty");
        }
        (row.transport, row.direction) = (row.ranks.map(|_| "mpi".to_owned()), None);
        Ok(Some(row))
    },
};

fn kernel(row: &schemas::columns::Row) -> String {
    row.workload.as_deref().unwrap_or_default().trim_start_matches("nas_").to_uppercase()
}

/// qperf: a test's name, then its figures with units.
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
    table: None,
    check: |row, _| match &row.test {
        Some(test) if row.throughput_bits_per_s.or(row.sent_bits_per_s).or(row.latency_mean_us).is_some() => {
            Err(format!("qperf's test `{test}` has no workload here"))
        }
        _ => Ok(()),
    },
    finish: |mut row, _, imported| {
        if row.test.is_some() {
            return Ok(None);
        }
        if row.throughput_bits_per_s.or(row.latency_mean_us).is_none() {
            return Err("the test that begins here has no result: it failed, or was cut off".to_owned());
        }
        if let Some(microseconds) = row.latency_mean_us {
            imported.note("qperf's latency is half a round trip: doubled");
            set_latency(&mut row, LatencyKind::RoundTrip, microseconds);
        }
        Ok(Some(row))
    },
};

/// sockperf: ping-pong, under-load and throughput.
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
    table: None,
    check: |row, line| {
        if line.contains("No valid observations found") {
            return Err("sockperf found no valid observations: nothing was measured".to_owned());
        }
        if line.contains("Warmup stage") && row.latency_mean_us.or(row.transactions_per_s).is_some() {
            return Err("a second run begins here: import each as a file of its own".to_owned());
        }
        Ok(())
    },
    finish: |mut row, _, imported| {
        if row.latency_mean_us.or(row.transactions_per_s).is_none() {
            return Err("sockperf was cut off before its summary".to_owned());
        }
        let Some(transport) = row.transport.take().map(|t| t.to_ascii_lowercase()) else {
            return Err("the line with sockperf's address and protocol is missing (`IP = … # TCP`)".to_owned());
        };
        if row.latency_mean_us.is_none() {
            set_workload(&mut row, &format!("{transport}_stream"));
            row.transactions_per_s = None;
            imported
                .note("sockperf's throughput test counts at the sender only, in MB of 2^20 bytes: see sent_bits_per_s");
            return Ok(Some(row));
        }
        set_workload(&mut row, &format!("{transport}_rr"));
        if row.latency_kind.is_none() {
            imported.note("sockperf's latencies are half a round trip: doubled");
            double_latencies(&mut row);
        }
        row.latency_kind = Some(LatencyKind::RoundTrip);
        row.transactions = row.messages_received;
        row.transactions_per_s =
            row.messages_received.zip(row.elapsed_s).filter(|(_, s)| *s > 0.0).map(|(n, s)| n as f64 / s);
        Ok(Some(row))
    },
};
