//! Contents of the buffers, as an independent socket sees them: the bytes of every datagram.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

use crate::program::{Folder, number, of, parse, plumb};

/// Its period is that of no message and no ring.
fn contents() -> Vec<u8> {
    (0..=250).cycle().take(5000).collect()
}

/// A socket that keeps everything it receives, and sends it back if `echoes`.
fn ears(echoes: bool) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let keeps = heard.clone();
    // Ends with the test's process.
    thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            keeps.lock().unwrap().push(buffer[..n].to_vec());
            if echoes {
                // The sender may have left.
                let _ = socket.send_to(&buffer[..n], from);
            }
        }
    });
    (port, heard)
}

/// Message `n` must be buffer `n` of a ring of 7 that holds the file. Each buffer is dirtied before it is sent: 30
/// bytes of it, after the engine's `stamp` bytes.
fn must_be_of_ring(message: &[u8], stamp: usize) -> usize {
    let first = u64::from_le_bytes(message[..8].try_into().unwrap());
    // The upper two bits of a stream's number are the phase.
    let number = usize::try_from(first & ((1 << 62) - 1)).unwrap();
    let (place, turns) = (number % 7, u8::try_from((number / 7 + 1) % 256).unwrap());
    let mut expected = contents()[place * message.len()..][..message.len()].to_vec();
    expected[stamp..stamp + 30].iter_mut().for_each(|byte| *byte = byte.wrapping_add(turns));
    assert_eq!(message[stamp..], expected[stamp..], "message {number}");
    place
}

#[test]
fn datagrams_leave_from_the_ring_in_order_and_dirtied() {
    let folder = Folder::new();
    std::fs::write(folder.path("fill"), contents()).unwrap();
    let buffers = format!(
        "buffers: {{ring: 7, dirty: 30, clean: 40, alignment: 64, offset: 5, fill_file: {}}}",
        folder.name("fill")
    );
    for (stamp, body) in [
        (16, "workload: udp_stream, rate: 3000/s, message_size: 100"),
        (16, "workload: udp_stream, rate: 3000/s, message_size: 100, io: blocking"),
        (16, "workload: udp_stream, rate: 3000/s, message_size: 100, pacing: {burst: 10}"),
        (16, "workload: udp_stream, rate: 3000/s, message_size: 100, pacing: {burst: 10}, socket: {gso: 5}"),
        (16, "workload: udp_stream, rate: 3000/s, message_size: 100, streams: 3, threads: 1"),
        (8, "workload: udp_rr, request_size: 100, response_size: 100"),
        (8, "workload: udp_rr, request_size: 100, response_size: 100, inflight: 5, streams: 2, threads: 1"),
    ] {
        let (port, heard) = ears(stamp == 8);
        // By a count: a machine that stands still delays it.
        let stop = if stamp == 8 { "transactions: 100" } else { "bytes: 60kB" };
        let plan = folder.plan(
            "hosts: {service: {address: 127.0.0.1}}",
            &format!("  it: {{to: service, control: none, remote_ports: {port}, {stop}, {buffers}, {body}}}"),
        );
        let ran = plumb(&["run", &plan, "--progress", "never"]);
        assert_eq!(ran.code, Some(0), "{body}: {}", ran.stderr);
        let rows = parse(&ran.stdout);
        let row = of(&rows, "iteration")[0];
        let heard = heard.lock().unwrap();
        let done = if stamp == 8 { "transactions" } else { "messages_sent" };
        assert!(number(row, done) > 7.0, "{body}: {} {done}", row[done]);
        let places: std::collections::BTreeSet<_> =
            heard.iter().map(|message| must_be_of_ring(message, stamp)).collect();
        assert_eq!(places.len(), 7, "{body}: {} datagrams came from {places:?}", heard.len());
    }
}

#[test]
fn every_datagram_of_a_ring_is_checked_at_the_other_end() {
    let folder = Folder::new();
    let plan = folder.plan(
        "defaults: {integrity: true, buffers: {ring: 40, offset: 9, clean: 1000}, remote_buffers: {ring: 3}}",
        "  stream: {workload: udp_stream, message_size: 1400, rate: 3000/s, bytes: 840kB, assert: [messages_received > 0]}\n  \
         back: {workload: udp_maerts, message_size: 1400, rate: 3000/s, bytes: 840kB, assert: [messages_received > 0]}\n  \
         answers: {workload: udp_rr, request_size: 100, response_size: 200, inflight: 4, transactions: 500, assert: [transactions > 0]}",
    );
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let plan = folder.plan("", "  it: {workload: udp_stream, message_size: 7, integrity: true, buffers: {ring: 2}}");
    let ran = plumb(&["check", &plan]);
    assert_eq!(ran.code, Some(2));
    assert!(
        (ran.stdout.clone() + &ran.stderr).contains("less than 8 bytes has no room for the number"),
        "{}",
        ran.stdout
    );
}
