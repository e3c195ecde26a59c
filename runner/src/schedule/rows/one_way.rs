//! The delays of the two directions: how much each varies, and how long it is where the clocks are known well enough.

use netcore::report::{Latencies, OneWay};
use schemas::{
    columns::{Row, results::column},
    units::{Unit, human},
    words::OneWayClock,
};

use super::path;

/// Kinds of latencies, and the cells of their percentiles.
const VARIATION: [(&str, [(&str, f64); 3]); 2] = [
    (
        "forward_variation",
        [
            (column::forward_variation_p50_us, 0.5),
            (column::forward_variation_p95_us, 0.95),
            (column::forward_variation_p99_us, 0.99),
        ],
    ),
    (
        "reverse_variation",
        [
            (column::reverse_variation_p50_us, 0.5),
            (column::reverse_variation_p95_us, 0.95),
            (column::reverse_variation_p99_us, 0.99),
        ],
    ),
];

/// The cells of the delays, in the same order, the smallest first.
const DELAY: [[&str; 4]; 2] = [
    [
        column::forward_delay_min_us,
        column::forward_delay_p50_us,
        column::forward_delay_p95_us,
        column::forward_delay_p99_us,
    ],
    [
        column::reverse_delay_min_us,
        column::reverse_delay_p50_us,
        column::reverse_delay_p95_us,
        column::reverse_delay_p99_us,
    ],
];

/// The bound of one clock with itself, microseconds: the readings take time.
const OWN_CLOCK_US: f64 = 1.0;

/// Fills the cells of any window that tell how much the delays vary.
pub fn variation(row: &mut Row, timed: &[&Latencies]) {
    for (kind, cells) in VARIATION {
        for (cell, us) in cells.into_iter().zip(path::quantiles_us(kind, timed, cells.map(|(_, q)| q))) {
            row.set_number(cell.0, us);
        }
    }
}

/// Fills the other cells of the measure phase, if its test told the directions apart.
pub fn fill(row: &mut Row, found: Option<&OneWay>) {
    let Some(found) = found else { return };
    let us = |ns: f64| ns / 1000.0;
    let (offset, least, bound) = (found.offset_ns as f64, found.least_ns as f64, found.bound_ns as f64);
    // A time namespace has a clock of its own on the same machine.
    let shared = row.same_machine == Some(true) && offset.abs() <= bound;
    let (least_us, bound_us) =
        if shared { ([us(least + offset), us(least - offset)], OWN_CLOCK_US) } else { ([us(least); 2], us(bound)) };
    row.one_way_clock = Some(match (shared, found.kernel) {
        (true, _) => OneWayClock::Shared,
        (false, true) => OneWayClock::Kernel,
        (false, false) => OneWayClock::User,
    });
    row.one_way_bound_us = Some(bound_us);
    row.one_way_offset_us = Some(us(offset));
    row.one_way_drift_ppm = Some(found.drift_ppb as f64 / 1000.0);
    let asymmetry = least_us[0] - least_us[1];
    row.delay_asymmetry_us = (asymmetry.abs() >= 2.0 * bound_us).then_some(asymmetry);
    for ((least_us, delays), (_, variation)) in least_us.into_iter().zip(DELAY).zip(VARIATION) {
        let above = variation.map(|(cell, _)| row.number(cell));
        for (cell, above) in delays.into_iter().zip([Some(0.0)].into_iter().chain(above)) {
            let delay = above.map(|above| ((least_us.max(0.0) + above) * 1000.0).round() / 1000.0);
            row.set_number(cell, delay.filter(|delay| *delay >= bound_us));
        }
    }
    row.one_way_because = because(row);
}

/// The sentence of a row, from its cells.
pub fn because(row: &Row) -> Option<String> {
    let time = |us: f64| human(Unit::Microseconds, us);
    let bound = time(row.one_way_bound_us?);
    let above = |p50: Option<f64>, p99: Option<f64>| Some(format!("{} (99 % {})", time(p50?), time(p99?)));
    let forward = above(row.forward_variation_p50_us, row.forward_variation_p99_us)?;
    let reverse = above(row.reverse_variation_p50_us, row.reverse_variation_p99_us)?;
    let varies = format!("above the least delay: forward {forward}, reverse {reverse}");
    let limit = match row.one_way_clock? {
        OneWayClock::Shared => "both ends have one clock",
        _ => "half of the fastest round trip cannot be split further",
    };
    Some(match (row.forward_delay_p50_us.map(time), row.reverse_delay_p50_us.map(time)) {
        (Some(forward), Some(reverse)) => {
            format!("delay forward {forward}, reverse {reverse}, each ± {bound}: {limit}; {varies}")
        }
        (Some(forward), None) => {
            format!("delay forward {forward}, reverse less than its bound, ± {bound}: {limit}; {varies}")
        }
        (None, Some(reverse)) => {
            format!("delay reverse {reverse}, forward less than its bound, ± {bound}: {limit}; {varies}")
        }
        (None, None) => format!("{varies}; both delays are less than their bound, ± {bound}: {limit}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::rows::path::encoded;

    fn row(same_machine: bool, found: OneWay) -> Row {
        let of = |kind: &str, values: &[u64]| Latencies { kind: kind.into(), histogram: encoded(values) };
        let (forward, reverse) = (of("forward_variation", &[10_000_000; 10]), of("reverse_variation", &[10_000; 10]));
        let mut row = Row { same_machine: Some(same_machine), ..Row::default() };
        variation(&mut row, &[&forward, &reverse]);
        fill(&mut row, Some(&found));
        row
    }

    fn close(cell: Option<f64>, us: f64) -> bool {
        cell.is_some_and(|cell| (cell - us).abs() <= us.abs() / 500.0)
    }

    #[test]
    fn a_delay_that_the_clocks_do_not_show_is_left_out() {
        let found =
            OneWay { kernel: true, offset_ns: 7_000_000_000, bound_ns: 26_000, drift_ppb: -1500, least_ns: 25_000 };
        let row = row(true, found);
        assert!(close(row.forward_variation_p50_us, 10_000.0) && close(row.reverse_variation_p99_us, 10.0), "{row:?}");
        assert!(close(row.forward_delay_p50_us, 10_025.0) && close(row.reverse_delay_p50_us, 35.0), "{row:?}");
        assert_eq!((row.forward_delay_min_us, row.delay_asymmetry_us), (None, None));
        assert_eq!((row.one_way_clock, row.one_way_bound_us), (Some(OneWayClock::Kernel), Some(26.0)));
        assert_eq!((row.one_way_offset_us, row.one_way_drift_ppm), (Some(7_000_000.0), Some(-1.5)));
        let because = row.one_way_because.unwrap();
        assert!(because.contains("each ± 26.0 µs: half of the fastest"), "{because}");
    }

    #[test]
    fn the_bound_of_a_long_path_leaves_the_variation() {
        let found = OneWay { kernel: false, bound_ns: 12_500_000, least_ns: 12_499_000, ..OneWay::default() };
        let found = OneWay { offset_ns: 7_000_000_000, ..found };
        let row = row(false, found);
        assert!(close(row.forward_delay_p50_us, 22_499.0) && row.reverse_delay_p99_us.is_some(), "{row:?}");
        assert_eq!(row.one_way_clock, Some(OneWayClock::User));
        let mut none = Row::default();
        fill(&mut none, None);
        assert_eq!(none, Row::default());
    }

    #[test]
    fn one_clock_shows_an_asymmetry() {
        let found =
            OneWay { kernel: true, bound_ns: 12_500_000, least_ns: 12_500_000, offset_ns: 7_500_000, drift_ppb: 0 };
        let row = row(true, found);
        assert_eq!((row.one_way_clock, row.one_way_bound_us), (Some(OneWayClock::Shared), Some(OWN_CLOCK_US)));
        assert_eq!((row.forward_delay_min_us, row.reverse_delay_min_us), (Some(20_000.0), Some(5_000.0)));
        assert_eq!(row.delay_asymmetry_us, Some(15_000.0));
    }
}
