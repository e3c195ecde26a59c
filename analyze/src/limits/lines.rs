//! The lines below a table: a sentence for each answer with its cases, or of many cases the causes with the cases.

use schemas::{columns::Row, metrics::Family, words::LimitedBy};

/// Most cases that have a line of their own.
const MOST_LINES: usize = 12;

/// Cases of a cause that are named; of more, their number.
const NAMED: usize = 4;

/// The lines for these rows, of which each has its name for people. A row about one way is left out beside that about both, and so
/// is a probe of the latency beside a load: its path's length is its result, and nothing that it could be rid of.
#[must_use]
pub fn lines<'a>(rows: impl Iterator<Item = (String, &'a Row)>) -> Vec<String> {
    let all: Vec<(String, &Row)> = rows.collect();
    let is_part = |row: &Row| {
        use schemas::words::Way::Both;
        let whole = |other: &Row| other.direction == Some(Both) && other.limited_by.is_some();
        let same = |other: &Row| other.case_id == row.case_id && other.case == row.case && other.member == row.member;
        row.direction != Some(Both) && all.iter().any(|(_, other)| whole(other) && same(other))
    };
    let is_probe = |row: &Row| row.added_latency_p50_us.is_some() || Family::from(row) == Family::Probe;
    let told = all.iter().filter(|(_, row)| !is_part(row) && !is_probe(row));
    let told: Vec<(&str, LimitedBy, &str)> = told
        .filter_map(|(name, row)| Some((name.as_str(), row.limited_by?, row.limited_because.as_deref().unwrap_or(""))))
        .collect();
    if told.len() > MOST_LINES {
        return by_cause(&told);
    }
    // Probes at the same rate all have the same answer.
    let mut answers: Vec<(Vec<&str>, LimitedBy, &str)> = Vec::new();
    for (name, by, because) in told {
        match answers.iter_mut().find(|(_, known, why)| (*known, *why) == (by, because)) {
            Some((names, ..)) => names.push(name),
            None => answers.push((vec![name], by, because)),
        }
    }
    answers.iter().map(|(names, by, because)| format!("{}: {}{because}", names.join(", "), intro(*by))).collect()
}

/// `limited by wire: `
fn intro(by: LimitedBy) -> String {
    match by {
        LimitedBy::Unknown => "its limit is unknown: ".to_owned(),
        by => format!("limited by {by}: "),
    }
}

/// A line per cause, the one of most cases first.
fn by_cause(told: &[(&str, LimitedBy, &str)]) -> Vec<String> {
    let of = |cause| told.iter().filter(move |(_, by, _)| *by == cause).map(|(name, ..)| *name);
    let mut causes: Vec<LimitedBy> =
        LimitedBy::ALL.iter().copied().filter(|cause| of(*cause).next().is_some()).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(of(*cause).count()));
    let line = |cause: LimitedBy| {
        let names: Vec<&str> = of(cause).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let what = intro(cause).trim_end_matches(": ").replace("its limit is unknown", "limit unknown");
        format!("{what}: {}{more}", names[..names.len().min(NAMED)].join(", "))
    };
    let mut lines: Vec<String> = causes.into_iter().map(line).collect();
    lines.extend(lines.last().map(|_| "the column `limited_because` has the evidence of each".to_owned()));
    lines
}
