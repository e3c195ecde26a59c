//! Finished iterations of an interrupted run, read back from its own table.
//!
//! An iteration is finished when the measure rows of all its members are there. Its rows are written together, so a crash
//! leaves all of them or a torn end, which is cut off here. Summaries are written anew at the end of the run, and failed
//! cases are tried again; everything else stays as it is, byte for byte.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use analyze::table::{Field, InputArgs, Rows, Table, rows::OwnedRow};
use schemas::{
    columns::Row,
    words::{Phase, Record, Status, Way},
};

use super::{
    rows::{printed, ways},
    step::Step,
};
use crate::error::{Error, replace};

/// One finished iteration of a step.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Measured rows by member and way; the total of a group follows its last member.
    pub measured: Vec<(usize, Way, Row)>,
    /// Measured rows by member and stream.
    pub streams: Vec<(usize, u64, Row)>,
}

/// The finished iterations of every step, in their order.
pub type History = Vec<Vec<Done>>;

/// Finished iterations by `case_id` and `iteration`.
pub type FinishedKeys = HashSet<(String, u64)>;

/// The results of an interrupted run.
#[derive(Debug, Default)]
pub struct Taken {
    pub history: History,
    /// Iterations that confirmed a verdict, per step and in order, with their attempt (from 1).
    pub confirmed: Vec<Vec<(u32, Done)>>,
    /// All of them.
    pub finished: FinishedKeys,
    /// Tables without the rows of unfinished iterations.
    pub trimmed: Vec<Trimmed>,
}

/// A table of an interrupted run, as the run goes on with it.
#[derive(Clone, Debug)]
pub struct Trimmed {
    pub path: PathBuf,
    /// `None`: not even its header is whole.
    bytes: Option<Vec<u8>>,
}

impl Trimmed {
    /// Replaces the file.
    pub fn write(&self) -> Result<(), Error> {
        match &self.bytes {
            Some(bytes) => replace(&self.path, bytes),
            None => fs::remove_file(&self.path).map_err(Error::output(self.path.display())),
        }
    }
}

/// The `error` cell of a confirmation: its attempt, and why it was made.
pub fn confirmation(attempt: u32, of: u32, why: &str) -> String {
    format!("confirmation {attempt} of {of}: {why}")
}

/// The attempt in a text of [`confirmation`].
fn attempt(said: &str) -> Option<u32> {
    said.strip_prefix("confirmation ")?.split(' ').next()?.parse().ok()
}

/// A table without the torn end that a crash in the middle of a write leaves. Works on bytes: the end may be inside a
/// character, or inside a cell with several lines.
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

/// The complete rows of a table.
enum Read {
    /// The file does not exist.
    Absent,
    /// Not even its header is whole.
    Torn,
    Rows(Rows),
}

fn read(path: &Path) -> Result<Read, Error> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Read::Absent),
        bytes => bytes.map_err(|e| Error::Usage(format!("--resume: cannot read {}: {e}", path.display())))?,
    };
    let whole = whole(&bytes);
    if whole.is_empty() {
        return Ok(Read::Torn);
    }
    let table = Table::from_text(&path.display().to_string(), whole).and_then(|mut table| Rows::read_all(&mut table));
    table.map(Read::Rows).map_err(|e| Error::Usage(format!("--resume: {e}")))
}

/// Some of a table's rows.
fn trimmed<'a>(path: &Path, table: &Rows, rows: impl IntoIterator<Item = &'a OwnedRow>) -> Result<Trimmed, Error> {
    let mut bytes = Vec::new();
    table.write(rows, &mut bytes)?;
    Ok(Trimmed { path: path.to_owned(), bytes: Some(bytes) })
}

/// Refuses a table with rows of another run.
fn of_run(path: &Path, table: &Rows, run_id: &str) -> Result<(), Error> {
    let Some(column) = table.column("run_id") else { return Ok(()) };
    match table.rows.iter().map(|row| row.get(column)).find(|id| *id != run_id) {
        None => Ok(()),
        Some(other) => Err(Error::Usage(format!(
            "--resume: {} has rows of run {other}, and run.json beside it is about run {run_id}",
            path.display()
        ))),
    }
}

/// A row with typed cells. Cells that no version of this program writes stay empty.
pub fn typed(table: &Rows, cells: &OwnedRow) -> Row {
    let mut row = Row::default();
    for (column, cell) in table.columns.iter().zip(cells.cells()) {
        let _ = row.set(column, cell);
    }
    row
}

/// All rows of a table that a run has written, with typed cells.
pub fn rows(path: &Path) -> Result<Vec<Row>, Error> {
    let table = Rows::read_all(&mut Table::open(&InputArgs { files: vec![path.to_owned()] })?)?;
    Ok(table.rows.iter().map(|cells| typed(&table, cells)).collect())
}

/// Reads a table of a run back. What goes on has finished iterations and discarded tries only.
pub fn take_up(path: &Path, steps: &[Step], run_id: &str) -> Result<Taken, Error> {
    let table = match read(path)? {
        Read::Absent => return Ok(Taken::default()),
        Read::Torn => {
            let torn = Trimmed { path: path.to_owned(), bytes: None };
            return Ok(Taken { trimmed: vec![torn], ..Taken::default() });
        }
        Read::Rows(table) => table,
    };
    of_run(path, &table, run_id)?;
    if ["case_id", "iteration", "record", "phase", "status"].iter().any(|name| table.column(name).is_none()) {
        return Err(Error::Usage(format!("--resume: {} is not a results table", path.display())));
    }
    let by_id: HashMap<&str, usize> = steps.iter().enumerate().map(|(i, s)| (s.id.as_str(), i)).collect();
    let place = |row: &Row| {
        let id = row.case_id.clone()?;
        Some((*by_id.get(id.as_str())?, (id, row.iteration?)))
    };
    let is_good = |row: &Row| row.status.is_some_and(Status::is_good);
    let is_measured = |row: &Row| is_good(row) && row.phase == Some(Phase::Measure);
    let mut seen: HashMap<(String, u64), HashSet<(String, Way)>> = HashMap::new();
    for row in table.rows.iter().map(|cells| typed(&table, cells)).filter(is_measured) {
        if let Some((i, key)) = place(&row)
            && row.record == Some(steps[i].measured_record())
        {
            let way = printed::way(&row);
            seen.entry(key).or_default().insert((row.member.unwrap_or_default(), way));
        }
    }
    let is_finished = |step: &Step, seen: &HashSet<(String, Way)>| {
        step.members.iter().all(|m| match m.spec() {
            Some(spec) => ways(spec.direction).iter().all(|way| seen.contains(&(m.name.clone(), *way))),
            None => seen.iter().any(|(member, _)| *member == m.name),
        })
    };
    let (mut kept, mut finished) = (Vec::new(), FinishedKeys::new());
    // With the attempt of a confirmation, or 0.
    let mut iterations: Vec<BTreeMap<u64, (u32, Done)>> = steps.iter().map(|_| BTreeMap::new()).collect();
    for cells in &table.rows {
        let mut row = typed(&table, cells);
        if row.record == Some(Record::Summary) {
            continue;
        }
        if row.status == Some(Status::Discarded) {
            kept.push(cells);
            continue;
        }
        let Some((i, key)) = place(&row).filter(|_| is_good(&row)) else { continue };
        let (step, number) = (&steps[i], key.1);
        let of_answer = step.find.is_some() && row.record == Some(Record::Iteration);
        if of_answer || !seen.get(&key).is_some_and(|seen| is_finished(step, seen)) {
            continue;
        }
        kept.push(cells);
        finished.insert(key);
        if !is_measured(&row) {
            continue;
        }
        let name = row.member.as_deref().unwrap_or_default();
        let member = step.members.iter().position(|m| m.name == name).unwrap_or(step.members.len());
        row.axes = step.identity(member).axes;
        let confirms = row.error.take().filter(|_| row.status == Some(Status::Confirm));
        let attempt = confirms.as_deref().and_then(attempt).unwrap_or(0);
        let (_, done) = iterations[i].entry(number).or_insert_with(|| (attempt, Done::default()));
        let way = printed::way(&row);
        match (row.record, row.stream) {
            (Some(Record::Iteration), _) if step.members.iter().all(|m| m.spec().is_none()) => {
                done.measured.push((printed::line_of(&done.measured, way), way, row));
            }
            (Some(Record::Iteration | Record::Probe), _) => done.measured.push((member, way, row)),
            (Some(Record::Stream), Some(stream)) => done.streams.push((member, stream, row)),
            _ => {}
        }
    }
    let mut taken = Taken { finished, trimmed: vec![trimmed(path, &table, kept)?], ..Taken::default() };
    for iterations in iterations {
        let (again, first): (Vec<_>, Vec<_>) = iterations.into_values().partition(|(attempt, _)| *attempt > 0);
        taken.history.push(first.into_iter().map(|(_, done)| done).collect());
        taken.confirmed.push(again);
    }
    Ok(taken)
}

/// Another table of the run, if there is one, without the rows of unfinished iterations.
pub fn trim(path: &Path, finished: &FinishedKeys, run_id: &str) -> Result<Option<Trimmed>, Error> {
    let table = match read(path)? {
        Read::Absent => return Ok(None),
        Read::Torn => return Ok(Some(Trimmed { path: path.to_owned(), bytes: None })),
        Read::Rows(table) => table,
    };
    of_run(path, &table, run_id)?;
    let is_finished = |row: &&OwnedRow| {
        let case = || table.text(row, Field::case_id).to_owned();
        table.text(row, Field::iteration).parse().is_ok_and(|n| finished.contains(&(case(), n)))
    };
    trimmed(path, &table, table.rows.iter().filter(is_finished)).map(Some)
}

#[cfg(test)]
mod tests {
    use schemas::words::LatencyKind;

    use super::super::rows::path::encoded;
    use super::*;
    use crate::{
        schedule::{fake::step, rows::summary::Summary},
        sinks::csv::Fresh,
    };

    const HEAD: &str = "case_id,case,iteration,record,phase,status,member,direction,stream,throughput_bits_per_s\n";

    /// Takes a table up and trims the file.
    fn taken_up(path: &Path, steps: &[Step]) -> Taken {
        let taken = take_up(path, steps, "").unwrap();
        taken.trimmed.iter().for_each(|table| table.write().unwrap());
        taken
    }

    fn taken(rows: &str) -> (Taken, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        fs::write(&path, format!("{HEAD}{rows}")).unwrap();
        let mut one = step("a", 3, 3, None);
        one.case.id = "c1".into();
        let taken = taken_up(&path, &[one]);
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
        trim(&path, &FinishedKeys::new(), "").unwrap().unwrap().write().unwrap();
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
        if let Some(spec) = one.case.members[0].job.spec_mut() {
            spec.direction = netcore::spec::Direction::Bidirectional;
        }
        let taken = taken_up(&path, &[one]);
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
        Fresh::with(&path, &[], &[written]).unwrap().publish().unwrap();
        let taken = taken_up(&path, &[one]);
        let mut summary = Summary::default();
        summary.push(&taken.history[0][0].measured[0].2);
        let row = summary.row().unwrap();
        let near = |got: Option<f64>, want: f64| got.is_some_and(|got| (got / want - 1.0).abs() < 0.01);
        assert!(near(row.latency_p99_us, 1.0) && near(row.receive_call_p99_us, 7.0), "{row:?}");
    }

    #[test]
    fn what_was_cut_off_is_measured_again() {
        let whole = "c1,a,1,iteration,measure,ok,,forward,,8\n";
        let (taken, left) = taken(&format!(
            "{whole}c1,a,2,interval,measure,ok,,forward,,8\nc1,a,2,iteration,warmup,ok,,forward,,8\n\
             c1,a,2,iteration,measure,cut,,forward,,7\n"
        ));
        assert_eq!((taken.history[0].len(), left.as_str()), (1, whole));
    }

    #[test]
    fn rows_of_another_run_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        fs::write(&path, "run_id,case_id,iteration,record,phase,status\nb,c1,1,iteration,measure,ok\n").unwrap();
        let said = take_up(&path, &[], "a").unwrap_err().to_string();
        assert!(said.contains("has rows of run b"), "{said}");
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
        let taken = taken_up(&path, &[one]);
        assert_eq!(taken.history[0].len(), 1);
        let rates: Vec<_> =
            taken.confirmed[0].iter().map(|(k, d)| (*k, d.measured[0].2.throughput_bits_per_s.unwrap())).collect();
        assert_eq!(rates, [(1, 7.0), (2, 6.0)]);
        assert!(taken.finished.contains(&("c1".into(), 3)));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 4, "only the torn end is gone");
    }
}
