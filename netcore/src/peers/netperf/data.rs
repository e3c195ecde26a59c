//! The data sockets of a client's test.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{errno::Errno, sys::socket::MsgFlags};

use super::{
    answer::Opened,
    asked::{Asked, Refused},
};
use crate::{
    error::EndError,
    spec::{Family, TestSpec},
    sys::{self, opt},
    transport::{
        Link, Protocol,
        address::{Address, local_ip},
        connection, datagram, listener,
        options::Prepared,
    },
};

/// Strangers who are turned away before the deadline and the stop flag are looked at.
const STRANGERS: usize = 64;

/// The addresses of a control connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: IpAddr,
}

/// An open data socket that waits for its client.
pub struct Waiting {
    socket: OwnedFd,
    /// Addresses that the client may come from.
    peers: Vec<IpAddr>,
}

impl Waiting {
    /// Opens the socket. It listens on the address that the client reached, or on another one that it names and that the daemon
    /// `serves`: a client does not open this host at addresses that its operator has left out.
    pub fn open(asked: &Asked, ends: Ends, serves: impl Fn(IpAddr) -> bool) -> Result<(Self, Opened), Refused> {
        let spec = &asked.spec;
        let mut peers = vec![ends.peer];
        if spec.transport.is_datagram() {
            // The source of a datagram proves nothing: answers go to the client's own address only.
            if asked.client.is_some_and(|client| client != ends.peer) {
                let reason = format!("datagrams go to the client's address {} only", ends.peer);
                return Err(Refused::new(Errno::EACCES, reason));
            }
        } else {
            peers.extend(asked.client);
        }
        let (control, port) = (ends.local, spec.far.port.unwrap_or(0));
        let named = asked.server.filter(|ip| *ip != control.ip() && serves(*ip)).map(|ip| SocketAddr::new(ip, port));
        let mut reached = control;
        reached.set_port(port);
        let opened = match named.map(|named| open(spec, named)) {
            // Behind an address translation the client names an address that this host does not have.
            None | Some(Err(EndError::System { .. })) => open(spec, reached),
            Some(opened) => opened,
        };
        let socket = opened.map_err(|error| refused(&error))?;
        let address = local_ip(&socket).map_err(|error| refused(&error))?;
        let fits = match spec.family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        if !fits {
            let reason = format!("the data address {} is of another IP version than asked for", address.ip());
            return Err(Refused::new(Errno::EAFNOSUPPORT, reason));
        }
        let size = |option| opt::get_int(&socket, option).unwrap_or(0);
        let opened = Opened {
            data_port: address.port(),
            receive_buffer: size(opt::SO_RCVBUF),
            send_buffer: size(opt::SO_SNDBUF),
        };
        Ok((Self { socket, peers }, opened))
    }

    /// The client's data connection, if it is there. Strangers are dropped. Connect tests need none in advance.
    pub fn try_meet(&self, spec: &TestSpec) -> Result<Option<Link>, EndError> {
        if spec.pattern.is_connecting() {
            let socket = self.socket.try_clone().map_err(EndError::system("no descriptor for the data socket"))?;
            return listener::without_proof(socket, self.peers.clone(), spec, 0).map(Some);
        }
        let known = |from: Option<SocketAddr>| from.filter(|from| self.peers.contains(&from.ip().to_canonical()));
        if spec.transport.is_datagram() {
            let Some(from) = self.first_datagram(known).map_err(EndError::system("cannot receive a datagram"))? else {
                return Ok(None);
            };
            let socket = self.socket.try_clone().map_err(EndError::system("no descriptor for the data socket"))?;
            connection::set_blocking(&socket, true)?;
            return datagram::to_service(socket, &Address::Ip(from), true, 0).map(Some);
        }
        for _ in 0..STRANGERS {
            match sys::accept(&self.socket) {
                Ok((socket, from)) => {
                    if known(from).is_none() {
                        continue;
                    }
                    let v6 = local_ip(&socket)?.is_ipv6();
                    Prepared::accepted(&spec.far.socket, spec.transport, v6).apply(&socket)?;
                    return Ok(Some(Link::of_socket(0, socket)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if connection::is_passing(&error) => {}
                Err(error) => return Err(EndError::system("cannot accept the data connection")(error)),
            }
        }
        Ok(None)
    }

    /// The sender of the first datagram of the client, which stays in the queue.
    fn first_datagram(
        &self,
        known: impl Fn(Option<SocketAddr>) -> Option<SocketAddr>,
    ) -> io::Result<Option<SocketAddr>> {
        let flags = MsgFlags::MSG_DONTWAIT;
        for _ in 0..STRANGERS {
            match sys::receive_from(&self.socket, &mut [0], (flags | MsgFlags::MSG_PEEK).bits()) {
                Ok((_, from)) => {
                    if let Some(from) = known(from) {
                        return Ok(Some(from));
                    }
                    let _ = sys::receive_from(&self.socket, &mut [0], flags.bits());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl AsFd for Waiting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(spec: &TestSpec, at: SocketAddr) -> Result<OwnedFd, EndError> {
    let address = Address::Ip(at);
    if spec.transport.is_datagram() {
        return datagram::socket(spec, &spec.far.socket, &address, true);
    }
    let protocol = Protocol::connecting(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))?;
    let socket = connection::listener(protocol, &address, &spec.far, connection::BACKLOG)?;
    connection::set_blocking(&socket, false)?;
    Ok(socket)
}

/// The failure of an end as the answer tells it.
pub fn refused(error: &EndError) -> Refused {
    let errno = match error {
        EndError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        EndError::Timeout { .. } => libc::ETIMEDOUT,
        EndError::Cancelled => libc::ECANCELED,
        _ => libc::EINVAL,
    };
    Refused { errno: errno.unsigned_abs(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn datagrams_of_strangers_do_not_keep_a_session_from_its_deadline() {
        let stranger = UdpSocket::bind("127.0.0.3:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let waiting = Waiting { socket: socket.into(), peers: vec!["127.0.0.1".parse().unwrap()] };
        let known = |from: Option<SocketAddr>| from.filter(|from| waiting.peers.contains(&from.ip()));
        for _ in 0..=STRANGERS {
            stranger.send_to(b"x", to).unwrap();
        }
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"y", to).unwrap();
        assert_eq!(waiting.first_datagram(known).unwrap(), None, "the session has its turn before the queue is empty");
        assert_eq!(waiting.first_datagram(known).unwrap(), Some(client.local_addr().unwrap()));
    }
}
