//! Queries the kernel's routing tables over rtnetlink: the interface of a route, an interface's properties, and the drops
//! of its queueing disciplines.
//!
//! rtnetlink answers for the calling thread's network namespace (sysfs shows the one it was mounted in) and for the whole
//! routing policy: an own address goes over `lo`, whatever interface bears it.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

const HEADER: usize = 16;
const LINK: usize = 16;
const ROUTE: usize = 12;
const TRAFFIC: usize = 20;
/// Attribute numbers, from `linux/if_link.h` and `linux/rtnetlink.h`.
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
/// `struct gnet_stats_queue`: five words, of which the third counts drops.
const TCA_STATS_QUEUE: u16 = 3;
const QUEUE_DROPS: usize = 8;
/// Parents of the queueing disciplines that an interface itself has, from `linux/pkt_sched.h`.
const TC_H_ROOT: u32 = u32::MAX;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

/// The counters of `struct rtnl_link_stats64`, in its order.
pub(super) const LINK_COUNTERS: [&str; 10] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
];

/// Places of the counters of dropped packets in `struct rtnl_link_stats64`: `rx_dropped`, `tx_dropped`, `rx_over_errors`,
/// `rx_fifo_errors`, `rx_missed_errors` and `tx_fifo_errors`.
const DROPPED: [usize; 6] = [6, 7, 11, 14, 15, 18];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub index: u32,
    pub name: String,
    pub up: bool,
    pub mtu_bytes: Option<u32>,
    /// Kind of a virtual interface (`veth`, `bridge`).
    pub kind: Option<String>,
    /// The interface below, of one that has another below it. A veth has its peer here.
    pub lower: Option<u32>,
    /// The bond or bridge that it is a port of.
    pub master: Option<u32>,
    /// Root queueing discipline.
    pub qdisc: Option<String>,
    pub rx_queues: Option<u32>,
    pub tx_queues: Option<u32>,
    /// Values of [`LINK_COUNTERS`].
    pub counters: Vec<u64>,
    /// Packets that the interface dropped in either direction ([`DROPPED`]).
    pub dropped: Option<u64>,
}

/// Packets that a queueing discipline has dropped, with those of its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QdiscDrops {
    /// Its place: the root, or the ingress.
    pub parent: u32,
    /// A word of the kernel, which wraps.
    pub dropped: u32,
}

/// Index of the interface that routes to `peer`.
pub(super) fn interface_towards(peer: IpAddr) -> io::Result<u32> {
    let octets = match peer {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![low_byte(family), low_byte(octets.len() * 8)];
    body.resize(ROUTE, 0);
    attribute(&mut body, RTA_DST, &octets);
    let mut found = None;
    Netlink::open()?.ask(libc::RTM_GETROUTE, 0, &body, |kind, message| {
        if kind == libc::RTM_NEWROUTE {
            found = attributes(message, ROUTE).find(|(t, _)| *t == RTA_OIF).and_then(|(_, v)| u32_of(v));
        }
    })?;
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// One interface by its index, or all of them.
pub(super) fn links(index: Option<u32>) -> io::Result<Vec<Link>> {
    Netlink::open()?.links(index)
}

/// Kinds of all queueing disciplines of an interface, roots and leaves.
pub(super) fn qdiscs(index: u32) -> io::Result<Vec<String>> {
    let mut kinds = Vec::new();
    Netlink::open()?.each_qdisc(index, |message| {
        kinds.extend(attributes(message, TRAFFIC).find(|(t, _)| *t == TCA_KIND).and_then(|(_, v)| text(v)));
    })?;
    Ok(kinds)
}

fn link(message: &[u8]) -> Link {
    let flags = u32_of(&message[8..12]).unwrap_or(0);
    let index = u32_of(&message[4..8]).unwrap_or(0);
    let mut link = Link { index, up: flags & 1 == 1, ..Link::default() };
    for (kind, value) in attributes(message, LINK) {
        match kind {
            IFLA_IFNAME => link.name = text(value).unwrap_or_default(),
            IFLA_MTU => link.mtu_bytes = u32_of(value),
            IFLA_LINK => link.lower = u32_of(value),
            IFLA_MASTER => link.master = u32_of(value),
            IFLA_QDISC => link.qdisc = text(value),
            IFLA_NUM_TX_QUEUES => link.tx_queues = u32_of(value),
            IFLA_NUM_RX_QUEUES => link.rx_queues = u32_of(value),
            IFLA_LINKINFO => {
                link.kind = attributes(value, 0).find(|(t, _)| *t == IFLA_INFO_KIND).and_then(|(_, v)| text(v));
            }
            IFLA_STATS64 => {
                let counters = value.as_chunks().0;
                link.counters = counters.iter().take(LINK_COUNTERS.len()).map(|c| u64::from_ne_bytes(*c)).collect();
                link.dropped = DROPPED
                    .iter()
                    .try_fold(0_u64, |sum, place| Some(sum.saturating_add(u64::from_ne_bytes(*counters.get(*place)?))));
            }
            _ => {}
        }
    }
    link
}

/// Drops of a queueing discipline from its message; `None`: it is a class's, whose drops the root counts too.
fn qdisc_drops(message: &[u8]) -> Option<QdiscDrops> {
    let parent = message.get(12..16).and_then(u32_of).filter(|parent| [TC_H_ROOT, TC_H_INGRESS].contains(parent))?;
    let (_, statistics) = attributes(message, TRAFFIC).find(|(t, _)| *t == TCA_STATS2)?;
    let (_, queue) = attributes(statistics, 0).find(|(t, _)| *t == TCA_STATS_QUEUE)?;
    let dropped = queue.get(QUEUE_DROPS..QUEUE_DROPS + 4).and_then(u32_of)?;
    Some(QdiscDrops { parent, dropped })
}

/// A socket to the kernel's routing tables, and the room for an answer.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Number of the last request. Answers bear it.
    sequence: u32,
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, buffer: vec![0; 64 * 1024], sequence: 0 })
    }

    /// One interface by its index, or all of them.
    pub fn links(&mut self, index: Option<u32>) -> io::Result<Vec<Link>> {
        let mut body = [0; LINK];
        body[4..8].copy_from_slice(&index.unwrap_or(0).to_ne_bytes());
        let mut links = Vec::new();
        let flags = if index.is_some() { 0 } else { libc::NLM_F_DUMP };
        self.ask(libc::RTM_GETLINK, flags, &body, |kind, message| {
            if kind == libc::RTM_NEWLINK && message.len() >= LINK {
                links.push(link(message));
            }
        })?;
        Ok(links)
    }

    /// Drops of the queueing disciplines that an interface itself has: the root's, which count those of its classes, and
    /// those at its ingress. Empty where it has none: there, nothing is queued.
    pub fn qdisc_drops(&mut self, index: u32) -> io::Result<Vec<QdiscDrops>> {
        let mut drops = Vec::new();
        self.each_qdisc(index, |message| drops.extend(qdisc_drops(message)))?;
        Ok(drops)
    }

    /// Passes the message of every queueing discipline of an interface to `each`.
    fn each_qdisc(&mut self, index: u32, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        // The kernel lists those of all interfaces, whatever the request names.
        self.ask(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; TRAFFIC], |kind, message| {
            if kind == libc::RTM_NEWQDISC && message.get(4..8).and_then(u32_of) == Some(index) {
                each(message);
            }
        })
    }

    /// Sends one request and passes every message of the answer (its type and its body) to `each`.
    fn ask(&mut self, kind: u16, flags: libc::c_int, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER + body.len());
        let flags = flags | libc::NLM_F_REQUEST;
        request.extend(u32::try_from(HEADER + body.len()).map_err(io::Error::other)?.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(u16::try_from(flags).map_err(io::Error::other)?.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        request.extend(body);
        send(self.socket.as_raw_fd(), &request, MsgFlags::empty())?;
        let many = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let mut rest = &self.buffer[..length];
            let mut answered = false;
            while let Some(size) = rest.get(..4).and_then(u32_of).map(|n| n as usize) {
                let (Some(message), Some(kind)) = (rest.get(HEADER..size), rest.get(4..6).and_then(u16_of)) else {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                };
                // The rest of an answer that was given up may still come.
                if rest.get(8..12).and_then(u32_of) == Some(self.sequence) {
                    answered = true;
                    match i32::from(kind) {
                        libc::NLMSG_DONE => return Ok(()),
                        libc::NLMSG_ERROR => {
                            let code = message.get(..4).and_then(u32_of).map_or(0, u32::cast_signed);
                            return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                        }
                        _ => each(kind, message),
                    }
                }
                rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
            }
            if !many && answered {
                return Ok(());
            }
        }
    }
}

/// Appends an attribute: its length with header, its type, its value, padding to four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Attributes after a message's fixed part. A malformed one ends the sequence.
fn attributes(message: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(fixed..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16_of(rest.get(..2)?)?);
        let kind = u16_of(rest.get(2..4)?)?;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits are flags (nested, network byte order).
        Some((kind & 0x3fff, value))
    })
}

fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn text(bytes: &[u8]) -> Option<String> {
    Some(std::ffi::CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok()?.to_owned())
}

fn low_byte<T: TryInto<u8>>(number: T) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_described() {
        for address in ["127.0.0.1", "127.9.9.9", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let index = interface_towards(address).unwrap();
            let links = links(Some(index)).unwrap();
            assert_eq!(links.len(), 1);
            assert_eq!((links[0].name.as_str(), links[0].up), ("lo", true));
            assert_eq!(links[0].counters.len(), LINK_COUNTERS.len());
            assert!(links[0].mtu_bytes.unwrap() >= 1500 && links[0].qdisc.is_some());
        }
    }

    #[test]
    fn every_interface_is_listed_and_counts_what_proc_counts() {
        let all = links(None).unwrap();
        let text = std::fs::read_to_string("/proc/net/dev").unwrap();
        let mut names: Vec<&str> = text.lines().skip(2).map(|l| l.split(':').next().unwrap().trim()).collect();
        names.sort_unstable();
        let mut listed: Vec<&str> = all.iter().map(|l| l.name.as_str()).collect();
        listed.sort_unstable();
        assert_eq!(listed, names);
        // Loopback counts every packet in both directions at once, whenever the reading is taken.
        let lo = all.iter().find(|l| l.name == "lo").unwrap();
        assert_eq!((lo.counters[0], lo.counters[2]), (lo.counters[1], lo.counters[3]));
        let bytes = std::fs::read_to_string("/proc/net/dev").unwrap();
        let later: u64 = bytes
            .lines()
            .find_map(|l| l.trim().strip_prefix("lo:"))
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(lo.counters[2] <= later);
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert!(links(Some(1_000_000)).is_err());
    }

    #[test]
    fn malformed_attributes_end_the_sequence() {
        let mut body = Vec::new();
        attribute(&mut body, 7, b"abc");
        body.extend([200, 0, 1, 0, 9]);
        let found: Vec<_> = attributes(&body, 0).collect();
        assert_eq!(found, vec![(7, &b"abc"[..])]);
        assert_eq!(attributes(&[0, 0, 0, 0], 0).count(), 0);
    }
}
