//! Progress on standard error: lines that rewrite themselves on a terminal, plain lines elsewhere, or nothing. Readers in other
//! threads see the running iteration by [`Watched`].

use std::{
    cell::RefCell,
    collections::HashSet,
    fmt::Write as _,
    io::IsTerminal,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use analyze::table::layout::Sheet;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use netcore::lock::Lock;
use schemas::{
    text::short_names,
    units::{Unit, human},
};

use crate::{plan::answers::span, style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A line that rewrites itself, and one per member of a group.
    Line,
    /// A line per iteration, and now and then one per member of a long one.
    Plain,
    /// Nothing but warnings and errors.
    Silent,
}

impl Mode {
    /// The rewriting line where standard error is a terminal.
    pub fn auto() -> Self {
        if std::io::stderr().is_terminal() { Self::Line } else { Self::Plain }
    }
}

/// Progress of the run.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// From 1.
    pub case: usize,
    pub cases: usize,
    /// Name of the case.
    pub name: String,
    /// From 1.
    pub iteration: u32,
    /// Fewest iterations of the case.
    pub min: u32,
    /// Most iterations of the case.
    pub max: u32,
    /// Loads between which the answer of a search lies, as far as is known.
    pub range: Option<String>,
    /// Margin reached so far.
    pub margin: Option<f64>,
    /// Margin to reach.
    pub goal: Option<f64>,
    /// Estimated time left of the whole run, at the start of this iteration.
    pub left: Duration,
}

/// State of a running measurement: of a test, or of one member of a group.
#[derive(Clone, Debug)]
pub struct Live {
    /// Empty where the case is not a group.
    pub member: String,
    /// `warmup`, `measure` or `cooldown`.
    pub phase: &'static str,
    /// Time in that phase.
    pub elapsed: Duration,
    /// Length of that phase; `None`: it ends by a count.
    pub planned: Option<Duration>,
    pub rate: Option<(f64, Unit)>,
    /// Time until its last phase ends; `None`: unknown.
    pub left: Option<Duration>,
}

/// Time between two rewritings of the live lines.
const TICK: Duration = Duration::from_millis(500);

/// Shortest and longest time between two plain lines about a member: an hour has twenty.
const BEAT: [Duration; 2] = [Duration::from_mins(1), Duration::from_mins(10)];

/// Longest time between two updates of the members of a running iteration, for readers in other threads.
const WATCHED_BEAT: Duration = Duration::from_secs(1);

/// Most members with a line of their own.
const MOST_LINES: usize = 16;

pub struct Progress {
    mode: Mode,
    display: Option<Display>,
    position: Position,
    began: Instant,
    /// When members were last told about in plain lines.
    reported_at: Instant,
    watched: Option<Watched>,
    /// Whether plain information, notes and warnings of numbers are left to the end.
    brief: bool,
    /// Warnings and errors that were shown.
    said: RefCell<HashSet<String>>,
    /// When the measure phase of the running iteration begins, on this host's monotonic clock, nanoseconds; 0: not yet known.
    measures_from_ns: Arc<AtomicU64>,
}

/// The lines on a terminal: one for the run, one per member of a group.
struct Display {
    lines: MultiProgress,
    run: ProgressBar,
    members: Vec<ProgressBar>,
}

impl Display {
    fn new() -> Self {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let run = lines.add(line());
        Self { lines, run, members: Vec::new() }
    }

    fn set_members(&mut self, count: usize) {
        while self.members.len() > count {
            if let Some(bar) = self.members.pop() {
                self.lines.remove(&bar);
            }
        }
        while self.members.len() < count {
            self.members.push(self.lines.add(line()));
        }
    }
}

/// A line that is cut at the width of the terminal.
fn line() -> ProgressBar {
    let bar = ProgressBar::no_length();
    // Cannot fail: the template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    bar
}

impl Progress {
    pub fn new(mode: Mode) -> Self {
        let display = (mode == Mode::Line).then(Display::new);
        let now = Instant::now();
        Self {
            mode,
            display,
            position: Position::default(),
            began: now,
            reported_at: now,
            watched: None,
            brief: false,
            said: RefCell::default(),
            measures_from_ns: Arc::default(),
        }
    }

    /// Without plain information and notes, for a command that has its own first lines.
    pub fn brief() -> Self {
        let mode = if std::io::stderr().is_terminal() { Mode::Line } else { Mode::Silent };
        Self { brief: true, ..Self::new(mode) }
    }

    /// Lets readers in other threads see the running iteration.
    pub fn watch(&mut self) -> Watched {
        self.watched.get_or_insert_default().clone()
    }

    /// Time between two calls of [`Progress::live`] that have something to show.
    pub fn tick(&self) -> Duration {
        let shown = match self.mode {
            Mode::Line => TICK,
            Mode::Plain => BEAT[0] / 4,
            Mode::Silent => Duration::MAX,
        };
        if self.watched.is_some() { shown.min(WATCHED_BEAT) } else { shown }
    }

    /// The intervals that the display needs of a test of that length; zero: none. A long test needs them less often, and its
    /// ends keep them all.
    pub fn interval(&self, length: Option<Duration>) -> Duration {
        let length = length.unwrap_or(BEAT[0]);
        match self.mode {
            Mode::Line => TICK.max(length / 1000),
            _ if self.watched.is_some() => WATCHED_BEAT.max(length / 1000),
            Mode::Plain if length > 2 * BEAT[0] => self.tick().max(length / 1000),
            _ => Duration::ZERO,
        }
    }

    /// When the measure phase of the running iteration begins: for readers in other threads, who set it to 0 before.
    pub fn measures_from_ns(&self) -> Arc<AtomicU64> {
        self.measures_from_ns.clone()
    }

    /// Shows that an iteration begins.
    pub fn iteration(&mut self, position: Position) {
        self.began = Instant::now();
        self.reported_at = self.began;
        if let Some(watched) = &self.watched {
            let mut now = watched.0.lock();
            (now.iteration, now.members, now.waiting) = (Some((position.clone(), self.began)), None, None);
        }
        if self.mode == Mode::Plain {
            style::tell(self::position(&position));
        }
        self.position = position;
        if let Some(display) = &mut self.display {
            display.set_members(0);
            display.run.set_message(self::position(&self.position));
        }
    }

    /// Shows that the iteration waits for its turn at a host. The next client in the queue has place 1.
    pub fn waiting(&self, host: &str, place: u32) {
        if let Some(watched) = &self.watched {
            watched.0.lock().waiting = Some((host.to_owned(), place));
        }
        let text = format!("{host}: waiting, {} in the queue", ordinal(place));
        match (&self.display, self.mode) {
            (Some(display), _) => display.run.set_message(format!("{}  {text}", position(&self.position))),
            (None, Mode::Silent) if !self.brief => {}
            (None, _) => style::tell(text),
        }
    }

    /// Shows how many of the far ends have started.
    pub fn starting(&self, ready: usize, of: usize) {
        let ends = if of == 1 { "far end" } else { "far ends" };
        let text = format!("{ready} of {of} {ends} started");
        match (&self.display, self.mode) {
            (Some(display), _) => display.run.set_message(text),
            // One line, however many hosts there are.
            (None, Mode::Plain) if ready == 0 => style::tell(format_args!("starting {of} {ends}")),
            (None, _) => {}
        }
    }

    /// Updates the display of the running iteration, whose members these are.
    pub fn live(&mut self, members: &[Live]) {
        if let Some(watched) = &self.watched {
            let mut now = watched.0.lock();
            (now.members, now.waiting) = (Some((members.to_vec(), Instant::now())), None);
        }
        let run = position(&self.position);
        let left = self.position.left.saturating_sub(self.began.elapsed());
        let eta = if left.is_zero() { String::new() } else { format!("  eta {}", span(left)) };
        let margin = match (self.position.margin, self.position.goal) {
            (Some(margin), Some(goal)) => format!("  ±{:.1} % of ±{:.1} %", margin * 100.0, goal * 100.0),
            _ => String::new(),
        };
        if let Some(display) = &mut self.display {
            if let [one] = members
                && one.member.is_empty()
            {
                display.run.set_message(format!("{run}  {}{margin}{eta}", state(one)));
                return;
            }
            // More would not fit on the terminal.
            let members = if members.len() > MOST_LINES { &[] } else { members };
            display.set_members(members.len());
            display.run.set_message(format!("{run}{margin}{eta}"));
            let width = members.iter().map(|live| live.member.chars().count()).max().unwrap_or(0);
            for (bar, live) in display.members.iter().zip(members) {
                bar.set_message(format!("  {:width$}  {}{}", live.member, state(live), time_left(live)));
            }
        } else if self.mode == Mode::Plain {
            let length = members.iter().filter_map(|live| Some(live.left? + self.began.elapsed())).max();
            if self.reported_at.elapsed() >= (length.unwrap_or_default() / 20).clamp(BEAT[0], BEAT[1]) {
                self.reported_at = Instant::now();
                for live in members.iter().take(MOST_LINES) {
                    let blank = if live.member.is_empty() { "" } else { " " };
                    let name = format!("{}{blank}{}", short_names(&self.position.name), live.member);
                    style::tell(format!("{name}  {}{}", state(live), time_left(live)));
                }
            }
        }
    }

    /// A `note:`; nothing when silent.
    pub fn note(&self, text: &str) {
        if self.mode != Mode::Silent && !self.brief {
            self.print(&style::remark(&Sheet::stderr(), style::NOTE, "note", text));
        }
    }

    /// Whether plain information, notes and warnings of numbers are left to the end.
    pub fn is_brief(&self) -> bool {
        self.brief
    }

    /// Plain information; nothing when silent.
    pub fn say(&self, text: &str) {
        if self.mode != Mode::Silent && !self.brief {
            self.print(text);
        }
    }

    /// A `warning:`, in every mode.
    pub fn warn(&self, text: &str) {
        if let Some(watched) = &self.watched {
            watched.0.lock().warnings += 1;
        }
        self.print(&style::remark(&Sheet::stderr(), style::WARNING, "warning", text));
        self.said.borrow_mut().insert(text.to_owned());
    }

    /// An `error:` after which the run goes on, in every mode, and below it what happens `next`.
    pub fn fault(&self, text: &str, next: &str) {
        if let Some(watched) = &self.watched {
            watched.0.lock().errors += 1;
        }
        self.print(&style::remark(&Sheet::stderr(), style::ERROR, "error", &format!("{text}\n       {next}")));
        self.said.borrow_mut().insert(text.to_owned());
    }

    /// Whether a sentence stands on standard error already, as a warning or an error; also one about more cases, each of which
    /// stands there.
    pub fn has_said(&self, text: &str) -> bool {
        let first = text.strip_suffix(" in the same words)").and_then(|text| text.rsplit_once(" (and "));
        self.said.borrow().contains(first.map_or(text, |(first, _)| first))
    }

    /// Text that is shown in every mode: rendered diagnostics, interim results.
    pub fn print(&self, text: &str) {
        match &self.display {
            Some(display) => display.lines.suspend(|| style::tell(text)),
            None => style::tell(text),
        }
    }

    /// Removes the rewriting lines.
    pub fn clear(&self) {
        if let Some(display) = &self.display {
            display.members.iter().chain([&display.run]).for_each(ProgressBar::finish_and_clear);
            // A terminal that is gone needs no clearing.
            let _ = display.lines.clear();
        }
    }
}

/// `measure 3.1/5.0 s  42.1 Gbit/s`, `measure 3 min of 12 h`
fn state(live: &Live) -> String {
    let mut text = live.phase.to_owned();
    // Writing to a String cannot fail.
    match live.planned {
        Some(planned) if planned < Duration::from_mins(2) => {
            let _ = write!(text, " {:.1}/{:.1} s", live.elapsed.as_secs_f64(), planned.as_secs_f64());
        }
        Some(planned) => {
            let _ = write!(text, " {} of {}", span(live.elapsed), span(planned));
        }
        None => {
            let _ = write!(text, " {}", span(live.elapsed));
        }
    }
    if let Some((value, unit)) = live.rate {
        let _ = write!(text, "  {}", human(unit, value));
    }
    text
}

/// `1st`, `12th`, `23rd`
fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn time_left(live: &Live) -> String {
    live.left.map_or_else(String::new, |left| format!("  {} left", span(left)))
}

/// `[2/3] upload  iteration 2 of 3–10`, `[1/2] no-loss  probe 4  500 Mbit/s … 900 Mbit/s`
fn position(p: &Position) -> String {
    let name = short_names(&p.name);
    if let Some(range) = &p.range {
        return format!("[{}/{}] {name}  probe {}  {range}", p.case, p.cases, p.iteration);
    }
    let of = if p.min == p.max { p.max.to_string() } else { format!("{}–{}", p.min, p.max) };
    format!("[{}/{}] {name}  iteration {} of {of}", p.case, p.cases, p.iteration)
}

/// Kept by [`Progress`] while somebody watches. The lock is held for a copy; no thread that moves data takes it.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Lock<Now>>);

#[derive(Clone, Debug, Default)]
pub struct Now {
    /// The running iteration, and its begin.
    pub iteration: Option<(Position, Instant)>,
    /// States of its members, and the instant at which they were so. Empty before its load begins.
    pub members: Option<(Vec<Live>, Instant)>,
    /// The host whose turn is waited for, and the place in its queue.
    pub waiting: Option<(String, u32)>,
    pub warnings: u64,
    pub errors: u64,
}

impl Watched {
    pub fn read(&self) -> Now {
        self.0.lock().clone()
    }
}

impl Now {
    /// Estimated time left of the run.
    pub fn left(&self) -> Option<Duration> {
        self.iteration.as_ref().map(|(position, began)| position.left.saturating_sub(began.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_like_sentences() {
        let mut p =
            Position { case: 2, cases: 3, name: "upload".into(), iteration: 2, min: 3, max: 10, ..Position::default() };
        assert_eq!(position(&p), "[2/3] upload  iteration 2 of 3–10");
        p.max = 3;
        assert_eq!(position(&p), "[2/3] upload  iteration 2 of 3");
        p.range = Some("500 Mbit/s … ?".into());
        assert_eq!(position(&p), "[2/3] upload  probe 2  500 Mbit/s … ?");
    }

    #[test]
    fn places_in_a_queue_are_ordinals() {
        let said = [1, 2, 3, 4, 11, 12, 13, 21, 101, 111].map(ordinal);
        assert_eq!(said, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th"]);
    }

    #[test]
    fn a_member_has_its_phase_rate_and_time_left() {
        let mut live = Live {
            member: "load".into(),
            phase: "measure",
            elapsed: Duration::from_millis(3140),
            planned: Some(Duration::from_secs(20)),
            rate: Some((42.1e9, Unit::BitsPerSecond)),
            left: Some(Duration::from_millis(16_860)),
        };
        assert_eq!(format!("{}{}", state(&live), time_left(&live)), "measure 3.1/20.0 s  42.1 Gbit/s  17 s left");
        live.planned = Some(Duration::from_hours(12));
        live.elapsed = Duration::from_mins(36);
        live.left = Some(Duration::from_mins(684));
        assert_eq!(
            format!("{}{}", state(&live), time_left(&live)),
            "measure 36 min of 12 h  42.1 Gbit/s  11 h 24 min left"
        );
    }

    #[test]
    fn long_tests_need_few_intervals() {
        let hours = Some(Duration::from_hours(12));
        assert_eq!(Progress::new(Mode::Silent).interval(hours), Duration::ZERO);
        let plain = Progress::new(Mode::Plain);
        assert_eq!(plain.interval(Some(Duration::from_secs(10))), Duration::ZERO, "it is over before the first line");
        assert!(plain.interval(hours) > Duration::from_secs(40));
        let mut watched = Progress::new(Mode::Silent);
        watched.watch();
        let second = Duration::from_secs(1);
        assert_eq!([watched.tick(), watched.interval(Some(10 * second))], [second; 2]);
        assert!(watched.interval(hours) > Duration::from_secs(40));
    }

    #[test]
    fn a_watcher_sees_the_running_iteration_only() {
        let mut progress = Progress::new(Mode::Silent);
        let watched = progress.watch();
        assert!(watched.read().iteration.is_none());
        let position = Position { name: "a".into(), left: Duration::from_mins(1), ..Position::default() };
        progress.iteration(position.clone());
        progress.waiting("b", 2);
        progress.warn("w");
        let now = watched.read();
        assert_eq!((now.waiting, now.warnings, now.errors), (Some(("b".to_owned(), 2)), 1, 0));
        assert!(watched.read().left().is_some_and(|left| left > Duration::from_secs(1)));
        progress.live(&[]);
        assert!(watched.read().members.is_some() && watched.read().waiting.is_none());
        progress.iteration(position);
        assert!(watched.read().members.is_none(), "those of the iteration before");
    }
}
