//! Comparisons for people.

use super::{Compared, Sides, settings::Contrast};
use crate::{
    distinct,
    error::Error,
    first_few,
    judge::{baseline::said, comparison::p_text, environment::Environment, samples::Samples, setting::Setting},
    table::{
        Format,
        layout::{self, Column, Sheet},
        markdown::escaped,
    },
};
use schemas::{
    run_record::RunRecord,
    text::{plain, short_names},
    units,
    words::Verdict,
};
use std::{collections::HashMap, io::Write};

/// The columns for people.
pub fn columns(comparisons: &[Compared]) -> Vec<Column> {
    let value = |c: &Compared, v: Option<f64>| match (v, c.metric.map(|m| m.unit)) {
        (None, _) => String::new(),
        (Some(v), Some(unit)) => units::human(unit, v),
        (Some(v), None) => units::three_digits(v),
    };
    let statistic = comparisons.first().map_or("median", |c| c.found.rule.test.statistic());
    let column = |title: &str, right, cell: &dyn Fn(&Compared) -> String| Column::of(title, right, comparisons, cell);
    let mut metric_of: HashMap<&str, &str> = HashMap::new();
    let several = comparisons.iter().any(|c| *metric_of.entry(&c.row.case).or_insert(&c.row.metric) != c.row.metric);
    let contrasts = comparisons.iter().any(|c| c.values != comparisons[0].values);
    let told = needed(comparisons).map(|(_, note)| note);
    let mut columns = vec![
        column("case", false, &|c| short_names(&c.row.case)),
        column("metric", false, &|c| c.metric.map_or(c.row.metric.clone(), |m| m.name.to_owned())),
        column("values", false, &|c| c.values.clone()),
        // The table of a run has means: a median beside them must say what it is.
        column(&format!("baseline ({statistic})"), true, &|c| value(c, c.found.base)),
        column(&format!("new ({statistic})"), true, &|c| value(c, c.found.new)),
        column("change", false, &|c| c.found.change_text()),
        column("p", false, &|c| c.found.p.map(p_text).unwrap_or_default()),
        column("verdict", false, &|c| {
            if c.found.verdict == Verdict::Same { "~".to_owned() } else { c.found.verdict.to_string() }
        }),
        column("", false, &|c| notes(c, told.as_deref())),
    ];
    columns.retain(|c| match c.title.as_str() {
        "metric" => several,
        "values" => contrasts,
        "" => c.cells.iter().any(|c| !c.is_empty()),
        _ => true,
    });
    columns
}

/// The iterations that several comparisons would need, where it is the same for all of them: their number, and the note.
fn needed(comparisons: &[Compared]) -> Option<(usize, String)> {
    let all: Vec<&Compared> = comparisons.iter().filter(|c| c.found.needed.is_some()).collect();
    let note = all.first()?.found.notes.first()?;
    let is_common = all.len() > 1 && all.iter().all(|c| c.found.notes.first() == Some(note));
    is_common.then(|| (all.len(), note.clone()))
}

/// The notes about a comparison, but for the one that is told of several together.
fn notes(compared: &Compared, told: Option<&str>) -> String {
    let own = compared.found.notes.iter().filter(|note| told != Some(note.as_str()));
    own.cloned().collect::<Vec<_>>().join("; ")
}

/// Prints the answer, an aligned or Markdown table, and the facts to know beside it.
pub fn people(
    comparisons: &[Compared],
    answer: &str,
    facts: &str,
    format: Format,
    sheet: &Sheet,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let columns = columns(comparisons);
    layout::answer(answer, format == Format::Md, sheet, output)?;
    if format == Format::Md {
        layout::markdown(&columns, output)?;
        // An empty line at the end, so that other Markdown may follow.
        writeln!(output, "\n{}\n", escaped(facts))?;
    } else {
        layout::aligned(&columns, sheet, output)?;
        layout::paragraph(&plain(facts), sheet.indent, sheet.width, output)?;
    }
    Ok(())
}

/// `10 and 10 iterations, one side after the other · drift: none found · same machine: yes`
pub fn facts(sides: &Sides, comparisons: &[Compared], records: &[Vec<RunRecord>; 2]) -> String {
    let range = |counts: Vec<usize>| {
        let (low, high) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        if low == high { low.to_string() } else { format!("{low}–{high}") }
    };
    let tested = || comparisons.iter().filter(|c| !c.is_alone());
    let settings: Vec<&Setting> = sides.contrasts.iter().filter_map(|contrast| contrast.setting.as_ref()).collect();
    let mut facts: Vec<String> = match settings.as_slice() {
        [] => Vec::new(),
        [setting] => vec![setting.to_string()],
        [setting, ..] => {
            let bases = distinct(settings.iter().map(|setting| setting.values[0].as_str()));
            vec![format!("{}: against {}", setting.name, bases.join(", "))]
        }
    };
    facts.extend(sides.said.iter().cloned());
    let mut iterations = format!(
        "{} and {} iterations",
        range(tested().map(|c| c.found.n.0).collect()),
        range(tested().map(|c| c.found.n.1).collect())
    );
    let turns: Vec<bool> = sides.contrasts.iter().filter_map(|c| interleaved(&c.base, &c.new)).collect();
    let rounds = tested().filter(|c| c.found.rounds.is_some()).count();
    if rounds > 0 && rounds == tested().count() {
        iterations.push_str(", in turns, and compared round by round");
    } else if rounds > 0 {
        iterations = format!("{iterations}, {rounds} of {} compared round by round", tested().count());
    } else if !turns.is_empty() {
        iterations.push_str(if turns.contains(&false) {
            ", one side after the other"
        } else {
            ", both sides in turns"
        });
    }
    facts.push(iterations);
    let drifting = comparisons.iter().filter(|c| c.found.notes.iter().any(|n| n.contains("drifts by"))).count();
    facts.push(match drifting {
        0 => "drift: none found".to_owned(),
        n => format!("drift: in {n} of {}", comparisons.len()),
    });
    facts.extend(needed(comparisons).map(|(count, note)| format!("{count} inconclusive: {note}")));
    let has_setting = sides.contrasts.iter().all(|c| c.setting.is_some());
    facts.push(if has_setting && is_one_run(sides) { "one run".to_owned() } else { machine(records) });
    let lost = distinct(comparisons.iter().filter(|c| c.is_lost()).map(|c| &*c.row.case));
    if !lost.is_empty() {
        facts.push(format!(
            "not measured again: {}",
            first_few(lost.iter().map(|case| short_names(case)), MOST_LOST).join(", ")
        ));
    }
    facts.join(" · ")
}

/// Most cases without new values that are named.
const MOST_LOST: usize = 6;

/// Whether all values of both sides are of one run, and so of the same machines.
pub fn is_one_run(sides: &Sides) -> bool {
    let runs = |of: fn(&Contrast) -> &Samples| {
        let cases = sides.contrasts.iter().flat_map(|contrast| &of(contrast).cases);
        distinct(cases.flat_map(|case| case.rows.iter().map(|row| row.run_id.as_str())))
    };
    let (base, new) = (runs(|contrast| &contrast.base), runs(|contrast| &contrast.new));
    base == new && matches!(base[..], [run] if !run.is_empty())
}

/// `same machine: yes`, or what differs.
fn machine(records: &[Vec<RunRecord>; 2]) -> String {
    let [base, new] = records.each_ref().map(|side| side.iter().map(Environment::of).collect::<Vec<_>>());
    if base.is_empty() || new.is_empty() {
        return "same machine: unknown (no run.json beside both)".to_owned();
    }
    let differences = distinct(base.iter().flat_map(|b| new.iter().flat_map(|n| b.differences(n))));
    let other = differences.iter().any(|d| d.machine);
    match said(&differences) {
        None => "same machine: yes".to_owned(),
        Some(what) if other => format!("same machine: NO, and what changed may be the machine ({what})"),
        Some(what) => format!("same machine: yes, but {what}"),
    }
}

/// Whether the two sides were measured in turns: then a drift affects both.
fn interleaved(base: &Samples, new: &Samples) -> Option<bool> {
    let times = |samples: &Samples| -> Vec<String> {
        let all = samples.cases.iter().flat_map(|c| c.rows.iter().map(|row| row.time.clone()));
        all.filter(|time| !time.is_empty()).collect()
    };
    let (base, new) = (times(base), times(new));
    let (first_new, last_new) = (new.iter().min()?, new.iter().max()?);
    let (first_base, last_base) = (base.iter().min()?, base.iter().max()?);
    Some(first_new < last_base && first_base < last_new)
}
