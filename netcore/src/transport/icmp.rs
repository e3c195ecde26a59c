//! ICMP echo sockets: unprivileged where the system allows it, raw otherwise.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

use super::{
    Link,
    address::Address,
    meeting::{Destination, Meeting},
    options,
};
use crate::{
    error::EndError,
    spec::{TestSpec, memory::ICMP_HEADER_BYTES},
    sys::{self, opt},
};

/// Protocol number of ICMP for IPv6.
const ICMPV6: libc::c_int = 58;

/// Message types of a request and its answer.
const fn types(v6: bool) -> (u8, u8) {
    if v6 { (128, 129) } else { (8, 0) }
}

/// Form of the messages of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub v6: bool,
    /// A raw socket: IPv4 messages arrive with their IP header, we write the identifier and the checksum, and the answers to
    /// every program arrive.
    pub raw: bool,
    /// The identifier that our requests carry on a raw socket.
    pub id: u16,
}

impl Form {
    /// Writes the header of an echo request: type, code, checksum, identifier, sequence number.
    #[inline]
    pub fn mark(self, message: &mut [u8], sequence: u16) {
        message[0] = types(self.v6).0;
        message[1..4].fill(0);
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.raw && !self.v6 {
            let sum = checksum(message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The message without an IP header.
    #[inline]
    fn message(self, received: &[u8]) -> Option<&[u8]> {
        if self.raw && !self.v6 {
            // The header's length, in words of four bytes.
            received.get(usize::from(received.first()? & 15) * 4..)
        } else {
            Some(received)
        }
    }

    /// The payload of an answer.
    pub fn payload(self, received: &[u8]) -> &[u8] {
        self.message(received).and_then(|message| message.get(ICMP_HEADER_BYTES..)).unwrap_or_default()
    }

    /// The sequence number of an answer to one of our requests.
    #[inline]
    pub fn read(self, received: &[u8]) -> Option<u16> {
        let message = self.message(received)?;
        let word = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
        let ours = message.first() == Some(&types(self.v6).1) && (!self.raw || word(4)? == self.id);
        if ours { word(6) } else { None }
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut pairs = bytes.chunks_exact(2);
    let mut sum: u32 = pairs.by_ref().map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    if let [last] = pairs.remainder() {
        sum += u32::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Below 2^16 by the loop.
    #[expect(clippy::cast_possible_truncation)]
    let folded = !(sum as u16);
    folded
}

/// Near end: a socket for each flow. The far end has none: its kernel answers.
pub fn open(to: Destination<'_>, Meeting { spec, .. }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    (0..spec.flows()).map(|flow| socket(spec, to.ip(spec)?, to.data_ip, flow)).collect()
}

/// A socket for echo requests to `peer`.
fn socket(spec: &TestSpec, peer: IpAddr, data_ip: Option<IpAddr>, flow: u32) -> Result<Link, EndError> {
    let v6 = peer.is_ipv6();
    let (family, protocol) = if v6 { (libc::AF_INET6, ICMPV6) } else { (libc::AF_INET, libc::IPPROTO_ICMP) };
    let (socket, raw) = match sys::socket(family, libc::SOCK_DGRAM, protocol) {
        Ok(socket) => (socket, false),
        Err(_) => match sys::socket(family, libc::SOCK_RAW, protocol) {
            Ok(socket) => (socket, true),
            Err(source) => {
                let what = "no ICMP socket: allow this user's group unprivileged ones (sysctl \
                            net.ipv4.ping_group_range=\"0 2147483647\") or give the program the right to raw ones (setcap \
                            cap_net_raw+ep)";
                return Err(EndError::system(what)(source));
            }
        },
    };
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(EndError::system("cannot get random bytes for an identifier"))?;
    if raw {
        filter(&socket, v6)?;
    }
    options::apply(&socket, &spec.near.socket, spec.transport, v6)?;
    let bind = &spec.near.bind;
    if let Some(ip) = bind.get(flow as usize % bind.len().max(1)).copied().or(data_ip) {
        Address::Ip(SocketAddr::from((ip, 0))).bind(&socket)?;
    }
    let to = Address::Ip(SocketAddr::from((peer, 0)));
    to.connect(&socket).map_err(EndError::system(format!("no way to {peer}")))?;
    let icmp = Some(Form { v6, raw, id: u16::from_ne_bytes(id) });
    Ok(Link { icmp, ..Link::of_socket(flow, socket) })
}

/// Passes only answers: a raw socket otherwise receives all ICMP of the host, on loopback our own requests too.
fn filter(socket: &OwnedFd, v6: bool) -> Result<(), EndError> {
    let answer = types(v6).1;
    let result = if v6 {
        let mut blocked = [0xffu8; 32];
        let word = usize::from(answer) / 32 * 4;
        blocked[word..word + 4].copy_from_slice(&(!(1u32 << (answer % 32))).to_ne_bytes());
        opt::set(socket, opt::ICMP6_FILTER, &blocked)
    } else {
        opt::set(socket, opt::ICMP_FILTER, &(!(1u32 << answer)).to_ne_bytes())
    };
    result.map_err(EndError::system("cannot filter ICMP messages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_internets() {
        // The example of RFC 1071, section 3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0xff]), !0xff00);
        // A message with its own checksum sums to nothing.
        let mut message = [7; 21];
        Form { v6: false, raw: true, id: 3 }.mark(&mut message, 9);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn only_answers_to_us_are_read() {
        let form = Form { v6: false, raw: true, id: 0x1234 };
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[24..28].copy_from_slice(&[0x12, 0x34, 0, 7]);
        assert_eq!(form.read(&packet), Some(7));
        packet[20] = 8;
        assert_eq!(form.read(&packet), None, "a request");
        packet[20] = 0;
        packet[25] = 0;
        assert_eq!(form.read(&packet), None, "somebody else's");
        assert_eq!(form.read(&[]), None);
        assert_eq!(Form { v6: true, raw: false, id: 0 }.read(&[129, 0, 0, 0, 9, 9, 1, 0]), Some(256));
    }
}
