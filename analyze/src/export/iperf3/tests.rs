//! Documents of real runs (`tests/fixtures/export/iperf3`, iperf3 3.12) are the reference: they are imported, exported and
//! compared. `tests/e2e/export_iperf3.rs` does it with runs of the program.

use std::path::Path;

use schemas::columns;
use serde_json::Value;

use crate::error::Error;
use crate::import::ImportedRows;
use crate::table::{Selection, Table};

fn real(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export/iperf3");
    std::fs::read_to_string(folder.join(format!("{name}.json"))).expect(name)
}

/// The table that `plumb import` makes of an output.
fn imported(text: &str) -> String {
    let mut imported = ImportedRows::default();
    imported.read("iperf3", text, None).expect("iperf3's");
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns::header(&[])).unwrap();
    for row in imported.finish() {
        let mut cells = Vec::new();
        row.for_each_cell(|cell| cells.push(cell.to_owned()));
        writer.write_record(&cells).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

fn exported(table: &str, selection: &Selection) -> Result<String, Error> {
    let mut out = Vec::new();
    super::write(&mut Table::from_text("t", table)?, selection, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn document(table: &str) -> Value {
    serde_json::from_str(&exported(table, &Selection::default()).expect("a run")).expect("JSON")
}

fn refusal(table: &str, conditions: &[&str]) -> String {
    let conditions = conditions.iter().map(|c| (*c).to_owned()).collect();
    exported(table, &Selection { conditions, ..Selection::default() }).expect_err("not one run").to_string()
}

/// Numbers of the first document that the second has otherwise.
fn differing(ours: &Value, real: &Value, at: &str, found: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(real)) => {
            for (key, value) in ours {
                match real.get(key) {
                    Some(real) => differing(value, real, &format!("{at}/{key}"), found),
                    None => found.push(format!("{at}/{key} is not iperf3's")),
                }
            }
        }
        (Value::Array(ours), Value::Array(real)) if ours.len() == real.len() => {
            for (i, (ours, real)) in ours.iter().zip(real).enumerate() {
                differing(ours, real, &format!("{at}/{i}"), found);
            }
        }
        _ => match (ours.as_f64(), real.as_f64()) {
            (Some(a), Some(b)) if (a - b).abs() <= 1e-6 * b.abs() => {}
            _ if ours == real => {}
            _ => found.push(format!("{at}: {ours} and {real}")),
        },
    }
}

/// Places at which exported numbers may differ from iperf3's.
fn is_known(difference: &str) -> bool {
    ["/socket:", "/version:", "/timestamp", "/title", "/bidir"].iter().any(|key| difference.contains(key))
        // iperf3 prints the other end's time there, or its own where it has the other's counts.
        // Its mean has the samples of the omitted seconds.
        || ["/seconds:", "/end:", "/mean_rtt: 44 and 46"].iter().any(|key| difference.contains(key))
}

#[test]
fn a_document_survives_import_and_export() {
    for name in ["tcp", "reverse", "udp", "udp-reverse", "parallel", "udp-parallel", "omit"] {
        let real: Value = serde_json::from_str(&real(name)).unwrap();
        let ours = document(&imported(&real.to_string()));
        let mut found = Vec::new();
        differing(&ours, &real, "", &mut found);
        found.retain(|difference| !is_known(difference));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// What k8s-netperf, LKP and scripts with jq read, by path.
const READ: [(&str, &[&str]); 3] = [
    (
        "tcp",
        &[
            "/end/sum_sent/retransmits",
            "/end/sum_sent/bits_per_second",
            "/end/sum_received/bits_per_second",
            "/end/sum_received/bytes",
            "/end/streams/0/sender/mean_rtt",
            "/intervals/0/sum/bits_per_second",
            "/start/timestamp/timesecs",
            "/start/test_start/num_streams",
        ],
    ),
    (
        "reverse",
        &["/end/sum_sent/retransmits", "/end/sum_received/bits_per_second", "/end/streams/0/receiver/bits_per_second"],
    ),
    (
        "udp",
        &[
            "/end/sum/bits_per_second",
            "/end/sum/lost_percent",
            "/end/sum/jitter_ms",
            "/end/sum/packets",
            "/end/streams/0/udp/out_of_order",
            "/end/sum_received/bits_per_second",
        ],
    ),
];

#[test]
fn scripts_read_the_same_numbers_from_both() {
    for (name, paths) in READ {
        let real: Value = serde_json::from_str(&real(name)).unwrap();
        let ours = document(&imported(&real.to_string()));
        for path in paths {
            let number = |document: &Value| document.pointer(path).and_then(Value::as_f64);
            let (ours, real) = (number(&ours), number(&real).expect(path));
            // The importer's `time` is that of the start.
            let limit = if path.ends_with("timesecs") { 3.0 } else { 1e-6 * real.abs() };
            assert!(ours.is_some_and(|v| (v - real).abs() <= limit), "{name} {path}: {ours:?} and {real}");
        }
    }
}

#[test]
fn the_layout_is_iperf3s() {
    /// The line without its number: iperf3 prints other digits of floats.
    fn plain(line: &str) -> &str {
        match line.split_once(":\t") {
            Some((key, value)) if value.starts_with(|c: char| c.is_ascii_digit()) => key,
            _ => line,
        }
    }
    for name in ["tcp", "reverse", "omit", "udp"] {
        let real = real(name);
        let mut out = Vec::new();
        super::print(&serde_json::from_str(&real).unwrap(), &mut out).unwrap();
        let ours = String::from_utf8(out).unwrap();
        assert!(ours.ends_with("}\n") && ours.matches("\n}\n").count() == 1);
        let [ours, real] = [&ours, &real].map(|text| text.lines().map(plain).collect::<Vec<_>>());
        let differs = ours.iter().zip(&real).position(|(a, b)| a != b);
        assert!(ours.len() == real.len() && differs.is_none(), "{name}: line {differs:?} of {}", real.len());
    }
}

const HEAD: &str = "case,record,iteration,phase,status,error,to,direction,streams,workload,elapsed_s,start_s,\
                    bytes_sent,sent_bits_per_s,bytes_received,throughput_bits_per_s,transactions_per_s\n";

#[test]
fn what_the_table_lacks_is_left_out() {
    let table = format!("{HEAD}a,iteration,1,measure,ok,,b,forward,1,tcp_stream,10.0004,0,,,1000,800,\n");
    let end = &document(&table)["end"];
    assert_eq!(end["sum_received"]["bits_per_second"], 800);
    assert_eq!(end["sum_received"]["seconds"], 10);
    assert_eq!(end["streams"][0]["receiver"]["bytes"], 1000);
    for absent in ["/sum_sent", "/sum", "/cpu_utilization_percent", "/streams/0/sender", "/sender_tcp_congestion"] {
        assert!(end.pointer(absent).is_none(), "{absent}: {end}");
    }
    let test = &document(&table)["start"]["test_start"];
    assert_eq!(test["duration"], 10);
    assert!(test.get("blksize").is_none() && test.get("target_bitrate").is_none(), "{test}");
}

#[test]
fn a_run_that_failed_has_an_error() {
    let failed = "a,iteration,1,measure,failed,connection refused,b,forward,1,tcp_stream,,,,,,,\n";
    let text = exported(&format!("{HEAD}{failed}"), &Selection::default()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["error"], "error - connection refused");
    assert!(text.contains("\"end\":\t{\n\t}"), "an empty object: {text}");
    // One that succeeded goes before it.
    let table = format!("{HEAD}{failed}a,iteration,2,measure,ok,,b,forward,1,tcp_stream,1,0,8,64,8,64,\n");
    assert!(self::document(&table).get("error").is_none());
}

#[test]
fn one_run_must_be_chosen() {
    let row = |case: &str, n: u32, way: &str| {
        format!("{case},iteration,{n},measure,ok,,b,{way},1,tcp_stream,1,0,8,64,8,64,\n")
    };
    let summary = "a,summary,,measure,ok,,b,forward,1,tcp_stream,1,0,8,64,8,65,\n";
    let table =
        format!("{HEAD}{}{}{}{summary}", row("a", 1, "forward"), row("a", 2, "forward"), row("b[x=1]", 1, "reverse"));
    let case = refusal(&table, &[]);
    assert!(case.contains("several values of `case` (a, b[x=1])") && case.contains("--where 'case=b[x=1]'"), "{case}");
    let iteration = refusal(&table, &["case=a"]);
    assert!(iteration.contains("`iteration` (1, 2)") && iteration.contains("--record summary"), "{iteration}");
    let of = |record: Option<&str>, conditions: &[&str]| {
        let conditions = conditions.iter().map(|c| (*c).to_owned()).collect();
        let selection = Selection { record: record.map(str::to_owned), conditions, ..Selection::default() };
        serde_json::from_str::<Value>(&exported(&table, &selection).expect("one run")).unwrap()
    };
    assert_eq!(of(None, &["case=b[x=1]"])["start"]["test_start"]["reverse"], 1);
    assert_eq!(of(Some("summary"), &[])["end"]["sum_received"]["bits_per_second"], 65);

    let twice = format!("{HEAD}{0}{0}", row("a", 1, "forward"));
    assert!(
        refusal(&twice, &[]).contains("t:3, column `case`: a second row about the same direction"),
        "{}",
        refusal(&twice, &[])
    );
    let rr = format!("{HEAD}a,iteration,1,measure,ok,,b,forward,1,tcp_rr,1,0,8,64,8,64,5\n");
    assert!(refusal(&rr, &[]).contains("`tcp_rr` counts transactions"));
    let unix = format!("{HEAD}a,iteration,1,measure,ok,,b,forward,1,unix_stream,1,0,8,64,8,64,\n");
    assert!(refusal(&unix, &[]).contains("iperf3 has TCP, UDP and SCTP only"), "{}", refusal(&unix, &[]));
    assert!(refusal(HEAD, &[]).contains("no iteration and no summary"));
    for (phase, record) in [("all", None), ("measure", Some("stream"))] {
        let selection = Selection { phase: phase.into(), record: record.map(str::to_owned), conditions: Vec::new() };
        assert!(matches!(exported(&table, &selection), Err(Error::Usage(_))), "{phase} {record:?}");
    }
}
