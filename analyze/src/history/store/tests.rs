use super::{
    append::{ATTRIBUTES, file_of},
    *,
};
use crate::history::thin::Period;
use schemas::columns::{HistoryRow, Timestamp};

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

/// Adds a run of one row; returns how many rows were added.
fn add(folder: &tempfile::TempDir, run: &str, centre: f64) -> (usize, Vec<String>) {
    let (appended, notes) = append(folder.path(), &[row(run, "c1", centre)]).unwrap();
    assert_eq!((appended.len(), &appended[0].file), (1, &file(folder)));
    (appended[0].rows, notes)
}

#[test]
fn what_was_appended_is_read_back_and_a_run_is_added_once() {
    let dir = folder();
    assert_eq!(add(&dir, "r", 1.5).0, 1);
    add(&dir, "rr", 2.5);
    assert_eq!(add(&dir, "r", 9.0).0, 0);
    let reading = read(dir.path(), false).unwrap();
    assert_eq!(points(&reading), [1.5, 2.5]);
    assert_eq!(reading.series()[0].case, "bulk[a=1,b=\"c1\"]");
    assert_eq!(reading.runs[0].commit, "0123456789ab");
    assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    assert_eq!(fs::read_to_string(dir.path().join(".gitattributes")).unwrap(), ATTRIBUTES);
    assert_eq!(fs::read_to_string(file(&dir)).unwrap().lines().count(), 3, "one header");
}

#[test]
fn a_full_disk_leaves_neither_a_run_nor_empty_attributes() {
    let dir = folder();
    let attributes = dir.path().join(".gitattributes");
    std::os::unix::fs::symlink("/dev/full", &attributes).unwrap();
    assert!(append(dir.path(), &[row("r", "c1", 1.0)]).is_err());
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "neither rows nor attributes");
    // An empty file is what an earlier version left there.
    fs::write(&attributes, "").unwrap();
    add(&dir, "r", 1.5);
    assert_eq!(fs::read_to_string(&attributes).unwrap(), ATTRIBUTES);
}

#[test]
fn a_line_that_was_cut_off_is_named_and_left_out_on_request() {
    let dir = folder();
    add(&dir, "r", 1.0);
    add(&dir, "rr", 2.0);
    let whole = fs::read_to_string(file(&dir)).unwrap();
    // Within the last field of the last line.
    fs::write(file(&dir), &whole[..whole.len() - 1]).unwrap();
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:3: the line was cut off: it has no end"), "{error}");
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
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:2") && error.contains("`centre`: `fast` is not a number"), "{error}");
    fs::write(file(&dir), "r,1\n").unwrap();
    assert!(read(dir.path(), false).unwrap_err().to_string().contains("the header is missing"));
}

#[test]
fn machines_are_named_by_their_hosts_where_these_tell_them_apart() {
    let folder = folder();
    for (run, machine, hosts) in [("r", "m1", "lab"), ("rr", "m2", "lab"), ("rrr", "m3", "ci a"), ("rrrr", "m4", "")] {
        let [machine, hosts] = [machine, hosts].map(|text| Some(text.to_owned()));
        append(folder.path(), &[HistoryRow { machine, hosts, ..row(run, "c1", 1.0) }]).unwrap();
    }
    let reading = read(folder.path(), false).unwrap();
    assert_eq!(["m1", "m2", "m3", "m4"].map(|machine| reading.host(machine)), ["m1", "m2", "ci a", "m4"]);
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

/// The rows of one run in two files.
fn of_two_plans(run: &str) -> Vec<HistoryRow> {
    let mut second = row(run, "c1", 2.0);
    second.plan = Some("weekly".to_owned());
    vec![row(run, "c1", 1.0), second]
}

#[test]
fn rows_that_one_file_or_a_torn_line_lacks_are_added_by_the_next_try() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let (appended, _) = append(dir.path(), &of_two_plans("r")).unwrap();
    let rows: Vec<usize> = appended.iter().map(|appended| appended.rows).collect();
    assert_eq!(rows, [0, 1], "the second file had none");
    // Of three rows, a crash kept one and a half.
    let three = ["c1", "c2", "c3"].map(|case| row("rr", case, 3.0));
    append(dir.path(), &three).unwrap();
    let whole = fs::read_to_string(file(&dir)).unwrap();
    let cut = whole.rfind("c2").unwrap();
    fs::write(file(&dir), &whole[..cut]).unwrap();
    let (appended, notes) = append(dir.path(), &three).unwrap();
    assert!(appended[0].rows == 2 && notes[0].contains("was cut off"), "{appended:?} {notes:?}");
    assert_eq!(read(dir.path(), true).unwrap().series().len(), 4, "both plans, and all cases");
}

#[test]
fn a_file_that_fails_takes_back_the_rows_of_the_others() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let before = fs::read(file(&dir)).unwrap();
    // A folder stands where the second file would be.
    fs::create_dir_all(dir.path().join("weekly/m1.csv")).unwrap();
    let error = append(dir.path(), &of_two_plans("rr")).unwrap_err().to_string();
    assert!(error.contains("weekly/m1.csv"), "{error}");
    assert_eq!(fs::read(file(&dir)).unwrap(), before);
    let mut no_id = row("", "c1", 1.0);
    no_id.run_id = None;
    assert!(append(dir.path(), &[no_id]).unwrap_err().to_string().contains("has no run_id"));
}

#[test]
fn a_run_is_known_by_its_cell_and_not_by_a_label_that_names_it() {
    let dir = folder();
    let mut first = row("r", "c1", 1.0);
    first.labels = Some("after=rr because=\",rr,\"".to_owned());
    append(dir.path(), &[first]).unwrap();
    assert_eq!(add(&dir, "rr", 2.0).0, 1);
    assert_eq!(add(&dir, "rr", 2.0).0, 0);
    assert_eq!(points(&read(dir.path(), false).unwrap()), [1.0, 2.0]);
}

#[test]
fn runs_and_headers_are_found_wherever_blocks_end() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let whole = fs::read(file(&dir)).unwrap();
    let at = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let (header, line) = whole.split_at(at);
    // Blocks have 256 KiB.
    for shift in 0..80 {
        let mut text = header.to_vec();
        text.resize((256 << 10) - shift, b'x');
        text.push(b'\n');
        text.extend(header);
        text.extend(line);
        fs::write(file(&dir), &text).unwrap();
        assert_eq!(add(&dir, "r", 1.0).0, 0, "{shift}");
        add(&dir, "rr", 1.0);
        assert!(!fs::read(file(&dir)).unwrap()[text.len()..].starts_with(b"run_id"), "{shift}");
    }
}

#[test]
fn two_that_add_and_compact_at_once_lose_and_duplicate_nothing() {
    let dir = folder();
    add(&dir, "first", 1.0);
    let order = Order { before: "2030-01-01".to_owned(), keep: Period::Day, repair: false, is_dry: false };
    let mut replaced = 0;
    std::thread::scope(|scope| {
        let adding = |worker: u32| {
            let dir = &dir;
            move || {
                for run in 0..10 {
                    // Each run is added by two of them. A sample goes, so the file is replaced.
                    let mut row = row("r", "c1", 1.0);
                    row.run_id = Some(format!("run{}-{run}", worker / 2));
                    row.sample = Some("1 2 3".to_owned());
                    append(dir.path(), &[row]).unwrap();
                }
            }
        };
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(adding(worker))).collect();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let (done, _) = compact(dir.path(), &order).unwrap();
            replaced += usize::from(done[0].bytes.0 != done[0].bytes.1);
        }
    });
    assert!(replaced > 0, "no file was replaced meanwhile");
    let text = fs::read_to_string(file(&dir)).unwrap();
    let mut runs: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(runs.len(), 1 + 1 + 20, "{text}");
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), 22, "{text}");
}

/// A file of two good rows, with a line between them.
fn with_line(dir: &tempfile::TempDir, line: &[u8]) {
    for run in ["r", "rr"] {
        add(dir, run, run.len() as f64);
    }
    let whole = fs::read_to_string(file(dir)).unwrap();
    let at = whole.rfind("rr,").unwrap();
    fs::write(file(dir), [&whole.as_bytes()[..at], line, b"\n", &whole.as_bytes()[at..]].concat()).unwrap();
}

#[test]
fn each_fault_of_a_line_is_told_with_its_place_and_left_out_on_request() {
    let row = |time: &str, centre: &str| format!("x,{time},,,m1,vm,nightly,,c1,bulk,,,throughput,5,{centre},,,");
    let time = "2026-01-01T00:00:00Z";
    let long = "y".repeat(10_000_000);
    let good = row(time, "1");
    let faults: [(Vec<u8>, &str); 17] = [
        (b"x,\xff\xfe,1".to_vec(), "byte 3 of the line is not UTF-8"),
        (vec![0; 512], "a zero byte: a crash, or a full disk, left it"),
        (long.clone().into_bytes(), "the line was cut off: it has 1 fields of 18"),
        (row(time, &long).into_bytes(), "`centre`: `yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy` is not a number"),
        (row(time, "nan").into_bytes(), "`centre`: `nan` is not a number"),
        (row(time, "1e999").into_bytes(), "`centre`: `1e999` is not a number"),
        (row(time, "inf").into_bytes(), "`centre`: `inf` is not a number"),
        (row(time, "1,low").into_bytes(), "the line has 19 fields of 18: another one was pasted into it"),
        (row(time, "").into_bytes(), "the line has no centre"),
        (row("yesterday", "1").into_bytes(), "`time`: `yesterday` is no time as 2026-11-23T04:05:06Z"),
        (row("2026-01-01T00:00:00+01:00", "1").into_bytes(), "is no time as"),
        (good.as_bytes()[1..].to_vec(), "the line has no run_id"),
        (b"<<<<<<< HEAD".to_vec(), "a merge conflict was left here: keep the rows of both sides"),
        (b"=======".to_vec(), "a merge conflict"),
        (b">>>>>>> other".to_vec(), "a merge conflict"),
        (good.replace(",bulk,", ",\"bulk,").into_bytes(), "the line was cut off"),
        (good.as_bytes()[..40].to_vec(), "the line was cut off: it has"),
    ];
    for (line, reason) in faults {
        let dir = folder();
        with_line(&dir, &line);
        let before = fs::read(file(&dir)).unwrap();
        let error = read(dir.path(), false).unwrap_err().to_string();
        assert!(error.contains("m1.csv:3: ") && error.contains("(--repair leaves the line out)"), "{error}");
        assert!(error.contains(reason), "{reason}: {error}");
        assert!(error.len() < 400, "{} bytes", error.len());
        let reading = read(dir.path(), true).unwrap();
        assert_eq!(points(&reading), [1.0, 2.0], "{reason}");
        assert!(reading.notes[0].contains("m1.csv:3: ") && reading.notes[0].contains(reason), "{:?}", reading.notes);
        assert_eq!(fs::read(file(&dir)).unwrap(), before, "reading changes nothing");
        // Compaction refuses it, and removes the line when asked to.
        let order = Order { before: "2026".to_owned(), keep: Period::Week, repair: false, is_dry: false };
        let refused = compact(dir.path(), &order).unwrap_err().to_string();
        assert_eq!(refused, error);
        assert_eq!(fs::read(file(&dir)).unwrap(), before);
        compact(dir.path(), &Order { repair: true, ..order }).unwrap();
        let good = [&before[..before.len() - line.len() - 1]].concat();
        assert_eq!(fs::read(file(&dir)).unwrap().len(), good.len(), "{reason}");
        assert_eq!(points(&read(dir.path(), false).unwrap()), [1.0, 2.0], "{reason}");
    }
}

#[test]
fn a_header_that_was_cut_off_is_left_out_with_the_rows_below_it() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let whole = fs::read_to_string(file(&dir)).unwrap();
    fs::write(file(&dir), format!("{whole}run_id,time,com")).unwrap();
    let (_, notes) = add(&dir, "rr", 2.0);
    assert!(notes[0].contains("was cut off"), "{notes:?}");
    let error = read(dir.path(), false).unwrap_err().to_string();
    assert!(error.contains("m1.csv:3: the header was cut off (--repair"), "{error}");
    assert_eq!(points(&read(dir.path(), true).unwrap()), [1.0, 2.0]);
    fs::write(file(&dir), format!("run_id,time\n{}", whole.lines().nth(1).unwrap())).unwrap();
    add(&dir, "rr", 2.0);
    let reading = read(dir.path(), true).unwrap();
    assert_eq!((points(&reading), reading.notes.len()), (vec![2.0], 2), "{:?}", reading.notes);
    assert!(reading.notes[1].contains("m1.csv:2: the header above was cut off"), "{:?}", reading.notes);
}

#[test]
fn windows_line_ends_blank_lines_and_a_byte_order_mark_are_read() {
    let dir = folder();
    add(&dir, "r", 1.0);
    add(&dir, "rr", 2.0);
    let text = fs::read_to_string(file(&dir)).unwrap().replace('\n', "\r\n");
    fs::write(file(&dir), format!("\u{feff}{text}\r\n  \r\n")).unwrap();
    assert_eq!(points(&read(dir.path(), false).unwrap()), [1.0, 2.0]);
    assert_eq!(add(&dir, "r", 1.0).0, 0);
    add(&dir, "rrr", 3.0);
    assert_eq!(points(&read(dir.path(), false).unwrap()), [1.0, 2.0, 3.0]);
}

#[test]
fn a_second_value_of_a_run_is_noted_and_the_first_counts() {
    let dir = folder();
    add(&dir, "r", 1.0);
    let whole = fs::read_to_string(file(&dir)).unwrap();
    let line = whole.lines().nth(1).unwrap();
    fs::write(file(&dir), format!("{whole}{line}\n{}\n", line.replace(",1,,,", ",7,,,"))).unwrap();
    let reading = read(dir.path(), false).unwrap();
    assert_eq!(points(&reading), [1.0]);
    assert_eq!(reading.notes.len(), 1, "{:?}", reading.notes);
    assert!(reading.notes[0].contains("m1.csv:4: run r has another value"), "{:?}", reading.notes);
}

#[test]
fn empty_files_and_links_that_lead_back_are_no_fault() {
    let dir = folder();
    fs::create_dir_all(dir.path().join("nightly")).unwrap();
    fs::write(file(&dir), "").unwrap();
    assert!(read(dir.path(), false).unwrap_err().to_string().contains("has no history"));
    add(&dir, "r", 1.0);
    assert!(fs::read_to_string(file(&dir)).unwrap().starts_with("run_id,"));
    std::os::unix::fs::symlink(dir.path(), dir.path().join("nightly/loop")).unwrap();
    assert_eq!(files(dir.path()).unwrap(), [file(&dir)]);
    std::os::unix::fs::symlink("nowhere", dir.path().join("nightly/gone.csv")).unwrap();
    let error = read(dir.path(), true).unwrap_err().to_string();
    assert!(error.contains("gone.csv") && error.contains("no such file"), "{error}");
}

#[test]
fn compaction_writes_lines_as_they_were_and_cuts_samples_of_old_ones() {
    let dir = folder();
    for (run, time) in [("a", "2026-01-05"), ("b", "2026-01-06"), ("c", "2026-02-02")] {
        let mut row = row(run, "c1", 1.0);
        row.time = Some(Timestamp(format!("{time}T00:00:00Z")));
        row.sample = Some("1 2 3".to_owned());
        append(dir.path(), &[row]).unwrap();
    }
    let before = fs::read_to_string(file(&dir)).unwrap();
    let order = |before: &str, is_dry| Order { before: before.to_owned(), keep: Period::Week, repair: false, is_dry };
    let (dry, _) = compact(dir.path(), &order("2026-01-10", true)).unwrap();
    assert_eq!(fs::read_to_string(file(&dir)).unwrap(), before);
    let (done, notes) = compact(dir.path(), &order("2026-01-10", false)).unwrap();
    assert_eq!(dry, done);
    assert!(notes.is_empty(), "{notes:?}");
    let after = fs::read_to_string(file(&dir)).unwrap();
    let expected: Vec<String> = before
        .lines()
        .map(|line| if line.starts_with('c') { line.to_owned() } else { line.replace("1 2 3", "") })
        .collect();
    assert_eq!(after.lines().collect::<Vec<_>>(), expected, "short series stay");
    assert_eq!(done[0].bytes, (before.len(), after.len()));
    // The lines of both sides of a merge.
    fs::write(file(&dir), format!("{after}{before}")).unwrap();
    compact(dir.path(), &order("2026-01-10", false)).unwrap();
    let merged = fs::read_to_string(file(&dir)).unwrap();
    assert_eq!(merged.lines().filter(|line| line.starts_with('a')).count(), 1, "{merged}");
    let foreign = before.replacen("run_id,", "run_id,colour,", 1).replace("\na,", "\na,red,");
    fs::write(file(&dir), &foreign).unwrap();
    let error = compact(dir.path(), &order("2026-01-10", false)).unwrap_err().to_string();
    assert!(error.contains("m1.csv:3") && error.contains("was cut off"), "{error}");
    let foreign: String = foreign.split_inclusive('\n').take(2).collect();
    fs::write(file(&dir), &foreign).unwrap();
    let error = compact(dir.path(), &order("2026-01-10", false)).unwrap_err().to_string();
    assert!(error.contains("m1.csv:1: the column `colour` is of another version"), "{error}");
    assert_eq!(fs::read_to_string(file(&dir)).unwrap(), foreign);
    let error = compact(&file(&dir), &order("2026-01-10", false)).unwrap_err().to_string();
    assert!(error.contains("name its folder"), "{error}");
}

proptest::proptest! {
    #[test]
    fn cells_come_back(cells in proptest::collection::vec("[ -~äµ]{0,12}", 1..6)) {
        let mut line = String::new();
        lines::push_line(&mut line, |push| cells.iter().for_each(|cell| push(cell)));
        let line = line.trim_end_matches('\n');
        let (fields, is_whole) = crate::table::fields(line);
        proptest::prop_assert!(is_whole);
        let back: Vec<_> = fields.into_iter().map(|field| crate::table::unquoted(&line[field]).into_owned()).collect();
        proptest::prop_assert_eq!(back, cells);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        head in "(run_id,time,machine,case_id,metric,centre\n)?",
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        text in "[ -~\n\",]{0,200}",
    ) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            let bytes = [head.as_bytes(), bytes].concat();
            for repair in [false, true] {
                let _ = read_file(Path::new("x"), &bytes, repair, &mut Reading::default());
            }
        }
    }

    /// Appended rows are read back, whatever their cells have.
    #[test]
    fn what_is_appended_is_read_back(
        runs in proptest::collection::vec(("[ -~äµ\n\0]{1,8}", "[ -~äµ\r\n]{0,8}", -1e12..1e12_f64), 1..8),
    ) {
        let dir = folder();
        let mut expected: Vec<(String, String, f64)> = Vec::new();
        for (run, case, centre) in runs {
            let mut row = row("r", &case, centre);
            row.run_id = Some(run.clone());
            append(dir.path(), &[row]).unwrap();
            let plain = |text: &str| text.replace(['\n', '\r', '\0'], " ");
            let (run, case) = (plain(&run), plain(&case));
            if !expected.iter().any(|(r, c, _)| (r, c) == (&run, &case)) {
                expected.push((run, case, centre));
            }
        }
        let reading = read(dir.path(), false).unwrap();
        let mut found: Vec<(String, String, f64)> = Vec::new();
        for series in reading.series() {
            for point in series.points {
                found.push((reading.runs[point.run].run_id.clone(), series.key.case_id.clone(), point.centre));
            }
        }
        let sorted = |mut all: Vec<(String, String, f64)>| {
            all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            all
        };
        proptest::prop_assert_eq!(sorted(found), sorted(expected));
    }
}
