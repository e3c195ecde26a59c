//! The results of a run, as files, pictures and on the terminal.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, Write},
    path::PathBuf,
};

use analyze::{
    cases::overview::{self, Overview},
    export::page::{self, Block, Tone},
    judge::{self, incomplete, survey::Surveyed, verdicts},
    table::{
        Format,
        layout::{self, Sheet},
    },
};
use schemas::{
    columns::{Row, VerdictRow},
    run_record::Unfinished,
    text::{counted, plain, short_names},
    words::Verdict,
};

use crate::{
    error::{Error, Exit, replace},
    gate,
    plan::{Plan, case::Case, model::OnUncertain},
    progress::Progress,
    schedule::{
        run::{Finished, WIDE},
        step::Step,
    },
    signals::Interrupts,
    sinks::{
        ci::{self, CaseResult},
        files::Files,
        run_json::HostRecord,
        table,
    },
    style,
};

/// Most rows that are listed; of more, a table of what was asked says it.
const LONG: usize = 40;

/// Most suspects of a survey that are named below the results.
const MOST_SUSPECTS: usize = 8;

/// The results of a run.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a run")]
pub struct Report {
    /// The summary rows: of each case its members, then the whole.
    pub summaries: Vec<Row>,
    /// The surveys of pairs, by name. Their pairs have no line of their own.
    surveys: Vec<(String, Surveyed)>,
    /// In the order of the cases, and those of the surveys behind them.
    verdicts: Vec<VerdictRow>,
    /// Whether an inconclusive verdict fails the run.
    inconclusive_fails: bool,
    /// Cases, and surveys as wholes.
    pub(super) cases: Vec<CaseResult>,
    /// Number of cases.
    pub(super) measured: usize,
    /// Sentences that readers of the numbers should know.
    pub notes: Vec<String>,
    /// Notes that stand on standard error as warnings already.
    pub(super) said: HashSet<String>,
    /// Notes of which the surveys above the results say more.
    shown: HashSet<String>,
    pub(super) failed: bool,
    /// A sentence about a signal that ended the run early.
    pub cut_off: Option<String>,
    /// Cases that were not measured to their end, but for those that the plan left out.
    pub(super) unfinished: Vec<Unfinished>,
    /// Cases with a wide interval whose CPUs others had, and the sentence about each.
    unsteady: Vec<(String, String)>,
    /// File of the rows.
    pub(super) kept: Option<PathBuf>,
    /// The plans' pictures that were drawn.
    pub(super) pictures: Vec<PathBuf>,
    /// Whether the plans have pictures that were not drawn, since the rows were not kept.
    lacks_pictures: bool,
    /// Whether the reader of the rows has left.
    pub(super) closed: bool,
    /// Facts about every machine that took part, by name.
    pub hosts: BTreeMap<String, HostRecord>,
}

fn names(plans: &[Plan]) -> String {
    plans.iter().map(|plan| plan.name.as_str()).collect::<Vec<_>>().join(" ")
}

impl Report {
    /// Adds the cases of a plan.
    pub(super) fn add(
        &mut self,
        plan: &Plan,
        steps: &[Step],
        finished: Vec<Finished>,
        verdicts: Vec<Vec<VerdictRow>>,
        surveys: Vec<gate::MeasuredSurvey>,
    ) {
        self.measured += steps.len();
        self.inconclusive_fails |= plan.gate.on_inconclusive == Some(OnUncertain::Fail);
        for ((step, finished), verdicts) in steps.iter().zip(finished).zip(verdicts) {
            self.failed |= finished.failed.is_some();
            if let Some(reason) = finished.skipped.as_ref().filter(|_| !finished.left_out) {
                self.unfinished.push(Unfinished {
                    plan: plan.name.clone(),
                    case: step.name.clone(),
                    iterations: if step.find.is_some() { finished.numbers } else { finished.done },
                    of: if step.find.is_some() { 0 } else { step.policy.min },
                    reason: reason.clone(),
                });
            }
            self.unsteady.extend(finished.unsteady.map(|why| (step.name.clone(), why)));
            // The last row is the whole: both directions, or the group.
            let result = finished.summaries.last().map(|(.., row)| table::result(row)).unwrap_or_default();
            let elapsed_s = finished.summaries.iter().filter_map(|(.., row)| row.elapsed_s).reduce(f64::max);
            if step.round.is_none() {
                self.summaries.extend(finished.summaries.into_iter().map(|(.., row)| row));
            }
            self.verdicts.extend_from_slice(&verdicts);
            self.cases.push(CaseResult {
                test: step.test.to_string(),
                case: step.name.clone(),
                failed: finished.failed.map(|f| f.message),
                skipped: finished.skipped,
                verdicts,
                elapsed_s,
                result,
            });
        }
        for survey in surveys {
            let summary = survey.surveyed.summary();
            let labelled = |text: &str| format!("survey {}: {text}", survey.name);
            let suspects = survey.surveyed.suspects();
            let mut notes = vec![labelled(&summary)];
            notes.extend(suspects.iter().take(MOST_SUSPECTS).map(|suspect| labelled(suspect)));
            if suspects.len() > MOST_SUSPECTS {
                let more = suspects.len() - MOST_SUSPECTS;
                notes.push(labelled(&format!("and {more} more, which plumb survey names")));
            }
            // They stand above the results.
            self.shown.extend(notes.iter().cloned());
            self.notes.extend(notes);
            self.verdicts.extend_from_slice(&survey.verdicts);
            self.surveys.push((survey.name.clone(), survey.surveyed));
            self.cases.push(CaseResult {
                test: survey.test,
                case: survey.name,
                verdicts: survey.verdicts,
                result: summary,
                ..CaseResult::default()
            });
        }
    }

    /// A sentence on all cases with a wide interval whose CPUs others had.
    pub(super) fn unsteadiness(&self) -> Option<String> {
        let ((case, why), others) = self.unsteady.split_first()?;
        let more = if others.is_empty() {
            String::new()
        } else {
            format!("; likewise in {}", counted(others.len(), "more case"))
        };
        Some(format!("{case}: {why}, and its interval is wider than ± {:.0} %{more}", 100.0 * WIDE))
    }

    /// The cases that could not be measured, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cases.iter().filter_map(|case| Some((&*case.case, case.failed.as_deref()?)))
    }

    /// What was not measured, and the verdicts, in a sentence each, and the worst of them; `None`: all was measured, and nothing judged.
    fn answer(&self) -> Option<(Verdict, String)> {
        let failed = incomplete::failed_of(self.cases.iter().map(|case| &*case.case), self.failures());
        let judged = judge::answer(&self.verdicts, "the baseline");
        let is_whole = failed.is_none() && self.cut_off.is_none();
        let worst = if is_whole { judged.as_ref()?.0 } else { Verdict::Fail };
        let said = self.cut_off.clone().into_iter().chain(failed).chain(judged.map(|(_, text)| text));
        Some((worst, short_names(&said.collect::<Vec<_>>().join(" "))))
    }

    /// The first statement that failed; `None`: none did.
    pub fn broken(&self) -> Option<String> {
        self.verdicts.iter().find(|row| row.fails()).map(verdicts::broken)
    }

    /// Writes JUnit about a run that ended with a fault in the plan at this place: it is an error of each case from there on.
    pub(super) fn write_fault(&self, plans: &[Plan], at: usize, files: &Files, fault: &str) -> Result<(), Error> {
        let Some(path) = &files.junit else { return Ok(()) };
        let of_case = |case: &Case| CaseResult {
            test: case.test.to_string(),
            case: case.name.clone(),
            failed: Some(fault.to_owned()).filter(|_| case.skip.is_none()),
            skipped: case.skip.clone(),
            ..CaseResult::default()
        };
        let open = plans[at..].iter().flat_map(|plan| &plan.cases).map(of_case);
        let cases: Vec<CaseResult> = self.cases.iter().cloned().chain(open).collect();
        ci::junit(path, &names(plans), &cases)
    }

    /// Writes verdicts, JUnit, Markdown, annotations and pictures. `is_begun`: the run has replaced the files of an earlier
    /// one, if there was any.
    pub(super) fn write_files(
        &mut self,
        plans: &[Plan],
        files: &Files,
        is_begun: bool,
        progress: &Progress,
    ) -> Result<(), Error> {
        let name = names(plans);
        if let Some(path) = files.verdicts.as_deref().filter(|_| is_begun && !self.verdicts.is_empty()) {
            let mut bytes = Vec::new();
            verdicts::csv(&self.verdicts, &mut bytes)?;
            replace(path, &bytes)?;
        }
        if let Some(path) = &files.junit {
            ci::junit(path, &name, &self.cases)?;
        }
        let questions: Vec<&str> = plans.iter().filter_map(|p| p.description.as_deref()).collect();
        let results = table::summary(&self.summaries);
        let limits = table::limits(&self.summaries);
        let answer =
            self.answer().map(|(verdict, text)| Block::Answer { tone: Tone::of(verdict), text, more: String::new() });
        let surveys = self.surveys.iter().flat_map(|(name, survey)| page::survey(&survey.text(name)));
        let head = answer.into_iter().chain(surveys).collect();
        let notes: Vec<String> = self.notes.iter().filter(|note| !self.shown.contains(*note)).cloned().collect();
        let text = ci::markdown(&name, &questions, head, results, &limits, &self.verdicts, &notes);
        ci::write_markdown(files.markdown.as_ref(), &text)?;
        if files.annotations {
            progress.print(ci::annotations(&self.cases).trim_end());
        }
        match &files.results {
            Some(_) if !is_begun => {}
            Some(results) => {
                for picture in &files.pictures {
                    // A picture that cannot be drawn is a warning: the rows are there.
                    match picture.draw(results, files.intervals.as_deref()) {
                        Ok(notes) => {
                            for note in &notes {
                                progress.note(note);
                            }
                            self.pictures.push(picture.file.clone());
                        }
                        Err(e) => progress.warn(&e.to_string()),
                    }
                }
            }
            None => self.lacks_pictures = !files.pictures.is_empty(),
        }
        Ok(())
    }

    /// Writes the summary for people: the answer, results, notes, verdicts, and the file of the rows. Beside rows on standard output
    /// (`with_rows`) it says nothing of a file, and nothing at all but verdicts if their reader has left. Where the same reader has
    /// seen standard error (`has_seen`), it does not repeat the warnings there.
    pub fn write_summary(
        &self,
        with_rows: bool,
        has_seen: bool,
        sheet: &Sheet,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        if let Some((_, answer)) = self.answer() {
            let fault = Error::output("standard output");
            let print = |out: &mut dyn Write| layout::paragraph(&plain(&answer), sheet.indent, sheet.width, out);
            writeln!(out).and_then(|()| print(out)).map_err(fault)?;
        }
        let mut is_below_notes = false;
        if !self.closed {
            is_below_notes = self.write_results(has_seen, sheet, out).map_err(Error::output("standard output"))?;
        }
        if !self.verdicts.is_empty() {
            writeln!(out).map_err(Error::output("standard output"))?;
            verdicts::write(&self.verdicts, Some(""), Format::Text, sheet, out)?;
            is_below_notes = false;
        }
        let mut lines = Vec::new();
        if self.was_left() {
            let (open, all) = (self.unfinished.len(), self.measured);
            let note = format!(
                "the reader of the rows has left: {open} of {all} cases not measured to the end; -o FILE keeps the rows and \
                 measures all"
            );
            lines.push(style::remark(sheet, style::NOTE, "note", &note));
        }
        match &self.kept {
            _ if with_rows => {}
            Some(path) => {
                lines.push(format!("rows: {}", path.display()));
                let s = if self.pictures.len() == 1 { "" } else { "s" };
                let files: Vec<String> = self.pictures.iter().map(|path| path.display().to_string()).collect();
                lines.extend((!files.is_empty()).then(|| format!("picture{s}: {}", files.join(", "))));
            }
            None if self.summaries.is_empty() && self.surveys.is_empty() => {}
            None => {
                let pictures = if self.lacks_pictures { ", and without them no pictures" } else { "" };
                lines.push(format!("rows not kept{pictures}: add -o results.csv, or pipe them into a filter"));
            }
        }
        if !lines.is_empty() && !is_below_notes {
            lines.insert(0, String::new());
        }
        lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(Error::output("standard output"))
    }

    /// Whether the reader of the rows has left before all was measured.
    fn was_left(&self) -> bool {
        self.closed && !self.unfinished.is_empty()
    }

    /// Writes the results and the notes, with an empty line before each part. Whether there were notes.
    fn write_results(&self, has_seen: bool, sheet: &Sheet, out: &mut dyn Write) -> io::Result<bool> {
        for (name, survey) in &self.surveys {
            writeln!(out)?;
            survey.text(name).write(false, sheet, out)?;
        }
        let overview = self.overview();
        for Overview { said, columns, .. } in &overview {
            writeln!(out, "\n{said}\n")?;
            table::write(columns, sheet, out)?;
        }
        if let Some(kept) = self.kept.as_deref().filter(|_| !overview.is_empty()) {
            writeln!(
                out,
                "\nrow by row, and what limited each: plumb report -o {} {}",
                kept.with_extension("html").display(),
                kept.display()
            )?;
        }
        let is_told = |row: &&Row| !overview.iter().any(|of| Some(of.test.as_str()) == row.test.as_deref());
        let listed: Vec<Row> = self.summaries.iter().filter(is_told).cloned().collect();
        if !listed.is_empty() {
            writeln!(out)?;
            table::write(&table::summary(&listed), sheet, out)?;
            let limits = table::limits(&listed);
            if !limits.is_empty() {
                writeln!(out)?;
                table::write_sentences(&limits, sheet, out)?;
            }
        }
        let is_new = |note: &&String| !(self.shown.contains(*note) || has_seen && self.said.contains(*note));
        let notes: Vec<&String> = self.notes.iter().filter(is_new).collect();
        if !notes.is_empty() {
            writeln!(out)?;
        }
        notes.iter().try_for_each(|note| writeln!(out, "{}", style::remark(sheet, style::NOTE, "note", note)))?;
        Ok(!notes.is_empty())
    }

    /// The tables of what was asked, where there are too many rows to read.
    fn overview(&self) -> Vec<Overview> {
        let kept = self.kept.as_deref().filter(|_| self.summaries.len() > LONG);
        // Rows that cannot be read again, as from a pipe, are listed.
        kept.and_then(|kept| overview::read(kept).ok()).unwrap_or_default()
    }

    /// The exit code: a signal's own, else the worst of verdicts and measurements in the documented order.
    pub fn exit(&self, interrupts: &Interrupts) -> Exit {
        if let Some(exit) = interrupts.exit() {
            return exit;
        }
        let failed = self.failures().map(|(case, _)| case);
        match verdicts::outcome(&self.verdicts, failed, self.inconclusive_fails).into() {
            Exit::Failed => Exit::Failed,
            _ if self.failed || self.was_left() => Exit::Measurement,
            other => other,
        }
    }
}
