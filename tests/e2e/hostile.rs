//! Daemons, launched programs and files that say what terminals and CI systems obey: none of it arrives there.

use std::{
    fmt::Write,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use netcore::{
    control::{
        channel::Channel,
        frame::{GREETING_BOUND, REPLY_BOUND},
        message::{ErrorCode, Greeting, Hello, Limits, Part, Reply, ReplyError, Request, Seen},
    },
    end::End,
    measure::{
        clock::{monotonic_ns, reading},
        host::HostFacts,
    },
    mpi::RankFacts,
    report::{Ending, NicFacts, Report, SideReport},
    spec::Side,
};

use crate::program::{Folder, Ran, command, plumb};

/// The title of a terminal's window, a screen without text, a command of GitHub's and one of Azure's; turned letters.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\n::set-output name=a::b\r\n  ::error::c\n##vso[task]d\u{202e}e";

fn hostile() -> String {
    HOSTILE.to_owned()
}

fn is_tame(what: &str, text: &str) {
    let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(bad, None, "{what}: {text:?}");
    let obeyed = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("::set-output") || line.starts_with("::error::c") || line.contains("##vso[")
    };
    assert_eq!(text.lines().find(obeyed), None, "{what}: {text}");
}

fn are_tame(what: &str, ran: &Ran) {
    is_tame(what, &ran.stdout);
    is_tame(what, &ran.stderr);
}

/// The message that has the hostile text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It greets, and then gives no session.
    Refusal,
    /// It refuses the test.
    Error,
    /// It measures, and its report has it everywhere.
    Report,
}

/// A daemon of this process.
fn daemon(says: Says) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || converse(stream, says));
        }
    });
    address
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn nic() -> NicFacts {
    NicFacts { name: hostile(), driver: Some(hostile()), firmware: Some(hostile()), ..NicFacts::default() }
}

fn converse(stream: TcpStream, says: Says) -> Option<()> {
    let mut channel = Channel::accept(stream, None, soon()).ok()?;
    let _: Hello = channel.recv(soon()).ok()?;
    let error = || ReplyError::new(ErrorCode::Refused, HOSTILE);
    let text = || Some(hostile());
    let host = HostFacts {
        hostname: text(),
        kernel_release: text(),
        cpu_model: text(),
        governor: text(),
        sysctls: [(hostile(), hostile())].into(),
        ..HostFacts::default()
    };
    let hello =
        Hello { tool_version: hostile(), process: 1, limits: Some(Limits::default()), host, mpi: None::<RankFacts> };
    let greeting = if says == Says::Refusal { Greeting::Error(error()) } else { Greeting::Hello(Box::new(hello)) };
    channel.send(&greeting, GREETING_BOUND, soon()).ok()?;
    channel.set_bound(REPLY_BOUND);
    let mut end = None;
    loop {
        let reply = match channel.recv::<Request>(soon()).ok()? {
            Request::Probe => Reply::Probed { arrived_ns: monotonic_ns(), answered: reading() },
            Request::Look(_) => Reply::Seen(Box::new(Seen { nic: Some(nic()), ..Seen::default() })),
            Request::Abort => Reply::Idle,
            Request::Prepare(_) if says == Says::Error => Reply::Error(error()),
            Request::Prepare(prepare) => {
                let Part::End { spec, .. } = prepare.part else { return None };
                let far = End::prepare(&spec, Side::Far, Some("127.0.0.1".parse().unwrap()), prepare.token).ok()?;
                let endpoints = far.endpoints();
                end = Some(far);
                Reply::Prepared(endpoints)
            }
            Request::Connect(_) => {
                end.as_mut()?.connect(None, Duration::from_secs(10)).ok()?;
                Reply::Ready
            }
            Request::Start { .. } => {
                let report = SideReport {
                    io: hostile(),
                    library: Some(hostile()),
                    nic: Some(nic()),
                    notes: vec![hostile()],
                    ..SideReport::empty(Side::Far, Ending::Failed(hostile()))
                };
                Reply::Report { text: serde_json::to_string(&Report::End(Box::new(report))).ok()?, last: true }
            }
            _ => continue,
        };
        channel.send(&reply, REPLY_BOUND, soon()).ok()?;
    }
}

#[test]
fn a_daemons_words_reach_neither_a_terminal_nor_a_log_of_ci_as_commands() {
    for says in [Says::Refusal, Says::Error, Says::Report] {
        let folder = Folder::new();
        let top = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}\ndefaults: {{to: b}}", daemon(says));
        let plan = folder.plan(&top, "  a: {workload: tcp_rr, duration: 20ms, iterations: 1, warmup: 0}");
        let table = folder.name("r.csv");
        let run = command(&["run", &plan, "-o", &table]).env("GITHUB_ACTIONS", "true").output().unwrap();
        let ran = Ran::from(run);
        assert!(ran.stderr.contains("\\u{1b}]0;owned"), "{says:?}: the words are there: {}", ran.stderr);
        are_tame(&format!("run, {says:?}"), &ran);
        are_tame(&format!("hosts, {says:?}"), &plumb(&["hosts", &plan]));
        if folder.path("r.csv").exists() {
            are_tame(&format!("report, {says:?}"), &plumb(&["report", &table]));
            are_tame(&format!("table, {says:?}"), &plumb(&["table", &table]));
            is_tame(&format!("rows, {says:?}"), &fs::read_to_string(&table).unwrap());
        }
    }
}

#[test]
fn a_launched_programs_words_are_quoted_without_commands() {
    let folder = Folder::new();
    let script = folder.path("words");
    fs::write(&script, format!("#!/bin/sh\nprintf '%s\\n' '{HOSTILE}' >&2\nprintf '%s\\n' '{HOSTILE}'\nexit 3\n"))
        .unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let top = format!(
        "hosts: {{b: {{address: 127.0.0.1, launch: {{command: {{run: [{}]}}}}}}}}\ndefaults: {{to: b}}",
        script.display()
    );
    let plan = folder.plan(&top, "  a: {workload: tcp_rr, duration: 20ms}");
    let ran = plumb(&["run", &plan]);
    assert!(ran.stderr.contains("\\u{1b}]0;owned"), "{}", ran.stderr);
    are_tame("run", &ran);
}

#[test]
fn cells_of_a_table_are_printed_without_commands() {
    let folder = Folder::new();
    let mut text = String::from(
        "case_id,case,test,record,phase,iteration,status,error,streams,axis_streams,throughput_bits_per_s\n",
    );
    for (case, rate) in [("c1", 100e6), ("c2", 50e6)] {
        for i in 0..6 {
            let rate = rate + f64::from(i) * 1e5;
            let names = format!("{case},\"{HOSTILE}{case}\",\"{HOSTILE}\"");
            writeln!(text, "{names},iteration,measure,{i},ok,\"{HOSTILE}\",1,1,{rate}").unwrap();
        }
    }
    let table = folder.name("t.csv");
    fs::write(&table, &text).unwrap();
    let base = folder.name("base.csv");
    fs::write(&base, text.replace("100", "200")).unwrap();
    let assert = ["--assert", "throughput >= 1Gbit/s"];
    for args in [
        &["table"][..],
        &["table", "--md"],
        &["compare", "-f", "text", &base],
        &["compare", "-f", "md", &base],
        &["gate", assert[0], assert[1], "-f", "text"],
        &["gate", assert[0], assert[1], "-f", "md"],
        &["gate", assert[0], "nothing >= 1", "-f", "text"],
        &["report"],
        &["aggregate", "-g", "nothing"],
        &["plot", "sweep", "-x", "streams"],
    ] {
        let ran = plumb(&[args, &[table.as_str()]].concat());
        let said = ran.stdout.clone() + &ran.stderr;
        assert!(!said.is_empty(), "{args:?}");
        assert!(!said.contains("unexpected argument") && !said.contains("invalid value"), "{args:?}: {said}");
        are_tame(&format!("{args:?}"), &ran);
    }
    fs::write(folder.path("bad.csv"), format!("\"{HOSTILE}\",case\n1\n")).unwrap();
    are_tame("a broken table", &plumb(&["table", &folder.name("bad.csv")]));
    fs::write(folder.path("bad.yaml"), format!("version: 1\nname: \"{HOSTILE}\u{1b}\ntests: []\n")).unwrap();
    are_tame("a plan", &plumb(&["check", &folder.name("bad.yaml")]));
}
