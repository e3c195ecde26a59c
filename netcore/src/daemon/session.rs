//! The daemon's side of one session.
//!
//! ```text
//! greeting ─▶ idle ─Prepare▶ prepared ─Connect▶ connected ─Start▶ running ─▶ idle …
//!              ▲                 └──────────Abort──────┴───────────┘
//! ```
//! An exclusive daemon has two more states before `prepared`:
//! ```text
//! idle ─Turn▶ waiting ─▶ granted ─Prepare▶ prepared …
//! ```
//! A request that does not fit the state ends the session; a test that is refused or fails leaves it idle. In any state, a
//! client that goes away takes its test with it.

use std::{
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Shared,
    admission::{self, Addresses, Admitted, reply_error},
    budget::{Charge, Client, Place, Slot},
    log::{Cause, ClientLabel, Event, Over, TestEnding, TestResult},
    plain, programs,
    turns::Ticket,
};
use crate::{
    control::{
        channel::{Channel, ChannelError},
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        message::{
            self, Connect, ErrorCode, Execute, Greeting, Hello, Part, Prepare, Reply, ReplyError, Request,
            report_pieces,
        },
        part::{self, PreparedPart},
        stop::{StopFlag, Urgency, wait},
    },
    foreign::shortened,
    measure::{
        clock::{self, monotonic_ns},
        host::HostFacts,
    },
    mpi,
    report::{Phase, Report, SideReport},
    spec::Side,
    transport::control_port::{ControlPort, DataPorts},
};

/// The longest time for the flows to connect.
pub(super) const LONGEST_CONNECT: Duration = Duration::from_mins(1);
/// Limit of a client's name for its host and for its program, characters: Linux has 64 for a host.
pub(super) const LONGEST_NAME: usize = 64;
/// The longest time from a request to start to the start.
pub const LONGEST_LEAD: Duration = Duration::from_mins(10);

/// Serves one accepted connection until it closes.
pub(super) fn serve(
    shared: &Shared,
    port: &Arc<ControlPort>,
    stream: TcpStream,
    peer: SocketAddr,
    place: Place<'_>,
    stop: &StopFlag,
) {
    let deadline = Instant::now() + shared.config.timeouts.greeting;
    // A data connection whose first bytes come late.
    let Some(socket) = port.sort_slowly(stream.into(), deadline) else { return };
    let greeted = greet(shared, port, socket.into(), peer, (stop, deadline));
    drop(place);
    match greeted {
        Ok((mut session, _slot)) => {
            let end = session.converse();
            shared.log(&Event::Closed { client: &session.label, reason: end.to_string() });
        }
        Err(error) => {
            let cause = Cause::of(&error);
            shared.log(&Event::Refused { address: peer.to_string(), reason: error.to_string(), cause });
        }
    }
}

fn greet<'s>(
    shared: &'s Shared,
    port: &Arc<ControlPort>,
    stream: TcpStream,
    peer: SocketAddr,
    (stop, deadline): (&StopFlag, Instant),
) -> Result<(Session<'s>, Slot<'s>), Over> {
    let mut channel = Channel::accept(stream, shared.config.key.as_ref(), deadline)?;
    channel.heed(stop.clone());
    let hello: Hello = match channel.recv(deadline) {
        Ok(hello) => hello,
        Err(error) => {
            let answer = Greeting::Error(ReplyError::new(ErrorCode::Protocol, error.to_string()));
            // The client may be gone already.
            let _ = channel.send(&answer, GREETING_BOUND, deadline);
            return Err(error.into());
        }
    };
    let client = hello.process;
    let short = |text: String| shortened(&text, LONGEST_NAME).into_owned();
    let (label, version) =
        (ClientLabel { address: peer, host: hello.host.hostname.map(short) }, short(hello.tool_version));
    let slot = match shared.budget.session(&shared.config.limits, plain(peer)) {
        Ok(slot) => slot,
        Err(error) => {
            channel.send(&Greeting::Error(error.clone()), GREETING_BOUND, deadline)?;
            return Err(Over::Refused(error));
        }
    };
    let hello = Hello {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        process: shared.number,
        limits: Some(shared.config.limits.clone()),
        host: HostFacts::collect(),
        mpi: mpi::world().map(|world| world.facts.clone()),
    };
    channel.send(&Greeting::Hello(Box::new(hello)), GREETING_BOUND, deadline)?;
    channel.set_bound(REQUEST_BOUND);
    let local = channel.local_addr().map_err(|source| ChannelError::Io { what: "no local address", source })?;
    let addresses = Addresses { peer: plain(peer), local: plain(local) };
    shared.log(&Event::Opened { client: &label, program: "plumb", version: &version });
    let session = Session {
        shared,
        client,
        label,
        channel,
        addresses,
        ports: shared
            .config
            .data_ports
            .map_or_else(|| DataPorts::Control(port.clone()), |(first, last)| DataPorts::Among(first, last)),
        stop: stop.clone(),
        state: State::Idle,
        progressed: Instant::now(),
    };
    session.watch_idle_client()?;
    Ok((session, slot))
}

/// The end of a test under load.
enum Ran {
    Reported(TestResult),
    /// On request of the client.
    Aborted,
    /// The client got this error.
    Refused(ReplyError),
}

pub(super) enum State<'s> {
    Idle,
    /// The client has the turn at an exclusive daemon.
    Granted(Ticket<'s>),
    Prepared(Test<'s>),
    Connected(Test<'s>),
}

/// A part of a test before its start.
pub(super) struct Test<'s> {
    prepared: Box<dyn PreparedPart>,
    part: Part,
    charge: Charge<'s>,
    /// `None`: the daemon is not exclusive.
    turn: Option<Ticket<'s>>,
}

pub(super) struct Session<'s> {
    pub(super) shared: &'s Shared,
    pub(super) client: Client,
    pub(super) label: ClientLabel,
    pub(super) channel: Channel,
    pub(super) addresses: Addresses,
    pub(super) ports: DataPorts,
    pub(super) stop: StopFlag,
    pub(super) state: State<'s>,
    /// End of the last request, without those that leave a test or a turn as it is.
    progressed: Instant,
}

impl<'s> Session<'s> {
    /// Answers requests until the session ends.
    fn converse(&mut self) -> Over {
        loop {
            let step = self.next_request().and_then(|request| {
                let lengthens = matches!(self.state, State::Idle) || !is_aside(&request);
                self.answer(request).map(|()| lengthens)
            });
            match step {
                Ok(lengthens) => self.progressed = if lengthens { Instant::now() } else { self.progressed },
                Err(Over::Refused(error)) => {
                    // The client may be gone already.
                    let _ = self.reply(&Reply::Error(error.clone()));
                    return Over::Refused(error);
                }
                Err(Over::Channel(error)) => {
                    if let ChannelError::Message(_) | ChannelError::Frame(_) = error {
                        let _ = self.reply(&Reply::Error(ReplyError::new(ErrorCode::Protocol, error.to_string())));
                    }
                    return Over::Channel(error);
                }
            }
        }
    }

    fn next_request(&mut self) -> Result<Request, Over> {
        let message = self.shared.config.timeouts.message;
        let (due, why) = self.deadline();
        let mut deadline = due;
        let mut begun = false;
        loop {
            // Before the requests: a client that never pauses must not keep a daemon from ending.
            if self.stop.urgency() > Urgency::None {
                return Err(stopping());
            }
            match self.channel.try_recv()? {
                // Nor may it keep a test or a turn.
                Some(request) if is_aside(&request) && Instant::now() >= due => return Err(late(why)),
                Some(request) => return Ok(request),
                None => {}
            }
            if !begun && self.channel.is_amid_frame() {
                begun = true;
                deadline = deadline.min(Instant::now() + message);
            }
            let ready = wait([Some(self.channel.as_fd()), self.stop.beyond(Urgency::None)], Some(deadline))
                .map_err(|source| ChannelError::Io { what: "waiting for a request failed", source })?;
            if ready == [false; 2] {
                return Err(late(if begun { Late::Request(message) } else { why }));
            }
        }
    }

    /// The latest instant of the next request, and the reason for it.
    fn deadline(&self) -> (Instant, Late) {
        let (config, hold) = (&self.shared.config, self.shared.config.hold());
        let (patience, turn) = match &self.state {
            // A client may be waiting for its turn at another daemon.
            State::Idle => (config.timeouts.idle.max(hold), None),
            State::Granted(turn) => (hold, Some(turn)),
            State::Prepared(test) | State::Connected(test) => (config.timeouts.prepared, test.turn.as_ref()),
        };
        let due = (self.progressed + patience, Late::Request(patience));
        match turn.and_then(Ticket::since).map(|since| since + hold) {
            Some(end) if end <= due.0 => (end, Late::Turn(hold)),
            _ => due,
        }
    }

    /// At an exclusive daemon an idle session may be silent for long: keep-alive frees the place of a client whose host is
    /// gone.
    fn watch_idle_client(&self) -> Result<(), ChannelError> {
        if self.shared.config.probe_idle || self.shared.config.limits.queue_ns.is_some() {
            self.channel.set_keepalive(true)
        } else {
            Ok(())
        }
    }

    pub(super) fn reply(&mut self, reply: &Reply) -> Result<(), ChannelError> {
        let deadline = Instant::now() + self.shared.config.timeouts.message;
        self.channel.send(reply, REPLY_BOUND, deadline)
    }

    fn answer(&mut self, request: Request) -> Result<(), Over> {
        match (request, std::mem::replace(&mut self.state, State::Idle)) {
            (Request::Probe, state) => {
                let arrived_ns = monotonic_ns();
                self.state = state;
                let probed = Reply::Probed { arrived_ns, answered: clock::reading() };
                Ok(self.reply(&probed)?)
            }
            (Request::Abort, state) => {
                drop(state);
                Ok(self.reply(&Reply::Idle)?)
            }
            // It crossed our report on its way.
            (Request::Stop { .. } | Request::Measure { .. }, state) => {
                self.state = state;
                Ok(())
            }
            (Request::Look(look), State::Idle) => Ok(self.reply(&Reply::Seen(Box::new(look.around())))?),
            (Request::Execute(asked), State::Idle) => match admission::program(&self.shared.config, &asked) {
                Ok(()) => self.execute(&asked),
                Err(error) => self.refuse(error),
            },
            (Request::Turn, State::Idle) if self.shared.config.limits.queue_ns.is_some() => self.take_turn(),
            (Request::Prepare(prepare), state @ (State::Idle | State::Granted(_))) => {
                match self.prepare(*prepare, state) {
                    Ok(test) => {
                        let endpoints = test.prepared.endpoints();
                        self.state = State::Prepared(test);
                        Ok(self.reply(&Reply::Prepared(endpoints))?)
                    }
                    Err(error) => self.refuse(error),
                }
            }
            (Request::Connect(connect), State::Prepared(mut test)) => match self.connect(&mut test, &connect) {
                Ok(()) => {
                    self.state = State::Connected(test);
                    Ok(self.reply(&Reply::Ready)?)
                }
                Err(error) => {
                    self.log_test(&test.part, TestResult::without_load(refusal(&error), Some(error.to_string())));
                    self.refuse(error)
                }
            },
            (Request::Start { t0_ns }, State::Connected(test)) => self.start(test, t0_ns),
            (request, _) => Err(unexpected(&request, "")),
        }
    }

    /// Answers with an error; the session goes on without a test.
    pub(super) fn refuse(&mut self, error: ReplyError) -> Result<(), Over> {
        Ok(self.reply(&Reply::Error(error))?)
    }

    fn execute(&mut self, asked: &Execute) -> Result<(), Over> {
        self.shared.log(&Event::Program { client: &self.label, argv: &asked.argv });
        // The program of a client that is gone must end soon.
        self.channel.set_keepalive(true)?;
        let (executed, cut) = programs::run(asked, &mut self.channel, &self.stop);
        match cut {
            None => Ok(self.reply(&Reply::Executed(Box::new(executed)))?),
            Some(programs::Cut::Aborted) => {
                self.reply(&Reply::Executed(Box::new(executed)))?;
                Ok(self.reply(&Reply::Idle)?)
            }
            Some(programs::Cut::Stopping) => Err(stopping()),
            Some(programs::Cut::Channel(error)) => Err(error.into()),
            Some(programs::Cut::Unexpected(request)) => Err(unexpected(&request, " while a program runs")),
        }
    }

    fn prepare(&self, prepare: Prepare, state: State<'s>) -> Result<Test<'s>, ReplyError> {
        let turn = if let State::Granted(turn) = state { Some(turn) } else { None };
        match self.admit(&prepare, turn.is_some()) {
            Ok((prepared, charge)) => Ok(Test { prepared, part: prepare.part, charge, turn }),
            Err(error) => {
                self.log_test(&prepare.part, TestResult::without_load(refusal(&error), Some(error.to_string())));
                Err(error)
            }
        }
    }

    fn admit(&self, prepare: &Prepare, has_turn: bool) -> Result<(Box<dyn PreparedPart>, Charge<'s>), ReplyError> {
        self.check_turn(has_turn)?;
        let Prepare { part, token, data_address } = prepare;
        let Admitted { bytes, flows, files } = admission::part(&self.shared.config, part)?;
        let charge = self.shared.budget.test(&self.shared.config.limits, bytes, flows)?;
        let address = match part {
            Part::End { side: Side::Near, .. } => *data_address,
            _ => Some(data_address.unwrap_or(self.addresses.local)),
        };
        let prepared =
            part::prepare(part, (address, &self.ports), *token, files).map_err(|error| reply_error(&error))?;
        Ok((prepared, charge))
    }

    fn check_turn(&self, has_turn: bool) -> Result<(), ReplyError> {
        if self.shared.config.limits.queue_ns.is_some() && !has_turn {
            let message =
                "this daemon runs the tests of one client at a time (--exclusive): ask for a turn before each test";
            return Err(ReplyError::new(ErrorCode::Refused, message));
        }
        Ok(())
    }

    fn connect(&self, test: &mut Test<'_>, connect: &Connect) -> Result<(), ReplyError> {
        let Test { prepared, part, .. } = test;
        let (config, peers) = (&self.shared.config, &connect.peers);
        admission::connect(config, self.addresses, part, peers)?;
        let within = Duration::from_nanos(connect.within_ns).min(LONGEST_CONNECT);
        prepared.connect(peers, within, &|| self.is_cancelled()).map_err(|error| reply_error(&error))?;
        match part {
            // A handshake of QUIC proves that the other end is where its packets come from.
            Part::End { spec, side: Side::Far } if spec.transport.is_datagram() && !spec.transport.is_quic() => {
                admission::datagrams(config, self.addresses, &prepared.accepted_from())
            }
            _ => Ok(()),
        }
    }

    /// Whether the client has cancelled a test whose flows connect: it sends a message then only for that, or leaves.
    fn is_cancelled(&self) -> bool {
        let fds = [Some(self.channel.as_fd()), self.stop.beyond(Urgency::None)];
        // Bytes that came together with the request have been read already.
        self.channel.is_amid_frame() || wait(fds, Some(Instant::now())).is_ok_and(|ready| ready != [false; 2])
    }

    fn start(&mut self, test: Test<'s>, t0_ns: u64) -> Result<(), Over> {
        // The memory and the turn are in use until the report is sent.
        let Test { prepared, part, charge: _charge, mut turn } = test;
        if let Some(turn) = &turn {
            turn.begin_load();
        }
        let began = Instant::now();
        let ran = self.run(prepared, &part, t0_ns, &mut turn);
        let without_report =
            |ending, reason| TestResult { elapsed: began.elapsed(), ..TestResult::without_load(ending, reason) };
        let result = match &ran {
            Ok(Ran::Reported(result)) => result.clone(),
            Ok(Ran::Aborted) => without_report(TestEnding::Aborted, None),
            Ok(Ran::Refused(error)) => without_report(refusal(error), Some(error.to_string())),
            Err(over) => without_report(TestEnding::Failed, Some(over.to_string())),
        };
        self.log_test(&part, result);
        ran?;
        Ok(self.watch_idle_client()?)
    }

    fn log_test(&self, part: &Part, result: TestResult) {
        self.shared.log(&Event::Test { client: &self.label, part, result });
    }

    /// [`Self::refuse`] of a test that was to run.
    fn refuse_to_run(&mut self, error: ReplyError) -> Result<Ran, Over> {
        self.refuse(error.clone())?;
        Ok(Ran::Refused(error))
    }

    fn run(
        &mut self,
        prepared: Box<dyn PreparedPart>,
        part: &Part,
        t0_ns: u64,
        turn: &mut Option<Ticket<'s>>,
    ) -> Result<Ran, Over> {
        let ahead = Duration::from_nanos(t0_ns.saturating_sub(monotonic_ns()));
        if ahead > LONGEST_LEAD {
            let message = format!("a start in {:.0} s is too far ahead", ahead.as_secs_f64());
            return self.refuse_to_run(ReplyError::new(ErrorCode::Refused, message));
        }
        let counted = part.length_ns().is_none();
        let length_ns =
            part.length_ns().unwrap_or_else(|| admission::longest_counted(&self.shared.config.limits, part));
        // In a test of unknown length only keep-alive can tell a client that works from one that is gone.
        self.channel.set_keepalive(counted)?;
        let mut deadline = Instant::now() + ahead + Duration::from_nanos(length_ns) + self.shared.config.timeouts.grace;
        let load = match prepared.start(t0_ns, part.tells(Phase::Warmup)) {
            Ok(load) => load,
            Err(error) => return self.refuse_to_run(reply_error(&error)),
        };
        let running = self.shared.loads.begin(self.client, t0_ns);
        let (mut seen, mut notified) = (self.stop.urgency(), false);
        loop {
            load.clear_news();
            // Asked first: the last interval is there before the end is.
            let finished = load.is_finished();
            while let Some(window) = load.take_interval() {
                if part.tells(window.phase) {
                    self.reply(&Reply::Interim(Box::new(window)))?;
                }
            }
            if finished {
                let mut report = load.finish();
                if let Report::End(report) = &mut report {
                    report.shared_ns = measured(report).map_or(0, |(from_ns, to_ns)| running.beside_ns(from_ns, to_ns));
                }
                let ended = Instant::now();
                for piece in report_pieces(&report).map_err(ChannelError::Message)? {
                    if self.stop.urgency() == Urgency::Now {
                        return Err(stopping());
                    }
                    // The other clients do not wait for one that reads slowly.
                    turn.take_if(|_| ended.elapsed() > self.shared.config.timeouts.grace);
                    self.reply(&piece)?;
                }
                return Ok(Ran::Reported(TestResult::of(report.volume(), report.ending())));
            }
            if !notified && load.is_awaiting_end_of_data() {
                notified = true;
                self.reply(&Reply::Sent)?;
            }
            // One message a turn: the stop flag and the deadline are looked at after each.
            let request = self.channel.try_recv()?;
            let more = request.is_some();
            match request {
                Some(Request::Stop { at_ns }) => {
                    load.stop_at(at_ns);
                    let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
                    deadline = deadline.min(Instant::now() + left + self.shared.config.timeouts.grace);
                }
                Some(Request::Measure { at_ns }) => load.begin_at(at_ns),
                Some(Request::Abort) => {
                    drop(load);
                    self.reply(&Reply::Idle)?;
                    return Ok(Ran::Aborted);
                }
                Some(request) => return Err(unexpected(&request, " while a test runs")),
                None => {}
            }
            if self.stop.urgency() == Urgency::Now {
                return Err(stopping());
            }
            seen = seen.max(self.stop.urgency());
            if Instant::now() >= deadline {
                drop(load);
                return self.refuse_to_run(self.overdue(counted.then_some(length_ns)));
            }
            if more {
                continue;
            }
            wait([Some(self.channel.as_fd()), Some(load.as_fd()), self.stop.beyond(seen)], Some(deadline))
                .map_err(|source| ChannelError::Io { what: "waiting for the end of a test failed", source })?;
        }
    }

    /// `counted_ns`: time granted to a test that stops by a count.
    fn overdue(&self, counted_ns: Option<u64>) -> ReplyError {
        let config = &self.shared.config;
        if let Some(granted_ns) = counted_ns {
            let seconds = Duration::from_nanos(granted_ns).as_secs_f64();
            let why = if granted_ns < config.limits.duration_ns {
                "for this number of intervals and flows: lengthen `interval`"
            } else {
                "(--max-duration)"
            };
            let message = format!("the test was ended after {seconds} s, the time that this daemon grants {why}");
            return ReplyError::new(ErrorCode::Refused, message);
        }
        let seconds = config.timeouts.grace.as_secs_f64();
        ReplyError::new(
            ErrorCode::Failed,
            format!("the load did not end within {seconds:.0} s after its time: the test was given up"),
        )
    }
}

/// Begin and end of a report's measure phase on the monotonic clock, nanoseconds.
fn measured(report: &SideReport) -> Option<(u64, u64)> {
    let window = report.phase(Phase::Measure)?;
    Some((report.monotonic_start_ns, report.monotonic_start_ns + window.elapsed_ns))
}

/// Whether a request leaves the state of a session as it is.
fn is_aside(request: &Request) -> bool {
    matches!(request, Request::Probe | Request::Stop { .. } | Request::Measure { .. })
}

/// A request did not come in time.
#[derive(Clone, Copy)]
enum Late {
    Request(Duration),
    /// The client had a turn for so long.
    Turn(Duration),
}

fn late(why: Late) -> Over {
    let message = match why {
        Late::Request(time) => {
            format!("no complete request came for {:.1} s: the session is closed", time.as_secs_f64())
        }
        Late::Turn(time) => {
            format!("the client had a turn for {:.1} s and began no load: the session is closed", time.as_secs_f64())
        }
    };
    Over::Refused(ReplyError::new(ErrorCode::TimedOut, message))
}

pub(super) fn unexpected(request: &Request, when: &str) -> Over {
    let message = format!("unexpected request `{}`{when}: the session is closed", message::name(request));
    Over::Refused(ReplyError::new(ErrorCode::Protocol, message))
}

/// The ending of a test that was answered with an error.
fn refusal(error: &ReplyError) -> TestEnding {
    match error.code {
        ErrorCode::Failed | ErrorCode::TimedOut => TestEnding::Failed,
        _ => TestEnding::Refused,
    }
}

pub(super) fn stopping() -> Over {
    Over::Refused(ReplyError::new(ErrorCode::Stopping, "the daemon is being stopped: the session is closed"))
}
