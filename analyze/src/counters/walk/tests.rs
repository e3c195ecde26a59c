//! Random pairs of texts of every format, part by part and all at once: the same rows, texts, losses and errors.

use proptest::prelude::*;

use super::*;
use crate::counters::Format;
use crate::counters::diff::Missing;
use crate::counters::losses::Losses;
use crate::counters::render::{self, Wanted};

macro_rules! captured {
    ($($stem:literal . $ext:literal),* $(,)?) => {
        [$((
            include_str!(concat!("../../../tests/fixtures/counters/", $stem, ".before.", $ext)),
            include_str!(concat!("../../../tests/fixtures/counters/", $stem, ".after.", $ext)),
        )),*]
    };
}

/// What the captures do not have: several devices, repeated names, short counters that come round, odd lines.
const WRITTEN: &[&str] = &[
    "NIC statistics:\n rx: 4294967290\n tx: 5\n state: up\n rx: 7\nStandard stats for eth0:\n tx-0: 18446744073709551615\n q: 9\n",
    "   CPU0 CPU3\n 1: 5 7 chip 2-edge eth0\n 2:  100  200 chip eth1\nLOC:   1   2   Local\nERR: 3\n 1: 6 8 chip eth0\n",
    "00000001 00000000 0000000a 00000000 00000000 00000000 00000000 00000000 00000000\n\
     00000002 00000000 0000000b 00000000 00000000 00000000 00000000 00000000 00000000\n",
    "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n  lo: 10 1 10 1\n a:1: 900   9   0   9\n a: 5 0 0 0\n\
     \n b: 007 0 0 0\n a: 1 2 3 4\n",
    "Ip: Forwarding InReceives\nIp: 1 700\n\nExt: A A B\nExt: 1 2 3\nExt: C\nExt: 9\n  \nExt: A\nExt: 4\n",
    "a: 1\nnr_b 17\nc -5\na: 2\nd 2.50\ne 99\n\nf 12345678901234567890\n",
    "{\"nics\": [\n{\"name\": \"a\", \"rx\": 1},\n{\"name\": \"b\", \"rx\": 10}\n],\n\"load\": 0.25}\n",
    "[ {\n \"ifname\": \"eth0\",\n \"rx\": 4,\n \"phy\": {\n \"bad\": 0\n } },\n { \"ifname\": \"eth1\",\n \"rx\": 7\n } ]\n",
    "# TYPE a counter\na_total{x=\"1\"} 7\na_total{x=\"2\"} 8.5\n# TYPE t gauge\nt 20.5\nother 3\na_total{x=\"1\"} 9\n# EOF\n",
    "nic,dir,bytes,packets\neth0,rx,100,1\neth0,tx,200,2\neth1,rx,300,3\n",
];

fn pairs() -> Vec<(&'static str, &'static str)> {
    let captured = captured![
        "dev"."txt", "ethtool"."txt", "ifconfig"."txt", "interrupts"."txt", "ip-json"."json", "ip-text"."txt",
        "netstat-s"."txt", "netstat"."txt", "nstat-json"."json", "nstat"."txt", "snmp"."txt", "snmp6"."txt",
        "softirqs"."txt", "softnet"."txt", "stat"."txt", "vmstat"."txt",
    ];
    captured.into_iter().chain(WRITTEN.iter().map(|text| (*text, *text))).collect()
}

/// A change to one of the texts, at some of its lines.
#[derive(Clone, Debug)]
enum Edit {
    Drop(usize),
    Repeat(usize, usize),
    Swap(usize, usize),
    Cut(usize, usize),
    Insert(usize, &'static str),
    /// Other digits for those from a place in the line on.
    Count(usize, usize, u64),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let (line, other) = (0usize..1000, 0usize..1000);
    let edit = prop_oneof![
        1 => line.clone().prop_map(Edit::Drop),
        1 => (line.clone(), other.clone()).prop_map(|(a, b)| Edit::Repeat(a, b)),
        1 => (line.clone(), other).prop_map(|(a, b)| Edit::Swap(a, b)),
        1 => (line.clone(), 0usize..40).prop_map(|(a, b)| Edit::Cut(a, b)),
        1 => (line.clone(), prop::sample::select(vec!["", " ", "x: 1", "x 1", "Ext: 5", "# note"]))
            .prop_map(|(a, b)| Edit::Insert(a, b)),
        6 => (line, 0usize..60, prop_oneof![0u64..200, Just(4_294_967_200u64), any::<u64>()])
            .prop_map(|(a, b, c)| Edit::Count(a, b, c)),
    ];
    prop::collection::vec(edit, 0..4)
}

fn edited(text: &str, edits: &[Edit], crlf: bool, ends: bool) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits {
        if lines.is_empty() {
            break;
        }
        let count = lines.len();
        match *edit {
            Edit::Drop(at) => drop(lines.remove(at % count)),
            Edit::Repeat(at, to) => lines.insert(to % count, lines[at % count].clone()),
            Edit::Swap(at, with) => lines.swap(at % count, with % count),
            Edit::Cut(at, to) => {
                let line = &mut lines[at % count];
                line.truncate(line.char_indices().nth(to).map_or(line.len(), |(end, _)| end));
            }
            Edit::Insert(at, line) => lines.insert(at % count, line.to_owned()),
            Edit::Count(at, from, number) => {
                let line = &mut lines[at % count];
                if let Some(start) = line.bytes().enumerate().skip(from).find(|(_, b)| b.is_ascii_digit()) {
                    let len = line.bytes().skip(start.0).take_while(u8::is_ascii_digit).count();
                    line.replace_range(start.0..start.0 + len, &number.to_string());
                }
            }
        }
    }
    let mut text = lines.join(if crlf { "\r\n" } else { "\n" });
    if ends {
        text.push('\n');
    }
    text
}

/// Everything that is to be the same: rows, text, what was lost.
#[derive(Debug, PartialEq)]
struct Seen {
    rows: Vec<String>,
    text: String,
    losses: Option<String>,
}

fn rows(differences: &Differences<'_>) -> Vec<String> {
    differences.iter().map(|change| format!("{change:?}")).collect()
}

fn in_parts(before: &str, after: &str, settings: &Settings, wanted: &Wanted, bytes: usize) -> Result<Seen, String> {
    let parts = walk(("b", before), ("a", after), &Options::default(), settings, bytes, |differences| {
        let (mut page, mut losses) = (Vec::new(), Losses::default());
        render::text(&mut page, differences, wanted, None, |change| losses.look(change));
        Ok((rows(differences), page, losses))
    });
    let mut all = Losses::default();
    let (mut found, mut text) = (Vec::new(), Vec::new());
    for (rows, page, losses) in parts.map_err(|e| e.to_string())? {
        found.extend(rows);
        text.extend(page);
        all.append(losses);
    }
    let losses = all.error(("a", after)).map(|e| e.to_string());
    Ok(Seen { rows: found, text: String::from_utf8(text).expect("text"), losses })
}

/// By name, whatever the order, and each number written as any difference is.
fn at_once(before: &str, after: &str, settings: &Settings, wanted: &Wanted) -> Result<Seen, String> {
    let options = Options::default();
    let (old, new) = read(("b", before), ("a", after), &options).map_err(|e| e.to_string())?;
    Differences::new(&old, &new, settings).map_err(|e| e.to_string())?;
    let differences = Differences::by_name(&old, &new, settings);
    let any = regex::Regex::new("").expect("a regular expression");
    let wanted = Wanted { nonzero: wanted.nonzero, keys: wanted.keys.clone().or(Some(any)), ignore: None };
    let mut page = Vec::new();
    render::text(&mut page, &differences, &wanted, None, |_| ());
    let mut losses = Losses::default();
    differences.iter().for_each(|change| losses.look(&change));
    let losses = losses.error(("a", after)).map(|e| e.to_string());
    Ok(Seen { rows: rows(&differences), text: String::from_utf8(page).expect("text"), losses })
}

#[test]
fn lines_that_mean_something_by_themselves_are_read_in_parts() {
    for (text, _) in pairs() {
        let format = Snapshot::read("", text, &Options::default()).expect("a snapshot").format;
        let parts = walk(("", text), ("", text), &Options::default(), &Settings::default(), 1, |d| {
            Ok(d.after().counters().len())
        })
        .expect("differences");
        let by_line = !matches!(
            format,
            Format::NetstatS
                | Format::Text
                | Format::Json
                | Format::NstatJson
                | Format::EthtoolJson
                | Format::IpJson
                | Format::Openmetrics
                | Format::Csv
        );
        assert_eq!(parts.len() > 1, by_line, "{format:?} in {parts:?}");
    }
}

#[test]
fn what_agrees_before_something_vanishes_is_done_in_parts() {
    let line = |n: usize, grown: usize| format!("counter_{n} {}\n", n + grown);
    let before: String = (0..100).map(|n| line(n, 0)).collect();
    let after: String = (0..100).filter(|n| *n != 50).map(|n| line(n, 1)).collect();
    let parts = walk(("", &before), ("", &after), &Options::default(), &Settings::default(), 100, |d| {
        Ok((d.after().counters().len(), d.gone().count()))
    })
    .expect("differences");
    assert!(parts.len() > 4 && parts.iter().rev().skip(1).all(|(_, gone)| *gone == 0), "{parts:?}");
    assert_eq!(parts.iter().map(|(there, _)| there).sum::<usize>(), 99);
    assert!(parts.last().is_some_and(|(there, gone)| *there >= 49 && *gone == 1), "{parts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn parts_and_the_whole_give_the_same(
        (before, after) in prop::sample::select(pairs()),
        (old_edits, new_edits) in (edits(), edits()),
        (old_crlf, new_crlf, ends) in (any::<bool>(), any::<bool>(), any::<bool>()),
        (nonzero, few) in (any::<bool>(), any::<bool>()),
        missing in prop::sample::select(vec![Missing::Zero, Missing::Skip, Missing::Error]),
        (max_rate, gauges) in (prop::option::weighted(0.2, Just(1e9)), prop::option::weighted(0.2, Just("[a-f]"))),
        bytes in 1usize..600,
    ) {
        let (before, after) = (edited(before, &old_edits, old_crlf, true), edited(after, &new_edits, new_crlf, ends));
        let gauges = gauges.map(|g| regex::Regex::new(g).expect("a regular expression"));
        let settings = Settings { elapsed: Some(10.0), max_rate, missing, gauges, ..Settings::default() };
        let keys = few.then(|| regex::Regex::new("[r1]").expect("a regular expression"));
        let wanted = Wanted { nonzero, keys, ignore: None };
        prop_assert_eq!(
            in_parts(&before, &after, &settings, &wanted, bytes),
            at_once(&before, &after, &settings, &wanted)
        );
    }
}
