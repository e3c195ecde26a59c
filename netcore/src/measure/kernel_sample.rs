//! A sample of the kernel's counters, and the changes between two.

use std::collections::BTreeMap;

use crate::report::CounterChange;

/// Sources that are reported even without a change: there, "nothing happened" is the answer one looks for.
const WHOLE: [&str; 5] = ["cpu", "memory", "paging", "sockstat", "system"];

/// Values of the kernel's counters at an instant, by source and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelSample(BTreeMap<(String, String), u64>);

impl KernelSample {
    pub(super) fn put(&mut self, source: &str, key: impl Into<String>, value: u64) {
        self.0.insert((source.to_owned(), key.into()), value);
    }

    pub(super) fn add(&mut self, source: &str, key: String, value: u64) {
        *self.0.entry((source.to_owned(), key)).or_default() += value;
    }

    pub(super) fn get(&self, source: &str, key: &str) -> Option<u64> {
        self.0.get(&(source.to_owned(), key.to_owned())).copied()
    }

    #[cfg(test)]
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|(source, _)| source.as_str())
    }

    /// Changes since an earlier sample. A counter that one of them lacks (an interface came or went) is left out: it has no
    /// difference.
    pub(super) fn since(&self, before: &Self) -> Vec<CounterChange> {
        self.0
            .iter()
            .filter_map(|((source, key), after)| {
                let before = *before.0.get(&(source.clone(), key.clone()))?;
                let whole = WHOLE.contains(&source.as_str())
                    || (source.starts_with("nic:") && (key.ends_with("_bytes") || key.ends_with("_packets")));
                (whole || before != *after).then(|| CounterChange {
                    source: source.clone(),
                    key: key.clone(),
                    before,
                    after: *after,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_came_or_went_has_no_difference() {
        let (mut before, mut after) = (KernelSample::default(), KernelSample::default());
        before.put("nic:gone", "rx_bytes", 5);
        after.put("nic:new", "rx_bytes", 5);
        before.put("snmp", "same", 1);
        after.put("snmp", "same", 1);
        after.add("memory", "x".to_owned(), 1);
        assert_eq!(after.since(&before), vec![]);
    }
}
