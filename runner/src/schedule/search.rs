//! `find`: the highest load at which a bound holds, by probes.
//!
//! The next step depends only on the probes so far: the same outcomes give the same probes, and an interrupted run goes on
//! with the probe that it was at.
//!
//! - The loads are those of a grid, two steps of which are `within` apart.
//! - The lowest load is probed first, then the highest; without a highest one, the load is doubled until a probe fails.
//! - Then comes the load from which most is learned about the place of the limit (`posterior`). A busy machine makes probes
//!   fail that should hold, and the posterior learns from the probes how often.
//! - The search ends when the limit lies between two loads that are `within` of each other with a probability of `LEVEL`,
//!   if both were probed, most probes of the one held and most of the other did not, and both were probed as often as the
//!   case's `iterations` say.
//! - When `max_probes` are used up, the answer is the interval in which the limit lies with that probability. The last tenth of
//!   them probes its ends.

mod posterior;
mod sentence;

use std::{cell::OnceCell, time::Duration};

use netcore::spec::TestSpec;
use schemas::{columns::Row, words::Search as Finding, words::Way};

use self::posterior::{Carried, tolerance};
use super::{confidence::Samples, history::Done, step::Step};
use crate::plan::{
    answers,
    case::{Find, Policy},
    model::FindBy,
};
use posterior::Posterior;

/// Probability with which the limit lies where the answer says.
const LEVEL: f64 = 0.95;

/// Share of `within` that two steps of the grid span: rounding takes the rest.
const SPAN: f64 = 0.98;

/// One in so many probes is kept for the two ends of an interval.
const ENDS: u32 = 10;

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
    /// One per probe: held, exceeded or unreached.
    findings: Vec<Finding>,
    /// The largest share of the load that was really offered.
    reached: f64,
    /// The largest share of what was offered that stayed in a queue.
    queued: f64,
    samples: Samples,
    done: Vec<Done>,
}

impl Known {
    fn count(&self, finding: Finding) -> usize {
        self.findings.iter().filter(|f| **f == finding).count()
    }

    fn held(&self) -> bool {
        self.count(Finding::Held) * 2 > self.findings.len()
    }

    fn failed(&self) -> bool {
        self.count(Finding::Held) * 2 < self.findings.len()
    }

    /// Whether the sender is to blame for most failures.
    fn is_unreached(&self) -> bool {
        self.failed() && self.count(Finding::Unreached) > self.count(Finding::Exceeded)
    }

    /// Whether it was probed as often as the case's `iterations` say.
    fn is_enough(&self) -> bool {
        self.samples.enough(u32::try_from(self.findings.len()).unwrap_or(u32::MAX))
    }
}

/// A search and what it knows.
pub struct Search {
    find: Find,
    /// For the two loads at the border.
    policy: Policy,
    /// The test at the lowest load, of which all other loads are multiples.
    base: TestSpec,
    /// The loads that may be probed, ascending. Without a highest load it grows.
    grid: Vec<f64>,
    posterior: Posterior,
    /// Ascending by load.
    known: Vec<Known>,
    /// See `wanted`: weighed once after each probe, when first asked for.
    wanted: OnceCell<Result<usize, Answer>>,
}

impl Search {
    /// `None`: the case does not search.
    pub fn new(step: &Step) -> Option<Self> {
        let (find, member) = step.find.as_ref().zip(step.members.first())?;
        let base = find.at(member.spec()?, find.from);
        let mut grid = vec![find.from];
        if let Some(to) = find.to {
            grow(&mut grid, find, to);
        }
        let posterior = Posterior::new(grid.len());
        let (find, policy) = (find.clone(), step.policy.clone());
        Some(Self { find, policy, base, grid, posterior, known: Vec::new(), wanted: OnceCell::new() })
    }

    /// The case with this load.
    pub fn step(&self, step: &Step, load: f64) -> Step {
        let mut step = step.clone();
        for (member, identity) in step.case.members.iter_mut().zip(&mut step.identities) {
            let Some(spec) = member.job.spec_mut() else { continue };
            *spec = self.find.at(spec, load);
            answers::of_spec(identity, spec);
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
            FindBy::Inflight => Carried::WHOLE,
            FindBy::Rate => {
                let filling = delay.saturating_sub(self.warmup());
                ways.map(|(_, _, row)| Carried::of(row, filling)).reduce(Carried::or_worse)?
            }
        };
        let value = total.number(self.find.metric.column);
        let place = self.known.partition_point(|k| k.load < load && !same(k.load, load));
        if !self.known.get(place).is_some_and(|k| same(k.load, load)) {
            let samples = Samples::new(self.policy.clone());
            let (findings, done) = (Vec::new(), Vec::new());
            self.known.insert(place, Known { load, findings, reached: 0.0, queued: 0.0, samples, done });
        }
        // The row of an earlier session says what its probe showed.
        let said = total.search.filter(|f| matches!(f, Finding::Held | Finding::Exceeded | Finding::Unreached));
        let finding = said.unwrap_or_else(|| self.judge(value, carried, total.elapsed_s));
        let known = &mut self.known[place];
        known.findings.push(finding);
        known.reached = known.reached.max(carried.offered);
        // The row of an earlier session lacks the delay of its path.
        if said.is_none() {
            known.queued = known.queued.max(carried.queued);
        }
        known.samples.push(&total);
        known.done.push(done);
        self.wanted.take();
        self.learn(load, finding == Finding::Held);
        Some(finding)
    }

    fn warmup(&self) -> Duration {
        Duration::from_nanos(self.base.phases.warmup_ns)
    }

    /// The load of a probe from its row. Read back from a table, it may differ in the last digits.
    fn load(&self, row: &Row) -> Option<f64> {
        match self.find.by {
            FindBy::Inflight => row.inflight.map(|n| n as f64),
            FindBy::Rate => Some(self.find.from * row.offered_per_s? / answers::offered(&self.base)?.0),
        }
    }

    /// Judges a probe. A load holds if the bound does, and if what the sender offered went through: a queue, such as that of
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

    /// Lets the posterior know of a probe, and the grid grow where it has no end.
    fn learn(&mut self, load: f64, held: bool) {
        let at = self.index(load);
        self.posterior.take(at, held);
        let top = self.grid.len() - 1;
        if self.find.to.is_none() && at == top && self.known_at(top).is_some_and(Known::held) {
            grow(&mut self.grid, &self.find, load * 2.0);
            self.posterior = Posterior::new(self.grid.len());
            for known in &self.known {
                let at = self.index(known.load);
                known.findings.iter().for_each(|finding| self.posterior.take(at, *finding == Finding::Held));
            }
        }
    }

    /// The index of the load of the grid that is nearest.
    fn index(&self, load: f64) -> usize {
        let above = self.grid.partition_point(|other| *other < load).min(self.grid.len() - 1);
        let below = above.saturating_sub(1);
        if load * load < self.grid[below] * self.grid[above] { below } else { above }
    }

    fn known_at(&self, index: usize) -> Option<&Known> {
        self.at(self.grid[index])
    }

    fn at(&self, load: f64) -> Option<&Known> {
        self.known.iter().find(|known| same(known.load, load))
    }

    pub fn probes(&self) -> u32 {
        u32::try_from(self.known.iter().map(|k| k.findings.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }

    pub fn next(&self) -> Next {
        match self.wanted() {
            Ok(at) if self.probes() < self.find.max_probes => Next::Probe(self.grid[self.end().unwrap_or(at)]),
            Ok(_) => Next::Done(self.interval()),
            Err(answer) => Next::Done(answer),
        }
    }

    /// The index of the load to probe, or the answer.
    fn wanted(&self) -> Result<usize, Answer> {
        *self.wanted.get_or_init(|| self.weigh())
    }

    fn weigh(&self) -> Result<usize, Answer> {
        let top = self.grid.len() - 1;
        let Some(lowest) = self.known_at(0) else { return Ok(0) };
        let highest = self.known_at(top);
        let cells = self.posterior.cells();
        if highest.is_none() && cells[0] < LEVEL {
            return Ok(if lowest.held() { top } else { 0 });
        }
        if cells[0] >= LEVEL {
            let outcome = if lowest.is_unreached() { Finding::Unreached } else { Finding::Nothing };
            return self.border(None, Some(0), outcome);
        }
        if cells[top + 1] >= LEVEL || (self.find.to.is_none() && cells[top + 1] >= 0.5) {
            return if self.find.to.is_none() { Ok(top) } else { self.border(Some(top), None, Finding::AtLeast) };
        }
        // The likeliest cell, or the likeliest two if they are close enough.
        let likely = |span: usize| {
            let sums =
                (1..=(top + 1).saturating_sub(span)).map(|cell| (cell, cells[cell..cell + span].iter().sum::<f64>()));
            sums.filter(|(cell, p)| *p >= LEVEL && self.is_close(cell - 1, cell + span - 1))
                .max_by(|a, b| a.1.total_cmp(&b.1))
        };
        match likely(1).map(|(cell, _)| (cell - 1, cell)).or_else(|| likely(2).map(|(cell, _)| (cell - 1, cell + 1))) {
            Some((held, above)) => {
                let is_unreached = self.known_at(above).is_some_and(Known::is_unreached);
                let outcome = if is_unreached { Finding::Unreached } else { Finding::Found };
                self.border(Some(held), Some(above), outcome)
            }
            None => Ok(self.posterior.most_telling()),
        }
    }

    /// The answer, if its two loads are known well enough; otherwise the one to probe.
    fn border(&self, held: Option<usize>, above: Option<usize>, outcome: Finding) -> Result<usize, Answer> {
        let lacks =
            |at: &usize, well: fn(&Known) -> bool| !self.known_at(*at).is_some_and(|k| well(k) && k.is_enough());
        if let Some(at) =
            held.filter(|at| lacks(at, Known::held)).or_else(|| above.filter(|at| lacks(at, Known::failed)))
        {
            return Ok(at);
        }
        let load = |at: usize| self.grid[at];
        Err(Answer { outcome, held: held.map(load), above: above.map(load) })
    }

    /// Whether the precision needs no load between two of the grid.
    fn is_close(&self, held: usize, above: usize) -> bool {
        let (held, above) = (self.grid[held], self.grid[above]);
        above <= held * (1.0 + self.find.within) || (self.find.by == FindBy::Inflight && above - held <= 1.0)
    }

    /// The first and the last cell of the interval in which the limit lies.
    fn quantiles(&self) -> (usize, usize) {
        let tail = (1.0 - LEVEL) / 2.0;
        (posterior::quantile(self.posterior.cells(), tail), posterior::quantile(self.posterior.cells(), 1.0 - tail))
    }

    /// The load to probe if the search is about to end with an interval of which an end was not probed.
    fn end(&self) -> Option<usize> {
        let left = self.find.max_probes.saturating_sub(self.probes());
        if left > self.find.max_probes / ENDS {
            return None;
        }
        let (first, last) = self.quantiles();
        let above = Some(last).filter(|at| *at < self.grid.len() && self.known_at(*at).is_none());
        above.or_else(|| first.checked_sub(1).filter(|at| self.known_at(*at).is_none()))
    }

    /// The answer where the limit is not known closely: the loads on both sides of the interval in which it lies.
    fn interval(&self) -> Answer {
        let (first, last) = self.quantiles();
        let held = self.known.iter().rfind(|k| self.index(k.load) < first && k.held());
        let above = self.known.iter().find(|k| self.index(k.load) >= last && k.failed());
        Answer { outcome: Finding::Open, held: held.map(|k| k.load), above: above.map(|k| k.load) }
    }

    /// The answer if the search ends here.
    pub fn so_far(&self) -> Answer {
        self.wanted().map_or_else(|answer| answer, |_| self.interval())
    }

    /// Takes the probes of that load out, with their findings. One that did not offer it measured another load.
    pub fn release(&mut self, load: f64) -> Vec<(Done, Finding)> {
        let Some(known) = self.known.iter_mut().find(|k| same(k.load, load)) else { return Vec::new() };
        let all = std::mem::take(&mut known.done).into_iter().zip(&known.findings);
        all.filter(|(_, finding)| **finding != Finding::Unreached).map(|(done, finding)| (done, *finding)).collect()
    }

    /// Estimated number of further probes.
    pub fn left(&self) -> u32 {
        /// Information of a probe about the limit, bits: less than one, since it may be wrong.
        const TOLD: f64 = 0.6;
        let most = self.find.max_probes.saturating_sub(self.probes());
        let open: f64 = self.posterior.cells().iter().filter(|p| **p > 0.0).map(|p| -p * p.log2()).sum();
        let border = 2 * self.policy.min.saturating_sub(1).max(1);
        // At most the bits of a load.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let left = (open / TOLD).clamp(0.0, 64.0) as u32 + border;
        left.clamp(1, most.max(1))
    }

    /// A load in the unit of the rows' `offered_per_s`, or `inflight`.
    pub fn in_rows(&self, load: f64) -> Option<f64> {
        match self.find.by {
            FindBy::Inflight => Some(load),
            FindBy::Rate => answers::offered(&self.find.at(&self.base, load)).map(|(offered, _)| offered),
        }
    }
}

/// Lets a grid reach up to that load.
fn grow(grid: &mut Vec<f64>, find: &Find, to: f64) {
    let Some(&from) = grid.last() else { return };
    match find.by {
        FindBy::Inflight => {
            let step = (1.0 + find.within).sqrt();
            let mut last = from;
            while last < to {
                last = (last * step).round().max(last + 1.0).min(to);
                grid.push(last);
            }
        }
        FindBy::Rate => {
            let steps = (2.0 * (to / from).ln() / (1.0 + find.within * SPAN).ln()).ceil().max(1.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the logarithm of a range")]
            let steps = steps as u32;
            // Digits that a tester can read, finer than the grid.
            let digits = 3.0 - find.within.log10().floor();
            let rounded = |load: f64| {
                let unit = 10f64.powf(load.log10().floor() + 1.0 - digits);
                (load / unit).round() * unit
            };
            let inner = (1..steps).map(|i| rounded(from * (to / from).powf(f64::from(i) / f64::from(steps))));
            grid.extend(inner.chain([to]));
        }
    }
}

/// Whether two loads differ only by rounding.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs()
}

#[cfg(test)]
mod tests;
