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
//!
//! The address of a host is named in the plan, or chosen here among those that a launched host reports.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read, Write},
    net::{IpAddr, ToSocketAddrs},
    time::Duration,
};

use netcore::{control::dial, daemon::Network, foreign, measure::addresses::InterfaceAddress};
use serde::{Deserialize, Serialize};

use crate::{error::Error, plan::model::Host};

/// Version of these lines.
pub const CONTRACT: u32 = 2;

/// Begins the greeting in a line of standard output.
pub const MARK: &str = "plumb-serving ";

/// Interval of the launcher's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

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

/// The host's address by `interface` or `network` of the plan, else the one at which sshd was reached, else its only one.
/// The plan's own `address` is not considered here: it may be a name.
pub fn choose(host: &Host, greeting: &Greeting) -> Result<IpAddr, String> {
    let network: Option<Network> = host.network.as_deref().and_then(|text| text.parse().ok());
    let asked = host.interface.is_some() || network.is_some();
    if let (false, Some(address)) = (asked, greeting.reached_at) {
        return Ok(address);
    }
    let fits = |it: &&InterfaceAddress| {
        host.interface.as_deref().is_none_or(|name| name == it.interface)
            && network.is_none_or(|network| network.contains(it.address))
    };
    let fitting: Vec<&InterfaceAddress> = greeting.addresses.iter().filter(fits).collect();
    let v4: Vec<&InterfaceAddress> = fitting.iter().copied().filter(|it| it.address.is_ipv4()).collect();
    match (fitting.as_slice(), v4.as_slice()) {
        // With one address of each version, IPv4 is the default of tests.
        ([one], _) | (_, [one]) => Ok(one.address),
        ([], _) => Err(format!(
            "it has no address{}: it has {}",
            wish(host),
            listed(&greeting.addresses.iter().collect::<Vec<_>>())
        )),
        _ => Err(format!(
            "several of its addresses may carry the traffic{}: {}; choose with `address`, `interface` or `network`",
            wish(host),
            listed(&fitting)
        )),
    }
}

/// An address that an end says is its own, where no connection to it proves that: it must lie in the plan's `network`, or be one
/// of a host that the plan or the launcher names.
pub fn known<'a>(host: &Host, reported: IpAddr, names: impl Iterator<Item = &'a str>) -> Result<IpAddr, String> {
    let is_of = |name: &str| dial::resolve_or(name, 0).is_ok_and(|found| found.iter().any(|it| it.ip() == reported));
    if host.network.is_some() || { names }.any(is_of) {
        return Ok(reported);
    }
    Err(format!(
        "it says that its address is {reported}, and nothing here proves that: name it in the plan with `address: {reported}`, or a \
         `network` that it lies in"
    ))
}

/// Brings the greetings of one launcher into the order of its ends, where the plan says an address for each: a launcher numbers
/// its ends as it likes.
pub fn by_address(
    ends: &[String],
    hosts: &BTreeMap<String, &Host>,
    greetings: &mut Vec<Greeting>,
) -> Result<(), String> {
    let reported: Option<Vec<(&String, &str)>> =
        ends.iter().map(|name| Some((name, hosts.get(name)?.address.as_deref()?))).collect();
    let Some(reported) = reported.filter(|reported| reported.len() > 1) else { return Ok(()) };
    let (mut ordered, mut missing) = (Vec::with_capacity(greetings.len()), Vec::new());
    for (name, address) in reported {
        let wanted = resolve(name, address).map_err(|error| error.to_string())?;
        match greetings.iter().position(|it| it.addresses.iter().any(|its| its.address == wanted)) {
            Some(at) => ordered.push(greetings.remove(at)),
            None => missing.push(format!("{address} of host `{name}`")),
        }
    }
    if missing.is_empty() {
        *greetings = ordered;
        return Ok(());
    }
    let left: Vec<String> = greetings.iter().map(|it| listed(&it.addresses.iter().collect::<Vec<_>>())).collect();
    Err(format!(
        "none of the machines that were launched has the address {}; the others have {}",
        missing.join(", "),
        left.join("; ")
    ))
}

fn wish(host: &Host) -> String {
    let interface = host.interface.as_ref().map(|name| format!(" on `{name}`"));
    let network = host.network.as_ref().map(|network| format!(" in {network}"));
    [interface, network].into_iter().flatten().collect()
}

fn listed(addresses: &[&InterfaceAddress]) -> String {
    if addresses.is_empty() {
        return "none that other hosts reach".to_owned();
    }
    let words: Vec<String> = addresses.iter().map(|it| format!("{} ({})", it.address, it.interface)).collect();
    words.join(", ")
}

/// Adds brackets to an IPv6 address, which would read as `host:port` without them.
pub fn bracketed(control: &str) -> String {
    match control.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => control.to_owned(),
    }
}

pub fn resolve(name: &str, address: &str) -> Result<IpAddr, Error> {
    let found = (address, 0).to_socket_addrs().and_then(dial::usable);
    let fault = |what| Error::Measurement(format!("the address `{address}` of host `{name}` was not found: {what}"));
    found.map_err(fault).map(|found| found[0].ip())
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

#[cfg(test)]
mod tests_of_address {
    use super::*;

    fn greeting(addresses: &[(&str, &str)], reached_at: Option<&str>) -> Greeting {
        Greeting {
            contract: 1,
            version: "1".into(),
            pid: 1,
            host: None,
            machine: None,
            port: 1,
            addresses: addresses
                .iter()
                .map(|(interface, address)| InterfaceAddress {
                    interface: (*interface).into(),
                    address: address.parse().unwrap(),
                })
                .collect(),
            rank: None,
            node: None,
            reached_at: reached_at.map(|address| address.parse().unwrap()),
            key: None,
        }
    }

    #[test]
    fn the_plan_chooses_then_ssh_then_there_is_one() {
        let both = [("eth0", "10.0.0.2"), ("ib0", "10.1.0.2"), ("ib0", "fd00::2")];
        let chosen = |host: &Host, reached| choose(host, &greeting(&both, reached)).map(|it| it.to_string());
        let ib0 = Host { interface: Some("ib0".into()), ..Host::default() };
        assert_eq!(chosen(&ib0, Some("10.0.0.2")), Ok("10.1.0.2".into()));
        let network = Host { network: Some("fd00::/8".into()), ..Host::default() };
        assert_eq!(chosen(&network, None), Ok("fd00::2".into()));
        assert_eq!(chosen(&Host::default(), Some("10.0.0.2")), Ok("10.0.0.2".into()));
        let several = chosen(&Host::default(), None).unwrap_err();
        assert!(several.contains("10.0.0.2 (eth0), 10.1.0.2 (ib0)"), "{several}");
        let none = chosen(&Host { interface: Some("ib1".into()), ..Host::default() }, None).unwrap_err();
        assert!(none.contains("no address on `ib1`: it has 10.0.0.2 (eth0)"), "{none}");
        assert_eq!(choose(&Host::default(), &greeting(&both[..1], None)).unwrap().to_string(), "10.0.0.2");
    }

    #[test]
    fn addresses_that_mean_another_host_on_each_interface_are_refused() {
        for address in ["fe80::1", "fe80::1%lo"] {
            let error = resolve("b", address).unwrap_err().to_string();
            assert!(error.contains("host `b`") && error.contains("link-local"), "{error}");
        }
    }

    #[test]
    fn ends_with_addresses_of_their_own_are_found_by_these() {
        let reported = |address: &str| Host { address: Some(address.into()), ..Host::default() };
        let (one, two) = (reported("10.0.0.1"), reported("10.0.0.2"));
        let hosts = BTreeMap::from([("n1".to_owned(), &one), ("n2".to_owned(), &two)]);
        let ends = ["n1".to_owned(), "n2".to_owned()];
        let of = |address: &str| greeting(&[("eth0", address)], None);
        let mut greetings = vec![of("10.0.0.2"), of("10.0.0.1")];
        by_address(&ends, &hosts, &mut greetings).unwrap();
        assert_eq!(greetings[0].addresses[0].address.to_string(), "10.0.0.1");
        let error = by_address(&ends, &hosts, &mut vec![of("10.0.0.2"), of("10.0.0.3")]).unwrap_err();
        assert!(error.contains("10.0.0.1 of host `n1`") && error.contains("10.0.0.3 (eth0)"), "{error}");
        // One end may have an address that it does not know of.
        by_address(&ends[..1], &hosts, &mut vec![of("10.9.9.9")]).unwrap();
    }
}
