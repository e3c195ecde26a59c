//! Snapshots taken by `--collect`: from `/proc`, or from programs that print counters.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::error::Error;

/// A source of counters: a file or a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The item of `--collect`; the name of the source in the output.
    pub name: String,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    File(PathBuf),
    Program(&'static str, Vec<String>),
}

/// The counters of a source at an instant.
#[derive(Clone, Debug)]
pub struct Sample {
    pub text: String,
    /// When the text was complete.
    pub at: Instant,
}

/// The items of `--collect`, for error messages.
const KINDS: &str = "snmp, snmp6, netstat, tcpext, dev, softnet, nstat, ethtool:IF, ip, interrupts, softirqs, vmstat, \
                         dev:IF, ip:IF, file:PATH";

impl Source {
    /// Parses an item of `--collect`.
    pub fn parse(item: &str) -> Result<Self, Error> {
        let item = item.trim();
        let file = |path: &str| Ok(How::File(PathBuf::from(path)));
        let program = |name, args: &[&str]| Ok(How::Program(name, args.iter().map(|a| (*a).to_owned()).collect()));
        let how = match item.split_once(':') {
            Some((_, "")) => Err(()),
            Some(("ethtool", interface)) => program("ethtool", &["-S", interface]),
            Some(("ip", interface)) => program("ip", &["-s", "-j", "link", "show", "dev", interface]),
            Some(("dev", _)) => file("/proc/net/dev"),
            Some(("file", path)) => file(path),
            Some(_) => Err(()),
            None => match item {
                "snmp" => file("/proc/net/snmp"),
                "snmp6" => file("/proc/net/snmp6"),
                "tcpext" => file("/proc/net/netstat"),
                "dev" => file("/proc/net/dev"),
                "softnet" => file("/proc/net/softnet_stat"),
                "interrupts" => file("/proc/interrupts"),
                "softirqs" => file("/proc/softirqs"),
                "vmstat" => file("/proc/vmstat"),
                "netstat" => program("netstat", &["-s"]),
                // With zeros, and without a change to the history file of the user's own nstat.
                "nstat" => program("nstat", &["-asz", "--noupdate"]),
                "ip" => program("ip", &["-s", "-j", "link"]),
                _ => Err(()),
            },
        };
        match how {
            Ok(how) => Ok(Self { name: item.to_owned(), how }),
            Err(()) => Err(Error::Usage(format!("--collect: `{item}` is not one of {KINDS}"))),
        }
    }

    /// The interface of `dev:IF`, `ip:IF` and `ethtool:IF`.
    pub fn interface(&self) -> Option<&str> {
        self.name.split_once(':').filter(|(kind, _)| matches!(*kind, "dev" | "ip" | "ethtool")).map(|(_, i)| i)
    }

    /// Takes a sample.
    pub fn read(&self) -> Result<Sample, Error> {
        let text = match &self.how {
            How::File(path) => {
                let bytes = std::fs::read(path).map_err(Error::file(path))?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            How::Program(program, args) => run(program, args)?,
        };
        let at = Instant::now();
        let text = match (&self.how, self.interface()) {
            (How::File(_), Some(interface)) => self.only(&text, interface)?,
            _ => text,
        };
        Ok(Sample { text, at })
    }

    /// Keeps one interface of `/proc/net/dev`.
    fn only(&self, text: &str, interface: &str) -> Result<String, Error> {
        let mut found = false;
        let kept = text
            .lines()
            .enumerate()
            .filter(|(at, line)| {
                let is_it = line.rsplit_once(':').is_some_and(|(name, _)| name.trim() == interface);
                found |= is_it;
                *at < 2 || is_it
            })
            .fold(String::new(), |kept, (_, line)| kept + line + "\n");
        if found {
            Ok(kept)
        } else {
            Err(Error::Usage(format!("--collect {}: this machine has no interface `{interface}`", self.name)))
        }
    }
}

fn run(program: &str, args: &[String]) -> Result<String, Error> {
    let shown = format!("{program} {}", args.join(" "));
    let output = Command::new(program).args(args).output().map_err(|e| {
        let what = match e.kind() {
            std::io::ErrorKind::NotFound => {
                let package = match program {
                    "netstat" => "net-tools",
                    "ethtool" => "ethtool",
                    _ => "iproute2",
                };
                format!(
                    "`{program}` is not installed (Debian: apt install {package}); snmp, tcpext and dev need no program"
                )
            }
            _ => format!("cannot run `{shown}`: {e}"),
        };
        Error::Usage(format!("--collect: {what}"))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("nothing on its standard error").trim();
        return Err(Error::Usage(format!("--collect: `{shown}` failed ({}): {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}
