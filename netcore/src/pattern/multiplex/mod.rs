//! Several flows on one thread. Each flow's loop is the one that it would run on a thread of its own, here as a coroutine:
//! where it would wait it gives way, and says for what. What is ready runs in turn; when nothing is, the thread waits for all
//! of them at once.

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
    io::wait::{Wait, has_input},
    measure::clock::monotonic_ns,
    sys::precise_timers,
    transport::{
        Link,
        listener::{Connection, Event},
    },
};

/// Calls that a flow may make before the others have their turn, where none of them would block: enough that what it uses
/// stays in the caches for a while, and so few that the shares of the flows stay even.
const CALLS_PER_TURN: u32 = 8;

/// The stack of a loop, bytes. Only what it uses of it ever becomes memory.
const STACK_BYTES: usize = 256 * 1024;

/// Events that are taken at once.
const EVENTS: usize = 256;

/// Of a wait with a bound: how long `epoll_wait`, which counts in milliseconds, may be trusted with; the rest is precise.
const COARSE_NS: u64 = 1_500_000;

/// The longest wait for input at a time, so that the end of the test is not slept through, nanoseconds.
const LOOK_UP_NS: u64 = 50_000_000;

/// An instant that does not come.
const NEVER: u64 = u64::MAX;

/// What a flow waits for when it yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Yield {
    /// Nothing: the others have their turn.
    Turn,
    /// To receive, at most until an instant of the monotonic clock.
    Input(u64),
    /// To send.
    Room(u64),
    /// That instant.
    Time(u64),
}

/// A flow's way to wait on a thread that carries several.
pub struct Turns<'y> {
    /// It is told whether what was waited for may be there.
    yielder: &'y Yielder<bool, Yield>,
    /// Calls since the others had their turn.
    calls: Cell<u32>,
    /// What its thread waits by, and what tells it that this flow is meant.
    epoll: Rc<Epoll>,
    mark: u64,
}

/// The instant after so long; `u64::MAX`, which never comes, where there is no bound.
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

impl Wait for Turns<'_> {
    const FLAGS: MsgFlags = MsgFlags::MSG_DONTWAIT;
    // Others may be ready meanwhile.
    const LEADS: bool = false;

    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool> {
        // Only what comes after a look is an event.
        let until_ns = until_ns.min(from_now(LOOK_UP_NS));
        Ok(has_input(link)? || self.yield_for(Yield::Input(until_ns)))
    }

    #[inline]
    fn after_nothing(&self, link: &Link, at_most_ns: u64) -> io::Result<bool> {
        let has_come = self.yield_for(Yield::Input(from_now(at_most_ns)));
        // A datagram socket that was shut down is said to be readable, and has nothing to give again and again.
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
            // A connection that has been made is writable: to be told so when only input is waited for would be in vain.
            let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            flags.set(EpollFlags::EPOLLOUT, event == Event::Room);
            let mut registration = EpollEvent::new(flags, self.mark);
            match watched {
                None => self.epoll.add(&*connection.socket, registration)?,
                Some(_) => self.epoll.modify(&*connection.socket, &mut registration)?,
            }
            connection.watched.set(Some(event));
        }
        // Without a bound: a peer that is busy with its other flows may take longer than any look.
        self.yield_for(if event == Event::Input { Yield::Input(NEVER) } else { Yield::Room(NEVER) });
        Ok(true)
    }

    #[inline]
    fn sleep_until(&self, wake_ns: u64) {
        self.yield_for(Yield::Time(wake_ns));
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

/// A loop, and what it waits for.
struct Flow {
    coroutine: Coroutine<bool, Yield, (), DefaultStack>,
    /// Its socket's place in [`Multiplexer::sockets`].
    socket: usize,
}

/// A socket, and who waits for it: to receive, and to send.
struct Socket {
    fd: RawFd,
    reader: Option<usize>,
    writer: Option<usize>,
}

/// Several flows on one thread.
///
/// A socket is registered once, edge-triggered. No edge is lost by that: who waits for a socket has just been told by the
/// kernel that it would block, and no events are taken between the two. The connections of a connect pattern come and go:
/// each is registered when it is first waited for, under its flow's mark, and leaves with its close. So what wakes a flow may
/// have happened to its listener, or to the connection before: it tries again, and waits again.
pub struct Multiplexer {
    epoll: Rc<Epoll>,
    flows: Vec<Flow>,
    /// When each of them goes on at the latest.
    until_ns: Vec<u64>,
    /// How many of them do at some time or other.
    timed: usize,
    sockets: Vec<Socket>,
    /// Who may go on, and whether what was waited for may be there.
    ready: VecDeque<(usize, bool)>,
    /// Loops that have not come to their end.
    left: usize,
}

impl Multiplexer {
    /// Without flows yet.
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

    /// Takes on a loop that waits for this socket, and for connections of its own. It begins with [`Multiplexer::run`].
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

    /// Runs every loop to its end.
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
            let next_ns = if self.timed == 0 { NEVER } else { self.until_ns.iter().copied().min().unwrap_or(NEVER) };
            let came = self.wait(&mut events, next_ns)?;
            events[..came].iter().for_each(|event| self.happened(*event));
            if next_ns <= monotonic_ns() {
                self.wake_due();
            }
        }
    }

    /// Lets the first of those that are ready go on until it gives way.
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

    /// Puts a flow that has waited among those that may go on.
    fn wake(&mut self, number: usize, is_there: bool) {
        self.timed -= usize::from(self.until_ns[number] != NEVER);
        self.until_ns[number] = NEVER;
        self.ready.push_back((number, is_there));
    }

    /// Takes events: at once where somebody is ready, otherwise when there are some, or at an instant.
    fn wait(&self, events: &mut [EpollEvent], until_ns: u64) -> io::Result<usize> {
        let mut timeout = EpollTimeout::ZERO;
        if self.ready.is_empty() && until_ns == NEVER {
            timeout = EpollTimeout::NONE;
        } else if self.ready.is_empty() {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns > COARSE_NS {
                // Less than the fraction that the precise wait is for remains.
                let milliseconds = u16::try_from((left_ns - COARSE_NS / 3) / 1_000_000).unwrap_or(u16::MAX);
                timeout = EpollTimeout::from(milliseconds);
            } else if left_ns > 0 {
                let epoll = PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN);
                // A signal is as good a reason to look as any.
                let _ = ppoll(&mut [epoll], Some(TimeSpec::from_duration(Duration::from_nanos(left_ns))), None);
            }
        }
        match self.epoll.wait(events, timeout) {
            Ok(came) => Ok(came),
            Err(nix::Error::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes those who wait for what has happened to a socket.
    fn happened(&mut self, event: EpollEvent) {
        let flags = event.events();
        let ends = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        // The places were made from a `usize`.
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

    /// Wakes those whose time has come.
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
