//! Memory to send from and to receive into: a ring of equal buffers with chosen alignment, offset and contents.
//!
//! The default is one buffer that stays warm in the cache, as in a fast program: the result is then a property of the
//! path and not of the memory. A longer ring makes the buffers cold on purpose.

use std::{hint::black_box, ops::Range};

use chacha20::ChaCha8Rng;
use rand::{Rng, SeedableRng};

use super::fill::{Contents, FillFile};
use crate::{
    error::EndError,
    spec::{BufferOptions, memory::Shape},
};

/// Seed of random payloads: the same at both ends and in every run, so that the receiver can check every byte.
const SEED: u64 = 0x706c_756d_626c_696e;

/// Equal buffers, used in turn: message n lies in buffer n of the ring. Without a ring there is one buffer, or as many
/// as one call takes, all of the same contents. A call uses consecutive slots, from that of its first message on.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Never resized: the kernel is given pointers into it.
    memory: Vec<u8>,
    /// Start of each buffer by slot. The first buffers follow again after the last, as far as a call that begins with
    /// the last one goes.
    starts: Vec<usize>,
    count: usize,
    /// Bytes of each buffer, with the header.
    size: usize,
    header: usize,
    /// End of the engine's own bytes, from a buffer's start.
    stamp: usize,
    /// Length of the ring; 1: no ring.
    ring: usize,
    per_call: usize,
    at: usize,
    dirty: usize,
    clean: usize,
}

impl Buffers {
    /// Allocates and touches the buffers. The contents of a ring continue from one to the next.
    pub fn to_send(shape: Shape, options: &BufferOptions, contents: Contents<'_>) -> Result<Self, EndError> {
        let mut buffers = Self::zeroed(shape, options)?;
        buffers.fill(contents)?;
        Ok(buffers)
    }

    /// The same to receive into. The fill file is only for sending.
    pub fn to_receive(shape: Shape, options: &BufferOptions) -> Result<Self, EndError> {
        let mut buffers = Self::zeroed(shape, options)?;
        buffers.touch_pages();
        Ok(buffers)
    }

    fn zeroed(shape: Shape, options: &BufferOptions) -> Result<Self, EndError> {
        let (alignment, count) = (shape.alignment(options), shape.count(options));
        if !alignment.is_power_of_two() {
            return Err(EndError::Impossible(format!("an alignment must be a power of two, not {alignment} bytes")));
        }
        let too_large = || {
            EndError::Impossible(format!(
                "{count} buffers of {} bytes, aligned to {alignment} with offset {}, do not fit this machine's memory",
                shape.message_bytes, options.offset
            ))
        };
        let number = |value: u128| usize::try_from(value).map_err(|_| too_large());
        let (total, stride) = (number(shape.memory_bytes(options))?, number(shape.stride(options))?);
        let (alignment, offset) = (number(alignment.into())?, number(options.offset.into())?);
        let size = number(u128::from(shape.message_bytes) + shape.header_bytes as u128)?;
        let (ring, per_call) = (options.ring.max(1) as usize, shape.per_call.clamp(1, count));
        if size == 0 {
            let starts = vec![0; ring - 1 + per_call];
            return Ok(Self { starts, count, ring, per_call, ..Self::default() });
        }
        let mut memory = Vec::new();
        memory.try_reserve_exact(total).map_err(|_| too_large())?;
        memory.resize(total, 0);
        let base = memory.as_ptr().addr().next_multiple_of(alignment) - memory.as_ptr().addr();
        let starts = (0..ring - 1 + per_call).map(|i| base + i % count * stride + offset).collect();
        let limit = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).min(size);
        Ok(Self {
            memory,
            starts,
            count,
            per_call,
            size,
            header: shape.header_bytes,
            stamp: (shape.header_bytes + shape.stamp_bytes).min(size),
            ring,
            at: 0,
            dirty: limit(options.dirty),
            clean: limit(options.clean),
        })
    }

    /// Writes zeros again, which touches the pages: a fresh zeroed allocation has none yet.
    fn touch_pages(&mut self) {
        self.for_each(|buffer| black_box(buffer).fill(0));
    }

    fn fill(&mut self, contents: Contents<'_>) -> Result<(), EndError> {
        match contents {
            Contents::File(file) => self.fill_from(file)?,
            Contents::Zero => self.touch_pages(),
            Contents::Random => {
                let mut random = ChaCha8Rng::seed_from_u64(SEED);
                self.for_each_of_ring(|message| random.fill_bytes(message));
            }
        }
        if self.ring == 1 {
            // The buffers of a call are copies of the first.
            let first = self.starts[0]..self.starts[0] + self.size;
            self.starts[1..self.count].iter().for_each(|&start| self.memory.copy_within(first.clone(), start));
        }
        Ok(())
    }

    fn fill_from(&mut self, file: Option<&FillFile>) -> Result<(), EndError> {
        let message_bytes = self.message_bytes();
        // An end that only receives has nothing to fill.
        if message_bytes == 0 {
            return Ok(());
        }
        let file =
            file.ok_or_else(|| EndError::Impossible("a fill file that is not open cannot be sent".to_owned()))?;
        let contents = file.beginning(message_bytes * self.ring)?;
        // Repeated within a message, the contents would compress better than the file.
        if contents.len() < message_bytes {
            return Err(EndError::Impossible(format!(
                "the fill file {} is too short: it has {} bytes, and a message {message_bytes}",
                file.path().display(),
                contents.len(),
            )));
        }
        let mut bytes = contents.iter().cycle();
        self.for_each_of_ring(|message| message.iter_mut().zip(&mut bytes).for_each(|(to, from)| *to = *from));
        Ok(())
    }

    fn for_each_of_ring(&mut self, mut each: impl FnMut(&mut [u8])) {
        for &start in &self.starts[..self.ring] {
            each(&mut self.memory[start + self.header..start + self.size]);
        }
    }

    /// Applies `each` to every buffer as a whole, for example to write a header before its message.
    pub fn for_each(&mut self, mut each: impl FnMut(&mut [u8])) {
        for &start in &self.starts[..self.count] {
            each(&mut self.memory[start..start + self.size]);
        }
    }

    /// The messages of the ring in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.starts.iter().take(self.ring).map(|&start| &self.memory[start + self.header..start + self.size])
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Bytes of each buffer, with the header before the message.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of each message.
    pub fn message_bytes(&self) -> usize {
        self.size - self.header
    }

    /// Number of buffers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of slots: after the ring's last buffer they go on with the first, as far as a call may.
    pub fn slots(&self) -> usize {
        self.starts.len()
    }

    /// Datagrams per call, at most as many as there are buffers.
    pub fn per_call(&self) -> usize {
        self.per_call
    }

    /// Slot of a call that begins with message `number`, from 0.
    #[inline]
    pub fn slot_of(&self, number: u64) -> usize {
        if self.ring == 1 {
            return 0;
        }
        // Less than the ring's length.
        #[expect(clippy::cast_possible_truncation)]
        let place = (number % self.ring as u64) as usize;
        place
    }

    /// The first bytes of a call's buffers, as many of each as `lengths` says.
    #[inline]
    pub fn beginnings(&self, call: Range<usize>, lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = &[u8]> {
        let starts = self.starts[call].iter();
        starts.zip(lengths).map(|(&start, length)| &self.memory[start..start + length.min(self.size)])
    }

    /// The buffers of these slots as runs of neighbours in memory: address, and bytes up to the end of the last one.
    pub fn runs(&mut self, slots: Range<usize>) -> impl Iterator<Item = (*mut u8, usize)> {
        let (size, end) = (self.size, slots.end);
        let mut next = slots.start;
        std::iter::from_fn(move || {
            let first = next;
            if first >= end {
                return None;
            }
            next += 1;
            while next < end && self.starts[next] == self.starts[next - 1] + size {
                next += 1;
            }
            Some((self.pointer(first), (next - first) * size))
        })
    }

    /// Passes each message of a call to `each`, to be written, with its index in the call.
    #[inline]
    pub fn for_messages(&mut self, call: Range<usize>, mut each: impl FnMut(usize, &mut [u8])) {
        for (index, &start) in self.starts[call].iter().enumerate() {
            each(index, &mut self.memory[start + self.header..start + self.size]);
        }
    }

    /// Address of the buffer in a slot, for the kernel to read and write [`Buffers::size`] bytes: valid as long as these buffers
    /// exist, wherever they are moved. It is the vector's own pointer and borrows nothing, so that borrows of the buffers
    /// between two calls do not end it.
    pub fn pointer(&mut self, place: usize) -> *mut u8 {
        let start = self.starts[place];
        assert!(start + self.size <= self.memory.len(), "a buffer lies in the memory");
        self.memory.as_mut_ptr().wrapping_add(start)
    }

    /// The current buffer.
    #[inline]
    pub fn present(&self) -> &[u8] {
        let start = self.starts[self.at];
        &self.memory[start..start + self.size]
    }

    /// The current buffer, to be written.
    #[inline]
    pub fn present_mut(&mut self) -> &mut [u8] {
        let start = self.starts[self.at];
        &mut self.memory[start..start + self.size]
    }

    /// The message in the current buffer, to be written.
    #[inline]
    pub fn present_message_mut(&mut self) -> &mut [u8] {
        let start = self.starts[self.at];
        &mut self.memory[start + self.header..start + self.size]
    }

    /// Goes on to the next buffer of the ring.
    #[inline]
    pub fn advance(&mut self) {
        self.at += 1;
        if self.at == self.ring {
            self.at = 0;
        }
    }

    /// Goes to the buffer of message `number`, from 0.
    #[inline]
    pub fn go_to(&mut self, number: u64) {
        self.at = self.slot_of(number);
    }

    /// Whether bytes are to be dirtied or read.
    #[inline]
    pub fn are_touched(&self) -> bool {
        self.dirty | self.clean != 0
    }

    /// Writes the bytes to be dirtied and reads those to be read, as an application does that makes or uses the data.
    #[inline]
    pub fn touch(&mut self) {
        self.touch_received(self.size);
    }

    /// The same for the first `length` bytes, which were received.
    #[inline]
    pub fn touch_received(&mut self, length: usize) {
        if self.are_touched() {
            self.touch_beginning(self.at, length);
        }
    }

    /// The same for the first `length` bytes of the buffer in a slot. Skips the engine's own bytes, dirties the bytes
    /// behind them, and reads those behind these.
    pub fn touch_beginning(&mut self, place: usize, length: usize) {
        let start = self.starts[place];
        let bytes = &mut self.memory[start..start + length.min(self.size)];
        let bytes = bytes.get_mut(self.stamp..).unwrap_or_default();
        let (written, rest) = bytes.split_at_mut(self.dirty.min(bytes.len()));
        for byte in written {
            *byte = byte.wrapping_add(1);
        }
        black_box(rest.iter().take(self.clean).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
}

/// The expected data of a test with `integrity`: the messages of the sender's ring, repeated. They are made anew from the test
/// itself.
#[derive(Debug)]
pub struct Expected {
    bytes: Vec<u8>,
    message_bytes: usize,
    at: usize,
}

impl Expected {
    /// Messages of `message_bytes` from a ring that the sender made with these options.
    pub fn new(message_bytes: u64, options: &BufferOptions, contents: Contents<'_>) -> Result<Self, EndError> {
        let buffers = Buffers::to_send(Shape::plain(message_bytes), options, contents)?;
        let bytes = buffers.iter().flatten().copied().collect();
        Ok(Self { bytes, message_bytes: buffers.message_bytes(), at: 0 })
    }

    /// Checks the rest of message `number` (from 0) from byte `at` on. The error is the first wrong byte's offset in
    /// the message.
    pub fn check_rest(&self, number: u64, at: usize, received: &[u8]) -> Result<(), usize> {
        let ring = (self.bytes.len() / self.message_bytes.max(1)).max(1);
        // Less than the ring's length.
        #[expect(clippy::cast_possible_truncation)]
        let first = (number % ring as u64) as usize * self.message_bytes;
        let expected = self.bytes[first..first + self.message_bytes].get(at..).unwrap_or_default();
        if received == expected {
            return Ok(());
        }
        let wrong = received.iter().zip(expected).position(|(a, b)| a != b);
        Err(at + wrong.unwrap_or(received.len().min(expected.len())))
    }

    /// Checks the next bytes of the stream. The error is the first wrong byte's offset in `received`.
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
    use std::{io::Write, path::Path};

    use proptest::prelude::*;

    use super::{
        super::fill::{Readable, Unread},
        *,
    };

    fn whole(buffers: &Buffers, index: usize) -> &[u8] {
        buffers.beginnings(index..index + 1, std::iter::once(usize::MAX)).next().unwrap()
    }

    fn addresses(buffers: &Buffers) -> Vec<usize> {
        (0..buffers.count()).map(|index| whole(buffers, index).as_ptr().addr()).collect()
    }

    proptest! {
        #[test]
        fn every_buffer_lies_where_it_was_asked_to_and_no_two_share_a_byte(
            ring in 1u32..9, per_call in 0usize..9, power in prop::option::of(0u32..14), offset in 0u64..5000,
            message_bytes in 1u64..3000, header_bytes in 0usize..30,
        ) {
            let alignment = power.map(|power| 1 << power);
            let options = BufferOptions { ring, alignment, offset, ..BufferOptions::default() };
            let shape = Shape { header_bytes, per_call, ..Shape::plain(message_bytes) };
            let buffers = Buffers::to_send(shape, &options, Contents::Random).unwrap();
            let count = if ring > 1 { ring as usize } else { per_call.max(1) };
            prop_assert_eq!(buffers.count(), count);
            prop_assert_eq!(buffers.per_call(), per_call.clamp(1, count));
            let addresses = addresses(&buffers);
            let size = usize::try_from(message_bytes).unwrap() + header_bytes;
            prop_assert_eq!(buffers.size(), size);
            for &address in &addresses {
                let asked = if per_call > 0 && offset == 0 { 1 } else { 4096 };
                let alignment = alignment.unwrap_or(asked);
                prop_assert_eq!(address as u64 % alignment, offset % alignment);
            }
            prop_assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= size));
            let used = addresses[count - 1] + size - addresses[0];
            prop_assert!(used as u128 <= shape.memory_bytes(&options));
        }

        #[test]
        fn what_is_dirtied_is_what_was_asked_for_behind_the_engines_own_bytes(
            dirty in 0u64..200, clean in 0u64..200, header_bytes in 0usize..30, stamp_bytes in 0usize..17,
            message_bytes in 1u64..100, length in 0usize..200, index in 0usize..4,
        ) {
            let options = BufferOptions { ring: 3, dirty, clean, ..BufferOptions::default() };
            let shape = Shape { message_bytes, header_bytes, stamp_bytes, per_call: 2 };
            let mut buffers = Buffers::to_send(shape, &options, Contents::Random).unwrap();
            let before: Vec<Vec<u8>> = (0..3).map(|index| whole(&buffers, index).to_vec()).collect();
            buffers.touch_beginning(index, length);
            for (place, before) in before.iter().enumerate() {
                let after = whole(&buffers, place);
                let own = header_bytes + stamp_bytes;
                let end = (own + usize::try_from(dirty).unwrap()).min(length);
                for (at, (after, before)) in after.iter().zip(before).enumerate() {
                    let is_dirtied = place == index % 3 && (own..end).contains(&at);
                    prop_assert_eq!(*after, before.wrapping_add(is_dirtied.into()), "byte {} of {}", at, place);
                }
            }
        }
    }

    #[test]
    fn the_messages_of_a_call_lie_side_by_side_and_are_alike() {
        let shape = Shape { per_call: 4, ..Shape::plain(65) };
        let mut buffers = Buffers::to_send(shape, &BufferOptions::default(), Contents::Random).unwrap();
        let addresses = addresses(&buffers);
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == 65));
        assert!((1..4).all(|index| whole(&buffers, index) == whole(&buffers, 0)));
        assert_eq!(buffers.iter().count(), 1);
        assert_eq!([0, 1, 5, u64::MAX].map(|number| buffers.slot_of(number)), [0; 4]);
        buffers.advance();
        assert_eq!(buffers.present().as_ptr(), whole(&buffers, 0).as_ptr(), "there is no ring");
    }

    #[test]
    fn a_ring_goes_round() {
        let options = BufferOptions { ring: 3, ..BufferOptions::default() };
        let mut buffers = Buffers::to_send(Shape::plain(100), &options, Contents::Random).unwrap();
        let mut walked = Vec::new();
        for number in 0..7 {
            walked.push(buffers.present().as_ptr().addr());
            let advanced = buffers.present().as_ptr();
            buffers.go_to(number);
            assert_eq!(buffers.present().as_ptr(), advanced);
            buffers.advance();
        }
        let addresses = addresses(&buffers);
        assert_eq!(walked, [0, 1, 2, 0, 1, 2, 0].map(|index| addresses[index]));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let refuse =
            |size, options| Buffers::to_send(Shape::plain(size), &options, Contents::Zero).unwrap_err().to_string();
        assert!(
            refuse(1, BufferOptions { alignment: Some(48), ..Default::default() }).contains("must be a power of two")
        );
        assert!(refuse(u64::MAX, BufferOptions::default()).contains("do not fit"));
        assert!(refuse(1 << 50, BufferOptions::default()).contains("do not fit"));
        let most = BufferOptions { ring: u32::MAX, offset: u64::MAX, alignment: Some(1 << 63), ..Default::default() };
        assert!(refuse(u64::MAX, most).contains("do not fit"));
    }

    #[test]
    fn a_fill_file_fills_what_is_sent_and_one_shorter_than_a_message_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let options = BufferOptions { ring: 2, ..BufferOptions::default() };
        let opened = FillFile::open(file.path(), Readable::Everything).unwrap();
        let to_send = |shape, options: &BufferOptions| Buffers::to_send(shape, options, Contents::File(Some(&opened)));
        file.write_all(b"abc").unwrap();
        let short = to_send(Shape::plain(5), &options).unwrap_err().to_string();
        assert!(short.contains("it has 3 bytes, and a message 5"), "{short}");
        file.write_all(b"def").unwrap();
        let mut buffers = to_send(Shape::plain(5), &options).unwrap();
        assert_eq!(buffers.present(), b"abcde");
        buffers.advance();
        assert_eq!(buffers.present(), b"fabcd", "the ring goes on where the buffer before it ended");
        let framed = Shape { header_bytes: 2, per_call: 3, ..Shape::plain(5) };
        let buffers = to_send(framed, &options).unwrap();
        assert_eq!(whole(&buffers, 1), b"\0\0fabcd", "a header takes nothing of the file");
        let alike = BufferOptions { ring: 1, ..options.clone() };
        let buffers = to_send(framed, &alike).unwrap();
        assert_eq!(whole(&buffers, 2), b"\0\0abcde", "without a ring every message is the file's beginning");
        assert_eq!(to_send(Shape::default(), &options).unwrap().size(), 0, "an end that only receives");
        assert_eq!(Buffers::to_receive(Shape::plain(5), &options).unwrap().present(), [0; 5]);
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = |path: &Path| match FillFile::open(path, Readable::Everything) {
            Err(Unread::Failed(error)) => error.to_string(),
            other => panic!("{path:?}: {other:?}"),
        };
        for path in [folder.path(), &fifo, "/dev/zero".as_ref()] {
            assert!(refused(path).contains("no regular file"), "{path:?}");
        }
        assert!(refused("/no/such/file".as_ref()).contains("/no/such/file"));
        assert!(Buffers::to_send(Shape::plain(5), &options, Contents::File(None)).is_err());
    }

    #[test]
    fn a_stream_continues_over_the_ring() {
        let options = BufferOptions { ring: 2, ..BufferOptions::default() };
        let mut buffers = Buffers::to_send(Shape::plain(100), &options, Contents::Random).unwrap();
        let mut expected = Expected::new(100, &options, Contents::Random).unwrap();
        let mut stream = Vec::new();
        for _ in 0..5 {
            stream.extend_from_slice(buffers.present());
            buffers.advance();
        }
        for piece in stream.chunks(37) {
            expected.check(piece).unwrap();
        }
        stream[150] ^= 1;
        let mut expected = Expected::new(100, &options, Contents::Random).unwrap();
        assert_eq!(expected.check(&stream), Err(150));
    }

    #[test]
    fn a_message_is_known_by_its_number() {
        let options = BufferOptions { ring: 3, alignment: Some(64), offset: 5, ..BufferOptions::default() };
        let shape = Shape { header_bytes: 24, stamp_bytes: 16, per_call: 32, ..Shape::plain(100) };
        let mut buffers = Buffers::to_send(shape, &options, Contents::Random).unwrap();
        let expected = Expected::new(100, &options, Contents::Random).unwrap();
        for number in [0, 1, 2, 3, 7, u64::MAX] {
            buffers.go_to(number);
            let message = buffers.present_message_mut();
            expected.check_rest(number, 0, message).unwrap();
            expected.check_rest(number, 16, &message[16..]).unwrap();
            expected.check_rest(number, 100, &[]).unwrap();
            assert_eq!(expected.check_rest(number, 16, &message[16..99]), Err(99), "too short");
            assert_eq!(expected.check_rest(number, 0, &[&*message, b"x"].concat()), Err(100), "too long");
            assert!(expected.check_rest(number ^ 1, 0, message).is_err(), "another's contents");
            message[50] ^= 1;
            assert_eq!(expected.check_rest(number, 16, &message[16..]), Err(50));
            message[50] ^= 1;
        }
    }
}
