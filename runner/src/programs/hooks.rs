//! `setup`, `prepare`, `during`, `conclude` and `cleanup`: programs around the measurement, and one beside it.
//!
//! A setup, prepare or during that fails fails the iteration: the measurement would not be the one that the plan describes. A
//! conclude or cleanup that fails is a warning: the measurement is made. Once setup was tried, cleanup runs in any case,
//! also after a signal. A hook on another host is run by its daemon, if it was started with `--allow-hooks`.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use netcore::{
    client::{ClientError, Session, Target},
    control::{
        child::{self, Program, shown},
        message::{Execute, Executed},
        stop::{StopFlag, Urgency},
    },
    measure::clock::monotonic_ns,
};

use super::Surroundings;
use crate::{
    plan::{model::Hook, quantity::Time},
    progress::Progress,
    schedule::{Bench, HookRun, MeasureError, Measured, rows::printed::is_measured, step::Step, whole::Whole},
    sinks::run_json::HookLog,
};

/// Default time limit of a hook.
const LIMIT: Duration = Duration::from_secs(30);

/// Most places at which a hook runs at the same time.
const AT_ONCE: usize = 32;

/// Largest part of a hook's standard output, and of its standard error, in the log: bytes.
const OUTPUT_BOUND: usize = 1 << 20;

/// How a hook ended at one of its places.
type Ran = Result<Output, MeasureError>;

/// Output of a hook that succeeded.
pub(super) struct Output {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Measured on the host that ran it.
    pub(super) elapsed: Duration,
}

/// A bench that measures commands itself, leaves the rest to another bench, and runs the hooks around both.
pub struct Programs<'a> {
    inner: &'a mut dyn Bench,
    surroundings: Surroundings,
    log: HookLog,
    /// Cases that need a cleanup, and whether their setup succeeded.
    unclean: BTreeMap<String, (Step, bool)>,
    /// Number of results that each command printed the last time.
    lines: BTreeMap<String, usize>,
}

impl<'a> Programs<'a> {
    /// `inner` measures everything but commands.
    pub fn around(inner: &'a mut dyn Bench, surroundings: Surroundings, log: HookLog) -> Self {
        Self { inner, surroundings, log, unclean: BTreeMap::new(), lines: BTreeMap::new() }
    }

    /// Runs the cleanup of every case that has not ended.
    pub fn finish(mut self, progress: &mut Progress) {
        for (_, (step, _)) in std::mem::take(&mut self.unclean) {
            self.clean_up(&step, progress);
        }
    }

    fn set_up(&mut self, step: &Step, iteration: u32) -> Result<(), MeasureError> {
        let hooks = &step.hooks;
        if hooks.setup.is_none() && hooks.cleanup.is_none() {
            return Ok(());
        }
        if self.unclean.get(&step.id).is_some_and(|(_, done)| *done) {
            return Ok(());
        }
        self.unclean.insert(step.id.clone(), (step.clone(), false));
        if let Some(hook) = &hooks.setup {
            self.run("setup", hook, step, Some(iteration), Urgency::None)?;
        }
        self.unclean.insert(step.id.clone(), (step.clone(), true));
        Ok(())
    }

    fn clean_up(&mut self, step: &Step, progress: &Progress) {
        if let Some(hook) = &step.hooks.cleanup
            && let Err(fault) = self.run("cleanup", hook, step, None, Urgency::Now)
        {
            progress.warn(&format!("case {}: {}", step.name, fault.message));
        }
    }

    /// Runs a hook at each of its places, all at the same time, and logs it. `heeds`: the highest urgency of a stop request that
    /// does not end it.
    fn run(
        &self,
        name: &str,
        hook: &Hook,
        step: &Step,
        iteration: Option<u32>,
        heeds: Urgency,
    ) -> Result<(), MeasureError> {
        let environment = self.surroundings.environment(step, iteration);
        let ran = run_at_places(&self.surroundings, name, hook, environment, heeds);
        self.take(name, hook, step, iteration, ran)
    }

    /// Logs what a hook did at its places, and says where it failed.
    fn take(
        &self,
        name: &str,
        hook: &Hook,
        step: &Step,
        iteration: Option<u32>,
        all: Vec<(Option<String>, Ran)>,
    ) -> Result<(), MeasureError> {
        let (count, mut faults) = (all.len(), Vec::new());
        for (place, ran) in all {
            let logged = self.keep(name, hook, place.as_deref(), step, iteration, &ran);
            let fault = match (ran, logged) {
                (Err(fault), _) => fault,
                (Ok(_), Err(e)) => MeasureError::failed(format!("its log: {e}")),
                (Ok(_), Ok(())) => continue,
            };
            let at = place.as_ref().filter(|_| count > 1);
            let message = at.map_or_else(|| fault.message.clone(), |place| format!("on {place}: {}", fault.message));
            faults.push(MeasureError { message, ..fault });
        }
        if faults.is_empty() {
            return Ok(());
        }
        let sentences: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
        let message = format!("hook {name}: {}", sentences.join("; "));
        Err(MeasureError { message, ..faults.swap_remove(0) })
    }

    /// Appends a hook's run to the log in one write.
    fn keep(
        &self,
        name: &str,
        hook: &Hook,
        place: Option<&str>,
        step: &Step,
        iteration: Option<u32>,
        ran: &Ran,
    ) -> std::io::Result<()> {
        let when = iteration.map_or_else(String::new, |n| format!(", iteration {n}"));
        let place = place.map_or_else(String::new, |host| format!(", on {host}"));
        let now = schemas::time::now().0;
        let mut text = format!("{now} {name} of {}{when}{place}: {}\n", step.name, shown(&hook.run));
        match ran {
            Ok(ran) => {
                for output in [&ran.stdout, &ran.stderr] {
                    for line in output.lines() {
                        text.extend(["  ", line, "\n"]);
                    }
                }
                text.extend(["  done after ", &format!("{:.3}", ran.elapsed.as_secs_f64()), " s\n"]);
            }
            Err(fault) => text.extend(["  ", &fault.message, "\n"]),
        }
        self.log.add(&text)
    }

    fn before(&mut self, step: &Step, iteration: u32) -> Result<(), MeasureError> {
        self.set_up(step, iteration)?;
        match &step.hooks.prepare {
            Some(hook) => self.run("prepare", hook, step, Some(iteration), Urgency::None),
            None => Ok(()),
        }
    }

    fn after(&self, step: &Step, iteration: u32, progress: &Progress) {
        if let Some(hook) = &step.hooks.conclude
            && let Err(fault) = self.run("conclude", hook, step, Some(iteration), Urgency::Now)
        {
            progress.warn(&format!("case {}, iteration {iteration}: {}", step.name, fault.message));
        }
    }

    /// Does `measure` while the hooks `during` of these iterations run, each when it is due.
    fn beside(
        &mut self,
        steps: &[(&Step, u32)],
        progress: &mut Progress,
        measure: impl FnOnce(&mut Self, &mut Progress) -> Vec<Result<Measured, MeasureError>>,
    ) -> Vec<Result<Measured, MeasureError>> {
        let (surroundings, measures_from_ns) = (self.surroundings.clone(), progress.measures_from_ns());
        measures_from_ns.store(0, Relaxed);
        let over = AtomicBool::new(false);
        let (measured, ran) = thread::scope(|scope| {
            let (surroundings, measures_from_ns, over) = (&surroundings, &*measures_from_ns, &over);
            let start = |(step, iteration): &(&Step, u32)| {
                let hook = step.hooks.during.clone()?;
                let environment = surroundings.environment(step, Some(*iteration));
                let after_ns = hook.after.map_or(0, Time::nanoseconds);
                Some(scope.spawn(move || {
                    wait_until_due(measures_from_ns, after_ns, over).then(|| {
                        let begin_ns = monotonic_ns();
                        let ran = run_at_places(surroundings, "during", &hook, environment, Urgency::None);
                        (ran, HookRun { begin_ns, end_ns: monotonic_ns() })
                    })
                }))
            };
            let running: Vec<_> = steps.iter().map(start).collect();
            let measured = measure(self, progress);
            over.store(true, Relaxed);
            let ended: Vec<_> = running.into_iter().map(|thread| thread.map(join)).collect();
            (measured, ended)
        });
        let with_hook = |((measured, (step, iteration)), ran): ((_, &(&Step, u32)), _)| {
            let (Some(hook), Some(ran)) = (&step.hooks.during, ran) else { return measured };
            let Some((ran, run)) = ran else {
                let name = &step.name;
                progress
                    .warn(&format!("case {name}, iteration {iteration}: it was over before its hook `during` was due"));
                return measured;
            };
            let taken = self.take("during", hook, step, Some(*iteration), ran);
            let measured: Measured = measured?;
            taken.map(|()| Measured { hook: Some(run), ..measured })
        };
        measured.into_iter().zip(steps).zip(ran).map(with_hook).collect()
    }

    /// One iteration without its hooks.
    fn inside(&mut self, step: &Step, iteration: u32, progress: &mut Progress) -> Result<Measured, MeasureError> {
        let Some(command) = step.members.first().and_then(|m| m.job.command()) else {
            return self.inner.measure(step, iteration, progress);
        };
        let printed = super::measure(step, command, iteration, &self.surroundings)?;
        let results = printed.lines.iter().filter(|row| is_measured(row)).count();
        if let Some(before) = self.lines.insert(step.id.clone(), results).filter(|before| *before != results) {
            return Err(MeasureError::failed(format!(
                "it printed {results} results where it had printed {before}: which of them belong together \
                 is unknown"
            )));
        }
        Ok(Measured { whole: Some(Whole::Program(printed)), ..Measured::default() })
    }
}

/// Does the same at every place at the same time.
fn everywhere<T: Send>(places: &[Option<String>], run: impl Fn(Option<&str>) -> T + Sync) -> Vec<T> {
    if let [place] = places {
        return vec![run(place.as_deref())];
    }
    thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = places.iter().map(|place| scope.spawn(move || run(place.as_deref()))).collect();
        running.into_iter().map(join).collect()
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits until so long after the begin of a measure phase, which is 0 until it is known. `false`: the measurement is over before.
fn wait_until_due(measures_from_ns: &AtomicU64, after_ns: u64, over: &AtomicBool) -> bool {
    /// Longest time between two looks.
    const LOOK: Duration = Duration::from_millis(1);
    loop {
        let from_ns = measures_from_ns.load(Relaxed);
        let left_ns = from_ns.saturating_add(after_ns).saturating_sub(monotonic_ns());
        if from_ns > 0 && left_ns == 0 {
            return true;
        }
        if over.load(Relaxed) {
            return false;
        }
        thread::sleep(if from_ns > 0 { LOOK.min(Duration::from_nanos(left_ns)) } else { LOOK });
    }
}

/// Runs a hook at each of its places, all at the same time.
fn run_at_places(
    surroundings: &Surroundings,
    name: &str,
    hook: &Hook,
    mut environment: Vec<(&'static str, String)>,
    heeds: Urgency,
) -> Vec<(Option<String>, Ran)> {
    environment.push(("PLUMB_HOOK", name.to_owned()));
    let places: Vec<Option<String>> = match hook.places() {
        None => vec![None],
        Some(places) => places.into_iter().map(Some).collect(),
    };
    let run = |place: Option<&str>| run_at(surroundings, place, hook, &environment, heeds);
    let ran: Vec<Ran> = places.chunks(AT_ONCE).flat_map(|some| everywhere(some, run)).collect();
    places.into_iter().zip(ran).collect()
}

/// Runs a hook on another host, in a network namespace or here.
fn run_at(
    surroundings: &Surroundings,
    place: Option<&str>,
    hook: &Hook,
    environment: &[(&'static str, String)],
    heeds: Urgency,
) -> Result<Output, MeasureError> {
    let limit = hook.timeout.map_or(LIMIT, |t| t.0);
    if let Some(target) = surroundings.daemon(place) {
        return run(target, &hook.run, environment.to_vec(), limit, &surroundings.stop, heeds);
    }
    let program = Program {
        argv: &hook.run,
        environment,
        netns: surroundings.netns(place),
        limit,
        keep: OUTPUT_BOUND,
        whole: false,
        ends_all: false,
        heeds,
    };
    let ran = child::run(&program, &surroundings.stop)?;
    Ok(Output {
        stdout: String::from_utf8_lossy(&ran.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ran.stderr).into_owned(),
        elapsed: ran.elapsed,
    })
}

impl Bench for Programs<'_> {
    fn measure(&mut self, step: &Step, iteration: u32, progress: &mut Progress) -> Result<Measured, MeasureError> {
        self.before(step, iteration)?;
        let mut measured = self.beside(&[(step, iteration)], progress, |programs, progress| {
            vec![programs.inside(step, iteration, progress)]
        });
        self.after(step, iteration, progress);
        measured.remove(0)
    }

    /// The hooks of all cases run before any of them is measured, and after all have been.
    fn measure_round(
        &mut self,
        steps: &[(&Step, u32)],
        progress: &mut Progress,
    ) -> Vec<Result<Measured, MeasureError>> {
        if let [(step, iteration)] = steps {
            return vec![self.measure(step, *iteration, progress)];
        }
        let before: Vec<_> = steps.iter().map(|(step, iteration)| self.before(step, *iteration)).collect();
        let ready: Vec<_> = steps.iter().zip(&before).filter(|(_, ran)| ran.is_ok()).map(|(step, _)| *step).collect();
        let measured =
            self.beside(&ready, progress, |programs, progress| programs.inner.measure_round(&ready, progress));
        let mut measured = measured.into_iter();
        for (step, iteration) in &ready {
            self.after(step, *iteration, progress);
        }
        // There is a result for each that was ready.
        let none = || Err(MeasureError::failed("it was not measured"));
        before.into_iter().map(|ran| ran.and_then(|()| measured.next().unwrap_or_else(none))).collect()
    }

    fn done(&mut self, step: &Step, progress: &mut Progress) {
        if let Some((step, _)) = self.unclean.remove(&step.id) {
            self.clean_up(&step, progress);
        }
        self.inner.done(step, progress);
    }
}

/// Runs a hook to its end, in a session of its own: cleanup must work whatever happens to the test's sessions.
pub(super) fn run(
    target: &Target,
    argv: &[String],
    environment: Vec<(&'static str, String)>,
    limit: Duration,
    stop: &StopFlag,
    heeds: Urgency,
) -> Result<Output, MeasureError> {
    let asked = Execute {
        argv: argv.to_vec(),
        // The run's folder is on this host.
        environment: environment
            .into_iter()
            .filter(|(name, _)| *name != "PLUMB_RUN_DIR")
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
    };
    let mut session = Session::connect(target).map_err(|e| fault(&e, argv))?;
    let executed = session.execute(asked, stop, heeds).map_err(|e| fault(&e, argv))?;
    match executed {
        Executed::Done { stdout, stderr, elapsed_ns } => {
            Ok(Output { stdout, stderr, elapsed: Duration::from_nanos(elapsed_ns) })
        }
        Executed::Failed { timed_out, message } => {
            Err(MeasureError { timeout: timed_out, message: format!("{}: {message}", session.host()) })
        }
    }
}

fn fault(error: &ClientError, argv: &[String]) -> MeasureError {
    let message = match error {
        ClientError::Interrupted => format!("`{}` was ended with the run", shown(argv)),
        error => error.to_string(),
    };
    MeasureError::failed(message)
}
