//! The layout of iperf3's JSON: tabs, and objects on the line of their array's bracket.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Serializer, Value, ser::Formatter};

use crate::error::Error;

/// Writes one document and a line feed.
pub fn write(document: &Value, output: &mut dyn Write) -> Result<(), Error> {
    document
        .serialize(&mut Serializer::with_formatter(&mut *output, Layout::default()))
        .map_err(|e| Error::Output(e.into()))?;
    output.write_all(b"\n")?;
    Ok(())
}

#[derive(Default)]
struct Layout {
    /// Objects and arrays that are open.
    depth: usize,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"\t"))
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.line(writer)?;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.line(writer)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b":\t")
    }
}
