//! Every bound on clients and daemons, by its name in docs/reference/protocol.md, which is held to this list.

use std::{collections::BTreeSet, time::Duration};

use super::{Limits, Timeouts, admission, budget, session};
use crate::{
    client,
    control::{
        channel::{KEEPALIVE, PROGRESS},
        child,
        clock::PROBES,
        frame::{GREETING_BOUND, REPLY_BOUND, REQUEST_BOUND},
        message::{Execute, ReportBuilder},
    },
    foreign,
    measure::{KEPT_BYTES, sampler},
    peers::{netperf, stamp},
    spec::{quic::WINDOW, ranks::MOST_COMPUTE_NS},
    transport::{certificate, connection, quic},
};

/// The names of all bounds, and their values unless a flag changes them.
fn bounds() -> Vec<(&'static str, String)> {
    let (limits, served, asked) = (Limits::default(), Timeouts::default(), client::Timeouts::default());
    let (own, of_programs) = (budget::Bounds::OWN, budget::Bounds::OF_PROGRAMS);
    let minimum = |value: u64, unit: &str| format!("at least {value} {unit}");
    vec![
        ("client networks", "all".to_owned()),
        ("connections in their greeting", own.places.to_string()),
        ("connections in their greeting, of one address", own.of_an_address.to_string()),
        ("threads of connections in their greeting", own.threads().to_string()),
        ("connections of other programs in their greeting", of_programs.places.to_string()),
        ("connections of other programs in their greeting, of one address", of_programs.of_an_address.to_string()),
        ("other programs: wait for a turn", time(super::peer_clients::LONGEST_WAIT)),
        ("netperf: first message, and rest of one that has begun", time(netperf::MESSAGE)),
        ("netperf: next request", time(netperf::IDLE)),
        ("netperf: data connection of a test", time(netperf::CONNECT)),
        ("netperf: addresses of data sockets", "those of `--also`".to_owned()),
        ("netperf: call of a stream", bytes(netperf::MOST_STREAM_BYTES)),
        ("netperf: request, response", bytes(netperf::MOST_EXCHANGE_BYTES)),
        ("stamp: answers per second to an address", stamp::PER_ADDRESS.to_string()),
        ("stamp: answers per second", stamp::IN_ALL.to_string()),
        ("stamp: sessions with numbers of their own", stamp::SESSIONS.to_string()),
        ("stamp: next request of a session", time(stamp::IDLE)),
        ("time of a greeting", time(served.greeting)),
        ("frame of a greeting", bytes(GREETING_BOUND as u64)),
        ("client's name for its host, and its version, in the log", format!("{} characters", session::LONGEST_NAME)),
        ("sessions", limits.sessions.to_string()),
        ("sessions of one address", limits.sessions_per_client.to_string()),
        ("request", bytes(REQUEST_BOUND as u64)),
        ("time for the rest of a request", time(served.message)),
        ("time for a client to read a reply, for each 64 KiB", time(served.message)),
        ("next request without a test", time(served.idle)),
        ("next request with a prepared test", time(served.prepared)),
        ("memory of all tests", bytes(limits.memory_bytes)),
        ("buffers of a test at an end", bytes(limits.buffer_bytes)),
        ("flows of a test", limits.flows.to_string()),
        ("quic: connections of a flow", quic::MOST_CONNECTIONS.to_string()),
        ("quic: silence of a connection", time(quic::IDLE)),
        ("quic: bytes that wait for a connection to be accepted", bytes(quic::INCOMING_BYTES)),
        ("quic: bytes that wait for connections to be accepted, of a flow", bytes(quic::INCOMING_BYTES_IN_ALL)),
        ("quic: window of a connection", format!("at most {}", bytes(*WINDOW.end()))),
        ("length of a test, phases included", time(Duration::from_nanos(limits.duration_ns))),
        ("busy time of a rank before an exchange", time(Duration::from_nanos(MOST_COMPUTE_NS))),
        ("interval readings of a test, flows × intervals", limits.interval_readings.to_string()),
        ("interval", minimum(admission::SHORTEST_INTERVAL_NS / 1_000_000, "ms")),
        ("histograms of the intervals in a report", bytes(KEPT_BYTES as u64)),
        ("kernel's counters of the intervals in a report", bytes(KEPT_BYTES as u64)),
        ("data port that a test names", minimum(admission::LOWEST_PORT.into(), "")),
        ("own addresses of an end", admission::MOST_ADDRESSES.to_string()),
        ("unproven data connections of a test", connection::CANDIDATES.to_string()),
        ("time to connect a test", time(session::LONGEST_CONNECT)),
        ("start ahead of time", time(session::LONGEST_LEAD)),
        ("end of a test after its time", time(served.grace)),
        ("draining of the data in flight", time(Duration::from_nanos(sampler::DRAIN_NS))),
        ("freeing of blocked data threads", time(Duration::from_nanos(sampler::LEAVE_NS))),
        ("silence of a client during a test without a known length", time(KEEPALIVE)),
        ("remembered loads of other clients", budget::MOST_SPANS.to_string()),
        ("destinations of a near end and of datagrams", "the client and the daemon's own address".to_owned()),
        ("files that a test may read", "none".to_owned()),
        ("certificate of a test, with its chain and key", bytes(certificate::MOST_BYTES as u64)),
        ("programs (hooks)", "none".to_owned()),
        ("clients that wait for a turn", (limits.sessions - 1).to_string()),
        ("time of a program", time(Duration::from_nanos(limits.duration_ns))),
        ("end of a program that was asked to end", time(child::GRACE)),
        ("output of a program, of each stream", bytes(Execute::OUTPUT_BOUND as u64)),
        ("client: connecting and greeting", time(asked.connect)),
        ("client: answer to a request", time(asked.reply)),
        ("client: comparison of clocks", format!("{PROBES} answers")),
        ("client: data connections", time(asked.ready)),
        ("client: end of a test after its time", time(asked.grace)),
        ("client: turn of tests", time(asked.turn)),
        ("client: test that stops by a count", time(asked.counted)),
        ("client: rest of a report, for each 64 KiB", time(asked.grace)),
        ("client: reply", bytes(REPLY_BOUND as u64)),
        ("client: report of an end", format!("at most {}", bytes(ReportBuilder::BOUND as u64))),
        ("client: report of a rank", bytes(client::ranks::REPORT_BYTES as u64)),
        ("client: text of a daemon", format!("{} characters", foreign::LONGEST_TEXT)),
        ("client: notes in a report", foreign::MOST_SENTENCES.to_string()),
        ("client: messages before its stop flag and deadlines are looked at", client::MESSAGES_A_TURN.to_string()),
    ]
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 3600 && seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

fn bytes(bytes: u64) -> String {
    [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(bits, _)| bytes.trailing_zeros() >= *bits)
        .map_or_else(|| format!("{bytes} bytes"), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

/// The rows about long messages name this many bytes.
const _: () = assert!(PROGRESS == 64 << 10, "docs/reference/protocol.md and the rows above say 64 KiB");

/// Rows about the log and about turns: the program decides, and its tests hold the page to them.
const OF_THE_PROGRAM: [&str; 5] = [
    "log lines about connections without a session, of each kind",
    "log lines about sessions and tests, of each kind",
    "text of a client in a log line",
    "arguments of a program in a log line",
    "wait for a turn, and time from a turn to the load",
];

#[test]
fn the_table_of_bounds_is_that_of_the_code() {
    let page = include_str!("../../../docs/reference/protocol.md");
    let (_, section) = page.split_once("\n## Bounds\n").unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let row = |line: &str| {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        (cells[1].clone(), cells[2].clone())
    };
    let rows: BTreeSet<_> = lines.take_while(|line| line.starts_with('|')).map(row).collect();
    let (others, rows): (BTreeSet<_>, _) =
        rows.into_iter().partition(|(name, _)| OF_THE_PROGRAM.contains(&name.as_str()));
    assert_eq!(others.len(), OF_THE_PROGRAM.len());
    let expected = bounds().into_iter().map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    assert_eq!(rows, expected.collect::<BTreeSet<_>>());
}
