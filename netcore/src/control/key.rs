//! The key that both ends share: 32 random bytes, stored in a file as one line of 64 hexadecimal digits.

use std::{
    fmt, fs,
    io::Write,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

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
    #[error("{} is no key file: it must hold 64 hexadecimal digits, as `plumb key` writes them", path.display())]
    Malformed { path: PathBuf },
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

impl Key {
    /// A new key from the system's random source.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| KeyError::Random(error.to_string()))?;
        Ok(Self(bytes))
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
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
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
        assert!(matches!(Key::load(&path), Err(KeyError::Malformed { .. })));
        assert!(Key::from_hex(&"é".repeat(32)).is_none());
    }

    proptest! {
        #[test]
        fn text_reads_back(bytes: [u8; 32]) {
            let key = Key(bytes);
            prop_assert_eq!(Key::from_hex(&key.to_hex()), Some(key));
        }

        #[test]
        fn any_text_is_a_key_or_none(text in ".{0,80}") {
            let _ = Key::from_hex(&text);
        }
    }
}
