//! The control group of this process: its CPU quota, and the time for which the quota held it back.
//!
//! In a container `/proc/stat` is the host's and shows none of this. The kernel keeps the numbers per control group, in
//! version 1 of the interface (one hierarchy per controller) or version 2 (one for all).
//!
//! `throttled_usec` adds up over CPUs: a group with two busy threads on two CPUs that is held back for 0.6 s collects
//! 1.2 s. The number of CPUs is not in the file. But each CPU that wants to run at all times either runs or is held back,
//! so used plus throttled time tells it: `throttled ÷ max(elapsed, used + throttled)` is the share of the window for one
//! thread as for many. It never exceeds 1.
//!
//! A group is held back by its own quota or by that of an ancestor. Quotas above a container's own view are not visible;
//! since Linux 6.6 the time that they take is (`cpu.stat.local`).

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::files::{line, text};

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
    /// Share of a time of `elapsed_ns` in which the group was held back, 0 … 1: by the level that did so for longest.
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
    /// Finds the groups of this process; `None`: they are not visible here.
    pub fn open() -> Option<Self> {
        let folders = Folders::find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))?;
        let mut levels = Vec::new();
        for folder in folders.levels() {
            let stat = File::open(folder.join("cpu.stat")).ok();
            let local = if folder == folders.own { File::open(folder.join("cpu.stat.local")).ok() } else { None };
            let limited = folders.quota(folder).is_some();
            let used = || File::open(folders.accounting(folder)?.join("cpuacct.usage")).ok();
            if let (Some(local), Some(stat)) = (local, stat.as_ref().and_then(|stat| stat.try_clone().ok())) {
                levels.push(Level { throttled: Throttled::Local(local, stat), used: used() });
            }
            if let Some(stat) = stat.filter(|_| limited) {
                levels.push(Level { throttled: Throttled::Own(stat), used: used() });
            }
        }
        Some(Self { quota_cpus: folders.smallest_quota(), levels, buffer: vec![0; 4096] })
    }

    /// The times so far. A file that cannot be read any more counts as 0.
    pub fn read(&mut self) -> GroupSnapshot {
        let buffer = &mut self.buffer;
        let mut read = |file: &File| {
            let length = file.read_at(buffer, 0).unwrap_or(0);
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let mut time = |level: &Level| {
            let mut time = match &level.throttled {
                Throttled::Own(stat) => stat_times(&read(stat)),
                Throttled::Local(local, stat) => {
                    GroupTime { throttled_ns: stat_times(&read(local)).throttled_ns, ..stat_times(&read(stat)) }
                }
            };
            if let Some(used) = &level.used {
                time.used_ns = read(used).trim().parse().unwrap_or(0);
            }
            time
        };
        GroupSnapshot { quota_cpus: self.quota_cpus, times: self.levels.iter().map(&mut time).collect() }
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
        let v1 = of("cpu").and_then(|path| Some((path, Mount::find(mounts, "cgroup", "cpu")?)));
        if let Some((path, mount)) = v1 {
            let same = of("cpuacct") == Some(path);
            let accounting = Mount::find(mounts, "cgroup", "cpuacct").filter(|_| same).map(|mount| mount.point);
            return Some(Self { own: mount.folder(path)?, top: mount.point, accounting, v2: false });
        }
        let mount = Mount::find(mounts, "cgroup2", "")?;
        Some(Self { own: mount.folder(of("")?)?, top: mount.point, accounting: None, v2: true })
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
    /// option (in version 2 none is asked for).
    fn find(mounts: &str, kind: &str, option: &str) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let (place, source) = line.split_once(" - ")?;
            let mut source = source.split(' ');
            let fits = source.next() == Some(kind)
                && (option.is_empty() || source.nth(1)?.split(',').any(|one| one == option));
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            fits.then(|| Self { root: unescaped(root), point: unescaped(point).into() })
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

/// `50000 100000` is half a CPU, `max 100000` no quota.
fn quota_v2(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    quota_v1(quota, period)
}

/// `-1` is no quota.
fn quota_v1(quota_us: &str, period_us: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota_us.trim().parse().ok()?, period_us.trim().parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// Times in `cpu.stat` and `cpu.stat.local`: microseconds in version 2 (`throttled_usec`), nanoseconds in version 1
/// (`throttled_time`).
fn stat_times(text: &str) -> GroupTime {
    let mut time = GroupTime::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
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
mod tests {
    use super::*;

    const MOUNTS_V1: &str = "\
        23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu\\040set rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const MOUNTS_V2: &str = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    /// Of a container that has the host's namespace, and its own group mounted.
    const MOUNTS_DOCKER_V1: &str =
        "911 905 0:29 /docker/4a2 /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n";

    fn found(groups: &str, mounts: &str) -> Option<(String, String)> {
        let folders = Folders::find(groups, mounts)?;
        Some((folders.top.display().to_string(), folders.own.display().to_string()))
    }

    #[test]
    fn groups_are_found_in_both_versions() {
        let v1 = "9:name=systemd:/\n2:cpuacct,cpu:/batch/job\n1:cpuset:/other\n0::/\n";
        let folders = Folders::find(v1, MOUNTS_V1).unwrap();
        assert_eq!(folders.own, Path::new("/sys/fs/cgroup/cpu set/batch/job"));
        assert!(!folders.v2);
        assert_eq!(folders.levels().count(), 3);
        assert_eq!(folders.accounting(&folders.own), Some(folders.own.clone()));

        let v2 = "0::/system.slice/plumb.service\n";
        let folders = Folders::find(v2, MOUNTS_V2).unwrap();
        assert!(folders.v2);
        let levels: Vec<_> = folders.levels().map(|folder| folder.display().to_string()).collect();
        assert_eq!(
            levels,
            ["/sys/fs/cgroup/system.slice/plumb.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"]
        );
    }

    #[test]
    fn groups_are_found_from_inside_containers() {
        let point = "/sys/fs/cgroup/cpu,cpuacct".to_owned();
        let docker = found("4:cpu,cpuacct:/docker/4a2\n", MOUNTS_DOCKER_V1);
        assert_eq!(docker, Some((point.clone(), point.clone())));
        let deeper = found("4:cpu,cpuacct:/docker/4a2/x\n", MOUNTS_DOCKER_V1);
        assert_eq!(deeper, Some((point.clone(), format!("{point}/x"))));
        assert_eq!(found("4:cpu,cpuacct:/elsewhere\n", MOUNTS_DOCKER_V1), None);
        // With a cgroup namespace the container is at the top.
        let top = "/sys/fs/cgroup".to_owned();
        assert_eq!(found("0::/\n", MOUNTS_V2), Some((top.clone(), top)));
        assert_eq!(found("0::/../sibling\n", MOUNTS_V2), None);
        assert_eq!(found("0::/\n", ""), None);
        assert_eq!(found("", ""), None);
    }

    #[test]
    fn separate_accounting_is_used_only_for_the_same_group() {
        let mounts =
            "32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n33 31 0:30 / /c/acct rw - cgroup cgroup rw,cpuacct\n";
        let accounting = |groups: &str| Folders::find(groups, mounts).unwrap().accounting(Path::new("/c/cpu/a"));
        assert_eq!(accounting("2:cpuacct:/a\n1:cpu:/a\n"), Some("/c/acct/a".into()));
        assert_eq!(accounting("2:cpuacct:/\n1:cpu:/a\n"), None);
    }

    #[test]
    fn quotas_become_cpus() {
        assert_eq!(quota_v2("50000 100000\n"), Some(0.5));
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v2("100000 0"), None);
        assert_eq!(quota_v2(""), None);
        assert_eq!(quota_v1("250000\n", "100000\n"), Some(2.5));
        assert_eq!(quota_v1("-1", "100000"), None);
    }

    #[test]
    fn recorded_files_are_understood() {
        let v2 = "usage_usec 5311884\nuser_usec 202113\nsystem_usec 5109771\nnice_usec 0\ncore_sched.force_idle_usec 0\n\
                  nr_periods 105\nnr_throttled 103\nthrottled_usec 9914702\nnr_bursts 0\nburst_usec 0\n";
        assert_eq!(stat_times(v2), GroupTime { used_ns: 5_311_884_000, throttled_ns: 9_914_702_000 });
        // Without a quota, and in the root group.
        let bare = "usage_usec 7\nuser_usec 4\nsystem_usec 3\n";
        assert_eq!(stat_times(bare), GroupTime { used_ns: 7_000, throttled_ns: 0 });
        let v1 = "nr_periods 30\nnr_throttled 29\nthrottled_time 1447182340\nnr_bursts 0\nburst_time 0\n";
        assert_eq!(stat_times(v1).throttled_ns, 1_447_182_340);
        assert_eq!(stat_times("throttled_usec 12\n").throttled_ns, 12_000);
        assert_eq!(stat_times("throttled_usec -1\nnonsense\n\n"), GroupTime::default());
    }

    #[test]
    fn the_share_is_that_of_the_window_for_one_thread_and_for_many() {
        let share = |used_ms: u64, throttled_ms: u64| {
            let time = |ms: u64| ms * 1_000_000;
            let of = |used, throttled| GroupSnapshot {
                quota_cpus: Some(0.5),
                times: vec![GroupTime { used_ns: used, throttled_ns: throttled }],
            };
            of(time(5) + time(used_ms), time(9) + time(throttled_ms))
                .throttled_since(&of(time(5), time(9)), 1_000_000_000)
        };
        let is = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-9, "{value} is not {wanted}");
        is(share(1000, 0), 0.0);
        // One busy thread with half a CPU; one that is busy for a tenth.
        is(share(500, 500), 0.5);
        is(share(50, 500), 0.5);
        // Two and four busy threads on as many CPUs share half a CPU.
        is(share(500, 1500), 0.75);
        is(share(500, 3500), 0.875);
        is(share(0, 0), 0.0);
        is(share(0, 60_000), 1.0);
    }

    #[test]
    fn this_process_can_be_read_again_and_again() {
        // It has a group on every kernel with control groups; without, there is nothing to say.
        let Some(mut reader) = GroupReader::open() else { return };
        let (before, after) = (reader.read(), reader.read());
        let share = after.throttled_since(&before, 1_000_000);
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert_eq!(before.quota_cpus, quota_cpus());
    }
}
