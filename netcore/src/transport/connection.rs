//! Connections: listen, connect, accept, and the proof that a connection belongs to the session.
//!
//! A data connection begins with a preamble: eight bytes that name the protocol, the session's token and the flow's
//! number. The far end reads the preambles of all candidates at the same time, so that a silent one does not delay the
//! others, and drops candidates without the token.

use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{Backlog, MsgFlags, listen, recv, send},
};

use super::{Deadline, Protocol, address::Address, options};
use crate::{
    error::EndError,
    spec::{EndSpec, Side, SocketOptions, Transport, quantity::Seconds},
    sys::{self, opt},
};

/// Connections that may wait to be accepted: connect tests connect as fast as they can.
pub const BACKLOG: u32 = 4096;

/// The secret by which data connections prove that they belong to the session.
pub type Token = [u8; 16];

/// The first bytes of a data connection.
pub const MAGIC: &[u8; 8] = b"plumbln1";

/// Length of a preamble. It is not payload, but the kernel counts it as data.
pub const PREAMBLE_BYTES: usize = 8 + 16 + 4;

/// Limit of candidates whose preamble is incomplete; beyond it the oldest is dropped.
pub const CANDIDATES: usize = 1024;

/// The bytes that a connection sends before its payload.
pub fn preamble(token: &Token, flow: u32) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(token);
    bytes[24..].copy_from_slice(&flow.to_le_bytes());
    bytes
}

/// The flow's number, if the preamble belongs to this session.
pub fn flow_of(bytes: &[u8], token: &Token) -> Option<u32> {
    let bytes: &[u8; PREAMBLE_BYTES] = bytes.try_into().ok()?;
    // The token is compared in constant time, so that a stranger learns nothing from the time taken.
    let differences = bytes[8..24].iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    (bytes[..8] == *MAGIC && differences == 0).then(|| u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]))
}

/// Whether a datagram of `length` bytes that begins with `start` is a preamble, where messages have `message_bytes`. No number
/// and no time of a message looks like a preamble's beginning.
#[inline]
pub fn is_greeting(start: &[u8], length: usize, message_bytes: u64) -> bool {
    length == PREAMBLE_BYTES && (message_bytes != PREAMBLE_BYTES as u64 || start.starts_with(MAGIC))
}

/// Switches a descriptor between blocking and non-blocking.
pub fn set_blocking(fd: &OwnedFd, blocking: bool) -> Result<(), EndError> {
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(EndError::system("cannot read a socket's mode"))?;
    let mut flags = OFlag::from_bits_retain(flags);
    flags.set(OFlag::O_NONBLOCK, !blocking);
    fcntl(fd, FcntlArg::F_SETFL(flags)).map_err(EndError::system("cannot set a socket's mode")).map(|_| ())
}

/// A listening socket.
pub fn listener(protocol: Protocol, address: &Address, end: &EndSpec, backlog: u32) -> Result<OwnedFd, EndError> {
    let socket = bound(protocol, address, end)?;
    start_listening(&socket, backlog, address)?;
    Ok(socket)
}

/// Begins to listen on a bound socket. `on`: its address, for the error.
pub fn start_listening(socket: &OwnedFd, backlog: u32, on: &dyn fmt::Display) -> Result<(), EndError> {
    let backlog = Backlog::new(i32::try_from(backlog).unwrap_or(i32::MAX).min(4096)).unwrap_or(Backlog::MAXCONN);
    listen(socket, backlog).map_err(EndError::system(format!("cannot listen on {on}")))
}

/// A bound socket that will listen. Its options are set before, since connections inherit them.
pub fn bound(protocol: Protocol, address: &Address, end: &EndSpec) -> Result<OwnedFd, EndError> {
    let socket = protocol.socket(address.family())?;
    if let Address::Ip(ip) = address {
        opt::set_int(&socket, opt::SO_REUSEADDR, 1).map_err(EndError::system("cannot set SO_REUSEADDR"))?;
        if ip.ip().is_unspecified() && ip.is_ipv6() {
            opt::set_int(&socket, opt::IPV6_V6ONLY, 0)
                .map_err(EndError::system("cannot listen on both IP versions"))?;
        }
    }
    let v6 = address.family() == libc::AF_INET6;
    options::apply(&socket, &end.socket, protocol.transport, v6)?;
    if protocol.transport.is_tcp() {
        let set = |name: &str, option, value| {
            opt::set_int(&socket, option, value)
                .map_err(EndError::system(format!("the kernel refuses {name} = {value}")))
        };
        if end.socket.fastopen == Some(true) {
            options::fast_open_is_on(Side::Far)?;
            set("fastopen", opt::TCP_FASTOPEN, 1024)?;
        }
        if let Some(Seconds(seconds)) = end.socket.defer_accept {
            set("defer_accept", opt::TCP_DEFER_ACCEPT, i32::try_from(seconds).unwrap_or(i32::MAX))?;
        }
        if end.socket.reuseport.is_some() {
            options::share_port(&socket)?;
        }
    }
    address.bind(&socket)?;
    Ok(socket)
}

/// A new connection as by [`connect`] that has sent its proof: token and number.
pub fn connect_and_prove(
    protocol: Protocol,
    from: Option<&Address>,
    to: &Address,
    socket_options: &SocketOptions,
    (token, number): (&Token, u32),
    deadline: &Deadline<'_>,
) -> Result<OwnedFd, EndError> {
    let socket = protocol.socket(to.family())?;
    if protocol.transport == Transport::Tcp {
        options::with_first_bytes(&socket);
    }
    let socket = connect_socket(socket, protocol, from, to, socket_options, deadline)?;
    prove(&socket, token, number)?;
    Ok(socket)
}

/// A new socket with its options, bound where the test asks for it, connected in time.
pub fn connect(
    protocol: Protocol,
    from: Option<&Address>,
    to: &Address,
    socket_options: &SocketOptions,
    deadline: &Deadline<'_>,
) -> Result<OwnedFd, EndError> {
    connect_socket(protocol.socket(to.family())?, protocol, from, to, socket_options, deadline)
}

fn connect_socket(
    socket: OwnedFd,
    protocol: Protocol,
    from: Option<&Address>,
    to: &Address,
    socket_options: &SocketOptions,
    deadline: &Deadline<'_>,
) -> Result<OwnedFd, EndError> {
    options::apply(&socket, socket_options, protocol.transport, to.family() == libc::AF_INET6)?;
    if socket_options.fastopen == Some(true) && protocol.transport.is_tcp() {
        options::fast_open(&socket)?;
    }
    if let Some(from) = from {
        opt::set_int(&socket, opt::SO_REUSEADDR, 1).map_err(EndError::system("cannot set SO_REUSEADDR"))?;
        from.bind(&socket)?;
    }
    set_blocking(&socket, false)?;
    let failed = |source: io::Error| {
        let hint = match source.raw_os_error() {
            Some(libc::ETIMEDOUT | libc::ENODEV | libc::ENETUNREACH) if matches!(to, Address::Vsock(..)) => {
                " (no transport leads there; within one machine: modprobe vsock_loopback)"
            }
            Some(libc::ECONNREFUSED) => " (is the data port open in the firewall between the hosts?)",
            Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => " (the local port is taken or in TIME_WAIT)",
            _ => "",
        };
        EndError::System { what: format!("cannot open a data connection to {to}{hint}"), source }
    };
    match to.connect(&socket) {
        Ok(()) => {}
        Err(nix::Error::EINPROGRESS | nix::Error::EAGAIN) => {
            while !wait(&socket, PollFlags::POLLOUT, deadline.slice())? {
                if !deadline.left().is_zero() {
                    continue;
                }
                return Err(deadline.missed(0, 1, &format!("no answer from {to}: is a firewall between the hosts?")));
            }
            match opt::get_int(&socket, opt::SO_ERROR).map_err(failed)? {
                0 => {}
                error => return Err(failed(io::Error::from_raw_os_error(error))),
            }
        }
        Err(error) => return Err(failed(error.into())),
    }
    set_blocking(&socket, true)?;
    Ok(socket)
}

/// Sends the proof that a new connection belongs to the session.
fn prove(socket: &OwnedFd, token: &Token, flow: u32) -> Result<(), EndError> {
    let bytes = preamble(token, flow);
    let mut sent = 0;
    while sent < bytes.len() {
        // A new connection's buffer is empty, so this cannot block.
        sent += send(socket.as_raw_fd(), &bytes[sent..], MsgFlags::MSG_NOSIGNAL)
            .map_err(EndError::system("cannot begin a data connection"))?;
    }
    Ok(())
}

/// Waits for an event; `false`: it did not come in time, or the caller must look at the clock and wait again.
pub fn wait(fd: &impl AsFd, events: PollFlags, at_most: Duration) -> Result<bool, EndError> {
    sys::wait_for(fd, events, at_most).map_err(EndError::system("cannot wait for a data connection"))
}

/// An unproven connection.
struct Candidate {
    socket: OwnedFd,
    bytes: [u8; PREAMBLE_BYTES],
    got: usize,
}

impl Candidate {
    /// Reads on; `Ok(true)`: the preamble is complete; an error: it never will be.
    fn read(&mut self) -> Result<bool, ()> {
        match recv(self.socket.as_raw_fd(), &mut self.bytes[self.got..], MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(()),
            Ok(n) => {
                self.got += n;
                Ok(self.got == PREAMBLE_BYTES)
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(false),
            Err(_) => Err(()),
        }
    }
}

/// Accepts a connection for each flow in time. Drops a connection without the token, or for a flow that has one already.
pub fn accept_flows(
    listener: &OwnedFd,
    token: &Token,
    flows: u32,
    deadline: &Deadline<'_>,
) -> Result<Vec<OwnedFd>, EndError> {
    set_blocking(listener, false)?;
    let mut found: Vec<Option<OwnedFd>> = (0..flows).map(|_| None).collect();
    let mut candidates: VecDeque<Candidate> = VecDeque::new();
    let mut missing = flows;
    // The error that made candidates go, which may have been the peer's.
    let mut crowded = None;
    while missing > 0 {
        let left = deadline.left();
        if left.is_zero() {
            if let Some(source) = crowded {
                return Err(cannot_accept(source));
            }
            let hint = "the peer's data connections did not arrive; is the data port open in the firewall?";
            return Err(deadline.missed((flows - missing) as usize, flows, hint));
        }
        {
            let mut fds: Vec<PollFd<'_>> =
                candidates.iter().map(|candidate| PollFd::new(candidate.socket.as_fd(), PollFlags::POLLIN)).collect();
            fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::try_from(deadline.slice()).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(EndError::system("cannot wait for data connections")(error)),
            }
        }
        match sys::accept(listener) {
            Ok((socket, _)) => {
                if candidates.len() == CANDIDATES {
                    candidates.pop_front();
                }
                candidates.push_back(Candidate { socket, bytes: [0; PREAMBLE_BYTES], got: 0 });
            }
            Err(error) if is_passing(&error) => {}
            // Out of descriptors: drop the oldest unproven connection.
            Err(error) if lacks_files(&error) && candidates.pop_front().is_some() => crowded = Some(error),
            Err(error) => return Err(cannot_accept(error)),
        }
        for _ in 0..candidates.len() {
            let Some(mut candidate) = candidates.pop_front() else { break };
            match candidate.read() {
                Ok(false) => candidates.push_back(candidate),
                Ok(true) => {
                    let flow = flow_of(&candidate.bytes, token).map_or(usize::MAX, |flow| flow as usize);
                    if let Some(slot @ None) = found.get_mut(flow) {
                        *slot = Some(candidate.socket);
                        missing -= 1;
                    }
                }
                Err(()) => {}
            }
        }
    }
    Ok(found.into_iter().flatten().collect())
}

/// Whether an error of accept(2) only asks to try again, or concerns one connection that is gone.
pub fn is_passing(error: &io::Error) -> bool {
    let network =
        [libc::ENETDOWN, libc::EPROTO, libc::ENOPROTOOPT, libc::EHOSTDOWN, libc::EHOSTUNREACH, libc::ENETUNREACH];
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED))
        || error.raw_os_error().is_some_and(|number| network.contains(&number))
}

fn cannot_accept(source: io::Error) -> EndError {
    EndError::system("cannot accept data connections")(source)
}

fn lacks_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let token = [7; 16];
        let bytes = preamble(&token, 42);
        assert_eq!(flow_of(&bytes, &token), Some(42));
        assert_eq!(flow_of(&bytes, &[8; 16]), None);
        assert_eq!(flow_of(&bytes[1..], &token), None);
        let mut other = bytes;
        other[0] ^= 1;
        assert_eq!(flow_of(&other, &token), None);
    }
}
