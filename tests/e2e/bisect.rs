//! `plumb bisect` as a step of `git bisect run`, with git and the real program.

use std::{fs, path::Path, process::Command};

use crate::{
    filters::shell,
    program::{self, Folder, Ran, Serve, of, plumb, rows, until},
    repository::{commit, git, repository},
};

/// A program that prints a rate: that of the file `speed`, and up to 1 % more.
const BENCH: &str = "#!/bin/sh\necho rate $(cat speed).$(date +%N | cut -c5-6) MB/s\n";

/// A program that prints everything between 50 and 149, each time another value far from the last one.
const WILD: &str = "#!/bin/sh\nn=$(cat ../wild 2>/dev/null || echo 0)\necho $((n + 1)) >../wild\necho rate $((50 + n * 37 % 100)).0 MB/s\n";

/// A plan that runs the program of the repository, and its results there; `None`: there is no git.
fn program(folder: &Folder) -> Option<std::path::PathBuf> {
    let repo = repository(folder)?;
    commit(&repo, "first", &[("bench", BENCH), ("speed", "100")]);
    let test = "  it:\n    workload: command\n    command: {run: [sh, ./bench], regex: 'rate (?<throughput>[0-9.]+ MB/s)'}\n    \
                iterations: 10";
    folder.plan("", test);
    let ran = shell(&repo, "plumb run ../plan.yaml --allow-commands -o ../good.csv --progress never");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    Some(repo)
}

/// One step in the repository.
fn step(repo: &Path, more: &str) -> Ran {
    let line = format!("plumb bisect ../plan.yaml --against ../good.csv --allow-commands --progress never {more}");
    shell(repo, &line)
}

#[test]
fn a_commit_is_good_or_bad_or_cannot_be_told() {
    let folder = Folder::new();
    let Some(repo) = program(&folder) else { return };
    let id = git(&repo, &["rev-parse", "--short=12", "HEAD"]);
    let good = step(&repo, "");
    assert_eq!(good.code, Some(0), "{}{}", good.stdout, good.stderr);
    let kept = repo.join(format!(".git/plumb-bisect/{id}.csv"));
    let start = format!("plumb bisect {id}: good: it throughput ");
    assert!(good.stdout.starts_with(&start) && good.stdout.lines().count() == 1, "{}", good.stdout);
    assert!(good.stdout.contains(" iterations; results: .git/plumb-bisect/"), "{}", good.stdout);
    let first = fs::read(&kept).unwrap();
    assert!(of(&rows(&kept), "iteration").len() >= 10 && kept.with_extension("run.json").exists());

    fs::write(repo.join("speed"), "90").unwrap();
    let bad = step(&repo, "");
    assert_eq!(bad.code, Some(1), "{}{}", bad.stdout, bad.stderr);
    assert!(bad.stdout.contains(": bad: it throughput −") && bad.stdout.contains("10 iterations"), "{}", bad.stdout);
    assert_eq!(fs::read(&kept).unwrap(), first, "the results of the first time stay");
    assert!(repo.join(format!(".git/plumb-bisect/{id}-2.csv")).exists());
    assert_eq!(step(&repo, "--min-effect 25%").code, Some(0), "smaller than what counts");

    fs::write(repo.join("bench"), WILD).unwrap();
    let wild = step(&repo, "--max-iterations 20 -o ../steps");
    assert_eq!(wild.code, Some(125), "{}{}", wild.stdout, wild.stderr);
    assert!(wild.stdout.contains(": cannot tell: ") && wild.stdout.contains("20 iterations"), "{}", wild.stdout);
    let table = rows(&folder.path(&format!("steps/{id}.csv")));
    assert_eq!(of(&table, "iteration").len(), 20, "until the bound");
    fs::write(repo.join("bench"), "#!/bin/sh\nsleep 0.1\nexit 3\n").unwrap();
    let broken = step(&repo, "");
    assert_eq!(broken.code, Some(125), "{}{}", broken.stdout, broken.stderr);
    assert!(broken.stdout.contains(": cannot tell: it failed: "), "{}", broken.stdout);
    fs::write(repo.join("bench"), WILD.replace("echo rate", "sleep 0.3; echo rate")).unwrap();
    let late = step(&repo, "--budget 1s");
    assert_eq!(late.code, Some(125), "{}{}", late.stdout, late.stderr);
    assert!(late.stdout.contains(": cannot tell: it throughput "), "{}", late.stdout);
    let table = late.stdout.trim().rsplit_once("results: ").expect("a place").1;
    let measured = of(&rows(&repo.join(table)), "iteration").len();
    assert!((1..20).contains(&measured), "the time ends it, not the number: {measured}");
}

#[test]
fn what_is_not_about_the_commit_stops_git() {
    let folder = Folder::new();
    let Some(repo) = program(&folder) else { return };
    let stops = |line: &str, code: i32, words: &str| {
        let ran = shell(&repo, line);
        assert_eq!(ran.code, Some(code), "{line}\n{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words), "{line}\n{}", ran.stderr);
    };
    let with = |more: &str| format!("plumb bisect ../plan.yaml --allow-commands --progress never {more}");
    let good = with("--against ../good.csv");
    stops("plumb bisect ../plan.yaml", 130, "--against <BASELINE>");
    stops(&format!("{good} --min-effect 3"), 130, "between 0 and 100 %");
    stops(&format!("{good} --metric thruput"), 130, "throughput");
    stops(&format!("{good} --metric latency.p50"), 130, "measures latency.p50");
    stops("plumb bisect old.yaml --against ../good.csv", 130, "outside of the work tree");
    stops(&with("--against ../nowhere.csv"), 130, "there is no ../nowhere.csv");
    stops("plumb bisect ../plan.yaml --against ../good.csv", 130, "--allow-commands");
    stops(&format!("{good} --set tests.it.iterations=x"), 130, "error");
    stops(&format!("{good} --set tests.it.command.run=[sh,./other]"), 130, "has no throughput of case it");
    stops(&format!("{good} --key-file ../nokey"), 130, "nokey");
    stops(&format!("{good} -o /proc/nowhere"), 131, "cannot write /proc/nowhere");
    stops(&format!("cd .. && {}", good.replace("../", "")), 130, "in no git repository");
    let few = fs::read_to_string(folder.path("good.csv")).unwrap();
    let (few, _) = few.split_at(few.match_indices('\n').nth(1).unwrap().0 + 1);
    fs::write(folder.path("few.csv"), few).unwrap();
    stops(&with("--against ../few.csv"), 130, "has 1 iteration of case it, and no 80 new ones can decide");
    let record = folder.path("good.run.json");
    let text = fs::read_to_string(&record).unwrap();
    let model = text.find("\"cpu_model\": \"").expect("the CPU is known") + "\"cpu_model\": \"".len();
    fs::write(&record, format!("{}Other {}", &text[..model], &text[model..])).unwrap();
    stops(&good, 130, "is of another machine");
    fs::write(&record, text).unwrap();
    assert_eq!(shell(&repo, "plumb bisect --help").code, Some(0));
    // Tracked files change with the commit: a warning, and the answer.
    fs::copy(folder.path("plan.yaml"), repo.join("plan.yaml")).unwrap();
    commit(&repo, "a plan", &[]);
    stops(&good.replace("../plan", "plan"), 0, "plan.yaml is in the repository");
}

#[test]
fn signals_stop_git() {
    let folder = Folder::new();
    let Some(repo) = program(&folder) else { return };
    fs::write(repo.join("bench"), "#!/bin/sh\ntouch begun\nexec sleep 60\n").unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("ALRM", 125)] {
        let _ = fs::remove_file(repo.join("begun"));
        let words = ["bisect", "../plan.yaml", "--against", "../good.csv", "--allow-commands", "--progress", "never"];
        let child = program::command(&words).current_dir(&repo).spawn().unwrap();
        until("the program runs", || repo.join("begun").exists());
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
        );
        let ran = program::end(child);
        assert_eq!(ran.code, Some(code), "SIG{signal}\n{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_far_end_that_does_not_answer_tells_nothing() {
    let folder = Folder::new();
    let Some(repo) = repository(&folder) else { return };
    commit(&repo, "first", &[]);
    let mut serve = Serve::start(&[]);
    let hosts = format!("hosts: {{far: {{address: \"{}\"}}}}", serve.address);
    let plan = folder.plan(&hosts, "  it: {to: far, workload: tcp_stream, duration: 50ms, iterations: 5}");
    let table = folder.name("good.csv");
    assert_eq!(plumb(&["run", &plan, "-o", &table, "--progress", "never"]).code, Some(0));
    serve.kill();
    let ran = shell(&repo, "plumb bisect ../plan.yaml --against ../good.csv --progress never");
    assert_eq!(ran.code, Some(125), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(": cannot tell: it could not be measured\n"), "{}", ran.stdout);
    assert!(ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
}

#[test]
fn the_lines_of_the_help_work_as_pasted() {
    let folder = Folder::new();
    let Some(repo) = repository(&folder) else { return };
    let first = commit(&repo, "first", &[("build", "#!/bin/sh\ntrue\n")]);
    (0..3).for_each(|n| drop(commit(&repo, "more", &[("n", &n.to_string())])));
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, rate: 200Mbit/s, duration: 30ms, iterations: 10}");
    fs::rename(&plan, folder.path("lab.yaml")).unwrap();
    let ran = shell(&repo, "plumb run ../lab.yaml -o ../good.csv --progress never");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let help = plumb(&["bisect", "--help"]).stdout;
    let examples = help.split("Examples:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(examples.lines().count() >= 3, "{help}");
    for line in examples.lines().map(str::trim) {
        git(&repo, &["bisect", "start", "HEAD", &first]);
        let ran = shell(&repo, line);
        // The answer is that of a busy machine.
        assert!(ran.stdout.contains("plumb bisect "), "{line}\n{}{}", ran.stdout, ran.stderr);
        git(&repo, &["bisect", "reset"]);
    }
}
