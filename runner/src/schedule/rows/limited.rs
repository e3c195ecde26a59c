//! Why an iteration was not faster, in the rows of its measure phase.

use analyze::limits::{self, Limit};
use netcore::spec::TestSpec;
use schemas::{
    columns::{Row, results::ends},
    words::Way,
};

use super::{both::Pair, limits as evidence, ways};

/// Columns about an end as a whole. Of two ways at once they say nothing about one.
const OF_THE_END: [[&str; 2]; 6] = [
    ends::thread_busy_ratio,
    ends::softirq_peak_ratio,
    ends::qdisc_drops,
    ends::interface_drops,
    ends::softnet_drops,
    ends::socket_drops,
];

/// Fills the cells of these rows, one per way. The test may have left the evidence out.
pub fn fill(rows: &mut [(Way, Row)], spec: &TestSpec, pair: Pair<'_>) {
    if !spec.collect.limits {
        return;
    }
    let missing = rows.first().map(|(_, row)| evidence::missing(row, pair)).unwrap_or_default();
    if ways(spec.direction).len() == 1 {
        for (_, row) in rows {
            if let Some(limit) = limits::of(row, &missing) {
                limit.fill(row);
            }
        }
        return;
    }
    let mut of_ways: Vec<Limit> = Vec::new();
    for (way, row) in rows {
        let limit = match (way, of_ways.as_slice()) {
            (Way::Both, [forward, reverse]) => Some(limits::both_ways(forward, reverse)),
            (Way::Both, _) => None,
            _ => limits::of(&of_one_way(row), &missing),
        };
        if let Some(limit) = limit {
            of_ways.push(limit.clone());
            limit.fill(row);
        }
    }
}

/// The row without evidence that both ways share.
fn of_one_way(row: &Row) -> Row {
    let mut row = row.clone();
    for column in OF_THE_END.as_flattened() {
        row.set_number(column, None);
    }
    row
}
