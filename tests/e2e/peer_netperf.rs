//! The real netperf against this daemon (`plumb serve --also netperf`), in namespaces. Both sides' counts must agree, and the
//! kernel's counters must contain them.

use std::{
    collections::HashMap,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, Ran, Serve, until},
};

/// A namespace in which netperf finds addresses: it asks only for the IP versions that a machine has addresses of, and
/// loopback does not count.
pub fn namespace(program: &str) -> Option<Namespace> {
    if !has_program(program, "netperf") {
        return None;
    }
    let namespace = Namespace::new()?;
    for address in ["10.9.9.1/32", "fd00:9::1/128"] {
        namespace.read("ip", &["address", "add", address, "dev", "lo"]);
    }
    Some(namespace)
}

/// A namespace with a daemon that serves netperf's clients, on both IP versions.
struct Lab {
    namespace: Namespace,
    daemon: Serve,
}

/// Selectors whose values the checks compare.
const COUNTS: &str = "THROUGHPUT,ELAPSED_TIME,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,REMOTE_BYTES_SENT,REMOTE_BYTES_RECVD,\
                      LOCAL_SEND_CALLS,REMOTE_RECV_CALLS,REQUEST_SIZE,RESPONSE_SIZE,CONFIDENCE_ITERATION";

impl Lab {
    fn new() -> Option<Self> {
        let namespace = namespace("netperf")?;
        let mut command = namespace.command(env!("CARGO_BIN_EXE_plumb"));
        let sessions = ["--max-sessions", "64", "--max-sessions-per-client", "64"];
        command.args(["serve", "--listen", "[::]:12864", "--also", "netperf"]).args(sessions);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let daemon = Serve::of(command);
        Some(Self { namespace, daemon })
    }

    fn command(&self, options: &str) -> Command {
        let mut command = self.namespace.command("netperf");
        let host = if options.contains("-H ") { "" } else { "-H 127.0.0.1 " };
        command.args(format!("{host}{options}").split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, options: &str) -> Child {
        let mut command = self.command(options);
        // A group of its own, for signals.
        command.process_group(0);
        command.spawn().unwrap()
    }

    /// Runs netperf, which must succeed and complain of nothing; returns what it prints.
    #[track_caller]
    fn netperf(&self, options: &str) -> String {
        let ran: Ran = self.command(options).output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{options}: {}", ran.stdout);
        ran.stdout
    }

    /// The same with these selectors; returns their values.
    #[track_caller]
    fn values(&self, options: &str, selectors: &str) -> HashMap<String, String> {
        let separator = if options.contains(" -- ") { "" } else { " --" };
        let said = self.netperf(&format!("{options}{separator} -k {selectors}"));
        said.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[track_caller]
    fn counts(&self, options: &str) -> Counts {
        let values = self.values(options, COUNTS);
        let number = |name: &str| values.get(name).and_then(|value| value.parse::<f64>().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
        let count = |name: &str| number(name).unwrap_or_else(|| panic!("{options}: {name}: {values:?}")) as u64;
        Counts {
            sent: count("LOCAL_BYTES_SENT"),
            received: count("LOCAL_BYTES_RECVD"),
            remote_sent: count("REMOTE_BYTES_SENT"),
            remote_received: count("REMOTE_BYTES_RECVD"),
            sends: count("LOCAL_SEND_CALLS"),
            remote_receives: count("REMOTE_RECV_CALLS"),
            iterations: count("CONFIDENCE_ITERATION"),
            throughput: number("THROUGHPUT").unwrap(),
            seconds: number("ELAPSED_TIME").unwrap(),
        }
    }
}

/// The counts of both ends, as netperf prints them.
#[derive(Debug)]
struct Counts {
    sent: u64,
    received: u64,
    remote_sent: u64,
    remote_received: u64,
    sends: u64,
    remote_receives: u64,
    iterations: u64,
    throughput: f64,
    seconds: f64,
}

/// Bytes that a call of a sender can have sent without counting them: its timer interrupts it.
const SEND: u64 = 16_384;

impl Counts {
    /// A stream to the daemon: all has arrived.
    #[track_caller]
    fn is_stream(&self) {
        assert!(0 < self.sent && self.sent <= self.remote_received, "{self:?}");
        assert!(self.remote_received < self.sent + SEND, "{self:?}");
        // netperf computes it from the daemon's count. It prints two digits of the time.
        let stated = self.throughput * 1e6 * self.seconds / 8.0;
        let error = self.throughput * 1e6 * 0.01 / 8.0;
        assert!((stated - self.remote_received as f64).abs() <= error + 1.0, "{stated}: {self:?}");
    }

    /// A stream from the daemon: netperf reads no more after its time.
    #[track_caller]
    fn is_reverse(&self) {
        assert!(0 < self.received && self.received <= self.remote_sent, "{self:?}");
        assert!(self.remote_sent - self.received <= 8 << 20, "{self:?}");
    }

    /// Requests and responses, of which `open` more were under way at the end.
    #[track_caller]
    fn is_exchange(&self, request: u64, response: u64, open: u64) {
        let done = self.received / response;
        assert!(0 < done && self.remote_receives >= done, "{self:?}");
        assert_eq!(self.remote_received % request, 0, "{self:?}");
        let most = (done + open) * request;
        assert!(done * request <= self.remote_received && self.remote_received <= most, "{self:?}");
        assert!(self.received <= self.remote_sent && self.remote_sent <= self.remote_received / request * response);
    }
}

/// Runs checks at the same time: most of their time is waiting for netperf.
fn at_once(lab: &Lab, checks: &[fn(&Lab)]) {
    thread::scope(|scope| {
        for check in checks {
            scope.spawn(|| check(lab));
        }
    });
}

#[test]
fn netperf_and_this_daemon_count_the_same() {
    let Some(lab) = Lab::new() else { return };
    at_once(
        &lab,
        &[
            |lab| lab.counts("-l 1").is_stream(),
            |lab| lab.counts("-l 1 -t TCP_MAERTS").is_reverse(),
            |lab| lab.counts("-l 1 -t TCP_RR").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -t TCP_RR -- -r 1000,3000").is_exchange(1000, 3000, 1),
            |lab| lab.counts("-l 1 -t TCP_RR -- -b 16").is_exchange(1, 1, 17),
            |lab| lab.counts("-l 1 -t TCP_RR -f m").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -t TCP_CRR").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -t UDP_RR").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -t UDP_RR -- -e 1").is_exchange(1, 1, 2),
            |lab| {
                let counts = lab.counts("-l 1 -t UDP_STREAM -- -R 1 -m 1400");
                assert!(0 < counts.remote_receives && counts.remote_receives <= counts.sends, "{counts:?}");
                assert_eq!(counts.remote_received, counts.remote_receives * 1400, "{counts:?}");
            },
            |lab| lab.counts("-6 -l 1 -H ::1 -- -H ::1").is_stream(),
            |lab| lab.counts("-6 -l 1 -H ::1 -t UDP_RR -- -H ::1").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -L 127.0.0.2").is_stream(),
            |lab| lab.counts("-l 1 -L 127.0.0.2 -t UDP_RR").is_exchange(1, 1, 1),
            |lab| lab.counts("-l 1 -H 127.0.0.1 -- -H 127.0.0.1").is_stream(),
            |lab| lab.counts("-l 1 -Z secret").is_stream(),
        ],
    );
}

#[test]
fn netperf_ends_by_counts_and_repeats_on_one_connection() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.namespace.interface("lo");
    let counts = lab.counts("-l -100000000");
    let received = lab.namespace.interface("lo").received_bytes - before.received_bytes;
    counts.is_stream();
    assert!(counts.sent >= 100_000_000, "{counts:?}");
    // Headers and acknowledgements come on top.
    assert!(counts.sent <= received && received < counts.sent + counts.sent / 10, "{received}: {counts:?}");
    at_once(
        &lab,
        &[
            |lab| {
                let counts = lab.counts("-l -100000000 -t TCP_MAERTS");
                counts.is_reverse();
                assert!(counts.received >= 100_000_000, "{counts:?}");
                assert_eq!(counts.received, counts.remote_sent, "{counts:?}");
            },
            |lab| {
                let counts = lab.counts("-l -10000 -t TCP_RR");
                assert_eq!((counts.received, counts.remote_received, counts.remote_sent), (10_000, 10_000, 10_000));
            },
            |lab| {
                let counts = lab.counts("-l -500 -t TCP_CRR");
                assert_eq!((counts.received, counts.remote_received, counts.remote_sent), (500, 500, 500));
            },
            |lab| {
                let counts = lab.counts("-l -1000 -t UDP_RR");
                assert_eq!((counts.received, counts.remote_received, counts.remote_sent), (1000, 1000, 1000));
            },
            |lab| {
                let counts = lab.counts("-l 1 -i 3,2 -I 95,50");
                assert!((2..=3).contains(&counts.iterations), "{counts:?}");
            },
        ],
    );
}

/// The last number of the last line with one.
fn last_number(said: &str) -> f64 {
    let last = said.lines().rev().find_map(|line| line.split_whitespace().next_back()?.parse().ok());
    last.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn classic_requests_options_and_other_questions_are_answered() {
    let Some(lab) = Lab::new() else { return };
    let folder = Folder::new();
    std::fs::write(folder.path("fill"), vec![7; 100_000]).unwrap();
    let file = folder.name("fill");
    thread::scope(|scope| {
        scope.spawn(|| assert!(last_number(&lab.netperf(&format!("-l 1 -t TCP_SENDFILE -F {file}"))) > 0.0));
        scope.spawn(|| {
            let mss = last_number(&lab.netperf("-t TCP_MSS"));
            assert!(mss > 500.0, "{mss}");
            lab.counts("-l 1").is_stream();
        });
        scope.spawn(|| {
            let said = lab.netperf("-l 1 -t TCP_CC");
            let numbers = |line: &str| line.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count();
            let row = said.lines().find(|line| numbers(line) == 6).unwrap_or_else(|| panic!("{said}"));
            assert!(last_number(row) > 0.0, "{said}");
        });
        scope.spawn(|| assert!(last_number(&lab.netperf("-t REM_CPU")) > 0.0));
        scope.spawn(|| {
            let names = "REMOTE_CPU_UTIL,REMOTE_CPU_METHOD,REMOTE_CPU_PERCENT_SYSTEM,REMOTE_CPU_COUNT";
            let values = lab.values("-l 1 -c -C", names);
            assert_eq!(values["REMOTE_CPU_METHOD"], "S", "{values:?}");
            let number = |name: &str| values[name].parse::<f64>().unwrap();
            assert!((0.0..=100.0).contains(&number("REMOTE_CPU_UTIL")), "{values:?}");
            assert!(number("REMOTE_CPU_PERCENT_SYSTEM") <= number("REMOTE_CPU_UTIL") + 0.1, "{values:?}");
            let cpus = thread::available_parallelism().unwrap().get();
            assert_eq!(values["REMOTE_CPU_COUNT"], cpus.to_string());
        });
        scope.spawn(|| {
            let names = "REMOTE_SOCKET_TOS,REMOTE_CONG_CONTROL,DEST_PORT,REMOTE_NODELAY,RSR_SIZE_END,RSS_SIZE_END";
            let values = lab.values("-l 1 -T ,0 -Y 0xb8,0xb8 -- -K cubic,reno -D -P ,42424 -S 65536", names);
            assert_eq!(values["REMOTE_SOCKET_TOS"], "0xb8", "{values:?}");
            assert_eq!((values["DEST_PORT"].as_str(), values["REMOTE_NODELAY"].as_str()), ("42424", "1"));
            // The kernel doubles what is asked for.
            assert_eq!((values["RSR_SIZE_END"].as_str(), values["RSS_SIZE_END"].as_str()), ("131072", "131072"));
            let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
            assert_eq!(values["REMOTE_CONG_CONTROL"] == "reno", allowed.contains("reno"), "{values:?} of {allowed}");
        });
        for (options, error) in [("-l 1 -- -P ,80", 13), ("-l 1 -- -P ,12864", 98), ("-l 100000", 22)] {
            let lab = &lab;
            scope.spawn(move || {
                let ran: Ran = lab.command(options).output().unwrap().into();
                assert!(ran.stdout.contains(&format!("remote error {error}")), "{options}: {ran:?}");
            });
        }
    });
}

/// Threads of a process.
fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Whether a netperf exchanges requests: it then takes SIGINT and SIGALRM for the end of its time.
fn exchanges(child: &Child) -> bool {
    // `ip netns exec` has become netperf, which waits for each response.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0").trim().to_owned();
    let caught = u64::from_str_radix(&value("SigCgt:"), 16).unwrap_or(0);
    let waits: u64 = value("voluntary_ctxt_switches:").parse().unwrap_or(0);
    waits > 1000 && [Signal::SIGINT, Signal::SIGALRM].iter().all(|signal| caught & 1 << (*signal as i32 - 1) != 0)
}

#[test]
fn many_clients_are_served_and_those_that_die_are_forgotten() {
    let Some(lab) = Lab::new() else { return };
    let idle = threads(lab.daemon.pid());
    let kinds = ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "UDP_RR"];
    let others: Vec<Child> =
        (0..24).map(|number| lab.start(&format!("-P 0 -v 0 -l 2 -t {}", kinds[number % 4]))).collect();
    let long: Vec<(Signal, Child)> = [Signal::SIGKILL, Signal::SIGINT, Signal::SIGALRM]
        .map(|signal| (signal, lab.start("-P 0 -v 0 -l 600 -t TCP_RR")))
        .into();
    let killed = lab.start("-P 0 -v 0 -l 600");
    until("each of them has a test", || threads(lab.daemon.pid()) >= idle + 16);
    until("they exchange requests", || long.iter().all(|(_, child)| exchanges(child)));
    for (signal, child) in &long {
        kill(Pid::from_raw(child.id().cast_signed()), *signal).unwrap();
    }
    kill(Pid::from_raw(killed.id().cast_signed()), Signal::SIGKILL).unwrap();
    for (signal, child) in long {
        let ran: Ran = child.wait_with_output().unwrap().into();
        if signal != Signal::SIGKILL {
            assert_eq!(ran.code, Some(0), "{signal}: {ran:?}");
            assert!(ran.stdout.trim().parse::<f64>().unwrap() > 0.0, "{signal}: {ran:?}");
        }
    }
    drop(killed.wait_with_output());
    for child in others {
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.stdout.trim().parse::<f64>().unwrap() > 0.0, "{ran:?}");
    }
    until("the daemon is idle again", || threads(lab.daemon.pid()) == idle);
    lab.counts("-l -1000 -t TCP_RR").is_exchange(1, 1, 1);
}
