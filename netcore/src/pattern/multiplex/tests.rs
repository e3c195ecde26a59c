use std::{
    cell::RefCell,
    io::{Read as _, Write as _},
    os::unix::net::{UnixDatagram, UnixStream},
    rc::Rc,
    sync::mpsc,
};

use nix::sys::socket::{recv, send};

use super::*;
use crate::io::{Channel as _, SocketCalls};

/// A flow's link over one end of a pair of sockets, and the other end.
fn pair(flow: u32) -> (Arc<Link>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(Link::of_socket(flow, ours.into())), theirs)
}

/// Events in the order in which they happened.
type Log<T> = Rc<RefCell<Vec<T>>>;

#[test]
fn whoever_would_block_lets_the_others_go_on() {
    let mut multiplexer = Multiplexer::new().unwrap();
    let log: Log<String> = Rc::default();
    let ((first, _theirs), (second, mut peer)) = (pair(0), pair(1));
    // The first waits for what the second does.
    let (link, ours) = (first.clone(), log.clone());
    multiplexer
        .add(&first.receive, move |turns| {
            let mut channel = SocketCalls { link, wait: turns, receive_flags: MsgFlags::empty() };
            let n = channel.receive(&mut [0; 8]).unwrap();
            ours.borrow_mut().push(format!("first received {n}"));
        })
        .unwrap();
    let (link, ours) = (second.clone(), log.clone());
    multiplexer
        .add(&second.receive, move |turns| {
            let mut channel = SocketCalls { link, wait: turns, receive_flags: MsgFlags::empty() };
            let n = channel.receive(&mut [0; 8]).unwrap();
            ours.borrow_mut().push(format!("second received {n}"));
            first.free();
        })
        .unwrap();
    peer.write_all(b"abc").unwrap();
    multiplexer.run().unwrap();
    assert_eq!(*log.borrow(), ["second received 3", "first received 0"], "freed by a shutdown, as a blocked thread is");
}

#[test]
fn a_loop_that_never_blocks_gives_way_after_some_calls() {
    let mut multiplexer = Multiplexer::new().unwrap();
    let log: Log<u32> = Rc::default();
    let mut peers = Vec::new();
    for flow in 0..3 {
        let (link, peer) = pair(flow);
        peers.push(peer);
        let (socket, log) = (link.receive.clone(), log.clone());
        multiplexer
            .add(&socket, move |turns| {
                let mut channel = SocketCalls { link, wait: turns, receive_flags: MsgFlags::empty() };
                for _ in 0..2 * CALLS_PER_TURN {
                    channel.send(b"x").unwrap();
                    log.borrow_mut().push(flow);
                }
            })
            .unwrap();
    }
    multiplexer.run().unwrap();
    let turns: Vec<(u32, usize)> = log.borrow().chunk_by(|a, b| a == b).map(|turn| (turn[0], turn.len())).collect();
    let calls = CALLS_PER_TURN as usize;
    assert_eq!(turns, [0, 1, 2, 0, 1, 2].map(|flow| (flow, calls)));
    for mut peer in peers {
        assert_eq!(peer.read(&mut [0; 64]).unwrap(), 2 * calls);
    }
}

#[test]
fn both_ways_of_one_socket_wait_on_it_side_by_side() {
    const BYTES: usize = 4 << 20;
    let mut multiplexer = Multiplexer::new().unwrap();
    let (link, mut peer) = pair(0);
    let socket = link.receive.clone();
    let (sender, receiver) = (link.clone(), link);
    multiplexer
        .add(&socket, move |turns| {
            let mut channel = SocketCalls { link: sender.clone(), wait: turns, receive_flags: MsgFlags::empty() };
            channel.send_all(&vec![7; BYTES]).unwrap();
            sender.end_of_stream();
        })
        .unwrap();
    let got = Rc::new(Cell::new(0));
    let sum = got.clone();
    multiplexer
        .add(&socket, move |turns| {
            let mut channel = SocketCalls { link: receiver, wait: turns, receive_flags: MsgFlags::empty() };
            let mut buffer = vec![0; 65_536];
            while let Ok(n @ 1..) = channel.receive(&mut buffer) {
                sum.set(sum.get() + n);
            }
        })
        .unwrap();
    assert_eq!(multiplexer.sockets.len(), 1);
    let echo = std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(n @ 1..) = peer.read(&mut buffer) {
            peer.write_all(&buffer[..n]).unwrap();
        }
    });
    multiplexer.run().unwrap();
    echo.join().unwrap();
    assert_eq!(got.get(), BYTES);
}

#[test]
fn times_come_in_their_order_and_a_wait_without_input_says_so() {
    let mut multiplexer = Multiplexer::new().unwrap();
    let log: Log<(&str, u64, bool)> = Rc::default();
    let mut peers = Vec::new();
    let start_ns = monotonic_ns();
    let flows = [("late", start_ns + 6_000_000), ("early", start_ns + 900_000)];
    for (name, due_ns) in flows {
        let (ours, silent) = UnixDatagram::pair().unwrap();
        peers.push(silent);
        // A loop carries at most 1 KiB.
        let link = Box::new(Link::of_socket(0, ours.into()));
        let (socket, log) = (link.receive.clone(), log.clone());
        multiplexer
            .add(&socket, move |turns| {
                turns.sleep_until(due_ns);
                log.borrow_mut().push((name, monotonic_ns(), true));
                let came = turns.after_nothing(&link, 10_000_000).unwrap();
                log.borrow_mut().push((name, monotonic_ns(), came));
            })
            .unwrap();
    }
    multiplexer.run().unwrap();
    let log = log.borrow();
    for (name, due_ns) in flows {
        let own: Vec<_> = log.iter().filter(|entry| entry.0 == name).collect();
        assert!(own.len() == 2 && own[0].1 >= due_ns && own[1].1 >= due_ns + 10_000_000, "{name}: {log:?}");
        assert!(!own[1].2, "{name}: nothing came");
    }
    // On a machine that stalls both may be due at once.
    let [(_, late_ns), _] = flows;
    let first_ns = log.iter().find(|entry| entry.0 == "early").map(|entry| entry.1);
    assert!(log[0].0 == "early" || first_ns >= Some(late_ns), "{log:?}");
}

#[test]
fn input_that_was_there_before_the_wait_is_seen() {
    let mut multiplexer = Multiplexer::new().unwrap();
    let (link, mut peer) = pair(0);
    peer.write_all(b"ab").unwrap();
    let socket = link.receive.clone();
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    multiplexer
        .add(&socket, move |turns| {
            // Its edge has gone by when the second look is taken.
            for _ in 0..2 {
                turns.yield_now();
                count.set(count.get() + u32::from(turns.for_input(&link, NEVER).unwrap()));
                nix::unistd::read(&link.receive, &mut [0; 1]).unwrap();
            }
            count.set(count.get() + u32::from(turns.for_input(&link, 0).unwrap()));
        })
        .unwrap();
    multiplexer.run().unwrap();
    assert_eq!(seen.get(), 2);
}

#[test]
fn connections_come_and_go_and_what_wakes_a_flow_may_be_another_sockets() {
    let mut multiplexer = Multiplexer::new().unwrap();
    // The lasting one stirs all the time, as a listener does to which strangers connect.
    let (link, mut noise) = pair(0);
    let (hand_over, next) = mpsc::channel::<UnixStream>();
    let seen: Log<u8> = Rc::default();
    let log = seen.clone();
    multiplexer
        .add(&link.receive, move |turns| {
            for ours in next {
                let connection = Connection::new(Arc::new(ours.into()));
                let fd = connection.socket.as_raw_fd();
                let mut byte = [0; 1];
                // The second is waited for with what the first has left registered.
                for _ in 0..2 {
                    while recv(fd, &mut byte, MsgFlags::MSG_DONTWAIT).is_err() {
                        assert!(turns.for_connection(&connection, Event::Input).unwrap());
                    }
                    log.borrow_mut().push(byte[0]);
                }
                // Fills it until it is full, and goes on when there is room again: another kind of event than before.
                let (mut sent, bytes) = (0, [0; 4096]);
                while sent < 1 << 20 {
                    match send(fd, &bytes, MsgFlags::MSG_DONTWAIT) {
                        Ok(n) => sent += n,
                        Err(_) => assert!(turns.for_connection(&connection, Event::Room).unwrap()),
                    }
                }
            }
        })
        .unwrap();
    let peer = std::thread::spawn(move || {
        for round in 0..20 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            hand_over.send(ours).unwrap();
            for number in [2 * round, 2 * round + 1] {
                noise.write_all(b"!").unwrap();
                std::thread::sleep(Duration::from_millis(1));
                theirs.write_all(&[number]).unwrap();
            }
            let got = io::copy(&mut theirs, &mut io::sink()).unwrap();
            assert!(got >= 1 << 20, "{got}");
        }
    });
    multiplexer.run().unwrap();
    peer.join().unwrap();
    assert_eq!(*seen.borrow(), (0..40).collect::<Vec<u8>>());
}

#[test]
fn what_is_carried_but_never_run_leaves_no_trace() {
    let mut multiplexer = Multiplexer::new().unwrap();
    let (link, mut peer) = pair(0);
    let socket = link.receive.clone();
    multiplexer.add(&socket, move |_| link.free()).unwrap();
    drop((multiplexer, socket));
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "closed with its last handle");
}
