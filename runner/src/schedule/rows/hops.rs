//! The link of the path at which the queue stands, from the round trips to its hops.

use std::collections::BTreeMap;

use analyze::limits::hops::{self, Judged, Trips, Verdict};
use netcore::report::{Hop, ProbedPath, SideReport};
use schemas::columns::Row;

/// The hops of a path, judged.
pub fn judged(path: &ProbedPath) -> (Vec<Judged>, Verdict) {
    let trips = |hop: &Hop| Trips {
        address: hop.addresses.first().map(ToString::to_string),
        idle_us: hop.idle.answers().map(f64::from).collect(),
        loaded_us: hop.loaded.us.iter().map(|us| us.map(f64::from)).collect(),
    };
    let all: Vec<Trips> = path.hops.iter().map(trips).collect();
    hops::judge(&all, path.reached)
}

/// Other addresses that a hop answered from, in words.
pub fn others(hop: &Hop) -> Option<String> {
    let others: Vec<String> = hop.addresses.iter().skip(1).map(ToString::to_string).collect();
    (!others.is_empty()).then(|| format!("also answered from {}", others.join(", ")))
}

/// Fills the cells of a row of the measure phase, if its test probed the hops.
pub fn fill(row: &mut Row, near: &SideReport) {
    let Some(path) = &near.path else { return };
    let (_, Verdict { place, mut because }) = judged(path);
    let changed = (1..).zip(&path.hops).filter_map(|(number, hop)| Some(format!("hop {number} {}", others(hop)?)));
    let changed: Vec<String> = changed.collect();
    if !changed.is_empty() {
        because = format!("{because}; the path changed, or packets take several: {}", changed.join(", "));
    }
    row.queue_hop_because = Some(because);
    if let Some(place) = place {
        row.queue_hop = Some(place.behind as u64);
        row.queue_hop_last = Some(place.before as u64 - 1);
        row.queue_hop_address = place.address;
        row.queue_hop_added_us = Some(place.added_us);
    }
}

/// Counts the places that the iterations of a case found.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Iterations by place, with the row of the last one.
    found: BTreeMap<(Option<u64>, Option<u64>), (u32, Row)>,
}

impl Places {
    /// Adds an iteration, by its row.
    pub fn push(&mut self, row: &Row) {
        if row.queue_hop_because.is_none() {
            return;
        }
        let (count, last) = self.found.entry((row.queue_hop, row.queue_hop_last)).or_default();
        (*count, *last) = (*count + 1, row.clone().without_histograms());
    }

    /// Fills the cells of a summary: the place that over half of the iterations found, as the last of them did.
    pub fn fill(&self, row: &mut Row) {
        let total: u32 = self.found.values().map(|(count, _)| count).sum();
        let most = self.found.values().max_by_key(|(count, _)| *count).filter(|(count, _)| 2 * count > total);
        let disagree = (total > 0).then(|| "unknown where a queue stands: the iterations disagree".to_owned());
        let none = Row { queue_hop_because: disagree, ..Row::default() };
        let cells = most.map_or(none, |(_, last)| last.clone());
        row.queue_hop = cells.queue_hop;
        row.queue_hop_last = cells.queue_hop_last;
        row.queue_hop_address = cells.queue_hop_address;
        row.queue_hop_added_us = cells.queue_hop_added_us;
        row.queue_hop_because = cells.queue_hop_because;
    }
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Phase, RoundTrips},
        spec::{Direction, Side},
    };

    use super::*;
    use crate::schedule::{
        fake::{report, spec, window},
        rows::{of_iteration, summary::Summary},
    };

    fn hop(number: u8, idle: u32, loaded: u32) -> Hop {
        let trips = |us: u32, count: u32| RoundTrips { asked: count, us: (0..count).map(|n| Some(us + n)).collect() };
        Hop { addresses: vec![[10, 0, number, 1].into()], idle: trips(idle, 5), loaded: trips(loaded, 8) }
    }

    fn row(path: ProbedPath) -> Row {
        let mut near = report(Side::Near, vec![window(Phase::Measure, 1_000_000_000, Vec::new())]);
        near.path = Some(path);
        of_iteration(&Row::default(), &spec(Direction::Forward), &near, None).measured.remove(0).1
    }

    #[test]
    fn a_row_names_the_hop_and_a_summary_the_one_of_most_iterations() {
        let queue = |at: usize| {
            let hops = (0..4).map(|n| hop(n, 200 * (u32::from(n) + 1), if usize::from(n) < at { 300 } else { 40_000 }));
            row(ProbedPath { hops: hops.collect(), reached: true })
        };
        let one = queue(2);
        assert_eq!((one.queue_hop, one.queue_hop_last), (Some(2), Some(2)));
        assert_eq!(one.queue_hop_address.as_deref(), Some("10.0.1.1"));
        assert!((39_000.0..40_000.0).contains(&one.queue_hop_added_us.unwrap()), "{one:?}");
        let of = |rows: &[Row]| {
            let mut summary = Summary::default();
            for row in rows {
                summary.push(row);
            }
            summary.row().unwrap()
        };
        let agreed = of(&[queue(2), queue(1), queue(2)]);
        assert_eq!((agreed.queue_hop, agreed.queue_hop_because), (Some(2), queue(2).queue_hop_because));
        let open = of(&[queue(2), queue(1)]);
        assert_eq!((open.queue_hop, open.queue_hop_address.as_deref()), (None, None));
        assert!(open.queue_hop_because.unwrap().ends_with("the iterations disagree"));
        assert_eq!(of(&[Row::default()]).queue_hop_because, None);
    }

    #[test]
    fn a_path_that_changes_is_said() {
        let mut path = ProbedPath { hops: vec![hop(0, 200, 300), hop(1, 400, 500)], reached: true };
        assert!(row(path.clone()).queue_hop_because.unwrap().starts_with("no queue on the path"));
        path.hops[0].addresses.push([10, 9, 9, 9].into());
        let because = row(path).queue_hop_because.unwrap();
        assert!(
            because.ends_with("the path changed, or packets take several: hop 1 also answered from 10.9.9.9"),
            "{because}"
        );
    }
}
