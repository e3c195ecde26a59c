//! Detects the format of a text from its first lines.

use super::{Format, Value, openmetrics};

/// Number of lines that decide.
const LOOK: usize = 64;

/// The format of a text; [`Format::Text`] where no other fits.
pub fn detect(text: &str) -> Format {
    let start = text.trim_start();
    if start.starts_with(['{', '[']) {
        return json(text);
    }
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).take(LOOK).collect();
    let Some(first) = lines.first() else { return Format::Text };
    let words = || first.split_whitespace();
    if first.starts_with("Inter-|") {
        Format::Dev
    } else if first.trim_start().starts_with("NIC statistics:") || first.starts_with("Standard stats for ") {
        Format::Ethtool
    } else if words().count() >= 9 && words().all(|w| w.len() == 8 && w.bytes().all(|b| b.is_ascii_hexdigit())) {
        Format::Softnet
    } else if words().all(|w| w.strip_prefix("CPU").is_some_and(|n| n.parse::<u32>().is_ok())) {
        let softirqs = lines.iter().any(|l| l.trim_start().starts_with("NET_RX:"));
        if softirqs { Format::Softirqs } else { Format::Interrupts }
    } else if words().next() == Some("#kernel") {
        Format::Nstat
    } else if is_two_line(&lines) {
        Format::Snmp
    } else if is_netstat_s(&lines) {
        Format::NetstatS
    } else if openmetrics::looks_like(&lines) {
        Format::Openmetrics
    } else if is_key_value(&lines) {
        if lines.iter().all(|l| l.starts_with("Ip6") || l.starts_with("Icmp6") || l.starts_with("Udp")) {
            Format::Snmp6
        } else {
            Format::KeyValue
        }
    } else if is_csv(&lines) {
        Format::Csv
    } else {
        Format::Text
    }
}

fn is_two_line(lines: &[&str]) -> bool {
    let [names, values, ..] = lines else { return false };
    let (Some((a, names)), Some((b, values))) = (names.split_once(": "), values.split_once(": ")) else {
        return false;
    };
    a == b
        && !a.contains(char::is_whitespace)
        && names.split_whitespace().all(|w| w.starts_with(|c: char| c.is_ascii_alphabetic()))
        && values.split_whitespace().all(|w| Value::parse(w).is_some())
}

fn is_netstat_s(lines: &[&str]) -> bool {
    const SECTIONS: &[&str] = &["ip", "icmp", "tcp", "udp", "tcpext", "ipext", "ip6", "udplite", "sctp", "mptcpext"];
    lines.iter().any(|l| l.strip_suffix(':').is_some_and(|s| SECTIONS.contains(&s.to_ascii_lowercase().as_str())))
        && lines.iter().any(|l| l.starts_with([' ', '\t']))
}

fn is_key_value(lines: &[&str]) -> bool {
    lines.iter().all(|l| {
        let mut words = l.split_whitespace();
        let (key, value) = (words.next(), words.next());
        key.is_some_and(|k| Value::parse(k).is_none() && !k.contains(','))
            && value.is_some_and(|v| Value::parse(v).is_some())
            && words.next().is_none()
    })
}

fn is_csv(lines: &[&str]) -> bool {
    let [header, row, ..] = lines else { return false };
    // Commas outside quotes: every second piece between quotes is inside.
    let commas = |l: &str| l.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
    commas(header) > 0
        && !header.contains(": ")
        && header.split(',').all(|name| !name.is_empty() && Value::parse(name).is_none())
        && commas(header) == commas(row)
}

fn json(text: &str) -> Format {
    // The first keys decide. They are compared as text, so that a document that is broken further on counts as JSON,
    // too, and its reader names the place.
    let end = text.char_indices().nth(4096).map_or(text.len(), |(at, _)| at);
    let head: String = text[..end].chars().filter(|c| !c.is_whitespace()).collect();
    if head.starts_with("{\"kernel\":{") {
        Format::NstatJson
    } else if head.starts_with("[{\"ifindex\":") || head.contains("\"stats64\":") {
        Format::IpJson
    } else if head.starts_with("[{\"ifname\":") {
        Format::EthtoolJson
    } else {
        Format::Json
    }
}
