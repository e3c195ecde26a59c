//! From a host of the plan to the launcher's command, and advice about the launcher's errors.

use std::{
    collections::BTreeSet,
    env, io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use super::{
    kubernetes::{self, Pod},
    remote::{Copy, NOT_RECEIVED, Remote},
};
use crate::plan::model::{BY_LAUNCHER, CommandLaunch, Host, Launch, Mpi, Slurm, Ssh};

/// Default wait for a daemon. A copy of the program over a slow line is part of it.
const WAIT: Duration = Duration::from_mins(1);

/// Default wait for an allocation.
const WAIT_IN_QUEUE: Duration = Duration::from_mins(10);

/// One launcher process.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// The engine's key in the plan.
    pub engine: &'static str,
    /// Names of the ends that it brings, by their rank.
    pub ends: Vec<String>,
    pub argv: Vec<String>,
    /// The program that travels first.
    pub copy: Option<Copy>,
    /// Whether control connections are relayed.
    pub relay: bool,
    /// Whether standard input reaches all ends; else each makes its key itself, and SIGTERM ends them.
    pub input: bool,
    /// The longest wait for its ends.
    pub wait: Duration,
    /// Words of the launcher after which it is not waited for.
    pub hopeless: Option<&'static str>,
    /// A command that frees what the end of the process does not.
    pub cleanup: Option<Vec<String>>,
    /// The host that the launcher connects to, by name or address.
    pub reaches: Option<String>,
    /// A command that shows the cause of an error to the user.
    pub check: Option<String>,
    /// The pod that it needs: ready before it starts, and kept until it has ended.
    pub pod: Option<Pod>,
}

/// Words of `srun` about a job that its partition cannot hold.
pub const TOO_LARGE: &str = "Requested partition configuration not available";

/// Options of the run for daemons that it starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct DaemonOptions {
    /// Whether hooks may run at the far ends.
    pub hooks: bool,
}

/// A host whose daemons are to be started.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    pub host: &'a Host,
    /// Whether they are ranks of tests over MPI.
    pub over_mpi: bool,
    /// The files that they read for the plan's tests. They serve no others.
    pub files: BTreeSet<&'a Path>,
}

impl Recipe {
    /// The host that ssh's own configuration gives to the destination: `ssh -G` prints it, and connects to nothing.
    pub fn configured_host(&self) -> Option<String> {
        let end = self.argv.iter().position(|word| word == "--").filter(|_| self.engine == "ssh")?;
        let mut ssh = Command::new(&self.argv[0]);
        ssh.args(&self.argv[1..end]).arg("-G").args(self.argv.get(end..end + 2)?);
        let output = ssh.stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.lines().find_map(|line| Some(line.strip_prefix("hostname ")?.trim().to_owned()))
    }

    /// The recipes of a host with `launch`: one for all of its ends, or one for each. `name` is its name, or that of its
    /// group.
    pub fn of(
        name: &str,
        ends: Vec<String>,
        Asked { host, over_mpi, files }: Asked<'_>,
        launch: &Launch,
        allowed: DaemonOptions,
    ) -> Result<Vec<Self>, String> {
        // Few clusters let others reach their pods: there the launcher's connection is the default.
        let control = host.control.as_deref().or(launch.kubernetes.as_ref().map(|_| BY_LAUNCHER));
        let relay = control == Some(BY_LAUNCHER);
        let mut serve = vec!["serve".to_owned(), "--launched".to_owned()];
        serve.extend(relay.then(|| "--relay".to_owned()));
        serve.extend(files.iter().map(|file| format!("--allow-files={}", file.display())));
        serve.extend(allowed.hooks.then(|| "--allow-hooks".to_owned()));
        let recipe = match launch {
            Launch { ssh: Some(ssh), .. } => of_ssh(name, host, ssh, serve),
            Launch { command: Some(command), .. } => of_command(name, host, command, serve),
            Launch { slurm: Some(slurm), .. } => of_slurm(ends.len(), slurm, serve),
            Launch { mpi: Some(mpi), .. } => {
                if over_mpi {
                    serve.push("--mpi".to_owned());
                    serve.extend(mpi.library.iter().map(|file| format!("--mpi-library={file}")));
                }
                of_mpi(mpi, over_mpi, serve)
            }
            Launch { kubernetes: Some(options), .. } => {
                let remote = remote(options.program.as_ref(), "plumb", options.copy, serve)?;
                let of_pod = |pod: Pod| Self {
                    ends: vec![pod.end().to_owned()],
                    relay,
                    check: Some(pod.check()),
                    pod: Some(pod.clone()),
                    ..Self::new("kubernetes", [pod.exec(), remote.argv()].concat(), remote.copy.clone())
                };
                return Ok(kubernetes::pods(ends, options, &remote)?.into_iter().map(of_pod).collect());
            }
            Launch { .. } => Err("launch names no engine".to_owned()),
        }?;
        Ok(vec![Self { ends, relay, ..recipe }])
    }

    /// The same launcher, which sends another program.
    pub fn sending(&self, copy: Copy) -> Self {
        let Some(old) = &self.copy else { return self.clone() };
        let argv = self.argv.iter().map(|word| word.replace(&old.label, &copy.label)).collect();
        Self { argv, copy: Some(copy), ..self.clone() }
    }

    pub fn new(engine: &'static str, argv: Vec<String>, copy: Option<Copy>) -> Self {
        Self { engine, argv, copy, input: true, wait: WAIT, ..Self::default() }
    }
}

fn remote(program: Option<&String>, default: &str, copy: bool, serve: Vec<String>) -> Result<Remote, String> {
    let read = |error: io::Error| format!("cannot read this program to send it: {error}");
    let copy = if copy { Some(Copy::of_this_program().map_err(read)?) } else { None };
    Ok(Remote { program: program.map_or(default, String::as_str).to_owned(), copy, args: serve })
}

/// This program's own path: clusters share their file systems.
fn own_path() -> String {
    env::current_exe().map_or_else(|_| "plumb".to_owned(), |path| path.display().to_string())
}

/// Options come before those of the user's configuration: no terminal, no questions, and an end when the other side is
/// silent for 8 s.
const SSH_OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "RequestTTY=no",
    "EscapeChar=none",
    "ServerAliveInterval=4",
    "ServerAliveCountMax=2",
    "ConnectTimeout=10",
];

fn of_ssh(name: &str, host: &Host, ssh: &Ssh, serve: Vec<String>) -> Result<Recipe, String> {
    let mut argv: Vec<String> = vec!["ssh".into()];
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    if let Some(config) = &ssh.config {
        add(&["-F", &config.display().to_string()]);
    }
    if let Some(port) = ssh.port {
        add(&["-p", &port.to_string()]);
    }
    if let Some(user) = &ssh.user {
        add(&["-l", user]);
    }
    if let Some(jump) = &ssh.jump {
        add(&["-J", jump]);
    }
    let address = host.address.as_deref();
    let destination = ssh.host.as_deref().or(address).unwrap_or(name);
    if destination.starts_with('-') {
        return Err(format!("`{destination}` is no host for ssh"));
    }
    let check = format!("{} {destination} true", argv.join(" "));
    for option in SSH_OPTIONS {
        argv.extend(["-o".to_owned(), option.to_owned()]);
    }
    let remote = remote(ssh.program.as_ref(), "plumb", ssh.copy, serve)?;
    argv.extend(["--".to_owned(), destination.to_owned(), remote.line()]);
    let reaches = Some(destination.to_owned());
    Ok(Recipe { check: Some(check), reaches, ..Recipe::new("ssh", argv, remote.copy) })
}

fn of_command(name: &str, host: &Host, command: &CommandLaunch, serve: Vec<String>) -> Result<Recipe, String> {
    let remote = remote(command.program.as_ref(), "plumb", command.copy, serve)?;
    let address = host.address.as_deref().unwrap_or(name);
    let filled = command.run.iter().map(|word| word.replace("{host}", name).replace("{address}", address));
    let argv: Vec<String> = filled.chain(remote.argv()).collect();
    Ok(Recipe::new("command", argv, remote.copy))
}

/// One step for all nodes: in the allocation that this run is in, else in one of its own, which ends with it.
fn of_slurm(nodes: usize, slurm: &Slurm, serve: Vec<String>) -> Result<Recipe, String> {
    let remote = remote(slurm.program.as_ref(), &own_path(), slurm.copy, serve)?;
    let inside = env::var_os("SLURM_JOB_ID").is_some();
    let job = format!("plumb-{}", uuid::Uuid::now_v7().simple());
    let mut argv: Vec<String> =
        ["srun", "--ntasks-per-node=1", "--input=all", "--label", "--mpi=none", "--cpu-bind=none"]
            .map(str::to_owned)
            .into();
    argv.extend([format!("--nodes={nodes}"), format!("--ntasks={nodes}"), format!("--job-name={job}")]);
    argv.extend(inside.then(|| "--overlap".to_owned()));
    argv.extend(slurm.args.iter().cloned());
    argv.extend(remote.argv());
    let cleanup = (!inside).then(|| vec!["scancel".to_owned(), format!("--name={job}")]);
    let wait = slurm.wait.map_or(WAIT_IN_QUEUE, |wait| wait.0);
    // Slurm keeps a job in its queue that the partition cannot hold: nodes may come back. Who waits for them says so.
    let hopeless = slurm.wait.is_none().then_some(TOO_LARGE);
    Ok(Recipe { wait, hopeless, cleanup, ..Recipe::new("slurm", argv, remote.copy) })
}

fn of_mpi(mpi: &Mpi, over_mpi: bool, serve: Vec<String>) -> Result<Recipe, String> {
    let remote = remote(mpi.program.as_ref(), &own_path(), mpi.copy, serve)?;
    let Some((program, rest)) = mpi.run.split_first() else { return Err("launch.mpi.run is empty".to_owned()) };
    let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let version = version.map_err(|error| format!("`{program}` did not start: {error}; it must be installed here"))?;
    let said = String::from_utf8_lossy(&version.stdout);
    // Only Open MPI gives its standard input to all ranks.
    let gives_input = ["Open MPI", "OpenRTE", "Open RTE"].iter().any(|name| said.contains(name));
    // But it gives none to ranks on the launcher's own host (seen with 4.1.4), where tests over MPI usually begin.
    let input = gives_input && (!over_mpi || remote.copy.is_some());
    if !gives_input && remote.copy.is_some() {
        return Err(format!(
            "`{program}` gives its standard input to one rank only, so the program cannot be sent along: leave `copy` out, and \
             install it on every host"
        ));
    }
    let mut remote = remote;
    let mut argv = vec![program.clone()];
    if input {
        argv.extend(["--stdin".to_owned(), "all".to_owned()]);
    } else {
        remote.args.push("--own-key".to_owned());
    }
    let check = Some([&mpi.run[..], &["hostname".to_owned()]].concat().join(" "));
    let argv = [argv, rest.to_vec(), remote.argv()].concat();
    Ok(Recipe { input, check, ..Recipe::new("mpi", argv, remote.copy) })
}

/// Begins what the far end says where it cannot receive the program.
const REFUSED: &str = "plumb-copy:";

/// Words of launchers and login shells, and what to do. The first that is found counts.
const WORDS: [(&str, &str); 37] = [
    (
        "not enough slots",
        "the launcher has fewer slots than ranks: say how many each host has (-host NAME:SLOTS, or a hostfile), or let them share \
         CPUs with --oversubscribe in `run`",
    ),
    (
        "unable to change wdir",
        "the launcher starts programs in the folder that you are in, and that host has none of this name: start from one that all \
         hosts have, or add `-wdir, /` to `run`",
    ),
    (
        "an attempt to run as root",
        "Open MPI runs as root only if told to: add --allow-run-as-root to `run`, or set OMPI_ALLOW_RUN_AS_ROOT=1 and \
         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is another one than you know: compare it, then run {check} by hand",
    ),
    ("Host key for", "its host key is another one than you know: compare it, then run {check} by hand"),
    ("host key is known for", "its host key is unknown here: run {check} by hand and compare it"),
    ("Host key verification failed", "its host key is unknown here or has changed: run {check} by hand and compare it"),
    (
        "Permission denied (",
        "it refused your keys, and no password is asked for: load a key into your agent, and try {check}",
    ),
    ("Too many authentication failures", "it refused your keys: name one in the configuration of ssh, and try {check}"),
    ("Could not resolve hostname", "the name is unknown here: check it with {check}"),
    (
        "kex_exchange_identification",
        "its sshd refused another connection: raise MaxStartups there, or start fewer hosts",
    ),
    ("administratively prohibited", "its sshd forbids this: check its configuration"),
    ("open failed", "its sshd refused another session on a shared connection: raise MaxSessions there"),
    ("Connection refused", "nothing listens there: check the address and the port with {check}"),
    ("Connection timed out", "nothing answered: check the address, the port and the firewall with {check}"),
    ("No route to host", "nothing answered: check the address with {check}"),
    ("GLIBC_", "its C library is older than the program needs: use a release, which starts from glibc 2.28 on"),
    ("--launched", "the program there is older: install this version, or send this one along with `copy: true`"),
    (REFUSED, "see the line above"),
    (TOO_LARGE, "the partition lacks such nodes: check `nodes` and `args`, or say in `wait` how long to wait for them"),
    ("queued and waiting", "the allocation did not come: raise `wait`, or ask for less in `args`"),
    ("Unable to allocate", "Slurm refused the allocation: check `nodes` and `args`"),
    (
        "is forbidden",
        "your account may not do this in that namespace: deploy/kubernetes/role.yaml lists the rights that it needs; or name \
         another `namespace` or context (`args`)",
    ),
    ("was refused - did you specify the right host", "no cluster answers: check your context with {check}"),
    ("get current server API group list", "no cluster answers: check your context with {check}"),
    ("Unable to connect to the server", "no cluster answers: check your context with {check}"),
    ("You must be logged in to the server", "the cluster does not know your credentials: check them with {check}"),
    ("context was not found", "your kubeconfig has no such context: kubectl config get-contexts lists them"),
    ("context \"", "your kubeconfig has no such context: kubectl config get-contexts lists them"),
    ("namespaces \"", "the cluster has no such namespace: check `namespace`"),
    (
        "Failed to pull image",
        "the node cannot pull the image: check `image` as the nodes must name it, and their credentials for its registry",
    ),
    ("ImagePull", "the node cannot get the image: check `image` as the nodes must name it"),
    ("InvalidImageName", "check `image`"),
    ("Unschedulable", "no node fits: check `nodes`, and the cluster's free CPUs and taints; or raise `wait`"),
    (
        "executable file not found",
        "the image has no such program: name its path with `program`, or send this one along with `copy: true`",
    ),
    (
        "unable to start container process",
        "the image has no such program: name its path with `program`, or send this one along with `copy: true`",
    ),
    (
        "command terminated with exit code 137",
        "the pod was ended: by its deadline (`deadline`), by its node for lack of memory, or by somebody who deleted it",
    ),
];

/// A sentence for an error, if its cause is known.
pub fn of(recipe: &Recipe, status: Option<ExitStatus>, lines: &[String]) -> Option<String> {
    let code = status.and_then(|status| status.code());
    let said = |word: &str| lines.iter().any(|line| line.contains(word));
    let check =
        recipe.check.as_ref().map_or_else(|| format!("{} by hand", recipe.argv[0]), |check| format!("`{check}`"));
    let found = WORDS.iter().find(|(word, _)| said(word)).map(|(_, advice)| advice.replace("{check}", &check));
    found.or_else(|| match code {
        Some(127) => Some(
            "the program is not there: install it, name its path with `program`, or send this one along with `copy: true`"
                .to_owned(),
        ),
        Some(126) => Some(
            "the program cannot be executed there: it is for another machine, or its file system is mounted noexec"
                .to_owned(),
        ),
        Some(NOT_RECEIVED) => Some("the program could not be copied".to_owned()),
        // A launcher of ranks that says nothing of use says more without plumb.
        Some(_) if recipe.engine == "mpi" => Some(format!("the launcher alone may say more: {check}")),
        _ => None,
    })
}

/// The line that the advice is about.
pub fn telling(lines: &[String]) -> Option<&String> {
    let of = |word: &str| lines.iter().find(|line| line.contains(word));
    WORDS.iter().find_map(|(word, _)| of(word))
}

/// Whether there is advice about a line.
pub fn tells(line: &str) -> bool {
    WORDS.iter().any(|(word, _)| line.contains(word))
}

/// Whether the far end said that the program did not arrive.
pub fn is_not_received(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains(REFUSED))
}

/// Whether another try may help: an sshd drops connections at random when many begin at once.
pub fn is_momentary(lines: &[String]) -> bool {
    ["kex_exchange_identification", "Connection reset by", "Connection closed by"]
        .iter()
        .any(|word| lines.iter().any(|line| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::plan::model::{BY_ADDRESS, Kubernetes};

    fn asked(host: &Host) -> Asked<'_> {
        Asked { host, over_mpi: false, files: BTreeSet::new() }
    }

    fn recipe(name: &str, host: &Host, launch: &Launch) -> Recipe {
        Recipe::of(name, vec![name.to_owned()], asked(host), launch, DaemonOptions::default()).unwrap().remove(0)
    }

    #[test]
    fn ssh_takes_what_the_plan_says_and_asks_nothing() {
        let ssh = Ssh {
            user: Some("me".into()),
            port: Some(2222),
            config: Some("lab.ssh".into()),
            jump: Some("gate".into()),
            ..Ssh::default()
        };
        let host = Host { address: Some("10.0.0.2".into()), ..Host::default() };
        let recipe = recipe("far", &host, &Launch { ssh: Some(ssh), ..Launch::default() });
        let line = recipe.argv.join(" ");
        assert!(line.starts_with("ssh -F lab.ssh -p 2222 -l me -J gate -o BatchMode=yes "), "{line}");
        assert!(line.ends_with(" -- 10.0.0.2 exec plumb serve --launched"), "{line}");
        assert_eq!(recipe.check.unwrap(), "ssh -F lab.ssh -p 2222 -l me -J gate 10.0.0.2 true");
        let named = Ssh { host: Some("-oProxyCommand=x".into()), ..Ssh::default() };
        let launch = Launch { ssh: Some(named), ..Launch::default() };
        assert!(Recipe::of("far", vec![], asked(&host), &launch, DaemonOptions::default()).is_err());
    }

    #[test]
    fn a_command_knows_its_host() {
        let command = CommandLaunch {
            run: vec!["ip".into(), "{host}-ns".into(), "{address}".into()],
            ..CommandLaunch::default()
        };
        let host = Host { address: Some("10.0.0.9".into()), control: Some(BY_LAUNCHER.into()), ..Host::default() };
        let recipe = recipe("b", &host, &Launch { command: Some(command), ..Launch::default() });
        assert_eq!(recipe.argv, ["ip", "b-ns", "10.0.0.9", "plumb", "serve", "--launched", "--relay"]);
        assert!(recipe.relay);
    }
    #[test]
    fn every_pod_has_a_launcher() {
        let options = Kubernetes {
            image: "plumb:1".into(),
            namespace: Some("lab".into()),
            args: vec!["--context=c".into()],
            ..Kubernetes::default()
        };
        let launch = Launch { kubernetes: Some(options), ..Launch::default() };
        let recipes = |host: &Host| {
            Recipe::of("pod", vec!["pod1".into(), "pod2".into()], asked(host), &launch, DaemonOptions::default())
                .unwrap()
        };
        let both = recipes(&Host::default());
        assert_eq!(both.iter().map(|recipe| recipe.ends.join(",")).collect::<Vec<_>>(), ["pod1", "pod2"]);
        let line = both[1].argv.join(" ");
        assert!(line.starts_with("kubectl --context=c --namespace=lab exec -i plumb-"), "{line}");
        assert!(line.ends_with("-2 -c plumb -- plumb serve --launched --relay"), "{line}");
        assert!(both[1].relay);
        let direct = recipes(&Host { control: Some(BY_ADDRESS.into()), ..Host::default() });
        assert!(!direct[0].relay);
    }

    #[test]
    fn known_words_get_advice() {
        let launch = Launch { ssh: Some(Ssh::default()), ..Launch::default() };
        let host = Host::default();
        let asked = Asked { host: &host, over_mpi: false, files: BTreeSet::default() };
        let recipe = Recipe::of("b", vec!["b".into()], asked, &launch, DaemonOptions::default()).unwrap().remove(0);
        let advice = |code: i32, line: &str| of(&recipe, Some(ExitStatus::from_raw(code << 8)), &[line.to_owned()]);
        assert!(advice(255, "root@b: Permission denied (publickey).").unwrap().contains("`ssh b true`"));
        assert!(advice(127, "bash: plumb: command not found").unwrap().contains("copy: true"));
        assert!(advice(2, "error: unexpected argument '--launched' found").unwrap().contains("older"));
        assert!(
            advice(255, "[proxy:0:1@h2] launch_procs: unable to change wdir to /home/me").unwrap().contains("-wdir, /")
        );
        assert_eq!(advice(1, "anything"), None);
        let of_ranks = Recipe { engine: "mpi", ..recipe.clone() };
        assert!(of(&of_ranks, Some(ExitStatus::from_raw(1 << 8)), &[]).unwrap().starts_with("the launcher alone"));
    }
}
