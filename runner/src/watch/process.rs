//! The watch's own processes, and what systemd is told.

use std::{
    env,
    ffi::OsString,
    io::Write as _,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            net::{SocketAddr, UnixDatagram},
            process::CommandExt as _,
        },
    },
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::plan::answers::span;

/// This program, also after another version of it has taken its place on the disk.
pub fn own_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    command
}

/// Starts a command with a text on its standard input, in a process group of its own: a terminal's SIGINT is for the watch.
pub fn start(mut command: Command, input: &str) -> Result<Child, String> {
    let started = command.stdin(Stdio::piped()).process_group(0).spawn();
    let mut child = started.map_err(|error| format!("it cannot be started: {error}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_owned();
        // One that reads nothing ends without it.
        thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    }
    Ok(child)
}

/// Sends a signal to a child and to those that it started.
pub fn signal(id: u32, signal: Signal) {
    let _ = killpg(Pid::from_raw(id.cast_signed()), signal);
}

/// Runs a command to its end, which comes after the limit at the latest.
pub fn limited(command: Command, input: &str, limit: Duration) -> Result<Output, String> {
    let child = start(command, input)?;
    let id = child.id();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || drop(sender.send(child.wait_with_output())));
    if let Ok(output) = ended.recv_timeout(limit) {
        return output.map_err(|error| error.to_string());
    }
    signal(id, Signal::SIGKILL);
    Err(format!("it was ended after {}", span(limit)))
}

/// systemd's socket for the state of a service (sd_notify(3)).
#[derive(Debug, Default)]
pub struct Systemd {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Time within which it wants a sign of life.
    pub watchdog: Option<Duration>,
}

impl Systemd {
    /// From the environment; without it nothing is told.
    pub fn of_environment() -> Self {
        let address = env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name));
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        let micros = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        Self { socket, watchdog: micros.map(Duration::from_micros) }
    }

    pub fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            // The watch goes on without a manager that listens.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

fn address(name: &OsString) -> Option<SocketAddr> {
    match name.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdout(Stdio::piped());
        command
    }

    #[test]
    fn a_command_gets_the_text_and_has_a_limit() {
        let output = limited(shell("cat; exit 3"), "{\"a\": \"$(b)\"}", Duration::MAX / 4).unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"{\"a\": \"$(b)\"}"[..], Some(3)));
        // It reads nothing, and a process that it started would hold on.
        let why = limited(shell("sleep 1000 & sleep 1000"), &"x".repeat(1 << 20), Duration::from_millis(1));
        assert!(why.unwrap_err().starts_with("it was ended after "));
    }

    #[test]
    fn systemd_hears_of_a_socket_by_path_or_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@plumb-test-{}", std::process::id());
        for name in [path.as_os_str().to_owned(), OsString::from(name)] {
            let address = address(&name).unwrap();
            let heard = UnixDatagram::bind_addr(&address).unwrap();
            let systemd = Systemd { socket: Some((UnixDatagram::unbound().unwrap(), address)), watchdog: None };
            systemd.tell("READY=1");
            let mut text = [0; 32];
            let count = heard.recv(&mut text).unwrap();
            assert_eq!(&text[..count], b"READY=1");
        }
        Systemd::default().tell("READY=1");
    }
}
