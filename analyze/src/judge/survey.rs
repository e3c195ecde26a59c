//! Judges the figures of a survey of pairs: `suspects` and `spread`.

use super::{
    Judgement, Origin,
    samples::{Case, Observation},
};
use crate::{
    first_few, limits,
    survey::{self, Cell, Ends, Limit, Matrix, Rule},
};
use schemas::{
    assertion::Assertion,
    metrics::{Family, Metric},
    text::counted,
    words::{Verdict, Way},
};

/// Suspects that a verdict names.
const MOST_NAMED: usize = 8;

/// A survey, judged.
#[derive(Clone, Debug)]
pub struct Surveyed {
    matrix: Matrix,
    found: survey::Survey,
    metric: &'static Metric,
    ends: Ends,
}

impl Surveyed {
    /// Judges pairs, of which each case has one, by a metric whose values are in this place.
    pub fn of<'a>(cases: &[&'a Case], metric: &'static Metric, place: Option<usize>) -> Self {
        let is_stream = cases.first().is_some_and(|case| case.family == Family::Stream);
        let ends = if is_stream { Ends::Stream } else { Ends::Request };
        let observed = |case: &'a Case| place.into_iter().flat_map(move |m| case.observed(m));
        let cases = cases.iter().copied();
        let cpu_taken = cases.clone().flat_map(observed).filter_map(|(_, row)| row.cpu_taken);
        let is_disturbed = &limits::disturbed(cpu_taken.collect());
        // In the reverse direction `to` sends.
        let ordered = |case: &'a Case| {
            let Origin { from, to, .. } = &case.origin;
            if case.way() == Way::Reverse && ends == Ends::Stream { (to, from) } else { (from, to) }
        };
        let rounds = cases.clone().filter_map(|case| {
            let (from, to) = ordered(case);
            Some((from, to, case.origin.round?))
        });
        let values = cases.clone().flat_map(|case| {
            let cell = |(value, row): (f64, &Observation)| {
                if row.cpu_taken.is_some_and(is_disturbed) { Cell::Disturbed(value) } else { Cell::Value(value) }
            };
            let mut cells: Vec<Cell> = observed(case).map(cell).collect();
            // A row without a value says as much as a failure. A pair without a row was not measured.
            if case.failed.is_some() || cells.is_empty() {
                let is_failed = case.failed.is_some() || !case.rows.is_empty();
                cells.push(if is_failed { Cell::Failed } else { Cell::Missing });
            }
            let (from, to) = ordered(case);
            cells.into_iter().map(move |cell| (from, to, cell))
        });
        let matrix = Matrix::of(values).in_rounds(rounds);
        let found = survey::survey(&matrix, &Rule::new(metric.better));
        Self { matrix, found, metric, ends }
    }

    /// `56 of 56 pairs · median 47.9 Mbit/s · spread 1.2 % · no suspects`
    pub fn summary(&self) -> String {
        let human = |value| schemas::units::human(self.metric.unit, value);
        let found = &self.found;
        let asked = found.measured + found.disturbed.len() + found.failed.len() + self.matrix.unmeasured().len();
        let doubtful = found.doubtful.kinds().into_iter().filter(|(pairs, ..)| !pairs.is_empty());
        let suspects = found.none_named().map_or_else(|| counted(found.suspects.len(), "suspect"), str::to_owned);
        [
            Some(format!("{} of {asked} pairs", found.measured)),
            found.overall.map(|median| format!("median {}", human(median))),
            found.spread.map(|spread| format!("spread {}", survey::percent(spread))),
            (!found.disturbed.is_empty()).then(|| format!("{} disturbed", found.disturbed.len())),
        ]
        .into_iter()
        .flatten()
        .chain(doubtful.map(|(pairs, words, _)| format!("{} {words}", pairs.len())))
        .chain([suspects])
        .collect::<Vec<_>>()
        .join(" · ")
    }

    /// Its table and what it tells.
    pub fn text<'a>(&'a self, name: &'a str) -> survey::Text<'a> {
        survey::Text { name, metric: self.metric, ends: self.ends, matrix: &self.matrix, found: &self.found }
    }

    /// A sentence for each suspect.
    pub fn suspects(&self) -> Vec<String> {
        self.found.sentences(self.matrix.hosts(), self.metric.better, self.ends)
    }

    /// Judges a figure. What holds for the measured pairs alone is inconclusive where others failed.
    pub fn judge(&self, assertion: &Assertion) -> Judgement {
        let is_spread = assertion.metric.name == "spread";
        let observed = if is_spread { self.found.spread } else { self.found.suspect_count().map(|count| count as f64) };
        let holds = observed.map(|observed| assertion.operator.holds(observed, assertion.limit));
        // A spread has what slowed them in it.
        let doubtful = self.found.doubtful.kinds().into_iter().filter(|_| !is_spread);
        let unknown: Vec<(&[(usize, usize)], &str)> = [
            (&self.found.failed[..], "without a value"),
            (&self.found.disturbed, "disturbed"),
            (self.matrix.unmeasured(), "not measured"),
        ]
        .into_iter()
        .chain(doubtful.map(|(pairs, words, _)| (pairs, words)))
        .filter(|(pairs, _)| !pairs.is_empty())
        .collect();
        let mut reasons: Vec<String> = Vec::new();
        let verdict = match holds {
            _ if self.found.measured == 0 && self.found.disturbed.is_empty() => {
                reasons.push("no pair has a value".to_owned());
                Verdict::Fail
            }
            None => {
                reasons.extend(self.found.blind().map(Limit::sentence));
                Verdict::Inconclusive
            }
            Some(true) if !unknown.is_empty() => {
                reasons.extend(unknown.iter().map(|(pairs, words)| {
                    let list = survey::pairs(self.matrix.hosts(), pairs, MOST_NAMED);
                    format!("{} {words}: {list}", counted(pairs.len(), "pair"))
                }));
                Verdict::Inconclusive
            }
            Some(true) => Verdict::Pass,
            Some(false) => Verdict::Fail,
        };
        if verdict != Verdict::Pass {
            reasons.extend(first_few(self.suspects().into_iter(), MOST_NAMED));
        }
        let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        Judgement { observed, reason, ..Judgement::of(verdict, self.found.measured) }
    }
}

#[cfg(test)]
mod tests {
    use schemas::{assertion::parse, metrics};

    use super::*;
    use crate::judge::samples::Key;

    /// A pair that failed without a value.
    fn pair(from: &str, to: &str, value: Option<f64>) -> Case {
        let mut pair = Case::of(Key::default(), String::new(), Family::Stream, 1);
        (pair.origin.from, pair.origin.to) = (from.to_owned(), to.to_owned());
        pair.put(0, value);
        pair.rows.push(Observation::default());
        pair
    }

    fn surveyed(pairs: &[Case]) -> Surveyed {
        Surveyed::of(&pairs.iter().collect::<Vec<_>>(), metrics::find("throughput").unwrap(), Some(0))
    }

    /// Eight hosts at about 100, without the values of some pairs; what `n3` sends is a fifth slower.
    fn fabric(is_slow: bool, failed: &[(u32, u32)]) -> Surveyed {
        let value = |from: u32, to: u32| {
            let noise = f64::from((from * 5 + to * 3) % 7) / 10.0;
            if is_slow && from == 3 { 80.0 + noise } else { 100.0 + noise }
        };
        let pair = |from: u32, to: u32| {
            let is_failed = failed.contains(&(from, to));
            pair(&format!("n{from}"), &format!("n{to}"), (!is_failed).then(|| value(from, to)))
        };
        let all = (1..=8).flat_map(|from| (1..=8).filter(move |to| *to != from).map(move |to| (from, to)));
        surveyed(&all.map(|(from, to)| pair(from, to)).collect::<Vec<_>>())
    }

    fn judged(text: &str, fabric: &Surveyed) -> (Verdict, String) {
        let judgement = fabric.judge(&parse(text).unwrap());
        (judgement.verdict, judgement.reason.unwrap_or_default())
    }

    #[test]
    fn a_verdict_names_the_suspects() {
        let slow = fabric(true, &[]);
        let (verdict, reason) = judged("suspects == 0", &slow);
        assert_eq!(verdict, Verdict::Fail);
        assert!(reason.starts_with("n3 is slow as a sender"), "{reason}");
        assert_eq!(judged("spread < 5%", &slow).0, Verdict::Fail);
        assert!(slow.summary().starts_with("56 of 56 pairs · median 100 bit/s · spread "), "{}", slow.summary());
        let healthy = fabric(false, &[]);
        assert_eq!(judged("suspects == 0", &healthy), (Verdict::Pass, String::new()));
        assert_eq!(judged("spread < 5%", &healthy).0, Verdict::Pass);
        assert!(healthy.summary().ends_with("no suspects"));
    }

    #[test]
    fn a_survey_with_holes_proves_nothing_good() {
        let (verdict, reason) = judged("suspects == 0", &fabric(false, &[(1, 2), (2, 1)]));
        assert_eq!((verdict, reason.as_str()), (Verdict::Inconclusive, "2 pairs without a value: n1>n2, n2>n1"));
        assert_eq!(judged("suspects == 0", &fabric(true, &[(1, 2)])).0, Verdict::Fail);
        assert_eq!(judged("suspects == 0", &surveyed(&[])).0, Verdict::Fail);
        let round = |from: u32, to: u32| u64::from(from + to) % 8;
        let all = (1..=8).flat_map(|from| (1..=8).filter(move |to| *to != from).map(move |to| (from, to)));
        let of_round = all.map(|(from, to)| {
            let value = if round(from, to) == 5 { 95.0 } else { 100.0 } + f64::from((from * 5 + to * 3) % 7) / 10.0;
            let mut pair = pair(&format!("n{from}"), &format!("n{to}"), Some(value));
            pair.origin.round = Some(round(from, to));
            pair
        });
        let of_round = surveyed(&of_round.collect::<Vec<_>>());
        let (verdict, reason) = judged("suspects == 0", &of_round);
        assert_eq!(verdict, Verdict::Inconclusive, "{reason}");
        assert_eq!(judged("spread < 10%", &of_round).0, Verdict::Pass, "the spread has them in it");
        assert!(of_round.summary().ends_with(" slower with the whole round · no suspects"), "{}", of_round.summary());
        assert!(reason.contains(" pairs slower with the whole round: "), "{reason}");
        let few = surveyed(&[pair("a", "b", Some(1e9)), pair("b", "a", Some(1e9))]);
        assert_eq!(judged("suspects == 0", &few).0, Verdict::Inconclusive);
    }
}
