use std::{net::TcpListener, thread};

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

type Greeted = Result<Channel, ChannelError>;

fn greet(near: Option<&Key>, far: Option<&Key>) -> (Greeted, Greeted) {
    let (one, other) = pair();
    thread::scope(|scope| {
        let far = scope.spawn(|| Channel::accept(other, far, soon()));
        (Channel::initiate(one, near, soon()), far.join().unwrap())
    })
}

#[test]
fn messages_of_any_length_cross_in_clear_and_encrypted() {
    for key in [None, Some(Key::generate().unwrap())] {
        let (near, far) = greet(key.as_ref(), key.as_ref());
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        for length in [0, 1, 70_000, 400_000] {
            let text = "x".repeat(length);
            far.set_bound(500_000);
            thread::scope(|scope| {
                scope.spawn(|| near.send(&text, 500_000, soon()).unwrap());
                assert_eq!(far.recv::<String>(soon()).unwrap(), text);
            });
        }
        assert_eq!(far.try_recv::<String>().unwrap(), None);
        drop(near);
        assert!(matches!(far.recv::<String>(soon()), Err(ChannelError::Closed)));
    }
}

#[test]
fn both_ends_know_what_is_wrong_with_their_keys() {
    let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let (near, far) = greet(Some(&key), None);
    assert!(matches!(near, Err(ChannelError::KeyUnknown)), "{near:?}");
    assert!(matches!(far, Err(ChannelError::KeyRequired)), "{far:?}");
    let (near, far) = greet(None, Some(&key));
    assert!(matches!(near, Err(ChannelError::KeyRequired)), "{near:?}");
    assert!(matches!(far, Err(ChannelError::KeyUnknown)), "{far:?}");
    let (near, far) = greet(Some(&key), Some(&other));
    assert!(matches!(near, Err(ChannelError::KeyDiffers)), "{near:?}");
    assert!(matches!(far, Err(ChannelError::KeyDiffers)), "{far:?}");
}

#[test]
fn another_version_is_named_at_both_ends() {
    let mut other_version = preamble(None);
    let older = PROTOCOLS.start() - 1;
    other_version[6] = older;
    let (mut near, far) = pair();
    near.write_all(&other_version).unwrap();
    let error = Channel::accept(far, None, soon()).unwrap_err().to_string();
    assert!(error.contains(&format!("protocol {older}")) && error.contains("same version"), "{error}");
    let mut answer = [0; PREAMBLE];
    near.read_exact(&mut answer).unwrap();
    assert_eq!(answer, preamble(None));

    let (near, mut far) = pair();
    far.write_all(&other_version).unwrap();
    assert!(matches!(Channel::initiate(near, None, soon()), Err(ChannelError::Version { .. })));
}

#[test]
fn a_newer_end_that_does_not_speak_our_protocol_is_named() {
    let mut newer = preamble(None);
    newer[6] = PROTOCOLS.end() + 3;
    let (near, mut far) = pair();
    far.write_all(&newer).unwrap();
    let mut near = Channel::initiate(near, None, soon()).unwrap();
    far.read_exact(&mut [0; PREAMBLE]).unwrap();
    drop(far);
    let error = near.recv::<String>(soon()).unwrap_err();
    assert!(matches!(error, ChannelError::Version { theirs } if theirs == newer[6]), "{error}");
}

#[test]
fn strangers_are_recognised_at_their_first_byte() {
    for words in ["SSH-2.0-OpenSSH_9.9\r\n", "G", "plum?"] {
        let (near, mut far) = pair();
        far.write_all(words.as_bytes()).unwrap();
        assert!(matches!(Channel::initiate(near, None, soon()), Err(ChannelError::Stranger(_))), "{words}");
    }
}

#[test]
fn silence_ends_at_the_deadline() {
    let (near, _far) = pair();
    let error = Channel::initiate(near, None, Instant::now() + Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, ChannelError::TimedOut { .. }), "{error}");
}

#[test]
fn a_reader_that_does_not_read_ends_at_the_deadline() {
    let (near, far) = greet(None, None);
    let (mut near, _far) = (near.unwrap(), far.unwrap());
    let text = "x".repeat(16 << 20);
    let error = near.send(&text, 32 << 20, Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, ChannelError::TimedOut { what: "a message could not be sent", .. }), "{error}");
}

#[test]
fn a_frame_beyond_the_bound_is_an_error_at_both_ends() {
    let (near, far) = greet(None, None);
    let (mut near, mut far) = (near.unwrap(), far.unwrap());
    let text = "x".repeat(GREETING_BOUND);
    assert!(matches!(near.send(&text, GREETING_BOUND, soon()), Err(ChannelError::Frame(_))));
    near.send(&text, usize::MAX, soon()).unwrap();
    assert!(matches!(far.recv::<String>(soon()), Err(ChannelError::Frame(_))));
}
