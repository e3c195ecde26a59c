//! `find`: the highest load at which a bound holds, by probes.
//!
//! The next step depends only on the probes so far: the same outcomes give the same probes, and an interrupted run goes on
//! with the probe that it was at.
//!
//! 1. Probe the lowest load, then the highest. Without a highest load, double until the bound fails.
//! 2. Probe the geometric middle between the highest load that held and the lowest that did not, until these two are
//!    `within` of each other.
//! 3. Measure both as often as the case's `iterations` say. The mean decides; if it turns one over, go on from there.

use netcore::spec::TestSpec;
use schemas::{
    columns::Row,
    units::{Unit, human},
    words::{OfferedUnit, Search as Finding, Way},
};

use super::{confidence::Samples, history::Done, rows::identity, step::Step};
use crate::plan::{
    case::{Find, Job, Policy},
    model::FindBy,
};

/// Least probes of a load that was not reached: a busy machine may stall once or twice.
const TRIES: usize = 3;

/// Operations that may be missing at the edges of a window of a load that counts as reached.
const EDGE: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    pub outcome: Finding,
    /// The highest load that held.
    pub held: Option<f64>,
    /// The lowest load above it that did not.
    pub above: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    Probe(f64),
    Done(Answer),
}

/// The probes of one load.
struct Known {
    load: f64,
    /// The bounded metric, probe by probe; `None`: no value.
    values: Vec<Option<f64>>,
    /// The largest share of the load that was really offered.
    reached: f64,
    samples: Samples,
    done: Vec<Done>,
}

/// A search and what it knows.
pub struct Search {
    find: Find,
    /// For the two loads at the border.
    policy: Policy,
    /// The test at the lowest load, of which all other loads are multiples.
    base: TestSpec,
    /// Ascending by load.
    known: Vec<Known>,
}

impl Search {
    /// `None`: the case does not search.
    pub fn new(step: &Step) -> Option<Self> {
        let (find, member) = step.find.as_ref().zip(step.members.first())?;
        let base = find.at(member.spec()?, find.from);
        Some(Self { find: find.clone(), policy: step.policy.clone(), base, known: Vec::new() })
    }

    /// The case with this load.
    pub fn step(&self, step: &Step, load: f64) -> Step {
        let mut step = step.clone();
        for (member, identity) in step.case.members.iter_mut().zip(&mut step.identities) {
            let Job::Traffic(spec) = &mut member.job else { continue };
            **spec = self.find.at(spec, load);
            identity::requested(identity, spec);
        }
        step
    }

    /// Adds a probe by its measured rows; returns its own verdict.
    pub fn take(&mut self, done: Done) -> Option<Finding> {
        // The total: both directions together where there are two.
        let total = done.measured.iter().max_by_key(|(m, way, _)| (*m, *way)).map(|(_, _, row)| row.clone())?;
        let load = self.load(&total)?;
        let ways = done.measured.iter().filter(|(_, way, _)| *way != Way::Both || done.measured.len() == 1);
        let reached = match self.find.by {
            FindBy::Inflight => 1.0,
            FindBy::Rate => ways.map(|(_, _, row)| offered_share(row)).fold(f64::INFINITY, f64::min),
        };
        let value = total.number(self.find.metric.column);
        let place = self.known.partition_point(|k| k.load < load && !same(k.load, load));
        if !self.known.get(place).is_some_and(|k| same(k.load, load)) {
            let samples = Samples::new(self.policy.clone());
            self.known.insert(place, Known { load, values: Vec::new(), reached: 0.0, samples, done: Vec::new() });
        }
        let known = &mut self.known[place];
        known.values.push(value);
        known.reached = known.reached.max(reached);
        known.samples.push(&total);
        known.done.push(done);
        Some(self.judge(&[value], reached))
    }

    /// The load of a probe from its row. Read back from a table, it may differ in the last digits.
    fn load(&self, row: &Row) -> Option<f64> {
        match self.find.by {
            FindBy::Inflight => row.inflight.map(|n| n as f64),
            FindBy::Rate => Some(self.find.from * row.offered_per_s? / identity::offered(&self.base)?.0),
        }
    }

    fn judge(&self, values: &[Option<f64>], reached: f64) -> Finding {
        let sum: Option<f64> = values.iter().copied().sum();
        let holds = sum.map(|sum| sum / values.len() as f64).is_some_and(|mean| {
            self.find.at_most.is_none_or(|most| mean <= most) && self.find.at_least.is_none_or(|least| mean >= least)
        });
        match holds {
            false => Finding::Exceeded,
            // Proves nothing: the sender did not offer the whole load.
            true if reached < 1.0 - self.find.within => Finding::Unreached,
            true => Finding::Held,
        }
    }

    fn verdict(&self, known: &Known) -> Finding {
        self.judge(&known.values, known.reached)
    }

    fn is_settled(&self, known: &Known) -> bool {
        let n = known.values.len();
        known.samples.enough(u32::try_from(n).unwrap_or(u32::MAX))
            && (n >= TRIES || self.verdict(known) != Finding::Unreached)
    }

    pub fn probes(&self) -> u32 {
        u32::try_from(self.known.iter().map(|k| k.values.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The highest load below which all held, and the lowest that did not hold.
    fn bracket(&self) -> (Option<&Known>, Option<&Known>) {
        let over = self.known.iter().position(|k| self.verdict(k) != Finding::Held).unwrap_or(self.known.len());
        (over.checked_sub(1).and_then(|held| self.known.get(held)), self.known.get(over))
    }

    pub fn next(&self) -> Next {
        match self.wanted() {
            Some(load) if self.probes() < self.find.max_probes => Next::Probe(load),
            Some(_) => Next::Done(self.so_far()),
            None => Next::Done(self.answer()),
        }
    }

    fn wanted(&self) -> Option<f64> {
        let find = &self.find;
        let again = |known: &Known| (!self.is_settled(known)).then_some(known.load);
        let (held, above) = self.bracket();
        let above_again = above.filter(|k| k.values.len() < TRIES && self.verdict(k) == Finding::Unreached);
        let is_known = |load: f64| self.known.iter().any(|k| same(k.load, load));
        match (held, above) {
            _ if !is_known(find.from) => Some(find.from),
            (_, Some(_)) if above_again.is_some() => above_again.map(|k| k.load),
            (None, Some(above)) => again(above),
            (Some(held), None) => match find.to {
                Some(to) if !is_known(to) => Some(to),
                Some(_) => again(held),
                None => Some(held.load * 2.0),
            },
            (Some(held), Some(above)) => match self.middle(held.load, above.load) {
                Some(load) => Some(load),
                None => again(held).or_else(|| again(above)),
            },
            (None, None) => None,
        }
    }

    /// The load to probe between two; `None`: they are close enough.
    fn middle(&self, held: f64, above: f64) -> Option<f64> {
        if above <= held * (1.0 + self.find.within) {
            return None;
        }
        let middle = (held * above).sqrt();
        match self.find.by {
            FindBy::Inflight if above - held <= 1.0 => None,
            FindBy::Inflight => Some(middle.round().clamp(held + 1.0, above - 1.0)),
            // One digit more than the precision of the answer.
            FindBy::Rate => {
                let digits = 2.0 - self.find.within.log10().floor();
                let unit = 10f64.powf(middle.log10().floor() + 1.0 - digits);
                let rounded = (middle / unit).round() * unit;
                Some(if rounded > held && rounded < above { rounded } else { middle })
            }
        }
    }

    fn answer(&self) -> Answer {
        let (held, above) = self.bracket();
        let outcome = match (held, above) {
            (_, Some(above)) if self.verdict(above) == Finding::Unreached => Finding::Unreached,
            (None, _) => Finding::Nothing,
            (Some(_), None) => Finding::AtLeast,
            (Some(_), Some(_)) => Finding::Found,
        };
        Answer { outcome, held: held.map(|k| k.load), above: above.map(|k| k.load) }
    }

    /// The answer if the search ends here.
    pub fn so_far(&self) -> Answer {
        match self.wanted() {
            Some(_) => Answer { outcome: Finding::Open, ..self.answer() },
            None => self.answer(),
        }
    }

    /// Takes the probes of that load out.
    pub fn release(&mut self, load: f64) -> Vec<Done> {
        let known = self.known.iter_mut().find(|k| same(k.load, load));
        known.map(|k| std::mem::take(&mut k.done)).unwrap_or_default()
    }

    /// Estimated number of further probes.
    pub fn left(&self) -> u32 {
        let most = self.find.max_probes.saturating_sub(self.probes());
        let (Some(held), Some(above)) = self.bracket() else { return most };
        let halvings = ((above.load / held.load).ln() / (1.0 + self.find.within).ln()).log2().ceil().max(0.0);
        let border = 2 * self.policy.min.saturating_sub(1);
        // At most the number of bits of a load.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let left = halvings.min(64.0) as u32 + border;
        left.clamp(1, most.max(1))
    }

    /// A load in the unit of the rows' `offered_per_s`, or `inflight`.
    pub fn in_rows(&self, load: f64) -> Option<f64> {
        match self.find.by {
            FindBy::Inflight => Some(load),
            FindBy::Rate => identity::offered(&self.find.at(&self.base, load)).map(|(offered, _)| offered),
        }
    }

    /// A load in words.
    pub fn words(&self, load: f64) -> String {
        match self.find.by {
            FindBy::Inflight => format!("{load} in flight"),
            FindBy::Rate => human(if self.find.bits { Unit::BitsPerSecond } else { Unit::PerSecond }, load),
        }
    }

    /// The bracket for the display: `500 Mbit/s … 900 Mbit/s`.
    pub fn range(&self) -> String {
        let (held, above) = self.bracket();
        let words = |known: Option<&Known>| known.map_or_else(|| "?".to_owned(), |k| self.words(k.load));
        format!("{} … {}", words(held), words(above))
    }

    /// The answer as a sentence.
    pub fn sentence(&self, name: &str, answer: &Answer) -> String {
        let bound = self.find.bound();
        let load = |load: Option<f64>| load.map(|l| self.words(l)).unwrap_or_default();
        let (held, above) = (load(answer.held), load(answer.above));
        let said = match (answer.outcome, answer.held, answer.above) {
            (Finding::Found, ..) => format!("{bound} holds up to {held}, not at {above}"),
            (Finding::AtLeast, ..) => {
                format!("{bound} holds at {held}, the highest load of the search: the limit is at least that")
            }
            (Finding::Unreached, Some(_), _) => {
                let share = self.bracket().1.map_or(0.0, |k| k.reached);
                format!(
                    "{bound} holds up to {held}; of {above} only {} was really offered, so what ends there is the \
                     sender: the limit is at least {held}",
                    human(Unit::Ratio, share)
                )
            }
            (Finding::Unreached, None, _) => {
                format!("not even the lowest load, {above}, was really offered: nothing is known of {bound}")
            }
            (Finding::Nothing, ..) => format!("{bound} does not hold even at {above}, the lowest load of the search"),
            // Still open.
            (_, Some(_), Some(_)) => {
                format!("ended before the limit was known closely: {bound} holds up to {held}, not at {above}")
            }
            (_, Some(_), None) => format!("ended before a limit was seen: {bound} holds up to {held}"),
            (_, None, _) => format!("ended before anything was known of {bound}"),
        };
        let probes = self.probes();
        format!("case {name}: {said} ({probes} probe{})", if probes == 1 { "" } else { "s" })
    }
}

/// Whether two loads differ only by rounding.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs()
}

/// The share of the load that the sender really offered.
fn offered_share(row: &Row) -> f64 {
    let share = || {
        let (offered, elapsed) = (row.offered_per_s?, row.elapsed_s?);
        let (per_s, one) = match row.offered_unit? {
            OfferedUnit::Messages => (row.messages_sent? as f64 / elapsed, 1.0),
            OfferedUnit::Transactions => (row.transactions_per_s?, 1.0),
            OfferedUnit::Bits => (row.sent_bits_per_s?, row.message_bytes? as f64 * 8.0),
        };
        Some((per_s + EDGE * one / elapsed) / offered)
    };
    // Unknown counts as not offered.
    share().map_or(0.0, |share| share.min(1.0))
}

#[cfg(test)]
mod tests;
