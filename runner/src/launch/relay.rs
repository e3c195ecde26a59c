//! Relayed control connections: socket pairs of this process whose bytes travel on a life line. No port leads to them.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    thread,
    time::Duration,
};

use super::contract::{LONGEST_DATA, Message};

#[derive(Debug)]
pub struct Relay(Mutex<State>);

#[derive(Debug)]
struct State {
    /// `None`: closed.
    orders: Option<SyncSender<Message>>,
    streams: BTreeMap<u32, Arc<UnixStream>>,
    next: u32,
}

impl Relay {
    pub fn new(orders: SyncSender<Message>) -> Self {
        Self(Mutex::new(State { orders: Some(orders), streams: BTreeMap::new(), next: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection to the daemon.
    pub fn dial(self: &Arc<Self>) -> io::Result<UnixStream> {
        let (theirs, ours) = UnixStream::pair()?;
        ours.set_write_timeout(Some(Duration::from_secs(10)))?;
        let ours = Arc::new(ours);
        let mut state = self.state();
        let orders = state.orders.clone().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        let (relay, stream, reader) = (Arc::clone(self), state.next, Arc::clone(&ours));
        thread::Builder::new().name("relay".into()).spawn(move || {
            let mut bytes = vec![0; LONGEST_DATA];
            while let Ok(length @ 1..) = (&*reader).read(&mut bytes) {
                if orders.send(Message::Data { stream, bytes: bytes[..length].to_vec() }).is_err() {
                    break;
                }
            }
            if relay.state().streams.remove(&stream).is_some() {
                let _ = orders.send(Message::Close { stream });
            }
        })?;
        state.streams.insert(stream, ours);
        state.next += 1;
        Ok(theirs)
    }

    /// Takes a message of the far end.
    pub fn deliver(&self, message: Message) {
        match message {
            Message::Data { stream, bytes } => {
                let connection = self.state().streams.get(&stream).cloned();
                // Written without the lock: a session that reads nothing keeps only this launcher waiting.
                if connection.is_some_and(|connection| (&*connection).write_all(&bytes).is_err()) {
                    self.end(stream);
                }
            }
            Message::Close { stream } => self.end(stream),
            Message::Heartbeat | Message::AllowConnect(_) => {}
        }
    }

    fn end(&self, stream: u32) {
        if let Some(connection) = self.state().streams.remove(&stream) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Closes all connections and opens no more.
    pub fn close(&self) {
        let mut state = self.state();
        state.orders = None;
        for connection in std::mem::take(&mut state.streams).into_values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}
