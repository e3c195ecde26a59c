//! CPU time of an end's data threads: for how long each ran, for how long it could have run but had no CPU, and its last CPU.
//!
//! A thread opens its own files of `/proc/thread-self` before its loop, and the sampler reads them at the edges. So only the
//! threads of this end count, also where a process has several ends, and the numbers of no PID namespace matter. The kernel
//! forgets a thread that has left; so each reads its files a last time when it leaves.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use crate::{lock::Lock, report::ThreadUse};

/// Limit of the threads of an end that are watched: each has two open files.
pub const MOST: usize = 256;

/// Nanoseconds of a tick of `stat`: USER_HZ is 100 on every Linux architecture in use.
const TICK_NS: u64 = 10_000_000;

/// Time of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTime {
    /// Time on a CPU, nanoseconds.
    pub busy_ns: u64,
    /// Time in which it could have run and had no CPU, nanoseconds; `None`: this kernel does not count it.
    pub waiting_ns: Option<u64>,
    /// Its last CPU.
    pub cpu: u32,
}

impl TaskTime {
    /// The time from `start` on. Without a start it is the thread's first.
    pub fn since(self, start: Self) -> Self {
        let waiting_ns = self.waiting_ns.map(|now| now.saturating_sub(start.waiting_ns.unwrap_or(0)));
        Self { busy_ns: self.busy_ns.saturating_sub(start.busy_ns), waiting_ns, ..self }
    }

    /// As shares of `elapsed_ns`; the CPU's own shares are not known here.
    pub fn within(self, elapsed_ns: u64) -> ThreadUse {
        // The kernel adds up a thread's time at ticks and switches: a full window may come out a little over 1.
        let share = |time_ns: u64| time_ns as f64 / elapsed_ns.max(1) as f64;
        let busy = share(self.busy_ns).min(1.0);
        ThreadUse {
            threads: 1,
            busy,
            // A wait counts when it ends, also what of it was before the window.
            waiting: self.waiting_ns.map(|ns| share(ns).min(1.0 - busy)),
            cpu: self.cpu,
            cpu_busy: None,
            cpu_softirq: None,
        }
    }
}

/// The calling thread from an instant on.
#[derive(Debug)]
pub struct OwnTime {
    files: Files,
    begin: TaskTime,
}

impl OwnTime {
    /// `None`: this host does not show it.
    pub fn begin() -> Option<Self> {
        let files = Files::of_this_thread()?;
        let begin = files.read()?;
        Some(Self { files, begin })
    }

    /// Its shares of the time since then, which is `elapsed_ns`. By the same thread.
    pub fn within(&self, elapsed_ns: u64) -> Option<ThreadUse> {
        Some(self.files.read()?.since(self.begin).within(elapsed_ns))
    }
}

/// A thread of this end.
#[derive(Debug, Default)]
enum Task {
    /// It cannot be read.
    #[default]
    Hidden,
    Present(Files),
    Left(Option<TaskTime>),
}

/// The data threads of an end.
#[derive(Debug, Default)]
pub struct Tasks {
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their starts, at most [`MOST`].
    tasks: Vec<Task>,
    /// All that have started.
    started: usize,
}

impl Tasks {
    /// Registers the calling thread, until the result is dropped; by the same thread.
    pub fn enter(self: &Arc<Self>) -> Entered {
        let place = {
            let mut state = self.state.lock();
            state.started += 1;
            (state.tasks.len() < MOST).then(|| {
                state.tasks.push(Task::Hidden);
                state.tasks.len() - 1
            })
        };
        if let Some(place) = place
            && let Some(files) = Files::of_this_thread()
        {
            self.state.lock().tasks[place] = Task::Present(files);
        }
        Entered { tasks: self.clone(), place }
    }

    /// The threads that have started so far.
    pub fn started(&self) -> usize {
        self.state.lock().started
    }

    /// Times of the watched threads, in the order of their starts; `None`: this one cannot be read.
    pub fn read(&self) -> Vec<Option<TaskTime>> {
        let time = |task: &Task| match task {
            Task::Hidden => None,
            Task::Present(files) => files.read(),
            Task::Left(time) => *time,
        };
        self.state.lock().tasks.iter().map(time).collect()
    }
}

/// A registered thread. Dropping it reads the thread's time a last time.
#[derive(Debug)]
pub struct Entered {
    tasks: Arc<Tasks>,
    place: Option<usize>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.tasks.state.lock();
        if let Task::Present(files) = &state.tasks[place] {
            state.tasks[place] = Task::Left(files.read());
        }
    }
}

/// The open files of a thread.
#[derive(Debug)]
struct Files {
    /// `stat`: its last CPU, and its time in ticks.
    stat: File,
    /// `schedstat`: its times in nanoseconds. A kernel without CONFIG_SCHED_INFO lacks it.
    schedstat: Option<File>,
}

impl Files {
    fn of_this_thread() -> Option<Self> {
        Some(Self {
            stat: File::open("/proc/thread-self/stat").ok()?,
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        })
    }

    fn read(&self) -> Option<TaskTime> {
        let mut buffer = [0; 1024];
        let mut text = |file: &File| {
            let length = file.read_at(&mut buffer, 0).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        let mut time = of_stat(&text(&self.stat)?)?;
        if let Some((busy_ns, waiting_ns)) =
            self.schedstat.as_ref().and_then(&mut text).as_deref().and_then(of_schedstat)
        {
            (time.busy_ns, time.waiting_ns) = (busy_ns, Some(waiting_ns));
        }
        Some(time)
    }
}

/// Time on a CPU and time waiting for one, nanoseconds, of `schedstat`. A kernel that does not count them writes zeros; a
/// thread that has opened the file has run.
fn of_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (busy, waiting) = (words.next()?.ok()?, words.next()?.ok()?);
    (busy > 0).then_some((busy, waiting))
}

/// Time on a CPU (fields 14 and 15, ticks) and the last CPU (field 39) of `stat`. The name of the thread, which is field 2, may
/// contain spaces and parentheses.
fn of_stat(text: &str) -> Option<TaskTime> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)?.saturating_add(field(15)?);
    let cpu = u32::try_from(field(39)?).ok()?;
    Some(TaskTime { busy_ns: ticks.saturating_mul(TICK_NS), waiting_ns: None, cpu })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicBool, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    };

    use nix::{
        sched::{CpuSet, sched_getaffinity, sched_setaffinity},
        unistd::Pid,
    };

    use super::{super::clock::thread_ns, *};

    fn a_cpu() -> usize {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..CpuSet::count()).rev().find(|c| allowed.is_set(*c).unwrap_or(false)).unwrap()
    }

    fn pin(cpu: usize) {
        let mut only = CpuSet::new();
        only.set(cpu).unwrap();
        sched_setaffinity(Pid::from_raw(0), &only).unwrap();
    }

    /// Runs a thread that sleeps, and some that spin on one CPU, for a time; returns the times that each of them got, the
    /// sleeper's first, and the length.
    fn spin(spinners: usize, length: Duration) -> (Vec<TaskTime>, Duration) {
        let (tasks, stop, cpu) = (Arc::<Tasks>::default(), AtomicBool::new(false), a_cpu());
        let ready = Barrier::new(spinners + 1);
        let spin = || {
            pin(cpu);
            let entered = tasks.enter();
            ready.wait();
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
            drop(entered);
            thread_ns()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = tasks.enter();
                while !stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            while tasks.started() == 0 {
                std::thread::yield_now();
            }
            let spinning: Vec<_> = (0..spinners).map(|_| scope.spawn(spin)).collect();
            ready.wait();
            let (before, start) = (tasks.read(), Instant::now());
            std::thread::sleep(length);
            let (after, elapsed) = (tasks.read(), start.elapsed());
            stop.store(true, Relaxed);
            let clocks: Vec<u64> = spinning.into_iter().map(|thread| thread.join().unwrap()).collect();
            let last: Vec<u64> = tasks.read().into_iter().skip(1).map(|time| time.unwrap().busy_ns).collect();
            // Each has read its files a last time, in whatever order they started. The kernel adds up at ticks.
            for clock in &clocks {
                assert!(
                    last.iter().any(|busy| busy.abs_diff(*clock) < 50_000_000),
                    "{last:?}, {clock} by its own clock"
                );
            }
            let since = |(after, before): (Option<TaskTime>, Option<TaskTime>)| {
                let (after, before) = (after.unwrap(), before.unwrap());
                TaskTime {
                    busy_ns: after.busy_ns - before.busy_ns,
                    waiting_ns: Some(after.waiting_ns.unwrap() - before.waiting_ns.unwrap()),
                    cpu: after.cpu,
                }
            };
            assert_eq!(tasks.started(), spinners + 1);
            (after.into_iter().zip(before).map(since).collect(), elapsed)
        })
    }

    /// A spinner is on its CPU or waits for it all the time; a wait counts when it is over.
    fn always_wants_its_cpu(time: &TaskTime, elapsed: Duration) {
        let wanted_ns = time.busy_ns + time.waiting_ns.unwrap();
        let share = wanted_ns as f64 / 1e9 / elapsed.as_secs_f64();
        assert!((0.6..1.3).contains(&share), "{time:?} in {elapsed:?}");
        assert_eq!(time.cpu as usize, a_cpu());
    }

    #[test]
    fn a_thread_that_spins_is_busy_or_waiting_all_the_time_on_its_cpu() {
        let (times, elapsed) = spin(1, Duration::from_millis(500));
        always_wants_its_cpu(&times[1], elapsed);
        assert!(times[0].busy_ns < times[1].busy_ns / 4, "it slept: {times:?}");
    }

    #[test]
    fn of_two_threads_on_one_cpu_each_waits_while_the_other_runs() {
        let (times, elapsed) = spin(2, Duration::from_millis(800));
        let (one, other) = (times[1], times[2]);
        let together = (one.busy_ns + other.busy_ns) as f64 / 1e9 / elapsed.as_secs_f64();
        assert!(together < 1.2, "both together have one CPU: {times:?} in {elapsed:?}");
        for (one, other) in [(one, other), (other, one)] {
            always_wants_its_cpu(&one, elapsed);
            assert!(one.waiting_ns.unwrap() + 150_000_000 > other.busy_ns, "{times:?} in {elapsed:?}");
        }
    }

    #[test]
    fn the_threads_of_another_end_do_not_count() {
        let (ours, theirs) = (Arc::<Tasks>::default(), Arc::<Tasks>::default());
        let _one = ours.enter();
        assert_eq!((ours.read().len(), theirs.read().len()), (1, 0));
    }

    #[test]
    fn threads_beyond_the_limit_are_counted_and_not_watched() {
        let tasks = Arc::<Tasks>::default();
        tasks.state.lock().tasks.resize_with(MOST, Task::default);
        drop(tasks.enter());
        assert_eq!((tasks.read().len(), tasks.started()), (MOST, 1));
    }

    #[test]
    fn shares_of_a_thread_are_no_more_than_all_of_the_time() {
        let time = TaskTime { busy_ns: 600, waiting_ns: Some(450), cpu: 0 };
        let of = |elapsed_ns| time.within(elapsed_ns);
        assert_eq!((of(2000).busy, of(2000).waiting), (0.3, Some(0.225)));
        assert_eq!((of(1000).busy, of(1000).waiting), (0.6, Some(0.4)));
        assert_eq!((of(500).busy, of(500).waiting), (1.0, Some(0.0)));
    }

    #[test]
    fn a_kernel_that_counts_no_waiting_still_tells_ticks() {
        assert_eq!(of_schedstat("0 0 0\n"), None);
        assert_eq!(of_schedstat("12 34 5\n"), Some((12, 34)));
        let line = "7 (data 0) (x) R 1 7 7 0 -1 4194304 9 0 0 0 21 4 0 0 20 0 9 0 100 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 \
                    17 3 0 0 0 0 0\n";
        assert_eq!(of_stat(line), Some(TaskTime { busy_ns: 250_000_000, waiting_ns: None, cpu: 3 }));
        assert_eq!(of_stat("7 (data 0"), None);
    }
}
