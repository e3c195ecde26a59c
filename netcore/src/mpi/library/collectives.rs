//! Operations of all ranks of a communicator, by the library's own algorithms.

use std::ffi::c_int;

use super::{Comm, Library, MpiError, count};

/// Bytes of a number that ranks add, an `f64`.
const NUMBER_BYTES: usize = 8;

impl Library {
    /// A communicator of these ranks of the world, in this order. All of them call it with the same tag.
    pub(crate) fn group(&self, ranks: &[i32], tag: i32) -> Result<Comm, MpiError> {
        let (mut all, mut some, mut comm) = (0, 0, 0);
        let calls = &self.calls;
        // SAFETY: the handles were zero before they are received, the ranks live during the call, and the groups are freed
        // once, when the communicator has been made of them.
        unsafe {
            self.check("MPI_Comm_group", (calls.comm_group)(self.world.0, &raw mut all))?;
            let included = (calls.group_incl)(all, count(ranks.len()), ranks.as_ptr(), &raw mut some);
            let made = self.check("MPI_Group_incl", included).and_then(|()| {
                self.check("MPI_Comm_create_group", (calls.comm_create_group)(self.world.0, some, tag, &raw mut comm))
            });
            if included == 0 {
                (calls.group_free)(&raw mut some);
            }
            (calls.group_free)(&raw mut all);
            made?;
            self.check("MPI_Comm_set_errhandler", (calls.comm_set_errhandler)(comm, self.handles.errors_return))?;
        }
        Ok(Comm(comm))
    }

    /// Frees a communicator of [`Library::group`]. All of its ranks call it.
    pub(crate) fn free(&self, comm: Comm) {
        let mut handle = comm.0;
        // SAFETY: the communicator was made by `group`, and its only owner gives it up here.
        unsafe { (self.calls.comm_free)(&raw mut handle) };
    }

    pub(crate) fn barrier(&self, comm: Comm) -> Result<(), MpiError> {
        // SAFETY: the communicator is valid.
        self.check("MPI_Barrier", unsafe { (self.calls.barrier)(comm.0) })
    }

    pub(crate) fn broadcast(&self, comm: Comm, bytes: &mut [u8], root: i32) -> Result<(), MpiError> {
        // SAFETY: the bytes are borrowed during the call.
        let code =
            unsafe { (self.calls.bcast)(bytes.as_mut_ptr(), count(bytes.len()), self.handles.byte, root, comm.0) };
        self.check("MPI_Bcast", code)
    }

    /// The sums of the numbers of all ranks, at the root.
    pub(crate) fn reduce(&self, comm: Comm, bytes: &[u8], sums: &mut [u8], root: i32) -> Result<(), MpiError> {
        let (kind, sum, n) = (self.handles.double, self.handles.sum, count(bytes.len().min(sums.len()) / NUMBER_BYTES));
        // SAFETY: both are borrowed during the call, and hold so many numbers.
        let code = unsafe { (self.calls.reduce)(bytes.as_ptr(), sums.as_mut_ptr(), n, kind, sum, root, comm.0) };
        self.check("MPI_Reduce", code)
    }

    /// The sums of the numbers of all ranks, at all.
    pub(crate) fn reduce_to_all(&self, comm: Comm, bytes: &[u8], sums: &mut [u8]) -> Result<(), MpiError> {
        let (kind, sum, n) = (self.handles.double, self.handles.sum, count(bytes.len().min(sums.len()) / NUMBER_BYTES));
        // SAFETY: both are borrowed during the call, and hold so many numbers.
        let code = unsafe { (self.calls.allreduce)(bytes.as_ptr(), sums.as_mut_ptr(), n, kind, sum, comm.0) };
        self.check("MPI_Allreduce", code)
    }

    /// The sums of the numbers of all ranks, of which each gets a block.
    pub(crate) fn reduce_scatter(&self, comm: Comm, bytes: &[u8], block: &mut [u8]) -> Result<(), MpiError> {
        let (_, size) = self.rank_and_size(comm)?;
        fits(bytes.len(), block.len(), size)?;
        let (kind, sum, n) = (self.handles.double, self.handles.sum, count(block.len() / NUMBER_BYTES));
        // SAFETY: both are borrowed during the call; the bytes hold a block for each rank.
        let code =
            unsafe { (self.calls.reduce_scatter_block)(bytes.as_ptr(), block.as_mut_ptr(), n, kind, sum, comm.0) };
        self.check("MPI_Reduce_scatter_block", code)
    }

    /// A block of each rank, at the root. `all` is empty elsewhere.
    pub(crate) fn gather(&self, comm: Comm, block: &[u8], all: &mut [u8], root: i32) -> Result<(), MpiError> {
        let (rank, size) = self.rank_and_size(comm)?;
        if rank == root {
            fits(all.len(), block.len(), size)?;
        }
        let (n, byte) = (count(block.len()), self.handles.byte);
        // SAFETY: both are borrowed during the call; at the root, `all` holds a block of each rank.
        let code = unsafe { (self.calls.gather)(block.as_ptr(), n, byte, all.as_mut_ptr(), n, byte, root, comm.0) };
        self.check("MPI_Gather", code)
    }

    /// A block of the root's for each rank. `all` is empty elsewhere.
    pub(crate) fn scatter(&self, comm: Comm, all: &[u8], block: &mut [u8], root: i32) -> Result<(), MpiError> {
        let (rank, size) = self.rank_and_size(comm)?;
        if rank == root {
            fits(all.len(), block.len(), size)?;
        }
        let (n, byte) = (count(block.len()), self.handles.byte);
        // SAFETY: both are borrowed during the call; at the root, `all` holds a block for each rank.
        let code = unsafe { (self.calls.scatter)(all.as_ptr(), n, byte, block.as_mut_ptr(), n, byte, root, comm.0) };
        self.check("MPI_Scatter", code)
    }

    /// A block of each rank, at all.
    pub(crate) fn gather_to_all(&self, comm: Comm, block: &[u8], all: &mut [u8]) -> Result<(), MpiError> {
        let (_, size) = self.rank_and_size(comm)?;
        fits(all.len(), block.len(), size)?;
        let (n, byte) = (count(block.len()), self.handles.byte);
        // SAFETY: both are borrowed during the call; `all` holds a block of each rank.
        let code = unsafe { (self.calls.allgather)(block.as_ptr(), n, byte, all.as_mut_ptr(), n, byte, comm.0) };
        self.check("MPI_Allgather", code)
    }

    /// A block of each rank for each other one.
    pub(crate) fn all_to_all(&self, comm: Comm, sent: &[u8], received: &mut [u8]) -> Result<(), MpiError> {
        let (_, size) = self.rank_and_size(comm)?;
        let block = sent.len() / usize::try_from(size).unwrap_or(1).max(1);
        fits(sent.len(), block, size)?;
        fits(received.len(), block, size)?;
        let (n, byte) = (count(block), self.handles.byte);
        // SAFETY: both are borrowed during the call, and hold a block for each rank.
        let code = unsafe { (self.calls.alltoall)(sent.as_ptr(), n, byte, received.as_mut_ptr(), n, byte, comm.0) };
        self.check("MPI_Alltoall", code)
    }

    /// The same with blocks of different lengths, one after the other in the order of the ranks: `length` says that of the
    /// block from and for each rank.
    pub(crate) fn all_to_all_of(
        &self,
        comm: Comm,
        length: impl Fn(usize) -> usize,
        sent: &[u8],
        received: &mut [u8],
    ) -> Result<(), MpiError> {
        let (_, size) = self.rank_and_size(comm)?;
        let ranks = usize::try_from(size).unwrap_or(0);
        let mut all = 0;
        let (lengths, places): (Vec<c_int>, Vec<c_int>) = (0..ranks)
            .map(|rank| {
                let place = all;
                all += length(rank);
                (count(all - place), count(place))
            })
            .unzip();
        if [sent.len(), received.len()] != [all; 2] {
            return Err(mismatch());
        }
        let (byte, lengths, places) = (self.handles.byte, lengths.as_ptr(), places.as_ptr());
        let (from, to) = (sent.as_ptr(), received.as_mut_ptr());
        // SAFETY: all are borrowed during the call; there is a length and a place for each rank, and the blocks fill the
        // buffers.
        let code = unsafe { (self.calls.alltoallv)(from, lengths, places, byte, to, lengths, places, byte, comm.0) };
        self.check("MPI_Alltoallv", code)
    }
}

/// Whether a buffer holds a block for each rank.
fn fits(bytes: usize, block: usize, ranks: i32) -> Result<(), MpiError> {
    if block.checked_mul(usize::try_from(ranks).unwrap_or(0)) == Some(bytes) { Ok(()) } else { Err(mismatch()) }
}

fn mismatch() -> MpiError {
    MpiError { call: "a collective operation", text: "the buffers do not hold a block for each rank".to_owned() }
}
