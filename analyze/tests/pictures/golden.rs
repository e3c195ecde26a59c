//! Compares pictures with committed ones: SVG by structure, PNG within a tolerance. `PLUMB_BLESS=1 cargo test -p
//! analyze --test pictures golden` writes them anew; look at them before you commit.

use crate::{figure, figure_of, tables};
use analyze::plot::{self, Kind, Options, Paper, figure::Figure, options::Size};
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn options() -> Paper {
    Paper { size: Some(Size { width: 600, height: 350 }), ..Paper::default() }
}

/// The committed bytes; with `PLUMB_BLESS` they become these.
fn committed(name: &str, bytes: &[u8]) -> Vec<u8> {
    if std::env::var_os("PLUMB_BLESS").is_some() {
        std::fs::write(path(name), bytes).unwrap();
    }
    std::fs::read(path(name)).unwrap_or_else(|e| panic!("{}: {e}", path(name).display()))
}

/// Elements, colours and words must be equal; numbers may differ by 2 (half a pixel).
fn assert_same_structure(name: &str, got: &str, wanted: &str) {
    let split = |text: &str| -> (String, Vec<f64>) {
        let mut words = String::new();
        let mut numbers = Vec::new();
        let mut number = String::new();
        for c in text.chars().chain([' ']) {
            if c.is_ascii_digit() || (c == '.' && !number.is_empty()) {
                number.push(c);
            } else {
                if let Ok(value) = std::mem::take(&mut number).parse() {
                    numbers.push(value);
                    words.push('#');
                }
                words.push(c);
            }
        }
        (words, numbers)
    };
    let ((words, numbers), (wanted_words, wanted_numbers)) = (split(got), split(wanted));
    for (line, wanted) in words.lines().zip(wanted_words.lines()) {
        assert_eq!(line, wanted, "{name}: another structure");
    }
    assert_eq!(words.lines().count(), wanted_words.lines().count(), "{name}: another number of elements");
    for (a, b) in numbers.iter().zip(&wanted_numbers) {
        assert!((a - b).abs() <= 2.0, "{name}: {a} where {b} was");
    }
}

fn pixels(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(bytes).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

fn assert_looks_alike(name: &str, got: &[u8], wanted: &[u8]) {
    let ((width, height, got), (wanted_width, wanted_height, wanted)) = (pixels(got), pixels(wanted));
    assert_eq!((width, height), (wanted_width, wanted_height), "{name}");
    let differing = got.iter().zip(&wanted).filter(|(a, b)| a.abs_diff(**b) > 48).count();
    assert!(differing * 200 < got.len(), "{name}: {differing} of {} values differ", got.len());
}

fn check(name: &str, figure: &Figure, png: bool) {
    let svg = plot::to_svg(figure, &options()).unwrap();
    let wanted = committed(&format!("{name}.svg"), svg.as_bytes());
    assert_same_structure(name, &svg, std::str::from_utf8(&wanted).unwrap());
    if png {
        let bytes = plot::to_png(figure, &options()).unwrap();
        assert_looks_alike(name, &bytes, &committed(&format!("{name}.png"), &bytes));
    }
}

#[test]
fn golden_pictures_look_as_they_did() {
    let none = Options::default;
    check("sweep", &figure(Kind::Sweep, &tables::sizes(&["bulk", "reverse"], 5, 4..=20), none()), true);
    check("signature", &figure(Kind::Signature, &tables::sizes(&["bulk"], 3, 6..=20), none()), false);
    check("saturation", &figure(Kind::Saturation, &tables::sizes(&["bulk"], 3, 6..=20), none()), false);
    check("timeseries", &figure(Kind::Timeseries, &tables::intervals(&["bulk", "up"], 1), none()), true);
    check("box", &figure(Kind::Box, &tables::sizes(&["bulk", "up"], 8, 16..=16), none()), false);
    check("bars", &figure(Kind::Bars, &tables::sizes(&["bulk", "up", "a longer name"], 8, 16..=16), none()), true);
    let mut rows = tables::sizes(&["bulk", "up", "a longer name"], 8, 16..=16);
    for (place, row) in rows.iter_mut().enumerate() {
        row.local_service_demand = Some(0.1 + 0.001 * (place % 9) as f64);
        row.service_demand_unit = Some(schemas::words::DemandUnit::PerKib);
    }
    let beside = Options { beside: vec!["service_demand.local".into()], ..none() };
    check("beside", &figure(Kind::Bars, &rows, beside), true);
    check("heatmap", &figure(Kind::Heatmap, &tables::grid(), none()), false);
    let hosts = Options { x: Some("to".into()), y: Some("from".into()), ..none() };
    check("pairs", &figure(Kind::Heatmap, &tables::survey(8), hosts), true);
    check("cpu", &figure(Kind::Cpu, &tables::cpu(false), none()), false);
    let rows = tables::round_trips(&["rtt"], 1);
    check("cdf", &figure(Kind::Cdf, &rows, none()), false);
    check("percentiles", &figure(Kind::Percentiles, &rows, none()), false);
    check("trend", &crate::trend::figure(&crate::trend::stepped(40)), true);
    check("compare", &figure_of(Kind::Compare, &tables::verdicts(), none()), false);
    check("hops", &figure_of(Kind::Hops, &tables::hops(), none()), false);
}
