//! The transports that this machine's kernel offers, so that a plan can be checked against both ends before anything runs.

use nix::libc;

use crate::spec::Transport;

/// Every transport for which the kernel gives a socket. Asking loads modules that the kernel loads on demand.
pub fn transports() -> Vec<Transport> {
    Transport::ALL.into_iter().filter(|transport| has(*transport)).collect()
}

fn has(transport: Transport) -> bool {
    use libc::{SOCK_DCCP, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM};
    let either = |kind, protocol| opens(libc::AF_INET, kind, protocol) || opens(libc::AF_INET6, kind, protocol);
    match transport {
        Transport::Tcp => either(SOCK_STREAM, libc::IPPROTO_TCP),
        Transport::Mptcp => either(SOCK_STREAM, libc::IPPROTO_MPTCP),
        Transport::Udp => either(SOCK_DGRAM, libc::IPPROTO_UDP),
        Transport::UdpLite => either(SOCK_DGRAM, libc::IPPROTO_UDPLITE),
        Transport::Sctp => either(SOCK_STREAM, libc::IPPROTO_SCTP),
        Transport::Dccp => either(SOCK_DCCP, libc::IPPROTO_DCCP),
        Transport::UnixStream => opens(libc::AF_UNIX, SOCK_STREAM, 0),
        Transport::UnixSeqpacket => opens(libc::AF_UNIX, SOCK_SEQPACKET, 0),
        Transport::UnixDatagram => opens(libc::AF_UNIX, SOCK_DGRAM, 0),
        Transport::Vsock => opens(libc::AF_VSOCK, SOCK_STREAM, 0),
        Transport::Link => opens(libc::AF_PACKET, SOCK_DGRAM, 0),
        Transport::Icmp => either(SOCK_DGRAM, libc::IPPROTO_ICMP) || opens(libc::AF_INET, SOCK_RAW, libc::IPPROTO_ICMP),
        Transport::Pipe => true,
    }
}

fn opens(domain: i32, kind: i32, protocol: i32) -> bool {
    crate::sys::socket(domain, kind, protocol).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linux_has_these_and_none_has_nonsense() {
        let transports = transports();
        for transport in [Transport::Tcp, Transport::Udp, Transport::UnixStream, Transport::Pipe] {
            assert!(transports.contains(&transport), "{transports:?}");
        }
        assert!(!opens(libc::AF_INET, libc::SOCK_STREAM, 200));
    }

    #[test]
    fn asking_leaves_no_descriptor_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let _ = transports();
        let before = open();
        for _ in 0..60 {
            assert!(has(Transport::Tcp) && has(Transport::Udp));
        }
        // Other tests open and close theirs meanwhile: a leak would be 120.
        assert!(open() < before + 100);
    }
}
