//! Runs the flows of a thread over one submission ring: each loop is a coroutine that pushes its operation and yields
//! until that is complete. When every flow waits, one system call submits all operations and takes the completions.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, RawFd},
    rc::Rc,
    sync::Arc,
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use nix::sys::socket::MsgFlags;

use super::{CALLS_PER_TURN, NEVER, STACK_BYTES};
use crate::{
    io::{
        Channel,
        uring::Ring,
        wait::{LOOK_UP_NS, Sleep},
    },
    measure::clock::monotonic_ns,
    sys::precise_timers,
    transport::Link,
};

/// Bytes of operations that are submitted at once: the data of more would not stay in the caches.
const PORTION_BYTES: usize = 64 * 1024;

/// A flow's way to wait: it yields the latest instant at which it goes on.
pub struct Suspension<'y> {
    yielder: &'y Yielder<(), u64>,
}

impl Sleep for Suspension<'_> {
    // Other flows may be ready meanwhile.
    const LEADS: bool = false;

    #[inline]
    fn sleep_until(&self, wake_ns: u64) {
        self.yielder.suspend(wake_ns);
    }
}

/// Operations of one flow on its thread's ring.
pub struct Submitted<'y> {
    ring: Rc<Ring>,
    /// Index of the flow in the ring.
    flow: usize,
    suspension: Suspension<'y>,
}

impl<'y> Channel for Submitted<'y> {
    type Wait = Suspension<'y>;

    #[inline]
    fn wait(&self) -> &Suspension<'y> {
        &self.suspension
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_WAITALL;
        self.ring.send(self.flow, bytes, flags.bits(), || self.suspension.sleep_until(NEVER))
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.ring.receive(self.flow, buffer, NEVER, |until_ns| self.suspension.sleep_until(until_ns))?;
        // Without an instant, something has come.
        Ok(received.unwrap_or(0))
    }

    #[inline]
    fn receive_by(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<Option<usize>> {
        self.ring.receive(self.flow, buffer, until_ns, |until_ns| self.suspension.sleep_until(until_ns))
    }

    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = self.ring.send(self.flow, bytes, flags.bits(), || self.suspension.sleep_until(NEVER));
        match sent {
            Ok(n) => Ok(Some(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A loop as a coroutine.
struct Flow {
    coroutine: Coroutine<(), u64, (), DefaultStack>,
    link: Arc<Link>,
    /// Latest instant at which it goes on, while it waits.
    until_ns: Option<u64>,
}

/// The flows of a thread, and their ring.
pub struct RingMultiplexer {
    // Dropped first: a loop that has not ended has its operation cancelled.
    flows: Vec<Flow>,
    ring: Rc<Ring>,
    /// Flows that may go on.
    ready: VecDeque<usize>,
    /// Number of waiting flows with an instant.
    timed: usize,
    /// Loops that have not ended.
    left: usize,
}

impl RingMultiplexer {
    /// Makes the ring for loops over these links, which receive `receive_bytes` at most.
    pub fn new(links: &[Arc<Link>], receive_bytes: usize) -> io::Result<Self> {
        let sockets: Vec<RawFd> = links.iter().map(|link| link.receive.as_raw_fd()).collect();
        let ring = Rc::new(Ring::new(&sockets, receive_bytes)?);
        Ok(Self { flows: Vec::with_capacity(links.len()), ring, ready: VecDeque::new(), timed: 0, left: 0 })
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Adds the loop over the next link. It begins with [`RingMultiplexer::run`].
    pub fn add(&mut self, link: Arc<Link>, body: impl FnOnce(Submitted<'_>) + 'static) -> io::Result<()> {
        let (ring, flow) = (self.ring.clone(), self.flows.len());
        let coroutine = Coroutine::with_stack(DefaultStack::new(STACK_BYTES)?, move |yielder, ()| {
            body(Submitted { ring, flow, suspension: Suspension { yielder } });
        });
        self.flows.push(Flow { coroutine, link, until_ns: None });
        self.ready.push_back(flow);
        self.left += 1;
        Ok(())
    }

    /// Runs all loops to their end.
    pub fn run(&mut self) -> io::Result<()> {
        precise_timers();
        let mut look_up_ns = monotonic_ns() + LOOK_UP_NS;
        loop {
            for _ in 0..self.ready.len() {
                self.take_turn()?;
            }
            if self.left == 0 {
                return Ok(());
            }
            let next_ns = if self.timed == 0 {
                NEVER
            } else {
                self.flows.iter().filter_map(|flow| flow.until_ns).min().unwrap_or(NEVER)
            };
            self.ring.enter(if self.ready.is_empty() { next_ns.min(look_up_ns) } else { 0 })?;
            self.ring.reap();
            self.wake_completed();
            let now_ns = monotonic_ns();
            if next_ns <= now_ns {
                self.wake_due(now_ns);
            }
            if look_up_ns <= now_ns {
                self.look_up();
                look_up_ns = now_ns + LOOK_UP_NS;
            }
        }
    }

    /// Resumes the first ready flow. Where its operation moves much data, it is submitted at once, and the flow goes on while its
    /// operations complete without waiting, for some calls.
    #[inline]
    fn take_turn(&mut self) -> io::Result<()> {
        let Some(number) = self.ready.pop_front() else { return Ok(()) };
        for _ in 0..CALLS_PER_TURN {
            self.go_on(number);
            if self.ring.queued_bytes() < PORTION_BYTES {
                return Ok(());
            }
            self.ring.submit()?;
            self.ring.reap();
            self.wake_completed();
            if self.ready.pop_back_if(|last| *last == number).is_none() {
                return Ok(());
            }
        }
        self.ready.push_back(number);
        Ok(())
    }

    /// Resumes a flow until it yields.
    #[inline]
    fn go_on(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        match flow.coroutine.resume(()) {
            CoroutineResult::Yield(until_ns) => {
                flow.until_ns = Some(until_ns);
                self.timed += usize::from(until_ns != NEVER);
            }
            CoroutineResult::Return(()) => self.left -= 1,
        }
    }

    /// Makes the flows ready whose awaited completions have come.
    #[inline]
    fn wake_completed(&mut self) {
        let (flows, ready, timed) = (&mut self.flows, &mut self.ready, &mut self.timed);
        self.ring.woken(|number| {
            if let Some(until_ns) = flows[number].until_ns.take() {
                *timed -= usize::from(until_ns != NEVER);
                ready.push_back(number);
            }
        });
    }

    /// Makes the flows ready whose instant has come.
    fn wake_due(&mut self, now_ns: u64) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            if flow.until_ns.take_if(|until_ns| *until_ns <= now_ns).is_some() {
                self.timed -= 1;
                self.ready.push_back(number);
            }
        }
    }

    /// Ends what is under way on connections that were closed by force. Their shutdown ends it too, where the kernel
    /// completes the operations of a socket that was shut down.
    fn look_up(&self) {
        for (number, flow) in self.flows.iter().enumerate() {
            if flow.link.is_freed() {
                self.ring.cancel(number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
