//! `plumb export` as databases take it: promtool and InfluxDB read back what was written.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use schemas::{
    columns::{ColumnType, find},
    metrics::METRICS,
    units::Unit,
};
use serde_json::{Value, json};

use crate::{
    needs::has_program,
    program::{Folder, plumb, until},
};

/// Names with everything that one of the formats escapes.
const NAMES: [&str; 3] = ["bulk[message_size=64,streams=2]", "a\\b, \"quoted\" = é\nsecond line", "plain"];

/// The number of a metric in a row: of each magnitude, none like another's.
fn value(row: usize, column: usize) -> f64 {
    let exponent = i32::try_from(column % 13).expect("small") - 4;
    ((1 + row * 1000 + column) as f64 + 0.7) * 10f64.powi(exponent)
}

/// A table with a value in every column that holds a metric, as written by the program: two iterations of each case.
fn every_metric(folder: &Folder) -> String {
    let mut csv = csv::Writer::from_path(folder.path("every.csv")).expect("a file");
    let metrics: Vec<&str> = METRICS.iter().map(|m| m.column).collect();
    let fixed = ["run_id", "plan", "case", "record", "iteration", "phase", "status", "time", "settled"];
    csv.write_record(fixed.iter().chain(&metrics)).expect("a header");
    for (row, (name, iteration)) in NAMES.iter().flat_map(|name| [(name, "1"), (name, "2")]).enumerate() {
        let time = format!("2026-01-31T12:00:0{row}.123456Z");
        let settled = if row % 2 == 0 { "true" } else { "false" };
        let cells = ["r1", "every", name, "iteration", iteration, "measure", "ok", &time, settled].map(str::to_owned);
        let numbers = metrics.iter().enumerate().map(|(column, name)| match find(name).expect("a column").ty {
            ColumnType::Integer => (row * 1000 + column).to_string(),
            _ => value(row, column).to_string(),
        });
        csv.write_record(cells.into_iter().chain(numbers)).expect("a row");
    }
    csv.flush().expect("written");
    folder.name("every.csv")
}

pub fn rows(table: &str) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(table).expect("a table").deserialize().map(|row| row.expect("a row")).collect()
}

pub fn exported(args: &[&str]) -> String {
    let ran = plumb(&[&["export", "--to"], args].concat());
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran.stdout
}

/// The labels and the value of a sample as `promtool tsdb dump` writes them: `{a="x", b="y"} 1 1700000000000`.
fn dumped(line: &str) -> (BTreeMap<String, String>, f64) {
    let mut labels = BTreeMap::new();
    let mut rest = line.strip_prefix('{').expect("labels");
    loop {
        let (name, behind) = rest.split_once("=\"").expect("a label");
        let mut label = String::new();
        let mut letters = behind.char_indices();
        let end = loop {
            match letters.next().expect("an end") {
                (_, '\\') => match letters.next().expect("an escaped letter").1 {
                    'n' => label.push('\n'),
                    other => label.push(other),
                },
                (end, '"') => break end,
                (_, c) => label.push(c),
            }
        };
        labels.insert(name.to_owned(), label);
        rest = &behind[end + 1..];
        match rest.strip_prefix(", ") {
            Some(more) => rest = more,
            None => break,
        }
    }
    let number = rest.strip_prefix("} ").and_then(|r| r.split(' ').next()).expect("a value");
    (labels, number.parse().expect("a number"))
}

#[test]
fn prometheus_reads_openmetrics() {
    if !has_program("promtool", "prometheus") {
        return;
    }
    let folder = Folder::new();
    let table = every_metric(&folder);
    let text = exported(&["openmetrics", &table]);
    let run = |args: &[&str], input: &str| {
        let mut child = Command::new("promtool")
            .args(args)
            .current_dir(folder.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let said = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t).into_owned());
        assert!(output.status.success(), "promtool {args:?}: {said:?}");
        said
    };
    // Neither the parser nor the rules for names find anything.
    assert_eq!(run(&["check", "metrics"], &text), ["", ""]);
    // The strict parser of OpenMetrics takes files with timestamps; it checks units, help and the end, too.
    let stamped: String = text
        .lines()
        .map(|line| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1700000000\n") })
        .collect();
    std::fs::write(folder.path("stamped"), stamped).expect("written");
    run(&["tsdb", "create-blocks-from", "openmetrics", "stamped", "db"], "");
    // A database that no server has opened lacks its log.
    std::fs::create_dir(folder.path("db/wal")).expect("a folder");
    let [dump, _] = run(&["tsdb", "dump", "db"], "");
    let mut read: Vec<(BTreeMap<String, String>, f64)> = dump.lines().map(dumped).collect();
    let mut wanted = Vec::new();
    for row in rows(&table) {
        for metric in METRICS {
            let number: f64 = row[metric.column].parse().expect("a number");
            let (name, number) = match Unit::of_column(metric.column) {
                Some((stem, Unit::BitsPerSecond)) => (format!("{stem}_bytes_per_second"), number / 8.0),
                Some((stem, Unit::PerSecond)) => (format!("{stem}_per_second"), number),
                Some((stem, Unit::Seconds)) => (format!("{stem}_seconds"), number),
                Some((stem, Unit::Microseconds)) => (format!("{stem}_seconds"), number / 1e6),
                _ => (metric.column.to_owned(), number),
            };
            let labels = ["plan", "case", "iteration"].map(|label| (label.to_owned(), row[label].clone()));
            let name = ("__name__".to_owned(), format!("plumb_{name}"));
            wanted.push((labels.into_iter().chain([name]).collect::<BTreeMap<String, String>>(), number));
        }
    }
    let by_labels = |a: &(BTreeMap<String, String>, f64), b: &(BTreeMap<String, String>, f64)| a.0.cmp(&b.0);
    read.sort_by(by_labels);
    wanted.sort_by(by_labels);
    assert_eq!((read.len(), wanted.len()), (METRICS.len() * 6, METRICS.len() * 6));
    for ((labels, read), (wanted_labels, wanted)) in read.iter().zip(&wanted) {
        assert_eq!(labels, wanted_labels);
        // A division in binary rounds once more than one of the digits.
        assert!((read - wanted).abs() <= wanted.abs() * f64::EPSILON, "{labels:?}: {read} is not {wanted}");
    }
}

/// InfluxDB with its files in a folder; it answers on a socket there. Killed when this is dropped.
struct Influx {
    child: Child,
    socket: std::path::PathBuf,
}

impl Influx {
    fn start(folder: &Folder) -> Self {
        let path = |name: &str| folder.path(name).display().to_string();
        // Ports of its own choice on loopback: nobody calls them.
        let config = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:0\"\n[meta]\ndir = \"{}\"\n[data]\ndir = \"{}\"\nwal-dir = \
             \"{}\"\n[http]\nbind-address = \"127.0.0.1:0\"\nunix-socket-enabled = true\nbind-socket = \"{}\"\nlog-enabled = \
             false\n[monitor]\nstore-enabled = false\n",
            path("meta"),
            path("data"),
            path("wal"),
            path("socket")
        );
        std::fs::write(folder.path("influx.conf"), config).expect("written");
        let child = Command::new("influxd")
            .args(["-config", &path("influx.conf")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("influxd starts");
        let influx = Self { child, socket: folder.path("socket") };
        until("influxd answers", || UnixStream::connect(&influx.socket).is_ok());
        influx
    }

    /// Status and body of the answer to a request.
    fn ask(&self, path: &str, body: &str) -> (String, String) {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\nHost: influx\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).expect("a status").to_owned(), body.to_owned())
    }

    /// The series of a query.
    fn query(&self, words: &str) -> Vec<Value> {
        let (status, body) = self.ask(&format!("/query?db=net&epoch=ns&q={}", words.replace(' ', "+")), "");
        assert_eq!(status, "200", "{words}: {body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["results"][0]["series"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Influx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn influxdb_reads_line_protocol() {
    if !has_program("influxd", "influxdb") {
        return;
    }
    let folder = Folder::new();
    let table = every_metric(&folder);
    let lines = exported(&["influx", &table]);
    let influx = Influx::start(&folder);
    influx.query("CREATE DATABASE net");
    let (status, body) = influx.ask("/write?db=net&precision=ns", &lines);
    assert_eq!((status.as_str(), body.as_str()), ("204", ""), "{lines}");
    let series = influx.query("SELECT * FROM plumb GROUP BY *");
    let rows = rows(&table);
    assert_eq!(series.len(), rows.len());
    let is_tag = |name: &str| find(name).is_some_and(|c| c.is_parameter() || ["identity", "kind"].contains(&c.group));
    for row in &rows {
        let case = row["case"].replace('\n', "\\n");
        let matches =
            |s: &&Value| s["tags"]["case"] == case.as_str() && s["tags"]["iteration"] == row["iteration"].as_str();
        let found = series.iter().find(matches).unwrap_or_else(|| panic!("no {case}: {series:?}"));
        let columns = found["columns"].as_array().expect("columns");
        let cells = found["values"][0].as_array().expect("a row");
        let cell = |name: &str| columns.iter().position(|c| c == name).map(|i| &cells[i]);
        let at = schemas::time::parse(&row["time"]).and_then(|t| t.timestamp_nanos_opt()).expect("a time");
        assert_eq!(cell("time"), Some(&json!(at)));
        let mut fields = 0;
        for (name, written) in row {
            match find(name).expect("a column").ty {
                _ if ["run_id", "status", "time"].contains(&name.as_str()) => {
                    assert!(found["tags"].get(name).is_none() && (name == "time" || cell(name).is_none()), "{name}");
                    continue;
                }
                _ if is_tag(name) => {
                    assert_eq!(found["tags"][name], written.replace('\n', "\\n"), "{name}");
                    continue;
                }
                ColumnType::Boolean => assert_eq!(cell(name), Some(&json!(written == "true")), "{name}"),
                ColumnType::Integer => assert_eq!(cell(name), Some(&json!(written.parse::<u64>().unwrap())), "{name}"),
                _ => assert_eq!(cell(name).and_then(Value::as_f64), written.parse().ok(), "{name}"),
            }
            fields += 1;
        }
        assert_eq!(columns.len(), fields + 1, "{columns:?}");
    }
    // The type of each field is that of its column, also where a number happens to be whole.
    let types = influx.query("SHOW FIELD KEYS FROM plumb");
    for pair in types[0]["values"].as_array().expect("fields") {
        let wanted = match find(pair[0].as_str().expect("a name")).expect("a column").ty {
            ColumnType::Integer => "integer",
            ColumnType::Boolean => "boolean",
            _ => "float",
        };
        assert_eq!(pair[1], wanted, "{pair}");
    }
    // The same run again changes nothing.
    assert_eq!(influx.ask("/write?db=net&precision=ns", &lines).0, "204");
    assert_eq!(influx.query("SELECT * FROM plumb GROUP BY *"), series);
}

#[test]
fn options_of_other_formats_are_refused() {
    let folder = Folder::new();
    let table = every_metric(&folder);
    for (args, reason) in [
        (["--to", "bencher", "--better", "higher"], "--better is for -f github-action-benchmark"),
        (["--to", "jsonl", "-m", "throughput"], "-m is for -f openmetrics"),
        (["--to", "influx", "-m", "thruput"], "-m: "),
        (["--to", "influx", "-x", "case"], "-x, -y and --by are for -f gnuplot"),
    ] {
        let ran = plumb(&[&["export"], &args[..], &[&table]].concat());
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason) && ran.stdout.is_empty(), "{args:?}: {}", ran.stderr);
    }
    // A file that exists stays as it is where nothing can be exported.
    let out = folder.name("bmf.json");
    std::fs::write(&out, "yesterday").expect("written");
    let failed = folder.name("failed.csv");
    std::fs::write(&failed, "case,status,throughput_bits_per_s\na,failed,\n").expect("written");
    let ran = plumb(&["export", "--to", "bencher", "-o", &out, &failed]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(Path::new(&out)).expect("a file"), "yesterday");
}
