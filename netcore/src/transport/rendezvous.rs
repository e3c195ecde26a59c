//! Connects the two ends of a test over any transport: the far end listens, the near end connects.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::OwnedFd,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Deadline, Link, Protocol,
    address::{Address, is_v6, listening_ip, local_ip, near_bind},
    check_family,
    connection::{self, Token},
    control_port::{DataPorts, Reserved},
    datagram,
    folder::{self, Folder},
    has_socket_pairs, icmp, largest_message, link, listener, mpi, opening,
    options::Prepared,
    pipe, vsock,
};
use crate::{
    error::EndError,
    mpi::Place,
    spec::{Family, Reuseport, Side, TestSpec, Transport},
};

/// Endpoints that the near end must connect to, as the far end's kernel chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets, if it differs from the peer's known address.
    pub address: Option<IpAddr>,
    /// Ports: one that serves every flow, or one per flow.
    pub ports: Vec<u16>,
    /// Whether the port is that of the control connections: a client that has reached the daemon at another port uses that.
    pub at_control: bool,
    /// Context identifier of a vsock end.
    pub cid: Option<u32>,
    /// Hardware address of a link end.
    pub mac: Option<[u8; 6]>,
    /// Rank and tags of an end of MPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<Place>,
}

/// An end before its flows are connected.
pub enum Rendezvous {
    Near {
        /// Local address of the data sockets, where the session chose one.
        data_ip: Option<IpAddr>,
    },
    Far {
        /// Listening sockets: one that serves every flow, or one per flow.
        sockets: Vec<Arc<OwnedFd>>,
        endpoints: Endpoints,
        /// Folder of sockets or FIFOs.
        folder: Option<Folder>,
    },
    /// A far end whose data come to the control port of its daemon.
    AtControl(Reserved),
}

/// The connected flows of an end.
#[derive(Default)]
pub struct Connected {
    pub links: Vec<Arc<Link>>,
    pub v6: bool,
    pub peer: Option<IpAddr>,
}

impl Connected {
    pub fn of(links: Vec<Link>) -> Self {
        let first = links.first();
        let peer = first.and_then(Link::peer_ip);
        let v6 = first.is_some_and(|link| is_v6(&link.send));
        Self { links: links.into_iter().map(Arc::new).collect(), v6, peer }
    }
}

impl Rendezvous {
    /// Starts listening at the far end.
    pub fn prepare(
        spec: &TestSpec,
        side: Side,
        data_ip: Option<IpAddr>,
        ports: &DataPorts,
        token: &Token,
    ) -> Result<Self, EndError> {
        let reserve = |ip| match ports {
            DataPorts::Control(port) => {
                // Flows that cycle through the same near ports would take each other's, at one far port.
                let cycles = spec.shares_port() && spec.near.port.is_some();
                let reserve = || port.reserve(spec.transport, &spec.far, (ip, token), spec.pattern.is_connecting());
                (!cycles).then(reserve).flatten()
            }
            _ => None,
        };
        match (side, data_ip.and_then(|ip| Some((ip, reserve(ip)?)))) {
            (Side::Near, _) => Ok(Self::Near { data_ip }),
            (Side::Far, Some((ip, reserved))) => check_family(spec, ip).map(|()| Self::AtControl(reserved)),
            (Side::Far, None) => listen(spec, data_ip, ports, token),
        }
    }

    pub fn endpoints(&self) -> Endpoints {
        match self {
            Self::Near { .. } => Endpoints::default(),
            Self::Far { endpoints, .. } => endpoints.clone(),
            Self::AtControl(reserved) => reserved.endpoints(),
        }
    }

    /// The listening socket of a flow, at a far end that listens.
    pub fn listener(&self, flow: u32) -> Option<&OwnedFd> {
        let Self::Far { sockets, .. } = self else { return None };
        sockets.get(flow as usize).or_else(|| sockets.first()).map(AsRef::as_ref)
    }

    /// Makes the threads of a connect workload accept, just before they begin.
    pub fn begin(&self, spec: &TestSpec) -> Result<(), EndError> {
        match self {
            Self::AtControl(reserved) if spec.pattern.is_connecting() => reserved.accept_here(listener::waiting(spec)),
            _ => Ok(()),
        }
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
            (Self::Far { sockets, endpoints, folder }, None) => {
                accept(spec, token, sockets, endpoints, folder.as_ref(), deadline).map(Connected::of)
            }
            (Self::AtControl(reserved), None) => admit_at_control(spec, reserved, deadline).map(Connected::of),
            (Self::Near { data_ip }, Some((ip, endpoints))) => {
                let folder = if folder::has_names(spec.transport) { Some(Folder::find(token)?) } else { None };
                let destination = Destination { ip, endpoints, data_ip: *data_ip, folder: folder.as_ref() };
                let mut connected = open_all(spec, token, destination, deadline).map(Connected::of)?;
                if spec.is_alone() || matches!(spec.transport, Transport::Icmp | Transport::Mpi) {
                    // The peer is known even without a lasting connection, and a ping socket has no peer name.
                    connected.peer.get_or_insert(endpoints.address.unwrap_or(ip));
                }
                Ok(connected)
            }
            (Self::Far { .. } | Self::AtControl(_), Some(_)) => {
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

fn listen(spec: &TestSpec, data_ip: Option<IpAddr>, ports: &DataPorts, token: &Token) -> Result<Rendezvous, EndError> {
    let protocol = Protocol::connecting(spec.transport);
    let backlog = if spec.pattern.is_connecting() { listener::BACKLOG } else { spec.flows().max(16) };
    let reuseport = spec.reuseport();
    let mut endpoints = Endpoints::default();
    let mut sockets = Vec::new();
    if spec.transport == Transport::Icmp {
        // The kernel answers; nothing listens.
        return Ok(Rendezvous::Far { sockets, endpoints, folder: None });
    }
    if spec.transport == Transport::Mpi {
        endpoints.mpi = Some(mpi::place(spec)?);
        return Ok(Rendezvous::Far { sockets, endpoints, folder: None });
    }
    if spec.transport == Transport::Link {
        for flow in 0..spec.flows() {
            let (socket, mac) = link::open(spec, &spec.far.socket, token, flow, Side::Far)?;
            endpoints.mac = Some(mac);
            sockets.push(Arc::new(socket));
        }
        return Ok(Rendezvous::Far { sockets, endpoints, folder: None });
    }
    let folder = if folder::has_names(spec.transport) { Some(Folder::make(token)?) } else { None };
    let open = |address: &Address| match protocol {
        // Listeners that share a port begin to listen after the proofs, which all come to the first one.
        Some(protocol) if reuseport.is_some() => connection::bound(protocol, address, &spec.far),
        Some(protocol) => connection::listener(protocol, address, &spec.far, backlog),
        None => datagram::socket(spec, &spec.far.socket, address, true),
    };
    let count = if has_socket_per_flow(spec) { spec.flows() } else { 1 };
    for index in 0..count {
        let mut port = spec.far.port_of(index);
        let socket = if let Some(folder) = &folder {
            if spec.transport == Transport::Pipe {
                pipe::make(folder, index)?
            } else {
                open(&Address::Path(folder.place(&far_name(index))))?
            }
        } else if let (Transport::Vsock, Some(protocol)) = (spec.transport, protocol) {
            let (socket, cid, port) = vsock::listen(protocol, &spec.far, backlog)?;
            endpoints.cid = Some(cid);
            endpoints.ports.push(port);
            socket
        } else {
            let (ip, chosen) = listening_ip(spec, data_ip, if reuseport.is_some() { 0 } else { index });
            if reuseport.is_some() {
                port = endpoints.ports.first().copied().unwrap_or(port);
            }
            if spec.family != Family::Any || !ip.is_unspecified() {
                check_family(spec, ip)?;
            }
            let socket = ports.open(port, |port| on_either_version(ip, |ip| open(&Address::Ip((ip, port).into()))))?;
            endpoints.address = chosen.then_some(ip);
            endpoints.ports.push(local_ip(&socket)?.port());
            socket
        };
        sockets.push(Arc::new(socket));
    }
    if let (Some(reuseport), Some(first)) = (reuseport, sockets.first()) {
        if reuseport == Reuseport::Cpu {
            opening::steer(first, spec)?;
        }
        connection::start_listening(first, backlog, &"the shared data port")?;
    }
    Ok(Rendezvous::Far { sockets, endpoints, folder })
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

/// Name of a far end's Unix socket.
fn far_name(index: u32) -> String {
    format!("far{index}")
}

/// Name of a near end's Unix socket, where it has one.
fn near_name(flow: u32) -> String {
    format!("near{flow}")
}

fn accept(
    spec: &TestSpec,
    token: &Token,
    sockets: &[Arc<OwnedFd>],
    endpoints: &Endpoints,
    folder: Option<&Folder>,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, EndError> {
    if let Some(place) = &endpoints.mpi {
        return mpi::admit(place, token, spec, deadline);
    }
    if spec.reuseport().is_some() {
        return listener::admit_group(sockets, token, spec, deadline);
    }
    if has_socket_per_flow(spec) {
        let admit = |(socket, flow): (&Arc<OwnedFd>, u32)| match spec.transport {
            _ if spec.pattern.is_connecting() => listener::admit(socket.clone(), token, spec, flow, deadline),
            Transport::Pipe => {
                let folder = folder.ok_or_else(no_folder)?;
                pipe::admit(socket, folder, token, flow, spec.far.socket.send_buffer, deadline)
            }
            Transport::Link => link::admit(socket, endpoints.mac.unwrap_or_default(), token, flow, deadline),
            _ => {
                let named = || folder.and_then(|it| it.made(&near_name(flow)).ok()).map(Address::Path);
                datagram::admit(socket, named, token, spec.connected, flow, deadline)
            }
        };
        return sockets.iter().zip(0..).map(admit).collect();
    }
    // The far end of ICMP has no socket: its kernel answers.
    let Some(socket) = sockets.first() else { return Ok(Vec::new()) };
    let sockets = connection::accept_flows(socket, token, spec.flows(), deadline)?;
    for socket in &sockets {
        Prepared::accepted(&spec.far.socket, spec.transport, is_v6(socket)).apply(socket)?;
        bounded(spec, socket)?;
    }
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

fn admit_at_control(spec: &TestSpec, reserved: &Reserved, deadline: &Deadline<'_>) -> Result<Vec<Link>, EndError> {
    if has_socket_pairs(spec.transport) {
        return reserved.datagram_flows(spec, deadline);
    }
    if spec.pattern.is_connecting() {
        return listener::admit_at_control(reserved, spec, deadline);
    }
    let sockets = reserved.connections(spec.flows(), &spec.far.socket, deadline)?;
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

/// Destination and source of a near end's connections.
#[derive(Clone, Copy)]
struct Destination<'a> {
    ip: IpAddr,
    endpoints: &'a Endpoints,
    data_ip: Option<IpAddr>,
    /// Folder of sockets or FIFOs.
    folder: Option<&'a Folder>,
}

fn open_all(
    spec: &TestSpec,
    token: &Token,
    destination: Destination<'_>,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, EndError> {
    if spec.transport == Transport::Mpi {
        return mpi::open(destination.endpoints.mpi.as_ref(), token, spec, deadline);
    }
    let open = |flow| {
        if spec.transport == Transport::Icmp {
            let ip = destination.endpoints.address.unwrap_or(destination.ip);
            check_family(spec, ip)?;
            return icmp::open(spec, ip, destination.data_ip, flow);
        }
        if spec.is_alone() {
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
        if spec.transport == Transport::Pipe {
            let folder = destination.folder.ok_or_else(no_folder)?;
            return pipe::open_flow(folder, token, flow, spec.near.socket.send_buffer);
        }
        let to = towards(spec, destination, flow)?;
        if has_socket_pairs(spec.transport) {
            let from = match &to {
                Address::Ip(to) => near_bind(spec, destination.data_ip, to.ip(), flow).map(Address::Ip),
                _ => destination.folder.map(|folder| Address::Path(folder.place(&near_name(flow)))),
            };
            let socket = datagram::socket(spec, &spec.near.socket, from.as_ref().unwrap_or(&to), from.is_some())?;
            return datagram::knock(socket, &to, spec.connected, token, flow, deadline);
        }
        let protocol = protocol(spec)?;
        if spec.pattern.is_connecting() {
            let shares_port = spec.reuseport().is_some() || destination.endpoints.ports.len() == 1;
            let proof = (token, flow, shares_port);
            return listener::prove(spec, protocol, &to, destination.data_ip, proof, deadline);
        }
        let from = match &to {
            Address::Ip(to) => near_bind(spec, destination.data_ip, to.ip(), flow).map(Address::Ip),
            _ => None,
        };
        let proof = (token, flow);
        let socket = connection::connect_and_prove(protocol, from.as_ref(), &to, &spec.near.socket, proof, deadline)?;
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
    let number = if has_socket_per_flow(spec) && destination.endpoints.ports.len() != 1 { flow } else { 0 };
    if let Some(folder) = destination.folder {
        return folder.made(&far_name(number)).map(Address::Path);
    }
    let index = number as usize;
    let port = *destination.endpoints.ports.get(index).ok_or_else(unsaid)?;
    if spec.transport == Transport::Vsock {
        return Ok(vsock::address(destination.endpoints.cid.ok_or_else(unsaid)?, port));
    }
    let ip = destination.endpoints.address.unwrap_or(destination.ip);
    check_family(spec, ip)?;
    Ok(Address::Ip((ip, port).into()))
}

fn no_folder() -> EndError {
    EndError::Impossible("the test has no folder for its pipes".to_owned())
}

fn protocol(spec: &TestSpec) -> Result<Protocol, EndError> {
    Protocol::connecting(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))
}
