//! `/probe?target=HOST&module=PLAN`: a measurement that a scrape asks for, to a host of the plan only.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Condvar, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use netcore::lock::Lock;
use schemas::text::plain;

use super::process::{limited, own_program};
use crate::{
    metrics::{Answer, Reply, parameter, probe_page},
    plan::{self, model::Host},
    schedule::history::rows,
};

/// The module of a probe that names none.
const MODULE: &str = "quick";

/// Probes that wait for their turn or run.
const MOST: usize = 4;

/// Longest wait for the end of a cycle or of another probe.
const WAIT: Duration = Duration::from_mins(2);

/// Longest probe.
const LIMIT: Duration = Duration::from_mins(5);

/// One measurement at a time: a cycle or a probe.
#[derive(Debug, Default)]
pub struct Turn {
    state: Lock<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A cycle runs, or is to start as soon as the probe has ended.
    of_cycle: bool,
    of_probe: bool,
    probes: usize,
}

impl Turn {
    /// Whether the cycle may start. If not, it is the next.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock();
        state.of_cycle = true;
        !state.of_probe
    }

    /// The cycle has ended.
    pub fn give_back(&self) {
        self.state.lock().of_cycle = false;
        self.freed.notify_all();
    }

    /// Whether a probe has its turn within that time.
    fn wait(&self, time: Duration) -> bool {
        let is_taken = |state: &mut State| state.of_cycle || state.of_probe;
        let (mut state, _) =
            self.freed.wait_timeout_while(self.state.lock(), time, is_taken).unwrap_or_else(PoisonError::into_inner);
        let has = !is_taken(&mut state);
        state.of_probe |= has;
        has
    }
}

/// Answers probes.
pub struct Prober {
    /// Of the plan.
    pub hosts: Lock<BTreeMap<String, Host>>,
    pub turn: Turn,
    pub key_file: Option<PathBuf>,
    /// Wakes the watch when a probe has ended.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl Prober {
    pub fn ask(self: &Arc<Self>, request: &str) -> Reply {
        let refused = |status, why: String| Reply::Now((status, format!("{why}\n")));
        let bad = |why| refused("400 Bad Request", why);
        let Some(target) = parameter(request, "target") else {
            return bad("a probe names its host: /probe?target=HOST&module=PLAN".to_owned());
        };
        let module = parameter(request, "module").unwrap_or_else(|| MODULE.to_owned());
        if plan::shipped(&module).is_none() {
            return bad(format!("{} is no plan inside the program: `plumb plans` lists them", plain(&module)));
        }
        let Some((address, key_file)) = self.find(&target) else {
            let hosts = self.hosts.lock();
            let known: Vec<&str> =
                hosts.iter().filter(|(_, it)| reached(it).is_some()).map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "it names none".to_owned() } else { known.join(", ") };
            return bad(format!("{} is no host of the plan that has an address: {known}", plain(&target)));
        };
        let mut state = self.turn.state.lock();
        if state.probes >= MOST {
            return refused("503 Service Unavailable", format!("{MOST} probes wait already"));
        }
        state.probes += 1;
        drop(state);
        let (sender, answer) = mpsc::channel();
        let prober = Arc::clone(self);
        let started = thread::Builder::new().name("probe".into()).spawn(move || {
            // The client may be gone.
            let _ = sender.send(prober.measure(&module, &address, key_file.as_deref()));
        });
        match started {
            Ok(_) => Reply::Later(answer),
            Err(error) => {
                self.turn.state.lock().probes -= 1;
                refused("503 Service Unavailable", error.to_string())
            }
        }
    }

    /// The address and the key of the plan's host with that name or address.
    fn find(&self, target: &str) -> Option<(String, Option<PathBuf>)> {
        let hosts = self.hosts.lock();
        let is_meant = |name: &str, host: &Host| {
            name == target || [&host.address, &host.control].into_iter().any(|own| own.as_deref() == Some(target))
        };
        let (_, host) = hosts.iter().find(|(name, host)| is_meant(name, host))?;
        Some((reached(host)?, host.key_file.clone().or_else(|| self.key_file.clone())))
    }

    fn measure(&self, module: &str, address: &str, key_file: Option<&Path>) -> Answer {
        let began = Instant::now();
        let has_turn = self.turn.wait(WAIT);
        let answer = if has_turn {
            ("200 OK", run(module, address, key_file, began))
        } else {
            ("503 Service Unavailable", "a measurement was still going on after two minutes\n".to_owned())
        };
        let mut state = self.turn.state.lock();
        state.probes -= 1;
        state.of_probe &= !has_turn;
        drop(state);
        self.turn.freed.notify_all();
        (self.wake)();
        answer
    }
}

/// The address of a host's daemon; `None`: a launcher brings it, or it is this process.
fn reached(host: &Host) -> Option<String> {
    let address =
        host.control.as_ref().or(host.address.as_ref()).filter(|_| host.launch.is_none() && host.netns.is_none());
    address.filter(|address| *address != "local").cloned()
}

/// Measures, and makes the page. A failure is a comment in it.
fn run(module: &str, address: &str, key_file: Option<&Path>, began: Instant) -> String {
    let measured = tempfile::tempdir().map_err(|error| error.to_string()).and_then(|folder| {
        let table = folder.path().join("probe.csv");
        let mut command = own_program();
        command.args(["run", module, "--to", address, "--progress", "never", "-o"]).arg(&table);
        command.args(key_file.into_iter().flat_map(|file| ["--key-file".as_ref(), file.as_os_str()]));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let output = limited(command, "", LIMIT)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let rows = rows(&table).map_err(|_| why.clone())?;
        Ok((output.status.success(), rows, why))
    });
    match measured {
        Ok((is_success, rows, why)) => {
            // The first case that failed, or what the run said.
            let failed =
                rows.iter().find_map(|row| Some(format!("case {}: {}", row.case.as_ref()?, row.error.as_ref()?)));
            let because = if is_success { String::new() } else { format!("# {}\n", plain(&failed.unwrap_or(why))) };
            because + &probe_page(is_success, began.elapsed(), &rows)
        }
        Err(why) => format!("# {}\n{}", plain(&why), probe_page(false, began.elapsed(), &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prober() -> Arc<Prober> {
        let host = |address: Option<&str>| Host { address: address.map(str::to_owned), ..Host::default() };
        let hosts = [("b", host(Some("b.lab"))), ("here", host(Some("local"))), ("none", host(None))];
        let hosts = hosts.map(|(name, host)| (name.to_owned(), host)).into();
        let (turn, key_file) = (Turn::default(), None);
        Arc::new(Prober { hosts: Lock::new(hosts), turn, key_file, wake: Box::new(|| {}) })
    }

    #[test]
    fn a_probe_is_bounded_to_the_hosts_of_the_plan() {
        let prober = prober();
        for target in ["b", "b.lab"] {
            assert_eq!(prober.find(target), Some(("b.lab".to_owned(), None)));
        }
        for (request, said) in [
            ("/probe", "a probe names its host"),
            ("/probe?target=c.lab", "c.lab is no host of the plan that has an address: b\n"),
            ("/probe?target=here", "here is no host of the plan that has an address: b\n"),
            ("/probe?target=none", "none is no host"),
            ("/probe?target=b&module=lab.yaml", "lab.yaml is no plan inside the program"),
            ("/probe?target=b&module=--help", "--help is no plan inside the program"),
        ] {
            match prober.ask(request) {
                Reply::Now((status, text)) => assert!(status.starts_with("400") && text.contains(said), "{text}"),
                other => panic!("{request}: {other:?}"),
            }
        }
    }

    #[test]
    fn cycles_and_probes_take_turns() {
        let turn = Turn::default();
        assert!(turn.take(), "nothing runs");
        assert!(!turn.wait(Duration::ZERO), "the cycle runs");
        turn.give_back();
        assert!(turn.wait(Duration::ZERO));
        assert!(!turn.wait(Duration::ZERO), "another probe runs");
        assert!(!turn.take(), "so does the cycle wait, and is the next");
        turn.state.lock().of_probe = false;
        assert!(!turn.wait(Duration::ZERO) && turn.take());
    }
}
