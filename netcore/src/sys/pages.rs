//! Memory that the kernel may still read after the call that was given it.

use std::{io, num::NonZeroUsize, ptr::NonNull};

use nix::{
    libc::c_void,
    sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
};

/// A mapping of its own, written once and read-only from then on.
///
/// A page that went into a pipe or a socket without a copy is sent as it is at that time, and again if it is lost. So the
/// mapping is never written again, and it does not come from the allocator, which would reuse it: dropping it only unmaps the
/// pages. The kernel frees each of them when the last packet that refers to it is gone.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<c_void>,
    /// Bytes asked for; the mapping ends with a whole page.
    bytes: NonZeroUsize,
}

impl Pages {
    /// Maps `bytes` of memory, which `fill` writes.
    pub fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: without an address the kernel chooses one where nothing is mapped. The mapping is private, anonymous and
        // readable and writable, so that its zero bytes may be used as a slice until it is unmapped, by `drop` and by nobody else.
        let start = unsafe {
            mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)?
        };
        let pages = Self { start, bytes };
        // SAFETY: the mapping is `bytes` long, initialised and writable, and nobody else knows of it yet.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), bytes.get()) });
        // SAFETY: the slice is gone, and those to come are only read.
        unsafe { mprotect(start, bytes.get(), ProtFlags::PROT_READ)? };
        Ok(pages)
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `bytes` long, initialised, readable, never written any more, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes.get()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its slices do not outlive it. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}

// SAFETY: the pages are read-only memory that belongs to no thread.
unsafe impl Send for Pages {}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use nix::{
        errno::Errno,
        fcntl::{SpliceFFlags, vmsplice},
        unistd::{pipe, read},
    };

    use super::*;

    #[test]
    fn pages_in_a_pipe_outlive_their_mapping_and_are_not_reused() {
        let pages = Pages::filled(16 * 4096, |bytes| bytes.fill(b'p')).unwrap();
        assert!(pages.as_slice().iter().all(|byte| *byte == b'p') && pages.as_slice().len() == 16 * 4096);
        let (reader, writer) = pipe().unwrap();
        let sent = match vmsplice(&writer, &[IoSlice::new(pages.as_slice())], SpliceFFlags::empty()) {
            // podman forbids it.
            Err(Errno::EPERM) => return crate::needs::skip("`vmsplice` is not permitted here"),
            sent => sent.unwrap(),
        };
        assert_eq!(sent, 16 * 4096);
        drop(pages);
        // Memory that the process gets now is written. None of it may be what the pipe holds.
        let others: Vec<Pages> = (0..64).map(|_| Pages::filled(16 * 4096, |bytes| bytes.fill(b'x')).unwrap()).collect();
        let mut received = vec![0; sent];
        let mut at = 0;
        while at < sent {
            at += read(&reader, &mut received[at..]).unwrap();
        }
        assert!(received.iter().all(|byte| *byte == b'p'));
        drop(others);
    }

    #[test]
    fn no_memory_of_no_bytes() {
        assert!(Pages::filled(0, |_| unreachable!()).is_err());
        assert!(Pages::filled(1, |bytes| bytes[0] = 7).is_ok_and(|pages| pages.as_slice() == [7]));
    }
}
