//! What other tools read from netperf's output, written from descriptions of them, finds the same in ours.
//!
//! Their command lines run as they are, but shorter, with netperf and with our program under its name.

use std::collections::HashMap;

use crate::netperf_lab::Lab;

/// What a tool reads: a few numbers, each with a name for messages.
type Read = fn(&str) -> Vec<(String, String)>;

fn one(name: &str, value: Option<&str>) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.unwrap_or_default().to_owned())]
}

/// super_netperf: the last field of line 7, or of line 6.
fn super_netperf(output: &str) -> Vec<(String, String)> {
    let line = output.lines().nth(6).or(output.lines().nth(5));
    one("result", line.and_then(|line| line.split_whitespace().last()))
}

/// The same with latency columns: the line with `Min` begins the titles, and line 11 ends the sums.
fn super_netperf_latency(output: &str) -> Vec<(String, String)> {
    let titles = output.lines().find(|line| line.contains("Min"));
    let row = output.lines().nth(5).unwrap_or_default();
    let names = titles.unwrap_or_default().split_whitespace();
    names.zip(row.split_whitespace()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Intel's LKP: the value below the word `Throughput` or `Rate`, by its index among the words of the title line.
fn lkp(output: &str) -> Vec<(String, String)> {
    let mut index = None;
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (index, words.as_slice()) {
            (_, ["Size", "Size", ..]) => index = words.iter().position(|word| *word == "Throughput"),
            (_, ["Send", "Recv", "Size", ..]) => index = words.iter().position(|word| *word == "Rate"),
            (Some(index), [first, ..]) if first.parse::<f64>().is_ok() => {
                return one("result", words.get(index).copied());
            }
            _ => {}
        }
    }
    Vec::new()
}

/// mmtests: the last column of rows without letters.
fn mmtests(output: &str) -> Vec<(String, String)> {
    let rows = output.lines().filter(|line| !line.contains(char::is_alphabetic) && !line.contains("!!!"));
    let last = rows.filter_map(|line| line.split_whitespace().last());
    last.enumerate().map(|(at, value)| (format!("row {at}"), value.to_owned())).collect()
}

/// mmtests for UDP streams: the sender's row has six fields, the receiver's four.
fn mmtests_datagrams(output: &str) -> Vec<(String, String)> {
    let row = |fields: usize| {
        let rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows =
            rows.filter(|words| words.len() == fields && words.iter().all(|word| word.parse::<f64>().is_ok()));
        rows.next().and_then(|words| words.last().copied())
    };
    [one("sent", row(6)), one("received", row(4))].concat()
}

/// PerfKitBenchmarker: one line that names the test, and CSV with titles below it.
fn perfkit(output: &str) -> Vec<(String, String)> {
    let Some((banner, table)) = output.split_once('\n') else { return Vec::new() };
    assert!(banner.starts_with("OMNI") || banner.starts_with("MIGRATED"), "{banner}");
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let row: HashMap<String, String> =
        reader.deserialize().next().expect("a row").expect("with as many cells as titles");
    let mut cells: Vec<_> = row.into_iter().collect();
    cells.sort();
    cells
}

/// k8s-netperf, and scripts of the kernel: lines `NAME=value`.
fn pairs(output: &str) -> Vec<(String, String)> {
    let pairs = output.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Phoronix: the number alone, after `grep -v is`.
fn phoronix(output: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.contains("is")).collect();
    one("result", lines.first().map(|line| line.trim()).filter(|_| lines.len() == 1))
}

/// On one machine the two ends cannot have the same port, so `-P` names that of the far end alone.
const LINES: &[(&str, Read)] = &[
    ("-s 1 -H 127.0.0.1 -l -50000000 -t TCP_STREAM", super_netperf),
    ("-H 127.0.0.1 -l -2000 -t TCP_RR", super_netperf),
    ("-H 127.0.0.1 -l -50000000 -t UDP_STREAM", super_netperf),
    ("-H 127.0.0.1 -l -2000 -t TCP_RR -- -O min_latency,mean_latency,p99_latency,throughput", super_netperf_latency),
    ("-4 -H 127.0.0.1 -t TCP_STREAM -c -C -l -300000000 -- -m 10K", lkp),
    ("-4 -H 127.0.0.1 -t TCP_RR -c -C -l -5000", lkp),
    ("-4 -H 127.0.0.1 -t TCP_SENDFILE -c -C -l 1", lkp),
    ("-6 -H ::1 -t UDP_RR -c -C -l -5000", lkp),
    ("-i 3,3 -I 95 -l -50000000 -f m -D 1 -t TCP_STREAM -H 127.0.0.1 -- -m 16384 -M 16384", mmtests),
    (
        "-i 3,3 -I 95 -l -50000000 -f k -D 1 -t UDP_STREAM -H 127.0.0.1 -- -s 851968 -S 851968 -m 1024",
        mmtests_datagrams,
    ),
    (
        "-p 12865 -j -v2 -t OMNI -H 127.0.0.1 -L 127.0.0.1 -l -2000 -- -T TCP -d RR -P ,20002 -o THROUGHPUT,THROUGHPUT_UNITS,\
         P50_LATENCY,P90_LATENCY,P99_LATENCY,STDDEV_LATENCY,MIN_LATENCY,MAX_LATENCY,CONFIDENCE_ITERATION,\
         THROUGHPUT_CONFID,LOCAL_TRANSPORT_RETRANS,REMOTE_TRANSPORT_RETRANS,TRANSPORT_MSS",
        perfkit,
    ),
    (
        "-p 12865 -j -t OMNI -H 127.0.0.1 -l -50000000 -- -T UDP -d STREAM -P ,20003 -R 1 -m 1024 -M 1024 -o THROUGHPUT,\
         THROUGHPUT_UNITS,P50_LATENCY,LOCAL_TRANSPORT_RETRANS,REMOTE_TRANSPORT_RETRANS,TRANSPORT_MSS",
        perfkit,
    ),
    (
        "-H 127.0.0.1 -l -50000000 -t UDP_STREAM -- -k rt_latency,p99_latency,throughput,throughput_units,remote_recv_calls,\
         local_send_calls,local_transport_retrans -m 1024 -R 1 -P ,42424",
        pairs,
    ),
    (
        "-H 127.0.0.1 -l 1 -t TCP_RR -- -k rt_latency,p99_latency,throughput,throughput_units,remote_recv_calls,\
         local_send_calls,local_transport_retrans -r 1024,1024 -b 4 -P ,42425",
        pairs,
    ),
    (
        "-H 127.0.0.1 -l -50000000 -f m -j -t TCP_STREAM -- -K cubic,cubic -k P50_lATENCY,P90_LATENCY,LOCAL_SEND_THROUGHPUT",
        pairs,
    ),
    ("-P 0 -v 0 -H 127.0.0.1 -t TCP_MAERTS -l -50000000", phoronix),
    ("-P 0 -v 0 -H 127.0.0.1 -t UDP_STREAM -b 10G -l -50000000", phoronix),
];

/// Whether two values are of one kind: the same text, or numbers with the same sign.
fn alike(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a < 0.0) == (b < 0.0),
        _ => a == b && !a.is_empty(),
    }
}

#[test]
fn tools_find_the_same_in_both_programs_outputs() {
    let Some(lab) = Lab::new() else { return };
    for (line, read) in LINES {
        let (ours, theirs) = (lab.ours(line), lab.theirs(line));
        assert_eq!((ours.code, ours.stderr.as_str()), (Some(0), ""), "{line}: {}", ours.stdout);
        let (here, there) = (read(&ours.stdout), read(&theirs.stdout));
        assert!(!there.is_empty(), "{line}: nothing was read from\n{}", theirs.stdout);
        let same = here.len() == there.len()
            && here.iter().zip(&there).all(|((name, a), (other, b))| name == other && alike(a, b));
        assert!(same, "{line}\n{here:?}\n{there:?}\n{}", ours.stdout);
    }
}
