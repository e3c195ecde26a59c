//! Memory of a ring that the kernel receives into by itself: small equal buffers, which it takes from a queue of free
//! ones that both share.

use std::{
    cell::Cell,
    io,
    num::NonZero,
    os::raw::c_void,
    ptr::NonNull,
    sync::atomic::{AtomicU16, Ordering},
};

use io_uring::{IoUring, types::BufRingEntry};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::spec::memory::{self, LINE};

/// Number of the ring's only group of buffers.
pub const GROUP: u16 = 0;

/// Alignment of the buffers behind the queue, bytes.
const PAGE: usize = 4096;

/// Bytes that a flow received and has not read yet: the first and the last of a chain of buffers.
#[derive(Clone, Copy, Default)]
pub struct Queue {
    ends: Option<(u16, u16)>,
}

/// A buffer's unread bytes, and the buffer behind it in its chain.
#[derive(Clone, Copy, Default)]
struct Unread {
    at: u32,
    end: u32,
    next: u16,
}

/// The buffers, and the queue of free ones.
pub struct Provided {
    /// The queue of free buffers (entries as the kernel's `struct io_uring_buf`), and the buffers behind it.
    memory: NonNull<c_void>,
    bytes: usize,
    /// Start of the buffers.
    buffers: usize,
    stride: usize,
    size: u32,
    /// Number of free buffers ever queued, as the kernel counts them.
    tail: Cell<u16>,
    mask: u16,
    unread: Vec<Cell<Unread>>,
}

impl Provided {
    /// Maps the buffers, registers them and hands over all of them.
    pub fn new(uring: &IoUring, flows: usize, size: usize) -> io::Result<Self> {
        let entries = memory::ring_buffers(flows);
        let (count, stride) = (usize::from(entries), size.next_multiple_of(LINE));
        let buffers = (count * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let bytes = buffers + count * stride;
        let length = NonZero::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // Shared, so that a fork leaves the kernel and this process with the same pages.
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory of the program.
        let memory = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)? };
        let provided = Self {
            memory,
            bytes,
            buffers,
            stride,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            tail: Cell::new(0),
            mask: entries - 1,
            unread: vec![Cell::default(); count],
        };
        // SAFETY: the mapping begins with the queue's entries, is aligned to a page, and lives as long as this value. Its owner
        // drops it only after the last request that uses it has completed.
        unsafe { uring.submitter().register_buf_ring_with_flags(memory.as_ptr().addr() as u64, entries, GROUP, 0)? };
        (0..entries).for_each(|number| provided.give(number));
        Ok(provided)
    }

    /// Hands a buffer over to the kernel.
    #[inline]
    fn give(&self, number: u16) {
        let tail = self.tail.get();
        let queue = self.memory.as_ptr().cast::<BufRingEntry>();
        let address = self.address(number);
        // SAFETY: the place is within the queue, by the mask. The kernel reads it only after the tail has passed it, and this
        // thread, the only one that writes, has not. The tail is a field of the first entry, which the setters leave alone.
        unsafe {
            let entry = &mut *queue.add(usize::from(tail & self.mask));
            entry.set_addr(address.addr() as u64);
            entry.set_len(self.size);
            entry.set_bid(number);
        }
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: the field is aligned and within the mapping, and both sides access it as an atomic.
        let shared = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(queue).cast_mut()) };
        shared.store(self.tail.get(), Ordering::Release);
    }

    /// Address of a buffer.
    #[inline]
    fn address(&self, number: u16) -> *mut u8 {
        self.memory.as_ptr().cast::<u8>().wrapping_add(self.buffers + usize::from(number & self.mask) * self.stride)
    }

    /// Appends a buffer that the kernel has filled to a flow's queue.
    #[inline]
    pub fn came(&self, queue: &Cell<Queue>, number: u16, length: u32) {
        let number = number & self.mask;
        if length == 0 {
            return self.give(number);
        }
        self.unread[usize::from(number)].set(Unread { at: 0, end: length.min(self.size), next: 0 });
        let ends = match queue.get().ends {
            None => (number, number),
            Some((first, last)) => {
                let before = &self.unread[usize::from(last)];
                before.set(Unread { next: number, ..before.get() });
                (first, number)
            }
        };
        queue.set(Queue { ends: Some(ends) });
    }

    /// Copies the next unread bytes of a flow; returns how many. `None`: there are none.
    #[inline]
    pub fn take(&self, queue: &Cell<Queue>, buffer: &mut [u8]) -> Option<usize> {
        let (first, last) = queue.get().ends?;
        let place = &self.unread[usize::from(first)];
        let unread = place.get();
        let n = ((unread.end - unread.at) as usize).min(buffer.len());
        let from = self.address(first).wrapping_add(unread.at as usize);
        // SAFETY: the kernel has let go of this buffer, and has written at least `end` bytes, at most its size; `n` of them are
        // read. The caller's memory is another one.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), n) };
        // At most `end`.
        #[expect(clippy::cast_possible_truncation)]
        let at = unread.at + n as u32;
        if at < unread.end {
            place.set(Unread { at, ..unread });
        } else {
            queue.set(Queue { ends: (first != last).then_some((unread.next, last)) });
            self.give(first);
        }
        Some(n)
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own. No request uses it any more, and the kernel reads its queue only for a request.
        let _ = unsafe { munmap(self.memory, self.bytes) };
    }
}
