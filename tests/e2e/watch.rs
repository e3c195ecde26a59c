//! `plumb watch`: every cycle is a row, whatever happens in it.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, ChildStderr, Command},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    filters::shell,
    needs::skip,
    program::{Folder, Row, Serve, command, despite_stalls, parse, plumb, until},
};

const BULK: &str = "  bulk: {workload: tcp_stream, duration: 30ms}";

/// A running watch; it is killed when this is dropped.
struct Watch {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// Its output so far.
    said: String,
}

impl Watch {
    /// Watches a plan into `history` of the folder, every 200 ms unless the arguments say otherwise.
    fn start(folder: &Folder, plan: &str, args: &[&str]) -> Self {
        let mut command = command(&["watch", plan, "--history", &folder.name("history"), "--spread", "0"]);
        if !args.contains(&"--every") {
            command.args(["--every", "200ms"]);
        }
        command.args(args);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut watch = Self { child, stderr, said: String::new() };
        watch.wait_for("watching ");
        watch
    }

    /// Waits until it says a line with this text, within some hundred lines; returns the line.
    fn wait_for(&mut self, text: &str) -> String {
        for _ in 0..400 {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended and never said `{text}`:\n{}", self.said);
            self.said.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
        panic!("it never said `{text}`:\n{}", self.said);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Ends it by SIGTERM; returns what it said.
    fn end(mut self) -> String {
        self.signal(Signal::SIGTERM);
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        let code = self.child.wait().expect("it ends").code();
        let said = std::mem::take(&mut self.said) + &rest;
        assert_eq!(code, Some(0), "{said}");
        said
    }

    /// Asks its server for a path.
    fn ask(&self, path: &str) -> String {
        let line =
            self.said.lines().find_map(|line| line.strip_prefix("metrics: http://")).expect("it answers scrapes");
        let address: SocketAddr = line.trim_end_matches("/metrics").parse().expect("an address");
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cycles(folder: &Folder) -> Vec<Row> {
    fs::read_to_string(folder.path("history/cycles.csv")).map(|text| parse(&text)).unwrap_or_default()
}

/// The runs in the files of the history.
fn runs(folder: &Folder) -> Vec<Row> {
    let files = shell(&folder.path(""), "find history -name 'm*.csv' -not -path '*/.*' | xargs cat").stdout;
    parse(&files)
}

#[test]
fn each_cycle_is_a_row_with_a_run_and_scrapes_see_the_last_one() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let site = folder.name("site");
    let mut watch = Watch::start(&folder, &plan, &["--metrics", "0", "--site", &site]);
    for _ in 0..4 {
        watch.wait_for(" ok");
    }
    assert!(watch.ask("/healthz").starts_with("HTTP/1.1 200"), "{}", watch.said);
    assert!(watch.ask("/readyz").starts_with("HTTP/1.1 200"));
    let page = watch.ask("/metrics");
    for sample in [
        "plumb_throughput_bytes_per_second{plan=\"t\",test=\"bulk\",case=\"bulk\"",
        "plumb_watch_status{status=\"ok\"} 1\n",
        "plumb_watch_status{status=\"down\"} 0\n",
        "plumb_watch_results_age_seconds ",
        "plumb_watch_unkept_cycles 0\n",
    ] {
        assert!(page.contains(sample), "{sample}\n{page}");
    }
    for (path, said) in [
        ("/probe?target=elsewhere.lab", "elsewhere.lab is no host of the plan"),
        ("/probe?target=bulk&module=none", "none is no plan inside the program"),
    ] {
        let answer = watch.ask(path);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(said), "{answer}");
    }
    assert!(watch.ask("/other").starts_with("HTTP/1.1 404"));
    let said = watch.end();
    assert!(!said.contains("error:"), "{said}");
    let (cycles, runs) = (cycles(&folder), runs(&folder));
    let measured: Vec<&Row> = cycles.iter().filter(|row| row["status"] == "ok").collect();
    assert!(measured.len() >= 4 && cycles.len() - measured.len() <= 1, "{cycles:?}");
    for row in &measured {
        let same = runs.iter().filter(|run| run["run_id"] == row["run_id"] && run["metric"] == "throughput");
        assert_eq!((same.count(), &*row["plan"], &row["since"]), (1, "t", &measured[0]["time"]), "{row:?}");
    }
    let index = fs::read_to_string(folder.path("site/index.html")).unwrap();
    assert!(index.contains("bulk throughput"), "{index}");
}

#[test]
fn a_far_end_that_goes_and_comes_back_is_an_outage_with_a_begin_and_an_end() {
    let folder = Folder::new();
    let mut serve = Serve::start(&[]);
    let host = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
    let plan = folder.plan(&host, "  bulk: {workload: tcp_stream, duration: 30ms, to: b}");
    let site = folder.name("site");
    let index = || fs::read_to_string(folder.path("site/index.html")).unwrap();
    let mut watch = Watch::start(&folder, &plan, &["--metrics", "0", "--site", &site]);
    watch.wait_for(" ok");
    serve.kill();
    watch.wait_for(" down: host `b`");
    // A cycle is on the site before it is told.
    assert!(index().contains("on, and it lasts (1 cycle): host `b`"), "{}", index());
    watch.wait_for(" down since ");
    assert!(watch.ask("/metrics").contains("plumb_throughput_bytes_per_second"), "the last results stay");
    serve.anew();
    watch.wait_for(" ok");
    assert!(!index().contains("it lasts"), "{}", index());
    watch.wait_for(" ok since ");
    watch.end();
    assert!(index().contains(&format!("outage: t on {} from ", cycles(&folder)[0]["host"])), "{}", index());
    let rows = cycles(&folder);
    let first = rows.iter().position(|row| row["status"] == "down").expect("an outage");
    let end = first + rows[first..].iter().position(|row| row["status"] == "ok").expect("an end");
    assert!(rows[first]["reason"].contains("cannot be reached"), "{rows:?}");
    assert!(rows[first..end].iter().all(|row| row["since"] == rows[first]["time"]), "{rows:?}");
    let trend = plumb(&["trend", &folder.name("history"), "-f", "csv"]);
    let found = parse(&trend.stdout);
    let outages: Vec<&Row> = found.iter().filter(|row| row["finding"] == "outage").collect();
    assert_eq!(outages.len(), 1, "{}", trend.stdout);
    assert_eq!((&outages[0]["time"], &*outages[0]["plan"]), (&rows[first]["time"], "t"));
    assert!(outages[0]["note"].starts_with(&format!("to {}: host `b`", rows[end]["time"])), "{:?}", outages[0]);
    assert!(found.iter().any(|row| row["finding"] == "level"), "{}", trend.stdout);
    let values = runs(&folder).iter().filter(|row| row["metric"] == "throughput").count();
    assert_eq!(values, rows.iter().filter(|row| row["status"] == "ok").count(), "an outage is no slow run");
    let text = plumb(&["trend", &folder.name("history"), "-f", "text"]).stdout;
    assert!(text.contains(&format!("outage: t on {} from {}", rows[0]["host"], rows[first]["time"])), "{text}");
}

#[test]
fn a_probe_measures_to_a_host_of_the_plan() {
    despite_stalls(probes);
}

fn probes() {
    let folder = Folder::new();
    let serve = Serve::start(&[]);
    let host = format!("hosts: {{b: {{address: 127.0.0.1, control: \"{}\"}}}}", serve.address);
    let plan = folder.plan(&host, "  bulk: {workload: tcp_stream, duration: 30ms, to: b}");
    let watch = Watch::start(&folder, &plan, &["--every", "1h", "--metrics", "0"]);
    assert!(watch.ask("/readyz").starts_with("HTTP/1.1 503"));
    let page = watch.ask("/probe?target=b&module=burst");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("\nprobe_success 1\n"), "{page}");
    assert!(page.contains("plan=\"burst\"") && page.contains("\nprobe_duration_seconds "), "{page}");
    drop(serve);
    let page = watch.ask("/probe?target=127.0.0.1&module=burst");
    assert!(page.contains("\nprobe_success 0\n") && page.contains("# host `server`"), "{page}");
    watch.end();
}

/// A plan that is longer than the period, two watches, and a reload.
#[test]
fn bad_input_is_told_and_the_watch_goes_on() {
    let folder = Folder::new();
    let long = folder.plan("", "  bulk: {workload: tcp_stream, duration: 700ms}");
    let mut watch = Watch::start(&folder, &long, &["--every", "100ms"]);
    assert!(
        watch.said.contains("the plan takes about") && watch.said.contains("are skipped and counted"),
        "{}",
        watch.said
    );
    let other = plumb(&["watch", &long, "--every", "1h", "--history", &folder.name("history")]);
    assert_eq!(other.code, Some(3), "{}", other.stderr);
    assert!(
        other.stderr.contains("is being written by process") && other.stderr.contains("one watch at a time"),
        "{}",
        other.stderr
    );
    watch.wait_for(" starts skipped)");
    // A plan that does not check.
    folder.text("version: 1\nname: t\ntests: {bulk: {workload: carrier_pigeon}}\n");
    watch.signal(Signal::SIGHUP);
    watch.wait_for("carrier_pigeon");
    watch.wait_for("the plan stays as it was");
    watch.wait_for(" ok");
    // One that has other cases.
    folder.plan("", "  other: {workload: tcp_rr, duration: 30ms}");
    watch.signal(Signal::SIGHUP);
    watch.wait_for("the plan was read again: 1 case from the next cycle on");
    watch.wait_for("the plan changed its cases: 1 begin series of their own, and 1 that");
    watch.wait_for(" ok");
    let said = watch.end();
    assert_eq!(said.matches("the plan changed its cases").count(), 1, "{said}");
    assert!(cycles(&folder).iter().any(|row| row["missed"].parse::<u64>().is_ok_and(|missed| missed > 0)));
    // A history of another machine.
    for file in shell(&folder.path(""), "ls history/t/*.csv").stdout.lines() {
        let text = fs::read_to_string(folder.path(file)).unwrap();
        let own = Path::new(file).file_stem().unwrap().to_string_lossy().into_owned();
        fs::write(folder.path("history/t/m000000000001.csv"), text.replace(&own, "m000000000001")).unwrap();
        fs::remove_file(folder.path(file)).unwrap();
    }
    fs::remove_file(folder.path("history/.watch/last.csv")).unwrap();
    let mut watch = Watch::start(&folder, &long, &[]);
    watch.wait_for("the history is of another machine (");
    watch.wait_for(" ok");
    watch.end();
    assert!(folder.path("history/t/m000000000001.csv").exists());
}

#[test]
fn the_command_line_says_what_is_missing() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    for (args, said) in [
        (&[][..], "--every"),
        (&["--every", "1m", "--at", "02:00"], "cannot be used with"),
        (&["--at", "25:00"], "write 02:00"),
        (&["--every", "1ms"], "100 ms apart"),
        (&["--every", "1m", "--older-than", "soon"], "write an age as 365d"),
    ] {
        let ran = plumb(&[&["watch", &plan, "--history", &folder.name("history")], args].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    let ran = plumb(&["watch", &folder.text("tests: {}"), "--every", "1m", "--history", &folder.name("history")]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!folder.path("history").exists());
}

#[test]
fn a_watch_that_is_killed_loses_no_cycle_that_ended() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let mut known = 0;
    for _ in 0..3 {
        let mut watch = Watch::start(&folder, &plan, &[]);
        watch.wait_for(" ok");
        let ended = cycles(&folder).len();
        watch.signal(Signal::SIGKILL);
        watch.child.wait().unwrap();
        let rows = cycles(&folder);
        assert!(rows.len() >= ended && ended > known, "{rows:?}");
        known = rows.len();
        let runs = runs(&folder);
        assert!(rows.iter().all(|row| runs.iter().any(|run| run["run_id"] == row["run_id"])), "{rows:?}");
    }
    let mut watch = Watch::start(&folder, &plan, &[]);
    watch.wait_for(" ok");
    watch.end();
    assert_eq!(plumb(&["trend", &folder.name("history")]).code, Some(0), "nothing is torn");
}

/// A plan of a program that prints a rate: the level in the file `level`, with a noise of about 1 %.
fn printed_plan(folder: &Folder) -> String {
    let script = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >n
        set -- 3 -12 8 11 -4 -9 6; shift $((n * 5 % 7)); echo rate $(($(cat level) + $1)) kB/s";
    fs::write(folder.path("print"), script).unwrap();
    fs::write(folder.path("level"), "1000").unwrap();
    let run = format!("run: [sh, -c, 'cd {} && . ./print']", folder.name(""));
    folder.plan(
        "",
        &format!("  rate:\n    workload: command\n    command: {{{run}, regex: 'rate (?<throughput>[0-9]+ kB/s)'}}"),
    )
}

#[test]
fn a_step_of_a_tenth_is_told_within_six_cycles_and_handed_over_once() {
    let folder = Folder::new();
    let plan = printed_plan(&folder);
    let notify = format!("cat >> {0}; echo >> {0}; exit 3", folder.name("told"));
    let args = ["--allow-commands", "--every", "100ms", "--notify", &notify];
    let mut watch = Watch::start(&folder, &plan, &args);
    for _ in 0..25 {
        watch.wait_for(" ok");
    }
    assert!(!watch.said.contains("rate throughput"), "nothing changed yet: {}", watch.said);
    fs::write(folder.path("level"), "900").unwrap();
    let line = watch.wait_for("regression: rate throughput is ");
    watch.wait_for(&format!("--notify {notify}: it failed (exit status: 3)"));
    let slower = runs(&folder).iter().filter(|row| row["centre"].parse::<f64>().is_ok_and(|bits| bits < 7.6e6)).count();
    assert!((1..=6).contains(&slower), "after {slower} cycles: {line}");
    for _ in 0..6 {
        watch.wait_for(" ok");
    }
    let said = watch.end();
    assert_eq!(said.matches("rate throughput is").count(), 1, "{said}");
    // Also after a restart.
    let mut watch = Watch::start(&folder, &plan, &args);
    for _ in 0..3 {
        watch.wait_for(" ok");
    }
    assert!(!watch.end().contains("rate throughput is"));
    let told = fs::read_to_string(folder.path("told")).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    let level = &serde_json::from_str::<serde_json::Value>(&told).unwrap()["levels"][0];
    assert_eq!(
        (&level["kind"], &level["metric"], &level["worse"]),
        (&"regression".into(), &"throughput".into(), &true.into())
    );
    assert!(level["is"].as_f64() < level["was"].as_f64() && level["run_before"] != level["run_id"], "{level}");
}

#[test]
fn a_disk_that_is_full_loses_no_row() {
    let folder = Folder::new();
    folder.plan("", BULK);
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return skip("this user cannot mount a file system of its own");
    }
    let script = "mkdir -p history && mount -t tmpfs -o size=1m none history || exit 9
        plumb watch plan.yaml --every 200ms --spread 0 --history history 2>said & watch=$!
        count() { grep -c \"$1\" said || true; }
        more() { until [ $(count \"$1\") -gt $2 ]; do kill -0 $watch || exit 8; sleep 0.05; done; }
        more ' ok' 0
        cat /dev/zero >history/full 2>/dev/null
        more ' unwritten: ' 0
        more 'cycles wait for a place' 1
        rm history/full; before=$(count ' ok'); more ' ok' $((before + 2))
        kill $watch; wait $watch; echo code $?
        grep -c '^20' said; cat history/cycles.csv";
    let ran = shell(&folder.path(""), &format!("unshare --mount bash -c '{}'", script.replace('\'', "'\\''")));
    let mut parts = ran.stdout.splitn(3, '\n');
    assert_eq!(parts.next(), Some("code 0"), "{}{}", ran.stdout, ran.stderr);
    let told = parts.next();
    let rows = parse(parts.next().unwrap_or_default());
    let statuses: Vec<&str> = rows.iter().map(|row| row["status"].as_str()).collect();
    let first = statuses.iter().position(|status| *status == "unwritten").expect("the full disk has a row");
    assert!(first > 0 && statuses[first..].contains(&"ok"), "{statuses:?}");
    assert!(rows[first]["reason"].contains("No space left"), "{:?}", rows[first]);
    assert_eq!(told, Some(rows.len().to_string().as_str()), "each cycle that was told has a row: {statuses:?}");
}

#[test]
fn a_cycle_that_takes_too_long_is_ended_and_a_signal_ends_it_whole() {
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 10m}");
    let mut watch = Watch::start(&folder, &plan, &["--limit", "300ms"]);
    watch.wait_for(" down: it was ended after ");
    watch.wait_for(" down since ");
    watch.end();
    let rows = cycles(&folder);
    assert!(rows.len() >= 2 && rows[0]["reason"].contains("a cycle was not to take longer"), "{rows:?}");
    let trend = plumb(&["trend", &folder.name("history"), "-f", "text"]);
    assert_eq!(trend.code, Some(0), "{}", trend.stderr);
    assert!(trend.stdout.contains("outage: t on ") && trend.stdout.contains("and it lasts"), "{}", trend.stdout);
    let folder = Folder::new();
    let plan = folder.plan("", "  bulk: {workload: tcp_stream, duration: 10m}");
    let mut watch = Watch::start(&folder, &plan, &["--every", "100ms"]);
    until("a cycle runs", || folder.path("history/.watch/.last.csv.lock").exists());
    watch.signal(Signal::SIGINT);
    watch.wait_for("SIGINT: the cycle ends early");
    watch.wait_for(" cut: ended by SIGINT");
    assert_eq!(watch.child.wait().unwrap().code(), Some(0));
    assert_eq!(cycles(&folder).last().expect("a row")["status"], "cut");
}

#[test]
fn old_runs_are_thinned_out_once_a_day() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let mut text = "run_id,time,machine,plan,case_id,metric,centre\n".to_owned();
    for run in 0..300 {
        let noise = [3, -12, 8, 11, -4, -9, 6][run * 5 % 7];
        let (month, day) = (run / 28 + 1, run % 28 + 1);
        writeln!(text, "r{run},2025-{month:02}-{day:02}T03:00:00Z,m1,t,c1,throughput,{}", 1000 + noise).unwrap();
    }
    fs::create_dir_all(folder.path("history/t")).unwrap();
    fs::write(folder.path("history/t/m1.csv"), &text).unwrap();
    let mut watch = Watch::start(&folder, &plan, &["--older-than", "2026-01-01"]);
    let line = watch.wait_for(" old rows went");
    assert!(line.contains("history/t/m1.csv: ") && line.contains(" of 300 old rows went"), "{line}");
    for _ in 0..3 {
        watch.wait_for(" ok");
    }
    assert_eq!(watch.end().matches("old rows went").count(), 1);
    let left = fs::read_to_string(folder.path("history/t/m1.csv")).unwrap();
    assert!((40..200).contains(&left.lines().count()), "{left}");
}

/// The commands of docs/guide/watch.md, with shorter periods and free ports.
#[test]
fn the_commands_of_the_guide_work() {
    let folder = Folder::new();
    fs::rename(folder.plan("", BULK), folder.path("lab.yaml")).unwrap();
    let page = include_str!("../../docs/guide/watch.md");
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("plumb watch ")).collect();
    assert_eq!(commands.len(), 4);
    for line in commands {
        let words = line.replace("10m", "200ms").replace("9464", "0");
        let (words, notify) = words.split_once(" --notify ").map_or((&*words, None), |(words, it)| (words, Some(it)));
        let mut args: Vec<&str> = words.split(' ').skip(1).collect();
        args.extend(notify.into_iter().flat_map(|it| ["--notify", it.trim_matches('\'')]));
        let mut command = command(&args);
        command.current_dir(folder.path(""));
        let mut watch = Watch::of(command);
        if line.contains("--every") {
            watch.wait_for(" ok");
        }
        watch.end();
    }
    assert!(folder.path("site/index.html").exists());
}

#[test]
fn systemd_hears_that_it_is_ready_and_alive() {
    let folder = Folder::new();
    let plan = folder.plan("", BULK);
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut command = command(&["watch", &plan, "--every", "1h", "--history", &folder.name("history")]);
    command.env("NOTIFY_SOCKET", folder.path("notify")).env("WATCHDOG_USEC", "30000");
    let watch = Watch::of(command);
    let hear = || {
        let mut text = [0; 64];
        let count = socket.recv(&mut text).expect("within a minute");
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    assert_eq!([hear(), hear(), hear()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    watch.end();
    until("it says that it ends", || hear() == "STOPPING=1");
}
