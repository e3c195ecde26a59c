//! Sizes that netperf takes from a socket of the test before it begins.

use std::os::fd::OwnedFd;

use netcore::spec::Transport;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, getsockopt, setsockopt, socket,
    sockopt::{RcvBuf, SndBuf},
};

use super::values::Pair;

/// The longest payload of a UDP datagram over IPv4, bytes.
pub const LONGEST_DATAGRAM: u64 = 65_507;

/// netperf's sizes where the kernel tells none, bytes.
const UNKNOWN: u64 = 4096;

/// Socket buffers as the kernel reports them. A stream's calls are as long by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultSizes {
    pub send_buffer: u64,
    pub receive_buffer: u64,
}

impl DefaultSizes {
    /// Those of a new socket with the buffers that were asked for.
    pub fn of(transport: Transport, asked: Pair<u64>) -> Self {
        let Some(socket) = opened(transport) else { return Self { send_buffer: UNKNOWN, receive_buffer: UNKNOWN } };
        let wanted = |size: u64| usize::try_from(size).unwrap_or(usize::MAX).min(i32::MAX as usize);
        // A refusal is told when the test sets them.
        if let Some(size) = asked.local {
            let _ = setsockopt(&socket, SndBuf, &wanted(size));
        }
        if let Some(size) = asked.remote {
            let _ = setsockopt(&socket, RcvBuf, &wanted(size));
        }
        let size = |read: nix::Result<usize>| read.ok().filter(|size| *size > 0).map_or(UNKNOWN, |size| size as u64);
        Self { send_buffer: size(getsockopt(&socket, SndBuf)), receive_buffer: size(getsockopt(&socket, RcvBuf)) }
    }
}

fn opened(transport: Transport) -> Option<OwnedFd> {
    let kind = if transport.is_datagram() { SockType::Datagram } else { SockType::Stream };
    let protocol = match transport {
        Transport::Tcp => Some(SockProtocol::Tcp),
        Transport::Udp => Some(SockProtocol::Udp),
        _ => None,
    };
    socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, protocol).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_sizes() {
        let none = DefaultSizes::of(Transport::Tcp, Pair::default());
        assert!(none.send_buffer >= 4096 && none.receive_buffer >= 4096, "{none:?}");
        // The kernel doubles what is set.
        let asked = DefaultSizes::of(Transport::Udp, Pair { local: Some(8192), remote: None });
        assert_eq!(asked.send_buffer, 16_384);
    }
}
