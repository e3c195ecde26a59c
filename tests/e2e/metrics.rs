//! `--metrics` of `plumb run` and `plumb serve`, as Prometheus scrapes it and as strangers abuse it.

mod prometheus;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use schemas::{columns::find, metrics::METRICS, units::Unit};
use serde_json::Value;

use prometheus::{Prometheus, free, promtool_accepts};

use crate::{
    needs::has_program,
    netns::Namespace,
    program::{Folder, Ran, Serve, command, end, number, of, parse, plumb, rows, until},
};

/// Status line with headers, and body.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(address: SocketAddr) -> String {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: plumb\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body
}

/// The value of a sample, with its labels as they stand.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    Some(line[name.len() + 1..].parse().expect("a number"))
}

/// The words of a line for people, and the texts of one for programs.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || c == '"')
}

/// The address in `metrics: http://ADDRESS/metrics` or in the first line of a daemon.
fn address(line: &str) -> SocketAddr {
    let url = words(line).find_map(|word| word.strip_prefix("http://")).expect("an address of metrics");
    url.trim_end_matches("/metrics").parse().expect("an address")
}

/// A run whose metrics answer, and the rest of its standard error.
struct Run {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    metrics: SocketAddr,
}

impl Run {
    fn start(args: &[&str]) -> Self {
        let mut child = command(&[&["run"], args].concat()).spawn().expect("plumb starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("it says where it answers");
        Self { child, stderr, metrics: address(&line) }
    }

    fn end(mut self) -> Ran {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("text");
        Ran { stderr: said, ..end(self.child) }
    }
}

/// A daemon with `--metrics 0`, and where these answer.
fn serve(args: &[&str], log: Stdio) -> (Serve, SocketAddr) {
    let mut command = command(&[&["serve", "--listen", "127.0.0.1:0", "--metrics", "0"], args].concat());
    command.stderr(log);
    // The first line has both addresses: the helper keeps only one.
    let tee = tempfile::NamedTempFile::new().expect("a file");
    command.stdout(tee.reopen().expect("a file"));
    let child = command.spawn().expect("plumb serve starts");
    let line = || fs::read_to_string(tee.path()).expect("readable");
    until("the daemon serves", || line().ends_with('\n'));
    let line = line();
    let listens = words(&line).find(|word| word.parse::<SocketAddr>().is_ok()).expect("an address");
    (Serve::from(child, listens.to_owned()), address(&line))
}

fn labels(series: &Value) -> BTreeMap<String, String> {
    let labels = series["metric"].as_object().expect("labels");
    labels.iter().map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned())).collect()
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// The sample that the table's cell must be, by the rules of `plumb export openmetrics`.
fn exported(column: &str, cell: f64) -> (String, f64) {
    match Unit::of_column(column) {
        Some((stem, Unit::BitsPerSecond)) => (format!("plumb_{stem}_bytes_per_second"), cell / 8.0),
        Some((stem, Unit::PerSecond)) => (format!("plumb_{stem}_per_second"), cell),
        Some((stem, Unit::Seconds)) => (format!("plumb_{stem}_seconds"), cell),
        Some((stem, Unit::Microseconds)) => (format!("plumb_{stem}_seconds"), cell / 1e6),
        _ => (format!("plumb_{column}"), cell),
    }
}

/// Every value of every summary row, and no other, is what Prometheus has: once for all scrapes.
fn compare_with_table(prometheus: &Prometheus, table: &Path) -> usize {
    let all = rows(table);
    let summaries = of(&all, "summary");
    let mut wanted = BTreeMap::new();
    for row in &summaries {
        for metric in METRICS.iter().filter(|metric| !row[metric.column].is_empty()) {
            let (name, value) = exported(metric.column, number(row, metric.column));
            let own =
                ["plan", "test", "case", "member", "tag", "from", "to", "direction"].map(|label| (label, &row[label]));
            let own = own.into_iter().filter(|(_, value)| !value.is_empty());
            let mut labels: BTreeMap<String, String> = own.map(|(name, value)| (name.into(), value.clone())).collect();
            labels.insert("__name__".into(), name);
            assert!(wanted.insert(labels, value).is_none(), "{} twice", metric.column);
        }
    }
    let mut seen = BTreeMap::new();
    for series in prometheus.query("{record=\"summary\"}[10m]") {
        let mut labels = labels(&series);
        for label in ["record", "job", "instance"] {
            labels.remove(label).expect("each series has it");
        }
        let values = series["values"].as_array().expect("samples").iter();
        let values: BTreeSet<&str> = values.map(|sample| sample[1].as_str().expect("a text")).collect();
        assert_eq!(values.len(), 1, "{labels:?} changed: {values:?}");
        let value: f64 = values.first().expect("one").parse().expect("a number");
        seen.insert(labels, value);
    }
    let names = |of: &BTreeMap<BTreeMap<String, String>, f64>| of.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&seen), names(&wanted));
    for (labels, value) in &wanted {
        // A division in binary rounds once more than an exponent of the digits.
        assert!(
            (seen[labels] - value).abs() <= value.abs() * f64::EPSILON,
            "{labels:?}: {} is not {value}",
            seen[labels]
        );
    }
    assert!(wanted.keys().all(|labels| labels["__name__"].starts_with("plumb_")));
    wanted.len()
}

/// The queries of the dashboard with its variables filled in, and the panels they are of.
fn dashboard() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/grafana/plumb.json");
    let text = fs::read_to_string(path).expect("the dashboard");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    assert!(board["schemaVersion"].as_u64() >= Some(36) && board["id"].is_null() && board["uid"] == "plumbline");
    let variables = board["templating"]["list"].as_array().expect("variables");
    let names: BTreeSet<&str> = variables.iter().map(|it| it["name"].as_str().expect("a name")).collect();
    let mut queries = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "a number twice");
        let at = &panel["gridPos"];
        assert!(at["x"].as_u64().expect("x") + at["w"].as_u64().expect("w") <= 24, "{panel}");
        for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let query = target["expr"].as_str().expect("a query").to_owned();
            for used in query.split('$').skip(1) {
                let used = used.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().expect("a name");
                assert!(names.contains(used) || used == "__rate_interval", "{query}: there is no ${used}");
            }
            queries.push((panel["title"].as_str().expect("a title").to_owned(), query));
        }
    }
    for variable in variables.iter().filter(|it| it["type"] == "query") {
        let values = variable["query"]["query"].as_str().expect("a query");
        let (metric, label) =
            values.trim_start_matches("label_values(").trim_end_matches(')').rsplit_once(", ").expect("two arguments");
        queries.push((format!("${}", variable["name"]), format!("count by ({label}) ({metric})")));
    }
    let fill = |query: &str| {
        let all =
            ["job", "instance", "case"].iter().fold(query.to_owned(), |q, name| q.replace(&format!("${name}"), ".*"));
        all.replace("$__rate_interval", "5s")
    };
    queries.into_iter().map(|(title, query)| (title, fill(&query))).collect()
}

/// The names of families in a query.
fn families(query: &str) -> Vec<&str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("plumb_")).collect()
}

#[test]
fn prometheus_reads_what_the_table_says() {
    if !has_program("prometheus", "prometheus") || !has_program("promtool", "prometheus") {
        return;
    }
    let folder = Folder::new();
    let (key, other) = (folder.name("key"), folder.name("other"));
    for path in [&key, &other] {
        assert_eq!(plumb(&["key", path]).code, Some(0));
    }
    let log = fs::File::create(folder.path("serve.log")).expect("a file");
    let (daemon, of_daemon) = serve(&["--key-file", &key, "--max-sessions", "1", "--log-format", "json"], log.into());
    let (reserved, port) = free();
    let of_run = SocketAddr::from(([127, 0, 0, 1], port));
    let prometheus = Prometheus::start(&folder, &[("serve", of_daemon), ("run", of_run)]);
    until("prometheus scrapes", || prometheus.number("up{job=\"serve\"}") == Some(1.0));
    drop(reserved);
    let begin = unix_now();
    let plan = folder.plan(
        "hosts: {b: {}}\ndefaults: {to: b, duration: 2s, assert: [elapsed > 0s]}",
        "  bulk: {workload: tcp_stream, rate: 500Mbit/s, iterations: {min: 3, max: 4, margin: 90%}}\n  rr: {workload: tcp_rr, tags: [x]}\n  \
         both: {workload: tcp_stream, rate: 500Mbit/s, direction: bidirectional}\n  never: {workload: tcp_rr, skip: true}",
    );
    let table = folder.name("results.csv");
    let host = format!("b={}", daemon.address);
    let reach = ["--host", &host, "--key-file", &key, "--metrics"];
    let listen = of_run.to_string();
    let run = Run::start(&[&[&plan, "-o", &table, "--metrics-linger", "1m"], &reach[..], &[&listen]].concat());
    assert_eq!(run.metrics, of_run);
    // A scrape while the run goes on.
    let mut current = String::new();
    until("a member has a rate", || {
        current = scrape(of_run);
        current.contains("plumb_live_bytes_per_second{case=\"bulk\"")
    });
    assert_eq!((sample(&current, "plumb_run_active"), sample(&current, "plumb_run_cases")), (Some(1.0), Some(4.0)));
    assert!(
        current.contains("phase=\"measure\"") && current.contains("plumb_case_iteration{case=\"bulk\"}"),
        "{current}"
    );
    promtool_accepts(&current);
    promtool_accepts(&scrape(of_daemon));
    let ran = run.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // The end of the run was seen, and nothing was current in it. Prometheus stores a scrape, as a whole, after its answer came.
    let last = |what: &str| prometheus.number(&format!("last_over_time({what}[5m])"));
    until("the last scrape is stored", || {
        last("plumb_run_finished_cases{status=\"ok\"}") == Some(3.0)
            && last("plumb_run_active{job=\"run\"}") == Some(0.0)
    });
    let compared = compare_with_table(&prometheus, &folder.path("results.csv"));
    assert!(compared > 60, "{compared}");
    let passed = rows(&folder.path("results.verdicts.csv")).iter().filter(|row| row["verdict"] == "pass").count();
    assert!(passed >= 3, "{passed}");
    assert_eq!(last("plumb_run_verdicts{verdict=\"pass\"}"), Some(passed as f64));
    assert_eq!(last("plumb_run_finished_cases{status=\"ok\"}"), Some(3.0));
    assert_eq!(last("plumb_run_finished_cases{status=\"skipped\"}"), Some(1.0));
    let all = rows(&folder.path("results.csv"));
    let iterations: BTreeSet<_> = of(&all, "iteration").iter().map(|row| (&row["case"], &row["iteration"])).collect();
    assert_eq!(last("plumb_run_iterations_total{status=\"ok\"}"), Some(iterations.len() as f64));
    let run_id = &all[0]["run_id"];
    assert_eq!(last(&format!("plumb_run_info{{run_id=\"{run_id}\",plan=\"t\"}}")), Some(1.0));
    // Refusals: a wrong key, and a session too many.
    for _ in 0..2 {
        assert_eq!(plumb(&["run", &plan, "--host", &host, "--key-file", &other]).code, Some(3));
    }
    // Values of a running case are repeated until Prometheus has them: on a busy machine it may have missed the short tests.
    let repeated = folder.plan(
        "hosts: {b: {}}\ndefaults: {to: b}",
        "  again: {workload: tcp_stream, rate: 200Mbit/s, duration: 1s, iterations: {min: 3, max: 9999, margin: 0.0001%}}",
    );
    let run = Run::start(&[&[repeated.as_str()], &reach[..], &[&listen]].concat());
    for family in [
        "case_margin_ratio",
        "case_margin_goal_ratio",
        "live_bytes_per_second",
        "phase_elapsed_seconds",
        "run_left_seconds",
    ] {
        until(family, || !prometheus.query(&format!("last_over_time(plumb_{family}[5m])")).is_empty());
    }
    kill(Pid::from_raw(run.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert_eq!(run.end().code, Some(143));
    let endless = folder.plan("hosts: {b: {}}\ndefaults: {to: b}", "  long: {workload: tcp_rr, duration: 1h}");
    let holder = Run::start(&[&[endless.as_str()], &reach[..], &[&listen]].concat());
    until("a session is open", || sample(&scrape(of_daemon), "plumb_serve_running_tests") == Some(1.0));
    let busy = plumb(&["run", &endless, "--host", &host, "--key-file", &key]);
    assert!(busy.code == Some(3) && busy.stderr.contains("sessions are in use"), "{}", busy.stderr);
    let held = scrape(of_daemon);
    assert_eq!(sample(&held, "plumb_serve_sessions"), Some(1.0));
    assert_eq!(
        (sample(&held, "plumb_serve_flows"), sample(&held, "plumb_serve_sessions_limit")),
        (Some(1.0), Some(1.0))
    );
    assert!(sample(&held, "plumb_serve_memory_bytes") > Some(1.0), "{held}");
    until("live transactions are stored", || {
        !prometheus.query("last_over_time(plumb_live_transactions_per_second[5m])").is_empty()
    });
    kill(Pid::from_raw(holder.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert_eq!(holder.end().code, Some(143));
    compare_with_log(&prometheus, daemon, of_daemon, &folder.path("serve.log"));
    every_query_of_the_dashboard_has_data(&prometheus, begin);
}

/// Every query of the dashboard is known to Prometheus and has data since an instant, seconds of Unix time.
fn every_query_of_the_dashboard_has_data(prometheus: &Prometheus, begin: f64) {
    let queries = dashboard();
    assert!(queries.len() > 25);
    for (title, query) in queries {
        let span = [begin, unix_now()].map(|at| at.to_string());
        let range = [("query", query.as_str()), ("start", &span[0]), ("end", &span[1]), ("step", "500ms")];
        let found = prometheus.get("query_range", &range).expect("an answer");
        assert!(!found.as_array().expect("series").is_empty(), "{title}: {query} has no data");
        for family in families(&query) {
            let one = prometheus.get("query_range", &[("query", family), range[1], range[2], range[3]]);
            assert!(one.is_some_and(|it| !it.as_array().expect("series").is_empty()), "{title}: no {family}");
        }
    }
}

/// The counters of the daemon are the events in its log, and Prometheus has them.
fn compare_with_log(prometheus: &Prometheus, mut daemon: Serve, metrics: SocketAddr, log: &Path) {
    until("all sessions are closed", || sample(&scrape(metrics), "plumb_serve_sessions") == Some(0.0));
    let last = scrape(metrics);
    let samples = last.lines().filter(|line| line.starts_with("plumb_serve_"));
    for (name, value) in samples.map(|line| line.rsplit_once(' ').expect("a sample")) {
        let value: f64 = value.parse().expect("a number");
        until(name, || prometheus.number(name) == Some(value));
    }
    let of = |name: &str| sample(&last, name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((of("plumb_serve_memory_bytes"), of("plumb_serve_flows")), (0.0, 0.0));
    // With its end the daemon tells how many lines it has left out.
    kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).expect("it runs");
    assert_eq!(daemon.wait(), Some(0));
    let text = fs::read_to_string(log).expect("the log");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let all = |event: &'static str| events.iter().filter(move |it| it["event"] == event);
    let count = |event| all(event).map(|it| it["more"].as_u64().unwrap_or(1)).sum::<u64>() as f64;
    let refused = |reason: &str| of(&format!("plumb_serve_refused_total{{reason=\"{reason}\"}}"));
    assert_eq!((refused("key"), refused("sessions")), (2.0, 1.0), "{text}");
    assert_eq!(Some(count("refused") + count("dropped")), Some(3.0), "{text}");
    assert_eq!(sample(&last, "plumb_serve_opened_sessions_total{program=\"plumb\"}"), Some(count("opened")));
    for ending in ["complete", "stopped", "aborted", "refused", "failed"] {
        let ended = all("test").filter(|it| it["ending"] == ending).count() as f64;
        let name = format!("plumb_serve_tests_total{{ending=\"{ending}\"}}");
        assert_eq!(sample(&last, &name), Some(ended), "{ending}");
    }
    for (family, field) in [("received", "bytes_received"), ("sent", "bytes_sent")] {
        let bytes: u64 = all("test").filter_map(|it| it[field].as_u64()).sum();
        assert!(bytes > 0);
        assert_eq!(sample(&last, &format!("plumb_serve_{family}_bytes_total")), Some(bytes as f64));
    }
}

#[test]
fn silent_connections_hold_up_neither_the_run_nor_a_scrape() {
    let folder = Folder::new();
    let plan = folder.plan("", "  rr: {workload: tcp_rr, duration: 1s, iterations: 2}");
    let run = Run::start(&[&plan, "--metrics", "0"]);
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(run.metrics).expect("a place")).collect();
    // A few of them begin a request; those that lost their place cannot.
    for mut stream in silent.iter().step_by(2) {
        drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nX: "));
    }
    assert_eq!(sample(&scrape(run.metrics), "plumb_run_cases"), Some(1.0));
    let ran = run.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(of(&parse(&ran.stdout), "summary").len(), 1);
    drop(silent);
}

#[test]
fn the_format_is_the_one_that_was_asked_for() {
    let (_daemon, metrics) = serve(&[], Stdio::null());
    let accept = |what: &str| ask(metrics, &format!("GET /metrics HTTP/1.1\r\nAccept: {what}\r\n\r\n"));
    let (head, open) = accept("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3");
    assert!(head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE plumb_serve_tests counter"), "{open}");
    let (head, plain) = accept("text/plain");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(plain.contains("# TYPE plumb_serve_tests_total counter") && !plain.contains("# EOF"), "{plain}");
    let build = format!("plumb_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(open.contains(&build) && plain.contains(&build), "{plain}");
    assert!(ask(metrics, "GET / HTTP/1.1\r\n\r\n").1.contains("/metrics"));
    assert!(ask(metrics, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
}

#[test]
fn a_port_in_use_ends_the_program_before_anything_is_measured() {
    let folder = Folder::new();
    let plan = folder.plan("", "  rr: {workload: tcp_rr, duration: 1s}");
    let table = folder.name("results.csv");
    let (_kept, port) = free();
    let port = port.to_string();
    for args in [
        vec!["run", &plan, "-o", &table, "--metrics", &port],
        vec!["serve", "--listen", "127.0.0.1:0", "--metrics", &port],
    ] {
        let ran = plumb(&args);
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("--metrics cannot listen on 127.0.0.1:{port}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("name another port"), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    assert!(!folder.path("results.csv").exists());
    let ran = plumb(&["run", &plan, "--metrics", ":9464"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("write 9464 for loopback"), "{}", ran.stderr);
}

#[test]
fn metrics_stay_in_the_namespace_of_the_process() {
    let Some(there) = Namespace::new() else { return };
    let (daemon, metrics) = serve(&["--netns", &there.name], Stdio::null());
    assert_eq!(sample(&scrape(metrics), "plumb_serve_sessions"), Some(0.0));
    let listening = there.read("ss", &["--no-header", "--listening", "--tcp", "--numeric"]);
    assert!(listening.contains(&daemon.address), "{listening}");
    assert!(!listening.contains(&metrics.to_string()), "{listening}");
}

#[test]
fn lingering_ends_with_the_first_scrape_of_the_end_or_with_its_time() {
    let folder = Folder::new();
    let plan = folder.plan("", "  rr: {workload: tcp_rr, duration: 200ms}");
    let table = folder.name("results.csv");
    let run = Run::start(&[&plan, "-o", &table, "--metrics", "0", "--metrics-linger", "10m"]);
    let metrics = run.metrics;
    // A scrape of the end is the last that has an answer.
    until("the end of the run", || sample(&scrape(metrics), "plumb_run_active") == Some(0.0));
    assert_eq!(run.end().code, Some(0));
    assert!(TcpStream::connect(metrics).is_err());
    let ran = Run::start(&[&plan, "--metrics", "0", "--metrics-linger", "300ms"]).end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn the_page_lists_every_family() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/live.md")).expect("the page");
    let cells: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let listed: BTreeMap<&str, &Vec<&str>> = cells
        .iter()
        .filter(|cells| ["`plumb_", "`probe_"].iter().any(|start| cells[0].starts_with(start)))
        .map(|cells| (cells[0].trim_matches('`').split('{').next().expect("a name"), cells))
        .collect();
    let own: BTreeMap<String, &runner::metrics::Family> = runner::metrics::ALL
        .iter()
        .map(|family| {
            let total = if family.kind == runner::metrics::Kind::Counter { "_total" } else { "" };
            (format!("{}{total}", family.name), family)
        })
        .collect();
    let names: BTreeSet<&str> = own.keys().map(String::as_str).collect();
    assert_eq!(listed.keys().copied().collect::<BTreeSet<_>>(), names);
    for (name, family) in &own {
        assert_eq!(listed[name.as_str()].last().copied(), Some(family.help), "{name}");
    }
    // The names of results follow a rule that the page gives.
    assert!(find("throughput_bits_per_s").is_some() && page.contains("plumb_throughput_bytes_per_second"));
}
