//! CPU use of the whole machine, from `/proc/stat`, and beside it that of this process and the effect of a CPU quota.
//!
//! A sample is cheap enough for every edge of every interval: one `pread` into a reused buffer, and numbers parsed in
//! place. Only the per-CPU lines are used. They have their CPU's number, so a machine with CPUs offline (`cpu2` may
//! follow `cpu0`) is not shifted, and a CPU that comes or goes during the window is left out of it.
//!
//! Three deliberate differences from netperf's method: iowait is **not** busy (the CPU could have run anything); guest
//! time is not counted twice (`user` contains it); and a share refers to the ticks that the kernel accounted in the
//! window, without a correction that can make it exceed one.

use std::{fs::File, io, os::unix::fs::FileExt, time::Duration};

use nix::sys::resource::{UsageWho, getrusage};

use super::{
    cgroup::{GroupReader, GroupSnapshot},
    clock::{monotonic_ns, process_ns},
};
use crate::report::CpuUse;

/// States of a CPU, in the order of `/proc/stat`. `user` contains guest time, `nice` niced guest time; `iowait` is idle
/// time with a disk request of this CPU outstanding; `steal` is time in which the hypervisor ran something else.
pub(super) const STATES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// Place of the soft interrupts among them.
const SOFTIRQ: usize = 6;

/// Time of one CPU by state (`STATES`), in ticks (USER_HZ, a hundredth of a second on every Linux architecture in use),
/// since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks(pub(super) [u64; STATES.len()]);

impl Ticks {
    /// Difference of two samples. A state that ran backwards counts as 0: the kernel documents that iowait may, and
    /// idle does so with it on some machines.
    fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|state| self.0[state].saturating_sub(before.0[state])))
    }

    /// All states but idle and iowait.
    fn busy(self) -> u64 {
        let [user, nice, system, _, _, irq, softirq, steal] = self.0;
        user + nice + system + irq + softirq + steal
    }

    fn total(self) -> u64 {
        self.0.iter().sum()
    }
}

/// Ticks of the online CPUs at an instant, in ascending order of their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuSnapshot {
    /// CPU number and its ticks.
    pub cpus: Vec<(u32, Ticks)>,
    /// Instant of the reading on the monotonic clock, nanoseconds.
    at_ns: u64,
    /// CPU time of this process so far, nanoseconds.
    process_ns: u64,
    /// Times that the kernel took a CPU from this process so far; `None`: unknown.
    involuntary_switches: Option<u64>,
    /// This process' control group; `None`: not visible.
    group: Option<GroupSnapshot>,
}

impl CpuSnapshot {
    /// CPU use since an earlier sample; also per CPU if asked for. `None` if the kernel accounted no tick in between:
    /// the window was shorter than the clock's resolution.
    pub fn since(&self, before: &Self, per_cpu: bool) -> Option<CpuUse> {
        let mut sum = Ticks::default();
        let mut result = CpuUse::default();
        for (id, ticks) in self.ticks_since(before) {
            sum.0.iter_mut().zip(ticks.0).for_each(|(sum, ticks)| *sum += ticks);
            result.cpus += 1;
            let share = ratio(ticks.busy(), ticks.total());
            if share > result.peak || result.cpus == 1 {
                (result.peak, result.peak_id) = (share, id);
            }
            if per_cpu {
                result.per_cpu.push((id, share));
            }
        }
        let total = sum.total();
        if total == 0 {
            return None;
        }
        let [user, nice, system, _, iowait, irq, softirq, steal] = sum.0;
        result.busy = ratio(sum.busy(), total);
        result.user = ratio(user + nice, total);
        result.system = ratio(system, total);
        result.iowait = ratio(iowait, total);
        result.irq = ratio(irq, total);
        result.softirq = ratio(softirq, total);
        result.steal = ratio(steal, total);
        let elapsed_ns = self.at_ns.saturating_sub(before.at_ns);
        if elapsed_ns > 0 {
            result.process_cpus = Some(ratio(self.process_ns.saturating_sub(before.process_ns), elapsed_ns));
        }
        if let Some((after, before)) = self.involuntary_switches.zip(before.involuntary_switches) {
            result.involuntary_switches = Some(after.saturating_sub(before));
        }
        if let Some((after, before)) = self.group.as_ref().zip(before.group.as_ref()) {
            result.throttled = Some(after.throttled_since(before, elapsed_ns));
            result.quota_cpus = after.quota_cpus;
        }
        Some(result)
    }

    /// Ticks since an earlier sample of each CPU that was online at both.
    fn ticks_since(&self, before: &Self) -> impl Iterator<Item = (u32, Ticks)> {
        let mut earlier = before.cpus.iter().peekable();
        self.cpus.iter().filter_map(move |(id, after)| {
            while earlier.next_if(|(e, _)| e < id).is_some() {}
            let (_, start) = earlier.next_if(|(e, _)| e == id)?;
            Some((*id, after.since(*start)))
        })
    }

    /// Shares of each CPU since an earlier sample; CPUs without a tick in between are left out.
    pub(super) fn shares_since(&self, before: &Self) -> Vec<Shares> {
        let counted = self.ticks_since(before).filter(|(_, ticks)| ticks.total() > 0);
        counted
            .map(|(cpu, ticks)| Shares {
                cpu,
                busy: ratio(ticks.busy(), ticks.total()),
                softirq: ratio(ticks.0[SOFTIRQ], ticks.total()),
            })
            .collect()
    }
}

/// Shares of a CPU's time, 0 … 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shares {
    pub cpu: u32,
    pub busy: f64,
    pub softirq: f64,
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Number of online CPUs that were less than 10 % busy for `window`; `None` if `/proc/stat` cannot be read.
pub fn free_cpus(window: Duration) -> Option<u32> {
    let mut reader = CpuReader::open().ok()?;
    let before = reader.read().ok()?;
    std::thread::sleep(window);
    let cpus = reader.read().ok()?.since(&before, true)?.per_cpu;
    u32::try_from(cpus.iter().filter(|(_, busy)| *busy < 0.1).count()).ok()
}

/// Reads `/proc/stat` repeatedly through one descriptor and one buffer, and the files of the control group.
#[derive(Debug)]
pub struct CpuReader {
    file: File,
    buffer: Vec<u8>,
    group: Option<GroupReader>,
}

impl CpuReader {
    pub fn open() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/stat")?, buffer: vec![0; 8192], group: GroupReader::open() })
    }

    pub fn read(&mut self) -> io::Result<CpuSnapshot> {
        let mut snapshot = CpuSnapshot {
            cpus: Vec::new(),
            at_ns: monotonic_ns(),
            process_ns: process_ns(),
            involuntary_switches: involuntary_switches(),
            group: self.group.as_mut().and_then(GroupReader::read),
        };
        loop {
            let length = self.file.read_at(&mut self.buffer, 0)?;
            let text = &self.buffer[..length];
            // The CPU lines come first; the `intr` line behind them can be very long and is not needed. So a full
            // buffer is enough once it reaches past the CPU lines.
            if parse(text, &mut snapshot) || length < self.buffer.len() {
                return if snapshot.cpus.is_empty() {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/stat names no CPU"))
                } else {
                    Ok(snapshot)
                };
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}

/// Times that the kernel took a CPU from this process so far, to let something else run; of all its threads, also of ended ones.
fn involuntary_switches() -> Option<u64> {
    u64::try_from(getrusage(UsageWho::RUSAGE_SELF).ok()?.involuntary_context_switches()).ok()
}

/// Parses the CPU lines of `/proc/stat`; returns whether other lines followed.
fn parse(text: &[u8], snapshot: &mut CpuSnapshot) -> bool {
    snapshot.cpus.clear();
    for line in text.split_inclusive(|b| *b == b'\n') {
        let Some(rest) = line.strip_prefix(b"cpu") else { return true };
        if !line.ends_with(b"\n") {
            return false;
        }
        let mut words = rest.split(u8::is_ascii_whitespace);
        let Some(id) = words.next().and_then(number) else { continue };
        let Ok(id) = u32::try_from(id) else { continue };
        // Older kernels leave out the last fields; the later guest and guest_nice are contained in earlier ones.
        let mut next = || words.find(|w| !w.is_empty()).and_then(number).unwrap_or(0);
        let ticks = Ticks(std::array::from_fn(|_| next()));
        snapshot.cpus.push((id, ticks));
    }
    false
}

/// Parses a decimal number.
fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// CPU time per unit of work, microseconds: `busy share × CPUs × elapsed time ÷ units`. Units are KiB (1024 bytes) for
/// bulk tests and transactions otherwise. This is netperf's *service demand* (its manual, "CPU Utilization and Service
/// Demand"). `None` without work.
pub fn service_demand_us(cpu: &CpuUse, elapsed_ns: u64, units: f64) -> Option<f64> {
    let spent_us = cpu.busy * f64::from(cpu.cpus) * (elapsed_ns as f64 / 1e3);
    (units > 0.0).then_some(spent_us / units)
}

/// The same for the CPU time of this end's own process. `None` without work, and where that time is unknown.
pub fn process_demand_us(cpu: &CpuUse, elapsed_ns: u64, units: f64) -> Option<f64> {
    let spent_us = cpu.process_cpus? * (elapsed_ns as f64 / 1e3);
    (units > 0.0).then_some(spent_us / units)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::{Duration, Instant},
    };

    use super::*;

    fn snapshot(text: &str) -> CpuSnapshot {
        let mut result = CpuSnapshot::default();
        parse(text.as_bytes(), &mut result);
        result
    }

    #[test]
    fn states_become_shares_and_guest_time_counts_once() {
        let before =
            snapshot("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0 90 0\nintr 5\n");
        // cpu0: 40 user of which 40 guest, 10 system, 30 idle, 20 iowait; cpu1: 100 idle.
        let after = snapshot(
            "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 40 0 10 30 20 0 0 0 40 0\ncpu1 100 0 0 100 0 0 0 0 90 0\nintr 9\n",
        );
        let cpu = after.since(&before, true).unwrap();
        assert_eq!(cpu.cpus, 2);
        assert_eq!((cpu.busy, cpu.user, cpu.system, cpu.iowait), (0.25, 0.2, 0.05, 0.1));
        assert_eq!((cpu.peak, cpu.peak_id), (0.5, 0));
        assert_eq!(cpu.per_cpu, vec![(0, 0.5), (1, 0.0)]);
    }

    #[test]
    fn soft_interrupts_are_a_share_of_each_cpu_that_counted() {
        let before = snapshot("cpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 7 0 0 0 0 0 0 0 0 0\ncpu3 0 0 0 0 0 0 5 0 0 0\nintr 5\n");
        let after = snapshot("cpu0 2 0 0 6 0 0 2 0 0 0\ncpu1 7 0 0 0 0 0 0 0 0 0\ncpu3 0 0 0 1 0 0 8 0 0 0\nintr 9\n");
        assert_eq!(STATES[SOFTIRQ], "softirq");
        let shares = |cpu, busy, softirq| Shares { cpu, busy, softirq };
        assert_eq!(after.shares_since(&before), [shares(0, 0.4, 0.2), shares(3, 0.75, 0.75)]);
        assert_eq!(after.shares_since(&after), []);
    }

    #[test]
    fn a_hole_left_by_an_offline_cpu_shifts_nothing() {
        let before = snapshot("cpu0 0 0 0 0\ncpu2 0 0 0 0\ncpu3 7 0 0 0\nintr 0\n");
        // CPU 3 went away and CPU 5 came: neither belongs to the window.
        let after = snapshot("cpu0 0 0 0 10\ncpu2 9 0 0 1\ncpu5 999 0 0 0\nintr 0\n");
        let cpu = after.since(&before, true).unwrap();
        assert_eq!((cpu.cpus, cpu.peak_id), (2, 2));
        assert_eq!(cpu.per_cpu, vec![(0, 0.0), (2, 0.9)]);
        assert!((cpu.busy - 0.45).abs() < 1e-12);
    }

    #[test]
    fn what_runs_backwards_counts_as_nothing() {
        let before = snapshot("cpu0 0 0 0 100 50\nintr 0\n");
        let after = snapshot("cpu0 10 0 0 110 40\nintr 0\n");
        let cpu = after.since(&before, false).unwrap();
        assert_eq!((cpu.busy, cpu.iowait), (0.5, 0.0));
        assert!(cpu.per_cpu.is_empty());
    }

    #[test]
    fn a_window_without_a_tick_has_no_cpu_use() {
        let same = snapshot("cpu0 1 2 3 4 5 6 7 8 9 10\nintr 0\n");
        assert_eq!(same.since(&same, true), None);
    }

    #[test]
    fn a_text_cut_off_within_the_cpu_lines_asks_for_more() {
        let mut s = CpuSnapshot::default();
        assert!(!parse(b"cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 1 2", &mut s));
        assert!(!parse(b"cpu  1 2 3 4\ncpu0 1 2 3 4\n", &mut s));
        assert!(parse(b"cpu  1 2 3 4\ncpu0 1 2 3 4\nintr", &mut s));
        assert_eq!(s.cpus.len(), 1);
    }

    #[test]
    fn service_demand_is_cpu_time_per_unit() {
        // Half of two CPUs for one second is one CPU second: a million microseconds over 1000 units.
        let cpu = CpuUse { cpus: 2, busy: 0.5, ..CpuUse::default() };
        assert_eq!(service_demand_us(&cpu, 1_000_000_000, 1000.0), Some(1000.0));
        assert_eq!(service_demand_us(&cpu, 1_000_000_000, 0.0), None);
        assert_eq!(process_demand_us(&cpu, 1_000_000_000, 1000.0), None);
        // A fifth of a CPU is this process.
        let cpu = CpuUse { process_cpus: Some(0.2), ..cpu };
        assert_eq!(process_demand_us(&cpu, 1_000_000_000, 1000.0), Some(200.0));
    }

    #[test]
    fn a_thread_that_spins_on_a_cpu_shows_there() {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;

        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let target = (0..CpuSet::count()).rev().find(|c| allowed.is_set(*c).unwrap_or(false)).unwrap();
        let stop = AtomicBool::new(false);
        let spun = std::thread::scope(|scope| {
            let spinner = scope.spawn(|| {
                let mut only = CpuSet::new();
                only.set(target).unwrap();
                sched_setaffinity(Pid::from_raw(0), &only).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let mut reader = CpuReader::open().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let before = reader.read().unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                std::thread::sleep(Duration::from_millis(50));
            }
            let after = reader.read().unwrap();
            stop.store(true, Ordering::Relaxed);
            spinner.join().unwrap();
            after.since(&before, true).unwrap()
        });
        let share = spun.per_cpu.iter().find(|(id, _)| *id as usize == target).unwrap().1;
        assert!(share > 0.9, "CPU {target} was busy for {share} of the time although a thread spun there: {spun:?}");
        assert!(spun.peak >= share);
        assert!(spun.user > 0.0);
        // Other threads of this process may be busy, too.
        assert!(spun.process_cpus.unwrap() > 0.0, "{spun:?}");
    }

    #[test]
    fn threads_that_share_a_cpu_take_it_from_one_another() {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::{Pid, gettid};

        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let target = (0..CpuSet::count()).find(|c| allowed.is_set(*c).unwrap_or(false)).unwrap();
        // The kernel's own count of a thread.
        let of_thread = || {
            let text = std::fs::read_to_string(format!("/proc/self/task/{}/status", gettid())).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let mut reader = CpuReader::open().unwrap();
        let before = reader.read().unwrap();
        let counted: u64 = std::thread::scope(|scope| {
            let spin = || {
                let mut only = CpuSet::new();
                only.set(target).unwrap();
                sched_setaffinity(Pid::from_raw(0), &only).unwrap();
                while of_thread() < 20 {
                    std::hint::spin_loop();
                }
                of_thread()
            };
            let spinners = [scope.spawn(spin), scope.spawn(spin)];
            spinners.map(|spinner| spinner.join().unwrap()).iter().sum()
        });
        let after = reader.read().unwrap();
        let switches = after.involuntary_switches.unwrap() - before.involuntary_switches.unwrap();
        assert!(switches >= counted, "{switches} of the process, {counted} of two of its threads");
    }
}
