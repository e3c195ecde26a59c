//! Frames: four bytes of length (big endian), then that many bytes of JSON.
//!
//! The length is checked before memory is reserved for it, and memory grows only with bytes that have arrived. So a peer
//! can make this end hold at most the bound and one read.

/// Bound of a frame before both ends have greeted each other, bytes: enough for the facts about a host.
pub const GREETING_BOUND: usize = 256 << 10;
/// Bound of a request to a daemon, bytes.
pub const REQUEST_BOUND: usize = 1 << 20;
/// Bound of a reply of a daemon, bytes. Longer reports travel in several frames.
pub const REPLY_BOUND: usize = 16 << 20;

const HEADER: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes is longer than the {bound} allowed at this point of the conversation")]
    TooLong { bytes: usize, bound: usize },
}

/// Puts the length before a body.
pub fn encode(body: &[u8], bound: usize) -> Result<Vec<u8>, FrameError> {
    let too_long = FrameError::TooLong { bytes: body.len(), bound };
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= bound).ok_or(too_long)?;
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    Ok(frame)
}

/// Collects the bytes of a stream and gives them back frame by frame.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Bytes at the front that were taken. They go when more arrive: moving the rest for each frame would make a flood of
    /// short frames cost its square.
    taken: usize,
    bound: usize,
}

impl Decoder {
    pub fn new(bound: usize) -> Self {
        Self { bytes: Vec::new(), taken: 0, bound }
    }

    /// Sets the bound of the frames that are not yet taken.
    pub fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
    }

    /// Adds bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes of the frames that are not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Whether no frame has begun to arrive.
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// Takes the next frame, if it is whole. An error makes the rest of the stream meaningless.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((header, rest)) = self.bytes[self.taken..].split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*header) as usize;
        if length > self.bound {
            return Err(FrameError::TooLong { bytes: length, bound: self.bound });
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let body = body.to_vec();
        self.taken += HEADER + length;
        if self.is_empty() {
            self.bytes.clear();
            self.taken = 0;
            // One large report must not keep its memory for the rest of a long session.
            self.bytes.shrink_to(4096);
        }
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_frames(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1usize..50,
        ) {
            let stream: Vec<u8> = bodies.iter().flat_map(|body| encode(body, 200).unwrap()).collect();
            let mut decoder = Decoder::new(200);
            let mut got = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                while let Some(body) = decoder.take().unwrap() {
                    got.push(body);
                }
            }
            prop_assert_eq!(got, bodies);
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn arbitrary_bytes_are_frames_or_an_error_and_never_kept_beyond_the_bound(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let mut decoder = Decoder::new(100);
            for piece in bytes.chunks(64) {
                decoder.push(piece);
                loop {
                    match decoder.take() {
                        Ok(Some(body)) => prop_assert!(body.len() <= 100),
                        Ok(None) => break,
                        Err(FrameError::TooLong { bytes, bound }) => {
                            prop_assert!(bytes > bound);
                            return Ok(());
                        }
                    }
                }
                prop_assert!(decoder.bytes.len() <= HEADER + 100 + 64);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::new(10);
        decoder.push(&11u32.to_be_bytes());
        assert_eq!(decoder.take(), Err(FrameError::TooLong { bytes: 11, bound: 10 }));
        assert!(encode(&[0; 11], 10).is_err());
    }
}
