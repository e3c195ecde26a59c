//! The answer to why a test was not faster: causes, what was changed for each, and what that showed.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use analyze::{
    judge::comparison::Comparison,
    limits::{advised_once, intro},
    table::{
        layout::{self, Column, Sheet},
        markdown::escaped,
    },
};
use schemas::{
    columns::Row,
    metrics::Metric,
    units::{Unit, human, margin},
    words::LimitedBy,
};
use serde::Serialize;

use super::{
    changes::{Change, Expected},
    trial::ChangeOutcome,
};
use crate::sinks::table::write_sentences;

/// The answer about one test.
#[derive(Debug)]
pub struct Answer {
    /// Name of the case and member.
    pub test: String,
    /// The first as the run named it, each other one behind the change that was confirmed before.
    pub causes: Vec<Cause>,
    /// The changes that were confirmed, as overrides of the plan.
    pub sets: Vec<String>,
}

/// A cause, and what was changed for it.
#[derive(Debug)]
pub struct Cause {
    pub by: LimitedBy,
    pub because: String,
    /// Why nothing was changed.
    pub nothing: Option<String>,
    pub findings: Vec<Finding>,
}

/// A value of a setting, and what it did.
#[derive(Debug)]
pub struct Finding {
    pub key: &'static str,
    pub from: String,
    pub to: String,
    pub metric: &'static Metric,
    pub expected: Expected,
    pub comparison: Option<Comparison>,
    pub said: ChangeOutcome,
    /// Limit of the test with this value.
    pub then: Option<LimitedBy>,
    /// Why it was not measured.
    pub note: Option<String>,
    /// Whether a signal ended the rounds before they decided.
    pub is_cut: bool,
}

/// Why a cause was not tried, or not to the end, after Ctrl-C.
const CUT: &str = "a signal ended it early";

impl Answer {
    pub fn new(test: String) -> Self {
        Self { test, causes: Vec::new(), sets: Vec::new() }
    }

    /// A test that was not asked about, since a signal came before.
    pub fn cut(test: String, row: &Row) -> Self {
        let cause = Cause { nothing: Some(CUT.to_owned()), ..Cause::of(row) };
        Self { causes: vec![cause], ..Self::new(test) }
    }

    /// Whether the cause that the run named is confirmed or refuted; `None`: neither.
    pub fn first(&self) -> Option<ChangeOutcome> {
        let said = |wanted| self.causes.first().is_some_and(|cause| cause.findings.iter().any(|f| f.said == wanted));
        [ChangeOutcome::Confirmed, ChangeOutcome::Refuted].into_iter().find(|one| said(*one))
    }

    /// The next step behind the last change that was confirmed: the limit of the test with it, or where to look for a full link.
    fn behind(&self) -> Option<String> {
        let last =
            self.causes.iter().flat_map(|cause| &cause.findings).rfind(|f| f.said == ChangeOutcome::Confirmed)?;
        if let Expected::Same(_) = last.expected {
            return Some(
                "which link it is: --hops of plumb measure, or `hops: true` in the plan; a shorter queue: bbr at the sender, or a \
                 shaper before the link"
                    .to_owned(),
            );
        }
        let by = last.then.filter(|by| *by != LimitedBy::Unknown)?;
        Some(format!("with {}={} it is limited by {by}", last.key, last.to))
    }
}

impl Cause {
    pub fn of(row: &Row) -> Self {
        let by = row.limited_by.unwrap_or(LimitedBy::Unknown);
        let because = row.limited_because.clone().unwrap_or_default();
        Self { by, because, nothing: None, findings: Vec::new() }
    }
}

impl Finding {
    pub fn of(change: &Change, value: &str, metric: &'static Metric, expected: Expected) -> Self {
        Self {
            key: change.key,
            from: change.from.clone(),
            to: value.to_owned(),
            metric,
            expected,
            comparison: None,
            said: ChangeOutcome::Undecided,
            then: None,
            note: None,
            is_cut: false,
        }
    }

    /// Adds what was measured. `then`: the row of the changed test.
    pub fn measured(&mut self, comparison: &Comparison, said: ChangeOutcome, then: Option<&Row>) {
        (self.comparison, self.said) = (Some(comparison.clone()), said);
        self.then = then.and_then(|row| row.limited_by);
    }

    /// `93.1 Mbit/s → 187 Mbit/s`
    fn values(&self) -> String {
        let unit = Unit::of_column(self.metric.column).map(|(_, unit)| unit);
        let shown = |value: Option<f64>| match (value, unit) {
            (Some(value), Some(unit)) => human(unit, value),
            (value, _) => value.map(schemas::units::three_digits).unwrap_or_default(),
        };
        self.comparison.as_ref().map_or_else(String::new, |c| format!("{} → {}", shown(c.base), shown(c.new)))
    }

    /// `+101 % (+98 … +104)`
    fn change(&self) -> String {
        self.comparison.as_ref().map_or_else(String::new, Comparison::change_text)
    }

    /// The verdict about the cause, in words.
    fn verdict(&self) -> String {
        if let Some(note) = &self.note {
            return format!("not measured: {note}");
        }
        if self.is_cut {
            return format!("{}: {CUT}", self.said.as_str());
        }
        let interval = self.comparison.as_ref().and_then(|c| c.interval);
        let widest = interval.map(|(low, high)| low.abs().max(high.abs()));
        match (self.said, self.expected, interval) {
            (ChangeOutcome::Confirmed, Expected::Same(_), Some((_, high))) if high > 0.0 => {
                format!("confirmed: at most {} more passes", margin(high))
            }
            (ChangeOutcome::Refuted, Expected::Same(_), _) => "refuted: more passes".to_owned(),
            (ChangeOutcome::Refuted, _, Some((low, high))) if low <= 0.0 && high >= 0.0 => {
                format!("refuted: no effect (a change of {} would have shown)", margin(widest.unwrap_or_default()))
            }
            (ChangeOutcome::Undecided, _, Some((low, high))) if low <= 0.0 && high >= 0.0 => {
                format!("undecided: an effect up to {} would not have shown", margin(widest.unwrap_or_default()))
            }
            (said, ..) => said.as_str().to_owned(),
        }
    }
}

/// Writes the answers as lines: the cause, what was changed, and what to change in the plan. `is_told`: the sentences about the first
/// causes stand above.
pub fn write(answers: &[Answer], is_told: bool, sheet: &Sheet, out: &mut dyn Write) -> io::Result<()> {
    let mut has_advice = false;
    for answer in answers {
        for (n, cause) in answer.causes.iter().enumerate() {
            let start = if n == 0 { answer.test.clone() } else { "then".to_owned() };
            let nothing = cause.nothing.iter().map(|why| format!("nothing was changed: {why}"));
            let because = advised_once(&cause.because, &mut has_advice);
            let because = if is_told && n == 0 { "as told above" } else { because };
            write_sentences(&[format!("{start}: {}{because}", intro(cause.by))], sheet, out)?;
            write_sentences(&nothing.collect::<Vec<_>>(), sheet, out)?;
            if !cause.findings.is_empty() {
                layout::aligned(&columns(&cause.findings), sheet, out)?;
            }
        }
        write_sentences(&answer.behind().into_iter().collect::<Vec<_>>(), sheet, out)?;
        if !answer.sets.is_empty() {
            writeln!(out, "  to change in the plan:")?;
        }
        for set in &answer.sets {
            writeln!(out, "    --set {set}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn columns(findings: &[Finding]) -> Vec<Column> {
    let column = |title: &str, cell: &dyn Fn(&Finding) -> String| Column::of(title, false, findings, cell);
    vec![
        column("  change", &|f| format!("  {} {} → {}", f.key, f.from, f.to)),
        column("result (median)", &Finding::values),
        column("99 % interval", &Finding::change),
        column("verdict", &Finding::verdict),
    ]
}

/// A row of the answers' table.
#[derive(Default, Serialize)]
struct Line<'a> {
    case: &'a str,
    why_step: usize,
    why_cause: String,
    why_because: &'a str,
    why_setting: &'a str,
    why_from: String,
    why_to: String,
    why_metric: &'a str,
    why_before: Option<f64>,
    why_after: Option<f64>,
    why_change_ratio: Option<f64>,
    why_low_ratio: Option<f64>,
    why_high_ratio: Option<f64>,
    why_p: Option<f64>,
    why_rounds: Option<usize>,
    why_verdict: &'a str,
    why_then: Option<String>,
    why_note: Cow<'a, str>,
}

/// A row for each change, and one for each cause without any.
fn lines(answers: &[Answer]) -> Vec<Line<'_>> {
    let causes =
        answers.iter().flat_map(|answer| (1..).zip(&answer.causes).map(|(step, cause)| (&*answer.test, step, cause)));
    let mut all = Vec::new();
    for (case, why_step, cause) in causes {
        let bare = || Line {
            case,
            why_step,
            why_cause: cause.by.to_string(),
            why_because: &cause.because,
            why_note: cause.nothing.as_deref().unwrap_or_default().into(),
            ..Line::default()
        };
        let of = |finding: &'_ Finding| {
            let found = finding.comparison.as_ref();
            let interval = found.and_then(|c| c.interval);
            Line {
                why_setting: finding.key,
                why_from: finding.from.clone(),
                why_to: finding.to.clone(),
                why_metric: finding.metric.name,
                why_before: found.and_then(|c| c.base),
                why_after: found.and_then(|c| c.new),
                why_change_ratio: found.and_then(|c| c.change),
                why_low_ratio: interval.map(|(low, _)| low),
                why_high_ratio: interval.map(|(_, high)| high),
                why_p: found.and_then(|c| c.p),
                why_rounds: found.map(|c| c.n.0.min(c.n.1)),
                why_verdict: finding.said.as_str(),
                why_then: finding.then.map(|by| by.to_string()),
                ..bare()
            }
        };
        if cause.findings.is_empty() {
            all.push(bare());
        }
        all.extend(cause.findings.iter().map(|finding| {
            let cut = finding.is_cut.then(|| CUT.to_owned());
            let note = finding.note.clone().or(cut).unwrap_or_default();
            Line { why_note: note.into(), ..of(finding) }
        }));
    }
    all
}

/// Writes the answers as the `why` table.
pub fn csv(answers: &[Answer], out: &mut dyn Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(out);
    lines(answers).iter().try_for_each(|line| writer.serialize(line))?;
    Ok(writer.flush()?)
}

/// The answers as JSON, an object per row of the table.
pub fn json(answers: &[Answer]) -> serde_json::Value {
    serde_json::to_value(lines(answers)).unwrap_or_default()
}

/// Writes the answers as Markdown: a heading and a table for each.
pub fn markdown(answers: &[Answer], out: &mut dyn Write) -> io::Result<()> {
    for answer in answers {
        for cause in &answer.causes {
            writeln!(out, "**{}**: {}{}\n", escaped(&answer.test), intro(cause.by), escaped(&cause.because))?;
            if let Some(nothing) = &cause.nothing {
                writeln!(out, "nothing was changed: {nothing}\n")?;
            } else {
                layout::markdown(&columns(&cause.findings), out)?;
                writeln!(out)?;
            }
        }
        if let Some(line) = answer.behind() {
            writeln!(out, "{line}\n")?;
        }
        for set in &answer.sets {
            writeln!(out, "    --set {set}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use schemas::metrics;

    use super::*;

    fn written(answers: &[Answer], is_told: bool) -> String {
        let mut text = Vec::new();
        write(answers, is_told, &Sheet::PLAIN, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn an_answer_that_a_signal_cut_says_so_in_each_format() {
        let row =
            Row { limited_by: Some(LimitedBy::Wire), limited_because: Some("it is full".into()), ..Row::default() };
        let change = Change { key: "streams", from: "1".into(), tries: Vec::new(), metric: None };
        let found = Finding::of(&change, "2", metrics::find("throughput").unwrap(), Expected::Better);
        let cause = Cause { findings: vec![Finding { is_cut: true, ..found }], ..Cause::of(&row) };
        let begun = Answer { causes: vec![cause], ..Answer::new("a".into()) };
        let answers = [begun, Answer::cut("b".into(), &row)];
        let text = written(&answers, false);
        assert!(text.contains("undecided: a signal ended it early"), "{text}");
        assert!(text.contains("nothing was changed: a signal ended it early"), "{text}");
        let mut table = Vec::new();
        csv(&answers, &mut table).unwrap();
        assert_eq!(String::from_utf8(table).unwrap().matches(CUT).count(), 2);
        assert_eq!(json(&answers).to_string().matches(CUT).count(), 2);
    }

    #[test]
    fn a_sentence_that_stands_above_is_not_told_again() {
        let row =
            Row { limited_by: Some(LimitedBy::Wire), limited_because: Some("it is full".into()), ..Row::default() };
        let answers = [Answer { causes: vec![Cause::of(&row)], ..Answer::new("a".into()) }];
        assert!(written(&answers, false).contains("a: limited by wire: it is full"));
        let told = written(&answers, true);
        assert!(told.contains("a: limited by wire: as told above") && !told.contains("full"), "{told}");
    }

    #[test]
    fn behind_a_confirmed_cause_stands_the_next_step() {
        let answer = |expected, said| {
            let change = Change { key: "streams", from: "1".into(), tries: Vec::new(), metric: None };
            let found = Finding::of(&change, "2", metrics::find("throughput").unwrap(), expected);
            let found = Finding { said, then: Some(LimitedBy::Wire), ..found };
            let cause = Cause { findings: vec![found], ..Cause::of(&Row::default()) };
            Answer { causes: vec![cause], ..Answer::new("a".into()) }.behind().unwrap_or_default()
        };
        assert_eq!(answer(Expected::Gain(1.0), ChangeOutcome::Confirmed), "with streams=2 it is limited by wire");
        assert!(answer(Expected::Same(1.0), ChangeOutcome::Confirmed).starts_with("which link it is: --hops"));
        assert_eq!(answer(Expected::Same(1.0), ChangeOutcome::Refuted), "");
    }
}
