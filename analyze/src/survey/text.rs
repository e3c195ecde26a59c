//! A survey for people: the table of its pairs, and what it tells in sentences.

use super::{Cell, Kind, Limit, Matrix, Role, Sensitivity, Survey, Suspect};
use crate::{
    stats::quantiles,
    style,
    table::layout::{self, Column, Sheet},
};
use schemas::{
    metrics::{Better, Metric},
    text::{counted, plain},
    units::{human, three_digits},
};
use std::io::{self, Write};

/// Failed and missing pairs that are named in a sentence.
const NAMED: usize = 5;

/// Cells of the matrix without a number.
const SELF: &str = "·";
const MISSING: &str = "-";
pub const FAILED: &str = "failed";
pub const DISTURBED: &str = "disturbed";

/// A survey and what is said of it.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub name: &'a str,
    pub metric: &'static Metric,
    pub ends: Ends,
    pub matrix: &'a Matrix,
    pub found: &'a Survey,
}

impl Text<'_> {
    /// `links: throughput, 8 hosts`
    pub fn title(&self) -> String {
        plain(&format!("{}: {}, {} hosts", self.name, self.metric.name, self.matrix.len()))
    }

    /// The table of pairs where there is room, else one of hosts.
    pub fn columns(&self, width: Option<usize>) -> Vec<Column> {
        let values = self.values();
        if layout::needed(&values) <= width.unwrap_or(usize::MAX) { values } else { self.hosts() }
    }

    /// Title, answer, table and facts.
    pub fn write(&self, markdown: bool, sheet: &Sheet, output: &mut dyn Write) -> io::Result<()> {
        let title = self.title();
        writeln!(output, "{}\n", if markdown { format!("## {title}") } else { sheet.painted(style::HEAD, &title) })?;
        let bullet = if markdown { "- " } else { "" };
        let lines = |lines: Vec<String>, output: &mut dyn Write| {
            lines.iter().try_for_each(|line| writeln!(output, "{bullet}{}", plain(line)))
        };
        let answer = self.answer();
        if !answer.is_empty() {
            lines(answer, output)?;
            writeln!(output)?;
        }
        let columns = self.columns(sheet.width);
        if markdown {
            layout::markdown(&columns, output)?;
        } else {
            layout::aligned(&columns, sheet, output)?;
        }
        writeln!(output)?;
        lines(self.facts(), output)
    }

    /// The values, from × to, in the unit of the median.
    fn values(&self) -> Vec<Column> {
        let matrix = self.matrix;
        let median = quantiles::median(&matrix.values()).unwrap_or(1.0);
        let shown = human(self.metric.unit, median);
        // `9.41 Gbit/s`: the number and the unit of all cells.
        let (digits, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
        let scale = digits.parse::<f64>().ok().filter(|d| *d > 0.0).map_or(1.0, |d| power(median / d));
        let all: Vec<usize> = (0..matrix.len()).collect();
        let corner = if unit.is_empty() { "from \\ to".to_owned() } else { format!("{unit}, from \\ to") };
        let mut columns = vec![Column::of(&corner, false, &all, |from| matrix.hosts()[*from].clone())];
        for to in &all {
            columns.push(Column::of(&matrix.hosts()[*to], true, &all, |from| match matrix.cell(*from, *to) {
                _ if from == to => SELF.to_owned(),
                Cell::Missing => MISSING.to_owned(),
                Cell::Failed => FAILED.to_owned(),
                Cell::Disturbed(_) => DISTURBED.to_owned(),
                Cell::Value(value) => three_digits(value / scale),
            }));
        }
        columns
    }

    /// Each host's medians and effects.
    fn hosts(&self) -> Vec<Column> {
        let (matrix, found) = (self.matrix, self.found);
        let all: Vec<usize> = (0..matrix.len()).collect();
        let median = |of: &dyn Fn(usize, usize) -> bool| {
            let value = |(from, to, cell)| match cell {
                Cell::Value(v) if of(from, to) => Some(v),
                _ => None,
            };
            let mut values: Vec<f64> = matrix.pairs().filter_map(value).collect();
            quantiles::select_median(&mut values).map(|v| human(self.metric.unit, v)).unwrap_or_default()
        };
        let effect = |host: usize, side: usize| {
            found.effects[host][side].map(|e| format!("{:.1} %", (e * 1000.0).round() / 10.0 + 0.0))
        };
        let without = |host: usize| {
            let of = |list: &[(usize, usize)]| list.iter().filter(|p| p.0 == host || p.1 == host).count();
            match of(&found.failed) + of(&found.disturbed) + of(&found.missing) {
                0 => String::new(),
                n => n.to_string(),
            }
        };
        vec![
            Column::of("host", false, &all, |host| matrix.hosts()[*host].clone()),
            Column::of("from it", true, &all, |host| median(&|from, _| from == *host)),
            Column::of("worse from it", true, &all, |host| effect(*host, 0).unwrap_or_default()),
            Column::of("to it", true, &all, |host| median(&|_, to| to == *host)),
            Column::of("worse to it", true, &all, |host| effect(*host, 1).unwrap_or_default()),
            Column::of("unmeasured", true, &all, |host| without(*host)),
        ]
    }

    /// The suspects, that there are none, or why none could be named.
    pub fn answer(&self) -> Vec<String> {
        let said = match self.found.suspect_count() {
            None => self.found.blind().map(|limit| format!("No answer: {}.", limit.sentence())),
            Some(0) => Some(format!("No suspects{}.", self.reservation())),
            Some(n) => Some(format!("{}:", counted(n, "suspect"))),
        };
        let suspects = self.found.sentences(self.matrix.hosts(), self.metric.better, self.ends);
        said.into_iter().chain(suspects).collect()
    }

    /// What `no suspects` leaves open.
    fn reservation(&self) -> String {
        let found = self.found;
        let mut parts = Vec::new();
        let without = [(&found.failed, "failed"), (&found.missing, "not measured")];
        let without: Vec<String> = without
            .iter()
            .filter(|(pairs, _)| !pairs.is_empty())
            .map(|(pairs, what)| format!("; {} {what}", counted(pairs.len(), "pair")))
            .collect();
        if !without.is_empty() {
            let measured = counted(found.measured, "pair");
            parts.push(format!(" among the {measured} with a value{}", without.concat()));
        }
        let doubtful = found.doubtful.kinds().into_iter().filter(|(pairs, ..)| !pairs.is_empty());
        parts.extend(doubtful.map(|(pairs, words, _)| format!("; {} {words}", counted(pairs.len(), "pair"))));
        if !found.fast.is_empty() {
            let (are, fast) = (if found.fast.len() == 1 { "is" } else { "are" }, found.fast.len());
            parts.push(format!("; {fast} of {} {are} faster than the rest", counted(found.measured, "pair")));
        }
        parts.concat()
    }

    /// Pairs without a value, what could have been named, limits and overall figures, a sentence each.
    pub fn facts(&self) -> Vec<String> {
        let found = self.found;
        let hosts = self.matrix.hosts();
        let mut lines = Vec::new();
        if let Some(overall) = found.overall {
            let mut parts = vec![format!("median {}", human(self.metric.unit, overall))];
            parts.extend(found.spread.map(|s| format!("spread {} (5th to 95th percentile)", percent(s))));
            parts.extend(found.noise.map(|n| format!("noise of a pair {}", percent(n))));
            parts.push(format!("{} pairs", found.measured));
            lines.push(parts.join(" · "));
        }
        let doubtful = found.doubtful.kinds().map(|(list, words, why)| (list, format!("{words} ({why})")));
        let others = [
            (&found.failed[..], "failed"),
            (self.matrix.partly_failed(), "failed in an iteration (judged by the others)"),
            (&found.disturbed, "measured only while others took a CPU of their hosts (disturbed)"),
            (&found.missing, "not measured"),
            (&found.fast, "faster than what their hosts get otherwise: what the others share may be slow"),
        ];
        for (list, what) in others.map(|(list, what)| (list, what.to_owned())).into_iter().chain(doubtful) {
            if !list.is_empty() {
                lines.push(format!("{} {what}: {}", counted(list.len(), "pair"), pairs(hosts, list, NAMED)));
            }
        }
        lines.extend(found.sensitivity.map(|s| s.sentence()));
        // The answer says why there is none.
        let others = found.limits.iter().filter(|limit| found.blind() != Some(*limit));
        lines.extend(others.map(|limit| format!("note: {}", limit.sentence())));
        lines
    }
}

/// The power of ten or of 1024 that is nearest to a ratio.
fn power(ratio: f64) -> f64 {
    let powers = (-9..=15).map(|p| 10_f64.powi(p)).chain((1..=4).map(|p| 1024_f64.powi(p)));
    powers.min_by(|a, b| (a / ratio).ln().abs().total_cmp(&(b / ratio).ln().abs())).unwrap_or(1.0)
}

// A survey in sentences.

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
    /// Whether nothing came through.
    pub fn is_silent(&self) -> bool {
        self.worse.is_infinite()
    }

    /// `node7 as a receiver 5.1 %`
    pub fn name(&self, hosts: &[String], ends: Ends) -> String {
        let by = if self.is_silent() { "passes nothing".to_owned() } else { percent(self.worse) };
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
            Kind::Host { host, role } if self.is_silent() => format!(
                "nothing came through {} {}: {} of its {} pairs failed, for example {}",
                hosts[host],
                ends.name(role),
                self.shown,
                self.pairs,
                pair(hosts, self.example)
            ),
            Kind::Link { from, to } if self.is_silent() => {
                format!("nothing came through {}", pair(hosts, (from, to)))
            }
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
                    "so much noise would hide a {} at half of the speed: measure longer, or more iterations",
                    if *hosts { "host or link" } else { "link" }
                )
            }
            Self::MostFailed { pairs } => {
                format!("{} failed, all pairs of most hosts: no host stands out by that", counted(*pairs, "pair"))
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
    /// Why no suspect is named, in a few words. `None`: there is one.
    pub fn none_named(&self) -> Option<&'static str> {
        Some(match (self.suspect_count(), self.blind()) {
            (None, Some(Limit::Noise { .. })) => "too much noise to name a suspect",
            (None, Some(Limit::MostFailed { .. })) => "too many pairs failed to name a suspect",
            (None, _) => "too few pairs to name a suspect",
            (Some(0), _) if !self.failed.is_empty() || !self.missing.is_empty() => {
                "no suspects among the pairs with a value"
            }
            (Some(0), _) => "no suspects",
            _ => return None,
        })
    }

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
