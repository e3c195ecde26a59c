//! A file that grows by whole pieces: one that does not fit is taken back.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
};

/// Such a file.
#[derive(Debug)]
pub struct Appended {
    file: File,
    /// Bytes of the whole pieces.
    whole: u64,
}

impl Appended {
    /// Goes on at the end of a file, which is where it was opened.
    pub fn at_end_of(file: File) -> io::Result<Self> {
        let whole = file.metadata()?.len();
        Ok(Self { file, whole })
    }
}

impl Write for Appended {
    /// Writes all of it or, as far as the file can be cut, nothing.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.file.write_all(piece) {
            // Whoever removes it removes what is yet to come, too.
            Ok(()) if self.file.metadata()?.nlink() == 0 => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed while the run was going on"));
            }
            Ok(()) => self.whole += piece.len() as u64,
            Err(error) => {
                // A full disk takes as much as fits. What is no regular file cannot be cut, and what went there is gone.
                let _ = self.file.set_len(self.whole);
                return Err(error);
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
