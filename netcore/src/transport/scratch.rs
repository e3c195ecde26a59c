//! A private folder for the sockets and FIFOs of one end.

use std::{
    fmt::Write as _,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::error::EndError;

/// A folder that only this user may enter; it goes with its owner, and everything in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in the system's folder for temporary files.
    pub fn new() -> Result<Self, EndError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| EndError::System {
            what: "cannot get random bytes for a name".to_owned(),
            source: std::io::Error::other(error),
        })?;
        let name = random.iter().fold("plumb-".to_owned(), |mut name, byte| {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
            name
        });
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|source| EndError::System {
            what: format!(
                "cannot make the folder {} for the test's sockets (TMPDIR names another place)",
                path.display()
            ),
            source,
        })?;
        Ok(Self { path })
    }

    /// A name in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now stays until the system cleans up: no reason to fail a measurement.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.join(".");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(scratch.join("x"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
