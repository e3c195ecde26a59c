//! Attacks, played whole: what a hostile plan, client or host gets.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt::ReceiveTimeout,
};

use crate::{
    netns::Namespace,
    program::{Folder, Serve, end},
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
