//! Runs the real program for the tests of this folder.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A row of the results table, by column name.
pub type Row = HashMap<String, String>;

/// `plumb` with these arguments, its three streams piped.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The environment of CI must not change the tests.
    command.env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
    // Nor may the user's key.
    command.env_remove("PLUMB_KEY").env_remove("PLUMB_KEY_FILE").env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Result of a run.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; `None` after an uncaught signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Runs `plumb` to its end.
pub fn plumb(args: &[&str]) -> Ran {
    command(args).output().expect("plumb starts").into()
}

/// Waits for a child that was started with [`command`].
pub fn end(child: Child) -> Ran {
    child.wait_with_output().expect("plumb ends").into()
}

/// Waits until something is so, for a minute at most.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_mins(1), "{what}: not within a minute");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a test that a machine which stands still can fail, three times at most. A fault of the program fails each of them.
pub fn despite_stalls(test: impl Fn()) {
    for _ in 0..2 {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)).is_ok() {
            return;
        }
    }
    test();
}

/// Whether a line is about an interval: ` over 0.1 s`, or longer on a busy machine.
pub fn is_interim(line: &str) -> bool {
    line.split(" over ").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What a plan asks for, and the kernel keeps for root, by the output of a run.
pub fn privileged(stderr: &str) -> Option<&'static str> {
    stderr
        .contains("tcp_allowed_congestion_control")
        .then_some("the congestion control that the plan names is for root here")
}

/// A folder for one test, gone when it is dropped.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// A new one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text.
    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a plan with these tests (YAML, indented by two below `tests:`); returns its path.
    pub fn plan(&self, top: &str, tests: &str) -> String {
        self.text(&format!("version: 1\nname: t\n{top}\ntests:\n{tests}\n"))
    }

    /// Writes a plan of this text; returns its path.
    pub fn text(&self, text: &str) -> String {
        let path = self.path("plan.yaml");
        std::fs::write(&path, text).expect("the plan is written");
        path.display().to_string()
    }
}

/// The rows of a table in memory.
pub fn parse(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().expect("every row is whole")
}

/// The rows of a file.
pub fn rows(path: &Path) -> Vec<Row> {
    parse(&std::fs::read_to_string(path).expect("the table is there"))
}

/// The rows of this record, phase `measure` where they have one. Tries that a busy machine made the run discard and repeat are
/// left out.
pub fn of<'a>(rows: &'a [Row], record: &str) -> Vec<&'a Row> {
    let counts = |r: &&Row| ["", "measure"].contains(&r["phase"].as_str()) && r["status"] != "discarded";
    rows.iter().filter(|r| r["record"] == record).filter(counts).collect()
}

/// The number in a cell.
pub fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is `{}`", row[column]))
}

/// The whole number in a cell.
pub fn count(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is `{}`", row[column]))
}

/// A daemon on a loopback port of its own; it is killed when this is dropped.
pub struct Serve {
    child: Child,
    /// `address:port`.
    pub address: String,
    /// Its first lines.
    pub said: String,
}

impl Serve {
    /// Starts one with further arguments and waits until it prints its address.
    pub fn start(args: &[&str]) -> Self {
        Self::on("127.0.0.1", args)
    }

    /// The same on another address of this machine.
    pub fn on(ip: &str, args: &[&str]) -> Self {
        Self::whole(ip, args, Stdio::null())
    }

    /// One with this standard error.
    pub fn telling(stderr: impl Into<Stdio>) -> Self {
        Self::whole("127.0.0.1", &[], stderr.into())
    }

    /// Kills it (SIGKILL) and starts another on the same address.
    pub fn anew(&mut self) {
        self.kill();
        *self = Self::whole(&self.address, &[], Stdio::null());
    }

    /// One at this address, or on a port of its own, with these arguments and this standard error.
    pub fn whole(place: &str, args: &[&str], stderr: Stdio) -> Self {
        let listen = if place.contains(':') { place.to_owned() } else { format!("{place}:0") };
        let mut command = command(&[&["serve", "--listen", &listen], args].concat());
        command.stderr(stderr);
        Self::of(command)
    }

    /// One that a command starts.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("plumb serve starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it says where it listens");
        let address = line.split_whitespace().find(|w| w.parse::<SocketAddr>().is_ok()).expect("an address").to_owned();
        // All first lines are one write.
        line.push_str(&String::from_utf8_lossy(stdout.buffer()));
        Self { child, address, said: line }
    }

    /// One that was started otherwise.
    pub fn from(child: Child, address: String) -> Self {
        Self { child, address, said: String::new() }
    }

    /// Kills it: SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.kill();
    }
}
