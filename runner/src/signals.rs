//! SIGINT, SIGTERM, SIGHUP and SIGALRM end a measurement early but complete; a second SIGINT or SIGTERM ends it at once.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

use netcore::control::stop::{StopFlag, Urgency};
use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::error::{Error, Exit};

/// Signals received so far, with the stop flag of measurements and the daemon.
#[derive(Clone, Debug)]
pub struct Interrupts {
    flag: StopFlag,
    first: Arc<AtomicI32>,
    keeps_cuts: bool,
}

impl Interrupts {
    /// No signal is caught: only [`Interrupts::flag`] can ask for the end.
    pub fn uncaught() -> io::Result<Self> {
        Ok(Self { flag: StopFlag::new()?, first: Arc::new(AtomicI32::new(0)), keeps_cuts: false })
    }

    /// Catches the signals in a thread of their own, which calls `first_caught` with the name of the first. A SIGHUP that is
    /// ignored already (`nohup`) stays ignored.
    pub fn install(first_caught: impl Fn(&str) + Send + 'static) -> Result<Self, Error> {
        Self::caught(first_caught).map_err(|e| Error::Measurement(format!("cannot catch signals: {e}")))
    }

    fn caught(first_caught: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let caught = Self::uncaught()?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGALRM])?;
        if !is_ignored(SIGHUP, &fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            signals.add_signal(SIGHUP)?;
        }
        let (flag, first) = (caught.flag.clone(), Arc::clone(&caught.first));
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                let again = first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_err();
                if !again {
                    first_caught(name(signal).unwrap_or("a signal"));
                }
                // A second alarm is a timer's, and a closed terminal sends SIGHUP from both the kernel and the shell: only a
                // repeated SIGINT or SIGTERM means "at once".
                if !again || ![SIGALRM, SIGHUP].contains(&signal) {
                    flag.request();
                }
            }
        })?;
        Ok(caught)
    }

    pub fn flag(&self) -> &StopFlag {
        &self.flag
    }

    /// The exit code of the first signal. SIGALRM changes none: a timer ends a long run with it and wants the results
    /// (netperf stops that way).
    pub fn exit(&self) -> Option<Exit> {
        match self.first.load(Ordering::SeqCst) {
            SIGHUP => Some(Exit::Signal(1)),
            SIGINT => Some(Exit::Signal(2)),
            SIGTERM => Some(Exit::Signal(15)),
            _ => None,
        }
    }

    /// Name of the first signal.
    pub fn name(&self) -> Option<&'static str> {
        name(self.first.load(Ordering::SeqCst))
    }

    /// Whether the run is to end, early but whole or at once.
    pub fn requested(&self) -> bool {
        self.flag.urgency() != Urgency::None
    }

    /// Whether a timer ended the run (SIGALRM): its results were wanted until then.
    pub fn by_timer(&self) -> bool {
        self.first.load(Ordering::SeqCst) == SIGALRM
    }

    /// Any signal leaves the result of an only iteration that it cut off, as a timer does.
    #[must_use]
    pub fn keeping_cuts(self) -> Self {
        Self { keeps_cuts: true, ..self }
    }

    /// Whether an only iteration counts that a signal cut off.
    pub fn wants_cut(&self) -> bool {
        self.keeps_cuts || self.by_timer()
    }
}

fn name(signal: i32) -> Option<&'static str> {
    match signal {
        SIGHUP => Some("SIGHUP"),
        SIGINT => Some("SIGINT"),
        SIGTERM => Some("SIGTERM"),
        SIGALRM => Some("SIGALRM"),
        _ => None,
    }
}

/// Whether `/proc/…/status` of a process lists a signal as ignored.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
