//! One launcher process: `ssh`, `srun` or another command that carries a life line to one or several daemons.
//!
//! Control connections may be relayed: socket pairs of this process whose bytes travel on a life line. No port leads to them.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    ffi::OsString,
    fs::File,
    io::{self, BufReader, Read, Write},
    net::Shutdown,
    os::unix::{net::UnixStream, process::CommandExt},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use netcore::{client::Cutter, control::key::Key, lock::Lock};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use schemas::text::plain;

use super::{
    contract::{Greeting, HEARTBEAT, LONGEST_DATA, Message, read_line},
    recipe::{self, Recipe},
};

/// Lines kept of what a launcher prints.
const KEPT_LINES: usize = 24;

/// Characters kept of each of them.
const KEPT_CHARACTERS: usize = 400;

/// Most messages that wait for a launcher to read its input. Relayed connections wait behind them.
const QUEUE: usize = 16;

/// The last line of a launcher that is not read to its end.
const SURPLUS: &str = "error: more daemons greeted than were asked for; their launcher is no longer listened to";

/// Last lines of a stream.
type LastLines = Arc<Lock<VecDeque<String>>>;

/// News of a launcher.
#[derive(Debug)]
pub enum LauncherEvent {
    Greeting(Greeting),
    /// A marked line that cannot be read.
    Unreadable(String),
    /// More greetings than daemons that were asked for. Nothing more is read from it.
    Surplus,
    /// Its standard output has ended.
    Closed,
}

/// Where programs are looked for, with this one's folder at the end: a launcher on this machine starts it though it is not installed.
fn search_path() -> Option<OsString> {
    let path = env::var_os("PATH")?;
    let own = env::current_exe().ok()?;
    env::join_paths(env::split_paths(&path).chain([own.parent()?.to_owned()])).ok()
}

/// A running launcher. Dropping it ends its daemons and then itself.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
    /// Messages to its standard input, which closes when this is dropped.
    orders: Option<SyncSender<Message>>,
    news: Receiver<LauncherEvent>,
    /// Last lines of its standard output and of its standard error.
    said: [LastLines; 2],
    relay: Option<Arc<Relay>>,
    /// Whether the end of its standard input ends its daemons.
    input: bool,
    cutter: Cutter,
}

impl Process {
    /// Starts it in a process group of its own: SIGINT of the terminal is for this program alone.
    pub fn start(recipe: &Recipe, key: &Key) -> io::Result<Self> {
        let (copy, relayed) = (recipe.copy.as_ref(), recipe.relay);
        let (program, args) =
            recipe.argv.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .envs(search_path().map(|path| ("PATH", path)))
            .process_group(0)
            .spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("a pipe is missing"));
        };
        let (orders, received) = mpsc::sync_channel(QUEUE);
        // A greeting for each of its daemons, a surplus one, and the end: whoever sends never waits for a reader.
        let daemons = recipe.ends.len();
        let (sender, news) = mpsc::sync_channel(daemons + 2);
        let relay = relayed.then(|| Arc::new(Relay::new(orders.clone())));
        let said: [LastLines; 2] = Default::default();
        let (file, key) = (copy.map(|copy| File::open(&copy.path)).transpose()?, key.to_hex());
        thread::Builder::new().name("lifeline".into()).spawn(move || {
            // An error means that the launcher is gone, which its outputs show.
            let _ = feed(stdin, file, &key, &received);
        })?;
        let cutter = Cutter::default();
        let (keep, back, connections) = (Arc::clone(&said[0]), relay.clone(), cutter.clone());
        thread::Builder::new().name("launcher out".into()).spawn(move || {
            let _ = listen(stdout, daemons, &sender, &keep, back.as_deref());
            let _ = sender.send(LauncherEvent::Closed);
            connections.cut();
            if let Some(relay) = back {
                relay.close();
            }
        })?;
        let keep = Arc::clone(&said[1]);
        thread::Builder::new().name("launcher err".into()).spawn(move || {
            let mut stderr = BufReader::new(stderr);
            while let Ok(Some(line)) = read_line(&mut stderr) {
                push(&keep, &line);
            }
        })?;
        Ok(Self { child, status: None, orders: Some(orders), news, said, relay, cutter, input: recipe.input })
    }

    /// The next news; `None`: none within that time.
    pub fn news(&self, within: Duration) -> Option<LauncherEvent> {
        match self.news.recv_timeout(within) {
            Ok(news) => Some(news),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(LauncherEvent::Closed),
        }
    }

    /// Says something to all of its daemons.
    pub fn tell(&self, message: Message) {
        if let Some(orders) = &self.orders {
            // A launcher that is gone is noticed by its outputs. The daemon of one that reads nothing refuses tests.
            let _ = orders.try_send(message);
        }
    }

    /// Carries the control connections, where the launcher does.
    pub fn relay(&self) -> Option<&Arc<Relay>> {
        self.relay.as_ref()
    }

    /// Cuts the control connections to its daemons when it ends: they end with it, and a network that is down says nothing.
    pub fn cutter(&self) -> &Cutter {
        &self.cutter
    }

    /// Its exit status, if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// The last lines that it or its daemons printed, without hostile characters. Those of standard error come last: it has the
    /// reason, and what a login shell prints on standard output must not push that out.
    pub fn last_lines(&self) -> Vec<String> {
        let lines = |said: &LastLines| Vec::from(said.lock().clone());
        self.said.iter().flat_map(lines).collect()
    }

    /// Ends its daemons by the end of their standard input, or by SIGTERM where they have none. [`Process::wait`] waits for it.
    pub fn close(&mut self) {
        if let Some(relay) = &self.relay {
            relay.close();
        }
        self.orders = None;
        if !self.input {
            self.signal(Signal::SIGTERM);
        }
    }

    /// Waits for its end until the deadline.
    pub fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            let status = self.status();
            if status.is_some() || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to its process group, while it exists.
    pub fn signal(&mut self, signal: Signal) {
        if self.status().is_none() {
            // Only the group's own end can make this fail.
            let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), signal);
        }
    }
}

/// Time for daemons and launchers to end after the life line is closed.
const ORDERLY: Duration = Duration::from_secs(5);

/// Ends launchers together: first by their input, then by SIGTERM, then by SIGKILL.
pub fn end(processes: &mut [Process]) {
    processes.iter_mut().for_each(Process::close);
    for (signal, patience) in [(Signal::SIGTERM, ORDERLY), (Signal::SIGKILL, Duration::from_secs(1))] {
        let deadline = Instant::now() + patience;
        if processes.iter_mut().all(|process| process.wait(deadline).is_some()) {
            return;
        }
        for process in processes.iter_mut() {
            process.signal(signal);
        }
    }
    for process in processes {
        process.wait(Instant::now() + Duration::from_secs(1));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(std::slice::from_mut(self));
    }
}

/// Writes the program and the key, then messages as they come, and heartbeats between them.
fn feed(mut input: ChildStdin, program: Option<File>, key: &str, orders: &Receiver<Message>) -> io::Result<()> {
    if let Some(mut program) = program {
        io::copy(&mut program, &mut input)?;
    }
    input.write_all(format!("{key}\n").as_bytes())?;
    loop {
        match orders.recv_timeout(HEARTBEAT) {
            Ok(message) => message.write(&mut input)?,
            Err(RecvTimeoutError::Timeout) => Message::Heartbeat.write(&mut input)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Reads what the daemons and everything before them print, until there are more greetings than daemons.
fn listen(
    output: impl Read,
    daemons: usize,
    news: &SyncSender<LauncherEvent>,
    said: &Lock<VecDeque<String>>,
    relay: Option<&Relay>,
) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut greetings = 0;
    while let Some(line) = read_line(&mut output)? {
        if let Some(greeting) = Greeting::of_line(&line) {
            if greetings == daemons {
                let _ = news.send(LauncherEvent::Surplus);
                push(said, SURPLUS);
                return Ok(());
            }
            greetings += 1;
            let _ = news.send(
                greeting.map_or_else(|error| LauncherEvent::Unreadable(error.to_string()), LauncherEvent::Greeting),
            );
        } else if let (1.., Some(relay)) = (greetings, relay)
            && let Some(message) = Message::read(&line, &mut output)?
        {
            relay.deliver(message);
        } else {
            push(said, &line);
        }
    }
    Ok(())
}

fn push(said: &Lock<VecDeque<String>>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    let mut said = said.lock();
    if said.len() == KEPT_LINES {
        // The line with the cause may stand far above a launcher's own page of advice.
        let dispensable = said.iter().position(|line| !recipe::tells(line)).unwrap_or(0);
        said.remove(dispensable);
    }
    said.push_back(plain(&line.trim_end().chars().take(KEPT_CHARACTERS).collect::<String>()));
}

#[derive(Debug)]
pub struct Relay(Lock<State>);

#[derive(Debug)]
struct State {
    /// `None`: closed.
    orders: Option<SyncSender<Message>>,
    streams: BTreeMap<u32, Arc<UnixStream>>,
    next: u32,
}

impl Relay {
    pub fn new(orders: SyncSender<Message>) -> Self {
        Self(Lock::new(State { orders: Some(orders), streams: BTreeMap::new(), next: 0 }))
    }

    /// A new connection to the daemon.
    pub fn dial(self: &Arc<Self>) -> io::Result<UnixStream> {
        let (theirs, ours) = UnixStream::pair()?;
        ours.set_write_timeout(Some(Duration::from_secs(10)))?;
        let ours = Arc::new(ours);
        let mut state = self.0.lock();
        let orders = state.orders.clone().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        let (relay, stream, reader) = (Arc::clone(self), state.next, Arc::clone(&ours));
        thread::Builder::new().name("relay".into()).spawn(move || {
            let mut bytes = vec![0; LONGEST_DATA];
            while let Ok(length @ 1..) = (&*reader).read(&mut bytes) {
                if orders.send(Message::Data { stream, bytes: bytes[..length].to_vec() }).is_err() {
                    break;
                }
            }
            if relay.0.lock().streams.remove(&stream).is_some() {
                let _ = orders.send(Message::Close { stream });
            }
        })?;
        state.streams.insert(stream, ours);
        state.next += 1;
        Ok(theirs)
    }

    /// Takes a message of the far end.
    pub fn deliver(&self, message: Message) {
        match message {
            Message::Data { stream, bytes } => {
                let connection = self.0.lock().streams.get(&stream).cloned();
                // Written without the lock: a session that reads nothing keeps only this launcher waiting.
                if connection.is_some_and(|connection| (&*connection).write_all(&bytes).is_err()) {
                    self.end(stream);
                }
            }
            Message::Close { stream } => self.end(stream),
            Message::Heartbeat | Message::AllowConnect(_) => {}
        }
    }

    fn end(&self, stream: u32) {
        if let Some(connection) = self.0.lock().streams.remove(&stream) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Closes all connections and opens no more.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.orders = None;
        for connection in std::mem::take(&mut state.streams).into_values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::recipe::{Asked, DaemonOptions},
        *,
    };
    use crate::plan::model::{Host, Launch, Ssh};

    #[test]
    fn the_line_with_the_cause_is_kept() {
        let said = Lock::default();
        push(&said, "ssh: Could not resolve hostname n2: Name or service not known");
        (0..2 * KEPT_LINES).for_each(|n| push(&said, &format!("advice {n}")));
        let said = said.lock().clone();
        assert_eq!((said.len(), &*said[1]), (KEPT_LINES, &*format!("advice {}", KEPT_LINES + 1)));
        assert!(said[0].starts_with("ssh: Could not resolve"), "{said:?}");
    }

    #[test]
    fn a_launcher_that_never_stops_greeting_is_no_longer_read() {
        let launch = Launch { ssh: Some(Ssh::default()), ..Launch::default() };
        let asked = Asked { host: &Host::default(), over_mpi: false, files: BTreeSet::default() };
        let mut recipe = Recipe::of("b", vec!["b".into()], asked, &launch, DaemonOptions::default()).unwrap().remove(0);
        let greeting = Greeting {
            contract: super::super::contract::CONTRACT,
            version: "0".into(),
            pid: 1,
            host: None,
            machine: None,
            port: 1,
            addresses: Vec::new(),
            rank: None,
            node: None,
            reached_at: None,
            key: None,
        };
        let line = greeting.line();
        recipe.argv = ["sh", "-c", &format!("while echo '{}'; do :; done", line.trim_end())].map(str::to_owned).into();
        recipe.copy = None;
        let mut process = Process::start(&recipe, &Key::generate().unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        // Its output is closed before anybody has looked at a greeting: they do not heap up.
        assert!(process.wait(deadline).is_some(), "it ends by its closed output");
        let news: Vec<LauncherEvent> = std::iter::from_fn(|| process.news(Duration::from_secs(20))).take(4).collect();
        assert!(
            matches!(
                news[..],
                [LauncherEvent::Greeting(_), LauncherEvent::Surplus, LauncherEvent::Closed, LauncherEvent::Closed]
            ),
            "one for its daemon, and the end: {news:?}"
        );
        assert_eq!(process.last_lines(), [SURPLUS]);
    }
}
