//! What limited a test stands in its rows, below the table and in the report.

use crate::program::{Folder, of, plumb, rows};

#[test]
fn rows_summaries_and_the_table_have_the_answer() {
    let folder = Folder::new();
    let plan = folder.plan(
        "",
        "  paced: {workload: tcp_stream, rate: 8Mbit/s, message_size: 1KiB, duration: 300ms, iterations: 2}\n  \
         both: {workload: tcp_stream, direction: bidirectional, rate: 8Mbit/s, message_size: 1KiB, duration: 300ms}\n  \
         without: {workload: tcp_stream, duration: 50ms, collect: [cpu, tcp_info]}",
    );
    let ran = plumb(&["run", &plan, "-o", &folder.name("r.csv"), "--progress", "never"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let table = rows(&folder.path("r.csv"));
    for row in of(&table, "iteration").iter().chain(&of(&table, "summary")) {
        let asked = row["test"] != "without";
        assert_eq!(!row["limited_by"].is_empty(), asked && row["phase"] == "measure", "{row:?}");
        assert_eq!(row["limited_because"].is_empty(), row["limited_by"].is_empty());
    }
    assert_eq!(ran.stdout.matches("\n  paced: ").count(), 1, "{}", ran.stdout);
    assert_eq!(ran.stdout.matches("\n  both: ").count(), 1, "one line for three rows: {}", ran.stdout);
    assert_eq!(ran.stdout.matches("\n  without: ").count(), 0, "{}", ran.stdout);
    let report = plumb(&["report", &folder.name("r.csv")]);
    assert!(report.stdout.contains("\n- paced: "), "{}", report.stdout);
}
