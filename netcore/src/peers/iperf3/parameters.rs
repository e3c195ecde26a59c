//! The parameters of a test, as the client sends them.
//!
//! Servers test a flag only for its presence: one that is off must be absent. This end reads the value, too.

use serde_json::{Map, Value, json};

use super::wire::{self, Code, Fault, Malformed};
use crate::spec::{Direction, LONGEST_DATAGRAM};

/// Bounds of a server, each inclusive.
pub const MOST_STREAMS: u32 = 128;
pub const MOST_SECONDS: u64 = 86_400;
pub const MOST_OMIT_SECONDS: u64 = 600;
pub const MOST_BLOCK_BYTES: u64 = 1 << 20;
pub const UDP_BLOCK_BYTES: std::ops::RangeInclusive<u64> = 16..=LONGEST_DATAGRAM;
const MOST_MSS_BYTES: u64 = 32_767;
pub const MOST_WINDOW_BYTES: u64 = 512 << 20;
pub const MOST_BURST: u32 = 1000;

/// A server's message size where the client names none.
const DEFAULT_BLOCK_BYTES: u64 = 131_072;

/// Longest text that is kept of a client's, bytes.
const MOST_TEXT: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// A test. A number of 0 is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of the protocol")]
pub struct Parameters {
    pub protocol: Protocol,
    pub mptcp: bool,
    /// Seen from the client, as in a test.
    pub direction: Direction,
    /// Uncounted seconds before `time_s`.
    pub omit_s: u64,
    /// 0: the client ends the test after a count, or when it likes.
    pub time_s: u64,
    /// Bytes after which the client ends the test.
    pub num: u64,
    /// Messages after which the client ends the test.
    pub blocks: u64,
    /// Streams each way.
    pub parallel: u32,
    /// Bytes per message.
    pub len: u64,
    /// Bits per second of each stream.
    pub bandwidth: u64,
    /// The same for the kernel to keep.
    pub fq_rate: u64,
    /// Messages sent back to back.
    pub burst: u32,
    pub nodelay: bool,
    pub mss: u64,
    /// Bytes of both socket buffers.
    pub window: u64,
    /// The byte of the IP header with the code point.
    pub tos: u8,
    pub congestion: Option<String>,
    /// The CPU for the server.
    pub affinity: Option<u32>,
    pub wide_counter: bool,
    pub zerocopy: bool,
    /// The server leaves what it receives where it is.
    pub skip_rx_copy: bool,
    pub dont_fragment: bool,
    /// The payload repeats a pattern that can be compressed.
    pub repeating_payload: bool,
    /// The client wants what the server prints.
    pub wants_output: bool,
    /// The client's, as far as it says.
    pub version: String,
}

impl Parameters {
    /// As a client sends them.
    pub fn encode(&self) -> Value {
        let mut object = Map::new();
        let mut set = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        set(if self.protocol == Protocol::Udp { "udp" } else { "tcp" }, json!(true));
        set("omit", json!(self.omit_s));
        set("time", json!(self.time_s));
        set("num", json!(self.num));
        set("blockcount", json!(self.blocks));
        set("parallel", json!(self.parallel));
        let flags = [
            ("nodelay", self.nodelay),
            ("reverse", self.direction == Direction::Reverse),
            ("bidirectional", self.direction == Direction::Bidirectional),
            ("mptcp", self.mptcp),
        ];
        for (key, _) in flags.into_iter().filter(|(_, is_on)| *is_on) {
            set(key, json!(true));
        }
        let numbers = [
            ("MSS", self.mss),
            ("window", self.window),
            ("len", self.len),
            ("bandwidth", self.bandwidth),
            ("fqrate", self.fq_rate),
            ("burst", self.burst.into()),
            ("TOS", self.tos.into()),
            ("udp_counters_64bit", self.wide_counter.into()),
            ("zerocopy", self.zerocopy.into()),
            ("skip_rx_copy", self.skip_rx_copy.into()),
            ("dont_fragment", self.dont_fragment.into()),
            ("repeating_payload", self.repeating_payload.into()),
            ("get_server_output", self.wants_output.into()),
        ];
        for (key, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
            set(key, json!(number));
        }
        if let Some(cpu) = self.affinity {
            set("server_affinity", json!(cpu));
        }
        if let Some(algorithm) = &self.congestion {
            set("congestion", json!(algorithm));
        }
        set("client_version", json!(self.version));
        Value::Object(object)
    }

    /// The parameters that a client sent, within a server's bounds. A token of a user is not looked at.
    pub fn decode(text: &[u8]) -> Result<Self, Fault> {
        let object = wire::object(text).map_err(|Malformed(why)| Fault::new(Code::Parameters, why))?;
        let read = Reader { object: &object };
        if read.flag("sctp")? {
            return Err(Fault::new(Code::NoSctp, "SCTP is not served"));
        }
        let protocol = if read.flag("udp")? { Protocol::Udp } else { Protocol::Tcp };
        let direction = match (read.flag("reverse")?, read.flag("bidirectional")?) {
            (_, true) => Direction::Bidirectional,
            (true, false) => Direction::Reverse,
            (false, false) => Direction::Forward,
        };
        let (block, code) = match protocol {
            Protocol::Udp => (UDP_BLOCK_BYTES, Code::UdpBlockSize),
            Protocol::Tcp => (1..=MOST_BLOCK_BYTES, Code::BlockSize),
        };
        let len = match read.number("len", 0, u64::MAX, code)? {
            0 if protocol == Protocol::Tcp => DEFAULT_BLOCK_BYTES,
            len if block.contains(&len) => len,
            len => return Err(Fault::new(code, format!("messages of {len} bytes"))),
        };
        // In the ranges that the bounds give.
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Self {
            protocol,
            mptcp: read.flag("mptcp")?,
            direction,
            omit_s: read.number("omit", 0, MOST_OMIT_SECONDS, Code::Omit)?,
            time_s: read.number("time", 0, MOST_SECONDS, Code::Duration)?,
            num: read.number("num", 0, u64::MAX, Code::Parameters)?,
            blocks: read.number("blockcount", 0, u64::MAX, Code::Parameters)?,
            parallel: match read.present("parallel") {
                Some(_) => small(read.number("parallel", 1, MOST_STREAMS.into(), Code::Streams)?),
                None => 1,
            },
            len,
            bandwidth: read.number("bandwidth", 0, u64::MAX, Code::Parameters)?,
            fq_rate: read.number("fqrate", 0, u64::MAX, Code::Parameters)?,
            burst: small(read.number("burst", 0, MOST_BURST.into(), Code::Burst)?),
            nodelay: read.flag("nodelay")?,
            mss: read.number("MSS", 0, MOST_MSS_BYTES, Code::Mss)?,
            window: read.number("window", 0, MOST_WINDOW_BYTES, Code::BufferSize)?,
            tos: u8::try_from(read.number("TOS", 0, 255, Code::Tos)?).unwrap_or(u8::MAX),
            congestion: read.text("congestion")?,
            affinity: match read.present("server_affinity") {
                Some(_) => Some(small(read.number("server_affinity", 0, 1024, Code::Parameters)?)),
                None => None,
            },
            wide_counter: read.flag("udp_counters_64bit")?,
            zerocopy: read.flag("zerocopy")?,
            skip_rx_copy: read.flag("skip_rx_copy")?,
            dont_fragment: read.flag("dont_fragment")?,
            repeating_payload: read.flag("repeating_payload")?,
            wants_output: read.flag("get_server_output")?,
            version: read.text("client_version")?.unwrap_or_default(),
        })
    }
}

struct Reader<'a> {
    object: &'a Map<String, Value>,
}

impl Reader<'_> {
    /// A null is absent.
    fn present(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// `true`, or a number that is not 0.
    fn flag(&self, key: &str) -> Result<bool, Fault> {
        match self.present(key) {
            None | Some(Value::Bool(false)) => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(Value::Number(number)) => Ok(number.as_f64() != Some(0.0)),
            Some(_) => Err(Fault::new(Code::Parameters, format!("`{key}` is neither true nor false"))),
        }
    }

    fn number(&self, key: &str, least: u64, most: u64, code: Code) -> Result<u64, Fault> {
        let Some(value) = self.present(key) else { return Ok(0) };
        match wire::count(value) {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            // The value is printed as JSON, which escapes it, and numbers are short.
            _ if value.is_number() => Err(Fault::new(code, format!("`{key}` is {value}"))),
            _ => Err(Fault::new(Code::Parameters, format!("`{key}` is no number"))),
        }
    }

    /// A short name: letters, digits and a few marks, since logs and system calls get it.
    fn text(&self, key: &str) -> Result<Option<String>, Fault> {
        let Some(value) = self.present(key) else { return Ok(None) };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+- ".contains(c);
        match value.as_str() {
            Some(text) if text.len() <= MOST_TEXT && text.chars().all(is_plain) => {
                Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
            }
            _ => Err(Fault::new(Code::Parameters, format!("`{key}` is no short name"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(text: &str) -> Parameters {
        Parameters::decode(text.as_bytes()).unwrap()
    }

    fn code(text: &str) -> Code {
        Parameters::decode(text.as_bytes()).unwrap_err().code
    }

    /// Recorded from iperf3 3.12, with the options before each.
    #[test]
    fn recorded_parameters_are_read() {
        // -t 1
        let plain = decode(
            r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.12"}"#,
        );
        let expected =
            Parameters { time_s: 1, parallel: 1, len: 131_072, version: "3.12".to_owned(), ..Parameters::default() };
        assert_eq!(plain, expected);
        // -t 1 --bidir -P 2
        let both = decode(
            r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":2,"bidirectional":true,"len":131072,"pacing_timer":1000,"client_version":"3.12"}"#,
        );
        assert_eq!(both, Parameters { direction: Direction::Bidirectional, parallel: 2, ..expected.clone() });
        // -u -b 5M -t 1 -R --udp-counters-64bit
        let datagrams = decode(
            r#"{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"reverse":true,"len":32768,"bandwidth":5000000,"pacing_timer":1000,"udp_counters_64bit":1,"client_version":"3.12"}"#,
        );
        let reverse = Parameters {
            protocol: Protocol::Udp,
            direction: Direction::Reverse,
            len: 32_768,
            bandwidth: 5_000_000,
            wide_counter: true,
            ..expected.clone()
        };
        assert_eq!(datagrams, reverse);
        // -n 10M -N -M 1000 -w 128K -S 0xb8 -C reno --get-server-output -T hi --extra-data x -l 9999
        let many = decode(
            r#"{"tcp":true,"omit":0,"time":0,"num":10485760,"blockcount":0,"MSS":1000,"nodelay":true,"parallel":1,"window":131072,"len":9999,"pacing_timer":1000,"TOS":184,"title":"hi","extra_data":"x","congestion":"reno","get_server_output":1,"client_version":"3.12"}"#,
        );
        let options = Parameters {
            time_s: 0,
            num: 10_485_760,
            mss: 1000,
            nodelay: true,
            window: 131_072,
            len: 9999,
            tos: 184,
            congestion: Some("reno".to_owned()),
            wants_output: true,
            ..expected
        };
        assert_eq!(many, options);
    }

    /// A flag that is off is absent: iperf3's servers look only for the key.
    #[test]
    fn flags_that_are_off_are_absent_but_read() {
        let parameters = Parameters { parallel: 1, len: 1, ..Parameters::default() };
        let text = parameters.encode().to_string();
        for key in ["reverse", "bidirectional", "nodelay", "mptcp", "udp", "zerocopy", "get_server_output", "burst"] {
            assert!(!text.contains(key), "{text}");
        }
        assert_eq!(
            decode(r#"{"tcp":true,"reverse":false,"nodelay":false,"udp":false,"zerocopy":0}"#).direction,
            Direction::Forward
        );
        assert_eq!(code(r#"{"tcp":true,"reverse":"no"}"#), Code::Parameters);
    }

    #[test]
    fn bounds_are_those_of_a_server() {
        for (text, refused) in [
            (r#"{"tcp":true,"parallel":0}"#, Code::Streams),
            (r#"{"tcp":true,"parallel":129}"#, Code::Streams),
            (r#"{"tcp":true,"len":1048577}"#, Code::BlockSize),
            (r#"{"udp":true,"len":15}"#, Code::UdpBlockSize),
            (r#"{"udp":true}"#, Code::UdpBlockSize),
            (r#"{"udp":true,"len":65508}"#, Code::UdpBlockSize),
            (r#"{"tcp":true,"time":86401}"#, Code::Duration),
            (r#"{"tcp":true,"omit":601}"#, Code::Omit),
            (r#"{"tcp":true,"time":-1}"#, Code::Duration),
            (r#"{"tcp":true,"window":536870913}"#, Code::BufferSize),
            (r#"{"tcp":true,"TOS":256}"#, Code::Tos),
            (r#"{"tcp":true,"MSS":32768}"#, Code::Mss),
            (r#"{"tcp":true,"burst":1001}"#, Code::Burst),
            (r#"{"tcp":true,"time":"1"}"#, Code::Parameters),
            (r#"{"tcp":true,"congestion":"../x"}"#, Code::Parameters),
            (r#"{"sctp":true}"#, Code::NoSctp),
            ("[]", Code::Parameters),
        ] {
            assert_eq!(code(text), refused, "{text}");
        }
        assert_eq!(decode("{}").len, 131_072, "a server's own default");
    }

    #[test]
    fn a_token_is_not_kept() {
        let parameters = decode(r#"{"tcp":true,"authtoken":"c2VjcmV0","title":"\u001b[2J","extra_data":{"a":[1]}}"#);
        assert!(!format!("{parameters:?}").contains("c2VjcmV0"));
    }

    fn valid() -> impl Strategy<Value = Parameters> {
        let ways = prop_oneof![Just(Direction::Forward), Just(Direction::Reverse), Just(Direction::Bidirectional)];
        let shape = (any::<[bool; 9]>(), ways, 1..=MOST_STREAMS, 16..=65_507u64, 0..=MOST_OMIT_SECONDS, any::<u8>());
        let rest = (0..=MOST_SECONDS, 0..1u64 << 62, 0..1u64 << 62, 0..=MOST_BURST, 0..=MOST_MSS_BYTES);
        let names = (prop::option::of("[a-z]{1,16}"), prop::option::of(0..=1024u32), "[0-9.+-]{0,20}");
        (shape, rest, names).prop_map(
            |((flags, direction, parallel, len, omit_s, tos), rest, (congestion, affinity, version))| {
                let (time_s, num, bandwidth, burst, mss) = rest;
                Parameters {
                    protocol: if flags[0] { Protocol::Udp } else { Protocol::Tcp },
                    mptcp: flags[1],
                    direction,
                    omit_s,
                    time_s,
                    num,
                    blocks: num / 2,
                    parallel,
                    len,
                    bandwidth,
                    fq_rate: bandwidth / 3,
                    burst,
                    nodelay: flags[2],
                    mss,
                    window: bandwidth % MOST_WINDOW_BYTES,
                    tos,
                    congestion,
                    affinity,
                    wide_counter: flags[3],
                    zerocopy: flags[4],
                    skip_rx_copy: flags[8],
                    dont_fragment: flags[5],
                    repeating_payload: flags[6],
                    wants_output: flags[7],
                    version,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(parameters in valid()) {
            let text = parameters.encode().to_string();
            prop_assert!(text.len() <= wire::MOST_PARAMETERS);
            prop_assert_eq!(Parameters::decode(text.as_bytes()), Ok(parameters));
        }

        #[test]
        fn changed_texts_are_decoded_or_refused(parameters in valid(), at: prop::sample::Index, byte: u8) {
            let mut text = parameters.encode().to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(read) = Parameters::decode(&text) {
                prop_assert!((1..=MOST_STREAMS).contains(&read.parallel) && read.len <= MOST_BLOCK_BYTES);
            }
        }
    }
}
