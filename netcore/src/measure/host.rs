//! Facts about the machine of an end, by which two results may or may not be compared.
//!
//! All facts are read from the kernel's files when asked for. A fact that cannot be read (a container without sysfs, no
//! permission) is absent; nothing is guessed.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    cgroup,
    kernel::{line, text},
};
pub use crate::sys::WallClock;
use crate::sys::wall_clock;

/// Kernel settings that change the result of a network measurement, by their names below `/proc/sys`.
const SYSCTLS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
];

/// The CPUs that `/proc/stat` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSharesOf {
    Machine,
    Container,
}

/// Facts about a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    pub hostname: Option<String>,
    /// Identity of this boot: equal for two ends on one machine.
    pub boot_id: Option<String>,
    /// Name of the distribution (PRETTY_NAME).
    pub os: Option<String>,
    /// Release of the kernel (`6.12.0`).
    pub kernel_release: Option<String>,
    /// Build of the kernel.
    pub kernel_version: Option<String>,
    /// Machine type of the kernel (`x86_64`).
    pub arch: Option<String>,
    /// Maker and model of the system, from its firmware.
    pub system_model: Option<String>,
    /// Name of the hypervisor; `yes` where only a CPU flag tells that there is one.
    pub hypervisor: Option<String>,
    pub cpu_model: Option<String>,
    pub cpus: Option<u32>,
    /// Online CPUs (`0-7`).
    pub cpus_online: Option<String>,
    /// CPUs that this process may use, by its cpuset and its affinity (`0-1`).
    pub cpus_allowed: Option<String>,
    /// The smallest CPU quota in force on its control group and the visible ancestors, in CPUs.
    pub cpu_quota: Option<f64>,
    /// Whether `/proc/stat`, and with it every CPU share, is the container's own (lxcfs) or the whole machine's.
    pub cpu_shares_of: Option<CpuSharesOf>,
    /// Current clock rate of the first CPU, MHz.
    pub cpu_mhz: Option<f64>,
    /// Highest clock rate of the first CPU, MHz.
    pub cpu_max_mhz: Option<f64>,
    /// Frequency governors in use; several where CPUs differ.
    pub governor: Option<String>,
    pub numa_nodes: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// Clock source behind CLOCK_MONOTONIC.
    pub clocksource: Option<String>,
    /// The wall clock when the facts were read.
    pub wall_clock: Option<WallClock>,
    /// Clocks of network cards and hypervisors that PTP can use, by device (`ptp0`).
    pub ptp_clocks: BTreeMap<String, String>,
    /// Active security modules, in the kernel's order.
    pub security_modules: Option<String>,
    /// Whether SELinux enforces its policy, on kernels with SELinux.
    pub selinux_enforcing: Option<bool>,
    /// Whether AppArmor is enabled, on kernels with AppArmor.
    pub apparmor_enabled: Option<bool>,
    /// Active mitigations of CPU vulnerabilities. They are most of the cost of a system call on some machines.
    pub cpu_mitigations: BTreeMap<String, String>,
    pub congestion_control: Option<String>,
    /// Loaded congestion controls.
    pub congestion_controls: Vec<String>,
    /// Values of the settings in `SYSCTLS`.
    pub sysctls: BTreeMap<String, String>,
}

impl HostFacts {
    /// Identity of this boot.
    pub fn boot_id() -> Option<String> {
        line("/proc/sys/kernel/random/boot_id")
    }

    /// The first 64 of the 122 random bits of [`Self::boot_id`], to compare with another end's.
    pub fn boot_number() -> Option<u64> {
        boot_number(&Self::boot_id()?)
    }

    /// Reads all facts. This takes a few milliseconds, so it belongs before a measurement and never into it.
    pub fn collect() -> Self {
        let uname = nix::sys::utsname::uname().ok();
        let name = |value: &std::ffi::OsStr| value.to_str().map(str::to_owned);
        let cpuinfo = text("/proc/cpuinfo");
        let online = line("/sys/devices/system/cpu/online");
        let sysctls = sysctls();
        Self {
            hostname: uname.as_ref().and_then(|u| name(u.nodename())),
            boot_id: Self::boot_id(),
            os: os_name(),
            kernel_release: uname.as_ref().and_then(|u| name(u.release())),
            kernel_version: uname.as_ref().and_then(|u| name(u.version())),
            arch: uname.as_ref().and_then(|u| name(u.machine())),
            system_model: system_model(),
            hypervisor: hypervisor(&cpuinfo),
            cpu_model: value_of(&cpuinfo, &["model name", "Model", "cpu model", "cpu"]).map(str::to_owned),
            cpus: online.as_deref().and_then(count_cpus),
            cpus_online: online,
            cpus_allowed: value_of(&text("/proc/self/status"), &["Cpus_allowed_list"]).map(str::to_owned),
            cpu_quota: cgroup::quota_cpus(),
            cpu_shares_of: Some(cpu_shares_of(&text("/proc/self/mountinfo"))),
            cpu_mhz: kilohertz("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
                .or_else(|| value_of(&cpuinfo, &["cpu MHz"])?.parse().ok()),
            cpu_max_mhz: kilohertz("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
            governor: governors(),
            numa_nodes: line("/sys/devices/system/node/online").as_deref().and_then(count_cpus),
            memory_bytes: memory_bytes(),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            // All zero: a sandbox refuses the call.
            wall_clock: Some(wall_clock()).filter(|clock| clock.synchronised || clock.max_error_ns > 0),
            ptp_clocks: directory_values("/sys/class/ptp", "clock_name"),
            security_modules: line("/sys/kernel/security/lsm"),
            selinux_enforcing: line("/sys/fs/selinux/enforce").map(|v| v == "1"),
            apparmor_enabled: line("/sys/module/apparmor/parameters/enabled").map(|v| v == "Y"),
            cpu_mitigations: directory_values("/sys/devices/system/cpu/vulnerabilities", "")
                .into_iter()
                .filter(|(_, v)| v != "Not affected")
                .collect(),
            congestion_control: sysctls.get("net.ipv4.tcp_congestion_control").cloned(),
            congestion_controls: super::tcp_info::available_congestion_controls().unwrap_or_default(),
            sysctls,
        }
    }
}

/// First line of every readable file of a folder, or of the file of this name in each of its folders.
fn directory_values(path: &str, file: &str) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(path) else { return BTreeMap::new() };
    let value = |path: PathBuf| line(if file.is_empty() { path } else { path.join(file) });
    entries.flatten().filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), value(entry.path())?))).collect()
}

fn sysctls() -> BTreeMap<String, String> {
    SYSCTLS
        .iter()
        .filter_map(|name| {
            let value = line(format!("/proc/sys/{}", name.replace('.', "/")))?;
            // Triples such as tcp_rmem have tabs between them.
            Some(((*name).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect()
}

fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let value = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

fn system_model() -> Option<String> {
    let dmi = |name: &str| line(format!("/sys/class/dmi/id/{name}"));
    let words: Vec<String> = [dmi("sys_vendor"), dmi("product_name")].into_iter().flatten().collect();
    if words.is_empty() {
        // Boards without DMI describe themselves in the device tree, with a zero byte at the end.
        return line("/proc/device-tree/model").map(|m| m.trim_end_matches('\0').to_owned());
    }
    Some(words.join(" "))
}

fn hypervisor(cpuinfo: &str) -> Option<String> {
    if let Some(kind) = line("/sys/hypervisor/type") {
        return Some(kind);
    }
    let flags = value_of(cpuinfo, &["flags"])?;
    flags.split_whitespace().any(|f| f == "hypervisor").then(|| "yes".to_owned())
}

/// First value of the first of these keys in a file of lines `key: value`.
fn value_of<'t>(text: &'t str, keys: &[&str]) -> Option<&'t str> {
    let value = |key: &str| {
        let values = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() == key);
        values.map(|(_, value)| value.trim()).find(|value| !value.is_empty())
    };
    keys.iter().find_map(|key| value(key))
}

/// lxcfs gives a container a `/proc/stat` of its own, by mounting over the kernel's.
pub(super) fn cpu_shares_of(mounts: &str) -> CpuSharesOf {
    let replaced = mounts.lines().any(|line| line.split(' ').nth(4) == Some("/proc/stat"));
    if replaced { CpuSharesOf::Container } else { CpuSharesOf::Machine }
}

fn kilohertz(path: &str) -> Option<f64> {
    Some(line(path)?.parse::<f64>().ok()? / 1000.0)
}

impl HostFacts {
    /// CPUs that this end may use where they are fewer than the machine's: by cpuset or affinity, and by its quota.
    pub fn fewer_cpus(&self) -> (Option<&str>, Option<f64>) {
        let all = self.cpus.unwrap_or(u32::MAX);
        let allowed = self.cpus_allowed.as_deref().filter(|list| count_cpus(list).is_some_and(|count| count < all));
        (allowed, self.cpu_quota.filter(|quota| *quota < f64::from(all)))
    }
}

/// Length of a kernel list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |sum, part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        sum.checked_add(high.checked_sub(low)?.checked_add(1)?)
    })
}

fn governors() -> Option<String> {
    let mut names: Vec<String> = fs::read_dir("/sys/devices/system/cpu/cpufreq")
        .ok()?
        .flatten()
        .filter_map(|policy| line(policy.path().join("scaling_governor")))
        .collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| names.join(","))
}

fn memory_bytes() -> Option<u64> {
    let text = text("/proc/meminfo");
    value_of(&text, &["MemTotal"])?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `None`: it is not the 32 hexadecimal digits of a UUID.
fn boot_number(boot_id: &str) -> Option<u64> {
    let digits: String = boot_id.chars().filter(|c| *c != '-').collect();
    u64::from_str_radix(digits.get(..16).filter(|_| digits.len() == 32)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let facts = HostFacts::collect();
        assert!(facts.kernel_release.as_deref().is_some_and(|r| r.contains('.')));
        assert_eq!(facts.hostname, fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|h| h.trim().to_owned()));
        let online = std::thread::available_parallelism().unwrap().get();
        assert!(facts.cpus.unwrap() as usize >= online);
        assert!(facts.memory_bytes.unwrap() > 1 << 24);
        assert_eq!(facts.congestion_control.as_ref(), facts.sysctls.get("net.ipv4.tcp_congestion_control"));
        assert!(facts.congestion_controls.contains(facts.congestion_control.as_ref().unwrap()));
        assert!(!facts.sysctls["net.ipv4.tcp_rmem"].contains('\t'));
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }

    #[test]
    fn the_number_of_a_boot_is_the_begin_of_its_id() {
        assert_eq!(boot_number("0123abcd-4567-8901-2345-6789abcdef01"), Some(0x0123_abcd_4567_8901));
        for torn in ["", "0123abcd-4567-8901", "0123abcd-4567-8901-2345-6789abcdef0g1", "äöü"] {
            assert_eq!(boot_number(torn), None, "{torn}");
        }
        assert!(HostFacts::boot_number().is_some_and(|number| Some(number) == HostFacts::boot_number()));
    }

    #[test]
    fn a_part_of_the_machine_is_told_from_the_whole() {
        let facts = |allowed: &str, cpu_quota| HostFacts {
            cpus: Some(4),
            cpus_allowed: Some(allowed.to_owned()),
            cpu_quota,
            ..HostFacts::default()
        };
        assert_eq!(facts("0-3", None).fewer_cpus(), (None, None));
        assert_eq!(facts("0-3", Some(8.0)).fewer_cpus(), (None, None));
        assert_eq!(facts("1,3", Some(0.5)).fewer_cpus(), (Some("1,3"), Some(0.5)));
        assert_eq!(value_of("Name:\tx\nCpus_allowed_list:\t0-1\n", &["Cpus_allowed_list"]), Some("0-1"));
        let lxc = "1 2 0:50 /proc/stat /proc/stat rw - fuse.lxcfs lxcfs rw\n";
        assert_eq!(cpu_shares_of(lxc), CpuSharesOf::Container);
        assert_eq!(cpu_shares_of("1 2 0:5 / /proc rw - proc proc rw\n"), CpuSharesOf::Machine);
    }

    #[test]
    fn kernel_lists_are_counted() {
        assert_eq!(count_cpus("0-3,8"), Some(5));
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("3-1"), None);
        assert_eq!(count_cpus(""), None);
    }

    #[test]
    fn a_cpus_model_is_found_under_each_architectures_name() {
        let x86 = "processor\t: 0\nmodel\t\t: 106\nmodel name\t: Xeon\nflags\t\t: fpu hypervisor\n";
        assert_eq!(value_of(x86, &["model name", "Model"]), Some("Xeon"));
        let power = "processor\t: 0\ncpu\t\t: POWER9\n";
        assert_eq!(value_of(power, &["model name", "Model", "cpu"]), Some("POWER9"));
        assert_eq!(value_of("", &["model name"]), None);
    }
}
