//! The lines of a history that hold the rows of a run, for annotations.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{series::Key, store};
use crate::error::Error;

/// The file and line (from 1) of a run's row in a series; `None`: it is not there any more.
pub fn place(history: &Path, key: &Key, run_id: &str) -> Result<Option<(PathBuf, usize)>, Error> {
    for file in store::files(history)? {
        let text = fs::read(&file).map_err(|source| Error::File { path: file.clone(), source })?;
        if memchr::memmem::find(&text, run_id.as_bytes()).is_none() {
            continue;
        }
        let text = String::from_utf8_lossy(&text);
        let names = [run_id, &key.machine, &key.case_id, &key.member, &key.direction, &key.metric];
        let is_row = |line: &str| {
            // Names without a comma are written as they are.
            names.iter().all(|name| name.is_empty() || line.split(',').any(|cell| cell.trim_matches('"') == *name))
        };
        if let Some(index) = text.lines().position(is_row) {
            return Ok(Some((file, index + 1)));
        }
    }
    Ok(None)
}
