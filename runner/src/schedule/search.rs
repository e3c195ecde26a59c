//! `find`: the highest load at which a bound holds, by probes.
//!
//! The next step depends only on the probes so far: the same outcomes give the same probes, and an interrupted run goes on
//! with the probe that it was at.
//!
//! 1. Probe the lowest load, then the highest. Without a highest load, double until the bound fails.
//! 2. Probe the geometric middle between the highest load that held and the lowest that did not, until these two are
//!    `within` of each other. A failure is probed again before it is believed (`FAILURES`).
//! 3. Confirm the two loads at the border: until one finding is clearly ahead (`HELD_BORDER`, `FAILED_BORDER`), and as
//!    often as the case's `iterations` say. The majority decides; if it turns one over, go on from there.
//!
//! A busy machine makes probes fail that should hold: one in five is common. A load whose probes hold with probability p
//! gets `n` failures ahead of its successes with a probability of at most `((1 − p) / p)ⁿ`.

use std::time::Duration;

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

/// Failures ahead of successes at which a load is believed to fail.
const FAILURES: i32 = 2;

/// The same for the lower load of the border, in successes ahead: one lucky probe is no answer.
const HELD_BORDER: i32 = 2;

/// The same for the upper load of the border, in failures ahead.
const FAILED_BORDER: i32 = 3;

/// Probes of a load after which the majority decides, unless its `iterations` are more. Odd.
const MOST: usize = 7;

/// Probes of a load that was not offered, until that counts as the sender's limit: a busy machine may stall once or twice.
const TRIES: i32 = 3;

/// The same for the lowest load.
const MOST_TRIES: i32 = 5;

/// Operations that may be missing at the edges of a window of a load that counts as reached.
const EDGE: f64 = 2.0;

/// Time by which a busy machine may read the two edges of a window late. The window of the arrivals may be off by that.
const EDGE_S: f64 = 0.005;

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
    /// Probes that do not offer the load before that counts as the sender's limit.
    tries: i32,
    /// One per probe: held, exceeded or unreached.
    findings: Vec<Finding>,
    /// The largest share of the load that was really offered.
    reached: f64,
    /// The largest share of what was offered that stayed in a queue.
    queued: f64,
    samples: Samples,
    done: Vec<Done>,
}

/// The opinion about a load by its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opinion {
    Holds,
    Fails,
    /// Has failed, but not often enough to believe it.
    Doubtful,
}

impl Known {
    fn count(&self, finding: Finding) -> i32 {
        let n = self.findings.iter().filter(|f| **f == finding).count();
        i32::try_from(n).unwrap_or(i32::MAX)
    }

    /// Successes ahead of failures. A load that was not offered says nothing.
    fn lead(&self) -> i32 {
        self.count(Finding::Held) - self.count(Finding::Exceeded)
    }

    fn opinion(&self) -> Opinion {
        let n = self.findings.len();
        match self.lead() {
            1.. => Opinion::Holds,
            lead if lead <= -FAILURES || n >= MOST || self.is_unreached() => Opinion::Fails,
            _ => Opinion::Doubtful,
        }
    }

    /// Whether it could not be offered in any of several tries.
    fn is_unreached(&self) -> bool {
        let unreached = self.count(Finding::Unreached);
        self.lead() <= 0 && unreached > self.count(Finding::Exceeded) && unreached >= self.tries
    }

    /// Whether it is known well enough for the border of the answer.
    fn is_settled(&self) -> bool {
        let (n, lead) = (self.findings.len(), self.lead());
        self.samples.enough(u32::try_from(n).unwrap_or(u32::MAX))
            && (n >= MOST || lead >= HELD_BORDER || lead <= -FAILED_BORDER || self.is_unreached())
    }
}

/// Shares of the load of one probe, each 0 to 1.
#[derive(Clone, Copy, Debug)]
struct Carried {
    /// Offered by the sender.
    offered: f64,
    /// Of that, neither arrived in the window nor lost: what a queue took in.
    queued: f64,
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

    /// Adds a probe by its measured rows; returns its own finding. `delay`: the longest that the path may take.
    pub fn take(&mut self, done: Done, delay: Duration) -> Option<Finding> {
        // The total: both directions together where there are two.
        let total = done.measured.iter().max_by_key(|(m, way, _)| (*m, *way)).map(|(_, _, row)| row.clone())?;
        let load = self.load(&total)?;
        let ways = done.measured.iter().filter(|(_, way, _)| *way != Way::Both || done.measured.len() == 1);
        let carried = match self.find.by {
            FindBy::Inflight => Carried { offered: 1.0, queued: 0.0 },
            FindBy::Rate => {
                let each = ways.map(|(_, _, row)| Carried {
                    offered: offered_share(row),
                    queued: queued_share(row, delay.saturating_sub(self.warmup())),
                });
                each.reduce(|a, b| Carried { offered: a.offered.min(b.offered), queued: a.queued.max(b.queued) })?
            }
        };
        let value = total.number(self.find.metric.column);
        let place = self.known.partition_point(|k| k.load < load && !same(k.load, load));
        if !self.known.get(place).is_some_and(|k| same(k.load, load)) {
            let samples = Samples::new(self.policy.clone());
            let (findings, done) = (Vec::new(), Vec::new());
            // Without the lowest load there is no answer at all.
            let tries = if same(load, self.find.from) { MOST_TRIES } else { TRIES };
            self.known.insert(place, Known { load, tries, findings, reached: 0.0, queued: 0.0, samples, done });
        }
        // The row of an earlier session says what its probe showed.
        let said = total.search.filter(|f| matches!(f, Finding::Held | Finding::Exceeded | Finding::Unreached));
        let finding = said.unwrap_or_else(|| self.judge(value, carried, total.elapsed_s));
        let known = &mut self.known[place];
        known.findings.push(finding);
        known.reached = known.reached.max(carried.offered);
        known.queued = known.queued.max(carried.queued);
        known.samples.push(&total);
        known.done.push(done);
        Some(finding)
    }

    fn warmup(&self) -> Duration {
        Duration::from_nanos(self.base.phases.warmup_ns)
    }

    /// The load of a probe from its row. Read back from a table, it may differ in the last digits.
    fn load(&self, row: &Row) -> Option<f64> {
        match self.find.by {
            FindBy::Inflight => row.inflight.map(|n| n as f64),
            FindBy::Rate => Some(self.find.from * row.offered_per_s? / identity::offered(&self.base)?.0),
        }
    }

    /// What a probe shows. A load holds if the bound does, and if what the sender offered went through: a queue, such as that of
    /// a shaper, hides for a while that a path carries less. So an answer is at most `within` above what arrived.
    fn judge(&self, value: Option<f64>, carried: Carried, window_s: Option<f64>) -> Finding {
        let holds = value.is_some_and(|value| {
            self.find.at_most.is_none_or(|most| value <= most) && self.find.at_least.is_none_or(|least| value >= least)
        });
        let most_missing = self.find.within / 2.0;
        let Carried { offered, queued } = carried;
        let is_unreached = 1.0 - offered > most_missing;
        match holds {
            false => Finding::Exceeded,
            true if queued > tolerance(self.find.within, window_s) => {
                // Proves nothing where the sender is the limit.
                if is_unreached && 1.0 - offered > queued { Finding::Unreached } else { Finding::Exceeded }
            }
            true if offered * (1.0 - queued) < 1.0 - most_missing => Finding::Unreached,
            true => Finding::Held,
        }
    }

    pub fn probes(&self) -> u32 {
        u32::try_from(self.known.iter().map(|k| k.findings.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The highest load below which all held, and the lowest that did not hold.
    fn bracket(&self) -> (Option<&Known>, Option<&Known>) {
        let over = self.known.iter().position(|k| k.opinion() != Opinion::Holds).unwrap_or(self.known.len());
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
        let again = |known: &Known| (!known.is_settled()).then_some(known.load);
        let (held, above) = self.bracket();
        let doubtful = above.filter(|k| k.opinion() == Opinion::Doubtful).map(|k| k.load);
        let is_known = |load: f64| self.known.iter().any(|k| same(k.load, load));
        match (held, above) {
            _ if !is_known(find.from) => Some(find.from),
            (_, Some(_)) if doubtful.is_some() => doubtful,
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
            (_, Some(above)) if above.is_unreached() => Finding::Unreached,
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
        let border = 2 * self.policy.min.saturating_sub(1).max(1);
        // Half of the loads fail, and are probed twice. At most the number of bits of a load.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let left = (halvings * 1.5).min(64.0) as u32 + border;
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

    /// Names the queue, if that is all that speaks against the load above the answer.
    fn queue(&self) -> String {
        let is_lossless = |k: &&Known| k.done.iter().flat_map(|d| &d.measured).all(|(.., row)| self.is_bound_kept(row));
        let above = self.bracket().1.filter(is_lossless).filter(|k| k.queued > 0.0);
        above.map_or_else(String::new, |k| {
            format!(", where a queue took in {} of what was sent", human(Unit::Ratio, k.queued))
        })
    }

    fn is_bound_kept(&self, row: &Row) -> bool {
        let whole = Carried { offered: 1.0, queued: 0.0 };
        self.judge(row.number(self.find.metric.column), whole, row.elapsed_s) == Finding::Held
    }

    /// A remark, if the windows are too short for the precision asked for.
    fn blur(&self) -> String {
        let rows = || self.known.iter().flat_map(|k| &k.done).flat_map(|d| &d.measured).map(|(.., row)| row);
        let shortest = rows().filter_map(|row| row.elapsed_s).reduce(f64::min);
        let finest = |window_s: f64| 2.0 * EDGE_S / window_s;
        match shortest.map(finest) {
            Some(finest) if self.find.by == FindBy::Rate && finest > self.find.within => format!(
                "; windows this short show a queue of {} only, not the {} asked for: `duration: {}` would",
                human(Unit::Ratio, finest),
                human(Unit::Ratio, self.find.within),
                human(Unit::Seconds, 2.0 * EDGE_S / self.find.within)
            ),
            _ => String::new(),
        }
    }

    /// The answer as a sentence.
    pub fn sentence(&self, name: &str, answer: &Answer) -> String {
        let bound = self.find.bound();
        let load = |load: Option<f64>| load.map(|l| self.words(l)).unwrap_or_default();
        let (held, above) = (load(answer.held), load(answer.above));
        let said = match (answer.outcome, answer.held, answer.above) {
            (Finding::Found, ..) => format!("{bound} holds up to {held}, not at {above}{}", self.queue()),
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
        let said = format!("{said}{}", self.blur());
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

/// Growth of a queue that counts as none, as a share of what was offered: the edges of the window are not exact.
fn tolerance(within: f64, window_s: Option<f64>) -> f64 {
    let edges = window_s.map_or(f64::INFINITY, |window_s| EDGE_S / window_s);
    edges.clamp(within / 10.0, within / 2.0)
}

/// The share of what was sent that neither arrived in the window nor was lost. `filling`: time in which the first data of the
/// window were still on their way.
fn queued_share(row: &Row, filling: Duration) -> f64 {
    let share = || {
        let (sent, arrived, elapsed) = (row.sent_bits_per_s?, row.throughput_bits_per_s?, row.elapsed_s?);
        let messages = EDGE * row.message_bytes.unwrap_or(0) as f64 * 8.0 / elapsed;
        let on_the_way = sent * filling.as_secs_f64() / elapsed;
        let gone = sent * row.loss_ratio.unwrap_or(0.0);
        (sent > 0.0).then(|| (sent - gone - arrived - messages - on_the_way) / sent)
    };
    // Only a stream has a receiver whose arrivals say something about the sender's load.
    let is_stream = row.transactions_per_s.is_none();
    share().filter(|_| is_stream).map_or(0.0, |share| share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
