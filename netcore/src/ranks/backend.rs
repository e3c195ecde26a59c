//! The way by which the ranks of a test talk: one type for all, so that every algorithm is compiled once.

use super::{Communicator, RankError, mesh::Mesh, mpi::Ranks};
use crate::spec::ranks::Operation;

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
