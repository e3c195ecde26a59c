//! Ranks that are threads of one process and talk through memory: tests of the algorithms, without a network.
//!
//! A pair of ranks has a bounded ring of bytes in each direction. A small bound finds algorithms that rely on buffers.

use std::sync::{
    Arc, Condvar,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use super::{Communicator, RankError};
use crate::lock::Lock;

/// One rank's end.
pub struct Memory {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    /// Rings from rank `a` to rank `b` at `a * size + b`.
    rings: Vec<Lock<Ring>>,
    /// A bell for each rank: rung when something that it may wait for has changed.
    bells: Vec<Bell>,
    /// Ranks that have left.
    left: Vec<AtomicBool>,
}

#[derive(Default)]
struct Bell {
    rung: Lock<u64>,
    changed: Condvar,
}

struct Ring {
    bytes: Box<[u8]>,
    /// Position of the first byte, and the number of bytes.
    first: usize,
    filled: usize,
}

impl Ring {
    /// Copies what fits; returns its length.
    fn put(&mut self, from: &[u8]) -> usize {
        let capacity = self.bytes.len();
        let length = from.len().min(capacity - self.filled);
        let begin = (self.first + self.filled) % capacity;
        let straight = length.min(capacity - begin);
        self.bytes[begin..begin + straight].copy_from_slice(&from[..straight]);
        self.bytes[..length - straight].copy_from_slice(&from[straight..length]);
        self.filled += length;
        length
    }

    /// Takes what is there; returns its length.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let capacity = self.bytes.len();
        let length = to.len().min(self.filled);
        let straight = length.min(capacity - self.first);
        to[..straight].copy_from_slice(&self.bytes[self.first..self.first + straight]);
        to[straight..length].copy_from_slice(&self.bytes[..length - straight]);
        self.first = (self.first + length) % capacity;
        self.filled -= length;
        length
    }
}

/// As many ranks, with rings of so many bytes.
pub fn ranks(size: usize, ring_bytes: usize) -> Vec<Memory> {
    let ring = || Lock::new(Ring { bytes: vec![0; ring_bytes].into(), first: 0, filled: 0 });
    let shared = Arc::new(Shared {
        size,
        rings: (0..size * size).map(|_| ring()).collect(),
        bells: (0..size).map(|_| Bell::default()).collect(),
        left: (0..size).map(|_| AtomicBool::new(false)).collect(),
    });
    (0..size).map(|rank| Memory { rank, shared: shared.clone() }).collect()
}

impl Shared {
    fn ring_bell(&self, rank: usize) {
        let bell = &self.bells[rank];
        *bell.rung.lock() += 1;
        bell.changed.notify_all();
    }
}

impl Memory {
    /// Sends what the ring takes; returns its length.
    fn put(&self, to: usize, bytes: &[u8]) -> usize {
        let ring = &self.shared.rings[self.rank * self.shared.size + to];
        let moved = ring.lock().put(bytes);
        if moved > 0 {
            self.shared.ring_bell(to);
        }
        moved
    }

    /// Receives what the ring has; returns its length.
    fn take(&self, from: usize, buffer: &mut [u8]) -> usize {
        let ring = &self.shared.rings[from * self.shared.size + self.rank];
        let moved = ring.lock().take(buffer);
        if moved > 0 {
            self.shared.ring_bell(from);
        }
        moved
    }

    fn gone(&self, rank: usize) -> Result<(), RankError> {
        if self.shared.left[rank].load(SeqCst) {
            return Err(RankError::Gone { rank, reason: "its thread has ended".to_owned() });
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.left[self.rank].store(true, SeqCst);
        for rank in 0..self.shared.size {
            self.shared.ring_bell(rank);
        }
    }
}

impl Communicator for Memory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        self.exchange(to, bytes, to, &mut [])
    }

    fn receive(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), RankError> {
        self.exchange(from, &[], from, buffer)
    }

    fn exchange(&mut self, to: usize, mut bytes: &[u8], from: usize, mut buffer: &mut [u8]) -> Result<(), RankError> {
        let bell = &self.shared.bells[self.rank];
        loop {
            let known = *bell.rung.lock();
            // Whether they have left is read before their rings: bytes that came before are still taken.
            let leavers = (self.gone(to), self.gone(from));
            let (sent, received) = (self.put(to, bytes), self.take(from, buffer));
            (bytes, buffer) = (&bytes[sent..], &mut buffer[received..]);
            if bytes.is_empty() && buffer.is_empty() {
                return Ok(());
            }
            if sent + received == 0 {
                if !bytes.is_empty() {
                    leavers.0?;
                }
                if !buffer.is_empty() {
                    leavers.1?;
                }
                let rung = bell.rung.lock();
                drop(bell.changed.wait_while(rung, |rung| *rung == known));
            }
        }
    }
}

/// Runs `each` on a thread per rank and returns the results in the order of the ranks.
pub fn run<T: Send>(size: usize, ring_bytes: usize, each: impl Fn(&mut Memory) -> T + Sync) -> Vec<T> {
    let each = &each;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ranks(size, ring_bytes).into_iter().map(|mut rank| scope.spawn(move || each(&mut rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_through_the_smallest_ring() {
        let sums = run(3, 1, |rank| {
            let (next, last) = ((rank.rank() + 1) % 3, (rank.rank() + 2) % 3);
            let mine: Vec<u8> = (0..200).map(|i| i + u8::try_from(rank.rank()).unwrap()).collect();
            let mut theirs = vec![0; 200];
            rank.exchange(next, &mine, last, &mut theirs).unwrap();
            theirs[0]
        });
        assert_eq!(sums, [2, 0, 1]);
    }

    #[test]
    fn a_rank_that_leaves_is_named() {
        let errors = run(3, 4, |rank| match rank.rank() {
            2 => String::new(),
            _ => rank.receive(2, &mut [0; 8]).unwrap_err().to_string(),
        });
        assert_eq!(errors[..2], ["rank 2 is gone: its thread has ended", "rank 2 is gone: its thread has ended"]);
    }
}
