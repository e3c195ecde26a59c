//! Attacks, played whole: what a hostile plan, client or host gets.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use netcore::{
    client::{ClientError, DataAddresses, Session, Target},
    control::key::Key,
    spec::{Direction, Pattern, Payload, Stop, TestSpec, Transport},
};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt::ReceiveTimeout,
};

use crate::{
    netns::Namespace,
    program::{Folder, Serve, end, until},
};

/// Bytes of a file that nobody but its owner may see.
const SECRET: &[u8] = b"root:$6$plumb-secret-marker:";

/// Runs `work` and says whether the bytes passed the loopback interface of a namespace meanwhile.
fn is_on_the_wire(namespace: &Namespace, bytes: &[u8], work: impl FnOnce()) -> bool {
    let place = File::open(format!("/run/netns/{}", namespace.name)).unwrap();
    let (ended, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    let capture = || {
        nix::sched::setns(&place, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll).unwrap()
    };
    thread::scope(|scope| {
        let capture = scope.spawn(capture).join().unwrap();
        setsockopt(&capture, ReceiveTimeout, &nix::sys::time::TimeVal::new(0, 20_000)).unwrap();
        let watch = scope.spawn(|| {
            let capture = capture;
            let mut frame = vec![0; 1 << 17];
            loop {
                let over = ended.load(Relaxed);
                match recv(capture.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                    Ok(n) if frame[..n].windows(bytes.len()).any(|window| window == bytes) => {
                        return seen.store(true, Relaxed);
                    }
                    // All that came before the end has been looked at.
                    Err(_) if over => return,
                    _ => {}
                }
            }
        });
        work();
        ended.store(true, Relaxed);
        watch.join().unwrap();
    });
    seen.into_inner()
}

#[test]
fn a_daemon_sends_no_file_that_it_was_not_allowed_to_read() {
    let Some(namespace) = Namespace::new() else { return };
    let folder = Folder::new();
    let (allowed, secret) = (folder.name("allowed"), folder.name("secret"));
    std::fs::create_dir(&allowed).unwrap();
    std::fs::write(&secret, SECRET.repeat(100)).unwrap();
    let public = format!("{allowed}/public");
    std::fs::write(&public, SECRET.repeat(100)).unwrap();
    std::os::unix::fs::symlink(&secret, format!("{allowed}/link")).unwrap();
    let mut serve = namespace.command(env!("CARGO_BIN_EXE_plumb"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--allow-files", &allowed]);
    let daemon = Serve::of({
        serve.stdout(std::process::Stdio::piped());
        serve
    });
    let run = |body: &str| {
        let plan = folder.plan(
            "hosts: {b: {address: 127.0.0.1}}",
            &format!("  it: {{workload: tcp_maerts, to: b, message_size: 500, bytes: 5kB, {body}}}"),
        );
        let mut ran = None;
        let seen = is_on_the_wire(&namespace, SECRET, || {
            let mut run = namespace.command(env!("CARGO_BIN_EXE_plumb"));
            let host = format!("b={}", daemon.address);
            run.args(["run", &plan, "--host", &host, "--progress", "never"]).stdin(std::process::Stdio::null());
            run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            ran = Some(end(run.spawn().unwrap()));
        });
        (seen, ran.unwrap())
    };
    // What it may read is seen: the capture works.
    let (seen, ran) = run(&format!("payload: {public}"));
    assert!(seen, "{}", ran.stderr);
    for body in [
        format!("payload: {secret}"),
        // The path that is sent stands behind one that is allowed.
        format!("payload: {allowed}, remote_buffers: {{fill_file: {secret}}}"),
        format!("payload: {public}, remote_buffers: {{fill_file: {secret}}}"),
        format!("buffers: {{fill_file: {public}}}, remote_buffers: {{fill_file: {secret}}}"),
        format!("payload: {allowed}/link"),
        format!("payload: {allowed}/../secret"),
        format!("remote_buffers: {{fill_file: {allowed}/../secret}}, integrity: true"),
        format!("payload: {public}, remote_buffers: {{fill_file: {allowed}}}"),
    ] {
        let (seen, ran) = run(&body);
        assert!(!seen, "{body}");
        assert_eq!(ran.code, Some(3), "{body}: {}", ran.stderr);
        let refused = ran.stderr.contains("--allow-files") || ran.stderr.contains("no regular file");
        assert!(refused, "{body}: {}", ran.stderr);
    }
}

/// Two hosts whose daemons a script starts. It keeps what passes through its hands, as a hostile host can.
struct Launched {
    folder: Folder,
    hosts: String,
}

impl Launched {
    /// `more`: other keys of each host; `edit`: what the script does to the words of its daemon.
    fn new(more: &str, edit: &str) -> Self {
        let folder = Folder::new();
        let script = format!(
            "name=$1; shift\nread -r key\necho $key > {0}/$name.half\n\
             {{ echo $key; exec cat; }} | \"$@\" | {edit} | tee {0}/$name.said\n",
            folder.path("").display()
        );
        std::fs::write(folder.path("launch.sh"), script).unwrap();
        let host = |name: &str| {
            let run = format!("[sh, {}, \"{{host}}\"]", folder.name("launch.sh"));
            let program = env!("CARGO_BIN_EXE_plumb");
            format!("{name}: {{{more} launch: {{command: {{run: {run}, program: {program}}}}}}}")
        };
        let hosts = format!("hosts: {{{}, {}}}", host("a"), host("b"));
        Self { folder, hosts }
    }

    /// The greeting of a host's daemon, and its key.
    fn told(&self, name: &str) -> Option<(serde_json::Value, Key)> {
        // With `control: launcher` bytes of the control connection, which are no text, follow the greeting.
        let read = |what: &str| {
            let bytes = std::fs::read(self.folder.path(&format!("{name}.{what}"))).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let said = read("said")?;
        let greeting: serde_json::Value =
            serde_json::from_str(said.strip_prefix("plumb-serving ")?.lines().next()?).ok()?;
        let half = |text: &str| Key::from_hex(text.trim());
        let key = half(&read("half")?)?.joined(&half(greeting["key"].as_str()?)?);
        Some((greeting, key))
    }

    fn run(&self, tests: &str) -> std::process::Child {
        let plan = self.folder.plan(&self.hosts, tests);
        let mut run = crate::program::command(&["run", &plan, "--progress", "never"]);
        run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    }
}

#[test]
fn a_launched_host_gets_nothing_from_another() {
    let launched = Launched::new("address: 127.0.0.1,", "cat");
    let folder = &launched.folder;
    let (public, secret) = (folder.path("public"), folder.path("secret"));
    std::fs::write(&public, SECRET.repeat(100)).unwrap();
    std::fs::write(&secret, SECRET.repeat(100)).unwrap();
    let run = launched.run(&format!(
        "  it: {{workload: tcp_maerts, to: b, payload: {}, duration: 10m}}\n  other: {{workload: tcp_rr, to: a}}",
        public.display()
    ));
    until("both daemons said where they are", || launched.told("a").is_some() && launched.told("b").is_some());
    let ((_, key_of_a), (b, key_of_b)) = (launched.told("a").unwrap(), launched.told("b").unwrap());
    let connect = |key: &Key| {
        let address = format!("127.0.0.1:{}", b["port"]);
        Session::connect(&Target { key: Some(key.clone()), ..Target::new("b", address) })
    };
    // A hostile host knows all that its own launcher said to it, and finds the other's port.
    assert!(matches!(connect(&key_of_a), Err(ClientError::KeyDiffers { .. })), "its key opens its own daemon only");
    let half = Key::from_hex(std::fs::read_to_string(folder.path("a.half")).unwrap().trim()).unwrap();
    assert!(matches!(connect(&half), Err(ClientError::KeyDiffers { .. })));
    // And a daemon reads for its own client what the plan names.
    let mut session = connect(&key_of_b).unwrap();
    let mut asks = |file: &std::path::Path| {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        (spec.direction, spec.payload) = (Direction::Reverse, Payload::File(file.to_owned()));
        (spec.sizes.message_bytes, spec.phases.stop) = (500, Stop::AfterNs(1_000_000));
        session.prepare(&spec, &DataAddresses::default()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(asks(&public), Ok(()));
    let refused = asks(&secret).unwrap_err();
    assert!(refused.contains("does not read"), "{refused}");
    end_run(run);
}

#[test]
fn nobody_reaches_a_relayed_control_connection_by_a_port() {
    let launched = Launched::new("address: 127.0.0.1, control: launcher,", "cat");
    let run = launched.run("  it: {workload: tcp_rr, to: b, duration: 10m}\n  other: {workload: tcp_rr, to: a}");
    until("the run is under way", || launched.told("b").is_some());
    let own: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", run.id()))
        .unwrap()
        .filter_map(|fd| Some(std::fs::read_link(fd.ok()?.path()).ok()?.display().to_string()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", run.id())).unwrap();
    let listening = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"0A") && words.get(9).is_some_and(|inode| own.contains(&format!("socket:[{inode}]")))
    };
    assert_eq!(table.lines().find(listening), None);
    end_run(run);
}

#[test]
fn a_launched_host_does_not_choose_where_the_load_goes() {
    let edit = r#"sed -u 's/"addresses":\[[^]]*\]/"addresses":[{"interface":"eth0","address":"192.0.2.9"}]/'"#;
    let launched = Launched::new("control: launcher,", edit);
    let ran = end(launched.run("  it: {workload: udp_rr, from: a, to: b, transactions: 1}"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in ["host `a`: it says that its address is 192.0.2.9", "host `b`: it says", "`address: 192.0.2.9`"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    // The plan's word counts.
    let launched = Launched::new("control: launcher, network: 192.0.2.0/24,", edit);
    let ran = end(launched.run("  it: {workload: tcp_rr, to: b, transactions: 1}"));
    assert!(!ran.stderr.contains("it says"), "{}", ran.stderr);
    // A port of another program.
    let edit = r#"sed -u 's/"port":[0-9]*/"port":22/'"#;
    let launched = Launched::new("address: 127.0.0.1,", edit);
    let ran = end(launched.run("  it: {workload: tcp_rr, to: b, transactions: 1}"));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("listens at port 22"), "{}", ran.stderr);
}

/// Ends a run at once.
fn end_run(run: std::process::Child) {
    let pid = nix::unistd::Pid::from_raw(run.id().cast_signed());
    for _ in 0..2 {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
    end(run);
}
