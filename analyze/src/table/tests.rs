use super::*;
use proptest::prelude::*;

fn read_rows(texts: &[&str]) -> Result<(Vec<String>, Vec<Vec<String>>), Error> {
    let inputs = texts
        .iter()
        .enumerate()
        .map(|(i, t)| (format!("{i}.csv"), Box::new(std::io::Cursor::new(t.as_bytes().to_vec())) as _))
        .collect();
    let mut table = Table::from_readers(inputs)?;
    let mut all = Vec::new();
    while let Some(row) = table.next_row()? {
        all.push(row.cells().map(str::to_owned).collect());
    }
    Ok((table.header().names().to_vec(), all))
}

fn message(texts: &[&str]) -> String {
    let error = read_rows(texts).expect_err("must be refused");
    assert_eq!(error.exit_code(), 3);
    error.to_string()
}

#[test]
fn reads_plain_and_quoted_rows() {
    let (header, all) = read_rows(&["a,b\n1,\n\"x,\"\"y\",2\r\n3,4"]).unwrap();
    assert_eq!(header, ["a", "b"]);
    assert_eq!(all, [["1", ""], ["x,\"y", "2"], ["3", "4"]]);
    assert_eq!(read_rows(&["\u{feff}a\n1\n"]).unwrap().0, ["a"]);
    assert!(read_rows(&["a,b"]).unwrap().1.is_empty());
}

#[test]
fn several_files_are_joined_by_name() {
    let (header, all) = read_rows(&["a,b\n1,2\n", "c,b\n3,4\n"]).unwrap();
    assert_eq!(header, ["a", "b", "c"]);
    assert_eq!(all, [["1", "2", ""], ["", "4", "3"]]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    assert_eq!(message(&["a,b\n1,2\n3\n"]), "0.csv:3: the row has 1 cell, the header 2");
    assert_eq!(message(&["a,b\n\"x\ny\",2\n3,4,5\n"]), "0.csv:4: the row has 3 cells, the header 2");
    assert!(message(&["a,b\n1,2\na,b\n1,2\n"]).starts_with("0.csv:3: a second header"));
    assert!(message(&["a,b\n\"1\",2\na,b\n"]).starts_with("0.csv:3: a second header"));
    assert!(message(&["a,b\n1,2\n\"a\",b\n"]).starts_with("0.csv:3: a second header"));
    assert!(message(&["\"a\",b\n1,2\n\"a\",b\n"]).starts_with("0.csv:3: a second header"));
    assert_eq!(message(&["a,b\n\"1,2\",3\n\"1\",\"2\",3\n"]), "0.csv:3: the row has 3 cells, the header 2");
    assert_eq!(message(&[""]), "0.csv: is empty: there is not even a header");
    assert_eq!(message(&["a,b,a\n"]), "0.csv:1, column `a`: the header names this column twice");
    assert_eq!(message(&["a,,b\n"]), "0.csv:1: column 2 of the header has no name");
    // Otherwise the rest of the line would be lost.
    assert!(message(&["a,b\r1,2\r"]).starts_with("0.csv:1: a carriage return within the line"));
}

#[test]
fn numbers_are_checked_where_they_are_used() {
    let mut table = Table::from_text("t.csv", "a,b\n1.5,x\n,inf\n").unwrap();
    let row = table.next_row().unwrap().unwrap();
    assert_eq!(row.number(0).unwrap(), Some(1.5));
    assert_eq!(row.number(1).unwrap_err().to_string(), "t.csv:2, column `b`: `x` is not a number");
    let row = table.next_row().unwrap().unwrap();
    assert_eq!(row.number(0).unwrap(), None);
    assert!(row.number(1).unwrap_err().to_string().contains("not a finite number"));
}

#[test]
fn columns_are_found_by_metric_and_missed_with_a_hint() {
    let table = Table::from_text("t", "case,throughput_bits_per_s\n").unwrap();
    assert_eq!(table.require("throughput").unwrap(), 1);
    let message = |name: &str| table.require(name).unwrap_err().to_string();
    assert_eq!(
        message("throughput_bit_per_s"),
        "t:1: there is no column `throughput_bit_per_s`; did you mean `throughput_bits_per_s`?"
    );
    assert_eq!(message("latency.p99"), "t:1: there is no column `latency_p99_us` (for `latency.p99`)");
    assert!(message("zzz").contains("there are: case, throughput_bits_per_s"));
}

#[test]
fn files_of_other_kinds_are_named_with_the_remedy() {
    for (name, text, said) in [
        ("t", "case;throughput_bits_per_s\na;1\n", "tables have commas between their cells, not ';'"),
        ("t", "case\tthroughput_bits_per_s\na\t1\n", "tables have commas between their cells, not '\\t'"),
        ("a.json", "{\n  \"start\": {}\n}\n", "is JSON, and no table: `plumb import a.json`"),
        ("a.run.json", "{\n  \"runs\": []\n}\n", "a.csv has the results"),
        ("a.yaml", "# CI\nversion: 1\n", "is a plan, and no table: `plumb run a.yaml"),
        ("-", "version: 1\n", "is a plan"),
        ("a.txt", "case  workload    result\nbulk  tcp_stream  9\n", "is a table for people"),
    ] {
        let error = Table::from_text(name, text).err().unwrap();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains(said), "{error}");
    }
    assert!(Table::from_text("t", "a column\n1\n").is_ok());
}

#[test]
fn an_older_file_among_newer_ones_is_named() {
    let inputs: Vec<(String, Box<dyn Read + Send>)> =
        vec![("new".into(), Box::new(&b"a,b\n"[..])), ("old".into(), Box::new(&b"a\n"[..]))];
    let table = Table::from_readers(inputs).unwrap();
    assert!(table.require("a").is_ok());
    assert!(table.require("b").unwrap_err().to_string().starts_with("old:1: there is no column `b`"));
}

proptest! {
    /// Whatever a CSV writer wrote is read back, quoted or not.
    #[test]
    fn round_trip(cells in prop::collection::vec(prop::collection::vec("[a-c,\"\n\r é]{0,5}", 3), 0..20)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["x", "y", "z"]).unwrap();
        for row in &cells {
            writer.write_record(row).unwrap();
        }
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        let (_, read) = read_rows(&[&text]).unwrap();
        prop_assert_eq!(read, cells);
    }

    /// Unquoted text reads the same as through the csv crate.
    #[test]
    fn same_as_the_csv_crate(text in "([a-c]{0,3}(,[a-c]{0,3}){0,3}\n){0,9}") {
        let text = format!("w,x,y,z\n{text}");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let theirs: Result<Vec<Vec<String>>, _> =
            reader.records().map(|r| r.map(|r| r.iter().map(str::to_owned).collect())).collect();
        match (theirs, read_rows(&[&text])) {
            (Ok(theirs), Ok((_, ours))) => prop_assert_eq!(theirs, ours),
            (Err(_), Err(_)) => {}
            (theirs, ours) => prop_assert!(false, "{:?} but {:?}", theirs.is_ok(), ours.is_ok()),
        }
    }

    #[test]
    fn quotes_are_read_as_the_csv_crate_reads_them(
        rows in prop::collection::vec(prop::collection::vec("[a-c]{0,9}|\"[a,\n]{0,3}(\"\")?[b,]{0,3}\"(c\"?)?", 3), 0..9),
        crlf in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let lines: Vec<String> = rows.iter().map(|row| row.join(",") + end).collect();
        let text = format!("x,y,z{end}{}", lines.concat());
        let theirs: Vec<Vec<String>> = csv::Reader::from_reader(text.as_bytes())
            .records()
            .map(|row| row.unwrap().iter().map(str::to_owned).collect())
            .collect();
        prop_assert_eq!(read_rows(&[&text]).unwrap().1, theirs);
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(mut table) = Table::from_text("t", bytes) {
            while let Ok(Some(row)) = table.next_row() {
                for column in 0..row.cells().count() {
                    let _ = row.number(column);
                }
            }
        }
    }
}
