//! The control group of this process: its CPU quota, and the time for which the quota held it back.
//!
//! In a container `/proc/stat` is the host's and shows none of this. The kernel keeps the numbers per control group, in
//! version 1 of the interface (one hierarchy per controller) or version 2 (one for all).
//!
//! `throttled_usec` adds up over CPUs: a group with two busy threads on two CPUs that is held back for 0.6 s collects
//! 1.2 s. The number of CPUs is not in the file. A CPU that always has the group's work either runs it or is held back, so
//! used plus throttled time tells the number of such CPUs: `throttled ÷ max(elapsed, used + throttled)` is the share of the
//! window, for one thread as for many. Where CPUs have the group's work only now and then, used plus throttled time is too
//! short for their number: the share then is an upper bound of the mean over them. It never exceeds 1.
//!
//! A group is held back by its own quota or by that of an ancestor. Quotas above a container's own view are not visible;
//! since Linux 6.6 the time that they take is (`cpu.stat.local`). Before that, the share in a container without a visible
//! quota is unknown.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::kernel::{line, numbers, text};

/// Time of a control group on its CPUs, nanoseconds, summed over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTime {
    /// Time in which its threads ran; 0: unknown.
    pub used_ns: u64,
    /// Time in which they wanted to run and a quota did not let them.
    pub throttled_ns: u64,
}

/// Readings of a group and the ancestors that limit it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupSnapshot {
    /// The smallest quota in force when the readings began, in CPUs.
    pub quota_cpus: Option<f64>,
    times: Vec<GroupTime>,
}

impl GroupSnapshot {
    /// Share of a time of `elapsed_ns` in which the group was held back at most, 0 … 1: by the level that did so for longest.
    pub fn throttled_since(&self, before: &Self, elapsed_ns: u64) -> f64 {
        let share = |(after, before): (&GroupTime, &GroupTime)| {
            let throttled_ns = after.throttled_ns.saturating_sub(before.throttled_ns);
            let wanted_ns = after.used_ns.saturating_sub(before.used_ns).saturating_add(throttled_ns);
            let whole_ns = wanted_ns.max(elapsed_ns);
            if whole_ns == 0 { 0.0 } else { throttled_ns as f64 / whole_ns as f64 }
        };
        self.times.iter().zip(&before.times).map(share).fold(0.0, f64::max)
    }
}

/// Reads the group's times repeatedly through open files.
#[derive(Debug)]
pub struct GroupReader {
    quota_cpus: Option<f64>,
    levels: Vec<Level>,
    buffer: Vec<u8>,
}

/// The files of a group with a quota, or of this process' own group.
#[derive(Debug)]
struct Level {
    throttled: Throttled,
    /// `cpuacct.usage` in version 1; the time used is in `cpu.stat` in version 2.
    used: Option<File>,
}

#[derive(Debug)]
enum Throttled {
    /// `cpu.stat`: by the group's own quota.
    Own(File),
    /// `cpu.stat.local`: by that of any ancestor too, and the group's `cpu.stat` for the time used.
    Local(File, File),
}

impl GroupReader {
    /// Finds the groups of this process; `None`: the time in which it is held back is not visible here.
    pub fn open() -> Option<Self> {
        Self::of(&Folders::find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))?)
    }

    fn of(folders: &Folders) -> Option<Self> {
        let stat = |folder: &Path| File::open(folder.join("cpu.stat")).ok();
        let used = |folder: &Path| File::open(folders.accounting(folder)?.join("cpuacct.usage")).ok();
        // Without it the group's folder, or the whole hierarchy, is elsewhere.
        stat(&folders.own)?;
        // The nearest level that has the controller.
        let local = folders.levels().find_map(|folder| {
            let path = folder.join("cpu.stat.local");
            let tells = text(&path).lines().any(|line| line.starts_with("throttled_"));
            let local = File::open(path).ok().filter(|_| tells)?;
            Some(Level { throttled: Throttled::Local(local, stat(folder)?), used: used(folder) })
        });
        let limited = folders.levels().filter(|folder| folders.quota(folder).is_some());
        let of_quotas =
            limited.filter_map(|folder| Some(Level { throttled: Throttled::Own(stat(folder)?), used: used(folder) }));
        let levels: Vec<Level> = local.into_iter().chain(of_quotas).collect();
        if levels.is_empty() && !folders.has_root() {
            return None;
        }
        Some(Self { quota_cpus: folders.smallest_quota(), levels, buffer: vec![0; 4096] })
    }

    /// The times so far; `None`: a file cannot be read any more.
    pub fn read(&mut self) -> Option<GroupSnapshot> {
        let buffer = &mut self.buffer;
        let mut read = |file: &File| {
            let length = file.read_at(buffer, 0).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        };
        let mut time = |level: &Level| {
            let mut time = match &level.throttled {
                Throttled::Own(stat) => stat_times(&read(stat)?),
                Throttled::Local(local, stat) => {
                    GroupTime { throttled_ns: stat_times(&read(local)?).throttled_ns, ..stat_times(&read(stat)?) }
                }
            };
            if let Some(used) = &level.used {
                time.used_ns = read(used)?.trim().parse().unwrap_or(0);
            }
            Some(time)
        };
        let times = self.levels.iter().map(&mut time).collect::<Option<_>>()?;
        Some(GroupSnapshot { quota_cpus: self.quota_cpus, times })
    }
}

/// The smallest quota in force on this process, in CPUs; `None`: no quota is visible.
pub fn quota_cpus() -> Option<f64> {
    Folders::find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))?.smallest_quota()
}

/// Folders of the group of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folders {
    /// Mount point of the hierarchy with the `cpu` controller.
    top: PathBuf,
    /// The group in it.
    own: PathBuf,
    /// Mount point of version 1's `cpuacct`, if the process has the same group there. Version 2 has it in `cpu`.
    accounting: Option<PathBuf>,
    v2: bool,
}

impl Folders {
    /// From the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn find(groups: &str, mounts: &str) -> Option<Self> {
        // `4:cpu,cpuacct:/docker/4a2`; version 2 has the number 0 and names no controller.
        let of = |controller: &str| {
            groups.lines().find_map(|line| {
                let mut words = line.splitn(3, ':').skip(1);
                let (controllers, path) = (words.next()?, words.next()?);
                controllers.split(',').any(|name| name == controller).then_some(path)
            })
        };
        // A controller is in one hierarchy only: where version 1 has it, version 2 tells nothing about it.
        if let Some(path) = of("cpu") {
            let (mount, own) = Mount::find(mounts, "cgroup", "cpu", path)?;
            let accounting = Mount::find(mounts, "cgroup", "cpuacct", path)
                .filter(|(accounting, _)| of("cpuacct") == Some(path) && accounting.root == mount.root)
                .map(|(accounting, _)| accounting.point);
            return Some(Self { own, top: mount.point, accounting, v2: false });
        }
        let (mount, own) = Mount::find(mounts, "cgroup2", "", of("")?)?;
        Some(Self { own, top: mount.point, accounting: None, v2: true })
    }

    /// Whether the highest level that is visible is the machine's: then no quota is hidden.
    fn has_root(&self) -> bool {
        // Version 1 has the one file in its root only, version 2 the other one everywhere else.
        if self.v2 { !self.top.join("cgroup.type").exists() } else { self.top.join("release_agent").exists() }
    }

    /// The process' group and its ancestors, as far as they are visible.
    fn levels(&self) -> impl Iterator<Item = &Path> {
        self.own.ancestors().take_while(|folder| folder.starts_with(&self.top))
    }

    /// The folder that accounts for a level's used time in version 1.
    fn accounting(&self, level: &Path) -> Option<PathBuf> {
        Some(self.accounting.as_ref()?.join(level.strip_prefix(&self.top).ok()?))
    }

    fn quota(&self, level: &Path) -> Option<f64> {
        let read = |name: &str| line(level.join(name));
        if self.v2 {
            quota_v2(&read("cpu.max")?)
        } else {
            quota_v1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
        }
    }

    fn smallest_quota(&self) -> Option<f64> {
        self.levels().filter_map(|level| self.quota(level)).reduce(f64::min)
    }
}

/// A mounted hierarchy.
struct Mount {
    /// The group that is visible at the mount point.
    root: String,
    point: PathBuf,
}

impl Mount {
    /// `31 23 0:28 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu`: the first of that type with that
    /// option (in version 2 none is asked for) that shows the group, and the group's folder.
    fn find(mounts: &str, kind: &str, option: &str, group: &str) -> Option<(Self, PathBuf)> {
        mounts.lines().find_map(|line| {
            let (place, source) = line.split_once(" - ")?;
            let mut source = source.split(' ');
            let fits = source.next() == Some(kind)
                && (option.is_empty() || source.nth(1)?.split(',').any(|one| one == option));
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            let mount = fits.then(|| Self { root: unescaped(root), point: unescaped(point).into() })?;
            let folder = mount.folder(group)?;
            Some((mount, folder))
        })
    }

    /// The folder of a group; `None`: it lies outside of the mounted part.
    fn folder(&self, path: &str) -> Option<PathBuf> {
        // A container without a cgroup namespace sees the host's path, and has only its own part mounted.
        let inside = Path::new(path).strip_prefix(&self.root).ok()?;
        let climbs = inside.components().any(|part| part == std::path::Component::ParentDir);
        (!climbs).then(|| if inside.as_os_str().is_empty() { self.point.clone() } else { self.point.join(inside) })
    }
}

/// Decodes `\040` and the like.
fn unescaped(word: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(word.to_owned(), |word, (code, character)| word.replace(code, character))
}

/// `50000 100000` is half a CPU; `max` means unlimited.
fn quota_v2(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    quota_v1(quota, period)
}

/// `-1` means unlimited.
fn quota_v1(quota_us: &str, period_us: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota_us.trim().parse().ok()?, period_us.trim().parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// Times in `cpu.stat` and `cpu.stat.local`: microseconds in version 2 (`throttled_usec`), nanoseconds in version 1
/// (`throttled_time`).
fn stat_times(text: &str) -> GroupTime {
    let mut time = GroupTime::default();
    for (name, value) in numbers(text) {
        match name {
            "usage_usec" => time.used_ns = value.saturating_mul(1000),
            "throttled_usec" => time.throttled_ns = value.saturating_mul(1000),
            "throttled_time" => time.throttled_ns = value,
            _ => {}
        }
    }
    time
}

#[cfg(test)]
mod tests;
