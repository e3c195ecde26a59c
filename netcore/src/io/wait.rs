//! Ways for a loop to wait: inside its call, in `poll`, by calling again, or by yielding to the other flows of its
//! thread ([`crate::pattern`]'s `multiplex`). Chosen once, before the loop.

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::sched_getcpu,
    sys::{socket::MsgFlags, time::TimeSpec},
    time::{ClockId, ClockNanosleepFlags, clock_nanosleep},
};

use super::retry;
use crate::{
    measure::{clock::monotonic_ns, watch::Watch},
    report::Spinning,
    sys::{self, opt},
    transport::{
        Link,
        listener::{Connection, Event},
    },
};

/// Longest wait at a time, so that the end of the test is noticed, nanoseconds.
pub(crate) const LOOK_UP_NS: u64 = 50_000_000;

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
fn poll_for(fd: &impl AsFd, event: PollFlags, at_most_ns: u64) -> io::Result<bool> {
    sys::wait_for(fd, event, Duration::from_nanos(at_most_ns.min(LOOK_UP_NS)))
}

/// Whether the link is readable now.
pub fn has_input(link: &Link) -> io::Result<bool> {
    sys::wait_for(&link.receive, PollFlags::POLLIN, Duration::ZERO)
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
        retry(|| poll(&mut [PollFd::new(connection.socket.as_fd(), flags_of(event))], PollTimeout::NONE)).map(|_| true)
    }
}

// `io: spin`: repeats a call for a while, then makes one that blocks.
//
// Spinning saves the wake-up of an idle CPU while the peer runs on another CPU. On the peer's CPU a spin only delays the
// answer that it waits for. Three rules bound it:
//
// - A wait that outlasts [`BOUND_NS`] goes on in a blocking call, or in `poll` on a socket whose calls never block.
// - After a spin in vain the next calls block at once: two at first, twice as many after each further one in a row, up to
//   [`MOST_AT_REST`]. A spin that ends in time resets this. The rule needs no help of the socket.
// - Where both ends are on one host, SO_INCOMING_CPU names the CPU on which the peer sent the data that has just been
//   received. If that is this thread's CPU after a spin in vain, calls block at once until one of the two has moved. (Later it
//   may be the CPU of an acknowledgement, which this thread's own send has made the peer's kernel send.) A plan that pins
//   both threads to one CPU says the same before the first call.

/// Longest spin of a wait, nanoseconds: several round trips between two CPUs, and a small part of a thread's time slice.
const BOUND_NS: u64 = 100_000;

/// Most calls in a row that block after spins in vain: at 10 µs each, the next spin costs a hundredth of them.
const MOST_AT_REST: u32 = 1024;

/// Calls that block on a shared CPU before the next look whether it still is one.
const CALLS_PER_LOOK: u32 = 64;

/// The form of the next calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// They return at once. 0, or the begin of the present wait: nanoseconds of the monotonic clock.
    Spins(u64),
    /// They block, so many more of them: spins were in vain.
    Rests(u32),
    /// They block, since the peer is on this CPU; so many more before the next look.
    Shares(u32),
}

/// In a loop of calls up to a bound, and then inside one.
pub struct Spin {
    watch: Arc<Watch>,
    /// Whether both ends are known to be on one host.
    within_host: bool,
    /// Socket of every call that receives; `None` where each operation has a connection of its own.
    lasting: Option<Arc<OwnedFd>>,
    /// CPU of both threads, if they are pinned to one.
    pinned: Option<u32>,
    mode: Cell<Mode>,
    /// Event of the last wait.
    event: Cell<Event>,
    /// Calls at rest after the last spin, if it was in vain.
    last_rest: Cell<u32>,
    counts: Cell<Spinning>,
}

impl Spin {
    /// `within_host`: whether both ends are on this host. `pinned`: the CPU of both threads, if the plan pins them to one.
    pub fn new(watch: Arc<Watch>, link: &Link, within_host: bool, pinned: Option<u32>) -> Self {
        let has_connections = link.listener.is_some() || link.connector.is_some();
        Self {
            watch,
            within_host,
            lasting: (!has_connections).then(|| link.receive.clone()),
            pinned,
            mode: Cell::new(if pinned.is_some() { Mode::Shares(CALLS_PER_LOOK) } else { Mode::Spins(0) }),
            event: Cell::new(Event::Input),
            last_rest: Cell::new(0),
            counts: Cell::new(Spinning { cpu: pinned, ..Spinning::default() }),
        }
    }

    /// After a call that would block, or has timed out. `true`: repeat it at once, as a call of the present mode; `false`:
    /// calls block, and this one has waited.
    fn go_on(&self, event: Event, at_most_ns: u64) -> bool {
        match self.mode.get() {
            Mode::Spins(0) => {
                self.event.set(event);
                self.mode.set(Mode::Spins(monotonic_ns()));
                true
            }
            Mode::Spins(since_ns) if monotonic_ns() - since_ns < at_most_ns.min(BOUND_NS) => {
                std::hint::spin_loop();
                true
            }
            Mode::Spins(_) => {
                self.last_rest.set((self.last_rest.get() * 2).clamp(2, MOST_AT_REST));
                self.mode.set(Mode::Rests(self.last_rest.get()));
                true
            }
            Mode::Rests(_) | Mode::Shares(_) => false,
        }
    }

    /// This thread's CPU, if the last packet of the peer was sent there. Only a packet that stays within the host is received
    /// on the CPU of its sender.
    fn shared_cpu(&self) -> Option<u32> {
        let socket = self.lasting.as_ref().filter(|_| self.within_host)?;
        let there = u32::try_from(opt::get_int(socket, opt::SO_INCOMING_CPU).ok()?).ok()?;
        let here = u32::try_from(sched_getcpu().ok()?).ok()?;
        (here == there).then_some(here)
    }

    /// Counts a call that blocked, or may have; returns the mode of the next one.
    fn after_blocking(&self, counts: &mut Spinning) -> Mode {
        let mode = self.mode.get();
        counts.waits += 1;
        counts.at_once += u64::from(matches!(mode, Mode::Shares(_)));
        match mode {
            Mode::Rests(left @ 1..) => return Mode::Rests(left - 1),
            Mode::Shares(left @ 1..) => return Mode::Shares(left - 1),
            _ => {}
        }
        let received = self.event.get() == Event::Input;
        let cpu = self.pinned.or_else(|| if received { self.shared_cpu() } else { None });
        counts.cpu = cpu.or(counts.cpu);
        if cpu.is_some() { Mode::Shares(CALLS_PER_LOOK) } else { Mode::Spins(0) }
    }
}

fn flags_of(event: Event) -> PollFlags {
    if event == Event::Input { PollFlags::POLLIN } else { PollFlags::POLLOUT }
}

impl Sleep for Spin {}

impl Wait for Spin {
    #[inline]
    fn flags(&self) -> MsgFlags {
        if matches!(self.mode.get(), Mode::Spins(_)) { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() }
    }

    fn for_input(&self, link: &Link, until_ns: u64) -> io::Result<bool> {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        if left_ns > 0 && self.go_on(Event::Input, u64::MAX) {
            return Ok(true);
        }
        if matches!(self.mode.get(), Mode::Spins(_)) {
            // The instant has come before the end of the spin.
            self.mode.set(Mode::Spins(0));
            return Ok(false);
        }
        poll_for(&link.receive, PollFlags::POLLIN, left_ns)
    }

    #[inline]
    fn after_nothing(&self, link: &Link, at_most_ns: u64) -> io::Result<bool> {
        if self.go_on(Event::Input, at_most_ns) {
            return Ok(true);
        }
        // Only accept(2) never blocks here.
        let Some(listener) = &link.listener else { return Ok(false) };
        poll_for(listener.socket(), PollFlags::POLLIN, at_most_ns)
    }

    #[inline]
    fn for_room(&self, _link: &Link, at_most_ns: u64) -> io::Result<()> {
        self.go_on(Event::Room, at_most_ns);
        Ok(())
    }

    fn for_connection(&self, connection: &Connection, event: Event) -> io::Result<bool> {
        if self.go_on(event, u64::MAX) {
            return Ok(true);
        }
        // A socket of the near end never blocks. The wait has no bound: a busy peer may take longer than any.
        poll_for(&connection.socket, flags_of(event), u64::MAX).map(|_| true)
    }

    #[inline]
    fn succeeded(&self, event: Event) {
        let mode = self.mode.get();
        let of_another = self.event.get() != event && self.pinned.is_none();
        if mode == Mode::Spins(0) || of_another {
            return;
        }
        let mut counts = self.counts.get();
        let next = if matches!(mode, Mode::Spins(_)) {
            counts.waits += 1;
            counts.spun += 1;
            self.last_rest.set(0);
            Mode::Spins(0)
        } else {
            self.after_blocking(&mut counts)
        };
        self.counts.set(counts);
        self.mode.set(next);
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        self.watch.spun(self.counts.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(pinned: Option<u32>) -> (Arc<Watch>, Spin) {
        let (ours, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let watch = Arc::new(Watch::new(1));
        let spin = Spin::new(watch.clone(), &Link::of_socket(0, ours.into()), true, pinned);
        (watch, spin)
    }

    /// Calls that block before the next spin.
    fn calls_at_rest(spin: &Spin) -> u32 {
        let mut calls = 0;
        while spin.flags().is_empty() {
            spin.succeeded(Event::Input);
            calls += 1;
        }
        calls
    }

    #[test]
    fn spins_in_vain_become_rare_until_one_is_not() {
        let (watch, spin) = spin(None);
        // A spin without time is in vain: the first call begins it, the second ends it.
        let in_vain = || {
            assert!(spin.go_on(Event::Input, 0) && spin.go_on(Event::Input, 0), "the call is repeated");
            assert!(!spin.go_on(Event::Input, 0), "and blocks");
            calls_at_rest(&spin)
        };
        // The call that goes on with the wait, and those at rest.
        assert_eq!([in_vain(), in_vain(), in_vain()], [3, 5, 9]);
        assert_eq!((0..20).map(|_| in_vain()).max(), Some(MOST_AT_REST + 1));
        assert!(spin.go_on(Event::Input, u64::MAX), "a spin that ends in time");
        spin.succeeded(Event::Room);
        assert!(spin.go_on(Event::Input, u64::MAX), "a send does not end the wait for input");
        spin.succeeded(Event::Input);
        assert_eq!(in_vain(), 3);
        drop(spin);
        let counts = watch.spinning();
        assert_eq!((counts.spun, counts.at_once, counts.cpu), (1, 0, None));
    }

    #[test]
    fn a_thread_that_is_pinned_beside_its_peer_never_spins() {
        let (watch, spin) = spin(Some(3));
        for _ in 0..200 {
            assert!(spin.flags().is_empty() && !spin.go_on(Event::Input, u64::MAX));
            spin.succeeded(Event::Input);
        }
        drop(spin);
        assert_eq!(watch.spinning(), Spinning { waits: 200, spun: 0, at_once: 200, cpu: Some(3) });
    }
}
