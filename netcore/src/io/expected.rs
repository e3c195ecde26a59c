//! The expected data of a test with `integrity`: the sender's buffers, made anew from the test itself.

use super::{buffers::Buffers, fill::Contents};
use crate::{
    error::EndError,
    spec::{BufferOptions, shape::Shape},
};

/// The messages of a ring, repeated.
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
    use super::*;

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
