//! Comparisons as rows of the `verdicts` table, and for people.

use std::io::Write;

use schemas::units;

use super::effect::{Comparison, Finding};
use super::unit;
use crate::error::Error;
use crate::filters::samples::Samples;
use crate::filters::table::layout::{self, Column};
use crate::filters::verdicts::Format;
use crate::judge::VerdictRow;

/// The row of the `verdicts` table.
pub fn row(c: &Comparison, min_effect: f64) -> VerdictRow {
    VerdictRow {
        case_id: c.case.key.id.clone(),
        case: c.label.clone(),
        member: c.case.key.member.clone(),
        assertion: "baseline".to_owned(),
        metric: c.column.clone(),
        n: c.n.1 as u64,
        observed: c.new,
        low: c.interval.map(|i| i.0),
        high: c.interval.map(|i| i.1),
        level: c.interval.map(|_| c.level),
        limit: Some(min_effect),
        baseline: c.base,
        change_ratio: c.change,
        p_value: c.p,
        verdict: c.finding.name().to_owned(),
        severity: "error".to_owned(),
        needed: c.needed,
        note: c.notes.join("; "),
        ..VerdictRow::default()
    }
}

/// `+0.4 % (−0.6 … +1.5)`
fn change(c: &Comparison) -> String {
    let signed = |v: f64| {
        let text = units::margin(v.abs());
        let digits = text.trim_end_matches(" %").to_owned();
        if v < 0.0 { format!("−{digits}") } else { format!("+{digits}") }
    };
    match (c.change, c.interval) {
        (None, _) => String::new(),
        (Some(change), None) => format!("{} %", signed(change)),
        (Some(change), Some((low, high))) => format!("{} % ({} … {})", signed(change), signed(low), signed(high)),
    }
}

/// p with two digits, never a 0.
fn p_text(p: f64) -> String {
    match p {
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p if p < 0.01 => format!("{p:.4}"),
        p => format!("{p:.2}"),
    }
}

/// An aligned or Markdown table and what must be known beside it.
pub fn people(comparisons: &[Comparison], facts: &str, format: Format, output: &mut dyn Write) -> Result<(), Error> {
    let value = |c: &Comparison, v: Option<f64>| match (v, unit(c.metric)) {
        (None, _) => String::new(),
        (Some(v), Some(unit)) => units::human(unit, v),
        (Some(v), None) => units::three_digits(v),
    };
    let column = |title: &str, right: bool, cell: &dyn Fn(&Comparison) -> String| Column {
        title: title.to_owned(),
        right,
        cells: comparisons.iter().map(cell).collect(),
    };
    let several = comparisons.iter().any(|c| comparisons.iter().any(|d| d.label == c.label && d.column != c.column));
    let mut columns = vec![
        column("case", false, &|c| c.label.clone()),
        column("metric", false, &|c| c.metric.map_or(c.column.clone(), |m| m.name.to_owned())),
        column("baseline", true, &|c| value(c, c.base)),
        column("new", true, &|c| value(c, c.new)),
        column("change", false, &change),
        column("p", false, &|c| c.p.map(p_text).unwrap_or_default()),
        column("verdict", false, &|c| {
            if c.finding == Finding::Same { "~".to_owned() } else { c.finding.name().to_owned() }
        }),
        column("", false, &|c| c.notes.join("; ")),
    ];
    columns.retain(|c| match c.title.as_str() {
        "metric" => several,
        "" => c.cells.iter().any(|c| !c.is_empty()),
        _ => true,
    });
    if format == Format::Md {
        layout::markdown(&columns, output)?;
        writeln!(output)?;
    } else {
        layout::aligned(&columns, output)?;
    }
    writeln!(output, "{facts}")?;
    Ok(())
}

/// `10 and 10 iterations, interleaved: no · drift: none found`
pub fn facts(base: &Samples, new: &Samples, comparisons: &[Comparison]) -> String {
    let range = |counts: Vec<usize>| {
        let (low, high) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        if low == high { low.to_string() } else { format!("{low}–{high}") }
    };
    let tested = || comparisons.iter().filter(|c| c.finding != Finding::Missing);
    let mut facts = vec![format!(
        "{} and {} iterations",
        range(tested().map(|c| c.n.0).collect()),
        range(tested().map(|c| c.n.1).collect())
    )];
    if let Some(interleaved) = interleaved(base, new) {
        facts[0] = format!("{}, interleaved: {}", facts[0], if interleaved { "yes" } else { "no" });
    }
    let drifting = comparisons.iter().filter(|c| c.notes.iter().any(|n| n.contains("drifts by"))).count();
    facts.push(match drifting {
        0 => "drift: none found".to_owned(),
        n => format!("drift: in {n} of {}", comparisons.len()),
    });
    facts.join(" · ")
}

/// Whether the two sides were measured in turns: then what drifts, drifts in both.
fn interleaved(base: &Samples, new: &Samples) -> Option<bool> {
    let times =
        |samples: &Samples| -> Vec<String> { samples.cases.iter().flat_map(|c| c.times.iter().cloned()).collect() };
    let (base, new) = (times(base), times(new));
    let (first_new, last_new) = (new.iter().min()?, new.iter().max()?);
    let (first_base, last_base) = (base.iter().min()?, base.iter().max()?);
    Some(first_new < last_base && first_base < last_new)
}
