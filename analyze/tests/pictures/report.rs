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

fn run(folder: &Path) -> String {
    let mut rows = tables::sizes(&["size"], 3, 6..=10);
    rows.extend(tables::round_trips(&["rtt"], 1));
    rows.extend(tables::intervals(&["size"], 1));
    let results = folder.join("lab.csv");
    std::fs::write(&results, tables::csv(&rows)).unwrap();
    let facts = serde_json::json!({
        "run_id": "019aa2d1-7c3e-7b4f-9d52-3f6e8a1c0b77",
        "argv": ["plumb", "run", "lab.yaml"],
        "plans": [{"path": "lab.yaml", "name": "lab", "text": "version: 1\nname: lab # <&>\n"}],
        "hosts": {"a": {"facts": {"cpu_model": "A processor", "kernel_release": "6.12.0"}}},
        "cases": {"c1": {"case": "size", "notes": ["the two ends share this machine"]}},
    });
    std::fs::write(folder.join("lab.run.json"), facts.to_string()).unwrap();
    let verdicts = format!(
        "{}\nc1,size,,throughput >= 1Gbit/s,throughput_bits_per_s,3,2e9,1.9e9,2.1e9,0.95,1e9,,,,pass,error,,,,,,,,,,\n",
        schemas::columns::names(schemas::columns::verdicts::VERDICT_COLUMNS).collect::<Vec<_>>().join(",")
    );
    std::fs::write(folder.join("lab.verdicts.csv"), verdicts).unwrap();
    results.display().to_string()
}

#[test]
fn a_page_has_everything() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let page = folder.path().join("lab.html");
    plumb(&["report", &results, "-o", page.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<h1>lab</h1>",
        "command: plumb run lab.yaml",
        "throughput &gt;= 1Gbit/s",
        "1.90 Gbit/s … 2.10 Gbit/s",
        "throughput against message size",
        "percentiles of round-trip latency",
        "throughput over time",
        "the two ends share this machine (size)",
        "A processor",
        "name: lab # &lt;&amp;&gt;",
    ] {
        assert!(text.contains(part), "no `{part}`");
    }
    assert_eq!(text.matches("<svg ").count(), 4, "sweep, bars of the round trips' rate, percentiles, time");
}

#[test]
fn markdown_has_its_pictures_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path());
    let page = folder.path().join("page.md");
    plumb(&["report", folder.path().to_str().unwrap(), "-o", page.to_str().unwrap()]).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("](page.1.svg)") && text.contains("| pass "), "{text}");
    assert!(std::fs::read_to_string(folder.path().join("page.1.svg")).unwrap().starts_with("<svg "));
    assert!(plumb(&["report", folder.path().to_str().unwrap()]).unwrap().contains("write to a file (-o)"));
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(folder.path());
    let error = plumb(&["report", &results, "-o", "x.pdf"]).unwrap_err().to_string();
    assert!(error.contains("Markdown or HTML"), "{error}");
    std::fs::remove_file(folder.path().join("lab.run.json")).unwrap();
    assert!(plumb(&["report", &results]).unwrap().contains("plan and machines are unknown"));
    let error = plumb(&["report", folder.path().to_str().unwrap()]).unwrap_err().to_string();
    assert!(error.contains("name the results file"), "{error}");
    std::fs::write(folder.path().join("lab.run.json"), "{").unwrap();
    let error = plumb(&["report", &results]).unwrap_err();
    assert_eq!(error.exit_code(), 3);
}
