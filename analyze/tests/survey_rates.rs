//! Rates of named suspects in simulated fabrics, with fixed seeds.
//!
//! `FULL=1 cargo test --release -p analyze --test survey_rates -- --nocapture` prints the tables of docs/reference/statistics.md;
//! without FULL, fewer and smaller surveys check the same bounds in seconds.

mod common;

use analyze::survey::{Cell, Kind, Matrix, Role, Rule, survey};
use chacha20::ChaCha8Rng;
use common::{is_full, normal};
use rand::{RngExt, SeedableRng};
use schemas::metrics::Better;

/// Shapes of a pair's noise, each with the standard deviation of the normal one in its middle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    Normal,
    /// Exponential on the slow side: most pairs are near the best, some are much slower.
    Skewed,
    /// Student's t with three degrees of freedom.
    HeavyTailed,
    /// One value in fifty is up to ten standard deviations too slow: something else ran.
    Disturbed,
}

impl Noise {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Skewed => "skewed",
            Self::HeavyTailed => "heavy tail",
            Self::Disturbed => "disturbed",
        }
    }

    fn draw(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Normal => normal(rng),
            Self::Skewed => 1.0 + (1.0 - rng.random::<f64>()).ln(),
            Self::HeavyTailed => {
                let squares: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
                normal(rng) / (squares / 3.0).sqrt()
            }
            Self::Disturbed => {
                let disturbed = rng.random::<f64>() < 0.02;
                normal(rng) - if disturbed { 10.0 * rng.random::<f64>() } else { 0.0 }
            }
        }
    }
}

/// A kind of simulated surveys.
#[derive(Clone, Copy, Debug)]
struct Fabric {
    hosts: usize,
    noise: Noise,
    /// Standard deviation of a measurement, as a share.
    variation: f64,
    /// Measurements of each pair.
    iterations: usize,
    /// Each pair in one direction only.
    half: bool,
    better: Better,
}

const FABRIC: Fabric =
    Fabric { hosts: 8, noise: Noise::Normal, variation: 0.02, iterations: 1, half: false, better: Better::Higher };

/// The faults in it: the speed of a host in both directions, and of one link.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    host: Option<(usize, f64)>,
    link: Option<((usize, usize), f64)>,
}

fn draw(fabric: Fabric, faults: Faults, rng: &mut ChaCha8Rng) -> Matrix {
    let mut measured = Vec::new();
    for from in 0..fabric.hosts {
        for to in 0..fabric.hosts {
            // Half of them: from the lower to the higher if their sum is even, else the other way.
            if from == to || (fabric.half && ((from + to) % 2 == 0) != (from < to)) {
                continue;
            }
            let mut speed = 1.0;
            if let Some((host, ratio)) = faults.host
                && (host == from || host == to)
            {
                speed *= ratio;
            }
            if let Some((link, ratio)) = faults.link
                && link == (from, to)
            {
                speed *= ratio;
            }
            // Noise below zero is slow: less throughput, or more latency.
            let noise = |rng: &mut ChaCha8Rng| fabric.variation * fabric.noise.draw(rng);
            let values: Vec<f64> = match fabric.better {
                Better::Lower => (0..fabric.iterations).map(|_| (1.0 - noise(rng)).max(0.05) / speed).collect(),
                _ => (0..fabric.iterations).map(|_| speed * (1.0 + noise(rng)).max(0.05)).collect(),
            };
            measured
                .extend(values.into_iter().map(|v| (format!("n{}", from + 1), format!("n{}", to + 1), Cell::Value(v))));
        }
    }
    Matrix::of(measured)
}

fn trials(full: u32, quick: u32) -> u32 {
    if is_full() { full } else { quick }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The share of healthy surveys that name anything.
fn false_alarms(fabric: Fabric, trials: u32) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let named = |_| {
        let found = survey(&draw(fabric, Faults::default(), &mut rng), &Rule::new(fabric.better));
        u32::from(!found.suspects.is_empty())
    };
    f64::from((0..trials).map(named).sum::<u32>()) / f64::from(trials)
}

/// Shares of surveys that name the slow host (in both directions), the slow link, and exactly the two.
fn detections(fabric: Fabric, faults: Faults, trials: u32) -> [f64; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(18);
    let mut named = [0; 3];
    for _ in 0..trials {
        let found = survey(&draw(fabric, faults, &mut rng), &Rule::new(fabric.better));
        let kinds: Vec<Kind> = found.suspects.iter().map(|s| s.kind).collect();
        let host = faults.host.is_some_and(|(host, _)| kinds.contains(&Kind::Host { host, role: Role::Both }));
        let link = faults.link.is_some_and(|((from, to), _)| kinds.contains(&Kind::Link { from, to }));
        let count = usize::from(faults.host.is_some()) + usize::from(faults.link.is_some());
        let exact = usize::from(host) + usize::from(link) == count && kinds.len() == count;
        for (count, is) in named.iter_mut().zip([host, link, exact]) {
            *count += u32::from(is);
        }
    }
    named.map(|n| f64::from(n) / f64::from(trials))
}

/// A share of so many trials that is promised to be at most `promised` is at most this.
fn bound(promised: f64, trials: u32) -> f64 {
    promised + 4.0 * (promised / f64::from(trials)).sqrt()
}

const SHAPES: [Noise; 4] = [Noise::Normal, Noise::Disturbed, Noise::HeavyTailed, Noise::Skewed];

#[test]
fn healthy_fabrics_are_rarely_suspected() {
    println!("| noise | hosts | one measurement | median of 3 | one way only | latency |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let sizes: &[usize] = if is_full() { &[3, 4, 5, 6, 8, 16, 32, 64] } else { &[3, 4, 8] };
    for noise in SHAPES {
        for hosts in sizes.iter().copied() {
            let fabric = Fabric { hosts, noise, ..FABRIC };
            let kinds = [
                fabric,
                Fabric { iterations: 3, ..fabric },
                Fabric { half: true, ..fabric },
                Fabric { better: Better::Lower, ..fabric },
            ];
            let trials = trials(if hosts > 16 { 1000 } else { 4000 }, 250);
            let shares = kinds.map(|fabric| false_alarms(fabric, trials));
            println!("| {} | {hosts} | {} |", noise.name(), shares.map(percent).join(" | "));
            if noise == Noise::Normal {
                for share in shares {
                    assert!(share <= bound(Rule::ALPHA, trials), "{hosts} hosts: {shares:?}");
                }
            }
        }
    }
    // Other amounts of noise, where the least effect says less or more.
    for variation in [0.005, 0.05, 0.1] {
        let trials = trials(4000, 250);
        let share = false_alarms(Fabric { variation, ..FABRIC }, trials);
        println!("| normal, {} | 8 | {} | | | |", percent(variation), percent(share));
        assert!(share <= bound(Rule::ALPHA, trials), "{variation}: {share}");
    }
}

#[test]
fn slow_hosts_and_links_are_named() {
    println!("| noise | hosts | iterations | the host | the link | both and nothing else |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let sizes: &[usize] = if is_full() { &[8, 16, 64] } else { &[8, 16] };
    let faults = Faults { host: Some((2, 0.95)), link: Some(((4, 1), 0.9)) };
    for noise in SHAPES {
        for hosts in sizes.iter().copied() {
            for iterations in [1, 2, 3, 5] {
                let fabric = Fabric { hosts, noise, iterations, ..FABRIC };
                let [host, link, exact] = detections(fabric, faults, trials(1000, 60));
                let shares = [host, link, exact].map(percent).join(" | ");
                println!("| {} | {hosts} | {iterations} | {shares} |", noise.name());
                // A single measurement of a pair leaves five standard deviations, at which one in three is missed.
                if noise == Noise::Normal && (iterations > 2 || iterations == 2 && hosts > 8) {
                    let least = if is_full() { 0.94 } else { 0.85 };
                    assert!(exact >= least, "{hosts} hosts, {iterations} iterations: {shares}");
                }
            }
        }
    }
}

/// Surveys of three iterations beside a program that takes CPUs for a while: of the iterations in its time, most are up to
/// half as slow. `known`: the share of them whose rows tell it (`cpu_taken_ratio`).
fn beside_a_program(hosts: usize, speed: impl Fn(usize, usize) -> f64, known: f64, rng: &mut ChaCha8Rng) -> Matrix {
    const ITERATIONS: usize = 3;
    let pairs: Vec<(usize, usize)> =
        (0..hosts).flat_map(|from| (0..hosts).filter(move |to| *to != from).map(move |to| (from, to))).collect();
    // The pairs are measured in turns, and it runs for a fifth of the time, at three times.
    let all = ITERATIONS * pairs.len();
    let runs: Vec<usize> = (0..3).map(|_| rng.random_range(0..all)).collect();
    let mut measured = Vec::new();
    for at in 0..all {
        let (from, to) = pairs[at % pairs.len()];
        let is_beside = runs.iter().any(|start| (*start..start + all / 15).contains(&at)) && rng.random::<f64>() < 0.8;
        let slowed = if is_beside { 1.0 - 0.5 * rng.random::<f64>() } else { 1.0 };
        let value = 100.0 * speed(from, to) * slowed * (1.0 + 0.005 * normal(rng));
        let cell = if is_beside && rng.random::<f64>() < known { Cell::Disturbed(value) } else { Cell::Value(value) };
        measured.push((format!("n{}", from + 1), format!("n{}", to + 1), cell));
    }
    Matrix::of(measured)
}

#[test]
fn a_program_beside_a_survey_accuses_nobody_and_hides_no_fault() {
    println!("| rows tell | healthy: anything named | faulty: host and link named | anything else named |");
    println!("| --- | --- | --- | --- |");
    let trials = trials(2000, 400);
    for known in [0.0, 0.8, 1.0] {
        let mut rng = ChaCha8Rng::seed_from_u64(19);
        let mut counts = [0; 3];
        for _ in 0..trials {
            let healthy = beside_a_program(8, |_, _| 1.0, known, &mut rng);
            counts[0] += u32::from(!survey(&healthy, &Rule::new(Better::Higher)).suspects.is_empty());
            let speed = |from: usize, to: usize| match (from, to) {
                (2, _) | (_, 2) => 0.9,
                (4, 1) => 0.8,
                _ => 1.0,
            };
            let found = survey(&beside_a_program(8, speed, known, &mut rng), &Rule::new(Better::Higher));
            let faults = [Kind::Host { host: 2, role: Role::Both }, Kind::Link { from: 4, to: 1 }];
            let named = faults.iter().filter(|fault| found.suspects.iter().any(|s| s.kind == **fault)).count();
            counts[1] += u32::from(named == faults.len());
            counts[2] += u32::from(found.suspects.len() > named);
        }
        let [healthy, found, wrong] = counts.map(|count| f64::from(count) / f64::from(trials));
        println!("| {} | {} |", percent(known), [healthy, found, wrong].map(percent).join(" | "));
        assert!(healthy <= bound(Rule::ALPHA, trials), "{known}: {healthy}");
        assert!(wrong <= bound(Rule::ALPHA, trials), "{known}: {wrong}");
        // If no row tells, the disturbed pairs are noise that hides a part of the faults.
        assert!(found >= if known > 0.0 { 0.9 } else { 0.7 }, "{known}: {found}");
    }
}

/// The interval of a link that is named holds its true slowness, also where its own iterations scatter more than others'.
#[test]
fn intervals_hold_the_scatter_within_a_pair() {
    println!("| scatter of the link | iterations | named | interval holds the truth |");
    println!("| --- | --- | --- | --- |");
    let trials = trials(4000, 300);
    for (scatter, iterations) in [(0.005, 3), (0.02, 3), (0.04, 3), (0.02, 5), (0.04, 5)] {
        let mut rng = ChaCha8Rng::seed_from_u64(20);
        let (mut named, mut held) = (0, 0);
        for _ in 0..trials {
            let mut measured = Vec::new();
            for from in 0..8 {
                for to in (0..8).filter(|to| *to != from) {
                    let (speed, noise) = if (from, to) == (4, 1) { (0.75, scatter) } else { (1.0, 0.005) };
                    for _ in 0..iterations {
                        let value = Cell::Value(100.0 * speed * (1.0 + noise * normal(&mut rng)));
                        measured.push((format!("n{from}"), format!("n{to}"), value));
                    }
                }
            }
            let found = survey(&Matrix::of(measured), &Rule::new(Better::Higher));
            if let [suspect] = found.suspects.as_slice() {
                named += 1;
                held += u32::from(suspect.low <= 0.25 && 0.25 <= suspect.high);
            }
        }
        let share = f64::from(held) / f64::from(named);
        println!(
            "| {} | {iterations} | {} | {} |",
            percent(scatter),
            percent(f64::from(named) / f64::from(trials)),
            percent(share)
        );
        assert!(f64::from(named) >= 0.95 * f64::from(trials), "{scatter}: {named} of {trials}");
        assert!(share >= 0.75, "{scatter}: {share}");
    }
}
