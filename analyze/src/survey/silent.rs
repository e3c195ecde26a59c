//! Hosts and links through which nothing comes.

use super::{Kind, Matrix, Role, Suspect};
use std::{cmp::Reverse, collections::BTreeSet};

/// A host with fewer failed pairs is not told from its links.
const FEWEST: usize = 2;

/// The hosts whose pairs have all failed, in a direction or in both, and the other links that were measured without a byte. `None`: these
/// are more than half of the hosts, or every pair failed. As behind daemons that serve their client alone, which is no fault of a host.
pub fn find(matrix: &Matrix, failed: &[(usize, usize)]) -> Option<Vec<Suspect>> {
    let mut left: BTreeSet<(usize, usize)> = failed.iter().copied().collect();
    let mut suspects = Vec::new();
    if left.is_empty() {
        return Some(suspects);
    }
    if matrix.tried().count() == failed.len() {
        return None;
    }
    let (tried, lost) = (by_host(matrix, matrix.tried()), by_host(matrix, failed.iter().copied()));
    // Where each host has only its neighbours, one at the end of the line has lost all of its pairs by a dead neighbour, too. The neighbour
    // has lost more.
    let mut hosts: Vec<usize> = (0..matrix.len()).collect();
    hosts.sort_by_key(|host| Reverse(count(lost[*host], Role::Both)));
    for role in [Role::Both, Role::Sender, Role::Receiver] {
        for host in hosts.iter().copied() {
            let pairs = count(tried[host], role);
            let is_one_sided = role == Role::Both && tried[host].contains(&0);
            if is_one_sided || pairs < FEWEST || count(lost[host], role) != pairs {
                continue;
            }
            // What another host explains already is no second suspect.
            let own: Vec<_> = of(matrix, host, role).filter(|pair| left.contains(pair)).collect();
            let [example, _, ..] = own[..] else { continue };
            suspects.push(suspect(Kind::Host { host, role }, pairs, example));
            for pair in &own {
                left.remove(pair);
            }
        }
    }
    if 2 * suspects.len() > matrix.len() {
        return None;
    }
    let links = left.into_iter().filter(|pair| matrix.is_silent(*pair));
    suspects.extend(links.map(|(from, to)| suspect(Kind::Link { from, to }, 1, (from, to))));
    Some(suspects)
}

/// By host: the number of these pairs in which it sends, and in which it receives.
fn by_host(matrix: &Matrix, pairs: impl Iterator<Item = (usize, usize)>) -> Vec<[usize; 2]> {
    let mut counts = vec![[0; 2]; matrix.len()];
    for (from, to) in pairs {
        counts[from][0] += 1;
        counts[to][1] += 1;
    }
    counts
}

fn count([sending, receiving]: [usize; 2], role: Role) -> usize {
    match role {
        Role::Sender => sending,
        Role::Receiver => receiving,
        Role::Both => sending + receiving,
    }
}

/// The pairs of a host in a role.
fn of(matrix: &Matrix, host: usize, role: Role) -> impl Iterator<Item = (usize, usize)> {
    let others = (0..matrix.len()).filter(move |other| *other != host);
    others.flat_map(move |other| {
        let sends = (role != Role::Receiver).then_some((host, other));
        let receives = (role != Role::Sender).then_some((other, host));
        sends.into_iter().chain(receives)
    })
}

fn suspect(kind: Kind, pairs: usize, example: (usize, usize)) -> Suspect {
    Suspect { kind, worse: f64::INFINITY, low: f64::INFINITY, high: f64::INFINITY, shown: pairs, pairs, example }
}
