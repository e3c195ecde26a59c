//! What a run was to measure and did not. Its values may be right, and still they are no success.

use schemas::{run_record::RunRecord, text::counted};

use super::samples::Case;
use crate::{distinct, error::Verdict};

/// Sentences about a run that was cut off (but for a timer's signal, which is a way to end it), and about its failed cases.
pub fn sentences<'a>(records: impl IntoIterator<Item = &'a RunRecord>, cases: &[Case]) -> Vec<String> {
    let cut_off = records.into_iter().filter(|record| record.is_cut_off()).filter_map(cut_short);
    let mut failed: Vec<(&str, &str)> = Vec::new();
    for case in cases {
        let is_named = failed.iter().any(|(name, _)| *name == case.name);
        failed.extend(case.failed.as_deref().filter(|_| !is_named).map(|why| (&*case.name, why)));
    }
    let all = distinct(cases.iter().map(|case| &*case.name)).len();
    cut_off.map(|why| format!("{why}.")).chain(failed_of(all, &failed)).collect()
}

/// Exit code 3 where something was not measured, unless something failed.
pub fn outcome(verdict: Verdict, sentences: &[String]) -> Verdict {
    match verdict {
        Verdict::Ok | Verdict::Inconclusive if !sentences.is_empty() => Verdict::Exit(3),
        other => other,
    }
}

/// Why the run ended early; `None` if it ended by itself.
pub fn cut_short(record: &RunRecord) -> Option<String> {
    match (&record.interrupted, &record.ended) {
        (Some(signal), _) => Some(match record.unfinished.len() {
            0 => format!("The run was interrupted ({signal})"),
            1 => format!("The run was interrupted ({signal}); 1 case was not measured to its end"),
            n => format!("The run was interrupted ({signal}); {n} cases were not measured to their end"),
        }),
        (None, None) if !record.began.is_empty() => Some("The run has not ended, or it crashed".to_owned()),
        _ => None,
    }
}

/// `1 of 8 cases failed: loaded (the members started too far apart).` From the names of the failed ones, each with its reason.
pub fn failed_of(all: usize, failed: &[(&str, &str)]) -> Option<String> {
    let (first, _) = failed.first()?;
    let why = failed.iter().map(|(_, why)| *why).find(|why| !why.is_empty());
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let more = if failed.len() > 1 { format!(" and {} more", failed.len() - 1) } else { String::new() };
    Some(format!("{} of {} failed: {first}{why}{more}.", failed.len(), counted(all, "case")))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ..RunRecord::default()
        };
        let records = [record(Some("SIGINT"), Some("t")), record(Some("SIGALRM"), Some("t")), record(None, Some("t"))];
        let said = sentences(&records, &cases);
        assert_eq!(said, ["The run was interrupted (SIGINT).", "2 of 3 cases failed: b (no answer) and 1 more."]);
        assert_eq!(sentences(&records[1..], &cases[..1]), [""; 0]);
        assert_eq!(sentences([&record(None, None)], &[]), ["The run has not ended, or it crashed."]);
        let of = |verdict| (outcome(verdict, &said), outcome(verdict, &[]));
        assert_eq!(of(Verdict::Ok), (Verdict::Exit(3), Verdict::Ok));
        assert_eq!(of(Verdict::Inconclusive), (Verdict::Exit(3), Verdict::Inconclusive));
        assert_eq!(of(Verdict::Failed), (Verdict::Failed, Verdict::Failed));
    }
}
