//! Each format of a small table.

use super::{benchmarks, gnuplot, junit, openmetrics, rows, time_series};
use crate::{
    error::Error,
    table::{Selection, Table},
};
use proptest::prelude::*;

const RESULTS: &str = "\
run_id,plan,test,case,record,iteration,phase,status,error,time,elapsed_s,message_bytes,throughput_bits_per_s,latency_p99_us
r1,quick,bulk,\"bulk[message_size=64,\"\"x\"\"]\",interval,1,measure,ok,,2026-01-31T12:00:01.5Z,1,64,900.50,
r1,quick,bulk,\"bulk[message_size=64,\"\"x\"\"]\",interval,1,measure,ok,,2026-01-31T12:00:02.5Z,1,64,1100,
r1,quick,bulk,\"bulk[message_size=64,\"\"x\"\"]\",iteration,1,measure,ok,,2026-01-31T12:00:02.5Z,2,64,1e3,
r1,quick,bulk,\"bulk[message_size=64,\"\"x\"\"]\",iteration,2,measure,ok,,2026-01-31T12:00:05Z,2,64,1010,
r1,quick,bulk,bulk[message_size=128],iteration,1,measure,ok,,2026-01-31T12:00:09Z,2,128,2000,
r1,quick,rr,rr,iteration,1,measure,failed,\"no | <host>\",2026-01-31T12:00:12Z,,,,
";

fn table(text: &str) -> Table {
    Table::from_text("t", text).expect("a table")
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("output");
    String::from_utf8(out).expect("text")
}

#[test]
fn json_lines_keep_every_digit() {
    let text = written(|out| rows::write_json_lines(&mut table(RESULTS), &Selection::default(), out));
    assert_eq!(text.lines().count(), 6);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["message_bytes"], 64);
    assert_eq!(first["case"], "bulk[message_size=64,\"x\"]");
    assert_eq!(first["throughput_bits_per_s"], 900.5);
    assert!(first.get("error").is_none() && first["time"].is_string());
}

#[test]
fn rows_that_do_not_meet_the_conditions_are_left_out() {
    let only = Selection { conditions: vec!["case=b".into()], ..Selection::default() };
    let text = "case,record\na,iteration\nb,summary\nb,iteration\n";
    assert_eq!(written(|out| rows::write_json_lines(&mut table(text), &only, out)).lines().count(), 2);
    assert_eq!(written(|out| rows::write_markdown(&mut table(text), &only, out)).lines().count(), 4);
    let summary = Selection { record: Some("summary".into()), ..Selection::default() };
    assert_eq!(written(|out| rows::write_json_lines(&mut table(text), &summary, out)).lines().count(), 1);
    let none = Selection { conditions: vec!["case=c".into()], ..Selection::default() };
    let error = rows::write_json_lines(&mut table(text), &none, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.ends_with("no row that counts has case=c; case is a, b"), "{error}");
}

#[test]
fn markdown_has_only_columns_with_values() {
    let text = written(|out| rows::write_markdown(&mut table("a,b,c\n1,,x|y\n2,,z\n"), &Selection::default(), out));
    assert_eq!(text, "| a | c |\n| ---: | --- |\n| 1 | x\\|y |\n| 2 | z |\n");
    assert_eq!(
        written(|out| rows::write_markdown(&mut table("a,b\n"), &Selection::default(), out)),
        "| a | b |\n| --- | --- |\n"
    );
}

#[test]
fn openmetrics_families() {
    let names = ["throughput".to_owned(), "latency.p99".to_owned()];
    let text = written(|out| openmetrics::write(&mut table(RESULTS), &Selection::default(), &names, out));
    let head = "# TYPE plumb_throughput_bytes_per_second gauge\n# UNIT plumb_throughput_bytes_per_second \
                bytes_per_second\n# HELP plumb_throughput_bytes_per_second throughput\n";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("case=\"bulk[message_size=64,\\\"x\\\"]\",iteration=\"2\"} 126.25\n"), "{text}");
    // A single run needs no identifier; a metric without values has no family.
    assert!(!text.contains("run_id") && !text.contains("latency") && text.ends_with("# EOF\n"), "{text}");
    let twice = "case,throughput_bits_per_s\na,1\na,2\n";
    let error = openmetrics::write(&mut table(twice), &Selection::default(), &names[..1], &mut Vec::new());
    assert!(error.unwrap_err().to_string().contains("same labels"));
    // A run that failed gives a file without samples, which replaces those of yesterday. A table of another kind is an
    // error.
    let failed = "case,status,throughput_bits_per_s\na,failed,\n";
    assert_eq!(written(|out| openmetrics::write(&mut table(failed), &Selection::default(), &[], out)), "# EOF\n");
    let error = openmetrics::write(&mut table("a,b\n1,2\n"), &Selection::default(), &[], &mut Vec::new());
    assert_eq!(
        error.unwrap_err().to_string(),
        "t: no column is a metric, so this is not a results table (docs/reference/results.md has the names)"
    );
}

#[test]
fn openmetrics_in_base_units() {
    let row =
        "case,elapsed_s,rtt_us,transactions_per_s,bytes_sent,loss_ratio\na,1.50,24.40,1e3,7,0.5\nb,1.50,2E1,5,7,0\n";
    let text = written(|out| openmetrics::write(&mut table(row), &Selection::default(), &[], out));
    let samples: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    for sample in [
        "plumb_elapsed_seconds{case=\"a\"} 1.50",
        "plumb_rtt_seconds{case=\"a\"} 24.40e-6",
        "plumb_rtt_seconds{case=\"b\"} 2e-5",
        "plumb_transactions_per_second{case=\"a\"} 1e3",
        "plumb_bytes_sent{case=\"a\"} 7",
        "plumb_loss_ratio{case=\"b\"} 0",
    ] {
        assert!(samples.contains(&sample), "{sample}: {text}");
    }
    // A unit is only declared where the name ends with it.
    assert!(text.contains("# UNIT plumb_rtt_seconds seconds\n") && !text.contains("# UNIT plumb_bytes_sent"), "{text}");
}

#[test]
fn benchstat_lines() {
    let text = written(|out| benchmarks::write_benchfmt(&mut table(RESULTS), &Selection::default(), &[], out));
    assert!(text.contains("Unit throughput-bit/s better=higher\nUnit latency.p99-us better=lower\n"), "{text}");
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("Benchmark")).collect();
    // Both iterations have one name, and each line has an even number of words after it.
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], "BenchmarkBulk/message_size=64/\"x\" 1 1e3 throughput-bit/s");
    assert_eq!(lines[0].split(' ').next(), lines[1].split(' ').next());
}

#[test]
fn gnuplot_points_are_medians() {
    let picture = gnuplot::Picture::default();
    let text = written(|out| gnuplot::write(&mut table(RESULTS), &Selection::default(), &picture, None, out));
    assert!(text.contains("\n64 1005 1000 1010 2\n128 2000 2000 2000 1\n"), "{text}");
    assert!(
        text.contains("set logscale x 2\nplot $data index 0 using 1:2:3:4 with yerrorlines title 'quick, bulk'\n"),
        "{text}"
    );

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o'sweep.plot");
    gnuplot::write(&mut table(RESULTS), &Selection::default(), &picture, Some(&path), &mut Vec::new()).unwrap();
    let script = std::fs::read_to_string(&path).unwrap();
    assert!(script.contains("o''sweep.dat' index 0") && script.contains("o''sweep.eps'\nreplot\n"), "{script}");
    assert!(std::fs::read_to_string(folder.path().join("o'sweep.dat")).unwrap().contains("128 2000 2000 2000 1\n"));

    let ways = "record,phase,status,test,case,direction,message_bytes,throughput_bits_per_s\n\
        iteration,measure,ok,tb,tb,forward,64,40\niteration,measure,ok,tb,tb,reverse,64,50\n\
        iteration,measure,ok,tb,tb,both,64,90\n";
    let of = |by: &[&str]| {
        let picture = gnuplot::Picture { by: by.iter().map(|name| (*name).to_owned()).collect(), ..picture.clone() };
        let mut out = Vec::new();
        gnuplot::write(&mut table(ways), &Selection::default(), &picture, None, &mut out)?;
        Ok::<_, Error>(String::from_utf8(out).unwrap())
    };
    let text = of(&[]).unwrap();
    assert!(text.contains("# download\n# x median smallest largest n\n64 50 50 50 1\n"), "{text}");
    assert!(of(&["test"]).unwrap_err().to_string().contains("--by test,direction tells them apart"));
    assert!(of(&["test", "direction"]).unwrap().contains("\n64 90 90 90 1\n"));

    let nothing = gnuplot::write(
        &mut table("message_bytes,throughput_bits_per_s\n1,\n"),
        &Selection::default(),
        &picture,
        None,
        &mut Vec::new(),
    );
    assert_eq!(nothing.unwrap_err().exit_code(), 3);
}

#[test]
fn rrdtool_commands() {
    let text = written(|out| time_series::write_rrd(&mut table(RESULTS), &Selection::default(), "throughput", out));
    let name = "bulk_message_size_64__x";
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with(&format!("create {name}.rrd --start 1769860800 --step 1 DS:value:GAUGE:10:U:U ")),
        "{text}"
    );
    assert_eq!(lines[1], format!("update {name}.rrd 1769860801.500:900.50"));
    assert_eq!(lines.len(), 3);
    let bad = "time,throughput_bits_per_s\nyesterday,1\n";
    let error =
        time_series::write_rrd(&mut table(bad), &Selection::default(), "throughput", &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "t:2, column `time`: `yesterday` is not a time such as 2026-01-31T12:00:00Z");
}

#[test]
fn junit_counts_what_failed() {
    let text = written(|out| junit::write(&mut table(RESULTS), &Selection::default(), out));
    assert!(text.contains("tests=\"4\" skipped=\"0\" failures=\"0\" errors=\"1\""), "{text}");
    assert!(text.contains("<error message=\"no | &lt;host"), "{text}");
    let verdicts = "case,assertion,metric,n,statistic,observed,ci_low,ci_high,confidence_level,limit,verdict,severity,note,elapsed_s\n\
        bulk[streams=4] up,throughput >= 1Gbit/s,throughput_bits_per_s,5,median,5e8,4.9e8,5.1e8,0.95,1e9,fail,error,,10.5\n\
        bulk[streams=4] up,loss_ratio < 1%,,5,,0.02,,,,0.01,fail,warn,,10.5\n\
        rr,latency.p99 < 80us,latency_p99_us,3,,,,,,80,inconclusive,error,too few,2\n\
        rr,retransmits == 0,retransmits,3,worst,0,,,,0,pass,error,,2\n";
    let text = written(|out| junit::write(&mut table(verdicts), &Selection::default(), out));
    assert!(text.contains("tests=\"4\" skipped=\"2\" failures=\"1\" errors=\"0\""), "{text}");
    assert!(
        text.contains("message=\"bulk[streams=4] up: throughput &gt;= 1Gbit/s does not hold: 500 Mbit/s ± 2.0 % (median of 5 iterations)\""),
        "{text}"
    );
    // Values twice: as properties, and in a sentence for reporters that show none.
    for property in ["observed\" value=\"500000000", "ci_low\" value=\"490000000", "limit\" value=\"1000000000"] {
        assert!(text.contains(&format!("<property name=\"{property}\"/>")), "{property}: {text}");
    }
    assert!(text.contains("500 Mbit/s ± 2.0 % (median of 5 iterations, interval at 95 %)</system-out>"), "{text}");
    // The interval of a change is a ratio, and has another name than that of a value.
    let compared = "case,assertion,metric,n,observed,baseline,change_ratio,ci_low_ratio,ci_high_ratio,limit_ratio,verdict\n\
        bulk,baseline,throughput_bits_per_s,9,8e8,1e9,-0.2,-0.25,-0.15,0.03,regression\n";
    let changed = written(|out| junit::write(&mut table(compared), &Selection::default(), out));
    for property in ["n\" value=\"9", "ci_low_ratio\" value=\"-0.25", "limit_ratio\" value=\"0.03"] {
        assert!(changed.contains(&format!("<property name=\"{property}\"/>")), "{property}: {changed}");
    }
    assert!(!changed.contains("\"ci_low\"") && !changed.contains("\"limit\""), "{changed}");
    // Each has its time, and a suite counts the two verdicts of one measurement once.
    assert_eq!((text.matches("time=\"10.500\"").count(), text.matches("time=\"2.000\"").count()), (2, 2), "{text}");
    assert_eq!(text.matches("time=\"12.500\"").count(), 2, "{text}");
    assert!(junit::write(&mut table("a\n1\n"), &Selection::default(), &mut Vec::new()).is_err());
}

#[test]
fn junit_agrees_with_the_verdicts() {
    let head = "case,assertion,metric,observed,n,verdict,severity,note\n";
    let of = |row: &str| written(|out| junit::write(&mut table(&format!("{head}{row}\n")), &Selection::default(), out));
    for (verdict, counted) in [
        ("pass", [0, 0, 0]),
        ("same", [0, 0, 0]),
        ("improvement", [0, 0, 0]),
        ("changed", [0, 0, 0]),
        ("noticed", [0, 0, 0]),
        ("fail", [0, 1, 0]),
        ("regression", [0, 1, 0]),
        ("unnoticed", [0, 1, 0]),
        ("inconclusive", [1, 0, 0]),
        ("missing", [1, 0, 0]),
        ("error", [0, 0, 1]),
    ] {
        let [skipped, failures, errors] = counted;
        let text = of(&format!("a,x,throughput_bits_per_s,1,3,{verdict},error,why"));
        let head = format!("tests=\"1\" skipped=\"{skipped}\" failures=\"{failures}\" errors=\"{errors}\"");
        assert!(text.contains(&head), "{verdict}: {text}");
    }
    let nothing = of("a,x,throughput_bits_per_s,,3,inconclusive,error,too few");
    assert!(nothing.contains("message=\"inconclusive: (too few)"), "{nothing}");
    // A warning neither fails a gate nor a report.
    for verdict in ["fail", "regression", "unnoticed", "error"] {
        let text = of(&format!("a,x,throughput_bits_per_s,1,3,{verdict},warn,why"));
        assert!(text.contains("skipped=\"1\" failures=\"0\" errors=\"0\""), "{verdict}: {text}");
        assert!(text.contains("why"), "{verdict}: {text}");
    }
    // An invalid value is an error that names its place, as in a report.
    for (row, reason) in [("a,x,m,1,3,perhaps,error,", "`perhaps` is not one of"), ("a,x,m,one,3,pass,error,", "`one`")]
    {
        let error = junit::write(&mut table(&format!("{head}{row}\n")), &Selection::default(), &mut Vec::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason) && error.contains(":2"), "{error}");
    }
    // An interval at 99.9 % is not one at 100 %.
    let sure = "case,assertion,metric,observed,n,ci_low,ci_high,confidence_level,verdict\na,x,throughput_bits_per_s,1e9,9,9e8,1.1e9,0.999,pass\n";
    assert!(written(|out| junit::write(&mut table(sure), &Selection::default(), out)).contains("interval at 99.9 %"));
}

proptest! {
    #[test]
    fn json_lines_read_back(cells in proptest::collection::vec(("\\PC{0,12}", 0u64..), 1..8)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["case", "bytes_sent"]).unwrap();
        for (case, bytes) in &cells {
            writer.write_record([case.as_str(), &bytes.to_string()]).unwrap();
        }
        let csv = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        let text = written(|out| rows::write_json_lines(&mut table(&csv), &Selection::default(), out));
        let back: Vec<(String, u64)> = text
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
            .map(|v| (v.get("case").map_or("", |c| c.as_str().unwrap()).to_owned(), v["bytes_sent"].as_u64().unwrap()))
            .collect();
        prop_assert_eq!(back, cells);
    }
}
