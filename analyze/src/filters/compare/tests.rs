use super::*;
use crate::{judge::samples::Samples, table::Table};
use std::{fmt::Write as _, fs, path::Path};

const HEADER: &str = "run_id,case_id,case,member,direction,record,iteration,phase,status,time,elapsed_s,workload,\
    throughput_bits_per_s,transactions_per_s,axis_socket_congestion_control\n";

/// A row per iteration of one case. `at` places it within its round.
struct Rows<'a> {
    run: &'a str,
    id: &'a str,
    case: &'a str,
    member: &'a str,
    direction: &'a str,
    workload: &'a str,
    congestion: &'a str,
    at: u32,
}

const BULK: Rows<'static> = Rows {
    run: "r1",
    id: "c1",
    case: "bulk",
    member: "",
    direction: "forward",
    workload: "tcp_stream",
    congestion: "",
    at: 0,
};

impl Rows<'_> {
    fn of(&self, values: impl IntoIterator<Item = f64>) -> String {
        let Self { run, id, case, member, direction, workload, congestion, at } = self;
        let mut text = String::new();
        for (i, value) in values.into_iter().enumerate() {
            let (throughput, transactions) =
                if workload.ends_with("_rr") { (value * 8.0, value.to_string()) } else { (value, String::new()) };
            writeln!(
                text,
                "{run},{id},\"{case}\",{member},{direction},iteration,{},measure,ok,2026-01-01T00:{i:02}:{at:02}Z,0.4,\
                 {workload},{throughput},{transactions},{congestion}",
                i + 1
            )
            .unwrap();
        }
        text
    }
}

/// Ten different values around a mean.
fn around(mean: f64) -> Vec<f64> {
    [0.3, -0.8, 0.9, -0.1, -0.5, 0.6, 0.1, -0.3, 0.8, -0.9].iter().map(|x| mean * (1.0 + x / 100.0)).collect()
}

/// The same in another order, so that rounds differ.
fn other(mean: f64) -> Vec<f64> {
    let mut values = around(mean);
    values.rotate_left(3);
    values
}

/// Both sides of a run grow by 4 % from round to round.
fn drifting(values: &[f64]) -> Vec<f64> {
    values.iter().enumerate().map(|(i, v)| v * (1.0 + i as f64 * 0.04)).collect()
}

fn compared(folder: &Path, arguments: &[&str]) -> Result<(String, Verdict), Error> {
    let arguments =
        arguments.iter().map(|a| if is_table(a) { folder.join(a).display().to_string() } else { (*a).to_owned() });
    let words = std::iter::once("compare".to_owned()).chain(arguments).chain(["-f".into(), "text".into()]);
    let args = parsed(words).map_err(|e| Error::Usage(e.to_string()))?;
    let mut out = Vec::new();
    let verdict = run(&args, &mut out)?;
    Ok((String::from_utf8(out).unwrap(), verdict))
}

fn is_table(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "csv")
}

fn folder(files: &[(&str, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let text = if is_table(name) { format!("{HEADER}{text}") } else { text.clone() };
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Lines that say so.
fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn requests_are_judged_once_and_by_their_transactions() {
    let rr = Rows { case: "rtt", workload: "tcp_rr", ..BULK };
    let folder = folder(&[("a.csv", rr.of(around(100.0))), ("b.csv", Rows { run: "r2", ..rr }.of(other(90.0)))]);
    let (text, _) = compared(folder.path(), &["a.csv", "b.csv"]).unwrap();
    assert_eq!((count(&text, "regression"), count(&text, "100 /s")), (1, 1), "{text}");
}

#[test]
fn two_values_of_a_setting_are_compared_round_by_round() {
    let cubic = Rows { case: "bulk[streams=1,socket.congestion_control=cubic]", congestion: "cubic", ..BULK };
    let bbr =
        Rows { id: "c2", case: "bulk[streams=1,socket.congestion_control=bbr]", congestion: "bbr", at: 30, ..BULK };
    let text = cubic.of(drifting(&around(100.0))) + &bbr.of(drifting(&other(95.0)));
    let folder = folder(&[("r.csv", text)]);
    let by = ["--by", "axis_socket_congestion_control", "r.csv"];
    let (text, _) = compared(folder.path(), &by).unwrap();
    assert!(text.contains("bulk[1 stream]") && count(&text, "regression") == 1, "{text}");
    assert!(text.contains("cubic → bbr") && text.contains("compared round by round"), "{text}");
    let (unpaired, _) = compared(folder.path(), &[&by[..], &["--unpaired"]].concat()).unwrap();
    assert!(count(&unpaired, "  inconclusive") == 1 && unpaired.contains("both sides in turns"), "{unpaired}");
    // The other way round it is an improvement.
    let (text, _) = compared(folder.path(), &[&by[..], &["--base-value", "bbr"]].concat()).unwrap();
    assert!(text.contains("bbr → cubic") && count(&text, "improvement") == 1, "{text}");
    let error = compared(folder.path(), &[&by[..], &["--base-value", "reno"]].concat()).unwrap_err().to_string();
    assert!(error.contains("cubic, bbr"), "{error}");
    let error = compared(folder.path(), &["--by", "workload", "r.csv"]).unwrap_err().to_string();
    assert!(error.contains("every row has tcp_stream"), "{error}");
}

#[test]
fn each_value_is_compared_with_the_first() {
    let of = |id, congestion, mean| {
        let case = format!("bulk[socket.congestion_control={congestion}]");
        Rows { id, case: &case, congestion, ..BULK }.of(around(mean))
    };
    let folder = folder(&[("r.csv", of("c1", "cubic", 100.0) + &of("c2", "bbr", 90.0) + &of("c3", "reno", 100.1))]);
    let (text, _) = compared(folder.path(), &["--by", "axis_socket_congestion_control", "r.csv"]).unwrap();
    assert!(text.contains("cubic → bbr") && text.contains("cubic → reno"), "{text}");
    assert_eq!((count(&text, "regression"), count(&text, "  ~")), (1, 1), "{text}");
    assert!(text.contains("axis_socket_congestion_control: against cubic"), "{text}");
}

/// Another test's values are not missing in this one, and a test with one value has nothing to be compared with.
#[test]
fn each_test_has_a_first_value_of_its_own() {
    let of = |id, test, workload, mean| {
        let case = format!("{test}[workload={workload}]");
        Rows { id, case: &case, workload, ..BULK }.of(around(mean))
    };
    let text = of("c1", "bulk", "tcp_stream", 100.0)
        + &of("c2", "bulk", "tls_stream", 50.0)
        + &of("c3", "trips", "tcp_rr", 100.0)
        + &of("c4", "trips", "tls_rr", 99.9)
        + &of("c5", "alone", "tcp_crr", 10.0);
    let folder = folder(&[("r.csv", text)]);
    let (text, _) = compared(folder.path(), &["--by", "workload", "r.csv"]).unwrap();
    assert!(text.contains("tcp_stream → tls_stream") && text.contains("tcp_rr → tls_rr"), "{text}");
    assert!(count(&text, "regression") == 1 && count(&text, "missing") == 0, "{text}");
    assert!(text.contains("workload: against tcp_stream, tcp_rr"), "{text}");
    assert!(text.contains("not compared, with one value: alone"), "{text}");
}

#[test]
fn two_variants_that_are_tests_of_their_own_are_one_pair() {
    // The congestion control changes together with the test, and keeps nothing apart.
    let a = Rows { case: "old[streams=4]", congestion: "cubic", ..BULK };
    let b = Rows { id: "c2", case: "new[streams=4]", congestion: "bbr", at: 30, ..BULK };
    let folder = folder(&[("r.csv", a.of(around(100.0)) + &b.of(other(95.0)))]);
    let (text, _) = compared(folder.path(), &["--by", "axis_socket_congestion_control", "r.csv"]).unwrap();
    assert!(
        count(&text, "regression") == 1 && text.contains("[streams=4]") && text.contains("and with it test"),
        "{text}"
    );
}

#[test]
fn members_and_directions_find_their_partners() {
    let of = |member, direction, at, mean| Rows { member, direction, at, ..BULK }.of(around(mean));
    let text = of("up", "forward", 0, 100.0) + &of("down", "reverse", 0, 90.0) + &of("", "both", 0, 190.0);
    let folder = folder(&[("r.csv", text)]);
    for by in ["member", "direction"] {
        let (text, _) = compared(folder.path(), &["--by", by, "r.csv"]).unwrap();
        assert!(count(&text, "regression") == 1 && count(&text, "missing") == 0, "{by}: {text}");
    }
    let (text, _) = compared(folder.path(), &["r.csv", "r.csv"]).unwrap();
    assert!(text.contains("bulk up") && text.contains("bulk down"), "{text}");
}

#[test]
fn files_that_differ_in_one_setting_are_paired_by_the_rest() {
    let of = |run, id, streams, congestion, mean| {
        let case = format!("bulk[streams={streams},socket.congestion_control={congestion}]");
        Rows { run, id, case: &case, congestion, ..BULK }.of(around(mean))
    };
    let a = of("r1", "c1", 1, "cubic", 100.0) + &of("r1", "c2", 4, "cubic", 200.0);
    let b = of("r2", "c3", 1, "bbr", 90.0) + &of("r2", "c4", 4, "bbr", 180.0);
    let folder = folder(&[("a.csv", a), ("b.csv", b)]);
    let (text, _) = compared(folder.path(), &["a.csv", "b.csv"]).unwrap();
    assert!(text.contains("bulk[1 stream]") && text.contains("bulk[4 streams]"), "{text}");
    assert!(count(&text, "regression") == 2 && text.contains("socket.congestion_control: cubic → bbr"), "{text}");
}

#[test]
fn a_setting_outside_of_the_name_is_taken_from_the_record() {
    let record = |run: &str, id: &str, congestion: &str| {
        format!(
            r#"{{"run_id": "{run}", "cases": {{"{id}": {{"case": "bulk", "spec": {{"near": {{"socket": {{"congestion_control": "{congestion}"}}}}, "far": {{"socket": {{"congestion_control": "{congestion}"}}}}}}}}}}}}"#
        )
    };
    let folder = folder(&[
        ("a.csv", BULK.of(around(100.0))),
        ("b.csv", Rows { run: "r2", id: "c9", ..BULK }.of(around(90.0))),
        ("a.run.json", record("r1", "c1", "cubic")),
        ("b.run.json", record("r2", "c9", "bbr")),
    ]);
    let (text, _) = compared(folder.path(), &["a.csv", "b.csv"]).unwrap();
    assert!(count(&text, "regression") == 1 && count(&text, "socket.congestion_control: cubic → bbr") == 1, "{text}");
}

#[test]
fn nothing_in_common_is_an_error() {
    let folder = folder(&[
        ("a.csv", Rows { case: "a[x=1,y=1]", ..BULK }.of(around(100.0))),
        ("b.csv", Rows { run: "r2", id: "c2", case: "b[x=2,y=2]", ..BULK }.of(around(100.0))),
    ]);
    let error = compared(folder.path(), &["a.csv", "b.csv"]).unwrap_err().to_string();
    assert!(error.contains("nothing was compared") && error.contains("--by"), "{error}");
}

#[test]
fn a_case_that_was_not_measured_is_no_pass() {
    let second = Rows { case: "trips", id: "c2", workload: "tcp_rr", ..BULK };
    let both = format!("{}{}", BULK.of(around(100.0)), second.of(around(100.0)));
    let folder = folder(&[
        ("a.csv", both.clone()),
        ("b.csv", Rows { run: "r2", ..BULK }.of(other(100.0))),
        ("c.csv", Rows { run: "r3", ..BULK }.of(other(80.0))),
    ]);
    let fails = |files: [&str; 2]| compared(folder.path(), &[files[0], files[1], "--fail-on", "regression"]);
    let (text, verdict) = fails(["a.csv", "b.csv"]).unwrap();
    assert!(verdict == Verdict::Failed && text.trim_end().ends_with("not measured again: trips"), "{text}");
    // A case of which no iteration has a value is no better than one that is absent.
    let blank = |text: String| text.replace(",tcp_rr,800,100,", ",tcp_rr,,,");
    let rows = |rows: &Rows<'_>| rows.of([100.0; 10]);
    for (name, text) in [
        ("all.csv", format!("{}{}", rows(&BULK), rows(&second))),
        ("part.csv", format!("{}{}", rows(&BULK), blank(rows(&second)))),
        ("one.csv", rows(&second)),
        ("blank.csv", blank(rows(&second)).replace("r1,", "r2,")),
    ] {
        fs::write(folder.path().join(name), format!("{HEADER}{text}")).unwrap();
    }
    for files in [["all.csv", "part.csv"], ["one.csv", "blank.csv"]] {
        for (what, wanted) in [("regression", Verdict::Failed), ("change", Verdict::Failed), ("nothing", Verdict::Ok)] {
            let (text, verdict) = compared(folder.path(), &[files[0], files[1], "--fail-on", what]).unwrap();
            let is_told =
                text.contains("missing  the new side has no sample") && text.contains("not measured again: trips");
            assert!(verdict == wanted && is_told, "{what}: {text}");
        }
        // No value of the one side may be of the run of the other.
        let (text, _) = compared(folder.path(), &files).unwrap();
        assert_eq!(text.contains("of the same run"), files[0] == "all.csv", "{text}");
    }
    // A case that the baseline does not have is new.
    assert_eq!(fails(["b.csv", "a.csv"]).unwrap().1, Verdict::Ok);
    assert_eq!(fails(["a.csv", "c.csv"]).unwrap().1, Verdict::Failed);
    assert_eq!(compared(folder.path(), &["a.csv", "b.csv"]).unwrap().1, Verdict::Ok);
}

#[test]
fn rounds_need_one_run_in_turns() {
    let samples = |text: &str| {
        let mut table = Table::from_text("t", format!("{HEADER}{text}")).unwrap();
        let column = table.require("throughput").unwrap();
        Samples::read(&mut table, &crate::table::Selection::default(), &[column], None).unwrap().cases
    };
    let rounds = |a: &Rows<'_>, b: &Rows<'_>, n: usize| {
        let (a, b) = (samples(&a.of(around(1.0))), samples(&b.of(other(1.0)[..n].to_vec())));
        samples::rounds(&a[0], &b[0], 0).map(|rounds| rounds.len())
    };
    let later = Rows { id: "c2", at: 30, ..BULK };
    assert_eq!(rounds(&BULK, &later, 10), Some(10));
    // A fifth may lack a partner.
    assert_eq!((rounds(&BULK, &later, 8), rounds(&BULK, &later, 7)), (Some(8), None));
    assert_eq!(rounds(&BULK, &Rows { run: "r2", ..later }, 10), None);
    // One after the other: the second side's first iteration ends after the first side's second.
    let mut apart = samples(&later.of(other(1.0)));
    for row in &mut apart[0].rows {
        row.time = row.time.replace("2026", "2027");
    }
    assert_eq!(samples::rounds(&samples(&BULK.of(around(1.0)))[0], &apart[0], 0), None);
}

#[test]
fn what_others_disturbed_on_one_side_is_inconclusive() {
    let rr = Rows { case: "rtt", workload: "tcp_rr", ..BULK };
    // The same rows with the share of a CPU that others took.
    let with = |rows: String, taken: &str| {
        let header = HEADER.trim_end();
        let lines: Vec<String> = rows.lines().map(|line| format!("{line},{taken}")).collect();
        format!("{header},cpu_taken_ratio\n{}\n", lines.join("\n"))
    };
    let dir = tempfile::tempdir().unwrap();
    let compare = |base: &str, new: &str| {
        fs::write(dir.path().join("a.csv"), with(rr.of(around(60.0)), base)).unwrap();
        fs::write(dir.path().join("b.csv"), with(Rows { run: "r2", ..rr }.of(other(100.0)), new)).unwrap();
        compared(dir.path(), &["a.csv", "b.csv"]).unwrap().0
    };
    let text = compare("0.34", "0.02");
    assert!(text.contains("inconclusive"), "{text}");
    assert!(
        text.contains("the baseline was disturbed: others took a CPU for 34 % of its time, 2.0 % of the"),
        "{text}"
    );
    let (text, _) = compared(dir.path(), &["b.csv", "a.csv"]).unwrap();
    assert!(text.contains("inconclusive") && text.contains("the new side was disturbed"), "{text}");
    // The new side would be better still without it.
    assert_eq!(count(&compare("0.02", "0.34"), "improvement"), 1);
    // Alike on both sides, or too little to matter.
    assert_eq!((count(&compare("0.34", "0.3"), "improvement"), count(&compare("0.08", "0"), "improvement")), (1, 1));
}
