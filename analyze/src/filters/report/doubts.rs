//! Reasons to doubt: rows that did not count, variation that an interval does not show, and every note
//! of the run. Each once, with the cases it is about.

use crate::{
    cases::{Case, Cases, by_status},
    stats::{quantiles, series},
};
use indexmap::{IndexMap, IndexSet};
use schemas::{
    run_record::{Discarded, RunRecord},
    units,
    words::{Search, Status},
};
use std::collections::BTreeSet;

/// Cases that are named; of more, their number.
const NAMED: usize = 3;

/// Reasons that are named for tries that were left out; of more, their number.
const REASONS: usize = 3;

#[derive(Default)]
pub struct Doubts {
    /// Sentences, each with the cases it is about.
    sentences: IndexMap<String, IndexSet<String>>,
    /// Cases, each with a reason that a sentence names for tries of it that were discarded.
    discarded: Vec<(String, String)>,
}

impl Doubts {
    pub fn add(&mut self, sentence: impl Into<String>) {
        self.about(sentence, None);
    }

    fn about(&mut self, sentence: impl Into<String>, case: Option<&str>) {
        self.sentences.entry(sentence.into()).or_default().extend(case.map(str::to_owned));
    }

    pub fn append(&mut self, later: Self) {
        self.discarded.extend(later.discarded);
        for (sentence, cases) in later.sentences {
            self.sentences.entry(sentence).or_default().extend(cases);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sentences.is_empty()
    }

    /// With the cases behind each sentence. `all` has the names of all cases, and those with members and directions.
    pub fn sentences(self, all: [&BTreeSet<&str>; 2]) -> Vec<String> {
        let whole = |cases: &IndexSet<String>| {
            all.iter().any(|all| **all == cases.iter().map(String::as_str).collect::<BTreeSet<_>>())
        };
        let with_cases = |(sentence, cases): (String, IndexSet<String>)| match cases.len() {
            0 => sentence,
            2.. if whole(&cases) => format!("{sentence} (all cases)"),
            1..=NAMED => format!("{sentence} ({})", Vec::from_iter(cases).join(", ")),
            n => format!("{sentence} ({n} cases, first {})", cases[0]),
        };
        self.sentences.into_iter().map(with_cases).collect()
    }

    /// Iterations that do not count, with their reasons.
    pub fn left_out(&mut self, cases: &Cases) {
        for ((case, status), (count, reasons)) in by_status(&cases.list) {
            let (what, plural) = match status {
                Status::Ok => continue,
                Status::Discarded => ("try", "tries"),
                _ => ("iteration", "iterations"),
            };
            let what = if count == 1 { what } else { plural };
            let word = match status {
                Status::Confirm => "measured again to confirm a verdict, which only that verdict counts".to_owned(),
                Status::Timeout => "timed out".to_owned(),
                other => other.to_string(),
            };
            let (named, others) = reasons.split_at(reasons.len().min(REASONS));
            let others = match others.len() {
                0 => String::new(),
                1 => "; and one other reason".to_owned(),
                n => format!("; and {n} other reasons"),
            };
            let why = if named.is_empty() { others } else { format!(": {}{others}", named.join("; ")) };
            if status == Status::Discarded {
                self.discarded.extend(named.iter().map(|reason| (case.clone(), reason.clone())));
            }
            self.add(format!("{case}: {count} {what} {word}{why}"));
        }
    }

    /// Adds objections to the intervals that the values themselves raise.
    pub fn values(&mut self, cases: &[Case]) {
        let single = |c: &&Case| c.count() == 1;
        let counted = cases.iter().filter(|c| c.count() > 0).count();
        for case in cases.iter().filter(single).filter(|c| c.searched().is_none()) {
            self.about("one iteration: nothing is known of its variation", Some(&case.label));
        }
        if counted == 0 {
            return;
        }
        for case in cases {
            let Some(metric) = case.headline() else { continue };
            let values = case.values(metric);
            if series::correlated(&values) {
                self.about("iterations are serially correlated: the interval is too narrow", Some(&case.label));
            }
            if let Some(drift) = series::drifting(&values) {
                self.add(format!("{}: drifts by {} over the iterations", case.label, units::margin(drift.ratio)));
            }
            match quantiles::severe_outliers(&values) {
                0 => {}
                1 => self.about(
                    "one iteration differs much from the others (a severe outlier), and counts like them",
                    Some(&case.label),
                ),
                n => self.add(format!(
                    "{}: {n} iterations differ much from the others (severe outliers), and count like them",
                    case.label
                )),
            }
            let Some(summary) = &case.summary else { continue };
            if let (Some(false), Some(reached), Some(goal)) =
                (summary.confident, summary.margin_ratio, summary.margin_goal_ratio)
            {
                let [reached, goal] = [reached, goal].map(units::margin);
                self.add(format!("{}: the margin is {reached}, asked for were {goal}", case.label));
            }
            if summary.settled == Some(false) {
                self.about("the load had not settled when the warm-up ended", Some(&case.label));
            }
        }
    }

    /// Whether a note is about a discarded try that `left_out` counted, and for a reason that it named.
    fn has_discarded(&self, note: &str) -> bool {
        let told = |note: Discarded<'_>| self.discarded.iter().any(|(c, r)| c == note.case && r == note.reason);
        Discarded::read(note).is_some_and(told)
    }

    /// The run's notes, and what was unusual about it. Notes that say again what the page has elsewhere are left out.
    pub fn run(&mut self, facts: &RunRecord, cases: &[Case]) {
        for plan in &facts.plans {
            if plan.partial {
                self.add("only some of the plan's cases were run (--only)");
            }
            plan.warnings.iter().for_each(|warning| self.add(format!("the plan: {warning}")));
        }
        if !facts.resumed.is_empty() {
            self.add(format!("the run was interrupted and resumed ({})", facts.resumed.join(", ")));
        }
        for case in &facts.unfinished {
            let done = match (case.iterations, case.of) {
                (0, _) => "was not measured".to_owned(),
                (n, 0) => format!("was cut short after {n} probes"),
                (n, of) => format!("was cut short after {n} of {of} iterations"),
            };
            self.add(format!("{} {done}: {}", case.case, case.reason));
        }
        let surveys: BTreeSet<&str> = cases.iter().filter(|case| case.is_pair()).map(Case::test).collect();
        // The page has the surveys themselves.
        let is_survey = |note: &str| surveys.iter().any(|test| note.starts_with(&format!("survey {test}")));
        for note in facts.notes.iter().filter(|note| !is_survey(note)) {
            if !self.has_discarded(note) && !cases.iter().any(|case| is_answer(note, case)) {
                self.add(note);
            }
        }
        for (id, case) in &facts.cases {
            let name = if case.case.is_empty() { id } else { &case.case };
            for note in case.notes.iter().flatten() {
                self.about(note, Some(name));
            }
        }
    }
}

/// Whether a note is the whole answer of a search that found its limit, which the page begins with.
fn is_answer(note: &str, case: &Case) -> bool {
    let about = note.strip_prefix("case ").and_then(|note| note.strip_prefix(case.label.as_str()));
    let found = case.searched() == Some(Search::Found.sentence());
    found && about.is_some_and(|rest| rest.starts_with(": ") && rest.contains(Search::HOLDS) && !rest.contains("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_said_once_with_their_cases() {
        let facts: RunRecord = serde_json::from_value(serde_json::json!({
            "notes": ["x", "the two ends share this machine"],
            "plans": [{"warnings": ["lab.yaml:3: short"], "partial": true}],
            "cases": {
                "c1": {"case": "a", "notes": ["slow clock", "x"]},
                "c2": {"case": "b", "notes": ["slow clock"]},
            },
        }))
        .unwrap();
        let mut doubts = Doubts::default();
        doubts.run(&facts, &[]);
        let all = BTreeSet::from(["a", "b"]);
        assert_eq!(
            doubts.sentences([&all, &all]),
            [
                "only some of the plan's cases were run (--only)",
                "the plan: lab.yaml:3: short",
                "x (a)",
                "the two ends share this machine",
                "slow clock (all cases)"
            ]
        );
        assert!(Doubts::default().is_empty());
    }

    #[test]
    fn a_discarded_try_is_told_once() {
        let note = |case, reason| Discarded { case, iteration: 3, reason, next: "1 of 2" }.to_string();
        let notes = [note("idle", "late"), note("idle", "lost"), note("idle", "e"), note("up", "late")];
        let facts: RunRecord = serde_json::from_value(serde_json::json!({"notes": notes})).unwrap();
        let discarded = |case: &str, reason: &str| format!("run,{case},iteration,1,discarded,{reason}\n");
        let mut rows = String::from("run_id,case,record,iteration,status,error\n");
        for reason in ["late", "late", "lost", "c", "d", "e"] {
            rows.push_str(&discarded("idle", reason));
        }
        let mut table = crate::table::Table::from_text("t", rows.as_str()).unwrap();
        let mut doubts = Doubts::default();
        doubts.left_out(&Cases::read(&mut table).unwrap());
        doubts.run(&facts, &[]);
        let none = BTreeSet::new();
        assert_eq!(
            doubts.sentences([&none, &none]),
            [
                "idle: 6 tries discarded: late; lost; c; and 2 other reasons",
                // A reason that the count does not name stays a note.
                &note("idle", "e")[..],
                &note("up", "late")[..]
            ]
        );
    }
}
