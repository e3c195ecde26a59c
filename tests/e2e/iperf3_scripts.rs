//! Command lines of scripts and tools that call iperf3, as they are, with the real client: against `plumb serve` and against
//! `iperf3 -s`, which is the reference. What they take from the output must be there.

use std::{
    fs,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, until},
};

/// A line of a tool, and what the tool reads.
struct Tool {
    name: &'static str,
    line: &'static str,
    read: fn(&str) -> Vec<f64>,
}

const TOOLS: [Tool; 10] = [
    Tool { name: "k8s-netperf", line: "-J -P 2 -c 127.0.0.1 -t 1 -l 1400 -p 5201 --logfile=LOG", read: json_tcp },
    Tool {
        name: "k8s-netperf, UDP",
        line: "-J -P 1 -c 127.0.0.1 -t 1 -l 1400 -p 5201 --logfile=LOG -u -b 0",
        read: json_udp,
    },
    Tool { name: "LKP", line: "-t 1 -J -c 127.0.0.1", read: json_tcp },
    Tool { name: "LKP, UDP", line: "-t 1 -J -c 127.0.0.1 -u", read: json_udp },
    Tool { name: "LKP, one of many", line: "-t 1 -c 127.0.0.1 -p 5201 -i 10 -T tag", read: text },
    Tool { name: "Phoronix", line: "-c 127.0.0.1 -p 5201 -t 1 -P 4 -V -f m", read: verbose },
    Tool { name: "Phoronix, UDP", line: "-c 127.0.0.1 -p 5201 -t 1 -u -b 100m -P 1 -V -f m", read: verbose },
    Tool { name: "wireguard", line: "-Z -t 1 -c 127.0.0.1", read: text },
    Tool { name: "wireguard, UDP", line: "-Z -t 1 -b 0 -u -c 127.0.0.1", read: text },
    Tool {
        name: "kubernetes",
        line: "-c 127.0.0.1 -V -N -i 30 -t 1 -f m -w 256K -Z -P 8 -M 1400",
        read: |output| {
            assert!(output.lines().any(|line| line.starts_with("CPU Utilization: ")), "{output}");
            verbose(output)
        },
    },
];

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {document:#}"))
}

/// k8s-netperf and LKP: the receiver's throughput and the sender's retransmissions.
fn json_tcp(output: &str) -> Vec<f64> {
    let document: Value = serde_json::from_str(output).expect("JSON");
    assert!(document.get("error").is_none(), "{document:#}");
    number(&document, "/end/sum_sent/retransmits");
    number(&document, "/end/cpu_utilization_percent/remote_total");
    vec![number(&document, "/end/sum_received/bits_per_second"), number(&document, "/end/sum_sent/bits_per_second")]
}

/// The same over UDP.
fn json_udp(output: &str) -> Vec<f64> {
    let document: Value = serde_json::from_str(output).expect("JSON");
    assert!(document.get("error").is_none(), "{document:#}");
    let lost = number(&document, "/end/sum/lost_percent");
    assert!((0.0..=100.0).contains(&lost), "{lost}");
    number(&document, "/end/sum/jitter_ms");
    vec![number(&document, "/end/sum/bits_per_second")]
}

/// The rates of the lines that end with `sender` and `receiver`, in their own unit.
fn text(output: &str) -> Vec<f64> {
    let rates = |end: &str| -> Vec<f64> {
        let lines = output.lines().filter(|line| line.trim_end().ends_with(end));
        let rate = |line: &str| -> Option<f64> {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[words.iter().position(|word| word.ends_with("bits/sec"))?.checked_sub(1)?].parse().ok()
        };
        lines.filter_map(rate).collect()
    };
    let (sent, received) = (rates("sender"), rates("receiver"));
    assert!(!sent.is_empty() && !received.is_empty(), "{output}");
    [sent, received].concat()
}

/// `-V`: the summary begins with words of its own, and several streams have a sum.
fn verbose(output: &str) -> Vec<f64> {
    let (_, summary) = output.split_once("Test Complete. Summary Results:").expect("a summary");
    let several = summary.contains("[SUM]");
    let of: String = summary
        .lines()
        .filter(|line| !several || line.starts_with("[SUM]"))
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(of.contains("Mbits/sec"), "{output}");
    text(&of)
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(namespace: &Namespace, program: &str, arguments: &[&str]) -> Server {
    let mut command = namespace.command(program);
    let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Server(child.expect("starts"));
    until(program, || namespace.read("ss", &["-Hltn", "sport = :5201"]).contains("LISTEN"));
    server
}

const OURS: (&str, &[&str]) = (env!("CARGO_BIN_EXE_plumb"), &["serve", "--also", "iperf3", "--max-flows", "512"]);

fn ready() -> Option<Namespace> {
    if has_program("iperf3", "iperf3") { Namespace::new() } else { None }
}

#[test]
fn tools_find_what_they_read() {
    let servers: [(&str, &[&str]); 2] = [("iperf3", &["-s"]), OURS];
    for (program, arguments) in servers {
        let Some(namespace) = ready() else { return };
        let _server = serve(&namespace, program, arguments);
        let folder = Folder::new();
        for Tool { name, line, read } in &TOOLS {
            let log = folder.path("log");
            let _ = fs::remove_file(&log);
            let line = line.replace("LOG", &log.display().to_string());
            let ran = namespace.command("iperf3").args(line.split(' ')).output().expect("iperf3 starts");
            let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
            let output = fs::read_to_string(&log).unwrap_or(printed);
            assert!(ran.status.success(), "{name} at {program}: {output} {}", String::from_utf8_lossy(&ran.stderr));
            assert!(ran.stderr.is_empty(), "{name} at {program}: {}", String::from_utf8_lossy(&ran.stderr));
            let rates = read(&output);
            assert!(rates.iter().all(|rate| *rate > 0.0), "{name} at {program}: {rates:?}\n{output}");
        }
    }
}

/// The kernel's drivers/net/lib/py/load.py starts a day of load and ends it with a signal. wireguard's netns.sh runs many clients at
/// once, each at a server of its own: here they share one.
#[test]
fn clients_come_in_numbers_and_end_by_a_signal() {
    let Some(namespace) = ready() else { return };
    let (program, arguments) = OURS;
    let _server = serve(&namespace, program, &[arguments, &["--max-duration", "24h"]].concat());
    let client = |arguments: &[&str]| {
        let mut command = namespace.command("iperf3");
        command.args(["-c", "127.0.0.1"]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().expect("iperf3 starts")
    };
    let mut day = client(&["-P", "16", "-p", "5201", "-t", "86400"]);
    let connections = |least: usize| {
        let listed = namespace.read("ss", &["-Htn", "state", "established", "dport = :5201"]);
        listed.lines().count() >= least
    };
    until("the day's load", || connections(17));
    let many: Vec<Child> = (0..10).map(|_| client(&["-Z", "-t", "1", "-J"])).collect();
    for child in many {
        let output = child.wait_with_output().expect("ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(json_tcp(&text)[0] > 0.0);
    }
    namespace.read("kill", &["-TERM", &day.id().to_string()]);
    day.wait().expect("ends");
    // Its load has ended there too.
    until("the daemon is free", || namespace.read("ss", &["-Htn", "state", "established"]).is_empty());
    assert!(
        json_tcp(&String::from_utf8_lossy(&client(&["-t", "1", "-J"]).wait_with_output().expect("ends").stdout))[0]
            > 0.0
    );
}
