//! The cycles of a watched plan: one row each, also of those that measured nothing, in one file of the history's folder.

use super::{lines::push_line, open};
use crate::{
    error::Error,
    history::series::Outage,
    table::output::{replace, sync_folder},
};
use schemas::{
    columns::{self, CycleRow, cycles::CYCLE_COLUMNS},
    words::CycleStatus,
};
use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

/// Its name in the folder of a history.
pub const CYCLES_FILE: &str = "cycles.csv";

/// Appends rows, all or none of them.
pub fn append_cycles(folder: &Path, rows: &[CycleRow]) -> Result<(), Error> {
    let path = folder.join(CYCLES_FILE);
    let at = Error::file(&path);
    fs::create_dir_all(folder).map_err(&at)?;
    let (mut file, _) = open(&path, true).map_err(&at)?;
    let before = file.metadata().map_err(&at)?.len();
    let mut text = String::new();
    if before == 0 {
        text = columns::names(CYCLE_COLUMNS).collect::<Vec<_>>().join(",") + "\n";
    } else {
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(&at)?;
        // A crash cut off the line; its reader leaves it out.
        text.extend((last != *b"\n").then_some('\n'));
    }
    for row in rows {
        push_line(&mut text, |push| row.for_each_cell(push));
    }
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    written.map_err(|source| {
        // A part of a row would be in the way of the next one.
        let _ = file.set_len(before);
        at(source)
    })?;
    if before == 0 { sync_folder(&path).map_err(&at) } else { Ok(()) }
}

/// The cycles of a history, in the order of the file. Lines that are cut off and the like are left out, with a note.
pub fn read_cycles(folder: &Path) -> Result<(Vec<CycleRow>, Vec<String>), Error> {
    let path = folder.join(CYCLES_FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        bytes => bytes.map_err(Error::file(&path))?,
    };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let mut header: Vec<String> = Vec::new();
    // Every row is one line, so a line that was cut off spoils no other.
    for (number, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        let mut cells = csv::StringRecord::new();
        if !reader.read_record(&mut cells).unwrap_or(false) {
            continue;
        }
        if cells.get(0) == Some(CYCLE_COLUMNS[0].name) {
            header = cells.iter().map(str::to_owned).collect();
            continue;
        }
        let mut row = CycleRow::default();
        // A cell of a newer version's word stays empty.
        header.iter().zip(&cells).for_each(|(name, cell)| drop(row.set(name, cell)));
        if cells.len() == header.len() && row.time.is_some() && row.status.is_some() {
            rows.push(row);
        } else {
            notes.push(format!("{}:{number}: the line is no whole cycle: left out", path.display()));
        }
    }
    Ok((rows, notes))
}

/// The outages among cycles, in the order of their begins.
pub fn outages(rows: &[CycleRow]) -> Vec<Outage> {
    let mut all: Vec<Outage> = Vec::new();
    let text = |cell: &Option<String>| cell.clone().unwrap_or_default();
    for row in rows {
        let (Some(status), Some(time)) = (row.status, &row.time) else { continue };
        let (plan, host) = (text(&row.plan), text(&row.host));
        let lasts = |outage: &&mut Outage| outage.end.is_none() && outage.plan == plan && outage.host == host;
        let open = all.iter_mut().rfind(lasts);
        match (open, status.is_outage()) {
            (Some(open), true) => open.cycles += 1,
            (None, true) => {
                let (begin, reason) = (time.to_string(), text(&row.reason));
                all.push(Outage { plan, host, begin, end: None, cycles: 1, reason });
            }
            // A signal says nothing about the network.
            (Some(open), false) if status.is_measured() => open.end = Some(time.to_string()),
            _ => {}
        }
    }
    all
}

/// Leaves out old cycles that measured everything, as those around them did, and skipped no start: the begin and the end of
/// each outage stay. The numbers of rows before and after.
pub(super) fn thin_cycles(folder: &Path, before: &str, is_dry: bool) -> Result<(usize, usize), Error> {
    let path = folder.join(CYCLES_FILE);
    // A watch may append to it meanwhile.
    let lock = if is_dry || !path.exists() { None } else { Some(open(&path, false)) };
    let _lock = lock.transpose().map_err(Error::file(&path))?;
    let (rows, _) = read_cycles(folder)?;
    let measured = |at: usize| rows[at].status.is_some_and(CycleStatus::is_measured);
    let goes = |at: usize| {
        let row = &rows[at];
        let is_old = row.time.as_ref().is_some_and(|time| &**time < before);
        is_old && at > 0 && at + 1 < rows.len() && row.missed.unwrap_or(0) == 0 && (at - 1..=at + 1).all(measured)
    };
    let left: Vec<usize> = (0..rows.len()).filter(|at| !goes(*at)).collect();
    if left.len() < rows.len() && !is_dry {
        let mut text = columns::names(CYCLE_COLUMNS).collect::<Vec<_>>().join(",") + "\n";
        for at in &left {
            push_line(&mut text, |push| rows[*at].for_each_cell(push));
        }
        replace(&path, text)?;
    }
    Ok((rows.len(), left.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::columns::Timestamp;

    fn cycle(minute: u32, status: CycleStatus) -> CycleRow {
        CycleRow {
            time: Some(Timestamp(format!("2026-01-01T00:{minute:02}:00Z"))),
            plan: Some("p".into()),
            host: Some("a".into()),
            status: Some(status),
            reason: status.is_outage().then(|| "b is gone, \"really\"\nso".into()),
            ..CycleRow::default()
        }
    }

    #[test]
    fn an_outage_has_a_begin_and_an_end() {
        use CycleStatus::{Cut, Down, Failed, Judged, Ok};
        let rows: Vec<CycleRow> =
            (0..).zip([Ok, Down, Failed, Cut, Down, Judged, Ok, Down]).map(|(at, status)| cycle(at, status)).collect();
        let found = outages(&rows);
        let spans: Vec<_> = found
            .iter()
            .map(|it| (&it.begin[14..16], it.end.as_deref().map(|end| end[14..16].to_owned()), it.cycles))
            .collect();
        assert_eq!(spans, [("01", Some("05".to_owned()), 3), ("07", None, 1)]);
        let other = CycleRow { host: Some("b".into()), ..cycle(9, Ok) };
        assert_eq!(outages(&[rows, vec![other]].concat())[1].end, None, "another machine ends nothing");
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_cycles(folder.path()).unwrap().0.len(), 0);
        append_cycles(folder.path(), &[cycle(0, CycleStatus::Ok), cycle(1, CycleStatus::Down)]).unwrap();
        let file = folder.path().join(CYCLES_FILE);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, [&whole, &b"2026-01-01T00:02:00Z,\"p"[..]].concat()).unwrap();
        append_cycles(folder.path(), &[cycle(3, CycleStatus::Ok)]).unwrap();
        let (rows, notes) = read_cycles(folder.path()).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.status.unwrap()).collect::<Vec<_>>(),
            [CycleStatus::Ok, CycleStatus::Down, CycleStatus::Ok]
        );
        assert_eq!(rows[1].reason.as_deref(), Some("b is gone, \"really\" so"));
        assert!(notes.len() == 1 && notes[0].contains("cycles.csv:4: "), "{notes:?}");
    }

    #[test]
    fn old_cycles_go_and_outages_stay() {
        let folder = tempfile::tempdir().unwrap();
        let status = |at| if (20..23).contains(&at) { CycleStatus::Down } else { CycleStatus::Ok };
        let rows: Vec<CycleRow> = (0..40).map(|at| cycle(at, status(at))).collect();
        append_cycles(folder.path(), &rows).unwrap();
        let before = "2026-01-01T00:30:00Z";
        assert_eq!(thin_cycles(folder.path(), before, true).unwrap(), (40, 16));
        let all = read_cycles(folder.path()).unwrap().0;
        assert_eq!(all.len(), 40);
        thin_cycles(folder.path(), before, false).unwrap();
        let left = read_cycles(folder.path()).unwrap().0;
        assert_eq!((left.len(), outages(&left)), (16, outages(&all)));
    }
}
