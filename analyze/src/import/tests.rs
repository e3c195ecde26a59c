//! Outputs from the documentation of the programs, and captures of today's versions over loopback.

use proptest::prelude::*;
use schemas::columns::Row;
use schemas::words::{DemandUnit, LatencyKind, Phase, Record, Status, Way};

use super::{ImportedRows, Program};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/import/", $name))
    };
}

fn import(text: &str, program: Program) -> (Vec<Row>, String) {
    assert_eq!(
        super::reader(None, text).map(|(program, _)| program),
        Some(program),
        "{}",
        text.lines().next().unwrap_or_default()
    );
    let mut imported = ImportedRows::default();
    imported.read("test", text, None).expect("an output");
    let notes = imported.notes().join("\n");
    (imported.finish(), notes)
}

/// The rows of an output that does not say what ran.
fn named(text: &str, workload: &str, unit: Option<&str>) -> (Vec<Row>, String) {
    let refused = ImportedRows::default().read("test", text, None).expect_err("a guess is refused");
    assert!(refused.to_string().contains("--workload") || refused.to_string().contains("cut off"), "{refused}");
    let mut imported = ImportedRows::with(Some(workload), unit).expect("a workload");
    imported.read("test", text, None).expect("an output");
    let notes = imported.notes().join("\n");
    (imported.finish(), notes)
}

fn rows(text: &str, program: Program) -> Vec<Row> {
    import(text, program).0
}

fn results(rows: &[Row]) -> Vec<&Row> {
    rows.iter().filter(|r| r.record == Some(Record::Iteration)).collect()
}

#[track_caller]
fn near(value: Option<f64>, wanted: f64) {
    let value = value.expect("a value");
    assert!((value - wanted).abs() <= wanted.abs() * 1e-9, "{value} is not {wanted}");
}

/// hpcbench's footer: the mean without the smallest and the largest.
fn trimmed_mean(rows: &[Row]) -> f64 {
    let mut values: Vec<f64> = rows.iter().filter_map(|r| r.throughput_bits_per_s).collect();
    values.sort_by(f64::total_cmp);
    let inner = &values[1..values.len() - 1];
    inner.iter().sum::<f64>() / inner.len() as f64 / 1e6
}

#[test]
fn hpcbench_files() {
    for (text, wanted, workload) in [
        (fixture!("hpcbench-stream.txt"), 937.9449, "tcp_stream"),
        (fixture!("hpcbench-pingpong.txt"), 843.9019, "tcp_pingpong"),
        (fixture!("hpcbench-nonblocking-stream.txt"), 936.4724, "tcp_stream"),
        (fixture!("hpcbench-nonblocking-duplex.txt"), 1350.3741, "tcp_duplex"),
        (fixture!("hpcbench-stream-syslog.txt"), 939.5784, "tcp_stream"),
        (fixture!("hpcbench-options.txt"), 936.4042, "tcp_stream"),
        (fixture!("hpcbench-small-mss.txt"), 243.9777, "tcp_stream"),
        (fixture!("hpcbench-session.txt"), 937.9449, "tcp_stream"),
    ] {
        let rows = rows(text, Program::Hpcbench);
        assert!((trimmed_mean(&rows) - wanted).abs() < 0.001, "{}", trimmed_mean(&rows));
        assert!(rows.iter().all(|r| r.workload.as_deref() == Some(workload)));
        let iterations: Vec<_> = rows.iter().filter_map(|r| r.iteration).collect();
        assert_eq!(iterations, (1..=rows.len() as u64).collect::<Vec<_>>());
    }
    let row = &rows(fixture!("hpcbench-options.txt"), Program::Hpcbench)[0];
    assert_eq!((row.local_send_buffer_bytes, row.mss_bytes, row.no_delay), (Some(262_142), Some(1448), Some(true)));
    assert_eq!((row.from.as_deref(), row.to.as_deref()), (Some("mk1"), Some("mk4")));
    assert_eq!((row.message_bytes, row.bytes_received, row.elapsed_s), (Some(65_536), Some(585_826_304), Some(5.01)));
}

#[test]
fn hpcbench_sweeps_keep_their_identity() {
    // The table's own columns determine its Mbps: size × iterations × 8 × 2 directions ÷ time.
    for (text, round_trips) in [
        (fixture!("hpcbench-pingpong-exponential.txt"), true),
        (fixture!("hpcbench-nonblocking-duplex-exponential.txt"), false),
    ] {
        let (rows, notes) = import(text, Program::Hpcbench);
        assert_eq!(rows.len(), 26);
        for (row, line) in rows.iter().zip(text.lines().filter(|l| l.starts_with(' '))) {
            let iterations: f64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
            let bits = row.message_bytes.unwrap() as f64 * iterations * 8.0 * 2.0 / row.elapsed_s.unwrap();
            let shown = row.throughput_bits_per_s.unwrap();
            assert!((bits / shown - 1.0).abs() < 0.03, "{bits} {shown}");
        }
        assert_eq!(notes.contains("sum of both"), !round_trips, "{notes}");
    }
    let row = &rows(fixture!("hpcbench-pingpong-exponential.txt"), Program::Hpcbench)[0];
    near(row.latency_mean_us, 0.28598 / 5000.0 * 1e6);
}

#[test]
fn hpcbench_round_trips_and_consoles() {
    let console = rows(fixture!("hpcbench-rtt-console.txt"), Program::Hpcbench);
    assert_eq!((console.len(), console[0].message_bytes), (10, Some(64)));
    let mean = console.iter().filter_map(|r| r.latency_mean_us).sum::<f64>() / 10.0;
    assert!((mean - 60.568).abs() < 0.001);
    let file = rows(fixture!("hpcbench-rtt.txt"), Program::Hpcbench);
    assert_eq!((file.len(), file[0].message_bytes, file[0].to.as_deref()), (5, Some(1024), Some("mk4")));
    let (console, _) = named(fixture!("hpcbench-console.txt"), "tcp_stream", None);
    assert_eq!(console.len(), 26);
    near(console[4].throughput_bits_per_s, 114_021_023.0);
    let (console, _) = named(fixture!("hpcbench-console.txt"), "tcp_pingpong", None);
    near(console[4].throughput_bits_per_s, 114_021_023.0);
}

#[test]
fn hpcbench_system_logs() {
    for (text, host, busiest) in
        [(fixture!("hpcbench-syslog-client.txt"), "mk1", 0.702), (fixture!("hpcbench-syslog-server.txt"), "mk4", 0.688)]
    {
        let rows = rows(text, Program::Hpcbench);
        let phases: Vec<_> = rows.iter().filter_map(|r| r.phase.map(Phase::as_str)).collect();
        assert_eq!(phases, ["warmup", "measure", "measure", "measure", "measure", "measure", "cooldown"]);
        assert!(rows.iter().all(|r| r.from.as_deref() == Some(host)));
        assert_eq!(rows[1].local_cpu_peak_id, Some(0));
        near(rows[1].local_cpu_peak_ratio, busiest);
        assert_eq!(rows[5].iteration, Some(5));
    }
}

#[test]
fn netperf_tables() {
    let stream = named(fixture!("netperf-stream-2.3.txt"), "TCP_STREAM", None).0;
    near(stream[0].throughput_bits_per_s, 93.6e6);
    assert_eq!((stream[0].message_bytes, stream[0].local_send_buffer_bytes), (Some(1436), Some(114_688)));
    let rr = named(fixture!("netperf-rr-2.3.txt"), "tcp_rr", None).0;
    near(rr[0].transactions_per_s, 6747.7);
    assert_eq!(rr[0].remote_receive_buffer_bytes, Some(87_380));

    let all = rows(fixture!("netperf-2.7.txt"), Program::Netperf);
    assert_eq!(all.len(), 5);
    near(all[1].local_cpu_ratio, 0.4952);
    assert_eq!((all[1].remote_cpu_ratio, all[1].remote_service_demand), (None, None));
    assert_eq!(all[1].iteration, Some(2));
    near(all[2].throughput_bits_per_s, 1000.0 * 1024.0 * 8.0);
    assert_eq!(all[2].direction, Some(Way::Reverse));
    assert_eq!(all[4].lost, Some(14_245 - 11_442));
    near(all[4].sent_bits_per_s, 7459.12e6);
    near(all[4].throughput_bits_per_s, 5991.38e6);
    assert_eq!(all[4].to.as_deref(), Some("127.0.0.1"));

    let udp = rows(fixture!("netperf-udp.txt"), Program::Netperf);
    assert_eq!((udp.len(), udp[0].lost), (1, Some(828)));
    let cpu = rows(fixture!("netperf-udp-rr-cpu.txt"), Program::Netperf);
    assert_eq!(
        (cpu[0].workload.as_deref(), cpu[0].service_demand_unit.map(DemandUnit::as_str)),
        (Some("udp_rr"), Some("us_per_transaction"))
    );
    near(cpu[0].remote_service_demand, 21.116);
    let both_ways = rows(fixture!("netperf-rr-v2.txt"), Program::Netperf);
    // The table's own line of -v 2 says 3473.252 for a slightly shorter time.
    assert!((both_ways[0].transactions_per_s.unwrap() - 3473.252).abs() < 1.0);
    assert_eq!(both_ways[0].inflight, Some(7), "its banner says `first burst 6`");
    assert_eq!(rows(fixture!("netperf-rr-histogram.txt"), Program::Netperf).len(), 1);
}

#[test]
fn netperf_interim_results() {
    let demo = rows(fixture!("netperf-demo.txt"), Program::Netperf);
    assert_eq!((demo.len(), results(&demo).len()), (8, 1));
    near(demo[0].throughput_bits_per_s, 5.41 * 1_048_576.0 * 8.0);
    assert_eq!(demo[0].time.as_deref(), Some("2011-06-23T00:42:45.848Z"));
    assert_eq!((demo[0].start_s, demo[1].start_s), (Some(0.0), Some(1.348)));
    // The result, printed last, names the intervals' workload.
    assert!(demo.iter().all(|r| r.case_id == demo[7].case_id && r.iteration == Some(1)));
    // An interim result without the result that follows is the beginning of an output.
    for cut in [fixture!("netperf-interim.csv"), fixture!("netperf-interim-keyval.txt")] {
        let refused = ImportedRows::default().read("f", cut, None).expect_err("cut off");
        assert!(refused.to_string().contains("has no result"), "{refused}");
    }
    let kept = format!("{}THROUGHPUT=24.50\nTHROUGHPUT_UNITS=10^9bits/s\n", fixture!("netperf-interim-keyval.txt"));
    near(named(&kept, "tcp_stream", None).0[0].throughput_bits_per_s, 25e9);
}

#[test]
fn netperf_selectors() {
    near(named(fixture!("netperf-keyval.txt"), "tcp_rr", None).0[0].transactions_per_s, 59_092.65);
    near(named(fixture!("netperf-omni.csv"), "udp_rr", None).0[0].transactions_per_s, 60_999.07);
    let all = rows(fixture!("netperf-selectors.csv"), Program::Netperf);
    let result = results(&all)[0];
    assert_eq!(
        (all.len(), result.workload.as_deref(), all[0].workload.as_deref()),
        (3, Some("tcp_rr"), Some("tcp_rr"))
    );
    near(result.local_cpu_ratio, 0.2431);
    // netperf prints −1 or −2 where it did not measure.
    assert_eq!((result.remote_cpu_ratio, result.retransmits), (None, None));
    assert_eq!(
        (result.latency_p50_us, result.latency_kind.map(LatencyKind::as_str)),
        (Some(118.0), Some("round_trip"))
    );
    assert_eq!(result.tag.as_deref(), Some("one, two"));
}

#[test]
fn iperf3_documents_and_streams() {
    let document = rows(fixture!("iperf3-tcp.json"), Program::Iperf3);
    // From iperf3 3.21, which has the option: the same kinds of rows.
    let streamed = rows(fixture!("iperf3-stream.jsonl"), Program::Iperf3);
    let kinds: Vec<_> = streamed.iter().map(|r| r.record.map_or("", Record::as_str)).collect();
    assert_eq!(kinds, ["interval", "interval", "stream", "iteration"]);
    let result = results(&streamed)[0];
    near(result.throughput_bits_per_s, 37_778_801_365.141_3);
    assert_eq!((result.bytes_sent, result.bytes_received), (Some(9_447_145_472), Some(9_446_490_112)));
    assert_eq!(result.time.as_deref(), Some("2026-11-21T04:53:46.832Z"));
    let datagrams = rows(fixture!("iperf3-stream-udp.jsonl"), Program::Iperf3);
    let result = results(&datagrams)[0];
    assert_eq!((result.messages_sent, result.messages_received, result.lost), (Some(764), Some(764), Some(0)));
    let result = results(&document)[0];
    near(result.throughput_bits_per_s, 35_614_962_550.430_18);
    near(result.sent_bits_per_s, 35_615_496_705.428_3);
    assert_eq!((result.streams, result.message_bytes), (Some(1), Some(131_072)));
    assert_eq!(document[0].start_s, Some(0.0));
    assert_eq!(document[0].throughput_bits_per_s, None);
    assert_eq!(document[0].time.as_deref(), Some("2026-11-21T00:40:01.000Z"));

    let reverse = rows(fixture!("iperf3-tcp-reverse-p2.json"), Program::Iperf3);
    assert!(reverse.iter().all(|r| r.direction == Some(Way::Reverse) && r.local_retransmits.is_none()));
    let result = results(&reverse)[0];
    assert_eq!((result.retransmits, result.remote_retransmits), (Some(1), Some(1)));
    assert_eq!(reverse.iter().filter(|r| r.record == Some(Record::Stream)).count(), 2);

    let both = rows(fixture!("iperf3-bidir.json"), Program::Iperf3);
    near(results(&both)[0].throughput_bits_per_s, 22_075_714_515.912_987 + 15_721_648_640.813_772);

    let udp = rows(fixture!("iperf3-udp.json"), Program::Iperf3);
    let result = results(&udp)[0];
    assert_eq!((result.messages_sent, result.lost, result.offered_per_s), (Some(191), Some(0), Some(50e6)));
    near(result.jitter_us, 13.191_345_876_453_176);

    let refused = rows(fixture!("iperf3-refused.json"), Program::Iperf3);
    assert_eq!(refused[0].status, Some(Status::Failed));
    assert!(refused[0].error.as_deref().is_some_and(|e| e.contains("Connection refused")));
}

#[test]
fn half_round_trips_become_whole_ones() {
    let (file, notes) = named(fixture!("netpipe.out"), "tcp_pingpong", None);
    let console = rows(fixture!("netpipe.txt"), Program::Netpipe);
    assert_eq!(file.len(), console.len());
    near(file[0].throughput_bits_per_s, 0.874_105 * 1_048_576.0);
    near(file[0].latency_mean_us, 17.46);
    near(file[0].latency_min_us, 17.46);
    // The size has the columns that a run's ping-pong has.
    assert_eq!([file[0].message_bytes, file[0].request_bytes, file[0].response_bytes], [Some(1); 3]);
    assert!(notes.contains("2^20"));
    for (a, b) in file.iter().zip(&console) {
        assert_eq!(a.case_id, b.case_id);
        near(a.latency_mean_us, b.latency_mean_us.unwrap());
    }
    let old = named(fixture!("netpipe-2.4.txt"), "tcp_pingpong", None).0;
    near(old[0].latency_mean_us, 144.0);

    let (qperf, notes) = import(fixture!("qperf.txt"), Program::Qperf);
    near(qperf[0].throughput_bits_per_s, 4.15e9 * 8.0);
    near(qperf[1].latency_mean_us, 18.8);
    near(qperf[2].throughput_bits_per_s, 5.05e9 * 8.0);
    assert!(notes.contains("doubled"));
    assert_eq!(rows(fixture!("qperf-v.txt"), Program::Qperf)[0].message_bytes, Some(4096));
    let exact = rows(fixture!("qperf-uu.txt"), Program::Qperf);
    near(exact[0].throughput_bits_per_s, 4_047_372_288.0 * 8.0);
    near(exact[1].latency_mean_us, 18.976);

    let (sockperf, notes) = import(fixture!("sockperf-pp.txt"), Program::Sockperf);
    near(sockperf[0].latency_mean_us, 18.588);
    near(sockperf[0].latency_p99_us, 30.102);
    assert_eq!((sockperf[0].transport.as_deref(), sockperf[0].messages_sent), (Some("tcp"), Some(29_499)));
    assert!(notes.contains("doubled"));
    let throughput = rows(fixture!("sockperf-tp.txt"), Program::Sockperf);
    near(throughput[0].sent_bits_per_s, 1576.279 * 8.0 * 1_048_576.0);
    assert_eq!((throughput[0].message_bytes, throughput[0].throughput_bits_per_s), (Some(1400), None));
    assert_eq!(rows(fixture!("sockperf-ul.txt"), Program::Sockperf)[0].messages_received, Some(4));
}

#[test]
fn lmbench_nuttcp_ping() {
    let lmbench = rows(fixture!("lmbench.txt"), Program::Lmbench);
    near(lmbench[0].throughput_bits_per_s, 93.36e6);
    assert_eq!((lmbench[0].message_bytes, lmbench[1].to.as_deref()), (Some(65_536), Some("g01")));
    near(lmbench[1].latency_mean_us, 145.8439);

    near(rows(fixture!("nuttcp.txt"), Program::Nuttcp)[0].throughput_bits_per_s, 31_456.199_9e6);
    near(rows(fixture!("nuttcp-parse.txt"), Program::Nuttcp)[0].rtt_us, 110.0);
    let udp = rows(fixture!("nuttcp-udp.txt"), Program::Nuttcp);
    assert_eq!((udp.len(), results(&udp)[0].messages_sent, results(&udp)[0].lost), (3, Some(763), Some(0)));
    let intervals = rows(fixture!("nuttcp-rx.txt"), Program::Nuttcp);
    assert_eq!(intervals.iter().map(|r| r.start_s).collect::<Vec<_>>(), [Some(0.0), Some(0.5), None]);

    let ping = &rows(fixture!("ping-iputils.txt"), Program::Ping)[0];
    assert_eq!((ping.message_bytes, ping.messages_received, ping.lost), (Some(56), Some(5), Some(0)));
    near(ping.latency_mean_us, 39.0);
    near(ping.latency_p50_us, 42.0);
    // Five replies have no 99th percentile.
    assert_eq!(ping.latency_p99_us, None);
    near(rows(fixture!("ping-quiet.txt"), Program::Ping)[0].latency_max_us, 40.0);
    assert_eq!(rows(fixture!("ping-v6.txt"), Program::Ping)[0].to.as_deref(), Some("::1"));
}

#[test]
fn nas_kernels_are_verified_results() {
    let (rows, notes) = import(fixture!("npb-cg.txt"), Program::Npb);
    let [cg] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(cg.case.as_deref(), Some("nas_cg[class=A,ranks=4]"));
    assert_eq!((cg.transport.as_deref(), cg.verified, notes.as_str()), (Some("mpi"), Some(true), ""));
    near(cg.mops_per_s, 767.12);
    near(cg.elapsed_s, 1.95);
    let (rows, notes) = import(fixture!("npb-session.txt"), Program::Npb);
    let names: Vec<_> = rows.iter().map(|r| (r.case.as_deref().unwrap(), r.iteration.unwrap())).collect();
    let is = "nas_is[class=A,ranks=4]";
    assert_eq!(names, [(is, 1), (is, 2), ("nas_ft[class=S]", 1), ("nas_bt[class=S]", 1)]);
    assert_eq!((rows[2].threads, rows[2].ranks, rows[2].transport.as_deref()), (Some(2), None, None));
    assert_eq!((rows[3].verified, notes.contains("did not verify")), (None, true));
    // A wrong result is no result.
    let wrong = fixture!("npb-cg.txt").replace("=               SUCCESSFUL", "=             UNSUCCESSFUL");
    let error = ImportedRows::default().read("f", &wrong, None).expect_err("wrong").to_string();
    assert!(error.starts_with("f:30: the result of CG of class A is wrong"), "{error}");
    let cut = fixture!("npb-cg.txt").split("Mop/s total").next().unwrap().to_owned() + "\n";
    let error = ImportedRows::default().read("f", &cut, None).expect_err("cut").to_string();
    assert!(error.starts_with("f:20: the results of CG that begin here have no Mop/s"), "{error}");
    let odd = fixture!("npb-cg.txt").replace("767.12", "fast");
    let error = ImportedRows::default().read("f", &odd, None).expect_err("odd").to_string();
    assert!(error.starts_with("f:27: expected a number"), "{error}");
}

/// The sender of datagrams does not know what arrived.
#[test]
fn perftest_over_unreliable_datagrams() {
    for (text, arrived) in [
        (fixture!("recorded/perftest/send-bw-4.5.txt"), false),
        (fixture!("recorded/perftest/send-bw-far-4.5.txt"), true),
        (fixture!("recorded/perftest/bw-25.10.json"), false),
    ] {
        let text = text.replace("Connection type : RC", "Connection type : UD");
        let text = text.replace("\"Connection_type\": \"RC\"", "\"Connection_type\": \"UD\"");
        let row = &rows(&text, Program::Perftest)[0];
        assert_eq!((row.throughput_bits_per_s.is_some(), row.sent_bits_per_s.is_some()), (arrived, !arrived));
        assert_eq!(row.control, None);
    }
}

#[test]
fn what_is_not_an_output_is_named() {
    for (text, program, reason) in [
        ("", None, "nothing in it"),
        ("hello\n", None, "no known program"),
        ("hello\n", Some(Program::Ping), "no result of ping"),
        (
            "  131072  16384  16384    1.01     4592.45   \n",
            Some(Program::Netperf),
            "f:1: figures without netperf's headings",
        ),
        ("{\"start\":{},\n\"end\":", Some(Program::Iperf3), "EOF"),
        ("{\"start\":{\"version\":\"iperf 3.12\"},\"intervals\":[]}", None, "cut off"),
        ("sockperf: Starting test...\n", None, "cut off"),
        ("Interim result: 5.41 parsecs/s over 1.35 seconds ending at 1.0\n", None, "VALUE UNIT/s"),
        ("tcp_lat:\n    latency  =  9488 jiffies\n", None, "unit of qperf's"),
        ("PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=fast\nTHROUGHPUT_UNITS=Trans/s\n", None, "for THROUGHPUT"),
        ("PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=1.0\n", None, "two decimals"),
        ("PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=1.00\n", None, "add THROUGHPUT_UNITS"),
        ("PROTOCOL=TCP\nTHROUGHPUT=1.00\nTHROUGHPUT_UNITS=Trans/s\n", None, "add DIRECTION"),
        ("DIRECTION=Send\nTHROUGHPUT=1.00\nTHROUGHPUT_UNITS=10^6bits/s\n", None, "add PROTOCOL"),
        ("PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=1.00\nTHROUGHPUT_UNITS=Trans/s\n", None, "belongs to no stream"),
        (
            "TCP STREAM TEST\nDIRECTION=Send|Recv\nTHROUGHPUT=1.00\n",
            None,
            "f:3: the banner says stream, but DIRECTION says rr",
        ),
        (
            "PING 127.0.0.1 (127.0.0.1) 56(84) Bytes Daten.\n64 Bytes von 127.0.0.1: icmp_seq=1 ttl=64 Zeit=0,030 ms\n\n\
             --- 127.0.0.1 ping-Statistiken ---\n1 Pakete übertragen, 1 empfangen, 0% Paketverlust, Zeit 0ms\n",
            None,
            "LC_ALL=C",
        ),
        (
            "Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr\n[  5] 0,00-1,00 sec 1,1 GBytes 9,4 Gbits/sec 0\n",
            None,
            "f:3: expected `[ID] START-END sec",
        ),
        (
            "tcp_lat:\n    latency = 5 us\nrc_lat:\n    latency = 1 us\n",
            None,
            "f:4: qperf's test `rc_lat` has no workload",
        ),
        ("  0: 1 bytes 10 times --> 0.87 Mbps in 8.73 fortnights\n", None, "times --> R Mbps"),
        (
            "MIGRATED TCP STREAM TEST from 0.0.0.0 () port 0 AF_INET to h () port 0 AF_INET\n\
             Recv   Send    Send\nSocket Socket  Message  Elapsed\nSize   Size    Size     Time     Throughput\n\
             bytes  bytes   bytes    secs.    10^6bits/sec\n\n131072  16384  16384    1.01     -4592.45\n",
            None,
            "f:1: the test that begins here has no result",
        ),
        ("# OSU MPI_Get Multi Latency Test v7.4\n", None, "a test of OSU with a workload here"),
        ("# OSU UPC++ Broadcast Latency Test v7.4\n", None, "a test of OSU with a workload here"),
        ("# Size       Avg Latency(us)\n0    1.2\n", None, "f:1: the line `# OSU MPI … Test` is missing above"),
        (
            "# OSU MPI Latency Test v7.4\n# Size  Avg Latency(us)\n",
            None,
            "f:1: the test that begins here has no result",
        ),
        (
            "# OSU MPI Latency Test v7.4\n# Size  Avg Latency(us)  P5 Tail Lat(us)\n",
            None,
            "f:2: a table with the heading `P5 Tail Lat(us)` is unknown",
        ),
        (
            "# OSU MPI Latency Test v7.4\n# Size  Avg Latency(us)  Validation\n4  1.2  Fail\n",
            None,
            "f:3: what arrived is wrong",
        ),
        (
            "# OSU MPI Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n4  1e308\n",
            None,
            "f:3: expected figures for `Size`, `Bandwidth (MB/s)`",
        ),
    ] {
        let error = ImportedRows::default().read("f", text, program).expect_err(text);
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.exit_code(), 3);
    }
}

#[test]
fn the_command_line_names_what_an_output_lacks() {
    let read = |text: &str, workload, unit| {
        let mut imported = ImportedRows::with(workload, unit)?;
        imported.read("f", text, Some(Program::Netperf))?;
        Ok::<_, crate::error::Error>(imported.finish())
    };
    let table = "131072  16384  16384    1.01     4592.45   \n";
    let rows = read(table, Some("TCP_MAERTS"), Some("MBytes/s")).expect("a table");
    near(rows[0].throughput_bits_per_s, 4592.45 * 8_388_608.0);
    assert_eq!((rows[0].workload.as_deref(), rows[0].direction), (Some("tcp_maerts"), Some(Way::Reverse)));
    for (text, workload, unit, reason) in [
        (table, Some("TCP_STREAM"), None, "figures without netperf's headings"),
        (table, Some("tcp rr"), None, "name it as in a plan"),
        (table, Some("TCP_STREAM"), Some("parsecs/s"), "netperf's units are"),
        (fixture!("netperf-2.7.txt"), Some("udp_rr"), None, "the banner says tcp, but --workload says udp"),
        (fixture!("netperf-udp.txt"), None, Some("Trans/s"), "prints another unit"),
    ] {
        let error = read(text, workload, unit).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = ImportedRows::with(None, Some("Trans/s")).expect("a unit").read("f", fixture!("qperf.txt"), None);
    assert!(error.is_err_and(|e| e.to_string().contains("qperf prints its units")));
    let error = ImportedRows::with(Some("udp_rr"), None).expect("a workload").read("f", fixture!("lmbench.txt"), None);
    assert!(error.is_err_and(|e| e.to_string().contains("not of --workload udp_rr")));
}

const ALL: &[&str] = &[
    fixture!("hpcbench-pingpong.txt"),
    fixture!("hpcbench-pingpong-exponential.txt"),
    fixture!("hpcbench-syslog-client.txt"),
    fixture!("hpcbench-rtt.txt"),
    fixture!("iperf3-stream.jsonl"),
    fixture!("lmbench.txt"),
    fixture!("netperf-2.7.txt"),
    fixture!("netperf-demo.txt"),
    fixture!("netperf-keyval.txt"),
    fixture!("netperf-selectors.csv"),
    fixture!("netpipe.txt"),
    fixture!("npb-session.txt"),
    fixture!("nuttcp-udp.txt"),
    fixture!("ping-iputils.txt"),
    fixture!("qperf-v.txt"),
    fixture!("sockperf-pp.txt"),
    fixture!("recorded/osu/allreduce-full-7.4.txt"),
    fixture!("recorded/imb/memory-2021.11.txt"),
    fixture!("recorded/nccl/all-gather-2.19.6.txt"),
    fixture!("recorded/perftest/write-lat-25.10.txt"),
    fixture!("recorded/perftest/lat-25.10.json"),
    fixture!("recorded/irtt/plain-0.9.2.json"),
    fixture!("recorded/iperf2/udp-2.1.8.txt"),
    fixture!("recorded/iperf2/tcp-csv-2.1.8.txt"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_a_reader_panic(text in "(?s).{0,300}", program in 0usize..super::READERS.len()) {
        use clap::ValueEnum as _;
        for program in [None, Program::value_variants().get(program).copied()] {
            let mut imported = ImportedRows::default();
            let _ = imported.read("f", &text, program);
            let _ = imported.finish();
        }
    }

    #[test]
    fn no_change_to_a_real_output_makes_a_reader_panic(
        which in 0..ALL.len(), at in 0.0f64..1.0, cut in 0usize..60, paste in "[0-9a-zA-Z:{},\" .=\n|/-]{0,8}",
    ) {
        let text = ALL[which];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short text")]
        let mut from = (text.len() as f64 * at) as usize;
        let mut to = (from + cut).min(text.len());
        while !text.is_char_boundary(from) { from -= 1; }
        while !text.is_char_boundary(to) { to += 1; }
        let changed = format!("{}{paste}{}", &text[..from], &text[to..]);
        let mut imported = ImportedRows::default();
        let _ = imported.read("f", &changed, None);
        for row in imported.finish() {
            // All cells can be written: the contract has finite numbers only.
            row.for_each_cell(|cell| assert!(!matches!(cell, "NaN" | "inf" | "-inf")));
        }
    }
}
