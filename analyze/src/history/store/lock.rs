//! Files of a history, one process at a time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Opens a file to append to it and waits until no other process has it. The lock ends with the file. The note: this file
/// system has no locks.
pub(super) fn open(path: &Path, create: bool) -> io::Result<(File, Option<String>)> {
    loop {
        let file = OpenOptions::new().read(true).append(true).create(create).open(path)?;
        let note = file.lock().err().map(|error| {
            format!("{}: cannot lock it ({error}): let no other plumb history write there now", path.display())
        });
        // Compaction puts another file in its place.
        let own = file.metadata()?;
        match fs::metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (own.dev(), own.ino()) => return Ok((file, note)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}
