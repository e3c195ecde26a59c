//! Streams without a copy: the calls that are made, the bytes that the interface carries, and what a kernel refuses.

use std::process::Command;

use nix::{
    fcntl::{FcntlArg, fcntl},
    unistd::pipe,
};

use crate::{
    netns::Namespace,
    program::{Folder, Ran, Row, count, number, of, parse},
    strace::{self, Traced},
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Length of the messages: no other call has it.
const MESSAGE: &str = "100000";

/// Runs one test of a workload with these keys, by a command that goes before the program's own words.
fn run_as(mut command: Command, test: &str) -> Ran {
    let folder = Folder::new();
    let plan = folder.plan("", &format!("  it: {{{test}}}"));
    command.args([PLUMB, "run", "--progress", "never", &plan]).output().unwrap().into()
}

/// The iteration of a run that succeeded.
fn iteration(ran: &Ran) -> Row {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let row = of(&rows, "iteration")[0].clone();
    assert_eq!(row["status"], "ok", "{}", ran.stderr);
    row
}

/// A traced run in a namespace, which must succeed, and its row. `None`: there is no strace.
fn trace(namespace: &Namespace, calls: &str, test: &str) -> Option<(Row, Traced)> {
    let folder = Folder::new();
    let plan = folder.plan("", &format!("  it: {{{test}}}"));
    let traced = strace::run(namespace.command("strace"), calls, &["-v", "-s", "1"], &plan)?;
    Some((iteration(&traced.ran), traced))
}

/// A run in a namespace with faults; `None`: there is no strace.
fn faulty(namespace: &Namespace, calls: &str, fault: &str, test: &str) -> Option<Ran> {
    let folder = Folder::new();
    let plan = folder.plan("", &format!("  it: {{{test}}}"));
    strace::run(namespace.command("strace"), calls, &["-e", fault], &plan).map(|traced| traced.ran)
}

#[test]
fn the_interface_carries_what_was_reported() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    for (io, receive) in
        [("splice", "copy"), ("vmsplice", "copy"), ("zerocopy", "copy"), ("auto", "discard"), ("vmsplice", "discard")]
    {
        let test = format!("workload: tcp_stream, io: {io}, receive: {receive}, bytes: 64MiB, message_size: 64KiB");
        let plan = folder.plan("", &format!("  it: {{{test}}}"));
        let (ran, [before, after]) = alone.around(&plan, |inside| inside.interface("lo"));
        let row = iteration(&ran);
        let sent = count(&row, "bytes_sent");
        assert_eq!((count(&row, "bytes_received"), &row["receive"] as &str), (sent, receive), "{io}");
        assert_eq!(sent, 64 << 20);
        let carried = after.received_bytes - before.received_bytes;
        let packets = after.received_packets - before.received_packets;
        // Headers of 54 to 94 bytes, the control connection, and what a stopped machine made the kernel send again.
        let again = 65_536 * count(&row, "retransmits");
        let (least, most) = (sent + 54 * packets, sent + 94 * packets + (1 << 19) + again);
        assert!((least..=most).contains(&carried), "{io} {receive}: {carried} bytes carried, not {least} to {most}");
    }
}

#[test]
fn discarded_datagrams_are_those_that_the_kernel_delivered() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan =
        folder.plan("", "  it: {workload: udp_stream, receive: discard, duration: 1s, message_size: 1000, rate: 5k/s}");
    let (ran, [before, after]) = alone.around(&plan, |inside| inside.snmp("Udp", "InDatagrams"));
    let row = iteration(&ran);
    let delivered = after - before;
    let received = count(&row, "messages_received");
    // Each flow begins and ends with a few datagrams of its own.
    assert!((received..=received + 100).contains(&delivered), "{received} reported, {delivered} delivered");
    assert_eq!(count(&row, "lost"), count(&row, "messages_sent") - received);
    // Bytes are cut at the window's edges, messages belong to the phase of their sending.
    let bytes = count(&row, "bytes_received");
    assert!(
        bytes.is_multiple_of(1000) && bytes.abs_diff(1000 * received) <= 100_000,
        "{bytes} bytes of {received} messages"
    );
    assert!(number(&row, "jitter_us") > 0.0);
}

#[test]
fn the_call_that_is_meant_is_the_call_that_is_made() {
    let Some(alone) = Namespace::new() else { return };
    let sends = "sendto,sendmsg,sendmmsg,writev,sendfile,splice,vmsplice";
    let plain = |calls: &Traced| calls.count(&["send", MESSAGE, "MSG_NOSIGNAL"]);
    for (io, moved) in [("splice", "splice"), ("vmsplice", "vmsplice"), ("sendfile", "sendfile")] {
        let test = format!("workload: tcp_stream, io: {io}, bytes: 5MB, message_size: {MESSAGE}");
        let Some((row, calls)) = trace(&alone, sends, &test) else { return };
        assert_eq!(row["io"], io);
        let (made, plain) = (calls.count(&[moved, MESSAGE]), plain(&calls));
        assert!(made >= 50 && plain == 0, "{io}: {made} calls, {plain} plain ones");
    }
    let test = format!("workload: tcp_stream, io: zerocopy, bytes: 5MB, message_size: {MESSAGE}");
    let Some((row, calls)) = trace(&alone, "sendto,recvmsg,setsockopt", &test) else { return };
    assert_eq!(calls.count(&["SO_ZEROCOPY, [1]"]), 1, "one sender");
    let sent = calls.count(&["sendto", MESSAGE, "MSG_ZEROCOPY"]);
    assert!(sent >= 50 && sent == plain(&calls), "{sent} of {}", plain(&calls));
    assert!(calls.count(&["recvmsg", "MSG_ERRQUEUE"]) >= 1);
    assert_eq!(row["zerocopy_copied_ratio"], "1", "loopback copies");
}

#[test]
fn a_receiver_that_discards_makes_no_other_call() {
    let Some(alone) = Namespace::new() else { return };
    for (receive, discards) in [("copy", false), ("discard", true)] {
        let test = format!("workload: tcp_stream, receive: {receive}, bytes: 5MB, receive_size: {MESSAGE}");
        let Some((_, calls)) = trace(&alone, "recvfrom,read", &test) else { return };
        let size = format!(" {MESSAGE}, ");
        let all = calls.count(&["recvfrom", &size]);
        let cut = calls.count(&["recvfrom", &size, "MSG_TRUNC"]);
        assert!(all >= 50 && cut == if discards { all } else { 0 }, "{receive}: {cut} of {all}");
        let test = format!("workload: udp_stream, receive: {receive}, bytes: 100kB, message_size: 1000, rate: 1k/s");
        let Some((_, calls)) = trace(&alone, "recvmmsg", &test) else { return };
        let (short, long) = (calls.count(&["iov_len=16"]), calls.count(&["iov_len=1472"]));
        let (all, cut) = (calls.count(&["WAITFORONE"]), calls.count(&["MSG_TRUNC|MSG_WAITFORONE"]));
        // The length of a cut datagram tells a greeting from a message, too.
        assert_eq!((short > 0, long > 0, cut), (discards, !discards, all), "{receive}");
    }
}

#[test]
fn a_pipe_that_is_smaller_than_asked_for_is_told() {
    let Some(alone) = Namespace::new() else { return };
    // A user without these rights gets pipes of two pages once its pipes have more than 64 MiB (fs.pipe-user-pages-soft).
    let pipes: Vec<_> = (0..64).map(|_| pipe().unwrap()).collect();
    for (_, writer) in &pipes {
        fcntl(writer, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
    }
    let mut command = alone.command("setpriv");
    command.arg("--bounding-set=-sys_resource,-sys_admin");
    let ran = run_as(command, "workload: tcp_stream, io: vmsplice, bytes: 4MB, integrity: true");
    drop(pipes);
    let row = iteration(&ran);
    assert_eq!(count(&row, "bytes_received"), 4_000_000);
    assert!(ran.stderr.contains("the pipe that was to hold 1048576 bytes holds 8192"), "{}", ran.stderr);
}

#[test]
fn a_kernel_without_zero_copy_is_named() {
    let Some(alone) = Namespace::new() else { return };
    let test = "workload: tcp_stream, io: zerocopy, bytes: 50kB, message_size: 1000";
    let Some((_, calls)) = trace(&alone, "setsockopt", test) else { return };
    let faults = calls.faults("SO_ZEROCOPY", "ENOPROTOOPT");
    assert_eq!(faults.len(), 1, "one sender");
    let Some(ran) = faulty(&alone, "setsockopt", &faults[0], test) else { return };
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let sentence = "the kernel does not let this socket send with `io: zerocopy` (SO_ZEROCOPY): use another `io`";
    assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
}

#[test]
fn completions_that_never_come_are_waited_for_only_so_long() {
    let Some(alone) = Namespace::new() else { return };
    let test = "workload: tcp_stream, io: zerocopy, bytes: 50kB, message_size: 1000";
    let Some(ran) = faulty(&alone, "recvmsg", "inject=recvmsg:error=EAGAIN", test) else { return };
    let row = iteration(&ran);
    assert_eq!((count(&row, "bytes_received"), &row["zerocopy_copied_ratio"] as &str), (50_000, ""));
    let sentence = "flow 0: 50 of 50 zero-copy sends have no completion 2 s after the peer acknowledged their bytes";
    assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
}

#[test]
fn locked_memory_bounds_zero_copy_and_stops_it_only_at_nothing() {
    let Some(alone) = Namespace::new() else { return };
    let test = "workload: tcp_stream, io: zerocopy, bytes: 20MB, message_size: 100000";
    let limited = |bytes: &str| {
        let mut command = alone.command("setpriv");
        command.args(["--bounding-set=-ipc_lock", "prlimit", &format!("--memlock={bytes}")]);
        run_as(command, test)
    };
    // Room for a few messages: the sender reads completions and goes on.
    assert_eq!(count(&iteration(&limited("400000")), "bytes_received"), 20_000_000);
    let ran = limited("65536");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the kernel has no memory for zero-copy sends"), "{}", ran.stderr);
}
