//! Whether this machine's kernel offers a transport, so that a plan can be checked against both ends before anything runs.

use nix::libc;

use crate::{spec::Transport, transport::Protocol};

/// Whether the kernel gives a socket for a transport. Asking loads the module if the kernel loads it on demand: ask only for
/// what a test needs.
pub fn has(transport: Transport) -> bool {
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
        for transport in [Transport::Tcp, Transport::Udp, Transport::UnixStream, Transport::Pipe] {
            assert!(has(transport), "{transport:?}");
        }
        assert!(!opens(libc::AF_INET, libc::SOCK_STREAM, 200));
    }

    #[test]
    fn asking_leaves_no_descriptor_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for _ in 0..60 {
            assert!(has(Transport::Tcp) && has(Transport::Udp));
        }
        // Other tests open and close theirs meanwhile: a leak would be 120.
        assert!(open() < before + 100);
    }
}
