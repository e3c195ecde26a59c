//! The ends of a plan's tests, started or reached, all at the same time. Those that do not come are all named.

use std::{collections::BTreeMap, net::IpAddr, thread};

use netcore::{
    client::{ClientError, Session},
    control::{key::Key, stop::StopFlag},
    measure::host::HostFacts,
    report::NicFacts,
};

use schemas::{
    text::counted,
    units::{Unit, human},
};

use super::{
    Hosts, launched,
    sessions::{self, Location},
};
use crate::{
    error::Error,
    launch::{launchers::Launchers, recipe::DaemonOptions},
    plan::{
        case::{Endpoint, Plan},
        job::GRACE,
        model::Host,
        ranges,
    },
    progress::Progress,
    schedule::step::Step,
    sinks::run_json::HostRecord,
};

/// Most daemons that are asked at the same time.
const AT_ONCE: usize = 32;

/// An end that is there.
#[derive(Clone, Debug)]
pub struct Found {
    pub name: String,
    /// `None`: another program, which tells nothing of its host.
    pub record: Option<HostRecord>,
    /// Address of its traffic, if the plan or the daemon says one.
    pub data: Option<IpAddr>,
    /// The interfaces by which its traffic leaves.
    pub nics: Vec<NicFacts>,
}

impl Hosts {
    /// Starts and reaches the ends that the steps use. Returns those that are there, and a sentence about each failure.
    pub fn gather(
        plan: &Plan,
        steps: &[Step],
        default_key: Option<&Key>,
        interim: bool,
        allowed: DaemonOptions,
        stop: &StopFlag,
        progress: &Progress,
    ) -> Result<(Self, Vec<String>), Error> {
        let (launchers, mut missing) = Launchers::start(&launched(plan, steps), allowed, stop, progress)?;
        let mut hosts = Self::new(launchers, interim, stop);
        for (end, is_foreign) in ends(steps) {
            let host = plan.host(end);
            if is_foreign {
                if let Some(target) = host.and_then(|host| sessions::of_peer(end.name(), host)) {
                    hosts.peers.insert(end.clone(), target);
                }
                match sessions::of_service(end.name(), host) {
                    Ok(address) => drop(hosts.services.insert(end.clone(), address)),
                    Err(error) => missing.push(error.to_string()),
                }
                match sessions::key_of(end.name(), host) {
                    Ok(key) => hosts.keys.extend(key.map(|key| (end.clone(), key))),
                    Err(error) => missing.push(error.to_string()),
                }
                continue;
            }
            let place = match (end, host) {
                (Endpoint::Local, _) => Ok(Location::default()),
                (Endpoint::Embedded, _) => hosts.embed(end.name(), None, None),
                (_, Some(Host { netns: Some(netns), address, .. })) => {
                    hosts.embed(end.name(), Some(netns), address.as_deref())
                }
                (_, host) => match hosts.launchers.end(end.name()) {
                    Some(end) => Ok(Location { target: Some(end.target.clone()), data: Some(end.data) }),
                    // Its launcher has said why.
                    None if host.is_some_and(|host| host.launch.is_some()) => continue,
                    None => sessions::of_host(end.name(), host, default_key),
                },
            };
            match place {
                Ok(place) => drop(hosts.places.insert(end.clone(), place)),
                Err(error) => missing.push(error.to_string()),
            }
        }
        hosts.introduce();
        missing.extend(hosts.greet());
        Ok((hosts, missing))
    }

    /// Asks every daemon for the facts of its host, all at the same time. Those that do not answer are no ends from then on;
    /// returns a sentence about each.
    fn greet(&mut self) -> Vec<String> {
        self.records.insert(
            "local".into(),
            HostRecord {
                control: None,
                launch: None,
                tool_version: env!("CARGO_PKG_VERSION").into(),
                facts: HostFacts::collect(),
                clock: None,
                mpi: None,
            },
        );
        let target = |(end, place): (&Endpoint, &Location)| {
            let mut target = place.target.clone()?;
            target.timeouts.grace = GRACE;
            Some((end.clone(), target))
        };
        let targets: Vec<_> = self.places.iter().filter_map(target).collect();
        let mut missing = Vec::new();
        for some in targets.chunks(AT_ONCE) {
            let greeted: Vec<_> = thread::scope(|scope| {
                let asked: Vec<_> = some.iter().map(|(_, target)| scope.spawn(|| Session::connect(target))).collect();
                let joined = asked.into_iter().map(thread::ScopedJoinHandle::join);
                joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            });
            for ((end, _), session) in some.iter().zip(greeted) {
                match session {
                    Ok(session) => self.met(end, session),
                    Err(error) => {
                        self.places.remove(end);
                        missing.push(self.unreached(end, &error));
                    }
                }
            }
        }
        missing
    }

    fn met(&mut self, end: &Endpoint, session: Session) {
        let peer = session.peer();
        self.records.insert(
            end.name().to_owned(),
            HostRecord {
                launch: self.launchers.end(end.name()).map(|end| end.record.clone()),
                control: Some(session.host().control.clone()),
                tool_version: peer.tool_version.clone(),
                facts: peer.host.clone(),
                clock: Some(peer.clock),
                mpi: peer.mpi.as_ref().and_then(|rank| serde_json::to_value(rank).ok()),
            },
        );
        self.granted.insert(end.clone(), peer.limits.clone());
        self.met.insert(end.clone());
        self.give_back(end, GRACE, session);
    }

    /// Why an end was not reached, and what to do.
    fn unreached(&mut self, end: &Endpoint, error: &ClientError) -> String {
        let launched = self.launchers.end(end.name()).map(|end| end.record.engine.clone());
        let message = self.explained([end.name()], error.to_string());
        match (launched, error) {
            (Some(engine), ClientError::Connect { .. }) => format!(
                "{message}\n       its daemon was started by {engine}, and only its port is out of reach: open the \
                 firewall, name another address with `control`, or say `control: launcher`"
            ),
            _ => message,
        }
    }

    /// The ends that are there, in the order of their numbers, with the interfaces that their tests use.
    pub fn found(&mut self, steps: &[Step]) -> Result<Vec<Found>, ClientError> {
        let views = self.views(true, false, steps)?;
        let ends: Vec<Endpoint> = self.places.keys().cloned().collect();
        let mut found = BTreeMap::new();
        for end in ends {
            // The daemon inside this process is this process.
            let name = if end == Endpoint::Embedded { Endpoint::Local.name() } else { end.name() };
            let mut nics: Vec<NicFacts> =
                views.get(name).into_iter().flat_map(|view| view.routes.values().flatten().cloned()).collect();
            nics.dedup();
            let data = match end {
                Endpoint::Host(_) => self.data(&end)?,
                Endpoint::Local | Endpoint::Embedded => None,
            };
            let record = self.records.get(name).cloned();
            found.insert(name.to_owned(), Found { name: name.to_owned(), record, data, nics });
        }
        for (end, address) in &self.services {
            let name = end.name().to_owned();
            let service = Found { name: name.clone(), record: None, data: Some(*address), nics: Vec::new() };
            found.entry(name).or_insert(service);
        }
        let mut found: Vec<Found> = found.into_values().collect();
        found.sort_by(|a, b| {
            (a.name != "local", ranges::order(&a.name)).cmp(&(b.name != "local", ranges::order(&b.name)))
        });
        Ok(found)
    }
}

/// Most hosts that the line of a run names one by one.
const NAMED: usize = 2;

/// Most machines that the line names beside their ends.
const NODES: usize = 8;

/// The line of a run about the hosts that are there: `2 hosts ready · a: 6.12.0, clock 38 µs from ours (± 4 µs) · b: …`, and of
/// many `16 hosts ready · node[1-16]: 6.12.0 · clocks up to 38 µs from ours (± 4 µs)`. `None`: all ends are in this process.
pub(super) fn ready(records: &BTreeMap<String, HostRecord>) -> Option<String> {
    let remote: Vec<_> = records.iter().filter(|(n, _)| !["local", "embedded"].contains(&n.as_str())).collect();
    if remote.is_empty() {
        return None;
    }
    let us = |ns: u64| human(Unit::Microseconds, ns as f64 / 1000.0);
    let kernel = |host: &HostRecord| host.facts.kernel_release.clone().unwrap_or_else(|| "kernel unknown".to_owned());
    let words: Vec<String> = if remote.len() <= NAMED {
        let of_host = |(name, host): &(&String, &HostRecord)| {
            let clock = host.clock.map_or_else(String::new, |c| {
                format!(", clock {} from ours (± {})", us(c.wall_offset_ns.unsigned_abs()), us(c.bound_ns))
            });
            format!("{name}: {}{clock}", kernel(host))
        };
        remote.iter().map(of_host).collect()
    } else {
        let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, host) in &remote {
            alike.entry(kernel(host)).or_default().push(name);
        }
        let kernels = alike.into_iter().map(|(kernel, names)| format!("{}: {kernel}", ranges::fold(names)));
        let clocks = remote.iter().filter_map(|(_, host)| host.clock);
        let furthest = clocks
            .max_by_key(|clock| clock.wall_offset_ns.unsigned_abs())
            .map(|c| format!("clocks up to {} from ours (± {})", us(c.wall_offset_ns.unsigned_abs()), us(c.bound_ns)));
        kernels.chain(furthest).collect()
    };
    // The launcher's names for the machines behind its ends.
    let node = |(name, host): &(&String, &HostRecord)| {
        let node = host.launch.as_ref()?.node.clone()?;
        (node != **name).then(|| format!("{name} is {node}"))
    };
    let nodes: Vec<String> = remote.iter().filter_map(node).collect();
    let nodes = match nodes.len() {
        0 => String::new(),
        n if n > NODES => format!(" · {}, … (`plumb hosts` has all)", nodes[..NODES].join(", ")),
        _ => format!(" · {}", nodes.join(", ")),
    };
    Some(format!("{} ready · {}{nodes}", counted(remote.len(), "host"), words.join(" · ")))
}

/// The ends of the steps that run, and whether each is another program's, without a daemon. A program needs no daemon anywhere.
pub fn ends(steps: &[Step]) -> Vec<(&Endpoint, bool)> {
    let members = steps.iter().filter(|step| step.skip.is_none()).flat_map(|step| &step.members);
    let mut all: Vec<_> =
        members.flat_map(|member| member.ends()).map(|(end, has_daemon)| (end, !has_daemon)).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hosts_take_one_short_line() {
        let of = |count: u32| -> BTreeMap<String, HostRecord> {
            let host = |n: u32| {
                let kernel = if n == 3 { "6.1" } else { "6.12" };
                let facts = HostFacts { kernel_release: Some(kernel.into()), ..HostFacts::default() };
                (format!("node{n}"), HostRecord { facts, ..HostRecord::default() })
            };
            (1..=count).map(host).collect()
        };
        assert_eq!(ready(&of(0)), None);
        assert_eq!(ready(&of(2)).unwrap(), "2 hosts ready · node1: 6.12 · node2: 6.12");
        assert_eq!(ready(&of(16)).unwrap(), "16 hosts ready · node3: 6.1 · node[1-2,4-16]: 6.12");
    }
}
