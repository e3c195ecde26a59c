use super::*;
use crate::{parsed, table::Selection};
use std::fmt::Write as _;

/// A results table of a survey of so many hosts, with what is wrong with it.
fn table(hosts: usize, value: impl Fn(usize, usize) -> &'static str) -> String {
    let mut text = String::from(
        "test,case,record,phase,status,from,to,direction,workload,throughput_bits_per_s,axis_from,axis_to\n",
    );
    for from in 1..=hosts {
        for to in (1..=hosts).filter(|to| *to != from) {
            let (status, rate) = match value(from, to) {
                "" => continue,
                "failed" => ("failed", String::new()),
                speed => {
                    let noise = ((from * 13 + to * 29 + from * to * 7) % 11) as f64 / 1100.0;
                    ("ok", (9.4e9 * speed.parse::<f64>().unwrap() * (1.0 + noise)).to_string())
                }
            };
            writeln!(
                text,
                "links,l,iteration,measure,{status},node{from},node{to},forward,tcp_stream,{rate},node{from},node{to}"
            )
            .unwrap();
        }
    }
    text
}

fn surveyed(text: &str, options: &[&str]) -> (Result<Verdict, Error>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let args = parsed(["survey", path].iter().chain(options)).unwrap();
    let mut out = Vec::new();
    (run(&args, &mut out), String::from_utf8(out).unwrap())
}

fn slow(from: usize, to: usize) -> &'static str {
    match (from, to) {
        (_, 7) => "0.9",
        (2, 5) => "0.8",
        (3, 4) => "failed",
        (4, 3) => "",
        _ => "1",
    }
}

#[test]
fn a_matrix_and_sentences_for_people() {
    let (verdict, text) = surveyed(&table(10, slow), &["--format", "text", "--fail-on", "suspects"]);
    assert_eq!(verdict.unwrap(), Verdict::Failed);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "links: throughput, 10 hosts");
    assert!(lines[6].starts_with("Gbit/s, from \\ to  node1  node2") && lines[6].ends_with("node9  node10"), "{text}");
    assert!(lines[7].starts_with("node1                  ·   9.4"), "{text}");
    assert!(lines[9].contains("failed") && lines[10].contains(" - "), "{text}");
    // The answer first.
    assert!(text.contains("hosts\n\n2 suspects:\nnode7 is slow as a receiver: "), "{text}");
    assert!(text.contains("9 of its 9 pairs show it, for example node"), "{text}");
    assert!(text.contains("\nnode2>node5 is slow: "), "{text}");
    assert!(text.contains("\n1 pair failed: node3>node4\n1 pair not measured: node4>node3\n"), "{text}");
    let (_, markdown) = surveyed(&table(10, slow), &["--format", "md"]);
    assert!(markdown.starts_with("## links: throughput, 10 hosts\n\n- 2 suspects:\n"), "{markdown}");
    assert!(markdown.contains("\n- node2>node5 is slow: "), "{markdown}");
}

#[test]
fn findings_are_rows() {
    let (verdict, text) = surveyed(&table(10, slow), &[]);
    assert_eq!(verdict.unwrap(), Verdict::Ok, "nothing fails unless it is asked for");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let cell = |row: &csv::StringRecord, name: &str| row[header.iter().position(|n| n == name).unwrap()].to_owned();
    let findings: Vec<String> = rows.iter().map(|row| cell(row, "finding")).collect();
    assert_eq!(findings, ["survey", "host", "link", "failed", "missing"]);
    assert_eq!((cell(&rows[0], "suspects"), cell(&rows[0], "pairs")), ("2".into(), "88".into()));
    assert_eq!((cell(&rows[1], "host"), cell(&rows[1], "role")), ("node7".into(), "to".into()));
    assert_eq!((cell(&rows[2], "from"), cell(&rows[2], "to")), ("node2".into(), "node5".into()));
    assert!((cell(&rows[2], "worse_ratio").parse::<f64>().unwrap() - 0.2).abs() < 0.01);
    assert_eq!((cell(&rows[3], "from"), cell(&rows[4], "from")), ("node3".into(), "node4".into()));
}

#[test]
fn verdicts_are_asked_for() {
    let healthy = |_, _| "1";
    let code = |text: &str, what: &str| surveyed(text, &["--fail-on", what]).0.unwrap();
    assert_eq!(code(&table(8, healthy), "suspects"), Verdict::Ok);
    assert_eq!(code(&table(8, healthy), "incomplete"), Verdict::Ok);
    let one_failed = |from, to| if (from, to) == (1, 2) { "failed" } else { "1" };
    assert_eq!(code(&table(8, one_failed), "suspects"), Verdict::Ok);
    assert_eq!(code(&table(8, one_failed), "incomplete"), Verdict::Failed);
    assert_eq!(code(&table(2, healthy), "suspects"), Verdict::Inconclusive, "nothing could be named");
    assert_eq!(code(&table(8, |_, _| "failed"), "suspects"), Verdict::Inconclusive);
}

#[test]
fn both_directions_of_a_stream_are_two_cells_of_one_matrix() {
    let mut text = String::from("test,from,to,direction,workload,throughput_bits_per_s\n");
    for from in 1..=6 {
        for to in from + 1..=6 {
            let speed = |sender| if sender == 4 { 80.0 } else { 100.0 };
            let noise = f64::from((from * 3 + to * 5) % 7) / 10.0;
            writeln!(text, "t,h{from},h{to},forward,tcp_duplex,{}", speed(from) + noise).unwrap();
            writeln!(text, "t,h{from},h{to},reverse,tcp_duplex,{}", speed(to) - noise).unwrap();
            writeln!(text, "t,h{from},h{to},both,tcp_duplex,{}", speed(from) + speed(to)).unwrap();
        }
    }
    let (_, found) = surveyed(&text, &["--format", "text"]);
    assert!(found.contains("· 30 pairs\n") && found.contains("\n1 suspect:\nh4 is slow as a sender: 20."), "{found}");
}

#[test]
fn swept_values_and_members_are_surveys_of_their_own() {
    let mut text = String::from("test,from,to,member,workload,axis_streams,latency_p50_us\n");
    for (member, streams, slow) in [("", 1, 2), ("", 4, 0), ("a", 8, 0), ("b", 8, 3)] {
        for from in 1..=5 {
            for to in (1..=5).filter(|to| *to != from) {
                let base = if from == slow || to == slow { 150.0 } else { 100.0 };
                let noise = f64::from((from * 3 + to * 5) % 7) / 10.0;
                writeln!(text, "t,h{from},h{to},{member},tcp_rr,{streams},{}", base + noise).unwrap();
            }
        }
    }
    let (_, found) = surveyed(&text, &["--format", "text", "-m", "latency.p50"]);
    for title in ["t[streams=1]: latency.p50", "t[streams=4]", "t[streams=8,member=a]", "t[streams=8,member=b]"] {
        assert!(found.contains(title), "{title}: {found}");
    }
    assert_eq!(found.matches("1 suspect:").count(), 2, "{found}");
    assert!(found.contains("h2 is slow in both directions: 4") && found.contains("% above the others"), "{found}");
    let (_, table) = surveyed(&text, &[]);
    assert!(table.starts_with("test,axis_streams,member,metric,finding"), "{table}");
}

/// Keys with a column of their own have no axis column.
#[test]
fn swept_streams_and_sizes_are_surveys_of_their_own() {
    let mut text = String::from("test,from,to,workload,streams,message_bytes,throughput_bits_per_s\n");
    for (streams, size, slow) in [(1, 64, 2), (4, 64, 0), (1, 1024, 0), (4, 1024, 3)] {
        for from in 1..=5 {
            for to in (1..=5).filter(|to| *to != from) {
                let base = if from == slow || to == slow { 50.0 } else { 100.0 };
                let noise = f64::from((from * 3 + to * 5) % 7) / 10.0;
                writeln!(text, "t,h{from},h{to},tcp_stream,{streams},{size},{}", base + noise).unwrap();
            }
        }
    }
    let (_, found) = surveyed(&text, &["--format", "text"]);
    let titles =
        [(1, 64), (4, 64), (1, 1024), (4, 1024)].map(|(n, size)| format!("t[streams={n},message_bytes={size}]: "));
    assert!(titles.iter().all(|title| found.contains(title)), "{found}");
    assert_eq!(found.matches("1 suspect:").count(), 2, "{found}");
    let (_, table) = surveyed(&text, &[]);
    assert!(table.starts_with("test,streams,message_bytes,metric,finding"), "{table}");
    // A single value of each does not tell cases apart.
    let one: String =
        text.lines().filter(|l| l.contains("streams") || l.contains(",1,64,")).map(|l| l.to_owned() + "\n").collect();
    assert!(surveyed(&one, &[]).1.starts_with("test,metric,finding"));
}

#[test]
fn members_with_a_pair_each_are_the_pairs_of_one_load() {
    let mut text = String::from("test,from,to,member,workload,throughput_bits_per_s\nt,,,,,999\n");
    for from in 2..=12 {
        let speed = if from == 9 { 50.0 } else { 100.0 + f64::from(from * 7 % 5) / 10.0 };
        writeln!(text, "t,h{from},h1,h{from}-h1,tcp_stream,{speed}").unwrap();
    }
    let (_, found) = surveyed(&text, &["--format", "text"]);
    assert!(found.contains("1 suspect:\nh9>h1 is slow: 50."), "{found}");
    assert!(
        found.contains("slow hosts cannot be told from slow links") || found.contains("judged as links"),
        "{found}"
    );
}

#[test]
fn what_cannot_be_surveyed_is_refused() {
    let error = |text: &str, options: &[&str]| surveyed(text, options).0.unwrap_err().to_string();
    let one = "test,from,to,throughput_bits_per_s\nt,a,b,1\nt,a,a,3\n";
    assert!(error(one, &[]).contains("a survey is a test with `pairs`"));
    assert!(error("test,throughput_bits_per_s\nt,1\n", &[]).contains("there is no column `from`"));
    let zero = "test,from,to,retransmits\nt,a,b,0\nt,b,a,2\nt,a,c,1\n";
    assert!(error(zero, &["-m", "retransmits"]).contains("takes a metric that is above 0"));
    let sizes = "test,from,to,message_bytes\nt,a,b,1\nt,b,a,2\n";
    assert!(error(sizes, &["-m", "message_size"]).contains("nothing can be slow"));
    let many = (0..2100).fold("test,axis_from,from,to,throughput_bits_per_s\n".to_owned(), |mut text, i| {
        writeln!(text, "t,a{i},a{i},b{i},1").unwrap();
        text
    });
    assert!(error(&many, &[]).contains("the table has 4200 hosts, and a survey has at most 4096"));
}

#[test]
fn a_load_that_adds_nothing_leaves_the_latency_itself_to_compare() {
    let mut text = String::from("test,from,to,workload,latency_p50_us,added_latency_p50_us\n");
    for (from, to) in (1..=6).flat_map(|from| (1..=6).filter(move |to| *to != from).map(move |to| (from, to))) {
        writeln!(text, "t,n{from},n{to},udp_rr,{},{}", 100 + from, from - 3).unwrap();
    }
    let metric = |text: String| {
        let read = survey::read(&mut Table::from_text("t", text).unwrap(), &Selection::default(), None);
        read.unwrap().remove(0).metric.name
    };
    assert_eq!(metric(text.clone()), "latency.p50");
    assert_eq!(
        metric(text.replace(",-2\n", ",4\n").replace(",-1\n", ",5\n").replace(",0\n", ",6\n")),
        "added_latency.p50"
    );
}

#[test]
fn pairs_that_a_signal_kept_from_being_measured_are_missing() {
    // So few pairs that nothing but these rows tells what else was to be measured.
    let text = "test,from,to,workload,record,status,error,message_bytes,throughput_bits_per_s\n\
                t,n2,n3,tcp_stream,iteration,ok,,100,50\n\
                t,n3,n4,tcp_stream,iteration,ok,,100,50\n\
                t,n4,n3,tcp_stream,iteration,ok,,100,50\n\
                t,n2,n1,tcp_stream,iteration,failed,no route,100,\n\
                t,n1,n2,tcp_stream,iteration,cut,interrupted by SIGINT after 638 ms,100,7\n\
                t,n1,n2,tcp_stream,summary,skipped,interrupted by SIGINT after 638 ms,,\n\
                t,n1,n3,tcp_stream,summary,skipped,interrupted by SIGINT before it ran,,\n";
    let mut read = survey::read(&mut Table::from_text("t", text).unwrap(), &Selection::default(), None).unwrap();
    assert_eq!(read.len(), 1, "one survey, of one size");
    let judged = Judged::of(read.remove(0));
    assert_eq!((&judged.found.missing[..], &judged.found.failed[..]), (&[(0, 1), (0, 2)][..], &[(1, 0)][..]));
}

#[test]
fn a_narrow_terminal_gets_a_table_of_hosts() {
    let args: Args = parsed(["survey"]).unwrap();
    let mut input = Table::from_text("t", table(10, slow)).unwrap();
    let pairs = survey::read(&mut input, &args.tables.selection, None).unwrap().remove(0);
    let judged = Judged::of(pairs);
    let printed = |width| {
        let mut out = Vec::new();
        judged.text("t").write(false, &Sheet { width, ..Sheet::PLAIN }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let narrow = printed(Some(80));
    assert!(narrow.contains("worse from it"), "{narrow}");
    assert!(narrow.lines().any(|l| l.starts_with("node7") && l.contains(" 10.0 %")), "{narrow}");
    assert!(printed(Some(120)).contains("from \\ to"));
}

/// Six healthy hosts, three iterations a pair, with cells of one pair.
fn iterations(of_pair: [(&str, &str); 3]) -> String {
    let mut text = String::from("test,iteration,from,to,workload,throughput_bits_per_s,cpu_taken_ratio\n");
    for (from, to) in (1..=6).flat_map(|from| (1..=6).filter(move |to| *to != from).map(move |to| (from, to))) {
        for (i, (rate, taken)) in of_pair.iter().enumerate() {
            let noise = ((from * 13 + to * 29 + i * 17 + from * to * 7) % 11) as f64 / 20.0;
            let healthy = (95.5 + noise).to_string();
            let (rate, taken) = if (from, to) == (2, 5) { (*rate, *taken) } else { (healthy.as_str(), "0.01") };
            writeln!(text, "links,{},n{from},n{to},tcp_stream,{rate}e6,{taken}", i + 1).unwrap();
        }
    }
    text
}

#[test]
fn a_link_with_one_iteration_at_full_speed_is_not_slow() {
    let told = |cells| surveyed(&iterations(cells), &["-f", "text"]).1;
    let slow = told([("85.4", "0"), ("85.6", "0"), ("85.1", "0")]);
    assert!(slow.contains("n2>n5 is slow: 10."), "{slow}");
    let disturbed = told([("85.4", "0"), ("95.8", "0"), ("85.1", "0")]);
    assert!(disturbed.contains("No suspects."), "{disturbed}");
    // Also where others took a CPU from the fast one.
    let disturbed = told([("85.4", "0"), ("95.8", "0.5"), ("85.1", "0")]);
    assert!(disturbed.contains("No suspects."), "{disturbed}");
}

#[test]
fn noise_that_would_hide_a_slow_host_proves_nothing() {
    let mut text = String::from("test,from,to,workload,transactions_per_s\n");
    let rates = [13_300, 2_450, 830, 8_580, 940, 17_400, 930, 21_400, 600, 9_530, 1_510, 11_500];
    let pairs = (1..=4).flat_map(|from| (1..=4).filter(move |to| *to != from).map(move |to| (from, to)));
    for ((from, to), rate) in pairs.zip(rates) {
        writeln!(text, "rtt,n{from},n{to},tcp_rr,{rate}").unwrap();
    }
    let (verdict, told) = surveyed(&text, &["-f", "text", "--fail-on", "suspects"]);
    assert_eq!(verdict.unwrap(), Verdict::Inconclusive, "{told}");
    assert!(
        told.contains("\nNo answer: so much noise would hide a host or link at half of the speed")
            && !told.contains("No suspects"),
        "{told}"
    );
}

#[test]
fn a_pair_that_failed_in_an_iteration_is_named() {
    let mut text =
        iterations([("95.5", "0"), ("95.6", "0"), ("95.7", "0")]).replace("taken_ratio\n", "taken_ratio,status\n");
    text.push_str("links,4,n2,n5,tcp_stream,,,failed\n");
    let text = text.lines().map(|line| format!("{line}{}\n", if line.matches(',').count() == 6 { "," } else { "" }));
    let told = surveyed(&text.collect::<String>(), &["-f", "text"]).1;
    assert!(told.contains("1 pair failed in an iteration (judged by the others): n2>n5"), "{told}");
}

#[test]
fn what_others_disturbed_is_told_apart() {
    let told = |cells| surveyed(&iterations(cells), &["-f", "text", "--fail-on", "incomplete"]);
    let (verdict, text) = told([("85.4", "0.6"), ("85.6", "0.3"), ("85.1", "0.2")]);
    assert_eq!(verdict.unwrap(), Verdict::Failed);
    assert!(
        text.contains("\nNo suspects.\n")
            && text.contains("\n1 pair measured only while others took a CPU of their hosts (disturbed): n2>n5"),
        "{text}"
    );
    // The measurements without them decide.
    let (verdict, text) = told([("85.4", "0.6"), ("95.7", "0.02"), ("85.1", "0.2")]);
    assert_eq!(verdict.unwrap(), Verdict::Ok, "{text}");
    let (_, csv) = surveyed(&iterations([("85.4", "0.6"); 3]), &[]);
    assert!(csv.lines().any(|line| line.contains(",disturbed,") && line.contains(",n2,n5,")), "{csv}");
}
