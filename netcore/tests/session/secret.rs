//! With a key: clients without it get no session, and the wire carries nothing readable.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use netcore::{
    client::{ClientError, DataAddresses, Session, Target},
    control::key::Key,
    daemon::Config,
};

use crate::common::{Served, never_stopped, stream};

/// Forwards connections, and records both directions of the first one, which is the control connection.
fn wiretap(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tape = Arc::clone(&heard);
    thread::spawn(move || {
        for (number, near) in listener.incoming().enumerate() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            let tape = (number == 0).then(|| Arc::clone(&tape));
            let pass = |mut from: TcpStream, mut to: TcpStream, tape: Option<Arc<Mutex<Vec<u8>>>>| {
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if let Some(tape) = &tape {
                            tape.lock().unwrap().extend_from_slice(&bytes[..count]);
                        }
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                })
            };
            pass(near.try_clone().unwrap(), far.try_clone().unwrap(), tape.clone());
            pass(far, near, tape);
        }
    });
    (address, heard)
}

#[test]
fn nothing_is_readable_on_the_way() {
    for key in [None, Some(Key::generate().unwrap())] {
        let served = Served::new(Config { key: key.clone(), ..Config::default() });
        let (address, heard) = wiretap(served.address);
        let target = Target { key: key.clone(), ..Target::new("server", address.to_string()) };
        let mut session = Session::connect(&target).unwrap();
        let kernel = session.peer().host.kernel_release.clone().unwrap();
        session.run(&stream(20), &DataAddresses::default(), &mut (), &never_stopped()).unwrap();
        let heard = heard.lock().unwrap();
        assert!(heard.len() > 4000, "{}", heard.len());
        for word in ["hello", "prepare", "token", "elapsed_ns", "tool_version", kernel.as_str()] {
            let found = heard.windows(word.len()).any(|window| window == word.as_bytes());
            // In clear they are all there, so the test would see them.
            assert_eq!(found, key.is_none(), "{word}");
        }
    }
}

#[test]
fn no_key_no_session() {
    let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let keyed = Served::new(Config { key: Some(key.clone()), ..Config::default() });
    let plain = Served::new(Config::default());
    let error = |served: &Served, key: Option<&Key>| {
        Session::connect(&Target { key: key.cloned(), ..served.target() }).unwrap_err()
    };
    let without = error(&keyed, None);
    assert!(matches!(without, ClientError::KeyRequired { .. }), "{without}");
    let sentence = without.to_string();
    assert!(sentence.contains("requires a key") && sentence.contains("hosts.server.key_file"), "{sentence}");
    let wrong = error(&keyed, Some(&other));
    assert!(matches!(wrong, ClientError::KeyDiffers { .. }), "{wrong}");
    let unwanted = error(&plain, Some(&key));
    assert!(matches!(unwanted, ClientError::KeyUnknown { .. }), "{unwanted}");
    assert!(unwanted.to_string().contains("--key-file"), "{unwanted}");
    // Neither daemon has taken harm.
    drop(Session::connect(&Target { key: Some(key), ..keyed.target() }).unwrap());
    drop(plain.connect());
}

#[test]
fn a_changed_byte_ends_the_session() {
    let key = Key::generate().unwrap();
    let served = Served::new(Config { key: Some(key.clone()), ..Config::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let far = served.address;
    // Flips a bit of everything that the daemon says after the handshake (8 + 50 bytes).
    thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut up_there = TcpStream::connect(far).unwrap();
        let (mut up, mut down) = (near.try_clone().unwrap(), up_there.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut up, &mut up_there));
        let mut bytes = [0; 4096];
        let mut passed = 0;
        while let Ok(count @ 1..) = down.read(&mut bytes) {
            if passed >= 58 {
                bytes[count - 1] ^= 1;
            }
            passed += count;
            if near.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    });
    let target = Target { key: Some(key), ..Target::new("server", address.to_string()) };
    let error = Session::connect(&target).unwrap_err().to_string();
    assert!(error.contains("could not be decrypted"), "{error}");
}
