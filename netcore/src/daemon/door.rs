//! Connections whose clients have proven nothing yet. Their number is bounded, and a new one takes the place of the oldest:
//! silent strangers cannot keep clients out.

use std::{
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Bounds on the connections that have not finished their greeting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) places: usize,
    /// Of one address.
    pub(super) of_an_address: usize,
}

impl Bounds {
    /// For Plumbline's own clients, which have one connection each.
    pub(super) const OWN: Self = Self { places: 64, of_an_address: 16 };
    /// For clients of other programs: one of iperf3 opens 256 data connections at the port of its control connection.
    pub(super) const GUESTS: Self = Self { places: 1024, of_an_address: 512 };

    /// Limit of the threads for them. A thread whose connection was closed here ends as soon as it runs; until then the next
    /// connections wait in the kernel's queue.
    pub(super) const fn threads(self) -> usize {
        2 * self.places
    }
}

#[derive(Debug)]
pub(super) struct Door {
    bounds: Bounds,
    waiting: Mutex<Waiting>,
    /// A place was given up.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Places that were given and not yet dropped.
    threads: usize,
    /// In the order of their arrival.
    guests: Vec<Guest>,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    address: IpAddr,
    connection: TcpStream,
}

/// A place at the door; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place<'d> {
    door: &'d Door,
    number: u64,
}

impl Place<'_> {
    /// The connection's number in the order of arrival.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Door {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, waiting: Mutex::default(), left: Condvar::default() }
    }

    /// Takes a place for a connection. Waits for a thread to end while there are too many ([`Bounds::threads`]). Without a free place the
    /// oldest connection of the same address is closed, or else the oldest of the address with the most; its address is
    /// returned.
    pub(super) fn enter(&self, stream: &TcpStream, address: IpAddr) -> std::io::Result<(Place<'_>, Option<IpAddr>)> {
        let connection = stream.try_clone()?;
        let threads = self.bounds.threads();
        let is_full = |waiting: &mut Waiting| waiting.threads >= threads;
        let mut waiting = self.left.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        let crowded = waiting.crowded(self.bounds, address);
        let evicted = crowded.and_then(|crowded| waiting.evict(crowded)).map(|guest| {
            // Its thread notices that at once. A connection that is closed already needs no end.
            let _ = guest.connection.shutdown(Shutdown::Both);
            guest.address
        });
        let number = waiting.next;
        waiting.next += 1;
        waiting.threads += 1;
        waiting.guests.push(Guest { number, address, connection });
        Ok((Place { door: self, number }, evicted))
    }

    /// Connections that have a place.
    pub(super) fn occupied(&self) -> usize {
        self.lock().guests.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn of(&self, address: IpAddr) -> usize {
        self.guests.iter().filter(|guest| guest.address == address).count()
    }

    /// The address that must give up a place before `address` can have one.
    fn crowded(&self, bounds: Bounds, address: IpAddr) -> Option<IpAddr> {
        if self.of(address) >= bounds.of_an_address {
            return Some(address);
        }
        // Of equals the last one is the maximum: in this order, the address of the oldest connection.
        let most = || self.guests.iter().rev().map(|guest| guest.address).max_by_key(|address| self.of(*address));
        if self.guests.len() >= bounds.places { most() } else { None }
    }

    fn evict(&mut self, address: IpAddr) -> Option<Guest> {
        let oldest = self.guests.iter().position(|guest| guest.address == address)?;
        Some(self.guests.remove(oldest))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.door.lock();
        waiting.guests.retain(|guest| guest.number != self.number);
        waiting.threads -= 1;
        self.door.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, time::Duration};

    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn the_oldest_of_the_most_crowded_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Door::new(Bounds::OWN);
        let mut kept = Vec::new();
        let mut enter = |last: u8| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            let (place, evicted) = door.enter(&far, address(last)).unwrap();
            kept.push((near, far, Some(place)));
            (kept.len() - 1, evicted)
        };
        let (first, none) = enter(1);
        assert_eq!(none, None);
        for _ in 1..Bounds::OWN.of_an_address {
            assert_eq!(enter(1).1, None);
        }
        assert_eq!(enter(1).1, Some(address(1)), "an address has its own bound");
        for last in 2..=49 {
            assert_eq!(enter(last).1, None);
        }
        assert_eq!(enter(50).1, Some(address(1)), "who has most gives up a place");
        assert_eq!(door.lock().guests.len(), Bounds::OWN.places);
        let near = &mut kept[first].0;
        near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "the oldest is closed");
        for (_, _, place) in &mut kept {
            drop(place.take());
        }
        assert!(door.lock().guests.is_empty());
    }

    /// Strangers with an address each would otherwise keep their places, and clients would lose theirs to the next one.
    #[test]
    fn of_addresses_with_as_many_the_oldest_connection_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let door = Door::new(Bounds::OWN);
        let strangers: Vec<_> = (0..64).map(|last| door.enter(&stream, address(last)).unwrap()).collect();
        assert!(strangers.iter().all(|(_, evicted)| evicted.is_none()));
        let clients = [0, 1, 2].map(|last| door.enter(&stream, address(100 + last)).unwrap());
        assert_eq!(clients.map(|(_place, evicted)| evicted), [0, 1, 2].map(|last| Some(address(last))));
    }

    #[test]
    fn a_connection_waits_for_a_thread_to_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Door::new(Bounds::OWN);
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let enter = || door.enter(&stream, address(1)).unwrap().0;
        let mut places: Vec<Place<'_>> = (0..Bounds::OWN.threads()).map(|_| enter()).collect();
        std::thread::scope(|scope| {
            let next = scope.spawn(enter);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!next.is_finished() && door.lock().threads == Bounds::OWN.threads());
            places.pop();
            places.push(next.join().unwrap());
        });
        assert_eq!(door.lock().threads, Bounds::OWN.threads());
        drop(places);
        assert_eq!(door.lock().threads, 0);
    }
}
