//! A survey in sentences.

use schemas::metrics::Better;

use super::{Kind, Limit, Role, Sensitivity, Survey, Suspect};

/// The work of a pair's ends, as its sentences call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// `from` sends the bytes that are counted.
    #[default]
    Stream,
    /// `from` asks, and times the answer of `to`.
    Request,
}

impl Ends {
    /// `a sender`
    fn name(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::Stream, Role::Sender) => "as a sender",
            (Self::Stream, Role::Receiver) => "as a receiver",
            (Self::Request, Role::Sender) => "as the end that asks",
            (Self::Request, Role::Receiver) => "as the end that answers",
            (_, Role::Both) => "in both directions",
        }
    }
}

/// `5.1 %`
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// `a>b`
pub fn pair(hosts: &[String], (from, to): (usize, usize)) -> String {
    format!("{}>{}", hosts[from], hosts[to])
}

/// `a>b, a>c and 3 more`
pub fn pairs(hosts: &[String], list: &[(usize, usize)], most: usize) -> String {
    let shown: Vec<String> = list.iter().take(most).map(|p| pair(hosts, *p)).collect();
    match list.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Suspect {
    /// `node7 as a receiver 5.1 %`
    pub fn name(&self, hosts: &[String], ends: Ends) -> String {
        let by = percent(self.worse);
        match self.kind {
            Kind::Host { host, role } => format!("{} {} {by}", hosts[host], ends.name(role)),
            Kind::Link { from, to } => format!("{} {by}", pair(hosts, (from, to))),
        }
    }

    /// `node7 is slow as a receiver: 5.1 % below the others (4.2 to 6.0 %); 31 of its 31 pairs show it, for example
    /// node1>node7`
    pub fn sentence(&self, hosts: &[String], better: Better, ends: Ends) -> String {
        let side = if better == Better::Lower { "above" } else { "below" };
        let by = percent(self.worse);
        let interval = format!("({:.1} to {})", self.low * 100.0, percent(self.high));
        match self.kind {
            Kind::Host { host, role } => format!(
                "{} is slow {}: {by} {side} the others {interval}; {} of its {} pairs show it, for example {}",
                hosts[host],
                ends.name(role),
                self.shown,
                self.pairs,
                pair(hosts, self.example)
            ),
            Kind::Link { from, to } => {
                format!("{} is slow: {by} {side} what its hosts get otherwise {interval}", pair(hosts, (from, to)))
            }
        }
    }
}

impl Sensitivity {
    /// The smallest effects that could be named.
    pub fn sentence(&self) -> String {
        let link = percent(self.link);
        match self.host {
            Some(host) => format!(
                "With this noise a host is named if it is slower by {} in one direction, a link if it is by {link}.",
                percent(host)
            ),
            None => format!("With this noise a link is named if it is slower by {link}."),
        }
    }
}

impl Limit {
    pub fn sentence(&self) -> String {
        match self {
            Self::TooFewPairs { pairs } => {
                let s = if *pairs == 1 { "pair has" } else { "pairs have" };
                format!("{pairs} {s} a value: too few to tell a slow one from noise")
            }
            Self::Noise { hosts } => {
                format!(
                    "so much noise would hide any slow {}: measure longer, or more iterations",
                    if *hosts { "host or link" } else { "link" }
                )
            }
            Self::OnlyLinks => {
                "no host has three pairs in one direction: slow hosts cannot be told from slow links, and \
                show as links"
                    .to_owned()
            }
            Self::SomeOnlyLinks { hosts } => {
                let (s, their) = if *hosts == 1 { ("host has", "its") } else { ("hosts have", "their") };
                format!("{hosts} {s} fewer than three pairs in a direction, where {their} pairs are judged as links")
            }
            Self::Groups { groups } => {
                format!("the hosts form {groups} groups without a pair between them; each is compared within itself")
            }
            Self::HeavyTail => {
                "some pairs are far slower than normal noise makes them: only links that stand out from \
                these are named. More iterations of each pair tell chance from slow links"
                    .to_owned()
            }
        }
    }
}

impl Survey {
    /// Suspects as sentences, in their order.
    pub fn sentences(&self, hosts: &[String], better: Better, ends: Ends) -> Vec<String> {
        self.suspects.iter().map(|suspect| suspect.sentence(hosts, better, ends)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_are_sentences() {
        let hosts: Vec<String> = (1..=9).map(|i| format!("node{i}")).collect();
        let suspect =
            |kind| Suspect { kind, worse: 0.051, low: 0.042, high: 0.06, shown: 31, pairs: 31, example: (0, 6) };
        let host = suspect(Kind::Host { host: 6, role: Role::Receiver });
        assert_eq!(
            host.sentence(&hosts, Better::Higher, Ends::Stream),
            "node7 is slow as a receiver: 5.1 % below the others (4.2 to 6.0 %); 31 of its 31 pairs show it, for \
             example node1>node7"
        );
        assert!(host.sentence(&hosts, Better::Lower, Ends::Request).contains("as the end that answers: 5.1 % above"));
        assert_eq!(
            suspect(Kind::Link { from: 2, to: 8 }).sentence(&hosts, Better::Higher, Ends::Stream),
            "node3>node9 is slow: 5.1 % below what its hosts get otherwise (4.2 to 6.0 %)"
        );
        assert_eq!(pairs(&hosts, &[(0, 1), (0, 2), (3, 4)], 2), "node1>node2, node1>node3 and 1 more");
    }
}
