//! One rank of one iteration: its connections, buffers and thread.
//!
//! The life of a rank: [`RankEnd::prepare`] (all ranks), [`RankEnd::endpoints`] of all travel to all,
//! [`RankEnd::connect`] (all at the same time), [`RankEnd::start`] with an instant on this host's monotonic clock, and from
//! then on a [`RankRunning`] that ends by the stop rule, earlier by [`RankRunning::stop_at`] at rank 0, or at once by
//! [`RankRunning::abort`].

use std::{
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::{
    Communicator, RankError, Ranks, collectives,
    measuring::{self, Loop, Measured},
    mesh::{GRACE, Guard, Listening},
    nas,
    prepared::Prepared,
};
use crate::{
    error::EndError,
    measure::histogram,
    mpi::Place,
    report::{Ending, NicFacts, RankReport},
    spec::{
        Transport,
        ranks::{RanksSpec, Work},
    },
    sys,
    transport::{self, Deadline, control_port::DataPorts},
};

pub use crate::transport::{connection::Token, meeting::Endpoints};

/// One rank before its start.
pub struct RankEnd {
    spec: RanksSpec,
    rank: usize,
    state: State,
    nic: Option<NicFacts>,
}

enum State {
    Listening(Box<Listening>),
    /// Known to the others by its place among the ranks of MPI.
    Placed(Place, Token),
    Connected {
        ranks: Box<dyn Communicator>,
        guard: Arc<Guard>,
        task: Box<Task>,
    },
    /// The attempt to connect has failed.
    Broken,
}

/// The work with its memory.
enum Task {
    Operation(Prepared),
    Nas(nas::Prepared),
}

impl RankEnd {
    /// Listens. `address`: the local address of the data sockets. `ports`: those that others can connect to.
    pub fn prepare(
        spec: &RanksSpec,
        rank: usize,
        (address, ports): (Option<IpAddr>, &DataPorts),
        token: Token,
    ) -> Result<Self, EndError> {
        let state = if spec.transport == Transport::Mpi {
            State::Placed(transport::mpi::rank()?, token)
        } else {
            State::Listening(Box::new(Listening::new(spec, rank, (address, ports), token)?))
        };
        Ok(Self { spec: spec.clone(), rank, state, nic: None })
    }

    /// The endpoints that the other ranks connect to.
    pub fn endpoints(&self) -> Endpoints {
        match &self.state {
            State::Listening(listening) => listening.endpoints(),
            State::Placed(place, _) => Endpoints { mpi: Some(place.clone()), ..Endpoints::default() },
            _ => Endpoints::default(),
        }
    }

    /// Connects to all other ranks and allocates the buffers. `peers`: address and endpoints of each rank in the order of the
    /// ranks, this one among them. Fails with [`EndError::Cancelled`] soon after `cancelled` returns true.
    pub fn connect(
        &mut self,
        peers: &[(IpAddr, Endpoints)],
        deadline: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), EndError> {
        let deadline = Deadline::after(deadline, cancelled);
        let (ranks, guard): (Box<dyn Communicator>, _) = match std::mem::replace(&mut self.state, State::Broken) {
            State::Listening(listening) => {
                let mesh = listening.connect(peers, &deadline)?;
                let guard = mesh.guard().clone();
                (Box::new(mesh), guard)
            }
            State::Placed(_, token) => {
                let endpoints = peers.iter().map(|(_, endpoints)| endpoints);
                let ranks = Ranks::connect(self.rank, endpoints, &token, &deadline)?;
                (Box::new(ranks), Arc::new(Guard::alone()?))
            }
            _ => return Err(EndError::Impossible(format!("rank {} is connected already", self.rank))),
        };
        let task = match self.spec.work {
            Work::Operation { operation, message_bytes, compute_ns } => {
                Task::Operation(Prepared::new(operation, message_bytes, compute_ns, &*ranks)?)
            }
            Work::Nas { kernel, class } => Task::Nas(nas::Prepared::new(kernel, class, &*ranks)?),
        };
        let next = (self.rank + 1) % peers.len();
        self.nic = match &self.spec.socket.device {
            Some(device) => NicFacts::named(device),
            None => NicFacts::towards(peers[next].0),
        };
        self.state = State::Connected { ranks, guard, task: Box::new(task) };
        Ok(())
    }

    /// Starts the rank's thread. The work (first the warm-up) begins at `t0_ns` on this host's `CLOCK_MONOTONIC`.
    pub fn start(self, t0_ns: u64) -> Result<RankRunning, EndError> {
        let Self { spec, rank, state, nic } = self;
        let State::Connected { ranks, guard, task } = state else {
            return Err(EndError::Impossible(format!("rank {rank} is not connected: connect it before starting it")));
        };
        let over = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(EndError::system("no descriptor for an event"))?;
        let shared = Arc::new(Shared { guard, over, stop_at_ns: AtomicU64::new(u64::MAX) });
        let worker = Worker { spec, ranks, task: *task, nic, shared: shared.clone(), t0_ns };
        let run = move || {
            let shared = worker.shared.clone();
            // It is set even if the work breaks down.
            let _over = Over(&shared);
            worker.run()
        };
        let thread = thread::Builder::new()
            .name(format!("rank {rank}"))
            .spawn(run)
            .map_err(EndError::system("no thread for a rank"))?;
        Ok(RankRunning { rank, shared, thread: Some(thread) })
    }
}

/// Shared by the rank's thread and the one that waits for it.
struct Shared {
    guard: Arc<Guard>,
    /// Readable after the rank's end.
    over: EventFd,
    stop_at_ns: AtomicU64,
}

struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // It can fail only for a counter that is full, and then the event is set.
        let _ = self.0.over.write(1);
    }
}

/// A rank at work. Dropping it aborts it. Its descriptor is readable once it has finished.
pub struct RankRunning {
    rank: usize,
    shared: Arc<Shared>,
    /// Present until [`RankRunning::finish`].
    thread: Option<JoinHandle<RankReport>>,
}

impl RankRunning {
    pub fn is_finished(&self) -> bool {
        let mut fds = [PollFd::new(self.shared.over.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Ends the measurement at this instant of the monotonic clock, early but whole, at all ranks. Only rank 0 heeds it.
    pub fn stop_at(&self, monotonic_ns: u64) {
        self.shared.stop_at_ns.fetch_min(monotonic_ns, Relaxed);
    }

    /// Ends the work at once.
    pub fn abort(&self) {
        self.shared.guard.abort();
        // A rank in a library hears of it from rank 0, between two blocks.
        self.stop_at(0);
    }

    /// Waits for the end and returns the report.
    pub fn finish(mut self) -> RankReport {
        self.join().unwrap_or_else(|| {
            let sentence = "the thread of the rank broke down: this is a bug in plumb";
            RankReport::empty(u32::try_from(self.rank).unwrap_or(u32::MAX), Ending::Failed(sentence.to_owned()))
        })
    }

    fn join(&mut self) -> Option<RankReport> {
        self.thread.take()?.join().ok()
    }
}

impl Drop for RankRunning {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.abort();
            let _ = self.join();
        }
    }
}

impl AsFd for RankRunning {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.over.as_fd()
    }
}

/// The rank's thread.
struct Worker {
    spec: RanksSpec,
    ranks: Box<dyn Communicator>,
    task: Task,
    nic: Option<NicFacts>,
    shared: Arc<Shared>,
    t0_ns: u64,
}

impl Worker {
    fn run(mut self) -> RankReport {
        let rank = u32::try_from(self.ranks.rank()).unwrap_or(u32::MAX);
        let mut report = RankReport::empty(rank, Ending::Complete);
        report.library = transport::mpi::library(self.spec.transport);
        report.nic = self.nic.take();
        if let Err(sentence) = self.pin() {
            report.ending = Ending::Failed(sentence);
            return report;
        }
        let done = self.shared.guard.sleep_until(self.t0_ns).and_then(|()| self.work(&mut report));
        if let Err(error) = done.and_then(|()| collectives::part(&mut *self.ranks)) {
            report.ending = Ending::Failed(error.to_string());
            if let RankError::Gone { .. } = error {
                thread::sleep(GRACE);
            }
        }
        report
    }

    fn pin(&self) -> Result<(), String> {
        sys::precise_timers();
        let Some(cpus) = &self.spec.cpus else { return Ok(()) };
        match cpus.0.get(self.ranks.rank() % cpus.0.len().max(1)) {
            Some(cpu) => sys::pin(*cpu),
            None => Ok(()),
        }
    }

    fn work(&mut self, report: &mut RankReport) -> Result<(), RankError> {
        match &mut self.task {
            Task::Operation(prepared) => {
                prepared.algorithm.as_str().clone_into(&mut report.algorithm);
                let mut measured = Measured::default();
                let work = Loop {
                    prepared,
                    warmup_ns: self.spec.warmup_ns,
                    stop: self.spec.stop,
                    integrity: self.spec.integrity,
                    stop_at_ns: &self.shared.stop_at_ns,
                };
                let done = measuring::run(&mut *self.ranks, work, &mut measured);
                fill(report, measured, self.ranks.has_collectives());
                done
            }
            Task::Nas(kernel) => kernel.run(&mut *self.ranks, report),
        }
    }
}

fn fill(report: &mut RankReport, measured: Measured, by_library: bool) {
    report.monotonic_start_ns = measured.monotonic_start_ns;
    report.wall_start_ns = measured.wall_start_ns;
    report.elapsed_ns = measured.elapsed_ns;
    report.operations = measured.operations;
    report.sum_ns = measured.sum_ns;
    report.min_ns = if measured.operations == 0 { 0 } else { measured.min_ns };
    report.max_ns = measured.max_ns;
    report.histogram = histogram::encode(&measured.histogram);
    report.stride = measured.kept.stride;
    report.instants = measured.kept.instants;
    report.communication_ns = measured.sum_ns.saturating_sub(measured.busy_ns);
    report.traffic = (!by_library).then_some(measured.traffic);
    report.thread = measured.thread;
    if measured.stopped {
        report.ending = Ending::Stopped;
    }
}

#[cfg(test)]
mod tests;
