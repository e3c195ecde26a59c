//! The real `iperf3 -c` against `plumb serve --also iperf3`, in network namespaces.

use std::{
    process::{Command, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    needs::{has_program, skip},
    netns::{Namespace, Pair},
    program::{Ran, Serve},
};

/// A namespace with a daemon on both versions of IP, for as many streams as iperf3 has.
struct Served {
    namespace: Namespace,
    _daemon: Serve,
}

impl Served {
    fn new() -> Option<Self> {
        if !has_program("iperf3", "iperf3") {
            return None;
        }
        let namespace = Namespace::new()?;
        let daemon = serve(&namespace);
        Some(Self { namespace, _daemon: daemon })
    }

    /// Runs a client to its end.
    fn run(&self, arguments: &str) -> Ran {
        client(&self.namespace, "127.0.0.1", arguments).output().expect("iperf3 starts").into()
    }

    /// The document of a client that must succeed.
    fn document(&self, arguments: &str) -> Value {
        document(arguments, &self.run(arguments))
    }
}

/// A daemon in a namespace.
fn serve(namespace: &Namespace) -> Serve {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_plumb"));
    command.args(["serve", "--listen", "[::]:12864", "--also", "iperf3", "--max-flows", "256"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Serve::of(command)
}

/// A client whose document goes to its standard output.
fn client(namespace: &Namespace, host: &str, arguments: &str) -> Command {
    let mut command = namespace.command("iperf3");
    command.args(["-J", "-c", host]).args(arguments.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The document that a client has printed, which names no error.
fn document(arguments: &str, ran: &Ran) -> Value {
    let document: Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{arguments}: {error}: {ran:?}"));
    assert!(document.get("error").is_none() && ran.code == Some(0), "{arguments}: {ran:?}");
    assert_eq!(ran.stderr, "", "{arguments}");
    document
}

/// A count in a client's document.
pub fn count(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {document}"))
}

/// Both ends' bytes: of the client's streams and of the others.
fn bytes(document: &Value, suffix: &str) -> (u64, u64) {
    (
        count(document, &format!("/end/sum_sent{suffix}/bytes")),
        count(document, &format!("/end/sum_received{suffix}/bytes")),
    )
}

/// Arguments of a client, and the check of its run.
type Case<'c> = (&'c str, fn(&Served, &str));

/// Runs each of these in a namespace of its own, all at once.
fn at_once(cases: &[Case<'_>]) {
    thread::scope(|scope| {
        for (arguments, check) in cases {
            scope.spawn(move || {
                if let Some(served) = Served::new() {
                    check(&served, arguments);
                }
            });
        }
    });
}

/// What the daemon received is what the client sent, to the byte.
fn arrives_whole(served: &Served, arguments: &str) {
    let document = served.document(arguments);
    let (sent, received) = bytes(&document, "");
    assert_eq!(received, sent, "{arguments}");
    assert!(sent > 0 && served.namespace.interface("lo").received_bytes > sent, "{arguments}");
    assert!(document.pointer("/end/cpu_utilization_percent/remote_total").and_then(Value::as_f64) > Some(0.0));
}

/// A client stops counting before all that the daemon has sent is there.
fn comes_back(served: &Served, arguments: &str) {
    let document = served.document(arguments);
    let (sent, received) = bytes(&document, "");
    assert!(0 < received && received <= sent, "{arguments}: {received} of {sent}");
}

#[test]
fn streams_arrive_whole_and_come_back() {
    at_once(&[
        ("-t 1", arrives_whole),
        ("-t 1 -P 4", arrives_whole),
        ("-t 1 -R", comes_back),
        ("-t 1 --bidir", |served, arguments| {
            let document = served.document(arguments);
            let (sent, received) = bytes(&document, "");
            assert_eq!(received, sent, "{arguments}");
            let (sent, received) = bytes(&document, "_bidir_reverse");
            assert!(0 < received && received <= sent, "{arguments}: {received} of {sent}");
        }),
        ("-n 10M", |served, arguments| {
            arrives_whole(served, arguments);
            // The daemon is free for the next one at once.
            arrives_whole(served, "-k 100 -l 10000");
            let (_, received) = bytes(&served.document("-k 100 -l 10000"), "");
            assert_eq!(received, 100 * 10_000);
        }),
        ("-n 10M -R", |served, arguments| {
            let (sent, _) = bytes(&served.document(arguments), "");
            assert!(sent >= 10 << 20, "{arguments}: {sent}");
            served.document("-n 10M --bidir");
        }),
        ("-t 1 -P 128", |served, arguments| {
            let document = served.document(arguments);
            let ids = document.pointer("/end/streams").and_then(Value::as_array).unwrap();
            assert_eq!(ids.len(), 128);
            // Per stream: each has found its place.
            for stream in ids {
                assert_eq!(count(stream, "/sender/bytes"), count(stream, "/receiver/bytes"), "{stream}");
            }
        }),
    ]);
}

/// A client's datagrams, its losses, and the kernel's own count of those that arrived.
fn datagrams_arrive(served: &Served, arguments: &str) {
    let document = served.document(arguments);
    let streams = count(&document, "/start/test_start/num_streams");
    let length = count(&document, "/start/test_start/blksize");
    let (packets, lost) = (count(&document, "/end/sum/packets"), count(&document, "/end/sum/lost_packets"));
    let (sent, _) = bytes(&document, "");
    assert_eq!(sent, packets * length, "{arguments}");
    // A hello and a reply for each stream.
    let arrived = served.namespace.snmp("Udp", "InDatagrams");
    assert_eq!(arrived, packets - lost + 2 * streams, "{arguments}: {}", document["end"]);
}

/// Within a machine only a full receive buffer loses datagrams.
fn is_the_kernels_loss(served: &Served, document: &Value) {
    let (lost, dropped) = (count(document, "/end/sum/lost_packets"), served.namespace.snmp("Udp", "RcvbufErrors"));
    assert!(lost <= dropped, "{lost} lost, and {dropped} dropped: {}", document["end"]);
}

#[test]
fn datagrams_are_counted_to_the_last() {
    at_once(&[
        ("-u -b 20M -t 1", datagrams_arrive),
        ("-u -b 5M -t 1 -l 1200 -P 4 --udp-counters-64bit", datagrams_arrive),
        ("-u -b 0 -n 2M -l 1400", datagrams_arrive),
        ("-u -b 20M -t 1 -l 1200 -R", |served, arguments| {
            let document = served.document(arguments);
            let (packets, sent) = (count(&document, "/end/sum/packets"), bytes(&document, "").0);
            assert_eq!(sent, packets * 1200, "{arguments}");
            // The daemon keeps the rate: without one it would be a hundred times as much.
            assert!(0 < sent && sent < 10 * 20_000_000 / 8, "{arguments}: {sent}");
            is_the_kernels_loss(served, &document);
        }),
        ("-u -b 5M -t 1 --bidir -P 2", |served, arguments| {
            let document = served.document(arguments);
            let length = count(&document, "/start/test_start/blksize");
            for suffix in ["", "_bidir_reverse"] {
                assert_eq!(bytes(&document, suffix).0, length * count(&document, &format!("/end/sum{suffix}/packets")));
            }
        }),
        ("-u -b 10M -t 1 -O 1", |served, arguments| {
            let document = served.document(arguments);
            is_the_kernels_loss(served, &document);
            assert_eq!(document.pointer("/intervals/0/sum/omitted"), Some(&Value::Bool(true)));
        }),
        ("-t 1 -O 1 -R", |served, arguments| {
            // Both ends begin to count on their own clock.
            let (sent, received) = bytes(&served.document(arguments), "");
            assert!(sent > 0 && received > 0, "{arguments}: {received} of {sent}");
        }),
    ]);
}

#[test]
fn options_are_heeded() {
    at_once(&[
        ("-n 1M -C reno -N -M 1000 -w 256K -S 0xb8 --cport 6000 -T title --extra-data x", |served, arguments| {
            let document = served.document(arguments);
            assert_eq!(document.pointer("/end/receiver_tcp_congestion").and_then(Value::as_str), Some("reno"));
        }),
        ("-n 1M --get-server-output", |served, arguments| {
            let document = served.document(arguments);
            let said = document["server_output_text"].as_str().unwrap();
            let (sent, _) = bytes(&document, "");
            assert!(said.contains(&format!("received {sent} bytes")), "{said}");
        }),
        ("-n 1M -Z -B 127.0.0.1 --repeating-payload --pacing-timer 2000", arrives_whole),
        ("-n 1M -Z -R", comes_back),
        ("-n 1M -6", |served, arguments| {
            let ran = client(&served.namespace, "::1", arguments).output().unwrap().into();
            document(arguments, &ran);
            let ran = client(&served.namespace, "::1", "-u -n 100K -6 -R").output().unwrap().into();
            document("-u -6", &ran);
        }),
    ]);
}

/// iperf3's own server refuses the second one.
#[test]
fn clients_are_served_at_the_same_time() {
    let Some(served) = Served::new() else { return };
    let all = ["-t 1", "-t 1 -R", "-u -t 1", "-u -t 1 -R"];
    let clients: Vec<_> =
        all.iter().map(|each| client(&served.namespace, "127.0.0.1", each).spawn().expect("iperf3 starts")).collect();
    for (arguments, client) in all.iter().zip(clients) {
        document(arguments, &client.wait_with_output().expect("iperf3 ends").into());
    }
}

#[test]
fn a_client_that_goes_leaves_the_daemon_free() {
    let Some(served) = Served::new() else { return };
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut gone = client(&served.namespace, "127.0.0.1", "-t 60").spawn().expect("iperf3 starts");
        let is_under_load = || served.namespace.interface("lo").received_bytes;
        let before = is_under_load();
        crate::program::until("the load", || is_under_load() > before + 10_000_000);
        kill(Pid::from_raw(gone.id().cast_signed()), signal).unwrap();
        gone.wait().expect("it ends");
        arrives_whole(&served, "-n 1M");
    }
}

/// Losses of the path, by the receiving kernel's own count.
#[test]
fn lost_datagrams_are_those_that_did_not_arrive() {
    if !has_program("iperf3", "iperf3") {
        return;
    }
    let Some(pair) = Pair::new() else { return };
    if !pair.lose("5%") {
        return;
    }
    let _daemon = serve(&pair.far);
    for arguments in ["-u -b 20M -l 1000 -t 1", "-u -b 5M -l 1000 -t 1 -P 2"] {
        let before = pair.far.snmp("Udp", "InDatagrams");
        let ran: Ran = client(&pair.near, Pair::FAR, arguments).output().expect("iperf3 starts").into();
        // A hello is sent once: where it was lost, the client gives up.
        if ran.stdout.contains("unable to read from stream socket") || ran.stdout.contains("UDP") && ran.code != Some(0)
        {
            skip("a hello was lost");
            continue;
        }
        let document = document(arguments, &ran);
        let streams = count(&document, "/start/test_start/num_streams");
        let (packets, lost) = (count(&document, "/end/sum/packets"), count(&document, "/end/sum/lost_packets"));
        let arrived = pair.far.snmp("Udp", "InDatagrams") - before;
        assert_eq!(arrived, packets - lost + streams, "{arguments}: {}", document["end"]);
        assert!(lost > 0, "{arguments}");
    }
}
