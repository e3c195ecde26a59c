//! Tests without a daemon at the far end: echo, discard and chargen (RFC 862 to 864), as small servers in this test.

use std::{
    io::{Read, Write, copy, sink},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use crate::{
    needs::skip,
    program::{Folder, despite_stalls, number, of, parse, plumb, until},
};

/// A TCP service: its port, and the bytes it has received.
fn tcp(serve: fn(TcpStream, &AtomicU64)) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let got = Arc::new(AtomicU64::new(0));
    let counter = got.clone();
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counter = counter.clone();
            thread::spawn(move || serve(stream, &counter));
        }
    });
    (port, got)
}

fn echo(mut stream: TcpStream, got: &AtomicU64) {
    let mut buffer = vec![0; 65_536];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        got.fetch_add(n as u64, Relaxed);
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

fn discard(mut stream: TcpStream, got: &AtomicU64) {
    got.fetch_add(copy(&mut stream, &mut sink()).unwrap_or(0), Relaxed);
}

fn chargen(mut stream: TcpStream, _: &AtomicU64) {
    while stream.write_all(&[b'x'; 7000]).is_ok() {}
}

/// A UDP service that answers each datagram with `answer` of it, if any.
fn udp(answer: fn(&[u8]) -> Option<Vec<u8>>) -> (u16, Arc<AtomicU64>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let got = Arc::new(AtomicU64::new(0));
    let counter = got.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            counter.fetch_add(1, Relaxed);
            if let Some(answer) = answer(&buffer[..n]) {
                // The client may have left.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    (port, got)
}

/// Runs one test against the service at that port; returns its measured row and standard error.
fn against(port: u16, body: &str) -> (std::collections::HashMap<String, String>, String) {
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!("  it: {{to: service, control: none, remote_ports: {port}, {body}}}"),
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{body}: {}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0].clone();
    assert_eq!((row["control"].as_str(), row["status"].as_str()), ("none", "ok"));
    assert!(row["remote_cpu_ratio"].is_empty() && row["remote_send_buffer_bytes"].is_empty(), "{row:?}");
    (row, ran.stderr)
}

/// CPU time of a whole run as its shell reports it, seconds.
fn cpu_seconds(plan: &str) -> f64 {
    let script = "\"$0\" run \"$1\" --progress never > /dev/null 2>&1; times";
    let output =
        std::process::Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_plumb"), plan]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // The second line is that of the children, user and system: `0m0.012s 0m0.004s`.
    let of_children = said.lines().nth(1).unwrap_or_else(|| panic!("{said:?}"));
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    of_children.split_whitespace().map(seconds).sum()
}

#[test]
fn a_paced_requester_sleeps_while_it_waits_for_an_answer() {
    let (port, got) = udp(|_| None);
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!(
            "  it: {{workload: udp_rr, io: blocking, to: service, control: none, remote_ports: {port}, rate: 10/s, \
             reply_timeout: 1s, duration: 2s}}"
        ),
    );
    let used = cpu_seconds(&plan);
    assert!(got.load(Relaxed) > 0);
    assert!(used < 0.5, "{used} s of CPU time for two seconds in which nothing came");
}

/// It would wait for ever: no answer counts.
#[test]
fn a_count_of_requests_that_nobody_answers_fails() {
    let (port, got) = udp(|_| None);
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!(
            "  it: {{workload: udp_rr, to: service, control: none, remote_ports: {port}, reply_timeout: 100ms, transactions: 5}}"
        ),
    );
    let ran = plumb(&["run", &plan]);
    assert!(got.load(Relaxed) > 0 && ran.code == Some(3), "{:?} {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("no answer from the service: is it there"), "{}", ran.stderr);
}

/// A time holds a whole number of transactions, and a rate of few is off by up to one.
#[test]
fn a_rate_of_few_transactions_is_told() {
    let (port, _) = udp(|request| {
        thread::sleep(Duration::from_millis(50));
        Some(request.to_vec())
    });
    let of = |stop: &str| against(port, &format!("workload: udp_rr, reply_timeout: 1m, {stop}")).1;
    let note = "fewer than 20 transactions while it measured: it (1 time);";
    let timed = of("duration: 500ms");
    assert!(timed.contains(note), "{timed}");
    let counted = of("transactions: 3");
    assert!(!counted.contains("fewer than"), "{counted}");
}

#[test]
fn a_discarder_takes_a_stream_and_only_what_was_sent_is_known() {
    let (port, got) = tcp(discard);
    let (row, _) = against(port, "workload: tcp_stream, message_size: 10000, bytes: 10MB, assert: [sent > 1kbit/s]");
    assert!(row["throughput_bits_per_s"].is_empty() && row["bytes_received"].is_empty(), "{row:?}");
    // The end of the stream is acknowledged, so the service has all bytes; the measurement is a part of them.
    assert!(number(&row, "bytes_sent") > 0.0);
    let all = got.load(Relaxed);
    assert!(all as f64 >= number(&row, "bytes_sent"), "{all}");
    assert_eq!(all % 10_000, 0);
}

#[test]
fn a_generator_of_characters_is_received() {
    let (port, _) = tcp(chargen);
    despite_stalls(|| {
        let (row, _) = against(port, "workload: tcp_maerts, duration: 200ms");
        assert!(number(&row, "throughput_bits_per_s") > 0.0);
        assert!(row["sent_bits_per_s"].is_empty());
    });
}

#[test]
fn an_echo_answers_requests_and_every_byte_of_it_is_checked() {
    let (port, got) = tcp(echo);
    let sizes = "request_size: 100, response_size: 100, integrity: true, transactions: 200";
    for body in ["workload: tcp_rr, inflight: 4", "workload: tcp_rr", "workload: tcp_crr, close: near_first"] {
        got.store(0, Relaxed);
        let (row, _) = against(port, &format!("{body}, {sizes}"));
        assert!(number(&row, "transactions") > 0.0, "{body}");
        assert!(number(&row, "latency_p50_us") > 0.0);
        assert!(got.load(Relaxed) as f64 >= 100.0 * number(&row, "transactions"), "{body}");
    }
    let (port, _) = udp(|datagram| Some(datagram.to_vec()));
    let (row, _) = against(port, &format!("workload: udp_rr, reply_timeout: 1m, {sizes}"));
    assert!(number(&row, "transactions") > 0.0);
    let (port, _) = udp(|datagram| Some(datagram.iter().map(|byte| byte ^ 1).collect()));
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!("  it: {{to: service, control: none, remote_ports: {port}, workload: udp_rr, transactions: 200, reply_timeout: 1m, request_size: 4, response_size: 4, integrity: true}}"),
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("wrong data: byte 0 of a response"), "{}", ran.stderr);
}

/// Contents of a fill file: its period is that of no message and no buffer.
fn contents() -> Vec<u8> {
    (0..=250).cycle().take(5000).collect()
}

#[test]
fn what_a_fill_file_holds_is_what_arrives() {
    // Counts the bytes that match the file, from its beginning to the end of each message.
    let (port, right) = tcp(|mut stream, right| {
        let (mut buffer, contents, mut at) = (vec![0; 65_536], contents(), 0);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            let same = buffer[..n].iter().filter(|byte| (**byte == contents[at], at = (at + 1) % 3000).0).count();
            right.fetch_add(same as u64, Relaxed);
        }
    });
    let folder = Folder::new();
    std::fs::write(folder.path("fill"), contents()).unwrap();
    let fill = folder.name("fill");
    for io in ["blocking", "sendfile"] {
        right.store(0, Relaxed);
        let body =
            format!("workload: tcp_stream, message_size: 3000, bytes: 9MB, io: {io}, buffers: {{fill_file: {fill}}}");
        let (row, _) = against(port, &body);
        assert!(number(&row, "bytes_sent") > 0.0);
        assert!(right.load(Relaxed) as f64 >= number(&row, "bytes_sent"), "{io}: {}", right.load(Relaxed));
    }
    let plan = folder.plan("", &format!("  it: {{workload: udp_stream, message_size: 6000, payload: {fill}}}"));
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("is too short: it has 5000 bytes, and a message 6000"), "{}", ran.stderr);
}

#[test]
fn any_host_answers_echo_requests() {
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {router: {address: 127.0.0.1}}",
        "  it: {workload: ping, to: router, control: none, transactions: 20, reply_timeout: 1m, integrity: true, assert: [lost == 0]}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    if ran.stderr.contains("ping_group_range") {
        return skip(&ran.stderr);
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    assert_eq!((row["control"].as_str(), row["transactions"].as_str(), row["lost"].as_str()), ("none", "20", "0"));
    assert_eq!(row["inflight"], "1");
    assert_eq!((row["messages_sent"].as_str(), row["messages_received"].as_str()), ("20", "20"));
}

#[test]
fn datagram_services_discard_and_generate() {
    let (port, got) = udp(|_| None);
    let (row, _) = against(port, "workload: udp_stream, message_size: 50, rate: 1000/s, bytes: 10kB");
    assert!(number(&row, "messages_sent") > 0.0 && row["lost"].is_empty(), "{row:?}");
    until("the service reads what was sent", || got.load(Relaxed) > 0);
    // A generator answers with other bytes, of any length.
    let (port, _) = udp(|_| Some(vec![b'x'; 333]));
    let (row, _) = against(port, "workload: udp_rr, request_size: 1, transactions: 200, reply_timeout: 1m");
    assert!(number(&row, "transactions") > 0.0 && number(&row, "errors") < 1.0, "{row:?}");
}

#[test]
fn a_rate_of_zero_is_not_left_without_a_word() {
    let (port, _) = udp(|_| None);
    let folder = Folder::new();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!("  it: {{to: service, control: none, remote_ports: {port}, workload: udp_rr, duration: 50ms}}"),
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = crate::program::rows(&folder.path("r.csv"));
    assert_eq!(of(&rows, "iteration")[0]["transactions"], "0");
    let note = "no transaction was finished while it measured: it (1 time);";
    assert!(ran.stdout.contains(note), "{}", ran.stdout);
}

#[test]
fn what_a_service_cannot_do_is_refused_by_name() {
    let folder = Folder::new();
    for (body, sentence) in [
        ("workload: tcp_stream, to: service", "remote_ports"),
        ("workload: tcp_stream, remote_ports: 9", "needs a host in `to`"),
        ("workload: tcp_duplex, to: service, remote_ports: 7", "the far end is unknown"),
        ("workload: tcp_rr, to: service, remote_ports: 7, response_size: 2", "response_size must equal request_size"),
        ("workload: tcp_crr, to: service, remote_ports: 7", "near_first"),
        ("workload: tcp_stream, to: service, remote_ports: 9, assert: [throughput > 1Mbit/s]", "use `sent`"),
        ("workload: unix_stream, to: service, remote_ports: 9", "over TCP and UDP"),
        ("workload: tcp_cc, to: service, remote_ports: 7, close: reset, socket: {fastopen: true}", "use tcp_crr"),
    ] {
        let plan = folder.plan("hosts: {service: {address: 127.0.0.1}}", &format!("  it: {{control: none, {body}}}"));
        let ran = plumb(&["check", &plan]);
        assert_eq!(ran.code, Some(2), "{body}");
        assert!((ran.stdout.clone() + &ran.stderr).contains(sentence), "{body}: {}{}", ran.stdout, ran.stderr);
    }
    // No service on that port.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let plan = folder.plan(
        "hosts: {service: {address: 127.0.0.1}}",
        &format!("  it: {{workload: tcp_stream, to: service, control: none, remote_ports: {port}}}"),
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains(&format!("127.0.0.1:{port}")) && ran.stderr.contains("refused"), "{}", ran.stderr);
}
