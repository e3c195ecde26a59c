//! The near end of relayed control connections: a port of this process whose connections travel on a life line.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use super::contract::{LONGEST_DATA, Message};

/// Accepts connections on loopback and passes them on. Others on this machine may connect, too: the daemon requires the key
/// of each.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    streams: Mutex<BTreeMap<u32, TcpStream>>,
    closed: AtomicBool,
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<u32, TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    pub fn start(orders: Sender<Message>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let all = Arc::clone(&shared);
        thread::Builder::new().name("relay".into()).spawn(move || {
            for (stream, connection) in (0..).zip(listener.incoming()) {
                if all.closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                // A connection that cannot be served is closed by its drop.
                let _ = accept(stream, connection, &all, &orders);
            }
        })?;
        Ok(Self { address, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes a message of the far end.
    pub fn deliver(&self, message: Message) {
        let mut streams = self.shared.streams();
        match message {
            Message::Data { stream, bytes } => {
                let written = streams.get_mut(&stream).map(|connection| connection.write_all(&bytes));
                if matches!(written, Some(Err(_))) {
                    streams.remove(&stream);
                }
            }
            Message::Close { stream } => {
                if let Some(connection) = streams.remove(&stream) {
                    let _ = connection.shutdown(Shutdown::Both);
                }
            }
            Message::Heartbeat | Message::AllowConnect(_) => {}
        }
    }

    /// Closes all connections and accepts no more.
    pub fn close(&self) {
        if self.shared.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        for connection in std::mem::take(&mut *self.shared.streams()).into_values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(stream: u32, connection: TcpStream, shared: &Arc<Shared>, orders: &Sender<Message>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    connection.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = connection.try_clone()?;
    shared.streams().insert(stream, connection);
    let (orders, all) = (orders.clone(), Arc::clone(shared));
    thread::Builder::new().name("relay".into()).spawn(move || {
        let mut bytes = vec![0; LONGEST_DATA];
        while let Ok(length @ 1..) = reader.read(&mut bytes) {
            if orders.send(Message::Data { stream, bytes: bytes[..length].to_vec() }).is_err() {
                break;
            }
        }
        if all.streams().remove(&stream).is_some() {
            let _ = orders.send(Message::Close { stream });
        }
    })?;
    Ok(())
}
