//! The memory that is sent from and received into: a ring of equal buffers with chosen alignment, offset and contents.
//!
//! The default is one buffer that stays warm in the cache, which is what a fast program does and what makes the figure a
//! property of the path and not of the memory. A longer ring makes it cold on purpose.

use std::{fs::File, hint::black_box, io::Read};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    end::EndError,
    spec::{BufferOptions, Payload},
};

/// The seed of random payloads: the same at both ends and in every run, so that the receiver can check every byte.
const SEED: u64 = 0x706c_756d_626c_696e;

/// Equal buffers, used in turn.
#[derive(Debug, Default)]
pub struct Buffers {
    memory: Vec<u8>,
    starts: Vec<usize>,
    size: usize,
    at: usize,
    dirty: usize,
    clean: usize,
}

impl Buffers {
    /// Allocates and touches a ring of buffers of `size` bytes. Their contents continue from one to the next.
    pub fn to_send(size: u64, options: &BufferOptions, payload: &Payload) -> Result<Self, EndError> {
        let mut buffers = Self::zeroed(size, options)?;
        buffers.fill(options, payload)?;
        Ok(buffers)
    }

    /// The same to receive into: the fill file is for what is sent.
    pub fn to_receive(size: u64, options: &BufferOptions) -> Result<Self, EndError> {
        let mut buffers = Self::zeroed(size, options)?;
        buffers.touch_pages();
        Ok(buffers)
    }

    fn zeroed(size: u64, options: &BufferOptions) -> Result<Self, EndError> {
        let too_large = || {
            EndError::Impossible(format!(
                "{} buffers of {size} bytes, aligned to {} with offset {}, do not fit this machine's memory",
                options.ring, options.alignment, options.offset
            ))
        };
        let number = |value: u64| usize::try_from(value).map_err(|_| too_large());
        let (size, alignment, offset) = (number(size)?, number(options.alignment.max(1))?, number(options.offset)?);
        if !alignment.is_power_of_two() {
            return Err(EndError::Impossible(format!("an alignment of {alignment} bytes is no power of two")));
        }
        let ring = options.ring.max(1) as usize;
        if size == 0 {
            return Ok(Self { starts: vec![0; ring], ..Self::default() });
        }
        let stride = size.checked_add(offset).and_then(|bytes| bytes.checked_next_multiple_of(alignment));
        let total = stride.and_then(|bytes| bytes.checked_mul(ring)).and_then(|bytes| bytes.checked_add(alignment));
        let (Some(stride), Some(total)) = (stride, total) else { return Err(too_large()) };
        let mut memory = Vec::new();
        memory.try_reserve_exact(total).map_err(|_| too_large())?;
        memory.resize(total, 0);
        let base = memory.as_ptr().addr().next_multiple_of(alignment) - memory.as_ptr().addr();
        let starts: Vec<_> = (0..ring).map(|i| base + i * stride + offset).collect();
        let limit = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).min(size);
        let (dirty, clean) = (limit(options.dirty), limit(options.clean));
        Ok(Self { memory, starts, size, at: 0, dirty, clean })
    }

    /// Writing zeros again is what touches the pages: a fresh zeroed allocation has none yet.
    fn touch_pages(&mut self) {
        self.for_each(|buffer| black_box(buffer).fill(0));
    }

    fn fill(&mut self, options: &BufferOptions, payload: &Payload) -> Result<(), EndError> {
        let path = match (&options.fill_file, payload) {
            (Some(path), _) | (None, Payload::File(path)) => Some(path),
            (None, Payload::Zero) => {
                self.touch_pages();
                None
            }
            (None, Payload::Random) => {
                let mut random = ChaCha8Rng::seed_from_u64(SEED);
                self.for_each(|buffer| random.fill_bytes(buffer));
                None
            }
        };
        let Some(path) = path else { return Ok(()) };
        // An end that only receives has nothing to fill.
        if self.size == 0 {
            return Ok(());
        }
        let wanted = self.size * self.starts.len();
        let mut contents = Vec::new();
        File::open(path).and_then(|file| file.take(wanted as u64).read_to_end(&mut contents)).map_err(|source| {
            EndError::System { what: format!("cannot read the fill file {}", path.display()), source }
        })?;
        // Repeated within a message it would be another thing than the file: easier to compress.
        if contents.len() < self.size {
            return Err(EndError::Impossible(format!(
                "the fill file {} is too short: it has {} bytes, and a message {}",
                path.display(),
                contents.len(),
                self.size
            )));
        }
        let mut bytes = contents.iter().cycle();
        self.for_each(|buffer| buffer.iter_mut().zip(&mut bytes).for_each(|(to, from)| *to = *from));
        Ok(())
    }

    fn for_each(&mut self, mut each: impl FnMut(&mut [u8])) {
        for &start in &self.starts {
            each(&mut self.memory[start..start + self.size]);
        }
    }

    /// The buffers in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.starts.iter().map(|&start| &self.memory[start..start + self.size])
    }

    /// Bytes allocated.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Bytes of each buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The present buffer.
    #[inline]
    #[must_use]
    pub fn present(&self) -> &[u8] {
        let start = self.starts[self.at];
        &self.memory[start..start + self.size]
    }

    /// The present buffer, to be written.
    #[inline]
    pub fn present_mut(&mut self) -> &mut [u8] {
        let start = self.starts[self.at];
        &mut self.memory[start..start + self.size]
    }

    /// Goes on to the next buffer of the ring.
    #[inline]
    pub fn advance(&mut self) {
        self.at += 1;
        if self.at == self.starts.len() {
            self.at = 0;
        }
    }

    /// Writes the bytes to be dirtied and reads those to be read, as an application would that makes or uses the data.
    #[inline]
    pub fn touch(&mut self) {
        if self.dirty | self.clean != 0 {
            let (dirty, clean) = (self.dirty, self.clean);
            let buffer = self.present_mut();
            for byte in &mut buffer[..dirty] {
                *byte = byte.wrapping_add(1);
            }
            let end = (dirty + clean).min(buffer.len());
            black_box(buffer[dirty..end].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        }
    }
}

/// What a stream of messages must contain: the ring's bytes, over and over.
#[derive(Debug)]
pub struct Expected {
    bytes: Vec<u8>,
    at: usize,
}

impl Expected {
    /// For messages of `size` bytes from a ring that the sender made with these options.
    pub fn new(size: u64, options: &BufferOptions, payload: &Payload) -> Result<Self, EndError> {
        let bytes = Buffers::to_send(size, options, payload)?.iter().flatten().copied().collect();
        Ok(Self { bytes, at: 0 })
    }

    /// Checks bytes that belong at a place of the first message; the error is the first wrong one's place in it.
    pub fn check_at(&self, at: usize, received: &[u8]) -> Result<(), usize> {
        let expected = self.bytes.get(at..at + received.len()).unwrap_or_default();
        if received == expected {
            return Ok(());
        }
        Err(at + received.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(expected.len()))
    }

    /// Checks what must be everything of a message from a place on; the error is the first wrong byte's place in the message.
    pub fn check_rest(&self, at: usize, received: &[u8]) -> Result<(), usize> {
        self.check_at(at, received)?;
        if at + received.len() == self.bytes.len() { Ok(()) } else { Err(at + received.len()) }
    }

    /// Checks the next bytes of the stream; the error is the first wrong one's place in them.
    pub fn check(&mut self, mut received: &[u8]) -> Result<(), usize> {
        let mut checked = 0;
        while !received.is_empty() {
            let n = received.len().min(self.bytes.len() - self.at);
            let expected = &self.bytes[self.at..self.at + n];
            if received[..n] != *expected {
                let wrong = received.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                return Err(checked + wrong);
            }
            self.at = (self.at + n) % self.bytes.len();
            received = &received[n..];
            checked += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn buffers_are_aligned_and_offset() {
        let options = BufferOptions { ring: 3, alignment: 4096, offset: 24, ..BufferOptions::default() };
        let mut buffers = Buffers::to_send(1000, &options, &Payload::Random).unwrap();
        let mut addresses = Vec::new();
        for _ in 0..4 {
            assert_eq!(buffers.present().as_ptr().addr() % 4096, 24);
            addresses.push(buffers.present().as_ptr().addr());
            buffers.advance();
        }
        assert_eq!(addresses[0], addresses[3]);
        assert_eq!(addresses.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let refuse = |size, options| Buffers::to_send(size, &options, &Payload::Zero).unwrap_err().to_string();
        assert!(refuse(1, BufferOptions { alignment: 48, ..Default::default() }).contains("no power of two"));
        assert!(refuse(u64::MAX, BufferOptions::default()).contains("do not fit"));
        assert!(refuse(1 << 50, BufferOptions::default()).contains("do not fit"));
    }

    #[test]
    fn random_contents_are_the_same_at_both_ends_and_continue_over_the_ring() {
        let options = BufferOptions { ring: 2, ..BufferOptions::default() };
        let mut buffers = Buffers::to_send(100, &options, &Payload::Random).unwrap();
        let mut expected = Expected::new(100, &options, &Payload::Random).unwrap();
        let mut stream = Vec::new();
        for _ in 0..5 {
            stream.extend_from_slice(buffers.present());
            buffers.advance();
        }
        for piece in stream.chunks(37) {
            expected.check(piece).unwrap();
        }
        stream[150] ^= 1;
        let mut expected = Expected::new(100, &options, &Payload::Random).unwrap();
        assert_eq!(expected.check(&stream), Err(150));
    }

    #[test]
    fn a_fill_file_fills_what_is_sent_and_one_shorter_than_a_message_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let options = BufferOptions { ring: 2, fill_file: Some(file.path().to_owned()), ..BufferOptions::default() };
        file.write_all(b"abc").unwrap();
        let short = Buffers::to_send(5, &options, &Payload::Random).unwrap_err().to_string();
        assert!(short.contains("it has 3 bytes, and a message 5"), "{short}");
        file.write_all(b"def").unwrap();
        let mut buffers = Buffers::to_send(5, &options, &Payload::Random).unwrap();
        assert_eq!(buffers.present(), b"abcde");
        buffers.advance();
        assert_eq!(buffers.present(), b"fabcd", "the ring goes on where the buffer before it ended");
        assert_eq!(Buffers::to_send(0, &options, &Payload::Random).unwrap().size(), 0, "an end that only receives");
        assert_eq!(Buffers::to_receive(5, &options).unwrap().present(), [0; 5]);
        let missing = BufferOptions { fill_file: Some("/no/such/file".into()), ..BufferOptions::default() };
        assert!(Buffers::to_send(5, &missing, &Payload::Zero).unwrap_err().to_string().contains("/no/such/file"));
    }

    #[test]
    fn dirtying_changes_what_is_sent() {
        let options = BufferOptions { dirty: 2, clean: 1000, ..BufferOptions::default() };
        let mut buffers = Buffers::to_send(4, &options, &Payload::Zero).unwrap();
        buffers.touch();
        assert_eq!(buffers.present(), [1, 1, 0, 0]);
    }
}
