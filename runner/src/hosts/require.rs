//! The conditions of a plan for its hosts (`require`), checked before anything runs.

use std::{cmp::Ordering, collections::BTreeMap};

use schemas::{
    units::{self, Unit},
    words::Severity,
};

use super::view::View;
use crate::{
    plan::{Plan, model::Precondition},
    sinks::run_json::HostRecord,
};

/// Conditions that do not hold, as sentences with their place in the plan: errors, and warnings.
pub fn check(
    plan: &Plan,
    hosts: &BTreeMap<String, HostRecord>,
    views: &BTreeMap<String, View>,
) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for (condition, span) in &plan.require {
        let wanted = condition.host.as_deref().filter(|h| *h != "*");
        // The embedded daemon is this process: its facts are those of `local`.
        for (name, host) in hosts.iter().filter(|(n, _)| *n != "embedded" && wanted.is_none_or(|w| w == *n)) {
            let view = views.get(name).cloned().unwrap_or_default();
            let found = match condition.check.as_str() {
                "nic_speed" | "mtu" => of_routes(condition, &view),
                "free_cpus" => holds(condition, "free_cpus", view.free_cpus.map(|n| n.to_string()).as_deref()),
                check => holds(condition, check, observed(check, host).as_deref()),
            };
            if let Err(what) = found {
                let sentence = format!("{}: host `{name}`: {what}", plan.sources.place(*span));
                match condition.severity.unwrap_or_default() {
                    Severity::Error => errors.push(sentence),
                    Severity::Warn => warnings.push(sentence),
                }
            }
        }
    }
    (errors, warnings)
}

fn observed(check: &str, host: &HostRecord) -> Option<String> {
    match check {
        "cpu_governor" => host.facts.governor.clone(),
        "kernel" => host.facts.kernel_release.clone(),
        // Other clocks are measured against this process's own.
        "clock_offset" => {
            let ns = host.clock.map_or(0, |c| c.wall_offset_ns.unsigned_abs());
            Some(format!("{}us", ns as f64 / 1000.0))
        }
        _ => host.facts.sysctls.get(check.strip_prefix("sysctl.")?).cloned(),
    }
}

/// Checks a condition on an interface, for every route that the host's traffic takes.
fn of_routes(condition: &Precondition, view: &View) -> Result<(), String> {
    let check = &condition.check;
    if view.routes.is_empty() {
        return Err(format!("cannot check {check}: no test sends packets from there by a route"));
    }
    for (peer, nic) in &view.routes {
        let Some(nic) = nic else { return Err(format!("cannot check {check}: there is no route to {peer}")) };
        let name = &nic.name;
        let observed = match check.as_str() {
            "mtu" => nic.mtu_bytes.map(|bytes| bytes.to_string()),
            _ => nic.speed_mbit_per_s.map(|mbit| format!("{mbit}Mbit/s")),
        };
        if observed.is_none() {
            return Err(format!(
                "cannot check {check}: {name}, the interface that routes to {peer}, does not report it"
            ));
        }
        holds(condition, &format!("{check} of {name}"), observed.as_deref())?;
    }
    Ok(())
}

/// Checks a condition on a value; `what` names the value in the sentence.
fn holds(condition: &Precondition, what: &str, observed: Option<&str>) -> Result<(), String> {
    let check = &condition.check;
    let Some(observed) = observed else {
        return Err(format!("cannot check {what}: the host does not report it"));
    };
    let bounds = [
        ("", &condition.equals, [Ordering::Equal, Ordering::Equal]),
        ("at least ", &condition.at_least, [Ordering::Equal, Ordering::Greater]),
        ("at most ", &condition.at_most, [Ordering::Equal, Ordering::Less]),
    ];
    for (word, limit, good) in bounds {
        let Some(limit) = limit else { continue };
        let order = compare(check, observed, &limit.0);
        if !order.is_some_and(|o| good.contains(&o)) {
            return Err(format!("{what} is {observed}, and must be {word}{}", limit.0));
        }
    }
    Ok(())
}

/// Compares kernels by the numbers of their release and quantities by value. Anything else compares as numbers where both
/// are numbers, and as words otherwise: equal, or `None`.
fn compare(check: &str, observed: &str, limit: &str) -> Option<Ordering> {
    if check == "kernel" {
        let numbers = |text: &str| -> Vec<u64> {
            let digits = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).next().unwrap_or("");
            digits.split('.').map_while(|part| part.parse().ok()).collect()
        };
        let (observed, limit) = (numbers(observed), numbers(limit));
        // `6.1` means every 6.1.x.
        return Some(observed.iter().take(limit.len()).cmp(limit.iter()));
    }
    let unit = match check {
        "clock_offset" => Some(Unit::Microseconds),
        "nic_speed" => Some(Unit::BitsPerSecond),
        "mtu" => Some(Unit::Bytes),
        "free_cpus" => Some(Unit::Count),
        _ => None,
    };
    if let Some(unit) = unit {
        let value = |text: &str| units::parse_for(unit, text).ok();
        return value(observed)?.partial_cmp(&value(limit)?);
    }
    match (observed.parse::<f64>(), limit.parse::<f64>()) {
        (Ok(observed), Ok(limit)) => observed.partial_cmp(&limit),
        _ if observed.split_whitespace().eq(limit.split_whitespace()) => Some(Ordering::Equal),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_by_their_kind() {
        let is = |check, observed, limit| compare(check, observed, limit);
        assert_eq!(is("kernel", "6.12.3-amd64", "6.2"), Some(Ordering::Greater));
        assert_eq!(is("kernel", "6.1.0-13", "6.1"), Some(Ordering::Equal));
        assert_eq!(is("clock_offset", "38.5us", "1ms"), Some(Ordering::Less));
        assert_eq!(is("nic_speed", "25000Mbit/s", "10Gbit/s"), Some(Ordering::Greater));
        assert_eq!(is("mtu", "9000", "9kB"), Some(Ordering::Equal));
        assert_eq!(is("sysctl.net.core.rmem_max", "212992", "1000000"), Some(Ordering::Less));
        assert_eq!(
            is("sysctl.net.ipv4.tcp_rmem", "4096\t131072\t6291456", "4096 131072 6291456"),
            Some(Ordering::Equal)
        );
        assert_eq!(is("cpu_governor", "powersave", "performance"), None);
    }
}
