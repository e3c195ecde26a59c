//! Connects the two ends of a test over any transport: the far end listens, the near end connects.

use std::{
    fs::Permissions,
    net::{IpAddr, Ipv4Addr},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::PathBuf,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{
    Deadline, Link, Protocol,
    address::{Address, listening_ip, local_ip, near_bind},
    check_family,
    connection::{self, Token},
    datagram, has_socket_pairs, icmp, largest_message, link, listener,
    options::Prepared,
    pipe, vsock,
};
use crate::{
    error::EndError,
    spec::{Family, Side, TestSpec, Transport},
};

/// Endpoints that the near end must connect to, as the far end's kernel chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets, if it differs from the peer's known address.
    pub address: Option<IpAddr>,
    /// Ports: one that serves every flow, or one per flow.
    pub ports: Vec<u16>,
    /// Paths of Unix sockets or FIFOs: one that serves every flow, or one per flow.
    pub paths: Vec<PathBuf>,
    /// Context identifier of a vsock end.
    pub cid: Option<u32>,
    /// Hardware address of a link end.
    pub mac: Option<[u8; 6]>,
}

/// An end before its flows are connected.
pub enum Rendezvous {
    Near {
        /// Local address of the data sockets, where the session chose one.
        data_ip: Option<IpAddr>,
        /// Folder for sockets that have names.
        folder: Option<TempDir>,
    },
    Far {
        /// Listening sockets: one that serves every flow, or one per flow.
        sockets: Vec<Arc<OwnedFd>>,
        endpoints: Endpoints,
        /// Folder of its sockets or FIFOs.
        _folder: Option<TempDir>,
    },
}

/// The connected flows of an end.
#[derive(Default)]
pub struct Connected {
    pub links: Vec<Arc<Link>>,
    pub v6: bool,
    pub peer: Option<IpAddr>,
}

impl Rendezvous {
    /// Starts listening at the far end.
    pub fn prepare(spec: &TestSpec, side: Side, data_ip: Option<IpAddr>, token: &Token) -> Result<Self, EndError> {
        match side {
            Side::Near => {
                let folder = if spec.transport == Transport::UnixDatagram { Some(private_folder()?) } else { None };
                Ok(Self::Near { data_ip, folder })
            }
            Side::Far => listen(spec, data_ip, token),
        }
    }

    pub fn endpoints(&self) -> Endpoints {
        match self {
            Self::Near { .. } => Endpoints::default(),
            Self::Far { endpoints, .. } => endpoints.clone(),
        }
    }

    /// The listening socket of a flow, at a far end that listens.
    pub fn listener(&self, flow: u32) -> Option<&OwnedFd> {
        let Self::Far { sockets, .. } = self else { return None };
        sockets.get(flow as usize).or_else(|| sockets.first()).map(AsRef::as_ref)
    }

    /// Connects all flows in time.
    pub fn connect(
        &self,
        spec: &TestSpec,
        token: &Token,
        peer: Option<(IpAddr, &Endpoints)>,
        deadline: &Deadline<'_>,
    ) -> Result<Connected, EndError> {
        match (self, peer) {
            (Self::Far { sockets, endpoints, .. }, None) => {
                accept(spec, token, sockets, endpoints, deadline).map(connected)
            }
            (Self::Near { data_ip, folder }, Some((ip, endpoints))) => {
                let destination = Destination { ip, endpoints, data_ip: *data_ip, folder: folder.as_ref() };
                let mut connected = open_all(spec, token, destination, deadline).map(connected)?;
                if spec.alone || spec.transport == Transport::Icmp {
                    // The peer is known even without a lasting connection, and a ping socket has no peer name.
                    connected.peer.get_or_insert(endpoints.address.unwrap_or(ip));
                }
                Ok(connected)
            }
            (Self::Far { .. }, Some(_)) => {
                Err(EndError::Impossible("the far end accepts; only the near end connects to a peer".to_owned()))
            }
            (Self::Near { .. }, None) => {
                Err(EndError::Impossible("the near end must be told where the far end is".to_owned()))
            }
        }
    }
}

/// Whether the far end has a socket for each flow, instead of one that serves every flow.
fn has_socket_per_flow(spec: &TestSpec) -> bool {
    spec.pattern.is_connecting()
        || has_socket_pairs(spec.transport)
        || matches!(spec.transport, Transport::Pipe | Transport::Link)
}

fn listen(spec: &TestSpec, data_ip: Option<IpAddr>, token: &Token) -> Result<Rendezvous, EndError> {
    let protocol = Protocol::connecting(spec.transport);
    // Connect tests connect as fast as they can.
    let backlog = if spec.pattern.is_connecting() { 4096 } else { spec.flows().max(16) };
    let mut endpoints = Endpoints::default();
    let mut sockets = Vec::new();
    if spec.transport == Transport::Icmp {
        // The kernel answers; nothing listens.
        return Ok(Rendezvous::Far { sockets, endpoints, _folder: None });
    }
    if spec.transport == Transport::Link {
        for flow in 0..spec.flows() {
            let (socket, mac) = link::open(spec, &spec.far.socket, token, flow, Side::Far)?;
            endpoints.mac = Some(mac);
            sockets.push(Arc::new(socket));
        }
        return Ok(Rendezvous::Far { sockets, endpoints, _folder: None });
    }
    let folder = if is_unix(spec) || spec.transport == Transport::Pipe { Some(private_folder()?) } else { None };
    let open = |address: &Address| match protocol {
        Some(protocol) => connection::listener(protocol, address, &spec.far, backlog),
        None => datagram::socket(spec, &spec.far.socket, address, true),
    };
    let count = if has_socket_per_flow(spec) { spec.flows() } else { 1 };
    for index in 0..count {
        let port = spec.far.port.map_or(0, |port| port.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX)));
        let socket = if let Some(folder) = &folder {
            let path = folder.path().join(format!("listener{index}"));
            endpoints.paths.push(path.clone());
            if spec.transport == Transport::Pipe { pipe::make(&path)? } else { open(&Address::Path(path))? }
        } else if let (Transport::Vsock, Some(protocol)) = (spec.transport, protocol) {
            let (socket, cid, port) = vsock::listen(protocol, &spec.far, backlog)?;
            endpoints.cid = Some(cid);
            endpoints.ports.push(port);
            socket
        } else {
            let (ip, chosen) = listening_ip(spec, data_ip, index);
            if spec.family != Family::Any || !ip.is_unspecified() {
                check_family(spec, ip)?;
            }
            let socket = on_either_version(ip, |ip| open(&Address::Ip((ip, port).into())))?;
            endpoints.address = chosen.then_some(ip);
            endpoints.ports.push(local_ip(&socket)?.port());
            socket
        };
        sockets.push(Arc::new(socket));
    }
    Ok(Rendezvous::Far { sockets, endpoints, _folder: folder })
}

/// A folder that only this user may enter. It is removed with its content when it is dropped.
fn private_folder() -> Result<TempDir, EndError> {
    let private = Permissions::from_mode(0o700);
    let what = "cannot make a folder for the test's sockets (TMPDIR names another place)";
    tempfile::Builder::new().prefix("plumb-").permissions(private).tempdir().map_err(EndError::system(what))
}

/// Opens a socket on an address, or on every IPv4 address where the host has no IPv6.
fn on_either_version(ip: IpAddr, open: impl Fn(IpAddr) -> Result<OwnedFd, EndError>) -> Result<OwnedFd, EndError> {
    match open(ip) {
        Err(EndError::System { source, .. })
            if ip.is_ipv6()
                && ip.is_unspecified()
                && matches!(source.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) =>
        {
            open(Ipv4Addr::UNSPECIFIED.into())
        }
        other => other,
    }
}

/// Whether the sockets have names in the file system.
fn is_unix(spec: &TestSpec) -> bool {
    matches!(spec.transport, Transport::UnixStream | Transport::UnixSeqpacket | Transport::UnixDatagram)
}

fn accept(
    spec: &TestSpec,
    token: &Token,
    sockets: &[Arc<OwnedFd>],
    endpoints: &Endpoints,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, EndError> {
    if has_socket_per_flow(spec) {
        let admit = |(socket, flow): (&Arc<OwnedFd>, u32)| match spec.transport {
            _ if spec.pattern.is_connecting() => listener::admit(socket.clone(), token, spec, flow, deadline),
            Transport::Pipe => {
                let path = &endpoints.paths[flow as usize];
                pipe::admit(socket, path, token, flow, spec.far.socket.send_buffer, deadline)
            }
            Transport::Link => link::admit(socket, endpoints.mac.unwrap_or_default(), token, flow, deadline),
            _ => datagram::admit(socket, token, spec.connected, flow, deadline),
        };
        return sockets.iter().zip(0..).map(admit).collect();
    }
    // The far end of ICMP has no socket: its kernel answers.
    let Some(socket) = sockets.first() else { return Ok(Vec::new()) };
    let sockets = connection::accept_flows(socket, token, spec.flows(), deadline)?;
    for socket in &sockets {
        let v6 = local_ip(socket).is_ok_and(|address| address.is_ipv6());
        Prepared::accepted(&spec.far.socket, spec.transport, v6).apply(socket)?;
        bounded(spec, socket)?;
    }
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

/// Destination and source of a near end's connections.
#[derive(Clone, Copy)]
struct Destination<'a> {
    ip: IpAddr,
    endpoints: &'a Endpoints,
    data_ip: Option<IpAddr>,
    /// The near end's folder for sockets that have names.
    folder: Option<&'a TempDir>,
}

fn open_all(
    spec: &TestSpec,
    token: &Token,
    destination: Destination<'_>,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, EndError> {
    let open = |flow| {
        if spec.transport == Transport::Icmp {
            let ip = destination.endpoints.address.unwrap_or(destination.ip);
            check_family(spec, ip)?;
            return icmp::open(spec, ip, destination.data_ip, flow);
        }
        if spec.alone {
            return open_to_service(spec, destination, flow, deadline);
        }
        if spec.transport == Transport::Link {
            let to = destination
                .endpoints
                .mac
                .ok_or_else(|| EndError::Impossible("the far end did not name its hardware address".to_owned()))?;
            let (socket, own) = link::open(spec, &spec.near.socket, token, flow, Side::Near)?;
            return link::knock(socket, own, to, token, flow, deadline);
        }
        let to = towards(spec, destination, flow)?;
        if let (Transport::Pipe, Address::Path(path)) = (spec.transport, &to) {
            return pipe::open_flow(path, token, flow, spec.near.socket.send_buffer);
        }
        if has_socket_pairs(spec.transport) {
            let own = destination.folder.map(|folder| folder.path().join(format!("near{flow}")));
            let from = match (&to, &own) {
                (Address::Ip(to), _) => near_bind(spec, destination.data_ip, to.ip(), flow).map(Address::Ip),
                (_, Some(own)) => Some(Address::Path(own.clone())),
                _ => None,
            };
            let socket = datagram::socket(spec, &spec.near.socket, from.as_ref().unwrap_or(&to), from.is_some())?;
            return datagram::knock(socket, (&to, spec.connected), own.as_ref(), token, flow, deadline);
        }
        let protocol = protocol(spec)?;
        if spec.pattern.is_connecting() {
            return listener::prove(spec, protocol, &to, destination.data_ip, token, flow, deadline);
        }
        let from = match &to {
            Address::Ip(to) => near_bind(spec, destination.data_ip, to.ip(), flow).map(Address::Ip),
            _ => None,
        };
        let socket = connection::connect(protocol, from.as_ref(), &to, &spec.near.socket, deadline)?;
        connection::prove(&socket, token, flow)?;
        bounded(spec, &socket)?;
        Ok(Link::of_socket(flow, socket))
    };
    (0..spec.flows()).map(open).collect()
}

/// Connected datagrams: bounds the wait of every call, since no end of a stream frees it, and checks that every message fits a
/// packet.
fn bounded(spec: &TestSpec, socket: &OwnedFd) -> Result<(), EndError> {
    if !spec.transport.is_datagram() {
        return Ok(());
    }
    datagram::look_up(socket)?;
    let largest = largest_message(spec);
    match super::largest_packet(socket) {
        Some(fits) if largest > fits => Err(EndError::Impossible(format!(
            "a DCCP packet on this path carries at most {fits} bytes, not {largest}: choose smaller messages"
        ))),
        _ => Ok(()),
    }
}

/// Opens a flow to a service that takes no part in tests.
fn open_to_service(
    spec: &TestSpec,
    destination: Destination<'_>,
    flow: u32,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    check_family(spec, destination.ip)?;
    let to = Address::Ip((destination.ip, spec.far.port.unwrap_or_default()).into());
    let from = near_bind(spec, destination.data_ip, destination.ip, flow).map(Address::Ip);
    if spec.transport.is_datagram() {
        let socket = datagram::socket(spec, &spec.near.socket, from.as_ref().unwrap_or(&to), from.is_some())?;
        return datagram::to_service(socket, &to, spec.connected, flow);
    }
    let protocol = protocol(spec)?;
    if spec.pattern.is_connecting() {
        return listener::towards_service(spec, protocol, &to, destination.data_ip, flow);
    }
    connection::connect(protocol, from.as_ref(), &to, &spec.near.socket, deadline)
        .map(|socket| Link::of_socket(flow, socket))
}

/// Address of the far end's socket for a flow.
fn towards(spec: &TestSpec, destination: Destination<'_>, flow: u32) -> Result<Address, EndError> {
    let unsaid = || EndError::Impossible("the far end did not name the endpoints of its data sockets".to_owned());
    let index = if has_socket_per_flow(spec) { flow as usize } else { 0 };
    match spec.transport {
        _ if is_unix(spec) || spec.transport == Transport::Pipe => {
            let path = destination.endpoints.paths.get(index).ok_or_else(unsaid)?;
            if !path.exists() {
                return Err(EndError::Impossible(format!(
                    "{} is not on this host: both ends of a Unix socket or pipe must be on one host and see the same files",
                    path.display()
                )));
            }
            Ok(Address::Path(path.clone()))
        }
        Transport::Vsock => {
            let port = *destination.endpoints.ports.get(index).ok_or_else(unsaid)?;
            Ok(vsock::address(destination.endpoints.cid.ok_or_else(unsaid)?, port))
        }
        _ => {
            let ip = destination.endpoints.address.unwrap_or(destination.ip);
            check_family(spec, ip)?;
            Ok(Address::Ip((ip, *destination.endpoints.ports.get(index).ok_or_else(unsaid)?).into()))
        }
    }
}

fn protocol(spec: &TestSpec) -> Result<Protocol, EndError> {
    Protocol::connecting(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))
}

fn connected(links: Vec<Link>) -> Connected {
    let first = links.first();
    let peer = first.and_then(Link::peer_ip);
    // The family of the socket, not of the packets, decides at which level options are set.
    let v6 = first.and_then(|link| local_ip(&link.send).ok()).is_some_and(|address| address.is_ipv6());
    Connected { links: links.into_iter().map(Arc::new).collect(), v6, peer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_its_owner() {
        let folder = private_folder().unwrap();
        let path = folder.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("x"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
