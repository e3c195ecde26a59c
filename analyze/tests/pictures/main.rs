//! Every kind of picture, drawn from tables like the runner's, at the sizes people use, with one series and with twelve:
//! no text may leave the picture or cover another. With `PLUMB_PICTURES=FOLDER` the pictures are written there, to be
//! looked at.

mod files;
mod gallery;
mod golden;
mod report;
mod tables;

use analyze::plot::{self, Kind, Options, figure::Figure, font::Metrics};
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

/// Draws at three sizes and looks at where the texts are.
fn check(name: &str, figure: &Figure) {
    for (width, height) in [(1200, 700), (600, 350), (400, 300)] {
        let options = Options { size: Some(plot::options::Size { width, height }), ..Options::default() };
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
    check("sweep-point", &figure(Kind::Sweep, &tables::sizes(&["bulk"], 1, 16..=16), Options::default()));
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
        check(&format!("{name}-grouped"), &figure(kind, &tables::sizes(&["bulk", "up", "down"], 8, 16..=19), grouped));
    }
}

#[test]
fn heatmap() {
    check("heatmap", &figure(Kind::Heatmap, &tables::grid(), Options::default()));
    let latency = Options { y: Some("latency".into()), ..Options::default() };
    check("heatmap-latency", &figure(Kind::Heatmap, &tables::latency_intervals(), latency));
}

#[test]
fn cpu() {
    check("cpu-sizes", &figure(Kind::Cpu, &tables::cpu(false), Options::default()));
    let over_time = Options { x: Some("start_s".into()), ..Options::default() };
    check("cpu-time", &figure(Kind::Cpu, &tables::cpu(true), over_time));
}

#[test]
fn compare() {
    check("compare", &figure_of(Kind::Compare, &tables::verdicts(), Options::default()));
}
