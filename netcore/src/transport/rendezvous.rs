//! Connects the two ends of a test over any transport: the far end listens, the near end connects.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::fd::OwnedFd,
    sync::Arc,
};

use super::{
    Deadline, Link, Protocol,
    address::{Address, is_v6, listening_ip, local_ip, near_bind},
    check_family,
    connection::{self, Token},
    control_port::{DataPorts, Reserved},
    datagram, has_socket_pairs, icmp, largest_message, link, listener,
    meeting::{self, Destination, Endpoints, Folder, Listening, Meeting},
    mpi,
    options::{self, Prepared},
    pipe, stamp,
};
use crate::{
    error::EndError,
    spec::{EndSpec, Family, Reuseport, Side, TestSpec, Transport},
    sys,
};

/// An end before its flows are connected.
pub enum Rendezvous {
    Near {
        /// Local address of the data sockets, where the session chose one.
        data_ip: Option<IpAddr>,
    },
    Far(Listening),
    /// A far end whose data come to the control port of its daemon.
    AtControl(Reserved),
}

/// The way the two ends of a transport without sockets of IP, Unix or vsock meet. No loop calls it.
struct Carrier {
    /// Far end: listens.
    listen: fn(&TestSpec, &Token) -> Result<Listening, EndError>,
    /// Far end: takes the near end's flows.
    accept: fn(&Listening, Meeting<'_>) -> Result<Vec<Link>, EndError>,
    /// Near end: opens its flows.
    open: fn(Destination<'_>, Meeting<'_>) -> Result<Vec<Link>, EndError>,
}

fn carrier(transport: Transport) -> Option<Carrier> {
    Some(match transport {
        // The kernel of the far end answers.
        Transport::Icmp => {
            Carrier { listen: |_, _| Ok(Listening::default()), accept: |_, _| Ok(Vec::new()), open: icmp::open }
        }
        Transport::Mpi => Carrier { listen: mpi::listen, accept: mpi::accept, open: mpi::open },
        Transport::Link => Carrier { listen: link::listen, accept: link::accept, open: link::open },
        Transport::Pipe => Carrier { listen: pipe::listen, accept: pipe::accept, open: pipe::open },
        _ => return None,
    })
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
                let reserve = || port.reserve(spec.transport, &spec.far, (ip, token), spec.opens_sockets());
                (!cycles).then(reserve).flatten()
            }
            _ => None,
        };
        match (side, data_ip.and_then(|ip| Some((ip, reserve(ip)?)))) {
            (Side::Near, _) => Ok(Self::Near { data_ip }),
            (Side::Far, Some((ip, reserved))) => check_family(spec, ip).map(|()| Self::AtControl(reserved)),
            (Side::Far, None) => {
                let listening = match carrier(spec.transport) {
                    Some(carrier) => (carrier.listen)(spec, token),
                    None => listen(spec, data_ip, ports, token),
                };
                listening.map(Self::Far)
            }
        }
    }

    pub fn endpoints(&self) -> Endpoints {
        match self {
            Self::Near { .. } => Endpoints::default(),
            Self::Far(listening) => listening.endpoints.clone(),
            Self::AtControl(reserved) => reserved.endpoints(),
        }
    }

    /// The listening socket of a flow, at a far end that listens.
    pub fn listener(&self, flow: u32) -> Option<&OwnedFd> {
        let Self::Far(Listening { sockets, .. }) = self else { return None };
        sockets.get(flow as usize).or_else(|| sockets.first()).map(AsRef::as_ref)
    }

    /// Makes the threads of a connect workload accept, just before they begin.
    pub fn begin(&self, spec: &TestSpec) -> Result<(), EndError> {
        match self {
            Self::AtControl(reserved) if spec.opens_sockets() => reserved.accept_here(listener::waiting(spec)),
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
        let meeting = Meeting { spec, token, deadline };
        let (accept, open) = carrier(spec.transport).map_or((accept as _, open as _), |it| (it.accept, it.open));
        match (self, peer) {
            (Self::Far(listening), None) => accept(listening, meeting).map(Connected::of),
            (Self::AtControl(reserved), None) => admit_at_control(spec, reserved, deadline).map(Connected::of),
            (Self::Near { data_ip }, Some((ip, endpoints))) => {
                let folder = if meeting::has_names(spec.transport) { Some(Folder::find(token)?) } else { None };
                let destination = Destination { ip, endpoints, data_ip: *data_ip, folder: folder.as_ref() };
                let mut connected = open(destination, meeting).map(Connected::of)?;
                if spec.is_alone() || matches!(spec.transport, Transport::Icmp | Transport::Mpi) {
                    // The peer is known even without a lasting connection, and a ping socket has no peer name.
                    connected.peer.get_or_insert(endpoints.address.unwrap_or(ip));
                }
                Ok(connected)
            }
            (Self::Far(_) | Self::AtControl(_), Some(_)) => {
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
    spec.opens_sockets() || has_socket_pairs(spec.transport)
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

fn admit_at_control(spec: &TestSpec, reserved: &Reserved, deadline: &Deadline<'_>) -> Result<Vec<Link>, EndError> {
    if has_socket_pairs(spec.transport) {
        return reserved.datagram_flows(spec, deadline);
    }
    if spec.opens_sockets() {
        return listener::admit_at_control(reserved, spec, deadline);
    }
    let sockets = reserved.connections(spec.flows(), &spec.far.socket, deadline)?;
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

fn listen(spec: &TestSpec, data_ip: Option<IpAddr>, ports: &DataPorts, token: &Token) -> Result<Listening, EndError> {
    let protocol = Protocol::connecting(spec.transport);
    let backlog = if spec.opens_sockets() { connection::BACKLOG } else { spec.flows().max(16) };
    let reuseport = spec.reuseport();
    let mut endpoints = Endpoints::default();
    let mut sockets = Vec::new();
    let folder = if meeting::has_names(spec.transport) { Some(Folder::make(token)?) } else { None };
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
            open(&Address::Path(folder.place(&far_name(index))))?
        } else if let (Transport::Vsock, Some(protocol)) = (spec.transport, protocol) {
            let (socket, cid, port) = listen_vsock(protocol, &spec.far, backlog)?;
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
            options::steer(first, spec)?;
        }
        connection::start_listening(first, backlog, &"the shared data port")?;
    }
    Ok(Listening { sockets, endpoints, folder })
}

fn accept(at: &Listening, Meeting { spec, token, deadline }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let (sockets, folder) = (&at.sockets, at.folder.as_ref());
    if spec.reuseport().is_some() {
        return listener::admit_group(sockets, token, spec, deadline);
    }
    if has_socket_per_flow(spec) {
        let admit = |(socket, flow): (&Arc<OwnedFd>, u32)| {
            if spec.opens_sockets() {
                return listener::admit(socket.clone(), token, spec, flow, deadline);
            }
            let named = || folder.and_then(|it| it.made(&near_name(flow)).ok()).map(Address::Path);
            datagram::admit(socket, named, token, spec.connected, flow, deadline)
        };
        return sockets.iter().zip(0..).map(admit).collect();
    }
    let Some(socket) = sockets.first() else { return Ok(Vec::new()) };
    let sockets = connection::accept_flows(socket, token, spec.flows(), deadline)?;
    for socket in &sockets {
        Prepared::accepted(&spec.far.socket, spec.transport, is_v6(socket)).apply(socket)?;
        bounded(spec, socket)?;
    }
    Ok(sockets.into_iter().zip(0..).map(|(socket, flow)| Link::of_socket(flow, socket)).collect())
}

fn open(destination: Destination<'_>, Meeting { spec, token, deadline }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let (is_alone, near) = (spec.is_alone(), &spec.near.socket);
    let open = |flow| {
        let to = towards(spec, destination, flow)?;
        let from = match &to {
            Address::Ip(to) => near_bind(spec, destination.data_ip, to.ip(), flow).map(Address::Ip),
            _ => destination.folder.map(|folder| Address::Path(folder.place(&near_name(flow)))),
        };
        if has_socket_pairs(spec.transport) {
            let socket = datagram::socket(spec, near, from.as_ref().unwrap_or(&to), from.is_some())?;
            if is_alone {
                return datagram::to_service(socket, &to, spec.connected, flow);
            }
            let to = (&to, destination.endpoints.at_control);
            return datagram::greet(socket, to, spec.connected, token, flow, deadline);
        }
        let protocol = protocol(spec)?;
        if spec.opens_sockets() {
            if is_alone {
                return listener::towards_service(spec, protocol, &to, destination.data_ip, flow);
            }
            let shares_port = spec.reuseport().is_some() || destination.endpoints.ports.len() == 1;
            let proof = (token, flow, shares_port);
            return listener::prove(spec, protocol, &to, destination.data_ip, proof, deadline);
        }
        // A Unix socket that connects has no name.
        let from = from.filter(|from| matches!(from, Address::Ip(_)));
        if is_alone {
            let socket = connection::connect(protocol, from.as_ref(), &to, near, deadline)?;
            return Ok(Link::of_socket(flow, socket));
        }
        let socket = connection::connect_and_prove(protocol, from.as_ref(), &to, near, (token, flow), deadline)?;
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

/// Address of the service, or of the far end's socket for a flow.
fn towards(spec: &TestSpec, destination: Destination<'_>, flow: u32) -> Result<Address, EndError> {
    if spec.is_alone() {
        check_family(spec, destination.ip)?;
        let own = if spec.is_reflected() { stamp::PORT } else { 0 };
        return Ok(Address::Ip((destination.ip, spec.far.port.unwrap_or(own)).into()));
    }
    let unsaid = || EndError::Impossible("the far end did not name the endpoints of its data sockets".to_owned());
    let number = if has_socket_per_flow(spec) && destination.endpoints.ports.len() != 1 { flow } else { 0 };
    if let Some(folder) = destination.folder {
        return folder.made(&far_name(number)).map(Address::Path);
    }
    let index = number as usize;
    let port = *destination.endpoints.ports.get(index).ok_or_else(unsaid)?;
    if spec.transport == Transport::Vsock {
        return Ok(vsock_address(destination.endpoints.cid.ok_or_else(unsaid)?, port));
    }
    Ok(Address::Ip((destination.ip(spec)?, port).into()))
}

fn protocol(spec: &TestSpec) -> Result<Protocol, EndError> {
    Protocol::connecting(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))
}

// `AF_VSOCK`: the machine's context identifier, and listening on a free port.

/// This machine, whatever its identifier (VMADDR_CID_LOCAL); needs the module `vsock_loopback`.
const LOCAL_CID: u32 = 1;

/// Any local identifier (VMADDR_CID_ANY).
const ANY_CID: u32 = u32::MAX;

/// This machine's context identifier; `None`: it has none.
fn own_cid() -> Option<u32> {
    sys::vsock_cid().ok().filter(|cid| *cid != ANY_CID)
}

/// Listens on the test's port, or on a free one; returns the socket, the identifier and the port.
fn listen_vsock(protocol: Protocol, end: &EndSpec, backlog: u32) -> Result<(OwnedFd, u32, u16), EndError> {
    let mut port = end.port.unwrap_or(20_000);
    loop {
        match connection::listener(protocol, &Address::Vsock(ANY_CID, port.into()), end, backlog) {
            Ok(socket) => return Ok((socket, own_cid().unwrap_or(LOCAL_CID), port)),
            Err(EndError::System { source, .. })
                if source.raw_os_error() == Some(libc::EADDRINUSE) && end.port.is_none() && port < u16::MAX =>
            {
                port += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The far end's address as the near end reaches it.
fn vsock_address(cid: u32, port: u16) -> Address {
    let cid = if own_cid() == Some(cid) { LOCAL_CID } else { cid };
    Address::Vsock(cid, port.into())
}
