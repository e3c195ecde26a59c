//! The data sockets of a client's test, and its load: when it is over, as far as only this end can tell.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{errno::Errno, sys::socket::MsgFlags};

use super::{
    answer::Opened,
    asked::{Asked, Form, Length, Refused},
    messages::Test,
    wire::Control,
};
use crate::{
    control::{
        part::{Load, RunningPart},
        stop::{StopFlag, Urgency, wait},
    },
    end::End,
    error::EndError,
    measure::clock::monotonic_ns,
    report::{Ending, SideReport},
    spec::{Direction, Stop, TestSpec},
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
        if !spec.family.fits(address.ip()) {
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

/// Some clients end without a word: those of connect tests, and of most classic ones. So does this end, when the client's time
/// and this more has passed …
const AFTER: Duration = Duration::from_secs(1);

/// … and nothing has come for this long.
const QUIET: Duration = Duration::from_millis(500);

/// After its own end a sender that is blocked, or a connection that stays open, is given up.
const LEAVE: Duration = Duration::from_millis(50);

/// Interval of looking at the counters, where they tell of the end.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The way a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As the client meant it to.
    Whole,
    /// The client left.
    Gone,
    /// The client sent a message.
    Unexpected,
    Stopping,
}

/// A load and what its end is told by.
pub struct Watched {
    load: Load,
    began: Instant,
    /// The client's own time, where it has one.
    length: Option<Duration>,
    /// Instant after which the flow is given up.
    latest: Option<Duration>,
    /// Operations after which it is over.
    count: Option<u64>,
    /// Whether it is over when nothing comes after the client's time, or its count.
    falls_silent: bool,
    /// Whether each operation has a connection of its own.
    connects: bool,
    /// The connection that this end only sends on: readable when the client wants no more.
    sending: Option<Arc<OwnedFd>>,
}

impl Watched {
    /// Starts the end. `data`: its socket.
    pub fn start(end: End, asked: &Asked, data: Arc<OwnedFd>) -> Result<Self, EndError> {
        let spec = &asked.spec;
        let connects = spec.pattern.is_connecting();
        let length = match asked.length {
            Length::Seconds(seconds) => Some(Duration::from_secs(seconds.into())),
            Length::Count(_) | Length::Open => None,
        };
        let latest = match spec.phases.stop {
            Stop::AfterNs(ns) => Some(Duration::from_nanos(ns) + LEAVE),
            _ => None,
        };
        // Streams end with their data. A classic client ends its datagrams with a shorter one, and its requests by asking for
        // the results.
        let streams = matches!(asked.form, Form::Omni | Form::Classic(Test::TcpStream | Test::TcpMaerts));
        let falls_silent = connects || !streams;
        let count = match asked.length {
            Length::Count(count) if falls_silent => Some(count.into()),
            _ => None,
        };
        let sending = (spec.direction == Direction::Reverse).then_some(data);
        let load = Load::start(end, monotonic_ns(), false)?;
        Ok(Self { load, began: Instant::now(), length, latest, count, falls_silent, connects, sending })
    }

    /// Waits for the end of the load. An end that is not the client's own ends it at once.
    pub fn watch(&mut self, control: &Control, stop: &StopFlag) -> io::Result<Ended> {
        let mut last = (0, Instant::now());
        let (mut released, mut stopped) = (false, false);
        loop {
            self.load.clear_news();
            if self.load.is_finished() {
                return Ok(Ended::Whole);
            }
            let now = Instant::now();
            if self.latest.is_some_and(|latest| now >= self.began + latest) && !released {
                released = true;
                self.load.release();
            }
            let done = self.done();
            if done != last.0 {
                last = (done, now);
            }
            let quiet = now >= last.1 + QUIET;
            let after = self.length.is_some_and(|length| now >= self.began + length + AFTER);
            let counted = self.count.is_some_and(|count| done >= count);
            // Nobody waits for the last connection: it is closed already. A last answer may be under way.
            if self.falls_silent && !stopped && ((after && quiet) || (counted && (quiet || self.connects))) {
                stopped = true;
                self.load.stop_at(monotonic_ns());
                released = !self.connects;
                if released {
                    self.load.release();
                }
            }
            let mut wake = (!released).then_some(self.latest).flatten().map(|latest| self.began + latest);
            if self.falls_silent {
                wake = Some(wake.unwrap_or(now + LOOK_UP).min(now + LOOK_UP));
            }
            let sending = self.sending.as_ref().filter(|_| !stopped).map(|data| data.as_fd());
            let urgent = stop.beyond(Urgency::Orderly);
            let ready = wait([Some(self.load.as_fd()), Some(control.as_fd()), urgent, sending], wake)?;
            if ready[3] {
                // A client that is interrupted reads no more, and waits for the results.
                (stopped, released) = (true, true);
                self.load.stop_at(monotonic_ns());
                self.load.release();
            }
            if ready[2] {
                return Ok(Ended::Stopping);
            }
            if ready[1] && !self.load.is_finished() {
                // The end of the data and that of the control connection may come together.
                std::thread::sleep(Duration::from_millis(1));
                return Ok(match is_open(control.stream()) {
                    _ if self.load.is_finished() => Ended::Whole,
                    true => Ended::Unexpected,
                    false => Ended::Gone,
                });
            }
        }
    }

    /// Connections, or datagrams, so far.
    fn done(&self) -> u64 {
        self.load.counts().iter().map(|counts| counts.transactions + counts.messages_received).sum()
    }

    /// The report of the load; one that has not ended is ended now.
    pub fn finish(self, ended: Ended) -> SideReport {
        if ended != Ended::Whole {
            self.load.abort();
        }
        let long_enough = self.length.is_none_or(|length| self.began.elapsed() >= length);
        let mut report = self.load.finish();
        // The client decides on the end, and may leave replies unread: that breaks the connection, and nothing else.
        let broke_at_the_end = long_enough && matches!(report.ending, Ending::Failed(_));
        if ended == Ended::Whole && (broke_at_the_end || report.ending == Ending::Stopped) {
            report.ending = Ending::Complete;
        }
        report
    }
}

/// Whether bytes wait on a connection, rather than its end.
fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.peek(&mut [0]), Ok(1..))
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
