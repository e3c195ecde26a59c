//! The survey of a fabric: which host, and which link, is slower than the rest.
//!
//! A survey has a value per ordered pair of hosts. [`survey`] separates the effect of a host as a sender, as a receiver,
//! and of a single directed link, by a robust two-way fit of the values' logarithms. So a host that is slow is one suspect,
//! and not 126 links. A suspect is significantly worse than the rest, at a stated chance of naming any in a healthy fabric,
//! and by at least a stated effect. `docs/reference/statistics.md` gives the reasons and the simulated rates.
//!
//! ```
//! use analyze::survey::{Cell, Kind, Matrix, Role, Rule, survey};
//! use schemas::metrics::Better;
//!
//! // Eight hosts at about 100; whatever n3 sends is a tenth slower.
//! let noise = |from: i32, to: i32| f64::from((from * 5 + to * 3) % 7 - 3) / 10.0;
//! let pairs = (1..=8).flat_map(|from| (1..=8).map(move |to| (from, to))).filter(|(from, to)| from != to);
//! let matrix = Matrix::of(pairs.map(|(from, to)| {
//!     let value = if from == 3 { 90.0 } else { 100.0 } + noise(from, to);
//!     (format!("n{from}"), format!("n{to}"), Cell::Value(value))
//! }));
//! let found = survey(&matrix, &Rule::new(Better::Higher));
//! assert_eq!(found.suspects.len(), 1);
//! assert_eq!(found.suspects[0].kind, Kind::Host { host: 2, role: Role::Sender });
//! ```

mod design;
mod matrix;
mod read;
mod silent;
mod suspects;
mod text;

pub use matrix::{Cell, Matrix, Scatter, natural};
pub use read::{Origin, Pairs, read};
pub use text::{DISTURBED, Ends, FAILED, Text, pairs, percent};

use crate::stats::quantiles;
use design::Design;
use schemas::metrics::Better;

/// How suspects are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub better: Better,
    /// Largest share of surveys of a healthy fabric that name any suspect.
    pub alpha: f64,
    /// Smallest effect that matters, as a share of the value.
    pub least_effect: f64,
}

impl Rule {
    pub const ALPHA: f64 = 0.01;
    /// As in comparisons.
    pub const LEAST_EFFECT: f64 = 0.03;

    pub fn new(better: Better) -> Self {
        Self { better, alpha: Self::ALPHA, least_effect: Self::LEAST_EFFECT }
    }

    /// A value on the scale of the model: its logarithm, larger if worse.
    fn scale(&self, value: f64) -> f64 {
        if self.better == Better::Lower { value.ln() } else { -value.ln() }
    }

    /// An effect as it is compared with the noise: the smaller of the two ways to express it. Noise that is normal around a
    /// throughput has a slow tail in logarithms, and latencies have one anyway.
    fn cautious(&self, effect: f64) -> f64 {
        effect.min(self.share(effect))
    }

    /// The share that is just as large as a [`Self::cautious`] effect.
    fn share_of_cautious(&self, effect: f64) -> f64 {
        if self.better == Better::Lower { effect.exp_m1() } else { effect.min(1.0) }
    }

    /// An effect on the scale as a share of the value: below the others where higher is better, else above them.
    fn share(&self, effect: f64) -> f64 {
        if self.better == Better::Lower { effect.exp_m1() } else { -(-effect).exp_m1() }
    }
}

/// Directions in which a host is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
    Both,
}

/// Hosts are indices of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Host {
        host: usize,
        role: Role,
    },
    /// One direction between two hosts, slower than its hosts explain.
    Link {
        from: usize,
        to: usize,
    },
}

impl Kind {
    /// Whether it blames the same link, or the same host in a direction that both name.
    fn agrees(self, other: Self) -> bool {
        match (self, other) {
            (Self::Host { host, role }, Self::Host { host: same, role: of_other }) => {
                host == same && (role == of_other || role == Role::Both || of_other == Role::Both)
            }
            _ => self == other,
        }
    }

    /// Whether a pair is the link, or one of the host's in its role.
    fn concerns(self, from: usize, to: usize) -> bool {
        match self {
            Self::Host { host, role } => {
                (host == from && role != Role::Receiver) || (host == to && role != Role::Sender)
            }
            Self::Link { from: sender, to: receiver } => (sender, receiver) == (from, to),
        }
    }
}

/// Something that is significantly worse than the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspect {
    pub kind: Kind,
    /// By how much, as a share of what the others get: below it where higher is better, else above it. Infinite: nothing came through.
    pub worse: f64,
    /// The 95 % confidence interval of `worse`.
    pub low: f64,
    pub high: f64,
    /// Pairs of the host in that role that show at least half of the effect.
    pub shown: usize,
    /// Its measured pairs in that role.
    pub pairs: usize,
    /// The slowest of them.
    pub example: (usize, usize),
}

/// The smallest effects that this survey could name, given its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensitivity {
    /// Of a host in one direction; `None` if no host has enough pairs.
    pub host: Option<f64>,
    pub link: f64,
}

/// The fit's verdict.
#[derive(Clone, Debug, Default, PartialEq)]
struct Finding {
    suspects: Vec<Suspect>,
    sensitivity: Option<Sensitivity>,
    heavy_tail: bool,
    /// Pairs that are faster than their hosts' others.
    fast: Vec<(usize, usize)>,
    /// Pairs that are slow as the others of their round are.
    of_round: Vec<(usize, usize)>,
}

/// Facts that limit what a survey can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So few measured pairs that nothing can be named.
    TooFewPairs { pairs: usize },
    /// No host has three pairs in one direction, so slow hosts show as slow links.
    OnlyLinks,
    /// So many hosts have fewer than three pairs in a direction, and are judged by their links there.
    SomeOnlyLinks { hosts: usize },
    /// So many groups of hosts without a pair between them, each compared within itself.
    Groups { groups: usize },
    /// So much noise that a host or a link at half of the speed could not be named.
    Noise { hosts: bool },
    /// Every pair of more than half of the hosts failed.
    MostFailed { pairs: usize },
    /// The noise has a heavy tail, so that only large effects of links are told from it.
    HeavyTail,
}

/// Slow pairs that may be healthy: where there are any, the absence of suspects is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doubtful {
    /// As slow as the others that were measured at the same time.
    pub of_round: Vec<(usize, usize)>,
    /// Slow at their best too, but by no more than the noise of single iterations.
    pub at_best: Vec<(usize, usize)>,
}

/// Pairs, the words for them, and what may be behind them.
type Doubt<'s> = (&'s [(usize, usize)], &'static str, &'static str);

impl Doubtful {
    /// Each kind of pairs.
    pub fn kinds(&self) -> [Doubt<'_>; 2] {
        [
            (
                &self.of_round,
                "slower with the whole round",
                "something else took the path meanwhile, or they share a link",
            ),
            (
                &self.at_best,
                "slow, which the best iterations neither prove nor refute",
                "more iterations of each pair decide it",
            ),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.kinds().iter().all(|(pairs, ..)| pairs.is_empty())
    }
}

/// The answer of a survey.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Pairs with a value.
    pub measured: usize,
    /// Median of the pairs' values.
    pub overall: Option<f64>,
    /// (95th − 5th percentile of the pairs' values) ÷ median.
    pub spread: Option<f64>,
    /// Standard deviation of a pair's value around what its hosts explain, as a share of it.
    pub noise: Option<f64>,
    /// Slow hosts, then slow links, the slowest first. See [`Survey::suspect_count`].
    pub suspects: Vec<Suspect>,
    pub sensitivity: Option<Sensitivity>,
    /// Pairs that were tried and have no value.
    pub failed: Vec<(usize, usize)>,
    /// Pairs that were measured only while others took a CPU of their hosts.
    pub disturbed: Vec<(usize, usize)>,
    /// Slow pairs that make no suspect, by what speaks against it.
    pub doubtful: Doubtful,
    /// Pairs that were not measured though they were asked for, or though the others are all pairs or one direction of each.
    pub missing: Vec<(usize, usize)>,
    pub limits: Vec<Limit>,
    /// Pairs that are faster than their hosts' others, where they are no few: what the others share may be slow.
    pub fast: Vec<(usize, usize)>,
    /// By host: its effect as a sender and as a receiver, as a share, positive if worse.
    pub effects: Vec<[Option<f64>; 2]>,
}

impl Survey {
    /// The number of suspects; `None` if none could be named.
    pub fn suspect_count(&self) -> Option<usize> {
        self.blind().is_none().then_some(self.suspects.len())
    }

    /// Why no suspect could be named. `None`: one was, or could have been.
    pub fn blind(&self) -> Option<&Limit> {
        let mut limits = self.limits.iter().filter(|_| self.suspects.is_empty());
        limits.find(|limit| matches!(limit, Limit::TooFewPairs { .. } | Limit::Noise { .. } | Limit::MostFailed { .. }))
    }
}

/// Noise below this share of the least effect counts as that much: nothing hangs on it, and values that are all alike
/// have no scale.
const LEAST_NOISE: f64 = 1.0 / 15.0;

/// Share of a suspect's effect that the best iterations must show.
const SHOWN_AT_BEST: f64 = 2.0 / 3.0;

/// Half of the speed: a survey that could not name a host or a link that slow tells nothing by naming none.
const HIDDEN: f64 = 0.5;

/// Share of the pairs from which on fast ones are told.
const FAST: f64 = 0.05;

/// Degrees of freedom below which nothing can be told from noise.
const LEAST_FREEDOM: f64 = 4.0;

/// Judges a matrix.
pub fn survey(matrix: &Matrix, rule: &Rule) -> Survey {
    let values = matrix.values();
    let overall = quantiles::median(&values);
    let mut survey = Survey {
        measured: values.len(),
        overall,
        spread: spread(&values),
        noise: None,
        suspects: Vec::new(),
        sensitivity: None,
        failed: matrix.pairs().filter(|p| p.2 == Cell::Failed).map(|p| (p.0, p.1)).collect(),
        disturbed: matrix.pairs().filter(|p| matches!(p.2, Cell::Disturbed(_))).map(|p| (p.0, p.1)).collect(),
        doubtful: Doubtful::default(),
        missing: missing(matrix),
        limits: Vec::new(),
        fast: Vec::new(),
        effects: vec![[None; 2]; matrix.len()],
    };
    match silent::find(matrix, &survey.failed) {
        Some(silent) => survey.suspects = silent,
        None => survey.limits.push(Limit::MostFailed { pairs: survey.failed.len() }),
    }
    let design = Design::new(matrix, |v| rule.scale(v));
    let factor = design.factor(None);
    let fit = design::fit(&design, factor.rank(), LEAST_NOISE * rule.least_effect);
    let Some(fit) = fit.filter(|fit| fit.freedom >= LEAST_FREEDOM) else {
        survey.limits.push(Limit::TooFewPairs { pairs: values.len() });
        return survey;
    };
    let mut found = suspects::find(&design, &factor, &fit, rule);
    // A slow link is slow at its best, too: one iteration at full speed shows that the others were disturbed.
    if let Some(bests) = matrix.bests(rule.better).filter(|_| !found.suspects.is_empty()) {
        let design = Design::new(&bests, |v| rule.scale(v));
        let factor = design.factor(None);
        let fit = design::fit(&design, factor.rank(), LEAST_NOISE * rule.least_effect);
        let of_bests = fit
            .as_ref()
            .map_or_else(Vec::new, |fit| suspects::find_at(rule.alpha, &design, &factor, fit, rule).suspects);
        let shows =
            |best: &Suspect, all: &Suspect| best.kind.agrees(all.kind) && best.worse >= SHOWN_AT_BEST * all.worse;
        let is_named = |suspect: &Suspect| of_bests.iter().any(|best| shows(best, suspect));
        let (named, rest): (Vec<_>, Vec<_>) = found.suspects.into_iter().partition(is_named);
        found.suspects = named;
        // The best of few iterations vary more than their medians: an effect of this size there refutes nothing.
        let at_best = |kind: Kind| fit.as_ref().and_then(|fit| suspects::effect(&design, fit, kind));
        let is_open = |suspect: &&Suspect| {
            at_best(suspect.kind).is_some_and(|effect| rule.share(effect) >= SHOWN_AT_BEST * suspect.worse)
        };
        let open: Vec<Kind> = rest.iter().filter(is_open).map(|suspect| suspect.kind).collect();
        let concerns = |from: usize, to: usize| open.iter().any(|kind| kind.concerns(from, to));
        survey.doubtful.at_best = matrix.tried().filter(|(from, to)| concerns(*from, *to)).collect();
    }
    survey.noise = Some(rule.share(fit.noise).abs());
    survey.suspects.extend(found.suspects);
    survey.doubtful.of_round = found.of_round;
    survey.sensitivity = found.sensitivity;
    // Half of the speed is twice the latency.
    let hidden = if rule.better == Better::Lower { 1.0 / HIDDEN - 1.0 } else { HIDDEN };
    if let Some(of) = survey.sensitivity.filter(|_| survey.suspects.is_empty()) {
        let hosts = of.host.is_some_and(|host| host > hidden);
        if hosts || of.link > hidden {
            survey.sensitivity = None;
            survey.limits.push(Limit::Noise { hosts });
        }
    }
    if found.fast.len() as f64 >= FAST * values.len() as f64 {
        survey.fast = found.fast;
    }
    let share = |column: Option<usize>| column.map(|c| rule.share(fit.beta[c]));
    survey.effects = design.effects.iter().map(|e| e.map(share)).collect();
    let taking_part = |host: usize| design.observations.iter().any(|o| o.from == host || o.to == host);
    let only_links =
        (0..matrix.len()).filter(|h| taking_part(*h) && design.effects[*h].iter().any(Option::is_none)).count();
    if design.columns == design.levels {
        survey.limits.push(Limit::OnlyLinks);
    } else if only_links > 0 {
        survey.limits.push(Limit::SomeOnlyLinks { hosts: only_links });
    }
    if design.levels > 1 {
        survey.limits.push(Limit::Groups { groups: design.levels });
    }
    if found.heavy_tail {
        survey.limits.push(Limit::HeavyTail);
    }
    survey
}

fn missing(matrix: &Matrix) -> Vec<(usize, usize)> {
    if !matrix.unmeasured().is_empty() {
        return matrix.unmeasured().to_vec();
    }
    let is_tried = |from, to| matrix.cell(from, to) != Cell::Missing;
    let all = matrix.len() * matrix.len().saturating_sub(1);
    let tried = matrix.pairs().filter(|p| p.2 != Cell::Missing).count();
    let either = |from: usize, to: usize| is_tried(from, to) || is_tried(to, from);
    let pairs = || matrix.pairs().map(|p| (p.0, p.1));
    if 2 * tried > all {
        return pairs().filter(|(from, to)| !is_tried(*from, *to)).collect();
    }
    let one_way = || pairs().filter(|(from, to)| from < to);
    if 4 * one_way().filter(|(from, to)| either(*from, *to)).count() > all {
        return one_way().filter(|(from, to)| !either(*from, *to)).collect();
    }
    Vec::new()
}

/// The spread of sorted values: (95th − 5th percentile) ÷ median. `None` without values.
pub fn spread(sorted: &[f64]) -> Option<f64> {
    let [low, middle, high] = [0.05, 0.5, 0.95].map(|q| quantiles::quantile(sorted, q));
    Some((high? - low?) / middle?).filter(|s| s.is_finite())
}

#[cfg(test)]
mod tests;
