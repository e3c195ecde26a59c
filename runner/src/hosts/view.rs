//! Questions of a plan to its hosts before it runs: the interfaces that their traffic uses, free CPUs, also for ranks of MPI that poll,
//! transports, and the conditions of `require`. All of it is asked for only where a plan needs it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
};

use netcore::{
    client::ClientError,
    control::message::{Look, Seen},
    report::NicFacts,
    spec::{Family, TestSpec, Transport},
};
use schemas::{
    units::{self, Unit},
    words::Severity,
};

use super::Hosts;
use crate::{
    plan::{Plan, case::Endpoint, job::GRACE, model::Precondition, ranges},
    schedule::step::Step,
    sinks::run_json::HostRecord,
};

/// The interfaces by which a host's traffic leaves, and its free CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// By destination address; `None`: no route leads to it.
    pub routes: BTreeMap<IpAddr, Option<NicFacts>>,
    /// CPUs that were less than a tenth busy for half a second.
    pub free_cpus: Option<u32>,
}

impl Hosts {
    /// Asks every host that is there for its interfaces and its free CPUs, by name.
    pub(super) fn views(
        &mut self,
        nics: bool,
        cpus: bool,
        steps: &[Step],
    ) -> Result<BTreeMap<String, View>, ClientError> {
        let mut ways: BTreeMap<Endpoint, BTreeSet<IpAddr>> = BTreeMap::new();
        for member in steps.iter().filter(|s| s.skip.is_none()).flat_map(|s| &s.members) {
            let Some(spec) = member.spec() else { continue };
            let daemons = [Some(&member.from), spec.has_daemon().then_some(&member.to)];
            for end in daemons.into_iter().flatten().filter(|end| self.places.contains_key(end)) {
                ways.entry(end.clone()).or_default();
            }
            let far_is_there = self.places.contains_key(&member.to) || self.services.contains_key(&member.to);
            if nics && spec.transport.uses_ip() && far_is_there && self.places.contains_key(&member.from) {
                let far = self.address(&member.to, spec)?;
                let near = match member.from {
                    Endpoint::Local => towards(far),
                    _ => Some(self.address(&member.from, spec)?),
                };
                ways.entry(member.from.clone()).or_default().insert(far);
                if spec.has_daemon() {
                    ways.entry(member.to.clone()).or_default().extend(near);
                }
            }
        }
        let mut views: BTreeMap<String, View> = BTreeMap::new();
        // This process and the daemon inside it are one host.
        for (end, peers) in ways.into_iter().filter(|(end, _)| *end != Endpoint::Embedded) {
            let mut view = View::default();
            for peer in peers {
                let seen = self.look(&end, Look { towards: Some(peer), ..Look::default() })?;
                view.routes.insert(peer, seen.nic);
            }
            if cpus {
                view.free_cpus = self.look(&end, Look { free_cpus: true, ..Look::default() })?.free_cpus;
            }
            views.insert(end.name().to_owned(), view);
        }
        Ok(views)
    }

    /// A sentence for each transport that a step needs and a host lacks, with the module that brings it.
    pub(super) fn lacking(&mut self, steps: &[Step]) -> Result<Vec<String>, ClientError> {
        let mut needed: BTreeMap<Endpoint, Vec<Transport>> = BTreeMap::new();
        let members = steps.iter().filter(|s| s.skip.is_none()).flat_map(|s| &s.members);
        for (member, spec) in members.filter_map(|m| Some((m, m.spec()?))) {
            for end in [&member.from, &member.to].into_iter().filter(|_| spec.transport.module().is_some()) {
                let of_end = needed.entry(end.clone()).or_default();
                if !of_end.contains(&spec.transport) {
                    of_end.push(spec.transport);
                }
            }
        }
        let mut sentences = Vec::new();
        for (end, transports) in needed {
            let seen = self.look(&end, Look { transports: transports.clone(), ..Look::default() })?;
            for transport in transports.into_iter().filter(|transport| !seen.transports.contains(transport)) {
                sentences.push(format!(
                    "{} is not available: the kernel of host `{}` has none; load it there with: modprobe {}",
                    transport.name(),
                    end.name(),
                    transport.module().unwrap_or_default()
                ));
            }
        }
        Ok(sentences)
    }

    fn look(&mut self, end: &Endpoint, look: Look) -> Result<Seen, ClientError> {
        if self.places.get(end).is_none_or(|place| place.target.is_none()) {
            return Ok(look.around());
        }
        let mut session = self.session(end, GRACE)?;
        let seen = session.look(look)?;
        self.give_back(end, GRACE, session);
        Ok(seen)
    }

    /// The address that a test's traffic uses to reach that end.
    fn address(&mut self, end: &Endpoint, spec: &TestSpec) -> Result<IpAddr, ClientError> {
        let local: IpAddr = match end {
            Endpoint::Embedded if spec.family == Family::V6 => return Ok(Ipv6Addr::LOCALHOST.into()),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        if let Some(address) = self.services.get(end).filter(|_| !spec.has_daemon()) {
            return Ok(*address);
        }
        Ok(self.data(end)?.unwrap_or(local))
    }

    /// The address of an end's traffic: the plan's, or else the one at which its daemon was reached. `None`: this process.
    pub(super) fn data(&mut self, end: &Endpoint) -> Result<Option<IpAddr>, ClientError> {
        match self.places.get(end) {
            Some(place) if place.data.is_none() && place.target.is_some() => {
                let session = self.session(end, GRACE)?;
                let address = session.peer().address;
                self.give_back(end, GRACE, session);
                Ok(Some(address))
            }
            place => Ok(place.and_then(|p| p.data)),
        }
    }
}

/// Our own address on the route to `far`, which the far end sends to. Connecting a datagram socket sends nothing.
fn towards(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if far.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

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
    use netcore::measure::host::HostFacts;

    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(towards(Ipv4Addr::LOCALHOST.into()), Some(Ipv4Addr::LOCALHOST.into()));
    }

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
