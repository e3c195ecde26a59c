//! The way by which the ranks of a test talk: one type for all ways, so that every algorithm is compiled once. By a mesh of
//! connections, or by MPI: the library's own collective operations, and its messages for everything else.
//!
//! A rank that waits in the library cannot be freed. Where a rank dies, the launcher ends all of them.

use super::{Communicator, RankError, mesh::Mesh, prepared::uneven};
use crate::{
    error::EndError,
    mpi::{Group, MpiError, Number, Place},
    spec::ranks::Operation,
    transport::{Deadline, connection::Token, meeting::Endpoints, mpi},
};

/// The connected ranks of a test.
pub enum Backend {
    Mesh(Mesh),
    Mpi(Ranks),
}

impl Communicator for Backend {
    #[inline]
    fn rank(&self) -> usize {
        match self {
            Self::Mesh(ranks) => ranks.rank(),
            Self::Mpi(ranks) => ranks.rank(),
        }
    }

    #[inline]
    fn size(&self) -> usize {
        match self {
            Self::Mesh(ranks) => ranks.size(),
            Self::Mpi(ranks) => ranks.size(),
        }
    }

    #[inline]
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        match self {
            Self::Mesh(ranks) => ranks.send(to, bytes),
            Self::Mpi(ranks) => ranks.send(to, bytes),
        }
    }

    #[inline]
    fn receive(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        match self {
            Self::Mesh(ranks) => ranks.receive(from, buffer),
            Self::Mpi(ranks) => ranks.receive(from, buffer),
        }
    }

    #[inline]
    fn exchange(&mut self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        match self {
            Self::Mesh(ranks) => ranks.exchange(to, bytes, from, buffer),
            Self::Mpi(ranks) => ranks.exchange(to, bytes, from, buffer),
        }
    }

    fn has_collectives(&self) -> bool {
        match self {
            Self::Mesh(ranks) => ranks.has_collectives(),
            Self::Mpi(ranks) => ranks.has_collectives(),
        }
    }

    fn collective(
        &mut self,
        operation: Operation,
        message: usize,
        send: &[u8],
        receive: &mut [u8],
    ) -> Result<(), RankError> {
        match self {
            Self::Mesh(ranks) => ranks.collective(operation, message, send, receive),
            Self::Mpi(ranks) => ranks.collective(operation, message, send, receive),
        }
    }

    fn go_on(&self) -> Result<(), RankError> {
        match self {
            Self::Mesh(ranks) => ranks.go_on(),
            Self::Mpi(ranks) => ranks.go_on(),
        }
    }

    fn part(&mut self) {
        match self {
            Self::Mesh(ranks) => ranks.part(),
            Self::Mpi(ranks) => ranks.part(),
        }
    }
}

/// This rank's part of a group.
pub struct Ranks(Group);

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
        let sums = Number::Double;
        match operation {
            Operation::Barrier => library.barrier(comm),
            Operation::Bcast => library.broadcast(comm, receive, ROOT),
            Operation::Reduce => library.reduce(comm, sums, send, receive, ROOT),
            Operation::Allreduce => library.reduce_to_all(comm, sums, send, receive),
            Operation::Gather => library.gather(comm, send, receive, ROOT),
            Operation::Scatter => library.scatter(comm, send, receive, ROOT),
            Operation::Allgather => library.gather_to_all(comm, send, receive),
            Operation::Alltoall => library.all_to_all(comm, send, receive),
            Operation::Alltoallv => {
                let (rank, size) = (self.rank(), self.size());
                library.all_to_all_of(comm, |peer| uneven(message, rank, peer, size), send, receive)
            }
            Operation::ReduceScatter => library.reduce_scatter(comm, sums, send, receive),
            Operation::Ring | Operation::Halo3d | Operation::Butterfly | Operation::Wavefront => {
                return Err(RankError::Library { call: operation.name(), reason: "no library has it".to_owned() });
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
