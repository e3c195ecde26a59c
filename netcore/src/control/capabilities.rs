//! The transports that this machine's kernel offers, so that a plan can be checked against both ends before anything runs.

use nix::libc;

use crate::{spec::Transport, transport::Protocol};

/// Every transport for which the kernel gives a socket. Asking loads modules that the kernel loads on demand.
pub fn transports() -> Vec<Transport> {
    Transport::ALL.into_iter().filter(|transport| has(*transport)).collect()
}

fn has(transport: Transport) -> bool {
    let Some(Protocol { kind, number, .. }) = Protocol::of(transport) else { return true };
    let families: &[libc::c_int] = match transport {
        Transport::Vsock => &[libc::AF_VSOCK],
        Transport::Link => &[libc::AF_PACKET],
        _ if transport.uses_ip() => &[libc::AF_INET, libc::AF_INET6],
        _ => &[libc::AF_UNIX],
    };
    families.iter().any(|family| opens(*family, kind, number))
        || transport == Transport::Icmp && opens(libc::AF_INET, libc::SOCK_RAW, number)
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
