//! Ends control connections from another thread: their daemon is known to be gone before the network says so.

use std::{
    collections::BTreeMap,
    io,
    net::Shutdown,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use socket2::Socket;

/// Cuts the control connections to a host. Clones cut the same ones.
#[derive(Clone, Debug, Default)]
pub struct Cutter(Arc<Mutex<Connections>>);

#[derive(Debug, Default)]
struct Connections {
    cut: bool,
    next: u64,
    open: BTreeMap<u64, Socket>,
}

impl Cutter {
    /// Ends all open connections, and every later one at once.
    pub fn cut(&self) {
        let mut connections = self.lock();
        connections.cut = true;
        for connection in connections.open.values() {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn add(&self, connection: &Socket) -> io::Result<Cuttable> {
        let connection = connection.try_clone()?;
        let mut connections = self.lock();
        if connections.cut {
            connection.shutdown(Shutdown::Both)?;
        }
        connections.next += 1;
        let number = connections.next;
        connections.open.insert(number, connection);
        Ok(Cuttable { cutter: self.clone(), number })
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that can be cut. Dropping this closes the cutter's handle on it, without which the peer would not see the
/// connection's end.
#[derive(Debug)]
pub(super) struct Cuttable {
    cutter: Cutter,
    number: u64,
}

impl Drop for Cuttable {
    fn drop(&mut self) {
        self.cutter.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn connections_are_cut_and_those_that_ended_are_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || Socket::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let cutter = Cutter::default();
        let (mut first, second) = (connect(), connect());
        let _first = cutter.add(&first).unwrap();
        drop(cutter.add(&second).unwrap());
        cutter.cut();
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        assert_eq!(cutter.lock().open.len(), 1);
        let mut late = connect();
        let _late = cutter.add(&late).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap(), 0);
        second.set_nonblocking(true).unwrap();
        assert_eq!((&second).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
