//! Latency under load against other witnesses: the bytes in the queue of a token bucket, and irtt.

use std::{
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::{
    needs::has_program,
    netns::Pair,
    program::{Folder, Ran, Row, number, of, parse, until},
};

/// Rate of the token bucket.
pub const RATE: &str = "20mbit";
const BITS_PER_S: f64 = 20e6;

/// Begins to run a test of this link in the near namespace.
fn start(pair: &Pair, hosts: &str, test: &str) -> (Folder, Child) {
    pair.start(hosts, &format!("{{to: far, interval: 1s, socket: {{congestion_control: cubic}}, {test}}}"))
}

/// The measured row of a member, both directions together.
fn row_of<'a>(rows: &'a [Row], member: &str) -> &'a Row {
    let is_whole = |row: &&&Row| row["member"] == member && row["phase"] == "measure";
    of(rows, "iteration").iter().find(is_whole).unwrap_or_else(|| panic!("no row of {member}"))
}

fn rows(ran: &Ran) -> Vec<Row> {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    parse(&ran.stdout)
}

/// Bytes in the near end's queue.
fn backlog(pair: &Pair) -> f64 {
    let text = pair.near.read("tc", &["-s", "qdisc", "show", "dev", "data"]);
    let bytes = text.split("backlog ").nth(1).unwrap().split('b').next().unwrap();
    let (number, factor) = match bytes.strip_suffix('K') {
        Some(kib) => (kib, 1024.0),
        None => (bytes, 1.0),
    };
    number.parse::<f64>().unwrap() * factor
}

/// Seconds of the wall clock, and the bytes in the queue then.
pub type Reading = (f64, f64);

/// Waits for a run; returns what the queue held meanwhile, too.
pub fn witnessed(pair: &Pair, child: Child) -> (Ran, Vec<Reading>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut read = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let bytes = backlog(pair);
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                read.push((now.as_secs_f64(), bytes));
                // Each reading starts a program, which delays what the queue is filled by.
                thread::sleep(Duration::from_millis(100));
            }
            read
        });
        let ran = crate::program::end(child);
        over.store(true, Ordering::Relaxed);
        (ran, reading.join().unwrap())
    })
}

/// Runs the upload phase; returns its rows, and what the queue held meanwhile.
fn upload(queue: &str) -> Option<(Vec<Row>, Vec<Reading>)> {
    let pair = Pair::new()?;
    if !pair.limit(RATE, queue) {
        return None;
    }
    let (_serve, hosts) = pair.serve();
    let test = "workload: responsiveness, direction: forward, warmup: 3s, duration: 8s";
    let (_folder, child) = start(&pair, &hosts, test);
    let (ran, read) = witnessed(&pair, child);
    Some((rows(&ran), read))
}

/// Time that the queue took while a row was measured, microseconds.
pub fn queue_us(read: &[Reading], row: &Row) -> f64 {
    let (end, length) = (seconds(&row["time"]), number(row, "elapsed_s"));
    let inside = read.iter().filter(|(at, _)| (end - length..end).contains(at)).map(|(_, bytes)| *bytes);
    median(inside.collect()) * 8.0 / BITS_PER_S * 1e6
}

fn seconds(time: &str) -> f64 {
    let time = chrono::DateTime::parse_from_rfc3339(time).unwrap();
    time.timestamp_micros() as f64 / 1e6
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_added_latency_is_the_bytes_of_the_queue_over_its_rate() {
    let Some((rows, read)) = upload("400ms") else { return };
    for probe in ["upload-udp", "upload-tcp"] {
        let row = row_of(&rows, probe);
        let expected_us = queue_us(&read, row);
        let added_us = number(row, "added_latency_p50_us");
        assert!(expected_us > 50_000.0, "the queue was never full: {expected_us} µs");
        assert!(
            (added_us / expected_us - 1.0).abs() < 0.1,
            "{probe}: {added_us} µs added, the queue takes {expected_us} µs"
        );
        let idle = row_of(&rows, &probe.replace("upload", "idle"));
        let difference = number(row, "latency_p95_us") - number(idle, "latency_p95_us");
        assert!((difference - number(row, "added_latency_p95_us")).abs() < 1e-6);
        // Behind that queue a minute has fewer than 60 s over the added time.
        let rpm = number(row, "round_trips_per_min");
        assert!(rpm < number(idle, "round_trips_per_min") / 10.0, "{rpm}");
        for column in ["load_confidence", "responsiveness_confidence"] {
            assert!(["medium", "high"].contains(&row[column].as_str()), "{column}: {}", row[column]);
        }
    }
    let Some((short, _)) = upload("20ms") else { return };
    let added = |rows: &[Row]| number(row_of(rows, "upload-tcp"), "added_latency_p50_us");
    assert!(added(&short) < added(&rows) / 3.0, "a short queue: {} µs, a deep one: {}", added(&short), added(&rows));
}

#[test]
fn irtt_sees_the_same_delay_beside_the_same_load() {
    if !has_program("irtt", "irtt") {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    if !pair.limit(RATE, "100ms") {
        return;
    }
    let (_serve, hosts) = pair.serve();
    let server = irtt_server(&pair);
    let members = "load: {workload: tcp_stream, streams: 2}, probe: {workload: udp_rr, inflight: 4}";
    let test =
        format!("warmup: 2s, duration: 8s, rate: ~, concurrent: {{start: {{max_skew: 1s}}, members: {{{members}}}}}");
    let (_folder, child) = start(&pair, &hosts, &test);
    until("the queue is full", || backlog(&pair) * 8.0 / BITS_PER_S > 0.08);
    thread::sleep(Duration::from_secs(2));
    // Both ask the same queue, turn by turn, for as long as the load lasts.
    let asked = pair.near.read("irtt", &["client", "-Q", "-i", "20ms", "-d", "6s", "-o", "-", Pair::FAR]);
    let told: Value = serde_json::from_str(&asked).unwrap();
    let irtt_us = told.pointer("/stats/rtt/median").and_then(Value::as_f64).expect("a median") / 1e3;
    let rows = rows(&crate::program::end(child));
    drop(server);
    let ours_us = number(row_of(&rows, "probe"), "latency_p50_us");
    assert!((ours_us / irtt_us - 1.0).abs() < 0.1, "ours: {ours_us} µs, irtt: {irtt_us} µs");
}

/// Both see the same requests' delay above the least one, which stems from a time without the load, and ask at the same times. irtt knows
/// the delays of both directions, since both ends have one clock here.
#[test]
fn irtt_sees_the_same_variation_of_the_full_direction() {
    if !has_program("irtt", "irtt") {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    if !pair.limit(RATE, "100ms") {
        return;
    }
    let (_serve, hosts) = pair.serve();
    let server = irtt_server(&pair);
    let mut client = pair.near.command("irtt");
    client.args(["client", "-Q", "-i", "20ms", "-d", "13s", "-o", "-", Pair::FAR]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let members = "load: {workload: tcp_stream, streams: 2, after: 2s, warmup: 1s, duration: 6s}, \
                   probe: {workload: udp_rr, one_way: true, rate: 50/s, pacing: {catch_up: 0}, warmup: 3s, duration: 6s}";
    let test = format!("concurrent: {{start: {{max_skew: 1s}}, members: {{{members}}}}}");
    let (_folder, child) = start(&pair, &hosts, &test);
    let rows = rows(&crate::program::end(child));
    let told: Value = serde_json::from_slice(&client.wait_with_output().unwrap().stdout).unwrap();
    drop(server);
    let row = row_of(&rows, "probe");
    let (end, length) = (seconds(&row["time"]), number(row, "elapsed_s"));
    let trip = |trip: &Value| {
        let of = |path: &str| trip.pointer(path).and_then(Value::as_f64);
        // Nanoseconds; a lost one has no delay.
        Some((of("/timestamps/client/send/wall")? / 1e9, of("/delay/send")? / 1e3))
    };
    let trips: Vec<(f64, f64)> = told["round_trips"].as_array().unwrap().iter().filter_map(trip).collect();
    let least_us = trips.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
    let inside: Vec<f64> = trips.into_iter().filter(|(at, _)| (end - length..end).contains(at)).map(|t| t.1).collect();
    assert!(inside.len() > 200, "irtt has seen {} of the requests", inside.len());
    let (ours_us, irtt_us) = (number(row, "forward_variation_p50_us"), median(inside) - least_us);
    assert!(irtt_us > 50_000.0, "the queue was never full: {irtt_us} µs");
    assert!((ours_us / irtt_us - 1.0).abs() < 0.1, "ours: {ours_us} µs, irtt: {irtt_us} µs");
}

/// irtt's server at the far end.
fn irtt_server(pair: &Pair) -> Ended {
    let mut server = pair.far.command("irtt");
    server.args(["server", "-b", Pair::FAR]).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Ended(server.spawn().unwrap());
    until("irtt listens", || pair.far.read("ss", &["-Hlun", "sport = :2112"]).contains(Pair::FAR));
    server
}

/// A server that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
