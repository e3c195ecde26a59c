//! How the two ends of a test come together, whatever the transport: the far end opens a door, the near end comes to it.

use std::{net::IpAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use super::{
    Deadline, Link, Protocol,
    address::{Address, listening_ip, local_ip, near_bind, peer_ip},
    check_family, connection,
    scratch::Scratch,
    vsock,
};
use crate::{
    end::{EndError, Endpoints, Token},
    report::Side,
    spec::{Family, TestSpec, Transport},
};

/// An end before its flows are there.
pub enum Meeting {
    /// The near end comes from here.
    Comer {
        /// Local address of the data sockets, where the session chose one.
        data_ip: Option<IpAddr>,
    },
    /// The far end listens.
    Listener {
        /// The socket that listens.
        socket: OwnedFd,
        /// Where.
        endpoints: Endpoints,
        /// What it has put into the file system.
        _scratch: Option<Scratch>,
    },
}

/// The flows of an end.
#[derive(Default)]
pub struct Met {
    /// By number.
    pub links: Vec<Arc<Link>>,
    /// Whether they run over IPv6.
    pub v6: bool,
    /// The other end's address.
    pub peer: Option<IpAddr>,
}

impl Meeting {
    /// Opens the door at the far end.
    pub fn prepare(spec: &TestSpec, side: Side, data_ip: Option<IpAddr>) -> Result<Self, EndError> {
        if side == Side::Near {
            return Ok(Self::Comer { data_ip });
        }
        let protocol = protocol(spec)?;
        let backlog = spec.flows().max(16);
        match spec.transport {
            Transport::UnixStream | Transport::UnixSeqpacket => {
                let scratch = Scratch::new()?;
                let path = scratch.join("listener");
                let socket = connection::listener(protocol, &Address::Path(path.clone()), &spec.far, backlog)?;
                let endpoints = Endpoints { paths: vec![path], ..Endpoints::default() };
                Ok(Self::Listener { socket, endpoints, _scratch: Some(scratch) })
            }
            Transport::Vsock => {
                let (socket, endpoints) = vsock::listen(protocol, &spec.far, backlog)?;
                Ok(Self::Listener { socket, endpoints, _scratch: None })
            }
            _ => {
                let (ip, chosen) = listening_ip(spec, data_ip, 0);
                if spec.family != Family::Any || !ip.is_unspecified() {
                    check_family(spec, ip)?;
                }
                let socket = connection::listen_on(protocol, ip, spec.far.port.unwrap_or(0), &spec.far, backlog)?;
                let port = local_ip(&socket)?.port();
                let endpoints = Endpoints { address: chosen.then_some(ip), ports: vec![port], ..Endpoints::default() };
                Ok(Self::Listener { socket, endpoints, _scratch: None })
            }
        }
    }

    /// What the other end must know.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        match self {
            Self::Comer { .. } => Endpoints::default(),
            Self::Listener { endpoints, .. } => endpoints.clone(),
        }
    }

    /// Brings all flows together in time.
    pub fn meet(
        &self,
        spec: &TestSpec,
        token: &Token,
        peer: Option<(IpAddr, &Endpoints)>,
        allowed: Duration,
    ) -> Result<Met, EndError> {
        let deadline = Deadline::after(allowed);
        match (self, peer) {
            (Self::Listener { socket, .. }, None) => {
                let sockets = connection::accept_flows(socket, token, spec.flows(), &deadline)?;
                Ok(met(sockets))
            }
            (Self::Comer { data_ip }, Some((ip, endpoints))) => {
                let to = towards(spec, ip, endpoints)?;
                let mut sockets = Vec::new();
                for flow in 0..spec.flows() {
                    let from = match &to {
                        Address::Ip(to) => near_bind(spec, *data_ip, to.ip(), flow).map(Address::Ip),
                        _ => None,
                    };
                    let socket =
                        connection::connect(protocol(spec)?, from.as_ref(), &to, &spec.near.socket, &deadline)?;
                    connection::prove(&socket, token, flow)?;
                    sockets.push(socket);
                }
                Ok(met(sockets))
            }
            (Self::Listener { .. }, Some(_)) => {
                Err(EndError::Impossible("the far end accepts; only the near end connects to a peer".to_owned()))
            }
            (Self::Comer { .. }, None) => {
                Err(EndError::Impossible("the near end must be told where the far end is".to_owned()))
            }
        }
    }
}

/// Where the far end's data socket is.
fn towards(spec: &TestSpec, ip: IpAddr, endpoints: &Endpoints) -> Result<Address, EndError> {
    let unsaid = || EndError::Impossible("the far end did not say where its data sockets are".to_owned());
    match spec.transport {
        Transport::UnixStream | Transport::UnixSeqpacket => {
            let path = endpoints.paths.first().ok_or_else(unsaid)?;
            if !path.exists() {
                return Err(EndError::Impossible(format!(
                    "{} is not on this host: both ends of a Unix socket must be on one host and see the same files",
                    path.display()
                )));
            }
            Ok(Address::Path(path.clone()))
        }
        Transport::Vsock => vsock::towards(endpoints),
        _ => {
            let ip = endpoints.address.unwrap_or(ip);
            check_family(spec, ip)?;
            Ok(Address::Ip((ip, *endpoints.ports.first().ok_or_else(unsaid)?).into()))
        }
    }
}

fn protocol(spec: &TestSpec) -> Result<Protocol, EndError> {
    Protocol::of(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))
}

fn met(sockets: Vec<OwnedFd>) -> Met {
    let peer = sockets.first().and_then(|socket| peer_ip(socket).ok()).map(|address| address.ip());
    // The family of the socket and not of the packets: which level its options are set at.
    let v6 = sockets.first().and_then(|socket| local_ip(socket).ok()).is_some_and(|address| address.is_ipv6());
    let links = sockets.into_iter().zip(0..).map(|(socket, flow)| Arc::new(Link::of_socket(flow, socket))).collect();
    Met { links, v6, peer: peer.map(|ip| ip.to_canonical()) }
}
