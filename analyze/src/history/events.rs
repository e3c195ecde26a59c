//! Findings that begin at the same run, as one event.

use super::{series::Reading, told::Told};

/// Changes, or drifts, of several series of one plan and machine between the same two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub is_drift: bool,
    /// Indices in [`Reading::runs`]: the last run of the old levels and the first of the new; of a drift, its first and last.
    pub before: usize,
    pub first: usize,
    /// Its findings, as indices of the series and of the finding in it; in the order of the series.
    pub findings: Vec<(usize, usize)>,
}

/// The events of the series, in the order of plan, machine and time.
pub fn events(reading: &Reading, all: &[Told]) -> Vec<Event> {
    let mut found: Vec<Event> = Vec::new();
    let place = |event: &Event| {
        let key = &all[event.findings[0].0].series.key;
        (&key.plan, &key.machine)
    };
    for (series, told) in all.iter().enumerate() {
        for (i, finding) in told.trend.findings.iter().enumerate() {
            let (before, first) = told.places(finding);
            let event = Event { is_drift: finding.is_drift, before, first, findings: vec![(series, i)] };
            let same = |other: &&mut Event| {
                (other.is_drift, other.before, other.first) == (event.is_drift, before, first)
                    && place(other) == place(&event)
            };
            match found.iter_mut().find(same) {
                Some(other) => other.findings.push((series, i)),
                None => found.push(event),
            }
        }
    }
    // Runs of the same time stay in the order of the series.
    let time = |event: &Event| &reading.runs[if event.is_drift { event.before } else { event.first }].time;
    found.sort_by(|a, b| (place(a), time(a)).cmp(&(place(b), time(b))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{series::Key, trend::trend};

    /// Series of one case and metric each, whose values are 3 % lower from a run on.
    fn told(series: &[(&str, &str, usize)]) -> (Reading, Vec<Told>) {
        let mut reading = Reading::default();
        for (plan, metric, step) in series {
            for run in 0..40 {
                let noise = [3, -12, 8, 11, -4, -9, 6][run * 5 % 7];
                let value = if run < *step { 1000.0 } else { 970.0 } + f64::from(noise) / 10.0;
                let time = format!("2026-01-01T00:{run:02}:00Z");
                let index = reading.run(&format!("r{run}"), [&time, "", "", ""]);
                let key = Key { plan: (*plan).into(), metric: (*metric).into(), ..Key::default() };
                reading.add(key, "bulk", index, [Some(value), None, None]);
            }
        }
        let all = reading.series().into_iter().map(|series| Told {
            trend: trend(&series, 0.01),
            series,
            disturbed: 0,
            last: None,
            accepted: Vec::new(),
            commits: Vec::new(),
        });
        let all = all.collect();
        (reading, all)
    }

    #[test]
    fn findings_between_the_same_runs_of_a_plan_are_one_event() {
        let (reading, all) = told(&[
            ("b", "throughput", 33),
            ("b", "latency.p99", 25),
            ("b", "retransmits", 33),
            ("a", "throughput", 33),
        ]);
        let found = events(&reading, &all);
        let named = |event: &Event| {
            let names = event.findings.iter().map(|(series, _)| {
                let key = &all[*series].series.key;
                format!("{} {}", key.plan, key.metric)
            });
            (reading.runs[event.before].run_id.clone(), reading.runs[event.first].run_id.clone(), names.collect())
        };
        let found: Vec<(String, String, Vec<String>)> = found.iter().map(named).collect();
        assert_eq!(
            found,
            [
                ("r32".into(), "r33".into(), vec!["a throughput".into()]),
                ("r24".into(), "r25".into(), vec!["b latency.p99".into()]),
                ("r32".into(), "r33".into(), vec!["b retransmits".into(), "b throughput".into()]),
            ]
        );
    }
}
