//! Both ends in a control group with a quota of half a CPU, beside a busy neighbour.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    needs::skip,
    program::{Folder, Serve, command, end, number, of, plumb, rows},
};

/// A control group with a quota, or in version 1 one in each hierarchy that it needs. It goes when this is dropped. Its weight
/// is so large that it uses up its quota on a busy machine, too.
struct Quota(Vec<PathBuf>);

impl Quota {
    /// Makes one with half a CPU; `Err`: why this machine has none to give.
    fn half_a_cpu() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("plumb-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let top = Path::new("/sys/fs/cgroup");
        let write = |file: PathBuf, text: &str| {
            std::fs::write(&file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
        };
        let controllers = std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
        let v2 = controllers.split_whitespace().any(|controller| controller == "cpu");
        // Version 1 accounts for the time used in a hierarchy of its own.
        let parents = if v2 { vec![top.to_owned()] } else { vec![top.join("cpu"), top.join("cpuacct")] };
        let mut made = Self(Vec::new());
        for parent in parents.iter().filter(|parent| parent.exists()) {
            let group = parent.join(&name);
            std::fs::create_dir(&group).map_err(|e| format!("cannot make {}: {e}", group.display()))?;
            made.0.push(group);
        }
        let Some(group) = made.0.first() else { return Err("no control group can limit CPUs here".into()) };
        if v2 {
            write(top.join("cgroup.subtree_control"), "+cpu")?;
            write(group.join("cpu.max"), "50000 100000")?;
            write(group.join("cpu.weight"), "10000")?;
        } else {
            write(group.join("cpu.cfs_period_us"), "100000")?;
            write(group.join("cpu.cfs_quota_us"), "50000")?;
            write(group.join("cpu.shares"), "262144")?;
        }
        Ok(made)
    }

    /// The time for which the kernel has held the group back, summed over CPUs, seconds.
    fn throttled_s(&self) -> f64 {
        let stat = std::fs::read_to_string(self.0[0].join("cpu.stat")).unwrap();
        let field = |name: &str| stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok());
        // Version 2 counts microseconds, version 1 nanoseconds.
        field("throttled_usec ").map_or_else(|| field("throttled_time ").unwrap() / 1e9, |us| us / 1e6)
    }

    /// A command that begins by joining the group.
    fn inside(&self, command: &Command) -> Command {
        let join = |group: &PathBuf| format!("echo $$ > '{}/cgroup.procs' && ", group.display());
        let joins = self.0.iter().map(join).collect::<Vec<_>>().concat();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(joins + "exec \"$@\"").arg("sh").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    }

    /// A busy process in it: it uses up what the ends leave of the quota, also where other load keeps them from it.
    fn busy(&self) -> Busy {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done"]);
        Busy(self.inside(&shell).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Moves a process into it.
    fn take(&self, pid: i32) {
        self.0.iter().for_each(|group| std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap());
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Fails while a process is in it; its processes have ended by then.
        self.0.iter().for_each(|group| drop(std::fs::remove_dir(group)));
    }
}

/// A process that ends with this.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_quota_shows_in_rows_notes_and_facts() {
    let quota = match Quota::half_a_cpu() {
        Ok(quota) => quota,
        Err(why) => return skip(&why),
    };
    let neighbour = quota.busy();
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 3s}");
    let args = ["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"];
    let before = quota.throttled_s();
    let ran = end(quota.inside(&command(&args)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let throttled = quota.throttled_s() - before;
    drop(neighbour);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let row = of(&table, "iteration")[0];
    for side in ["local", "remote"] {
        // The window is a part of what the kernel counted around the run. Beside other load, or on a machine that stands still,
        // the group wants less.
        let share = number(row, &format!("{side}_throttled_ratio"));
        let held_back = share * number(row, "elapsed_s");
        assert!(share > 0.0 && share <= 1.0, "{side}: {share}");
        assert!(held_back <= throttled + 0.1, "{side}: held back for {held_back} s, the kernel counted {throttled} s");
        // The neighbour and the ends share half a CPU: plumb itself used less than that. A quota is kept over periods of 100 ms,
        // of which the window may hold some more.
        let used = number(row, &format!("{side}_process_cpus"));
        assert!(used > 0.0 && used < 0.75, "{side}: {used}");
    }
    for end in ["near", "far"] {
        let said = format!("the {end} end was held back by its CPU quota of 0.5 CPUs for up to ");
        assert!(ran.stdout.contains(&said) || ran.stderr.contains(&said), "{}\n{}", ran.stdout, ran.stderr);
    }
    let record = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let facts = &record["hosts"]["local"]["facts"];
    assert_eq!(facts["cpu_quota"], 0.5, "{facts:#}");
    assert!(facts["cpus_allowed"].is_string() && facts["cpu_shares_of"] == "machine", "{facts:#}");
    assert!(record["notes"].to_string().contains("CPU shares are those of the whole machine"), "{:#}", record["notes"]);
}

#[test]
fn the_end_with_a_quota_is_named() {
    let quota = match Quota::half_a_cpu() {
        Ok(quota) => quota,
        Err(why) => return skip(&why),
    };
    let far = Serve::start(&[]);
    quota.take(far.pid());
    let neighbour = quota.busy();
    let folder = Folder::new();
    let plan = folder.plan(
        &format!("hosts: {{far: {{address: 127.0.0.1, control: \"{}\"}}}}\ndefaults: {{to: far}}", far.address),
        "  bulk: {workload: tcp_stream, duration: 3s, streams: 2}",
    );
    let before = quota.throttled_s();
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    let throttled = quota.throttled_s() - before;
    // Dropped before the group, which cannot go while a process is in it.
    drop((far, neighbour));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    let row = of(&table, "iteration")[0];
    let share = number(row, "remote_throttled_ratio");
    assert!(share > 0.0 && share <= 1.0, "{share}");
    assert!(share * number(row, "elapsed_s") <= throttled + 0.1, "{share}, and the kernel counted {throttled} s");
    let record = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    assert!(record.contains("the far end was held back by its CPU quota of 0.5 CPUs"), "{record}");
    assert!(!record.contains("the near end was held back by its CPU quota of 0.5 CPUs"), "{record}");
}
