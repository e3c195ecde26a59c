//! The reader of tables: streaming CSV by column name, from files or standard input, one row at a time.
//!
//! Every filter reads through it. `aggregate` and `window` are meant for gigabytes: they open their tables here and let
//! [`crate::parallel`] read the rows.
//!
//! A [`Table`] joins one or more inputs. Its header is the union of their columns, in the order of first appearance. A
//! column that a file lacks reads as empty there, unless the filter asked for it with [`Table::require`]. Rows keep the
//! text of their cells, so copied cells stay as they were; numbers are parsed when asked for.
//!
//! A ragged row, a second header, a cell that should be a number and bytes that are not UTF-8 are errors that name
//! file, line and column. Empty lines are skipped.
//!
//! [`select`] decides for every filter which rows count.

pub mod beside;
mod blocks;
pub mod layout;
pub mod markdown;
mod mistaken;
pub mod output;
pub mod quantity;
mod row;
pub mod rows;
pub mod select;

pub use blocks::RECORD_LIMIT;
pub use output::{Format, OutputArgs, formats, replace, sync_folder, write_csv, write_whole};
pub use row::{Cells, Row, parse_number};
pub use rows::Rows;
pub use schemas::{columns::results::Field, words::Record};
pub use select::{Picker, Selection};

pub(crate) use blocks::{Block, Blocks, Unchecked};
pub(crate) use output::{cells, csv_table};
pub(crate) use row::{Records, fields, unquoted};

use crate::{
    distinct,
    error::{Error, Place},
};
use schemas::{
    columns::{self, COLUMNS},
    text::counted,
    vocabulary::{self, Meaning, Unresolved},
};
use std::{
    fs::File,
    io::{IsTerminal, Read},
    os::{fd::AsFd, unix::fs::FileTypeExt},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// Arguments that most filters share: the rows that count, the output, the input.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TableArgs {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub input: InputArgs,
}

#[derive(Debug, Clone, Default, clap::Args)]
pub struct InputArgs {
    /// Results files (CSV); `-` or none: standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl InputArgs {
    /// Whether no file is named and standard input is a terminal, or `/dev/null`: a pipe or file has a table.
    pub fn is_absent(&self) -> bool {
        let device = || {
            let stdin = std::io::stdin().as_fd().try_clone_to_owned().ok()?;
            Some(File::from(stdin).metadata().ok()?.file_type().is_char_device())
        };
        self.files.is_empty() && device().unwrap_or(true)
    }
}

/// Column names of a table.
#[derive(Debug, Clone)]
pub struct Header {
    names: Vec<String>,
    /// The index of each column of results, once it was asked for.
    places: Vec<OnceLock<Option<usize>>>,
    /// The index of [`FILE`], if that was asked for.
    file: Option<usize>,
}

/// A column that no input has: the name of the input that a row comes from.
pub const FILE: &str = "file";

impl Header {
    fn new(names: Vec<String>) -> Self {
        Self { names, places: vec![OnceLock::new(); COLUMNS.len()], file: None }
    }

    /// The index of a column of results; `None` where the table has no such column.
    pub fn place(&self, field: Field) -> Option<usize> {
        *self.places[field as usize].get_or_init(|| self.find(field.name()))
    }

    /// The axis column of the swept key that fills a column, where the table has one: the column itself does not tell the
    /// swept values apart then.
    pub fn axis_of(&self, column: usize) -> Option<String> {
        vocabulary::axis_of(&self.names[column]).filter(|axis| self.names.contains(axis))
    }

    /// Whether the column is [`FILE`].
    pub fn is_file(&self, column: usize) -> bool {
        self.file == Some(column)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of the column that a name means (see [`vocabulary`]); `None` where it means none, or several.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.resolve(name).ok()
    }

    /// The index of the column that a name means, or a sentence why there is none.
    pub fn resolve(&self, name: &str) -> Result<usize, String> {
        vocabulary::resolve(name, &self.names).map_err(|error| match error {
            Unresolved::Missing => self.missing(name),
            Unresolved::Ambiguous(columns) => {
                let columns: Vec<String> = columns.iter().map(|c| format!("`{c}`")).collect();
                format!("`{name}` can be {}: name one of these columns", columns.join(" or "))
            }
        })
    }

    /// The names that are columns.
    pub fn having(&self, names: &[&str]) -> Vec<String> {
        names.iter().filter(|name| self.find(name).is_some()).map(|name| (*name).to_owned()).collect()
    }

    /// A sentence about a missing column; suggests a similar name if there is one.
    pub fn missing(&self, name: &str) -> String {
        let column = vocabulary::canonical(name);
        let statistics: Vec<String> = self
            .names
            .iter()
            .filter_map(|other| {
                let Meaning { metric: Some(metric), statistic: Some(of), .. } = Meaning::of(other) else { return None };
                (metric.column == column).then(|| format!("`{}.{of}`", metric.name))
            })
            .collect();
        if !statistics.is_empty() {
            return format!("there is no column `{column}`, only statistics of it: {}", statistics.join(", "));
        }
        let spellings = vocabulary::spellings(&self.names);
        let near = vocabulary::nearest(name, &spellings);
        let known = columns::find(&column).is_some();
        match near {
            _ if known && column != name => format!("there is no column `{column}` (for `{name}`)"),
            Some(near) => format!("there is no column `{name}`; did you mean `{near}`?"),
            None if known => {
                format!("there is no column `{name}`: written by an older version, or another filter left it out")
            }
            None if self.names.len() <= 12 => {
                format!("there is no column `{name}`; there are: {}", self.names.join(", "))
            }
            None if name.contains('.') => {
                format!(
                    "there is no column `{name}`, and no swept key of that name: `plumb table --all` shows the columns"
                )
            }
            None => format!("there is no column `{name}`: `plumb table --all` shows the columns"),
        }
    }
}

/// Refuses to write a column twice: no reader of tables would take it.
pub fn no_repeats(option: &str, names: &[String]) -> Result<(), Error> {
    match (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
        Some(i) => Err(Error::Usage(format!("{option} names `{}` twice", names[i]))),
        None => Ok(()),
    }
}

/// One input of a table.
pub(crate) struct Source {
    pub(crate) blocks: Blocks,
    pub(crate) shape: Shape,
}

/// Facts about the input that its rows need.
pub(crate) struct Shape {
    /// As given on the command line; `-` for standard input.
    pub(crate) name: Arc<str>,
    /// Its place among the inputs.
    pub(crate) input: usize,
    /// Its own columns.
    pub(crate) columns: Vec<String>,
    /// The place in this input of each column of the table.
    pub(crate) map: Vec<Option<usize>>,
}

impl Shape {
    /// Rejects a repeated header and a row with the wrong number of cells.
    pub(crate) fn check(&self, line: u64, cells: usize, is_header: bool) -> Result<(), Error> {
        if is_header {
            let reason = "a second header: two tables in one stream. Give the files as arguments instead of joining them with cat";
            return Err(self.error(line, None, reason));
        }
        if cells != self.columns.len() {
            let reason = format!("the row has {}, the header {}", counted(cells, "cell"), self.columns.len());
            return Err(self.error(line, None, reason));
        }
        Ok(())
    }

    /// An error about this input; `line` 0 means all of it.
    pub(crate) fn error(&self, line: u64, column: Option<String>, reason: impl Into<String>) -> Error {
        Error::Data { place: Place { file: self.name.to_string(), line, column }, reason: reason.into() }
    }
}

impl Source {
    /// Reads the header. `map` is filled in later.
    fn open(name: &str, input: Box<dyn Read + Send>) -> Result<Self, Error> {
        let mut blocks = Blocks::new(name.into(), input);
        let mut shape = Shape { name: name.into(), input: 0, columns: Vec::new(), map: Vec::new() };
        let Some(first) = blocks.first_record()? else {
            return Err(shape.error(0, None, "is empty: there is not even a header"));
        };
        let text = first.text.strip_prefix('\u{feff}').unwrap_or(&first.text).trim_end_matches(['\n', '\r']);
        if text.contains('\r') {
            let reason =
                "a carriage return within the line: lines end with \\n or \\r\\n (convert with tr '\\r' '\\n')";
            return Err(shape.error(1, None, reason));
        }
        if let Some(kind) = mistaken::kind(name, text) {
            return Err(shape.error(1, None, kind));
        }
        if text.is_empty() {
            return Err(shape.error(1, None, "the first line is empty; it must hold the column names"));
        }
        let mut names = csv::StringRecord::new();
        row::read_record(text, &mut names);
        for (i, column) in names.iter().enumerate() {
            if column.is_empty() {
                return Err(shape.error(1, None, format!("column {} of the header has no name", i + 1)));
            }
            if shape.columns.iter().any(|name| name == column) {
                return Err(shape.error(1, Some(column.to_owned()), "the header names this column twice"));
            }
            shape.columns.push(column.to_owned());
        }
        Ok(Self { blocks, shape })
    }
}

/// One or more CSV inputs as one table.
pub struct Table {
    header: Header,
    sources: Vec<Source>,
    /// Index of the source being read.
    at: usize,
    /// Some of its records, and the current one among them.
    block: Option<(Block, Records)>,
}

impl Table {
    /// Opens the inputs and reads their headers. Opens every file before it reads any row.
    pub fn open(inputs: &InputArgs) -> Result<Self, Error> {
        let standard_input = PathBuf::from("-");
        let files = if inputs.files.is_empty() { std::slice::from_ref(&standard_input) } else { &inputs.files };
        let mut opened: Vec<(String, Box<dyn Read + Send>)> = Vec::new();
        for path in files {
            if path.as_os_str() == "-" {
                if opened.iter().any(|(name, _)| name == "-") {
                    return Err(Error::Usage("standard input (`-`) can be read only once".to_owned()));
                }
                let stdin = std::io::stdin();
                if stdin.is_terminal() {
                    return Err(Error::Usage(
                        "nothing to read: name a results file, or pipe one in (plumb run PLAN | plumb …)".to_owned(),
                    ));
                }
                opened.push(("-".to_owned(), Box::new(stdin)));
            } else {
                let file_error = Error::file(path);
                let file = File::open(path).map_err(|source| Error::unreadable(path, source))?;
                if file.metadata().map_err(&file_error)?.is_dir() {
                    let reason = "is a directory: name the table in it (a run's folder has results.csv)";
                    return Err(file_error(std::io::Error::new(std::io::ErrorKind::IsADirectory, reason)));
                }
                opened.push((path.display().to_string(), Box::new(file)));
            }
        }
        Self::from_readers(opened)
    }

    /// Joins readers into one table. Errors use the name given with each.
    fn from_readers(inputs: Vec<(String, Box<dyn Read + Send>)>) -> Result<Self, Error> {
        let mut sources =
            inputs.into_iter().map(|(name, input)| Source::open(&name, input)).collect::<Result<Vec<_>, _>>()?;
        let names = distinct(sources.iter().flat_map(|source| source.shape.columns.clone()));
        for (input, Source { shape, .. }) in sources.iter_mut().enumerate() {
            shape.input = input;
            let own = |column: &String| shape.columns.iter().position(|name| name == column);
            shape.map = names.iter().map(own).collect();
        }
        Ok(Self { header: Header::new(names), sources, at: 0, block: None })
    }

    /// A table from text in memory.
    pub fn from_text(name: &str, text: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Self::from_readers(vec![(name.to_owned(), Box::new(std::io::Cursor::new(text.into())))])
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.sources.len()
    }

    /// The index of a column that every input must have.
    pub fn require(&self, name: &str) -> Result<usize, Error> {
        let error = |source: &Source, reason: String| source.shape.error(1, None, reason);
        let index = self.header.resolve(name).map_err(|reason| error(&self.sources[0], reason))?;
        match self.sources.iter().find(|s| s.shape.map[index].is_none() && !self.header.is_file(index)) {
            None => Ok(index),
            Some(source) => Err(error(
                source,
                format!(
                    "there is no column `{}`, which the other files have: written by an older version, or another filter left it out",
                    self.header.names[index]
                ),
            )),
        }
    }

    /// The same for a name that somebody typed: one that no table has is a mistake of the command line.
    pub fn asked(&self, name: &str) -> Result<usize, Error> {
        self.require(name).map_err(|fault| {
            let meaning = Meaning::of(name);
            let is_known = meaning.metric.is_some() || columns::find(&vocabulary::canonical(name)).is_some();
            if is_known { fault } else { Error::Usage(fault.to_string()) }
        })
    }

    /// The columns that rows are told apart by, for any names that they have in `-g`, where [`FILE`] is a column.
    pub fn names_of(&mut self, names: &[String]) -> Result<Vec<String>, Error> {
        if names.iter().any(|name| name == FILE) && !self.header.names.iter().any(|name| name == FILE) {
            self.header.file = Some(self.header.names.len());
            self.header.names.push(FILE.to_owned());
            self.sources.iter_mut().for_each(|source| source.shape.map.push(None));
        }
        let own = |name: &String| {
            let column = self.asked(name)?;
            Ok(self.header.axis_of(column).unwrap_or_else(|| self.header.names[column].clone()))
        };
        let found = names.iter().map(own).collect::<Result<Vec<_>, Error>>()?;
        no_repeats("-g", &found)?;
        Ok(found)
    }

    /// The columns to group rows by: those named, else `case`, and `member` and `direction` where the table has them.
    pub fn group_by(&mut self, names: &[String]) -> Result<Vec<usize>, Error> {
        if names.is_empty() {
            let usual = ["member", "direction"].into_iter().filter_map(|name| self.header.find(name));
            return Ok(std::iter::once(self.require("case")?).chain(usual).collect());
        }
        self.names_of(names)?.iter().map(|name| self.asked(name)).collect()
    }

    /// The index of the rate that is asked for; without a name, of the rate that the table has.
    pub fn require_rate(&self, name: Option<&str>) -> Result<usize, Error> {
        let usual =
            || ["throughput_bits_per_s", "transactions_per_s"].into_iter().find(|n| self.header.find(n).is_some());
        self.asked(name.or_else(usual).unwrap_or("throughput_bits_per_s"))
    }

    /// An error about the table as a whole, for example that it has no rows of some kind.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        let file = self.sources.iter().map(|s| s.shape.name.to_string()).collect::<Vec<_>>().join(", ");
        Error::Data { place: Place { file, line: 0, column: None }, reason: reason.into() }
    }

    /// Header and sources, for the parallel reader.
    pub(crate) fn parts(&mut self) -> (&Header, &mut [Source]) {
        (&self.header, &mut self.sources)
    }

    /// The next row; `None` after the last row of the last input.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Error> {
        while let Some(Source { blocks, shape }) = self.sources.get_mut(self.at) {
            if let Some((block, records)) = &mut self.block
                && records.advance(&block.text)
            {
                shape.check(records.line, records.record.len(), records.record.iter().eq(&shape.columns))?;
                break;
            }
            self.block = blocks.next(0)?.map(|block| {
                let records = Records::new(block.line);
                (block, records)
            });
            if self.block.is_none() {
                self.at += 1;
            }
        }
        let source = self.sources.get(self.at);
        Ok(source.zip(self.block.as_ref()).map(|(Source { shape, .. }, (_, records))| Row {
            shape,
            header: &self.header,
            record: &records.record,
            line: records.line,
        }))
    }
}

#[cfg(test)]
mod tests;
