//! Whole texts from files or standard input, for the filters that read what other programs print.

use std::io::Read;
use std::path::Path;

use crate::error::{Error, Place};

/// A file's name for messages, and its text. `-` is standard input.
pub fn read_text(path: &Path) -> Result<(String, String), Error> {
    let name = path.display().to_string();
    let failed = |source| Error::File { path: path.to_path_buf(), source };
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
        bytes
    } else {
        std::fs::read(path).map_err(failed)?
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(e) => {
            let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
            let place = Place { file: name, line, column: None };
            Err(Error::Data { place, reason: "the text is not UTF-8 here".to_owned() })
        }
    }
}
