//! Messages between client and daemon. `docs/reference/protocol.md` describes their order; [`crate::daemon`] and [`crate::client`]
//! enforce it.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{capabilities, channel::PROGRESS};
use crate::{
    end::{Endpoints, Token},
    foreign,
    measure::{KEPT_BYTES, LARGEST_KEPT_BYTES, cpu::free_cpus, host::HostFacts},
    mpi::RankFacts,
    report::{ClockReading, MOST_HISTOGRAMS, NicFacts, PHASES, Phase, Report, Window},
    spec::{Side, TestSpec, Transport, memory, ranks::RanksSpec},
};

/// The first frame of a client, and of a daemon that grants a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub tool_version: String,
    /// A random number of the process. By it a daemon tells its clients apart, and clients ask several daemons for turns in
    /// the same order.
    pub process: u64,
    /// The daemon's limits; `None` from a client.
    pub limits: Option<Limits>,
    pub host: HostFacts,
    /// This process as a rank of MPI, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<RankFacts>,
}

/// A daemon's first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Greeting {
    Hello(Box<Hello>),
    /// The session is refused.
    Error(ReplyError),
}

/// The most that a daemon grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Sessions at the same time.
    pub sessions: u32,
    /// Sessions of one address.
    pub sessions_per_client: u32,
    /// Memory of all tests at the same time, bytes: buffers and readings of intervals.
    pub memory_bytes: u64,
    /// Flows of a test.
    pub flows: u32,
    /// Length of a test with warm-up and cool-down, nanoseconds. A test that stops by a count is ended after it.
    pub duration_ns: u64,
    /// Memory for the buffers of a test, bytes.
    pub buffer_bytes: u64,
    /// Readings kept for interval reports: flows × intervals.
    pub interval_readings: u64,
    /// The longest time that a client waits for its turn, nanoseconds; `None`: several clients may test at the same time.
    pub queue_ns: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 16,
            // One address leaves some to others.
            sessions_per_client: 12,
            memory_bytes: 4 << 30,
            flows: 64,
            duration_ns: 3600 * 1_000_000_000,
            buffer_bytes: memory::MOST_BYTES,
            interval_readings: 250_000,
            queue_ns: None,
        }
    }
}

/// A request of a client to a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Read the clocks.
    Probe,
    /// Collect facts that the greeting does not tell. Only while there is no test.
    Look(Look),
    /// Run a program. Only while there is no test, and only where the daemon allows it.
    Execute(Box<Execute>),
    /// Wait for a turn: the daemon runs the tests of one client at a time ([`Limits::queue_ns`]). The turn is for one test.
    Turn,
    /// Prepare a part of a test.
    Prepare(Box<Prepare>),
    /// Connect the flows.
    Connect(Connect),
    /// Begin the load at this instant of the daemon's monotonic clock, nanoseconds.
    Start { t0_ns: u64 },
    /// Begin the measure phase at this instant of the daemon's monotonic clock, nanoseconds: a warm-up that may end early
    /// has settled.
    Measure { at_ns: u64 },
    /// End the measure phase at this instant of the daemon's monotonic clock, nanoseconds, if it is still going on.
    Stop { at_ns: u64 },
    /// Forget the test, whatever its state; end the program.
    Abort,
}

/// Facts to collect that need time or a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Report the interface that routes to this address.
    pub towards: Option<IpAddr>,
    /// Count the free CPUs, which takes [`Look::CPU_WINDOW`].
    pub free_cpus: bool,
    /// Report those of these transports that the kernel offers. It may load a module for one.
    pub transports: Vec<Transport>,
}

impl Look {
    /// Length of the observation of the CPUs.
    pub const CPU_WINDOW: Duration = Duration::from_millis(500);

    /// Collects the facts, in the calling thread's network namespace.
    pub fn around(&self) -> Seen {
        Seen {
            nic: self.towards.and_then(NicFacts::towards),
            free_cpus: if self.free_cpus { free_cpus(Self::CPU_WINDOW) } else { None },
            // Each one is tried once, however often it is asked for.
            transports: Transport::ALL
                .iter()
                .copied()
                .filter(|transport| self.transports.contains(transport) && capabilities::has(*transport))
                .collect(),
        }
    }
}

/// The facts that a [`Look`] found; `None`: unknown, or not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The interface of the route; `None` also without a route.
    pub nic: Option<NicFacts>,
    /// CPUs that were less than a tenth busy.
    pub free_cpus: Option<u32>,
    pub transports: Vec<Transport>,
}

/// A program that runs on the daemon's host, with the rights of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    /// The program and its arguments; there is no shell.
    pub argv: Vec<String>,
    /// Variables added to those of the daemon; their names begin with `PLUMB_`.
    pub environment: BTreeMap<String, String>,
    /// The longest time that it may run, nanoseconds.
    pub limit_ns: u64,
}

impl Execute {
    /// Bytes that come back of each of its outputs; the rest is dropped.
    pub const OUTPUT_BOUND: usize = 1 << 20;
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Executed {
    /// It exited with 0.
    Done {
        /// Standard output. Bytes that are no UTF-8 are replaced.
        #[serde(deserialize_with = "foreign::raw")]
        stdout: String,
        /// Standard error, likewise.
        #[serde(deserialize_with = "foreign::raw")]
        stderr: String,
        elapsed_ns: u64,
    },
    /// It did not start, exited with something else, or was ended.
    Failed {
        /// Whether it was ended at its limit.
        timed_out: bool,
        /// Sentence with its exit status and the first lines of its output.
        message: String,
    },
}

/// The part that a daemon is to play in a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    pub part: Part,
    /// The secret of the data connections.
    pub token: Token,
    /// The daemon's own address for the data sockets; `None`: the local address of the control connection, or by the route
    /// (near end).
    pub data_address: Option<IpAddr>,
}

/// One of the parts of a test, with the whole test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// One of two ends.
    End { spec: Box<TestSpec>, side: Side },
    /// One of several ranks, which count from 0.
    Rank { spec: Box<RanksSpec>, rank: u32, ranks: u32 },
}

impl Part {
    /// From the begin of the load to its scheduled end, nanoseconds; `None`: it stops by a count.
    pub fn length_ns(&self) -> Option<u64> {
        match self {
            Self::End { spec, .. } => spec.phases.length_ns(),
            Self::Rank { spec, .. } => spec.length_ns(),
        }
    }

    /// Whether it tells the client of intervals in this phase. During the measurement only on request: the wire belongs to the
    /// load. Each one of a warm-up that may end early is told.
    pub fn tells(&self, phase: Phase) -> bool {
        let Self::End { spec, .. } = self else { return false };
        let phases = &spec.phases;
        spec.interim && phases.interval_ns > 0 || phases.settle_ns > 0 && phase == Phase::Warmup
    }

    /// Those of its peers that it connects to, the first ones; the others connect to it.
    pub fn connects(&self) -> usize {
        match self {
            Self::End { .. } => self.peers(),
            Self::Rank { rank, .. } => *rank as usize,
        }
    }

    /// Number of the places in [`Connect::peers`].
    pub fn peers(&self) -> usize {
        match self {
            Self::End { side: Side::Near, .. } => 1,
            Self::End { side: Side::Far, .. } => 0,
            Self::Rank { ranks, .. } => *ranks as usize,
        }
    }
}

/// The places of other parts, and the time to connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The far end, for a near end. Empty for a far end, which accepts. For a rank, all ranks in their order, itself among
    /// them.
    pub peers: Vec<Peer>,
    /// The time allowed, nanoseconds.
    pub within_ns: u64,
}

/// A prepared part on another host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub address: IpAddr,
    pub endpoints: Endpoints,
}

/// A reply of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// To [`Request::Probe`].
    Probed {
        /// The daemon's monotonic clock when the probe was read, nanoseconds.
        arrived_ns: u64,
        /// All of its clocks when the reply was written.
        answered: ClockReading,
    },
    /// To [`Request::Look`].
    Seen(Box<Seen>),
    /// To [`Request::Execute`], when the program has ended.
    Executed(Box<Executed>),
    /// To [`Request::Turn`], and again when the place has changed: others come first. The next one has place 1.
    Waiting { place: u32 },
    /// To [`Request::Turn`]: the next test is this client's.
    Granted,
    /// To [`Request::Prepare`]: the endpoints at which others can reach this part.
    Prepared(Endpoints),
    /// To [`Request::Connect`]: every flow is connected.
    Ready,
    /// An interval: while the measurement runs only if the test asks for it, and during a warm-up that may end early.
    Interim(Box<Window>),
    /// This end has sent all that the stop rule asks of it and goes on receiving. Only where both ends send datagrams up to
    /// a count ([`crate::spec::support::ends_by_word`]).
    Sent,
    /// The test is over: a piece of the [`Report`] as JSON. A long report takes several frames.
    Report {
        #[serde(deserialize_with = "foreign::raw")]
        text: String,
        last: bool,
    },
    /// To [`Request::Abort`]: the test or program is gone.
    Idle,
    /// The request was refused or failed. Its test is forgotten.
    Error(ReplyError),
}

/// The name of a request or reply on the wire, for error messages.
pub fn name(message: &impl Serialize) -> String {
    match serde_json::to_value(message) {
        Ok(Value::String(name)) => name,
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => "?".to_owned(),
    }
}

/// A report as replies. Its pieces are short, so that the sender looks at its stop flag often however slowly the client reads.
pub fn report_pieces(report: &Report) -> serde_json::Result<impl Iterator<Item = Reply>> {
    let text = serde_json::to_string(report)?;
    let mut next = Some(0);
    Ok(std::iter::from_fn(move || {
        let begin = next?;
        let end = text.floor_char_boundary(begin + PROGRESS);
        next = (end < text.len()).then_some(end);
        Some(Reply::Report { text: text[begin..end].to_owned(), last: next.is_none() })
    }))
}

/// Bound of a reading in the text of a report, without its histograms, bytes.
pub const READING_TEXT_BYTES: usize = 2304;

/// Puts a report together from its pieces.
#[derive(Debug)]
pub struct ReportBuilder {
    text: String,
    /// Bytes.
    bound: usize,
}

impl ReportBuilder {
    /// The longest report of an end, bytes. The limits on interval readings and on what is kept with them keep daemons below it.
    pub const BOUND: usize = 640 << 20;

    /// Bytes of a report for facts that are neither readings nor kept with them.
    const OTHER_BYTES: usize = 8 << 20;

    /// Readings of intervals for which a report has room, beside what is kept with them and other facts.
    pub const READINGS: u64 = ((Self::BOUND - 2 * KEPT_BYTES - Self::OTHER_BYTES) / READING_TEXT_BYTES) as u64;

    /// For the report of an end with at most so many flows, and so many intervals.
    pub fn of_end(flows: u32, intervals: u64) -> Self {
        let of_a_phase = READING_TEXT_BYTES + MOST_HISTOGRAMS * LARGEST_KEPT_BYTES;
        let phases = u64::from(flows).saturating_mul((PHASES * of_a_phase) as u64);
        let readings = intervals.saturating_mul(flows.into()).min(Self::READINGS) * READING_TEXT_BYTES as u64;
        let kept = if intervals > 0 { 2 * KEPT_BYTES } else { 0 };
        let bytes = phases.saturating_add(readings).saturating_add((kept + Self::OTHER_BYTES) as u64);
        Self::bounded(usize::try_from(bytes).unwrap_or(Self::BOUND).min(Self::BOUND))
    }

    /// For a report of at most so many bytes.
    pub fn bounded(bound: usize) -> Self {
        Self { text: String::new(), bound }
    }

    /// Bytes of the pieces so far.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds a piece; gives the report after the last one.
    pub fn add(&mut self, text: &str, last: bool) -> Result<Option<Report>, String> {
        if self.text.len() + text.len() > self.bound {
            return Err(format!("its report is longer than the {} bytes that its test has room for", self.bound));
        }
        self.text.push_str(text);
        if !last {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        foreign::from_slice(text.as_bytes())
            .map(Some)
            .map_err(|error| format!("its report was not understood: {error}"))
    }
}

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// No session is free.
    Busy,
    /// The request is beyond a limit, or the daemon does not do this at all.
    Refused,
    /// The engines or the kernel lack this test.
    Unsupported,
    Failed,
    /// A message was not understood or not expected; the session is over.
    Protocol,
    /// The client was silent for too long; the session is over.
    TimedOut,
    /// The daemon is being stopped; the session is over.
    Stopping,
}

/// An error in a daemon's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{message}")]
pub struct ReplyError {
    pub code: ErrorCode,
    /// Sentence for people: the action, its result, and the remedy.
    pub message: String,
}

impl ReplyError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        report::{Ending, SideReport},
        spec::{Pattern, Stop},
    };

    #[test]
    fn a_long_report_comes_in_short_pieces() {
        let notes = vec!["\u{e4}\"".repeat(2000); 60];
        let report = SideReport { notes, ..SideReport::empty(Side::Far, Ending::Complete) };
        let report = Report::End(Box::new(report));
        let mut builder = ReportBuilder::of_end(1, 1);
        let mut whole = None;
        for piece in report_pieces(&report).unwrap() {
            assert_eq!(whole, None, "nothing follows the last piece");
            let Reply::Report { text, last } = piece else { panic!() };
            assert!(text.len() <= PROGRESS);
            whole = builder.add(&text, last).unwrap();
        }
        assert_eq!(whole, Some(report));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = serde_json::from_slice::<Request>(&bytes);
            let _ = serde_json::from_slice::<Reply>(&bytes);
            let _ = serde_json::from_slice::<Hello>(&bytes);
        }

        #[test]
        fn a_test_crosses_the_wire_unchanged(
            streams: u32, nanoseconds: u64, message_bytes: u64, token: Token, rate in prop::num::f64::NORMAL,
        ) {
            let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
            spec.streams = streams;
            spec.phases.stop = Stop::AfterNs(nanoseconds);
            spec.sizes.message_bytes = message_bytes;
            spec.pace = Some(crate::spec::Pace {
                events_per_s: rate,
                mode: crate::spec::PaceMode::User,
                arrival: crate::spec::Arrival::Closed,
                burst: 1,
                catch_up: 0,
            });
            let part = Part::End { spec: Box::new(spec), side: Side::Far };
            let request = Request::Prepare(Box::new(Prepare { part, token, data_address: None }));
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        }
    }
}
