//! Connects each two ranks: the higher rank connects, the lower one accepts. All listen before the first connects, so none
//! waits for another in a circle.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::OwnedFd,
};

use super::Mesh;
use crate::{
    error::EndError,
    spec::{EndSpec, Family, SocketOptions, ranks::RanksSpec},
    transport::{
        Deadline, Protocol,
        address::{Address, local_ip},
        connection::{self, Token},
        rendezvous::Endpoints,
    },
};

/// A rank that listens.
pub struct Listening {
    rank: usize,
    token: Token,
    protocol: Protocol,
    socket: SocketOptions,
    from: Option<IpAddr>,
    listener: OwnedFd,
    port: u16,
}

impl Listening {
    /// `address`: the local address of the data sockets; `None`: the kernel's choice.
    pub fn new(spec: &RanksSpec, rank: usize, address: Option<IpAddr>, token: Token) -> Result<Self, EndError> {
        let protocol = Protocol::connecting(spec.transport)
            .ok_or_else(|| EndError::Impossible(format!("ranks have no connections over {}", spec.transport.name())))?;
        let mut socket = spec.socket.clone();
        // Small messages follow each other: a delayed one would wait for the acknowledgement of the last.
        socket.no_delay.get_or_insert(true);
        let end = EndSpec { socket, ..EndSpec::default() };
        let on = |ip: IpAddr| connection::listener(protocol, &Address::Ip((ip, 0).into()), &end, BACKLOG);
        let listener = match (address, spec.family) {
            (Some(address), _) => on(address)?,
            (None, Family::V4) => on(Ipv4Addr::UNSPECIFIED.into())?,
            (None, Family::V6) => on(Ipv6Addr::UNSPECIFIED.into())?,
            // A host may lack IPv6.
            (None, Family::Any) => on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| on(Ipv4Addr::UNSPECIFIED.into()))?,
        };
        let port = local_ip(&listener)?.port();
        Ok(Self { rank, token, protocol, socket: end.socket, from: address, listener, port })
    }

    /// The endpoints that other ranks connect to.
    pub fn endpoints(&self) -> Endpoints {
        Endpoints { ports: vec![self.port], ..Endpoints::default() }
    }

    /// Connects to all ranks in time. `peers`: address and endpoints of each rank, this one among them.
    pub fn connect(self, peers: &[(IpAddr, Endpoints)], deadline: &Deadline<'_>) -> Result<Mesh, EndError> {
        let mut sockets: Vec<Option<OwnedFd>> = Vec::with_capacity(peers.len());
        for (lower, (ip, endpoints)) in peers.iter().enumerate().take(self.rank) {
            let port = *endpoints
                .ports
                .first()
                .ok_or_else(|| EndError::Impossible(format!("rank {lower} has not named its data port")))?;
            let to = Address::Ip((endpoints.address.unwrap_or(*ip), port).into());
            let from = self.from.map(|from| Address::Ip((from, 0).into()));
            let socket = connection::connect(self.protocol, from.as_ref(), &to, &self.socket, deadline)?;
            // Of the lower rank's connections, this one is counted from the rank after it.
            connection::prove(&socket, &self.token, number(self.rank - lower - 1))?;
            sockets.push(Some(socket));
        }
        sockets.push(None);
        let higher = number(peers.len().saturating_sub(self.rank + 1));
        let accepted = connection::accept_flows(&self.listener, &self.token, higher, deadline)?;
        for socket in &accepted {
            connection::set_blocking(socket, true)?;
        }
        sockets.extend(accepted.into_iter().map(Some));
        Mesh::new(self.rank, sockets)
    }
}

/// Connections that wait to be accepted while this rank still connects.
const BACKLOG: u32 = 4096;

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
