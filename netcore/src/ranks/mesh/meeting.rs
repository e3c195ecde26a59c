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
        control_port::{DataPorts, Reserved},
        meeting::Endpoints,
    },
};

/// A rank that listens.
pub struct Listening {
    rank: usize,
    token: Token,
    protocol: Protocol,
    socket: SocketOptions,
    from: Option<IpAddr>,
    arrivals: Arrivals,
}

/// The place at which connections of higher ranks arrive.
enum Arrivals {
    Own(OwnedFd, u16),
    AtControl(Reserved),
}

impl Listening {
    /// `address`: the local address of the data sockets; `None`: the kernel's choice.
    pub fn new(
        spec: &RanksSpec,
        rank: usize,
        (address, ports): (Option<IpAddr>, &DataPorts),
        token: Token,
    ) -> Result<Self, EndError> {
        let protocol = Protocol::connecting(spec.transport)
            .ok_or_else(|| EndError::Impossible(format!("ranks have no connections over {}", spec.transport.name())))?;
        let mut socket = spec.socket.clone();
        // Small messages follow each other: a delayed one would wait for the acknowledgement of the last.
        socket.no_delay.get_or_insert(true);
        let end = EndSpec { socket, ..EndSpec::default() };
        let of_rank = token_of(&token, rank);
        if let (DataPorts::Control(port), Some(ip)) = (ports, address)
            && let Some(reserved) = port.reserve(spec.transport, &end, (ip, &of_rank), false)
        {
            let arrivals = Arrivals::AtControl(reserved);
            return Ok(Self { rank, token, protocol, socket: end.socket, from: address, arrivals });
        }
        let on = |ip: IpAddr| {
            let open =
                |port| connection::listener(protocol, &Address::Ip((ip, port).into()), &end, connection::BACKLOG);
            ports.open(0, open)
        };
        let listener = match (address, spec.family) {
            (Some(address), _) => on(address)?,
            (None, Family::V4) => on(Ipv4Addr::UNSPECIFIED.into())?,
            (None, Family::V6) => on(Ipv6Addr::UNSPECIFIED.into())?,
            // A host may lack IPv6.
            (None, Family::Any) => on(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| on(Ipv4Addr::UNSPECIFIED.into()))?,
        };
        let port = local_ip(&listener)?.port();
        let arrivals = Arrivals::Own(listener, port);
        Ok(Self { rank, token, protocol, socket: end.socket, from: address, arrivals })
    }

    /// The endpoints that other ranks connect to.
    pub fn endpoints(&self) -> Endpoints {
        match &self.arrivals {
            Arrivals::Own(_, port) => Endpoints { ports: vec![*port], ..Endpoints::default() },
            Arrivals::AtControl(reserved) => reserved.endpoints(),
        }
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
            // Of the lower rank's connections, this one is counted from the rank after it.
            let proof = (&token_of(&self.token, lower), number(self.rank - lower - 1));
            let connect = connection::connect_and_prove;
            sockets.push(Some(connect(self.protocol, from.as_ref(), &to, &self.socket, proof, deadline)?));
        }
        sockets.push(None);
        let higher = number(peers.len().saturating_sub(self.rank + 1));
        let accepted = match &self.arrivals {
            Arrivals::Own(listener, _) => {
                connection::accept_flows(listener, &token_of(&self.token, self.rank), higher, deadline)?
            }
            Arrivals::AtControl(reserved) => reserved.connections(higher, &self.socket, deadline)?,
        };
        for socket in &accepted {
            connection::set_blocking(socket, true)?;
        }
        sockets.extend(accepted.into_iter().map(Some));
        Mesh::new(self.rank, sockets)
    }
}

/// The secret of a rank's connections, made from the test's: several ranks may be at the same control port.
fn token_of(token: &Token, rank: usize) -> Token {
    let mut of_rank = *token;
    of_rank.iter_mut().zip(number(rank).to_le_bytes()).for_each(|(byte, rank)| *byte ^= rank);
    of_rank
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
