//! The interfaces that a host's traffic uses, its free CPUs and its transports: asked for only where a plan needs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
};

use netcore::{
    client::ClientError,
    control::message::{Look, Seen},
    report::NicFacts,
    spec::{Family, TestSpec, Transport},
};

use super::Hosts;
use crate::{
    plan::{case::Endpoint, job::GRACE},
    schedule::step::Step,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(towards(Ipv4Addr::LOCALHOST.into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
