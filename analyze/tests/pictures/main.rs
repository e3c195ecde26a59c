//! Draws every kind of picture from tables like the runner's, at usual sizes, with one series and with twelve. No text
//! may leave the picture or cover another. `PLUMB_PICTURES=FOLDER` writes the pictures there for a look.

mod extremes;
mod files;
mod gallery;
mod golden;
mod honest;
mod report;
mod tables;
mod trend;

use analyze::plot::{self, Kind, Options, Paper, figure::Figure, font::Metrics};
use schemas::columns::Row;

/// A figure of rows.
fn figure(kind: Kind, rows: &[Row], options: Options) -> Figure {
    figure_of(kind, &tables::csv(rows), options)
}

/// A figure of a table.
fn figure_of(kind: Kind, table: &str, mut options: Options) -> Figure {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    std::fs::write(&path, table).unwrap();
    options.input.files = vec![path];
    plot::drawing(kind, &options).unwrap().figure
}

/// Draws at three sizes and checks the places of texts.
fn check(name: &str, figure: &Figure) {
    for (width, height) in [(1200, 700), (600, 350), (400, 300)] {
        let options = Paper { size: Some(plot::options::Size { width, height }), ..Paper::default() };
        let (w, h) = (f64::from(width), f64::from(height));
        let canvas = figure.draw(w, h, Metrics::font(plot::text_size(w, h)));
        let boxes = canvas.text_boxes();
        for (i, (text, [left, top, right, bottom])) in boxes.iter().enumerate() {
            assert!(
                *left >= 0.0 && *top >= 0.0 && *right <= w && *bottom <= h,
                "{name} at {width}x{height}: `{text}` leaves the picture"
            );
            for (other, [l, t, r, b]) in &boxes[..i] {
                let apart = right <= l || r <= left || bottom <= t || b <= top;
                assert!(apart, "{name} at {width}x{height}: `{text}` covers `{other}`");
            }
        }
        if let Some(folder) = std::env::var_os("PLUMB_PICTURES").filter(|_| width >= 600) {
            let file = std::path::Path::new(&folder).join(format!("{name}-{width}.png"));
            std::fs::write(file, plot::to_png(figure, &options).unwrap()).unwrap();
            let file = std::path::Path::new(&folder).join(format!("{name}-{width}.svg"));
            std::fs::write(file, plot::to_svg(figure, &options).unwrap()).unwrap();
        }
    }
    let text = plot::term::characters(figure, 100, 30, false);
    assert!(text.lines().count() == 30 && text.lines().all(|l| l.chars().count() <= 100));
    if let Some(folder) = std::env::var_os("PLUMB_PICTURES") {
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.txt")), text).unwrap();
    }
}

#[test]
fn sweep() {
    let log = |axes| Options { log: Some(axes), ..Options::default() };
    check("sweep-one", &figure(Kind::Sweep, &tables::sizes(&["bulk"], 5, 0..=20), Options::default()));
    check(
        "sweep-three",
        &figure(Kind::Sweep, &tables::sizes(&tables::TWELVE[..3], 5, 0..=20), log(plot::options::Log::Xy)),
    );
    check("sweep-twelve", &figure(Kind::Sweep, &tables::sizes(&tables::TWELVE, 3, 6..=16), Options::default()));
    let size = Options { x: Some("message_size".into()), ..Options::default() };
    check("sweep-point", &figure(Kind::Sweep, &tables::sizes(&["bulk"], 1, 16..=16), size));
    // Half of the peak, at a curve that is near the top there: its name must not lie on it. The metric may go by either name.
    let options = Options { y: Some("throughput".into()), ..log(plot::options::Log::Xy) };
    let steep = figure(Kind::Sweep, &tables::sizes(&["bulk"], 5, 0..=20), options);
    check("sweep-half", &steep);
    let canvas = steep.draw(600.0, 350.0, Metrics::font(plot::text_size(600.0, 350.0)));
    let place = canvas.text_boxes().into_iter().find(|(text, _)| text.starts_with("half the peak")).unwrap().1;
    let mut others = canvas.clone();
    others.shapes.retain(|s| !matches!(s, plot::canvas::Shape::Text(t) if t.text.starts_with("half the peak")));
    assert!(others.crowd(place) < 1.0, "{}", others.crowd(place));
    let marks = vec!["1500=MTU".to_owned(), "1MiB=L2 cache".to_owned()];
    let options = Options { marks, zoom: true, ..Options::default() };
    check("sweep-zoom", &figure(Kind::Sweep, &tables::sizes(&["bulk", "other"], 2, 10..=20), options));
}

#[test]
fn timeseries() {
    check("timeseries-one", &figure(Kind::Timeseries, &tables::intervals(&["bulk"], 1), Options::default()));
    check(
        "timeseries-iterations",
        &figure(Kind::Timeseries, &tables::intervals(&["bulk", "up"], 3), Options::default()),
    );
    check("timeseries-twelve", &figure(Kind::Timeseries, &tables::intervals(&tables::TWELVE, 1), Options::default()));
}

#[test]
fn netpipe() {
    for kind in [Kind::Signature, Kind::Saturation] {
        let name = format!("{kind:?}").to_lowercase();
        check(&format!("{name}-one"), &figure(kind, &tables::sizes(&["bulk"], 3, 0..=22), Options::default()));
        check(&format!("{name}-twelve"), &figure(kind, &tables::sizes(&tables::TWELVE, 3, 0..=20), Options::default()));
        check(&format!("{name}-point"), &figure(kind, &tables::sizes(&["bulk"], 1, 10..=10), Options::default()));
    }
}

#[test]
fn distributions() {
    for kind in [Kind::Cdf, Kind::Percentiles] {
        let name = format!("{kind:?}").to_lowercase();
        check(&format!("{name}-one"), &figure(kind, &tables::round_trips(&["rtt"], 2), Options::default()));
        check(&format!("{name}-twelve"), &figure(kind, &tables::round_trips(&tables::TWELVE, 1), Options::default()));
        let log = Options { log: Some(plot::options::Log::Xy), ..Options::default() };
        check(&format!("{name}-log"), &figure(kind, &tables::round_trips(&["rtt", "other"], 2), log));
    }
    let column = Options { x: Some("throughput".into()), ..Options::default() };
    check("cdf-column", &figure(Kind::Cdf, &tables::sizes(&["bulk"], 30, 16..=16), column));
}

#[test]
fn names() {
    for kind in [Kind::Bars, Kind::Box] {
        let name = format!("{kind:?}").to_lowercase();
        check(&format!("{name}-one"), &figure(kind, &tables::sizes(&["bulk"], 12, 16..=16), Options::default()));
        check(
            &format!("{name}-twelve"),
            &figure(kind, &tables::sizes(&tables::TWELVE, 8, 16..=16), Options::default()),
        );
        let grouped = Options { x: Some("message_bytes".into()), ..Options::default() };
        let many = Options { x: Some("message_bytes".into()), ..Options::default() };
        check(&format!("{name}-many"), &figure(kind, &tables::sizes(&tables::TWELVE, 4, 16..=17), many));
        let names: Vec<String> = (1..=12)
            .map(|n| format!("{}{n}[socket.congestion_control=cubic]", "a-rather-long-name-".repeat(5)))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let long = figure(kind, &tables::sizes(&names, 4, 16..=16), Options::default());
        check(&format!("{name}-long"), &long);
        let canvas = long.draw(600.0, 350.0, Metrics::font(plot::text_size(600.0, 350.0)));
        let mut seen: Vec<&str> = canvas.text_boxes().into_iter().map(|b| b.0).filter(|t| t.starts_with('a')).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 12, "{seen:?}");
        check(&format!("{name}-grouped"), &figure(kind, &tables::sizes(&["bulk", "up", "down"], 8, 16..=19), grouped));
    }
}

#[test]
fn heatmap() {
    check("heatmap", &figure(Kind::Heatmap, &tables::grid(), Options::default()));
    // Numbers of many digits: they fit into the cells of a large picture, and are not in those of a small one.
    let mut wide = tables::grid();
    for row in &mut wide {
        row.throughput_bits_per_s = row.message_bytes.map(|bytes| bytes as f64 * 1e6);
    }
    check("heatmap-digits", &figure(Kind::Heatmap, &wide, Options::default()));
    let latency = Options { y: Some("latency".into()), ..Options::default() };
    let mut twice = tables::latency_intervals();
    twice.extend(tables::latency_intervals().into_iter().map(|row| Row { iteration: Some(2), ..row }));
    let options = Options { y: Some("latency".into()), ..Options::default() };
    let once = figure(Kind::Heatmap, &tables::latency_intervals(), options.clone());
    // Two iterations would lie on each other.
    assert_eq!(figure(Kind::Heatmap, &twice, options).panels[0].layers.len(), once.panels[0].layers.len());
    check("heatmap-latency", &figure(Kind::Heatmap, &tables::latency_intervals(), latency));
}

#[test]
fn pairs_of_hosts() {
    let hosts = || Options { x: Some("to".into()), y: Some("from".into()), ..Options::default() };
    for count in [8, 64] {
        let drawn = figure(Kind::Heatmap, &tables::survey(count), hosts());
        check(&format!("pairs-{count}"), &drawn);
        let labels: Vec<&str> = drawn.legend.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(labels, ["a host with itself", "failed", "not measured"]);
        assert_eq!(drawn.x.names[..3], ["node1", "node2", "node3"]);
        assert_eq!(drawn.x.names.last(), Some(&format!("node{count}")));
        let suspects = drawn.notes.iter().find(|note| note.starts_with("suspects: ")).unwrap();
        assert!(suspects.contains("node3 in both directions 6.") && suspects.contains("node2>node5 1"), "{suspects}");
        let crosses = drawn.panels[0].layers.iter().filter_map(|layer| match layer {
            plot::layer::Layer::Marks { points, .. } => Some(points.clone()),
            _ => None,
        });
        assert_eq!(crosses.collect::<Vec<_>>().concat(), [(0.0, 6.0)], "from node7 down, to node1 across");
    }
    // Without names for the axes, a table whose pairs were swept is one of pairs.
    let table = tables::csv(&tables::survey(8));
    let ends = |i: usize| if i == 0 { "axis_from,axis_to" } else { "x,y" };
    let swept: Vec<String> = table.lines().enumerate().map(|(i, line)| format!("{line},{}\n", ends(i))).collect();
    let swept = swept.concat();
    let turned = Options { x: Some("from".into()), y: Some("to".into()), ..Options::default() };
    assert_eq!(figure_of(Kind::Heatmap, &swept, Options::default()).x.quantity.label, "to");
    assert_eq!(figure_of(Kind::Heatmap, &swept, turned).x.quantity.label, "from");
    // Two tests are two pictures.
    let mut two = tables::survey(5);
    two.extend(tables::survey(5).into_iter().map(|row| Row { test: Some("again".into()), ..row }));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.csv");
    std::fs::write(&path, tables::csv(&two)).unwrap();
    let mut options = hosts();
    options.input.files = vec![path];
    let error = plot::drawing(Kind::Heatmap, &options).unwrap_err().to_string();
    assert!(error.contains("there are 2, for example links and again: choose with --test"), "{error}");
    options.tests = vec!["again".into()];
    assert_eq!(plot::drawing(Kind::Heatmap, &options).unwrap().points.rows.len(), 20);
}

#[test]
fn cpu() {
    check("cpu-sizes", &figure(Kind::Cpu, &tables::cpu(false), Options::default()));
    let over_time = Options { x: Some("start_s".into()), ..Options::default() };
    check("cpu-time", &figure(Kind::Cpu, &tables::cpu(true), over_time));
}

#[test]
fn compare() {
    let all = figure_of(Kind::Compare, &tables::verdicts(), Options::default());
    check("compare", &all);
    assert_eq!(all.footer, ["run r2", "baseline run r1", "near → far", "2026-11-21"]);
    // One case, far from what counts as no change; and a metric of which no direction is better.
    let one: Vec<String> = tables::verdicts().lines().take(2).map(str::to_owned).collect();
    let figure = figure_of(Kind::Compare, &one.join("\n").replace("regression", "changed"), Options::default());
    check("compare-one", &figure);
    assert!(figure.x.min < -0.03 && figure.x.max > 0.03, "{:?}", figure.x);
    assert!(figure.notes.contains(&"all changed (1)".to_owned()), "{:?}", figure.notes);
    assert!(figure.notes.contains(&"n = 10 iterations of the new side".to_owned()), "{:?}", figure.notes);
}
