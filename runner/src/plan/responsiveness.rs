//! `workload: responsiveness`: latency under load, as the group of tests that it stands for.
//!
//! Probes on an idle path, then beside streams in each direction, then beside both at once, one phase after the other in one
//! group. The group is a part of the tree like one that a plan writes, so that everything else of a plan applies to it.

use std::time::Duration;

use schemas::units;

use super::{
    diagnostics::{BUILT_IN_SOURCE, Diagnostics, Span},
    keys::key,
    resolve,
    tree::{Entry, Node, Scalar, Value},
    workload::{Kind, Workload},
};

/// The load of a phase: the name of its member, and the direction of its streams.
const LOADS: [(&str, &str); 3] = [("upload", "forward"), ("download", "reverse"), ("both", "bidirectional")];

/// The probes of each phase, and their workloads. The group's last one decides how often a case is repeated.
const PROBES: [(&str, &str); 2] = [("udp", "udp_rr"), ("tcp", "tcp_rr")];

/// Keys of a test that are about the streams.
const OF_LOAD: [&str; 15] = [
    key::streams,
    key::threads,
    key::message_size,
    key::receive_size,
    key::rate,
    key::pacing,
    key::arrival,
    key::io,
    key::receive,
    key::buffers,
    key::remote_buffers,
    key::payload,
    key::integrity,
    key::ports,
    key::remote_ports,
];

/// Keys of a test that are about the probes.
const OF_PROBE: [&str; 4] = [key::request_size, key::response_size, key::inflight, key::reply_timeout];

/// The probes' rate: the draft's limit of probes per second (MPS). Probes without pauses would be a load themselves. They catch up with
/// nothing: a probe that left as soon as an answer came would go in step with a load that has the same round trip.
const PROBE_RATE: &str = "100/s";

/// Values where the plan has none: streams each way as in flent's rrul, the time that TCP takes to fill a path, and the draft's
/// interval.
const DEFAULTS: [(&str, &str); 3] = [(key::streams, "4"), (key::warmup, "2s"), (key::interval, "1s")];

/// Time between two phases, for the queue of the first to drain.
const GAP: Duration = Duration::from_secs(1);

/// Largest start skew: small beside the length of a phase, and many members start on few CPUs.
const MAX_SKEW: &str = "50ms";

/// Whether a test is of this workload.
pub fn is_of(test: &Node) -> bool {
    let named = test.get(key::workload).and_then(Node::text).and_then(|text| text.parse::<Workload>().ok());
    named.is_some_and(|workload| matches!(workload.kind, Kind::Responsiveness))
}

/// The test with its group spelled out. A group that the plan writes beside the workload is merged over it.
pub fn expanded(test: &Node, out: &mut Diagnostics) -> Node {
    let mut test = test.clone();
    let span = test.remove(key::workload).map_or_else(Span::default, |entry| entry.value.span);
    let word = |text: &str| Node { value: Value::Scalar(Scalar::plain(text)), span };
    // A phase shorter than an interval has none.
    let has_intervals = time(&test, key::duration) >= Duration::from_secs(1);
    for (key, value) in DEFAULTS.into_iter().filter(|(key, _)| *key != key::interval || has_intervals) {
        if test.get(key).is_none_or(|node| node.span.source == BUILT_IN_SOURCE) {
            test.set(key, word(value));
        }
    }
    for rule in [key::bytes, key::transactions] {
        if let Some(wrong) = test.entry(rule) {
            let help = "its phases follow each other in time: write `duration`";
            out.error(wrong.key_span, format!("`{rule}` cannot end a phase of responsiveness"), help);
        }
    }
    let direction = test.remove(key::direction);
    let chosen = direction.as_ref().and_then(|entry| entry.value.text());
    let loads: Vec<_> = LOADS.into_iter().filter(|(_, way)| chosen.is_none_or(|chosen| chosen == *way)).collect();
    if let (true, Some(entry)) = (loads.is_empty(), &direction) {
        let help = "forward, reverse or bidirectional; left out: each of them, in turn";
        out.error(entry.value.span, "responsiveness has no such direction", help);
    }
    if let (Some(hops), None) = (test.entry(key::hops), chosen) {
        let help = "add `direction`: the idle path is probed once, and routers answer too seldom for three loads";
        out.error(hops.key_span, "`hops` of responsiveness needs one direction", help);
    }
    let own_group = test.remove(key::concurrent);
    let one_way = test.remove(key::one_way);
    let mut taken = |keys: &[&str], workload: &str| {
        let mut body = Node::empty_map(span);
        body.set(key::workload, word(workload));
        // Built-in values are the engine's own.
        let written = |entry: &Entry| entry.value.span.source != BUILT_IN_SOURCE;
        for entry in keys.iter().filter_map(|key| test.remove(key)).filter(written) {
            body.set(&entry.key, entry.value);
        }
        body
    };
    let (stream, probe) = (taken(&OF_LOAD, "tcp_stream"), taken(&OF_PROBE, ""));
    let length = [key::warmup, key::duration, key::cooldown].into_iter().map(|key| time(&test, key)).sum::<Duration>();
    let step = length.saturating_add(GAP);
    let mut group = Node::empty_map(span);
    group.set("start.max_skew", word(MAX_SKEW));
    group.set("window", word("own"));
    let phases = std::iter::once(("idle", None)).chain(loads.into_iter().map(|(name, way)| (name, Some(way))));
    for (number, (phase, way)) in (0u32..).zip(phases) {
        let after = word(&format!("{}ms", step.saturating_mul(number).as_millis()));
        let mut add = |name: &str, mut body: Node| {
            if number > 0 {
                body.set(key::after, after.clone());
            }
            group.set(&format!("members.{name}"), body);
        };
        if let Some(way) = way {
            let mut load = stream.clone();
            load.set(key::direction, word(way));
            add(phase, load);
        }
        for (name, workload) in PROBES {
            let mut body = probe.clone();
            body.set(key::workload, word(workload));
            body.set(key::rate, word(PROBE_RATE));
            body.set("pacing.catch_up", word("0"));
            if let (Some(one_way), "udp") = (&one_way, name) {
                body.set(key::one_way, one_way.value.clone());
            }
            if way.is_some() {
                body.set(key::idle, word(&format!("idle-{name}")));
            }
            add(&format!("{phase}-{name}"), body);
        }
    }
    let group = own_group.map_or_else(|| group.clone(), |own| resolve::merge(group.clone(), &own.value));
    test.set(key::concurrent, group);
    test
}

/// The length that a key has; 0 where it has none, or a mistake that is reported where the key is read.
fn time(test: &Node, key: &str) -> Duration {
    test.get(key).and_then(Node::text).and_then(|text| units::parse_duration(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use netcore::spec::{Direction, Pattern};

    use crate::plan::{
        case::Plan,
        diagnostics::Format,
        load::{LoadOptions, load_str},
    };

    fn load(test: &str, sets: &[&str]) -> Result<Plan, String> {
        let plan = format!("version: 1\nname: t\ntests:\n  t: {{{test}}}\n");
        let options = LoadOptions { sets: sets.iter().map(|s| (*s).to_owned()).collect(), ..LoadOptions::default() };
        load_str("t.yaml", &plan, &options).map_err(|out| out.render(Format::Human))
    }

    fn good(test: &str) -> Plan {
        load(test, &[]).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn phases_follow_each_other_in_one_group() {
        let plan = good("workload: responsiveness, duration: 5s, streams: 8, request_size: 100");
        let case = &plan.cases[0];
        let members: Vec<_> = case
            .members
            .iter()
            .map(|m| (m.name.as_str(), m.after.as_secs(), m.spec().unwrap().streams, m.idle.as_deref().unwrap_or("")))
            .collect();
        assert_eq!(
            members,
            [
                ("idle-udp", 0, 1, ""),
                ("idle-tcp", 0, 1, ""),
                ("upload", 8, 8, ""),
                ("upload-udp", 8, 1, "idle-udp"),
                ("upload-tcp", 8, 1, "idle-tcp"),
                ("download", 16, 8, ""),
                ("download-udp", 16, 1, "idle-udp"),
                ("download-tcp", 16, 1, "idle-tcp"),
                ("both", 24, 8, ""),
                ("both-udp", 24, 1, "idle-udp"),
                ("both-tcp", 24, 1, "idle-tcp"),
            ]
        );
        let of = |name: &str| case.members.iter().find(|m| m.name == name).unwrap().spec().unwrap();
        assert_eq!(
            (of("both").direction, of("upload-tcp").pattern),
            (Direction::Bidirectional, Pattern::RequestResponse)
        );
        assert_eq!(of("download-udp").sizes.request_bytes, 100);
        assert_eq!(case.estimate().least.as_millis(), (3 * 8 + 7) * 1000 + 100);
        assert!(!case.group.as_ref().unwrap().has_total && plan.warnings.sentences().is_empty());
    }

    #[test]
    fn probes_over_udp_tell_the_directions_apart_on_request() {
        let plan = good("workload: responsiveness, duration: 3s, direction: bidirectional, one_way: true");
        let told: Vec<_> = plan.cases[0].members.iter().filter(|m| m.spec().unwrap().one_way).collect();
        assert_eq!(told.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["idle-udp", "both-udp"]);
        assert_eq!(told[0].spec().unwrap().sizes.response_bytes, 64);
    }

    #[test]
    fn it_is_the_group_that_it_stands_for() {
        let written = "warmup: 2s, interval: 1s, duration: 3s, concurrent: {window: own, start: {max_skew: 50ms}, members: \
            {idle-udp: {workload: udp_rr, rate: 100/s, pacing: {catch_up: 0}}, idle-tcp: {workload: tcp_rr, rate: 100/s, pacing: {catch_up: 0}}, upload: {workload: tcp_stream, streams: 4, after: 6s}, \
            upload-udp: {workload: udp_rr, rate: 100/s, pacing: {catch_up: 0}, after: 6s, idle: idle-udp}, upload-tcp: {workload: tcp_rr, rate: 100/s, pacing: {catch_up: 0}, after: 6s, idle: idle-tcp}}}";
        let short = "workload: responsiveness, duration: 3s, direction: forward";
        assert_eq!(good(short).cases[0].id, good(written).cases[0].id);
    }

    #[test]
    fn keys_of_a_test_apply() {
        let plan =
            good("workload: responsiveness, matrix: {streams: [1, 2], duration: [4s, 9s], direction: [reverse]}");
        let of =
            |case: usize| (plan.cases[case].members[2].after.as_secs(), plan.cases[case].members[2].spec().unwrap());
        assert_eq!((plan.cases.len(), of(0).0, of(3).0), (4, 7, 12));
        assert_eq!((of(0).1.streams, of(3).1.streams), (1, 2));
        let sets = ["streams=3", "tests.t.concurrent.members.upload-tcp.inflight=2", "duration=1s"];
        let plan = load("workload: responsiveness, direction: forward", &sets).unwrap();
        let streams: Vec<u32> = plan.cases[0].members.iter().map(|m| m.spec().unwrap().streams).collect();
        assert_eq!(streams, [1, 1, 3, 1, 1], "a probe has one connection");
        assert_eq!(plan.cases[0].members[4].spec().unwrap().inflight, 2);
        assert_eq!(plan.cases[0].members[2].after.as_secs(), 4);
    }

    #[test]
    fn a_phase_shorter_than_a_second_has_no_intervals() {
        let interval = |duration: &str| {
            let plan = good(&format!("workload: responsiveness, duration: {duration}"));
            plan.cases[0].members[2].spec().unwrap().phases.interval_ns
        };
        assert_eq!((interval("900ms"), interval("1s")), (0, 1_000_000_000));
    }

    #[test]
    fn what_it_cannot_be_is_said() {
        for (test, words) in [
            ("workload: responsiveness, bytes: 1GB", "cannot end a phase"),
            ("workload: responsiveness, direction: duplex", "no such direction"),
            ("workload: responsiveness, warmup: auto", "cannot end by itself"),
            ("workload: responsiveness, duration: 300s", "armed 540 s ahead"),
            ("concurrent: {members: {a: {workload: tcp_rr, idle: b}, c: {workload: tcp_rr}}}", "unknown member `b`"),
            ("concurrent: {members: {a: {workload: tcp_rr, idle: b}, b: {workload: tcp_stream}}}", "no round trips"),
            ("concurrent: {members: {a: {workload: tcp_rr, idle: a}}}", "a baseline of itself"),
            ("workload: tcp_rr, idle: a", "for members of a group"),
        ] {
            let error = load(test, &[]).err().unwrap_or_else(|| panic!("{test} is accepted"));
            assert!(error.contains(words), "{test}: {error}");
        }
    }
}
