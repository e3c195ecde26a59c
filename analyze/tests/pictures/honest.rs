//! A picture never joins what differs, never leaves the range of its metric, and never draws a missing value.

use crate::{figure, figure_of, tables};
use analyze::plot::{
    self, Kind, Options, figure::Figure, font::Metrics, layer::Layer, options::Log, quantity::Spacing,
};
use proptest::prelude::*;
use schemas::{
    columns::Row,
    words::{OfferedUnit, Search, Way},
};
use std::collections::BTreeSet;

fn y(name: &str) -> Options {
    Options { y: Some(name.into()), ..Options::default() }
}

fn lines(figure: &Figure) -> Vec<Vec<(f64, f64)>> {
    let layers = figure.panels.iter().flat_map(|panel| &panel.layers);
    layers.filter_map(|l| if let Layer::Line { points, .. } = l { Some(points.clone()) } else { None }).collect()
}

fn fails(kind: Kind, table: &str, mut options: Options) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    std::fs::write(&path, table).unwrap();
    options.input.files = vec![path];
    plot::drawing(kind, &options).unwrap_err().to_string()
}

/// A bidirectional load and a probe beside it, in intervals.
fn soak() -> Vec<Row> {
    let mut rows = Vec::new();
    for step in 0..5_i32 {
        for (member, way, rate) in [
            ("load", Way::Forward, 8e9),
            ("load", Way::Reverse, 2e9),
            ("load", Way::Both, 10e9),
            ("probe", Way::Forward, 1600.0),
        ] {
            rows.push(Row {
                member: Some(member.into()),
                direction: Some(way),
                workload: Some(if member == "load" { "tcp_stream" } else { "tcp_rr" }.into()),
                start_s: Some(f64::from(step)),
                elapsed_s: Some(1.0),
                throughput_bits_per_s: Some(rate),
                transactions_per_s: (member == "probe").then_some(100.0),
                latency_p99_us: (member == "probe").then_some(40.0),
                ..tables::row("soak", "interval", 1)
            });
        }
    }
    rows
}

#[test]
fn directions_and_members_are_lines_of_their_own() {
    for options in [Options::default(), y("throughput")] {
        let drawn = figure(Kind::Timeseries, &soak(), options);
        let levels: Vec<f64> = lines(&drawn).iter().map(|line| line[0].1).collect();
        assert_eq!(levels, [8e9, 2e9, 10e9]);
        assert!(lines(&drawn).iter().all(|line| line.iter().all(|p| (p.1 - line[0].1).abs() < 1.0)));
        let labels: Vec<&str> = drawn.legend.iter().map(|e| e.label.as_str()).collect();
        assert_eq!(labels, ["upload", "download", "both ways"]);
        assert!(drawn.title.contains("load"), "{}", drawn.title);
        assert!(
            drawn.notes.iter().any(|n| n.starts_with("left out: 5 rows") && n.contains("soak probe")),
            "{:?}",
            drawn.notes
        );
    }
    let error =
        fails(Kind::Timeseries, &tables::csv(&soak()), Options { by: vec!["member".into()], ..y("throughput") });
    assert!(error.contains("`direction`") && error.contains("--by member,direction"), "{error}");
    let probe = figure(Kind::Timeseries, &soak(), y("latency.p99"));
    assert_eq!(lines(&probe).len(), 1);
}

#[test]
fn metrics_of_one_unit_are_lines_of_one_picture_over_time() {
    let mut rows = soak();
    for (step, row) in rows.iter_mut().filter(|row| row.member.as_deref() == Some("probe")).enumerate() {
        (row.forward_variation_p50_us, row.reverse_variation_p50_us) = (Some(50.0 + step as f64), Some(7.0));
    }
    let beside = |metric: &str| Options { beside: vec![metric.into()], ..y("forward_variation.p50") };
    let drawn = figure(Kind::Timeseries, &rows, beside("reverse_variation.p50"));
    assert_eq!(lines(&drawn).iter().map(|line| (line.len(), line[0].1)).collect::<Vec<_>>(), [(5, 50.0), (5, 7.0)]);
    let labels: Vec<&str> = drawn.legend.iter().map(|e| e.label.as_str()).collect();
    assert_eq!(labels, ["upload variation, median", "download variation, median"]);
    let error = fails(Kind::Timeseries, &tables::csv(&rows), beside("throughput"));
    assert!(error.contains("--beside throughput: its unit is not that of"), "{error}");
}

#[test]
fn distributions_of_one_unit_are_curves_of_one_picture() {
    let mut rows = tables::round_trips(&["rtt", "far"], 2);
    for (number, row) in rows.iter_mut().enumerate() {
        // Variations begin at 0, which has no place on a logarithmic axis.
        let of = |least: u64| Some(tables::histogram((0..1_000).map(|ns| ns * least * (number as u64 + 1))));
        (row.forward_variation_histogram, row.reverse_variation_histogram) = (of(40), of(9));
    }
    let beside = |metric: &str| Options {
        x: Some("forward_variation_histogram".into()),
        beside: vec![metric.into()],
        ..Options::default()
    };
    for kind in [Kind::Cdf, Kind::Percentiles] {
        let drawn = figure(kind, &rows, beside("reverse_variation_histogram"));
        let labels: Vec<&str> = drawn.legend.iter().map(|e| e.label.as_str()).collect();
        let expected =
            ["rtt upload variation", "far upload variation", "rtt download variation", "far download variation"];
        assert_eq!(labels, expected, "{kind:?}");
        assert!(drawn.title.ends_with("upload variation; download variation"), "{}", drawn.title);
        assert!(drawn.notes[0].ends_with("n = 2000 values"), "{:?}", drawn.notes);
        let error = fails(kind, &tables::csv(&rows), beside("transactions_per_s"));
        assert!(error.contains("its unit is not that of forward_variation_histogram, and a distribution"), "{error}");
    }
    let drawn = figure(Kind::Cdf, &rows, beside("reverse_variation_histogram"));
    assert!(drawn.x.min <= 0.009 && drawn.x.max >= 40.0 * 999.0 * 4.0 / 1000.0, "{} {}", drawn.x.min, drawn.x.max);
}

#[test]
fn bars_and_boxes_leave_out_what_has_no_value() {
    let mut rows = tables::sizes(&["bulk", "up"], 3, 16..=16);
    let rr =
        Row { workload: Some("tcp_rr".into()), transactions_per_s: Some(9e3), ..tables::row("rtt", "iteration", 1) };
    rows.push(rr.clone());
    rows.push(Row { throughput_bits_per_s: Some(1e5), ..rr });
    for kind in [Kind::Bars, Kind::Box] {
        let drawn = figure(kind, &rows, Options::default());
        assert_eq!(drawn.panels[0].y.names, ["bulk", "up"], "{kind:?}");
        assert!(drawn.notes.iter().any(|n| n.contains("left out: 2 rows") && n.contains("rtt")), "{:?}", drawn.notes);
    }
    let none = fails(Kind::Bars, &tables::csv(&rows), y("loss_ratio"));
    assert!(none.contains("nothing to draw") && none.contains("without loss"), "{none}");
}

/// A bar beside another is of the same rows, also where one of the metrics has no value.
#[test]
fn bars_side_by_side_stand_in_the_same_rows() {
    let mut rows = tables::sizes(&["bulk", "up", "down"], 3, 16..=16);
    for row in &mut rows {
        let test = row.test.clone().unwrap_or_default();
        row.local_cpu_peak_ratio = Some(if test == "down" { 0.25 } else { 0.5 });
        if test == "bulk" {
            row.throughput_bits_per_s = None;
        }
    }
    let drawn = figure(Kind::Bars, &rows, Options { beside: vec!["local_cpu_peak_ratio".into()], ..y("throughput") });
    assert_eq!(drawn.panels[0].y.names, ["up", "down", "bulk"]);
    let bars = |layers: &[Layer]| -> Vec<(f64, f64)> {
        let bar =
            |layer: &Layer| if let Layer::Box { from, to, .. } = layer { Some((from.1 + to.1, to.0)) } else { None };
        layers.iter().filter_map(bar).map(|(twice, length)| ((twice / 2.0).round(), length)).collect()
    };
    assert_eq!(bars(&drawn.panels[0].layers).len(), 2);
    let mut beside = bars(&drawn.beside[0].layers);
    beside.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(beside, [(0.0, 0.5), (1.0, 0.25), (2.0, 0.5)]);
}

#[test]
fn axes_and_intervals_stay_within_the_metric() {
    let mut rows = tables::sizes(&["udp"], 3, 10..=12);
    for (index, row) in rows.iter_mut().enumerate() {
        row.loss_ratio = Some([0.0, 0.0, 1.0][index % 3]);
    }
    for kind in [Kind::Sweep, Kind::Bars, Kind::Box] {
        let drawn = figure(kind, &rows, y("loss_ratio"));
        let axis = if kind == Kind::Sweep { &drawn.panels[0].y } else { &drawn.x };
        assert!(axis.min >= 0.0 && axis.max <= 1.0, "{kind:?}: {axis:?}");
        for layer in &drawn.panels[0].layers {
            if let Layer::Intervals { ranges, .. } = layer {
                assert!(ranges.iter().all(|(_, low, high)| *low >= 0.0 && *high <= 1.0), "{kind:?}: {ranges:?}");
            }
        }
    }
    // Less than nothing cannot be lost.
    let table = tables::verdicts().replace("-0.05", "-1.1").replace("-0.07", "-1.3");
    let drawn = figure_of(Kind::Compare, &table, Options::default());
    assert!(drawn.x.min >= -1.1 - 1e-9, "{:?}", drawn.x);
}

#[test]
fn the_rate_that_was_swept_is_on_the_axis() {
    let rows: Vec<Row> = [100e6, 300e6]
        .iter()
        .map(|bits: &f64| Row {
            case: Some(format!("loss[rate={}Mbit/s]", bits / 1e6)),
            offered_per_s: Some(bits / 8.0 / 1400.0),
            offered_unit: Some(OfferedUnit::Messages),
            message_bytes: Some(1400),
            loss_ratio: Some(0.0),
            ..tables::row("loss", "iteration", 1)
        })
        .collect();
    // By default, and as a plan names it.
    for x in [None, Some("rate".to_owned())] {
        let drawn = figure(Kind::Sweep, &rows, Options { x, ..y("loss_ratio") });
        assert_eq!(drawn.x.title(), "offered rate (Mbit/s)");
        assert!(drawn.x.min < 100e6 && drawn.x.max > 300e6 && drawn.x.max < 400e6, "{:?}", drawn.x);
        assert_eq!(drawn.panels[0].y.title(), "loss (%)");
    }
}

#[test]
fn a_search_has_a_mark_for_its_answer() {
    let probe = |load: u64, p99: f64, outcome: Search| Row {
        inflight: Some(load),
        latency_p99_us: Some(p99),
        search: Some(outcome),
        workload: Some("tcp_rr".into()),
        ..tables::row("in-time", "probe", load)
    };
    let mut rows = vec![
        probe(1, 20.0, Search::Held),
        probe(64, 3000.0, Search::Exceeded),
        probe(8, 200.0, Search::Held),
        probe(16, 1500.0, Search::Exceeded),
    ];
    rows.push(Row {
        record: Some("summary".parse().unwrap()),
        search_above: Some(16.0),
        ..probe(8, 200.0, Search::Found)
    });
    let mut options = Options { x: Some("inflight".into()), log: Some(Log::Xy), ..y("latency.p99") };
    options.selection.record = Some("probe".into());
    let drawn = figure(Kind::Sweep, &rows, options.clone());
    let rules: Vec<(f64, &str)> = drawn.panels[0]
        .layers
        .iter()
        .filter_map(|l| if let Layer::Rule { at, label, .. } = l { Some((*at, label.as_str())) } else { None })
        .collect();
    assert_eq!(rules, [(8.0, "holds up to 8")]);
    let labels: Vec<&str> = drawn.legend.iter().map(|e| e.label.as_str()).collect();
    assert_eq!(labels, ["held (2)", "did not hold (2)"]);
    assert_eq!(lines(&drawn).len(), 1);
    crate::check("search", &drawn);
    rows.pop();
    assert!(figure(Kind::Sweep, &rows, options).panels[0].layers.iter().all(|l| !matches!(l, Layer::Rule { .. })));
}

#[test]
fn a_signature_keeps_the_fastest_trial() {
    let row = |iteration: u64, min: f64| Row {
        workload: Some("tcp_pingpong".into()),
        request_bytes: Some(1000),
        response_bytes: Some(1000),
        latency_min_us: Some(min),
        latency_mean_us: Some(min * 2.0),
        throughput_bits_per_s: Some(1.0),
        ..tables::row("pingpong", "iteration", iteration)
    };
    let rows = [row(1, 30.0), row(2, 20.0), row(3, 40.0)];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    std::fs::write(&path, tables::csv(&rows)).unwrap();
    let mut options = y("latency.min");
    options.input.files = vec![path];
    let drawing = plot::drawing(Kind::Signature, &options).unwrap();
    // 8000 bits in half of 20 µs.
    let rate: f64 = drawing.points.rows[0][2].parse().unwrap();
    assert!((rate / 8e8 - 1.0).abs() < 1e-9, "{rate}");
    assert!(drawing.figure.notes[0].starts_with("fastest of iterations"), "{:?}", drawing.figure.notes);
}

#[test]
fn colours_over_decades_are_logarithmic() {
    let mut rows = tables::grid();
    let colours = |rows: &[Row], options: Options| figure(Kind::Heatmap, rows, options).colours.unwrap().spacing;
    assert_eq!(colours(&rows, Options::default()), Spacing::Log10);
    assert_eq!(colours(&rows, Options { log: Some(Log::None), ..Options::default() }), Spacing::Linear);
    for row in &mut rows {
        row.throughput_bits_per_s = row.streams.map(|n| 10.0 + n as f64);
    }
    assert_eq!(colours(&rows, Options::default()), Spacing::Linear);
    for row in &mut rows {
        row.throughput_bits_per_s = Some(if row.streams == Some(1) { 0.0 } else { 5.0 });
    }
    let zeros = figure(Kind::Heatmap, &rows, Options { log: Some(Log::Xy), ..Options::default() });
    assert!(zeros.notes.iter().any(|n| n.contains("crossed out: 8")), "{:?}", zeros.notes);
}

#[test]
fn too_many_series_are_a_sentence() {
    let names: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let error = fails(Kind::Sweep, &tables::csv(&tables::sizes(&names, 1, 6..=8)), Options::default());
    assert!(error.contains("30 series") && error.contains("`test`") && error.contains("--where"), "{error}");
    let error = fails(
        Kind::Bars,
        &tables::csv(&tables::sizes(&names, 1, 6..=10)),
        Options { x: Some("message_size".into()), ..Options::default() },
    );
    assert!(error.contains("do not fit on a page"), "{error}");
}

/// The identity of a row as a number, which its values say.
const STEP: f64 = 1e9;

prop_compose! {
    fn random_row()(
        test in 0..2_u64, member in 0..2_u64, way in 0..3_u64, host in 0..2_u64, run in 0..2_u64, streams in 0..2_u64,
        size in 0..4_u32, iteration in 1..3_u64, step in 0..4_i32, noise in 0.0..0.4_f64, loss in 0.0..=1.0_f64,
        latency in prop_oneof![Just(0.0), 1e-3..1e9_f64], missing in 0..8_u64, fixed in 0..64_u64,
    ) -> Row {
        // Most tables should have few identities, so that there are lines at all.
        let kept = |bit: u64, value: u64| if fixed & (1 << bit) == 0 { 0 } else { value };
        let (test, member, way) = (kept(0, test), kept(1, member), kept(2, way));
        let (host, run, streams) = (kept(3, host), kept(4, run), kept(5, streams));
        let identity = ((((test * 2 + member) * 3 + way) * 2 + host) * 2 + run) * 2 + streams;
        let bytes = 64_u64 << (size * 3);
        let test = ["bulk", "other"][usize::try_from(test).unwrap()];
        Row {
            run_id: Some(format!("run-{run}")),
            case: Some(format!("{test}[streams={},message_size={bytes}]", streams * 3 + 1)),
            member: (member > 0).then(|| "probe".to_owned()),
            direction: Some([Way::Forward, Way::Reverse, Way::Both][usize::try_from(way).unwrap()]),
            to: Some(["b", "c"][usize::try_from(host).unwrap()].into()),
            workload: Some("tcp_stream".into()),
            streams: Some(streams * 3 + 1),
            message_bytes: Some(bytes),
            start_s: Some(f64::from(step)),
            elapsed_s: Some(1.0),
            throughput_bits_per_s: (missing != 0).then_some((identity as f64 + 0.3 + noise) * STEP),
            loss_ratio: (missing != 1).then_some(loss),
            latency_mean_us: (missing != 2).then_some(latency),
            ..tables::row(test, "iteration", iteration)
        }
    }
}

/// Checks what holds for every picture. `Err` is fine: it must only be a sentence.
fn honest(kind: Kind, rows: &[Row], options: &Options) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    std::fs::write(&path, tables::csv(rows)).unwrap();
    let mut options = options.clone();
    options.input.files = vec![path];
    let figure = match plot::drawing(kind, &options) {
        Ok(drawing) => drawing.figure,
        Err(error) => {
            prop_assert!(error.to_string().contains(' '), "{error}");
            return Ok(());
        }
    };
    let encodes = options.y.is_none() || options.y.as_deref() == Some("throughput");
    for panel in &figure.panels {
        for axis in [&figure.x, &panel.y] {
            prop_assert!(axis.min < axis.max && axis.min.is_finite() && axis.max.is_finite(), "{kind:?}: {axis:?}");
            let range = axis.quantity.range;
            prop_assert!(axis.min >= range.low && axis.max <= range.high, "{kind:?}: {axis:?}");
        }
        for layer in &panel.layers {
            match layer {
                Layer::Line { points, .. } if matches!(kind, Kind::Sweep | Kind::Timeseries) && encodes => {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
                    let identities: BTreeSet<u64> = points.iter().map(|p| (p.1 / STEP) as u64).collect();
                    // The number of streams may go along with the size of messages, another value at each.
                    let along = kind == Kind::Sweep && identities.len() == points.len();
                    let origins: BTreeSet<u64> = identities.iter().map(|i| if along { i / 2 } else { *i }).collect();
                    prop_assert!(origins.len() <= 1, "{kind:?}: one line joins {identities:?}");
                }
                Layer::Intervals { ranges, sideways, .. } => {
                    let range = if *sideways { figure.x.quantity.range } else { panel.y.quantity.range };
                    for (_, low, high) in ranges {
                        prop_assert!(range.contains(*low) && range.contains(*high), "{kind:?}: {low} … {high}");
                    }
                }
                _ => {}
            }
        }
    }
    for (width, height) in [(1200.0, 700.0), (400.0, 300.0)] {
        let canvas = figure.draw(width, height, Metrics::font(plot::text_size(width, height)));
        for shape in &canvas.shapes {
            let points: Vec<(f64, f64)> = match shape {
                plot::canvas::Shape::Line { points, .. } | plot::canvas::Shape::Area { points, .. } => points.clone(),
                plot::canvas::Shape::Mark { at, .. } => vec![*at],
                plot::canvas::Shape::Text(text) => vec![text.at],
            };
            for (x, y) in points {
                let inside = (-0.5..=width + 0.5).contains(&x) && (-0.5..=height + 0.5).contains(&y);
                prop_assert!(inside, "{kind:?}: {x} {y} is outside of {width}x{height}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_picture_is_honest(
        rows in prop::collection::vec(random_row(), 1..40),
        metric in prop::sample::select(vec![None, Some("throughput"), Some("loss_ratio"), Some("latency.mean")]),
        log in prop::sample::select(vec![None, Some(Log::None), Some(Log::Xy)]),
    ) {
        let options = Options { y: metric.map(str::to_owned), log, ..Options::default() };
        let size = Options { x: Some("message_bytes".into()), ..options.clone() };
        honest(Kind::Sweep, &rows, &options)?;
        honest(Kind::Sweep, &rows, &size)?;
        honest(Kind::Box, &rows, &options)?;
        let plain = Options { log: None, ..options.clone() };
        honest(Kind::Bars, &rows, &plain)?;
        honest(Kind::Bars, &rows, &Options { x: Some("streams".into()), ..plain.clone() })?;
        let value = Options { y: None, value: options.y.clone(), ..options.clone() };
        honest(Kind::Heatmap, &rows, &value)?;
        honest(Kind::Cdf, &rows, &Options { x: options.y.clone(), y: None, ..options.clone() })?;
        honest(Kind::Percentiles, &rows, &options)?;
        honest(Kind::Signature, &rows, &Options { y: None, ..options.clone() })?;
        honest(Kind::Saturation, &rows, &Options { y: None, ..options.clone() })?;
        let timed: Vec<Row> =
            rows.iter().map(|row| Row { record: Some("interval".parse().unwrap()), ..row.clone() }).collect();
        honest(Kind::Timeseries, &timed, &options)?;
    }
}

/// Rows that every kind of picture can draw, with these values of every metric, in order.
fn shaped(values: &[f64], series: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in &tables::TWELVE[..series] {
        for (step, value) in values.iter().enumerate() {
            for record in ["iteration", "interval"] {
                rows.push(Row {
                    workload: Some("tcp_pingpong".into()),
                    streams: Some(1 + step as u64 % 2),
                    request_bytes: Some(64 << step),
                    response_bytes: Some(64 << step),
                    start_s: Some(step as f64 * 0.1),
                    elapsed_s: Some(0.1),
                    throughput_bits_per_s: Some(*value),
                    transactions_per_s: Some(*value),
                    latency_mean_us: Some(*value),
                    local_cpu_ratio: Some(0.5),
                    local_cpu_user_ratio: Some(0.5),
                    remote_cpu_user_ratio: Some(0.0),
                    ..tables::row(name, record, 1)
                });
            }
        }
    }
    rows
}

#[test]
fn every_kind_takes_every_shape() {
    let shapes: [(&str, Vec<Row>); 7] = [
        ("empty", Vec::new()),
        ("point", shaped(&[5.0], 1)),
        ("zeros", shaped(&[0.0, 0.0, 0.0], 1)),
        ("some-zeros", shaped(&[0.0, 3.0, 400.0], 2)),
        ("wide", shaped(&[1e-6, 1.0, 1e6, 1e12], 1)),
        ("narrow", shaped(&[1e9, 1e9 + 1.0, 1e9 + 2.0], 1)),
        ("twelve", shaped(&[10.0, 20.0, 15.0], 12)),
    ];
    for kind in <Kind as clap::ValueEnum>::value_variants() {
        for (shape, rows) in &shapes {
            for log in [None, Some(Log::Xy), Some(Log::None)] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("results.csv");
                std::fs::write(&path, tables::csv(rows)).unwrap();
                let mut options = Options { log, ..Options::default() };
                options.input.files = vec![path];
                match plot::drawing(*kind, &options) {
                    Ok(drawing) => crate::check(&format!("{kind:?}-{shape}-{log:?}"), &drawing.figure),
                    Err(error) => assert!(error.to_string().len() > 30, "{kind:?} {shape}: {error}"),
                }
            }
        }
    }
}
