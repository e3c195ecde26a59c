//! Sums of counters that are kept in parts: by CPU, by queue.

use std::borrow::Cow;
use std::collections::HashMap;

use super::diff::{Change, Delta};

/// Adds up the parts of counters: CPUs (unless `per_cpu`) and, with `queues`, the queues of a device.
pub fn folded<'c, 'a>(changes: &'c [Change<'a>], per_cpu: bool, queues: bool) -> Cow<'c, [Change<'a>]> {
    if !queues && (per_cpu || changes.iter().all(|c| c.cpu.is_none())) {
        return Cow::Borrowed(changes);
    }
    let mut out: Vec<Change<'a>> = Vec::with_capacity(changes.len());
    let mut sums: HashMap<(&'a str, Option<u32>, String), usize> = HashMap::new();
    for change in changes {
        let mut change = change.clone();
        let cpu_parts = change.cpu.is_some() && !per_cpu;
        let queue = if queues { without_queue(&change.key) } else { None };
        if !cpu_parts && queue.is_none() {
            out.push(change);
            continue;
        }
        if cpu_parts {
            change.cpu = None;
        }
        if let Some(key) = queue {
            change.key = Cow::Owned(key);
        }
        match sums.entry((change.source, change.cpu, change.key.clone().into_owned())) {
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(out.len());
                out.push(change);
            }
            std::collections::hash_map::Entry::Occupied(at) => add(&mut out[*at.get()], &change),
        }
    }
    Cow::Owned(out)
}

/// A sum is known where all its parts are.
fn add(sum: &mut Change<'_>, part: &Change<'_>) {
    let both = |a: Option<Delta>, b: Option<Delta>| Some(a?.plus(b?));
    sum.before = both(sum.before, part.before);
    sum.after = both(sum.after, part.after);
    sum.delta = both(sum.delta, part.delta);
    sum.note = sum.note.max(part.note);
    sum.at = None;
}

/// Replaces the number of a queue with a star. Drivers write `rx_queue_3_bytes`, `rx3_bytes`, `tx-3.packets`,
/// `queue_3_tx_cnt` and `[3]: rx_ucast_packets`.
fn without_queue(key: &str) -> Option<String> {
    let bytes = key.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        let (head, tail) = (&key[..start], &key[at..]);
        let announced = ["queue_", "queue", "rx", "tx", "rx-", "tx-", "rx_", "tx_", "ring_", "ch", "ch_", "["]
            .iter()
            .any(|word| head.strip_suffix(word).is_some_and(|h| h.is_empty() || h.ends_with(['_', '.', ' ', '-'])));
        // `tx_64byte_packets` and `rx_1024_to_1518` are sizes.
        let is_queue = if head.ends_with('[') {
            tail.starts_with(']')
        } else {
            let bare = head.ends_with('_') && !head.ends_with("queue_") && !head.ends_with("ring_");
            tail.starts_with(['_', '.', ':', '-']) && !tail.starts_with("_to_") && !bare
        };
        if announced && is_queue {
            return Some(format!("{head}*{tail}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_told_from_sizes() {
        for (key, folded) in [
            ("rx_queue_3_bytes", Some("rx_queue_*_bytes")),
            ("rx0_packets", Some("rx*_packets")),
            ("tx-12.packets", Some("tx-*.packets")),
            ("queue_1_tx_cnt", Some("queue_*_tx_cnt")),
            ("[4]: rx_ucast_packets", Some("[*]: rx_ucast_packets")),
            ("ch0_events", Some("ch*_events")),
            ("tx_64byte_packets", None),
            ("rx_65_to_127_bytes", None),
            ("rx_prio3_bytes", None),
            ("rx_packets", None),
        ] {
            assert_eq!(without_queue(key).as_deref(), folded, "{key}");
        }
    }
}
