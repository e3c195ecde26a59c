//! Network namespaces: sockets belong to the namespace that their thread was in when it made them.

use std::{fs::File, io, path::PathBuf};

use nix::sched::{CloneFlags, setns};

#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("cannot open the network namespace `{name}` ({}): {source}; `ip netns list` shows those there are", path.display())]
    Open { name: String, path: PathBuf, source: io::Error },
    #[error("cannot enter the network namespace `{name}`: {source}; that needs CAP_SYS_ADMIN, as root has it")]
    Enter { name: String, source: io::Error },
    #[error("cannot start a thread for the network namespace `{name}`: {source}")]
    Thread { name: String, source: io::Error },
}

/// Moves the calling thread, and the threads it will start, into a namespace: a name known to `ip netns`, or a path.
pub fn enter(name: &str) -> Result<(), NetnsError> {
    let path = if name.contains('/') { PathBuf::from(name) } else { PathBuf::from("/run/netns").join(name) };
    let file =
        File::open(&path).map_err(|source| NetnsError::Open { name: name.to_owned(), path: path.clone(), source })?;
    setns(&file, CloneFlags::CLONE_NEWNET)
        .map_err(|error| NetnsError::Enter { name: name.to_owned(), source: error.into() })
}

/// Runs `work` inside a namespace, on a thread of its own: the calling thread stays where it is. `None`: runs it here.
pub fn within<T: Send>(name: Option<&str>, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    let Some(name) = name else { return Ok(work()) };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, || {
            enter(name)?;
            Ok(work())
        });
        let thread = thread.map_err(|source| NetnsError::Thread { name: name.to_owned(), source })?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_is_named() {
        let sentence = within(Some("no-such-namespace"), || ()).unwrap_err().to_string();
        assert!(sentence.contains("no-such-namespace") && sentence.contains("ip netns list"), "{sentence}");
    }

    #[test]
    fn without_a_name_nothing_changes() {
        let here = std::thread::current().id();
        assert_eq!(within(None, || std::thread::current().id()).unwrap(), here);
    }
}
