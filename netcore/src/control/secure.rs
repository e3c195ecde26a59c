//! Encryption of the conversation: Noise `NNpsk0` (X25519, ChaCha20-Poly1305, BLAKE2s) with the shared key.
//!
//! Both finishing the handshake and reading a byte need the key. Each connection has fresh keys of its own, so a key that
//! leaks later opens no recorded conversation. On the wire a record is two bytes of length (big endian) and a Noise
//! message; frames are cut into as many records as they need.

use snow::{Builder, HandshakeState, TransportState};

use super::key::Key;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The longest Noise message, bytes.
const RECORD: usize = 65535;
/// Bytes that authentication adds to each message.
const TAG: usize = 16;
const HEADER: usize = 2;

/// A record that was not made with the key, or was changed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record could not be decrypted: it was changed on the way or made with another key")]
pub struct Undecipherable;

/// Encryption of one connection, both ways.
#[derive(Debug)]
pub struct Cipher {
    state: TransportState,
    raw: Vec<u8>,
}

/// A handshake of one message each way.
#[derive(Debug)]
pub struct Handshake(HandshakeState);

impl Handshake {
    /// Length of the other side's record, bytes: an ephemeral public key and the tag of an empty payload.
    pub const RECORD_BYTES: usize = HEADER + 32 + TAG;

    /// The side that connected. `prologue`: the bytes exchanged in clear before; a change of them on the way makes the
    /// handshake fail.
    pub fn initiator(key: &Key, prologue: &[u8]) -> Result<Self, Undecipherable> {
        Self::builder(key, prologue)?.build_initiator().map(Self).map_err(|_| Undecipherable)
    }

    /// The side that accepted.
    pub fn responder(key: &Key, prologue: &[u8]) -> Result<Self, Undecipherable> {
        Self::builder(key, prologue)?.build_responder().map(Self).map_err(|_| Undecipherable)
    }

    fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, Undecipherable> {
        // The pattern is a constant that the tests run, so it parses.
        Builder::new(PATTERN.parse().expect("the pattern's name is valid"))
            .psk(0, key.bytes())
            .and_then(|builder| builder.prologue(prologue))
            .map_err(|_| Undecipherable)
    }

    /// This side's message, as a record.
    pub fn write(&mut self) -> Result<Vec<u8>, Undecipherable> {
        let mut message = [0; 128];
        let length = self.0.write_message(&[], &mut message).map_err(|_| Undecipherable)?;
        Ok(record(&message[..length]))
    }

    /// Takes the other side's record.
    pub fn read(&mut self, record: &[u8]) -> Result<(), Undecipherable> {
        let (header, message) = record.split_first_chunk::<HEADER>().ok_or(Undecipherable)?;
        if usize::from(u16::from_be_bytes(*header)) != message.len() {
            return Err(Undecipherable);
        }
        self.0.read_message(message, &mut [0; 128]).map(drop).map_err(|_| Undecipherable)
    }

    /// The cipher of the connection, after both messages.
    pub fn finish(self) -> Result<Cipher, Undecipherable> {
        let state = self.0.into_transport_mode().map_err(|_| Undecipherable)?;
        Ok(Cipher { state, raw: Vec::new() })
    }
}

impl Cipher {
    /// Encrypts bytes into records.
    pub fn seal(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Undecipherable> {
        let mut sealed = Vec::with_capacity(bytes.len() + (bytes.len() / (RECORD - TAG) + 1) * (TAG + HEADER));
        let mut message = vec![0; RECORD];
        for piece in bytes.chunks(RECORD - TAG) {
            let length = self.state.write_message(piece, &mut message).map_err(|_| Undecipherable)?;
            sealed.extend_from_slice(&record(&message[..length]));
        }
        Ok(sealed)
    }

    /// Takes bytes as they arrive and appends the decrypted ones to `clear`.
    pub fn open(&mut self, bytes: &[u8], clear: &mut Vec<u8>) -> Result<(), Undecipherable> {
        self.raw.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some((header, rest)) = self.raw[taken..].split_first_chunk::<HEADER>() {
            let length = usize::from(u16::from_be_bytes(*header));
            let Some(message) = rest.get(..length) else { break };
            let at = clear.len();
            clear.resize(at + length, 0);
            let opened = self.state.read_message(message, &mut clear[at..]).map_err(|_| Undecipherable)?;
            // No end sends one. A flood of them would be work without ever a message.
            if opened == 0 {
                return Err(Undecipherable);
            }
            clear.truncate(at + opened);
            taken += HEADER + length;
        }
        self.raw.drain(..taken);
        Ok(())
    }
}

fn record(message: &[u8]) -> Vec<u8> {
    // Noise messages are at most 65535 bytes long.
    let length = u16::try_from(message.len()).expect("a Noise message fits its length");
    [&length.to_be_bytes(), message].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(near: &Key, far: &Key) -> Result<(Cipher, Cipher), Undecipherable> {
        let mut initiator = Handshake::initiator(near, b"hello")?;
        let mut responder = Handshake::responder(far, b"hello")?;
        let first = initiator.write()?;
        assert_eq!(first.len(), Handshake::RECORD_BYTES);
        responder.read(&first)?;
        let second = responder.write()?;
        assert_eq!(second.len(), Handshake::RECORD_BYTES);
        initiator.read(&second)?;
        Ok((initiator.finish()?, responder.finish()?))
    }

    #[test]
    fn another_key_ends_the_handshake() {
        assert!(pair(&Key::generate().unwrap(), &Key::generate().unwrap()).is_err());
    }

    #[test]
    fn another_prologue_ends_the_handshake() {
        let key = Key::generate().unwrap();
        let mut initiator = Handshake::initiator(&key, b"plain offered").unwrap();
        let mut responder = Handshake::responder(&key, b"hello").unwrap();
        assert!(responder.read(&initiator.write().unwrap()).is_err());
    }

    #[test]
    fn long_and_cut_and_changed() {
        let key = Key::generate().unwrap();
        let (mut near, mut far) = pair(&key, &key).unwrap();
        let text: Vec<u8> = b"plumbline ".repeat(20_000);
        let mut sealed = near.seal(&text).unwrap();
        assert!(sealed.len() > text.len() + 3 * TAG);
        assert!(!sealed.windows(9).any(|window| window == b"plumbline"));
        let mut clear = Vec::new();
        for piece in sealed.chunks(7919) {
            far.open(piece, &mut clear).unwrap();
        }
        assert_eq!(clear, text);
        sealed = near.seal(b"once more").unwrap();
        *sealed.last_mut().unwrap() ^= 1;
        assert_eq!(far.open(&sealed, &mut clear), Err(Undecipherable));
    }

    #[test]
    fn empty_records_are_refused() {
        let key = Key::generate().unwrap();
        let (mut near, mut far) = pair(&key, &key).unwrap();
        let mut message = [0; 64];
        let length = near.state.write_message(&[], &mut message).unwrap();
        let mut clear = Vec::new();
        assert_eq!(far.open(&record(&message[..length]), &mut clear), Err(Undecipherable));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let key = Key::generate().unwrap();
            prop_assert!(Handshake::responder(&key, b"").unwrap().read(&bytes).is_err());
            let (_, mut far) = pair(&key, &key).unwrap();
            let mut clear = Vec::new();
            let _ = far.open(&bytes, &mut clear);
            prop_assert!(clear.len() <= 300);
        }
    }
}
