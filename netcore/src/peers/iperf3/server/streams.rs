//! Opens the streams of a test at the server: accepted connections with the session's cookie, or sockets that were greeted.
//! Data connections come to the same port as control connections, and find their session by its cookie.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    poll::PollFlags,
    sys::socket::{MsgFlags, send},
};

use super::super::{
    control::Control,
    wire::{Cookie, HELLO_BYTES, REPLY, is_hello},
};
use crate::{
    control::stop::{self, Event},
    error::EndError,
    lock::Lock,
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
            let link = |(stream, flow): (TcpStream, u32)| -> Result<Link, EndError> {
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
        stop::wait([Some(session.as_fd()), Some(control.as_fd())], Some(until))
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
            let hint = format!("no hello came from {peer}, while TCP does: it was lost, or a firewall drops UDP");
            return Err(deadline.missed(flow as usize, flows, &hint).into());
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

/// All sessions of a daemon with clients of iperf3.
#[derive(Debug, Default)]
pub struct Sessions {
    open: Lock<Vec<Arc<Entry>>>,
    /// Addresses between which a session opens streams of datagrams. A hello says no cookie, so that sessions of one client
    /// take turns.
    greeting: Lock<Vec<(SocketAddr, IpAddr)>>,
    greeted: Condvar,
}

#[derive(Debug)]
struct Entry {
    cookie: Cookie,
    streams: Lock<Streams>,
    news: Event,
}

#[derive(Debug, Default)]
struct Streams {
    /// Connections that the session still waits for.
    wanted: usize,
    /// With their numbers in the order of arrival.
    arrived: Vec<(u64, TcpStream)>,
}

/// The outcome for a connection that began with a cookie.
#[derive(Debug)]
pub enum Offer<'s> {
    /// Its session has it.
    Taken,
    /// Its session wants no more connections.
    Surplus(TcpStream),
    /// No session has that cookie: it begins one.
    New(TcpStream, Session<'s>),
}

impl Sessions {
    /// Gives a connection to the session of its cookie, or begins one.
    pub fn offer(&self, cookie: Cookie, number: u64, stream: TcpStream) -> io::Result<Offer<'_>> {
        let news = Event::new()?;
        let mut open = self.open.lock();
        // All are compared, so that the time taken says nothing about them.
        let found =
            open.iter().fold(None, |found, entry| if entry.cookie == cookie { Some(entry) } else { found }).cloned();
        if let Some(entry) = found {
            drop(open);
            let mut streams = entry.streams.lock();
            if streams.wanted == 0 {
                return Ok(Offer::Surplus(stream));
            }
            streams.wanted -= 1;
            streams.arrived.push((number, stream));
            entry.news.set();
            return Ok(Offer::Taken);
        }
        let entry = Arc::new(Entry { cookie, streams: Lock::default(), news });
        open.push(entry.clone());
        Ok(Offer::New(stream, Session { sessions: self, entry }))
    }

    /// Waits until no other session opens streams of datagrams between the two addresses; `None`: not in time.
    pub fn greet(&self, local: SocketAddr, peer: IpAddr, deadline: &Deadline<'_>) -> Option<Greeting<'_>> {
        let mut greeting = self.greeting.lock();
        while greeting.contains(&(local, peer)) {
            if deadline.left().is_zero() {
                return None;
            }
            let slice = deadline.slice().max(Duration::from_millis(1));
            greeting = self.greeted.wait_timeout(greeting, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
        greeting.push((local, peer));
        Some(Greeting { sessions: self, addresses: (local, peer) })
    }

    #[cfg(any(test, fuzzing))]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// A session's entry; dropping it removes it.
#[derive(Debug)]
pub struct Session<'s> {
    sessions: &'s Sessions,
    entry: Arc<Entry>,
}

impl Session<'_> {
    /// Lets connections come from now on.
    pub fn want(&self, streams: usize) {
        self.entry.streams.lock().wanted = streams;
    }

    /// Takes the connections, in the order of their arrival, once all are there.
    pub fn take(&self, streams: usize) -> Option<Vec<TcpStream>> {
        self.entry.news.clear();
        let mut waiting = self.entry.streams.lock();
        if waiting.arrived.len() < streams {
            return None;
        }
        // Each was read by a thread of its own.
        waiting.arrived.sort_by_key(|(number, _)| *number);
        Some(waiting.arrived.drain(..).map(|(_, stream)| stream).collect())
    }

    pub fn arrived(&self) -> usize {
        self.entry.streams.lock().arrived.len()
    }
}

/// Readable when a connection has come.
impl AsFd for Session<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.entry.news.as_fd()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.sessions.open.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

/// A turn to open streams of datagrams; dropping it ends it.
#[derive(Debug)]
pub struct Greeting<'s> {
    sessions: &'s Sessions,
    addresses: (SocketAddr, IpAddr),
}

impl Drop for Greeting<'_> {
    fn drop(&mut self) {
        self.sessions.greeting.lock().retain(|addresses| *addresses != self.addresses);
        self.sessions.greeted.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn connections_find_their_session_and_keep_their_order() {
        let sessions = Sessions::default();
        let (one, other) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        let offer = |cookie: &Cookie, number| sessions.offer(cookie.clone(), number, stream()).unwrap();
        let Offer::New(_, session) = offer(&one, 1) else { panic!() };
        assert!(matches!(offer(&one, 2), Offer::Surplus(_)), "none is wanted yet");
        session.want(2);
        let late = stream();
        let port = late.local_addr().unwrap();
        assert!(matches!(sessions.offer(one.clone(), 9, late).unwrap(), Offer::Taken));
        assert!(session.take(2).is_none());
        assert!(matches!(offer(&one, 8), Offer::Taken));
        assert!(matches!(offer(&one, 10), Offer::Surplus(_)));
        assert_eq!(session.take(2).unwrap()[1].local_addr().unwrap(), port);
        let Offer::New(_, second) = offer(&other, 3) else { panic!() };
        assert_eq!(sessions.count(), 2);
        drop((session, second));
        assert_eq!(sessions.count(), 0);
        assert!(matches!(offer(&one, 4), Offer::New(..)));
    }

    #[test]
    fn sessions_of_one_client_greet_in_turn() {
        let sessions = Sessions::default();
        let local = "127.0.0.1:5201".parse().unwrap();
        let peers = ["192.0.2.1", "192.0.2.2"].map(|peer| peer.parse().unwrap());
        let soon = || Deadline::after(Duration::from_millis(30), &|| false);
        let first = sessions.greet(local, peers[0], &soon()).unwrap();
        let _other = sessions.greet(local, peers[1], &soon()).unwrap();
        assert!(sessions.greet(local, peers[0], &soon()).is_none());
        drop(first);
        assert!(sessions.greet(local, peers[0], &soon()).is_some());
    }
}
