//! The network stack's own counters, of the calling thread's network namespace.
//!
//! They are read below `/proc/thread-self/net`: `/proc/net` shows the namespace of the process's first thread, which is
//! another one where a plan gives a host a namespace of its own.

use std::fs;

use super::counter_log::Reading;

/// Reads `snmp`, `netstat`, `snmp6` and `sockstat`. What is not there (IPv6 switched off) is left out.
pub(super) fn read(into: &mut Reading) {
    let text = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    pairs(&text("snmp"), "snmp", into);
    pairs(&text("netstat"), "netstat", into);
    list(&text("snmp6"), "snmp6", into);
    sockets(&text("sockstat"), into);
    sockets(&text("sockstat6"), into);
}

/// Pairs of lines, names above values: `Tcp: RtoMin …` and `Tcp: 200 …`. Negative values (`MaxConn` -1: no limit) are
/// settings and no counters.
fn pairs(text: &str, source: &str, into: &mut Reading) {
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

/// One name and value per line.
fn list(text: &str, source: &str, into: &mut Reading) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            into.put(source, name.to_owned(), value);
        }
    }
}

/// Sockets in use by kind: `TCP: inuse 1 orphan 0 tw 3 …`. These are gauges.
fn sockets(text: &str, into: &mut Reading) {
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
        let mut reading = Reading::default();
        pairs("Ip: Forwarding TTL\nIp: 1 64\nTcp: MaxConn InSegs\nTcp: -1 7\n", "snmp", &mut reading);
        assert_eq!(reading.get("snmp", "Ip.TTL"), Some(64));
        assert_eq!(reading.get("snmp", "Tcp.InSegs"), Some(7));
        assert_eq!(reading.get("snmp", "Tcp.MaxConn"), None);
        // A text that is cut off, or is not of this form, gives what can be trusted and no more.
        pairs("Ip: A B\nUdp: 1 2\n", "other", &mut reading);
        pairs("Ip: A B\n", "other", &mut reading);
        assert_eq!(reading.get("other", "Ip.A"), None);
    }

    #[test]
    fn sockets_are_counted_by_kind() {
        let mut reading = Reading::default();
        sockets("sockets: used 16\nTCP: inuse 1 orphan 0 tw 3 alloc 1 mem 0\n", &mut reading);
        assert_eq!(reading.get("sockstat", "TCP.tw"), Some(3));
        assert_eq!(reading.get("sockstat", "sockets.used"), Some(16));
    }

    #[test]
    fn datagrams_that_were_sent_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut before, mut after) = (Reading::default(), Reading::default());
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
