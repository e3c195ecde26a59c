//! Messages between two ranks, for the flows of one test.
//!
//! Each flow has a tag each way, and a message without bytes is the end of its stream. Both ends send one, whatever happens:
//! a rank that waits in the library can only be freed by its peer. After a failure the rest of the peer's messages is
//! received and dropped until its end comes, so that nothing is left over for a later test.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    library::{Comm, Library, MpiError, Request},
    world::Lease,
};

/// The longest wait for the end of the peer's messages after a failure. The rank takes part in no other test meanwhile.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two looks for a message, where nothing is measured.
const PAUSE: Duration = Duration::from_micros(200);

/// The far end of a test among the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// [`super::RankFacts::world`].
    pub world: u64,
    pub rank: u32,
    /// The first of its tags.
    pub tag: i32,
}

/// Tags and ends of a flow.
struct Ends {
    send_tag: i32,
    receive_tag: i32,
    sent: AtomicBool,
    received: AtomicBool,
}

/// The flows between this rank and another, with the lease.
pub struct Routes {
    /// Present until the drop.
    lease: Option<Lease>,
    peer: i32,
    ends: Box<[Ends]>,
}

impl Routes {
    /// Flows to a rank whose tags begin with `tag`. `near`: whether this is the near end.
    pub fn new(lease: Lease, peer: i32, tag: i32, flows: u32, near: bool) -> Arc<Self> {
        let of = |flow: u32| {
            let forward = tag + 2 * i32::try_from(flow).unwrap_or(0);
            let (send_tag, receive_tag) = if near { (forward, forward + 1) } else { (forward + 1, forward) };
            Ends { send_tag, receive_tag, sent: AtomicBool::new(false), received: AtomicBool::new(false) }
        };
        Arc::new(Self { lease: Some(lease), peer, ends: (0..flows).map(of).collect() })
    }

    /// The way of a flow.
    pub fn route(self: &Arc<Self>, flow: u32) -> Option<Route> {
        let lease = self.lease.as_ref()?;
        let ends = self.ends.get(flow as usize)?;
        Some(Route {
            library: lease.world().library(),
            world: lease.world().everyone(),
            peer: self.peer,
            send_tag: ends.send_tag,
            receive_tag: ends.receive_tag,
            flow: flow as usize,
            routes: Arc::clone(self),
        })
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let closing = Closing { lease, peer: self.peer, ends: std::mem::take(&mut self.ends) };
        closing.say_the_end();
        if !closing.is_over() {
            // The peer may send for as long as its test lasts: it hears of the failure by its client.
            let closer = thread::Builder::new().name("mpi closer".into()).spawn(move || closing.drop_the_rest());
            // Without a thread the peer's messages stay where they are, and the lease is free again.
            drop(closer);
        }
    }
}

/// Flows whose peer has not ended yet.
struct Closing {
    lease: Lease,
    peer: i32,
    ends: Box<[Ends]>,
}

impl Closing {
    fn say_the_end(&self) {
        let (library, world) = (self.lease.world().library(), self.lease.world().everyone());
        for ends in self.ends.iter().filter(|ends| !ends.sent.swap(true, Relaxed)) {
            // It fails if the peer is gone.
            let _ = library.send(world, &[], self.peer, ends.send_tag);
        }
    }

    /// Receives what has come; whether the peer has ended all flows.
    fn is_over(&self) -> bool {
        let (library, world) = (self.lease.world().library(), self.lease.world().everyone());
        self.ends.iter().fold(true, |over, ends| {
            while !ends.received.load(Relaxed) {
                match library.probe(world, self.peer, ends.receive_tag) {
                    Ok(Some(bytes)) => {
                        let received = library.receive(world, &mut vec![0; bytes], self.peer, ends.receive_tag);
                        ends.received.store(bytes == 0 || received.is_err(), Relaxed);
                    }
                    Ok(None) => return false,
                    Err(_) => return over,
                }
            }
            over
        })
    }

    fn drop_the_rest(self) {
        let deadline = Instant::now() + CLOSE_WITHIN;
        while !self.is_over() && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
    }
}

/// The way of a flow's messages.
pub struct Route {
    library: &'static Library,
    world: Comm,
    peer: i32,
    send_tag: i32,
    receive_tag: i32,
    flow: usize,
    routes: Arc<Routes>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("peer", &self.peer).field("flow", &self.flow).finish_non_exhaustive()
    }
}

impl Route {
    fn ends(&self) -> &Ends {
        &self.routes.ends[self.flow]
    }

    /// Whether the peer's end of the stream has come.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ends().received.load(Relaxed)
    }

    /// Takes the length of a received message: 0 is the end of the stream.
    #[inline]
    pub fn came(&self, bytes: usize) -> usize {
        if bytes == 0 {
            self.ends().received.store(true, Relaxed);
        }
        bytes
    }

    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Ok(self.library.send(self.world, bytes, self.peer, self.send_tag)?)
    }

    /// Receives a message; 0: the end of the stream.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_ended() {
            return Ok(0);
        }
        Ok(self.came(self.library.receive(self.world, buffer, self.peer, self.receive_tag)?))
    }

    /// Whether a message has come. Makes progress.
    #[inline]
    pub fn has_input(&self) -> io::Result<bool> {
        Ok(self.has_ended() || self.library.probe(self.world, self.peer, self.receive_tag)?.is_some())
    }

    /// Ends the stream, once. Messages that were begun before come before it.
    pub fn end(&self) {
        if !self.ends().sent.swap(true, Relaxed) {
            // It fails if the peer is gone, which ends the stream too.
            let _ = self.send(&[]);
        }
    }

    /// Begins to send.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request is complete.
    #[inline]
    #[expect(unsafe_code, reason = "the caller keeps the memory")]
    pub unsafe fn begin_send(&self, bytes: &[u8]) -> io::Result<Request> {
        // SAFETY: by this function's own contract.
        Ok(unsafe { self.library.begin_send(self.world, bytes, self.peer, self.send_tag) }?)
    }

    /// Begins to receive into `bytes` bytes from `buffer` on.
    ///
    /// # Safety
    /// The memory stays valid, and is used by nothing else, until the request is complete.
    #[inline]
    #[expect(unsafe_code, reason = "the caller keeps the memory")]
    pub unsafe fn begin_receive(&self, buffer: *mut u8, bytes: usize) -> io::Result<Request> {
        // SAFETY: by this function's own contract.
        Ok(unsafe { self.library.begin_receive(self.world, (buffer, bytes), self.peer, self.receive_tag) }?)
    }

    /// Whether a request is complete, and then the length of the message (of a receive). Makes progress.
    #[inline]
    pub fn test(&self, request: &mut Request) -> io::Result<Option<usize>> {
        Ok(self.library.test(request)?)
    }

    /// Whether a send is complete. Makes progress.
    #[inline]
    pub fn is_complete(&self, request: &mut Request) -> io::Result<bool> {
        Ok(self.library.is_complete(request)?)
    }

    /// Ends a receive whether or not a message has come; it returns once the memory is free.
    pub fn cancel(&self, request: &mut Request) {
        // A receive that is complete cannot be cancelled, and the test says so.
        let _ = self.library.cancel(request);
        while matches!(self.library.test(request), Ok(None)) {
            thread::yield_now();
        }
    }
}

/// The first messages of a test, by which the ends find each other. The caller has the lease and bounds the wait by `left`.
impl Lease {
    /// Sends a short message.
    pub fn greet(&self, to: i32, tag: i32, bytes: &[u8], left: &dyn Fn() -> Duration) -> Result<bool, MpiError> {
        self.world().library().send_kept(self.world().everyone(), bytes, to, tag, || pause(left))
    }

    /// Receives the next short message with this tag, from a rank or from any.
    pub fn answer(
        &self,
        from: Option<i32>,
        tag: i32,
        left: &dyn Fn() -> Duration,
    ) -> Result<Option<Vec<u8>>, MpiError> {
        let (library, world) = (self.world().library(), self.world().everyone());
        let from = from.unwrap_or_else(|| library.any_source());
        loop {
            if let Some(bytes) = library.probe(world, from, tag)? {
                let mut message = vec![0; bytes];
                library.receive(world, &mut message, from, tag)?;
                return Ok(Some(message));
            }
            if !pause(left) {
                return Ok(None);
            }
        }
    }
}

/// Sleeps a little; `false`: the time is over.
fn pause(left: &dyn Fn() -> Duration) -> bool {
    let left = left();
    thread::sleep(PAUSE.min(left));
    !left.is_zero()
}
