//! The log of `plumb serve`, for people or as JSON lines.
//!
//! Names and reasons may be a client's own words. Control characters in them are escaped, so that a client can neither forge
//! a line nor steer a terminal.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use netcore::{
    daemon::{ClientLabel, Event},
    foreign::shortened,
    lock::Lock,
};
use schemas::{
    time,
    units::{Unit, human},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    plan::{answers::span, workload},
    style,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// The first line of a daemon.
#[derive(Serialize)]
pub(super) struct Serving {
    pub(super) version: &'static str,
    pub(super) addresses: Vec<String>,
    /// The first and last port of `--data-ports`; without them data come to the addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data_ports: Option<(u16, u16)>,
    /// Other programs whose clients are served, and where.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) also: BTreeMap<&'static str, Vec<String>>,
    pub(super) key_required: bool,
    pub(super) runs_programs: bool,
    pub(super) max_sessions: u32,
    pub(super) max_flows: u32,
    pub(super) max_duration_s: f64,
    pub(super) exclusive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<String>,
    pub(super) pid: u32,
}

/// A kind of event that others can cause at any rate, and how much is said of it.
struct Sampled {
    kind: &'static str,
    /// Plural name for the line that counts hidden events.
    more: &'static str,
    /// Lines in `span`; the rest is counted.
    lines: u32,
    span: Duration,
}

/// Strangers get a line a second, sessions and their tests far more than people read.
const SAMPLED: [Sampled; 6] = [
    Sampled { kind: "unaccepted", more: "connections unaccepted", lines: 1, span: Duration::from_secs(1) },
    Sampled { kind: "dropped", more: "connections dropped", lines: 1, span: Duration::from_secs(1) },
    Sampled { kind: "refused", more: "connections refused", lines: 1, span: Duration::from_secs(1) },
    Sampled { kind: "opened", more: "sessions opened", lines: 100, span: Duration::from_secs(10) },
    Sampled { kind: "closed", more: "sessions closed", lines: 100, span: Duration::from_secs(10) },
    Sampled { kind: "test", more: "tests", lines: 100, span: Duration::from_secs(10) },
];

/// Limit of a text from elsewhere in a line, characters.
const LONGEST: usize = 300;

/// Limit of the arguments of a program in a line, bytes as they are escaped.
const LONGEST_ARGUMENTS: usize = 4000;

/// The log on standard error. Lines of one kind are sampled, so that a flood of connections cannot fill the disk.
#[derive(Debug)]
pub(super) struct Log {
    format: Format,
    said: Lock<[LineCount; SAMPLED.len()]>,
}

/// Lines written about a kind of event.
#[derive(Clone, Copy, Debug, Default)]
struct LineCount {
    /// Begin of the present span.
    since: Option<Instant>,
    /// Lines in it.
    lines: u32,
    /// Events in it without a line.
    hidden: u64,
}

impl Log {
    pub(super) fn new(format: Format) -> Self {
        Self { format, said: Lock::default() }
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        self.lines(event, Instant::now()).iter().for_each(style::tell);
    }

    /// Tells of what was left out.
    pub(super) fn finish(&self) {
        let mut said = self.said.lock();
        self.hidden(&mut *said, None).iter().for_each(style::tell);
    }

    fn lines(&self, event: &Event<'_>, now: Instant) -> Vec<String> {
        let mut said = self.said.lock();
        let mut lines = self.hidden(&mut *said, Some(now));
        if let Some((sampled, said)) = SAMPLED.iter().zip(said.iter_mut()).find(|(it, _)| it.kind == name(event)) {
            said.since.get_or_insert(now);
            if said.lines >= sampled.lines {
                said.hidden += 1;
                return lines;
            }
            said.lines += 1;
        }
        lines.push(self.format.line(event));
        lines
    }

    /// Begins new spans where the present ones are over, with lines about what was left out.
    fn hidden(&self, said: &mut [LineCount], now: Option<Instant>) -> Vec<String> {
        let is_over = |sampled: &Sampled, since: Instant| {
            now.is_none_or(|now| now.saturating_duration_since(since) >= sampled.span)
        };
        let over = SAMPLED.iter().zip(said).filter(|(sampled, said)| said.since.is_some_and(|at| is_over(sampled, at)));
        let ended = over.map(|(sampled, said)| (sampled, std::mem::take(said).hidden));
        ended.filter(|(_, hidden)| *hidden > 0).map(|(sampled, hidden)| self.format.more(sampled, hidden)).collect()
    }
}

impl Format {
    /// A line that stands for so many events of a kind.
    fn more(self, sampled: &Sampled, count: u64) -> String {
        let now = time::now();
        match self {
            Self::Text => format!("{} {count} more {}", &*now, sampled.more),
            Self::Json => with_time(&now, json!({"event": sampled.kind, "more": count})),
        }
    }

    /// A line about an event, without its end.
    pub(super) fn line(self, event: &Event<'_>) -> String {
        let now = time::now();
        match self {
            Self::Text => format!("{} {}", &*now, schemas::text::plain(&sentence(event))),
            Self::Json => with_time(&now, object(event)),
        }
    }

    /// Advice about the way in which the daemon was started.
    pub(super) fn note(self, advice: &str) -> String {
        match self {
            Self::Text => format!("note: {advice}"),
            Self::Json => with_time(&time::now(), json!({"event": "note", "note": advice})),
        }
    }

    /// The first line, with its end.
    pub(super) fn serving(self, serving: &Serving) -> String {
        match self {
            Self::Text => serving.sentence(),
            Self::Json => {
                let mut object = serde_json::to_value(serving).unwrap_or_default();
                object["event"] = "serving".into();
                with_time(&time::now(), object) + "\n"
            }
        }
    }
}

impl Serving {
    fn sentence(&self) -> String {
        let who = match (self.key_required, self.runs_programs) {
            (true, true) => "key required, its holders may run programs",
            (true, false) => "key required",
            (false, _) => "no key",
        };
        let data = self.data_ports.map_or_else(
            || " (TCP and UDP)".to_owned(),
            |(first, last)| format!(" with data on ports {first} to {last}"),
        );
        format!(
            "plumb {} serving on {}{data} · {who} · up to {} sessions, {} flows each, {}{}{}{} · pid {}\n",
            self.version,
            self.addresses.join(" and "),
            self.max_sessions,
            self.max_flows,
            span(Duration::from_secs_f64(self.max_duration_s)),
            if self.exclusive { ", one client at a time" } else { "" },
            self.others(),
            self.metrics.as_ref().map_or_else(String::new, |url| format!(" · metrics at {url}")),
            self.pid
        )
    }

    /// Opening them is a decision that the line repeats.
    fn others(&self) -> String {
        if self.also.is_empty() {
            return String::new();
        }
        let of = |(program, addresses): (&&str, &Vec<String>)| format!("{program} on {}", addresses.join(" and "));
        let list: Vec<String> = self.also.iter().map(of).collect();
        format!(" · also {}, which no key protects", list.join(", "))
    }
}

/// A JSON object as one line; its time comes first.
fn with_time(now: &str, fields: Value) -> String {
    let mut line = format!("{{\"time\":{}", json!(now));
    if let Value::Object(fields) = fields {
        for (name, value) in fields {
            // Writing to a String cannot fail.
            let _ = write!(line, ",{}:{value}", json!(name));
        }
    }
    line.push('}');
    // Outside of ASCII there is only text in strings.
    line.chars().fold(String::with_capacity(line.len()), |mut out, c| {
        // Writing to a String cannot fail.
        if schemas::text::is_hostile(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
        } else {
            out.push(c);
        }
        out
    })
}

/// A text from elsewhere: its first [`LONGEST`] characters.
fn cut(text: &str) -> Cow<'_, str> {
    shortened(text, LONGEST)
}

/// The first arguments of a program, [`LONGEST_ARGUMENTS`] bytes in all, as they are escaped.
fn arguments(argv: &[String]) -> Vec<Cow<'_, str>> {
    let mut left = LONGEST_ARGUMENTS;
    let mut kept = Vec::new();
    for argument in argv {
        let mut fit = 0;
        for c in argument.chars() {
            let Some(rest) = left.checked_sub(c.escape_debug().count().max(c.len_utf8())) else {
                left = 0;
                break;
            };
            (fit, left) = (fit + 1, rest);
        }
        kept.push(shortened(argument, fit));
        // Quotes, comma and blank.
        left = left.saturating_sub(4);
        if left == 0 {
            break;
        }
    }
    if kept.len() < argv.len() {
        kept.push("…".into());
    }
    kept
}

fn sentence(event: &Event<'_>) -> String {
    match event {
        Event::Unaccepted { reason } => format!("a connection could not be accepted: {}", cut(reason)),
        Event::Dropped { address, reason, .. } => format!("{address}: dropped, {}", cut(reason)),
        Event::Refused { address, reason, .. } => format!("{address}: no session: {}", cut(reason)),
        Event::Opened { client, program, version } => {
            format!("{client}: session opened by {program} {}", cut(version)).trim_end().to_owned()
        }
        Event::Closed { client, reason } => format!("{client}: session ended: {}", cut(reason)),
        // Debug formatting keeps the arguments apart.
        Event::Program { client, argv } => format!("{client}: runs {:?}", arguments(argv)),
        Event::Test { client, part, result } => {
            let (words, _) = workload::of_part(part);
            let mut text = format!("{client}: {words}");
            for (bytes, word) in [(result.bytes_received, "received"), (result.bytes_sent, "sent")] {
                if bytes > 0 {
                    // Writing to a String cannot fail.
                    let _ = write!(text, ", {} {word}", human(Unit::Bytes, bytes as f64));
                }
            }
            if !result.elapsed.is_zero() {
                let _ = write!(text, ", {}", human(Unit::Seconds, result.elapsed.as_secs_f64()));
            }
            let _ = write!(text, ", {}", result.ending);
            if let Some(reason) = &result.reason {
                let _ = write!(text, ": {}", cut(reason));
            }
            text
        }
    }
}

/// The name of an event.
fn name(event: &Event<'_>) -> &'static str {
    match event {
        Event::Unaccepted { .. } => "unaccepted",
        Event::Dropped { .. } => "dropped",
        Event::Refused { .. } => "refused",
        Event::Opened { .. } => "opened",
        Event::Closed { .. } => "closed",
        Event::Program { .. } => "program",
        Event::Test { .. } => "test",
    }
}

fn object(event: &Event<'_>) -> Value {
    let mut object = json!({"event": name(event)});
    let mut of_client = |client: &ClientLabel| {
        object["client"] = client.address.to_string().into();
        object["client_host"] = client.host.clone().into();
    };
    match event {
        Event::Unaccepted { .. } | Event::Dropped { .. } | Event::Refused { .. } => {}
        Event::Opened { client, .. }
        | Event::Closed { client, .. }
        | Event::Program { client, .. }
        | Event::Test { client, .. } => of_client(client),
    }
    match event {
        Event::Unaccepted { reason } | Event::Closed { reason, .. } => object["reason"] = cut(reason).into(),
        Event::Dropped { address, reason, .. } | Event::Refused { address, reason, .. } => {
            object["client"] = address.as_str().into();
            object["reason"] = cut(reason).into();
        }
        Event::Opened { program, version, .. } => {
            object["client_program"] = (*program).into();
            object["client_version"] = cut(version).into();
        }
        Event::Program { argv, .. } => object["argv"] = json!(arguments(argv)),
        Event::Test { part, result, .. } => {
            let (_, keys) = workload::of_part(part);
            for (key, value) in keys.as_object().into_iter().flatten() {
                object[key] = value.clone();
            }
            object["bytes_sent"] = result.bytes_sent.into();
            object["bytes_received"] = result.bytes_received.into();
            object["elapsed_s"] = result.elapsed.as_secs_f64().into();
            object["ending"] = result.ending.as_str().into();
            object["reason"] = result.reason.as_deref().map(cut).into();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use netcore::{
        daemon::{Cause, Part, TestEnding, TestResult},
        spec::{Pattern, Side, TestSpec, Transport},
    };

    use super::*;

    #[test]
    fn the_page_has_the_bounds_of_the_log() {
        let page = include_str!("../../../docs/reference/protocol.md");
        let lines = |kind| {
            let sampled = SAMPLED.iter().find(|sampled| sampled.kind == kind);
            sampled.map_or_else(String::new, |it| format!("{} in {} s", it.lines, it.span.as_secs()))
        };
        let bounds = [
            ("log lines about connections without a session, of each kind", lines("dropped")),
            ("log lines about sessions and tests, of each kind", lines("test")),
            ("text of a client in a log line", format!("{LONGEST} characters")),
            ("arguments of a program in a log line", format!("{LONGEST_ARGUMENTS} characters")),
        ];
        for (name, value) in bounds {
            assert!(page.contains(&format!("| {name} | {value} |")), "| {name} | {value} |");
        }
    }

    fn client(host: &str) -> ClientLabel {
        ClientLabel { address: "10.0.0.1:4000".parse().unwrap(), host: Some(host.into()) }
    }

    fn test(
        client: &ClientLabel,
        ending: TestEnding,
        reason: Option<&str>,
        of: impl Fn(&Event<'_>) -> String,
    ) -> String {
        let spec = TestSpec { streams: 4, ..TestSpec::new(Pattern::Stream, Transport::Tcp) };
        let elapsed = Duration::from_millis(2500);
        let reason = reason.map(str::to_owned);
        let result = TestResult { bytes_sent: 0, bytes_received: 1 << 30, elapsed, ending, reason };
        of(&Event::Test { client, part: &Part::End { spec: Box::new(spec), side: Side::Far }, result })
    }

    #[test]
    fn a_test_has_client_workload_bytes_time_and_ending() {
        let line = test(&client("lab-a"), TestEnding::Complete, None, sentence);
        assert!(line.starts_with("10.0.0.1:4000 (lab-a): tcp_stream, 4 streams, 1 GiB received, "), "{line}");
        assert!(line.ends_with("2.50 s, complete"), "{line}");
        let line = test(&client("lab-a"), TestEnding::Failed, Some("no route"), sentence);
        assert!(line.ends_with(", failed: no route"), "{line}");
        let line = test(&client("lab-a"), TestEnding::Refused, Some("65 flows"), |e| Format::Json.line(e));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert!(line.starts_with("{\"time\":\"20"), "{line}");
        for (field, value) in [
            ("event", json!("test")),
            ("client", json!("10.0.0.1:4000")),
            ("client_host", json!("lab-a")),
            ("workload", json!("tcp_stream")),
            ("side", json!("far")),
            ("streams", json!(4)),
            ("bytes_received", json!(1u64 << 30)),
            ("elapsed_s", json!(2.5)),
            ("ending", json!("refused")),
            ("reason", json!("65 flows")),
        ] {
            assert_eq!(object[field], value, "{field}");
        }
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        let client = client("x\n2026-11-22T00:00:00Z 10.0.0.9:1 (root): \x1b[2J\u{202e}\u{9b}");
        for format in [Format::Text, Format::Json] {
            let line = format.line(&Event::Opened { client: &client, program: "plumb", version: "1\r\n" });
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        assert!(
            !Format::Text.line(&Event::Opened { client: &client, program: "plumb", version: "1" }).contains('\u{202e}')
        );
    }

    #[test]
    fn no_text_of_a_client_fills_a_disk() {
        let client = client(&"h".repeat(64));
        let long = "x".repeat(1 << 20);
        let argv: Vec<String> = (0..10_000).map(|_| "x".repeat(100)).collect();
        for format in [Format::Text, Format::Json] {
            let lines = [
                format.line(&Event::Opened { client: &client, program: "plumb", version: &long }),
                format.line(&Event::Closed { client: &client, reason: long.clone() }),
                format.line(&Event::Refused {
                    address: "10.0.0.9:1".into(),
                    reason: long.clone(),
                    cause: Cause::Greeting,
                }),
                format.line(&Event::Program { client: &client, argv: &argv }),
                format.line(&Event::Program { client: &client, argv: &[long.clone(), "last".into()] }),
                test(&client, TestEnding::Refused, Some(&long), |event| format.line(event)),
            ];
            for line in lines {
                assert!(line.len() < 6000 && (line.contains("x…") || line.contains("…\"]")), "{line}");
            }
            // An escaped character takes more bytes than the client sent.
            let escapes = "\x1b".repeat(1 << 20);
            for argv in [
                vec![escapes.clone()],
                vec!["\x1b".repeat(100); 10_000],
                vec![escapes; 1000],
                vec![String::new(); 10_000],
            ] {
                let line = format.line(&Event::Program { client: &client, argv: &argv });
                assert!(line.len() < 6000 && line.contains('…'), "{} bytes: {}", line.len(), &line[..200]);
            }
        }
    }

    #[test]
    fn sessions_and_tests_are_counted_where_they_are_too_many_for_lines() {
        let log = Log::new(Format::Json);
        let (began, caller) = (Instant::now(), client("lab-a"));
        let lines = |ms: u64| {
            let opened = Event::Opened { client: &caller, program: "plumb", version: "1" };
            log.lines(&opened, began + Duration::from_millis(ms)).len()
        };
        assert_eq!((0..5000).map(&lines).sum::<usize>(), 100);
        assert_eq!(lines(10_000), 2, "one says how many there were");
    }

    #[test]
    fn strangers_get_a_line_a_second() {
        let log = Log::new(Format::Text);
        let began = Instant::now();
        let knock = Event::Dropped { address: "10.0.0.9:1".into(), reason: "x".into(), cause: Cause::Crowded };
        let at = |event: &Event<'_>, ms: u64| log.lines(event, began + Duration::from_millis(ms));
        assert_eq!(at(&knock, 0).len(), 1);
        assert!(at(&knock, 10).is_empty() && at(&knock, 999).is_empty());
        let caller = client("lab-a");
        assert_eq!(
            at(&Event::Opened { client: &caller, program: "plumb", version: "1" }, 999).len(),
            1,
            "others have spans of their own"
        );
        let lines = at(&knock, 1001);
        assert!(lines.len() == 2 && lines[0].ends_with("2 more connections dropped"), "{lines:?}");
    }
}
