//! Runs one program: bounded in time and in output, in a process group of its own, and ended with the run.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        resource::{Usage, UsageWho, getrusage},
        signal::{Signal, killpg},
        time::TimeValLike,
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use schemas::text::shell_word;

use super::{
    netns,
    stop::{StopFlag, Urgency, wait},
};
use crate::control::netns::NetnsError;

/// The time that a program has to end after it was asked to.
pub const GRACE: Duration = Duration::from_secs(2);

/// Interval of the checks for its end while its outputs are silent.
const LOOK: Duration = Duration::from_millis(10);

/// A program to start, and its bounds.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The program and its arguments.
    pub argv: &'a [String],
    /// Variables added to those of this process.
    pub environment: &'a [(&'a str, String)],
    /// Its network namespace; `None`: this process's own.
    pub netns: Option<&'a str>,
    /// The longest time that it may run.
    pub limit: Duration,
    /// Bytes kept of each of its outputs.
    pub keep: usize,
    /// Whether more than `keep` bytes on standard output are an error; else they are dropped.
    pub whole: bool,
    /// Whether processes that it leaves behind are ended with it. A hook may leave one in the background.
    pub ends_all: bool,
    /// It is ended when the stop flag rises above this.
    pub heeds: Urgency,
}

/// The result of a program that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
    /// CPU time in user mode, including the processes that it waited for. Valid only where this process runs one program
    /// at a time.
    pub user: Duration,
    /// The same in the kernel.
    pub system: Duration,
}

/// Runs it to its end.
pub fn run(program: &Program<'_>, stop: &StopFlag) -> Result<Ran, Failure> {
    let before = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let began = Instant::now();
    let mut child = netns::within(program.netns, || start(program))??;
    let mut watched = Watched {
        program,
        out: Output::new(child.stdout.take(), program.keep),
        err: Output::new(child.stderr.take(), program.keep),
        group: Pid::from_raw(child.id().cast_signed()),
    };
    let verdict = watched.until_its_end(began, stop);
    let elapsed = began.elapsed();
    // It is dead but not reaped, so its process number, which is also its group's, is not reused yet.
    if program.ends_all || verdict.is_err() {
        watched.signal(Signal::SIGKILL);
    }
    let status = child.wait();
    verdict?;
    let status = status.map_err(|source| watched.system(source))?;
    if !status.success() {
        return Err(Failure::Failed { command: watched.command(), status, said: watched.said() });
    }
    let after = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let (user, system) = before.zip(after).map_or_else(Default::default, |(before, after)| {
        (spent(before, after, Usage::user_time), spent(before, after, Usage::system_time))
    });
    Ok(Ran { stdout: watched.out.bytes, stderr: watched.err.bytes, elapsed, user, system })
}

fn start(program: &Program<'_>) -> Result<Child, Failure> {
    let (name, arguments) = match program.argv {
        [name, arguments @ ..] => (name.as_str(), arguments),
        [] => ("", &[][..]),
    };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .envs(program.environment.iter().map(|(key, value)| (*key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Failure::NotFound { program: name.to_owned() },
        _ => Failure::NotStarted { program: name.to_owned(), source },
    })
}

/// CPU time spent in between by children that have been waited for.
fn spent(before: Usage, after: Usage, time: fn(&Usage) -> nix::sys::time::TimeVal) -> Duration {
    let us = time(&after).num_microseconds() - time(&before).num_microseconds();
    Duration::from_micros(us.try_into().unwrap_or(0))
}

struct Watched<'a> {
    program: &'a Program<'a>,
    out: Output,
    err: Output,
    group: Pid,
}

/// The reason for which a program was asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    TimedOut,
    Interrupted,
}

impl Watched<'_> {
    /// Returns when the program has ended and can be reaped, or should be killed. A program that was asked to end has time
    /// to do so.
    fn until_its_end(&mut self, began: Instant, stop: &StopFlag) -> Result<(), Failure> {
        let mut deadline = began + self.program.limit;
        let mut asked: Option<Asked> = None;
        loop {
            let over = self.has_ended().map_err(|source| self.system(source))?;
            // All that it wrote before its end is in the pipes by now.
            let more = [self.out.drain(), self.err.drain()];
            if self.program.whole && self.out.is_full {
                return Err(Failure::TooMuch { command: self.command(), bytes: self.program.keep });
            }
            if over {
                // A program that was interrupted and ended well has printed its results, as plumb itself does.
                return if asked == Some(Asked::TimedOut) { Err(self.ended(Asked::TimedOut)) } else { Ok(()) };
            }
            let urgency = stop.urgency();
            if urgency == Urgency::Now && self.program.heeds < Urgency::Now {
                return Err(self.ended(Asked::Interrupted));
            }
            if asked.is_none() && urgency > self.program.heeds {
                // As a terminal would ask it.
                self.signal(Signal::SIGINT);
                (asked, deadline) = (Some(Asked::Interrupted), Instant::now() + GRACE);
            }
            if Instant::now() >= deadline {
                if let Some(asked) = asked {
                    return Err(self.ended(asked));
                }
                self.signal(Signal::SIGTERM);
                (asked, deadline) = (Some(Asked::TimedOut), Instant::now() + GRACE);
            }
            if more == [false; 2] {
                let seen = if asked.is_some() { Urgency::Orderly } else { self.program.heeds };
                let until = deadline.min(Instant::now() + LOOK);
                wait([self.out.fd(), self.err.fd(), stop.beyond(seen.max(urgency))], Some(until))
                    .map_err(|source| self.system(source))?;
            }
        }
    }

    fn ended(&self, asked: Asked) -> Failure {
        let command = self.command();
        match asked {
            Asked::TimedOut => Failure::TimedOut { command, limit: self.program.limit, said: self.said() },
            Asked::Interrupted => Failure::Interrupted { command },
        }
    }

    fn command(&self) -> String {
        shown(self.program.argv)
    }

    fn said(&self) -> Said {
        Said::of(&self.out.bytes, &self.err.bytes)
    }

    fn system(&self, source: io::Error) -> Failure {
        Failure::System { command: self.command(), source }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.group), flags)? != WaitStatus::StillAlive)
    }

    fn signal(&self, signal: Signal) {
        // It fails only where the whole group has ended.
        let _ = killpg(self.group, signal);
    }
}

/// One of the program's two outputs.
struct Output {
    pipe: Option<File>,
    bytes: Vec<u8>,
    keep: usize,
    /// Whether bytes were dropped.
    is_full: bool,
}

impl Output {
    fn new(pipe: Option<impl Into<OwnedFd>>, keep: usize) -> Self {
        let nonblocking = |pipe: &OwnedFd| fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok();
        let pipe = pipe.map(Into::into).filter(nonblocking).map(File::from);
        Self { pipe, bytes: Vec::new(), keep, is_full: false }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads a bounded piece of the arrived bytes; returns whether there may be more.
    fn drain(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut block = [0; 8192];
        for _ in 0..128 {
            match pipe.read(&mut block) {
                Ok(n @ 1..) => {
                    let room = self.keep - self.bytes.len();
                    self.is_full |= n > room;
                    self.bytes.extend_from_slice(&block[..n.min(room)]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => {
                    self.pipe = None;
                    return false;
                }
            }
        }
        true
    }
}

/// Lines of a failed program's output that its error message quotes, and characters of each.
const LINES: usize = 3;
const WIDTH: usize = 200;

/// The failure of a program. `command` is its argv as a person would type it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("`{program}` was not found; it is looked for in PATH, from the folder in which plumb was started")]
    NotFound { program: String },
    #[error("`{program}` could not be started: {source}")]
    NotStarted { program: String, source: io::Error },
    #[error("{0}")]
    Netns(#[from] NetnsError),
    #[error("`{command}` was still running after {limit:?} and was ended, with all that it had started{said}")]
    TimedOut { command: String, limit: Duration, said: Said },
    #[error("`{command}` was ended with the run")]
    Interrupted { command: String },
    #[error("`{command}` printed more than {} MiB and was ended: have it print results only", bytes >> 20)]
    TooMuch { command: String, bytes: usize },
    #[error("`{command}` {}{said}", how(*status))]
    Failed { command: String, status: ExitStatus, said: Said },
    #[error("`{command}` could not be waited for: {source}")]
    System { command: String, source: io::Error },
}

impl Failure {
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => format!("was ended by {signal}"),
            Err(_) => format!("was ended by signal {signal}"),
        },
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The first lines of a program's standard error, or else of its standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(Vec<String>);

impl Said {
    pub fn of(stdout: &[u8], stderr: &[u8]) -> Self {
        let lines = |bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.lines().map(str::trim_end).filter(|l| !l.trim().is_empty());
            // Control characters would reach the terminal.
            let tame = |line: &str| line.chars().filter(|c| !c.is_control()).take(WIDTH).collect();
            lines.take(LINES).map(tame).collect()
        };
        let complaints = lines(stderr);
        Self(if complaints.is_empty() { lines(stdout) } else { complaints })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(", and said nothing");
        }
        self.0.iter().enumerate().try_for_each(|(i, line)| {
            let lead = if i == 0 { ": " } else { " | " };
            write!(f, "{lead}{line}")
        })
    }
}

/// An argv as a person would type it.
pub fn shown(argv: &[String]) -> String {
    argv.iter().map(|word| shell_word(word, "")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(argv: &[&str], limit_ms: u64, stop: &StopFlag) -> Result<Ran, Failure> {
        let argv: Vec<String> = argv.iter().map(|w| (*w).to_owned()).collect();
        let program = Program {
            argv: &argv,
            environment: &[("PLUMB_CASE", "a b".into())],
            netns: None,
            limit: Duration::from_millis(limit_ms),
            keep: 1 << 20,
            whole: true,
            ends_all: true,
            heeds: Urgency::None,
        };
        run(&program, stop)
    }

    fn never() -> StopFlag {
        StopFlag::new().unwrap()
    }

    fn sentence(argv: &[&str], limit_ms: u64) -> String {
        ran(argv, limit_ms, &never()).unwrap_err().to_string()
    }

    #[test]
    fn its_output_and_its_variables() {
        let ran = ran(&["sh", "-c", "echo $PLUMB_CASE; echo so >&2"], 60_000, &never()).unwrap();
        assert_eq!((ran.stdout, ran.stderr), (b"a b\n".to_vec(), b"so\n".to_vec()));
    }

    #[test]
    fn its_cpu_time_is_its_own_and_its_childrens() {
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let ran = ran(&["sh", "-c", &format!("sh -c '{busy}'; true")], 60_000, &never()).unwrap();
        assert!(ran.user + ran.system > Duration::from_millis(1), "{ran:?}");
        assert!(ran.user <= ran.elapsed * 2, "{ran:?}");
    }

    #[test]
    fn failures_quote_the_output() {
        assert_eq!(
            sentence(&["sh", "-c", "echo one; echo no route >&2; printf '\\033dead\\n' >&2; exit 3"], 60_000)
                .split_once("` ")
                .unwrap()
                .1,
            "exited with 3: no route | dead"
        );
        assert!(sentence(&["sh", "-c", "echo only here; exit 1"], 60_000).ends_with("exited with 1: only here"));
        assert!(sentence(&["false"], 60_000).ends_with("`false` exited with 1, and said nothing"));
        assert!(sentence(&["sh", "-c", "kill -9 $$"], 60_000).contains("was ended by SIGKILL"));
        assert!(sentence(&["no-such-program"], 60_000).contains("was not found"));
        assert!(sentence(&["/"], 60_000).contains("could not be started"));
    }

    #[test]
    fn one_that_hangs_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("trap '' TERM; sleep 600 & echo $! > {}; echo waiting; wait; sleep 600", file.display());
        let said = sentence(&["sh", "-c", &script], 1000);
        assert!(said.contains("still running after 1s") && said.ends_with(": waiting"), "{said}");
        let pid = std::fs::read_to_string(file).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let gone = || stat().is_empty() || stat().contains(") Z ");
        // It has been killed, but dies only when it is its turn to run.
        let deadline = Instant::now() + Duration::from_mins(1);
        while !gone() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        assert!(gone(), "{}", stat());
    }

    #[test]
    fn a_gigabyte_is_not_kept() {
        assert!(sentence(&["yes"], 60_000).contains("printed more than 1 MiB"), "it ends by its output");
    }

    #[test]
    fn the_end_of_the_run_ends_it() {
        let stop = never();
        stop.request();
        let failure = ran(&["sleep", "600"], 600_000, &stop).unwrap_err();
        if matches!(failure, Failure::Interrupted { .. }) {
            return crate::needs::skip(
                "SIGINT is ignored here, as in the background of a script; programs end by force",
            );
        }
        assert!(matches!(failure, Failure::Failed { .. }), "{failure}");
        // One that prints what it has when it is asked to end has ended well.
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ready");
        let polite =
            format!("trap 'echo so far; exit 0' INT; echo ready; : > {}; while :; do sleep 0.01; done", mark.display());
        let stop = never();
        let flag = stop.clone();
        let asks = std::thread::spawn(move || {
            while !mark.exists() {
                std::thread::sleep(LOOK);
            }
            flag.request();
        });
        let ran = ran(&["sh", "-c", &polite], 600_000, &stop).unwrap();
        asks.join().unwrap();
        assert_eq!(ran.stdout, b"ready\nso far\n");
    }

    #[test]
    fn an_argv_is_shown_so_that_it_can_be_typed() {
        let argv = ["printf", "%s\\n", "it's", ""].map(str::to_owned);
        assert_eq!(shown(&argv), "printf '%s\\n' 'it'\\''s' ''");
    }
}
