//! Runs several flows on one thread. Each flow's loop is the one that it would run on a thread of its own, here as a
//! coroutine: it yields where it would wait, and says for what. Ready flows run in turn; when none is ready, the thread
//! waits for all of them at once.

pub mod ring;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::MsgFlags,
        time::TimeSpec,
    },
};

use crate::{
    io::wait::{LOOK_UP_NS, Sleep, Wait, has_input},
    measure::clock::monotonic_ns,
    sys::precise_timers,
    transport::{
        Link,
        listener::{Connection, Event},
    },
};

/// Calls that a flow may make in a row while none of them blocks: enough that its data stays in the caches for a while,
/// few enough that the flows' shares stay even.
const CALLS_PER_TURN: u32 = 8;

/// Stack of a loop, bytes. Only the pages that it touches become memory.
const STACK_BYTES: usize = 256 * 1024;

/// Events per `epoll_wait`.
const EVENTS: usize = 256;

/// The last part of a bounded wait, which a precise call takes over: `epoll_wait` counts in milliseconds.
const COARSE_NS: u64 = 1_500_000;

/// An instant that never comes.
const NEVER: u64 = u64::MAX;

/// Condition that a flow waits for when it yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Yield {
    /// Nothing: the other flows have their turn.
    Turn,
    /// Input, at most until an instant of the monotonic clock.
    Input(u64),
    /// Room to send, at most until an instant.
    Room(u64),
    /// An instant.
    Time(u64),
}

/// A flow's way to wait on a thread of several flows.
pub struct Turns<'y> {
    /// Resumed with whether the awaited event may have come.
    yielder: &'y Yielder<bool, Yield>,
    /// Calls since the last yield.
    calls: Cell<u32>,
    /// The thread's epoll instance, and the mark of this flow's events in it.
    epoll: Rc<Epoll>,
    mark: u64,
}

/// The instant after `at_most_ns`; [`NEVER`] without a bound.
#[inline]
fn from_now(at_most_ns: u64) -> u64 {
    if at_most_ns == NEVER { NEVER } else { monotonic_ns().saturating_add(at_most_ns) }
}

impl Turns<'_> {
    #[inline]
    fn yield_for(&self, what: Yield) -> bool {
        self.calls.set(0);
        self.yielder.suspend(what)
    }
}

impl Sleep for Turns<'_> {
    // Other flows may be ready meanwhile.
    const LEADS: bool = false;

    #[inline]
    fn sleep_until(&self, wake_ns: u64) {
        self.yield_for(Yield::Time(wake_ns));
    }
}

impl Wait for Turns<'_> {
    #[inline]
    fn flags(&self) -> MsgFlags {
        MsgFlags::MSG_DONTWAIT
    }

    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool> {
        // Only input that comes after a look is an event.
        let until_ns = until_ns.min(from_now(LOOK_UP_NS));
        Ok(has_input(link)? || self.yield_for(Yield::Input(until_ns)))
    }

    #[inline]
    fn after_nothing(&self, link: &Link, at_most_ns: u64) -> io::Result<bool> {
        let has_come = self.yield_for(Yield::Input(from_now(at_most_ns)));
        // A datagram socket that was shut down counts as readable for ever, and returns nothing.
        Ok(has_come && !link.is_freed())
    }

    #[inline]
    fn for_room(&self, _link: &Link, at_most_ns: u64) -> io::Result<()> {
        self.yield_for(Yield::Room(from_now(at_most_ns)));
        Ok(())
    }

    fn for_connection(&self, connection: &Connection, event: Event) -> io::Result<bool> {
        let watched = connection.watched.get();
        if watched < Some(event) {
            // An established connection is writable, so EPOLLOUT would wake a flow that waits for input only.
            let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            flags.set(EpollFlags::EPOLLOUT, event == Event::Room);
            let mut registration = EpollEvent::new(flags, self.mark);
            match watched {
                None => self.epoll.add(&*connection.socket, registration)?,
                Some(_) => self.epoll.modify(&*connection.socket, &mut registration)?,
            }
            connection.watched.set(Some(event));
        }
        // Without a bound: a peer that is busy with its other flows may take longer than any limit.
        self.yield_for(if event == Event::Input { Yield::Input(NEVER) } else { Yield::Room(NEVER) });
        Ok(true)
    }

    #[inline]
    fn turn(&self) {
        let calls = self.calls.get() + 1;
        if calls > CALLS_PER_TURN {
            self.yield_now();
        }
        self.calls.set(self.calls.get() + 1);
    }

    #[inline]
    fn yield_now(&self) {
        self.yield_for(Yield::Turn);
    }
}

/// A loop as a coroutine.
struct Flow {
    coroutine: Coroutine<bool, Yield, (), DefaultStack>,
    /// Index in [`Multiplexer::sockets`].
    socket: usize,
}

/// A socket, and the flows that wait to receive and to send.
struct Socket {
    fd: RawFd,
    reader: Option<usize>,
    writer: Option<usize>,
}

/// Several flows on one thread.
///
/// A socket is registered once, edge-triggered. No edge is lost: a flow waits only after the kernel said that the call
/// would block, and no events are taken between the two. The connections of a connect pattern come and go: each is
/// registered when it is first waited for, under its flow's mark, and leaves with its close. So the event that wakes a
/// flow may belong to its listener or to the connection before: the flow tries again, and waits again.
pub struct Multiplexer {
    epoll: Rc<Epoll>,
    flows: Vec<Flow>,
    /// Latest instant at which each flow goes on.
    until_ns: Vec<u64>,
    /// Number of flows with such an instant.
    timed: usize,
    sockets: Vec<Socket>,
    /// Flows that may go on, and whether the awaited event may have come.
    ready: VecDeque<(usize, bool)>,
    /// Loops that have not ended.
    left: usize,
}

impl Multiplexer {
    pub fn new() -> io::Result<Self> {
        let epoll = Rc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        Ok(Self {
            epoll,
            flows: Vec::new(),
            until_ns: Vec::new(),
            timed: 0,
            sockets: Vec::new(),
            ready: VecDeque::new(),
            left: 0,
        })
    }

    /// Adds a loop that waits for this socket, and for connections of its own. It begins with [`Multiplexer::run`].
    pub fn add(&mut self, socket: &Arc<OwnedFd>, body: impl FnOnce(Turns<'_>) + 'static) -> io::Result<()> {
        let fd = socket.as_raw_fd();
        let known = self.sockets.iter().rposition(|known| known.fd == fd);
        let socket = if let Some(known) = known {
            known
        } else {
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            self.epoll.add(socket.as_fd(), EpollEvent::new(flags, self.sockets.len() as u64))?;
            self.sockets.push(Socket { fd, reader: None, writer: None });
            self.sockets.len() - 1
        };
        let (epoll, mark) = (self.epoll.clone(), socket as u64);
        let coroutine = Coroutine::with_stack(DefaultStack::new(STACK_BYTES)?, move |yielder, _| {
            body(Turns { yielder, calls: Cell::new(0), epoll, mark });
        });
        self.ready.push_back((self.flows.len(), true));
        self.flows.push(Flow { coroutine, socket });
        self.until_ns.push(NEVER);
        self.left += 1;
        Ok(())
    }

    /// Runs all loops to their end.
    pub fn run(&mut self) -> io::Result<()> {
        precise_timers();
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            for _ in 0..self.ready.len() {
                self.go_on();
            }
            if self.left == 0 {
                return Ok(());
            }
            if self.ready.len() == self.left {
                // No flow waits.
                continue;
            }
            let next_ns = if self.timed == 0 { NEVER } else { self.until_ns.iter().copied().min().unwrap_or(NEVER) };
            let came = self.wait(&mut events, next_ns)?;
            events[..came].iter().for_each(|event| self.happened(*event));
            if next_ns <= monotonic_ns() {
                self.wake_due();
            }
        }
    }

    /// Resumes the first ready flow until it yields.
    fn go_on(&mut self) {
        let Some((number, is_there)) = self.ready.pop_front() else { return };
        let flow = &mut self.flows[number];
        let socket = &mut self.sockets[flow.socket];
        let until_ns = match flow.coroutine.resume(is_there) {
            CoroutineResult::Yield(Yield::Turn) => {
                self.ready.push_back((number, true));
                return;
            }
            CoroutineResult::Yield(Yield::Input(until_ns)) => {
                socket.reader = Some(number);
                until_ns
            }
            CoroutineResult::Yield(Yield::Room(until_ns)) => {
                socket.writer = Some(number);
                until_ns
            }
            CoroutineResult::Yield(Yield::Time(until_ns)) => until_ns,
            CoroutineResult::Return(()) => {
                self.left -= 1;
                return;
            }
        };
        self.until_ns[number] = until_ns;
        self.timed += usize::from(until_ns != NEVER);
    }

    /// Makes a waiting flow ready.
    fn wake(&mut self, number: usize, is_there: bool) {
        self.timed -= usize::from(self.until_ns[number] != NEVER);
        self.until_ns[number] = NEVER;
        self.ready.push_back((number, is_there));
    }

    /// Takes events: without waiting if a flow is ready, otherwise until one comes or the instant is there.
    fn wait(&self, events: &mut [EpollEvent], until_ns: u64) -> io::Result<usize> {
        let mut timeout = EpollTimeout::ZERO;
        if self.ready.is_empty() && until_ns == NEVER {
            timeout = EpollTimeout::NONE;
        } else if self.ready.is_empty() {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns > COARSE_NS {
                // The remainder is shorter than the part that the precise wait takes over.
                let milliseconds = u16::try_from((left_ns - COARSE_NS / 3) / 1_000_000).unwrap_or(u16::MAX);
                timeout = EpollTimeout::from(milliseconds);
            } else if left_ns > 0 {
                let epoll = PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN);
                // A signal may end the wait early: the caller looks at the clock again.
                let _ = ppoll(&mut [epoll], Some(TimeSpec::from_duration(Duration::from_nanos(left_ns))), None);
            }
        }
        match self.epoll.wait(events, timeout) {
            Ok(came) => Ok(came),
            Err(nix::Error::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes the flows that wait for this event.
    fn happened(&mut self, event: EpollEvent) {
        let flags = event.events();
        let ends = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        // The marks were made from a `usize`.
        let Some(socket) = usize::try_from(event.data()).ok().and_then(|place| self.sockets.get_mut(place)) else {
            return;
        };
        let reader = if flags.intersects(ends | EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP) {
            socket.reader.take()
        } else {
            None
        };
        let writer = if flags.intersects(ends | EpollFlags::EPOLLOUT) { socket.writer.take() } else { None };
        reader.into_iter().chain(writer).for_each(|number| self.wake(number, true));
    }

    /// Wakes the flows whose instant has come.
    fn wake_due(&mut self) {
        let now_ns = monotonic_ns();
        for number in 0..self.flows.len() {
            if self.until_ns[number] > now_ns {
                continue;
            }
            let socket = &mut self.sockets[self.flows[number].socket];
            for waiting in [&mut socket.reader, &mut socket.writer] {
                waiting.take_if(|waiting| *waiting == number);
            }
            self.wake(number, false);
        }
    }
}
