//! The sessions of a daemon, by whose cookies data connections find theirs: they come to the same port.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::super::cookie::Cookie;
use crate::{control::event::Event, transport::Deadline};

/// All sessions of a daemon with clients of iperf3.
#[derive(Debug, Default)]
pub struct Sessions {
    open: Mutex<Vec<Arc<Entry>>>,
    /// Addresses between which a session opens streams of datagrams. A hello says no cookie, so that sessions of one client
    /// take turns.
    greeting: Mutex<Vec<(SocketAddr, IpAddr)>>,
    greeted: Condvar,
}

#[derive(Debug)]
struct Entry {
    cookie: Cookie,
    streams: Mutex<Streams>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call, so a panic elsewhere does not spoil the state.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// Gives a connection to the session of its cookie, or begins one.
    pub fn offer(&self, cookie: Cookie, number: u64, stream: TcpStream) -> io::Result<Offer<'_>> {
        let news = Event::new()?;
        let mut open = lock(&self.open);
        // All are compared, so that the time taken says nothing about them.
        let found =
            open.iter().fold(None, |found, entry| if entry.cookie == cookie { Some(entry) } else { found }).cloned();
        if let Some(entry) = found {
            drop(open);
            let mut streams = lock(&entry.streams);
            if streams.wanted == 0 {
                return Ok(Offer::Surplus(stream));
            }
            streams.wanted -= 1;
            streams.arrived.push((number, stream));
            entry.news.set();
            return Ok(Offer::Taken);
        }
        let entry = Arc::new(Entry { cookie, streams: Mutex::default(), news });
        open.push(entry.clone());
        Ok(Offer::New(stream, Session { sessions: self, entry }))
    }

    /// Waits until no other session opens streams of datagrams between the two addresses; `None`: not in time.
    pub fn greet(&self, local: SocketAddr, peer: IpAddr, deadline: &Deadline<'_>) -> Option<Greeting<'_>> {
        let mut greeting = lock(&self.greeting);
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
        lock(&self.open).len()
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
        lock(&self.entry.streams).wanted = streams;
    }

    /// Takes the connections, in the order of their arrival, once all are there.
    pub fn take(&self, streams: usize) -> Option<Vec<TcpStream>> {
        self.entry.news.clear();
        let mut waiting = lock(&self.entry.streams);
        if waiting.arrived.len() < streams {
            return None;
        }
        // Each was read by a thread of its own.
        waiting.arrived.sort_by_key(|(number, _)| *number);
        Some(waiting.arrived.drain(..).map(|(_, stream)| stream).collect())
    }

    pub fn arrived(&self) -> usize {
        lock(&self.entry.streams).arrived.len()
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
        lock(&self.sessions.open).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
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
        lock(&self.sessions.greeting).retain(|addresses| *addresses != self.addresses);
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
