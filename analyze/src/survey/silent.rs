//! Hosts and links through which nothing comes.

use super::{Kind, Matrix, Role, Suspect};

/// A host with fewer failed pairs is not told from its links.
const FEWEST: usize = 2;

/// The hosts whose pairs have all failed, in a direction or in both, and the other links that were measured without a byte. `None`: these
/// are more than half of the hosts, and what they have in common is no fault of a host.
pub fn find(matrix: &Matrix, failed: &[(usize, usize)]) -> Option<Vec<Suspect>> {
    let mut left = failed.to_vec();
    let mut suspects = Vec::new();
    for role in [Role::Both, Role::Sender, Role::Receiver] {
        let is_its = |(from, to): (usize, usize), host: usize| match role {
            Role::Sender => from == host,
            Role::Receiver => to == host,
            Role::Both => from == host || to == host,
        };
        let all = |host: usize| {
            let tried = matrix.tried().filter(|pair| is_its(*pair, host)).count();
            let lost: Vec<_> = failed.iter().copied().filter(|pair| is_its(*pair, host)).collect();
            (lost.len() == tried && tried >= FEWEST).then_some(lost)
        };
        for (host, lost) in (0..matrix.len()).filter_map(|host| Some((host, all(host)?))) {
            // What a host explains already is no second suspect.
            let own: Vec<_> = lost.iter().filter(|pair| left.contains(pair)).collect();
            let [example, _, ..] = own[..] else { continue };
            suspects.push(suspect(Kind::Host { host, role }, lost.len(), *example));
            left.retain(|pair| !is_its(*pair, host));
        }
    }
    if 2 * suspects.len() > matrix.len() {
        return None;
    }
    let links = left.into_iter().filter(|pair| matrix.is_silent(*pair));
    suspects.extend(links.map(|(from, to)| suspect(Kind::Link { from, to }, 1, (from, to))));
    Some(suspects)
}

fn suspect(kind: Kind, pairs: usize, example: (usize, usize)) -> Suspect {
    Suspect { kind, worse: f64::INFINITY, low: f64::INFINITY, high: f64::INFINITY, shown: pairs, pairs, example }
}
