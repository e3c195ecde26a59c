//! The reader that all filters share: streaming CSV by column name, from files or standard input.
//!
//! A [`Table`] is one or more inputs seen as one table. Its header is the union of theirs by name, in the order of first
//! appearance: the same column may stand elsewhere in another file, and a column that a file lacks reads as empty there,
//! unless the filter asked for it with [`Table::require`]. Rows keep the text of their cells; numbers are only parsed
//! when asked for, so what passes through is copied byte for byte.
//!
//! Nothing is skipped in silence: a ragged row, a second header in the middle, a cell that is no number, bytes that are
//! not UTF-8 are errors that name file, line and column. (An empty line carries no cells and is passed over.)
//!
//! Which rows count is one decision, taken by [`select`] for every filter alike.

mod blocks;
pub mod layout;
mod number;
pub mod output;
mod parallel;
mod row;
pub mod rows;
pub mod select;
mod starts;

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;

use blocks::Blocks;
pub use blocks::RECORD_LIMIT;
pub use number::parse_number;
pub use output::{OutputArgs, write_whole};
use row::BlockRows;
pub use row::Row;
pub use rows::{Parts, Rows};
pub use select::{Picker, RecordKind, Selection};
use starts::{ELSEWHERE, Wanted};

use crate::error::{Error, Place};

/// `FILE…`, shared by the filters.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct InputArgs {
    /// Results files (CSV); `-` or none: standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Column names of a table, and where each is.
#[derive(Debug, Clone, Default)]
pub struct Header {
    names: Vec<String>,
}

impl Header {
    /// The names in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of a column. A metric's name (`throughput`) stands for its column unless a column is called so itself.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        let exact = |name: &str| self.names.iter().position(|n| n == name);
        exact(name).or_else(|| schemas::metrics::find(name).and_then(|m| exact(m.column)))
    }

    /// A sentence about a column that is not there, with the nearest name if one is near.
    #[must_use]
    pub fn missing(&self, name: &str) -> String {
        let near = self
            .names
            .iter()
            .map(String::as_str)
            .chain(
                schemas::metrics::METRICS.iter().filter(|m| self.names.iter().any(|n| n == m.column)).map(|m| m.name),
            )
            .map(|n| (strsim::jaro_winkler(n, name), n))
            .filter(|(score, _)| *score > 0.84)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let [only] = &self.names[..]
            && let Some(separator) = [';', '\t'].into_iter().find(|s| only.contains(*s))
        {
            return format!(
                "there is no column `{name}`, only one called `{}`: tables have commas between their cells, not {separator:?}",
                only.escape_debug()
            );
        }
        let known = schemas::metrics::find(name)
            .map(|m| m.column)
            .or_else(|| schemas::columns::find(name).map(|c| c.name))
            .filter(|c| !self.names.iter().any(|n| n == c));
        match (known, near) {
            (Some(column), _) if column != name => format!("there is no column `{column}` (for `{name}`)"),
            (_, Some((_, near))) => format!("there is no column `{name}`; did you mean `{near}`?"),
            (Some(_), None) => {
                format!("there is no column `{name}`: written by an older version, or another filter left it out")
            }
            (None, None) if self.names.len() <= 12 => {
                format!("there is no column `{name}`; there are: {}", self.names.join(", "))
            }
            (None, None) => format!("there is no column `{name}`"),
        }
    }
}

/// One input of a table.
pub(crate) struct Source {
    blocks: Blocks,
    shape: Shape,
}

/// What rows have to know about the input they come from.
pub(crate) struct Shape {
    /// As given; `-` for standard input.
    name: Arc<str>,
    /// Its header line without the line end, to recognise it when it comes again.
    header_line: String,
    /// Its own number of columns.
    width: usize,
    /// For each column of the table, where it stands in this input.
    map: Vec<Option<u32>>,
    /// Whether its columns are the table's, in the same order.
    identical: bool,
    /// Which of its columns are looked at.
    wanted: Wanted,
    /// For each column of the table, where among what was wanted it begins and ends; nowhere if it was not.
    places: Vec<(u32, u32)>,
}

impl Shape {
    fn want(&mut self, wanted: Wanted) {
        let place = |own: u32| (wanted.slot(own as usize), wanted.slot(own as usize + 1));
        self.places = self.map.iter().map(|own| own.map_or((ELSEWHERE, ELSEWHERE), place)).collect();
        self.wanted = wanted;
    }
}

impl Source {
    /// Reads the header and gives its names with the source, whose `map` is still to be made.
    fn open(name: &str, input: Box<dyn Read + Send>) -> Result<(Self, Vec<String>), Error> {
        let name: Arc<str> = name.into();
        let mut blocks = Blocks::new(name.clone(), input);
        let error = |column: Option<&str>, reason: String| Error::Data {
            place: Place { file: name.to_string(), line: 1, column: column.map(str::to_owned) },
            reason,
        };
        let Some(first) = blocks.first_record()? else {
            let place = Place { file: name.to_string(), line: 0, column: None };
            return Err(Error::Data { place, reason: "is empty: there is not even a header".to_owned() });
        };
        let text = first.text.strip_prefix('\u{feff}').unwrap_or(&first.text);
        if text.trim_end_matches(['\n', '\r']).contains('\r') {
            let reason =
                "a carriage return within the line: lines end with \\n or \\r\\n (convert with tr '\\r' '\\n')";
            return Err(error(None, reason.to_owned()));
        }
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut names = csv::StringRecord::new();
        let some = reader.read_record(&mut names).map_err(|e| error(None, e.to_string()))?;
        if !some {
            return Err(error(None, "the first line is empty; it must hold the column names".to_owned()));
        }
        let names: Vec<String> = names.iter().map(str::to_owned).collect();
        for (i, column) in names.iter().enumerate() {
            if column.is_empty() {
                return Err(error(None, format!("column {} of the header has no name", i + 1)));
            }
            if names[..i].contains(column) {
                return Err(error(Some(column), "the header names this column twice".to_owned()));
            }
        }
        let header_line = text.trim_end_matches(['\n', '\r']).to_owned();
        let width = names.len();
        let wanted = Wanted::all(width);
        let (map, places) = (Vec::new(), Vec::new());
        let shape = Shape { name: name.clone(), header_line, width, map, identical: false, wanted, places };
        Ok((Self { blocks, shape }, names))
    }
}

/// One or more CSV inputs as one table.
pub struct Table {
    header: Header,
    sources: Vec<Source>,
    at: usize,
    block: Option<BlockRows>,
}

impl Table {
    /// Opens the inputs and reads their headers. Every file is opened before any row is read.
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
                let file_error = |source| Error::File { path: path.clone(), source };
                let file = File::open(path).map_err(file_error)?;
                if file.metadata().map_err(file_error)?.is_dir() {
                    let reason = "is a directory: name the table in it (a run's folder has results.csv)";
                    return Err(file_error(std::io::Error::new(std::io::ErrorKind::IsADirectory, reason)));
                }
                opened.push((path.display().to_string(), Box::new(file)));
            }
        }
        Self::from_readers(opened)
    }

    /// One table from readers, each with the name that errors give it.
    pub fn from_readers(inputs: Vec<(String, Box<dyn Read + Send>)>) -> Result<Self, Error> {
        let mut header = Header::default();
        let mut sources = Vec::new();
        let mut headers = Vec::new();
        for (name, input) in inputs {
            let (source, names) = Source::open(&name, input)?;
            for name in &names {
                if !header.names.contains(name) {
                    header.names.push(name.clone());
                }
            }
            sources.push(source);
            headers.push(names);
        }
        for (source, names) in sources.iter_mut().zip(&headers) {
            source.shape.map = header
                .names
                .iter()
                .map(|column| names.iter().position(|n| n == column).and_then(|i| u32::try_from(i).ok()))
                .collect();
            source.shape.identical = *names == header.names;
            source.shape.want(Wanted::all(names.len()));
        }
        Ok(Self { header, sources, at: 0, block: None })
    }

    /// One table from text that is already in memory.
    pub fn from_text(name: &str, text: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Self::from_readers(vec![(name.to_owned(), Box::new(std::io::Cursor::new(text.into())))])
    }

    /// The columns.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The index of a column that every input must have.
    pub fn require(&self, name: &str) -> Result<usize, Error> {
        let place = |source: &Source| Place { file: source.shape.name.to_string(), line: 1, column: None };
        let index = self
            .header
            .find(name)
            .ok_or_else(|| Error::Data { place: place(&self.sources[0]), reason: self.header.missing(name) })?;
        match self.sources.iter().find(|s| s.shape.map[index].is_none()) {
            None => Ok(index),
            Some(source) => Err(Error::Data {
                place: place(source),
                reason: format!(
                    "there is no column `{}`, which the other files have: written by an older version, or another filter left it out",
                    self.header.names[index]
                ),
            }),
        }
    }

    /// The index of the rate that is asked for, or of the one that the table has.
    pub fn require_rate(&self, name: Option<&str>) -> Result<usize, Error> {
        let usual =
            || ["throughput_bits_per_s", "transactions_per_s"].into_iter().find(|n| self.header.find(n).is_some());
        self.require(name.or_else(usual).unwrap_or("throughput_bits_per_s"))
    }

    /// An error about the rows as a whole: that there are none of some kind.
    #[must_use]
    pub fn error(&self, reason: impl Into<String>) -> Error {
        let file = self.sources.iter().map(|s| s.shape.name.to_string()).collect::<Vec<_>>().join(", ");
        Error::Data { place: Place { file, line: 0, column: None }, reason: reason.into() }
    }

    /// Says that these columns will be looked at, runs of neighbours (first and last) as a whole: others are only counted,
    /// and cost a search where somebody asks for them after all. Finding each of a hundred mostly empty cells is half of
    /// the work of reading a row.
    pub(crate) fn look_at(&mut self, runs: impl Iterator<Item = (usize, usize)>) {
        let runs: Vec<(usize, usize)> = runs.collect();
        for Source { shape, .. } in &mut self.sources {
            let own: Vec<(usize, usize)> = if shape.identical {
                runs.clone()
            } else {
                // In another order they are no neighbours.
                let columns = runs.iter().flat_map(|(first, last)| *first..=*last);
                columns.filter_map(|column| shape.map[column]).map(|own| (own as usize, own as usize)).collect()
            };
            shape.want(Wanted::runs(shape.width, &own));
        }
    }

    /// The next row, or `None` after the last one of the last input.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Error> {
        loop {
            if let Some(block) = &mut self.block {
                // Asking twice keeps the borrow checker content: a row that is returned must be the last thing borrowed.
                if block.advance(&self.sources[self.at].shape)? {
                    break;
                }
                self.block = None;
            }
            let Some(source) = self.sources.get_mut(self.at) else { return Ok(None) };
            match source.blocks.next(0)? {
                Some(block) => self.block = Some(BlockRows::new(block)),
                None => self.at += 1,
            }
        }
        let shape = &self.sources[self.at].shape;
        Ok(self.block.as_ref().map(|block| block.row(shape, &self.header)))
    }
}

#[cfg(test)]
mod tests;
