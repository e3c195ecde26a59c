//! Results tables to draw: rows as the runner writes them, with numbers from a fixed sequence, so that pictures stay
//! the same.

use schemas::columns::{HopRow, Row, Timestamp, VerdictRow, header};
use schemas::words::{LatencyKind, Phase, Status, Verdict, Way};

/// Pseudo-random numbers (Knuth's MMIX generator).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `value`, more or less by up to a share of it.
    pub fn around(&mut self, value: f64, share: f64) -> f64 {
        value * (1.0 + share * (self.share() + self.share() - 1.0))
    }
}

pub fn csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header(&[])).unwrap();
    for row in rows {
        let mut cells = Vec::new();
        row.for_each_cell(|cell| cells.push(cell.to_owned()));
        writer.write_record(&cells).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

pub fn row(test: &str, record: &str, iteration: u64) -> Row {
    Row {
        run_id: Some("019aa2d1-7c3e-7b4f-9d52-3f6e8a1c0b77".into()),
        plan: Some("message-size".into()),
        test: Some(test.into()),
        case: Some(test.into()),
        record: Some(record.parse().unwrap()),
        iteration: Some(iteration),
        phase: Some(Phase::Measure),
        status: Some(Status::Ok),
        from: Some("a".into()),
        to: Some("b".into()),
        direction: Some(Way::Forward),
        time: Some(Timestamp("2026-11-21T01:02:03.456Z".into())),
        ..Row::default()
    }
}

/// Throughput against message size: t = t0 + n/r, of so many series and iterations, sizes 1 B to 2^exponents.
pub fn sizes(series: &[&str], iterations: u64, exponents: std::ops::RangeInclusive<u32>) -> Vec<Row> {
    let mut noise = Noise::new(7);
    let mut rows = Vec::new();
    for (index, name) in series.iter().enumerate() {
        let (t0, rate) = (6e-6 * (1.0 + index as f64 * 0.6), 42e9 / (1.0 + index as f64 * 0.25));
        for exponent in exponents.clone() {
            let bytes = 1_u64 << exponent;
            for iteration in 1..=iterations {
                let time = noise.around(t0 + bytes as f64 * 8.0 / rate, 0.12);
                rows.push(Row {
                    message_bytes: Some(bytes),
                    workload: Some("tcp_stream".into()),
                    throughput_bits_per_s: Some(bytes as f64 * 8.0 / time),
                    elapsed_s: Some(1.0),
                    latency_mean_us: Some(time * 2e6),
                    ..row(name, "iteration", iteration)
                });
            }
        }
    }
    rows
}

/// Intervals of a tenth of a second with warm-up and cool-down.
pub fn intervals(series: &[&str], iterations: u64) -> Vec<Row> {
    let mut noise = Noise::new(11);
    let mut rows = Vec::new();
    for (index, name) in series.iter().enumerate() {
        for iteration in 1..=iterations {
            for step in -10..60_i32 {
                let start = f64::from(step) * 0.1;
                let phase = if step < 0 {
                    "warmup"
                } else if step < 50 {
                    "measure"
                } else {
                    "cooldown"
                };
                let level = 20e9 / (1.0 + index as f64 * 0.3) * (1.0 - (-(start + 1.0) * 3.0).exp());
                rows.push(Row {
                    phase: Some(phase.parse().unwrap()),
                    start_s: Some(start),
                    elapsed_s: Some(0.1),
                    throughput_bits_per_s: Some(noise.around(level, 0.15)),
                    ..row(name, "interval", iteration)
                });
            }
        }
    }
    rows
}

/// Round trips with histograms whose tails are long.
pub fn round_trips(series: &[&str], iterations: u64) -> Vec<Row> {
    let mut noise = Noise::new(5);
    let mut rows = Vec::new();
    for (index, name) in series.iter().enumerate() {
        for iteration in 1..=iterations {
            let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
            for _ in 0..20_000 {
                let tail = (1.0 - noise.share()).ln().powi(2) * 4_000.0;
                histogram.record(whole(30_000.0 * (1.0 + index as f64 * 0.2) + tail)).unwrap();
            }
            rows.push(Row {
                workload: Some("tcp_rr".into()),
                latency_kind: Some(LatencyKind::RoundTrip),
                latency_histogram: Some(encoded(&histogram)),
                transactions_per_s: Some(noise.around(20_000.0, 0.05)),
                ..row(name, "iteration", iteration)
            });
        }
    }
    rows
}

/// Round trips per interval: latencies over time.
pub fn latency_intervals() -> Vec<Row> {
    let mut noise = Noise::new(6);
    let interval = |step: i32| {
        let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        for _ in 0..2_000 {
            let busy = if (20..30).contains(&step) { 8.0 } else { 1.0 };
            let value = 30_000.0 * busy + (1.0 - noise.share()).ln().powi(2) * 9_000.0;
            histogram.record(whole(value)).unwrap();
        }
        Row {
            start_s: Some(f64::from(step) * 0.1),
            elapsed_s: Some(0.1),
            phase: Some(if step < 0 { Phase::Warmup } else { Phase::Measure }),
            latency_histogram: Some(encoded(&histogram)),
            ..row("rtt", "interval", 1)
        }
    };
    (-5..50).map(interval).collect()
}

/// Nanoseconds as a histogram counts them.
fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^53")]
    let whole = value as u64;
    whole
}

/// A cell with the histogram of these values, nanoseconds.
pub fn histogram(values: impl IntoIterator<Item = u64>) -> String {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    values.into_iter().for_each(|value| histogram.record(value).unwrap());
    encoded(&histogram)
}

fn encoded(histogram: &hdrhistogram::Histogram<u64>) -> String {
    use base64::Engine as _;
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Throughput and CPU load, over message sizes or over time.
pub fn cpu(over_time: bool) -> Vec<Row> {
    let mut noise = Noise::new(9);
    let mut rows = Vec::new();
    for step in 0..if over_time { 60 } else { 15 } {
        let load = if over_time { noise.around(0.5, 0.2) } else { 0.25 + f64::from(step) * 0.02 };
        rows.push(Row {
            message_bytes: Some(64 << if over_time { 6 } else { step }),
            start_s: over_time.then(|| f64::from(step) * 0.5 - 2.0),
            elapsed_s: Some(0.5),
            phase: Some(if over_time && step < 4 { Phase::Warmup } else { Phase::Measure }),
            throughput_bits_per_s: Some(noise.around(load * 8e10, 0.1)),
            local_cpu_ratio: Some(load),
            local_cpu_user_ratio: Some(load * 0.2),
            local_cpu_system_ratio: Some(load * 0.6),
            local_cpu_softirq_ratio: Some(load * 0.2),
            local_cpu_irq_ratio: Some(0.0),
            local_cpu_steal_ratio: Some(0.0),
            local_cpu_peak_ratio: Some((load * 1.9).min(1.0)),
            remote_cpu_ratio: Some(load * 1.2),
            remote_cpu_user_ratio: Some(load * 0.1),
            remote_cpu_system_ratio: Some(load * 0.7),
            remote_cpu_softirq_ratio: Some(load * 0.4),
            remote_cpu_peak_ratio: Some((load * 2.0).min(1.0)),
            ..row("bulk", if over_time { "interval" } else { "iteration" }, 1)
        });
    }
    rows
}

/// Throughput over streams and message sizes.
pub fn grid() -> Vec<Row> {
    let mut noise = Noise::new(3);
    let mut rows = Vec::new();
    for streams in [1_u64, 2, 4, 8, 16] {
        for exponent in (6..=20).step_by(2) {
            for iteration in 1..=3 {
                let bytes = 1_u64 << exponent;
                let rate = bytes as f64 * 8.0 / (6e-6 + bytes as f64 * 8.0 / 4e10) * (streams as f64).sqrt();
                rows.push(Row {
                    streams: Some(streams),
                    message_bytes: Some(bytes),
                    throughput_bits_per_s: Some(noise.around(rate, 0.1)),
                    ..row("bulk", "iteration", iteration)
                });
            }
        }
    }
    rows
}

/// A survey of so many hosts: the third is slow, and the link from the second to the fifth. One pair failed, and one is
/// missing.
pub fn survey(hosts: usize) -> Vec<Row> {
    let mut noise = Noise::new(5);
    let mut rows = Vec::new();
    let name = |host: usize| format!("node{host}");
    for (from, to) in (1..=hosts).flat_map(|from| (1..=hosts).map(move |to| (from, to))).filter(|(a, b)| a != b) {
        let slow = if from == 3 || to == 3 { 0.94 } else { 1.0 } * if (from, to) == (2, 5) { 0.85 } else { 1.0 };
        let rate = noise.around(9.4e9 * slow, 0.01);
        if (from, to) == (6, 4) {
            continue;
        }
        let failed = (from, to) == (7, 1);
        rows.push(Row {
            workload: Some("tcp_stream".into()),
            from: Some(name(from)),
            to: Some(name(to)),
            status: Some(if failed { Status::Failed } else { Status::Ok }),
            throughput_bits_per_s: (!failed).then_some(rate),
            plan: Some("fabric".into()),
            ..row("links", "iteration", 1)
        });
    }
    rows
}

/// A table of `compare`.
pub fn verdicts() -> String {
    let columns = schemas::columns::names(schemas::columns::verdicts::VERDICT_COLUMNS).collect::<Vec<_>>().join(",");
    let mut table = format!("{columns}\n");
    for (i, name) in TWELVE.iter().enumerate() {
        let change = (i as f64 - 5.0) / 100.0;
        let row = VerdictRow {
            case_id: format!("c{i}"),
            case: (*name).to_owned(),
            assertion: "baseline".to_owned(),
            metric: "throughput_bits_per_s".to_owned(),
            n: 10,
            observed: Some(4e10),
            ci_low_ratio: Some(change - 0.02),
            ci_high_ratio: Some(change + 0.015),
            confidence_level: Some(0.99),
            limit_ratio: Some(0.03),
            baseline: Some(4.1e10),
            change_ratio: Some(change),
            p_value: Some(0.002),
            verdict: [Verdict::Regression, Verdict::Improvement, Verdict::Same, Verdict::Inconclusive][i % 4],
            run_id: "r2".to_owned(),
            from: "near".to_owned(),
            to: "far".to_owned(),
            time: "2026-11-21T10:00:00Z".to_owned(),
            baseline_run_id: "r1".to_owned(),
            ..VerdictRow::default()
        };
        let mut cells = Vec::new();
        row.for_each_cell(|cell| cells.push(format!("\"{cell}\"")));
        table.push_str(&(cells.join(",") + "\n"));
    }
    table
}

/// A table of hops: a path of four, of which one is silent, with a queue behind the first hop one way and behind the second the other.
pub fn hops() -> String {
    let columns = schemas::columns::names(schemas::columns::hops::HOP_COLUMNS).collect::<Vec<_>>().join(",");
    let mut table = format!("{columns}\n");
    for (direction, link, added_us) in [(Way::Forward, 1, 20_000.0), (Way::Reverse, 2, 8_000.0)] {
        for hop in [1, 2, 4] {
            let idle_us = 200.0 * hop as f64;
            let added_us = if hop > link { added_us } else { 10.0 };
            let row = HopRow {
                run_id: Some("r1".to_owned()),
                case_id: Some(format!("c{link}")),
                case: Some(direction.to_string()),
                iteration: Some(1),
                direction: Some(direction),
                hop: Some(hop),
                address: Some(format!("10.0.{hop}.1")),
                idle_us: Some(idle_us),
                loaded_us: Some(idle_us + added_us),
                added_us: Some(added_us),
                added_low_us: Some(added_us * 0.8),
                added_high_us: Some(added_us * 1.3),
                note: (hop == 1).then(|| "answers slowly by itself".to_owned()),
                ..HopRow::default()
            };
            let mut cells = Vec::new();
            row.for_each_cell(|cell| cells.push(format!("\"{cell}\"")));
            table.push_str(&(cells.join(",") + "\n"));
        }
    }
    table
}

/// Twelve names, some of them long.
pub const TWELVE: [&str; 12] = [
    "bulk",
    "bulk-reverse",
    "bulk[socket.congestion_control=cubic,streams=16,message_size=65536]",
    "d",
    "upload while downloading",
    "f",
    "g",
    "h",
    "roundtrip",
    "j",
    "k",
    "twelve",
];
