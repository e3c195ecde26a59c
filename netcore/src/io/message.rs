//! Messages of MPI: `io: blocking` is one call that waits for each, and `io: nonblocking` keeps several in progress.
//!
//! Memory of messages in progress belongs to the channel, which waits for them before it frees it.

use std::{io, sync::Arc, thread};

use super::{
    Channel,
    buffers::Buffers,
    wait::{Block, LOOK_UP_NS, Wait},
};
use crate::{
    measure::clock::monotonic_ns,
    mpi::{Request, Route},
    transport::Link,
};

fn no_route() -> io::Error {
    io::Error::other("the flow has no way to another rank")
}

/// `MPI_Send` and `MPI_Recv`.
pub struct Messages<'l> {
    route: &'l Route,
}

impl<'l> Messages<'l> {
    pub fn new(link: &'l Link) -> io::Result<Self> {
        Ok(Self { route: link.route.as_ref().ok_or_else(no_route)? })
    }
}

impl Channel for Messages<'_> {
    type Wait = Block;

    #[inline]
    fn wait(&self) -> &Block {
        &Block
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.route.send(bytes).map(|()| bytes.len())
    }

    /// It waits all the same: with one message in flight the peer is ready to receive.
    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.send(bytes).map(Some)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.route.receive(buffer)
    }

    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        let until_ns = until_ns.min(monotonic_ns().saturating_add(LOOK_UP_NS));
        while !self.route.has_input()? {
            if monotonic_ns() >= until_ns {
                return Ok(None);
            }
        }
        self.receive(buffer).map(Some)
    }
}

/// `MPI_Isend`, `MPI_Irecv` and `MPI_Test`: sends go on while others begin.
pub struct Window<W: Wait> {
    link: Arc<Link>,
    wait: W,
    /// Messages to send, never written again.
    ring: Buffers,
    /// Sends in progress, in a ring.
    sends: Box<[Request]>,
    /// The oldest one, and their number.
    oldest: usize,
    count: usize,
}

impl<W: Wait> Window<W> {
    /// At most `most` sends at a time of the messages of a ring.
    pub fn new(link: Arc<Link>, wait: W, ring: Buffers, most: usize) -> io::Result<Self> {
        link.route.as_ref().ok_or_else(no_route)?;
        let sends = (0..most.max(1)).map(|_| Request::default()).collect();
        Ok(Self { link, wait, ring, sends, oldest: 0, count: 0 })
    }

    #[inline]
    fn route(link: &Link) -> io::Result<&Route> {
        link.route.as_ref().ok_or_else(no_route)
    }

    /// Whether another send may begin.
    #[inline]
    fn has_room(&mut self) -> io::Result<bool> {
        let route = Self::route(&self.link)?;
        while self.count > 0 && route.is_complete(&mut self.sends[self.oldest])? {
            self.oldest = (self.oldest + 1) % self.sends.len();
            self.count -= 1;
        }
        Ok(self.count < self.sends.len())
    }

    /// Begins to send the next message, or its first bytes.
    #[inline]
    fn begin(&mut self, bytes: usize) -> io::Result<usize> {
        let at = (self.oldest + self.count) % self.sends.len();
        let message = self.ring.present();
        let message = &message[..bytes.min(message.len())];
        // SAFETY: the ring is this channel's own and is not written. It is freed only after all sends are complete.
        self.sends[at] = unsafe { Self::route(&self.link)?.begin_send(message) }?;
        self.count += 1;
        let sent = message.len();
        self.ring.advance();
        Ok(sent)
    }

    /// Receives into the buffer until `is_over` says to give up.
    #[inline]
    fn receive_until(&mut self, buffer: &mut [u8], is_over: impl Fn() -> bool) -> io::Result<Option<usize>> {
        let route = Self::route(&self.link)?;
        if route.has_ended() {
            return Ok(Some(0));
        }
        // SAFETY: the buffer is borrowed for longer than `receiving` lives, whose drop ends the request.
        let request = unsafe { route.begin_receive(buffer.as_mut_ptr(), buffer.len()) }?;
        let mut receiving = Receiving { route, request, is_open: true };
        loop {
            let came = route.test(&mut receiving.request);
            // An error leaves no request behind.
            receiving.is_open = matches!(came, Ok(None));
            match came {
                Ok(Some(bytes)) => return Ok(Some(route.came(bytes))),
                Ok(None) if is_over() => return Ok(None),
                Ok(None) => self.wait.yield_now(),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A receive in progress. The coroutine that waits for it may end early, and its stack, with the buffer, is then gone.
struct Receiving<'r> {
    route: &'r Route,
    request: Request,
    is_open: bool,
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.route.cancel(&mut self.request);
        }
    }
}

impl<W: Wait> Channel for Window<W> {
    type Wait = W;

    #[inline]
    fn wait(&self) -> &W {
        &self.wait
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait.turn();
        while !self.has_room()? {
            if self.link.is_freed() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.wait.yield_now();
        }
        self.begin(bytes.len())
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if self.has_room()? { self.begin(bytes.len()).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait.turn();
        let link = Arc::clone(&self.link);
        self.receive_until(buffer, || link.is_freed())?.ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }

    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        let until_ns = until_ns.min(monotonic_ns().saturating_add(LOOK_UP_NS));
        self.receive_until(buffer, || monotonic_ns() >= until_ns)
    }

    /// Waits until all sends are complete.
    fn settle(&mut self) -> io::Result<()> {
        self.has_room()?;
        while self.count > 0 {
            self.wait.yield_now();
            self.has_room()?;
        }
        Ok(())
    }
}

impl<W: Wait> Drop for Window<W> {
    fn drop(&mut self) {
        // After a failure: the peer drops what still comes. An error leaves no request behind.
        while self.has_room().is_ok() && self.count > 0 {
            thread::yield_now();
        }
    }
}

/// Several receives in progress, each into a buffer of its own.
pub struct Receives {
    link: Arc<Link>,
    buffers: Vec<Buffers>,
    requests: Box<[Request]>,
    /// The oldest one.
    oldest: usize,
    /// Whether requests are in progress.
    begun: bool,
}

impl Receives {
    /// Begins a receive into each of the buffers.
    pub fn begin(link: Arc<Link>, buffers: Vec<Buffers>) -> io::Result<Self> {
        let requests = buffers.iter().map(|_| Request::default()).collect();
        let mut receives = Self { link, buffers, requests, oldest: 0, begun: true };
        (0..receives.buffers.len()).try_for_each(|at| receives.begin_at(at))?;
        Ok(receives)
    }

    #[inline]
    fn route(link: &Link) -> io::Result<&Route> {
        link.route.as_ref().ok_or_else(no_route)
    }

    #[inline]
    fn begin_at(&mut self, at: usize) -> io::Result<()> {
        let buffers = &mut self.buffers[at];
        let (pointer, bytes) = (buffers.pointer(0), buffers.size());
        // SAFETY: the buffers are this value's own, and freed only after the request is complete or cancelled. They are read
        // only between the completion and the next begin.
        self.requests[at] = unsafe { Self::route(&self.link)?.begin_receive(pointer, bytes) }?;
        Ok(())
    }

    /// The oldest message if it has come; empty: the end of the stream. [`Receives::next`] follows.
    #[inline]
    pub fn poll(&mut self) -> io::Result<Option<&[u8]>> {
        let route = Self::route(&self.link)?;
        let came = route.test(&mut self.requests[self.oldest])?.map(|bytes| route.came(bytes));
        Ok(came.map(|bytes| &self.buffers[self.oldest].present()[..bytes]))
    }

    /// Gives the oldest message's buffer to the next receive.
    #[inline]
    pub fn next(&mut self) -> io::Result<()> {
        let at = self.oldest;
        self.oldest = (at + 1) % self.buffers.len();
        self.begin_at(at)
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        if let (true, Ok(route)) = (self.begun, Self::route(&self.link)) {
            self.requests.iter_mut().for_each(|request| route.cancel(request));
        }
    }
}
