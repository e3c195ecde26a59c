//! A Prometheus of Debian that scrapes for a test.

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::program::Folder;

/// A port that is free now. The listener keeps it until it is dropped.
pub fn free() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

pub struct Prometheus {
    child: Child,
    api: SocketAddr,
}

impl Prometheus {
    /// Scrapes these targets, by job, twice a second.
    pub fn start(folder: &Folder, targets: &[(&str, SocketAddr)]) -> Self {
        let mut config = "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs:\n".to_owned();
        for (job, target) in targets {
            writeln!(config, "- {{job_name: {job}, static_configs: [{{targets: ['{target}']}}]}}").expect("a text");
        }
        fs::write(folder.path("prometheus.yaml"), config).expect("written");
        let (listener, port) = free();
        drop(listener);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.name("prometheus.yaml")))
            .arg(format!("--storage.tsdb.path={}", folder.name("tsdb")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path("prometheus.log")).expect("a file"))
            .spawn()
            .expect("prometheus starts");
        Self { child, api: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    /// The result of a query; none while it does not answer.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Option<Value> {
        let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
        let mut stream = TcpStream::connect(self.api).ok()?;
        write!(stream, "GET /api/v1/{path}?{} HTTP/1.0\r\n\r\n", query.join("&")).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).ok()?;
        assert!(body["status"] == "success" || body["errorType"] == "unavailable", "{parameters:?}: {body}");
        body["data"]["result"].is_array().then(|| body["data"]["result"].clone())
    }

    /// The series of an instant query, with labels and values.
    pub fn query(&self, query: &str) -> Vec<Value> {
        self.get("query", &[("query", query)]).and_then(|it| it.as_array().cloned()).unwrap_or_default()
    }

    /// The number that a query has as its only answer.
    pub fn number(&self, query: &str) -> Option<f64> {
        match self.query(query).as_slice() {
            [one] => Some(one["value"][1].as_str().expect("a text").parse().expect("a number")),
            _ => None,
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The checks of promtool find nothing.
pub fn promtool_accepts(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success() && said == ["", ""], "{said:?}\n{text}");
}
