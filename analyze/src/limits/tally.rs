//! The cause on which the iterations of a case agree, or the two ways of a test; and the lines below a table.

use super::{Limit, UNSEEN, ends::NAME_WIRE, evidence::AGREEMENT, judged};
use schemas::{
    columns::Row,
    metrics,
    text::counted,
    words::{LimitedBy, Way},
};

/// Counts the causes of a case's iterations.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By cause.
    causes: Vec<Iterations>,
}

/// The throughput and the answer of each iteration with a cause: one or more.
#[derive(Clone, Debug)]
struct Iterations(Vec<(f64, Limit)>);

impl Iterations {
    fn count(&self) -> usize {
        self.0.len()
    }

    /// The one in the middle.
    fn typical(&self) -> &(f64, Limit) {
        let mut order: Vec<_> = self.0.iter().collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        order[order.len() / 2]
    }

    fn by(&self) -> LimitedBy {
        self.0[0].1.by
    }

    /// Whether they are so far apart that no iteration is like their mean.
    fn scatter(&self) -> bool {
        let (middle, _) = self.typical();
        self.0.iter().any(|(value, _)| (value - middle).abs() > SCATTER * middle)
    }
}

/// Share of the middle throughput by which iterations may differ that are told by their mean.
const SCATTER: f64 = 0.1;

impl Tally {
    /// Adds an iteration, by its row.
    pub fn push(&mut self, row: &Row) {
        let Some(by) = row.limited_by else { return };
        let because = row.limited_because.clone().unwrap_or_default();
        let limit = Limit { by, ratio: row.limited_ratio, because };
        let value = row.throughput_bits_per_s.unwrap_or_default();
        match self.causes.iter_mut().find(|known| known.by() == by) {
            Some(Iterations(known)) => known.push((value, limit)),
            None => self.causes.push(Iterations(vec![(value, limit)])),
        }
    }

    /// The number of iterations, and the answer on which they agree.
    fn most(&self) -> Option<(usize, Option<&Iterations>)> {
        let total: usize = self.causes.iter().map(Iterations::count).sum();
        let weight = |of: &&Iterations| (of.count(), of.by() == LimitedBy::Path);
        let main = self.causes.iter().max_by_key(weight)?;
        let (agreeing, others): (Vec<_>, Vec<_>) = self.causes.iter().partition(|of| agree(of.by(), main.by()));
        let most: usize = agreeing.iter().map(|of| of.count()).sum();
        // BBR's estimate is the link's rate, which another iteration shows.
        let main = agreeing.into_iter().filter(|of| of.by() != LimitedBy::Bbr).max_by_key(weight).unwrap_or(main);
        let is_contradicted = others.iter().any(|of| of.by() != LimitedBy::Unknown);
        let (agreeing, needed) = (most as f64, total as f64 * AGREEMENT);
        let agree = agreeing > needed || (!is_contradicted && agreeing >= needed);
        Some((total, agree.then_some(main)))
    }

    /// `loss in 2 of 3 iterations, unknown in 1`
    fn counts(&self) -> String {
        let total: usize = self.causes.iter().map(Iterations::count).sum();
        let mut causes: Vec<&Iterations> = self.causes.iter().collect();
        causes.sort_by_key(|of| (of.by() == LimitedBy::Unknown, std::cmp::Reverse(of.count())));
        let counts = causes.iter().enumerate().map(|(i, of)| match i {
            0 => format!("{} in {} of {}", of.by(), of.count(), counted(total, "iteration")),
            _ => format!("{} in {}", of.by(), of.count()),
        });
        counts.collect::<Vec<_>>().join(", ")
    }

    /// The answer of over two thirds of the iterations, or of just two thirds if the others are `unknown`; else `unknown` with
    /// the counts. `mean` is a row with the mean of every number: the
    /// sentence is about it where it has the same cause and the iterations are alike, else about the iteration in the middle.
    #[must_use]
    pub fn limit(&self, mean: &Row) -> Option<Limit> {
        let (total, most) = self.most()?;
        let Some(main) = most else { return Some(Limit::unknown(self.counts())) };
        let (_, typical) = main.typical();
        let unseen = typical.because.split_once(UNSEEN).map_or("", |(_, unseen)| unseen);
        let of_means = (mean.direction != Some(Way::Both)).then(|| judged(mean, unseen)).flatten();
        let is_bbr = |by| by == LimitedBy::Bbr;
        let same = |by| agree(by, typical.by) && is_bbr(by) == is_bbr(typical.by);
        Some(of_means.filter(|limit| same(limit.by) && !main.scatter()).unwrap_or_else(|| {
            // The means show another cause than the iterations do, where these differ much.
            let because = if total == 1 {
                typical.because.clone()
            } else {
                format!("in a typical iteration, {}", typical.because)
            };
            Limit { because, ..typical.clone() }
        }))
    }
}

/// Whether two iterations have one cause. A full link reads as the wire where it carried all it can, as the path where the data
/// behind a lost segment came after the window, and as BBR where an end was too busy to tell.
fn agree(a: LimitedBy, b: LimitedBy) -> bool {
    let is_full_link = |by| matches!(by, LimitedBy::Path | LimitedBy::Wire | LimitedBy::Bbr);
    a == b || is_full_link(a) && is_full_link(b)
}

/// The cause on which iterations agree, else `unknown`; and how many of them had each.
#[must_use]
pub fn agreed(causes: impl Iterator<Item = LimitedBy>) -> Option<(LimitedBy, String)> {
    let mut tally = Tally::default();
    for by in causes {
        tally.push(&Row { limited_by: Some(by), ..Row::default() });
    }
    let (_, most) = tally.most()?;
    Some((most.map_or(LimitedBy::Unknown, Iterations::by), tally.counts()))
}

/// The answer for both ways of a test together: that of each, if they agree.
#[must_use]
pub fn both_ways(forward: &Limit, reverse: &Limit) -> Limit {
    if forward.by == reverse.by && forward.by != LimitedBy::Unknown {
        let ratio = forward.ratio.zip(reverse.ratio).map(|(a, b)| f64::midpoint(a, b));
        return Limit { by: forward.by, ratio, because: format!("both ways; upload, {}", forward.because) };
    }
    Limit::unknown(format!("upload {}, download {}", forward.by, reverse.by))
}

// The lines below a table: a sentence for each answer with its cases, or of many cases the causes with the cases.

/// Most cases that have a line of their own.
const MOST_LINES: usize = 12;

/// Cases of a cause that are named; of more, their number.
const NAMED: usize = 4;

/// The lines for these rows, of which each has its name for people. A row about one way is left out beside that about both, unless
/// the ways do not agree: then each has its own. So is a probe of the latency beside a load: its path's length is its result, and nothing that it could be rid of.
#[must_use]
pub fn lines<'a>(rows: impl Iterator<Item = (String, &'a Row)>) -> Vec<String> {
    let all: Vec<(String, &Row)> = rows.collect();
    let is_whole = |row: &Row| row.direction == Some(Way::Both);
    let has_other = |row: &Row, is_it: &dyn Fn(&Row) -> bool| {
        let same = |other: &Row| other.case_id == row.case_id && other.case == row.case && other.member == row.member;
        all.iter().any(|(_, other)| same(other) && is_whole(other) != is_whole(row) && is_it(other))
    };
    let is_known = |row: &Row| row.limited_by.is_some_and(|by| by != LimitedBy::Unknown);
    // The row of a group's total, which is about both ways too, has no parts of its own.
    let is_told_by_others = |row: &Row| {
        if is_whole(row) {
            !is_known(row) && has_other(row, &|part| part.limited_by.is_some())
        } else {
            has_other(row, &is_known)
        }
    };
    let told = all.iter().filter(|(_, row)| !is_told_by_others(row) && !metrics::is_beside_load(row));
    let name_of = |name: &String, row: &Row| match row.direction {
        Some(way) if !is_whole(row) && has_other(row, &|_| true) => format!("{name} ({way})"),
        _ => name.clone(),
    };
    let told: Vec<(String, LimitedBy, &str)> = told
        .filter_map(|(name, row)| {
            Some((name_of(name, row), row.limited_by?, row.limited_because.as_deref().unwrap_or("")))
        })
        .collect();
    let told: Vec<(&str, LimitedBy, &str)> = told.iter().map(|(name, by, because)| (&**name, *by, *because)).collect();
    // The place of the queue is an answer of its own, and so are the delays of the two directions, and outages.
    let queues = all.iter().flat_map(|(name, row)| {
        let answers = [&row.queue_hop_because, &row.one_way_because, &row.outage_because];
        answers.into_iter().flatten().map(move |because| format!("{name}: {because}"))
    });
    if told.len() > MOST_LINES {
        return by_cause(&told).into_iter().chain(queues.take(MOST_LINES)).collect();
    }
    // Probes at the same rate all have the same answer.
    let mut answers: Vec<(Vec<&str>, LimitedBy, &str)> = Vec::new();
    for (name, by, because) in told {
        match answers.iter_mut().find(|(_, known, why)| (*known, *why) == (by, because)) {
            Some((names, ..)) => names.push(name),
            None => answers.push((vec![name], by, because)),
        }
    }
    let mut has_advice = false;
    let limits = answers.iter().map(|(names, by, because)| {
        format!("{}: {}{}", names.join(", "), intro(*by), advised_once(because, &mut has_advice))
    });
    limits.chain(queues.take(MOST_LINES)).collect()
}

/// An answer without the advice to name the wire if one before it had that.
#[must_use]
pub fn advised_once<'a>(because: &'a str, has_advice: &mut bool) -> &'a str {
    match because.strip_suffix(NAME_WIRE) {
        Some(bare) if std::mem::replace(has_advice, true) => bare,
        _ => because,
    }
}

/// `limited by wire: `
#[must_use]
pub fn intro(by: LimitedBy) -> String {
    match by {
        LimitedBy::Unknown => "limit unknown: ".to_owned(),
        by => format!("limited by {by}: "),
    }
}

/// A line per cause, the one of most cases first.
fn by_cause(told: &[(&str, LimitedBy, &str)]) -> Vec<String> {
    let of = |cause| told.iter().filter(move |(_, by, _)| *by == cause).map(|(name, ..)| *name);
    let mut causes: Vec<LimitedBy> =
        LimitedBy::ALL.iter().copied().filter(|cause| of(*cause).next().is_some()).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(of(*cause).count()));
    let line = |cause: LimitedBy| {
        let names: Vec<&str> = of(cause).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{}{}{more}", intro(cause), names[..names.len().min(NAMED)].join(", "))
    };
    let mut lines: Vec<String> = causes.into_iter().map(line).collect();
    lines.extend(lines.last().map(|_| "the column `limited_because` has the evidence of each".to_owned()));
    lines
}
