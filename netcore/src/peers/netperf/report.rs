//! The report of a netserver's end, from its results.

use super::{
    check::{near_counts, near_only},
    classic,
    omni::{self, CPU_BY_PROC_STAT},
    wire::{MOST_CPU_METHOD, Message},
};
use crate::{
    report::{Counts, CpuUse, FlowWindow, Granted, Phase, SideReport, Window},
    spec::{Pattern, Role, Side, Stop, TestSpec, Transport, socket::OptionValue},
};

/// The far end's report. `ended_ns`: when its last data had been counted, on the near end's monotonic clock.
pub fn report(spec: &TestSpec, response: &Message, results: &Message, near: &SideReport, ended_ns: u64) -> SideReport {
    let told =
        if spec.pattern == Pattern::Connect { classic(spec, response, results) } else { omni(spec, response, results) };
    let flow = FlowWindow {
        flow: 0,
        role: spec.roles(Side::Far, 0).first().copied().unwrap_or(Role::Receiver),
        counts: told.counts,
        latencies: Vec::new(),
        tcp_at_start: None,
        tcp_info: None,
        retransmits: told.retransmits,
        datagrams: None,
        jitter_ns: None,
        pacing: None,
    };
    let mut report = SideReport::empty(Side::Far, near.ending.clone());
    (report.options, report.notes, report.wall_start_ns) = (told.options, told.notes, near.wall_start_ns);
    let kept = near_only(spec).map(|name| format!("netperf cannot set {name}: only the near end has it"));
    report.notes.extend(kept);
    report.totals = vec![flow.clone()];
    // Its counts are those of the whole load. With a warm-up or a cool-down they are no measurement.
    let phases = &spec.phases;
    if phases.warmup_ns == 0 && phases.cooldown_ns == 0 {
        let measured_ns =
            near.phases.iter().find(|window| window.phase == Phase::Measure).map(|window| window.elapsed_ns);
        let drained_ns = ended_ns.checked_sub(near.monotonic_start_ns).filter(|_| near.monotonic_start_ns > 0);
        // The receiver of a stream counts until it has read the last byte.
        let elapsed_ns = if near_counts(spec) { measured_ns } else { drained_ns.max(measured_ns) }.unwrap_or(0);
        report.phases.push(Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns,
            wall_end_ns: near.wall_start_ns.saturating_add_unsigned(elapsed_ns),
            flows: vec![flow],
            cpu: told.cpu,
            evidence: None,
        });
    }
    report
}

/// The contents of a results message.
struct Told {
    counts: Counts,
    retransmits: Option<u64>,
    options: Vec<Granted>,
    cpu: Option<CpuUse>,
    notes: Vec<String>,
}

fn granted(option: &str, requested: Option<String>, at_start: Option<String>, at_end: Option<String>) -> Granted {
    Granted { flow: 0, option: option.to_owned(), requested, at_start, at_end }
}

/// The sizes of the socket's buffers at the start, and at the end where the results tell them.
fn buffers(spec: &TestSpec, send: [Option<i32>; 2], receive: [Option<i32>; 2]) -> Vec<Granted> {
    let text = |value: Option<i32>| value.filter(|bytes| *bytes > 0).map(|bytes| bytes.to_string());
    let asked = &spec.far.socket;
    let row =
        |name, asked: Option<String>, [start, end]: [Option<i32>; 2]| granted(name, asked, text(start), text(end));
    vec![
        row("send_buffer", asked.send_buffer.map(|bytes| bytes.shown()), send),
        row("receive_buffer", asked.receive_buffer.map(|bytes| bytes.shown()), receive),
    ]
}

fn omni(spec: &TestSpec, response: &Message, results: &Message) -> Told {
    let (response, results) = (omni::Response::read(response), omni::Results::read(results));
    let messages = if spec.transport.is_datagram() && spec.pattern == Pattern::Stream { results.receives } else { 0 };
    let transactions = if spec.pattern == Pattern::Stream { 0 } else { results.transactions };
    let counts = Counts {
        bytes_sent: results.bytes_sent,
        bytes_received: results.bytes_received,
        sends: results.sends.into(),
        receives: results.receives.into(),
        transactions: transactions.into(),
        connections: if spec.pattern.is_connecting() { transactions.into() } else { 0 },
        messages_received: messages.into(),
        ..Counts::default()
    };
    let asked = &spec.far.socket;
    let mut options = buffers(
        spec,
        [Some(response.send_buffer), Some(results.send_buffer)],
        [Some(response.receive_buffer), Some(results.receive_buffer)],
    );
    let (mut notes, mut cpu) = (Vec::new(), None);
    let is_new = !spec.collect.cpu || waits_longer(spec) || has_cpu_words(&results);
    if waits_longer(spec) {
        notes.extend(spec.collect.cpu.then(left_out));
    } else if spec.collect.cpu {
        cpu = cpu_use(&results, is_new);
    }
    if !is_new {
        notes.push(
            "the results are of netperf 2.6 or older: of its CPU only the share is known, and no retransmissions"
                .to_owned(),
        );
    }
    let tcp = spec.transport == Transport::Tcp && is_new;
    let name = Some(results.congestion_control.text()).filter(|name| tcp && !name.is_empty()).map(str::to_owned);
    if name.is_some() || asked.congestion_control.is_some() {
        options.push(granted("congestion_control", asked.congestion_control.clone(), None, name));
    }
    let shown = |value: i32| (value >= 0).then(|| value.to_string());
    if let Some(dscp) = asked.dscp {
        options.push(granted("dscp", Some(dscp.shown()), shown(response.tos >> 2), None));
    }
    if let Some(priority) = asked.priority {
        options.push(granted("priority", Some(priority.shown()), shown(response.priority), None));
    }
    if let Some(no_delay) = asked.no_delay {
        let set = response.flags & omni::flag::NO_DELAY != 0;
        options.push(granted("no_delay", Some(no_delay.shown()), Some(set.to_string()), None));
    }
    let retransmits = u64::try_from(results.retransmits).ok().filter(|_| tcp);
    Told { counts, retransmits, options, cpu, notes }
}

fn classic(spec: &TestSpec, response: &Message, results: &Message) -> Told {
    let (response, results) = (classic::ExchangeResponse::read(response), classic::ExchangeResults::read(results));
    let transactions = results.transactions.into();
    let share = f64::from(results.cpu_percent) / 100.0;
    let cpu = (spec.collect.cpu && !waits_longer(spec) && (0.0..=1.01).contains(&share)).then(|| only(share));
    let notes = (spec.collect.cpu && waits_longer(spec)).then(left_out).into_iter().collect();
    Told {
        counts: Counts { transactions, connections: transactions, ..Counts::default() },
        retransmits: None,
        options: buffers(spec, [Some(response.send_buffer), None], [Some(response.receive_buffer), None]),
        cpu,
        notes,
    }
}

/// Whether its CPU figures cover more than the load: it waits for further connections after a time.
fn waits_longer(spec: &TestSpec) -> bool {
    spec.pattern.is_connecting() && matches!(spec.phases.stop, Stop::AfterNs(_))
}

fn left_out() -> String {
    "a netserver waits four seconds for further connections: its CPU share is left out".to_owned()
}

/// A CPU share of which nothing else is known. What is unknown is no number.
fn only(share: f64) -> CpuUse {
    const UNKNOWN: f64 = f64::NAN;
    CpuUse {
        busy: share.min(1.0),
        user: UNKNOWN,
        system: UNKNOWN,
        iowait: UNKNOWN,
        irq: UNKNOWN,
        softirq: UNKNOWN,
        steal: UNKNOWN,
        peak: UNKNOWN,
        ..CpuUse::default()
    }
}

/// Whether the words about the CPU are where netperf 2.7 has them. netperf 2.6 has others there, and nothing else tells.
fn has_cpu_words(results: &omni::Results) -> bool {
    let states = [
        results.user_percent,
        results.system_percent,
        results.iowait_percent,
        results.irq_percent,
        results.softirq_percent,
        results.peak_percent,
    ];
    // The integers of netperf 2.6 make floats that are next to 0.
    let is_share = |share: &f32| (0.0..=100.5).contains(share) && !share.is_subnormal();
    (1..=MOST_CPU_METHOD).contains(&results.cpu_method) && results.cpus > 0 && states.iter().all(is_share)
}

fn cpu_use(results: &omni::Results, is_new: bool) -> Option<CpuUse> {
    let ratio = |percent: f32| f64::from(percent) / 100.0;
    let busy = ratio(results.cpu_percent);
    if !(0.0..=1.01).contains(&busy) {
        return None;
    }
    let mut used = only(busy);
    if is_new {
        used.cpus = results.cpus;
        (used.peak, used.peak_id) = (ratio(results.peak_percent), u32::try_from(results.peak_cpu).unwrap_or(0));
    }
    // Only this method tells the states apart.
    if is_new && results.cpu_method == CPU_BY_PROC_STAT {
        (used.user, used.system, used.iowait) =
            (ratio(results.user_percent), ratio(results.system_percent), ratio(results.iowait_percent));
        (used.irq, used.softirq) = (ratio(results.irq_percent), ratio(results.softirq_percent));
    }
    Some(used)
}
