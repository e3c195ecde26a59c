//! Cuts input into blocks of whole records. Only this file decides where a record ends.
//!
//! A block never cuts a record, so blocks can be parsed in any order and on any thread. For a given size the cuts
//! depend on the bytes alone, not on how a pipe delivers them. That keeps parallel results the same on every run.

use std::io::Read;
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

use crate::error::{Error, Place};

/// The longest record that is read, in bytes. A results row with its histogram has a few kilobytes. Anything longer
/// than this is not a table and would only fill the memory.
pub const RECORD_LIMIT: usize = 16 << 20;

/// Bytes that are searched for record ends at a time, while they are still in the processor's cache.
const STEP: usize = if cfg!(test) { 7 } else { 256 << 10 };

/// Whole records of one input, not yet checked for UTF-8.
pub(crate) struct Unchecked {
    bytes: Vec<u8>,
    /// As [`Block::line`], if lines have been counted so far.
    line: u64,
    /// As [`Block::quoted`].
    quoted: bool,
}

impl Unchecked {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of line ends.
    pub(crate) fn lines(&self) -> u64 {
        lines(&self.bytes)
    }

    /// Checks for UTF-8; `file` is for the error.
    pub(crate) fn check(self, file: &str) -> Result<Block, Error> {
        let Self { bytes, line, quoted } = self;
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let line = line + lines(&e.as_bytes()[..at]);
            let byte = e.as_bytes()[at];
            let reason = format!("byte 0x{byte:02x} is not UTF-8; tables are UTF-8 (convert with iconv)");
            Error::Data { place: Place { file: file.to_owned(), line, column: None }, reason }
        })?;
        Ok(Block { text, line, quoted })
    }
}

/// Whole records of one input.
pub(crate) struct Block {
    /// The records with their line ends. The last line end of an input may be missing.
    pub text: String,
    /// The line number of the first record, from 1.
    pub line: u64,
    /// Whether there is a `"`: only then may a record have several lines.
    pub quoted: bool,
}

impl Block {
    /// The number of line ends.
    pub(crate) fn lines(&self) -> u64 {
        lines(self.text.as_bytes())
    }
}

/// First bytes of compressed files (never UTF-8), and the program that unpacks them.
const COMPRESSED: [(&[u8], &str); 3] = [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz")];

/// Cuts one input into blocks.
pub(crate) struct Blocks {
    input: Box<dyn Read + Send>,
    name: Arc<str>,
    /// Bytes read and not handed out yet, up to `filled`; they start with a record. The rest is space for the next
    /// read.
    pending: Vec<u8>,
    filled: usize,
    /// Buffers to reuse: fresh memory costs a page fault every four kilobytes.
    spare: Vec<Vec<u8>>,
    line: u64,
    ended: bool,
}

impl Blocks {
    pub(crate) fn new(name: Arc<str>, input: Box<dyn Read + Send>) -> Self {
        Self { input, name, pending: Vec::new(), filled: 0, spare: Vec::new(), line: 1, ended: false }
    }

    /// The next block of about `size` bytes, or `None` at the end. Size 0 takes whatever one read brings.
    pub(crate) fn next(&mut self, size: usize) -> Result<Option<Block>, Error> {
        let Some(bytes) = self.read(size)? else { return Ok(None) };
        let block = bytes.check(&self.name)?;
        self.line += block.lines();
        Ok(Some(block))
    }

    /// Like [`Self::next`], without checking and counting lines: other threads can do that while the next block is
    /// read. Line numbers continue from the last call of [`Self::next`].
    pub(crate) fn read(&mut self, size: usize) -> Result<Option<Unchecked>, Error> {
        let mut wanted = size;
        // Bytes of `pending` that were searched for record ends.
        let mut scan = Scan::default();
        loop {
            if !self.ended {
                self.fill(wanted.min(self.filled + STEP))?;
            }
            let pending = &self.pending[..self.filled];
            if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| pending.starts_with(magic)) {
                let reason = format!("is compressed: unpack it into a pipe ({program} -dc FILE | plumb …)");
                return Err(self.error(0, reason));
            }
            scan.run(pending);
            if self.ended {
                scan.end(pending);
            } else if self.filled < wanted {
                continue;
            }
            let end = if self.ended { self.filled } else { scan.record_end };
            if end > 0 {
                if self.ended && scan.open_quote.is_some() {
                    return Err(self.error(
                        self.line + lines(&pending[..scan.open_quote.unwrap_or(0)]),
                        "a quoted cell starts here and never ends".to_owned(),
                    ));
                }
                return Ok(Some(self.cut(end, scan.quoted)));
            }
            if self.ended {
                return Ok(None);
            }
            if self.filled >= RECORD_LIMIT {
                return Err(self.error(
                    self.line,
                    format!("the row that starts here is longer than {} MiB, the limit", RECORD_LIMIT >> 20),
                ));
            }
            wanted = (self.filled * 2).clamp(1, RECORD_LIMIT);
        }
    }

    /// The first record alone, with no more reads than it needs: the header.
    pub(crate) fn first_record(&mut self) -> Result<Option<Block>, Error> {
        let Some(mut block) = self.next(0)? else { return Ok(None) };
        let mut scan = Scan::default();
        let end = scan.first(block.text.as_bytes());
        let mut rest = block.text.split_off(end).into_bytes();
        self.line = block.line + lines(block.text.as_bytes());
        rest.extend_from_slice(&self.pending[..self.filled]);
        self.filled = rest.len();
        self.pending = rest;
        block.quoted = memchr(b'"', block.text.as_bytes()).is_some();
        Ok(Some(block))
    }

    /// Whether all input has been handed out.
    pub(crate) fn is_at_end(&self) -> bool {
        self.ended && self.filled == 0
    }

    /// Takes buffers back for reuse.
    pub(crate) fn recycle(&mut self, texts: Vec<String>) {
        self.spare.extend(texts.into_iter().map(String::into_bytes));
    }

    fn cut(&mut self, end: usize, quoted: bool) -> Unchecked {
        let mut rest = self.spare.pop().unwrap_or_default();
        let behind = &self.pending[end..self.filled];
        if rest.len() < behind.len() {
            rest.resize(behind.len(), 0);
        }
        rest[..behind.len()].copy_from_slice(behind);
        self.filled = behind.len();
        let mut bytes = std::mem::replace(&mut self.pending, rest);
        bytes.truncate(end);
        Unchecked { bytes, line: self.line, quoted }
    }

    /// Reads until `wanted` bytes are pending or the input ends. 0 means one read of whatever is there.
    fn fill(&mut self, wanted: usize) -> Result<(), Error> {
        let once = wanted == 0;
        let target = if once { self.filled + (64 << 10) } else { wanted };
        if self.pending.len() < target {
            self.pending.resize(target, 0);
        }
        while self.filled < target {
            match self.input.read(&mut self.pending[self.filled..target]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(read) => self.filled += read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::File { path: self.name.as_ref().into(), source }),
            }
            if once {
                break;
            }
        }
        Ok(())
    }

    fn error(&self, line: u64, reason: String) -> Error {
        Error::Data { place: Place { file: self.name.to_string(), line, column: None }, reason }
    }
}

pub(crate) fn lines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// Finds record ends by RFC 4180: a line end inside a quoted cell does not count, and a quote opens a cell only at the
/// cell's start.
#[derive(Default)]
struct Scan {
    /// Bytes before this one have been searched.
    at: usize,
    /// The end of the last whole record found so far.
    record_end: usize,
    /// The start of the quoted cell that is still open.
    open_quote: Option<usize>,
    quoted: bool,
}

impl Scan {
    fn run(&mut self, bytes: &[u8]) {
        while let Some(quote) = memchr(b'"', &bytes[self.at..]).map(|i| self.at + i) {
            self.quoted = true;
            if self.open_quote.is_some() {
                match bytes.get(quote + 1) {
                    Some(b'"') => self.at = quote + 2,
                    // The byte after the quote has not been read yet: it decides between `""` and the cell's end.
                    None => {
                        self.at = quote;
                        return;
                    }
                    Some(_) => {
                        self.open_quote = None;
                        self.at = quote + 1;
                    }
                }
            } else {
                self.lines_before(bytes, quote);
                if quote == 0 || matches!(bytes[quote - 1], b',' | b'\n') {
                    self.open_quote = Some(quote);
                }
                self.at = quote + 1;
            }
        }
        if self.open_quote.is_none() {
            self.lines_before(bytes, bytes.len());
        }
        self.at = bytes.len();
    }

    /// At the end of the input a quote that was the last byte ends its cell.
    fn end(&mut self, bytes: &[u8]) {
        if self.at < bytes.len() {
            self.open_quote = None;
        }
    }

    fn lines_before(&mut self, bytes: &[u8], end: usize) {
        if let Some(i) = memrchr(b'\n', &bytes[self.at..end]) {
            self.record_end = self.at + i + 1;
        }
    }

    /// The end of the first record of `bytes`, which end with a whole record.
    fn first(&mut self, bytes: &[u8]) -> usize {
        for newline in memchr_iter(b'\n', bytes) {
            self.run(&bytes[..=newline]);
            if self.record_end > 0 {
                return newline + 1;
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes in pieces of a chosen size, as a pipe may.
    struct Pieces(Vec<u8>, usize, usize);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.2.min(out.len()).min(self.0.len() - self.1);
            out[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
            self.1 += n;
            Ok(n)
        }
    }

    fn blocks(text: &str, piece: usize, size: usize) -> Result<Vec<(u64, String)>, Error> {
        let mut blocks = Blocks::new("t".into(), Box::new(Pieces(text.into(), 0, piece)));
        let mut all = Vec::new();
        while let Some(block) = blocks.next(size)? {
            all.push((block.line, block.text));
        }
        Ok(all)
    }

    #[test]
    fn a_quoted_line_end_does_not_end_a_record() {
        let all = blocks("a,\"b\n\"\"c\"\nd,e\n", 1, 12).unwrap();
        assert_eq!(all, [(1, "a,\"b\n\"\"c\"\n".to_owned()), (3, "d,e\n".to_owned())]);
    }

    #[test]
    fn an_endless_quote_names_its_line() {
        let error = blocks("a,b\nc,\"d\ne,f\n", 100, 100).unwrap_err();
        assert_eq!(error.to_string(), "t:2: a quoted cell starts here and never ends");
    }

    #[test]
    fn an_endless_line_is_given_up() {
        let error = Blocks::new("t".into(), Box::new(std::io::repeat(b'x'))).next(0).err().expect("refused");
        assert_eq!(error.to_string(), "t:1: the row that starts here is longer than 16 MiB, the limit");
    }

    #[test]
    fn invalid_utf8_names_its_line() {
        let mut blocks = Blocks::new("t".into(), Box::new(&b"a\nb\n\xff\n"[..]));
        let error = blocks.next(0).err().expect("refused");
        assert!(error.to_string().starts_with("t:3: byte 0xff is not UTF-8"), "{error}");
    }

    proptest! {
        #[test]
        fn blocks_put_together_are_the_input(text in "[a,\"\n]{0,60}", piece in 1usize..9, size in 0usize..20) {
            if let Ok(all) = blocks(&text, piece, size) {
                let joined: String = all.iter().map(|(_, t)| t.as_str()).collect();
                prop_assert_eq!(&joined, &text);
                let mut line = 1;
                for (at, text) in all {
                    prop_assert_eq!(at, line);
                    line += lines(text.as_bytes());
                }
            }
        }

        #[test]
        fn cuts_do_not_depend_on_the_pipe(text in "[a,\"\n]{0,60}", piece in 1usize..9, size in 1usize..20) {
            let whole = blocks(&text, 1000, size).map_err(|e| e.to_string());
            let pieces = blocks(&text, piece, size).map_err(|e| e.to_string());
            if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
                prop_assert_eq!(whole, pieces);
            }
        }
    }
}
