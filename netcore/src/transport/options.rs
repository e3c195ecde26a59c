//! Socket options: asked for, set, and read back, since the kernel clamps and ignores in silence.

use std::{io, os::fd::OwnedFd};

use crate::{
    error::EndError,
    measure::tcp_info::available_congestion_controls,
    report::Granted,
    spec::{SocketOptions, Transport},
    sys,
};

/// How an option's value looks to the kernel.
#[derive(Clone, Copy)]
enum Value<'a> {
    Int(i64),
    Text(&'a str),
    Linger(u32),
}

/// An option: its name in plans, its place in the kernel, and what was asked for.
struct Entry<'a> {
    name: &'static str,
    level: libc::c_int,
    option: libc::c_int,
    requested: Option<Value<'a>>,
    /// Whether it is reported even where nothing was asked for.
    always: bool,
}

const UDPLITE_SEND_CSCOV: libc::c_int = 10;
const IPPROTO_UDPLITE: libc::c_int = 136;

/// Every option that has a meaning on this transport, in the order in which they are set.
fn entries(options: &SocketOptions, transport: Transport, v6: bool) -> Vec<Entry<'_>> {
    let flag = |value: Option<bool>| value.map(|on| Value::Int(on.into()));
    let number = |value: Option<u32>| value.map(|n| Value::Int(n.into()));
    let bytes = |value: Option<u64>| value.map(|n| Value::Int(i64::try_from(n).unwrap_or(i64::MAX)));
    let entry = |name, level, option, requested, always| Entry { name, level, option, requested, always };
    let mut list = vec![
        entry("send_buffer", libc::SOL_SOCKET, libc::SO_SNDBUF, bytes(options.send_buffer), true),
        entry("receive_buffer", libc::SOL_SOCKET, libc::SO_RCVBUF, bytes(options.receive_buffer), true),
        entry("keepalive", libc::SOL_SOCKET, libc::SO_KEEPALIVE, flag(options.keepalive), false),
        entry("busy_poll", libc::SOL_SOCKET, libc::SO_BUSY_POLL, number(options.busy_poll), false),
        entry("dont_route", libc::SOL_SOCKET, libc::SO_DONTROUTE, flag(options.dont_route), false),
        entry("linger", libc::SOL_SOCKET, libc::SO_LINGER, options.linger.map(Value::Linger), false),
        entry("device", libc::SOL_SOCKET, libc::SO_BINDTODEVICE, options.device.as_deref().map(Value::Text), false),
        entry("no_checksum", libc::SOL_SOCKET, libc::SO_NO_CHECK, flag(options.no_checksum), false),
    ];
    if matches!(transport, Transport::Tcp | Transport::Mptcp) {
        let tcp = libc::IPPROTO_TCP;
        let congestion_control = options.congestion_control.as_deref().map(Value::Text);
        list.extend([
            entry("no_delay", tcp, libc::TCP_NODELAY, flag(options.no_delay), true),
            entry("cork", tcp, libc::TCP_CORK, flag(options.cork), true),
            entry("congestion_control", tcp, libc::TCP_CONGESTION, congestion_control, true),
            entry("mss", tcp, libc::TCP_MAXSEG, number(options.mss), true),
            entry("notsent_lowat", tcp, libc::TCP_NOTSENT_LOWAT, number(options.notsent_lowat), false),
        ]);
    }
    if transport == Transport::Sctp {
        // SCTP_NODELAY and SCTP_MAXSEG have the numbers 3 and 13 at the level of the protocol.
        list.push(entry("no_delay", libc::IPPROTO_SCTP, 3, flag(options.no_delay), true));
        list.push(entry("mss", libc::IPPROTO_SCTP, 13, number(options.mss), false));
    }
    if transport == Transport::UdpLite {
        let coverage = number(options.checksum_coverage);
        list.push(entry("checksum_coverage", IPPROTO_UDPLITE, UDPLITE_SEND_CSCOV, coverage, true));
    }
    if transport.uses_ip() {
        // The code point is the upper six bits of the byte; the lower two belong to congestion notification.
        let dscp = options.dscp.map(|code| Value::Int(i64::from(code) << 2));
        let ttl = options.ttl.map(|hops| Value::Int(hops.into()));
        let discover = options.mtu_discover.as_deref().and_then(discovery).map(|mode| Value::Int(mode.into()));
        let (level, tos, hops, mtu) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_UNICAST_HOPS, libc::IPV6_MTU_DISCOVER)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL, libc::IP_MTU_DISCOVER)
        };
        list.extend([
            entry("dscp", level, tos, dscp, true),
            entry("ttl", level, hops, ttl, false),
            entry("mtu_discover", level, mtu, discover, false),
        ]);
    }
    // Setting the code point sets the priority too: what was asked for has the last word.
    list.push(entry("priority", libc::SOL_SOCKET, libc::SO_PRIORITY, number(options.priority), true));
    list.retain(|entry| has_meaning(entry.name, transport));
    list
}

/// IP_PMTUDISC_*: the same numbers for both versions.
fn discovery(mode: &str) -> Option<i32> {
    match mode {
        "dont" => Some(0),
        "want" => Some(1),
        "do" => Some(2),
        "probe" => Some(3),
        _ => None,
    }
}

/// Whether an option acts on sockets of this transport. Some can be set where they do nothing.
fn has_meaning(option: &str, transport: Transport) -> bool {
    let tcp = transport.is_tcp();
    let sctp = transport == Transport::Sctp;
    match option {
        "receive_buffer" => transport != Transport::Pipe,
        "keepalive" | "linger" => tcp || sctp || transport == Transport::Dccp,
        "no_delay" | "mss" => tcp || sctp,
        "cork" | "congestion_control" | "notsent_lowat" | "fastopen" | "defer_accept" => tcp,
        "busy_poll" | "dont_route" | "dscp" | "ttl" | "mtu_discover" => transport.uses_ip(),
        "device" | "priority" => transport.has_interface(),
        "no_checksum" => transport == Transport::Udp,
        "checksum_coverage" => transport == Transport::UdpLite,
        _ => true,
    }
}

/// The options that were asked for and have no meaning on this transport: reported, so that nobody thinks they acted.
#[must_use]
pub fn without_meaning(options: &SocketOptions, transport: Transport) -> Vec<&'static str> {
    [
        ("receive_buffer", options.receive_buffer.is_some()),
        ("no_delay", options.no_delay.is_some()),
        ("cork", options.cork.is_some()),
        ("congestion_control", options.congestion_control.is_some()),
        ("mss", options.mss.is_some()),
        ("notsent_lowat", options.notsent_lowat.is_some()),
        ("fastopen", options.fastopen.is_some()),
        ("defer_accept", options.defer_accept.is_some()),
        ("dscp", options.dscp.is_some()),
        ("priority", options.priority.is_some()),
        ("keepalive", options.keepalive.is_some()),
        ("busy_poll", options.busy_poll.is_some()),
        ("ttl", options.ttl.is_some()),
        ("dont_route", options.dont_route.is_some()),
        ("mtu_discover", options.mtu_discover.is_some()),
        ("linger", options.linger.is_some()),
        ("device", options.device.is_some()),
        ("no_checksum", options.no_checksum.is_some()),
        ("checksum_coverage", options.checksum_coverage.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, asked)| (asked && !has_meaning(name, transport)).then_some(name))
    .collect()
}

/// Options ready to be set on one socket after another.
#[derive(Debug, Default)]
pub struct Prepared {
    settings: Vec<Setting>,
}

/// One of them, as the kernel takes it.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    level: libc::c_int,
    option: libc::c_int,
    value: Vec<u8>,
    /// For the sentence that a refusal gets.
    shown: String,
}

impl Prepared {
    /// What is asked for.
    pub fn new(options: &SocketOptions, transport: Transport, v6: bool) -> Result<Self, EndError> {
        if let Some(mode) = options.mtu_discover.as_deref()
            && discovery(mode).is_none()
        {
            return Err(EndError::Impossible(format!("mtu_discover: `{mode}` is none of do, dont, want, probe")));
        }
        let settings = entries(options, transport, v6).into_iter().filter_map(|entry| {
            let requested = entry.requested?;
            let value = match requested {
                Value::Int(value) => i32::try_from(value).unwrap_or(i32::MAX).to_ne_bytes().to_vec(),
                Value::Text(text) => text.as_bytes().to_vec(),
                Value::Linger(seconds) => linger(i32::try_from(seconds).unwrap_or(i32::MAX)).to_vec(),
            };
            let shown = shown(entry.name, requested, options);
            Some(Setting { name: entry.name, level: entry.level, option: entry.option, value, shown })
        });
        Ok(Self { settings: settings.collect() })
    }

    /// What an accepted connection is given again, since it has it not from its listener: of TCP the priority, which the
    /// kernel resets, and of the others everything (a Unix socket inherits nothing).
    pub fn accepted(options: &SocketOptions, transport: Transport, v6: bool) -> Result<Self, EndError> {
        let mut all = Self::new(options, transport, v6)?;
        if transport.is_tcp() {
            all.settings.retain(|setting| setting.name == "priority");
        }
        Ok(all)
    }

    /// Sets them.
    pub fn apply(&self, socket: &OwnedFd) -> Result<(), EndError> {
        for setting in &self.settings {
            sys::set_bytes(socket, setting.level, setting.option, &setting.value)
                .map_err(|source| refused(setting.name, &setting.shown, source))?;
        }
        Ok(())
    }
}

/// Sets what was asked for.
pub fn apply(socket: &OwnedFd, options: &SocketOptions, transport: Transport, v6: bool) -> Result<(), EndError> {
    Prepared::new(options, transport, v6)?.apply(socket)
}

/// `struct linger`: two integers, the switch and the seconds.
fn linger(seconds: i32) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&1i32.to_ne_bytes());
    value[4..].copy_from_slice(&seconds.to_ne_bytes());
    value
}

/// Makes a close of the socket a reset: SO_LINGER with 0 seconds.
pub fn reset_on_close(socket: &OwnedFd) -> io::Result<()> {
    sys::set_bytes(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger(0))
}

fn refused(name: &str, value: &str, source: io::Error) -> EndError {
    let what = match name {
        "congestion_control" => {
            let available =
                available_congestion_controls().map_or_else(|_| "unknown".to_owned(), |names| names.join(", "));
            format!(
                "congestion control `{value}` is not available on this host (available: {available}); load it with: \
                 modprobe tcp_{value}"
            )
        }
        "device" => format!("cannot bind a data socket to the device `{value}`"),
        _ => format!("the kernel refuses {name} = {value}"),
    };
    EndError::System { what, source }
}

/// What the kernel says about an option.
fn read(socket: &OwnedFd, entry: &Entry<'_>) -> Option<String> {
    match entry.name {
        "congestion_control" | "device" => {
            let mut value = [0; 32];
            let n = sys::get_bytes(socket, entry.level, entry.option, &mut value).ok()?;
            let text = value[..n].split(|byte| *byte == 0).next().unwrap_or_default();
            Some(String::from_utf8_lossy(text).into_owned())
        }
        "linger" => {
            let mut value = [0; 8];
            sys::get_bytes(socket, entry.level, entry.option, &mut value).ok()?;
            Some(i32::from_ne_bytes([value[4], value[5], value[6], value[7]]).to_string())
        }
        name => {
            let value = sys::get_int(socket, entry.level, entry.option).ok()?;
            Some(match name {
                "dscp" => (value >> 2).to_string(),
                "no_delay" | "cork" | "keepalive" | "dont_route" | "no_checksum" => (value != 0).to_string(),
                "mtu_discover" => {
                    let modes = ["dont", "want", "do", "probe"];
                    usize::try_from(value)
                        .ok()
                        .and_then(|i| modes.get(i))
                        .map_or(value.to_string(), |s| (*s).to_owned())
                }
                _ => value.to_string(),
            })
        }
    }
}

/// Asked for and granted, for the options that were asked for and those that every report names.
#[must_use]
pub fn granted(socket: &OwnedFd, flow: u32, options: &SocketOptions, transport: Transport, v6: bool) -> Vec<Granted> {
    if transport == Transport::Pipe {
        return vec![Granted {
            flow,
            option: "send_buffer".to_owned(),
            requested: options.send_buffer.map(|bytes| bytes.to_string()),
            at_start: super::pipe::capacity(socket).map(|bytes| bytes.to_string()),
            at_end: None,
        }];
    }
    entries(options, transport, v6)
        .iter()
        .filter(|entry| entry.always || entry.requested.is_some())
        .map(|entry| Granted {
            flow,
            option: entry.name.to_owned(),
            requested: entry.requested.map(|value| shown(entry.name, value, options)),
            at_start: read(socket, entry),
            at_end: None,
        })
        // What the kernel has no word for is only worth one where somebody asked for it.
        .filter(|granted| granted.requested.is_some() || granted.at_start.is_some())
        .collect()
}

/// The value as a plan writes it.
fn shown(name: &str, value: Value<'_>, options: &SocketOptions) -> String {
    match (name, value) {
        ("dscp", Value::Int(value)) => (value >> 2).to_string(),
        ("no_delay" | "cork" | "keepalive" | "dont_route" | "no_checksum", Value::Int(value)) => {
            (value != 0).to_string()
        }
        ("mtu_discover", _) => options.mtu_discover.clone().unwrap_or_default(),
        (_, Value::Int(value)) => value.to_string(),
        (_, Value::Linger(value)) => value.to_string(),
        (_, Value::Text(text)) => text.to_owned(),
    }
}

/// Completes the list with what the kernel says now.
pub fn read_again(list: &mut [Granted], socket: &OwnedFd, transport: Transport, v6: bool) {
    if transport == Transport::Pipe {
        // Its descriptor leads nowhere by now, and a pipe's capacity does not change by itself.
        for granted in list {
            granted.at_end.clone_from(&granted.at_start);
        }
        return;
    }
    let options = SocketOptions::default();
    for entry in entries(&options, transport, v6) {
        for granted in list.iter_mut().filter(|granted| granted.option == entry.name) {
            granted.at_end = read(socket, &entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> OwnedFd {
        sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
    }

    #[test]
    fn every_option_is_granted_as_asked() {
        let socket = tcp();
        let options = SocketOptions {
            send_buffer: Some(50_000),
            receive_buffer: Some(60_000),
            no_delay: Some(true),
            cork: Some(true),
            congestion_control: Some("reno".into()),
            mss: Some(1000),
            dscp: Some(46),
            priority: Some(5),
            keepalive: Some(true),
            busy_poll: Some(50),
            notsent_lowat: Some(1 << 17),
            ttl: Some(9),
            dont_route: Some(true),
            mtu_discover: Some("do".into()),
            linger: Some(3),
            device: Some("lo".into()),
            ..SocketOptions::default()
        };
        apply(&socket, &options, Transport::Tcp, false).unwrap();
        let mut list = granted(&socket, 0, &options, Transport::Tcp, false);
        read_again(&mut list, &socket, Transport::Tcp, false);
        for granted in &list {
            let asked = granted.requested.clone().unwrap();
            match granted.option.as_str() {
                // Doubled by the kernel, for its own overhead.
                "send_buffer" => assert_eq!(granted.at_start.as_deref(), Some("100000")),
                "receive_buffer" => assert_eq!(granted.at_start.as_deref(), Some("120000")),
                name => assert_eq!(granted.at_start, Some(asked), "{name}"),
            }
            assert_eq!(granted.at_end, granted.at_start);
        }
        assert_eq!(list.len(), 16);
    }

    #[test]
    fn what_netperf_tells_of_a_socket_is_told_unasked_and_a_refusal_as_the_plan_has_it() {
        let names = |transport| {
            let list = granted(&tcp(), 0, &SocketOptions::default(), transport, false);
            list.into_iter().map(|granted| granted.option).collect::<Vec<_>>()
        };
        let tcps =
            ["send_buffer", "receive_buffer", "no_delay", "cork", "congestion_control", "mss", "dscp", "priority"];
        assert_eq!(names(Transport::Tcp), tcps);
        assert_eq!(names(Transport::UnixStream), ["send_buffer", "receive_buffer"]);
        // A Unix socket has no code point.
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        let options = SocketOptions { dscp: Some(46), ..SocketOptions::default() };
        let error = apply(&socket, &options, Transport::Tcp, false).unwrap_err().to_string();
        assert!(error.contains("dscp = 46"), "{error}");
    }

    #[test]
    fn a_missing_congestion_control_names_those_there_are() {
        let options = SocketOptions { congestion_control: Some("warp".into()), ..SocketOptions::default() };
        let error = apply(&tcp(), &options, Transport::Tcp, false).unwrap_err().to_string();
        assert!(error.contains("`warp`") && error.contains("reno") && error.contains("modprobe"), "{error}");
    }

    #[test]
    fn options_without_meaning_are_told() {
        let options = SocketOptions { cork: Some(true), dscp: Some(1), ..SocketOptions::default() };
        assert_eq!(without_meaning(&options, Transport::Udp), ["cork"]);
        assert_eq!(without_meaning(&options, Transport::UnixStream), ["cork", "dscp"]);
        // The kernel takes these for any socket.
        let options = SocketOptions { device: Some("lo".into()), keepalive: Some(true), ..SocketOptions::default() };
        assert_eq!(without_meaning(&options, Transport::UnixStream), ["keepalive", "device"]);
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        assert!(granted(&socket, 0, &options, Transport::UnixStream, false).iter().all(|it| it.requested.is_none()));
        let options = SocketOptions { cork: Some(true), dscp: Some(1), ..SocketOptions::default() };
        assert!(without_meaning(&options, Transport::Tcp).is_empty());
    }
}
