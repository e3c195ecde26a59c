//! Completion in a real shell, and manual pages.

use std::process::Command;

use crate::program::{Folder, command, plumb};

/// The last word's candidates, as bash gets them from the script of `plumb completions bash`.
fn complete(folder: &Folder, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(plumb completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        _clap_complete_plumb plumb "${!#}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_plumb"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env("PATH", path)
        .current_dir(folder.path(""))
        .output()
        .expect("bash starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

fn folder() -> Folder {
    let folder = Folder::new();
    let plan = "{version: 1, name: x, hosts: {b: {address: 127.0.0.1}, client: {address: 127.0.0.2}}, tests: {\
                bulk: {workload: tcp_stream, duration: 1s, tags: [nightly]}, trips: {workload: tcp_rr, duration: 1s}}}";
    std::fs::write(folder.path("lab.yaml"), plan).unwrap();
    std::fs::write(folder.path("r.csv"), "case,throughput_bits_per_s,mine_ratio\na,1,1\n").unwrap();
    folder
}

#[test]
fn a_shell_completes_what_is_in_the_plan_and_in_the_table_on_the_line() {
    let folder = folder();
    for (words, candidates) in [
        (&["plumb", "sch"][..], &["schema"][..]),
        (&["plumb", "run", "lab"], &["lab.yaml"]),
        (&["plumb", "run", "--no-such", "lab.yaml", "--over"], &["--overwrite"]),
        (&["plumb", "run", "lab.yaml", "--only", ""], &["bulk", "nightly", "trips"]),
        (&["plumb", "run", "lab.yaml", "--only", "tr"], &["trips"]),
        (&["plumb", "run", "lab.yaml", "--host", ""], &["b=", "client="]),
        (&["plumb", "run", "lab.yaml", "--set", "dura"], &["duration="]),
        (&["plumb", "run", "lab.yaml", "--set", "tests.trips.dura"], &["tests.trips.duration="]),
        (&["plumb", "table", "r.csv", "--columns", "mi"], &["mine_ratio"]),
        (&["plumb", "table", "r.csv", "--columns", "case,mi"], &["case,mine_ratio"]),
        (&["plumb", "aggregate", "r.csv", "-m", "thr"], &["throughput", "throughput_bits_per_s"]),
    ] {
        let mut found = complete(&folder, words);
        found.sort();
        assert_eq!(found, candidates, "{words:?}");
    }
    // Without a table: the columns that a run writes.
    assert!(
        complete(&folder, &["plumb", "aggregate", "-m", "throughput_bits"]).contains(&"throughput_bits_per_s".into())
    );
}

#[test]
fn each_shell_gets_a_script_that_asks_this_program() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = plumb(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains("PLUMB_COMPLETE"), "{}", ran.stdout);
        let mut asked = command(&["--", "plumb", "sch"]);
        asked.env("PLUMB_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "1").env("_CLAP_IFS", "\n");
        let answer = asked.output().unwrap();
        assert!(String::from_utf8_lossy(&answer.stdout).starts_with("schema"), "{shell}: {answer:?}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = Folder::new();
    let ran = plumb(&["man", "--dir", &folder.name("man1")]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for command in runner::cli::command().get_subcommands() {
        let page = std::fs::read_to_string(folder.path(&format!("man1/plumb-{}.1", command.get_name()))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{}", command.get_name());
    }
    assert_eq!(plumb(&["man"]).stdout, std::fs::read_to_string(folder.path("man1/plumb.1")).unwrap());
}

#[test]
fn the_version_names_the_build_and_so_do_the_facts_about_a_run() {
    let long = plumb(&["--version"]).stdout;
    let short = plumb(&["-V"]).stdout;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(short, format!("plumb {version}\n"));
    let build = long.trim_end().strip_prefix(&format!("plumb {version} (")).unwrap().strip_suffix(')').unwrap();
    let [commit, profile, target] = build.split(", ").collect::<Vec<_>>()[..] else { panic!("{long}") };
    assert!(commit == "commit unknown" || commit.len() >= 12, "{long}");
    assert!(!profile.is_empty() && target.contains("linux"), "{long}");
    let folder = Folder::new();
    let plan = folder.plan("", "  it: {workload: tcp_rr, transactions: 10}");
    assert_eq!(plumb(&["run", &plan, "-o", &folder.name("r.csv")]).code, Some(0));
    let facts = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["tool_build"], build);
}
