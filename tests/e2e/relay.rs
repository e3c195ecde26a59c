//! A receiver's counts of datagrams that a relay delays, duplicates, swaps and drops, against the relay's own.

use std::{
    fs::File,
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    netns::Namespace,
    program::{Folder, despite_stalls, number, of, parse},
};

/// The far end's data port, which the relay also uses in the near end's namespace.
const PORT: u16 = 6100;
/// Bytes of the test's messages; datagrams of other sizes are control.
const SIZE: usize = 500;
/// Delay of every other message.
const LATE: Duration = Duration::from_millis(2);

/// A socket inside a namespace.
fn socket(namespace: &Namespace, port: u16) -> UdpSocket {
    let place = File::open(format!("/run/netns/{}", namespace.name)).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            nix::sched::setns(place, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap()
        });
        inside.join().unwrap()
    })
}

/// The relay's counts.
#[derive(Debug, Default)]
struct Done {
    seen: u64,
    doubled: u64,
    swapped: u64,
    dropped: u64,
}

/// Relays datagrams between two namespaces until it is told to stop.
fn relay(near: &UdpSocket, far: &UdpSocket, stop: &AtomicBool) -> Done {
    let mut done = Done::default();
    let mut from = None;
    let mut held: Option<Vec<u8>> = None;
    let mut buffer = [0; 2000];
    // The way back is polled: a relay that waited for it would fall behind, and the receiver would have left
    // before the last messages arrive.
    near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    far.set_nonblocking(true).unwrap();
    while !stop.load(Relaxed) {
        if let (Ok(n), Some(from)) = (far.recv(&mut buffer), from) {
            near.send_to(&buffer[..n], from).unwrap();
        }
        let Ok((n, sender)) = near.recv_from(&mut buffer) else { continue };
        from = Some(sender);
        let message = &buffer[..n];
        // A far end that has left refuses the datagram, and does not count it.
        let pass = |bytes: &[u8]| drop(far.send(bytes));
        if n != SIZE {
            pass(message);
            continue;
        }
        done.seen += 1;
        if done.seen % 2 == 0 {
            thread::sleep(LATE);
        }
        match done.seen % 10 {
            1 => {
                pass(message);
                pass(message);
                done.doubled += 1;
            }
            3 => held = Some(message.to_vec()),
            5 => done.dropped += 1,
            _ => {
                pass(message);
                if let Some(held) = held.take() {
                    pass(&held);
                    done.swapped += 1;
                }
            }
        }
    }
    done
}

#[test]
fn what_happened_on_the_way_is_what_the_receiver_counts() {
    // A receiver of a count leaves a second after the last message that it waits for.
    despite_stalls(compares_with_the_relay);
}

fn compares_with_the_relay() {
    let (Some(near), Some(far)) = (Namespace::new(), Namespace::new()) else { return };
    let (here, there) = (socket(&near, PORT), socket(&far, 0));
    there.connect((Ipv4Addr::LOCALHOST, PORT)).unwrap();
    let folder = Folder::new();
    let hosts = format!(
        "hosts: {{a: {{netns: {}, address: 127.0.0.1}}, b: {{netns: {}, address: 127.0.0.1}}}}",
        near.name, far.name
    );
    // 200 messages: each impairment happens 20 times.
    let plan = folder.plan(
        &hosts,
        &format!(
            "  it: {{workload: udp_stream, from: a, to: b, remote_ports: {PORT}, message_size: {SIZE}, bytes: {}, rate: 100/s}}",
            200 * SIZE
        ),
    );
    let stop = AtomicBool::new(false);
    let (ran, done) = thread::scope(|scope| {
        let relay = scope.spawn(|| relay(&here, &there, &stop));
        let ran = crate::program::plumb(&["run", &plan, "--progress", "never"]);
        stop.store(true, Relaxed);
        (ran, relay.join().unwrap())
    });
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0];
    let counted = ["messages_sent", "messages_received", "duplicated", "reordered", "lost"].map(|it| row[it].as_str());
    assert_eq!(counted, ["200", "180", "20", "20", "20"], "{done:?}");
    assert_eq!((done.seen, done.doubled, done.swapped, done.dropped), (200, 20, 20, 20));
    // Every other message is late: RFC 3550's mean tends towards that delay, and the relay's own only add to it.
    assert!(number(row, "jitter_us") > LATE.as_micros() as f64 / 2.0, "{}", row["jitter_us"]);
}
