//! A netserver as the far end of our tests.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use super::{
    check, classic,
    control::Control,
    omni, report,
    request::{Place, request},
    wire::{ANY_CPU, DATA_WORDS, Message, OLD_MESSAGE_BYTES, Text, error, kind},
};
use crate::{
    control::event::wait,
    end::End,
    error::EndError,
    measure::clock::monotonic_ns,
    peers::{Conversation, CpuClock, DataPath, PeerError},
    report::{Ending, SideReport},
    spec::{Dialect, Direction, Pattern, Side, TestSpec},
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
            Pattern::Connect => classic::ExchangeResponse::read(&response).data_port,
            _ => omni::Response::read(&response).data_port,
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
        Ok(report::report(&spec, &response, &results.message, near, ended_ns.min(results.at_ns)))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
