//! The filters' most expensive work: reading rows, grouping them, merging histograms.
//!
//! `cargo bench -p analyze --bench filters`
#![allow(missing_docs, reason = "criterion's macros make items without documentation")]

use std::hint::black_box;

use analyze::filters::aggregate;
use analyze::stats::histogram::Latencies;
use analyze::table::Table;
use base64::Engine as _;
use clap::Parser;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

/// Iteration rows as the contract has them: a hundred columns, most of them empty.
fn table(rows: u64) -> String {
    let header = schemas::columns::header(&[]);
    let mut text = header.join(",") + "\n";
    let mut x: u64 = 1;
    for i in 0..rows {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cells: Vec<String> = header
            .iter()
            .map(|name| match name.as_str() {
                "run_id" => "0199f2c4-7a10-7c31-9b7e-2f4d5a6b7c8d".to_owned(),
                "test" | "case" => format!("case{}", x >> 61),
                "record" => "iteration".to_owned(),
                "phase" => "measure".to_owned(),
                "status" => "ok".to_owned(),
                "iteration" => i.to_string(),
                "streams" => (1 + (x >> 50) % 4).to_string(),
                "throughput_bits_per_s" => format!("{}.25", 40_000_000_000 + (x >> 34)),
                _ => String::new(),
            })
            .collect();
        text += &cells.join(",");
        text.push('\n');
    }
    text
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: aggregate::Args,
}

fn reader(c: &mut Criterion) {
    let text = table(20_000);
    let mut group = c.benchmark_group("reader");
    group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(20);
    group.bench_function("rows", |b| {
        b.iter(|| {
            let mut table = Table::from_text("bench", text.clone()).expect("a table");
            let column = table.require("throughput").expect("a column");
            let mut sum = 0.0;
            while let Some(row) = table.next_row().expect("a row") {
                sum += row.number(column).expect("a number").unwrap_or(0.0);
            }
            black_box(sum)
        });
    });
    group.finish();
}

fn group_by(c: &mut Criterion) {
    let text = table(100_000);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &text).expect("written");
    let path = file.path().to_str().expect("a path");
    let options =
        ["aggregate", path, "-g", "test,workload,streams", "-m", "throughput", "-a", "count,mean,stddev,median,p99,ci"];
    let args = Cli::try_parse_from(options).expect("arguments").args;
    let mut group = c.benchmark_group("group-by");
    group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(20);
    group.bench_function("three columns", |b| {
        b.iter(|| {
            let mut out = Vec::new();
            aggregate::run(&args, &mut out).expect("aggregated");
            black_box(out)
        });
    });
    group.finish();
}

fn histogram_merge(c: &mut Criterion) {
    let mut histogram: Histogram<u64> = Histogram::new(3).expect("three digits");
    for i in 0..100_000u64 {
        histogram.record(20_000 + i * i % 60_000).expect("in range");
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).expect("serialized");
    let cell = base64::engine::general_purpose::STANDARD.encode(bytes);
    c.bench_function("histogram/decode and merge", |b| {
        let mut all = Latencies::default();
        b.iter(|| all.merge(&Latencies::decode(&cell).expect("a histogram")).expect("merged"));
    });
}

criterion_group!(benches, reader, group_by, histogram_merge);
criterion_main!(benches);
