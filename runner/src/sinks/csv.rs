//! The results table: a header, then the rows of each iteration in one write.
//!
//! A file is made with its first rows, so that a run that measures nothing leaves an earlier one as it was.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use analyze::table::sync_folder;
use schemas::columns::{self, Row};
use tempfile::TempPath;

use super::appended::Appended;
use crate::error::Error;

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
