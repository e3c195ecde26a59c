//! Datagram sockets: a pair for each flow, connected to each other after the near end has proven itself.
//!
//! The near end sends its preamble until the far end answers. The far end connects its socket to the first sender that has
//! the token; from then on the kernel drops datagrams of other senders. On a path of a long delay many preambles and answers
//! are still under way then: the loops tell them from messages by their contents ([`super::connection::is_greeting`]).

use std::{
    io::IoSliceMut,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use nix::{
    cmsg_space,
    poll::PollFlags,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recv, recvmsg, send, sendto},
        time::TimeSpec,
    },
};
use socket2::SockRef;

use super::{
    Deadline, Link, Protocol,
    address::Address,
    connection::{PREAMBLE_BYTES, Token, flow_of, preamble, set_blocking, wait},
    options,
};
use crate::{
    error::EndError,
    measure::clock::in_ns,
    spec::{Bytes, PaceMode, Pattern, SocketOptions, TestSpec, Transport},
    sys::{self, opt},
};

/// Time that a blocked call waits before its thread checks for the end of the test.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Interval at which the near end sends its preamble until it is answered.
const GREETING_PAUSE: Duration = Duration::from_millis(50);

/// Copies of the answer: the near end must get one of them.
pub const ANSWERS: usize = 3;

/// Default receive buffer. With the system's default, a receiver that is briefly off its CPU loses half of the datagrams.
const RECEIVE_BUFFER: Bytes = Bytes(4 << 20);

/// Default send buffer where the kernel paces. fq silently drops the packets of a flow beyond 100; this is room for fewer.
const PACED_BUFFER: Bytes = Bytes(32 << 10);

/// The options of a data socket, with the engines' own defaults.
pub fn effective(asked: &SocketOptions, spec: &TestSpec) -> SocketOptions {
    let mut options = asked.clone();
    if spec.transport.is_quic() {
        options.receive_buffer.get_or_insert(RECEIVE_BUFFER);
        options.send_buffer.get_or_insert(RECEIVE_BUFFER);
    }
    if spec.pattern == Pattern::Stream && matches!(spec.transport, Transport::Udp | Transport::UdpLite) {
        options.receive_buffer.get_or_insert(RECEIVE_BUFFER);
        if spec.pace.is_some_and(|pace| pace.mode != PaceMode::User) {
            options.send_buffer.get_or_insert(PACED_BUFFER);
        }
    }
    options
}

/// A socket with its options, bound.
pub fn socket(spec: &TestSpec, asked: &SocketOptions, address: &Address, bind: bool) -> Result<OwnedFd, EndError> {
    let protocol = Protocol::of(spec.transport).map_or(0, |protocol| protocol.number);
    let name = spec.transport.name();
    let socket = sys::socket(address.family(), libc::SOCK_DGRAM, protocol).map_err(|source| {
        let hint =
            if spec.transport == Transport::UdpLite { ": this kernel may have none; see modprobe udplite" } else { "" };
        EndError::System { what: format!("no socket for {name}{hint}"), source }
    })?;
    let v6 = address.family() == libc::AF_INET6;
    options::apply(&socket, &effective(asked, spec), spec.transport, v6)?;
    if v6 && matches!(address, Address::Ip(ip) if ip.ip().is_unspecified()) {
        opt::set_int(&socket, opt::IPV6_V6ONLY, 0).map_err(EndError::system("cannot listen on both IP versions"))?;
    }
    if bind {
        address.bind(&socket)?;
    }
    Ok(socket)
}

/// Bounds every blocking call on the socket.
pub fn look_up(socket: &OwnedFd) -> Result<(), EndError> {
    let socket = SockRef::from(socket);
    socket
        .set_read_timeout(Some(LOOK_UP))
        .and_then(|()| socket.set_write_timeout(Some(LOOK_UP)))
        .map_err(EndError::system("cannot bound the wait of a datagram socket"))
}

/// Near end: aims the socket at a service, which answers no preamble.
pub fn to_service(socket: OwnedFd, to: &Address, connected: bool, flow: u32) -> Result<Link, EndError> {
    let peer = aim(&socket, to, connected).map_err(EndError::system(format!("cannot reach the service at {to}")))?;
    look_up(&socket)?;
    Ok(Link { peer, ..Link::of_socket(flow, socket) })
}

/// Connects a socket to its peer. A test without connected sockets gets the address for every call instead.
fn aim(socket: &OwnedFd, to: &Address, connected: bool) -> nix::Result<Option<SocketAddr>> {
    match to {
        Address::Ip(address) if !connected => Ok(Some(*address)),
        _ => to.connect(socket).map(|()| None),
    }
}

/// Sends a datagram to the peer of a socket.
pub fn send_to(socket: RawFd, bytes: &[u8], peer: Option<SocketAddr>, flags: MsgFlags) -> nix::Result<usize> {
    match peer {
        None => send(socket, bytes, flags),
        Some(peer) => sendto(socket, bytes, &SockaddrStorage::from(peer), flags),
    }
}

/// Receives a datagram of the peer. A stranger's datagram counts as an interrupted call (EINTR): more may have arrived.
pub fn receive_from(link: &Link, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
    let Some(peer) = link.peer else { return recv(link.receive.as_raw_fd(), buffer, flags) };
    match sys::receive_from(&*link.receive, buffer, flags.bits()) {
        Ok((n, from)) if from == Some(peer) => Ok(n),
        Ok(_) => Err(nix::Error::EINTR),
        Err(error) => Err(nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// The same of a connected socket, with the time at which the kernel got the datagram, nanoseconds of the wall clock.
/// `control`: room for that ([`arrival_space`]).
pub fn receive_at(
    link: &Link,
    buffer: &mut [u8],
    flags: MsgFlags,
    control: &mut [u8],
) -> nix::Result<(usize, Option<i64>)> {
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(link.receive.as_raw_fd(), &mut parts, Some(control), flags)?;
    let time = message.cmsgs().into_iter().flatten().find_map(|item| match item {
        ControlMessageOwned::ScmTimestampns(at) => Some(in_ns(&at)),
        _ => None,
    });
    Ok((message.bytes, time))
}

/// Room for the times of a datagram, of both options that tell them.
pub fn arrival_space() -> Vec<u8> {
    cmsg_space!(TimeSpec, [TimeSpec; 3], [u8; 64])
}

/// When a datagram left, Unix nanoseconds, and its number among those of which the kernel notes that: from the error queue of its
/// socket. `Ok(None)`: a note of another kind.
pub fn departure(socket: &impl AsRawFd, control: &mut [u8]) -> nix::Result<Option<(u32, i64)>> {
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut [], Some(control), flags)?;
    let (mut number, mut time_ns) = (None, None);
    for item in message.cmsgs().into_iter().flatten() {
        match item {
            ControlMessageOwned::ScmTimestampsns(at) => time_ns = Some(in_ns(&at.system)),
            ControlMessageOwned::Ipv4RecvErr(note, _) | ControlMessageOwned::Ipv6RecvErr(note, _) => {
                number = Some(note.ee_data);
            }
            _ => {}
        }
    }
    Ok(number.zip(time_ns))
}

/// Near end: connects the socket (or not) and sends the preamble until it is answered. `tcp_passes`: whether a connection of TCP has come to
/// the same port.
pub fn greet(
    socket: OwnedFd,
    (to, tcp_passes): (&Address, bool),
    connected: bool,
    token: &Token,
    flow: u32,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let failed = |error: nix::Error| EndError::System {
        what: format!("cannot reach the far end's datagram socket at {to}"),
        source: error.into(),
    };
    let peer = aim(&socket, to, connected).map_err(failed)?;
    let link = Link { peer, ..Link::of_socket(flow, socket) };
    let socket = &*link.receive;
    let hello = preamble(token, flow);
    let send = || match send_to(socket.as_raw_fd(), &hello, peer, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
        // A refusal may answer an earlier preamble, sent before the far end was there.
        Ok(_) | Err(nix::Error::EAGAIN | nix::Error::ECONNREFUSED | nix::Error::ENOBUFS) => Ok(()),
        Err(error) => Err(failed(error)),
    };
    let is_answered = || {
        let mut answer = [0; PREAMBLE_BYTES];
        match receive_from(&link, &mut answer, MsgFlags::MSG_DONTWAIT) {
            Ok(n) => Ok(flow_of(&answer[..n], token) == Some(flow)),
            Err(nix::Error::EAGAIN | nix::Error::ECONNREFUSED | nix::Error::EINTR) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    };
    let hint = if tcp_passes {
        format!("no answer from {to}, though TCP passes there: a firewall may drop UDP; open that port for UDP, too")
    } else {
        format!("no answer from {to}: is a firewall in between?")
    };
    repeat_until_answered(socket, flow, deadline, &hint, send, is_answered)?;
    look_up(socket)?;
    Ok(link)
}

/// Near end: calls `send` at intervals until the socket has received the answer.
pub fn repeat_until_answered(
    socket: &OwnedFd,
    flow: u32,
    deadline: &Deadline<'_>,
    hint: &str,
    send: impl Fn() -> Result<(), EndError>,
    is_answered: impl Fn() -> Result<bool, EndError>,
) -> Result<(), EndError> {
    loop {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.missed(flow as usize, flow + 1, hint));
        }
        send()?;
        if wait(socket, PollFlags::POLLIN, GREETING_PAUSE.min(left))? && is_answered()? {
            return Ok(());
        }
    }
}

/// Far end: receives until `receive` returns the near end's address.
pub fn await_preamble<T>(
    socket: &OwnedFd,
    flow: u32,
    deadline: &Deadline<'_>,
    hint: &str,
    receive: impl Fn() -> Option<T>,
) -> Result<T, EndError> {
    set_blocking(socket, false)?;
    // Asked first: a stranger who never pauses must not keep this end from its deadline.
    while !deadline.left().is_zero() {
        if wait(socket, PollFlags::POLLIN, deadline.slice())?
            && let Some(peer) = receive()
        {
            return Ok(peer);
        }
    }
    Err(deadline.missed(flow as usize, flow + 1, hint))
}

/// Far end: waits for the near end's preamble on a flow's socket, connects to it (or not) and answers. `named`:
/// the near end's address where the kernel does not tell it, as with Unix sockets.
pub fn admit(
    socket: &Arc<OwnedFd>,
    named: impl Fn() -> Option<Address>,
    token: &Token,
    connected: bool,
    flow: u32,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let hint = "the peer's datagrams did not arrive; is the data port open in the firewall?";
    let peer = await_preamble(socket, flow, deadline, hint, || {
        let mut hello = [0; PREAMBLE_BYTES];
        let (n, from) = sys::receive_from(&**socket, &mut hello, 0).ok()?;
        if flow_of(&hello[..n], token) != Some(flow) {
            return None;
        }
        from.map(Address::Ip).or_else(&named)
    })?;
    let unconnected =
        aim(socket, &peer, connected).map_err(EndError::system(format!("cannot answer the near end at {peer}")))?;
    set_blocking(socket, true)?;
    answered(socket.clone(), unconnected, token, flow)
}

/// Far end: answers the near end's preamble. `peer`: its address, where each call names it.
pub fn answered(socket: Arc<OwnedFd>, peer: Option<SocketAddr>, token: &Token, flow: u32) -> Result<Link, EndError> {
    for _ in 0..ANSWERS {
        // An answer that cannot be sent counts as lost: there are others.
        let _ = send_to(socket.as_raw_fd(), &preamble(token, flow), peer, MsgFlags::MSG_NOSIGNAL);
    }
    look_up(&socket)?;
    Ok(Link { peer, ..Link::new(flow, socket.clone(), socket) })
}
