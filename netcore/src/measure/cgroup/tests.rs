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
    assert_eq!(levels, ["/sys/fs/cgroup/system.slice/plumb.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"]);
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
fn a_hierarchy_that_is_not_mounted_is_not_replaced_by_an_empty_one() {
    let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    assert_eq!(found("2:cpu:/batch\n0::/\n", unified), None);
    assert!(found("0::/\n", unified).is_some());
}

#[test]
fn the_mount_that_shows_the_group_is_used() {
    let mounts = "50 1 0:30 /docker/4a2 /mnt/other rw - cgroup2 cgroup2 rw\n\
                  51 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let point = "/sys/fs/cgroup".to_owned();
    assert_eq!(found("0::/batch\n", mounts), Some((point.clone(), format!("{point}/batch"))));
}

/// A zero that nothing supports would say that no quota disturbed the measurement.
#[test]
fn an_unknown_share_is_not_zero() {
    let root = tempfile::tempdir().unwrap();
    let (top, own) = (root.path().to_owned(), root.path().join("job"));
    let write = |folder: &Path, name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let folders = |v2| Folders { top: top.clone(), own: own.clone(), accounting: None, v2 };
    assert!(GroupReader::of(&folders(true)).is_none(), "its folder is not there");
    std::fs::create_dir(&own).unwrap();
    write(&own, "cpu.stat", "usage_usec 7\n");
    let mut at_root = GroupReader::of(&folders(true)).unwrap();
    assert_eq!(at_root.read().unwrap().times, [], "nothing can hold it back");
    // Version 1 marks its root, and version 2 the other groups.
    assert!(GroupReader::of(&folders(false)).is_none());
    write(&top, "release_agent", "");
    assert!(GroupReader::of(&folders(false)).is_some());
    write(&top, "cgroup.type", "domain\n");
    assert!(GroupReader::of(&folders(true)).is_none(), "a quota of a hidden group may hold it back");
    // A group without the controller: the next one above has it.
    write(&own, "cpu.stat.local", "");
    write(&top, "cpu.stat", "usage_usec 9\nthrottled_usec 0\n");
    write(&top, "cpu.stat.local", "throttled_usec 5\n");
    let mut seen = GroupReader::of(&folders(true)).unwrap();
    assert_eq!(seen.read().unwrap().times, [GroupTime { used_ns: 9_000, throttled_ns: 5_000 }]);
}

#[test]
fn a_visible_quota_is_enough() {
    let own = tempfile::tempdir().unwrap();
    for (name, text) in [("cgroup.type", "domain"), ("cpu.max", "50000 100000"), ("cpu.stat", "throttled_usec 3\n")] {
        std::fs::write(own.path().join(name), text).unwrap();
    }
    let folders = Folders { top: own.path().into(), own: own.path().into(), accounting: None, v2: true };
    let seen = GroupReader::of(&folders).unwrap().read().unwrap();
    assert_eq!((seen.quota_cpus, seen.times[0].throttled_ns), (Some(0.5), 3_000));
}

#[test]
fn separate_accounting_is_used_only_for_the_same_group() {
    let mounts = "32 31 0:29 / /c/cpu rw - cgroup cgroup rw,cpu\n33 31 0:30 / /c/acct rw - cgroup cgroup rw,cpuacct\n";
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
        of(time(5) + time(used_ms), time(9) + time(throttled_ms)).throttled_since(&of(time(5), time(9)), 1_000_000_000)
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
    // Two CPUs, each held back for half of the time and else idle but for 0.05 s: at most, since it is 0.5.
    is(share(100, 1000), 1000.0 / 1100.0);
}

#[test]
fn this_process_can_be_read_again_and_again() {
    // Kernels without control groups skip this test.
    let Some(mut reader) = GroupReader::open() else { return };
    let (before, after) = (reader.read().unwrap(), reader.read().unwrap());
    let share = after.throttled_since(&before, 1_000_000);
    assert!((0.0..=1.0).contains(&share), "{share}");
    assert_eq!(before.quota_cpus, quota_cpus());
}
