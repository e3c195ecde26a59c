//! The delays of the two directions: how much each varies, and how long it is where the clocks are known well enough.

use netcore::{
    measure::envelope::DRIFT_PER_MILLION,
    report::{ClockReading, Latencies, OneWay, Phase, Reflector, SideReport},
};
use schemas::{
    columns::{Row, results::column},
    run_record::ClocksRecord,
    time,
    units::{Unit, human},
    words::OneWayClock,
};

use super::{limits, path, window::Pair};

/// Kinds of latencies, and the cells of their percentiles.
const VARIATION: [(&str, &[(&str, f64)]); 2] = [
    (
        "forward_variation",
        &[
            (column::forward_variation_p50_us, 0.5),
            (column::forward_variation_p95_us, 0.95),
            (column::forward_variation_p99_us, 0.99),
        ],
    ),
    (
        "reverse_variation",
        &[
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

/// Kinds of times in the hosts, and the cells of their percentiles.
const IN_HOSTS: [(&str, &[(&str, f64)]); 4] = [
    ("forward_sender_host", &[(column::forward_sender_host_p50_us, 0.5), (column::forward_sender_host_p95_us, 0.95)]),
    (
        "forward_receiver_host",
        &[(column::forward_receiver_host_p50_us, 0.5), (column::forward_receiver_host_p95_us, 0.95)],
    ),
    ("reverse_sender_host", &[(column::reverse_sender_host_p50_us, 0.5), (column::reverse_sender_host_p95_us, 0.95)]),
    (
        "reverse_receiver_host",
        &[(column::reverse_receiver_host_p50_us, 0.5), (column::reverse_receiver_host_p95_us, 0.95)],
    ),
];

/// The bound of one clock with itself, microseconds: the readings take time.
const OWN_CLOCK_US: f64 = 1.0;

/// Fills the cells of any window that tell how much the delays vary, and how long messages were in the hosts.
pub fn variation(row: &mut Row, timed: &[&Latencies]) {
    let variation = VARIATION.map(|(kind, cells)| path::fill_quantiles(row, kind, timed, cells));
    [row.forward_variation_histogram, row.reverse_variation_histogram] = variation;
    for (kind, cells) in IN_HOSTS {
        path::fill_quantiles(row, kind, timed, cells);
    }
}

/// The offset of the two clocks at the begin of the measure phase and the bound of its error, nanoseconds, by what both kernels say of
/// their wall clocks. `None`: one is not synchronised, or was set in the middle; the round trips know it better, or contradict it.
pub fn by_kernels(found: &OneWay, near: &SideReport, far: &SideReport) -> Option<(f64, f64)> {
    /// The most by which a kernel slews its clock for a daemon, as a divisor of the time.
    const SLEWED: i64 = 2_000;
    let (ours, theirs) = (near.clocks.as_ref()?, far.clocks.as_ref()?);
    let was_set = |(from, to): &(ClockReading, ClockReading)| {
        let change = to.since(from);
        change.stepped_ns.unsigned_abs() > change.within_ns
    };
    let ahead = |clock: &ClockReading| i128::from(clock.raw_ns) - i128::from(clock.wall_ns);
    let at = |ours: &ClockReading, theirs: &ClockReading| {
        // The two readings are not of the same instant.
        let apart = ours.wall_ns.saturating_sub(theirs.wall_ns).saturating_abs() / SLEWED;
        let errors = ours.wall_error_ns?.checked_add(theirs.wall_error_ns?)?;
        let readings = ours.within_ns.checked_add(theirs.within_ns)?.checked_add(apart.unsigned_abs())?;
        Some(((ahead(theirs) - ahead(ours)) as f64, errors.checked_add(readings)? as f64))
    };
    let ((begin, begin_bound), (end, end_bound)) = (at(&ours.0, &theirs.0)?, at(&ours.1, &theirs.1)?);
    // The variation is that above a line of the round trips' drift.
    let passed_s = ours.1.raw_ns.saturating_sub(ours.0.raw_ns) as f64 / 1e9;
    let bound = begin_bound.max(end_bound) + (end - begin - found.drift_ppb as f64 * passed_s).abs();
    let agrees = (begin - found.offset_ns as f64).abs() <= bound + found.bound_ns as f64;
    let is_better = bound < found.bound_ns as f64;
    (!was_set(ours) && !was_set(theirs) && agrees && is_better).then_some((begin, bound))
}

/// The clock by which the delays are told, the offset of the two clocks by it, and the bound of its error, nanoseconds. `known`: the
/// offset [`by_kernels`].
fn source(
    found: &OneWay,
    known: Option<(f64, f64)>,
    reflector: Option<&Reflector>,
    same_machine: Option<bool>,
) -> (OneWayClock, f64, f64) {
    let (offset, bound) = (found.offset_ns as f64, found.bound_ns as f64);
    // A time namespace has a clock of its own on the same machine.
    let shared = same_machine == Some(true) && offset.abs() <= bound;
    let truth = if shared { Some((0.0, OWN_CLOCK_US * 1000.0)) } else { known };
    // Without another source the least delay is the same in both directions.
    let (truth, bound) = truth.unwrap_or((offset, bound));
    let clock = match (shared, known, found.kernel) {
        _ if reflector.is_some() => OneWayClock::Reflector,
        (true, ..) => OneWayClock::Shared,
        (false, Some(_), _) => OneWayClock::Synchronised,
        (false, None, true) => OneWayClock::Kernel,
        (false, None, false) => OneWayClock::User,
    };
    (clock, truth, bound)
}

/// The relation of the two hosts' clocks, for `run.json`.
pub fn record(near: &SideReport, far: Option<&SideReport>) -> Option<ClocksRecord> {
    let found = near.one_way.as_ref()?;
    let pair = Pair { near: near.phase(Phase::Measure), far: far.and_then(|far| far.phase(Phase::Measure)) };
    let known = far.and_then(|far| by_kernels(found, near, far));
    let (clock, _, bound_ns) = source(found, known, near.reflector.as_ref(), limits::same_machine(pair));
    let error_us = |end: &SideReport| {
        let (begin, end) = end.clocks.as_ref()?;
        Some(begin.wall_error_ns?.max(end.wall_error_ns?) as f64 / 1000.0)
    };
    Some(ClocksRecord {
        source: clock.as_str().to_owned(),
        bound_us: bound_ns / 1000.0,
        round_trips_bound_us: found.bound_ns as f64 / 1000.0,
        near_wall_error_us: error_us(near),
        far_wall_error_us: far.and_then(error_us),
        drift_ppm: found.drift_ppb as f64 / 1000.0,
    })
}

/// Fills the other cells of the measure phase, if its test told the directions apart. `known`: the offset [`by_kernels`].
pub fn fill(row: &mut Row, found: Option<&OneWay>, known: Option<(f64, f64)>, reflector: Option<&Reflector>) {
    if let Some(reflector) = reflector {
        (row.forward_lost, row.reverse_lost) = reflector.lost.unzip();
        row.forward_ttl = reflector.ttl.map(u64::from);
    }
    let Some(found) = found else {
        row.one_way_because = because(row);
        return;
    };
    let us = |ns: f64| ns / 1000.0;
    let (offset, least) = (found.offset_ns as f64, found.least_ns as f64);
    let (clock, truth, bound) = source(found, known, reflector, row.same_machine);
    let (least_us, bound_us) = ([us(least + offset - truth), us(least - offset + truth)], us(bound));
    row.one_way_clock = Some(clock);
    row.one_way_bound_us = Some(bound_us);
    // A reflector has the wall clock, whose distance to a clock that counts from a boot means nothing.
    row.one_way_offset_us = reflector.is_none().then(|| us(offset));
    row.one_way_least_us = Some(us(least));
    row.one_way_drift_ppm = Some(found.drift_ppb as f64 / 1000.0);
    let asymmetry = least_us[0] - least_us[1];
    row.delay_asymmetry_us = (asymmetry.abs() >= 2.0 * bound_us).then_some(asymmetry);
    for ((least_us, delays), (_, variation)) in least_us.into_iter().zip(DELAY).zip(VARIATION) {
        let above: Vec<Option<f64>> = variation.iter().map(|(cell, _)| row.number(cell)).collect();
        for (cell, above) in delays.into_iter().zip([Some(0.0)].into_iter().chain(above)) {
            let delay = above.map(|above| ((least_us.max(0.0) + above) * 1000.0).round() / 1000.0);
            row.set_number(cell, delay.filter(|delay| *delay >= bound_us));
        }
    }
    row.one_way_because = because(row);
}

/// The median delays that a load adds to requests and to answers, microseconds, from a probe under it and one on the idle path
/// between the same hosts. `None`: one of them did not tell the directions apart, or a clock jumped between the two.
pub fn added(probe: &Row, idle: &Row) -> Option<[f64; 2]> {
    let same_hosts = (&probe.from, &probe.to) == (&idle.from, &idle.to);
    let begin = |row: &Row| Some(time::epoch_seconds(time::parse(&row.time.as_ref()?.0)?) - row.elapsed_s?);
    let passed_s = begin(probe)? - begin(idle)?;
    let moved = probe.one_way_offset_us? - idle.one_way_offset_us?;
    let most = DRIFT_PER_MILLION as f64 * passed_s.abs() + probe.one_way_bound_us? + idle.one_way_bound_us?;
    // The sum of offset and least delay is what the messages showed: the split between the two falls out.
    let grown = |cell: fn(&Row) -> Option<f64>| Some(cell(probe)? - cell(idle)?);
    let least = grown(|row| row.one_way_least_us)?;
    let apart = moved - passed_s * idle.one_way_drift_ppm?;
    let forward = least + apart + grown(|row| row.forward_variation_p50_us)?;
    let reverse = least - apart + grown(|row| row.reverse_variation_p50_us)?;
    // Ends with one clock have its bound in their rows, and a standing queue moves the middle of the gap by more.
    let one_source = [Some(OneWayClock::Shared), Some(OneWayClock::Synchronised)];
    let is_shared = [probe, idle].iter().all(|row| one_source.contains(&row.one_way_clock));
    (same_hosts && (is_shared || moved.abs() <= most)).then_some([forward, reverse])
}

/// The delay that a load adds to each direction, in words.
pub fn filled(forward_us: f64, reverse_us: f64) -> String {
    let signed = |us: f64| format!("{} {}", if us < 0.0 { '−' } else { '+' }, human(Unit::Microseconds, us.abs()));
    format!("under load upload {}, download {}", signed(forward_us), signed(reverse_us))
}

/// The parts of the delays that lay in the hosts, in words.
fn in_hosts(row: &Row) -> Option<String> {
    let both = |p50: Option<f64>, p95: Option<f64>| {
        let [p50, p95] = [p50?, p95?].map(|us| human(Unit::Microseconds, us));
        Some(format!("{p50} (95 % {p95})"))
    };
    Some(format!(
        "; in the sender's host upload {}, download {}, in the receiver's upload {}, download {}",
        both(row.forward_sender_host_p50_us, row.forward_sender_host_p95_us)?,
        both(row.reverse_sender_host_p50_us, row.reverse_sender_host_p95_us)?,
        both(row.forward_receiver_host_p50_us, row.forward_receiver_host_p95_us)?,
        both(row.reverse_receiver_host_p50_us, row.reverse_receiver_host_p95_us)?,
    ))
}

/// The sentence of a row, from its cells.
pub fn because(row: &Row) -> Option<String> {
    let shown = |us: f64| human(Unit::Microseconds, us);
    let above =
        |way: &str, p50: Option<f64>, p99: Option<f64>| Some(format!("{way} {} (99 % {})", shown(p50?), shown(p99?)));
    let ways = [
        above("upload", row.forward_variation_p50_us, row.forward_variation_p99_us),
        above("download", row.reverse_variation_p50_us, row.reverse_variation_p99_us),
    ];
    let ways = ways.into_iter().flatten().reduce(|forward, reverse| format!("{forward}, {reverse}"))?;
    let varies = format!("above the least delay: {ways}{}", in_hosts(row).unwrap_or_default());
    // A stream has no answers, so only the variation of its direction is known.
    let Some(bound) = row.one_way_bound_us.map(shown) else { return Some(varies) };
    let limit = match row.one_way_clock? {
        OneWayClock::Shared => "both ends have one clock",
        OneWayClock::Synchronised => "by the time to which both hosts keep their clocks",
        _ => "half of the fastest round trip cannot be split further",
    };
    let varies = match (row.added_forward_p50_us, row.added_reverse_p50_us) {
        (Some(forward), Some(reverse)) => format!("{}; {varies}", filled(forward, reverse)),
        _ => varies,
    };
    Some(match (row.forward_delay_p50_us.map(shown), row.reverse_delay_p50_us.map(shown)) {
        (Some(forward), Some(reverse)) => {
            format!("delay: upload {forward}, download {reverse}, each ± {bound}: {limit}; {varies}")
        }
        (Some(forward), None) => {
            format!("delay: upload {forward}, download less than its bound, ± {bound}: {limit}; {varies}")
        }
        (None, Some(reverse)) => {
            format!("delay: download {reverse}, upload less than its bound, ± {bound}: {limit}; {varies}")
        }
        (None, None) => format!("{varies}; both delays are less than their bound, ± {bound}: {limit}"),
    })
}

#[cfg(test)]
mod tests {
    use netcore::{report::Ending, spec::Side};

    use super::*;
    use crate::schedule::rows::path::encoded;

    fn row(same_machine: bool, found: OneWay) -> Row {
        let of = |kind: &str, values: &[u64]| Latencies { kind: kind.into(), histogram: encoded(values) };
        let (forward, reverse) = (of("forward_variation", &[10_000_000; 10]), of("reverse_variation", &[10_000; 10]));
        let mut row = Row { same_machine: Some(same_machine), ..Row::default() };
        variation(&mut row, &[&forward, &reverse]);
        fill(&mut row, Some(&found), None, None);
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
        let stream = Latencies { kind: "reverse_variation".into(), histogram: encoded(&[10_000; 10]) };
        let mut of_stream = Row::default();
        variation(&mut of_stream, &[&stream]);
        fill(&mut of_stream, None, None, None);
        let because = of_stream.one_way_because.unwrap();
        assert!(because.starts_with("above the least delay: download 10.0 µs (99 % 10.0"), "{because}");
        let mut none = Row::default();
        fill(&mut none, None, None, None);
        assert_eq!(none, Row::default());
    }

    /// The clocks drift by 50 µs a second; the load fills the way of the requests, so that the middle of the gap moves by half of it.
    #[test]
    fn what_a_load_adds_to_each_direction_needs_no_common_clock() {
        let at = |s: i64, offset_us: f64, least_us: f64, variation_us: [f64; 2]| Row {
            time: Some(time::from_unix_ns(1_700_000_000_000_000_000 + s * 1_000_000_000)),
            elapsed_s: Some(1.0),
            one_way_offset_us: Some(offset_us),
            one_way_least_us: Some(least_us),
            one_way_drift_ppm: Some(50.0),
            one_way_bound_us: Some(least_us + 1.0),
            forward_variation_p50_us: Some(variation_us[0]),
            reverse_variation_p50_us: Some(variation_us[1]),
            ..Row::default()
        };
        let idle = at(0, 7_000_000.0, 20.0, [5.0, 6.0]);
        let loaded = at(10, 7_000_000.0 + 500.0 + 10_000.0, 10_020.0, [30_005.0, 8.0]);
        let [forward, reverse] = added(&loaded, &idle).unwrap();
        assert!((forward - 50_000.0).abs() < 0.1 && (reverse - 2.0).abs() < 0.1, "{forward} {reverse}");
        assert_eq!(filled(forward, -2.0), "under load upload + 50.0 ms, download − 2.00 µs");
        assert_eq!(added(&Row { one_way_offset_us: Some(9_000_000.0), ..loaded.clone() }, &idle), None);
        let shared = |row: &Row| Row {
            one_way_clock: Some(OneWayClock::Shared),
            one_way_bound_us: Some(OWN_CLOCK_US),
            ..row.clone()
        };
        assert_eq!(added(&shared(&loaded), &shared(&idle)), Some([forward, reverse]));
        assert_eq!(added(&Row { to: Some("another".into()), ..loaded.clone() }, &idle), None);
        assert_eq!(added(&loaded, &Row::default()), None);
    }

    /// A path of 20 ms there and 5 ms back between hosts whose wall clocks are known to 200 µs each. Theirs booted 7 s later.
    #[test]
    fn clocks_that_are_kept_to_one_time_show_what_round_trips_cannot() {
        let found = OneWay {
            kernel: true,
            bound_ns: 12_500_000,
            least_ns: 12_500_000,
            offset_ns: -6_992_500_000,
            drift_ppb: 0,
        };
        let end = |side, raw_ns: u64, errors: [Option<u64>; 2], step_ns: i64| {
            let clocks = |passed_ns: u64, error, step_ns| ClockReading {
                raw_ns: raw_ns + passed_ns,
                monotonic_ns: raw_ns + passed_ns,
                boot_ns: raw_ns + passed_ns,
                wall_ns: 1_700_000_000_000_000_000 + passed_ns.cast_signed() + step_ns,
                within_ns: 1_000,
                wall_error_ns: error,
            };
            let clocks = Some((clocks(0, errors[0], 0), clocks(1_000_000_000, errors[1], step_ns)));
            SideReport { clocks, ..SideReport::empty(side, Ending::Complete) }
        };
        let near = |errors, step_ns| end(Side::Near, 100_000_000_000, errors, step_ns);
        let far = end(Side::Far, 93_000_000_000, [Some(200_000); 2], 0);
        let good = [Some(200_000), Some(150_000)];
        let known = by_kernels(&found, &near(good, 0), &far).unwrap();
        assert_eq!(known, (-7_000_000_000.0, 402_000.0));
        let mut row = Row { same_machine: Some(false), ..Row::default() };
        fill(&mut row, Some(&found), Some(known), None);
        assert_eq!((row.one_way_clock, row.one_way_bound_us), (Some(OneWayClock::Synchronised), Some(402.0)));
        assert_eq!((row.forward_delay_min_us, row.reverse_delay_min_us), (Some(20_000.0), Some(5_000.0)));
        assert_eq!(row.delay_asymmetry_us, Some(15_000.0));
        let told = SideReport { one_way: Some(found), ..near(good, 0) };
        let expected = ClocksRecord {
            source: "synchronised".into(),
            bound_us: 402.0,
            round_trips_bound_us: 12_500.0,
            near_wall_error_us: Some(200.0),
            far_wall_error_us: Some(200.0),
            drift_ppm: 0.0,
        };
        assert_eq!(record(&told, Some(&far)), Some(expected.clone()));
        let alone = ClocksRecord { source: "kernel".into(), bound_us: 12_500.0, far_wall_error_us: None, ..expected };
        assert_eq!((record(&told, None), record(&near(good, 0), Some(&far))), (Some(alone), None));
        // Not synchronised at both edges, less well known than by the round trips, set in the middle, or a lie.
        for errors in [[None, Some(1)], [Some(1), None], [Some(12_400_000); 2]] {
            assert_eq!(by_kernels(&found, &near(errors, 0), &far), None, "{errors:?}");
        }
        assert_eq!(by_kernels(&found, &near(good, 3_000_000), &far), None);
        let elsewhere = OneWay { offset_ns: -6_900_000_000, ..found };
        assert_eq!(by_kernels(&elsewhere, &near(good, 0), &far), None);
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
