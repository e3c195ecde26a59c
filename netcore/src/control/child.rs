//! One program, from its start to its end: bounded in time and in output, alone in a process group, and gone when it
//! must be.

mod failure;

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
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

use super::{
    event::wait,
    netns,
    stop::{StopFlag, Urgency},
};

pub use failure::{Failure, Said, shown};

/// How long a program may take to end once it was asked to.
pub const GRACE: Duration = Duration::from_secs(2);

/// How often its end is looked for while its outputs are silent.
const LOOK: Duration = Duration::from_millis(10);

/// What to start, and within which bounds.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The program and its arguments.
    pub argv: &'a [String],
    /// Variables beside those of this process.
    pub environment: &'a [(&'a str, String)],
    /// The network namespace that it runs in; `None`: this process's own.
    pub netns: Option<&'a str>,
    /// The longest that it may run.
    pub limit: Duration,
    /// Bytes that are kept of each of its outputs.
    pub keep: usize,
    /// Whether standard output past `keep` is a fault; else it is dropped.
    pub whole: bool,
    /// Whether processes that it leaves behind are ended with it. Something started in the background by a hook lives on.
    pub ends_all: bool,
    /// It is ended where the stop flag rises above this.
    pub heeds: Urgency,
}

/// What a program that succeeded did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained of.
    pub stderr: Vec<u8>,
    /// From its start to its end.
    pub elapsed: Duration,
    /// CPU time in user mode, its own and that of the processes that it waited for: where this process runs one program at
    /// a time, as whoever measures by a program does.
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
    // It is dead, but not reaped: so its number, which is its group's too, belongs to nobody else yet.
    if program.ends_all || verdict.is_err() {
        watched.signal(Signal::SIGKILL);
    }
    let status = child.wait();
    let command = || shown(program.argv);
    verdict.map_err(|e| e.into_failure(program, &watched))?;
    let status = status.map_err(|source| Failure::System { command: command(), source })?;
    if !status.success() {
        let said = Said::of(&watched.out.bytes, &watched.err.bytes);
        return Err(Failure::Failed { command: command(), status, said });
    }
    let (user, system) = match (before, getrusage(UsageWho::RUSAGE_CHILDREN).ok()) {
        (Some(before), Some(after)) => {
            (spent(before, after, Usage::user_time), spent(before, after, Usage::system_time))
        }
        _ => (Duration::ZERO, Duration::ZERO),
    };
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
        .envs(program.environment.iter().map(|(key, value)| (OsStr::new(*key), OsStr::new(value))))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Failure::NotFound { program: name.to_owned() },
        _ => Failure::NotStarted { program: name.to_owned(), source },
    })
}

/// What was spent in between by children that have been waited for.
fn spent(before: Usage, after: Usage, time: fn(&Usage) -> nix::sys::time::TimeVal) -> Duration {
    let us = time(&after).num_microseconds() - time(&before).num_microseconds();
    Duration::from_micros(us.try_into().unwrap_or(0))
}

/// Why a program was not left to its end.
enum Cut {
    TimedOut,
    Interrupted,
    TooMuch,
    System(io::Error),
}

impl Cut {
    fn into_failure(self, program: &Program<'_>, watched: &Watched<'_>) -> Failure {
        let command = shown(program.argv);
        match self {
            Self::TimedOut => {
                let said = Said::of(&watched.out.bytes, &watched.err.bytes);
                Failure::TimedOut { command, limit: program.limit, said }
            }
            Self::Interrupted => Failure::Interrupted { command },
            Self::TooMuch => Failure::TooMuch { command, bytes: program.keep },
            Self::System(source) => Failure::System { command, source },
        }
    }
}

struct Watched<'a> {
    program: &'a Program<'a>,
    out: Output,
    err: Output,
    group: Pid,
}

impl Watched<'_> {
    /// Returns when the program has ended and can be reaped, or should be killed. Asked to end, it has time to do so.
    fn until_its_end(&mut self, began: Instant, stop: &StopFlag) -> Result<(), Cut> {
        let mut deadline = began + self.program.limit;
        let mut cut: Option<Cut> = None;
        loop {
            let over = self.has_ended().map_err(Cut::System)?;
            // What it wrote before its end is in the pipes by now.
            let more = [self.out.drain(), self.err.drain()];
            if self.program.whole && self.out.is_full {
                return Err(Cut::TooMuch);
            }
            if over {
                // Having been asked by a signal and having ended well, it has printed what it had, as plumb itself does.
                return match cut {
                    Some(Cut::TimedOut) => Err(Cut::TimedOut),
                    _ => Ok(()),
                };
            }
            let urgency = stop.urgency();
            if urgency == Urgency::Now && self.program.heeds < Urgency::Now {
                return Err(Cut::Interrupted);
            }
            if cut.is_none() && urgency > self.program.heeds {
                // As a terminal would ask it.
                self.signal(Signal::SIGINT);
                (cut, deadline) = (Some(Cut::Interrupted), Instant::now() + GRACE);
            }
            if Instant::now() >= deadline {
                if let Some(cut) = cut {
                    return Err(cut);
                }
                self.signal(Signal::SIGTERM);
                (cut, deadline) = (Some(Cut::TimedOut), Instant::now() + GRACE);
            }
            if more == [false; 2] {
                let seen = if cut.is_some() { Urgency::Orderly } else { self.program.heeds };
                let until = deadline.min(Instant::now() + LOOK);
                wait([self.out.fd(), self.err.fd(), stop.beyond(seen.max(urgency))], Some(until))
                    .map_err(Cut::System)?;
            }
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.group), flags)? != WaitStatus::StillAlive)
    }

    fn signal(&self, signal: Signal) {
        // It fails only where nobody is left to hear it.
        let _ = killpg(self.group, signal);
    }
}

/// One of the program's two outputs.
struct Output {
    pipe: Option<Box<dyn Pipe>>,
    bytes: Vec<u8>,
    keep: usize,
    /// Whether there was more than is kept.
    is_full: bool,
}

trait Pipe: Read + AsFd {}
impl<T: Read + AsFd> Pipe for T {}

impl Output {
    fn new(pipe: Option<impl Pipe + 'static>, keep: usize) -> Self {
        let ready = |pipe: &dyn Pipe| fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok();
        let pipe = pipe.filter(|pipe| ready(pipe)).map(|pipe| Box::new(pipe) as Box<dyn Pipe>);
        Self { pipe, bytes: Vec::new(), keep, is_full: false }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Takes what has arrived, a bounded piece of it; says whether there may be more.
    fn drain(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut block = [0; 8192];
        for _ in 0..128 {
            match pipe.read(&mut block) {
                Ok(0) => {
                    self.pipe = None;
                    return false;
                }
                Ok(n) => {
                    let room = self.keep - self.bytes.len();
                    self.is_full |= n > room;
                    self.bytes.extend_from_slice(&block[..n.min(room)]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    self.pipe = None;
                    return false;
                }
            }
        }
        true
    }
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
    fn what_it_prints_and_what_it_is_told() {
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
    fn failures_are_told_with_what_was_said() {
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
        assert!(matches!(ran(&["sleep", "600"], 600_000, &stop), Err(Failure::Failed { .. })));
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
}
