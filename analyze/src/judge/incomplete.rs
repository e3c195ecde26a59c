//! What a run was to measure and did not. Its values may be right, and still they are no success.

use indexmap::IndexMap;
use schemas::{run_record::RunRecord, text::counted};
use std::collections::HashSet;

use super::samples::Case;
use crate::{error::Verdict, first_few};

/// Names of cases that a sentence has.
const MOST_NAMED: usize = 6;

/// Sentences about a run that was cut off (but for a timer's signal, which is a way to end it), and about its failed cases.
pub fn sentences<'a>(
    records: impl IntoIterator<Item = &'a RunRecord>,
    cases: impl Iterator<Item = &'a Case> + Clone,
) -> Vec<String> {
    let failed = cases.clone().filter_map(|case| Some((&*case.name, case.failed.as_deref()?)));
    let failed = failed_of(cases.map(|case| &*case.name), failed);
    records.into_iter().filter(|record| record.is_cut_off()).filter_map(of_run).chain(failed).collect()
}

/// A sentence about a run that ended early, which names its cases that were not measured to their end.
pub fn of_run(record: &RunRecord) -> Option<String> {
    let names = first_few(record.unfinished.iter().map(|open| open.case.clone()), MOST_NAMED).join(", ");
    let names = if names.is_empty() { names } else { format!(": {names}") };
    Some(format!("{}{names}.", cut_short(record)?))
}

/// Exit code 3 where something was not measured, unless something failed.
pub fn outcome(verdict: Verdict, sentences: &[String]) -> Verdict {
    match verdict {
        Verdict::Ok | Verdict::Inconclusive if !sentences.is_empty() => Verdict::Exit(3),
        other => other,
    }
}

/// A sentence about a run that ended early, and not by a timer's signal.
pub fn cut_off<F, C>(record: &RunRecord<F, C>) -> Option<String> {
    Some(cut_short(record).filter(|_| record.is_cut_off())? + ".")
}

/// Why the run ended early; `None` if it ended by itself.
pub fn cut_short<F, C>(record: &RunRecord<F, C>) -> Option<String> {
    let how = match (&record.interrupted, &record.ended) {
        (Some(signal), _) => format!("The run was interrupted ({signal})"),
        (None, None) if !record.began.is_empty() => "The run has not ended, or it crashed".to_owned(),
        _ => return None,
    };
    Some(match record.unfinished.len() {
        0 => how,
        1 => format!("{how}; 1 case was not measured to its end"),
        n => format!("{how}; {n} cases were not measured to their end"),
    })
}

/// `1 of 8 cases failed: loaded (the members started too far apart).` From the names of all cases, and those of failed ones with
/// the reason; a name may come several times.
pub fn failed_of<'a>(
    all: impl Iterator<Item = &'a str>,
    failed: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    let mut reasons: IndexMap<&str, &str> = IndexMap::new();
    for (name, why) in failed {
        reasons.entry(name).or_insert(why);
    }
    let (first, _) = reasons.first()?;
    let why = reasons.values().find(|why| !why.is_empty()).map(|why| format!(" ({why})")).unwrap_or_default();
    let more = if reasons.len() > 1 { format!(" and {} more", reasons.len() - 1) } else { String::new() };
    let all = counted(all.collect::<HashSet<_>>().len(), "case");
    Some(format!("{} of {all} failed: {first}{why}{more}.", reasons.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::run_record::Unfinished;

    #[test]
    fn a_run_that_was_cut_off_and_its_failed_cases_are_told() {
        let case = |name: &str, failed: Option<&str>| Case {
            name: name.to_owned(),
            failed: failed.map(str::to_owned),
            ..Case::default()
        };
        let cases = [case("a", None), case("b", Some("")), case("b", Some("")), case("c", Some("no answer"))];
        let record = |interrupted: Option<&str>, ended: Option<&str>| RunRecord::<serde_json::Value> {
            began: "t".to_owned(),
            interrupted: interrupted.map(str::to_owned),
            ended: ended.map(str::to_owned),
            unfinished: interrupted
                .map(|_| Unfinished { case: "d".to_owned(), ..Unfinished::default() })
                .into_iter()
                .collect(),
            ..RunRecord::default()
        };
        let records = [record(Some("SIGINT"), Some("t")), record(Some("SIGALRM"), Some("t")), record(None, Some("t"))];
        let said = sentences(&records, cases.iter());
        assert_eq!(
            said,
            [
                "The run was interrupted (SIGINT); 1 case was not measured to its end: d.",
                "2 of 3 cases failed: b (no answer) and 1 more."
            ]
        );
        assert_eq!(sentences(&records[1..], cases[..1].iter()), [""; 0]);
        assert_eq!(sentences([&record(None, None)], [].iter()), ["The run has not ended, or it crashed."]);
        let of = |verdict| (outcome(verdict, &said), outcome(verdict, &[]));
        assert_eq!(of(Verdict::Ok), (Verdict::Exit(3), Verdict::Ok));
        assert_eq!(of(Verdict::Inconclusive), (Verdict::Exit(3), Verdict::Inconclusive));
        assert_eq!(of(Verdict::Failed), (Verdict::Failed, Verdict::Failed));
    }
}
