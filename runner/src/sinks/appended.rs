//! A file that grows by complete pieces: a piece that does not fit is removed again.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
};

#[derive(Debug)]
pub struct Appended {
    file: File,
    /// Length of the complete pieces, bytes.
    whole: u64,
}

impl Appended {
    /// The file must be open at its end.
    pub fn at_end_of(file: File) -> io::Result<Self> {
        let whole = file.metadata()?.len();
        Ok(Self { file, whole })
    }
}

impl Appended {
    /// Brings the pieces to the disk. A device or a pipe has none.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data().or_else(|e| match e.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
            _ => Err(e),
        })
    }
}

impl Write for Appended {
    /// Writes the whole piece or, if the file can be truncated, nothing.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.file.write_all(piece) {
            // Rows written to a removed file are lost.
            Ok(()) if self.file.metadata()?.nlink() == 0 => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed while the run was going on"));
            }
            Ok(()) => self.whole += piece.len() as u64,
            Err(error) => {
                // A full disk takes as much as fits. Only a regular file can be truncated.
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
