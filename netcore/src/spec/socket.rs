//! Socket options, one row each. A row gives the option's field in plans and on the wire, its schema, the transports on
//! which it has a meaning, and how it is set and read back.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    Transport,
    quantity::{BitsPerSecond, Bytes, Bytes32, Linger, Microseconds, Milliseconds, Seconds},
};
use crate::sys::opt::{self, Opt};

/// The way to set an option on a transport's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// It has no meaning there, even if the kernel accepts it.
    Meaningless,
    /// Set on the socket that connects or listens, when that happens.
    Opening,
    /// Set on the sockets of the flows that use it, once these are connected.
    Flows,
    /// By setsockopt(2).
    Call {
        option: Opt,
        /// Whether reports include it even if the test leaves it out.
        always: bool,
    },
}

impl Setter {
    /// This setter if `condition` holds, otherwise none.
    const fn on(self, condition: bool) -> Self {
        if condition { self } else { Self::Meaningless }
    }
}

const fn always(option: Opt) -> Setter {
    Setter::Call { option, always: true }
}

const fn asked(option: Opt) -> Setter {
    Setter::Call { option, always: false }
}

/// An option for each IP version.
const fn ip(v6: bool, option_v4: Opt, option_v6: Opt, always: bool) -> Setter {
    Setter::Call { option: if v6 { option_v6 } else { option_v4 }, always }
}

/// Converts an option's value between plan and kernel.
pub trait OptionValue {
    /// Size of the kernel's form, bytes.
    const SIZE: usize = 4;

    /// The value for setsockopt(2). Numbers over `i32::MAX` are clamped.
    fn to_kernel(&self) -> Vec<u8>;

    /// The value as a plan writes it.
    fn shown(&self) -> String;

    /// The value from getsockopt(2), as a plan writes it.
    fn read(kernel: &[u8]) -> String;
}

fn to_int(value: u64) -> Vec<u8> {
    i32::try_from(value).unwrap_or(i32::MAX).to_ne_bytes().to_vec()
}

fn int(kernel: &[u8]) -> i32 {
    kernel.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes))
}

/// Numbers, with the unit that a plan writes after them.
macro_rules! numbers {
    ($($name:ty, $unit:literal;)*) => {$(
        impl OptionValue for $name {
            fn to_kernel(&self) -> Vec<u8> {
                to_int((*self).into())
            }

            fn shown(&self) -> String {
                format!(concat!("{}", $unit), u64::from(*self))
            }

            fn read(kernel: &[u8]) -> String {
                format!(concat!("{}", $unit), int(kernel))
            }
        }
    )*};
}

numbers! {
    u8, "";
    u32, "";
    Bytes, "";
    Bytes32, "";
    // Without a unit, a time in a plan is in seconds.
    Seconds, "";
    Milliseconds, "ms";
    Microseconds, "us";
}

impl OptionValue for bool {
    fn to_kernel(&self) -> Vec<u8> {
        to_int((*self).into())
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn read(kernel: &[u8]) -> String {
        (int(kernel) != 0).to_string()
    }
}

impl OptionValue for String {
    /// Room for any name of an interface or congestion control.
    const SIZE: usize = 32;

    fn to_kernel(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn shown(&self) -> String {
        self.clone()
    }

    fn read(kernel: &[u8]) -> String {
        let text = kernel.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

impl OptionValue for BitsPerSecond {
    /// A 64-bit number of bytes per second.
    const SIZE: usize = 8;

    fn to_kernel(&self) -> Vec<u8> {
        // A rate of less than a byte per second would be none.
        (self.0 / 8).max(1).to_ne_bytes().to_vec()
    }

    fn shown(&self) -> String {
        format!("{}bit/s", self.0)
    }

    fn read(kernel: &[u8]) -> String {
        match kernel.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)) {
            Some(u64::MAX) | None => "unlimited".to_owned(),
            Some(bytes) => format!("{}bit/s", u128::from(bytes) * 8),
        }
    }
}

impl OptionValue for Linger {
    /// `struct linger`: two integers, a switch and the seconds.
    const SIZE: usize = 8;

    fn to_kernel(&self) -> Vec<u8> {
        [to_int(1), to_int(self.0.into())].concat()
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }

    fn read(kernel: &[u8]) -> String {
        int(kernel.get(4..).unwrap_or_default()).to_string()
    }
}

/// `IP_MTU_DISCOVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MtuDiscover {
    /// Always set Don't Fragment.
    Do = 2,
    /// Never set it.
    Dont = 0,
    /// Discover per route.
    Want = 1,
    /// Set it, but ignore the discovered MTU.
    Probe = 3,
}

impl OptionValue for MtuDiscover {
    /// IP_PMTUDISC_*; the numbers are the same for both IP versions.
    fn to_kernel(&self) -> Vec<u8> {
        to_int(*self as u64)
    }

    fn shown(&self) -> String {
        Self::read(&self.to_kernel())
    }

    fn read(kernel: &[u8]) -> String {
        let mode = int(kernel);
        let words = ["dont", "want", "do", "probe"];
        usize::try_from(mode).ok().and_then(|i| words.get(i)).map_or(mode.to_string(), |word| (*word).to_owned())
    }
}

/// The way in which connections are spread over the listening sockets of a connect server that share one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reuseport {
    /// By a hash of the connection's addresses and ports.
    Hash,
    /// By the CPU that handles the connection's first packet (`SO_ATTACH_REUSEPORT_CBPF`).
    Cpu,
}

impl OptionValue for Reuseport {
    /// The switch of `SO_REUSEPORT`.
    fn to_kernel(&self) -> Vec<u8> {
        to_int(1)
    }

    fn shown(&self) -> String {
        match self {
            Self::Hash => "hash",
            Self::Cpu => "cpu",
        }
        .to_owned()
    }

    fn read(kernel: &[u8]) -> String {
        bool::read(kernel)
    }
}

/// A differentiated-services code point. Plans may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Dscp(pub u8);

impl OptionValue for Dscp {
    /// The upper six bits of the byte; the lower two are ECN's.
    fn to_kernel(&self) -> Vec<u8> {
        to_int(u64::from(self.0) << 2)
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }

    fn read(kernel: &[u8]) -> String {
        (int(kernel) >> 2).to_string()
    }
}

impl Dscp {
    /// Names of RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va) and 8622 (le).
    fn named(name: &str) -> Option<u8> {
        let digit = |text: &str, range: std::ops::RangeInclusive<u8>| {
            text.parse::<u8>().ok().filter(|n| range.contains(n) && text.len() == 1)
        };
        match name {
            "ef" => Some(46),
            "va" => Some(44),
            "le" => Some(1),
            "default" | "be" => Some(0),
            _ if name.starts_with("cs") => digit(&name[2..], 0..=7).map(|n| n * 8),
            _ if name.starts_with("af") && name.len() == 4 && name.is_ascii() => {
                let (class, drop) = (digit(&name[2..3], 1..=4)?, digit(&name[3..4], 1..=3)?);
                Some(class * 8 + drop * 2)
            }
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Dscp;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a DSCP such as 46, ef or af41")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dscp, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dscp, E> {
                let number = text.parse::<u8>().ok().filter(|number| *number < 64);
                number.or_else(|| Dscp::named(&text.to_ascii_lowercase())).map(Dscp).ok_or_else(|| {
                    E::custom(format!("`{text}` is not a DSCP: write 0 to 63, or a name such as ef, af41, cs1, le"))
                })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "schema")]
schemas::published!(Dscp as "Dscp", {
    "description": "a code point: 0 to 63, or ef, va, le, be, cs0 to cs7, af11 to af43",
    "type": ["integer", "string"],
    "minimum": 0,
    "maximum": 63
});

/// Explicit Congestion Notification: the two lower bits of the type of service (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    Off = 0,
    /// ECT(0), or what a TCP connection agrees on.
    On = 2,
    /// ECT(1): traffic for low latency, low loss and scalable throughput (L4S, RFC 9331).
    Ect1 = 1,
    /// As if a queue had marked every packet.
    Ce = 3,
}

impl Ecn {
    const WORDS: [(&str, Self); 3] = [("ect0", Self::On), ("ect1", Self::Ect1), ("ce", Self::Ce)];

    /// The two bits.
    pub fn bits(self) -> i32 {
        self as i32
    }
}

impl OptionValue for Ecn {
    fn to_kernel(&self) -> Vec<u8> {
        to_int(*self as u64)
    }

    fn shown(&self) -> String {
        match Self::WORDS.iter().find(|(_, ecn)| ecn == self) {
            Some((word, ecn)) if *ecn != Self::On => (*word).to_owned(),
            on => on.is_some().to_string(),
        }
    }

    fn read(kernel: &[u8]) -> String {
        (int(kernel) & 3).to_string()
    }
}

impl Serialize for Ecn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off | Self::On => serializer.serialize_bool(*self == Self::On),
            word => serializer.serialize_str(&word.shown()),
        }
    }
}

impl<'de> Deserialize<'de> for Ecn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Ecn;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false, ect0, ect1 or ce")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Ecn, E> {
                Ok(if on { Ecn::On } else { Ecn::Off })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ecn, E> {
                let found = Ecn::WORDS.iter().find(|(word, _)| *word == text);
                found.map(|(_, ecn)| *ecn).ok_or_else(|| {
                    E::custom(format!("`{text}` is not a code point of ECN: write true, false, ect0, ect1 or ce"))
                })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "schema")]
schemas::published!(Ecn as "Ecn", {
    "description": "true (ect0), false, or a code point of datagrams",
    "enum": [true, false, "ect0", "ect1", "ce"]
});

/// A requested value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// For setsockopt(2).
    pub kernel: Vec<u8>,
    /// As a plan writes it.
    pub shown: String,
}

impl Asked {
    fn of(value: &impl OptionValue) -> Self {
        Self { kernel: value.to_kernel(), shown: value.shown() }
    }
}

/// A row of [`SOCKET_OPTIONS`].
#[derive(Debug)]
pub struct SocketOption {
    /// Name in plans and reports.
    pub name: &'static str,
    /// The plan's key of the far end's option.
    pub remote_key: &'static str,
    /// By transport, and whether the socket is an IPv6 socket.
    pub setter: fn(Transport, bool) -> Setter,
    /// The value that a test requests.
    pub asked: fn(&SocketOptions) -> Option<Asked>,
    /// Size of the kernel's form, bytes.
    pub size: usize,
    /// Formats the value from getsockopt(2) as a plan writes it.
    pub read: fn(&[u8]) -> String,
}

macro_rules! socket_options {
    ($($(#[$doc:meta])* $name:ident: $value:ty, $setter:expr;)*) => {
        /// Socket options. One that is left out keeps the system's default. Results show the granted values.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct SocketOptions {
            $($(#[$doc])* pub $name: Option<$value>,)*
            /// true: IPv6 only; false: IPv4 only (netperf -6, -4). At the near end only: both ends use the same.
            // Plans only: translation moves it to `TestSpec::family`, so it never travels.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub ipv6: Option<bool>,
        }

        /// All options, in the order of setting.
        pub const SOCKET_OPTIONS: &[SocketOption] = &[$(SocketOption {
            name: stringify!($name),
            remote_key: concat!("remote_socket.", stringify!($name)),
            setter: $setter,
            asked: |options| options.$name.as_ref().map(Asked::of),
            size: <$value as OptionValue>::SIZE,
            read: <$value as OptionValue>::read,
        }),*];
    };
}

// Name, type, and setter by transport. Order matters: setting `dscp` changes the priority, so `priority` comes later.
socket_options! {
    /// `SO_SNDBUF` (netperf -s, iperf3 -w). The kernel doubles it; results show its figure.
    send_buffer: Bytes, |_, _| always(opt::SO_SNDBUF);
    /// `SO_RCVBUF` (netperf -S, iperf3 -w). Setting it switches the receiver's autotuning off.
    receive_buffer: Bytes, |t, _| always(opt::SO_RCVBUF).on(!matches!(t, Transport::Pipe));
    /// `TCP_NODELAY` (netperf -D, iperf3 -N).
    no_delay: bool, |t, _| match t {
        Transport::Sctp => always(opt::SCTP_NODELAY),
        _ => always(opt::TCP_NODELAY).on(t.is_tcp()),
    };
    /// `TCP_CORK`.
    cork: bool, |t, _| always(opt::TCP_CORK).on(t.is_tcp());
    /// `TCP_CONGESTION` (netperf -K, iperf3 -C): cubic, bbr, reno, …
    congestion_control: String, |t, _| always(opt::TCP_CONGESTION).on(t.is_tcp());
    /// `TCP_MAXSEG` (netperf -G, iperf3 -M).
    mss: Bytes32, |t, _| match t {
        Transport::Sctp => asked(opt::SCTP_MAXSEG),
        _ => always(opt::TCP_MAXSEG).on(t.is_tcp()),
    };
    /// Differentiated-services code point: 0 to 63, or a name such as ef, af41, cs1, le (netperf -Y, iperf3 -S).
    dscp: Dscp, |t, v6| ip(v6, opt::IP_TOS, opt::IPV6_TCLASS, true).on(t.uses_ip());
    /// Explicit Congestion Notification (RFC 3168): datagrams leave as ECT(0), with `ect1` as ECT(1) (L4S), with `ce` marked, and
    /// code points are counted where they arrive. A TCP connection must have agreed on it (`net.ipv4.tcp_ecn=1` where it is
    /// opened): no socket option asks for it.
    ecn: Ecn, |t, _| Setter::Flows.on(matches!(t, Transport::Tcp | Transport::Udp));
    /// `SO_PRIORITY`.
    priority: u32, |t, _| always(opt::SO_PRIORITY).on(t.has_interface());
    /// `SO_MARK`: rules of routing, of the firewall and of queueing disciplines see it. Needs CAP_NET_ADMIN or CAP_NET_RAW.
    mark: u32, |t, _| asked(opt::SO_MARK).on(t.uses_ip());
    /// `SO_KEEPALIVE`.
    keepalive: bool, |t, _| asked(opt::SO_KEEPALIVE).on(t.has_connections());
    /// `SO_BUSY_POLL`, for example 50us.
    busy_poll: Microseconds, |t, _| asked(opt::SO_BUSY_POLL).on(t.uses_ip());
    /// `SO_PREFER_BUSY_POLL`: leave the interrupts of the card off while the socket is polled. Needs CAP_NET_ADMIN.
    prefer_busy_poll: bool, |t, _| asked(opt::SO_PREFER_BUSY_POLL).on(t.uses_ip());
    /// `SO_BUSY_POLL_BUDGET`: packets per poll; more than the kernel's 8 needs CAP_NET_ADMIN.
    busy_poll_budget: u32, |t, _| asked(opt::SO_BUSY_POLL_BUDGET).on(t.uses_ip());
    /// `SO_INCOMING_CPU`: packets of this CPU are for this listening or UDP socket rather than for another one of its port.
    incoming_cpu: u32, |t, _| asked(opt::SO_INCOMING_CPU).on(t.uses_ip());
    /// `SO_REUSEPORT` at the far end of tcp_cc and tcp_crr: all its threads listen on one port.
    reuseport: Reuseport, |t, _| Setter::Opening.on(matches!(t, Transport::Tcp));
    /// TCP Fast Open at both ends (netperf -F).
    fastopen: bool, |t, _| Setter::Opening.on(t.is_tcp());
    /// `TCP_DEFER_ACCEPT`.
    defer_accept: Seconds, |t, _| Setter::Opening.on(t.is_tcp());
    /// `TCP_NOTSENT_LOWAT`.
    notsent_lowat: Bytes32, |t, _| asked(opt::TCP_NOTSENT_LOWAT).on(t.is_tcp());
    /// `SO_MAX_PACING_RATE`: a limit for each connection, as if the network had no more for it.
    pacing_rate: BitsPerSecond, |t, _| asked(opt::SO_MAX_PACING_RATE).on(t.is_tcp());
    /// `TCP_USER_TIMEOUT`, for example 5s: how long sent data may stay unacknowledged before the connection is given up.
    user_timeout: Milliseconds, |t, _| asked(opt::TCP_USER_TIMEOUT).on(t.is_tcp());
    /// `IP_TTL`, or the IPv6 hop limit (netperf -I).
    ttl: u8, |t, v6| ip(v6, opt::IP_TTL, opt::IPV6_UNICAST_HOPS, false).on(t.uses_ip());
    /// `SO_DONTROUTE` (netperf -R).
    dont_route: bool, |t, _| asked(opt::SO_DONTROUTE).on(t.uses_ip());
    /// `IP_MTU_DISCOVER`.
    mtu_discover: MtuDiscover, |t, v6| ip(v6, opt::IP_MTU_DISCOVER, opt::IPV6_MTU_DISCOVER, false).on(t.uses_ip());
    /// `SO_LINGER`.
    linger: Linger, |t, _| asked(opt::SO_LINGER).on(t.has_connections());
    /// `SO_BINDTODEVICE`: an interface.
    device: String, |t, _| asked(opt::SO_BINDTODEVICE).on(t.has_interface());
    /// UDP without checksums (`SO_NO_CHECK`).
    no_checksum: bool, |t, _| asked(opt::SO_NO_CHECK).on(matches!(t, Transport::Udp));
    /// UDP-Lite's checksum coverage.
    checksum_coverage: Bytes32,
        |t, _| always(opt::UDPLITE_SEND_CSCOV).on(matches!(t, Transport::UdpLite));
    /// `UDP_SEGMENT`: an end that sends hands over 2 to 128 messages as one datagram, and the kernel splits it.
    gso: u32, |t, _| Setter::Flows.on(matches!(t, Transport::Udp));
    /// `UDP_GRO`: an end that receives accepts several messages of a sender as one datagram (iperf3 --gsro does both).
    gro: bool, |t, _| Setter::Flows.on(matches!(t, Transport::Udp));
}

impl SocketOptions {
    /// Requested options that have no meaning on this transport. Reports note them.
    pub fn without_meaning(&self, transport: Transport) -> Vec<&'static str> {
        let idle =
            |row: &&SocketOption| (row.asked)(self).is_some() && (row.setter)(transport, false) == Setter::Meaningless;
        SOCKET_OPTIONS.iter().filter(idle).map(|row| row.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names() {
        for (name, value) in [("ef", 46), ("af41", 34), ("af11", 10), ("cs1", 8), ("le", 1)] {
            assert_eq!(Dscp::named(name), Some(value));
        }
        for name in ["af51", "af4", "cs8", "cs", "xx", "afµ"] {
            assert_eq!(Dscp::named(name), None, "{name}");
        }
    }

    #[test]
    fn options_without_meaning_are_told() {
        let options = SocketOptions { cork: Some(true), dscp: Some(Dscp(1)), ..SocketOptions::default() };
        assert_eq!(options.without_meaning(Transport::Udp), ["cork"]);
        assert_eq!(options.without_meaning(Transport::UnixStream), ["cork", "dscp"]);
        assert!(options.without_meaning(Transport::Tcp).is_empty());
        // The kernel accepts these on any socket.
        let options = SocketOptions { device: Some("lo".into()), keepalive: Some(true), ..SocketOptions::default() };
        assert_eq!(options.without_meaning(Transport::UnixStream), ["keepalive", "device"]);
    }

    /// Setting the code point changes the priority.
    #[test]
    fn the_priority_is_set_after_the_code_point() {
        let place = |name| SOCKET_OPTIONS.iter().position(|row| row.name == name).unwrap();
        assert!(place("dscp") < place("priority"));
    }
}
