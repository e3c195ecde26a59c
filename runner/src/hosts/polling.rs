//! Ranks of MPI and the CPUs that they poll on.

use std::collections::BTreeMap;

use crate::{plan::ranges, sinks::run_json::HostRecord};

/// Sentences about ranks that wait for each other's CPU, by machine.
pub fn warnings(records: &BTreeMap<String, HostRecord>) -> Vec<String> {
    let mut machines: BTreeMap<&str, Vec<(&str, &HostRecord)>> = BTreeMap::new();
    for (name, record) in records.iter().filter(|(_, record)| record.mpi.is_some()) {
        machines.entry(record.facts.boot_id.as_deref().unwrap_or(name)).or_default().push((name, record));
    }
    let mut warnings = Vec::new();
    for ranks in machines.values() {
        let names =
            |ranks: &[(&str, &HostRecord)]| ranges::fold(ranks.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let mut by_cpu: BTreeMap<&str, Vec<(&str, &HostRecord)>> = BTreeMap::new();
        for rank in ranks {
            // The only CPU, as a list of one.
            let only = rank.1.facts.cpus_allowed.as_deref().filter(|list| list.parse::<u32>().is_ok());
            if let Some(cpu) = only {
                by_cpu.entry(cpu).or_default().push(*rank);
            }
        }
        let shared: Vec<_> = by_cpu.iter().filter(|(_, ranks)| ranks.len() > 1).collect();
        for (cpu, ranks) in &shared {
            warnings.push(format!(
                "ranks {} may use CPU {cpu} only, and share it: a rank that waits keeps it busy, so messages wait for the \
                 scheduler. Start them with --bind-to none, or on cores of their own",
                names(ranks)
            ));
        }
        let cpus = ranks.iter().filter_map(|(_, record)| record.facts.cpus).max();
        if let Some(cpus) = cpus.filter(|cpus| shared.is_empty() && ranks.len() > *cpus as usize) {
            warnings.push(format!(
                "ranks {} are on one machine with {cpus} CPUs: a rank that waits keeps one busy, so messages wait for the \
                 scheduler",
                names(ranks)
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use netcore::measure::host::HostFacts;

    fn said(ranks: &[(&str, &str)]) -> Vec<String> {
        let record = |(boot, allowed): &(&str, &str)| HostRecord {
            mpi: Some(serde_json::Value::Null),
            facts: HostFacts {
                boot_id: Some((*boot).to_owned()),
                cpus: Some(2),
                cpus_allowed: Some((*allowed).to_owned()),
                ..HostFacts::default()
            },
            ..HostRecord::default()
        };
        let records = ranks.iter().enumerate().map(|(i, rank)| (format!("r{}", i + 1), record(rank)));
        warnings(&records.collect())
    }

    #[test]
    fn ranks_that_wait_for_a_cpu_are_named() {
        assert!(said(&[("a", "0"), ("b", "0"), ("a", "1"), ("b", "1")]).is_empty(), "each has a CPU");
        let shared = said(&[("a", "0"), ("a", "0"), ("a", "1")]);
        assert!(shared.len() == 1 && shared[0].contains("r[1-2] may use CPU 0 only"), "{shared:?}");
        let crowded = said(&[("a", "0-1"), ("a", "0-1"), ("a", "0-1"), ("b", "0-1")]);
        assert!(crowded.len() == 1 && crowded[0].contains("r[1-3] are on one machine with 2 CPUs"), "{crowded:?}");
    }
}
