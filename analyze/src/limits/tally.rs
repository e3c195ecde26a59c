//! The cause on which the iterations of a case agree, or the two ways of a test.

use schemas::{
    columns::Row,
    words::{LimitedBy, Way},
};

use super::{Limit, UNSEEN, judged, thresholds::AGREEMENT};

/// Counts the causes of a case's iterations.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Each cause with its iterations, and the last answer that named it.
    causes: Vec<(u32, Limit)>,
}

impl Tally {
    /// Adds an iteration, by its row.
    pub fn push(&mut self, row: &Row) {
        let Some(by) = row.limited_by else { return };
        let because = row.limited_because.clone().unwrap_or_default();
        let limit = Limit { by, ratio: row.limited_ratio, because };
        match self.causes.iter_mut().find(|(_, known)| known.by == by) {
            Some((count, last)) => (*count, *last) = (*count + 1, limit),
            None => self.causes.push((1, limit)),
        }
    }

    /// The number of iterations, and the answer on which they agree.
    fn most(&self) -> Option<(u32, Option<&Limit>)> {
        let total: u32 = self.causes.iter().map(|(count, _)| count).sum();
        let (most, last) = self.causes.iter().max_by_key(|(count, _)| *count)?;
        let is_contradicted =
            self.causes.iter().any(|(_, limit)| limit.by != last.by && limit.by != LimitedBy::Unknown);
        let (agreeing, needed) = (f64::from(*most), f64::from(total) * AGREEMENT);
        let agree = agreeing > needed || (!is_contradicted && agreeing >= needed);
        Some((total, agree.then_some(last)))
    }

    /// `loss in 2 of 3 iterations, unknown in 1`
    fn counts(&self) -> String {
        let total: u32 = self.causes.iter().map(|(count, _)| count).sum();
        let mut causes: Vec<&(u32, Limit)> = self.causes.iter().collect();
        causes.sort_by_key(|(count, limit)| (limit.by == LimitedBy::Unknown, std::cmp::Reverse(*count)));
        let counts = causes.iter().enumerate().map(|(i, (count, limit))| match i {
            0 => format!("{} in {count} of {total} iteration{}", limit.by, if total == 1 { "" } else { "s" }),
            _ => format!("{} in {count}", limit.by),
        });
        counts.collect::<Vec<_>>().join(", ")
    }

    /// The answer of over two thirds of the iterations, or of just two thirds if the others are `unknown`; else `unknown` with
    /// the counts. `mean` is a row with the mean of every number: the
    /// sentence is about it where it has the same cause.
    #[must_use]
    pub fn limit(&self, mean: &Row) -> Option<Limit> {
        let (total, most) = self.most()?;
        let Some(last) = most else { return Some(Limit::unknown(self.counts())) };
        let unseen = last.because.split_once(UNSEEN).map_or("", |(_, unseen)| unseen);
        let of_means = (mean.direction != Some(Way::Both)).then(|| judged(mean, unseen)).flatten();
        Some(of_means.filter(|limit| limit.by == last.by).unwrap_or_else(|| {
            // The means show another cause than the iterations do, where these differ much.
            let because = if total == 1 { last.because.clone() } else { format!("in one iteration, {}", last.because) };
            Limit { because, ..last.clone() }
        }))
    }
}

/// The cause on which iterations agree, else `unknown`; and how many of them had each.
#[must_use]
pub fn agreed(causes: impl Iterator<Item = LimitedBy>) -> Option<(LimitedBy, String)> {
    let mut tally = Tally::default();
    for by in causes {
        tally.push(&Row { limited_by: Some(by), ..Row::default() });
    }
    let (_, most) = tally.most()?;
    Some((most.map_or(LimitedBy::Unknown, |limit| limit.by), tally.counts()))
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
