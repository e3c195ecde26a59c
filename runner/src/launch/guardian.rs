//! Cleans up what the end of a process does not free: an allocation, pods, containers.

use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use netcore::control::stop::wait;

/// Time for the first clean-up when the run ends. It goes on by itself after that.
const PATIENCE: Duration = Duration::from_secs(15);

/// A small process that waits until this one is gone, however it went, and then runs a command twice: what was being made
/// at that moment may appear after the first time.
///
/// It holds the reading end of a pipe, whose writing end only this process has. It ignores the signals of a terminal and is
/// in a process group of its own.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    pub fn start(cleanup: &[String]) -> io::Result<Self> {
        let child = Command::new("sh")
            .args([
                "-c",
                r#"trap "" INT TERM HUP; cat >/dev/null; "$@" >/dev/null; exec >/dev/null; sleep 1; exec "$@""#,
                "plumb-guardian",
            ])
            .args(cleanup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Its output ends after the first time.
        if let Some(output) = &self.child.stdout {
            let _ = wait([Some(output.as_fd())], Some(Instant::now() + PATIENCE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_cleans_up_when_its_pipe_closes() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        std::fs::create_dir(&made).unwrap();
        let guardian = Guardian::start(&["rm".into(), "-rf".into(), made.display().to_string()]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(made.exists());
        drop(guardian);
        assert!(!made.exists());
    }
}
