//! Programs that a plan starts: commands, hooks, and the launchers of a host's daemon (`launch` of a host).

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Word, argv_or_map, either};
use crate::plan::{
    quantity::{Time, word},
    ranges,
};

/// A program that prints numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments; no shell. It runs on this machine, at `from`.
    pub run: Vec<Word>,
    /// The named importer that reads its output (`iperf3`, `netperf`, …).
    pub import: Option<String>,
    /// A regular expression whose named groups are metrics (`throughput`, `latency.p99`), or numeric results columns; each
    /// of its matches is a line of results.
    pub regex: Option<String>,
    /// The unit of a group whose number is printed without one: `{transaction_rate: M/s}`.
    pub units: Option<BTreeMap<String, String>>,
}

/// Programs around the measurement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Once before the first iteration of a case.
    pub setup: Option<Hook>,
    /// Before each iteration.
    pub prepare: Option<Hook>,
    /// During each iteration, so long `after` the begin of its measure phase.
    pub during: Option<Hook>,
    /// After each iteration.
    pub conclude: Option<Hook>,
    /// Once after the last iteration of a case, whatever happened.
    pub cleanup: Option<Hook>,
}

impl Hooks {
    /// The hooks by name, in the order in which they run.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        let around = [("setup", &self.setup), ("prepare", &self.prepare), ("during", &self.during)];
        let after = [("conclude", &self.conclude), ("cleanup", &self.cleanup)];
        around.into_iter().chain(after).filter_map(|(name, hook)| Some((name, hook.as_ref()?)))
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

/// A program on a host: its argv, or a map with details.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// The program and its arguments; no shell.
    pub run: Vec<String>,
    /// The host it runs on, or a range of hosts; left out: this machine.
    pub on: Option<String>,
    /// The longest it may take; 30 s by default.
    pub timeout: Option<Time>,
    /// Of `during`: when it starts, after the begin of the measure phase; at once by default.
    pub after: Option<Time>,
}

impl Hook {
    /// The hosts it runs on; `None`: this machine. Ranges were checked when the plan was read.
    pub fn places(&self) -> Option<Vec<String>> {
        Some(ranges::names(self.on.as_deref()?).unwrap_or_default())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HookDetail {
    /// The program and its arguments; no shell.
    run: Vec<Word>,
    /// The host it runs on, with a daemon that allows it, or a network namespace here; a range: each of them; left out: this
    /// machine.
    on: Option<String>,
    /// The longest it may take; 30 s by default.
    timeout: Option<Time>,
    /// Of `during`: when it starts, after the begin of the measure phase; at once by default.
    after: Option<Time>,
}

argv_or_map!(
    Hook,
    HookDetail,
    "a program with its arguments",
    "{run, on, timeout, after}",
    |run| Hook { run, on: None, timeout: None, after: None },
    |it| Hook { run: it.run.into_iter().map(|word| word.0).collect(), on: it.on, timeout: it.timeout, after: it.after }
);

/// Whether a test is skipped, or why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Without a reason.
    Plain(bool),
    /// For this reason.
    Because(String),
}

word!(
    Skip as "Skip",
    |text| match text {
        "true" => Ok::<_, String>(Skip::Plain(true)),
        "false" => Ok(Skip::Plain(false)),
        _ if ["no", "off", "0", "false", "yes", "on", "1", "true"].contains(&&*text.to_lowercase()) => {
            Err(format!("`{text}` is no reason to skip a test: write true, false, or the reason"))
        }
        _ => Ok(Skip::Because(text.to_owned())),
    },
    {"description": "true, or the reason", "type": ["boolean", "string"]}
);

/// `control` of a host whose control connections go over the launcher's own.
pub const BY_LAUNCHER: &str = "launcher";

/// `control` of a host whose control connections go to the address that carries the traffic.
pub const BY_ADDRESS: &str = "address";

/// The engine that starts the daemon of a host: exactly one of the keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Launch {
    pub ssh: Option<Ssh>,
    pub command: Option<CommandLaunch>,
    pub slurm: Option<Slurm>,
    pub mpi: Option<Mpi>,
    pub kubernetes: Option<Kubernetes>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LaunchDetail {
    /// The user's own `ssh`: configuration, agents and keys are theirs.
    ssh: Option<Ssh>,
    /// Any command that carries standard input to a program on the host.
    command: Option<CommandLaunch>,
    /// One `srun` for all nodes of an allocation: one end per node.
    slurm: Option<Slurm>,
    /// One `mpirun` for all ranks: one end per rank.
    mpi: Option<Mpi>,
    /// One pod per end, and `kubectl exec` into each.
    kubernetes: Option<Kubernetes>,
}

/// How `ssh` reaches the host. What is left out is taken from the user's ssh configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ssh {
    /// Name or address for ssh; by default the host's `address`, else its name in the plan.
    pub host: Option<String>,
    /// User there.
    pub user: Option<String>,
    /// Port of its sshd.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Configuration file for `ssh -F`.
    pub config: Option<PathBuf>,
    /// Jump host for `ssh -J`.
    pub jump: Option<String>,
    /// The program there; `plumb` by default.
    pub program: Option<String>,
    /// Send this program along and leave nothing behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

/// A command that carries standard input to a host. The program and its arguments are added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandLaunch {
    /// The command and its arguments; `{host}` is the host's name and `{address}` its address.
    pub run: Vec<String>,
    pub program: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommandDetail {
    /// The command and its arguments; `{host}` is the host's name and `{address}` its address.
    run: Vec<Word>,
    /// The program there; `plumb` by default.
    program: Option<String>,
    /// Send this program along and leave nothing behind.
    #[serde(default)]
    copy: bool,
}

/// An allocation of Slurm, or the one that the run is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Number of nodes, each an end; inside an allocation all of its nodes by default.
    #[schemars(range(min = 1))]
    pub nodes: Option<u32>,
    /// Further arguments of `srun`: partition, time, account.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The longest wait for the allocation; 10 min by default.
    pub wait: Option<Time>,
    /// The program there; this program's own path by default.
    pub program: Option<String>,
    /// Send this program along and leave nothing behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

/// Ranks of an MPI launcher that passes its standard input to all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mpi {
    /// The launcher and its arguments, with the number of ranks (`-np 4`).
    pub run: Vec<String>,
    /// Number of ranks, each an end; by default what `-np` or `-n` of `run` says.
    #[schemars(range(min = 1))]
    pub ranks: Option<u32>,
    /// The file of the MPI library, for tests over MPI; by default it is found by the launcher and the loader.
    pub library: Option<String>,
    /// The program there; this program's own path by default.
    pub program: Option<String>,
    /// Send this program along and leave nothing behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

/// Pods of the cluster that `kubectl` reaches with the user's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// Number of pods, each an end and on a node of its own; 1 by default.
    #[schemars(range(min = 1))]
    pub pods: Option<u32>,
    /// Image with the program, or with `copy` one with a shell and its tools.
    pub image: String,
    /// Namespace; the context's own by default.
    pub namespace: Option<String>,
    /// Labels that the nodes must have.
    pub nodes: Option<BTreeMap<String, Word>>,
    /// Whether the pods use their node's network instead of the cluster's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// Further arguments of every `kubectl`: context, credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The longest wait for the pods; 2 min by default.
    pub wait: Option<Time>,
    /// The longest life of the pods: the cluster ends them then, also in the middle of a run; 4 h by default.
    pub deadline: Option<Time>,
    /// The program in the image; `plumb` by default.
    pub program: Option<String>,
    /// Send this program along and leave nothing behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

either!(
    Launch,
    LaunchDetail,
    "ssh, or a map with one of ssh, command, slurm, mpi and kubernetes",
    "ssh, slurm, or a map with one of ssh, command, slurm, mpi and kubernetes",
    {"enum": ["ssh", "slurm"]},
    deserialize_any,
    {
        fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Launch, E> {
            match word {
                "ssh" => Ok(Launch { ssh: Some(Ssh::default()), ..Launch::default() }),
                "slurm" => Ok(Launch { slurm: Some(Slurm::default()), ..Launch::default() }),
                _ => Err(E::unknown_variant(word, &["ssh", "slurm"])),
            }
        }
    },
    |it| Launch { ssh: it.ssh, command: it.command, slurm: it.slurm, mpi: it.mpi, kubernetes: it.kubernetes }
);

argv_or_map!(
    CommandLaunch,
    CommandDetail,
    "a command with its arguments",
    "{run, program, copy}",
    |run| CommandLaunch { run, ..CommandLaunch::default() },
    |it| CommandLaunch { run: it.run.into_iter().map(|word| word.0).collect(), program: it.program, copy: it.copy }
);
