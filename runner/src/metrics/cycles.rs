//! The metrics of `plumb watch`: its last results and their age, how its cycles ended, and the answer to a probe.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use netcore::lock::Lock;
use schemas::{
    columns::Row,
    words::{CycleStatus, Record},
};

use super::{
    page as f,
    page::{Format, Page},
    results::Results,
    run::{build, unix_now},
    server::{Reply, Source},
};

/// Longest silence of the watching thread, which looks at its clocks every few seconds.
const SILENCE: Duration = Duration::from_mins(1);

/// A cycle that ended.
#[derive(Clone, Debug)]
pub struct Cycle {
    pub status: CycleStatus,
    /// Begin of the first cycle in a row with this status, Unix time.
    pub since_s: f64,
    /// Its own begin, Unix time.
    pub began_s: f64,
}

/// Answers requests for other pages.
pub type Ask = Box<dyn Fn(&str) -> Reply + Send + Sync>;

/// The watch as its scrapes see it.
pub struct WatchState {
    state: Lock<State>,
    ask: Ask,
}

struct State {
    start_s: f64,
    cycles: BTreeMap<&'static str, u64>,
    missed: u64,
    unkept: usize,
    is_active: bool,
    next_s: f64,
    last: Option<Cycle>,
    results: Results,
    /// Begin of the run that they are of, Unix time.
    measured_s: Option<f64>,
    seen: Instant,
}

impl WatchState {
    pub fn new(ask: Ask) -> Arc<Self> {
        let state = State {
            start_s: unix_now(),
            // A count that begins with its first event would miss that event in `increase`.
            cycles: CycleStatus::ALL.iter().map(|status| (status.as_str(), 0)).collect(),
            missed: 0,
            unkept: 0,
            is_active: false,
            next_s: 0.0,
            last: None,
            results: Results::default(),
            measured_s: None,
            seen: Instant::now(),
        };
        Arc::new(Self { state: Lock::new(state), ask })
    }

    /// The watching thread is alive.
    pub fn alive(&self, is_active: bool, next_s: f64) {
        let mut state = self.state.lock();
        (state.is_active, state.next_s, state.seen) = (is_active, next_s, Instant::now());
    }

    /// A cycle has ended. `rows`: those of its run; without them the results of an earlier one stay.
    pub fn ended(&self, cycle: Cycle, missed: u64, unkept: usize, rows: Option<&[Row]>) {
        let mut state = self.state.lock();
        *state.cycles.entry(cycle.status.as_str()).or_default() += 1;
        state.missed += missed;
        state.unkept = unkept;
        if let Some(rows) = rows {
            state.results = finished(rows);
            state.measured_s = Some(cycle.began_s);
        }
        state.last = Some(cycle);
    }
}

impl Source for WatchState {
    fn write(&self, page: &mut Page) -> bool {
        let state = self.state.lock();
        build(page, state.start_s);
        for (status, count) in &state.cycles {
            page.put(&f::CYCLES, &[("status", status)], *count as f64);
        }
        page.put(&f::MISSED, &[], state.missed as f64);
        page.put(&f::CYCLING, &[], f64::from(u8::from(state.is_active)));
        if let Some(last) = &state.last {
            for status in CycleStatus::ALL {
                page.put(&f::STATE, &[("status", status)], f64::from(u8::from(*status == last.status)));
            }
            page.put(&f::SINCE, &[], last.since_s);
        }
        if let Some(measured_s) = state.measured_s {
            page.put(&f::AGE, &[], (unix_now() - measured_s).max(0.0));
        }
        page.put(&f::NEXT, &[], state.next_s);
        page.put(&f::UNKEPT, &[], state.unkept as f64);
        state.results.write(page);
        false
    }

    fn ask(&self, target: &str) -> Reply {
        let state = self.state.lock();
        let now = |is_well, well: &str, ill: &str| {
            let (status, text) = if is_well { ("200 OK", well) } else { ("503 Service Unavailable", ill) };
            Reply::Now((status, format!("{text}\n")))
        };
        match target.split('?').next().unwrap_or_default() {
            "/healthz" => {
                now(state.seen.elapsed() < SILENCE, "well", "the watch has not looked at its clocks for a minute")
            }
            "/readyz" => now(state.last.is_some(), "a cycle has ended", "no cycle has ended yet"),
            _ => {
                drop(state);
                (self.ask)(target)
            }
        }
    }
}

/// The summaries of a run's table.
fn finished(rows: &[Row]) -> Results {
    let mut results = Results::default();
    let key = |row: &Row| (row.plan.clone().unwrap_or_default(), row.case.clone().unwrap_or_default());
    let summaries: Vec<&Row> = rows.iter().filter(|row| row.record == Some(Record::Summary)).collect();
    // The rows of a case come together.
    for case in summaries.chunk_by(|a, b| key(a) == key(b)) {
        results.finish(key(case[0]), case);
    }
    results
}

/// The page of a probe, with the rows of its run.
pub fn probe_page(is_success: bool, length: Duration, rows: &[Row]) -> String {
    let mut page = Page::new(Format::Prometheus);
    page.put(&f::PROBED, &[], f64::from(u8::from(is_success)));
    page.put(&f::PROBE_LENGTH, &[], length.as_secs_f64());
    finished(rows).write(&mut page);
    page.finish()
}
