//! STAMP: the reflector of `plumb serve --also stamp`, and tests with a reflector, which may lie.

use std::{
    fs::Permissions,
    net::UdpSocket,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    needs::{has_program, skip, skip_without},
    netns::Pair,
    program::{Folder, Ran, Row, Serve, count, number, of, parse, plumb},
};

/// A daemon with a reflector, and the reflector's port.
fn reflector(ip: &str, arguments: &[&str]) -> (Serve, u16) {
    let serve = Serve::on(ip, &[&["--also", "stamp=0"], arguments].concat());
    let port = serve.said.split("stamp on ").nth(1).unwrap().split([' ', ',', '\n']).next().unwrap();
    let port = port.rsplit(':').next().unwrap().parse().unwrap();
    (serve, port)
}

/// Runs one test with the reflector at that port of loopback.
fn run(host: &str, test: &str) -> (Ran, Vec<Row>) {
    let folder = Folder::new();
    let plan = folder.plan(
        &format!("hosts: {{r: {{speaks: stamp, {host}}}}}"),
        &format!("  it: {{to: r, workload: udp_rr, {test}}}"),
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    let rows = parse(&ran.stdout);
    (ran, rows)
}

fn measured(rows: &[Row]) -> &Row {
    of(rows, "iteration").into_iter().find(|row| row["phase"] == "measure").expect("a row of the measure phase")
}

fn at(port: u16) -> String {
    format!("address: 127.0.0.1, control: \"127.0.0.1:{port}\"")
}

/// Changes an answer.
type Lie = fn(u32, &mut Vec<u8>) -> Fate;

/// A relay's treatment of an answer.
enum Fate {
    Pass,
    Twice,
    Drop,
}

/// A relay before a reflector. `forward` says of each request's number whether it goes on; `back` may change the answer.
fn relay(to: u16, forward: fn(u32) -> bool, back: Lie) -> u16 {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.connect(("127.0.0.1", to)).unwrap();
    let port = near.local_addr().unwrap().port();
    // Its threads end with the test's process.
    thread::spawn(move || {
        let mut buffer = [0; 2000];
        let (n, from) = near.recv_from(&mut buffer).unwrap();
        near.connect(from).unwrap();
        let answers = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 2000];
            while let Ok(n) = answers.1.recv(&mut buffer) {
                let mut answer = buffer[..n].to_vec();
                let number = u32::from_be_bytes(answer[24..28].try_into().unwrap());
                let times = match back(number, &mut answer) {
                    Fate::Pass => 1,
                    Fate::Twice => 2,
                    Fate::Drop => 0,
                };
                (0..times).for_each(|_| drop(answers.0.send(&answer)));
            }
        });
        let pass = |packet: &[u8]| {
            if forward(u32::from_be_bytes(packet[..4].try_into().unwrap())) {
                far.send(packet).unwrap();
            }
        };
        pass(&buffer[..n]);
        while let Ok(n) = near.recv(&mut buffer) {
            pass(&buffer[..n]);
        }
    });
    port
}

const SHORT: &str = "rate: 400/s, transactions: 100, reply_timeout: 300ms, inflight: 200, iterations: 1";

#[test]
fn a_reflector_answers_in_both_versions_of_ip_and_with_a_key() {
    let folder = Folder::new();
    let key = folder.name("key");
    assert_eq!(plumb(&["key", &key]).code, Some(0));
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let with_key = format!(", key_file: {key}");
    let in_file = ["--key-file", &key];
    for (ip, listen, arguments, key, least) in [
        ("127.0.0.1", "127.0.0.1", &[][..], "", 44),
        ("::1", "[::1]:0", &[], "", 44),
        ("127.0.0.1", "127.0.0.1", &in_file, &*with_key, 112),
    ] {
        let (_serve, port) = reflector(listen, arguments);
        let place = if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
        for bytes in [least, 400] {
            let test = format!("{SHORT}, request_size: {bytes}, one_way: true");
            let (ran, rows) = run(&format!("address: \"{ip}\", control: \"{place}\"{key}"), &test);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let row = measured(&rows);
            assert_eq!(
                (count(row, "transactions"), &*row["control"], count(row, "response_bytes")),
                (100, "stamp", bytes)
            );
            assert_eq!((&*row["one_way_clock"], count(row, "forward_ttl")), ("reflector", 255));
            assert_eq!((&*row["forward_lost"], &*row["one_way_offset_us"]), ("0", ""));
            assert!(number(row, "one_way_bound_us") >= 1.0 && number(row, "latency_p50_us") > 0.0);
        }
    }
    // The daemon's key is not that of the plan.
    let (_serve, port) = reflector("127.0.0.1", &[]);
    let (ran, _) = run(&format!("{}{with_key}", at(port)), "rate: 100/s, duration: 300ms, iterations: 1");
    assert!(ran.code == Some(3) && ran.stderr.contains("they do not prove the key"), "{}", ran.stderr);
}

/// A round trip leaves out the time that the packet was in the reflector, here 40 ms.
#[test]
fn the_reflectors_own_time_is_no_part_of_a_round_trip() {
    let (_serve, port) = reflector("127.0.0.1", &[]);
    let port = relay(
        port,
        |_| true,
        |_, answer| {
            thread::sleep(Duration::from_millis(40));
            // It says that it was received 40 ms before it was.
            let received = u64::from_be_bytes(answer[16..24].try_into().unwrap());
            let sent = u64::from_be_bytes(answer[4..12].try_into().unwrap()) + (40 << 32) / 1000;
            answer[16..24].copy_from_slice(&received.to_be_bytes());
            answer[4..12].copy_from_slice(&sent.to_be_bytes());
            Fate::Pass
        },
    );
    let (ran, rows) = run(&at(port), "rate: 10/s, transactions: 15, iterations: 1");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let row = measured(&rows);
    // Only the fastest: a machine that stands still makes the others longer.
    assert!(number(row, "latency_min_us") < 30_000.0, "{}", row["latency_min_us"]);
    assert!(number(row, "one_way_least_us") < 15_000.0);
}

#[test]
fn lost_packets_are_told_by_their_way() {
    let (_serve, port) = reflector("127.0.0.1", &[]);
    let port = relay(port, |n| n % 10 != 3, |n, _| if n % 10 == 6 || n % 10 == 8 { Fate::Drop } else { Fate::Pass });
    let (ran, rows) = run(&at(port), "rate: 400/s, transactions: 140, reply_timeout: 2s, inflight: 300, iterations: 1");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let row = measured(&rows);
    // The last of 140 answers is that to the request number 200.
    assert_eq!([count(row, "forward_lost"), count(row, "reverse_lost")], [20, 40], "{row:?}");
    assert!(!ran.stderr.contains("contradict"), "{}", ran.stderr);
}

#[test]
fn an_answer_that_cannot_be_one_is_left_out_with_a_sentence() {
    let (_serve, port) = reflector("127.0.0.1", &[]);
    let lies: [(Lie, &str); 7] = [
        (
            |_, answer| {
                answer[14] ^= 1;
                Fate::Pass
            },
            "are of another session (SSID)",
        ),
        (
            |_, answer| {
                answer[35] ^= 1;
                Fate::Pass
            },
            "another time of its sending",
        ),
        (
            |_, answer| {
                answer[27] ^= 0x80;
                Fate::Pass
            },
            "name a request that was not sent",
        ),
        (
            |_, answer| {
                answer[4..12].fill(0);
                Fate::Pass
            },
            "have times that cannot be",
        ),
        // It claims to have had the packet for two seconds.
        (
            |_, answer| {
                answer[19] = answer[19].wrapping_sub(2);
                Fate::Pass
            },
            "have times that cannot be",
        ),
        (
            |_, answer| {
                answer.truncate(30);
                Fate::Pass
            },
            "are too short",
        ),
        (|_, _| Fate::Drop, "does a firewall let UDP through"),
    ];
    for (lie, sentence) in lies {
        let (ran, _) =
            run(&at(relay(port, |_| true, lie)), "rate: 100/s, duration: 200ms, reply_timeout: 200ms, iterations: 1");
        assert!(ran.code == Some(3) && ran.stderr.contains(sentence), "{sentence}: {:?} {}", ran.code, ran.stderr);
    }
    // Every second one is a lie: the others count, and are as good as without.
    let half = relay(
        port,
        |_| true,
        |n, answer| {
            answer[14] ^= u8::from(n % 2 == 0);
            Fate::Pass
        },
    );
    let (ran, rows) = run(&at(half), &SHORT.replace("transactions: 100", "transactions: 50"));
    assert!(ran.code == Some(0) && ran.stderr.contains("are of another session (SSID)"), "{}", ran.stderr);
    assert_eq!(count(measured(&rows), "transactions"), 50);
}

#[test]
fn more_answers_than_requests_and_numbers_that_contradict_them_are_noticed() {
    let (_serve, port) = reflector("127.0.0.1", &[]);
    let (ran, rows) = run(&at(relay(port, |_| true, |_, _| Fate::Twice)), SHORT);
    assert!(ran.code == Some(0) && ran.stderr.contains("they came a second time"), "{}", ran.stderr);
    assert_eq!(count(measured(&rows), "transactions"), 100);
    assert_eq!([&*measured(&rows)["forward_lost"], &*measured(&rows)["reverse_lost"]], ["0", "0"]);
    let restless = relay(
        port,
        |_| true,
        |n, answer| {
            answer[..4].copy_from_slice(&(n * 7).to_be_bytes());
            Fate::Pass
        },
    );
    let (ran, rows) = run(&at(restless), SHORT);
    assert!(ran.code == Some(0) && ran.stderr.contains("contradict the requests"), "{}", ran.stderr);
    assert_eq!(measured(&rows)["forward_lost"], "");
}

/// It would wait for ever for its count.
#[test]
fn a_test_that_stops_by_a_count_fails_if_nobody_answers() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (ran, _) = run(&at(silent.local_addr().unwrap().port()), "rate: 100/s, transactions: 5, iterations: 1");
    assert!(ran.code == Some(3) && ran.stderr.contains("no answer from the reflector"), "{}", ran.stderr);
}

/// Answers from another port, as those of a stranger, are not heard.
#[test]
fn an_answer_from_another_address_is_none() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer = [0; 2000];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let _ = other.send_to(&buffer[..n], from);
        }
    });
    let (ran, _) = run(&at(port), "rate: 100/s, duration: 200ms, reply_timeout: 200ms, iterations: 1");
    assert!(ran.code == Some(3) && ran.stderr.contains("answers from another address"), "{}", ran.stderr);
}

/// The far end has clocks of its own, and a path with loss in one direction.
#[test]
fn two_hosts_with_clocks_of_their_own() {
    let Some(pair) = Pair::new() else { return };
    let made = Command::new("unshare").args(["-T", "true"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("no time namespace can be made here");
        return;
    }
    let mut serve = pair.far.command("unshare");
    serve.args(["-T", "--monotonic", "5000", "--kill-child", env!("CARGO_BIN_EXE_plumb"), "serve", "--also", "stamp"]);
    serve.args(["--listen", &format!("{}:12864", Pair::FAR), "--allow", "10.0.0.0/8"]);
    let _serve = Serve::of({
        serve.stdout(Stdio::piped()).stderr(Stdio::null());
        serve
    });
    let folder = Folder::new();
    let hosts = format!("hosts: {{r: {{address: {}, speaks: stamp}}}}", Pair::FAR);
    let plan = folder
        .plan(&hosts, "  it: {workload: udp_rr, to: r, rate: 500/s, transactions: 300, outage: 100ms, iterations: 1}");
    let mut run = pair.near.command(env!("CARGO_BIN_EXE_plumb"));
    let ran = Ran::from(run.args(["run", &plan, "--progress", "never"]).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = measured(&rows);
    assert_eq!((&*row["one_way_clock"], count(row, "forward_ttl")), ("reflector", 255));
    let bound = number(row, "one_way_bound_us");
    for cell in ["forward_delay_min_us", "forward_delay_p99_us", "reverse_delay_p50_us"] {
        assert!(row[cell].is_empty() || number(row, cell) >= bound, "{cell} {} ± {bound}", row[cell]);
    }
    assert!(number(row, "forward_variation_p50_us") >= 0.0 && !row["outages"].is_empty());
}

/// Scapy's layers for STAMP read what both of our ends write, and write it again to the byte.
#[test]
fn scapy_reads_both_ends() {
    const READ: &str = "import sys
from scapy.contrib.stamp import STAMPSessionSenderTestUnauthenticated as S, STAMPSessionReflectorTestUnauthenticated as R
a, b = (bytes.fromhex(word) for word in sys.argv[1:])
p, q = S(a), R(b)
assert bytes(p) == a and bytes(q) == b
assert p.mbz == 0 and q.mbz1 == 0 and q.mbz2 == 0 and p.err_estimate.multiplier > 0 and q.err_estimate.multiplier > 0
assert bytes(q.err_estimate_sender) == bytes(p.err_estimate) and q.ts_sender == p.ts and 0 <= q.ts - q.ts_rx < 5 and 0 <= q.ts_rx - p.ts < 5
print(p.seq, q.seq, q.seq_sender, p.ssid == q.ssid, q.ttl_sender, [(int(t.flags), t.type, t.len) for t in p.tlv_objects + q.tlv_objects])";
    if !has_program("python3", "python3-venv") {
        return;
    }
    let tool = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/tool")).arg("scapy").output().unwrap();
    if !tool.status.success() {
        skip_without("scapy", &String::from_utf8_lossy(&tool.stderr));
        return;
    }
    let python = format!("{}/python", String::from_utf8_lossy(&tool.stdout).trim());
    let (_serve, port) = reflector("127.0.0.1", &[]);
    // The first request of a test, which this socket takes, and the reflector's answer to it.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    taken.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let here = taken.local_addr().unwrap().port();
    let sender =
        thread::spawn(move || run(&at(here), "rate: 10/s, duration: 300ms, request_size: 60, reply_timeout: 100ms"));
    let mut request = [0; 2000];
    let n = taken.recv(&mut request).unwrap();
    sender.join().unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    near.connect(("127.0.0.1", port)).unwrap();
    near.send(&request[..n]).unwrap();
    let mut answer = [0; 2000];
    let m = near.recv(&mut answer).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let read = Command::new(python).args(["-c", READ, &hex(&request[..n]), &hex(&answer[..m])]).output().unwrap();
    let said = String::from_utf8_lossy(&read.stdout);
    // The TTL is that of this test's socket.
    assert_eq!(said.trim(), "1 0 1 True 64 [(128, 1, 12), (0, 1, 12)]", "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn what_no_reflector_does_is_refused() {
    for (test, says) in [
        ("workload: udp_rr, duration: 1s", "asked at a rate"),
        ("workload: tcp_rr, rate: 10/s, duration: 1s", "answers the requests of udp_rr"),
        ("workload: udp_rr, rate: 10/s, request_size: 43, duration: 1s", "at least 44 bytes"),
        ("workload: udp_rr, rate: 10/s, request_size: 46, duration: 1s", "44 bytes, or 48 and more"),
        ("workload: udp_rr, rate: 10/s, response_size: 100, duration: 1s", "as long as its request"),
        ("workload: udp_rr, rate: 10/s, one_way: false, duration: 1s", "always carry their times"),
        ("workload: udp_rr, rate: 10/s, integrity: true, duration: 1s", "writes into the packets"),
        ("workload: udp_rr, rate: 1M/s, duration: 1h", "numbers of packets have 32 bits"),
        ("workload: udp_rr, rate: 10/s, connected: false, duration: 1s", "leave `connected` out"),
        ("workload: udp_rr, rate: 10/s, duration: 1s, assert: [throughput > 1Mbit/s]", "with a reflector"),
    ] {
        let folder = Folder::new();
        let plan = folder.plan("hosts: {r: {address: 192.0.2.1, speaks: stamp}}", &format!("  it: {{to: r, {test}}}"));
        let ran = plumb(&["check", &plan]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{test}: {:?} {}", ran.code, ran.stderr);
    }
}
