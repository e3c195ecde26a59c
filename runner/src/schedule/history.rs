//! What an interrupted run has finished, read back from its own table.
//!
//! An iteration is finished when the measure rows of all its members are there: its rows are written together, so a crash
//! leaves either all of them or a torn end that is cut off here. Summaries are written anew when the run ends, and what
//! had failed is tried again; everything else stays as it stood, byte for byte.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::Path,
};

use csv::{Reader, StringRecord};
use schemas::{
    columns::{COLUMNS, Row},
    words::{Phase, Record, Status, Way},
};

use super::{
    rows::{printed, ways},
    step::Step,
};
use crate::{error::Error, replace::replace};

/// One finished iteration of a step.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Measured rows by member and way; the total of a group stands behind its last member.
    pub measured: Vec<(usize, Way, Row)>,
    /// Measured rows by member and stream.
    pub streams: Vec<(usize, u64, Row)>,
}

/// The finished iterations of every step, in their order.
pub type History = Vec<Vec<Done>>;

/// Finished iterations by `case_id` and `iteration`, as they stand in the tables.
pub type FinishedKeys = HashSet<(String, String)>;

/// What an interrupted run left.
#[derive(Debug, Default)]
pub struct Taken {
    /// What counts.
    pub history: History,
    /// Per step, what was measured to confirm a verdict: the attempt (from 1) and its iteration, in order.
    pub confirmed: Vec<Vec<(u32, Done)>>,
    /// All of them as other tables name them.
    pub finished: FinishedKeys,
}

/// What an iteration of a confirmation says in place of an error: which attempt it belongs to, and why it was made.
pub fn confirmation(attempt: u32, of: u32, why: &str) -> String {
    format!("confirmation {attempt} of {of}: {why}")
}

/// The attempt in what [`confirmation`] said.
fn attempt(said: &str) -> Option<u32> {
    said.strip_prefix("confirmation ")?.split(' ').next()?.parse().ok()
}

/// A table without the torn end that a crash in the middle of a write leaves. Only bytes can be told apart there: it may be
/// torn within a letter, or within a cell that has lines of its own.
fn whole(table: &[u8]) -> &[u8] {
    let (mut quoted, mut end) = (false, 0);
    for (at, byte) in table.iter().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => end = at + 1,
            _ => {}
        }
    }
    &table[..end]
}

/// Reads a table back and leaves only finished iterations (and discarded tries) in it.
pub fn take_up(path: &Path, steps: &[Step]) -> Result<Taken, Error> {
    let bytes = fs::read(path).map_err(|e| {
        Error::Usage(format!("--resume: cannot read {}: {e}; is this the folder of a run?", path.display()))
    })?;
    let mut reader = Reader::from_reader(whole(&bytes));
    let broken = |e: csv::Error| Error::Usage(format!("--resume: {} is no results table: {e}", path.display()));
    let header = reader.headers().map_err(broken)?.clone();
    let columns: HashMap<String, usize> = header.iter().enumerate().map(|(i, n)| (n.to_owned(), i)).collect();
    if !["case_id", "iteration", "record", "phase", "status"].iter().all(|c| columns.contains_key(*c)) {
        return Err(Error::Usage(format!("--resume: {} is no results table", path.display())));
    }
    let records: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().map_err(broken)?;
    let cell = |record: &StringRecord, column: &str| -> String {
        columns.get(column).and_then(|i| record.get(*i)).unwrap_or_default().to_owned()
    };
    let key = |record: &StringRecord| (cell(record, "case_id"), cell(record, "iteration"));
    let is_good = |record: &StringRecord| cell(record, "status").parse().is_ok_and(Status::is_good);
    let is_record = |record: &StringRecord, kind: Record| cell(record, "record") == kind.as_str();
    let is_measure = |record: &StringRecord| cell(record, "phase") == Phase::Measure.as_str();
    let by_id: HashMap<&str, usize> = steps.iter().enumerate().map(|(i, s)| (s.id.as_str(), i)).collect();
    // What a search measures are probes; the rows of its answer are made of them when it ends.
    let searches =
        |record: &StringRecord| by_id.get(cell(record, "case_id").as_str()).is_some_and(|i| steps[*i].find.is_some());
    let is_measured = |record: &StringRecord| {
        let kind = if searches(record) { Record::Probe } else { Record::Iteration };
        is_record(record, kind) && is_measure(record) && is_good(record)
    };
    let mut seen: HashMap<(String, String), HashSet<(String, Way)>> = HashMap::new();
    for record in records.iter().filter(|r| is_measured(r)) {
        seen.entry(key(record)).or_default().insert((cell(record, "member"), way(&cell(record, "direction"))));
    }
    let finished = |record: &StringRecord| {
        let (case, iteration) = key(record);
        let step = by_id.get(case.as_str()).map(|i| &steps[*i]);
        let Some((step, rows)) = step.zip(seen.get(&(case, iteration))) else { return false };
        step.members.iter().all(|m| match m.spec() {
            Some(spec) => ways(spec.direction).iter().all(|way| rows.contains(&(m.name.clone(), *way))),
            None => rows.iter().any(|(member, _)| *member == m.name),
        })
    };
    let kept: Vec<&StringRecord> = records
        .iter()
        .filter(|r| !is_record(r, Record::Summary))
        .filter(|r| match cell(r, "status").parse() {
            Ok(Status::Discarded) => true,
            _ => is_good(r) && finished(r) && !(searches(r) && is_record(r, Record::Iteration)),
        })
        .collect();
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(&header).map_err(broken)?;
    for record in &kept {
        out.write_record(*record).map_err(broken)?;
    }
    let bytes = out.into_inner().map_err(|e| Error::output(path.display())(e.into_error()))?;
    replace(path, &bytes)?;

    let keys: FinishedKeys = kept.iter().filter(|r| is_good(r)).map(|r| key(r)).collect();
    // The attempt of a confirmation, 0 of what counts.
    let mut iterations: Vec<BTreeMap<u64, (u32, Done)>> = steps.iter().map(|_| BTreeMap::new()).collect();
    for record in kept.into_iter().filter(|r| is_good(r) && is_measure(r)) {
        let (case, iteration) = key(record);
        let (Some(i), Ok(iteration)) = (by_id.get(case.as_str()), iteration.parse()) else { continue };
        let step = &steps[*i];
        let name = cell(record, "member");
        let member = step.members.iter().position(|m| m.name == name).unwrap_or(step.members.len());
        let mut row = step.identity(member);
        fill(&mut row, &columns, record);
        let confirms = (row.status == Some(Status::Confirm)).then(|| attempt(&cell(record, "error"))).flatten();
        let (_, done) = iterations[*i].entry(iteration).or_insert_with(|| (confirms.unwrap_or(0), Done::default()));
        let prints = step.members.iter().all(|m| m.spec().is_none());
        match (row.record, row.stream) {
            (Some(Record::Iteration), _) if prints => {
                let way = printed::way(&row);
                done.measured.push((printed::line_of(&done.measured, way), way, row));
            }
            (Some(Record::Iteration | Record::Probe), _) => done.measured.push((member, printed::way(&row), row)),
            (Some(Record::Stream), Some(stream)) => done.streams.push((member, stream, row)),
            _ => {}
        }
    }
    let mut taken = Taken { finished: keys, ..Taken::default() };
    for iterations in iterations {
        let (again, first): (Vec<_>, Vec<_>) = iterations.into_values().partition(|(attempt, _)| *attempt > 0);
        taken.history.push(first.into_iter().map(|(_, done)| done).collect());
        taken.confirmed.push(again);
    }
    Ok(taken)
}

/// Leaves only rows of finished iterations in a table beside the results; one that is not there is left alone.
pub fn cut(path: &Path, finished: &FinishedKeys) -> Result<(), Error> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes.map_err(|e| Error::Usage(format!("--resume: cannot read {}: {e}", path.display())))?,
    };
    let whole = whole(&bytes);
    if whole.is_empty() {
        // Not even its header: it is made anew.
        return fs::remove_file(path).map_err(Error::output(path.display()));
    }
    let broken = |e: csv::Error| Error::Usage(format!("--resume: {} is no table: {e}", path.display()));
    let mut reader = Reader::from_reader(whole);
    let header = reader.headers().map_err(broken)?.clone();
    let at = |name: &str| header.iter().position(|n| n == name);
    let (case, iteration) = (at("case_id"), at("iteration"));
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(&header).map_err(broken)?;
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let cell = |i: Option<usize>| i.and_then(|i| record.get(i)).unwrap_or_default().to_owned();
        if finished.contains(&(cell(case), cell(iteration))) {
            out.write_record(&record).map_err(broken)?;
        }
    }
    let bytes = out.into_inner().map_err(|e| Error::output(path.display())(e.into_error()))?;
    replace(path, &bytes)
}

/// Takes over the filled cells of a record, as far as their text is a value of the column; what the plan alone decides is
/// there already.
fn fill(row: &mut Row, columns: &HashMap<String, usize>, record: &StringRecord) {
    for column in COLUMNS {
        let cell = columns.get(column.name).and_then(|i| record.get(*i)).unwrap_or_default();
        if !cell.is_empty() || column.ty.is_number() {
            // A cell that cannot be read keeps what the plan says.
            let _ = row.set(column.name, cell);
        }
    }
    row.error = None;
}

fn way(direction: &str) -> Way {
    direction.parse().unwrap_or(Way::Forward)
}

#[cfg(test)]
mod tests {
    use schemas::words::LatencyKind;

    use super::*;
    use crate::{
        schedule::{
            fake::step,
            rows::{latency::encoded, summary::Summary},
        },
        sinks::csv::CsvSink,
    };

    const HEAD: &str = "case_id,case,iteration,record,phase,status,member,direction,stream,throughput_bits_per_s\n";

    fn taken(rows: &str) -> (Taken, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        fs::write(&path, format!("{HEAD}{rows}")).unwrap();
        let mut one = step("a", 3, 3, None);
        one.case.id = "c1".into();
        let taken = take_up(&path, &[one]).unwrap();
        (taken, fs::read_to_string(&path).unwrap().replace(HEAD, ""))
    }

    #[test]
    fn finished_iterations_stay_and_the_rest_goes() {
        let keep = "c1,a,1,iteration,measure,ok,,forward,,8\nc1,a,2,iteration,measure,discarded,,forward,,\n";
        let (taken, left) = taken(&format!(
            "{keep}c1,a,2,iteration,warmup,ok,,forward,,1\nc1,a,,summary,measure,ok,,forward,,8\nc1,a,3,iteration,mea"
        ));
        assert_eq!(left, keep);
        let history = taken.history;
        assert_eq!((history[0].len(), history[0][0].measured[0].2.throughput_bits_per_s), (1, Some(8.0)));
    }

    #[test]
    fn a_table_may_be_torn_anywhere() {
        let keep = "c1,a,1,iteration,measure,ok,,forward,,8\n";
        let more = "c1,a,2,iteration,measure,failed,\"two\nlines é\",forward,,\n";
        let bytes = [HEAD.as_bytes(), keep.as_bytes(), more.as_bytes()].concat();
        for end in 0..=bytes.len() {
            let left = whole(&bytes[..end]);
            let ends = [HEAD.len(), HEAD.len() + keep.len(), bytes.len()];
            assert_eq!(left.len(), ends.into_iter().rfind(|e| *e <= end).unwrap_or(0), "torn after {end} bytes");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("intervals.csv");
        fs::write(&path, "case_id,iter").unwrap();
        cut(&path, &FinishedKeys::new()).unwrap();
        assert!(!path.exists(), "without its header it is begun anew");
    }

    #[test]
    fn an_iteration_of_which_one_direction_is_there_is_not_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let row = |iteration, way| format!("c1,a,{iteration},iteration,measure,ok,,{way},,8\n");
        let first = [row(1, "forward"), row(1, "reverse"), row(1, "both")].concat();
        fs::write(&path, format!("{HEAD}{first}{}", row(2, "forward"))).unwrap();
        let mut one = step("a", 3, 3, None);
        one.case.id = "c1".into();
        if let crate::plan::case::Job::Traffic(spec) = &mut one.case.members[0].job {
            spec.direction = netcore::spec::Direction::Bidirectional;
        }
        let taken = take_up(&path, &[one]).unwrap();
        assert_eq!(taken.history[0].len(), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEAD}{first}"));
    }

    #[test]
    fn summaries_merge_the_histograms_of_earlier_iterations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let mut one = step("a", 1, 2, None);
        one.case.id = "c1".into();
        one.identities[0].case_id = Some("c1".into());
        let written = Row {
            iteration: Some(1),
            record: Some(Record::Iteration),
            phase: Some(Phase::Measure),
            status: Some(Status::Ok),
            direction: Some(Way::Forward),
            latency_kind: Some(LatencyKind::Send),
            latency_histogram: Some(encoded(&[1000])),
            receive_call_histogram: Some(encoded(&[7000])),
            ..one.identity(0)
        };
        let mut sink = CsvSink::create(&path, &[]).unwrap();
        sink.rows(&[written]).unwrap();
        let taken = take_up(&path, &[one]).unwrap();
        let mut summary = Summary::default();
        summary.push(&taken.history[0][0].measured[0].2);
        let row = summary.row().unwrap();
        let near = |got: Option<f64>, want: f64| got.is_some_and(|got| (got / want - 1.0).abs() < 0.01);
        assert!(near(row.latency_p99_us, 1.0) && near(row.receive_call_p99_us, 7.0), "{row:?}");
    }

    #[test]
    fn what_failed_is_tried_again() {
        let (taken, left) = taken("c1,a,1,iteration,measure,failed,,forward,,\n");
        assert!(taken.history[0].is_empty() && left.is_empty());
    }

    #[test]
    fn confirmations_stay_apart_by_their_attempt() {
        let head = HEAD.replace("status,", "status,error,");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let said = |k| confirmation(k, 2, "throughput >= 9Gbit/s did not hold");
        let text = format!(
            "{head}c1,a,1,iteration,measure,ok,,,forward,,8\nc1,a,2,iteration,measure,confirm,{},,forward,,7\n\
             c1,a,3,iteration,measure,confirm,{},,forward,,6\nc1,a,4,iteration,measure,confirm,{},,forw",
            said(1),
            said(2),
            said(2)
        );
        fs::write(&path, &text).unwrap();
        let mut one = step("a", 1, 1, None);
        one.case.id = "c1".into();
        let taken = take_up(&path, &[one]).unwrap();
        assert_eq!(taken.history[0].len(), 1);
        let rates: Vec<_> =
            taken.confirmed[0].iter().map(|(k, d)| (*k, d.measured[0].2.throughput_bits_per_s.unwrap())).collect();
        assert_eq!(rates, [(1, 7.0), (2, 6.0)]);
        assert!(taken.finished.contains(&("c1".into(), "3".into())));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 4, "only the torn end is gone");
    }
}
