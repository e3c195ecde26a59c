//! The words for a search and its answer.

use schemas::{
    columns::Row,
    text::counted,
    units::{Unit, human},
    words::Search as Finding,
};

use super::{
    Answer, Known, Search,
    posterior::{Carried, EDGE_S},
};
use crate::plan::model::FindBy;

impl Search {
    /// A load in words.
    pub fn words(&self, load: f64) -> String {
        match self.find.by {
            FindBy::Inflight => format!("{load} in flight"),
            FindBy::Rate => human(if self.find.bits { Unit::BitsPerSecond } else { Unit::PerSecond }, load),
        }
    }

    /// The interval of the limit for the display: `500 Mbit/s … 900 Mbit/s`.
    pub fn range(&self) -> String {
        let answer = self.so_far();
        let words = |load: Option<f64>| load.map_or_else(|| "?".to_owned(), |load| self.words(load));
        format!("{} … {}", words(answer.held), words(answer.above))
    }

    /// Names the queue, if that is all that speaks against the load above the answer.
    fn queue(&self, above: Option<&Known>) -> String {
        let is_lossless = |k: &&Known| k.done.iter().flat_map(|d| &d.measured).all(|(.., row)| self.is_bound_kept(row));
        let above = above.filter(is_lossless).filter(|k| k.queued > 0.0);
        above.map_or_else(String::new, |k| {
            format!(", where a queue took in {} of what was sent", human(Unit::Ratio, k.queued))
        })
    }

    fn is_bound_kept(&self, row: &Row) -> bool {
        self.judge(row.number(self.find.metric.column), Carried::WHOLE, row.elapsed_s) == Finding::Held
    }

    /// A remark, if the windows are too short for the precision asked for. One that a stall cut short says nothing of the
    /// others.
    fn blur(&self) -> String {
        let rows = || self.known.iter().flat_map(|k| &k.done).flat_map(|d| &d.measured).map(|(.., row)| row);
        let longest = rows().filter_map(|row| row.elapsed_s).reduce(f64::max);
        let finest = |window_s: f64| 2.0 * EDGE_S / window_s;
        match longest.map(finest) {
            Some(finest) if self.find.by == FindBy::Rate && finest > self.find.within => format!(
                "; windows this short show a queue of {} only, not the {} asked for: `duration: {}` would",
                human(Unit::Ratio, finest),
                human(Unit::Ratio, self.find.within),
                human(Unit::Seconds, 2.0 * EDGE_S / self.find.within)
            ),
            _ => String::new(),
        }
    }

    /// A load, with the number of its probes that held, if they disagree, and of those that did not offer it.
    fn with_doubts(&self, known: Option<&Known>) -> String {
        let Some(known) = known else { return String::new() };
        let (load, held, n) = (self.words(known.load), known.count(Finding::Held), known.findings.len());
        let mut doubts = Vec::new();
        if held > 0 && held < n {
            doubts.push(format!("held in {held} of {n} probes"));
        }
        let unreached = known.count(Finding::Unreached);
        if unreached > 0 && !known.is_unreached() {
            doubts.push(format!("not offered in {unreached}"));
        }
        if doubts.is_empty() { load } else { format!("{load} ({})", doubts.join(", ")) }
    }

    /// `only 470 Mbit/s (94.0 %) of 500 Mbit/s`: the most of a load that any of its probes offered.
    fn reached(&self, known: Option<&Known>) -> String {
        let of = |k: &Known| {
            let (reached, load) = (self.words(k.load * k.reached), self.with_doubts(Some(k)));
            format!("only {reached} ({}) of {load}", human(Unit::Ratio, k.reached))
        };
        known.map_or_else(String::new, of)
    }

    /// The answer as a sentence.
    pub fn sentence(&self, name: &str, answer: &Answer) -> String {
        let bound = self.find.bound();
        let known = |load: Option<f64>| load.and_then(|load| self.at(load));
        let (of_held, of_above) = (known(answer.held), known(answer.above));
        let (held, above) = (self.with_doubts(of_held), self.with_doubts(of_above));
        let said = match (answer.outcome, answer.held, answer.above) {
            (Finding::Found, ..) => {
                format!("{bound} {} {held}, not at {above}{}", Finding::HOLDS, self.queue(of_above))
            }
            (Finding::AtLeast, ..) => {
                format!("{bound} holds at {held}, the highest load of the search: the limit is at least that")
            }
            (Finding::Unreached, Some(_), _) => {
                format!(
                    "{bound} holds up to {held}; {} was offered, so what ends there is the sender: the limit is at least \
                     {held}",
                    self.reached(of_above)
                )
            }
            (Finding::Unreached, None, _) => {
                format!("{}, the lowest load, was offered: nothing is known of {bound}", self.reached(of_above))
            }
            (Finding::Nothing, ..) => format!("{bound} does not hold even at {above}, the lowest load of the search"),
            // Still open.
            (_, Some(_), Some(_)) => {
                format!("ended before the limit was known closely: {bound} holds up to {held}, not at {above}")
            }
            (_, Some(_), None) => format!("ended before a limit was seen: {bound} holds up to {held}"),
            (_, None, Some(_)) => {
                format!("ended early: {bound} does not hold at {above}, and no load is known to hold")
            }
            (_, None, None) => format!("ended before anything was known of {bound}"),
        };
        let said = format!("{said}{}", self.blur());
        format!("case {name}: {said} ({})", counted(self.probes(), "probe"))
    }
}
