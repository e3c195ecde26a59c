//! Whether the kernels of both ends have the transports of a plan, before anything runs.

use std::collections::{BTreeMap, BTreeSet};

use netcore::spec::Transport;

use crate::{plan::case::Endpoint, schedule::step::Step};

/// A sentence for each transport that a step needs and a host has not, with the module that brings it.
#[must_use]
pub fn lacking(steps: &[Step], known: &BTreeMap<Endpoint, Vec<Transport>>) -> Vec<String> {
    let mut sentences = BTreeSet::new();
    let members = steps.iter().filter(|s| s.skip.is_none()).flat_map(|s| &s.members);
    for (member, spec) in members.filter_map(|m| Some((m, m.spec()?))) {
        let Some(module) = spec.transport.module() else { continue };
        for end in [&member.from, &member.to] {
            if known.get(end).is_some_and(|has| !has.contains(&spec.transport)) {
                sentences.insert(format!(
                    "{} is not available: the kernel of host `{}` has none; load it there with: modprobe {module}",
                    spec.transport.name(),
                    end.name()
                ));
            }
        }
    }
    sentences.into_iter().collect()
}
