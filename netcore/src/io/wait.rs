//! Ways for a loop to wait: inside its call, in `poll`, by calling again, or by yielding to the other flows of its
//! thread ([`crate::pattern`]'s `multiplex`). Chosen once, before the loop.

use std::{io, os::fd::AsFd, time::Duration};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll, ppoll},
    sys::{socket::MsgFlags, time::TimeSpec},
    time::{ClockId, ClockNanosleepFlags, clock_nanosleep},
};

use super::retry;
use crate::{
    measure::clock::monotonic_ns,
    transport::{
        Link,
        listener::{Connection, Event},
    },
};

/// Longest wait at a time, so that the end of the test is noticed, nanoseconds.
const LOOK_UP_NS: u64 = 50_000_000;

/// A way to sleep.
pub trait Sleep {
    /// Whether a sleep ends shortly before its due time and the thread spins the rest, which is more precise than a
    /// wake-up.
    const LEADS: bool = true;

    /// Sleeps until an instant of the monotonic clock, or less.
    #[inline]
    fn sleep_until(&self, wake_ns: u64) {
        let time = TimeSpec::from_duration(Duration::from_nanos(wake_ns));
        // After a signal the caller looks at the clock again, as after every wake-up.
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time);
    }
}

/// A way to wait for a socket.
pub trait Wait: Sleep {
    /// Flags of the next call.
    fn flags(&self) -> MsgFlags;

    /// Before a receive: waits for input, at most until an instant of the monotonic clock. `true`: some may have come.
    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool>;

    /// After a receive that found nothing: waits for input, up to `at_most_ns`; returns at once if the call itself has
    /// waited. `true`: some may have come.
    fn after_nothing(&self, link: &Link, at_most_ns: u64) -> io::Result<bool>;

    /// After a send that found no room: waits for room.
    fn for_room(&self, link: &Link, _at_most_ns: u64) -> io::Result<()>;

    /// After a call on a connection of a connect pattern that would block, or has timed out: waits until a repeated
    /// call may succeed. `false`: only the test's end can tell whether to repeat it.
    fn for_connection(&self, connection: &Connection, event: Event) -> io::Result<bool>;

    /// After a call that succeeded: the wait for its event, if there was one, is over.
    #[inline]
    fn succeeded(&self, _event: Event) {}

    /// Before an operation: others may have their turn.
    #[inline]
    fn turn(&self) {}

    /// Before an operation of many calls: others have their turn.
    #[inline]
    fn yield_now(&self) {}
}

/// Waits until the link may be readable, at most until an instant and [`LOOK_UP_NS`].
fn poll_input(link: &Link, until_ns: u64) -> io::Result<bool> {
    poll_for(&link.receive, PollFlags::POLLIN, until_ns.saturating_sub(monotonic_ns()))
}

/// Waits for an event, at most so long and [`LOOK_UP_NS`]. `true`: it has come.
pub(super) fn poll_for(fd: &impl AsFd, event: PollFlags, at_most_ns: u64) -> io::Result<bool> {
    let timeout = TimeSpec::from_duration(Duration::from_nanos(at_most_ns.min(LOOK_UP_NS)));
    match ppoll(&mut [PollFd::new(fd.as_fd(), event)], Some(timeout), None) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::Error::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the link is readable now.
pub fn has_input(link: &Link) -> io::Result<bool> {
    let mut fds = [PollFd::new(link.receive.as_fd(), PollFlags::POLLIN)];
    retry(|| poll(&mut fds, PollTimeout::ZERO)).map(|ready| ready > 0)
}

/// Inside the call. An empty return has waited as long as the socket's timeout allows.
pub struct Block;

impl Sleep for Block {}

impl Wait for Block {
    #[inline]
    fn flags(&self) -> MsgFlags {
        MsgFlags::empty()
    }

    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool> {
        poll_input(link, until_ns)
    }

    #[inline]
    fn after_nothing(&self, _link: &Link, _at_most_ns: u64) -> io::Result<bool> {
        Ok(false)
    }

    #[inline]
    fn for_room(&self, _link: &Link, _at_most_ns: u64) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn for_connection(&self, _connection: &Connection, _event: Event) -> io::Result<bool> {
        Ok(false)
    }
}

/// In `poll`, which hpcbench calls non-blocking. The second system call shows in the CPU columns. For streams, which
/// wait without a bound: `shutdown` on the socket frees the thread.
pub struct Poll;

impl Sleep for Poll {}

impl Wait for Poll {
    #[inline]
    fn flags(&self) -> MsgFlags {
        MsgFlags::MSG_DONTWAIT
    }

    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool> {
        poll_input(link, until_ns)
    }

    #[inline]
    fn after_nothing(&self, link: &Link, _at_most_ns: u64) -> io::Result<bool> {
        retry(|| poll(&mut [PollFd::new(link.receive.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)).map(|_| true)
    }

    #[inline]
    fn for_room(&self, link: &Link, _at_most_ns: u64) -> io::Result<()> {
        retry(|| poll(&mut [PollFd::new(link.send.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)).map(|_| ())
    }

    fn for_connection(&self, connection: &Connection, event: Event) -> io::Result<bool> {
        let flags = if event == Event::Input { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        retry(|| poll(&mut [PollFd::new(connection.socket.as_fd(), flags)], PollTimeout::NONE)).map(|_| true)
    }
}
