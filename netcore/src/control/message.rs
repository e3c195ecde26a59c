//! What the ends say to each other. The order is told in `docs/protocol.md` and kept by [`crate::daemon`] and
//! [`crate::client`].

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    end::{Endpoints, Token},
    measure::{cpu::free_cpus, host::HostFacts},
    report::{NicFacts, SideReport, Window},
    spec::{Side, TestSpec, Transport, memory},
};

/// The first frame in each direction: who is speaking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub tool_version: String,
    /// Transports that the kernel has.
    pub transports: Vec<Transport>,
    /// What the daemon grants at most; a client has none to tell.
    pub limits: Option<Limits>,
    /// The machine.
    pub host: HostFacts,
}

/// A daemon's first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Greeting {
    /// Welcome.
    Hello(Box<Hello>),
    /// No session.
    Error(ReplyError),
}

/// What a daemon grants at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Sessions at the same time.
    pub sessions: u32,
    /// Flows of a test.
    pub flows: u32,
    /// Length of a test with warm-up and cool-down, nanoseconds; a test that stops by a count is ended after it.
    pub duration_ns: u64,
    /// Memory for the buffers of a test, bytes.
    pub buffer_bytes: u64,
    /// Readings kept for interval reports: flows times intervals.
    pub interval_readings: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 16,
            flows: 64,
            duration_ns: 3600 * 1_000_000_000,
            buffer_bytes: memory::MOST_BYTES,
            interval_readings: 250_000,
        }
    }
}

/// What a client asks of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What is your clock?
    Probe,
    /// What is there that the greeting does not tell? Only while there is no test.
    Look(Look),
    /// Run a program. Only while there is no test, and only where the daemon does that at all.
    Execute(Box<Execute>),
    /// Make an end ready.
    Prepare(Box<Prepare>),
    /// Bring the flows together.
    Connect(Connect),
    /// Begin the load at this instant of your monotonic clock.
    Start {
        /// The instant, nanoseconds.
        t0_ns: u64,
    },
    /// Begin the measure phase at this instant of your monotonic clock: the warm-up, one that may end early, has settled.
    Measure {
        /// The instant, nanoseconds.
        at_ns: u64,
    },
    /// End the measure phase at this instant of your monotonic clock, if it has not ended by then.
    Stop {
        /// The instant, nanoseconds.
        at_ns: u64,
    },
    /// Forget the test, whatever its state; end the program.
    Abort,
}

impl Request {
    /// Its name in a sentence about a request that nobody expected.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Look(_) => "look",
            Self::Execute(_) => "execute",
            Self::Prepare(_) => "prepare",
            Self::Connect(_) => "connect",
            Self::Start { .. } => "start",
            Self::Measure { .. } => "measure",
            Self::Stop { .. } => "stop",
            Self::Abort => "abort",
        }
    }
}

/// What to look at: facts that take time, or a route, to be known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The interface by which packets to this address leave; `None`: not asked for.
    pub towards: Option<IpAddr>,
    /// How many CPUs are free, which takes [`Look::CPU_WINDOW`].
    pub free_cpus: bool,
}

impl Look {
    /// How long CPUs are watched to see whether they are free.
    pub const CPU_WINDOW: Duration = Duration::from_millis(500);

    /// Looks, in the calling thread's network namespace.
    #[must_use]
    pub fn around(&self) -> Seen {
        Seen {
            nic: self.towards.and_then(NicFacts::towards),
            free_cpus: if self.free_cpus { free_cpus(Self::CPU_WINDOW) } else { None },
        }
    }
}

/// What was seen. What was not asked for, or cannot be told, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The interface of the route; `None` also where there is no route.
    pub nic: Option<NicFacts>,
    /// CPUs that were less than a tenth busy.
    pub free_cpus: Option<u32>,
}

/// A program that runs on the daemon's host, with the rights of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execute {
    /// The program and its arguments; no shell.
    pub argv: Vec<String>,
    /// Variables beside those of the daemon; their names begin with `PLUMB_`.
    pub environment: BTreeMap<String, String>,
    /// The longest that it may run, nanoseconds.
    pub limit_ns: u64,
}

impl Execute {
    /// Bytes that come back of each of its outputs; what is more is dropped.
    pub const OUTPUT_BOUND: usize = 1 << 20;
}

/// What became of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Executed {
    /// It exited with 0.
    Done {
        /// What it printed. Bytes that are no UTF-8 are replaced.
        stdout: String,
        /// What it complained of, likewise.
        stderr: String,
        /// From its start to its end, nanoseconds.
        elapsed_ns: u64,
    },
    /// It did not start, exited with something else, or was ended.
    Failed {
        /// Whether it was ended at its limit.
        timed_out: bool,
        /// A sentence for people, with how it ended and the first lines of what it said.
        message: String,
    },
}

/// One end of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// The test.
    pub spec: TestSpec,
    /// Which end the daemon is.
    pub side: Side,
    /// The secret of the data connections.
    pub token: Token,
    /// The daemon's own address for the data sockets; `None`: the one that the control connection came in on (far end),
    /// or what the route says (near end).
    pub data_address: Option<IpAddr>,
}

/// Where the other end is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// What the near end connects to; a far end waits to be connected to.
    pub peer: Option<Peer>,
    /// The time allowed, nanoseconds.
    pub within_ns: u64,
}

/// An end that was prepared elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its ports.
    pub endpoints: Endpoints,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// To [`Request::Probe`].
    Probed {
        /// The daemon's monotonic clock when the question was read, nanoseconds.
        arrived_ns: u64,
        /// The same when the answer was written, nanoseconds.
        answered_ns: u64,
        /// Its wall clock then, Unix nanoseconds.
        wall_ns: i64,
    },
    /// To [`Request::Look`].
    Seen(Box<Seen>),
    /// To [`Request::Execute`], when the program has ended.
    Executed(Box<Executed>),
    /// To [`Request::Prepare`]: where the other end can reach this one.
    Prepared(Endpoints),
    /// To [`Request::Connect`]: every flow is connected.
    Ready,
    /// An interval, while the measurement runs, only if the test asks for it; and during a warm-up that may end early.
    Interim(Box<Window>),
    /// All is sent that the stop rule asks of this end, which goes on listening: only where both ends send datagrams up to
    /// a count ([`crate::spec::support::ends_by_word`]).
    Sent,
    /// The test is over: a piece of the [`SideReport`] as JSON. A long report takes several frames.
    Report {
        /// The piece.
        text: String,
        /// Whether it is the last one.
        last: bool,
    },
    /// To [`Request::Abort`]: there is no test and no program any more.
    Idle,
    /// Something was refused or failed. The test it was about is forgotten.
    Error(ReplyError),
}

impl Reply {
    /// Its name in a sentence about an answer that nobody expected.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Probed { .. } => "probed",
            Self::Seen(_) => "seen",
            Self::Executed(_) => "executed",
            Self::Prepared(_) => "prepared",
            Self::Ready => "ready",
            Self::Interim(_) => "interim",
            Self::Sent => "sent",
            Self::Report { .. } => "report",
            Self::Idle => "idle",
            Self::Error(_) => "error",
        }
    }
}

/// A report as replies: pieces that stay below the bound of a frame however many quotes in them are escaped.
pub fn report_pieces(report: &SideReport) -> serde_json::Result<impl Iterator<Item = Reply>> {
    const PIECE: usize = 4 << 20;
    let mut text = Some(serde_json::to_string(report)?);
    Ok(std::iter::from_fn(move || {
        let mut piece = text.take()?;
        if piece.len() > PIECE {
            text = Some(piece.split_off(piece.floor_char_boundary(PIECE)));
        }
        Some(Reply::Report { text: piece, last: text.is_none() })
    }))
}

/// Puts a report together from its pieces.
#[derive(Debug, Default)]
pub struct ReportBuilder {
    text: String,
}

impl ReportBuilder {
    /// The longest report, bytes. A daemon keeps far below it by its limit on interval readings.
    pub const BOUND: usize = 256 << 20;

    /// Adds a piece; gives the report after the last one, and nothing that is no report or too long for one.
    pub fn add(&mut self, text: &str, last: bool) -> Result<Option<SideReport>, String> {
        if self.text.len() + text.len() > Self::BOUND {
            return Err(format!("its report is longer than {} bytes", Self::BOUND));
        }
        self.text.push_str(text);
        if !last {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        serde_json::from_str(&text).map(Some).map_err(|error| format!("its report was not understood: {error}"))
    }
}

/// What kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The client's address is in none of the allowed networks.
    NotAllowed,
    /// No session is free.
    Busy,
    /// What was asked is beyond a limit, or something that the daemon does for nobody.
    Refused,
    /// The engines or the kernel have no such test.
    Unsupported,
    /// It was tried and failed.
    Failed,
    /// A message was not understood, or not to be expected; the session is over.
    Protocol,
    /// Nothing was heard for too long; the session is over.
    TimedOut,
    /// The daemon is being stopped; the session is over.
    Stopping,
}

/// A fault as the daemon tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyError {
    /// What kind.
    pub code: ErrorCode,
    /// A sentence for people: what was tried, what came back, what to do.
    pub message: String,
}

impl ReplyError {
    /// A fault with its sentence.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReplyError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::{Pattern, Stop};

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
            let request = Request::Prepare(Box::new(Prepare { spec, side: Side::Far, token, data_address: None }));
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        }
    }
}
