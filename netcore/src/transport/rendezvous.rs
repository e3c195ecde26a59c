//! How the two ends of a test come together, whatever the transport: the far end listens, the near end connects.

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
    datagram, icmp, link, listener, meets_by_datagrams,
    options::Prepared,
    pipe, vsock,
};
use crate::{
    error::EndError,
    spec::{Family, Pattern, Side, TestSpec, Transport},
};

/// Where the near end must connect to: what the far end's kernel chose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets where it is another than the one the peer is known by.
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

/// An end before its flows are there.
pub enum Rendezvous {
    /// The near end comes from here.
    Near {
        /// Local address of the data sockets, where the session chose one.
        data_ip: Option<IpAddr>,
        /// Where it puts sockets that have names.
        scratch: Option<TempDir>,
    },
    /// The far end listens.
    Far {
        /// The sockets that listen: one for every flow, or one each where every operation makes a connection.
        sockets: Vec<Arc<OwnedFd>>,
        /// Where.
        endpoints: Endpoints,
        /// What it has put into the file system.
        _scratch: Option<TempDir>,
    },
}

/// The flows of an end.
#[derive(Default)]
pub struct Connected {
    /// By number.
    pub links: Vec<Arc<Link>>,
    /// Whether they run over IPv6.
    pub v6: bool,
    /// The other end's address.
    pub peer: Option<IpAddr>,
}

impl Rendezvous {
    /// Starts listening at the far end.
    pub fn prepare(spec: &TestSpec, side: Side, data_ip: Option<IpAddr>, token: &Token) -> Result<Self, EndError> {
        match side {
            Side::Near => {
                let scratch = if spec.transport == Transport::UnixDatagram { Some(private_folder()?) } else { None };
                Ok(Self::Near { data_ip, scratch })
            }
            Side::Far => listen(spec, data_ip, token),
        }
    }

    /// What the other end must know.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        match self {
            Self::Near { .. } => Endpoints::default(),
            Self::Far { endpoints, .. } => endpoints.clone(),
        }
    }

    /// What the flow's connections are accepted from, at a far end that listens.
    #[must_use]
    pub fn listener(&self, flow: u32) -> Option<&OwnedFd> {
        let Self::Far { sockets, .. } = self else { return None };
        sockets.get(flow as usize).or_else(|| sockets.first()).map(AsRef::as_ref)
    }

    /// Brings all flows together in time.
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
            (Self::Near { data_ip, scratch }, Some((ip, endpoints))) => {
                let destination = Destination { ip, endpoints, data_ip: *data_ip, scratch: scratch.as_ref() };
                let mut connected = open_all(spec, token, destination, deadline).map(connected)?;
                if spec.alone || spec.transport == Transport::Icmp {
                    // The way there is known even where no connection is kept, and a ping socket has no peer by name.
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

/// Sockets that the far end needs: flows that share a listener share its endpoint.
fn socket_count(spec: &TestSpec) -> u32 {
    let each = spec.pattern.is_connecting() || meets_by_datagrams(spec.transport) || spec.transport == Transport::Pipe;
    if each { spec.flows() } else { 1 }
}

fn listen(spec: &TestSpec, data_ip: Option<IpAddr>, token: &Token) -> Result<Rendezvous, EndError> {
    let protocol = Protocol::of(spec.transport);
    // Connect tests knock as fast as they can.
    let backlog = if spec.pattern.is_connecting() { 4096 } else { spec.flows().max(16) };
    let mut endpoints = Endpoints::default();
    let mut sockets = Vec::new();
    if spec.transport == Transport::Icmp {
        // The kernel answers: there is nothing to listen on.
        return Ok(Rendezvous::Far { sockets, endpoints, _scratch: None });
    }
    if spec.transport == Transport::Link {
        for flow in 0..spec.flows() {
            let (socket, mac) = link::open(spec, &spec.far.socket, token, flow, Side::Far)?;
            endpoints.mac = Some(mac);
            sockets.push(Arc::new(socket));
        }
        return Ok(Rendezvous::Far { sockets, endpoints, _scratch: None });
    }
    let scratch = if is_unix(spec) || spec.transport == Transport::Pipe { Some(private_folder()?) } else { None };
    let open = |address: &Address| match protocol {
        Some(protocol) => connection::listener(protocol, address, &spec.far, backlog),
        None => datagram::socket(spec, &spec.far.socket, address, true),
    };
    for index in 0..socket_count(spec) {
        let port = spec.far.port.map_or(0, |port| port.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX)));
        let socket = if let Some(scratch) = &scratch {
            let path = scratch.path().join(format!("listener{index}"));
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
    Ok(Rendezvous::Far { sockets, endpoints, _scratch: scratch })
}

/// A folder that only this user may enter. It is removed with its content when it is dropped.
fn private_folder() -> Result<TempDir, EndError> {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("plumb-").permissions(private).tempdir().map_err(|source| EndError::System {
        what: "cannot make a folder for the test's sockets (TMPDIR names another place)".to_owned(),
        source,
    })
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

/// Whether the flows meet in the file system.
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
    if spec.pattern.is_connecting() {
        let admit = |(socket, flow): (&Arc<OwnedFd>, u32)| listener::admit(socket.clone(), token, spec, flow, deadline);
        return sockets.iter().zip(0..).map(admit).collect();
    }
    if spec.transport == Transport::Icmp {
        return Ok(Vec::new());
    }
    if spec.transport == Transport::Pipe {
        let buffer = spec.far.socket.send_buffer;
        let admit = |((socket, path), flow): ((&Arc<OwnedFd>, &PathBuf), u32)| {
            pipe::admit(socket, path, token, flow, buffer, deadline)
        };
        return sockets.iter().zip(&endpoints.paths).zip(0..).map(admit).collect();
    }
    if let (Transport::Link, Some(own)) = (spec.transport, endpoints.mac) {
        let admit = |(socket, flow): (&Arc<OwnedFd>, u32)| link::admit(socket, own, token, flow, deadline);
        return sockets.iter().zip(0..).map(admit).collect();
    }
    if meets_by_datagrams(spec.transport) {
        let admit =
            |(socket, flow): (&Arc<OwnedFd>, u32)| datagram::admit(socket, token, spec.connected, flow, deadline);
        return sockets.iter().zip(0..).map(admit).collect();
    }
    let Some(socket) = sockets.first() else { return Ok(Vec::new()) };
    let sockets = connection::accept_flows(socket, token, spec.flows(), deadline)?;
    for socket in &sockets {
        let v6 = local_ip(socket).is_ok_and(|address| address.is_ipv6());
        Prepared::accepted(&spec.far.socket, spec.transport, v6).apply(socket)?;
        bounded(spec, socket)?;
    }
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

/// Where a near end goes, and from where.
#[derive(Clone, Copy)]
struct Destination<'a> {
    ip: IpAddr,
    endpoints: &'a Endpoints,
    data_ip: Option<IpAddr>,
    /// Where the near end puts sockets that have names.
    scratch: Option<&'a TempDir>,
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
            return unannounced(spec, destination, flow, deadline);
        }
        if spec.transport == Transport::Link {
            let to = destination.endpoints.mac.ok_or_else(|| {
                EndError::Impossible("the far end did not say what hardware address it has".to_owned())
            })?;
            let (socket, own) = link::open(spec, &spec.near.socket, token, flow, Side::Near)?;
            return link::knock(socket, own, to, token, flow, deadline);
        }
        let to = towards(spec, destination, flow)?;
        if let (Transport::Pipe, Address::Path(path)) = (spec.transport, &to) {
            return pipe::open_flow(path, token, flow, spec.near.socket.send_buffer);
        }
        if meets_by_datagrams(spec.transport) {
            let own = destination.scratch.map(|scratch| scratch.path().join(format!("near{flow}")));
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
            return listener::introduce(spec, protocol, &to, destination.data_ip, token, flow, deadline);
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

/// Connected datagrams: no call may wait for long, since no end of a stream frees it, and every message must fit a packet.
fn bounded(spec: &TestSpec, socket: &OwnedFd) -> Result<(), EndError> {
    if !spec.transport.is_datagram() {
        return Ok(());
    }
    datagram::look_up(socket)?;
    let sizes = &spec.sizes;
    let largest = match spec.pattern {
        Pattern::Stream => sizes.message_bytes,
        _ => sizes.request_bytes.max(sizes.response_bytes),
    };
    match super::largest_packet(socket) {
        Some(fits) if largest > fits => Err(EndError::Impossible(format!(
            "a DCCP packet on this path carries at most {fits} bytes, not {largest}: choose smaller messages"
        ))),
        _ => Ok(()),
    }
}

/// A flow to a service that knows nothing of the test.
fn unannounced(
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
        return datagram::greet_nobody(socket, &to, spec.connected, flow);
    }
    let protocol = protocol(spec)?;
    if spec.pattern.is_connecting() {
        return listener::towards_service(spec, protocol, &to, destination.data_ip, flow);
    }
    connection::connect(protocol, from.as_ref(), &to, &spec.near.socket, deadline)
        .map(|socket| Link::of_socket(flow, socket))
}

/// Where the far end's socket for a flow is.
fn towards(spec: &TestSpec, destination: Destination<'_>, flow: u32) -> Result<Address, EndError> {
    let unsaid = || EndError::Impossible("the far end did not say where its data sockets are".to_owned());
    let index = if socket_count(spec) == 1 { 0 } else { flow as usize };
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
    Protocol::of(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))
}

fn connected(links: Vec<Link>) -> Connected {
    let first = links.first();
    let peer = first.and_then(Link::peer_ip);
    // The family of the socket and not of the packets: it decides at which level options are set.
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
