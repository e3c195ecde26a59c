//! The lines below a table: a sentence for each answer with its cases, or of many cases the causes with the cases.

use schemas::{
    columns::Row,
    metrics::Family,
    words::{LimitedBy, Way},
};

/// Most cases that have a line of their own.
const MOST_LINES: usize = 12;

/// Cases of a cause that are named; of more, their number.
const NAMED: usize = 4;

/// The lines for these rows, of which each has its name for people. A row about one way is left out beside that about both, unless
/// the ways do not agree: then each has its own. So is a probe of the latency beside a load: its path's length is its result, and nothing that it could be rid of.
#[must_use]
pub fn lines<'a>(rows: impl Iterator<Item = (String, &'a Row)>) -> Vec<String> {
    let all: Vec<(String, &Row)> = rows.collect();
    let is_whole = |row: &Row| row.direction == Some(Way::Both);
    let has_other = |row: &Row, is_it: &dyn Fn(&Row) -> bool| {
        let same = |other: &Row| other.case_id == row.case_id && other.case == row.case && other.member == row.member;
        all.iter().any(|(_, other)| same(other) && is_whole(other) != is_whole(row) && is_it(other))
    };
    let is_known = |row: &Row| row.limited_by.is_some_and(|by| by != LimitedBy::Unknown);
    // The row of a group's total, which is about both ways too, has no parts of its own.
    let is_told_by_others = |row: &Row| {
        if is_whole(row) {
            !is_known(row) && has_other(row, &|part| part.limited_by.is_some())
        } else {
            has_other(row, &is_known)
        }
    };
    let is_probe = |row: &Row| row.added_latency_p50_us.is_some() || Family::from(row) == Family::Probe;
    let told = all.iter().filter(|(_, row)| !is_told_by_others(row) && !is_probe(row));
    let name_of = |name: &String, row: &Row| match row.direction {
        Some(way) if !is_whole(row) && has_other(row, &|_| true) => format!("{name} ({way})"),
        _ => name.clone(),
    };
    let told: Vec<(String, LimitedBy, &str)> = told
        .filter_map(|(name, row)| {
            Some((name_of(name, row), row.limited_by?, row.limited_because.as_deref().unwrap_or("")))
        })
        .collect();
    let told: Vec<(&str, LimitedBy, &str)> = told.iter().map(|(name, by, because)| (&**name, *by, *because)).collect();
    // The place of the queue is an answer of its own.
    let queues = all.iter().filter_map(|(name, row)| Some(format!("{name}: {}", row.queue_hop_because.as_ref()?)));
    if told.len() > MOST_LINES {
        return by_cause(&told).into_iter().chain(queues.take(MOST_LINES)).collect();
    }
    // Probes at the same rate all have the same answer.
    let mut answers: Vec<(Vec<&str>, LimitedBy, &str)> = Vec::new();
    for (name, by, because) in told {
        match answers.iter_mut().find(|(_, known, why)| (*known, *why) == (by, because)) {
            Some((names, ..)) => names.push(name),
            None => answers.push((vec![name], by, because)),
        }
    }
    let limits = answers.iter().map(|(names, by, because)| format!("{}: {}{because}", names.join(", "), intro(*by)));
    limits.chain(queues.take(MOST_LINES)).collect()
}

/// `limited by wire: `
#[must_use]
pub fn intro(by: LimitedBy) -> String {
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
