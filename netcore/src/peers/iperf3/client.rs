//! Our client's conversation with `iperf3 -s`.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    poll::PollFlags,
    sys::socket::{MsgFlags, send},
};

use super::{
    control::{Control, ControlError},
    mapping, outcome,
    results::Results,
    wire::{self, COOKIE_BYTES, Cookie, HELLO, HELLO_BYTES, MOST_RESULTS, State, is_reply},
};
use crate::{
    control::dial::dial,
    end::End,
    error::EndError,
    measure::clock::monotonic_ns,
    peers::{Conversation, DataPath, PeerError},
    report::SideReport,
    spec::{Role, Side, TestSpec, Transport},
    sys,
    transport::{
        Deadline, Link, Protocol,
        address::{Address, near_bind},
        check_family, connection,
        datagram::{self, receive_from, send_to},
    },
};

/// A server between two tests has no listener, or refuses for the test before: tried again for so long.
const RETRIED: Duration = Duration::from_secs(1);

/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(50);

/// The longest wait until the far end's kernel has all data.
const ACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Time for the server to read what its kernel has: it counts no more once it knows that the test is over.
const READ: Duration = Duration::from_millis(50);

/// A server says within this time why it closes a connection.
const REASON: Duration = Duration::from_millis(500);

/// A conversation about one test.
pub struct Client {
    control: Control,
    /// Time in which a server that closes or refuses at once is asked again.
    pub(super) retried: Duration,
    agreed: Option<Agreed>,
    /// Whether the server was told that the test is over.
    ended: bool,
    /// Whether it has asked for the results.
    is_asked: bool,
    /// Instants at which everything that this end sent had arrived, and at which the server was told of the end.
    end: (u64, u64),
}

struct Agreed {
    spec: TestSpec,
    /// Sockets by which this end sends. They stay open until the results are here: a server counts no more once one is closed.
    sending: Vec<Arc<OwnedFd>>,
}

fn control(stream: TcpStream) -> io::Result<Control> {
    let control = Control::new(stream)?;
    control.no_delay()?;
    Ok(control)
}

/// Adds what the conversation was waiting for.
fn failed(when: &'static str, waiting: &'static str) -> impl FnOnce(ControlError) -> PeerError {
    move |error| match error {
        ControlError::Closed => PeerError::Closed(when),
        ControlError::Silent(seconds) => PeerError::Silent { what: waiting, seconds },
        ControlError::Cancelled => PeerError::Cancelled,
        ControlError::Malformed(why) => PeerError::Broken(format!("it sent {why}: is it iperf3 -s?")),
        ControlError::Io(source) => PeerError::Io { what: "its control connection failed", source },
    }
}

impl Client {
    pub fn new(stream: TcpStream) -> Result<Self, PeerError> {
        let control =
            Control::new(stream).map_err(|source| PeerError::Io { what: "its control connection", source })?;
        Ok(Self { control, retried: RETRIED, agreed: None, ended: false, is_asked: false, end: (0, 0) })
    }

    /// Sends the cookie and waits for the server's first word. A server that has just ended a test is asked again.
    fn greet(&mut self, cookie: &Cookie, deadline: &Deadline<'_>) -> Result<(), PeerError> {
        let patience = Instant::now() + self.retried;
        let unreached = |source| PeerError::Io { what: "its control connection", source };
        let stream = self.control.stream();
        let (peer, local) = (stream.peer_addr(), stream.local_addr());
        let (peer, local) = (peer.map_err(unreached)?, local.map_err(unreached)?.ip());
        loop {
            let error = match self.first_word(cookie, deadline) {
                Ok(State::ParamExchange) => return Ok(()),
                Ok(State::AccessDenied) => {
                    PeerError::Refused("it is busy with another test: try again later".to_owned())
                }
                Ok(State::ServerError) => return Err(self.server_error(deadline)),
                Ok(other) => return Err(unexpected(other, "at the begin")),
                Err(error @ (ControlError::Closed | ControlError::Io(_))) => {
                    failed("at the begin: is it iperf3 -s?", "no answer came")(error)
                }
                Err(ControlError::Silent(_)) => {
                    return Err(PeerError::Refused(
                        "it does not answer: is it iperf3 -s, and not stopped or busy with a test of an older version?"
                            .to_owned(),
                    ));
                }
                Err(error) => return Err(failed("at the begin", "no answer came")(error)),
            };
            if Instant::now() >= patience || deadline.left().is_zero() {
                return Err(error);
            }
            self.control = loop {
                std::thread::sleep(RETRY.min(deadline.left()));
                match dial(&[peer], Some(local), Instant::now() + deadline.left()) {
                    Ok(stream) => break control(stream).map_err(unreached)?,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < patience => {}
                    Err(_) => return Err(error),
                }
            };
        }
    }

    fn first_word(&mut self, cookie: &Cookie, deadline: &Deadline<'_>) -> Result<State, ControlError> {
        self.control.write(cookie.bytes(), deadline)?;
        self.control.state(deadline)
    }

    /// The sentence behind [`State::ServerError`].
    fn server_error(&mut self, deadline: &Deadline<'_>) -> PeerError {
        match self.control.error_numbers(deadline) {
            Ok((code, errno)) => PeerError::Refused(wire::sentence(code, errno)),
            Err(error) => failed("in the middle of an error", "its error's number did not come")(error),
        }
    }

    /// Waits for a state. Others end the conversation.
    fn expect(
        &mut self,
        expected: State,
        when: &'static str,
        waiting: &'static str,
        deadline: &Deadline<'_>,
    ) -> Result<(), PeerError> {
        match self.control.state(deadline) {
            Ok(state) if state == expected => Ok(()),
            Ok(state) => Err(self.refusal(state, when, deadline)),
            Err(error) => Err(failed(when, waiting)(error)),
        }
    }

    /// The error that a state means if it does not continue the conversation.
    fn refusal(&mut self, state: State, when: &'static str, deadline: &Deadline<'_>) -> PeerError {
        match state {
            State::ServerError => self.server_error(deadline),
            State::ServerTerminate => PeerError::Refused(
                "it ended the test before its time: it was stopped there, or a limit of it was reached".to_owned(),
            ),
            State::AccessDenied => PeerError::Refused("it refuses a connection of the test".to_owned()),
            other => unexpected(other, when),
        }
    }

    /// The server's account of a failure at this end, if it gives one soon.
    fn reason_or(&mut self, ours: PeerError) -> PeerError {
        let soon = Deadline::after(REASON, &|| false);
        match self.control.state(&soon) {
            Ok(state @ (State::ServerError | State::ServerTerminate | State::AccessDenied)) => {
                self.refusal(state, "while the data connections were opened", &soon)
            }
            Err(ControlError::Closed) => PeerError::Closed("while the data connections were opened"),
            _ => ours,
        }
    }

    /// Waits until the far end's kernel has what this end sent, and the server had time to read it.
    fn await_arrival(&mut self) {
        let until = Instant::now() + ACKNOWLEDGED;
        let Some(agreed) = &self.agreed else { return };
        if agreed.sending.is_empty() {
            return;
        }
        for socket in &agreed.sending {
            // A socket that says nothing is broken, and has nothing under way.
            while sys::unacknowledged(&**socket).is_ok_and(|bytes| bytes > 0)
                && Instant::now() < until
                && matches!(self.control.has_arrived(), Ok(false))
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.end.0 = monotonic_ns();
        std::thread::sleep(READ);
    }
}

fn unexpected(state: State, when: &str) -> PeerError {
    PeerError::Broken(format!("it sent {state:?} {when}, which does not belong there"))
}

impl Conversation for Client {
    fn agree(&mut self, spec: &TestSpec, path: DataPath, deadline: &Deadline<'_>) -> Result<End, PeerError> {
        let parameters = mapping::parameters(spec)?;
        let cookie = Cookie::random().map_err(|error| PeerError::Io {
            what: "the system gives no random bytes",
            source: io::Error::other(error.to_string()),
        })?;
        self.greet(&cookie, deadline)?;
        let hint = "after the parameters of the test (it may require authentication, which plumb does not do)";
        self.control.send_text(&parameters.encode(), deadline).map_err(failed(hint, "the parameters were not read"))?;
        self.expect(State::CreateStreams, hint, "it did not ask for the data connections", deadline)?;
        let control = self.control.stream().peer_addr();
        let control = control.map_err(|source| PeerError::Io { what: "its control connection", source })?;
        let to = SocketAddr::new(path.far.unwrap_or(control.ip().to_canonical()), control.port());
        check_family(spec, to.ip())?;
        let mut links = Vec::new();
        for flow in 0..spec.flows() {
            let opened = match spec.transport {
                Transport::Udp => open_datagrams(spec, flow, path.near, to, deadline),
                _ => open_stream(spec, flow, path.near, to, &cookie, deadline),
            };
            links.push(opened.map_err(|error| self.reason_or(error.into()))?);
        }
        let sends = |link: &&Link| spec.roles(Side::Near, link.flow).contains(&Role::Sender);
        let sending = links.iter().filter(sends).map(|link| link.send.clone()).collect();
        self.agreed = Some(Agreed { spec: spec.clone(), sending });
        Ok(End::over(spec, Side::Near, links)?)
    }

    fn begin(&mut self, deadline: &Deadline<'_>) -> Result<(), PeerError> {
        let when = "before the test began (a limit there, such as --server-bitrate-limit, may be the reason)";
        self.expect(State::TestStart, when, "it did not accept all data connections", deadline)?;
        self.expect(State::TestRunning, when, "it did not begin the test", deadline)
    }

    fn load_over(&mut self) -> Result<bool, PeerError> {
        self.await_arrival();
        let soon = Deadline::after(Duration::from_secs(5), &|| false);
        self.control.send(State::TestEnd, &soon).map_err(failed("during the test", "the test's end was not read"))?;
        self.ended = true;
        self.end.1 = monotonic_ns();
        // It closes those by which it sends when it reads that.
        Ok(true)
    }

    fn pump(&mut self) -> Result<(), PeerError> {
        let when = if self.ended { "before its results" } else { "during the test" };
        if self.is_asked {
            return match self.control.has_arrived() {
                Ok(false) => Ok(()),
                Ok(true) => self.pump_state(when),
                Err(error) => Err(failed(when, "")(error)),
            };
        }
        self.pump_state(when)
    }

    fn conclude(&mut self, near: &SideReport, deadline: &Deadline<'_>) -> Result<SideReport, PeerError> {
        let when = "before its results";
        if !self.is_asked {
            self.expect(State::ExchangeResults, when, "it did not ask for the results", deadline)?;
        }
        let Some(agreed) = &self.agreed else {
            return Err(EndError::Impossible("no test was agreed on".to_owned()).into());
        };
        let ours = outcome::client_results(&agreed.spec, near).encode();
        self.control.send_text(&ours, deadline).map_err(failed(when, "our results were not read"))?;
        let text = self.control.text(MOST_RESULTS, deadline).map_err(failed(when, "its results did not come"))?;
        let theirs =
            Results::decode(&text).map_err(|why| PeerError::Broken(format!("its results cannot be true: {why}")))?;
        let report = outcome::report(&agreed.spec, near, &theirs, self.end)
            .map_err(|why| PeerError::Broken(format!("its results cannot be true: {why}")))?;
        // The results are here: whatever happens to the last words changes nothing.
        let last = Deadline::after(deadline.left().min(Duration::from_secs(1)), &|| false);
        let _ = self.control.state(&last);
        let _ = self.control.send(State::Done, &last);
        let _ = self.control.stream().shutdown(std::net::Shutdown::Write);
        Ok(report)
    }
}

impl Client {
    fn pump_state(&mut self, when: &'static str) -> Result<(), PeerError> {
        match self.control.arrived_state() {
            Ok(None) => Ok(()),
            Ok(Some(State::ExchangeResults)) if self.ended && !self.is_asked => {
                self.is_asked = true;
                Ok(())
            }
            Ok(Some(state)) => Err(self.refusal(state, when, &Deadline::after(REASON, &|| false))),
            Err(error) => Err(failed(when, "")(error)),
        }
    }
}

impl Drop for Client {
    /// A server whose client just goes away may keep its test.
    fn drop(&mut self) {
        if self.agreed.is_some() && !self.ended {
            let _ = self.control.send(State::ClientTerminate, &Deadline::after(Duration::from_millis(100), &|| false));
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Opens a stream: a connection that begins with the cookie.
fn open_stream(
    spec: &TestSpec,
    flow: u32,
    data_ip: Option<IpAddr>,
    to: SocketAddr,
    cookie: &Cookie,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let protocol = Protocol::connecting(spec.transport)
        .ok_or_else(|| EndError::Impossible(format!("{} has no connections", spec.transport.name())))?;
    let from = near_bind(spec, data_ip, to.ip(), flow).map(Address::Ip);
    let socket = connection::connect(protocol, from.as_ref(), &Address::Ip(to), &spec.near.socket, deadline)?;
    // A new connection's buffer is empty: it takes the cookie whole.
    match send(socket.as_raw_fd(), cookie.bytes(), MsgFlags::MSG_NOSIGNAL) {
        Ok(COOKIE_BYTES) => Ok(Link::of_socket(flow, socket)),
        Ok(_) => Err(EndError::Impossible(format!("the send buffer of a stream has no room for {COOKIE_BYTES} bytes"))),
        Err(error) => Err(EndError::system("cannot begin a data connection")(error)),
    }
}

/// Opens a stream of datagrams: a hello and its reply. A server takes every datagram for a hello, so it is sent once.
fn open_datagrams(
    spec: &TestSpec,
    flow: u32,
    data_ip: Option<IpAddr>,
    to: SocketAddr,
    deadline: &Deadline<'_>,
) -> Result<Link, EndError> {
    let from = near_bind(spec, data_ip, to.ip(), flow).map(Address::Ip);
    let to = Address::Ip(to);
    let socket = datagram::socket(spec, &spec.near.socket, from.as_ref().unwrap_or(&to), from.is_some())?;
    let link = datagram::to_service(socket, &to, spec.connected, flow)?;
    let refused = |error| EndError::System { what: format!("no UDP stream to {to}"), source: io::Error::from(error) };
    send_to(link.send.as_raw_fd(), &HELLO, link.peer, MsgFlags::MSG_NOSIGNAL).map_err(refused)?;
    loop {
        if deadline.left().is_zero() {
            let hint = format!("no reply from {to}, while TCP passes: a datagram was lost, or a firewall drops UDP");
            return Err(deadline.missed(flow as usize, spec.flows(), &hint));
        }
        if !connection::wait(&*link.receive, PollFlags::POLLIN, deadline.slice())? {
            continue;
        }
        // One byte more than a reply, to tell a longer datagram.
        let mut datagram = [0; HELLO_BYTES + 1];
        match receive_from(&link, &mut datagram, MsgFlags::MSG_DONTWAIT) {
            Ok(n) if is_reply(&datagram[..n]) => return Ok(link),
            // Data of a server that sends may overtake the reply.
            Ok(_) | Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Err(error) => return Err(refused(error)),
        }
    }
}
