//! Reports and a bench made by hand, for the tests of this folder.

use std::collections::VecDeque;

use netcore::{
    report::{Counts, CpuUse, Ending, FlowWindow, Phase, Role, Side, SideReport, TcpInfo, Window},
    spec::{Direction, Pattern, TestSpec, Transport},
};
use schemas::{columns::Row, metrics};

use super::{
    confidence::Policy,
    run::{Bench, Fault, Measured, Reports, RowSink},
    step::{Member, Step},
};
use crate::{
    error::Error,
    plan::{
        case::{Endpoint, Job},
        model::Hooks,
    },
    sinks::progress::Progress,
};

pub fn flow(flow: u32, role: Role, sent: u64, received: u64) -> FlowWindow {
    FlowWindow {
        flow,
        role,
        counts: Counts { bytes_sent: sent, bytes_received: received, sends: 1, receives: 1, ..Counts::default() },
        latencies: Vec::new(),
        tcp_info: Some(TcpInfo { rtt_us: 50, cwnd_segments: 10, mss_bytes: 1000, ..TcpInfo::default() }),
        retransmits: Some(2),
        datagrams: None,
        jitter_ns: None,
        pacing: None,
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
    }
}

pub fn report(side: Side, phases: Vec<Window>) -> SideReport {
    SideReport {
        side,
        io: "blocking".into(),
        threads: 1,
        phases,
        intervals: Vec::new(),
        totals: Vec::new(),
        options: Vec::new(),
        nic: None,
        counters: Vec::new(),
        wall_start_ns: 0,
        monotonic_start_ns: 0,
        time_wait: None,
        ending: Ending::Complete,
        notes: Vec::new(),
    }
}

/// One forward stream that moved so many bytes in a second.
pub fn stream(bytes: u64) -> Measured {
    let second = 1_000_000_000;
    Measured {
        members: vec![Reports {
            near: report(Side::Near, vec![window(Phase::Measure, second, vec![flow(0, Role::Sender, bytes, 0)])]),
            far: Some(report(Side::Far, vec![window(Phase::Measure, second, vec![flow(0, Role::Receiver, 0, bytes)])])),
            near_start_ns: Some(second),
            far_start_ns: Some(second),
        }],
        start_skew: None,
        printed: None,
    }
}

pub fn spec(direction: Direction) -> TestSpec {
    TestSpec { direction, ..TestSpec::new(Pattern::Stream, Transport::Tcp) }
}

pub fn step(name: &str, min: u32, max: u32, margin: Option<f64>) -> Step {
    Step {
        name: name.into(),
        members: vec![Member {
            identity: Row { case: Some(name.into()), ..Row::default() },
            job: Job::Traffic(Box::new(spec(Direction::Forward))),
            from: Endpoint::Local,
            to: Endpoint::Embedded,
            intervals: false,
        }],
        policy: Policy { min, max, level: 0.95, margin, metrics: vec![metrics::find("throughput").unwrap()] },
        pause: std::time::Duration::ZERO,
        grace: std::time::Duration::from_secs(1),
        skip: None,
        group: None,
        stop: None,
        hooks: Hooks::default(),
    }
}

/// Gives what it was told to give, in order, and remembers what was asked of it.
#[derive(Default)]
pub struct FakeBench {
    pub results: VecDeque<Result<Measured, Fault>>,
    pub asked: Vec<String>,
}

impl Bench for FakeBench {
    fn measure(&mut self, step: &Step, _: u32, _: &mut Progress) -> Result<Measured, Fault> {
        self.asked.push(step.name.clone());
        self.results.pop_front().unwrap_or_else(|| Ok(stream(1000)))
    }
}

/// Keeps rows, and what was to be doubted.
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

    fn doubt(&mut self, sentence: String) {
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
                let text = |t: &Option<String>| t.clone().unwrap_or_default();
                let n = r.iteration.map(|n| n.to_string()).unwrap_or_default();
                format!("{} {} {n}", text(&r.record), text(&r.status)).trim_end().to_owned()
            })
            .collect()
    }
}
