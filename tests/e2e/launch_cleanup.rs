//! However a run ends, and whenever: nothing of it stays on any host.

use std::{
    fs::{self, File},
    process::Child,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    fleet::{Fleet, HUB, OPEN_MPI, Traces, children, command_line},
    program::{Folder, is_interim, until},
};

/// Where a run is when it is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Something of it has begun on the first host; a copy of the program may be on its way.
    Start,
    WarmUp,
    Measure,
    /// One iteration is over, and the next one waits.
    Between,
    /// All is measured, and a program of the plan runs at a far end.
    End,
}

const PHASES: [Phase; 5] = [Phase::Start, Phase::WarmUp, Phase::Measure, Phase::Between, Phase::End];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Interrupt,
    Terminate,
    KillPlumb,
    KillLauncher,
    LinkDown,
}

const EVENTS: [Event; 5] = [Event::Interrupt, Event::Terminate, Event::KillPlumb, Event::KillLauncher, Event::LinkDown];

/// A way to start the far ends `h1` and `h2`, as the plan's hosts.
struct Engine {
    name: &'static str,
    hosts: String,
}

impl Engine {
    fn of_each(name: &'static str, h1: &str, h2: &str) -> Self {
        Self { name, hosts: format!("{{h1: {{address: 10.77.0.1, {h1}}}, h2: {{address: 10.77.0.2, {h2}}}}}") }
    }

    fn ssh() -> Self {
        Self::of_each("ssh", "launch: {ssh: {host: h1}}", "launch: {ssh: {host: h2}}")
    }

    /// The program travels, and the control of one host goes through ssh.
    fn copy() -> Self {
        let h1 = "control: launcher, launch: {ssh: {host: h1, copy: true}}";
        Self::of_each("ssh with a copy", h1, "launch: {ssh: {host: h2, copy: true}}")
    }

    fn command() -> Self {
        let launch = "launch: {command: {run: [/run/fleet/bin/on, \"{host}\"], program: /run/fleet/bin/plumb}}";
        Self::of_each("command", launch, &format!("control: launcher, {launch}"))
    }

    fn slurm() -> Self {
        Self { name: "slurm", hosts: "{h: {launch: {slurm: {nodes: 2, program: /run/fleet/bin/plumb}}}}".into() }
    }

    fn mpi() -> Self {
        let run: Vec<_> = OPEN_MPI.split(' ').chain(["-np", "2"]).map(|word| format!("\"{word}\"")).collect();
        let run = run.join(", ");
        Self {
            name: "mpi",
            hosts: format!("{{h: {{launch: {{mpi: {{run: [{run}], program: /run/fleet/bin/plumb}}}}}}}}"),
        }
    }
}

fn test(phase: Phase) -> &'static str {
    match phase {
        Phase::Start => "rate: 400Mbit/s, duration: 10s",
        Phase::WarmUp => "rate: 400Mbit/s, warmup: 60s, duration: 1s",
        Phase::Measure => "rate: 400Mbit/s, duration: 60s, interval: 50ms",
        Phase::Between => "bytes: 1MB, iterations: 2, pause: 4s",
        Phase::End => "bytes: 1MB, hooks: {cleanup: {run: [sleep, \"3\"], on: h1}}",
    }
}

/// A run on the fleet, until something ends it.
struct Running<'a> {
    fleet: &'a Fleet,
    folder: Folder,
    outer: Child,
}

impl<'a> Running<'a> {
    /// Starts one and waits for the phase.
    fn in_phase(fleet: &'a Fleet, engine: &Engine, phase: Phase, before: &Traces) -> Self {
        let folder = Folder::new();
        let test = format!("  bulk: {{workload: tcp_stream, from: h1, to: h2, {}}}", test(phase));
        let plan = folder.plan(&format!("hosts: {}", engine.hosts), &test);
        let words = ["/run/fleet/bin/plumb", "run", &plan, "-o", &folder.name("r.csv"), "--interim", "--allow-hooks"];
        let sent = fleet.sent_bytes("h1");
        let outer = fleet.command(HUB, &words).stderr(File::create(folder.path("stderr")).unwrap()).spawn().unwrap();
        let mut running = Self { fleet, folder, outer };
        until(&format!("{phase:?}"), || {
            let status = running.outer.try_wait().unwrap();
            assert!(status.is_none(), "{phase:?}: it ended too early: {status:?}: {}", running.stderr());
            running.is_in(phase, sent, before)
        });
        running
    }

    fn is_in(&self, phase: Phase, sent: u64, before: &Traces) -> bool {
        let h1 = ["h1".to_owned()];
        match phase {
            Phase::Start => self.fleet.traces(&h1).keys().any(|trace| !before.contains_key(trace)),
            Phase::WarmUp => self.fleet.sent_bytes("h1") > sent + 20_000_000,
            Phase::Measure => self.stderr().lines().any(is_interim),
            Phase::Between => {
                fs::read_to_string(self.folder.path("r.csv")).is_ok_and(|table| table.lines().count() > 1)
            }
            Phase::End => self.fleet.processes("h1").iter().any(|(_, line)| line == "sleep 3"),
        }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path("stderr")).unwrap()
    }

    fn suffer(&self, event: Event) {
        let send = |pid: i32, signal| kill(Pid::from_raw(pid), signal).unwrap();
        // `nsenter` is what the test started, and plumb its only child.
        let plumb = children(self.outer.id().cast_signed()).first().copied().expect("plumb runs");
        match event {
            Event::Interrupt => send(plumb, Signal::SIGINT),
            Event::Terminate => send(plumb, Signal::SIGTERM),
            Event::KillPlumb => send(plumb, Signal::SIGKILL),
            Event::KillLauncher => {
                // Any of them. Its other children are shells that clean up.
                let is_it = |pid: &i32| command_line(*pid).is_some_and(|line| !line.starts_with("sh -c"));
                send(children(plumb).into_iter().find(is_it).expect("a launcher"), Signal::SIGKILL);
            }
            Event::LinkDown => drop(self.fleet.read(HUB, &["ip", "link", "set", "p1", "down"])),
        }
    }

    fn exit_code(&mut self) -> Option<i32> {
        let mut status = None;
        until("plumb ends", || {
            status = self.outer.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

/// A test that fails tells what the run had said.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.stderr());
        }
    }
}

/// Ends one run by an event in a phase; returns how long it took after that until nothing was left.
fn end(fleet: &Fleet, engine: &Engine, phase: Phase, event: Event) -> Duration {
    let what = format!("{}, {phase:?}, {event:?}", engine.name);
    let hosts = fleet.all_hosts();
    let before = fleet.traces(&hosts);
    let mut running = Running::in_phase(fleet, engine, phase, &before);
    running.suffer(event);
    let since = std::time::Instant::now();
    let mut far: Vec<_> = fleet.hosts().collect();
    // Slurm does not notice for minutes: the host behind the link frees itself, and the run goes on to its deadline.
    let is_unnoticed = event == Event::LinkDown && engine.name == "slurm";
    if is_unnoticed {
        far.truncate(1);
    }
    // Without its link, an sshd keeps its session and Slurm its step, until they give the peer up. Neither is plumb's.
    let others: &[&str] = if event == Event::LinkDown { &["sshd: ", "slurmstepd: "] } else { &[] };
    fleet.await_clean(&what, &far, &before, others);
    let took = since.elapsed();
    if is_unnoticed && running.outer.try_wait().unwrap().is_none() {
        running.suffer(Event::Terminate);
    }
    let code = running.exit_code();
    let stderr = running.stderr();
    match event {
        Event::Interrupt => assert_eq!(code, Some(130), "{what}: {stderr}"),
        Event::Terminate => assert_eq!(code, Some(143), "{what}: {stderr}"),
        Event::KillPlumb => assert_eq!(code, None, "{what}: {stderr}"),
        // A program that fails after the measurement is worth a warning.
        Event::KillLauncher | Event::LinkDown if phase == Phase::End || is_unnoticed => {}
        Event::KillLauncher | Event::LinkDown => {
            assert_eq!(code, Some(3), "{what}: {stderr}");
            assert!(stderr.contains("host `h") || stderr.contains("hosts h["), "{what}: {stderr}");
        }
    }
    if event == Event::LinkDown {
        fleet.read(HUB, &["ip", "link", "set", "p1", "up"]);
        for (pid, line) in far.iter().flat_map(|host| fleet.processes(host)) {
            if line.starts_with("sshd: root") {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
    fleet.await_clean(&what, &hosts, &before, &[]);
    if engine.name == "slurm" {
        until(&format!("{what}: no job is left"), || fleet.read(HUB, &["squeue", "--noheader"]).is_empty());
    }
    took
}

/// Ends runs by these events; prints the longest time until nothing was left.
fn end_all(fleet: &Fleet, events: &[(Engine, Phase, Event)]) {
    let longest = events.iter().map(|(engine, phase, event)| {
        let took = end(fleet, engine, *phase, *event);
        println!("{}, {phase:?}, {event:?}: clean after {:.1} s", engine.name, took.as_secs_f64());
        took
    });
    println!("{} events, the longest clean-up {:.1} s", events.len(), longest.max().unwrap_or_default().as_secs_f64());
}

#[test]
fn ssh_leaves_nothing() {
    let Some(fleet) = Fleet::new(2).and_then(|f| f.with_sshd("")) else { return };
    end_all(
        &fleet,
        &[
            (Engine::ssh(), Phase::Start, Event::Interrupt),
            (Engine::ssh(), Phase::WarmUp, Event::Terminate),
            (Engine::ssh(), Phase::Measure, Event::KillLauncher),
            (Engine::ssh(), Phase::End, Event::KillPlumb),
        ],
    );
}

#[test]
fn ssh_with_a_copy_leaves_nothing() {
    let Some(fleet) = Fleet::new(2).and_then(|f| f.with_sshd("")) else { return };
    end_all(
        &fleet,
        &[
            (Engine::copy(), Phase::Start, Event::KillPlumb),
            (Engine::copy(), Phase::Start, Event::KillLauncher),
            (Engine::copy(), Phase::Measure, Event::LinkDown),
            (Engine::copy(), Phase::Between, Event::Interrupt),
        ],
    );
}

#[test]
fn a_command_leaves_nothing() {
    let Some(fleet) = Fleet::new(2) else { return };
    end_all(
        &fleet,
        &[
            (Engine::command(), Phase::WarmUp, Event::KillPlumb),
            (Engine::command(), Phase::Between, Event::KillLauncher),
            (Engine::command(), Phase::End, Event::Terminate),
        ],
    );
}

#[test]
fn slurm_leaves_neither_processes_nor_an_allocation() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_slurm) else { return };
    end_all(
        &fleet,
        &[
            (Engine::slurm(), Phase::Start, Event::KillPlumb),
            (Engine::slurm(), Phase::Measure, Event::KillLauncher),
            (Engine::slurm(), Phase::Between, Event::Interrupt),
            (Engine::slurm(), Phase::End, Event::KillPlumb),
        ],
    );
}

#[test]
fn mpi_leaves_nothing() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_mpi) else { return };
    end_all(
        &fleet,
        &[(Engine::mpi(), Phase::WarmUp, Event::KillLauncher), (Engine::mpi(), Phase::Measure, Event::KillPlumb)],
    );
}

/// Every phase and event with these engines, for which CI has no time.
fn end_in_every_way(fleet: &Fleet, engines: &[fn() -> Engine], events: &[Event]) {
    let ways = PHASES.iter().flat_map(|phase| events.iter().map(|event| (*phase, *event)));
    let all = engines.iter().flat_map(|engine| ways.clone().map(|(phase, event)| (engine(), phase, event)));
    end_all(fleet, &all.collect::<Vec<_>>());
}

#[test]
#[ignore = "takes minutes"]
fn ssh_leaves_nothing_in_every_phase() {
    let Some(fleet) = Fleet::new(2).and_then(|f| f.with_sshd("")) else { return };
    end_in_every_way(&fleet, &[Engine::ssh, Engine::copy], &EVENTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_command_and_mpi_leave_nothing_in_every_phase() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_mpi) else { return };
    // The life line of these is a pipe on this machine, at least in part, and needs no link.
    end_in_every_way(&fleet, &[Engine::command, Engine::mpi], &EVENTS[..4]);
}

#[test]
#[ignore = "takes minutes"]
fn slurm_leaves_nothing_in_every_phase() {
    let Some(fleet) = Fleet::new(2).and_then(Fleet::with_slurm) else { return };
    end_in_every_way(&fleet, &[Engine::slurm], &EVENTS);
}
