//! Every command and every plan of docs/guide/interop.md, against the real programs, in a network namespace with their own ports.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    needs::has_program,
    netns::Pair,
    program::{Folder, Ran, rows, until},
};

/// A block of the page: its heading, its language and its text, with this machine in place of the addresses, and shorter.
struct Block {
    heading: String,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/interop.md");
    let page = fs::read_to_string(path).expect("docs/guide/interop.md is part of the project");
    let (mut heading, mut found) = (String::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(""), Some(block)) => found.push(block),
            (Some(language), _) => {
                open = Some(Block { heading: heading.clone(), language: language.into(), text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text.push_str(&shortened(line));
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {
                if let Some(title) = line.strip_prefix("## ") {
                    title.clone_into(&mut heading);
                }
            }
        }
    }
    found
}

fn shortened(line: &str) -> String {
    let mut line = line.to_owned();
    for (from, to) in [
        ("10.0.0.9", "127.0.0.1"),
        ("10.0.0.7", "127.0.0.1"),
        ("b.lab", "127.0.0.1"),
        (" -l 10", " -l 1"),
        (" -t 10", " -t 1"),
        ("flent ", "flent -d 1 "),
        ("plumb run ", "plumb run --progress never --set duration=1s --set iterations=1 "),
    ] {
        line = line.replace(from, to);
    }
    line
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs of the page, in a namespace and a folder. netperf looks for no IPv4 addresses where only loopback has one, so it is
/// one of a pair.
struct Lab {
    pair: Pair,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let packages = [("netserver", "netperf"), ("iperf3", "iperf3"), ("flent", "flent"), ("fping", "fping")];
        for (program, package) in packages {
            if !has_program(program, package) {
                return None;
            }
        }
        Some(Self { pair: Pair::new()?, folder: Folder::new() })
    }

    /// A shell in the folder, with the program under test first on PATH.
    fn shell(&self, script: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_plumb")).parent().expect("a folder");
        let mut command = self.pair.near.command("bash");
        command.args(["-e", "-o", "pipefail", "-c", script]).current_dir(self.folder.path("")).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", program.display()));
        command
    }

    fn run(&self, script: &str) -> Ran {
        let ran: Ran = self.shell(script).output().expect("bash starts").into();
        assert_eq!(ran.code, Some(0), "{script}\n{}{}", ran.stdout, ran.stderr);
        ran
    }

    /// Starts a server and waits for its port. The shell becomes the server.
    fn serve(&self, command: &str, port: u16) -> Server {
        let silent = Stdio::null;
        let script = format!("exec {command}");
        let child = self.shell(&script).stdout(silent()).stderr(silent()).spawn().expect("starts");
        until(command, || self.pair.near.read("ss", &["-Hltn", &format!("sport = :{port}")]).contains("LISTEN"));
        Server(child)
    }
}

/// The blocks of a heading; the test fails where the page has fewer.
fn under(heading: &str, language: &str, least: usize) -> Vec<String> {
    let of_heading = blocks().into_iter().filter(|b| b.heading == heading && b.language == language);
    let texts: Vec<String> = of_heading.map(|b| b.text).collect();
    assert!(texts.len() >= least, "{heading}: {} blocks of {language}", texts.len());
    texts
}

#[test]
fn their_server() {
    let Some(lab) = Lab::new() else { return };
    let _servers = [lab.serve("netserver -D -4", 12865), lab.serve("iperf3 -s", 5201)];
    let plan = &under("Their server", "yaml", 1)[0];
    fs::write(lab.folder.path("old-hosts.yaml"), plan).expect("written");
    lab.run(&under("Their server", "sh", 1)[0]);
    let table = rows(&lab.folder.path("old-hosts.csv"));
    let measured = |test: &str, control: &str| {
        let mut of =
            table.iter().filter(|r| r["test"] == test && r["record"] == "iteration" && r["phase"] == "measure");
        let row = of.next().unwrap_or_else(|| panic!("no row of {test}"));
        assert_eq!((row["status"].as_str(), row["control"].as_str()), ("ok", control), "{test}: {}", row["error"]);
        row.clone()
    };
    let number = |row: &crate::program::Row, column: &str| {
        row[column].parse::<f64>().unwrap_or_else(|_| panic!("no {column} in {}", row["test"]))
    };
    for test in ["bulk", "trips", "connections"] {
        let row = measured(test, "netperf");
        let headline = if test == "bulk" { "throughput_bits_per_s" } else { "transactions_per_s" };
        assert!(number(&row, headline) > 0.0, "{test}");
    }
    for test in ["loss", "back", "both"] {
        let row = measured(test, "iperf3");
        assert!(number(&row, "throughput_bits_per_s") > 0.0 && number(&row, "sent_bits_per_s") > 0.0, "{test}");
    }
    let loss = measured("loss", "iperf3");
    assert!(number(&loss, "loss_ratio") < 0.5 && number(&loss, "jitter_us") >= 0.0);
}

#[test]
fn their_client() {
    let Some(lab) = Lab::new() else { return };
    let [serve, clients] = &under("Their client", "sh", 2)[..] else { panic!("two blocks") };
    let _server = lab.serve(serve.trim_end(), 5201);
    for line in clients.lines() {
        let ran = lab.run(line);
        assert!(ran.stderr.is_empty(), "{line}: {}", ran.stderr);
        assert!(ran.stdout.contains("Throughput") || ran.stdout.contains("THROUGHPUT") || ran.stdout.contains("sec"));
    }
}

#[test]
fn their_script() {
    let Some(lab) = Lab::new() else { return };
    let _server = lab.serve("plumb serve --also netperf", 12865);
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
    std::os::unix::fs::symlink(plans, lab.folder.path("plans")).expect("linked");
    let [script, export] = &under("Their script", "sh", 2)[..] else { panic!("two blocks") };
    let ran = lab.run(script);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].trim().parse::<f64>().is_ok_and(|rate| rate > 0.0), "{}", ran.stdout);
    let values: Vec<&str> = lines.last().expect("a line").split(',').collect();
    assert!(values[0].parse::<f64>().is_ok_and(|rate| rate > 0.0) && values[1] == "10^6bits/s", "{}", ran.stdout);
    let read = lab.run(export).stdout;
    assert!(read.lines().last().and_then(|l| l.parse::<f64>().ok()).is_some_and(|rate| rate > 0.0), "{read}");
    let flent = lab.run(&under("flent", "sh", 1)[0]);
    let says = format!("{}{}", flent.stdout, flent.stderr);
    assert!(says.contains("TCP upload") && !says.contains("WARN"), "{says}");
}
