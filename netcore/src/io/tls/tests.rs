//! Two of our ends, and one of ours against a whole connection of the library, whose records are made by other code.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::Duration,
};

use rustls::{ClientConnection, ContentType, ServerConnection};

use super::*;
use crate::{
    error::EndError,
    io::wait::{Block, Poll},
    report::TlsInfo,
    spec::{Cipher, Pattern, Records as Places, TestSpec, TlsOptions, Transport},
    transport::{
        Deadline,
        tls::{Fingerprint, Identity, Part, client, secure},
    },
};

const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];

fn spec(cipher: Cipher) -> TestSpec {
    let mut spec = TestSpec::new(Pattern::Stream, Transport::Tls);
    spec.tls = Some(TlsOptions { cipher, ..TlsOptions::default() });
    spec
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn link(socket: TcpStream) -> Arc<Link> {
    Arc::new(Link::of_socket(0, OwnedFd::from(socket)))
}

fn shake_hands(link: &Arc<Link>, spec: &TestSpec, part: Part<'_>) -> Result<(), EndError> {
    secure(std::slice::from_ref(link), spec, part, &Deadline::after(Duration::from_mins(1), &|| false))
}

/// Both ends after the handshake.
fn pair(cipher: Cipher) -> (Arc<Link>, Arc<Link>) {
    pair_of(&[spec(cipher), spec(cipher)])
}

/// Both ends after the handshake, each with a test of its own.
fn pair_of([of_near, of_far]: &[TestSpec; 2]) -> (Arc<Link>, Arc<Link>) {
    let (near, far) = sockets();
    let (near, far) = (link(near), link(far));
    let identity = Identity::of(of_far, None).unwrap().unwrap();
    thread::scope(|scope| {
        let done = scope.spawn(|| shake_hands(&far, of_far, Part::Far(&identity)));
        shake_hands(&near, of_near, Part::Near(identity.fingerprint)).unwrap();
        done.join().unwrap().unwrap();
    });
    (near, far)
}

fn records<W: Wait>(link: &Arc<Link>, wait: W) -> Records<W> {
    Records::new(link.clone(), wait, true, true)
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7 + at / 251) % 256).to_le_bytes()[0]).collect()
}

/// Everything that comes until the peer's end.
fn read_to_end(channel: &mut impl Channel, step: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match channel.receive(&mut buffer)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

#[test]
fn what_is_sent_arrives_with_every_cipher_and_in_every_size() {
    for cipher in CIPHERS {
        for length in [1, 100, 16_383, 16_384, 16_385, 131_072, 131_073, 1 << 20] {
            let (near, far) = pair(cipher);
            let sent = contents(length);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut channel = records(&near, Block);
                    channel.send_all(&sent).unwrap();
                    channel.finish();
                });
                assert!(read_to_end(&mut records(&far, Poll), 10_000).unwrap() == sent, "{cipher:?} {length}");
            });
        }
    }
}

#[test]
fn keys_change_in_time_in_both_directions() {
    let (near, far) = pair(Cipher::Aes128Gcm);
    let sent = contents(50 * 16_384);
    let way = |from: &Arc<Link>, to: &Arc<Link>| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut channel = Records::new(from.clone(), Block, true, false);
                // After seven records each, the update among them.
                channel.sealer.as_mut().unwrap().records_per_key = 7;
                channel.send_all(&sent).unwrap();
                channel.finish();
                // Neither updates of the key nor the end are records of data.
                let counted = from.secured.get().unwrap().figures()[0].read().unwrap();
                let encryption_ns = counted.encryption_ns;
                assert_eq!(counted, TlsInfo { records: 50, bytes: 50 * 16_384, encryption_ns });
            });
            let mut channel = Records::new(to.clone(), Block, false, true);
            assert!(read_to_end(&mut channel, 1 << 17).unwrap() == sent);
            assert!(channel.opener.unwrap().sequence < 8);
        });
    };
    way(&near, &far);
    way(&far, &near);
}

/// Each end takes the other one's records for the kernel's, which have neither an end nor a second key (`tests/vm/run` has such a
/// kernel).
#[test]
fn to_an_end_with_records_in_the_kernel_no_end_and_no_new_key_are_said() {
    let with = |records, remote_records| {
        let mut spec = spec(Cipher::Aes128Gcm);
        spec.tls = Some(TlsOptions { records, remote_records, ..TlsOptions::default() });
        spec
    };
    let (user, kernel) = (Some(Places::User), Some(Places::Kernel));
    let (near, far) = pair_of(&[with(user, kernel), with(kernel, user)]);
    let sent = contents(100_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut channel = records(&near, Block);
            assert_eq!(channel.sealer.as_ref().unwrap().records_per_key, u64::MAX);
            channel.send_all(&sent).unwrap();
            channel.finish();
            near.end_of_stream();
        });
        assert!(read_to_end(&mut records(&far, Poll), 1 << 17).unwrap() == sent);
    });
    // The end of the stream within a record is no end of the data.
    let (near, far) = pair_of(&[with(user, kernel), with(kernel, user)]);
    nix::unistd::write(&near.send, &[23, 3, 3, 0, 100, 1, 2, 3]).unwrap();
    near.end_of_stream();
    assert!(read_to_end(&mut records(&far, Block), 1 << 17).unwrap_err().to_string().contains("cut it off"));
}

#[test]
fn requests_beyond_all_buffers_do_not_block_both_ends() {
    let (near, far) = pair(Cipher::Aes128Gcm);
    let (request, count) = (contents(1 << 20), 32);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut channel, mut buffer, mut got) = (records(&far, Block), vec![0; 1 << 16], 0);
            while got < count * request.len() {
                let n = channel.receive(&mut buffer).unwrap();
                channel.send_all(&buffer[..n]).unwrap();
                got += n;
            }
        });
        let (mut channel, mut sent, mut got) = (records(&near, Block), 0, 0);
        let mut buffer = vec![0; 1 << 16];
        while got < count * request.len() {
            while sent < count * request.len() {
                let Some(n) = channel.try_send(&request[sent % request.len()..]).unwrap() else { break };
                sent += n;
            }
            got += channel.receive(&mut buffer).unwrap();
        }
        assert_eq!(got, sent);
    });
}

/// The library's own server, which reads our key updates by itself.
#[test]
fn a_connection_of_the_library_understands_our_records_and_we_its() {
    for cipher in CIPHERS {
        let (spec, (near, mut far)) = (spec(cipher), sockets());
        let (near, identity) = (link(near), Identity::of(&spec, None).unwrap().unwrap());
        let sent = contents(300_000);
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut connection = ServerConnection::new(identity.config.clone()).unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut far);
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                rustls::Stream::new(&mut connection, &mut far).write_all(&all).unwrap();
                connection.send_close_notify();
                connection.complete_io(&mut far).unwrap();
            });
            shake_hands(&near, &spec, Part::Near(identity.fingerprint)).unwrap();
            let mut channel = records(&near, Block);
            channel.sealer.as_mut().unwrap().records_per_key = 5;
            channel.send_all(&sent).unwrap();
            channel.finish();
            assert!(read_to_end(&mut channel, 5000).unwrap() == sent, "{cipher:?}");
            server.join().unwrap();
        });
    }
}

#[test]
fn a_client_of_the_library_is_answered_only_with_the_right_certificate() {
    let spec = spec(Cipher::Aes128Gcm);
    let identity = Identity::of(&spec, None).unwrap().unwrap();
    for (fingerprint, is_right) in [(identity.fingerprint, true), ([0; 32], false)] {
        let ((mut near, far), spec, identity) = (sockets(), &spec, &identity);
        let far = link(far);
        let (client, server) = thread::scope(|scope| {
            let server = scope.spawn(|| shake_hands(&far, spec, Part::Far(identity)).map_err(|e| e.to_string()));
            let (config, name, _) = client(Cipher::Aes128Gcm, fingerprint).unwrap();
            let config = Arc::new(config);
            let mut connection = ClientConnection::new(config, name).unwrap();
            let client = rustls::Stream::new(&mut connection, &mut near).write(b"x").map_err(|e| e.to_string());
            // The alert is on its way before the connection ends.
            drop(near);
            (client, server.join().unwrap())
        });
        assert_eq!((client.is_ok(), server.is_ok()), (is_right, is_right), "{client:?} {server:?}");
        assert!(is_right || server.unwrap_err().contains("the other end refused it (AccessDenied)"));
    }
}

/// The near end's error where the far end does this.
fn against(pin: Fingerprint, far_end: impl FnOnce(TcpStream) + Send) -> String {
    let (spec, (near, far)) = (spec(Cipher::Aes128Gcm), sockets());
    let near = link(near);
    thread::scope(move |scope| {
        scope.spawn(|| far_end(far));
        let soon = Deadline::after(Duration::from_millis(300), &|| false);
        secure(std::slice::from_ref(&near), &spec, Part::Near(pin), &soon).unwrap_err().to_string()
    })
}

#[test]
fn a_handshake_that_fails_says_why() {
    let identity = Identity::of(&spec(Cipher::Aes128Gcm), None).unwrap().unwrap();
    let other = against([1; 32], |far| {
        let far = link(far);
        let _ = shake_hands(&far, &spec(Cipher::Aes128Gcm), Part::Far(&identity));
    });
    assert!(other.contains("is not the one that the far end announced"), "{other}");
    let closed = against([1; 32], drop);
    assert!(closed.contains("flow 0: the TLS handshake"), "{closed}");
    let foreign = against([1; 32], |mut far| far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    assert!(foreign.contains("the other end speaks no TLS"), "{foreign}");
    let silent = against([1; 32], |far| {
        // Until the near end has given up.
        let _ = (&far).read_to_end(&mut Vec::new());
    });
    assert!(silent.contains("a TLS handshake did not end"), "{silent}");
    let cipher = against([1; 32], |far| {
        let identity = Identity::of(&spec(Cipher::Chacha20Poly1305), None).unwrap().unwrap();
        let _ = shake_hands(&link(far), &spec(Cipher::Chacha20Poly1305), Part::Far(&identity));
    });
    assert!(cipher.contains("the other end closed the connection"), "{cipher}");
}

/// The error of an end whose peer does this after the handshake.
fn received(peer: impl FnOnce(&mut Records<Block>, &Arc<Link>)) -> String {
    let (near, far) = pair(Cipher::Aes128Gcm);
    let mut channel = records(&near, Block);
    channel.send_all(b"first").unwrap();
    peer(&mut channel, &near);
    near.end_of_stream();
    let mut far = records(&far, Block);
    let mut buffer = [0; 5];
    assert_eq!((far.receive(&mut buffer).unwrap(), &buffer), (5, b"first"));
    far.receive(&mut buffer).unwrap_err().to_string()
}

#[test]
fn what_is_no_record_of_data_ends_the_stream_with_a_sentence() {
    let raw = |bytes: &'static [u8]| {
        move |_: &mut Records<Block>, link: &Arc<Link>| {
            nix::unistd::write(&link.send, bytes).unwrap();
        }
    };
    let of = |typ: ContentType, bytes: &'static [u8]| {
        move |channel: &mut Records<Block>, _: &Arc<Link>| {
            channel.sealer.as_mut().unwrap().record(typ, bytes).unwrap();
            channel.flush().unwrap();
        }
    };
    assert!(received(|_, _| {}).contains("without TLS's own end (close_notify)"));
    // The header of a record, and no more.
    assert!(received(raw(&[23, 3, 3, 0, 100])).contains("without TLS's own end"));
    assert!(received(raw(b"GET / HTTP/1.1\r\n")).contains("no record of TLS"));
    assert!(received(raw(&[23, 3, 3, 0xff, 0xff])).contains("no record of TLS"));
    let mut forged = vec![23, 3, 3, 0, 32];
    forged.extend([0; 32]);
    let forged: &'static [u8] = forged.leak();
    assert!(received(raw(forged)).contains("decrypt"));
    assert!(received(of(ContentType::Alert, &[2, 20])).contains("an alert of TLS: BadRecordMac"));
    // An answer to it is asked for.
    assert!(received(of(ContentType::Handshake, &[24, 0, 0, 1, 1])).contains("a record of another kind: Handshake"));
    assert!(received(of(ContentType::Handshake, &[4, 0, 0, 0])).contains("a record of another kind: Handshake"));
}

#[test]
fn an_end_that_came_is_an_end() {
    let (near, far) = pair(Cipher::Aes128Gcm);
    let mut channel = records(&near, Block);
    channel.send_all(b"all").unwrap();
    channel.finish();
    let mut far = records(&far, Block);
    assert_eq!(read_to_end(&mut far, 2).unwrap(), b"all");
    assert_eq!(far.receive(&mut [0; 9]).unwrap(), 0);
    // Each half has one owner.
    assert!(Records::new(near, Block, true, true).send(b"x").unwrap_err().to_string().contains("another loop"));
}
