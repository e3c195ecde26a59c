//! Connections of scrapers: few, bounded in time and bytes, each with one request.
//!
//! All are served by one thread, which sleeps while nobody asks. Between two rounds it pauses, and it makes one page a round:
//! whoever asks again and again, or says nothing, takes a small share of one CPU, and only where no other thread wants it.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    page::Page,
    request::{Asked, Head, parse},
};
use crate::error::Error;

/// Most connections at the same time. One more takes the place of the oldest.
const MOST_CONNECTIONS: usize = 16;
/// From the begin of a connection to its end.
const WHOLE_TIME: Duration = Duration::from_secs(10);
/// The same for one whose answer has to be measured.
const PROBE_TIME: Duration = Duration::from_mins(15);
/// Between two looks whether such an answer has come.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(10);

/// The status line, without the version, and the body of an answer.
pub type Answer = (&'static str, String);

/// The answer of a source to a request for a page of its own.
#[derive(Debug)]
pub enum Reply {
    /// It has no such page.
    Unknown,
    Now(Answer),
    /// The answer comes when it has been measured.
    Later(Receiver<Answer>),
}

/// One who is asked.
pub trait Source: Send + Sync {
    /// Writes a page. `true`: no later page will say more.
    fn write(&self, page: &mut Page) -> bool;

    /// Answers a request for another page, by its path and query.
    fn ask(&self, _target: &str) -> Reply {
        Reply::Unknown
    }

    /// A client has read a page that was the last.
    fn last_page_read(&self) {}
}

/// A listening socket for scrapers.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let fault = |source: io::Error| {
            let remedy = match source.kind() {
                io::ErrorKind::AddrInUse => ": another program listens there; name another port, or 0 for a free one",
                io::ErrorKind::AddrNotAvailable => {
                    ": this machine has no such address; `ip address` shows those it has"
                }
                io::ErrorKind::PermissionDenied => ": ports below 1024 are for root; name a higher one",
                _ => "",
            };
            Error::Measurement(format!("--metrics cannot listen on {address}: {source}{remedy}"))
        };
        let listener = TcpListener::bind(address).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address })
    }

    /// Its address, with the port that the kernel chose where 0 was asked for.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers from a thread of its own until the process ends.
    pub fn start(self, source: Arc<dyn Source>) -> Result<(), Error> {
        let thread = thread::Builder::new().name("metrics".into());
        let started = thread.spawn(move || {
            netcore::give_way();
            let mut connections = Vec::new();
            loop {
                round(&self.listener, &mut connections, &*source);
                thread::sleep(PAUSE);
            }
        });
        started.map(drop).map_err(|error| Error::Measurement(format!("--metrics cannot start its thread: {error}")))
    }
}

struct Connection {
    stream: TcpStream,
    since: Instant,
    state: State,
    /// Whether its page is the last.
    last: bool,
}

enum State {
    Reading(Vec<u8>),
    /// The answer is measured.
    Waiting(Receiver<Answer>),
    /// The answer, and how much of it is sent.
    Writing(Vec<u8>, usize),
    /// The answer is sent: what the client still says is read and dropped, so that no reset takes the answer away.
    Draining,
}

impl Connection {
    fn due(&self) -> Instant {
        let limit = match self.state {
            State::Waiting(_) => PROBE_TIME,
            State::Reading(_) | State::Writing(..) | State::Draining => WHOLE_TIME,
        };
        self.since + limit
    }

    fn event(&self) -> PollFlags {
        match self.state {
            State::Writing(..) => PollFlags::POLLOUT,
            // Only that the client is gone.
            State::Waiting(_) => PollFlags::empty(),
            State::Reading(_) | State::Draining => PollFlags::POLLIN,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Goes on as far as it can without waiting. `make` makes the answer to a request.
    fn advance(&mut self, make: &mut dyn FnMut(Asked) -> (State, bool)) -> Step {
        loop {
            let moved = match &mut self.state {
                State::Reading(bytes) => {
                    let mut some = [0; 1024];
                    let read = self.stream.read(&mut some);
                    if let Ok(count) = read {
                        bytes.extend_from_slice(&some[..count]);
                        if let Head::Whole(asked) = parse(bytes) {
                            (self.state, self.last) = make(asked);
                        }
                    }
                    read
                }
                State::Waiting(answer) => match answer.try_recv() {
                    Err(TryRecvError::Empty) => return Step::Waits,
                    Err(TryRecvError::Disconnected) => return Step::Over,
                    Ok((status, body)) => {
                        self.state = State::Writing(bytes(status, PLAIN, &body), 0);
                        // The time of the answer begins.
                        self.since = Instant::now();
                        Ok(1)
                    }
                },
                State::Writing(answer, sent) if *sent < answer.len() => {
                    let wrote = self.stream.write(&answer[*sent..]);
                    *sent += wrote.as_ref().unwrap_or(&0);
                    wrote
                }
                State::Writing(..) => {
                    self.state = State::Draining;
                    self.stream.shutdown(Shutdown::Write).map(|()| 1)
                }
                State::Draining => match self.stream.read(&mut [0; 4096]) {
                    // The end of the client's half: it has read the whole answer.
                    Ok(0) if self.last => return Step::Told,
                    // Once a round, however much comes.
                    Ok(count) if count > 0 => return Step::Waits,
                    other => other,
                },
            };
            match moved {
                Ok(0) => return Step::Over,
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Step::Waits,
                    _ => return Step::Over,
                },
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waits,
    Over,
    /// Over, and the client has read the last page.
    Told,
}

/// Waits until something happens, and goes on with every connection that can.
fn round(listener: &TcpListener, connections: &mut Vec<Connection>, source: &dyn Source) {
    let now = Instant::now();
    let due = connections.iter().map(Connection::due).min();
    let timeout = due.map_or(PollTimeout::NONE, |due| {
        let most = if connections.iter().any(Connection::is_waiting) { PROBE_PAUSE } else { Duration::MAX };
        // Rounded up, so that a wait that ends by its time finds the connection due.
        let left = due.saturating_duration_since(now).min(most).as_millis() + 1;
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    fds.extend(connections.iter().map(|it| PollFd::new(it.stream.as_fd(), it.event())));
    // After a failure the pause of the round is the wait: no descriptor is known to be ready.
    let ready: Vec<bool> = match poll(&mut fds, timeout) {
        Ok(_) => fds.iter().map(|fd| fd.any().unwrap_or(false)).collect(),
        Err(_) => vec![false; fds.len()],
    };
    let now = Instant::now();
    let mut ready_connections = ready[1..].iter();
    let mut has_made = false;
    connections.retain_mut(|connection| {
        let is_ready = ready_connections.next().is_some_and(|ready| *ready);
        // A client that hung up wants no answer.
        if is_ready && connection.is_waiting() {
            return false;
        }
        let is_ready = is_ready || connection.is_waiting();
        // One page a round; other requests stay in their sockets until the next, also beyond their time: the clients have sent
        // them.
        if is_ready && has_made && matches!(connection.state, State::Reading(_)) {
            return true;
        }
        if is_ready {
            let step = connection.advance(&mut |asked| {
                has_made |= matches!(asked, Asked::Metrics(_));
                answer(asked, source)
            });
            if step == Step::Told {
                source.last_page_read();
            }
            if step != Step::Waits {
                return false;
            }
        }
        now < connection.due()
    });
    if ready[0] {
        accept(listener, connections);
    }
}

/// Accepts the connections that have come, at most as many as have a place.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) {
    for _ in 0..MOST_CONNECTIONS {
        // Without a descriptor it stays in the queue until the next round.
        let Ok((stream, _)) = listener.accept() else { return };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        if connections.len() >= MOST_CONNECTIONS {
            connections.remove(0);
        }
        connections.push(Connection { stream, since: Instant::now(), state: State::Reading(Vec::new()), last: false });
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// The next state of a connection with this request, and whether its page is the last.
fn answer(asked: Asked, source: &dyn Source) -> (State, bool) {
    let refused = |status| {
        let (status, reason) = match status {
            404 => ("404 Not Found", "the metrics are at /metrics"),
            405 => ("405 Method Not Allowed", "only GET is answered"),
            431 => ("431 Request Header Fields Too Large", "the head of a request is 8 KiB at most"),
            505 => ("505 HTTP Version Not Supported", "only HTTP/1.1 is spoken here"),
            _ => ("400 Bad Request", "this is no request of HTTP/1.1"),
        };
        (status, format!("{reason}\n"))
    };
    let (status, body) = match asked {
        Asked::Metrics(format) => {
            let mut page = Page::new(format);
            let last = source.write(&mut page);
            return (State::Writing(bytes("200 OK", format.content_type(), &page.finish()), 0), last);
        }
        Asked::Hint => ("200 OK", "The metrics of plumb are at /metrics.\n".to_owned()),
        Asked::Refused(status) => refused(status),
        Asked::OfWatch(target) => match source.ask(&target) {
            Reply::Unknown => refused(404),
            Reply::Now(answer) => answer,
            Reply::Later(answer) => return (State::Waiting(answer), false),
        },
    };
    (State::Writing(bytes(status, PLAIN, &body), 0), false)
}

/// The bytes of an answer.
fn bytes(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    (head + body).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::metrics::{MOST_SAMPLES, request::LONGEST_HEAD};

    #[test]
    fn the_page_has_every_bound() {
        let page = include_str!("../../../docs/guide/live.md");
        let bounds = [
            ("connections at the same time; one more takes the place of the oldest", MOST_CONNECTIONS.to_string()),
            ("head of a request", format!("{} KiB", LONGEST_HEAD >> 10)),
            ("time of a connection", format!("{} s", WHOLE_TIME.as_secs())),
            ("pages", format!("one in {} ms", PAUSE.as_millis())),
            ("samples of finished cases; beyond them the case leaves that ended first", MOST_SAMPLES.to_string()),
        ];
        for (name, value) in bounds {
            assert!(page.contains(&format!("| {name} | {value} |")), "| {name} | {value} |");
        }
    }

    #[derive(Default)]
    struct Fake {
        last_page_reads: AtomicU32,
    }

    impl Source for Fake {
        fn write(&self, page: &mut Page) -> bool {
            page.put(&super::super::page::SESSIONS, &[], 3.0);
            true
        }

        fn last_page_read(&self) {
            self.last_page_reads.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn started() -> (Arc<Fake>, SocketAddr) {
        let source = Arc::new(Fake::default());
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address;
        assert_eq!(server.url(), format!("http://{address}/metrics"));
        server.start(source.clone()).unwrap();
        (source, address)
    }

    fn ask(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_have_their_answers() {
        let (source, address) = started();
        let page = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{page}");
        assert!(page.ends_with("plumb_serve_sessions 3\n"), "{page}");
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        for (asked, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET /x HTTP/1.1\r\n\r\n", "404 "),
            ("PUT /metrics HTTP/1.1\r\n\r\nbody", "405 "),
            ("nonsense\r\n\r\n", "400 "),
            ("GET / HTTP/3\r\n\r\n", "505 "),
        ] {
            let said = ask(address, asked.as_bytes());
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {said}");
        }
        // The rest of a long head does not take the answer away.
        assert!(ask(address, &vec![b'a'; 64 << 10]).starts_with("HTTP/1.1 431 "));
        // One answer, and the end.
        let twice = ask(address, b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert_eq!(twice.matches("HTTP/1.1 200").count(), 1, "{twice}");
        while source.last_page_reads.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(source.last_page_reads.load(Ordering::SeqCst), 1, "by the only scrape");
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_out() {
        let (_, address) = started();
        let silent: Vec<TcpStream> = (0..3 * MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        for mut stream in &silent {
            // Evicted connections refuse the bytes.
            drop(stream.write_all(b"GET /metr"));
        }
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").contains("plumb_serve_sessions 3"));
        for mut stream in silent {
            let mut rest = Vec::new();
            // The end, or a reset, but no answer.
            drop(stream.read_to_end(&mut rest));
            assert_eq!(rest, b"");
        }
    }

    #[test]
    fn requests_that_came_in_time_are_answered_by_a_thread_that_stood_still() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (source, mut connections) = (Fake::default(), Vec::new());
        let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        while connections.len() < clients.len() {
            accept(&server.listener, &mut connections);
        }
        for stream in &mut clients {
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        }
        for connection in &mut connections {
            connection.since -= WHOLE_TIME;
        }
        while connections.iter().any(|connection| matches!(connection.state, State::Reading(_))) {
            round(&server.listener, &mut connections, &source);
        }
        for mut stream in clients {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains("plumb_serve_sessions 3"), "{text}");
        }
    }

    #[test]
    fn a_port_in_use_has_a_sentence() {
        let (_, address) = started();
        let error = Server::bind(address).unwrap_err();
        assert_eq!(error.exit().code(), 3);
        assert!(
            error.to_string().contains(&format!("{address}")) && error.to_string().contains("name another port"),
            "{error}"
        );
    }
}
