//! A history of real runs: which commit lowered a link, and which one grew a buffer.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    needs::{has_program, skip},
    netns::Namespace,
    program::{Folder, Ran, number, parse, plumb},
    repository::git,
};

/// Runs of the history. Commits 25 and 33 change something.
const RUNS: usize = 40;

/// Makes the two links to the other namespace, and one for control.
const LINKS: &str = "\
set -e
for link in 'la 10.77.0' 'lb 10.78.0' 'lt 10.79.0'; do
    set -- $link
    ip link add name $1 type veth peer name $1 netns $FAR
    ip addr add $2.1/24 dev $1
    ip link set $1 up
    ip -n $FAR addr add $2.2/24 dev $1
    ip -n $FAR link set $1 up
    ethtool -K $1 tso off gso off gro off
    ip netns exec $FAR ethtool -K $1 tso off gso off gro off
done
tc qdisc add dev la root tbf rate 50mbit burst 16kb latency 500ms
tc qdisc add dev lb root tbf rate 40mbit burst 16kb latency 500ms
";

/// The far program of the repository: plumb's own, with the buffer that this commit gives it; and the lab's configuration.
const START: &str = "\
#!/bin/sh
tc qdisc change dev la root tbf rate $(cat link) burst 16kb latency 500ms &&
ip netns exec $FAR sysctl -qw net.ipv4.tcp_rmem=\"4096 $(cat buffer) $(cat buffer)\" &&
exec ip netns exec $FAR plumb serve --listen 10.79.0.2:12864 --allow 10.0.0.0/8 --allow-connect 10.77.0.1 --allow-connect 10.78.0.1
";

/// One night: the far program of this commit, a measurement of each case, and its end. Round trips are kept of `window` only.
/// The plan judges how much others took: a trend leaves such a run out, and the night would lack it. It is made again.
const NIGHT: &str = "\
set -e
rm -f ../serve.txt
./start > ../serve.txt 2> ../serve.err & serve=$!
trap 'kill $serve; wait $serve 2> ../kill.err || true' EXIT
tries=0
until grep -qs 12864 ../serve.txt; do tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.05; done
for case in bulk window; do
    tries=0
    until plumb run ../plan.yaml --only $case -o ../$case.csv --progress never > ../run.txt; do
        tries=$((tries + 1)); [ $tries -lt 8 ]
    done
    [ $case = window ] && more='--metric rtt' || more=
    plumb history add ../$case.csv --to ../history --commit $(git rev-parse HEAD) $more > ../add.txt
done
";

/// `bulk` is bound by the rate of its link. A queue stands before the other link as long as the far program's buffer lets it:
/// the round trip of `window` is that of its buffer.
const PLAN: &str = "\
version: 1
name: nightly
hosts:
  bulk: {address: 10.77.0.2, control: \"10.79.0.2:12864\"}
  window: {address: 10.78.0.2, control: \"10.79.0.2:12864\"}
defaults: {socket: {congestion_control: cubic}, duration: 150ms, assert: [{that: cpu.taken < 5%, judge: point}]}
tests:
  bulk: {to: bulk, workload: tcp_stream, warmup: 100ms, iterations: 5}
  window: {to: window, workload: tcp_stream, warmup: 150ms, iterations: 3}
";

/// A night of each commit: the series of the history that changed, and nothing else.
///
/// A step of 3 % needs a machine that has a CPU for each end: beside other tests the shaped link itself is slower at times.
#[test]
fn forty_runs_name_the_two_commits_that_changed_something() {
    let (Some(near), Some(far)) = (Namespace::new(), Namespace::new()) else { return };
    if !has_program("ethtool", "ethtool") {
        return;
    }
    let folder = Folder::new();
    let repo = folder.path("repo");
    fs::create_dir(&repo).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().unwrap().display().to_string();
    let inside = |script: &str| -> Ran {
        let mut command = near.command("sh");
        command.args(["-c", script]).current_dir(&repo).env("FAR", &far.name);
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()));
        command.output().unwrap().into()
    };
    let made = inside(LINKS);
    if made.code != Some(0) {
        return skip(&format!("no shaped links here: {}", made.stderr));
    }
    git(&repo, &["init", "-q"]);
    fs::write(folder.path("plan.yaml"), PLAN).unwrap();
    fs::write(repo.join("start"), START).unwrap();
    fs::set_permissions(repo.join("start"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut commits = Vec::new();
    for run in 1..=RUNS {
        fs::write(repo.join("link"), if run < 25 { "50000kbit" } else { "48500kbit" }).unwrap();
        fs::write(repo.join("buffer"), if run < 33 { "131072" } else { "196608" }).unwrap();
        let subject = match run {
            25 => "lab: lower the link".to_owned(),
            33 => "serve: grow the buffer".to_owned(),
            _ => format!("change {run}"),
        };
        git(&repo, &["add", "-A"]);
        git(&repo, &["commit", "-q", "--allow-empty", "-m", &subject]);
        commits.push(git(&repo, &["rev-parse", "HEAD"]));
        let night = inside(NIGHT);
        let text = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
        assert_eq!(night.code, Some(0), "run {run}: {}{}{}", night.stderr, text("serve.err"), text("run.txt"));
    }
    let (history, repo) = (folder.name("history"), repo.display().to_string());
    let trend = |words: &[&str]| plumb(&[&["trend", &history, "--repository", &repo], words].concat());
    let table = trend(&["--fail-on", "regression", "--within", "8", "-f", "csv"]);
    assert_eq!(table.code, Some(1), "{}{}", table.stdout, table.stderr);
    let rows = parse(&table.stdout);
    let levels: Vec<String> = rows
        .iter()
        .filter(|row| row["finding"] == "level")
        .map(|row| format!("{} {} {}", row["case"], row["metric"], row["runs"]))
        .collect();
    assert_eq!(levels, ["bulk throughput 40", "window rtt 40", "window throughput 40"]);
    // Case and metric, the first run of the new level with its commit, and the run before.
    let found: Vec<[&str; 6]> = rows
        .iter()
        .filter(|row| row["finding"] != "level")
        .map(|row| {
            ["finding", "case", "metric", "commit", "commit_before", "commits"].map(|column| row[column].as_str())
        })
        .collect();
    let short = |run: usize| git(Path::new(&repo), &["rev-parse", "--short", &commits[run - 1]]);
    let of_run =
        |run: usize, case, metric| ["change", case, metric, &*commits[run - 1], &*commits[run - 2]].map(str::to_owned);
    let expected = [(25, "bulk", "throughput"), (33, "window", "rtt")];
    assert_eq!(found.len(), 2, "{found:?}");
    for (found, (run, case, metric)) in found.iter().zip(expected) {
        assert_eq!(
            (&found[..5], found[5]),
            (&of_run(run, case, metric).each_ref().map(String::as_str)[..], &*short(run))
        );
    }
    let changes: Vec<_> = rows.iter().filter(|row| row["finding"] == "change").collect();
    let (link, buffer) = (number(changes[0], "change_ratio"), number(changes[1], "change_ratio"));
    assert!((link + 0.03).abs() < 0.005 && (0.2..0.7).contains(&buffer), "{link} {buffer}");
    let older = trend(&["--fail-on", "regression", "--within", "7", "-f", "text", "--annotations", "always"]);
    assert_eq!(older.code, Some(0), "{}{}", older.stdout, older.stderr);
    for (subject, sentence) in [
        ("lab: lower the link", "regression: bulk throughput is "),
        ("serve: grow the buffer", "regression: window rtt is "),
    ] {
        assert_eq!(older.stdout.matches(subject).count(), 1, "{}", older.stdout);
        assert_eq!(older.stdout.matches(sentence).count(), 1, "{}", older.stdout);
    }
    assert_eq!(older.stdout.matches(", since run ").count(), 2, "two events: {}", older.stdout);
    let warnings: Vec<&str> = older.stderr.lines().filter(|line| line.starts_with("::warning file=")).collect();
    assert!(warnings.len() == 2 && warnings[0].contains("%0A"), "{}", older.stderr);
    assert!(warnings[0].contains(&format!(",line={}::bulk throughput is ", 1 + 3 * 24 + 1)), "{}", warnings[0]);
}
