use schemas::columns::Timestamp;

use super::*;

fn row(run: &str, case: &str, centre: f64) -> HistoryRow {
    let text = |text: &str| Some(text.to_owned());
    HistoryRow {
        run_id: text(run),
        time: Some(Timestamp(format!("2026-01-0{}T00:00:00Z", run.len()))),
        commit: text("0123456789ab"),
        machine: text("m1"),
        plan: text("nightly"),
        case_id: text(case),
        case: Some(format!("bulk[a=1,b=\"{case}\"]")),
        metric: text("throughput"),
        n: Some(5),
        centre: Some(centre),
        ..HistoryRow::default()
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("nightly/m1.csv")
}

fn points(reading: &Reading) -> Vec<f64> {
    reading.series().iter().flat_map(|series| series.points.iter().map(|point| point.centre)).collect()
}

fn add(folder: &tempfile::TempDir, run: &str, centre: f64) -> (Appended, Vec<String>) {
    append(folder.path(), &[row(run, "c1", centre)]).unwrap()
}

#[test]
fn what_was_appended_is_read_back_and_a_run_is_added_once() {
    let dir = folder();
    assert_eq!(add(&dir, "r", 1.5).0, Appended::Rows(vec![file(&dir)]));
    add(&dir, "rr", 2.5);
    assert_eq!(add(&dir, "r", 9.0).0, Appended::Known(file(&dir)));
    let reading = read(dir.path(), false).unwrap();
    assert_eq!(points(&reading), [1.5, 2.5]);
    assert_eq!(reading.series()[0].case, "bulk[a=1,b=\"c1\"]");
    assert_eq!(reading.runs[0].commit, "0123456789ab");
    assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    assert_eq!(fs::read_to_string(dir.path().join(".gitattributes")).unwrap(), ATTRIBUTES);
    assert_eq!(fs::read_to_string(file(&dir)).unwrap().lines().count(), 3, "one header");
}

#[test]
fn a_line_that_was_cut_off_is_named_and_left_out_on_request() {
    let dir = folder();
    add(&dir, "r", 1.0);
    add(&dir, "rr", 2.0);
    let whole = fs::read_to_string(file(&dir)).unwrap();
    // Within the quoted name of the case.
    fs::write(file(&dir), &whole[..whole.rfind("b=").unwrap()]).unwrap();
    let (_, notes) = add(&dir, "rrr", 3.0);
    assert!(notes[0].contains("was cut off"), "{notes:?}");
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:3: the line was cut off") && error.contains("--repair"), "{error}");
    let reading = read(dir.path(), true).unwrap();
    assert_eq!(points(&reading), [1.0, 3.0], "what follows is kept");
    assert!(reading.notes[0].contains("m1.csv:3"), "{:?}", reading.notes);
}

#[test]
fn marks_of_a_merge_are_an_error_and_lines_of_both_sides_count_once() {
    let dir = folder();
    add(&dir, "r", 1.0);
    add(&dir, "rr", 2.0);
    let whole = fs::read_to_string(file(&dir)).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let [header, first, second] = lines.as_slice() else { panic!("{whole}") };
    // Both sides began the file: two headers, and a run on both.
    fs::write(file(&dir), format!("{header}\n{second}\n{header}\n{first}\n{second}\n")).unwrap();
    let reading = read(dir.path(), false).unwrap();
    assert_eq!(points(&reading), [1.0, 2.0], "in the order of time");
    assert!(reading.notes[0].contains("m1.csv:4: this run began before"), "{:?}", reading.notes);
    fs::write(file(&dir), format!("{header}\n<<<<<<< HEAD\n{first}\n=======\n{second}\n>>>>>>> other\n")).unwrap();
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:2: a merge conflict"), "{error}");
    assert_eq!(points(&read(dir.path(), true).unwrap()), [1.0, 2.0]);
}

#[test]
fn lines_of_another_version_follow_under_their_own_header() {
    let dir = folder();
    fs::create_dir_all(file(&dir).parent().unwrap()).unwrap();
    let old = "run_id,time,machine,plan,case_id,metric,centre,colour\nr,2026-01-01T00:00:00Z,m1,nightly,c1,throughput,1,red\n";
    fs::write(file(&dir), old).unwrap();
    add(&dir, "rr", 2.0);
    assert!(fs::read_to_string(file(&dir)).unwrap().starts_with(old), "the old lines stay");
    assert_eq!(points(&read(dir.path(), false).unwrap()), [1.0, 2.0]);
    fs::write(file(&dir), "run_id,value\nr,1\n").unwrap();
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:1") && error.contains("no column `time`"), "{error}");
}

#[test]
fn a_wrong_number_or_no_history_is_told_with_its_place() {
    let dir = folder();
    assert!(read(dir.path(), false).unwrap_err().to_string().contains("has no history"));
    add(&dir, "r", 1.0);
    let wrong = fs::read_to_string(file(&dir)).unwrap().replace(",1,,,", ",fast,,,");
    fs::write(file(&dir), wrong).unwrap();
    let error = read(dir.path(), true).unwrap_err().to_string();
    assert!(error.contains("m1.csv:2") && error.contains("`centre`: `fast` is not a number"), "{error}");
    fs::write(file(&dir), "r,1\n").unwrap();
    assert!(read(dir.path(), false).unwrap_err().to_string().contains("the header is missing"));
}

#[test]
fn machines_have_series_of_their_own_also_in_one_file() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let mut other = row("rr", "c1", 2.0);
    other.machine = Some("m2".to_owned());
    append(dir.path(), &[other]).unwrap();
    let second = dir.path().join("nightly/m2.csv");
    let text = fs::read_to_string(&second).unwrap();
    fs::write(file(&dir), fs::read_to_string(file(&dir)).unwrap() + text.lines().nth(1).unwrap() + "\n").unwrap();
    fs::remove_file(second).unwrap();
    let reading = read(dir.path(), false).unwrap();
    assert_eq!(reading.series().len(), 2);
    assert!(reading.notes[0].contains("m1.csv:3: the file has rows of another machine"), "{:?}", reading.notes);
}

#[test]
fn names_that_are_no_file_names_become_some() {
    let mut odd = row("r", "c1", 1.0);
    odd.plan = Some("../a b/ä".to_owned());
    assert_eq!(file_of(Path::new("h"), &odd), Path::new("h/_a_b_ä/m1.csv"));
    odd.plan = None;
    assert_eq!(file_of(Path::new("h"), &odd), Path::new("h/unknown/m1.csv"));
}

proptest::proptest! {
    #[test]
    fn cells_come_back(cells in proptest::collection::vec("[ -~äµ]{0,12}", 1..6)) {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                line.push(',');
            }
            push_cell(&mut line, cell);
        }
        let mut back = Vec::new();
        proptest::prop_assert!(split(&line, &mut back));
        proptest::prop_assert_eq!(back, cells);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(run_id,time,machine,case_id,metric,centre\n)?[ -~\n\",]{0,200}") {
        for repair in [false, true] {
            let _ = read_file(Path::new("x"), &text, repair, &mut Reading::default());
        }
    }
}
