use std::{
    cell::RefCell,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::*;

/// Links over one end of each of so many pairs of sockets, and the other ends.
fn pairs(flows: u32) -> (Vec<Arc<Link>>, Vec<UnixStream>) {
    let pair = |flow| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Link::of_socket(flow, ours.into())), theirs)
    };
    (0..flows).map(pair).unzip()
}

/// A multiplexer, unless this machine has no rings.
fn multiplexer(links: &[Arc<Link>], receive_bytes: usize) -> Option<RingMultiplexer> {
    RingMultiplexer::new(links, receive_bytes).map_err(|error| crate::needs::skip(&error.to_string())).ok()
}

/// Events in the order in which they happened.
type Log<T> = Rc<RefCell<Vec<T>>>;

#[test]
fn a_flow_that_waits_lets_the_others_go_on() {
    for receive_bytes in [8, 100_000] {
        let (links, mut peers) = pairs(2);
        let Some(mut multiplexer) = multiplexer(&links, receive_bytes) else { return };
        let log: Log<String> = Rc::default();
        for (name, link) in ["first", "second"].into_iter().zip(&links) {
            // The first waits for what the second does.
            let (log, first) = (log.clone(), links[0].clone());
            let body = move |mut channel: Submitted<'_>| {
                let n = channel.receive(&mut vec![0; receive_bytes]).unwrap();
                log.borrow_mut().push(format!("{name} received {n}"));
                first.free();
            };
            multiplexer.add(link.clone(), body).unwrap();
        }
        peers[1].write_all(b"abc").unwrap();
        multiplexer.run().unwrap();
        assert_eq!(*log.borrow(), ["second received 3", "first received 0"], "freed by a shutdown");
    }
}

#[test]
fn a_flow_that_was_freed_goes_on_even_if_nothing_completes_its_operation() {
    for receive_bytes in [8, 100_000] {
        let ((waiting, _theirs), (other, _others)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        // The shutdown affects the sending socket, not the one that is waited for.
        let link = Arc::new(Link::new(0, Arc::new(other.into()), Arc::new(waiting.into())));
        let Some(mut multiplexer) = multiplexer(std::slice::from_ref(&link), receive_bytes) else { return };
        let freed = link.clone();
        let body = move |mut channel: Submitted<'_>| {
            freed.free();
            let error = channel.receive(&mut vec![0; receive_bytes]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        };
        multiplexer.add(link, body).unwrap();
        multiplexer.run().unwrap();
    }
}

#[test]
fn flows_echo_each_at_its_own_speed() {
    const FLOWS: u32 = 40;
    for receive_bytes in [5, 100_000] {
        let (links, peers) = pairs(FLOWS);
        let Some(mut multiplexer) = multiplexer(&links, receive_bytes) else { return };
        for link in links {
            let body = move |mut channel: Submitted<'_>| {
                let mut buffer = vec![0; receive_bytes];
                loop {
                    let n = channel.receive(&mut buffer).unwrap();
                    if n == 0 {
                        return;
                    }
                    channel.send_all(&buffer[..n]).unwrap();
                }
            };
            multiplexer.add(link, body).unwrap();
        }
        let peer = std::thread::spawn(move || {
            for mut stream in peers {
                for round in 0..10u8 {
                    stream.write_all(&[round; 17]).unwrap();
                    let mut echo = [0; 17];
                    stream.read_exact(&mut echo).unwrap();
                    assert_eq!(echo, [round; 17]);
                }
            }
        });
        multiplexer.run().unwrap();
        peer.join().unwrap();
        let (completions, calls) = multiplexer.ring().counts();
        assert!(completions >= u64::from(FLOWS) * 20 && calls > 0, "{completions} in {calls}");
    }
}

/// Three loops that sleep to different instants; returns them as they woke, in milliseconds. `None`: there is no ring.
fn woken() -> Option<Vec<u64>> {
    let (links, _peers) = pairs(3);
    let mut multiplexer = multiplexer(&links, 8)?;
    let log: Log<u64> = Rc::default();
    let begun_ns = monotonic_ns();
    for (link, milliseconds) in links.into_iter().zip([9, 3, 6]) {
        let log = log.clone();
        let body = move |mut channel: Submitted<'_>| {
            let due_ns = begun_ns + milliseconds * 1_000_000;
            while monotonic_ns() < due_ns {
                channel.wait().sleep_until(due_ns);
            }
            log.borrow_mut().push(milliseconds);
            let until_ns = monotonic_ns() + 1_000_000;
            assert_eq!(channel.receive_by(&mut [0; 8], until_ns).unwrap(), None);
            assert!(monotonic_ns() >= until_ns);
        };
        multiplexer.add(link, body).unwrap();
    }
    multiplexer.run().unwrap();
    Some(log.take())
}

#[test]
fn sleeps_end_in_their_order() {
    // A machine that stood still finds several of them due at once, in any order.
    const TRIES: usize = 100;
    let mut tries = std::iter::repeat_with(woken).take(TRIES);
    assert!(tries.any(|woken| woken.is_none_or(|order| order == [3, 6, 9])), "never in {TRIES} tries");
}

/// Tells when a loop's memory is gone.
struct Ended(u32, Log<u32>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

#[test]
fn a_loop_that_panics_takes_the_others_of_its_thread_along() {
    let (links, mut peers) = pairs(3);
    let Some(mut multiplexer) = multiplexer(&links, 100_000) else { return };
    let ended: Log<u32> = Rc::default();
    for link in links {
        let ended = Ended(link.flow, ended.clone());
        let body = move |mut channel: Submitted<'_>| {
            // All of it, not the number alone.
            let ended = ended;
            let mut buffer = vec![0; 100_000];
            channel.receive(&mut buffer).unwrap();
            assert!(ended.0 != 1, "on purpose");
            unreachable!("nothing ever comes");
        };
        multiplexer.add(link, body).unwrap();
    }
    peers[1].write_all(b"x").unwrap();
    catch_unwind(AssertUnwindSafe(move || {
        let mut multiplexer = multiplexer;
        multiplexer.run()
    }))
    .unwrap_err();
    assert_eq!(*ended.borrow(), [1, 0, 2], "each has left, and its memory is its own");
    // Every socket is closed.
    for mut peer in peers {
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    }
}
