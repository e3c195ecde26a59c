//! Hand-made reports and benches for the tests of this folder.

use std::collections::{BTreeMap, VecDeque};

use chacha20::ChaCha8Rng;
use netcore::{
    client::Outcome,
    report::{Counts, CpuUse, DatagramPhase, Ending, FlowWindow, Phase, SideReport, TcpInfo, Window},
    spec::{Direction, Pattern, Role, Side, Stop, TestSpec, Transport},
};
use rand::RngExt;
use schemas::{columns::Row, metrics};

use super::{Bench, MeasureError, Measured, RowSink, step::Step};
use crate::{
    error::Error,
    plan::{
        case::{Case, Endpoint, Member, Policy, Round},
        diagnostics::Span,
        job::Job,
        model::Hooks,
    },
    progress::Progress,
};

pub fn flow(flow: u32, role: Role, sent: u64, received: u64) -> FlowWindow {
    let counts = Counts { bytes_sent: sent, bytes_received: received, sends: 1, receives: 1, ..Counts::default() };
    FlowWindow {
        tcp_info: Some(TcpInfo { rtt_us: 50, cwnd_segments: 10, mss_bytes: 1000, ..TcpInfo::default() }),
        retransmits: Some(2),
        ..FlowWindow::of(flow, role, counts)
    }
}

pub fn window(phase: Phase, elapsed_ns: u64, flows: Vec<FlowWindow>) -> Window {
    Window {
        phase,
        start_ns: 0,
        elapsed_ns,
        wall_end_ns: 1_700_000_000_000_000_000,
        flows,
        cpu: Some(CpuUse { cpus: 2, busy: 0.5, peak: 1.0, ..CpuUse::default() }),
        evidence: None,
    }
}

pub fn report(side: Side, phases: Vec<Window>) -> SideReport {
    SideReport { io: "blocking".into(), threads: 1, phases, ..SideReport::empty(side, Ending::Complete) }
}

/// Two ends that started to measure at that instant.
pub fn outcome(near: SideReport, far: SideReport, start_ns: u64) -> Outcome {
    Outcome {
        near,
        far: Some(far),
        t0_ns: start_ns,
        near_start_ns: Some(start_ns),
        far_start_ns: Some(start_ns),
        near_loaded_ns: Some(start_ns),
        far_loaded_ns: Some(start_ns),
        start_skew_ns: Some(0),
        clock_bound_ns: 0,
    }
}

/// One forward stream of a second.
pub fn stream(bytes: u64) -> Measured {
    let second = 1_000_000_000;
    Measured {
        members: vec![outcome(
            report(Side::Near, vec![window(Phase::Measure, second, vec![flow(0, Role::Sender, bytes, 0)])]),
            report(Side::Far, vec![window(Phase::Measure, second, vec![flow(0, Role::Receiver, 0, bytes)])]),
            second,
        )],
        ..Measured::default()
    }
}

/// A stream of a second.
pub fn spec(direction: Direction) -> TestSpec {
    let mut spec = TestSpec { direction, ..TestSpec::new(Pattern::Stream, Transport::Tcp) };
    spec.phases.stop = Stop::AfterNs(1_000_000_000);
    spec
}

pub fn step(name: &str, min: u32, max: u32, margin: Option<f64>) -> Step {
    let case = Case {
        test: name.into(),
        id: String::new(),
        name: name.into(),
        axes: Vec::new(),
        members: vec![Member {
            idle: None,
            is_searched: false,
            after: std::time::Duration::ZERO,
            name: String::new(),
            workload: "tcp_stream".into(),
            job: Job::Traffic(Box::new(spec(Direction::Forward))),
            from: Endpoint::Local,
            to: Endpoint::Embedded,
            settings: BTreeMap::new(),
            wire: None,
            refused: None,
        }],
        policy: Policy { min, max, level: 0.95, margin, metrics: vec![metrics::find("throughput").unwrap()] },
        pause: std::time::Duration::ZERO,
        grace: std::time::Duration::from_secs(1),
        skip: None,
        group: None,
        round: None,
        asserts: Vec::new(),
        find: None,
        stop_when: None,
        hooks: Hooks::default(),
        tags: Vec::new(),
        command_span: Span::default(),
        hooks_span: Span::default(),
    };
    Step { identities: vec![Row { case: Some(name.into()), ..Row::default() }], case, line: None, until: None }
}

/// A step that is measured together with the others of its round.
pub fn pair(name: &str, number: u32, iterations: u32) -> Step {
    let mut pair = step(name, iterations, iterations, None);
    pair.case.round = Some(Round { survey: "links".into(), number, of: 2 });
    pair
}

/// Returns `results` in order, and records the steps that it measured.
#[derive(Default)]
pub struct FakeBench {
    pub results: VecDeque<Result<Measured, MeasureError>>,
    pub asked: Vec<String>,
    /// The names of the steps that were measured at the same time, where they were several: `a+b`.
    pub rounds: Vec<String>,
}

impl Bench for FakeBench {
    fn measure(&mut self, step: &Step, _: u32, _: &mut Progress) -> Result<Measured, MeasureError> {
        self.asked.push(step.name.clone());
        self.results.pop_front().unwrap_or_else(|| Ok(stream(1000)))
    }

    fn measure_round(
        &mut self,
        steps: &[(&Step, u32)],
        progress: &mut Progress,
    ) -> Vec<Result<Measured, MeasureError>> {
        if steps.len() > 1 {
            self.rounds.push(steps.iter().map(|(step, _)| step.name.as_str()).collect::<Vec<_>>().join("+"));
        }
        steps.iter().map(|(step, iteration)| self.measure(step, *iteration, progress)).collect()
    }
}

/// Chance results of a [`FakeLink`].
pub struct Noise {
    pub rng: ChaCha8Rng,
    /// Share of probes that lose messages at any load.
    pub stalls: f64,
    /// Share of probes that lose none at any load.
    pub luck: f64,
    /// Scale of the logistic curve by which a load's logarithm makes the others lose some; 0: at the capacity.
    pub knee: f64,
}

/// A path that loses messages beyond its capacity, and a sender with a limit of its own: messages per second.
pub struct FakeLink {
    pub capacity: f64,
    pub sender: f64,
    /// Messages that a queue holds; they arrive after the window.
    pub queue: f64,
    /// Draws probes that fail below the capacity, and probes that hold above it.
    pub noise: Option<Noise>,
    /// Per probe: another capacity, or an error.
    pub instead: VecDeque<Option<Result<f64, MeasureError>>>,
    /// Loads of its probes: messages per second, or transactions in flight.
    pub asked: Vec<f64>,
}

impl FakeLink {
    pub fn new(capacity: f64, sender: f64) -> Self {
        Self { capacity, sender, queue: 0.0, noise: None, instead: VecDeque::new(), asked: Vec::new() }
    }
}

impl Bench for FakeLink {
    fn measure(&mut self, step: &Step, _: u32, _: &mut Progress) -> Result<Measured, MeasureError> {
        const SECONDS: u64 = 1000;
        let spec = step.members[0].spec().expect("a search needs traffic");
        let mut capacity = self.instead.pop_front().flatten().transpose()?.unwrap_or(self.capacity);
        if let Some(Noise { rng, stalls, luck, knee }) = &mut self.noise {
            let drawn: f64 = rng.random();
            let load = spec.pace.as_ref().map_or(f64::from(spec.inflight), |pace| pace.events_per_s);
            if drawn < *stalls {
                capacity = capacity.min(load * 0.9);
            } else if drawn > 1.0 - *luck {
                capacity = f64::INFINITY;
            } else if *knee > 0.0 {
                let loses = rng.random::<f64>() > 1.0 / (1.0 + (load / capacity).powf(1.0 / *knee));
                capacity = if loses { load * 0.9 } else { f64::INFINITY };
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates made up by tests")]
        let count = |per_s: f64| (per_s * SECONDS as f64) as u64;
        let end = |side, role, counts: Counts, datagrams| {
            let flow = FlowWindow { counts, datagrams, ..flow(0, role, 0, 0) };
            report(side, vec![window(Phase::Measure, SECONDS * 1_000_000_000, vec![flow])])
        };
        let (near, far) = if let Some(pace) = &spec.pace {
            self.asked.push(pace.events_per_s);
            let sent = count(pace.events_per_s.min(self.sender));
            let received = sent.min(count(capacity));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made up by tests")]
            let late = (sent - received).min(self.queue as u64);
            let bytes = spec.sizes.message_bytes;
            let counts = |sent, received| Counts {
                messages_sent: sent,
                messages_received: received,
                bytes_sent: sent * bytes,
                bytes_received: received * bytes,
                ..Counts::default()
            };
            let phase = |sent, received| Some(DatagramPhase { sent, received, ..DatagramPhase::default() });
            (
                end(Side::Near, Role::Sender, counts(sent, 0), phase(sent, 0)),
                end(Side::Far, Role::Receiver, counts(0, received), phase(0, received + late)),
            )
        } else {
            // Beyond its capacity it answers a tenth.
            self.asked.push(spec.inflight.into());
            let share = if f64::from(spec.inflight) <= capacity { 1.0 } else { 0.1 };
            let counts = Counts { transactions: count(1000.0 * share), ..Counts::default() };
            (end(Side::Near, Role::Requester, counts, None), end(Side::Far, Role::Responder, Counts::default(), None))
        };
        Ok(Measured { members: vec![outcome(near, far, 1_000_000_000)], ..Measured::default() })
    }
}

/// Keeps rows and notes.
#[derive(Default)]
pub struct Rows(pub Vec<Row>, pub Vec<String>);

impl RowSink for Rows {
    fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        self.0.extend_from_slice(rows);
        Ok(())
    }

    fn reports(&mut self, _: &Step, _: u32, _: &Measured) -> Result<(), Error> {
        Ok(())
    }

    fn note(&mut self, sentence: String) {
        self.1.push(sentence);
    }

    fn is_closed(&self) -> bool {
        false
    }
}

impl Rows {
    /// `record status iteration` of every row of a case.
    pub fn of(&self, case: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|r| r.case.as_deref() == Some(case))
            .map(|r| {
                let n = r.iteration.map(|n| n.to_string()).unwrap_or_default();
                let (record, status) = (r.record.as_deref().unwrap_or(""), r.status.as_deref().unwrap_or(""));
                format!("{record} {status} {n}").trim_end().to_owned()
            })
            .collect()
    }
}
