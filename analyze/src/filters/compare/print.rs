//! Comparisons for people.

use std::{collections::HashMap, io::Write};

use schemas::{units, words::Verdict};

use super::Compared;
use crate::error::Error;
use crate::judge::baseline::said;
use crate::judge::environment::Environment;
use crate::judge::samples::Samples;
use crate::judge::verdicts::Format;
use crate::table::layout::{self, Column, Sheet};
use crate::table::markdown::escaped;

/// p with two digits, never a 0.
fn p_text(p: f64) -> String {
    match p {
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p if p < 0.01 => format!("{p:.4}"),
        p => format!("{p:.2}"),
    }
}

/// The table for people.
pub fn columns(comparisons: &[Compared]) -> Vec<Column> {
    let value = |c: &Compared, v: Option<f64>| match (v, c.metric.map(|m| m.unit)) {
        (None, _) => String::new(),
        (Some(v), Some(unit)) => units::human(unit, v),
        (Some(v), None) => units::three_digits(v),
    };
    let column = |title, right, cell: &dyn Fn(&Compared) -> String| Column::of(title, right, comparisons, cell);
    let mut metric_of: HashMap<&str, &str> = HashMap::new();
    let several = comparisons.iter().any(|c| *metric_of.entry(&c.row.case).or_insert(&c.row.metric) != c.row.metric);
    let mut columns = vec![
        column("case", false, &|c| c.row.case.clone()),
        column("metric", false, &|c| c.metric.map_or(c.row.metric.clone(), |m| m.name.to_owned())),
        column("baseline", true, &|c| value(c, c.found.base)),
        column("new", true, &|c| value(c, c.found.new)),
        column("change", false, &|c| c.found.change_text()),
        column("p", false, &|c| c.found.p.map(p_text).unwrap_or_default()),
        column("verdict", false, &|c| {
            if c.found.verdict == Verdict::Same { "~".to_owned() } else { c.found.verdict.to_string() }
        }),
        column("", false, &|c| c.found.notes.join("; ")),
    ];
    columns.retain(|c| match c.title.as_str() {
        "metric" => several,
        "" => c.cells.iter().any(|c| !c.is_empty()),
        _ => true,
    });
    columns
}

/// Prints an aligned or Markdown table, and the facts to know beside it.
pub fn people(
    comparisons: &[Compared],
    facts: &str,
    format: Format,
    sheet: &Sheet,
    output: &mut dyn Write,
) -> Result<(), Error> {
    let columns = columns(comparisons);
    if format == Format::Md {
        layout::markdown(&columns, output)?;
        // An empty line at the end, so that other Markdown may follow.
        writeln!(output, "\n{}\n", escaped(facts))?;
    } else {
        layout::aligned(&columns, sheet, output)?;
        writeln!(output, "{facts}")?;
    }
    Ok(())
}

/// `10 and 10 iterations, interleaved: no · drift: none found · same machine: yes`
pub fn facts(base: &Samples, new: &Samples, comparisons: &[Compared], places: &[Vec<Environment>; 2]) -> String {
    let range = |counts: Vec<usize>| {
        let (low, high) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        if low == high { low.to_string() } else { format!("{low}–{high}") }
    };
    let tested = || comparisons.iter().filter(|c| c.found.verdict != Verdict::Missing);
    let mut facts = vec![format!(
        "{} and {} iterations",
        range(tested().map(|c| c.found.n.0).collect()),
        range(tested().map(|c| c.found.n.1).collect())
    )];
    if let Some(interleaved) = interleaved(base, new) {
        facts[0] = format!("{}, interleaved: {}", facts[0], if interleaved { "yes" } else { "no" });
    }
    let drifting = comparisons.iter().filter(|c| c.found.notes.iter().any(|n| n.contains("drifts by"))).count();
    facts.push(match drifting {
        0 => "drift: none found".to_owned(),
        n => format!("drift: in {n} of {}", comparisons.len()),
    });
    facts.push(machine(places));
    facts.join(" · ")
}

/// `same machine: yes`, or what differs.
fn machine([base, new]: &[Vec<Environment>; 2]) -> String {
    if base.is_empty() || new.is_empty() {
        return "same machine: unknown (no run.json beside both)".to_owned();
    }
    let mut differences = Vec::new();
    for difference in base.iter().flat_map(|b| new.iter().flat_map(|n| b.differences(n))) {
        if !differences.contains(&difference) {
            differences.push(difference);
        }
    }
    let other = differences.iter().any(|d| d.machine);
    match said(&differences) {
        None => "same machine: yes".to_owned(),
        Some(what) if other => format!("same machine: NO, which voids the comparison ({what})"),
        Some(what) => format!("same machine: yes, but {what}"),
    }
}

/// Whether the two sides were measured in turns: then a drift affects both.
fn interleaved(base: &Samples, new: &Samples) -> Option<bool> {
    let times =
        |samples: &Samples| -> Vec<String> { samples.cases.iter().flat_map(|c| c.times.iter().cloned()).collect() };
    let (base, new) = (times(base), times(new));
    let (first_new, last_new) = (new.iter().min()?, new.iter().max()?);
    let (first_base, last_base) = (base.iter().min()?, base.iter().max()?);
    Some(first_new < last_base && first_base < last_new)
}
