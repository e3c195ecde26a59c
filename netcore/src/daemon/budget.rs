//! Shares of a daemon: connections whose clients have proven nothing yet, sessions and memory. And the clients' loads over
//! time: a measurement beside another client's load is not alone on its machine.
//!
//! The number of unproven connections is bounded, and a new one takes the place of the oldest: silent strangers cannot keep
//! clients out.

use std::{
    collections::HashMap,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Condvar, PoisonError},
};

use crate::{
    control::message::{ErrorCode, Limits, ReplyError},
    lock::Lock,
    measure::clock::monotonic_ns,
};

#[derive(Debug, Default)]
pub(super) struct Budget {
    used: Lock<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Sessions by the client's address.
    sessions: HashMap<IpAddr, u32>,
    /// Memory of all tests, bytes.
    memory_bytes: u64,
    /// Flows of all tests.
    flows: u64,
}

/// The parts of a budget that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    pub(super) sessions: u32,
    pub(super) memory_bytes: u64,
    pub(super) flows: u64,
}

/// A session's place in the budget; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Slot<'b> {
    budget: &'b Budget,
    client: IpAddr,
}

/// Memory and flows of a test; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Charge<'b> {
    budget: &'b Budget,
    bytes: u64,
    flows: u32,
}

impl Budget {
    /// Takes a session for a client.
    pub(super) fn session(&self, limits: &Limits, client: IpAddr) -> Result<Slot<'_>, ReplyError> {
        let busy = |message| Err(ReplyError::new(ErrorCode::Busy, message));
        let mut used = self.used.lock();
        let all = used.sessions.values().sum::<u32>();
        if all >= limits.sessions {
            return busy(format!(
                "all {} sessions are in use: wait for one to end, or start the daemon with more (--max-sessions)",
                limits.sessions
            ));
        }
        let of_client = used.sessions.entry(client).or_default();
        if *of_client >= limits.sessions_per_client {
            return busy(format!(
                "{client} has all {} sessions that one address is granted here: wait for one to end, or start the daemon with \
                 more (--max-sessions-per-client)",
                limits.sessions_per_client
            ));
        }
        *of_client += 1;
        Ok(Slot { budget: self, client })
    }

    /// Takes memory for a test, bytes, and counts its flows, which are bounded by test ([`Limits::flows`]).
    pub(super) fn test(&self, limits: &Limits, bytes: u64, flows: u32) -> Result<Charge<'_>, ReplyError> {
        let mut used = self.used.lock();
        let all = used.memory_bytes.saturating_add(bytes);
        if all > limits.memory_bytes {
            return Err(ReplyError::new(
                ErrorCode::Busy,
                format!(
                    "the test takes {bytes} bytes of memory, and the tests of this daemon already have {} of {}: use smaller \
                     messages, fewer streams or longer intervals, wait for another test to end, or start the daemon with more \
                     (--max-memory)",
                    used.memory_bytes, limits.memory_bytes
                ),
            ));
        }
        used.memory_bytes = all;
        used.flows += u64::from(flows);
        Ok(Charge { budget: self, bytes, flows })
    }

    pub(super) fn in_use(&self) -> InUse {
        let used = self.used.lock();
        InUse { sessions: used.sessions.values().sum(), memory_bytes: used.memory_bytes, flows: used.flows }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        if let Some(sessions) = used.sessions.get_mut(&self.client) {
            *sessions -= 1;
            if *sessions == 0 {
                used.sessions.remove(&self.client);
            }
        }
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        used.memory_bytes -= self.bytes;
        used.flows -= u64::from(self.flows);
    }
}

/// Identity of a client process, as it names itself.
pub(super) type Client = u64;

/// Limit of the loads that are remembered one by one.
pub(super) const MOST_SPANS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Loads {
    known: Lock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    spans: Vec<Span>,
}

/// A load from its begin to its end, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Span {
    number: u64,
    /// `None`: loads of several clients.
    client: Option<Client>,
    begin_ns: u64,
    /// `None`: it goes on.
    end_ns: Option<u64>,
}

/// A load that goes on until this is dropped.
#[derive(Debug)]
pub(super) struct Running<'l> {
    loads: &'l Loads,
    number: u64,
    client: Client,
}

impl Loads {
    pub(super) fn begin(&self, client: Client, at_ns: u64) -> Running<'_> {
        let mut known = self.known.lock();
        let number = known.next;
        known.next += 1;
        known.spans.push(Span { number, client: Some(client), begin_ns: at_ns, end_ns: None });
        Running { loads: self, number, client }
    }

    /// Loads that go on.
    pub(super) fn running(&self) -> usize {
        self.known.lock().spans.iter().filter(|span| span.end_ns.is_none()).count()
    }
}

impl Running<'_> {
    /// For how long loads of other clients ran between two instants, nanoseconds.
    pub(super) fn beside_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let known = self.loads.known.lock();
        let others = known.spans.iter().filter(|span| span.client != Some(self.client));
        let mut parts: Vec<(u64, u64)> = others
            .map(|span| (span.begin_ns.max(from_ns), span.end_ns.unwrap_or(u64::MAX).min(to_ns)))
            .filter(|(begin, end)| begin < end)
            .collect();
        parts.sort_unstable();
        let (mut sum, mut reached) = (0, 0);
        for (begin, end) in parts {
            sum += end.saturating_sub(begin.max(reached));
            reached = reached.max(end);
        }
        sum
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut known = self.loads.known.lock();
        let now = monotonic_ns();
        for span in known.spans.iter_mut().filter(|span| span.number == self.number) {
            span.end_ns = Some(now);
        }
        // An ended load matters to those that began before its end.
        let oldest = known.spans.iter().filter(|span| span.end_ns.is_none()).map(|span| span.begin_ns).min();
        known.spans.retain(|span| span.end_ns.is_none_or(|end| oldest.is_some_and(|oldest| end > oldest)));
        if known.spans.len() > MOST_SPANS {
            known.join_nearest();
        }
    }
}

impl Known {
    /// Makes one of the two ended loads with the shortest pause between them; the pause then counts as load.
    fn join_nearest(&mut self) {
        self.spans.sort_by_key(|span| (span.end_ns.is_none(), span.begin_ns));
        let ended = self.spans.partition_point(|span| span.end_ns.is_some());
        let end = |span: &Span| span.end_ns.unwrap_or(u64::MAX);
        let pause = |i: &usize| self.spans[i + 1].begin_ns.saturating_sub(end(&self.spans[*i]));
        let Some(first) = (0..ended.saturating_sub(1)).min_by_key(pause) else { return };
        let gone = self.spans.remove(first + 1);
        let kept = &mut self.spans[first];
        kept.end_ns = kept.end_ns.max(gone.end_ns);
        kept.client = kept.client.filter(|client| gone.client == Some(*client));
    }
}

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
    pub(super) const OF_PROGRAMS: Self = Self { places: 1024, of_an_address: 512 };

    /// Limit of the threads for them. A thread whose connection was closed here ends as soon as it runs; until then the next
    /// connections wait in the kernel's queue.
    pub(super) const fn threads(self) -> usize {
        2 * self.places
    }
}

/// Connections whose clients have proven nothing yet.
#[derive(Debug)]
pub(super) struct Unproven {
    bounds: Bounds,
    waiting: Lock<Waiting>,
    /// A place was given up.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Places that were given and not yet dropped.
    threads: usize,
    /// In the order of their arrival.
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    address: IpAddr,
    stream: TcpStream,
}

/// A place of an unproven connection; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place<'d> {
    unproven: &'d Unproven,
    number: u64,
}

impl Place<'_> {
    /// The connection's number in the order of arrival.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Unproven {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, waiting: Lock::default(), left: Condvar::default() }
    }

    /// Takes a place for a connection. Waits for a thread to end while there are too many ([`Bounds::threads`]). Without a free
    /// place the oldest connection of the same address is closed, or else the oldest of the address with the most; its
    /// address is returned.
    pub(super) fn enter(&self, stream: &TcpStream, address: IpAddr) -> std::io::Result<(Place<'_>, Option<IpAddr>)> {
        let stream = stream.try_clone()?;
        let threads = self.bounds.threads();
        let is_full = |waiting: &mut Waiting| waiting.threads >= threads;
        let mut waiting = self.left.wait_while(self.waiting.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        let crowded = waiting.crowded(self.bounds, address);
        let evicted = crowded.and_then(|crowded| waiting.evict(crowded)).map(|connection| {
            // Its thread notices that at once. A connection that is closed already needs no end.
            let _ = connection.stream.shutdown(Shutdown::Both);
            connection.address
        });
        let number = waiting.next;
        waiting.next += 1;
        waiting.threads += 1;
        waiting.connections.push(Connection { number, address, stream });
        Ok((Place { unproven: self, number }, evicted))
    }

    /// Connections that have a place.
    pub(super) fn occupied(&self) -> usize {
        self.waiting.lock().connections.len()
    }
}

impl Waiting {
    fn of(&self, address: IpAddr) -> usize {
        self.connections.iter().filter(|connection| connection.address == address).count()
    }

    /// The address that must give up a place before `address` can have one.
    fn crowded(&self, bounds: Bounds, address: IpAddr) -> Option<IpAddr> {
        if self.of(address) >= bounds.of_an_address {
            return Some(address);
        }
        // Of equals the last one is the maximum: in this order, the address of the oldest connection.
        let most = || {
            self.connections.iter().rev().map(|connection| connection.address).max_by_key(|address| self.of(*address))
        };
        if self.connections.len() >= bounds.places { most() } else { None }
    }

    fn evict(&mut self, address: IpAddr) -> Option<Connection> {
        let oldest = self.connections.iter().position(|connection| connection.address == address)?;
        Some(self.connections.remove(oldest))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.unproven.waiting.lock();
        waiting.connections.retain(|connection| connection.number != self.number);
        waiting.threads -= 1;
        self.unproven.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, time::Duration};

    use super::*;

    #[test]
    fn sessions_are_shared_between_addresses() {
        let limits = Limits { sessions: 3, sessions_per_client: 2, ..Limits::default() };
        let budget = Budget::default();
        let of = |last: u8| budget.session(&limits, [192, 0, 2, last].into());
        let (first, _second) = (of(1).unwrap(), of(1).unwrap());
        let error = of(1).unwrap_err();
        assert!(error.code == ErrorCode::Busy && error.message.contains("--max-sessions-per-client"), "{error}");
        let other = of(2).unwrap();
        assert!(of(3).unwrap_err().message.contains("(--max-sessions)"));
        drop((first, other));
        drop((of(1).unwrap(), of(3).unwrap()));
        assert_eq!(budget.used.lock().sessions.len(), 1);
    }

    #[test]
    fn memory_is_given_back() {
        let limits = Limits { memory_bytes: 100, ..Limits::default() };
        let budget = Budget::default();
        let most = budget.test(&limits, 99, 4).unwrap();
        assert_eq!(budget.in_use(), InUse { sessions: 0, memory_bytes: 99, flows: 4 });
        let error = budget.test(&limits, 2, 1).unwrap_err();
        assert!(error.message.contains("already have 99 of 100") && error.message.contains("--max-memory"), "{error}");
        budget.test(&limits, u64::MAX, 1).unwrap_err();
        drop(most);
        drop(budget.test(&limits, 100, 1).unwrap());
        assert_eq!(budget.in_use(), InUse { sessions: 0, memory_bytes: 0, flows: 0 });
    }

    #[test]
    fn only_other_clients_count_and_each_instant_once() {
        let loads = Loads::default();
        let mine = loads.begin(1, 100);
        let of_mine = loads.begin(1, 150);
        assert_eq!(mine.beside_ns(100, 1000), 0);
        let (first, second) = (loads.begin(2, 300), loads.begin(3, 500));
        assert_eq!(mine.beside_ns(100, 1000), 700);
        assert_eq!(mine.beside_ns(100, 200), 0);
        assert_eq!(second.beside_ns(0, 1000), 900);
        drop((first, second));
        assert_eq!(mine.beside_ns(100, 1000), 700, "they ended long after 1000");
        drop((mine, of_mine));
        assert!(loads.known.lock().spans.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_no_load_is_forgotten() {
        let loads = Loads::default();
        let mine = loads.begin(1, 0);
        let first = monotonic_ns();
        for client in 2..5000 {
            drop(loads.begin(client, monotonic_ns()));
        }
        let last = monotonic_ns();
        assert!(loads.known.lock().spans.len() <= MOST_SPANS + 1);
        let known = mine.beside_ns(first, last);
        assert!(0 < known && known <= last - first, "{known} of {} ns", last - first);
        let own: Vec<_> = (0..3000).map(|_| drop(loads.begin(1, monotonic_ns()))).collect();
        assert_eq!(own.len(), 3000);
        assert!(loads.known.lock().spans.len() <= MOST_SPANS + 1);
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn the_oldest_of_the_most_crowded_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let unproven = Unproven::new(Bounds::OWN);
        let mut kept = Vec::new();
        let mut enter = |last: u8| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            let (place, evicted) = unproven.enter(&far, address(last)).unwrap();
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
        assert_eq!(unproven.waiting.lock().connections.len(), Bounds::OWN.places);
        let near = &mut kept[first].0;
        near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "the oldest is closed");
        for (_, _, place) in &mut kept {
            drop(place.take());
        }
        assert!(unproven.waiting.lock().connections.is_empty());
    }

    /// Strangers with an address each would otherwise keep their places, and clients would lose theirs to the next one.
    #[test]
    fn of_addresses_with_as_many_the_oldest_connection_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let unproven = Unproven::new(Bounds::OWN);
        let strangers: Vec<_> = (0..64).map(|last| unproven.enter(&stream, address(last)).unwrap()).collect();
        assert!(strangers.iter().all(|(_, evicted)| evicted.is_none()));
        let clients = [0, 1, 2].map(|last| unproven.enter(&stream, address(100 + last)).unwrap());
        assert_eq!(clients.map(|(_place, evicted)| evicted), [0, 1, 2].map(|last| Some(address(last))));
    }

    #[test]
    fn a_connection_waits_for_a_thread_to_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let unproven = Unproven::new(Bounds::OWN);
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let enter = || unproven.enter(&stream, address(1)).unwrap().0;
        let mut places: Vec<Place<'_>> = (0..Bounds::OWN.threads()).map(|_| enter()).collect();
        std::thread::scope(|scope| {
            let next = scope.spawn(enter);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!next.is_finished() && unproven.waiting.lock().threads == Bounds::OWN.threads());
            places.pop();
            places.push(next.join().unwrap());
        });
        assert_eq!(unproven.waiting.lock().threads, Bounds::OWN.threads());
        drop(places);
        assert_eq!(unproven.waiting.lock().threads, 0);
    }
}
