//! `git bisect run` over commits of a shaped link's configuration.

use std::{fs, path::Path, process::Stdio};

use crate::{
    netns::Pair,
    program::{Folder, Ran},
    repository::{commit, git, repository},
};

/// Sixteen commits of a router's configuration. Commit 11 lowers its rate by 5 %; commits 8 and 9 let it come and go;
/// commit 14 does not start.
#[test]
fn git_bisect_names_the_commit_that_slowed_a_link() {
    let Some(lab) = Pair::new() else { return };
    if !lab.limit("100mbit", "50ms") {
        return;
    }
    let folder = Folder::new();
    let (_serve, hosts) = lab.serve();
    folder.plan(&hosts, "  bulk: {to: far, workload: tcp_stream, warmup: 50ms, duration: 100ms, iterations: 10}");
    let Some(repo) = repository(&folder) else { return };
    let steady = "#!/bin/sh\ntc qdisc replace dev data root tbf rate $(cat rate) burst 16kb latency 50ms\n";
    let comes_and_goes = "#!/bin/sh\n(while sleep 0.2; do for rate in 60 150 85 120 40; do\ntc qdisc replace dev data root tbf rate \
                          ${rate}mbit burst 16kb latency 50ms\nsleep 0.2; done; done) > /dev/null 2>&1 &\necho $! > ../noise\n";
    let mut commits = Vec::new();
    for n in 1..=16 {
        let rate = if n < 11 { "100mbit" } else { "95mbit" };
        let start = match n {
            8 | 9 => comes_and_goes,
            14 => "#!/bin/sh\nexit 1\n",
            _ => steady,
        };
        commits.push(commit(
            &repo,
            &format!("change {n}"),
            &[("rate", rate), ("start", start), ("notes", &n.to_string())],
        ));
    }
    let step = "#!/bin/sh\n./start || exit 125\nplumb bisect ../plan.yaml --against ../good.csv --min-effect 2.5% \
                --max-iterations 20 --progress never\ncode=$?\n[ -e ../noise ] && kill $(cat ../noise) && rm \
                ../noise\nexit $code\n";
    fs::write(folder.path("step"), step).unwrap();
    let inside = |line: &str| {
        let programs = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().unwrap().display().to_string();
        let mut command = lab.near.command("sh");
        command.args(["-c", line]).current_dir(&repo).stdin(Stdio::null());
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()));
        Ran::from(command.output().unwrap())
    };
    git(&repo, &["checkout", "-q", &commits[0]]);
    let good = inside("./start && plumb run ../plan.yaml -o ../good.csv --progress never");
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    git(&repo, &["bisect", "start", &commits[15], &commits[0]]);
    let ran = inside("git bisect run sh ../step");
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(&format!("{} is the first bad commit", commits[10])), "{}{}", ran.stdout, ran.stderr);
    let log = git(&repo, &["bisect", "log"]);
    assert!(log.contains("# skip: ") && log.contains("change 8"), "the noisy commit is the first in the middle: {log}");
    let results = fs::read_dir(repo.join(".git/plumb-bisect")).unwrap().count();
    assert!(results >= 2 * 3, "{results} files of at least three commits");
}
