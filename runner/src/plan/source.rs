//! Places in a plan's texts: byte ranges, lines and columns.

use analyze::export::annotations::At;

/// A range of bytes in one of a plan's sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index in [`Sources`].
    pub source: u16,
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Index of the built-in body among the sources; the plan itself is 0.
pub const BUILT_IN_SOURCE: u16 = 1;

/// A text of a plan: its file, or one `--set` argument.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as given, `<stdin>`, or `--set`.
    pub name: String,
    pub text: String,
}

/// The sources of one plan.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

/// A place for people: file, line, column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl From<SourcePlace> for At {
    fn from(place: SourcePlace) -> Self {
        Self { file: place.file, line: place.line, column: Some(place.column) }
    }
}

impl std::fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Sources {
    /// Adds a source and returns its index.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u16 {
        self.0.push(Source { name: name.into(), text: text.into() });
        u16::try_from(self.0.len() - 1).unwrap_or(u16::MAX)
    }

    pub fn get(&self, index: u16) -> Option<&Source> {
        self.0.get(usize::from(index))
    }

    /// In the order added.
    pub fn all(&self) -> &[Source] {
        &self.0
    }

    pub fn slice(&self, span: Span) -> &str {
        self.get(span.source).and_then(|s| s.text.get(span.start as usize..span.end as usize)).unwrap_or("")
    }

    pub fn place_at(&self, source: u16, offset: u32) -> SourcePlace {
        let Some(Source { name, text }) = self.get(source) else {
            return SourcePlace { file: String::new(), line: 1, column: 1 };
        };
        let mut offset = (offset as usize).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        SourcePlace {
            file: name.clone(),
            line: before.bytes().filter(|b| *b == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The start of a span.
    pub fn place(&self, span: Span) -> SourcePlace {
        self.place_at(span.source, span.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let mut sources = Sources::default();
        let file = sources.add("a.yaml", "a: 1\nµs: x\n");
        let place = sources.place(Span { source: file, start: 10, end: 11 });
        assert_eq!(place.to_string(), "a.yaml:2:5");
        assert_eq!(sources.slice(Span { source: file, start: 5, end: 8 }), "µs");
        assert_eq!(sources.place_at(file, 99).line, 3);
    }
}
