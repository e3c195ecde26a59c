//! Opens the streams of a test at the server: accepted connections with the session's cookie, or sockets that were greeted.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    poll::PollFlags,
    sys::socket::{MsgFlags, send},
};

use super::{
    super::{
        control::Control,
        hello::{HELLO_BYTES, REPLY, is_hello},
    },
    sessions::{Greeting, Session, Sessions},
};
use crate::{
    control::event,
    error::EndError,
    spec::{TestSpec, Transport},
    sys::{self, opt},
    transport::{
        Deadline, Link,
        address::Address,
        connection::{set_blocking, wait},
        datagram, options,
    },
};

/// Why the streams are not there.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The client gave up, or its control connection broke.
    #[error("the client left while its data connections were opened")]
    Left,
    #[error("{0}")]
    End(#[from] EndError),
}

/// The sockets of a test before its client connects.
pub enum Opening<'s> {
    Connections,
    Datagrams { first: OwnedFd, local: SocketAddr, peer: IpAddr, _turn: Greeting<'s> },
}

impl<'s> Opening<'s> {
    /// Binds what must be bound before the client is told to connect.
    pub fn begin(
        spec: &TestSpec,
        sessions: &'s Sessions,
        (local, peer): (SocketAddr, IpAddr),
        deadline: &Deadline<'_>,
    ) -> Result<Self, EndError> {
        if spec.transport != Transport::Udp {
            return Ok(Self::Connections);
        }
        let turn = sessions.greet(local, peer, deadline).ok_or_else(|| {
            EndError::Impossible(format!("another test of {peer} has not opened its UDP streams in time"))
        })?;
        let first = awaiting_hello(spec, local, peer)?;
        Ok(Self::Datagrams { first, local, peer, _turn: turn })
    }

    /// Waits for all streams of the client, in the order of their creation.
    pub fn finish(
        self,
        spec: &TestSpec,
        session: &Session<'_>,
        control: &mut Control,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<Link>, StreamError> {
        match self {
            Self::Connections => connections(spec, session, control, deadline),
            Self::Datagrams { first, local, peer, _turn } => datagrams(spec, first, (local, peer), control, deadline),
        }
    }
}

/// Whether the client still waits for its test: anything that it says now ends it.
fn is_present(control: &mut Control) -> Result<(), StreamError> {
    match control.arrived_state() {
        Ok(None) => Ok(()),
        Ok(Some(_)) | Err(_) => Err(StreamError::Left),
    }
}

fn connections(
    spec: &TestSpec,
    session: &Session<'_>,
    control: &mut Control,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, StreamError> {
    let wanted = spec.flows() as usize;
    loop {
        is_present(control)?;
        if let Some(streams) = session.take(wanted) {
            let link = |(stream, flow): (std::net::TcpStream, u32)| -> Result<Link, EndError> {
                let v6 = stream.local_addr().is_ok_and(|address| address.is_ipv6());
                let socket = OwnedFd::from(stream);
                set_blocking(&socket, true)?;
                options::apply(&socket, &spec.far.socket, spec.transport, v6)?;
                Ok(Link::of_socket(flow, socket))
            };
            return Ok(streams.into_iter().zip(0..).map(link).collect::<Result<_, _>>()?);
        }
        if deadline.left().is_zero() {
            let hint = "the client did not open the others in time";
            return Err(deadline.missed(session.arrived(), spec.flows(), hint).into());
        }
        let until = Instant::now() + deadline.slice().max(Duration::from_millis(1));
        event::wait([Some(session.as_fd()), Some(control.as_fd())], Some(until))
            .map_err(EndError::system("cannot wait for data connections"))?;
    }
}

/// A socket that receives only what comes from the client's address, from any port: connected to port 0. So sessions of
/// several clients wait at the same port, and no stranger's hello reaches them.
fn awaiting_hello(spec: &TestSpec, local: SocketAddr, peer: IpAddr) -> Result<OwnedFd, EndError> {
    let address = Address::Ip(local);
    let socket = datagram::socket(spec, &spec.far.socket, &address, false)?;
    opt::set_int(&socket, opt::SO_REUSEADDR, 1).map_err(EndError::system("cannot set SO_REUSEADDR"))?;
    address.bind(&socket)?;
    Address::Ip((peer, 0).into())
        .connect(&socket)
        .map_err(EndError::system(format!("cannot receive datagrams of {peer} at {local}")))?;
    Ok(socket)
}

fn datagrams(
    spec: &TestSpec,
    first: OwnedFd,
    (local, peer): (SocketAddr, IpAddr),
    control: &mut Control,
    deadline: &Deadline<'_>,
) -> Result<Vec<Link>, StreamError> {
    let mut links = Vec::new();
    let mut next = Some(first);
    while let Some(socket) = next.take() {
        let flow = u32::try_from(links.len()).unwrap_or(u32::MAX);
        let from = await_hello(&socket, peer, control, deadline, (flow, spec.flows()))?;
        Address::Ip(from)
            .connect(&socket)
            .map_err(EndError::system(format!("cannot answer the client's stream at {from}")))?;
        if flow + 1 < spec.flows() {
            // It must be there before the client hears of this one: then it greets the next.
            next = Some(awaiting_hello(spec, local, peer)?);
        }
        match send(socket.as_raw_fd(), &REPLY, MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => {}
            Err(error) => return Err(EndError::system("cannot answer a hello")(io::Error::from(error)).into()),
        }
        datagram::look_up(&socket)?;
        links.push(Link::of_socket(flow, socket));
    }
    Ok(links)
}

/// Waits for a hello. Longer datagrams are late ones of an earlier test, and other addresses are no business of this one.
fn await_hello(
    socket: &OwnedFd,
    peer: IpAddr,
    control: &mut Control,
    deadline: &Deadline<'_>,
    (flow, flows): (u32, u32),
) -> Result<SocketAddr, StreamError> {
    loop {
        is_present(control)?;
        if deadline.left().is_zero() {
            let hint = "no hello came from the client's address: is UDP open in the firewall?";
            return Err(deadline.missed(flow as usize, flows, hint).into());
        }
        if !wait(socket, PollFlags::POLLIN, deadline.slice())? {
            continue;
        }
        // One byte more than a hello, to tell a longer datagram.
        let mut datagram = [0; HELLO_BYTES + 1];
        match sys::receive_from(socket, &mut datagram, libc::MSG_DONTWAIT) {
            Ok((n, Some(from))) if from.ip().to_canonical() == peer && is_hello(&datagram[..n]) => return Ok(from),
            _ => {}
        }
    }
}
