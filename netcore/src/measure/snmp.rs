//! Counters of the network stack, for the calling thread's network namespace.
//!
//! The files are below `/proc/thread-self/net`: `/proc/net` shows the namespace of the process's first thread, which is
//! another one where a plan gives a host its own namespace.

use std::{fs::File, io};

use super::{
    files::{again, text},
    kernel_sample::KernelSample,
};

/// Samples `snmp`, `netstat`, `snmp6` and `sockstat`. A missing file (IPv6 switched off) is left out.
pub(super) fn read(into: &mut KernelSample) {
    pairs(&net("snmp"), "snmp", into);
    pairs(&net("netstat"), "netstat", into);
    list(&net("snmp6"), "snmp6", into);
    sockets(&net("sockstat"), into);
    sockets(&net("sockstat6"), into);
}

/// Connections in TIME_WAIT.
pub(super) fn time_wait() -> Option<u64> {
    let mut sample = KernelSample::default();
    sockets(&net("sockstat"), &mut sample);
    sample.get("sockstat", "TCP.tw")
}

/// Packets that arrived with the mark "congestion experienced", over IPv4 and IPv6. The files stay open.
#[derive(Debug)]
pub(super) struct CeReader {
    netstat: File,
    /// Missing where the kernel has no IPv6.
    snmp6: Option<File>,
}

impl CeReader {
    pub(super) fn open() -> io::Result<Self> {
        let netstat = File::open("/proc/thread-self/net/netstat")?;
        Ok(Self { netstat, snmp6: File::open("/proc/thread-self/net/snmp6").ok() })
    }

    pub(super) fn read(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let v4 = pair(again(&self.netstat, buffer)?, "IpExt", "InCEPkts")?;
        let v6 = self.snmp6.as_ref().and_then(|file| {
            let value = again(file, buffer)?.lines().find_map(|line| line.strip_prefix("Ip6InCEPkts"))?;
            value.trim().parse::<u64>().ok()
        });
        Some(v4.saturating_add(v6.unwrap_or(0)))
    }
}

/// One value of a text of pairs of lines.
fn pair(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let place = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

fn net(name: &str) -> String {
    text(format!("/proc/thread-self/net/{name}"))
}

/// Parses pairs of lines, names above values: `Tcp: RtoMin …` and `Tcp: 200 …`. Negative values are settings and left
/// out (`MaxConn` -1: no limit).
fn pairs(text: &str, source: &str, into: &mut KernelSample) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':')) else {
            return;
        };
        if group != same {
            return;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                into.put(source, format!("{group}.{name}"), value);
            }
        }
    }
}

/// Parses lines of a name and a value.
fn list(text: &str, source: &str, into: &mut KernelSample) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            into.put(source, name, value);
        }
    }
}

/// Parses sockets in use by kind: `TCP: inuse 1 orphan 0 tw 3 …`. These are gauges.
fn sockets(text: &str, into: &mut KernelSample) {
    for line in text.lines() {
        let Some((kind, rest)) = line.split_once(':') else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        for pair in words.chunks_exact(2) {
            if let Ok(value) = pair[1].parse() {
                into.put("sockstat", format!("{kind}.{}", pair[0]), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn names_above_values_become_keys() {
        let mut sample = KernelSample::default();
        pairs("Ip: Forwarding TTL\nIp: 1 64\nTcp: MaxConn InSegs\nTcp: -1 7\n", "snmp", &mut sample);
        assert_eq!(sample.get("snmp", "Ip.TTL"), Some(64));
        assert_eq!(sample.get("snmp", "Tcp.InSegs"), Some(7));
        assert_eq!(sample.get("snmp", "Tcp.MaxConn"), None);
        // A text that is cut off, or is not of this form, gives what can be trusted and no more.
        pairs("Ip: A B\nUdp: 1 2\n", "other", &mut sample);
        pairs("Ip: A B\n", "other", &mut sample);
        assert_eq!(sample.get("other", "Ip.A"), None);
    }

    #[test]
    fn a_single_value_is_the_one_among_all() {
        let (reader, mut buffer) = (CeReader::open().unwrap(), Vec::new());
        let mut sample = KernelSample::default();
        read(&mut sample);
        let (v4, v6) = (sample.get("netstat", "IpExt.InCEPkts"), sample.get("snmp6", "Ip6InCEPkts"));
        assert!(reader.read(&mut buffer).unwrap() >= v4.unwrap() + v6.unwrap_or(0));
        assert_eq!(pair("TcpExt: A B\nTcpExt: 1 2\nIpExt: B A\nIpExt: 3 4\n", "IpExt", "A"), Some(4));
        assert_eq!(pair("IpExt: A\n", "IpExt", "A"), None);
    }

    #[test]
    fn sockets_are_counted_by_kind() {
        let mut sample = KernelSample::default();
        sockets("sockets: used 16\nTCP: inuse 1 orphan 0 tw 3 alloc 1 mem 0\nUDP: inuse 3 mem 1\n", &mut sample);
        assert_eq!(sample.get("sockstat", "TCP.tw"), Some(3));
        assert_eq!(sample.get("sockstat", "sockets.used"), Some(16));
    }

    #[test]
    fn datagrams_that_were_sent_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut before, mut after) = (KernelSample::default(), KernelSample::default());
        read(&mut before);
        for _ in 0..100 {
            sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
        }
        read(&mut after);
        for key in ["Udp.OutDatagrams", "Udp.InDatagrams"] {
            let delta = after.get("snmp", key).unwrap() - before.get("snmp", key).unwrap();
            assert!(delta >= 100, "{key} grew by {delta}");
        }
        assert!(after.get("netstat", "IpExt.OutOctets").unwrap() > before.get("netstat", "IpExt.OutOctets").unwrap());
    }
}
