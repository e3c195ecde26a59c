//! What other tools read from netperf's output, written from a description of them.

use std::collections::HashMap;

use super::*;

/// super_netperf: the last field of line 7, or of line 6.
fn super_netperf(output: &str) -> &str {
    let line = output.lines().nth(6).or(output.lines().nth(5)).unwrap();
    line.split_whitespace().last().unwrap()
}

/// Intel's LKP: the value below the word `Throughput` or `Rate` of the titles, by its index.
fn lkp(output: &str) -> &str {
    let mut index = None;
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (index, words.as_slice()) {
            (_, ["Size", "Size", ..]) => index = words.iter().position(|word| *word == "Throughput"),
            (_, ["Send", "Recv", "Size", ..]) => index = words.iter().position(|word| *word == "Rate"),
            (Some(index), [first, ..]) if first.parse::<f64>().is_ok() => return words[index],
            _ => {}
        }
    }
    panic!("no row in {output}")
}

/// mmtests: rows without letters; the last column, and of UDP_STREAM the rows of six and four columns.
fn mmtests(output: &str) -> Vec<&str> {
    let rows = output.lines().filter(|line| !line.contains(char::is_alphabetic) && !line.trim().is_empty());
    rows.filter_map(|line| line.split_whitespace().last()).collect()
}

/// PerfKitBenchmarker: one line that names the test, and CSV with titles below it.
fn perfkit(output: &str) -> HashMap<String, String> {
    let (banner, table) = output.split_once('\n').unwrap();
    assert!(banner.starts_with("OMNI") || banner.starts_with("MIGRATED"), "{banner}");
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().next().unwrap().unwrap()
}

/// Lines `NAME=value`, as k8s-netperf, flent and the kernel's scripts read them.
fn pairs(output: &str) -> HashMap<&str, &str> {
    output.lines().filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn super_netperf_finds_the_result() {
    assert_eq!(super_netperf(&printed("-s 2 -H h", &tcp_stream())), "8004.68");
    assert_eq!(super_netperf(&printed("-s 2 -H h -t TCP_RR", &tcp_rr())), "48160.53");
    assert_eq!(super_netperf(&printed("-s 2 -H h -t UDP_STREAM", &udp_stream())), "22148.45");
    // With latency columns: the line with the word `Min`, and the row.
    let output = printed("-H h -t TCP_RR -- -O min_latency,mean_latency,throughput", &tcp_rr());
    assert!(output.lines().nth(1).unwrap().starts_with("Minimum"), "{output}");
    assert_eq!(output.lines().nth(5).unwrap().split_whitespace().collect::<Vec<_>>(), ["12", "18.24", "48160.53"]);
}

#[test]
fn lkp_finds_the_column_by_its_title() {
    assert_eq!(lkp(&printed("-4 -H h -t TCP_STREAM -c -C -l 300 -- -m 10K", &busy(tcp_stream()))), "8004.68");
    assert_eq!(lkp(&printed("-4 -H h -t TCP_RR -c -C -l 300", &busy(tcp_rr()))), "48160.53");
    assert_eq!(lkp(&printed("-4 -H h -t TCP_SENDFILE -c -C", &busy(tcp_stream()))), "8004.68");
}

#[test]
fn mmtests_finds_the_rows() {
    let options = "-i 3,3 -I 95 -f m -D 1 -H h -t";
    assert_eq!(mmtests(&printed(&format!("{options} TCP_STREAM"), &tcp_stream())), ["8004.68"]);
    assert_eq!(mmtests(&printed(&format!("{options} UDP_STREAM"), &udp_stream())), ["45399.40", "22148.45"]);
    let exchange = printed("-i 3,3 -I 95 -D 1 -H h -t UDP_RR", &tcp_rr());
    assert_eq!(mmtests(&exchange), ["48160.53", "131072"]);
}

#[test]
fn perfkit_reads_csv_below_one_line() {
    let line = "-p 1 -j -v2 -t OMNI -H h -l 5 -- -T TCP -d RR -P ,2 -o THROUGHPUT,THROUGHPUT_UNITS,P50_LATENCY,\
                STDDEV_LATENCY,CONFIDENCE_ITERATION,LOCAL_TRANSPORT_RETRANS,TRANSPORT_MSS";
    let row = perfkit(&printed(line, &tcp_rr()));
    assert_eq!(row["Throughput"], "48160.53");
    assert_eq!(row["Throughput Units"], "Trans/s");
    assert_eq!(row["50th Percentile Latency Microseconds"], "14");
    assert_eq!(row["Stddev Latency Microseconds"], "108.26");
    assert_eq!(row["Transport MSS bytes"], "32768");
}

#[test]
fn k8s_netperf_reads_pairs_of_names_in_lower_case() {
    let line = "-s 2 -H h -l 5 -t UDP_STREAM -- -k rt_latency,p99_latency,throughput,throughput_units,remote_recv_calls,\
                local_send_calls,local_transport_retrans -m 1024 -R 1 -P 42424";
    let output = printed(line, &udp_stream());
    let pairs = pairs(&output);
    assert_eq!((pairs["THROUGHPUT"], pairs["RT_LATENCY"], pairs["P99_LATENCY"]), ("22148.45", "-1.000", "-1"));
    assert_eq!(pairs["LOCAL_TRANSPORT_RETRANS"], "-1", "which says that it was UDP");
    let loss =
        1.0 - pairs["REMOTE_RECV_CALLS"].parse::<f64>().unwrap() / pairs["LOCAL_SEND_CALLS"].parse::<f64>().unwrap();
    assert!((loss - 0.512).abs() < 0.001, "{loss}");
}

#[test]
fn phoronix_reads_the_number_alone() {
    let output = printed("-P 0 -v 0 -H h -t UDP_STREAM -b 10G -l 10", &udp_stream());
    assert_eq!(output.trim(), "45399.40");
    // Its pipe drops lines that contain `is`.
    assert!(request("-b 10G").globals.remarks.iter().all(|line| line.contains("is")));
}

#[test]
fn the_kernels_script_reads_a_whole_throughput() {
    let output = printed("-H h -l 5 -f m -j -t TCP_RR -- -r 1M,1 -k P50_lATENCY,LOCAL_SEND_THROUGHPUT", &tcp_rr());
    assert_eq!((pairs(&output)["P50_LATENCY"], pairs(&output)["LOCAL_SEND_THROUGHPUT"]), ("14", "0.39"));
}

#[test]
fn flent_finds_what_it_needs() {
    let line = "-P 0 -v 0 -D -0.20 -4 -Y 0x20,0x20 -H h -p 12865 -t TCP_STREAM -l 5 -F /dev/urandom -f m -- -H h -k \
                THROUGHPUT,LOCAL_CONG_CONTROL,REMOTE_CONG_CONTROL,TRANSPORT_MSS,LOCAL_TRANSPORT_RETRANS,\
                REMOTE_TRANSPORT_RETRANS,LOCAL_SOCKET_TOS,REMOTE_SOCKET_TOS,DIRECTION,ELAPSED_TIME,PROTOCOL,\
                LOCAL_SEND_SIZE,LOCAL_RECV_SIZE,REMOTE_SEND_SIZE,REMOTE_RECV_SIZE,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,\
                REMOTE_BYTES_SENT,REMOTE_BYTES_RECVD";
    let mut figures = tcp_stream();
    figures.local.service = Some(0x20);
    let output = printed(line, &figures);
    let pairs = pairs(&output);
    assert_eq!(pairs.len(), 19, "{output}");
    assert_eq!((pairs["DIRECTION"], pairs["PROTOCOL"], pairs["LOCAL_SOCKET_TOS"]), ("Send", "TCP", "0x20"));
    for name in ["TRANSPORT_MSS", "REMOTE_TRANSPORT_RETRANS", "LOCAL_SEND_SIZE", "REMOTE_BYTES_RECVD"] {
        pairs[name].parse::<i64>().unwrap_or_else(|error| panic!("{name}={}: {error}", pairs[name]));
    }
}
