//! `io: spin`: it ends in time where both ends share a CPU, its calls are those that it claims, and what it counts is what the
//! kernel counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use crate::{
    needs::{has_program, skip},
    netns::Namespace,
    program::{Folder, Ran, Row, count, number, of, parse, plumb},
    strace::{self, Traced},
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// CPUs that this process may use.
pub fn allowed_cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().parse::<netcore::spec::Cpus>().unwrap().0
}

/// The measured rows of a run that must succeed, by test.
fn iterations(ran: &Ran) -> BTreeMap<String, Row> {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = parse(&ran.stdout);
    let measured = of(&rows, "iteration").into_iter().filter(|row| row["phase"] == "measure");
    measured.inspect(|row| assert_eq!(row["status"], "ok")).map(|row| (row["test"].clone(), row.clone())).collect()
}

/// A test of each pattern that spins, with these keys. It stops by a count: on a busy machine a time may pass without a transaction.
fn every_pattern(keys: &str) -> String {
    let (transactions, bytes) = ("transactions: 400", "bytes: 2MB");
    let workloads = [
        ("tcp_stream", bytes),
        ("tcp_duplex", bytes),
        ("tcp_rr", transactions),
        ("tcp_cc", transactions),
        ("tcp_crr", transactions),
        ("udp_stream", bytes),
        ("udp_rr", transactions),
        ("unix_rr", transactions),
        ("unix_crr", transactions),
        ("unix_dgram_rr", transactions),
        ("unix_dgram_stream", bytes),
        ("unix_seqpacket_stream", bytes),
    ];
    let test =
        |(workload, stop): (&str, &str)| format!("  {workload}: {{workload: {workload}, io: spin, {stop}{keys}}}");
    workloads.map(test).join("\n")
}

fn moved(row: &Row) -> bool {
    ["transactions", "bytes_received"].iter().any(|column| !row[*column].is_empty() && number(row, column) > 0.0)
}

#[test]
fn ends_that_a_plan_pins_to_one_cpu_block_at_once_and_say_so() {
    let (folder, cpu) = (Folder::new(), allowed_cpus()[0]);
    let plan = folder.plan("", &every_pattern(&format!(", cpu: {cpu}, remote_cpu: {cpu}")));
    let checked = plumb(&["check", &plan]);
    let warning = format!("`io: spin` would not spin: `cpu` and `remote_cpu` pin both ends to CPU {cpu}");
    assert_eq!((checked.code, checked.stderr.matches(&warning).count()), (Some(0), 12), "{}", checked.stderr);
    let ran = plumb(&["run", &plan, "--progress", "never"]);
    let rows = iterations(&ran);
    assert_eq!(rows.len(), 12);
    for (test, row) in rows {
        assert!(moved(&row), "{test}: {row:?}");
        assert_eq!(row["io"], "spin", "{test}");
        for ratio in ["local_spin_ratio", "remote_spin_ratio"] {
            assert!(number(&row, ratio) <= 0.0, "{test}");
        }
        for end in ["near", "far"] {
            let note = format!(
                "{test}: io: spin blocked at once for up to 100 % of the waits of the {end} end, since both ends shared CPU {cpu}"
            );
            assert!(ran.stderr.contains(&note), "no {note}:\n{}", ran.stderr);
        }
    }
}

#[test]
fn a_plan_that_keeps_the_ends_apart_is_not_warned_of() {
    let (folder, cpu) = (Folder::new(), allowed_cpus()[0]);
    let far = "hosts: {b: {address: 192.0.2.1}, c: {address: 192.0.2.2}}";
    for (top, keys, warned) in [
        ("", format!("cpu: {cpu}, remote_cpu: {}", cpu + 1), false),
        ("", format!("cpu: {cpu}"), false),
        ("", format!("streams: 2, cpu: {cpu}, remote_cpu: [{cpu}, {}]", cpu + 1), false),
        ("", format!("streams: 2, cpu: {cpu}, remote_cpu: {cpu}"), true),
        (far, format!("cpu: {cpu}, remote_cpu: {cpu}, to: b"), false),
        (far, format!("cpu: {cpu}, remote_cpu: {cpu}, from: c, to: b"), false),
        (far, format!("cpu: {cpu}, remote_cpu: {cpu}, from: b, to: b"), true),
    ] {
        let plan = folder.plan(top, &format!("  it: {{workload: tcp_rr, io: spin, {keys}}}"));
        let checked = plumb(&["check", &plan]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        assert_eq!(checked.stderr.contains("would not spin"), warned, "{keys}: {}", checked.stderr);
    }
}

/// The plan does not say that there is one CPU only: sockets that know their packets' CPU tell, and for the others spins that
/// are in vain become rare.
#[test]
fn ends_that_happen_to_share_a_cpu_find_out() {
    if !has_program("taskset", "util-linux") {
        return;
    }
    let (folder, cpu) = (Folder::new(), allowed_cpus()[0]);
    let plan = folder.plan("", &every_pattern(""));
    let ran: Ran = Command::new("taskset")
        .args(["-c", &cpu.to_string(), PLUMB, "run", "--progress", "never", &plan])
        .output()
        .unwrap()
        .into();
    let rows = iterations(&ran);
    assert_eq!(rows.len(), 12);
    assert!(rows.values().all(moved), "{rows:?}");
    for test in ["tcp_rr", "udp_rr"] {
        let said = |end| format!("of the waits of the {end} end, since both ends shared CPU {cpu}");
        for end in ["near", "far"] {
            let note = ran.stderr.lines().find(|line| {
                line.starts_with(&format!("note: {test}: io: spin blocked at once")) && line.contains(&said(end))
            });
            assert!(note.is_some(), "{test}, {end}:\n{}", ran.stderr);
        }
    }
}

#[test]
fn spun_transactions_are_those_that_the_kernel_carried() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  rr: {workload: tcp_rr, io: spin, transactions: 3000, request_size: 100, response_size: 200}\n  \
           crr: {workload: tcp_crr, io: spin, streams: 2, transactions: 501}\n  \
           ping: {workload: ping, io: spin, transactions: 50}",
    );
    let (ran, [before, after]) = alone.around(&plan, |inside| {
        [inside.snmp("Tcp", "ActiveOpens"), inside.snmp("Icmp", "OutEchoReps"), inside.interface("lo").received_bytes]
    });
    let rows = iterations(&ran);
    assert_eq!((count(&rows["rr"], "bytes_sent"), count(&rows["rr"], "bytes_received")), (900_000, 900_000));
    assert_eq!((count(&rows["crr"], "connections"), count(&rows["crr"], "remote_connections")), (501, 501));
    assert_eq!((count(&rows["crr"], "errors"), count(&rows["ping"], "transactions")), (0, 50));
    // Besides those of the transactions: control connections, and those that prove a flow.
    let opened = after[0] - before[0];
    assert!((501..=520).contains(&opened), "{opened}");
    assert_eq!(after[1] - before[1], 50);
    assert!(after[2] - before[2] >= 900_000);
}

/// The calls of the data threads, which have given themselves names.
fn of_data_threads(traced: &Traced) -> Vec<Vec<&str>> {
    let named = traced.calls.iter().filter(|(_, call)| call.starts_with("prctl(PR_SET_NAME, \"data "));
    let of = |thread: &str| -> Vec<&str> {
        let own = traced.calls.iter().filter(|(by, call)| by == thread && !call.starts_with("prctl"));
        own.map(|(_, call)| call.as_str()).collect()
    };
    named.map(|(thread, _)| of(thread)).collect()
}

#[test]
fn a_wait_begins_with_calls_that_return_at_once_and_goes_on_in_one_that_blocks() {
    let folder = Folder::new();
    // Each request comes long after the answer before it. A Unix socket does not say on which CPU its peer is, so only the two calls
    // at rest lie between a spin in vain and the next one.
    let [near, far, ..] = allowed_cpus()[..] else { return skip("there is one CPU only") };
    let keys = format!("rate: 200/s, transactions: 100, cpu: {near}, remote_cpu: {far}");
    let plan = folder.plan("", &format!("  it: {{workload: unix_rr, io: spin, {keys}}}"));
    let Some(traced) = strace::run_here("prctl,recvfrom,poll,ppoll,epoll_wait", &[], &plan) else { return };
    assert_eq!(count(&iterations(&traced.ran)["it"], "transactions"), 100);
    let data = of_data_threads(&traced);
    assert_eq!(data.len(), 2);
    // Only the requester has due times, which it waits for in `ppoll`.
    let responder = data.iter().find(|calls| calls.iter().all(|call| !call.contains("poll"))).expect("no poll");
    let spun = responder.iter().position(|call| call.contains("MSG_DONTWAIT") && call.contains("EAGAIN")).unwrap();
    // A call that blocks may be logged in two parts, of which the second has the flags.
    let blocked = responder.iter().position(|call| call.contains("recvfrom") && call.contains(", 0, NULL")).unwrap();
    assert!(spun < blocked, "{responder:?}");
    assert!(responder[blocked..].iter().any(|call| call.contains("MSG_DONTWAIT")), "it spins again");
}

#[test]
fn socket_options_are_set_and_what_was_granted_is_told() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  it: {workload: tcp_crr, streams: 2, transactions: 20, socket: {busy_poll: 50us, incoming_cpu: 0}, \
           remote_socket: {reuseport: cpu}}",
    );
    let Some(traced) = strace::run_here("setsockopt", &[], &plan) else { return };
    assert_eq!(count(&iterations(&traced.ran)["it"], "transactions"), 20);
    let calls = &traced.calls;
    let set = |option: &str| calls.iter().filter(|(_, call)| call.contains(option) && call.ends_with("= 0")).count();
    // One more is the daemon's, for datagrams.
    assert_eq!((set("SO_REUSEPORT,"), set("SO_ATTACH_REUSEPORT_CBPF")), (3, 1), "{calls:?}");
    assert!(set("SO_INCOMING_CPU, [0]") >= 4 && set("SO_BUSY_POLL, [50]") >= 4, "{calls:?}");
}

#[test]
fn a_kernel_without_an_option_is_a_sentence_and_the_exit_code_of_a_failed_measurement() {
    let folder = Folder::new();
    for (options, call, said) in [
        (
            "socket: {busy_poll: 50us}",
            "SO_BUSY_POLL,",
            "the kernel refuses busy_poll = 50us: this kernel lacks the option",
        ),
        ("socket: {incoming_cpu: 0}", "SO_INCOMING_CPU,", "the kernel refuses incoming_cpu = 0: this kernel lacks"),
        ("remote_socket: {reuseport: hash}", "SO_REUSEPORT,", "the kernel refuses SO_REUSEPORT"),
        ("remote_socket: {reuseport: cpu}", "SO_ATTACH_REUSEPORT_CBPF,", "which reuseport: cpu needs"),
    ] {
        let plan = folder.plan("", &format!("  it: {{workload: tcp_cc, streams: 2, transactions: 4, {options}}}"));
        let Some(traced) = strace::run_here("setsockopt", &[], &plan) else { return };
        let faulty = |fault: &String| strace::run_here("setsockopt", &["-e", fault], &plan).map(|traced| traced.ran);
        // Another thread may fail at its call of the same number.
        let ran: Vec<Ran> = traced.faults(call, "ENOPROTOOPT").iter().filter_map(faulty).collect();
        let is_said = ran.iter().any(|ran| ran.code == Some(3) && ran.stderr.contains(said));
        assert!(is_said, "{said}: {:?}", ran.iter().map(|ran| (ran.code, &ran.stderr)).collect::<Vec<_>>());
    }
}

#[test]
fn connections_arrive_at_all_listeners_of_a_shared_port() {
    let Some(alone) = Namespace::new() else { return };
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  own: {workload: tcp_crr, streams: 4, transactions: 800, remote_socket: {reuseport: hash}}\n  \
           few: {workload: tcp_cc, streams: 8, threads: 2, transactions: 800, remote_socket: {reuseport: hash}}",
    );
    let (ran, [before, after]) = alone.around(&plan, |inside| inside.snmp("Tcp", "PassiveOpens"));
    let accepted = after - before;
    for (test, row) in iterations(&ran) {
        assert_eq!((count(&row, "connections"), count(&row, "remote_connections")), (800, 800), "{test}");
        let rows = parse(&ran.stdout);
        let streams: Vec<_> = of(&rows, "stream").into_iter().filter(|row| row["test"] == test).collect();
        let there: Vec<u64> = streams.iter().map(|row| count(row, "remote_connections")).collect();
        assert!(there.iter().all(|count| *count > 0), "{test}: {there:?}");
        assert_eq!(there.iter().sum::<u64>(), 800, "{test}");
        assert!(streams.iter().all(|row| row["bytes_received"].is_empty()), "bytes of two different flows");
    }
    assert!((1600..=1640).contains(&accepted), "{accepted}");
}

#[test]
fn connections_arrive_at_the_listener_of_the_cpu_that_handles_them() {
    let cpus = allowed_cpus();
    let [a, b, ..] = cpus[..] else { return skip("there is one CPU only") };
    let folder = Folder::new();
    for (place, near) in [(0, a), (1, b)] {
        let plan = folder.plan(
            "",
            &format!(
                "  it: {{workload: tcp_crr, streams: 2, transactions: 300, cpu: {near}, remote_cpu: [{a}, {b}], \
                 remote_socket: {{reuseport: cpu}}}}"
            ),
        );
        let ran = plumb(&["run", &plan, "--progress", "never"]);
        assert_eq!(count(&iterations(&ran)["it"], "remote_connections"), 300);
        let rows = parse(&ran.stdout);
        let there: Vec<u64> = of(&rows, "stream").iter().map(|row| count(row, "remote_connections")).collect();
        // Packets of this host are handled on the CPU that sends them.
        let expected: Vec<u64> = (0..2).map(|listener| if listener == place { 300 } else { 0 }).collect();
        assert_eq!(there, expected);
    }
}

#[test]
fn a_shared_port_is_refused_where_it_has_no_meaning() {
    let folder = Folder::new();
    let hosts = "hosts: {n: {address: 192.0.2.1, speaks: netperf}, s: {address: 192.0.2.2}}";
    let mut refused = BTreeSet::new();
    for (test, word) in [
        ("workload: tcp_rr", "other workloads have one connection"),
        ("workload: unix_crr", "other workloads have one connection"),
        ("workload: tcp_crr, to: n", "another program"),
        ("workload: tcp_crr, to: s, control: none, remote_ports: 7, close: near_first", "another program"),
        ("workload: tcp_crr, streams: 4, threads: 2", "leave `threads` out, or write hash"),
        ("workload: tcp_crr, streams: 3, remote_cpu: [0, 1]", "remote_cpu has 2 for 3 streams"),
    ] {
        let plan = folder.plan(hosts, &format!("  it: {{{test}, remote_socket: {{reuseport: cpu}}}}"));
        let checked = plumb(&["check", &plan]);
        assert_eq!(checked.code, Some(2), "{test}: {}", checked.stderr);
        assert!(checked.stderr.contains(word), "{test}: {}", checked.stderr);
        refused.insert(test);
    }
    assert_eq!(refused.len(), 6);
}
