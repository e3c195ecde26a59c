//! The content of frames: a daemon's from a client, and a client's from a daemon.

use std::{fmt::Debug, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::variants;
use crate::{
    client::{plausible::Frame, ranks},
    control::{
        clock::{ClockOffset, Probe},
        key::Key,
        message::{Greeting, Hello, Part, Reply, ReportBuilder, Request, report_pieces},
    },
    daemon::{
        Config,
        admission::{self, Addresses, Admitted},
    },
    foreign,
    measure::{envelope::Envelope, histogram},
    report::{ClockReading, RankReport, Report, SideReport},
    spec::{Pattern, Side, TestSpec, Transport},
};

/// The message of a kind that the bytes say: a text of their own, or a variant of one of the protocol's.
fn text(kind: &str, bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [b'{' | b'[' | b'"', ..] => bytes.to_vec(),
        _ => variants::message(kind, bytes).unwrap_or(Value::Null).to_string().into_bytes(),
    }
}

/// Reads a message, if it is one; then it must cross the wire unchanged.
fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(text: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(text).ok()?;
    let again = serde_json::to_vec(&message).expect("a message can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).expect("it was read before"), message);
    Some(message)
}

/// A client's messages, up to what a daemon does with them before it opens a socket or runs a program.
pub fn requests(bytes: &[u8]) {
    read::<Hello>(&text("greetings", bytes));
    let Some(request) = read::<Request>(&text("requests", bytes)) else { return };
    let (peer, local): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let strict = Config::default();
    let open = Config {
        key: Key::from_hex(&"07".repeat(32)),
        allow_hooks: true,
        allow_connect: vec!["0.0.0.0/0".parse().expect("a network")].into(),
        ..Config::default()
    };
    for config in [strict, open] {
        match &request {
            Request::Prepare(prepare) => {
                let (limits, part) = (&config.limits, &prepare.part);
                if let Ok(Admitted { bytes, flows, .. }) = admission::part(&config, part) {
                    let most =
                        if let Part::End { .. } = part { admission::most_bytes(limits) } else { limits.buffer_bytes };
                    assert!(bytes <= most, "{bytes} bytes");
                    assert!(flows <= limits.flows);
                    assert!(part.length_ns().is_none_or(|ns| ns <= limits.duration_ns));
                    assert!(admission::longest_counted(limits, part) <= limits.duration_ns);
                    assert!(if let Part::Rank { rank, ranks, .. } = part { rank < ranks } else { true });
                }
            }
            Request::Connect(connect) => {
                let spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
                let near = Part::End { spec: Box::new(spec), side: Side::Near };
                let _ = admission::connect(&config, Addresses { peer, local }, &near, &connect.peers);
            }
            Request::Execute(asked) => {
                let admitted = admission::program(&config, asked).is_ok();
                assert!(!admitted || config.allow_hooks && !asked.argv.is_empty());
            }
            _ => {}
        }
    }
}

/// A daemon's messages, up to the numbers that a client hands on.
pub fn replies(bytes: &[u8]) {
    read::<Greeting>(&text("greetings", bytes));
    match read::<Reply>(&text("replies", bytes)) {
        Some(Reply::Probed { arrived_ns, answered }) => {
            let received = ClockReading { monotonic_ns: 9_000, wall_ns: 1, ..ClockReading::default() };
            let sent = ClockReading { monotonic_ns: 5_000, ..received };
            let ours = Probe { sent, arrived_ns, answered, received };
            if let Some(clock) = ClockOffset::of(&mut Envelope::default(), &[ours]) {
                let later = clock.at(&answered, &ClockReading::between(&(received, answered), arrived_ns));
                let _ = (later.to_theirs(u64::MAX), later.to_ours(u64::MAX));
            }
        }
        Some(Reply::Report { text, last }) => drop(ReportBuilder::of_end(1, 1).add(&text, last)),
        _ => {}
    }
    let text = text("reports", bytes);
    read::<Report>(&text);
    // A client escapes texts while it reads; those that are escaped stay as they are.
    if let Ok(sent) = foreign::from_slice::<Report>(&text) {
        report(&sent);
    }
    histograms(&STANDARD.encode(bytes));
}

/// A report as a client takes it: from its pieces, against those of the others.
fn report(sent: &Report) {
    let most = || ReportBuilder::of_end(u32::MAX, u64::MAX);
    let mut builder = if let Report::End(_) = sent { most() } else { ReportBuilder::bounded(ranks::REPORT_BYTES) };
    let mut got = None;
    for piece in report_pieces(sent).expect("a report can be written") {
        if let Reply::Report { text, last } = piece {
            got = builder.add(&text, last).expect("it was read before");
        }
    }
    let got = got.expect("the last piece was there");
    assert_eq!(&got, sent);
    match got {
        Report::End(report) => of_end(&report),
        Report::Rank(report) => of_rank(&report),
    }
}

fn of_rank(got: &RankReport) {
    for lasted_ns in [0, u64::MAX] {
        let _ = ranks::contradiction(got, 0, lasted_ns);
    }
    histograms(&got.histogram);
}

fn of_end(got: &SideReport) {
    for transport in [Transport::Tcp, Transport::Udp] {
        let frame = Frame::of(&TestSpec::new(Pattern::Stream, transport));
        for lasted_ns in [0, u64::MAX] {
            let _ = frame.contradiction(got, Some(got), lasted_ns);
        }
    }
    let windows = got.phases.iter().chain(&got.intervals).flat_map(|window| &window.flows).chain(&got.totals);
    windows.flat_map(|flow| &flow.latencies).for_each(|latencies| histograms(&latencies.histogram));
}

/// A histogram as its readers use it.
fn histograms(text: &str) {
    let Some(mut histogram) = histogram::decode(text) else { return };
    histogram.auto(true);
    let mut all = histogram::empty();
    all.auto(true);
    let _ = all.add(&histogram).and_then(|()| all.add(&histogram));
    let _ = (all.value_at_quantile(0.99), all.min(), all.max(), all.mean(), all.stdev());
    assert!(histogram::decode(&histogram::encode(&all)).is_some());
}
