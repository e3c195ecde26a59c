//! Tests of N ranks: what ranks say to each other, over which connections, and how long it takes.

/// The other ranks of a test, as one of them sees them. Ranks count from 0. Both sides of a message know its length and its
/// place in the order of their messages, so nothing but payload need travel.
pub trait Communicator {
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
