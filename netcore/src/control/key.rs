//! The key that both ends share, and the encryption of the conversation with it. A key is 32 bytes: a file holds 64 hexadecimal
//! digits, and a person types a short key of 160 random bits.

use std::{
    fmt, fs,
    io::Write,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use schemas::text::hex;
use snow::{Builder, HandshakeState, TransportState};

use crate::transport::stamp::Secret;

/// A secret shared by a daemon and its clients.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot {what} the key file {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Group or others may read the file, so the key is not secret.
    #[error("the key file {} may be read by others (mode {mode:04o}): chmod 600 {}", path.display(), path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("{} is no key file: it must hold 64 hexadecimal digits, as `plumb key` writes them; a short key, as `plumb serve` prints it, goes into \
             PLUMB_KEY", path.display())]
    Malformed { path: PathBuf },
    #[error("{place} is no key: it must be 64 hexadecimal digits, or a short key as `plumb serve` prints it")]
    NoKey { place: &'static str },
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

/// Digits of a short key: Crockford's base 32, which leaves out letters that look like others.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Random bytes of a short key. The handshake mixes a key by a hash, so that the rest may be zero.
const SHORT_BYTES: usize = 20;

impl Key {
    /// A new key from the system's random source.
    pub fn generate() -> Result<Self, KeyError> {
        Self::random(32)
    }

    /// A new key that a person can copy by hand, see [`Key::to_short`].
    pub fn generate_short() -> Result<Self, KeyError> {
        Self::random(SHORT_BYTES)
    }

    /// A key whose first `length` bytes are random and whose others are zero.
    fn random(length: usize) -> Result<Self, KeyError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes[..length]).map_err(|error| KeyError::Random(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// The key as it authenticates packets of STAMP.
    pub fn secret(&self) -> Secret {
        Secret::new(&self.0)
    }

    /// The key of two halves that came by different ways: one half alone says nothing of the key.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] ^ other.0[at]))
    }

    /// Reads a key from a text that came from `place`: hexadecimal digits or a short key.
    pub fn from_text(text: &str, place: &'static str) -> Result<Self, KeyError> {
        let text = text.trim();
        Self::from_hex(text).or_else(|| Self::from_short(text)).ok_or(KeyError::NoKey { place })
    }

    /// Eight groups of four digits, `7q4k-…`. Only a key of [`Key::generate_short`] reads back from it.
    pub fn to_short(&self) -> String {
        let bits = |digit: usize| (0..5).fold(0, |value, bit| value << 1 | self.bit(5 * digit + bit));
        let digits: Vec<u8> = (0..SHORT_BYTES * 8 / 5).map(|digit| DIGITS[bits(digit)]).collect();
        digits.chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join("-")
    }

    /// Bit number `at`, the highest of the first byte being 0.
    fn bit(&self, at: usize) -> usize {
        usize::from(self.0[at / 8] >> (7 - at % 8) & 1)
    }

    /// Reads a short key, in either case, with or without hyphens. `o` is read as 0; `i` and `l` are read as 1.
    fn from_short(text: &str) -> Option<Self> {
        let mut bytes = [0u8; 32];
        let mut count = 0;
        for letter in text.bytes().filter(|letter| *letter != b'-') {
            let letter = match letter.to_ascii_lowercase() {
                b'o' => b'0',
                b'i' | b'l' => b'1',
                other => other,
            };
            let value = DIGITS.iter().position(|digit| *digit == letter)?;
            for bit in (0..5).filter(|bit| value >> (4 - bit) & 1 == 1) {
                let at: usize = 5 * count + bit;
                *bytes.get_mut(at / 8)? |= 1 << (7 - at % 8);
            }
            count += 1;
        }
        (count == SHORT_BYTES * 8 / 5).then_some(Self(bytes))
    }

    /// Reads a key file. Refuses a file that group or others may read, except a credential of a systemd unit.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { what: "read", path: path.to_owned(), source };
        let mode = fs::metadata(path).map_err(io)?.mode() & 0o7777;
        // systemd grants a credential to the unit's user by an access list, whose mask shows as the group's bits. Others cannot
        // enter the folder.
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|folder| !folder.is_empty());
        let of_others = if credentials.is_some_and(|folder| path.starts_with(folder)) { 0o037 } else { 0o077 };
        if mode & of_others != 0 {
            return Err(KeyError::Readable { path: path.to_owned(), mode });
        }
        let text = fs::read_to_string(path).map_err(io)?;
        Self::from_hex(text.trim()).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })
    }

    /// Writes the key into a new file that only its owner may read. Fails where the file exists: replacing a key locks out
    /// every end that still has the old one.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let io = |what| move |source| KeyError::Io { what, path: path.to_owned(), source };
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io("create"))?;
        writeln!(file, "{}", self.to_hex()).map_err(io("write"))?;
        file.sync_all().map_err(io("write"))
    }

    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads the text form; `None` unless it is 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A logged key is not secret any more.
        f.write_str("Key(…)")
    }
}

// Encryption of the conversation: Noise `NNpsk0` (X25519, ChaCha20-Poly1305, BLAKE2s) with the shared key.
//
// Both finishing the handshake and reading a byte need the key. Each connection has fresh keys of its own, so a key that
// leaks later opens no recorded conversation. On the wire a record is two bytes of length (big endian) and a Noise
// message; frames are cut into as many records as they need.

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
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_saved_key_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab.key");
        let key = Key::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Key::load(&path).unwrap(), key);
        assert!(matches!(Key::generate().unwrap().save(&path), Err(KeyError::Io { what: "create", .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let sentence = Key::load(&path).unwrap_err().to_string();
        assert!(sentence.contains("mode 0644") && sentence.contains("chmod 600"), "{sentence}");
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = Key::generate().unwrap();
        assert!(!format!("{key:?}").contains(&key.to_hex()[..8]));
    }

    #[test]
    fn other_texts_are_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no.key");
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let sentence = Key::load(&path).unwrap_err().to_string();
        assert!(sentence.contains("is no key file") && sentence.contains("PLUMB_KEY"), "{sentence}");
        assert!(Key::from_hex(&"é".repeat(32)).is_none());
    }

    #[test]
    fn a_short_key_reads_back_as_people_type_it() {
        let key = Key::generate_short().unwrap();
        let text = key.to_short();
        assert_eq!((text.len(), text.matches('-').count()), (39, 7), "{text}");
        for typed in [text.clone(), text.to_uppercase(), text.replace('-', ""), format!(" {text}\n")] {
            assert_eq!(Key::from_text(&typed, "PLUMB_KEY").unwrap(), key, "{typed}");
        }
        assert_eq!(Key::from_text(&text.replace('0', "O").replace('1', "l"), "PLUMB_KEY").unwrap(), key);
        for wrong in ["", "7q4k", &text[1..], &format!("{text}0"), &text.replacen(|c| c != '-', "u", 1)] {
            let sentence = Key::from_text(wrong, "PLUMB_KEY").unwrap_err().to_string();
            assert!(sentence.starts_with("PLUMB_KEY is no key"), "{wrong}: {sentence}");
        }
    }

    proptest! {
        #[test]
        fn text_reads_back(bytes: [u8; 32]) {
            let key = Key(bytes);
            prop_assert_eq!(Key::from_hex(&key.to_hex()), Some(key));
        }

        #[test]
        fn any_text_is_a_key_or_none(text in ".{0,80}") {
            let _ = Key::from_text(&text, "");
        }
    }

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
