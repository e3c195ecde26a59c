//! `plumb serve --exclusive`: one client measures at a time, and the others wait for their turns.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStderr},
};

use nix::sys::signal::Signal;

use crate::{
    program::{Folder, Ran, Serve, command, end, of, rows},
    signals::{signal, under_way},
};

const BRIEF: &str = "  brief: {workload: tcp_stream, to: b, duration: 100ms}";

fn hosts(serve: &Serve) -> String {
    format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address)
}

/// A client that measures on the daemon for a minute, and now.
fn holder(folder: &Folder, serve: &Serve) -> Child {
    let plan = folder.plan(&hosts(serve), "  bulk: {workload: tcp_stream, to: b, duration: 60s}");
    under_way(folder, &plan)
}

/// A client with a brief test.
struct Client {
    folder: Folder,
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    said: String,
}

impl Client {
    fn new(serve: &Serve) -> Self {
        Self::with(&hosts(serve), BRIEF)
    }

    fn with(top: &str, tests: &str) -> Self {
        let folder = Folder::new();
        let plan = folder.plan(top, tests);
        let mut child = command(&["run", &plan, "-o", &folder.name("r.csv")]).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { folder, child, lines, said: String::new() }
    }

    /// Reads on to a line with this text.
    fn says(&mut self, text: &str) {
        loop {
            let line = self.lines.next().and_then(Result::ok);
            let line = line.unwrap_or_else(|| panic!("it never said `{text}`: {}", self.said));
            self.said += &(line.clone() + "\n");
            if line.contains(text) {
                return;
            }
        }
    }

    /// Waits for its end.
    fn end(self) -> (Folder, Ran) {
        let rest: Vec<String> = self.lines.map_while(Result::ok).collect();
        let ran = end(self.child);
        (self.folder, Ran { stderr: self.said + &rest.join("\n"), ..ran })
    }
}

/// Its only case has a result, measured without another client's load.
#[track_caller]
fn measured_alone((folder, ran): &(Folder, Ran)) {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(of(&rows(&folder.path("r.csv")), "summary")[0]["status"], "ok");
    not_beside_another(folder, ran);
}

#[track_caller]
fn not_beside_another(folder: &Folder, ran: &Ran) {
    let facts = std::fs::read_to_string(folder.path("r.run.json")).unwrap();
    for text in [&ran.stdout, &ran.stderr, &facts] {
        assert!(!text.contains("another client's load"), "{text}");
    }
}

#[test]
fn a_client_waits_until_the_other_has_finished() {
    let serve = Serve::start(&["--exclusive"]);
    let folder = Folder::new();
    let first = holder(&folder, &serve);
    let mut second = Client::new(&serve);
    second.says("b: waiting, 1st in the queue");
    signal(&first, Signal::SIGINT);
    let first = end(first);
    assert_eq!(first.code, Some(130), "{}", first.stdout);
    not_beside_another(&folder, &first);
    measured_alone(&second.end());
}

#[test]
fn plans_of_two_clients_progress_side_by_side() {
    let serve = Serve::start(&["--exclusive"]);
    let tests = "  brief: {workload: tcp_stream, to: b, duration: 50ms, iterations: 10}";
    let clients = [(); 2].map(|()| Client::with(&hosts(&serve), tests));
    clients.into_iter().map(Client::end).for_each(|ended| measured_alone(&ended));
}

/// The members of a group have sessions of their own, and one turn.
#[test]
fn a_group_does_not_wait_for_itself() {
    let serve = Serve::start(&["--exclusive"]);
    let tests = "  brief:\n    duration: 100ms\n    concurrent:\n      start: {max_skew: 10s}\n      members:\n        \
                 up: {workload: tcp_stream, to: b}\n        again: {workload: tcp_stream, to: b}\n        \
                 trips: {workload: tcp_rr, to: b}";
    measured_alone(&Client::with(&hosts(&serve), tests).end());
}

#[test]
fn an_interrupted_client_and_a_killed_one_leave_the_queue() {
    let serve = Serve::start(&["--exclusive"]);
    let folder = Folder::new();
    let mut first = holder(&folder, &serve);
    let mut queue = [1, 2, 3].map(|place| {
        let mut client = Client::new(&serve);
        client.says(["", "1st in the queue", "2nd in the queue", "3rd in the queue"][place]);
        client
    });
    signal(&queue[0].child, Signal::SIGINT);
    queue[2].says("2nd in the queue");
    signal(&queue[1].child, Signal::SIGKILL);
    queue[2].says("1st in the queue");
    first.kill().unwrap();
    first.wait().unwrap();
    let [interrupted, killed, last] = queue;
    let (_, interrupted) = interrupted.end();
    assert_eq!(interrupted.code, Some(130), "{}", interrupted.stderr);
    assert_eq!(killed.end().1.code, None);
    measured_alone(&last.end());
}

#[test]
fn a_client_that_waits_too_long_hears_of_the_limit() {
    let serve = Serve::start(&["--exclusive", "--queue-timeout", "500ms"]);
    let folder = Folder::new();
    let mut first = holder(&folder, &serve);
    let (late, ran) = Client::new(&serve).end();
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for words in ["host `b`", "no turn within 0.5 s", "--queue-timeout", "--exclusive"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    assert_eq!(of(&rows(&late.path("r.csv")), "summary")[0]["status"], "failed");
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Both clients need both daemons for each iteration, in opposite roles.
#[test]
fn two_exclusive_daemons_do_not_make_two_clients_wait_for_each_other() {
    let (a, b) = (Serve::start(&["--exclusive"]), Serve::start(&["--exclusive"]));
    let hosts = format!(
        "hosts:\n  a: {{address: 127.0.0.1, control: \"{}\"}}\n  b: {{address: 127.0.0.1, control: \"{}\"}}",
        a.address, b.address
    );
    let clients = [("a", "b"), ("b", "a")].map(|(from, to)| {
        let test = format!("  brief: {{workload: tcp_stream, from: {from}, to: {to}, duration: 50ms, iterations: 10}}");
        Client::with(&hosts, &test)
    });
    clients.into_iter().map(Client::end).for_each(|ended| measured_alone(&ended));
}
