//! The outages of a path.

use netcore::report::Outages;
use schemas::{
    columns::Row,
    units::{Unit, human},
};

/// Fills the cells of the measure phase, if its test looked for outages.
pub fn fill(row: &mut Row, found: Option<&Outages>) {
    let Some(found) = found else { return };
    let us = |ns: u64| ns as f64 / 1000.0;
    row.outages = Some(found.count);
    row.outage_total_us = Some(us(found.total_ns));
    row.outage_max_us = Some(found.longest.map_or(0.0, |outage| us(outage.length_ns)));
    row.outage_begin_s = found.longest.map(|outage| outage.begin_ns as f64 / 1e9);
    row.outage_bound_us = Some(us(found.gap_ns));
    row.outage_because = Some(found.longest.map_or_else(
        || "no outage".to_owned(),
        |longest| {
            let count = if found.count == 1 { "one outage".to_owned() } else { format!("{} outages", found.count) };
            let lost = match longest.forward {
                Some(true) => "the requests (upload) got lost or late",
                Some(false) => "the answers (download) got lost or late",
                None => "it lasts to the end of the test, at least so long; the direction cannot be told",
            };
            let [length, bound] = [longest.length_ns, found.gap_ns].map(|ns| human(Unit::Microseconds, us(ns)));
            let begin = longest.begin_ns as f64 / 1e9;
            format!("{count}, the longest {length} ± {bound}, {begin:.3} s after the begin: {lost}")
        },
    ));
}

/// The sentence of a summary, whose iterations had outages of their own.
pub fn of_all(row: &Row) -> Option<String> {
    let (count, longest) = (row.outages?, row.outage_max_us?);
    let of = row.iterations.unwrap_or(1);
    if of == 1 {
        return row.outage_because.clone();
    }
    Some(match count {
        0 => format!("no outage in {of} iterations"),
        count => format!("outages in {of} iterations: {count}, the longest {}", human(Unit::Microseconds, longest)),
    })
}

#[cfg(test)]
mod tests {
    use netcore::report::Outage;

    use super::*;
    use crate::schedule::rows::summary::Summary;

    #[test]
    fn the_longest_outage_stands_in_the_row_and_in_the_summary() {
        let of = |lengths: &[u64]| {
            let longest = lengths.iter().max();
            let longest = longest.map(|ns| Outage { begin_ns: 1_500_000_000, length_ns: *ns, forward: Some(false) });
            let total_ns = lengths.iter().sum();
            let found = Outages { count: lengths.len() as u64, total_ns, longest, gap_ns: 1_000_000 };
            let mut row = Row::default();
            fill(&mut row, Some(&found));
            row
        };
        let one = of(&[137_000_000]);
        let sentence = "one outage, the longest 137 ms ± 1.00 ms, 1.500 s after the begin: the answers (download) got lost or late";
        assert_eq!(one.outage_because.as_deref(), Some(sentence));
        assert_eq!((one.outage_max_us, one.outage_begin_s), (Some(137_000.0), Some(1.5)));
        assert_eq!((of(&[]).outage_max_us, of(&[]).outage_because.as_deref()), (Some(0.0), Some("no outage")));
        let mut summary = Summary::default();
        for row in [of(&[]), of(&[30_000_000, 400_000_000]), one] {
            summary.push(&row);
        }
        let row = summary.row().unwrap();
        assert_eq!((row.outages, row.outage_max_us, row.outage_begin_s), (Some(3), Some(400_000.0), None));
        assert_eq!(row.outage_because.as_deref(), Some("outages in 3 iterations: 3, the longest 400 ms"));
    }
}
