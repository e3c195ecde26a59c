//! The submission ring of a thread (io_uring): its flows push operations, and one system call submits all of them and
//! takes the completions that are there.
//!
//! An operation is a call that suspends its flow ([`Ring::send`], [`Ring::receive`]) and returns once the kernel has
//! completed it. The memory that the kernel reads or writes is borrowed for that long. If a flow is dropped while it is
//! suspended, the operation is cancelled and its completion awaited before the borrow ends. Small messages are received
//! by one lasting operation per flow (multishot) into memory of the ring's own ([`provided`]), which is freed when no
//! operation is left.

mod provided;

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::RawFd,
    time::Duration,
};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nix::sys::resource::{Resource, getrlimit};

use crate::{measure::clock::monotonic_ns, spec::memory};
use provided::{GROUP, Provided, Queue};

/// Flag of a receive in `ioprio`: the socket is empty, so wait for input before the first try.
const POLL_FIRST: u16 = 1;

/// Longest wait between two tries to cancel, nanoseconds.
const RETRY_NS: u64 = 50_000_000;

/// Kind of a request, in the lowest bits of its mark.
const OPERATION: u64 = 0;
const SHOTS: u64 = 1;
const CANCEL: u64 = 2;

/// Completions that a suspended flow goes on after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Operation,
    Shot,
}

/// Requests of one flow.
struct Flow {
    awaited: Cell<Awaited>,
    /// Whether an operation is in the kernel's hands, and its result until it is taken.
    is_pending: Cell<bool>,
    result: Cell<i32>,
    /// Whether the last receive has left input behind.
    has_more: Cell<bool>,
    /// Whether the lasting receive is in the kernel's hands, and its last result once it is not.
    is_armed: Cell<bool>,
    ended: Cell<Option<i32>>,
    /// Messages that the lasting receive has brought.
    shots: Cell<Queue>,
}

/// Ring of a thread.
pub struct Ring {
    uring: RefCell<IoUring>,
    flows: Vec<Flow>,
    provided: Option<Provided>,
    /// Flows whose awaited completion has come.
    woken: RefCell<Vec<usize>>,
    /// Bytes of the operations that were pushed and are not submitted, without receives that have to wait.
    queued_bytes: Cell<usize>,
    completions: Cell<u64>,
    calls: Cell<u64>,
}

/// Cancels the operation of a flow that is dropped while it is suspended.
struct Pending<'r> {
    ring: &'r Ring,
    flow: usize,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.ring.settle(self.flow);
    }
}

impl Ring {
    /// Makes a ring for flows over these sockets. Receives of `receive_bytes` are served from memory of the ring, if
    /// they are small and the kernel can.
    pub fn new(sockets: &[RawFd], receive_bytes: usize) -> io::Result<Self> {
        let (uring, is_deferred) = set_up(sockets.len()).map_err(|error| explain(&error))?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::other("this kernel's io_uring is too old: it needs Linux 5.11 or newer"));
        }
        uring.submitter().register_files(sockets).map_err(|error| explain(&error))?;
        // A kernel that defers its work (6.1) also has lasting receives (6.0).
        let provided = if is_deferred && (1..=memory::LARGEST_RECEIVE).contains(&receive_bytes) {
            Some(Provided::new(&uring, sockets.len(), receive_bytes).map_err(|error| explain(&error))?)
        } else {
            None
        };
        let flow = || Flow {
            awaited: Cell::new(Awaited::Nothing),
            is_pending: Cell::new(false),
            result: Cell::new(0),
            has_more: Cell::new(true),
            is_armed: Cell::new(false),
            ended: Cell::new(None),
            shots: Cell::default(),
        };
        Ok(Self {
            uring: RefCell::new(uring),
            flows: sockets.iter().map(|_| flow()).collect(),
            provided,
            woken: RefCell::new(Vec::with_capacity(sockets.len())),
            queued_bytes: Cell::new(0),
            completions: Cell::new(0),
            calls: Cell::new(0),
        })
    }

    /// Completions taken and system calls made so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.completions.get(), self.calls.get())
    }

    /// Sends bytes of a flow; returns how many the kernel took. `flags` as of `send`.
    #[inline]
    pub fn send(&self, flow: usize, bytes: &[u8], flags: libc::c_int, suspend: impl FnMut()) -> io::Result<usize> {
        let entry = opcode::Send::new(fixed(flow), bytes.as_ptr(), length(bytes.len())).flags(flags);
        self.queued_bytes.set(self.queued_bytes.get() + bytes.len());
        count(self.operate(flow, entry.build(), suspend))
    }

    /// Receives into a buffer; 0 is the end of the stream. `None`: nothing has come until an instant. `suspend` returns
    /// when a completion that the flow awaits has come, or at the instant that it is given.
    #[inline]
    pub fn receive(
        &self,
        flow: usize,
        buffer: &mut [u8],
        until_ns: u64,
        mut suspend: impl FnMut(u64),
    ) -> io::Result<Option<usize>> {
        if let Some(provided) = &self.provided {
            let state = &self.flows[flow];
            loop {
                if let Some(n) = provided.take(&state.shots, buffer) {
                    return Ok(Some(n));
                }
                match state.ended.get() {
                    None => {}
                    // All of the ring's memory is in use: this time into the caller's.
                    Some(result) if result == -libc::ENOBUFS => {
                        state.ended.set(None);
                        break;
                    }
                    Some(result) => return count(result).map(Some),
                }
                if !state.is_armed.replace(true) {
                    self.push(opcode::RecvMulti::new(fixed(flow), GROUP).build(), flow, SHOTS);
                }
                state.awaited.set(Awaited::Shot);
                suspend(until_ns);
                if state.awaited.replace(Awaited::Nothing) == Awaited::Shot && monotonic_ns() >= until_ns {
                    return Ok(None);
                }
            }
        }
        self.receive_once(flow, buffer, until_ns, suspend)
    }

    fn receive_once(
        &self,
        flow: usize,
        buffer: &mut [u8],
        until_ns: u64,
        mut suspend: impl FnMut(u64),
    ) -> io::Result<Option<usize>> {
        let state = &self.flows[flow];
        let is_ready = state.has_more.get();
        let poll_first = if is_ready { 0 } else { POLL_FIRST };
        let entry = opcode::Recv::new(fixed(flow), buffer.as_mut_ptr(), length(buffer.len())).ioprio(poll_first);
        if is_ready {
            self.queued_bytes.set(self.queued_bytes.get() + buffer.len());
        }
        let mut until_ns = until_ns;
        let mut is_late = false;
        let result = self.operate(flow, entry.build(), || {
            suspend(until_ns);
            if state.is_pending.get() && !is_late && monotonic_ns() >= until_ns {
                (is_late, until_ns) = (true, u64::MAX);
                self.cancel(flow);
            }
        });
        if is_late && result == -libc::ECANCELED { Ok(None) } else { count(result).map(Some) }
    }

    /// Pushes an operation and suspends the flow until it is complete; returns its result.
    #[inline]
    fn operate(&self, flow: usize, entry: squeue::Entry, mut suspend: impl FnMut()) -> i32 {
        let state = &self.flows[flow];
        assert!(!state.is_pending.replace(true), "a flow has one operation at a time");
        self.push(entry, flow, OPERATION);
        let pending = Pending { ring: self, flow };
        while state.is_pending.get() {
            state.awaited.set(Awaited::Operation);
            suspend();
        }
        std::mem::forget(pending);
        state.result.get()
    }

    /// Pushes a request of a flow, to be submitted by [`Ring::enter`].
    #[inline]
    fn push(&self, entry: squeue::Entry, flow: usize, kind: u64) {
        let entry = entry.user_data((flow as u64) << 2 | kind);
        loop {
            let mut uring = self.uring.borrow_mut();
            // SAFETY: an operation's memory is borrowed by the caller of `operate`, which does not return, and is not unwound,
            // before the completion has been taken. A lasting receive is given memory of `provided`, which lives until `drop` has
            // taken the last completion; a cancellation has no memory.
            if unsafe { uring.submission().push(&entry) }.is_ok() {
                return;
            }
            drop(uring);
            // The queue is full: make room.
            let _ = self.enter(0);
            self.reap();
        }
    }

    /// Bytes of the operations that were pushed and are not submitted, without receives that have to wait.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes.get()
    }

    /// Submits what was pushed, without waiting.
    #[inline]
    pub fn submit(&self) -> io::Result<()> {
        let submitted = self.uring.borrow().submit();
        self.entered(submitted)
    }

    /// Submits what was pushed, and waits until at least one completion is there, at most until an instant of the
    /// monotonic clock.
    #[inline]
    pub fn enter(&self, until_ns: u64) -> io::Result<()> {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        let left = types::Timespec::from(Duration::from_nanos(left_ns));
        let arguments = types::SubmitArgs::new().timespec(&left);
        let entered = self.uring.borrow().submitter().submit_with_args(1, &arguments);
        self.entered(entered)
    }

    /// Counts a call, and passes over the errors that a later call mends.
    #[inline]
    fn entered(&self, result: io::Result<usize>) -> io::Result<()> {
        self.calls.set(self.calls.get() + 1);
        self.queued_bytes.set(0);
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time is over; a signal; more completions are there than the queue holds.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the completions that are there.
    #[inline]
    pub fn reap(&self) {
        let mut uring = self.uring.borrow_mut();
        let mut woken = self.woken.borrow_mut();
        let mut completions = 0;
        for entry in uring.completion() {
            let mark = entry.user_data();
            // The mark was made from a `usize`.
            let flow = usize::try_from(mark >> 2).unwrap_or(usize::MAX);
            let Some(state) = self.flows.get(flow) else { continue };
            let awaited = match mark & 3 {
                OPERATION => {
                    state.result.set(entry.result());
                    state.has_more.set(cqueue::sock_nonempty(entry.flags()));
                    state.is_pending.set(false);
                    Awaited::Operation
                }
                SHOTS => {
                    self.shot(state, &entry);
                    Awaited::Shot
                }
                _ => continue,
            };
            completions += 1;
            if state.awaited.get() == awaited {
                state.awaited.set(Awaited::Nothing);
                woken.push(flow);
            }
        }
        self.completions.set(self.completions.get() + completions);
    }

    /// Keeps what a completion of a lasting receive has brought.
    #[inline]
    fn shot(&self, state: &Flow, entry: &cqueue::Entry) {
        let (result, flags) = (entry.result(), entry.flags());
        if let Some((provided, number)) = self.provided.as_ref().zip(cqueue::buffer_select(flags)) {
            provided.came(&state.shots, number, u32::try_from(result).unwrap_or(0));
        }
        if !cqueue::more(flags) {
            state.is_armed.set(false);
            if result <= 0 {
                state.ended.set(Some(result));
            }
        }
    }

    /// Passes each flow whose awaited completion has come to `wake`.
    #[inline]
    pub fn woken(&self, wake: impl FnMut(usize)) {
        self.woken.borrow_mut().drain(..).for_each(wake);
    }

    /// Asks the kernel to end what is under way for a flow.
    pub fn cancel(&self, flow: usize) {
        let state = &self.flows[flow];
        for (kind, is_there) in [(OPERATION, state.is_pending.get()), (SHOTS, state.is_armed.get())] {
            if is_there {
                self.push(opcode::AsyncCancel::new((flow as u64) << 2 | kind).build(), flow, CANCEL);
            }
        }
    }

    /// Ends what is under way for a flow, and returns when the kernel has let go of it. A kernel that never does keeps the
    /// thread here, and the memory with it.
    fn settle(&self, flow: usize) {
        let state = &self.flows[flow];
        while state.is_pending.get() || state.is_armed.get() {
            self.cancel(flow);
            if self.enter(monotonic_ns() + RETRY_NS).is_err() {
                std::thread::sleep(Duration::from_nanos(RETRY_NS));
            }
            self.reap();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        (0..self.flows.len()).for_each(|flow| self.settle(flow));
        // At once: the ring itself ends later, and would keep the sockets open until then.
        let _ = self.uring.borrow().submitter().unregister_files();
    }
}

/// The registered socket of a flow.
#[inline]
fn fixed(flow: usize) -> types::Fixed {
    types::Fixed(u32::try_from(flow).unwrap_or(u32::MAX))
}

/// Length of a buffer in a request.
#[inline]
fn length(bytes: usize) -> u32 {
    // More at once than any socket takes, and as a result still a positive `i32`.
    u32::try_from(bytes).unwrap_or(u32::MAX).min(1 << 30)
}

/// Result of a request as a count of bytes.
#[inline]
fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| match -result {
        libc::ECANCELED => io::ErrorKind::ConnectionAborted.into(),
        errno => io::Error::from_raw_os_error(errno),
    })
}

/// Flows that the queue of submissions has room for, at most: it has up to 32768 entries.
const MOST_FLOWS: usize = 8192;

/// Makes the ring with the best flags that the kernel knows; says whether its work is deferred to the thread's calls.
pub fn set_up(flows: usize) -> io::Result<(IoUring, bool)> {
    let flows = flows.clamp(1, MOST_FLOWS);
    // Of each flow an operation and a lasting receive, and the cancellation of each.
    let submissions = u32::try_from(flows * 4).unwrap_or(u32::MAX).next_power_of_two();
    // A lasting receive completes once for each buffer.
    let completions = submissions + u32::from(memory::ring_buffers(flows));
    let builder = || {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions);
        builder
    };
    let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    match builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(submissions) {
        Err(error) if is_unknown(&error) => {}
        made => return made.map(|uring| (uring, true)),
    }
    match builder().setup_coop_taskrun().build(submissions) {
        Err(error) if is_unknown(&error) => {}
        made => return made.map(|uring| (uring, false)),
    }
    builder().build(submissions).map(|uring| (uring, false))
}

/// Adds why there is no ring, and the remedy.
pub fn explain(error: &io::Error) -> io::Error {
    let sentence = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring (ENOSYS), or a container hides it: leave `io` out".to_owned()
        }
        Some(libc::EPERM) => {
            forbidden(&std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default())
        }
        Some(libc::ENOMEM) => {
            let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft) / 1024;
            format!(
                "no memory for the ring and its buffers (ENOMEM); locked memory is limited to {limit} KiB: raise \
                 `ulimit -l`, or use fewer streams"
            )
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), sentence)
}

/// Sentence for EPERM with this value of the sysctl `kernel.io_uring_disabled`.
fn forbidden(disabled: &str) -> String {
    let (cause, remedy) = match disabled.trim() {
        "1" => (
            "the sysctl kernel.io_uring_disabled is 1",
            "add the user to the group of kernel.io_uring_group, or set kernel.io_uring_disabled=0",
        ),
        "2" => ("the sysctl kernel.io_uring_disabled is 2", "set it to 0"),
        _ => ("EPERM: a filter of system calls, as containers have, forbids it", "allow io_uring_setup there"),
    };
    format!("io_uring is forbidden here ({cause}): {remedy}, or leave `io` out")
}

#[cfg(test)]
mod tests;
