//! `hooks.log`: the output of programs around the measurement.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    rc::Rc,
};

use super::appended::Appended;

/// A log that is made with its first entry. Where the log of an earlier run is there, entries wait until this run has rows.
/// Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct HookLog(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    path: Option<PathBuf>,
    run_id: String,
    waiting: Option<Vec<u8>>,
    file: Option<Appended>,
}

impl HookLog {
    /// Without a path, entries are dropped.
    pub fn new(path: Option<&Path>, run_id: &str, resumed: bool) -> Self {
        let waits = !resumed && path.is_some_and(Path::exists);
        let inner = Inner {
            path: path.map(Path::to_owned),
            run_id: run_id.to_owned(),
            waiting: waits.then(Vec::new),
            file: None,
        };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// Adds an entry.
    pub fn add(&self, entry: &str) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        match &mut inner.waiting {
            Some(waiting) => {
                waiting.extend(entry.as_bytes());
                Ok(())
            }
            None => inner.write(entry.as_bytes()),
        }
    }

    /// Allows the file to be made: the earlier one is gone.
    pub fn begin(&self) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        let waiting = inner.waiting.take().unwrap_or_default();
        inner.write(&waiting)
    }
}

impl Inner {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| !text.is_empty()) else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let is_new = !path.exists();
                let file = File::options().create(true).append(true).open(path)?;
                let mut file = Appended::at_end_of(file)?;
                if is_new {
                    file.write_all(format!("{} run {}\n", schemas::time::now().0, self.run_id).as_bytes())?;
                }
                none.insert(file)
            }
        };
        file.write_all(text)
    }
}
