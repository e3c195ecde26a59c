use chacha20::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::history::{
    series::{Key, Point},
    trend::{Trend, trend},
};

/// Two machines, each with a case of one to three steps and one that drifts or stands still: one run a day, with noise of 1 %.
fn history(seed: u64, runs: usize) -> Reading {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut reading = Reading::default();
    for machine in ["m1", "m2"] {
        for case in ["steps", "drifts"] {
            let mut level = vec![100.0; runs];
            if case == "steps" {
                for _ in 0..rng.random_range(1..=3) {
                    let at = rng.random_range(10..runs - 10);
                    let size = rng.random_range(2.0..8.0) * if rng.random_bool(0.5) { 1.0 } else { -1.0 };
                    level[at..].iter_mut().for_each(|value| *value += size);
                }
            } else if rng.random_bool(0.5) {
                let (start, slope) = (rng.random_range(0..runs / 2), rng.random_range(0.02..0.1));
                for (i, value) in level[start..].iter_mut().enumerate() {
                    *value += slope * i.min(100) as f64;
                }
            }
            for (day, level) in level.into_iter().enumerate() {
                let time = time::from_unix_seconds(1.7e9 + 86_400.0 * day as f64).unwrap();
                let noise: f64 = (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0;
                add(&mut reading, machine, case, &format!("{machine}-{day}"), &time, level + noise);
            }
        }
    }
    reading
}

fn add(reading: &mut Reading, machine: &str, case: &str, run: &str, time: &str, value: f64) {
    let text = str::to_owned;
    let run = reading.run(run, [time, "", "", ""]);
    let key = Key { machine: text(machine), case_id: text(case), metric: text("throughput"), ..Key::default() };
    assert!(reading.add(key, case, run, [Some(value), None, None]));
}

/// The history of the rows that stay.
fn left(reading: &Reading, all: &[(Series, Vec<bool>)]) -> Reading {
    let mut left = Reading::default();
    for (series, stays) in all {
        for (point, _) in series.points.iter().zip(stays).filter(|(_, stays)| **stays) {
            let run = &reading.runs[point.run];
            add(&mut left, &series.key.machine, &series.key.case_id, &run.run_id, &run.time, point.centre);
        }
    }
    left
}

/// A finding: its run, whether it is a drift, its levels.
fn findings(reading: &Reading) -> Vec<Vec<(String, bool, f64, f64)>> {
    let analysed = |series: &Series| -> Vec<_> {
        let Trend { findings, .. } = trend(series, 0.0);
        let run = |index: usize| reading.runs[series.points[index].run].run_id.clone();
        findings.into_iter().map(|finding| (run(finding.at), finding.is_drift, finding.was, finding.is)).collect()
    };
    reading.series().par_iter().map(analysed).collect()
}

/// Compacts a history before its last fifty days; returns what is left and the share of rows that went.
fn compacted(reading: &Reading, keep: Period) -> (Reading, f64) {
    let times: Vec<&str> = reading.runs.iter().map(|run| run.time.as_str()).collect();
    let last = times.iter().max().unwrap();
    let cutoff = time::epoch_seconds(time::parse(last).unwrap()) - 50.0 * 86_400.0;
    let before = time::from_unix_seconds(cutoff).unwrap();
    let all = needed(reading, &before, keep, &[]);
    assert_eq!(all, needed(reading, &before, keep, &[]), "the same history gives the same answer");
    let is_old = |point: &Point| *reading.runs[point.run].time < *before;
    let points = || all.iter().flat_map(|(series, stays)| series.points.iter().zip(stays));
    assert!(points().all(|(point, stays)| *stays || is_old(point)), "only old rows go");
    let left = left(reading, &all);
    assert!(
        needed(&left, &before, keep, &[]).iter().all(|(_, stays)| stays.iter().all(|stays| *stays)),
        "twice is once"
    );
    let gone = points().filter(|(_, stays)| !**stays).count() as f64 / points().count() as f64;
    (left, gone)
}

/// Asserts that what is left tells the same; returns the largest difference of a level, in percent.
fn tells_the_same(whole: &Reading, left: &Reading) -> f64 {
    let mut most: f64 = 0.0;
    let (of_whole, of_left) = (findings(whole), findings(left));
    assert_eq!(of_whole.len(), of_left.len());
    for (whole, left) in of_whole.iter().zip(&of_left) {
        let places = |all: &[(String, bool, f64, f64)]| all.iter().map(|f| (f.0.clone(), f.1)).collect::<Vec<_>>();
        assert_eq!(places(whole), places(left));
        for (a, b) in whole.iter().zip(left) {
            most = most.max((a.2 / b.2 - 1.0).abs()).max((a.3 / b.3 - 1.0).abs());
        }
    }
    100.0 * most
}

#[test]
fn what_is_left_tells_the_same_changes_at_the_same_runs() {
    let mut all_gone = 0.0;
    for seed in 0..4 {
        let whole = history(seed, 240);
        let (left, gone) = compacted(&whole, Period::Week);
        all_gone += gone;
        // The noise of forty values of 1 % each is 0.16 %.
        let most = tells_the_same(&whole, &left);
        assert!(most < 0.8, "{seed}: a level moved by {most} %");
    }
    assert!(all_gone > 0.2, "{all_gone}");
}

#[test]
fn a_row_stays_for_each_period_each_end_and_each_accepted_change() {
    let mut reading = Reading::default();
    for day in 0..400 {
        let time = time::from_unix_seconds(1.7e9 + 86_400.0 * f64::from(day)).unwrap();
        // Nothing changes; a second case is measured every tenth day only.
        add(&mut reading, "m1", "daily", &format!("r{day}"), &time, 5.0);
        if day % 10 == 0 {
            add(&mut reading, "m1", "seldom", &format!("r{day}"), &time, 5.0);
        }
    }
    let count = |keep, accepted: &[&str]| {
        let all = needed(&reading, "2030", keep, accepted);
        let [daily, seldom] = [0, 1].map(|i: usize| all[i].1.iter().filter(|stays| **stays).count());
        assert_eq!(seldom, 40, "a series that has less than one row in a week, or hardly more than its ends");
        daily
    };
    assert_eq!(count(Period::Day, &[]), 400);
    // The first of each of 58 weeks, and twenty in a row at both ends, which have three and three of these.
    let weeks = count(Period::Week, &[]);
    assert_eq!(weeks, 58 + 2 * (20 - 3));
    assert!(count(Period::Month, &[]) < weeks);
    let (_, stays) = needed(&reading, "2030", Period::Week, &[]).swap_remove(0);
    let gone = (0..400).find(|i| !stays[*i]).unwrap();
    assert_eq!(count(Period::Week, &[&format!("r{gone}")]), weeks + 1);
    assert_eq!(count(Period::Week, &["unknown"]), weeks);
}

/// The table in docs/reference/statistics.md.
#[test]
#[ignore = "takes a minute in a release build"]
fn simulation() {
    for (runs, keep, histories) in
        [(365, Period::Week, 50_u32), (1000, Period::Week, 20), (1000, Period::Month, 20), (3650, Period::Week, 3)]
    {
        let (mut gone, mut most, mut findings_in_all, mut most_of_all) = (0.0, Vec::new(), 0, 0.0_f64);
        for seed in 0..u64::from(histories) {
            let whole = history(seed, runs);
            let (left, share) = compacted(&whole, keep);
            gone += share;
            findings_in_all += findings(&whole).iter().map(Vec::len).sum::<usize>();
            let moved = tells_the_same(&whole, &left);
            most_of_all = most_of_all.max(moved);
            most.push(moved);
        }
        most.sort_by(f64::total_cmp);
        println!(
            "{runs} runs, {keep:?}: {:.0} % of the rows went; {findings_in_all} findings; the level that moves most: median {:.2} %, \
             largest {most_of_all:.2} %",
            100.0 * gone / f64::from(histories),
            most[most.len() / 2]
        );
    }
}
