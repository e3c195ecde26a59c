use super::*;
use clap::Parser;
use std::fs;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

/// A history of one series: level 100 with noise of about 1 %, 10 % lower from run `step` on.
fn history(runs: usize, step: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut text = "run_id,time,commit,machine,plan,case_id,case,metric,centre\n".to_owned();
    for run in 0..runs {
        let noise = [0.3, -1.2, 0.8, 1.1, -0.4, -0.9, 0.6][run * 5 % 7];
        let level = if run >= step { 90.0 } else { 100.0 };
        text +=
            &format!("r{run},2026-01-01T00:{run:02}:00Z,{run:07x},m1,nightly,c1,bulk,throughput,{}\n", level + noise);
    }
    fs::create_dir(dir.path().join("nightly")).unwrap();
    fs::write(dir.path().join("nightly/m1.csv"), text).unwrap();
    dir
}

fn args_of(dir: &tempfile::TempDir, words: &[&str]) -> Args {
    let path = dir.path().to_str().unwrap();
    Program::parse_from(["plumb", path, "--repository", path].iter().chain(words)).args
}

fn trend_of(dir: &tempfile::TempDir, words: &[&str]) -> (Result<Verdict, Error>, String) {
    let mut output = Vec::new();
    let verdict = run(&args_of(dir, words), &mut output);
    (verdict, String::from_utf8(output).unwrap())
}

#[test]
fn a_recent_regression_fails_and_an_old_one_does_not() {
    let dir = history(40, 36);
    let (verdict, text) = trend_of(&dir, &["--format", "text", "--fail-on", "regression"]);
    assert_eq!(verdict.unwrap(), Verdict::Failed);
    assert!(
        text.contains("regression: bulk throughput is 10 %") && text.contains("since run r36 of 2026-01-01"),
        "{text}"
    );
    assert!(text.contains("commits not known: commit 0000023 is not in the repository"), "{text}");
    let (verdict, _) = trend_of(&dir, &["--fail-on", "regression", "--within", "3"]);
    assert_eq!(verdict.unwrap(), Verdict::Ok, "it is four runs old");
    let note = |within: &str| {
        let args = args_of(&dir, &["--fail-on", "regression", "--within", within]);
        too_old(&args, &analysed::read(&args.history, &args.asked).unwrap().1)
    };
    assert_eq!(note("5"), None);
    assert!(note("3").unwrap().starts_with("1 finding from before the last 3 runs of a series"));
    let (verdict, _) = trend_of(&dir, &[]);
    assert_eq!(verdict.unwrap(), Verdict::Ok, "nothing was asked for");
}

#[test]
fn too_few_runs_are_counted_and_inconclusive() {
    let (verdict, text) = trend_of(&history(14, 7), &["--format", "text", "--fail-on", "inconclusive"]);
    assert_eq!(verdict.unwrap(), Verdict::Inconclusive);
    let (verdict, _) = trend_of(&history(14, 7), &["--fail-on", "regression"]);
    assert_eq!(verdict.unwrap(), Verdict::Ok, "a history begins with few");
    assert!(text.contains("14 runs: 6 more make the 20") && text.starts_with("Too few runs to tell"), "{text}");
}

#[test]
fn the_first_line_is_what_became_of_the_series() {
    let dir = history(40, 36);
    let mut text = "run_id,time,machine,plan,case_id,case,metric,centre\n".to_owned();
    for run in 0..40 {
        let noise = [0.3, -1.2, 0.8, 1.1, -0.4, -0.9, 0.6][run * 5 % 7];
        let base = format!("n{run},2026-01-01T00:{run:02}:00Z,m2,nightly");
        // Better at once and in two steps, without a change, and with too few runs.
        let (once, steps) = (if run < 20 { 100.0 } else { 80.0 }, [100.0, 80.0, 64.0][run / 14]);
        for (case, value) in [("rtt", once), ("tail", steps), ("calm", 100.0), ("few", 100.0)] {
            if case != "few" || run < 9 {
                text += &format!("{base},{case},{case},latency.p50,{}\n", value + noise);
            }
        }
    }
    fs::write(dir.path().join("nightly/m2.csv"), text).unwrap();
    let answer = "1 of 4 series got worse: bulk throughput, 10 % lower since run r36 of 2026-01-01 (commit 0000024). \
                  2 got better: rtt latency.p50, 20 % lower since run n20 of 2026-01-01; tail latency.p50, 20 % lower since run \
                  n28 of 2026-01-01. 1 did not change. Earlier changes: 1. Series with too few runs: 1.";
    let (_, text) = trend_of(&dir, &["--format", "text"]);
    assert_eq!(text.lines().next(), Some(answer), "{text}");
    let (_, text) = trend_of(&dir, &["--format", "md"]);
    assert_eq!(text.lines().next().unwrap(), format!("**{answer}**"), "{text}");
}

#[test]
fn an_accepted_change_is_told_until_it_grows() {
    let dir = history(40, 36);
    let accept = |ratio: &str, reason: &str| {
        let head = "case_id,member,direction,metric,run_id,change_ratio,reason,date";
        fs::write(
            dir.path().join("accepted.csv"),
            format!("{head}\nc1,,,throughput,r36,{ratio},{reason},2026-02-01\n"),
        )
        .unwrap();
        trend_of(&dir, &["--format", "text", "--fail-on", "regression"])
    };
    let (verdict, text) = accept("-0.1", "checksums are on");
    assert_eq!(verdict.unwrap(), Verdict::Ok);
    assert!(text.contains("accepted: bulk") && text.contains("accepted 2026-02-01: checksums are on"), "{text}");
    assert_eq!(accept("-0.05", "checksums are on").0.unwrap(), Verdict::Failed, "it has grown");
    assert_eq!(accept("0.1", "checksums are on").0.unwrap(), Verdict::Failed, "the other way");
    let error = accept("-0.1", "").0.unwrap_err().to_string();
    assert!(error.contains("accepted.csv:2") && error.contains("needs a `reason`"), "{error}");
}

#[test]
fn the_table_has_a_row_for_the_level_and_one_for_each_finding() {
    let (_, text) = trend_of(&history(40, 30), &[]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let cell = |row: usize, name: &str| rows[row][header.iter().position(|h| h == name).unwrap()].to_owned();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!((cell(0, "finding"), cell(0, "run_id")), ("level".to_owned(), "r39".to_owned()));
    assert_eq!(
        (cell(1, "finding"), cell(1, "run_id"), cell(1, "run_before")),
        ("change".into(), "r30".into(), "r29".into())
    );
    assert_eq!((cell(1, "worse"), cell(1, "runs_since")), ("true".to_owned(), "10".to_owned()));
    let number = |row, name: &str| cell(row, name).parse::<f64>().unwrap();
    assert!((number(1, "change_ratio") + 0.1).abs() < 0.01);
    assert!(
        number(1, "ci_low_ratio") < number(1, "change_ratio") && number(1, "change_ratio") < number(1, "ci_high_ratio")
    );
    assert!((number(0, "is") - 90.0).abs() < 1.0 && number(0, "noise_ratio") < 0.02);
}

#[test]
fn markdown_names_commits_that_git_knows() {
    if !crate::needs::has_program("git", "git") {
        return;
    }
    let dir = history(40, 36);
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@example.org", "-C"])
            .arg(dir.path())
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let before = git(&["rev-parse", "HEAD"]);
    git(&["commit", "-q", "--allow-empty", "-m", "copy every packet twice"]);
    let after = git(&["rev-parse", "HEAD"]);
    let path = dir.path().join("nightly/m1.csv");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace(",0000023,", &format!(",{before},")).replace(",0000024,", &format!(",{after},"));
    fs::write(&path, text).unwrap();
    let (_, text) = trend_of(&dir, &["--format", "md"]);
    assert!(text.contains("- **regression**: bulk throughput") && text.contains(" copy every packet twice"), "{text}");
    assert!(!text.contains(" first\n"), "{text}");
}

#[test]
fn annotations_name_the_line_of_the_first_run() {
    let dir = history(40, 36);
    let path = dir.path().to_str().unwrap();
    let annotated = |words: &[&str]| {
        let args = Program::parse_from(["plumb", path, "--repository", path].iter().chain(words)).args;
        let (reading, analysed) = analysed::read(&args.history, &args.asked).unwrap();
        let mut output = Vec::new();
        write(&args, &reading, &analysed, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    };
    // The header is line 1, and run r0 line 2.
    let start = format!("{path}/nightly/m1.csv,line=38::bulk throughput is 10");
    let text = annotated(&["--fail-on", "regression"]);
    assert!(text.starts_with(&format!("::error file={start}")) && text.lines().count() == 1, "{text}");
    assert!(text.contains("%25 ") && text.contains("%0Acommits not known: commit 0000023"), "{text}");
    assert!(annotated(&[]).starts_with(&format!("::warning file={start}")));
    assert!(annotated(&["--fail-on", "regression", "--within", "3"]).starts_with("::warning "));
    assert_eq!(annotated(&["--min-effect", "50%"]), "");
}

/// A history of one series of these values, and of the share of a CPU that others took from some runs.
fn history_of(values: &[f64], taken: &[(usize, f64)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut text = "run_id,time,machine,plan,case_id,case,metric,centre\n".to_owned();
    let all = values.iter().copied().enumerate().map(|(run, value)| (run, "latency.p50", value));
    for (run, metric, value) in all.chain(taken.iter().map(|(run, share)| (*run, "cpu.taken", *share))) {
        text += &format!("r{run},2026-01-01T00:{run:02}:00Z,m1,nightly,c1,rtt,{metric},{value:e}\n");
    }
    fs::write(dir.path().join("m1.csv"), text).unwrap();
    dir
}

#[test]
fn what_neighbours_slowed_is_no_level() {
    // Twelve runs at twice the round trip while others took a third of the CPU, then thirty without them.
    let noise = |run: usize| [0.3, -1.2, 0.8, 1.1, -0.4, -0.9, 0.6][run * 5 % 7];
    let values: Vec<f64> = (0..42).map(|run| if run < 12 { 200.0 } else { 100.0 } + noise(run)).collect();
    let (_, text) = trend_of(&history_of(&values, &[]), &["--format", "text"]);
    assert!(text.contains("improvement: rtt latency.p50"), "{text}");
    let taken: Vec<(usize, f64)> = (0..12).map(|run| (run, 0.34)).collect();
    let (_, text) = trend_of(&history_of(&values, &taken), &["--format", "text"]);
    assert!(
        text.starts_with("No change in 1 series.\n\n")
            && text.contains("12 runs are left out: others took a CPU meanwhile"),
        "{text}"
    );
    assert!(!text.contains("rtt cpu.taken"), "{text}");
    let (_, text) = trend_of(&history_of(&values, &taken), &["--format", "text", "--metric", "cpu.taken"]);
    assert!(text.contains("rtt cpu.taken"), "{text}");
}

#[test]
fn a_level_of_0_is_left_by_no_ratio() {
    let values: Vec<f64> = (0..40).map(|run| if run < 20 { 0.0 } else { 50.0 }).collect();
    let history = history_of(&values, &[]);
    let (_, text) = trend_of(&history, &["--format", "text"]);
    assert!(text.contains("rtt latency.p50, higher since run r20 of ") && !text.contains("  higher"), "{text}");
    assert!(text.contains("regression: rtt latency.p50 is higher: 0 s before, 50.0 µs since; p "), "{text}");
}

#[test]
fn a_series_whose_last_run_is_left_out_has_not_ended() {
    let values = [100.0; 30];
    let history = history_of(&values, &[(29, 0.34)]);
    let mut rows = fs::OpenOptions::new().append(true).open(history.path().join("m1.csv")).unwrap();
    writeln!(rows, "r29,2026-01-01T00:29:00Z,m1,nightly,c2,other,latency.p50,100").unwrap();
    let (_, text) = trend_of(&history, &["--format", "text"]);
    assert!(text.contains("1 run is left out") && !text.contains("no value since"), "{text}");
}

#[test]
fn levels_of_any_size_are_judged_alike() {
    let noise = |run: usize| [0.003, -0.012, 0.008, 0.011, -0.004, -0.009, 0.006][run * 5 % 7];
    for unit in [1.0, 1e308, 1e-300] {
        let values: Vec<f64> = (0..40).map(|run| unit * (if run < 20 { 1.0 } else { 1.5 } + noise(run))).collect();
        let (_, text) = trend_of(&history_of(&values, &[]), &["--format", "csv"]);
        let change = text.lines().find(|line| line.starts_with("change,")).unwrap_or_else(|| panic!("{unit}: {text}"));
        assert!(change.contains(",r20,") && change.contains(",true,"), "{change}");
    }
    let alternating: Vec<f64> = (0..40).map(|run| if run % 2 == 0 { 1e308 } else { -1e308 }).collect();
    assert!(trend_of(&history_of(&alternating, &[]), &["--format", "text"]).0.is_ok());
}
