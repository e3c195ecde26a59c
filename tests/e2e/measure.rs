//! `plumb measure`: a number without a plan file, the plan that it stands for, and what bad input gets.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use serde_json::Value;

use crate::{
    needs::{has_program, skip},
    netns::Pair,
    program::{Folder, Ran, Serve, command, end, is_interim, of, plumb, rows, until},
};

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
        let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert!(line(load).ends_with(&format!("  {}", default.trim())), "{}", ran.stdout);
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
    fs::write(folder.path("kept.yaml"), "mine").unwrap();
    let ran = measure(&[&far.address, "--save", &plan]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(folder.path("kept.yaml")).unwrap(), "mine");
}

#[test]
fn json_is_one_document_of_numbers() {
    let ran = measure(&["-J", "-C", "reno", "tcp_rr", "udp_rr"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answer: Value = serde_json::from_str(&ran.stdout).expect("one document");
    let rows = answer["rows"].as_array().expect("rows");
    let workloads: Vec<&str> = rows.iter().filter_map(|row| row["workload"].as_str()).collect();
    assert_eq!(workloads, ["tcp_rr", "udp_rr"]);
    assert!(rows.iter().all(|row| row["transactions_per_s"].is_number() && row["status"] == "ok"), "{answer:#}");
    assert!(!ran.stdout.contains("histogram"), "{}", ran.stdout);
    // UDP has none.
    assert_eq!((&rows[0]["congestion_control"], &rows[1]["congestion_control"]), (&"reno".into(), &Value::Null));
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
    // The host's name leads elsewhere from a namespace.
    if let Some(pair) = Pair::new() {
        let far = Serve::on("0.0.0.0", &["--netns", &pair.far.name]);
        assert!(far.said.contains(&format!(" plumb measure {}", Pair::FAR)), "{}", far.said);
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
    fs::create_dir(folder.path("plumb")).unwrap();
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
    if !has_program("iperf3", "iperf3") {
        return;
    }
    let mut server = std::process::Command::new("iperf3");
    server.args(["-s", "-B", PLACE]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    until("iperf3 listens", || std::net::TcpStream::connect((PLACE, 5201)).is_ok());
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
        (
            &["127.0.0.1:1"][..],
            3,
            "or on loopback only: on that machine, `plumb serve --listen 0.0.0.0:1` lets others in",
        ),
        (&["nosuch.invalid"], 3, "was not found"),
        (&["nosuch.invalid", "-4"], 3, "check its spelling, or write its address"),
        (&["127.0.0.1", "-6"], 3, "has no IPv6 address; leave -6 out"),
        (&["-u"], 2, "do not flood the path: plumb measure -u -t 2 -b 10M"),
        (&["udp_stream"], 2, "do not flood the path: plumb measure udp_stream -t 2 -b 10M"),
        (&["-b", "5k/s"], 2, "bits per second, as 10M"),
        (&["-l", "0"], 2, "at least one byte"),
        (&["-P", "0"], 2, "0 is not in"),
        (&["--copy"], 2, "ssh://user@b.lab"),
        (&["127.0.0.1", "tcp_rrr"], 2, "did you mean `tcp_rr`?"),
        (&["-R", "tcp_stream", "tcp_rr"], 2, "-R is for streams, and tcp_rr is none: leave it out"),
        (
            &["b.lab", "--bidir"],
            2,
            "tip: a plan has both ways at once (--save FILE writes one): direction: bidirectional",
        ),
        (&["-c", "b.lab"], 2, "tip: the host needs no option: plumb measure HOST"),
        (&["b.lab", "-p", "9000"], 2, "tip: the port stands behind the host: plumb measure HOST:PORT"),
        (&["b.lab", "-p9000"], 2, "tip: the port stands behind the host"),
        (&["b.lab", "--bytes=1G"], 2, "tip: a plan stops at a count (--save FILE writes one): bytes: 1GiB"),
        (&["b.lab", "-w", "4M"], 2, "socket: {send_buffer: 1MiB, receive_buffer: 1MiB}"),
        (&["b.lab", "-Z"], 2, "plumb measure HOST tcp_sendfile"),
    ] {
        let ran = measure(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(sentence) && !ran.stderr.contains("use '-- "), "{args:?}: {}", ran.stderr);
    }
    for args in [&["serve", "-p", "9000"], &["serve", "--port", "9000"]] {
        let ran = plumb(args);
        assert!(ran.code == Some(2) && ran.stderr.contains("--listen 0.0.0.0:9000"), "{args:?}: {}", ran.stderr);
    }
    for short in ["0", "1.9"] {
        let ran = plumb(&["measure", "-t", short]);
        assert!(ran.code == Some(2) && ran.stderr.contains("write -t 2 or more; 20 is the default"), "{}", ran.stderr);
    }
    let ran = plumb(&["run", "10.0.0.2"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("plumb measure 10.0.0.2"), "{}", ran.stderr);
}

#[test]
fn a_load_too_short_for_probes_of_the_hops_says_so_and_its_file_is_replaced_aloud() {
    let folder = Folder::new();
    let far = Serve::start(&[]);
    let (table, picture) = (folder.name("r.csv"), folder.name("hops.svg"));
    let ran = measure(&[&far.address, "--hops", "-R", "-o", &table]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answer = ran.stdout.lines().find(|line| line.contains("unknown where a queue stands")).expect("an answer");
    assert!(answer.contains("of probes under load: -t 20 has more"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("replaces it"), "{}", ran.stderr);
    let ran = plumb(&["plot", "hops", "-o", &picture, &folder.name("r.hops.csv")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.contains("medians of the probes") && !svg.contains("95 % interval"), "{svg}");

    let ran = measure(&["tcp_rr", "-o", &table]);
    assert!(ran.stderr.contains("r.csv is there already, and this run replaces it"), "{}", ran.stderr);
    assert!(ran.stdout.ends_with("keep it: plumb measure tcp_rr -t 2 --save nightly.yaml\n"), "{}", ran.stdout);
}

#[test]
fn a_key_of_another_run_is_told_from_none() {
    let far = Serve::on("0.0.0.0", &[]);
    let old = Serve::on("0.0.0.0", &[]);
    let key = old.said.split_whitespace().find_map(|word| word.strip_prefix("PLUMB_KEY=")).expect("a key").to_owned();
    let place = far.address.replace("0.0.0.0", "127.0.0.1");
    let mut command = command(&["measure", &place, "tcp_rr", "-t", "2"]);
    let ran: Ran = command.env("PLUMB_KEY", key).output().expect("plumb starts").into();
    assert!(ran.code == Some(3) && ran.stderr.contains("copy the line that it prints now"), "{}", ran.stderr);
    let ran = measure(&[&place, "tcp_rr"]);
    assert!(ran.code == Some(3) && ran.stderr.contains("PLUMB_KEY, as its `plumb serve` printed it"), "{}", ran.stderr);
}

#[test]
fn a_far_end_that_has_only_ipv6_is_reached() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("this machine has no IPv6");
    }
    let far = Serve::whole("[::1]:0", &[], Stdio::null());
    let ran = measure(&[&far.address, "tcp_rr", "udp_rr", "-6"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(names(&ran)[..2], ["tcp_rr", "udp_rr"], "{}", ran.stdout);
}

#[test]
fn a_name_of_two_addresses_is_reached_where_one_of_them_answers() {
    let folder = Folder::new();
    // The first address has no listener.
    fs::write(folder.path("hosts"), "127.0.0.9 twice.lab\n127.0.0.1 twice.lab\n").unwrap();
    let seen_alone = |run: &str| {
        let mut shell = std::process::Command::new("unshare");
        let script = format!("mount --bind {} /etc/hosts && {run}", folder.name("hosts"));
        Ran::from(shell.args(["--mount", "sh", "-c", &script]).output().expect("unshare starts"))
    };
    let both = seen_alone("getent ahosts twice.lab");
    if !(both.stdout.contains("127.0.0.9") && both.stdout.contains("127.0.0.1 ")) {
        return skip("a name of two addresses needs root, and a resolver that reads /etc/hosts");
    }
    let far = Serve::start(&[]);
    let port = far.address.rsplit(':').next().expect("a port").to_owned();
    let ran = seen_alone(&format!("{} measure twice.lab:{port} tcp_rr -t 2", env!("CARGO_BIN_EXE_plumb")));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.starts_with(&format!("twice.lab:{port}")) && names(&ran)[0] == "tcp_rr", "{}", ran.stdout);
    drop(far);
    let ran = seen_alone(&format!("{} measure twice.lab:{port} tcp_rr -t 2", env!("CARGO_BIN_EXE_plumb")));
    assert!(ran.code == Some(3) && ran.stderr.contains("twice.lab"), "{}", ran.stderr);
}

#[test]
fn a_far_end_of_another_version_is_named_with_the_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut words = [0; 8];
            let _ = stream.read_exact(&mut words);
            // The seventh byte is the newest protocol that an end speaks.
            words[6] = 0;
            let _ = stream.write_all(&words);
        }
    });
    let ran = measure(&[&place]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("use the same version at both ends (`plumb --version`"), "{}", ran.stderr);
}

#[test]
fn a_busy_far_end_is_waited_for_and_a_full_one_says_what_to_type() {
    let far = Serve::start(&["--exclusive"]);
    let mut other =
        command(&["measure", &far.address, "tcp_stream", "-b", "1G", "-i", "0.1", "-t", "9"]).spawn().unwrap();
    wait_for(&mut other, is_interim);
    let ran = measure(&[&far.address, "tcp_rr"]);
    let _ = other.kill();
    let _ = other.wait();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("waiting, 1st in the queue"), "{}", ran.stderr);
    let far = Serve::start(&["--max-sessions", "1"]);
    let ran = measure(&[&far.address, "-R"]);
    assert!(ran.code == Some(3) && ran.stderr.contains("--max-sessions 3"), "{}", ran.stderr);
}

#[test]
fn a_port_that_cannot_be_had_says_what_to_type() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ran = plumb(&["serve", "--listen", &format!("127.0.0.1:{port}")]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let next = format!("`plumb serve --listen 127.0.0.1:{}`", port.checked_add(1).unwrap_or(12864));
    assert!(ran.stderr.contains(&format!("sport = :{port}")) && ran.stderr.contains(&next), "{}", ran.stderr);
    let ran = plumb(&["serve", "--listen", "192.0.2.1"]);
    assert!(ran.code == Some(3) && ran.stderr.contains("`ip address` lists its own"), "{}", ran.stderr);
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if !geteuid().is_root() || first.trim() != "1024" {
        return skip("only root can give its rights away, and only where ports below 1024 are root's");
    }
    let ran = command(&["serve", "--listen", "127.0.0.1:80"]).uid(65_534).output();
    let Ok(ran) = ran.map(Ran::from) else { return skip("no other user can start the program here") };
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("`plumb serve --listen 127.0.0.1:12864`"), "{}", ran.stderr);
}

#[test]
fn a_rate_that_is_too_fast_gets_one_that_is_not() {
    let ran = measure(&["-R", "-b", "900G"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let note = ran.stdout.lines().find(|line| line.contains("that -b asks for")).unwrap_or_default();
    assert!(note.starts_with("note: download: ") && note.contains("; try -b "), "{}", ran.stdout);
}

/// Reads a child's standard error until a line is so; keeps reading afterwards, so that the child does not block.
fn wait_for(child: &mut Child, mut is_it: impl FnMut(&str) -> bool) {
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| is_it(&line)), "it ended before");
    thread::spawn(move || lines.count());
}

#[test]
fn an_interrupt_leaves_what_was_measured() {
    let folder = Folder::new();
    let interrupted = |child: Child| -> Ran {
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let ran = end(child);
        assert_eq!(ran.code, Some(130), "{}{}", ran.stdout, ran.stderr);
        ran
    };
    // Before anything was measured in full.
    let far = Serve::telling(File::create(folder.path("log")).unwrap());
    let child = command(&["measure", &far.address]).spawn().unwrap();
    let log = || fs::read_to_string(folder.path("log")).unwrap_or_default();
    until("the far end is met", || log().contains("session opened"));
    let ran = interrupted(child);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("interrupted"), "{}{}", ran.stdout, ran.stderr);
    // In the first window of each direction, after its first interval.
    for (at, phase) in ["download", "upload"].into_iter().enumerate() {
        let mut child = command(&["measure", &far.address, "-i", "0.1"]).spawn().unwrap();
        wait_for(&mut child, |line| is_interim(line) && line.starts_with(phase) && line.contains("load  measure"));
        let ran = interrupted(child);
        assert_eq!(names(&ran)[..2 + at], ["idle", "download", "upload"][..2 + at], "{}", ran.stdout);
        let line = ran.stdout.lines().find(|line| line.trim_start().starts_with(phase)).unwrap();
        assert!(line.contains("bit/s"), "{}", ran.stdout);
        // Who cut it short wants no longer one, and knows that it has no margin.
        let advice = ["-t 20", "margin"].into_iter().find(|word| ran.stdout.contains(word));
        assert!(advice.is_none() && ran.stdout.contains("\n\nnote: "), "{advice:?}: {}", ran.stdout);
    }
    // Its words are no plan that a run could go on with.
    let table = folder.name("r.csv");
    let mut child = command(&["measure", &far.address, "-i", "0.1", "-o", &table]).spawn().unwrap();
    wait_for(&mut child, |line| is_interim(line) && line.contains("load  measure"));
    let ran = interrupted(child);
    let again = plumb(&["measure", &far.address, "-t", "2", "-o", &table]);
    assert!(again.code == Some(2) && again.stderr.contains("--overwrite"), "{}", again.stderr);
    for said in [ran.stdout, ran.stderr, again.stderr] {
        assert!(!said.contains("--resume"), "{said}");
    }
}

#[test]
fn intervals_of_a_second_are_whole_and_a_note_is_told_once() {
    let ran = plumb(&["measure", "-R", "-i", "1", "-t", "3"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.lines().any(|line| line.starts_with("download") && is_interim(line)), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("note: a single iteration has no ±: with -t 20 there are at least three"),
        "{}",
        ran.stdout
    );
    let notes: Vec<&str> = ran.stdout.lines().filter_map(|line| line.strip_prefix("note: ")).collect();
    assert!(notes.iter().all(|note| !ran.stderr.contains(note)), "{notes:?}\n{}", ran.stderr);
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
    fs::write(folder.path("quick"), "version: 1\nname: mine\ntests: {a: {workload: tcp_rr}}\n").unwrap();
    let mut check = command(&["check", "quick"]);
    let ran: Ran = check.current_dir(folder.path("")).output().expect("plumb starts").into();
    assert!(ran.stdout.contains("mine"), "{}{}", ran.stdout, ran.stderr);
    let shown = plumb(&["plans", "show", "quick"]);
    assert_eq!(shown.stdout, include_str!("../../plans/quick.yaml"));
    let all = plumb(&["plans"]);
    assert!(all.stdout.lines().count() >= 15 && all.stdout.contains("  quick "), "{}", all.stdout);
    assert!(plumb(&["plans", "show", "quik"]).stderr.contains("did you mean `quick`?"));
}
