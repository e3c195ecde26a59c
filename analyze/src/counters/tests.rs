//! Pairs of snapshots: captured on a machine (around a second of iperf3, pings and datagrams to a closed port), and
//! written after the documentation of the formats.

use super::{
    Format, Options, Snapshot, Value,
    diff::{self, Change, Note, Settings},
    render::{self, Wanted},
};
use proptest::prelude::*;

macro_rules! pair {
    ($stem:literal, $ext:literal) => {
        (
            include_str!(concat!("../../tests/fixtures/counters/", $stem, ".before.", $ext)),
            include_str!(concat!("../../tests/fixtures/counters/", $stem, ".after.", $ext)),
        )
    };
}

fn read(text: &str) -> Snapshot<'_> {
    Snapshot::read("test", text, &Options::default()).expect("a snapshot")
}

fn with<T>(pair: (&str, &str), look: impl FnOnce(Format, &[Change<'_>]) -> T) -> T {
    let (before, after) = (read(pair.0), read(pair.1));
    assert_eq!(before.format, after.format);
    let changes = diff::differences(&before, &after, &Settings::default()).expect("differences");
    look(after.format, &changes)
}

fn text(pair: (&str, &str), wanted: &Wanted) -> String {
    let (before, after) = (read(pair.0), read(pair.1));
    let changes = diff::differences(&before, &after, &Settings::default()).expect("differences");
    render::text(&after, &changes, wanted, None)
}

fn find<'c, 'a>(changes: &'c [Change<'a>], source: &str, key: &str) -> &'c Change<'a> {
    let found = changes.iter().find(|c| c.source == source && c.key == key);
    found.unwrap_or_else(|| panic!("no {key} of {source} in {:?}", changes.iter().map(|c| &c.key).collect::<Vec<_>>()))
}

fn delta(changes: &[Change<'_>], source: &str, key: &str) -> Option<Value> {
    find(changes, source, key).delta
}

const SENT: Option<Value> = Some(Value::Whole(155_804));

#[test]
fn one_truth_in_six_formats() {
    with(pair!("netstat-s", "txt"), |format, c| {
        assert_eq!(format, Format::NetstatS);
        assert_eq!(delta(c, "netstat-s", "Tcp: segments sent out"), SENT);
        // The same words under two headings, and a plural.
        assert_eq!(delta(c, "netstat-s", "Icmp: ICMP input histogram: destination unreachable"), Some(Value::Whole(7)));
        let output = find(c, "netstat-s", "Icmp: ICMP output histogram: destination unreachable");
        assert_eq!((output.delta, output.note), (Some(Value::Whole(7)), Note::New));
        assert_eq!(find(c, "netstat-s", "Ip: Forwarding").note, Note::Gauge);
        assert!(c.iter().all(|c| c.delta.is_some() || c.note == Note::Gauge));
    });
    with(pair!("snmp", "txt"), |format, c| {
        assert_eq!(format, Format::Snmp);
        assert_eq!(delta(c, "snmp", "TcpOutSegs"), SENT);
        // The kernel leaves out ICMP types that never occurred.
        assert_eq!(delta(c, "snmp", "IcmpMsgOutType3"), Some(Value::Whole(7)));
        assert_eq!(find(c, "snmp", "TcpMaxConn").note, Note::Gauge);
    });
    with(pair!("nstat", "txt"), |format, c| {
        assert_eq!((format, delta(c, "nstat", "TcpOutSegs")), (Format::Nstat, SENT));
        assert_eq!(delta(c, "nstat", "IpExtInOctets"), Some(Value::Whole(4_293_440_198)));
    });
    with(pair!("nstat-json", "json"), |format, c| {
        assert_eq!((format, delta(c, "nstat-json", "TcpOutSegs")), (Format::NstatJson, SENT));
        // nstat printed 98689526 for 4393656822: an unknown difference is better than a wrong one.
        let octets = find(c, "nstat-json", "IpExtInOctets");
        assert_eq!((octets.delta, octets.note), (None, Note::Reset));
    });
    let bytes = Some(Value::Whole(4_293_440_344));
    with(pair!("dev", "txt"), |format, c| {
        assert_eq!((format, delta(c, "dev:lo", "rx_bytes")), (Format::Dev, bytes));
    });
    with(pair!("ip-json", "json"), |format, c| {
        assert_eq!((format, delta(c, "ip-json:lo", "stats64.tx.bytes")), (Format::IpJson, bytes));
        assert_eq!(find(c, "ip-json:lo", "mtu").note, Note::Gauge);
    });
    with(pair!("ip-text", "txt"), |format, c| {
        assert_eq!(format, Format::Text);
        // The second line of numbers below `lo`: its indentation changed with the width of its numbers.
        assert!(c.iter().any(|c| c.key.contains("lo: ") && c.key.contains("TX: bytes") && c.delta == bytes));
        assert!(c.iter().all(|c| c.delta.is_some() || c.note == Note::Gauge));
    });
    with(pair!("ifconfig", "txt"), |_, c| {
        assert_eq!(c.iter().filter(|c| c.delta == bytes).count(), 2);
        assert!(c.iter().all(|c| c.delta.is_some() || c.note == Note::Gauge));
    });
}

#[test]
fn per_cpu_files_add_up() {
    with(pair!("softnet", "txt"), |format, c| {
        assert_eq!(format, Format::Softnet);
        assert_eq!(delta(&diff::folded(c, false, false), "softnet", "processed"), Some(Value::Whole(155_867)));
        assert_eq!(c.iter().filter(|c| c.key == "processed").count(), 2);
    });
    with(pair!("softirqs", "txt"), |format, c| {
        assert_eq!(format, Format::Softirqs);
        assert_eq!(delta(&diff::folded(c, false, false), "softirqs", "NET_RX"), Some(Value::Whole(153_609)));
    });
    with(pair!("interrupts", "txt"), |format, c| {
        assert_eq!(format, Format::Interrupts);
        assert_eq!(delta(&diff::folded(c, false, false), "interrupts", "LOC"), Some(Value::Whole(32_090)));
        assert_eq!(delta(&diff::folded(c, false, false), "interrupts", "42 virtio3-tx"), Some(Value::Whole(2)));
    });
}

#[test]
fn the_other_captures_are_told_apart() {
    for (pair, wanted) in [
        (pair!("netstat", "txt"), Format::Snmp),
        (pair!("snmp6", "txt"), Format::Snmp6),
        (pair!("vmstat", "txt"), Format::KeyValue),
        (pair!("ethtool", "txt"), Format::Ethtool),
        (pair!("stat", "txt"), Format::Text),
    ] {
        with(pair, |format, _| assert_eq!(format, wanted));
    }
    with(pair!("vmstat", "txt"), |_, c| {
        assert_eq!(find(c, "key-value", "nr_free_pages").note, Note::Gauge);
        assert_eq!(delta(c, "key-value", "numa_hit"), Some(Value::Whole(140_543)));
    });
}

#[test]
fn the_text_keeps_its_words_and_its_columns() {
    let shown = text(pair!("netstat-s", "txt"), &Wanted::default());
    assert!(shown.contains("\nTcp:\n    3 active connection openings\n"), "{shown}");
    assert!(shown.contains("    Quick ack mode was activated 6 times\n"), "{shown}");
    let (_, after) = pair!("dev", "txt");
    let shown = text(pair!("dev", "txt"), &Wanted::default());
    for (new, old) in shown.lines().zip(after.lines()) {
        assert_eq!(new.len(), old.len(), "{new}");
    }
    let shown = text(pair!("softnet", "txt"), &Wanted::default());
    assert!(shown.starts_with("00015253 00000000 "), "{shown}");
    let shown = text(pair!("vmstat", "txt"), &Wanted::default());
    assert!(shown.starts_with("nr_free_pages 887553 (was 894599)\n"), "{shown}");
}

#[test]
fn unwanted_lines_go_with_their_names() {
    let wanted = Wanted { keys: Some(regex::Regex::new("RetransSegs").unwrap()), ..Wanted::default() };
    let shown = text(pair!("snmp", "txt"), &wanted);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.starts_with("Tcp: RtoAlgorithm ") && shown.ends_with(" 9 0 1 0\n"), "{shown}");
    let wanted = Wanted { nonzero: true, ..Wanted::default() };
    let shown = text(pair!("softirqs", "txt"), &wanted);
    assert!(!shown.contains("IRQ_POLL") && shown.contains("NET_RX") && !shown.contains("\n\n"), "{shown}");
}

#[test]
fn interfaces_and_cpus_come_and_go() {
    const HEAD: &str = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n";
    let before = format!("{HEAD}  lo: 10 1 10 1\nveth0: 900 9 900 9\n");
    let after = format!("{HEAD}veth1: 50 5 60 6\n  lo: 30 3 30 3\n");
    with((&before, &after), |_, c| {
        assert_eq!(delta(c, "dev:lo", "rx_bytes"), Some(Value::Whole(20)));
        let new = find(c, "dev:veth1", "tx_packets");
        assert_eq!((new.delta, new.note), (None, Note::New));
        assert_eq!(find(c, "dev:veth0", "tx_packets").note, Note::Gone);
    });
    let shown = text((&before, &after), &Wanted::default());
    assert!(shown.contains("veth1: new new new new\n") && shown.contains("  lo: 20 2 20 2\n"), "{shown}");

    let (before, after) = ("     CPU0 CPU1\nRES: 5 7\n", "     CPU0 CPU2\nRES: 6 1\n");
    with((before, after), |_, c| {
        assert_eq!(c[0].delta, Some(Value::Whole(1)));
        // A sum is unknown where one of its parts is.
        let folded = diff::folded(c, false, false);
        assert_eq!((folded[0].delta, folded[0].note), (None, Note::Gone));
    });
}

#[test]
fn a_line_that_repeats_is_counted_from_the_top() {
    let before = "a:\n  1 drop\n  10 drops\nb:\n  1 drop\n";
    let after = "new:\n  7 drops\na:\n  2 drops\n  12 drops\nb:\n  4 drops\n";
    with((before, after), |_, c| {
        let deltas: Vec<_> = c.iter().map(|c| c.delta).collect();
        assert_eq!(deltas, [None, Some(Value::Whole(1)), Some(Value::Whole(2)), Some(Value::Whole(3))]);
    });
}

#[test]
fn a_key_that_repeats_pairs_with_the_next_or_the_first_that_is_left() {
    let before = "a: 1\nb: 2\na: 10\n";
    let after = "b: 2\na: 11\na: 3\na: 9\n";
    with((before, after), |_, c| {
        let deltas: Vec<_> = c.iter().map(|c| c.delta).collect();
        assert_eq!(deltas, [Some(Value::Whole(0)), Some(Value::Whole(1)), Some(Value::Whole(2)), None]);
    });
    with((after, before), |_, c| assert_eq!(c.iter().filter(|c| c.note == Note::Gone).count(), 1));
}

#[test]
fn columns_that_a_new_kernel_adds_move_nothing() {
    let before = "Tcp: InSegs OutSegs\nTcp: 100 200\n";
    let after = "Tcp: InSegs Fresh OutSegs\nTcp: 150 7 260\n";
    with((before, after), |_, c| {
        assert_eq!(delta(c, "snmp", "TcpOutSegs"), Some(Value::Whole(60)));
        assert_eq!(find(c, "snmp", "TcpFresh").delta, None);
    });
}

#[test]
fn hardware_counters_wrap_and_drivers_reset() {
    let before = "NIC statistics:\n     rx_bytes: 4294967000\n     tx_bytes: 5000000000\n     state: up\n";
    let after = "NIC statistics:\n     rx_bytes: 704\n     tx_bytes: 12\n     state: up\n";
    with((before, after), |format, c| {
        assert_eq!(format, Format::Ethtool);
        let wrapped = find(c, "ethtool", "rx_bytes");
        assert_eq!((wrapped.delta, wrapped.note), (Some(Value::Whole(1000)), Note::Wrapped));
        let reset = find(c, "ethtool", "tx_bytes");
        assert_eq!((reset.delta, reset.note), (None, Note::Reset));
    });
    let shown = text((before, after), &Wanted::default());
    assert!(shown.contains("rx_bytes: 1000\n") && shown.contains("tx_bytes: reset\n"), "{shown}");
}

#[test]
fn queues_are_added_up_on_request() {
    let before = "NIC statistics:\n rx_queue_0_bytes: 1\n rx_queue_1_bytes: 2\n rx_bytes: 3\n";
    let after = "NIC statistics:\n rx_queue_0_bytes: 11\n rx_queue_1_bytes: 22\n rx_bytes: 33\n";
    with((before, after), |_, c| {
        let folded = diff::folded(c, false, true);
        assert_eq!(folded.len(), 2);
        assert_eq!(delta(&folded, "ethtool", "rx_queue_*_bytes"), Some(Value::Whole(30)));
    });
}

#[test]
fn json_by_path_and_name() {
    let before = r#"{"nics": [{"name": "a", "rx": 1}, {"name": "b", "rx": 10, "load": 0.25}], "up": true}"#;
    let after = r#"{"nics": [{"name": "b", "rx": 15, "load": 0.75}, {"name": "a", "rx": 3}], "up": true}"#;
    with((before, after), |format, c| {
        assert_eq!(format, Format::Json);
        assert_eq!(delta(c, "json", "nics.a.rx"), Some(Value::Whole(2)));
        assert_eq!(delta(c, "json", "nics.b.rx"), Some(Value::Whole(5)));
    });
    let shown = text((before, after), &Wanted::default());
    assert_eq!(shown.trim(), after.replace("15", "5").replace("0.75", "0.50").replace("3}", "2}"));
    let ethtool = (
        r#"[ { "ifname": "eth0", "rx_packets": 4, "eth-phy": { "SymbolErrorDuringCarrier": 0 } } ]"#,
        r#"[ { "ifname": "eth0", "rx_packets": 9, "eth-phy": { "SymbolErrorDuringCarrier": 2 } } ]"#,
    );
    with(ethtool, |format, c| {
        assert_eq!(format, Format::EthtoolJson);
        assert_eq!(delta(c, "ethtool-json:eth0", "eth-phy.SymbolErrorDuringCarrier"), Some(Value::Whole(2)));
    });
}

#[test]
fn many_interfaces_are_found_by_name() {
    // A search through the list for each would take minutes.
    let nics = |add: u64| {
        let one = |i: u64| format!("{{\"ifname\":\"eth{i}\",\"stats64\":{{\"rx\":{{\"bytes\":{}}}}}}}", i * 9 + add);
        format!("[{}]", (0..40_000).map(one).collect::<Vec<_>>().join(","))
    };
    with((&nics(0), &nics(7)), |_, c| {
        assert_eq!(c.len(), 40_000);
        assert!(c.iter().all(|c| c.delta == Some(Value::Whole(7))));
    });
}

#[test]
fn openmetrics_by_series() {
    let before = "# TYPE http_requests counter\nhttp_requests_total{code=\"200\",method=\"get\"} 1027 1395066363000\n\
                  # TYPE temperature gauge\ntemperature 20.5\n\
                  # TYPE rpc histogram\nrpc_bucket{le=\"0.1\"} 5\nrpc_sum 1.25\n# EOF\n";
    let after = "# TYPE http_requests counter\nhttp_requests_total{method=\"get\",code=\"200\"} 1030 1395066366000\n\
                 # TYPE temperature gauge\ntemperature 19.5\n\
                 # TYPE rpc histogram\nrpc_bucket{le=\"0.1\"} 9\nrpc_sum 2.5 # {a=\"b\"} 1\nodd_total{x=\"a } b\"} NaN\n# EOF\n";
    with((before, after), |format, c| {
        assert_eq!(format, Format::Openmetrics);
        assert_eq!(delta(c, "openmetrics", "http_requests_total{code=\"200\",method=\"get\"}"), Some(Value::Whole(3)));
        assert_eq!(find(c, "openmetrics", "temperature").note, Note::Gauge);
        assert_eq!(delta(c, "openmetrics", "rpc_bucket{le=\"0.1\"}"), Some(Value::Whole(4)));
        assert_eq!(delta(c, "openmetrics", "rpc_sum"), Some(Value::Real(1.25, 2)));
    });
}

#[test]
fn csv_by_its_text_columns() {
    let before = "nic,dir,bytes,\"pack,ets\"\neth0,rx,100,1\neth0,tx,200,2\n";
    let after = "nic,dir,bytes,\"pack,ets\"\neth0,tx,260,3\n\"eth0\",rx,130,\"5\"\n";
    with((before, after), |format, c| {
        assert_eq!(format, Format::Csv);
        assert_eq!(delta(c, "csv", "eth0 rx bytes"), Some(Value::Whole(30)));
        assert_eq!(delta(c, "csv", "eth0 tx pack,ets"), Some(Value::Whole(1)));
    });
}

#[test]
fn bad_snapshots_are_named_with_their_line() {
    for (text, line, reason) in [
        ("", 0, "empty"),
        ("Tcp: A B\nTcp: 1 2\nUdp: A B C\nUdp: 1 2\n", 4, "3 names and 2 values"),
        ("Tcp: A\nTcp: 1\nUdp: A\n", 3, "no line of values"),
        ("{\"a\": 1,\n \"b\": }", 2, "expected value"),
        ("{\"a\":\n 99999999999999999999999}", 2, "not fit 64 bits"),
        ("a,b\nx,1\ny\n", 3, "1 fields"),
        ("a,a\nx,1\n", 1, "twice"),
        ("nic,rx\neth0,1\nnic,rx\neth0,2\n", 3, "a second header"),
        ("nic,\"rx\"\neth0,1\n\"nic\",rx\neth0,2\n", 3, "a second header"),
        ("nic,rx\neth0,1\nnic,tx\neth0,2\n", 1, "no column has a number in every row"),
        ("NIC statistics:\n a: 1\nrubbish\n", 3, "expected `name: value`"),
        ("   CPU0 CPU1\nLOC: 1 2\nRES: 1 x\n", 3, "1 counts for 2 CPUs"),
        ("Inter-| Receive | Transmit\n face |bytes|bytes\n lo: 1 2 3\n", 3, "3 values under 2 columns"),
    ] {
        let error = Snapshot::read("f", text, &Options::default()).map(|s| s.format).expect_err(text);
        let message = error.to_string();
        let place = if line == 0 { "f: ".to_owned() } else { format!("f:{line}") };
        assert!(message.starts_with(&place) && message.contains(reason), "{message}");
        assert_eq!(error.exit_code(), 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_makes_a_reader_panic(text in "(?s).{0,400}", format in 0usize..17) {
        use clap::ValueEnum as _;
        let format = Format::value_variants().get(format).copied();
        for format in [None, format] {
            if let Ok(s) = Snapshot::read("f", &text, &Options { format, ..Options::default() }) {
                let changes = diff::differences(&s, &s, &Settings::default()).unwrap();
                prop_assert!(changes.iter().all(|c| c.delta.is_none_or(Value::is_zero)));
                render::text(&s, &changes, &Wanted::default(), None);
            }
        }
    }

    #[test]
    fn no_change_to_a_real_text_makes_a_reader_panic(at in 0.0f64..1.0, cut in 0usize..30, paste in "[0-9a-z:{},\" \\n|-]{0,8}") {
        for text in [pair!("netstat-s", "txt").0, pair!("dev", "txt").0, pair!("ip-json", "json").0, pair!("softnet", "txt").0,
                     pair!("interrupts", "txt").0, pair!("snmp", "txt").0, pair!("nstat", "txt").0, pair!("ethtool", "txt").0] {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short text")]
            let from = (text.len() as f64 * at) as usize;
            let to = (from + cut).min(text.len());
            let (head, tail) = (&text[..from], &text[to..]);
            let changed = format!("{head}{paste}{tail}");
            if let (Ok(old), Ok(new)) = (
                Snapshot::read("f", text, &Options::default()),
                Snapshot::read("f", &changed, &Options::default()),
            )
                && old.format == new.format {
                    let changes = diff::differences(&old, &new, &Settings::default()).unwrap();
                    let wanted = Wanted { nonzero: true, ..Wanted::default() };
                    render::text(&new, &changes, &wanted, None);
                }
        }
    }

    #[test]
    fn differences_are_right_whatever_the_order(values in proptest::collection::btree_map("[a-z]{1,8}", (0u64..1 << 40, 0u64..1 << 40), 1..20), turn in 0usize..20) {
        let line = |(k, v): (&String, u64)| format!("c{k}_total {v}\n");
        let before: String = values.iter().map(|(k, (v, _))| line((k, *v))).collect();
        let mut lines: Vec<String> = values.iter().map(|(k, (v, d))| line((k, v + d))).collect();
        let turn = turn % lines.len();
        lines.rotate_left(turn);
        let after: String = lines.concat();
        let (b, a) = (read(&before), read(&after));
        let changes = diff::differences(&b, &a, &Settings::default()).unwrap();
        for (key, (_, d)) in &values {
            let change = changes.iter().find(|c| c.key == format!("c{key}_total")).unwrap();
            prop_assert_eq!(change.delta, Some(Value::Whole(i128::from(*d))));
        }
    }
}

#[test]
fn the_header_is_made_of_columns_of_the_counters_table() {
    let columns: Vec<&str> = schemas::columns::names(schemas::columns::counters::COUNTER_COLUMNS).collect();
    let ours: Vec<&str> = columns.into_iter().filter(|name| render::HEADER.contains(name)).collect();
    assert_eq!(ours, render::HEADER);
}
