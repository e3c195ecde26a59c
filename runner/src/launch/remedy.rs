//! Advice about the errors of launchers.

use std::process::ExitStatus;

use super::{
    recipe::{Recipe, TOO_LARGE},
    remote::NOT_RECEIVED,
};

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
    use super::{
        super::recipe::{Allowed, Asked, Recipe},
        *,
    };
    use crate::plan::model::{Host, Launch, Ssh};
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn known_words_get_advice() {
        let launch = Launch { ssh: Some(Ssh::default()), ..Launch::default() };
        let host = Host::default();
        let asked = Asked { host: &host, over_mpi: false, files: BTreeSet::default() };
        let recipe = Recipe::of("b", vec!["b".into()], asked, &launch, Allowed::default()).unwrap().remove(0);
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
