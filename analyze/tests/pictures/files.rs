//! The files of `plumb plot`, and its errors.

use crate::tables;
use analyze::plot::{self, Kind, Options, Paper};
use std::path::Path;

fn options(folder: &Path, output: &str) -> Options {
    let input = folder.join("results.csv");
    std::fs::write(&input, tables::csv(&tables::sizes(&["bulk", "up"], 3, 6..=10))).unwrap();
    let mut options = Options::default();
    options.paper.output = Some(folder.join(output));
    options.input.files = vec![input];
    options
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_picture_and_its_points_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), "x.svg");
    options.paper.data = Some(folder.path().join("points.csv"));
    let warnings = plot::draw(Kind::Sweep, &options, &mut Vec::new()).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let first = std::fs::read(folder.path().join("x.svg")).unwrap();
    plot::draw(Kind::Sweep, &options, &mut Vec::new()).unwrap();
    assert_eq!(first, std::fs::read(folder.path().join("x.svg")).unwrap(), "the same input gives the same bytes");
    let points = std::fs::read_to_string(folder.path().join("points.csv")).unwrap();
    let mut shown = Vec::new();
    options.paper = Paper { data: Some("-".into()), ..Paper::default() };
    plot::draw(Kind::Sweep, &options, &mut shown).unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), points);
    let mut lines = points.lines();
    assert_eq!(lines.next(), Some("series,message_bytes,throughput_bits_per_s,low,high,n"));
    assert!(lines.next().unwrap().starts_with("bulk,64,"));
    assert_eq!(points.lines().count(), 1 + 2 * 5);
}

#[test]
fn what_cannot_be_drawn_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |kind, options: &Options| plot::draw(kind, options, &mut Vec::new()).unwrap_err().to_string();
    let error = fails(Kind::Sweep, &Options { y: Some("thruput".into()), ..options(folder.path(), "x.png") });
    assert!(error.contains("there is no column `thruput`"), "{error}");
    let error = plot::draw(Kind::Timeseries, &options(folder.path(), "x.png"), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("sets `interval`"), "{error}");
    assert_eq!(error.exit_code(), 3);
    let error = fails(Kind::Signature, &Options { marks: vec!["1500".into()], ..options(folder.path(), "x.png") });
    assert!(error.contains("`signature` does not use --mark"), "{error}");
    let error = fails(Kind::Sweep, &Options { value: Some("loss".into()), ..options(folder.path(), "x.png") });
    assert!(error.contains("`sweep` does not use --value"), "{error}");
    let error = fails(Kind::Cdf, &options(folder.path(), "x.png"));
    assert!(error.contains("nothing to draw"), "{error}");
    let error = fails(Kind::Sweep, &options(folder.path(), "x.pdf"));
    assert!(error.contains("PNG or SVG"), "{error}");
    let error = fails(Kind::Bars, &Options { zoom: true, ..options(folder.path(), "x.png") });
    assert!(error.contains("bars start at zero"), "{error}");
    let error = fails(Kind::Compare, &options(folder.path(), "x.png"));
    assert!(error.contains("plumb compare -f csv"), "{error}");
    let error = fails(Kind::Sweep, &Options { paper: Paper::default(), ..options(folder.path(), "x") });
    assert!(error.contains("--term"), "{error}");
    assert_eq!(names(folder.path()), ["results.csv"]);
}

#[test]
fn every_kind_knows_the_same_scale() {
    let folder = tempfile::tempdir().unwrap();
    let ends = |kind, table: &str, other: &str, options: &Options| {
        let files = [("one.csv", table), ("other.csv", other)].map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        let axes = |own: usize, others: &[usize]| {
            let mut options = options.clone();
            options.input.files = vec![files[own].clone()];
            options.same_scale = others.iter().map(|i| files[*i].clone()).collect();
            let figure = plot::drawing(kind, &options).unwrap().figure;
            let axes = std::iter::once(&figure.x).chain(figure.panels.iter().map(|p| &p.y)).chain(&figure.colours);
            axes.filter(|a| a.names.is_empty()).map(|a| (a.min, a.max)).collect::<Vec<_>>()
        };
        assert_eq!(axes(0, &[1]), axes(1, &[0]), "{kind:?}");
        assert_ne!(axes(0, &[]), axes(0, &[1]), "{kind:?}");
    };
    let mut busier = tables::cpu(false);
    for row in &mut busier {
        row.throughput_bits_per_s = row.throughput_bits_per_s.map(|v| v * 3.0);
        row.remote_cpu_system_ratio = row.remote_cpu_system_ratio.map(|v| v * 2.0);
    }
    ends(Kind::Cpu, &tables::csv(&tables::cpu(false)), &tables::csv(&busier), &Options::default());
    ends(Kind::Compare, &tables::verdicts(), &tables::verdicts().replace("-0.05", "-0.5"), &Options::default());
    let latency = Options { y: Some("latency".into()), ..Options::default() };
    let rows = tables::latency_intervals();
    ends(Kind::Heatmap, &tables::csv(&rows[..10]), &tables::csv(&rows), &latency);
}

#[test]
fn the_same_scale_makes_two_pictures_comparable() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = options(folder.path(), "a.svg");
    let faster = folder.path().join("faster.csv");
    let mut rows = tables::sizes(&["bulk"], 3, 6..=12);
    for row in &mut rows {
        row.throughput_bits_per_s = row.throughput_bits_per_s.map(|v| v * 10.0);
    }
    std::fs::write(&faster, tables::csv(&rows)).unwrap();
    let mut b = Options { same_scale: a.input.files.clone(), ..a.clone() };
    b.paper.output = Some(folder.path().join("b.svg"));
    b.input.files = vec![faster.clone()];
    a.same_scale = vec![faster];
    let axes = |options: &Options| {
        let figure = plot::drawing(Kind::Sweep, options).unwrap().figure;
        (figure.x.min, figure.x.max, figure.panels[0].y.min, figure.panels[0].y.max)
    };
    assert_eq!(axes(&a), axes(&b));
    a.same_scale.clear();
    assert_ne!(axes(&a), axes(&b));
}

#[test]
fn the_terminal_gets_characters() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), "x");
    options.paper = Paper { term: true, ..Paper::default() };
    let mut out = Vec::new();
    plot::draw(Kind::Sweep, &options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("throughput (Gbit/s)") && text.contains('●') && text.contains('■'), "{text}");
}

#[test]
fn one_test_of_several_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { tests: vec!["up".into()], ..options(folder.path(), "x.png") };
    let drawing = plot::drawing(Kind::Sweep, &options).unwrap();
    assert_eq!(drawing.points.rows.len(), 5);
    assert_eq!(drawing.figure.title, "message-size, up: throughput against message size");
}

/// Two values against a third: both are drawn, and the names say which is which.
#[test]
fn a_comparison_of_several_values_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("c.csv");
    std::fs::write(
        &input,
        "case_id,case,member,assertion,metric,change_ratio,verdict\n\
         l[streams=1],l[streams=1] up,up,socket.congestion_control: bbr against cubic,throughput_bits_per_s,-0.1,same\n\
         l[streams=1],l[streams=1] up,up,socket.congestion_control: reno against cubic,throughput_bits_per_s,0.1,same\n",
    )
    .unwrap();
    let options = Options { input: analyze::table::InputArgs { files: vec![input.clone()] }, ..Options::default() };
    let names = |options: &Options| -> Vec<String> {
        let drawing = plot::drawing(Kind::Compare, options).unwrap();
        drawing.points.rows.iter().map(|row| row[0].clone()).collect()
    };
    assert_eq!(names(&options), ["l[1 stream] up · bbr against cubic", "l[1 stream] up · reno against cubic"]);
    let one: Vec<String> = std::fs::read_to_string(&input).unwrap().lines().take(2).map(str::to_owned).collect();
    std::fs::write(&input, one.join("\n")).unwrap();
    assert_eq!(names(&options), ["l[1 stream] up"]);
    let notes = plot::drawing(Kind::Compare, &options).unwrap().figure.notes;
    assert!(notes.contains(&"socket.congestion_control: bbr against cubic".to_owned()), "{notes:?}");
}
