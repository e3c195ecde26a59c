//! From the reports of two ends, one of which lies, to rows: every number in them must be one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netcore::{
    fuzz::variants,
    report::Report,
    spec::{Direction, Pattern, TestSpec, Transport},
};
use runner::schedule::rows;
use schemas::columns::{COLUMNS, ColumnType, Row};

fuzz_target!(|bytes: &[u8]| {
    let [choice, length, bytes @ ..] = bytes else { return };
    let mut spec = TestSpec::new(
        [Pattern::Stream, Pattern::RequestResponse, Pattern::Connect, Pattern::Ping][usize::from(choice & 3)],
        [Transport::Tcp, Transport::Udp][usize::from(choice >> 2 & 1)],
    );
    spec.direction = [Direction::Forward, Direction::Reverse, Direction::Bidirectional, Direction::Duplex]
        [usize::from(choice >> 3 & 3)];
    spec.streams = u32::from(choice >> 5);
    spec.phases.interval_ns = u64::from(choice >> 5) * 1_000_000;
    let (near, far) = bytes.split_at(usize::from(*length).min(bytes.len()));
    let report = |bytes| match serde_json::from_value::<Report>(variants::message("reports", bytes)?) {
        Ok(Report::End(report)) => Some(*report),
        _ => None,
    };
    let Some(near) = report(near) else { return };
    let made = rows::of_iteration(&Row::default(), &spec, &near, report(far).as_ref());
    for row in made.rows {
        let mut columns = COLUMNS.iter();
        row.for_each_cell(|cell| {
            let column = columns.next().expect("a column for each cell");
            let number = matches!(column.ty, ColumnType::Number | ColumnType::Integer);
            assert!(!number || cell.is_empty() || cell.parse::<f64>().is_ok_and(f64::is_finite), "{}: {cell}", column.name);
        });
    }
});
