//! `plumb netperf` prints what netperf prints, against a real netserver.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
};

use nix::sys::signal::Signal;
use regex::Regex;

use crate::{
    netperf_lab::Lab,
    program::{Ran, end, number, parse, plumb, until},
    signals::signal,
};

/// Output without numbers and addresses. Widths of columns follow the numbers.
fn masked(output: &str) -> String {
    let rules = [
        // The address after a name: netperf leaves most of them out.
        (r"\([0-9a-f.:]*\)", "()"),
        (r"UUID=\S+", "UUID=…"),
        (r"-?\b(0x[0-9a-f]+|[0-9]+(\.[0-9]+)?)\b|-nan|-?inf", "N"),
        (r"  +", " "),
        (r"(?m)^ N", "N"),
    ];
    rules
        .into_iter()
        .fold(output.to_owned(), |text, (pattern, by)| Regex::new(pattern).unwrap().replace_all(&text, by).into_owned())
}

/// Every form of output, in tests that a count ends soon. CPU use needs a few ticks of the clock.
const LINES: &[&str] = &[
    "-l -2000000",
    "-l -2000000 -v 0",
    "-l -2000000 -v 2",
    "-l -2000000 -v 3",
    "-l -300000000 -c -C",
    "-l -300000000 -c -v 0",
    "-l -2000000 -P 0 -B tag",
    "-l -2000000 -P 0 -v 0 -B tag",
    "-l -2000000 -f G",
    "-l -2000000 -i 3,3 -I 99,5",
    "-l -2000000 -T 0,0 -- -D",
    "-t TCP_MAERTS -l -2000000",
    "-t TCP_MAERTS -l -2000000 -v 2",
    "-t TCP_MAERTS -l -300000000 -C -c",
    "-t TCP_SENDFILE -l 1",
    "-t TCP_RR -l -500",
    "-t TCP_RR -l -500 -v 0",
    "-t TCP_RR -l -500 -v 2",
    "-t TCP_RR -l -5000 -c -C",
    "-t TCP_RR -l -500 -f m",
    "-t TCP_RR -l -5000 -f k -c -C",
    // netperf's server leaves while a counted burst is under way.
    "-t TCP_RR -l 1 -P 0 -B tag -- -b 4 -r 100,200",
    "-t TCP_CRR -l -50",
    "-t TCP_CRR -l -50 -v 2",
    "-t TCP_CRR -l -1000 -c -C",
    "-t TCP_CRR -l -50 -v 0",
    "-t TCP_CC -l -50 -v 2",
    "-t UDP_RR -l -500",
    "-t UDP_RR -l -5000 -c -C -v 2",
    "-t UDP_RR -l -500 -v 0",
    "-t UDP_STREAM -l 1",
    "-t UDP_STREAM -l 1 -c -C",
    "-t UDP_STREAM -l 1 -v 0 -P 0",
    "-l -2000000 -- -k",
    "-l -300000000 -c -C -- -k",
    "-l -2000000 -- -o",
    "-l -2000000 -- -O",
    "-t TCP_RR -l -500 -P 0 -- -O",
    "-t TCP_RR -l -5000 -c -C -- -O",
    "-t omni -l -2000000",
    "-t omni -l -500 -- -d rr",
    "-t omni -l -500 -- -r 10,20 -o DIRECTION,PROTOCOL,REQUEST_SIZE,RESPONSE_SIZE",
    "-t omni -l -2000000 -- -d maerts -k THROUGHPUT,DIRECTION",
    "-t omni -l -50 -- -c -d rr",
    "-P 0 -l -2000000 -- -k all",
    "-P 0 -l -300000000 -c -C -- -k all",
    "-P 0 -t TCP_RR -l -500 -j -- -k all",
    "-P 0 -t TCP_MAERTS -l -2000000 -- -k all",
    "-P 0 -t UDP_RR -l -500 -- -k all",
    "-l -2000000 -B brand -- -o throughput,result_brand,protocol,command_line",
    "-l -2000000 -- -O throughput,throughput_units;elapsed_time",
    "-Y 0xb8,0x28 -y 3,3 -l -2000000 -- -k local_socket_tos,remote_socket_tos,local_socket_prio,remote_socket_prio",
    "-l -2000000 -- -K reno,cubic -k local_cong_control,remote_cong_control",
    "-l -2000000 -- -m 1K -s 8K,9K -S 10K,11K -k lss_size_req,lss_size,lsr_size_req,rss_size_req,rsr_size,local_send_size",
    "-l -2000000 -L 127.0.0.1 -- -H 10.77.0.1 -P 4000,5000 -k source_addr,source_port,dest_addr,dest_port",
    "-b 10 -w 1 -k 1 -l -2000000 -P 0 -v 0",
];

/// Lines of the warning that are ours.
fn is_free(line: &str) -> bool {
    line.starts_with("!!! ") && !line.contains('%')
}

/// The difference of what the two print for a line.
fn difference(lab: &Lab, line: &str) -> Option<String> {
    let line = format!("-H 127.0.0.1 {line}");
    let (ours, theirs) = (lab.ours(&line), lab.theirs(&line));
    let lines = |ran: &Ran| {
        let masked = masked(&ran.stdout);
        masked.lines().filter(|line| !is_free(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (here, there) = (lines(&ours), lines(&theirs));
    if here == there && ours.code == Some(0) && theirs.code == Some(0) && ours.stderr.is_empty() {
        return None;
    }
    let only = |a: &[String], b: &[String]| a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>();
    Some(format!(
        "--- {line}\nours only: {:#?}\ntheirs only: {:#?}\n{:?} {:?}\n{}",
        only(&here, &there),
        only(&there, &here),
        ours.code,
        theirs.code,
        ours.stderr
    ))
}

#[test]
fn it_prints_what_netperf_prints() {
    let Some(lab) = Lab::new() else { return };
    // What is printed may depend on luck: whether three runs agree, whether a tick of the clock was seen.
    let wrong = |line: &&str| (0..3).map_while(|_| difference(&lab, line)).nth(2);
    let wrong: Vec<String> = LINES.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_stops_before_a_test_is_netperfs_kind() {
    let Some(lab) = Lab::new() else { return };
    for line in [
        "-Q",
        "-l",
        "-h",
        "-V",
        "-I 90",
        "-- -h",
        "-- -k ?",
        "-- -O ?",
        "-- -o /no/such/file",
        "-H 127.0.0.1 -t NOSUCH",
        "-H 127.0.0.1 -p 9",
        "-H 127.0.0.1 -6",
        "-H 127.0.0.1 -t LOC_CPU",
        "-H 127.0.0.1 -t LOC_CPU -v 2",
        "-H 127.0.0.1 -t REM_CPU",
        "-H 127.0.0.1 -t REM_CPU -v 2",
    ] {
        let (ours, theirs) = (lab.ours(line), lab.theirs(line));
        assert_eq!(ours.code, theirs.code, "{line}: {} {}", ours.stdout, ours.stderr);
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        // The version and the sentences of errors are ours.
        if !["-V", "-I 90", "-- -o /no/such/file", "-H 127.0.0.1 -6"].contains(&line) {
            assert_eq!(first(&ours.stdout), first(&theirs.stdout), "{line}");
        }
        assert_eq!(first(&ours.stderr), first(&theirs.stderr), "{line}");
        if line.ends_with('?') {
            assert_eq!(ours.stdout, theirs.stdout, "{line}");
        }
    }
    let complaint = lab.ours("-H 127.0.0.1 -l -1000 -P 0 -v 0 -- -x");
    assert_eq!((complaint.code, complaint.stderr.as_str()), (Some(0), "netperf: invalid option -- 'x'\n"));
    // Too short for the sender at the far end, which counts seconds.
    let refused = lab.ours("-H 127.0.0.1 -t TCP_MAERTS -l 0.5");
    assert_eq!(refused.code, Some(255));
    assert!(refused.stdout.contains("-l: "), "{}", refused.stdout);
}

/// flent looks whether its options are known, and kills the program after a tenth of a second.
#[test]
fn flents_probe_is_silent_on_standard_error() {
    let Some(lab) = Lab::new() else { return };
    let ran = lab.ours("-p 1 -l 1 -D -0.2 -- -e 1");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(255), ""));
    assert!(!ran.stdout.contains("Demo Mode not configured"), "{}", ran.stdout);
}

#[test]
fn interim_results_have_three_forms() {
    let Some(lab) = Lab::new() else { return };
    let line = "-H 127.0.0.1 -D -0.20 -l 1 -P 0";
    for (line, lines_each) in [
        (format!("{line} -v 0 -- -k THROUGHPUT"), 4),
        (format!("{line} -- -o THROUGHPUT"), 1),
        (format!("{line} -t TCP_RR"), 1),
    ] {
        let (ours, theirs) = (lab.ours(&line), lab.theirs(&line));
        let first = |ran: &Ran| masked(&ran.stdout).lines().take(lines_each).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(first(&ours), first(&theirs), "{line}");
    }
    // The time axis of flent: the ends of the intervals, which add up to the test.
    let ran = lab.ours(&format!("{line} -t UDP_RR -- -e 1 -k ELAPSED_TIME"));
    let numbers = |name: &str| -> Vec<f64> {
        let values = ran.stdout.lines().filter_map(|line| line.split_once('='));
        values.filter(|(key, _)| key.starts_with(name)).map(|(_, value)| value.parse().unwrap()).collect()
    };
    let (lengths, ends) = (numbers("NETPERF_INTERVAL["), numbers("NETPERF_ENDING["));
    assert!(lengths.len() >= 2 && lengths.len() == ends.len(), "{}", ran.stdout);
    for (length, pair) in lengths[1..].iter().zip(ends.windows(2)) {
        assert!((pair[1] - pair[0] - length).abs() < 0.002, "{}", ran.stdout);
    }
    let elapsed = numbers("ELAPSED_TIME")[0];
    assert!((lengths.iter().sum::<f64>() - elapsed).abs() < 0.02, "{}", ran.stdout);
}

/// Starts a long test, sends it a signal once it has an interim result, and waits for its end. Returns how it ended and what it
/// printed afterwards.
fn stopped(lab: &Lab, line: &str, by: Signal) -> (Ran, String) {
    let line = format!("-H 127.0.0.1 -l 300 -P 0 -D 0.05 {line}");
    let mut child = lab.command(&lab.folder.name("netperf"), &line).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("an interim result");
    assert!(first.starts_with("Interim result: "), "{first}");
    signal(&child, by);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    let results = rest.lines().filter(|line| !line.starts_with("Interim result: "));
    let results = results.map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    (end(child), results)
}

#[test]
fn an_interrupt_or_an_alarm_ends_a_test_whole() {
    let Some(lab) = Lab::new() else { return };
    for (line, by) in [("", Signal::SIGINT), ("-t TCP_RR", Signal::SIGALRM), ("-t UDP_RR", Signal::SIGINT)] {
        let (ran, results) = stopped(&lab, line, by);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{line}");
        let words: Vec<&str> = results.split_whitespace().collect();
        let elapsed = if line.is_empty() { words[3] } else { words[4] };
        assert!(elapsed.parse::<f64>().unwrap() < 300.0, "{line}: {results}");
    }
    let (ran, results) = stopped(&lab, "", Signal::SIGTERM);
    assert_eq!((ran.code, results.as_str()), (None, ""), "no handler, no results");
}

/// Bytes and calls of both programs agree, and the figures follow from them.
#[test]
fn both_ends_count_the_same() {
    let Some(lab) = Lab::new() else { return };
    let names = "THROUGHPUT,ELAPSED_TIME,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,REMOTE_BYTES_SENT,REMOTE_BYTES_RECVD,LOCAL_SEND_CALLS,\
                 REMOTE_RECV_CALLS,TRANSACTION_RATE";
    let of = |line: &str| {
        let ran = lab.ours(&format!("-H 127.0.0.1 -P 0 {line} -k {names}"));
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stdout);
        let pairs = ran.stdout.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap())).collect::<HashMap<_, _>>()
    };
    let stream = of("-l 1 --");
    assert_eq!(stream["LOCAL_BYTES_SENT"].to_bits(), stream["REMOTE_BYTES_RECVD"].to_bits());
    let rate = stream["REMOTE_BYTES_RECVD"] * 8e-6 / stream["ELAPSED_TIME"];
    assert!((rate / stream["THROUGHPUT"] - 1.0).abs() < 0.01, "{stream:?}");
    let counted = of("-l -100000000 --");
    assert!(counted["REMOTE_BYTES_RECVD"] >= 1e8, "{counted:?}");
    let trips = of("-t TCP_RR -l -1000 -- -r 100,300");
    assert_eq!((trips["LOCAL_BYTES_SENT"], trips["LOCAL_BYTES_RECVD"]), (1e5, 3e5), "{trips:?}");
    assert_eq!((trips["REMOTE_BYTES_SENT"], trips["REMOTE_BYTES_RECVD"]), (3e5, 1e5), "{trips:?}");
    let datagrams = of("-t UDP_STREAM -l 1 -- -m 1400");
    assert!(datagrams["REMOTE_RECV_CALLS"] <= datagrams["LOCAL_SEND_CALLS"], "{datagrams:?}");
    assert!((datagrams["LOCAL_BYTES_SENT"] - 1400.0 * datagrams["LOCAL_SEND_CALLS"]).abs() < 0.5, "{datagrams:?}");
}

#[test]
fn options_reach_the_far_end_and_the_environment_is_heard() {
    let Some(lab) = Lab::new() else { return };
    let mut command = lab.command(&lab.folder.name("netperf"), "-H ::1 -l -100000 -P 0 -- -k DEST_FAMILY,DEST_ADDR");
    let ran: Ran = command.env("DUMP_TCP_INFO", "1").output().unwrap().into();
    assert_eq!(ran.stdout, "DEST_FAMILY=10\nDEST_ADDR=::1\n");
    // flent reads pairs of a name and a whole number.
    for line in ran.stderr.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(line.starts_with("tcpi_") && words.len().is_multiple_of(2), "{line}");
        assert!(words.chunks(2).all(|pair| pair[1].parse::<u64>().is_ok()), "{line}");
    }
    assert_eq!(ran.stderr.lines().count(), 3, "{}", ran.stderr);
    let filled = lab.folder.name("fill");
    std::fs::write(&filled, vec![1; 20_000]).unwrap();
    let ran = lab.ours(&format!("-H 127.0.0.1 -F {filled} -l -100000 -P 0 -- -k LOCAL_FILL_FILE"));
    assert_eq!(ran.stdout, format!("LOCAL_FILL_FILE={filled}\n"));
    let ran = lab.ours("-H 127.0.0.1 -F /dev/urandom -l -100000 -P 0 -v 0 -s 0");
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let ran = lab.ours("-H 127.0.0.1 -i 3,3 -I 95,50 -l -1000000 -P 0 -- -k CONFIDENCE_ITERATION,CONFIDENCE_LEVEL");
    assert_eq!(ran.stdout, "CONFIDENCE_ITERATION=3\nCONFIDENCE_LEVEL=95\n");
}

#[test]
fn import_reads_back_every_form() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.folder.name("out.txt");
    for (line, workload) in [
        ("-l -2000000", "tcp_stream"),
        ("-l -2000000 -v 2 -c -C", "tcp_stream"),
        ("-l -2000000 -t TCP_MAERTS", "tcp_maerts"),
        ("-l -500 -t TCP_RR", "tcp_rr"),
        ("-l -500 -t TCP_RR -c -C -v 2", "tcp_rr"),
        ("-l -50 -t TCP_CRR", "tcp_crr"),
        ("-l -50 -t TCP_CC", "tcp_cc"),
        ("-l 0.2 -t UDP_STREAM", "udp_stream"),
        ("-l -500 -t UDP_RR", "udp_rr"),
        ("-l -2000000 -- -k", "tcp_stream"),
        ("-l -2000000 -- -o", "tcp_stream"),
        ("-l -2000000 -- -O", "tcp_stream"),
        ("-P 0 -l -2000000 -- -k all", "tcp_stream"),
        ("-l -500 -t TCP_RR -- -o all", "tcp_rr"),
        ("-l -500 -t TCP_RR -- -O all", "tcp_rr"),
        ("-l 0.5 -D 0.1", "tcp_stream"),
        ("-l 0.5 -D 0.1 -- -k", "tcp_stream"),
        ("-l 0.5 -D 0.1 -- -o", "tcp_stream"),
    ] {
        let ran = lab.ours(&format!("-H 127.0.0.1 {line}"));
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stdout);
        std::fs::write(&file, &ran.stdout).unwrap();
        let imported = plumb(&["import", &file]);
        assert_eq!(imported.code, Some(0), "{line}: {}\n{}", imported.stderr, ran.stdout);
        let rows = parse(&imported.stdout);
        let row = rows.iter().find(|row| row["record"] == "iteration").expect("a result");
        assert_eq!(row["workload"], workload, "{line}");
        let rate = if workload.ends_with('c') || workload.ends_with("rr") {
            "transactions_per_s"
        } else {
            "throughput_bits_per_s"
        };
        assert!(number(row, rate) > 0.0, "{line}: {row:?}");
        if line.contains("-D") {
            assert!(rows.iter().any(|row| row["record"] == "interval"), "{line}: {}", ran.stdout);
        }
    }
}

/// Our own daemon is as good a far end, and a passphrase that nobody asks for does no harm.
#[test]
fn it_talks_to_our_daemon() {
    let Some(lab) = Lab::new() else { return };
    let mut daemon = lab.command(env!("CARGO_BIN_EXE_plumb"), "serve --listen 127.0.0.1:0 --also netperf=12900");
    let mut daemon = daemon.spawn().expect("it starts");
    until("it listens", || lab.namespace.read("ss", &["-tlnH"]).contains(":12900"));
    for line in
        ["-l -2000000", "-t TCP_MAERTS -l -2000000", "-t TCP_RR -l -500", "-t TCP_CRR -l -50", "-t UDP_RR -l -500"]
    {
        let ran = lab.ours(&format!("-H 127.0.0.1 -p 12900 -Z secret -P 0 {line} -- -k THROUGHPUT,REMOTE_BYTES_XFERD"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{line}: {}", ran.stdout);
        let moved = ran.stdout.lines().find_map(|line| line.strip_prefix("REMOTE_BYTES_XFERD=")).unwrap();
        assert!(moved.parse::<u64>().unwrap() >= 50, "{line}: {}", ran.stdout);
    }
    signal(&daemon, Signal::SIGTERM);
    daemon.wait().expect("it ends");
}

/// Without a control connection the far end is any service; here one that echoes.
#[test]
fn a_service_needs_no_server_of_netperfs() {
    let Some(lab) = Lab::new() else { return };
    let mut echo = lab.namespace.command("python3");
    let script = "import socketserver\nclass E(socketserver.BaseRequestHandler):\n def handle(self):\n  while True:\n   \
                  d = self.request.recv(65536)\n   if not d: break\n   self.request.sendall(d)\n\
                  socketserver.ThreadingTCPServer(('127.0.0.1', 7007), E).serve_forever()";
    let mut echo = echo.args(["-c", script]).spawn().expect("python3 starts");
    until("it listens", || lab.namespace.read("ss", &["-tlnH"]).contains(":7007"));
    let ran = lab.ours(
        "-N -H 127.0.0.1 -l -500 -t TCP_RR -- -P ,7007 -r 8 -k TRANSACTION_RATE,LOCAL_BYTES_RECVD,REMOTE_BYTES_SENT",
    );
    echo.kill().expect("it runs");
    echo.wait().expect("it ends");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("MIGRATED TCP REQUEST/RESPONSE TEST"), "{}", ran.stdout);
    assert!(ran.stdout.contains(" port 7007 AF_INET : no control : demo : first burst 0\n"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("LOCAL_BYTES_RECVD=4000\nREMOTE_BYTES_SENT=-1\n"), "{}", ran.stdout);
}

#[test]
fn the_examples_of_the_help_run() {
    let Some(lab) = Lab::new() else { return };
    let help = plumb(&["netperf", "--help"]);
    assert_eq!(help.code, Some(0), "{}", help.stderr);
    let examples = help.stdout.lines().filter_map(|line| line.strip_prefix("  plumb netperf "));
    let lines: Vec<String> =
        examples.map(|line| line.replace("10.0.0.9", "127.0.0.1").replace("-l 5", "-l 1")).collect();
    assert_eq!(lines.len(), 3, "{}", help.stdout);
    for line in lines {
        // By the subcommand's name, and shorter; the last `-l` counts.
        let ran: Ran =
            lab.command(env!("CARGO_BIN_EXE_plumb"), &format!("netperf -l 1 {line}")).output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{line}: {}", ran.stdout);
        assert!(!ran.stdout.is_empty(), "{line}");
    }
}
