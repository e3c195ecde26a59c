//! The rows of what a program printed.

use schemas::{
    columns::Row,
    words::{Phase, Record, Status, Way},
};

/// The rows of one iteration.
#[derive(Clone, Debug, Default)]
pub struct PrintedRows {
    /// All of them, as printed.
    pub rows: Vec<Row>,
    /// Values for statistics, by line and way: the first result of each way is line 0. A program that prints a table
    /// has as many summaries as the table has lines.
    pub measured: Vec<(usize, Way, Row)>,
}

/// Makes the rows of an iteration from what was read in an output; `identity` carries the cells that the plan decides.
pub fn of_program(identity: &Row, lines: &[Row]) -> PrintedRows {
    let mut made = PrintedRows::default();
    for line in lines {
        let row = Row {
            run_id: identity.run_id.clone(),
            plan: identity.plan.clone(),
            test: identity.test.clone(),
            case_id: identity.case_id.clone(),
            case: identity.case.clone(),
            member: identity.member.clone(),
            tag: identity.tag.clone(),
            iteration: identity.iteration,
            from: identity.from.clone(),
            to: identity.to.clone().or_else(|| line.to.clone()),
            workload: identity.workload.clone(),
            axes: identity.axes.clone(),
            ..line.clone()
        };
        if is_measured(&row) {
            let way = way(&row);
            made.measured.push((line_of(&made.measured, way), way, row.clone()));
        }
        made.rows.push(row);
    }
    made
}

/// Whether a line of output is a result, not an interval or a stream of one.
pub fn is_measured(row: &Row) -> bool {
    (row.record, row.phase, row.status) == (Some(Record::Iteration), Some(Phase::Measure), Some(Status::Ok))
}

/// The way for which a line of output counts.
pub fn way(row: &Row) -> Way {
    row.direction.unwrap_or(Way::Forward)
}

/// The number of the next line of that way.
pub fn line_of(measured: &[(usize, Way, Row)], way: Way) -> usize {
    measured.iter().filter(|(_, w, _)| *w == way).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_result_and_the_plans_names() {
        let line = |(record, direction, size)| Row {
            record: Some(record),
            phase: Some(Phase::Measure),
            status: Some(Status::Ok),
            direction: Some(direction),
            message_bytes: Some(size),
            plan: Some("netpipe".into()),
            ..Row::default()
        };
        let identity = Row { plan: Some("p".into()), iteration: Some(3), axes: vec!["x".into()], ..Row::default() };
        let lines: Vec<Row> = [
            (Record::Interval, Way::Forward, 1),
            (Record::Iteration, Way::Forward, 1),
            (Record::Iteration, Way::Reverse, 1),
            (Record::Iteration, Way::Forward, 64),
        ]
        .into_iter()
        .map(line)
        .collect();
        let made = of_program(&identity, &lines);
        let places: Vec<_> = made.measured.iter().map(|(n, way, row)| (*n, *way, row.message_bytes)).collect();
        assert_eq!(places, [(0, Way::Forward, Some(1)), (0, Way::Reverse, Some(1)), (1, Way::Forward, Some(64))]);
        assert_eq!(made.rows.len(), 4);
        assert!(made.rows.iter().all(|r| r.plan.as_deref() == Some("p") && r.iteration == Some(3) && r.axes == ["x"]));
    }
}
