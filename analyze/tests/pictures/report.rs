//! `plumb report` on a results file and the files beside it.

use crate::tables;
use clap::Parser;
use std::path::Path;

#[derive(clap::Parser)]
struct Plumb {
    #[command(subcommand)]
    filter: analyze::Filter,
}

fn plumb(arguments: &[&str]) -> Result<String, analyze::Error> {
    let mut out = Vec::new();
    Plumb::parse_from(["plumb"].iter().chain(arguments)).filter.run(&mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// A run of three iterations at five sizes and one of round trips, with the files beside its table.
fn run(folder: &Path) -> String {
    let mut rows = tables::sizes(&["size"], 3, 6..=10);
    rows.extend(tables::round_trips(&["rtt"], 1));
    rows.extend(tables::intervals(&["size"], 1));
    let results = folder.join("lab.csv");
    std::fs::write(&results, tables::csv(&rows)).unwrap();
    let run = rows[0].run_id.clone().unwrap();
    let facts = serde_json::json!({
        "run_id": &run,
        "argv": ["plumb", "run", "lab.yaml"],
        "began": "2026-11-22T10:00:00Z",
        "ended": "2026-11-22T10:01:00Z",
        "plans": [{
            "path": "lab.yaml", "name": "lab", "description": "How does <size> matter?",
            "text": "version: 1\nname: lab # <&>\n", "warnings": ["lab.yaml:7: short"],
        }],
        "hosts": {"a": {"facts": {"cpu_model": "A processor", "kernel_release": "6.12.0"}}, "embedded": {"facts": {}}},
        "cases": {"c1": {"case": "size", "notes": ["slow | <script>clock</script>"]}},
        "notes": ["the two ends share this machine", "slow | <script>clock</script>"],
    });
    std::fs::write(folder.join("lab.run.json"), facts.to_string()).unwrap();
    let verdict = analyze::judge::VerdictRow {
        case_id: "c1".into(),
        case: "size".into(),
        assertion: "throughput >= 1Gbit/s".into(),
        metric: "throughput_bits_per_s".into(),
        n: 3,
        observed: Some(2e9),
        ci_low: Some(1.9e9),
        ci_high: Some(2.1e9),
        verdict: schemas::words::Verdict::Fail,
        run_id: run,
        ..Default::default()
    };
    let mut verdicts = Vec::new();
    analyze::judge::verdicts::csv(&[verdict], &mut verdicts).unwrap();
    std::fs::write(folder.join("lab.verdicts.csv"), verdicts).unwrap();
    results.display().to_string()
}

fn change(folder: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = folder.join("lab.run.json");
    let mut facts = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut facts);
    std::fs::write(path, facts.to_string()).unwrap();
}

fn page(folder: &Path, results: &str) -> String {
    let page = folder.join("lab.html");
    plumb(&["report", results, "-o", page.to_str().unwrap()]).unwrap();
    std::fs::read_to_string(&page).unwrap()
}

#[test]
fn a_page_has_everything() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let text = page(folder.path(), &results);
    for part in [
        "<h1>lab</h1>",
        "plan lab · 2026-11-22 10:00 UTC · host a",
        "How does &lt;size&gt; matter?",
        "The assertion fails: size throughput &gt;= 1Gbit/s (2.00 Gbit/s ± 5.0 %).",
        "<div class=\"answer bad\">",
        "<td class=\"word bad\">fail</td>",
        "95 % interval",
        "throughput against message size",
        "percentiles of round-trip latency",
        "<li>the two ends share this machine</li>",
        "<li>slow | &lt;script&gt;clock&lt;/script&gt; (size)</li>",
        "the plan: lab.yaml:7: short",
        "command: plumb run lab.yaml",
        "A processor",
        "name: lab # &lt;&amp;&gt;",
        "@media print",
        "prefers-color-scheme: dark",
    ] {
        assert!(text.contains(part), "no `{part}`");
    }
    assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("embedded"));
    assert_eq!(text.matches("clock&lt;/script&gt;").count(), 1, "a note is said once");
    assert_eq!(text.matches("class=\"picture wide\"").count(), 2, "sweep, percentiles");
    assert_eq!(text.matches("class=\"picture narrow\"").count(), 2);
}

#[test]
fn a_case_is_one_row_with_its_interval_and_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let text = plumb(&["report", &run(folder.path())]).unwrap();
    let table: Vec<&str> =
        text.lines().skip_while(|l| *l != "## Results").skip(2).take_while(|l| !l.is_empty()).collect();
    assert_eq!(table.len(), 2 + 5 + 1, "{text}");
    assert!(table[3].contains("size[128 B]"), "{text}");
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let head = cells(table[0]);
    let at = |name: &str| head.iter().position(|h| h == name).unwrap();
    let (size, rtt) = (cells(table[2]), cells(table[7]));
    assert_eq!(size[at("n")], "3");
    assert!(size[at("95 % interval")].starts_with('±') || size[at("95 % interval")].contains('…'), "{text}");
    assert!(size[at("mean")].ends_with("bit/s") && size[at("p50 of all")].is_empty(), "{text}");
    assert!(rtt[at("mean")].ends_with("/s") && !rtt[at("p99 of all")].is_empty(), "{text}");
}

#[test]
fn the_pictures_are_those_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    change(folder.path(), |facts| {
        facts["plans"][0]["plots"] = serde_json::json!([
            {"kind": "percentiles", "tests": ["rtt"], "title": "The tail & more", "file": "tail.svg"},
            {"kind": "sweep", "x": "message_bytes", "y": "jitter_us", "file": "no-such.svg"},
            {"kind": "hologram", "file": "new.svg"},
        ]);
    });
    let text = page(folder.path(), &results);
    assert_eq!(text.matches("class=\"picture wide\"").count(), 1);
    assert!(text.contains("aria-label=\"The tail &amp; more\""), "{text}");
    assert!(text.contains("a picture (no-such.svg) could not be drawn"));
    assert!(text.contains("a picture of the plan is of a newer version"));
}

#[test]
fn another_run_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let other = folder.path().join("other.csv");
    std::fs::write(&other, tables::csv(&tables::sizes(&["size"], 3, 6..=10))).unwrap();
    let text = plumb(&["report", &results, "--against", other.to_str().unwrap()]).unwrap();
    assert!(text.contains("## Compared with") && text.contains("other.csv: "), "{text}");
    assert!(text.contains("same machine: unknown"), "{text}");
    let args = ["compare", other.to_str().unwrap(), &results, "-f", "md"];
    let compared = plumb(&args).unwrap();
    let table: Vec<&str> = compared.lines().filter(|line| line.starts_with('|')).collect();
    assert!(text.contains(&table.join("\n")), "as `plumb compare` has it: {compared}");
}

#[test]
fn markdown_has_its_pictures_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path());
    let page = folder.path().join("my page.md");
    plumb(&["report", folder.path().to_str().unwrap(), "-o", page.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("](my%20page.1.svg)") && text.contains("| fail "), "{text}");
    assert!(text.contains("slow \\| \\<script>clock\\</script> (size)"), "{text}");
    assert!(std::fs::read_to_string(folder.path().join("my page.1.svg")).unwrap().starts_with("<svg "));
    assert!(plumb(&["report", folder.path().to_str().unwrap()]).unwrap().contains("Write to a file (-o)"));
}

#[test]
fn what_does_not_count_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.csv");
    std::fs::write(
        &results,
        "case_id,case,test,member,workload,record,phase,status,error,iteration,throughput_bits_per_s\n\
         c1,a,a,x,tcp_stream,iteration,measure,discarded,skewed by 3,1,\n\
         c1,a,a,y,tcp_stream,iteration,measure,discarded,skewed by 3,1,\n\
         c1,a,a,x,tcp_stream,iteration,measure,failed,skewed by 4,1,\n\
         c1,a,a,y,tcp_stream,iteration,measure,failed,skewed by 4,1,\n\
         c2,b,b,,tcp_stream,iteration,measure,ok,,1,5e9\n\
         c2,b,b,,tcp_stream,iteration,warmup,ok,,1,9e9\n",
    )
    .unwrap();
    let text = plumb(&["report", results.to_str().unwrap()]).unwrap();
    assert!(text.contains("**1 of 2 cases failed: a (skewed by 4).**"), "{text}");
    assert!(text.contains("- a: 1 iteration failed: skewed by 4\n- a: 1 try discarded: skewed by 3\n"), "{text}");
    assert!(text.contains("b carried 5.00 Gbit/s.") && text.contains("| a x  |      failed |   0 |"), "{text}");
    assert!(text.contains("one iteration: nothing is known of its variation (b)"), "{text}");
}

#[test]
fn the_answer_has_what_a_load_carried_and_for_how_long_nothing_arrived() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.csv");
    std::fs::write(
        &results,
        "case_id,case,test,member,workload,offered_unit,record,status,iterations,throughput_bits_per_s,silence_us,\
         transactions_per_s,added_latency_p50_us\n\
         c1,down,down,probe,tcp_rr,transactions,summary,ok,1,9e3,,100,4000\n\
         c1,down,down,load,tcp_stream,,summary,ok,1,5e9,2e6,,\n",
    )
    .unwrap();
    let text = plumb(&["report", results.to_str().unwrap()]).unwrap();
    let answer = "**down load carried 5.00 Gbit/s, although nothing arrived for 2.00 s. Load adds to the median round trip: down \
                  probe 4.00 ms.**";
    assert!(text.contains(answer), "{text}");
}

#[test]
fn the_answer_has_the_messages_that_were_lost() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.csv");
    std::fs::write(
        &results,
        "case_id,case,test,workload,record,status,iteration,throughput_bits_per_s,loss_ratio\n\
         c1,a,a,udp_stream,iteration,ok,1,9e6,0.2\n\
         c1,a,a,udp_stream,iteration,ok,2,9e6,0.1\n\
         c2,b,b,udp_stream,iteration,ok,1,9e6,0\n",
    )
    .unwrap();
    let text = plumb(&["report", results.to_str().unwrap()]).unwrap();
    assert!(text.contains("a carried 9.00 Mbit/s and lost 15.0 % of its messages; b carried 9.00 Mbit/s.**"), "{text}");
}

#[test]
fn the_answer_has_the_range_of_each_test() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.csv");
    let head = "case_id,case,test,workload,record,status,iteration,throughput_bits_per_s,latency_p50_us\n";
    let sizes = "c1,s[1],s,tcp_stream,iteration,ok,1,9e6,\nc2,s[2],s,tcp_stream,iteration,ok,1,8e6,\n\
                 c3,s[3],s,tcp_stream,iteration,ok,1,7e6,\nc5,s[5],s,tcp_stream,iteration,ok,1,85e5,\n";
    let answer = |rows: &str| {
        std::fs::write(&results, format!("{head}{rows}")).unwrap();
        plumb(&["report", results.to_str().unwrap()]).unwrap()
    };
    let range = "hroughput was 7.00 Mbit/s (s[3]) to 9.00 Mbit/s (s[1])";
    let one = answer(sizes);
    assert!(one.contains(&format!("**T{range}.**")), "{one}");
    let two = answer(&format!("c4,p,p,ping,iteration,ok,1,,40\n{sizes}"));
    assert!(two.contains(&format!("**p: latency, median 40.0 µs; t{range}.**")), "{two}");
    let last = answer(&format!("{sizes}c4,p,p,ping,iteration,ok,1,,40\n"));
    assert!(last.contains(&format!("**T{range}; p: latency, median 40.0 µs.**")), "{last}");
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let error = plumb(&["report", &results, "-o", "x.pdf"]).unwrap_err().to_string();
    assert!(error.contains("Markdown or HTML"), "{error}");
    change(folder.path(), |facts| facts["run_id"] = "another".into());
    let text = plumb(&["report", &results]).unwrap();
    assert!(text.contains("it is about run another") && !text.contains("How does"), "{text}");
    std::fs::remove_file(folder.path().join("lab.run.json")).unwrap();
    assert!(plumb(&["report", &results]).unwrap().contains("plan, machines and notes are unknown"));
    let error = plumb(&["report", folder.path().to_str().unwrap()]).unwrap_err().to_string();
    assert!(error.contains("name the results file"), "{error}");
    std::fs::write(folder.path().join("lab.run.json"), "{").unwrap();
    let error = plumb(&["report", &results]).unwrap_err();
    assert_eq!(error.exit_code(), 3);
}

#[test]
fn many_cases_begin_with_what_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.csv");
    let mut rows = String::from(
        "case_id,case,test,member,workload,record,phase,status,iteration,streams,axis_streams,axis_socket_congestion_control,\
         throughput_bits_per_s,transactions_per_s,added_latency_p50_us\n",
    );
    for cc in ["cubic", "bbr"] {
        for streams in [1, 4, 16] {
            for (member, cells) in [("up", "9e9,,"), ("up-tcp", ",100,-250"), ("down-tcp", ",100,4000")] {
                // A probe has one stream of its own.
                let own = if member == "up" { streams } else { 1 };
                let about = format!(
                    "{cc}{streams},\"load[socket.congestion_control={cc},streams={streams}]\",load,{member},\
                     tcp_rr,iteration,measure,ok"
                );
                for iteration in ["1", "2"] {
                    let cells = [&about, iteration, &own.to_string(), &streams.to_string(), cc, cells];
                    rows.push_str(&cells.join(","));
                    rows.push('\n');
                }
            }
        }
    }
    std::fs::write(&results, rows).unwrap();
    let text = plumb(&["report", results.to_str().unwrap()]).unwrap();
    let parts = ["## Results", "## What to doubt", "## Picture", "All 18 rows"].map(|part| text.find(part).unwrap());
    assert!(parts.is_sorted(), "{text}");
    let table: Vec<&str> = text[parts[0]..parts[1]].lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(table.len(), 2 + 6, "a row per member and number of streams: {text}");
    assert_eq!(table[0], "| member   | streams |   cubic |     bbr |");
    assert_eq!(table[2], "| up-tcp   | 1       | −250 µs | −250 µs |");
    assert!(text.contains("load: added latency, median by member, streams, congestion control"), "{text}");
    assert!(text.contains("added latency, median against streams"), "{text}");
}

/// A gate against the stored run, and a report against its file: one comparison, which the lead has once.
#[test]
fn the_lead_has_a_comparison_once() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let other = folder.path().join("other.csv");
    std::fs::write(&other, tables::csv(&tables::sizes(&["size"], 3, 6..=10))).unwrap();
    let told = plumb(&["compare", other.to_str().unwrap(), &results, "-f", "csv"]).unwrap();
    // By the limit of a plan the verdict may be another: both then stand there, one with its limit.
    for (verdicts, comparisons) in [(told.clone(), 1), (told.replace(",inconclusive,", ",same,"), 2)] {
        std::fs::write(folder.path().join("lab.verdicts.csv"), verdicts).unwrap();
        let text = plumb(&["report", &results, "--against", other.to_str().unwrap()]).unwrap();
        let lead = text.lines().find(|line| line.starts_with("**")).unwrap();
        assert_eq!(lead.matches("compared with").count(), comparisons, "{lead}");
        assert_eq!(lead.matches("other.csv (a change of 3.0 % counts)").count(), comparisons - 1, "{lead}");
    }
}
