//! The daemon's conversation with a client of iperf3.
//!
//! ```text
//! cookie ─▶ parameters ─▶ streams ─▶ load ─▶ end of the test ─▶ results ─▶ closed
//! ```
//! The client decides when the test ends, within the daemon's limits. Then this end counts on until what the client has sent
//! is here: its results, which come first, say how much that is.

mod streams;

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use socket2::SockRef;

use super::{
    control::{Control, ControlError},
    mapping,
    outcome::{self, CpuTime, Times},
    parameters::Parameters,
    results::Results,
    wire::{COOKIE_BYTES, Code, Cookie, Fault, MOST_PARAMETERS, MOST_RESULTS, Malformed, State, stream_id},
};
use crate::{
    control::{
        message::ErrorCode,
        part::{Load, RunningPart},
        stop::{Urgency, wait},
    },
    end::End,
    measure::clock::monotonic_ns,
    peers::{self, Host, KEEPALIVE},
    report::{Counts, Ending, SideReport},
    spec::{Direction, Role, Side, TestSpec, Transport},
    transport::Deadline,
};
use streams::{Offer, Opening, Session, StreamError};

pub use streams::Sessions;

/// The longest time for a client's first messages, as a real server's.
const GREETED: Duration = Duration::from_secs(30);

/// The longest time for the data connections.
const OPENED: Duration = Duration::from_secs(30);

/// The longest time for the results, and for the client's last message.
const ANSWERED: Duration = Duration::from_secs(10);

/// The longest time after the end of a test in which what is under way may arrive.
const DRAINED: Duration = Duration::from_secs(8);

/// A stream from which nothing came for so long has no more.
const SILENCE: Duration = Duration::from_secs(1);

/// The same where the client does not say how much it sent, or where datagrams may be lost.
const SHORT_SILENCE: Duration = Duration::from_millis(250);

/// Interval at which the counts are looked at.
const LOOK_UP: Duration = Duration::from_millis(2);

/// Why a session ended before its client's last message.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error("{0}")]
    Control(#[from] ControlError),
    /// The client was told so.
    #[error("{0}")]
    Refused(String),
    #[error("the client ended the test before its time")]
    Left,
    #[error("the daemon is being stopped")]
    Stopping,
}

/// Serves a connection at iperf3's port. Returns the reason of its end; `None`: it was a data connection.
pub fn serve(host: &dyn Host, mut stream: TcpStream, peer: SocketAddr) -> Option<String> {
    let stopping = || host.stop().urgency() > Urgency::None;
    let greeted = Deadline::after(GREETED, &stopping);
    let turned_away = |stream: TcpStream, reason: &str| {
        // The client may be gone.
        let _ = Control::new(stream).map(|mut control| control.send(State::AccessDenied, &greeted));
        Some(reason.to_owned())
    };
    let cookie = match read_cookie(&mut stream, &greeted) {
        Ok(Some(cookie)) => cookie,
        Ok(None) => return turned_away(stream, "its first message is no cookie of iperf3"),
        Err(error) => return Some(format!("no cookie of iperf3: {error}")),
    };
    match host.sessions().iperf3.offer(cookie, host.number(), stream) {
        Ok(Offer::Taken) => None,
        Ok(Offer::Surplus(stream)) => turned_away(stream, "its test wants no further data connection"),
        Ok(Offer::New(stream, session)) => {
            let begun = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE).and_then(|()| Control::new(stream));
            let Ok(mut control) = begun.and_then(|control| control.no_delay().map(|()| control)) else {
                return Some("it closed its connection".to_owned());
            };
            let ended =
                Conversation { host, peer: peer.ip().to_canonical(), session, control: &mut control }.hold(&greeted);
            Some(ended.err().map_or_else(|| "the client has closed".to_owned(), |over| over.to_string()))
        }
        Err(error) => Some(format!("no descriptors for it: {error}")),
    }
}

fn read_cookie(stream: &mut TcpStream, deadline: &Deadline<'_>) -> Result<Option<Cookie>, ControlError> {
    let mut bytes = [0; COOKIE_BYTES];
    let mut control = Control::new(stream.try_clone()?)?;
    control.read(&mut bytes, deadline)?;
    Ok(Cookie::parse(bytes))
}

struct Conversation<'a> {
    host: &'a dyn Host,
    peer: IpAddr,
    session: Session<'a>,
    control: &'a mut Control,
}

impl Conversation<'_> {
    fn hold(mut self, greeted: &Deadline<'_>) -> Result<(), Over> {
        self.control.send(State::ParamExchange, greeted)?;
        let asked = match self.control.text(MOST_PARAMETERS, greeted) {
            Ok(text) => Parameters::decode(&text),
            Err(ControlError::Malformed(Malformed(why))) => Err(Fault::new(Code::Parameters, why)),
            Err(error) => return Err(error.into()),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(fault) => return Err(self.refuse(&fault)),
        };
        let _slot = match self.host.open(&asked.version) {
            Ok(slot) => slot,
            Err(error) => return Err(self.turn_away(&error.to_string())),
        };
        let spec = match self.test(&asked) {
            Ok(spec) => spec,
            Err(fault) => return Err(self.refuse(&fault)),
        };
        let _share = match self.host.admit(&spec) {
            Ok(share) => share,
            Err(error) if matches!(error.code, ErrorCode::Busy | ErrorCode::Stopping) => {
                return Err(self.turn_away(&error.to_string()));
            }
            Err(error) => return Err(self.refuse(&Fault::new(Code::Parameters, error.to_string()))),
        };
        let end = match self.open(&spec) {
            Ok(end) => end,
            Err(error) => {
                self.host.failed(&spec, &error.to_string());
                return Err(match error {
                    StreamError::Left => Over::Left,
                    StreamError::End(error) => self.refuse(&Fault::new(Code::Parameters, error.to_string())),
                });
            }
        };
        self.run(&spec, &asked, end)
    }

    /// The test that the client asks for, within the daemon's limits.
    fn test(&self, asked: &Parameters) -> Result<TestSpec, Fault> {
        let limits = self.host.limits();
        let flows = if asked.direction == Direction::Bidirectional { 2 * asked.parallel } else { asked.parallel };
        if flows > limits.flows {
            let most = limits.flows;
            return Err(Fault::new(Code::Streams, format!("{flows} streams, and {most} are granted (--max-flows)")));
        }
        let known = peers::congestion_controls();
        if let Some(name) = asked.congestion.as_ref().filter(|name| !known.contains(name)) {
            let (what, known) = (Code::Parameters, known.join(", "));
            return Err(Fault::new(what, format!("congestion control {name}: this host has {known}")));
        }
        mapping::test(asked, limits.duration_ns)
    }

    /// Tells the client that its test is not run.
    fn refuse(&mut self, fault: &Fault) -> Over {
        // It may be gone.
        let _ = self.control.send_error(fault.code.number(), &Deadline::after(ANSWERED, &|| false));
        Over::Refused(fault.to_string())
    }

    fn turn_away(&mut self, reason: &str) -> Over {
        let _ = self.control.send(State::AccessDenied, &Deadline::after(ANSWERED, &|| false));
        Over::Refused(reason.to_owned())
    }

    fn open(&mut self, spec: &TestSpec) -> Result<End, StreamError> {
        let host = self.host;
        let stopping = || host.stop().urgency() > Urgency::None;
        let deadline = Deadline::after(OPENED, &stopping);
        let local = self.control.stream().local_addr();
        let local = local.map_err(crate::error::EndError::system("no local address"))?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let opening = Opening::begin(spec, &host.sessions().iperf3, (local, self.peer), &deadline)?;
        if spec.transport != Transport::Udp {
            self.session.want(spec.flows() as usize);
        }
        self.control.send(State::CreateStreams, &deadline).map_err(|_| StreamError::Left)?;
        let links = opening.finish(spec, &self.session, self.control, &deadline)?;
        self.session.want(0);
        Ok(End::over(spec, Side::Far, links)?)
    }

    fn run(&mut self, spec: &TestSpec, asked: &Parameters, end: End) -> Result<(), Over> {
        let host = self.host;
        let stopping = || host.stop().urgency() == Urgency::Now;
        let deadline = Deadline::after(ANSWERED, &stopping);
        let cpu = CpuTime::now();
        // Both at once: data may come right after.
        self.control.write(&[State::TestStart.byte(), State::TestRunning.byte()], &deadline)?;
        let t0_ns = monotonic_ns();
        let load = match Load::start(end, t0_ns, false) {
            Ok(load) => load,
            Err(error) => {
                host.failed(spec, &error.to_string());
                return Err(self.refuse(&Fault::new(Code::Parameters, error.to_string())));
            }
        };
        if let Err(over) = self.await_end(&load) {
            if matches!(over, Over::Stopping | Over::Refused(_)) {
                let _ = self.control.send(State::ServerTerminate, &Deadline::after(ANSWERED, &|| false));
            }
            drop(load);
            host.failed(spec, &over.to_string());
            return Err(over);
        }
        let end_ns = monotonic_ns();
        load.stop_at(end_ns);
        let exchanged = self.exchange(spec, &load, end_ns);
        load.release();
        let mut report = load.finish();
        let (theirs, arrived_ns) = match exchanged {
            Ok(exchanged) => exchanged,
            Err(over) => {
                host.failed(spec, &over.to_string());
                return Err(over);
            }
        };
        let begin = t0_ns.saturating_add(spec.phases.warmup_ns);
        let times = Times { begin, end: end_ns, arrived: arrived_ns };
        let ours = outcome::server_results(spec, asked, &report, &theirs, times, cpu);
        complete(&mut report, end_ns >= begin);
        host.ran(spec, &report);
        let deadline = Deadline::after(ANSWERED, &stopping);
        self.control.send_text(&ours.encode(), &deadline)?;
        self.control.send(State::DisplayResults, &deadline)?;
        // Its last message, or its end, which is the same. It then waits for ours.
        let _ = self.control.state(&deadline);
        Ok(())
    }

    /// Waits until the client ends the test. An error: the test does not count.
    fn await_end(&mut self, load: &Load) -> Result<(), Over> {
        let mut over_since = None;
        let mut seen = Urgency::None;
        loop {
            match self.control.arrived_state() {
                Ok(None) => {}
                Ok(Some(State::TestEnd)) => return Ok(()),
                Ok(Some(State::ClientTerminate | State::Done)) | Err(ControlError::Closed) => return Err(Over::Left),
                Ok(Some(other)) => return Err(Over::Refused(format!("the client sent {other:?} during the test"))),
                Err(error) => return Err(error.into()),
            }
            seen = seen.max(self.host.stop().urgency());
            if seen == Urgency::Now {
                return Err(Over::Stopping);
            }
            // The client's word may still be under way when its streams have ended.
            if load.is_load_over() || load.is_finished() {
                let since = *over_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE {
                    return Err(Over::Refused("the test took too long, or its streams ended early".to_owned()));
                }
            }
            load.clear_news();
            let until = over_since.map(|since: Instant| since + SILENCE + LOOK_UP);
            let fds = [Some(self.control.as_fd()), Some(load.as_fd()), self.host.stop().beyond(seen)];
            let waited = wait(fds, until.or_else(|| Some(Instant::now() + Duration::from_secs(1))));
            waited.map_err(|error| Over::Control(ControlError::Io(error)))?;
        }
    }

    /// Asks for the client's results, and receives what it has sent. Returns them, and the instant of the last arrival.
    fn exchange(&mut self, spec: &TestSpec, load: &Load, end_ns: u64) -> Result<(Results, u64), Over> {
        let host = self.host;
        let stopping = || host.stop().urgency() == Urgency::Now;
        let deadline = Deadline::after(ANSWERED, &stopping);
        self.control.send(State::ExchangeResults, &deadline)?;
        let text = self.control.text(MOST_RESULTS, &deadline)?;
        let theirs = Results::decode(&text).and_then(|results| known_streams(spec, results));
        let theirs = match theirs {
            Ok(theirs) => theirs,
            Err(Malformed(why)) => return Err(self.refuse(&Fault::new(Code::Parameters, why))),
        };
        let arrived_ns = drain(spec, load, &theirs, end_ns, &stopping);
        Ok((theirs, arrived_ns))
    }
}

/// Refuses results of streams that the test does not have.
fn known_streams(spec: &TestSpec, results: Results) -> Result<Results, Malformed> {
    let ids: Vec<u64> = (0..spec.flows()).map(|flow| stream_id(flow).into()).collect();
    let stranger = results.streams.iter().find(|stream| !ids.contains(&stream.id));
    match stranger {
        Some(stranger) => Err(Malformed(format!("results of a stream {}, which the test does not have", stranger.id))),
        None => Ok(results),
    }
}

/// Lets arrive what the client has sent, and returns the instant of the last arrival.
fn drain(spec: &TestSpec, load: &Load, theirs: &Results, end_ns: u64, stopping: &dyn Fn() -> bool) -> u64 {
    let udp = spec.transport == Transport::Udp;
    let receives = |flow: u32| spec.roles(Side::Far, flow).contains(&Role::Receiver);
    // With omitted ones the client does not say how many bytes there were in all.
    let is_known = udp || spec.phases.warmup_ns == 0;
    let silence = if is_known && !udp { SILENCE } else { SHORT_SILENCE };
    let count = |counts: &Counts| if udp { counts.messages_received } else { counts.bytes_received };
    let sent: Vec<Option<u64>> = (0..spec.flows())
        .map(|flow| {
            let stream = theirs.streams.iter().find(|stream| stream.id == u64::from(stream_id(flow)));
            let sent = stream.map_or(0, |stream| if udp { stream.packets } else { stream.bytes });
            if receives(flow) { Some(if is_known { sent } else { u64::MAX }) } else { None }
        })
        .collect();
    let began = Instant::now();
    let mut arrived_ns = end_ns;
    let mut progressed = Instant::now();
    let mut before: Option<u64> = None;
    loop {
        let counts = load.counts();
        let is_there = sent.iter().zip(&counts).all(|(sent, counts)| sent.is_none_or(|sent| count(counts) >= sent));
        let sum = counts.iter().map(count).fold(0, u64::saturating_add);
        if before.replace(sum).is_some_and(|before| before != sum) {
            (arrived_ns, progressed) = (monotonic_ns(), Instant::now());
        }
        let is_silent = progressed.elapsed() >= silence;
        if is_there || is_silent || began.elapsed() >= DRAINED || load.is_finished() || stopping() {
            return arrived_ns;
        }
        std::thread::sleep(LOOK_UP);
    }
}

/// The client's word is the end that was agreed on, not an early one.
fn complete(report: &mut SideReport, measured: bool) {
    if report.ending == Ending::Stopped && measured {
        report.ending = Ending::Complete;
    }
}
