//! The lines between a launcher and the daemon that it started, over the daemon's standard input and output.
//!
//! Standard input is the life line. Its first line is the launcher's half of the key, 64 hexadecimal digits. Lines follow:
//!
//! | line | meaning |
//! | --- | --- |
//! | (empty) | the launcher lives |
//! | `allow-connect NETWORK` | near ends here may connect to this network |
//! | `data STREAM LENGTH`, then that many bytes | bytes of a relayed control connection |
//! | `close STREAM` | its end |
//!
//! The daemon prints one line with [`MARK`] and a [`Greeting`] as JSON once it serves. What a login shell prints may come
//! before it, and a launcher's label may stand in the line before the mark. Relayed bytes come back in the same form.
//!
//! Each daemon makes the other half and says it in its greeting. So daemons that share one standard input (Slurm, MPI) have
//! different keys. MPICH gives its standard input to one process only: there the daemon's half is the whole key (`--own-key`),
//! and it lives as long as its parent and a session of its launcher.

use std::{
    io::{self, BufRead, Read, Write},
    net::IpAddr,
    time::Duration,
};

use netcore::{daemon::Network, foreign, measure::addresses::InterfaceAddress};
use serde::{Deserialize, Serialize};

/// Version of these lines.
pub const CONTRACT: u32 = 2;

/// Begins the greeting in a line of standard output.
pub const MARK: &str = "plumb-serving ";

/// Interval of the launcher's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// The daemon ends after this long without a byte from the launcher. Five heartbeats: a machine may stall for some seconds.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Longest line, bytes.
pub const LONGEST_LINE: usize = 64 << 10;

/// Most relayed bytes of one message.
pub const LONGEST_DATA: usize = 32 << 10;

/// Facts about a daemon that has been launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub contract: u32,
    pub version: String,
    pub pid: u32,
    /// Its own name of the host.
    pub host: Option<String>,
    /// Machine type of its kernel (`x86_64`).
    pub machine: Option<String>,
    /// Port of the daemon.
    pub port: u16,
    pub addresses: Vec<InterfaceAddress>,
    /// Its number among the processes of one launcher (Slurm, MPI).
    pub rank: Option<u32>,
    /// Its node's name for Slurm or Kubernetes.
    pub node: Option<String>,
    /// The address at which sshd was reached.
    pub reached_at: Option<IpAddr>,
    /// Its half of the key, or all of it where standard input does not reach it (`--own-key`). An older program has none.
    #[serde(default)]
    pub key: Option<String>,
}

impl Greeting {
    /// The line that carries it.
    pub fn line(&self) -> String {
        // Strings, numbers and lists are JSON always.
        format!("{MARK}{}\n", serde_json::to_string(self).unwrap_or_default())
    }

    /// The greeting of a line; `None`: the line is somebody else's.
    pub fn of_line(line: &str) -> Option<Result<Self, serde_json::Error>> {
        let (_, json) = line.split_once(MARK)?;
        Some(foreign::from_slice(json.trim().as_bytes()))
    }
}

/// A message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Heartbeat,
    /// Read one by one.
    AllowConnect(Vec<Network>),
    Data {
        stream: u32,
        bytes: Vec<u8>,
    },
    Close {
        stream: u32,
    },
}

impl Message {
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Heartbeat => out.write_all(b"\n")?,
            Self::AllowConnect(networks) => {
                networks.iter().try_for_each(|network| writeln!(out, "allow-connect {network}"))?;
            }
            Self::Data { stream, bytes } => {
                // One write, so that what others print cannot come between.
                let mut whole = format!("data {stream} {}\n", bytes.len()).into_bytes();
                whole.extend_from_slice(bytes);
                out.write_all(&whole)?;
            }
            Self::Close { stream } => writeln!(out, "close {stream}")?,
        }
        out.flush()
    }

    /// The message that a line begins, with the bytes that follow it. `None`: the line is no message.
    pub fn read(line: &str, rest: &mut impl Read) -> io::Result<Option<Self>> {
        let mut words = line.trim_end().split(' ');
        let message = match (words.next().unwrap_or_default(), words.next(), words.next(), words.next()) {
            ("", None, None, None) => Some(Self::Heartbeat),
            ("allow-connect", Some(network), None, None) => {
                network.parse().ok().map(|one| Self::AllowConnect(vec![one]))
            }
            ("close", Some(stream), None, None) => stream.parse().ok().map(|stream| Self::Close { stream }),
            ("data", Some(stream), Some(length), None) => match (stream.parse(), length.parse::<usize>()) {
                (Ok(stream), Ok(length)) if length <= LONGEST_DATA => {
                    let mut bytes = vec![0; length];
                    rest.read_exact(&mut bytes)?;
                    Some(Self::Data { stream, bytes })
                }
                _ => None,
            },
            _ => None,
        };
        Ok(message)
    }
}

/// The next line without its end; `None`: there are no more. Bytes that are no text are replaced.
pub fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = input.take(LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    while line.last().is_some_and(|byte| [b'\n', b'\r'].contains(byte)) {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            contract: CONTRACT,
            version: "1.2.3".into(),
            pid: 7,
            host: Some("b".into()),
            machine: Some("x86_64".into()),
            port: 41_234,
            addresses: vec![InterfaceAddress { interface: "eth0".into(), address: [10, 0, 0, 2].into() }],
            rank: None,
            node: None,
            reached_at: Some([10, 0, 0, 2].into()),
            key: None,
        }
    }

    #[test]
    fn a_greeting_is_found_behind_a_label() {
        let line = format!("3: {}", greeting().line());
        assert_eq!(Greeting::of_line(&line).unwrap().unwrap(), greeting());
        assert!(Greeting::of_line("Last login: today").is_none());
        assert!(Greeting::of_line(&format!("{MARK}{{}}")).unwrap().is_err());
        let mut hostile = greeting();
        hostile.addresses[0].interface = "\u{1b}]0;owned\n::error::".into();
        let read = Greeting::of_line(hostile.line().trim_end()).unwrap().unwrap();
        assert!(!read.addresses[0].interface.contains(['\u{1b}', '\n']), "{read:?}");
    }

    proptest! {
        #[test]
        fn messages_read_back(stream: u32, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let sent = [
                Message::Heartbeat,
                Message::Data { stream, bytes },
                Message::AllowConnect(vec!["10.0.0.0/8".parse().unwrap()]),
                Message::Close { stream },
            ];
            let mut wire = Vec::new();
            for message in &sent {
                message.write(&mut wire).unwrap();
            }
            let mut input = wire.as_slice();
            for message in sent {
                let line = read_line(&mut input).unwrap().unwrap();
                prop_assert_eq!(Message::read(&line, &mut input).unwrap(), Some(message));
            }
            prop_assert_eq!(read_line(&mut input).unwrap(), None);
        }

        #[test]
        fn any_line_is_a_message_or_none(line in ".{0,60}") {
            let _ = Message::read(&line, &mut io::empty());
        }
    }
}
