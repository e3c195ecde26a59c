//! netperf's control connection and its messages: 656 bytes each way, read as 164 big-endian words of 32 bits. Word 0 is the
//! type, word 1 has a meaning of its own in each direction, and 162 words of data follow.
//!
//! Nothing in a message tells the versions of netperf apart. Word 0 of a results message may be reversed: netserver sends
//! the buffer of its response again, already converted. So a client never looks at the type of an answer, only at word 1.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use crate::control::stop::wait_writable;

/// Bytes of a message since netperf 2.6.0.
pub const MESSAGE_BYTES: usize = 656;

/// Bytes of a message before netperf 2.6.0.
pub const OLD_MESSAGE_BYTES: usize = 256;

/// Words of data in a message.
pub const DATA_WORDS: usize = MESSAGE_BYTES / 4 - 2;

/// Numbers of the message types. Each test has three: this one for its request, the next for the response, and the one after
/// it for the results.
pub mod kind {
    pub const DEBUG_ON: u32 = 1;
    pub const DEBUG_OFF: u32 = 2;
    pub const DEBUG_OK: u32 = 3;
    pub const CPU_CALIBRATE: u32 = 5;
    pub const PASSPHRASE: u32 = 6;
    pub const TCP_STREAM: u32 = 10;
    pub const TCP_RR: u32 = 13;
    pub const UDP_STREAM: u32 = 16;
    pub const UDP_RR: u32 = 19;
    pub const TCP_CRR: u32 = 34;
    pub const TCP_MAERTS: u32 = 94;
    pub const OMNI: u32 = 97;
    pub const TCP_CC: u32 = 300;
    pub const SYSINFO: u32 = 600;
}

/// Values of word 1 of an answer that are no errno of the server's platform.
pub mod error {
    /// The type of the request is unknown.
    pub const UNKNOWN_REQUEST: u32 = 998;
    /// The passphrase is wrong.
    pub const PASSPHRASE: u32 = 403;
}

/// The highest number of a method of measuring CPU time.
pub const MOST_CPU_METHOD: u32 = 12;

/// Word 1 of a request: the CPU to run on. This value: any.
pub const ANY_CPU: u32 = u32::MAX;

/// netperf's own numbers for the IP versions.
pub mod family {
    pub const UNSPECIFIED: u32 = 0;
    pub const V4: u32 = 4;
    pub const V6: u32 = 6;
}

/// A message as it is on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(pub [u8; MESSAGE_BYTES]);

impl Message {
    pub fn new(kind: u32, second: u32) -> Self {
        let mut message = Self([0; MESSAGE_BYTES]);
        message.0[..4].copy_from_slice(&kind.to_be_bytes());
        message.0[4..8].copy_from_slice(&second.to_be_bytes());
        message
    }

    pub fn kind(&self) -> u32 {
        u32::from_be_bytes(self.bytes(0))
    }

    /// Word 1. Of a request: the CPU; of an answer: 0 or an error.
    pub fn second(&self) -> u32 {
        u32::from_be_bytes(self.bytes(4))
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    /// Reads the field at a data word.
    pub fn get<F: Field>(&self, word: usize) -> F {
        F::read(self, 8 + 4 * word)
    }

    /// Writes a field at a data word. What does not fit the message is left out.
    pub fn put<F: Field>(&mut self, word: usize, field: &F) {
        field.write(self, 8 + 4 * word);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

impl fmt::Debug for Message {
    /// The words up to the last one that is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last / 4 + 1);
        let words = self.0.chunks_exact(4).take(end);
        words.enumerate().try_for_each(|(number, word)| {
            if number > 0 {
                f.write_str(" ")?;
            }
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        })
    }
}

/// A value in the data of a message.
pub trait Field: Sized {
    fn read(message: &Message, at: usize) -> Self;
    fn write(&self, message: &mut Message, at: usize);
}

/// Fields in big-endian order. A 64-bit value is its upper word, then its lower.
macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn read(message: &Message, at: usize) -> Self {
                Self::from_be_bytes(message.bytes(at))
            }

            fn write(&self, message: &mut Message, at: usize) {
                message.write(at, &self.to_be_bytes());
            }
        }
    )*};
}

numbers!(i32, u32, u64, f32, f64);

/// Text, padded with NUL bytes. It is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Text<N> {
    /// The text with at least one NUL byte at its end; `None`: it is too long, or has a NUL byte.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        bytes[..N.checked_sub(1)?].get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.contains('\0')).then_some(Self(bytes))
    }

    /// Up to the first NUL byte. Whatever is no printable ASCII ends it too: the sender does not clear what follows.
    pub fn text(&self) -> &str {
        let end = self.0.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(N);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl<const N: usize> Field for Text<N> {
    fn read(message: &Message, at: usize) -> Self {
        Self(message.bytes(at))
    }

    fn write(&self, message: &mut Message, at: usize) {
        message.write(at, &self.0);
    }
}

/// An IP address: four words. IPv4 is the first of them, in network order. IPv6 has its bytes reversed in each word, as a
/// little-endian netperf sends them: it converts bytes that were in network order already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireIp(pub [u8; 16]);

impl WireIp {
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&ip.octets());
                Self(bytes)
            }
            IpAddr::V6(ip) => Self(reversed(ip.octets())),
        }
    }

    /// The address of this IP version (netperf's number); `None`: none is given. Words that the version does not use may
    /// hold anything.
    pub fn ip(self, family: u32) -> Option<IpAddr> {
        let [a, b, c, d, ..] = self.0;
        let ip = match family {
            family::V6 => IpAddr::V6(Ipv6Addr::from(reversed(self.0))),
            _ => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        };
        (!ip.is_unspecified()).then_some(ip)
    }
}

fn reversed(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    bytes
}

impl Field for WireIp {
    fn read(message: &Message, at: usize) -> Self {
        Self(message.bytes(at))
    }

    fn write(&self, message: &mut Message, at: usize) {
        message.write(at, &self.0);
    }
}

/// A struct of fields at data words of a message, with `read` and `write`.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $word:literal $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $name {
            /// Any message has a value: the caller judges it.
            pub fn read(message: &$crate::peers::netperf::wire::Message) -> Self {
                Self { $($field: message.get($word),)* }
            }

            /// Writes the fields, and leaves the other words as they are.
            pub fn write(&self, message: &mut $crate::peers::netperf::wire::Message) {
                $(message.put($word, &self.$field);)*
            }
        }
    )*};
}
pub(super) use layout;

/// Time for the peer to take a message: the kernel has room for many.
const SEND: Duration = Duration::from_secs(10);

pub struct Control {
    stream: TcpStream,
    incoming: [u8; MESSAGE_BYTES],
    got: usize,
}

impl Control {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, incoming: [0; MESSAGE_BYTES], got: 0 })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Bytes of a message that is not complete yet.
    pub fn partial(&self) -> &[u8] {
        &self.incoming[..self.got]
    }

    /// Takes a message, if a whole one is there. The end of the stream is an error of the kind `UnexpectedEof`.
    pub fn try_receive(&mut self) -> io::Result<Option<Message>> {
        while self.got < MESSAGE_BYTES {
            match self.stream.read(&mut self.incoming[self.got..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.got += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.got = 0;
        Ok(Some(Message(self.incoming)))
    }

    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        let deadline = Instant::now() + SEND;
        let mut rest: &[u8] = &message.0;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_writable(self.stream.as_fd(), None, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_big_endian() {
        let mut message = Message::new(kind::OMNI, ANY_CPU);
        message.put(0, &-1i32);
        message.put(1, &100.0f32);
        message.put(2, &0x1_0000_0002u64);
        message.put(4, &1.0f64);
        assert_eq!(
            format!("{message:?}"),
            "00000061 ffffffff ffffffff 42c80000 00000001 00000002 3ff00000",
            "trailing zeros are not shown"
        );
        assert_eq!((message.kind(), message.second()), (97, u32::MAX));
        assert_eq!((message.get::<i32>(0), message.get::<f32>(1).to_bits()), (-1, 100f32.to_bits()));
        assert_eq!(message.get::<u64>(2), 0x1_0000_0002);
    }

    #[test]
    fn a_field_beyond_the_message_is_left_out() {
        let mut message = Message::new(1, 0);
        message.put(DATA_WORDS - 1, &u64::MAX);
        assert_eq!(message, Message::new(1, 0));
        message.put(DATA_WORDS - 1, &7u32);
        assert_eq!(message.get::<u32>(DATA_WORDS - 1), 7);
        assert_eq!(message.get::<u32>(DATA_WORDS), 0);
    }

    #[test]
    fn groups_of_ipv6_are_reversed() {
        let loopback = WireIp::of("::1".parse().unwrap());
        assert_eq!(loopback.0[12..], [1, 0, 0, 0]);
        for ip in ["::1", "fd00:1234::5678:9abc", "192.0.2.1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let family = if ip.is_ipv6() { family::V6 } else { family::V4 };
            assert_eq!(WireIp::of(ip).ip(family), Some(ip));
        }
        assert_eq!(WireIp::default().ip(family::V4), None);
        assert_eq!(WireIp::default().ip(family::V6), None);
        // The words after an IPv4 address are whatever the buffer held before.
        let mut stale = [0xaa; 16];
        stale[..4].copy_from_slice(&[0; 4]);
        assert_eq!(WireIp(stale).ip(family::V4), None);
    }

    #[test]
    fn texts_end_at_the_first_byte_that_is_none() {
        assert_eq!(Text::<16>::new("cubic").unwrap().text(), "cubic");
        assert_eq!(Text::<16>::new("fifteen letters"), Text::<16>::new("fifteen letters"));
        assert!(Text::<16>::new("sixteen letters!").is_none() && Text::<16>::new("a\0b").is_none());
        assert!(Text::<0>::new("").is_none());
        assert_eq!(Text(*b"bbr\x01\xff\0junk").text(), "bbr");
        assert_eq!(Text([0x1b; 4]).text(), "");
    }
}
