//! The tables of a run: results, in one write per iteration, and what the kernels and interfaces of the ends counted, as far as
//! tests collected it.
//!
//! A file is made with its first rows, so that a run that measures nothing leaves an earlier one as it was. It grows by
//! complete pieces: a piece that does not fit is removed again.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use analyze::table::sync_folder;
use netcore::report::SideReport;
use schemas::columns::{self, Column, CounterRow, Row, names};
use tempfile::TempPath;

use crate::{
    error::Error,
    schedule::{Measured, step::Step},
};

#[derive(Debug)]
pub struct Appended {
    file: File,
    /// Length of the complete pieces, bytes.
    whole: u64,
}

impl Appended {
    /// The file must be open at its end.
    pub fn at_end_of(file: File) -> io::Result<Self> {
        let whole = file.metadata()?.len();
        Ok(Self { file, whole })
    }

    /// Brings the pieces to the disk. A device or a pipe has none.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data().or_else(|e| match e.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
            _ => Err(e),
        })
    }
}

impl Write for Appended {
    /// Writes the whole piece or, if the file can be truncated, nothing.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.file.write_all(piece) {
            // Rows written to a removed file are lost.
            Ok(()) if self.file.metadata()?.nlink() == 0 => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed while the run was going on"));
            }
            Ok(()) => self.whole += piece.len() as u64,
            Err(error) => {
                // A full disk takes as much as fits. Only a regular file can be truncated.
                let _ = self.file.set_len(self.whole);
                return Err(error);
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes rows as they become known.
pub struct CsvSink {
    out: Out,
    to: String,
    axes: usize,
    /// Whether the reader went away: nothing more is written then, which is not an error.
    closed: bool,
}

enum Out {
    /// A file that grows.
    File(Appended),
    /// A pipe, a device, or standard output.
    Stream(Box<dyn Write>),
}

/// A table that is written beside the one that it replaces.
pub struct Fresh {
    sink: CsvSink,
    path: PathBuf,
    temporary: TempPath,
}

impl Fresh {
    /// A table with its first rows. The file at `path` stays until [`Fresh::publish`].
    pub fn with(path: &Path, axis_paths: &[String], rows: &[Row]) -> Result<Self, Error> {
        let to = path.display().to_string();
        let fault = || Error::output(&to);
        // A link stays a link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // `create_new` leaves the mode to the umask; a temporary file is private otherwise.
        let made = tempfile::Builder::new().make_in(folder, |path| File::create_new(path)).map_err(fault())?;
        let (file, temporary) = made.into_parts();
        let file = Appended::at_end_of(file).map_err(fault())?;
        let mut sink = CsvSink::new(Out::File(file), to.clone(), axis_paths)?;
        sink.rows(rows)?;
        sink.sync()?;
        Ok(Self { sink, path, temporary })
    }

    /// Puts it in the place of the earlier one.
    pub fn publish(self) -> Result<CsvSink, Error> {
        let Self { mut sink, path, temporary } = self;
        let fault = || Error::output(&sink.to);
        match temporary.persist(&path) {
            Ok(()) => sync_folder(&path).map_err(fault())?,
            // A file that is a mount point, as of a container, cannot be replaced, only written over.
            Err(e) if e.error.kind() == io::ErrorKind::ResourceBusy => {
                fs::copy(&e.path, &path).map_err(fault())?;
                let file = File::options().append(true).open(&path).and_then(Appended::at_end_of);
                sink.out = Out::File(file.map_err(fault())?);
            }
            Err(e) => return Err(fault()(e.error)),
        }
        Ok(sink)
    }
}

impl CsvSink {
    /// Goes on at the end of a table that ends with a whole row.
    pub fn append(path: &Path, axis_paths: &[String]) -> Result<Self, Error> {
        let to = path.display().to_string();
        let file = File::options().append(true).open(path).and_then(Appended::at_end_of).map_err(Error::output(&to))?;
        Ok(Self { out: Out::File(file), to, axes: axis_paths.len(), closed: false })
    }

    /// Writes to a device or a pipe that has a name.
    pub fn special(path: &Path, axis_paths: &[String]) -> Result<Self, Error> {
        let to = path.display().to_string();
        let file = File::options().write(true).open(path).map_err(Error::output(&to))?;
        Self::new(Out::Stream(Box::new(file)), to, axis_paths)
    }

    /// Writes to standard output.
    pub fn stdout(axis_paths: &[String]) -> Result<Self, Error> {
        Self::new(Out::Stream(Box::new(io::stdout())), "standard output".into(), axis_paths)
    }

    fn new(out: Out, to: String, axis_paths: &[String]) -> Result<Self, Error> {
        let mut sink = Self { out, to, axes: axis_paths.len(), closed: false };
        sink.write(&header(columns::header(axis_paths)))?;
        Ok(sink)
    }

    /// Brings the rows of a file to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.out {
            Out::File(file) => file.sync().map_err(Error::output(&self.to)),
            Out::Stream(_) => Ok(()),
        }
    }

    /// Writes rows in one write, so that a crash leaves all of them or none.
    pub fn rows(&mut self, rows: &[Row]) -> Result<(), Error> {
        let mut text = LineWriter::new();
        for row in rows {
            debug_assert!(row.axes.len() == self.axes, "a row has the header's axes");
            row.for_each_cell(|cell| text.cell(cell));
            text.end();
        }
        if rows.is_empty() { Ok(()) } else { self.write(&text.finish()) }
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        let out: &mut dyn Write = match &mut self.out {
            Out::File(file) => file,
            Out::Stream(stream) => stream,
        };
        match out.write_all(line).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            other => other.map_err(Error::output(&self.to)),
        }
    }

    /// Whether the reader went away.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

/// The line of a table's header.
pub(super) fn header(names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<u8> {
    let mut line = LineWriter::new();
    names.into_iter().for_each(|name| line.cell(name.as_ref()));
    line.end();
    line.finish()
}

/// Lines of RFC 4180, built in memory so that they can be written at once.
pub(super) struct LineWriter(csv::Writer<Vec<u8>>);

impl LineWriter {
    pub(super) fn new() -> Self {
        Self(csv::Writer::from_writer(Vec::with_capacity(1024)))
    }

    pub(super) fn cell(&mut self, text: &str) {
        // Writing to memory cannot fail.
        let _ = self.0.write_field(text);
    }

    pub(super) fn end(&mut self) {
        let _ = self.0.write_record(None::<&[u8]>);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap_or_default()
    }
}

/// A table beside the results. It is created with its first row, so that a run without any leaves no empty file.
#[derive(Debug)]
pub struct SideTable {
    path: PathBuf,
    columns: &'static [Column],
    resume: bool,
    /// Rows from before the run had its first row in the results; `None` after that.
    waiting: Option<Vec<u8>>,
    file: Option<Appended>,
}

impl SideTable {
    /// Will write there; a resumed run adds to what is there.
    pub fn new(path: &Path, columns: &'static [Column], resume: bool) -> Self {
        Self { path: path.to_owned(), columns, resume, waiting: Some(Vec::new()), file: None }
    }

    /// Allows the file to be made.
    pub fn begin(&mut self) -> Result<(), Error> {
        let waiting = self.waiting.take().unwrap_or_default();
        self.write(&waiting)
    }

    /// Brings the rows to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync().map_err(Error::output(self.path.display())))
    }

    /// Writes the lines of an iteration.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.waiting {
            Some(waiting) => {
                waiting.extend(bytes);
                Ok(())
            }
            None => self.write(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let fault = || Error::output(self.path.display());
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                // A resumed run goes on where the table ends.
                let new = !self.resume || !self.path.exists();
                let mut options = File::options();
                options.create(true).write(true).truncate(new).append(!new);
                let mut file = options.open(&self.path).and_then(Appended::at_end_of).map_err(fault())?;
                if new {
                    file.write_all(&header(names(self.columns))).map_err(fault())?;
                }
                none.insert(file)
            }
        };
        file.write_all(bytes).map_err(fault())
    }
}

/// The lines of the counters of an iteration.
pub fn counter_lines(step: &Step, iteration: u32, measured: &Measured) -> Vec<u8> {
    let mut text = LineWriter::new();
    for ((member, row), reports) in step.members_with_identity().zip(&measured.members) {
        let far = reports.far.as_ref().map(|far| (member.to.name(), far));
        let ends: Vec<(&str, &SideReport)> = std::iter::once((member.from.name(), &reports.near)).chain(far).collect();
        for (host, window) in ends.iter().flat_map(|(host, r)| r.counters.iter().map(move |w| (host, w))) {
            for change in &window.values {
                let seconds = window.elapsed_ns as f64 / 1e9;
                // Counters only grow: one that fell is a gauge, or began again.
                let delta = change.after.checked_sub(change.before);
                let row = CounterRow {
                    run_id: row.run_id.clone(),
                    case_id: row.case_id.clone(),
                    case: row.case.clone(),
                    member: row.member.clone(),
                    iteration: Some(iteration.into()),
                    host: Some((*host).to_owned()),
                    span: Some(window.span),
                    start_s: Some(window.start_ns as f64 / 1e9),
                    source: Some(change.source.clone()),
                    key: Some(change.key.clone()),
                    before: Some(change.before),
                    after: Some(change.after),
                    delta,
                    elapsed_s: Some(seconds),
                    rate_per_s: delta.map(|d| d as f64 / seconds),
                    note: delta.is_none().then(|| "smaller than before: a gauge, or a reset".into()),
                };
                row.for_each_cell(|cell| text.cell(cell));
                text.end();
            }
        }
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    fn stream(out: impl Write + 'static) -> Out {
        Out::Stream(Box::new(out))
    }

    /// Remembers each write by itself.
    #[derive(Clone, Default)]
    struct Writes(Rc<RefCell<Vec<Vec<u8>>>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rows_that_belong_together_are_one_write_and_read_back() {
        let writes = Writes::default();
        let mut sink = CsvSink::new(stream(writes.clone()), "x".into(), &["socket.mss".into()]).unwrap();
        let row = Row { case: Some("a[b=\"1\", c=2]\n".into()), axes: vec!["1448".into()], ..Row::default() };
        sink.rows(&[row.clone(), row]).unwrap();
        let writes = writes.0.borrow();
        assert_eq!(writes.len(), 2);
        let all = writes.concat();
        let mut reader = csv::Reader::from_reader(all.as_slice());
        assert_eq!(reader.headers().unwrap().iter().next_back(), Some("axis_socket_mss"));
        let record = reader.records().next().unwrap().unwrap();
        assert_eq!((&record[4], record.iter().next_back()), ("a[b=\"1\", c=2]\n", Some("1448")));
    }

    #[test]
    fn a_reader_that_leaves_is_no_fault_and_a_full_disk_is() {
        struct Fails(io::ErrorKind);
        impl Write for Fails {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sink = CsvSink::new(stream(Fails(io::ErrorKind::BrokenPipe)), "x".into(), &[]).unwrap();
        assert!(sink.is_closed());
        let full = CsvSink::new(stream(Fails(io::ErrorKind::StorageFull)), "x".into(), &[]);
        assert_eq!(full.err().map(|e| e.exit().code()), Some(3));
    }
}
