//! Clients of other programs ([`crate::peers`]): they get the same admission, budgets and log as Plumbline's own.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    Shared, admission,
    budget::{self, Charge, Client, Place},
    log::{Cause, ClientLabel, Event, TestEnding, TestResult},
    plain,
    turns::Ticket,
};
use crate::{
    control::{
        message::{ErrorCode, Limits, Part, ReplyError},
        stop::{StopFlag, Urgency, wait},
    },
    lock::Lock,
    measure::clock::monotonic_ns,
    peers::{self, Host, Program, Share},
    report::SideReport,
    spec::{Side, TestSpec},
};

/// The longest wait for a turn at an exclusive daemon. netperf gives up an answer after 120 s.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(100);

/// Serves a connection of another program's client until it closes.
pub(super) fn serve(
    shared: &Shared,
    program: Program,
    stream: TcpStream,
    peer: SocketAddr,
    place: Place<'_>,
    stop: &StopFlag,
) {
    let host = PeerClient {
        shared,
        program,
        number: place.number(),
        label: ClientLabel { address: peer, host: None },
        client: getrandom::u64().unwrap_or_default(),
        stop: stop.clone(),
        arrival: Lock::new(Arrival { place: Some(place), opened: false, refused: None }),
    };
    let reason = peers::serve(program, &host, stream, peer);
    let Arrival { opened, refused, .. } = *host.arrival.lock();
    match (opened, reason) {
        (true, reason) => shared.log(&Event::Closed { client: &host.label, reason: reason.unwrap_or_default() }),
        (false, Some(reason)) => {
            let cause = refused.unwrap_or(Cause::Greeting);
            shared.log(&Event::Refused { address: peer.to_string(), reason, cause });
        }
        // A data connection that found its session.
        (false, None) => {}
    }
}

/// Senders of STAMP, whose packets need no admission: they cost what the reflector's own bounds allow.
impl peers::stamp::Host for Shared {
    fn allows(&self, address: IpAddr) -> bool {
        admission::allows(&self.config, address)
    }

    fn opened(&self, address: SocketAddr) {
        let client = &ClientLabel { address, host: None };
        self.log(&Event::Opened { client, program: Program::Stamp.as_str(), version: "" });
    }

    fn closed(&self, address: SocketAddr, answers: u64) {
        let reason = format!("{answers} packets were answered");
        self.log(&Event::Closed { client: &ClientLabel { address, host: None }, reason });
    }
}

struct PeerClient<'s> {
    shared: &'s Shared,
    program: Program,
    number: u64,
    label: ClientLabel,
    client: Client,
    stop: StopFlag,
    arrival: Lock<Arrival<'s>>,
}

struct Arrival<'s> {
    /// Held until the client is known.
    place: Option<Place<'s>>,
    opened: bool,
    /// Why it got no session, where its greeting was in order.
    refused: Option<Cause>,
}

/// Memory, load and turn of such a client's test.
struct Taken<'s> {
    _charge: Charge<'s>,
    _load: budget::Running<'s>,
    _turn: Option<Ticket<'s>>,
}

impl PeerClient<'_> {
    fn turn(&self) -> Result<Option<Ticket<'_>>, ReplyError> {
        let config = &self.shared.config;
        let Some(queue_ns) = config.limits.queue_ns else { return Ok(None) };
        let failed =
            |error| ReplyError::new(ErrorCode::Failed, format!("the client cannot wait for its turn: {error}"));
        let ticket = self.shared.turns.ask(self.client, config.hold()).map_err(failed)?;
        let deadline = Instant::now() + Duration::from_nanos(queue_ns).min(LONGEST_WAIT);
        while ticket.place().is_some() {
            ticket.clear_news();
            if ticket.place().is_none() {
                break;
            }
            if Instant::now() >= deadline {
                let message =
                    "this daemon runs the tests of one client at a time (--exclusive), and another one has the turn";
                return Err(ReplyError::new(ErrorCode::Busy, message));
            }
            let ready = wait([Some(ticket.as_fd()), self.stop.beyond(Urgency::None)], Some(deadline));
            if ready.map_err(failed)?[1] {
                return Err(ReplyError::new(ErrorCode::Stopping, "the daemon is being stopped"));
            }
        }
        ticket.begin_load();
        Ok(Some(ticket))
    }

    fn log_test(&self, spec: &TestSpec, result: TestResult) {
        self.shared.log(&Event::Test { client: &self.label, part: &far(spec), result });
    }
}

fn far(spec: &TestSpec) -> Part {
    Part::End { spec: Box::new(spec.clone()), side: Side::Far }
}

impl Host for PeerClient<'_> {
    fn open(&self, version: &str) -> Result<Box<dyn Share + '_>, ReplyError> {
        let slot = self.shared.budget.session(&self.shared.config.limits, plain(self.label.address));
        let mut arrival = self.arrival.lock();
        let slot = slot.inspect_err(|error| arrival.refused = Some(Cause::of_code(error.code)))?;
        (arrival.place, arrival.opened) = (None, true);
        self.shared.log(&Event::Opened { client: &self.label, program: self.program.as_str(), version });
        Ok(Box::new(slot))
    }

    fn admit(&self, spec: &TestSpec) -> Result<Box<dyn Share + '_>, ReplyError> {
        let config = &self.shared.config;
        let admitted = admission::part(config, &far(spec)).and_then(|admitted| {
            let charge = self.shared.budget.test(&config.limits, admitted.bytes, admitted.flows)?;
            let turn = self.turn()?;
            let load = self.shared.loads.begin(self.client, monotonic_ns());
            Ok(Taken { _charge: charge, _load: load, _turn: turn })
        });
        match admitted {
            Ok(taken) => Ok(Box::new(taken)),
            Err(error) => {
                self.log_test(spec, TestResult::without_load(TestEnding::Refused, Some(error.to_string())));
                Err(error)
            }
        }
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn serves(&self, address: IpAddr) -> bool {
        let own = self.shared.config.also.iter().filter(|(program, _)| *program == self.program);
        own.flat_map(|(_, places)| places).any(|place| place.ip() == address || place.ip().is_unspecified())
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn sessions(&self) -> &peers::Sessions {
        &self.shared.sessions_of_programs
    }

    fn stop(&self) -> &StopFlag {
        &self.stop
    }

    fn ran(&self, spec: &TestSpec, report: &SideReport) {
        self.log_test(spec, TestResult::of(report.volume(), &report.ending));
    }

    fn failed(&self, spec: &TestSpec, reason: &str) {
        self.log_test(spec, TestResult::without_load(TestEnding::Failed, Some(reason.to_owned())));
    }
}
