//! The greeting of both sides, against a peer that keeps to it as far as the bytes say.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;

use crate::control::{
    channel::{Channel, ChannelError, PREAMBLE, preamble},
    key::{Handshake, Key},
    message::{Hello, Reply, Request},
};

/// Far longer than any of this takes: the peer always closes its connection.
const PATIENCE: Duration = Duration::from_mins(1);

/// The peer's part of the conversation.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the input")]
struct Script<'b> {
    /// The side under test is the client.
    client: bool,
    /// It has a key.
    keyed: bool,
    /// The peer's key is that key.
    same_key: bool,
    /// The peer begins as it should.
    greets: bool,
    /// The peer also shakes hands as it should, where there is a key.
    shakes: bool,
    /// Its rest is encrypted, where it has shaken hands.
    seals: bool,
    /// Bytes of each write.
    piece: usize,
    rest: &'b [u8],
}

/// One conversation: it ends, and not by its deadline.
pub fn handshake(bytes: &[u8]) {
    let [options, piece, rest @ ..] = bytes else { return };
    let has = |bit: u8| options & 1 << bit != 0;
    let script = Script {
        client: has(0),
        keyed: has(1),
        same_key: !has(2),
        greets: !has(3),
        shakes: !has(4),
        seals: !has(5),
        piece: usize::from(*piece) + 1,
        rest,
    };
    let (near, far) = pair();
    let key = script.keyed.then(|| key(1));
    let deadline = Instant::now() + PATIENCE;
    let error = thread::scope(|scope| {
        // It stays open until this side has ended: a close with unread bytes would reset the connection.
        let peer = scope.spawn(move || play(far, script));
        let greeted = if script.client {
            Channel::initiate(near, key.as_ref(), deadline)
        } else {
            Channel::accept(near, key.as_ref(), deadline)
        };
        let error = greeted.map_or_else(|error| error, |channel| last_word(channel, script.client, deadline));
        drop(peer.join().expect("the peer does not panic"));
        error
    });
    assert!(!matches!(error, ChannelError::TimedOut { .. }), "{error}");
}

/// Reads messages until the conversation ends.
fn last_word(mut channel: Channel, client: bool, deadline: Instant) -> ChannelError {
    if !client && let Err(error) = channel.recv::<Hello>(deadline) {
        return error;
    }
    loop {
        let read = if client {
            channel.recv::<Reply>(deadline).map(drop)
        } else {
            channel.recv::<Request>(deadline).map(drop)
        };
        if let Err(error) = read {
            return error;
        }
    }
}

/// A key of one byte, repeated.
fn key(byte: u8) -> Key {
    Key::from_hex(&format!("{byte:02x}").repeat(32)).expect("64 digits")
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    for stream in [&near, &far] {
        // Millions of connections in TIME_WAIT would use up the ports.
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("an option of every socket");
    }
    far.set_read_timeout(Some(PATIENCE)).expect("an option of every socket");
    (near, far)
}

/// Plays the peer. A connection that the other side has closed ends it early.
fn play(mut stream: TcpStream, script: Script<'_>) -> TcpStream {
    let _ = speak(&mut stream, script);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream
}

fn speak(stream: &mut TcpStream, script: Script<'_>) -> std::io::Result<()> {
    let key = key(if script.same_key { 1 } else { 2 });
    if !script.greets {
        return write(stream, script, script.rest);
    }
    let ours = preamble(script.keyed.then_some(&key));
    stream.write_all(&ours)?;
    if !(script.keyed && script.shakes) {
        return write(stream, script, script.rest);
    }
    let broken = std::io::Error::other;
    let mut theirs = [0; PREAMBLE];
    stream.read_exact(&mut theirs)?;
    let mut record = [0; Handshake::RECORD_BYTES];
    let mut handshake;
    if script.client {
        handshake = Handshake::responder(&key, &[theirs, ours].concat()).map_err(broken)?;
        stream.read_exact(&mut record)?;
        handshake.read(&record).map_err(broken)?;
        stream.write_all(&handshake.write().map_err(broken)?)?;
    } else {
        handshake = Handshake::initiator(&key, &[ours, theirs].concat()).map_err(broken)?;
        stream.write_all(&handshake.write().map_err(broken)?)?;
        stream.read_exact(&mut record)?;
        handshake.read(&record).map_err(broken)?;
    }
    if script.seals {
        let sealed = handshake.finish().and_then(|mut cipher| cipher.seal(script.rest)).map_err(broken)?;
        return write(stream, script, &sealed);
    }
    write(stream, script, script.rest)
}

fn write(stream: &mut TcpStream, script: Script<'_>, bytes: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    bytes.chunks(script.piece).try_for_each(|piece| stream.write_all(piece))
}
