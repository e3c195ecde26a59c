//! Options of the flows that are set once these are connected.
//!
//! - Datagrams of several messages: UDP_SEGMENT on the sockets of flows that send, UDP_GRO on those of flows that receive. A
//!   greeting that is longer than a message would be split as well.
//! - Explicit Congestion Notification: the code point of datagrams that are sent, the type of service of those that are received, and
//!   whether a TCP connection has agreed on it. Set after the code point, which shares its byte.
//! - The times of arrival of datagrams (SO_TIMESTAMPNS).
//! - Pacing by the kernel: refused where the kernel would not pace, since setsockopt succeeds everywhere.

use std::{io, os::fd::AsFd};

use nix::sys::socket::{setsockopt, sockopt};

use super::{Link, address::local_ip};
use crate::{
    error::EndError,
    measure::tcp_info,
    report::{Granted, NicFacts},
    spec::{Ecn, PaceMode, Role, Side, TestSpec, Transport, socket::OptionValue},
    sys::opt::{self, Opt},
};

/// Headers of UDP and IP, bytes.
const HEADERS_V4: u64 = 8 + 20;
const HEADERS_V6: u64 = 8 + 40;

/// Sets UDP_SEGMENT and UDP_GRO as the test asks of a flow in this role.
pub fn set_segments(link: &Link, spec: &TestSpec, side: Side, role: Role) -> Result<(), EndError> {
    if spec.segments(side, role) > 1 {
        let bytes = i32::try_from(spec.sizes.message_bytes).unwrap_or(i32::MAX);
        opt::set_int(&link.send, opt::UDP_SEGMENT, bytes)
            .map_err(|error| segments_refused("gso", "UDP_SEGMENT", "4.18", error))?;
    }
    if spec.merges(side, role) {
        opt::set_int(&link.receive, opt::UDP_GRO, 1)
            .map_err(|error| segments_refused("gro", "UDP_GRO", "5.0", error))?;
    }
    Ok(())
}

fn segments_refused(name: &str, option: &str, since: &str, source: io::Error) -> EndError {
    let what = match source.raw_os_error() {
        Some(libc::ENOPROTOOPT) => {
            format!("{name}: this kernel has no {option} (Linux has it from {since} on): leave socket.{name} out")
        }
        _ => format!("the kernel refuses {name} ({option})"),
    };
    EndError::System { what, source }
}

/// Requested and granted numbers of segments on a flow. They do not change after the start.
///
/// The kernel is told the size of a segment and not the number of them, so the number is granted if the size is a message's.
pub fn segments_granted(link: &Link, spec: &TestSpec, side: Side) -> Vec<Granted> {
    let both = |option, requested, granted| Granted::constant(link.flow, option, requested, granted);
    let of_role = |role: &Role| {
        let segments = spec.segments(side, *role);
        let of_kernel = || opt::get_int(&link.send, opt::UDP_SEGMENT).ok();
        let gso = (segments > 1).then(|| {
            let granted = of_kernel().map(|bytes| match u64::try_from(bytes) {
                Ok(bytes) if bytes == spec.sizes.message_bytes => segments.to_string(),
                _ => format!("segments of {bytes} bytes"),
            });
            both("gso", segments.to_string(), granted)
        });
        let gro = spec.merges(side, *role).then(|| {
            let granted = opt::get_int(&link.receive, opt::UDP_GRO).ok();
            both("gro", true.to_string(), granted.map(|value| (value != 0).to_string()))
        });
        gso.into_iter().chain(gro)
    };
    spec.roles(side, link.flow).iter().flat_map(of_role).collect()
}

/// The meaning of a refused send of several messages, and the remedy; `None`: the error has another cause.
///
/// The kernel never fragments a segment: it answers EMSGSIZE, before Linux 6.14 EINVAL, if one exceeds the path's MTU. EINVAL
/// is also its answer to more segments than it can make.
pub fn explain_segments(link: &Link, bytes: u64, segments: usize, error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE | libc::EINVAL) => Some(too_long(path(link), bytes, segments)),
        Some(libc::EIO) => Some(
            "the kernel cannot split datagrams on this path, which has no checksum offload, or IPsec: leave socket.gso out"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The path's MTU where the kernel tells (the socket is connected), and the bytes of the headers.
fn path(link: &Link) -> (Option<u64>, u64) {
    let v6 = local_ip(&link.send).is_ok_and(|local| local.is_ipv6());
    let mtu = opt::get_int(&link.send, if v6 { opt::IPV6_MTU } else { opt::IP_MTU });
    // An IPv6 socket may carry IPv4.
    let headers = if link.peer_ip().is_none_or(|peer| peer.is_ipv6()) { HEADERS_V6 } else { HEADERS_V4 };
    (mtu.ok().and_then(|mtu| u64::try_from(mtu).ok()), headers)
}

fn too_long((mtu, headers): (Option<u64>, u64), bytes: u64, segments: usize) -> String {
    match mtu {
        Some(mtu) if bytes + headers <= mtu => format!(
            "the kernel does not split a datagram into {segments} messages (Linux before 6.10 makes 64 at most): write a smaller gso"
        ),
        Some(mtu) => format!(
            "gso makes packets of one message each, and the path's MTU of {mtu} bytes has room for a message_size of {} and \
             not of {bytes}: choose a smaller message_size, or leave socket.gso out",
            mtu.saturating_sub(headers)
        ),
        None => format!(
            "gso makes packets of one message each, and a message_size of {bytes} with {headers} bytes of headers exceeds \
             the path's MTU: choose a smaller message_size, or leave socket.gso out"
        ),
    }
}

/// The bits of a code point in the type of service.
const ECN_MASK: i32 = 3;

/// The option of the type of service by version of IP, and the one that hands it over with each datagram. An IPv6 socket may carry
/// IPv4.
fn options(v6: bool) -> &'static [(Opt, Opt)] {
    const BOTH: [(Opt, Opt); 2] = [(opt::IP_TOS, opt::IP_RECVTOS), (opt::IPV6_TCLASS, opt::IPV6_RECVTCLASS)];
    if v6 { &BOTH } else { &BOTH[..1] }
}

/// Sets Explicit Congestion Notification as the test asks of a flow in this role, or checks that its connection has it.
pub fn set_ecn(link: &Link, spec: &TestSpec, side: Side, role: Role, v6: bool) -> Result<(), EndError> {
    let Some(ecn) = spec.ecn(side) else { return Ok(()) };
    match spec.transport {
        Transport::Udp => {
            for (class, handed_over) in options(v6) {
                if role == Role::Sender {
                    set_code_point(link, *class, ecn)
                        .map_err(EndError::system("the kernel refuses ecn on a sending socket"))?;
                } else {
                    opt::set_int(&link.receive, *handed_over, 1)
                        .map_err(EndError::system("the kernel does not hand over the marks of datagrams (ecn)"))?;
                }
            }
            Ok(())
        }
        _ if tcp_info::has_ecn(link.send.as_fd()) == Some(false) => {
            let sysctl = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap_or_default();
            Err(EndError::Impossible(not_agreed(side, sysctl.trim())))
        }
        _ => Ok(()),
    }
}

/// Sets a code point and leaves the rest of the class, and the priority, which the kernel derives from each new class.
fn set_code_point(link: &Link, class: Opt, ecn: Ecn) -> io::Result<()> {
    let priority = opt::get_int(&link.send, opt::SO_PRIORITY)?;
    let old = opt::get_int(&link.send, class)?;
    opt::set_int(&link.send, class, old & !ECN_MASK | ecn.bits())?;
    opt::set_int(&link.send, opt::SO_PRIORITY, priority)
}

/// Lets the kernel say when each datagram arrived, where the test asks for it. Where it does not, the time at which the program
/// got it is used. Also lets it say when some of them left, which it may refuse.
pub fn set_kernel_times(link: &Link, spec: &TestSpec) -> Result<(), EndError> {
    // QUIC's library reads what comes with its packets.
    if spec.one_way && !spec.transport.is_quic() {
        let _ = setsockopt(&link.receive, sockopt::ReceiveTimestampns, &true);
    }
    if spec.kernel_times {
        stamp_departures(&link.send, false).map_err(EndError::system(
            "the kernel does not say when packets leave (SO_TIMESTAMPING): leave `timestamps` out",
        ))?;
    }
    Ok(())
}

/// Lets the kernel note when the datagrams that are sent from now on leave, or no longer. Its notes come without the datagrams on
/// the error queue, with numbers that count them.
pub fn stamp_departures(socket: &impl AsFd, on: bool) -> io::Result<()> {
    let told = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY | libc::SOF_TIMESTAMPING_OPT_ID;
    let flags = if on { told | libc::SOF_TIMESTAMPING_TX_SOFTWARE } else { told };
    opt::set_int(socket, opt::SO_TIMESTAMPING, flags.cast_signed())
}

/// The sentence for a connection without it. `sysctl`: the setting of this end's host.
fn not_agreed(side: Side, sysctl: &str) -> String {
    let (opens, accepts) = match (side, sysctl) {
        (Side::Near, _) => (format!(" (it is {sysctl})"), String::new()),
        (Side::Far, _) => (String::new(), format!(" (it is {sysctl})")),
    };
    format!(
        "ecn: the two kernels did not agree on Explicit Congestion Notification, and no socket option asks for it. The host that \
         opens the connection (`from`) needs net.ipv4.tcp_ecn=1{opens}, or a route with `features ecn`: ip route change … \
         features ecn. The host that accepts it (`to`) needs net.ipv4.tcp_ecn other than 0{accepts}"
    )
}

/// Requested and granted Explicit Congestion Notification on a flow.
pub fn ecn_granted(link: &Link, spec: &TestSpec, side: Side, v6: bool) -> Option<Granted> {
    let ecn = spec.ecn(side)?;
    let has_it = |role: &Role| match (spec.transport, role) {
        (Transport::Udp, Role::Sender) => options(v6)
            .iter()
            .all(|(class, _)| opt::get_int(&link.send, *class).is_ok_and(|class| class & ECN_MASK == ecn.bits())),
        (Transport::Udp, _) => {
            options(v6).iter().all(|(_, handed_over)| opt::get_int(&link.receive, *handed_over).is_ok_and(|on| on != 0))
        }
        _ => tcp_info::has_ecn(link.send.as_fd()) == Some(true),
    };
    let granted = if spec.roles(side, link.flow).iter().all(has_it) { ecn } else { Ecn::Off };
    Some(Granted::constant(link.flow, "ecn", ecn.shown(), Some(granted.shown())))
}

/// Lets the kernel pace a flow, if the test asks for it and the kernel does it.
pub fn kernel_pace(link: &Link, spec: &TestSpec) -> Result<(), EndError> {
    let socket = &*link.send;
    let Some(pace) = spec.pace.filter(|pace| pace.mode != PaceMode::User) else { return Ok(()) };
    let mut bytes = spec.sizes.message_bytes;
    // TCP paces by itself.
    if spec.transport.is_datagram() {
        let peer = link.peer_ip();
        let obstacle = match peer.and_then(NicFacts::qdiscs_towards) {
            Some((interface, kinds)) => obstacle(pace.mode, &interface, &kinds),
            None => Some(format!("the outgoing interface is unknown, so {} may have no effect", option(pace.mode))),
        };
        if let Some(obstacle) = obstacle {
            return Err(EndError::Impossible(obstacle));
        }
        // The queueing discipline counts whole frames: headers of Ethernet (loopback has it too), IP and UDP.
        bytes += 14 + 8 + if peer.is_some_and(|peer| peer.is_ipv4()) { 20 } else { 40 };
    }
    if pace.mode == PaceMode::Txtime {
        // `struct sock_txtime`: the clock, and no flags.
        let mut value = [0; 8];
        value[..4].copy_from_slice(&libc::CLOCK_MONOTONIC.to_ne_bytes());
        return opt::set(socket, opt::SO_TXTIME, &value).map_err(EndError::system("the kernel refuses SO_TXTIME"));
    }
    let rate = pace.events_per_s * bytes as f64;
    // Rates are positive; a rate beyond 2^64 bytes per second limits nothing.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes_per_s = rate.ceil() as u64;
    opt::set(socket, opt::SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())
        .map_err(EndError::system(format!("the kernel refuses to pace at {bytes_per_s} bytes/s")))
}

fn option(mode: PaceMode) -> &'static str {
    if mode == PaceMode::Txtime { "SO_TXTIME" } else { "SO_MAX_PACING_RATE" }
}

/// The reason why queueing disciplines of these kinds would not pace datagrams; `None`: they would.
fn obstacle(mode: PaceMode, interface: &str, kinds: &[String]) -> Option<String> {
    // `mq` only distributes packets to the disciplines of the hardware's queues.
    let leaves: Vec<&str> = kinds.iter().map(String::as_str).filter(|kind| *kind != "mq").collect();
    if !leaves.is_empty() && leaves.iter().all(|kind| *kind == "fq") {
        return None;
    }
    let there = if leaves.is_empty() { "none".to_owned() } else { leaves.join(", ") };
    // It drops packets without a time, ARP and control connections too, so it is never the only discipline of an interface.
    let etf = if mode == PaceMode::Txtime && leaves.contains(&"etf") {
        " (etf would, but receives only some of the traffic, and whether it receives these datagrams is unknown here)"
    } else {
        ""
    };
    Some(format!(
        "the kernel would not pace datagrams here: the queueing discipline of {interface} is {there}, and only fq heeds {} of \
         every UDP socket{etf}; set it with: tc qdisc replace dev {interface} root fq, or choose `mode: user`",
        option(mode)
    ))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::{
        spec::{Dscp, Pattern, Transport},
        transport::options,
    };

    fn spec() -> TestSpec {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.sizes.message_bytes = 100;
        (spec.near.socket.gso, spec.near.socket.gro) = (Some(5), Some(true));
        spec
    }

    fn link() -> Link {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        Link::of_socket(3, socket.into())
    }

    #[test]
    fn each_role_sets_its_own_and_reads_it_back() {
        let (spec, link) = (spec(), link());
        set_segments(&link, &spec, Side::Near, Role::Sender).unwrap();
        assert_eq!(opt::get_int(&link.send, opt::UDP_SEGMENT).unwrap(), 100);
        assert_eq!(opt::get_int(&link.send, opt::UDP_GRO).unwrap(), 0);
        let list = segments_granted(&link, &spec, Side::Near);
        let [gso] = &list[..] else { panic!("{list:?}") };
        assert_eq!((gso.flow, gso.option.as_str()), (3, "gso"));
        assert_eq!((gso.requested.as_deref(), gso.at_end.as_deref()), (Some("5"), Some("5")));
        opt::set_int(&link.send, opt::UDP_SEGMENT, 7).unwrap();
        assert_eq!(segments_granted(&link, &spec, Side::Near)[0].at_start.as_deref(), Some("segments of 7 bytes"));
        set_segments(&link, &spec, Side::Near, Role::Receiver).unwrap();
        assert_eq!(opt::get_int(&link.receive, opt::UDP_GRO).unwrap(), 1);
        assert!(segments_granted(&link, &spec, Side::Far).is_empty());
    }

    #[test]
    fn a_refusal_names_its_cause_and_the_remedy() {
        let missing =
            segments_refused("gso", "UDP_SEGMENT", "4.18", io::Error::from_raw_os_error(libc::ENOPROTOOPT)).to_string();
        assert!(
            missing.contains("no UDP_SEGMENT") && missing.contains("4.18") && missing.contains("leave"),
            "{missing}"
        );
        let long = too_long((Some(1500), HEADERS_V4), 1473, 4);
        assert!(
            long.contains("MTU of 1500") && long.contains("room for a message_size of 1472 and not of 1473"),
            "{long}"
        );
        assert!(too_long((None, HEADERS_V6), 1453, 4).contains("48 bytes of headers"));
        assert!(too_long((Some(1500), HEADERS_V4), 64, 128).contains("128 messages"));
        let (socket, error) = (link(), io::Error::from_raw_os_error);
        let long = explain_segments(&socket, 100_000, 2, &error(libc::EMSGSIZE)).unwrap();
        assert!(long.contains("MTU of 65535"), "{long}");
        assert!(explain_segments(&socket, 64, 2, &error(libc::EIO)).unwrap().contains("checksum offload"));
        assert_eq!(explain_segments(&socket, 64, 2, &error(libc::ECONNREFUSED)), None);
    }

    #[test]
    fn the_code_point_and_the_priority_stay_beside_it() {
        for ((address, v6), (ecn, bits, shown)) in [
            (("127.0.0.1:0", false), (Ecn::On, 2, "true")),
            (("[::1]:0", true), (Ecn::Ect1, 1, "ect1")),
            (("[::1]:0", true), (Ecn::Ce, 3, "ce")),
        ] {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
            (spec.near.socket.ecn, spec.near.socket.dscp) = (Some(ecn), Some(Dscp(46)));
            spec.near.socket.priority = Some(3);
            let link = Link::of_socket(0, UdpSocket::bind(address).unwrap().into());
            options::apply(&link.send, &spec.near.socket, Transport::Udp, v6).unwrap();
            set_ecn(&link, &spec, Side::Near, Role::Sender, v6).unwrap();
            let class = opt::get_int(&link.send, if v6 { opt::IPV6_TCLASS } else { opt::IP_TOS }).unwrap();
            assert_eq!(class, 46 << 2 | bits);
            assert_eq!(opt::get_int(&link.send, opt::SO_PRIORITY).unwrap(), 3);
            assert_eq!(ecn_granted(&link, &spec, Side::Near, v6).unwrap().at_start.as_deref(), Some(shown));
            let shown = options::granted(&link.send, 0, &spec.near.socket, Transport::Udp, v6);
            let dscp = shown.iter().find(|granted| granted.option == "dscp").unwrap();
            assert_eq!(dscp.at_start.as_deref(), Some("46"));
        }
    }

    #[test]
    fn the_sentence_names_the_setting_of_the_host_that_it_comes_from() {
        let near = not_agreed(Side::Near, "2");
        assert!(
            near.contains("(`from`) needs net.ipv4.tcp_ecn=1 (it is 2)") && near.ends_with("other than 0"),
            "{near}"
        );
        assert!(not_agreed(Side::Far, "0").ends_with("other than 0 (it is 0)"));
    }

    #[test]
    fn datagrams_are_paced_by_fq_alone_and_a_refusal_says_what_is_there() {
        let obstacle = |mode, kinds: &[&str]| {
            obstacle(mode, "eth7", &kinds.iter().copied().map(str::to_owned).collect::<Vec<_>>()).unwrap_or_default()
        };
        for mode in [PaceMode::Kernel, PaceMode::Txtime] {
            assert_eq!(obstacle(mode, &["fq"]), "");
            assert_eq!(obstacle(mode, &["mq", "fq", "fq"]), "");
            assert!(obstacle(mode, &[]).contains("of eth7 is none, and only fq heeds SO_"));
            assert!(obstacle(mode, &["mq", "fq", "fq_codel"]).contains("of eth7 is fq, fq_codel, and only fq"));
        }
        let among = &["prio", "pfifo_fast", "etf"];
        assert!(obstacle(PaceMode::Txtime, among).contains("SO_TXTIME of every UDP socket (etf would, but"));
        assert!(obstacle(PaceMode::Kernel, among).contains("SO_MAX_PACING_RATE of every UDP socket; set it"));
    }
}
