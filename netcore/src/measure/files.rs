//! Text files of the kernel.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

/// A file's text; empty where it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// First line of a file, trimmed; `None` if it is empty or cannot be read.
pub(super) fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = text(path);
    let first = text.lines().next()?.trim();
    (!first.is_empty()).then(|| first.to_owned())
}

/// Reads an open file of the kernel anew into `buffer`; returns its text. `None`: it cannot be read any more.
pub(super) fn again<'a>(file: &File, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
    let mut length = 0;
    loop {
        if buffer.len() == length {
            buffer.resize((2 * length).max(4096), 0);
        }
        // Files of many lines come in pieces.
        match file.read_at(&mut buffer[length..], length as u64).ok()? {
            0 => return std::str::from_utf8(&buffer[..length]).ok(),
            more => length += more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_whatever_its_length() {
        let path = std::env::temp_dir().join(format!("plumb-again-{}", std::process::id()));
        let mut buffer = Vec::new();
        for length in [0, 10, 4096, 100_000, 7] {
            fs::write(&path, "x".repeat(length)).unwrap();
            assert_eq!(again(&File::open(&path).unwrap(), &mut buffer).unwrap().len(), length);
        }
        fs::remove_file(path).unwrap();
        let file = File::open("/proc/thread-self/stat").unwrap();
        assert!(again(&file, &mut buffer).unwrap().ends_with('\n'));
    }
}
