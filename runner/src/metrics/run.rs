//! The metrics of a run, kept by the thread of the campaign at the edges of iterations and read by scrapes, and those of a daemon.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use netcore::{
    control::stop::{Event, wait},
    daemon::{Daemon, Snapshot},
    lock::Lock,
};
use schemas::{
    columns::{Row, VerdictRow},
    units::Unit,
    words::{Phase, Record, Status, Verdict},
};

use super::{page as f, page::Page, results::Results, server::Source};
use crate::{
    progress::{Live, Now, Watched},
    signals::Interrupts,
};

/// The run as its scrapes see it.
#[derive(Debug)]
pub struct LiveState {
    state: Lock<State>,
    /// The running iteration, as the progress line has it.
    watched: Watched,
    /// A scraper has read the page of the run's end.
    last_page_read: Event,
}

#[derive(Debug, Default)]
struct State {
    run_id: String,
    plans: Vec<String>,
    start_s: f64,
    cases: usize,
    /// Status of finished cases, by plan and name.
    finished: HashMap<(String, String), Status>,
    iterations: BTreeMap<&'static str, u64>,
    verdicts: BTreeMap<&'static str, u64>,
    results: Results,
    ended: bool,
}

impl LiveState {
    pub fn new(watched: Watched) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { state: Lock::default(), watched, last_page_read: Event::new()? }))
    }

    /// The run begins, with these plans and so many cases.
    pub fn begin(&self, run_id: &str, plans: Vec<String>, cases: usize) {
        let mut state = self.state.lock();
        (state.run_id, state.plans, state.cases, state.start_s) = (run_id.to_owned(), plans, cases, unix_now());
        // A count that begins with its first event would miss that event in `increase`.
        state.iterations = Status::ALL.iter().filter(|it| **it != Status::Skipped).map(|it| (it.as_str(), 0)).collect();
        state.verdicts = Verdict::ALL.iter().map(|it| (it.as_str(), 0)).collect();
    }

    /// Takes the rows of an iteration or of a case's end.
    pub fn rows(&self, rows: &[Row]) {
        let mut state = self.state.lock();
        let key = |row: &Row| (row.plan.clone().unwrap_or_default(), row.case.clone().unwrap_or_default());
        let of = |record: Record| move |row: &&Row| row.record == Some(record);
        let ended: Vec<&Row> = rows.iter().filter(of(Record::Summary)).collect();
        // The rows of a case come together.
        for case in ended.chunk_by(|a, b| key(a) == key(b)) {
            let key = key(case[0]);
            state.finished.insert(key.clone(), case[0].status.unwrap_or(Status::Ok));
            state.results.finish(key, case);
        }
        let is_measured = |row: &&Row| {
            matches!(row.record, Some(Record::Iteration | Record::Probe))
                && row.stream.is_none()
                && row.phase.is_none_or(|phase| phase == Phase::Measure)
        };
        let measured: Vec<&Row> = rows.iter().filter(is_measured).collect();
        for iteration in measured.chunk_by(|a, b| (key(a), a.iteration) == (key(b), b.iteration)) {
            let status = iteration[0].status.unwrap_or(Status::Ok);
            *state.iterations.entry(status.as_str()).or_default() += 1;
        }
        if !measured.is_empty() {
            state.results.iterate(&measured);
        }
    }

    /// Takes the verdicts of a plan.
    pub fn verdicts(&self, rows: &[VerdictRow]) {
        let mut state = self.state.lock();
        for row in rows {
            *state.verdicts.entry(row.verdict.as_str()).or_default() += 1;
        }
    }

    /// The run has ended: nothing is current any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.results.iterate(&[]);
    }

    /// Waits until a scraper has read the page of the run's end, for `limit` at most. A signal ends that at once.
    pub fn linger(&self, limit: Duration, interrupts: &Interrupts) {
        let flag = interrupts.flag();
        if interrupts.requested() {
            return;
        }
        // Without a descriptor to wait for, the process ends as it does without lingering.
        let _ =
            wait([Some(self.last_page_read.as_fd()), flag.beyond(flag.urgency())], Instant::now().checked_add(limit));
    }
}

impl Source for LiveState {
    fn write(&self, page: &mut Page) -> bool {
        let now = self.watched.read();
        let state = self.state.lock();
        build(page, state.start_s);
        for plan in &state.plans {
            page.put(&f::RUN, &[("run_id", &state.run_id), ("plan", plan)], 1.0);
        }
        page.put(&f::ACTIVE, &[], f64::from(u8::from(!state.ended)));
        page.put(&f::CASES, &[], state.cases as f64);
        for status in Status::ALL {
            let cases = state.finished.values().filter(|other| *other == status).count();
            if cases > 0 || matches!(status, Status::Ok | Status::Failed | Status::Skipped) {
                page.put(&f::FINISHED, &[("status", status.as_str())], cases as f64);
            }
        }
        for (status, count) in &state.iterations {
            page.put(&f::ITERATIONS, &[("status", status)], *count as f64);
        }
        for (kind, count) in [("warning", now.warnings), ("error", now.errors)] {
            page.put(&f::REMARKS, &[("kind", kind)], count as f64);
        }
        for (verdict, count) in &state.verdicts {
            page.put(&f::VERDICTS, &[("verdict", verdict)], *count as f64);
        }
        if let Some(left) = now.left().filter(|_| !state.ended) {
            page.put(&f::LEFT, &[], left.as_secs_f64());
        }
        page.put(&f::FORGOTTEN, &[], state.results.forgotten as f64);
        if !state.ended {
            current(&now, page);
        }
        state.results.write(page);
        state.ended
    }

    fn last_page_read(&self) {
        self.last_page_read.set();
    }
}

/// The running iteration and its members.
fn current(now: &Now, page: &mut Page) {
    let Some((position, _)) = &now.iteration else { return };
    let case = ("case", position.name.as_str());
    page.put(&f::CASE_NUMBER, &[case], position.case as f64);
    page.put(&f::ITERATION, &[case], position.iteration.into());
    // A search has no number of probes.
    if position.range.is_none() {
        page.put(&f::PLANNED, &[case, ("bound", "fewest")], position.min.into());
        page.put(&f::PLANNED, &[case, ("bound", "most")], position.max.into());
    }
    if let Some(margin) = position.margin {
        page.put(&f::MARGIN, &[case], margin);
    }
    if let Some(goal) = position.goal {
        page.put(&f::GOAL, &[case], goal);
    }
    if let Some((host, place)) = &now.waiting {
        page.put(&f::QUEUE, &[case, ("host", host)], (*place).into());
    }
    let Some((members, since)) = &now.members else { return };
    let elapsed = |live: &Live| live.planned.map_or(Duration::MAX, |it| it).min(live.elapsed + since.elapsed());
    // A family's samples stand together.
    for live in members {
        let labels = [case, ("member", live.member.as_str()), ("phase", live.phase)];
        page.put(&f::ELAPSED, &labels, elapsed(live).as_secs_f64());
    }
    for (live, planned) in members.iter().filter_map(|live| Some((live, live.planned?))) {
        let labels = [case, ("member", live.member.as_str()), ("phase", live.phase)];
        page.put(&f::LENGTH, &labels, planned.as_secs_f64());
    }
    for (family, unit, scale) in [(&f::LIVE_BYTES, Unit::BitsPerSecond, 8.0), (&f::LIVE_EVENTS, Unit::PerSecond, 1.0)] {
        let rates = members.iter().filter_map(|live| Some((live, live.rate.filter(|rate| rate.1 == unit)?.0)));
        for (live, rate) in rates {
            page.put(family, &[case, ("member", live.member.as_str())], rate / scale);
        }
    }
}

pub(super) fn unix_now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A daemon as its scrapes see it.
#[derive(Debug)]
pub struct Served {
    daemon: Arc<Daemon>,
    start_s: f64,
}

impl Served {
    pub fn new(daemon: Arc<Daemon>) -> Self {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { daemon, start_s: start.as_secs_f64() }
    }
}

/// The families that both commands have.
pub(super) fn build(page: &mut Page, start_s: f64) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("build", env!("PLUMB_BUILD"))];
    page.put(&f::BUILD, &labels, 1.0);
    page.put(&f::START, &[], start_s);
}

impl Source for Served {
    fn write(&self, page: &mut Page) -> bool {
        let Snapshot { limits, counts, sessions, greeting, running, flows, memory_bytes, waiting } =
            self.daemon.snapshot();
        build(page, self.start_s);
        page.put(&f::SESSIONS, &[], sessions.into());
        page.put(&f::MOST_SESSIONS, &[], limits.sessions.into());
        page.put(&f::MOST_OF_CLIENT, &[], limits.sessions_per_client.into());
        for (program, count) in counts.opened {
            page.put(&f::OPENED, &[("program", program)], count as f64);
        }
        page.put(&f::GREETING, &[], greeting as f64);
        for (cause, count) in counts.refused {
            page.put(&f::REFUSED, &[("reason", cause.as_str())], count as f64);
        }
        page.put(&f::WAITING, &[], waiting as f64);
        page.put(&f::RUNNING, &[], running as f64);
        for (ending, count) in counts.tests {
            page.put(&f::TESTS, &[("ending", ending.as_str())], count as f64);
        }
        page.put(&f::PROGRAMS, &[], counts.programs as f64);
        page.put(&f::FLOWS, &[], flows as f64);
        page.put(&f::MOST_FLOWS, &[], limits.flows.into());
        page.put(&f::MEMORY, &[], memory_bytes as f64);
        page.put(&f::MOST_MEMORY, &[], limits.memory_bytes as f64);
        page.put(&f::LONGEST, &[], Duration::from_nanos(limits.duration_ns).as_secs_f64());
        page.put(&f::SENT, &[], counts.bytes_sent as f64);
        page.put(&f::RECEIVED, &[], counts.bytes_received as f64);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metrics::page::Format,
        progress::{Mode, Position, Progress},
    };

    fn row(record: Record, case: &str, status: Status) -> Row {
        Row {
            plan: Some("p".into()),
            case: Some(case.into()),
            record: Some(record),
            status: Some(status),
            throughput_bits_per_s: Some(8.0),
            ..Row::default()
        }
    }

    fn iteration(number: u64, member: &str, status: Status) -> Row {
        let member = Some(member.to_owned()).filter(|member| !member.is_empty());
        Row { iteration: Some(number), member, ..row(Record::Iteration, "a", status) }
    }

    fn page(live_state: &LiveState) -> (String, bool) {
        let mut page = Page::new(Format::Prometheus);
        let last = live_state.write(&mut page);
        (page.finish(), last)
    }

    #[test]
    fn iterations_count_once_however_many_rows_they_have() {
        let live_state = LiveState::new(Watched::default()).unwrap();
        live_state.begin("r", vec!["p".into()], 2);
        live_state.rows(&[iteration(1, "x", Status::Ok), iteration(1, "y", Status::Ok), iteration(1, "", Status::Ok)]);
        let warmup = Row { phase: Some(Phase::Warmup), ..iteration(2, "", Status::Ok) };
        let stream = Row { record: Some(Record::Stream), stream: Some(0), ..iteration(2, "", Status::Ok) };
        live_state.rows(&[warmup, stream, iteration(2, "", Status::Ok)]);
        live_state.rows(&[iteration(3, "x", Status::Failed), iteration(3, "y", Status::Failed)]);
        live_state.rows(&[row(Record::Summary, "a", Status::Failed)]);
        live_state.rows(&[row(Record::Summary, "b", Status::Skipped)]);
        let (text, last) = page(&live_state);
        for line in [
            "plumb_run_cases 2",
            "plumb_run_iterations_total{status=\"ok\"} 2",
            "plumb_run_iterations_total{status=\"failed\"} 1",
            "plumb_run_iterations_total{status=\"cut\"} 0",
            "plumb_run_finished_cases{status=\"failed\"} 1",
            "plumb_run_finished_cases{status=\"skipped\"} 1",
            "plumb_run_finished_cases{status=\"ok\"} 0",
            "plumb_run_active 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!last && text.contains("record=\"iteration\""));
    }

    #[test]
    fn what_is_current_leaves_with_the_end() {
        let mut progress = Progress::new(Mode::Silent);
        let live_state = LiveState::new(progress.watch()).unwrap();
        live_state.begin("r", vec!["p".into()], 1);
        assert!(!page(&live_state).0.contains("plumb_case_"), "nothing runs yet");
        progress.iteration(Position { case: 1, name: "a".into(), iteration: 2, ..Position::default() });
        let rate = Some((8e9, Unit::BitsPerSecond));
        let live = |member: &str| Live {
            member: member.into(),
            phase: "measure",
            elapsed: Duration::from_secs(9),
            planned: Some(Duration::from_secs(9)),
            rate,
            left: None,
        };
        progress.live(&[live("x"), live("y")]);
        live_state.rows(&[iteration(1, "", Status::Ok)]);
        let (text, _) = page(&live_state);
        for line in [
            "plumb_case_iteration{case=\"a\"} 2",
            "plumb_phase_elapsed_seconds{case=\"a\",member=\"x\",phase=\"measure\"} 9",
            "plumb_live_bytes_per_second{case=\"a\",member=\"y\"} 1000000000",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        live_state.end();
        let (text, last) = page(&live_state);
        assert!(last && text.contains("plumb_run_active 0"), "{text}");
        assert!(
            !["plumb_case_", "plumb_live_", "plumb_phase_", "iteration\""].iter().any(|it| text.contains(it)),
            "{text}"
        );
        let uncaught = Interrupts::uncaught().unwrap();
        live_state.last_page_read();
        live_state.linger(Duration::MAX, &uncaught);
    }
}
