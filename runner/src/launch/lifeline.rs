//! `plumb serve --launched`: a daemon that lives as long as the standard input that its launcher holds.

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd,
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use netcore::{
    control::{
        key::Key,
        stop::{StopFlag, Urgency, wait},
    },
    daemon::{Config, Daemon, Event, Limits, Network, Networks, Timeouts},
    lock::Lock,
    measure::{addresses::addresses, host::HostFacts},
    mpi,
};
use nix::unistd::getppid;
use schemas::units;

use super::contract::{CONTRACT, Greeting, LONGEST_DATA, Message, read_line};
use crate::{error::Error, signals::Interrupts, style};

/// Time for the daemon's sessions to end after the life line has ended. Then the process ends with whatever is left.
const END: Duration = Duration::from_secs(2);

/// A run's requests and the launcher's `allow-connect` come by different ways: the requests may be earlier.
const ALLOWED_WITHIN: Duration = Duration::from_secs(3);

/// Time for a test that was given up to free the library of a rank.
const LEAVE: Duration = Duration::from_secs(1);

/// Exit code when the end was the launcher's wish or its silence.
const ENDED: i32 = 0;

/// Options of `plumb serve` for launchers.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// For launchers: carry the control connections over standard input and output, too.
    #[arg(long, hide = true, requires = "launched")]
    pub relay: bool,
    /// For launchers whose standard input reaches only one process (MPICH): make the key here and print it.
    #[arg(long, hide = true, requires = "launched", conflicts_with = "relay")]
    pub own_key: bool,
    /// For launchers of MPI: be a rank, for tests over MPI.
    #[arg(long, hide = true, requires = "launched")]
    pub mpi: bool,
    /// The MPI library to open [default: the launcher's].
    #[arg(long, hide = true, value_name = "FILE", requires = "mpi")]
    pub mpi_library: Option<String>,
    /// For launchers: the longest silence on standard input.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration, requires = "launched", hide = true)]
    pub silence: Duration,
}

/// Every address with a port that the kernel chooses, or loopback only where nothing else has to reach the daemon.
pub fn listen(relay: bool) -> Vec<SocketAddr> {
    let everywhere: [u16; 8] = [0; 8];
    if relay {
        vec![(Ipv4Addr::LOCALHOST, 0).into()]
    } else {
        vec![(everywhere, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()]
    }
}

/// Serves until standard input ends or is silent for too long. `config`: where, and what is allowed.
pub fn serve(options: &Options, config: Config) -> Result<(), Error> {
    // Before the signals are caught: one that comes while the other ranks are awaited ends this process.
    let rank = options.mpi.then(|| mpi::start(options.mpi_library.as_deref()));
    let rank = rank.transpose().map_err(|why| Error::Measurement(format!("rank {}: {why}", own_rank())))?;
    let system = |what: &'static str| move |error: io::Error| Error::Measurement(format!("{what}: {error}"));
    let interrupts = Interrupts::install(|_| {})?;
    let stop = interrupts.flag().clone();
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(system("no standard input"))?;
    let mut input = BufReader::new(WatchedInput { input: input.into(), silence: options.silence, stop: stop.clone() });
    let half = Key::generate().map_err(Error::measurement)?;
    let key = if options.own_key {
        half.clone()
    } else {
        let first = read_line(&mut input).map_err(system("the launcher sent no key"))?;
        let theirs = first.as_deref().map(str::trim).and_then(Key::from_hex).ok_or_else(|| {
            Error::Usage(
                "the first line of standard input is no key: --launched is for the launchers of `plumb run`, which write one \
                 there"
                    .into(),
            )
        })?;
        half.joined(&theirs)
    };
    // Without the life line nobody can say later which networks there are: only the launcher has the key.
    let allow_connect: Networks =
        if options.own_key { Network::everything().to_vec().into() } else { Networks::awaited(ALLOWED_WITHIN) };
    let sessions = Arc::new(Sessions::default());
    let counted = Arc::clone(&sessions);
    let config = Config {
        key: Some(key),
        allow_connect: allow_connect.clone(),
        limits: Limits::of_own_client(),
        timeouts: Timeouts::of_own_client(),
        probe_idle: options.own_key,
        log: Some(Arc::new(move |event: &Event<'_>| {
            counted.count(event);
            tell(event);
        })),
        ..config
    };
    let daemon = Daemon::bind(config).map_err(Error::measurement)?;
    let port = daemon.local_addr().map_or(0, |address| address.port());
    let greeting = Greeting { key: Some(half.to_hex()), ..greeting(port) };
    let output = Arc::new(Lock::new(io::stdout()));
    write(&output, |out| out.write_all(greeting.line().as_bytes()).and_then(|()| out.flush()))
        .map_err(Error::output("standard output"))?;
    let mut line = LifeLine { allow_connect, port: options.relay.then_some(port), output, streams: BTreeMap::new() };
    let (ended, own_key, silence) = (stop.clone(), options.own_key, options.silence);
    thread::Builder::new()
        .name("lifeline".into())
        .spawn(move || {
            let why = if own_key { sessions.follow(silence, &ended) } else { line.follow(&mut input) };
            line.close_all();
            end(&ended, &why);
        })
        .map_err(system("no thread for the life line"))?;
    let served = daemon.run(&stop).map_err(Error::measurement);
    if let Some(world) = rank {
        // All ranks leave together. The life line ends this process if one of them does not.
        world.finish(LEAVE);
    }
    served
}

/// Ends the daemon with its tests, and the process if that takes too long.
fn end(stop: &StopFlag, why: &str) {
    if !why.is_empty() {
        style::tell(why);
    }
    stop.request();
    stop.request();
    thread::sleep(END);
    process::exit(ENDED);
}

/// Only what the launcher must know: its standard error is quoted where something fails.
fn tell(event: &Event<'_>) {
    if let Event::Unaccepted { reason } = event {
        style::tell(format_args!("a connection was not accepted: {}", schemas::text::plain(reason)));
    }
}

/// This process's number among those of its launcher.
fn own_number() -> Option<u32> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse().ok());
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"].into_iter().find_map(number)
}

/// The same with the host's name, for errors.
fn own_rank() -> String {
    let number = own_number().map_or_else(|| "?".to_owned(), |number| number.to_string());
    format!("{number} on {}", HostFacts::collect().hostname.unwrap_or_default())
}

fn greeting(port: u16) -> Greeting {
    let facts = HostFacts::collect();
    Greeting {
        contract: CONTRACT,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: process::id(),
        host: facts.hostname,
        machine: facts.arch,
        port,
        addresses: addresses().unwrap_or_default(),
        // An MPI launcher may itself run inside an allocation: its own number is the finer one.
        rank: own_number(),
        node: env::var("SLURMD_NODENAME").ok(),
        key: None,
        reached_at: env::var("SSH_CONNECTION").ok().and_then(|words| words.split(' ').nth(2)?.parse().ok()),
    }
}

fn write<T>(output: &Lock<io::Stdout>, work: impl FnOnce(&mut io::Stdout) -> T) -> T {
    work(&mut output.lock())
}

/// Standard input, as an error once it is silent for too long or a signal asks for the end.
struct WatchedInput {
    input: std::fs::File,
    silence: Duration,
    stop: StopFlag,
}

impl Read for WatchedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = Instant::now() + self.silence;
        let [ready, stopped] = wait([Some(self.input.as_fd()), self.stop.beyond(Urgency::None)], Some(deadline))?;
        if stopped {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a signal asked for the end"));
        }
        if !ready {
            let silent = format!("nothing came for {} s", self.silence.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, silent));
        }
        self.input.read(buffer)
    }
}

/// Sessions of the launcher, which are the life line where there is no other.
#[derive(Debug)]
struct Sessions(Lock<Known>);

/// The facts known of them.
#[derive(Clone, Copy, Debug)]
struct Known {
    began: Instant,
    open: usize,
    /// When the last one closed; `None`: there was none yet.
    closed: Option<Instant>,
}

impl Known {
    /// Whether the launcher has had no session for so long that it is gone.
    fn is_forsaken(self, silence: Duration, now: Instant) -> bool {
        let (since, patience) = self.closed.map_or((self.began, silence.max(Sessions::FIRST)), |at| (at, silence));
        self.open == 0 && now.saturating_duration_since(since) > patience
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self(Lock::new(Known { began: Instant::now(), open: 0, closed: None }))
    }
}

impl Sessions {
    /// Time for the launcher to open the first one: it waits for all other daemons before.
    const FIRST: Duration = Duration::from_mins(1);

    fn count(&self, event: &Event<'_>) {
        let mut state = self.0.lock();
        match event {
            Event::Opened { .. } => state.open += 1,
            Event::Closed { .. } => (state.open, state.closed) = (state.open.saturating_sub(1), Some(Instant::now())),
            _ => {}
        }
    }

    /// Returns when the parent is gone, or the launcher has had no session for too long.
    fn follow(&self, silence: Duration, stop: &StopFlag) -> String {
        let parent = getppid();
        loop {
            if stop.urgency() != Urgency::None {
                return String::new();
            }
            if getppid() != parent {
                return "the launcher is gone; this daemon ends".to_owned();
            }
            let known = *self.0.lock();
            if known.is_forsaken(silence, Instant::now()) {
                return format!("the launcher has had no session for {} s; this daemon ends", silence.as_secs());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

struct LifeLine {
    allow_connect: Networks,
    /// The daemon's own port, where its control connections are relayed.
    port: Option<u16>,
    output: Arc<Lock<io::Stdout>>,
    /// Relayed control connections.
    streams: BTreeMap<u32, TcpStream>,
}

impl LifeLine {
    /// Obeys the launcher until its end. Returns a sentence about an end that was not its wish.
    fn follow(&mut self, input: &mut BufReader<WatchedInput>) -> String {
        loop {
            let line = match read_line(input) {
                Ok(Some(line)) => line,
                Ok(None) => return String::new(),
                Err(error) => return format!("the launcher is gone: {error}; this daemon ends"),
            };
            match Message::read(&line, input) {
                Ok(Some(Message::Heartbeat)) => {}
                Ok(Some(Message::AllowConnect(list))) => list.into_iter().for_each(|it| self.allow_connect.add(it)),
                Ok(Some(Message::Data { stream, bytes })) if self.port.is_some() => self.deliver(stream, &bytes),
                Ok(Some(Message::Close { stream })) if self.port.is_some() => self.close(stream),
                Ok(_) => {
                    return format!("a line of the launcher means nothing here: {}", schemas::text::plain(&line));
                }
                Err(error) => return format!("the launcher is gone: {error}; this daemon ends"),
            }
        }
    }

    /// Writes to a relayed connection, which its first bytes open. One that fails is closed.
    fn deliver(&mut self, stream: u32, bytes: &[u8]) {
        if !self.streams.contains_key(&stream)
            && let Err(error) = self.open(stream)
        {
            style::tell(format_args!("the daemon's own port cannot be reached: {error}"));
        }
        let written = self.streams.get_mut(&stream).map(|connection| connection.write_all(bytes));
        if !matches!(written, Some(Ok(()))) {
            self.close(stream);
            let _ = write(&self.output, |out| Message::Close { stream }.write(out));
        }
    }

    fn open(&mut self, stream: u32) -> io::Result<()> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.unwrap_or(0)))?;
        connection.set_nodelay(true)?;
        // A session that reads nothing must not hold the life line.
        connection.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut reader = connection.try_clone()?;
        let output = Arc::clone(&self.output);
        thread::Builder::new().name("relay".into()).spawn(move || {
            let mut bytes = vec![0; LONGEST_DATA];
            loop {
                let message = match reader.read(&mut bytes) {
                    Ok(length) if length > 0 => Message::Data { stream, bytes: bytes[..length].to_vec() },
                    _ => Message::Close { stream },
                };
                let written = write(&output, |out| message.write(out));
                if written.is_err() || message == (Message::Close { stream }) {
                    return;
                }
            }
        })?;
        self.streams.insert(stream, connection);
        Ok(())
    }

    fn close(&mut self, stream: u32) {
        if let Some(connection) = self.streams.remove(&stream) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn close_all(&mut self) {
        while let Some((_, connection)) = self.streams.pop_first() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_session_is_waited_for_long() {
        let (began, silence) = (Instant::now(), Duration::from_secs(10));
        let after = |known: Known, seconds| known.is_forsaken(silence, began + Duration::from_secs(seconds));
        let none_yet = Known { began, open: 0, closed: None };
        assert!(!after(none_yet, 59) && after(none_yet, 61));
        // A launcher that is killed in its first minute.
        let left = Known { closed: Some(began + Duration::from_secs(5)), ..none_yet };
        assert!(!after(left, 14) && after(left, 16));
        assert!(!after(Known { open: 1, ..left }, 3600));
    }
}
