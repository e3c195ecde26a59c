//! Output of filters: standard output, or a file that is replaced when the result is complete.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{ValueEnum, builder::TypedValueParser};
use schemas::columns::number;

use crate::error::Error;

/// A value as CSV has it; empty where there is none.
pub trait CsvCell {
    fn cell(self) -> String;
}

impl CsvCell for f64 {
    fn cell(self) -> String {
        number(self)
    }
}

impl<T: CsvCell> CsvCell for Option<T> {
    fn cell(self) -> String {
        self.map(T::cell).unwrap_or_default()
    }
}

macro_rules! plain_cells {
    ($($plain:ty)*) => { $(
        impl CsvCell for $plain {
            fn cell(self) -> String {
                self.to_string()
            }
        }
    )* };
}
plain_cells!(u64 usize bool &str &String);

impl CsvCell for String {
    fn cell(self) -> String {
        self
    }
}

/// The cells of a row, from values of any type that has one.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$($crate::table::output::CsvCell::cell($value)),*] };
}
pub(crate) use cells;

/// A table of named columns: a struct with a field per column, its header, and its cells. A column that a row does not
/// name is empty.
macro_rules! csv_table {
    ($(#[$meta:meta])* $row:ident { $($name:ident: $value:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Default)]
        struct $row {
            $($name: $value,)*
        }

        impl $row {
            const HEADER: &[&str] = &[$(stringify!($name)),*];

            fn cells(self) -> Vec<String> {
                $crate::table::output::cells![$(self.$name),*].to_vec()
            }
        }
    };
}
pub(crate) use csv_table;

/// Writes a table as CSV.
pub fn write_csv<R>(
    output: &mut dyn Write,
    header: impl IntoIterator<Item: AsRef<[u8]>>,
    rows: impl IntoIterator<Item = R>,
) -> Result<(), Error>
where
    R: IntoIterator<Item: AsRef<[u8]>>,
{
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(header)?;
    rows.into_iter().try_for_each(|row| writer.write_record(row))?;
    Ok(writer.flush()?)
}

/// Format of an output. The help is that of verdicts; [`formats`] gives that of other tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The `verdicts` table
    Csv,
    /// Aligned columns
    Text,
    /// A Markdown table
    Md,
}

/// The parser of an option that takes these formats, each with its help.
pub fn formats<const N: usize>(of: [(Format, &'static str); N]) -> impl TypedValueParser<Value = Format> {
    let values = of.into_iter().filter_map(|(format, help)| Some(format.to_possible_value()?.help(help)));
    clap::builder::PossibleValuesParser::new(values).try_map(|name| Format::from_str(&name, false))
}

#[derive(Debug, Clone, Default, clap::Args)]
pub struct OutputArgs {
    /// Write to FILE instead of standard output (`-`); it is replaced only when the result is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl OutputArgs {
    /// The format that was asked for, else text on a terminal and CSV anywhere else.
    pub fn format(&self, asked: Option<Format>) -> Format {
        asked.unwrap_or(if self.is_for_people() { Format::Text } else { Format::Csv })
    }

    /// Whether the output goes to a terminal.
    pub fn is_for_people(&self) -> bool {
        self.file().is_none() && std::io::stdout().is_terminal()
    }

    /// The output file; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// Runs `write` on the output file or on `stdout`, and flushes.
    pub fn write<T>(
        &self,
        stdout: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(path) = self.file() {
            return write_whole(path, write);
        }
        let mut buffered = BufWriter::with_capacity(64 << 10, stdout);
        let value = write(&mut buffered)?;
        buffered.flush()?;
        Ok(value)
    }
}

/// Replaces a file by these bytes, as [`write_whole`] does.
pub fn replace(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
    write_whole(path, |file| Ok(file.write_all(bytes.as_ref())?))
}

/// Writes a temporary file in the same folder and renames it when complete: a reader, or a crash, sees the old file or
/// the new one. A path that is not a regular file (`/dev/null`, a FIFO) is written directly.
pub fn write_whole<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, Error>) -> Result<T, Error> {
    let file_error = Error::file(path);
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        let mut file = BufWriter::new(std::fs::OpenOptions::new().write(true).open(path).map_err(&file_error)?);
        let value = write(&mut file)?;
        file.flush().map_err(&file_error)?;
        return Ok(value);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // `create_new` leaves the mode to the umask; a temporary file is private otherwise.
    let temporary = tempfile::Builder::new().make_in(folder, |path| File::create_new(path)).map_err(&file_error)?;
    let mut temporary = BufWriter::new(temporary);
    let value = write(&mut temporary).map_err(|e| match e {
        Error::Output(source) => file_error(source),
        other => other,
    })?;
    let temporary = temporary.into_inner().map_err(|e| file_error(e.into_error()))?;
    temporary.as_file().sync_all().map_err(&file_error)?;
    temporary.persist(path).map_err(|e| file_error(e.error))?;
    sync_folder(path).map_err(&file_error)?;
    Ok(value)
}

/// Brings the name of a file in its folder to the disk, after it was made or renamed. Some file systems cannot.
pub fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A folder that may be written and not read cannot be opened.
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    folder.sync_all().or_else(|e| if e.kind() == std::io::ErrorKind::InvalidInput { Ok(()) } else { Err(e) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        std::fs::write(&path, "old").unwrap();
        let result: Result<(), Error> = write_whole(&path, |w| {
            w.write_all(b"half")?;
            Err(Error::Usage("no".into()))
        });
        assert!(result.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        replace(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_dash_is_standard_output() {
        let arguments = OutputArgs { output: Some("-".into()) };
        let mut out = Vec::new();
        arguments.write(&mut out, |w| Ok(w.write_all(b"here")?)).unwrap();
        assert_eq!(out, b"here");
        assert!(!Path::new("-").exists());
    }

    #[test]
    fn a_missing_folder_is_an_error_with_the_path_that_was_given() {
        let error = write_whole(Path::new("no/such/folder/out.csv"), |_| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "no/such/folder/out.csv: there is no folder no/such/folder: make it, or name another");
    }
}
