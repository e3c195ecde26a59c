//! Results of both ends: ours as a server or a client of iperf3 gets them, and a server's as the far end's report.

use std::{fmt::Write, time::Duration};

use nix::sys::resource::{UsageWho, getrusage};

use super::parameters::Parameters;
use crate::{
    measure::clock::nanoseconds,
    peers::iperf3::{
        mapping::near_only,
        results::{Results, StreamResults},
        wire::{stream_id, stream_index},
    },
    report::{Counts, CpuUse, DatagramPhase, Ending, FlowWindow, Granted, Phase, SideReport, Window},
    spec::{Direction, Role, Side, TestSpec, Transport},
};

/// The results of this end.
pub fn client_results(spec: &TestSpec, near: &SideReport) -> Results {
    let measured = near.phase(Phase::Measure);
    let stream = |flow: u32| {
        let role = role(spec, Side::Near, flow);
        let total = counts(&near.totals, flow).map_or_else(Counts::default, |flow| flow.counts);
        let early = near
            .phase(Phase::Warmup)
            .and_then(|window| counts(&window.flows, flow))
            .map_or_else(Counts::default, |flow| flow.counts);
        let (numbered_early, numbered) = (numbered(near, Phase::Warmup, flow), numbered(near, Phase::Measure, flow));
        let mut result = StreamResults { id: stream_id(flow).into(), ..StreamResults::default() };
        if role == Role::Sender {
            result.bytes = total.bytes_sent.saturating_sub(early.bytes_sent);
            result.packets = total.messages_sent;
            result.omitted = Some((0, early.messages_sent));
            result.retransmits = counts(&near.totals, flow).and_then(|flow| flow.retransmits);
        } else {
            result.bytes = total.bytes_received.saturating_sub(early.bytes_received);
            result.packets = numbered.or(numbered_early).unwrap_or(0);
            result.errors = result.packets.saturating_sub(total.messages_received);
            let omitted = numbered_early.unwrap_or(0);
            result.omitted = Some((omitted.saturating_sub(early.messages_received), omitted));
            let jitter_ns = counts(&near.totals, flow).and_then(|flow| flow.jitter_ns).unwrap_or(0);
            result.jitter_s = jitter_ns as f64 / 1e9;
        }
        if spec.transport != Transport::Udp {
            result.omitted = None;
        }
        result.seconds = measured.map_or(0.0, |window| window.elapsed_ns as f64 / 1e9);
        result
    };
    let process = measured.and_then(|window| window.cpu.as_ref()?.process_cpus);
    Results {
        cpu: process.map(|cpus| [cpus * 100.0, 0.0, 0.0]),
        has_retransmits: (spec.direction != Direction::Reverse).then_some(spec.transport != Transport::Udp),
        congestion: near.last_value("congestion_control").map(str::to_owned),
        output: None,
        streams: (0..spec.flows()).map(stream).collect(),
    }
}

/// A server's results as the report of the far end: one window, the measurement. `end`: when all that the near end
/// sent was there (0: it sent nothing), and when the server was told of the end, on this host's clock.
pub fn report(spec: &TestSpec, near: &SideReport, theirs: &Results, end: (u64, u64)) -> Result<SideReport, String> {
    let mut of_flow = vec![None; spec.flows() as usize];
    for stream in &theirs.streams {
        let place = stream_index(stream.id).and_then(|index| of_flow.get_mut(index as usize));
        match place {
            Some(place @ None) => *place = Some(*stream),
            Some(Some(_)) => return Err(format!("it reports stream {} twice", stream.id)),
            None => return Err(format!("it reports a stream {}, which the test does not have", stream.id)),
        }
    }
    let mut flows = Vec::new();
    for (flow, stream) in (0..).zip(&of_flow) {
        let Some(stream) = stream else { return Err(format!("it reports nothing about stream {}", stream_id(flow))) };
        flows.push(far_flow(spec, near, flow, stream)?);
    }
    let near_ns = near.phase(Phase::Measure).map_or(0, |window| window.elapsed_ns);
    let seconds = of_flow.iter().flatten().map(|stream| stream.seconds).fold(0.0, f64::max);
    let own_ns = Duration::try_from_secs_f64(seconds).map_or(0, nanoseconds);
    let warms_up = spec.phases.warmup_ns > 0;
    let (arrived_ns, told_ns) = end;
    let elapsed_ns = match arrived_ns.checked_sub(near.monotonic_start_ns).filter(|_| arrived_ns > 0) {
        // From the begin of the load until everything had arrived.
        Some(until_arrival) if !warms_up => until_arrival,
        // By its own clock it counted on until it was told, when everything had arrived.
        Some(_) if own_ns > 0 => own_ns.saturating_sub(told_ns.saturating_sub(arrived_ns)).max(1),
        None if own_ns > 0 => own_ns,
        _ => near_ns,
    };
    let kept = near_only(spec).map(|name| format!("iperf3 cannot set {name}: only the near end has it"));
    let mut notes: Vec<String> = kept.collect();
    let is_untold = |stream: &StreamResults| stream.errors > 0 && stream.omitted.is_none();
    if warms_up && spec.direction != Direction::Reverse && of_flow.iter().flatten().any(is_untold) {
        notes.push(
            "iperf3 before version 3.14 does not tell which datagrams were lost in the warm-up: those that were under way at \
             its end may count as lost"
                .to_owned(),
        );
    }
    let options = theirs.congestion.iter().flat_map(|name| {
        (0..spec.flows()).map(|flow| Granted {
            flow,
            option: "congestion_control".to_owned(),
            requested: spec.far.socket.congestion_control.clone(),
            at_start: None,
            at_end: Some(name.clone()),
        })
    });
    // A server's counts begin after the warm-up, so with one its totals are unknown.
    let totals = if warms_up { Vec::new() } else { flows.clone() };
    Ok(SideReport {
        phases: vec![Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns,
            wall_end_ns: near.phase(Phase::Measure).map_or(0, |window| window.wall_end_ns),
            flows,
            // It tells the time of its process, not that of the machine.
            cpu: theirs.cpu.map(|[total, ..]| CpuUse { process_cpus: Some(total / 100.0), ..CpuUse::default() }),
            evidence: None,
        }],
        totals,
        options: options.collect(),
        notes,
        ..SideReport::empty(Side::Far, Ending::Complete)
    })
}

fn far_flow(spec: &TestSpec, near: &SideReport, flow: u32, stream: &StreamResults) -> Result<FlowWindow, String> {
    let role = role(spec, Side::Far, flow);
    let udp = spec.transport == Transport::Udp;
    let total = counts(&near.totals, flow).map_or_else(Counts::default, |flow| flow.counts);
    let mut counts = Counts::default();
    let mut datagrams = DatagramPhase::default();
    let (omitted_errors, omitted) = stream.omitted.unwrap_or_default();
    if role == Role::Sender {
        counts.bytes_sent = stream.bytes;
        let excess = total.bytes_received.saturating_sub(stream.bytes);
        if !udp && spec.phases.warmup_ns == 0 && excess <= spec.sizes.message_bytes {
            // Since version 3.16 a server ends its threads in the middle of a call, and does not count what that call sent.
            counts.bytes_sent += excess;
        }
        if udp {
            // Messages with a number above the last one of the warm-up belong to the measurement.
            let early = numbered(near, Phase::Warmup, flow).unwrap_or(0);
            counts.messages_sent = stream.packets.saturating_sub(early);
            datagrams.sent = counts.messages_sent;
        }
    } else {
        counts.bytes_received = stream.bytes;
        if !udp && stream.bytes > total.bytes_sent {
            let (received, sent) = (stream.bytes, total.bytes_sent);
            return Err(format!("it received {received} bytes in stream {}, and {sent} were sent", stream.id));
        }
        if udp {
            counts.messages_received = stream.bytes / spec.sizes.message_bytes.max(1);
            let sent = sent_in_measurement(near, flow);
            datagrams.received = match stream.omitted {
                // A loss at the end of the test shows in no gap.
                _ if spec.phases.warmup_ns == 0 => stream.packets.saturating_sub(stream.errors),
                Some(_) => sent.saturating_sub(stream.errors.saturating_sub(omitted_errors)),
                None if stream.errors == 0 => sent,
                None => counts.messages_received,
            }
            .min(sent);
        }
    }
    if stream.packets < omitted || stream.packets < stream.errors.saturating_sub(omitted_errors) {
        return Err(format!("of stream {} it lost more datagrams than there were", stream.id));
    }
    Ok(FlowWindow {
        retransmits: stream.retransmits.filter(|_| !udp && role == Role::Sender),
        datagrams: udp.then_some(datagrams),
        jitter_ns: (udp && role == Role::Receiver)
            .then(|| Duration::try_from_secs_f64(stream.jitter_s).map_or(0, nanoseconds)),
        ..FlowWindow::of(flow, role, counts)
    })
}

fn role(spec: &TestSpec, side: Side, flow: u32) -> Role {
    spec.roles(side, flow).first().copied().unwrap_or(Role::Receiver)
}

fn counts(flows: &[FlowWindow], flow: u32) -> Option<&FlowWindow> {
    flows.iter().find(|window| window.flow == flow)
}

fn numbered(report: &SideReport, phase: Phase, flow: u32) -> Option<u64> {
    counts(&report.phase(phase)?.flows, flow)?.datagrams?.numbered
}

fn sent_in_measurement(near: &SideReport, flow: u32) -> u64 {
    let flow = near.phase(Phase::Measure).and_then(|window| counts(&window.flows, flow));
    flow.and_then(|flow| flow.datagrams).map_or(0, |datagrams| datagrams.sent)
}

/// CPU time of this process until now, seconds: user and system. Other tests of the daemon are part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime([f64; 2]);

impl CpuTime {
    pub fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Self::default() };
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Self([seconds(usage.user_time()), seconds(usage.system_time())])
    }

    /// Percent of one CPU in `seconds` since then: all, user, system.
    fn since(self, seconds: f64) -> Option<[f64; 3]> {
        let now = Self::now();
        let percent = |i: usize| 100.0 * (now.0[i] - self.0[i]).max(0.0) / seconds;
        (seconds > 0.0).then(|| [percent(0) + percent(1), percent(0), percent(1)])
    }
}

/// Times of a test here, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Begin of the measurement, after the omitted time.
    pub begin: u64,
    /// The client's word that the test is over.
    pub end: u64,
    /// The last arrival after that.
    pub arrived: u64,
}

/// The results of a test. `theirs`: the client's.
pub fn server_results(
    spec: &TestSpec,
    asked: &Parameters,
    report: &SideReport,
    theirs: &Results,
    times: Times,
    cpu: CpuTime,
) -> Results {
    let seconds = |until: u64| until.saturating_sub(times.begin) as f64 / 1e9;
    let udp = spec.transport == Transport::Udp;
    let early = report.phase(Phase::Warmup);
    let stream = |flow: &FlowWindow| {
        let id = stream_id(flow.flow).into();
        let before = early.and_then(|window| window.flows.iter().find(|early| early.flow == flow.flow));
        let omitted = before.map(|early| early.counts).unwrap_or_default();
        let mut result = StreamResults { id, ..StreamResults::default() };
        if flow.role == Role::Sender {
            result.bytes = flow.counts.bytes_sent - omitted.bytes_sent.min(flow.counts.bytes_sent);
            result.packets = flow.counts.messages_sent;
            result.retransmits = flow.retransmits.filter(|_| !udp);
            result.omitted = udp.then_some((0, omitted.messages_sent));
            result.seconds = seconds(times.end);
            return result;
        }
        result.bytes = flow.counts.bytes_received - omitted.bytes_received.min(flow.counts.bytes_received);
        result.seconds = seconds(times.arrived);
        let client = theirs.streams.iter().find(|stream| stream.id == id);
        if let Some(client) = client.filter(|client| !udp && asked.omit_s == 0 && client.bytes < result.bytes) {
            // Since version 3.16 a client ends its threads in the middle of a call, and does not count what that call sent.
            result.bytes -= (result.bytes - client.bytes).min(spec.sizes.message_bytes);
        }
        if udp {
            // The client knows how many there were; the highest counter misses those that were lost at the end.
            result.packets = client.map_or(0, |client| client.packets).max(flow.counts.messages_received);
            result.errors = result.packets - flow.counts.messages_received;
            result.omitted = match client.and_then(|client| client.omitted) {
                Some((_, packets)) => Some((packets.saturating_sub(omitted.messages_received), packets)),
                None if asked.omit_s == 0 => Some((0, 0)),
                None => None,
            };
            result.jitter_s = flow.jitter_ns.unwrap_or(0) as f64 / 1e9;
        }
        result
    };
    let streams: Vec<_> = report.totals.iter().map(stream).collect();
    Results {
        cpu: cpu.since(seconds(times.arrived.max(times.end))),
        has_retransmits: (spec.direction != Direction::Forward).then_some(!udp),
        congestion: report.last_value("congestion_control").map(str::to_owned),
        output: asked.wants_output.then(|| output(spec, &streams)),
        streams,
    }
}

/// This server's results in words.
fn output(spec: &TestSpec, streams: &[StreamResults]) -> String {
    let mut text = format!("plumb {}\n", env!("CARGO_PKG_VERSION"));
    for (flow, stream) in (0..).zip(streams) {
        let verb = if spec.roles(Side::Far, flow).contains(&Role::Sender) { "sent" } else { "received" };
        // Writing to a string cannot fail.
        let _ = write!(text, "[{:3}] {verb} {} bytes in {:.3} s", stream.id, stream.bytes, stream.seconds);
        if spec.transport == Transport::Udp && verb == "received" {
            let _ = write!(text, ", lost {} of {} datagrams", stream.errors, stream.packets);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Pattern;

    fn flow(number: u32, role: Role, counts: Counts, datagrams: Option<DatagramPhase>) -> FlowWindow {
        let retransmits = (role == Role::Sender).then_some(3);
        FlowWindow { retransmits, datagrams, ..FlowWindow::of(number, role, counts) }
    }

    fn near(warmup: Option<Vec<FlowWindow>>, measure: Vec<FlowWindow>, totals: Vec<FlowWindow>) -> SideReport {
        let phase = |phase, flows| Window {
            phase,
            start_ns: 0,
            elapsed_ns: 2_000_000_000,
            wall_end_ns: 7,
            flows,
            cpu: None,
            evidence: None,
        };
        let warmup = warmup.map(|flows| phase(Phase::Warmup, flows));
        SideReport {
            phases: warmup.into_iter().chain([phase(Phase::Measure, measure)]).collect(),
            totals,
            monotonic_start_ns: 1_000_000_000,
            ..SideReport::empty(Side::Near, Ending::Complete)
        }
    }

    fn sent(bytes: u64, messages: u64) -> Counts {
        Counts { bytes_sent: bytes, messages_sent: messages, ..Counts::default() }
    }

    fn theirs(streams: Vec<StreamResults>) -> Results {
        Results { cpu: Some([50.0, 20.0, 30.0]), congestion: Some("reno".to_owned()), streams, ..Results::default() }
    }

    #[test]
    fn bytes_that_arrived_are_the_far_ends_and_the_time_is_until_then() {
        let spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        let one = flow(0, Role::Sender, sent(1000, 0), None);
        let near = near(None, vec![one.clone()], vec![one]);
        let stream = StreamResults { id: 1, bytes: 1000, seconds: 9.0, ..StreamResults::default() };
        let far = report(&spec, &near, &theirs(vec![stream]), (3_100_000_000, 3_200_000_000)).unwrap();
        assert_eq!((far.phases[0].elapsed_ns, far.totals[0].counts.bytes_received), (2_100_000_000, 1000));
        assert_eq!((far.totals[0].role, far.totals[0].retransmits), (Role::Receiver, None));
        assert_eq!(far.phases[0].cpu.as_ref().unwrap().process_cpus, Some(0.5));
        assert_eq!(far.options[0].at_end.as_deref(), Some("reno"));
        let refused = |streams| report(&spec, &near, &theirs(streams), (1, 1)).unwrap_err();
        assert!(refused(vec![StreamResults { bytes: 1001, ..stream }]).contains("1000 were sent"));
        assert!(refused(vec![stream, stream]).contains("twice"));
        assert!(refused(vec![StreamResults { id: 2, ..stream }]).contains("does not have"));
        assert!(refused(vec![]).contains("nothing about stream 1"));
        let mine = client_results(&spec, &near);
        assert_eq!(
            (mine.streams[0].bytes, mine.streams[0].retransmits, mine.has_retransmits),
            (1000, Some(3), Some(true))
        );
    }

    #[test]
    fn datagrams_that_were_sent_before_the_count_are_no_loss() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        (spec.direction, spec.phases.warmup_ns, spec.sizes.message_bytes) = (Direction::Reverse, 1_000_000_000, 100);
        let got = |bytes, messages| Counts { bytes_received: bytes, messages_received: messages, ..Counts::default() };
        let phase =
            |received, numbered| Some(DatagramPhase { received, numbered: Some(numbered), ..DatagramPhase::default() });
        let warmup = flow(0, Role::Receiver, got(4000, 40), phase(40, 42));
        let measure = flow(0, Role::Receiver, got(5000, 50), phase(50, 95));
        let near = near(Some(vec![warmup]), vec![measure], vec![flow(0, Role::Receiver, got(9000, 90), None)]);
        let stream = StreamResults { id: 1, bytes: 5500, packets: 97, seconds: 2.5, ..StreamResults::default() };
        let far = report(&spec, &near, &theirs(vec![stream]), (0, 9)).unwrap();
        // Of 97, 42 were sent in the warm-up: 55, of which 50 arrived.
        assert_eq!(far.phases[0].flows[0].datagrams.unwrap().sent, 55);
        assert_eq!((far.phases[0].elapsed_ns, far.totals.len()), (2_500_000_000, 0));
        let mine = client_results(&spec, &near).streams[0];
        assert_eq!((mine.packets, mine.errors, mine.omitted, mine.bytes), (95, 5, Some((2, 42)), 5000));
    }

    #[test]
    fn a_datagram_lost_at_the_end_is_lost() {
        let spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        let phase = DatagramPhase { sent: 10, ..DatagramPhase::default() };
        let one = flow(0, Role::Sender, sent(14_720, 10), Some(phase));
        let near = near(None, vec![one.clone()], vec![one]);
        // The highest number is 9, and 2 before it are missing.
        let stream =
            StreamResults { id: 1, bytes: 10_304, packets: 9, errors: 2, jitter_s: 2e-5, ..StreamResults::default() };
        let far = report(&spec, &near, &theirs(vec![stream]), (1, 1)).unwrap();
        let got = &far.phases[0].flows[0];
        assert_eq!((got.datagrams.unwrap().received, got.counts.messages_received), (7, 7));
        assert_eq!((got.jitter_ns, got.retransmits), (Some(20_000), None));
        let wrong = StreamResults { errors: 12, ..stream };
        assert!(report(&spec, &near, &theirs(vec![wrong]), (1, 1)).unwrap_err().contains("lost more"));
    }
}
