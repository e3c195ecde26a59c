//! Two of our ends over sockets that are connected to each other, or to a relay between them that loses, cuts off or forges packets.

use std::{
    net::UdpSocket,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use super::*;
use crate::{
    error::EndError,
    io::fill::Contents,
    report::QuicInfo,
    spec::{
        BufferOptions, Cipher, Pattern, QuicCongestionControl, QuicOptions, TestSpec, TlsOptions, Transport,
        memory::Shape,
    },
    transport::{
        Deadline,
        quic::secure,
        tls::{Identity, Part},
    },
};

fn spec() -> TestSpec {
    TestSpec::new(Pattern::Stream, Transport::Quic)
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Sockets that are connected to each other.
fn sockets() -> (UdpSocket, UdpSocket) {
    let (near, far) = (socket(), socket());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (near, far)
}

fn link(socket: UdpSocket) -> Arc<Link> {
    Arc::new(Link::of_socket(0, socket.into()))
}

fn shake_hands(link: &Arc<Link>, spec: &TestSpec, part: Part<'_>, within: Duration) -> Result<(), EndError> {
    secure(std::slice::from_ref(link), spec, part, &Deadline::after(within, &|| false))
}

/// Both ends after the handshake.
fn joined(spec: &TestSpec, (near, far): (UdpSocket, UdpSocket)) -> (Arc<Link>, Arc<Link>) {
    let (near, far) = (link(near), link(far));
    let identity = Identity::of(spec, None).unwrap().unwrap();
    let within = Duration::from_mins(1);
    thread::scope(|scope| {
        let done = scope.spawn(|| shake_hands(&far, spec, Part::Far(&identity), within));
        shake_hands(&near, spec, Part::Near(identity.fingerprint), within).unwrap();
        done.join().unwrap().unwrap();
    });
    (near, far)
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7 + at / 251) % 256).to_le_bytes()[0]).collect()
}

/// Everything that comes until the peer's end.
fn read_to_end(channel: &mut impl Channel) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match channel.receive(&mut buffer)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Everything that comes at an end that sends nothing.
fn read_all(link: &Arc<Link>) -> Vec<u8> {
    let mut channel = Quic::new(link.clone(), None).unwrap();
    let all = read_to_end(&mut channel).unwrap();
    channel.finish();
    all
}

/// Sends `sent` one way and half of it the other, and returns the figures of the end that sent more.
fn carries(near: &Arc<Link>, far: &Arc<Link>, sent: &[u8]) -> QuicInfo {
    let back = &sent[..sent.len() / 2];
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut channel = Quic::new(far.clone(), None).unwrap();
            assert!(read_to_end(&mut channel).unwrap() == sent);
            channel.send_all(back).unwrap();
            channel.finish();
        });
        let mut channel = Quic::new(near.clone(), None).unwrap();
        channel.send_all(sent).unwrap();
        channel.finish();
        assert!(read_to_end(&mut channel).unwrap() == back);
    });
    near.quic.get().unwrap().figures().read().unwrap()
}

#[test]
fn what_is_sent_arrives_with_every_cipher_congestion_control_and_size() {
    for (at, length) in [1, 100, 1199, 70_000, 3_000_000].into_iter().enumerate() {
        let mut spec = spec();
        let cipher = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305][at % 3];
        spec.tls = Some(TlsOptions { cipher, ..TlsOptions::default() });
        let congestion_control =
            [QuicCongestionControl::Cubic, QuicCongestionControl::NewReno, QuicCongestionControl::Bbr][at % 3];
        spec.quic = Some(QuicOptions { congestion_control: Some(congestion_control), ..QuicOptions::default() });
        let (near, far) = joined(&spec, sockets());
        let granted = near.quic.get().unwrap().granted(0).map(|granted| granted.at_end.unwrap());
        assert_eq!(granted, [congestion_control.name(), cipher.name()]);
        carries(&near, &far, &contents(length));
    }
}

#[test]
fn a_ring_is_sent_in_its_order_whatever_a_call_takes() {
    let (near, far) = joined(&spec(), sockets());
    let options = BufferOptions { ring: 5, ..BufferOptions::default() };
    let mut buffers = Buffers::to_send(Shape::plain(3000), &options, Contents::Random).unwrap();
    let (mut sent, mut ring) = (Vec::new(), Vec::new());
    buffers.iter().for_each(|message| ring.extend_from_slice(message));
    thread::scope(|scope| {
        let received = scope.spawn(|| read_all(&far));
        let mut channel = Quic::new(near.clone(), Some(&buffers)).unwrap();
        for _ in 0..400 {
            let message = buffers.present().to_vec();
            channel.send_all(&message).unwrap();
            sent.extend_from_slice(&message);
            buffers.advance();
        }
        channel.finish();
        assert!(read_to_end(&mut channel).unwrap().is_empty());
        assert!(received.join().unwrap() == sent);
    });
    assert!(sent.chunks(ring.len()).all(|round| round == ring));
}

/// Passes packets between the ends. `fate` decides on each by its number and length, and may change it.
struct Relay {
    over: Arc<AtomicBool>,
    dropped: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Relay {
    /// The sockets of both ends, each connected to the relay.
    fn between(fate: impl Fn(u64, &mut Vec<u8>) -> bool + Send + 'static) -> (Self, (UdpSocket, UdpSocket)) {
        let (near, far, here) = (socket(), socket(), socket());
        let (near_at, far_at) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        near.connect(here.local_addr().unwrap()).unwrap();
        far.connect(here.local_addr().unwrap()).unwrap();
        here.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let (over, dropped) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (is_over, drops) = (over.clone(), dropped.clone());
        let thread = thread::spawn(move || {
            let (mut number, mut buffer) = (0, vec![0; 1 << 16]);
            while !is_over.load(Relaxed) {
                let Ok((length, from)) = here.recv_from(&mut buffer) else { continue };
                let mut packet = buffer[..length].to_vec();
                number += 1;
                if fate(number, &mut packet) {
                    // A full queue loses one, too.
                    let _ = here.send_to(&packet, if from == near_at { far_at } else { near_at });
                } else {
                    drops.fetch_add(1, Relaxed);
                }
            }
        });
        (Self { over, dropped, thread: Some(thread) }, (near, far))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn lost_packets_are_counted_and_sent_again() {
    // The handshake loses some, too.
    let (relay, sockets) = Relay::between(|number, _| number % 20 != 3);
    let (near, far) = joined(&spec(), sockets);
    let info = carries(&near, &far, &contents(400_000));
    let dropped = relay.dropped.load(Relaxed);
    // Packets of the other direction are not this end's, and an acknowledgement that is lost is not counted.
    assert!(
        info.packets_lost > 0 && info.packets_lost <= dropped + info.packets_sent / 10,
        "{info:?}, {dropped} dropped"
    );
    assert!(info.congestion_events > 0 && info.udp_bytes_sent > 400_000, "{info:?}");
}

#[test]
fn the_longest_packet_that_the_path_carries_is_found() {
    for (most, asked, found) in [(1300, 1452, 1200..=1300), (9000, 1452, 1452..=1452), (9000, 4000, 4000..=4000)] {
        let (_relay, sockets) = Relay::between(move |_, packet| packet.len() <= most);
        let mut spec = spec();
        spec.quic = Some(QuicOptions { mtu: Some(asked), ..QuicOptions::default() });
        let (near, far) = joined(&spec, sockets);
        let info = carries(&near, &far, &contents(100_000));
        assert!(found.contains(&info.mtu_bytes), "{info:?}, {most} bytes pass");
    }
}

/// A packet that was changed on the way does not open, and counts as lost. Packets that come again, or that somebody made up, are
/// nothing.
#[test]
fn changed_forged_and_repeated_packets_change_no_byte() {
    let (_relay, sockets) = Relay::between(|number, packet| {
        if number > 20 && number % 15 == 0 {
            let middle = packet.len() / 2;
            packet[middle] ^= 1;
        }
        if number % 33 == 0 {
            packet.truncate(7);
        }
        true
    });
    let (near, far) = joined(&spec(), sockets);
    let info = carries(&near, &far, &contents(400_000));
    assert!(info.packets_lost > 0, "{info:?}");
}

#[test]
fn another_certificate_is_refused_with_the_reason_at_both_ends() {
    let (spec, (near, far)) = (spec(), sockets());
    let (near, far) = (link(near), link(far));
    let [ours, other] = [(); 2].map(|()| Identity::of(&spec, None).unwrap().unwrap());
    thread::scope(|scope| {
        let far = scope.spawn(|| shake_hands(&far, &spec, Part::Far(&ours), Duration::from_secs(10)));
        let near = shake_hands(&near, &spec, Part::Near(other.fingerprint), Duration::from_secs(10));
        let near = near.unwrap_err().to_string();
        assert!(near.contains("the certificate is not the one that the far end announced"), "{near}");
        let far = far.join().unwrap().unwrap_err().to_string();
        assert!(far.starts_with("flow 0: the QUIC handshake failed: "), "{far}");
    });
}

#[test]
fn a_silent_end_is_left_in_time() {
    let (near, _far) = sockets();
    let identity = Identity::of(&spec(), None).unwrap().unwrap();
    let late = shake_hands(&link(near), &spec(), Part::Near(identity.fingerprint), Duration::from_millis(200));
    assert!(late.unwrap_err().to_string().contains("a QUIC handshake did not end"));
}

/// A peer that has the sockets may send anything. A far end accepts one connection and no more.
#[test]
fn floods_of_first_packets_and_garbage_leave_a_connection_as_it_is() {
    let first = {
        // The first packet of a client.
        let (near, far) = sockets();
        let identity = Identity::of(&spec(), None).unwrap().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        thread::scope(|scope| {
            let near = link(near);
            scope.spawn(move || {
                let _ = shake_hands(&near, &spec(), Part::Near(identity.fingerprint), Duration::from_millis(100));
            });
            let mut packet = vec![0; 2000];
            let length = far.recv(&mut packet).unwrap();
            packet.truncate(length);
            packet
        })
    };
    let (near, far) = sockets();
    let flood = near.try_clone().unwrap();
    let (near, far) = joined(&spec(), (near, far));
    let mut far_end = far.quic.get().unwrap().take().unwrap();
    let mut near_end = near.quic.get().unwrap().take().unwrap();
    for number in 0..2000u64 {
        let mut packet = first.clone();
        // The identifier of another connection.
        packet[6..14].copy_from_slice(&number.to_le_bytes());
        if number % 3 == 0 {
            packet = contents(usize::try_from(number).unwrap());
        }
        let _ = flood.send(&packet);
        if number % 50 == 0 {
            far_end.turn(Instant::now()).unwrap();
        }
    }
    far_end.turn(Instant::now()).unwrap();
    assert_eq!(far_end.count(), 1);
    near_end.write(OUT, |stream| stream.write(b"still there")).unwrap();
    let mut buffer = [0; 20];
    let got = loop {
        near_end.turn(Instant::now() + Duration::from_millis(1)).unwrap();
        far_end.turn(Instant::now() + Duration::from_millis(1)).unwrap();
        if let Some(got) = far_end.read((0, Stream::In), &mut buffer).unwrap() {
            break got;
        }
    };
    assert_eq!(&buffer[..got], b"still there");
}

#[test]
fn an_end_that_closes_in_the_middle_is_an_error_with_its_reason() {
    let (near, far) = joined(&spec(), sockets());
    drop(Quic::new(far.clone(), None).unwrap());
    let mut channel = Quic::new(near.clone(), None).unwrap();
    let error = channel.receive(&mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("the other end closed the connection"), "{error}");
    drop(far);
    assert!(Quic::new(near, None).is_err(), "one loop has it");
}

#[test]
fn a_socket_that_is_gone_is_an_error() {
    let (near, far) = joined(&spec(), sockets());
    drop(far);
    let mut channel = Quic::new(near, None).unwrap();
    channel.send_all(b"?").unwrap();
    let error = channel.receive(&mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("the other end's socket is gone"), "{error}");
}

#[test]
fn a_window_that_is_full_holds_back_until_the_other_end_reads() {
    let mut spec = spec();
    spec.quic = Some(QuicOptions { window: Some(crate::spec::Bytes(64 << 10)), ..QuicOptions::default() });
    let (near, far) = joined(&spec, sockets());
    let mut channel = Quic::new(near.clone(), None).unwrap();
    let mut sent = 0;
    // Until nothing has been taken for a while.
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(300) {
        match channel.try_send(&contents(10_000)).unwrap() {
            Some(n) => (sent, last) = (sent + n, Instant::now()),
            None => channel.wait().sleep_until(monotonic_ns() + 1_000_000),
        }
    }
    assert!((1..=64 << 10).contains(&sent), "{sent} bytes");
    thread::scope(|scope| {
        let received = scope.spawn(|| read_all(&far).len());
        channel.send_all(&contents(200_000)).unwrap();
        channel.finish();
        assert!(read_to_end(&mut channel).unwrap().is_empty());
        assert_eq!(received.join().unwrap(), sent + 200_000);
    });
    assert!(near.quic.get().unwrap().figures().read().unwrap().blocked > 0);
}
