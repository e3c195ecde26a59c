//! Some ranks of the world as a group of their own: messages between any two, and operations of all.

use super::{
    Place,
    library::{Comm, Library, MpiError},
    world::Lease,
};

/// A group of ranks, with the lease of this one.
pub struct Group {
    lease: Lease,
    comm: Comm,
    rank: usize,
    size: usize,
    /// Whether all ranks have done their work.
    parted: bool,
}

/// The tag of all messages. The communicator tells groups apart.
const TAG: i32 = 0;

impl Group {
    /// The group of these ranks of the world, in this order: its first rank's tag tells it from others that are made at
    /// the same time. It waits for all of them.
    pub fn new(lease: Lease, places: &[Place]) -> Result<Self, MpiError> {
        let ranks: Vec<i32> = places.iter().map(|place| number(place.rank as usize)).collect();
        let tag = places.first().map_or(0, |place| place.tag);
        let library = lease.world().library();
        let comm = library.group(&ranks, tag)?;
        let (rank, size) = library.rank_and_size(comm)?;
        let positive = |number: i32| usize::try_from(number).unwrap_or(0);
        Ok(Self { rank: positive(rank), size: positive(size), lease, comm, parted: false })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// The library and the communicator, for operations of all.
    pub fn parts(&self) -> (&'static Library, Comm) {
        (self.lease.world().library(), self.comm)
    }

    #[inline]
    pub fn send(&self, to: usize, bytes: &[u8]) -> Result<(), MpiError> {
        self.lease.world().library().send(self.comm, bytes, number(to), TAG)
    }

    /// Receives a message and returns its length.
    #[inline]
    pub fn receive(&self, from: usize, buffer: &mut [u8]) -> Result<usize, MpiError> {
        self.lease.world().library().receive(self.comm, buffer, number(from), TAG)
    }

    /// Sends one message and receives another at the same time; returns the length of the other.
    #[inline]
    pub fn exchange(&self, to: usize, bytes: &[u8], from: usize, buffer: &mut [u8]) -> Result<usize, MpiError> {
        let (to, from) = ((bytes, number(to)), (buffer, number(from)));
        self.lease.world().library().send_receive(self.comm, to, from, TAG)
    }

    /// All ranks have done their work and drop the group.
    pub fn part(&mut self) {
        self.parted = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // After a failure the others may never do the same, and the communicator stays.
        if self.parted {
            self.lease.world().library().free(self.comm);
        }
    }
}

/// A rank's number as the library takes it. There are few thousand at most.
fn number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}
