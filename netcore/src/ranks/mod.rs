//! Tests of N ranks: what ranks say to each other, over which connections, and how long it takes.
//!
//! The ranks of a test talk by one of two [`Communicator`]s, and every algorithm is compiled once for both: a mesh of connections, or
//! MPI, with the library's own collective operations, and its messages for everything else.
//!
//! A rank that waits in the library cannot be freed. Where a rank dies, the launcher ends all of them.

mod collectives;
mod end;
mod measuring;
#[cfg(test)]
mod memory;
mod mesh;
mod nas;
mod prepared;
mod skeletons;

pub use end::{Endpoints, RankEnd, RankRunning, Token};
/// Operations of a kernel by all ranks, as its Mop/s counts them.
pub use nas::operations;

use crate::{
    error::EndError,
    mpi::{Group, MpiError, Place},
    spec::ranks::{MOST_COMPUTE_NS, Operation, RanksSpec, Work},
    transport::{Deadline, mpi},
};
use prepared::uneven;

/// The other ranks of a test, as one of them sees them. Ranks count from 0. Both sides of a message know its length and its
/// place in the order of their messages, so nothing but payload need travel.
pub trait Communicator: Send {
    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends a message. It may return before the message has arrived.
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError>;

    /// Receives the next message of a rank, which is as long as the buffer.
    fn receive(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), RankError>;

    /// Sends one message and receives another at the same time. The ranks may be the same one.
    fn exchange(&mut self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<(), RankError>;

    /// Whether a library has algorithms of its own for collective operations: [`Self::collective`].
    fn has_collectives(&self) -> bool {
        false
    }

    /// A collective operation by the library's own algorithm. `message`: bytes, as [`Operation::facts`] says. The buffers are
    /// those that this rank gives from and gets into; a broadcast has only the second, and sums are of `f64`. The root is
    /// rank 0. The blocks of an alltoallv are as `prepared::uneven` says.
    fn collective(
        &mut self,
        operation: Operation,
        message: usize,
        send: &[u8],
        receive: &mut [u8],
    ) -> Result<(), RankError> {
        let _ = (message, send, receive);
        Err(RankError::Library { call: operation.as_str(), reason: "there is no library".to_owned() })
    }

    /// An error if this rank must leave.
    fn go_on(&self) -> Result<(), RankError> {
        Ok(())
    }

    /// From now on other ranks may leave: their work is done.
    fn part(&mut self) {}
}

/// Why a rank cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    #[error("rank {rank} is gone: {reason}")]
    Gone { rank: usize, reason: String },
    /// The test was given up, on request.
    #[error("the test was given up")]
    Aborted,
    /// A library of message passing failed.
    #[error("{call} failed: {reason}")]
    Library { call: &'static str, reason: String },
    /// A result is wrong.
    #[error("{0}")]
    Wrong(String),
}

/// Why a test is impossible between so many ranks of which each may take so many bytes, as a sentence.
pub fn check(spec: &RanksSpec, ranks: u32, most_bytes: u64) -> Result<(), EndError> {
    match spec.work {
        Work::Operation { operation, message_bytes, compute_ns } => {
            prepared::check(operation, message_bytes, ranks as usize)?;
            if compute_ns > MOST_COMPUTE_NS {
                return Err(EndError::Impossible(format!(
                    "a busy time of {} s before each exchange is more than {} s",
                    compute_ns / 1_000_000_000,
                    MOST_COMPUTE_NS / 1_000_000_000
                )));
            }
        }
        // Any number of ranks has its part of a kernel.
        Work::Nas { .. } => {}
    }
    let bytes = memory_bytes(spec, ranks);
    if bytes > most_bytes {
        return Err(EndError::Impossible(format!(
            "a rank of this test takes {bytes} bytes; a daemon grants {most_bytes}: use smaller messages, a smaller class, or \
             more ranks"
        )));
    }
    Ok(())
}

/// Memory that a test takes at the rank that needs most, bytes.
pub fn memory_bytes(spec: &RanksSpec, ranks: u32) -> u64 {
    match spec.work {
        Work::Operation { operation, message_bytes, .. } => prepared::memory_bytes(operation, message_bytes, ranks),
        Work::Nas { kernel, class } => nas::memory_bytes(kernel, class, ranks),
    }
}

impl RankError {
    /// Whether the sentence of a rank only tells of another one that is gone: that one, or who looked after it, knows why.
    pub fn is_consequence(sentence: &str) -> bool {
        sentence.starts_with("rank ") && sentence.contains(" is gone: ")
    }
}

/// This rank's part of a group.
struct Ranks(Group);

impl From<MpiError> for RankError {
    fn from(error: MpiError) -> Self {
        let MpiError { call, text } = error;
        Self::Library { call, reason: text }
    }
}

impl Ranks {
    /// The group of all ranks of a test, in time. `peers`: endpoints of each rank, this one among them.
    pub fn connect<'e>(
        rank: usize,
        peers: impl Iterator<Item = &'e Endpoints>,
        token: &Token,
        deadline: &Deadline<'_>,
    ) -> Result<Self, EndError> {
        let places: Option<Vec<Place>> = peers.map(|endpoints| endpoints.mpi.clone()).collect();
        let places = places.ok_or_else(|| EndError::Impossible("a rank did not say its place in MPI".to_owned()))?;
        mpi::group(rank, &places, token, deadline).map(Self)
    }
}

/// The root of every operation that has one.
const ROOT: i32 = 0;

impl Communicator for Ranks {
    #[inline]
    fn rank(&self) -> usize {
        self.0.rank()
    }

    #[inline]
    fn size(&self) -> usize {
        self.0.size()
    }

    #[inline]
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        Ok(self.0.send(to, bytes)?)
    }

    #[inline]
    fn receive(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        whole(self.0.receive(from, buffer)?, buffer)
    }

    #[inline]
    fn exchange(&mut self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        whole(self.0.exchange(to, bytes, from, buffer)?, buffer)
    }

    fn has_collectives(&self) -> bool {
        true
    }

    fn collective(
        &mut self,
        operation: Operation,
        message: usize,
        send: &[u8],
        receive: &mut [u8],
    ) -> Result<(), RankError> {
        let (library, comm) = self.0.parts();
        match operation {
            Operation::Barrier => library.barrier(comm),
            Operation::Bcast => library.broadcast(comm, receive, ROOT),
            Operation::Reduce => library.reduce(comm, send, receive, ROOT),
            Operation::Allreduce => library.reduce_to_all(comm, send, receive),
            Operation::Gather => library.gather(comm, send, receive, ROOT),
            Operation::Scatter => library.scatter(comm, send, receive, ROOT),
            Operation::Allgather => library.gather_to_all(comm, send, receive),
            Operation::Alltoall => library.all_to_all(comm, send, receive),
            Operation::Alltoallv => {
                let (rank, size) = (self.rank(), self.size());
                library.all_to_all_of(comm, |peer| uneven(message, rank, peer, size), send, receive)
            }
            Operation::ReduceScatter => library.reduce_scatter(comm, send, receive),
            Operation::Ring | Operation::Halo3d | Operation::Butterfly | Operation::Wavefront => {
                return Err(RankError::Library { call: operation.as_str(), reason: "no library has it".to_owned() });
            }
        }?;
        Ok(())
    }

    fn part(&mut self) {
        self.0.part();
    }
}

fn whole(came: usize, buffer: &[u8]) -> Result<(), RankError> {
    if came == buffer.len() {
        return Ok(());
    }
    Err(RankError::Wrong(format!("a message of {came} bytes came in the place of one of {}", buffer.len())))
}
