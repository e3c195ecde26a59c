//! The machine a run was made on, from its `run.json`, and how two of them differ.
//!
//! A fact is a property of a machine (its CPU, its driver) or a setting of it (its kernel, a sysctl). Runs on different
//! machines are not two samples of one thing. Runs on one machine with different settings may be exactly what somebody
//! wants to compare. A fact that the kernel does not report is absent, and an absent fact never differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use schemas::{run_record::RunRecord, text::fnv1a};
use serde::Serialize;
use serde_json::Value;

use crate::{error::Error, table::beside};

/// The smallest CPU quota in force, in CPUs, or `none`.
const CPU_QUOTA: &str = "host.cpu_quota";

/// Facts of a host: name, the key in `run.json`'s facts of a host, and whether it tells machines apart. The others are settings.
const HOST: [(&str, &str, bool); 13] = [
    ("host.system_model", "system_model", true),
    ("host.hypervisor", "hypervisor", true),
    ("host.arch", "arch", true),
    ("host.cpu_model", "cpu_model", true),
    ("host.cpus", "cpus", true),
    ("host.os", "os", false),
    ("host.kernel", "kernel_release", false),
    ("host.governor", "governor", false),
    ("host.cpus_allowed", "cpus_allowed", false),
    (CPU_QUOTA, "cpu_quota", false),
    ("host.clocksource", "clocksource", false),
    ("host.congestion_control", "congestion_control", false),
    ("host.security_modules", "security_modules", false),
];

/// The same of the interface that carried the traffic.
const NIC: [(&str, &str, bool); 3] = [
    ("host.nic_driver", "driver", true),
    ("host.nic_speed", "speed_mbit_per_s", true),
    ("host.nic_mtu", "mtu_bytes", false),
];

const VERSION: &str = "plumb.version";

/// Prefix of a sysctl's fact.
const SYSCTL: &str = "host.sysctl.";

/// Limits that the kernel derives from the memory free at boot: they differ a little from boot to boot.
const FROM_MEMORY: [&str; 3] = ["net.ipv4.tcp_mem", "net.ipv4.udp_mem", "net.ipv4.tcp_max_tw_buckets"];

/// The names of all facts; a sysctl is `host.sysctl.<name>`.
pub fn names() -> Vec<&'static str> {
    let hosts = HOST.iter().chain(&NIC).map(|(name, ..)| *name);
    hosts.chain([VERSION, "host.sysctl.net.ipv4.tcp_rmem"]).collect()
}

pub fn is_fact(name: &str) -> bool {
    name.strip_prefix(SYSCTL).is_some_and(|n| !n.is_empty()) || names().contains(&name)
}

/// Whether a fact tells machines apart.
fn is_of_machine(fact: &str) -> bool {
    HOST.iter().chain(&NIC).any(|(name, _, of_machine)| *of_machine && *name == fact)
}

/// The facts about a run's machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// Facts by name, per host.
    hosts: BTreeMap<String, BTreeMap<String, String>>,
    /// Facts of interfaces by name, per case and end.
    nics: BTreeMap<String, BTreeMap<String, String>>,
}

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub fact: String,
    /// `host.kernel was 6.1.0, is 6.12.0`
    pub text: String,
    /// Whether it means another machine.
    pub machine: bool,
}

/// The `run.json` beside a table; `None` if there is none of its run. A note says if there is one of another run.
pub fn read(results: &Path) -> Result<Option<RunRecord>, Error> {
    Ok(beside::run_record(results)?.or_note())
}

/// The records that the runs left beside their tables.
pub fn read_all(results: &[PathBuf]) -> Result<Vec<RunRecord>, Error> {
    results.iter().filter_map(|file| read(file).transpose()).collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

impl Environment {
    /// Takes the facts from a `run.json`.
    pub fn of<F: Serialize, C>(run: &RunRecord<F, C>) -> Self {
        let mut environment = Self::default();
        // The embedded daemon is this process.
        for (name, host) in run.hosts.iter().filter(|(n, _)| *n != "embedded") {
            let facts = environment.hosts.entry(name.clone()).or_default();
            // Cannot fail: plain data.
            let known = serde_json::to_value(&host.facts).unwrap_or_default();
            for (fact, key, _) in &HOST {
                facts.extend(text(&known[key]).map(|v| ((*fact).to_owned(), v)));
            }
            // A program that reports whose shares it reads has also looked for a quota.
            if text(&known["cpu_shares_of"]).is_some() {
                facts.entry(CPU_QUOTA.to_owned()).or_insert_with(|| "none".to_owned());
            }
            facts.extend(Some(host.tool_version.clone()).filter(|v| !v.is_empty()).map(|v| (VERSION.to_owned(), v)));
            for (key, value) in known["sysctls"].as_object().into_iter().flatten() {
                if !FROM_MEMORY.contains(&key.as_str()) {
                    facts.extend(text(value).map(|v| (format!("{SYSCTL}{key}"), v)));
                }
            }
        }
        for (case, record) in &run.cases {
            for (end, nic) in [("near_nic", &record.near_nic), ("far_nic", &record.far_nic)] {
                let value = |key: &str| text(nic.as_ref()?.get(key)?);
                let facts = NIC.iter().filter_map(|(fact, key, _)| Some(((*fact).to_owned(), value(key)?)));
                environment.nics.insert(format!("{case} {end}"), facts.collect());
            }
        }
        environment
    }

    /// A name of the machines of the run: `m` and 48 bits of a hash (FNV-1a) of the facts that tell machines apart.
    pub fn machine(&self) -> String {
        let kept = |facts: &BTreeMap<String, String>| -> Vec<String> {
            let kept = facts.iter().filter(|(fact, _)| is_of_machine(fact));
            kept.map(|(fact, value)| format!("{fact}={value}")).collect()
        };
        let hosts: Vec<String> = self.hosts.values().map(|facts| kept(facts).join(",")).collect();
        // A case more or less is no other machine.
        let nics: BTreeSet<String> = self.nics.values().map(|facts| kept(facts).join(",")).collect();
        let text = format!("{};{}", hosts.join(";"), nics.into_iter().collect::<Vec<_>>().join(";"));
        format!("m{:012x}", fnv1a(&text) >> 16)
    }

    /// The facts that differ in `later`, in the order of their names. Facts that one of them lacks do not count. Hosts
    /// are matched by their names in the plan.
    pub fn differences(&self, later: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let names = |of: &Self| of.hosts.keys().cloned().collect::<Vec<_>>().join(", ");
        if !self.hosts.is_empty() && !later.hosts.is_empty() && names(self) != names(later) {
            found.push(Difference {
                fact: "hosts".to_owned(),
                text: format!("the hosts were {}, are {}", names(self), names(later)),
                machine: true,
            });
        }
        for (host, facts) in &self.hosts {
            let Some(others) = later.hosts.get(host) else { continue };
            for (fact, was) in facts {
                if let Some(is) = others.get(fact).filter(|is| *is != was) {
                    let of = if self.hosts.len() > 1 { format!(" of {host}") } else { String::new() };
                    found.push(Difference {
                        fact: fact.clone(),
                        text: format!("{fact}{of} was {was}, is {is}"),
                        machine: is_of_machine(fact),
                    });
                }
            }
        }
        for (fact, _, machine) in NIC {
            // Only over the cases that both have: another selection of cases does not mean another machine.
            let values = |of: &Self, with: &Self| -> BTreeSet<String> {
                let shared = of.nics.iter().filter(|(case, facts)| {
                    facts.contains_key(fact) && with.nics.get(*case).is_some_and(|f| f.contains_key(fact))
                });
                shared.map(|(_, facts)| facts[fact].clone()).collect()
            };
            let (was, is) = (values(self, later), values(later, self));
            if was != is {
                let list = |v: BTreeSet<String>| v.into_iter().collect::<Vec<_>>().join(", ");
                found.push(Difference {
                    fact: fact.to_owned(),
                    text: format!("{fact} was {}, is {}", list(was), list(is)),
                    machine,
                });
            }
        }
        found
    }

    /// Whether there are facts about any host.
    pub fn is_known(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether any host or interface has this fact. Interfaces are known only after use.
    pub fn knows(&self, fact: &str) -> bool {
        self.hosts.values().chain(self.nics.values()).any(|facts| facts.contains_key(fact))
    }

    /// Whether the fact is known before the measurement.
    pub fn is_known_beforehand(fact: &str) -> bool {
        !NIC.iter().any(|(name, ..)| *name == fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(json: Value) -> RunRecord {
        serde_json::from_value(json).unwrap()
    }

    fn run(kernel: &str, cpu: &str, driver: &str) -> Environment {
        Environment::of(&record(json!({
            "run_id": "r", "began": "t",
            "hosts": {
                "local": {"tool_version": "1", "facts": {"kernel_release": kernel, "cpu_model": cpu, "cpus": 2,
                    "sysctls": {"net.ipv4.tcp_rmem": "4096\t131072\t6291456", "net.ipv4.tcp_mem": kernel}}},
                "embedded": {"tool_version": "2", "facts": {}},
            },
            "cases": {"c1": {"near_nic": {"driver": driver, "speed_mbit_per_s": 25000}, "far_nic": null}},
        })))
    }

    #[test]
    fn machines_and_settings_are_told_apart() {
        let here = run("6.1", "A", "mlx5_core");
        assert!(here.differences(&here).is_empty());
        let found = here.differences(&run("6.12", "B", "ice"));
        let texts: Vec<(&str, bool)> = found.iter().map(|d| (d.text.as_str(), d.machine)).collect();
        assert_eq!(
            texts,
            [
                ("host.cpu_model was A, is B", true),
                ("host.kernel was 6.1, is 6.12", false),
                ("host.nic_driver was mlx5_core, is ice", true)
            ]
        );
    }

    #[test]
    fn what_is_not_known_differs_from_nothing() {
        let before = Environment::of(&record(json!({"hosts": {"local": {"facts": {"cpu_model": "A"}}}})));
        assert!(run("6.1", "A", "mlx5_core").differences(&before).is_empty());
        assert!(before.knows("host.cpu_model") && !before.knows("host.kernel") && !before.knows("host.nic_driver"));
        assert!(is_fact("host.sysctl.net.core.rmem_max") && !is_fact("host.sysctl.") && !is_fact("host.colour"));
    }

    #[test]
    fn the_absence_of_a_quota_is_a_fact() {
        let of = |facts: Value| Environment::of(&record(json!({"hosts": {"local": {"facts": facts}}})));
        let free = of(json!({"cpu_quota": null, "cpu_shares_of": "machine"}));
        let half = of(json!({"cpu_quota": 0.5, "cpu_shares_of": "machine"}));
        let texts = |found: Vec<Difference>| found.into_iter().map(|d| (d.text, d.machine)).collect::<Vec<_>>();
        assert_eq!(texts(free.differences(&half)), [("host.cpu_quota was none, is 0.5".to_owned(), false)]);
        assert_eq!(texts(half.differences(&free)), [("host.cpu_quota was 0.5, is none".to_owned(), false)]);
        assert!(free.differences(&free).is_empty() && free.knows(CPU_QUOTA));
        // An older record tells nothing of it.
        let old = of(json!({"cpus": 2}));
        assert!(!old.knows(CPU_QUOTA) && old.differences(&half).is_empty());
    }

    #[test]
    fn other_hosts_are_another_place() {
        let two = Environment::of(&record(json!({"hosts": {"local": {"facts": {}}, "server": {"facts": {}}}})));
        let found = run("6.1", "A", "x").differences(&two);
        assert_eq!(found[0].text, "the hosts were local, are local, server");
    }
}
