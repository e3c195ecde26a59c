//! One address type for every family.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
};

use nix::sys::socket::{SockaddrLike, SockaddrStorage, UnixAddr, VsockAddr, bind, connect};
use socket2::{SockAddr, SockRef};

use crate::{
    error::EndError,
    spec::{Family, TestSpec},
};

/// Address of a data socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Ip(SocketAddr),
    Path(PathBuf),
    /// Context identifier and port.
    Vsock(u32, u32),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Vsock(cid, port) => write!(f, "vsock {cid}:{port}"),
        }
    }
}

impl Address {
    /// The address family, as socket(2) takes it.
    pub fn family(&self) -> libc::c_int {
        match self {
            Self::Ip(SocketAddr::V4(_)) => libc::AF_INET,
            Self::Ip(SocketAddr::V6(_)) => libc::AF_INET6,
            Self::Path(_) => libc::AF_UNIX,
            Self::Vsock(..) => libc::AF_VSOCK,
        }
    }

    /// Calls `with` with the kernel's form of the address.
    fn with<T>(&self, with: impl Fn(&dyn SockaddrLike) -> nix::Result<T>) -> nix::Result<T> {
        match self {
            Self::Ip(address) => with(&SockaddrStorage::from(*address)),
            Self::Path(path) => with(&UnixAddr::new(path)?),
            Self::Vsock(cid, port) => with(&VsockAddr::new(*cid, *port)),
        }
    }

    pub fn bind(&self, socket: &OwnedFd) -> Result<(), EndError> {
        self.with(|address| bind(socket.as_raw_fd(), address)).map_err(|error| {
            let hint = match error {
                nix::Error::EADDRINUSE => ", which is in use: choose another port or wait for its owner to end",
                nix::Error::EADDRNOTAVAIL => ", which is no address of this host",
                nix::Error::EACCES => ", for which the permission is missing",
                _ => "",
            };
            EndError::System { what: format!("cannot bind a data socket to {self}{hint}"), source: error.into() }
        })
    }

    /// Connects a socket to the address; a non-blocking one only begins to.
    pub fn connect(&self, socket: &OwnedFd) -> nix::Result<()> {
        self.with(|address| connect(socket.as_raw_fd(), address))
    }
}

/// The IP address and port that a socket is bound to.
pub fn local_ip(socket: &OwnedFd) -> Result<SocketAddr, EndError> {
    ip(SockRef::from(socket).local_addr())
}

/// Whether options of IPv6 apply to a connected socket: the packets of an IPv6 socket may be those of IPv4.
pub fn is_v6(socket: &OwnedFd) -> bool {
    local_ip(socket).is_ok_and(|address| address.ip().to_canonical().is_ipv6())
}

/// The IP address and port that a socket is connected to.
pub fn peer_ip(socket: &OwnedFd) -> Result<SocketAddr, EndError> {
    ip(SockRef::from(socket).peer_addr())
}

fn ip(name: io::Result<SockAddr>) -> Result<SocketAddr, EndError> {
    let name = name.map_err(EndError::system("cannot read a data socket's address"))?;
    name.as_socket().ok_or_else(|| EndError::Impossible("a data socket has no IP address".into()))
}

/// The local IP address of flow `flow` at the far end, and whether the test chose it.
pub fn listening_ip(spec: &TestSpec, data_ip: Option<IpAddr>, flow: u32) -> (IpAddr, bool) {
    let bind = &spec.far.bind;
    if let Some(&address) = bind.get(flow as usize % bind.len().max(1)) {
        return (address, true);
    }
    match (data_ip, spec.family) {
        (Some(address), _) => (address, false),
        (None, Family::V4) => (Ipv4Addr::UNSPECIFIED.into(), false),
        // One IPv6 socket accepts connections of both versions, unless the test asks for one of them.
        (None, Family::Any | Family::V6) => (Ipv6Addr::UNSPECIFIED.into(), false),
    }
}

/// The unspecified address of the peer's family.
pub fn unspecified(peer: IpAddr) -> IpAddr {
    if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The local address that the near end binds flow `flow` to; `None`: chosen by the route and the kernel.
pub fn near_bind(spec: &TestSpec, data_ip: Option<IpAddr>, peer: IpAddr, flow: u32) -> Option<SocketAddr> {
    let bind = &spec.near.bind;
    let address = bind.get(flow as usize % bind.len().max(1)).copied().or(data_ip);
    let port = spec.near.port_of(flow);
    match (address, port) {
        (None, 0) => None,
        (address, port) => Some((address.unwrap_or(unspecified(peer)), port).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Pattern, Transport};

    #[test]
    fn near_ends_bind_only_what_is_asked_for() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let peer = "127.0.0.1".parse().unwrap();
        assert_eq!(near_bind(&spec, None, peer, 0), None);
        spec.near.port = Some(5000);
        assert_eq!(near_bind(&spec, None, peer, 2), Some("0.0.0.0:5002".parse().unwrap()));
        spec.near.bind = vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
        assert_eq!(near_bind(&spec, None, peer, 3), Some("127.0.0.3:5003".parse().unwrap()));
    }

    #[test]
    fn an_address_that_is_not_ours_is_named() {
        let socket = crate::sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let error = Address::Ip("192.0.2.1:0".parse().unwrap()).bind(&socket).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1") && error.contains("no address of this host"), "{error}");
    }
}
