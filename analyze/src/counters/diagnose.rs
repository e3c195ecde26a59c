//! The meaning of the differences, in sentences.

use super::{
    Value,
    diff::{Change, Note},
    line_at,
};
use crate::{
    error::{Error, ParseError},
    first_few,
};
use indexmap::IndexMap;

/// Sums of differences by key; `None` where the snapshots have none of the keys.
struct Look<'c, 'a> {
    changes: &'c [Change<'a>],
}

impl Look<'_, '_> {
    /// The sum of the first key that is there. Keys are `nstat`'s names and the words of `netstat -s`: different
    /// programs print the same counter.
    fn of(&self, names: &[&str]) -> Option<i128> {
        names.iter().find_map(|name| {
            let mut found = self.changes.iter().filter(|c| c.key == *name).peekable();
            found.peek()?;
            Some(whole(found))
        })
    }

    /// The same for programs that leave out zeros: an absent key is 0 where its protocol is `present`.
    fn or_none(&self, names: &[&str], present: Option<i128>) -> Option<i128> {
        self.of(names).or(present.map(|_| 0))
    }

    fn sum(&self, wanted: impl Fn(&Change<'_>) -> bool) -> Option<i128> {
        let mut found = self.changes.iter().filter(|c| wanted(c)).peekable();
        found.peek()?;
        Some(whole(found))
    }
}

fn whole<'c, 'a: 'c>(changes: impl Iterator<Item = &'c Change<'a>>) -> i128 {
    changes.filter_map(|c| c.delta?.whole()).sum()
}

fn times(count: i128) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn percent(part: i128, of: i128) -> String {
    let share = part as f64 / of as f64 * 100.0;
    if share >= 0.01 { format!("{share:.2} %") } else { format!("{share:.4} %") }
}

/// Sentences about what went wrong, then one about the sources that are missing. Never empty.
pub fn sentences(changes: &[Change<'_>]) -> Vec<String> {
    let look = Look { changes };
    let mut out = Vec::new();
    let mut unseen = Vec::new();
    tcp(&look, &mut out, &mut unseen);
    udp(&look, &mut out, &mut unseen);
    checksums(&look, &mut out);
    softnet(&look, &mut out, &mut unseen);
    interfaces(&look, &mut out, &mut unseen);
    if out.is_empty() {
        out.push("No trouble in the counters that were checked.".to_owned());
    }
    if !unseen.is_empty() {
        out.push(format!("Not checked: {}.", unseen.join("; ")));
    }
    out
}

fn tcp(look: &Look<'_, '_>, out: &mut Vec<String>, unseen: &mut Vec<&'static str>) {
    let sent = look.of(&["TcpOutSegs", "Tcp: segments sent out", "Tcp: segments send out"]);
    let again = look.or_none(&["TcpRetransSegs", "Tcp: segments retransmitted"], sent);
    match (again, sent) {
        (Some(0), Some(sent)) if sent > 0 => out.push(format!("TCP sent {sent} segments and retransmitted none.")),
        (Some(again), Some(sent)) if sent > 0 => {
            let verdict = match again as f64 / sent as f64 {
                share if share >= 0.01 => {
                    "That is much: the path loses or reorders; look at drops below, queue lengths and cabling."
                }
                share if share >= 0.001 => "That costs throughput on long paths.",
                _ => "That is little.",
            };
            out.push(format!("TCP retransmitted {again} of {sent} segments ({}). {verdict}", percent(again, sent)));
        }
        (None, None) => unseen.push("TCP (snmp, netstat or nstat)"),
        _ => {}
    }
    let overflows = look.of(&[
        "TcpExtListenOverflows",
        "TcpExt: {} times the listen queue of a socket overflowed",
        "TcpExt: times the listen queue of a socket overflowed",
    ]);
    if let Some(n) = overflows.filter(|n| *n > 0) {
        out.push(format!(
            "The accept queue of a listening socket overflowed {}: clients saw connections stall. Accept faster, or raise \
             the backlog and net.core.somaxconn.",
            times(n)
        ));
    } else if let Some(n) = look.of(&["TcpExtListenDrops", "TcpExt: SYNs to LISTEN sockets dropped"]).filter(|n| *n > 0)
    {
        out.push(format!("{n} connection requests to listening sockets were dropped."));
    }
    for (names, what) in [
        (
            &["TcpExtTCPBacklogDrop", "TcpExt: TCPBacklogDrop"] as &[&str],
            "segments were dropped because a socket's backlog was full: the receiver is slower than the wire.",
        ),
        (
            &["TcpExtPruneCalled", "TcpExt: packets pruned from receive queue because of socket buffer overrun"],
            "times a receive queue was pruned for lack of buffer: raise net.ipv4.tcp_rmem, or read faster.",
        ),
        (
            &["TcpExtOfoPruned", "TcpExt: packets dropped from out-of-order queue because of socket buffer overrun"],
            "times out-of-order data was thrown away for lack of buffer: it had to be sent again.",
        ),
        (&["TcpExtTCPRcvQDrop", "TcpExt: TCPRcvQDrop"], "segments were dropped because a receive queue was full."),
        (
            &["TcpExtTCPMemoryPressures", "TcpExt: TCPMemoryPressures"],
            "times TCP came under memory pressure: see net.ipv4.tcp_mem.",
        ),
    ] {
        if let Some(n) = look.of(names).filter(|n| *n > 0) {
            out.push(format!("{n} {what}"));
        }
    }
}

fn udp(look: &Look<'_, '_>, out: &mut Vec<String>, unseen: &mut Vec<&'static str>) {
    let received = look.of(&["UdpInDatagrams", "Udp: packets received"]);
    if received.is_none() {
        unseen.push("UDP (snmp, netstat or nstat)");
    }
    for (names, what) in [
        (
            &["UdpRcvbufErrors", "Udp: receive buffer errors"] as &[&str],
            "datagrams were dropped because a socket's receive buffer was full: raise SO_RCVBUF and net.core.rmem_max, or \
             read faster.",
        ),
        (
            &["UdpSndbufErrors", "Udp: send buffer errors"],
            "datagrams could not be sent because a send buffer was full: raise SO_SNDBUF and net.core.wmem_max.",
        ),
        (&["UdpNoPorts", "Udp: packets to unknown port received"], "datagrams came to a port without a listener."),
    ] {
        if let Some(n) = look.of(names).filter(|n| *n > 0) {
            out.push(format!("{n} UDP {what}"));
        }
    }
}

fn checksums(look: &Look<'_, '_>, out: &mut Vec<String>) {
    for (names, protocol) in [
        (&["TcpInCsumErrors", "Tcp: InCsumErrors"] as &[&str], "TCP"),
        (&["UdpInCsumErrors", "Udp: InCsumErrors"], "UDP"),
        (&["IcmpInCsumErrors", "Icmp: InCsumErrors"], "ICMP"),
        (&["IpExtInCsumErrors", "IpExt: InCsumErrors"], "IP"),
    ] {
        if let Some(n) = look.of(names).filter(|n| *n > 0) {
            out.push(format!(
                "{n} {protocol} packets came with a wrong checksum: suspect cabling, memory or a broken offload."
            ));
        }
    }
}

fn softnet(look: &Look<'_, '_>, out: &mut Vec<String>, unseen: &mut Vec<&'static str>) {
    let of = |key: &str| look.sum(|c| c.source.starts_with("softnet") && c.key == key);
    let Some(processed) = of("processed") else {
        unseen.push("the receive softirq (softnet)");
        return;
    };
    if let Some(n) = of("dropped").filter(|n| *n > 0) {
        out.push(format!(
            "{n} packets were dropped because a CPU's input queue was full (of {processed}): raise \
             net.core.netdev_max_backlog, or spread the load (RPS, RSS)."
        ));
    }
    if let Some(n) = of("time_squeeze").filter(|n| *n > 0) {
        out.push(format!(
            "The receive softirq ran out of its time or budget with work left {}: the CPU is the limit there; see \
             net.core.netdev_budget, and which CPU it is with --per-cpu.",
            times(n)
        ));
    }
    if let Some(n) = of("flow_limit_count").filter(|n| *n > 0) {
        out.push(format!("{n} packets were dropped by the flow limit of a CPU's input queue."));
    }
}

/// Words in the names of error counters.
const TROUBLE: &[&str] = &["drop", "discard", "err", "fifo", "miss", "crc", "no_buf", "nobuf", "overrun", "timeout"];

fn interfaces(look: &Look<'_, '_>, out: &mut Vec<String>, unseen: &mut Vec<&'static str>) {
    // In the order of their first mention; there may be thousands.
    let mut sources = IndexMap::<&str, Vec<String>>::new();
    for change in look.changes {
        if !["dev:", "ethtool", "ip:", "ip-json:"].iter().any(|p| change.source.starts_with(p)) {
            continue;
        }
        let found = sources.entry(change.source).or_default();
        let key = change.key.to_ascii_lowercase();
        // XDP programs drop on purpose.
        if TROUBLE.iter().any(|t| key.contains(t))
            && !change.key.contains("xdp")
            && let Some(v) = change.delta.and_then(Value::whole)
            && v > 0
        {
            found.push(format!("{} {v}", change.key));
        }
    }
    if sources.is_empty() {
        unseen.push("interfaces (dev, ip or ethtool:IF)");
    }
    for (source, found) in sources {
        let found = first_few(found.into_iter(), 12);
        if !found.is_empty() {
            out.push(format!("{source} counted trouble: {}.", found.join(", ")));
        }
    }
}

// Counters without a difference, reported in words.

/// Counters that were reset, vanished or are new, by source and note, in the order in which they came.
#[derive(Default)]
pub struct Losses<'c> {
    /// The first change of each kind, and their number.
    kinds: IndexMap<(&'c str, Note), (&'c Change<'c>, usize)>,
}

impl<'c> Losses<'c> {
    pub fn of(changes: &'c [Change<'c>]) -> Self {
        let mut kinds = IndexMap::<_, (&Change<'_>, usize)>::new();
        for change in changes {
            let lost = match change.note {
                Note::Reset | Note::Gone => true,
                Note::New => change.delta.is_none(),
                _ => false,
            };
            if lost {
                kinds.entry((change.source, change.note)).or_insert((change, 0)).1 += 1;
            }
        }
        Self { kinds }
    }

    /// Warns once for each source and note.
    pub fn warn(&self) {
        for (Change { source, key, note, .. }, count) in self.kinds.values() {
            let (what, help) = match note {
                Note::Gone => ("no longer there", ""),
                Note::New => ("not there before, so without a difference", "; --missing zero counts them from zero"),
                _ => ("set back, so without a difference", ""),
            };
            let counters =
                if *count == 1 { format!("`{key}` is") } else { format!("{count} counters (`{key}`, …) are") };
            crate::warn(&format!("{source}: {counters} {what}{help}"));
        }
    }

    /// The first loss as an error, for `--strict`, with its line in AFTER.
    pub fn error(&self, (file, text): (&str, &str)) -> Option<Error> {
        let Change { source, key, note, at, .. } = self.kinds.first()?.1.0;
        let what = match note {
            Note::Gone => "is no longer there",
            Note::New => "was not there before",
            _ => "was set back between the snapshots",
        };
        let line = at.map_or(0, |(at, _)| line_at(text, at));
        Some(ParseError::new(line, format!("`{key}` of {source} {what} (--strict)")).of(file))
    }
}
