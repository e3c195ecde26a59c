//! `plumb watch`: measures a plan again and again, and keeps what it came to. One process and a directory.
//!
//! - `starts`: when cycles start, over clocks that jump and local time that repeats or skips an hour
//! - `process`: processes of the watch, and what systemd is told
//! - `levels`: new levels in the history, told once
//! - `cycle`: one cycle, in a process of its own
//! - `probe`: measurements that a scrape asks for, and whose turn it is
//!
//! This thread waits for signals, the clock and the ends of cycles. Whatever happens in a cycle becomes a row of `cycles.csv`;
//! rows that cannot be written wait in memory.

pub mod cycle;
mod levels;
mod probe;
mod process;
pub mod starts;

use std::{
    io::Read as _,
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use analyze::history::store::{append_cycles, read_cycles};
use netcore::lock::Lock;
use nix::sys::signal::Signal;
use schemas::{
    columns::{CycleRow, Timestamp},
    text::counted,
    time::from_unix_seconds,
    words::CycleStatus,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use self::{
    cycle::{Outcome, Settings},
    probe::{Prober, Turn},
    process::{Systemd, own_program, signal, start},
    starts::{Now, Starts, Tick, When},
};
use crate::{
    error::{Error, Exit},
    metrics::{Cycle, Server, WatchState},
    plan::{self, Plan, answers::span},
    schedule::history::rows,
    sinks::files::{Files, OutputLock},
    style,
};

/// Longest time between two looks at the clocks.
const LOOK: Duration = Duration::from_secs(5);

/// Rows that wait in memory for a disk that is full; beyond them the oldest goes.
const MOST_UNKEPT: usize = 10_000;

/// Bytes of a cycle's outcome that are read.
const MOST_SAID: u64 = 64 << 10;

/// When to measure, and how long at most.
#[derive(Clone, Debug)]
pub struct Timing {
    pub when: When,
    /// Starts are spread over this time, by the names of plan and host.
    pub spread: Duration,
    /// Longest cycle; `None`: it follows from the plan.
    pub limit: Option<Duration>,
}

enum Event {
    Signal(i32),
    /// The cycle's process has closed its output: what it said.
    Ended(String),
    /// A probe has ended.
    Freed,
}

/// A running cycle.
struct Running {
    child: Child,
    began: Now,
    /// Name of the plan; another one may have been read since.
    plan: String,
    /// Why it was ended from here.
    ended: Option<String>,
}

struct Watch<'a> {
    settings: &'a Settings,
    timing: &'a Timing,
    host: String,
    text: String,
    plan: Plan,
    starts: Starts,
    clock: Instant,
    sender: Sender<Event>,
    prober: Arc<Prober>,
    state: Arc<WatchState>,
    running: Option<Running>,
    /// A start whose turn has not come: a probe still measures.
    is_due: bool,
    /// The last status, and since when.
    last: Option<(CycleStatus, String)>,
    /// Rows that could not be written yet.
    unkept: Vec<CycleRow>,
    is_ending: bool,
}

/// Measures until a signal ends it.
pub fn watch(
    settings: &Settings,
    timing: &Timing,
    metrics: Option<SocketAddr>,
    key_file: Option<&Path>,
) -> Result<Exit, Error> {
    let (text, plan) = read(settings)?;
    let server = metrics.map(Server::bind).transpose()?;
    let _lock = lock(&settings.kept.history)?;
    let (earlier, notes) = read_cycles(&settings.kept.history)?;
    for note in notes {
        style::tell(format_args!("note: {note}"));
    }
    let (sender, events) = mpsc::channel();
    listen(&sender)?;
    let wake = sender.clone();
    let prober = Arc::new(Prober {
        hosts: Lock::new(plan.hosts.clone()),
        turn: Turn::default(),
        key_file: key_file.map(Path::to_owned),
        wake: Box::new(move || drop(wake.send(Event::Freed))),
    });
    let asked = Arc::clone(&prober);
    let state = WatchState::new(Box::new(move |request| asked.ask(request)));
    if let Some(server) = server {
        style::tell(format_args!("metrics: {}", server.url()));
        server.start(state.clone())?;
    }
    let host = cycle::host();
    let clock = Instant::now();
    let starts = starts_of(timing, &plan, &host, now(clock));
    let is_own = |row: &&CycleRow| row.plan.as_ref() == Some(&plan.name) && row.host.as_ref() == Some(&host);
    let last = earlier.iter().rfind(is_own).and_then(|row| Some((row.status?, row.since.as_ref()?.0.clone())));
    let (is_due, is_ending) = (false, false);
    let (running, unkept) = (None, Vec::new());
    let mut watch = Watch {
        settings,
        timing,
        host,
        text,
        plan,
        starts,
        clock,
        sender,
        prober,
        state,
        running,
        is_due,
        last,
        unkept,
        is_ending,
    };
    watch.check_period();
    style::tell(format_args!("watching {}: the next start is at {}", watch.plan.name, text_of(watch.starts.due_ms())));
    watch.run(&events)
}

impl Watch<'_> {
    fn run(&mut self, events: &Receiver<Event>) -> Result<Exit, Error> {
        let systemd = Systemd::of_environment();
        systemd.tell("READY=1");
        let look = systemd.watchdog.map_or(LOOK, |period| LOOK.min(period / 3));
        loop {
            systemd.tell("WATCHDOG=1");
            let left = self.tick();
            self.end_overdue();
            self.state.alive(self.running.is_some(), self.starts.due_ms() as f64 / 1e3);
            match events.recv_timeout(left.min(look)) {
                Ok(Event::Signal(SIGHUP)) => self.reload(),
                Ok(Event::Signal(number)) => {
                    systemd.tell("STOPPING=1");
                    self.end(number);
                }
                Ok(Event::Ended(said)) => self.ended(&said),
                Ok(Event::Freed) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Success),
            }
            if self.is_ending && self.running.is_none() {
                return Ok(Exit::Success);
            }
        }
    }

    /// Starts a cycle if it is time. Returns the time until the next look is needed.
    fn tick(&mut self) -> Duration {
        let now = now(self.clock);
        let is_busy = self.running.is_some() || self.is_due || self.is_ending;
        let left = match self.starts.tick(now, is_busy) {
            Tick::Wait(left) => left,
            Tick::Start => {
                self.is_due = true;
                Duration::ZERO
            }
            Tick::Jumped(ms) => {
                let way = if ms < 0 { "back" } else { "forward" };
                let by = span(Duration::from_millis(ms.unsigned_abs()));
                let due = text_of(self.starts.due_ms());
                style::tell(format_args!("the clock went {way} by {by}: the next start is at {due}"));
                Duration::ZERO
            }
        };
        if self.is_due && self.prober.turn.take() {
            self.is_due = false;
            self.begin(now);
        }
        left
    }

    fn begin(&mut self, began: Now) {
        let mut command = own_program();
        command.args(std::env::args_os().skip(1)).arg("--cycle").arg(text_of(began.wall_ms)).stdout(Stdio::piped());
        let started = start(command, &self.text);
        match started {
            Ok(mut child) => {
                let (sender, output) = (self.sender.clone(), child.stdout.take());
                let plan = self.plan.name.clone();
                self.running = Some(Running { child, began, plan, ended: None });
                thread::spawn(move || {
                    let mut said = String::new();
                    if let Some(mut output) = output {
                        let _ = output.by_ref().take(MOST_SAID).read_to_string(&mut said);
                        // To its end: until then its process may be at work.
                        let _ = std::io::copy(&mut output, &mut std::io::sink());
                    }
                    let _ = sender.send(Event::Ended(said));
                });
            }
            Err(why) => {
                let outcome = Outcome::of(CycleStatus::Down, format!("the cycle's process: {why}"));
                self.note_cycle(began, self.plan.name.clone(), outcome);
            }
        }
    }

    /// The process of the cycle has said everything.
    fn ended(&mut self, said: &str) {
        let Some(Running { mut child, began, plan, ended }) = self.running.take() else { return };
        let status = child.wait();
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let outcome = said.lines().next().and_then(|line| serde_json::from_str::<Outcome>(line).ok());
        let outcome = match outcome {
            // Its process got another signal than this one.
            Some(Outcome { status: CycleStatus::Cut, reason, run_id, length_s }) => {
                Outcome { status: CycleStatus::Cut, reason: ended.unwrap_or(reason), run_id, length_s }
            }
            Some(outcome) => outcome,
            None => {
                let why = ended.unwrap_or_else(|| format!("the cycle's process ended without a result ({how})"));
                Outcome::of(if self.is_ending { CycleStatus::Cut } else { CycleStatus::Down }, why)
            }
        };
        self.note_cycle(began, plan, outcome);
    }

    /// Keeps the row of a cycle, and tells it.
    fn note_cycle(&mut self, began: Now, plan: String, outcome: Outcome) {
        self.prober.turn.give_back();
        let Outcome { status, reason, run_id, length_s } = outcome;
        let time = text_of(began.wall_ms);
        let since = match self.last.take() {
            Some((last, since)) if last == status => since,
            _ => time.clone(),
        };
        let missed = self.starts.take_missed();
        let text = cycle::cell;
        self.unkept.push(CycleRow {
            time: Some(Timestamp(time.clone())),
            plan: Some(plan),
            host: text(&self.host),
            status: Some(status),
            reason: text(&reason),
            since: Some(Timestamp(since.clone())),
            missed: Some(missed),
            run_id: text(&run_id),
            length_s: Some((length_s * 1e3).round() / 1e3),
        });
        match append_cycles(&self.settings.kept.history, &self.unkept) {
            Ok(()) => self.unkept.clear(),
            Err(error) => {
                let count = self.unkept.len();
                style::tell(format_args!(
                    "{count} cycles wait for a place to be written: {}",
                    Error::from(error).sentence()
                ));
                if count > MOST_UNKEPT {
                    self.unkept.remove(0);
                }
            }
        }
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let since_then = if since == time { String::new() } else { format!(" since {since}") };
        let skipped = if missed == 0 { String::new() } else { format!(" ({missed} starts skipped)") };
        style::tell(format_args!("{time} {status}{since_then}{because}{skipped}"));
        let table = (!run_id.is_empty()).then(|| rows(&self.settings.table()).ok()).flatten();
        let since_s = schemas::time::parse(&since).map_or(0.0, schemas::time::epoch_seconds);
        let cycle = Cycle { status, since_s, began_s: began.wall_ms as f64 / 1e3 };
        self.state.ended(cycle, missed, self.unkept.len(), table.as_deref());
        self.last = Some((status, since));
    }

    /// Ends a cycle that hangs.
    fn end_overdue(&mut self) {
        let limit = self.limit();
        let steady = self.clock.elapsed();
        let Some(running) = self.running.as_mut().filter(|it| it.ended.is_none()) else { return };
        if steady.saturating_sub(running.began.steady) > limit {
            running.ended = Some(format!("it was ended after {}: a cycle was not to take longer", span(limit)));
            signal(running.child.id(), Signal::SIGKILL);
        }
    }

    /// Longest cycle: room for a queue, retries and the look at the history.
    fn limit(&self) -> Duration {
        let of_plan = || self.plan.estimate().most.saturating_mul(3).saturating_add(Duration::from_mins(15));
        self.timing.limit.unwrap_or_else(of_plan)
    }

    /// A signal ends the watch, and the cycle early but whole; a second one ends it at once.
    fn end(&mut self, number: i32) {
        let again = std::mem::replace(&mut self.is_ending, true);
        let Some(running) = &mut self.running else { return };
        let name = if number == SIGINT { "SIGINT" } else { "SIGTERM" };
        if !again {
            style::tell(format_args!("{name}: the cycle ends early; a second signal ends it at once"));
        }
        running.ended = Some(format!("ended by {name}"));
        signal(running.child.id(), if again { Signal::SIGKILL } else { Signal::SIGTERM });
    }

    /// Reads the plan again. One that does not check changes nothing.
    fn reload(&mut self) {
        match read(self.settings) {
            Ok((text, plan)) => {
                let cases = counted(plan.cases.len(), "case");
                style::tell(format_args!("SIGHUP: the plan was read again: {cases} from the next cycle on"));
                self.prober.hosts.lock().clone_from(&plan.hosts);
                if plan.name != self.plan.name {
                    self.starts = starts_of(self.timing, &plan, &self.host, now(self.clock));
                    self.last = None;
                }
                (self.text, self.plan) = (text, plan);
                self.check_period();
            }
            Err(error) => {
                error.print();
                style::tell("SIGHUP: the plan stays as it was");
            }
        }
    }

    /// Says beforehand that starts will be skipped.
    fn check_period(&self) {
        let least = self.plan.estimate().least;
        if let When::Every(period) = self.timing.when
            && least > period
        {
            style::tell(format_args!(
                "note: the plan takes {} and is to start every {}: starts that fall into a cycle are skipped and counted",
                self.plan.estimate(),
                span(period)
            ));
        }
    }
}

fn starts_of(timing: &Timing, plan: &Plan, host: &str, now: Now) -> Starts {
    Starts::new(timing.when.clone(), timing.spread, [&plan.name, host], netcore::local_minute, now)
}

/// The text of the plan, and the plan.
fn read(settings: &Settings) -> Result<(String, Plan), Error> {
    let (_, text) = plan::read(&settings.plan)?;
    let plan = settings.load(&text)?;
    Ok((text, plan))
}

/// Keeps other watches away from the history.
fn lock(history: &Path) -> Result<OutputLock, Error> {
    std::fs::create_dir_all(history).map_err(Error::output(history.display()))?;
    let files = Files { locked: vec![history.join("watch")], ..Files::default() };
    OutputLock::of(&files).map_err(|error| match error {
        Error::Measurement(_) => {
            let holder = error.sentence();
            Error::Measurement(format!(
                "{holder}\n       one watch at a time keeps a history: name another folder with --history"
            ))
        }
        other => other,
    })
}

/// Hands signals over.
fn listen(sender: &Sender<Event>) -> Result<(), Error> {
    let fault = |error: std::io::Error| Error::Measurement(format!("cannot catch signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(fault)?;
    let sender = sender.clone();
    let thread = thread::Builder::new().name("signals".into());
    let forward =
        move || signals.forever().take_while(|number| sender.send(Event::Signal(*number)).is_ok()).for_each(drop);
    thread.spawn(forward).map(drop).map_err(fault)
}

fn now(clock: Instant) -> Now {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { wall_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), steady: clock.elapsed() }
}

/// A moment as the column `time` has it.
fn text_of(unix_ms: i64) -> String {
    from_unix_seconds(unix_ms as f64 / 1e3).map(|time| time.0).unwrap_or_default()
}
