//! The pieces of iperf3's protocol: state bytes, the numbers of streams, the cookie by which the connections of a test know
//! each other, the datagrams by which a UDP stream begins, JSON behind its length with bounds on what a peer can make this end
//! read, and the numbers by which a server says why it refuses a test.

use std::fmt;

use serde_json::{Map, Value};

/// A message of one byte. [`Self::ServerError`] is followed by two numbers of four bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server's streams are open.
    TestStart,
    /// Data flows from here on.
    TestRunning,
    /// From the client: it has decided that the test is over.
    TestEnd,
    /// The server asks for the parameters.
    ParamExchange,
    /// The server waits for the streams.
    CreateStreams,
    /// The server gives the test up.
    ServerTerminate,
    /// The client gives the test up.
    ClientTerminate,
    /// The server asks for the client's results; its own follow them.
    ExchangeResults,
    /// The server has sent its results.
    DisplayResults,
    /// The client's last message.
    Done,
    /// The server is busy, or a stream has the wrong cookie.
    AccessDenied,
    /// The server refuses the test.
    ServerError,
}

const STATES: [(State, i8); 12] = [
    (State::TestStart, 1),
    (State::TestRunning, 2),
    (State::TestEnd, 4),
    (State::ParamExchange, 9),
    (State::CreateStreams, 10),
    (State::ServerTerminate, 11),
    (State::ClientTerminate, 12),
    (State::ExchangeResults, 13),
    (State::DisplayResults, 14),
    (State::Done, 16),
    (State::AccessDenied, -1),
    (State::ServerError, -2),
];

impl State {
    pub fn parse(byte: u8) -> Option<Self> {
        STATES.iter().find(|(_, number)| *number == byte.cast_signed()).map(|(state, _)| *state)
    }

    pub fn byte(self) -> u8 {
        // The table has every state.
        STATES.iter().find(|(state, _)| *state == self).map_or(0, |(_, number)| number.cast_unsigned())
    }
}

/// The number by which both ends name a stream, from its index in the order of creation: 1, 3, 4, 5, …
pub fn stream_id(index: u32) -> u32 {
    if index == 0 { 1 } else { index.saturating_add(2) }
}

/// The index of a stream with this number.
pub fn stream_index(id: u64) -> Option<u32> {
    match id {
        1 => Some(0),
        3.. => u32::try_from(id - 2).ok(),
        _ => None,
    }
}

/// Length of a cookie with the zero byte at its end.
pub const COOKIE_BYTES: usize = 37;

/// The letters of a cookie: base 32.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// 36 letters and a zero byte.
#[derive(Clone)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; COOKIE_BYTES];
        getrandom::fill(&mut bytes[..COOKIE_BYTES - 1])?;
        for byte in &mut bytes[..COOKIE_BYTES - 1] {
            *byte = LETTERS[usize::from(*byte) % LETTERS.len()];
        }
        Ok(Self(bytes))
    }

    /// `None`: no cookie has this form.
    pub fn parse(bytes: [u8; COOKIE_BYTES]) -> Option<Self> {
        let (letters, end) = bytes.split_at(COOKIE_BYTES - 1);
        (letters.iter().all(|byte| LETTERS.contains(byte)) && end == [0]).then_some(Self(bytes))
    }

    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

/// Compares in constant time, so that a stranger learns nothing from the time taken.
impl PartialEq for Cookie {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// A cookie is a secret while its test begins, so it is not shown.
impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie")
    }
}

/// Length of both.
pub const HELLO_BYTES: usize = 4;

/// Since version 3.12.
pub const HELLO: [u8; HELLO_BYTES] = *b"9876";
pub const REPLY: [u8; HELLO_BYTES] = *b"6789";

/// Of older versions. Its bytes are those of a little-endian host.
const OLD_REPLY: [u8; HELLO_BYTES] = 987_654_321u32.to_le_bytes();

/// Whether a datagram begins a stream. Servers accept any, but a late datagram of an earlier test must not: those have at
/// least 16 bytes.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram.len() == HELLO_BYTES
}

/// Whether a datagram answers a hello: either form, as a host of either byte order writes it.
pub fn is_reply(datagram: &[u8]) -> bool {
    let reversed: Vec<u8> = datagram.iter().rev().copied().collect();
    [REPLY, OLD_REPLY].iter().any(|reply| datagram == reply) || reversed == OLD_REPLY
}

/// Largest parameters that are read, bytes: as servers since 3.18.
pub const MOST_PARAMETERS: usize = 8192;

/// Largest results that are read, bytes.
pub const MOST_RESULTS: usize = 1 << 20;

/// A text that is no valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// The length of a text, from the four bytes before it.
pub fn length(bytes: [u8; 4], most: usize) -> Result<usize, Malformed> {
    let length = u32::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if (1..=most).contains(&length) => Ok(length),
        _ => Err(Malformed(format!("a message of {length} bytes where at most {most} are expected"))),
    }
}

/// A text behind its length.
pub fn frame(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Parses an object. The parser bounds the depth, and refuses numbers that no float can hold.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, Malformed> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Malformed("a JSON value that is no object".to_owned())),
        Err(error) => Err(Malformed(format!("no JSON: {error}"))),
    }
}

/// A value that is no count: no whole number, or a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCount;

/// A count. iperf3 writes −1 where it knows none, and versions up to 3.12 write that as 2⁶⁴ − 1: `None`.
pub fn count_or_unknown(value: &Value) -> Result<Option<u64>, NoCount> {
    /// Counts from here on are negative numbers in disguise.
    const NEGATIVE: u64 = 1 << 63;
    let Value::Number(number) = value else { return Err(NoCount) };
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(count), ..) => Ok(Some(count).filter(|count| *count < NEGATIVE)),
        (None, Some(-1), _) => Ok(None),
        // A whole number in the form of a float.
        (None, None, Some(float)) if float >= 0.0 && float.fract() == 0.0 => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
            let count = float as u64;
            Ok(Some(count).filter(|count| *count < NEGATIVE))
        }
        (None, None, Some(float)) if (float + 1.0).abs() < f64::EPSILON => Ok(None),
        _ => Err(NoCount),
    }
}

/// A count that must be known.
pub fn count(value: &Value) -> Option<u64> {
    count_or_unknown(value).ok().flatten()
}

/// A number that is not negative.
pub fn amount(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Why a test is refused: iperf3's number, and our own sentence for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Fault {
    pub code: Code,
    pub sentence: String,
}

impl Fault {
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }
}

macro_rules! codes {
    ($($name:ident = $number:literal, $sentence:literal;)*) => {
        /// A number that servers send, or that this one does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $sentence] $name,)*
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),*];

            pub fn number(self) -> i32 {
                match self { $(Self::$name => $number),* }
            }

            fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence),* }
            }

            fn parse(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    Duration = 5, "it refuses the duration: shorten it";
    Streams = 6, "it refuses the number of streams: use fewer (iperf3 has at most 128)";
    BlockSize = 7, "it refuses the message size";
    BufferSize = 8, "it refuses the size of the socket buffers: ask for less";
    Mss = 10, "it refuses the maximum segment size";
    NoSendfile = 11, "it has no sendfile: use another `io`";
    Omit = 12, "it refuses the warm-up: shorten it";
    Unimplemented = 13, "it does not implement this test";
    Burst = 15, "it refuses the burst: make it smaller";
    NoSctp = 18, "it has no SCTP";
    UdpBlockSize = 20, "it refuses the size of the datagrams";
    Tos = 21, "it refuses the code point";
    TotalRate = 27, "the rate of all streams is over its limit (--server-bitrate-limit): ask for less, or raise the limit there";
    MaxDuration = 37, "the test is longer than it allows (--server-max-duration): shorten it, or raise the limit there";
    UnknownMessage = 110, "it received a message that it does not know";
    Parameters = 114, "it does not accept the parameters of the test";
    Busy = 121, "it is busy with another test: try again later";
    Authentication = 142,
        "it requires authentication, which plumb does not do: start it without --rsa-private-key-path";
    Idle = 144, "it was idle for too long";
    Expired = 160, "the test took longer than it allows (--server-max-duration): shorten it, or raise the limit there";
}

/// The sentence of a server's two numbers: the reason, and the system's error on its host, if there was one.
pub fn sentence(code: i32, errno: i32) -> String {
    let why = match Code::parse(code) {
        Some(code) => code.sentence().to_owned(),
        None => format!("it refuses the test with its error {code}"),
    };
    match errno {
        1.. => format!("{why} ({} there)", nix::errno::Errno::from_raw(errno).desc()),
        _ => why,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// As recorded from iperf3 3.12.
    #[test]
    fn states_have_recorded_bytes() {
        let recorded = [(b'\t', State::ParamExchange), (b'\n', State::CreateStreams), (1, State::TestStart)];
        for (byte, state) in recorded.into_iter().chain([(0xFF, State::AccessDenied), (0xFE, State::ServerError)]) {
            assert_eq!((State::parse(byte), state.byte()), (Some(state), byte));
        }
        for unused in [0, 3, 5, 8, 15, 17, 127, 128, 253] {
            assert_eq!(State::parse(unused), None, "{unused}");
        }
    }

    #[test]
    fn there_is_no_second_stream() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
        assert_eq!([0, 2].map(stream_index), [None; 2]);
        assert_eq!(stream_index(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn bytes_and_states_are_one_to_one(byte: u8) {
            if let Some(state) = State::parse(byte) {
                prop_assert_eq!(state.byte(), byte);
            }
        }

        #[test]
        fn numbers_and_indices_are_one_to_one(index in 0..u32::MAX - 2) {
            prop_assert_eq!(stream_index(stream_id(index).into()), Some(index));
        }
    }

    /// Recorded from iperf3 3.12.
    #[test]
    fn a_recorded_cookie_is_one() {
        let bytes = *b"tvgnpbhyp5zv2hz5grful7cwefivxlihdgs4\0";
        let cookie = Cookie::parse(bytes).unwrap();
        assert_eq!(cookie.bytes(), &bytes);
        for (at, wrong) in [(0, b'A'), (5, b'1'), (35, 0), (36, b'a')] {
            let mut other = bytes;
            other[at] = wrong;
            assert!(Cookie::parse(other).is_none(), "byte {at}");
        }
    }

    #[test]
    fn random_cookies_are_valid_and_differ() {
        let (one, other) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        assert!(Cookie::parse(*one.bytes()) == Some(one.clone()));
        assert!(one != other);
        assert_eq!(format!("{one:?}"), "Cookie");
    }

    /// Recorded from iperf3 3.12, and from the reference for older ones.
    #[test]
    fn both_forms_are_known() {
        assert_eq!((HELLO, REPLY), ([0x39, 0x38, 0x37, 0x36], [0x36, 0x37, 0x38, 0x39]));
        assert!(is_hello(b"9876") && is_hello(&[0x15, 0xCD, 0x5B, 0x07]));
        assert!(is_reply(b"6789") && is_reply(&[0xB1, 0x68, 0xDE, 0x3A]) && is_reply(&[0x3A, 0xDE, 0x68, 0xB1]));
        assert!(!is_hello(&[]) && !is_hello(&[0; 16]) && !is_reply(b"9876") && !is_reply(b"67890"));
    }

    #[test]
    fn lengths_have_bounds() {
        assert_eq!(length([0, 0, 0, 0x7B], MOST_PARAMETERS), Ok(123));
        for bytes in [[0; 4], [0, 0, 0x20, 1], [0x80, 0, 0, 0], [0xFF; 4], *b"GET "] {
            assert!(length(bytes, MOST_PARAMETERS).is_err(), "{bytes:?}");
        }
        assert_eq!(length([0, 0x10, 0, 0], MOST_RESULTS), Ok(MOST_RESULTS));
    }

    #[test]
    fn depth_and_numbers_have_bounds() {
        for text in ["[".repeat(4000), "{\"a\":".repeat(1000), "{\"a\":1e999}".to_owned(), "{\"a\":NaN}".to_owned()] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(b"7").is_err() && object(b"").is_err() && object(b"{}x").is_err() && object(b"\xFF").is_err());
    }

    #[test]
    fn minus_one_is_unknown_in_every_form() {
        for unknown in [json!(-1), json!(u64::MAX), json!(-1.0), json!(1.844_674_407_370_955_2e19)] {
            assert_eq!(count_or_unknown(&unknown), Ok(None), "{unknown}");
        }
        for wrong in [json!(-2), json!(1.5), json!("1"), json!(null), json!(true), json!(-1.5)] {
            assert_eq!(count_or_unknown(&wrong), Err(NoCount), "{wrong}");
        }
        assert_eq!(count(&json!(5e9)), Some(5_000_000_000));
        assert_eq!((amount(&json!(-0.5)), amount(&json!(0.25))), (None, Some(0.25)));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text: Vec<u8>) {
            let _ = object(&text);
        }

        #[test]
        fn frames_say_their_length(text: String) {
            let bytes = frame(&json!({ "text": text }));
            let (head, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(length(*head, usize::MAX), Ok(rest.len()));
            let object = object(rest).unwrap();
            prop_assert_eq!(object.get("text").and_then(Value::as_str), Some(text.as_str()));
        }
    }

    #[test]
    fn every_number_has_its_sentence() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.number()), Some(*code));
            assert!(sentence(code.number(), 0).starts_with("it ") || sentence(code.number(), 0).starts_with("the "));
        }
        assert!(sentence(142, 0).contains("authentication"));
        assert_eq!(sentence(9999, 0), "it refuses the test with its error 9999");
        assert!(sentence(i32::MIN, i32::MIN).ends_with("-2147483648"));
        assert!(sentence(8, libc::EPERM).contains("not permitted"));
    }
}
