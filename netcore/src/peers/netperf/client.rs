//! A netserver as the far end of our tests: the conversation, and the report of its end from its results.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use super::{
    messages::{self, CPU_BY_PROC_STAT},
    request::{Place, check, near_counts, near_only, request},
    wire::{ANY_CPU, Control, DATA_WORDS, MOST_CPU_METHOD, Message, OLD_MESSAGE_BYTES, Text, error, kind},
};
use crate::{
    control::stop::wait,
    end::End,
    error::EndError,
    measure::clock::monotonic_ns,
    peers::{Conversation, CpuClock, DataPath, PeerError},
    report::{Counts, CpuUse, Ending, FlowWindow, Granted, Phase, SideReport, Window},
    spec::{Dialect, Direction, Pattern, Role, Side, Stop, TestSpec, Transport, socket::OptionValue},
    transport::{
        Deadline, Link, Protocol,
        address::{Address, local_ip, near_bind, unspecified},
        check_family, connection, datagram, listener,
    },
};

/// An end this long before the far end's own makes the far end go on for nothing.
const EARLY: Duration = Duration::from_secs(1);

/// Room for a passphrase: all of a message's data.
const PASSPHRASE_BYTES: usize = DATA_WORDS * 4;

/// A conversation with a netserver.
pub struct Client {
    control: Control,
    /// Present once the test is agreed on.
    test: Option<Test>,
    results: Option<Results>,
}

struct Test {
    spec: TestSpec,
    response: Message,
    agreed: Instant,
}

struct Results {
    message: Message,
    /// Arrival on the monotonic clock.
    at_ns: u64,
}

fn lost(source: io::Error) -> PeerError {
    PeerError::Io { what: "its control connection failed", source }
}

/// An error that an answer tells, as a sentence.
fn sentence(number: u32) -> String {
    match number {
        error::UNKNOWN_REQUEST => "this netserver was built without such a test (error 998)".to_owned(),
        error::PASSPHRASE => "it asks for another passphrase (error 403)".to_owned(),
        number => match i32::try_from(number) {
            Ok(errno) => io::Error::from_raw_os_error(errno).to_string(),
            Err(_) => format!("error {number}"),
        },
    }
}

impl Client {
    pub fn new(stream: TcpStream) -> Result<Self, PeerError> {
        Ok(Self { control: Control::new(stream).map_err(lost)?, test: None, results: None })
    }

    /// Waits for an answer. `what` did not come: the error after the deadline.
    fn receive(&mut self, what: &'static str, deadline: &Deadline<'_>) -> Result<Message, PeerError> {
        let began = Instant::now();
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            if deadline.left().is_zero() {
                if self.control.partial().len() == OLD_MESSAGE_BYTES {
                    let reason = "its messages have 256 bytes: install netperf 2.6 or newer there";
                    return Err(PeerError::Broken(reason.to_owned()));
                }
                return Err(PeerError::Silent { what, seconds: began.elapsed().as_secs_f64() });
            }
            wait([Some(self.control.as_fd())], Some(Instant::now() + deadline.slice())).map_err(lost)?;
        }
    }

    /// An answer, if it is there. An error that it tells is an error here.
    fn try_receive(&mut self) -> Result<Option<Message>, PeerError> {
        let message = self.control.try_receive().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof if self.test.is_none() => PeerError::Closed(
                "in place of an answer: its kernel may lack the protocol, its host may have no address but that of loopback, or it asks for a passphrase",
            ),
            io::ErrorKind::UnexpectedEof => PeerError::Closed("before the results of the test"),
            _ => lost(error),
        })?;
        // Its type says nothing: see `wire`.
        if let Some(number) = message.as_ref().map(Message::second).filter(|number| *number != 0) {
            let when = if self.test.is_none() { "refused the test" } else { "gave the test up" };
            return Err(PeerError::Refused(format!("it {when}: {}", sentence(number))));
        }
        Ok(message)
    }

    /// Asks for the test; returns the port of the data.
    fn ask(&mut self, spec: &TestSpec, place: &Place, deadline: &Deadline<'_>) -> Result<u16, PeerError> {
        self.control.send(&request(spec, place)).map_err(lost)?;
        let response = self.receive("it did not answer the request for the test", deadline)?;
        let port = match spec.pattern {
            Pattern::Connect => messages::ExchangeResponse::read(&response).data_port,
            _ => messages::OmniResponse::read(&response).data_port,
        };
        self.test = Some(Test { spec: spec.clone(), response, agreed: Instant::now() });
        match u16::try_from(port) {
            Ok(port @ 1..) => Ok(port),
            _ => Err(PeerError::Broken(format!("it names data port {port}"))),
        }
    }
}

/// A bound datagram socket: a request names its port.
fn datagram_socket(spec: &TestSpec, from: &Address) -> Result<(OwnedFd, u16), EndError> {
    let socket = datagram::socket(spec, &spec.near.socket, from, true)?;
    let port = local_ip(&socket)?.port();
    Ok((socket, port))
}

impl Conversation for Client {
    fn introduce(&mut self, passphrase: &str) -> Result<(), PeerError> {
        let too_long = || PeerError::Refused("a passphrase has at most 647 bytes, and no NUL".to_owned());
        let text = Text::<PASSPHRASE_BYTES>::new(passphrase).ok_or_else(too_long)?;
        let mut message = Message::new(kind::PASSPHRASE, ANY_CPU);
        message.put(0, &text);
        // There is no answer.
        self.control.send(&message).map_err(lost)
    }

    fn cpu_clock(&mut self, deadline: &Deadline<'_>) -> Result<CpuClock, PeerError> {
        self.control.send(&Message::new(kind::CPU_CALIBRATE, ANY_CPU)).map_err(lost)?;
        let answer = self.receive("it did not tell its CPU clock", deadline)?;
        Ok(CpuClock { rate: answer.get(0), cpus: answer.get(1) })
    }

    fn agree(&mut self, spec: &TestSpec, path: DataPath, deadline: &Deadline<'_>) -> Result<End, PeerError> {
        check(spec)?;
        let spec = TestSpec { dialect: Dialect::Netperf, ..spec.clone() };
        let control = self.control.stream().peer_addr().map_err(lost)?.ip().to_canonical();
        let far = path.far.unwrap_or(control);
        check_family(&spec, far)?;
        let from = near_bind(&spec, path.near, far, 0);
        let mut place = Place {
            v6: far.is_ipv6(),
            near_port: spec.near.port.unwrap_or(0),
            near: from.map(|address| address.ip()).filter(|ip| !ip.is_unspecified()),
            far: spec.far.bind.first().copied().or(path.far),
        };
        let to = |port| Address::Ip((far, port).into());
        let link = if spec.transport.is_datagram() {
            let from = from.unwrap_or((unspecified(far), 0).into());
            let (socket, near_port) = datagram_socket(&spec, &Address::Ip(from))?;
            place.near_port = near_port;
            let port = self.ask(&spec, &place, deadline)?;
            datagram::to_service(socket, &to(port), spec.connected, 0)?
        } else {
            let port = self.ask(&spec, &place, deadline)?;
            let name = spec.transport.name();
            let protocol = Protocol::connecting(spec.transport)
                .ok_or_else(|| EndError::Impossible(format!("{name} has no connections")))?;
            if spec.pattern.is_connecting() {
                listener::towards_service(&spec, protocol, &to(port), path.near, 0)?
            } else {
                let from = from.map(Address::Ip);
                let socket = connection::connect(protocol, from.as_ref(), &to(port), &spec.near.socket, deadline)?;
                Link::of_socket(0, socket)
            }
        };
        Ok(End::over(&spec, Side::Near, vec![link])?)
    }

    /// A netserver is under way once the data connection is there.
    fn begin(&mut self, _deadline: &Deadline<'_>) -> Result<(), PeerError> {
        Ok(())
    }

    /// A sending netserver cannot be told to end before its time.
    fn load_over(&mut self) -> Result<bool, PeerError> {
        let Some(test) = &self.test else { return Ok(true) };
        // By a count it ends when all has been sent, and the near end has received that.
        let length = test.spec.phases.length_ns().map(Duration::from_nanos);
        let early = length.is_some_and(|length| test.agreed.elapsed() + EARLY < length);
        Ok(test.spec.direction != Direction::Reverse || !early)
    }

    fn pump(&mut self) -> Result<(), PeerError> {
        if self.results.is_none() {
            self.results = self.try_receive()?.map(|message| Results { message, at_ns: monotonic_ns() });
        }
        Ok(())
    }

    fn conclude(&mut self, near: &SideReport, deadline: &Deadline<'_>) -> Result<SideReport, PeerError> {
        let ended_ns = monotonic_ns();
        let connects = self.test.as_ref().is_some_and(|test| test.spec.pattern.is_connecting());
        if connects && near.ending == Ending::Stopped {
            // It waits for further connections until its own end, which may be far away.
            return Ok(SideReport::empty(Side::Far, near.ending.clone()));
        }
        let results = if let Some(results) = self.results.take() {
            results
        } else {
            Results { message: self.receive("its results did not come", deadline)?, at_ns: monotonic_ns() }
        };
        let Some(Test { spec, response, .. }) = self.test.take() else {
            return Err(PeerError::Broken("it has results of no test".to_owned()));
        };
        // It ends when it sees us go; that is no part of the test.
        let _ = self.control.stream().shutdown(Shutdown::Write);
        Ok(report(&spec, &response, &results.message, near, ended_ns.min(results.at_ns)))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// The far end's report. `ended_ns`: when its last data had been counted, on the near end's monotonic clock.
pub fn report(spec: &TestSpec, response: &Message, results: &Message, near: &SideReport, ended_ns: u64) -> SideReport {
    let told =
        if spec.pattern == Pattern::Connect { classic(spec, response, results) } else { omni(spec, response, results) };
    let role = spec.roles(Side::Far, 0).first().copied().unwrap_or(Role::Receiver);
    let flow = FlowWindow { retransmits: told.retransmits, ..FlowWindow::of(0, role, told.counts) };
    let mut report = SideReport::empty(Side::Far, near.ending.clone());
    (report.options, report.notes, report.wall_start_ns) = (told.options, told.notes, near.wall_start_ns);
    let kept = near_only(spec).map(|name| format!("netperf cannot set {name}: only the near end has it"));
    report.notes.extend(kept);
    report.totals = vec![flow.clone()];
    // Its counts are those of the whole load. With a warm-up or a cool-down they are no measurement.
    let phases = &spec.phases;
    if phases.warmup_ns == 0 && phases.cooldown_ns == 0 {
        let measured_ns = near.phase(Phase::Measure).map(|window| window.elapsed_ns);
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
struct FarValues {
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

fn omni(spec: &TestSpec, response: &Message, results: &Message) -> FarValues {
    let (response, results) = (messages::OmniResponse::read(response), messages::OmniResults::read(results));
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
        let set = response.flags & messages::flag::NO_DELAY != 0;
        options.push(granted("no_delay", Some(no_delay.shown()), Some(set.to_string()), None));
    }
    let retransmits = u64::try_from(results.retransmits).ok().filter(|_| tcp);
    FarValues { counts, retransmits, options, cpu, notes }
}

fn classic(spec: &TestSpec, response: &Message, results: &Message) -> FarValues {
    let (response, results) = (messages::ExchangeResponse::read(response), messages::ExchangeResults::read(results));
    let transactions = results.transactions.into();
    let share = f64::from(results.cpu_percent) / 100.0;
    let cpu = (spec.collect.cpu && !waits_longer(spec) && (0.0..=1.01).contains(&share)).then(|| only(share));
    let notes = (spec.collect.cpu && waits_longer(spec)).then(left_out).into_iter().collect();
    FarValues {
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
fn has_cpu_words(results: &messages::OmniResults) -> bool {
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

fn cpu_use(results: &messages::OmniResults, is_new: bool) -> Option<CpuUse> {
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
