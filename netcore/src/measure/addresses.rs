//! Addresses of this machine's interfaces.

use std::{io, net::IpAddr};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags, sys::socket::SockaddrStorage};
use serde::{Deserialize, Serialize};

/// An address that other hosts may reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceAddress {
    pub interface: String,
    pub address: IpAddr,
}

/// The addresses of the interfaces that are up in the calling thread's network namespace, sorted. Loopback and link-local
/// addresses are left out: they mean another host elsewhere.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut found: Vec<InterfaceAddress> = getifaddrs()?
        .filter(|it| it.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|it| Some(InterfaceAddress { address: ip(&it.address?)?, interface: it.interface_name }))
        .filter(|it| is_global(it.address))
        .collect();
    found.sort();
    found.dedup();
    Ok(found)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
}

fn is_global(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !address.is_loopback() && !is_link_local && !address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that is bound to an address proves that it belongs to this machine.
    #[test]
    fn every_address_can_be_bound() {
        for it in addresses().unwrap() {
            assert!(is_global(it.address), "{it:?}");
            // An IPv6 address may still be tested for duplicates.
            if it.address.is_ipv4() {
                std::net::UdpSocket::bind((it.address, 0)).unwrap();
            }
        }
    }

    #[test]
    fn addresses_that_mean_other_hosts_elsewhere_are_left_out() {
        for (address, expected) in
            [("127.0.0.2", false), ("::1", false), ("169.254.1.1", false), ("fe80::1", false), ("10.0.0.1", true)]
        {
            assert_eq!(is_global(address.parse().unwrap()), expected, "{address}");
        }
    }
}
