//! One link of 50 µs and 1 Gbit/s, as each program prints the ping-pongs over it: the tables say one thing of all.

use std::fmt::Write;

use schemas::columns::{self, Row};

use super::fits;
use crate::import::{ImportedRows, Program};
use crate::table::{Selection, Table};

const LATENCY_S: f64 = 50e-6;
const BITS_PER_S: f64 = 1e9;
const SIZES: [u32; 7] = [1, 64, 1024, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Round trips that each program made with a size.
const TRIPS: u32 = 4096;

/// Seconds that a message of that size takes one way.
fn one_way(size: u32) -> f64 {
    LATENCY_S + f64::from(size) * 8.0 / BITS_PER_S
}

/// What a ping-pong's throughput is: 2 × size ÷ round trip.
fn throughput(size: u32) -> f64 {
    2.0 * f64::from(size) * 8.0 / (2.0 * one_way(size))
}

/// A line per size.
fn lines(line: impl Fn(u32, f64) -> String) -> String {
    SIZES.iter().map(|size| line(*size, one_way(*size)) + "\n").collect()
}

const MEBIBIT: f64 = 1_048_576.0;

/// The programs' outputs, each with the workload that it does not say itself. An output of one size is repeated for all.
#[expect(clippy::too_many_lines, reason = "a table of outputs")]
fn outputs() -> Vec<(&'static str, Program, Option<&'static str>, Vec<String>)> {
    let each = |text: fn(u32, f64) -> String| SIZES.iter().map(|size| text(*size, one_way(*size))).collect();
    let hpcbench =
        "# TCP communication test -- Tue Jul 13 18:15:53 2004\n# Socket blocking option -- client: ON  server: ON\n";
    let exponential = lines(|size, t| {
        let elapsed = 2.0 * t * f64::from(TRIPS);
        format!("{size:10} {:14.4} {elapsed:17.5} {TRIPS:10}", throughput(size) / 1e6)
    });
    vec![
        (
            "NetPIPE 2",
            Program::Netpipe,
            Some("tcp_pingpong"),
            vec![lines(|size, t| {
                format!("  0: {size:9} bytes {TRIPS} times --> {:7.2} Mbps in {t:.6} sec", throughput(size) / MEBIBIT)
            })],
        ),
        (
            "NetPIPE 3",
            Program::Netpipe,
            None,
            vec![
                "Send and receive buffers are 16384 and 131072 bytes\n".to_owned()
                    + &lines(|size, t| {
                        let (rate, us) = (throughput(size) / MEBIBIT, t * 1e6);
                        format!("  0: {size:7} bytes {TRIPS:6} times --> {rate:9.2} Mbps in {us:10.2} usec")
                    }),
            ],
        ),
        (
            "np.out",
            Program::Netpipe,
            Some("mpi_pingpong"),
            vec![lines(|size, t| format!("{size:8} {:f$.6} {t:12.8}", throughput(size) / MEBIBIT, f = 10))],
        ),
        (
            "hpcbench -e -i",
            Program::Hpcbench,
            None,
            vec![format!(
                "{hpcbench}# TCP test mode: ping-pong(bidirectional) exponential throughput test\n\n{exponential}"
            )],
        ),
        (
            "hpcbench -i",
            Program::Hpcbench,
            None,
            each(|size, t| {
                let (rate, elapsed) = (throughput(size) / 1e6, 2.0 * t * f64::from(TRIPS));
                format!(
                    "# TCP communication test -- Tue Jul 13 18:15:53 2004\n\
                     # TCP test mode: ping-pong(bidirectional) throughput test\n\
                     # Socket blocking option -- client: ON  server: ON\n\
                     # Total data size sent of each test (Bytes): {}\n\
                     # Message size (Bytes): {size}\n# Iteration: {TRIPS}\n# Test Repetition: 1\n\n\
                     1 {rate:14.3} {elapsed:11.2} 0.03 2.91 {elapsed:11.2} 0.09 2.19\n",
                    u64::from(size) * u64::from(TRIPS)
                )
            }),
        ),
        (
            "hpcbench -a",
            Program::Hpcbench,
            None,
            each(|size, t| {
                let us = 2e6 * t;
                let (time, unit) = if us < 1000.0 { (us, "usec") } else { (us / 1e3, "msec") };
                format!(
                    "TCP Round Trip Time (1) : {time:.3} {unit}\n1 trials with message size {size} Bytes.\n\
                     TCP RTT min/avg/max = {time:.3}/{time:.3}/{time:.3} {unit}\n"
                )
            }),
        ),
        (
            "hpcbench's console",
            Program::Hpcbench,
            Some("tcp_pingpong"),
            vec![lines(|size, _| format!(" (1) : {:.6} Mbps", throughput(size) / 1e6))],
        ),
        (
            "netperf",
            Program::Netperf,
            None,
            each(|size, t| {
                format!(
                    "TCP REQUEST/RESPONSE TEST from a (a) port 0 AF_INET to b (b) port 0 AF_INET : demo\n\
                     Local /Remote\nSocket Size   Request  Resp.   Elapsed  Trans.\n\
                     Send   Recv   Size     Size    Time     Rate\nbytes  Bytes  bytes    bytes   secs.    per sec\n\n\
                     16384  87380  {size}  {size}  10.00  {:.2}\n16384  87380\n",
                    0.5 / t
                )
            }),
        ),
        (
            "netperf -f m",
            Program::Netperf,
            None,
            each(|size, _| {
                format!(
                    "TCP REQUEST/RESPONSE TEST from a (a) port 0 AF_INET to b (b) port 0 AF_INET : demo\n\
                     Local /Remote\nSocket Size   Request  Resp.   Elapsed\n\
                     Send   Recv   Size     Size    Time     Throughput\nbytes  Bytes  bytes    bytes   secs.    10^6bits/sec\n\n\
                     16384  87380  {size}  {size}  10.00  {:.4}\n16384  87380\n",
                    throughput(size) / 1e6
                )
            }),
        ),
        (
            "netperf's selectors",
            Program::Netperf,
            None,
            each(|size, t| {
                let rate = 0.5 / t;
                format!(
                    "PROTOCOL=TCP\nDIRECTION=Send|Recv\nREQUEST_SIZE={size}\nRESPONSE_SIZE={size}\nTHROUGHPUT={rate:.2}\n\
                     THROUGHPUT_UNITS=Trans/s\nTRANSACTION_RATE={rate:.3}\nMEAN_LATENCY={:.2}\n",
                    2e6 * t
                )
            }),
        ),
        (
            "qperf",
            Program::Qperf,
            None,
            each(|size, t| {
                let us = t * 1e6;
                let (time, unit) = if us < 1000.0 { (us, "us") } else { (us / 1e3, "ms") };
                format!("tcp_lat:\n    latency   =  {time:.3} {unit}\n    msg_size  =  {size} bytes\n")
            }),
        ),
        (
            "sockperf",
            Program::Sockperf,
            None,
            each(|size, t| {
                let (us, seconds) = (t * 1e6, 2.0 * t * f64::from(TRIPS));
                format!(
                    "sockperf: == version #3.7-no.git ==\n[ 0] IP = 127.0.0.1       PORT = 15600 # TCP\n\
                     sockperf: [Valid Duration] RunTime={seconds:.3} sec; SentMessages={TRIPS}; ReceivedMessages={TRIPS}\n\
                     sockperf: ====> avg-latency={us:.3} (std-dev=0.1)\nsockperf: Summary: Latency is {us:.3} usec\n\
                     NOTE: test was performed, using msg-size={size}. For getting maximum throughput\n"
                )
            }),
        ),
        (
            "lmbench",
            Program::Lmbench,
            None,
            vec![format!("TCP latency using b: {:.4} microseconds\n", 2e6 * one_way(1))],
        ),
        (
            "ping",
            Program::Ping,
            None,
            vec![format!(
                "PING b (10.0.0.2) 56(84) bytes of data.\n64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time={0:.3} ms\n\n\
                 --- b ping statistics ---\n1 packets transmitted, 1 received, 0% packet loss, time 0ms\n\
                 rtt min/avg/max/mdev = {0:.3}/{0:.3}/{0:.3}/0.000 ms\n",
                2e3 * one_way(56)
            )],
        ),
    ]
}

/// Rows as `plumb import` writes them.
fn table(rows: &[Row]) -> Table {
    let mut text = columns::header(&[]).join(",");
    for row in rows {
        text.push('\n');
        let mut first = true;
        row.for_each_cell(|cell| {
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            write!(text, "{comma}\"{}\"", cell.replace('"', "\"\"")).unwrap();
        });
    }
    Table::from_text("one link", text + "\n").unwrap()
}

#[test]
fn every_program_says_the_same_of_one_link() {
    for (name, program, workload, texts) in outputs() {
        let mut imported = ImportedRows::with(workload, None).unwrap();
        for text in &texts {
            imported.read(name, text, Some(program)).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        }
        let rows = imported.finish();
        let sizeless = ["lmbench", "ping", "hpcbench's console"].contains(&name);
        assert_eq!(rows.len(), if matches!(name, "lmbench" | "ping") { 1 } else { SIZES.len() }, "{name}");
        for (row, size) in rows.iter().zip(if name == "ping" { [56; 7] } else { SIZES }) {
            // Outputs have few digits of what is small.
            let near = |value: f64, wanted: f64, digit: f64| (value - wanted).abs() <= 0.004 * wanted + digit;
            if let Some(bits) = row.throughput_bits_per_s {
                assert!(near(bits, throughput(size), 0.005 * MEBIBIT), "{name}, {size} bytes: {bits} bit/s");
            }
            if let Some(us) = row.latency_mean_us {
                assert!(near(us, 2e6 * one_way(size), 1.0), "{name}, {size} bytes: {us} µs");
            }
            assert!(row.throughput_bits_per_s.or(row.latency_mean_us).or(row.transactions_per_s).is_some(), "{name}");
            if let (Some(bytes), Some(elapsed)) = (row.bytes_received, row.elapsed_s) {
                let rate = bytes as f64 * 8.0 / elapsed;
                assert!((rate / throughput(size) - 1.0).abs() < 0.02, "{name}, {size} bytes: {rate} bit/s");
            }
        }
        if sizeless {
            continue;
        }
        let fits = fits(&mut table(&rows), &Selection::default(), &[], None).unwrap();
        assert_eq!(fits.len(), 1, "{name}");
        let model = fits[0].model.unwrap_or_else(|| panic!("{name} cannot be fitted"));
        assert_eq!(fits[0].sizes, SIZES.len(), "{name}");
        assert!((model.latency_s / LATENCY_S - 1.0).abs() < 0.02, "{name}: {} s", model.latency_s);
        assert!((model.bandwidth * 8.0 / BITS_PER_S - 1.0).abs() < 0.02, "{name}: {} bit/s", model.bandwidth * 8.0);
    }
}
