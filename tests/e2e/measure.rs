//! `plumb measure`: a number without a plan file, the plan that it stands for, and what bad input gets.

use std::{collections::BTreeSet, process::Stdio};

use serde_json::Value;

use crate::program::{Folder, Ran, Serve, command, of, plumb, rows, skip, skip_without};

/// Options that make it short. The statistics of so little time say nothing.
const SHORT: [&str; 2] = ["-t", "2"];

fn measure(args: &[&str]) -> Ran {
    plumb(&[&["measure"], args, &SHORT].concat())
}

/// The first words of the lines of an answer.
fn names(ran: &Ran) -> Vec<&str> {
    ran.stdout.lines().filter(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn this_machine_has_an_answer_without_a_file() {
    let ran = measure(&[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("this machine, both ends · Linux "), "{}", ran.stdout);
    assert_eq!(names(&ran)[..3], ["idle", "download", "upload"], "{}", ran.stdout);
    let line = |name: &str| ran.stdout.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    assert!(line("idle").contains("round trip, p99 "), "{}", ran.stdout);
    for load in ["download", "upload"] {
        assert!(line(load).contains("bit/s") && line(load).contains(" under load  "), "{}", ran.stdout);
    }
    assert!(ran.stdout.ends_with("keep it: plumb measure -t 2 --save nightly.yaml\n"), "{}", ran.stdout);
}

#[test]
fn the_plan_that_is_kept_measures_the_same_cases() {
    let folder = Folder::new();
    let (plan, first, again) = (folder.name("kept.yaml"), folder.name("first.csv"), folder.name("again.csv"));
    let far = Serve::start(&[]);
    let ran = measure(&[&far.address, "-R", "-P", "2", "-l", "64K", "--save", &plan, "-o", &first]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains(&format!("plumb run {plan} measures the same again")), "{}", ran.stdout);
    let ran = plumb(&["run", &plan, "-o", &again]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ids = |name: &str| -> BTreeSet<String> {
        of(&rows(&folder.path(name)), "summary")
            .iter()
            .map(|row| format!("{} {}", row["case"], row["case_id"]))
            .collect()
    };
    assert_eq!(ids("first.csv"), ids("again.csv"));
    assert_eq!(ids("first.csv").len(), 2, "idle and download");
    let written = rows(&folder.path("first.csv"));
    let load = of(&written, "iteration").into_iter().find(|row| row["member"] == "load").expect("a load");
    assert_eq!((&*load["streams"], &*load["message_bytes"], &*load["direction"]), ("2", "65536", "reverse"));

    // The file is nobody else's to replace.
    std::fs::write(folder.path("kept.yaml"), "mine").unwrap();
    let ran = measure(&[&far.address, "--save", &plan]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(folder.path("kept.yaml")).unwrap(), "mine");
}

#[test]
fn json_is_one_document_of_numbers() {
    let ran = measure(&["-J", "tcp_rr", "udp_rr"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answer: Value = serde_json::from_str(&ran.stdout).expect("one document");
    let rows = answer["rows"].as_array().expect("rows");
    let workloads: Vec<&str> = rows.iter().filter_map(|row| row["workload"].as_str()).collect();
    assert_eq!(workloads, ["tcp_rr", "udp_rr"]);
    assert!(rows.iter().all(|row| row["transactions_per_s"].is_number() && row["status"] == "ok"), "{answer:#}");
    assert!(!ran.stdout.contains("histogram"), "{}", ran.stdout);
}

#[test]
fn the_key_that_serve_prints_opens_it() {
    let far = Serve::on("0.0.0.0", &[]);
    let key = far.said.split_whitespace().find_map(|word| word.strip_prefix("PLUMB_KEY=")).expect("a key").to_owned();
    assert!(far.said.contains("On the other machine") && far.said.contains(" plumb measure "), "{}", far.said);
    let place = far.address.replace("0.0.0.0", "127.0.0.1");
    let with = |key: &str| -> Ran {
        let mut command = command(&[&["measure", &place, "tcp_rr"][..], &SHORT].concat());
        command.env("PLUMB_KEY", key).output().expect("plumb starts").into()
    };
    let ran = with(&key);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let wrong: String = key.chars().rev().collect();
    for (key, code, sentence) in
        [("", 3, "it requires a key"), (&*wrong, 3, "it has another key"), ("7q4k", 2, "PLUMB_KEY is no key")]
    {
        let ran = with(key);
        assert_eq!(ran.code, Some(code), "{key}: {}", ran.stderr);
        assert!(ran.stderr.contains(sentence), "{key}: {}", ran.stderr);
    }
    // A network that is named needs no key, and a log for programs prints none.
    let open = Serve::on("0.0.0.0", &["--allow", "127.0.0.0/8"]);
    assert!(!open.said.contains("PLUMB_KEY"), "{}", open.said);
    let ran = plumb(&["serve", "--listen", "0.0.0.0:0", "--log-format", "json"]);
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_key_file_of_the_user_is_found() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("plumb")).unwrap();
    assert_eq!(plumb(&["key", &folder.name("plumb/key")]).code, Some(0));
    let far = Serve::start(&["--key-file", &folder.name("plumb/key")]);
    for (name, value) in [("XDG_CONFIG_HOME", folder.name("")), ("PLUMB_KEY_FILE", folder.name("plumb/key"))] {
        let mut command = command(&["measure", &far.address, "tcp_rr", "-t", "2"]);
        let ran: Ran = command.env(name, value).output().expect("plumb starts").into();
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
    }
}

#[test]
fn another_program_on_its_own_port_is_spoken_to() {
    const PLACE: &str = "127.88.12.1";
    let mut server = std::process::Command::new("iperf3");
    server.args(["-s", "-B", PLACE]).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut server) = server.spawn() else { return skip_without("iperf3", "iperf3 is not here") };
    crate::program::until("iperf3 listens", || std::net::TcpStream::connect((PLACE, 5201)).is_ok());
    let ran = measure(&[PLACE, "-R"]);
    let _ = server.kill();
    let _ = server.wait();
    if std::net::TcpStream::connect((PLACE, 12864)).is_ok() {
        return skip("a plumb serve of this machine listens on every address");
    }
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.starts_with(&format!("{PLACE} · speaks to iperf3")), "{}", ran.stdout);
    assert_eq!(names(&ran)[0], "download", "{}", ran.stdout);
}

#[test]
fn bad_input_gets_a_sentence_and_the_next_command() {
    for (args, code, sentence) in [
        (&["127.0.0.1:1"][..], 3, "cannot be reached"),
        (&["nosuch.invalid"], 3, "was not found"),
        (&["127.0.0.1", "-6"], 3, "has no IPv6 address"),
        (&["-u"], 2, "--bitrate <RATE>"),
        (&["-b", "5k/s"], 2, "bits per second, as 10M"),
        (&["-l", "0"], 2, "at least one byte"),
        (&["-P", "0"], 2, "0 is not in"),
        (&["--copy"], 2, "ssh://user@b.lab"),
        (&["127.0.0.1", "tcp_rrr"], 2, "did you mean `tcp_rr`?"),
    ] {
        let ran = measure(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(sentence), "{args:?}: {}", ran.stderr);
    }
    let ran = plumb(&["measure", "-t", "0"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("20 is the default"), "{}", ran.stderr);
    let ran = plumb(&["run", "10.0.0.2"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("plumb measure 10.0.0.2"), "{}", ran.stderr);
}

#[test]
fn a_plan_inside_the_program_runs_by_its_name() {
    let folder = Folder::new();
    let mut run = command(&["run", "quick", "--set", "duration=20ms", "--set", "warmup=0s", "--set", "iterations=1"]);
    let ran: Ran = run.current_dir(folder.path("")).output().expect("plumb starts").into();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Rows went to a pipe: the answer is beside them.
    assert!(ran.stdout.starts_with("record") || ran.stdout.contains("run_id"), "{}", ran.stdout);
    assert!(ran.stderr.contains("  roundtrip  tcp_rr "), "{}", ran.stderr);
    // A file of that name is preferred.
    std::fs::write(folder.path("quick"), "version: 1\nname: mine\ntests: {a: {workload: tcp_rr}}\n").unwrap();
    let mut check = command(&["check", "quick"]);
    let ran: Ran = check.current_dir(folder.path("")).output().expect("plumb starts").into();
    assert!(ran.stdout.contains("mine"), "{}{}", ran.stdout, ran.stderr);
    let shown = plumb(&["plans", "show", "quick"]);
    assert_eq!(shown.stdout, include_str!("../../plans/quick.yaml"));
    let all = plumb(&["plans"]);
    assert!(all.stdout.lines().count() >= 15 && all.stdout.contains("  quick "), "{}", all.stdout);
    assert!(plumb(&["plans", "show", "quik"]).stderr.contains("did you mean `quick`?"));
}
