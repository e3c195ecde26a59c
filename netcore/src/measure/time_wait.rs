//! Connections in TIME_WAIT, which slow connect tests down: each keeps its pair of addresses and ports for a minute,
//! and the kernel's search for a free port takes longer with their number, long before it fails.

use super::{files::text, snmp};
use crate::{report::TimeWait, spec::TestSpec};

/// Share of ports in TIME_WAIT from which on the search for a free port takes noticeably longer.
const FELT: f64 = 0.3;

/// Their number in the calling thread's network namespace.
pub fn count() -> Option<u64> {
    snmp::time_wait()
}

/// Number of ports that the kernel chooses local ports from.
fn ephemeral_ports() -> u64 {
    let range = text("/proc/sys/net/ipv4/ip_local_port_range");
    let mut bounds = range.split_whitespace().map(str::parse::<u64>);
    match (bounds.next(), bounds.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => high - low + 1,
        // The kernel's default range.
        _ => 60_999 - 32_768 + 1,
    }
}

/// The counts at the end of the test.
pub fn after(before: u64, spec: &TestSpec) -> TimeWait {
    let own_range = spec.near.port.and(spec.near.port_count).map(u64::from);
    TimeWait { before, after: count().unwrap_or(before), ports: own_range.unwrap_or_else(ephemeral_ports) }
}

/// A note if they are enough to slow the test down.
pub fn note(counts: &TimeWait, spec: &TestSpec) -> Option<String> {
    let addresses = spec.near.bind.len().max(1) as u64;
    // Older ones do not occupy the test's own range.
    let own_range = spec.near.port_count.is_some();
    let taken = if own_range { counts.after.saturating_sub(counts.before) } else { counts.after };
    let share = taken as f64 / (counts.ports * addresses) as f64;
    (share > FELT).then(|| {
        format!(
            "{} connections of the host in `from` are in TIME_WAIT ({} before the test), {:.0} % of the {} local ports there \
             are for one destination: connecting gets slower from about a third of them on. Remedies: close: far_first or \
             reset, more source addresses (bind), own ports in turn (ports)",
            counts.after,
            counts.before,
            share * 100.0,
            counts.ports * addresses
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Pattern, Transport};

    #[test]
    fn connections_and_ports_are_counted() {
        assert!(count().is_some());
        assert!(ephemeral_ports() > 0);
    }

    #[test]
    fn a_third_of_the_ports_is_worth_a_word() {
        let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
        let counts = TimeWait { before: 7, after: 400, ports: 1000 };
        assert!(note(&counts, &spec).unwrap().contains("400 connections"));
        spec.near.port_count = Some(1000);
        let others = TimeWait { before: 380, ..counts };
        assert_eq!(note(&others, &spec), None, "those from before are on other ports");
        assert!(note(&counts, &spec).unwrap().contains(" 39 % of the 1000 local ports"));
        spec.near.port_count = None;
        spec.near.bind = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        assert_eq!(note(&counts, &spec), None);
    }
}
